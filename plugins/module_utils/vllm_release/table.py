# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options and environment variables of vLLM's releases: data only, read from their Python sources.

Made by `make release-table` (tests/patch/release_table.py), never by hand. A line is a name and what it is; what is not in all of these
releases has behind it in which it is: `@0.17-0.24` from 0.17.0 to before 0.24.0, for the rest of a line within those of its name.
Behind an option's name come its kind (value, list: one or more, optional: none or one, append, flag, bool: a flag with --no-), its other
names, how a value is changed before it is compared (lower, upper), `open` where plugins can add choices, and behind `=` the choices.
"""

from __future__ import annotations

#: The releases that were read.
READ = """
0.13.0 0.14.0 0.14.1 0.15.0 0.15.1 0.16.0 0.17.0 0.17.1 0.18.0 0.18.1 0.19.0 0.19.1 0.20.0 0.20.1 0.20.2 0.21.0 0.22.0 0.22.1 0.23.0 0.24.0
0.25.0 0.25.1 0.26.0 0.27.0 0.27.1 0.28.0 0.29.0 0.30.0 0.31.0 0.32.0 0.33.0
"""

OPTIONS = """
--additional-config value
--aggregate-engine-logging flag
--all2all-backend value = allgather_reducescatter deepep_high_throughput deepep_low_latency deepep_v2@0.24- flashinfer_all2allv
    flashinfer_nvlink_one_sided@0.18- flashinfer_nvlink_two_sided@0.18- moonep@0.31- mori@0.15-0.23 mori_high_throughput@0.23- mori_low_latency@0.23-
    naive nixl_ep@0.18- pplx
--allow-credentials bool
--allow-deprecated-quantization@0.14- bool
--allowed-headers value
--allowed-local-media-path value
--allowed-media-domains list
--allowed-methods value
--allowed-origins value
--anthropic-disabled-thinking-effort@0.31- value = auto high low max medium none xhigh
--api-key list
--api-server-count value -asc
--async-scheduling bool
--attention-backend value upper open = AMX_MLA@0.29- AUTO@0.18- B12X@0.30- CPU_ATTN CPU_MLA@0.28- CUSTOM CUTLASS_MLA CUTLASS_MSA@0.27- FLASHINFER
    FLASHINFER_MLA FLASHINFER_MLA_SPARSE@0.17- FLASHINFER_MLA_SPARSE_DSV4@0.23- FLASHINFER_MLA_SPARSE_DSV41@0.30- FLASHINFER_MLA_SPARSE_SM120@0.24-
    FLASHINFER_MLA_SPARSE_SM90@0.30- FLASHMLA FLASHMLA_MEGA_ATTN_DSV41@0.31- FLASHMLA_SPARSE FLASHMLA_SPARSE_DSV4@0.23- FLASHMLA_SPARSE_DSV41@0.30-
    FLASH_ATTN FLASH_ATTN_DIFFKV@0.14- FLASH_ATTN_MLA FLASH_ATTN_MLA_SPARSE@0.25- FLASH_ATTN_MLA_SPARSE_FA4@0.33- FLEX_ATTENTION HPC_ATTN@0.25-
    IPEX@-0.16 MINIMAX_M3_SPARSE@0.24- NO_ATTENTION PALLAS@-0.14 ROCM_AITER_FA ROCM_AITER_MLA ROCM_AITER_MLA_SPARSE ROCM_AITER_TRITON_MLA
    ROCM_AITER_UNIFIED_ATTN ROCM_ATTN ROCM_FLASHMLA_SPARSE_DSV4@0.23- ROCM_FLASHMLA_SPARSE_DSV41@0.33- ROCM_OCTAVE@0.33- ROCM_SEGMENTED_ATTN@0.32-
    STEP5_DSA@0.33- TOKENSPEED_MLA@0.21- TORCH_SDPA TREE_ATTN@-0.21 TRITON_ATTN TRITON_ATTN_DIFFKV@0.24- TRITON_FLASHINFER@0.30-
    TRITON_FLASH_ATTN@0.30- TRITON_MLA TRITON_MSA@0.27- TURBOQUANT@0.20- ULTRAQUANT@0.32- XPU_MLA_SPARSE@0.18-
--attention-config value -ac
--aux-output-config@0.31- value
--block-size value = 1@-0.18 128@-0.18 16@-0.18 256@-0.18 32@-0.18 64@-0.18 8@-0.18
--calculate-kv-scales@-0.28 bool
--chat-template value
--chat-template-content-format value = auto openai string
--code-revision value
--cohere-format@0.27- value
--cohere-is-reasoning-model@0.27- bool
--collect-detailed-traces list = None@0.31- all all,model@-0.31 all,worker@-0.31 model model,all@-0.31 model,worker@-0.31 worker worker,all@-0.31
    worker,model@-0.31
--compilation-config value -cc
--config value
--config-format value open = auto hf mistral
--convert value = auto classify embed mm_encoder_only@0.14-0.16 none reward@-0.16
--cp-kv-cache-interleave-size value
--cpu-distributed-timeout-seconds@0.22- value
--cpu-offload-gb value
--cpu-offload-params@0.17- list
--cudagraph-capture-sizes list
--cudagraph-metrics bool
--custom-histogram-buckets@0.32- value
--data-parallel-address value -dpa
--data-parallel-backend value -dpb
--data-parallel-external-lb bool -dpe
--data-parallel-hybrid-lb bool -dph
--data-parallel-multi-port-external-lb@0.22- flag -dpm
--data-parallel-rank value -dpn
--data-parallel-rpc-port value -dpp
--data-parallel-size value -dp
--data-parallel-size-local value -dpl
--data-parallel-start-rank value -dpr
--data-parallel-supervisor-port@0.22- value
--dbo-decode-token-threshold value
--dbo-prefill-token-threshold value
--dcp-comm-backend@0.18- value = None@0.31- a2a ag_rs
--dcp-kv-cache-interleave-size value
--dcp-q-replicate@0.29- bool
--decode-context-parallel-size value -dcp
--default-chat-template-kwargs@0.14- value
--default-mm-loras value
--device-ids@0.24- value
--diffusion-config@0.24- value -dc
--disable-access-log-for-endpoints@0.16- value
--disable-cascade-attn bool
--disable-chunked-mm-input bool
--disable-custom-all-reduce bool
--disable-fastapi-docs bool
--disable-frontend-multiprocessing@-0.19 bool
--disable-hybrid-kv-cache-manager bool
--disable-log-requests@-0.17 bool
--disable-log-stats flag
--disable-nccl-for-dp-synchronization bool
--disable-sliding-window bool
--disable-uvicorn-access-log bool
--distributed-executor-backend value open = external_launcher mp ray uni
--distributed-timeout-seconds@0.18- value
--download-dir value
--dp-supervisor-probe-failure-threshold@0.22- value
--dp-supervisor-probe-interval-s@0.22- value
--dp-supervisor-probe-timeout-s@0.22- value
--dp-sync-interval@0.30- value
--dtype value = auto bfloat16 float float16 float32 half
--ec-manager-config@0.28- value
--ec-transfer-config value
--elastic-ep-max-dp-size@0.30- value
--enable-auto-tool-choice bool
--enable-batch-sharded-sampling@0.29- bool
--enable-bf16x3-router-gemm@0.26-0.30 bool
--enable-chunked-prefill bool
--enable-cumem-allocator@0.22- bool
--enable-dbo bool
--enable-elastic-ep@0.17- bool
--enable-ep-weight-filter@0.18- bool
--enable-eplb bool
--enable-expert-parallel bool -ep@0.14-
--enable-fault-tolerance@0.27- bool
--enable-flash-late-interaction@0.20- bool
--enable-flashinfer-autotune@0.16- bool
--enable-force-include-usage bool
--enable-hc-sp@0.32- bool
--enable-layerwise-nvtx-tracing bool
--enable-log-deltas@0.14- bool
--enable-log-outputs bool
--enable-log-requests bool
--enable-logging-iteration-details@0.14- bool
--enable-lora bool
--enable-mamba-cache-stochastic-rounding@0.20- bool
--enable-mamba-fine-grained-prefix-cache@0.30-0.31 bool
--enable-mamba-shared-prefix-checkpoint@0.31- bool
--enable-mfu-metrics@0.14- bool
--enable-mixed-moe-lora-format@0.22- bool
--enable-mm-embeds bool
--enable-moe-shared-loras@0.26- bool
--enable-nccl-comm-suspend@0.30- bool
--enable-offline-docs@0.14- bool
--enable-per-request-metrics@0.25- bool
--enable-prefix-caching bool
--enable-prompt-embeds bool
--enable-prompt-tokens-details bool
--enable-request-id-headers bool
--enable-return-routed-experts@0.14- bool
--enable-scale-out@0.30- bool
--enable-server-load-tracking bool
--enable-shm-tensor-arena@0.32- bool
--enable-sleep-mode bool
--enable-ssl-refresh bool
--enable-tokenizer-info-endpoint bool
--enable-tower-connector-lora@0.14- bool
--enable-trace-replay@0.29- bool
--enforce-eager bool
--engram-config@0.30- value
--eplb-config value
--exclude-tools-when-tool-choice-none bool
--expert-placement-strategy value = linear round_robin
--fail-on-environ-validation@0.17- bool
--fault-tolerance-config@0.27- value
--fingerprint-mode@0.21- value = custom full hash none
--fingerprint-value@0.21- value
--fully-sharded-loras bool
--gdn-prefill-backend@0.18- value = aiter_flydsl@0.32- cutedsl@0.22- flashinfer sycl@0.33- triton
--generation-config value
--gpu-memory-utilization value --device-memory-utilization@0.31-
--grpc@0.20- flag
--grpc-port@0.32- value
--h11-max-header-count value
--h11-max-incomplete-event-size value
--headless flag
--hf-config-path value
--hf-overrides value
--hf-token optional
--host value
--ignore-patterns list
--interleave-mm-strings bool
--io-processor-plugin value
--ir-op-priority@0.20- value
--jit-monitor-mode@0.25- value = error warn
--jit-monitor-verbose@0.24- bool
--kda-decode-backend@0.30- value = auto flashinfer native triton
--kda-prefill-backend@0.27- value = auto flashinfer@0.30- flashkda fused@0.30- triton
--kernel-config@0.16- value
--kv-cache-dtype value open@0.33- = auto bfloat16 float16@0.18- fp8 fp8_ds_mla fp8_e4m3 fp8_e5m2 fp8_inc fp8_per_token_head@0.20-
    int4_per_token_head@0.25- int8_per_token_head@0.20- nvfp4@0.20- nvfp4_4over6@0.28- nvfp4_ds_mla@0.30- octave_k3v3@0.33- octave_k3v3_compact@0.33-
    octave_k3v4@0.33- turboquant_3bit_nc@0.20- turboquant_4bit_nc@0.20- turboquant_k3v4_nc@0.20- turboquant_k8v4@0.20- ultraquant_4bit@0.32-
--kv-cache-dtype-skip-layers@0.19- list
--kv-cache-memory-bytes value
--kv-cache-metrics bool
--kv-cache-metrics-sample value
--kv-events-config value
--kv-offloading-backend value = lmcache native
--kv-offloading-size value
--kv-sharing-fast-prefill bool
--kv-transfer-config value
--language-model-only@0.17- bool
--limit-mm-per-prompt value
--linear-backend@0.22- value lower = aiter auto b12x@0.28- conch cutlass deep_gemm emulation exllama fbgemm flashinfer_b12x@0.24- flashinfer_cudnn
    flashinfer_cutedsl@0.24- flashinfer_cutlass flashinfer_trtllm humming@0.25- machete marlin torch triton xpu@0.25- xpu_woq@0.25-
--load-format value open = auto bitsandbytes@-0.28 dummy fastsafetensors gguf@-0.24 hf instanttensor@0.18- ipc_cache@0.30- mistral modelexpress@0.22-
    npcache pt runai_streamer runai_streamer_sharded safetensors sharded_state tensorizer
--log-config-file value
--log-error-stack bool
--log-level@0.31- value = CRITICAL DEBUG ERROR INFO NOTSET WARNING
--logging-config@0.31- value
--logits-processor-pattern@-0.17 value
--logits-processors list
--logprobs-mode value = processed_logits processed_logprobs raw_logits raw_logprobs
--long-prefill-token-threshold value
--long-prefill-token-threshold-adaptive@0.31- bool
--lora-dtype value = auto bfloat16 float16
--lora-modules list
--lora-target-modules@0.19- list
--mamba-backend@0.20- value
--mamba-block-size value
--mamba-cache-dtype value = auto bfloat16@0.22- float16 float32
--mamba-cache-mode@0.15- value = align all@-0.32 none
--mamba-cache-philox-rounds@0.20- value
--mamba-ssm-cache-dtype value = auto bfloat16@0.22- float16 float32
--mamba-ssu-algorithm@0.27- value = None@0.31- auto horizontal simple vertical
--master-addr value
--master-port value
--max-cpu-loras value
--max-cudagraph-capture-size value
--max-log-len value
--max-logprobs value
--max-long-partial-prefills@-0.27 value
--max-lora-cls-labels@0.31- value
--max-lora-rank value = 1 128 16 256 32 320 512 64 8
--max-loras value
--max-model-len value
--max-num-active-seqs@0.31- value
--max-num-batched-tokens value
--max-num-partial-prefills@-0.27 value
--max-num-queued-reqs@0.29- value
--max-num-queued-tokens@0.29- value
--max-num-scheduled-tokens@0.26- value
--max-num-seqs value
--max-parallel-loading-workers value
--media-io-kwargs value
--middleware append
--mm-device-do-normalize@0.28- bool
--mm-encoder-attn-backend value
--mm-encoder-attn-dtype@0.21- value = None@0.31- fp8
--mm-encoder-fp8-scale-path@0.21- value
--mm-encoder-fp8-scale-save-margin@0.21- value
--mm-encoder-fp8-scale-save-path@0.21- value
--mm-encoder-only@0.15- bool
--mm-encoder-tp-mode value = data weights
--mm-hasher-algorithm@0.27- value = blake3 sha256 sha512
--mm-ipc-gpu-memory-gb@0.25- value
--mm-processor-cache-gb value
--mm-processor-cache-type value = lru shm
--mm-processor-device@0.28- value = auto cpu cuda
--mm-processor-kwargs value
--mm-shm-cache-max-object-size-mb value
--mm-tensor-ipc@0.19- value = direct_rpc torch_shm
--model value
--model-class-overrides@0.25- value
--model-impl value open = auto terratorch transformers vllm
--model-loader-extra-config value
--moe-backend@0.17- value lower = aiter aiter_mega_moe@0.32- aiter_triton_mxfp4_bf16@0.30- aiter_triton_mxfp4_mxfp4@0.33- auto b12x@0.29-
    batched_triton@0.27- cutlass deep_gemm deep_gemm_mega_moe@0.20- emulation@0.20- flashinfer_b12x@0.22- flashinfer_cutedsl flashinfer_cutlass
    flashinfer_moe_ep_cutedsl@0.32- flashinfer_moe_ep_mega_cutedsl@0.29-0.32 flashinfer_moe_ep_mega_deep_gemm@0.29- flashinfer_trtllm flydsl@0.24-
    hpc@0.25- humming@0.21- marlin rdna3@0.30- triton triton_unfused@0.21-
--monokernel@0.33- bool
--nnodes value -n
--node-rank value -r
--num-gpu-blocks-override value
--numa-bind@0.20- bool
--numa-bind-cpus@0.20- list
--numa-bind-nodes@0.20- list
--offload-backend@0.17- value = auto prefetch uva
--offload-group-size@0.17- value
--offload-num-in-group@0.17- value
--offload-params@0.17- list
--offload-prefetch-step@0.17- value
--optimization-level value
--otlp-traces-endpoint value
--override-attention-dtype@-0.28 value
--override-generation-config value
--per-request-spec-decode-metrics@0.29- value = detailed none summary
--performance-mode@0.17- value = balanced interactivity throughput
--pipeline-parallel-size value -pp
--pooler-config value
--port value
--prefill-context-parallel-size value -pcp
--prefill-schedule-interval@0.24- value
--prefix-cache-retention-interval@0.29- value
--prefix-caching-hash-algo value = sha256 sha256_cbor xxhash xxhash_cbor
--prefix-match-unit@0.26- value
--profiler-config value
--pt-load-map-location value
--quantization value -q open = auto-round@-0.15 auto_awq@0.24- auto_gptq@0.22- awq awq_marlin bitblas@-0.16 bitsandbytes@-0.28 compressed-tensors
    cpu_awq@-0.23 cpu_gptq@-0.14 deepseek_v4_fp8@0.20- deepspeedfp@-0.15 experts_int8 fbgemm_fp8 fp8 fp8_per_block@0.20- fp8_per_channel@0.24-
    fp8_per_tensor@0.20- fp_quant gguf@-0.24 gpt_oss_mxfp4@0.20- gptq gptq_bitblas@-0.16 gptq_marlin gptq_marlin_24@-0.16 hqq@-0.15 humming@0.20- inc
    int8_per_channel_weight_only@0.20- ipex@-0.16 modelopt modelopt_fp4 modelopt_mixed@0.17- modelopt_mxfp8@0.16- moe_wna16 mxfp4 mxfp8@0.19-
    nvfp4_per_token@0.26- online@0.20- petit_nvfp4@-0.20 ptpc_fp8@-0.19 quark rtn@-0.15 torchao tpu_int8@-0.14
--quantization-config@0.22- value
--ray-workers-use-nsight bool
--reasoning-config@0.19- value
--reasoning-effort-map@0.33- value
--reasoning-parser value open = beam@0.33- cohere_command3@0.21- cohere_command4@0.21- deepseek_r1 deepseek_v3 deepseek_v4@0.20- deepseek_v41@0.30-
    ernie45 gemma4@0.19- glm45 glm47@0.24- granite granite_thinking_parser@0.31- hf@0.32- holo2 hunyuan_a13b hy_v3@0.20- hy_v4@0.29- inkling@0.26-
    k2_horizon@0.30- kimi_k2 kimi_k3@0.27- ling3@0.28- mimo@0.20- minicpmv@0.32- minimax_m2 minimax_m2_append_think minimax_m3@0.24- mistral
    muse@0.33- muse_glimmer@0.28- musespark1x@0.33- nemotron_v3@0.17.1- olmo3 openai_gptoss plamo3@0.32- poolside_v1@0.21- qwen3 seed_oss step3
    step3p5@0.15.1- step5@0.33-
--reasoning-parser-plugin value
--renderer-num-workers@0.19- value
--replayssm-buffer-len@0.27- value
--response-role value
--return-sampling-mask@0.28- bool
--return-tokens-as-token-ids bool
--revision value
--root-path value
--runner value = auto draft generate pooling
--safetensors-load-strategy value = None@0.31- eager@0.24- lazy@0.24- prefetch@0.24- torchao@0.24-
--safetensors-prefetch-block-size@0.21- value
--safetensors-prefetch-num-threads@0.21- value
--scheduler-cls value
--scheduler-reserve-full-isl@0.19- bool
--scheduling-policy value = fcfs priority
--seed value
--served-model-name list
--show-hidden-metrics-for-version value
--shutdown-timeout@0.18- value
--skip-mm-profiling bool
--skip-tokenizer-init bool
--sleep-mode-backend@0.33- value
--sleep-mode-offload-cudagraph@0.32- bool
--sleep-preserve-parameter-names@0.31- list
--sparse-indexer-topk-backend@0.30- value lower = aiter@0.32- auto cooperative deep_select flashinfer per_row persistent torch
--spec-method@0.22- value = None@0.31- bailing_hybrid_mtp@0.25- bailing_hybrid_v3_mtp@0.28- custom_class deepseek_mtp dflash dots3_note_mtp@0.28-
    draft_model dspark@0.25- eagle eagle3 ernie_mtp exaone4_5_mtp exaone_moe_mtp extract_hidden_states gemma4_mtp glm4_moe_lite_mtp glm4_moe_mtp
    glm5_next_mtp@0.30- glm_ocr_mtp hy_v3_mtp hy_v4_mtp@0.29- inkling_mtp@0.26- kimi_k3_mtp@0.27- longcat_flash_mtp medusa@-0.33 mimo_mtp mimo_v2_mtp
    minimax_m3_mtp@0.24- mlp_speculator@-0.33 mtp nemotron_h_mtp ngram ngram_gpu pangu_ultra_moe_mtp qwen3_5_mtp qwen3_next_mtp qwen4_exp_mtp@0.29-
    step3p5_mtp step5_mtp@0.33- suffix
--spec-model@0.22- value
--spec-tokens@0.22- value
--specialize-active-lora@0.16- bool
--speculative-config value -sc@0.19-
--sse-keep-alive-interval@0.29- value
--ssl-ca-certs value
--ssl-cert-reqs value
--ssl-certfile value
--ssl-ciphers@0.15- value
--ssl-keyfile value
--stream-interval value
--structured-outputs-config value
--swa-bounded-replay@0.31- bool
--swap-space@-0.18 value
--tensor-parallel-size value -tp
--tokenizer value
--tokenizer-mode value open = alpamayo2_super@0.33- auto cohere@0.27- deepseek_v32 deepseek_v4@0.20- fastokens@0.21-0.22 hf inkling@0.26-
    kimi_k3@0.27- mistral slow@-0.31
--tokenizer-revision value
--tokens-only bool
--tool-call-parser value open = apertus@0.22- beam@0.33- cohere_command3@0.21- cohere_command4@0.21- deepseek_v3 deepseek_v31 deepseek_v32
    deepseek_v4@0.20- deepseek_v41@0.30- dots@0.28- ernie45 functiongemma@0.14- gemma4@0.19- gigachat3 glm45 glm47@0.14- granite granite-20b-fc
    granite4@0.18- hermes hf@0.32- hunyuan_a13b hy_v3@0.20- hy_v4@0.29- inkling@0.26- internlm jamba k2_horizon@0.30- kimi_k2 kimi_k3@0.27- lfm2@0.21-
    ling3@0.28- llama3_json llama4_json llama4_pythonic longcat mimo@0.20- minicpm5@0.23- minimax@-0.24 minimax_m2 minimax_m3@0.24- mistral muse@0.33-
    muse_glimmer@0.28- musespark1x@0.33- olmo3 openai phi4_mini_json plamo3@0.32- poolside_v1@0.21- pythonic qwen3_coder qwen3_json@0.32- qwen3_xml
    seed_oss step3 step3p5@0.15.1- step5@0.33- xlam
--tool-parser-plugin value
--tool-server value
--tool-strict-level@0.31- value = None@0.33- auto function parameter
--trust-remote-code bool
--trust-request-chat-template bool
--trust-request-mm-kwargs@0.31- bool
--ubatch-size@0.14- value
--uds value
--use-fp64-gumbel@0.22- bool
--use-gpu-for-pooling-score@0.17-0.18 bool
--use-replayssm@0.27- bool
--use-tqdm-on-load bool
--uvicorn-log-level value = critical debug error info trace warning
--video-pruning-method@0.27- value = evs vidcom2
--video-pruning-rate value
--watchdog-config@0.33- value
--watermark@0.24- value
--watermark-config@0.30- value
--weight-transfer-config@0.16- value
--worker-cls value
--worker-extension-cls value
"""

VARIABLES = """
AITER_SITUV2_A8W4@0.27-0.28
CMAKE_BUILD_TYPE
CUDA_HOME
CUDA_VISIBLE_DEVICES
FORCE_COLOR@0.31-
K_SCALE_CONSTANT@-0.28
LD_LIBRARY_PATH
LOCAL_RANK
MAX_JOBS
MOONCAKE_PREFERRED_SEGMENT@0.22-
MOONCAKE_REQUESTER_LOCAL_HOSTNAME@0.22-
NO_COLOR
NVCC_THREADS
Q_SCALE_CONSTANT@-0.28
S3_ACCESS_KEY_ID
S3_ENDPOINT_URL
S3_SECRET_ACCESS_KEY
VERBOSE
VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN@0.28-
VLLM_ALL2ALL_BACKEND@-0.16
VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE
VLLM_ALLOW_INSECURE_SERIALIZATION
VLLM_ALLOW_LONG_MAX_MODEL_LEN
VLLM_ALLOW_RUNTIME_LORA_UPDATING
VLLM_ALLREDUCE_USE_FLASHINFER@0.17-
VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC@0.30-
VLLM_ALLREDUCE_USE_SYMM_MEM
VLLM_API_KEY
VLLM_ASSETS_CACHE
VLLM_ASSETS_CACHE_MODEL_CLEAN
VLLM_ATTENTION_BACKEND@-0.15
VLLM_AUDIO_FETCH_TIMEOUT
VLLM_B12X_MOE_FP4_FORCE_A16@0.29-
VLLM_BATCH_INVARIANT
VLLM_BEAM_ALWAYS_CONSTRAIN_OUTPUT@0.33-
VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER@0.14-
VLLM_BUILD_COMMIT@0.26-
VLLM_BUILD_PIPELINE@0.26-
VLLM_BUILD_URL@0.26-
VLLM_CACHE_ROOT
VLLM_CHAT_TEMPLATE_FUEL@0.33-
VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT@0.32-
VLLM_CI_USE_S3@-0.26
VLLM_COHERE2_ATTN_MOE_DUAL_STREAM_TOKEN_THRESHOLD@0.33-
VLLM_COMPILE_CACHE_SAVE_FORMAT
VLLM_COMPUTE_NANS_IN_LOGITS
VLLM_CONFIGURE_LOGGING
VLLM_CONFIG_ROOT
VLLM_CPU_ATTN_SPLIT_KV@0.20-
VLLM_CPU_CI_ENV
VLLM_CPU_INT4_W4A8@0.20-
VLLM_CPU_KVCACHE_SPACE
VLLM_CPU_NUM_OF_RESERVED_CPU
VLLM_CPU_OMP_THREADS_BIND
VLLM_CPU_SGL_KERNEL@-0.28
VLLM_CPU_SIM_MULTI_NUMA@0.16-
VLLM_CUDART_SO_PATH
VLLM_CUDA_COMPATIBILITY_PATH@0.17-
VLLM_CUSTOM_ALLREDUCE_ALGO@0.32-
VLLM_CUSTOM_SCOPES_FOR_PROFILING
VLLM_DBO_COMM_SMS
VLLM_DCP_Q_REPLICATE@0.27-
VLLM_DEBUG_DUMP_PATH
VLLM_DEBUG_LOG_API_SERVER_RESPONSE
VLLM_DEBUG_MFU_METRICS@0.14-
VLLM_DEBUG_WORKSPACE
VLLM_DEEPEPLL_NVFP4_DISPATCH
VLLM_DEEPEP_BUFFER_SIZE_MB
VLLM_DEEPEP_HIGH_THROUGHPUT_FORCE_INTRA_NODE
VLLM_DEEPEP_LOW_LATENCY_USE_MNNVL
VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE@0.24-
VLLM_DEEPEP_V2_ALLOW_MULTIPLE_REDUCTION@0.24-
VLLM_DEEPEP_V2_PREFER_OVERLAP@0.24-
VLLM_DEEP_GEMM_WARMUP
VLLM_DISABLED_KERNELS
VLLM_DISABLE_COMPILE_CACHE
VLLM_DISABLE_DSV4_MEGAMOE_SHARED_EXPERT_FUSION@0.29-
VLLM_DISABLE_FLASHINFER_PREFILL@-0.15
VLLM_DISABLE_LOG_LOGO@0.15-
VLLM_DISABLE_PYNCCL
VLLM_DISABLE_REQUEST_ID_RANDOMIZATION@0.17-
VLLM_DISABLE_SHARED_EXPERTS_STREAM
VLLM_DISTRIBUTED_USE_SPLIT_GROUP@0.23-
VLLM_DIST_IDENT
VLLM_DOCKER_BUILD_CONTEXT
VLLM_DO_NOT_TRACK
VLLM_DP_MASTER_IP
VLLM_DP_MASTER_PORT
VLLM_DP_RANK
VLLM_DP_RANK_LOCAL
VLLM_DP_SIZE
VLLM_EC_SIDE_CHANNEL_HOST@0.26-
VLLM_EC_SIDE_CHANNEL_PORT@0.26-
VLLM_ELASTIC_EP_DRAIN_REQUESTS@0.17-
VLLM_ELASTIC_EP_SCALE_UP_LAUNCH
VLLM_ENABLE_COHERE_API@0.27-
VLLM_ENABLE_CUDAGRAPH_GC
VLLM_ENABLE_CUDA_COMPATIBILITY@0.17-
VLLM_ENABLE_FLA_PACKED_RECURRENT_DECODE@0.18-
VLLM_ENABLE_FUSED_MOE_ACTIVATION_CHUNKING@-0.18
VLLM_ENABLE_GEMM_RS@0.31-
VLLM_ENABLE_HPC_OPS@0.29-
VLLM_ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING
VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE
VLLM_ENABLE_MOE_DP_CHUNK@-0.20
VLLM_ENABLE_PREGRAD_PASSES@0.17-
VLLM_ENABLE_RESPONSES_API_STORE
VLLM_ENABLE_STARTUP_PLAN@0.26-
VLLM_ENABLE_V1_MULTIPROCESSING
VLLM_ENFORCE_STRICT_TOOL_CALLING@0.21-
VLLM_ENGINE_ITERATION_TIMEOUT_S@-0.32
VLLM_ENGINE_READY_TIMEOUT_S@0.14-
VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS
VLLM_FASTSAFETENSORS_QUEUE_SIZE@0.24-
VLLM_FLASHINFER_ALLREDUCE_BACKEND@0.17-
VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB@-0.26
VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR@0.22-
VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS@0.26-
VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION@-0.15
VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE@0.32-
VLLM_FLASHINFER_MOE_BACKEND@-0.24
VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE
VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH@-0.15
VLLM_FLASH_ATTN_VERSION@-0.15
VLLM_FLOAT32_MATMUL_PRECISION
VLLM_FORCE_AOT_LOAD
VLLM_FUN_AUDIOCHAT_DEBUG@0.16-0.17
VLLM_FUN_AUDIOCHAT_DUMP_PATH@0.16-0.17
VLLM_FUSED_MOE_CHUNK_SIZE@-0.18
VLLM_GC_DEBUG
VLLM_GDN_DECODE_KERNEL@0.28-
VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS
VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS
VLLM_GPU_NIC_PCIE_MAPPING@0.23-
VLLM_GPU_SYNC_CHECK@0.25-
VLLM_HAS_FLASHINFER_CUBIN
VLLM_HOST_IP
VLLM_HTTP_MAX_REQUEST_BODY_SIZE@0.33-
VLLM_HTTP_TIMEOUT_KEEP_ALIVE
VLLM_HUMMING_INPUT_QUANT_CONFIG@0.20-
VLLM_HUMMING_MOE_GEMM_TYPE@0.20-
VLLM_HUMMING_ONLINE_QUANT_CONFIG@0.20-
VLLM_HUMMING_USE_F16_ACCUM@0.20-
VLLM_IMAGE_FETCH_TIMEOUT
VLLM_IMAGE_TAG@0.26-
VLLM_KEEP_ALIVE_ON_ENGINE_DEATH
VLLM_KIMI_K3_AUX_ATTN_RES_STREAM@0.28-
VLLM_KIMI_K3_GEMM_AR@0.29-
VLLM_KIMI_K3_GEMM_RS@0.28-0.31
VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT@0.27-
VLLM_KV_CACHE_LAYOUT
VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES
VLLM_KV_OFFLOAD_MAX_BATCH_DESCRIPTORS@0.29-
VLLM_LOGGING_COLOR
VLLM_LOGGING_CONFIG_PATH
VLLM_LOGGING_LEVEL
VLLM_LOGGING_PREFIX
VLLM_LOGGING_STREAM
VLLM_LOG_BATCHSIZE_INTERVAL
VLLM_LOG_MODEL_INSPECTION@0.14-
VLLM_LOG_STATS_INTERVAL
VLLM_LOOPBACK_IP
VLLM_LORA_DISABLE_PDL@0.15-
VLLM_LORA_ENABLE_DUAL_STREAM@0.20-
VLLM_LORA_RESOLVER_CACHE_DIR
VLLM_LORA_RESOLVER_HF_REPO_LIST@0.16-
VLLM_MAIN_CUDA_VERSION
VLLM_MARLIN_INPUT_DTYPE
VLLM_MARLIN_USE_ATOMIC_ADD
VLLM_MAX_AUDIO_CLIP_FILESIZE_MB
VLLM_MAX_AUDIO_DECODE_BYTES@0.28-
VLLM_MAX_AUDIO_DECODE_DURATION_S@0.24-
VLLM_MAX_AUDIO_PREPROCESS_WORKERS@0.24-
VLLM_MAX_BAD_WORDS_TOTAL_TOKENS@0.28-
VLLM_MAX_COMPLETION_PROMPTS@0.26-
VLLM_MAX_EMBED_DECODE_BYTES@0.30-
VLLM_MAX_IMAGE_PIXELS@0.25-
VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB@0.29-
VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES@0.33-
VLLM_MAX_MEDIA_REQUEST_DOWNLOAD_SIZE_MB@0.33-
VLLM_MAX_NUM_BAD_WORDS@0.28-
VLLM_MAX_N_SEQUENCES@0.19-
VLLM_MAX_STOP_STRINGS@0.28-
VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE
VLLM_MEDIA_CACHE@0.20-
VLLM_MEDIA_CACHE_MAX_SIZE_MB@0.20-
VLLM_MEDIA_CACHE_TTL_HOURS@0.20-
VLLM_MEDIA_CONNECTOR
VLLM_MEDIA_FETCH_MAX_RETRIES@0.19-
VLLM_MEDIA_LOADING_THREAD_COUNT
VLLM_MEDIA_URL_ALLOW_REDIRECTS
VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS@0.18-
VLLM_MINIMAX_M3_MSA_CUTLASS_MIN_BATCH@0.33-
VLLM_MLA_DISABLE
VLLM_MM_HASHER_ALGORITHM@0.15-0.30
VLLM_MODEL_REDIRECT_PATH
VLLM_MOE_DP_CHUNK_SIZE@-0.20
VLLM_MOE_ROUTING_SIMULATION_STRATEGY
VLLM_MOE_SKIP_PADDING@0.25-
VLLM_MOE_USE_DEEP_GEMM
VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT
VLLM_MOONCAKE_BOOTSTRAP_PORT
VLLM_MOONCAKE_CONNECTOR_TIMEOUT@0.31-
VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO@0.22-
VLLM_MOONCAKE_LOAD_RECV_THREADS@0.25-
VLLM_MOONCAKE_STORE_TIER_LOG@0.22-
VLLM_MORIIO_CONNECTOR_READ_MODE@0.14-0.23
VLLM_MORIIO_NUM_WORKERS@0.14-0.23
VLLM_MORIIO_POST_BATCH_SIZE@0.14-0.23
VLLM_MORIIO_QP_PER_TRANSFER@0.14-0.23
VLLM_MORIIO_TRANSFER_TIMEOUT_S@0.28-
VLLM_MQ_MAX_CHUNK_BYTES_MB
VLLM_MSGPACK_ZERO_COPY_THRESHOLD
VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD@0.20.1-
VLLM_MXFP4_EMULATION_DEQUANT_AT_LOAD@0.31-
VLLM_MXFP4_USE_MARLIN@-0.24
VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD@0.24-
VLLM_NCCL_INCLUDE_PATH
VLLM_NCCL_SO_PATH
VLLM_NIC_SELECTION_VARS@0.23-
VLLM_NIXL_ABORT_REQUEST_TIMEOUT@-0.22
VLLM_NIXL_EP_MAX_NUM_RANKS@0.18-0.30
VLLM_NIXL_SIDE_CHANNEL_HOST
VLLM_NIXL_SIDE_CHANNEL_PORT
VLLM_NO_USAGE_STATS
VLLM_NVFP4_GEMM_BACKEND@-0.24
VLLM_NVTX_SCOPES_FOR_PROFILING
VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME
VLLM_P2P_HANDSHAKE_TIMEOUT_S@0.32-
VLLM_P2P_IDLE_TIMEOUT_S@0.32-
VLLM_P2P_MAX_PEERS@0.32-
VLLM_P2P_SIDE_CHANNEL_HOST@0.26-
VLLM_P2P_SIDE_CHANNEL_PORT@0.26-
VLLM_PATTERN_MATCH_DEBUG
VLLM_PLE_CPU_OFFLOAD@0.30-0.31
VLLM_PLUGINS
VLLM_PORT
VLLM_PP_LAYER_PARTITION
VLLM_PRECOMPILED_WHEEL_LOCATION
VLLM_PREFIX_CACHE_RETENTION_INTERVAL@0.23-0.30
VLLM_PROCESS_NAME_PREFIX
VLLM_PROFILER_DELAY_ITERS@-0.16
VLLM_PROFILER_MAX_ITERS@-0.16
VLLM_RAISE_ON_LOGIT_NANS@0.28-
VLLM_RANDOMIZE_DP_DUMMY_INPUTS
VLLM_RAY_BUNDLE_INDICES
VLLM_RAY_DP_PACK_STRATEGY
VLLM_RAY_DP_PLACEMENT_NODE_IPS@0.23-
VLLM_RAY_EXTRA_ENV_VARS_TO_COPY@0.17-
VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY@0.17-
VLLM_RAY_PER_WORKER_GPUS
VLLM_REGEX_COMPILATION_TIMEOUT_S@0.24-
VLLM_REPLICATE_EMBED@0.29-
VLLM_REQUEST_BODY_LOG_LEVEL@0.33-
VLLM_RINGBUFFER_WARNING_INTERVAL
VLLM_ROCM_AITER_MEGA_MOE_FUSE_SHARED_EXPERTS@0.32-0.33
VLLM_ROCM_AITER_MLA_ASM_PADDING@0.28-
VLLM_ROCM_AITER_MLA_DCP_VERIFY@0.31-0.33
VLLM_ROCM_AITER_MOE_DISPATCH_POLICY@0.23-
VLLM_ROCM_CUSTOM_PAGED_ATTN@-0.19
VLLM_ROCM_FP8_MFMA_PAGE_ATTN
VLLM_ROCM_FP8_PADDING
VLLM_ROCM_MOE_PADDING
VLLM_ROCM_MONO_DECODE@0.32-0.33
VLLM_ROCM_MUSE_MOE_ONLINE_QUANT@0.33-
VLLM_ROCM_MUSE_MOE_REDUCE_DTYPE@0.33-
VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16
VLLM_ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB
VLLM_ROCM_QUICK_REDUCE_MIN_SIZE_BYTES_MB@0.22-
VLLM_ROCM_QUICK_REDUCE_QUANTIZATION
VLLM_ROCM_QUICK_REDUCE_QUANTIZATION_MIN_SIZE_KB@0.22-
VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT@0.15-
VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE
VLLM_ROCM_USE_AITER
VLLM_ROCM_USE_AITER_CUSTOM_AR@0.25-
VLLM_ROCM_USE_AITER_FP4BMM@0.15-
VLLM_ROCM_USE_AITER_FP4_ASM_GEMM@-0.29,0.31-0.33
VLLM_ROCM_USE_AITER_FP8BMM
VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS
VLLM_ROCM_USE_AITER_LINEAR
VLLM_ROCM_USE_AITER_LINEAR_HIPBMM@0.23-
VLLM_ROCM_USE_AITER_MHA
VLLM_ROCM_USE_AITER_MLA
VLLM_ROCM_USE_AITER_MOE
VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4@0.32-
VLLM_ROCM_USE_AITER_MOE_SITUV2@0.31-
VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4@0.28-0.31
VLLM_ROCM_USE_AITER_PAGED_ATTN@-0.26
VLLM_ROCM_USE_AITER_RMSNORM
VLLM_ROCM_USE_AITER_TRITON_GEMM
VLLM_ROCM_USE_AITER_TRITON_ROPE
VLLM_ROCM_USE_AITER_TRITON_SPARSE_MLA@0.32-
VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION
VLLM_ROCM_USE_SKINNY_GEMM
VLLM_RPC_BASE_PATH
VLLM_RPC_TIMEOUT@-0.23
VLLM_RUST_FRONTEND_PATH@0.22-
VLLM_SERVER_DEV_MODE
VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD
VLLM_SKIP_MODEL_NAME_VALIDATION@0.21-
VLLM_SKIP_P2P_CHECK
VLLM_SKIP_PRECOMPILED_VERSION_SUFFIX
VLLM_SKIP_VERSION_SUFFIX@0.31-
VLLM_SLEEP_WHEN_IDLE@-0.18
VLLM_SNAPSHOT_TIMEOUT_S@0.31-
VLLM_SPARSE_INDEXER_MAX_LOGITS_MB@0.19-
VLLM_SSM_CONV_STATE_LAYOUT@0.20-
VLLM_STEP5_SHARD_SP_SHARED_EXPERT@0.33-
VLLM_SYSTEM_START_DATE@0.17-
VLLM_TARGET_DEVICE
VLLM_TEST_FORCE_FP8_MARLIN@-0.29
VLLM_TEST_FORCE_LOAD_FORMAT
VLLM_TEST_STANDALONE_COMPILE@-0.16
VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY
VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS
VLLM_TORCH_CUDA_PROFILE@-0.16
VLLM_TORCH_PROFILER_DIR@-0.16
VLLM_TORCH_PROFILER_DISABLE_ASYNC_LLM@-0.16
VLLM_TORCH_PROFILER_DUMP_CUDA_TIME_TOTAL@-0.16
VLLM_TORCH_PROFILER_RECORD_SHAPES@-0.16
VLLM_TORCH_PROFILER_USE_GZIP@-0.16
VLLM_TORCH_PROFILER_WITH_FLOPS@-0.16
VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY@-0.16
VLLM_TORCH_PROFILER_WITH_STACK@-0.16
VLLM_TPU_BUCKET_PADDING_GAP@-0.26
VLLM_TPU_MOST_MODEL_LEN@-0.26
VLLM_TPU_USING_PATHWAYS
VLLM_TRACE_FUNCTION
VLLM_TRITON_ATTN_USE_TD@0.22-0.29
VLLM_TRITON_FORCE_FIRST_CONFIG@0.24-
VLLM_TRITON_JIT_WARMUP_NUM_THREADS@0.31-
VLLM_TRITON_USE_TD@0.26-
VLLM_TUNED_CONFIG_FOLDER
VLLM_USAGE_SOURCE
VLLM_USAGE_STATS_SERVER
VLLM_USE_AOT_COMPILE
VLLM_USE_BREAKABLE_CUDAGRAPH@0.22-
VLLM_USE_BYTECODE_HOOK
VLLM_USE_CUDNN_PREFILL@-0.15
VLLM_USE_DEEP_GEMM
VLLM_USE_DEEP_GEMM_E8M0
VLLM_USE_DEEP_GEMM_TMA_ALIGNED_SCALES@0.15-
VLLM_USE_DIRECT_DCP_A2A@0.28-
VLLM_USE_DIRECT_DCP_KV_GATHER@0.28-
VLLM_USE_DIRECT_DCP_Q_GATHER@0.28-
VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT
VLLM_USE_FASTOKENS@0.22-
VLLM_USE_FBGEMM@-0.24
VLLM_USE_FLASHINFER_MOE_FP16@-0.24
VLLM_USE_FLASHINFER_MOE_FP4@-0.24
VLLM_USE_FLASHINFER_MOE_FP8@-0.24
VLLM_USE_FLASHINFER_MOE_INT4@0.16-
VLLM_USE_FLASHINFER_MOE_MXFP4_BF16@-0.24
VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8@-0.24
VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS@-0.24
VLLM_USE_FLASHINFER_SAMPLER
VLLM_USE_FUSED_MOE_GROUPED_TOPK
VLLM_USE_HW_AGNOSTIC@0.28-
VLLM_USE_LAYERNAME@0.20-
VLLM_USE_MEGA_AOT_ARTIFACT@0.15-
VLLM_USE_MODELSCOPE
VLLM_USE_NCCL_SYMM_MEM
VLLM_USE_NVFP4_CT_EMULATIONS@-0.24
VLLM_USE_OINK_OPS@0.17-
VLLM_USE_PRECOMPILED
VLLM_USE_PRECOMPILED_RUST@0.22-
VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE@-0.33
VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM@-0.33
VLLM_USE_RAY_V2_EXECUTOR_BACKEND@0.20-0.33
VLLM_USE_RAY_WRAPPED_PP_COMM@-0.33
VLLM_USE_RUST_BENCH@0.27-
VLLM_USE_RUST_FRONTEND@0.22-
VLLM_USE_SIMPLE_KV_OFFLOAD@0.19-
VLLM_USE_SPINLOOP_EXT@0.22-
VLLM_USE_STANDALONE_COMPILE
VLLM_USE_TRITON_AWQ
VLLM_USE_TRTLLM_ATTENTION@-0.15
VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL@-0.15
VLLM_USE_V2_MODEL_RUNNER
VLLM_V1_OUTPUT_PROC_CHUNK_SIZE
VLLM_V1_USE_OUTLINES_CACHE
VLLM_V1_USE_PREFILL_DECODE_ATTENTION@-0.15
VLLM_VIDEO_FETCH_TIMEOUT
VLLM_VIDEO_LOADER_BACKEND
VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY@0.17-
VLLM_WEIGHT_OFFLOADING_DISABLE_UVA@0.17-
VLLM_WORKER_MULTIPROC_METHOD
VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS@0.24-
VLLM_WSL2_ENABLE_PIN_MEMORY@0.24-
VLLM_XGRAMMAR_CACHE_MB
VLLM_XLA_CACHE_PATH
VLLM_XLA_CHECK_RECOMPILATION
VLLM_XLA_USE_SPMD
VLLM_XPU_ENABLE_XPU_GRAPH@0.19-0.31
VLLM_XPU_FORCE_N_CONTIG_WEIGHT@0.29-
VLLM_XPU_INC_WNA16_BACKEND@0.29-
VLLM_XPU_PP_MICROBATCH@0.31-
VLLM_XPU_USE_SAMPLER_KERNEL@0.21-
VLLM_ZENTORCH_WEIGHT_PREPACK@0.18-
V_SCALE_CONSTANT@-0.28
"""
