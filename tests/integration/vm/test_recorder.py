"""The flight recorder on kernels of their own: a power cut under load and a panic leave their last words on the peer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from live_cluster import Cluster, flight_records, new_flight_records
from testinfra.host import Host
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import record, report, schema

pytestmark = [pytest.mark.disruptive, pytest.mark.usefixtures("recorded")]

NAME, ROLES = "spark2", ("--tags", "peer_firewall,flight_recorder")
LIVE = "/run/gb10-flight-recorder/sample.json"
#: Seconds until a record exists, and for a boot, without hardware acceleration.
WITHIN, BOOT = 120, 600
#: A STAND-IN for a server of models: it takes memory and a core.
LOAD = "python3 -c 'taken = bytearray(b\"1\") * (500 << 20); [None for _ in iter(int, 1)]'"


@pytest.fixture(scope="module")
def recorded(cluster: Cluster) -> None:
    cluster.site(*ROLES).assert_ok()


@pytest.fixture
def worker(cluster: Cluster, head: Host) -> Iterator[Host]:
    """The node that fails. Afterwards it runs again, and the head hears it."""
    host = cluster.connect(NAME)
    wait_until(lambda: host.run(f"test -e {LIVE}").rc == 0, BOOT, "the recorder takes no samples")
    yield host
    cluster.power("off", NAME)
    cluster.power("on", NAME)
    cluster.booted(NAME, BOOT)
    wait_until(
        lambda: all(found.returned for found in flight_records(head).values()), BOOT, "nobody heard the node again"
    )


def test_a_power_cut_under_load_leaves_the_last_seconds(cluster: Cluster, head: Host, worker: Host) -> None:
    before = flight_records(head)
    idle = schema.parse(worker.file(LIVE).content).memory_available or 0
    worker.check_output(f"systemd-run --quiet --unit=gb10-lab-load {LOAD}")
    wait_until(lambda: (schema.parse(worker.file(LIVE).content).memory_available or 0) < idle - (400 << 20), 60)
    # A message of the kernel itself: the recorder leaves out those that programs write to /dev/kmsg.
    worker.check_output("echo h >/proc/sysrq-trigger")
    time.sleep(4)
    cut = float(head.check_output("date +%s.%N"))
    cluster.power("off", NAME)
    found = new_flight_records(head, before, WITHIN)[0]
    assert (found.node, found.verdict) == (NAME, record.OFF)
    when, last = found.samples[-1]
    assert cut - when < 6
    assert (last.memory_available or idle) < idle - (400 << 20)
    # By the recorder, which reads the kernel's messages, and by the kernel itself.
    for lines in (found.kernel, found.netconsole):
        assert any("sysrq: HELP" in line for line in lines), lines


def test_a_panic_leaves_its_text(head: Host, worker: Host) -> None:
    before = flight_records(head)
    worker.check_output("sysctl -q kernel.panic=0; systemd-run --quiet sh -c 'sleep 1; echo c >/proc/sysrq-trigger'")
    found = new_flight_records(head, before, WITHIN)[0]
    text = "\n".join(found.netconsole)
    assert "Kernel panic - not syncing: sysrq triggered crash" in text
    assert "Call Trace" in text
    assert "the kernel failed" in "; ".join(report.steps(found))
