# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Query a vLLM server and its journal."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.parse
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_command, io_local
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_local import Secret
from ansible_collections.gb10.cluster.plugins.module_utils.health import metrics, probe

_HEALTH_SECONDS = 5
#: Maximum bytes read of an answer. The metrics of a busy server are about 100 KB.
MOST = 8 * 1024**2
#: The unit whose processes receive the API key.
UNIT = "gb10-vllm.service"
#: Used instead of an HTTP status: no server answered; or one answered whose TLS failed verification.
_SILENT, _UNTRUSTED = 0, -1
#: The first HTTP status after those of success. Redirects are not followed.
_REDIRECTS = 300
#: The server's message at the end of its start.
READY = "Application startup complete"
#: Without --all, journalctl omits every message over 4096 bytes.
_JOURNAL = ("journalctl", "--no-pager", "--output=json", "--all", "--output-fields=MESSAGE")
#: Seconds, and bytes: 500 lines have less than 1 MB.
_JOURNAL_SECONDS, _MOST_JOURNAL = 10, 16 << 20


class _Named(ssl.SSLContext):
    """Expects the certificate name that clients use, at any address."""

    server_name = ""

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Verify that name instead of the host."""
        return super().wrap_socket(
            sock, *arguments, **{**options, "server_hostname": self.server_name or options.get("server_hostname")}
        )


def api_key(path: str, unit: str = UNIT) -> Secret:
    """Return the API key in a file, which only a unit's processes receive."""
    return Secret(path, (unit,))


@dataclass(frozen=True)
class Server:
    """A vLLM on this host: address without path and, for https, the CA and the name of its certificate."""

    url: str
    ca_file: str = ""
    server_name: str = ""

    def open(
        self,
        path: str,
        timeout: float,
        data: bytes | None = None,
        secret: Secret | None = None,
        units: Collection[str] = (),
    ) -> Any:
        """Send a request, and return the response; ``timeout`` limits both with the whole body.

        ``units``: one of them must have the server's process, for an answer that decides something.
        Raises urllib's HTTPError for another status than success, io_local.StrangerError, OSError, HTTPException.
        """
        connection = self.connection(timeout)
        try:
            if units:
                connection.connect()
                io_local.verify(connection.sock, units)
            headers = {"Content-Type": "application/json", "Connection": "close"}
            place = urllib.parse.urlsplit(self.url).path + path
            connection.request("GET" if data is None else "POST", place, data, headers, secret=secret)
            answer = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        if answer.status >= _REDIRECTS:
            raise urllib.error.HTTPError(f"{self.url}{path}", answer.status, answer.reason, answer.headers, answer)
        return answer

    def reveal(self, secret: Secret, timeout: float) -> str:
        """Return a secret for another client of this server, "" without one. Raises as io_local.reveal() does."""
        if not secret.path:
            return ""
        with contextlib.closing(self.connection(timeout)) as connection:
            connection.connect()
            return io_local.reveal(secret, connection.sock)

    def expires(self, timeout: float) -> float | None:
        """Return when the served certificate expires, in seconds since 1970, None for an http address.

        Raises OSError, also for an untrusted certificate.
        """
        place = urllib.parse.urlsplit(self.url)
        if place.scheme != "https":
            return None
        with (
            socket.create_connection((place.hostname or "", place.port or 443), timeout) as plain,
            self._context().wrap_socket(plain, server_hostname=place.hostname) as secured,
        ):
            return float(ssl.cert_time_to_seconds(str((secured.getpeercert() or {})["notAfter"])))

    def connection(self, timeout: float) -> io_local.Connection:
        """Return a connection for several requests, which connects at the first one."""
        place = urllib.parse.urlsplit(self.url)
        secured = place.scheme == "https"
        port = place.port or (443 if secured else 80)
        return io_local.Connection(place.hostname or "", port, timeout, self._context() if secured else None)

    def _context(self) -> _Named:
        context = _Named(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.ca_file)
        # The API's own certificate may be the only trust anchor.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.server_name = self.server_name
        return context


def body_of(answer: Any) -> str:
    """Return the body. Raises OSError if it is incomplete or longer than MOST."""
    try:
        content: bytes = answer.read(MOST + 1)
    except http.client.IncompleteRead as error:
        raise ConnectionError(str(error)) from error
    if len(content) > MOST:
        raise ConnectionError(f"the answer is longer than {MOST} bytes")
    # A partial read of an incomplete body raises no error.
    if missing := getattr(answer, "length", None):
        raise ConnectionError(f"the answer is incomplete: {len(content)} bytes received, {missing} more expected")
    return content.decode("utf-8", "replace")


def _ask(
    server: Server, path: str, timeout: float, body: dict[str, Any] | None = None, secret: Secret | None = None
) -> tuple[int, str]:
    """Return (HTTP status, body). Without an answer: (_SILENT or _UNTRUSTED, reason)."""
    try:
        try:
            answer = server.open(path, timeout, None if body is None else json.dumps(body).encode(), secret)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, body_of(answer)
    except (OSError, http.client.HTTPException) as error:
        return _UNTRUSTED if isinstance(error, ssl.SSLError) else _SILENT, str(error) or type(error).__name__


def health(server: Server) -> tuple[bool, str]:
    """Return whether /health returns 200, and the server's TLS error or "".

    /health returns 200 for minutes after the loss of a rank, so it does not show that the model answers.
    """
    status, reported = _ask(server, "/health", _HEALTH_SECONDS)
    return status == 200, reported if status == _UNTRUSTED else ""


def answers(server: Server, model: str, timeout: float, secret: Secret | None = None) -> tuple[bool, str]:
    """Request one token, vector or score, with the API key if its file exists. Returns (True, "") or (False, reason).

    A busy engine with progress in other requests counts as answering. Raises OSError, and ValueError for an invalid key
    file.
    """
    before = tokens(server)
    try:
        _kind, status, reason = first_answer(server, model, timeout, secret)
    except io_local.StrangerError as error:
        return False, str(error)
    if status == _SILENT and (after := tokens(server)) is not None and before is not None and after > before:
        return True, ""
    if status > 0:
        return not reason, reason
    return False, f"no answer within {timeout:g} s and no progress in other requests: {reason}"


def first_answer(server: Server, model: str, timeout: float, secret: Secret | None) -> tuple[str, int, str]:
    """Request one token, vector or score. Returns the kind of the model, the HTTP status, and the reason or "".

    They are those of the first request whose route the server has, else of the first request. Without an answer, the
    status is below 1. Raises SecretError.
    """
    replies = []
    for kind, (path, body) in probe.requests(model).items():
        status, text = _ask(server, path, timeout, body, secret)
        shown = probe.reason(f"HTTP {status}: {text[:500]}") if status > 0 else text
        replies.append((kind, status, "" if status == 200 else shown))
        if status not in probe.ABSENT:
            return replies[-1]
    return replies[0]


def tokens(server: Server) -> float | None:
    """Return the number of tokens that the engine has read and generated so far, None without readable metrics."""
    status, text = _ask(server, "/metrics", _HEALTH_SECONDS)
    found = metrics.read(text) if status == 200 else {}
    counts = [found[name] for name in ("generated", "read") if name in found]
    return sum(counts) if counts else None


def journal(run: Run, matches: Sequence[str], lines: int) -> list[tuple[float, str]]:
    """Return the last `lines` matching messages as (seconds since boot, text), of at most _MOST_JOURNAL bytes as JSON.

    Raises ValueError if journalctl fails.

    `matches` are journalctl matches, from of_start() or of_unit().
    """
    argv = [*_JOURNAL, f"--lines={lines}", *matches]
    _status, stdout, stderr = run(io_command.within(argv, "tail", _MOST_JOURNAL, _JOURNAL_SECONDS))
    if stderr.strip() and not stdout:
        raise ValueError(f"journalctl {' '.join(matches)} failed: {stderr.strip()}")
    # A line that is cut at its begin is not an object.
    return _entries([line for line in stdout.splitlines() if line.startswith("{")])


def journal_begin(run: Run, matches: Sequence[str], most: int) -> tuple[list[tuple[float, str]], bool]:
    """Return the first matching messages as journal() does, and whether these are all.

    They have at most ``most`` bytes as JSON, and are read within _JOURNAL_SECONDS. Raises ValueError if journalctl
    fails.
    """
    status, stdout, stderr = run(io_command.within([*_JOURNAL, *matches], "head", most, _JOURNAL_SECONDS))
    if stderr.strip() and not stdout:
        raise ValueError(f"journalctl {' '.join(matches)} failed: {stderr.strip()}")
    complete, _newline, _rest = stdout.rpartition("\n")
    return _entries(complete.splitlines()), status == 0 and len(stdout.encode()) < most


def _entries(lines: Sequence[str]) -> list[tuple[float, str]]:
    entries = map(json.loads, lines)
    return [(int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6, _message(entry.get("MESSAGE"))) for entry in entries]


def of_start(invocation: str) -> list[str]:
    """Match the output of one start of a unit, and systemd's messages about it. Any user can write INVOCATION_ID."""
    return [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}", "_PID=1"]


def of_unit(unit: str) -> list[str]:
    """Match a unit's output since boot, over all its starts, and systemd's messages about it."""
    return ["--boot", f"--unit={unit}"]


def _message(value: str | list[Any] | None) -> str:
    # journald returns a message with control characters, such as colors, as a list of bytes, and several messages of
    # one entry as a list of both.
    if isinstance(value, list) and value and not isinstance(value[0], int):
        value = value[0]
    return bytes(value).decode("utf-8", "replace") if isinstance(value, list) else value or ""


def ready_after(entries: list[tuple[float, str]], started: float) -> float | None:
    """Return the seconds from the start of the process to the server's ready message, None without that message."""
    times = [when for when, message in entries if READY in message]
    return round(times[0] - started, 1) if times else None
