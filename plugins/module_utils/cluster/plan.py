# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster plan: one pass over the typed inputs of all nodes to one plan that the roles apply, or to every problem.

The stages, each with its own result: runtime, fabric, model, NCCL, serving (with memory and rules), and the plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import WARNING
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import additions as cluster_additions
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import checks as cluster_checks
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import fallback, foreseen, node_checks, packages
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import model as cluster_model
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.additions import Additions
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.model import Chosen
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.runtime import Runtime, runtime_of
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import Inputs, Node
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, spans
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import environment as fabric_environment
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import plan as fabric_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import topology
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.plan import FabricPlan
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import toolchain
from ansible_collections.gb10.cluster.plugins.module_utils.memory import plan as memory_plan
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import choice as nccl_choice
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import patches
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan as os_update_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import (
    Api,
    ApiTls,
    Environment,
    Expected,
    Fallback,
    Head,
    Installed,
    Measured,
    Nccl,
    NcclInputs,
    NodeFabric,
    Plan,
    PlannedNode,
    Rest,
    Restart,
    Serve,
    StackVersions,
    State,
    Store,
)
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.stacks import Stack
from ansible_collections.gb10.cluster.plugins.module_utils.serve import options as serve_options
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan
from ansible_collections.gb10.cluster.plugins.module_utils.serve import schema as serve_schema
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import requirements
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

#: Problems with one of these make the vLLM release unknown, so that arguments are not checked.
_RELEASE = ("gb10_stack", "gb10_runtime_lock", "gb10_runtime", "gb10_container_image")
_SIZES = (*cluster_checks.PARALLELISM, "gb10_data_parallel_size")


def plan(inputs: Inputs, known_variables: Mapping[str, Sequence[str]]) -> tuple[Plan | None, list[Problem]]:
    """Check the inputs and plan the cluster. ``known_variables`` maps each role to its public variables.

    Returns the plan, None if there is a problem, and every problem.
    """
    if not inputs.nodes:
        return None, [
            Problem(
                "nodes",
                "no host in the group gb10_cluster",
                "a head and its workers",
                "add hosts to the groups head and worker",
            )
        ]
    inputs = cluster_model.with_image(inputs)
    if not inputs.head.settings.fallback_model:
        return _cluster(inputs, known_variables)
    small, small_problems = _fallback(inputs, known_variables)
    planned, problems = _cluster(fallback.without(inputs) if fallback.fits(inputs) else inputs, known_variables)
    reported = {problem.path for problem in problems}
    problems += [problem for problem in small_problems if problem.path not in reported]
    if planned and small:
        problems += fallback.same_name(small, planned.served_model_name)
    return (replace(planned, fallback=small) if planned and not problems else None), problems


def _cluster(inputs: Inputs, known_variables: Mapping[str, Sequence[str]]) -> tuple[Plan | None, list[Problem]]:
    """Return the plan of the cluster's model, None if there is a problem, and every problem."""
    settings = inputs.head.settings
    input_problems = cluster_checks.check(inputs, known_variables)
    runtime = runtime_of(inputs)
    members, ports = (
        [_member(node, settings.fabric_functions) for node in inputs.nodes],
        [node.settings.fabric_ports for node in inputs.nodes],
    )
    fabric = fabric_plan.of_cluster(
        members, ports, settings.fabric, settings.fabric_rdma_required, settings.fabric_pin_gid_index
    )
    model, model_problems = _model(inputs)
    recorded, invalid = _recorded(inputs, runtime)
    problems = [
        *input_problems,
        *inputs.problems,
        *fabric.problems,
        *runtime.problems,
        *patches.check(inputs.head.nccl_patches),
        *packages.check(inputs.nodes),
        *node_checks.check_nodes(inputs, fabric, runtime.wheel_problems, model),
        *invalid,
        *fabric.link_problems,
        *model_problems,
    ]
    if not model or any(problem.path in _RELEASE for problem in problems):
        return None, problems
    if any(problem.path in _SIZES for problem in problems):
        # Check the rest with sizes that the plan chooses.
        settings = replace(settings, tensor_parallel_size=0, pipeline_parallel_size=0, data_parallel_size=0)
        fabric = replace(fabric, nodes=())
    stack = runtime.stack
    ranks = _ranks(inputs, fabric, runtime, model, recorded)
    transport = _transport(ranks)
    nccl, library = _nccl(inputs, fabric, stack, transport)
    release = vllm_release_checks.of_runtime(stack.vllm, runtime.options, runtime.variables, runtime.unread)
    shape = fabric.topology if fabric.nodes else ""
    serving = serve_schema.Inputs(
        model,
        stack,
        release,
        settings,
        ranks,
        shape,
        transport,
        library,
        inputs.head.smoke_tokens,
        inputs.head.drop_caches,
        () if stack.runtime == stacks.CONTAINER else tuple(requirements.entries(inputs.lock)),
    )
    decision = serve_plan.decide(serving)
    problems += decision.problems
    problems += node_checks.check_compilers(inputs.nodes, decision.compiled)
    return (None if problems else _plan(inputs, fabric, ranks, runtime, nccl, model, serving, decision)), problems


def _fallback(inputs: Inputs, known_variables: Mapping[str, Sequence[str]]) -> tuple[Fallback | None, list[Problem]]:
    """Return the fallback, None if there is a problem, and every problem."""
    settings, node = inputs.head.settings, fallback.host(inputs)
    alone, found = plan(fallback.cluster_of(inputs, node), known_variables) if node else (None, [])
    found = [*fallback.problems(inputs, found), *(fallback.unfit(alone) if alone else [])]
    return (fallback.of_plan(alone, settings.fallback_port) if alone and not found else None), found


def warnings(inputs: Inputs, plan: Plan | None) -> list[str]:
    """Return the warnings of certificates, links, packages and, if there is a plan, of the plan; one sentence each."""
    tls = [sentence for node in inputs.nodes if node.tls for sentence in node.tls.warnings]
    ports = [node.settings.fabric_ports for node in inputs.nodes]
    rails = fabric_plan.warnings(plan.functions, plan.topology, ports, plan.mtu) if plan else []
    debian = packages.warnings(inputs.nodes, {node.name: node.packages for node in plan.nodes} if plan else {})
    return [*tls, *node_checks.warnings(inputs.nodes), *rails, *debian, *(plan.serve.warnings if plan else [])]


def _member(node: Node, functions: str) -> topology.FabricNode:
    """Return the fabric's input for a node, before its ports are chosen."""
    network = node.facts.network if node.facts else None
    return topology.FabricNode(
        node.name,
        None,
        tuple(node.settings.fabric_addresses),
        node.address,
        node.settings.fabric_interface,
        network,
        node.removing,
        functions,
    )


def _model(inputs: Inputs) -> tuple[Chosen | None, list[Problem]]:
    """Return the model and its problems. A refused recipe, whose problems are reported already, leaves it unknown."""
    settings = inputs.head.settings
    if settings.recipe and not inputs.recipe and not settings.model:
        return None, []
    try:
        model = cluster_model.choose_model(inputs)
        return model, cluster_model.check_hub(model, inputs)
    except ProblemsError as error:
        return None, [*error.problems]


def _recorded(inputs: Inputs, runtime: Runtime) -> tuple[list[Additions], list[Problem]]:
    """Return the launch overrides of the runtime that roles recorded on each node, and the problems of all."""
    name, root = runtime.planned.name, inputs.head.settings.install_dir
    found = [
        cluster_additions.of_node(node.name, node.facts.additions if node.facts else {}, name, root)
        for node in inputs.nodes
    ]
    return [valid for valid, _wrong in found], [problem for _valid, wrong in found for problem in wrong]


def _ranks(
    inputs: Inputs, fabric: FabricPlan, runtime: Runtime, model: Chosen, recorded: Sequence[Additions]
) -> list[serve_schema.ServingNode]:
    """Return the rank of each node. Without a plan of the fabric it has no environment."""
    reference, extra = model.entry.reference, inputs.head.settings.extra_env
    environments = [
        launch_argv.own_environment(
            share.environment,
            _tools(node, runtime, len(inputs.nodes)),
            inputs.head.settings.service_user,
            reference,
            extra,
        )
        for node, share in zip(inputs.nodes, fabric.nodes, strict=False)
    ]
    shares = [share.environment for share in fabric.nodes]
    return [
        serve_schema.ServingNode(
            name=node.name,
            head=node.head,
            memory_bytes=node.facts.gpu.memory_bytes if node.facts else 0,
            capability=node.capability,
            driver=node.facts.gpu.driver if node.facts else "",
            kernel=node.facts.kernel if node.facts else "",
            cma_free_bytes=node.facts.cma_free_bytes if node.facts else 0,
            cma_total_bytes=node.facts.cma_total_bytes if node.facts else 0,
            **_system(node),
            environment=environment,
            fabric=share,
            recorded=found,
            additions=foreseen.additions(
                node, runtime, found, inputs.head.settings.install_dir, model.config.quantization.kind
            ),
        )
        for node, environment, share, found in zip(
            inputs.nodes,
            environments or [{}] * len(inputs.nodes),
            shares or [{}] * len(inputs.nodes),
            recorded,
            strict=True,
        )
    ]


def _system(node: Node) -> dict[str, Any]:
    """Return the level of DGX OS, the kernel of the next boot, and options of the running one."""
    system = node.facts.system if node.facts else None
    kernel = system.next_kernel if system else None
    return {
        "level": system.level.stamp if system else "",
        "next_kernel": kernel.release if kernel else "",
        "kernel_options": tuple(system.options) if system else (),
    }


def _tools(node: Node, runtime: Runtime, ranks: int) -> dict[str, str]:
    """Return the variables of the ranks' programs and caches. Only a CUDA build compiles kernels."""
    release = "" if runtime.unread else runtime.stack.vllm
    tuning = toolchain.tuning(release, ranks, runtime.stack.device == stacks.CUDA)
    if not isinstance(runtime.planned, Environment):
        return tuning
    toolkit = node.facts.toolkit if node.facts and runtime.stack.device == stacks.CUDA else None
    own = toolchain.environment(runtime.planned.path, (toolkit and toolkit.home) or "", toolchain.RANK_JOBS)
    return own | tuning


def _transport(ranks: Sequence[serve_schema.ServingNode]) -> str:
    """Return the transport that the ranks' environment selects for NCCL, "" if it is unknown."""
    if not ranks[0].environment:
        return ""
    if len(ranks) == 1:
        return "none"
    return fabric_environment.transport(ranks[0].environment)


def _nccl(inputs: Inputs, fabric: FabricPlan, stack: Stack, transport: str) -> tuple[Nccl, nccl_choice.Loaded]:
    """Return whether to build NCCL, as far as the nodes' facts decide it, and the library that the ranks load."""
    head = inputs.head
    cluster = NcclInputs(
        cuda=stack.device == stacks.CUDA,
        container=stack.runtime == stacks.CONTAINER,
        ring=(fabric.topology, transport) == ("ring", "roce"),
        release=stack.bundled_nccl,
        patches=[patch.name for patch in head.nccl_patches],
    )
    # The environment that a node may still have does not count for its containers.
    read = [node.facts.nccl if node.facts and not cluster.container else None for node in inputs.nodes]
    nodes = [
        nccl_choice.NcclNode(node.name, node.capability or "", library)
        for node, library in zip(inputs.nodes, read, strict=True)
    ]
    choice = nccl_choice.choose(head.nccl_wanted, cluster, nodes)
    tag = stack.nccl if head.nccl == "stack" else head.nccl
    loaded = (
        nccl_choice.loaded(nodes[0].library or {}, stack.bundled_nccl) if not choice.build else nccl_choice.built(tag)
    )
    return Nccl(choice.build, choice.final, choice.why, head.nccl_wanted, cluster), loaded


def _plan(
    inputs: Inputs,
    fabric: FabricPlan,
    ranks: Sequence[serve_schema.ServingNode],
    runtime: Runtime,
    nccl: Nccl,
    model: Chosen,
    serving: serve_schema.Inputs,
    decision: serve_schema.Decision,
) -> Plan:
    """Combine the results of the stages."""
    head, settings, stack = inputs.head, inputs.head.settings, runtime.stack
    executor = settings.distributed_executor_backend
    download = any(store and not store["source"] for store in (model.store, model.draft_store))
    lacking = [packages.lacking(node, runtime, nccl.build and nccl.final, download) for node in inputs.nodes]
    nodes = _planned_nodes(inputs, fabric.nodes, ranks, decision.environment, runtime, lacking)
    about, measured = (inputs.recipe.about, inputs.recipe.measured) if inputs.recipe else ((), ())
    expected = _expected(serving, decision, measured)
    why = [*decision.why, *foreseen.explain(ranks, runtime.stack)]
    infos = [f"info: {line}" for line in serve_plan.better_split(serving, decision)]
    planned = _serve(model, decision, serving.nccl.release, expected, why, about, infos)
    return Plan(
        nodes=nodes,
        head=Head(head.name, fabric.nodes[0].address),
        model=model.entry.reference,
        kind=decision.kind.name,
        quantization=model.config.quantization.kind,
        served_model_name=settings.served_model_name or model.name,
        store=Store(**model.store) if model.store else None,
        drafts=(Store(**model.draft_store),) if model.draft_store else (),
        executor=executor,
        ranks_unit=paths.RAY_UNIT if executor == "ray" else paths.VLLM_UNIT,
        tensor_parallel_size=decision.tensor,
        pipeline_parallel_size=decision.pipeline,
        data_parallel_size=decision.data,
        api_host=settings.api_host,
        api_port=settings.api_port,
        api_key=settings.api_key_enabled,
        api_clients=settings.api_clients,
        api=Api(
            **api_access.place(
                settings.api_host, settings.api_port, settings.api_name, head.address, head.tls is not None
            )
        ),
        api_tls=ApiTls(head.tls.digest, head.tls.until) if head.tls else None,
        ray_port=settings.ray_port,
        rendezvous_port=settings.master_port,
        mtu=settings.fabric_mtu,
        takeover=settings.fabric_replace_existing,
        pin_gid_index=settings.fabric_pin_gid_index,
        root=settings.install_dir,
        user=settings.service_user,
        home=paths.home(settings.service_user),
        writable=settings.service_read_write_paths,
        allow_restart=settings.allow_restart,
        restart=Restart(
            settings.restart_attempts,
            settings.restart_interval,
            settings.restart_delay,
            settings.restart_max_delay,
            settings.gate_timeout,
        ),
        rest=_rest(head),
        fallback=None,
        memory_max=settings.service_memory_max,
        oom_score=settings.service_oom_score,
        runtime=runtime.planned,
        nccl=nccl,
        build=runtime.build,
        stack=StackVersions(stack.name, stack.vllm, stack.nccl, stack.device, stack.cuda),
        serve=planned,
        topology=fabric.topology,
        functions=settings.fabric_functions if topology.entry(fabric.topology).qsfp else "",
        system=os_update_plan.of_nodes({node.name: node.facts.updates for node in inputs.nodes if node.facts}),
        fabric=fabric_plan.explain(fabric.topology, settings.fabric_mtu, fabric.why, fabric.nodes),
        label=inputs.label,
        node=nodes[0],
    )


def _rest(head: Node) -> Rest:
    after = spans.seconds(head.settings.idle_stop) if head.watched else 0
    return Rest(after or 0, head.settings.wake_port)


def _serve(
    model: Chosen,
    decision: serve_schema.Decision,
    nccl: str,
    expected: Expected,
    why: Sequence[str],
    recipe: Sequence[str],
    infos: Sequence[str],
) -> Serve:
    findings, stopping = (
        [*lint.report(decision.findings), *infos],
        lint.stopping(decision.findings, WARNING),
    )
    return Serve(
        args=decision.args,
        user_args=serve_options.without_share(model.user_args) if decision.memory else model.user_args,
        files=decision.files,
        smoke_tokens=decision.smoke_tokens,
        reasoning=model.entry.reasoning,
        dimension=decision.kind.dimension,
        nccl=nccl,
        why=why,
        model=model.about,
        recipe=recipe,
        compiled=decision.compiled,
        memory=memory_plan.explain(decision.memory, not decision.kind.pooling, decision.speculative)
        if decision.memory
        else [],
        needs=memory_plan.needs(decision.memory) if decision.memory else {},
        expected=expected,
        findings=findings,
        warnings=[*model.warnings, *lint.report(stopping)],
    )


def _expected(serving: serve_schema.Inputs, decision: serve_schema.Decision, measured: Sequence[Measured]) -> Expected:
    memory = decision.memory
    published = serving.model.entry.published.get(str(len(serving.nodes)), ())
    if not memory:
        return Expected(0, 0, 0.0, decision.speculative, published, measured)
    speed = 0.0 if decision.kind.pooling else memory.tokens_per_second
    return Expected(memory.context, memory.max_num_seqs, speed, decision.speculative, published, measured)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _state(node: Node, mark: str) -> State:
    found = node.facts.installed if node.facts else Installed()
    return State(**asdict(found), runtime_ready=found.runtime_mark == _digest(mark))


def _planned_nodes(
    inputs: Inputs,
    shares: Sequence[NodeFabric],
    ranks: Sequence[serve_schema.ServingNode],
    environment: Mapping[str, str],
    runtime: Runtime,
    packages_of: Sequence[Mapping[str, Sequence[str]]],
) -> tuple[PlannedNode, ...]:
    """Return the plan of each node; ``environment`` are the variables that all ranks have in common."""
    lock = _digest(inputs.lock)
    marks = ["".join(f"{line}\n" for line in (lock, *(wheel.sha256 for wheel in own))) for own in runtime.wheels]
    return tuple(
        PlannedNode(
            **{**vars(share), "environment": {**environment, **rank.environment}},
            head=node.head,
            wheels=own,
            capability=node.capability,
            toolkit=node.facts.toolkit.release if node.facts and node.facts.toolkit else "",
            secrets=node.secrets,
            infiniband=node.facts is not None and node.facts.network.infiniband,
            additions=rank.recorded,
            foreseen=rank.additions,
            runtime_mark=mark,
            packages=debian,
            state=_state(node, mark),
            host_guard=host_guard_plan.planned(node.protection, node.facts.host if node.facts else None),
        )
        for node, share, rank, own, mark, debian in zip(
            inputs.nodes, shares, ranks, runtime.wheels, marks, packages_of, strict=True
        )
    )
