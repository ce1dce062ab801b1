"""Evidence in the log of a start: recorded logs, messages of vLLM's releases, and each refuted decision as a finding."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from run_module import program
from verified_nodes import Facts, pair

from ansible_collections.gb10.cluster.plugins.module_utils.common.paths import VLLM_UNIT
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.verify import evidence, io_facts, report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

LOGS = ROOT / "tests/unit/data/logs"
#: A start on a GPU in the words of vLLM 0.33, from two ranks.
CUDA = """\
Starting gb10-vllm.service - vLLM on the GB10 cluster...
(EngineCore pid=9) INFO 11-21 19:20:01 [core.py:133] Initializing a V1 LLM engine (v0.33.0) with config: model='/srv/m', \
speculative_config=SpeculativeConfig(method='mtp'), enforce_eager=False, device_config=cuda, enable_prefix_caching=True, x=1
\x1b[36m(RayWorkerProc pid=7, ip=10.110.0.2)\x1b[0m INFO 11-21 19:20:02 [cuda.py:448] Using AttentionBackendEnum.TRITON_ATTN backend.
(Worker_TP0 pid=9) INFO 11-21 19:20:02 [cuda.py:509] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].
(Worker_TP0 pid=9) INFO 11-21 19:20:02 [nvfp4.py:242] Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN', 'EMULATION'].
(Worker_TP0 pid=9) INFO 11-21 19:20:02 [unquantized.py:254] Using FlashInfer CUTLASS Unquantized MoE backend out of potential backends: [...]
(Worker_TP0 pid=9) INFO 11-21 19:20:02 [__init__.py:869] Selected CutlassFP8ScaledMMLinearKernel for Fp8LinearMethod
(Worker_TP0 pid=9) WARNING 11-21 19:20:02 [marlin.py:35] Your GPU does not have native support for FP4 computation but FP4 quantization is used
(Worker_TP0 pid=9) WARNING 11-21 19:20:03 [fused_moe.py:1166] Using default MoE config. Performance might be sub-optimal! No file
(Worker_TP0 pid=9) INFO 11-21 19:20:03 [w8a8_utils.py:44] cutlass_fp8_supported() is False on 12.1 (gb10.cluster)
(Worker_TP0 pid=9) INFO 11-21 19:20:03 [cutlass.py:1] CutlassFP8ScaledMMLinearKernel is off on 12.1 (gb10.cluster)
spark1:812:900 [0] NCCL INFO Using network IB
spark1:812:900 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
(EngineCore pid=9) INFO 11-21 19:20:04 [kv_cache_utils.py:1148] GPU KV cache size: 1,823,372 tokens, Maximum concurrency for 4,096 tokens: 445x
(Worker_TP0 pid=9) INFO 11-21 19:20:05 [gpu_model_runner.py:6517] Graph capturing finished in 14 secs, took 0.52 GiB
(Worker_TP0 pid=9) WARNING 11-21 19:20:05 [mxfp4.py:102] MXFP4 linear layer is not implemented - falling back to UnquantizedLinearMethod.
(Worker_TP0 pid=9) INFO 11-21 19:20:05 [x.py:1] This is not a warning; falling back to another path
(Worker_TP0 pid=9) WARNING 11-21 19:20:05 [cpu_communicator.py:45] no common group, falling back to torch.distributed.
(APIServer pid=8) INFO 11-21 19:20:06 [logger.py:1] Received request x: prompt: 'Using network Socket, Selected A for B, secret'
INFO:     Application startup complete.
"""


def test_a_recorded_start_on_cpus_has_no_finding() -> None:
    lines = (LOGS / "ray_tp2_success.log").read_text(encoding="utf-8").splitlines()
    read = evidence.read(lines)
    assert read == {"release": ["0.32.0"], "kv_cache": ["524,288 tokens"]}
    nodes = pair("lab")
    nodes[0]["facts"]["evidence"] |= {"found": read}
    assert ids(nodes) == set()


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: str(path.stem))
def test_recorded_logs_have_no_fallback(path: Path) -> None:
    read = evidence.read(path.read_text(encoding="utf-8").splitlines())
    assert read.keys() <= {"release", "kv_cache", "device"}


def test_messages_on_a_gpu() -> None:
    assert evidence.read(CUDA.splitlines()) == {
        "release": ["0.33.0"],
        "device": ["cuda"],
        "speculative": ["SpeculativeConfig"],
        "prefix_caching": ["True"],
        "attention": ["TRITON_ATTN", "FLASH_ATTN"],
        "moe_backend": ["MARLIN NvFp4", "FlashInfer CUTLASS Unquantized"],
        "kernel": ["CutlassFP8ScaledMMLinearKernel"],
        "weight_only": ["FP4"],
        "table": ["MoE config"],
        "patch": ["cutlass_fp8_supported() is False on 12.1", "CutlassFP8ScaledMMLinearKernel is off on 12.1"],
        "network": ["IB", "Socket"],
        "kv_cache": ["1,823,372 tokens"],
        "graphs": ["Graph capturing finished"],
        "fallback": ["MXFP4 linear layer is not implemented - falling back to UnquantizedLinearMethod."],
    }


def test_many_values_are_cut() -> None:
    read = evidence.read(f"INFO 11-21 19:20:02 [a.py:1] Selected K{number} for Q" for number in range(100))
    assert read == {"kernel": [f"K{number}" for number in range(16)]}


SERVE = ["/opt/gb10/bin/vllm", "serve", "/srv/m"]


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ([], {}, {"attention": "", "moe_backend": "", "graphs": True, "rdma": False, "disabled": []}),
        (["--attention-backend=TRITON_ATTN", "--moe-backend", "marlin"], {}, {"attention": "TRITON_ATTN", "moe_backend": "marlin"}),
        (["--attention-config.backend", "FLASHINFER"], {}, {"attention": "FLASHINFER"}),
        (["--moe-backend=auto", "--enforce-eager"], {}, {"moe_backend": "", "graphs": False}),
        (["--compilation-config", '{"cudagraph_mode": "NONE"}'], {}, {"graphs": False}),
        (["-O0"], {}, {"graphs": False}),
        (["--speculative-config", '{"method": "mtp", "model": "secret"}'], {}, {"speculative": True}),
        (["--enable-prefix-caching"], {}, {"prefix_caching": True}),
        (["--no-enable-prefix-caching"], {}, {"prefix_caching": False}),
        ([], {"NCCL_IB_HCA": "rocep1s0f1"}, {"rdma": True}),
        ([], {"NCCL_IB_HCA": "rocep1s0f1", "NCCL_IB_DISABLE": "1"}, {"rdma": False}),
        ([], {"VLLM_DISABLED_KERNELS": "A,B,not a word"}, {"disabled": ["A", "B"]}),
        (["--attention-backend=my secret"], {}, {"attention": ""}),
    ],
)
def test_decisions_of_a_command_line(arguments: list[str], variables: dict[str, str], expected: dict[str, Any]) -> None:
    decided = evidence.planned(["/usr/bin/python3", "-B", "rank.py", "--", *SERVE, *arguments, ""], variables, "0.32.0")
    assert {name: decided[name] for name in expected} == expected
    assert "secret" not in json.dumps(decided)


@pytest.mark.parametrize(("argv", "release"), [(["vllm", "bench"], "0.32.0"), (SERVE, ""), (SERVE, "9.0.0")])
def test_unknown_command_lines_have_no_decisions(argv: list[str], release: str) -> None:
    assert evidence.planned(argv, {}, release) == {}


def ids(nodes: list[Facts]) -> set[str]:
    return {finding.check.id for finding in report.findings(report.cluster(nodes), GROUPS, {})}


def seen(**found: list[str]) -> Callable[[Facts], None]:
    """Return a change of the found evidence."""

    def change(facts: Facts) -> None:
        facts["evidence"]["found"] |= found

    return change


def patched(path: str, **found: list[str]) -> Callable[[Facts], None]:
    """Return a change: a patched file, no planned backend, and found evidence."""

    def change(facts: Facts) -> None:
        facts["files"]["patched"] = {f"vllm/{path}": "b" * 64}
        facts["evidence"]["planned"] |= {"moe_backend": "", "disabled": []}
        facts["evidence"]["found"] |= {"weight_only": [], **found}

    return change


def incomplete(facts: Facts) -> None:
    facts["evidence"] |= {"complete": False}


ORACLE = "model_executor/layers/fused_moe/oracle/fp8.py"
CUTLASS = "model_executor/kernels/linear/scaled_mm/cutlass.py"
FAULTS: dict[str, tuple[str, Callable[[Facts], None]]] = {
    "rotated": ("log-incomplete", incomplete),
    "another attention backend": ("log-attention-backend", seen(attention=["FLASHINFER"])),
    "no attention backend": ("log-attention-backend", seen(attention=[])),
    "another MoE backend": ("log-moe-backend", seen(moe_backend=["FLASHINFER_CUTLASS NvFp4"])),
    "a disabled kernel": ("log-kernel-disabled", seen(kernel=["CutlassFP8ScaledMMLinearKernel"])),
    "a patched kernel": ("log-kernel-disabled", patched(CUTLASS, kernel=["CutlassFP8ScaledMMLinearKernel"])),
    "a patched choice": ("log-kernel-disabled", patched(ORACLE, moe_backend=["FLASHINFER_CUTLASS Fp8"])),
    "default tables": ("log-default-tables", seen(table=["MoE config"])),
    "a fallback": ("log-fallback", seen(fallback=["falling back to PyTorch-native"])),
    "weights only": ("log-fallback", patched("envs.py", weight_only=["FP4"], moe_backend=["MARLIN NvFp4"])),
    "sockets": ("log-nccl-socket", seen(network=["Socket"])),
    "no graphs": ("log-graphs", seen(graphs=[])),
    "skipped graphs": ("log-graphs", seen(graphs=["Skipping CUDA graph capture"])),
    "no KV cache": ("log-kv-cache", seen(kv_cache=[])),
    "no prefix caching": ("log-prefix-caching", seen(prefix_caching=["False"])),
    "no draft model": ("log-speculative", seen(speculative=["None"])),
}


@pytest.mark.parametrize(("expected", "change"), FAULTS.values(), ids=FAULTS)
def test_a_refuted_decision_is_one_finding(expected: str, change: Callable[[Facts], None]) -> None:
    nodes = pair()
    change(nodes[0]["facts"])
    # A file that is patched on one node only is another finding.
    assert ids(nodes) - {"patches-differ"} == {expected}


def test_each_check_has_a_fault() -> None:
    assert {check.id for check in evidence.CHECKS} == {expected for expected, _change in FAULTS.values()}


@pytest.mark.parametrize("missing", ["attention", "graphs", "kv_cache"])
@pytest.mark.parametrize("reason", ["rotated", "loading", "release"])
def test_a_missing_message_is_unknown_without_a_complete_log(missing: str, reason: str) -> None:
    nodes = pair()
    facts = nodes[0]["facts"]
    facts["evidence"]["found"][missing] = []
    if reason == "rotated":
        facts["evidence"]["complete"] = False
    elif reason == "loading":
        facts["api"] |= {"healthy": False}
    else:
        facts["evidence"]["found"]["release"] = ["0.34.0"]
    unknown = {"rotated": {"log-incomplete"}, "loading": {"api-not-ready"}, "release": set()}
    assert ids(nodes) == unknown[reason]


@pytest.mark.parametrize("change", [change for _id, change in FAULTS.values() if change is not incomplete])
def test_a_cpu_build_has_no_finding(change: Callable[[Facts], None]) -> None:
    nodes = pair("lab")
    for node in nodes:
        node["facts"]["evidence"] = json.loads(json.dumps(nodes[0]["facts"]["evidence"]))
        change(node["facts"])
    assert ids(nodes) == set()


@pytest.mark.parametrize(
    ("wanted", "used", "same"),
    [
        ("triton", "TRITON Fp8", True),
        ("deep_gemm", "BATCHED_DEEPGEMM Fp8", True),
        ("cutlass", "VLLM_CUTLASS Fp8", True),
        ("cutlass", "FLASHINFER_CUTLASS Fp8", False),
        ("flashinfer_cutlass", "FlashInfer CUTLASS Unquantized", True),
        ("flashinfer_trtllm", "FLASHINFER_TRTLLM_MXFP4_BF16 Mxfp4", True),
        ("marlin", "TRITON Mxfp4", False),
    ],
)
def test_names_of_moe_backends(wanted: str, used: str, same: bool) -> None:
    assert evidence._same_backend(wanted, used) is same


def entries(text: str) -> str:
    return "".join(json.dumps({"__MONOTONIC_TIMESTAMP": "1", "MESSAGE": line}) + "\n" for line in text.splitlines())


def runner(path: str) -> Callable[[list[str]], tuple[int, str, str]]:
    def run(argv: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
        return done.returncode, done.stdout, done.stderr

    return run


def journal(folder: Path, text: str) -> Callable[[list[str]], tuple[int, str, str]]:
    """Return a runner with a journal that has these messages for the start "abc"."""
    (folder / "entries").write_text(entries(text), encoding="utf-8")
    path = program(folder, "journalctl", f'case "$*" in *_SYSTEMD_INVOCATION_ID=abc*) cat {folder}/entries;; esac')
    return runner(f"{path}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("text", "complete"),
    [(CUDA, True), (CUDA.partition("\n")[2], False), (CUDA.replace("Application startup complete", "x"), True), ("", False)],
    ids=["whole", "rotated", "loading", "empty"],
)
def test_the_journal_of_a_start(tmp_path: Path, text: str, complete: bool) -> None:
    service = {"unit": VLLM_UNIT, "pid": os.getpid(), "invocation": "abc"}
    read = io_facts._evidence(journal(tmp_path, text), [service])
    assert read is not None
    assert (read["complete"], read["found"]) == (complete, evidence.read(text.splitlines()))
    assert "secret" not in json.dumps(read)


@pytest.mark.parametrize("services", [[], [{"unit": VLLM_UNIT, "pid": None, "invocation": ""}]])
def test_a_stopped_service_has_no_evidence(services: list[Facts]) -> None:
    assert io_facts._evidence(lambda _argv: (1, "", "must not run"), services) is None


def test_a_long_journal_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = journal(tmp_path, "".join(f"line {number}\n" for number in range(1000)))
    read, whole = io_client.journal_begin(run, io_client.of_start("abc"), 1000)
    assert ([text for _when, text in read][:2], whole) == (["line 0", "line 1"], False)
    assert 2 < len(read) < 30
    service = {"unit": VLLM_UNIT, "pid": os.getpid(), "invocation": "abc"}
    monkeypatch.setattr(io_facts, "_MOST_LOG", len(entries(CUDA)) + 10)
    found = io_facts._evidence(journal(tmp_path, CUDA + "line\n" * 1000), [service])
    assert found is not None
    assert found["complete"], "the messages after the start are not needed"


def test_a_failing_journal_is_an_error(tmp_path: Path) -> None:
    path = program(tmp_path, "journalctl", "echo 'no permission' >&2; exit 1")
    with pytest.raises(ValueError, match="no permission"):
        io_client.journal_begin(runner(f"{path}:{os.environ['PATH']}"), io_client.of_start("abc"), 1000)
