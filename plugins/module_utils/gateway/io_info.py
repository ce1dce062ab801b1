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
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, requests, usage
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, probe

_SECONDS, _PAUSE = 10.0, 1.0
_SHOWN = 300


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

    def report(self, expected: Sequence[str], seconds: float, healthy: str = "") -> tuple[dict[str, Any], str]:
        """Return (report, ""), or ({}, reason) if there is none with exactly the expected entries, and with healthy
        ones of the cluster ``healthy``, within some seconds.

        Without expected entries, any report is returned.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                found = parse(self._ask(requests.REPORT, _SECONDS))
                if not (reason := _lacks(found["models"], sorted(expected), healthy)):
                    return found, ""
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = str(error) or type(error).__name__
            if time.monotonic() >= until:
                return {}, reason
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


def _lacks(models: Sequence[Mapping[str, Any]], expected: Sequence[str], healthy: str) -> str:
    listed = sorted(model["id"] for model in models)
    if expected and listed != expected:
        return f"it lists {', '.join(listed)}. Expected: {', '.join(expected)}"
    away = [model for model in models if model["cluster"] == healthy and not model["healthy"]]
    return "; ".join(f"{model['id']}: {model['error']}" for model in away)


def parse(text: str) -> dict[str, Any]:
    """Return {models, usage} of a report. Raises ValueError for other content."""
    data = bounded_json.load(text, usage.MOST)
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("usage"), dict)
        or not isinstance(data.get("models"), list)
    ):
        raise ValueError("the gateway's report is not valid")
    texts = ("id", "name", "cluster", "kind", "error")
    for model in data["models"]:
        valid = (
            isinstance(model, dict)
            and all(isinstance(model.get(name), str) for name in texts)
            and isinstance(model.get("healthy"), bool)
        )
        if not valid or not isinstance(model.get("checked"), int) or model["kind"] not in probe.ANSWERS:
            raise ValueError("the gateway's report has an entry that is not a model")
    counts = usage.parse(json.dumps({"clients": data["usage"]}))
    return {
        "models": [{name: model[name] for name in (*texts, "healthy", "checked")} for model in data["models"]],
        "usage": counts,
    }


def rows(path: str, counts: usage.Usage) -> list[dict[str, Any]]:
    """Return each client of the clients' file with its use, none without a file. Raises OSError and ClientsError."""
    known = clients.parse(io_file.read_bounded(path, clients.MOST)).clients if os.path.exists(path) else {}
    found = []
    for name, client in sorted(known.items()):
        used = counts.clients.get(name, usage.Client())
        by_model = [{"model": model, **vars(count)} for model, count in sorted(used.models.items())]
        found.append(
            {
                "name": name,
                "created": client.created,
                "models": list(client.models),
                "last": used.last,
                "usage": by_model,
            }
        )
    return found
