# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about the platform under vLLM (driver, kernel, image, assembler, Ray) and about access to its API."""

from __future__ import annotations

import re

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, INFO, WARNING, Found
from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import release as version
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import (
    CONSELARA,
    LINT,
    MIXED_NOTES,
    SPARK,
    THOR,
    VERIFY,
    View,
    rule,
    when,
)

_SUSPECT_DRIVER, _OLDEST_DRIVER = "590.", (580, 95)
_BAD_KERNELS, _PANICKING_KERNEL = ("7.0.0-1019", "7.0.0-31-"), "6.17.0-1008"
_OPTION = "run playbooks/os_update.yml -e os_update_kernel_options=kho=off"
_NGC = re.compile(r"nvcr\.io/nvidia/vllm:(\d\d)\.(\d\d)")
_UPSTREAM = re.compile(r"(?:docker\.io/)?vllm/vllm-openai:(v\d[\w.]*)")
#: First releases of the images without Ray: NGC's, and vLLM's own.
_NO_RAY, _NO_RAY_UPSTREAM = (26, 5), (0, 27, 1)
#: Triton does not find an assembler for 12.1 in these images.
_NO_PTXAS = ((26, 3), (26, 4))
_MOVING = re.compile(r"latest|main|nightly.*|.*-nightly|dev")
_LOOPBACK = re.compile(r"127\..*|::1|\[::1\]|localhost")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _ngc(view: View) -> tuple[int, ...]:
    match = _NGC.match(view.situation.image)
    return (int(match[1]), int(match[2])) if match else ()


def _differs(view: View, key: str) -> list[Found]:
    values = [(index, node.name, getattr(node, key)) for index, node in view.nodes if getattr(node, key)]
    return [
        (f"nodes[{index}].{key}", f"{value} on {name}, {values[0][2]} on {values[0][1]}")
        for index, name, value in values[1:]
        if value != values[0][2]
    ]


def _cma(view: View) -> list[Found]:
    """Find the nodes whose kernel lends out memory that cannot be pinned."""
    return [
        (
            f"nodes[{index}].kernel",
            f"CmaFree {node.cma_free_bytes / 2**30:.1f} GiB, CmaTotal {node.cma_total_bytes / 2**30:.1f} GiB, "
            f"kernel {node.kernel}",
        )
        for index, node in view.nodes
        if view.roce and node.cma_free_bytes > node.cma_total_bytes
    ]


def _bad_kernel(view: View) -> list[Found]:
    seen = dict(_cma(view))
    return [
        (f"nodes[{index}].kernel", node.kernel)
        for index, node in view.nodes
        if view.roce
        and node.kernel.startswith(_BAD_KERNELS)
        and "kho=off" not in node.kernel_options
        and f"nodes[{index}].kernel" not in seen
    ]


def _monitor(view: View) -> list[Found]:
    found = view.variable("RAY_memory_monitor_refresh_ms", lambda value: value != "0")
    return when(view.by_ray, *found)


def _no_ray(view: View) -> list[Found]:
    launch = view.situation
    upstream = _UPSTREAM.match(launch.image)
    new = _ngc(view) >= _NO_RAY or (upstream is not None and (version(upstream[1]) or ()) >= _NO_RAY_UPSTREAM)
    bare = new if launch.image_has_ray is None else not launch.image_has_ray
    return when(launch.runtime == "container" and view.by_ray and bare, ("image", launch.image))


def _nnodes(view: View) -> list[Found]:
    several = (view.number("--nnodes") or 1) > 1 and view.by_ray
    return when(several, ("gb10_vllm_extra_args.--nnodes", f"{view.argument('--nnodes')} with Ray"))


def _moving(view: View) -> list[Found]:
    image = view.situation.image
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2] or "latest"
    loose = image != "" and "@sha256:" not in image and bool(_MOVING.fullmatch(tag))
    return when(view.situation.runtime == "container" and loose, ("image", image))


def _ptxas(view: View) -> list[Found]:
    return view.variable("TRITON_PTXAS_PATH", lambda value: not value) if _ngc(view) in _NO_PTXAS else []


def _thor_ptxas(view: View) -> list[Found]:
    compiled = view.before(0, 27) and not view.argument("--enforce-eager")
    return view.variable("TRITON_PTXAS_PATH", lambda value: not value) if compiled else []


def _open(view: View) -> list[Found]:
    host = view.situation.api_host
    return when(
        bool(host) and not _LOOPBACK.fullmatch(host) and not view.situation.api_key,
        ("gb10_api_host", f"{host} without a key"),
    )


RULES = (
    rule(
        "driver-590",
        WARNING,
        shows="a GB10 with driver 590",
        detect=lambda view: view.fact("driver", lambda driver: driver.startswith(_SUSPECT_DRIVER)),
        why="590 reportedly hangs while it captures CUDA graphs; DGX OS ships 580 up to 7.6 (580.178.04)",
        fix="update all nodes to one release of DGX OS with driver 580: playbooks/os_update.yml (docs/updates.md)",
        source=f"{CONSELARA}; a contributor's note in eugr/spark-vllm-docker; for 7.6 the notes of two owners",
        evidence="2026-09",
        disputed=(
            "no issue confirms the hang, and NCCL 2.28 may have been the cause; al-engr.com runs 590 in "
            "production (2026-05), others 595 (2026-09), which is newer. In every later report the kernel "
            "mattered more than the driver: keep a working driver, the same on all nodes"
        ),
    ),
    rule(
        "driver-old",
        WARNING,
        shows="a GB10 with a driver older than 580.95",
        detect=lambda view: view.fact("driver", lambda driver: driver != "" and _numbers(driver) < _OLDEST_DRIVER),
        why="NVIDIA's playbooks for CUDA 13.0 require 580.95.05 or newer",
        fix="install DGX OS's driver",
        source="NVIDIA/dgx-spark-playbooks, vss",
        evidence="2026-07",
    ),
    rule(
        "driver-differs",
        WARNING,
        shows="nodes with the same GPU have different drivers",
        detect=lambda view: _differs(view, "driver"),
        why="updates reach each machine on a different day, and ranks on different drivers are untested",
        fix="update all nodes to the same release of DGX OS: playbooks/os_update.yml (docs/updates.md)",
        source="TechPreacher's checks; NVIDIA/open-gpu-kernel-modules#1358",
        evidence="2026-09",
    ),
    rule(
        "kernel-differs",
        WARNING,
        shows="Sparks run different kernels, or will after their next boot",
        detect=lambda view: _differs(view, "kernel") or _differs(view, "next_kernel"),
        why="updates reach each machine on a different day; one node then fails or slows all",
        fix="update all nodes to the same release of DGX OS: playbooks/os_update.yml (docs/updates.md)",
        source="eugr/spark-vllm-docker#392",
        evidence="2026-09",
    ),
    rule(
        "os-level-differs",
        WARNING,
        shows="Sparks have different releases of DGX OS (DGX_OTA_VERSION)",
        detect=lambda view: _differs(view, "level"),
        why="a release is kernel, driver, firmware and CUDA that fit each other, and NVIDIA's checker compares with it",
        fix="update all nodes to the same release of DGX OS: playbooks/os_update.yml (docs/updates.md)",
        source="nvidia-spark-ota-check 1.0.16; eugr/spark-vllm-docker#392",
        evidence="2026-09",
    ),
    rule(
        "kernel-cma",
        ERROR,
        shows="RoCE, and /proc/meminfo has more CmaFree than CmaTotal",
        detect=_cma,
        why=(
            "the kernel keeps memory for its own hand-over (KHO), 9.3 GiB on most Sparks and 919 MiB on one pair. "
            "This memory cannot be pinned: ibv_reg_mr_iova2 fails with 'Cannot allocate memory' when NCCL starts"
        ),
        fix=f"boot 6.17.0-1031 or -1032, or add kho=off: {_OPTION}",
        source=(
            "NVIDIA/NV-Kernels#591 (open), #590; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259; "
            "eugr/spark-vllm-docker#389"
        ),
        evidence="2026-09-16",
    ),
    rule(
        "kernel-7-0-0-1019",
        WARNING,
        shows=(
            "RoCE with kernel 7.0.0-1019 (DGX OS 7.6) or Ubuntu's 7.0.0-31 without kho=off, unless kernel-cma was found"
        ),
        detect=_bad_kernel,
        why="with KHO, NCCL cannot register memory: ibv_reg_mr_iova2 'Cannot allocate memory'",
        fix=f"boot 6.17.0-1031 or -1032 (docs/updates.md#return), or add kho=off: {_OPTION}",
        source=(
            "NVIDIA/NV-Kernels#591 (open), #590; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259; "
            "eugr/spark-vllm-docker#389; christopherowen/dgx-spark-networking (2026-10: required with kho=off)"
        ),
        evidence="2026-10-05",
        disputed=(
            "one pair served over RoCE on DGX OS 7.6 with 7.0.0-1019 (2026-09-25); its notes do not state whether KHO "
            "was off"
        ),
    ),
    rule(
        "kernel-6-17-0-1008",
        WARNING,
        shows="kernel 6.17.0-1008",
        detect=lambda view: view.fact("kernel", lambda kernel: kernel.startswith(_PANICKING_KERNEL)),
        why=(
            "it panics under memory pressure. On one machine the driver then failed at every boot, because of the "
            "state of the firmware"
        ),
        fix="boot 6.17.0-1031 or -1032",
        source="pytorch/pytorch#174358; NVIDIA developer forum, thread 366026",
        evidence="2026-04-11",
    ),
    rule(
        "ray-memory-monitor",
        WARNING,
        shows="Ray without `RAY_memory_monitor_refresh_ms=0`",
        detect=_monitor,
        why=(
            "Ray counts the weights as host memory: at 95 % it kills the worker that loads them, and the head's log "
            "does not report it"
        ),
        fix="keep the plan's value: 0 on every node, set before Ray starts",
        source=f"{CONSELARA}; NVIDIA's vLLM playbook; ray-project/ray#39723",
        evidence="2026-07",
        disputed=(
            "vllm-gb10 raises RAY_memory_usage_threshold to 1.0 instead, Avarok to 0.98 (2026-02); loads pass "
            "0.98, and every newer guide for Sparks turns the monitor off"
        ),
        gpus=(SPARK, THOR),
    ),
    rule(
        "ray-missing",
        ERROR,
        shows=(
            "Ray in an image that the stack lists as having no Ray, in NGC's 26.05 or newer, or in vllm/vllm-openai "
            "0.27.1 or newer"
        ),
        detect=_no_ray,
        why="the image does not contain Ray (removed in these releases): ray: command not found",
        fix="set gb10_distributed_executor_backend: mp, or use an image with a layer that installs Ray",
        source="NVIDIA/dgx-spark-playbooks, vllm; getainode/ainode#84; docs/stacks.md",
        evidence="2026-09-14",
        gpus=(),
    ),
    rule(
        "nnodes-ray",
        ERROR,
        shows="`--nnodes` above 1 with Ray",
        detect=_nnodes,
        why="vLLM raises ValueError: these options belong to the executor mp",
        fix="remove --nnodes, or set gb10_distributed_executor_backend: mp",
        source="vLLM 0.11.2 to 0.32.0, config/parallel.py",
        evidence="2026-11",
        gpus=(),
        tested="condition: unit tests; code: read in vLLM 0.32.0; effect: not tested here",
    ),
    rule(
        "image-not-pinned",
        INFO,
        shows="an image with a moving tag (latest, main, nightly, none) that is not pinned yet",
        detect=_moving,
        why=(
            "the same tag is another vLLM tomorrow, so the first pull decides which one this cluster serves with. "
            "Registries delete nightlies"
        ),
        fix="name the image with its digest (@sha256) to choose it; site.yml pins the tag at the first pull",
        source="eugr/spark-vllm-docker#226, #296; spark-arena/sparkrun#164",
        evidence="2026-08",
        gpus=(),
    ),
    rule(
        "triton-ptxas",
        WARNING,
        shows="NGC's image 26.03 or 26.04 without `TRITON_PTXAS_PATH`",
        detect=_ptxas,
        why="its Triton does not find an assembler that supports sm_121a, and the first request fails",
        fix="use the stack ngc-26.04, which sets it, or set TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
        source=CONSELARA,
        evidence="2026-05",
    ),
    rule(
        "thor-ptxas",
        WARNING,
        shows="a Thor, vLLM before 0.27, neither `TRITON_PTXAS_PATH` nor `--enforce-eager`",
        detect=_thor_ptxas,
        why="Triton before 3.7 ships an assembler without support for sm_110a: ptxas fatal",
        fix="set TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas from CUDA 13, or use --enforce-eager",
        source=f"vllm-project/vllm#34470; {MIXED_NOTES}",
        evidence="2026-03",
        gpus=(THOR,),
    ),
    rule(
        "thor-kernels",
        WARNING,
        shows="a Thor with vLLM before 0.20",
        detect=lambda view: when(view.before(0, 20), ("release", view.situation.release)),
        why="the published wheels and images have no kernels for 11.0: no kernel image is available for execution",
        fix="install vLLM 0.20 or newer, or build with TORCH_CUDA_ARCH_LIST=11.0a",
        source=f"vllm-project/vllm#39233; {MIXED_NOTES}",
        evidence="2026-07-18",
        gpus=(THOR,),
    ),
    rule(
        "api-without-key",
        WARNING,
        shows="the API listens beyond loopback and has no key",
        detect=_open,
        why="every host on the network can use it and read other users' requests",
        fix="set gb10_api_key_enabled: true, or gb10_api_host: 127.0.0.1 and use a tunnel",
        source="MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#64; NVIDIA/NemoClaw#9591",
        evidence="2026-09",
        gpus=(),
        found_by=VERIFY,
    ),
    rule(
        "api-key-in-argv",
        WARNING,
        shows="`--api-key`",
        detect=lambda view: when(view.argument("--api-key") != "", ("gb10_vllm_extra_args.--api-key", "given")),
        why="every user of the host sees the arguments, and vLLM logs them",
        fix="set gb10_api_key: the head's server receives it in its environment",
        source="MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#64",
        evidence="2026-09",
        gpus=(),
        found_by=LINT,
    ),
)
