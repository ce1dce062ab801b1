# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one client, one source address and all of them together may use of the gateway."""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

#: Maximum bytes of a body. A request with images has some megabytes.
MOST_BODY = 64 << 20
#: Maximum bytes of bodies that are kept at the same time, for one client and for all. Smaller bodies are free.
MOST_OF_CLIENT, MOST_OF_ALL, FREE = 128 << 20, 256 << 20, 64 << 10
#: Maximum number of the characters , : [ { in a body. 20 MB of [], would need 1 GB as Python objects.
MOST_MARKS = 500_000
#: Seconds without a byte of a body, and for a whole body.
BODY_SILENCE, BODY_SECONDS = 20.0, 300.0
#: Bytes and headers of a request's head, and seconds for it. An idle connection ends after the same time.
MOST_HEAD, MOST_HEADERS, HEAD_SECONDS = 32 << 10, 64, 20.0
#: Open connections of one source address, and of all.
MOST_OF_SOURCE, MOST_CONNECTIONS = 512, 4096

_MARKS = (b",", b":", b"[", b"{")
Link = TypeVar("Link", bound=Hashable)


def marks(data: bytes) -> int:
    """Return how many characters of a part of a body can begin an element of JSON. Text in strings counts too."""
    return sum(map(data.count, _MARKS))


@dataclass
class Budget:
    """The bytes of bodies in memory, by client."""

    held: Counter[str] = field(default_factory=Counter)

    def take(self, client: str, size: int) -> bool:
        """Return whether there is room for more bytes of a client, and then hold them."""
        if self.held[client] + size > MOST_OF_CLIENT or self.held.total() + size > MOST_OF_ALL:
            return False
        self.held[client] += size
        return True

    def give(self, client: str, size: int) -> None:
        """Release bytes that were taken."""
        self.held[client] -= size
        if not self.held[client]:
            del self.held[client]


@dataclass
class Share:
    """The bytes that one request holds of the budget."""

    budget: Budget
    client: str
    size: int = 0

    def grow(self, size: int) -> bool:
        """Return whether the request may have this many bytes in all."""
        if size <= FREE:
            return True
        if not self.budget.take(self.client, size - self.size):
            return False
        self.size = size
        return True

    def close(self) -> None:
        """Release all bytes. A second time does nothing."""
        if self.size:
            self.budget.give(self.client, self.size)
            self.size = 0


@functools.lru_cache(maxsize=1024)
def source(address: str) -> str:
    """Return what counts as one source: an IPv4 address, or the network of an IPv6 address, which a host can choose
    from."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)


class Sources(Generic[Link]):
    """Open connections by source.

    Beyond a limit the oldest one without a request goes, so that silent ones stop nobody.
    """

    def __init__(self, most: int = MOST_OF_SOURCE, total: int = MOST_CONNECTIONS) -> None:
        self._most, self._total = most, total
        self._of: dict[Link, str] = {}
        self._count = Counter[str]()
        #: The connections that wait for a request, in order.
        self._waiting: dict[str, dict[Link, None]] = {}

    def open(self, link: Link, source: str) -> Link | None:
        """Add a connection, and return one to close, which is already forgotten: maybe the same one."""
        self._of[link] = source
        self._count[source] += 1
        self.wait(link)
        if self._count[source] > self._most:
            crowd = self._waiting[source]
        elif len(self._of) > self._total:
            crowd = self._waiting[max(self._waiting, key=lambda name: len(self._waiting[name]))]
        else:
            return None
        first = next(iter(crowd), link)
        self.close(first)
        return first

    def work(self, link: Link) -> None:
        """Note that a connection has a request."""
        self._waiting.get(self._of.get(link, ""), {}).pop(link, None)

    def wait(self, link: Link) -> None:
        """Note that a connection waits for a request."""
        if link in self._of:
            self._waiting.setdefault(self._of[link], {})[link] = None

    def close(self, link: Link) -> None:
        """Forget a connection. A second time does nothing."""
        self.work(link)
        source = self._of.pop(link, None)
        if source is not None:
            self._count[source] -= 1
            if not self._count[source]:
                del self._count[source]
                self._waiting.pop(source, None)
