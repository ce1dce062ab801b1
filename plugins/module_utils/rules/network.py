# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about several nodes: the network, the split of the model, and equal launch settings on all nodes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, INFO, WARNING, Found
from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release as version
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import topology
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import (
    CONSELARA,
    LINT,
    MIXED_NOTES,
    SPARK,
    THOR,
    RuleNode,
    View,
    rule,
    when,
)

#: Variables with a different value on each node.
OWN = frozenset(
    "VLLM_HOST_IP NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME TP_SOCKET_IFNAME UCX_NET_DEVICES NCCL_IB_HCA "
    "NCCL_IB_GID_INDEX MN_IF_NAME OMPI_MCA_btl_tcp_if_include RAY_NODE_IP_ADDRESS RAY_OVERRIDE_NODE_IP_ADDRESS "
    "VLLM_API_KEY GB10_INPUTS PATH CUDA_HOME".split()
)
#: Prefixes of variables that must be equal on all nodes, even with different GPUs.
COMMON = ("NCCL_", "RAY_")
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD")
_TWIN = re.compile(r"roce(P2)?p1s0f([01])")
_RING, _MERGE = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1"}, "NCCL_IB_MERGE_NICS"
_FULLY_CONNECTED_RING = 3
#: The images with the plugin.
_WITH_PLUGIN = ("nvcr.io/nvidia/vllm:26.03", "nvcr.io/nvidia/vllm:26.04")
#: The reports are from four Sparks.
_IDLE_RANKS = 4
#: The options that a unit gives its container on every node.
_NETWORK = "--network"
_PLANNED = {"--ipc": "host"}


def _with_roce(name: str, wrong: Callable[[str | None], bool]) -> Callable[[View], list[Found]]:
    """Return the check of a variable that only counts with RoCE."""
    return lambda view: view.variable(name, wrong) if view.roce else []


def _bridge(view: View) -> list[Found]:
    if view.situation.runtime != "container":
        return []
    changed: Mapping[str, tuple[str, str]] = view.situation.container
    bridged = view.ranks > 1 and view.situation.network != "host"
    path = changed[_NETWORK][0] if _NETWORK in changed else "network"
    # The two containers of a node share Ray's objects in memory. Ray monitors its drivers by their process IDs. Its
    # token belongs to the service user.
    options = ("--ipc", "--user", "--pid") if view.by_ray else ("--ipc", "--user")
    others = [(option, *changed[option]) for option in options if option in changed]
    return when(bridged, (path, view.situation.network or "not given")) + [
        (where, f"{option}={value}") for option, where, value in others if value != _PLANNED.get(option)
    ]


def _half(value: str | None) -> bool:
    """Whether a device list has only one of the two PCIe functions of a port."""
    twins: dict[str, set[str]] = {}
    for name in (value or "").removeprefix("=").split(","):
        if match := _TWIN.fullmatch(name.partition(":")[0].strip()):
            twins.setdefault(match[2], set()).add(match[1] or "")
    return any(len(found) == 1 for found in twins.values())


def _roce_off(view: View) -> list[Found]:
    """Compare with the plan: the variables that the ranks run with decide the transport themselves."""
    if view.ranks < 2 or not any(node.fabric.get("NCCL_IB_DISABLE") == "0" for _index, node in view.nodes):
        return []
    found = view.variable("NCCL_IB_DISABLE", lambda value: value == "1")
    found += view.variable("NCCL_NET", lambda value: value is not None and value.lower() == "socket")
    stages = view.situation.pipeline_parallel_size
    return [(path, f"{value}, with {stages} pipeline stages" if stages > 1 else value) for path, value in found]


def _tp_sockets(view: View) -> list[Found]:
    size = view.situation.tensor_parallel_size
    return when(
        size > 1 and view.situation.transport == "socket" and not view.has(THOR),
        ("gb10_tensor_parallel_size", f"{size} over sockets"),
    )


def _tp_thor(view: View) -> list[Found]:
    size = view.situation.tensor_parallel_size
    return when(
        size > 1, ("gb10_tensor_parallel_size", f"{size} with {', '.join(node.name for _index, node in view.nodes)}")
    )


def _mixed(view: View) -> list[Found]:
    return view.variable("NCCL_IB_DISABLE", lambda value: value != "1") if view.has(THOR) else []


def _odd_split(view: View) -> list[Found]:
    size = view.situation.tensor_parallel_size
    return when(size & (size - 1) != 0, ("gb10_tensor_parallel_size", str(size)))


def _stages(view: View) -> list[Found]:
    stages, even = view.situation.pipeline_parallel_size, view.ranks & (view.ranks - 1) == 0
    return when(stages > 1 and even and view.roce and not view.has(THOR), ("gb10_pipeline_parallel_size", str(stages)))


def _ring(view: View) -> list[Found]:
    if view.situation.topology != "ring" or not view.roce:
        return []
    wanted = _RING | (topology.SPARSE_RING if view.ranks > _FULLY_CONNECTED_RING else {})
    merging = {node.fabric[_MERGE] for _index, node in view.nodes if _MERGE in node.fabric}
    unlike = view.variable(_MERGE, lambda value: bool(merging) and value not in merging)
    return unlike + [
        found for name, right in wanted.items() for found in view.variable(name, partial(operator.ne, right))
    ]


def _ring_nccl(view: View) -> list[Found]:
    loaded = version(view.situation.nccl)
    return when(
        view.situation.topology == "ring" and view.roce and loaded is not None and loaded < (2, 30),
        ("nccl", view.situation.nccl),
    )


def _host_ip(view: View) -> list[Found]:
    if view.ranks < 2:
        return []
    addresses = [node.environment.get("VLLM_HOST_IP") for _index, node in view.nodes]
    return view.variable(
        "VLLM_HOST_IP", lambda value: not value or value.startswith("127.") or addresses.count(value) > 1
    )


def _interfaces(view: View) -> list[Found]:
    if view.ranks < 2:
        return []
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    unset = [found for name in names for found in view.variable(name, lambda value: not value)]
    # NCCL reads = as an exact name.
    return unset + [
        (f"gb10_extra_env.{name}", f"{given!r} instead of {node.fabric[name]!r} on {node.name}")
        for name in names
        for _index, node in view.nodes
        if (given := node.environment.get(name))
        and given.removeprefix("=") != node.fabric.get(name, given.removeprefix("="))
    ]


def _gdr(view: View) -> list[Found]:
    forced = view.variable("NCCL_NET_GDR_LEVEL", lambda value: value not in (None, "0", "LOC"))
    return forced + view.variable("NCCL_DMABUF_ENABLE", lambda value: value == "1")


def _cross(view: View) -> list[Found]:
    devices = [node.environment.get("NCCL_IB_HCA") or "" for _index, node in view.nodes]
    dual = any(value.count(",") for value in devices)
    return view.variable("NCCL_CROSS_NIC", lambda value: value == "1") if view.roce and dual else []


def _plugin(view: View) -> list[Found]:
    ngc = view.situation.runtime == "container" and view.situation.image.startswith(_WITH_PLUGIN)
    return view.variable("NCCL_NET_PLUGIN", lambda value: value is None) if ngc and view.roce else []


def _idle(view: View) -> list[Found]:
    affected = view.before(0, 28) and not view.before(0, 27) and view.ranks >= _IDLE_RANKS
    return when(affected and bool(view.speculative()), ("release", view.situation.release))


def _differences(index: int, node: RuleNode, first: RuleNode, names: set[str]) -> list[Found]:
    found = []
    for name in sorted(names):
        here, there = (each.environment.get(name) for each in (node, first))
        if here != there:
            shown = [
                "unset" if value is None else "another value" if _SECRET.search(name) else repr(value)
                for value in (here, there)
            ]
            found.append(
                (f"nodes[{index}].environment.{name}", f"{shown[0]} on {node.name}, {shown[1]} on {first.name}")
            )
    return found


def _unequal(view: View) -> list[Found]:
    found: list[Found] = []
    for index, node in view.nodes[1:]:
        _index, first = view.nodes[0]
        alike = next(other for _index, other in view.nodes if other.capability == node.capability)
        names = (node.environment.keys() | first.environment.keys() | alike.environment.keys()) - OWN
        common = {name for name in names if name.startswith(COMMON)}
        found += _differences(index, node, first, common) + _differences(index, node, alike, names - common)
    return found


RULES = (
    rule(
        "bridge-network",
        ERROR,
        shows=(
            "containers on several nodes that are outside the host's network, or whose shared memory, user or (with "
            "Ray) process namespace differs from the unit's"
        ),
        detect=_bridge,
        why=(
            "the ranks cannot connect: NCCL and Ray publish addresses that exist only inside the container. Ray and "
            "its drivers share objects in the host's memory that the service's user must be able to read"
        ),
        fix="use network host, and let the unit set --ipc, --user and --pid",
        source=f"{CONSELARA}; eugr/spark-vllm-docker, launch-cluster.sh",
        evidence="2026-09",
        gpus=(),
    ),
    rule(
        "nccl-ib-hca-unset",
        WARNING,
        shows="RoCE between nodes without `NCCL_IB_HCA`",
        detect=_with_roce("NCCL_IB_HCA", lambda value: not value),
        why="NCCL can choose the wrong devices, or only one of a port's two, and hang without a message",
        fix="keep the plan's value, or list both PCIe functions of each cabled port",
        source=f"{CONSELARA}; NVIDIA/dgx-spark-playbooks#102",
        evidence="2026-08",
        disputed=(
            "NVIDIA's NCCL playbook lets NCCL choose (2026-08-12); in the same month users had to list both PCIe "
            "functions of one cable for its full bandwidth (NVIDIA/dgx-spark-playbooks#103). Pin it unless you "
            "measured"
        ),
    ),
    rule(
        "nccl-ib-hca-half",
        WARNING,
        shows="`NCCL_IB_HCA` names only one of the two devices of a port",
        detect=_with_roce("NCCL_IB_HCA", _half),
        why=(
            "each device is a separate x4 link and carries at most half of the port's traffic. Measured: 98 "
            "instead of 161 Gb/s, while the link reports 200"
        ),
        fix="list both, such as rocep1s0f1,roceP2p1s0f1",
        source=(
            "tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35; NVIDIA/dgx-spark-playbooks#103"
        ),
        evidence="2026-09",
        disputed=(
            "end to end it gains 5 % in prefill and nothing in decode "
            "(MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#104, 2026-08)"
        ),
    ),
    rule(
        "nccl-gid-index",
        WARNING,
        shows="RoCE with `NCCL_IB_GID_INDEX`, also if it is empty, which means 0",
        detect=_with_roce("NCCL_IB_GID_INDEX", lambda value: value is not None),
        why=(
            "the index changes when addresses come and go (3 to 4 within half an hour on one device). Then the pinned "
            "index fails on that device; 0 is link-local or RoCEv1"
        ),
        fix="unset it (gb10_fabric_pin_gid_index: false): NCCL 2.21 and newer choose an index for each device",
        source="tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#38; NVIDIA/nccl#2157",
        evidence="2026-09",
        disputed=(
            "conselara.dev pins 3 (2026-05) and AEON-7 still does (2026-08), Avarok pinned 0 (2026-02); NVIDIA "
            "and eugr leave it unset, and the reports of the drift are newer. A pin works if the devices have "
            "no IPv6 address and their addresses do not change"
        ),
    ),
    rule(
        "roce-disabled",
        WARNING,
        shows="a RoCE fabric with `NCCL_IB_DISABLE=1` or `NCCL_NET=Socket` in the variables of the ranks",
        detect=_roce_off,
        why=(
            "NCCL uses TCP sockets instead of RoCE, at about a quarter of the throughput. The plan then "
            "chooses pipeline stages instead of tensor parallelism: two nodes generate at about half of the speed"
        ),
        fix="remove the variable, because the plan sets it; set gb10_fabric_transport: socket to use sockets",
        source="vllm-gb10 (pull request 24), eugr/spark-vllm-docker#252",
        evidence="2026-06",
        disputed=(
            "vllm-gb10's first guide (vLLM 0.18.1) set 1; its own later measurement contradicts that, and no current "
            "source supports it"
        ),
    ),
    rule(
        "tp-over-sockets",
        WARNING,
        shows="tensor parallelism between nodes without RoCE",
        detect=_tp_sockets,
        why="every layer waits for the network twice; users call it unbearably slow",
        fix="use pipeline parallelism over Ethernet, or RoCE",
        source=f"{MIXED_NOTES}; eugr/spark-vllm-docker#252",
        evidence="2026-06",
        gpus=(),
    ),
    rule(
        "tp-thor",
        WARNING,
        shows="tensor parallelism over a Jetson Thor and other nodes",
        detect=_tp_thor,
        why="a Thor has 25 Gb/s Ethernet and no RoCE, and every layer waits for the slowest node",
        fix="set gb10_pipeline_parallel_size: the number of nodes",
        source=f"{MIXED_NOTES}; eugr/spark-vllm-docker#216",
        evidence="2026-03",
        gpus=(THOR,),
    ),
    rule(
        "mixed-transport",
        ERROR,
        shows="Sparks and Thors together without `NCCL_IB_DISABLE=1` on the Sparks",
        detect=_mixed,
        why="the Sparks would offer RoCE and the Thors sockets: NCCL stops with 'wrong type 3 != 4'",
        fix="set gb10_fabric_topology: socket, which sets the variable",
        source=MIXED_NOTES,
        evidence="2026 (vLLM 0.17.1)",
    ),
    rule(
        "tensor-parallel-size",
        WARNING,
        shows="a tensor parallel size that is not a power of two",
        detect=_odd_split,
        why="most models' head and expert counts are not divisible by it, and vLLM then refuses the model",
        fix="use a power of two, or pipeline parallelism over three nodes",
        source="eugr/spark-vllm-docker README and #246",
        evidence="2026-09",
        gpus=(),
    ),
    rule(
        "pipeline-speed",
        INFO,
        shows="2, 4 or 8 Sparks with RoCE and pipeline parallelism",
        detect=_stages,
        why=(
            "for one request at a time stages add memory, not speed: on four Sparks PP 4 generated 4.4 tokens per "
            "second, and TP 4 13.0"
        ),
        fix="set gb10_tensor_parallel_size: the number of nodes, unless requests come in batches",
        source="yunwei37 (GLM-5.2, a ring of 4), unslothai/unsloth#10280",
        evidence="2026-09",
        disputed="for batches on two Sparks StorageReview found PP faster than TP (2026-05)",
    ),
    rule(
        "ring-environment",
        WARNING,
        shows=(
            "a ring whose environment lacks subnet-aware routing, the plan's merging of devices or, from 4 nodes on, "
            "the ring algorithm as the only one that NCCL connects"
        ),
        detect=_ring,
        why=(
            "not every pair of nodes in a ring has a cable; without these settings NCCL tries pairs without one: "
            "ibv_modify_qp fails with 110"
        ),
        fix="keep the plan's values of these variables",
        source=(
            "NVIDIA/dgx-spark-playbooks, connect-three-sparks; eugr/spark-vllm-docker NETWORKING.md and #252; "
            "MiaAI-Lab/DeepSeek-v4.1#3, #19 and NCCL 2.30.7, src/init.cc (trees and PAT); tests/gpu/ring.py"
        ),
        evidence="2026-10-03",
    ),
    rule(
        "ring-nccl",
        WARNING,
        shows="a ring with NCCL below 2.30",
        detect=_ring_nccl,
        why="older releases do not support NCCL_IB_SUBNET_AWARE_ROUTING",
        fix="install NCCL 2.30.4 or newer",
        source="eugr/spark-vllm-docker (2026-05-18); NVIDIA/dgx-spark-playbooks, nccl",
        evidence="2026-08-12",
    ),
    rule(
        "host-ip",
        WARNING,
        shows="several nodes and a `VLLM_HOST_IP` that is unset, loopback, or equal on two nodes",
        detect=_host_ip,
        why=(
            "vLLM guesses the address from the default route, and Ray reports another one. Then the ranks do not find "
            "each other: 'Every node should have a unique IP address'"
        ),
        fix="keep the plan's value: each node's fabric address",
        source="vllm-gb10 (vLLM 0.18.1); vLLM 0.32.0, utils/network_utils.py line 52",
        evidence="2026-06",
        gpus=(),
        found_by=LINT,
    ),
    rule(
        "socket-interface",
        WARNING,
        shows=(
            "several nodes without `GLOO_SOCKET_IFNAME` or `NCCL_SOCKET_IFNAME`, or with another interface than "
            "the plan's"
        ),
        detect=_interfaces,
        why=(
            "the rendezvous uses the interface that the host lists first, such as loopback or Wi-Fi, or the given one: "
            "connection refused, or the slow network. Over sockets, all data of NCCL uses it too"
        ),
        fix="remove the variables, because the plan sets them on each node",
        source=f"{CONSELARA}; vllm-gb10 (vLLM 0.18.1); NVIDIA's vLLM playbook",
        evidence="2026-07",
        gpus=(SPARK, THOR),
    ),
    rule(
        "gpudirect-rdma",
        WARNING,
        shows="NCCL is set to use GPUDirect RDMA (`NCCL_NET_GDR_LEVEL`, `NCCL_DMABUF_ENABLE`)",
        detect=_gdr,
        why="a GB10 does not support it, and forcing it can hang the launch",
        fix="unset both, or set NCCL_NET_GDR_LEVEL=0",
        source="NVIDIA, DGX Spark porting guide; NVIDIA/nccl#2213",
        evidence="2026-08",
        disputed=(
            "a log of November 2025 prints it as enabled, and vllm-gb10 sets SYS (vLLM 0.18.1). NVIDIA states that "
            "peermem, DMA-BUF and GDRCopy do not work, which is newer"
        ),
    ),
    rule(
        "nccl-net-plugin",
        INFO,
        shows="NGC's image 26.03 or 26.04 with RoCE and without `NCCL_NET_PLUGIN=none`",
        detect=_plugin,
        why="these images contain a plugin for another cloud's network; NCCL can load it and fall back to TCP",
        fix="set NCCL_NET_PLUGIN=none",
        source=CONSELARA,
        evidence="2026-05",
    ),
    rule(
        "environment-differs",
        WARNING,
        shows=(
            "a variable differs between ranks, except per-node variables; between different GPUs, only NCCL's and "
            "Ray's variables count"
        ),
        detect=_unequal,
        why=(
            "ranks that choose different kernels or transports are wrong, slow or hang, and Ray cannot give a worker "
            "the driver's environment"
        ),
        fix="set the same gb10_extra_env for all nodes",
        source="eugr/spark-vllm-docker README; gpustack/gpustack#2691",
        evidence="2026-08",
        gpus=(),
    ),
    rule(
        "idle-stall",
        WARNING,
        shows="vLLM 0.27 on four nodes or more with speculative decoding",
        detect=_idle,
        why=(
            "it stalls permanently after a minute without requests: the length of a padded slot becomes negative, and "
            "a kernel never ends. Without speculative decoding it did not. Constant API traffic does not help"
        ),
        fix=(
            "install vLLM 0.28 or newer, which contains the fix (vllm-project/vllm#51538), or turn speculative "
            "decoding off"
        ),
        source="vllm-project/vllm#51921, #51593 (the cause); vLLM 0.28.0, v1/attention/backends/mla/indexer.py line 87",
        evidence="2026-08-12",
        disputed=(
            "the same user first found that idling works without speculative decoding or with that fix. Hours later "
            "neither helped after heavy load (vllm-project/vllm#51921, both 2026-08-12). The same four Sparks also "
            "stalled in NCCL (NVIDIA/nccl#2334, 2026-08-11)"
        ),
        tested="condition: unit tests; fix: read in vLLM 0.28.0, and missing in 0.25.1; effect: not tested here",
    ),
    rule(
        "nccl-cross-nic",
        WARNING,
        shows="RoCE over several devices with `NCCL_CROSS_NIC=1`",
        detect=_cross,
        why=(
            "after hours at full load receivers waited for data that had already arrived. Every rank hangs, "
            "and the API stays green. This was reported with NCCL 2.28.9, 2.30.4 and 2.30.7"
        ),
        fix="unset it",
        source="NVIDIA/nccl#2334 (open; four Sparks, two models)",
        evidence="2026-08-11",
    ),
)
