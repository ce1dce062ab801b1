# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide how a model is served: arguments, environment, memory, findings and reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.memory import checks as memory_checks
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.memory import schema as memory
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, quantization
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model import kind as model_kind
from ansible_collections.gb10.cluster.plugins.module_utils.model import layers as model_layers
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.model.kind import Kind
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint as serve_rules
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import Finding, ServedModel, Situation, View
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
_SHARE, _KV_DTYPE = "--gpu-memory-utilization", "--kv-cache-dtype"
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
    user_args, user_problems = _parse(inputs, inputs.settings.vllm_extra_args, "gb10_vllm_extra_args")
    environment = _environment(inputs)
    # A node's own values win.
    nodes = [replace(node, environment={**environment, **node.environment}) for node in inputs.nodes]
    inputs = replace(inputs, nodes=nodes, model=replace(inputs.model, args=_model_args(inputs)))
    shape, unknown = _shape(inputs.config)
    tensor, pipeline, split = _parallelism(inputs, shape)
    of_model, _problems = _parse(inputs, inputs.model.args, "")
    given = {**of_model, **user_args}
    kind, kind_problems = model_kind.find(inputs.model.kind, inputs.config, given, "gb10_vllm_extra_args")
    memory_part, plan = _memory(inputs, shape, given, tensor, pipeline)
    folder = f"{inputs.settings.install_dir}/files"
    files = [(file.argument, File(file.url, file.sha256, f"{folder}/{file.name}")) for file in inputs.model.files]
    parts = [
        _Part(why=[f"memory is not planned: {unknown}"] if unknown else [], problems=user_problems),
        _Part(why=[*split, *_draft(inputs)], problems=kind_problems),
        _pooling(inputs, kind, of_model, user_args),
        _Part(problems=_pipelined(shape, pipeline)),
        _experts(inputs, shape),
        memory_part,
        _eager(inputs, given),
        _stack(inputs, shape, given, environment),
        _named(inputs.model, plan is not None),
        _Part(args=[f"{argument}={file.path}" for argument, file in files]),
        _Part(problems=[*_required(inputs), *_contradictions(inputs.settings, tensor, pipeline, user_args)]),
        _variables(inputs),
    ]
    args = [word for part in parts for word in part.args]
    overridden = [*args, *overrides.serve_flags([{"additions": node.additions} for node in inputs.nodes])]
    values, problems = _checked(inputs, overridden)
    tokens = inputs.smoke_tokens or (_REASONED_ANSWER if inputs.model.reasoning else ANSWER)
    situation = _situation(inputs, shape, {**values, **user_args}, tensor, pipeline, tokens)
    findings, stopping = _findings(situation, inputs, of_model.keys() - user_args.keys())
    return Decision(
        tensor=tensor,
        pipeline=pipeline,
        smoke_tokens=tokens,
        args=args,
        environment=environment,
        files=[file for _argument, file in files],
        why=[line for part in parts for line in part.why],
        memory=plan,
        findings=findings,
        problems=[*(problem for part in parts for problem in part.problems), *problems, *stopping],
        kind=kind,
    )


def _encodes(shape: Shape | None) -> bool:
    return shape is not None and shape.family in model_layers.ENCODERS


def _pipelined(shape: Shape | None, pipeline: int) -> list[Problem]:
    """Check that no encoder has pipeline stages, which vLLM 0.18.1 to 0.33.0 does not support (models/bert.py)."""
    if not _encodes(shape) or pipeline == 1:
        return []
    expected = "1, because vLLM does not divide an encoder's layers over nodes"
    return [Problem("gb10_pipeline_parallel_size", str(pipeline), expected, "set gb10_data_parallel_size to the number of nodes")]


def _pooling(inputs: Inputs, kind: Kind, of_model: Mapping[str, Any], user_args: Mapping[str, Any]) -> _Part:
    """Add the arguments of a pooling model that neither its entry nor the user sets. Refuse those of generation."""
    if not kind.pooling:
        return _Part()
    given = {**of_model, **user_args}
    args, why = [], [f"the model is of the kind {kind.name}: {kind.why}"]
    if "--runner" not in given:
        args.append("--runner=pooling")
        why.append("--runner=pooling: the kind does not depend on the release's own choice")
    why.append("golden answers are not compared: they consist of generated tokens")
    problems = [*model_kind.refused(kind, list(of_model), inputs.args_path), *model_kind.refused(kind, list(user_args), "gb10_vllm_extra_args")]
    convert, reason, problem = model_kind.conversion(kind, inputs.config, given)
    if problem:
        problems.append(problem)
    return _Part([*args, *convert], [*why, *([f"{convert[0].partition('=')[0]}: {reason}"] if convert else [])], problems)


def _model_args(inputs: Inputs) -> tuple[str, ...]:
    """Return the model's arguments, without its KV cache type if gb10_kv_cache_dtype is set."""
    if inputs.settings.kv_cache_dtype == "auto":
        return tuple(inputs.model.args)
    return tuple(word for name, _values, words in arguments.options(inputs.model.args) if name != _KV_DTYPE for word in words)


def _environment(inputs: Inputs) -> dict[str, str]:
    """Return the variables that all ranks have in common."""
    defaults = {_MARLIN: "1"} if _cuda(inputs) else {}
    return {**defaults, **inputs.stack.environment, **inputs.model.environment}


def _stack(inputs: Inputs, shape: Shape | None, given: Mapping[str, Any], environment: Mapping[str, str]) -> _Part:
    """Add the stack's arguments that neither model nor user sets in any way. Explain the stack's variables."""
    stack, others = inputs.stack, {**inputs.model.environment, **inputs.settings.extra_env}
    why = [f"{name}={value}: the stack {stack.name} sets it" for name, value in stack.environment.items() if name not in others]
    if _MARLIN in environment and _MARLIN not in {**stack.environment, **inputs.model.environment}:
        why.append(f"{_MARLIN}=1: without it Marlin's kernels reportedly race on sm_121")
    view = View(Situation(arguments=given), ())
    moe = stack.moe_backends.get(quantization.scheme(inputs.config), "") if shape and shape.experts else ""
    args = []
    for word in [*stack.args, *([f"--moe-backend={moe}"] if moe else [])]:
        name = word.partition("=")[0]
        if _has(inputs, name) and not view.argument(name) and not view.member(*_ELSEWHERE.get(name, (name, ""))):
            args.append(word)
            why.append(f"{word}: the stack {stack.name} sets it")
    return _Part(args, why)


def _named(model: Model, planned: bool) -> _Part:
    """Return the model's own arguments: required options and the requested revision.

    ``planned``: whether the memory plan sets the share of the memory, which a recipe sets too.
    """
    revision = [f"--revision={model.revision}"] if model.revision and not model.path else []
    args, shares = [], list[str]()
    for name, _values, words in arguments.options(model.args):
        if planned and name == _SHARE:
            shares.append(f"{' '.join(words)} is replaced: the memory plan sets it")
        else:
            args += words
    return _Part([*revision, *([f"--quantization={model.quantization}"] if model.quantization else []), *args], shares)


def _parse(inputs: Inputs, argv: Sequence[str], path: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of arguments and the problems in them; both are empty for an unknown release."""
    if not vllm_release.known(inputs.stack.vllm) and inputs.queried is None:
        return {}, []
    values, problems = vllm_release.parse(argv, inputs.stack.vllm, queried=inputs.queried, path=path)
    # The image may have another release. The plan is made again when it is on the head.
    return values, [] if inputs.unread else problems


def _checked(inputs: Inputs, argv: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of the planned arguments and their problems, none if the release does not serve the model."""
    values, problems = _parse(inputs, argv, inputs.args_path)
    # Such a release may lack the model's parsers.
    return values, [] if _required(inputs) else problems


def _has(inputs: Inputs, option: str) -> bool:
    """Whether the release has an option. An unknown release is assumed to have the options of the newest known one."""
    if inputs.queried is not None:
        return option in inputs.queried
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


def _parallelism(inputs: Inputs, shape: Shape | None) -> tuple[int, int, list[str]]:
    """Take (tensor, pipeline) from the user, or choose them; return them with the reason."""
    tensor, pipeline = inputs.settings.tensor_parallel_size, inputs.settings.pipeline_parallel_size
    if inputs.settings.data_parallel_size > 1:
        return 1, 1, ["each node has a replica of the model: requests are distributed, and the model is not split over the network"]
    count = len(inputs.nodes)
    if tensor or pipeline:
        return tensor or max(1, count // pipeline), pipeline or max(1, count // tensor), []
    tensor, pipeline, why = _sizes(inputs, shape, inputs.model)
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
    if not inputs.draft:
        return []
    size = inputs.draft.weights_bytes
    if size:
        return [f"the draft {inputs.draft.hub}: {size / 1e9:.1f} GB on each rank, without its KV cache, which is not planned"]
    return [f"the draft {inputs.draft.hub}: its size is unknown, so its memory is not planned"]


def _experts(inputs: Inputs, shape: Shape | None) -> _Part:
    """Distribute whole experts over the ranks, instead of slices of each."""
    if not inputs.settings.expert_parallel:
        return _Part()
    found = f"{inputs.model.name} has no experts"
    problem = Problem("gb10_expert_parallel", found, "a mixture of experts", "set gb10_expert_parallel: false")
    return _Part(["--enable-expert-parallel"], problems=[problem] if shape is not None and not shape.experts else [])


def _eager(inputs: Inputs, given: Mapping[str, Any]) -> _Part:
    """Turn the compiler off if Triton's assembler does not support a Thor's sm_110a; see rule thor-ptxas."""
    release = inputs.stack.vllm
    if inputs.stack.device != stacks.CUDA or vllm_release.number(release) >= _THOR_ASSEMBLER or "--enforce-eager" in given:
        return _Part()
    thors = [node for node in inputs.nodes if node.capability == _THOR]
    without = ", ".join(node.name for node in thors if not node.rank_environment.get("TRITON_PTXAS_PATH"))
    if not without:
        return _Part()
    why = f"Triton of vLLM {release} has no assembler for sm_110a; TRITON_PTXAS_PATH is not set on {without}"
    return _Part(["--enforce-eager"], [f"--enforce-eager: {why}"])


def _memory(
    inputs: Inputs, shape: Shape | None, given: Mapping[str, Any], tensor: int, pipeline: int
) -> tuple[_Part, memory.MemoryPlan | None]:
    """Plan the memory, and add the resulting arguments. The user's own arguments take precedence."""
    settings = inputs.settings
    args = [f"{_KV_DTYPE}={settings.kv_cache_dtype}"] if settings.kv_cache_dtype != "auto" else []
    args += [f"--max-num-seqs={settings.max_num_seqs}"] if settings.max_num_seqs else []
    length = [f"--max-model-len={settings.max_model_len}"] if settings.max_model_len else []
    if not _cuda(inputs):
        return _Part([*args, *length]), None
    distributed = settings.data_parallel_size > 1 and settings.expert_parallel
    known = all(node.memory_bytes for node in inputs.nodes)
    if shape is None or distributed or not known:
        args += [f"--gpu-memory-utilization={UNKNOWN_MODEL_UTILIZATION}", *length]
        share = f"{UNKNOWN_MODEL_UTILIZATION} of the memory, as in most recipes: vLLM's default is too much for shared memory"
        why = ["memory is not planned: experts are distributed over replicas"] if distributed else []
        return _Part(args, [*why, share if known else f"{share}; the nodes' memory is unknown"]), None
    try:
        plan = memory_plan.plan(_memory_inputs(inputs, shape, given, tensor, pipeline))
    except ProblemsError as error:
        return _Part(args, problems=error.problems), None
    problems = [replace(problem, fix=f"{problem.fix}, or use a model that fits: {_fitting(inputs)}") for problem in plan.problems]
    return _Part([*args, *plan.arguments], problems=problems), plan


def _memory_inputs(inputs: Inputs, shape: Shape, given: Mapping[str, Any], tensor: int, pipeline: int) -> memory.Inputs:
    """Return the inputs of the memory plan, with the model's and the user's arguments ``given`` by name."""
    settings = inputs.settings
    default = settings.max_model_len or min(inputs.model.max_model_len, shape.positions)
    # Each replica contains the whole model, so the smallest node sets the limit.
    smallest = [min(inputs.nodes, key=lambda node: node.memory_bytes)]
    return memory.Inputs(
        shape,
        nodes=smallest if settings.data_parallel_size > 1 else inputs.nodes,
        tensor=tensor,
        pipeline=pipeline,
        weights_bytes=inputs.weights_bytes,
        dtype=str(given.get("--dtype", "auto")),
        kv_dtype=str(given.get(_KV_DTYPE, settings.kv_cache_dtype)),
        max_model_len=_whole(given.get("--max-model-len")) or default,
        max_num_seqs=_whole(given.get("--max-num-seqs")) or settings.max_num_seqs,
        max_num_batched_tokens=_whole(given.get("--max-num-batched-tokens")),
        ceiling=CEILING,
        kv_in_bytes=_has(inputs, "--kv-cache-memory-bytes"),
        kv_cache_memory_bytes=_whole(given.get("--kv-cache-memory-bytes")),
        draft_bytes=(inputs.draft.weights_bytes or 0) if inputs.draft else 0,
    )


def _fitting(inputs: Inputs) -> str:
    """Return the names of the catalog's models that fit on these nodes, largest first."""
    found = []
    for model in catalog.known().values():
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


def _contradictions(settings: Settings, tensor: int, pipeline: int, user_args: Mapping[str, Any]) -> list[Problem]:
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


def _variables(inputs: Inputs) -> _Part:
    """Report the variables that the release does not read, or that its arguments are unknown."""
    release, queried = inputs.stack.vllm, inputs.variables
    if inputs.unread:
        return _Part(why=[f"the release in {inputs.stack.image} is unknown, so arguments are checked when the image is on the head"])
    known = vllm_release.known(release)
    problems = []
    if known or queried is not None:
        problems = vllm_release.check_environment(inputs.settings.extra_env, release, queried, "gb10_extra_env")
        problems += vllm_release.check_environment(inputs.model.environment, release, queried, inputs.environment_path)
    if known or inputs.stack.runtime == stacks.CONTAINER:
        return _Part(problems=problems)
    first, last = (".".join(map(str, number)) for number in (vllm_release.FIRST, vllm_release.LAST))
    source = "it is not installed, so arguments are not checked" if inputs.queried is None else "the installed one was queried"
    return _Part(why=[f"vLLM {release} is not in the table of arguments ({first} to {last}): {source}"], problems=problems)


def _situation(
    inputs: Inputs, shape: Shape | None, arguments: Mapping[str, Any], tensor: int, pipeline: int, smoke_tokens: int
) -> Situation | None:
    """Return the whole configuration, once the network is planned; ``arguments`` are effective values."""
    if not inputs.topology:
        return None
    model, settings, config = inputs.model, inputs.settings, inputs.config
    container = launch.engine_overrides(settings.container_args)
    # Ranks on the CPU do not use the GPU of their node.
    gpus = inputs.stack.device == stacks.CUDA
    return Situation(
        release=inputs.stack.vllm,
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
        nccl=inputs.nccl,
        nccl_gcc=inputs.nccl_gcc,
        smoke_tokens=smoke_tokens,
        model=ServedModel(
            name=model.hub or model.name,
            type=model_config.family(config),
            scheme=quantization.scheme(config),
            moe=bool(shape and shape.experts),
            reasoning=model.reasoning,
            weights_bytes=inputs.weights_bytes,
            positions=model_config.positions(config or {}),
            kv_dtype=quantization.kv_dtype(config) if config else "",
        ),
        arguments=arguments,
        nodes=[
            replace(node, capability=node.capability if gpus else None, environment=node.rank_environment) for node in inputs.nodes
        ],
    )


def _findings(situation: Situation | None, inputs: Inputs, of_model: Collection[str]) -> tuple[list[Finding], list[Problem]]:
    """Lint a configuration. Errors without a waiver become problems.

    ``of_model``: the options that only the model or its recipe sets, whose place the rules do not know.
    """
    if situation is None:
        return [], []
    try:
        findings = serve_rules.lint(situation, inputs.settings.serve_waivers)
    except ProblemsError as error:
        return [], list(error.problems)
    problems = []
    for finding in serve_rules.stopping(findings):
        place, _dot, option = finding.path.partition(".")
        path = f"{inputs.args_path}.{option}" if place == "gb10_vllm_extra_args" and option in of_model else finding.path
        fix = f"{finding.fix}; or waive it with a reason in gb10_serve_waivers.{finding.rule}"
        problems.append(Problem(path, finding.found, finding.why, fix))
    return findings, problems
