"""A Hugging Face Hub on loopback: only the HTTP that huggingface_hub needs to list and download one model.

Also a program: `hub.py FOLDER PORT` serves the files of a folder as org/tiny until it is killed.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "org/tiny"


class Hub(http.server.ThreadingHTTPServer):
    """Serves one model. ``gated``: the token is required. ``cut``: bytes of a file after which its next response ends,
    once. ``damage``: the number of responses with a wrong byte. ``asked``: the requests, with their range. ``shown``:
    the received tokens.
    ``elsewhere``: the address of another hub with the files. ``answer``: a false response about the model."""

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes], gated: bool = False, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Answer)
        self.files, self.gated = dict(files), gated
        self.cut: dict[str, int] = {}
        self.damage: dict[str, int] = {}
        self.asked: list[str] = []
        self.shown: set[str | None] = set()
        self.elsewhere, self.answer = "", b""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def sibling(name: str, content: bytes) -> dict[str, Any]:
    """Return one file as in the API's response: large files have a SHA-256, small ones git's hash."""
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
    if name.endswith(".safetensors"):
        entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        hub.shown.add(self.headers.get("Authorization"))
        if found := re.fullmatch(rf"/api/models/{NAME}/revision/(\w+)", path):
            if found[1] not in ("main", COMMIT):
                self._refuse(404, "RevisionNotFound")
                return
            files = [sibling(name, content) for name, content in hub.files.items()]
            answer = json.dumps({"id": NAME, "modelId": NAME, "sha": COMMIT, "siblings": files}).encode()
            self._send(hub.answer or answer, {"Content-Type": "application/json"})
        elif found := re.fullmatch(rf"/{NAME}/resolve/{COMMIT}/(.+)", path):
            hub.asked.append(f"{self.command} {found[1]} {self.headers.get('Range', '')}".strip())
            if hub.gated and self.headers.get("Authorization") != "Bearer hf_right":
                self._refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo")
                return
            if hub.elsewhere:
                self._send(b"", {"Location": f"{hub.elsewhere}{path}"}, 302)
                return
            self._file(found[1], hub.files[found[1]])
        else:
            self._refuse(401, "RepoNotFound")

    def _file(self, name: str, content: bytes) -> None:
        entry = sibling(name, content)
        headers = {
            "X-Repo-Commit": COMMIT,
            "ETag": f'"{entry["lfs"]["sha256"] if "lfs" in entry else entry["blobId"]}"',
            "Accept-Ranges": "bytes",
        }
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(found[1]) if found else 0
        if found:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if self.command == "GET" and self.server.damage.get(name, 0):
            self.server.damage[name] -= 1
            content = bytes([content[0] ^ 1]) + content[1:]
        self._send(
            content[start:],
            headers,
            206 if found else 200,
            self.server.cut.pop(name, None) if self.command == "GET" else None,
        )

    def _send(self, body: bytes, headers: Mapping[str, str], status: int = 200, cut: int | None = None) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True

    def _refuse(self, status: int, code: str) -> None:
        self._send(b"{}", {"X-Error-Code": code, "X-Error-Message": f"{code} it is"}, status)

    def log_message(self, format: str, *args: Any) -> None:
        """Suppress the log."""


if __name__ == "__main__":
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    Hub({str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}, port=port)
    threading.Event().wait()
