# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of the planner's inputs, which parse.parse() returns. plan/schema.py has those of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import schema as fabric_schema
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.links import Ports
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import Fabric
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard.plan import HostState, Protection
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.patches import Patch
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import schema as os_update_schema
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import PatchSettings
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Installed
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import Use
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.layers import Layer
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.pins import Pin
from ansible_collections.gb10.cluster.plugins.module_utils.serve import schema as serve_schema
from ansible_collections.gb10.cluster.plugins.module_utils.service.recorder import UdpPorts
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Stored

PREFIX = "gb10_"
TYPICAL = "typical facts, not read from the nodes"


@dataclass(frozen=True)
class Settings(serve_schema.ServeSettings):
    """The public variables of the role gb10 without secrets. A field is a variable without ``gb10_``."""

    model: str
    models: Mapping[str, Any]
    recipe: str
    recipe_folder: str
    nvidia_recipes: str
    recipe_images: Mapping[str, str]
    image_layers: Sequence[Any]
    api_name: str
    api_clients: Sequence[str]
    download_env: Mapping[str, str]
    ray_port: int
    master_port: int
    fabric_topology: str
    fabric_ports: Ports
    fabric_functions: str
    fabric_addresses: Sequence[str]
    fabric_cidr: str
    fabric_mtu: int
    fabric_transport: str
    fabric_rdma_required: bool
    fabric_renderer: str
    fabric_interface: str
    fabric_replace_existing: bool
    fabric_pin_gid_index: bool
    stack: str
    runtime_lock: str
    runtime_wheels: Sequence[Any]
    runtime: str
    container_image: str
    container_engine: str
    service_user: str
    service_read_write_paths: Sequence[str]
    allow_restart: bool
    gpu_required: bool
    restart_attempts: int
    restart_interval: int
    restart_delay: int
    restart_max_delay: int
    gate_timeout: int
    idle_stop: str
    wake_port: int
    fallback_model: str
    fallback_memory: int
    fallback_port: int
    fallback_args: Sequence[str]
    service_memory_max: int
    service_oom_score: int
    apt_timeout: int

    @property
    def fabric(self) -> Fabric:
        """The settings that the whole fabric has in common."""
        return Fabric(
            self.fabric_topology, self.fabric_cidr, self.fabric_mtu, self.fabric_transport, self.fabric_renderer
        )


@dataclass(frozen=True)
class Gpu:
    """A node's GPUs. ``capability``: of the first known one, such as "12.1"; ``reason``: why none is visible.

    ``cuda``: the newest CUDA release that the driver supports, such as "13.0", "" if unknown.
    """

    visible: bool
    capability: str | None
    driver: str
    cuda: str
    memory_bytes: int
    reason: str


@dataclass(frozen=True)
class Listener:
    """A listening TCP port; ``process`` and the systemd ``unit`` are "" if unknown."""

    port: int
    process: str
    unit: str


@dataclass(frozen=True)
class ModelFiles:
    """A model as it was read: its config.json (None if missing) and the bytes of its weights, None if unknown.

    ``path``: the folder, None if not recorded; ``complete``: whether the role model_store verified the folder;
    ``reason``: why vLLM cannot load the weights, or "".
    """

    config: Mapping[str, Any] | None
    weights_bytes: int | None
    path: str | None = None
    complete: bool = False
    reason: str = ""


@dataclass(frozen=True)
class HubModel:
    """The model that the head queried on Hugging Face Hub.

    ``trouble``: why the query failed, or "". ``refused``: the HTTP status if a download would fail too, else 0.
    """

    name: str
    revision: str
    trouble: str
    refused: int
    files: ModelFiles


@dataclass(frozen=True)
class ImageOptions:
    """The head's facts of a container image: releases, "" if missing, and vLLM's options.

    ``image``: its name in the plan at that time.
    """

    image: str
    image_id: str
    vllm: str
    ray: str
    nccl: str
    options: Sequence[Mapping[str, Any]]
    variables: Sequence[str]


@dataclass(frozen=True)
class Facts:
    """The facts of a node, from the module node_info. Unknown values are 0 and "".

    ``nccl``: the library of the runtime, {} if there is none, None if it was not read. ``additions``: the launch
    overrides that roles recorded, by role. ``pins``: the images of tags. ``toolkit``: the CUDA compiler of the node,
    None if unknown;
    ``host_compiler``: whether g++ and Python's headers exist. ``packages``: Debian's. ``clock_ahead``: seconds to the
    controller's clock, 0 if unknown. ``builds``: those of vLLM in its store. ``host``: None if facts of an earlier
    release lack it.
    ``wrong_folders``: folders of adapters that do not exist or that others can change, and why.
    ``updates``: the operating system, or why it was not read.
    """

    network: fabric_schema.Network
    gpu: Gpu
    kernel: str
    cma_free_bytes: int
    cma_total_bytes: int
    listeners: tuple[Listener, ...]
    login_users: tuple[str, ...]
    wrong_folders: Mapping[str, str]
    model: ModelFiles
    hub: HubModel | None
    nccl: Mapping[str, Any] | None
    additions: Mapping[str, Mapping[str, Any]]
    installed: Installed
    image: ImageOptions | None = None
    pins: Mapping[str, Pin] = field(default_factory=dict)
    builds: tuple[Stored, ...] = ()
    toolkit: Toolkit | None = None
    host_compiler: bool = True
    packages: packages.State = field(default_factory=packages.State)
    clock_ahead: float = 0
    host: HostState | None = None
    updates: os_update_schema.State | str = ""

    @property
    def system(self) -> os_update_schema.State | None:
        """The operating system, None if it was not read."""
        return self.updates if isinstance(self.updates, os_update_schema.State) else None


@dataclass(frozen=True)
class Tls:
    """The head's certificate without its key: digest and end of validity, and the result of its verification."""

    digest: str
    until: str
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Refused:
    """A variable whose value its role's argument specification refuses."""

    name: str
    found: str
    expected: str


@dataclass(frozen=True)
class Node:
    """A node of the inventory. ``facts`` is None if it was not read, and typical.observed() if they are ``typical``.

    parse.parse() documents the other fields.
    """

    name: str
    address: str
    user: str
    group: str
    settings: Settings
    variables: tuple[str, ...]
    refused: tuple[Refused, ...]
    nccl: str
    nccl_wanted: str
    nccl_patches: tuple[Patch, ...]
    build: Mapping[str, Any]
    options: Sequence[Mapping[str, Any]] | None
    environment_variables: Sequence[str] | None
    removing: bool
    key_problem: str
    tls: Tls | None
    secrets: Sequence[str]
    secret_problems: tuple[Problem, ...]
    smoke_tokens: int
    drop_caches: bool
    watched: bool
    image_python: str
    patch: PatchSettings
    packages: Mapping[str, Sequence[str]]
    protection: Protection
    recorder: UdpPorts
    #: The node exporter's port, 0 without metrics.
    metrics_port: int
    store_enabled: bool
    store_source: str
    #: Whether it is in the group gateway.
    gateway: bool
    unreachable: str
    unrecorded: str
    typical: bool
    facts: Facts | None

    @property
    def head(self) -> bool:
        """Whether the node is the head."""
        return self.group == "head"

    @property
    def capability(self) -> str | None:
        """The compute capability of the GPU, None if unknown."""
        return self.facts.gpu.capability if self.facts else None


@dataclass(frozen=True)
class Inputs:
    """All inputs. The head is first: it is rank 0, nodes[0] in messages, and host 1 of every subnet.

    ``lock``: the text of the runtime's lock file; ``recipe``: its values that are not in the settings;
    ``layers``: on the container image; ``problems``: of recipe and layers, and values of another type than their
    variable's.
    """

    nodes: tuple[Node, ...]
    lock: str
    problems: tuple[Problem, ...]
    recipe: Use | None = None
    layers: tuple[Layer, ...] = ()

    @property
    def head(self) -> Node:
        """The first node, whose settings count for the cluster."""
        return self.nodes[0]

    @property
    def label(self) -> str:
        """The label of facts that were not read from the nodes, "" for others."""
        return TYPICAL if any(node.typical for node in self.nodes) else ""
