# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Query Ray's nodes through its State API.

It is also a program on the head, so that a start without Ansible waits for the same nodes.
Source: Ray documentation, "State API", and ray/util/state/common.py.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign, io_local, paths

_REQUEST_SECONDS = 10
_PAUSE_SECONDS = 1
#: Maximum bytes read of a response. Each of at most 1000 rows has less than 4 KB.
_MOST = 8 * 1024**2
#: Maximum characters of an error, which may have texts of Ray and of other nodes.
_MOST_ERROR = 4096
#: Ray's HTTP status for a missing or wrong token.
_REFUSED = (401, 403)
#: The units whose processes receive the token.
UNITS = (paths.RAY_UNIT,)
_SUCCESS = 200


class RayError(Exception):
    """Ray did not respond, or its response was invalid."""


class OpenRayError(RayError):
    """Ray accepts requests without a token. Waiting does not help."""


def listing(resource: str, port: int, token_path: str) -> list[dict[str, Any]]:
    """Return all rows of a resource of the State API, such as "nodes" or "actors", from the dashboard on loopback.

    Raises RayError with the cause. Only Ray's unit receives the token, which never appears in the error.
    """
    path = f"/api/v0/{resource}?limit=1000"
    try:
        if not io_local.read(token_path):
            raise ValueError(f"{token_path} contains no token")
        status, text = _get(port, path, io_local.Secret(token_path, UNITS, "Ray's token"))
        if status != _SUCCESS:
            raise ValueError(f"HTTP {status}")
        rows: list[dict[str, Any]] = json.loads(text)["data"]["result"]["result"]
        return rows
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RayError(f"Ray's State API at http://127.0.0.1:{port}{path} did not respond: {error}") from error


def _get(port: int, path: str, secret: io_local.Secret | None = None) -> tuple[int, bytes]:
    with contextlib.closing(io_local.Connection("127.0.0.1", port, _REQUEST_SECONDS)) as connection:
        connection.request("GET", path, secret=secret)
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST)


def require_token(port: int) -> None:
    """Request the nodes without a token. Raises OpenRayError if Ray accepts the request.

    Then any host that reaches Ray's ports can run code on every node. Raises RayError without a response.
    """
    path = "/api/v0/nodes?limit=1"
    url = f"http://127.0.0.1:{port}{path}"
    try:
        status, _text = _get(port, path)
    except (OSError, http.client.HTTPException) as error:
        raise RayError(f"Ray's State API at {url} did not respond: {error}") from error
    if status not in _REFUSED:
        raise OpenRayError(f"{url} accepted a request without a token (HTTP {status}). Expected: 401 or 403")


def missing(rows: Sequence[Mapping[str, Any]], expected: Mapping[str, str], gpus: int) -> list[str]:
    """Return a sentence for each expected node (name -> address) that Ray does not list as alive with `gpus` GPUs."""
    alive = {row["node_ip"]: row for row in rows if row["state"] == "ALIVE"}
    counted = Counter(row["node_ip"] for row in rows if row["state"] == "ALIVE")
    sentences = []
    for name, address in expected.items():
        if address not in alive:
            sentences.append(f"{name} ({address}) has not joined")
        elif counted[address] > 1:
            listed = f"{name} ({address}) is listed {counted[address]} times"
            sentences.append(f"{listed}: Ray has not removed its old process yet")
        elif (found := alive[address]["resources_total"].get("GPU", 0)) < gpus:
            sentences.append(f"{name} ({address}) offers {found:g} GPUs instead of {gpus}")
    sentences += [
        f"{address} joined and is not in the inventory" for address in alive if address not in expected.values()
    ]
    return sentences


def wait(expected: Mapping[str, str], gpus: int, port: int, token_path: str, timeout: float) -> list[dict[str, Any]]:
    """Wait until Ray lists exactly the expected nodes, verify that it requires a token, and return its rows.

    Raises RayError, naming every node, after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            rows = listing("nodes", port, token_path)
            reported = "; ".join(missing(rows, expected, gpus))
            if not reported:
                require_token(port)
                return rows
        except OpenRayError:
            raise
        except RayError as error:
            reported = str(error)
        except (KeyError, TypeError, AttributeError) as error:
            reported = f"Ray's list of nodes has another form: {error!r}"
        if time.monotonic() >= deadline:
            raise RayError(f"after {timeout:g} s: {reported}")
        time.sleep(_PAUSE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command-line entry point. RAY_AUTH_TOKEN_PATH names the token's file."""
    parser = argparse.ArgumentParser(description="Wait until Ray lists every node of the cluster.")
    parser.add_argument(
        "--expect", action="append", required=True, metavar="NAME=ADDRESS", help="a node; repeat for each"
    )
    parser.add_argument("--gpus", type=int, default=1, help="GPUs that each node must offer (default 1)")
    parser.add_argument("--port", type=int, default=8265, help="port of the dashboard (default 8265)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds (default 600)")
    options = parser.parse_args(arguments)
    expected = dict(entry.split("=", 1) for entry in options.expect)
    try:
        wait(expected, options.gpus, options.port, os.environ["RAY_AUTH_TOKEN_PATH"], options.timeout)
    except RayError as error:
        sys.stderr.write(f"Ray is not complete {foreign.line(str(error), _MOST_ERROR)}\n")
        return 1
    sys.stdout.write(f"Ray counts all {len(expected)} nodes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
