# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ray's token, which all nodes share, and the secret for deriving the keys of the other services' messages.

A plan has only their SHA-256.
"""

from __future__ import annotations

import base64
import hashlib

from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, PlannedNode
from ansible_collections.gb10.cluster.plugins.module_utils.service import keys


def digest(plan: Plan, service: str, content: str, renewed: bool = False) -> str:
    """Return the digest of a service's token or secret, "" for a service without one.

    ``content``: the head's one in Base64, which a run reads if a node lacks it, or if Ray's token is ``renewed``. Check
    mode has no new one.
    """
    if service == "ray":
        digests = {node.state.ray_token_digest for node in plan.nodes}
        known = digests.pop() if len(digests) == 1 and not renewed else ""
    elif service in ("flight_recorder", "watchdog") and len(plan.nodes) > 1:
        known = "" if keys_differ(plan) else _secret(plan)
    else:
        return ""
    return known or hashlib.sha256(base64.b64decode(content)).hexdigest()


def keys_differ(plan: Plan) -> bool:
    """Return whether the head lacks its secret, another node has one, or a node has not its own keys."""
    digest = _secret(plan)
    return not digest or any(
        node.state.message_keys_mark != keys.mark(digest, node.name, before.name)
        or (node.state.message_secret_digest and not node.head)
        for node, before in _pairs(plan)
    )


def key_files(plan: Plan, secret: str) -> dict[str, str]:
    """Return path -> content of the keys of the plan's node."""
    before = next(before for node, before in _pairs(plan) if node.name == plan.node.name)
    return keys.files(secret, plan.node.name, before.name)


def _secret(plan: Plan) -> str:
    return next((node.state.message_secret_digest for node in plan.nodes if node.head), "")


def _pairs(plan: Plan) -> list[tuple[PlannedNode, PlannedNode]]:
    """Return each node with the one before it, whose flight recorder sends to it."""
    return [(node, plan.nodes[place - 1]) for place, node in enumerate(plan.nodes)]
