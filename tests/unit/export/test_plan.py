"""A pod runs what the unit of its node runs: argv, environment, folders, user and image."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from exports import (
    IMAGE,
    ODD,
    OWNER,
    PLANS,
    SETTINGS,
    expanded,
    exported,
    of_kind,
    rank,
    started,
    templates,
    unit,
    variables,
)
from typed_plans import typed_node

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.export import schema
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides

RANKS = [(name, node["name"]) for name, plan in PLANS.items() for node in plan["nodes"]]
#: Variables that a pod has and a unit's container does not have.
ADDED = {"GB10_NODE", "NVIDIA_MOFED"}
SOME = ("pair", "tls", "one", "four with secrets", "no key")


def node_of(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    return next(node for node in plan["nodes"] if node["name"] == name)


@pytest.mark.parametrize(("name", "host"), RANKS)
def test_a_pod_runs_the_argv_of_the_unit_with_its_environment(name: str, host: str, tmp_path: Path) -> None:
    plan = PLANS[name]
    node = node_of(plan, host)
    argv, environment = started(exported(plan), host, tmp_path)
    expected = unit(plan, node)
    assert argv == expected.argv
    # What the gates read: cluster.env, secret.env and api.env.
    given = {**overrides.rank_environment(typed_node(node)), "VLLM_HOST_IP": node["address"]}
    given |= {secret: f"{secret} of gb10-vllm-environment" for secret in node["secrets"]}
    if node["head"] and plan["api_key"]:
        given |= api_access.environment("VLLM_API_KEY of gb10-vllm-api", given)
    assert {key: value for key, value in environment.items() if key not in ADDED} == expected.environment(given)
    assert environment["GB10_NODE"] == host


@pytest.mark.parametrize(("name", "host"), RANKS)
def test_a_pod_has_the_folders_user_and_image_of_the_unit(name: str, host: str) -> None:
    plan = PLANS[name]
    expected, spec = unit(plan, node_of(plan, host)), templates(exported(plan))[host]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {
        mount["mountPath"]: (volumes[mount["name"]], mount.get("readOnly", False))
        for mount in rank({"spec": spec})["volumeMounts"]
    }
    for target, (source, read_only) in expected.mounts.items():
        volume, found = mounts.pop(target)
        assert found is read_only
        if "hostPath" in volume:
            assert volume["hostPath"] == {"path": source, "type": "Directory"}
        else:
            assert target in (api_access.GUARD_FOLDER, api_access.CONFIG_FOLDER, "/run/gb10-vllm")
    assert set(mounts) - {"/dev/infiniband"} == {schema.FOLDER, "/dev/shm"}
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == tuple(
        map(int, OWNER.split(":"))
    )
    assert rank({"spec": spec})["image"] == plan["runtime"]["image"]
    assert rank({"spec": spec})["workingDir"] == expected.value("--workdir")


def test_the_values_of_the_test_would_be_replaced() -> None:
    value = ODD["gb10_extra_env"]["ODD"]
    assert expanded(value, {"HOME": "/x"}) == "/x $ ${HOME} $x" != value


@pytest.mark.parametrize("name", PLANS)
def test_a_pod_has_no_privileges(name: str) -> None:
    for template in templates(exported(PLANS[name])).values():
        spec = template["spec"]
        assert {"hostPID", "hostIPC", "shareProcessNamespace", "serviceAccountName"} & spec.keys() == set()
        assert (spec["automountServiceAccountToken"], spec["hostNetwork"], spec["enableServiceLinks"]) == (
            False,
            True,
            False,
        )
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in (*spec["initContainers"], *spec["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.parametrize("name", PLANS)
def test_each_node_has_one_pod(name: str) -> None:
    plan, objects = PLANS[name], exported(PLANS[name])
    group = of_kind(objects, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    assert list(templates(objects)) == [node["name"] for node in plan["nodes"]]
    assert (group["size"], group["restartPolicy"]) == (len(plan["nodes"]), "RecreateGroupOnPodRestart")
    assert ("leaderTemplate" in group) is (group["size"] > 1)
    several = templates(objects)[plan["nodes"][-1]["name"]]["spec"]["affinity"].get("podAntiAffinity")
    assert (several is not None) is (group["size"] > 2)


def test_the_bytes_of_the_kv_cache_and_the_planned_memory() -> None:
    serve = PLANS["catalog"]["serve"]
    leader = rank(templates(exported(PLANS["catalog"]))["spark1"])
    (kv_bytes,) = (word for word in serve["args"] if word.startswith("--kv-cache-memory-bytes="))
    assert kv_bytes in leader["args"]
    assert leader["resources"] == {
        "limits": {"nvidia.com/gpu": "1"},
        "requests": {"memory": str(serve["needs"]["spark1"])},
    }


def rdma(name: str, **settings: Any) -> tuple[bool, bool, Any, bool]:
    """Return whether /dev/infiniband is mounted and NVIDIA's runtime opens it, the resource, and whether the gates look
    at it."""
    objects = exported(PLANS[name], **settings)
    template = templates(objects)["spark1"]
    gates = json.loads(of_kind(objects, "ConfigMap")["data"]["spark1.json"])["gates"]
    found = {
        (
            variables(each, "x").get("NVIDIA_MOFED"),
            "/dev/infiniband" in {mount["mountPath"] for mount in each["volumeMounts"]},
            each["resources"]["limits"].get("rdma/hca"),
        )
        for each in (*template["spec"]["initContainers"], rank(template))
    }
    ((opened, mounted, resource),) = found
    return mounted, opened == "enabled", resource, gates["rdma"]


def test_rdma_devices() -> None:
    assert rdma("pair") == (True, True, None, True)
    assert rdma("pair", rdma_resource="rdma/hca") == (False, False, "1", True)
    assert rdma("one") == rdma("sockets") == (False, False, None, False)


def test_the_entry_point_of_an_image_of_nvidia_stays() -> None:
    for name in ("image of NVIDIA", "four with an image of NVIDIA"):
        for template in templates(exported(PLANS[name])).values():
            assert [each.get("command") for each in (*template["spec"]["initContainers"], rank(template))] == [
                None,
                None,
            ]
    assert rank(templates(exported(PLANS["image of NVIDIA"]))["spark1"])["args"][:2] == ["vllm", "serve"]
    assert rank(templates(exported(PLANS["pair"]))["spark1"])["command"] == ["vllm"]
    assert "command" not in rank(templates(exported(PLANS["pair"], entrypoint="keep"))["spark1"])
    assert rank(templates(exported(PLANS["image of NVIDIA"], entrypoint="replace"))["spark1"])["command"] == ["vllm"]


def test_only_the_leader_has_the_api_and_its_key_and_only_its_rank() -> None:
    objects = exported(PLANS["tls"])
    leader, worker = (templates(objects)[host]["spec"] for host in ("spark1", "spark2"))
    secret = [entry["name"] for entry in rank({"spec": leader})["env"] if "secretKeyRef" in entry.get("valueFrom", {})]
    assert secret == ["HF_TOKEN", "VLLM_API_KEY"]
    assert [
        entry["name"] for entry in rank({"spec": worker})["env"] if "secretKeyRef" in entry.get("valueFrom", {})
    ] == ["HF_TOKEN"]
    for spec in (leader, worker):
        assert "secret" not in json.dumps(spec["initContainers"]).lower()
    serving = {"startupProbe", "readinessProbe", "livenessProbe", "ports"}
    assert (serving & rank({"spec": leader}).keys(), serving & rank({"spec": worker}).keys()) == (serving, set())
    (volume,) = (volume["secret"] for volume in leader["volumes"] if "secret" in volume)
    assert (volume["secretName"], volume["defaultMode"], leader["securityContext"]["fsGroup"]) == (
        "gb10-vllm-tls",
        0o440,
        994,
    )
    assert {item["key"]: item["path"] for item in volume["items"]} == {
        "tls.crt": "api.cert",
        "tls.key": "api.key",
        "ca.crt": "ca.crt",
    }
    assert not [volume for volume in worker["volumes"] if "secret" in volume]


@pytest.mark.parametrize("name", SOME)
def test_every_probe_requests_a_token(name: str) -> None:
    plan = PLANS[name]
    leader = rank(templates(exported(plan))["spark1"])
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        command = leader[kind]["exec"]["command"]
        assert command[:4] == ["python3", "-I", "-B", f"{schema.FOLDER}/probe.py"]
        assert f"--url={plan['api']['url']}" in command
        assert (f"--server-name={plan['api']['server_name']}" in command) is bool(plan["api_tls"])
        seconds = next(float(word.partition("=")[2]) for word in command if word.startswith("--seconds="))
        # Kubernetes kills a probe that takes longer; two requests for metrics may take 5 s each.
        assert seconds + 10 <= leader[kind]["timeoutSeconds"]
    assert "--progress" not in leader["startupProbe"]["exec"]["command"]
    assert "--progress" in leader["livenessProbe"]["exec"]["command"]
    assert (
        leader["startupProbe"]["periodSeconds"] * leader["startupProbe"]["failureThreshold"]
        == SETTINGS["start_seconds"]
    )


def test_the_service_leads_to_the_leader() -> None:
    for name, scheme in (("pair", "http"), ("tls", "https")):
        service = of_kind(exported(PLANS[name]), "Service")
        assert service["spec"] == {
            "selector": {
                "leaderworkerset.sigs.k8s.io/name": "gb10-vllm",
                "leaderworkerset.sigs.k8s.io/worker-index": "0",
            },
            "ports": [{"name": scheme, "port": 8000, "targetPort": 8000, "protocol": "TCP"}],
        }
    # Other hosts cannot reach loopback.
    assert [each["kind"] for each in exported(PLANS["no key"])] == ["ConfigMap", "LeaderWorkerSet"]


def test_names_namespace_and_nodes() -> None:
    objects = exported(
        PLANS["four"], name="big", namespace="llm", nodes={"spark1": "dgx-1", "spark3": "dgx-3.lab"}, runtime_class=""
    )
    assert [each["metadata"]["name"] for each in objects] == ["big-files", "big-api", "big"]
    assert {each["metadata"]["namespace"] for each in objects} == {"llm"}
    assert list(templates(objects)) == ["dgx-1", "spark2", "dgx-3.lab", "spark4"]
    assert {"dgx-1.json", "spark2.json", "dgx-3.lab.json", "spark4.json"} <= of_kind(objects, "ConfigMap")[
        "data"
    ].keys()
    assert "runtimeClassName" not in templates(objects)["dgx-1"]["spec"]


def test_without_a_gpu() -> None:
    plan = {**PLANS["pair"], "stack": {**PLANS["pair"]["stack"], "device": "cpu"}}
    spec = templates(exported(plan))["spark1"]["spec"]
    assert ("runtimeClassName" in spec, rank({"spec": spec})["resources"]) == (False, {})


def test_changed_files_restart_the_pods() -> None:
    plan = copy.deepcopy(PLANS["four"])
    before = templates(exported(plan))["spark2"]["metadata"]["annotations"]
    plan["nodes"][3]["address"] = "10.110.0.9"
    assert templates(exported(plan))["spark2"]["metadata"]["annotations"] != before
    assert templates(exported(PLANS["four"]))["spark2"]["metadata"]["annotations"] == before


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_is_not_changed(name: str) -> None:
    before = copy.deepcopy(PLANS[name])
    exported(PLANS[name])
    assert PLANS[name] == before


def test_an_image_that_a_role_recorded_is_not_used() -> None:
    """Its ID is the engine's own; Kubernetes pulls by the digest in the plan."""
    assert unit(PLANS["overrides"], PLANS["overrides"]["nodes"][0]).words.count("9" * 64) == 1
    assert rank(templates(exported(PLANS["overrides"]))["spark1"])["image"] == IMAGE
