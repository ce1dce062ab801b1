# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that a container publishes: the kernel forwards them (DNAT), so a filter of incoming traffic does not see them.

Docker and rootful Podman write such rules with iptables or nftables. A port of a rootless container is a listener of
its user, and is filtered.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

#: First port, last port, protocol. (0, 0, "") stands for a rule that names no port.
Span = tuple[int, int, str]
UNKNOWN: Span = (0, 0, "")
#: The target of iptables-nft's rules.
_COMPATIBLE = {"xt": {"type": "target", "name": "DNAT"}}
_RULE = re.compile(r"^-A .* -j DNAT\b.*$", re.MULTILINE)


def ports(ruleset_json: str, iptables: Iterable[str]) -> list[Span]:
    """Return the ports that other hosts reach by a DNAT rule.

    ``ruleset_json`` is the output of ``nft -j list ruleset``, ``iptables`` that of ``iptables -t nat -S``, by family.
    """
    objects = json.loads(ruleset_json or '{"nftables": []}')["nftables"]
    of_iptables = {span for text in iptables for rule in _RULE.findall(text) for span in _of_iptables(rule)}
    # JSON shows iptables-nft's rules too, but only the names of their extensions.
    rules = [entry["rule"]["expr"] for entry in objects if "rule" in entry]
    found = {span for rule in rules if not (of_iptables and _COMPATIBLE in rule) for span in _of_nftables(rule)}
    return sorted(found | of_iptables)


def shown(span: Span) -> str:
    """Return a port as text, such as 3000/tcp or 6000-6010/udp."""
    first, last, protocol = span
    if span == UNKNOWN:
        return "others, by a rule without port"
    return f"{first}/{protocol}" if first == last else f"{first}-{last}/{protocol}"


def _of_nftables(expressions: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    """Yield the ports of a rule of nftables, none if it does not forward."""
    targets = [entry["dnat"] or {} for entry in expressions if "dnat" in entry]
    matches = [entry["match"] for entry in expressions if entry.get("match", {}).get("op") == "=="]
    if _local(matches) or not (targets or _COMPATIBLE in expressions):
        return
    named = [(match["left"], match["right"]) for match in matches] + [
        pair for target in targets for pair in _mapped(target.get("addr"))
    ]
    yield from [span for left, right in named for span in _ports(left, right)] or [UNKNOWN]


def _local(matches: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a rule is for a loopback address, which no other host reaches."""
    return any(_field(match["left"]) == "daddr" and _loopback(match["right"]) for match in matches)


def _mapped(address: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (expression, value) of each entry of a map in place of an address, none of a map with a name
    ("@services")."""
    found = address["map"] if isinstance(address, Mapping) and "map" in address else {}
    if isinstance(found.get("data"), Mapping):
        yield from ((found["key"], entry[0]) for entry in found["data"]["set"])


def _field(left: Any) -> str:
    return str(left["payload"].get("field", "")) if isinstance(left, Mapping) and "payload" in left else ""


def _ports(left: Any, right: Any) -> list[Span]:
    """Return the ports of a match, none if it is of something else."""
    return _values(right, left["payload"]["protocol"]) if _field(left) == "dport" else []


def _values(right: Any, protocol: str) -> list[Span]:
    if isinstance(right, Mapping) and "range" in right:
        return [(int(right["range"][0]), int(right["range"][1]), protocol)]
    if isinstance(right, Mapping) and "set" in right:
        return [span for entry in right["set"] for span in _values(entry, protocol)]
    return [(int(right), int(right), protocol)] if isinstance(right, int) else [UNKNOWN]


def _of_iptables(rule: str) -> Iterator[Span]:
    """Yield the ports of a rule of iptables."""
    words = rule.split()
    options = {
        name: words[index + 1]
        for index, name in enumerate(words[:-1])
        if name.startswith("-") and words[index - 1] != "!"
    }
    if _loopback(options.get("-d", "")):
        return
    given = options.get("--dport") or options.get("--dports") or ""
    for part in given.split(","):
        first, _colon, last = part.partition(":")
        yield (
            (int(first), int(last or first), options.get("-p", "tcp"))
            if first.isdecimal() and (last or first).isdecimal()
            else UNKNOWN
        )


def _loopback(address: Any) -> bool:
    if isinstance(address, Mapping) and "prefix" in address:
        address = address["prefix"]["addr"]
    try:
        return ipaddress.ip_interface(str(address)).is_loopback
    except ValueError:
        return False
