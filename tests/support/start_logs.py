"""Logs of starts of vLLM, with the messages about its choices."""

from __future__ import annotations

#: A start on a GPU in the words of vLLM 0.33, from two ranks.
CUDA = """\
Starting gb10-vllm.service - vLLM on the GB10 cluster...
(EngineCore pid=9) INFO 11-21 19:20:01 [core.py:133] Initializing a V1 LLM engine (v0.33.0) with config: model='/srv/m', \
speculative_config=SpeculativeConfig(method='mtp'), enforce_eager=False, device_config=cuda, enable_prefix_caching=True, x=1
\x1b[36m(RayWorkerProc pid=7, ip=10.110.0.2)\x1b[0m INFO 11-21 19:20:02 [cuda.py:448] Using AttentionBackendEnum.TRITON_ATTN backend.
\x1b[36m(RayWorkerProc pid=7, ip=10.110.0.2)\x1b[0m INFO 11-21 19:20:02 [a.py:1] FlashInfer top-p/top-k sampling disabled via X=0.
(Worker_TP0 pid=812) INFO 11-21 19:20:02 [cuda.py:509] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].
(Worker_TP0 pid=812) INFO 11-21 19:20:02 [nvfp4.py:242] Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN', 'EMULATION'].
(Worker_TP0 pid=812) INFO 11-21 19:20:02 [unquantized.py:254] Using FlashInfer CUTLASS Unquantized MoE backend out of potential backends: [...]
(Worker_TP0 pid=812) INFO 11-21 19:20:02 [__init__.py:869] Selected CutlassFP8ScaledMMLinearKernel for Fp8LinearMethod
(Worker_TP0 pid=812) WARNING 11-21 19:20:02 [marlin.py:35] Your GPU does not have native support for FP4 computation but FP4 quantization is used
(Worker_TP0 pid=812) WARNING 11-21 19:20:03 [fused_moe.py:1166] Using default MoE config. Performance might be sub-optimal! No file
(Worker_TP0 pid=812) INFO 11-21 19:20:03 [w8a8_utils.py:44] cutlass_fp8_supported() is False on 12.1 (gb10.cluster)
(Worker_TP0 pid=812) INFO 11-21 19:20:03 [cutlass.py:1] CutlassFP8ScaledMMLinearKernel is off on 12.1 (gb10.cluster)
(Worker_TP0 pid=812) INFO 11-21 19:20:03 [kernel_warmup.py:270] Skipping FlashInfer autotune because it is disabled.
spark1:812:900 [0] NCCL INFO Using network IB
spark1:812:900 [0] NCCL INFO NCCL version 2.30.7+cuda13.0
spark1:812:900 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
(EngineCore pid=9) INFO 11-21 19:20:04 [kv_cache_utils.py:1148] GPU KV cache size: 1,823,372 tokens, Maximum concurrency for 4,096 tokens: 445x
(Worker_TP0 pid=812) INFO 11-21 19:20:05 [gpu_model_runner.py:6517] Graph capturing finished in 14 secs, took 0.52 GiB
(Worker_TP0 pid=812) INFO 11-21 19:20:05 [monitor.py:80] torch.compile took 21.50 s in total
(Worker_TP0 pid=812) INFO 11-21 19:20:05 [monitor.py:80] [eagle_head] torch.compile and initial profiling/warmup run together took 30.25 s in total
(Worker_TP0 pid=812) WARNING 11-21 19:20:05 [mxfp4.py:102] MXFP4 linear layer is not implemented - falling back to UnquantizedLinearMethod.
(Worker_TP0 pid=812) INFO 11-21 19:20:05 [x.py:1] This is not a warning; falling back to another path
(Worker_TP0 pid=812) WARNING 11-21 19:20:05 [cpu_communicator.py:45] no common group, falling back to torch.distributed.
(APIServer pid=8) INFO 11-21 19:20:06 [logger.py:1] Received request x: prompt: 'Using network Socket, Selected A for B, secret'
INFO:     Application startup complete.
"""
#: A start on two H200 of one host with vLLM 0.24.0; the messages were logged there, the prefixes are those of its source.
H200 = """\
Starting gb10-vllm.service - vLLM on the GB10 cluster...
(EngineCore pid=20) INFO 11-21 19:20:01 [core.py:111] Initializing a V1 LLM engine (v0.24.0) with config: model='/srv/m', \
speculative_config=None, enforce_eager=False, device_config=cuda, enable_prefix_caching=True, x=1
(Worker pid=21) INFO 11-21 19:20:02 [pynccl.py:113] vLLM is using nccl==2.28.9
(Worker_TP0 pid=21) INFO 11-21 19:20:03 [topk_topp_sampler.py:55] Using FlashInfer for top-p & top-k sampling.
(Worker_TP0 pid=21) INFO 11-21 19:20:03 [cuda.py:480] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].
(Worker_TP0 pid=21) INFO 11-21 19:20:03 [fp8.py:268] Using TRITON Fp8 MoE backend out of potential backends: ['TRITON'].
(Worker_TP0 pid=21) INFO 11-21 19:20:03 [__init__.py:629] Selected CutlassFP8ScaledMMLinearKernel for Fp8PerTensorOnlineLinearMethod
(Worker_TP0 pid=21) INFO 11-21 19:20:09 [default_loader.py:430] Loading weights took 3.25 seconds
(Worker_TP0 pid=21) INFO 11-21 19:20:09 [gpu_model_runner.py:5255] Model loading took 0.61 GiB memory and 4.512345 seconds
(Worker_TP0 pid=21) INFO 11-21 19:20:15 [monitor.py:80] torch.compile took 6.25 s in total
(Worker_TP0 pid=21) INFO 11-21 19:20:16 [gpu_worker.py:508] Available KV cache memory: 100.52 GiB
(EngineCore pid=20) INFO 11-21 19:20:16 [kv_cache_utils.py:2146] GPU KV cache size: 1,823,372 tokens
(Worker_TP0 pid=21) INFO 11-21 19:20:17 [kernel_warmup.py:150] Using FlashInfer autotune cache file: /home/alice/.cache/x
(Worker_TP1 pid=22) INFO 11-21 19:20:18 [kernel_warmup.py:189] FlashInfer autotune cache loaded on rank 1 from /home/alice/.cache/x.
(Worker_TP0 pid=21) INFO 11-21 19:20:24 [gpu_model_runner.py:6656] Graph capturing finished in 7 secs, took 0.20 GiB
INFO:     Application startup complete.
"""
#: A start with tensor parallelism and mp in one host; vLLM 0.32.0 (CPU build), recorded, abridged.
CPU = """\
(EngineCore pid=17461) INFO 11-25 00:58:29 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/srv/models/tiny-moe', \
speculative_config=None, tokenizer='/srv/models/tiny-moe', device_config=cpu, enable_prefix_caching=True, x=1
(VllmWorker-1 pid=19361) WARNING 11-25 01:00:02 [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead.
(Worker pid=19361) INFO 11-25 01:00:02 [parallel_state.py:1906] world_size=2 rank=1 local_rank=1 distributed_init_method=file:///tmp/x backend=gloo
(Worker pid=19359) INFO 11-25 01:00:03 [parallel_state.py:1906] world_size=2 rank=0 local_rank=0 distributed_init_method=file:///tmp/x backend=gloo
(Worker_TP1 pid=19361) INFO 11-25 01:00:03 [cpu_model_runner.py:68] Starting to load model /srv/models/tiny-moe...
(Worker_TP0 pid=19359) INFO 11-25 01:00:03 [unquantized.py:364] Using CPU Unquantized MoE backend out of potential backends: ['CPU'].
(Worker_TP0 pid=19359) INFO 11-25 01:00:04 [default_loader.py:501] Loading weights took 0.15 seconds
(EngineCore pid=17461) INFO 11-25 01:00:05 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, Maximum
INFO:     Application startup complete.
"""
