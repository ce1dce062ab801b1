# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Symptoms that neither a log nor the status shows. Only the page has them."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.health.symptom import LAB, SOURCE, Symptom

_ANSWERS, _SPEED, _HOST, _NORMAL = "Wrong or missing answers", "Slow answers", "Hosts and updates", "Normal on a GB10"
_CONTROLLER = "Commands on the controller"
_CONSELARA = "conselara.dev (vLLM 0.19, NGC 26.04)"
_GB10 = "vllm-gb10 (vLLM 0.18.1)"
_USERS = "several users' reports (2026-07 to 2026-10)"


def _seen(name: str, topic: str, shows: str, cause: str, fix: str, source: str, *rules: str) -> Symptom:
    return Symptom(name, topic, (shows,), cause, fix, source, rules=rules)


OBSERVED: tuple[Symptom, ...] = (
    _seen(
        "answers-fp4",
        _ANSWERS,
        "fluent nonsense from an NVFP4 mixture of experts",
        "CUTLASS FP4 kernels return wrong values on 12.1",
        "set --moe-backend marlin in gb10_vllm_extra_args (with vLLM before 0.24 also "
        "VLLM_USE_FLASHINFER_MOE_FP4=0), and "
        "compare fixed prompts at temperature 0 after each change",
        f"{_CONSELARA}; NVIDIA/cutlass#3096",
        "fp4-moe-path",
        "flashinfer-moe-fp4",
        "marlin-atomic-add",
    ),
    _seen(
        "answers-fp8",
        _ANSWERS,
        "wrong answers of an FP8 model with FlashInfer attention",
        "FlashInfer's FP8 path was wrong on Blackwell in some releases",
        "set --attention-backend TRITON_ATTN in gb10_vllm_extra_args",
        f"vllm-project/vllm#35138, #41651; {_CONSELARA}",
        "flashinfer-fp8",
    ),
    _seen(
        "answers-drafts",
        _ANSWERS,
        "repeated fragments, and a draft acceptance near 0.000",
        "CUDA graphs and speculative decoding of some images corrupt each other",
        "remove --speculative-config, or test with --enforce-eager; then use another image or stack",
        "tonyd2wild DeepSeek-V4.1 recipes (2026-09); Avarok-Cybersecurity/dgx-vllm (0 to 1.4 % acceptance)",
        "speculative-decoding",
        "enforce-eager",
    ),
    _seen(
        "content-null",
        _ANSWERS,
        "a reasoning model answers with content: null",
        "the reasoning used up max_tokens before the answer began",
        "request 512 tokens or more, 1024 with tools; or skip the reasoning with chat_template_kwargs "
        "{enable_thinking: false} in the request; only Qwen3 also reads /no_think in a prompt",
        _CONSELARA,
        "max-tokens-reasoning",
    ),
    _seen(
        "reasoning-invisible",
        _ANSWERS,
        "a client shows no reasoning, or raw <think> tags",
        "with a reasoning parser vLLM streams reasoning in delta.reasoning (before 0.16 also reasoning_content)",
        "read that field in the client; keep the plan's --reasoning-parser",
        _GB10,
        "reasoning-parser",
    ),
    _seen(
        "hang-after-idle",
        _ANSWERS,
        "requests hang after a minute without requests, on four nodes, while /health returns 200",
        "a kernel of vLLM 0.27 does not end with speculative decoding",
        "use vLLM 0.28 or newer",
        "vllm-project/vllm#51921, #51538",
        "idle-stall",
    ),
    _seen(
        "hang-graph-capture",
        _ANSWERS,
        "the start hangs while it captures CUDA graphs",
        "driver 590 or NCCL 2.28 were suspected; NCCL 2.30.4 ended the hang in one report",
        "use DGX OS's driver 580 on all nodes and NCCL 2.29.3 or newer (site.yml --tags nccl_sm121_build)",
        f"{_CONSELARA}; vllm-project/vllm#52504",
        "driver-590",
        "nccl-arm-hang",
    ),
    _seen(
        "hang-nccl-devices",
        _ANSWERS,
        "the start hangs without an error while NCCL connects",
        "NCCL chose other devices than the cabled ones, or containers use a bridge network",
        "keep the plan's NCCL_IB_HCA and NCCL_SOCKET_IFNAME; remove --network from gb10_container_args",
        _CONSELARA,
        "nccl-ib-hca-unset",
        "bridge-network",
    ),
    _seen(
        "slow-lan",
        _SPEED,
        "the NCCL log has NET/Socket, or transfers run at 1 or 10 Gb/s",
        "NCCL uses the LAN or TCP instead of RoCE over the QSFP ports",
        "remove NCCL_IB_DISABLE and NCCL_SOCKET_IFNAME from gb10_extra_env, and run playbooks/benchmark_nccl.yml",
        f"{_GB10}; vllm-dgx-spark; eugr/spark-vllm-docker#252",
        "roce-disabled",
        "socket-interface",
        "tp-over-sockets",
    ),
    _seen(
        "slow-half-port",
        _SPEED,
        "about 98 of 161 Gb/s, although the link reports 200 Gb/s",
        "NCCL uses one of the two PCIe functions of the port",
        "keep the plan's NCCL_IB_HCA with both; playbooks/benchmark_nccl.yml measures each device",
        "NVIDIA/dgx-spark-playbooks#103, #108",
        "nccl-ib-hca-half",
    ),
    _seen(
        "slow-mtu",
        _SPEED,
        "slow prefill over the QSFP link, which has MTU 1500",
        "small frames cost 2 to 3 % in a measurement; an MTU that differs between nodes also loses packets",
        "keep gb10_fabric_mtu: 9000 without a switch, and run site.yml --tags qsfp_netplan",
        f"{_GB10}; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#104",
    ),
    _seen(
        "slow-link",
        _SPEED,
        "RDMA at about 13 Gb/s after a boot or a hot-plugged cable, or one PCIe half lost after a warm reboot",
        "the ConnectX-7 or the BIOS (before 2026-04) came up in a degraded state",
        "shut down, remove AC power, start again; update firmware with fwupdmgr; compare playbooks/benchmark_nccl.yml",
        "NVIDIA/dgx-spark-playbooks#108; tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35",
    ),
    _seen(
        "slow-clock",
        _SPEED,
        "96 % utilization, about 20 W and 700 to 850 MHz under load",
        "the GPU is stuck in a low-power state",
        "remove AC power completely; a reboot or nvidia-smi -lgc does not help",
        "eugr/spark-vllm-docker#334",
    ),
    _seen(
        "slow-eager",
        _SPEED,
        "26 instead of 59 tokens per second with --enforce-eager",
        "eager mode does not use CUDA graphs",
        "remove --enforce-eager from gb10_vllm_extra_args",
        _CONSELARA,
        "enforce-eager",
        "cudagraph-mode",
    ),
    _seen(
        "slow-moe-config",
        _SPEED,
        "the warning Using default MoE config. Performance might be sub-optimal!",
        "vLLM has no tuned kernel sizes for this GPU and these expert sizes",
        "run site.yml --tags vllm_patch (patch moe_config), or use vLLM 0.28 or newer",
        "Avarok-Cybersecurity/dgx-vllm",
    ),
    _seen(
        "slow-drafts",
        _SPEED,
        "speculative decoding makes answers slower",
        "too few drafts are accepted, and each costs memory bandwidth",
        "remove --speculative-config, or compare both on your prompts",
        "Avarok-Cybersecurity/dgx-vllm (-54 %)",
        "speculative-decoding",
    ),
    _seen(
        "slow-expected",
        _SPEED,
        "a dense 70B NVFP4 model generates 4 tokens per second",
        "memory bandwidth limits a dense model: 6.7 tokens per second at most",
        "choose a mixture of experts; docs/models.md lists known models",
        "NVIDIA/dgx-spark-playbooks#79",
    ),
    _seen(
        "slow-pipeline",
        _SPEED,
        "more nodes with pipeline parallelism are not faster",
        "pipeline stages work one after another",
        "use tensor parallelism on 2, 4 or 8 Sparks with RoCE",
        "unsloth (2026-09); a ring of four Sparks (2026-08)",
        "pipeline-speed",
    ),
    _seen(
        "host-lost",
        _HOST,
        "a node is dead until a power cycle, without an OOM record",
        "unified memory was exhausted: at the start, by a long prefill, or when a model wakes up",
        (
            "raise gb10_memory_reserve or lower gb10_kv_cache_contexts; cgroup limits such as --memory do not "
            "count GPU memory"
        ),
        "vllm-project/vllm#46307, #50011; NVIDIA/open-gpu-kernel-modules#1358; pytorch/pytorch#174358",
        "memory-utilization-ceiling",
        "memory-utilization-131k",
        "sleep-mode",
        "load-pressure",
    ),
    _seen(
        "xid-43",
        _HOST,
        "the kernel log has NVRM: Xid 43 under load",
        "the driver ended a GPU channel; with large contexts it came from too little free memory",
        "raise gb10_memory_reserve, so that vLLM takes 0.82 or less, or lower gb10_max_model_len",
        _CONSELARA,
        "memory-utilization-131k",
    ),
    _seen(
        "kernel-panic",
        _HOST,
        "a kernel panic under memory pressure with 6.17.0-1008",
        "a fault of that kernel",
        "boot 6.17.0-1031 or -1032",
        "pytorch/pytorch#174358",
        "kernel-6-17-0-1008",
    ),
    _seen(
        "updates-differ",
        _HOST,
        "one node fails or slows the others after an update",
        "each machine gets updates on another day: drivers, kernels, images or variables differ",
        "install the same versions on all nodes and hold the packages; playbooks/plan.yml lists differences",
        "eugr/spark-vllm-docker#392; TechPreacher's checks",
        "kernel-differs",
        "driver-differs",
        "environment-differs",
        "image-not-pinned",
    ),
    _seen(
        "host-hot",
        _HOST,
        "sudden power-off, PCIe errors of the ConnectX-7, or a CPU at 95 °C",
        "heat and power limits of the case",
        "improve the cooling; nvidia-smi -lgc 0,2000 lowered one machine by 10 °C and cost up to 35 % speed",
        "eugr/spark-vllm-docker#212, #225; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#79, #146",
    ),
    _seen(
        "api-open",
        _HOST,
        "other hosts on the network use the API",
        "the API listens on the network without a key",
        "keep gb10_api_key_enabled: true, set gb10_api_clients, and keep the firewall (peer_firewall)",
        "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#64; NVIDIA/NemoClaw#9591",
        "api-without-key",
        "api-key-in-argv",
    ),
    _seen(
        "normal-memory-na",
        _NORMAL,
        "nvidia-smi shows N/A for memory, and DCGM has no frame buffer fields",
        "CPU and GPU share the memory",
        "read MemAvailable in /proc/meminfo; playbooks/status.yml shows it for each node",
        f"{_GB10}; {_USERS}",
    ),
    _seen(
        "normal-utilization",
        _NORMAL,
        "GPU utilization is 96 to 100 % although nothing is generated",
        "utilization only means that a kernel is resident; a waiting NCCL kernel counts",
        "compare tokens/s in playbooks/status.yml",
        "users' reports on GB10; measured here on two H200 of one host",
    ),
    Symptom(
        "normal-quiet-start",
        _NORMAL,
        ("No available shared memory broadcast block found in 60 seconds",),
        "a rank still loads or compiles; the message is information, not an error",
        "wait; 9 to 36 minutes were reported for a first start",
        "vllm-project/vllm#43420; vLLM 0.32, distributed/device_communicators/shm_broadcast.py",
        SOURCE,
    ),
    _seen(
        "normal-graph-estimate",
        _NORMAL,
        "vLLM logs a negative size for CUDA graphs",
        "other programs released memory during its measurement, so the KV cache becomes too large",
        "set --kv-cache-memory-bytes in gb10_vllm_extra_args",
        "vllm-project/vllm#44740",
        "kv-cache-bytes",
    ),
    _seen(
        "normal-cache-metric",
        _NORMAL,
        "the metric gpu_prefix_cache_hit_rate is missing",
        "newer vLLM has counters instead",
        "divide vllm:prefix_cache_hits_total by vllm:prefix_cache_queries_total",
        _CONSELARA,
    ),
    Symptom(
        "inventory-unread",
        _CONTROLLER,
        ("inventory: no host in the group gb10_cluster",),
        (
            "-i is missing, or Ansible cannot read the file, such as one with a tab; a warning above the error has "
            "the line"
        ),
        "pass -i inventories/mine; indent with spaces, and run ansible-inventory -i inventories/mine --graph",
        "ansible-core 2.19: an inventory that cannot be read is only a warning",
        LAB,
    ),
    Symptom(
        "ansible-core-old",
        _CONTROLLER,
        ("ansible-core: version 2.16.3. Expected: 2.19 or newer", "'TaskResult' object has no attribute 'host'"),
        (
            "the shell uses the ansible-core of the distribution (Ubuntu 24.04 has 2.16) instead of the virtual "
            "environment's"
        ),
        "run . ~/gb10/bin/activate in each new shell",
        "this collection; seen with ansible-core 2.16",
        LAB,
    ),
    Symptom(
        "module-unresolved",
        _CONTROLLER,
        ("couldn't resolve module/action 'gb10.cluster.cluster_lock'", "the role 'gb10.cluster.gb10' was not found"),
        "Ansible does not find the collection: a playbook was copied out of it, or the clone has no symbolic links",
        (
            "run the playbook in its clone, or install the collection; clone on a file system with links, such as "
            "WSL's own"
        ),
        "ansible-core 2.19, seen with a copied playbook",
        LAB,
    ),
)
