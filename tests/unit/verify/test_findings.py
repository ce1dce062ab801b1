"""The findings of a verification: healthy clusters have none, and each planted fault is reported by its ID."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from verified_nodes import GIB, NOW, Facts, cluster, findings, library, maps, pair, plant, process, service

from ansible_collections.gb10.cluster.plugins.module_utils.verify import evidence, report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

Changes = Facts
COUNTS = [
    "  vllm/_C_stable_libtorch: 0 native, 85 same major, 6 PTX, 20 none",
    "  vllm/_flashmla_C: 0 native, 0 same major, 0 PTX, 53 none",
    "  vllm/_moe_C_stable_libtorch: 0 native, 27 same major, 1 PTX, 0 none",
]
RAIL, TWIN = "enp1s0f1np1", "enP2p1s0f1np1"
NCCL = pair()[0]["facts"]["nccl_installed"]["path"]


def reported(
    nodes: list[Facts], groups: Sequence[str] = GROUPS, fail_on: str = "error", waivers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return report.report(cluster(nodes), groups, fail_on, waivers or {})


@pytest.mark.parametrize("kind", ["spark", "lab", "foreign"])
def test_a_healthy_cluster_has_no_finding(kind: str) -> None:
    nodes = pair(kind)
    assert findings(nodes) == {}
    answer = reported(nodes, fail_on="warning")
    title = f"verified 2 of 2 nodes with {len(report.CHECKS)} checks ({', '.join(GROUPS)}): no finding"
    counts = [] if kind == "lab" else ["programs with GPU code for 12.1 on spark1, spark2:", *COUNTS]
    assert answer["lines"] == [title, *counts]
    assert (answer["worst"], answer["failed"], len(answer["json_lines"])) == ("", False, 1 + bool(counts))


def test_one_healthy_node_has_no_finding() -> None:
    for kind in ("spark", "lab"):
        (node, _other) = pair(kind)
        if node["facts"]["ray"]:
            node["facts"]["ray"]["nodes"].pop()
        assert findings([node]) == {}


def test_a_node_of_another_system_has_no_facts() -> None:
    nothing = dict.fromkeys(pair()[0]["facts"])
    empty = {**nothing, "unread": {"interfaces": "ip is not installed"}, "clock": NOW + 1}
    nodes = [
        {**pair()[0], "facts": {name: value for name, value in empty.items() if name not in ("services", "ranks")}}
    ]
    assert findings(nodes) == {"facts-unread": ["spark1: interfaces: ip is not installed"]}


def swapped(kind: str, one: tuple[int, str], other: tuple[int, str]) -> Changes:
    """Return the changes that swap the addresses of two rails, each as node and name, with their GIDs."""
    facts, changes = [node["facts"] for node in pair(kind)], {}
    for (node, rail), (theirs, twin) in ((one, other), (other, one)):
        mine, yours = facts[node]["interfaces"][rail], facts[theirs]["interfaces"][twin]
        changes[f"{node}/interfaces/{rail}/addresses"] = yours["addresses"]
        if mine["hca"]:
            changes[f"{node}/rdma/{mine['hca']}/gids"] = facts[theirs]["rdma"][yours["hca"]]["gids"]
    return changes


PLANNED = pair()[1]["facts"]["planned"]
SECOND_FILE = {"file": "/etc/netplan/99-nvidia-sync-cluster.yaml", "id": RAIL, "kind": "ethernets", "by": "name"}
CLOCK, VLLM = {"1/clock": NOW - 300}, {"1/packages/vllm": "0.31.0"}


def faults(kind: str) -> dict[str, tuple[Changes, set[str], str]]:
    """Return planted faults, as the acceptance of a verification lists them, the IDs of their findings, and one of
    these."""
    return {
        "another MTU": (
            {f"1/interfaces/{RAIL}/mtu": 1500},
            {"rail-mtu", "mtu-differs"},
            "spark2: enp1s0f1np1 has MTU 1500, but /etc/netplan/60-gb10-qsfp.yaml sets 9000",
        ),
        "a rail without carrier": (
            {f"1/interfaces/{RAIL}/carrier": False, f"1/interfaces/{RAIL}/addresses": []},
            {"rail-down", "rail-address"},
            "spark2: enp1s0f1np1 has no carrier",
        ),
        "swapped addresses": (
            swapped(kind, (1, RAIL), (1, TWIN)),
            {"rail-address", "rails-crossed"},
            "spark2: enp1s0f1np1 has 10.110.1.2/24, but /etc/netplan/60-gb10-qsfp.yaml sets 10.110.0.2/24",
        ),
        "swapped addresses in the file": (
            {
                **swapped(kind, (1, RAIL), (1, TWIN)),
                f"1/planned/{RAIL}": PLANNED[TWIN],
                f"1/planned/{TWIN}": PLANNED[RAIL],
            },
            {"rails-crossed"},
            ": 10.110.0.0/24 is on enp1s0f1np1 of spark1 and on enP2p1s0f1np1 of spark2",
        ),
        "swapped nodes": (
            swapped(kind, (0, RAIL), (1, RAIL)),
            {"rail-address"},
            "spark1: VLLM_HOST_IP is 10.110.0.1, which no interface of the node has",
        ),
        "another vLLM": (VLLM, {"packages-differ"}, ": vllm: 0.32.0 on spark1; 0.31.0 on spark2"),
        "another variable": (
            {"1/environments/*/NCCL_DEBUG": "INFO"},
            {"environment-differs"},
            ": NCCL_DEBUG of cluster.env: WARN on spark1; INFO on spark2",
        ),
        "another secret": (
            {"1/environments/*/HF_HOME": "hmac:ffffffffffffffff"},
            {"environment-differs"},
            ": HF_HOME of cluster.env: hidden value 1 on spark1; hidden value 2 on spark2",
        ),
        "another file of variables": (
            {"1/environments/cluster.env/NCCL_IB_DISABLE": "1"},
            {"environment-differs", "environment-stale"},
            "spark2: gb10-ray.service runs with other values of NCCL_IB_DISABLE than /etc/gb10/cluster.env",
        ),
        "an edited file": (
            {"1/files/patched": {}, "1/files/changed": ["vllm/envs.py"]},
            {"files-changed", "patches-differ"},
            "spark2: changed in /opt/gb10/runtime/0123456789ab/lib/python3.12/site-packages: vllm/envs.py",
        ),
        "another NCCL": (
            {"1/nccl": [maps(812, "/tmp/libnccl.so.2", "d" * 64)]},
            {"nccl-differs", "nccl-mapped"},
            ""
            if kind == "lab"
            else "spark2: ray::RayWorkerP (pid 812) uses /tmp/libnccl.so.2, instead of "
            "/opt/gb10/nccl/2.30.7/lib/libnccl.so.2.30.7",
        ),
        "a node that Ray lost": (
            {"0/ray/nodes/1/alive": False},
            {"ray-node-missing"},
            "spark2: Ray lists no living node with an address of this node",
        ),
        "a killed rank": (
            {"1/ranks": [], "0/api/answers": False, "0/api/reason": "no answer after 20 s"},
            {"engine-silent", "rank-missing"},
            ": spark2 has no rank",
        ),
        "an open API": ({"0/api/open": True}, {"api-without-key"}, ": 0.0.0.0 without a key"),
        "a large process": (
            {"1/processes/+": process(99, "python3", "session-3.scope", 30 * GIB, "nvidia")},
            {"process-memory"},
            "spark2: python3 (pid 99, 30.0 GiB) of session-3.scope",
        ),
        "a rank of a former start": (
            {"1/processes/+": process(99, "VLLM::Worker_TP", "", 30 * GIB)},
            {"rank-stale"},
            "spark2: VLLM::Worker_TP (pid 99, 30.0 GiB) belongs to no unit",
        ),
        "a dead watchdog": (
            {"1/watchdog": {"active": False}},
            {"watchdog-down"},
            "spark2: gb10-watchdog.service is installed and does not run",
        ),
        "a second netplan file": (
            {f"1/interfaces/{RAIL}/owners/+": SECOND_FILE},
            {"netplan-second"},
            "spark2: enp1s0f1np1 is configured by /etc/netplan/60-gb10-qsfp.yaml and "
            "/etc/netplan/99-nvidia-sync-cluster.yaml",
        ),
        "a wrong clock": (CLOCK, {"clock-wrong"}, "spark2: its clock is 300 s behind"),
        "a full disk": (
            {"1/disks/0/free": 100 << 20},
            {"disk-full"},
            "spark2: / has 0.1 of 250.0 GiB free",
        ),
        "a certificate that expires": (
            {"0/api/url": "https://127.0.0.1:8000", "0/api/expires": NOW + 3 * 86400},
            {"tls-expires"},
            "spark1: the certificate of https://127.0.0.1:8000 expires in 3.0 days",
        ),
    }


@pytest.mark.parametrize("fault", faults("spark"))
@pytest.mark.parametrize("kind", ["spark", "lab"])
def test_a_planted_fault_has_its_finding(kind: str, fault: str) -> None:
    changes, ids, text = faults(kind)[fault]
    result = findings(plant(pair(kind), changes))
    assert result.keys() == ids
    assert not text or text in [entry for entries in result.values() for entry in entries]


#: Other faults of a pair of Sparks: a fact, its wrong value, and the IDs of the findings.
WRONG: list[tuple[Changes, set[str]]] = [
    ({"1/gpu/driver_version": "590.48.01"}, {"driver-590", "driver-differs"}),
    ({"1/gpu/gpus": []}, {"gpu-unavailable"}),
    ({"1/updates/level/stamp": "7.6.0"}, {"os-level-differs"}),
    ({"1/boot/kernel": "6.17.0-1032-nvidia"}, {"kernel-differs"}),
    ({"1/kernel": "6.17.0-1008-nvidia"}, {"kernel-differs", "kernel-6-17-0-1008"}),
    ({"1/kernel": "7.0.0-1019-nvidia"}, {"kernel-differs", "kernel-7-0-0-1019"}),
    ({"1/cma_free_bytes": 9 * GIB}, {"kernel-cma"}),
    ({"1/boot": {"kernel": "6.17.0-1031-nvidia", "nvidia": False, "missing": ["nvidia"]}}, {"kernel-without-driver"}),
    ({"1/gpu_state/clock_mhz": 702.0}, {"gpu-clock-stuck"}),
    ({"1/gpu_state/temperature_c": 95.0}, {"temperature-high"}),
    ({"1/gpu_state/slowed": ["power cap"]}, set()),
    ({"1/gpu_state/slowed": ["power brake"]}, {"temperature-high"}),
    ({"1/temperature_c": 95.0}, {"temperature-high"}),
    ({"1/firmware/rocep1s0f1": "28.40.1000"}, {"firmware-differs"}),
    ({"1/bios": "old"}, {"bios-differs"}),
    ({"1/disks": [{"path": "/", "free": 10 * GIB, "total": 1000 * GIB, "files_free": 0.9}]}, {"disk-low"}),
    ({"1/disks": [{"path": "/", "free": 500 * GIB, "total": 1000 * GIB, "files_free": 0.001}]}, {"disk-full"}),
    ({"1/disks": [{"path": "/boot", "free": 0.6 * GIB, "total": 1 * GIB, "files_free": 0.9}]}, set()),
    ({"1/disks": [{"path": "/boot", "free": 0.04 * GIB, "total": 1 * GIB, "files_free": 0.9}]}, {"disk-full"}),
    ({"1/clock": NOW + 300}, {"clock-wrong"}),
    ({f"1/interfaces/{RAIL}/up": False}, {"rail-down"}),
    ({f"1/interfaces/{RAIL}/speed": 100000}, {"link-slow"}),
    ({"1/interfaces/enP2p1s0f0np0/pci/width": 2}, {"link-slow"}),
    ({"1/interfaces/enP2p1s0f0np0/driver": ""}, {"pcie-half-missing"}),
    ({"1/rdma/rocep1s0f1/state": "DOWN"}, {"rdma-inactive"}),
    ({"1/adapter": ["power"]}, {"adapter-power"}),
    ({"1/adapter": ["failed"]}, {"adapter-failed"}),
    ({f"1/interfaces/{RAIL}/hca": ""}, {"rdma-inactive"}),
    ({"1/infiniband": False}, {"rdma-inactive"}),
    ({"1/rdma/rocep1s0f1/gids": []}, {"gid-missing"}),
    ({"1/unreadable": [{"file": "/etc/netplan/x.yaml", "reason": "it is not YAML"}]}, {"netplan-unreadable"}),
    ({"1/cuda_libraries": ["/usr/local/cuda/compat/libcuda.so.1"]}, {"libcuda-differs"}),
    ({"1/nccl_installed/recorded": "e" * 64}, {"nccl-build-changed"}),
    ({"1/files/missing": ["vllm/x.py"]}, {"files-changed"}),
    ({"1/files/patched": {}}, {"patches-differ"}),
    ({"1/environments/gb10-ray.service/NCCL_IB_HCA": "rocep1s0f1"}, set()),
    ({"1/available": GIB}, {"memory-exhausted"}),
    ({"1/memory_guard/stop": {"reason": "only 1.0 GiB of memory were available"}}, {"memory-floor"}),
    ({"1/memory_guard/done": "had its ranks ended once by the memory guard 2 h ago"}, {"memory-short"}),
    ({"1/memory_guard/active": False}, {"memory-guard-down"}),
    ({"1/services": [service("gb10-ray.service", active="failed", pid=None)]}, {"service-stopped"}),
    ({"1/services": [service("gb10-ray.service", active="inactive", pid=None)]}, {"service-down"}),
    ({"1/services": [service("gb10-ray.service", gate="spark1.gates.gpu: x.")]}, {"gate-closed"}),
    ({"1/services": [service("gb10-ray.service", restarts=9, started=3900.0)]}, {"service-restarts"}),
    ({"1/rank_users": ["nvidia"]}, {"remove-ipc"}),
    ({"1/firewalls": []}, {"ports-exposed"}),
    ({"1/images": [{"name": "x", "image": "y", "id": "sha256:z"}]}, set()),
    ({"0/api/expires": NOW + 90 * 86400}, set()),
    ({"1/unread": {"disks": "no"}}, {"facts-unread"}),
    ({"0/api/healthy": False, "0/api/answers": None}, {"api-not-ready"}),
    ({"0/api/healthy": False, "0/api/answers": None, "0/rests": 60.0}, set()),
    (
        {"0/api/healthy": False, "0/api/answers": None, "0/api/reason": "certificate has expired"},
        {"tls-untrusted"},
    ),
    ({"0/api/answers": False, "0/api/reason": "HTTP 401: Unauthorized"}, {"key-refused"}),
    (
        {"0/api/answers": False, "0/api/reason": "port 8000 is used by x, so the API's key was not sent"},
        {"port-taken"},
    ),
    # Of several libraries, the used one is unknown.
    (
        {
            "1/nccl": [
                {**maps(812, NCCL), "libraries": [library(NCCL), library("/x/libnccl.so.2", "d" * 64)], "used": None}
            ]
        },
        {"nccl-differs", "nccl-mapped"},
    ),
]


@pytest.mark.parametrize(
    ("changes", "ids"), WRONG, ids=[f"{', '.join(changes)} {sorted(ids)}" for changes, ids in WRONG]
)
def test_a_wrong_fact_has_its_finding(changes: Changes, ids: set[str]) -> None:
    assert findings(plant(pair(), changes)).keys() == ids


THOR = {
    "product": "Jetson",
    "bios": "other",
    "gpu": {
        "gpus": [{"name": "Thor", "capability": "11.0"}],
        "driver_version": "580.00",
        "memory_bytes": 1,
        "reason": "",
    },
    "kernel": "6.8.12-tegra",
    "boot": {"kernel": "6.8.12-tegra", "nvidia": True},
}
IDLE = {"ranks": [], "processes": [], "available": 10 * GIB, "api": None}
ADDRESSES = {
    f"1/interfaces/{RAIL}/addresses": ["10.110.0.1/24"],
    f"1/interfaces/{TWIN}/addresses": ["10.110.0.3/24"],
}
#: The kind of a cluster, its changes, and all findings.
WHOLE: dict[str, tuple[str, Changes, dict[str, list[str]]]] = {
    "an address of two nodes and of two rails": (
        "foreign",
        ADDRESSES,
        {
            "address-duplicate": ["spark2: 10.110.0.1 of enp1s0f1np1 is also the address of enp1s0f1np1 of spark1"],
            "rails-share-subnet": ["spark2: enP2p1s0f1np1 and enp1s0f1np1 are both in 10.110.0.0/24"],
            "rails-crossed": [
                ": 10.110.0.0/24 is on enp1s0f1np1 of spark1, enp1s0f1np1 of spark2 and on enP2p1s0f1np1 of spark2"
            ],
            "rail-address": ["spark2: VLLM_HOST_IP is 10.110.0.2, which no interface of the node has"],
            "gid-missing": [
                "spark2: no RoCE v2 GID of 10.110.0.3 on roceP2p1s0f1 (its RoCE v2 GIDs: 3: ::ffff:a6e:102)",
                "spark2: no RoCE v2 GID of 10.110.0.1 on rocep1s0f1 (its RoCE v2 GIDs: 3: ::ffff:a6e:2)",
            ],
        },
    ),
    "other images and an open Ray of another tool": (
        "foreign",
        {"1/images/0/id": "sha256:" + "d" * 64, "0/ray": {"nodes": None, "open": True}},
        {
            "image-differs": [f": images of the containers: {'c' * 12} on spark1; {'d' * 12} on spark2"],
            "ray-open": ["spark1: Ray's State API accepts requests without a token"],
        },
    ),
    "memory that nothing serves": (
        "foreign",
        {f"{node}/{name}": value for node in (0, 1) for name, value in IDLE.items()},
        {
            "memory-held": [
                f": {node} serves nothing, but less than half of its memory is available"
                for node in ("spark1", "spark2")
            ]
        },
    ),
    "a killed rank of another tool": ("foreign", {"1/ranks": []}, {"rank-missing": ["spark2: it has no rank"]}),
    "a stranger in Ray": (
        "spark",
        {"0/ray/nodes/+": {"address": "10.110.0.9", "alive": True}},
        {"ray-node-missing": ["spark1: Ray lists 10.110.0.9, which no node of the inventory has"]},
    ),
    "products and GPUs are compared only with their own kind": (
        "spark",
        {f"1/{name}": value for name, value in THOR.items()} | {"1/environments/gb10-ray.service/TORCH_X": "hmac:00"},
        {},
    ),
}


@pytest.mark.parametrize(("kind", "changes", "expected"), WHOLE.values(), ids=WHOLE)
def test_all_findings_of_a_change(kind: str, changes: Changes, expected: dict[str, list[str]]) -> None:
    assert findings(plant(pair(kind), changes)) == expected


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ([], []),
        (["127.0.0.1", "::1", "::ffff:127.0.0.1"], []),
        (["127.0.0.1", "10.110.0.1"], [": 10.110.0.1 without a key"]),
        (["::ffff:10.110.0.1", "::1"], [": ::ffff:10.110.0.1 without a key"]),
    ],
)
def test_an_open_api_counts_at_an_address_that_others_reach(hosts: list[str], found: list[str]) -> None:
    other = {"address": "0.0.0.0", "port": 22, "pid": 7, "process": "sshd", "unit": "ssh.service"}
    own = [{**other, "address": host, "port": 8000, "unit": "gb10-vllm.service"} for host in hosts]
    nodes = plant(pair(), {"0/api/open": True, "0/listeners": [other, *own]})
    assert findings(nodes).get("api-without-key", []) == found


def test_each_check_has_a_fault() -> None:
    planted = {name for _changes, ids, _text in faults("spark").values() for name in ids}
    planted |= {name for _changes, ids in WRONG for name in ids}
    planted |= {name for _kind, _changes, expected in WHOLE.values() for name in expected}
    assert {check.id for check in report.CHECKS} == planted | OTHERS | {check.id for check in evidence.CHECKS}
    assert not planted & OTHERS


#: Checks whose faults have their own tests below, or whose rule has them. test_evidence.py has those of the log.
OTHERS = {
    "kernel-missing",
    "gpu-probe-failed",
    "driver-old",
    "rail-path",
    "nccl-ib-hca-half",
    "nccl-gid-index",
    "gpudirect-rdma",
    "nccl-arm-hang",
    "node-unreachable",
}


def test_an_unreachable_node() -> None:
    nodes = pair()
    nodes[1] |= {"facts": {}, "unreachable": "ssh: connect to host spark2 port 22: No route to host"}
    assert findings(nodes) == {
        "node-unreachable": [f"spark2: it cannot be read: {nodes[1]['unreachable']}; docs/troubleshooting.md#no-route"]
    }
    assert reported(nodes)["lines"][0].startswith("verified 1 of 2 nodes with")


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
    answer = reported(nodes, ["fabric"])
    assert (answer["worst"], answer["failed"], len(answer["lines"])) == ("error", True, 4)
    assert answer["lines"][1] == "error rail-path spark1: enp1s0f1np1 to spark2 (10.110.0.2): no reply (timeout)"
    assert answer["lines"][2].startswith("  expected: a reply of the right device")
    assert answer["lines"][3].startswith("  fix: check cable")
    assert answer["lines"][3].endswith("; docs/verification.md#rail-path")


def test_the_rails_of_a_node_and_their_peers() -> None:
    answer = report.rails(cluster(pair()), "spark1")
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
    assert report.rails(cluster(pair()[:1]), "spark1") == {"rails": [], "mtu": 9000}
    assert report.rails(cluster(pair()), "spark9")["rails"] == []
    bare = plant(pair()[:1], {"0/planned": {}, **{f"0/interfaces/{rail}/addresses": [] for rail in (RAIL, TWIN)}})
    assert report.rails(cluster(bare), "spark1") == {"rails": [], "mtu": 0}
    assert report.rails(cluster(pair("foreign")), "spark2")["rails"][0]["peers"] == {"spark1": "10.110.1.1"}


def test_groups_severities_and_documents() -> None:
    nodes = plant(pair(), CLOCK | VLLM)
    assert findings(nodes, ("hardware",)).keys() == {"clock-wrong"}
    for groups, expected in ((["hardware"], [False, True, False]), (GROUPS, [True, True, False])):
        found_by = [reported(nodes, groups, fail_on)["failed"] for fail_on in ("error", "warning", "never")]
        assert found_by == expected
    answer = reported(nodes)
    summary, *listed, difference, counts = map(json.loads, answer["json_lines"])
    assert (counts["kind"], answer["lines"][-3:]) == ("kernels", COUNTS)
    assert (summary["kind"], summary["error"], summary["warning"], summary["worst"]) == ("summary", 1, 1, "error")
    assert [(each["id"], each["severity"], each["page"]) for each in listed] == [
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
    nodes = plant(pair(), {"0/clock": NOW - 300, "1/clock": NOW - 300})
    lines = reported(nodes)["lines"]
    assert [line.split(":")[0].strip() for line in lines[1:-4]] == [
        "warning clock-wrong spark1",
        "warning clock-wrong spark2",
        "expected",
        "fix",
    ]


def test_a_waived_finding_is_shown_and_does_not_count() -> None:
    nodes = plant(pair(), CLOCK | VLLM)
    waivers = {"packages-differ": "a test of 0.31", "clock-wrong": " ", "no-such-check": "x"}
    answer = reported(nodes, waivers=waivers)
    assert answer["lines"][0].endswith(": 0 errors, 1 warnings, 1 waived")
    assert (
        answer["lines"][1] == "error (waived: a test of 0.31) packages-differ: vllm: 0.32.0 on spark1; 0.31.0 on spark2"
    )
    assert (answer["worst"], answer["failed"]) == ("warning", False)
    assert json.loads(answer["json_lines"][1])["waived"] == "a test of 0.31"


def test_pending_updates_are_shown_and_no_finding() -> None:
    nodes = pair()
    pending = [{"name": "bash", "installed": "1", "candidate": "2"}]
    for node in nodes:
        node["facts"]["updates"]["packages"] = pending
    said = reported(nodes, ["hardware"], "warning")
    assert not any("pending" in line for line in said["lines"]), "a package of another kind"
    pending.append({"name": "linux-image-6.17.0-1032-nvidia", "installed": "", "candidate": "1"})
    said = reported(nodes, ["hardware"], "warning")
    text = "kernel: linux-image-6.17.0-1032-nvidia 1"
    assert f"pending on spark1, spark2: {text} (docs/updates.md)" in said["lines"] and not said["failed"]
    assert not any("pending" in line for line in reported(nodes, ["nccl"], "warning")["lines"])
    nodes[1]["facts"]["updates"]["firmware"] = [{"device": "UEFI", "installed": "1", "candidate": "2"}]
    said = reported(nodes, ["hardware"], "warning")
    (row,) = [json.loads(line) for line in said["json_lines"] if "pending updates" in line]
    assert row["values"] == {"spark1": text, "spark2": f"{text}; firmware of devices: UEFI 1 -> 2"}
