# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a node that fell silent: a file with one JSON object in a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, foreign
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import messages, schema
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Sample
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.watch import Entry

#: Kinds of lines besides those of messages. Nothing authenticates a line of netconsole.
HEADER, NETCONSOLE, RETURNED = "record", "netconsole", "returned"
#: The results of a connection to sshd of a silent node: its banner; a connection without one; a refused one; nothing;
#: no way there.
ANSWERS, ACCEPTS, REFUSES, NOTHING, UNREACHABLE = "answers", "accepts", "refuses", "nothing", "unreachable"
#: Why a node is silent.
OFF, FROZEN, CABLE, RECORDER, UNCLEAR, POWER = "off", "frozen", "cable", "recorder", "unclear", "power"
VERDICTS: Mapping[str, str] = {
    OFF: "it is off, or frozen with its network",
    FROZEN: "it is frozen: its kernel answers, and sshd does not",
    CABLE: "it runs, but its fabric cable or port does not",
    RECORDER: "it runs, only its recorder is silent",
    UNCLEAR: "it is off, or its fabric is: no other address of it is known",
    POWER: "it did not stop before it started again",
}
#: Bytes of a record, and the records of a node that are kept.
MOST, KEPT = 1 << 22, 5
#: Maximum lines of netconsole that are appended to a record.
MOST_APPENDED = 500
#: The year 2100.
_MOST_TIME = 4102444800
_NAME = re.compile(r"[\w.-]{1,64}-\d{8}T\d{6}Z\.jsonl", re.ASCII)


@dataclass(frozen=True)
class Record:
    """A parsed record. Times in seconds since 1970, by the clock of ``recorder``, which wrote it.

    ``silent``: when the last message came. ``samples``: when each arrived. ``kernel``, ``netconsole``: lines.
    ``returned``: when the node was heard again, None if it was not.
    """

    node: str
    recorder: str
    silent: float
    verdict: str
    samples: tuple[tuple[float, Sample], ...] = ()
    kernel: tuple[str, ...] = ()
    netconsole: tuple[str, ...] = ()
    returned: float | None = None


def verdict(fabric: str, outside: Sequence[str]) -> str:
    """Return why a node is silent, from what sshd does on the fabric and on its other addresses."""
    if fabric == ANSWERS:
        return RECORDER
    if ANSWERS in outside:
        return CABLE
    if {ACCEPTS, REFUSES} & {fabric, *outside}:
        return FROZEN
    return OFF if NOTHING in outside else UNCLEAR


def name(node: str, when: float) -> str:
    """Return the name of a record. ``node``: from the plan."""
    return f"{_stem(node)}-{datetime.fromtimestamp(when, UTC):%Y%m%dT%H%M%SZ}.jsonl"


def _stem(node: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", node)[:64]


def is_name(text: str) -> bool:
    """Return whether a file is a record by its name."""
    return _NAME.fullmatch(text) is not None


def surplus(names: Iterable[str], node: str) -> list[str]:
    """Return the records of a node that make place for a new one, oldest first."""
    own = sorted(each for each in names if is_name(each) and each.rpartition("-")[0] == _stem(node))
    return own[: max(0, len(own) - KEPT + 1)]


def text(node: str, recorder: str, silent: float, found: str, entries: Iterable[Entry]) -> str:
    """Return the content of a record."""
    head = {"kind": HEADER, "node": node, "recorder": recorder, "silent": silent, "verdict": found}
    return "".join(map(line, [head, *map(asdict, entries)]))


def line(value: Mapping[str, Any]) -> str:
    """Return a line: the header, or an entry as plain data."""
    return json.dumps(value, separators=(",", ":")) + "\n"


def parse(content: str) -> Record:
    """Return an untrusted record. A line that is cut or damaged is left out. Raises ValueError without a header."""
    first, _newline, rest = content.partition("\n")
    head = bounded_json.load(first, schema.MOST)
    silent = head.get("silent") if isinstance(head, dict) and head.get("kind") == HEADER else None
    if not isinstance(silent, int | float) or not 0 <= silent < _MOST_TIME:
        raise ValueError("it does not begin with the header of a record")
    lines: dict[str, list[str]] = {messages.KERNEL: [], NETCONSOLE: []}
    samples, returned = [], None
    for each in rest.splitlines():
        try:
            entry = bounded_json.load(each, 4 * schema.MOST)
            kind, when, said = str(entry["kind"]), float(entry["time"]), str(entry["text"])
            if not 0 <= when < _MOST_TIME:
                continue
            if kind == messages.SAMPLE:
                samples.append((when, schema.parse(said.encode())))
        except (ValueError, TypeError, LookupError, OverflowError):
            continue
        if kind in lines:
            lines[kind].append(foreign.line(said))
        if kind == RETURNED:
            returned = when
    names = [foreign.line(str(head.get(each, ""))) for each in ("node", "recorder", "verdict")]
    return Record(
        names[0],
        names[1],
        float(silent),
        names[2],
        tuple(samples),
        tuple(lines[messages.KERNEL]),
        tuple(lines[NETCONSOLE]),
        returned,
    )
