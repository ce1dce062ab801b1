"""The report from real hardware: no planted name, address or key is in it."""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_module import program
from run_playbook import run

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import redact, report

SNAPSHOT = json.loads((Path(__file__).parents[1] / "data" / "plan_two_spark.json").read_text(encoding="utf-8"))
KEY = "hf_" + "AbCd1234" * 4
#: Text that must not be in a report. The tests plant each in every free text.
PLANTED = (
    "spark-lisa",
    "tower-9",
    "192.168.77.11",
    "cluster.acme.example",
    "10.110.0.2",
    "fe80::4abc:12ff:fe34:5678",
    "48:b0:2d:aa:bb:cc",
    "GPU-6b1f9c0e-1111-2222-3333-444455556666",
    "lisa",
    "/home/lisa/models/secret-project",
    "secret-project",
    "lisa@acme.example",
    "https://registry.acme.example:5000/vllm",
    KEY,
    "0123456789abcdef" * 2,
    "aB3" * 12,
)
ALL = " and ".join(PLANTED)
STATUS = {
    "services": [{"unit": "gb10-vllm.service", "active": "active", "sub": "running", "restarts": 2, "enabled": True, "invocation": KEY}],
    "ranks": [{"pid": 4711, "name": "VLLM::Worker", "bytes": 64 << 30}],
    "available": 20 << 30,
    "total": 119 << 30,
    "uptime": 100.0,
    "driver": "580.142",
    "links": [{"interface": "enp1s0f1np1", "carrier": True, "speed": 200000, "hca": "rocep1s0f1", "state": "ACTIVE"}],
    "error": {"unit": "gb10-vllm.service", "text": f"RuntimeError: {ALL}", "age": 5.0},
    "lock": {"text": "lisa@tower-9 runs site.yml", "age": 1.0},
    "api": {"url": "http://192.168.77.11:8000", "healthy": True, "answers": True, "answered_after": 0.2, "root": "/home/lisa/models/secret-project"},
}
INFO = {
    "gpu": {"gpus": [{"name": "NVIDIA GB10", "uuid": PLANTED[7]}]},
    "kernel": "6.17.0-1031-nvidia",
    "cma_total_bytes": 0,
    "login_users": ["lisa"],
    "interfaces": {"enp1s0f1np1": {"mac": "48:b0:2d:aa:bb:cc", "addresses": ["10.110.0.1/24"]}},
}
BENCHMARK = {
    "date": "2026-11-22T21:30:00Z",
    "vllm": "0.32.0",
    "model": "/home/lisa/models/secret-project",
    "args": [KEY],
    "runs": [{"tokens_per_second": 46.5}],
}


def site() -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Return (plan, hosts, observed) of a cluster with planted names, addresses and keys."""
    found = copy.deepcopy(SNAPSHOT)
    for node, name in zip(found["nodes"], PLANTED, strict=False):
        node["name"] = name
    found["head"]["name"] = PLANTED[0]
    found |= {"model": "/home/lisa/models/secret-project", "served_model_name": "secret-project", "user": "lisa", "store": {}}
    found["api"] = {**found["api"], "client": "cluster.acme.example", "server_name": "cluster.acme.example"}
    found["serve"] |= {"why": [ALL], "memory": [ALL], "warnings": [ALL], "findings": [f"NCCL_IB: {ALL}"]}
    private = ["--api-key", KEY, f"--hf-token={KEY}", "--allowed-origins", '["acme"]']
    found["serve"]["user_args"] = [*private, "--max-model-len=8192", "--chat-template", "/home/lisa/chat.jinja"]
    found["fabric"] = [ALL]
    hosts = {PLANTED[0]: "192.168.77.11", PLANTED[1]: "cluster.acme.example"}
    worker = {**STATUS, "api": {}}
    return found, hosts, {PLANTED[0]: {"info": INFO, "status": STATUS}, PLANTED[1]: {"info": INFO, "status": worker}}


def test_no_planted_text_is_in_the_report() -> None:
    found = report.document(*site(), [json.dumps(BENCHMARK)], "2026-11-22")
    text = json.dumps(found)
    assert [planted for planted in (*PLANTED, "acme") if planted.lower() in text.lower()] == []


def test_the_figures_are_in_the_report() -> None:
    found = report.document(*site(), ["{}", json.dumps(BENCHMARK)], "2026-11-22")
    assert (found["model"], found["stack"]["vllm"], found["runtime"]) == ("MODEL", SNAPSHOT["stack"]["vllm"], "native")
    assert [node["driver"] for node in found["nodes"]] == ["580.142", "580.142"]
    assert found["nodes"][0]["links"] == STATUS["links"]
    assert (found["nodes"][0]["gpus"], found["nodes"][0]["kernel"]) == (["NVIDIA GB10"], "6.17.0-1031-nvidia")
    assert (found["benchmark"]["runs"], found["benchmark"]["vllm"]) == ([{"tokens_per_second": 46.5}], "0.32.0")
    assert found["plan"]["findings"][0].startswith("NCCL_IB: node1 and node2 and ADDRESS and ")
    assert found["api"] == {"healthy": True, "answers": True, "answered_after": 0.2, "prefix_cache_hit_rate": None}
    arguments = found["args"][found["args"].index("--api-key") :]
    assert arguments[:5] == ["--api-key", "REDACTED", "--hf-token=REDACTED", "--allowed-origins", "REDACTED"]
    assert arguments[5:] == ["--max-model-len=8192", "--chat-template", "PATH"]


def test_a_catalog_model_keeps_its_name() -> None:
    plan, hosts, observed = site()
    plan["store"] = {"hub": "openai/gpt-oss-120b", "revision": "1"}
    assert report.document(plan, hosts, observed, [], "2026-11-22")["model"] == "gpt-oss-120b"


def test_ordinary_text_stays() -> None:
    texts = [
        "6.17.0-1031-nvidia",
        "vllm==0.32.0, CUDA 13.0, NCCL 2.30.7",
        "decode: at most 54.6 tokens/s",
        "--kv-cache-memory-bytes=67108864",
        "qwen3-next-80b-a3b-instruct-fp8-dynamic",
        "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1",
        "enp1s0f1np1, roceP2p1s0f1",
        "/etc/gb10/cluster.env and /opt/gb10/runtime/current",
        "2026-11-22T21:30:00Z",
    ]
    assert redact.redacted(texts, {}) == texts
    assert redact.leaks(texts, {}) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_left_text_is_found(planted: str) -> None:
    known = dict.fromkeys((*PLANTED[:2], "cluster.acme.example", "lisa", "secret-project"), "X")
    assert redact.leaks({"a": [1, None, f"see {planted}."]}, known)
    assert redact.leaks(redact.redacted([f"see {planted}."], known), known) == []


def test_a_report_with_left_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "redacted", lambda value, _known: value)
    with pytest.raises(ValueError, match="so it was not written") as error:
        report.document(*site(), [], "2026-11-22")
    assert not any(planted in str(error.value) for planted in PLANTED)


@pytest.mark.parametrize("text", ["[]", "7"])
def test_another_file_is_no_benchmark(text: str) -> None:
    assert report.document(*site(), [text], "2026-11-22")["benchmark"] == {}


@pytest.mark.parametrize("check", [False, True], ids=["run", "check mode"])
def test_the_role_writes_one_file(tmp_path: Path, check: bool) -> None:
    unit = "LoadState=not-found UnitFileState= ActiveState=inactive SubState=dead Result= MainPID=0 NRestarts=0 InvocationID= ExecMainStatus=0"
    (tmp_path / "unit").write_text("\n".join([*unit.split(), "Environment=", "ExecMainStartTimestampMonotonic=0"]), encoding="utf-8")
    for name, script in (("systemctl", f"cat {tmp_path}/unit"), ("journalctl", "true"), ("ip", "echo '[]'")):
        program(tmp_path / "bin", name, script)
    plan, _hosts, _observed = site()
    plan |= {"nodes": plan["nodes"][:1], "node": plan["nodes"][0], "api": {**plan["api"], "url": "http://127.0.0.1:9", "server_name": ""}}
    host = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable, "ansible_host": "192.168.77.11"}
    play = {"name": "Report", "hosts": "head", "gather_facts": False, "roles": [{"role": "gb10.cluster.field_report"}]}
    inventory, playbook, variables = tmp_path / "mine/hosts.yml", tmp_path / "role.yml", tmp_path / "plan.json"
    inventory.parent.mkdir()
    inventory.write_text(yaml.safe_dump({"head": {"hosts": {PLANTED[0]: host}}}), encoding="utf-8")
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    variables.write_text(json.dumps({"gb10_plan": plan}), encoding="utf-8")
    arguments = ["-i", str(inventory), "-e", f"@{variables}", *(["--check"] if check else [])]
    run(str(playbook), arguments, {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}).assert_ok()
    file = tmp_path / "mine/.gb10/field_report.json"
    assert file.exists() is not check
    if not check:
        found = json.loads(file.read_text(encoding="utf-8"))
        assert (len(found["nodes"]), found["benchmark"], found["api"]["healthy"]) == (1, {}, False)
        # The second node is not in this plan, so its name is unknown.
        assert [planted for planted in PLANTED if planted in str(found)] == [PLANTED[1]]
