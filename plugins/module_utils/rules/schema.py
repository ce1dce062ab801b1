# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of the lint rules: a situation, and a rule's view of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import PLAN, Check, Found
from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release as version
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory_schema
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

#: The places that find a rule whose value the plan sets or refuses, and which other launches can have.
LINT, VERIFY = "module vllm_lint", "verify.yml and module vllm_lint"

SPARK, THOR = "12.1", "11.0"
#: Two sources that many rules cite: notes on two Sparks with NGC's image, and on Sparks and Thors over Ethernet.
CONSELARA = "conselara.dev (vLLM 0.19, NGC 26.04)"
MIXED_NOTES = "distributed-vllm notes (Sparks and Thors, vLLM 0.17.1)"
_CONDITION = "condition: unit tests; effect: not tested here"


@dataclass(frozen=True)
class RuleNode(memory_schema.MemoryNode):
    """A node as the rules see it. ``capability``: "12.1", None without a GPU; unknown values are "" and 0.

    ``environment``: its variables; ``fabric``: the network's variables as planned; the user's may differ.
    ``level``: of DGX OS; ``next_kernel``: of the next boot; ``kernel_options``: see os_update/schema.KERNEL_OPTIONS.
    """

    capability: str | None
    driver: str
    kernel: str
    cma_free_bytes: int
    cma_total_bytes: int
    environment: Mapping[str, str]
    fabric: Mapping[str, str]
    level: str = field(default="", kw_only=True)
    next_kernel: str = field(default="", kw_only=True)
    kernel_options: Sequence[str] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class ServedModel:
    """The known facts about the model. ``scheme``: the storage of its weights, see model/quantization.py.

    ``kv_dtype``: the KV cache type of the checkpoint.
    """

    name: str = ""
    type: str = ""
    scheme: str = ""
    moe: bool = False
    reasoning: bool = False
    weights_bytes: int | None = None
    kv_dtype: str = ""


@dataclass(frozen=True)
class Situation:
    """A launch configuration and its nodes. Unknown values are "", 0 or None, and rules conclude nothing from them.

    ``arguments``: effective values by long name. ``container``: the user's engine options that override the unit's, as
    (path, value). ``nccl`` is the release that the ranks load, ``nccl_gcc`` the GCC releases that compiled it.
    ``drops_caches``: whether each launch drops the page cache first. ``packages``: the installed ones, by normalized
    name. ``replaced_share``: the user's share of the memory where the plan passes its own, which leaves
    ``reserve_bytes``. ``unplanned``: why the memory of a model of unknown size is not planned, "" otherwise.
    """

    release: str = ""
    image: str = ""
    runtime: str = ""
    network: str = ""
    container: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    image_has_ray: bool | None = None
    executor: str = ""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    topology: str = ""
    transport: str = ""
    api_host: str = ""
    api_key: bool = False
    nccl: str = ""
    nccl_gcc: Sequence[str] = ()
    smoke_tokens: int = 0
    drops_caches: bool = False
    packages: Collection[str] = ()
    replaced_share: float = 0
    reserve_bytes: int = 0
    unplanned: str = ""
    model: ServedModel = ServedModel()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    nodes: Sequence[RuleNode] = ()


@dataclass(frozen=True)
class View(Arguments):
    """One rule's view of a situation and its arguments: ``nodes`` are the nodes with the rule's GPUs."""

    situation: Situation
    gpus: tuple[str, ...]

    @property
    def nodes(self) -> list[tuple[int, RuleNode]]:
        """The nodes of the rule's GPUs, with their indexes in the cluster."""
        return [
            (index, node)
            for index, node in enumerate(self.situation.nodes)
            if not self.gpus or node.capability in self.gpus
        ]

    @property
    def model(self) -> ServedModel:
        """The known facts about the model."""
        return self.situation.model

    @property
    def ranks(self) -> int:
        """The number of nodes. For a command that was read on one node it is the number of ranks."""
        return max(
            len(self.situation.nodes), self.situation.tensor_parallel_size * self.situation.pipeline_parallel_size
        )

    @property
    def by_ray(self) -> bool:
        """Whether Ray starts the ranks."""
        return self.situation.executor == "ray"

    @property
    def roce(self) -> bool:
        """Whether several nodes exchange data over RoCE."""
        return self.ranks > 1 and self.situation.transport == "roce"

    def has(self, capability: str) -> bool:
        """Whether a node of the cluster has this GPU."""
        return any(node.capability == capability for node in self.situation.nodes)

    def before(self, *release: int) -> bool:
        """Whether vLLM is older than this release; an unknown release is not.

        A build between two releases counts as the later one: a finding needs evidence for its code. A build that knows
        no release has the version 0.1.dev with a number.
        """
        known = version(self.situation.release)
        if known is None or known < (0, 2):
            return False
        return ((known[0], known[1] + 1) if ".dev" in self.situation.release else known) < release

    def variable(self, name: str, wrong: Callable[[str | None], bool]) -> list[Found]:
        """Return a variable's wrong values with their nodes; ``wrong`` gets None for an unset variable."""
        nodes: dict[str | None, list[str]] = {}
        for _index, node in self.nodes:
            value = node.environment.get(name)
            if wrong(value):
                nodes.setdefault(value, []).append(node.name)
        return [
            (f"gb10_extra_env.{name}", f"{'unset' if value is None else repr(value)} on {', '.join(names)}")
            for value, names in nodes.items()
        ]

    def fact(self, name: str, wrong: Callable[[str], bool]) -> list[Found]:
        """Return the wrong values of a fact of the nodes."""
        return [
            (f"nodes[{index}].{name}", getattr(node, name)) for index, node in self.nodes if wrong(getattr(node, name))
        ]

    def given(self, name: str) -> list[Found]:
        """Return an argument and its current value as a finding."""
        return [(f"gb10_vllm_extra_args.{name}", self.argument(name) or "not given")]


#: Creates a rule: one lesson from a published report about serving on these machines. An error stops the run unless it
#: is waived. The service does not start, returns wrong answers or takes the host down, and no evidence contradicts it.
rule = partial(Check[View], PLAN, gpus=(SPARK,), tested=_CONDITION)


def when(condition: bool, *found: Found) -> list[Found]:
    """Return the findings if the condition holds, else []."""
    return list(found) if condition else []
