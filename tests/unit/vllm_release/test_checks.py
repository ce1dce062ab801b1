"""Options and variables of vLLM's releases, and the problems with unknown ones."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common import flags
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.checks import (
    Option,
    check_environment,
    parse,
    rows,
    spans,
)
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.replacements import EARLIER, REPLACED
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.table import READ

NEW, OLD, NEWEST = "0.32.0", "0.13.0", READ.split()[-1]


@pytest.mark.parametrize(
    ("version", "expected", "known"),
    [
        ("0.32.0", (0, 32, 0), True),
        ("0.32.0+cpu", (0, 32, 0), True),
        ("v0.21.1rc1.dev169+gabc", (0, 21, 1), True),
        ("0.13.0", (0, 13, 0), True),
        ("0.20.7", (0, 20, 7), True),
        ("0.33.0", (0, 33, 0), True),
        ("0.9", (0, 9, 0), False),
        ("0.12.9", (0, 12, 9), False),
        ("0.33.1", (0, 33, 1), False),
        ("1.0.0", (1, 0, 0), False),
    ],
)
def test_the_table_has_the_releases_between_two(version: str, expected: tuple[int, int, int], known: bool) -> None:
    assert (checks.number(version), checks.known(version)) == (expected, known)
    message = re.escape(f"unknown vLLM release {version} (known releases: 0.13.0 to 0.33.0)")
    with contextlib.nullcontext() if known else pytest.raises(ValueError, match=message):
        checks.options(version)


@pytest.mark.parametrize("version", ["", "latest", "nightly-arm64", "32"])
def test_another_text_is_no_version(version: str) -> None:
    with pytest.raises(ValueError, match="is not a vLLM version"):
        checks.number(version)


#: Read from the sources: a release without the option, and the adjacent one with it.
@pytest.mark.parametrize(
    ("name", "without", "with_it"),
    [
        ("--moe-backend", "0.16.0", "0.17.0"),
        ("--linear-backend", "0.21.0", "0.22.0"),
        ("--kernel-config", "0.15.1", "0.16.0"),
        ("--swap-space", "0.18.0", "0.17.1"),
        ("--grpc-port", "0.31.0", "0.32.0"),
        ("--reasoning-effort-map", "0.32.0", "0.33.0"),
        # A release between two in the table counts as the older one.
        ("--fingerprint-mode", "0.20.9", "0.21.5"),
    ],
)
def test_has_option(name: str, without: str, with_it: str) -> None:
    assert (name in checks.options(without), name in checks.options(with_it)) == (False, True)


@pytest.mark.parametrize(
    ("name", "without", "with_it"),
    [
        ("VLLM_ATTENTION_BACKEND", "0.15.0", "0.14.1"),
        ("VLLM_MXFP4_USE_MARLIN", "0.24.0", "0.23.0"),
        ("VLLM_TEST_FORCE_FP8_MARLIN", "0.29.0", "0.28.0"),
        ("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "0.33.0", "0.32.0"),
        ("VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD", "0.20.0", "0.20.1"),
        # Missing for two releases.
        ("VLLM_ROCM_USE_AITER_FP4_ASM_GEMM", "0.30.0", "0.31.0"),
        ("VLLM_ROCM_USE_AITER_FP4_ASM_GEMM", "0.29.0", "0.28.0"),
    ],
)
def test_has_variable(name: str, without: str, with_it: str) -> None:
    assert (checks.has_variable(without, name), checks.has_variable(with_it, name)) == (
        False,
        True,
    )


def test_an_option_is_whole() -> None:
    there = checks.options(NEW)
    assert there["--tensor-parallel-size"] == Option("--tensor-parallel-size", "value", ("-tp",))
    assert there["--enable-expert-parallel"] == Option(
        "--enable-expert-parallel", "flag", ("-ep", "--no-enable-expert-parallel")
    )
    assert there["--headless"] == Option("--headless", "flag")
    assert there["--gdn-prefill-backend"].choices == ("aiter_flydsl", "cutedsl", "flashinfer", "triton")
    assert checks.options("0.21.0")["--gdn-prefill-backend"].choices == ("flashinfer", "triton")
    assert "-ep" not in checks.options(OLD)["--enable-expert-parallel"].aliases


@pytest.mark.parametrize(
    ("flag", "option"),
    [("--disable-prefix-caching", "--enable-prefix-caching"), ("--enable-cascade-attn", "--disable-cascade-attn")],
)
def test_since_0_33_a_flag_has_its_opposite(flag: str, option: str) -> None:
    assert parse([option, flag], "0.33.0") == ({option: False}, [])
    assert parse([flag, option], "0.33.0") == ({option: True}, [])
    (problem,) = parse([flag], NEW)[1]
    assert (problem.found, problem.fix) == (f"vLLM 0.32.0 has no option {flag}", f"write --no-{option[2:]}")
    (problem,) = parse([f"--no-{flag[2:]}"], "0.33.0")[1]
    assert problem.fix == f"write {option}"
    # It has no form that turns it off, so nothing does the same.
    assert parse(["--enable-log-stats"], NEW)[1][0].fix != "write --disable-log-stats"


#: Each row was verified with the parser of vLLM 0.32.0 (CPU).
@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--port", "8000", "--port=9000"], {"--port": "9000"}),
        (
            ["-tp", "2", "-pp=3", "-n2"],
            {"--tensor-parallel-size": "2", "--pipeline-parallel-size": "3", "--nnodes": "2"},
        ),
        (["-q", "fp8", "-qawq"], {"--quantization": "awq"}),
        (["--gpu_memory_utilization", "0.5"], {"--gpu-memory-utilization": "0.5"}),
        (["--device-memory-utilization", "0.3"], {"--gpu-memory-utilization": "0.3"}),
        (
            ["--enforce-eager", "--no_enable_prefix_caching", "-ep"],
            {"--enforce-eager": True, "--enable-prefix-caching": False, "--enable-expert-parallel": True},
        ),
        (["--served-model-name", "a", "b", "--headless"], {"--served-model-name": ["a", "b"], "--headless": True}),
        (["--middleware", "a", "--middleware", "b"], {"--middleware": ["a", "b"]}),
        (["--hf-token", "--hf-token=x"], {"--hf-token": "x"}),
        (["--hf-token"], {"--hf-token": True}),
        (
            ["--max-model-len", "-1", "--chat-template", "-x y", "--revision", ""],
            {"--max-model-len": "-1", "--chat-template": "-x y", "--revision": ""},
        ),
        (["--chat-template=a b", "-n 2"], {"--chat-template": "a b", "--nnodes": " 2"}),
        (["-O3"], {"--optimization-level": "3"}),
        (["-O", "2", "-O=1"], {"--optimization-level": "1"}),
        (
            ["-cc.mode", "3", "--compilation_config.pass_config.a_b=1"],
            {"--compilation-config.mode": "3", "--compilation-config.pass_config.a_b": "1"},
        ),
        (["--compilation-config", '{"mode": 2}'], {"--compilation-config": '{"mode": 2}'}),
        (["--moe-backend", "Flashinfer-CUTLASS"], {"--moe-backend": "flashinfer_cutlass"}),
        (["--attention-backend", "flash_attn"], {"--attention-backend": "FLASH_ATTN"}),
        (
            ["--tool-call-parser", "mine", "--tool-parser-plugin", "mine.py"],
            {"--tool-call-parser": "mine", "--tool-parser-plugin": "mine.py"},
        ),
        (["--distributed-executor-backend", "my.Executor"], {"--distributed-executor-backend": "my.Executor"}),
        (["--collect-detailed-traces", "model", "worker"], {"--collect-detailed-traces": ["model", "worker"]}),
    ],
    ids=str,
)
def test_parse(argv: list[str], expected: dict[str, Any]) -> None:
    assert parse(argv, NEW) == (expected, [])


@pytest.mark.parametrize(
    ("release", "argv", "place", "found", "fix"),
    [
        (NEW, ["--swap-space", "4"], 0, "--swap-space was removed in vLLM 0.18.0", "remove it: vLLM no longer swaps"),
        (
            "0.16.0",
            ["--port", "1", "--moe-backend", "triton"],
            2,
            "--moe-backend exists only since vLLM 0.17.0",
            "VLLM_USE_FLASHINFER_MOE_FP8",
        ),
        (
            "0.18.1",
            ["--linear-backend=torch"],
            0,
            "--linear-backend exists only since vLLM 0.22.0",
            "set VLLM_DISABLED_KERNELS",
        ),
        (
            "0.18.1",
            ["--moe-backend", "triton_unfused"],
            1,
            "--moe-backend triton_unfused exists only since vLLM 0.21.0",
            "choose a value",
        ),
        (
            NEW,
            ["--load-format", "bitsandbytes"],
            1,
            "--load-format bitsandbytes was removed in vLLM 0.28.0",
            "choose a value that vLLM 0.32.0 accepts",
        ),
        (NEW, ["--moe-backend=tritn"], 0, "--moe-backend does not accept 'tritn'", "write triton"),
        (NEW, ["--kv-cache-dtype", "FP8"], 1, "--kv-cache-dtype does not accept 'FP8'", "choose a value"),
        (NEW, ["--tool-call-parser", "hermez"], 1, "--tool-call-parser does not accept 'hermez'", "write hermes"),
        (
            NEW,
            ["--enable-reasoning"],
            0,
            "vLLM 0.32.0 has no option --enable-reasoning",
            "remove it: --reasoning-parser is enough",
        ),
        (
            NEW,
            ["--tensor-paralel-size", "2"],
            0,
            "vLLM 0.32.0 has no option --tensor-paralel-size",
            "write --tensor-parallel-size",
        ),
        (
            NEW,
            ["--gpu-memory-util", "0.5"],
            0,
            "--gpu-memory-util is short for --gpu-memory-utilization",
            "write --gpu-memory-utilization",
        ),
        *(
            (NEW, [argument], 0, f"{argument.partition(' ')[0]} and the text after it are one argument", fix)
            for argument, fix in {
                "--max-model-len 4096": "write --max-model-len=4096, or two list items",
                "--gpu_memory_utilization 0.8": "write --gpu_memory_utilization=VALUE, or two list items",
                "--compilation-config.mode 3": "write --compilation-config.mode=3, or two list items",
                '--speculative-config {"method": "mtp"}': "write --speculative-config=VALUE, or two list items",
                "-tp 2": "write -tp=2, or two list items",
                "--enforce-eager --port 1": "make each word a separate list item",
                "--quantization --port 1": "make each word a separate list item",
            }.items()
        ),
        *(
            (NEW, [name], 0, f"vLLM 0.32.0 has no option {name.split()[0]}", "remove it")
            for name in ("--enable-fooo", "--enable-x y")
        ),
        (NEW, ["--no-headless"], 0, "--headless cannot be turned off", "remove it"),
        (NEW, ["-tp2"], 0, "vLLM 0.32.0 has no option -tp2", "write -tp"),
        (OLD, ["-ep"], 0, "vLLM 0.13.0 has no option -ep", ""),
        (
            NEW,
            ["--quantization"],
            0,
            "--quantization has no value",
            "write --quantization and its value as two arguments",
        ),
        (NEW, ["--quantization", "--port", "1"], 0, "--quantization has no value", ""),
        (NEW, ["--served-model-name"], 0, "--served-model-name has no value", ""),
        (NEW, ["--compilation-config.mode"], 0, "--compilation-config.mode has no value", ""),
        (NEW, ["--enforce-eager.x", "1"], 0, "--enforce-eager takes no keys", "write --enforce-eager without .x"),
        (
            NEW,
            ["--conpilation-config.mode", "3"],
            0,
            "vLLM 0.32.0 has no option --conpilation-config",
            "write --compilation-config",
        ),
        (NEW, ["--enforce-eager=1"], 0, "--enforce-eager takes no value", "write --enforce-eager"),
        (
            NEW,
            ["--enforce-eager", "true"],
            1,
            "unexpected argument 'true' after --enforce-eager, which takes no value",
            "remove it",
        ),
        (NEW, ["--port", "1", "stray"], 2, "unexpected argument 'stray'", "remove it"),
        (NEW, ["--", "x"], 0, "vLLM 0.32.0 has no option --", "remove it"),
        (NEW, ["--model", "other"], 0, "the model is already set", "remove --model"),
    ],
    ids=str,
)
def test_a_mistake(release: str, argv: list[str], place: int, found: str, fix: str) -> None:
    (problem,) = parse(argv, release, path="gb10_vllm_extra_args")[1]
    assert problem.path == f"gb10_vllm_extra_args[{place}]"
    assert problem.found.startswith(found)
    assert fix in problem.fix


def test_all_mistakes_are_told_in_order() -> None:
    argv = [
        "--load-format",
        "gguf",
        "--swap-space",
        "4",
        "--port",
        "8000",
        "--moe-backend",
        "none",
        "--enable-reasoning",
    ]
    values, problems = parse(argv, NEW, path="args")
    assert [problem.path for problem in problems] == ["args[1]", "args[2]", "args[7]", "args[8]"]
    assert values == {"--load-format": "gguf", "--port": "8000", "--moe-backend": "none"}


@pytest.mark.parametrize("argument", ["-x", "--x", "--x y", "-tp", "--port=1", "-1x"])
def test_what_looks_like_an_option_is_no_value(argument: str) -> None:
    problem = parse(["--chat-template", argument], NEW)[1][0]
    assert problem.found == "--chat-template has no value"


def test_a_newer_release_is_asked() -> None:
    argv = ["--brand-new", "1", "--port", "1"]
    values, (problem,) = parse(argv, "0.40.0", path="args")
    assert (values, problem.path) == ({}, "args")
    assert "vLLM 0.40.0 are unknown (known releases: 0.13.0 to 0.33.0)" in problem.found
    assert problem.fix.startswith("use a release up to 0.33.0; site.yml reads")
    answer = [
        {"name": "--brand-new", "kind": "value", "aliases": ["-bn"], "choices": ["1", "2"], "fold": "", "open": False},
        {"name": "--port", "kind": "value", "aliases": [], "choices": [], "fold": "", "open": False},
    ]
    queried = checks.options_of(answer)
    assert parse(argv, "0.40.0", queried) == ({"--brand-new": "1", "--port": "1"}, [])
    found = [problem.found for problem in parse(["-bn", "3", "--swap-space", "1"], "0.40.0", queried)[1]]
    assert found == ["--brand-new does not accept '3'", "vLLM 0.40.0 has no option --swap-space"]


@pytest.mark.parametrize(
    ("release", "queried", "found"),
    [
        (
            "0.24.0",
            None,
            {
                ".VLLM_ATTENTION_BACKEND": (
                    "VLLM_ATTENTION_BACKEND was removed in vLLM 0.15.0",
                    "use --attention-backend",
                ),
                ".VLLM_USE_DEEPGEMM": ("vLLM 0.24.0 does not read VLLM_USE_DEEPGEMM", "write VLLM_USE_DEEP_GEMM"),
                ".VLLM_X": ("vLLM 0.24.0 does not read VLLM_X", "remove it"),
            },
        ),
        (
            "0.14.1",
            None,
            {
                ".VLLM_USE_DEEPGEMM": ("vLLM 0.14.1 does not read VLLM_USE_DEEPGEMM", "write VLLM_USE_DEEP_GEMM"),
                ".VLLM_X": ("vLLM 0.14.1 does not read VLLM_X", "remove it"),
            },
        ),
        ("0.40.0", ["VLLM_ATTENTION_BACKEND", "VLLM_USE_DEEPGEMM", "VLLM_HOST_IP", "VLLM_X"], {}),
        (
            "0.40.0",
            ["VLLM_HOST_IP", "VLLM_ATTENTION_BACKEND", "VLLM_USE_DEEPGEMM"],
            {".VLLM_X": ("vLLM 0.40.0 does not read VLLM_X", "remove it")},
        ),
    ],
)
def test_a_variable_that_the_release_does_not_read_is_a_problem(
    release: str, queried: list[str] | None, found: dict[str, tuple[str, str]]
) -> None:
    names = ("VLLM_HOST_IP", "NCCL_DEBUG", "VLLM_ATTENTION_BACKEND", "VLLM_USE_DEEPGEMM", "VLLM_X")
    assert check_environment(dict.fromkeys(names, "1"), release, queried, "env") == [
        Problem(f"env{path}", f"{text}; vLLM ignores it", f"a variable that vLLM {release} reads", fix)
        for path, (text, fix) in found.items()
    ]


def test_the_variables_of_an_unlisted_release_are_unknown() -> None:
    assert check_environment({"VLLM_HOST_IP": "1", "VLLM_NEW": "1"}, "0.40.0") == [
        checks.newer("0.40.0", "environment")
    ]
    assert check_environment({"NCCL_DEBUG": "INFO"}, "0.40.0") == []


def test_what_is_replaced_is_gone_and_what_replaces_it_is_there() -> None:
    for name, (advice, source) in REPLACED.items():
        assert source
        assert name not in checks.options(NEWEST) and not checks.has_variable(NEWEST, name), name
        for option in re.findall(r"--[a-z0-9-]+", advice):
            assert option in checks.options(NEWEST), option
    for name in EARLIER:
        assert name in checks.options(NEWEST) and name not in checks.options(OLD)


def test_spans_of_the_table_are_of_releases_that_were_read() -> None:
    known = {checks.number(version) for version in READ.split()}
    for block in ("OPTIONS", "VARIABLES"):
        for row in rows(block).values():
            for since, until in (span for word in row for span in spans(word)):
                assert since < (until or (99, 0, 0)), row
                assert {since, until or since} <= known, row


@given(st.sampled_from(["0.13.0", "0.20.2", "0.32.0", "0.33.0"]), st.data())
def test_what_an_option_takes_is_no_problem(release: str, data: st.DataObject) -> None:
    options = checks.options(release)
    option = options[data.draw(st.sampled_from(sorted(options.keys() - {"--model"})))]
    flag = data.draw(st.sampled_from((option.name, *option.aliases)))
    value = data.draw(st.sampled_from(option.choices)) if option.choices else "x"
    values, problems = parse([flag] if option.kind == "flag" else [flag, value], release)
    off = flag != option.name and (flag.startswith("--no-") or flags.inverse(flag) == option.name)
    expected: object = {"flag": not off, "list": [option.folded(value)], "append": [value]}.get(
        option.kind, option.folded(value)
    )
    assert (values, problems) == ({option.name: expected}, [])
