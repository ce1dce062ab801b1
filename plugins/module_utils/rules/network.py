# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about several nodes: how they reach each other, how the model is split over them, and that they are started alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import (
    CONSELARA,
    ERROR,
    INFO,
    MIXED_NOTES,
    SPARK,
    THOR,
    WARNING,
    Found,
    Rule,
    View,
    version,
    when,
)

#: Variables that are each node's own.
_OWN = frozenset(
    "VLLM_HOST_IP NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME TP_SOCKET_IFNAME UCX_NET_DEVICES NCCL_IB_HCA NCCL_IB_GID_INDEX MN_IF_NAME "
    "OMPI_MCA_btl_tcp_if_include RAY_NODE_IP_ADDRESS RAY_OVERRIDE_NODE_IP_ADDRESS VLLM_API_KEY GB10_INPUTS".split()
)
#: What all nodes must agree on even where their GPUs differ.
_COMMON = ("NCCL_", "RAY_")
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD")
_TWIN = re.compile(r"roce(P2)?p1s0f([01])")
_RING = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0"}
_FULLY_CONNECTED_RING = 3
#: What a unit gives its container, whatever the node.
_NETWORK = "--network"
_PLANNED = {"--ipc": "host"}


def _other_than(right: str) -> Callable[[str | None], bool]:
    return lambda value: value != right


def _bridge(view: View) -> list[Found]:
    if view.data["runtime"] != "container":
        return []
    changed: Mapping[str, tuple[str, str]] = view.data.get("container", {})
    bridged = view.ranks > 1 and view.data["network"] != "host"
    path = changed[_NETWORK][0] if _NETWORK in changed else "network"
    # The two containers of a node share what Ray keeps in memory, Ray looks after its drivers by their numbers, and its token is the service user's.
    own = ("--ipc", "--user", "--pid") if view.data["executor"] == "ray" else ("--ipc", "--user")
    others = [(option, *changed[option]) for option in own if option in changed]
    return when(bridged, (path, view.data["network"] or "not given")) + [
        (where, f"{option}={value}") for option, where, value in others if value != _PLANNED.get(option)
    ]


def _devices_unset(view: View) -> list[Found]:
    return view.variable("NCCL_IB_HCA", lambda value: not value) if view.roce else []


def _half(value: str | None) -> bool:
    """Whether a list of devices has only one of the two that share a port."""
    twins: dict[str, set[str]] = {}
    for name in (value or "").removeprefix("=").split(","):
        if match := _TWIN.fullmatch(name.partition(":")[0].strip()):
            twins.setdefault(match[2], set()).add(match[1] or "")
    return any(len(found) == 1 for found in twins.values())


def _one_twin(view: View) -> list[Found]:
    return view.variable("NCCL_IB_HCA", _half) if view.roce else []


def _roce_off(view: View) -> list[Found]:
    return view.variable("NCCL_IB_DISABLE", lambda value: value == "1") if view.roce else []


def _gid(view: View) -> list[Found]:
    return view.variable("NCCL_IB_GID_INDEX", lambda value: value is not None) if view.roce else []


def _tp_sockets(view: View) -> list[Found]:
    size = view.data["tensor_parallel_size"]
    return when(size > 1 and view.data["transport"] == "socket" and not view.has(THOR), ("gb10_tensor_parallel_size", f"{size} over sockets"))


def _tp_thor(view: View) -> list[Found]:
    size = view.data["tensor_parallel_size"]
    return when(size > 1, ("gb10_tensor_parallel_size", f"{size} with {', '.join(node['name'] for _index, node in view.nodes)}"))


def _mixed(view: View) -> list[Found]:
    return view.variable("NCCL_IB_DISABLE", lambda value: value != "1") if view.has(THOR) else []


def _odd_split(view: View) -> list[Found]:
    size = view.data["tensor_parallel_size"]
    return when(size & (size - 1) != 0, ("gb10_tensor_parallel_size", str(size)))


def _stages(view: View) -> list[Found]:
    stages, even = view.data["pipeline_parallel_size"], view.ranks & (view.ranks - 1) == 0
    return when(stages > 1 and even and view.roce and not view.has(THOR), ("gb10_pipeline_parallel_size", str(stages)))


def _ring(view: View) -> list[Found]:
    if view.data["topology"] != "ring" or not view.roce:
        return []
    wanted = _RING | ({"NCCL_ALGO": "Ring"} if view.ranks > _FULLY_CONNECTED_RING else {})
    return [found for name, right in wanted.items() for found in view.variable(name, _other_than(right))]


def _ring_nccl(view: View) -> list[Found]:
    loaded = version(view.data["nccl"])
    return when(view.data["topology"] == "ring" and view.roce and loaded is not None and loaded < (2, 30), ("nccl", view.data["nccl"]))


def _host_ip(view: View) -> list[Found]:
    if view.ranks < 2:
        return []
    addresses = [node["environment"].get("VLLM_HOST_IP") for _index, node in view.nodes]
    return view.variable("VLLM_HOST_IP", lambda value: not value or value.startswith("127.") or addresses.count(value) > 1)


def _interfaces(view: View) -> list[Found]:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return [found for name in names for found in view.variable(name, lambda value: not value)] if view.ranks > 1 else []


def _gdr(view: View) -> list[Found]:
    forced = view.variable("NCCL_NET_GDR_LEVEL", lambda value: value not in (None, "0", "LOC"))
    return forced + view.variable("NCCL_DMABUF_ENABLE", lambda value: value == "1")


def _cross(view: View) -> list[Found]:
    devices = [node["environment"].get("NCCL_IB_HCA") or "" for _index, node in view.nodes]
    dual = any(value.count(",") for value in devices)
    return view.variable("NCCL_CROSS_NIC", lambda value: value == "1") if view.roce and dual else []


def _plugin(view: View) -> list[Found]:
    container = view.data["runtime"] == "container"
    return view.variable("NCCL_NET_PLUGIN", lambda value: value is None) if container and view.roce else []


def _differences(index: int, node: Mapping[str, Any], first: Mapping[str, Any], names: set[str]) -> list[Found]:
    found = []
    for name in sorted(names):
        here, there = (each["environment"].get(name) for each in (node, first))
        if here != there:
            shown = ["unset" if value is None else "another value" if _SECRET.search(name) else repr(value) for value in (here, there)]
            found.append((f"nodes[{index}].environment.{name}", f"{shown[0]} on {node['name']}, {shown[1]} on {first['name']}"))
    return found


def _unequal(view: View) -> list[Found]:
    found: list[Found] = []
    for index, node in view.nodes[1:]:
        _index, first = view.nodes[0]
        alike = next(other for _index, other in view.nodes if other["capability"] == node["capability"])
        names = (node["environment"].keys() | first["environment"].keys() | alike["environment"].keys()) - _OWN
        common = {name for name in names if name.startswith(_COMMON)}
        found += _differences(index, node, first, common) + _differences(index, node, alike, names - common)
    return found


RULES = (
    Rule(
        "bridge-network",
        ERROR,
        when=(
            "containers on several nodes that are not on the host's network, or that get other shared memory, another user or, with Ray, other "
            "processes to see than the unit gives them"
        ),
        check=_bridge,
        why=(
            "the ranks cannot meet: NCCL and Ray hand out addresses that exist only inside the container, and what Ray and its drivers share is "
            "in the host's memory and readable by the service's user"
        ),
        fix="network host, and leave --ipc, --user and --pid to the unit",
        source=f"{CONSELARA}; eugr/spark-vllm-docker, launch-cluster.sh",
        evidence="2026-09",
        gpus=(),
    ),
    Rule(
        "nccl-ib-hca-unset",
        WARNING,
        when="RoCE between nodes without `NCCL_IB_HCA`",
        check=_devices_unset,
        why="NCCL can take the wrong devices, or one of a port's two, and hang without a word",
        fix="leave it to the plan, or name both twins of each cabled port",
        source=f"{CONSELARA}; NVIDIA/dgx-spark-playbooks#102",
        evidence="2026-08",
        disputed=(
            "NVIDIA's NCCL playbook leaves it to NCCL (2026-08-12); users of the same month had to pin both twins of one cable to have its bandwidth "
            "(NVIDIA/dgx-spark-playbooks#103). Pin it unless you measured"
        ),
    ),
    Rule(
        "nccl-ib-hca-half",
        WARNING,
        when="`NCCL_IB_HCA` names only one of the two devices of a port",
        check=_one_twin,
        why="each is an x4 link of its own and carries at most half of the port: 98 instead of 161 Gb/s, while the link says 200",
        fix="name both, such as rocep1s0f1,roceP2p1s0f1",
        source="tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35; NVIDIA/dgx-spark-playbooks#103",
        evidence="2026-09",
        disputed="end to end it is worth 5 % of prefill and nothing of decode (MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#104, 2026-08)",
    ),
    Rule(
        "nccl-gid-index",
        WARNING,
        when="RoCE with `NCCL_IB_GID_INDEX`, also where it is empty, which is 0",
        check=_gid,
        why=(
            "the index moves when addresses come and go (3 to 4 within half an hour on one device), and then the pinned one fails on that "
            "device; 0 is link-local or RoCEv1"
        ),
        fix="leave it unset (gb10_fabric_pin_gid_index: false): NCCL 2.21 and newer choose for each device",
        source="tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#38; NVIDIA/nccl#2157",
        evidence="2026-09",
        disputed=(
            "conselara.dev pins 3 (2026-05) and AEON-7 still does (2026-08), Avarok pinned 0 (2026-02); NVIDIA and eugr leave it unset, and "
            "the reports of the drift are newer. A pin holds where the devices have no IPv6 address and nothing changes them"
        ),
    ),
    Rule(
        "roce-disabled",
        WARNING,
        when="a fabric of RoCE with `NCCL_IB_DISABLE=1`",
        check=_roce_off,
        why="NCCL falls back to TCP: it works, at about a quarter of the throughput",
        fix="leave it to the plan (0); choose gb10_fabric_transport: socket if sockets are meant",
        source="vllm-gb10 (pull request 24), eugr/spark-vllm-docker#252",
        evidence="2026-06",
        disputed="vllm-gb10's first guide (vLLM 0.18.1) set 1; its own later measurement is against it, and no current source is for it",
    ),
    Rule(
        "tp-over-sockets",
        WARNING,
        when="tensor parallelism between nodes without RoCE",
        check=_tp_sockets,
        why="every layer waits for the network twice; users call it unbearably slow",
        fix="pipeline parallelism over Ethernet, or RoCE",
        source=f"{MIXED_NOTES}; eugr/spark-vllm-docker#252",
        evidence="2026-06",
        gpus=(),
    ),
    Rule(
        "tp-thor",
        WARNING,
        when="tensor parallelism over a Jetson Thor and other nodes",
        check=_tp_thor,
        why="a Thor has 25 Gb/s Ethernet and no RoCE, and every layer waits for the slowest node",
        fix="gb10_pipeline_parallel_size: the number of nodes",
        source=f"{MIXED_NOTES}; eugr/spark-vllm-docker#216",
        evidence="2026-03",
        gpus=(THOR,),
    ),
    Rule(
        "mixed-transport",
        ERROR,
        when="Sparks and Thors together without `NCCL_IB_DISABLE=1` on the Sparks",
        check=_mixed,
        why="the Sparks would offer RoCE and the Thors sockets: NCCL stops with 'wrong type 3 != 4'",
        fix="gb10_fabric_topology: socket, which sets it",
        source=MIXED_NOTES,
        evidence="2026 (vLLM 0.17.1)",
    ),
    Rule(
        "tensor-parallel-size",
        WARNING,
        when="a tensor parallel size that is no power of two",
        check=_odd_split,
        why="heads and experts of the usual models do not divide by it, and vLLM then refuses the model",
        fix="a power of two, or pipeline parallelism over three nodes",
        source="eugr/spark-vllm-docker README and #246",
        evidence="2026-09",
        gpus=(),
    ),
    Rule(
        "pipeline-speed",
        INFO,
        when="2, 4 or 8 Sparks with RoCE and pipeline parallelism",
        check=_stages,
        why="stages give room, not speed: on four Sparks PP 4 made 4.4 tokens a second and TP 4 13.0",
        fix="gb10_tensor_parallel_size: the number of nodes",
        source="yunwei37 (GLM-5.2, a ring of 4), unslothai/unsloth#10280",
        evidence="2026-09",
    ),
    Rule(
        "ring-environment",
        WARNING,
        when="a ring whose environment lacks subnet-aware routing, unmerged devices or, from 4 nodes on, the ring algorithm",
        check=_ring,
        why="not every pair of a ring has a cable; without these NCCL tries those that have none: ibv_modify_qp fails with 110",
        fix="leave the three variables to the plan",
        source="NVIDIA/dgx-spark-playbooks, connect-three-sparks; eugr/spark-vllm-docker NETWORKING.md and #252",
        evidence="2026-09",
    ),
    Rule(
        "ring-nccl",
        WARNING,
        when="a ring with NCCL below 2.30",
        check=_ring_nccl,
        why="releases before do not know NCCL_IB_SUBNET_AWARE_ROUTING",
        fix="NCCL 2.30.4 or newer",
        source="eugr/spark-vllm-docker (2026-05-18); NVIDIA/dgx-spark-playbooks, nccl",
        evidence="2026-08-12",
    ),
    Rule(
        "host-ip",
        WARNING,
        when="several nodes and a `VLLM_HOST_IP` that is unset, loopback, or another node's too",
        check=_host_ip,
        why=(
            "vLLM guesses by the default route, Ray says another address, and the ranks do not find each other: 'Every node should have a "
            "unique IP address'"
        ),
        fix="leave it to the plan: each node's address on the fabric",
        source="vllm-gb10 (vLLM 0.18.1); vLLM 0.32.0, utils/network_utils.py line 52",
        evidence="2026-06",
        gpus=(),
    ),
    Rule(
        "socket-interface",
        WARNING,
        when="several nodes without `GLOO_SOCKET_IFNAME` or `NCCL_SOCKET_IFNAME`",
        check=_interfaces,
        why="the rendezvous takes whatever interface the host names first, such as loopback or Wi-Fi: connection refused, or the slow network",
        fix="leave them to the plan",
        source=f"{CONSELARA}; vllm-gb10 (vLLM 0.18.1); NVIDIA's vLLM playbook",
        evidence="2026-07",
        gpus=(SPARK, THOR),
    ),
    Rule(
        "gpudirect-rdma",
        WARNING,
        when="NCCL is told to use GPUDirect RDMA (`NCCL_NET_GDR_LEVEL`, `NCCL_DMABUF_ENABLE`)",
        check=_gdr,
        why="a GB10 has none, and forcing it can hang the start",
        fix="leave both unset, or NCCL_NET_GDR_LEVEL=0",
        source="NVIDIA, DGX Spark porting guide; NVIDIA/nccl#2213",
        evidence="2026-08",
        disputed=(
            "a log of November 2025 prints it as enabled, vllm-gb10 sets SYS (vLLM 0.18.1); NVIDIA says that neither peermem, DMA-BUF nor "
            "GDRCopy work, and is newer"
        ),
    ),
    Rule(
        "nccl-net-plugin",
        INFO,
        when="a container with RoCE and without `NCCL_NET_PLUGIN=none`",
        check=_plugin,
        why="the plugin for another cloud's network in NGC's images can take over and fall back to TCP",
        fix="NCCL_NET_PLUGIN=none",
        source=CONSELARA,
        evidence="2026-05",
    ),
    Rule(
        "environment-differs",
        WARNING,
        when="a variable differs between ranks that is not a node's own; between different GPUs, only NCCL's and Ray's",
        check=_unequal,
        why=(
            "ranks that choose different kernels or transports answer wrongly, slowly or not at all, and Ray cannot give a worker the "
            "driver's environment"
        ),
        fix="gb10_extra_env for all nodes alike",
        source="eugr/spark-vllm-docker README; gpustack/gpustack#2691",
        evidence="2026-08",
        gpus=(),
    ),
    Rule(
        "idle-stall",
        WARNING,
        when="vLLM 0.27 on four nodes or more",
        check=lambda view: when(view.ranks >= 4 and view.before(0, 28) and (not view.before(0, 27)), ("release", view.data["release"])),
        why=(
            "it stalls for good after a minute without requests: with speculative decoding the length of a padded slot becomes negative, and a "
            "kernel never ends. Keeping the API busy does not help"
        ),
        fix="vLLM 0.28 or newer, which has the fix (vllm-project/vllm#51538), or no speculative decoding",
        source="vllm-project/vllm#51921, #51593 (the cause); vLLM 0.28.0, v1/attention/backends/mla/indexer.py line 87",
        evidence="2026-08-12",
        disputed=(
            "the same user found first that without speculative decoding or with that fix idling is survived, and hours later that after heavy load "
            "neither helps (vllm-project/vllm#51921, both 2026-08-12); the same four Sparks also stalled in NCCL (NVIDIA/nccl#2334, 2026-08-11)"
        ),
        exercised="the condition: unit tests; the fix: read in vLLM 0.28.0, and missing in 0.25.1; the effect: nowhere here",
    ),
    Rule(
        "nccl-cross-nic",
        WARNING,
        when="RoCE over several devices with `NCCL_CROSS_NIC=1`",
        check=_cross,
        why=(
            "hours into serving at full load receivers waited for data that had come, with NCCL 2.28.9, 2.30.4 and 2.30.7: every rank hangs, "
            "the API stays green"
        ),
        fix="leave it unset",
        source="NVIDIA/nccl#2334 (open; four Sparks, two models)",
        evidence="2026-08-11",
    ),
    Rule(
        "nccl-nvls",
        INFO,
        when="`NCCL_NVLS_ENABLE=0`",
        check=lambda view: view.variable("NCCL_NVLS_ENABLE", lambda value: value == "0"),
        why="a Spark has no NVLink switch that it could turn off, and that it cures a hang while a MoE is loaded was not shown",
        fix="leave it unset, unless loading hangs without it",
        source="NVIDIA/nccl#2167",
        evidence="2026-05-10",
        disputed=(
            "on eight Sparks 2.30.4 hung two of three loads of a MoE without it, and Kimi K2.6 loaded with it (vllm-project/vllm#40969); when the "
            "same configuration then came up without it, its author took back that it is the fix (NVIDIA/nccl#2167, all 2026-05-10). Another "
            "user still names it the one that counts (eugr/spark-vllm-docker#260, 2026-06)"
        ),
    ),
)
