# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that a recipe may set without a note in the plan, by purpose, and the effects of others: data only.

A recipe is untrusted, and its image may have any vLLM. So an option, a member or a variable that is on no list counts
as dangerous. Sources: vLLM 0.13 to 0.33, engine/arg_utils.py, entrypoints/openai/cli_args.py, config/*.py and envs.py;
published recipes of eugr/spark-vllm-docker, sparkrun's registries and NVIDIA/local-ai-inference-recipes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Effect:
    """What an option does besides serving. ``refused``: only the inventory may set such an option."""

    text: str
    refused: bool = False


UNLISTED = Effect("is on no list of this collection: it may run code, open ports, send data or read files")
READS = Effect("reads files that it names, as the service user")
_WRITES = Effect("writes files that it names, as the service user")
_MODELS_CODE = Effect("runs code of the model's repository, as the service user")
CODE = Effect("runs code that the image or the model has under this name, as the service user")
_CONNECTOR = Effect("runs a connector of the image or the model, which may open ports and write files")
_LOGS = Effect("writes texts of the API's clients to the journal")
_CLIENTS = Effect("lets the API's clients send data that vLLM refuses by default")
_PORT = Effect("opens a port that requires no key", refused=True)
_SENDS = Effect("sends data to another host", refused=True)

#: vLLM's other names of an option.
ALIASES: Mapping[str, str] = {
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dc": "--diffusion-config",
    "-dcp": "--decode-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpn": "--data-parallel-rank",
    "-dpp": "--data-parallel-rpc-port",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-pcp": "--prefill-context-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-r": "--node-rank",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
    "--device-memory-utilization": "--gpu-memory-utilization",
}

#: Options whose variable the plan reads.
PLANNED: Mapping[str, str] = {
    "--tensor-parallel-size": "gb10_tensor_parallel_size",
    "--pipeline-parallel-size": "gb10_pipeline_parallel_size",
    "--data-parallel-size": "gb10_data_parallel_size",
    "--enable-expert-parallel": "gb10_expert_parallel",
    "--served-model-name": "gb10_served_model_name",
    "--max-model-len": "gb10_max_model_len",
    "--max-num-seqs": "gb10_max_num_seqs",
    "--kv-cache-dtype": "gb10_kv_cache_dtype",
}
#: Options that other checks of a recipe handle: the plan's revision, secrets, TLS, and files with arguments.
CHECKED = """
--api-key --config --hf-token --revision --ssl-ca-certs --ssl-cert-reqs --ssl-certfile --ssl-keyfile
""".split()
#: Options with numbers, names and switches as values, and nothing else.
PLAIN: Mapping[str, str] = {
    "memory and sizes": """
        --api-server-count --block-size --cpu-offload-gb --cpu-offload-params --cudagraph-capture-sizes
        --enable-cumem-allocator --enable-shm-tensor-arena --enable-sleep-mode --gpu-memory-utilization
        --h11-max-header-count --h11-max-incomplete-event-size --kv-cache-memory-bytes
        --kv-offloading-size --max-cpu-loras --max-cudagraph-capture-size --max-log-len --max-logprobs
        --max-lora-cls-labels --max-lora-rank --max-loras --max-parallel-loading-workers --mm-ipc-gpu-memory-gb
        --mm-processor-cache-gb --mm-processor-cache-type --mm-shm-cache-max-object-size-mb --num-gpu-blocks-override
        --offload-backend --offload-group-size --offload-num-in-group --offload-params --offload-prefetch-step
        --renderer-num-workers --skip-mm-profiling --sleep-mode-backend --sleep-mode-offload-cudagraph
        --sleep-preserve-parameter-names --swap-space --watermark
        """,
    "options of mods and forks": """
        --gdn-decode-kernel --gpu-memory-utilization-gb --max-num-prefill-tokens-per-step --max-parallel-prefills
        --mxfp4-backend --mxfp4-layers --prefill-compute-share
        """,
    "kernels and backends": """
        --attention-backend --disable-cascade-attn --disable-custom-all-reduce
        --disable-nccl-for-dp-synchronization --disable-sliding-window --enable-bf16x3-router-gemm
        --enable-flash-late-interaction --enable-flashinfer-autotune --enable-hc-sp --enable-nccl-comm-suspend
        --enforce-eager --gdn-prefill-backend --jit-monitor-mode --jit-monitor-verbose --kda-decode-backend
        --kda-prefill-backend --linear-backend --mamba-backend --mamba-ssu-algorithm --mm-encoder-attn-backend
        --mm-encoder-attn-dtype --mm-encoder-fp8-scale-save-margin --moe-backend --monokernel --optimization-level
        --override-attention-dtype --performance-mode --replayssm-buffer-len --sparse-indexer-topk-backend
        --specialize-active-lora --swa-bounded-replay --use-fp64-gumbel --use-gpu-for-pooling-score --use-replayssm
        """,
    "quantization and types": """
        --allow-deprecated-quantization --calculate-kv-scales --dtype --kv-cache-dtype-skip-layers --lora-dtype
        --mamba-cache-dtype --mamba-ssm-cache-dtype --quantization
        """,
    "cache": """
        --disable-hybrid-kv-cache-manager --enable-mamba-cache-stochastic-rounding
        --enable-mamba-fine-grained-prefix-cache --enable-mamba-shared-prefix-checkpoint --enable-prefix-caching
        --kv-sharing-fast-prefill --mamba-block-size --mamba-cache-mode --mamba-cache-philox-rounds
        --prefix-cache-retention-interval --prefix-caching-hash-algo --prefix-match-unit
        """,
    "parallelism": """
        --cp-kv-cache-interleave-size --cpu-distributed-timeout-seconds --dbo-decode-token-threshold
        --dbo-prefill-token-threshold --dcp-comm-backend --dcp-kv-cache-interleave-size --dcp-q-replicate
        --decode-context-parallel-size --device-ids --distributed-timeout-seconds --dp-sync-interval --enable-dbo
        --enable-ep-weight-filter --enable-eplb --expert-placement-strategy --mm-encoder-tp-mode --numa-bind
        --numa-bind-cpus --numa-bind-nodes --prefill-context-parallel-size --ubatch-size
        """,
    "scheduling": """
        --async-scheduling --disable-chunked-mm-input --disable-frontend-multiprocessing
        --enable-batch-sharded-sampling --enable-chunked-prefill --long-prefill-token-threshold
        --long-prefill-token-threshold-adaptive --max-long-partial-prefills --max-num-active-seqs
        --max-num-batched-tokens --max-num-partial-prefills --max-num-queued-reqs --max-num-queued-tokens
        --max-num-scheduled-tokens --prefill-schedule-interval --scheduler-reserve-full-isl --scheduling-policy
        --shutdown-timeout --stream-interval
        """,
    "loading": """
        --config-format --convert --load-format --model-impl --pt-load-map-location --runner
        --safetensors-load-strategy --safetensors-prefetch-block-size --safetensors-prefetch-num-threads --seed
        --skip-tokenizer-init --tokenizer-mode --tokenizer-revision --use-tqdm-on-load
        """,
    "LoRA": """
        --enable-lora --enable-mixed-moe-lora-format --enable-moe-shared-loras --enable-tower-connector-lora
        --fully-sharded-loras --lora-target-modules
        """,
    "images, audio and videos": """
        --interleave-mm-strings --language-model-only --mm-device-do-normalize --mm-encoder-only --mm-hasher-algorithm
        --mm-processor-device --mm-tensor-ipc --video-pruning-method --video-pruning-rate
        """,
    "speculative decoding": "--per-request-spec-decode-metrics --spec-method --spec-model --spec-tokens",
    "parsers and answers": """
        --anthropic-disabled-thinking-effort --chat-template-content-format --cohere-format
        --cohere-is-reasoning-model --enable-auto-tool-choice --enable-force-include-usage
        --enable-per-request-metrics --enable-prompt-tokens-details --enable-request-id-headers
        --enable-return-routed-experts --enable-tokenizer-info-endpoint --exclude-tools-when-tool-choice-none
        --fingerprint-mode --logprobs-mode --reasoning-parser --return-sampling-mask --return-tokens-as-token-ids
        --sse-keep-alive-interval --tool-call-parser --tool-strict-level
        """,
    "logs and metrics without texts of clients": """
        --aggregate-engine-logging --cudagraph-metrics --custom-histogram-buckets --disable-fastapi-docs
        --disable-log-requests --disable-log-stats --disable-uvicorn-access-log --enable-layerwise-nvtx-tracing
        --enable-logging-iteration-details --enable-mfu-metrics --enable-offline-docs --enable-server-load-tracking
        --fail-on-environ-validation --kv-cache-metrics --kv-cache-metrics-sample --log-error-stack
        --show-hidden-metrics-for-version
        """,
}
#: Options with objects of any plain members: of the model's or of a processor's configuration.
OBJECTS = """
--hf-overrides --ir-op-priority --limit-mm-per-prompt --media-io-kwargs --mm-processor-kwargs --quantization-config
""".split()
#: The plain members of an option's object, at any depth.
MEMBERS: Mapping[str, str] = {
    "--attention-config": """
        backend disable_flashinfer_prefill disable_flashinfer_q_quantization flash_attn_max_num_splits_for_cuda_graph
        flash_attn_version flex_attn_block_m flex_attn_block_n mla_prefill_backend sparse_mla_force_mqa
        tq_max_kv_splits_for_cuda_graph use_cudnn_prefill use_fp4_indexer_cache use_non_causal
        use_prefill_decode_attention use_prefill_query_quantization use_trtllm_attention
        use_trtllm_ragged_deepseek_prefill
        """,
    "--compilation-config": """
        backend combo_kernels compile_cache_save_format compile_mm_encoder compile_ranges_endpoints
        compile_ranges_split_points compile_sizes coordinate_descent_tuning cudagraph_capture_sizes
        cudagraph_copy_inputs cudagraph_mm_encoder cudagraph_mode cudagraph_num_of_warmups cudagraph_specialize_lora
        custom_ops dynamic_shapes_config eliminate_noops enable_attn_fusion enable_auto_functionalized_v2
        enable_fi_allreduce_fusion enable_fusion enable_noop enable_qk_norm_rope_fusion enable_sequence_parallelism
        enable_sp epilogue_fusion evaluate_guards fast_moe_cold_start fi_allreduce_fusion_max_size_mb full_cuda_graph
        fuse_act_padding fuse_act_quant fuse_allreduce_rms fuse_attn_quant fuse_gemm_comms fuse_minimax_qk_norm
        fuse_norm_quant fuse_rope_kvcache inductor_compile_config ir_enable_torch_wrap level max_autotune
        max_autotune_gemm max_capture_size max_cudagraph_capture_size mode pass_config sp_min_token_num splitting_ops
        type use_cudagraph use_inductor use_inductor_graph_partition
        """,
    "--diffusion-config": """
        algorithm block_length block_size canvas_length denoising_steps max_denoising_steps steps temperature threshold
        """,
    "--engram-config": "cpu_offload table_memory",
    "--eplb-config": """
        communicator log_balancedness log_balancedness_interval num_redundant_experts policy step_interval use_async
        window_size
        """,
    "--kernel-config": """
        enable_cutedsl_warmup enable_flashinfer_autotune fused_add_rms_norm ir_op_priority linear_backend moe_backend
        rms_norm
        """,
    "--model-loader-extra-config": "concurrency distributed enable_multithread_load memory_limit num_threads",
    "--pooler-config": """
        activation dimensions enable_chunked_processing logit_bias logit_mean logit_scale logit_sigma max_embed_len
        normalize pooling_type returned_token_ids seq_pooling_type softmax step_tag_id task tok_pooling_type
        use_activation
        """,
    "--reasoning-config": """
        enable_in_reasoning reasoning_end_str reasoning_parser reasoning_start_str thinking_token_budget
        """,
    "--speculative-config": """
        acceptance_method attention_backend disable_by_batch_size disable_eagle_block_drop disable_logprobs
        disable_padded_drafter_batch draft_load_config draft_sample_method draft_tensor_parallel_size
        dspark_draft_topk enable_adaptive_verification enforce_eager index_share_for_mtp_iteration kv_cache_dtype
        load_format max_model_len method model moe_backend num_speculative_tokens
        num_speculative_tokens_per_batch_size parallel_drafting prompt_lookup_max prompt_lookup_min quantization
        rejection_sample_method revision sampling_method speculative_token_tree suffix_decoding_max_cached_requests
        suffix_decoding_max_spec_factor suffix_decoding_max_tree_depth suffix_decoding_min_token_prob
        synthetic_acceptance_length synthetic_acceptance_rates target_layer_ids tensor_parallel_size
        use_heterogeneous_vocab use_local_argmax_reduction
        """,
    "--structured-outputs-config": """
        backend disable_additional_properties disable_any_whitespace disable_fallback enable_in_reasoning
        reasoning_parser
        """,
}
_ANY = re.compile(r".*", re.DOTALL)
#: A number, a name or a list of them: no path, no host, and no name of a module.
PLAIN_VALUE = re.compile(r"(?:[\w=,+ -]|(?<![A-Za-z_])\.(?=\d))*", re.ASCII)
_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*|", re.ASCII)
_METHOD = re.compile(rf"(?!custom_class){PLAIN_VALUE.pattern}", re.ASCII)
#: Options and members with values of another form, and the effect of any other value.
VALUES: Mapping[str, tuple[re.Pattern[str], Effect]] = {
    # vLLM only compares these texts, or puts them into prompts and answers.
    **dict.fromkeys(
        """
        --allowed-media-domains --default-chat-template-kwargs --disable-access-log-for-endpoints --fingerprint-value
        --ignore-patterns --override-generation-config --reasoning-effort-map --response-role reasoning_end_str
        reasoning_start_str speculative_token_tree splitting_ops
        """.split(),
        (_ANY, UNLISTED),
    ),
    # A template itself, or its name in the image's working folder, where a mod puts it.
    "--chat-template": (re.compile(r"[\w.-]*|.*\{[{%].*", re.ASCII | re.DOTALL), READS),
    "--generation-config": (re.compile(r"auto|vllm|"), READS),
    # Backends of libraries that open ports and reach other hosts.
    "--all2all-backend": (re.compile(rf"(?!nixl){PLAIN_VALUE.pattern}", re.ASCII), _CONNECTOR),
    "--kv-offloading-backend": (re.compile(r"native|"), _CONNECTOR),
    # Levels below info write texts of the API's clients.
    "--uvicorn-log-level": (re.compile(r"critical|error|warning|info|"), _LOGS),
    "--log-level": (re.compile(r"critical|error|warning|info|", re.IGNORECASE), _LOGS),
    "--spec-method": (_METHOD, CODE),
    "--spec-model": (_HUB, READS),
    "backend": (PLAIN_VALUE, CODE),
    "method": (_METHOD, CODE),
    "model": (_HUB, READS),
}

#: Options that are not on the lists above, and members of objects, with their effects.
EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(
        "--code-revision --trust-remote-code auto_map code_revision trust_remote_code".split(), _MODELS_CODE
    ),
    **dict.fromkeys(
        """
        --io-processor-plugin --log-config-file --logging-config
        --logits-processor-pattern --logits-processors --middleware --model-class-overrides --reasoning-parser-plugin
        --scheduler-cls --tool-parser-plugin --worker-cls --worker-extension-cls inductor_passes
        reasoning_parser_plugin
        """.split(),
        CODE,
    ),
    **dict.fromkeys("--ec-transfer-config --kv-transfer-config".split(), _CONNECTOR),
    **dict.fromkeys("--grpc --grpc-port --kv-events-config".split(), _PORT),
    **dict.fromkeys("--collect-detailed-traces --otlp-traces-endpoint --tool-server".split(), _SENDS),
    **dict.fromkeys(
        "--default-mm-loras --hf-config-path --lora-modules --mm-encoder-fp8-scale-path --tokenizer".split(), READS
    ),
    **dict.fromkeys(
        "--download-dir --mm-encoder-fp8-scale-save-path --profiler-config cache_dir debug_dump_path".split(), _WRITES
    ),
    **dict.fromkeys(
        "--enable-log-deltas --enable-log-outputs --enable-log-requests --no-disable-log-requests".split(), _LOGS
    ),
    **dict.fromkeys(
        "--enable-mm-embeds --enable-prompt-embeds --trust-request-chat-template --trust-request-mm-kwargs".split(),
        _CLIENTS,
    ),
    # Examined, and left to the inventory's owner: other platforms, replicas that grow, transfers of weights and files.
    **dict.fromkeys(
        """
        --additional-config --aux-output-config --ec-manager-config --elastic-ep-max-dp-size --enable-elastic-ep
        --enable-fault-tolerance --enable-scale-out --enable-trace-replay --fault-tolerance-config
        --ray-workers-use-nsight --tokens-only --watchdog-config --watermark-config --weight-transfer-config
        """.split(),
        UNLISTED,
    ),
}
_ADDRESS = "the addresses and ports of the API are the inventory's"
_PAGES = "gb10_api_origins decides which web pages may use the API"
_RANKS = "the plan joins the ranks over the fabric"
#: Options that the plan replaces or leaves out, with the reasons.
REPLACED: Mapping[str, str] = {
    **dict.fromkeys("--enable-ssl-refresh --host --port --root-path --ssl-ciphers --uds".split(), _ADDRESS),
    "--model": "the model before the options counts",
    **dict.fromkeys("--allow-credentials --allowed-headers --allowed-methods --allowed-origins".split(), _PAGES),
    "--allowed-local-media-path": "clients could read files of the service user; gb10_vllm_extra_args may set it",
    # The other project removes it too, unless its user requests Ray. Images of vLLM have had no Ray since 0.20,
    # NVIDIA's since 26.05.
    "--distributed-executor-backend": "gb10_distributed_executor_backend decides, without it mp",
    **dict.fromkeys(
        """
        --data-parallel-address --data-parallel-backend --data-parallel-external-lb --data-parallel-hybrid-lb
        --data-parallel-multi-port-external-lb --data-parallel-rank --data-parallel-rpc-port
        --data-parallel-size-local --data-parallel-start-rank --data-parallel-supervisor-port
        --dp-supervisor-probe-failure-threshold --dp-supervisor-probe-interval-s --dp-supervisor-probe-timeout-s
        --headless --master-addr --master-port --nnodes --node-rank
        """.split(),
        _RANKS,
    ),
}

#: Options that name a file of the server, and the name of one in the image's working folder, where a mod puts it.
FILES = frozenset("--chat-template --reasoning-parser-plugin --tool-parser-plugin".split())
FILE = re.compile(r"(?:\./)?[\w-][\w.-]*(?:/[\w-][\w.-]*)*\.(?:jinja2?|py|txt)", re.ASCII)

#: Variables of the folders that a hub's models are downloaded to.
CACHES = frozenset(("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"))
#: The values of the variables below: words and numbers, which no shell and no build file reads as more.
WORDS = re.compile(r"[\w.,:=+@^ \[\]{}\"-]*", re.ASCII)
#: Variables with special forms. FlashInfer writes its list into the commands of a build, debug logs have clients'
#: texts, and TORCH_LOGS imports modules.
FORMS: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(
        ("FLASHINFER_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST"),
        re.compile(r"\d{1,2}\.\d[af]?(\+PTX)?([ ;,]\d{1,2}\.\d[af]?(\+PTX)?)*", re.ASCII),
    ),
    "CUTE_DSL_ARCH": re.compile(r"sm_\d{2,3}[af]?", re.ASCII),
    # One that only chooses kernels: as for --all2all-backend, some connect to other hosts.
    "VLLM_ALL2ALL_BACKEND": re.compile(r"(?!nixl)\w*", re.ASCII),
    "VLLM_LOGGING_LEVEL": re.compile(r"INFO|WARNING|ERROR|CRITICAL", re.IGNORECASE),
}
#: Variables of vLLM and its libraries that only choose kernels, sizes and levels of logs.
VARIABLES: Mapping[str, str] = {
    "kernels and compilation": """
        B12X_POLICY_MODE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
        CUDA_VISIBLE_DEVICES INSTANTTENSOR_BACKEND
        TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS VLLM_ATTENTION_BACKEND VLLM_B12X_MOE_FP4_LAYER_MAX_INPUT_SCALE
        VLLM_COMPILE_CACHE_SAVE_FORMAT VLLM_CUSTOM_ALLREDUCE_ALGO VLLM_DISABLED_KERNELS
        VLLM_FLASHINFER_ALLREDUCE_BACKEND VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS VLLM_FLASHINFER_MOE_BACKEND
        VLLM_FLOAT32_MATMUL_PRECISION VLLM_GDN_DECODE_KERNEL VLLM_GLM53_ONLINE_MXFP8 VLLM_GLM53_ONLINE_NVFP4
        VLLM_KV_CACHE_LAYOUT VLLM_MARLIN_INPUT_DTYPE VLLM_MM_HASHER_ALGORITHM VLLM_MOE_ROUTING_SIMULATION_STRATEGY
        VLLM_NVFP4_GEMM_BACKEND VLLM_SSM_CONV_STATE_LAYOUT VLLM_TARGET_DEVICE
        """,
    "memory": """
        PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB VLLM_PLE_TABLE_MEMORY
        """,
    "ranks": """
        VLLM_DISTRIBUTED_EXECUTOR_CONFIG VLLM_PP_LAYER_PARTITION VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE
        VLLM_WORKER_MULTIPROC_METHOD
        """,
    "NCCL": "NCCL_ALGO NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_P2P_LEVEL NCCL_PROTO",
    "logs": "VLLM_LOGGING_COLOR",
    "media": "VLLM_VIDEO_LOADER_BACKEND",
}
#: The values of the variables below: a number, a size or a switch, which names no file, host or module.
SWITCH = re.compile(r"-?\d+(\.\d+)?([kmgt]?i?b?)|true|false|on|off|yes|no|auto|", re.ASCII | re.IGNORECASE)
#: Variables that are numbers, sizes and switches. An asterisk stands for any characters.
SWITCHES: Mapping[str, str] = {
    "kernels and compilation": """
        B12X_* DG_JIT_PRINT_* DG_JIT_USE_NVRTC FLASHINFER_DISABLE_VERSION_CHECK FLASHINFER_JIT_VERBOSE
        FLASHINFER_NVCC_THREADS TILELANG_CLEANUP_TEMP_FILES TORCHDYNAMO_DISABLE TORCHINDUCTOR_COMPILE_THREADS
        TORCHINDUCTOR_COORDINATE_DESCENT_TUNING TORCHINDUCTOR_FX_GRAPH_CACHE TORCHINDUCTOR_MAX_AUTOTUNE
        TORCHINDUCTOR_MAX_AUTOTUNE_GEMM TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_BLAS_PREFER_CUBLASLT
        TORCH_COMPILE_DISABLE TRITON_PRINT_AUTOTUNING VLLM_ALLREDUCE_USE_* VLLM_B12X_* VLLM_BATCH_INVARIANT
        VLLM_BLOCKSCALE_FP8_* VLLM_COHERE2_* VLLM_COMPUTE_NANS_IN_LOGITS VLLM_DCP_* VLLM_DEEPEP* VLLM_DEEP_GEMM_*
        VLLM_DISABLE_COMPILE_CACHE VLLM_DISABLE_DSV4_* VLLM_DISABLE_FLASHINFER_PREFILL VLLM_DISABLE_PYNCCL
        VLLM_DISABLE_SHARED_EXPERTS_STREAM VLLM_DSPARK_* VLLM_DSV4_* VLLM_ENABLE_CUDAGRAPH_GC VLLM_ENABLE_FLA_*
        VLLM_ENABLE_FUSED_MOE_* VLLM_ENABLE_GEMM_RS VLLM_ENABLE_HPC_OPS VLLM_ENABLE_INDUCTOR_* VLLM_ENABLE_MOE_*
        VLLM_ENABLE_PCIE_ALLREDUCE VLLM_ENABLE_PREGRAD_PASSES VLLM_ENABLE_ROCE_* VLLM_ENABLE_STARTUP_PLAN
        VLLM_ENABLE_V1_MULTIPROCESSING VLLM_FLASHINFER_ALLREDUCE_* VLLM_FLASHINFER_DISABLE_* VLLM_FLASHINFER_MOE_*
        VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE VLLM_FLASH_ATTN_* VLLM_FORCE_AOT_LOAD VLLM_FUSED_MOE_* VLLM_GDN_*
        VLLM_GLM5* VLLM_HUMMING_* VLLM_KDA_* VLLM_KIMI_K3_* VLLM_LM_HEAD_* VLLM_LORA_DISABLE_PDL
        VLLM_LORA_ENABLE_DUAL_STREAM VLLM_MARLIN_* VLLM_MINIMAX_* VLLM_MLA_* VLLM_MOE_* VLLM_MTP_* VLLM_MULTI_STREAM_*
        VLLM_MXFP4_* VLLM_MXFP8_* VLLM_NVFP4_* VLLM_PCIE_* VLLM_QWEN3* VLLM_RAISE_ON_LOGIT_NANS VLLM_REPLICATE_EMBED
        VLLM_ROCE_* VLLM_SHARED_EXPERTS_* VLLM_SKIP_P2P_CHECK VLLM_SPARSE_* VLLM_STEP5_* VLLM_TEST_FORCE_FP8_MARLIN
        VLLM_TRITON_* VLLM_USE_AOT_COMPILE VLLM_USE_B12X_* VLLM_USE_BREAKABLE_CUDAGRAPH VLLM_USE_BYTECODE_HOOK
        VLLM_USE_CUDNN_* VLLM_USE_DEEP_GEMM* VLLM_USE_DIRECT_* VLLM_USE_FASTOKENS VLLM_USE_FBGEMM VLLM_USE_FLASHINFER_*
        VLLM_USE_FUSED_* VLLM_USE_HW_AGNOSTIC VLLM_USE_LAYERNAME VLLM_USE_MEGA_AOT_ARTIFACT VLLM_USE_NCCL_SYMM_MEM
        VLLM_USE_NVFP4_* VLLM_USE_OINK_OPS VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM VLLM_USE_RAY_V2_EXECUTOR_BACKEND
        VLLM_USE_RAY_WRAPPED_PP_COMM VLLM_USE_SIMPLE_KV_OFFLOAD VLLM_USE_SPINLOOP_EXT VLLM_USE_STANDALONE_COMPILE
        VLLM_USE_TRITON_* VLLM_USE_TRTLLM_* VLLM_USE_V2_MODEL_RUNNER VLLM_V1_USE_*
        """,
    "memory and sizes": """
        CUDA_MANAGED_FORCE_DEVICE_ALLOC
        INSTANTTENSOR_* MALLOC_ARENA_MAX MAX_JOBS OMP_NUM_THREADS SAFETENSORS_FAST_GPU TOKENIZERS_PARALLELISM
        VLLM_ADAPTIVE_VERIFICATION_* VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE VLLM_ALLOW_LONG_MAX_MODEL_LEN
        VLLM_DBO_COMM_SMS VLLM_FASTSAFETENSORS_QUEUE_SIZE VLLM_KV_OFFLOAD_* VLLM_MAX_* VLLM_MEDIA_CACHE_MAX_SIZE_MB
        VLLM_MEDIA_CACHE_TTL_HOURS VLLM_MEDIA_FETCH_MAX_RETRIES VLLM_MEDIA_LOADING_THREAD_COUNT VLLM_MEMORY_PROFILER_*
        VLLM_MEMORY_PROFILE_* VLLM_MQ_MAX_CHUNK_BYTES_MB VLLM_MSGPACK_ZERO_COPY_THRESHOLD VLLM_PLE_CPU_OFFLOAD
        VLLM_PREFIX_CACHE_RETENTION_INTERVAL VLLM_SLEEP_WHEN_IDLE VLLM_V1_OUTPUT_PROC_CHUNK_SIZE
        VLLM_WEIGHT_OFFLOADING_* VLLM_XGRAMMAR_CACHE_MB
        """,
    "times": """
        HF_HUB_DOWNLOAD_TIMEOUT HF_HUB_ETAG_TIMEOUT VLLM_*_TIMEOUT VLLM_*_TIMEOUT_S VLLM_*_TIMEOUT_SECONDS
        VLLM_HTTP_TIMEOUT_KEEP_ALIVE VLLM_LOG_BATCHSIZE_INTERVAL VLLM_LOG_STATS_INTERVAL
        VLLM_RINGBUFFER_WARNING_INTERVAL
        """,
    "NCCL": """
        NCCL_BUFFSIZE NCCL_CROSS_NIC NCCL_CTA_POLICY NCCL_CUMEM_* NCCL_DMABUF_ENABLE NCCL_GRAPH_MIXING_SUPPORT
        NCCL_GRAPH_REGISTER NCCL_IGNORE_CPU_AFFINITY NCCL_LAUNCH_ORDER_IMPLICIT NCCL_LL128_* NCCL_LOCAL_REGISTER
        NCCL_MAX_* NCCL_MIN_* NCCL_MNNVL_ENABLE NCCL_NCHANNELS* NCCL_NSOCKS_PERTHREAD NCCL_NTHREADS NCCL_NVLS_*
        NCCL_P2P_* NCCL_PXN_* NCCL_SHM_DISABLE NCCL_SOCKET_NTHREADS NCCL_WIN_ENABLE TORCH_NCCL_ASYNC_ERROR_HANDLING
        TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_ENABLE_MONITORING
        TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC TORCH_NCCL_HIGH_PRIORITY
        """,
    "loading": """
        HF_DATASETS_OFFLINE HF_HUB_DISABLE_EXPERIMENTAL_WARNING HF_HUB_DISABLE_IMPLICIT_TOKEN
        HF_HUB_DISABLE_PROGRESS_BARS HF_HUB_DISABLE_SYMLINKS_WARNING HF_HUB_DISABLE_TELEMETRY HF_HUB_DISABLE_XET
        HF_HUB_ENABLE_HF_TRANSFER HF_HUB_OFFLINE HF_XET_HIGH_PERFORMANCE TRANSFORMERS_OFFLINE
        """,
    "answers and logs": """
        VLLM_DEBUG_MFU_METRICS VLLM_DISABLE_LOG_LOGO VLLM_DO_NOT_TRACK VLLM_ENFORCE_STRICT_TOOL_CALLING VLLM_GC_DEBUG
        VLLM_LOG_MODEL_INSPECTION VLLM_NO_USAGE_STATS VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY
        VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT
        """,
}
