# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asking a vLLM server and its journal."""

from __future__ import annotations

import http.client
import json
import re
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
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node

_HEALTH_SECONDS = 5
#: Bytes of an answer that are read. The metrics of a busy server are some 100 KB.
MOST = 8 * 1024**2
#: The unit whose processes get the API's key.
UNIT = "gb10-vllm.service"
#: In place of an HTTP status: nobody answered, and somebody did whose TLS is not what was expected.
_SILENT, _UNTRUSTED = 0, -1
_READY = "Application startup complete"
_TOKENS = re.compile(r"^vllm:(?:generation|prompt)_tokens_total\{[^}]*\}\s+([\d.e+]+)$", re.MULTILINE)


class StrangerError(ValueError):
    """The API's port is not held by the unit that serves it."""


class _Named(ssl.SSLContext):
    """Expects a certificate of the name that clients use, whatever the address that is asked."""

    server_name = ""

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Take the name in place of the host."""
        return super().wrap_socket(sock, *arguments, **{**options, "server_hostname": self.server_name or options.get("server_hostname")})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key that is meant for this server goes nowhere else."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Leave the answer as it is: an error, for those who ask."""


@dataclass(frozen=True)
class Server:
    """A vLLM on this host: its address without path and, for https, the CA of its certificate and the name in that."""

    url: str
    ca_file: str = ""
    server_name: str = ""

    def open(self, path: str, timeout: float, given: Mapping[str, str], data: bytes | None = None) -> Any:
        """Send a request and return the response. Raises OSError, which urllib's errors are, and HTTPException.

        The server is on this host: a proxy of the environment would be asked for another one.
        """
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if self.url.startswith("https:"):
            context = _Named(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(self.ca_file)
            # The API's own certificate may be all that is trusted.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.server_name = self.server_name
            handlers.append(urllib.request.HTTPSHandler(context=context))
        request = urllib.request.Request(f"{self.url}{path}", data=data, headers=dict(given))
        return urllib.request.build_opener(*handlers).open(request, timeout=timeout)


def bearer(server: Server, key_file: str, unit: str = UNIT) -> str:
    """Return the API's key for a server, "" if there is none. Raises ValueError without the key, StrangerError if others than the unit
    hold the port, and OSError.
    """
    found = key(key_file)
    if not found:
        return ""
    place = urllib.parse.urlsplit(server.url)
    port = place.port or (443 if place.scheme == "https" else 80)
    addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(place.hostname, port, type=socket.SOCK_STREAM)} | {"0.0.0.0", "::"}
    holders = [entry for entry in io_node.listeners() if entry["port"] == port and entry["address"].removeprefix("::ffff:") in addresses]
    others = [f"{entry['process'] or 'an unknown process'} ({entry['unit'] or 'no unit'})" for entry in holders if entry["unit"] != unit]
    if others or not holders:
        raise StrangerError(f"port {port} is held by {', '.join(others) or 'nobody'} instead of {unit}, so the API's key was not sent")
    return found


def key(path: str) -> str:
    """Return the API's key from its file, "" if there is none. Raises ValueError without the content if that is no key, or OSError."""
    text = (io_file.read_file(path)[0] or "").strip() if path else ""
    if not text.isascii() or len(text.split()) > 1:
        raise ValueError(f"{path} does not hold a key, which is one line of ASCII without blanks")
    return text


def headers(given: str) -> dict[str, str]:
    """Return the headers of a request, with the API's key if there is one."""
    return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {given}"} if given else {})


def body_of(answer: Any) -> str:
    """Return what came. Raises OSError for an answer that breaks off or is longer than MOST."""
    try:
        content: bytes = answer.read(MOST)
    except http.client.IncompleteRead as error:
        raise ConnectionError(str(error)) from error
    # Read in part, an answer that breaks off raises nothing.
    if missing := getattr(answer, "length", None):
        raise ConnectionError(f"the answer breaks off or is too long: {len(content)} bytes came, {missing} more were announced")
    return content.decode("utf-8", "replace")


def _ask(server: Server, path: str, timeout: float, body: dict[str, Any] | None = None, given: str = "") -> tuple[int, str]:
    """Return (HTTP status, body); _SILENT or _UNTRUSTED and the reason if there is no answer."""
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
    """Return whether /health says 200, and what is wrong with the server's TLS, "" if nothing is.

    It says so for minutes after a rank is lost, so it is not proof of an answer.
    """
    status, said = _ask(server, "/health", _HEALTH_SECONDS)
    return status == 200, said if status == _UNTRUSTED else ""


def answers(server: Server, model: str, timeout: float, key_file: str = "", unit: str = UNIT) -> tuple[bool, str]:
    """Ask for one token, with the API's key if there is a file of it. Returns (True, "") if it came, else (False, reason).

    An engine that is only busy makes tokens for others meanwhile; that counts as answering. Raises ValueError for a file that holds no key, OSError.
    """
    try:
        given = bearer(server, key_file, unit)
    except StrangerError as error:
        return False, str(error)
    before = tokens(server)
    status, said = _ask(server, "/v1/completions", timeout, {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}, given)
    if status == 200:
        return True, ""
    if status == _SILENT and (after := tokens(server)) is not None and before is not None and after > before:
        return True, ""
    return False, f"HTTP {status}: {said[:500]}" if status > 0 else f"no token within {timeout:g} s and none for others: {said}"


def tokens(server: Server) -> float | None:
    """Return how many tokens the engine has read and written so far, None if its metrics cannot be read."""
    status, text = _ask(server, "/metrics", _HEALTH_SECONDS)
    found = _TOKENS.findall(text) if status == 200 else []
    return sum(map(float, found)) if found else None


def journal(run: Run, matches: Sequence[str], lines: int) -> list[tuple[float, str]]:
    """Return the last `lines` messages that match as (seconds since boot, text). Raises ValueError if journalctl fails.

    `matches` are journalctl's own: of_start() or of_unit().
    """
    # Without --all, journalctl leaves out every message over 4096 bytes.
    status, stdout, stderr = run(["journalctl", "--no-pager", "--output=json", "--all", "--output-fields=MESSAGE", f"--lines={lines}", *matches])
    if status != 0:
        raise ValueError(f"journalctl {' '.join(matches)} failed: {stderr.strip()}")
    entries = [json.loads(line) for line in stdout.splitlines()]
    return [(int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6, _message(entry.get("MESSAGE"))) for entry in entries]


def of_start(invocation: str) -> list[str]:
    """Match what one start of a unit said, and what systemd said of it."""
    return [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]


def of_unit(unit: str) -> list[str]:
    """Match what a unit said since boot, over all its starts, and what systemd said of it."""
    return ["--boot", f"--unit={unit}"]


def _message(value: str | list[int] | None) -> str:
    # journald gives a message with control characters, such as colours, as a list of bytes.
    return bytes(value).decode("utf-8", "replace") if isinstance(value, list) else value or ""


def ready_after(entries: list[tuple[float, str]], started: float) -> float | None:
    """Return after how many seconds of its process the server reported to be up, None if the entries do not tell."""
    times = [when for when, message in entries if _READY in message]
    return round(times[0] - started, 1) if times else None
