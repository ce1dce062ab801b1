# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The argv and environment of Ray and vLLM on each node, and the digest that identifies a running service's inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.memory import adapters
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Fallback, Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

#: A Spark has one GPU.
GPUS_PER_NODE = 1

#: Ray's fixed listeners, as offsets from gb10_ray_port. By default Ray picks random ports, which no firewall allows.
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

#: The names of the units and of their containers.
RAY, VLLM = "gb10-ray", "gb10-vllm"
ENGINES = ("docker", "podman")
#: Docker does not know the devices that NVIDIA's hook adds for --gpus. systemd removes their permissions at its next
#: daemon-reload, and new CUDA contexts fail. Source: NVIDIA/nvidia-container-toolkit#48; dmytrogajewski/sy (a Spark).
_DEVICES = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_LASTING: Mapping[str, Sequence[str]] = {"docker": [f"--device=/dev/{name}" for name in _DEVICES], "podman": ()}
_GPUS: Mapping[str, Sequence[str]] = {"docker": ("--gpus=all",), "podman": ("--device=nvidia.com/gpu=all",)}
#: Assign a container's processes to the unit: Podman's stay in the unit's cgroup, Docker's belong to its daemon.
_CGROUP: Mapping[str, Callable[[str], Sequence[str]]] = {
    "docker": lambda unit: [f"--cgroup-parent={unit}.slice"],
    "podman": lambda _unit: ["--cgroups=split"],
}
#: Environment variables of the units, which no user and no recipe sets. The engine omits unset variables.
_OF_UNIT = ("RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S")
#: The user of containers whose service user is unknown.
NOBODY = "65534:65534"
#: Options of docker run and podman run that replace contained()'s network, IPC namespace, PID namespace or user.
_OVERRIDES = {
    "--network": "--network",
    "--net": "--network",
    "--ipc": "--ipc",
    "--pid": "--pid",
    "--user": "--user",
    "-u": "--user",
}


def own_environment(
    fabric: Mapping[str, str], tools: Mapping[str, str], user: str, model: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of every process of one node; ``tools``: see toolchain. The user's variables win.

    Ray's memory monitor is off because it counts the weights in unified memory as leaked host memory and kills the
    worker. Ray compares lines of the ranks without their words that contain digits, and drops other choices as repeated
    lines. Without its variable, Triton's kernels of the first start lie in the cache of torch.compile, and the second
    start compiles them again (vLLM 0.33.0, compilation/compiler_interface.py).
    """
    offline = {"HF_HUB_OFFLINE": "1"} if model.startswith("/") else {}
    return {
        **fabric,
        **tools,
        **offline,
        "RAY_AUTH_MODE": "token",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "TRITON_CACHE_DIR": f"{paths.home(user)}/.triton/cache",
        "VLLM_NO_USAGE_STATS": "1",
        **extra,
    }


def ray_ports(base: int, head: bool) -> dict[str, int]:
    """Return option name -> port for each fixed listener of Ray on the head or a worker."""
    return {name: base + offset for name, offset in RAY_PORTS.items() if head or name not in _HEAD_ONLY}


def ray_argv(plan: Plan, object_store_memory: int, args: Sequence[str] = ()) -> list[str]:
    """Return the argv of ``ray start`` on the plan's node. ``object_store_memory`` in bytes."""
    node, port = plan.node, plan.ray_port
    role = (
        ["--head", "--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={RAY_DASHBOARD_PORT}"]
        if node.head
        else [f"--address={plan.head.address}:{port}"]
    )
    return [
        program(plan, "ray"),
        "start",
        "--block",
        *role,
        f"--node-ip-address={node.address}",
        *(f"--{name}={number}" for name, number in ray_ports(port, node.head).items()),
        f"--min-worker-port={RAY_WORKER_PORTS[0]}",
        f"--max-worker-port={RAY_WORKER_PORTS[1]}",
        f"--num-gpus={GPUS_PER_NODE}",
        f"--object-store-memory={object_store_memory}",
        *args,
    ]


def vllm_argv(plan: Plan) -> list[str]:
    """Return the argv of ``vllm serve`` on the plan's node. The user's arguments come last and override earlier ones.

    With Ray, it runs on the head only. With mp, it runs on every node, and only the head serves the API.
    """
    node = plan.node
    guard = [f"--middleware={api_access.GUARD}"] if plan.api_key else []
    tls = [f"--ssl-{name}file={path}" for name, path in tls_files(plan).items()]
    api = [f"--host={plan.api_host}", f"--port={plan.api_port}", *guard, *tls] if node.head else ["--headless"]
    return [
        program(plan, "vllm"),
        "serve",
        plan.model,
        f"--served-model-name={plan.served_model_name}",
        *api,
        f"--tensor-parallel-size={plan.tensor_parallel_size}",
        f"--pipeline-parallel-size={plan.pipeline_parallel_size}",
        f"--distributed-executor-backend={plan.executor}",
        *_meeting(plan),
        *plan.serve.args,
        *overrides.serve_flags(plan.nodes),
        *plan.serve.user_args,
    ]


def fallback_argv(plan: Plan, given: Fallback) -> list[str]:
    """Return the argv of ``vllm serve`` for the fallback on the plan's node. Only this host reaches it."""
    return [
        program(plan, "vllm"),
        "serve",
        given.model,
        f"--served-model-name={given.served_model_name}",
        "--host=127.0.0.1",
        f"--port={given.port}",
        *([f"--middleware={api_access.GUARD}"] if plan.api_key else []),
        *given.args,
        *given.user_args,
    ]


def tls_files(plan: Plan) -> dict[str, str]:
    """Return the paths of the head's certificate and key, {} without TLS. Both are credentials of the unit.

    A container's user cannot read root's credentials, so the unit copies them to its runtime directory.
    Source: systemd.io, "System and Service Credentials", Paths.
    """
    folder = f"/run/credentials/{VLLM}.service" if plan.runtime.kind == stacks.NATIVE else f"/run/{VLLM}"
    return {name: f"{folder}/api.{name}" for name in ("cert", "key")} if plan.api_tls else {}


def _meeting(plan: Plan) -> list[str]:
    """Return the arguments that let ranks find each other.

    Source: vLLM 0.32, "Data Parallel Deployment"; engine/arg_utils.py.
    """
    ranks, address, port = len(plan.nodes), plan.head.address, plan.rendezvous_port
    if plan.data_parallel_size > 1:
        replicas = [
            f"--data-parallel-size={ranks}",
            "--data-parallel-size-local=1",
            f"--data-parallel-address={address}",
        ]
        if plan.by_ray:
            return [*replicas, "--data-parallel-backend=ray"]
        first = [] if plan.node.head else [f"--data-parallel-start-rank={_rank(plan)}"]
        return [*replicas, f"--data-parallel-rpc-port={port}", *first]
    if ranks > 1 and not plan.by_ray:
        return [f"--nnodes={ranks}", f"--node-rank={_rank(plan)}", f"--master-addr={address}", f"--master-port={port}"]
    return []


def program(plan: Plan, name: str) -> str:
    """Return a program of the runtime: its path in an environment, or its name in an image with its own PATH."""
    return f"{plan.runtime.path}/bin/{name}" if isinstance(plan.runtime, Environment) else name


def start_argv(plan: Plan, owner: str = "") -> list[str]:
    """Return the argv of vLLM's unit on the plan's node.

    The ranks of several nodes without Ray start and end together by io_rank.py.
    """
    started = contained(plan, VLLM, vllm_argv(plan), owner)
    if plan.by_ray or len(plan.nodes) == 1:
        return started
    place = [
        f"--address={plan.head.address}",
        f"--port={plan.rendezvous_port + 1}",
        f"--rank={_rank(plan)}",
        f"--ranks={len(plan.nodes)}",
        f"--timeout={plan.restart.gate_timeout}",
    ]
    # A container's unit runs it as root, which must not write bytecode into the service user's folder (-B).
    return ["/usr/bin/python3", "-I", "-B", RANK_PROGRAM, *place, "--", *started]


def start_digest(plan: Plan) -> str:
    """Return a digest of the launch inputs of all ranks. Other changes on a node must not restart the ranks."""
    of_nodes = [[overrides.rank_environment(node), node.additions] for node in plan.nodes]
    return systemd.digest([vllm_argv(plan.at(plan.nodes[0])), of_nodes])


def image(plan: Plan) -> str:
    """Return the image of the plan's node: the ID that vllm_runtime recorded (equal on all nodes), else its name."""
    name: str = plan.runtime.image
    return str(plan.node.additions.get(overrides.IMAGE_ROLE, {}).get("files", {}).get(name, name))


def contained(plan: Plan, unit: str, argv: Sequence[str], owner: str = "") -> list[str]:
    """Return the argv that a unit of the plan's node runs: unchanged, or in a container that is named after the unit.

    ``owner`` is the numeric user and group (``UID:GID``) of gb10_service_user. The container uses the host's network,
    for Ray's and NCCL's addresses, and the host's shared memory. It has no privileges, and no devices except the GPU
    and the RDMA adapters. The engine reads the ranks' variables from a file: its client runs as root, and must not have
    them itself. The user's arguments come last and win. Source: docker-run(1), podman-run(1).
    """
    if plan.runtime.kind == stacks.NATIVE:
        return list(argv)
    runtime, home_folder = plan.runtime, paths.home(plan.user)
    engine = runtime.engine
    return [
        *_run(engine, unit),
        "--network=host",
        "--ipc=host",
        # Ray monitors its drivers by PID.
        *([f"--pid=container:{RAY}"] if plan.by_ray and unit != RAY else []),
        f"--user={owner or NOBODY}",
        "--ulimit=memlock=-1:-1",
        "--ulimit=stack=67108864:67108864",
        "--ulimit=nofile=1048576:1048576",
        *((*_GPUS[engine], *_LASTING[engine]) if plan.stack.device == stacks.CUDA else []),
        *(["--device=/dev/infiniband"] if plan.node.infiniband else []),
        *_CGROUP[engine](unit),
        f"--workdir={home_folder}",
        # The image has no entry for this user.
        f"--env=HOME={home_folder}",
        f"--env=USER={plan.user}",
        f"--env=RAY_TMPDIR={home_folder}",
        f"--env-file={engine_file(plan, unit)}",
        *(f"--env={name}" for name in _OF_UNIT),
        *(_mount(mount) for mount in mounts(plan, unit)),
        *runtime.engine_args,
        *([image(plan), *argv] if keeps_entry_point(plan) else [f"--entrypoint={argv[0]}", image(plan), *argv[1:]]),
    ]


def keeps_entry_point(plan: Plan) -> bool:
    """Whether the entry point of the image starts the program, because it prepares CUDA.

    Source: gyliu513/langX101#409: without that of NVIDIA's images, FlashInfer's compiler fails on a GB10.
    """
    runtime = plan.runtime
    return str(runtime.tag or runtime.base).startswith("nvcr.io/nvidia/")


def engine_file(plan: Plan, unit: str) -> str:
    """Return the file of the ranks' variables that the gates write for a unit's engine, "" without an engine."""
    return "" if plan.runtime.kind == stacks.NATIVE else f"/run/{unit}/ranks.env"


def mounts(plan: Plan, unit: str) -> list[dict[str, Any]]:
    """Return the folders of the host that the unit's container gets, under the same path except for additions."""
    serves = unit == VLLM and plan.node.head
    folders = {
        plan.model: plan.model.startswith("/"),
        f"{plan.root}/files": plan.serve.files,
        # Ray's token and the TLS key, which the unit copies for the container's user.
        f"/run/{unit}": plan.by_ray or (serves and plan.api_tls),
    }
    found = [_same(folder) for folder, needed in folders.items() if needed]
    found += [_same(folder) for folder in adapters.folders(plan.serve.user_args)]
    found.append(_same(paths.home(plan.user), read_only=False))
    found += [mount for addition in plan.node.additions.values() for mount in addition.get("mounts", ())]
    guard = (api_access.GUARD_FOLDER, api_access.CONFIG_FOLDER) if plan.api_key and serves else ()
    return found + [_same(folder) for folder in guard]


def _same(folder: str, read_only: bool = True) -> dict[str, Any]:
    return {"source": folder, "target": folder, "read_only": read_only}


def engine_overrides(engine_args: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return {long option: (path, value)} for the user's engine options that replace settings of contained().

    Both forms are read, ``--net=x`` and ``--net x``. The last one counts, as it does for the engine.
    """
    found = {}
    for index, word in enumerate(engine_args):
        name, equals, value = word.partition("=")
        if name in _OVERRIDES:
            given = value if equals else next(iter(engine_args[index + 1 : index + 2]), "")
            found[_OVERRIDES[name]] = (f"gb10_container_args[{index}]", given)
        elif re.fullmatch(r"-u[^-].*", word):
            found["--user"] = (f"gb10_container_args[{index}]", word[2:])
    return found


def query_argv(plan: Plan, of_image: str, argv: Sequence[str], gpu: bool = False) -> list[str]:
    """Return an argv that inspects an image, in an unprivileged container without network.

    It has no GPU without ``gpu``. The user's options come first: the engine uses the last of two, and the user's are
    intended for a serving container.
    """
    runtime = plan.runtime
    gpus = _GPUS[runtime.engine] if gpu else ("--env=NVIDIA_VISIBLE_DEVICES=void",)
    nobody = ["--network=none", f"--user={NOBODY}", "--env=HOME=/tmp", *gpus]
    return [
        *_run(runtime.engine, "gb10-look"),
        *runtime.engine_args,
        *nobody,
        f"--entrypoint={argv[0]}",
        of_image,
        *argv[1:],
    ]


def client_argv(
    plan: Plan, unit: str, variables: Sequence[str], argv: Sequence[str], owner: str = "", files: Sequence[str] = ()
) -> list[str]:
    """Return the argv of a client of the API on the plan's node: unchanged, or in a container that is named ``unit``.

    The container gets the model, ``files`` to read, the user's folder, and ``variables`` from the environment of the
    engine's client.
    """
    if plan.runtime.kind == stacks.NATIVE:
        return list(argv)
    runtime, home_folder = plan.runtime, paths.home(plan.user)
    model = [_same(plan.model)] if plan.model.startswith("/") else []
    return [
        *_run(runtime.engine, unit),
        "--network=host",
        f"--user={owner or NOBODY}",
        *(_GPUS[runtime.engine] if plan.stack.device == stacks.CUDA else []),
        f"--workdir={home_folder}",
        f"--env=HOME={home_folder}",
        *(f"--env={name}" for name in variables),
        *(_mount(mount) for mount in (*model, *map(_same, files), _same(home_folder, read_only=False))),
        *runtime.engine_args,
        f"--entrypoint={argv[0]}",
        image(plan),
        *argv[1:],
    ]


def _run(engine: str, name: str) -> list[str]:
    # The engine's client writes the container's output to the journal. The engine would store it again, without limit.
    closed = ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--log-driver=none"]
    return [engine, "run", "--rm", "--pull=never", f"--name={name}", *closed]


def _mount(mount: Mapping[str, Any]) -> str:
    access = ",readonly" if mount["read_only"] else ""
    return f"--mount=type=bind,source={mount['source']},target={mount['target']}{access}"


def _rank(plan: Plan) -> int:
    return [node.name for node in plan.nodes].index(plan.node.name)
