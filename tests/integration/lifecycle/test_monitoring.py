"""Prometheus and Alertmanager on a third host: a real vLLM with TLS is scraped, and faults reach a webhook."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import certificates
import factory_hosts
import pytest
from api_client import stream
from live_cluster import Cluster, extra, on_all
from repository import load_yaml, read
from root_file_system import put
from small_server import serving
from testinfra.host import Host
from unlisted_host import UnlistedHost
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import dashboard

pytestmark = [pytest.mark.slow, pytest.mark.disruptive]

SECRET, MONITOR = "planted-path-of-the-webhook", "monitor"
PACKAGES = ("prometheus-node-exporter", "prometheus", "prometheus-alertmanager")
UNITS = ("gb10-prometheus", "gb10-alertmanager")
#: The metrics that a lab cannot have, each with the reason. All other queries and metrics must have data.
MISSING = {
    "spec_decode": "the model has no draft",
    "gb10:draft": "the model has no draft",
    "node_infiniband": "the hosts have no RDMA",
    "node_memory_Cma": "the machine's kernel has no CMA",
    "gb10_kernel_errors_total": "a container has no /dev/kmsg",
    "node_filesystem_avail_bytes": "the root of a lab's host is an overlay, which is no disk",
}
#: Alert -> the value of its label node or unit, None without both. Each has a fault in this file.
EXPECTED = {
    "GB10CertificateExpires": "spark1",
    "GB10GoldenOld": "spark1",
    "GB10GpuHot": "spark2",
    "GB10GpuTooHot": "spark2",
    "GB10ClockStuck": "spark1",
    "GB10PowerStuck": "spark1",
    "GB10LinkMtu": "spark2",
    "GB10LinkSlow": "spark2",
    "GB10EngineStalled": "spark1",
    "GB10RankGone": "spark1",
    "GB10VersionsDiffer": None,
    "GB10Unmeasured": "spark1",
    "GB10ServerGone": "spark1",
    "GB10NodeGone": "spark2",
}
#: A rail that neither the API nor the ranks need.
RAIL = "enP2p1s0f1np1"
GPU, CA = "/usr/bin/nvidia-smi", "--cacert /etc/gb10/tls/ca.crt"


@dataclass
class Webhook:
    """What Alertmanager sent: (alert, node) -> its statuses in order."""

    received: dict[tuple[str, str | None], list[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        assert request.path == f"/{SECRET}"
        body = json.loads(request.body)  # type: ignore[attr-defined]
        with self.lock:
            for alert in body["alerts"]:
                key = alert["labels"]["alertname"], alert["labels"].get("node")
                if (seen := self.received.setdefault(key, []))[-1:] != [alert["status"]]:
                    seen.append(alert["status"])
        return 200, "", {}

    def lack(self, names: set[str], status: str) -> set[str]:
        """Return those alerts whose last status is another one."""
        with self.lock:
            found = {name for name in names if self.received.get((name, EXPECTED[name]), [""])[-1] == status}
        return names - found

    def wait(self, names: set[str], status: str, within: float) -> None:
        """Wait until all of these alerts have a status."""

        def done() -> bool:
            return not self.lack(names, status)

        try:
            wait_until(done, within, pause=2)
        except AssertionError:
            pytest.fail(f"not {status}: {self.lack(names, status)}; received: {self.received}")


@dataclass
class Monitored:
    """The cluster with TLS and metrics, Prometheus's host, the webhook, and the output of the first run."""

    cluster: Cluster
    folder: Path
    ca: certificates.Pair
    host: Host
    webhook: Webhook
    output: str = ""

    def certify(self, days: float) -> None:
        """Write a new certificate of the API."""
        self.ca.issue(str(self.cluster.nodes["spark1"]["ansible_host"]), days=days).write(self.folder, "api")

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of a request to Prometheus."""
        url = f"http://127.0.0.1:9090/api/v1/{path}?{urllib.parse.urlencode(query)}"
        return json.loads(self.host.check_output("curl --silent --max-time 30 %s", url))["data"]

    def has(self, expression: str) -> bool:
        """Return whether an expression had a number in the last hour."""
        now = float(self.ask("query", query="time()")["result"][1])
        span = {"start": str(now - 3600), "end": str(now), "step": "15"}
        found = self.ask("query_range", query=expression, **span)["result"]
        return any(not math.isnan(float(value)) for each in found for _time, value in each["values"])


def download(folder: Path, host: Host) -> None:
    """Write an index of the packages and of those of their dependencies that a lab's host lacks."""
    command = ["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts"]
    command += ["--no-breaks", "--no-replaces", "--no-enhances", *PACKAGES]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    installed = set(host.check_output("dpkg-query --show --showformat='${Package}\\n'").splitlines())
    names = {line for line in shown.splitlines() if re.match(r"[a-z0-9]", line)} - installed
    subprocess.run(["apt-get", "download", *sorted(names)], cwd=folder, check=True, capture_output=True)
    factory_hosts.renew(folder)


@pytest.fixture(scope="module")
def monitored(
    cluster: Cluster, nodes: dict[str, Host], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Monitored]:
    folder, packages = tmp_path_factory.mktemp("monitoring"), tmp_path_factory.mktemp("packages")
    packages.chmod(0o755)
    prefix = cluster.nodes["spark1"]["lab_prefix"]
    with_third = cluster.third_host("monitoring", MONITOR, folder)
    host = with_third.connect(MONITOR)
    ca, webhook = certificates.authority(), Webhook()
    download(packages, host)
    try:
        with factory_hosts.index(packages, f"{prefix}.1") as source, serving(webhook.answer, host=f"{prefix}.1") as url:
            for each in (host, *nodes.values()):
                put(each, "/etc/apt/sources.list", f"deb [trusted=yes] {source} ./\n", "644")
                each.check_output("rm -f /etc/apt/sources.list.d/* && apt-get update")
            (folder / "golden_result.json").write_text(
                json.dumps({"format": 1, "date": "2026-01-01"}), encoding="utf-8"
            )
            given = {
                "monitoring_enabled": True,
                "monitoring_clients": [with_third.nodes[MONITOR]["ansible_host"]],
                "monitoring_server_webhook": f"{url}/{SECRET}",
                "golden_directory": str(folder / "golden"),
                "golden_result_file": str(folder / "golden_result.json"),
                # Only one run of this file may update the age.
                "golden_enabled": False,
                "gb10_api_tls_certificate": str(folder / "api.crt"),
                "gb10_api_tls_key": str(folder / "api.key"),
                "gb10_api_tls_ca": ca.text,
            }
            arguments = [*with_third.arguments, *extra(**given)]
            found = Monitored(replace(cluster, arguments=arguments), folder, ca, host, webhook)
            found.certify(days=20)
            found.cluster.serve().assert_ok()
            found.output = found.cluster.site("--tags", "monitoring,peer_firewall", "--diff", "-vvv").assert_ok().output
            yield found
    finally:
        cluster.site("--tags", "peer_firewall,ray_cluster,vllm_serve,vllm_watchdog").assert_ok()


def test_a_preview_and_a_second_run_change_nothing(monitored: Monitored) -> None:
    monitored.cluster.site("--tags", "monitoring", "--check", "--diff").assert_unchanged()
    monitored.cluster.site("--tags", "monitoring").assert_unchanged()


def test_each_part_is_scraped_and_vllm_over_tls(monitored: Monitored) -> None:
    def scraped() -> list[str] | None:
        targets = monitored.ask("targets")["activeTargets"]
        return [each["scrapeUrl"] for each in targets] if {each["health"] for each in targets} == {"up"} else None

    urls = wait_until(scraped, 60, "a target is not up", 3)
    addresses = [monitored.cluster.nodes[name]["ansible_host"] for name in ("spark1", "spark2")]
    assert set(urls) == {
        *(f"http://{address}:{port}/metrics" for address in addresses for port in (9100, 6385)),
        f"https://{addresses[0]}:8000/metrics",
    }


def test_no_other_host_reaches_metrics_or_alerts(monitored: Monitored, unlisted_host: UnlistedHost) -> None:
    for name in ("spark1", "spark2"):
        address = str(monitored.cluster.nodes[name]["ansible_host"])
        assert (
            monitored.host.run(
                f"curl --silent --fail --max-time 10 --output /dev/null http://{address}:9100/metrics"
            ).rc
            == 0
        )
        assert unlisted_host.open(address, {22, 6385, 9100}) == {22}
    address = monitored.host.check_output("hostname --all-ip-addresses").split()[0]
    assert unlisted_host.open(address, {22, 9090, 9093, 9094, 9100}) == {22}


def test_the_webhook_is_shown_to_root_alone(monitored: Monitored) -> None:
    file = monitored.host.file("/etc/gb10/prometheus/alertmanager.yml")
    assert (file.mode, file.user, SECRET in file.content_string) == (0o600, "root", True)
    assert SECRET not in monitored.output
    for command in ("ps -eo args", "journalctl --no-pager --quiet --boot", "cat /etc/systemd/system/gb10-*"):
        assert SECRET not in monitored.host.check_output(command)


def test_the_services_of_the_packages_never_ran(monitored: Monitored, nodes: dict[str, Host]) -> None:
    for host, names in ((monitored.host, PACKAGES[1:]), *((node, PACKAGES[:1]) for node in nodes.values())):
        for name in names:
            shown = host.check_output(f"systemctl show --property=UnitFileState,ActiveEnterTimestamp --value {name}")
            assert shown.split() == ["disabled"], name
            assert not host.file(f"/etc/systemd/system/{name}.service.d/gb10.conf").exists


def gpu(host: Host, values: Mapping[str, str]) -> None:
    """Change values of the fixture of nvidia-smi on a host. The former program stays beside it."""
    changes = [f's/"{name}": ("[^"]*"/"{name}": ("{value}"/' for name, value in values.items()]
    options = " ".join(f"-e {shlex.quote(change)}" for change in changes)
    host.check_output(f"test -e {GPU}.former || cp -p {GPU} {GPU}.former; sed -i {options} {GPU}")


def restored(host: Host) -> None:
    host.check_output(f"! test -e {GPU}.former || mv {GPU}.former {GPU}")


def test_faults_are_sent_to_the_webhook_with_their_end(monitored: Monitored, nodes: dict[str, Host]) -> None:
    cluster, webhook, (head, worker) = monitored.cluster, monitored.webhook, nodes.values()
    variables = cluster.nodes["spark1"]
    url = f"https://{variables['ansible_host']}:8000"
    cable = ["ip", "-n", f"{variables['lab_name']}-spark1", "link", "set", RAIL]
    try:
        stream(head, CA, tokens=200, url=url)
        # A GPU under load that is slow, with bits of NVML: the limits of applications and of power.
        slow = {"power.draw": "20.00", "clocks.sm": "600", "utilization.gpu": "96"}
        gpu(head, {**slow, "clocks_event_reasons.active": "0x6"})
        gpu(worker, {"temperature.gpu": "95"})
        worker.check_output(f"sed -i 's/580.142/580.95/' {GPU}")
        worker.check_output(f"ip link set {RAIL} mtu 1500")
        subprocess.run([*cable, "down"], check=True)
        wait_until(lambda: monitored.has("vllm:generation_tokens_total > 100"), 120, "the stream generates nothing")
        # The watchdog would restart the stopped rank.
        on_all(nodes, "systemctl stop gb10-watchdog")
        stream(head, CA, url=url)
        time.sleep(2)
        worker.check_output("pkill -STOP ray::RayWorkerP")
        webhook.wait(
            set(EXPECTED) - {"GB10Unmeasured", "GB10ServerGone", "GB10NodeGone", "GB10VersionsDiffer"}, "firing", 700
        )
        head.check_output("systemctl stop gb10-vllm")
        webhook.wait({"GB10ServerGone", "GB10VersionsDiffer"}, "firing", 900)
        # Without an answer, a node has no version either.
        head.check_output(f"printf '#!/bin/sh\\necho No devices were found; exit 6\\n' >{GPU}")
        webhook.wait({"GB10Unmeasured"}, "firing", 300)
        cluster.power("off", "spark2")
        try:
            webhook.wait({"GB10NodeGone"}, "firing", 300)
        finally:
            cluster.power("on", "spark2")
    finally:
        subprocess.run([*cable, "up"], check=True)
        booted = cluster.booted("spark2")
        booted.check_output(f"ip link set {RAIL} mtu 9000")
        restored(booted)
        restored(head)
    monitored.certify(days=90)
    cluster.site("--tags", "ray_cluster,vllm_serve,vllm_watchdog,monitoring").assert_ok()
    done = cluster.play("golden").assert_ok()
    assert "Write the age of the golden answers for the collector" in done.changed_tasks()
    webhook.wait(set(EXPECTED), "resolved", 600)


def missing(text: str) -> bool:
    return any(part in text for part in MISSING)


def test_each_query_and_each_metric_of_an_alert_has_data(monitored: Monitored) -> None:
    queries = [target["expr"] for panel in dashboard.document()["panels"] for target in panel.get("targets", ())]
    filled = [each.replace("$cluster", ".*").replace("$node", ".*") for each in queries]
    rules = load_yaml(read("roles/monitoring/files/rules.yml"))
    listed = " ".join(rule["expr"] for rule in rules["groups"][0]["rules"])
    metrics = sorted(set(re.findall(r"\b(?:gb10[_:]|vllm:|node_)[\w:]+", listed)))
    lacking = {each for each in (*filled, *metrics) if not monitored.has(each)}
    assert lacking == {each for each in (*filled, *metrics) if missing(each)}


def test_off_stops_and_removes_all(monitored: Monitored, nodes: dict[str, Host]) -> None:
    for check in (["--check"], []):
        off = extra(monitoring_server_state="absent", monitoring_enabled=False)
        # The server needs no cluster with metrics for its removal.
        monitored.cluster.site("--tags", "monitoring", *check, *off).assert_ok()
        running = monitored.host.run("systemctl is-active gb10-prometheus gb10-alertmanager").stdout.split()
        assert running == (["active", "active"] if check else ["inactive", "inactive"])
    for path in ("/etc/gb10/prometheus", "/var/lib/gb10-prometheus", "/var/lib/gb10-alertmanager"):
        assert not monitored.host.file(path).exists
    for host in (monitored.host, *nodes.values()):
        assert (
            host.check_output(
                "ls /etc/systemd/system | grep -e gb10-metrics -e gb10-node -e gb10-prom -e gb10-alert || true"
            )
            == ""
        )
        assert not {9090, 9093, 9100} & {
            int(each.rpartition(":")[2]) for each in host.check_output("ss -Hltn | awk '{print $4}'").split()
        }
    monitored.cluster.site("--tags", "monitoring", *off).assert_unchanged()
