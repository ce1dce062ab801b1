# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""States of a cluster that are wrong without an error in a log: in the status, or at the end of a wait."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, LAB, STATUS, WARNING, Check

_state = partial(
    Check[str],
    STATUS,
    topic="States in status.yml and site.yml",
    tested="unit tests of the state; effect reported by others",
)

_STATES = (
    _state(
        "engine-silent",
        ERROR,
        shows="/health returns 200, but a one-token request gets no answer: IT DOES NOT ANSWER",
        why="a rank hangs or is dead; /health does not query the ranks, and clients wait until NCCL's timeout",
        fix="run site.yml, which restarts a server that does not answer; use NCCL 2.29.3 or newer (nccl_sm121_build)",
        source="eugr/spark-vllm-docker#260; vllm-project/vllm#52504, #42354",
        tested=LAB,
        rules=("nccl-arm-hang", "idle-stall"),
    ),
    _state(
        "rank-missing",
        ERROR,
        shows="the API is healthy, but a node with a running service has no rank",
        why="the rank's process died, or tensor times pipeline parallelism is smaller than the number of nodes",
        fix="read journalctl -u gb10-ray -u gb10-vllm and journalctl -k on that node, then run site.yml",
        source="a report about four Sparks: the API stayed healthy for 6 minutes after rank 2 was killed",
    ),
    _state(
        "service-restarts",
        ERROR,
        shows="a service has restarted three times or more, the last time within 10 minutes",
        why="each start fails; the service stops after gb10_restart_attempts starts in gb10_restart_interval",
        fix="correct the last error, then run site.yml; playbooks/stop.yml ends the retries",
        source="eugr/spark-vllm-docker#257 (35 restarts leaked memory until sshd died)",
    ),
    _state(
        "service-stopped",
        ERROR,
        shows="a service has failed: it used all starts that gb10_restart_attempts permits",
        why="each start failed, or a gate stayed closed; the line has the gate, or the last error has the reason",
        fix="correct that reason, then run site.yml, which counts from the beginning",
        source="systemd.unit(5), StartLimitBurst=; eugr/spark-vllm-docker#257",
    ),
    _state(
        "gate-closed",
        WARNING,
        shows="a service waits for a gate: fabric, peers, GPU, NCCL or memory are not as planned",
        why="the node is not ready to start: a peer is off or boots, or the line names what differs from the plan",
        fix="follow the fix in the line; the start continues by itself when all gates are open",
        source="this collection",
    ),
    _state(
        "service-down",
        ERROR,
        shows="a service starts at boot, but it is inactive",
        why="someone stopped it with systemctl, or a unit that it requires did not start",
        fix="run site.yml, which starts it",
        source="systemd.service(5)",
    ),
    _state(
        "node-unreachable",
        ERROR,
        shows="a node cannot be read: ssh fails",
        why="the host is off, its network or SSH access changed, or exhausted unified memory blocks it without a trace",
        fix="test ssh NODE hostname; if the host accepts no connection, power-cycle it, then run site.yml",
        source="vllm-project/vllm#46307; NVIDIA/open-gpu-kernel-modules#1358; vllm-dgx-spark (SSH access)",
        tested=LAB,
        rules=("memory-utilization-ceiling",),
    ),
    _state(
        "link-down",
        ERROR,
        shows="an interface of the fabric has NO CARRIER, or its RDMA port is not ACTIVE",
        why="a cable is unplugged or loose, a port of the switch is down, or the other node is off",
        fix="plug the cable in firmly and test ethtool INTERFACE; with carrier but without ACTIVE, reboot the "
        "node; then run site.yml",
        source="NVIDIA dgx-spark-playbooks, connect-two-sparks and spark_cluster_setup (prevalidation)",
        tested=LAB,
    ),
    _state(
        "memory-exhausted",
        ERROR,
        shows="less than 2 % of a node's memory is available",
        why="weights, KV cache and the host share the memory; at its end the host freezes without an OOM record",
        fix=(
            "raise gb10_memory_reserve or lower gb10_kv_cache_contexts, and run site.yml; playbooks/plan.yml shows "
            "the memory"
        ),
        source="vllm-project/vllm#46307, #45179; spark-arena/sparkrun (earlyoom at 2 %)",
        rules=("memory-utilization-ceiling", "unequal-memory"),
    ),
    _state(
        "memory-floor",
        ERROR,
        shows="the memory guard stopped the services of a node: too little memory was available",
        why=(
            "the ranks needed more memory than the plan left, or another program used it; without the stop, a "
            "GB10 freezes"
        ),
        fix=(
            "lower gb10_max_num_seqs or gb10_max_model_len, raise gb10_memory_reserve, or end the other program; "
            "then run site.yml"
        ),
        source="vllm-project/vllm#46307; AEON-7/vllm-ultimate-dgx-spark#9; spark-arena/sparkrun (earlyoom at 2 %)",
        tested=LAB,
        rules=("memory-utilization-ceiling",),
    ),
    _state(
        "memory-short",
        WARNING,
        shows="the memory guard ended the ranks of a node once, or reported that too little memory was available",
        why="another program used the memory, or long prompts need more than the plan left",
        fix=(
            "end the program that the text names, or raise gb10_memory_reserve, and run site.yml; the guard stops the "
            "services the next time within gb10_restart_interval"
        ),
        source="vllm-project/vllm#56824; NVIDIA/open-gpu-kernel-modules#1358",
    ),
    _state(
        "memory-guard-down",
        WARNING,
        shows="gb10-memory-guard.service does not run, so nothing ends the ranks before the host freezes",
        why="someone stopped it, or its program fails",
        fix="read journalctl -u gb10-memory-guard, then run site.yml --tags vllm_serve",
        source="this collection",
    ),
    _state(
        "memory-held",
        WARNING,
        shows="less than half of a node's memory is available, although no service runs",
        why="another program has the memory, or the GPU driver has not released that of a crashed process",
        fix=(
            "end the other program (ps aux --sort=-rss), or raise gb10_memory_reserve by its memory; if none has "
            "it, reboot the node"
        ),
        source="reports of about 33 GB lost per crashed container; NVIDIA/dgx-spark-playbooks (troubleshooting)",
    ),
    _state(
        "key-refused",
        ERROR,
        shows="the server rejects the API key: HTTP 401 or 403",
        why="the server started with another key than the one in /etc/gb10/api.key, or another server has the port",
        fix="run site.yml, which restarts the server with its key; clients: sudo cat /etc/gb10/api.key on the head",
        source="vLLM 0.32, entrypoints: the key is read once, at the start",
    ),
    _state(
        "port-taken",
        ERROR,
        shows="port 8000 is used by another process instead of gb10-vllm.service, so the API's key was not sent",
        why="another server listens on gb10_api_port",
        fix="stop that process, or set another gb10_api_port; then run site.yml",
        source="this collection",
    ),
    _state(
        "tls-untrusted",
        ERROR,
        shows="the API answers, but its TLS verification failed",
        why="the served certificate has another name or CA than the inventory, or it has expired",
        fix="correct gb10_api_name, gb10_api_tls_certificate and gb10_api_tls_ca, then run site.yml",
        source="this collection",
    ),
    _state(
        "start-timeout",
        ERROR,
        shows="not healthy after 2400 s; last step: ...",
        why="the start still loads or compiles (9 to 36 minutes were reported for a first start), or a rank hangs",
        fix="if the log still grows, raise vllm_serve_start_timeout and run again; otherwise read the log of every "
        "node",
        source="vllm-project/vllm#43420; tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#40",
    ),
)
#: ID -> state.
STATES: Mapping[str, Check[str]] = {state.id: state for state in _STATES}
