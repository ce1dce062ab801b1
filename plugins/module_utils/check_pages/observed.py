# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Symptoms that neither a log nor the status shows. Only the page has them."""

from __future__ import annotations

from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import LAB, OBSERVED, SOURCE, Check

_CONSELARA = "conselara.dev (vLLM 0.19, NGC 26.04)"
_GB10 = "vllm-gb10 (vLLM 0.18.1)"
_USERS = "several users' reports (2026-07 to 2026-10)"


_answers = partial(Check[str], OBSERVED, topic="Wrong or missing answers")
_speed = partial(Check[str], OBSERVED, topic="Slow answers")
_host = partial(Check[str], OBSERVED, topic="Hosts and updates")
_normal = partial(Check[str], OBSERVED, topic="Normal on a GB10")
_controller = partial(Check[str], OBSERVED, topic="Commands on the controller")

SYMPTOMS = (
    _answers(
        "answers-fp4",
        shows="fluent nonsense from an NVFP4 mixture of experts",
        why="CUTLASS FP4 kernels return wrong values on 12.1",
        fix="set --moe-backend marlin in gb10_vllm_extra_args (with vLLM before 0.24 also "
        "VLLM_USE_FLASHINFER_MOE_FP4=0), and "
        "compare fixed prompts at temperature 0 after each change",
        source=f"{_CONSELARA}; NVIDIA/cutlass#3096",
        rules=("fp4-moe-path", "flashinfer-moe-fp4", "marlin-atomic-add"),
    ),
    _answers(
        "answers-fp8",
        shows="wrong answers of an FP8 model with FlashInfer attention",
        why="FlashInfer's FP8 path was wrong on Blackwell in some releases",
        fix="set --attention-backend TRITON_ATTN in gb10_vllm_extra_args",
        source=f"vllm-project/vllm#35138, #41651; {_CONSELARA}",
        rules=("flashinfer-fp8",),
    ),
    _answers(
        "answers-drafts",
        shows="repeated fragments, and a draft acceptance near 0.000",
        why="CUDA graphs and speculative decoding of some images corrupt each other",
        fix="remove --speculative-config, or test with --enforce-eager; then use another image or stack",
        source="tonyd2wild DeepSeek-V4.1 recipes (2026-09); Avarok-Cybersecurity/dgx-vllm (0 to 1.4 % acceptance)",
        rules=("speculative-decoding", "enforce-eager"),
    ),
    _answers(
        "content-null",
        shows="a reasoning model answers with content: null",
        why="the reasoning used up max_tokens before the answer began",
        fix="request 512 tokens or more, 1024 with tools; or skip the reasoning with chat_template_kwargs "
        "{enable_thinking: false} in the request; only Qwen3 also reads /no_think in a prompt",
        source=_CONSELARA,
        rules=("max-tokens-reasoning",),
    ),
    _answers(
        "reasoning-invisible",
        shows="a client shows no reasoning, or raw <think> tags",
        why="with a reasoning parser vLLM streams reasoning in delta.reasoning (before 0.16 also reasoning_content)",
        fix="read that field in the client; keep the plan's --reasoning-parser",
        source=_GB10,
        rules=("reasoning-parser",),
    ),
    _answers(
        "hang-after-idle",
        shows="requests hang after a minute without requests, on four nodes, while /health returns 200",
        why="a kernel of vLLM 0.27 does not end with speculative decoding",
        fix="use vLLM 0.28 or newer",
        source="vllm-project/vllm#51921, #51538",
        rules=("idle-stall",),
    ),
    _answers(
        "hang-graph-capture",
        shows="the start hangs while it captures CUDA graphs",
        why="driver 590 or NCCL 2.28 were suspected; NCCL 2.30.4 ended the hang in one report",
        fix="use DGX OS's driver 580 on all nodes and NCCL 2.29.3 or newer (site.yml --tags nccl_sm121_build)",
        source=f"{_CONSELARA}; vllm-project/vllm#52504",
        rules=("driver-590", "nccl-arm-hang"),
    ),
    _answers(
        "hang-nccl-devices",
        shows="the start hangs without an error while NCCL connects",
        why="NCCL chose other devices than the cabled ones, or containers use a bridge network",
        fix="keep the plan's NCCL_IB_HCA and NCCL_SOCKET_IFNAME; remove --network from gb10_container_args",
        source=_CONSELARA,
        rules=("nccl-ib-hca-unset", "bridge-network"),
    ),
    _speed(
        "slow-lan",
        shows="the NCCL log has NET/Socket, or transfers run at 1 or 10 Gb/s",
        why="NCCL uses the LAN or TCP instead of RoCE over the QSFP ports",
        fix="remove NCCL_IB_DISABLE and NCCL_SOCKET_IFNAME from gb10_extra_env, and run playbooks/benchmark_nccl.yml",
        source=f"{_GB10}; vllm-dgx-spark; eugr/spark-vllm-docker#252",
        rules=("roce-disabled", "socket-interface", "tp-over-sockets"),
    ),
    _speed(
        "slow-half-port",
        shows="about 98 of 161 Gb/s, although the link reports 200 Gb/s",
        why="NCCL uses one of the two PCIe functions of the port",
        fix="keep the plan's NCCL_IB_HCA with both; playbooks/benchmark_nccl.yml measures each device",
        source="NVIDIA/dgx-spark-playbooks#103, #108",
        rules=("nccl-ib-hca-half",),
    ),
    _speed(
        "slow-mtu",
        shows="slow prefill over the QSFP link, which has MTU 1500",
        why="small frames cost 2 to 3 % in a measurement; an MTU that differs between nodes also loses packets",
        fix="keep gb10_fabric_mtu: 9000 without a switch, and run site.yml --tags qsfp_netplan",
        source=f"{_GB10}; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#104",
    ),
    _speed(
        "slow-link",
        shows="RDMA at about 13 Gb/s after a boot or a hot-plugged cable, or one PCIe half lost after a warm reboot",
        why="the ConnectX-7 or the BIOS (before 2026-04) came up in a degraded state",
        fix=(
            "shut down, remove AC power, start again; update firmware with fwupdmgr; compare "
            "playbooks/benchmark_nccl.yml"
        ),
        source=(
            "NVIDIA/dgx-spark-playbooks#108; tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35"
        ),
    ),
    _speed(
        "slow-clock",
        shows="96 % utilization, about 20 W and 700 to 850 MHz under load",
        why="the GPU is stuck in a low-power state",
        fix="remove AC power completely; a reboot or nvidia-smi -lgc does not help",
        source="eugr/spark-vllm-docker#334",
    ),
    _speed(
        "slow-eager",
        shows="26 instead of 59 tokens per second with --enforce-eager",
        why="eager mode does not use CUDA graphs",
        fix="remove --enforce-eager from gb10_vllm_extra_args",
        source=_CONSELARA,
        rules=("enforce-eager", "cudagraph-mode"),
    ),
    _speed(
        "slow-moe-config",
        shows="the warning Using default MoE config. Performance might be sub-optimal!",
        why="vLLM has no tuned kernel sizes for this GPU and these expert sizes",
        fix="run site.yml --tags vllm_patch (patch moe_config), or use vLLM 0.28 or newer",
        source="Avarok-Cybersecurity/dgx-vllm",
    ),
    _speed(
        "slow-drafts",
        shows="speculative decoding makes answers slower",
        why="too few drafts are accepted, and each costs memory bandwidth",
        fix="remove --speculative-config, or compare both on your prompts",
        source="Avarok-Cybersecurity/dgx-vllm (-54 %)",
        rules=("speculative-decoding",),
    ),
    _speed(
        "slow-expected",
        shows="a dense 70B NVFP4 model generates 4 tokens per second",
        why="memory bandwidth limits a dense model: 6.7 tokens per second at most",
        fix="choose a mixture of experts; docs/models.md lists known models",
        source="NVIDIA/dgx-spark-playbooks#79",
    ),
    _speed(
        "slow-pipeline",
        shows="more nodes with pipeline parallelism are not faster",
        why="pipeline stages work one after another",
        fix="use tensor parallelism on 2, 4 or 8 Sparks with RoCE",
        source="unsloth (2026-09); a ring of four Sparks (2026-08)",
        rules=("pipeline-speed",),
    ),
    _host(
        "host-lost",
        shows="a node is dead until a power cycle, without an OOM record",
        why="unified memory was exhausted: at the start, by a long prefill, or when a model wakes up",
        fix=(
            "raise gb10_memory_reserve or lower gb10_kv_cache_contexts; cgroup limits such as --memory do not "
            "count GPU memory"
        ),
        source="vllm-project/vllm#46307, #50011; NVIDIA/open-gpu-kernel-modules#1358; pytorch/pytorch#174358",
        rules=("memory-utilization-ceiling", "memory-utilization-131k", "sleep-mode", "load-pressure"),
    ),
    _host(
        "xid-43",
        shows="the kernel log has NVRM: Xid 43 under load",
        why="the driver ended a GPU channel; with large contexts it came from too little free memory",
        fix="raise gb10_memory_reserve, so that vLLM takes 0.82 or less, or lower gb10_max_model_len",
        source=_CONSELARA,
        rules=("memory-utilization-131k",),
    ),
    _host(
        "kernel-panic",
        shows="a kernel panic under memory pressure with 6.17.0-1008",
        why="a fault of that kernel",
        fix="boot 6.17.0-1031 or -1032",
        source="pytorch/pytorch#174358",
        rules=("kernel-6-17-0-1008",),
    ),
    _host(
        "updates-differ",
        shows="one node fails or slows the others after an update",
        why="each machine gets updates on another day: drivers, kernels, images or variables differ",
        fix="install the same versions on all nodes and hold the packages; playbooks/plan.yml lists differences",
        source="eugr/spark-vllm-docker#392; TechPreacher's checks",
        rules=("kernel-differs", "driver-differs", "environment-differs", "image-not-pinned"),
    ),
    _host(
        "host-hot",
        shows="sudden power-off, PCIe errors of the ConnectX-7, or a CPU at 95 °C",
        why="heat and power limits of the case",
        fix="improve the cooling; nvidia-smi -lgc 0,2000 lowered one machine by 10 °C and cost up to 35 % speed",
        source="eugr/spark-vllm-docker#212, #225; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#79, #146",
    ),
    _host(
        "api-open",
        shows="other hosts on the network use the API",
        why="the API listens on the network without a key",
        fix="keep gb10_api_key_enabled: true, set gb10_api_clients, and keep the firewall (peer_firewall)",
        source="MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#64; NVIDIA/NemoClaw#9591",
        rules=("api-without-key", "api-key-in-argv"),
    ),
    _normal(
        "normal-memory-na",
        shows="nvidia-smi shows N/A for memory, and DCGM has no frame buffer fields",
        why="CPU and GPU share the memory",
        fix="read MemAvailable in /proc/meminfo; playbooks/status.yml shows it for each node",
        source=f"{_GB10}; {_USERS}",
    ),
    _normal(
        "normal-utilization",
        shows="GPU utilization is 96 to 100 % although nothing is generated",
        why="utilization only means that a kernel is resident; a waiting NCCL kernel counts",
        fix="compare tokens/s in playbooks/status.yml",
        source="users' reports on GB10; measured here on two H200 of one host",
    ),
    _normal(
        "normal-quiet-start",
        shows="No available shared memory broadcast block found in 60 seconds",
        why="a rank still loads or compiles; the message is information, not an error",
        fix="wait; 9 to 36 minutes were reported for a first start",
        source="vllm-project/vllm#43420; vLLM 0.32, distributed/device_communicators/shm_broadcast.py",
        tested=SOURCE,
    ),
    _normal(
        "normal-graph-estimate",
        shows="vLLM logs a negative size for CUDA graphs",
        why="other programs released memory during its measurement, so the KV cache becomes too large",
        fix="set --kv-cache-memory-bytes in gb10_vllm_extra_args",
        source="vllm-project/vllm#44740",
        rules=("kv-cache-bytes",),
    ),
    _normal(
        "normal-cache-metric",
        shows="the metric gpu_prefix_cache_hit_rate is missing",
        why="newer vLLM has counters instead",
        fix="divide vllm:prefix_cache_hits_total by vllm:prefix_cache_queries_total",
        source=_CONSELARA,
    ),
    _controller(
        "inventory-unread",
        shows="inventory: no host in the group gb10_cluster",
        why=(
            "-i is missing, or Ansible cannot read the file, such as one with a tab; a warning above the error has "
            "the line"
        ),
        fix="pass -i inventories/mine; indent with spaces, and run ansible-inventory -i inventories/mine --graph",
        source="ansible-core 2.19: an inventory that cannot be read is only a warning",
        tested=LAB,
    ),
    _controller(
        "ansible-core-old",
        shows=("ansible-core: version 2.16.3. Expected: 2.19 or newer\n'TaskResult' object has no attribute 'host'"),
        why=(
            "the shell uses the ansible-core of the distribution (Ubuntu 24.04 has 2.16) instead of the virtual "
            "environment's"
        ),
        fix="run . ~/gb10/bin/activate in each new shell",
        source="this collection; seen with ansible-core 2.16",
        tested=LAB,
    ),
    _controller(
        "module-unresolved",
        shows=(
            "couldn't resolve module/action 'gb10.cluster.cluster_lock'\nthe role 'gb10.cluster.gb10' was not found"
        ),
        why="Ansible does not find the collection: a playbook was copied out of it, or the clone has no symbolic links",
        fix=(
            "run the playbook in its clone, or install the collection; clone on a file system with links, such as "
            "WSL's own"
        ),
        source="ansible-core 2.19, seen with a copied playbook",
        tested=LAB,
    ),
)
