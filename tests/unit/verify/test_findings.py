"""The findings of a verification: healthy clusters have none, and each planted fault is reported by its ID."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from verified_nodes import GIB, NOW, Facts, library, maps, pair, process, service

from ansible_collections.gb10.cluster.plugins.module_utils.verify import evidence, report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

Nodes = list[Facts]
COUNTS = [
    "  vllm/_C_stable_libtorch: 0 native, 85 same major, 6 PTX, 20 none",
    "  vllm/_flashmla_C: 0 native, 0 same major, 0 PTX, 53 none",
    "  vllm/_moe_C_stable_libtorch: 0 native, 27 same major, 1 PTX, 0 none",
]
RAIL, TWIN = "enp1s0f1np1", "enP2p1s0f1np1"


def found(nodes: Nodes, groups: tuple[str, ...] = GROUPS) -> dict[str, list[str]]:
    """Return {ID: the findings as "node: text"}."""
    result: dict[str, list[str]] = {}
    for finding in report.findings(report.cluster(nodes), groups, {}):
        result.setdefault(finding.check.id, []).append(f"{finding.place}: {finding.found}")
    return result


@pytest.mark.parametrize("kind", ["spark", "lab", "foreign"])
def test_a_healthy_cluster_has_no_finding(kind: str) -> None:
    nodes = pair(kind)
    assert found(nodes) == {}
    answer = report.report(nodes, GROUPS, "warning", {})
    title = f"verified 2 of 2 nodes with {len(report.CHECKS)} checks ({', '.join(GROUPS)}): no finding"
    counts = [] if kind == "lab" else ["programs with GPU code for 12.1 on spark1, spark2:", *COUNTS]
    assert answer["lines"] == [title, *counts]
    assert (answer["worst"], answer["failed"], len(answer["json_lines"])) == ("", False, 1 + bool(counts))


def test_one_healthy_node_has_no_finding() -> None:
    for kind in ("spark", "lab"):
        (node, _other) = pair(kind)
        if node["facts"]["ray"]:
            node["facts"]["ray"]["nodes"].pop()
        assert found([node]) == {}


def test_a_node_of_another_system_has_no_facts() -> None:
    nothing = dict.fromkeys(pair()[0]["facts"])
    empty = {**nothing, "unread": {"interfaces": "ip is not installed"}, "clock": NOW + 1}
    nodes = [
        {**pair()[0], "facts": {name: value for name, value in empty.items() if name not in ("services", "ranks")}}
    ]
    assert found(nodes) == {"facts-unread": ["spark1: interfaces: ip is not installed"]}


def worker(nodes: Nodes) -> Facts:
    facts: Facts = nodes[1]["facts"]
    return facts


def head(nodes: Nodes) -> Facts:
    facts: Facts = nodes[0]["facts"]
    return facts


def mtu(nodes: Nodes) -> None:
    worker(nodes)["interfaces"][RAIL]["mtu"] = 1500


def rail_down(nodes: Nodes) -> None:
    worker(nodes)["interfaces"][RAIL] |= {"carrier": False, "addresses": []}


def swap(ours: Facts, rail: str, theirs: Facts, other: str) -> None:
    """Swap the addresses of two rails, with their GIDs."""
    mine, yours = ours["interfaces"][rail], theirs["interfaces"][other]
    mine["addresses"], yours["addresses"] = yours["addresses"], mine["addresses"]
    if mine["hca"]:
        one, two = ours["rdma"][mine["hca"]], theirs["rdma"][yours["hca"]]
        one["gids"], two["gids"] = two["gids"], one["gids"]


def swapped(nodes: Nodes) -> None:
    swap(worker(nodes), RAIL, worker(nodes), TWIN)


def swapped_in_the_file(nodes: Nodes) -> None:
    swapped(nodes)
    planned = worker(nodes)["planned"]
    planned[RAIL], planned[TWIN] = planned[TWIN], planned[RAIL]


def swapped_nodes(nodes: Nodes) -> None:
    swap(head(nodes), RAIL, worker(nodes), RAIL)


def other_vllm(nodes: Nodes) -> None:
    worker(nodes)["packages"]["vllm"] = "0.31.0"


def changed_variable(nodes: Nodes) -> None:
    for environment in worker(nodes)["environments"].values():
        environment["NCCL_DEBUG"] = "INFO"


def changed_secret(nodes: Nodes) -> None:
    for environment in worker(nodes)["environments"].values():
        environment["HF_HOME"] = "hmac:ffffffffffffffff"


def changed_file(nodes: Nodes) -> None:
    worker(nodes)["environments"]["cluster.env"]["NCCL_IB_DISABLE"] = "1"


def edited_file(nodes: Nodes) -> None:
    worker(nodes)["files"] |= {"patched": {}, "changed": ["vllm/envs.py"]}


def wrong_nccl(nodes: Nodes) -> None:
    worker(nodes)["nccl"] = [maps(812, "/tmp/libnccl.so.2", "d" * 64)]


def missing_ray_node(nodes: Nodes) -> None:
    head(nodes)["ray"]["nodes"][1]["alive"] = False


def killed_rank(nodes: Nodes) -> None:
    worker(nodes)["ranks"] = []
    head(nodes)["api"] |= {"answers": False, "reason": "no answer after 20 s"}


def open_api(nodes: Nodes) -> None:
    head(nodes)["api"]["open"] = True


def stale_process(nodes: Nodes) -> None:
    worker(nodes)["processes"].append(process(99, "python3", "session-3.scope", 30 * GIB, "nvidia"))


def stale_rank(nodes: Nodes) -> None:
    worker(nodes)["processes"].append(process(99, "VLLM::Worker_TP", "", 30 * GIB))
    worker(nodes)["ranks"].append({"pid": 99, "name": "VLLM::Worker_TP", "bytes": 30 * GIB})


def dead_watchdog(nodes: Nodes) -> None:
    worker(nodes)["watchdog"] = {"active": False}


def second_netplan_file(nodes: Nodes) -> None:
    owner = {"file": "/etc/netplan/99-nvidia-sync-cluster.yaml", "id": RAIL, "kind": "ethernets", "by": "name"}
    worker(nodes)["interfaces"][RAIL]["owners"].append(owner)


def wrong_clock(nodes: Nodes) -> None:
    worker(nodes)["clock"] = NOW - 300


def full_disk(nodes: Nodes) -> None:
    worker(nodes)["disks"][0]["free"] = 100 << 20


def expiring(nodes: Nodes) -> None:
    head(nodes)["api"] |= {"url": "https://127.0.0.1:8000", "expires": NOW + 3 * 86400}


#: Planted faults, as the acceptance of a verification lists them -> the IDs of their findings.
FAULTS: list[tuple[Callable[[Nodes], None], set[str], str]] = [
    (
        mtu,
        {"rail-mtu", "mtu-differs"},
        "spark2: enp1s0f1np1 has MTU 1500, but /etc/netplan/60-gb10-qsfp.yaml sets 9000",
    ),
    (rail_down, {"rail-down", "rail-address"}, "spark2: enp1s0f1np1 has no carrier"),
    (
        swapped,
        {"rail-address", "rails-crossed"},
        "spark2: enp1s0f1np1 has 10.110.1.2/24, but /etc/netplan/60-gb10-qsfp.yaml sets 10.110.0.2/24",
    ),
    (
        swapped_in_the_file,
        {"rails-crossed"},
        ": 10.110.0.0/24 is on enp1s0f1np1 of spark1 and on enP2p1s0f1np1 of spark2",
    ),
    (swapped_nodes, {"rail-address"}, "spark1: VLLM_HOST_IP is 10.110.0.1, which no interface of the node has"),
    (other_vllm, {"packages-differ"}, ": vllm: 0.32.0 on spark1; 0.31.0 on spark2"),
    (changed_variable, {"environment-differs"}, ": NCCL_DEBUG of cluster.env: WARN on spark1; INFO on spark2"),
    (
        changed_secret,
        {"environment-differs"},
        ": HF_HOME of cluster.env: hidden value 1 on spark1; hidden value 2 on spark2",
    ),
    (
        changed_file,
        {"environment-differs", "environment-stale"},
        "spark2: gb10-ray.service runs with other values of NCCL_IB_DISABLE than /etc/gb10/cluster.env",
    ),
    (
        edited_file,
        {"files-changed", "patches-differ"},
        "spark2: changed in /opt/gb10/runtime/0123456789ab/lib/python3.12/site-packages: vllm/envs.py",
    ),
    (
        wrong_nccl,
        {"nccl-differs", "nccl-mapped"},
        (
            "spark2: ray::RayWorkerP (pid 812) uses /tmp/libnccl.so.2, instead of "
            "/opt/gb10/nccl/2.30.7/lib/libnccl.so.2.30.7"
        ),
    ),
    (missing_ray_node, {"ray-node-missing"}, "spark2: Ray lists no living node with an address of this node"),
    (killed_rank, {"engine-silent", "rank-missing"}, ": spark2 has no rank"),
    (open_api, {"api-without-key"}, ": 0.0.0.0 without a key"),
    (stale_process, {"process-memory"}, "spark2: python3 (pid 99, 30.0 GiB) of session-3.scope"),
    (stale_rank, {"rank-stale"}, "spark2: VLLM::Worker_TP (pid 99, 30.0 GiB) belongs to no unit"),
    (dead_watchdog, {"watchdog-down"}, "spark2: gb10-watchdog.service is installed and does not run"),
    (
        second_netplan_file,
        {"netplan-second"},
        (
            "spark2: enp1s0f1np1 is configured by /etc/netplan/60-gb10-qsfp.yaml and "
            "/etc/netplan/99-nvidia-sync-cluster.yaml"
        ),
    ),
    (wrong_clock, {"clock-wrong"}, "spark2: its clock is 300 s behind"),
    (full_disk, {"disk-full"}, "spark2: / has 0.1 of 250.0 GiB free"),
    (expiring, {"tls-expires"}, "spark1: the certificate of https://127.0.0.1:8000 expires in 3.0 days"),
]


@pytest.mark.parametrize(("plant", "ids", "text"), FAULTS, ids=[plant.__name__ for plant, *_rest in FAULTS])
@pytest.mark.parametrize("kind", ["spark", "lab"])
def test_a_planted_fault_has_its_finding(plant: Callable[[Nodes], None], ids: set[str], text: str, kind: str) -> None:
    nodes = pair(kind)
    plant(nodes)
    result = found(nodes)
    assert result.keys() == ids
    if (kind, plant) != ("lab", wrong_nccl):
        assert text in [entry for entries in result.values() for entry in entries]


def set_at(path: str, value: Any) -> Callable[[Nodes], None]:
    """Return a fault of the second node: a fact at a path of keys."""

    def plant(nodes: Nodes) -> None:
        place = worker(nodes)
        *parents, last = path.split("/")
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        place[last] = value

    return plant


#: Other faults of a pair of Sparks: a fact of the second node, its wrong value, and the IDs of the findings.
WRONG: list[tuple[str, Any, set[str]]] = [
    ("gpu/driver_version", "590.48.01", {"driver-590", "driver-differs"}),
    ("gpu/gpus", [], {"gpu-unavailable"}),
    ("kernel", "6.17.0-1008-nvidia", {"kernel-differs", "kernel-6-17-0-1008"}),
    ("kernel", "7.0.0-1019-nvidia", {"kernel-differs", "kernel-7-0-0-1019"}),
    ("cma_free_bytes", 9 * GIB, {"kernel-cma"}),
    ("boot", {"kernel": "6.17.0-1031-nvidia", "nvidia": False}, {"kernel-without-driver"}),
    ("gpu_state/clock_mhz", 702.0, {"gpu-clock-low"}),
    ("gpu_state/temperature_c", 95.0, {"temperature-high"}),
    ("temperature_c", 95.0, {"temperature-high"}),
    ("firmware/rocep1s0f1", "28.40.1000", {"firmware-differs"}),
    ("bios", "old", {"bios-differs"}),
    ("disks", [{"path": "/", "free": 10 * GIB, "total": 1000 * GIB, "files_free": 0.9}], {"disk-low"}),
    ("disks", [{"path": "/", "free": 500 * GIB, "total": 1000 * GIB, "files_free": 0.001}], {"disk-full"}),
    ("disks", [{"path": "/boot", "free": 0.6 * GIB, "total": 1 * GIB, "files_free": 0.9}], set()),
    ("disks", [{"path": "/boot", "free": 0.04 * GIB, "total": 1 * GIB, "files_free": 0.9}], {"disk-full"}),
    ("clock", NOW + 300, {"clock-wrong"}),
    (f"interfaces/{RAIL}/up", False, {"rail-down"}),
    (f"interfaces/{RAIL}/speed", 100000, {"link-slow"}),
    ("interfaces/enP2p1s0f0np0/pci/width", 2, {"link-slow"}),
    ("interfaces/enP2p1s0f0np0/driver", "", {"pcie-half-missing"}),
    ("rdma/rocep1s0f1/state", "DOWN", {"rdma-inactive"}),
    (f"interfaces/{RAIL}/hca", "", {"rdma-inactive"}),
    ("infiniband", False, {"rdma-inactive"}),
    ("rdma/rocep1s0f1/gids", [], {"gid-missing"}),
    ("unreadable", [{"file": "/etc/netplan/x.yaml", "reason": "it is not YAML"}], {"netplan-unreadable"}),
    ("cuda_libraries", ["/usr/local/cuda/compat/libcuda.so.1"], {"libcuda-differs"}),
    ("nccl_installed/recorded", "e" * 64, {"nccl-build-changed"}),
    ("files/missing", ["vllm/x.py"], {"files-changed"}),
    ("files/patched", {}, {"patches-differ"}),
    ("environments/gb10-ray.service/NCCL_IB_HCA", "rocep1s0f1", set()),
    ("available", GIB, {"memory-exhausted"}),
    ("memory_guard/stop", {"reason": "only 1.0 GiB of memory were available"}, {"memory-floor"}),
    ("memory_guard/active", False, {"memory-guard-down"}),
    ("services", [service("gb10-ray.service", active="failed", pid=None)], {"service-stopped"}),
    ("services", [service("gb10-ray.service", active="inactive", pid=None)], {"service-down"}),
    ("services", [service("gb10-ray.service", gate="spark1.gates.gpu: x.")], {"gate-closed"}),
    ("services", [service("gb10-ray.service", restarts=9, started=3900.0)], {"service-restarts"}),
    ("rank_users", ["nvidia"], {"remove-ipc"}),
    ("firewalls", [], {"ports-exposed"}),
    ("images", [{"name": "x", "image": "y", "id": "sha256:z"}], set()),
    ("unread", {"disks": "no"}, {"facts-unread"}),
]


@pytest.mark.parametrize(("path", "value", "ids"), WRONG, ids=[f"{path} {sorted(ids)}" for path, _value, ids in WRONG])
def test_a_wrong_fact_has_its_finding(path: str, value: Any, ids: set[str]) -> None:
    nodes = pair()
    set_at(path, value)(nodes)
    assert found(nodes).keys() == ids


API_FAULTS: list[tuple[Facts, set[str]]] = [
    ({"healthy": False, "answers": None}, {"api-not-ready"}),
    ({"healthy": False, "answers": None, "reason": "certificate has expired"}, {"tls-untrusted"}),
    ({"answers": False, "reason": "HTTP 401: Unauthorized"}, {"key-refused"}),
    ({"answers": False, "reason": "port 8000 is used by x, so the API's key was not sent"}, {"port-taken"}),
]


@pytest.mark.parametrize(("changes", "ids"), API_FAULTS, ids=[", ".join(ids) for _changes, ids in API_FAULTS])
def test_a_wrong_api_has_its_finding(changes: Facts, ids: set[str]) -> None:
    nodes = pair()
    head(nodes)["api"] |= changes
    assert found(nodes).keys() == ids


def test_each_check_has_a_fault() -> None:
    planted = {name for _plant, ids, _text in FAULTS for name in ids} | {
        name for _path, _value, ids in WRONG for name in ids
    }
    planted |= {name for _changes, ids in API_FAULTS for name in ids}
    assert {check.id for check in report.CHECKS} - {check.id for check in evidence.CHECKS} - planted == OTHERS
    assert planted <= {check.id for check in report.CHECKS}


#: Checks whose faults have their own tests below, or whose rule has them. test_evidence.py has those of the log.
OTHERS = {
    "kernel-missing",
    "gpu-probe-failed",
    "driver-old",
    "address-duplicate",
    "rails-share-subnet",
    "rail-path",
    "nccl-ib-hca-half",
    "nccl-gid-index",
    "gpudirect-rdma",
    "nccl-arm-hang",
    "image-differs",
    "node-unreachable",
    "memory-held",
    "ray-open",
}


def test_an_unreachable_node() -> None:
    nodes = pair()
    nodes[1] |= {"facts": {}, "unreachable": "ssh: connect to host spark2 port 22: No route to host"}
    assert found(nodes) == {
        "node-unreachable": [f"spark2: it cannot be read: {nodes[1]['unreachable']}; docs/troubleshooting.md#no-route"]
    }
    assert report.report(nodes, GROUPS, "error", {})["lines"][0].startswith("verified 1 of 2 nodes with")


def test_an_address_of_two_nodes_and_of_two_rails() -> None:
    nodes = pair("foreign")
    worker(nodes)["interfaces"][RAIL]["addresses"] = ["10.110.0.1/24"]
    worker(nodes)["interfaces"][TWIN]["addresses"] = ["10.110.0.3/24"]
    result = found(nodes, ("fabric",))
    assert result["address-duplicate"] == [
        "spark2: 10.110.0.1 of enp1s0f1np1 is also the address of enp1s0f1np1 of spark1"
    ]
    assert result["rails-share-subnet"] == ["spark2: enP2p1s0f1np1 and enp1s0f1np1 are both in 10.110.0.0/24"]
    assert result["rails-crossed"] == [
        ": 10.110.0.0/24 is on enp1s0f1np1 of spark1, enp1s0f1np1 of spark2 and on enP2p1s0f1np1 of spark2"
    ]


def test_a_path_that_does_not_carry_packets() -> None:
    path = {
        "interface": RAIL,
        "peer": "spark2",
        "address": "10.110.0.2",
        "mac": "",
        "reported": "no reply (timeout)",
        "small": False,
    }
    nodes = pair()
    nodes[0]["paths"] = [path]
    answer = report.report(nodes, ["fabric"], "error", {})
    assert (answer["worst"], answer["failed"], len(answer["lines"])) == ("error", True, 4)
    assert answer["lines"][1] == "error rail-path spark1: enp1s0f1np1 to spark2 (10.110.0.2): no reply (timeout)"
    assert answer["lines"][2].startswith("  expected: a reply of the right device")
    assert answer["lines"][3].startswith("  fix: check cable")
    assert answer["lines"][3].endswith("; docs/verification.md#rail-path")


def test_other_images_and_an_open_ray_of_another_tool() -> None:
    nodes = pair("foreign")
    worker(nodes)["images"][0]["id"] = "sha256:" + "d" * 64
    head(nodes)["ray"] = {"nodes": None, "open": True}
    assert found(nodes) == {
        "image-differs": [f": images of the containers: {'c' * 12} on spark1; {'d' * 12} on spark2"],
        "ray-open": ["spark1: Ray's State API accepts requests without a token"],
    }


def test_memory_that_nothing_serves() -> None:
    nodes = pair("foreign")
    for node in nodes:
        node["facts"] |= {"ranks": [], "processes": [], "available": 10 * GIB, "api": None}
    assert found(nodes).keys() == {"memory-held"}


def test_a_killed_rank_of_another_tool() -> None:
    nodes = pair("foreign")
    worker(nodes)["ranks"] = []
    assert found(nodes) == {"rank-missing": ["spark2: it has no rank"]}


def test_a_stranger_in_ray() -> None:
    nodes = pair()
    head(nodes)["ray"]["nodes"].append({"address": "10.110.0.9", "alive": True})
    assert found(nodes) == {"ray-node-missing": ["spark1: Ray lists 10.110.0.9, which no node of the inventory has"]}


def test_several_libraries_of_which_the_used_one_is_unknown() -> None:
    nodes = pair()
    path = head(nodes)["nccl_installed"]["path"]
    worker(nodes)["nccl"] = [
        {**maps(812, path), "libraries": [library(path), library("/x/libnccl.so.2", "d" * 64)], "used": None}
    ]
    assert found(nodes).keys() == {"nccl-differs", "nccl-mapped"}


def test_the_rails_of_a_node_and_their_peers() -> None:
    answer = report.rails(pair(), "spark1")
    assert answer["mtu"] == 9000
    assert answer["rails"] == [
        {
            "interface": name,
            "address": f"10.110.{half}.1/24",
            "peers": {"spark2": f"10.110.{half}.2"},
            "macs": {"spark2": f"02:00:00:00:02:1{half}"},
        }
        for half, name in ((1, TWIN), (0, RAIL))
    ]
    assert report.rails(pair()[:1], "spark1") == {"rails": [], "mtu": 9000}
    assert report.rails(pair(), "spark9")["rails"] == []
    assert report.rails(pair("foreign"), "spark2")["rails"][0]["peers"] == {"spark1": "10.110.1.1"}


def test_groups_severities_and_documents() -> None:
    nodes = pair()
    wrong_clock(nodes)
    other_vllm(nodes)
    assert found(nodes, ("hardware",)).keys() == {"clock-wrong"}
    assert [report.report(nodes, ["hardware"], fail_on, {})["failed"] for fail_on in ("error", "warning", "never")] == [
        False,
        True,
        False,
    ]
    assert [report.report(nodes, GROUPS, fail_on, {})["failed"] for fail_on in ("error", "warning", "never")] == [
        True,
        True,
        False,
    ]
    answer = report.report(nodes, GROUPS, "error", {})
    summary, *findings, difference, counts = map(json.loads, answer["json_lines"])
    assert (counts["kind"], answer["lines"][-3:]) == ("kernels", COUNTS)
    assert (summary["kind"], summary["error"], summary["warning"], summary["worst"]) == ("summary", 1, 1, "error")
    assert [(each["id"], each["severity"], each["page"]) for each in findings] == [
        ("packages-differ", "error", "docs/verification.md#packages-differ"),
        ("clock-wrong", "warning", "docs/verification.md#clock-wrong"),
    ]
    assert difference == {
        "kind": "difference",
        "id": "packages-differ",
        "attribute": "vllm",
        "values": {"spark1": "0.32.0", "spark2": "0.31.0"},
    }
    assert answer["lines"][-6:-4] == ["differences  spark1  spark2", "vllm         0.32.0  0.31.0"]
    assert [line.partition(" ")[0] for line in answer["lines"][1:-6]] == ["error", "", "", "warning", "", ""]


def test_findings_of_one_check_are_explained_once() -> None:
    nodes = pair()
    for node in nodes:
        node["facts"]["clock"] = NOW - 300
    lines = report.report(nodes, GROUPS, "error", {})["lines"]
    assert [line.split(":")[0].strip() for line in lines[1:-4]] == [
        "warning clock-wrong spark1",
        "warning clock-wrong spark2",
        "expected",
        "fix",
    ]


def test_products_and_gpus_are_compared_only_with_their_own_kind() -> None:
    nodes = pair()
    thor = {
        "gpus": [{"name": "Thor", "capability": "11.0"}],
        "driver_version": "580.00",
        "memory_bytes": 1,
        "reason": "",
    }
    worker(nodes).update(
        product="Jetson", bios="other", gpu=thor, kernel="6.8.12-tegra", boot={"kernel": "6.8.12-tegra", "nvidia": True}
    )
    worker(nodes)["environments"]["gb10-ray.service"]["TORCH_X"] = "hmac:00"
    assert found(nodes) == {}


def test_a_waived_finding_is_shown_and_does_not_count() -> None:
    nodes = pair()
    wrong_clock(nodes)
    other_vllm(nodes)
    waivers = {"packages-differ": "a test of 0.31", "clock-wrong": " ", "no-such-check": "x"}
    answer = report.report(nodes, GROUPS, "error", waivers)
    assert answer["lines"][0].endswith(": 0 errors, 1 warnings, 1 waived")
    assert (
        answer["lines"][1] == "error (waived: a test of 0.31) packages-differ: vllm: 0.32.0 on spark1; 0.31.0 on spark2"
    )
    assert (answer["worst"], answer["failed"]) == ("warning", False)
    assert json.loads(answer["json_lines"][1])["waived"] == "a test of 0.31"
