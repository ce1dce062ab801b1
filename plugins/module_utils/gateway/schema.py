# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gateway's inputs, and the paths on its host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.usage import Count

SETTINGS, CLIENTS = (f"{paths.GATEWAY_FOLDER}/{name}" for name in ("settings.json", "clients.json"))
#: The gateway's own certificate; the host's own key, which only root can read.
CERTIFICATE, OPERATOR_KEY = (f"{paths.GATEWAY_FOLDER}/{name}" for name in ("tls.crt", "operator.key"))

#: The kinds of models.
KINDS = ("generate", "embed", "rerank")


@dataclass(frozen=True)
class Model:
    """A model of one cluster. Entries with the same name are replicas.

    ``context``: tokens, 0 if unknown. ``wake``: the port that starts it while it rests, 0 without one. ``proof``: see
    proof.py, {} without one.
    """

    name: str
    url: str
    cluster: str
    ca: str = ""
    kind: str = "generate"
    context: int = 0
    wake: int = 0
    proof: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The entry's identifier in messages and reports."""
        return f"{self.cluster}/{self.name}"


@dataclass(frozen=True)
class GatewaySettings:
    """The role's inputs without secrets. ``keyed``: the clusters with an API key. Times are in seconds."""

    models: Sequence[Model]
    keyed: Sequence[str]
    host: str
    port: int
    name: str
    tls: bool
    allow_plain_http: bool
    fallbacks: Mapping[str, Sequence[str]]
    silence_timeout: int
    health_interval: int
    wake_timeout: int
    #: The origins of web pages that may use the gateway from a browser.
    origins: Sequence[str] = ()


@dataclass(frozen=True)
class Planned:
    """The texts of the gateway's files, without a key. ``variables``: the environment variable of each cluster with a
    key."""

    settings: str
    certificate: str
    variables: Mapping[str, str]
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class ModelState:
    """An entry of the gateway's report. ``error``: why it is not healthy. ``checked``: seconds since 1970."""

    id: str
    name: str
    cluster: str
    kind: str
    healthy: bool
    error: str
    checked: int


@dataclass(frozen=True)
class ClientState:
    """A client: its models, () for all, and its use by model. Times are in seconds since 1970, 0 for never."""

    name: str
    created: int
    last: int
    models: Sequence[str]
    usage: Mapping[str, Count]


@dataclass(frozen=True)
class State:
    """What the step gateway_info reads on the gateway's host.

    ``problem``: why the report is missing, "" if there is one. ``unanswered``: the models whose test request failed ->
    the reason.
    """

    problem: str
    models: Sequence[ModelState]
    clients: Sequence[ClientState]
    unanswered: Mapping[str, str]
