"""Recipes of NVIDIA's catalog: written here, in its schemas."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import yaml
from nvidia_recipe import EXPORTS, SERVE, WORKER, recipe

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.apply import use
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.parse import parse
from ansible_collections.gb10.cluster.plugins.plugin_utils import recipe_yaml


def planned(data: dict[str, Any], nodes: int = 2, **images: str) -> tuple[Any, list[Problem]]:
    found, problems = parse(data)
    assert found and problems == []
    return use(found, (), nodes, images)


def test_both_ranks_of_a_recipe_become_one_plan() -> None:
    plan, problems = planned(recipe())
    assert problems == []
    assert plan.args == (
        "--max-model-len",
        "auto",
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 2}',
    )
    assert plan.environment == {
        "NCCL_IGNORE_CPU_AFFINITY": "1",
        "VLLM_FLOAT32_MATMUL_PRECISION": "high",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "B12X_MOE_FORCE_A8": "1",
    }
    assert plan.settings == {
        "gb10_model": "owner/small-nvfp4",
        "gb10_served_model_name": "owner/small-nvfp4",
        "gb10_distributed_executor_backend": "mp",
        "gb10_runtime": "container",
        "gb10_container_image": "owner/vllm:nightly",
        "gb10_tensor_parallel_size": "2",
        "gb10_max_model_len": 0,
    }
    assert "NCCL_SOCKET_IFNAME=$ETH_IF is replaced: the plan sets the network of each node" in plan.about
    assert len([line for line in plan.about if "joins the ranks over the fabric" in line]) == 4


MEASURED = """\
schema_version: 1
recipe_sha256: {digest}
measured_at: 2026-09-03
harness: {{name: aiperf, version: 0.12.0}}
system: {{driver_version: 580.159.03}}
software: {{backend_version: 0.28.0, model_revision: {model}, runtime_revision: "{image}"}}
profiles:
- workload: {{dataset: a/Bench, profile: p_8k, input_tokens: 8192, output_tokens: 256, concurrency: 1}}
  results: {{decode_tokens_per_second_mean: 40.65, prefill_tokens_per_second_mean: "2`id`"}}
"""
REVISION, DIGEST = "7" * 40, f"sha256:{'1' * 64}"


def with_measurements(
    digest: str = "", model: str = REVISION, image: str = DIGEST, **images: str
) -> tuple[Any, list[Problem]]:
    """Return the plan of a recipe's text with a license, next to a file with measurements."""
    text = yaml.safe_dump(recipe(), sort_keys=False)
    measured = MEASURED.format(digest=digest or hashlib.sha256(text.encode()).hexdigest(), model=model, image=image)
    # Ansible's lookup strips the end of a file.
    source = {
        "name": "x",
        "path": "/x",
        "problem": "",
        "others": "owner/small/fp8",
        "text": f"# License: none\n\n{text}".rstrip(),
        "measured": measured,
    }
    data, problems = recipe_yaml.document(source)
    assert problems == []
    return planned(data, **images)


def test_the_matching_measurements_pin_image_and_revision() -> None:
    plan, problems = with_measurements()
    assert problems == []
    # The map has the name of the recipe, without the digest.
    assert with_measurements(**{"owner/vllm:nightly": "native"})[0].settings["gb10_runtime"] == "native"
    assert (plan.revision, plan.settings["gb10_container_image"]) == (REVISION, f"owner/vllm:nightly@{DIGEST}")
    assert plan.about[1] == (
        "NVIDIA measured 40.65 tokens/s of decode and ? of prefill: a/Bench p_8k, 8192 tokens in and 256 out, 1 at a "
        "time; aiperf 0.12.0, driver 580.159.03, 2026-09-03"
    )
    (measured,) = plan.measured
    assert (measured.input_tokens, measured.output_tokens, measured.concurrency) == (8192, 256, 1)
    assert (measured.decode, measured.prefill, measured.vllm) == (40.65, 0, "0.28.0")
    assert (measured.revision, measured.image) == (REVISION, DIGEST)


@pytest.mark.parametrize(
    ("measured", "revision", "image"),
    [
        ({"digest": "0" * 64}, "", "owner/vllm:nightly"),
        ({"model": "main"}, "", f"owner/vllm:nightly@{DIGEST}"),
        ({"image": "sha256:1"}, REVISION, "owner/vllm:nightly"),
    ],
    ids=["another recipe", "a branch", "no digest"],
)
def test_other_measurements_pin_nothing(measured: dict[str, str], revision: str, image: str) -> None:
    plan, _problems = with_measurements(**measured)
    assert (plan.revision, plan.settings["gb10_container_image"]) == (revision, image)
    assert ("of another version of this recipe" in plan.about[1]) is ("digest" in measured)
    assert plan.about[2] == "NVIDIA has figures of older recipes of this model: nvidia:owner/small/fp8"


def test_a_recipe_for_one_spark_has_one_command() -> None:
    one = recipe(
        schema_version=4, hardware="dgx-spark", topology__node_count=1, serve={"command": "vllm serve owner/small"}
    )
    assert planned(one, 1)[0].settings["gb10_model"] == "owner/small"
    (problem,) = planned(one)[1]
    assert problem.path == "gb10_recipe.solo_only"


def test_variables_of_the_command_alone_are_exports() -> None:
    given = {
        "serve": {"command": "VLLM_USE_AOT_COMPILE=1 NCCL_DEBUG='a b' vllm serve owner/small"},
        "topology__node_count": 1,
    }
    plan, _problems = planned(recipe(**given), 1)
    assert plan.settings["gb10_model"] == "owner/small"
    assert (plan.environment["VLLM_USE_AOT_COMPILE"], plan.environment["NCCL_DEBUG"]) == ("1", "a b")


def test_another_image_in_the_command_is_reported() -> None:
    line = "runtime.setup_command starts another image: owner/vllm:new, the runtime.image, is used"
    assert line in planned(recipe(runtime__image="owner/vllm:new"))[0].about
    assert not any("another image" in each for each in planned(recipe())[0].about)


REFUSED = {
    "another schema": ({"schema_version": 5}, ["gb10_recipe.schema_version: 5. Expected: 3 or 4"]),
    "another machine and program": (
        {"hardware": "rtx-pro", "backend": "llama-cpp"},
        ["gb10_recipe.backend: 'llama-cpp'", "gb10_recipe.hardware: 'rtx-pro'"],
    ),
    "no container": (
        {"runtime": {}},
        ["gb10_recipe.runtime.kind", "gb10_recipe.runtime.image", "gb10_recipe.runtime.setup"],
    ),
    "an option as image": ({"runtime__image": "--privileged"}, ["gb10_recipe.runtime.image: '--privileged'"]),
    "three nodes": ({"topology__node_count": 3}, ["gb10_recipe.topology.node_count: 3. Expected: 1, 2 or 4"]),
    "a worker as text": ({"serve__additional_commands": "x"}, ["gb10_recipe.serve.additional_commands"]),
    "a second command": (
        {"serve__command": EXPORTS + SERVE + "; id"},
        ["gb10_recipe.serve.command, line 13: ;: more than one command"],
    ),
    "a variable of a shell": (
        {"serve__command": EXPORTS + "export VLLM_X=$(id)\n" + SERVE},
        ["gb10_recipe.serve.command, line 4: $ starts a variable"],
    ),
    "an export of the head's address": (
        {"serve__command": "export VLLM_X=$HEAD_IP\n" + SERVE},
        ["gb10_recipe.serve.command, line 1: VLLM_X=$HEAD_IP"],
    ),
    "an export without a value": (
        {"serve__command": "export VLLM_X\n" + SERVE},
        ["gb10_recipe.serve.command, line 1: an export without a value"],
    ),
    "another program": ({"serve__command": "bash x"}, ["gb10_recipe.serve.command, line 1: it runs bash x"]),
    "the head's address in a variable": (
        {"serve__command": "VLLM_X=$HEAD_IP vllm serve a/b"},
        ["gb10_recipe.serve.command, line 1: it runs VLLM_X"],
    ),
    "no model": ({"serve__command": "vllm serve --port 1"}, ["gb10_recipe.serve.command, line 1: it runs vllm serve"]),
    "the head's address elsewhere": (
        {"serve__command": EXPORTS + SERVE + " --api-key $HEAD_IP"},
        ["gb10_recipe.serve.command, line 4: --api-key $HEAD_IP"],
    ),
    "the head's address in a word": (
        {"serve__command": EXPORTS + SERVE + " --api-key=$HEAD_IP"},
        ["gb10_recipe.serve.command, line 4: --api-key=$HEAD_IP"],
    ),
    "a line break in a value": (
        {"serve__command": EXPORTS + SERVE + " --chat-template 'a\nb'"},
        ["gb10_recipe.serve.command, line 4: a line break"],
    ),
    "a title with a line break": ({"title": "a\nwarning: b"}, ["gb10_recipe.title: "]),
    "a model above the folder": (
        {"serve__command": "vllm serve ../x", "serve__additional_commands": []},
        ["gb10_recipe.serve.command: the model '../x'"],
    ),
    "a variable without a value": (
        {"runtime__setup_command": "docker run -e VLLM_X x"},
        ["gb10_recipe.runtime.setup_command, line 1: VLLM_X"],
    ),
    "another form of a variable": (
        {"runtime__setup_command": "docker run --env=VLLM_X=1 x"},
        ["gb10_recipe.runtime.setup_command, line 1: --env=VLLM_X=1"],
    ),
    "a worker with other arguments": (
        {"serve__additional_commands": [{"command": WORKER.replace("-size 2", "-size 4")}]},
        ["gb10_recipe.serve.additional_commands[0].command: other arguments"],
    ),
    "a worker with other variables": (
        {"serve__additional_commands": [{"command": WORKER.replace("A8=1", "A8=0")}]},
        ["gb10_recipe.serve.additional_commands[0].command: other arguments"],
    ),
    "no docker run": (
        {"runtime__setup_command": "podman run x"},
        ["gb10_recipe.runtime.setup_command, line 1: no docker"],
    ),
    "a value of the terminal": (
        {"runtime__setup_command": "docker run -e VLLM_X=$HOME x"},
        ["gb10_recipe.runtime.setup_command, line 1: VLLM_X=$HOME"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), REFUSED.values(), ids=REFUSED)
def test_another_recipe_is_refused_with_its_key(changes: dict[str, Any], expected: list[str]) -> None:
    found, problems = parse(recipe(**changes))
    assert found is None
    assert [str(problem)[: len(text)] for problem, text in zip(problems, expected, strict=True)] == expected


def test_a_variable_that_reaches_files_is_refused_as_in_other_recipes() -> None:
    command = "export VLLM_PLUGINS=x\n" + SERVE
    given = recipe(serve__command=command, serve__additional_commands=[])
    given["runtime"]["setup_command"] = given["runtime"]["setup_command"].replace("HF_TOKEN=$HF_TOKEN", "LD_PRELOAD=x")
    assert [problem.path for problem in planned(given)[1]] == [
        "gb10_recipe.runtime.setup_command.LD_PRELOAD",
        "gb10_recipe.serve.command.VLLM_PLUGINS",
    ]
