# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Symptoms with log lines. Their order decides when several match: a symptom precedes those with broader patterns."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.health.symptom import DOCUMENTED, LAB, SOURCE, Symptom

_MEMORY, _NETWORK, _KERNELS = "Memory and disk space", "NCCL and the network", "GPU kernels and compilers"
_DRIVER, _RAY, _MODEL = "Driver and containers", "Ray", "Model files"
_ARGUMENTS, _HOST, _CONSEQUENCE = "Arguments", "Installation and services", "Consequences of another error"

_GB10 = "vllm-gb10 (vLLM 0.18.1)"
_CONSELARA = "conselara.dev (vLLM 0.19, NGC 26.04)"
_MIXED = "distributed-vllm notes (Sparks and Thors, vLLM 0.17.1)"
_SPARK = "vllm-dgx-spark (two Sparks, NGC's image)"
_NCCL = "NCCL 2.30, src"

_REINSTALL = "run site.yml --tags vllm_runtime, which installs the same versions on all nodes"
_SAME_NCCL = "run site.yml --tags nccl_sm121_build, which installs the same build for the GPUs on all nodes"
_SMALLER = (
    "raise gb10_memory_reserve, lower gb10_kv_cache_contexts, gb10_max_model_len or gb10_max_num_seqs, or use "
    "more nodes; playbooks/plan.yml shows the planned memory"
)

_MEMORY_ERRORS = (
    Symptom(
        "memory-not-free",
        _MEMORY,
        (
            "ValueError: Free memory on device cuda:0 (101.52/121.69 GiB) on startup is less than desired GPU memory "
            "utilization (0.87, 105.87 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
            "processes.",
        ),
        "other programs, an earlier server or (before vLLM 0.20) the page cache have the unified memory",
        "end other programs; keep vllm_serve_drop_caches true; reboot a node whose memory stays low; else "
        "raise gb10_memory_reserve",
        f"vllm-project/vllm#35356, #48140; {_MIXED}; vLLM 0.32, v1/worker/utils.py",
        SOURCE,
        r"Free memory on device .{0,80}less than (?:desired|the engine)",
        ("page-cache-counted", "memory-utilization-default"),
    ),
    Symptom(
        "kv-cache-none",
        _MEMORY,
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",),
        "weights and activations fill the memory that vLLM may use, so nothing remains for the KV cache",
        "lower gb10_memory_reserve if the node has free memory, or use more nodes; playbooks/plan.yml shows the memory",
        "vLLM 0.32, v1/core/kv_cache_utils.py",
        SOURCE,
        r"No available memory for the cache blocks",
        ("kv-cache-bytes",),
    ),
    Symptom(
        "kv-cache-small",
        _MEMORY,
        (
            "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (9.31 GiB).",
        ),
        "one request of the maximum context needs more KV cache than fits",
        "set gb10_max_model_len to the length in the message, or gb10_kv_cache_dtype: fp8",
        "vLLM 0.32, v1/core/kv_cache_utils.py",
        SOURCE,
        r"larger than the available KV cache memory",
        ("kv-cache-bytes",),
    ),
    Symptom(
        "state-blocks-few",
        _MEMORY,
        (
            "ValueError: max_num_seqs (512) exceeds available Mamba cache blocks (429). Each decode sequence requires "
            "one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most 429 or "
            "increase gpu_memory_utilization.",
        ),
        "each request needs a block for its state (Mamba, linear attention), and the KV cache has fewer blocks",
        (
            "set gb10_max_num_seqs to 0 for as many as can run at the same time, or lower it below the number in "
            "the message"
        ),
        "vllm-project/vllm#38270 (the check), #49064 (reports of it); vLLM 0.33, config/compilation.py",
        SOURCE,
        r"max_num_seqs .{0,20}exceeds available Mamba cache",
    ),
    Symptom(
        "ray-memory-monitor",
        _MEMORY,
        (
            "ray.exceptions.OutOfMemoryError: Memory on the node (IP: 192.168.100.10) was 115.65GB / 121.69GB "
            "(0.950369), "
            "which exceeds the memory usage threshold of 0.95.",
        ),
        "Ray counts the weights in unified memory as host memory, and kills the worker above 95 %",
        "remove RAY_memory_monitor_refresh_ms from gb10_extra_env; the plan sets it to 0 on every node",
        f"{_GB10}; {_CONSELARA}; NVIDIA/dgx-spark-playbooks#109",
        pattern=r"exceeds the memory usage threshold|ray\.exceptions\.OutOfMemoryError"
        r"|due to the node running low on memory",
        rules=("ray-memory-monitor",),
    ),
    Symptom(
        "compiler-out-of-memory",
        _MEMORY,
        (
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
            "g++: fatal error: Killed signal terminated program cc1plus",
        ),
        "compiler processes of torch.compile or FlashInfer use up the host's memory",
        "set MAX_JOBS: '2' in gb10_extra_env, raise gb10_memory_reserve, or add --enforce-eager, which costs speed",
        _MIXED,
        pattern=r"'?(?:cicc|ptxas|cudafe\+\+)'? died due to signal 9|fatal error: Killed signal terminated",
        rules=("enforce-eager",),
    ),
    Symptom(
        "gpu-out-of-memory",
        _MEMORY,
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.50 GiB. GPU 0 has a total capacity of "
            "121.69 GiB",
            "NCCL WARN Cuda failure 2 'out of memory'",
            "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)",
        ),
        "weights, KV cache, profiling, FlashInfer's autotuning and the host need more than the unified memory",
        "remove --enable-flashinfer-autotune; " + _SMALLER,
        f"{_GB10}; {_CONSELARA}; {_SPARK}; vllm-project/vllm#46307; NVIDIA/dgx-spark-playbooks#97",
        pattern=r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|NV_ERR_NO_MEMORY"
        r"|Cuda failure (?:\d{1,3} )?'out of memory'",
        rules=("kv-cache-bytes", "flashinfer-autotune", "expandable-segments", "load-pressure"),
    ),
    Symptom(
        "oom-killer",
        _MEMORY,
        (
            "gb10-vllm.service: A process of this unit has been killed by the OOM killer.",
            "gb10-ray.service: Failed with result 'oom-kill'.",
        ),
        "the host had no memory left; GPU allocations in unified memory count too",
        "add swap for the load; " + _SMALLER,
        "tonyd2wild/GLM-5.3-Flash-NVFP4-1M-KV-4x-DGX-Spark (Marlin's repacking without swap); systemd",
        pattern=r"killed by the OOM killer|Failed with result 'oom-kill'",
        rules=("memory-utilization-ceiling", "fastsafetensors-large", "swap-space"),
    ),
    Symptom(
        "shared-memory-small",
        _MEMORY,
        (
            "OSError: [Errno 28] No space left on device: '/dev/shm/psm_3c1f'",
            "gb10-vllm.service: Main process exited, code=dumped, status=7/BUS",
        ),
        "/dev/shm is full, often because a container has its own small one",
        "remove --ipc and --shm-size from gb10_container_args, and delete old files in /dev/shm",
        "vLLM's documentation (Docker, --ipc=host)",
        tested=DOCUMENTED,
        pattern=r"No space left on device: '/dev/shm|insufficient shared memory \(shm\)|status=7/BUS",
        rules=("bridge-network",),
    ),
    Symptom(
        "disk-full",
        _MEMORY,
        ("OSError: [Errno 28] No space left on device",),
        "a file system is full: the runtimes, the model, or the caches in the service user's home",
        "free space (df -h on the node); model_store_min_free_bytes reserves some; a failed download may have filled "
        "it",
        "tonyd2wild/GLM-5.3-Flash-NVFP4-1M-KV-4x-DGX-Spark (a retried download on the worker)",
        pattern=r"No space left on device|Disk quota exceeded",
    ),
)

_NETWORK_ERRORS = (
    Symptom(
        "rdma-pinned-memory",
        _NETWORK,
        ("ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",),
        "the kernel has free memory only in areas that RDMA cannot pin (KHO), or the memlock limit is low",
        "if /proc/meminfo has more CmaFree than CmaTotal, boot kernel 6.17.0-1031 or -1032 or add kho=off; otherwise "
        "remove --ulimit memlock from gb10_container_args",
        "NVIDIA/NV-Kernels#590; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259; eugr/spark-vllm-docker#389",
        pattern=r"ibv_reg_mr\w{0,12} failed with error Cannot allocate memory|register mr.{0,40}Cannot allocate memory",
        rules=("kernel-cma", "kernel-7-0-0-1019"),
    ),
    Symptom(
        "rdma-memlock",
        _NETWORK,
        ("ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",),
        "the limit of locked memory is low: RDMA needs it unlimited",
        "remove --ulimit memlock from gb10_container_args; the units and containers set no limit",
        "NVIDIA/nccl-tests#206; NVIDIA/nccl#1191",
        pattern=r"ibv_create_\w{2,8} failed with error Cannot allocate memory",
    ),
    Symptom(
        "rdma-gid",
        _NETWORK,
        (
            "NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev rocep1s0f1:1, curr state INIT, "
            "next state RTR",
        ),
        "the pinned GID index does not exist on that device; the index changes when addresses change",
        "set gb10_fabric_pin_gid_index: false, and remove NCCL_IB_GID_INDEX from gb10_extra_env",
        "tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#38, #40; NVIDIA/nccl#2157",
        pattern=r"ibv_modify_qp failed with .{0,40}No data available",
        rules=("nccl-gid-index",),
    ),
    Symptom(
        "rdma-unreachable",
        _NETWORK,
        (
            "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev rocep1s0f0:1, curr state "
            "INIT, next state RTR",
        ),
        "two RDMA devices that cannot reach each other: a ring with port 0 joined to port 0, or paths that cross rails",
        "in a ring, join port 0 of each node to port 1 of the next; run playbooks/discover.yml, then site.yml --tags "
        "qsfp_netplan",
        "eugr/spark-vllm-docker#252; luxingcom (a ring of three); NVIDIA/nccl#2013",
        pattern=r"ibv_modify_qp failed with .{0,40}(?:Connection timed out|No route to host)",
        rules=("ring-environment", "nccl-cross-nic"),
    ),
    Symptom(
        "rdma-address",
        _NETWORK,
        ("NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",),
        "an RDMA device has no address in its peer's network",
        "run site.yml --tags qsfp_netplan, and let the plan set NCCL_IB_HCA",
        "NVIDIA/nccl-tests#185",
        pattern=r"ibv_modify_qp failed with .{0,40}(?:Network is unreachable|Invalid argument|No such device)",
        rules=("nccl-ib-hca-unset", "nccl-ib-hca-half"),
    ),
    Symptom(
        "rdma-retries",
        _NETWORK,
        (
            "NCCL WARN NET/IB: Got completion from peer 10.110.0.2<48731> with status=IBV_WC_RETRY_EXC_ERR(12) "
            "opcode=IBV_WC_SEND(0)",
        ),
        "the peer does not receive the packets: an MTU that differs (firmware can reset it to 1500), a lost link, or "
        "a dead rank",
        "run site.yml --tags qsfp_netplan, which verifies each path with full-size frames",
        f"report of an MTU reset by a firmware reboot (2026-09); {_SPARK}; {_NCCL}/transport/net_ib/p2p.cc",
        pattern=r"IBV_WC_RETRY_EXC_ERR|status=12 opcode=|transport retry counter exceeded",
    ),
    Symptom(
        "rdma-dmabuf",
        _NETWORK,
        ("NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Bad address errno 14",),
        "NCCL tries GPUDirect RDMA, which a GB10 does not support",
        "remove NCCL_NET_GDR_LEVEL and NCCL_DMABUF_ENABLE from gb10_extra_env",
        f"NVIDIA/nccl#2213; vllm-project/vllm#46253; {_NCCL}/misc/ibvwrap.cc",
        pattern=r"ibv_reg_dmabuf_mr failed|nvidia[-_]peermem.{0,60}(?:failed|not)",
        rules=("gpudirect-rdma",),
    ),
    Symptom(
        "nccl-transport-differs",
        _NETWORK,
        ("NCCL WARN socketFinalizeAccept: wrong type 3 != 4",),
        "some ranks offer RoCE and others sockets, for example Sparks and Thors together",
        "set gb10_fabric_topology: socket, which sets NCCL_IB_DISABLE=1 on all nodes",
        _MIXED,
        pattern=r"wrong type \d{1,3} != \d{1,3}",
        rules=("mixed-transport",),
    ),
    Symptom(
        "nccl-version-differs",
        _NETWORK,
        ("NCCL WARN Mismatched NCCL version detected : rank 0 version 22907 rank 1 version 22809 ",),
        "the ranks load different NCCL releases",
        f"{_SAME_NCCL}; remove LD_PRELOAD and VLLM_NCCL_SO_PATH from gb10_extra_env",
        f"{_NCCL}/init.cc",
        SOURCE,
        r"Mismatched NCCL version detected",
        ("environment-differs",),
    ),
    Symptom(
        "nccl-message-truncated",
        _NETWORK,
        ("bootstrap.cc:77 NCCL WARN Message truncated : received 176 bytes instead of 172",),
        "the ranks exchange data of different sizes: other NCCL builds or variables on one node; on GB10 a report "
        "blames "
        "builds without code for 12.1",
        f"{_SAME_NCCL}; keep gb10_extra_env equal on all nodes",
        f"{_GB10}; NVIDIA/nccl#605, #626 (mismatched environments)",
        pattern=r"[Mm]essage truncated ?: (?:received|receiving) [\d,]{1,22} bytes instead of",
        rules=("environment-differs",),
    ),
    Symptom(
        "nccl-link-local",
        _NETWORK,
        (
            "NCCL WARN socketPollConnect: connect to fe80::4ebb:47ff:fe2c:1%enp1s0f1np1<40959> failed : Network is "
            "unreachable",
        ),
        "NCCL chose an interface that has only a link-local IPv6 address",
        "remove NCCL_SOCKET_IFNAME from gb10_extra_env, so that the plan sets it",
        _MIXED,
        pattern=r"fe80:.{0,160}(?:unreachable|failed)|unreachable.{0,160}fe80:",
        rules=("socket-interface",),
    ),
    Symptom(
        "interface-missing",
        _NETWORK,
        (
            "NCCL WARN Bootstrap : no socket interface found",
            "RuntimeError: [enforce fail at device.cc:112] Unable to find interface for: [10.9.0.1]",
        ),
        "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that this node does not have, or that has no "
        "address",
        "remove both from gb10_extra_env, and run site.yml --tags qsfp_netplan",
        f"{_NCCL}/bootstrap.cc",
        SOURCE,
        r"no socket interface found|No usable listening interface found|no device found matching"
        r"|[Uu]nable to find (?:interface|address) for",
        ("socket-interface",),
    ),
    Symptom(
        "rdma-not-used",
        _NETWORK,
        ("NCCL WARN Failed to initialize any NET plugin",),
        "NCCL_NET names a transport that this process does not have, such as IB without an RDMA device",
        "run ibv_devinfo on the node; remove NCCL_NET from gb10_extra_env; without RDMA set gb10_fabric_transport: "
        "socket",
        f"{_NCCL}/plugin/net.cc; NVIDIA/dgx-spark-playbooks#102",
        SOURCE,
        r"Failed to initialize any NET plugin|network IB not found",
    ),
    Symptom(
        "nccl-net-plugin",
        _NETWORK,
        (
            "register_mr_buffers:465 NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: 12, "
            "Error: Cannot allocate memory",
        ),
        "the image's network plugin for another cloud replaces NCCL's RoCE transport",
        "set NCCL_NET_PLUGIN: none in gb10_extra_env",
        _CONSELARA,
        pattern=r"NCCL WARN NET/OFI",
        rules=("nccl-net-plugin",),
    ),
    Symptom(
        "gloo-loopback",
        _NETWORK,
        (
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:45231: "
            "Connection refused",
        ),
        "Gloo published a loopback address, because it resolved the host's name",
        "remove GLOO_SOCKET_IFNAME from gb10_extra_env, so that the plan sets it",
        f"{_MIXED}; {_CONSELARA}",
        pattern=r"connect \[?127\.\d{1,3}\.\d{1,3}\.\d{1,3}\]?:\d{1,5}: Connection refused"
        r"|Connection refused.{0,40}\b127\.0\.",
        rules=("socket-interface",),
    ),
    Symptom(
        "gloo-mesh",
        _NETWORK,
        (
            "RuntimeError: Gloo connectFullMesh failed with "
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        ),
        "the ranks cannot connect to each other's Gloo ports: a firewall, a bridge network, or another rank ended",
        "run site.yml --tags peer_firewall, and open the ports between the nodes in your own firewall",
        "PyTorch 2.13, libtorch_cpu.so (message)",
        SOURCE,
        r"Gloo connectFullMesh failed",
        ("bridge-network", "socket-interface"),
    ),
    Symptom(
        "rendezvous-timeout",
        _NETWORK,
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
            "connect to (10.110.0.1, 29501).",
            "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cpu//0/0",
        ),
        "a rank cannot reach the head's rendezvous port, or another rank ended before it joined",
        "read the log of the other nodes first; then check gb10_master_port, the firewall and --network in "
        "gb10_container_args",
        f"{_CONSELARA}; PyTorch 2.13, libtorch_cpu.so (message)",
        SOURCE,
        r"client socket has (?:timed out|failed to connect)|wait timeout after \d{1,9}ms, keys"
        r"|torch\.distributed\.DistStoreError",
        ("bridge-network", "host-ip"),
    ),
    Symptom(
        "nccl-refused",
        _NETWORK,
        (
            "NCCL WARN socketPollConnect: connect to 192.168.100.11<41223> returned Connection refused, exceeded "
            "error retry count after 35 attempts",
        ),
        "no rank listens at that address: it ended, a firewall refuses it, or the address is not the fabric's",
        "read the log of that node first; then keep the plan's VLLM_HOST_IP and NCCL_SOCKET_IFNAME",
        f"{_GB10}; {_NCCL}/os/linux.cc",
        SOURCE,
        r"connect to .{0,80}(?:returned|failed :) (?:Connection refused|No route to host|Connection timed out)",
        ("host-ip", "socket-interface"),
    ),
    Symptom(
        "nccl-timeout",
        _NETWORK,
        (
            "[rank0]:[E1121 00:34:35.375 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
            "timeout: "
            "WorkNCCL(SeqNum=912, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.",
            "TimeoutError: RPC call to sample_tokens timed out.",
        ),
        "a rank hung or died while the others waited; NCCL before 2.29.3, built by an old GCC, can hang on ARM",
        f"{_SAME_NCCL} (2.29.3 or newer); read the log of every node for a rank that ended first",
        "vllm-project/vllm#52504, #42354, #51921; vllm-dgx-spark (NCCL timeouts)",
        pattern=r"Watchdog caught collective operation timeout|RPC call to .{0,60} timed out",
        rules=("nccl-arm-hang", "breakable-cudagraph", "idle-stall", "nccl-ib-hca-unset"),
    ),
)

_KERNEL_ERRORS = (
    Symptom(
        "ptxas-sm110",
        _KERNELS,
        ("ptxas-blackwell fatal   : Value 'sm_110a' is not defined for option 'gpu-name'",),
        "Triton before 3.7 has an assembler without the Thor's architecture",
        "set TRITON_PTXAS_PATH to CUDA 13's ptxas in the Thor's gb10_extra_env, or add --enforce-eager",
        f"{_MIXED}; triton-inference-server/server#8632",
        pattern=r"Value 'sm_110\w?' is not defined",
        rules=("thor-ptxas",),
    ),
    Symptom(
        "ptxas-sm121",
        _KERNELS,
        ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",),
        "Triton uses an assembler from before CUDA 13, without the GB10's architecture",
        "run site.yml --tags vllm_patch (patch triton_ptxas), or set TRITON_PTXAS_PATH to CUDA 13's ptxas in "
        "gb10_extra_env",
        "triton-lang/triton#8539; vllm-project/vllm#31740",
        pattern=r"Value 'sm_12\d\w?' is not defined",
        rules=("triton-ptxas",),
    ),
    Symptom(
        "ptxas-missing",
        _KERNELS,
        (
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/usr/lib/python3/triton/backends/nvidia/bin/ptxas'",
            "RuntimeError: Cannot find ptxas",
        ),
        "the image's Triton has no assembler at the path that it uses",
        "run site.yml --tags vllm_patch (patch triton_ptxas)",
        _CONSELARA,
        pattern=r"Cannot find ptxas|No such file or directory: '.{0,200}ptxas",
        rules=("triton-ptxas",),
    ),
    Symptom(
        "kernel-image-missing",
        _KERNELS,
        ("torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",),
        "a library has no code for this GPU: old builds for a Thor (11.0), or 12.0a builds on a GB10 (12.1)",
        "run verify.yml, which names the extension; use gb10_stack: current; for a Thor set "
        "gb10_runtime_wheels; for NCCL run site.yml --tags nccl_sm121_build",
        f"{_MIXED}; vllm-project/vllm#38484",
        pattern=r"no kernel image is available|cudaErrorNoKernelImageForDevice",
        rules=("thor-kernels", "fp8-cutlass"),
    ),
    Symptom(
        "cutlass-fp8",
        _KERNELS,
        (
            "RuntimeError: Error Internal",
            "RuntimeError: No suitable CUTLASS kernel found for SM_121",
            "NotImplementedError: No compiled cutlass_scaled_mm for a compute capability less than CUDA device "
            "capability: 121",
        ),
        "the CUTLASS FP8 kernels of this vLLM build do not run on 12.1",
        "run site.yml --tags vllm_patch, or install vLLM 0.20 or newer built for CUDA 13",
        f"{_GB10}; Avarok-Cybersecurity/dgx-vllm; vllm-project/vllm#43367",
        pattern=r"RuntimeError: Error Internal|[Nn]o (?:suitable|compiled) (?:CUTLASS|cutlass)"
        r"|no suitable kernel for SM_?12",
        rules=("fp8-cutlass",),
    ),
    Symptom(
        "kernel-sm120-only",
        _KERNELS,
        ("This kernel only supports sm120.",),
        "a CUTLASS kernel was built for 12.1, but its code accepts only 12.0",
        "use gb10_stack: current, whose wheels have the family's code; or choose another backend",
        "vllm-project/vllm#41215, #36835; NVIDIA/cutlass#3144",
        pattern=r"only supports? sm_?1(?:00|20)",
    ),
    Symptom(
        "kernel-shared-memory",
        _KERNELS,
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 114688, Hardware limit: "
            "101376.",
        ),
        "a kernel for larger GPUs needs more shared memory than a GB10's 99 KiB per block",
        "run site.yml --tags vllm_patch (patch moe_config), or choose another --attention-backend or --moe-backend",
        "vllm-project/vllm#32704; NVIDIA/cutlass#3144; flashinfer-ai/flashinfer#3568",
        pattern=r"out of resources?: shared memory",
    ),
    Symptom(
        "mxfp4-checkpoint",
        _KERNELS,
        ("    dim2 = loaded_weight.shape[2]",),
        "fused_moe/layer.py raises IndexError: with --quantization mxfp4 it reads only the checkpoints of gpt-oss",
        "remove --quantization from gb10_vllm_extra_args, or use an FP8 or GPTQ checkpoint of the model",
        f"{_CONSELARA}; vllm-project/vllm#35366",
        pattern=r"^ {0,20}dim2 = loaded_weight\.shape\[2\]$",
        rules=("mxfp4-checkpoint",),
    ),
    Symptom(
        "moe-backend",
        _KERNELS,
        (
            "ValueError: NvFp4 MoE backend 'TRITON' does not support the deployment configuration since kernel does "
            "not support current device",
        ),
        "the requested --moe-backend has no kernel for this GPU and quantization",
        "remove --moe-backend from gb10_vllm_extra_args, or set marlin for NVFP4",
        "vLLM 0.32, model_executor/layers/fused_moe/oracle",
        SOURCE,
        r"MoE backend .{0,60} does not support the",
        ("moe-backend-datacentre", "moe-backend-triton-nvfp4", "fp4-moe-path"),
    ),
    Symptom(
        "linear-kernel",
        _KERNELS,
        ("ValueError: Failed to find a kernel that can implement the WNA16 linear layer. Reasons: ",),
        "no enabled kernel can compute a layer of this quantization on this GPU",
        "remove --linear-backend and VLLM_DISABLED_KERNELS, and run site.yml --tags vllm_patch",
        "vLLM 0.32, model_executor/kernels/linear",
        SOURCE,
        r"Failed to find a kernel that can implement",
        ("linear-backend-strict",),
    ),
    Symptom(
        "attention-backend",
        _KERNELS,
        (
            "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=80)",
            "ValueError: Selected backend FLASHINFER is not valid for this configuration. Reason: ['head_size not "
            "supported']",
        ),
        "the attention backend does not support this model, KV cache type or GPU",
        "remove --attention-backend from gb10_vllm_extra_args, or set TRITON_ATTN; set gb10_kv_cache_dtype: auto",
        "vLLM 0.32, platforms/cuda.py",
        SOURCE,
        r"No valid attention backend found|Selected backend .{0,80} is not valid for",
        ("flashinfer-fp8",),
    ),
    Symptom(
        "python-headers",
        _KERNELS,
        ("/tmp/tmpa1/main.c:5:10: fatal error: Python.h: No such file or directory",),
        "Triton compiles at run time, and the Python headers are not installed",
        "run site.yml --tags vllm_runtime, and keep python3-dev in vllm_runtime_packages",
        _GB10,
        pattern=r"Python\.h: No such file or directory",
    ),
    Symptom(
        "compiler-missing",
        _KERNELS,
        (
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable",
            "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
        ),
        "kernels are compiled at run time, and a compiler, ninja or nvcc is missing",
        "run site.yml, which puts the runtime's programs into PATH and compiles FlashInfer's kernels before the start; "
        "keep g++ in vllm_runtime_packages; FlashInfer needs a CUDA toolkit, or set gb10_flashinfer: false",
        "Triton, triton/runtime/build.py; FlashInfer",
        tested=DOCUMENTED,
        pattern=r"Failed to find C compiler|Could not find nvcc|Ninja is required|nvcc: not found"
        r"|No such file or directory: '(?:.{0,80}/)?(?:ninja|nvcc|gcc|g\+\+)'",
    ),
    Symptom(
        "gpu-illegal-access",
        _KERNELS,
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered",),
        "a GPU kernel failed; on several nodes, CUDA graphs that capture the all-reduce were one cause",
        "unset VLLM_USE_BREAKABLE_CUDAGRAPH; then try another --attention-backend or --moe-backend; journalctl -k "
        "shows Xid errors",
        f"vllm-project/vllm#46253; {_CONSELARA} (Xid 43)",
        pattern=r"illegal memory access|an illegal instruction was encountered|misaligned address"
        r"|unspecified launch failure",
        rules=("breakable-cudagraph", "memory-utilization-131k"),
    ),
    Symptom(
        "quantization-gpu",
        _KERNELS,
        (
            "ValueError: The quantization method fp_quant is not supported for the current GPU. Minimum capability: "
            "100. Current capability: 90.",
        ),
        "this quantization needs another GPU generation or data type",
        "use a checkpoint with another quantization; docs/models.md lists known ones",
        "vLLM 0.32, config/vllm.py",
        SOURCE,
        r"is not supported for the current GPU|is not supported for quantization method",
        (),
    ),
)

_DRIVER_ERRORS = (
    Symptom(
        "gpu-missing",
        _DRIVER,
        (
            "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`",
            "RuntimeError: No CUDA GPUs are available",
        ),
        "the NVIDIA driver is not loaded, often because a new kernel came without its linux-modules-nvidia package",
        "run nvidia-smi on the node; install the modules of the running kernel (uname -r), or boot the previous kernel",
        "eugr/spark-vllm-docker#392; vLLM 0.32, config/device.py",
        SOURCE,
        r"Failed to infer device type|No CUDA GPUs are available|no CUDA-capable device"
        r"|couldn't communicate with the NVIDIA driver"
        r"|NVML Shared Library Not Found",
        ("kernel-differs", "driver-differs"),
    ),
    Symptom(
        "driver-old",
        _DRIVER,
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12080).",
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.1, please update your driver "
            "to a newer version",
            "torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        ),
        "this CUDA release needs a newer driver than the node has",
        (
            "install DGX OS's driver on all nodes, use a gb10_stack for an older CUDA, or build with the CUDA "
            "toolkit of the driver"
        ),
        "eugr/spark-vllm-docker#266; NVIDIA/dgx-spark-playbooks; vllm-project/vllm#47397",
        pattern=r"driver on your system is too old|driver version is insufficient for CUDA runtime"
        r"|unsatisfied condition: cuda|PTX was compiled with an unsupported toolchain",
        rules=("driver-old", "driver-differs"),
    ),
    Symptom(
        "container-gpu",
        _DRIVER,
        ('docker: Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]].',),
        "the container engine cannot pass the GPU: the NVIDIA Container Toolkit is missing or not configured",
        "install nvidia-container-toolkit on the node and restart the engine; for podman generate a CDI specification",
        _SPARK,
        pattern=r"could not select device driver|unresolvable CDI devices|failed to inject CDI"
        r"|nvidia-container-cli: initialization error",
    ),
    Symptom(
        "image-missing",
        _DRIVER,
        ("docker: Error response from daemon: manifest for vllm/vllm-openai:nightly not found: manifest unknown",),
        "the registry deleted the image, limits downloads, or requires a login",
        "set gb10_container_image to an existing image by digest, or vllm_runtime_image_archive to a saved copy",
        "eugr/spark-vllm-docker#226, #296; spark-arena/sparkrun#164",
        pattern=r"manifest unknown|manifest for .{0,200} not found|pull access denied|toomanyrequests|[Nn]o such image",
        rules=("image-not-pinned",),
    ),
)

_RAY_ERRORS = (
    Symptom(
        "ray-incomplete",
        _RAY,
        ("Ray is not complete after 600 s: spark2 (10.110.0.2) has not joined",),
        "gb10-ray on the named node does not run, restarts, or cannot reach the head",
        "read journalctl -u gb10-ray on that node, then run site.yml; vllm_serve_ray_timeout is the limit",
        "vllm-dgx-spark (workers that do not join); this collection",
        LAB,
        r"^Ray is not complete",
        ("host-ip",),
    ),
    Symptom(
        "ray-missing",
        _RAY,
        (
            "ModuleNotFoundError: No module named 'ray'",
            "ValueError: Failed to import Ray: No module named 'ray'.Please install Ray with `pip install ray`.",
        ),
        "the image or environment has no Ray (NGC from 26.05 on, vllm/vllm-openai)",
        "set gb10_distributed_executor_backend: mp, or use an image with Ray",
        "NVIDIA/dgx-spark-playbooks#109; vLLM 0.32, v1/executor/ray_utils.py",
        SOURCE,
        r"No module named 'ray'|Failed to import Ray|\bray: (?:command )?not found|ray: executable file not found",
        ("ray-missing",),
    ),
    Symptom(
        "ray-token",
        _RAY,
        ("ray.exceptions.AuthenticationError: InvalidAuthToken: Authentication token is missing or incorrect",),
        "the node's token differs from the head's",
        "run site.yml --tags ray_cluster, which distributes /etc/gb10/ray.token and restarts Ray",
        "Ray 2.60, ray/exceptions.py; measured by hand: a worker without the mode is rejected with InvalidAuthToken",
        SOURCE,
        r"InvalidAuthToken|ray\.exceptions\.AuthenticationError|RAY_AUTH_MODE.{0,80}(?:token|required)",
    ),
    Symptom(
        "ray-version-differs",
        _RAY,
        ("RuntimeError: Version mismatch: The cluster was started with:",),
        "the nodes have different Ray or Python releases",
        _REINSTALL,
        "Ray 2.60, ray/_private/utils.py",
        SOURCE,
        r"Version mismatch: The cluster was started with",
    ),
    Symptom(
        "ray-head-unreachable",
        _RAY,
        (
            "Unable to connect to GCS (ray head) at 10.110.0.1:6379. Check that (1) Ray with matching version started",
            "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to",
        ),
        "gb10-ray on the head does not run, or the node cannot reach gb10_ray_port over the fabric",
        "read journalctl -u gb10-ray on the head, then run site.yml, which verifies the fabric first",
        "Ray 2.60, ray/_private/utils.py",
        SOURCE,
        r"(?:Unable|Failed) to connect to GCS|Could not find any running Ray instance|failed to connect to the GCS",
    ),
    Symptom(
        "ray-node-start",
        _RAY,
        (
            "Exception: The current node timed out during startup. This could happen because some of the raylet "
            "failed to startup",
        ),
        "Ray's own processes did not start on this node: no memory, no disk space, or a used port",
        "check df -h, free -h and the eight ports from gb10_ray_port on, then restart gb10-ray",
        "Ray 2.60, ray/_private/node.py",
        SOURCE,
        r"current node timed out during startup",
    ),
    Symptom(
        "host-ip",
        _RAY,
        (
            "RuntimeError: Every node should have a unique IP address. Got 2 nodes with node ids ['a', 'b'] and 3 "
            "unique IP addresses",
            "RuntimeError: Expected 2 unique IPs but got 3",
        ),
        "vLLM and Ray use different addresses of a node with several networks",
        "remove VLLM_HOST_IP from gb10_extra_env, so that the plan sets each node's fabric address",
        f"{_GB10}; vLLM 0.32, v1/executor/ray_executor.py",
        SOURCE,
        r"Every node should have a unique IP address|Expected \d{1,3} unique IPs but got",
        ("host-ip",),
    ),
    Symptom(
        "ray-placement",
        _RAY,
        (
            "ValueError: Cannot provide a placement group requiring 2 GPUs (placement_group_specs=[{'GPU': 1.0}, "
            "{'GPU': 1.0}]) within 1800 seconds.",
            (
                "ValueError: The number of required GPUs exceeds the total number of available GPUs in the "
                "placement group."
            ),
        ),
        "Ray has fewer GPUs than ranks, an old server still has them, or VLLM_HOST_IP differs from Ray's address",
        "lower gb10_tensor_parallel_size or add nodes; remove VLLM_HOST_IP from gb10_extra_env; run "
        "playbooks/stop.yml, then site.yml",
        f"{_SPARK}; vllm-project/vllm#21231; vLLM 0.32, v1/executor/ray_utils.py",
        SOURCE,
        r"Cannot provide a placement group|exceeds the total number of available \w{1,8} in the placement group",
        ("host-ip", "tensor-parallel-size"),
    ),
)

_MODEL_ERRORS = (
    Symptom(
        "weights-missing",
        _MODEL,
        ("RuntimeError: Cannot find any model weights with `/srv/models/tiny` (on 10.110.0.2)",),
        "this node has no weights of the model, or a copy left links to missing files",
        "run site.yml --tags model_store with model_store_verify: true; a model in your own directory must be on "
        "every node",
        "a recorded start; spark-arena/sparkrun#299 (dangling links)",
        LAB,
        r"Cannot find any model weights with",
    ),
    Symptom(
        "weights-truncated",
        _MODEL,
        (
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, "
            "file not fully covered",
        ),
        "a file of the weights is incomplete or damaged",
        "run site.yml --tags model_store with model_store_verify: true, or copy your own model again",
        "safetensors 0.8 (message); truncated downloads in MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#177",
        LAB,
        r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader(?:Length|Deserialization)"
        r"|PytorchStreamReader failed",
    ),
    Symptom(
        "fastsafetensors",
        _MODEL,
        (
            "ModuleNotFoundError: No module named 'fastsafetensors'",
            "ImportError: Please install vllm[fastsafetensors] for fastsafetensors support",
            "ImportError: fastsafetensors is not installed",
        ),
        "the image has no fastsafetensors package",
        "remove --load-format from gb10_vllm_extra_args",
        _CONSELARA,
        pattern=r"No module named 'fastsafetensors'|ImportError: .{0,80}fastsafetensors",
        rules=("fastsafetensors-ngc",),
    ),
    Symptom(
        "model-gated",
        _MODEL,
        (
            "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url "
            "https://huggingface.co/meta-llama/Llama-3.1-8B",
        ),
        "the model requires an accepted license and a token",
        "accept the license on Hugging Face Hub, and set model_store_hub_token from a vault",
        _SPARK,
        pattern=r"GatedRepoError|gated repo\b|403 Client Error",
    ),
    Symptom(
        "hub-unreachable",
        _MODEL,
        (
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for "
            "the specified revision on the local disk",
        ),
        "the model is not on this node, and Hugging Face Hub cannot be reached or is switched off",
        "keep model_store_enabled: true; set HTTPS_PROXY or HF_ENDPOINT in model_store_env",
        "huggingface_hub (message); vllm-dgx-spark (downloads)",
        tested=DOCUMENTED,
        pattern=r"LocalEntryNotFoundError|OfflineModeIsEnabled|connect to 'https://huggingface\.co'"
        r"|host='huggingface\.co'",
    ),
    Symptom(
        "model-unknown",
        _MODEL,
        (
            "OSError: acme/none is not a local folder and is not a valid model identifier listed on "
            "'https://huggingface.co/models'",
        ),
        "no such model exists on this node or on Hugging Face Hub, it is private, or its folder has no config.json",
        "correct gb10_model; a path must exist on every node; for a private model set model_store_hub_token",
        "transformers (message)",
        tested=DOCUMENTED,
        pattern=r"is not a valid model identifier|RepositoryNotFoundError|401 Client Error|Repo id must"
        r"|does not appear to have a file named config\.json"
        r"|Invalid repository ID or local directory",
    ),
    Symptom(
        "model-inspection",
        _MODEL,
        (
            "ValueError: Model architectures ['Qwen3MoeForCausalLM'] failed to be inspected. Please check the logs "
            "for more details.",
        ),
        "vLLM has this architecture, but importing it failed: packages are missing or have other versions",
        _REINSTALL,
        f"{_GB10}; vLLM 0.32, model_executor/models/registry.py",
        SOURCE,
        r"failed to be inspected",
    ),
    Symptom(
        "model-architecture",
        _MODEL,
        ("ValueError: Model architectures ['NewForCausalLM'] are not supported for now.",),
        "this vLLM or transformers release does not know the model",
        "set a gb10_stack with a newer release; docs/models.md lists the release that each known model needs",
        "vLLM 0.32, model_executor/models/registry.py",
        SOURCE,
        r"are not supported for now|does not recognize this architecture|was supported in vLLM until"
        r"|is not supported in-tree anymore",
    ),
    Symptom(
        "remote-code",
        _MODEL,
        (
            "RuntimeError: Failed to load the model config. If the model is a custom model not yet available in the "
            "HuggingFace transformers library",
        ),
        "the model needs Python code from its repository",
        "if you trust the code, add --trust-remote-code to gb10_vllm_extra_args",
        "vLLM 0.32, transformers_utils/config.py",
        SOURCE,
        r"Failed to load the model config\. If the model is a custom|you to execute the (?:configuration"
        r"|modeling) file",
    ),
    Symptom(
        "quantization-differs",
        _MODEL,
        (
            "ValueError: Quantization method specified in the model config (fp8) does not match the quantization "
            "method specified in the `quantization` argument",
        ),
        "--quantization contradicts the checkpoint",
        "remove --quantization from gb10_vllm_extra_args; vLLM reads it from the checkpoint",
        "vLLM 0.32, config/model.py",
        SOURCE,
        r"Quantization method specified in the model config|Unknown quantization method",
        ("mxfp4-checkpoint",),
    ),
    Symptom(
        "attention-heads",
        _MODEL,
        ("ModelConfig: Total number of attention heads (40) must be divisible by tensor parallel size (3).",),
        "the model's heads cannot be divided by the number of ranks",
        "set gb10_tensor_parallel_size to a divisor, such as 2 or 4, or use gb10_pipeline_parallel_size",
        "vLLM 0.32, config/model.py",
        SOURCE,
        r"must be divisible by tensor parallel size|is not divisible by (?:the )?tensor"
        r"|cannot be evenly divided by tensor",
        ("tensor-parallel-size",),
    ),
    Symptom(
        "context-too-long",
        _MODEL,
        (
            "ModelConfig: User-specified max_model_len (100000000) is greater than the derived max_model_len "
            "(max_position_embeddings=2048.0",
        ),
        "the requested context is longer than the model's own limit",
        "lower gb10_max_model_len, or set it to 0 for the model's limit",
        "a recorded start",
        LAB,
        r"User-specified max_model_len .{0,40} is greater than the derived",
    ),
    Symptom(
        "weights-unreadable",
        _MODEL,
        ("FileNotFoundError: No such file or directory: /srv/models/moe/model.safetensors",),
        "gb10_service_user cannot read the weights; safetensors reports each file that it cannot open as missing",
        "run chmod --recursive a+rX on the model's folder, and let every user enter the folders above it",
        "vLLM 0.33.0 on an NVIDIA H100 (tests/gpu/site.py), with weights of mode 0600",
        LAB,
        r"No such file or directory: /.{1,300}\.safetensors",
    ),
    Symptom(
        "weights-shape",
        _MODEL,
        ("AssertionError: Attempted to load weight (torch.Size([64])) into parameter (torch.Size([128]))",),
        (
            "a tensor of the weights has another shape than config.json gives it: the files are of different "
            "models or revisions"
        ),
        "restore config.json and weights of the same revision, or remove --hf-overrides from gb10_vllm_extra_args",
        "vLLM 0.33.0 on two NVIDIA H100 (tests/gpu/site.py), with another head_dim in config.json",
        LAB,
        r"Attempted to load weight \(torch\.Size\(\[[\d, ]{0,60}\]\)\) into parameter",
    ),
)

_ARGUMENT_ERRORS = (
    Symptom(
        "argument-unknown",
        _ARGUMENTS,
        ("vllm serve: error: unrecognized arguments: --swap-space 4",),
        "this vLLM release does not have the argument",
        "remove it from gb10_vllm_extra_args; site.yml checks arguments against the release before the start",
        "Python, argparse (message)",
        SOURCE,
        r"error: unrecognized arguments|error: ambiguous option",
    ),
    Symptom(
        "argument-value",
        _ARGUMENTS,
        ("vllm serve: error: argument --dtype: invalid choice: 'float7' (choose from 'auto', 'bfloat16')",),
        "an argument has a value that vLLM rejects",
        "correct it in gb10_vllm_extra_args",
        "a recorded start",
        LAB,
        r": error: argument .{0,80}: (?:invalid|expected|not allowed)",
    ),
    Symptom(
        "too-few-gpus",
        _ARGUMENTS,
        ("ValueError: World size (2) is larger than the number of available GPUs (1) in this node.",),
        "the ranks should all run on one node, because the executor for several nodes is not set",
        "remove --distributed-executor-backend and --nnodes from gb10_vllm_extra_args; set "
        "gb10_distributed_executor_backend",
        f"{_SPARK}; vLLM 0.32, config/parallel.py",
        SOURCE,
        r"World size .{0,12} is larger than the number of",
    ),
    Symptom(
        "nodes-with-ray",
        _ARGUMENTS,
        ("ValueError: nnodes > 1 can only be set when distributed executor backend is mp, uni or external_launcher.",),
        "--nnodes belongs to the executor mp, and this cluster uses Ray",
        "remove --nnodes from gb10_vllm_extra_args, or set gb10_distributed_executor_backend: mp",
        "vLLM 0.32, config/parallel.py",
        SOURCE,
        r"nnodes > 1 can only be set",
        ("nnodes-ray",),
    ),
    Symptom(
        "expandable-segments",
        _ARGUMENTS,
        (
            "ValueError: KV connector NixlConnector is incompatible with "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
        "the allocator may move memory that a KV connector has registered",
        "remove expandable_segments:True from gb10_extra_env, or remove the connector",
        "vLLM 0.32, config/vllm.py",
        SOURCE,
        r"incompatible with PYTORCH\w{0,12}ALLOC_CONF=expandable_segments",
        ("expandable-segments-connector",),
    ),
    Symptom(
        "engine-start-timeout",
        _ARGUMENTS,
        (
            "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight "
            "loading for large models.",
        ),
        "loading took longer than vLLM's own limit",
        "set VLLM_ENGINE_READY_TIMEOUT_S in gb10_extra_env, and raise vllm_serve_start_timeout too",
        "vLLM 0.32, v1/engine/core_client.py",
        SOURCE,
        r"Timed out waiting for (?:new )?engine core processes",
    ),
)

_HOST_ERRORS = (
    Symptom(
        "gate-refused",
        _HOST,
        (
            "gb10-gates refused the start: spark2.gates.fabric.enp1s0f1np1: MTU 1500. Expected: MTU 9000 "
            "(gb10_fabric_mtu). Fix: run site.yml --tags qsfp_netplan; ip address show lists the interfaces.",
        ),
        "the node was not as planned for gb10_gate_timeout seconds: fabric, peers, GPU, NCCL or memory",
        "follow the fix in the line, then run site.yml",
        "this collection",
        LAB,
        r"^gb10-gates refused the start: ",
    ),
    Symptom(
        "port-in-use",
        _HOST,
        ("OSError: [Errno 98] Address already in use",),
        "another process on the node listens on gb10_api_port, or on a port of Ray or the rendezvous",
        "find it with ss -ltnp and stop it, or set another gb10_api_port, gb10_ray_port or gb10_master_port",
        "a recorded start",
        LAB,
        r"[Aa]ddress already in use",
    ),
    Symptom(
        "program-format",
        _HOST,
        ("gb10-vllm.service: Failed to execute /usr/local/bin/gb10-wait-for-ray: Exec format error",),
        "the program is for another CPU architecture, or a script without its first line",
        "run site.yml, which writes its programs again; a wheelhouse or image must be for aarch64",
        "a recorded start",
        LAB,
        r"Exec format error",
    ),
    Symptom(
        "program-missing",
        _HOST,
        (
            "gb10-vllm.service: Failed to execute /opt/gb10/runtime/current/bin/vllm: No such file or directory",
            "gb10-ray.service: Failed at step EXEC spawning /opt/gb10/runtime/current/bin/ray: No such file or "
            "directory",
        ),
        "the runtime is not installed on this node, or an interrupted run removed it",
        "run site.yml --tags vllm_runtime",
        "systemd.exec(5), 203/EXEC",
        tested=DOCUMENTED,
        pattern=r"Failed (?:to execute|at step EXEC|to locate executable) .{0,300}No such file"
        # nvidia-modprobe is optional, and systemd reports that it is missing at each start.
        r"|Unable to locate executable '(?!/usr/bin/nvidia-modprobe)",
    ),
    Symptom(
        "unit-directories",
        _HOST,
        (
            "gb10-vllm.service: Failed to set up mount namespacing: /srv/extra: No such file or directory",
            "gb10-vllm.service: Failed at step NAMESPACE spawning /usr/bin/python3: No such file or directory",
        ),
        "a directory of the unit does not exist, such as one in gb10_service_read_write_paths (226/NAMESPACE)",
        "create the directory, or remove it from gb10_service_read_write_paths; then run site.yml",
        "systemd.exec(5), 226/NAMESPACE",
        tested=DOCUMENTED,
        pattern=r"Failed to set up mount namespacing|Failed at step NAMESPACE",
    ),
    Symptom(
        "unit-user",
        _HOST,
        (
            "gb10-ray.service: Failed to determine user credentials: No such process",
            "gb10-ray.service: Failed at step USER spawning /srv/models/x: No such process",
        ),
        "gb10_service_user does not exist on this node",
        "run site.yml, which creates the user",
        "systemd.exec(5), 217/USER",
        tested=DOCUMENTED,
        pattern=r"Failed to determine user credentials|Failed at step (?:USER|GROUP)",
    ),
    Symptom(
        "unit-files",
        _HOST,
        (
            "gb10-vllm.service: Failed to load environment files: No such file or directory",
            "gb10-vllm.service: Failed to set up credentials: No such file or directory",
            "gb10-ray.service: Failed at step CHDIR spawning /srv/models/x: No such file or directory",
        ),
        "a file in /etc/gb10 or the service user's home is missing (243/CREDENTIALS, 200/CHDIR)",
        "run site.yml, which writes them again",
        "systemd.exec(5)",
        tested=DOCUMENTED,
        pattern=r"Failed to load environment files|Failed to set up credentials|Failed at step (?:CREDENTIALS|CHDIR)",
    ),
    Symptom(
        "unit-timeout",
        _HOST,
        ("gb10-vllm.service: start-pre operation timed out. Terminating.",),
        "the unit waited too long for Ray's nodes or for the NVIDIA driver",
        "read journalctl -u gb10-ray on every node; vllm_serve_ray_timeout is the limit",
        "systemd.service(5)",
        tested=DOCUMENTED,
        pattern=r"\.service: start(?:-pre)? operation timed out",
    ),
    Symptom(
        "semaphores-removed",
        _HOST,
        (
            "    self._semlock = _multiprocessing.SemLock._rebuild(*state)",
            "FileNotFoundError: [Errno 2] No such file or directory: '/psm_f49f4149'",
        ),
        "systemd-logind (RemoveIPC) deleted shared memory of a login user whose last session ended",
        "let the units run vLLM: gb10_service_user is a system user, which logind spares; otherwise loginctl "
        "enable-linger USER",
        "eugr/spark-vllm-docker#352; vllm-project/vllm#54259",
        pattern=r"SemLock\._rebuild|No such file or directory: '/(?:psm_|mp-|sem\.)",
    ),
    Symptom(
        "open-files",
        _HOST,
        ("OSError: [Errno 24] Too many open files",),
        "the process may open too few files",
        "remove --ulimit nofile from gb10_container_args; the units allow 1048576",
        "vLLM 0.32, utils/system_utils.py (warning)",
        tested=DOCUMENTED,
        pattern=r"Too many open files",
    ),
    Symptom(
        "permission",
        _HOST,
        (
            "PermissionError: [Errno 13] Permission denied: '/srv/cache/x'",
            "OSError: [Errno 30] Read-only file system: '/srv/cache/x'",
        ),
        "the services may write only to their home; everything else is read-only for them",
        "add an existing directory to gb10_service_read_write_paths, or point the cache's variable into the user's "
        "home",
        "docs/security.md of this collection; root-owned folders in "
        "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#180",
        pattern=r"\[Errno (?:13|30)\]|Read-only file system|Failed to \w{1,20} .{0,300}: Permission denied",
    ),
    Symptom(
        "library-missing",
        _HOST,
        (
            "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
            "ImportError: /opt/gb10/runtime/current/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: "
            "_ZN3c104cuda29c10",
        ),
        "vLLM, PyTorch and CUDA in this environment do not belong together",
        f"{_REINSTALL}; with gb10_runtime_lock or gb10_runtime_wheels, use versions for one CUDA release",
        "common on mixed CUDA 12 and 13 wheels; vllm-project/vllm#28589",
        pattern=r"cannot open shared object file|undefined symbol: |version `?GLIBC\w{0,4}_[\d.]{1,12}' not found",
    ),
    Symptom(
        "module-missing",
        _HOST,
        (
            "ModuleNotFoundError: No module named 'triton'",
            "ray.exceptions.RaySystemError: System error: No module named 'triton'",
            "ImportError: cannot import name 'AutoVideoProcessor' from 'transformers'",
        ),
        "a Python package is missing on this node, or has another version than vLLM needs",
        _REINSTALL,
        _GB10,
        pattern=r"(?:ModuleNotFoundError|System error): No module named|ImportError: cannot import name",
    ),
)

#: First the causes: an error, its details and the messages before it are searched for them.
CAUSES: tuple[Symptom, ...] = (
    *_MEMORY_ERRORS,
    *_NETWORK_ERRORS,
    *_KERNEL_ERRORS,
    *_DRIVER_ERRORS,
    *_RAY_ERRORS,
    *_MODEL_ERRORS,
    *_ARGUMENT_ERRORS,
    *_HOST_ERRORS,
)

#: Then the errors that only follow from another. Only the first error itself is compared with them.
CONSEQUENCES: tuple[Symptom, ...] = (
    Symptom(
        "rank-died",
        _CONSEQUENCE,
        (
            "the rank with pid 563 on 10.110.0.2 died: Worker unexpectedly exits with a connection error code 2. End "
            "of file.",
            "RayWorkerProc rank=[1] died unexpectedly, shutting down executor.",
        ),
        "a rank's process ended without a message of its own: it was killed, it crashed, or its host is gone",
        "read journalctl -k and journalctl -u gb10-ray -u gb10-vllm of that node; then run site.yml",
        "a recorded run whose rank was killed",
        LAB,
        r"^the rank with pid \d{1,9} on .{0,80} died|(?:RayWorkerProc|Worker proc) .{0,80}died unexpectedly",
    ),
    Symptom(
        "peer-closed",
        _CONSEQUENCE,
        (
            "NCCL WARN socketProgress: Connection closed by remote peer spark2<48731>",
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
            "[10.110.0.2]:22461",
        ),
        "another rank ended first; the first error is in the log of its node",
        "read journalctl -u gb10-ray -u gb10-vllm on the other nodes from this time on",
        f"a marked pattern of vLLM clusters in users' reports; {_NCCL}/misc/socket.cc; PyTorch 2.13 (message)",
        SOURCE,
        r"Connection closed by (?:remote )?peer|Connection reset by peer"
        r"|remote process exited or there was a network error|Broken pipe",
    ),
    Symptom(
        "nccl-cuda-error",
        _CONSEQUENCE,
        ("RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",),
        "a CUDA call of NCCL failed: no code for this GPU, no memory, or an earlier error of the GPU",
        f"{_SAME_NCCL}; set NCCL_DEBUG: WARN in gb10_extra_env for the reason",
        "NCCL 2.30, src/init.cc; vllm-project/vllm#46253",
        SOURCE,
        r"unhandled cuda error|ncclUnhandledCudaError",
        ("nccl-arm-hang",),
    ),
    Symptom(
        "nccl-system-error",
        _CONSEQUENCE,
        (
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:94, unhandled system error (run with "
            "NCCL_DEBUG=INFO for details)",
            "RuntimeError: NCCL error: internal error - please report this issue to the NCCL developers",
        ),
        "a network or memory call of NCCL failed; its own message is only in the log if NCCL_DEBUG is set",
        "set NCCL_DEBUG: WARN in gb10_extra_env and run again; site.yml --tags qsfp_netplan verifies the links",
        f"NCCL 2.30, src/init.cc; {_SPARK} (cables and InfiniBand checks)",
        SOURCE,
        r"unhandled system error|ncclSystemError|ncclInternalError|NCCL error: internal error|ncclRemoteError"
        r"|ncclInvalidUsage|NCCL error",
    ),
    Symptom(
        "process-killed",
        _CONSEQUENCE,
        ("gb10-vllm.service: Main process exited, code=killed, status=9/KILL",),
        (
            "another program ended the server: the OOM killer, the memory guard, earlyoom, a watchdog, systemctl, "
            "or a person"
        ),
        "read journalctl -k and journalctl -u gb10-memory-guard -u earlyoom of the node; disable earlyoom, or "
        "lower its limit to a fixed size",
        "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark (earlyoom under deep contexts); "
        "tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#31",
        pattern=r"code=killed, status=(?:9/KILL|15/TERM)",
        rules=("memory-utilization-ceiling",),
    ),
    Symptom(
        "process-crashed",
        _CONSEQUENCE,
        ("gb10-vllm.service: Main process exited, code=dumped, status=11/SEGV",),
        "native code of vLLM, PyTorch or a driver crashed",
        "read journalctl -k (Xid errors); run site.yml --tags vllm_runtime; try another backend or stack",
        "systemd.service(5)",
        tested=DOCUMENTED,
        pattern=r"code=(?:killed|dumped), status=(?:11/SEGV|6/ABRT|4/ILL)",
    ),
    Symptom(
        "engine-died",
        _CONSEQUENCE,
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore': 1}",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for "
            "the root cause.",
        ),
        "another process of the server failed, and its error is not in the lines that were read",
        "read the whole log: journalctl -u gb10-vllm, and journalctl -u gb10-ray on every node",
        "vLLM 0.32, v1/engine",
        SOURCE,
        r"Engine core initialization failed|EngineDeadError|EngineCore encountered an issue"
        r"|WorkerProc initialization failed",
    ),
)
