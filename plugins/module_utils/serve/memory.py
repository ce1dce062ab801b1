# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the memory of a launch, or a share of it where it cannot be planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.memory import adapters
from ansible_collections.gb10.cluster.plugins.module_utils.memory import checks as memory_checks
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory_schema
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, drafts
from ansible_collections.gb10.cluster.plugins.module_utils.model import layers as model_layers
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape, read_config
from ansible_collections.gb10.cluster.plugins.module_utils.serve import options, split
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import Inputs, Part
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

_SPARK = memory_schema.SPARK_GIB * memory_schema.GIB
#: Most models in a problem.
_SHOWN = 5
#: Above every valid number of bytes or tokens.
_MOST = 1 << 62


def plan(inputs: Inputs, given: Arguments, tensor: int, pipeline: int) -> tuple[Part, memory_schema.MemoryPlan | None]:
    """Plan the memory, and add the resulting arguments.

    ``given``: the arguments of the model and those of the user, which win. The plan is None if nothing can be planned.
    """
    settings, shape = inputs.settings, inputs.model.config.shape
    args = [f"{options.KV_DTYPE}={settings.kv_cache_dtype}"] if settings.kv_cache_dtype != "auto" else []
    args += [f"{options.SEQUENCES}={settings.max_num_seqs}"] if settings.max_num_seqs else []
    if not inputs.on_gb10:
        return Part([*args, *_length(inputs)]), None
    distributed = settings.data_parallel_size > 1 and settings.expert_parallel
    if settings.memory_reserve < 0:
        # The check of the settings reports it.
        return Part(args), None
    if problems := _check_reserve(inputs):
        return Part(args, problems=problems), None
    if shape is None or distributed or not all(node.memory_bytes for node in inputs.nodes):
        chosen = not (settings.max_num_seqs or options.SEQUENCES in given.values or inputs.model.recipe)
        sequences = [f"{options.SEQUENCES}={memory_plan.SEQUENCES}"] if chosen else []
        share, why = _unplanned(inputs, distributed, given)
        return Part([*args, *share, *_length(inputs), *sequences], why, _few(inputs)), None
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


def _unplanned(inputs: Inputs, distributed: bool, given: Arguments) -> tuple[list[str], list[str]]:
    """Return the argument for a share of the memory that leaves the reserve, [] if one is given, with the reasons."""
    reserve, known = inputs.settings.memory_reserve, all(node.memory_bytes for node in inputs.nodes)
    sizes = [node.memory_bytes or _SPARK for node in inputs.nodes]
    share = f"{min((size - reserve * memory_schema.GIB) * 100 // size for size in sizes) / 100:.2f}"
    why = ["memory is not planned: experts are distributed over replicas"] if distributed else []
    if any(name in given.values for name in options.SHARES):
        return [], why
    reason = f"{share} of the memory, which leaves gb10_memory_reserve ({reserve} GiB)"
    return [f"{options.SHARE}={share}"], [*why, reason if known else f"{reason}; the nodes' memory is unknown"]


def _planned(
    inputs: Inputs, shape: Shape, given: Arguments, tensor: int, pipeline: int, args: Sequence[str]
) -> tuple[Part, memory_schema.MemoryPlan | None]:
    """Plan the memory, and add the resulting arguments to ``args``."""
    share, problems = _share(inputs)
    try:
        plan = memory_plan.plan(_memory_inputs(inputs, shape, given, tensor, pipeline, share))
    except ProblemsError as error:
        return Part(args, problems=[*problems, *options.located(inputs, error.problems)]), None
    fits = "" if plan.fits else f", or use a model that fits: {_fitting(inputs, share)}"
    found = [replace(problem, fix=f"{problem.fix}{fits}") for problem in plan.problems]
    why = [replaced(words) for name, words in options.named(inputs.settings.vllm_extra_args) if name in options.SHARES]
    return Part([*args, *plan.arguments], why, [*problems, *options.located(inputs, found)]), plan


def _check_reserve(inputs: Inputs) -> list[Problem]:
    """Check that the reserve leaves memory on the smallest node."""
    reserve, smallest = inputs.settings.memory_reserve, min(node.memory_bytes or _SPARK for node in inputs.nodes)
    if reserve * memory_schema.GIB < smallest:
        return []
    expected = f"less than the {smallest / memory_schema.GIB:.1f} GiB of the smallest node"
    return [Problem("gb10_memory_reserve", f"{reserve} GiB", expected, "lower gb10_memory_reserve")]


def _share(inputs: Inputs) -> tuple[float, list[Problem]]:
    """Return the maximum share of the memory, from the user's arguments or the model's; 1 without one."""
    share, problems = 1.0, list[Problem]()
    for path, name, words in options.given(inputs):
        if name in options.SHARES:
            found = " ".join(words).replace("=", " ").split()
            number = Arguments({name: found[-1]}).number(name)
            share = number or 1.0
            if not number or number > 1:
                expected = "a fraction of the memory, above 0 and at most 1"
                problems.append(Problem(f"{path}.{name}", " ".join(words), expected, f"correct {name}"))
    return share, problems


def _memory_inputs(
    inputs: Inputs, shape: Shape, given: Arguments, tensor: int, pipeline: int, share: float
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
        dtype=given.argument("--dtype") or "auto",
        kv_dtype=given.argument(options.KV_DTYPE) or settings.kv_cache_dtype,
        max_model_len=_number(given, "--max-model-len") or default,
        max_num_seqs=_number(given, options.SEQUENCES) or settings.max_num_seqs,
        max_num_batched_tokens=_number(given, "--max-num-batched-tokens"),
        reserve=settings.memory_reserve * memory_schema.GIB,
        share=share,
        contexts=settings.kv_cache_contexts,
        tokens_per_request=settings.kv_cache_tokens_per_request,
        kv_in_bytes="--kv-cache-memory-bytes" in inputs.release.options,
        kv_cache_memory_bytes=_number(given, "--kv-cache-memory-bytes"),
        draft_bytes=(inputs.model.draft.weights_bytes or 0) if inputs.model.draft else 0,
        adapter_bytes=_adapters(inputs, given)[1],
    )


def _speculating(shape: Shape, given: Arguments) -> Shape:
    """Return the shape with the KV cache that speculative decoding adds: a state for each drafted token, and for MTP
    the layer that the checkpoint has. Its weights are in the size of the files.

    Source: vLLM 0.33, v1/kv_cache_interface.py (MambaSpec).
    """
    tokens = given.member(drafts.OPTION, "num_speculative_tokens")
    count = int(tokens) if tokens.isdecimal() and len(tokens) < 4 else 0
    layers = [
        replace(layer, kv_cache=replace(layer.kv_cache, pages=layer.kv_cache.pages + count))
        if layer.kv_cache.kind == "state"
        else layer
        for layer in shape.layers
    ]
    own = given.member(drafts.OPTION, "method").endswith("mtp") and not given.member(drafts.OPTION, "model")
    attention = [layer.kv_cache for layer in layers if layer.kv_cache.kind in ("full", "mla")]
    return replace(shape, layers=(*layers, *(model_layers.Layer(kv_cache) for kv_cache in attention[-1:] if own)))


def _fitting(inputs: Inputs, share: float) -> str:
    """Return the names of the catalog's largest models that fit on these nodes, and the number of the others."""
    found, reserve = [], inputs.settings.memory_reserve * memory_schema.GIB
    for model in catalog.known().values():
        shape = read_config(model.config).shape
        tensor, pipeline, _why = split.sizes(inputs, shape, model)
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


def _adapters(inputs: Inputs, given: Arguments) -> tuple[adapters.Adapters | None, int]:
    """Return the LoRA adapters, and their bytes on each rank, None and 0 without any or for a model of unknown form."""
    numbers = (_number(given, name) for name in ("--max-lora-rank", "--max-loras", "--max-cpu-loras"))
    found = adapters.of_arguments(bool(given.argument(adapters.ENABLE)), *numbers)
    shape = inputs.model.config.shape
    return (found, found.memory(shape)) if found and shape else (None, 0)


def about_adapters(inputs: Inputs, given: Arguments) -> list[str]:
    """Explain the memory of LoRA adapters."""
    found, size = _adapters(inputs, given)
    if not found:
        return []
    return [
        (
            f"LoRA: up to {size / 1e9:.1f} GB on each rank for --max-loras={found.loaded} and "
            f"--max-cpu-loras={found.on_cpu} of --max-lora-rank={found.rank}, an estimate"
        )
    ]


def about_draft(inputs: Inputs) -> list[str]:
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


def replaced(words: Sequence[str]) -> str:
    return f"{' '.join(words)} is replaced: the memory plan takes at most this share, and passes its own"


def _number(given: Arguments, name: str) -> int:
    """Return an argument as a number, such as 128k; 0 if it is "auto" or not a number, which vLLM's parser reports."""
    return int(min(given.number(name) or 0, _MOST))
