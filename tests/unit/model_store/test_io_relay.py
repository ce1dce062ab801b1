"""Model transfer along a chain: relay processes on loopback addresses, with a head whose progress the test controls."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_relay, io_store
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_files import GaveUpError, Status

PROGRAM = "ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_copy"
FILES = {
    "config.json": b"{}",
    "empty": b"",
    "model.safetensors": bytes(range(256)) * 32768,
    "sub/more.safetensors": b"more" * 500_000,
}
LARGE = "model.safetensors"
MANIFEST: dict[str, Any] = {
    "model": "org/tiny",
    "revision": "main",
    "commit": "0" * 40,
    "files": [
        {"path": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in FILES.items()
    ],
}
KNOWN = model_store_plan.Manifest("org/tiny", "main", "0" * 40, model_store_plan.files_of(MANIFEST["files"]))
PART = f"{LARGE}{model_store_plan.PART}"


def plant(folder: Path, **changed: bytes) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(changed.get(name.partition(".")[0], content))
    return folder


def soon(holds: Callable[[], bool], seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


class Relay:
    """A node: the program with its folder and status. Node 1 is the head, on 127.0.0.1."""

    def __init__(self, chain: Chain, number: int, *options: str, file_limit: int = 0) -> None:
        self.folder, self.status_file = chain.folder / f"node{number}", chain.folder / f"status{number}.json"
        self.status_file.unlink(missing_ok=True)
        argv = [sys.executable, "-m", PROGRAM, "relay", f"--folder={self.folder}", f"--manifest={chain.manifest}"]
        argv += [f"--status={self.status_file}", f"--port={chain.port}", f"--listen=127.0.0.{number}"]
        argv += [f"--upstream=spark{number - 1}", f"--upstream-address=127.0.0.{number - 1}"] if number > 1 else []
        environment = {"PYTHONPATH": str(ROOT / ".collections"), "PATH": os.defpath}
        limited = ["sh", "-c", f'ulimit -f {file_limit // 512}; exec "$@"', "sh"] if file_limit else []
        self.process = subprocess.Popen([*limited, *argv, *options], env=environment, stdout=subprocess.PIPE, text=True)

    def has_part(self, size: int) -> bool:
        """Return whether the partial file of the large one has this size."""
        part = self.folder / PART
        return part.exists() and part.stat().st_size == size

    @property
    def status(self) -> dict[str, Any]:
        text = self.status_file.read_text(encoding="utf-8") if self.status_file.exists() else '{"state": ""}'
        return dict(json.loads(text))

    def ends(self, state: str) -> str:
        """Wait for the final state and return its reason."""
        assert soon(lambda: self.status["state"] in ("complete", "failed")), self.status
        assert self.status["state"] == state, self.status
        return str(self.status["reason"])

    def whole(self) -> bool:
        """Return whether the folder contains exactly the model and its manifest."""
        files = {
            str(path.relative_to(self.folder)): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()
        }
        return json.loads(files.pop(model_store_plan.MANIFEST, b"{}")) == MANIFEST and files == FILES

    def stop(self) -> str:
        """Stop the process as systemd does, and return its log."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=10)[0]


class Chain:
    """Nodes on one port, each with its own loopback address."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.manifest = folder, folder / "manifest.json"
        self.manifest.write_text(json.dumps(MANIFEST), encoding="utf-8")
        self.relays: list[Relay] = []
        self.servers: list[Head] = []

    def node(self, number: int, *options: str, file_limit: int = 0) -> Relay:
        self.relays.append(Relay(self, number, *options, file_limit=file_limit))
        return self.relays[-1]

    def head(self, *receivers: str) -> Head:
        self.servers.append(Head(plant(self.folder / "head"), self.folder / "status.json", self.port, receivers))
        return self.servers[-1]


class Noting(io_relay.Sender):
    """Notes the requests of a head."""

    server: Head

    def do_GET(self) -> None:
        self.server.asked.append(self.path.partition(self.server.digest)[2])
        super().do_GET()


class Head(io_relay.Server):
    """A sender without any bytes until the test calls have()."""

    def __init__(self, folder: Path, status: Path, port: int, receivers: tuple[str, ...]) -> None:
        store = io_store.Store(str(folder), KNOWN, Status(str(status), 0))
        super().__init__("127.0.0.1", port, store, receivers)
        self.RequestHandlerClass = Noting
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def have(self, bytes_of_large: int) -> None:
        """Make this many bytes of the large file available, and all other files."""
        for file in self.store.files:
            path = Path(self.store.within.path, file.path)
            part = Path(f"{path}{model_store_plan.PART}")
            if file.path == LARGE and bytes_of_large < file.size:
                path.rename(part)
                file.have = bytes_of_large
            else:
                if part.exists():
                    part.rename(path)
                file.verified = True
                file.have = file.size


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    made = Chain(tmp_path)
    yield made
    for relay in made.relays:
        relay.process.kill()
        relay.process.communicate()
    for server in made.servers:
        server.shutdown()
        server.server_close()


def test_what_has_come_is_sent_on_while_the_rest_still_comes(chain: Chain) -> None:
    head = chain.head()
    half = len(FILES[LARGE]) // 2
    head.have(half)
    nodes = [chain.node(4), chain.node(3), chain.node(2)]  # the start order does not matter
    done = half + len(FILES["config.json"]) + len(FILES["sub/more.safetensors"])
    assert soon(lambda: all(node.has_part(half) and node.status.get("done") == done for node in nodes))
    assert {node.status["state"] for node in nodes} == {"receiving"}
    assert not any((node.folder / model_store_plan.MANIFEST).exists() for node in nodes)
    head.have(len(FILES[LARGE]))
    for node in nodes:
        node.ends("complete")
        assert node.whole()
        assert "complete after " in node.stop()
    assert sorted(head.asked) == ["/0/0", "/2/0", "/3/0"], "each byte left the head once"


def test_a_relay_that_was_killed_goes_on(chain: Chain) -> None:
    head = chain.head()
    third = len(FILES[LARGE]) // 3
    head.have(third)
    killed, last = chain.node(2), chain.node(3)
    assert soon(lambda: last.has_part(third))
    killed.process.kill()
    killed.process.wait()
    head.have(len(FILES[LARGE]))
    for node in (chain.node(2), last):
        node.ends("complete")
        assert node.whole()
    assert head.asked[-1] == f"/2/{third}"


def test_a_part_that_is_damaged_is_fetched_anew_also_by_those_behind(chain: Chain) -> None:
    head = chain.head()
    (chain.folder / "node2").mkdir()
    (chain.folder / "node2" / PART).write_bytes(b"x" * 100_000)
    head.have(200_000)
    nodes = [chain.node(2), chain.node(3)]
    assert soon(lambda: nodes[1].has_part(200_000))
    head.have(len(FILES[LARGE]))
    # Wait for both before stopping one: the first sends to the second.
    for node in nodes:
        node.ends("complete")
        assert node.whole()
    for node in nodes:
        assert f"{LARGE} was damaged" in node.stop()
    assert [asked for asked in head.asked if asked.startswith("/2/")] == ["/2/100000", "/2/0/verified"]


def test_a_sender_whose_file_is_damaged_is_named_by_all(chain: Chain) -> None:
    head = chain.head()
    Path(head.store.within.path, LARGE).write_bytes(b"x" + FILES[LARGE][1:])
    head.have(len(FILES[LARGE]))
    nodes = [chain.node(2), chain.node(3)]
    first, second = (node.ends("failed") for node in nodes)
    assert first.startswith(f"{LARGE} was damaged in two transfers from spark1: its SHA-256 is ")
    assert "model_store_verify=true" in first
    # The second node names the file, whether it detected the damage itself or received the first node's error.
    assert LARGE in second
    assert not any(
        (node.folder / LARGE).exists() or (node.folder / model_store_plan.MANIFEST).exists() for node in nodes
    )


def test_a_disk_that_is_full(chain: Chain) -> None:
    chain.head().have(len(FILES[LARGE]))
    full, behind = chain.node(2, file_limit=3_000_000), chain.node(3)
    reason = full.ends("failed")
    assert reason.startswith(f"{LARGE} cannot be written in {full.folder}: ")
    assert "GB are free. Partial files are kept" in reason
    assert behind.ends("failed").startswith(f"spark2 sent no data: {LARGE} cannot be written")
    full.stop()
    again = chain.node(2)
    again.ends("complete")
    assert again.whole()


def receiver_in(folder: Path, port: int, address: str = "127.0.0.1", patience: float = 1) -> io_relay.Receiver:
    (folder / "node2").mkdir(exist_ok=True)
    store = io_store.Store(str(folder / "node2"), KNOWN, Status(str(folder / "status.json"), 0))
    return io_relay.Receiver(store, "spark1", address, port, patience, idle=5)


class Stranger:
    """Sends the same response to each request while the client reads."""

    def __init__(self, head: bytes, body: bytes = b"", times: int = 1, wait: float = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.sent = self.listener.getsockname()[1], 0
        self.answer = head, body, times, wait
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        head, body, times, wait = self.answer
        with contextlib.suppress(OSError):
            while True:
                connection, _address = self.listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1000)
                    time.sleep(wait)
                    connection.sendall(head)
                    for _time in range(times):
                        connection.sendall(body)
                        self.sent += len(body)

    def close(self) -> None:
        # A thread that stays in accept() continues, after a signal, with the next socket of the same number.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)
        self.listener.close()


SIZE = len(FILES[LARGE])


def length(count: int) -> bytes:
    return f"HTTP/1.0 200 OK\r\nContent-Length: {count}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("head", "body", "words"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n", b"x", f"its Content-Length is invalid, expected {SIZE}"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"x", "Content-Length is invalid"),
        (length(400000000), b"x", f"its Content-Length is 400000000, expected {SIZE}"),
        (length(-1), b"x", "Content-Length is invalid"),
        (length(1), b"x", "Content-Length is 1, expected"),
        (b"HTTP/1.0 206 OK\r\nContent-Length: 0\r\n\r\n", b"", "it returned status 206"),
        (b"HTTP/1.0 503 no\r\n\r\n\x1b[2Jso\r\nthere", b"", r"sent no data: \[2Jso there$"),
        # More than it announces: the receiver closes the connection when the file is complete.
        (length(SIZE), bytes(1 << 20), "was damaged in two transfers"),
        (length(SIZE), b"", f"responded 101 times in a row without data of {LARGE}"),
        (b"\0" * 100_000, b"", "no data from spark1"),
        (b"HTTP/1.0 200 OK\r\n" + b"X: y\r\n" * 1000, b"", "no data from spark1 .*headers"),
        (b"HTTP/1.0 200 OK\r\nX: " + b"y" * 100_000, b"", "no data from spark1 .*line"),
    ],
)
def test_a_sender_that_sends_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, body: bytes, words: str
) -> None:
    monkeypatch.setattr(io_relay, "_RETRY", 0.01)
    stranger = Stranger(head, body, times=300)
    receiver = receiver_in(tmp_path, stranger.port, patience=60 if head == length(SIZE) else 0.1)
    with contextlib.closing(stranger), pytest.raises(GaveUpError, match=words):
        receiver.fetch(receiver.store.files[2])
    assert sum(path.stat().st_size for path in (tmp_path / "node2").iterdir()) == 0
    assert stranger.sent < 100 << 20


def test_a_sender_that_is_not_there_or_silent(tmp_path: Path, chain: Chain) -> None:
    receiver = receiver_in(tmp_path, chain.port, "127.0.0.9")
    with pytest.raises(GaveUpError, match=rf"no data from spark1 \(127.0.0.9:{chain.port}\) for 1 s: .*refused"):
        receiver.fetch(receiver.store.files[2])
    silent = Stranger(b"", wait=1)
    receiver.address, receiver.port, receiver.idle = "127.0.0.1", silent.port, 0.2
    with contextlib.closing(silent), pytest.raises(GaveUpError, match="is reachable, but sent no data for 0 s"):
        receiver.fetch(receiver.store.files[2])


class Wire:
    """A connection that has already received certain bytes."""

    def __init__(self, said: bytes) -> None:
        self.said = said

    def makefile(self, *_mode: str) -> io.BytesIO:
        return io.BytesIO(self.said)

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_arguments: None


PIECES = [
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 503 no",
    b"HTTP/9 -",
    b"\r\n",
    b"Content-Length: ",
    b"2",
    b"-",
    b"chunked",
    b"\0",
    b"\xff",
    b"{}",
]
HEADS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=5), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HEADS.map(b"".join) | st.binary(max_size=40))
def test_no_answer_raises_anything_but_its_own_error(tmp_path: Path, said: bytes) -> None:
    receiver = receiver_in(tmp_path, 9, patience=-1)
    with mock.patch.object(
        http.client.HTTPConnection, "connect", lambda connection: setattr(connection, "sock", Wire(said))
    ):
        try:
            receiver.fetch(receiver.store.files[0])
        except GaveUpError as error:
            assert str(error).isprintable()
        else:
            assert b"{}" in said
    assert sum(path.stat().st_size for path in (tmp_path / "node2").iterdir()) <= 2
    (tmp_path / "node2/config.json").unlink(missing_ok=True)


def test_a_receiver_that_asks_for_nothing_is_let_go(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_relay.Sender, "timeout", 0.2)
    chain.head()
    with socket.create_connection(("127.0.0.1", chain.port), timeout=10) as connection:
        connection.sendall(b"GET /")
        assert connection.recv(1000) == b""


def test_a_sender_answers_only_so_many_at_once(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest one without a request goes, so that silent ones stop nobody, and one with a request stays."""
    monkeypatch.setattr(io_relay, "_CONNECTIONS", 3)
    monkeypatch.setattr(io_relay, "_REQUEST", 60)
    monkeypatch.setattr(io_relay.Sender, "timeout", 60)
    head = chain.head()
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(asked(chain, f"/{head.digest}/2/0"))
        assert b" 200 " in receiver.recv(1000)
        silent = [stack.enter_context(asked(chain)) for _number in range(5)]
        assert [connection.recv(1) for connection in silent[:3]] == [b""] * 3
        assert b" 200 " in stack.enter_context(asked(chain, f"/{head.digest}/0/0")).recv(1000)
        head.have(len(FILES[LARGE]))
        assert receiver.recv(1)
    assert soon(lambda: not head._sources._of, 10)


def asked(chain: Chain, path: str = "", source: str = "127.0.0.1") -> socket.socket:
    """Return a connection from a source, with a request for a path."""
    connection = socket.create_connection(("127.0.0.1", chain.port), 10, (source, 0))
    connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode() if path else b"")
    return connection


def test_a_request_that_arrives_byte_by_byte_ends(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_relay, "_REQUEST", 0.5)
    chain.head()
    with asked(chain) as connection, pytest.raises(ConnectionError):
        for _byte in range(600):
            connection.sendall(b"x")
            time.sleep(0.05)


def test_a_receiver_that_takes_bytes_too_slowly_is_let_go(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_relay, "_TAKE", 0.5)
    head = chain.head()
    head.have(len(FILES[LARGE]))
    with asked(chain, f"/{head.digest}/2/0") as connection:
        taken = 0
        for _number in range(20):
            taken += len(connection.recv(1 << 12))
            time.sleep(0.1)
        while data := connection.recv(1 << 20):
            taken += len(data)
    assert taken < len(FILES[LARGE])


def test_other_nodes_than_the_receiver_get_nothing(chain: Chain) -> None:
    head = chain.head("127.0.0.2", "127.0.0.3")
    for source, answer in (("127.0.0.3", b"HTTP"), ("127.0.0.1", b"")):
        with asked(chain, f"/{head.digest}/0/0", source) as client, contextlib.suppress(ConnectionResetError):
            assert client.recv(4) == answer


def test_a_link_in_the_models_folder_is_neither_sent_nor_written_through(tmp_path: Path, chain: Chain) -> None:
    (tmp_path / "secret").write_bytes(FILES["config.json"])
    folder = plant(chain.folder / "node1")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(tmp_path / "secret")
    (folder / model_store_plan.MANIFEST).write_text(json.dumps(MANIFEST), encoding="utf-8")
    assert chain.node(1).ends("failed") == "config.json has wrong content, and no node sends it to this one"


def test_a_sender_of_another_model(chain: Chain) -> None:
    head = chain.head()
    head.digest = "0" * 64
    assert chain.node(2).ends("failed") == "spark1 sent no data: it serves another model"


@pytest.mark.parametrize(
    ("known", "changed", "options", "asked"),
    [
        (True, {"model": b"x" + FILES[LARGE][1:]}, [], []),
        (True, {"model": b"x" + FILES[LARGE][1:]}, ["--verify"], ["/2/0"]),
        (False, {"config": b"[]"}, [], ["/0/0"]),
    ],
    ids=["with a manifest", "with a manifest, to verify", "without a manifest"],
)
def test_a_node_that_has_files(
    chain: Chain, known: bool, changed: dict[str, bytes], options: list[str], asked: list[str]
) -> None:
    head = chain.head()
    head.have(len(FILES[LARGE]))
    folder = plant(chain.folder / "node2", **changed)
    if known:
        (folder / model_store_plan.MANIFEST).write_text(json.dumps(MANIFEST), encoding="utf-8")
    node = chain.node(2, *options)
    node.ends("complete")
    assert (node.whole(), head.asked) == (bool(asked), asked)


def test_a_head_with_less_than_its_manifest(chain: Chain) -> None:
    plant(chain.folder / "node1", model=b"short")
    assert chain.node(1).ends("failed") == f"{LARGE} has wrong content, and no node sends it to this one"


def test_an_unexpected_error_is_told_to_the_next_node(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[int, bytes]] = []

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", chain.port, timeout=10)
        connection.request("GET", f"/{KNOWN.digest}/0/0")
        answer = connection.getresponse()
        answers.append((answer.status, answer.read()))

    monkeypatch.setattr(io_store, "complete", mock.Mock(side_effect=KeyError("planted")))
    monkeypatch.setattr(io_relay.signal, "pause", ask)
    options = argparse.Namespace(
        manifest=str(chain.manifest), status=str(chain.folder / "status.json"), folder=str(chain.folder / "model")
    )
    vars(options).update(upstream="", listen="127.0.0.1", receiver=[], port=chain.port, streams=1, verify=False)
    assert io_relay.run(options) == 0
    assert answers == [(503, b"the program failed; see its log: KeyError: 'planted'")]
    assert json.loads((chain.folder / "status.json").read_text(encoding="utf-8"))["state"] == "failed"


def test_a_port_that_is_taken(chain: Chain) -> None:
    chain.head()
    node = chain.node(1)
    assert node.ends("failed").startswith(f"cannot listen on 127.0.0.1:{chain.port}: Address already in use")
    assert node.process.wait(timeout=10) == 1


@pytest.mark.parametrize(
    "path", ["/", "/etc/passwd", "/{digest}/9/0", "/{digest}/0/99", "/{digest}/../0", "/{digest}/0/0/x"]
)
def test_what_is_not_of_the_manifest_is_not_sent(chain: Chain, path: str) -> None:
    head = chain.head()
    with socket.create_connection(("127.0.0.1", chain.port), timeout=10) as connection:
        connection.sendall(f"GET {path.format(digest=head.digest)} HTTP/1.0\r\n\r\n".encode())
        assert connection.recv(1000).split()[1] == b"404"


def test_a_receiver_that_left_keeps_no_place() -> None:
    """70 requests for bytes that had not arrived, of connections that were closed, kept all places."""
    sender, receiver = socket.socketpair()
    with sender:
        assert io_relay.wait_for(lambda: True, sender)
        receiver.close()
        assert not io_relay.wait_for(lambda: False, sender)
