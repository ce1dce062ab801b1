"""Tests of a recipe in the cluster plan: it replaces defaults, and its problems stop a run."""

from __future__ import annotations

import copy
import json
import shlex
from typing import Any

import pytest
from cluster_nodes import Node, cluster_plan, spark
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv

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


def pair(*given: str, **settings: Any) -> list[Node]:
    nodes = [
        spark(number, group, gb10_model="", gb10_recipe="small", **settings)
        for number, group in ((1, "head"), (2, "worker"))
    ]
    # No node has the model yet, so the catalog's facts about it count.
    return [
        {**node, "variables": [*node["variables"], *given, *settings], "observed": {**node["observed"], "model": None}}
        for node in nodes
    ]


def planned(nodes: list[Node], **changes: Any) -> dict[str, Any]:
    plan, problems = cluster_plan(nodes, recipe={**copy.deepcopy(RECIPE), **changes})
    assert problems == []
    return plan


def test_the_plan_of_a_recipe() -> None:
    plan = planned(pair())
    assert (plan["executor"], plan["tensor_parallel_size"], plan["runtime"]["image"]) == ("mp", 2, IMAGE)
    assert plan["model"].startswith("/opt/gb10/models/openai--gpt-oss-20b") or plan["model"] == "openai/gpt-oss-20b"
    args = plan["serve"]["args"]
    assert "--max-model-len=8192" in args
    assert args[-3:] == ["--enable-auto-tool-choice", "--tool-call-parser", "openai"]
    assert plan["nodes"][0]["environment"]["NCCL_IB_HCA"] != "mlx5_0"
    assert plan["serve"]["recipe"] == [
        f"the recipe Small model with {IMAGE}",
        "--port 8000 is replaced: the addresses and ports of the API are the inventory's",
        "--host 0.0.0.0 is replaced: the addresses and ports of the API are the inventory's",
        "NCCL_IB_HCA=mlx5_0 is replaced: the plan sets the network of each node",
    ]
    assert (
        "--gpu-memory-utilization 0.8 is replaced: the memory plan takes at most this share, and passes its own"
        in plan["serve"]["why"]
    )


def test_a_variable_of_the_inventory_wins() -> None:
    plan = planned(pair(gb10_max_model_len=4096, gb10_distributed_executor_backend="ray"))
    assert "--max-model-len=4096" in plan["serve"]["args"]
    assert plan["executor"] == "ray"


def test_a_folder_may_hold_the_model() -> None:
    nodes = pair()
    for node in nodes:
        node["settings"]["gb10_model"] = "/srv/models/mine"
        node["observed"]["model"] = {}
    assert planned(nodes)["model"] == "/srv/models/mine"


def test_another_model_is_a_problem() -> None:
    nodes = pair()
    for node in nodes:
        node["settings"]["gb10_model"] = "openai/gpt-oss-120b"
    plan, problems = cluster_plan(nodes, recipe=RECIPE)
    assert (plan, [problem.path for problem in problems]) == ({}, ["gb10_model"])


def test_without_the_plan_of_the_memory_the_share_of_the_recipe_counts() -> None:
    plan = planned(pair(), command="vllm serve owner/unknown -tp 2 --gpu-memory-utilization 0.7")
    assert [word for word in plan["serve"]["args"] if "utilization" in word or word == "0.7"][-2:] == [
        "--gpu-memory-utilization",
        "0.7",
    ]


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"command": "vllm serve openai/gpt-oss-20b -tp 4"}, ["gb10_tensor_parallel_size"]),
        ({"command": "vllm serve openai/gpt-oss-20b --api-key x"}, ["gb10_recipe.command[0]"]),
        (
            {"command": "vllm serve owner/unknown -tp 2 --gpu-memory-utilization 0.95"},
            ["gb10_recipe.command.--gpu-memory-utilization"],
        ),
        ({"command": "vllm serve openai/gpt-oss-20b -tp 2 --revision .."}, ["gb10_model"]),
        (
            {"command": 'vllm serve openai/gpt-oss-20b -tp 2 -sc \'{{"model": "a/b", "revision": "../x"}}\''},
            ["gb10_model"],
        ),
        ({"env": {"HF_TOKEN": "x"}}, ["gb10_recipe.env.HF_TOKEN"]),
        ({"command": "vllm serve openai/gpt-oss-20b; id"}, ["gb10_recipe.command, line 1"]),
        ({"container": "a b", "cluster_only": "yes"}, ["gb10_recipe.container", "gb10_recipe.cluster_only"]),
    ],
)
def test_a_problem_of_a_recipe_stops_the_plan(changes: dict[str, Any], paths: list[str]) -> None:
    plan, problems = cluster_plan(pair(), recipe={**RECIPE, **changes})
    assert (plan, [problem.path for problem in problems]) == ({}, paths)


def test_the_problems_of_recipe_and_inventory_are_reported_together() -> None:
    _plan, problems = cluster_plan(pair(gb10_api_port=7), recipe={**RECIPE, "command": "id"})
    assert [problem.path for problem in problems] == ["gb10_api_port", "gb10_recipe.command, line 1"]


def found_layer(name: str, problem: str = "", *packages: str) -> dict[str, Any]:
    """Return a result of the lookup image_layers."""
    return {
        "name": name,
        "folder": f"/srv/{name}",
        "digest": "1",
        "packages": list(packages),
        "network": False,
        "problem": problem,
    }


def test_the_layers_of_inventory_and_recipe_are_built_on_the_image() -> None:
    nodes = pair(gb10_image_layers=[{"path": "own"}])
    layers = [found_layer("own"), found_layer("x")]
    plan, problems = cluster_plan(nodes, recipe={**RECIPE, "mods": ["mods/x"]}, layers=layers)
    assert problems == []
    runtime = plan["runtime"]
    assert ([build["name"] for build in runtime["builds"]], runtime["base"]) == (["own", "x"], IMAGE)
    assert runtime["image"] == runtime["name"] == runtime["builds"][-1]["image"]


def test_a_layer_that_cannot_be_read_is_a_problem() -> None:
    layers = [found_layer("own", "no run.sh"), found_layer("x", "no folder")]
    nodes = pair(gb10_image_layers=[{"path": "own"}])
    _plan, problems = cluster_plan(nodes, recipe={**RECIPE, "mods": ["mods/x"]}, layers=layers)
    assert [problem.path for problem in problems] == ["gb10_image_layers[0]", "gb10_recipe.mods[0]"]


def test_layers_need_a_container() -> None:
    nodes = pair(gb10_image_layers=[{"path": "own"}], gb10_runtime="native")
    _plan, problems = cluster_plan(nodes, recipe=RECIPE, layers=[found_layer("own")])
    assert [problem.path for problem in problems] == ["gb10_image_layers"]


DRAFT = "z-lab/Qwen3.8-27B-DFlash2"
#: The arguments that NVIDIA prints for two Sparks. Source: NVIDIA/dgx-spark-playbooks,
#: nvidia/playbook-vllm-cluster/README.md, 2026-09-28.
PRINTED = [
    "--host 0.0.0.0",
    "--port 8000",
    "--trust-remote-code",
    "--kv-cache-dtype fp8",
    "--gpu-memory-utilization 0.7",
    "--max-model-len 262144",
    "--max-num-seqs 8",
    "--max-num-batched-tokens 16384",
    "--enable-chunked-prefill",
    "--async-scheduling",
    "--enable-prefix-caching",
    """--speculative-config '{"method":"dflash","model":"z-lab/Qwen3.8-27B-DFlash2","num_speculative_tokens":8,"draft_tensor_parallel_size":2}'""",
    "--load-format instanttensor",
    "--reasoning-parser qwen3",
    "--tool-call-parser qwen3_xml",
    "--enable-auto-tool-choice",
    "--tensor-parallel-size 2",
]


def test_the_draft_of_nvidias_example_is_stored_like_the_model() -> None:
    command = f"vllm serve nvidia/Qwen3.8-27B-NVFP4 -tp 2 {PRINTED[11]}".replace("{", "{{").replace("}", "}}")
    plan = planned(pair(), command=command)
    (draft,) = plan["drafts"]
    assert (draft["hub"], draft["revision"], draft["source"]) == (DRAFT, "50307d4c4cde6860d4eee73e2547cd786fe8e8a4", "")
    given = json.loads(plan["serve"]["args"][plan["serve"]["args"].index("--speculative-config") + 1])
    assert given["model"] == draft["folder"] == f"/opt/gb10/models/z-lab--Qwen3.8-27B-DFlash2/{draft['revision']}"
    assert any(line.startswith(f"the draft {DRAFT}: 3.8 GB on each rank") for line in plan["serve"]["why"])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_catalog_entry_of_nvidias_example_stores_its_draft(count: int) -> None:
    """The draft's tensor-parallel size, which NVIDIA sets for two nodes, is left to vLLM."""
    given = {"gb10_model": "qwen3.8-27b-nvfp4-dflash2", "gb10_fabric_topology": "switch" if count > 2 else "auto"}
    nodes = [spark(number, "worker" if number > 1 else "head", **given) for number in range(1, count + 1)]
    plan, problems = cluster_plan(nodes)
    assert problems == []
    (draft,) = plan["drafts"]
    assert draft["hub"] == DRAFT
    settings = json.loads(plan["serve"]["args"][plan["serve"]["args"].index("--speculative-config") + 1])
    assert settings == {"method": "dflash", "model": draft["folder"], "num_speculative_tokens": 8}
    assert (plan["tensor_parallel_size"], plan["store"]["hub"]) == (count, "nvidia/Qwen3.8-27B-NVFP4")


def test_the_users_draft_is_stored_too() -> None:
    given = ["--speculative-config", '{"method": "draft_model", "model": "owner/draft"}']
    plan = planned(pair(gb10_vllm_extra_args=given))
    assert [draft["hub"] for draft in plan["drafts"]] == ["owner/draft"]
    assert json.loads(plan["serve"]["user_args"][1])["model"] == "/opt/gb10/models/owner--draft/main"


def test_without_the_store_the_draft_keeps_its_name() -> None:
    given = ["--speculative-config", '{"model":"owner/draft"}']
    nodes = pair(gb10_vllm_extra_args=given)
    for node in nodes:
        node["settings"]["model_store_enabled"] = False
    plan = planned(nodes)
    assert (plan["drafts"], plan["serve"]["user_args"]) == ([], given)


def test_the_arguments_of_nvidias_example_for_two_sparks() -> None:
    command = " \\\n  ".join(["vllm serve nvidia/Qwen3.8-27B-NVFP4", *PRINTED]).replace("{", "{{").replace("}", "}}")
    plan = planned(pair(), command=command, env={}, defaults={})
    printed = [shlex.split(line) for line in PRINTED]
    argv = launch_argv.vllm_argv(typed({**plan, "node": plan["nodes"][0]}))
    assert plan["served_model_name"] == "nvidia/Qwen3.8-27B-NVFP4"
    flat = [word for words in argv for word in (words.split("=", 1) if words.startswith("--") else [words])]
    # The draft's folder stands for its name.
    flat = [word.replace(plan["drafts"][0]["folder"], DRAFT) for word in flat]
    missing = [words for words in printed if not any(flat[at : at + len(words)] == words for at in range(len(flat)))]
    # The port, the host and the parallel size are equal. The plan replaces the share of the memory if it knows the
    # model.
    explained = [
        line.partition(" is replaced: ")[0].split() for line in [*plan["serve"]["recipe"], *plan["serve"]["why"]]
    ]
    assert [words for words in missing if words not in explained] == []
    known = {words[0] for words in printed}
    own = {"--served-model-name", "--pipeline-parallel-size", "--distributed-executor-backend", "--middleware"}
    own |= {"--nnodes", "--node-rank", "--master-addr", "--master-port", "--kv-cache-memory-bytes"}
    assert {word for word in flat if word.startswith("--")} <= known | own
