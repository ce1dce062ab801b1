"""Requests to servers of this host, with real connections: who gets a secret, and how long an answer may take."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local

OURS, THEIRS = "gb10-vllm.service", "nginx.service"
SENT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
#: A process of its own that listens, says where, and prints the request.
LISTENER = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection = server.accept()[0]
    print(connection.recv(65536), flush=True)
"""


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Return the units of processes, by process; all others are in none."""
    found = {os.getpid(): OURS}
    monkeypatch.setattr(io_local, "_unit", lambda pid: found.get(pid, ""))
    return found


@pytest.fixture
def secret(tmp_path: Path) -> io_local.Secret:
    (tmp_path / "key").write_text("5ec0e7\n", encoding="ascii")
    return io_local.Secret(str(tmp_path / "key"), (OURS,))


@contextlib.contextmanager
def stranger(address: str = "127.0.0.1") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a listener of its own process, and yield it with its port."""
    argv = [sys.executable, "-c", LISTENER, address]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@contextlib.contextmanager
def answering(*parts: bytes, pause: float = 0.0, address: str = "127.0.0.1") -> Iterator[tuple[int, list[bytes]]]:
    """Answer one request with these bytes, with a pause before each. Yields the port and the requests."""
    got: list[bytes] = []
    ended = threading.Event()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=address == "::") as server:

        def answer() -> None:
            with contextlib.suppress(OSError), server.accept()[0] as connection:
                got.append(connection.recv(65536))
                for part in parts:
                    ended.wait(pause)
                    connection.sendall(part)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1], got
        ended.set()
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join()


def ask(port: int, secret: io_local.Secret | None, host: str = "127.0.0.1", seconds: float = 10.0) -> bytes:
    with contextlib.closing(io_local.Connection(host, port, seconds)) as connection:
        connection.request("GET", "/", secret=secret)
        return connection.getresponse().read()


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize(
    ("listens", "host"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.2"), ("::", "127.0.0.1"), ("::1", "::1")]
)
def test_the_unit_gets_its_secret(secret: io_local.Secret, listens: str, host: str) -> None:
    with answering(SENT, address=listens) as (port, got):
        assert ask(port, secret, host) == b"{}"
    assert b"Authorization: Bearer 5ec0e7" in got[0]


def test_a_server_that_has_not_accepted_is_known_by_its_listener(
    units: dict[int, str], secret: io_local.Secret
) -> None:
    """A hanging server accepts no connection. The kernel has accepted it for the listener."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        assert io_local.reveal(secret, connection) == "5ec0e7"
        units[os.getpid()] = THEIRS
        with pytest.raises(io_local.StrangerError):
            io_local.reveal(secret, connection)


@pytest.mark.parametrize("unit", [THEIRS, ""])
def test_another_process_gets_nothing(units: dict[int, str], secret: io_local.Secret, unit: str) -> None:
    with stranger() as (process, port):
        units[process.pid] = unit
        with pytest.raises(io_local.StrangerError) as raised:
            ask(port, secret)
        assert process.stdout is not None
        assert process.stdout.readline() == "b''\n"
    name, place = Path(sys.executable).name, unit or "no unit"
    assert str(raised.value).startswith(f"port {port} is used by {name[:15]} ({place}) instead of {OURS}, so ")
    assert str(raised.value).endswith("so the API's key was not sent")


def test_a_port_that_changes_hands_after_the_connection_proves_nothing(
    units: dict[int, str], secret: io_local.Secret
) -> None:
    """A look at the listeners would see the unit, while the connection is the stranger's."""
    with stranger() as (process, port), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"x")
        assert process.stdout is not None
        assert process.stdout.readline() == "b'x'\n"
        units[process.pid] = THEIRS
        with pytest.raises(io_local.StrangerError):
            io_local.reveal(secret, connection)


def test_an_ended_connection_gets_nothing(units: dict[int, str], secret: io_local.Secret) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        server.accept()[0].close()
        time.sleep(0.05)
        with pytest.raises(io_local.StrangerError, match=r"is not an open socket of this host, so .* was not sent"):
            io_local.reveal(secret, connection)
    assert units


@pytest.mark.parametrize("content", ["two words", "two\nlines", "\u00e4"])
def test_an_invalid_secret_is_not_quoted(secret: io_local.Secret, content: str) -> None:
    Path(secret.path).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="does not contain") as raised:
        io_local.read(secret.path)
    assert content not in str(raised.value)


def test_no_secret_needs_no_unit(tmp_path: Path) -> None:
    for given in (None, io_local.Secret("", (OURS,)), io_local.Secret(str(tmp_path / "none"), (OURS,))):
        with answering(SENT) as (port, got):
            assert ask(port, given) == b"{}"
        assert b"Authorization" not in got[0]


@pytest.mark.parametrize(
    "parts",
    [
        [SENT[index : index + 1] for index in range(len(SENT))],
        [SENT.replace(b"Length: 2", b"Length: 99"), *([b" "] * 50)],
        [b"HTTP/1.1 200 OK\r\n", *([b"X: y\r\n"] * 50)],
        [b"HTTP/1.1 200 OK\r\n\r\n", *([b"x"] * 50)],
    ],
    ids=["single bytes", "a body", "headers", "a body without an end"],
)
def test_an_answer_in_drops_has_one_deadline(parts: list[bytes]) -> None:
    with answering(*parts, pause=0.1) as (port, _got), pytest.raises(TimeoutError):
        ask(port, None, seconds=0.35)


def test_a_connection_has_a_new_deadline_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(io_local, "time", clock)
    client, server = socket.socketpair()
    with contextlib.closing(io_local.Connection("127.0.0.1", 1, 60.0)) as connection, server:
        connection.sock = client
        for _request in range(2):
            connection.request("GET", "/")
            server.sendall(SENT)
            clock.now += 40
            assert connection.getresponse().read() == b"{}"


def test_no_proxy_gets_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with answering(SENT) as (port, _got):
        assert ask(port, None) == b"{}"


def test_the_owner_of_each_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = {server.getsockname()[1] for server in (first, second)}
        found = [entry for entry in io_local.listeners() if entry["port"] in ports]
        assert [entry["port"] for entry in found] == sorted(ports)
        assert {(entry["address"], entry["pid"]) for entry in found} == {("127.0.0.1", os.getpid())}
        assert found[0]["process"]
    assert not [entry for entry in io_local.listeners() if entry["port"] in ports]


def test_a_process_that_nobody_knows() -> None:
    assert io_local.process(None) == {"pid": None, "process": "", "unit": ""}


def test_the_last_holder_of_a_socket_is_its_process_and_a_gone_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that inherits a socket comes after its parent."""
    links = {"/proc/5/fd/0": "socket:[7]", "/proc/5/fd/1": "pipe:[8]", "/proc/9/fd/3": "socket:[7]"}
    folders = {"/proc": ["5", "9", "77", "self"], "/proc/5/fd": ["2", "0", "1"], "/proc/9/fd": ["3"]}

    def of(known: dict[str, Any]) -> Any:
        return lambda path: known[path] if path in known else io_local.os.open("/none", 0)

    fake = SimpleNamespace(listdir=of(folders), readlink=of(links), open=os.open)
    monkeypatch.setattr(io_local, "os", fake)
    assert io_local._holders(io_local._pids()) == {7: [5, 9]}
    row = "0: 0100007F:1F40 00000000:0000 0A 0:0 0:0 0 0 0 {} 1 0"
    table = "\n".join(["header", row.format(7), row.replace("1F40", "0016").format(6)])
    cgroup = "0::/system.slice/a.service\n"
    files = {"/proc/net/tcp": table, "/proc/9/comm": "python\n", "/proc/9/cgroup": cgroup}
    monkeypatch.setattr(io_local.io_file, "read", lambda path: files.get(path, ""))
    assert io_local.listeners() == [
        {"address": "127.0.0.1", "port": 22, "pid": None, "process": "", "unit": ""},
        {"address": "127.0.0.1", "port": 8000, "pid": 9, "process": "python", "unit": "a.service"},
    ]
    files.clear()
    assert io_local.listeners() == []


def test_the_deadline_itself_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_local, "time", SimpleNamespace(monotonic=lambda: 5.0))
    client, server = socket.socketpair()
    with client, server:
        server.sendall(b"ab")
        with io_local.Limited(client.makefile("rb", buffering=0), client, 5.5) as limited:
            assert limited.readable() and limited.read(1) == b"a" and client.gettimeout() == 0.5
        raw = client.makefile("rb", buffering=0)
        with io_local.Limited(raw, client, 5.0) as limited, pytest.raises(TimeoutError, match="timed out"):
            limited.read(1)
        assert raw.closed
