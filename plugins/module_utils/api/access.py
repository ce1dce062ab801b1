# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may use the API: its key, how the head's server gets it, from where it is reached, and by which address."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

KEY_VARIABLE = "VLLM_API_KEY"
#: Where the role vllm_serve puts io_api_guard.py, under the name by which vLLM imports it.
GUARD_FOLDER = "/usr/local/lib/gb10"
GUARD = "gb10_api_guard.Guard"
#: What vLLM reads as VLLM_CONFIG_ROOT: the role vllm_serve puts a list there of what vLLM must not copy from the head's server to Ray's
#: workers. Source: vllm/ray/ray_env.py, 0.13.0 to 0.32.0; from 0.20 on the executor for Ray copies all of the server's environment but that.
CONFIG_FOLDER = "/etc/gb10/vllm"
#: What the head's server has in its environment for it, and no other process.
VARIABLES = (KEY_VARIABLE, "PYTHONPATH", "VLLM_CONFIG_ROOT")
_SHORTEST_KEY = 16
#: Addresses that stand for all of a host's, and where the host itself asks then.
_ANY: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def key_problem(key: str) -> str:
    """Return what is wrong with a key of the user's own, without the key; "" if nothing is, or none is given."""
    if key and not re.fullmatch(r"[!-~]+", key):
        return "it contains blanks, line breaks or characters beyond ASCII, which no HTTP header carries"
    if key and len(key) < _SHORTEST_KEY:
        return f"it has {len(key)} characters"
    return ""


def check(keyed: bool, problem: str, host: str, name: str, clients: Sequence[str]) -> list[Problem]:
    """Return every problem of the settings about the API's access. ``problem`` is key_problem's answer: the key itself is in no plan."""
    problems = []
    if problem:
        fix = "leave it empty, and a key is generated on the head"
        problems.append(Problem("gb10_api_key", problem, f"{_SHORTEST_KEY} visible ASCII characters or more", fix))
    if name and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", name) and not _network(name):
        problems.append(Problem("gb10_api_name", repr(name), "a DNS name or an address, without port", "correct gb10_api_name"))
    if not keyed and not loopback(host):
        fix = "leave gb10_api_key_enabled: true, or set gb10_api_host: 127.0.0.1 and forward the port by ssh"
        problems.append(Problem("gb10_api_host", f"{host} without a key: anybody on the network could use the API", "a key, or loopback", fix))
    problems += [
        Problem(f"gb10_api_clients[{index}]", repr(client), "an address or a network, such as 192.168.1.0/24 or fd00::/8", "correct gb10_api_clients")
        for index, client in enumerate(clients)
        if not _network(client)
    ]
    return problems


def environment(key: str, ranks: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the head's server alone; ``ranks`` are those of every process of the node, over which these win."""
    path = [GUARD_FOLDER, *filter(None, ranks.get("PYTHONPATH", "").split(":"))]
    return dict(zip(VARIABLES, (key, ":".join(dict.fromkeys(path)), CONFIG_FOLDER), strict=True))


def place(host: str, port: int, name: str, address: str, tls: bool) -> dict[str, str]:
    """Return {url, server_name, endpoint, client}: where the head itself asks, whose certificate is expected there ("" without TLS), and what
    clients use: a URL, and the name or address in it.

    ``name`` is gb10_api_name; without one clients use ``host``, or the management ``address`` where the API listens on all.
    """
    scheme, client = "https" if tls else "http", name or (address if host in _ANY else host)
    return {
        "url": f"{scheme}://{_bracketed(_ANY.get(host, host))}:{port}",
        "server_name": client if tls else "",
        "endpoint": f"{scheme}://{_bracketed(client)}:{port}/v1",
        "client": client,
    }


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def loopback(host: str) -> bool:
    """Whether nobody but the head itself reaches this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
