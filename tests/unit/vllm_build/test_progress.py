"""The progress of a build: ninja's lines, the unit's state, and the untrusted status of its program."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import parse
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.progress import Progress, progress
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Status

NAME = "0.33.0-0123456789ab"
CONFIGURED = """\
Building wheel...
running bdist_wheel
running build_ext
-- The CXX compiler identification is GNU 13.3.0
-- CUDA target architectures: 12.1a
-- Populating cutlass
[1/9] Creating directories for 'cutlass-populate'
[9/9] Completed 'cutlass-populate'
-- Configuring done (12.2s)
-- Build files have been written to: /var/lib/gb10-vllm-build/work-x/build/temp.linux-aarch64-cpython-312
"""
COMPILED = f"""{CONFIGURED}\
[1/504] Building CXX object CMakeFiles/cumem_allocator.dir/csrc/cumem_allocator.cpp.o
[2/504] Building CUDA object CMakeFiles/_moe_C.dir/csrc/moe/topk_softmax_kernels.cu.o
csrc/moe/topk_softmax_kernels.cu(103): warning #177-D: variable "x" was declared but never referenced
DEBUG [126/504] Building CUDA object CMakeFiles/_C.dir/csrc/attention/paged_attention_v1.cu.o
"""
FAILED = f"""{COMPILED}\
[127/504] Building CUDA object CMakeFiles/_C.dir/csrc/quantization/w8a8/cutlass/scaled_mm_entry.cu.o
FAILED: CMakeFiles/_C.dir/csrc/quantization/w8a8/cutlass/scaled_mm_entry.cu.o
/usr/local/cuda/bin/nvcc -forward-unknown-to-host-compiler -DCUTLASS -c scaled_mm_entry.cu
scaled_mm_entry.cu(12): error: identifier "foo" is undefined
1 error detected in the compilation of "scaled_mm_entry.cu".
ninja: build stopped: subcommand failed.
subprocess.CalledProcessError: Command '['cmake', '--build', '.', '-j=20']' returned non-zero exit status 1.
"""
BUILDING = Status(NAME, "building")
DONE = Status(NAME, "finished", 812.5, "vllm-0.33.0-cp38-abi3-linux_aarch64.whl")


def found(active: str = "active", result: str = "success", log: str = COMPILED, status: Status = BUILDING) -> Progress:
    return progress(active, result, 600.0, log, status, NAME)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "configures, 10 min"),
        (CONFIGURED, "configures, 10 min"),
        (COMPILED, "[126/504], 10 min, about 30 min left"),
        (FAILED, "[127/504], 10 min, about 29 min left"),
        # A resumed build counts the rest; then another target begins.
        (f"{COMPILED}[1/12] Linking CXX shared module _C.abi3.so\n", "[1/12], 10 min, about 1 h left"),
        (f"{COMPILED}[3/11] Creating directories\n", "[126/504], 10 min, about 30 min left"),
        ("  [5/507] in the middle of a text\nx[6/507] Building\n[7/507]Building\n", "configures, 10 min"),
        ("[99999999/99999999] Building\n", "configures, 10 min"),
    ],
    ids=["empty", "configured", "compiled", "failed", "resumed", "small", "no line of ninja", "too large"],
)
def test_the_line_of_a_running_build(log: str, line: str) -> None:
    assert found(log=log) == Progress("running", line)


@pytest.mark.parametrize("active", ["active", "activating", "deactivating", "reloading"])
@pytest.mark.parametrize("status", [Status(), BUILDING, DONE, Status(NAME, "failed")], ids=str)
def test_a_running_unit_is_running(active: str, status: Status) -> None:
    """Its program writes the result before it ends."""
    assert found(active, status=status).state == "running"


def test_a_finished_build_has_its_own_duration() -> None:
    """The unit of a finished build is gone, and its start with it."""
    assert found("inactive", status=DONE) == Progress("finished", "[126/504], 13 min, about 40 min left")


@pytest.mark.parametrize(
    "status", [Status(), BUILDING, Status("other", "finished"), Status("other", "failed")], ids=str
)
def test_a_build_that_never_ended(status: Status) -> None:
    ended = found("inactive", status=status)
    reason = "the unit has ended before its build, such as by a restart of the host"
    assert (ended.state, ended.reason) == ("none", reason)


OUT_OF_MEMORY = "the kernel ended it because of its memory limit; set vllm_build_jobs lower"


@pytest.mark.parametrize(
    ("active", "result", "status", "reason"),
    [
        ("failed", "exit-code", Status(NAME, "failed"), "the build failed"),
        ("inactive", "success", Status(NAME, "failed"), "the build failed"),
        ("failed", "oom-kill", BUILDING, OUT_OF_MEMORY),
        ("failed", "timeout", BUILDING, "it ran longer than vllm_build_timeout"),
        ("failed", "signal", Status(), "a signal ended it"),
    ],
)
def test_a_failed_build_says_why(active: str, result: str, status: Status, reason: str) -> None:
    causes = [
        "FAILED: CMakeFiles/_C.dir/csrc/quantization/w8a8/cutlass/scaled_mm_entry.cu.o",
        'scaled_mm_entry.cu(12): error: identifier "foo" is undefined',
        '1 error detected in the compilation of "scaled_mm_entry.cu".',
    ]
    # systemd knows the cause of the others.
    shown = causes if reason == "the build failed" else causes[-1:]
    line = "[127/504], 10 min, about 29 min left"
    assert found(active, result, FAILED, status) == Progress("failed", line, "\n".join([reason, *shown]))


CMAKE = [
    "CMake Error at CMakeLists.txt:23 (message):",
    "  GCC >= 13 is required",
    "  to build vLLM",
    "Call Stack:",
    "next",
]
NUMBERS, ERRORS = ([f"{word} {number}" for number in range(30)] for word in ("line", "error"))


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        *(
            ([cause, "next"], [cause])
            for cause in (
                "nvcc fatal   : Unsupported gpu architecture 'compute_121a'",
                "fatal: unable to access 'https://github.com/NVIDIA/cutlass.git/': Could not resolve host: github.com",
                "/usr/bin/ld: cannot find -lnuma: No such file or directory",
                "OSError: [Errno 28] No space left on device",
                "Killed",
                "ERROR: Failed to build",
            )
        ),
        # The text of an error of CMake is below it.
        (CMAKE, CMAKE[:4]),
        # The last ones are shown, and cut.
        ([f"{line} {'x' * 500}" for line in ERRORS], [f"{line} {'x' * 500}"[:300] for line in ERRORS[-12:]]),
        # Without a known cause the end is shown.
        (NUMBERS, NUMBERS[-12:]),
        ([], []),
    ],
)
def test_the_causes_of_a_failure(lines: list[str], shown: list[str]) -> None:
    assert found("failed", "exit-code", "\n\n".join(lines)).reason.splitlines() == ["the build failed", *shown]


# --- the status ---

COMMIT = "73cf1122" + "0" * 32
WRITTEN = {
    "name": NAME,
    "state": "finished",
    "seconds": 812.5,
    "wheel": "vllm-0.33.0+gb10.01234567.cu130-cp38-abi3-linux_aarch64.whl",
    "ccache": {"direct_cache_hit": 5, "preprocessed_cache_hit": 1, "cache_miss": 0},
    "dependencies": {"cutlass": COMMIT, "vllm-flash-attn": COMMIT},
}


def test_what_the_program_writes_is_read() -> None:
    assert vars(parse.status(json.dumps(WRITTEN))) == WRITTEN
    assert parse.status(json.dumps({**WRITTEN, "seconds": 3})).seconds == 3.0


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "null", '"finished"', "{" * 100_000, "[" * 5000, '{"seconds": NaN}', json.dumps(WRITTEN)[:-1]],
)
def test_what_is_no_status(text: str) -> None:
    assert parse.status(text) == Status()


OTHER_FORMS: dict[str, list[Any]] = {
    "wheel": [
        "../x.whl",
        "/etc/x.whl",
        "a/b.whl",
        ".whl",
        "-r.whl",
        "x.whl\n",
        "x y.whl",
        "x.txt",
        3,
        None,
        "x" * 300 + ".whl",
    ],
    "seconds": ["3", [], None, -1, True, {}],
    "name": [3, None, [], {}],
    "state": [True, None, ["finished"]],
    "ccache": [[], "x", None, *({"cache_miss": value} for value in ("1", -1, True, 1.5)), {"other": 1}],
    "dependencies": [[], {"cutlass": "main"}, {"cutlass": COMMIT + "0"}, {"a b": COMMIT}, {"../x": COMMIT}, {"c": 1}],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in OTHER_FORMS.items() for value in values], ids=str
)
def test_a_value_of_another_form_counts_as_missing(key: str, value: Any) -> None:
    assert vars(parse.status(json.dumps({**WRITTEN, key: value}))) == {**WRITTEN, key: getattr(Status(), key)}


def test_the_dependencies_are_limited() -> None:
    many = {f"name{number}": COMMIT for number in range(500)}
    assert len(parse.status(json.dumps({**WRITTEN, "dependencies": many})).dependencies) == 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(WRITTEN)), JSON), st.text(max_size=20))
def test_any_status_gives_progress(value: dict[str, Any], log: str) -> None:
    status = parse.status(json.dumps(value))
    for active in ("active", "inactive", "failed"):
        assert progress(active, "success", 1.0, log, status, NAME).line
