"""An HTTP server of a test, whose answers a function gives."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Returns status, text and headers. Its request has command, path, headers and body.
Answer = Callable[[BaseHTTPRequestHandler], tuple[int, str, Mapping[str, str]]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments: Any) -> None:
        """A client that leaves, or does not trust the certificate, is no error of the server."""


@contextmanager
def serving(answer: Answer, secured: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve on a port of an address of this machine, and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, text, headers = answer(self)
            self.send_response(status)
            for name, value in {"content-length": str(len(text.encode())), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_arguments: Any) -> None:
            """Print nothing."""

        do_GET = do_POST = respond

    with _Server((host, 0), Handler) as server:
        if secured:
            server.socket = secured.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"{'https' if secured else 'http'}://{host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
