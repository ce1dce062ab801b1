"""The releases of the test matrix."""

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if parameters.get("version", TWO[0]) not in TWO:
            item.user_properties.append(("slow", "`make test` leaves it out"))
