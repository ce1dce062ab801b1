# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes of a status, and how people reach the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Client:
    """How people reach the API: its URL for clients, and the head's address.

    ``user``, ``port`` and ``identity`` (the own key file) are those of ssh; ``key_file`` and ``ca_file`` are the head's
    files with the API's key and the CA. Each is "" without one.
    """

    endpoint: str
    address: str
    user: str
    key_file: str
    ca_file: str
    port: str = ""
    identity: str = ""


@dataclass(frozen=True, kw_only=True)
class ReadNode:
    """A node of the inventory. ``facts``: what a module read, {} without an answer; ``unreachable`` is why, or ""."""

    name: str
    head: bool
    unreachable: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StatusNode(ReadNode):
    """A node with the result of cluster_status_info."""

    client: Client
