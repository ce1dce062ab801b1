"""The report from real hardware: no planted name, address or key is in it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typed_plans import typed
from verified_nodes import Facts, cluster, pair

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import (
    failure,
    io_words,
    measurement,
    redact,
    report,
)
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record
from ansible_collections.gb10.cluster.plugins.module_utils.verify.report import CHECKS

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
    # The host's own name, another machine of its domain, other users, and the hardware address in an interface's name.
    "dgx-7f3",
    "nas.labs.acme.example",
    "marie",
    "/home/marie/.ssh/id_rsa",
    "enx48b02daabbcc",
    "sk-proj-" + "x" * 20,
    # Without a form that a list of patterns could know.
    "acme/secret-merger-llm",
    "intranet.acme.ai",
    "build.acme.xyz",
    "db.prod.acme.consulting",
    "buildbox",
    "Bearer abcdefgh1234",
    "Authorization: Basic YWxpY2U6aHVudGVyMg==",
    "password is hunter2",
    "sk_live_" + "abcdefgh",
    "gsk_" + "abcdefgh",
    "pplx-" + "abcdefgh",
    "npm_" + "abcdefgh",
    r"C:\Users\alison",
)
#: Of those with ordinary words, the part that must not stay.
SECRETS = [*PLANTED, "abcdefgh1234", "YWxp", "hunter2", "alison", "merger"]
#: Names without a form: of a node's own evidence, of the inventory, and of an adapter.
NAMES = ("nas01", "1792923004567", "Acme Guest", "acme--secret-draft", "build-box", "acme-lora")
ALL = " and ".join(PLANTED + NAMES)
PUBLIC = io_words.public()
PROBLEM = {"task": ALL, "text": f"{ALL}\n{ALL}"}
NAMED = {"build-box": "HOST", "lisa": "USER", "acme-lora": "LORA", "secret-project": "MODEL"}
FAILURES = failure.recorded("", "site.yml", "2026-11-22", [(PLANTED[:2], f"role : {ALL}", [ALL])], PUBLIC)
#: Facts that are free text, or that another program could choose, and those of them whose keys are so too.
FREE = """
error kernel boot product bios firmware packages files images cuda_libraries nccl nccl_installed environments gpu
firewalls rank_users ranks runtime disks processes evidence kernels lock
""".split()
KEYS = ("firmware", "packages", "cluster.env", "gb10-ray.service", "extensions", "unread")


def document(
    plan: dict[str, Any],
    nodes: list[Facts],
    hosts: dict[str, str],
    records: dict[str, str] | None = None,
    names: dict[str, str] | None = None,
    model: str = "",
) -> dict[str, Any]:
    own = {**dict.fromkeys(hosts.values(), redact.ADDRESS), **(names or {})}
    of_plan = typed(plan) if plan else None
    items = {node["name"]: node.pop("evidence", {}) for node in nodes}
    read = cluster(nodes)
    return report.document(of_plan, read, items, records or {}, "2026-11-22", PUBLIC, own, model, [PROBLEM])


def planted(value: Any, key: str = "") -> Any:
    """Add the planted text to each text."""
    if isinstance(value, dict):
        return {f"{name}{f' {ALL}' * (key in KEYS)}": planted(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [planted(each) for each in value]
    return f"{value} {ALL}" if isinstance(value, str) else value


BENCHMARK = {
    "date": "2026-11-22T21:30:00Z",
    "vllm": "0.32.0",
    "model": "/home/lisa/models/secret-project",
    "args": [KEY],
    "runs": [{"tokens_per_second": 46.5}],
    "findings": [ALL],
}
GOLDEN = {
    "model": "/home/lisa/models/secret-project",
    "revision": "0123456789abcdef",
    "equal": 6,
    "errors": [ALL],
    "warnings": [ALL],
}
BANDWIDTH = {"date": "2026-11-22", "backend": ALL, "runs": {ALL: [{"bytes": 8, "collective": ALL, "bus_gbps": 21.5}]}}
RECORDS = {
    **{
        name: json.dumps(each)
        for name, each in (("benchmark", BENCHMARK), ("golden", GOLDEN), ("bandwidth", BANDWIDTH))
    },
    "failures": FAILURES,
}


def site() -> tuple[dict[str, Any], list[Facts], dict[str, str]]:
    """Return (plan, nodes, hosts) of a cluster with planted names, addresses and keys."""
    found = copy.deepcopy(SNAPSHOT)
    for node, name in zip(found["nodes"], PLANTED, strict=False):
        node["name"] = name
    found["head"]["name"] = PLANTED[0]
    found |= {
        "model": "/home/lisa/models/secret-project",
        "served_model_name": "secret-project",
        "user": "lisa",
        "store": {},
    }
    found["api"] = {**found["api"], "client": "cluster.acme.example", "server_name": "cluster.acme.example"}
    found["serve"] |= {"why": [ALL], "memory": [ALL], "warnings": [ALL], "findings": [f"NCCL_IB: {ALL}"]}
    private = ["--lora-modules", "acme-lora=/home/lisa/lora", "--api-key", KEY, f"--hf-token={KEY}"]
    shown = ["--allowed-origins", '["acme"]', "--max-model-len=8192", "--chat-template", "/home/lisa/chat.jinja"]
    found["serve"]["user_args"] = private + shown
    found["fabric"] = [ALL]
    nodes = pair()
    probe = {"name": "cuda", "state": "failed", "cause": "wrong_result", "error": 0.5, "bound": 0.1, "message": ALL}
    items = {"routes": [ALL], ALL: [ALL], "toolkit": {ALL: ALL}, "reboot": None}
    link = {"interface": "enp1s0f1np1", "carrier": True, "speed": 200000, "hca": "rocep1s0f1", "state": "ACTIVE"}
    users = ["marie", "nvidia", "root"]
    for node, name in zip(nodes, PLANTED, strict=False):
        of_node = {"evidence": items, "unread": {"apt": ALL}}
        node |= {"name": name, "probe": [probe], "evidence": of_node}
        node["facts"] |= {"hostname": "dgx-7f3.labs.acme.example", "login_users": users, "links": [link]}
    return found, nodes, {PLANTED[0]: "192.168.77.11", PLANTED[1]: "cluster.acme.example"}


def hostile() -> tuple[dict[str, Any], list[Facts], dict[str, str]]:
    """Return the cluster with planted text in all facts and findings."""
    plan, nodes, hosts = site()
    head, worker = (node["facts"] for node in nodes)
    for facts in (head, worker):
        facts |= {name: planted(facts[name], name) for name in FREE}
        facts |= {"error": {"unit": "gb10-vllm.service", "text": ALL, "age": 5.0}, "unread": {f"disks {ALL}": ALL}}
        facts["unreadable"] = [{"file": f"/etc/netplan/{ALL}", "reason": ALL}]
        facts["processes"] = [{"pid": 7, "name": ALL, "bytes": 64 << 30, "unit": ALL, "user": "marie"}]
    worker["firmware"] = {name: f"1 {version}" for name, version in worker["firmware"].items()}
    head["environments"]["cluster.env"][f"NCCL {ALL}"] = ALL
    head["api"] |= {"url": "http://192.168.77.11:8000", "healthy": False, "model": ALL, "root": ALL, "reason": ALL}
    path = {"interface": "enp1s0f1np1", "peer": PLANTED[1], "address": "10.110.0.2"}
    nodes[0]["paths"] = [{**path, "mac": ALL, "reported": ALL, "small": False}]
    return plan, nodes, hosts


def unread() -> tuple[dict[str, Any], list[Facts], dict[str, str]]:
    """Return the cluster with a node that could not be read."""
    plan, nodes, hosts = site()
    nodes[1] |= {"facts": {}, "unreachable": ALL, "probe": []}
    return plan, nodes, hosts


def unplanned() -> tuple[dict[str, Any], list[Facts], dict[str, str]]:
    """Return the cluster without a plan."""
    _plan, nodes, hosts = hostile()
    return {}, nodes, hosts


@pytest.mark.parametrize("make", [site, hostile, unread, unplanned])
def test_no_planted_text_is_in_the_report(
    make: Callable[[], tuple[dict[str, Any], list[Facts], dict[str, str]]],
) -> None:
    found = document(*make(), RECORDS, NAMED, PLANTED[10])
    text = json.dumps(found)
    assert [each for each in (*SECRETS, *NAMES, "acme", "labs") if each.lower() in text.lower()] == []
    ids = {each["id"] for each in found["verification"]["findings"]}
    assert "gpu-probe-failed" in ids and not ids & set(found["verification"]["passed"])
    if make is hostile:
        assert ids >= {"rail-path", "firmware-differs", "facts-unread", "process-memory", "gpu-probe-failed"}


def test_a_host_with_the_name_of_an_address_hides_no_part_of_others() -> None:
    """The name 192 made node1.168.178.99 of another host's address, which has the form of a problem's place."""
    names = {"192.168.178.20": "192", "7": "box.lan"}
    nodes = [
        {"name": name, "head": False, "unreachable": "", "facts": {"hostname": host}} for name, host in names.items()
    ]
    found = report.known_names(
        None, cluster(nodes).nodes, {"192.168.178.20": redact.ADDRESS, "10.0.0.7": redact.ADDRESS}, "MODEL"
    )
    assert found == {"192.168.178.20": "node1", "10.0.0.7": "ADDRESS", "box.lan": "node2", "box": "node2"}
    assert redact.redacted("see 192.168.178.99", found, PUBLIC) == "see ADDRESS"


def test_the_figures_are_in_the_report() -> None:
    found = document(*site(), RECORDS)
    head = found["nodes"][0]
    facts = head["facts"]
    extension = {"native": 0, "same_major": 85, "ptx": 6, "none": 20}
    assert facts["gpu"] == {"driver_version": "580.142", "gpus": [{"name": "NVIDIA GB10", "capability": "12.1"}]}
    shown = {"kernel": "6.17.0-1031-nvidia", "product": "NVIDIA_DGX_Spark", "nccl_installed": {"version": "2.30.7"}}
    assert {key: facts[key] for key in shown} == shown
    assert (facts["links"][0]["speed"], facts["gpu_state"]["clock_mhz"], head["gpu_probe"][0]["error"]) == (
        200000,
        2405.0,
        0.5,
    )
    assert facts["firmware"]["rocep1s0f0"] == "28.45.4028" and facts["packages"]["vllm"] == "0.32.0"
    assert facts["kernels"]["extensions"]["vllm/_C_stable_libtorch"] == extension
    assert facts["interfaces"]["enp1s0f1np1"]["pci"]["width"] == 4 and "mac" not in facts["interfaces"]["enp1s0f1np1"]
    planned = found["plan"]
    assert (found["model"], planned["stack"]["vllm"], planned["runtime"]) == (
        "MODEL",
        SNAPSHOT["stack"]["vllm"],
        {"kind": "native"},
    )
    assert (found["benchmark"]["runs"], found["benchmark"]["vllm"]) == ([{"tokens_per_second": 46.5}], "0.32.0")
    assert (found["golden"]["equal"], found["golden"]["perplexity"]) == (6, None) and "revision" not in found["golden"]
    assert [list(gbps.values()) for gbps in found["bandwidth"]["gbps"].values()] == [[21.5]]
    assert planned["serve"]["findings"][0].startswith("NCCL_IB: node1 and node2 and ADDRESS and ")
    assert facts["api"] == {"healthy": True, "answers": True, "answered_after": 0.2, "prefix_cache_hit_rate": None}
    redacted = ["--api-key", "REDACTED", "--hf-token=REDACTED", "--allowed-origins", '["REDACTED"]']
    assert planned["serve"]["user_args"][2:] == [*redacted, "--max-model-len=8192", "--chat-template", "/home/PATH"]


def test_only_physical_interfaces_and_listed_values_are_taken() -> None:
    plan, nodes, hosts = site()
    bridge = {**nodes[0]["facts"]["interfaces"]["enp1s0f1np1"], "kind": "bridge"}
    nodes[0]["facts"]["interfaces"]["docker0"] = bridge
    found = document(plan, nodes, hosts)["nodes"][0]
    assert "docker0" not in found["facts"]["interfaces"]
    assert not {"hostname", "environments", "files", "listeners"} & found["facts"].keys()
    shape = {"a": None, "b": {"*": {"c": None}}}
    value = {"a": [1], "b": {"x": {"c": 1, "d": 2}, "y": 7}, "e": 1}
    assert report.taken(value, shape) == {"a": [1], "b": {"x": {"c": 1}, "y": None}}
    assert report.taken([value, {}], {"a": None}) == [{"a": [1]}, {"a": None}]


@pytest.mark.slow
def test_parts_are_bounded() -> None:
    plan, nodes, hosts = site()
    nodes[0]["evidence"] = {"evidence": {"routes": ["dev " * 999] * 999}}
    (text, *more) = document(plan, nodes, hosts)["nodes"][0]["evidence"]["routes"]
    assert (len(text) <= redact.MOST_TEXT, len(more)) == (True, redact.MOST_ENTRIES - 1)


def test_findings_and_differences_name_the_nodes_by_number() -> None:
    plan, nodes, hosts = site()
    nodes[1]["facts"]["interfaces"]["enp1s0f1np1"]["mtu"] = 1500
    nodes[1]["facts"]["packages"]["vllm"] = "0.31.0"
    found = document(plan, nodes, hosts)["verification"]
    (mtu,) = (each for each in found["findings"] if each["id"] == "rail-mtu")
    assert (mtu["severity"], mtu["node"], mtu["expected"]) == ("error", "node2", "the MTU of the netplan file")
    assert mtu["found"] == "enp1s0f1np1 has MTU 1500, but /etc/netplan/60-gb10-qsfp.yaml sets 9000"
    assert {"id": "packages-differ", "attribute": "vllm", "values": ["0.32.0", "0.31.0"]} in found["differences"]
    assert {"rail-down", "clock-wrong"} <= set(found["passed"])


def test_texts_of_the_checks_stay() -> None:
    for check in CHECKS:
        assert redact.redacted(check.expected, {}, PUBLIC) == check.expected


@pytest.mark.parametrize(
    ("hub", "drafts", "name"),
    [
        ("openai/gpt-oss-120b", [], "gpt-oss-120b"),
        ("nvidia/Qwen3.8-27B-NVFP4", [], "qwen3.8-27b-nvfp4"),
        ("nvidia/Qwen3.8-27B-NVFP4", [{"hub": "z-lab/Qwen3.8-27B-DFlash2"}], "qwen3.8-27b-nvfp4-dflash2"),
        ("acme/secret", [], "MODEL"),
    ],
)
def test_a_catalog_model_keeps_its_name(hub: str, drafts: list[dict[str, str]], name: str) -> None:
    plan, nodes, hosts = site()
    plan |= {"store": {"hub": hub, "revision": "1"}, "drafts": drafts}
    assert document(plan, nodes, hosts)["model"] == name


def test_without_a_plan_only_a_model_of_the_catalog_keeps_its_name() -> None:
    _plan, nodes, hosts = site()
    assert document({}, nodes, hosts, model="gpt-oss-120b")["model"] == "gpt-oss-120b"
    assert document({}, nodes, hosts, model="acme/secret")["model"] == "MODEL"


def test_a_report_with_left_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    again, calls = redact.redacted, []

    def reduction(value: Any, known: dict[str, str], public: redact.Words) -> Any:
        """Leave everything the first time."""
        calls.append(value)
        return value if len(calls) == 1 else again(value, known, public)

    monkeypatch.setattr(redact, "redacted", reduction)
    with pytest.raises(ValueError, match=r"identifying text \(plan, .*nodes.*\), so it was not written") as error:
        document(*site())
    assert not any(planted in str(error.value) for planted in PLANTED)


def test_another_file_is_reported() -> None:
    found = document(*site(), dict.fromkeys(RECORDS, "{"))
    assert "Expecting property name" in found["benchmark"]["unread"] and "Expecting" in found["golden"]["unread"]
    for text in ("7", "[]", '"a"'):
        found = document(*site(), dict.fromkeys(RECORDS, text))
        assert not found["benchmark"] and not found["golden"] and found["bandwidth"] == {} and found["failures"] == []


# --- a measurement before the report ---

LAUNCH = {"files": {}, "secret_files": [], "driver": "580.95", "kernel": "6.17.0"}
RUNNING = {"services": [{"unit": "gb10-vllm.service", "pid": 7}]}
STOPPED = {"services": [{"unit": "gb10-vllm.service", "pid": None}]}


def installed(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the facts of nodes that recorded this plan."""
    names = [node["name"] for node in plan["nodes"]]
    current = record.digest(record.content(typed(plan), dict.fromkeys(names, LAUNCH)))
    return {name: {"launch": LAUNCH, "current": current} for name in names}


def test_the_recorded_launch_of_every_node_is_current() -> None:
    found = installed(SNAPSHOT)
    assert measurement.current(typed(SNAPSHOT), found)
    for other in ({}, {"launch": LAUNCH}, {**found["spark2"], "current": "0" * 64}):
        assert not measurement.current(typed(SNAPSHOT), {**found, "spark2": other})


ANSWERS = {"answers": True, "root": SNAPSHOT["model"]}


@pytest.mark.parametrize(
    ("recorded", "runs", "api", "restart", "expected"),
    [
        (True, False, {}, False, ""),
        (True, True, ANSWERS, True, ""),
        (True, True, {**ANSWERS, "root": "/other"}, True, "The services run, but"),
        (True, True, {**ANSWERS, "answers": False}, True, "The services run, but"),
        (
            False,
            True,
            {},
            True,
            "The plan is not the launch that site.yml recorded. Expected: the planned model answers",
        ),
        (True, True, ANSWERS, False, f"{SNAPSHOT['model']} serves, and a measurement stops it. Expected: gb10_allow_"),
    ],
)
def test_a_state_that_could_not_be_restored_is_refused(
    recorded: bool, runs: bool, api: dict[str, Any], restart: bool, expected: str
) -> None:
    reason = measurement.refusal(typed({**SNAPSHOT, "allow_restart": restart}), recorded, runs, api)
    assert reason.startswith(expected) and bool(reason) is bool(expected)


def test_a_measurement_ends_as_it_began() -> None:
    assert measurement.serves([STOPPED, RUNNING]) and not measurement.serves([STOPPED, {}])
    assert measurement.steps(True)[-2:] == ["vllm_serve", "vllm_watchdog"]
    assert measurement.steps(False)[-1] == measurement.steps(False)[0] == "stop"
