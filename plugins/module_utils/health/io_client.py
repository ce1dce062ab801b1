# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Query a vLLM server and its journal."""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.health import probe
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts

_HEALTH_SECONDS = 5
#: Maximum bytes read of an answer. The metrics of a busy server are about 100 KB.
MOST = 8 * 1024**2
#: The unit whose processes receive the API key.
UNIT = "gb10-vllm.service"
#: Used instead of an HTTP status: no server answered; or one answered whose TLS failed verification.
_SILENT, _UNTRUSTED = 0, -1
#: The server's message at the end of its start.
READY = "Application startup complete"
#: Without --all, journalctl omits every message over 4096 bytes.
_JOURNAL = ("journalctl", "--no-pager", "--output=json", "--all", "--output-fields=MESSAGE")
_JOURNAL_SECONDS = 10
_TOKENS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")


class StrangerError(ValueError):
    """A process outside the serving unit listens on the API's port."""


class _Named(ssl.SSLContext):
    """Expects the certificate name that clients use, at any address."""

    server_name = ""

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Verify that name instead of the host."""
        return super().wrap_socket(
            sock, *arguments, **{**options, "server_hostname": self.server_name or options.get("server_hostname")}
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that the API key reaches only this server."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Return the redirect as it is; callers see an HTTP error."""


@dataclass(frozen=True)
class Server:
    """A vLLM on this host: address without path and, for https, the CA and the name of its certificate."""

    url: str
    ca_file: str = ""
    server_name: str = ""

    def open(self, path: str, timeout: float, given: Mapping[str, str], data: bytes | None = None) -> Any:
        """Send a request and return the response. Raises OSError (urllib's errors included) and HTTPException.

        Ignores proxies from the environment, because the server is on this host.
        """
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if self.url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=self._context()))
        request = urllib.request.Request(f"{self.url}{path}", data=data, headers=dict(given))
        return urllib.request.build_opener(*handlers).open(request, timeout=timeout)

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

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection for several requests, which connects at the first one. Raises OSError."""
        place = urllib.parse.urlsplit(self.url)
        if place.scheme == "https":
            return http.client.HTTPSConnection(place.netloc, timeout=timeout, context=self._context())
        return http.client.HTTPConnection(place.netloc, timeout=timeout)

    def _context(self) -> _Named:
        context = _Named(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.ca_file)
        # The API's own certificate may be the only trust anchor.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.server_name = self.server_name
        return context


def bearer(server: Server, key_file: str, unit: str = UNIT) -> str:
    """Return a server's API key, "" without one.

    Raises OSError, ValueError (without the key), and StrangerError if the address is not of this host, or if its port
    is used by other processes or by none.
    """
    found = key(key_file)
    if not found:
        return ""
    place = urllib.parse.urlsplit(server.url)
    port = place.port or (443 if place.scheme == "https" else 80)
    addresses = _own_addresses(place.hostname, port) | {"0.0.0.0", "::"}
    holders = [
        entry
        for entry in node_io_facts.listeners()
        if entry["port"] == port and entry["address"].removeprefix("::ffff:") in addresses
    ]
    others = [
        f"{entry['process'] or 'an unknown process'} ({entry['unit'] or 'no unit'})"
        for entry in holders
        if entry["unit"] != unit
    ]
    if others:
        raise StrangerError(
            f"port {port} is used by {', '.join(others)} instead of {unit}, so the API's key was not sent"
        )
    if not holders:
        # It has just ended.
        raise StrangerError(f"no process listens on port {port}, so the API's key was not sent")
    return found


def _own_addresses(host: str | None, port: int) -> set[str]:
    """Return the addresses of a URL's host. Raises OSError, and StrangerError for one of another host.

    A unit that listens on all addresses of this host does not listen on those of others.
    """
    addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    if foreign := sorted(address for address in addresses if not _here(address, port)):
        raise StrangerError(f"{', '.join(foreign)} is no address of this host, so the API's key was not sent")
    return addresses


def _here(address: str, port: int) -> bool:
    """Return whether an address is one of this host: the kernel then uses it as source too. Sends nothing."""
    if ipaddress.ip_address(address).is_loopback:
        return True
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))
            return str(probe.getsockname()[0]) == address
    except OSError:
        return False


def key(path: str) -> str:
    """Return the API key from its file, "" without one.

    Raises OSError, or ValueError (without the content) for an invalid key.
    """
    text = (io_file.read_file(path)[0] or "").strip() if path else ""
    if not text.isascii() or len(text.split()) > 1:
        raise ValueError(f"{path} does not contain a key (one line of ASCII without blanks)")
    return text


def headers(given: str) -> dict[str, str]:
    """Return the headers of a request, with the API key if not empty."""
    return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {given}"} if given else {})


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
    server: Server, path: str, timeout: float, body: dict[str, Any] | None = None, given: str = ""
) -> tuple[int, str]:
    """Return (HTTP status, body). Without an answer: (_SILENT or _UNTRUSTED, reason)."""
    try:
        try:
            answer = server.open(path, timeout, headers(given), None if body is None else json.dumps(body).encode())
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, body_of(answer)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return _UNTRUSTED if isinstance(reason, ssl.SSLError) else _SILENT, str(reason) or type(reason).__name__


def health(server: Server) -> tuple[bool, str]:
    """Return whether /health returns 200, and the server's TLS error or "".

    /health returns 200 for minutes after the loss of a rank, so it does not show that the model answers.
    """
    status, reported = _ask(server, "/health", _HEALTH_SECONDS)
    return status == 200, reported if status == _UNTRUSTED else ""


def answers(server: Server, model: str, timeout: float, key_file: str = "", unit: str = UNIT) -> tuple[bool, str]:
    """Request one token, vector or score, with the API key if its file exists. Returns (True, "") or (False, reason).

    A busy engine with progress in other requests counts as answering. Raises OSError, and ValueError for an invalid key
    file.
    """
    try:
        given = bearer(server, key_file, unit)
    except StrangerError as error:
        return False, str(error)
    before = tokens(server)
    status, reported = _probe(server, model, timeout, given)
    if status == 200:
        return True, ""
    if status == _SILENT and (after := tokens(server)) is not None and before is not None and after > before:
        return True, ""
    silent = f"no answer within {timeout:g} s and no progress in other requests: {reported}"
    return False, probe.reason(f"HTTP {status}: {reported[:500]}") if status > 0 else silent


def _probe(server: Server, model: str, timeout: float, given: str) -> tuple[int, str]:
    """Return status and body of the first request whose route the server has, else of the first request."""
    replies = []
    for path, body in probe.requests(model).values():
        replies.append(_ask(server, path, timeout, body, given))
        if replies[-1][0] not in probe.ABSENT:
            return replies[-1]
    return replies[0]


def tokens(server: Server) -> float | None:
    """Return the number of tokens that the engine has read and generated so far, None without readable metrics."""
    status, text = _ask(server, "/metrics", _HEALTH_SECONDS)
    found = probe.sums(text, _TOKENS) if status == 200 else {}
    return sum(found.values()) if found else None


def journal(run: Run, matches: Sequence[str], lines: int) -> list[tuple[float, str]]:
    """Return the last `lines` matching messages as (seconds since boot, text). Raises ValueError if journalctl fails.

    `matches` are journalctl matches, from of_start() or of_unit().
    """
    status, stdout, stderr = run([*_JOURNAL, f"--lines={lines}", *matches])
    if status != 0:
        raise ValueError(f"journalctl {' '.join(matches)} failed: {stderr.strip()}")
    return _entries(stdout.splitlines())


def journal_begin(run: Run, matches: Sequence[str], most: int) -> tuple[list[tuple[float, str]], bool]:
    """Return the first matching messages as journal() does, and whether these are all.

    They have at most ``most`` bytes as JSON, and are read within _JOURNAL_SECONDS. Raises ValueError if journalctl
    fails.
    """
    script = f'"$@" | head --bytes={most}'
    status, stdout, stderr = run(["timeout", str(_JOURNAL_SECONDS), "sh", "-c", script, "sh", *_JOURNAL, *matches])
    if stderr.strip() and not stdout:
        raise ValueError(f"journalctl {' '.join(matches)} failed: {stderr.strip()}")
    complete, _newline, _rest = stdout.rpartition("\n")
    return _entries(complete.splitlines()), status == 0 and len(stdout.encode()) < most


def _entries(lines: Sequence[str]) -> list[tuple[float, str]]:
    entries = map(json.loads, lines)
    return [(int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6, _message(entry.get("MESSAGE"))) for entry in entries]


def of_start(invocation: str) -> list[str]:
    """Match the output of one start of a unit, and systemd's messages about it."""
    return [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]


def of_unit(unit: str) -> list[str]:
    """Match a unit's output since boot, over all its starts, and systemd's messages about it."""
    return ["--boot", f"--unit={unit}"]


def _message(value: str | list[int] | None) -> str:
    # journald returns a message with control characters, such as colors, as a list of bytes.
    return bytes(value).decode("utf-8", "replace") if isinstance(value, list) else value or ""


def ready_after(entries: list[tuple[float, str]], started: float) -> float | None:
    """Return the seconds from the start of the process to the server's ready message, None without that message."""
    times = [when for when, message in entries if READY in message]
    return round(times[0] - started, 1) if times else None
