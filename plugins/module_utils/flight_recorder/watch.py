# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A recorder's data about the node that sends to it: its last ten minutes, and whether it fell silent."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import messages
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.messages import Message

#: Seconds without a message after which a node is silent: five samples.
SILENT = 10.0
#: Seconds that are kept; entries and characters of messages, and of netconsole, whose lines any user of the node can
#: send.
_SECONDS, _MESSAGES, _NETCONSOLE = 600.0, (4000, 1 << 20), (500, 1 << 17)
#: Sessions of the sender that are known. Each start of its recorder has one.
_MOST_SESSIONS = 100


@dataclass(frozen=True)
class Entry:
    """A sample (as JSON), a line of the kernel, or one of netconsole, which nothing authenticates.

    ``time``: when it arrived, in seconds since 1970, by the clock of the recorder.
    """

    time: float
    kind: str
    text: str


class Memory:
    """The last entries, bounded in time, number and size."""

    def __init__(self, entries: int, size: int) -> None:
        self._entries: deque[Entry] = deque()
        self._most, self._most_size, self._size = entries, size, 0

    def add(self, entry: Entry) -> None:
        """Add an entry, and drop old ones."""
        self._entries.append(entry)
        self._size += len(entry.text)
        while (
            len(self._entries) > self._most
            or self._size > self._most_size
            or entry.time - self._entries[0].time > _SECONDS
        ):
            self._size -= len(self._entries.popleft().text)

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries, oldest first."""
        return tuple(self._entries)


@dataclass
class Sender:
    """The node that sends to this one.

    ``heard``: the monotonic time of its last message, None before the first one and after a goodbye. ``memory`` has its
    messages, ``netconsole`` what nothing authenticates, so that neither one pushes out the other.
    """

    name: str
    nonce: str
    heard: float | None = None
    silent: bool = False
    addresses: tuple[str, ...] = ()
    numbers: dict[str, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=lambda: Memory(*_MESSAGES))
    netconsole: Memory = field(default_factory=lambda: Memory(*_NETCONSOLE))

    def accept(self, message: Message, now: float) -> bool:
        """Return whether a message is new, and note its arrival.

        A repeated one has a used number, or the nonce of an earlier recorder.
        """
        if (message.sender, message.nonce) != (self.name, self.nonce):
            return False
        if message.number <= self.numbers.get(message.session, 0):
            return False
        if message.session not in self.numbers and len(self.numbers) >= _MOST_SESSIONS:
            # With another nonce, no message of the forgotten sessions can be repeated.
            self.numbers, self.nonce = {}, hashlib.sha256(self.nonce.encode()).hexdigest()[:16]
            return False
        self.numbers[message.session] = message.number
        self.heard = None if message.kind == messages.GOODBYE else now
        self.addresses = message.addresses or self.addresses
        return True

    def entries(self) -> list[Entry]:
        """Return all entries about it, oldest first."""
        return sorted((*self.memory.entries(), *self.netconsole.entries()), key=lambda each: each.time)

    def fell_silent(self, now: float) -> bool:
        """Return once that the node is silent."""
        if self.heard is None or self.silent or now - self.heard < SILENT:
            return False
        self.silent = True
        return True

    def returned(self) -> bool:
        """Return once that a silent node is back. Call it after a message was accepted."""
        found, self.silent = self.silent, False
        return found

    def paused(self, now: float) -> None:
        """Begin to wait again: this recorder itself did not run, so it received no messages."""
        if self.heard is not None:
            self.heard = now


def outside(addresses: Iterable[str], own: Sequence[IPv4Interface]) -> tuple[str, ...]:
    """Return the addresses of another node that are in a network of this one (``own``), so that a probe stays there.

    Each host with Docker has the same bridge, so one that this node has too is none.
    """
    found = set(map(IPv4Address, addresses)) - {each.ip for each in own}
    return tuple(sorted(str(ip) for ip in found if any(ip in each.network for each in own) and not ip.is_link_local))
