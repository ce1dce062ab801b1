"""Troubleshooting by symptom: recorded logs, each entry's own lines, states of a cluster, and the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.access.causes import CAUSES as ACCESS
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import LAB
from ansible_collections.gb10.cluster.plugins.module_utils.health import symptoms
from ansible_collections.gb10.cluster.plugins.module_utils.health.schema import Client, StatusNode
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_log import CAUSES, CONSEQUENCES
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES

LOGS = Path(__file__).parents[1] / "data" / "logs"
LOGGED = (*CAUSES, *CONSEQUENCES)
ERROR = "(EngineCore pid=7) ERROR 11-21 00:12:38 [core.py:1512] "
FAILED = "gb10-vllm.service: Main process exited, code=exited, status=1/FAILURE"
TRACEBACK = "Traceback (most recent call last):"


def recorded(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines()


def found(lines: list[str]) -> str:
    """Return the ID of a log's symptom, "unknown", or "" if the log has no error."""
    cause = symptoms.diagnose(lines)
    return cause.symptom.id if cause.symptom else "unknown" if cause.error else ""


#: Recorded log -> symptom.
RECORDED = {
    "fail_bad_dtype": "argument-value",
    "fail_exec_format": "program-format",
    "fail_max_model_len": "context-too-long",
    "fail_port_in_use": "port-in-use",
    "fail_worker_lacks_weights": "weights-missing",
    "ray_tp2_success": "",
    "ray_tp2_worker_rank_killed": "rank-died",
    "ring4_rank_killed": "peer-closed",
    "ring4_trees": "nccl-unreachable",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.glob("*.log")))
def test_recorded_logs(name: str) -> None:
    assert found(recorded(name)) == RECORDED[name]


def test_the_symptoms_of_recorded_logs_are_marked_as_seen() -> None:
    assert {symptom.id for symptom in LOGGED if symptom.tested == LAB} >= set(RECORDED.values()) - {""}


def test_a_known_error_has_its_cause_fix_and_page() -> None:
    text = symptoms.explain(recorded("fail_port_in_use"))
    assert text.startswith(
        "OSError: [Errno 98] Address already in use; cause: another process on the node listens on gb10_api_port"
    )
    assert "; fix: find it with ss -ltnp" in text
    assert text.endswith("; docs/troubleshooting.md#port-in-use")


def test_an_unknown_error_is_shown_as_unknown() -> None:
    log = [
        ERROR + TRACEBACK,
        ERROR + "ValueError: a new error",
        TRACEBACK,
        "RuntimeError: NCCL error: unhandled cuda error",
    ]
    assert symptoms.explain(log) == "ValueError: a new error (unknown cause; see docs/troubleshooting.md)"
    assert symptoms.explain(["INFO:     Application startup complete."]) == ""
    long = symptoms.explain(["ValueError: " + "x" * 3000])
    assert long.endswith("... (unknown cause; see docs/troubleshooting.md)") and len(long) < 600


@pytest.mark.parametrize(
    ("release", "doubt"),
    [
        ("0.26.1", "known of vLLM 0.27 to 0.31, and this is 0.26.1: another cause is possible"),
        ("0.27.0rc1", ""),
        ("0.31.2", ""),
        ("0.32.0+cu130", "known of vLLM 0.27 to 0.31, and this is 0.32.0+cu130: another cause is possible"),
    ],
)
def test_a_symptom_of_other_releases_is_doubted(release: str, doubt: str) -> None:
    symptom = next(each for each in CAUSES if each.id == "autotune-cache")
    engine = f"INFO 11-21 19:20:01 [core.py:133] Initializing a V1 LLM engine (v{release}) with config: model='/m'"
    text = symptoms.explain([engine, ERROR + TRACEBACK, ERROR + symptom.shows, FAILED])
    assert f" ({doubt}); cause: " in text if doubt else "known of" not in text
    assert "known of" not in symptoms.explain([ERROR + TRACEBACK, ERROR + symptom.shows, FAILED])


def test_a_bound_is_a_release() -> None:
    bounds = [bound for each in LOGGED for bound in each.releases if bound]
    assert bounds and all(re.fullmatch(r"0\.\d+", bound) for bound in bounds)


MEMORY = next(symptom for symptom in CAUSES if symptom.id == "memory-not-free")
CASES = [(symptom, line) for symptom in LOGGED for line in symptom.shows.splitlines()]


def test_each_line_finds_its_own_symptom() -> None:
    for symptom, line in CASES:
        assert next(other for other in LOGGED if re.search(other.pattern, line)) is symptom, line


@pytest.mark.parametrize("prefix", ["", ERROR])
def test_a_failed_process_whose_log_has_the_line(prefix: str) -> None:
    for symptom, line in CASES:
        if symptom in CAUSES or (symptom in CONSEQUENCES and not prefix):
            assert found([prefix + line, FAILED]) == symptom.id, line


def test_ray_and_pydantic_wrap_errors() -> None:
    wrapped = [
        "ray.exceptions.RaySystemError: System error: No module named 'triton'",
        "traceback: Traceback (most recent call last):",
    ]
    assert found(wrapped) == "module-missing"
    reason = (
        "  Value error, World size (2) is larger than the number of available GPUs (1) in this node. "
        "[type=value_error, input_value=A()]"
    )
    assert (
        found(["pydantic_core._pydantic_core.ValidationError: 1 validation error for ParallelConfig", reason])
        == "too-few-gpus"
    )


def test_the_assertion_of_a_kernel_tells_what_the_exception_does_not() -> None:
    assertion = "/tmp/x.py:30: Assertion `index out of bounds: 0 <= tl.broadcast_to(tmp10, [XBLOCK]) < 65536` failed."
    exception = f"{ERROR}torch.AcceleratorError: CUDA error: device-side assert triggered"
    assert found([assertion, exception]) == "positions-exceeded"
    assert found([exception]) == found([exception, assertion]) == "gpu-assert"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "ConnectionError: HTTPSConnectionPool(host='huggingface.co'): [Errno 99] Cannot assign requested address",
            "hub-unreachable",
        ),
        ("OSError: [Errno 99] Cannot assign requested address", "address-foreign"),
    ],
)
def test_an_address_is_foreign_only_to_a_listener(line: str, expected: str) -> None:
    assert found([f"{ERROR}{line}"]) == expected


def test_the_line_of_a_traceback_tells_mxfp4_from_another_index() -> None:
    source = [
        '  File "/v/vllm/model_executor/layers/fused_moe/layer.py", line 1114, in weight_loader',
        "    dim2 = loaded_weight.shape[2]",
    ]
    index = "IndexError: tuple index out of range"
    assert found([*(ERROR + line for line in (TRACEBACK, *source, index))]) == "mxfp4-checkpoint"
    assert found([ERROR + index]) == "unknown"


HARMLESS = (
    ERROR.replace("ERROR", "INFO"),
    ERROR.replace("ERROR", "WARNING"),
    "2026-11-21 00:34:35,375\tINFO worker.py:1691 -- ",
    "[W1121 00:33:57.106000 1008 torch/x.py:53] ",
    "W1121 00:33:57.106000 1008 torch/x.py:53] ",
    "INFO:     ",
    "spark1:1234:1240 [0] NCCL INFO ",
)


@pytest.mark.parametrize("prefix", HARMLESS)
def test_harmless_messages_are_no_symptoms(prefix: str) -> None:
    assert {line: found([prefix + line, FAILED]) for _symptom, line in CASES if found([prefix + line, FAILED])} == {}


DIST = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:94, unhandled system error (run with "
    "NCCL_DEBUG=INFO for details)"
)
PINNED = (
    "spark1:1234:1240 [0] ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
)
LAST = "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([DIST], "nccl-system-error", id="NCCL without a reason"),
        pytest.param([PINNED, ERROR + DIST], "rdma-pinned-memory", id="the reason comes first"),
        pytest.param(
            [DIST, LAST, "Last error:", "Call to ibv_modify_qp failed with 61 No data available"],
            "rdma-gid",
            id="the reason follows",
        ),
        pytest.param(
            [
                "triton.runtime.errors.PTXASError: PTXAS error",
                "`ptxas` stderr:",
                "ptxas fatal   : Value 'sm_121a' is not defined for",
            ],
            "ptxas-sm121",
            id="Triton's reason follows",
        ),
        pytest.param([MEMORY.shows, ERROR + DIST], "memory-not-free", id="an error before NCCL's"),
        pytest.param(
            ["vllm.X.EngineDeadError: EngineCore encountered an issue.", PINNED],
            "rdma-pinned-memory",
            id="an echo and a reason",
        ),
        pytest.param(["SystemExit: 1", FAILED], "unknown", id="only an echo"),
        pytest.param([FAILED], "", id="no error at all"),
        pytest.param([*recorded("ray_tp2_success"), FAILED], "", id="a start without errors"),
        pytest.param(["Connection closed by remote peer spark2<4>", FAILED], "peer-closed", id="only a consequence"),
    ],
)
def test_the_first_error_decides(lines: list[str], expected: str) -> None:
    assert found(lines) == expected


def test_patterns_are_bounded() -> None:
    for symptom in LOGGED:
        # Without unlimited repetition, an untrusted line cannot make a pattern slow.
        bare = re.sub(r"\[[^\]]*\]", "C", re.sub(r"\\.", "E", symptom.pattern))
        assert not re.search(r"[*+]|\{\d*,\}", bare)
        assert all(int(most) <= 300 for most in re.findall(r"\{\d+,(\d+)\}", bare))


KNOWN = [*HARMLESS, ERROR, FAILED, TRACEBACK, *(line for _symptom, line in CASES)]
ENDINGS = (
    "see docs/troubleshooting.md)",
    *(f"docs/troubleshooting.md#{symptom.id}" for symptom in LOGGED),
)


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from(KNOWN))))
@settings(max_examples=100, deadline=None)
def test_no_log_raises(lines: list[str]) -> None:
    text = symptoms.explain(lines)
    assert bool(text) == bool(symptoms.diagnose(lines).error)
    assert not text or text.endswith(ENDINGS)


def test_a_huge_line() -> None:
    line = "A worker died or was killed" + " Worker IP address: 1 Worker PID: 1 Worker exit detail:" * 20000
    assert found([line, "(pid=" * 50000, FAILED]) == "rank-died"


# --- States.

GIB = 1 << 30
API = {"url": "http://127.0.0.1:8000", "healthy": True, "answers": True, "reason": ""}


def service(**facts: Any) -> dict[str, Any]:
    plain = {
        "unit": "gb10-vllm.service",
        "load": "loaded",
        "active": "active",
        "pid": 7,
        "started": 100.0,
        "restarts": 0,
        "enabled": True,
    }
    return {**plain, **facts}


CLIENT = Client("", "192.168.1.11", "nvidia", "", "")


def node(head: bool = True, unreachable: str = "", **status: Any) -> StatusNode:
    facts = {
        "services": [service()],
        "ranks": [{"pid": 8}],
        "available": 20 * GIB,
        "total": 120 * GIB,
        "uptime": 4000.0,
        "links": [],
    }
    facts["api"] = API if head else {}
    name = "spark1" if head else "spark2"
    read = {} if unreachable else {**facts, **status}
    return StatusNode(name=name, head=head, unreachable=unreachable, facts=read, client=CLIENT)


GUARDED = {"active": True, "starts": [], "stop": {"reason": "only 1.0 GiB of memory were available"}}
STOPPED = [service(active="inactive", pid=None, enabled=False)]


STATE_CASES = [
    pytest.param("", node(), id="serving"),
    pytest.param(
        "", node(services=STOPPED, ranks=[], available=100 * GIB, api={**API, "healthy": False}), id="stopped"
    ),
    pytest.param("", node(services=[service(restarts=35)]), id="restarts of the past"),
    pytest.param(
        "",
        node(services=[service(load="not-found", active="inactive", pid=None)], ranks=[], available=100 * GIB),
        id="no unit",
    ),
    pytest.param(
        "engine-silent", node(api={**API, "answers": False, "reason": "no answer after 20 s: timed out"}), id="silent"
    ),
    pytest.param(
        "key-refused", node(api={**API, "answers": False, "reason": "HTTP 401: Unauthorized"}), id="key of the request"
    ),
    pytest.param(
        "key-refused",
        node(
            api={
                **API,
                "answers": False,
                "reason": "http://127.0.0.1:8000/v1/models lists no model: HTTP Error 401: Unauthorized",
            }
        ),
        id="key of the list",
    ),
    pytest.param(
        "port-taken",
        node(
            api={
                **API,
                "answers": False,
                "reason": "port 8000 is used by x instead of gb10-vllm.service, so the API's key was not sent",
            }
        ),
        id="port",
    ),
    pytest.param(
        "", node(api={**API, "answers": False, "reason": "HTTP 500: Internal Server Error"}), id="another answer"
    ),
    pytest.param("tls-untrusted", node(api={**API, "healthy": False, "reason": "certificate verify failed"}), id="TLS"),
    pytest.param(
        "node-unreachable",
        node(unreachable="kex_exchange_identification: read: Connection reset by peer"),
        id="unreachable",
    ),
    pytest.param("no-route", node(unreachable="No route to host"), id="unreachable for a known cause"),
    pytest.param("service-restarts", node(services=[service(restarts=3, started=3900.0)]), id="restarted lately"),
    pytest.param(
        "service-restarts",
        node(services=[service(restarts=9, active="activating", pid=None)]),
        id="waits for its restart",
    ),
    pytest.param("service-down", node(services=[service(active="inactive", pid=None)]), id="inactive"),
    pytest.param("service-stopped", node(services=[service(active="failed", pid=None, restarts=4)]), id="failed"),
    pytest.param(
        "service-stopped",
        node(services=[service(active="failed", pid=None, gate="spark1.gates.gpu: x.")]),
        id="failed at a gate",
    ),
    pytest.param("gate-closed", node(services=[service(gate="spark1.gates.gpu: x.")]), id="waits at a gate"),
    pytest.param(
        "",
        node(services=[{**STOPPED[0], "gate": "x"}], ranks=[], available=100 * GIB, api={}),
        id="was stopped at a gate",
    ),
    pytest.param("rank-missing", node(ranks=[]), id="no rank"),
    pytest.param(
        "link-down",
        node(links=[{"interface": "enp1s0f1np1", "carrier": False, "hca": "", "state": ""}]),
        id="no carrier",
    ),
    pytest.param("memory-exhausted", node(available=2 * GIB), id="no memory"),
    pytest.param(
        "memory-floor",
        node(
            services=[service(active=state, pid=None) for state in ("failed", "inactive")],
            ranks=[],
            available=100 * GIB,
            memory_guard=GUARDED,
        ),
        id="stopped by the guard",
    ),
    pytest.param(
        "memory-short",
        node(memory_guard={**GUARDED, "stop": {}, "done": "had its ranks ended once by the memory guard 2 h ago: ..."}),
        id="restarted by the guard",
    ),
    pytest.param("memory-guard-down", node(memory_guard={**GUARDED, "active": False, "stop": {}}), id="no guard"),
    pytest.param("memory-held", node(services=STOPPED, ranks=[], available=50 * GIB, api={}), id="memory of nothing"),
]


def test_every_state_and_every_cause_of_no_access_is_driven() -> None:
    # The step vllm_wait reports a start that takes too long (test_vllm_wait.py).
    assert {case.values[0] for case in STATE_CASES} - {cause.id for cause in ACCESS} - {""} == STATES.keys() - {
        "start-timeout"
    }
    for cause in ACCESS:
        assert [each.check for each in symptoms.wrong_states([node(unreachable=cause.shows)])] == [cause]


@pytest.mark.parametrize(("state", "wrong"), STATE_CASES)
def test_states(state: str, wrong: StatusNode) -> None:
    lines = symptoms.states([wrong])
    assert [line.rpartition("#")[2] for line in lines] == [state] * bool(state)
    assert all(line.startswith("problem: ") and "; cause: " in line and "; fix: " in line for line in lines)


def test_a_stopped_service_names_its_gate() -> None:
    closed = service(
        active="failed", pid=None, restarts=4, gate="spark1.gates.gpu: no GPU. Expected: one. Fix: reboot."
    )
    (line,) = symptoms.states([node(services=[closed], ranks=[], available=100 * GIB, api={})])
    assert line.startswith(
        "problem: spark1 has gb10-vllm failed after 4 restarts: spark1.gates.gpu: no GPU. Expected: one. Fix: reboot."
    )


def test_a_worker_without_a_rank_is_wrong_only_while_the_api_is_healthy() -> None:
    worker = node(head=False, ranks=[])
    assert [line.startswith("problem: spark2 has no rank") for line in symptoms.states([node(), worker])] == [True]
    assert symptoms.states([node(api={**API, "healthy": False}), worker]) == []
