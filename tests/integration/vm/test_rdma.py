"""Two virtual machines with kernels of their own: the RDMA devices that the plan chooses for NCCL, and their traffic.

They are soft RoCE (rdma_rxe) on virtio. sysfs and verbs are the kernel's; speed, PCIe and driver are not a ConnectX's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from live_cluster import Cluster, extra, on_all
from run_playbook import run
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

HCAS = {twin.interface: twin.hca for twin in SPARK_PORTS[1]}


@pytest.fixture(scope="module")
def plan(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plan of the cluster, with the index of the GIDs that it would pin."""
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    given = extra(plan_file=str(file), gb10_fabric_pin_gid_index=True)
    run("tests/integration/model/plan.yml", [*cluster.arguments, *given]).assert_ok()
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def gid_index(host: Host, hca: str) -> int:
    """Return the index of the RoCE v2 GID of an IPv4 address, as the kernel lists it."""
    port = f"/sys/class/infiniband/{hca}/ports/1"
    # The attributes of a free slot cannot be read.
    lines = host.run(f"cd {port} && grep -rs . gids gid_attrs/types").stdout
    mapped = re.findall(r"^gids/(\d+):(?:0000:){5}ffff:", lines, re.MULTILINE)
    (index,) = [each for each in mapped if f"gid_attrs/types/{each}:RoCE v2\n" in f"{lines}\n"]
    return int(index)


def test_nccl_gets_the_devices_of_the_rails(plan: dict[str, Any], nodes: dict[str, Host]) -> None:
    for planned in plan["nodes"]:
        host, environment = nodes[planned["name"]], planned["environment"]
        hcas = environment["NCCL_IB_HCA"].split(",")
        for hca, interface in zip(hcas, HCAS, strict=True):
            assert host.check_output(f"cat /sys/class/infiniband/{hca}/ports/1/gid_attrs/ndevs/0") == interface
        assert {int(environment["NCCL_IB_GID_INDEX"])} == {gid_index(host, hca) for hca in hcas}


def test_the_devices_carry_4096_bytes_at_the_mtu_of_the_rails(nodes: dict[str, Host]) -> None:
    for hca in HCAS.values():
        for name, shown in on_all(nodes, f"ibv_devinfo -d {hca}").items():
            assert re.search(r"state:\s+PORT_ACTIVE", shown), f"{name}: {shown}"
            assert re.search(r"active_mtu:\s+4096", shown), f"{name}: {shown}"


@pytest.mark.parametrize("interface", HCAS)
def test_rdma_writes_reach_the_peer(plan: dict[str, Any], head: Host, workers: list[Host], interface: str) -> None:
    index = plan["nodes"][0]["environment"]["NCCL_IB_GID_INDEX"]
    benchmark = f"ib_write_bw -d {HCAS[interface]} -x {index} -m 4096 -s 65536 -n 50 --report_gbits"
    (link,) = json.loads(head.check_output(f"ip -json -4 address show {interface}"))
    head.check_output(f"systemd-run --quiet --unit=gb10-lab-write timeout 120 {benchmark}")
    head.run("for _ in $(seq 30); do ss -Hltn sport = :18515 | grep -q . && break; sleep 1; done")
    shown = workers[0].check_output(f"timeout 120 {benchmark} {link['addr_info'][0]['local']}")
    assert float(re.findall(r"^ 65536 +50 +[\d.]+ +([\d.]+)", shown, re.MULTILINE)[0]) > 0, shown


def test_verify_finds_no_defect_of_the_rails(cluster: Cluster, tmp_path: Path) -> None:
    _done, findings = cluster.verify(tmp_path / "verify.jsonl", "--extra-vars", "verify_quick=true")
    assert not findings & {"rail-down", "rail-mtu", "rail-path", "rdma-inactive", "gid-missing"}, findings


@pytest.mark.disruptive
def test_verify_names_a_rail_without_its_device(cluster: Cluster, head: Host) -> None:
    interface, hca = next(iter(HCAS.items()))
    head.check_output(f"rdma link delete {hca}")
    try:
        cluster.site("--tags", "qsfp_netplan").assert_failed(f"{interface} of", "has no RDMA device")
    finally:
        head.check_output(f"rdma link add {hca} type rxe netdev {interface}")
