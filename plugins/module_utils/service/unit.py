# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of a unit, and of its settings. Its comments are for people who read it on a node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd

#: The first lines of a unit.
HEAD = ("#", "# Ansible managed", "#")
#: The digest of the launch inputs replaces the placeholder.
INPUTS = f"Environment={systemd.INPUTS_VARIABLE}={systemd.PLACEHOLDER}"
#: The confinement that root's own programs have in common.
CONFINED = (
    "ProtectHostname=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "SystemCallArchitectures=native",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
)
#: The confinement of a service that changes no file outside of the folders that systemd gives it.
CONFINED_SERVICE = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectControlGroups=yes",
    *CONFINED,
)


def settings(path: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the file with the settings of a program, which people read on a node, too."""
    return {"path": path, "content": json.dumps(given, indent=4, sort_keys=True)}


def text(description: str, unit: Sequence[str], service: Sequence[str]) -> str:
    """Return a unit that starts with the host. ``unit`` and ``service``: the lines of these sections."""
    return "\n".join(
        [
            *HEAD,
            "[Unit]",
            f"Description={description}",
            *unit,
            "",
            "[Service]",
            *service,
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )
