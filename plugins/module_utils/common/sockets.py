# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's tables of TCP sockets. Source: proc_net_tcp(5), and Linux, include/net/tcp_states.h."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

_ESTABLISHED, _LISTEN = "01", "0A"
_WORD = 8


def listening(table: str) -> list[dict[str, Any]]:
    """Convert /proc/net/tcp or tcp6 to [{address, port, inode}] of listening sockets."""
    return [
        {"address": _address(place), "port": int(port, 16), "inode": inode}
        for (place, port), _remote, state, inode in _rows(table)
        if state == _LISTEN
    ]


def servers(tables: Iterable[str], server: tuple[str, int], client: tuple[str, int]) -> set[int]:
    """Return the inode of the server's socket of a connection, or those of the listeners that will accept it.

    ``tables``: /proc/net/tcp and tcp6; ``server`` and ``client``: the ends of the connection as (address, port). Empty
    if this host has no such open socket. The kernel resets a waiting connection when its listener closes, so that no
    other one accepts it.
    """
    texts, ends = list(tables), (_place(*server), _place(*client))
    inodes = {
        inode
        for text in texts
        for local, remote, state, inode in _rows(text, server[1])
        if (inode or state == _ESTABLISHED) and (_shown(*local), _shown(*remote)) == ends
    }
    if inodes != {0}:
        return inodes
    wildcards = ("::",) if ":" in ends[0][0] else ("0.0.0.0", "::")
    places = {ends[0], *((address, server[1]) for address in wildcards)}
    found = (entry for text in texts for entry in listening(text))
    return {entry["inode"] for entry in found if _place(entry["address"], entry["port"]) in places}


def _rows(table: str, port: int | None = None) -> Iterator[tuple[list[str], list[str], str, int]]:
    """Yield ([address, port], [remote address, remote port], state, inode) of each socket, in the kernel's digits.

    ``port``: only sockets with this local one. Any user of a host can add a million rows.
    """
    digits = "" if port is None else f":{port:04X} "
    for line in table.splitlines()[1:]:
        if digits in line and len(fields := line.split()) > 9:
            yield fields[1].split(":"), fields[2].split(":"), fields[3], int(fields[9])


def _shown(address: str, port: str) -> tuple[str, int]:
    return _place(_address(address), int(port, 16))


def _place(address: str, port: int) -> tuple[str, int]:
    """Return an end of a connection: a socket of IPv6 has IPv4 addresses in another form."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(found, "ipv4_mapped", None) or found), port


def _address(text: str) -> str:
    # The kernel prints 32-bit words in host order; all supported hosts are little-endian.
    words = [bytes.fromhex(text[start : start + _WORD])[::-1] for start in range(0, len(text), _WORD)]
    return str(ipaddress.ip_address(b"".join(words)))
