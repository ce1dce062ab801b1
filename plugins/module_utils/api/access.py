# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Access to the API: its key, the variables of the head's server, its clients and its address."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

KEY_VARIABLE = "VLLM_API_KEY"
#: The role vllm_serve installs io_guard.py here, under the name that vLLM imports, and the files that it imports, where
#: Python finds them in this folder.
GUARD_FOLDER = "/usr/local/lib/gb10"
GUARD = "gb10_api_guard.Guard"
_UTILS = limits.__name__.removesuffix(".common.limits").replace(".", "/")
_COMMON = ("limits", "bodies", "costs", "answers", "io_turns")
GUARD_FILES = {
    f"{GUARD_FOLDER}/{_UTILS}/{name}.py": f"{name}.py"
    for name in (*(f"common/{name}" for name in _COMMON), "api/io_connections")
} | {f"{GUARD_FOLDER}/gb10_api_guard.py": "api/io_guard.py"}
#: The value of VLLM_CONFIG_ROOT. The role vllm_serve writes a list there of variables that vLLM must not copy from the
#: head's server to Ray's workers. Source: vllm/ray/ray_env.py, 0.13.0 to 0.32.0; from 0.20 on, the executor for Ray
#: copies the server's whole environment except that list.
CONFIG_FOLDER = "/etc/gb10/vllm"
#: Variables that only the head's server gets.
VARIABLES = (KEY_VARIABLE, "PYTHONPATH", "VLLM_CONFIG_ROOT")
_SHORTEST_KEY = 16
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9.\[\]:_-]+", re.ASCII)
#: Wildcard addresses, and the address that the host itself uses then.
_ANY: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def key_problem(key: str) -> str:
    """Return the error in a user's key, without the key; "" if the key is valid or not set."""
    if key and not re.fullmatch(r"[!-~]+", key):
        return "it contains blanks, line breaks or characters beyond ASCII, which HTTP headers cannot carry"
    if key and len(key) < _SHORTEST_KEY:
        return f"it has {len(key)} characters"
    return ""


def check(keyed: bool, problem: str, host: str, name: str, clients: Sequence[str]) -> list[Problem]:
    """Return all problems in the API's settings. ``problem`` is from key_problem, because plans never hold the key."""
    problems = []
    if problem:
        fix = "leave it empty to generate a key on the head"
        problems.append(Problem("gb10_api_key", problem, f"{_SHORTEST_KEY} visible ASCII characters or more", fix))
    address = not {"/", "%"} & {*name} and is_network(name)
    if name and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", name) and not address:
        problems.append(
            Problem(
                "gb10_api_name", repr(name), "a DNS name or an address, without port and zone", "correct gb10_api_name"
            )
        )
    if not keyed and not loopback(host):
        fix = "leave gb10_api_key_enabled: true, or set gb10_api_host: 127.0.0.1 and forward the port by ssh"
        found = f"{host} without a key: every host on the network could use the API"
        problems.append(Problem("gb10_api_host", found, "a key, or a loopback address", fix))
    problems += [
        Problem(
            f"gb10_api_clients[{index}]",
            repr(client),
            "an address or a network, such as 192.168.1.0/24 or fd00::/8",
            "correct gb10_api_clients",
        )
        for index, client in enumerate(clients)
        if not is_network(client)
    ]
    return problems


def check_address(host: str, name: str, address: str) -> list[Problem]:
    """Return the problem of an endpoint at which no client reaches the API; the arguments are those of place()."""
    client, expected = name or (address if host in _ANY else host), "an address without a zone, which URLs cannot have"
    if "%" in host:
        return [Problem("gb10_api_host", repr(host), expected, "correct gb10_api_host")]
    if "%" in client:
        # check() reports the name.
        found, fix = f"the API is at {client!r} for clients", "set gb10_api_name, or another ansible_host"
        return [] if name else [Problem("nodes[0].address", found, expected, fix)]
    if host == "0.0.0.0" and ":" in client and is_network(client):
        found = f"{host}, which is for IPv4 alone, and clients connect to {client}"
        fix = "set gb10_api_host: '::', or gb10_api_name to a DNS name or an IPv4 address"
        return [Problem("gb10_api_host", found, "an address that clients can connect to", fix)]
    return []


def origin_problems(variable: str, origins: Sequence[str]) -> list[Problem]:
    """Return the entries of a list of origins that no browser sends."""
    expected, fix = (
        "an origin such as https://chat.example.com or http://localhost:3000, or *",
        "write scheme, host and port, without a path",
    )
    wrong = [index for index, origin in enumerate(origins) if origin != "*" and not _ORIGIN.fullmatch(origin)]
    return [Problem(f"{variable}[{index}]", repr(origins[index]), expected, fix) for index in wrong]


def environment(key: str, ranks: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the head's server alone. They override ``ranks``, those of all processes of the node."""
    path = [GUARD_FOLDER, *filter(None, ranks.get("PYTHONPATH", "").split(":"))]
    return dict(zip(VARIABLES, (key, ":".join(dict.fromkeys(path)), CONFIG_FOLDER), strict=True))


def place(host: str, port: int, name: str, address: str, tls: bool) -> dict[str, str]:
    """Return {url, server_name, endpoint, client}.

    ``url`` is for the head itself, ``server_name`` is the name in the certificate that it expects ("" without TLS).
    ``endpoint`` is the URL for clients, ``client`` is the name or address in that URL: ``name`` (gb10_api_name) if set,
    else ``host``, or the management ``address`` where the API listens on all addresses.
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
    """Return whether only the head itself can reach this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_address(text: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_network(text: str) -> bool:
    """Return whether a text is an IP address or a network."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
