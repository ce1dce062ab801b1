# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a recorder knows about the node that sends to it: its last ten minutes, and whether it fell silent."""

from __future__ import annotations

import hashlib
import ipaddress
from collections import deque
from dataclasses import dataclass, field

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import messages
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.messages import Message

#: Seconds without a message after which a node is silent: five samples.
SILENT = 10.0
#: Seconds, entries and characters that are kept.
_SECONDS, _MOST_ENTRIES, _MOST_SIZE = 600.0, 4000, 1 << 20
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

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=_MOST_ENTRIES)
        self._size = 0

    def add(self, entry: Entry) -> None:
        """Add an entry, and drop old ones."""
        if len(self._entries) == _MOST_ENTRIES:
            self._drop()
        self._entries.append(entry)
        self._size += len(entry.text)
        while self._size > _MOST_SIZE or entry.time - self._entries[0].time > _SECONDS:
            self._drop()

    def _drop(self) -> None:
        self._size -= len(self._entries.popleft().text)

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries, oldest first."""
        return tuple(self._entries)


@dataclass
class Sender:
    """The node that sends to this one. ``heard``: the monotonic time of its last message, None before the first one and
    after a goodbye."""

    name: str
    nonce: str
    heard: float | None = None
    silent: bool = False
    addresses: tuple[str, ...] = ()
    numbers: dict[str, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

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
        """Begin to wait again: this recorder itself did not run, so it heard nobody."""
        if self.heard is not None:
            self.heard = now


def foreign(addresses: tuple[str, ...], own: frozenset[str]) -> tuple[str, ...]:
    """Return the addresses that only the other node can have: each host with Docker has the same bridge."""
    return tuple(each for each in addresses if each not in own and not ipaddress.IPv4Address(each).is_loopback)
