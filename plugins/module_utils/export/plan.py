# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan as a LeaderWorkerSet with its ConfigMap and Service.

Each pod runs the argv of the unit on its node, with the same variables: a pod is pinned to a node, and has its address,
its devices and its rank. Source: lws.sigs.k8s.io, reference of leaderworkerset.x-k8s.io/v1; kubernetes.io, Pod v1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.export import schema
from ansible_collections.gb10.cluster.plugins.module_utils.export.schema import ExportSettings
from ansible_collections.gb10.cluster.plugins.module_utils.health import probe
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan, PlannedNode
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

Object = dict[str, Any]
#: A mount of a container, and its volume.
Mounted = tuple[Object, Object]

#: The program of the API key's guard, and the list of variables that vLLM must not pass on, as files.
_GUARD_FILE = f"{api_access.GUARD.partition('.')[0]}.py"
_KEPT_BACK_FILE = "ray_non_carry_over_env_vars.json"
_SET = "leaderworkerset.sigs.k8s.io"
_HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_GPU = "nvidia.com/gpu"
_RDMA_FOLDER = "/dev/infiniband"
#: With this variable NVIDIA's container runtime lets the container open the RDMA devices. A hostPath alone does not.
#: Source: NVIDIA/nvidia-container-toolkit, internal/modifier/gated.go; kubernetes/kubernetes#5607.
_RDMA_VARIABLE = "NVIDIA_MOFED"
#: The place of the certificate in a unit's container.
_TLS_FOLDER = f"/run/{launch_argv.VLLM}"
#: The files of the Secret with the certificate, and the unit's names for them. The probe needs the CA.
_TLS_FILES = {"tls.crt": "api.cert", "tls.key": "api.key", "ca.crt": "ca.crt"}
#: Seconds that vLLM has to end, as in its unit, and between two probes of each kind.
_STOP, _STARTUP, _READY, _LIVE = 60, 10, 30, 60


@dataclass(frozen=True)
class Pods:
    """The pods of one template: the plan, their nodes, and the settings."""

    plan: Plan
    nodes: Sequence[PlannedNode]
    given: ExportSettings

    @property
    def first(self) -> PlannedNode:
        """The first node. The others differ from it in variables and arguments only."""
        return self.nodes[0]

    @property
    def rdma(self) -> bool:
        """Whether any rank opens RDMA devices."""
        return any(_rdma(self.plan, node) for node in self.nodes)

    @property
    def mounts_rdma(self) -> bool:
        """Whether the pods mount the RDMA devices, instead of getting them from a device plugin."""
        return self.rdma and not self.given.rdma_resource

    @property
    def cuda(self) -> bool:
        """Whether the ranks use a GPU."""
        return self.plan.stack.device == stacks.CUDA

    @property
    def common(self) -> dict[str, str]:
        """The variables, without secrets, that all nodes have in common."""
        first, *others = (environment(self.plan, node) for node in self.nodes)
        return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def objects(plan: Plan, given: ExportSettings, programs: Mapping[str, str]) -> list[Object]:
    """Return the objects of a plan without problems (checks.py). ``programs``: texts by their name in schema.py."""
    leader, workers = Pods(plan, plan.nodes[:1], given), Pods(plan, plan.nodes[1:], given)
    data = _files(workers, programs)
    digest = systemd.digest([data])
    # vLLM's ranks do not detect that another rank ended.
    group: Object = {"size": len(plan.nodes), "restartPolicy": "RecreateGroupOnPodRestart"}
    if workers.nodes:
        group["leaderTemplate"] = _template(leader, digest)
    group["workerTemplate"] = _template(workers if workers.nodes else leader, digest)
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(given, given.files), "data": data},
        *([_service(plan, given)] if reachable(plan) else []),
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": _metadata(given, given.name),
            "spec": {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": group},
        },
    ]


def reachable(plan: Plan) -> bool:
    """Return whether other hosts can reach the API."""
    return not api_access.loopback(plan.api_host)


def secrets(plan: Plan, given: ExportSettings) -> dict[str, list[str]]:
    """Return the keys of each Secret that the pods refer to, by its name."""
    found = {
        given.api: [api_access.KEY_VARIABLE] if plan.api_key else [],
        given.tls: list(_TLS_FILES) if plan.api_tls else [],
        given.environment: sorted({name for node in plan.nodes for name in node.secrets}),
    }
    return {name: keys for name, keys in found.items() if keys}


def environment(plan: Plan, node: PlannedNode) -> dict[str, str]:
    """Return the variables of a node's container, without secrets."""
    home = paths.home(plan.user)
    ranks = overrides.rank_environment(node)
    guard = api_access.environment("", ranks) if node.head and plan.api_key else {}
    own = {"HOME": home, "USER": plan.user, "RAY_TMPDIR": home}
    found = {**own, **ranks, "VLLM_HOST_IP": node.address, **guard}
    return {name: value for name, value in found.items() if name != api_access.KEY_VARIABLE}


def owner(node: PlannedNode) -> tuple[int, int]:
    """Return the user and group of a node's rank."""
    user, _colon, group = (node.state.service_user or launch_argv.NOBODY).partition(":")
    return int(user), int(group)


def folders(plan: Plan, node: PlannedNode) -> list[dict[str, Any]]:
    """Return the folders of the node that the unit's container has, without those that the pod gets from objects."""
    replaced = (api_access.GUARD_FOLDER, api_access.CONFIG_FOLDER, _TLS_FOLDER)
    found = launch_argv.mounts(plan.at(node), launch_argv.VLLM)
    return [mount for mount in found if mount["source"] not in replaced]


def _metadata(given: ExportSettings, name: str) -> Object:
    labels = {"app.kubernetes.io/name": given.name, "app.kubernetes.io/managed-by": "gb10.cluster"}
    return {"name": name, **({"namespace": given.namespace} if given.namespace else {}), "labels": labels}


def _files(workers: Pods, programs: Mapping[str, str]) -> dict[str, str]:
    """Return the files of all pods: the programs, and a JSON file for each node."""
    plan, several = workers.plan, len(workers.nodes) > 1
    names = [schema.GATES, schema.PROBE, *([schema.START] if several else [])]
    files = {name: programs[schema.PROGRAMS[name]] for name in names}
    if plan.api_key:
        files[_GUARD_FILE] = programs[schema.GUARD_PROGRAM]
        files[_KEPT_BACK_FILE] = f"{json.dumps([api_access.KEY_VARIABLE])}\n"
    for node in plan.nodes:
        own = _of_node(workers, node) if several and not node.head else {}
        content = {"gates": _gates(plan, node), **own}
        files[f"{workers.given.host(node.name)}.json"] = f"{json.dumps(content, indent=2, sort_keys=True)}\n"
    return files


def _of_node(workers: Pods, node: PlannedNode) -> Object:
    """Return the argv of a worker, and the variables that differ from the other workers'."""
    own = {name: value for name, value in environment(workers.plan, node).items() if name not in workers.common}
    return {"argv": launch_argv.vllm_argv(workers.plan.at(node)), "environment": own}


def _gates(plan: Plan, node: PlannedNode) -> Object:
    return {
        "address": node.address,
        "home": paths.home(plan.user),
        "memory": plan.serve.needs.get(node.name, 0),
        "model": plan.model if plan.model.startswith("/") else "",
        "rdma": _rdma(plan, node),
    }


def _rdma(plan: Plan, node: PlannedNode) -> bool:
    """Return whether a node's rank opens RDMA devices."""
    roce = overrides.rank_environment(node).get("NCCL_IB_DISABLE") == "0"
    return len(plan.nodes) > 1 and node.infiniband and roce


def _service(plan: Plan, given: ExportSettings) -> Object:
    port = {"name": _scheme(plan), "port": plan.api_port, "targetPort": plan.api_port, "protocol": "TCP"}
    spec = {"selector": {f"{_SET}/name": given.name, f"{_SET}/worker-index": "0"}, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(given, given.api), "spec": spec}


def _scheme(plan: Plan) -> str:
    return "https" if plan.api_tls else "http"


def _template(pods: Pods, digest: str) -> Object:
    labels = {"app.kubernetes.io/name": pods.given.name}
    mounted = _mounted(pods)
    of_rank = [*mounted, *_mounted_by_rank(pods)]
    runtime_class = pods.given.runtime_class if pods.cuda else ""
    spec = {
        "affinity": _affinity(pods, labels),
        "automountServiceAccountToken": False,
        # The variables of a Service named vllm would configure vLLM.
        "enableServiceLinks": False,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        **({"runtimeClassName": runtime_class} if runtime_class else {}),
        "securityContext": _pod_security(pods),
        "terminationGracePeriodSeconds": _STOP,
        "initContainers": [_gates_container(pods, mounted)],
        "containers": [_rank_container(pods, of_rank)],
        "volumes": [volume for _place, volume in of_rank],
    }
    # Changed files have to restart the pods.
    return {"metadata": {"labels": labels, "annotations": {"gb10.cluster/files": digest}}, "spec": spec}


def _affinity(pods: Pods, labels: Mapping[str, str]) -> Object:
    hosts = [pods.given.host(node.name) for node in pods.nodes]
    term = {"matchExpressions": [{"key": _HOSTNAME, "operator": "In", "values": hosts}]}
    placed: Object = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [term]}}}
    if len(hosts) > 1:
        apart = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": _HOSTNAME}
        placed["podAntiAffinity"] = {_REQUIRED: [apart]}
    return placed


def _pod_security(pods: Pods) -> Object:
    user, group = owner(pods.first)
    found: Object = {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": group}
    if pods.first.head and pods.plan.api_tls:
        # The group of the files of a Secret. Folders of the node keep theirs.
        found["fsGroup"] = group
    return {**found, "seccompProfile": {"type": "RuntimeDefault"}}


def _gates_container(pods: Pods, mounted: Sequence[Mounted]) -> Object:
    """Return the container that waits until the node can run its rank. It gets no secret."""
    process = _process(pods, _program(schema.GATES))
    return {"name": "gates", **_container(pods, mounted), **process, "env": _of_pod(pods)}


def _rank_container(pods: Pods, mounted: Sequence[Mounted]) -> Object:
    single = launch_argv.vllm_argv(pods.plan.at(pods.first))
    process = _process(pods, _program(schema.START) if len(pods.nodes) > 1 else single)
    serving = _serving(pods) if pods.first.head else {}
    return {"name": "vllm", **_container(pods, mounted), **process, "env": _variables(pods), **serving}


def _container(pods: Pods, mounted: Sequence[Mounted]) -> Object:
    """Return the parts that both containers of a pod have in common."""
    return {
        "image": pods.plan.runtime.image,
        "workingDir": paths.home(pods.plan.user),
        "resources": _resources(pods),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [mount for mount, _volume in mounted],
    }


def _program(name: str) -> list[str]:
    """Return the argv of a program of the ConfigMap. -I: variables of the ranks have no effect on it."""
    return ["python3", "-I", "-B", f"{schema.FOLDER}/{name}"]


def _process(pods: Pods, words: Sequence[str]) -> Object:
    """Return args alone where the entry point of the image stays, else also a command."""
    known = schema.KEEP if launch_argv.keeps_entry_point(pods.plan) else schema.REPLACE
    entrypoint = known if pods.given.entrypoint == schema.AUTO else pods.given.entrypoint
    literal = [_literal(word) for word in words]
    return {"args": literal} if entrypoint == schema.KEEP else {"command": literal[:1], "args": literal[1:]}


def _literal(text: str) -> str:
    """Return a text that Kubernetes does not change: it replaces $(NAME) by a variable, and $$ by $."""
    return text.replace("$", "$$")


def _variables(pods: Pods) -> list[Object]:
    found = [{"name": name, "value": _literal(value)} for name, value in pods.common.items()]
    found += [_secret_variable(name, pods.given.environment) for name in pods.first.secrets]
    if pods.first.head and pods.plan.api_key:
        found.append(_secret_variable(api_access.KEY_VARIABLE, pods.given.api))
    return sorted([*found, *_of_pod(pods)], key=lambda variable: str(variable["name"]))


def _secret_variable(name: str, secret: str) -> Object:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}


def _of_pod(pods: Pods) -> list[Object]:
    """Return the variables that a unit's container does not have."""
    rdma = [{"name": _RDMA_VARIABLE, "value": "enabled"}] if pods.mounts_rdma else []
    return [{"name": schema.NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, *rdma]


def _resources(pods: Pods) -> Object:
    """Return the GPU, the RDMA devices, and the planned memory as a request.

    No limit of memory: a cgroup does not count the GPU's part of unified memory.
    """
    limits = {_GPU: str(launch_argv.GPUS_PER_NODE)} if pods.cuda else {}
    if pods.rdma and pods.given.rdma_resource:
        limits[pods.given.rdma_resource] = "1"
    needed = max(pods.plan.serve.needs.get(node.name, 0) for node in pods.nodes)
    found = {"limits": limits, "requests": {"memory": str(needed)} if needed else {}}
    return {name: values for name, values in found.items() if values}


def _serving(pods: Pods) -> Object:
    """Return port and probes of the server. Workers have no API: a restart of the leader recreates them too."""
    port, starts = pods.plan.api_port, -(-pods.given.start_seconds // _STARTUP)
    answer, soon = _probe(pods.plan, _LIVE - 10), _probe(pods.plan, _READY - 10)
    return {
        "ports": [{"name": _scheme(pods.plan), "containerPort": port, "protocol": "TCP"}],
        "startupProbe": _every(answer, _STARTUP, _LIVE, starts),
        "readinessProbe": _every([*soon, "--progress"], _READY, _READY, 2),
        "livenessProbe": _every([*answer, "--progress"], _LIVE, _LIVE, 3),
    }


def _every(words: Sequence[str], period: int, timeout: int, failures: int) -> Object:
    limits = {"periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures}
    return {"exec": {"command": list(words)}, **limits}


def _probe(plan: Plan, seconds: int) -> list[str]:
    api, ca = plan.api, f"--ca={_TLS_FOLDER}/{_TLS_FILES['ca.crt']}"
    tls = [ca, f"--server-name={api.server_name}"] if plan.api_tls else []
    path, body = probe.request(plan.kind, plan.served_model_name)
    words = [
        f"--url={api.url}",
        f"--path={path}",
        f"--body={json.dumps(body)}",
        f"--answer={probe.ANSWERS[plan.kind]}",
    ]
    words.append(f"--seconds={seconds}")
    return [*_program(schema.PROBE), *words, *tls]


def _mounted(pods: Pods) -> list[Mounted]:
    """Return each mount of both containers with its volume."""
    files = {"name": "files", "configMap": {"name": pods.given.files}}
    found: list[Mounted] = [(_mount("files", schema.FOLDER), files)]
    for index, folder in enumerate(folders(pods.plan, pods.first)):
        name = f"folder-{index}"
        volume = {"name": name, "hostPath": {"path": folder["source"], "type": "Directory"}}
        found.append((_mount(name, folder["target"], folder["read_only"]), volume))
    if pods.mounts_rdma:
        volume = {"name": "rdma", "hostPath": {"path": _RDMA_FOLDER, "type": "Directory"}}
        found.append((_mount("rdma", _RDMA_FOLDER, False), volume))
    return found


def _mounted_by_rank(pods: Pods) -> list[Mounted]:
    """Return the mounts of the rank alone: shared memory, the guard of the API key, and the certificate.

    The last two have the paths of the unit's container. The shared memory of the node would be that of all processes.
    """
    memory = {"name": "memory", "emptyDir": {"medium": "Memory"}}
    found: list[Mounted] = [(_mount("memory", "/dev/shm", False), memory)]
    if pods.first.head and pods.plan.api_key:
        for name, folder, file in (
            ("guard", api_access.GUARD_FOLDER, _GUARD_FILE),
            ("config", api_access.CONFIG_FOLDER, _KEPT_BACK_FILE),
        ):
            source = {"name": pods.given.files, "items": [{"key": file, "path": file}]}
            found.append((_mount(name, folder), {"name": name, "configMap": source}))
    if pods.first.head and pods.plan.api_tls:
        items = [{"key": key, "path": path} for key, path in _TLS_FILES.items()]
        secret = {"secretName": pods.given.tls, "items": items, "defaultMode": 0o440}
        found.append((_mount("tls", _TLS_FOLDER), {"name": "tls", "secret": secret}))
    return found


def _mount(name: str, path: str, read_only: bool = True) -> Object:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
