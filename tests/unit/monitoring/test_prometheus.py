"""Rules, scrape configuration and dashboard, with the programs of Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, load_yaml, read
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import dashboard, metrics, scrape
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import Site

RULES = read("roles/monitoring/files/rules.yml")
ENTRIES: list[dict[str, Any]] = load_yaml(RULES)["groups"][0]["rules"]
ALERTS = {rule["alert"]: rule for rule in ENTRIES if "alert" in rule}
promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: apt-get install prometheus")
SITE = Site("sparks", {"spark1": "192.168.1.11", "spark2": "fd00::12"})
TLS = {"api_tls": {"digest": "ab", "until": "2027-01-01"}, "api": {"endpoint": "https://spark1.example:8000"}}
#: Minutes after the start. Samples have a distance of a minute.
NOW = 90
DAY, GIB = 86400, 1 << 30


def checked(folder: Path, *arguments: str, **files: str) -> str:
    """Write the files, and return the output of promtool in their folder. Fails with it."""
    for name, content in {**files, "ca": "", "key": ""}.items():
        (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")
    (folder / "sparks-ca.crt").write_text("", encoding="utf-8")
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def node(metric: str, value: object, **labels: str) -> dict[str, str]:
    """Return a metric of spark1 that keeps its value, or has the values of promtool's notation."""
    return series(metric, value, {"cluster": "sparks", "node": "spark1", **labels})


def series(metric: str, value: object, labels: dict[str, str]) -> dict[str, str]:
    listed = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return {"series": f"{metric}{{{listed}}}", "values": str(value) if "x" in str(value) else f"{value}x{NOW}"}


def gpu(metric: str, value: object) -> dict[str, str]:
    return node(f"gb10_gpu_{metric}", value, gpu="0")


def busy(steps: str, cache: str, running: int) -> list[dict[str, str]]:
    return [
        node("vllm:num_requests_running", running, engine="0"),
        node("vllm:iteration_tokens_total_count", steps, engine="0"),
        node("vllm:kv_cache_usage_perc", cache, engine="0"),
    ]


def draft(accepted: str) -> list[dict[str, str]]:
    return [
        node("vllm:spec_decode_num_draft_tokens_total", f"0+60x{NOW}", engine="0"),
        node("vllm:spec_decode_num_accepted_tokens_total", accepted, engine="0"),
    ]


def link(metric: str, value: object, device: str = "enp1s0f1np1") -> list[dict[str, str]]:
    planned = node("gb10_link_planned_mtu_bytes", 9000, device="enp1s0f1np1")
    return [planned, node(f"node_network_{metric}", value, device=device)]


def versions(second: str) -> list[dict[str, str]]:
    labels = {"cluster": "sparks", "component": "driver"}
    return [
        series("gb10_version_info", 1, {**labels, "node": "spark1", "version": "580.178.04"}),
        series("gb10_version_info", 1, {**labels, "node": "spark2", "version": second}),
    ]


def disk(mount: str, size: int) -> list[dict[str, str]]:
    return [node("node_filesystem_avail_bytes", size, mountpoint=mount, fstype="ext4")]


def restarts(count: int, limit: list[int]) -> list[dict[str, str]]:
    limits = [node("gb10_watchdog_restarts_limit", each) for each in limit]
    return [node("gb10_service_failed", 0, unit="gb10-vllm.service"), node("gb10_watchdog_restarts", count), *limits]


VLLM_GONE = node("gb10_service_active", 0, unit="gb10-vllm.service")
#: Alert, series, whether it fires. Each alert has both.
CASES: list[tuple[str, list[dict[str, str]], bool]] = [
    ("GB10MemoryLow", [node("node_memory_MemAvailable_bytes", 8 * GIB - 1)], True),
    ("GB10MemoryLow", [node("node_memory_MemAvailable_bytes", 8 * GIB)], False),
    ("GB10MemoryCritical", [node("node_memory_MemAvailable_bytes", 4 * GIB - 1)], True),
    ("GB10MemoryCritical", [node("node_memory_MemAvailable_bytes", 4 * GIB)], False),
    ("GB10EngineStalled", busy("500", "0.3", 2), True),
    ("GB10EngineStalled", busy("500", "0.3", 0), False),
    ("GB10EngineStalled", busy(f"0+60x{NOW}", "0.3", 2), False),
    # A long prompt is read.
    ("GB10EngineStalled", busy("500", f"0.1+0.001x{NOW}", 2), False),
    ("GB10GpuHot", [gpu("temperature_celsius", 86)], True),
    ("GB10GpuHot", [gpu("temperature_celsius", 85)], False),
    # Hot for a minute.
    ("GB10GpuHot", [gpu("temperature_celsius", f"70x{NOW - 2} 86x1")], False),
    ("GB10GpuTooHot", [gpu("temperature_celsius", 91)], True),
    ("GB10GpuTooHot", [gpu("temperature_celsius", 90)], False),
    ("GB10ClockStuck", [gpu("sm_clock_hertz", 850e6), gpu("utilization_ratio", 0.96)], True),
    ("GB10ClockStuck", [gpu("sm_clock_hertz", 850e6), gpu("utilization_ratio", 0.8)], False),
    ("GB10ClockStuck", [gpu("sm_clock_hertz", 2100e6), gpu("utilization_ratio", 0.96)], False),
    ("GB10PowerStuck", [gpu("power_watts", 29), gpu("utilization_ratio", 0.96)], True),
    ("GB10PowerStuck", [gpu("power_watts", 29), gpu("utilization_ratio", 0.9)], False),
    ("GB10PowerStuck", [gpu("power_watts", 60), gpu("utilization_ratio", 0.96)], False),
    ("GB10NodeGone", [node("up", 0, job="gb10-node")], True),
    ("GB10NodeGone", [node("up", 1, job="gb10-node")], False),
    ("GB10ServerGone", [node("up", 0, job="gb10-vllm")], True),
    ("GB10ServerGone", [node("up", 1, job="gb10-vllm")], False),
    ("GB10RankGone", [node("gb10_service_active", 0, unit="gb10-ray.service")], True),
    ("GB10RankGone", [node("gb10_service_active", 1, unit="gb10-ray.service")], False),
    ("GB10RankGone", [VLLM_GONE], True),
    ("GB10RankGone", [VLLM_GONE, node("gb10_resting", 0)], True),
    ("GB10RankGone", [VLLM_GONE, node("gb10_resting", 1)], False),
    ("GB10RankGone", [node("gb10_service_active", 0, unit="gb10-ray.service"), node("gb10_resting", 1)], True),
    ("GB10ServerGone", [node("up", 0, job="gb10-vllm"), node("gb10_resting", 1)], False),
    ("GB10Unmeasured", [node("gb10_gpu_readable", 0)], True),
    ("GB10Unmeasured", [node("gb10_gpu_readable", 1)], False),
    ("GB10Unmeasured", [node("node_textfile_mtime_seconds", NOW * 60 - 300, file="/run/gb10-metrics/gb10.prom")], True),
    ("GB10Unmeasured", [node("node_textfile_mtime_seconds", f"0+60x{NOW}", file="/run/gb10-metrics/gb10.prom")], False),
    ("GB10DriverError", [node("gb10_kernel_errors_total", f"0x{NOW - 3} 1x3", kind="xid")], True),
    # An old error, and a restart of the node.
    ("GB10DriverError", [node("gb10_kernel_errors_total", f"0x{NOW - 30} 1x30", kind="xid")], False),
    ("GB10DriverError", [node("gb10_kernel_errors_total", f"3x{NOW - 3} 0x3", kind="xid")], False),
    ("GB10CmaImpossible", [node("node_memory_CmaFree_bytes", 2), node("node_memory_CmaTotal_bytes", 1)], True),
    ("GB10CmaImpossible", [node("node_memory_CmaFree_bytes", 1), node("node_memory_CmaTotal_bytes", 1)], False),
    ("GB10VersionsDiffer", versions("580.142"), True),
    ("GB10VersionsDiffer", versions("580.178.04"), False),
    ("GB10LinkMtu", link("mtu_bytes", 1500), True),
    ("GB10LinkMtu", link("mtu_bytes", 9000), False),
    ("GB10LinkMtu", link("mtu_bytes", 1500, "eth0"), False),
    ("GB10LinkSlow", link("speed_bytes", f"25e9x{NOW - 5} 12.5e9x5"), True),
    ("GB10LinkSlow", link("speed_bytes", 25e9), False),
    ("GB10LinkSlow", link("carrier", 0), True),
    ("GB10LinkSlow", link("carrier", 0, "eth0"), False),
    ("GB10DiskFull", disk("/", 20 * GIB - 1), True),
    ("GB10DiskFull", disk("/", 20 * GIB), False),
    ("GB10DiskFull", disk("/boot/efi", GIB), False),
    ("GB10DraftUseless", draft("0"), True),
    ("GB10DraftUseless", draft(f"0+1x{NOW}"), False),
    ("GB10DraftUseless", [node("vllm:spec_decode_num_accepted_tokens_total", 0, engine="0")], False),
    ("GB10RestartsUsed", [node("gb10_service_failed", 1, unit="gb10-vllm.service")], True),
    ("GB10RestartsUsed", restarts(3, [3]), True),
    ("GB10RestartsUsed", restarts(2, [3]), False),
    # The watchdog only reports.
    ("GB10RestartsUsed", restarts(0, []), False),
    ("GB10CertificateExpires", [node("gb10_certificate_expiry_timestamp_seconds", 29 * DAY)], True),
    ("GB10CertificateExpires", [node("gb10_certificate_expiry_timestamp_seconds", 31 * DAY)], False),
    ("GB10GoldenOld", [node("gb10_golden_timestamp_seconds", -31 * DAY)], True),
    ("GB10GoldenOld", [node("gb10_golden_timestamp_seconds", -29 * DAY)], False),
]


@promtool
@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_and_is_silent(alert: str, tmp_path: Path) -> None:
    cases = [(found, fires) for name, found, fires in CASES if name == alert]
    assert {fires for _found, fires in cases} == {True, False}
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    tests = []
    for found, fires in cases:
        test = {"expr": expression, "eval_time": f"{NOW}m", "exp_samples": [{"labels": "{}", "value": 1}] * fires}
        tests.append({"interval": "1m", "input_series": found, "promql_expr_test": [test]})
    # Without the other alerts, which would take ten times as long.
    rules = {"groups": [{"name": "gb10", "rules": [rule for rule in ENTRIES if rule.get("alert", alert) == alert]}]}
    given = {"rule_files": ["rules.yml"], "evaluation_interval": "30s", "tests": tests}
    checked(tmp_path, "test", "rules", "test.yml", rules_yml=json.dumps(rules), test_yml=json.dumps(given))


@promtool
@pytest.mark.parametrize(
    ("record", "given", "value"),
    [
        ("gb10:prefix_cache_hits:ratio5m", {"prefix_cache_hits_total": 30, "prefix_cache_queries_total": 60}, 0.5),
        ("gb10:draft_accepted:ratio5m", {"accepted": 15, "draft": 60}, 0.25),
        ("gb10:draft_tokens_of_step:mean5m", {"accepted": 120, "spec_decode_num_drafts_total": 60}, 3),
        ("gb10:generated_tokens:rate1m", {"generation_tokens_total": 120}, 2),
        ("gb10:read_tokens:rate1m", {"prompt_tokens_total": 60}, 1),
        ("gb10:generated_tokens_of_watt:rate1m", {"generation_tokens_total": 120}, 0.05),
    ],
)
def test_a_recording_has_its_value(record: str, given: dict[str, int], value: float, tmp_path: Path) -> None:
    names = {name: f"spec_decode_num_{name}_tokens_total" for name in ("accepted", "draft")}
    # A sample each 15 seconds, and two nodes with 20 W each.
    found = [
        node(f"vllm:{names.get(name, name)}", f"0+{count / 4:g}x{NOW}", engine="0") for name, count in given.items()
    ]
    found += [series("gb10_gpu_power_watts", 20, {"cluster": "sparks", "node": name}) for name in "ab"]
    expected = [{"labels": f'{{__name__="{record}",cluster="sparks"}}', "value": value}]
    test = {"expr": record, "eval_time": "20m", "exp_samples": expected}
    tests = [{"interval": "15s", "input_series": found, "promql_expr_test": [test]}]
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": tests}
    checked(tmp_path, "test", "rules", "test.yml", rules_yml=RULES, test_yml=json.dumps(document))


@promtool
@pytest.mark.parametrize("changes", [{}, TLS, {"executor": "mp"}, {"api_host": "127.0.0.1"}], ids=str)
def test_prometheus_accepts_the_configuration(changes: dict[str, Any], tmp_path: Path) -> None:
    plan = typed(changes)
    # Two clusters in one configuration, with an Alertmanager.
    sites = (SITE, replace(SITE, cluster="other"))
    (tmp_path / "other-ca.crt").write_text("", encoding="utf-8")
    given = [job for site in sites for job in scrape.jobs(plan, monitoring_plan.ports(plan, 9100), site)]
    text = scrape.text(given, "127.0.0.1:9093")
    found = checked(tmp_path, "check", "config", "prometheus.yml", prometheus_yml=text, rules_yml=RULES)
    assert f"{len(ENTRIES)} rules found" in found


@promtool
def test_each_query_of_the_dashboard_parses(tmp_path: Path) -> None:
    filled = [expr.replace("$cluster", ".*").replace("$node", ".*") for expr in queries()]
    entries = [{"record": f"query{index}", "expr": expr} for index, expr in enumerate(filled)]
    text = json.dumps({"groups": [{"name": "dashboard", "rules": entries}]})
    assert f"{len(entries)} rules found" in checked(tmp_path, "check", "rules", "dashboard.yml", dashboard_yml=text)


def queries() -> list[str]:
    return [target["expr"] for panel in dashboard.document()["panels"] for target in panel.get("targets", ())]


def test_rules_and_dashboard_use_known_metrics() -> None:
    listed = read("tests/unit/data/monitoring_metrics.txt").splitlines()[1:]
    others = {line.split()[0] for line in listed if len(line.split()) > 1}
    known = others | metrics.METRICS.keys() | {rule["record"] for rule in ENTRIES if "record" in rule}
    texts = [*queries(), *(rule["expr"] for rule in ENTRIES)]
    used = {name for text in texts for name in re.findall(r"\b(?:gb10[_:]|vllm:|node_|ray_)[\w:]+", text)}
    assert (used - known, others - used) == (set(), set())


def test_each_metric_of_the_collector_is_used() -> None:
    texts = " ".join([*queries(), *(rule["expr"] for rule in ENTRIES)])
    assert [name for name in metrics.METRICS if not re.search(rf"\b{name}\b", texts)] == ["gb10_watchdog_armed"]


def test_each_alert_names_a_section_that_exists() -> None:
    for alert, rule in ALERTS.items():
        place, _slash, end = rule["annotations"]["runbook_url"].rpartition("/")
        assert place == "https://github.com/gb10-cluster/gb10.cluster/blob/main/docs"
        page, _hash, anchor = end.partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}, alert


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in dashboard.document()["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert {x for x, _y in cells} == set(range(24)), "the width of Grafana"


def test_a_share_ends_at_one_and_other_axes_are_open() -> None:
    for panel in dashboard.document()["panels"]:
        if panel["type"] != "row":
            found = panel["fieldConfig"]["defaults"]
            assert (found["min"], found.get("max")) == (0, 1 if found["unit"] == "percentunit" else None), panel[
                "title"
            ]
            states = panel["type"] == "state-timeline"
            assert states is ("mappings" in found)


def test_every_cluster_and_node_is_shown_until_some_are_chosen() -> None:
    source, *variables = dashboard.document()["templating"]["list"]
    assert source["type"] == "datasource"
    for each in variables:
        assert each["multi"] and each["includeAll"] and each["current"]["value"] == "$__all"
    assert json.loads(dashboard.text()) == dashboard.document()


def jobs(changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the jobs of a plan by name, without their own one and the cluster's."""
    plan = typed(changes)
    lines = scrape.text(scrape.jobs(plan, monitoring_plan.ports(plan, 9100), SITE)).splitlines()
    found = [json.loads(line[4:]) for line in lines if line.startswith("  - ")]
    return {job.pop("job_name").removesuffix("-sparks"): job for job in found}


def test_every_node_and_the_api_are_scraped() -> None:
    found = jobs(TLS)
    assert [target["targets"] for target in found["gb10-node"]["static_configs"]] == [
        ["192.168.1.11:9100"],
        ["[fd00::12]:9100"],
    ]
    (target,) = found["gb10-vllm"]["static_configs"]
    labels = {"job": "gb10-vllm", "cluster": "sparks", "node": "spark1"}
    assert target == {"targets": ["spark1.example:8000"], "labels": labels}
    assert (found["gb10-vllm"]["scheme"], found["gb10-vllm"]["tls_config"]) == ("https", {"ca_file": "sparks-ca.crt"})
    assert len(found["gb10-ray"]["static_configs"]) == 2


def test_what_does_not_exist_is_not_scraped() -> None:
    assert list(jobs({"executor": "mp", "api_host": "127.0.0.1"})) == ["gb10-node"]


@pytest.mark.parametrize(
    ("changes", "clients", "expected"),
    [
        ({}, ["192.168.1.5"], ""),
        ({}, [], "monitoring_clients is empty"),
        ({"api_clients": ["192.168.1.0/24"]}, ["10.0.0.5"], "add it to gb10_api_clients"),
        ({"api_clients": ["10.0.0.0/8", "fd00::/8"]}, ["10.0.0.5", "fd00::1"], ""),
        ({"api_clients": ["10.0.0.0/8"]}, ["no address"], "add it to gb10_api_clients"),
        ({"api_host": "127.0.0.1"}, ["10.0.0.5"], "change gb10_api_host"),
    ],
)
def test_unreachable_metrics_are_named(changes: dict[str, Any], clients: list[str], expected: str) -> None:
    found = scrape.notes(typed(changes), clients)
    assert expected in " ".join(found)
    assert len(found) == bool(expected)


def test_a_row_begins_below_the_panels_of_the_one_before() -> None:
    panels = dashboard.document()["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    below, place = 0, (0, 0)
    for panel in panels:
        where = panel["gridPos"]
        if panel["type"] == "row":
            assert (where["x"], where["y"], where["w"], where["h"]) == (0, below, 24, 1)
            below, place = below + 1, (0, below + 1)
        else:
            assert (where["x"], where["y"], where["w"], where["h"]) == (*place, 8, 8)
            below, place = where["y"] + 8, (0, where["y"] + 8) if where["x"] == 16 else (where["x"] + 8, where["y"])
            assert [target["refId"] for target in panel["targets"]] == list("ABC"[: len(panel["targets"])])


def test_a_state_has_its_text_and_color() -> None:
    mappings = {
        panel["title"]: panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
        for panel in dashboard.document()["panels"]
        if panel["type"] == "state-timeline"
    }
    assert mappings["Services"] == {"0": {"text": "stopped", "color": "red"}, "1": {"text": "runs", "color": "green"}}
    assert list(mappings) == ["Alerts", "Services", "Rest", "Reasons for a lower clock"]


def test_the_dashboard_differs_by_lines_and_reads_its_variables_again() -> None:
    assert dashboard.text().startswith('{\n "title": "GB10 clusters",\n "uid"') and dashboard.text().endswith("}\n")
    found = dashboard.document()
    assert [each["refresh"] for each in found["templating"]["list"][1:]] == [2, 2], "also at another range of time"
    assert found["schemaVersion"] == 39, "Grafana migrates an older one"
