# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gateway's clients: a file with the SHA-256 of each key, which root writes and the service reads.

A key has 256 random bits, so its digest needs neither salt nor a slow hash.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json

#: The client of the host itself, for the report and for the test requests of the role. Its use is not counted.
OPERATOR = "operator"
EXPECTED_NAME = f"lower-case letters, digits and . _ -, at most 63, other than {OPERATOR}"
#: Maximum characters of the file, and of clients in it.
MOST, MOST_CLIENTS = 1 << 20, 1000
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: The beginning of each key. Some clients require sk-.
PREFIX = "sk-gb10-"


class ClientsError(ValueError):
    """The file is not one that this collection wrote, or a change of it is not possible."""


@dataclass(frozen=True)
class Client:
    """A client: the digest of its key, when it was created (seconds since 1970), and its models, () for all."""

    sha256: str
    created: int
    models: Sequence[str] = ()

    def may(self, model: str) -> bool:
        """Return whether the client may use the model."""
        return not self.models or model in self.models


@dataclass(frozen=True)
class Clients:
    """All clients by name, and the digest of the operator's key, "" without one."""

    clients: Mapping[str, Client] = field(default_factory=dict)
    operator: str = ""

    def of_key(self, key: str) -> str:
        """Return the name of a key's owner, "" if the key is unknown.

        The time reveals digests only, not keys.
        """
        return self._owners.get(digest(key), "")

    @functools.cached_property
    def _owners(self) -> Mapping[str, str]:
        return {client.sha256: name for name, client in self.clients.items()} | (
            {self.operator: OPERATOR} if self.operator else {}
        )


def valid_name(name: str) -> bool:
    """Return whether a client may have this name, which is also a file name on the controller."""
    return bool(_NAME.fullmatch(name)) and name != OPERATOR


def digest(key: str) -> str:
    """Return the SHA-256 of a key as hexadecimal digits."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def parse(text: str | None) -> Clients:
    """Return the clients of a file's text, none if there is no file. Raises ClientsError."""
    if text is None:
        return Clients()
    try:
        data = bounded_json.load(text, MOST)
    except ValueError as error:
        raise ClientsError(f"it is not JSON: {error}") from error
    if not isinstance(data, dict) or data.keys() != {"clients", "operator"} or not isinstance(data["clients"], dict):
        raise ClientsError("it is not a list of clients")
    if not (data["operator"] == "" or _is_digest(data["operator"])):
        raise ClientsError("the operator has no digest")
    return Clients({name: _client(name, entry) for name, entry in data["clients"].items()}, data["operator"])


def _client(name: str, entry: Any) -> Client:
    if not valid_name(name) or not isinstance(entry, dict) or entry.keys() != {"sha256", "created", "models"}:
        raise ClientsError(f"{name[:63]!r} is not a client")
    models, created = entry["models"], entry["created"]
    texts = isinstance(models, list) and all(isinstance(model, str) for model in models)
    if not (_is_digest(entry["sha256"]) and isinstance(created, int) and not isinstance(created, bool) and texts):
        raise ClientsError(f"the entry of {name} is incomplete")
    return Client(entry["sha256"], created, tuple(models))


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and bool(_DIGEST.fullmatch(value))


def text(found: Clients) -> str:
    """Return the text of the file."""
    return json.dumps(asdict(found), indent=2, sort_keys=True) + "\n"


def create(found: Clients, name: str, key: str, now: int, models: Sequence[str]) -> Clients:
    """Return the clients with a new one. Raises ClientsError for an invalid or known name, and for too many."""
    if not valid_name(name):
        raise ClientsError(f"{name!r} is not a client's name. Expected: {EXPECTED_NAME}")
    if name in found.clients:
        raise ClientsError(
            f"{name} exists already. Expected: a new name. Fix: choose another name, or revoke the old key first"
        )
    if len(found.clients) >= MOST_CLIENTS:
        raise ClientsError(f"there are {MOST_CLIENTS} clients already. Expected: fewer. Fix: revoke unused ones")
    return replace(found, clients={**found.clients, name: Client(digest(key), now, tuple(models))})


def revoke(found: Clients, name: str) -> Clients:
    """Return the clients without one. Raises ClientsError for an unknown name."""
    if name not in found.clients:
        known = ", ".join(sorted(found.clients)) or "no client"
        raise ClientsError(
            f"{name!r} is not a client. Expected: one of the existing clients ({known}). Fix: correct the name"
        )
    return replace(found, clients={other: client for other, client in found.clients.items() if other != name})
