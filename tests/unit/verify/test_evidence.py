"""Evidence in the log of a start: decisions of command lines, each refuted decision as a finding, and the journal."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_module import program
from start_logs import CUDA
from verified_nodes import Facts, findings, pair, plant

from ansible_collections.gb10.cluster.plugins.module_utils.common.paths import VLLM_UNIT
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_choices, io_client
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.verify import evidence, io_facts

SERVE = ["/opt/gb10/bin/vllm", "serve", "/srv/m"]


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        (
            [],
            {},
            {
                "attention": "",
                "moe_backend": "",
                "sampler": "",
                "autotune": "",
                "graphs": True,
                "rdma": False,
                "disabled": [],
            },
        ),
        ([], {"VLLM_USE_FLASHINFER_SAMPLER": "0"}, {"sampler": "native"}),
        ([], {"VLLM_USE_FLASHINFER_SAMPLER": "1"}, {"sampler": "FlashInfer"}),
        ([], {"VLLM_USE_FLASHINFER_SAMPLER": "secret"}, {"sampler": ""}),
        (["--no-enable-flashinfer-autotune"], {}, {"autotune": "off"}),
        (["--enable-flashinfer-autotune"], {}, {"autotune": "on"}),
        (["--kernel-config", '{"enable_flashinfer_autotune": false}'], {}, {"autotune": "off"}),
        (["--kernel-config.enable_flashinfer_autotune=false"], {}, {"autotune": "off"}),
        (
            ["--attention-backend=TRITON_ATTN", "--moe-backend", "marlin"],
            {},
            {"attention": "TRITON_ATTN", "moe_backend": "marlin"},
        ),
        (["--attention-config.backend", "FLASHINFER"], {}, {"attention": "FLASHINFER"}),
        (["--moe-backend=auto", "--enforce-eager"], {}, {"moe_backend": "", "graphs": False}),
        (["--compilation-config", '{"cudagraph_mode": "NONE"}'], {}, {"graphs": False}),
        (["-O0"], {}, {"graphs": False}),
        (["--speculative-config", '{"method": "mtp", "model": "secret"}'], {}, {"speculative": True}),
        (["--spec-method", "mtp"], {}, {"speculative": True}),
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
    return set(findings(nodes))


def seen(*ranks: int, **found: list[str]) -> Callable[[Facts], None]:
    """Return a change of these messages in the processes that log them, or in a rank; 0 is the engine.

    Default: in all.
    """

    def change(facts: Facts) -> None:
        processes = facts["evidence"]["processes"]
        for name, values in found.items():
            for number, process in enumerate(processes):
                known = name in process["found"] or (
                    number == 1 and not any(name in each["found"] for each in processes)
                )
                if number in ranks or (not ranks and known):
                    process["found"][name] = values

    return change


def patched(path: str, **found: list[str]) -> Callable[[Facts], None]:
    """Return a change: a patched file, no planned backend, and found evidence."""

    def change(facts: Facts) -> None:
        facts["files"]["patched"] = {f"vllm/{path}": "b" * 64}
        facts["evidence"]["planned"] |= {"moe_backend": "", "disabled": []}
        seen(**{"weight_only": [], **found})(facts)
        recorded(facts)

    return change


def recorded(facts: Facts) -> None:
    """Make the running start the recorded one."""
    facts["evidence"]["recorded"] = copy.deepcopy(facts["evidence"]["processes"])


def unplanned(change: Callable[[Facts], None]) -> Callable[[Facts], None]:
    """Return a change without planned backends and without a record."""

    def both(facts: Facts) -> None:
        facts["evidence"]["planned"] |= dict.fromkeys(("attention", "moe_backend", "sampler", "autotune"), "")
        seen(weight_only=[])(facts)
        change(facts)
        recorded(facts)

    return both


def incomplete(facts: Facts) -> None:
    facts["evidence"] |= {"complete": False}


ORACLE = "model_executor/layers/fused_moe/oracle/fp8.py"
CUTLASS = "model_executor/kernels/linear/scaled_mm/cutlass.py"
FAULTS: dict[str, tuple[str, Callable[[Facts], None]]] = {
    "rotated": ("log-incomplete", incomplete),
    "two attention backends": ("log-ranks-differ", unplanned(seen(2, attention=["FLASHINFER"]))),
    "two kernels": ("log-ranks-differ", unplanned(seen(1, kernel=["ACutlassKernel", "AMarlinKernel"]))),
    "two samplers": ("log-ranks-differ", unplanned(seen(2, sampler=["FlashInfer"]))),
    "two networks": ("log-ranks-differ", unplanned(seen(2, network=["Other"]))),
    "other kernels than before": ("log-choice-changed", seen(kernel=["ATritonKernel"])),
    "another attention backend": ("log-attention-backend", seen(attention=["FLASHINFER"])),
    "FlashInfer's sampler": ("log-sampler", seen(sampler=["FlashInfer"])),
    "autotuning": ("log-autotune", seen(autotune=["on"])),
    "another MoE backend": ("log-moe-backend", seen(moe_backend=["FLASHINFER_CUTLASS NvFp4"])),
    "a disabled kernel": ("log-kernel-disabled", seen(kernel=["CutlassFP8ScaledMMLinearKernel"])),
    "a patched kernel": ("log-kernel-disabled", patched(CUTLASS, kernel=["CutlassFP8ScaledMMLinearKernel"])),
    "a patched choice": ("log-kernel-disabled", patched(ORACLE, moe_backend=["FLASHINFER_CUTLASS Fp8"])),
    "default tables": ("log-default-tables", seen(table=["MoE config"])),
    "a fallback": ("log-fallback", seen(fallback=["falling back to PyTorch-native"])),
    "weights only": ("log-fallback", patched("envs.py", weight_only=["FP4"], moe_backend=["MARLIN NvFp4"])),
    "sockets": ("log-nccl-socket", seen(network=["Socket"])),
    "no graphs": ("log-graphs", seen(graphs=[])),
    "no graphs in a fix of the last release": ("log-graphs", seen(graphs=[], release=["0.33.1"])),
    "skipped graphs": ("log-graphs", seen(graphs=["Skipping CUDA graph capture"])),
    "no KV cache": ("log-kv-cache", seen(kv_cache=[])),
    "no prefix caching": ("log-prefix-caching", seen(prefix_caching=["False"])),
    "no draft model": ("log-speculative", seen(speculative=["None"])),
}


@pytest.mark.parametrize(("expected", "change"), FAULTS.values(), ids=FAULTS)
def test_a_refuted_decision_is_one_finding(expected: str, change: Callable[[Facts], None]) -> None:
    nodes = pair()
    change(nodes[0]["facts"])
    # A file that is patched on one node only is another finding, and so is each choice that differs from the record.
    assert ids(nodes) - ({"patches-differ", "log-choice-changed"} - {expected}) == {expected}


@pytest.mark.parametrize(
    ("change", "check", "text"),
    [
        (
            unplanned(seen(2, attention=["FLASHINFER"])),
            "log-ranks-differ",
            ": attention: TRITON_ATTN in Worker_TP0 on spark1; FLASHINFER in Worker_TP1 on spark2",
        ),
        (
            seen(2, attention=["FLASHINFER"]),
            "log-attention-backend",
            "spark2: Worker_TP1 logs FLASHINFER instead of TRITON_ATTN",
        ),
    ],
    ids=["between ranks", "of the plan"],
)
def test_ranks_are_named_with_their_nodes(change: Callable[[Facts], None], check: str, text: str) -> None:
    nodes = pair()
    change(nodes[0]["facts"])
    assert findings(nodes)[check] == [text]


def test_with_mp_each_node_has_the_log_of_its_ranks() -> None:
    nodes = pair()
    unplanned(lambda _facts: None)(nodes[0]["facts"])
    nodes[1]["facts"]["evidence"] = copy.deepcopy(nodes[0]["facts"]["evidence"])
    for number, node in enumerate(nodes, 1):
        processes = node["facts"]["evidence"]["processes"]
        node["facts"]["evidence"]["processes"] = [processes[number] | {"address": ""}, *processes[: 2 - number]]
    assert ids(nodes) == set()
    nodes[1]["facts"]["evidence"]["processes"][0]["found"]["moe_backend"] = ["TRITON NvFp4"]
    assert "log-ranks-differ" in ids(nodes)


FIRST, SECOND = ("0/evidence/processes/1", "0/evidence/processes/2")
KERNEL = {f"{SECOND}/found/kernel": ["ACutlassKernel"]}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({f"{SECOND}/found/kernel": []}, id="a silent rank"),
        pytest.param({**KERNEL, f"{FIRST}/found/kernel": ["ATritonKernel", "ACutlassKernel"]}, id="a subset"),
        pytest.param({**KERNEL, f"{FIRST}/process": "Worker_PP0", f"{SECOND}/process": "Worker_PP1"}, id="stages"),
        pytest.param({**KERNEL, "1/product": "Jetson"}, id="other hardware"),
        pytest.param(
            {place: ["ATritonKernel"] for place in (f"{FIRST}/found/kernel", f"{SECOND}/found/kernel")}
            | {"0/evidence/recorded": []},
            id="no record",
        ),
    ],
)
def test_an_unknown_choice_is_no_difference(changes: Facts) -> None:
    nodes = pair()
    unplanned(lambda _facts: None)(nodes[0]["facts"])
    plant(nodes, changes)
    if "0/evidence/recorded" not in changes:
        recorded(nodes[0]["facts"])
    assert not {"log-ranks-differ", "log-choice-changed"} & ids(nodes)


#: Checks that do not depend on the command line.
ALWAYS = {"log-incomplete", "log-ranks-differ"}


def test_each_check_has_a_fault() -> None:
    assert {check.id for check in evidence.CHECKS} == {expected for expected, _change in FAULTS.values()}


@pytest.mark.parametrize("missing", ["attention", "moe_backend", "sampler", "autotune", "network"])
def test_a_rank_without_a_message_has_no_finding(missing: str) -> None:
    nodes = pair()
    seen(**{missing: []})(nodes[0]["facts"])
    assert ids(nodes) == set()


@pytest.mark.parametrize("missing", ["graphs", "kv_cache"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"0/evidence/complete": False}, {"log-incomplete"}),
        ({"0/api/healthy": False}, {"api-not-ready"}),
        ({"0/evidence/processes/0/found/release": ["0.34.0"]}, set()),
        ({"0/evidence/processes/0/found/release": ["0.17.2"]}, set()),
    ],
    ids=["rotated", "loading", "a newer release", "an older release"],
)
def test_a_missing_message_is_unknown_without_a_complete_log(missing: str, changes: Facts, expected: set[str]) -> None:
    nodes = plant(pair(), changes)
    seen(**{missing: []})(nodes[0]["facts"])
    assert ids(nodes) == expected


@pytest.mark.parametrize("change", [change for name, change in FAULTS.values() if name not in ALWAYS])
def test_a_cpu_build_has_no_finding(change: Callable[[Facts], None]) -> None:
    nodes = pair("lab")
    for node in nodes:
        node["facts"]["evidence"] = copy.deepcopy(nodes[0]["facts"]["evidence"])
        change(node["facts"])
        recorded(node["facts"])
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


def journal(folder: Path, text: str) -> Callable[[list[str]], tuple[int, str, str]]:
    """Return a runner with a journal that has these messages for the start "abc"."""
    (folder / "entries").write_text(entries(text), encoding="utf-8")
    path = program(folder, "journalctl", f'case "$*" in *_SYSTEMD_INVOCATION_ID=abc*) cat {folder}/entries;; esac')
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}

    def run(argv: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        (CUDA, True),
        (CUDA.partition("\n")[2], False),
        (CUDA.replace("Application startup complete", "x"), True),
        ("", False),
    ],
    ids=["whole", "rotated", "loading", "empty"],
)
def test_the_journal_of_a_start(tmp_path: Path, text: str, complete: bool) -> None:
    service = {"unit": VLLM_UNIT, "pid": os.getpid(), "invocation": "abc", "inputs": ""}
    read = io_facts._evidence(journal(tmp_path, text), [service])
    assert read is not None
    assert (read["complete"], read["processes"], read["recorded"]) == (complete, choices.read(text.splitlines()), [])
    assert "secret" not in json.dumps(read)


@pytest.mark.parametrize("services", [[], [{"unit": VLLM_UNIT, "pid": None, "invocation": ""}]])
def test_a_stopped_service_has_no_evidence(services: list[Facts]) -> None:
    assert io_facts._evidence(lambda _argv: (1, "", "must not run"), services) is None


def test_a_long_journal_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = journal(tmp_path, "".join(f"line {number}\n" for number in range(1000)))
    read, whole = io_client.journal_begin(run, io_client.of_start("abc"), 1000)
    assert ([text for _when, text in read][:2], whole, 2 < len(read) < 30) == (["line 0", "line 1"], False, True)
    monkeypatch.setattr(io_choices, "_MOST_LOG", len(entries(CUDA)) + 10)
    found = io_choices.read(journal(tmp_path, CUDA + "line\n" * 1000), {"invocation": "abc"})
    assert found["complete"], "the messages after the start are not needed"


def test_a_failing_journal_is_an_error() -> None:
    with pytest.raises(ValueError, match="no permission"):
        io_client.journal_begin(lambda _argv: (1, "", "no permission\n"), io_client.of_start("abc"), 1000)
