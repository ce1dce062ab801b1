# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much each client used each model: requests, failures and tokens. The gateway alone writes the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json

#: Maximum characters of the file; clients in it, revoked ones included; models of each client.
MOST, MOST_CLIENTS, MOST_MODELS = 1 << 24, 2000, 100
_MOST_COUNT = 1 << 62


@dataclass
class Count:
    """A client's use of a model."""

    requests: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


_NAMES = {entry.name for entry in fields(Count)}


@dataclass
class Client:
    """A client's counts by model. ``last``: its last request, in seconds since 1970."""

    last: int = 0
    models: dict[str, Count] = field(default_factory=dict)


@dataclass
class Usage:
    """All clients by name."""

    clients: dict[str, Client] = field(default_factory=dict)

    def add(self, client: str, model: str, now: int, **counts: int) -> None:
        """Add counts of Count.

        Beyond the limits, the client that was idle longest goes, and further models count as other.
        """
        entry = self.clients.setdefault(client, Client())
        entry.last = max(entry.last, now)
        if len(self.clients) > MOST_CLIENTS:
            del self.clients[min(self.clients, key=lambda name: self.clients[name].last)]
        if model not in entry.models and len(entry.models) >= MOST_MODELS:
            model = "other"
        count = entry.models.setdefault(model, Count())
        for name, value in counts.items():
            setattr(count, name, min(_MOST_COUNT, getattr(count, name) + max(0, value)))


def text(usage: Usage) -> str:
    """Return the text of the file."""
    return json.dumps(asdict(usage), sort_keys=True) + "\n"


def parse(text: str | None) -> Usage:
    """Return the counts of a file's text, none if there is no file. Raises ValueError for other content."""
    data = {"clients": {}} if text is None else bounded_json.load(text, MOST)
    if not isinstance(data, dict) or not isinstance(data.get("clients"), dict):
        raise ValueError("it has no clients")
    return Usage({str(name): _client(entry) for name, entry in data["clients"].items()})


def _client(entry: Any) -> Client:
    if not isinstance(entry, dict) or not _whole(entry.get("last")) or not isinstance(entry.get("models"), dict):
        raise ValueError("an entry is not the use of a client")
    return Client(entry["last"], {str(name): _count(count) for name, count in entry["models"].items()})


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count(entry: Any) -> Count:
    if not isinstance(entry, Mapping) or entry.keys() != _NAMES or not all(map(_whole, entry.values())):
        raise ValueError("an entry is not the use of a model")
    return Count(**entry)
