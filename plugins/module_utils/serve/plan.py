# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide how a model is served: arguments, environment, memory, findings and reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides as additions
from ansible_collections.gb10.cluster.plugins.module_utils.memory import checks as memory_checks
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog as catalogue
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint as serve_rules
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import ServedModel, Situation, View
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import ANSWER, Decision, File, Inputs, Settings
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release

#: vLLM's share of a unified memory if the model is unknown. NVIDIA's and eugr's recipes: 0.8.
UNKNOWN_MODEL_UTILIZATION = 0.8
#: vLLM's maximum share of a node's memory, the middle of the range that recipes report as safe (0.80 to 0.87).
CEILING = 0.85
#: The smoke test's token limit for a reasoning model, which uses hundreds of tokens before its answer.
_REASONED_ANSWER = 512
_GB10, _THOR = "12.1", "11.0"
#: The first release whose Triton (3.7) supports Thor.
_THOR_ASSEMBLER = (0, 27)
_MARLIN = "VLLM_MARLIN_USE_ATOMIC_ADD"
#: Other arguments that set the same value. Source: vLLM 0.32, engine/arg_utils.py.
_ELSEWHERE = {"--attention-backend": ("--attention-config", "backend"), "--moe-backend": ("--kernel-config", "moe_backend")}
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
    "--max-num-seqs": ("gb10_max_num_seqs", 0),
    "--kv-cache-dtype": ("gb10_kv_cache_dtype", "auto"),
}


def decide(inputs: Inputs) -> Decision:
    """Decide how to serve. Collects all problems, so that they are listed together with those of the cluster."""
    decision = Decision(smoke_tokens=inputs.smoke_tokens or (_REASONED_ANSWER if inputs.model.reasoning else ANSWER))
    own, decision.problems = _parse(inputs, inputs.settings.vllm_extra_args, "gb10_vllm_extra_args")
    inputs = _environment(inputs, decision)
    shape, unknown = _shape(inputs.config)
    if unknown:
        decision.why.append(f"memory is not planned: {unknown}")
    _parallelism(inputs, shape, decision)
    _experts(inputs, shape, decision)
    _memory(inputs, shape, own, decision)
    _eager(inputs, own, decision)
    _stack(inputs, shape, own, decision)
    decision.args += _named(inputs.model)
    for file in inputs.model.files:
        path = f"{inputs.settings.install_dir}/files/{file.name}"
        decision.files.append(File(file.url, file.sha256, path))
        decision.args.append(f"{file.argument}={path}")
    decision.problems += [*_required(inputs), *_contradictions(inputs.settings, decision, own)]
    _judge_environment(inputs, decision)
    _findings(inputs, shape, {**_planned(inputs, decision), **own}, decision)
    return decision


def _environment(inputs: Inputs, decision: Decision) -> Inputs:
    """Decide the variables. Return the inputs with the ranks' environments, in which a node's own values win."""
    decision.environment |= {**inputs.stack.environment, **inputs.model.environment}
    if _cuda(inputs):
        decision.environment.setdefault(_MARLIN, "1")
    return replace(inputs, nodes=[replace(node, environment={**decision.environment, **node.environment}) for node in inputs.nodes])


def _stack(inputs: Inputs, shape: Shape | None, own: Mapping[str, Any], decision: Decision) -> None:
    """Add the stack's arguments that neither model nor user sets in any way. Explain the stack's variables."""
    brought, others = inputs.stack.environment, {**inputs.model.environment, **inputs.settings.extra_env}
    decision.why += [
        f"{name}={value}: the stack {inputs.stack.name} sets it"
        for name, value in brought.items()
        if name not in others
    ]
    if _MARLIN in decision.environment and _MARLIN not in {**brought, **inputs.model.environment}:
        decision.why.append(f"{_MARLIN}=1: without it Marlin's kernels reportedly race on sm_121")
    said, _problems = _parse(inputs, inputs.model.args, "")
    view = View(Situation(arguments={**said, **own}), ())
    moe = inputs.stack.moe_backends.get(model_config.scheme(inputs.config), "") if shape and shape.experts else ""
    for word in [*inputs.stack.args, *([f"--moe-backend={moe}"] if moe else [])]:
        name = word.partition("=")[0]
        if _has(inputs, name) and not view.argument(name) and not view.member(*_ELSEWHERE.get(name, (name, ""))):
            decision.args.append(word)
            decision.why.append(f"{word}: the stack {inputs.stack.name} sets it")


def _named(model: Model) -> list[str]:
    """Return the model's own arguments: required options and the requested revision."""
    revision = [f"--revision={model.revision}"] if model.revision and not model.path else []
    return [*revision, *([f"--quantization={model.quantization}"] if model.quantization else []), *model.args]


def _parse(inputs: Inputs, argv: Sequence[str], path: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of arguments and the problems in them; both are empty for an unknown release."""
    if not vllm_release.known(inputs.stack.vllm) and inputs.asked is None:
        return {}, []
    return vllm_release.parse(argv, inputs.stack.vllm, asked=inputs.asked, path=path)


def _has(inputs: Inputs, option: str) -> bool:
    """Whether the release has an option. An unknown release is assumed to have the options of the newest known one."""
    if inputs.asked is not None:
        return option in inputs.asked
    release = inputs.stack.vllm if vllm_release.known(inputs.stack.vllm) else ".".join(map(str, vllm_release.LAST))
    return vllm_release.has_option(release, option)


def _cuda(inputs: Inputs) -> bool:
    """Whether the ranks run on a GB10's GPU. Memory and kernel settings do not apply to the CPUs of the lab's nodes."""
    return inputs.stack.device == stacks.CUDA and any(node.capability == _GB10 for node in inputs.nodes)


def _shape(config: Mapping[str, Any] | None) -> tuple[Shape | None, str]:
    """Return a model's shape and "", or None and the reason why it is unknown."""
    if not config:
        return None, "no config.json was read, and the catalog has none"
    try:
        return model_shape.shape(config), ""
    except ProblemsError as error:
        return None, "; ".join(f"{problem.path} {problem.found}" for problem in error.problems)


def _parallelism(inputs: Inputs, shape: Shape | None, decision: Decision) -> None:
    """Take tensor and pipeline parallelism from the user, or choose them."""
    tensor, pipeline = inputs.settings.tensor_parallel_size, inputs.settings.pipeline_parallel_size
    if inputs.settings.data_parallel_size > 1:
        decision.why.append(
            "each node has a replica of the model: requests are distributed, and the model is not split over the "
            "network"
        )
        return
    count = len(inputs.nodes)
    if tensor or pipeline:
        decision.tensor, decision.pipeline = tensor or max(1, count // pipeline), pipeline or max(1, count // tensor)
        return
    decision.tensor, decision.pipeline, why = _sizes(inputs, shape, inputs.model)
    if count > 1:
        decision.why.append(f"tensor {decision.tensor} x pipeline {decision.pipeline}: {why}")


def _sizes(inputs: Inputs, shape: Shape | None, model: Model) -> tuple[int, int, str]:
    """Choose (tensor, pipeline, why) for a model with one GPU per node, such that no node is idle."""
    count = len(inputs.nodes)
    if model.tensor * model.pipeline == count:
        return model.tensor, model.pipeline, "from the catalog"
    mixed = len({node.capability for node in inputs.nodes if node.capability}) > 1
    if count > 1 and (mixed or inputs.transport == "socket"):
        reason = "the GPUs differ" if mixed else "NCCL uses sockets"
        slow = "tensor parallelism waits for the network in every layer"
        return 1, count, f"one pipeline stage per node, because {reason}; {slow}"
    fitting = (size for size in range(count, 0, -1) if count % size == 0)
    tensor = next(size for size in fitting if shape is None or memory_checks.divides(shape, size))
    least = "" if tensor == count else f"; its heads are not divisible by {count}"
    return tensor, count // tensor, f"every layer is split over as many nodes as the model allows{least}"


def _experts(inputs: Inputs, shape: Shape | None, decision: Decision) -> None:
    """Distribute whole experts over the ranks, instead of slices of each."""
    if not inputs.settings.expert_parallel:
        return
    if shape is not None and not shape.experts:
        found = f"{inputs.model.name} has no experts"
        decision.problems.append(
            Problem("gb10_expert_parallel", found, "a mixture of experts", "set gb10_expert_parallel: false")
        )
    decision.args.append("--enable-expert-parallel")


def _eager(inputs: Inputs, own: Mapping[str, Any], decision: Decision) -> None:
    """Turn the compiler off if Triton's assembler does not support a Thor's sm_110a; see rule thor-ptxas."""
    if inputs.stack.device != stacks.CUDA or vllm_release.number(inputs.stack.vllm) >= _THOR_ASSEMBLER or "--enforce-eager" in own:
        return
    without = [
        node.name for node in inputs.nodes if node.capability == _THOR and not node.rank_environment.get("TRITON_PTXAS_PATH")
    ]
    if without:
        decision.args.append("--enforce-eager")
        nodes = ", ".join(without)
        why = (
            f"Triton of vLLM {inputs.stack.vllm} has no assembler for sm_110a; TRITON_PTXAS_PATH is not set on {nodes}"
        )
        decision.why.append(f"--enforce-eager: {why}")


def _memory(inputs: Inputs, shape: Shape | None, own: Mapping[str, Any], decision: Decision) -> None:
    """Plan the memory, and add the resulting arguments. The user's own arguments take precedence."""
    settings = inputs.settings
    decision.args += [f"--kv-cache-dtype={settings.kv_cache_dtype}"] if settings.kv_cache_dtype != "auto" else []
    decision.args += [f"--max-num-seqs={settings.max_num_seqs}"] if settings.max_num_seqs else []
    length = [f"--max-model-len={settings.max_model_len}"] if settings.max_model_len else []
    if not _cuda(inputs):
        decision.args += length
        return
    if settings.data_parallel_size > 1 and settings.expert_parallel:
        decision.why.append("memory is not planned: experts are distributed over replicas")
        shape = None
    known = all(node.memory_bytes for node in inputs.nodes)
    if shape is None or not known:
        decision.args += [f"--gpu-memory-utilization={UNKNOWN_MODEL_UTILIZATION}", *length]
        why = "" if known else "; the nodes' memory is unknown"
        share = f"{UNKNOWN_MODEL_UTILIZATION} of the memory, as in most recipes"
        decision.why.append(f"{share}: vLLM's default is too much for shared memory{why}")
        return
    try:
        plan = memory_plan.plan(_memory_inputs(inputs, shape, own, decision))
    except ProblemsError as error:
        decision.problems += error.problems
        return
    decision.memory = plan
    decision.args += plan.arguments
    decision.problems += [
        replace(problem, fix=f"{problem.fix}, or use a model that fits: {_fitting(inputs)}")
        for problem in plan.problems
    ]


def _memory_inputs(inputs: Inputs, shape: Shape, own: Mapping[str, Any], decision: Decision) -> memory.Inputs:
    """Return the inputs of the memory plan, with the user's own arguments ``own`` by name."""
    settings = inputs.settings
    default = settings.max_model_len or min(inputs.model.max_model_len, shape.positions)
    # Each replica contains the whole model, so the smallest node sets the limit.
    smallest = [min(inputs.nodes, key=lambda node: node.memory_bytes)]
    return memory.Inputs(
        shape,
        nodes=smallest if settings.data_parallel_size > 1 else inputs.nodes,
        tensor=decision.tensor,
        pipeline=decision.pipeline,
        weights_bytes=inputs.weights_bytes,
        dtype=str(own.get("--dtype", "auto")),
        kv_dtype=str(own.get("--kv-cache-dtype", settings.kv_cache_dtype)),
        max_model_len=_whole(own.get("--max-model-len")) or default,
        sequences=_whole(own.get("--max-num-seqs")) or settings.max_num_seqs,
        batched_tokens=_whole(own.get("--max-num-batched-tokens")),
        ceiling=CEILING,
        kv_in_bytes=_has(inputs, "--kv-cache-memory-bytes"),
        kv_cache_memory_bytes=_whole(own.get("--kv-cache-memory-bytes")),
    )


def _fitting(inputs: Inputs) -> str:
    """Return the names of the catalog's models that fit on these nodes, largest first."""
    found = []
    for model in catalogue.known().values():
        shape, _unknown = _shape(model.config)
        tensor, pipeline, _why = _sizes(inputs, shape, model)
        if shape is None or memory_checks.parallelism(shape, len(inputs.nodes), tensor, pipeline):
            continue
        plan = memory_plan.plan(memory.Inputs(shape, inputs.nodes, tensor, pipeline, model.weights_bytes, ceiling=CEILING))
        if plan.fits:
            found.append((plan.weights, model.name))
    return ", ".join(name for _weights, name in sorted(found, reverse=True)) or "the catalog has none"


def _whole(value: Any) -> int:
    """Return an argument as a number, 0 if it is "auto" or not a number, which vLLM's parser reports."""
    text = str(value)
    return int(text) if text.isdigit() else 0


def _planned(inputs: Inputs, decision: Decision) -> dict[str, Any]:
    """Return the values of the planned arguments, including the roles' overrides."""
    planned = [*decision.args, *additions.serve_flags([{"additions": node.additions} for node in inputs.nodes])]
    values, problems = _parse(inputs, planned, f"gb10_models.{inputs.model.name}.args")
    decision.problems += problems
    return values


def _required(inputs: Inputs) -> list[Problem]:
    """Check that the vLLM release supports the model's architecture."""
    model, release = inputs.model, vllm_release.number(inputs.stack.vllm)
    since, until = (model.requires.get(word, "") for word in ("since", "until"))
    early, late = bool(since) and release < vllm_release.number(since), bool(until) and release > vllm_release.number(until)
    if not early and not late:
        return []
    expected = " ".join(f"{word} {version}" for word, version in (("since", since), ("until", until)) if version)
    found = f"vLLM {inputs.stack.vllm} (stack {inputs.stack.name}) does not serve {model.name}"
    return [Problem("gb10_stack", found, f"vLLM {expected}", "use another stack or another model")]


def _contradictions(settings: Settings, decision: Decision, own: Mapping[str, Any]) -> list[Problem]:
    """Find user arguments that contradict a variable, because other roles read the variable."""
    decided = {"gb10_tensor_parallel_size": decision.tensor, "gb10_pipeline_parallel_size": decision.pipeline}
    problems = []
    for argument, (variable, unset) in _OWNED.items():
        value = decided.get(variable, getattr(settings, variable.removeprefix("gb10_")))
        if argument in own and value != unset and str(own[argument]) != str(value):
            problems.append(
                Problem(
                    f"gb10_vllm_extra_args.{argument}",
                    str(own[argument]),
                    f"{value}, the value of {variable}",
                    f"set only {variable}",
                )
            )
    return problems


def _judge_environment(inputs: Inputs, decision: Decision) -> None:
    """Report the variables that the release does not read, or that the release is unknown."""
    release, given = inputs.stack.vllm, inputs.settings.extra_env
    known = vllm_release.known(release)
    if known or inputs.variables is not None:
        decision.problems += vllm_release.check_environment(given, release, asked=None if known else inputs.variables, path="gb10_extra_env")
    if not known:
        first, last = (".".join(map(str, number)) for number in (vllm_release.FIRST, vllm_release.LAST))
        asked = (
            "the installed one was queried"
            if inputs.asked is not None
            else "it is not installed, so arguments are not checked"
        )
        decision.why.append(f"vLLM {release} is not in the table of arguments ({first} to {last}): {asked}")


def _findings(inputs: Inputs, shape: Shape | None, arguments: Mapping[str, Any], decision: Decision) -> None:
    """Lint the whole configuration, once the network is planned. Errors without a waiver become problems."""
    if not inputs.topology:
        return
    model, settings, config = inputs.model, inputs.settings, inputs.config
    container = launch.overrides(settings.container_args)
    # Ranks on the CPU do not use the GPU of their node.
    gpus = inputs.stack.device == stacks.CUDA
    situation = Situation(
        release=inputs.stack.vllm,
        image=inputs.stack.image,
        runtime=inputs.stack.runtime,
        network=container.get("--network", ("", "host"))[1],
        container=container,
        image_has_ray=inputs.stack.image_has_ray,
        executor=settings.distributed_executor_backend,
        tensor_parallel_size=decision.tensor,
        pipeline_parallel_size=decision.pipeline,
        topology=inputs.topology,
        transport=inputs.transport,
        api_host=settings.api_host,
        api_key=settings.api_key_enabled,
        nccl=inputs.nccl,
        nccl_gcc=inputs.nccl_gcc,
        smoke_tokens=decision.smoke_tokens,
        model=ServedModel(
            name=model.hub or model.name,
            type=model_config.family(config),
            scheme=model_config.scheme(config),
            moe=bool(shape and shape.experts),
            reasoning=model.reasoning,
            weights_bytes=inputs.weights_bytes,
            positions=model_config.positions(config or {}),
            kv_dtype=model_config.kv_dtype(config) if config else "",
        ),
        arguments=arguments,
        nodes=[
            replace(node, capability=node.capability if gpus else None, environment=node.rank_environment) for node in inputs.nodes
        ],
    )
    try:
        decision.findings = serve_rules.lint(situation, settings.serve_waivers)
    except ProblemsError as error:
        decision.problems += error.problems
        return
    decision.problems += [
        Problem(
            finding.path,
            finding.found,
            finding.why,
            f"{finding.fix}; or waive it with a reason in gb10_serve_waivers.{finding.rule}",
        )
        for finding in serve_rules.stopping(decision.findings)
    ]
