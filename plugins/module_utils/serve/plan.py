# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide how a model is served: arguments, environment, memory, findings and reasons."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.memory import adapters
from ansible_collections.gb10.cluster.plugins.module_utils.memory import checks as memory_checks
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory_schema
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, drafts
from ansible_collections.gb10.cluster.plugins.module_utils.model import kind as model_kind
from ansible_collections.gb10.cluster.plugins.module_utils.model import layers as model_layers
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.model.kind import Kind
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape, read_config
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import File
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import ServedModel, Situation, View
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve import backends as serve_backends
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import ANSWER, Decision, Inputs, ServeSettings
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

#: Above every valid number of bytes or tokens.
_MOST = 1 << 62
#: MemTotal of a Spark, for nodes whose memory is unknown.
_SPARK = 121 * memory_schema.GIB
#: The smoke test's token limit for a reasoning model, which uses hundreds of tokens before its answer.
_REASONED_ANSWER = 512
_GB10, _THOR = "12.1", "11.0"
#: How much faster fewer nodes are before the plan reports it.
_FASTER = 1.1
#: The first release that keeps prefixes of models with states by default. Source: vLLM 0.23, 0.26.0 and 0.27.1,
#: engine/arg_utils.py ("opt-in for now"), and 0.28.1rc1, which does.
_PREFIXES, _KEPT_STATES = "--enable-prefix-caching", (0, 28)
#: The first release whose Triton (3.7) supports Thor.
_THOR_ASSEMBLER = (0, 27)
_SHARE, _KV_DTYPE, _SEQUENCES = "--gpu-memory-utilization", "--kv-cache-dtype", "--max-num-seqs"
#: The share's name, and its other name since vLLM 0.31.
_SHARES = (_SHARE, "--device-memory-utilization")
#: The sequences and the tokens of each request in the KV cache of a pooling model: with its most requests, one batch.
_POOLED = (2, 128)
#: Most models in a problem.
_SHOWN = 5
_MARLIN = "VLLM_MARLIN_USE_ATOMIC_ADD"
_MEDIA, _ORIGINS = "--allowed-media-domains", "--allowed-origins"
#: A host name or IPv4 address, as vLLM reads it from a URL.
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
#: Arguments that variables replace, with the variable's value that means unset.
_OWNED: Mapping[str, tuple[str, Any]] = {
    "--tensor-parallel-size": ("gb10_tensor_parallel_size", None),
    "--pipeline-parallel-size": ("gb10_pipeline_parallel_size", None),
    "--data-parallel-size": ("gb10_data_parallel_size", None),
    "--enable-expert-parallel": ("gb10_expert_parallel", None),
    "--distributed-executor-backend": ("gb10_distributed_executor_backend", None),
    "--host": ("gb10_api_host", None),
    "--port": ("gb10_api_port", None),
    "--served-model-name": ("gb10_served_model_name", ""),
    "--max-model-len": ("gb10_max_model_len", 0),
    _SEQUENCES: ("gb10_max_num_seqs", 0),
    _KV_DTYPE: ("gb10_kv_cache_dtype", "auto"),
}


@dataclass(frozen=True)
class _Part:
    """One part of the decision: arguments of vLLM, reasons and problems."""

    args: Sequence[str] = ()
    why: Sequence[str] = ()
    problems: Sequence[Problem] = ()


def decide(inputs: Inputs) -> Decision:
    """Decide how to serve. Collects all problems, so that they are listed together with those of the cluster."""
    model, config = inputs.model.entry, inputs.model.config
    settings, release = inputs.settings, inputs.release
    environment, files = _environment(inputs), _files(inputs)
    # A node's own values win.
    inputs = replace(
        inputs, nodes=[replace(node, environment={**environment, **node.environment}) for node in inputs.nodes]
    )
    options = _options(inputs)
    served = release.serves(model.requires.get("since", ""), model.requires.get("until", ""))
    unread = release.unread_variables(settings.extra_env, "gb10_extra_env")
    for name, path in inputs.model.environment_paths.items():
        unread += release.unread_variables({name: ""}, path)
    of_model, _problems = release.arguments([word for _name, words in options for word in words], "")
    user_args, user_problems = release.arguments(settings.vllm_extra_args, "gb10_vllm_extra_args")
    given = {**of_model, **user_args}
    kind, kind_problems = model_kind.find(model.kind, config.raw, given, "gb10_vllm_extra_args")
    inputs, replicated = _replicated(inputs, kind, given)
    settings = inputs.settings
    tensor, pipeline, split = _parallelism(inputs)
    pooling = model_kind.pooling_arguments(kind, config.raw, of_model, user_args, inputs.model.args_path)
    memory_part, plan = _memory(inputs, given, tensor, pipeline)
    decided = _joined(
        _Part(why=[f"memory is not planned: {config.unknown}"] if config.unknown else [], problems=user_problems),
        _Part(
            why=[*split, *replicated, *_draft(inputs), *_lora(inputs, given), *_prefixes(inputs, given)],
            problems=kind_problems,
        ),
        _Part(*pooling),
        _Part(problems=_pipelined(config.shape, pipeline)),
        _experts(inputs),
        memory_part,
        _eager(inputs, given),
        _backends(inputs, given),
        _stack(inputs, environment),
        _named(model, options, plan is not None),
        _Part(args=[f"{argument}={file.path}" for argument, file in files]),
        _media(settings.api_media_domains),
        _origins(settings.api_origins),
        _Part(problems=[] if served else [_required(inputs)]),
        _Part(why=_left(inputs, given, plan is not None)),
        _Part(why=_unchecked(inputs), problems=[*_contradictions(settings, tensor, pipeline, user_args), *unread]),
    )
    tokens = inputs.smoke_tokens or (_REASONED_ANSWER if model.reasoning else ANSWER)
    situation = _situation(inputs, tensor, pipeline, tokens, user_args if plan else None)
    overridden = [*decided.args, *overrides.serve_flags(inputs.nodes)]
    values, problems = release.arguments(overridden, inputs.model.args_path)
    # The plan passes the user's share of the memory as its own; see without_share().
    passed = _passed(user_args, plan is not None)
    effective = {**values, **passed}
    places = _sources(inputs, effective, passed, of_model)
    findings, stopping = lint.judge(situation, effective, settings.serve_waivers, places)
    return Decision(
        tensor=tensor,
        pipeline=pipeline,
        data=settings.data_parallel_size,
        smoke_tokens=tokens,
        args=decided.args,
        environment=environment,
        files=[file for _argument, file in files],
        why=decided.why,
        compiled=_compiled(inputs, effective),
        memory=plan,
        findings=findings,
        # A release that does not serve the model may lack its parsers, so its arguments are not judged.
        problems=[*decided.problems, *(problems if served else []), *stopping],
        kind=kind,
        speculative=bool(View(Situation(arguments=effective), ()).speculative()),
    )


def better_split(inputs: Inputs, decision: Decision) -> list[str]:
    """Return a sentence if fewer of these nodes serve one request faster, with the same context, and one about
    replicas.

    Only stages are slower: tensor parallelism reads the weights on all nodes at once. Replicas of a mixture of experts
    still share its experts over the network (vLLM, fused_moe/config.py, flatten_tp_across_dp).
    """
    if not decision.memory or decision.pipeline == 1:
        return []
    settings = replace(inputs.settings, tensor_parallel_size=0, pipeline_parallel_size=0)
    smaller = {
        count: decide(replace(inputs, nodes=inputs.nodes[:count], settings=settings))
        for count in range(1, len(inputs.nodes))
    }
    speeds = {
        count: other.memory.tokens_per_second
        for count, other in smaller.items()
        if other.memory and not other.problems and other.memory.context >= decision.memory.context
    }
    best, now, count = (
        max(speeds, key=speeds.__getitem__, default=0),
        decision.memory.tokens_per_second,
        len(inputs.nodes),
    )
    found = []
    if best and speeds[best] > _FASTER * now:
        others = ", ".join(node.name for node in inputs.nodes[best:])
        reached = (
            f"{best} node{'s reach' if best > 1 else ' reaches'} {speeds[best]:.1f} tokens/s for one request, "
            f"these {count} {now:.1f}"
        )
        found.append(f"{reached}; use {others} for another model (docs/clusters.md)")
    shape = inputs.model.config.shape
    if shape and not shape.experts and speeds.get(1, 0.0) * _FASTER > now:
        more = f"gb10_data_parallel_size: {count} serves {count} times as many requests"
        found.append(f"one node holds the model, and {count} stages are not faster; {more}")
    return found


def _joined(*parts: _Part) -> _Part:
    return _Part(
        [word for part in parts for word in part.args],
        [line for part in parts for line in part.why],
        [problem for part in parts for problem in part.problems],
    )


def _environment(inputs: Inputs) -> dict[str, str]:
    """Return the variables that all ranks have in common."""
    defaults = dict[str, str]()
    if _names(inputs):
        defaults = {_MARLIN: "1"} | serve_backends.environment(
            inputs.model.config.quantization.scheme, inputs.settings.flashinfer
        )
    # An allowed server could redirect to any other.
    media = {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"} if inputs.settings.api_media_domains else {}
    return {**defaults, **inputs.stack.environment, **inputs.model.entry.environment, **media}


def _media(domains: Sequence[str]) -> _Part:
    """Limit the hosts whose media the server fetches if a request names them by URL."""
    problems = [
        Problem(
            f"gb10_api_media_domains[{index}]",
            repr(domain),
            "a host name in lower case, without port and path",
            "correct it",
        )
        for index, domain in enumerate(domains)
        if not _DOMAIN.fullmatch(domain)
    ]
    return _Part(args=[_MEDIA, *domains] if domains and not problems else [], problems=problems)


def _origins(origins: Sequence[str]) -> _Part:
    """Let web pages of these origins use the API."""
    problems = access.origin_problems("gb10_api_origins", origins)
    return _Part(args=[_ORIGINS, json.dumps(origins)] if origins and not problems else [], problems=problems)


def _names(inputs: Inputs) -> bool:
    """Whether the plan names the backends.

    The image of a recipe or of a catalog entry was tested with the choices that are left to vLLM.
    """
    return _cuda(inputs) and not inputs.model.recipe


def _left(inputs: Inputs, given: Mapping[str, Any], planned: bool) -> list[str]:
    """Report the options that a recipe leaves to vLLM, and that the plan would set for a model of the catalog."""
    if not inputs.model.recipe or not _cuda(inputs):
        return []
    options = [serve_backends.ATTENTION, serve_backends.MOE, serve_backends.AUTOTUNE]
    options += [] if planned or inputs.settings.max_num_seqs else [_SEQUENCES]
    names = [name for name in options if name not in given]
    names += [_MARLIN] if _MARLIN not in inputs.nodes[0].environment else []
    return [f"left to vLLM, as the image was tested: {', '.join(names)}"] if names else []


def _files(inputs: Inputs) -> list[tuple[str, File]]:
    """Return the model's extra files for the head, each with the argument that takes its path."""
    folder = f"{inputs.settings.install_dir}/files"
    return [(file.argument, File(file.url, file.sha256, f"{folder}/{file.name}")) for file in inputs.model.entry.files]


def _options(inputs: Inputs) -> list[tuple[str, Sequence[str]]]:
    """Return the names and the words of the model's arguments. gb10_kv_cache_dtype replaces that option of the
    model."""
    auto = inputs.settings.kv_cache_dtype == "auto"
    return [(name, words) for name, words in _words(inputs.model.entry.args) if auto or name != _KV_DTYPE]


def _words(args: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """Return the names and the words of the options in arguments."""
    return [(name, words) for name, _values, words in arguments.options(args)]


def without_share(args: Sequence[str]) -> list[str]:
    """Return the user's arguments without the share of the memory. With a planned memory, the plan passes its own."""
    return [word for name, words in _words(args) if name not in _SHARES for word in words]


def _replaced(words: Sequence[str]) -> str:
    return f"{' '.join(words)} is replaced: the memory plan takes at most this share, and passes its own"


def _encodes(shape: Shape | None) -> bool:
    return shape is not None and shape.family in model_layers.ENCODERS


def _pipelined(shape: Shape | None, pipeline: int) -> list[Problem]:
    """Check that no encoder has pipeline stages, which vLLM 0.18.1 to 0.33.0 does not support (models/bert.py)."""
    if not _encodes(shape) or pipeline == 1:
        return []
    expected = "1, because vLLM does not divide an encoder's layers over nodes"
    return [
        Problem(
            "gb10_pipeline_parallel_size", str(pipeline), expected, "set gb10_data_parallel_size to the number of nodes"
        )
    ]


def _stack(inputs: Inputs, environment: Mapping[str, str]) -> _Part:
    """Explain the variables of the stack."""
    stack, others = inputs.stack, {**inputs.model.entry.environment, **inputs.settings.extra_env}
    why = [
        f"{name}={value}: the stack {stack.name} sets it"
        for name, value in stack.environment.items()
        if name not in others
    ]
    if _MARLIN in environment and _MARLIN not in {**stack.environment, **others}:
        why.append(f"{_MARLIN}=1: without it Marlin's kernels reportedly race on sm_121")
    return _Part(why=why)


def _backends(inputs: Inputs, given: Mapping[str, Any]) -> _Part:
    """Name the backends that neither model nor user sets in any way."""
    if not _names(inputs):
        return _Part()
    config, settings = inputs.model.config, inputs.settings
    cache = str(given.get(_KV_DTYPE, settings.kv_cache_dtype))
    kv_dtype = config.quantization.kv_dtype if cache == "auto" else cache
    return _Part(*serve_backends.named(inputs.release, config, kv_dtype, given, settings.flashinfer))


def _compiled(inputs: Inputs, arguments: Mapping[str, Any]) -> list[str]:
    """Return the kernels that a CUDA compiler makes on these nodes, each once. An image brings its own compiler."""
    if inputs.stack.device != stacks.CUDA or inputs.stack.runtime != stacks.NATIVE:
        return []
    config, release = inputs.model.config, inputs.release
    scheme, experts = config.quantization.scheme, config.experts
    found = [
        kernel
        for node in inputs.nodes
        for kernel in serve_backends.compiled(
            release, arguments, node.rank_environment, node.capability, scheme, experts
        )
    ]
    return list(dict.fromkeys(found))


def _named(model: Model, options: Sequence[tuple[str, Sequence[str]]], planned: bool) -> _Part:
    """Return the model's own arguments: the requested revision, and its ``options``, each as name and words.

    ``planned``: whether the memory plan sets the share of the memory, which a recipe sets too. Its share is a limit.
    """
    args = [f"--revision={model.revision}"] if model.revision and not model.path else []
    args += [f"--quantization={model.quantization}"] if model.quantization else []
    shares = []
    for name, words in options:
        if planned and name in _SHARES:
            shares.append(_replaced(words))
        else:
            args += words
    return _Part(args, shares)


def _cuda(inputs: Inputs) -> bool:
    """Whether the ranks run on a GB10's GPU. Memory and kernel settings do not apply to the CPUs of the lab's nodes."""
    return inputs.stack.device == stacks.CUDA and any(node.capability == _GB10 for node in inputs.nodes)


def _replicated(inputs: Inputs, kind: Kind, given: Mapping[str, Any]) -> tuple[Inputs, list[str]]:
    """Decide on the number of replicas and the KV cache of a pooling model; return the inputs with both, and the
    reason.

    A pooling model has no decode phase that tensor parallelism speeds up: a replica on each node answers more requests,
    and needs no network. The KV cache holds one batch, and one text that a batch does not finish.
    """
    settings, count = inputs.settings, len(inputs.nodes)
    if kind.pooling:
        contexts, tokens = (
            min(settings.kv_cache_contexts, _POOLED[0]),
            min(settings.kv_cache_tokens_per_request, _POOLED[1]),
        )
        settings = replace(settings, kv_cache_contexts=contexts, kv_cache_tokens_per_request=tokens)
    replicas, why = settings.data_parallel_size or 1, list[str]()
    given_sizes = settings.data_parallel_size or settings.tensor_parallel_size or settings.pipeline_parallel_size
    if kind.pooling and count > 1 and not given_sizes:
        smallest = min(inputs.nodes, key=lambda node: node.memory_bytes)
        _part, plan = _memory(
            replace(inputs, settings=replace(settings, data_parallel_size=1), nodes=[smallest]), given, 1, 1
        )
        if plan and plan.fits:
            replicas, why = (
                count,
                [f"data {count}: one node holds the model; gb10_data_parallel_size: 1 splits it instead"],
            )
    return replace(inputs, settings=replace(settings, data_parallel_size=replicas)), why


def _parallelism(inputs: Inputs) -> tuple[int, int, list[str]]:
    """Take (tensor, pipeline) from the user, or choose them; return them with the reason."""
    tensor, pipeline = inputs.settings.tensor_parallel_size, inputs.settings.pipeline_parallel_size
    if inputs.settings.data_parallel_size > 1:
        return (
            1,
            1,
            [
                (
                    "each node has a replica of the model: requests are distributed, and the model is not split "
                    "over the network"
                )
            ],
        )
    count = len(inputs.nodes)
    if tensor or pipeline:
        return tensor or max(1, count // pipeline), pipeline or max(1, count // tensor), []
    tensor, pipeline, why = _sizes(inputs, inputs.model.config.shape, inputs.model.entry)
    return tensor, pipeline, [f"tensor {tensor} x pipeline {pipeline}: {why}"] if count > 1 else []


def _sizes(inputs: Inputs, shape: Shape | None, model: Model) -> tuple[int, int, str]:
    """Choose (tensor, pipeline, why) for a model with one GPU per node, such that no node is idle."""
    count = len(inputs.nodes)
    if model.tensor * model.pipeline == count:
        return model.tensor, model.pipeline, "from the catalog"
    mixed = len({node.capability for node in inputs.nodes if node.capability}) > 1
    if count > 1 and not _encodes(shape) and (mixed or inputs.transport == "socket"):
        reason = "the GPUs differ" if mixed else "NCCL uses sockets"
        slow = "tensor parallelism waits for the network in every layer"
        return 1, count, f"one pipeline stage per node, because {reason}; {slow}"
    fitting = (size for size in range(count, 0, -1) if count % size == 0)
    tensor = next(size for size in fitting if shape is None or memory_checks.divides(shape, size))
    least = "" if tensor == count else f"; its heads are not divisible by {count}"
    return tensor, count // tensor, f"every layer is split over as many nodes as the model allows{least}"


def _draft(inputs: Inputs) -> list[str]:
    """Explain the memory of a draft, which the memory plan counts whole on each rank."""
    draft = inputs.model.draft
    if not draft:
        return []
    if draft.weights_bytes:
        return [
            (
                f"the draft {draft.hub}: {draft.weights_bytes / 1e9:.1f} GB on each rank, without its KV cache, "
                "which is not planned"
            )
        ]
    return [f"the draft {draft.hub}: its size is unknown, so its memory is not planned"]


def _adapters(given: Mapping[str, Any]) -> adapters.Adapters | None:
    numbers = (_number(given, name) for name in ("--max-lora-rank", "--max-loras", "--max-cpu-loras"))
    return adapters.of_arguments(bool(given.get(adapters.ENABLE)), *numbers)


def _adapter_bytes(inputs: Inputs, given: Mapping[str, Any]) -> int:
    found, config = _adapters(given), inputs.model.config
    return found.memory(config.shape) if found and config.shape else 0


def _lora(inputs: Inputs, given: Mapping[str, Any]) -> list[str]:
    """Explain the memory of LoRA adapters."""
    found = _adapters(given)
    if not found or not inputs.model.config.shape:
        return []
    return [
        (
            f"LoRA: up to {_adapter_bytes(inputs, given) / 1e9:.1f} GB on each rank for --max-loras={found.loaded} and "
            f"--max-cpu-loras={found.on_cpu} of --max-lora-rank={found.rank}, an estimate"
        )
    ]


def _prefixes(inputs: Inputs, given: Mapping[str, Any]) -> list[str]:
    """Explain that a model with states keeps no prefixes of earlier requests."""
    shape = inputs.model.config.shape
    if (
        not shape
        or not shape.of("state")
        or _PREFIXES in given
        or inputs.release.unread
        or inputs.release.number >= _KEPT_STATES
    ):
        return []
    return [
        f"prefix caching is off: vLLM before about 0.28 leaves it off for models with states; {_PREFIXES} turns it on"
    ]


def _experts(inputs: Inputs) -> _Part:
    """Distribute whole experts over the ranks, instead of slices of each."""
    if not inputs.settings.expert_parallel:
        return _Part()
    shape, found = inputs.model.config.shape, f"{inputs.model.entry.name} has no experts"
    problem = Problem("gb10_expert_parallel", found, "a mixture of experts", "set gb10_expert_parallel: false")
    return _Part(["--enable-expert-parallel"], problems=[problem] if shape is not None and not shape.experts else [])


def _eager(inputs: Inputs, given: Mapping[str, Any]) -> _Part:
    """Turn the compiler off if Triton's assembler does not support a Thor's sm_110a; see rule thor-ptxas."""
    if inputs.stack.device != stacks.CUDA or inputs.release.number >= _THOR_ASSEMBLER or "--enforce-eager" in given:
        return _Part()
    thors = [node for node in inputs.nodes if node.capability == _THOR]
    without = ", ".join(node.name for node in thors if not node.rank_environment.get("TRITON_PTXAS_PATH"))
    if not without:
        return _Part()
    why = (
        f"Triton of vLLM {inputs.release.version} has no assembler for sm_110a; TRITON_PTXAS_PATH is not set on "
        f"{without}"
    )
    return _Part(["--enforce-eager"], [f"--enforce-eager: {why}"])


def _memory(
    inputs: Inputs, given: Mapping[str, Any], tensor: int, pipeline: int
) -> tuple[_Part, memory_schema.MemoryPlan | None]:
    """Plan the memory, and add the resulting arguments. The user's own arguments take precedence."""
    settings, shape = inputs.settings, inputs.model.config.shape
    args = [f"{_KV_DTYPE}={settings.kv_cache_dtype}"] if settings.kv_cache_dtype != "auto" else []
    args += [f"{_SEQUENCES}={settings.max_num_seqs}"] if settings.max_num_seqs else []
    if not _cuda(inputs):
        return _Part([*args, *_length(inputs)]), None
    distributed = settings.data_parallel_size > 1 and settings.expert_parallel
    if settings.memory_reserve < 0:
        # The check of the settings reports it.
        return _Part(args), None
    if problems := _check_reserve(inputs):
        return _Part(args, problems=problems), None
    if shape is None or distributed or not all(node.memory_bytes for node in inputs.nodes):
        chosen = not (settings.max_num_seqs or _SEQUENCES in given or inputs.model.recipe)
        sequences = [f"{_SEQUENCES}={memory_plan.SEQUENCES}"] if chosen else []
        share, why = _unplanned(inputs, distributed, given)
        return _Part([*args, *share, *_length(inputs), *sequences], why, _few(inputs)), None
    return _planned(inputs, shape, given, tensor, pipeline, args)


def _length(inputs: Inputs) -> list[str]:
    """Return the argument for the context of the settings or of the entry, where no memory is planned."""
    context = inputs.settings.max_model_len or inputs.model.entry.max_model_len
    return [f"--max-model-len={context}"] if context else []


def _few(inputs: Inputs) -> list[Problem]:
    """Return the problem of a model that the catalog knows to need more nodes, where no memory is planned."""
    entry, count = inputs.model.entry, len(inputs.nodes)
    found = f"{entry.name} is larger than the cluster: it needs {entry.nodes} Sparks of 128 GB, and there are {count}"
    fix = f"use {entry.nodes} Sparks, or another model"
    return [Problem("gb10_model", found, "a model that fits", fix)] if entry.nodes > count else []


def _unplanned(inputs: Inputs, distributed: bool, given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the argument for a share of the memory that leaves the reserve, [] if one is given, with the reasons."""
    reserve, known = inputs.settings.memory_reserve, all(node.memory_bytes for node in inputs.nodes)
    sizes = [node.memory_bytes or _SPARK for node in inputs.nodes]
    share = f"{min((size - reserve * memory_schema.GIB) * 100 // size for size in sizes) / 100:.2f}"
    why = ["memory is not planned: experts are distributed over replicas"] if distributed else []
    if any(name in given for name in _SHARES):
        return [], why
    reason = f"{share} of the memory, which leaves gb10_memory_reserve ({reserve} GiB)"
    return [f"{_SHARE}={share}"], [*why, reason if known else f"{reason}; the nodes' memory is unknown"]


def _planned(
    inputs: Inputs, shape: Shape, given: Mapping[str, Any], tensor: int, pipeline: int, args: Sequence[str]
) -> tuple[_Part, memory_schema.MemoryPlan | None]:
    """Plan the memory, and add the resulting arguments to ``args``."""
    share, problems = _share(inputs)
    try:
        plan = memory_plan.plan(_memory_inputs(inputs, shape, given, tensor, pipeline, share))
    except ProblemsError as error:
        return _Part(args, problems=[*problems, *_located(inputs, error.problems)]), None
    fits = "" if plan.fits else f", or use a model that fits: {_fitting(inputs, share)}"
    found = [replace(problem, fix=f"{problem.fix}{fits}") for problem in plan.problems]
    why = [_replaced(words) for name, words in _words(inputs.settings.vllm_extra_args) if name in _SHARES]
    return _Part([*args, *plan.arguments], why, [*problems, *_located(inputs, found)]), plan


def _check_reserve(inputs: Inputs) -> list[Problem]:
    """Check that the reserve leaves memory on the smallest node."""
    reserve, smallest = inputs.settings.memory_reserve, min(node.memory_bytes or _SPARK for node in inputs.nodes)
    if reserve * memory_schema.GIB < smallest:
        return []
    expected = f"less than the {smallest / memory_schema.GIB:.1f} GiB of the smallest node"
    return [Problem("gb10_memory_reserve", f"{reserve} GiB", expected, "lower gb10_memory_reserve")]


def _given(inputs: Inputs) -> list[tuple[str, str, Sequence[str]]]:
    """Return the options of the model and then those of the user, which win: location, name and words."""
    own = _words(inputs.settings.vllm_extra_args)
    return [(inputs.model.args_path, *each) for each in _options(inputs)] + [
        ("gb10_vllm_extra_args", *each) for each in own
    ]


def _located(inputs: Inputs, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of options with the locations of their values: arguments, or the variable."""
    places = {option: variable for option, (variable, _unset) in _OWNED.items()}
    places |= {name: f"{path}.{name}" for path, name, _words in _given(inputs)}
    return [replace(problem, path=places.get(problem.path, problem.path)) for problem in problems]


def _unknown(inputs: Inputs) -> str:
    """Return why the size of a model is unknown, "" if it is known. An image of a recipe was tested with its model."""
    model = inputs.model
    return (
        ""
        if model.weights_bytes or model.recipe or not _cuda(inputs)
        else model.config.unknown or "its size is unknown"
    )


def _passed(user_args: Mapping[str, Any], planned: bool) -> dict[str, Any]:
    """Return the user's arguments that vLLM gets: a memory plan passes its own share."""
    return {name: value for name, value in user_args.items() if not planned or name != _SHARE}


def _sources(
    inputs: Inputs, effective: Mapping[str, Any], user_args: Mapping[str, Any], of_model: Mapping[str, Any]
) -> dict[str, str]:
    """Return where the options and variables come from that the user did not set, by the place that a rule names."""
    settings, sources = inputs.settings, dict[str, str]()
    for name in effective.keys() - user_args.keys():
        variable, unset = _OWNED.get(name, ("", None))
        owned = bool(variable) and getattr(settings, variable.removeprefix("gb10_")) not in (unset, 0)
        of_plan = variable if owned else f"planned {name}"
        place = f"{inputs.model.args_path}.{name}" if name in of_model else of_plan
        # An option that is off is the user's to set.
        if effective[name] is not False:
            sources[f"gb10_vllm_extra_args.{name}"] = place
    for node in inputs.nodes:
        for name in node.rank_environment.keys() - settings.extra_env.keys():
            sources[f"gb10_extra_env.{name}"] = inputs.model.environment_paths.get(name, f"planned {name}")
    return sources


def _share(inputs: Inputs) -> tuple[float, list[Problem]]:
    """Return the maximum share of the memory, from the user's arguments or the model's; 1 without one."""
    share, problems = 1.0, list[Problem]()
    for path, name, words in _given(inputs):
        if name in _SHARES:
            found = " ".join(words).replace("=", " ").split()
            number = View(Situation(arguments={name: found[-1]}), ()).number(name)
            share = number or 1.0
            if not number or number > 1:
                expected = "a fraction of the memory, above 0 and at most 1"
                problems.append(Problem(f"{path}.{name}", " ".join(words), expected, f"correct {name}"))
    return share, problems


def _memory_inputs(
    inputs: Inputs, shape: Shape, given: Mapping[str, Any], tensor: int, pipeline: int, share: float
) -> memory_schema.Inputs:
    """Return the inputs of the memory plan, with the model's and the user's arguments ``given`` by name."""
    settings = inputs.settings
    default = settings.max_model_len or min(inputs.model.entry.max_model_len, shape.positions)
    # Each replica contains the whole model, so the smallest node sets the limit.
    smallest = [min(inputs.nodes, key=lambda node: node.memory_bytes)]
    return memory_schema.Inputs(
        _speculating(shape, given),
        nodes=smallest if settings.data_parallel_size > 1 else inputs.nodes,
        tensor=tensor,
        pipeline=pipeline,
        weights_bytes=inputs.model.weights_bytes,
        dtype=str(given.get("--dtype", "auto")),
        kv_dtype=str(given.get(_KV_DTYPE, settings.kv_cache_dtype)),
        max_model_len=_number(given, "--max-model-len") or default,
        max_num_seqs=_number(given, _SEQUENCES) or settings.max_num_seqs,
        max_num_batched_tokens=_number(given, "--max-num-batched-tokens"),
        reserve=settings.memory_reserve * memory_schema.GIB,
        share=share,
        contexts=settings.kv_cache_contexts,
        tokens_per_request=settings.kv_cache_tokens_per_request,
        kv_in_bytes="--kv-cache-memory-bytes" in inputs.release.options,
        kv_cache_memory_bytes=_number(given, "--kv-cache-memory-bytes"),
        draft_bytes=(inputs.model.draft.weights_bytes or 0) if inputs.model.draft else 0,
        adapter_bytes=_adapter_bytes(inputs, given),
    )


def _speculating(shape: Shape, given: Mapping[str, Any]) -> Shape:
    """Return the shape with the KV cache that speculative decoding adds: a state for each drafted token, and for MTP
    the layer that the checkpoint has. Its weights are in the size of the files.

    Source: vLLM 0.33, v1/kv_cache_interface.py (MambaSpec).
    """
    view = View(Situation(arguments=given), ())
    tokens = view.member(drafts.OPTION, "num_speculative_tokens")
    count = int(tokens) if tokens.isdecimal() and len(tokens) < 4 else 0
    layers = [
        replace(layer, kv_cache=replace(layer.kv_cache, pages=layer.kv_cache.pages + count))
        if layer.kv_cache.kind == "state"
        else layer
        for layer in shape.layers
    ]
    own = view.member(drafts.OPTION, "method").endswith("mtp") and not view.member(drafts.OPTION, "model")
    attention = [layer.kv_cache for layer in layers if layer.kv_cache.kind in ("full", "mla")]
    return replace(shape, layers=(*layers, *(model_layers.Layer(kv_cache) for kv_cache in attention[-1:] if own)))


def _fitting(inputs: Inputs, share: float) -> str:
    """Return the names of the catalog's largest models that fit on these nodes, and the number of the others."""
    found, reserve = [], inputs.settings.memory_reserve * memory_schema.GIB
    for model in catalog.known().values():
        shape = read_config(model.config).shape
        tensor, pipeline, _why = _sizes(inputs, shape, model)
        if shape is None or memory_checks.parallelism(shape, len(inputs.nodes), tensor, pipeline):
            continue
        plan = memory_plan.plan(
            memory_schema.Inputs(
                shape, inputs.nodes, tensor, pipeline, model.weights_bytes, reserve=reserve, share=share
            )
        )
        if plan.fits:
            found.append((plan.weights, model.name))
    names = [name for _weights, name in sorted(found, reverse=True)]
    more = f", and {len(names) - _SHOWN} more: playbooks/models.yml" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}" or "the catalog has none"


def _number(given: Mapping[str, Any], name: str) -> int:
    """Return an argument as a number, such as 128k; 0 if it is "auto" or not a number, which vLLM's parser reports."""
    return int(min(View(Situation(arguments=given), ()).number(name) or 0, _MOST))


def _required(inputs: Inputs) -> Problem:
    """Return the problem of a release that does not support the model's architecture."""
    expected = " ".join(
        f"{word} {inputs.model.entry.requires[word]}"
        for word in ("since", "until")
        if inputs.model.entry.requires.get(word)
    )
    found = f"vLLM {inputs.release.version} (stack {inputs.stack.name}) does not serve {inputs.model.entry.name}"
    return Problem("gb10_stack", found, f"vLLM {expected}", "use another stack or another model")


def _contradictions(settings: ServeSettings, tensor: int, pipeline: int, user_args: Mapping[str, Any]) -> list[Problem]:
    """Find user arguments that contradict a variable, because other roles read the variable."""
    decided = {"gb10_tensor_parallel_size": tensor, "gb10_pipeline_parallel_size": pipeline}
    problems = []
    for argument, (variable, unset) in _OWNED.items():
        value = decided.get(variable, getattr(settings, variable.removeprefix("gb10_")))
        if argument in user_args and value != unset and str(user_args[argument]) != str(value):
            problems.append(
                Problem(
                    f"gb10_vllm_extra_args.{argument}",
                    str(user_args[argument]),
                    f"{value}, the value of {variable}",
                    f"set only {variable}",
                )
            )
    return problems


def _unchecked(inputs: Inputs) -> list[str]:
    """Return why the arguments are not checked against the table of releases, [] if they are."""
    release = inputs.release
    if release.unread:
        return [
            (
                f"the release in {inputs.stack.image} is unknown, so arguments are checked and patches chosen when "
                "the image is on the head"
            )
        ]
    if release.listed or inputs.stack.runtime == stacks.CONTAINER:
        return []
    first, last = (
        vllm_release_checks.text(vllm_release_checks.FIRST),
        vllm_release_checks.text(vllm_release_checks.LAST),
    )
    source = "the installed one was queried" if release.queried else "it is not installed, so arguments are not checked"
    return [f"vLLM {release.version} is not in the table of arguments ({first} to {last}): {source}"]


def _situation(
    inputs: Inputs, tensor: int, pipeline: int, smoke_tokens: int, replaced: Mapping[str, Any] | None
) -> Situation | None:
    """Return the whole configuration except vLLM's arguments, once the network is planned.

    ``replaced``: the user's arguments whose share of the memory the plan replaces, None without a plan of the memory.
    """
    if not inputs.topology:
        return None
    model, settings, config = inputs.model.entry, inputs.settings, inputs.model.config
    container = launch_argv.engine_overrides(settings.container_args)
    # Ranks on the CPU do not use the GPU of their node.
    gpus = inputs.stack.device == stacks.CUDA
    return Situation(
        release="" if inputs.release.unread else inputs.release.version,
        image=inputs.stack.image,
        runtime=inputs.stack.runtime,
        network=container.get("--network", ("", "host"))[1],
        container=container,
        image_has_ray=inputs.stack.image_has_ray,
        executor=settings.distributed_executor_backend,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        topology=inputs.topology,
        transport=inputs.transport,
        api_host=settings.api_host,
        api_key=settings.api_key_enabled,
        nccl=inputs.nccl.release,
        nccl_gcc=inputs.nccl.gcc,
        smoke_tokens=smoke_tokens,
        drops_caches=inputs.drops_caches,
        packages=inputs.packages,
        reserve_bytes=settings.memory_reserve * memory_schema.GIB,
        replaced_share=View(Situation(arguments=replaced or {}), ()).number(_SHARE) or 0,
        unplanned=_unknown(inputs) if replaced is None else "",
        model=ServedModel(
            name=model.hub or model.name,
            type=config.type,
            scheme=config.quantization.scheme,
            moe=config.experts,
            reasoning=model.reasoning,
            weights_bytes=inputs.model.weights_bytes,
            kv_dtype=config.quantization.kv_dtype if config.raw else "",
        ),
        nodes=[
            replace(node, capability=node.capability if gpus else None, environment=node.rank_environment)
            for node in inputs.nodes
        ],
    )
