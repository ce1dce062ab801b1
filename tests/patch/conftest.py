"""Which releases the matrix is run on."""

from __future__ import annotations

import pytest
from patch.sources import RELEASES, TWO


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--releases", default="two", help="two, all, or versions of vLLM separated by commas")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "version" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--releases")
        named = {"two": TWO, "all": RELEASES}.get(chosen, tuple(chosen.split(",")))
        metafunc.parametrize("version", named, scope="module")
