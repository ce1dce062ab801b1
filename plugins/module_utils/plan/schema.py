# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a cluster: the planner's decisions, which roles, templates and modules read.

As plain data it is the fact ``gb10_plan``; load.plan() returns the types again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.host_guard.plan import HostPlan
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.layers import Build
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.pins import Pin
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Choice


@dataclass(frozen=True)
class Rail:
    """One PCIe function in the fabric: its devices, and its address with prefix length.

    ``peers``: the addresses of the other nodes in the same subnet, by node's name; ``macs``: their MAC addresses.
    """

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
class Installed:
    """The parts of the collection that are on a node already; the module node_info documents them."""

    service_user: str = ""
    service_user_ready: bool = False
    ray_token_digest: str = ""
    message_secret_digest: str = ""
    message_keys_mark: str = ""
    runtime_mark: str = ""
    units: Sequence[str] = ()
    certificate: bool = False
    api_key: bool = False
    secret_environment: bool = False
    watchdog_webhook: bool = False
    nccl_replaced: bool = False
    last_good: str = ""


@dataclass(frozen=True)
class State(Installed):
    """The finished parts of a node, so that roles skip them; ``runtime_ready``: it has the planned environment."""

    runtime_ready: bool = False


@dataclass(frozen=True)
class NodeFabric:
    """One node's share of the fabric. Ray and vLLM use ``address``, on ``interface``, for the node.

    ``files``: the fabric's other files, path to text, "" for a file that must not exist. ``environment``: the variables
    of its ranks.
    """

    name: str
    address: str
    interface: str
    rails: tuple[Rail, ...]
    netplan: Mapping[str, Any]
    files: Mapping[str, str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class PlannedNode(NodeFabric):
    """The plan of one node.

    ``toolkit``: the release of nvcc, "" without one. ``additions``: the launch overrides that roles recorded;
    ``foreseen``: with those that the role vllm_patch will record.

    ``runtime_mark`` is the text of the runtime's last file, which completes it. ``packages``: the missing Debian
    packages by role. ``host_guard``: the protection of the host, and whether it differs.
    """

    head: bool
    wheels: tuple[Wheel, ...]
    capability: str | None
    toolkit: str
    secrets: Sequence[str]
    infiniband: bool
    additions: Mapping[str, Mapping[str, Any]]
    foreseen: Mapping[str, Mapping[str, Any]]
    runtime_mark: str
    packages: Mapping[str, Sequence[str]]
    state: State
    host_guard: HostPlan


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
class NcclInputs:
    """Inputs of the choice of NCCL besides the libraries.

    ``cuda``: vLLM is a CUDA build; ``container``: ranks run in containers; ``ring``: the cables are a ring with RoCE;
    ``release``: the NCCL release in the lock or the image, "" if it is unknown; ``patches``: names of those of a build.
    """

    cuda: bool
    container: bool
    ring: bool
    release: str
    patches: Sequence[str]


@dataclass(frozen=True)
class Nccl:
    """Whether NCCL is built; see nccl/choice.py."""

    build: bool
    final: bool
    why: Sequence[str]
    wanted: str
    cluster: NcclInputs


@dataclass(frozen=True)
class StackVersions:
    """The versions of the stack; see runtime/stacks.py."""

    name: str
    vllm: str
    nccl: str
    device: str
    cuda: int


@dataclass(frozen=True)
class Measured:
    """The figures that the source of a recipe measured with it, and their conditions. Unknown values are 0 or "?".

    ``decode`` and ``prefill``: tokens per second of a request. ``revision``: of the model; ``image``: the digest.
    """

    source: str
    dataset: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    decode: float
    prefill: float
    harness: str
    date: str
    driver: str
    vllm: str
    revision: str
    image: str


@dataclass(frozen=True)
class Expected:
    """The limits and the speed of the planned server, 0 if unknown.

    ``context``: tokens of one request. ``max_num_seqs``: requests at the same time. ``tokens_per_second``: the memory
    plan's upper bound for one request, which ``speculative`` decoding can exceed. ``published``: the lowest and highest
    figure of others for this number of nodes in the catalog, () without one. ``measured``: with the recipe of the plan.
    """

    context: int
    max_num_seqs: int
    tokens_per_second: float
    speculative: bool
    published: Sequence[float]
    measured: Sequence[Measured] = ()


@dataclass(frozen=True)
class File:
    """A file to download to a path on the head."""

    url: str
    sha256: str
    path: str


@dataclass(frozen=True)
class Serve:
    """How the model is served. ``user_args``: the user's arguments; ``needs``: bytes of memory by node's name.

    ``dimension``: the numbers of a vector, 0 if unknown or without vectors. ``compiled``: the kernels that a CUDA
    compiler makes before the first start.

    ``model``, ``recipe``, ``memory``, ``why``, ``findings`` and ``warnings`` are text for people.
    """

    args: Sequence[str]
    user_args: Sequence[str]
    files: Sequence[File]
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
class Rest:
    """The seconds without a request after which the model rests, 0 for never, and the head's port that wakes it."""

    after: int
    port: int


@dataclass(frozen=True)
class Fallback:
    """A small model on one ``node``, for the gateway on it while the cluster's does not answer.

    ``args`` and ``user_args``: of ``vllm serve``. ``environment``: variables of its process. ``needs``: bytes of
    memory, ``context``: tokens; both 0 if unknown. ``memory`` is text for people.
    """

    node: str
    model: str
    served_model_name: str
    context: int
    port: int
    store: Store | None
    args: Sequence[str]
    user_args: Sequence[str]
    environment: Mapping[str, str]
    needs: int
    memory: Sequence[str]


@dataclass(frozen=True)
class Plan:
    """The plan that roles apply. ``node``: the part of the node whose fact it is, and the head in the planner's result.

    ``kind``: see model/kind.py. ``fabric`` and ``system`` are text for people. ``label``: of facts that were not read
    from the nodes, "" for others.
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
    rest: Rest
    fallback: Fallback | None
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
    system: Sequence[str]
    label: str
    node: PlannedNode

    @property
    def by_ray(self) -> bool:
        """Whether Ray starts the ranks. Otherwise each node's server has its own."""
        return self.executor == "ray"

    @property
    def own_fallback(self) -> Fallback | None:
        """The fallback if the plan's node has it."""
        return self.fallback if self.fallback and self.fallback.node == self.node.name else None

    def at(self, node: PlannedNode) -> Plan:
        """Return the plan of another node."""
        return replace(self, node=node)

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain data; ``store``, ``api_tls`` and ``fallback`` are {} if there is none."""
        empty = {name: load.plain(getattr(self, name) or {}) for name in ("store", "api_tls", "fallback")}
        return {**load.plain(self), **empty}
