# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert vLLM's metrics, /proc, NCCL RAS output and messages between nodes to data."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.health import metrics
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import Engine, Process

#: Changed by the engine's steps. The first three change only with output. A step of a chunked prefill has none: it
#: changes the use of the KV cache. Source: vLLM 0.13 to 0.33, v1/engine/async_llm.py (iteration_stats is None without
#: outputs), v1/core/sched/scheduler.py (make_stats in each step).
_MARKS = ("steps", "generated", "read", "kv_cache", "running", "waiting")
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_STAT = re.compile(r"(\d+) \((.*)\) (\S)", re.DOTALL)
#: A process chooses its name: the characters of a name, and its maximum length. Source: the kernel's TASK_COMM_LEN.
_NAME, _MOST_NAME = r"[\w:.+-]", 15
#: The witnesses of decide.local().
_WITNESS = re.compile(
    rf"(?:rank )?process \d{{1,10}} \({_NAME}{{0,{_MOST_NAME}}}\) is (?:stopped|dead)|rank process \d{{1,10}} ended",
    re.ASCII,
)
#: Source: NCCL 2.29.7, src/ras/client_support.cc. DEAD stays after a rank continues, MISMATCH appears in healthy loops.
_RAS = re.compile(r"\b(?:INCOMPLETE|ERROR)\b")
#: Maximum bytes of a message, which is one datagram below the fabric's MTU of 1500.
MOST_MESSAGE = 1400
_MOST_WITNESSES = 6
#: A logged request may contain its prompt.
_REQUEST = re.compile(r"prompt|messages|Received request|input_ids|token_ids", re.IGNORECASE)
LEFT_OUT, REDACTED = "[line of a request, left out]", "[redacted]"
_SHORTEST_SECRET = 4


def engine(text: str, requests: str = "") -> Engine | None:
    """Return the engine's values on a /metrics page, None if the page has no counter of generated tokens.

    ``requests`` is the number of open requests, "" if unknown.
    """
    found = metrics.read(text)
    if "generated" not in found:
        return None
    values = {name: found.get(name, 0.0) for name in _MARKS}
    # A pooling model generates no tokens. The read ones are counted with the first output of a request.
    return Engine(
        tuple(values.values()),
        values["generated"] + values["read"],
        values["running"],
        int(requests) if _COUNT.fullmatch(requests) else 0,
    )


def process(stat: str) -> Process | None:
    """Return the process of /proc/PID/stat, None for other text. A name may contain parentheses.

    Other characters than those of a plain name become "?". Source: proc_pid_stat(5).
    """
    match = _STAT.match(stat)
    name = re.sub(rf"(?!{_NAME}).", "?", match[2][:_MOST_NAME], flags=re.ASCII | re.DOTALL) if match else ""
    return Process(int(match[1]), name, match[3]) if match else None


def ras(text: str) -> str:
    """Return the sentence of a witness in the status of NCCL RAS, "" for none."""
    found = sorted(set(_RAS.findall(text)))
    return f"NCCL RAS reports {' and '.join(found)}" if found else ""


def message(content: Mapping[str, Any], key: str) -> bytes:
    """Return a message with its HMAC-SHA256."""
    body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return _code(body, key) + body


def content(data: bytes, key: str, most: int = MOST_MESSAGE) -> dict[str, Any] | None:
    """Return the content of a message of at most ``most`` bytes, None unless it was made with the key."""
    code, body = data[:64], data[64:]
    if len(data) > most or not hmac.compare_digest(code, _code(body, key)):
        return None
    try:
        found = bounded_json.load(body.decode(), most)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _code(body: bytes, key: str) -> bytes:
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest().encode()


def witnesses(values: Any) -> tuple[str, ...]:
    """Return the witnesses of a report, in the number that a message holds. Another text than theirs is none."""
    found = values[:_MOST_WITNESSES] if isinstance(values, list | tuple) else ()
    return tuple(value for value in found if isinstance(value, str) and _WITNESS.fullmatch(value))


def units(values: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Return those of the ``known`` units that a report names."""
    return tuple(unit for unit in known if isinstance(values, list) and unit in values)


def failed(shown: str) -> tuple[str, ...]:
    """Return the units that systemd starts no more, from `systemctl show --property=Id,ActiveState`.

    A unit between two starts is activating.
    """
    units = [dict(line.partition("=")[::2] for line in unit.splitlines()) for unit in shown.split("\n\n")]
    return tuple(unit.get("Id", "") for unit in units if unit.get("ActiveState") == "failed")


def without_requests(text: str) -> str:
    """Return a log without the lines that may contain a prompt."""
    return "\n".join(LEFT_OUT if _REQUEST.search(line) else line for line in text.splitlines())


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return the text without secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    return text
