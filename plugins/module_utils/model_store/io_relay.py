# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends a model along a chain of nodes.

A transient unit runs this on each node during the copy. Each node receives from the previous
one and forwards available bytes, also of incomplete files, so N nodes take about as long as one copy. Nodes cannot log
in to each other; they trust received files only by the SHA-256 from Ansible's connection.

A sender serves GET /DIGEST/NUMBER/START: the bytes from START of the manifest's file with this number, as they arrive.
With the suffix /verified it first waits until it has verified the file itself; receivers use it to request a damaged
file again. Status 503 contains the reason of a failure.

Peers are untrusted. A sender accepts only requests for files of the manifest. A receiver accepts only a response with
exactly the expected number of bytes. plan.py checks requests and responses.
"""

from __future__ import annotations

import argparse
import contextlib
import http
import http.client
import http.server
import os
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import OutsideError
from ansible_collections.gb10.cluster.plugins.module_utils.common.limits import Sources
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files, io_store
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_files import GaveUpError, Part
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_store import Entry, Store

#: Seconds: to connect, between attempts, and without data from an unreachable sender.
_CONNECT, _RETRY, _PATIENCE = 10, 1, 60
#: Seconds without data from a reachable sender, which may first have to receive and verify a file of many gigabytes.
_IDLE = 3600
#: Consecutive responses without data.
_EMPTY = 100
#: Seconds: for a request, and for a receiver to accept 1 MiB. Parallel connections: a receiver has one per stream.
_REQUEST, _TAKE, _CONNECTIONS = 10, 75, 64
#: A node without power closes no connections, so probe after 10 s, three times.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
#: Seconds between two looks at a file without bytes for the receiver.
_LOOK = 0.02


def send(store: Store, file: Entry, start: int, to: socket.socket) -> None:
    """Send a file's bytes as they arrive.

    Ends early if the transfer failed, or the receiver left. A damaged file begins again, and the receiver verifies
    what it got before. Raises OSError, OutsideError.
    """

    def ready() -> bool:
        return file.have > start or bool(store.reason)

    if not wait_for(ready, to):
        return
    block = memoryview(bytearray(io_files.CHUNK))
    # The timeout is that of all data of a call.
    to.settimeout(_TAKE)
    # The open descriptor survives the later rename.
    with store.within.open(file.path if file.verified else file.path + model_store_plan.PART) as descriptor:
        while start < file.size and wait_for(ready, to) and not store.reason:
            count = os.preadv(descriptor, [block[: max(0, file.have - start)]], start)
            to.sendall(block[:count])
            start += count


def wait_for(ready: Callable[[], bool], to: socket.socket) -> bool:
    """Wait while the receiver is there, and return whether it is: one that left must not keep its place."""
    while not ready():
        # It has closed its connection, or sent unrequested data.
        if select.select([to], [], [], _LOOK)[0]:
            return False
    return True


def hang_up(connection: socket.socket) -> None:
    """End a connection that another thread reads."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Sender(http.server.BaseHTTPRequestHandler):
    """Serves the next node. Python limits a request to 64 KiB per line and 100 headers."""

    server: Server
    #: Timeout of each read and write; setup() applies it to the connection.
    timeout = _REQUEST

    def handle(self) -> None:
        """Handle the connection. One without a request ends, however slowly it sends."""
        self._limit = threading.Timer(_REQUEST, hang_up, (self.connection,))
        self._limit.daemon = True
        self._limit.start()
        try:
            super().handle()
        finally:
            self._limit.cancel()

    def do_GET(self) -> None:
        """Send a file of the manifest."""
        self._limit.cancel()
        store = self.server.store
        found = model_store_plan.request(self.path, self.server.digest, [file.size for file in store.files])
        if found is None:
            self._say(404, "it serves another model")
            return
        number, start, verified = found
        file = store.files[number]
        self.server.works(self.connection)
        self.close_connection = True
        if verified and not wait_for(lambda: file.verified or bool(store.reason), self.connection):
            return
        if store.reason:
            self._say(503, store.reason)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(file.size - start))
        self.end_headers()
        # The receiver left, or asks again, such as for a partial file that has just become complete.
        with contextlib.suppress(OSError, OutsideError):
            send(store, file, start, self.connection)

    def _say(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


class Server(http.server.ThreadingHTTPServer):
    """Sends the store's files on one address to the ``receivers``, or to any node without them."""

    daemon_threads = True

    def __init__(self, address: str, port: int, store: Store, receivers: Collection[str] = ()) -> None:
        super().__init__((address, port), Sender)
        self.store, self.digest, self._receivers = store, store.manifest.digest, receivers
        self._sources: Sources[Any] = Sources(_CONNECTIONS, _CONNECTIONS)
        self._lock = threading.Lock()

    def verify_request(self, _request: Any, client_address: Any) -> bool:
        """Return whether the address is one of a receiver."""
        return not self._receivers or client_address[0] in self._receivers

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle the request in a thread. Beyond the limit, the oldest connection without a request ends."""
        with self._lock:
            superfluous: Any = self._sources.open(request, client_address[0])
        if superfluous is request:
            self.shutdown_request(request)
            return
        if superfluous is not None:
            hang_up(superfluous)
        super().process_request(request, client_address)

    def works(self, request: Any) -> None:
        """Note that a connection has a request."""
        with self._lock:
            self._sources.work(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Make room for another connection after the request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._sources.close(request)


@dataclass
class Receiver:
    """Fetches missing files from the previous node, by its name and address."""

    store: Store
    name: str
    address: str
    port: int
    patience: float = _PATIENCE
    idle: float = _IDLE

    def fetch(self, file: Entry) -> None:
        """Fetch and verify a file, a second time if it was damaged.

        Raises GaveUpError, and for errors of the disk OSError and OutsideError.
        """
        with contextlib.closing(Part(self.store.within, file.path)) as part:
            if part.size > file.size:
                part.empty()
            file.have = part.size
            for verified in (False, True):
                self._receive(file, part, verified)
                found = part.hash.hexdigest()
                if found == file.sha256:
                    part.keep()
                    file.accept(found)
                    return
                io_files.say(f"{file.path} was damaged in a transfer from {self.name}")
                file.have = 0
                part.empty()
        raise GaveUpError(
            f"{file.path} was damaged in two transfers from {self.name}: its SHA-256 is {found}. "
            f"Expected: {file.sha256}. Fix: run again with -e model_store_verify=true, which reads every file on every "
            "node and fetches changed files again"
        )

    def _receive(self, file: Entry, part: Part, verified: bool) -> None:
        """Add the missing bytes to the partial file, over as many connections as needed."""
        last, error, empty = time.monotonic(), "the connection ended in the middle of a file", 0
        place, digest = f"{self.name} ({self.address}:{self.port})", self.store.manifest.digest
        while part.size < file.size:
            path = f"/{digest}/{file.number}/{part.size}{'/verified' if verified else ''}"
            try:
                with self._ask(path, file.size - part.size) as answer:
                    last, empty = time.monotonic(), empty + 1
                    while data := answer.read1(min(io_files.CHUNK, file.size - part.size)):
                        part.add(memoryview(data))
                        file.have = part.size
                        last, empty = time.monotonic(), 0
                        if self.store.reason:
                            raise GaveUpError(self.store.reason)
            except TimeoutError as found:
                raise GaveUpError(f"{place} is reachable, but sent no data for {self.idle:.0f} s") from found
            except (OSError, http.client.HTTPException) as found:
                error = model_store_plan.words(str(found).encode()) or type(found).__name__
            if part.size < file.size:
                if empty > _EMPTY:
                    raise GaveUpError(f"{self.name} responded {empty} times in a row without data of {file.path}")
                if time.monotonic() - last > self.patience:
                    raise GaveUpError(f"no data from {place} for {self.patience:.0f} s: {error}")
                time.sleep(_RETRY)

    @contextlib.contextmanager
    def _ask(self, path: str, count: int) -> Iterator[http.client.HTTPResponse]:
        """Yield the response to a request for this many bytes.

        Raises GaveUpError for a refusal or a wrong response, OSError and HTTPException without a response.
        """
        with contextlib.closing(http.client.HTTPConnection(self.address, self.port, timeout=_CONNECT)) as connection:
            connection.connect()
            # Wait for a reachable sender up to the idle limit, and detect an unreachable one with TCP keepalive.
            connection.sock.settimeout(self.idle)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.request("GET", path)
            answer = connection.getresponse()
            refusal = answer.read(model_store_plan.MOST_WORDS) if answer.status != http.HTTPStatus.OK else b""
            if wrong := model_store_plan.answer_problem(answer.status, answer.length, count, refusal):
                raise GaveUpError(f"{self.name} sent no data: {wrong}")
            yield answer


def _nowhere(file: Entry) -> None:
    raise GaveUpError(f"{file.path} has wrong content, and no node sends it to this one")


def run(options: argparse.Namespace) -> int:
    """Complete the model and forward it until the unit is stopped. Returns the exit status of a failed start."""
    store = io_store.begin(options, options.manifest, hashed=True)
    status, origin = store.status, _nowhere
    if options.upstream:
        origin = Receiver(store, options.upstream, options.upstream_address, options.port).fetch
    if options.listen:
        try:
            server = Server(options.listen, options.port, store, options.receiver)
        except OSError as error:
            status.end(f"cannot listen on {options.listen}:{options.port}: {error.strerror} (model_store_port)")
            return 1
        threading.Thread(target=server.serve_forever, daemon=True).start()
    source = f"from {options.upstream}" if options.upstream else "on this node"
    io_files.say(f"{store.manifest.model}: {status.total} bytes {source}")
    with status.reported():
        try:
            io_store.complete(store, origin, options.streams, options.verify)
        except Exception as error:  # noqa: BLE001  # Without this program, the next nodes would wait for an answer.
            io_files.say(" ".join(traceback.format_exc().split()))
            store.give_up(f"the program failed; see its log: {type(error).__name__}: {error}")
    signal.pause()
    return 0
