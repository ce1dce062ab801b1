"""Tests of a recipe in the cluster plan: it replaces defaults, and its problems stop a run."""

from __future__ import annotations

import json
from typing import Any

import cluster_nodes
import pytest
from cluster_nodes import Node, cluster_plan, parts, planned, sparks

IMAGE = f"vllm/vllm-openai@sha256:{'0' * 64}"
RECIPE = {
    "recipe_version": "1",
    "name": "Small model",
    "container": "vllm-node",
    "pull_image": IMAGE,
    "defaults": {"port": 8000, "tensor_parallel": 2, "max_model_len": 8192},
    "env": {"VLLM_MARLIN_USE_ATOMIC_ADD": "1", "NCCL_IB_HCA": "mlx5_0"},
    "command": "vllm serve openai/gpt-oss-20b --port {port} --host 0.0.0.0 -tp {tensor_parallel} \\\n"
    "  --max-model-len {max_model_len} --gpu-memory-utilization 0.8 --enable-auto-tool-choice "
    "--tool-call-parser openai",
}
UNKNOWN = "vllm serve owner/unknown -tp 2 --gpu-memory-utilization 0.7"
OWN_DRAFT = ["--speculative-config", '{"method":"draft_model","model":"owner/draft","num_speculative_tokens":2}']
SHARE = "--gpu-memory-utilization 0.8 is replaced: the memory plan takes at most this share, and passes its own"


def pair(model: str = "", **settings: Any) -> list[Node]:
    """Return two nodes with a recipe. No node has the model yet, so the catalog's facts about it count."""
    nodes = cluster_nodes.pair(gb10_model=model, gb10_recipe="small", **settings)
    for node in nodes:
        node["variables"] += settings
        node["observed"]["model"] = {} if model.startswith("/") else None
    return nodes


def layer(name: str, problem: str = "") -> dict[str, Any]:
    """Return a result of the lookup image_layers."""
    return {"name": name, "folder": f"/srv/{name}", "digest": "1", "packages": [], "network": False, "problem": problem}


OWN = {"gb10_image_layers": [{"path": "own"}]}
#: Nodes, changes of the recipe, and parts of the plan.
PLANS: dict[str, tuple[list[Node], dict[str, Any], dict[str, Any]]] = {
    "a recipe": (
        pair(),
        {},
        {
            "executor": "mp",
            "tensor_parallel_size": 2,
            "runtime.image": IMAGE,
            "store.hub": "openai/gpt-oss-20b",
            "nodes.0.environment.NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1",
            "serve.recipe": [
                f"the recipe Small model with {IMAGE}",
                "--port 8000 is replaced: the addresses and ports of the API are the inventory's",
                "--host 0.0.0.0 is replaced: the addresses and ports of the API are the inventory's",
                "NCCL_IB_HCA=mlx5_0 is replaced: the plan sets the network of each node",
            ],
        },
    ),
    "a container of the inventory has the recipe's image": (
        pair(gb10_runtime="container"),
        {},
        {"runtime.image": IMAGE},
    ),
    "a variable of the inventory": (pair(gb10_distributed_executor_backend="ray"), {}, {"executor": "ray"}),
    "a folder with the model": (pair("/srv/models/mine"), {}, {"model": "/srv/models/mine"}),
    "a model without a memory plan": (
        pair(),
        {"command": UNKNOWN},
        {"serve.args.-2": "--gpu-memory-utilization", "serve.args.-1": "0.7"},
    ),
    "the user's draft": (
        pair(gb10_vllm_extra_args=OWN_DRAFT),
        {},
        {
            "drafts.0.hub": "owner/draft",
            "serve.user_args": [
                OWN_DRAFT[0],
                OWN_DRAFT[1].replace("owner/draft", "/opt/gb10/models/owner--draft/main"),
            ],
        },
    ),
    "without the store the draft keeps its name": (
        pair(gb10_vllm_extra_args=OWN_DRAFT, model_store_enabled=False),
        {},
        {"drafts": [], "serve.user_args": OWN_DRAFT},
    ),
}


@pytest.mark.parametrize(("nodes", "changes", "expected"), PLANS.values(), ids=PLANS)
def test_parts_of_a_plan_with_a_recipe(nodes: list[Node], changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert parts(planned(nodes, recipe={**RECIPE, **changes}), expected) == expected


def test_the_arguments_of_a_recipe_reach_the_server() -> None:
    plan = planned(pair(), recipe=RECIPE)
    assert plan["serve"]["args"][-3:] == ["--enable-auto-tool-choice", "--tool-call-parser", "openai"]
    assert "--max-model-len=8192" in plan["serve"]["args"] and SHARE in plan["serve"]["why"]
    own = planned(pair(gb10_max_model_len=4096), recipe=RECIPE)
    assert "--max-model-len=4096" in own["serve"]["args"], "the inventory wins"


def test_the_figures_of_nvidias_recipe_reach_the_benchmark() -> None:
    workload = {"dataset": "a/Bench", "profile": "p", "input_tokens": 8192, "output_tokens": 256, "concurrency": 1}
    recipe = {
        "schema_version": 4,
        "title": "Small",
        "hardware": "dgx-spark-2gpu",
        "backend": "vllm",
        "topology": {"node_count": 2},
        "runtime": {"kind": "container", "image": IMAGE, "setup_command": "docker run x"},
        "serve": {"command": "vllm serve openai/gpt-oss-20b --tensor-parallel-size 2"},
        "performance.yaml": {"profiles": [{"workload": workload, "results": {"decode_tokens_per_second_mean": 37.5}}]},
    }
    (measured,) = planned(pair(), recipe=recipe)["serve"]["expected"]["measured"]
    assert (measured["source"], measured["dataset"], measured["decode"]) == ("NVIDIA", "a/Bench p", 37.5)
    assert planned(pair(), recipe=RECIPE)["serve"]["expected"]["measured"] == []


SMALL = "vllm serve openai/gpt-oss-20b"
#: Nodes, changes of the recipe, layers, and the paths of the problems.
PROBLEMS: dict[str, tuple[list[Node], dict[str, Any], list[Any], list[str]]] = {
    "another model": (pair("openai/gpt-oss-120b"), {}, [], ["gb10_model"]),
    "more ranks than nodes": (pair(), {"command": f"{SMALL} -tp 4"}, [], ["gb10_tensor_parallel_size"]),
    "a key": (pair(), {"command": f"{SMALL} --api-key x"}, [], ["gb10_recipe.command[0]"]),
    "all memory": (
        pair(),
        {"command": UNKNOWN.replace("0.7", "0.95")},
        [],
        ["gb10_recipe.command.--gpu-memory-utilization"],
    ),
    "a revision above the folder": (pair(), {"command": f"{SMALL} -tp 2 --revision .."}, [], ["gb10_model"]),
    "a draft's revision above the folder": (
        pair(),
        {"command": f'{SMALL} -tp 2 -sc \'{{{{"model": "a/b", "revision": "../x"}}}}\''},
        [],
        ["gb10_model"],
    ),
    "a secret": (pair(), {"env": {"HF_TOKEN": "x"}}, [], ["gb10_recipe.env.HF_TOKEN"]),
    "a second command": (pair(), {"command": f"{SMALL}; id"}, [], ["gb10_recipe.command, line 1"]),
    "values of another form": (
        pair(),
        {"container": "a b", "cluster_only": "yes"},
        [],
        ["gb10_recipe.container", "gb10_recipe.cluster_only"],
    ),
    "recipe and inventory": (
        pair(gb10_api_port=7),
        {"command": "id"},
        [],
        ["gb10_api_port", "gb10_recipe.command, line 1"],
    ),
    "layers that cannot be read": (
        pair(**OWN),
        {"mods": ["mods/x"]},
        [layer("own", "no run.sh"), layer("x", "no folder")],
        ["gb10_image_layers[0]", "gb10_recipe.mods[0]"],
    ),
    "layers without a container": (pair(**OWN, gb10_runtime="native"), {}, [layer("own")], ["gb10_image_layers"]),
}


@pytest.mark.parametrize(("nodes", "changes", "layers", "paths"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_stops_the_plan(
    nodes: list[Node], changes: dict[str, Any], layers: list[Any], paths: list[str]
) -> None:
    plan, problems = cluster_plan(nodes, recipe={**RECIPE, **changes}, layers=layers)
    assert (plan, [problem.path for problem in problems]) == ({}, paths)


def test_the_layers_of_inventory_and_recipe_are_built_on_the_image() -> None:
    layers = [layer("own"), layer("x")]
    runtime = planned(pair(**OWN), recipe={**RECIPE, "mods": ["mods/x"]}, layers=layers)["runtime"]
    assert ([build["name"] for build in runtime["builds"]], runtime["base"]) == (["own", "x"], IMAGE)
    assert runtime["image"] == runtime["name"] == runtime["builds"][-1]["image"]


DRAFT = "z-lab/Qwen3.8-27B-DFlash2"


def speculative(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of the draft in the server's arguments."""
    args = plan["serve"]["args"]
    found: dict[str, Any] = json.loads(args[args.index("--speculative-config") + 1])
    return found


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_catalog_entry_of_nvidias_example_stores_its_draft(count: int) -> None:
    """The draft's tensor-parallel size, which NVIDIA sets for two nodes, is left to vLLM."""
    given = {"gb10_model": "qwen3.8-27b-nvfp4-dflash2", "gb10_fabric_topology": "switch" if count > 2 else "auto"}
    plan = planned(sparks(count, **given))
    (draft,) = plan["drafts"]
    assert speculative(plan) == {"method": "dflash", "model": draft["folder"], "num_speculative_tokens": 8}
    assert (draft["hub"], plan["tensor_parallel_size"], plan["store"]["hub"]) == (
        DRAFT,
        count,
        "nvidia/Qwen3.8-27B-NVFP4",
    )


@pytest.mark.parametrize(
    "runtime", [{}, {"gb10_runtime": "native"}], ids=["an image of any release", "a listed release"]
)
def test_what_a_recipe_may_set_does_not_depend_on_the_release(runtime: dict[str, Any]) -> None:
    hostile = f"{RECIPE['command']} --log-config-file /opt/gb10/models/evil/l.json -cc.backend evil.mod.fn"
    lines = planned(pair(**runtime), recipe={**RECIPE, "command": hostile})["serve"]["recipe"]
    assert [line.partition(" runs code ")[0] for line in lines if " runs code " in line] == [
        "--log-config-file /opt/gb10/models/evil/l.json",
        "-cc.backend evil.mod.fn: its backend",
    ]
    for words, told in {
        "--allowed-local-media-pat=/": "is short for --allowed-local-media-path",
        "--kv-events-config.publisher zmq": "opens a port that requires no key",
    }.items():
        made, problems = cluster_plan(pair(**runtime), recipe={**RECIPE, "command": f"{RECIPE['command']} {words}"})
        assert not made and any(told in problem.found for problem in problems), problems
