"""Releases in the versions of packages."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import versions


@pytest.mark.parametrize(
    ("version", "release", "build"),
    [
        ("0.21.1rc1.dev169+gabc", (0, 21, 1), None),
        ("v2.9", (2, 9, 0), None),
        ("0.20.2+cu130", (0, 20, 2), 13),
        ("2.9.1+gabc.cu129", (2, 9, 1), 12),
        ("10.11.12+cpu", (10, 11, 12), None),
        ("latest", None, None),
        ("7", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_a_version_has_a_release_and_the_one_of_cuda(
    version: str | None, release: tuple[int, ...] | None, build: int | None
) -> None:
    assert (versions.release(version), versions.build(version)) == (release, build)
