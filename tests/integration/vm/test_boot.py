"""GRUB on a disk of its own: a kernel that does not boot is tried once, and the former one comes back.

It is what an update of the kernel depends on. The second kernel is a copy without an initrd, so that it finds no disk.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from live_cluster import Cluster
from testinfra.host import Host
from waiting import wait_until

pytestmark = pytest.mark.disruptive

NAME, BROKEN, BOOT = "spark2", "9.9.9-broken", 600
PREPARE = f"""\
set -e
cp /boot/vmlinuz-$(uname -r) /boot/vmlinuz-{BROKEN}
printf 'GRUB_DEFAULT=saved\\n' >/etc/default/grub.d/saved.cfg
update-grub
"""
UNDO = f"rm -f /boot/vmlinuz-{BROKEN} /etc/default/grub.d/saved.cfg && grub-editenv - unset saved_entry && update-grub"


def entry(host: Host, kernel: str) -> str:
    """Return the ID of a kernel's entry of GRUB's menu, with that of its submenu."""
    menu = host.check_output("grep -oE 'gnulinux-advanced-[^ ]+' /boot/grub/grub.cfg | head -n 1").strip("'")
    return f"{menu}>{menu.replace('advanced', f'{kernel}-advanced')}"


@pytest.mark.parametrize("panic", [0, 10], ids=["hangs", "reboots by itself"])
def test_a_kernel_that_does_not_boot_is_tried_once(cluster: Cluster, panic: int) -> None:
    host = cluster.connect(NAME)
    former = host.check_output("uname -r")
    console = Path(cluster.variable("lab_dir", ""), "nodes", NAME, "console.log")
    try:
        host.check_output(f"sh -c '{PREPARE.replace(chr(39), chr(34))}'")
        host.check_output(f"sed -i 's/mitigations=off/mitigations=off panic={panic}/' /boot/grub/grub.cfg")
        host.check_output(f"grub-set-default '{entry(host, former)}' && grub-reboot '{entry(host, BROKEN)}'")
        seen = len(console.read_text(errors="replace"))
        host.check_output("systemd-run --quiet sh -c 'sleep 1; systemctl reboot'")
        wait_until(lambda: "Unable to mount root fs" in console.read_text(errors="replace")[seen:], BOOT, "no panic")
        assert f"Loading Linux {BROKEN}" in console.read_text(errors="replace")[seen:]
        if not panic:
            time.sleep(20)
            assert console.read_text(errors="replace")[seen:].count("Loading Linux") == 1, "it did not hang"
            cluster.power("off", NAME)
            cluster.power("on", NAME)
        host = cluster.booted(NAME, BOOT)
        assert host.check_output("uname -r") == former
        assert "next_entry=\n" in host.check_output("grub-editenv list") + "\n"
    finally:
        cluster.connect(NAME).check_output(UNDO)
