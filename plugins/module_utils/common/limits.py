# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of one client, of one source address and of all together on a server: the API, its gateway, and the
program that forwards a model.

A body counts by its size in memory, not by its bytes. Measured with CPython 3.11 and 3.12: one character beyond
U+FFFF makes each character of its string take four bytes, and the decoded body and its longest string exist at the same
time. An element of JSON takes up to 91 bytes. 60 MiB of [], took 1.7 GiB.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

#: Maximum bytes of a body, and of the memory that it needs. A request with images has some megabytes.
MOST_BODY, MOST_MEMORY = 64 << 20, 256 << 20
#: Maximum number of the characters , : [ { outside of strings, in a path for tokens and in others. Two thousand calls
#: of tools have 40,000. A list of wrong elements has up to 9 KB of errors for each.
MOST_TOKENS, MOST_MARKS = 500_000, 50_000
#: Paths that take lists of tokens.
OF_TOKENS = frozenset(
    ("/v1/completions", "/v1/embeddings", "/pooling", "/classify", "/detokenize", "/inference/v1/generate")
)
#: Seconds without a byte of a body, and for a whole body.
BODY_SILENCE, BODY_SECONDS = 20.0, 300.0
#: Bytes and headers of a request's head, and seconds for it. An idle connection ends after the same time.
MOST_HEAD, MOST_HEADERS, HEAD_SECONDS = 32 << 10, 64, 20.0
#: Bytes of memory of a body that is read alone, and the seconds before it, so that new connections get answers first.
MOST_TOGETHER, PAUSE = 512 << 10, 0.005
#: Open connections of one source address, and of all.
MOST_OF_SOURCE, MOST_CONNECTIONS = 512, 4096
#: Status, code and text of the refusals of a body.
LARGE, COMPLEX, ENCODING, SLOW, FULL, ANSWERS = (
    "request_too_large",
    "request_too_complex",
    "invalid_json",
    "request_timeout",
    "too_many_bodies",
    "answers_too_large",
)
REFUSALS: Mapping[str, tuple[int, str]] = {
    LARGE: (
        413,
        f"The request is larger than {MOST_BODY >> 20} MiB, or needs more than {MOST_MEMORY >> 20} MiB of memory.",
    ),
    COMPLEX: (
        413,
        "The JSON has too many of the characters , : [ { outside of strings. "
        f"At most {MOST_MARKS}, or {MOST_TOKENS} in a path for tokens. "
        "Or its lists and objects are too large to be verified, it has more than 32 levels, or a number 101 digits.",
    ),
    ENCODING: (400, "The JSON is not UTF-8, or has half of a character."),
    SLOW: (408, f"The rest of the request did not arrive within {BODY_SILENCE:g} s."),
    ANSWERS: (
        413,
        "The answers need too much memory: tokens times log probabilities, or n times the texts besides the prompts. "
        "Send fewer prompts, a lower n, fewer log probabilities, or set max_tokens.",
    ),
    FULL: (503, "The large requests in progress need all of the memory for requests. Try again later."),
}

_MARKS = (b",", b":", b"[", b"{")
#: Bytes that begin a character of four bytes, and those at the beginning of UTF-16 and UTF-32.
_LONG, _FOREIGN = bytes(range(0xF0, 0x100)), {0, 0xFE, 0xFF}
_OF_MARK = 100
#: Maximum digits of a number: an integer of 64 bits has 20, and a sum of money as a fraction 60.
_DIGITS = 100
_NUMBER = re.compile(rb"[0-9]{%d}" % (_DIGITS + 1))
Link = TypeVar("Link", bound=Hashable)


def most(path: str) -> int:
    """Return the maximum number of marks of a path's JSON."""
    return MOST_TOKENS if path in OF_TOKENS else MOST_MARKS


@dataclass
class Budget:
    """The memory of bodies, by client: the most of one client and of all. Bodies that need up to ``free`` bytes always
    have room."""

    of_client: int = 256 << 20
    of_all: int = 512 << 20
    free: int = 128 << 10
    held: Counter[str] = field(default_factory=Counter)

    def take(self, client: str, size: int) -> bool:
        """Return whether there is room for more bytes of a client, and then hold them."""
        if not size:
            return True
        if self.held[client] + size > self.of_client or self.held.total() + size > self.of_all:
            return False
        self.held[client] += size
        return True

    def give(self, client: str, size: int) -> None:
        """Release bytes that were taken."""
        if not size:
            return
        self.held[client] -= size
        if not self.held[client]:
            del self.held[client]


@dataclass
class Share:
    """The memory that one request's body holds of a budget, and its answers of another one.

    ``most``: of its marks; None if it is not JSON.
    """

    budget: Budget
    client: str
    most: int | None = MOST_MARKS
    answers: Budget = field(default_factory=Budget)
    size: int = 0
    marks: int = 0
    width: int = 1
    held: int = 0
    expected: int = 0
    _inside: bool = False
    long: bool = False
    _rest: bytes = b""
    _digits: bytes = b""

    @property
    def memory(self) -> int:
        """The bytes that the body needs while it is decoded, parsed and written again."""
        return 2 * self.width * self.size + _OF_MARK * self.marks

    def add(self, data: bytes) -> str:
        """Count a part of the body. Returns the code of the refusal, "" if it has room."""
        if self.most is not None:
            if self.size < 4 and not _FOREIGN.isdisjoint(data[: 4 - self.size]):
                return ENCODING
            self._read(data)
        self.size += len(data)
        if self.size > MOST_BODY or self.memory > MOST_MEMORY:
            return LARGE
        if self.most is not None and (self.marks > self.most or self.long):
            return COMPLEX
        if self.memory <= self.budget.free:
            return ""
        if not self.budget.take(self.client, self.memory - self.held):
            return FULL
        self.held = self.memory
        return ""

    def expect(self, size: int) -> str:
        """Hold bytes for the answers, too. Returns the code of the refusal, "" if they have room."""
        if size > self.answers.of_client:
            return ANSWERS
        if not self.answers.take(self.client, size):
            return FULL
        self.expected += size
        return ""

    def _read(self, data: bytes) -> None:
        """Note the width of characters, and the marks outside of strings."""
        data = self._rest + data
        # A backslash belongs to what follows it.
        self._rest = b"\\" * ((len(data) - len(data.rstrip(b"\\"))) % 2)
        data = data.removesuffix(self._rest)
        data = data.replace(b"\\\\", b"")
        # An escape may be half of a long character.
        if b"\\u" in data or (not data.isascii() and len(data.translate(None, _LONG)) < len(data)):
            self.width = 4
        elif not data.isascii():
            self.width = max(self.width, 2)
        data = data.replace(b'\\"', b"")
        parts = data.split(b'"')
        outside = b" ".join(parts[self._inside :: 2])
        self._inside ^= len(parts) % 2 == 0
        self.marks += sum(map(outside.count, _MARKS))
        # Python needs the square of the digits of a number, which may arrive in parts.
        outside = self._digits + outside
        self.long = self.long or bool(_NUMBER.search(outside))
        self._digits = outside[len(outside.rstrip(b"0123456789")) :][-_DIGITS:]

    def close(self) -> None:
        """Release all bytes. A second time does nothing."""
        self.budget.give(self.client, self.held)
        self.answers.give(self.client, self.expected)
        self.held = self.expected = 0


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

    Beyond a limit the oldest one without a request goes, so that silent ones block no client.
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
