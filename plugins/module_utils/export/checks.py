# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans and settings that cannot be exported."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.export import plan as export_plan
from ansible_collections.gb10.cluster.plugins.module_utils.export.schema import ExportSettings
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

#: The name of a LeaderWorkerSet is also that of a Service, and the start of the names and labels of its pods.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_HOST = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_RESOURCE = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
_PINNED = re.compile(r"[^@]+@sha256:[0-9a-f]{64}", re.ASCII)


def problems(plan: Plan, given: ExportSettings) -> list[Problem]:
    """Return all reasons against an export."""
    return [*_runtime(plan), *_settings(given), *_hosts(plan, given), *_differences(plan)]


def _runtime(plan: Plan) -> Iterator[Problem]:
    if plan.executor != "mp":
        fix = "set gb10_distributed_executor_backend: mp"
        expected = "mp: the pods of a LeaderWorkerSet find each other without Ray"
        yield Problem("gb10_distributed_executor_backend", plan.executor, expected, fix)
    runtime = plan.runtime
    if runtime.kind == stacks.NATIVE:
        fix = "set gb10_runtime: container, and gb10_container_image"
        expected = "container: a pod runs an image"
        yield Problem("gb10_runtime", "native: a Python environment on each node", expected, fix)
        return
    if not _PINNED.fullmatch(runtime.image):
        expected = "an image of a registry by its digest, such as vllm/vllm-openai@sha256:..."
        fix = "set gb10_container_image to its entry in RepoDigests, which `docker image inspect` shows"
        yield Problem("gb10_container_image", repr(runtime.image), expected, fix)
    for index, word in enumerate(runtime.engine_args):
        expected = f"no options of {runtime.engine}, which Kubernetes does not have"
        fix = "remove it; gb10_extra_env sets variables"
        yield Problem(f"gb10_container_args[{index}]", word, expected, fix)


def _settings(given: ExportSettings) -> Iterator[Problem]:
    if not _NAME.fullmatch(given.name):
        expected = "at most 40 lower case letters, digits and hyphens, a letter first"
        yield Problem("export_name", repr(given.name), expected, "correct export_name")
    if given.namespace and not _LABEL.fullmatch(given.namespace):
        expected = "at most 63 lower case letters, digits and hyphens"
        yield Problem("export_namespace", repr(given.namespace), expected, "correct export_namespace")
    if given.runtime_class and not _HOST.fullmatch(given.runtime_class):
        expected = "the name of a RuntimeClass"
        yield Problem("export_runtime_class", repr(given.runtime_class), expected, "correct export_runtime_class")
    if given.rdma_resource and not _RESOURCE.fullmatch(given.rdma_resource):
        expected = "the resource of a device plugin, such as rdma/hca"
        yield Problem("export_rdma_resource", repr(given.rdma_resource), expected, "correct export_rdma_resource")
    if given.start_seconds < 1:
        yield Problem("export_start_seconds", str(given.start_seconds), "1 or more", "correct export_start_seconds")


def _hosts(plan: Plan, given: ExportSettings) -> Iterator[Problem]:
    names = [node.name for node in plan.nodes]
    for name in given.nodes:
        if name not in names:
            expected = f"a node of the inventory: {', '.join(names)}"
            yield Problem(f"export_nodes.{name}", "the plan has no such node", expected, "correct export_nodes")
    hosts = [given.host(name) for name in names]
    for name, host in zip(names, hosts, strict=True):
        if not _HOST.fullmatch(host):
            expected = "the label kubernetes.io/hostname of its Kubernetes node"
            yield Problem(f"export_nodes.{name}", repr(host), expected, "set it, as `kubectl get nodes` shows it")
        elif hosts.count(host) > 1:
            expected = "one Kubernetes node for each"
            yield Problem(f"export_nodes.{name}", f"{host} is also another node's", expected, "correct export_nodes")


def _differences(plan: Plan) -> Iterator[Problem]:
    """Find differences between workers that one pod template cannot express."""
    workers = plan.nodes[1:]
    if plan.runtime.kind == stacks.NATIVE:
        return
    for node in workers[1:]:
        where, first = f"nodes[{plan.nodes.index(node)}]", workers[0]
        if export_plan.owner(node) != export_plan.owner(first):
            pairs = [":".join(map(str, export_plan.owner(each))) for each in (node, first)]
            expected = f"{pairs[1]}, as on {first.name}: the workers have one pod template"
            fix = f"give {plan.user} the same UID and GID on all workers"
            yield Problem(f"{where}.state.service_user", f"{pairs[0]} on {node.name}", expected, fix)
        if export_plan.folders(plan, node) != export_plan.folders(plan, first):
            found = f"{node.name} mounts other folders than {first.name}"
            fix = "run site.yml, so that all workers have the same patches and the same NCCL"
            yield Problem(f"{where}.additions", found, "equal mounts: the workers have one pod template", fix)
