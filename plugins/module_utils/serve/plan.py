# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide how a model is served: arguments, environment, memory, findings and reasons."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory_schema
from ansible_collections.gb10.cluster.plugins.module_utils.model import kind as model_kind
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.model.kind import Kind
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import File
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import THOR, ServedModel, Situation
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve import backends as serve_backends
from ansible_collections.gb10.cluster.plugins.module_utils.serve import loader, options, split
from ansible_collections.gb10.cluster.plugins.module_utils.serve import memory as serve_memory
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import ANSWER, Decision, Inputs, Part
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

#: The smoke test's token limit for a reasoning model, which uses hundreds of tokens before its answer.
_REASONED_ANSWER = 512
#: How much faster fewer nodes are before the plan reports it.
_FASTER = 1.1
#: The first release that keeps prefixes of models with states by default. Source: vLLM 0.23, 0.26.0 and 0.27.1,
#: engine/arg_utils.py ("opt-in for now"), and 0.28.1rc1, which does.
_PREFIXES, _KEPT_STATES = "--enable-prefix-caching", (0, 28)
#: The first release whose Triton (3.7) supports Thor.
_THOR_ASSEMBLER = (0, 27)
#: The sequences and the tokens of each request in the KV cache of a pooling model: with its most requests, one batch.
_POOLED = (2, 128)
_MARLIN = "VLLM_MARLIN_USE_ATOMIC_ADD"
_MEDIA, _ORIGINS = "--allowed-media-domains", "--allowed-origins"
#: A host name or IPv4 address, as vLLM reads it from a URL.
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


def decide(inputs: Inputs) -> Decision:
    """Decide how to serve. Collects all problems, so that they are listed together with those of the cluster."""
    model, config = inputs.model.entry, inputs.model.config
    settings, release = inputs.settings, inputs.release
    environment, files = _environment(inputs), _files(inputs)
    # A node's own values win.
    inputs = replace(
        inputs, nodes=[replace(node, environment={**environment, **node.environment}) for node in inputs.nodes]
    )
    own = options.of_model(inputs)
    served = release.serves(model.requires.get("since", ""), model.requires.get("until", ""))
    unread = release.unread_variables(settings.extra_env, "gb10_extra_env")
    for name, path in inputs.model.environment_paths.items():
        unread += release.unread_variables({name: ""}, path)
    of_model, _problems = release.arguments([word for _name, words in own for word in words], "")
    user_args, user_problems = release.arguments(settings.vllm_extra_args, "gb10_vllm_extra_args")
    given = Arguments({**of_model, **user_args})
    kind, kind_problems = model_kind.find(model.kind, config.raw, given.values, "gb10_vllm_extra_args")
    inputs, replicated = _replicated(inputs, kind, given)
    settings = inputs.settings
    tensor, pipeline, sizes = split.parallelism(inputs)
    pooling = model_kind.pooling_arguments(kind, config.raw, of_model, user_args, inputs.model.args_path)
    memory_part, plan = serve_memory.plan(inputs, given, tensor, pipeline)
    decided = _joined(
        Part(why=[f"memory is not planned: {config.unknown}"] if config.unknown else [], problems=user_problems),
        Part(
            why=[
                *sizes,
                *replicated,
                *serve_memory.about_draft(inputs),
                *serve_memory.about_adapters(inputs, given),
                *_prefixes(inputs, given),
            ],
            problems=kind_problems,
        ),
        Part(*pooling),
        Part(problems=split.pipelined(config.shape, pipeline)),
        _experts(inputs),
        memory_part,
        _eager(inputs, given),
        _backends(inputs, given),
        Part() if kind.pooling else loader.named(inputs, given, tensor, pipeline),
        _stack(inputs, environment),
        _named(model, own, plan is not None),
        Part(args=[f"{argument}={file.path}" for argument, file in files]),
        _media(settings.api_media_domains),
        _origins(settings.api_origins),
        Part(problems=[] if served else [_required(inputs)]),
        Part(why=_left(inputs, given, plan is not None)),
        Part(
            why=_unchecked(inputs), problems=[*options.contradictions(settings, tensor, pipeline, user_args), *unread]
        ),
    )
    tokens = inputs.smoke_tokens or (_REASONED_ANSWER if model.reasoning else ANSWER)
    situation = _situation(inputs, tensor, pipeline, tokens, user_args if plan else None)
    overridden = [*decided.args, *overrides.serve_flags(inputs.nodes)]
    values, problems = release.arguments(overridden, inputs.model.args_path)
    passed = options.passed(user_args, plan is not None)
    effective = Arguments({**values, **passed})
    places = options.sources(inputs, effective.values, passed, of_model)
    findings, stopping = lint.judge(situation, effective.values, settings.serve_waivers, places)
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
        speculative=bool(effective.speculative()),
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


def _joined(*parts: Part) -> Part:
    return Part(
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
    own = {**inputs.stack.environment, **inputs.model.entry.environment}
    return {**defaults, **loader.environment(inputs), **own, **media}


def _media(domains: Sequence[str]) -> Part:
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
    return Part(args=[_MEDIA, *domains] if domains and not problems else [], problems=problems)


def _origins(origins: Sequence[str]) -> Part:
    """Let web pages of these origins use the API."""
    problems = access.origin_problems("gb10_api_origins", origins)
    return Part(args=[_ORIGINS, json.dumps(origins)] if origins and not problems else [], problems=problems)


def _names(inputs: Inputs) -> bool:
    """Whether the plan names the backends.

    The image of a recipe or of a catalog entry was tested with the choices that are left to vLLM.
    """
    return inputs.on_gb10 and not inputs.model.recipe


def _left(inputs: Inputs, given: Arguments, planned: bool) -> list[str]:
    """Report the options that a recipe leaves to vLLM, and that the plan would set for a model of the catalog."""
    if not inputs.model.recipe or not inputs.on_gb10:
        return []
    wanted = [serve_backends.ATTENTION, serve_backends.MOE, serve_backends.AUTOTUNE]
    wanted += [] if planned or inputs.settings.max_num_seqs else [options.SEQUENCES]
    names = [name for name in wanted if name not in given.values]
    names += [_MARLIN] if _MARLIN not in inputs.nodes[0].environment else []
    return [f"left to vLLM, as the image was tested: {', '.join(names)}"] if names else []


def _files(inputs: Inputs) -> list[tuple[str, File]]:
    """Return the model's extra files for the head, each with the argument that takes its path."""
    folder = f"{inputs.settings.install_dir}/files"
    return [(file.argument, File(file.url, file.sha256, f"{folder}/{file.name}")) for file in inputs.model.entry.files]


def _stack(inputs: Inputs, environment: Mapping[str, str]) -> Part:
    """Explain the variables of the stack."""
    stack, others = inputs.stack, {**inputs.model.entry.environment, **inputs.settings.extra_env}
    why = [
        f"{name}={value}: the stack {stack.name} sets it"
        for name, value in stack.environment.items()
        if name not in others
    ]
    if _MARLIN in environment and _MARLIN not in {**stack.environment, **others}:
        why.append(f"{_MARLIN}=1: without it Marlin's kernels reportedly race on sm_121")
    return Part(why=why)


def _backends(inputs: Inputs, given: Arguments) -> Part:
    """Name the backends that neither model nor user sets in any way."""
    if not _names(inputs):
        return Part()
    config, settings = inputs.model.config, inputs.settings
    cache = given.argument(options.KV_DTYPE) or settings.kv_cache_dtype
    kv_dtype = config.quantization.kv_dtype if cache == "auto" else cache
    return Part(*serve_backends.named(inputs.release, config, kv_dtype, given, settings.flashinfer))


def _compiled(inputs: Inputs, arguments: Arguments) -> list[str]:
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


def _named(model: Model, own: Sequence[tuple[str, Sequence[str]]], planned: bool) -> Part:
    """Return the model's own arguments: the requested revision, and its ``own`` options, each as name and words.

    ``planned``: whether the memory plan sets the share of the memory, which a recipe sets too. Its share is a limit.
    """
    args = [f"--revision={model.revision}"] if model.revision and not model.path else []
    args += [f"--quantization={model.quantization}"] if model.quantization else []
    shares = []
    for name, words in own:
        if planned and name in options.SHARES:
            shares.append(serve_memory.replaced(words))
        else:
            args += words
    return Part(args, shares)


def _replicated(inputs: Inputs, kind: Kind, given: Arguments) -> tuple[Inputs, list[str]]:
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
        _part, plan = serve_memory.plan(
            replace(inputs, settings=replace(settings, data_parallel_size=1), nodes=[smallest]), given, 1, 1
        )
        if plan and plan.fits:
            replicas, why = (
                count,
                [f"data {count}: one node holds the model; gb10_data_parallel_size: 1 splits it instead"],
            )
    return replace(inputs, settings=replace(settings, data_parallel_size=replicas)), why


def _prefixes(inputs: Inputs, given: Arguments) -> list[str]:
    """Explain that a model with states keeps no prefixes of earlier requests."""
    shape = inputs.model.config.shape
    if (
        not shape
        or not shape.of("state")
        or _PREFIXES in given.values
        or inputs.release.unread
        or inputs.release.number >= _KEPT_STATES
    ):
        return []
    return [
        f"prefix caching is off: vLLM before about 0.28 leaves it off for models with states; {_PREFIXES} turns it on"
    ]


def _experts(inputs: Inputs) -> Part:
    """Distribute whole experts over the ranks, instead of slices of each."""
    if not inputs.settings.expert_parallel:
        return Part()
    shape, found = inputs.model.config.shape, f"{inputs.model.entry.name} has no experts"
    problem = Problem("gb10_expert_parallel", found, "a mixture of experts", "set gb10_expert_parallel: false")
    return Part(["--enable-expert-parallel"], problems=[problem] if shape is not None and not shape.experts else [])


def _eager(inputs: Inputs, given: Arguments) -> Part:
    """Turn the compiler off if Triton's assembler does not support a Thor's sm_110a; see rule thor-ptxas."""
    if (
        inputs.stack.device != stacks.CUDA
        or inputs.release.number >= _THOR_ASSEMBLER
        or "--enforce-eager" in given.values
    ):
        return Part()
    thors = [node for node in inputs.nodes if node.capability == THOR]
    without = ", ".join(node.name for node in thors if not node.rank_environment.get("TRITON_PTXAS_PATH"))
    if not without:
        return Part()
    why = (
        f"Triton of vLLM {inputs.release.version} has no assembler for sm_110a; TRITON_PTXAS_PATH is not set on "
        f"{without}"
    )
    return Part(["--enforce-eager"], [f"--enforce-eager: {why}"])


def _required(inputs: Inputs) -> Problem:
    """Return the problem of a release that does not support the model's architecture."""
    expected = " ".join(
        f"{word} {inputs.model.entry.requires[word]}"
        for word in ("since", "until")
        if inputs.model.entry.requires.get(word)
    )
    found = f"vLLM {inputs.release.version} (stack {inputs.stack.name}) does not serve {inputs.model.entry.name}"
    return Problem("gb10_stack", found, f"vLLM {expected}", "use another stack or another model")


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
    # An image of a recipe was tested with its model.
    known = replaced is not None or inputs.model.weights_bytes or inputs.model.recipe or not inputs.on_gb10
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
        replaced_share=Arguments(replaced or {}).number(options.SHARE) or 0,
        unplanned="" if known else config.unknown or "its size is unknown",
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
