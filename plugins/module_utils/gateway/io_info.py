# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the gateway's report, and send it one request for each model, from the host itself."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, requests, usage
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import ClientState, ModelState
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, probe
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

_SECONDS, _PAUSE = 10.0, 1.0
_SHOWN = 300
#: The use of each client by its name.
Uses: TypeAlias = Mapping[str, usage.Client]


@dataclass(frozen=True)
class Report:
    """The state of each model, and the use of the clients."""

    models: Sequence[ModelState]
    usage: Uses


class Gateway:
    """The gateway on this host, and the file with the operator's key."""

    def __init__(self, server: io_client.Server, key_file: str, unit: str = paths.GATEWAY_UNIT) -> None:
        self._server, self._secret = server, io_client.api_key(key_file, unit)

    def _ask(self, path: str, seconds: float, body: Mapping[str, Any] | None = None) -> str:
        """Return the body of an answer.

        Raises OSError, HTTPException, and ValueError for another process on the port.
        """
        data = None if body is None else json.dumps(body).encode()
        with self._server.open(path, seconds, data, self._secret) as answer:
            return io_client.body_of(answer)

    def report(self, expected: Sequence[str], seconds: float, healthy: str = "") -> tuple[Report, str]:
        """Return (report, ""), or (an empty one, reason) if there is none with exactly the expected entries, and with
        healthy ones of the cluster ``healthy``, within some seconds.

        Without expected entries, any report is returned.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                found = parse(self._ask(requests.REPORT, _SECONDS))
                if not (reason := _lacks(found.models, sorted(expected), healthy)):
                    return found, ""
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = str(error) or type(error).__name__
            if time.monotonic() >= until:
                return Report((), {}), reason
            time.sleep(_PAUSE)

    def answers(self, model: str, kind: str, seconds: float) -> str:
        """Return why the gateway does not answer a short request to a model, "" if it does."""
        path, body = probe.request(kind, model)
        try:
            self._ask(path, seconds, body)
        except urllib.error.HTTPError as error:
            with error:
                return f"HTTP {error.code}: {error.read(_SHOWN).decode('utf-8', 'replace')}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            return str(error) or type(error).__name__
        return ""


def _lacks(models: Sequence[ModelState], expected: Sequence[str], healthy: str) -> str:
    listed = sorted(model.id for model in models)
    if expected and listed != expected:
        return f"it lists {', '.join(listed)}. Expected: {', '.join(expected)}"
    away = [model for model in models if model.cluster == healthy and not model.healthy]
    return "; ".join(f"{model.id}: {model.error}" for model in away)


def parse(text: str) -> Report:
    """Return the report of a text, which may be of another process. Raises ValueError for other content."""
    data = bounded_json.load(text, usage.MOST)
    try:
        found = load.load(Report, data, "report")
    except TypeError:
        # The error has the value, which nobody limits.
        raise ValueError("the gateway's report is not valid") from None
    if not all(model.kind in probe.ANSWERS for model in found.models):
        raise ValueError("the gateway's report has a model of an unknown kind")
    # The types have defaults, and no lower limits.
    return replace(found, usage=usage.parse(json.dumps({"clients": data["usage"]})).clients)


def rows(path: str, uses: Uses) -> list[ClientState]:
    """Return each client of the clients' file with its use, none without a file. Raises OSError and ClientsError."""
    known = clients.parse(io_file.read_bounded(path, clients.MOST)).clients if os.path.exists(path) else {}
    found = []
    for name, client in sorted(known.items()):
        used = uses.get(name, usage.Client())
        by_model = dict(sorted(used.models.items()))
        found.append(ClientState(name, client.created, used.last, client.models, by_model))
    return found
