# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends a model along a chain of nodes. This file is also a program: a transient unit runs it on each of them while the model is copied.

Each node receives from the one before it and sends on what it has, also of files that are still coming: N nodes cost about one copy. Nodes have no
login on each other, so what comes is believed by its SHA-256 alone, which was given over Ansible's own connection.

A sender answers GET /DIGEST/NUMBER/START: the bytes from START of the manifest's file with this number, as they come. With /proven behind it, it
waits until it has proven the file itself: that is how a file is asked for again that came damaged. 503 tells why it gave up.

Who is at the other end may be anybody. A sender believes nothing but a request for a file of the manifest; a receiver takes no byte more
than the manifest says, from an answer that announces exactly those. What either may be sent is checked in model_store.py.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http
import http.client
import http.server
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import Folder, OutsideError
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files as io_model_files
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_files import GaveUpError, Part, Status

#: Seconds: for a connection, between attempts, and without a byte from a sender that cannot be reached.
_CONNECT, _RETRY, _PATIENCE = 10, 1, 60
#: Seconds without a byte from a sender that is there; it may have to receive and prove a file of many gigabytes first.
_IDLE = 3600
#: Answers without a byte, one after the other.
_EMPTY = 100
#: Seconds: for a request, and for a receiver to take some bytes. Connections at once: a receiver has one for each of its streams.
_REQUEST, _TAKE, _CONNECTIONS = 30, 600, 64
#: A node that lost its power closes nothing: ask after 10 s, three times.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_SEND = 8 << 20


class File:
    """A file of the manifest: how many of its bytes can be sent on, from which descriptor's path, and whether all are proven."""

    def __init__(self, entry: Mapping[str, Any], folder: str) -> None:
        self.name, self.size, self.sha256 = str(entry["path"]), int(entry["size"]), str(entry["sha256"])
        self.path = f"{folder}/{self.name}"
        self.within = Folder(folder)
        self.have, self.proven = 0, False
        #: Counts how often it was begun: who sends from an earlier beginning has to stop.
        self.beginning = 0


class Store:
    """The model on this node, as those see it who receive it and who send it on."""

    def __init__(self, folder: str, manifest: Mapping[str, Any], status: Status) -> None:
        self.folder, self.manifest, self.status = folder, manifest, status
        self.digest = model_store.digest(manifest)
        self.files = [File(entry, folder) for entry in manifest["files"]]
        self.changed = threading.Condition()
        self.reason = ""

    def update(self, change: Callable[[], None]) -> None:
        """Change something that others wait for."""
        with self.changed:
            change()
            self.changed.notify_all()

    def set_have(self, file: File, have: int, proven: bool = False, anew: bool = False) -> None:
        """So many bytes of a file are there."""

        def change() -> None:
            self.status.add(have - file.have)
            file.have, file.proven = have, proven
            file.beginning += anew

        self.update(change)

    def give_up(self, reason: str) -> None:
        """Tell it to all who ask; the first reason counts."""

        def change() -> None:
            if not self.reason:
                self.reason = reason
                self.status.end(reason)

        self.update(change)

    def check(self, file: File, trusted: bool) -> None:
        """Take a file that is there, if it is what it should be; ``trusted``: if it has its size."""
        try:
            if (size := file.within.size(file.name)) is None:
                return
            right = size == file.size and (trusted or file.within.sha256(file.name) == file.sha256)
        except OutsideError:
            right = False
        if right:
            self.set_have(file, file.size, proven=True)
        else:
            io_model_files.say(f"{file.name} is not what it should be, and is fetched again")

    def send(self, file: File, start: int, to: socket.socket) -> None:
        """Send a file's bytes as they come; ends early if they turn out to be wrong, or will not come."""
        with self.changed:
            beginning = file.beginning
            if self._sendable(file, start, beginning) <= start:
                return
            # Once open, it may be renamed.
            opened = contextlib.ExitStack()
            descriptor = opened.enter_context(file.within.open(file.name if file.proven else file.name + model_store.PART))
        with opened:
            while start < file.size:
                with self.changed:
                    have = self._sendable(file, start, beginning)
                if have <= start:
                    return
                # 0 bytes: the part has just been emptied.
                while start < have and (count := os.sendfile(to.fileno(), descriptor, start, min(have - start, _SEND))):
                    start += count

    def _sendable(self, file: File, start: int, beginning: int) -> int:
        """Wait for bytes of a file behind the start, and return how many it has by then; 0 if it was begun anew, or nothing more comes."""
        self.changed.wait_for(lambda: file.have > start or file.beginning != beginning or self.reason)
        return 0 if file.beginning != beginning or self.reason else file.have


class Sender(http.server.BaseHTTPRequestHandler):
    """Answers the node that comes next. Python's own limits on a request hold: 64 KiB a line, 100 headers."""

    server: Server
    #: For the request; setup() gives it to the connection.
    timeout = _REQUEST

    def do_GET(self) -> None:
        """Send a file of the manifest."""
        store = self.server.store
        try:
            number, start, proven = model_store.request(self.path, store.digest, [file.size for file in store.files])
        except model_store.PeerError as error:
            self._say(404, str(error))
            return
        file = store.files[number]
        # Waiting for bytes may take long, but not for a receiver that takes none. sendfile needs a socket that waits.
        self.connection.settimeout(None)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _TAKE, 0))
        if proven:
            with store.changed:
                store.changed.wait_for(lambda: file.proven or store.reason)
        if store.reason:
            self._say(503, store.reason)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(file.size - start))
        self.end_headers()
        self.close_connection = True
        try:
            store.send(file, start, self.connection)
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            return  # who asked is gone, or asks again; the last: it took nothing for too long

    def _say(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line."""


class Server(http.server.ThreadingHTTPServer):
    """Sends the store's files on one address."""

    daemon_threads = True

    def __init__(self, address: str, port: int, store: Store) -> None:
        super().__init__((address, port), Sender)
        self.store, self._room = store, threading.BoundedSemaphore(_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer it in a thread, as long as there are not too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Make room when it is answered."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


class Receiver:
    """Fetches the files that are missing from the node before this one."""

    def __init__(self, store: Store, name: str, address: str, port: int, patience: float = _PATIENCE, idle: float = _IDLE) -> None:
        self.store, self.name, self.address, self.port, self.patience, self.idle = store, name, address, port, patience, idle

    def fetch(self, number: int) -> None:
        """Fetch a file and prove it, once more if it came damaged. Raises GaveUpError."""
        file = self.store.files[number]
        try:
            with contextlib.closing(Part(file.within, file.name)) as part:
                if part.size > file.size:
                    part.empty()
                self.store.set_have(file, part.size)
                for proven in (False, True):
                    self._receive(number, file, part, proven)
                    found = part.hash.hexdigest()
                    if found == file.sha256:
                        part.sync()
                        self.store.update(lambda: self._keep(file, part))
                        return
                    io_model_files.say(f"{file.name} came damaged from {self.name}")
                    self.store.set_have(file, 0, anew=True)
                    part.empty()
        except (OSError, OutsideError) as error:  # the network's are dealt with in _receive
            raise io_model_files.not_written(self.store.folder, file.name, error) from error
        raise GaveUpError(
            f"{file.name} came damaged twice from {self.name}: its SHA-256 is {found} and should be {file.sha256}. "
            "Run again with -e model_store_verify=true, which reads every file on every node and fetches those anew that have changed"
        )

    def _keep(self, file: File, part: Part) -> None:
        part.keep()
        file.proven = True

    def _receive(self, number: int, file: File, part: Part, proven: bool) -> None:
        """Add what is missing to the part, over as many connections as it takes."""
        last, error, empty = time.monotonic(), "it ends in the middle of a file", 0
        while part.size < file.size:
            try:
                with self._ask(f"/{self.store.digest}/{number}/{part.size}{'/proven' if proven else ''}", file.size - part.size) as answer:
                    last, empty = time.monotonic(), empty + 1
                    while data := self._read(answer, file.size - part.size):
                        part.add(memoryview(data))
                        self.store.set_have(file, part.size)
                        last, empty = time.monotonic(), 0
                        if self.store.reason:
                            raise GaveUpError(self.store.reason)
            except _NetworkError as found:
                error = str(found)
            if part.size < file.size:
                if empty > _EMPTY:
                    raise GaveUpError(f"{self.name} answered {empty} times in a row without a byte of {file.name}")
                if time.monotonic() - last > self.patience:
                    raise GaveUpError(f"nothing came from {self.name} ({self.address}:{self.port}) for {self.patience:.0f} s: {error}")
                time.sleep(_RETRY)

    @contextlib.contextmanager
    def _ask(self, path: str, count: int) -> Iterator[http.client.HTTPResponse]:
        """Give the answer to a request for so many bytes. Raises GaveUpError if it is no, or of others; _NetworkError if there is none."""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=_CONNECT)
        try:
            try:
                connection.connect()
                self._keep_alive(connection.sock)
                connection.request("GET", path)
                answer = connection.getresponse()
                refusal = answer.read(model_store.MOST_WORDS) if answer.status != http.HTTPStatus.OK else b""
            except TimeoutError as error:
                raise self._silent() from error
            except (OSError, http.client.HTTPException) as error:
                raise _NetworkError(model_store.words(str(error).encode()) or type(error).__name__) from error
            try:
                model_store.check_answer(answer.status, answer.length, count, refusal)
            except model_store.PeerError as error:
                raise GaveUpError(f"{self.name} sends nothing: {error}") from error
            yield answer
        finally:
            connection.close()

    def _read(self, answer: http.client.HTTPResponse, most: int) -> bytes:
        """Return what has come by now, of as many bytes as there should be; b"" at the end."""
        try:
            return answer.read1(min(io_model_files.CHUNK, most)) if most else b""
        except TimeoutError as error:
            raise self._silent() from error
        except (OSError, http.client.HTTPException) as error:
            raise _NetworkError(str(error)) from error

    def _silent(self) -> GaveUpError:
        return GaveUpError(f"{self.name} ({self.address}:{self.port}) is there, and sent nothing for {self.idle:.0f} s")

    def _keep_alive(self, connection: socket.socket) -> None:
        """Wait as long as the sender is there, within reason, and notice when it is not."""
        connection.settimeout(self.idle)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


class _NetworkError(Exception):
    """A sender cannot be reached or is gone, which is told apart from a disk that cannot be written."""


def complete(store: Store, receiver: Receiver | None, streams: int, verify: bool) -> None:
    """Check what is there, fetch what is missing, several files at once, and write the manifest. Raises GaveUpError."""
    before = io_model_files.manifest(store.folder)
    trusted = not verify and before is not None and model_store.digest(before) == store.digest

    def one(number: int) -> None:
        file = store.files[number]
        if not store.reason:
            store.check(file, trusted)
        if file.proven or store.reason:
            return
        if receiver is None:
            raise GaveUpError(f"{file.name} is not what it should be, and nobody sends it here")
        store.status.state = "receiving"
        receiver.fetch(number)

    def safely(number: int) -> None:
        try:
            one(number)
        except GaveUpError as error:
            store.give_up(str(error))

    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        for work in [pool.submit(safely, number) for number in range(len(store.files))]:
            work.result()
    if store.reason:
        raise GaveUpError(store.reason)
    if not trusted:
        io_model_files.write_manifest(store.folder, store.manifest)


def run(options: argparse.Namespace) -> int:
    """Complete the model and send it on, until the unit is stopped. Returns the exit status, which is 0 only if it was complete by then."""
    known = model_store.parse(io_file.read_file(options.manifest)[0])
    if known is None:
        raise SystemExit(f"{options.manifest} is no manifest")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_arguments: stopped.set())
    status = Status(options.status, model_store.total(known["files"]))
    store = Store(options.folder, known, status)
    receiver = Receiver(store, options.upstream, options.upstream_address, options.port) if options.upstream else None
    os.makedirs(options.folder, mode=0o755, exist_ok=True)
    status.write()
    if options.listen:
        try:
            server = Server(options.listen, options.port, store)
        except OSError as error:
            status.end(f"it cannot send on {options.listen}:{options.port}: {error.strerror} (model_store_port)")
            return 1
        threading.Thread(target=server.serve_forever, daemon=True).start()
    io_model_files.say(f"{known['model']}: {status.total} bytes {f'from {options.upstream}' if options.upstream else 'are here'}")

    def work() -> None:
        reason = "the program has failed; its log says why"
        try:
            complete(store, receiver, options.streams, options.verify)
            reason = ""
        except GaveUpError as error:
            reason = str(error)
        except (OSError, OutsideError) as error:
            reason = str(io_model_files.not_written(options.folder, model_store.MANIFEST, error))
        finally:
            if reason:
                store.give_up(reason)
            else:
                status.end()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    while worker.is_alive() and not stopped.wait(1):
        if status.state not in ("failed", "complete"):
            status.write()
    stopped.wait()
    return 0 if status.state == "complete" else 1


def main() -> None:
    """Read the arguments, run."""
    parser = argparse.ArgumentParser(description="Receive a model from one node and send it to the next.")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--manifest", required=True, help="what the model consists of")
    parser.add_argument("--status", required=True, help="the file that tells how far it is")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--listen", default="", help="the address on which the next node asks; none to send nothing")
    parser.add_argument("--upstream", default="", help="the name of the node that sends; none for the first")
    parser.add_argument("--upstream-address", default="")
    parser.add_argument("--streams", type=int, default=4, help="how many files at once")
    parser.add_argument("--verify", action="store_true", help="read every file again")
    raise SystemExit(run(parser.parse_args()))


if __name__ == "__main__":
    main()
