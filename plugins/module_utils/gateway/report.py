# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gateway's state as text for people, and the settings of its clients."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import UTC, datetime

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common import shell
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report as problem_report
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import checks
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import ClientState, ModelState, State
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.usage import Count
from ansible_collections.gb10.cluster.plugins.module_utils.health.example import request

_PLACEHOLDER = "YOUR_KEY"


def lines(found: State, endpoint: str) -> list[str]:
    """Return the models and the clients."""
    models, clients = found.models, found.clients
    down = sum(not model.healthy for model in models)
    noun = "client" if len(clients) == 1 else "clients"
    result = [f"Gateway {endpoint}: {len(models) - down} of {len(models)} model servers healthy, {len(clients)} {noun}"]
    result += [f"error: {found.problem}"] if found.problem else []
    rows = [(each.name, each.cluster, each.kind, "healthy" if each.healthy else each.error) for each in models]
    result += _table(("model", "cluster", "kind", "state"), rows) if rows else []
    none = ["No client has a key: playbooks/gateway_keys.yml -e gateway_key_create=alice"]
    return [*result, "", *(_clients(clients) if clients else none)]


def _clients(clients: Sequence[ClientState]) -> list[str]:
    """Return the use of each client, and the models of the restricted ones. The table fits 80 columns."""
    rows = []
    for client in clients:
        last = _time(client.last) if client.last else f"never, key of {_time(client.created)[:10]}"
        first = (client.name, last)
        for model, count in (client.usage or {"": Count()}).items():
            rows.append((*first, model, *(str(number) for number in astuple(count))))
            first = ("", "")
    restricted = [f"{client.name} may use only {', '.join(client.models)}" for client in clients if client.models]
    return [*_table(("client", "last use", "model", "requests", "failed", "tokens in", "out"), rows), *restricted]


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]


def example(found: State, place: Mapping[str, str], host: str, inventories: Sequence[str]) -> list[str]:
    """Return the models that answer at the endpoint, the command that creates a key, a request, and the others as
    warnings.

    ``place``: of access.place. ``host``: the gateway's name in the inventory.
    ``inventories``: the files and folders of this run.
    """
    endpoint, models = place["endpoint"], found.models
    good = {each.name: each.kind for each in models if each.healthy and each.name not in found.unanswered}
    verb = "answer" if len(good) > 1 else "answers"
    only = f", only on {host}" if access.loopback(place["client"]) else ""
    result = [f"{', '.join(good) or 'no model'} {verb} at {endpoint} (the gateway{only})"]
    sources = [f"-i {shlex.quote(each)}" for each in inventories]
    result += shell.folded(
        ["key: ansible-playbook playbooks/gateway_keys.yml", *sources, "-e gateway_key_create=alice"]
    )
    result += [line for name, kind in list(good.items())[:1] for line in request(endpoint, name, kind, True)]
    result += [f"warning: {each.id}: {each.error}" for each in models if not each.healthy]
    return [*result, *(f"warning: {name} does not answer: {reason}" for name, reason in found.unanswered.items())]


def refusal(found: State, client: str, models: Sequence[str]) -> str:
    """Return why a new client of some models, [] for all, cannot be created; "" if it can."""
    if found.problem:
        return f"{found.problem}. Expected: a running gateway. Fix: run site.yml."
    known = list(dict.fromkeys(model.name for model in found.models))
    problems = checks.of_client(client, models, known)
    return problem_report(problems) if problems else ""


def client_settings(endpoint: str, entries: Sequence[ModelState]) -> list[str]:
    """Return the settings of common clients for the gateway, with a placeholder for the key.

    Only models that generate text count.
    """
    generating = (entry.name for entry in entries if entry.kind == "generate")
    models = list(dict.fromkeys(generating)) or ["MODEL"]
    model, base = models[0], endpoint.removesuffix("/v1")
    return [
        "OpenAI's libraries:",
        f"  export OPENAI_BASE_URL={endpoint} OPENAI_API_KEY={_PLACEHOLDER}",
        "Claude Code:",
        f"  export ANTHROPIC_BASE_URL={base} ANTHROPIC_AUTH_TOKEN={_PLACEHOLDER}",
        f"  export ANTHROPIC_MODEL={model} ANTHROPIC_DEFAULT_HAIKU_MODEL={model}",
        "OpenCode, in opencode.json:",
        '  {"provider": {"gb10": {"npm": "@ai-sdk/openai-compatible",',
        f'    "options": {{"baseURL": "{endpoint}", "apiKey": "{_PLACEHOLDER}"}},',
        f'    "models": {{{", ".join(f"{chr(34)}{name}{chr(34)}: {{}}" for name in models)}}}}}}}}}',
        "Open WebUI:",
        f"  OPENAI_API_BASE_URL={endpoint} OPENAI_API_KEY={_PLACEHOLDER}",
    ]
