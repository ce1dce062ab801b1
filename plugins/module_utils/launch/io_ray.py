# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asking Ray which nodes it counts, through its State API.

The role ray_cluster also installs this file on the head as a script, so that a start without Ansible waits for the same nodes;
therefore it needs nothing but the standard library. Source: Ray documentation, "State API", and ray/util/state/common.py.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_REQUEST_SECONDS = 10
_PAUSE_SECONDS = 1
#: Bytes of an answer that are read; a row of 1000 has less than 4 KB.
_MOST = 8 * 1024**2
#: How Ray answers who has no token, or a wrong one.
_REFUSED = (401, 403)
#: The dashboard is on loopback: a proxy of the environment cannot reach it, and must not see the token.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RayError(Exception):
    """Ray did not answer, or not what it should."""


class OpenRayError(RayError):
    """Ray answers those who have no token, which no waiting mends."""


def listing(resource: str, port: int, token_path: str) -> list[dict[str, Any]]:
    """Return all rows of a resource of the State API, such as "nodes" or "actors", from the dashboard on loopback.

    Raises RayError with what was found. The token goes into a header and never into the error.
    """
    url = f"http://127.0.0.1:{port}/api/v0/{resource}?limit=1000"
    try:
        with open(token_path, encoding="ascii") as file:
            token = file.read().strip()
        # The refusal of such a header by http.client would quote it.
        if token.split() != [token]:
            raise RayError(f"{token_path} does not hold a token: one word is expected")
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with _DIRECT.open(request, timeout=_REQUEST_SECONDS) as answer:
            rows: list[dict[str, Any]] = json.loads(answer.read(_MOST))["data"]["result"]["result"]
            return rows
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RayError(f"Ray's State API at {url} does not answer: {error}") from error


def refuses_strangers(port: int) -> None:
    """Ask for the nodes without the token. Raises OpenRayError if Ray answers, for then whoever reaches its ports runs code on every node.

    Raises RayError if nobody answers.
    """
    url = f"http://127.0.0.1:{port}/api/v0/nodes?limit=1"
    try:
        with _DIRECT.open(url, timeout=_REQUEST_SECONDS) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
    except (OSError, http.client.HTTPException) as error:
        raise RayError(f"Ray's State API at {url} does not answer: {error}") from error
    if status not in _REFUSED:
        raise OpenRayError(f"{url} answers HTTP {status} without the token, where 401 or 403 is expected: this Ray lets anybody in")


def missing(rows: Sequence[Mapping[str, Any]], expected: Mapping[str, str], gpus: int) -> list[str]:
    """Say which of the expected nodes (name -> address) Ray does not count as alive with `gpus` GPUs, a sentence each."""
    alive = {row["node_ip"]: row for row in rows if row["state"] == "ALIVE"}
    counted = Counter(row["node_ip"] for row in rows if row["state"] == "ALIVE")
    sentences = []
    for name, address in expected.items():
        if address not in alive:
            sentences.append(f"{name} ({address}) has not joined")
        elif counted[address] > 1:
            sentences.append(f"{name} ({address}) is counted {counted[address]} times: Ray has not given up its former process yet")
        elif (found := alive[address]["resources_total"].get("GPU", 0)) < gpus:
            sentences.append(f"{name} ({address}) offers {found:g} GPUs instead of {gpus}")
    sentences += [f"{address} joined and is not in the inventory" for address in alive if address not in expected.values()]
    return sentences


def wait(expected: Mapping[str, str], gpus: int, port: int, token_path: str, timeout: float) -> list[dict[str, Any]]:
    """Wait until Ray counts exactly the expected nodes, prove that it refuses who has no token, and return its rows.

    Raises RayError, naming every node, after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            rows = listing("nodes", port, token_path)
            if not (sentences := missing(rows, expected, gpus)):
                refuses_strangers(port)
                return rows
            said = "; ".join(sentences)
        except OpenRayError:
            raise
        except RayError as error:
            said = str(error)
        if time.monotonic() >= deadline:
            raise RayError(f"after {timeout:g} s: {said}")
        time.sleep(_PAUSE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait from the command line; RAY_AUTH_TOKEN_PATH names the token's file."""
    parser = argparse.ArgumentParser(description="Wait until Ray counts every node of the cluster.")
    parser.add_argument("--expect", action="append", required=True, metavar="NAME=ADDRESS", help="a node; repeat for each")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs that each node must offer (default 1)")
    parser.add_argument("--port", type=int, default=8265, help="port of the dashboard (default 8265)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds (default 600)")
    options = parser.parse_args(arguments)
    expected = dict(entry.split("=", 1) for entry in options.expect)
    try:
        wait(expected, options.gpus, options.port, os.environ["RAY_AUTH_TOKEN_PATH"], options.timeout)
    except RayError as error:
        sys.stderr.write(f"Ray is not complete {error}\n")
        return 1
    sys.stdout.write(f"Ray counts all {len(expected)} nodes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
