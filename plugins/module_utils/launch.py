# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on each node: the argv and environment of Ray and vLLM, and the digest by which a running service is recognised."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils import additions, api_access

#: A Spark has one GPU.
GPUS_PER_NODE = 1

#: Ray's fixed listeners, as distances from gb10_ray_port. Left alone, Ray picks them at random and no firewall can know them.
#: Source: Ray documentation, "Configuring Ray: ports".
RAY_PORTS: Mapping[str, int] = {
    "port": 0,
    "node-manager-port": 1,
    "object-manager-port": 2,
    "runtime-env-agent-port": 3,
    "dashboard-agent-grpc-port": 4,
    "dashboard-agent-listen-port": 5,
    "metrics-export-port": 6,
    "ray-client-server-port": 7,
}
_HEAD_ONLY = ("port", "ray-client-server-port")
RAY_DASHBOARD_PORT = 8265
RAY_WORKER_PORTS = (20000, 20999)
#: Where the role vllm_serve puts io_rank.py.
RANK_PROGRAM = "/usr/local/lib/gb10-rank.py"

#: The variable in a unit's environment that carries the digest of everything the service was started from.
INPUTS_VARIABLE = "GB10_INPUTS"
PLACEHOLDER = "@inputs@"


def own_environment(fabric: Mapping[str, str], model: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return what the plan and the user give every process of one node; the user's own variables come last and win.

    Ray's memory monitor is off because it counts the weights in unified memory as leaked host memory and kills the worker.
    """
    offline = {"HF_HUB_OFFLINE": "1"} if model.startswith("/") else {}
    return {
        **fabric,
        **offline,
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "VLLM_NO_USAGE_STATS": "1",
        **extra,
    }


def ray_ports(base: int, head: bool) -> dict[str, int]:
    """Return option name -> port of each fixed listener of Ray on the head or on a worker."""
    return {name: base + offset for name, offset in RAY_PORTS.items() if head or name not in _HEAD_ONLY}


def ray_argv(plan: Mapping[str, Any], object_store_memory: int, args: Sequence[str] = ()) -> list[str]:
    """Return the argv of ``ray start`` on the plan's node. ``object_store_memory`` in bytes."""
    node, port = plan["node"], plan["ray_port"]
    role = (
        ["--head", "--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={RAY_DASHBOARD_PORT}"]
        if node["head"]
        else [f"--address={plan['head']['address']}:{port}"]
    )
    return [
        f"{plan['runtime']['path']}/bin/ray",
        "start",
        "--block",
        *role,
        f"--node-ip-address={node['address']}",
        *(f"--{name}={number}" for name, number in ray_ports(port, node["head"]).items()),
        f"--min-worker-port={RAY_WORKER_PORTS[0]}",
        f"--max-worker-port={RAY_WORKER_PORTS[1]}",
        f"--num-gpus={GPUS_PER_NODE}",
        f"--object-store-memory={object_store_memory}",
        *args,
    ]


def vllm_argv(plan: Mapping[str, Any]) -> list[str]:
    """Return the argv of ``vllm serve`` on the plan's node. The user's arguments come last, so they win where an option is given twice.

    With Ray it runs on the head alone. With mp it runs on every node, and only the head's has the API.
    """
    node, ranks = plan["node"], len(plan["nodes"])
    guard = [f"--middleware={api_access.GUARD}"] if plan["api_key"] else []
    api = [f"--host={plan['api_host']}", f"--port={plan['api_port']}", *guard] if node["head"] else ["--headless"]
    meet = [f"--master-addr={plan['head']['address']}", f"--master-port={plan['rendezvous_port']}"]
    return [
        f"{plan['runtime']['path']}/bin/vllm",
        "serve",
        plan["model"],
        f"--served-model-name={plan['served_model_name']}",
        *api,
        f"--tensor-parallel-size={plan['tensor_parallel_size']}",
        f"--pipeline-parallel-size={plan['pipeline_parallel_size']}",
        f"--distributed-executor-backend={plan['executor']}",
        *([f"--nnodes={ranks}", f"--node-rank={_rank(plan)}", *meet] if plan["executor"] == "mp" and ranks > 1 else []),
        *plan["serve"]["args"],
        *additions.serve_flags(plan["nodes"]),
        *plan["serve"]["own"],
    ]


def rank_argv(plan: Mapping[str, Any]) -> list[str]:
    """Return the argv of what starts and ends vLLM on the plan's node together with the other ranks; see io_rank.py."""
    # What all ranks are started from, as the service's inputs: what else of a node changes must not restart them.
    of_nodes = [[additions.rank_environment(node), node["additions"]] for node in plan["nodes"]]
    group = digest([vllm_argv({**plan, "node": plan["nodes"][0]}), of_nodes])[:16]
    place = [f"--address={plan['head']['address']}", f"--port={plan['rendezvous_port'] + 1}", f"--group={group}"]
    return ["/usr/bin/python3", RANK_PROGRAM, *place, f"--rank={_rank(plan)}", f"--ranks={len(plan['nodes'])}", "--", *vllm_argv(plan)]


def _rank(plan: Mapping[str, Any]) -> int:
    return [node["name"] for node in plan["nodes"]].index(plan["node"]["name"])


def stamped_unit(text: str, inputs: Sequence[Any]) -> dict[str, str]:
    """Return {text, inputs}: a unit with its placeholder `@inputs@` replaced by a digest of the unit itself and of `inputs`.

    `inputs` is whatever else the service is started from, such as the environment of its ranks. Raises ValueError without placeholder.
    """
    if PLACEHOLDER not in text:
        raise ValueError(f"the unit has no placeholder {PLACEHOLDER}")
    value = digest([text, list(inputs)])
    return {"text": text.replace(PLACEHOLDER, value), "inputs": value}


def exec_line(argv: Sequence[str]) -> str:
    """Return an argv as the value of ExecStart=."""
    return " ".join(systemd_quote(word) for word in argv)


def digest(data: Any) -> str:
    """Return a SHA-256 over plain data that does not depend on the order of keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def systemd_quote(word: str, exec_line: bool = True) -> str:
    """Quote one word for ExecStart= or Environment=. Source: systemd.service(5), "COMMAND LINES"; systemd.exec(5).

    Raises ValueError for a line break, which neither can carry; to systemd a carriage return is one, too.
    """
    if re.search(r"[\n\r\0]", word):
        raise ValueError(f"{word!r} contains a line break")
    word = word.replace("%", "%%")
    if exec_line:
        word = word.replace("$", "$$")
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./$-]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def environment_file(variables: Mapping[str, str]) -> str:
    """Return the variables as a file that both systemd's EnvironmentFile= and a POSIX shell read alike, sorted.

    Raises ValueError that lists every name that is no variable name and every value with a line break.
    """
    lines, wrong = [], []
    for name, value in sorted(variables.items()):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            wrong.append(f"{name!r} is not the name of an environment variable")
        if re.search(r"[\n\0]", value):
            wrong.append(f"the value of {name} contains a line break")
        plain = re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]*", value)
        quoted = value if plain else '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
        lines.append(f"{name}={quoted}\n")
    if wrong:
        raise ValueError("; ".join(wrong))
    return "".join(lines)
