# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read which models the gateway on this host reaches, and how much its clients use them.

Reads the gateway's report with the key of the host, which only root can read. Returns no key and no digest of a key.
Can send one short request to each healthy model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import io_info, schema
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``url``: The gateway on this host, without path.
    ``server_name``: The name in the gateway's certificate, empty without TLS.
    ``ca_file``: The gateway's certificate or its CA, for an https address.
    ``key_file``: The file with the key of the host.
    ``clients_file``: The file with the clients.
    ``expected``: The entries that the report must have, as CLUSTER/MODEL; any if empty.
    ``healthy``: A cluster whose models must be healthy in the report; empty for none.
    ``timeout``: Seconds to wait for the report with the expected entries.
    ``test``: Whether to send a request to each healthy model.
    ``test_timeout``: Seconds for each of these requests.
    """

    url: str
    server_name: str = ""
    ca_file: str = field(default=schema.CERTIFICATE, metadata={"type": "path"})
    key_file: str = field(default=schema.OPERATOR_KEY, metadata={"type": "path"})
    clients_file: str = field(default=schema.CLIENTS, metadata={"type": "path"})
    expected: Sequence[str] = ()
    healthy: str = ""
    timeout: int = 0
    test: bool = False
    test_timeout: int = 120


def run(_module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return the fields of schema.State."""
    gateway = io_info.Gateway(io_client.Server(given.url, given.ca_file, given.server_name), given.key_file)
    found, problem = gateway.report(given.expected, given.timeout, given.healthy)
    clients = io_info.rows(given.clients_file, found.usage)
    kinds = {model.name: model.kind for model in found.models if model.healthy} if given.test else {}
    reasons = {name: gateway.answers(name, kind, given.test_timeout) for name, kind in kinds.items()}
    unanswered = {name: reason for name, reason in reasons.items() if reason}
    return {"changed": False, **asdict(schema.State(problem, found.models, clients, unanswered))}
