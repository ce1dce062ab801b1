"""Gates before each start: a closed gate is named and opens again, restarts end with a reason, and nodes come back in
any order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from api_client import API, CURL, answers_again, completion
from live_cluster import Cluster, extra
from testinfra.host import Host
from waiting import wait_until

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

RAIL, MTU = "enp1s0f1np1", 9000
#: A start waits 20 s for its gates and 20 s for Ray, and two starts are permitted.
SHORT = {
    "gb10_gate_timeout": 20,
    "vllm_serve_ray_timeout": 20,
    "gb10_restart_attempts": 2,
    "gb10_restart_delay": 1,
    "gb10_restart_max_delay": 1,
}


def until_shown(cluster: Cluster, *words: str, within: float = 180) -> str:
    """Return the status as soon as it has all words."""

    def shown() -> str | None:
        found = cluster.status()
        return found if all(word in found for word in words) else None

    return wait_until(shown, within, f"the status does not show {words}", 3)


@pytest.fixture(scope="module", autouse=True)
def short(cluster: Cluster) -> Iterator[None]:
    cluster.serve(*extra(**SHORT)).assert_ok()
    yield
    cluster.serve().assert_ok()


def test_a_wrong_mtu_stops_the_service_with_its_reason_and_site_recovers(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    worker = nodes["spark2"]
    worker.check_output(f"ip link set dev {RAIL} mtu 1500")
    worker.run("systemctl reset-failed gb10-ray; systemctl restart gb10-ray")
    shown = until_shown(cluster, "spark2 has gb10-ray failed", "gates.fabric")
    assert f"spark2.gates.fabric.{RAIL}: MTU 1500. Expected: MTU {MTU} (gb10_fabric_mtu). Fix: " in shown
    starts = "journalctl --no-pager --quiet --boot --unit=gb10-ray --output=cat --grep='gb10-gates refused' | wc -l"
    before = worker.check_output(starts)
    time.sleep(30)
    assert worker.check_output(starts) == before, "there is no further start"
    worker.check_output(f"ip link set dev {RAIL} mtu {MTU}")
    cluster.serve(*extra(**SHORT)).assert_ok()
    assert completion(head).strip()


def test_too_little_memory_is_named_with_its_process(cluster: Cluster, head: Host) -> None:
    path = "/etc/gb10/gates.json"
    before = head.file(path).content_string
    wanted = json.dumps({**json.loads(before), "memory": 1 << 50})
    try:
        head.check_output(f"tee {path} >/dev/null <<'E'\n{wanted}\nE")
        # Every start counts, also those of the test before.
        head.run("systemctl reset-failed gb10-vllm; systemctl restart --no-block gb10-vllm")
        shown = until_shown(cluster, "gates.memory")
        assert "the largest processes are" in shown
    finally:
        head.check_output(f"tee {path} >/dev/null <<'E'\n{before}\nE")
    cluster.serve(*extra(**SHORT)).assert_ok()
    assert completion(head).strip()


def test_a_missing_peer_is_named_and_the_limit_of_starts_holds(cluster: Cluster, nodes: dict[str, Host]) -> None:
    cluster.power("off", "spark1")
    try:
        worker = nodes["spark2"]
        worker.run("systemctl reset-failed gb10-ray; systemctl restart --no-block gb10-ray")
        wait_until(lambda: not worker.run("systemctl is-failed gb10-ray").rc, 180, "gb10-ray does not stop", 3)
        log = worker.check_output("journalctl --no-pager --quiet --boot --unit=gb10-ray --output=cat --lines=50")
        assert "spark2.gates.peers.spark1: 10.110.0.1 does not answer. Expected: Ray listens on port 6379" in log
    finally:
        cluster.power("on", "spark1")
    back = cluster.booted("spark1")
    cluster.serve(*extra(**SHORT)).assert_ok()
    assert completion(back).strip()


@pytest.mark.parametrize(
    ("executor", "reason"),
    [("ray", "spark2 (10.110.0.2) has not joined"), ("mp", "spark1.gates.peers.spark2")],
    ids=["ray", "mp"],
)
def test_rails_that_stay_down_stop_the_model_with_a_reason(
    cluster: Cluster, head: Host, executor: str, reason: str
) -> None:
    settings = extra(**SHORT, gb10_distributed_executor_backend=executor)
    cluster.serve(*settings).assert_ok()
    cluster.rails("spark2", "down")
    try:
        # Nothing of the engine notices the links while no request runs.
        head.run(
            f"{CURL} --silent --max-time 30 --json '{json.dumps({'model': 'tiny', 'prompt': 'Hello'})}' "
            f"{API}/v1/completions"
        )
        wait_until(lambda: not head.run("systemctl is-failed gb10-vllm").rc, 300, "gb10-vllm does not stop", 3)
        shown = until_shown(cluster, "spark1 has gb10-vllm failed", reason)
        assert "spark1 has no link at enp1s0f1np1" in shown
    finally:
        cluster.rails("spark2", "up")
    cluster.serve(*settings).assert_ok()
    assert completion(head).strip()


@pytest.mark.parametrize("lost", [("spark1", "spark2"), ("spark2",), ("spark1",)], ids=["both", "worker", "head"])
def test_after_a_power_cut_the_model_answers_without_intervention(cluster: Cluster, lost: tuple[str, ...]) -> None:
    cluster.serve().assert_ok()
    cluster.power("off", *lost)
    cluster.power("on", *reversed(lost))
    answers_again(cluster.booted("spark1"))
