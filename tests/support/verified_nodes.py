"""Facts of cluster_verify_info, as a pair of Sparks, a simulated pair, and a cluster of another tool would have
them."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import NETPLAN_FILE, SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, Cluster, VerifiedNode

GIB = 1 << 30
NOW = 1_795_383_000.0
Facts = dict[str, Any]
_RAILS = SPARK_PORTS[1]


def process(pid: int, name: str, unit: str, size: int = 40 * GIB, user: str = "gb10") -> Facts:
    return {"pid": pid, "name": name, "bytes": size, "unit": unit, "user": user}


def service(unit: str, **changes: Any) -> Facts:
    running = {
        "load": "loaded",
        "enabled": True,
        "active": "active",
        "sub": "running",
        "pid": 700,
        "started": 100.0,
        "restarts": 0,
    }
    return {"unit": unit, **running, "container": False, **changes}


def library(path: str, sha256: str = "a" * 64) -> Facts:
    return {"path": path, "sha256": sha256, "device": "fd:01", "inode": 9, "deleted": False}


def maps(pid: int, path: str, sha256: str = "a" * 64) -> Facts:
    """Return a rank that uses one library."""
    return {
        "pid": pid,
        "name": "ray::RayWorkerP",
        "libraries": [library(path, sha256)],
        "used": path,
        "undecided": "",
        "unreadable": "",
    }


def _interfaces(number: int, driver: str, rdma: bool) -> Facts:
    found: Facts = {
        "lo": _interface([f"127.0.0.{1}/8"], 65536),
        "enP7s7": _interface([f"192.168.1.1{number}/24"], 1500),
    }
    for port, twins in SPARK_PORTS.items():
        for half, twin in enumerate(twins):
            mac = f"02:00:00:00:0{number}:{port}{half}"
            cabled = port == 1
            pci = {
                "address": f"000{2 * half}:01:00.{port}",
                "width": 4,
                "max_width": 4,
                "speed": "32.0 GT/s PCIe",
                "max_speed": "32.0 GT/s PCIe",
            }
            found[twin.interface] = _interface(
                [f"10.110.{half}.{number}/24"] * cabled,
                9000 if cabled else 1500,
                mac=mac,
                carrier=cabled,
                driver=driver,
                hca=twin.hca if rdma else "",
                speed=200000 if cabled and rdma else None,
                pci=pci if rdma else None,
                owners=[{"file": NETPLAN_FILE, "id": twin.interface, "kind": "ethernets", "by": "name"}] * cabled,
            )
    return found


def _interface(addresses: list[str], mtu: int, **changes: Any) -> Facts:
    plain = {
        "mac": None,
        "up": True,
        "carrier": True,
        "link_local": "",
        "driver": "",
        "speed": None,
        "kind": "physical",
        "pci": None,
        "hca": "",
    }
    return {**plain, "addresses": addresses, "mtu": mtu, "owners": [], **changes}


def _rdma(number: int) -> Facts:
    devices = {}
    for port, twins in SPARK_PORTS.items():
        for half, twin in enumerate(twins):
            gid = {"index": 3, "gid": f"::ffff:10.110.{half}.{number}", "type": "RoCE v2", "interface": twin.interface}
            state = "ACTIVE" if port == 1 else "DOWN"
            devices[twin.hca] = {
                "interface": twin.interface,
                "state": state,
                "link_layer": "Ethernet",
                "gids": [gid] * (port == 1),
            }
    return devices


def _api() -> Facts:
    state = {"healthy": True, "answers": True, "answered_after": 0.2, "reason": "", "model": "tiny", "root": "/m"}
    state |= {"tokens_per_second": 1.0, "kind": "generate"}
    counts = {"running": 0.0, "waiting": 0.0, "prefix_cache_hit_rate": None, "drafted": 0.0, "accepted": 0.0}
    return {"url": "http://127.0.0.1:8000", **state, **counts, "open": False, "expires": None}


def _software(number: int, head: bool) -> Facts:
    """Return the facts that a simulated and a real node have in common."""
    environment = {
        "NCCL_DEBUG": "WARN",
        "HF_HOME": "hmac:0011223344556677",
        "VLLM_HOST_IP": f"10.110.0.{number}",
        "NCCL_IB_DISABLE": "0",
    }
    environment["RAY_memory_monitor_refresh_ms"] = "0"
    listeners = [
        {"address": "0.0.0.0", "port": 22, "pid": 7, "process": "sshd", "unit": "ssh.service"},
        {"address": f"10.110.0.{number}", "port": 6379, "pid": 701, "process": "raylet", "unit": "gb10-ray.service"},
        {"address": "0.0.0.0", "port": 10002, "pid": 702, "process": "ray::RayWorkerP", "unit": "gb10-ray.service"},
    ]
    if head:
        listeners.append(
            {"address": "0.0.0.0", "port": 8000, "pid": 703, "process": "vllm", "unit": "gb10-vllm.service"}
        )
    return {
        "services": [
            service("gb10-ray.service"),
            service("gb10-vllm.service") if head else service("gb10-vllm.service", load="not-found", pid=None),
        ],
        "ranks": [{"pid": 812, "name": "ray::RayWorkerP", "bytes": 40 * GIB}],
        "available": 60 * GIB,
        "total": 120 * GIB,
        "uptime": 4000.0,
        "driver": "",
        "links": [],
        "error": {},
        "lock": {},
        "hostname": f"spark{number}",
        "record": "",
        "image": "",
        "watchdog": {},
        "reboot": {"required": False, "packages": []},
        "rests": None,
        "memory_guard": {
            "active": True,
            "starts": [
                {
                    "time": NOW - 4000,
                    "seconds": 214,
                    "minimum": 31 * GIB,
                    "floor": 2 * GIB,
                    "phase": "first requests",
                    "end": "answered",
                }
            ],
            "stop": {},
            "done": "",
        },
        "netplan": [NETPLAN_FILE],
        "unreadable": [],
        "infiniband": False,
        "cma_total_bytes": None,
        "cma_free_bytes": None,
        "gpu_device": False,
        "temperature_c": None,
        "planned": {
            twin.interface: {"addresses": [f"10.110.{half}.{number}/24"], "mtu": 9000}
            for half, twin in enumerate(_RAILS)
        },
        "processes": [process(812, "ray::RayWorkerP", "gb10-ray.service")],
        "rank_users": ["gb10"],
        "environments": {
            "cluster.env": environment,
            "gb10-ray.service": {**environment, "PATH": "hmac:8899aabbccddeeff"},
        },
        "runtime": "/opt/gb10/runtime/0123456789ab/lib/python3.12/site-packages",
        "packages": {"ray": "2.60.0", "torch": "2.9.1", "vllm": "0.32.0"},
        "files": {"changed": [], "patched": {"vllm/envs.py": "b" * 64}, "missing": []},
        "kernels": None,
        "evidence": _evidence("cuda") if head else None,
        "images": [],
        "disks": [{"path": "/", "free": 60 * GIB, "total": 250 * GIB, "files_free": 0.9}],
        "listeners": listeners,
        "firewalls": ["peer_firewall"],
        "remove_ipc": True,
        "login_users": ["nvidia", "root"],
        "lingering": [],
        "ray": {"nodes": [{"address": f"10.110.0.{each}", "alive": True} for each in (1, 2)], "open": False}
        if head
        else None,
        "api": _api() if head else None,
        "unread": {},
        "clock": NOW + 2,
    }


def _evidence(device: str) -> Facts:
    """Return the evidence in the log of a start on the head, which has the messages of all ranks with Ray."""
    planned = {"attention": "TRITON_ATTN", "moe_backend": "marlin", "sampler": "native", "autotune": "off"}
    planned |= {"graphs": True, "speculative": True, "prefix_caching": True}
    engine = {"release": ["0.32.0"], "device": [device], "speculative": ["None"], "prefix_caching": ["False"]}
    rank: Facts = {}
    if device == "cuda":
        engine |= {"speculative": ["SpeculativeConfig"], "prefix_caching": ["True"], "kv_cache": ["1,000 tokens"]}
        rank = {
            "attention": ["TRITON_ATTN"],
            "moe_backend": ["MARLIN NvFp4"],
            "network": ["IB"],
            "graphs": ["Graph capturing finished"],
        }
        rank |= {
            "kernel": ["MarlinNvFp4LinearKernel"],
            "weight_only": ["FP4"],
            "sampler": ["native"],
            "autotune": ["off"],
        }
    processes = [{"process": "EngineCore", "address": "", "found": engine}]
    for number, address in enumerate(("", "10.110.0.2")):
        processes.append(
            {
                "process": f"Worker_TP{number}",
                "address": address,
                "found": {name: list(values) for name, values in rank.items()},
            }
        )
    recorded = json.loads(json.dumps(processes))
    disabled = ["CutlassFP8ScaledMMLinearKernel"]
    return {
        "planned": {**planned, "rdma": True, "disabled": disabled},
        "processes": processes,
        "recorded": recorded,
        "complete": True,
    }


def _gpu_state(**known: float) -> Facts:
    names = ("clock_mhz", "max_clock_mhz", "power_w", "temperature_c", "utilization", "limit_mhz")
    return {**dict.fromkeys(names), "slowed": [], **known}


def _lab(number: int) -> Facts:
    """Return a simulated Spark: no GPU, no RDMA, no firmware, a CPU build without NCCL."""
    rank = {"pid": 812, "name": "ray::RayWorkerP", "libraries": [], "used": None, "undecided": "", "unreadable": ""}
    return {
        "interfaces": _interfaces(number, "veth", rdma=False),
        "rdma": {},
        "kernel": "6.18.44",
        "gpu": {"gpus": [], "driver_version": None, "memory_bytes": 120 * GIB, "reason": "nvidia-smi is not installed"},
        "gpu_state": _gpu_state(),
        "boot": {"kernel": "", "nvidia": None, "missing": []},
        "adapter": [],
        "updates": {},
        "product": "",
        "bios": "",
        "firmware": {},
        "nccl": [rank],
        "nccl_installed": None,
        "cuda_libraries": [],
        "evidence": _evidence("cpu") if number == 1 else None,
    }


def _spark(number: int) -> Facts:
    """Return a real Spark under load."""
    nccl = "/opt/gb10/nccl/2.30.7/lib/libnccl.so.2.30.7"
    return {
        "interfaces": _interfaces(number, "mlx5_core", rdma=True),
        "rdma": _rdma(number),
        "infiniband": True,
        "kernel": "6.17.0-1031-nvidia",
        "cma_total_bytes": 4 * GIB,
        "cma_free_bytes": GIB,
        "gpu": {
            "gpus": [{"name": "NVIDIA GB10", "capability": "12.1"}],
            "driver_version": "580.142",
            "memory_bytes": 120 * GIB,
            "reason": "",
        },
        "gpu_device": True,
        "gpu_state": _gpu_state(
            clock_mhz=2405.0, max_clock_mhz=3003.0, power_w=45.0, temperature_c=62.0, utilization=96.0
        ),
        "temperature_c": 71.0,
        "boot": {"kernel": "6.17.0-1031-nvidia", "nvidia": True, "missing": []},
        "adapter": [],
        "updates": {"level": {"stamp": "7.5.0", "installed": "OTA2.2", "newest": "OTA2.2", "torn": 0.0}},
        "product": "NVIDIA_DGX_Spark",
        "bios": "5.36_0ACUM018",
        "firmware": {twin.hca: "28.45.4028" for twins in SPARK_PORTS.values() for twin in twins},
        "nccl": [maps(812, nccl)],
        "nccl_installed": {"path": nccl, "sha256": "a" * 64, "version": "2.30.7", "gcc": [], "recorded": "a" * 64},
        "cuda_libraries": ["/usr/lib/aarch64-linux-gnu/libcuda.so.580.142"],
        "kernels": {
            "capability": "12.1",
            "extensions": _extensions(),
            "chosen": {"--moe-backend": "marlin"} if number == 1 else {},
        },
    }


def _extensions() -> Facts:
    """Return the counts of the wheel of vLLM 0.33.0 for aarch64."""
    ways = ("native", "same_major", "ptx", "none")
    counts = {
        "_C_stable_libtorch": (0, 85, 6, 20),
        "_flashmla_C": (0, 0, 0, 53),
        "_moe_C_stable_libtorch": (0, 27, 1, 0),
    }
    return {f"vllm/{name}": dict(zip(ways, each, strict=True)) for name, each in counts.items()}


def pair(kind: str = "spark") -> list[Facts]:
    """Return two healthy nodes in the form of the filters: kind spark, lab or foreign."""
    own = {"spark": _spark, "lab": _lab, "foreign": _spark}[kind]
    nodes = []
    for number in (1, 2):
        facts = copy.deepcopy({**_software(number, number == 1), **own(number)})
        if kind == "foreign":
            facts |= _foreign(number, facts)
        known = {"name": f"spark{number}", "head": number == 1, "unreachable": "", "facts": facts, "paths": []}
        nodes.append({**known, "started": NOW, "finished": NOW + 4})
    return nodes


def healthy(count: int, ring: bool = False) -> list[Facts]:
    """Return healthy Sparks on a switch at port 1, or in a ring with cables from port 0 to port 1 of the next one."""
    head, worker = pair()
    nodes = [copy.deepcopy(worker if number else head) for number in range(count)]
    for number, node in enumerate(nodes, 1):
        node["name"], facts = f"spark{number}", node["facts"]
        facts["planned"] = {}
        for port, twins in SPARK_PORTS.items():
            cable = number - 1 if port == 0 else (number - 2) % count
            for half, twin in enumerate(twins):
                if ring or port == 1:
                    address = f"10.110.{2 * cable + half}.{1 + port}/24" if ring else f"10.110.{half}.{number}/24"
                    _cable(facts, twin, address)
        facts["interfaces"]["enP7s7"]["addresses"] = [f"192.168.1.{10 + number}/24"]
        host = facts["interfaces"]["enp1s0f1np1"]["addresses"][0].split("/")[0]
        for environment in facts["environments"].values():
            environment["VLLM_HOST_IP"] = host
        for listener in facts["listeners"]:
            if listener["address"].startswith("10.110."):
                listener["address"] = host
    hosts = [node["facts"]["environments"]["cluster.env"]["VLLM_HOST_IP"] for node in nodes]
    nodes[0]["facts"]["ray"]["nodes"] = [{"address": host, "alive": True} for host in hosts]
    return nodes


def _cable(facts: Facts, twin: Any, address: str) -> None:
    owner = {"file": NETPLAN_FILE, "id": twin.interface, "kind": "ethernets", "by": "name"}
    facts["interfaces"][twin.interface] |= {
        "addresses": [address],
        "mtu": 9000,
        "carrier": True,
        "speed": 200000,
        "owners": [owner],
    }
    facts["planned"][twin.interface] = {"addresses": [address], "mtu": 9000}
    gid = {
        "index": 3,
        "gid": f"::ffff:{address.split('/', maxsplit=1)[0]}",
        "type": "RoCE v2",
        "interface": twin.interface,
    }
    facts["rdma"][twin.hca] |= {"state": "ACTIVE", "gids": [gid]}


def _foreign(number: int, facts: Facts) -> Facts:
    """Return the facts of a cluster in containers, without a file or unit of this collection."""
    for found in facts["interfaces"].values():
        found["owners"] = [{**owner, "file": "/etc/netplan/40-cx7.yaml"} for owner in found["owners"]]
    environment = {"NCCL_DEBUG": "INFO", "VLLM_HOST_IP": f"10.110.0.{number}"}
    missing = {"load": "not-found", "enabled": False, "active": "inactive", "pid": None}
    return {
        "services": [service(unit, **missing) for unit in ("gb10-ray.service", "gb10-vllm.service")],
        "planned": {},
        "environments": {"ranks": environment},
        "processes": [
            process(812, "VLLM::Worker_TP", "", user="root"),
            process(813, "VLLM::EngineCor", "", user="root"),
        ],
        "ranks": [{"pid": 812, "name": "VLLM::Worker_TP", "bytes": 40 * GIB}],
        "rank_users": ["root"],
        "nccl_installed": None,
        "runtime": "/proc/812/root/usr/local/lib/python3.12/dist-packages",
        "files": None,
        "evidence": None,
        "images": [
            {"name": "vllm", "image": "nvcr.io/nvidia/vllm:26.09", "id": "sha256:" + "c" * 64, "engine": "docker"}
        ],
        "listeners": [],
        "ray": None,
        "firewalls": [],
    }


def plant(nodes: list[Facts], changes: Facts) -> list[Facts]:
    """Return the nodes with other facts, by the index of the node and the keys: * is each key, + appends to a list."""
    for path, value in changes.items():
        *parents, last = path.split("/")
        places: list[Any] = [[node["facts"] for node in nodes]]
        for key in parents:
            below = (
                place.values() if key == "*" else [place[int(key) if isinstance(place, list) else key]]
                for place in places
            )
            places = [each for found in below for each in found]
        for place in places:
            if last == "+":
                place.append(copy.deepcopy(value))
            else:
                place[last] = copy.deepcopy(value)
    return nodes


def cluster(nodes: Sequence[Facts]) -> Cluster:
    """Return nodes, such as those of pair(), as the checks see them."""
    return Cluster([VerifiedNode(**node) for node in nodes])


def findings(nodes: Sequence[Facts], groups: Sequence[str] = GROUPS) -> dict[str, list[str]]:
    """Return {ID: the findings as "node: text"}."""
    found: dict[str, list[str]] = {}
    for finding in report.findings(cluster(nodes), groups, {}):
        found.setdefault(finding.check.id, []).append(f"{finding.place}: {finding.found}")
    return found
