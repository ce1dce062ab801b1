"""vLLM's log: recorded starts, good and bad, and the messages derived from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.health.log import progress
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms import diagnose

LOGS = Path(__file__).parents[1] / "data" / "logs"


def recorded(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines()


def steps(lines: list[str]) -> list[str]:
    """Return the steps that a client sees that polls the growing log."""
    seen = [progress(lines[:count]) for count in range(len(lines) + 1)]
    return [step for before, step in zip(["", *seen], seen, strict=False) if step != before]


def test_progress_of_a_start() -> None:
    assert steps(recorded("ray_tp2_success")) == [
        "vLLM 0.32.0 starts",
        "architecture LlamaForCausalLM",
        "engine starts",
        "Ray places the ranks",
        "weights: 0% Completed | 0/1",
        "weights: 100% Completed | 1/1",
        "weights read in 0.05 seconds",
        "KV cache: 524,288 tokens",
        "engine initialized in 4.83 s",
        "API server starts",
        "API server is up",
    ]


def test_a_success_has_no_cause() -> None:
    assert diagnose(recorded("ray_tp2_success")).error == ""


@pytest.mark.parametrize(
    ("name", "cause", "step"),
    [
        (
            "fail_bad_dtype",
            "vllm serve: error: argument --dtype: invalid choice: 'float7' "
            "(choose from 'auto', 'bfloat16', 'float', 'float16', 'float32', 'half')",
            "",
        ),
        (
            "fail_max_model_len",
            "ModelConfig: User-specified max_model_len (100000000) is greater than the derived max_model_len "
            "(max_position_embeddings=2048.0 or model_max_length=None in model's config.json). To allow "
            "overriding this maximum, ",
            "architecture LlamaForCausalLM",
        ),
        ("fail_port_in_use", "OSError: [Errno 98] Address already in use", "vLLM 0.32.0 starts"),
        (
            "fail_worker_lacks_weights",
            "RuntimeError: Cannot find any model weights with `/srv/models/tiny` (on 10.110.0.2)",
            "weights read in 0.01 seconds",
        ),
        (
            "ray_tp2_worker_rank_killed",
            (
                "the rank with pid 563 on 10.110.0.2 died: Worker unexpectedly exits with a connection error code "
                "2. End of file."
            ),
            "API server is up",
        ),
        (
            "fail_exec_format",
            "gb10-vllm.service: Failed to execute /usr/local/bin/gb10-wait-for-ray: Exec format error",
            "",
        ),
    ],
)
def test_cause_of_a_recorded_failure(name: str, cause: str, step: str) -> None:
    lines = recorded(name)
    assert diagnose(lines).error.startswith(cause)
    assert progress(lines) == step
    # Pydantic prints the whole input after its reason.
    assert "input_value" not in diagnose(lines).error


def test_a_rank_that_died_is_told_also_without_rays_word_on_it() -> None:
    lines = [line for line in recorded("ray_tp2_worker_rank_killed") if "(raylet)" not in line]
    assert diagnose(lines).error == "RayWorkerProc rank=[1] died unexpectedly, shutting down executor."


ERROR = "(EngineCore pid=7) ERROR 11-21 00:12:38 [core.py:1512] "
WARNING = ERROR.replace("ERROR", "WARNING")
DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
    "root cause."
)


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        pytest.param([], "", id="no log"),
        pytest.param(
            [DEAD, "ValueError: the real one", "KeyError: 'later'"],
            "ValueError: the real one",
            id="first that is no echo",
        ),
        pytest.param([DEAD, ERROR + "SystemExit: 1"], DEAD, id="an echo is better than nothing"),
        pytest.param([ERROR + "RuntimeError: cancelled", ERROR + "ValueError: bad"], "ValueError: bad", id="cancelled"),
        pytest.param(
            [WARNING + "ImportError: no flash attention", ERROR + "torch.OutOfMemoryError: CUDA out of memory."],
            "torch.OutOfMemoryError: CUDA out of memory.",
            id="a warning is no cause",
        ),
        pytest.param(
            [
                "\x1b[36m(RayWorkerProc pid=5, ip=10.110.0.2)\x1b[0m "
                + ERROR
                + "torch.AcceleratorError: CUDA error: no kernel image"
            ],
            "torch.AcceleratorError: CUDA error: no kernel image (on 10.110.0.2)",
            id="the node is in the prefix",
        ),
        pytest.param(
            ["ValueError: The following failed:", "  tokenizer.json"],
            "ValueError: The following failed: tokenizer.json",
            id="colon",
        ),
        pytest.param(
            [
                "pydantic_core._pydantic_core.ValidationError: 2 validation errors for CacheConfig",
                "block_size",
                "  Input should be 16 or 32 [type=literal_error, input_value=17, input_type=int]",
                "    For further information visit https://errors.pydantic.dev/2.14/v/literal_error",
            ],
            "CacheConfig: block_size: Input should be 16 or 32",
            id="field of a validation",
        ),
        pytest.param(
            [
                "Ray is not complete after 600 s: spark2 (10.110.0.2) has not joined",
                "gb10-vllm.service: Failed with result 'exit-code'.",
            ],
            "Ray is not complete after 600 s: spark2 (10.110.0.2) has not joined",
            id="Ray is not complete",
        ),
        pytest.param(
            [DEAD, "gb10-vllm.service: A process of this unit has been killed by the OOM killer."],
            "gb10-vllm.service: A process of this unit has been killed by the OOM killer.",
            id="OOM killer",
        ),
        pytest.param(
            ["gb10-vllm.service: start-pre operation timed out. Terminating."],
            "gb10-vllm.service: start-pre operation timed out. Terminating.",
            id="timeout",
        ),
        pytest.param(
            [
                "gb10-vllm.service: Main process exited, code=killed, status=11/SEGV",
                "gb10-vllm.service: Failed with result 'signal'.",
            ],
            "gb10-vllm.service: Main process exited, code=killed, status=11/SEGV",
            id="killed without a word",
        ),
        pytest.param(
            ["gb10-vllm.service: Failed to kill control group /x, ignoring: No such process", "ValueError: bad"],
            "ValueError: bad",
            id="what systemd ignores",
        ),
    ],
)
def test_root_cause(lines: list[str], cause: str) -> None:
    assert diagnose(lines).error == cause


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([], "", id="no log"),
        pytest.param(["Ray counts all 2 nodes"], "Ray counts all 2 nodes", id="Ray"),
        pytest.param(
            [WARNING + "Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup."],
            "",
            id="a warning is no step",
        ),
        pytest.param(
            [
                "INFO:     Application startup complete.",
                "(RayWorkerProc pid=5, ip=10.110.0.2) Starting to load model /srv/models/tiny...",
            ],
            "API server is up",
            id="a late line of another node",
        ),
        pytest.param(
            ["(Worker pid=5) INFO 11-21 00:12:38 [g.py:1] Model loading took 4.2 GiB memory and 13.5 seconds"],
            "model loaded: 4.2 GiB memory and 13.5 seconds",
            id="GPU build loads",
        ),
        pytest.param(
            ["(Worker pid=5) Capturing CUDA graphs (decode, FULL):  50%|#####     | 1/2"],
            "CUDA graphs: 50% 1/2",
            id="GPU build captures",
        ),
        pytest.param(
            [
                (
                    "Capturing CUDA graphs (FULL):   0%|      | 0/35 [00:00<?]\rCapturing CUDA graphs (FULL):   "
                    "9%|5     | 3/35 [00:00<00:02]\r"
                )
            ],
            "CUDA graphs: 9% 3/35",
            id="a bar drawn over itself",
        ),
        pytest.param(
            ["Capturing prefill CUDA graphs (PIECEWISE): 100%|##########| 35/35 [00:04<00:00]"],
            "CUDA graphs: 100% 35/35",
            id="speculator",
        ),
        pytest.param(
            ["(Worker pid=5) INFO 11-21 00:12:38 [g.py:1] Graph capturing finished in 14 secs, took 0.52 GiB"],
            "CUDA graphs captured in 14 secs, 0.52 GiB",
            id="GPU build has captured",
        ),
        pytest.param(
            ["Loading safetensors checkpoint shards (eager):  20% Completed | 3/15 [00:05"],
            "weights: 20% Completed | 3/15",
            id="eager",
        ),
        pytest.param(
            ["Multi-thread loading shards:  40% Completed | 6/15 [00:05<00:07]"],
            "weights: 40% Completed | 6/15",
            id="threads",
        ),
        pytest.param(
            ["Loading safetensors using InstantTensor loader:   6% Completed | 1.21G/15.2G [00:01<00:15, 1.1GB/s]"],
            "weights: 6% Completed | 1.21G/15.2G",
            id="instanttensor",
        ),
        pytest.param(
            ["Loading safetensors using Fastsafetensor loader:   5% Completed | 2/42 [00:06<02:14,  3.36s/it]"],
            "weights: 5% Completed | 2/42",
            id="fastsafetensors",
        ),
        pytest.param(
            ["Loading pt checkpoint shards:  50% Completed | 1/2 [00:05<00:05]"],
            "weights: 50% Completed | 1/2",
            id="pt",
        ),
    ],
)
def test_progress(lines: list[str], expected: str) -> None:
    assert progress(lines) == expected
