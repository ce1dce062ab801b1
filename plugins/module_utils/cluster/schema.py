# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of the cluster plan: its inputs, which parse.parse() returns, and the plan that roles and templates
read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import schema as fabric_schema
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.links import Ports
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import Fabric
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import choice as nccl_choice
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.patch.expect import Options
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import Use
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.layers import Build, Layer
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.pins import Pin
from ansible_collections.gb10.cluster.plugins.module_utils.serve import schema as serve_schema
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Choice, Request, Stored

PREFIX = "gb10_"
TYPICAL = "typical facts, not read from the nodes"


@dataclass(frozen=True)
class Settings(serve_schema.Settings):
    """The public variables of the role gb10 without secrets. A field is a variable without ``gb10_``."""

    model: str
    models: Mapping[str, Any]
    recipe: str
    recipe_folder: str
    recipe_images: Mapping[str, str]
    image_layers: Sequence[Any]
    api_name: str
    api_clients: Sequence[str]
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
    restart_attempts: int
    restart_interval: int
    restart_delay: int
    restart_max_delay: int
    gate_timeout: int
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
    """What the head read in a container image: releases, "" if missing, and vLLM's options.

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
class Installed:
    """The parts of the collection that are on a node already; the module node_info documents them."""

    service_user: str = ""
    service_user_ready: bool = False
    ray_token_digest: str = ""
    watchdog_token_digest: str = ""
    runtime_mark: str = ""
    units: Sequence[str] = ()
    certificate: bool = False
    api_key: bool = False
    secret_environment: bool = False
    watchdog_webhook: bool = False
    nccl_replaced: bool = False
    last_good: str = ""


@dataclass(frozen=True)
class Facts:
    """The facts of a node, from the module node_info. Unknown values are 0 and "".

    ``nccl``: the library of the runtime, {} if there is none, None if it was not read. ``additions``: the launch
    overrides that roles recorded, by role. ``pins``: the images of tags. ``toolkit``: the CUDA compiler of the node,
    None if unknown;
    ``host_compiler``: whether g++ and Python's headers exist. ``packages``: Debian's. ``clock_ahead``: seconds to the
    controller's clock, 0 if unknown. ``builds``, ``published``, ``cores`` and ``memory``: the inputs of a build of
    vLLM; see vllm_build/schema.py.
    """

    network: fabric_schema.Network
    gpu: Gpu
    kernel: str
    cma_free_bytes: int
    cma_total_bytes: int
    listeners: tuple[Listener, ...]
    login_users: tuple[str, ...]
    model: ModelFiles
    hub: HubModel | None
    nccl: Mapping[str, Any] | None
    additions: Mapping[str, Mapping[str, Any]]
    installed: Installed
    image: ImageOptions | None = None
    pins: Mapping[str, Pin] = field(default_factory=dict)
    builds: tuple[Stored, ...] = ()
    published: Mapping[str, Mapping[str, int]] | None = None
    cores: int = 0
    memory: int = 0
    toolkit: Toolkit | None = None
    host_compiler: bool = True
    packages: packages.State = field(default_factory=packages.State)
    clock_ahead: float = 0


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
    build: Request
    options: Sequence[Mapping[str, Any]] | None
    environment_variables: Sequence[str] | None
    removing: bool
    key_problem: str
    tls: Tls | None
    secrets: Sequence[str]
    secret_problems: tuple[Problem, ...]
    smoke_tokens: int
    drop_caches: bool
    image_python: str
    patch: Options
    packages: Mapping[str, Sequence[str]]
    store_enabled: bool
    store_source: str
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


@dataclass(frozen=True)
class Rail:
    """One PCIe function in the fabric. ``peers``: address by node's name; ``macs``: MAC address by node's name."""

    interface: str
    hca: str
    address: str
    peers: Mapping[str, str]
    macs: Mapping[str, str]


@dataclass(frozen=True)
class Wheel:
    """A wheel that replaces the lock's on one node.

    ``built``: it is in the node's store of builds, else on the controller.
    """

    wheel: str
    sha256: str
    built: bool = False


@dataclass(frozen=True)
class State(Installed):
    """The finished parts of a node, so that roles skip them; ``runtime_ready``: it has the planned environment."""

    runtime_ready: bool = False


@dataclass(frozen=True)
class PlannedNode:
    """The plan of one node. ``files``: the fabric's other files, path to text, "" for a file that must not exist.

    ``toolkit``: the release of nvcc, "" without one. ``additions``: the launch overrides that roles recorded;
    ``foreseen``: with those that the role vllm_patch will record.

    ``runtime_mark`` is the text of the runtime's last file, which completes it. ``packages``: the missing Debian
    packages by role.
    """

    name: str
    address: str
    interface: str
    rails: tuple[Rail, ...]
    netplan: Mapping[str, Any]
    environment: Mapping[str, str]
    head: bool
    wheels: tuple[Wheel, ...]
    capability: str | None
    toolkit: str
    files: Mapping[str, str]
    secrets: Sequence[str]
    infiniband: bool
    additions: Mapping[str, Mapping[str, Any]]
    foreseen: Mapping[str, Mapping[str, Any]]
    runtime_mark: str
    packages: Mapping[str, Sequence[str]]
    state: State


@dataclass(frozen=True)
class Head:
    """The address at which the ranks reach the head."""

    name: str
    address: str


@dataclass(frozen=True)
class Store:
    """A model for the store; see model_store/plan.py."""

    folder: str
    hub: str
    revision: str
    source: str


@dataclass(frozen=True)
class Api:
    """The API's addresses; see api/access.py, place()."""

    url: str
    server_name: str
    endpoint: str
    client: str


@dataclass(frozen=True)
class ApiTls:
    """The API's certificate."""

    digest: str
    until: str


@dataclass(frozen=True)
class Container:
    """The ranks' runtime: a container. Launch overrides belong to ``name``.

    ``options_of``: the ID of the image whose options the plan uses, "" if the image was not queried. ``image`` is the
    last of the ``builds`` on ``base``, or ``base`` itself. ``lock``: the file with the releases in the image, or "".
    ``tag``: the tag in the inventory that ``base`` is pinned to, or equal to before its first pull, "" for a digest or
    an ID. ``pins``: those of all tags.
    """

    kind: str
    name: str
    image: str
    engine: str
    engine_args: Sequence[str]
    options_of: str
    base: str
    builds: Sequence[Build]
    lock: str
    tag: str
    pins: Mapping[str, Pin]


@dataclass(frozen=True)
class Environment(Container):
    """The ranks' runtime: a Python environment, which the lock file defines."""

    digest: str
    path: str
    link: str


@dataclass(frozen=True)
class Nccl:
    """Whether NCCL is built; see nccl/choice.py."""

    build: bool
    final: bool
    why: Sequence[str]
    wanted: str
    cluster: nccl_choice.Cluster


@dataclass(frozen=True)
class StackVersions:
    """The versions of the stack; see runtime/stacks.py."""

    name: str
    vllm: str
    nccl: str
    device: str
    cuda: int


@dataclass(frozen=True)
class Expected:
    """The limits and the speed of the planned server, 0 if unknown.

    ``context``: tokens of one request. ``max_num_seqs``: requests at the same time. ``tokens_per_second``: the memory
    plan's upper bound for one request, which ``speculative`` decoding can exceed. ``published``: the lowest and highest
    figure of others for this number of nodes in the catalog, () without one.
    """

    context: int
    max_num_seqs: int
    tokens_per_second: float
    speculative: bool
    published: Sequence[float]


@dataclass(frozen=True)
class Serve:
    """How the model is served. ``user_args``: the user's arguments; ``needs``: bytes of memory by node's name.

    ``dimension``: the numbers of a vector, 0 if unknown or without vectors. ``compiled``: the kernels that a CUDA
    compiler makes before the first start.

    ``model``, ``recipe``, ``memory``, ``why``, ``findings`` and ``warnings`` are text for people.
    """

    args: Sequence[str]
    user_args: Sequence[str]
    files: Sequence[serve_schema.File]
    smoke_tokens: int
    reasoning: bool
    dimension: int
    nccl: str
    why: Sequence[str]
    model: Sequence[str]
    recipe: Sequence[str]
    compiled: Sequence[str]
    memory: Sequence[str]
    needs: Mapping[str, int]
    expected: Expected
    findings: Sequence[str]
    warnings: Sequence[str]


@dataclass(frozen=True)
class Restart:
    """The limits of restarts: ``attempts`` starts in ``interval`` seconds, each after ``delay`` to ``max_delay``
    seconds.

    A start waits for its gates for at most ``gate_timeout`` seconds.
    """

    attempts: int
    interval: int
    delay: int
    max_delay: int
    gate_timeout: int


@dataclass(frozen=True)
class Plan:
    """The plan that roles apply. As plain data it is the fact ``gb10_plan``, with the node's own part in ``node``.

    ``kind``: see model/kind.py. ``label``: of facts that were not read from the nodes, "" for others.
    """

    nodes: tuple[PlannedNode, ...]
    head: Head
    model: str
    kind: str
    quantization: str
    served_model_name: str
    store: Store | None
    drafts: Sequence[Store]
    executor: str
    ranks_unit: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    api_host: str
    api_port: int
    api_key: bool
    api_clients: Sequence[str]
    api: Api
    api_tls: ApiTls | None
    ray_port: int
    rendezvous_port: int
    mtu: int
    takeover: bool
    pin_gid_index: bool
    root: str
    user: str
    home: str
    writable: Sequence[str]
    allow_restart: bool
    restart: Restart
    memory_max: int
    oom_score: int
    runtime: Container | Environment
    nccl: Nccl
    build: Choice
    stack: StackVersions
    serve: Serve
    topology: str
    functions: str
    fabric: Sequence[str]
    label: str

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain data; ``store`` and ``api_tls`` are {} if there is none."""
        return {**_plain(self), "store": _plain(self.store or {}), "api_tls": _plain(self.api_tls or {})}


def _plain(value: Any) -> Any:
    """Convert dataclasses to dicts and all sequences to lists."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
