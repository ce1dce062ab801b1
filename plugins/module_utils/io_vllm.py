# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asking a vLLM server and its journal."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.io_node import Run

_HEALTH_SECONDS = 5
#: The server is on this host: a proxy of the environment would be asked for another one.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_READY = "Application startup complete"
_TOKENS = re.compile(r"^vllm:(?:generation|prompt)_tokens_total\{[^}]*\}\s+([\d.e+]+)$", re.MULTILINE)


def key(path: str) -> str:
    """Return the API's key from its file, "" if there is none. Raises ValueError without the content if that is no key, or OSError."""
    text = (io_file.read_file(path)[0] or "").strip() if path else ""
    if not text.isascii() or len(text.split()) > 1:
        raise ValueError(f"{path} does not hold a key, which is one line of ASCII without blanks")
    return text


def headers(bearer: str) -> dict[str, str]:
    """Return the headers of a request, with the API's key if there is one."""
    return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})


def _get(url: str, timeout: float, body: dict[str, Any] | None = None, bearer: str = "") -> tuple[int, str]:
    """Return (HTTP status, body); status 0 and the reason if there is no answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers(bearer))
    try:
        try:
            answer = DIRECT.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error) or type(error).__name__


def healthy(url: str) -> bool:
    """Return whether /health says 200. It says so for minutes after a rank is lost, so it is not proof of an answer."""
    return _get(f"{url}/health", _HEALTH_SECONDS)[0] == 200


def answers(url: str, model: str, timeout: float, bearer: str = "") -> tuple[bool, str]:
    """Ask for one token. Returns (True, "") if it came, else (False, reason).

    An engine that is only busy makes tokens for others meanwhile; that counts as answering.
    """
    before = tokens(url)
    status, said = _get(f"{url}/v1/completions", timeout, {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}, bearer)
    if status == 200:
        return True, ""
    if status == 0 and (after := tokens(url)) is not None and before is not None and after > before:
        return True, ""
    return False, f"HTTP {status}: {said[:500]}" if status else f"no token within {timeout:g} s and none for others: {said}"


def tokens(url: str) -> float | None:
    """Return how many tokens the engine has read and written so far, None if its metrics cannot be read."""
    status, text = _get(f"{url}/metrics", _HEALTH_SECONDS)
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
