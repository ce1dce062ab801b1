# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tokens of Ray, and of the watchdog and the flight recorder, which all nodes share.

Only their SHA-256 is known here.
"""

from __future__ import annotations

import base64
import hashlib

from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

#: Service -> the field of a node's state with the digest of a generated token.
_DIGESTS = {
    "flight_recorder": "watchdog_token_digest",
    "ray": "ray_token_digest",
    "watchdog": "watchdog_token_digest",
}


def digest(plan: Plan, service: str, content: str) -> str:
    """Return the digest of a service's token on the plan's node, "" for a service without one.

    ``content``: the head's token in Base64, which a run reads if a node lacks it. Check mode on a fresh cluster has
    none.
    """
    if service not in _DIGESTS or (service != "ray" and len(plan.nodes) == 1):
        return ""
    digests = {getattr(node.state, _DIGESTS[service]) for node in plan.nodes}
    if "" in digests or len(digests) > 1:
        return hashlib.sha256(base64.b64decode(content)).hexdigest()
    return str(digests.pop())
