# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start vLLM on real GPUs exactly as the collection plans it, and measure its answers.

    .venv/bin/python tests/gpu/serve.py --runtime /opt/vllm --folder /var/tmp/serve [--nodes 2] [--nccl SOURCE
    --identity 'sha256 …']

RUNTIME is the folder of a virtual environment with a CUDA build of vLLM, and Ray. The role gb10 reads and plans a
cluster of NODES hosts with one GPU each (hosts.py), as for site.yml. Argv and environment of Ray and vLLM are taken
from that plan unchanged, except for the check of the API key. The model is that of moe.py with FP8 in blocks. It was
trained to recite passages, so every token of an answer is known. On one host it is served with CUDA graphs, eager, with
the flags and variables that vllm_patch returns for that GPU, and with the arguments of a recipe. On several hosts it is
served by Ray and by the executor mp, with tensor parallelism. With --nccl, NCCL is built for the GPUs and replaces the
wheel's library, and nccl_info reads the mapped libraries of each rank. Afterwards FOLDER contains report.json,
report.md, plans and logs. The exit status is 1 if a check fails.

Standard library only. Run it as root with a Python that has ansible-core, such as that of .venv.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adhoc import (
    ROOT,
    below,
    conclude,
    module,
    parsed,
    parser,
    passages,
    running,
    selected,
    trained,
    until_healthy,
)
from client import decode, recited
from hosts import Host, hosts

from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Plan, PlannedNode

#: Tokens of a measured answer, the number of measurements, and Ray's object store in bytes.
DECODE, ROUNDS, OBJECT_STORE = 512, 5, 1 << 30
#: NVLink's multicast can disable shared GPUs. DeepGEMM warms up for minutes, and a GB10 does not support it.
QUIET = {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "VERSION", "VLLM_USE_DEEP_GEMM": "0"}
#: The wait for Ray's nodes. Here Ray runs in no unit, so that its process counts as the unit's.
WAIT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray
io_local._unit = lambda _pid: io_ray.UNITS[0]
raise SystemExit(io_ray.main())
"""


@dataclass
class Case:
    """A cluster that serves: its inventory variables and its results."""

    name: str
    inventory: Mapping[str, Any]
    patch: Mapping[str, Any] = field(default_factory=dict)
    argv: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    failure: str = ""
    recited: int = 0
    rates: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    selected: list[str] = field(default_factory=list)
    mapped: list[Any] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The prefix of its files' names."""
        return re.sub(r"\W+", "-", self.name)


def main() -> None:
    given = parser(__doc__, "not in /tmp, for the model, plans, logs and reports")
    given.add_argument(
        "--runtime", required=True, type=Path, help="a virtual environment with a CUDA build of vLLM, and Ray"
    )
    given.add_argument("--nodes", type=int, default=1)
    given.add_argument("--nccl", type=Path, help="NCCL's source tree; without it the wheel's is used")
    given.add_argument("--identity", help="identity of that source, such as the hash of its archive")
    given.add_argument(
        "--start-seconds", type=int, default=600, help="limit for a server to come up, including compilation"
    )
    given.add_argument("--cases", nargs="+", help="only these")
    options = parsed(given)
    conclude(options.folder, "A served plan", measure(options))


def cases(options: argparse.Namespace, patch: Mapping[str, Any]) -> list[Case]:
    """Return the clusters to serve, in order."""
    if options.nodes > 1:
        both = [
            Case("ray", {"gb10_distributed_executor_backend": "ray"}),
            Case("mp", {"gb10_distributed_executor_backend": "mp"}),
        ]
    else:
        eager = {"gb10_vllm_extra_args": ["--enforce-eager"]}
        both = [
            Case("graphs", {}),
            Case("eager", eager),
            Case("graphs, our flags", {}, patch),
            Case("eager, our flags", eager, patch),
        ]
        both.append(Case("recipe", recipe(options.folder)))
    return [case for case in both if not options.cases or case.name in options.cases]


def recipe(folder: Path) -> dict[str, Any]:
    """Write a recipe with the arguments of NVIDIA's single-Spark example that suit this GPU and model.

    Return its variables.
    """
    command = (
        "vllm serve lab/moe --host 0.0.0.0 --port {port} --gpu-memory-utilization 0.5 --max-model-len "
        "{max_model_len} --max-num-seqs 8 --max-num-batched-tokens 2048 --enable-chunked-prefill "
        "--async-scheduling --enable-prefix-caching"
    )
    data = {
        "recipe_version": "1",
        "name": "moe",
        "container": "vllm-node",
        "defaults": {"port": 8000, "max_model_len": 2048},
        "env": {"VLLM_LOGGING_LEVEL": "INFO", "NCCL_IB_HCA": "mlx5_0"},
        "command": command,
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    return {
        "gb10_recipe": str(path),
        "gb10_recipe_images": {"vllm-node": "native"},
        "gb10_distributed_executor_backend": "mp",
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: GPUs, plans, servers, answers and checks."""
    python = str(options.runtime / "bin/python")
    gpus = module("gpu_info", {})
    if len(gpus["gpus"]) < options.nodes:
        sys.exit(f"{options.nodes} GPUs are needed; found {len(gpus['gpus'])}: {gpus['reason']}")
    models = trained(python, options.folder)
    known = passages(models)
    nccl = build(options, gpus) if options.nccl else {}
    capability = gpus["gpus"][0]["capability"]
    patch = module(
        "vllm_patch",
        {"python": python, "capability": capability, "patches": ["w8a8", "w8a8_torch", "fp8_moe_oracle"]},
        check=True,
    )
    served = []
    with hosts(options.nodes, options.folder) as there:
        for case in cases(options, patch):
            served.append(case)
            serve(case, there, options, nccl, known)
            sys.stdout.write(
                f"{case.name}: {case.failure or f'{case.seconds:.0f} s, {case.recited} recited, {case.rates}'}\n"
            )
            sys.stdout.flush()
    if nccl:
        module("nccl_select", {"python": python, "state": "absent"})
    report = {
        "gpu": gpus,
        "capability": capability,
        "nodes": options.nodes,
        "vllm": patch["vllm_version"],
        "cuda": patch["cuda_build"],
        "passages": len(known),
        "nccl": {key: nccl[key] for key in ("name", "sha256", "seconds") if key in nccl},
        "cases": [
            vars(case) | {"patch": {key: case.patch[key] for key in ("flags", "environment") if case.patch}}
            for case in served
        ],
    }
    return report | {"checks": checks(report)}


def build(options: argparse.Namespace, gpus: Mapping[str, Any]) -> dict[str, Any]:
    """Build NCCL and link it in place of the wheel's library, like the role nccl_sm121_build. Return nccl_build's
    result, the library and an override."""
    began, packed = time.monotonic(), str(options.folder / "nccl.tar")
    capabilities = sorted({gpu["capability"] for gpu in gpus["gpus"]})
    source = {"source": str(options.nccl.resolve()), **({"identity": options.identity} if options.identity else {})}
    built = module(
        "nccl_build", {"store": str(options.folder / "store"), "capabilities": capabilities, "pack": packed, **source}
    )
    library = str(options.folder / "store" / built["name"] / "lib/libnccl.so.2")
    preferred = module("nccl_select", {"python": str(options.runtime / "bin/python"), "library": library})
    addition = {"environment": preferred["environment"], "flags": [], "files": {library: built["sha256"]}, "mounts": []}
    return built | {
        "library": library,
        "capabilities": capabilities,
        "addition": addition,
        "seconds": time.monotonic() - began,
    }


def planned(case: Case, there: Sequence[Host], options: argparse.Namespace, nccl: Mapping[str, Any]) -> Plan:
    """Return the cluster's plan that the role gb10 makes from an inventory of these hosts.

    Exits with preflight's errors.
    """
    frozen = subprocess.run(
        [str(options.runtime / "bin/python"), "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        check=True,
    )
    lock = options.folder / "lock.txt"
    # The plan requires hashes of the packages to install. These are installed already.
    pins = [line.split("+")[0] for line in frozen.stdout.splitlines() if "==" in line]
    lock.write_text("".join(f"{pin} --hash=sha256:{'0' * 64}\n" for pin in pins), encoding="utf-8")

    def host(entry: Host) -> dict[str, Any]:
        return {
            "ansible_connection": "local",
            "ansible_host": entry.address,
            "ansible_python_interpreter": entry.python,
            "ansible_become": False,
        }

    head, *others = there
    groups = {
        "head": {"hosts": {head.name: host(head)}},
        "worker": {"hosts": {entry.name: host(entry) for entry in others}},
    }
    variables = {
        "gb10_model": str(options.folder / "models" / "block"),
        "gb10_served_model_name": "moe",
        "gb10_runtime_lock": str(lock),
        "gb10_install_dir": str(options.folder / "root"),
        "gb10_api_host": head.address,
        "gb10_extra_env": QUIET,
        **({"gb10_fabric_topology": "socket", "gb10_tensor_parallel_size": len(there)} if others else {}),
        **case.inventory,
    }
    inventory, target = (options.folder / f"{case.label}.{what}.json" for what in ("inventory", "plan"))
    inventory.write_text(
        json.dumps({"gb10_cluster": {"children": groups, "vars": variables}}, indent=1), encoding="utf-8"
    )
    playbook = str(Path(__file__).with_name("plan.yml"))
    command = [sys.executable, "-m", "ansible", "playbook", playbook, "-i", str(inventory), "-e", f"plan_file={target}"]
    own = os.environ | {"ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    result = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"the plan of {case.name} failed:\n{result.stdout}{result.stderr}")
    plan = load.plan(json.loads(target.read_text(encoding="utf-8")))
    if not isinstance(plan.runtime, Environment):
        sys.exit(f"the plan of {case.name} has no environment")
    runtime = Path(plan.runtime.path)
    runtime.parent.mkdir(parents=True, exist_ok=True)
    if not runtime.exists():
        runtime.symlink_to(options.runtime.resolve())
    for role, addition in (
        ("vllm_patch", {**case.patch, "mounts": []}),
        ("nccl_sm121_build", nccl.get("addition", {})),
    ):
        if "flags" in addition:
            plan = overrides.merge(plan, role, {entry.name: {"runtime": str(runtime), **addition} for entry in there})
    return plan


def server(plan: Plan, node: PlannedNode) -> list[str]:
    """Return vLLM's argv without the check of the API key, whose files the role vllm_serve installs."""
    return [word for word in launch_argv.vllm_argv(plan.at(node)) if not word.startswith("--middleware=")]


def serve(
    case: Case,
    there: Sequence[Host],
    options: argparse.Namespace,
    nccl: Mapping[str, Any],
    known: Sequence[Mapping[str, list[int]]],
) -> None:
    """Launch the plan's processes on each host, query the model, and stop them."""
    plan = planned(case, there, options, nccl)
    names = {entry.name: entry for entry in plan.nodes}
    token = options.folder / "ray.token"
    token.write_text("0" * 64, encoding="ascii")
    token.chmod(0o600)

    def environment(host: Host) -> dict[str, str]:
        # The same as in the units.
        ray = (
            {"RAY_ADDRESS": f"{plan.head.address}:{plan.ray_port}", "RAY_AUTH_TOKEN_PATH": str(token)}
            if plan.executor == "ray"
            else {}
        )
        cache = {"VLLM_CACHE_ROOT": str(options.folder / "cache"), "HOME": str(options.folder / "home")}
        return host.environment() | cache | overrides.rank_environment(names[host.name]) | ray

    began, logs = time.monotonic(), []
    head = there[0]
    case.argv = [word.replace(str(options.folder), "FOLDER") for word in server(plan, names[head.name])]
    case.environment = overrides.rank_environment(names[head.name])
    with contextlib.ExitStack() as stack:
        # After the last process: its GPU memory is free a moment later.
        stack.callback(time.sleep, 1)

        def start(host: Host, argv: list[str], what: str) -> subprocess.Popen[bytes]:
            logs.append(options.folder / f"{case.label}-{what}-{host.name}.log")
            return stack.enter_context(running([*host.prefix, *argv], environment(host), logs[-1]))

        processes = []
        if plan.executor == "ray":
            processes = [
                start(host, launch_argv.ray_argv(plan.at(names[host.name]), OBJECT_STORE), "ray") for host in there
            ]
            expected = [f"--expect={entry.name}={entry.address}" for entry in plan.nodes]
            waiter = [sys.executable, "-c", WAIT, str(ROOT / ".collections"), "--timeout=180", *expected]
            subprocess.run([*head.prefix, *waiter], env=environment(head), check=True)
        for host in there if plan.executor == "mp" and len(there) > 1 else [head]:
            processes.append(start(host, server(plan, names[host.name]), "vllm"))
        url = f"http://{plan.api_host}:{plan.api_port}"
        try:
            until_healthy(url, processes, options.start_seconds)
            case.seconds = time.monotonic() - began
            case.recited = recited(url, known)
            for _ in range(ROUNDS):
                rate, first = decode(url, known[0]["opening"], DECODE)
                case.rates.append(rate)
                case.first.append(first)
            case.mapped, case.problems = mapped(processes, nccl)
        except (OSError, RuntimeError) as error:
            case.failure = str(error)
    case.selected = selected(logs)


def mapped(processes: Sequence[subprocess.Popen[bytes]], nccl: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
    """Return the mapped NCCL libraries of these processes and their descendants, and nccl_info's problems; both empty
    without a build."""
    if not nccl:
        return [], []
    pids = sorted({pid for process in processes for pid in below(process.pid)})
    requires = {
        "capabilities": nccl["capabilities"],
        "sha256": nccl["sha256"],
        "alone": not nccl["addition"]["environment"],
    }
    loaded = [
        pid for pid in pids if "libnccl" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    ]
    told = module("nccl_info", {"path": nccl["library"], "pids": loaded, "requires": requires})
    return told["processes"], told["problems"]


def checks(report: Mapping[str, Any]) -> dict[str, bool]:
    """Return the checks, each with its result."""
    served = report["cases"]
    result = {
        "every plan comes up and answers": not any(case["failure"] for case in served),
        "every token of every passage is right": all(case["recited"] == report["passages"] for case in served),
    }
    of = {case["name"]: case for case in served}
    if report["nodes"] == 1 and {"graphs", "eager"} <= of.keys():
        result["graphs decode faster than eager"] = statistics.median(of["graphs"]["rates"] or [0]) > statistics.median(
            of["eager"]["rates"] or [0]
        )
    if "graphs, our flags" in of:
        kernels = [line for line in of["graphs, our flags"]["selected"] if line.startswith("Selected ")]
        left_out = not re.search("Cutlass|FlashInfer", "".join(kernels))
        result["with our flags no linear layer uses CUTLASS or FlashInfer"] = bool(kernels) and left_out
    if report["nccl"]:
        result["ranks on every host map only our NCCL"] = all(
            len(case["mapped"]) >= report["nodes"] and not case["problems"] for case in served
        )
    return result


if __name__ == "__main__":
    main()
