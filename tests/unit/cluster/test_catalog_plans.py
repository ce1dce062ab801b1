"""Plans of every catalog entry on every stack, and of the sample inventories: no own warning, and no exceeded bound."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import cluster_nodes
import pytest
import samples
from cluster_nodes import KNOWN, LOCK, Node
from plans import EACH_STACK
from repository import read
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster_plan
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report as cluster_report
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import TYPICAL
from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

#: The sample inventories, with the context of their model.
SAMPLES = {
    **dict.fromkeys(("single-spark", "two-spark"), 262144),
    **dict.fromkeys(("three-spark-ring", "four-spark-switch", "spark-thor", "two-models"), 131072),
}
#: The only problems that a catalog entry may have on a stack: it is too large, or newer than the stack.
UNFIT = ("larger than the cluster", "does not serve")


def sparks(count: int, model: str, stack: str) -> list[Node]:
    """Return nodes with typical facts, with the executor that the stack's image needs."""
    executor = "mp" if stacks.STACKS[stack].image else "ray"
    lock = stacks.STACKS[stack].image == ""
    settings = {"gb10_model": model, "gb10_stack": stack, "gb10_distributed_executor_backend": executor}
    settings |= {} if lock else {"gb10_runtime_lock": ""}
    return [{**node, "typical": True, "observed": {}} for node in cluster_nodes.sparks(count, **settings)]


def lock_of(stack: str) -> str:
    found = stacks.STACKS[stack]
    return read(f"roles/gb10/files/{found.lock}") if found.lock else "" if found.image else LOCK


def planned(nodes: Sequence[Node], lock: str) -> tuple[Plan | None, list[str]]:
    """Return the plan and its warnings as site.yml shows them. Problems other than UNFIT fail."""
    inputs = parse(nodes, lock)
    plan, problems = cluster_plan.plan(inputs, KNOWN)
    assert all(any(word in problem.found for word in UNFIT) for problem in problems)
    return plan, cluster_plan.warnings(inputs, plan)


@functools.cache
def catalog_plans(stack: str, count: int) -> Mapping[str, tuple[Plan, list[str]]]:
    """Return the plan and the warnings of each entry that fits and needs no image of its own."""
    lock = lock_of(stack)
    names = [name for name, model in catalog.known().items() if not model.image]
    found = {name: planned(sparks(count, name, stack), lock) for name in names}
    return {name: (plan, warnings) for name, (plan, warnings) in found.items() if plan}


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("stack", EACH_STACK)
def test_no_catalog_entry_draws_a_warning(stack: str, count: int) -> None:
    found = catalog_plans(stack, count)
    assert len(found) >= 20
    assert {name: warnings for name, (_plan, warnings) in found.items() if warnings} == {}


@pytest.mark.parametrize(
    "model", [each for each in catalog.known().values() if not each.image], ids=lambda each: each.name
)
def test_each_catalog_entry_is_served_on_its_fewest_sparks(model: catalog.Model) -> None:
    nodes = sparks(model.nodes, model.name, "current")
    for node in nodes:
        node["settings"]["gb10_fabric_topology"] = "switch" if model.nodes > 2 else "auto"
    inputs = parse(nodes, lock_of("current"))
    plan, problems = cluster_plan.plan(inputs, KNOWN)
    assert problems == [] and plan and cluster_plan.warnings(inputs, plan) == []
    # The draft's folder is in place of its name.
    own, planned_ones = ({name for name, *_ in arguments.options(args)} for args in (model.args, plan.serve.args))
    assert own <= planned_ones


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_sample_draws_a_warning(sample: str) -> None:
    nodes = [{**node, "typical": True, "observed": {}} for node in samples.nodes_of(samples.inventory(sample), ())]
    # Each node of two-models is a cluster.
    clusters = [[{**node, "group": "head"}] for node in nodes] if sample == "two-models" else [nodes]
    for plan, warnings in (planned(each, LOCK) for each in clusters):
        assert plan and (plan.label, plan.serve.expected.context, warnings) == (TYPICAL, SAMPLES[sample], [])
        for node in plan.nodes:
            assert node.capability == ("11.0" if node.name.startswith("thor") else "12.1")


@pytest.mark.parametrize("count", [1, 2])
def test_no_published_speed_exceeds_the_plans_bound(count: int) -> None:
    """Only speculative decoding can, and then the plan states that the bound is without it."""
    speeds: dict[str, Any] = {
        name: plan.serve.expected for name, (plan, _warnings) in catalog_plans("current", count).items()
    }
    known = {name: each for name, each in speeds.items() if each.published}
    assert len(known) >= 2
    exceeded = {name for name, each in known.items() if max(each.published) > each.tokens_per_second}
    assert exceeded <= {name for name, each in known.items() if each.speculative}
    drafted = {name for name in speeds if "--speculative-config" in catalog.known()[name].args}
    assert {name for name, each in speeds.items() if each.speculative} == drafted


def of_image(count: int, model: str = "deepseek-v4-flash-0731", **settings: Any) -> tuple[Plan | None, list[str]]:
    """Return the plan of a model with its own image, and its problems."""
    given = {"gb10_model": model, **settings}
    nodes = cluster_nodes.sparks(count, **given)
    known = {"typical": True, "observed": {}, "variables": [*nodes[0]["variables"], *given]}
    inputs = parse([{**node, **known} for node in nodes], LOCK)
    plan, problems = cluster_plan.plan(inputs, KNOWN)
    return plan, [f"{problem.path}: {problem.found}" for problem in problems]


@pytest.mark.parametrize("model", [name for name, model in catalog.known().items() if model.image])
def test_a_model_with_an_image_is_served_in_it_with_its_arguments(model: str) -> None:
    plan, problems = of_image(2, model)
    assert plan and problems == []
    entry = catalog.known()[model]
    assert (plan.runtime.kind, plan.runtime.image, plan.executor) == ("container", entry.image, "mp")
    assert plan.serve.args[-len(entry.args) :] == [*entry.args]
    # As with a recipe, the plan leaves the kernels to the image.
    assert not [word for word in plan.serve.args[: -len(entry.args)] if "-backend" in word]
    assert "--max-model-len=262144" in plan.serve.args
    assert plan.nodes[0].environment.items() >= entry.environment.items()
    (problem,) = of_image(1, model)[1]
    assert problem == (f"gb10_model: {model} is larger than the cluster: it needs 2 Sparks of 128 GB, and there are 1")


def test_the_inventory_replaces_a_models_image() -> None:
    digest = "vllm/vllm-openai@sha256:" + "1" * 64
    plan, problems = of_image(2, gb10_runtime="container", gb10_container_image=digest, gb10_max_model_len=8192)
    assert plan and problems == []
    assert (plan.runtime.image, "--max-model-len=8192" in plan.serve.args) == (digest, True)
    # Release 0.33.0 does not read the image's variables.
    for settings in ({"gb10_runtime": "native"}, {"gb10_stack": "current"}, {"gb10_runtime_lock": "/srv/x.lock"}):
        plan, problems = of_image(2, **settings)
        assert not plan and any("does not read VLLM_USE_B12X_MOE" in problem for problem in problems), problems
    for executor, settings in (
        ("ray", {"gb10_distributed_executor_backend": "ray"}),
        ("mp", {"gb10_runtime": "container"}),
    ):
        plan, problems = of_image(2, **settings)
        assert plan and problems == []
        assert (plan.executor, plan.runtime.image) == (executor, catalog.known()["deepseek-v4-flash-0731"].image)


def test_an_old_release_warns_only_if_starts_keep_the_page_cache() -> None:
    nodes = sparks(1, "phi-4", "vllm-0.18.1")
    assert planned(nodes, lock_of("vllm-0.18.1"))[1] == []
    nodes[0]["settings"]["vllm_serve_drop_caches"] = False
    (warning,) = planned(nodes, lock_of("vllm-0.18.1"))[1]
    assert "page-cache-counted" in warning


def test_a_speed_that_speculative_decoding_can_exceed_is_called_so() -> None:
    plan, _warnings = catalog_plans("current", 1)["qwen3.8-27b-nvfp4-dflash2"]
    lines = cluster_report.lines(typed(plan.facts()), 1)
    assert " tokens/s without speculative decoding (" in lines[-2]
    assert any(
        line.strip().startswith("decode: at most") and line.endswith(", without speculative decoding") for line in lines
    )
