# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The messages of a recorder to its peer: one datagram each, with an HMAC of the sender's key.

Only the sender and its peer have this key. The peer also replies with it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import schema
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Sample
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import parse

SAMPLE, KERNEL, GOODBYE, REPLY = "sample", "kernel", "goodbye", "reply"
#: Maximum bytes of a datagram: a sample and its envelope.
MOST = schema.MOST + 1024
#: Maximum bytes of the lines of a datagram, which then fits the smallest MTU.
_MOST_LINES = 1000
_MOST_ADDRESSES = 4


@dataclass(frozen=True)
class Message:
    """A message. ``session``: of the sender's process; ``number`` grows within it.

    ``nonce``: the receiver's, "" before its first reply. ``addresses``: the sender's outside of the fabric; the
    receiver distinguishes a pulled cable from a silent host by them.
    """

    kind: str
    sender: str
    to: str
    session: str
    number: int = 0
    nonce: str = ""
    sample: Sample | None = None
    lines: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def encode(message: Message, key: str) -> bytes:
    """Return the datagram of a message."""
    return parse.message({name: each for name, each in asdict(message).items() if each}, key)


def decode(data: bytes, key: str) -> Message | None:
    """Return the message of an untrusted datagram, None unless it was made with the key and is within the limits."""
    try:
        message = load.load(Message, parse.content(data, key, MOST), "message")
        if message.sample:
            schema.checked(message.sample)
        # The receiver connects to them.
        addresses = tuple(str(ipaddress.IPv4Address(each)) for each in message.addresses[:_MOST_ADDRESSES])
    except (TypeError, ValueError):
        return None
    return Message(**{**vars(message), "lines": tuple(map(foreign.line, message.lines)), "addresses": addresses})


def batches(lines: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the lines in groups that fit a datagram."""
    batch: list[str] = []
    size = 0
    for line in lines:
        # JSON writes a character in up to six.
        needed = len(ascii(line)) + 3
        if batch and size + needed > _MOST_LINES:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(line)
        size += needed
    if batch:
        yield tuple(batch)
