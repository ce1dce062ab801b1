"""The memory guard: a start with too little memory ends with its reason and is not repeated, until site.yml starts
it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from api_client import answers_again, completion
from live_cluster import Cluster
from testinfra.host import Host
from waiting import wait_until

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

GIB = 1 << 30
STATE = "/var/lib/gb10-memory-guard"
PRESENT = "/run/gb10-memory-guard/start.json"


def status(cluster: Cluster) -> str:
    return cluster.play("status").assert_ok().output


def available(host: Host) -> int:
    return int(host.check_output("awk '/^MemAvailable/ {print $2}' /proc/meminfo")) << 10


def starts(host: Host) -> list[dict[str, Any]]:
    return list(json.loads(host.file(f"{STATE}/starts.json").content_string))


def running(host: Host) -> set[str]:
    units = {
        unit: host.check_output(f"systemctl show --property=ActiveState --value {unit}")
        for unit in ("gb10-ray", "gb10-vllm")
    }
    return {unit for unit, state in units.items() if state not in ("inactive", "failed")}


@pytest.mark.parametrize("executor", ["ray", "mp"])
def test_a_start_below_the_floor_stays_stopped_until_site_starts_it(
    cluster: Cluster, nodes: dict[str, Host], head: Host, executor: str
) -> None:
    floor = available(head) // GIB + 4
    given = {
        "gb10_distributed_executor_backend": executor,
        # Other inputs, so that the server restarts.
        "gb10_served_model_name": f"below-{executor}",
        "vllm_serve_rollback": False,
    }
    cluster.serve("--extra-vars", json.dumps({**given, "vllm_serve_memory_floor": floor})).assert_failed(
        "the memory guard stopped the services: only ", f"less than {floor} GiB (vllm_serve_memory_floor); cause: "
    )
    stopped = [host for host in nodes.values() if host.file(f"{STATE}/stop.json").exists]
    assert stopped
    assert [starts(host)[-1]["end"] for host in stopped] == ["stopped"] * len(stopped)
    # Longer than gb10_restart_delay.
    time.sleep(15)
    for host in stopped:
        assert running(host) == set()
        host.run("systemctl start gb10-ray gb10-vllm")
        assert running(host) == set(), "the record refuses a start by hand too"
    assert "has its services stopped: only " in (shown := status(cluster))
    assert "troubleshooting.md#memory-floor" in shown
    cluster.serve("--extra-vars", json.dumps(given)).assert_ok()
    assert not any(host.file(f"{STATE}/stop.json").exists for host in nodes.values())
    assert "has its services stopped" not in (shown := status(cluster))
    assert shown.count(" GiB available, lowest ") == len(nodes)


def test_a_stopped_node_stays_stopped_after_a_boot(cluster: Cluster, head: Host) -> None:
    head.check_output(
        f"echo '{json.dumps({'minimum': GIB, 'floor': 2 * GIB, 'seconds': 34, 'phase': 'start'})}' >{STATE}/stop.json"
    )
    host = cluster.reboot("spark1", head)
    host.check_output("systemctl is-system-running --wait || true")
    assert running(host) == set()
    assert "spark1 has its services stopped: only 1.0 GiB of memory were available 34 s after" in status(cluster)
    cluster.serve().assert_ok()
    answers_again(host)


def test_a_restart_by_systemd_is_a_start_on_every_node(cluster: Cluster) -> None:
    cluster.serve().assert_ok()
    nodes = {name: cluster.connect(name) for name in cluster.groups["gb10_cluster"]}
    head = nodes["spark1"]
    wait_until(lambda: not head.file(PRESENT).exists, 180, "the start of the run does not end", 3)
    before = len(starts(head))
    began = {
        name: json.loads(host.file(PRESENT).content_string)["time"] if host.file(PRESENT).exists else 0
        for name, host in nodes.items()
    }
    head.check_output("pkill --signal KILL VLLM::EngineCor")
    answers_again(head)
    for name, host in nodes.items():
        assert json.loads(host.file(PRESENT).content_string)["time"] > began[name], f"the guard of {name} saw no start"
    wait_until(lambda: starts(head)[before:] and starts(head)[-1]["end"] == "answered", 180, pause=3)
    assert 0 < starts(head)[-1]["minimum"] < available(head) * 2
    assert completion(head).strip()
