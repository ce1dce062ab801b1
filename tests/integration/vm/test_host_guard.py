"""The role host_guard on a virtual machine: a hardware watchdog (i6300esb), real panics, and the way back.

The limits are long, because a machine without hardware acceleration stalls for seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from live_cluster import Cluster, extra
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

NAME, WATCHDOG, PANIC = "spark2", 60, 10
#: Seconds for a boot, with the time that the watchdog takes.
BOOT = 600
PARTS = {"host_guard_swappiness": 7, "host_guard_hardware_watchdog": WATCHDOG, "host_guard_panic": PANIC}
ON = ("--tags", "host_guard", *extra(**PARTS))
OFF = ("--tags", "host_guard")
READ = (
    "sysctl -n vm.swappiness kernel.panic kernel.panic_on_oops; "
    "busctl get-property org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager RuntimeWatchdogUSec; "
    "cat /sys/class/watchdog/watchdog0/state"
)
#: WDIOF_CARDRESET after a reset by the watchdog.
CAUSE, RESET = "cat /sys/class/watchdog/watchdog0/bootstatus", "32"
APPLIED = {"swappiness": "7", "panic": str(PANIC), "oops": "1", "systemd": f"t {WATCHDOG}000000", "device": "active"}
KEYS = ("swappiness", "panic", "oops", "systemd", "device")


def state(host: Host) -> Mapping[str, str]:
    return dict(zip(KEYS, host.check_output(READ).splitlines(), strict=True))


@pytest.fixture(scope="module")
def former(cluster: Cluster) -> Mapping[str, str]:
    return state(cluster.connect(NAME))


def rebooted(cluster: Cluster, command: str) -> Host:
    """Run a command that ends the kernel, and return a connection to the next boot, which nobody caused."""
    host = cluster.connect(NAME)
    before = host.check_output("cat /proc/sys/kernel/random/boot_id")
    host.check_output(f"systemd-run --quiet sh -c 'sleep 1; {command}'")
    # A connection to the dying kernel would never end.
    time.sleep(5)
    return cluster.booted(NAME, BOOT, lambda again: again.check_output("cat /proc/sys/kernel/random/boot_id") != before)


def test_the_preview_shows_each_part_and_changes_none(cluster: Cluster, former: Mapping[str, str]) -> None:
    assert former["device"] == "inactive"
    cluster.site(*ON, "--check", "--diff").assert_ok("vm.swappiness", "kernel.panic", f"RuntimeWatchdogSec={WATCHDOG}")
    assert state(cluster.connect(NAME)) == former


def test_all_parts_apply_at_once(cluster: Cluster) -> None:
    cluster.site(*ON).assert_ok()
    assert state(cluster.connect(NAME)) == APPLIED
    cluster.site(*ON).assert_unchanged()


def test_a_panic_reboots_the_host_with_the_same_protection(cluster: Cluster) -> None:
    host = rebooted(cluster, "echo c >/proc/sysrq-trigger")
    assert state(host) == APPLIED
    assert host.check_output(CAUSE) == "0"


def test_the_hardware_watchdog_reboots_a_kernel_that_hangs_in_a_panic(cluster: Cluster) -> None:
    host = rebooted(cluster, "sysctl -q kernel.panic=0; echo c >/proc/sysrq-trigger")
    assert state(host) == APPLIED
    assert host.check_output(CAUSE) == RESET


def test_off_restores_the_former_state(cluster: Cluster, former: Mapping[str, str]) -> None:
    cluster.site(*OFF).assert_ok()
    assert state(cluster.connect(NAME)) == former
    cluster.site(*OFF).assert_unchanged()
