# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words that users of vLLM, eugr/spark-vllm-docker and sparkrun use, and the variables that they mean."""

from __future__ import annotations

from collections.abc import Mapping

#: A word, alone or behind a role's prefix -> the variable.
WORDS: Mapping[str, str] = {
    "api_key": "gb10_api_key",
    "api_port": "gb10_api_port",
    "host": "gb10_api_host",
    "port": "gb10_api_port",
    "server_port": "gb10_api_port",
    "tls_cert": "gb10_api_tls_certificate",
    "tls_key": "gb10_api_tls_key",
    "model": "gb10_model",
    "model_id": "gb10_model",
    "model_name": "gb10_model",
    "served_model_name": "gb10_served_model_name",
    "recipe": "gb10_recipe",
    "container": "gb10_container_image",
    "docker_image": "gb10_container_image",
    "image": "gb10_container_image",
    "docker_args": "gb10_container_args",
    "context": "gb10_max_model_len",
    "context_length": "gb10_max_model_len",
    "max_context": "gb10_max_model_len",
    "max_model_len": "gb10_max_model_len",
    "concurrency": "gb10_max_num_seqs",
    "max_num_seqs": "gb10_max_num_seqs",
    "max_seqs": "gb10_max_num_seqs",
    "gpu_mem": "gb10_memory_reserve",
    "gpu_memory": "gb10_memory_reserve",
    "gpu_memory_utilization": "gb10_memory_reserve",
    "kv_cache_dtype": "gb10_kv_cache_dtype",
    "dp": "gb10_data_parallel_size",
    "data_parallel": "gb10_data_parallel_size",
    "data_parallel_size": "gb10_data_parallel_size",
    "ep": "gb10_expert_parallel",
    "enable_expert_parallel": "gb10_expert_parallel",
    "pp": "gb10_pipeline_parallel_size",
    "pipeline_parallel": "gb10_pipeline_parallel_size",
    "pipeline_parallel_size": "gb10_pipeline_parallel_size",
    "tp": "gb10_tensor_parallel_size",
    "tensor_parallel": "gb10_tensor_parallel_size",
    "tensor_parallel_size": "gb10_tensor_parallel_size",
    "backend": "gb10_distributed_executor_backend",
    "distributed_executor_backend": "gb10_distributed_executor_backend",
    "env": "gb10_extra_env",
    "environment": "gb10_extra_env",
    "env_vars": "gb10_extra_env",
    "args": "gb10_vllm_extra_args",
    "extra_args": "gb10_vllm_extra_args",
    "vllm_args": "gb10_vllm_extra_args",
    "vllm_version": "gb10_stack",
    "version": "gb10_stack",
    "mtu": "gb10_fabric_mtu",
    "topology": "gb10_fabric_topology",
    "hf_token": "model_store_hub_token",
    "huggingface_token": "model_store_hub_token",
    "nccl_version": "nccl_sm121_build_version",
}
#: Words that nobody but vLLM uses as a name, so that a variable of this name is meant for it.
OF_VLLM = frozenset(
    "data_parallel_size distributed_executor_backend gpu_memory_utilization kv_cache_dtype max_model_len max_num_seqs "
    "pipeline_parallel_size served_model_name tensor_parallel_size".split()
)
