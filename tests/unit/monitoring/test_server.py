"""Prometheus and Alertmanager on a host of the inventory: problems, units, and the plan for several clusters."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from decisions import decide
from rendered_units import SETTINGS
from typed_plans import fact, typed

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import scrape, server
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import ServerSettings, Site

GIVEN = ServerSettings(9090, 9093, [], 30, 8)
JOBS = scrape.jobs(typed({}), [9100, 6385], Site("sparks", {"spark1": "192.168.1.11", "spark2": "192.168.1.12"}))
WEBHOOK = "https://hooks.example/planted"


@pytest.mark.parametrize(
    ("changes", "webhook", "expected"),
    [
        ({}, "", ""),
        ({}, WEBHOOK, ""),
        ({"clients": ["10.0.0.5", "fd00::/8"]}, "", ""),
        ({"clients": ["any\nExecStartPre=/bin/id"]}, "", "monitoring_server_clients[0]: "),
        ({"port": 0}, "", "monitoring_server_port: 0. Expected: 1 to 65535"),
        ({"days": 0}, "", "monitoring_server_days: 0. "),
        ({"size": 5000}, "", "monitoring_server_size: 5000. "),
        ({"alerts_port": 9090}, "", "monitoring_server_alerts_port: 9090 is also "),
        ({}, "hooks.example/planted", "monitoring_server_webhook: not a URL"),
        ({}, "https:///planted", "monitoring_server_webhook: not a URL"),
        ({}, f"{WEBHOOK}\nroute: planted", "monitoring_server_webhook: not a URL"),
    ],
)
def test_a_wrong_variable_is_one_problem(changes: dict[str, Any], webhook: str, expected: str) -> None:
    found = list(map(str, server.check(replace(GIVEN, **changes), webhook, JOBS)))
    assert [text for text in found if not text.startswith(expected)] == []
    assert len(found) == bool(expected)
    assert "planted" not in "".join(found)


def test_the_filter_of_addresses_needs_addresses() -> None:
    named = scrape.jobs(typed({}), [9100], Site("sparks", {"spark1": "spark1.example"}))
    assert server.check(GIVEN, "", named) == []
    (problem,) = server.check(replace(GIVEN, clients=["10.0.0.5"]), "", named)
    assert "spark1.example is a name" in str(problem)


def texts(**changes: Any) -> dict[str, str]:
    return {unit["name"]: unit["text"] for unit in server.units(JOBS, replace(GIVEN, **changes), "")}


def test_prometheus_listens_on_loopback_unless_clients_are_named() -> None:
    assert "--web.listen-address=127.0.0.1:9090\n" in texts()[paths.PROMETHEUS_UNIT]
    assert "IPAddress" not in "".join(texts().values())
    unit = texts(clients=["10.0.0.5"])[paths.PROMETHEUS_UNIT]
    assert "--web.listen-address=:9090\n" in unit
    assert "IPAddressDeny=any\nIPAddressAllow=localhost 10.0.0.5 192.168.1.11 192.168.1.12" in unit
    alerts = texts(clients=["10.0.0.5"])[paths.ALERTMANAGER_UNIT]
    assert "--web.listen-address=127.0.0.1:9093 --cluster.listen-address=\n" in alerts


def test_a_changed_configuration_restarts_prometheus_alone() -> None:
    changed = [{**JOBS[0], "scrape_interval": "5s"}, *JOBS[1:]]
    before, after = (
        {unit["name"]: unit["inputs"] for unit in server.units(jobs, GIVEN, "")} for jobs in (JOBS, changed)
    )
    assert [name for name in before if before[name] != after[name]] == [paths.PROMETHEUS_UNIT]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is missing")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for name, text in texts(clients=["10.0.0.5"]).items():
        # systemd looks for the programs.
        changed = text.replace("/usr/bin/prometheus-alertmanager", "/bin/true").replace(
            "/usr/bin/prometheus", "/bin/true"
        )
        (tmp_path / name).write_text(changed, encoding="utf-8")
    units = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line or "gb10-" in line] == []


def test_grafana_has_the_data_source_and_the_folder_of_the_dashboard() -> None:
    source, provider = (json.loads(text.partition("\n")[2]) for text in server.grafana(GIVEN).values())
    assert source["datasources"][0]["url"] == "http://127.0.0.1:9090"
    folder = provider["providers"][0]["options"]["path"]
    assert f"{folder}/gb10.json" in server.files(JOBS, GIVEN, "")


def planned(heads: dict[str, str], enabled: dict[str, bool], **variables: Any) -> dict[str, Any]:
    """Return the decision of a host outside of the clusters."""
    metrics = {**SETTINGS, "monitoring_clients": ["10.0.0.5"], "monitoring_port": 9100}
    hosts = {
        head: {"gb10_plan": fact({}), "gb10_inputs": {"settings": {**metrics, "monitoring_enabled": enabled[head]}}}
        for head in heads.values()
    }
    found, _calls = decide(
        "monitoring_server_plan",
        {"heads": heads, **asdict(GIVEN)},
        fact({}),
        hosts=hosts,
        variables={"inventory_hostname": "monitor", "ansible_host": "10.0.0.5", **variables},
    )
    return found


def test_one_prometheus_has_the_clusters_with_metrics() -> None:
    found = planned({"large": "a", "small": "b", "other": "c"}, {"a": True, "b": True, "c": False})
    assert [each["head"] for each in found["clusters"]] == ["a", "b"]
    text = next(each["content"] for each in found["files"] if each["path"].endswith("prometheus.yml"))
    assert text.count('"job_name": "gb10-node-') == 2
    assert found["notes"] == []


def test_what_prometheus_lacks_is_named() -> None:
    assert "no cluster has metrics" in planned({"": "a"}, {"a": False})["msg"]
    found = planned({"": "a"}, {"a": True}, ansible_host="10.0.0.6")
    assert found["notes"] == ["warning: the nodes refuse 10.0.0.6. Fix: add it to monitoring_clients"]
    (note,) = planned({"": "a"}, {"a": True}, inventory_hostname="spark1")["notes"]
    assert "spark1 is lost together with its metrics" in note


@pytest.mark.parametrize(("name", "most"), [("port", 65535), ("alerts_port", 65535), ("days", 3650), ("size", 4096)])
def test_a_number_may_be_each_one_from_one_to_its_most(name: str, most: int) -> None:
    found = {value: len(server.check(replace(GIVEN, **{name: value}), "", JOBS)) for value in (0, 1, most, most + 1)}  # type: ignore[arg-type]
    assert found == {0: 1, 1: 0, most: 0, most + 1: 1}


def test_a_wide_enough_network_of_clients_has_prometheus() -> None:
    assert scrape.unreachable("10.0.0.5", ["fd00::/8", "10.0.0.0/24"]) == scrape.unreachable("prometheus", []) == []
    refused = ["the nodes refuse 10.0.0.5. Fix: add it to monitoring_clients"]
    assert scrape.unreachable("10.0.0.5", ["10.0.1.0/24"]) == scrape.unreachable("10.0.0.5", []) == refused
