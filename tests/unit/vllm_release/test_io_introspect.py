"""Tests of the program that reads an installed vLLM, and of its answer. vLLM is a stand-in."""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stand_in_modules

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import answer, io_introspect

PARSER = "vllm.entrypoints.openai.cli_args"
PAIRED = ["--no-enable-prefix-caching", "--disable-prefix-caching"]


def _lower(value: str) -> str:
    return value.lower().replace("-", "_")


def _number(value: str) -> int:
    raise argparse.ArgumentTypeError(value)


class EnableDisableAction(argparse.BooleanOptionalAction):
    """Like the one since 0.33, a flag by another class, whose older names --help does not show."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest)
        self.option_strings = [*self.option_strings, "--disable-prefix-caching"]


def make_arg_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add an option of each kind, as vLLM does."""
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--port", type=int)
    parser.add_argument("-tp", "--tensor-parallel-size", type=_number)
    parser.add_argument("--api-key", nargs="+")
    parser.add_argument("--allowed-media-domains", nargs="*")
    parser.add_argument("--hf-token", nargs="?")
    parser.add_argument("--middleware", action="append")
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction)
    paired = parser.add_argument("--enable-prefix-caching", action=EnableDisableAction)
    paired.option_strings = ["--enable-prefix-caching", "--disable-prefix-caching"]
    parser.add_argument("--moe-backend", type=_lower, choices=["triton", "auto"])
    parser.add_argument("--load-format")
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--reasoning-parser")
    parser.add_argument("--attention-backend")
    parser.add_argument("--quantization", choices=["fp8"])
    # It takes another text, too.
    parser.add_argument("--config-format").metavar = ["hf", "auto"]  # type: ignore[assignment]
    return parser


class AttentionConfig(SimpleNamespace):
    """Like the one since 0.18, whose `auto` means no backend."""

    def __init__(self, backend: str) -> None:
        super().__init__(backend={"auto": None}[backend])


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Install a vLLM without Ray, NCCL and reasoning parsers."""
    add = partial(stand_in_modules.add, monkeypatch)
    add("vllm.utils.argparse_utils", FlexibleArgumentParser=argparse.ArgumentParser)
    add(PARSER, make_arg_parser=make_arg_parser)
    backends = SimpleNamespace(__members__={"FLASH_ATTN": 1, "FLASHINFER": 2})
    add("vllm.config.attention", AttentionConfig=AttentionConfig, AttentionBackendEnum=backends)
    add("vllm.model_executor.layers.quantization", QUANTIZATION_METHODS=["awq", "fp8"])
    add("vllm.model_executor.model_loader", _LOAD_FORMAT_TO_MODEL_LOADER={"gguf": 1, "auto": 2})
    parsers = ["hermes"]
    add("vllm.tool_parsers", ToolParserManager=SimpleNamespace(list_registered=lambda: parsers))
    add("vllm.reasoning")
    add("vllm.plugins", load_general_plugins=lambda: parsers.append("mine"))
    add("vllm.version", __version__="0.33.0")
    add("vllm.envs", environment_variables={"VLLM_PORT": 1, "VLLM_HOST_IP": 2})
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/none/libnccl.so.2")
    return monkeypatch


def option(name: str, kind: str = "value", aliases: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "aliases": [*aliases], "choices": [], "fold": "", "open": False} | more


@pytest.mark.usefixtures("vllm")
def test_an_installed_vllm_returns_its_options_with_the_values_of_later_checks() -> None:
    found = io_introspect.answer()
    assert found == {
        "version": "0.33.0",
        "ray": "",
        "nccl": "",
        "options": [
            option("--port"),
            option("--tensor-parallel-size", aliases=["-tp"]),
            option("--api-key", "list"),
            option("--allowed-media-domains", "list"),
            option("--hf-token", "optional"),
            option("--middleware", "append"),
            option("--headless", "flag"),
            option("--enforce-eager", "flag", ["--no-enforce-eager"]),
            option("--enable-prefix-caching", "flag", PAIRED),
            option("--moe-backend", choices=["auto", "triton"], fold="lower"),
            option("--load-format", choices=["auto", "gguf"], open=True),
            option("--tool-call-parser", choices=["hermes", "mine"], open=True),
            # This release does not tell them.
            option("--reasoning-parser"),
            option("--attention-backend", choices=["AUTO", "FLASHINFER", "FLASH_ATTN"], fold="upper", open=True),
            # The parser has checked them already.
            option("--quantization", choices=["fp8"]),
            option("--config-format", choices=["auto", "hf"], open=True),
        ],
        "variables": ["VLLM_HOST_IP", "VLLM_PORT"],
    }
    assert answer.answered(f"a warning\n{json.dumps(found)}") == found


@pytest.mark.parametrize(
    "config",
    [
        lambda backend: {}[backend],
        lambda backend: SimpleNamespace(backend=int(backend)),
        lambda backend: SimpleNamespace(backend=backend),
    ],
)
def test_a_release_without_an_automatic_backend_does_not_have_it_as_a_value(
    vllm: pytest.MonkeyPatch, config: Callable[[str], Any]
) -> None:
    vllm.setattr(sys.modules["vllm.config.attention"], "AttentionConfig", config)
    (found,) = (each for each in io_introspect.answer()["options"] if each["name"] == "--attention-backend")
    assert found["choices"] == ["FLASHINFER", "FLASH_ATTN"]


def test_ray_has_its_release_and_plugins_are_not_needed(vllm: pytest.MonkeyPatch) -> None:
    stand_in_modules.add(vllm, "ray", __version__="2.60.0")
    stand_in_modules.add(vllm, "vllm.plugins")
    assert io_introspect.answer()["ray"] == "2.60.0"


def test_an_option_that_extends_a_list_takes_several_values() -> None:
    action = argparse.ArgumentParser().add_argument("--plugins", action="extend", nargs="+")
    assert io_introspect.described(action, action.option_strings)["kind"] == "list"


def test_an_option_with_a_fixed_number_of_values_is_an_error() -> None:
    action = argparse.ArgumentParser().add_argument("--pair", nargs=2)
    with pytest.raises(ValueError, match="--pair takes 2 values"):
        io_introspect.described(action, action.option_strings)


@pytest.mark.parametrize("name", [PARSER, "vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.common.cli_args"])
def test_each_release_has_its_parser_at_another_place(vllm: pytest.MonkeyPatch, name: str) -> None:
    vllm.delitem(sys.modules, PARSER)
    stand_in_modules.add(vllm, name, make_arg_parser=make_arg_parser)
    assert io_introspect.answer()["options"]
    vllm.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=rf"none of .*{PARSER} found"):
        io_introspect.answer()


@pytest.mark.parametrize("text", ["import no_such_module", "raise ModuleNotFoundError('no_such_module')"])
def test_a_module_that_the_parser_needs_is_not_taken_for_another_place(
    vllm: pytest.MonkeyPatch, text: str, tmp_path: Path
) -> None:
    vllm.delitem(sys.modules, PARSER)
    stand_in_modules.add(vllm, "vllm.entrypoints.openai", __path__=[str(tmp_path)])
    (tmp_path / "cli_args.py").write_text(text, encoding="utf-8")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        io_introspect.answer()


@pytest.mark.parametrize(("code", "release"), [(23007, "2.30.7"), (22705, "2.27.5"), (2708, "0.27.8")])
def test_the_library_returns_its_release(code: int, release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def load(name: str) -> Any:
        opened.append(name)
        return SimpleNamespace(ncclGetVersion=lambda pointer: setattr(pointer._obj, "value", code))

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.delenv("VLLM_NCCL_SO_PATH", raising=False)
    assert io_introspect._nccl() == release
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/own/libnccl.so")
    assert io_introspect._nccl() == release
    assert opened == ["libnccl.so.2", "/own/libnccl.so"], "as vLLM's ranks open it"


def test_an_image_without_the_library_has_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/none/libnccl.so.2")
    assert io_introspect._nccl() == ""


WHOLE = {"version": "0.33.0", "ray": "", "nccl": "2.27.5", "options": [option("--a")], "variables": ["VLLM_PORT"]}


@pytest.mark.parametrize(
    "change",
    [
        {"version": None},
        {"version": "{{ 1 }}"},
        {"ray": "2.60.0; reboot"},
        *({"nccl": said} for said in ("2.27", "2.27.5-1", "2.27.5\n", "-1.0.0", "{{ 1 }}", 2, ["2.27.5"])),
        *({"options": options} for options in (None, {}, [], [1], [option("--a"), None], [option("--a")] * 5000)),
        *({"options": [option(name)]} for name in ("a", "--", "--a b", "--{{ 1 }}", None)),
        {"options": [option("--a", "another")]},
        {"options": [option("--a", fold="title")]},
        {"options": [option("--a", open="yes")]},
        {"options": [option("--a", aliases=["b"])]},
        {"options": [option("--a") | {"aliases": "-b"}]},
        {"options": [option("--a", choices=["a\nb"])]},
        {"options": [option("--a", choices=[1])]},
        {"variables": None},
        {"variables": ["A=1"]},
        {"variables": ["A"] * 5000},
    ],
    ids=lambda change: str(change)[:60],
)
def test_an_answer_has_names_and_releases_only(change: dict[str, Any]) -> None:
    assert answer.answered(json.dumps(WHOLE)) == WHOLE
    with pytest.raises(ValueError, match=r"not a valid|missing or invalid"):
        answer.answered(json.dumps(WHOLE | change))


@pytest.mark.parametrize("printed", ["", "{", "[]", "1", f"{json.dumps(WHOLE)}\nTraceback"])
def test_the_last_line_is_the_answer(printed: str) -> None:
    with pytest.raises(ValueError):
        answer.answered(printed)
