# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Symptoms with log lines. Their order decides when several match: a symptom precedes those with broader patterns."""

from __future__ import annotations

from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import DOCUMENTED, LAB, LOG, SOURCE, Check

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

_memory = partial(Check[str], LOG, topic="Memory and disk space")
_network = partial(Check[str], LOG, topic="NCCL and the network")
_kernels = partial(Check[str], LOG, topic="GPU kernels and compilers")
_driver = partial(Check[str], LOG, topic="Driver and containers")
_ray = partial(Check[str], LOG, topic="Ray")
_model = partial(Check[str], LOG, topic="Model files")
_arguments = partial(Check[str], LOG, topic="Arguments")
_host = partial(Check[str], LOG, topic="Installation and services")
_consequence = partial(Check[str], LOG, topic="Consequences of another error")

_MEMORY_ERRORS = (
    _memory(
        "loading-killed",
        shows="RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        why=(
            "no process reported an error: memory ran out while the weights were loaded; vLLM before 0.24 counts "
            "unified memory wrongly"
        ),
        fix=(
            "reboot the node if its memory stays held, use vLLM 0.24 or newer, and raise gb10_memory_reserve; "
            "journalctl -k shows a killed process"
        ),
        source="mudler/LocalAI#10722; vllm-project/vllm#45179",
        pattern=r"Failed core proc\(s\): \{\}",
    ),
    _memory(
        "memory-not-free",
        shows=(
            "ValueError: Free memory on device cuda:0 (101.52/121.69 GiB) on startup is less than desired GPU memory "
            "utilization (0.87, 105.87 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
            "processes."
        ),
        why="other programs, an earlier server, files in /dev/shm or (before vLLM 0.20) the page cache have the "
        "unified memory; high values of vm.min_free_kbytes and vm.watermark_scale_factor take gigabytes too",
        fix="end other programs; keep vllm_serve_drop_caches true; list /dev/shm; remove such values from "
        "/etc/sysctl.d, and reboot; reboot a node whose memory stays low; else raise gb10_memory_reserve",
        source=f"vllm-project/vllm#35356, #48140; {_MIXED}; prism-hu/chat (2026-10: 9 GiB by two sysctls); vLLM 0.32, "
        "v1/worker/utils.py",
        tested=SOURCE,
        pattern=r"Free memory on device .{0,80}less than (?:desired|the engine)",
        rules=("page-cache-counted", "memory-utilization-default"),
    ),
    _memory(
        "kv-cache-none",
        shows="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        why="weights and activations fill the memory that vLLM may use, so nothing remains for the KV cache",
        fix=(
            "lower gb10_memory_reserve if the node has free memory, or use more nodes; playbooks/plan.yml shows the "
            "memory"
        ),
        source="vLLM 0.32, v1/core/kv_cache_utils.py",
        tested=SOURCE,
        pattern=r"No available memory for the cache blocks",
    ),
    _memory(
        "kv-cache-small",
        shows=(
            "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (9.31 GiB)."
        ),
        why="one request of the maximum context needs more KV cache than fits",
        fix="set gb10_max_model_len to the length in the message, or gb10_kv_cache_dtype: fp8",
        source="vLLM 0.32, v1/core/kv_cache_utils.py",
        tested=SOURCE,
        pattern=r"larger than the available KV cache memory",
    ),
    _memory(
        "state-blocks-few",
        shows=(
            "ValueError: max_num_seqs (512) exceeds available Mamba cache blocks (429). Each decode sequence requires "
            "one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most 429 or "
            "increase gpu_memory_utilization."
        ),
        why="each request needs a block for its state (Mamba, linear attention), and the KV cache has fewer blocks",
        fix=(
            "set gb10_max_num_seqs to 0 for as many as can run at the same time, or lower it below the number in "
            "the message"
        ),
        source="vllm-project/vllm#38270 (the check), #49064 (reports of it); vLLM 0.33, config/compilation.py",
        tested=SOURCE,
        pattern=r"max_num_seqs .{0,20}exceeds available Mamba cache",
    ),
    _memory(
        "ray-memory-monitor",
        shows=(
            "ray.exceptions.OutOfMemoryError: Memory on the node (IP: 192.168.100.10) was 115.65GB / 121.69GB "
            "(0.950369), "
            "which exceeds the memory usage threshold of 0.95."
        ),
        why="Ray counts the weights in unified memory as host memory, and kills the worker above 95 %",
        fix="remove RAY_memory_monitor_refresh_ms from gb10_extra_env; the plan sets it to 0 on every node",
        source=f"{_GB10}; {_CONSELARA}; NVIDIA/dgx-spark-playbooks#109",
        pattern=r"exceeds the memory usage threshold|ray\.exceptions\.OutOfMemoryError"
        r"|due to the node running low on memory",
        rules=("ray-memory-monitor",),
    ),
    _memory(
        "compiler-out-of-memory",
        shows=(
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"
            "g++: fatal error: Killed signal terminated program cc1plus"
        ),
        why="compiler processes of torch.compile or FlashInfer use up the host's memory",
        fix="set MAX_JOBS: '2' in gb10_extra_env, raise gb10_memory_reserve, or add --enforce-eager, which costs speed",
        source=_MIXED,
        pattern=r"'?(?:cicc|ptxas|cudafe\+\+)'? died due to signal 9|fatal error: Killed signal terminated",
        rules=("enforce-eager",),
    ),
    _memory(
        "gpu-memory-unreadable",
        shows="torch.AcceleratorError: CUDA error: out of memory @ torch/cuda/memory.py in mem_get_info",
        why="the driver cannot even report its memory: an earlier process left it in a wrong state",
        fix="reboot the node and update DGX OS (playbooks/os_update.yml); keep vllm_serve_drop_caches true",
        source="NVIDIA/xr-ai#440",
        pattern=r"out of memory.{0,200} @ torch/cuda/memory\.py in mem_get_info",
    ),
    _memory(
        "gpu-out-of-memory",
        shows=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.50 GiB. GPU 0 has a total capacity of "
            "121.69 GiB\n"
            "NCCL WARN Cuda failure 2 'out of memory'\n"
            "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"
        ),
        why="weights, KV cache, profiling, FlashInfer's autotuning and the host need more than the unified memory",
        fix="remove --enable-flashinfer-autotune; " + _SMALLER,
        source=f"{_GB10}; {_CONSELARA}; {_SPARK}; vllm-project/vllm#46307; NVIDIA/dgx-spark-playbooks#97",
        pattern=r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|NV_ERR_NO_MEMORY"
        r"|Cuda failure (?:\d{1,3} )?'out of memory'",
        rules=("flashinfer-autotune", "load-pressure"),
    ),
    _memory(
        "oom-killer",
        shows=(
            "gb10-vllm.service: A process of this unit has been killed by the OOM killer.\n"
            "gb10-ray.service: Failed with result 'oom-kill'."
        ),
        why="the host had no memory left; GPU allocations in unified memory count too",
        fix="add swap for the load; " + _SMALLER,
        source="tonyd2wild/GLM-5.3-Flash-NVFP4-1M-KV-4x-DGX-Spark (Marlin's repacking without swap); systemd",
        pattern=r"killed by the OOM killer|Failed with result 'oom-kill'",
        rules=("memory-utilization-ceiling", "fastsafetensors-large", "swap-space"),
    ),
    _memory(
        "shared-memory-small",
        shows=(
            "OSError: [Errno 28] No space left on device: '/dev/shm/psm_3c1f'\n"
            "gb10-vllm.service: Main process exited, code=dumped, status=7/BUS"
        ),
        why="/dev/shm is full, often because a container has its own small one",
        fix="remove --ipc and --shm-size from gb10_container_args, and delete old files in /dev/shm",
        source="vLLM's documentation (Docker, --ipc=host)",
        tested=DOCUMENTED,
        pattern=r"No space left on device: '/dev/shm|insufficient shared memory \(shm\)|status=7/BUS",
        rules=("bridge-network",),
    ),
    _memory(
        "disk-full",
        shows="OSError: [Errno 28] No space left on device",
        why="a file system is full: the runtimes, the model, or the caches in the service user's home",
        fix="free space (df -h on the node); model_store_min_free_bytes reserves some; a failed download may have "
        "filled it",
        source="tonyd2wild/GLM-5.3-Flash-NVFP4-1M-KV-4x-DGX-Spark (a retried download on the worker)",
        pattern=r"No space left on device|Disk quota exceeded",
    ),
)

_NETWORK_ERRORS = (
    _network(
        "autotune-cache",
        shows=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
            "[10.110.0.2]:41022 @ vllm/model_executor/warmup/kernel_warmup.py in flashinfer_autotune"
        ),
        why="FlashInfer's autotune cache of an earlier start hits on one rank only, so the ranks wait for each other",
        fix=(
            "remove .cache/vllm/flashinfer_autotune_cache in the service user's home on all nodes, and run site.yml; "
            "--no-enable-flashinfer-autotune avoids it"
        ),
        source="vllm-project/vllm#57423; getainode/ainode#136; sawaichi9527 (2026-09-20)",
        pattern=r"(?:Timed out waiting|pair closure|Connection closed by peer|Broken pipe).{0,300} @ "
        r"vllm/\S{0,80} in flashinfer_autotune",
        releases=("0.27", "0.31"),
    ),
    _network(
        "rdma-pinned-memory",
        shows="ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        why="the kernel has free memory only in areas that RDMA cannot pin (KHO), or the memlock limit is low",
        fix="if /proc/meminfo has more CmaFree than CmaTotal, boot kernel 6.17.0-1031 or -1032, or run "
        "playbooks/os_update.yml -e os_update_kernel_options=kho=off; otherwise remove --ulimit memlock from "
        "gb10_container_args",
        source="NVIDIA/NV-Kernels#590; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259; eugr/spark-vllm-docker#389",
        pattern=r"ibv_reg_mr\w{0,12} failed with error Cannot allocate memory|register mr.{0,40}Cannot allocate memory",
        rules=("kernel-cma", "kernel-7-0-0-1019"),
    ),
    _network(
        "rdma-memlock",
        shows="ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
        why="the limit of locked memory is low: RDMA needs it unlimited",
        fix="remove --ulimit memlock from gb10_container_args; the units and containers set no limit",
        source="NVIDIA/nccl-tests#206; NVIDIA/nccl#1191",
        pattern=r"ibv_create_\w{2,8} failed with error Cannot allocate memory",
    ),
    _network(
        "rdma-gid",
        shows=(
            "NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev rocep1s0f1:1, curr state INIT, "
            "next state RTR"
        ),
        why="the pinned GID index does not exist on that device; the index changes when addresses change",
        fix="set gb10_fabric_pin_gid_index: false, and remove NCCL_IB_GID_INDEX from gb10_extra_env",
        source="tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#38, #40; NVIDIA/nccl#2157",
        pattern=r"ibv_modify_qp failed with .{0,40}No data available",
        rules=("nccl-gid-index",),
    ),
    _network(
        "rdma-unreachable",
        shows=(
            "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev rocep1s0f0:1, curr state "
            "INIT, next state RTR"
        ),
        why=("no cable joins the two RDMA devices: opposite nodes of a ring, equal ports, or crossed rails"),
        fix="in a ring of four or more, keep the plan's NCCL_RUNTIME_CONNECT and NCCL_CUMEM_ENABLE; with cables "
        "between equal ports, its NCCL_IB_MERGE_NICS. Else join port 0 of each node to port 1 of the next; run "
        "playbooks/discover.yml",
        source="eugr/spark-vllm-docker#252; luxingcom (a ring of three); MiaAI-Lab/DeepSeek-v4.1#19; NVIDIA/nccl#2013",
        pattern=r"ibv_modify_qp failed with .{0,40}(?:Connection timed out|No route to host)",
        rules=("ring-environment", "nccl-cross-nic"),
    ),
    _network(
        "rdma-address",
        shows="NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",
        why="an RDMA device has no address in its peer's network",
        fix="run site.yml --tags qsfp_netplan, and let the plan set NCCL_IB_HCA",
        source="NVIDIA/nccl-tests#185",
        pattern=r"ibv_modify_qp failed with .{0,40}(?:Network is unreachable|Invalid argument|No such device)",
        rules=("nccl-ib-hca-unset", "nccl-ib-hca-half"),
    ),
    _network(
        "rdma-retries",
        shows=(
            "NCCL WARN NET/IB: Got completion from peer 10.110.0.2<48731> with status=IBV_WC_RETRY_EXC_ERR(12) "
            "opcode=IBV_WC_SEND(0)"
        ),
        why="the peer does not receive the packets: an MTU that differs (firmware can reset it to 1500), a lost link, "
        "or a dead rank",
        fix="run site.yml --tags qsfp_netplan, which verifies each path with full-size frames",
        source=f"report of an MTU reset by a firmware reboot (2026-09); {_SPARK}; {_NCCL}/transport/net_ib/p2p.cc",
        pattern=r"IBV_WC_RETRY_EXC_ERR|status=12 opcode=|transport retry counter exceeded",
    ),
    _network(
        "rdma-dmabuf",
        shows="NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Bad address errno 14",
        why="NCCL tries GPUDirect RDMA, which a GB10 does not support",
        fix="remove NCCL_NET_GDR_LEVEL and NCCL_DMABUF_ENABLE from gb10_extra_env",
        source=f"NVIDIA/nccl#2213; vllm-project/vllm#46253; {_NCCL}/misc/ibvwrap.cc",
        pattern=r"ibv_reg_dmabuf_mr failed|nvidia[-_]peermem.{0,60}(?:failed|not)",
        rules=("gpudirect-rdma",),
    ),
    _network(
        "nccl-transport-differs",
        shows="NCCL WARN socketFinalizeAccept: wrong type 3 != 4",
        why="some ranks offer RoCE and others sockets, for example Sparks and Thors together",
        fix="set gb10_fabric_topology: socket, which sets NCCL_IB_DISABLE=1 on all nodes",
        source=_MIXED,
        pattern=r"wrong type \d{1,3} != \d{1,3}",
        rules=("mixed-transport",),
    ),
    _network(
        "nccl-version-differs",
        shows="NCCL WARN Mismatched NCCL version detected : rank 0 version 22907 rank 1 version 22809 ",
        why="the ranks load different NCCL releases",
        fix=f"{_SAME_NCCL}; remove LD_PRELOAD and VLLM_NCCL_SO_PATH from gb10_extra_env",
        source=f"{_NCCL}/init.cc",
        tested=SOURCE,
        pattern=r"Mismatched NCCL version detected",
        rules=("environment-differs",),
    ),
    _network(
        "nccl-message-truncated",
        shows="bootstrap.cc:77 NCCL WARN Message truncated : received 176 bytes instead of 172",
        why="the ranks exchange data of different sizes: other NCCL builds or variables on one node; on GB10 a report "
        "blames "
        "builds without code for 12.1",
        fix=f"{_SAME_NCCL}; keep gb10_extra_env equal on all nodes",
        source=f"{_GB10}; NVIDIA/nccl#605, #626 (mismatched environments)",
        pattern=r"[Mm]essage truncated ?: (?:received|receiving) [\d,]{1,22} bytes instead of",
        rules=("environment-differs",),
    ),
    _network(
        "nccl-link-local",
        shows=(
            "NCCL WARN socketPollConnect: connect to fe80::4ebb:47ff:fe2c:1%enp1s0f1np1<40959> failed : Network is "
            "unreachable"
        ),
        why="NCCL chose an interface that has only a link-local IPv6 address",
        fix="remove NCCL_SOCKET_IFNAME from gb10_extra_env, so that the plan sets it",
        source=_MIXED,
        pattern=r"fe80:.{0,160}(?:unreachable|failed)|unreachable.{0,160}fe80:",
        rules=("socket-interface",),
    ),
    _network(
        "address-foreign",
        shows="zmq.error.ZMQError: Cannot assign requested address (addr='tcp://192.168.100.10:45001')",
        why="this node does not have the address of the listener: VLLM_HOST_IP of an image or of another node, "
        "gb10_api_host, or a changed address",
        fix="remove VLLM_HOST_IP from gb10_extra_env, correct gb10_api_host, and run site.yml, which sets each node's "
        "own address",
        source="maci0/dgx-spark-deepseek-v4-flash-0731, TROUBLESHOOTING.md (2026-08: in the image)",
        pattern=r"ZMQError: Cannot assign requested address|^OSError: \[Errno 99\] Cannot assign requested address",
    ),
    _network(
        "symmetric-memory",
        shows="RuntimeError: Failed to send fd: No such file or directory",
        why="PyTorch's symmetric memory passes file descriptors between processes of one host, not between nodes",
        fix="remove VLLM_ENABLE_GEMM_RS from gb10_extra_env; before vLLM 0.32 also fuse_gemm_comms and "
        "sp_min_token_num from --compilation-config",
        source="Blackwellboy/model-serving-minefield, trap 117 (2026-08)",
        pattern=r"Failed to send fd: ",
    ),
    _network(
        "interface-missing",
        shows=(
            "NCCL WARN Bootstrap : no socket interface found\n"
            "RuntimeError: [enforce fail at device.cc:112] Unable to find interface for: [10.9.0.1]"
        ),
        why="NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that this node does not have, or that has no "
        "address",
        fix="remove both from gb10_extra_env, and run site.yml --tags qsfp_netplan",
        source=f"{_NCCL}/bootstrap.cc",
        tested=SOURCE,
        pattern=r"no socket interface found|No usable listening interface found|no device found matching"
        r"|[Uu]nable to find (?:interface|address) for",
        rules=("socket-interface",),
    ),
    _network(
        "rdma-not-used",
        shows="NCCL WARN Failed to initialize any NET plugin",
        why="NCCL_NET names a transport that this process does not have, such as IB without an RDMA device",
        fix="run ibv_devinfo on the node; remove NCCL_NET from gb10_extra_env; without RDMA set gb10_fabric_transport: "
        "socket",
        source=f"{_NCCL}/plugin/net.cc; NVIDIA/dgx-spark-playbooks#102",
        tested=SOURCE,
        pattern=r"Failed to initialize any NET plugin|network IB not found",
    ),
    _network(
        "nccl-net-plugin",
        shows=(
            "register_mr_buffers:465 NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: 12, "
            "Error: Cannot allocate memory"
        ),
        why="the image's network plugin for another cloud replaces NCCL's RoCE transport",
        fix="set NCCL_NET_PLUGIN: none in gb10_extra_env",
        source=_CONSELARA,
        pattern=r"NCCL WARN NET/OFI",
        rules=("nccl-net-plugin",),
    ),
    _network(
        "gloo-loopback",
        shows=(
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:45231: "
            "Connection refused"
        ),
        why="Gloo published a loopback address, because it resolved the host's name",
        fix="remove GLOO_SOCKET_IFNAME from gb10_extra_env, so that the plan sets it",
        source=f"{_MIXED}; {_CONSELARA}",
        pattern=r"connect \[?127\.\d{1,3}\.\d{1,3}\.\d{1,3}\]?:\d{1,5}: Connection refused"
        r"|Connection refused.{0,40}\b127\.0\.",
        rules=("socket-interface",),
    ),
    _network(
        "gloo-mesh",
        shows=(
            "RuntimeError: Gloo connectFullMesh failed with "
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
        ),
        why="the ranks cannot connect to each other's Gloo ports: a firewall, a bridge network, or another rank ended",
        fix="run site.yml --tags peer_firewall, and open the ports between the nodes in your own firewall",
        source="PyTorch 2.13, libtorch_cpu.so (message)",
        tested=SOURCE,
        pattern=r"Gloo connectFullMesh failed",
        rules=("bridge-network", "socket-interface"),
    ),
    _network(
        "rendezvous-timeout",
        shows=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
            "connect to (10.110.0.1, 29501).\n"
            "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cpu//0/0"
        ),
        why="a rank cannot reach the head's rendezvous port, or another rank ended before it joined",
        fix="read the log of the other nodes first; then check gb10_master_port, the firewall and --network in "
        "gb10_container_args",
        source=f"{_CONSELARA}; PyTorch 2.13, libtorch_cpu.so (message)",
        tested=SOURCE,
        pattern=r"client socket has (?:timed out|failed to connect)|wait timeout after \d{1,9}ms, keys"
        r"|torch\.distributed\.DistStoreError",
        rules=("bridge-network", "host-ip"),
    ),
    _network(
        "nccl-refused",
        shows=(
            "NCCL WARN socketPollConnect: connect to 192.168.100.11<41223> returned Connection refused, exceeded "
            "error retry count after 35 attempts"
        ),
        why="no rank listens at that address: it ended, a firewall refuses it, or the address is not the fabric's",
        fix="read the log of that node first; then keep the plan's VLLM_HOST_IP and NCCL_SOCKET_IFNAME",
        source=f"{_GB10}; {_NCCL}/os/linux.cc",
        tested=SOURCE,
        pattern=r"connect to .{0,80}(?:returned|failed :) (?:Connection refused|No route to host|Connection timed out)",
        rules=("host-ip", "socket-interface"),
    ),
    _network(
        "nccl-unreachable",
        shows=(
            "gpu1:21206:21288 [0] os/linux.cc:302 (socketConnectCheck) NCCL WARN ncclOsSocketStartConnect: connect to "
            "10.110.4.3<43017> failed : Network is unreachable"
        ),
        why="NCCL over sockets connects to a node that NCCL_SOCKET_IFNAME's devices do not reach, such as the opposite "
        "one of a ring",
        fix="let the plan set NCCL_SOCKET_IFNAME; in a ring of four or more, also NCCL_RUNTIME_CONNECT and "
        "NCCL_CUMEM_ENABLE",
        source=f"{_NCCL}/os/linux.cc; tests/gpu/ring.py (2026-11-29)",
        tested=LAB,
        pattern=r"connect to [\d.]{7,15}<\d{1,5}> failed : Network is unreachable",
        rules=("socket-interface", "ring-environment"),
    ),
    _network(
        "nccl-connect",
        shows=(
            "spark2:5665:5801 [0] proxy.cc:1487 NCCL WARN [Service thread] Error encountered progressing "
            "operation=Connect, res=3, closing connection\n"
            "spark2:5665:5801 [0] proxy.cc:1521 NCCL WARN [Proxy Service 1] Failed to execute operation Connect from "
            "rank 1, retcode 3"
        ),
        why="two ranks could not connect over the adapter; a line before it may name the call, such as ibv_modify_qp",
        fix="run verify.yml --tags fabric, which compares cables, addresses, GIDs and the kernel's memory of each "
        "rail; remove /etc/nccl.conf from the image and NCCL_IB_* from gb10_extra_env",
        source="MiaAI-Lab/Qwen3.8-Dual-DGX-Spark#3; luxingcom/aicad-nccl-optimization#1 (cabling, kernel, image); "
        f"{_NCCL}/proxy.cc",
        tested=SOURCE,
        pattern=r"operation=Connect, res=[2-9]|Failed to execute operation Connect",
        rules=("nccl-gid-index", "kernel-cma", "ring-environment"),
    ),
)

_KERNEL_ERRORS = (
    _kernels(
        "ptxas-sm110",
        shows="ptxas-blackwell fatal   : Value 'sm_110a' is not defined for option 'gpu-name'",
        why="Triton before 3.7 has an assembler without the Thor's architecture",
        fix="set TRITON_PTXAS_PATH to CUDA 13's ptxas in the Thor's gb10_extra_env, or add --enforce-eager",
        source=f"{_MIXED}; triton-inference-server/server#8632",
        pattern=r"Value 'sm_110\w?' is not defined",
        rules=("thor-ptxas",),
    ),
    _kernels(
        "ptxas-sm121",
        shows="ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        why="Triton uses an assembler from before CUDA 13, without the GB10's architecture",
        fix="run site.yml --tags vllm_patch (patch triton_ptxas), or set TRITON_PTXAS_PATH to CUDA 13's ptxas in "
        "gb10_extra_env",
        source="triton-lang/triton#8539; vllm-project/vllm#31740",
        pattern=r"Value 'sm_12\d\w?' is not defined",
        rules=("triton-ptxas",),
    ),
    _kernels(
        "ptxas-missing",
        shows=(
            "FileNotFoundError: [Errno 2] No such file or directory: "
            "'/usr/lib/python3/triton/backends/nvidia/bin/ptxas'\n"
            "RuntimeError: Cannot find ptxas"
        ),
        why="the image's Triton has no assembler at the path that it uses",
        fix="run site.yml --tags vllm_patch (patch triton_ptxas)",
        source=_CONSELARA,
        pattern=r"Cannot find ptxas|No such file or directory: '.{0,200}ptxas",
        rules=("triton-ptxas",),
    ),
    _kernels(
        "kernel-image-missing",
        shows="torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
        why="a library has no code for this GPU: old builds for a Thor (11.0), or 12.0a builds on a GB10 (12.1)",
        fix="run verify.yml, which names the extension; use gb10_stack: current; for a Thor set "
        "gb10_runtime_wheels; for NCCL run site.yml --tags nccl_sm121_build",
        source=f"{_MIXED}; vllm-project/vllm#38484",
        pattern=r"no kernel image is available|cudaErrorNoKernelImageForDevice",
        rules=("thor-kernels", "fp8-cutlass"),
    ),
    _kernels(
        "cutlass-fp8",
        shows=(
            "RuntimeError: Error Internal\n"
            "RuntimeError: No suitable CUTLASS kernel found for SM_121\n"
            "NotImplementedError: No compiled cutlass_scaled_mm for a compute capability less than CUDA device "
            "capability: 121"
        ),
        why="the CUTLASS FP8 kernels of this vLLM build do not run on 12.1",
        fix="run site.yml --tags vllm_patch, or install vLLM 0.20 or newer built for CUDA 13",
        source=f"{_GB10}; Avarok-Cybersecurity/dgx-vllm; vllm-project/vllm#43367",
        pattern=r"RuntimeError: Error Internal|[Nn]o (?:suitable|compiled) (?:CUTLASS|cutlass)"
        r"|no suitable kernel for SM_?12",
        releases=("", "0.19"),
        rules=("fp8-cutlass",),
    ),
    _kernels(
        "kernel-sm120-only",
        shows="This kernel only supports sm120.",
        why="a CUTLASS kernel was built for 12.1, but its code accepts only 12.0",
        fix="use gb10_stack: current, whose wheels have the family's code; or choose another backend",
        source="vllm-project/vllm#41215, #36835; NVIDIA/cutlass#3144",
        pattern=r"only supports? sm_?1(?:00|20)",
    ),
    _kernels(
        "kernel-shared-memory",
        shows=(
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 114688, Hardware limit: "
            "101376."
        ),
        why="a kernel for larger GPUs needs more shared memory than a GB10's 99 KiB per block",
        fix="run site.yml --tags vllm_patch (patch moe_config), or choose another --attention-backend or --moe-backend",
        source="vllm-project/vllm#32704; NVIDIA/cutlass#3144; flashinfer-ai/flashinfer#3568",
        pattern=r"out of resources?: shared memory",
    ),
    _kernels(
        "triton-load",
        shows="RuntimeError: Triton Error [CUDA]: operation not permitted",
        why=("the driver refused to load a kernel that was compiled late, in a process that had run for hours or days"),
        fix=(
            "run site.yml, which restarts all ranks; in a container of your own, add --device=/dev/nvidia0, nvidiactl, "
            "nvidia-uvm and nvidia-uvm-tools"
        ),
        source="vllm-project/vllm#52877 (driver 580.159.03); bjk110/SPARK_Qwen3.8#19; ajclark/dgx-spark (2026-09-07)",
        pattern=r"Triton Error \[CUDA\]: operation not permitted",
    ),
    _kernels(
        "deep-gemm-blocks",
        shows=("RuntimeError: Assertion error (/d/csrc/apis/attention.hpp:262): block_kv == 32 or block_kv == 64"),
        why="DeepGEMM's indexer takes only these block sizes of the KV cache",
        fix="set --block-size 64 in gb10_vllm_extra_args, or VLLM_USE_DEEP_GEMM: '0' in gb10_extra_env",
        source="NestuFNG/DeepSeek-V4.1-Flash-DGX-Spark-Ring, results/boot5",
        pattern=r"block_kv == 32",
    ),
    _kernels(
        "deep-gemm",
        shows=(
            "RuntimeError: Assertion error (/build/deepgemm/csrc/jit/include_parser.hpp:69): Failed to open: "
            "/v/deep_gemm/include/deep_gemm/impls/sm121_fp8_mqa_logits.cuh\n"
            "RuntimeError: Assertion error (/opt/deepgemm/csrc/apis/../jit/compiler.hpp:147): runtime != nullptr\n"
            "RuntimeError: CUDA driver error (/opt/DeepGEMM/csrc/apis/../jit/handle.hpp:141): 200 "
            "(CUDA_ERROR_INVALID_IMAGE, device kernel image is invalid)\n"
            "RuntimeError: Assertion error (/deepgemm-src/csrc/apis/hyperconnection.hpp:57): Unsupported architecture"
        ),
        why="this DeepGEMM has no code for the GPU: no header for sm_121, or kernels of another architecture",
        fix="set VLLM_USE_DEEP_GEMM: '0' in gb10_extra_env, or use an image whose DeepGEMM has code for sm_12x",
        source=(
            "spark-arena/sparkrun#220; MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#119; vllm-project/vllm#41834, "
            "#52732"
        ),
        pattern=r"(?:Assertion|CUDA driver) error \(.{0,200}(?:csrc/(?:apis|jit)|[Dd]eep_?[Gg][Ee][Mm][Mm])",
    ),
    _kernels(
        "mamba-align",
        shows=(
            "AssertionError: In Mamba cache align mode, block_size (2096) must be <= max_num_batched_tokens (2048)."
        ),
        why="a block of the model's state is larger than one step's tokens",
        fix="set --max-num-batched-tokens in gb10_vllm_extra_args to the first number of the message or more",
        source="a report about Ornith-1 on a Spark (MvdB, 2026-09); vLLM 0.33, config/vllm.py",
        tested=SOURCE,
        pattern=r"In Mamba cache align mode, block_size",
    ),
    _kernels(
        "attention-backend-unknown",
        shows=(
            "pydantic_core._pydantic_core.ValidationError: backend: Unknown attention backend: 'B12X_MLA_SPARSE'. "
            "Valid options are: FLASH_ATTN, B12X"
        ),
        why="this vLLM does not have the backend under that name; a tag such as :latest may be a newer image",
        fix="choose one of the message, or use the image that the recipe was written for, by its digest",
        source="spark-arena/recipe-registry#23",
        pattern=r"Unknown attention backend: '",
    ),
    _kernels(
        "overlay-differs",
        shows=(
            "TypeError: FusedMoE.__init__() got an unexpected keyword argument 'reduce_results'\n"
            "ImportError: vllm.vllm_flash_attn requires the CUDA flash attention extensions (_vllm_fa2_C)"
        ),
        why="files of two vLLM releases are mixed: by a mod, a mount over vLLM's package, or an incomplete build",
        fix="remove the mod or the mount, or use the image that it was written for",
        source="eugr/spark-vllm-docker#238, #272; jethac (2026-09)",
        pattern=r"\(\) got an unexpected keyword argument '|requires the CUDA flash attention extensions",
    ),
    _kernels(
        "positions-exceeded",
        shows="/tmp/torchinductor_gb10/c3/x.py:30: Assertion `index out of bounds: 0 <= tmp16 < 40960` failed.",
        why="a compiled kernel read behind a table; if its size is the model's max_position_embeddings, the context is "
        "longer than the model's positions",
        fix="if it is, set gb10_max_model_len to that number, and remove VLLM_ALLOW_LONG_MAX_MODEL_LEN; otherwise set "
        "CUDA_LAUNCH_BLOCKING: '1' in gb10_extra_env for one start, which shows the call",
        source="timothystewart6/vllm-gb10#7",
        pattern=r"index out of bounds: 0 <= .{1,60} < \d",
    ),
    _kernels(
        "gpu-assert",
        shows="torch.AcceleratorError: CUDA error: device-side assert triggered",
        why="a kernel found a wrong index or value; the frames of the exception are those of a later call",
        fix=(
            "set CUDA_LAUNCH_BLOCKING: '1' in gb10_extra_env for one start, which shows the call; remove speculative "
            "decoding as a test"
        ),
        source="eugr/spark-vllm-docker#237",
        pattern=r"device-side assert triggered",
    ),
    _kernels(
        "mxfp4-checkpoint",
        shows="    dim2 = loaded_weight.shape[2]",
        why="fused_moe/layer.py raises IndexError: with --quantization mxfp4 it reads only the checkpoints of gpt-oss",
        fix="remove --quantization from gb10_vllm_extra_args, or use an FP8 or GPTQ checkpoint of the model",
        source=f"{_CONSELARA}; vllm-project/vllm#35366",
        pattern=r"^ {0,20}dim2 = loaded_weight\.shape\[2\]$",
        rules=("mxfp4-checkpoint",),
    ),
    _kernels(
        "moe-backend",
        shows=(
            "ValueError: NvFp4 MoE backend 'TRITON' does not support the deployment configuration since kernel does "
            "not support current device"
        ),
        why="the requested --moe-backend has no kernel for this GPU and quantization",
        fix="remove --moe-backend from gb10_vllm_extra_args, or set marlin for NVFP4",
        source="vLLM 0.32, model_executor/layers/fused_moe/oracle",
        tested=SOURCE,
        pattern=r"MoE backend .{0,60} does not support the",
        rules=("moe-backend-datacentre", "moe-backend-triton-nvfp4", "fp4-moe-path"),
    ),
    _kernels(
        "linear-kernel",
        shows="ValueError: Failed to find a kernel that can implement the WNA16 linear layer. Reasons: ",
        why="no enabled kernel can compute a layer of this quantization on this GPU",
        fix="remove --linear-backend and VLLM_DISABLED_KERNELS, and run site.yml --tags vllm_patch",
        source="vLLM 0.32, model_executor/kernels/linear",
        tested=SOURCE,
        pattern=r"Failed to find a kernel that can implement",
        rules=("linear-backend-strict",),
    ),
    _kernels(
        "attention-backend",
        shows=(
            "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=80)\n"
            "ValueError: Selected backend FLASHINFER is not valid for this configuration. Reason: ['head_size not "
            "supported']"
        ),
        why="the attention backend does not support this model, KV cache type or GPU",
        fix="remove --attention-backend from gb10_vllm_extra_args, or set TRITON_ATTN; set gb10_kv_cache_dtype: auto",
        source="vLLM 0.32, platforms/cuda.py",
        tested=SOURCE,
        pattern=r"No valid attention backend found|Selected backend .{0,80} is not valid for",
        rules=("flashinfer-fp8",),
    ),
    _kernels(
        "python-headers",
        shows="/tmp/tmpa1/main.c:5:10: fatal error: Python.h: No such file or directory",
        why="Triton compiles at run time, and the Python headers are not installed",
        fix="run site.yml --tags vllm_runtime, and keep python3-dev in vllm_runtime_packages",
        source=_GB10,
        pattern=r"Python\.h: No such file or directory",
    ),
    _kernels(
        "compiler-missing",
        shows=(
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable\n"
            "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"
        ),
        why="kernels are compiled at run time, and a compiler, ninja or nvcc is missing",
        fix="run site.yml, which puts the runtime's programs into PATH and compiles FlashInfer's kernels before the "
        "start; keep g++ in vllm_runtime_packages; FlashInfer needs a CUDA toolkit, or set gb10_flashinfer: false",
        source="Triton, triton/runtime/build.py; FlashInfer",
        tested=DOCUMENTED,
        pattern=r"Failed to find C compiler|Could not find nvcc|Ninja is required|nvcc: not found"
        r"|No such file or directory: '(?:.{0,80}/)?(?:ninja|nvcc|gcc|g\+\+)'",
    ),
    _kernels(
        "gpu-illegal-access",
        shows="torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        why="a GPU kernel failed; on several nodes, CUDA graphs that capture the all-reduce were one cause",
        fix="unset VLLM_USE_BREAKABLE_CUDAGRAPH; then try another --attention-backend or --moe-backend; journalctl -k "
        "shows Xid errors",
        source=f"vllm-project/vllm#46253; {_CONSELARA} (Xid 43)",
        pattern=r"illegal memory access|an illegal instruction was encountered|misaligned address"
        r"|unspecified launch failure",
        rules=("breakable-cudagraph",),
    ),
    _kernels(
        "quantization-gpu",
        shows=(
            "ValueError: The quantization method fp_quant is not supported for the current GPU. Minimum capability: "
            "100. Current capability: 90."
        ),
        why="this quantization needs another GPU generation or data type",
        fix="use a checkpoint with another quantization; docs/models.md lists known ones",
        source="vLLM 0.32, config/vllm.py",
        tested=SOURCE,
        pattern=r"is not supported for the current GPU|is not supported for quantization method",
        rules=(),
    ),
)

_DRIVER_ERRORS = (
    _driver(
        "gpu-permissions",
        shows=(
            "Failed to initialize NVML: Unknown Error\n"
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`\n"
            "torch.AcceleratorError: CUDA error: cudaErrorNotPermitted"
        ),
        why=("the container has lost its GPU: docker update, or systemctl daemon-reload after --gpus without --device"),
        fix="run site.yml, which starts the containers with the devices; do not run docker update on them",
        source="dmytrogajewski/sy (a Spark, 2026-09-20); NVIDIA/nvidia-container-toolkit#48",
        pattern=r"Failed to initialize NVML: Unknown Error|CUBLAS_STATUS_EXECUTION_FAILED|cudaErrorNotPermitted"
        r"|CUDA error: operation not permitted",
    ),
    _driver(
        "gpu-missing",
        shows=(
            "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`"
            "\nRuntimeError: No CUDA GPUs are available"
        ),
        why="the NVIDIA driver is not loaded, often because a new kernel came without its linux-modules-nvidia package",
        fix=(
            "run nvidia-smi on the node. If it fails, install the modules of the running kernel (uname -r), or boot "
            "the previous one. If it works, the container has no GPU: run site.yml"
        ),
        source="eugr/spark-vllm-docker#392; AEON-7/vllm-ultimate-dgx-spark#5; vLLM 0.32, config/device.py",
        tested=SOURCE,
        pattern=r"Failed to infer device type|No CUDA GPUs are available|no CUDA-capable device"
        r"|couldn't communicate with the NVIDIA driver"
        r"|NVML Shared Library Not Found",
        rules=("kernel-differs", "driver-differs"),
    ),
    _driver(
        "driver-old",
        shows=(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12080).\n"
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.1, please update your driver "
            "to a newer version\n"
            "torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported toolchain."
        ),
        why="this CUDA release needs a newer driver than the node has",
        fix=(
            "install DGX OS's driver on all nodes, use a gb10_stack for an older CUDA, or build with the CUDA "
            "toolkit of the driver"
        ),
        source="eugr/spark-vllm-docker#266; NVIDIA/dgx-spark-playbooks; vllm-project/vllm#47397",
        pattern=r"driver on your system is too old|driver version is insufficient for CUDA runtime"
        r"|unsatisfied condition: cuda|PTX was compiled with an unsupported toolchain",
        rules=("driver-old", "driver-differs"),
    ),
    _driver(
        "cuda-unknown",
        shows=(
            "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing "
            "env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."
        ),
        why="the driver does not open the GPU: it failed earlier, was updated without a reboot, or device files are "
        "missing",
        fix="journalctl -k | grep NVRM shows the driver's error; reboot the node",
        source="tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#6 (after errors of memory a day before); PyTorch "
        "2.14, c10/cuda/CUDAFunctions.cpp",
        pattern=r"CUDA unknown error",
    ),
    _driver(
        "container-cdi",
        shows=(
            "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI "
            "runtime create failed: runc create failed: error during container init: error running prestart hook #0: "
            "exit status 1, stdout: , stderr: Using requested mode 'cdi'"
        ),
        why="NVIDIA's container runtime is set to the mode cdi, which refuses docker's --gpus",
        fix="on the node: sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto, restart docker",
        source="eugr/spark-vllm-docker#129",
        pattern=r"Using requested mode 'cdi'",
    ),
    _driver(
        "container-gpu",
        shows='docker: Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]].',
        why="the container engine cannot pass the GPU: the NVIDIA Container Toolkit is missing or not configured",
        fix=(
            "install nvidia-container-toolkit on the node and restart the engine; for podman generate a CDI "
            "specification"
        ),
        source=_SPARK,
        pattern=r"could not select device driver|unresolvable CDI devices|failed to inject CDI"
        r"|nvidia-container-cli: initialization error",
    ),
    _driver(
        "image-missing",
        shows="docker: Error response from daemon: manifest for vllm/vllm-openai:nightly not found: manifest unknown",
        why="the registry deleted the image, limits downloads, or requires a login",
        fix="set gb10_container_image to an existing image by digest, or vllm_runtime_image_archive to a saved copy",
        source="eugr/spark-vllm-docker#226, #296; spark-arena/sparkrun#164",
        pattern=r"manifest unknown|manifest for .{0,200} not found|pull access denied|toomanyrequests|[Nn]o such image",
        rules=("image-not-pinned",),
    ),
)

_RAY_ERRORS = (
    _ray(
        "ray-incomplete",
        shows="Ray is not complete after 600 s: spark2 (10.110.0.2) has not joined",
        why="gb10-ray on the named node does not run, restarts, or cannot reach the head",
        fix="read journalctl -u gb10-ray on that node, then run site.yml; vllm_serve_ray_timeout is the limit",
        source="vllm-dgx-spark (workers that do not join); this collection",
        tested=LAB,
        pattern=r"^Ray is not complete",
        rules=("host-ip",),
    ),
    _ray(
        "ray-missing",
        shows=(
            "ModuleNotFoundError: No module named 'ray'\n"
            "ValueError: Failed to import Ray: No module named 'ray'.Please install Ray with `pip install ray`."
        ),
        why="the image or environment has no Ray (NGC from 26.05 on, vllm/vllm-openai)",
        fix="set gb10_distributed_executor_backend: mp, or use an image with Ray",
        source="NVIDIA/dgx-spark-playbooks#109; vLLM 0.32, v1/executor/ray_utils.py",
        tested=SOURCE,
        pattern=(
            r"No module named 'ray'|Failed to import Ray|\bray: (?:command )?not found"
            r"|ray: executable file not found"
        ),
        rules=("ray-missing",),
    ),
    _ray(
        "ray-token",
        shows="ray.exceptions.AuthenticationError: InvalidAuthToken: Authentication token is missing or incorrect",
        why="the node's token differs from the head's",
        fix="run site.yml --tags ray_cluster, which distributes /etc/gb10/ray.token and restarts Ray",
        source=(
            "Ray 2.60, ray/exceptions.py; measured by hand: a worker without the mode is rejected with InvalidAuthToken"
        ),
        tested=SOURCE,
        pattern=r"InvalidAuthToken|ray\.exceptions\.AuthenticationError|RAY_AUTH_MODE.{0,80}(?:token|required)",
    ),
    _ray(
        "ray-version-differs",
        shows="RuntimeError: Version mismatch: The cluster was started with:",
        why="the nodes have different Ray or Python releases",
        fix=_REINSTALL,
        source="Ray 2.60, ray/_private/utils.py",
        tested=SOURCE,
        pattern=r"Version mismatch: The cluster was started with",
    ),
    _ray(
        "ray-head-unreachable",
        shows=(
            "Unable to connect to GCS (ray head) at 10.110.0.1:6379. Check that (1) Ray with matching version started\n"
            "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to\n"
            "Exception: No node info found for head node in GCS. Did the head node or gcs start successfully?"
        ),
        why="gb10-ray on the head does not run or still starts, or the node cannot reach gb10_ray_port over the fabric",
        fix="read journalctl -u gb10-ray on the head, then run site.yml, which verifies the fabric first",
        source="Ray 2.60, ray/_private/utils.py",
        tested=SOURCE,
        pattern=(
            r"(?:Unable|Failed) to connect to GCS|Could not find any running Ray instance"
            r"|failed to connect to the GCS|No node info found for head node in GCS"
        ),
    ),
    _ray(
        "ray-node-start",
        shows=(
            "Exception: The current node timed out during startup. This could happen because some of the raylet "
            "failed to startup"
        ),
        why="Ray's own processes did not start on this node: no memory, no disk space, or a used port",
        fix="check df -h, free -h and the eight ports from gb10_ray_port on, then restart gb10-ray",
        source="Ray 2.60, ray/_private/node.py",
        tested=SOURCE,
        pattern=r"current node timed out during startup",
    ),
    _ray(
        "host-ip",
        shows=(
            "RuntimeError: Every node should have a unique IP address. Got 2 nodes with node ids ['a', 'b'] and 3 "
            "unique IP addresses\n"
            "RuntimeError: Expected 2 unique IPs but got 3"
        ),
        why="vLLM and Ray use different addresses of a node with several networks",
        fix="remove VLLM_HOST_IP from gb10_extra_env, so that the plan sets each node's fabric address",
        source=f"{_GB10}; vLLM 0.32, v1/executor/ray_executor.py",
        tested=SOURCE,
        pattern=r"Every node should have a unique IP address|Expected \d{1,3} unique IPs but got",
        rules=("host-ip",),
    ),
    _ray(
        "ray-placement",
        shows=(
            "ValueError: Cannot provide a placement group requiring 2 GPUs (placement_group_specs=[{'GPU': 1.0}, "
            "{'GPU': 1.0}]) within 1800 seconds.\n"
            "ValueError: The number of required GPUs exceeds the total number of available GPUs in the "
            "placement group."
        ),
        why="Ray has fewer GPUs than ranks, an old server still has them, or VLLM_HOST_IP differs from Ray's address",
        fix="lower gb10_tensor_parallel_size or add nodes; remove VLLM_HOST_IP from gb10_extra_env; run "
        "playbooks/stop.yml, then site.yml",
        source=f"{_SPARK}; vllm-project/vllm#21231; vLLM 0.32, v1/executor/ray_utils.py",
        tested=SOURCE,
        pattern=(
            r"Cannot provide a placement group"
            r"|exceeds the total number of available \w{1,8} in the placement group"
        ),
        rules=("host-ip", "tensor-parallel-size"),
    ),
)

_MODEL_ERRORS = (
    _model(
        "weights-missing",
        shows="RuntimeError: Cannot find any model weights with `/srv/models/tiny` (on 10.110.0.2)",
        why="this node has no weights of the model, or a copy left links to missing files",
        fix="run site.yml --tags model_store with model_store_verify: true; a model in your own directory must be on "
        "every node",
        source="a recorded start; spark-arena/sparkrun#299 (dangling links)",
        tested=LAB,
        pattern=r"Cannot find any model weights with",
    ),
    _model(
        "weights-truncated",
        shows=(
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, "
            "file not fully covered"
        ),
        why="a file of the weights is incomplete or damaged",
        fix="run site.yml --tags model_store with model_store_verify: true, or copy your own model again",
        source="safetensors 0.8 (message); truncated downloads in MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#177",
        tested=LAB,
        pattern=r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader(?:Length|Deserialization)"
        r"|PytorchStreamReader failed",
    ),
    _model(
        "fastsafetensors",
        shows=(
            "ModuleNotFoundError: No module named 'fastsafetensors'\n"
            "ImportError: Please install vllm[fastsafetensors] for fastsafetensors support\n"
            "ImportError: fastsafetensors is not installed\n"
            "ImportError: Please install instanttensor via `pip install vllm[instanttensor]`"
        ),
        why="the runtime does not have the package of the loader",
        fix="set --load-format=auto in gb10_vllm_extra_args",
        source=f"{_CONSELARA}; vLLM 0.33.0, model_loader/weight_utils.py",
        pattern=r"No module named '(?:fastsafe|instant)tensors?'|ImportError: .{0,80}(?:fastsafetensors|instanttensor)",
        rules=("fastsafetensors-ngc",),
    ),
    _model(
        "locked-memory",
        shows="RuntimeError: io_uring_register_buffers failed: Cannot allocate memory",
        why="InstantTensor locks its buffers in memory, and the process may lock too little (ulimit -l)",
        fix="set INSTANTTENSOR_BACKEND: AIO in gb10_extra_env",
        source="tests/gpu/site.py, two hosts whose limit is 8 MiB, InstantTensor 0.2.2",
        pattern=r"io_uring_register_buffers failed",
    ),
    _model(
        "instanttensor",
        shows=(
            "RuntimeError: buffer_size (1268776960 B) exceeds device memory budget (1255964672 B)\n"
            "RuntimeError: Device memory budget (4194304 B) is too small for one I/O operation; at least 8392704 B is "
            "required\n"
            "RuntimeError: No available backend was found among candidates [URING, AIO].\n"
            "ValueError: InstantTensor only supports pytorch format for now"
        ),
        why=(
            "InstantTensor found no memory for its buffers, no way to read the files directly, or files in another "
            "format. Before 0.2.2 it counts the page cache of a GB10 as used"
        ),
        fix="keep vllm_serve_drop_caches true; else set --load-format=auto in gb10_vllm_extra_args",
        source="MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#205; InstantTensor 0.2.2",
        pattern=r"exceeds device memory budget|Device memory budget \(\d{1,15} B\) is too small"
        r"|No available backend was found among candidates|InstantTensor only supports",
    ),
    _model(
        "model-gated",
        shows=(
            "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url "
            "https://huggingface.co/meta-llama/Llama-3.1-8B"
        ),
        why="the model requires an accepted license and a token",
        fix="accept the license on Hugging Face Hub, and set model_store_hub_token from a vault",
        source=_SPARK,
        pattern=r"GatedRepoError|gated repo\b|403 Client Error",
    ),
    _model(
        "hub-unreachable",
        shows=(
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for "
            "the specified revision on the local disk"
        ),
        why="this node lacks the model, or refs/main in its cache; Hugging Face Hub cannot be reached or is switched "
        "off",
        fix="keep model_store_enabled: true; set https_proxy or HF_ENDPOINT in gb10_download_env",
        source="huggingface_hub (message); vllm-dgx-spark (downloads); luisefigueroa/pulsar-gb10-vllm-stack (2026-08: "
        "weights without refs/main)",
        tested=DOCUMENTED,
        pattern=r"LocalEntryNotFoundError|OfflineModeIsEnabled|connect to 'https://huggingface\.co'"
        r"|host='huggingface\.co'",
    ),
    _model(
        "model-unknown",
        shows=(
            "OSError: acme/none is not a local folder and is not a valid model identifier listed on "
            "'https://huggingface.co/models'"
        ),
        why="no such model exists on this node or on Hugging Face Hub, it is private, or its folder has no config.json",
        fix="correct gb10_model; a path must exist on every node; for a private model set model_store_hub_token",
        source="transformers (message)",
        tested=DOCUMENTED,
        pattern=r"is not a valid model identifier|RepositoryNotFoundError|401 Client Error|Repo id must"
        r"|does not appear to have a file named config\.json"
        r"|Invalid repository ID or local directory",
    ),
    _model(
        "model-inspection",
        shows=(
            "ValueError: Model architectures ['Qwen3MoeForCausalLM'] failed to be inspected. Please check the logs "
            "for more details."
        ),
        why="vLLM has this architecture, but importing it failed: packages are missing or have other versions",
        fix=_REINSTALL,
        source=f"{_GB10}; vLLM 0.32, model_executor/models/registry.py",
        tested=SOURCE,
        pattern=r"failed to be inspected",
    ),
    _model(
        "model-architecture",
        shows="ValueError: Model architectures ['NewForCausalLM'] are not supported for now.",
        why="this vLLM or transformers release does not know the model",
        fix="set a gb10_stack with a newer release; docs/models.md lists the release that each known model needs",
        source="vLLM 0.32, model_executor/models/registry.py",
        tested=SOURCE,
        pattern=r"are not supported for now|does not recognize this architecture|was supported in vLLM until"
        r"|is not supported in-tree anymore",
    ),
    _model(
        "remote-code",
        shows=(
            "RuntimeError: Failed to load the model config. If the model is a custom model not yet available in the "
            "HuggingFace transformers library"
        ),
        why="the model needs Python code from its repository",
        fix="if you trust the code, add --trust-remote-code to gb10_vllm_extra_args",
        source="vLLM 0.32, transformers_utils/config.py",
        tested=SOURCE,
        pattern=r"Failed to load the model config\. If the model is a custom|you to execute the (?:configuration"
        r"|modeling) file",
    ),
    _model(
        "quantization-differs",
        shows=(
            "ValueError: Quantization method specified in the model config (fp8) does not match the quantization "
            "method specified in the `quantization` argument"
        ),
        why="--quantization contradicts the checkpoint",
        fix="remove --quantization from gb10_vllm_extra_args; vLLM reads it from the checkpoint",
        source="vLLM 0.32, config/model.py",
        tested=SOURCE,
        pattern=r"Quantization method specified in the model config|Unknown quantization method",
        rules=("mxfp4-checkpoint",),
    ),
    _model(
        "attention-heads",
        shows="ModelConfig: Total number of attention heads (40) must be divisible by tensor parallel size (3).",
        why="the model's heads cannot be divided by the number of ranks",
        fix="set gb10_tensor_parallel_size to a divisor, such as 2 or 4, or use gb10_pipeline_parallel_size",
        source="vLLM 0.32, config/model.py",
        tested=SOURCE,
        pattern=r"must be divisible by tensor parallel size|is not divisible by (?:the )?tensor"
        r"|cannot be evenly divided by tensor",
        rules=("tensor-parallel-size",),
    ),
    _model(
        "context-too-long",
        shows=(
            "ModelConfig: User-specified max_model_len (100000000) is greater than the derived max_model_len "
            "(max_position_embeddings=2048.0"
        ),
        why="the requested context is longer than the model's own limit",
        fix="lower gb10_max_model_len, or set it to 0 for the model's limit",
        source="a recorded start",
        tested=LAB,
        pattern=r"User-specified max_model_len .{0,40} is greater than the derived",
    ),
    _model(
        "weights-unreadable",
        shows="FileNotFoundError: No such file or directory: /srv/models/moe/model.safetensors",
        why="gb10_service_user cannot read the weights; safetensors reports each file that it cannot open as missing",
        fix="run chmod --recursive a+rX on the model's folder, and let every user enter the folders above it",
        source="vLLM 0.33.0 on an NVIDIA H100 (tests/gpu/site.py), with weights of mode 0600",
        tested=LAB,
        pattern=r"No such file or directory: /.{1,300}\.safetensors",
    ),
    _model(
        "weights-names",
        shows=(
            "AttributeError: Layer mtp.layers.48.mlp.experts has no parameter 'w2_weight_scale_inv'\n"
            "ValueError: There is no module or parameter named 'mtp.layers.0.shared_head' in Qwen3NextForCausalLM"
        ),
        why="the checkpoint has tensors under names that this vLLM does not know: its quantization or layout is newer",
        fix="use the image or the vLLM release that the model's page names, or an older checkpoint of the model",
        source="tonyd2wild/Qwen3.8-Flash-Next-NVFP4-2x-DGX-Spark#2, #3 (FP8_PB_WO)",
        pattern=r"has no parameter '\w{1,80}'|There is no module or parameter named",
    ),
    _model(
        "weights-shape",
        shows="AssertionError: Attempted to load weight (torch.Size([64])) into parameter (torch.Size([128]))",
        why=(
            "a tensor of the weights has another shape than config.json gives it: the files are of different "
            "models or revisions"
        ),
        fix="restore config.json and weights of the same revision, or remove --hf-overrides from gb10_vllm_extra_args",
        source="vLLM 0.33.0 on two NVIDIA H100 (tests/gpu/site.py), with another head_dim in config.json",
        tested=LAB,
        pattern=r"Attempted to load weight \(torch\.Size\(\[[\d, ]{0,60}\]\)\) into parameter",
    ),
)

_ARGUMENT_ERRORS = (
    _arguments(
        "chat-template-missing",
        shows=(
            "ValueError: The supplied chat template string (fixed.jinja) appears path-like, but doesn't exist!. "
            "Tried: fixed.jinja"
        ),
        why="--chat-template names a file that is not in the working folder of the server",
        fix="give --chat-template an absolute path; a recipe's mod writes its file into the image's working folder",
        source="eugr/spark-vllm-docker, recipes qwen3.5 and qwen3.6; vLLM 0.33, entrypoints/chat_utils.py",
        tested=SOURCE,
        pattern=r"chat template string .{0,200}appears path-like",
    ),
    _arguments(
        "block-size-none",
        shows="ValueError: No common block size for 64. ",
        why="the attention backends of the model's layers support no block size that divides the KV cache's",
        fix="set --block-size 128 (or 256) in gb10_vllm_extra_args, or remove --attention-backend",
        source="tonyd2wild, DeepSeek-V4.1 (boot 4, 2026-09-10); vLLM 0.33, v1/worker/utils.py",
        tested=SOURCE,
        pattern=r"No common block size for \d",
    ),
    _arguments(
        "argument-unknown",
        shows="vllm serve: error: unrecognized arguments: --swap-space 4",
        why="this vLLM release does not have the argument",
        fix="remove it from gb10_vllm_extra_args; site.yml checks arguments against the release before the start",
        source="Python, argparse (message)",
        tested=SOURCE,
        pattern=r"error: unrecognized arguments|error: ambiguous option",
    ),
    _arguments(
        "argument-value",
        shows="vllm serve: error: argument --dtype: invalid choice: 'float7' (choose from 'auto', 'bfloat16')",
        why="an argument has a value that vLLM rejects",
        fix="correct it in gb10_vllm_extra_args",
        source="a recorded start",
        tested=LAB,
        pattern=r": error: argument .{0,80}: (?:invalid|expected|not allowed)",
    ),
    _arguments(
        "too-few-gpus",
        shows="ValueError: World size (2) is larger than the number of available GPUs (1) in this node.",
        why="the ranks should all run on one node, because the executor for several nodes is not set",
        fix="remove --distributed-executor-backend and --nnodes from gb10_vllm_extra_args; set "
        "gb10_distributed_executor_backend",
        source=f"{_SPARK}; vLLM 0.32, config/parallel.py",
        tested=SOURCE,
        pattern=r"World size .{0,12} is larger than the number of",
    ),
    _arguments(
        "nodes-with-ray",
        shows=(
            "ValueError: nnodes > 1 can only be set when distributed executor backend is mp, uni or external_launcher."
        ),
        why="--nnodes belongs to the executor mp, and this cluster uses Ray",
        fix="remove --nnodes from gb10_vllm_extra_args, or set gb10_distributed_executor_backend: mp",
        source="vLLM 0.32, config/parallel.py",
        tested=SOURCE,
        pattern=r"nnodes > 1 can only be set",
        rules=("nnodes-ray",),
    ),
    _arguments(
        "batch-invariant",
        shows="RuntimeError: VLLM batch_invariant mode is not supported for GDN_ATTN",
        why="VLLM_BATCH_INVARIANT supports few backends of attention, and none of a hybrid model",
        fix="remove VLLM_BATCH_INVARIANT from gb10_extra_env; for a model without linear attention, another "
        "--attention-backend may support it",
        source="luisefigueroa/pulsar-gb10-vllm-stack (2026-08, Qwen3.6-27B)",
        pattern=r"batch_invariant mode is not supported",
    ),
    _arguments(
        "expandable-segments",
        shows=(
            "ValueError: KV connector NixlConnector is incompatible with "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        ),
        why="the allocator may move memory that a KV connector has registered",
        fix="remove expandable_segments:True from gb10_extra_env, or remove the connector",
        source="vLLM 0.32, config/vllm.py",
        tested=SOURCE,
        pattern=r"incompatible with PYTORCH\w{0,12}ALLOC_CONF=expandable_segments",
        rules=("expandable-segments-connector",),
    ),
    _arguments(
        "engine-start-timeout",
        shows=(
            "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight "
            "loading for large models."
        ),
        why="loading took longer than vLLM's own limit",
        fix="set VLLM_ENGINE_READY_TIMEOUT_S in gb10_extra_env, and raise vllm_serve_start_timeout too",
        source="vLLM 0.32, v1/engine/core_client.py",
        tested=SOURCE,
        pattern=r"Timed out waiting for (?:new )?engine core processes",
    ),
)

_HOST_ERRORS = (
    _host(
        "gate-refused",
        shows=(
            "gb10-gates refused the start: spark2.gates.fabric.enp1s0f1np1: MTU 1500. Expected: MTU 9000 "
            "(gb10_fabric_mtu). Fix: run site.yml --tags qsfp_netplan; ip address show lists the interfaces."
        ),
        why="the node was not as planned for gb10_gate_timeout seconds: fabric, peers, GPU, NCCL or memory",
        fix="follow the fix in the line, then run site.yml",
        source="this collection",
        tested=LAB,
        pattern=r"^gb10-gates refused the start: ",
    ),
    _host(
        "port-in-use",
        shows="OSError: [Errno 98] Address already in use",
        why="another process on the node listens on gb10_api_port, or on a port of Ray or the rendezvous",
        fix="find it with ss -ltnp and stop it, or set another gb10_api_port, gb10_ray_port or gb10_master_port",
        source="a recorded start",
        tested=LAB,
        pattern=r"[Aa]ddress already in use",
    ),
    _host(
        "program-format",
        shows="gb10-vllm.service: Failed to execute /usr/local/bin/gb10-wait-for-ray: Exec format error",
        why="the program is for another CPU architecture, or a script without its first line",
        fix="run site.yml, which writes its programs again; a wheelhouse or image must be for aarch64",
        source="a recorded start",
        tested=LAB,
        pattern=r"Exec format error",
    ),
    _host(
        "program-missing",
        shows=(
            "gb10-vllm.service: Failed to execute /opt/gb10/runtime/current/bin/vllm: No such file or directory\n"
            "gb10-ray.service: Failed at step EXEC spawning /opt/gb10/runtime/current/bin/ray: No such file or "
            "directory"
        ),
        why="the runtime is not installed on this node, or an interrupted run removed it",
        fix="run site.yml --tags vllm_runtime",
        source="systemd.exec(5), 203/EXEC",
        tested=DOCUMENTED,
        pattern=r"Failed (?:to execute|at step EXEC|to locate executable) .{0,300}No such file"
        # nvidia-modprobe is optional, and systemd reports that it is missing at each start.
        r"|Unable to locate executable '(?!/usr/bin/nvidia-modprobe)",
    ),
    _host(
        "unit-directories",
        shows=(
            "gb10-vllm.service: Failed to set up mount namespacing: /srv/extra: No such file or directory\n"
            "gb10-vllm.service: Failed at step NAMESPACE spawning /usr/bin/python3: No such file or directory"
        ),
        why="a directory of the unit does not exist, such as one in gb10_service_read_write_paths (226/NAMESPACE)",
        fix="create the directory, or remove it from gb10_service_read_write_paths; then run site.yml",
        source="systemd.exec(5), 226/NAMESPACE",
        tested=DOCUMENTED,
        pattern=r"Failed to set up mount namespacing|Failed at step NAMESPACE",
    ),
    _host(
        "unit-user",
        shows=(
            "gb10-ray.service: Failed to determine user credentials: No such process\n"
            "gb10-ray.service: Failed at step USER spawning /srv/models/x: No such process"
        ),
        why="gb10_service_user does not exist on this node",
        fix="run site.yml, which creates the user",
        source="systemd.exec(5), 217/USER",
        tested=DOCUMENTED,
        pattern=r"Failed to determine user credentials|Failed at step (?:USER|GROUP)",
    ),
    _host(
        "unit-files",
        shows=(
            "gb10-vllm.service: Failed to load environment files: No such file or directory\n"
            "gb10-vllm.service: Failed to set up credentials: No such file or directory\n"
            "gb10-ray.service: Failed at step CHDIR spawning /srv/models/x: No such file or directory"
        ),
        why="a file in /etc/gb10 or the service user's home is missing (243/CREDENTIALS, 200/CHDIR)",
        fix="run site.yml, which writes them again",
        source="systemd.exec(5)",
        tested=DOCUMENTED,
        pattern=r"Failed to load environment files|Failed to set up credentials|Failed at step (?:CREDENTIALS|CHDIR)",
    ),
    _host(
        "unit-timeout",
        shows="gb10-vllm.service: start-pre operation timed out. Terminating.",
        why="the unit waited too long for Ray's nodes or for the NVIDIA driver",
        fix="read journalctl -u gb10-ray on every node; vllm_serve_ray_timeout is the limit",
        source="systemd.service(5)",
        tested=DOCUMENTED,
        pattern=r"\.service: start(?:-pre)? operation timed out",
    ),
    _host(
        "semaphores-removed",
        shows=(
            "    self._semlock = _multiprocessing.SemLock._rebuild(*state)\n"
            "FileNotFoundError: [Errno 2] No such file or directory: '/psm_f49f4149'"
        ),
        why="systemd-logind (RemoveIPC) deleted shared memory of a login user whose last session ended",
        fix="let the units run vLLM: gb10_service_user is a system user, which logind spares; otherwise loginctl "
        "enable-linger USER",
        source="eugr/spark-vllm-docker#352; vllm-project/vllm#54259",
        pattern=r"SemLock\._rebuild|No such file or directory: '/(?:psm_|mp-|sem\.)",
    ),
    _host(
        "open-files",
        shows="OSError: [Errno 24] Too many open files",
        why="the process may open too few files",
        fix="remove --ulimit nofile from gb10_container_args; the units allow 1048576",
        source="vLLM 0.32, utils/system_utils.py (warning)",
        tested=DOCUMENTED,
        pattern=r"Too many open files",
    ),
    _host(
        "permission",
        shows=(
            "PermissionError: [Errno 13] Permission denied: '/srv/cache/x'\n"
            "OSError: [Errno 30] Read-only file system: '/srv/cache/x'"
        ),
        why="the services may write only to their home; everything else is read-only for them",
        fix="add an existing directory to gb10_service_read_write_paths, or point the cache's variable into the user's "
        "home",
        source="docs/security.md of this collection; root-owned folders in "
        "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#180",
        pattern=r"\[Errno (?:13|30)\]|Read-only file system|Failed to \w{1,20} .{0,300}: Permission denied",
    ),
    _host(
        "library-missing",
        shows=(
            "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory\n"
            "ImportError: /opt/gb10/runtime/current/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: "
            "_ZN3c104cuda29c10"
        ),
        why="vLLM, PyTorch and CUDA in this environment do not belong together",
        fix=f"{_REINSTALL}; with gb10_runtime_lock or gb10_runtime_wheels, use versions for one CUDA release",
        source="common on mixed CUDA 12 and 13 wheels; vllm-project/vllm#28589",
        pattern=r"cannot open shared object file|undefined symbol: |version `?GLIBC\w{0,4}_[\d.]{1,12}' not found",
    ),
    _host(
        "module-missing",
        shows=(
            "ModuleNotFoundError: No module named 'triton'\n"
            "ray.exceptions.RaySystemError: System error: No module named 'triton'\n"
            "ImportError: cannot import name 'AutoVideoProcessor' from 'transformers'"
        ),
        why="a Python package is missing on this node, or has another version than vLLM needs",
        fix=_REINSTALL,
        source=_GB10,
        pattern=r"(?:ModuleNotFoundError|System error): No module named|ImportError: cannot import name",
    ),
)

#: First the causes: an error, its details and the messages before it are searched for them.
CAUSES: tuple[Check[str], ...] = (
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
CONSEQUENCES: tuple[Check[str], ...] = (
    _consequence(
        "gloo-timeout",
        shows=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms "
            "for recv operation to complete\n"
            "RuntimeError: Application timeout caused pair closure"
        ),
        why=(
            "another rank did not come to the same step; at the autotuning of a second start, FlashInfer's cache hits "
            "on one rank only"
        ),
        fix=(
            "read the log of the other nodes first; if the last step is FlashInfer's autotune, remove "
            ".cache/vllm/flashinfer_autotune_cache in the service user's home on all nodes, and run site.yml"
        ),
        source="vllm-project/vllm#57423; PyTorch 2.13, libtorch_cpu.so (message)",
        pattern=r"Timed out waiting \d{1,9}ms for \w{1,8} operation|[Aa]pplication timeout caused pair closure",
    ),
    _consequence(
        "nccl-timeout",
        shows=(
            "[rank0]:[E1121 00:34:35.375 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
            "timeout: "
            "WorkNCCL(SeqNum=912, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.\n"
            "TimeoutError: RPC call to sample_tokens timed out."
        ),
        why="a rank hung or died while the others waited; NCCL before 2.29.3, built by an old GCC, can hang on ARM, "
        "and every release has a fault before a send (NVIDIA/nccl#1983)",
        fix="read the log of every node for a rank that ended first; if none ended, set nccl_sm121_build_enabled: "
        "true, whose build corrects both, and run site.yml",
        source="vllm-project/vllm#52504, #42354, #51921; vllm-dgx-spark (NCCL timeouts)",
        pattern=r"Watchdog caught collective operation timeout|RPC call to .{0,60} timed out",
        rules=("nccl-arm-hang", "breakable-cudagraph", "idle-stall", "nccl-ib-hca-unset"),
    ),
    _consequence(
        "rank-died",
        shows=(
            "the rank with pid 563 on 10.110.0.2 died: Worker unexpectedly exits with a connection error code 2. End "
            "of file.\n"
            "RayWorkerProc rank=[1] died unexpectedly, shutting down executor."
        ),
        why="a rank's process ended without its own message: it was killed, it crashed, or its host is gone",
        fix="read journalctl -k and journalctl -u gb10-ray -u gb10-vllm of that node; then run site.yml",
        source="a recorded run whose rank was killed",
        tested=LAB,
        pattern=r"^the rank with pid \d{1,9} on .{0,80} died|(?:RayWorkerProc|Worker proc) .{0,80}died unexpectedly",
    ),
    _consequence(
        "peer-closed",
        shows=(
            "NCCL WARN socketProgress: Connection closed by remote peer spark2<48731>\n"
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
            "[10.110.0.2]:22461"
        ),
        why="another rank ended first; the first error is in the log of its node",
        fix="read journalctl -u gb10-ray -u gb10-vllm on the other nodes from this time on",
        source=f"a marked pattern of vLLM clusters in users' reports; {_NCCL}/misc/socket.cc; PyTorch 2.13 (message)",
        tested=LAB,
        pattern=r"Connection closed by (?:remote )?peer|Connection reset by peer"
        r"|remote process exited or there was a network error|Broken pipe",
    ),
    _consequence(
        "nccl-cuda-error",
        shows="RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        why="a CUDA call of NCCL failed: no code for this GPU, no memory, or an earlier error of the GPU",
        fix=f"{_SAME_NCCL}; set NCCL_DEBUG: WARN in gb10_extra_env for the reason",
        source="NCCL 2.30, src/init.cc; vllm-project/vllm#46253",
        tested=SOURCE,
        pattern=r"unhandled cuda error|ncclUnhandledCudaError",
        rules=("nccl-arm-hang",),
    ),
    _consequence(
        "nccl-system-error",
        shows=(
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:94, unhandled system error (run with "
            "NCCL_DEBUG=INFO for details)\n"
            "RuntimeError: NCCL error: internal error - please report this issue to the NCCL developers"
        ),
        why="a network or memory call of NCCL failed; its own message is only in the log if NCCL_DEBUG is set",
        fix="set NCCL_DEBUG: WARN in gb10_extra_env and run again; site.yml --tags qsfp_netplan verifies the links",
        source=f"NCCL 2.30, src/init.cc; {_SPARK} (cables and InfiniBand checks)",
        tested=SOURCE,
        pattern=r"unhandled system error|ncclSystemError|ncclInternalError|NCCL error: internal error|ncclRemoteError"
        r"|ncclInvalidUsage|NCCL error",
    ),
    _consequence(
        "process-killed",
        shows="gb10-vllm.service: Main process exited, code=killed, status=9/KILL",
        why=(
            "another program ended the server: the OOM killer, the memory guard, earlyoom, a watchdog, systemctl, "
            "or a person"
        ),
        fix="read journalctl -k and journalctl -u gb10-memory-guard -u earlyoom of the node; disable earlyoom, or "
        "lower its limit to a fixed size",
        source="MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark (earlyoom under deep contexts); "
        "tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#31",
        pattern=r"code=killed, status=(?:9/KILL|15/TERM)",
        rules=("memory-utilization-ceiling",),
    ),
    _consequence(
        "process-crashed",
        shows="gb10-vllm.service: Main process exited, code=dumped, status=11/SEGV",
        why="native code of vLLM, PyTorch or a driver crashed",
        fix="read journalctl -k (Xid errors); run site.yml --tags vllm_runtime; try another backend or stack",
        source="systemd.service(5)",
        tested=DOCUMENTED,
        pattern=r"code=(?:killed|dumped), status=(?:11/SEGV|6/ABRT|4/ILL)",
    ),
    _consequence(
        "engine-died",
        shows=(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore': 1}\n"
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for "
            "the root cause."
        ),
        why="another process of the server failed, and its error is not in the lines that were read",
        fix="read the whole log: journalctl -u gb10-vllm, and journalctl -u gb10-ray on every node",
        source="vLLM 0.32, v1/engine",
        tested=SOURCE,
        pattern=r"Engine core initialization failed|EngineDeadError|EngineCore encountered an issue"
        r"|WorkerProc initialization failed",
    ),
)
