"""The modules that only read, run as on a node, with programs in PATH that return a Spark's output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

QUERY = "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-1"
SMI = (
    f'case "$*" in --query-gpu=name,compute_cap,*) echo "{QUERY}";; "") echo "| CUDA Version: 13.0 |";; *) exit '
    "2;; esac"
)


def test_gpu_info_in_check_mode(tmp_path: Path) -> None:
    answer = run_module("gpu_info", {}, program(tmp_path, "nvidia-smi", SMI), check=True)
    expected = {
        "changed": False,
        "cuda_version": "13.0",
        "driver_version": "580.142",
        "unified_memory": True,
        "reason": "",
    }
    assert answer.items() >= expected.items()
    assert [gpu["sm"] for gpu in answer["gpus"]] == ["sm_121"] and answer["memory_bytes"] > 2**20


def test_node_info_answers_all_in_one(tmp_path: Path) -> None:
    links = [
        {
            "ifname": "lo",
            "mtu": 65536,
            "flags": ["UP", "LOWER_UP"],
            "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}],
        }
    ]
    program(systemd(tmp_path), "nvidia-smi", SMI)
    program(tmp_path, "ip", f"echo '{json.dumps(links)}'")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    answer = run_module("node_info", {"model": str(tmp_path), "user": "root"}, tmp_path)
    assert answer["gpu"]["gpus"][0]["capability"] == "12.1"
    fabric = run_module("fabric_info", {}, tmp_path)
    assert fabric["interfaces"]["lo"]["addresses"] == ["127.0.0.1/8"]
    assert {key: answer[key] for key in ("interfaces", "rdma", "netplan", "unreadable")} == {
        key: value for key, value in fabric.items() if key not in ("changed", "invocation")
    }
    assert answer["model"] == {"model_type": "llama"}
    assert (answer["model_bytes"], answer["model_reason"]) == (None, "")
    assert answer["kernel"] == os.uname().release
    assert {"cma_total_bytes", "cma_free_bytes", "listeners"} <= answer.keys()
    assert answer["updates"]["running"] == os.uname().release and answer["updates"]["boot"]["entries"] == []
    assert run_module("node_info", {"model": str(tmp_path / "none")}, tmp_path)["model"] is None
    assert run_module("node_info", {}, tmp_path)["model_bytes"] is None


def test_node_info_counts_the_weights(tmp_path: Path) -> None:
    program(systemd(tmp_path), "ip", "echo '[]'")
    model = tmp_path / "a[1]"
    model.mkdir()
    for name, size in (("model-1.safetensors", 600), ("model-2.safetensors", 400), ("consolidated.safetensors", 1000)):
        (model / name).write_bytes(bytes(size))

    def counted() -> tuple[int, str]:
        answer = run_module("node_info", {"model": str(model), "user": "root"}, tmp_path)
        return answer["model_bytes"], answer["model_reason"]

    assert counted() == (1000, "")
    index = {"metadata": {"total_size": 995}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert counted() == (995, "")
    (model / "model-2.safetensors").unlink()
    assert counted() == (995, "1 of 2 files in the index are missing: 'model-2.safetensors'")
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 400\n"
    (model / "model-2.safetensors").write_text(pointer, encoding="utf-8")
    assert counted() == (995, "1 of the weights' files are pointers of Git LFS, not the weights: 'model-2.safetensors'")


def test_node_info_names_a_file_that_is_no_model_configuration(tmp_path: Path) -> None:
    program(tmp_path, "ip", "echo '[]'")
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    message = run_module("node_info", {"model": str(tmp_path), "user": "root"}, tmp_path)["msg"]
    assert f"{tmp_path}/config.json is not JSON: " in message


def test_node_info_says_why_it_fails(tmp_path: Path) -> None:
    answer = run_module("node_info", {}, program(tmp_path, "ip", "echo 'Object \"address\" is unknown' >&2; exit 1"))
    assert answer["msg"] == 'ip -json address show failed: Object "address" is unknown'


SHOWN = """LoadState=loaded
UnitFileState=enabled
ActiveState=activating
SubState=auto-restart
Result=exit-code
MainPID=0
NRestarts=3
InvocationID=0f3c
ExecMainStatus=1
Environment=GB10_INPUTS=abc
ExecMainStartTimestampMonotonic=10000000"""
LOG = [
    (10.5, "(APIServer pid=7) INFO 11-21 00:12:38 [model.py:1] Resolved architecture: LlamaForCausalLM"),
    (11.0, "OSError: [Errno 98] Address already in use"),
]


def systemd(folder: Path, shown: str = SHOWN) -> Path:
    entries = "\n".join(
        json.dumps({"__MONOTONIC_TIMESTAMP": str(int(when * 1e6)), "MESSAGE": text}) for when, text in LOG
    )
    (folder / "entries").write_text(entries, encoding="utf-8")
    (folder / "shown").write_text(shown, encoding="utf-8")
    program(folder, "systemctl", f"cat {folder}/shown")
    return program(folder, "journalctl", f'echo "$*" > {folder}/asked; cat {folder}/entries')


@pytest.mark.parametrize(("active", "inputs"), [("activating", "abc"), ("failed", "")])
def test_service_info_takes_inputs_from_a_service_that_runs(tmp_path: Path, active: str, inputs: str) -> None:
    folder = systemd(tmp_path, SHOWN.replace("ActiveState=activating", f"ActiveState={active}"))
    service = run_module("systemd_unit", {"name": "gb10-vllm.service"}, folder)["service"]
    assert service.items() >= {"active": active, "pid": None, "restarts": 3, "inputs": inputs}.items()


def test_service_info_compares_the_unit_its_files_and_their_folders(tmp_path: Path) -> None:
    unit, settings = tmp_path / "gb10-x.service", tmp_path / "folder" / "settings"
    settings.parent.mkdir(mode=0o755)
    for path in (unit, settings):
        path.write_text("text", encoding="utf-8")
        path.chmod(0o644)
    tools = systemd(tmp_path)

    def differs() -> bool:
        arguments = {
            "name": os.path.relpath(unit, "/etc/systemd/system"),
            "unit": {"text": "text", "inputs": "abc"},
            "directories": [str(settings.parent)],
            "files": [{"path": str(settings), "content": "text"}],
        }
        answer = run_module("systemd_unit", arguments, tools)
        assert (answer["changed"], answer["restart_needed"], answer["start_needed"]) == (False, False, False)
        return bool(answer["differs"])

    assert not differs()
    settings.parent.chmod(0o775)
    assert differs()
    settings.parent.chmod(0o755)
    settings.write_text("other", encoding="utf-8")
    assert differs()
    settings.write_text("text", encoding="utf-8")
    unit.chmod(0o600)
    assert differs()


@pytest.mark.parametrize(
    ("inputs", "broken", "reason"),
    [
        ("abc", "", ""),
        ("abc", "it hangs", "it hangs"),
        ("other", "it hangs", "its launch inputs differ from the current plan"),
    ],
)
def test_service_info_has_the_reason_of_a_restart(tmp_path: Path, inputs: str, broken: str, reason: str) -> None:
    arguments = {"name": "gb10-x.service", "unit": {"text": "", "inputs": inputs}, "broken": broken}
    answer = run_module("systemd_unit", arguments, systemd(tmp_path))
    assert (answer["restart_needed"], answer["restart_reason"]) == (bool(reason), reason)


def test_vllm_info_of_a_failed_start(tmp_path: Path) -> None:
    answer = run_module("vllm_info", {"url": "http://127.0.0.1:1", "model": "tiny"}, systemd(tmp_path))
    assert (answer["healthy"], answer["answers"], answer["ready_after"]) == (False, None, None)
    assert answer["progress"] == "architecture LlamaForCausalLM"
    assert answer["cause"].startswith("OSError: [Errno 98] Address already in use; cause: ")
    assert answer["cause"].endswith("docs/troubleshooting.md#port-in-use")
    assert "INVOCATION_ID=0f3c" in (tmp_path / "asked").read_text(encoding="utf-8")


def test_vllm_info_reads_an_earlier_start(tmp_path: Path) -> None:
    run_module("vllm_info", {"url": "http://127.0.0.1:1", "invocation": "aaaa"}, systemd(tmp_path))
    asked = (tmp_path / "asked").read_text(encoding="utf-8")
    assert "INVOCATION_ID=aaaa" in asked and "0f3c" not in asked


def test_ray_info_names_what_it_could_not_do(tmp_path: Path) -> None:
    answer = run_module("ray_info", {"token_path": str(tmp_path / "none"), "expect": {"spark1": "10.110.0.1"}})
    assert answer["msg"].startswith("Ray is not complete: after 0 s: ")
    assert str(tmp_path / "none") in answer["msg"]


ANSWER = {
    "version": "0.40.0",
    "options": [{"name": "--port", "kind": "value", "aliases": [], "choices": [], "fold": "", "open": False}],
    "variables": ["VLLM_X"],
}


def test_vllm_arguments_in_check_mode(tmp_path: Path) -> None:
    folder = program(
        tmp_path,
        "python",
        f"echo 'INFO plugins are loaded'; echo \"$#\" \"$1\" > {tmp_path}/asked; echo '{json.dumps(ANSWER)}'",
    )
    answer = run_module("vllm_arguments_info", {"python": f"{folder}/python"}, tmp_path, check=True)
    assert {key: answer[key] for key in ANSWER} == ANSWER
    assert (answer["changed"], (tmp_path / "asked").read_text(encoding="utf-8")) == (False, "2 -c\n")


def test_vllm_arguments_asks_vllm(tmp_path: Path) -> None:
    """The program finds the parser at its location until vLLM 0.28, and reads it as an argparse parser."""
    package = tmp_path / "vllm"
    files = {
        "__init__.py": "",
        "version.py": "__version__ = '0.28.0'",
        "envs.py": "environment_variables = {'VLLM_HOST_IP': None}",
        "utils/__init__.py": "",
        "utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser",
        "tool_parsers/__init__.py": "class ToolParserManager:\n    list_registered = staticmethod(lambda: ['hermes'])",
        "entrypoints/__init__.py": "",
        "entrypoints/openai/__init__.py": "",
        "entrypoints/openai/cli_args.py": """
import argparse
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--tensor-parallel-size", "-tp", type=int)
    parser.add_argument("--eager", action=argparse.BooleanOptionalAction)
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--names", nargs="+")
    parser.add_argument("--hf-token", nargs="?", const=True)
    parser.add_argument("--middleware", action="append")
    parser.add_argument("--moe-backend", choices=["a_b"], type=lambda s: s.lower().replace("-", "_"))
    parser.add_argument("--tokenizer-mode", metavar=["auto", "hf"])
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--load-format")
    return parser
""",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    folder = program(tmp_path, "python", f'cd {tmp_path} && exec {sys.executable} "$@"')
    answer = run_module("vllm_arguments_info", {"python": [f"{folder}/python"]}, tmp_path)
    assert (answer["version"], answer["variables"]) == ("0.28.0", ["VLLM_HOST_IP"])
    assert vllm_release_checks.options_of(answer["options"]) == {
        option.name: option
        for option in [
            vllm_release_checks.Option("--tensor-parallel-size", aliases=("-tp",)),
            vllm_release_checks.Option("--eager", "flag", ("--no-eager",)),
            vllm_release_checks.Option("--headless", "flag"),
            vllm_release_checks.Option("--names", "list"),
            vllm_release_checks.Option("--hf-token", "optional"),
            vllm_release_checks.Option("--middleware", "append"),
            vllm_release_checks.Option("--moe-backend", choices=("a_b",), fold="lower"),
            vllm_release_checks.Option("--tokenizer-mode", choices=("auto", "hf"), open=True),
            vllm_release_checks.Option("--tool-call-parser", choices=("hermes",), open=True),
            vllm_release_checks.Option("--load-format"),
        ]
    }


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'ModuleNotFoundError: No module named vllm' >&2; exit 1",
            "could not read vLLM's arguments: ModuleNotFoundError: No module named vllm",
        ),
        ("exit 3", "could not read vLLM's arguments: status 3"),
        ("echo hello", r"returned no valid JSON of vLLM's arguments: 'hello\n'"),
        ("true", "returned no valid JSON of vLLM's arguments: ''"),
        ("echo '{{\"failed\": 1}}'", "list of options missing or invalid"),
        (
            'exec {python} "$@"',
            "could not read vLLM's arguments: ImportError: none of vllm.entrypoints.common.cli_args, ",
        ),
    ],
)
def test_vllm_arguments_says_why_it_fails(tmp_path: Path, script: str, said: str) -> None:
    folder = program(tmp_path, "python", script.format(python=sys.executable))
    assert said in run_module("vllm_arguments_info", {"python": [f"{folder}/python"]}, tmp_path)["msg"]
    assert "python is empty" in run_module("vllm_arguments_info", {"python": []}, tmp_path)["msg"]


OFFERED = '{"Devices": [{"Name": "UEFI", "Flags": ["updatable"], "Version": "1", "Releases": [{"Version": "2"}]}]}'


@pytest.mark.parametrize(
    ("answer", "expected", "shown"),
    [
        ("exit 1", None, "firmware of devices: unknown, because fwupdmgr get-updates failed"),
        (f"echo '{OFFERED}'", [{"device": "UEFI", "installed": "1", "candidate": "2"}], "firmware of devices: UEFI 1 -> 2"),
    ],
)  # fmt: skip
def test_os_update_info_asks_for_firmware(tmp_path: Path, answer: str, expected: Any, shown: str) -> None:
    for name in ("apt-get", "apt-mark", "dpkg", "dpkg-query"):
        program(systemd(tmp_path), name, "true")
    program(tmp_path, "fwupdmgr", f'case "$1" in --help) ;; get-updates) {answer};; *) exit 2;; esac')
    found = run_module("os_update_info", {}, tmp_path)
    assert found["state"]["firmware"] == expected
    assert found["lines"][-1].startswith(shown)
    assert run_module("os_update_info", {"packages": False}, tmp_path)["state"]["firmware"] == []


def test_a_system_that_cannot_be_read_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object, **_named: object) -> None:
        raise PermissionError(13, "Permission denied", "/boot/grub/grub.cfg")

    monkeypatch.setattr(io_state, "read", refuse)
    assert io_state.facts(lambda _argv: (0, "", "")) == {
        "reason": "[Errno 13] Permission denied: '/boot/grub/grub.cfg'"
    }
