# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Former names of variables, from checkouts before the first release, with their current names, and removed
variables."""

from __future__ import annotations

from collections.abc import Mapping

RENAMED: Mapping[str, str] = {
    "gb10_environment": "gb10_extra_env",
    "gb10_executor": "gb10_distributed_executor_backend",
    "gb10_fabric_pool": "gb10_fabric_cidr",
    "gb10_fabric_takeover": "gb10_fabric_replace_existing",
    "gb10_image": "gb10_container_image",
    "gb10_record_folder": "gb10_facts_dir",
    "gb10_recorded_facts": "gb10_facts_dir",
    "gb10_rendezvous_port": "gb10_master_port",
    "gb10_root": "gb10_install_dir",
    "gb10_secret_environment": "gb10_secret_env",
    "gb10_serve_args": "gb10_vllm_extra_args",
    "gb10_user": "gb10_service_user",
    "gb10_writable": "gb10_service_read_write_paths",
    "gateway_request_timeout": "gateway_silence_timeout",
    "model_store_env": "gb10_download_env",
    "model_store_environment": "gb10_download_env",
    "model_store_reserve": "model_store_min_free_bytes",
    "model_store_streams": "model_store_max_connections",
    "nccl_sm121_build_functions": "nccl_sm121_build_only_funcs",
    "nccl_sm121_build_keep": "nccl_sm121_build_keep_releases",
    "nccl_sm121_build_way": "nccl_sm121_build_method",
    "peer_firewall_interfaces": "peer_firewall_trusted_interfaces",
    "plan_facts": "gb10_facts_dir",
    "plan_offline": "gb10_plan_offline",
    "plan_record": "gb10_plan_save_facts",
    "vllm_serve_answer_timeout": "vllm_serve_request_timeout",
    "vllm_serve_memory_timeout": "vllm_serve_memory_wait_timeout",
    "vllm_serve_restore": "vllm_serve_rollback",
}

#: Removed variable -> why.
REMOVED: Mapping[str, str] = {
    "benchmark_model_plots": "the page of verify.yml has the plots (verify_report)",
    "gateway_cooldown": "a failed request takes no server away any more; the health checks decide",
    "vllm_build_separate": "one wheel has code for the GPUs of all nodes",
}
