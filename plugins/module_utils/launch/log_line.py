# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A line of vLLM's log without its prefixes and colors, and the process that wrote it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

#: The prefix of a message from vLLM or Ray: process name and pid, level, time and place.
_PREFIX = re.compile(
    r"^(?P<processes>(?:\((?:raylet|[^()]*pid=)[^()]*\)\s*)*)(?:(?P<level>ERROR|CRITICAL|INFO|WARNING|DEBUG)\s+(?P<time>[\d-]+\s+[\d:,.]+)\s+\[[^\]]*\]\s?)?"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
#: The address in the prefix of a line that Ray forwards from another node.
ADDRESS = re.compile(r"\bip=([\d.]{1,15})")
_PROCESS = re.compile(r"\((\w{1,60}) pid=(\d{1,10})\b[^()]*\)\s*$")
#: NCCL writes past vLLM's prefix, with its own: host, pid and thread.
_NCCL = re.compile(r"[\w.-]{1,64}:(\d{1,10}):\d{1,10} \[\d{1,3}\] (?:[\w./]{1,60}:\d{1,6} )?NCCL ")
#: Maximum characters read of a line, because the log is untrusted and some patterns take quadratic time.
_MOST = 4000


class Sender(NamedTuple):
    """The process of a line: its pid and name, "" if unknown, and the address of its node, "" for this one."""

    pid: str
    name: str
    address: str


def parts(line: str) -> tuple[str, str, str]:
    """Return a log line's level or "", the address of its node ("" for this one), and its message."""
    prefix, plain = _split(line)
    address = ADDRESS.search(prefix["processes"])
    return prefix["level"] or "", address[1] if address else "", plain[prefix.end() :].rstrip()


def clock(line: str) -> float | None:
    """Return the time that vLLM wrote into a line, in whole seconds of its year, None without one."""
    try:
        # A leap year, because the text has none.
        found = datetime.strptime(f"2000 {_split(line)[0]['time']}", "%Y %m-%d %H:%M:%S")
    except ValueError:
        return None
    return found.replace(tzinfo=UTC).timestamp()


def sender(line: str) -> Sender:
    """Return the process that wrote a line. Ray's prefix is outside of vLLM's."""
    prefix, plain = _split(line)
    process, address = _PROCESS.search(prefix["processes"]), ADDRESS.search(prefix["processes"])
    nccl = _NCCL.match(plain, prefix.end())
    pid = process[2] if process else nccl[1] if nccl else ""
    return Sender(pid, process[1] if process else "", address[1] if address else "")


def _split(line: str) -> tuple[re.Match[str], str]:
    # A progress bar that redraws itself reaches the journal as one message.
    plain = _ANSI.sub("", line.rstrip("\r").rpartition("\r")[2][:_MOST])
    prefix = _PREFIX.match(plain)
    if prefix is None:
        raise AssertionError("the pattern matches the empty string, too")
    return prefix, plain
