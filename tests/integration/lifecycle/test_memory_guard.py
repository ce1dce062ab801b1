"""The memory guard: a start with too little memory ends with its reason and is not repeated, until site.yml starts
it. Ranks that serve are ended once, and their services stopped the second time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_client import answers_again, completion
from live_cluster import Cluster, extra, of_unit, started
from testinfra.host import Host
from waiting import wait_until

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

GIB = 1 << 30
STATE = "/var/lib/gb10-memory-guard"
PRESENT = "/run/gb10-memory-guard/start.json"


def available(host: Host) -> int:
    return int(host.check_output("awk '/^MemAvailable/ {print $2}' /proc/meminfo")) << 10


def starts(host: Host) -> list[dict[str, Any]]:
    return list(json.loads(host.file(f"{STATE}/starts.json").content_string))


def running(host: Host) -> set[str]:
    units = ("gb10-ray", "gb10-vllm")
    return {unit for unit in units if of_unit(host, unit, "ActiveState") not in ("inactive", "failed")}


#: GiB below the memory that is available while the model serves: both nodes of the lab load it again in this memory.
MARGIN = 4
DROP_IN = "/run/systemd/system/gb10-memory-guard.service.d"
HOG = "gb10-test-hog"
#: A process that takes memory until less than the floor is left, and ends once the guard has acted: beside the ranks, or
#: as a process of their service, whose cgroup it enters.
TAKE = f"""
import sys, time
def left():
    lines = dict(line.split(":") for line in open("/proc/meminfo"))
    return int(lines["MemAvailable"].split()[0]) / 2**20
def actions():
    text = open("{STATE}/starts.json").read()
    return text.count("restarted") + text.count("stopped")
if sys.argv[2] == "ranks":
    open("/sys/fs/cgroup/system.slice/gb10-vllm.service/cgroup.procs", "w").write("0")
open("/proc/self/comm", "w").write("{HOG}")
floor, before, taken = float(sys.argv[1]), actions(), []
until = time.monotonic() + 60
while actions() == before and time.monotonic() < until:
    if left() > floor - 0.3:
        taken.append(bytearray(b"x" * (1 << 27)))
    else:
        time.sleep(0.1)
"""


@pytest.fixture
def floor(cluster: Cluster, head: Host) -> Iterator[float]:
    """A floor of the head's guard that a process of a few GiB reaches. The other node has the same memory here."""
    answers_again(head)
    chosen = round(available(head) / GIB - MARGIN, 1)
    if chosen < 4:
        pytest.skip(f"{chosen + MARGIN} GiB are available, less than the {4 + MARGIN} of this test")
    head.check_output(
        f"mkdir -p {DROP_IN} && {{ echo '[Service]'; echo ExecStart=; sed -n '/^ExecStart=/s/--floor=[^ ]*/"
        f"--floor={chosen}/p' /etc/systemd/system/gb10-memory-guard.service; }} >{DROP_IN}/floor.conf && "
        # An earlier restart would count.
        f"echo '[]' >{STATE}/starts.json && systemctl daemon-reload && "
        "systemctl restart gb10-memory-guard"
    )
    # Its first look: these ranks serve.
    time.sleep(3)
    yield chosen
    head.run(f"systemctl stop {HOG}")
    # The record would be a finding of later tests.
    reset = f"rm -r {DROP_IN} {STATE}/starts.json && systemctl daemon-reload"
    head.check_output(f"{reset} && systemctl restart gb10-memory-guard")
    cluster.serve().assert_ok()
    answers_again(head)


def take_memory(cluster: Cluster, head: Host, floor: float, place: str, ends: list[str]) -> float:
    """Take the memory until the guard acts. Returns the longest time in seconds that sshd needed meanwhile for a new
    connection with a command."""
    daemon = "systemctl show --property=MainPID --property=NRestarts ssh"
    before = head.check_output(daemon)
    head.check_output(f"cat >/run/{HOG}.py <<'END'\n{TAKE}\nEND")
    head.check_output(f"systemd-run --collect --unit={HOG} python3 /run/{HOG}.py {floor} {place}")
    gaps: list[float] = []

    def acted() -> bool:
        asked = time.monotonic()
        assert cluster.connect("spark1").check_output(daemon) == before
        gaps.append(time.monotonic() - asked)
        return [each["end"] for each in starts(head) if each["end"] in ("restarted", "stopped")] == ends

    wait_until(acted, 60, f"the guard did not act: {ends}", 0.5)
    return max(gaps)


def test_ranks_that_serve_are_ended_once_when_they_or_another_process_take_the_memory(
    cluster: Cluster, head: Host, floor: float, record_property: Callable[[str, object], None]
) -> None:
    server = started(head)
    gap = take_memory(cluster, head, floor, "outside", ["restarted"])
    answers_again(head)
    assert started(head) != server
    assert not head.file(f"{STATE}/stop.json").exists
    shown = cluster.status()
    assert "spark1 had its ranks ended once by the memory guard" in shown
    assert f"the largest other process is {HOG} with " in shown
    gap = max(gap, take_memory(cluster, head, floor, "ranks", ["restarted", "stopped"]))
    record_property("longest_ssh_seconds", round(gap, 2))
    wait_until(lambda: not running(head), 60)
    shown = cluster.status()
    assert "spark1 has its services stopped: only " in shown
    assert f"the largest other process is {HOG} with " not in shown, "a process of the ranks was named as another"


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
    cluster.serve(*extra(**given, vllm_serve_memory_floor=floor)).assert_failed(
        "the memory guard stopped the services: only ", f"less than {floor} GiB (vllm_serve_memory_floor)", "; cause: "
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
    assert "has its services stopped: only " in (shown := cluster.status())
    assert "troubleshooting.md#memory-floor" in shown
    cluster.serve(*extra(**given)).assert_ok()
    assert not any(host.file(f"{STATE}/stop.json").exists for host in nodes.values())
    assert "has its services stopped" not in (shown := cluster.status())
    assert shown.count(" GiB available, lowest ") == len(nodes)


def test_a_stopped_node_stays_stopped_after_a_boot(cluster: Cluster, head: Host) -> None:
    head.check_output(
        f"echo '{json.dumps({'minimum': GIB, 'floor': 2 * GIB, 'seconds': 34, 'phase': 'start'})}' >{STATE}/stop.json"
    )
    host = cluster.reboot("spark1", head)
    host.check_output("systemctl is-system-running --wait || true")
    assert running(host) == set()
    assert "spark1 has its services stopped: only 1.0 GiB of memory were available 34 s after" in cluster.status()
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
