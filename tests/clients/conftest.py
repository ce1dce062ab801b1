"""The servers and the browser of the tests. With --url they run against a server of yours, and imitate nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from clients import doors, raw
from clients.doors import Door
from gateway import proxy

#: The servers of most tests.
PLAIN = ("guard", "gateway")
#: Port of the page for a server of yours, whose origins have to be known before.
PAGE_PORT = 8765


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", default="", help="URL of a server without /v1, such as http://192.168.1.11:8000")
    parser.addoption("--key-file", default="", help="file with the key for --url")
    parser.addoption("--model", default="", help="name of the model for --url")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--url"):
        # Longer ones show the arguments of functions, and so your key.
        config.option.tbstyle = "short"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "door" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("doors")
        names = ["server"] if metafunc.config.getoption("--url") else marker.args if marker else PLAIN
        metafunc.parametrize("door", names, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `make test`: examples and the Python libraries of both APIs, at the guard, no slow ones."""
    for item in items:
        if item.get_closest_marker("slow"):
            continue
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if given.get("door", "guard") == "guard" and given.get("client", "example") in (
            "openai",
            "anthropic",
            "anthropic-0.52",
            "example",
        ):
            item.add_marker("quick")


@pytest.fixture(scope="session")
def isolated(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without a server of yours, clients have a network with loopback alone, and need no other."""
    if request.config.getoption("--url"):
        yield
        return
    if any(
        "gateway" in item.callspec.params.get("door", "") for item in request.session.items if hasattr(item, "callspec")
    ):
        # Its packages are downloaded.
        proxy.python()
    with proxy.closed_network():
        yield


@pytest.fixture(scope="session")
def pages(request: pytest.FixtureRequest) -> Iterator[list[raw.Browser]]:
    # A thread and a process are in the network of the thread that starts them.
    request.getfixturevalue("isolated")
    with raw.pages(PAGE_PORT if request.config.getoption("--url") else 0) as found:
        yield found


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> doors.Tls:
    return doors.tls(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def browsers(pages: list[raw.Browser], secured: doors.Tls) -> Iterator[list[raw.Browser]]:
    """Return the page with an allowed origin, and with another one."""
    if not raw.browser():
        pytest.skip(f"no browser is installed: {', '.join(raw.BROWSERS)}")
    with raw.chromium(pages[0].origin, secured.digest):
        yield pages


@pytest.fixture(scope="session")
def opened(
    request: pytest.FixtureRequest,
    pages: list[raw.Browser],
    secured: doors.Tls,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], Door]]:
    """Return a function that starts a server once: guard, gateway, guard-tls, gateway-tls, or server for one of
    yours."""
    found: dict[str, Door] = {}
    with ExitStack() as stack:

        def get(name: str) -> Door:
            if name not in found:
                folder, tls = tmp_path_factory.mktemp(name), secured if name.endswith("-tls") else None
                if name == "server":
                    started = _yours(request.config)
                elif name.startswith("guard"):
                    started = doors.guard(folder, pages[0].origin, tls)
                else:
                    started = doors.gateway(folder, pages[0].origin, get(name.replace("gateway", "guard")), tls)
                found[name] = stack.enter_context(started)
            return found[name]

        yield get


def _yours(config: pytest.Config) -> Any:
    url = config.getoption("--url").rstrip("/").removesuffix("/v1")
    key = Path(config.getoption("--key-file")).read_text(encoding="utf-8").strip()
    door = Door("server", url, key, config.getoption("--model"), url, known=False)
    try:
        door.running()
    except OSError:
        door.engine = ""
    return door.clients()


@pytest.fixture(scope="session")
def door(request: pytest.FixtureRequest, opened: Callable[[str], Door]) -> Door:
    return opened(request.param)


@pytest.fixture
def client(request: pytest.FixtureRequest, door: Door) -> Any:
    """Return a client of the server, which answers ask(case)."""
    if request.param == "curl":
        return door.curl()
    if request.param == "browser":
        page = request.getfixturevalue("browsers")[0]
        if not door.known and not door.allows(page.origin):
            pytest.skip(f"the server does not list the origin {page.origin}")
        return door.raw(page)
    return door.program(request.param)
