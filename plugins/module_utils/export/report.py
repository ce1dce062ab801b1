# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines about an export for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.export import plan as export_plan
from ansible_collections.gb10.cluster.plugins.module_utils.export.schema import ExportSettings
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan


def lines(plan: Plan, given: ExportSettings, objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the objects, the Secrets that they need, and warnings."""
    result = [f"{each['kind']} {each['metadata']['name']}" for each in objects]
    for name, keys in export_plan.secrets(plan, given).items():
        result.append(f"needs the Secret {name} with {', '.join(keys)} (docs/kubernetes.md)")
    if not export_plan.reachable(plan):
        result.append(f"warning: no Service, because the API listens on {plan.api_host} only (gb10_api_host)")
    unknown = ", ".join(node.name for node in plan.nodes if not node.state.service_user)
    if unknown:
        until = f"until site.yml has created {plan.user} there; then export again"
        result.append(f"warning: the pods wait on {unknown} {until}")
    words = [*plan.serve.args, *plan.serve.user_args]
    if not any(word.startswith("--kv-cache-memory-bytes") for word in words):
        result.append("warning: the plan has no --kv-cache-memory-bytes, and nothing limits the memory on a node")
    return result
