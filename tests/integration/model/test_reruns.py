"""site.yml again, in part, in check mode, and with mistakes in the inventory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import certificates
import pytest
import yaml
from live_cluster import NO_SSH, Cluster, copied, extra, running
from repository import ROOT
from run_playbook import Run
from testinfra.host import Host


def test_check_mode_sees_no_change(cluster: Cluster) -> None:
    cluster.site("--check", "--diff").assert_unchanged()


@pytest.mark.parametrize(
    "role", ["qsfp_netplan", "vllm_runtime", "vllm_patch", "ray_cluster", "vllm_serve", "vllm_watchdog"]
)
def test_a_role_alone_changes_nothing(alone: Callable[[str], Run], role: str) -> None:
    output = alone(role).assert_unchanged().output
    # Ansible validates the arguments of every role, regardless of the tags.
    tasks = [
        line
        for line in output.splitlines()
        if line.startswith("TASK [gb10.cluster.") and "Validating arguments" not in line
    ]
    # vllm_serve compares golden answers after a start, and verifies which NCCL the ranks use.
    included, verified = ({"common", "golden"}, {"nccl_sm121_build"}) if role == "vllm_serve" else ({"common"}, set())
    assert {line.removeprefix("TASK [gb10.cluster.").split(" :")[0] for line in tasks} - included == {
        "gb10",
        role,
        *verified,
    }


def test_limit_is_refused(cluster: Cluster) -> None:
    worker = cluster.groups["worker"][0]
    cluster.site("--limit", f"localhost,{worker}").assert_failed(cluster.groups["head"][0], "--tags")


def test_an_inventory_without_nodes_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yml"
    empty.write_text("all: {}\n", encoding="utf-8")
    alone = Cluster(groups={}, nodes={}, arguments=["--inventory", str(empty)])
    alone.site().assert_failed("no host in the group gb10_cluster")


def spoilt(cluster: Cluster, folder: Path, inventory: dict[str, Any], *arguments: str) -> str:
    """Run site.yml with an inventory on top of the cluster's, and assert that it fails before any change.

    Returns its message.
    """
    file = folder / "spoilt.yml"
    # Every node by name, in the cluster's order: the first inventory with a host decides its position.
    hosts: dict[str, Any] = {name: {} for name in cluster.nodes} | inventory.get("hosts", {})
    file.write_text(yaml.safe_dump({"gb10_cluster": inventory | {"hosts": hosts}}, sort_keys=False), encoding="utf-8")
    # The lab's own inventory must come last.
    with_file = replace(cluster, arguments=["--inventory", str(file), *cluster.arguments])
    run = with_file.site(*arguments).assert_failed("nothing was changed")
    assert set(run.changed.values()) == {0}, run.output
    return run.output.replace("\\n", "\n").replace('\\"', '"')


def host(name: str, **variables: Any) -> dict[str, Any]:
    return {"hosts": {name: variables}}


def test_an_unreachable_worker_is_named(cluster: Cluster, tmp_path: Path) -> None:
    said = spoilt(cluster, tmp_path, host("spark2", **NO_SSH))
    assert f"nodes[1]: spark2 ({cluster.nodes['spark2']['ansible_host']}) cannot be read" in said


def test_all_mistakes_are_listed_together(cluster: Cluster, tmp_path: Path) -> None:
    inventory = {
        "children": {"head": host("spark2")},
        "hosts": {"spark2": {"gb10_fabric_addresses": ["10.110.0.1/24", "10.112.1.2/24"], "ray_cluster_arg": []}},
    }
    environment = {"VLLM_ATTENTION_BACKEND": "X", "HF_TOKEN": "x", "RAY_AUTH_MODE": "disabled"}
    parallel = {
        "gb10_tensor_parallel_size": 4,
        "gb10_vllm_extra_args": ["--swap-space", "4"],
        "gb10_extra_env": environment,
    }
    variables = extra(gb10_fabric_mtu=70000, gb10_model="/srv/models/absent", gb10_api_port=6381, **parallel)
    ca = certificates.authority()
    certificate, _key = ca.issue("spark.example.com", days=-0.5).write(tmp_path, "api")
    said = spoilt(
        cluster,
        tmp_path,
        inventory,
        *variables,
        *extra(gb10_api_tls_certificate=certificate, gb10_api_tls_key=ca.key_text),
    )
    for words in (
        "gb10_api_tls_certificate: it expired on",
        "gb10_api_tls_certificate: it does not cover",
        "2 heads",
        "ray_cluster_arg, set for spark2",
        "gb10_fabric_mtu: 70000",
        "tensor 4 x pipeline 1",
        "/srv/models/absent/config.json is missing on spark1",
        "/srv/models/absent/config.json is missing on spark2",
        "10.110.0.1 of spark2 is also",
        "10.112.1.2/24 of spark2 is outside",
        "6381 is also Ray's object-manager-port",
        "gb10_vllm_extra_args[0]: --swap-space",
        "gb10_extra_env.VLLM_ATTENTION_BACKEND",
        "gb10_extra_env.HF_TOKEN",
        "gb10_extra_env.RAY_AUTH_MODE",
        "gb10_api_tls_key: it is the key of another certificate",
        "rename it to ray_cluster_args",
    ):
        assert words in said


@pytest.mark.slow
def test_a_missing_head_is_named(cluster: Cluster, tmp_path: Path) -> None:
    # The groups differ from the lab's inventory, so only its overlay is used.
    inventory = tmp_path / "headless.yml"
    workers: dict[str, Any] = {"hosts": {name: {} for name in cluster.nodes}}
    inventory.write_text(yaml.safe_dump({"gb10_cluster": {"children": {"worker": workers}}}), encoding="utf-8")
    arguments = [str(inventory) if word.endswith("inventories/lab") else word for word in cluster.arguments]
    overlay = str(ROOT / "inventories" / "lab" / "hosts_overlay.yml")
    run = replace(cluster, arguments=[*arguments, "--inventory", overlay]).site()
    run.assert_failed("groups.head: no host is in the group head")
    assert set(run.changed.values()) == {0}


@pytest.mark.slow
def test_an_interface_that_is_not_there_is_named(cluster: Cluster, nodes: dict[str, Host], tmp_path: Path) -> None:
    worker = nodes["spark2"]
    # Up, so that the head's end of the cable keeps its carrier.
    worker.check_output("ip link set enp1s0f0np0 down && ip link set enp1s0f0np0 name hidden && ip link set hidden up")
    try:
        said = spoilt(cluster, tmp_path, {}, *extra(gb10_fabric_ports=[0]))
    finally:
        worker.check_output(
            "ip link set hidden down && ip link set hidden name enp1s0f0np0 && ip link set enp1s0f0np0 up"
        )
    assert "nodes[1].ports[0]: spark2 has no interface enp1s0f0np0 for QSFP port 0" in said
    assert "nodes[0].ports[0]" not in said


@pytest.mark.slow
def test_a_port_without_rdma_is_named(cluster: Cluster, tmp_path: Path) -> None:
    said = spoilt(cluster, tmp_path, {}, *extra(gb10_fabric_rdma_required=True))
    for number in (1, 2):
        assert (
            f"nodes[{number - 1}].ports[0]: enp1s0f1np1 of spark{number} has no RDMA device. Expected: one, "
            "such as rocep1s0f1."
        ) in said


@pytest.mark.slow
def test_two_runs_at_once(cluster: Cluster, head: Host) -> None:
    with running(cluster.site, head) as first:
        second = cluster.site("--tags", "vllm_serve")
        shown = cluster.play("status").assert_unchanged().output
    second.assert_failed("the cluster is locked: ", " runs site.yml (process ")
    assert "locked: " in shown
    first[0].assert_unchanged()
    assert not head.file("/run/gb10/lock.json").exists


@pytest.mark.slow
def test_a_port_in_use_is_named(cluster: Cluster, head: Host, tmp_path: Path) -> None:
    head.check_output("systemd-run --unit=squatter python3 -m http.server 8123")
    try:
        said = spoilt(cluster, tmp_path, {}, *extra(gb10_api_port=8123))
    finally:
        head.check_output("systemctl stop squatter")
    assert "nodes[0].gb10_api_port: port 8123 of spark1 is in use by python3" in said


@pytest.mark.slow
def test_weights_that_git_lfs_did_not_download_are_named(
    cluster: Cluster, nodes: dict[str, Host], tmp_path: Path
) -> None:
    folder, pointer = (
        "/srv/models/cloned",
        f"version https://git-lfs.github.com/spec/v1\\noid sha256:{'0' * 64}\\nsize 99\\n",
    )
    with copied(nodes, "tiny", folder):
        nodes["spark2"].check_output(f"printf '{pointer}' >{folder}/model.safetensors")
        reported = spoilt(cluster, tmp_path, {}, *extra(gb10_model=folder))
    assert (
        f"nodes[1].model: vLLM cannot load {folder} on spark2: 1 of the weights' files are pointers of Git LFS"
        in reported
    )
    assert f"{folder} on spark1" not in reported
