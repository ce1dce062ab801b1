# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that a container publishes: the kernel forwards them (DNAT), so a filter of incoming traffic does not see them.

Docker and rootful Podman write such rules with iptables or nftables. A port of a rootless container is a listener of
its user, and is filtered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: First port, last port, protocol. (0, 0, "") stands for a rule that names no port.
Span = tuple[int, int, str]
UNKNOWN: Span = (0, 0, "")
_COMMENT = re.compile(r'comment "[^"]*"')
#: A rule of iptables that an nft without libxtables cannot translate.
_UNREADABLE = 'xt target "DNAT"'
_RULE = re.compile(rf"^-A .* -j DNAT\b.*$|^.*(?:\bdnat (?:[\w.]+ )*to |{_UNREADABLE}).*$", re.MULTILINE)
_LOOPBACK = re.compile(r"(?:daddr|(?<!! )-d) (?:127\.|::1[ /])")
_PORTS = re.compile(r"(\w+) dport (?:map )?(\{[^}]*\}|[\d-]+)|-p (\w+) .*(?<!! )--dports? ([\d,:]+)(?= )")
_SPAN = re.compile(r"\s*(\d+)(?:[-:](\d+))?(?: : .*)?\s*")


def ports(*listings: str) -> list[Span]:
    """Return the ports that other hosts reach by a DNAT rule.

    ``listings``: the output of ``nft --stateless list ruleset``, and of ``iptables -t nat -S`` by family. nft's has the
    rules of iptables too, but not all of their details.
    """
    rules = {rule for text in listings for rule in _RULE.findall(_COMMENT.sub("", text)) if not _LOOPBACK.search(rule)}
    if any(rule.startswith("-A ") for rule in rules):
        rules = {rule for rule in rules if _UNREADABLE not in rule}
    return sorted({span for rule in rules for span in _spans(rule)})


def shown(span: Span) -> str:
    """Return a port as text, such as 3000/tcp or 6000-6010/udp."""
    first, last, protocol = span
    if span == UNKNOWN:
        return "others, by a rule without port"
    return f"{first}/{protocol}" if first == last else f"{first}-{last}/{protocol}"


def _spans(rule: str) -> Iterable[Span]:
    """Yield the ports of a rule, also those that are the keys of a set or of a map."""
    found = _PORTS.search(rule)
    if not found:
        yield UNKNOWN
        return
    protocol, given = found[1] or found[3], found[2] or found[4]
    for entry in map(_SPAN.fullmatch, given.strip("{}").split(",")):
        yield (int(entry[1]), int(entry[2] or entry[1]), protocol) if entry else UNKNOWN
