"""Untrusted builds of nodes, the state of the unit, and the cause of a failed build."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import parse

NAME = "0.33.0-0123456789ab"
STAMP = {"name": NAME, "wheel": "vllm-w.whl", "sha256": "e672" + "0" * 60}


def test_a_stamp_is_a_build() -> None:
    assert parse.build({**STAMP, "other": 1}) == STAMP


@pytest.mark.parametrize(
    "changes",
    [
        *({"name": name} for name in (None, "../n", "n" * 129)),
        *({"wheel": wheel} for wheel in ("../vllm-w.whl", "/w.whl", "uv-1.whl", "vllm-w.whl\nRUN x", ["vllm-w.whl"])),
        *({"sha256": digest} for digest in ("E" * 64, "0" * 63, None)),
    ],
)
def test_a_stamp_of_another_form_is_no_build(changes: dict[str, Any]) -> None:
    assert parse.build({**STAMP, **changes}) == {}
    assert parse.builds([{**STAMP, **changes}, STAMP, "x", None]) == (STAMP,)


@pytest.mark.parametrize("given", [None, "x", {}, {"a": 1}, 7])
def test_other_values_than_stamps_are_no_builds(given: Any) -> None:
    assert (parse.builds(given), parse.build(given)) == ((), {})


LOG = """\
[126/504] Building CUDA object CMakeFiles/_C.dir/csrc/attention/paged_attention_v1.cu.o
FAILED: CMakeFiles/_C.dir/csrc/quantization/w8a8/cutlass/scaled_mm_entry.cu.o
/usr/local/cuda/bin/nvcc -forward-unknown-to-host-compiler -DCUTLASS -c scaled_mm_entry.cu
scaled_mm_entry.cu(12): error: identifier "foo" is undefined
    12 | foo
ninja: build stopped: subcommand failed.
"""
CAUSES = [LOG.splitlines()[1], LOG.splitlines()[3]]
CMAKE = "CMake Error at CMakeLists.txt:23 (message):\n  GCC >= 13 is required\n  to build vLLM\nCall Stack:\n"
NUMBERS = [f"line {number}" for number in range(30)]


@pytest.mark.parametrize(
    ("result", "log", "shown"),
    [
        ("exit-code", LOG, ["the build failed", *CAUSES]),
        # systemd knows the cause of these.
        ("oom-kill", LOG, ["the kernel ended it because of its memory limit; set vllm_build_jobs lower", CAUSES[1]]),
        ("timeout", "", ["it ran longer than vllm_build_timeout"]),
        ("signal", "", ["a signal ended it"]),
        ("success", "", ["its unit is gone, such as by a restart of the host"]),
        ("exit-code", CMAKE, ["the build failed", *CMAKE.splitlines()[:3]]),
        ("exit-code", "\n".join(NUMBERS), ["the build failed", *NUMBERS[-12:]]),
        ("exit-code", "\n\nerror " + "x" * 500, ["the build failed", "error " + "x" * 294]),
        *(
            ("exit-code", f"{cause}\nnext\n", ["the build failed", cause])
            for cause in (
                "nvcc fatal   : Unsupported gpu architecture 'compute_121a'",
                "fatal: unable to access 'https://github.com/NVIDIA/cutlass.git/': Could not resolve host: github.com",
                "/usr/bin/ld: cannot find -lnuma: No such file or directory",
                "cp: cannot create directory 'work/x': No space left on device",
                "Killed",
            )
        ),
    ],
)
def test_the_cause_of_a_failure(result: str, log: str, shown: list[str]) -> None:
    assert parse.cause(result, log).splitlines() == shown
