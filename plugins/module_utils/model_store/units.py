# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The temporary units that list, download and relay a model, and their files.

A unit continues when the connection breaks, and systemd stops it at the time limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Plan, Store

LIST, FETCH, RELAY = "gb10-model-list.service", "gb10-model-fetch.service", "gb10-model-relay.service"
_RUN = paths.MODEL_STATUS.rpartition("/")[0]
#: After an interrupted run, the next boot removes the token, because the folder is in memory.
FILES: Mapping[str, str] = {
    "folder": _RUN,
    "token": f"{_RUN}/hub.token",
    "listing": f"{_RUN}/listing.json",
    "manifest": f"{_RUN}/manifest.json",
    "status": paths.MODEL_STATUS,
}
#: The programs run as root because root owns the store. They keep only the privileges to read and write the one folder,
#: regardless of its owner.
_SANDBOX = (
    "CapabilityBoundingSet=CAP_DAC_OVERRIDE",
    "NoNewPrivileges=yes",
    "PrivateDevices=yes",
    "PrivateTmp=yes",
    "ProtectHome=read-only",
    "ProtectKernelTunables=yes",
    "ProtectSystem=strict",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "UMask=0022",
)
_PROGRAM = paths.program("model")
#: Variables of huggingface_hub. The user's replace them.
_HUB = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


@dataclass(frozen=True)
class CopySettings:
    """The variables of the role model_store. ``token``: whether there is a token of Hugging Face Hub."""

    verify: bool
    min_free_bytes: int
    max_connections: int
    port: int
    timeout: int
    exclude: Sequence[str]
    env: Mapping[str, Any]
    token: bool


def library(plan: Plan) -> str:
    """Return the environment with huggingface_hub for container runtimes.

    Its lock has the same release as the runtime locks.
    """
    return f"{plan.root}/hub"


def list_argv(store: Store, settings: CopySettings) -> list[str]:
    """Return the command that lists a model's files at its source."""
    return [
        *("systemd-run", "--wait", "--pipe", f"--unit={LIST}"),
        *_sandbox(settings),
        *_hub(settings),
        *("python3", "-I", "-B", _PROGRAM, "list"),
        *(f"--hub={store.hub}", f"--revision={store.revision}", f"--source={store.source}"),
        *(f"--exclude={pattern}" for pattern in settings.exclude),
    ]


def fetch_argv(plan: Plan, store: Store, settings: CopySettings) -> list[str]:
    """Return the command that starts the download of a model to the head, or its copy from a folder."""
    return [
        *("systemd-run", f"--unit={FETCH}", f"--setenv=HF_HOME={store.folder}/.cache/hub"),
        *_copying(store, settings),
        *_hub(settings),
        *(_python(plan, store), "-I", "-B", _PROGRAM, "fetch", f"--listing={FILES['listing']}"),
        *(f"--folder={store.folder}", f"--source={store.source}", f"--status={FILES['status']}"),
        f"--streams={settings.max_connections}",
        *(["--verify"] if settings.verify else []),
    ]


def relay_argv(store: Store, settings: CopySettings, link: Mapping[str, str], head: bool) -> list[str]:
    """Return the command that starts the copy on a node with this ``link`` of the chain; see plan.chain().

    The head has verified its files during the download.
    """
    return [
        *("systemd-run", f"--unit={RELAY}"),
        *_copying(store, settings),
        *("python3", "-I", "-B", _PROGRAM, "relay"),
        *(f"--folder={store.folder}", f"--manifest={FILES['manifest']}", f"--status={FILES['status']}"),
        *(f"--port={settings.port}", f"--listen={link['listen']}", f"--upstream={link['upstream']}"),
        *(f"--upstream-address={link['upstream_address']}", f"--streams={settings.max_connections}"),
        *(f"--receiver={address}" for address in filter(None, link["receiver"].split(","))),
        *(["--verify"] if settings.verify and not head else []),
    ]


def _python(plan: Plan, store: Store) -> str:
    """Return the interpreter. A copy from a folder needs no library."""
    if store.source:
        return "python3"
    return f"{plan.runtime.path if isinstance(plan.runtime, Environment) else library(plan)}/bin/python"


def _sandbox(settings: CopySettings) -> list[str]:
    properties = (*_SANDBOX, f"RuntimeMaxSec={settings.timeout}")
    return ["--collect", "--quiet", *(f"--property={line}" for line in properties)]


def _copying(store: Store, settings: CopySettings) -> list[str]:
    return [*_sandbox(settings), "--service-type=exec", f"--property=ReadWritePaths={_RUN} {store.folder}"]


def _hub(settings: CopySettings) -> list[str]:
    credential = [f"--property=LoadCredential=hub.token:{FILES['token']}"] if settings.token else []
    return [*credential, *(f"--setenv={name}={value}" for name, value in {**_HUB, **settings.env}.items())]
