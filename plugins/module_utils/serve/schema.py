# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inputs of the serving decision, and the decision."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Finding
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.memory.schema import MemoryPlan
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.model.drafts import Draft
from ansible_collections.gb10.cluster.plugins.module_utils.model.kind import Kind
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import ModelConfig
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.choice import Loaded
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import File
from ansible_collections.gb10.cluster.plugins.module_utils.rules import schema as rules_schema
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.checks import Release

#: The default token limit of the smoke test.
ANSWER = 8


@dataclass(frozen=True)
class ServeSettings:
    """The variables of the role gb10 that decide how a model is served. A field is a variable without ``gb10_``."""

    served_model_name: str
    distributed_executor_backend: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    expert_parallel: bool
    api_host: str
    api_port: int
    api_key_enabled: bool
    api_media_domains: Sequence[str]
    api_origins: Sequence[str]
    extra_env: Mapping[str, str]
    max_model_len: int
    max_num_seqs: int
    kv_cache_dtype: str
    kv_cache_contexts: int
    kv_cache_tokens_per_request: int
    memory_reserve: int
    flashinfer: bool
    serve_waivers: Mapping[str, str]
    vllm_extra_args: Sequence[str]
    container_args: Sequence[str]
    install_dir: str


@dataclass(frozen=True)
class ServingNode(rules_schema.RuleNode):
    """A node with one rank. ``environment``: variables of the rank; ``recorded``: launch overrides that roles recorded,
    by role;
    ``additions``: with those that they will record."""

    recorded: Mapping[str, Mapping[str, Any]]
    additions: Mapping[str, Mapping[str, Any]]

    @property
    def rank_environment(self) -> dict[str, str]:
        """The environment with the launch overrides."""
        return overrides.rank_environment(self)


@dataclass(frozen=True)
class Served:
    """The model. ``config`` and ``weights_bytes`` come from its files if they were read, else from the catalog.

    ``weights_bytes`` is None if unknown. ``draft``: of speculative decoding, None without one. ``args_path`` and
    ``environment_paths``: the places of the entry's arguments and of each variable, for messages. ``recipe``: whether
    a recipe set them, or they belong to the image that serves it.
    """

    entry: Model
    config: ModelConfig
    weights_bytes: int | None
    draft: Draft | None
    args_path: str
    environment_paths: Mapping[str, str]
    recipe: bool


@dataclass(frozen=True)
class Inputs:
    """The inputs. ``release`` is the stack's vLLM, ``nccl`` the library that the ranks will load.

    ``topology`` is "" if other problems prevented a plan of the network; ``smoke_tokens`` is 0 for the model's default;
    ``drops_caches``: whether each start drops the page cache. ``packages``: the lock's, none if an image has its own.
    """

    model: Served
    stack: stacks.Stack
    release: Release
    settings: ServeSettings
    nodes: Sequence[ServingNode]
    topology: str
    transport: str
    nccl: Loaded
    smoke_tokens: int
    drops_caches: bool
    packages: Collection[str] = ()

    @property
    def on_gb10(self) -> bool:
        """Whether the ranks run on a GB10's GPU. Memory and kernel settings do not apply to the CPUs of the lab."""
        return self.stack.device == stacks.CUDA and any(node.capability == rules_schema.SPARK for node in self.nodes)


@dataclass(frozen=True)
class Part:
    """One part of the decision: arguments of vLLM, reasons and problems."""

    args: Sequence[str] = ()
    why: Sequence[str] = ()
    problems: Sequence[Problem] = ()


@dataclass(frozen=True)
class Decision:
    """The decision. ``environment``: of all ranks; ``files``: for the head; ``problems`` stop a run before any change.

    ``compiled``: the kernels that a CUDA compiler makes before the first start, [] for none. ``speculative``: whether
    vLLM decodes speculatively, which can exceed the speed of the memory plan.
    """

    tensor: int
    pipeline: int
    data: int
    smoke_tokens: int
    args: Sequence[str]
    environment: dict[str, str]
    files: list[File]
    why: Sequence[str]
    compiled: Sequence[str]
    memory: MemoryPlan | None
    findings: list[Finding]
    problems: list[Problem]
    kind: Kind
    speculative: bool
