"""Plans and settings that cannot be exported, each with its place, the expected value and the fix."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from exports import OWNER, PLANS, nodes, planned, settings
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.action.lws_export import exported
from ansible_collections.gb10.cluster.plugins.module_utils.export import checks, report

PAIR = PLANS["pair"]


def refused(plan: dict[str, Any], **changes: Any) -> dict[str, str]:
    """Return the problems by their place."""
    found = checks.problems(typed(plan), settings(**changes))
    assert all(problem.expected and problem.fix for problem in found)
    return {problem.path: str(problem) for problem in found}


@pytest.mark.parametrize("name", PLANS)
def test_the_plans_of_the_other_tests_are_accepted(name: str) -> None:
    assert refused(PLANS[name]) == {}


def test_a_native_plan_is_refused() -> None:
    found = refused(planned(nodes(2, gb10_runtime="native")))
    assert list(found) == ["gb10_runtime"]
    assert "native: a Python environment on each node. Expected: container" in found["gb10_runtime"]
    assert found["gb10_runtime"].endswith("Fix: set gb10_runtime: container, and gb10_container_image.")


def test_a_plan_for_ray_is_refused() -> None:
    found = refused({**PAIR, "executor": "ray"})
    assert list(found) == ["gb10_distributed_executor_backend"]
    assert "ray. Expected: mp" in found["gb10_distributed_executor_backend"]


@pytest.mark.parametrize("image", ["nvcr.io/nvidia/vllm:26.04-py3", "sha256:" + "1" * 64])
def test_an_image_that_kubernetes_cannot_pull_by_digest_is_refused(image: str) -> None:
    found = refused(planned(nodes(2, gb10_container_image=image)))
    assert list(found) == ["gb10_container_image"]
    assert repr(image) in found["gb10_container_image"] and "RepoDigests" in found["gb10_container_image"]


def test_options_of_the_engine_are_refused() -> None:
    found = refused(planned(nodes(2, gb10_container_args=["--shm-size=1g", "--env=A=1"])))
    assert list(found) == ["gb10_container_args[0]", "gb10_container_args[1]"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", ""),
        ("name", "1st"),
        ("name", "a" * 41),
        ("name", "Vllm"),
        ("name", "a-"),
        ("name", "a\nb"),
        ("namespace", "a.b"),
        ("namespace", "a" * 64),
        ("runtime_class", "a b"),
        ("rdma_resource", "hca"),
        ("rdma_resource", "rdma/"),
        ("start_seconds", 0),
    ],
)
def test_a_bad_setting_is_refused(name: str, value: Any) -> None:
    assert list(refused(PAIR, **{name: value})) == [f"export_{name}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("namespace", "llm"), ("runtime_class", "nvidia-cdi"), ("rdma_resource", "rdma/hca_shared_devices_a")],
)
def test_a_good_setting_is_accepted(name: str, value: str) -> None:
    assert refused(PAIR, **{name: value}) == {}


def test_nodes_of_kubernetes() -> None:
    assert (
        "Expected: a node of the inventory: spark1, spark2"
        in refused(PAIR, nodes={"spark9": "x"})["export_nodes.spark9"]
    )
    assert list(refused(PAIR, nodes={"spark1": "Dgx_1"})) == ["export_nodes.spark1"]
    assert list(refused(PAIR, nodes={"spark1": "spark2"})) == ["export_nodes.spark1", "export_nodes.spark2"]


def test_workers_that_one_template_cannot_express_are_refused() -> None:
    plan = copy.deepcopy(PLANS["four"])
    plan["nodes"][2]["state"]["service_user"] = "996:994"
    mount = {"source": "/opt/gb10/nccl/x", "target": "/opt/gb10/nccl/x", "read_only": True}
    plan["nodes"][3]["additions"] = {
        "nccl_sm121_build": {"environment": {}, "flags": [], "files": {}, "mounts": [mount]}
    }
    found = refused(plan)
    assert list(found) == ["nodes[2].state.service_user", "nodes[3].additions"]
    assert f"996:994 on spark3. Expected: {OWNER}, as on spark2" in found["nodes[2].state.service_user"]
    # The head has its own template.
    plan = copy.deepcopy(PLANS["pair"])
    plan["nodes"][0]["state"]["service_user"] = "1:1"
    assert refused(plan) == {}


def test_lines_name_objects_secrets_and_warnings() -> None:
    _text, lines = exported(typed(PLANS["tls"]), settings())
    assert lines[:3] == ["ConfigMap gb10-vllm-files", "Service gb10-vllm-api", "LeaderWorkerSet gb10-vllm"]
    assert lines[3:6] == [
        "needs the Secret gb10-vllm-api with VLLM_API_KEY (docs/kubernetes.md)",
        "needs the Secret gb10-vllm-tls with tls.crt, tls.key, ca.crt (docs/kubernetes.md)",
        "needs the Secret gb10-vllm-environment with HF_TOKEN (docs/kubernetes.md)",
    ]
    assert lines[6:] == ["warning: the plan has no --kv-cache-memory-bytes, and nothing limits the memory on a node"]
    assert not [line for line in report.lines(typed(PLANS["catalog"]), settings(), []) if line.startswith("warning")]
    assert (
        report.lines(typed(PLANS["no key"]), settings(), [])[0]
        == "warning: no Service, because the API listens on 127.0.0.1 only (gb10_api_host)"
    )


def test_nodes_that_are_not_set_up_are_a_warning() -> None:
    plan = copy.deepcopy(PAIR)
    plan["nodes"][1]["state"]["service_user"] = ""
    found = [line for line in report.lines(typed(plan), settings(), []) if "spark2" in line]
    assert found == ["warning: the pods wait on spark2 until site.yml has created gb10 there; then export again"]
