# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gateway's service."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import schema
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement
from ansible_collections.gb10.cluster.plugins.module_utils.service import unit
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Service

_USER = paths.GATEWAY_USER
_LOW_PORT = 1024


def service(planned: schema.Planned, environment: str, port: int, start_timeout: int, secrets: str) -> Service:
    """Return the service of a planned gateway, in an environment with the packages.

    ``secrets``: the version of the models' keys. The clients' file is not an input: the gateway rereads it by itself.
    """
    program, secured = paths.program_file("gateway"), bool(planned.certificate)
    keys = [
        "# The API keys of the models, readable only by root. systemd reads them as root.",
        f"EnvironmentFile={paths.GATEWAY_ENVIRONMENT}",
    ]
    credentials = [f"LoadCredential={name}:{paths.GATEWAY_FOLDER}/{name}" for name in ("tls.crt", "tls.key")]
    pair = " %d/tls.crt %d/tls.key" if secured else ""
    arguments = f"{program['path']} {schema.SETTINGS} /var/lib/{_USER}{pair}"
    binds = ["CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "AmbientCapabilities=CAP_NET_BIND_SERVICE"]
    text = unit.text(
        "Gateway to the models of several GB10 clusters",
        ["Wants=network-online.target", "After=network-online.target", "StartLimitIntervalSec=0"],
        [
            "Type=notify",
            f"User={_USER}",
            unit.INPUTS,
            f"Environment=HOME=/var/lib/{_USER}",
            *(keys if planned.variables else []),
            *(credentials if secured else []),
            f"ExecStart={environment}/bin/python -I -B {arguments}",
            f"TimeoutStartSec={start_timeout}",
            "TimeoutStopSec=45",
            "Restart=always",
            "RestartSec=5",
            "MemoryMax=2G",
            "TasksMax=64",
            "LimitNOFILE=65536",
            f"StateDirectory={_USER}",
            "StateDirectoryMode=0700",
            "UMask=0077",
            *confinement.properties(_USER, []),
            "# Unlike a rank, the gateway needs no device.",
            "PrivateDevices=yes",
            "ProtectClock=yes",
            "ProtectProc=invisible",
            *(binds if port < _LOW_PORT else []),
        ],
    )
    files = [{"path": schema.SETTINGS, "content": planned.settings}, program]
    files += [{"path": schema.CERTIFICATE, "content": planned.certificate}] * secured
    inputs = [planned.settings, planned.certificate, secrets]
    return Service(paths.GATEWAY_UNIT, text, inputs, files, watched=(program["program"],))
