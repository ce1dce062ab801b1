"""The cluster's status: parsed metrics and log, and the status output."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from run_module import program, run_module
from small_server import serving

from ansible_collections.gb10.cluster.plugins.module_utils.api import io_guard
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, spans
from ansible_collections.gb10.cluster.plugins.module_utils.health import example, io_client, io_status, probe
from ansible_collections.gb10.cluster.plugins.module_utils.health import status as health_status
from ansible_collections.gb10.cluster.plugins.module_utils.health.schema import Client, StatusNode
from ansible_collections.gb10.cluster.plugins.module_utils.health.status import GIB
from ansible_collections.gb10.cluster.plugins.module_utils.memory import guard
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import cluster_status

#: Printed by vLLM 0.32.0, abridged; two engines.
METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="tiny"}} 3.0
vllm:num_requests_waiting{{engine="0",model_name="tiny"}} 1.0
vllm:num_requests_waiting_by_reason{{engine="0",model_name="tiny",reason="capacity"}} 7.0
vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {generated}
vllm:generation_tokens_total{{engine="1",model_name="tiny"}} 2.0
vllm:prefix_cache_queries_total{{engine="0",model_name="tiny"}} 40.0
vllm:prefix_cache_hits_total{{engine="0",model_name="tiny"}} 30.0
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="tiny"}} 20.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="tiny"}} 15.0
vllm:generation_tokens_created{{engine="0",model_name="tiny"}} 1.7952198717871225e+09
"""


def process(pid: int, name: str) -> dict[str, Any]:
    return {"pid": pid, "name": name, "bytes": GIB}


def test_ranks() -> None:
    engine, workers = process(5, "VLLM::EngineCor"), [process(9, "VLLM::Worker_TP"), process(8, "VLLM::Worker_TP")]
    assert [rank["pid"] for rank in health_status.ranks([engine, process(1, "systemd"), *workers])] == [8, 9]
    assert health_status.ranks([engine, process(7, "ray::RayWorkerP")]) == [process(7, "ray::RayWorkerP")]
    assert health_status.ranks([engine]) == [engine]
    assert health_status.ranks([process(1, "systemd")]) == []


LOG = [
    (1.0, "Started gb10-vllm.service - vLLM on the GB10 cluster."),
    (2.0, "ValueError: the first start's"),
    (3.0, "gb10-vllm.service: Scheduled restart job, restart counter is at 1."),
    (4.0, "Starting gb10-vllm.service - vLLM on the GB10 cluster..."),
    (5.0, "OSError: the second start's"),
    (5.5, "RuntimeError: Engine core initialization failed."),
    (6.0, "Started gb10-vllm.service - vLLM on the GB10 cluster."),
    (9.0, "INFO:     Application startup complete."),
]


def test_the_last_error_is_of_the_latest_start_that_failed() -> None:
    assert health_status.last_error(LOG) == (
        5.5,
        "OSError: the second start's (unknown cause; see docs/troubleshooting.md)",
    )
    assert health_status.last_error(LOG[-2:]) == (0.0, "")
    assert health_status.last_error([]) == (0.0, "")


def test_what_a_service_logs_after_it_was_told_to_stop_is_no_error() -> None:
    died = (
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for "
        "the root cause."
    )
    stopped = [LOG[6], LOG[7], (20.0, "Stopping gb10-vllm.service - vLLM on the GB10 cluster..."), (21.0, died), LOG[6]]
    assert health_status.last_error(stopped) == (0.0, "")
    # systemd may write its message after the server's own, as vLLM 0.32.0 logged at the begin of a rest.
    own = "(APIServer pid=1567) INFO 12-01 01:36:29 [launcher.py:254] [shutdown] API server: shutdown triggered"
    assert health_status.last_error([*stopped[:2], (19.0, own), (19.5, died), *stopped[2:]]) == (0.0, "")
    failed, _stop, *end = stopped[1:]
    assert health_status.last_error([failed, *end])[0] == 21.0
    # An error before the order stays one: the watchdog restarts a rank that failed.
    assert health_status.last_error([*LOG[:2], *stopped[2:]])[0] == 2.0


def service(unit: str, **facts: Any) -> dict[str, Any]:
    plain = {
        "unit": unit,
        "load": "loaded",
        "active": "active",
        "sub": "running",
        "pid": 7,
        "started": 100.0,
        "restarts": 0,
        "enabled": True,
    }
    return {**plain, **facts}


API = {
    "url": "http://127.0.0.1:8000",
    "healthy": True,
    "answers": True,
    "answered_after": 0.31,
    "reason": "",
    "model": "tiny",
    "root": "/srv/models/tiny",
    "tokens_per_second": 12.34,
    "kind": "generate",
    "requests_per_second": 1.5,
    "running": 3.0,
    "waiting": 0.0,
    "prefix_cache_hit_rate": 0.25,
    "drafted": 0.0,
    "accepted": 0.0,
}


CLIENT = Client("http://192.168.1.11:8000/v1", "192.168.1.11", "nvidia", "/etc/gb10/api.key", "")


def node(name: str, **status: Any) -> StatusNode:
    facts = {
        "services": [service("gb10-ray.service"), service("gb10-vllm.service", load="not-found")],
        "ranks": [process(812, "VLLM::Worker_TP")],
        "available": 100 * GIB,
        "total": 120 * GIB,
        "uptime": 4000.0,
        "driver": "580.95.05",
        "gpu_state": {"temperature_c": 61.0, "clock_mhz": None, "slowed": [], "limit_mhz": None},
        "links": [
            {"interface": "enp1s0f1np1", "carrier": True, "speed": 200000, "hca": "rocep1s0f1", "state": "ACTIVE"}
        ],
        "error": {},
        "api": {},
    }
    head = bool(status.get("api"))
    return StatusNode(name=name, head=head, unreachable="", facts={**facts, **status}, client=CLIENT)


def screen(*nodes: StatusNode, wanted: str = "/srv/models/tiny") -> list[str]:
    return health_status.lines(nodes, wanted)


def test_the_screen() -> None:
    error = {"unit": "gb10-vllm.service", "text": "ValueError: bad", "age": 130.0}
    head = node(
        "spark1",
        api=API,
        services=[service("gb10-ray.service"), service("gb10-vllm.service", started=3900.0, restarts=2)],
        error=error,
    )
    said = screen(head, node("spark2", ranks=[]))
    assert said.pop(-2).startswith("problem: spark2 has no rank; cause: ")
    assert said == [
        "tiny answers in 310 ms at http://192.168.1.11:8000/v1, up for 1 min",
        "key: ssh -t nvidia@192.168.1.11 sudo cat /etc/gb10/api.key",
        "read -r OPENAI_API_KEY  # paste the key",
        "curl http://192.168.1.11:8000/v1/chat/completions \\",
        '  --header "Authorization: Bearer $OPENAI_API_KEY" --json \\',
        """  '{"model":"tiny","messages":[{"role":"user","content":"Hi"}]}'""",
        "12.3 tokens/s, 3 requests running, 0 waiting, prefix cache hit rate 25%",
        "model: /srv/models/tiny",
        "spark1  gb10-ray active for 1 h, gb10-vllm active for 1 min (2 restarts)",
        "        rank pid 812: 1.0 GiB; 100.0 of 120.0 GiB available",
        "        driver 580.95.05, GPU 61 \N{DEGREE SIGN}C; enp1s0f1np1 200 Gb/s, rocep1s0f1 ACTIVE",
        "spark2  gb10-ray active for 1 h",
        "        no rank; 100.0 of 120.0 GiB available",
        "        driver 580.95.05, GPU 61 \N{DEGREE SIGN}C; enp1s0f1np1 200 Gb/s, rocep1s0f1 ACTIVE",
        "last error: 2 min ago, gb10-vllm.service on spark1: ValueError: bad",
    ]


@pytest.mark.parametrize(("kind", "word"), [("embed", "embeddings"), ("rerank", "reranker")])
def test_the_request_to_a_pooling_model(kind: str, word: str) -> None:
    said = screen(node("spark1", api={**API, "kind": kind}))
    assert said[0].startswith(f"tiny ({word}) answers in 310 ms at ")
    assert said[3].split()[1] == f"http://192.168.1.11:8000{probe.request(kind, 'tiny')[0]}"
    assert json.loads(shlex.split("".join(said[3:6]).replace("\\", ""))[-1]) == probe.request(kind, "tiny")[1]
    assert "1.5 requests/s, 3 requests running, 0 waiting, prefix cache hit rate 25%" in said


def test_a_shell_reads_the_lines_of_the_request_as_one_command() -> None:
    api = Client("https://spark.example.com:8000/v1", "spark1", "", "", "/etc/a b.crt")
    said = example.client(api, "a 'model' $HOME", "generate")
    printed = subprocess.run(
        ["sh", "-c", "\n".join(said).replace("curl", "printf '%s\n'", 1)], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines()[:4] == [
        "https://spark.example.com:8000/v1/chat/completions",
        "--cacert",
        "/etc/a b.crt",
        "--json",
    ]
    assert json.loads(printed.splitlines()[4])["model"] == "a 'model' $HOME"
    keyed = example.client(replace(api, key_file="/etc/gb10/api.key"), "tiny", "generate")
    assert keyed[:2] == ["key: ssh -t spark1 sudo cat /etc/gb10/api.key", "read -r OPENAI_API_KEY  # paste the key"]
    own = replace(api, key_file="/etc/gb10/api.key", identity="/home/me/my key", port="2222")
    assert example.client(own, "tiny", "generate")[0] == (
        "key: ssh -t -i '/home/me/my key' -p 2222 spark1 sudo cat /etc/gb10/api.key"
    )


def test_the_last_alarm_is_also_one_before_the_start_of_the_watchdog(tmp_path: Path) -> None:
    assert io_status.last_alarm(str(tmp_path / "none")) == io_status.last_alarm(str(tmp_path)) == ""
    for name, text in {"20261122T072943Z": "a hang", "20261121T235959Z": "an earlier one"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "alarm.json").write_text(json.dumps({"reason": text}), encoding="utf-8")
    assert io_status.last_alarm(str(tmp_path)) == "2026-11-22 07:29:43 UTC: a hang"
    (tmp_path / "20261122T072943Z" / "alarm.json").write_text("half", encoding="utf-8")
    assert io_status.last_alarm(str(tmp_path)) == "2026-11-22 07:29:43 UTC: unknown"


@pytest.mark.parametrize("state", ["active", "failed"])
def test_the_status_has_what_the_watchdog_reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str) -> None:
    for name in ("SETTINGS", "STATUS", "STATE"):
        monkeypatch.setattr(paths, f"WATCHDOG_{name}", str(tmp_path / name.lower()))
    monkeypatch.setattr(io_status.node_io_facts, "service", lambda _run, _unit: {"active": state})

    def found() -> dict[str, Any]:
        return io_status._watchdog(lambda _argv: (0, "", ""))

    assert found() == {}, "there is no watchdog"
    (tmp_path / "settings").touch()
    assert found() == {"active": state == "active"}, "it has not written a status yet"
    (tmp_path / "status").write_text(json.dumps({"armed": True, "last_alarm": ""}), encoding="utf-8")
    (tmp_path / "state/evidence/20261122T072943Z").mkdir(parents=True)
    assert found() == {
        "armed": True,
        "last_alarm": "2026-11-22 07:29:43 UTC: unknown",
        "active": state == "active",
    }


def test_the_status_has_what_the_memory_guard_did(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / paths.MEMORY_GUARD_UNIT).touch()
    monkeypatch.setattr(paths, "UNIT_FOLDER", str(tmp_path))
    for name in ("STOP", "PRESENT"):
        monkeypatch.setattr(paths, f"MEMORY_GUARD_{name}", str(tmp_path / name))
    monkeypatch.setattr(io_status.node_io_facts, "service", lambda _run, _unit: {"active": "active"})
    record = guard.acted(
        guard.entry(None, GIB, 2 * GIB, 0, time.time() - 7300, guard.RESTARTED),
        guard.FLOOR,
        guard.Process("ffmpeg", GIB),
    )
    monkeypatch.setattr(io_status.io_guard, "starts", lambda: [record])
    found = io_status._memory_guard(lambda _argv: (0, "", ""))
    assert (found["active"], found["starts"], found["stop"]) == (True, [record], {})
    assert found["done"].startswith(
        "had its ranks ended once by the memory guard 2 h ago: only 1.0 GiB of memory were "
    )
    assert found["done"].endswith("the largest other process is ffmpeg with 1.0 GiB")
    (tmp_path / "STOP").write_text(json.dumps(record), encoding="utf-8")
    stop = io_status._memory_guard(lambda _argv: (0, "", ""))["stop"]
    assert stop["text"].startswith(f"the memory guard stopped the services: {stop['reason']}; cause: ")


def absent(name: str, reason: str, head: bool = False) -> StatusNode:
    client = replace(CLIENT, address="192.168.1.12")
    return StatusNode(name=name, head=head, unreachable=reason, facts={}, client=client)


def test_what_is_wrong_is_on_the_screen() -> None:
    gone = absent("spark2", "Failed to connect\n via ssh: No route to host")
    wedged = {
        **API,
        "answers": False,
        "reason": "no answer after 20 s",
        "tokens_per_second": None,
        "running": None,
        "prefix_cache_hit_rate": None,
    }
    said = screen(node("spark1", api=wedged), gone, wanted="/srv/models/other")
    assert said[0] == "tiny DOES NOT ANSWER at http://192.168.1.11:8000/v1: no answer after 20 s"
    assert said[1] == "unknown tokens/s, unknown requests running, 0 waiting, prefix cache unused"
    assert said[3] == "the inventory specifies /srv/models/other: the next site.yml run switches to it"
    assert said[7] == "spark2  CANNOT BE READ: Failed to connect via ssh: No route to host"
    assert [line.rpartition("#")[2] for line in said[8:-1]] == ["engine-silent", "no-route"]
    assert "; fix: run 'ping 192.168.1.12'; " in said[9]
    assert said[-1] == "last error: none of this launch since boot on the nodes that could be read"


WATCHDOG = {"active": True, "mode": "report", "head": True, "armed": True, "last_alarm": "", "restarts": 0}
ARMING = {**WATCHDOG, "mode": "restart", "armed": False, "restarts": 2, "last_alarm": "2026-11-22 07:29:43 UTC: a hang"}
UP, DOWN = {"active": True, "head": False}, {"active": False, "head": False}
IMAGE = "vllm/vllm-openai:latest@sha256:" + "4" * 64
LINK = {"interface": "enp1s0f1np1", "carrier": True, "speed": 200000, "hca": "rocep1s0f1", "state": "ACTIVE"}
TWIN = {**LINK, "interface": "enP2p1s0f1np1", "hca": "roceP2p1s0f1"}
NO_RDMA = {"hca": "", "state": ""}
STOPPED = service("gb10-vllm.service", active="inactive", sub="dead", pid=None, enabled=False)
UNTRUSTED = {**API, "healthy": False, "reason": "certificate has expired"}


def linked(*links: dict[str, Any]) -> list[StatusNode]:
    return [node("spark1", api=API, links=list(links))]


def drafted(count: float, accepted: float) -> list[StatusNode]:
    return [node("spark1", api={**API, "drafted": count, "accepted": accepted})]


def watched(head: dict[str, Any], worker: dict[str, Any]) -> list[StatusNode]:
    return [node("spark1", api=API, watchdog=head), node("spark2", watchdog=worker)]


def pair(key: str, first: Any, second: Any = "") -> list[StatusNode]:
    return [node("spark1", api=API, **{key: first}), node("spark2", **{key: second} if second else {})]


SLOWED = ["thermal slowdown by hardware"]
HARDWARE = "        driver 580.95.05, GPU 61 \N{DEGREE SIGN}C; "
SYSTEM: dict[str, Any] = {"lines": ["DGX OS 7.5.0", "kernel 6.17"], "warnings": [], "holder": ""}
SYSTEM["compared"] = {"DGX OS": "7.5.0", "kernel": "6.17"}
NEWER: dict[str, Any] = {
    "lines": ["DGX OS 7.6.0", "kernel 7.0"],
    "warnings": ["the kernel lacks nvidia"],
    "holder": "apt-get (PID 7)",
}
NEWER["compared"] = {"DGX OS": "7.6.0", "kernel": "6.17"}
ENDED = {"pid": None, "active": "inactive", "sub": "dead", "enabled": False}
OFF = [service(unit) | ENDED for unit in ("gb10-ray.service", "gb10-vllm.service")]
RESTING = [service("gb10-vllm.service") | ENDED | {"enabled": True}]
#: State -> its nodes, and a line of the screen.
STATES: dict[str, tuple[list[StatusNode], str]] = {
    "many accepted": (drafted(2000, 1420), "draft: 71% of 2000 tokens accepted"),
    "few accepted": (
        drafted(1000, 20),
        "draft: 2% of 1000 tokens accepted; warning: so few make answers slower. Fix: leave out --speculative-config, "
        "or use another draft",
    ),
    "too early to warn": (drafted(999, 0), "draft: 0% of 999 tokens accepted"),
    "a tenth accepted": (drafted(1000, 100), "draft: 10% of 1000 tokens accepted"),
    "a lock": (pair("lock", {"text": "alice runs site.yml", "age": 130.0}), "locked: alice runs site.yml, for 2 min"),
    "a lock that is left": (
        pair("lock", {"text": "alice runs site.yml", "age": 130.0, "ended": True}),
        "lock of a run that has ended, 2 min old: alice runs site.yml. The next run replaces it",
    ),
    "stopped by stop.yml": (pair("services", OFF, OFF), "stopped by stop.yml; site.yml starts it again"),
    "a pending reboot": (
        pair("reboot", {"required": False, "packages": []}, {"required": True, "packages": ["linux-base"]}),
        "warning: spark2: a reboot is pending for linux-base. Fix: run playbooks/stop.yml, then reboot the node",
    ),
    "equal systems": (pair("updates", SYSTEM, SYSTEM), "system: DGX OS 7.5.0; kernel 6.17"),
    "a system of its own": (pair("updates", SYSTEM, NEWER), "system of spark2: DGX OS 7.6.0; kernel 7.0"),
    "releases that differ": (
        pair("updates", SYSTEM, NEWER),
        "warning: the nodes differ in DGX OS: 7.5.0 on spark1, 7.6.0 on spark2. Fix: run playbooks/os_update.yml",
    ),
    "a lock of apt": (pair("updates", SYSTEM, NEWER), "apt on spark2: locked by apt-get (PID 7)"),
    "a kernel without modules": (pair("updates", SYSTEM, NEWER), "warning: spark2: the kernel lacks nvidia"),
    "an image": (pair("image", "name (ID 5)", "name (ID 5)"), "image: name (ID 5)"),
    "a record": (pair("record", "ab" * 32, "ab" * 32), "launch record: abababababab"),
    "different records": (
        pair("record", "ab" * 32),
        "warning: the nodes have different launch records: spark1 abababababab, spark2 none. Fix: run site.yml",
    ),
    "a watchdog": (watched(WATCHDOG, UP), "watchdog: report, armed, no alarm, no restart in the last hour"),
    "a rest": (
        [
            node("spark1", api={**API, "healthy": False}, rests=7300.0, services=RESTING),
            node("spark2", services=RESTING, rests=None),
        ],
        "the model rests for 2 h: the next request to the gateway starts it, as does site.yml",
    ),
    "a start": (
        watched({**WATCHDOG, "start": {"imports": 18.0, "ranks": 31.2}}, UP),
        "last start: ready after 49 s (imports 18, ranks 31)",
    ),
    "a watchdog after an alarm": (
        watched(ARMING, DOWN),
        "watchdog: restart, not armed before the first answer, last alarm 2026-11-22 07:29:43 UTC: a hang, 2 "
        "restarts in the last hour; DOWN on spark2",
    ),
    "a restart by the watchdog": (
        watched({**WATCHDOG, "restarts": 1}, UP),
        "watchdog: report, armed, no alarm, 1 restart in the last hour",
    ),
    "no watchdog runs": (watched({**WATCHDOG, "active": False}, {"active": False}), "watchdog: DOWN on spark1, spark2"),
    "equal links": (linked(LINK, TWIN), f"{HARDWARE}2 links 200 Gb/s, RDMA ACTIVE"),
    "equal links without RDMA": (linked({**LINK, **NO_RDMA}, {**TWIN, **NO_RDMA}), f"{HARDWARE}2 links 200 Gb/s"),
    "different speeds": (
        linked(LINK, {**TWIN, "speed": 100000}),
        f"{HARDWARE}enp1s0f1np1 200 Gb/s, rocep1s0f1 ACTIVE; enP2p1s0f1np1 100 Gb/s, roceP2p1s0f1 ACTIVE",
    ),
    "no carrier, no RDMA, and unknown speed": (
        linked({**LINK, "carrier": False}, {**TWIN, "state": "INIT"}, {**LINK, **NO_RDMA, "speed": None}),
        f"{HARDWARE}enp1s0f1np1 NO CARRIER, rocep1s0f1 ACTIVE; enP2p1s0f1np1 200 Gb/s, roceP2p1s0f1 INIT; "
        "enp1s0f1np1 up",
    ),
    "no GPU": ([node("spark1", driver="", gpu_state={}, links=[])], "        no driver"),
    "a limited GPU": (
        [node("spark1", gpu_state={"temperature_c": 84.0, "clock_mhz": 1800.0, "slowed": SLOWED, "limit_mhz": 2100})],
        f"        driver 580.95.05, GPU 84 \N{DEGREE SIGN}C, 1800 MHz, limit 2100 MHz, {SLOWED[0]}; enp1s0f1np1 200 Gb/s, "
        "rocep1s0f1 ACTIVE",
    ),
    "a stopped service": (
        [node("spark1", services=[STOPPED], ranks=[])],
        "spark1  gb10-vllm inactive (dead) (not started at boot)",
    ),
    "no server": (
        [node("spark1", api={**API, "healthy": False})],
        "model: none is served at http://192.168.1.11:8000/v1",
    ),
    "an untrusted server": (
        [node("spark1", api=UNTRUSTED)],
        "model: none is served at http://192.168.1.11:8000/v1, TLS error: certificate has expired",
    ),
    "an absent head": (
        [absent("spark1", "timed out", head=True), node("spark2")],
        "model: unknown, because spark1 cannot be read",
    ),
}


@pytest.mark.parametrize(("nodes", "line"), STATES.values(), ids=STATES)
def test_a_state_has_its_line(nodes: list[StatusNode], line: str) -> None:
    assert line in screen(*nodes)


def test_other_clusters_have_none_of_these_lines() -> None:
    plain = screen(node("spark1", api=API, watchdog={}, reboot={"required": False, "packages": []}), node("spark2"))
    words = ("draft", "locked", "warning", "image", "launch record", "watchdog", "problem")
    assert [line for line in plain if line.startswith(words)] == []


def test_links_without_carrier_or_rdma_are_problems() -> None:
    said = screen(*linked({**LINK, "carrier": False}, {**TWIN, "state": "INIT"}, {**LINK, **NO_RDMA}))
    problems = [line for line in said if line.startswith("problem: ")]
    assert [line.partition(";")[0] for line in problems] == [
        f"problem: spark1 has no link at {link['interface']}" for link in (LINK, TWIN)
    ]
    assert all(line.endswith("#link-down") for line in problems)


def test_the_image_has_its_tag_and_digest() -> None:
    found = {"runtime": IMAGE, "files": {IMAGE: "5" * 64}}
    assert health_status.image({"vllm_runtime": found}) == f"{IMAGE} (ID 555555555555)"
    wheels = {"runtime": "/opt/gb10/runtime/abc", "files": {"/srv/a.whl": "6" * 64}}
    others = ({}, {"vllm_runtime": wheels}, {"vllm_runtime": {**found, "files": []}}, {"vllm_patch": found})
    assert [health_status.image(other) for other in others] == [""] * 4


def test_the_lines_of_a_node_fit_80_columns() -> None:
    starts = [{"minimum": 31.4 * GIB}]
    links = [
        {"interface": name, "carrier": True, "speed": 200000, "hca": name, "state": "ACTIVE"}
        for name in ("enp1s0f1np1", "enP2p1s0f1np1")
    ]
    ranks = [{"pid": 1234567, "name": "VLLM::Worker_TP", "bytes": 45.1 * GIB}]
    guarded = {"active": True, "starts": starts, "stop": {}}
    said = screen(node("spark1", api=API, memory_guard=guarded, links=links, ranks=ranks))
    (rank,) = [line for line in said if "lowest" in line]
    assert rank == "        rank pid 1234567: 45.1 GiB; 100.0 of 120.0 GiB available, lowest 31.4"
    # The module show indents them by two.
    assert [line for line in said if len(line) > 77] == []


def test_a_record_of_a_silent_host_is_shown_with_the_node_that_has_it() -> None:
    said = screen(node("spark1", api=API, flight_records=["spark2 fell silent 3 h ago"]))
    assert "flight record on spark1: spark2 fell silent 3 h ago" in said


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, "0 s"), (59.9, "59 s"), (61, "1 min"), (7200, "2 h"), (90000, "1 d")]
)
def test_span(seconds: float, expected: str) -> None:
    assert spans.span(seconds) == expected


class Vllm:
    """A fake vLLM that generates 10 tokens between two requests."""

    def __init__(self) -> None:
        self.page, self.generated, self.status = METRICS, 0.0, 200
        self.opened, self.keys = list[str](), list[str | None]()
        self.models: Any = {"data": [{"id": "tiny", "root": "/srv/models/tiny", "max_model_len": 4096}]}

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        """Return health, metrics, models or a token."""
        self.keys.append(request.headers["Authorization"])
        self.generated += 10.0 * (request.path == "/metrics")
        bodies = {"/metrics": self.page.format(generated=self.generated), "/v1/models": json.dumps(self.models)}
        headers = {io_guard.OPEN_REQUESTS: self.opened.pop(0)} if self.opened else {}
        return self.status, bodies.get(request.path, "{}"), headers


@pytest.fixture
def vllm() -> Vllm:
    return Vllm()


@pytest.fixture
def at(vllm: Vllm) -> Iterator[io_client.Server]:
    with serving(vllm.answer) as url:
        yield io_client.Server(url)


def test_a_server_is_watched_and_asked(at: io_client.Server) -> None:
    facts = io_status.api(at, "", 0.1, 5)
    assert 20 < facts.pop("tokens_per_second") <= 100
    assert 0 <= facts.pop("answered_after") < 5
    assert facts == {
        "url": at.url,
        "healthy": True,
        "answers": True,
        "reason": "",
        "model": "tiny",
        "root": "/srv/models/tiny",
        "kind": "generate",
        "context": 4096,
        "running": 3.0,
        "waiting": 1.0,
        "prefix_cache_hit_rate": 0.75,
        "drafted": 20.0,
        "accepted": 15.0,
        "requests_per_second": None,
    }


def test_the_drain_ends_with_the_last_request(vllm: Vllm, at: io_client.Server) -> None:
    """The engine's own count is 4, until the page has none."""
    vllm.opened = ["5", "1"]
    assert io_status.drained(at, 0)[0] == 5
    vllm.page, vllm.opened = "vllm:num_requests_running 0\n", ["1", "0"]
    assert io_status.drained(at, 5, 0.01)[0] == 0
    assert vllm.opened == []


def test_an_api_is_closed_for_some_time(tmp_path: Path) -> None:
    file = tmp_path / io_guard.DRAIN
    drain = io_guard.Drain(str(file))
    io_status.refuse_new(str(tmp_path), 60)
    assert drain.now() and file.stat().st_mode & 0o777 == 0o644


def test_a_drain_closes_the_api_for_longer_than_it_waits(tmp_path: Path) -> None:
    given = {"url": "http://127.0.0.1:1", "seconds": 5}
    drained = run_module("vllm_drain", {**given, "folder": str(tmp_path)})
    assert (drained["changed"], drained["open"], (tmp_path / io_guard.DRAIN).read_text()) == (True, 0, "125\n")
    without = run_module("vllm_drain", {**given, "folder": str(tmp_path / "none")})
    assert (without["changed"], without["open"]) == (False, 0), "without a guard it stays open"


def test_the_key_goes_to_the_service_alone(
    vllm: Vllm, at: io_client.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, vllm.status = tmp_path / "key", 503
    file.write_text("5ec0e7\n", encoding="ascii")
    monkeypatch.setattr(io_client, "health", lambda _server: (True, ""))
    facts = io_status.api(at, io_client.api_key(str(file)), 0, 5)
    assert facts["answers"] is False
    assert "instead of gb10-vllm.service, so the API's key was not sent" in facts["reason"]
    assert set(vllm.keys) == {None}
    assert "5ec0e7" not in str(facts)


def test_a_server_without_models(vllm: Vllm, at: io_client.Server, tmp_path: Path) -> None:
    vllm.models = {"data": []}
    facts = io_status.api(at, io_client.api_key(""), 0, 5)
    assert facts["answers"] is False and "lists no model" in facts["reason"]
    vllm.models = {"data": [{"id": "x" * io_client.MOST}]}
    assert "lists no model" in io_status.api(at, io_client.api_key(""), 0, 5)["reason"]
    file = tmp_path / "key"
    file.write_text("two words\n", encoding="ascii")
    assert (
        io_status.api(at, io_client.api_key(str(file)), 0, 5)["reason"]
        == f"{file} does not contain a key (one line of ASCII without blanks)"
    )


SHOWN = """LoadState=loaded
UnitFileState=enabled
ActiveState=activating
SubState=auto-restart
Result=exit-code
MainPID=0
NRestarts=3
InvocationID=0f3c
ExecMainStatus=1
Environment=GB10_INPUTS=abc
ExecMainStartTimestampMonotonic=10000000"""


def test_status_info(tmp_path: Path) -> None:
    log = [*LOG, (10.0, "gb10-gates wait: spark1.gates.gpu: none.")]
    entries = "\n".join(
        json.dumps({"__MONOTONIC_TIMESTAMP": str(int(when * 1e6)), "MESSAGE": text}) for when, text in log
    )
    (tmp_path / "entries").write_text(entries, encoding="utf-8")
    (tmp_path / "shown").write_text(SHOWN, encoding="utf-8")
    program(tmp_path, "systemctl", f"cat {tmp_path}/shown")
    program(tmp_path, "nvidia-smi", "echo '2405, 3003, 45.12, 61, 96, 0x0000000000000020'")
    path = program(tmp_path, "journalctl", f"cat {tmp_path}/entries")
    answer = run_module("cluster_status_info", {"url": "http://127.0.0.1:1", "seconds": 0}, path, check=True)
    assert answer["changed"] is False
    assert [entry["unit"] for entry in answer["services"]] == ["gb10-ray.service", "gb10-vllm.service"]
    assert [entry["gate"] for entry in answer["services"]] == ["spark1.gates.gpu: none."] * 2
    assert (answer["error"]["text"], answer["api"]["healthy"]) == (health_status.last_error(LOG)[1], False)
    state = answer["gpu_state"]
    assert (state["temperature_c"], state["slowed"]) == (61.0, ["thermal slowdown by software"])
    assert 0 < answer["available"] < answer["total"]
    assert run_module("cluster_status_info", {}, path)["api"] == {}


def test_an_error_before_the_current_launch_answered_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    when = time.clock_gettime(time.CLOCK_MONOTONIC) - 60
    entry = json.dumps({"__MONOTONIC_TIMESTAMP": str(int(when * 1e6)), "MESSAGE": "ValueError: the old server's"})
    answers = {"systemctl": (0, SHOWN, ""), "journalctl": (0, entry, "")}
    monkeypatch.setattr(io_record, "FOLDER", str(tmp_path))

    def found() -> dict[str, Any]:
        error: dict[str, Any] = io_status.node(
            lambda argv: next((answers[name] for name in answers if name in argv), (0, "[]", ""))
        )["error"]
        return error

    assert found()["text"].startswith("ValueError: the old server's")
    (tmp_path / "current").symlink_to("a.json")
    assert found() == {}
    os.utime(tmp_path / "current", (time.time() - 120,) * 2, follow_symlinks=False)
    assert found()["text"].startswith("ValueError: the old server's")


def test_status_info_says_why_it_fails(tmp_path: Path) -> None:
    path = program(tmp_path, "systemctl", "echo 'System has not been booted with systemd' >&2; exit 1")
    assert "System has not been booted" in run_module("cluster_status_info", {}, path)["msg"]


def test_only_all_services_that_ended_in_order_are_stopped_by_the_playbook() -> None:
    down = {"active": False, "mode": "restart"}
    said = screen(node("spark1", services=OFF, watchdog=down), node("spark2", services=OFF, watchdog=down))
    assert "stopped by stop.yml; site.yml starts it again" in said
    assert not [line for line in said if line.startswith("watchdog:")]
    failed = [OFF[0], OFF[1] | {"active": "failed"}]
    starts = [OFF[0], OFF[1] | {"enabled": True}]
    for other in (failed, starts, [each | {"load": "not-found"} for each in OFF]):
        nodes = [node("spark1", services=other, watchdog=down), node("spark2", services=other, watchdog=down)]
        assert "stopped by" not in "\n".join(screen(*nodes))
    away = replace(node("spark2", services=OFF), unreachable="no route")
    assert "stopped by" not in "\n".join(screen(node("spark1", services=OFF), away))


def test_the_lock_of_a_run_that_was_killed_is_known_on_its_controller() -> None:
    held = {**io_lock.owner(os.getpid(), "site.yml"), "since": "2026-11-29 01:00:00", "age": "12"}
    assert not cluster_status._ended(held)
    assert cluster_status._ended({**held, "started": "1"})
    assert not cluster_status._ended({**held, "started": "1", "boot": "0" * 32})
    assert not any(map(cluster_status._ended, ({}, None, {"user": "x"})))
