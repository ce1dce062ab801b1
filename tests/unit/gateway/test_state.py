"""The state of the gateway's program: the clients' file, the health of the servers, and the counts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from certificates import authority
from stand_in_modules import changed

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, io_state, usage
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.forward import Tokens
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.io_state import Entry, Known, State

NAMES = {"north/big": "big", "south/big": "big", "south/small": "small"}
MODELS = [
    {
        "id": id_,
        "name": name,
        "cluster": id_.partition("/")[0],
        "kind": "generate",
        "url": "http://127.0.0.1:9/v1",
        "variable": "",
        "ca": "",
        "wake": 0,
        "proof": {},
    }
    for id_, name in NAMES.items()
]
SERVED = json.dumps({"data": [{"id": "big"}, {"id": "small"}]}).encode()
#: What a server does: its status and body of a path, or the error of the connection.
Server = Callable[[str], tuple[int, bytes]]


def state(folder: Path) -> State:
    settings = {"models": MODELS, "fallbacks": {}, "health_interval": 10, "clients": str(folder / "clients.json")}
    return State(settings, str(folder))


def healthy(path: str) -> tuple[int, bytes]:
    return 200, SERVED if path == "/v1/models" else b""


def slow(_path: str) -> tuple[int, bytes]:
    raise TimeoutError


def refusing(_path: str) -> tuple[int, bytes]:
    raise ConnectionRefusedError("refused")


def answering(path: str, status: int, body: bytes = b"") -> Server:
    """Return a healthy server with another answer to a path."""
    return lambda asked: (status, body) if asked == path else healthy(asked)


def reads(**servers: Server) -> Callable[[Entry, str, str, bytes], Awaitable[tuple[int, bytes]]]:
    """Return what reads paths of servers by the entry's cluster; the others are healthy."""

    async def read(entry: Entry, path: str, _key: str, _body: bytes) -> tuple[int, bytes]:
        return servers.get(entry.id.partition("/")[0], healthy)(path)

    return read


def test_a_changed_list_of_clients_is_read_after_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, clock = tmp_path / "clients.json", [100.0]
    monkeypatch.setattr(io_state, "time", changed(time, monotonic=lambda: clock[0]))
    known = Known(str(path))
    assert known.now() == clients.Clients(), "there is no file yet"
    alice = clients.create(clients.Clients(), "alice", "sk-alice", 7, [])
    path.write_text(clients.text(alice), encoding="utf-8")
    assert known.now() == clients.Clients(), "each request would look at the file"
    clock[0] += io_state.KNOWN_SECONDS
    assert known.now() == alice
    read = known.now()
    clock[0] += io_state.KNOWN_SECONDS
    assert known.now() is read, "an unchanged file is not read again"
    path.write_text("{", encoding="utf-8")
    clock[0] += io_state.KNOWN_SECONDS
    assert known.now() == clients.Clients(), "a damaged file leaves no client"
    path.write_text(clients.text(alice), encoding="utf-8")
    clock[0] += io_state.KNOWN_SECONDS
    assert known.now() == alice


def test_an_entry_has_the_key_and_the_trust_of_its_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GB10_GATEWAY_KEY_NORTH", "key")
    ca = authority()
    own = Entry({**MODELS[0], "variable": "GB10_GATEWAY_KEY_NORTH", "ca": ca.text, "url": "https://n.example:8000/v1"})
    assert (own.id, own.name, own.base, own.key) == ("north/big", "big", "https://n.example:8000", "key")
    assert own.tls is not None and len(own.tls.get_ca_certs()) == 1
    assert own.tls.verify_mode is ssl.CERT_REQUIRED and own.tls.check_hostname
    assert own.tls.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN, "a server's own certificate may be the only one"
    plain = Entry(MODELS[0])
    assert (plain.key, plain.tls) == ("", None)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (healthy, ""),
        (refusing, "refused"),
        (slow, "timed out"),
        (answering("/health", 503), "HTTP 503 from /health"),
        (answering("/v1/models", 500), "HTTP 500 from /v1/models"),
        (answering("/v1/models", 401), "HTTP 401 from /v1/models: the API key is wrong"),
        (answering("/v1/models", 200, b"x"), "its list of models is not valid: "),
        (answering("/v1/models", 200, b" " * io_state.MOST_LISTING + SERVED), "its list of models is too long"),
        (answering("/v1/models", 200, b"[]"), "it does not serve this model, but none"),
        (answering("/v1/models", 200, b'{"data": [{"id": "other"}, 7]}'), "it does not serve this model, but other"),
    ],
)
def test_a_server_is_used_if_it_is_healthy_and_serves_the_model(server: Server, reason: str) -> None:
    found = asyncio.run(io_state.probe(Entry(MODELS[0]), reads(north=server)))
    assert found.startswith(reason) and bool(found) is bool(reason)


def test_only_the_list_of_models_is_asked_with_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GB10_GATEWAY_KEY_NORTH", "key")
    asked = []

    async def read(_entry: Entry, path: str, key: str, _body: bytes) -> tuple[int, bytes]:
        asked.append((path, key))
        return healthy(path)

    asyncio.run(io_state.probe(Entry({**MODELS[0], "variable": "GB10_GATEWAY_KEY_NORTH"}), read))
    assert asked == [("/health", ""), ("/v1/models", "key")]


def test_a_server_that_hangs_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_state, "_PROBE_SECONDS", 0.01)

    async def hang(_entry: Entry, _path: str, _key: str, _body: bytes) -> tuple[int, bytes]:
        await asyncio.sleep(60)
        return healthy("")

    assert asyncio.run(io_state.probe(Entry(MODELS[0]), hang)) == "timed out"


def test_each_change_of_a_servers_health_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = state(tmp_path)
    capsys.readouterr()
    for servers in ({}, {"north": refusing}, {"north": refusing}, {}):
        asyncio.run(io_state.check(found, reads(**servers)))
        assert found.errors == dict.fromkeys(["north/big"] if servers else [], "refused")
        assert found.checked.keys() == NAMES.keys()
    assert capsys.readouterr().out.splitlines() == ["north/big: refused", "north/big: healthy again"]


def test_a_slow_server_has_a_second_check_unless_it_is_new_or_unhealthy(tmp_path: Path) -> None:
    def checked(**servers: Server) -> tuple[dict[str, str], bool]:
        """Return the errors after a check, and whether the next one follows soon."""
        found.wake.clear()
        asyncio.run(io_state.check(found, reads(**servers)))
        return found.errors, found.wake.is_set()

    found, late = state(tmp_path), {"north/big": "timed out"}
    assert checked(north=slow) == (late, False), "nobody knows that it was ever healthy"
    assert checked(north=slow) == (late, False)
    assert checked() == ({}, False)
    assert checked(north=slow) == ({}, True)
    assert checked(north=slow) == (late, False)
    assert checked() == ({}, False)
    assert checked(north=slow) == ({}, True), "a healthy check in between starts anew"
    assert checked(north=refusing) == ({"north/big": "refused"}, False)


def test_a_failed_request_leads_to_a_check_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_state, "_LEAST_SECONDS", 0.01)
    found, checks = state(tmp_path), []

    async def read(entry: Entry, path: str, _key: str, _body: bytes) -> tuple[int, bytes]:
        checks.append(entry.id)
        return healthy(path)

    async def watched() -> None:
        watcher = asyncio.create_task(io_state.watch(found, read))
        await asyncio.sleep(0.1)
        assert checks == [], "the interval of this gateway is 10 s"
        found.wake.set()
        async with asyncio.timeout(30):
            while len(found.checked) < len(NAMES):
                await asyncio.sleep(0.01)
        watcher.cancel()

    asyncio.run(watched())
    assert set(checks) == NAMES.keys()


def test_equally_busy_servers_take_turns(tmp_path: Path) -> None:
    found = state(tmp_path)
    assert found.servers().turn + 1 == found.servers().turn
    assert found.servers().busy == dict.fromkeys(NAMES, 0)
    assert (found.gateway.models, found.gateway.interval) == (
        {"big": ["north/big", "south/big"], "small": ["south/small"]},
        10,
    )


def test_a_request_counts_for_its_model_and_tokens_for_the_one_that_answered(tmp_path: Path) -> None:
    found, before = state(tmp_path), int(time.time())
    found.count("alice", "small", "small", False, Tokens(7, 3))
    found.count("alice", "small", "", True, Tokens(1, 0))
    found.count("alice", "small", "big", False, Tokens(5, 2))
    found.count(clients.OPERATOR, "small", "small", False, Tokens(7, 3))
    assert found.usage.clients.keys() == {"alice"}, "the host's own requests are not counted"
    alice = found.usage.clients["alice"]
    assert before <= alice.last <= time.time()
    assert alice.models == {"small": usage.Count(3, 1, 8, 3), "big": usage.Count(0, 0, 5, 2)}


def test_the_counts_are_kept_and_written_only_after_a_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, found = tmp_path / "usage.json", state(tmp_path)
    asyncio.run(found.save())
    assert not path.exists()
    found.count("alice", "small", "small", False, Tokens(7, 3))
    asyncio.run(found.save())
    assert path.stat().st_mode & 0o777 == 0o600
    assert state(tmp_path).usage == found.usage
    path.unlink()
    asyncio.run(found.save())
    assert not path.exists()
    capsys.readouterr()
    path.write_text("{", encoding="utf-8")
    assert state(tmp_path).usage == usage.Usage()
    assert f"the counts start at zero: {path}: " in capsys.readouterr().out


def test_counts_that_cannot_be_written_are_a_line_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(io_state, "_SAVE_SECONDS", 0.01)
    found = state(tmp_path)
    (tmp_path / "usage.json").mkdir()

    async def kept() -> None:
        keeper = asyncio.create_task(io_state.keep(found))
        for _time in range(2):
            found.count("alice", "small", "small", False, Tokens(7, 3))
            async with asyncio.timeout(30):
                while "the counts were not saved: " not in capsys.readouterr().out:
                    await asyncio.sleep(0.01)
        keeper.cancel()

    asyncio.run(kept())
    assert found.usage.clients["alice"].models["small"].requests == 2


def test_the_report_has_each_models_state_and_each_clients_use(tmp_path: Path) -> None:
    found = state(tmp_path)
    assert [row["checked"] for row in json.loads(found.report())["models"]] == [0] * 3
    found.count("alice", "small", "small", False, Tokens(7, 3))
    asyncio.run(io_state.check(found, reads(north=refusing)))
    report = json.loads(found.report())
    (row, *others) = report["models"]
    given = {"id": "north/big", "name": "big", "cluster": "north", "kind": "generate"}
    assert row == {**given, "healthy": False, "error": "refused", "checked": found.checked["north/big"]}
    assert [(other["healthy"], other["error"]) for other in others] == [(True, "")] * 2
    assert report["usage"]["alice"]["models"]["small"]["prompt_tokens"] == 7


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_learns_that_the_program_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    name = f"gb10-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0{name}" if abstract else name)
        channel.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        io_state.notify("READY=1")
        assert channel.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    io_state.notify("READY=1")


PLACES = [
    {"url": "http://10.0.0.5:8000/v1", "wake": 8009},
    {"url": "https://[fd00::5]:8443/v1", "wake": 0},
    {"url": "https://node.example:8000/v1", "wake": 0},
]


def allowed(places: io_state.Places, event: str, *arguments: Any) -> bool:
    try:
        places._hook(event, arguments)
    except PermissionError:
        return False
    return True


@pytest.mark.parametrize(
    ("family", "place", "expected"),
    [
        (socket.AF_INET, ("10.0.0.5", 8000), True),
        (socket.AF_INET, ("10.0.0.5", 8009), True),
        (socket.AF_INET, ("10.0.0.5", 8443), False),
        (socket.AF_INET6, ("fd00::5", 0, 0, 0), False),
        (socket.AF_INET6, ("fd00::5", 8443, 0, 0), True),
        (socket.AF_INET6, ("fd00::6", 8443, 0, 0), False),
        (socket.AF_INET, ("10.0.0.7", 8000), True),
        (socket.AF_UNIX, "/run/x", True),
    ],
)
def test_a_connection_is_allowed_to_a_servers_place(family: int, place: Any, expected: bool) -> None:
    places = io_state.Places(PLACES)
    places.know("node.example", ["10.0.0.7"])
    assert allowed(places, "socket.connect", SimpleNamespace(family=family), place) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("node.example", True), (b"node.example", True), ("10.0.0.9", True), (None, True), ("other.example", False)],
)
def test_only_the_servers_names_are_looked_up(host: Any, expected: bool) -> None:
    assert allowed(io_state.Places(PLACES), "socket.getaddrinfo", host, 443, 0, 0, 0) is expected


def test_the_clients_are_read_at_the_first_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock begins with the boot of the host."""
    alice = clients.create(clients.Clients(), "alice", "sk-alice", 7, [])
    (tmp_path / "clients.json").write_text(clients.text(alice), encoding="utf-8")
    monkeypatch.setattr(io_state, "time", changed(time, monotonic=lambda: 0.0))
    assert Known(str(tmp_path / "clients.json")).now() == alice


def test_a_damaged_list_of_clients_is_a_line_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, clock = tmp_path / "clients.json", [100.0]
    monkeypatch.setattr(io_state, "time", changed(time, monotonic=lambda: clock[0]))
    path.write_text("{".ljust(100), encoding="utf-8")
    known = Known(str(path))
    for seconds in (0.0, 0.09, 0.02):
        clock[0] += seconds
        assert known.now() == clients.Clients()
    assert capsys.readouterr().out.count(f"no client can use the gateway: {path}: it is not JSON") == 2


def test_a_list_of_models_has_its_limit_and_a_message_five_names() -> None:
    read = reads(north=answering("/v1/models", 200, SERVED.ljust(1 << 20)))
    assert asyncio.run(io_state.probe(Entry(MODELS[0]), read)) == ""
    names = [{"id": f"{number}" * 200} for number in range(7)]
    body = json.dumps({"data": names}).encode()
    found = asyncio.run(io_state.probe(Entry(MODELS[0]), reads(north=answering("/v1/models", 200, body))))
    assert found == f"it does not serve this model, but {', '.join(str(number) * 100 for number in range(5))}"


@pytest.mark.parametrize(("interval", "expected"), [(10, 8.0), (2, 0.0), (1, 0.0)])
def test_the_servers_are_checked_at_each_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: int, expected: float
) -> None:
    found, waits, checks = state(tmp_path), list[float](), list[State]()
    found.settings = {**found.settings, "health_interval": interval}

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(checks) == 2:
            raise KeyError

    async def wait_for(waited: Any, seconds: float) -> None:
        waits.append(seconds)
        waited.close()
        raise TimeoutError

    async def check(checked: State, _read: Any) -> None:
        checks.append(checked)

    fake = SimpleNamespace(sleep=sleep, wait_for=wait_for)
    monkeypatch.setattr(io_state, "asyncio", fake)
    monkeypatch.setattr(io_state, "check", check)
    found.wake.set()
    with pytest.raises(KeyError):
        asyncio.run(io_state.watch(found, reads()))
    assert waits == [2.0, expected, 2.0, expected, 2.0] and not found.wake.is_set()


def test_a_server_without_a_port_is_no_place() -> None:
    places = io_state.Places([{"url": "http://10.0.0.5/v1", "wake": 0}, {"url": "http://10.0.0.5:1/v1", "wake": 0}])
    connected = SimpleNamespace(family=socket.AF_INET)
    assert [allowed(places, "socket.connect", connected, ("10.0.0.5", port)) for port in (0, 1, 80)] == [
        True,
        True,
        False,
    ]
    assert allowed(places, "open", "/etc/passwd")
