# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The services of the ranks: gates, Ray and vLLM."""

from __future__ import annotations

import json
from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.api import access, tls
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement, gates, overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.service import unit
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned, Service, ServiceSettings

_WAIT_PROGRAM = "/usr/local/lib/gb10-wait-for-ray.py"
#: Ray must not pass the API key on to its workers.
_KEPT_BACK = {
    "path": f"{access.CONFIG_FOLDER}/ray_non_carry_over_env_vars.json",
    "content": json.dumps([access.KEY_VARIABLE]),
}
_WITH_RAY = (
    "# A restarted Ray on this host has no processes of the old one.",
    f"Requires={paths.RAY_UNIT}",
    f"PartOf={paths.RAY_UNIT}",
    "# Ray's sockets are in /tmp/ray.",
    f"JoinsNamespaceOf={paths.RAY_UNIT}",
)
#: The kernel ends the fallback before a rank: the addition to their OOM score.
_FIRST = 200
_BEFORE_START = (
    "# Only root can drop the page cache. The settings of the gates may turn it off.",
    f"ExecStartPre=-+/usr/bin/python3 -I -B {paths.program('gates')} --drop-caches",
)


def _gates(plan: Plan, settings: ServiceSettings) -> list[dict[str, str]]:
    """Return the gates before each start. A running service does not depend on them, so they are not launch inputs."""
    given = gates.settings(plan, settings.vllm_serve_drop_caches)
    return [unit.settings(paths.GATES_SETTINGS, given), paths.program_file("gates")]


def ray(plan: Plan, settings: ServiceSettings, learned: Learned) -> Service:
    """Return the service of Ray on the plan's node."""
    argv = launch_argv.ray_argv(plan, settings.ray_cluster_object_store_memory, settings.ray_cluster_args)
    argv = launch_argv.contained(plan, launch_argv.RAY, argv, plan.node.state.service_user)
    folder, user, native = f"/run/{launch_argv.RAY}", plan.user, plan.runtime.kind == stacks.NATIVE
    own = f"/usr/bin/setpriv --reuid={user} --regid={user} --clear-groups"
    service = [
        *_user(plan),
        unit.INPUTS,
        "# Ray would first drain the node through the GCS, for Ray Serve. On the head that wastes half a minute, "
        "because systemd also stops the GCS.",
        "Environment=RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0",
        f"LoadCredential=ray.token:{paths.RAY_TOKEN}",
    ]
    if native:
        service += ["Environment=RAY_AUTH_TOKEN_PATH=%d/ray.token"]
    else:
        service += [
            f"# The engine runs as root. The container's processes run as {user} and cannot read root's credentials.",
            f"RuntimeDirectory={launch_argv.RAY}",
            f"Environment=RAY_AUTH_TOKEN_PATH={folder}/ray.token",
            f"{_copy(plan)} %d/ray.token {folder}/ray.token",
            "# As the user: root must not touch files in the user's home.",
            f"ExecStartPre={own} /usr/bin/rm -rf {plan.home}/ray",
            "# A killed client leaves its container.",
            *_removed_container(plan, launch_argv.RAY),
            "Delegate=yes",
        ]
    service += [
        *_BEFORE_START,
        "# The gates are in the main process: a closed gate must not fail the start job, on which gb10-vllm depends.",
        f"ExecStart={_exec_line(plan, launch_argv.RAY, argv)}",
        *_restarts(plan),
        "# The main process stops the others in order. systemd then kills the remaining processes, of which Ray's "
        "agents ignore",
        "# SIGTERM for a minute.",
        *_limits(plan, "LimitNOFILE=1048576", "# RDMA registers memory."),
    ]
    text = unit.text(
        "Ray node of the GB10 cluster",
        [
            "Wants=network-online.target",
            f"After=network-online.target{_engine(plan)}",
            "# Each start waits for the peers at its gates. After these starts the unit stays failed, until site.yml "
            "starts it.",
            *_starts(plan),
        ],
        service,
    )
    inputs = [overrides.rank_environment(plan.node), *learned.secrets, learned.token]
    return Service(paths.RAY_UNIT, text, inputs, _gates(plan, settings))


def vllm(plan: Plan, settings: ServiceSettings, learned: Learned) -> Service:
    """Return the service of vLLM on the plan's node."""
    native, by_ray = plan.runtime.kind == stacks.NATIVE, plan.by_ray
    keyed, grouped = plan.node.head and plan.api_key, not by_ray and len(plan.nodes) > 1
    service = [
        *_user(plan),
        *([f"LoadCredential=api.env:{paths.API_KEY[1]}"] if keyed else []),
        unit.INPUTS,
        "WorkingDirectory=~",
    ]
    if not native:
        service += [
            f"# The engine runs as root, the container's processes as {plan.user}. A killed client leaves its "
            "container.",
            *_removed_container(plan, launch_argv.VLLM),
            "Delegate=yes",
            f"RuntimeDirectory={launch_argv.VLLM}",
        ]
    service += _credentials(plan)
    if grouped:
        service += [
            "# Ranks with the same launch inputs find each other by this ID.",
            f"Environment=GB10_RANK_GROUP={launch_argv.start_digest(plan)[:16]}",
        ]
    service += _of_ray(plan, settings) if by_ray else []
    service += [
        *_BEFORE_START,
        "# The gates precede the server in one process: as in gb10-ray.service.",
        f"ExecStart={_exec_line(plan, launch_argv.VLLM, launch_argv.start_argv(plan, plan.node.state.service_user))}",
        "# vLLM exits with status 0 even when its engine has died.",
        *_restarts(plan),
        "# The main process stops the others in order. systemd then kills the remaining processes, such as a hanging "
        "rank.",
        *_limits(plan, "LimitNOFILE=1048576"),
    ]
    text = unit.text(
        "vLLM on the GB10 cluster",
        [
            "Wants=network-online.target",
            f"After=network-online.target {paths.RAY_UNIT}{_engine(plan)}",
            *(_WITH_RAY if by_ray else ()),
            "# After these starts the unit stays failed, until site.yml starts it.",
            *_starts(plan),
        ],
        service,
    )
    # Every rank inherits its node's environment and runs the files that were changed there.
    inputs = [
        *map(overrides.rank_environment, plan.nodes),
        *(node.additions for node in plan.nodes),
        learned.api_key,
        plan.api_tls.digest if plan.api_tls else "",
        *learned.secrets,
    ]
    guard, directories = _guard() if keyed else ([], ())
    files = [*guard]
    files += [{"path": launch_argv.RANK_PROGRAM, "program": "launch/io_rank.py"}] * grouped
    files += [{"path": _WAIT_PROGRAM, "program": "launch/io_ray"}] * by_ray
    files += _gates(plan, settings)
    return Service(paths.VLLM_UNIT, text, inputs, files, directories)


def fallback(plan: Plan, _settings: ServiceSettings, learned: Learned) -> Service:
    """Return the service of the fallback on the plan's node. Raises ValueError on another one.

    The memory guard's stop of the ranks does not end it: then only the fallback answers.
    """
    given = plan.own_fallback
    if given is None:
        raise ValueError(f"{plan.node.name} has no fallback")
    name, argv = paths.FALLBACK_UNIT.removesuffix(".service"), launch_argv.fallback_argv(plan, given)
    files = [f"--settings={paths.FALLBACK_SETTINGS}", f"--environment={paths.FALLBACK_ENVIRONMENT}"]
    service = [
        f"User={plan.user}",
        *([f"LoadCredential=api.env:{paths.FALLBACK_KEY[1]}"] if plan.api_key else []),
        unit.INPUTS,
        "WorkingDirectory=~",
        f"ExecStart={systemd.exec_line([*gates.argv(name, own=files), *argv])}",
        *_restarts(plan),
        *_limits(plan, "LimitNOFILE=1048576", oom_score=min(1000, plan.oom_score + _FIRST)),
    ]
    text = unit.text(
        "Fallback of the gateway, by vLLM",
        ["Wants=network-online.target", "After=network-online.target", *_attempts(plan)],
        service,
    )
    # Of the roles' overrides, those of the patches are for each model.
    patches = {role: each for role, each in plan.node.additions.items() if role == overrides.PATCH_ROLE}
    environment = overrides.rank_environment(replace(plan.node, environment=given.environment, additions=patches))
    # A drain is for the cluster's model.
    environment["GB10_DRAIN"] = "fallback.drain"
    own = [
        unit.settings(paths.FALLBACK_SETTINGS, gates.of_fallback(plan, given)),
        {"path": paths.FALLBACK_ENVIRONMENT, "content": systemd.environment_file(environment)},
        paths.program_file("gates"),
    ]
    changed = [each.get("files", {}) for each in patches.values()]
    guard, folders = _guard() if plan.api_key else ([], ())
    return Service(paths.FALLBACK_UNIT, text, [environment, changed, learned.api_key], [*guard, *own], folders)


def _guard() -> tuple[list[dict[str, str]], tuple[str, ...]]:
    """Return the files of the API's guard, and their folders. vLLM checks the key only for paths below /v1."""
    guard = [{"path": path, "program": program} for path, program in access.GUARD_FILES.items()]
    folders = dict.fromkeys(path.rpartition("/")[0] for path in (*access.GUARD_FILES, _KEPT_BACK["path"]))
    return [*guard, _KEPT_BACK], tuple(folders)


def _credentials(plan: Plan) -> list[str]:
    """Return the certificate and its key, which a container's user gets as copies."""
    if not plan.node.head or plan.api_tls is None:
        return []
    copies = f"{_copy(plan)} %d/api.cert %d/api.key /run/{launch_argv.VLLM}"
    return [
        f"LoadCredential=api.cert:{tls.FILES['certificate']}",
        f"LoadCredential=api.key:{tls.FILES['key']}",
        *([] if plan.runtime.kind == stacks.NATIVE else [copies]),
    ]


def _of_ray(plan: Plan, settings: ServiceSettings) -> list[str]:
    """Return how the server finds Ray, and what waits for Ray's nodes."""
    native, copied = plan.runtime.kind == stacks.NATIVE, f"/run/{launch_argv.VLLM}/ray.token"
    expected = "".join(f" --expect={node.name}={node.address}" for node in plan.nodes)
    return [
        f"Environment=RAY_ADDRESS={plan.head.address}:{plan.ray_port}",
        f"LoadCredential=ray.token:{paths.RAY_TOKEN}",
        f"Environment=RAY_AUTH_TOKEN_PATH={'%d/ray.token' if native else copied}",
        *([] if native else [f"{_copy(plan)} %d/ray.token {copied}"]),
        f"ExecStartPre=/usr/bin/python3 -I -B {_WAIT_PROGRAM} --timeout={settings.vllm_serve_ray_timeout}{expected}",
        f"TimeoutStartSec={settings.vllm_serve_ray_timeout + 60}",
    ]


def _copy(plan: Plan) -> str:
    return f"ExecStartPre=/usr/bin/install --owner={plan.user} --mode=0400"


def _exec_line(plan: Plan, name: str, argv: list[str]) -> str:
    return systemd.exec_line([*gates.argv(name, launch_argv.engine_file(plan, name)), *argv])


def _engine(plan: Plan) -> str:
    return " docker.service" if plan.runtime.kind != stacks.NATIVE and plan.runtime.engine == "docker" else ""


def _attempts(plan: Plan) -> list[str]:
    return [f"StartLimitIntervalSec={plan.restart.interval}", f"StartLimitBurst={plan.restart.attempts}"]


def _starts(plan: Plan) -> list[str]:
    return [
        *_attempts(plan),
        f"# After a stop by {paths.MEMORY_GUARD_UNIT} too.",
        f"ConditionPathExists=!{paths.MEMORY_GUARD_STOP}",
    ]


def _user(plan: Plan) -> list[str]:
    secret = [f"LoadCredential=secret.env:{paths.SECRET_ENVIRONMENT}"] if plan.node.secrets else []
    return [
        f"User={plan.user if plan.runtime.kind == stacks.NATIVE else 'root'}",
        "# The gates load the ranks' variables. Here they would also reach root's commands.",
        *secret,
    ]


def _removed_container(plan: Plan, name: str) -> list[str]:
    return [f"{when}=-{plan.runtime.engine} rm --force {name}" for when in ("ExecStartPre", "ExecStopPost")]


def _restarts(plan: Plan) -> list[str]:
    return [
        "Restart=always",
        f"RestartSec={plan.restart.delay}",
        "# Older releases than systemd 254 ignore these two.",
        f"RestartSteps={plan.restart.attempts}",
        f"RestartMaxDelaySec={plan.restart.max_delay}",
    ]


def _limits(plan: Plan, *files: str, oom_score: int | None = None) -> list[str]:
    """Return how a service ends, and what its processes may use. ``oom_score``: the ranks' without one."""
    native = plan.runtime.kind == stacks.NATIVE
    modprobe = [
        "# Only root can create NVIDIA's device files, and after a boot the first use of the driver may need them.",
        "ExecStartPre=-+/usr/bin/nvidia-modprobe -c 0 -u",
    ]
    return [
        "KillMode=mixed",
        "TimeoutStopSec=60",
        "# The host outlives the service: the kernel ends the ranks first, and they cannot use all memory.",
        f"OOMScoreAdjust={plan.oom_score if oom_score is None else oom_score}",
        f"MemoryMax={plan.memory_max}%",
        *files,
        "LimitMEMLOCK=infinity",
        "TasksMax=infinity",
        *(modprobe if native or plan.stack.device == stacks.CUDA else []),
        *(confinement.properties(plan.user, plan.writable) if native else []),
    ]
