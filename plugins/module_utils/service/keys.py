# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The keys of the messages between nodes, each derived from the head's secret.

A watchdog's key is known to its node and to the head, a flight recorder's to its node and to the next one. So no node
can speak for another one, except for the one before it to itself.
"""

from __future__ import annotations

import hashlib
import hmac

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths


def of_watchdog(secret: str, node: str) -> str:
    """Return the key of a node's messages to the head, and of the replies: 64 hexadecimal digits."""
    return _derived(secret, "watchdog", node)


def files(secret: str, node: str, before: str) -> dict[str, str]:
    """Return path -> content of a node's keys. ``before``: the node whose flight recorder sends to it.

    The last line of each is the mark.
    """
    own = mark(hashlib.sha256(secret.encode()).hexdigest(), node, before)
    recorder = [_derived(secret, "flight-recorder", name) for name in (node, before)]
    return {
        paths.WATCHDOG_KEY: "\n".join((of_watchdog(secret, node), own, "")),
        paths.RECORDER_KEYS: "\n".join((*recorder, own, "")),
    }


def mark(digest: str, node: str, before: str) -> str:
    """Return a hash that shows whether the keys of a node belong to a secret, given by its SHA-256 alone."""
    return hashlib.sha256("\0".join((digest, node, before)).encode()).hexdigest()


def _derived(secret: str, service: str, node: str) -> str:
    return hmac.new(secret.strip().encode(), f"{service}\0{node}".encode(), hashlib.sha256).hexdigest()
