# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of an export, and the names of its objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: What happens to the entry point of the image. NVIDIA's entry points prepare CUDA, and then run their arguments.
AUTO, KEEP, REPLACE = ENTRYPOINTS = ("auto", "keep", "replace")
#: The folder of the ConfigMap in a pod, its programs, and the file of a node.
FOLDER = "/etc/gb10/export"
GATES, PROBE, START = "gates.py", "probe.py", "start.py"
#: The programs as files of this collection, below plugins/module_utils.
PROGRAMS: Mapping[str, str] = {GATES: "export/io_gates.py", PROBE: "export/io_probe.py", START: "export/io_start.py"}
GUARD_PROGRAM = "api/io_guard.py"
#: The variable with the name of the pod's node, which the programs read.
NODE_VARIABLE = "GB10_NODE"


@dataclass(frozen=True)
class ExportSettings:
    """The variables of the role export.

    ``nodes``: the Kubernetes node of each node of the inventory, where the names differ. ``start_seconds``: the time
    from the start of the server to its first token.
    """

    name: str
    namespace: str
    nodes: Mapping[str, str]
    runtime_class: str
    rdma_resource: str
    entrypoint: str
    start_seconds: int

    def host(self, node: str) -> str:
        """Return the Kubernetes node of a node of the inventory."""
        return self.nodes.get(node, node)

    @property
    def files(self) -> str:
        """The name of the ConfigMap."""
        return f"{self.name}-files"

    @property
    def api(self) -> str:
        """The name of the Service, and of the Secret with the API key."""
        return f"{self.name}-api"

    @property
    def tls(self) -> str:
        """The name of the Secret with the certificate."""
        return f"{self.name}-tls"

    @property
    def environment(self) -> str:
        """The name of the Secret with the secret variables of the ranks."""
        return f"{self.name}-environment"
