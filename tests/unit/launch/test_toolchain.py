"""The environment of compilers, and how many of them run."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.launch import toolchain


@pytest.mark.parametrize(
    ("gib", "cores", "expected"), [(110, 20, 7), (110, 4, 4), (28, 20, 2), (27, 20, 1), (1, 20, 1)]
)
def test_compilers_leave_half_of_the_memory_free(gib: int, cores: int, expected: int) -> None:
    assert toolchain.jobs(gib << 30, cores) == expected


def test_the_runtime_precedes_the_toolkit_and_the_system() -> None:
    environment = toolchain.environment("/opt/runtime", "/usr/local/cuda", 2)
    assert environment == {
        "PATH": f"/opt/runtime/bin:/usr/local/cuda/bin:{toolchain.SYSTEM_PATH}",
        "CUDA_HOME": "/usr/local/cuda",
        "MAX_JOBS": "2",
    }
    assert toolchain.environment("/opt/runtime", "", 2) == {"PATH": f"/opt/runtime/bin:{toolchain.SYSTEM_PATH}"}


@pytest.mark.parametrize(
    ("release", "ranks", "cuda", "own"),
    [
        ("0.26.0", 2, True, False),
        ("0.27.0", 2, True, True),
        ("0.31.9", 4, True, True),
        ("0.32.0", 2, True, False),
        ("1.0.0", 2, True, False),
        ("", 2, True, True),
        ("0.28.0", 1, True, False),
        ("0.28.0", 2, False, False),
    ],
)
def test_a_cache_of_tuning_that_ranks_would_share_does_not_survive(
    release: str, ranks: int, cuda: bool, own: bool
) -> None:
    expected = {"VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": "/tmp/gb10-flashinfer-autotune"} if own else {}
    assert toolchain.tuning(release, ranks, cuda) == expected
