# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is served and how: from a model's name, a stack and the nodes to arguments, environment, memory, findings, and why.

A node comes in as a mapping::

    {"name": str, "head": bool, "environment": {str: str}, "additions": {...}, "capability": "12.1" | None,
     "memory_bytes": int, "driver": str, "kernel": str, "cma_free_bytes": int, "cma_total_bytes": int}     # 0 and "" where unknown
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides as additions
from ansible_collections.gb10.cluster.plugins.module_utils.memory import checks as memory_checks
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog as catalogue
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint as serve_rules
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import Finding, View
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release

#: The share of a unified memory that vLLM takes where nothing is known of the model. NVIDIA's and eugr's recipes: 0.8.
UNKNOWN_MODEL_UTILIZATION = 0.8
#: The most of a node's memory that vLLM is planned to have, the middle of what recipes report as safe (0.80 to 0.87).
CEILING = 0.85
#: Tokens of the answer that proves that a model is served; one that reasons spends hundreds before it says anything.
_ANSWER, _REASONED_ANSWER = 8, 512
_GB10, _THOR = "12.1", "11.0"
#: The first release whose Triton (3.7) knows a Thor.
_THOR_ASSEMBLER = (0, 27)
_MARLIN = "VLLM_MARLIN_USE_ATOMIC_ADD"
#: Where else vLLM takes what an argument says. Source: vLLM 0.32, engine/arg_utils.py.
_ELSEWHERE = {"--attention-backend": ("--attention-config", "backend"), "--moe-backend": ("--kernel-config", "moe_backend")}
#: Arguments that variables stand for, and the variable's value that leaves it to the argument.
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


@dataclass(frozen=True)
class Inputs:
    """What is decided about. ``config`` and ``weights_bytes`` are those of the model's files where they were read, else the catalogue's."""

    model: Model
    config: Mapping[str, Any] | None
    weights_bytes: int | None
    stack: stacks.Stack
    settings: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    #: "" where other problems left the network unplanned.
    topology: str
    transport: str
    #: The NCCL that the ranks will load, "" where that is not known.
    nccl: str
    smoke_tokens: int = 0
    #: What an installed vLLM said of its arguments, where the table does not know its release.
    asked: Mapping[str, vllm_release.Option] | None = None
    variables: Sequence[str] | None = None
    #: The releases of GCC that this NCCL was compiled with, none where it was not read.
    nccl_gcc: Sequence[str] = ()


@dataclass
class Decision:
    """The outcome; ``problems`` stop a run before anything changes."""

    tensor: int = 1
    pipeline: int = 1
    smoke_tokens: int = _ANSWER
    args: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    #: What has to lie on the head: {url, sha256, path}.
    files: list[dict[str, str]] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    memory: memory_plan.MemoryPlan | None = None
    findings: list[Finding] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def decide(inputs: Inputs) -> Decision:
    """Decide. Every problem is kept, so that all are listed together with those of the cluster."""
    decision = Decision(smoke_tokens=inputs.smoke_tokens or (_REASONED_ANSWER if inputs.model.reasoning else _ANSWER))
    own, decision.problems = _parse(inputs, inputs.settings["gb10_vllm_extra_args"], "gb10_vllm_extra_args")
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
        decision.files.append({"url": file.url, "sha256": file.sha256, "path": f"{inputs.settings['gb10_install_dir']}/files/{file.name}"})
        decision.args.append(f"{file.argument}={decision.files[-1]['path']}")
    decision.problems += [*_required(inputs), *_contradictions(inputs.settings, decision, own)]
    _judge_environment(inputs, decision)
    _findings(inputs, shape, {**_planned(inputs, decision), **own}, decision)
    return decision


def _environment(inputs: Inputs, decision: Decision) -> Inputs:
    """Decide the variables, and return the inputs with them on the nodes, whose own win: whatever judges a node then sees what its ranks get."""
    decision.environment |= {**inputs.stack.environment, **inputs.model.environment}
    if _cuda(inputs):
        decision.environment.setdefault(_MARLIN, "1")
    return replace(inputs, nodes=[{**node, "environment": {**decision.environment, **node["environment"]}} for node in inputs.nodes])


def _stack(inputs: Inputs, shape: Shape | None, own: Mapping[str, Any], decision: Decision) -> None:
    """Give the arguments that the stack brings, but for those that the model or the user says otherwise, in whichever way; tell of its variables."""
    brought, others = inputs.stack.environment, {**inputs.model.environment, **inputs.settings["gb10_extra_env"]}
    decision.why += [f"{name}={value}: the stack {inputs.stack.name} is served with it" for name, value in brought.items() if name not in others]
    if _MARLIN in decision.environment and _MARLIN not in {**brought, **inputs.model.environment}:
        decision.why.append(f"{_MARLIN}=1: on sm_121 Marlin's kernels were reported to race without it")
    said, _problems = _parse(inputs, inputs.model.args, "")
    view = View({"arguments": {**said, **own}}, ())
    moe = inputs.stack.moe_backends.get(model_config.scheme(inputs.config), "") if shape and shape.experts else ""
    for word in [*inputs.stack.args, *([f"--moe-backend={moe}"] if moe else [])]:
        name = word.partition("=")[0]
        if _has(inputs, name) and not view.argument(name) and not view.member(*_ELSEWHERE.get(name, (name, ""))):
            decision.args.append(word)
            decision.why.append(f"{word}: the stack {inputs.stack.name} is served with it")


def _named(model: Model) -> list[str]:
    """Return the arguments that the model itself brings: what it needs, and which revision of it was meant."""
    revision = [f"--revision={model.revision}"] if model.revision and not model.path else []
    return [*revision, *([f"--quantization={model.quantization}"] if model.quantization else []), *model.args]


def _parse(inputs: Inputs, argv: Sequence[str], path: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of arguments and what is wrong with them, nothing where nobody can say."""
    if not vllm_release.known(inputs.stack.vllm) and inputs.asked is None:
        return {}, []
    return vllm_release.parse(argv, inputs.stack.vllm, asked=inputs.asked, path=path)


def _has(inputs: Inputs, option: str) -> bool:
    """Whether the release has an option; one that nobody knows is taken to have what the newest known has."""
    if inputs.asked is not None:
        return option in inputs.asked
    release = inputs.stack.vllm if vllm_release.known(inputs.stack.vllm) else ".".join(map(str, vllm_release.LAST))
    return vllm_release.has_option(release, option)


def _cuda(inputs: Inputs) -> bool:
    """Whether the ranks run on a GB10's GPU: on the CPU that the lab's nodes have, what is said of memory and kernels means nothing."""
    return inputs.stack.device == stacks.CUDA and any(node["capability"] == _GB10 for node in inputs.nodes)


def _shape(config: Mapping[str, Any] | None) -> tuple[Shape | None, str]:
    """Return a model's shape and "", or None and why it is not known."""
    if not config:
        return None, "no config.json was read, and the catalogue has none"
    try:
        return model_shape.shape(config), ""
    except ProblemsError as error:
        return None, "; ".join(f"{problem.path} {problem.found}" for problem in error.problems)


def _parallelism(inputs: Inputs, shape: Shape | None, decision: Decision) -> None:
    """Take tensor and pipeline parallelism from the user, or choose them."""
    tensor, pipeline = inputs.settings["gb10_tensor_parallel_size"], inputs.settings["gb10_pipeline_parallel_size"]
    if inputs.settings["gb10_data_parallel_size"] > 1:
        decision.why.append("a replica of the model on each node: requests are spread over them, and none is split over the network")
        return
    count = len(inputs.nodes)
    if tensor or pipeline:
        decision.tensor, decision.pipeline = tensor or max(1, count // pipeline), pipeline or max(1, count // tensor)
        return
    decision.tensor, decision.pipeline, why = _sizes(inputs, shape, inputs.model)
    if count > 1:
        decision.why.append(f"tensor {decision.tensor} x pipeline {decision.pipeline}: {why}")


def _sizes(inputs: Inputs, shape: Shape | None, model: Model) -> tuple[int, int, str]:
    """Choose (tensor, pipeline, why) for a model: one GPU a node, and no node idle."""
    count = len(inputs.nodes)
    if model.tensor * model.pipeline == count:
        return model.tensor, model.pipeline, "as the catalogue has it"
    kinds = {node["capability"] for node in inputs.nodes if node["capability"]}
    if count > 1 and (inputs.transport == "socket" or len(kinds) > 1):
        reason = "their GPUs differ" if len(kinds) > 1 else "they are joined by sockets"
        return 1, count, f"a stage on each of the nodes, because {reason}; tensor parallelism waits for the network in every layer"
    tensor = next(size for size in range(count, 0, -1) if count % size == 0 and (shape is None or memory_checks.divides(shape, size)))
    least = "" if tensor == count else f"; its heads do not divide by {count}"
    return tensor, count // tensor, f"every layer over as many nodes as the model allows{least}"


def _experts(inputs: Inputs, shape: Shape | None, decision: Decision) -> None:
    """Spread whole experts over the ranks, instead of a part of each."""
    if not inputs.settings["gb10_expert_parallel"]:
        return
    if shape is not None and not shape.experts:
        found = f"{inputs.model.name} has no experts"
        decision.problems.append(Problem("gb10_expert_parallel", found, "a mixture of experts", "leave gb10_expert_parallel false"))
    decision.args.append("--enable-expert-parallel")


def _eager(inputs: Inputs, own: Mapping[str, Any], decision: Decision) -> None:
    """Leave the compiler out where Triton's assembler does not know a Thor's sm_110a; see the rule thor-ptxas."""
    if inputs.stack.device != stacks.CUDA or vllm_release.number(inputs.stack.vllm) >= _THOR_ASSEMBLER or "--enforce-eager" in own:
        return
    without = [
        node["name"] for node in inputs.nodes if node["capability"] == _THOR and not additions.rank_environment(node).get("TRITON_PTXAS_PATH")
    ]
    if without:
        decision.args.append("--enforce-eager")
        why = f"Triton of vLLM {inputs.stack.vllm} brings no assembler for sm_110a, and TRITON_PTXAS_PATH names none on {', '.join(without)}"
        decision.why.append(f"--enforce-eager: {why}")


def _memory(inputs: Inputs, shape: Shape | None, own: Mapping[str, Any], decision: Decision) -> None:
    """Plan the memory, and give the arguments that follow from it. What the user's own arguments say counts."""
    settings = inputs.settings
    length, sequences, kv_dtype = settings["gb10_max_model_len"], settings["gb10_max_num_seqs"], settings["gb10_kv_cache_dtype"]
    decision.args += [f"--kv-cache-dtype={kv_dtype}"] if kv_dtype != "auto" else []
    decision.args += [f"--max-num-seqs={sequences}"] if sequences else []
    if not _cuda(inputs):
        decision.args += [f"--max-model-len={length}"] if length else []
        return
    known = all(node["memory_bytes"] for node in inputs.nodes)
    replicas = settings["gb10_data_parallel_size"] > 1
    if replicas and settings["gb10_expert_parallel"]:
        decision.why.append("memory is not planned: experts are spread over replicas")
        shape = None
    if shape is None or not known:
        decision.args += [f"--gpu-memory-utilization={UNKNOWN_MODEL_UTILIZATION}", *([f"--max-model-len={length}"] if length else [])]
        why = "" if known else "; that of the nodes is not known"
        decision.why.append(f"{UNKNOWN_MODEL_UTILIZATION} of the memory, as most recipes take: vLLM's default is too much on a shared one{why}")
        return
    try:
        plan = memory_plan.plan(
            shape,
            # Each replica has all of the model, so the smallest node decides.
            nodes=[min(inputs.nodes, key=lambda node: int(node["memory_bytes"]))] if replicas else inputs.nodes,
            tensor=decision.tensor,
            pipeline=decision.pipeline,
            weights_bytes=inputs.weights_bytes,
            dtype=str(own.get("--dtype", "auto")),
            kv_dtype=str(own.get("--kv-cache-dtype", kv_dtype)),
            max_model_len=_whole(own.get("--max-model-len")) or length or min(inputs.model.max_model_len, shape.positions),
            sequences=_whole(own.get("--max-num-seqs")) or sequences,
            batched_tokens=_whole(own.get("--max-num-batched-tokens")),
            ceiling=CEILING,
            kv_in_bytes=_has(inputs, "--kv-cache-memory-bytes"),
            kv_cache_memory_bytes=_whole(own.get("--kv-cache-memory-bytes")),
        )
    except ProblemsError as error:
        decision.problems += error.problems
        return
    decision.memory = plan
    decision.args += plan.arguments
    decision.problems += [replace(problem, fix=f"{problem.fix}, or take a model that fits: {_fitting(inputs)}") for problem in plan.problems]


def _fitting(inputs: Inputs) -> str:
    """Return the names of the catalogue's models that would fit on these nodes, the largest first."""
    found = []
    for model in catalogue.known().values():
        shape, _unknown = _shape(model.config)
        tensor, pipeline, _why = _sizes(inputs, shape, model)
        if shape is None or memory_checks.parallelism(shape, len(inputs.nodes), tensor, pipeline):
            continue
        plan = memory_plan.plan(shape, nodes=inputs.nodes, tensor=tensor, pipeline=pipeline, weights_bytes=model.weights_bytes, ceiling=CEILING)
        if plan.fits:
            found.append((plan.weights, model.name))
    return ", ".join(name for _weights, name in sorted(found, reverse=True)) or "the catalogue has none"


def _whole(value: Any) -> int:
    """Return an argument as a number, 0 where it is none: vLLM's parser says so, or it is "auto"."""
    text = str(value)
    return int(text) if text.isdigit() else 0


def _planned(inputs: Inputs, decision: Decision) -> dict[str, Any]:
    """Return the values of the planned arguments, and of those that roles added."""
    planned = [*decision.args, *additions.serve_flags(inputs.nodes)]
    values, problems = _parse(inputs, planned, f"gb10_models.{inputs.model.name}.args")
    decision.problems += problems
    return values


def _required(inputs: Inputs) -> list[Problem]:
    """Hold the model against the release: its architecture came with one."""
    model, release = inputs.model, vllm_release.number(inputs.stack.vllm)
    since, until = (model.requires.get(word, "") for word in ("since", "until"))
    early, late = bool(since) and release < vllm_release.number(since), bool(until) and release > vllm_release.number(until)
    if not early and not late:
        return []
    expected = " ".join(f"{word} {version}" for word, version in (("since", since), ("until", until)) if version)
    found = f"vLLM {inputs.stack.vllm} (stack {inputs.stack.name}) does not serve {model.name}"
    return [Problem("gb10_stack", found, f"vLLM {expected}", "take another stack, or another model")]


def _contradictions(settings: Mapping[str, Any], decision: Decision, own: Mapping[str, Any]) -> list[Problem]:
    """Find arguments of the user's that say something else than a variable does, which other roles go by."""
    decided = {"gb10_tensor_parallel_size": decision.tensor, "gb10_pipeline_parallel_size": decision.pipeline}
    problems = []
    for argument, (variable, unset) in _OWNED.items():
        value = decided.get(variable, settings[variable])
        if argument in own and value != unset and str(own[argument]) != str(value):
            problems.append(
                Problem(f"gb10_vllm_extra_args.{argument}", str(own[argument]), f"{value}, as {variable} has it", f"use {variable} alone")
            )
    return problems


def _judge_environment(inputs: Inputs, decision: Decision) -> None:
    """Say which variables the release does not read, and where nobody can say."""
    release, given = inputs.stack.vllm, inputs.settings["gb10_extra_env"]
    known = vllm_release.known(release)
    if known or inputs.variables is not None:
        decision.problems += vllm_release.check_environment(given, release, asked=None if known else inputs.variables, path="gb10_extra_env")
    if not known:
        first, last = (".".join(map(str, number)) for number in (vllm_release.FIRST, vllm_release.LAST))
        asked = "the installed one was asked" if inputs.asked is not None else "none is installed to be asked, so arguments are not judged"
        decision.why.append(f"vLLM {release} is not in the table of arguments ({first} to {last}): {asked}")


def _findings(inputs: Inputs, shape: Shape | None, arguments: Mapping[str, Any], decision: Decision) -> None:
    """Hold everything against the rules, once the network is planned. Errors that nobody waived are problems."""
    if not inputs.topology:
        return
    model, settings = inputs.model, inputs.settings
    container = launch.overrides(settings["gb10_container_args"])

    def gpu(node: Mapping[str, Any]) -> str | None:
        """Ranks on a CPU have no GPU, whatever the node has."""
        capability: str | None = node["capability"] if inputs.stack.device == stacks.CUDA else None
        return capability

    situation = {
        "release": inputs.stack.vllm,
        "stack": inputs.stack.name,
        "image": inputs.stack.image,
        "runtime": inputs.stack.runtime,
        "network": container.get("--network", ("", "host"))[1],
        "container": container,
        "image_has_ray": inputs.stack.image_has_ray,
        "executor": settings["gb10_distributed_executor_backend"],
        "tensor_parallel_size": decision.tensor,
        "pipeline_parallel_size": decision.pipeline,
        "topology": inputs.topology,
        "transport": inputs.transport,
        "api_host": settings["gb10_api_host"],
        "api_key": settings["gb10_api_key_enabled"],
        "nccl": inputs.nccl,
        "nccl_gcc": inputs.nccl_gcc,
        "smoke_tokens": decision.smoke_tokens,
        "model": {
            "name": model.hub or model.name,
            "type": model_config.family(inputs.config),
            "scheme": model_config.scheme(inputs.config),
            "moe": bool(shape and shape.experts),
            "reasoning": model.reasoning,
            "weights_bytes": inputs.weights_bytes,
            "positions": model_config.positions(inputs.config or {}),
            "kv_dtype": model_config.kv_dtype(inputs.config) if inputs.config else "",
        },
        "arguments": dict(arguments),
        "nodes": [{**node, "capability": gpu(node), "environment": additions.rank_environment(node)} for node in inputs.nodes],
    }
    try:
        decision.findings = serve_rules.lint(situation, settings["gb10_serve_waivers"])
    except ProblemsError as error:
        decision.problems += error.problems
        return
    decision.problems += [
        Problem(finding.path, finding.found, finding.why, f"{finding.fix}; or say why not in gb10_serve_waivers.{finding.rule}")
        for finding in serve_rules.stopping(decision.findings)
    ]
