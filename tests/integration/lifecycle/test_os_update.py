"""An update of the system on two hosts that serve: the drain, the reboots, golden answers, and what stops it.

The hosts have this machine's kernel. Their boot loader is a fixture: GRUB's files and programs, without a boot. The
scenario vm has real ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import API, CURL, answers_again
from live_cluster import Cluster, extra, on_all
from testinfra.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

FILES = "/etc/default/grub.d/zz-gb10-os-update.cfg /etc/apt/apt.conf.d/zz-gb10-os-update"
#: GRUB's programs: mkconfig writes the default that its folder names, and reboot the choice for one boot.
FIXTURE = r"""
set -e
K=$(uname -r)
mkdir -p /boot/grub /etc/default/grub.d /lib/modules/$K
touch /boot/vmlinuz-$K /lib/modules/$K/modules.dep
cat >/usr/sbin/grub-mkconfig <<'END'
#!/bin/sh
# A fixture of the lab in place of GRUB.
K=$(uname -r)
GRUB_DEFAULT=0
for file in /etc/default/grub.d/*.cfg; do [ ! -e "$file" ] || . "$file"; done
cat >/boot/grub/grub.cfg <<CONFIG
set default="$GRUB_DEFAULT"
menuentry 'Linux' \$menuentry_id_option 'simple' {
	linux /boot/vmlinuz-$K
}
submenu 'Advanced' \$menuentry_id_option 'advanced' {
	menuentry 'Linux $K' \$menuentry_id_option 'linux-$K' {
		linux /boot/vmlinuz-$K
	}
}
CONFIG
END
printf '#!/bin/sh\necho "next_entry=$1" >/boot/grub/grubenv\n' >/usr/sbin/grub-reboot
printf '#!/bin/sh\ncat /boot/grub/grubenv 2>/dev/null\n' >/usr/bin/grub-editenv
# The root of the lab is an overlay, which GRUB could not write to.
printf '#!/bin/sh\necho ext4 /dev/sda1\n' >/usr/local/bin/findmnt
chmod 755 /usr/sbin/grub-mkconfig /usr/sbin/grub-reboot /usr/bin/grub-editenv /usr/local/bin/findmnt
grub-mkconfig
"""
#: A repository with a newer package, whose installation needs a reboot. The hosts have no other one.
REPOSITORY = r"""
set -e
rm -rf /srv/repository /tmp/package && mkdir -p /srv/repository
for version in 1.0 2.0; do
  mkdir -p /tmp/package/DEBIAN
  printf 'Package: gb10-lab-update\nVersion: %s\nArchitecture: all\nMaintainer: lab\nDescription: lab\n' $version \
    >/tmp/package/DEBIAN/control
  printf '#!/bin/sh\nset -e\ntouch /run/reboot-required\necho gb10-lab-update >>/run/reboot-required.pkgs\n' \
    >/tmp/package/DEBIAN/postinst
  chmod 755 /tmp/package/DEBIAN/postinst
  dpkg-deb --build /tmp/package /srv/repository/gb10-lab-update_$version.deb >/dev/null
done
dpkg --install /srv/repository/gb10-lab-update_1.0.deb
rm -f /run/reboot-required /run/reboot-required.pkgs
cd /srv/repository && rm gb10-lab-update_1.0.deb
{ dpkg-deb --field gb10-lab-update_2.0.deb; echo "Filename: ./gb10-lab-update_2.0.deb"
  echo "Size: $(stat --format=%s gb10-lab-update_2.0.deb)"
  echo "SHA256: $(sha256sum gb10-lab-update_2.0.deb | cut -d' ' -f1)"; } >Packages
mkdir -p /srv/sources && mv /etc/apt/sources.list /etc/apt/sources.list.d/* /srv/sources/ 2>/dev/null || true
echo 'deb [trusted=yes] file:/srv/repository ./' >/etc/apt/sources.list
"""
CONFIRMED = extra(os_update_confirmed=True)


@pytest.fixture(scope="module")
def pending(cluster: Cluster, nodes: dict[str, Host], head: Host) -> Iterator[None]:
    """Nodes with a pending package."""
    answers_again(head)
    for host in nodes.values():
        host.check_output(f"sh -c '{FIXTURE.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'")
        host.check_output(f"sh -c '{REPOSITORY.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'")
    yield
    for name in cluster.groups["gb10_cluster"]:
        cluster.connect(name).check_output(
            "dpkg --purge gb10-lab-update; rm -rf /srv/repository /usr/local/bin/findmnt /boot/grub /boot/vmlinuz-* "
            "/usr/sbin/grub-mkconfig /usr/sbin/grub-reboot /usr/bin/grub-editenv /etc/apt/sources.list; "
            "mv /srv/sources/sources.list /etc/apt/ 2>/dev/null; mv /srv/sources/* /etc/apt/sources.list.d/ 2>/dev/null; "
            "true"
        )


def boots(nodes: dict[str, Host]) -> dict[str, str]:
    return on_all(nodes, "cat /proc/1/stat | cut -d' ' -f22")


@pytest.mark.usefixtures("pending")
def test_the_preview_changes_nothing(cluster: Cluster, nodes: dict[str, Host]) -> None:
    on_all(nodes, "apt-get update")
    shown = cluster.play("os_update", "--check", "--diff").assert_unchanged(
        "1 packages change", "way back: the kernel "
    )
    assert shown.output.count("next: upgrade all packages, and boot") == len(nodes)
    cluster.play("os_update").assert_unchanged("next: upgrade all packages, and boot")
    assert set(on_all(nodes, f"ls {FILES} 2>/dev/null || true").values()) == {""}


@pytest.mark.usefixtures("pending")
def test_a_held_lock_stops_it_before_any_change(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    hold = "import fcntl, time; file = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(file, fcntl.LOCK_EX); time.sleep(600)"
    head.check_output(f'systemd-run --collect --unit=holder python3 -c "{hold}"')
    try:
        done = cluster.play("os_update", "--check", *CONFIRMED)
        done.assert_failed("nodes[0]: spark1: python3 (PID ", "holds dpkg's lock")
    finally:
        head.check_output("systemctl stop holder")
    assert set(on_all(nodes, f"ls {FILES} 2>/dev/null || true").values()) == {""}


@pytest.mark.usefixtures("pending")
def test_the_unit_is_updated_and_serves_again(
    cluster: Cluster, nodes: dict[str, Host], head: Host, tmp_path: Path
) -> None:
    started = head.check_output("systemctl show --property=InvocationID --value gb10-vllm")
    body = '{"model": "tiny", "prompt": "Hello", "max_tokens": 900, "ignore_eos": true}'
    head.check_output(f"({CURL} --silent --max-time 300 --json '{body}' {API}/v1/completions >/run/answer 2>&1 &)")
    golden = extra(golden_directory=str(tmp_path))
    began = time.monotonic()
    done = cluster.play("os_update", *CONFIRMED, *golden).assert_ok()
    print(f"updated after {time.monotonic() - began:.0f} s")  # noqa: T201
    assert done.output.count("boots the new kernel once") == len(nodes)
    again = {name: cluster.connect(name) for name in nodes}
    assert set(on_all(again, "dpkg-query --show --showformat='${Version}' gb10-lab-update").values()) == {"2.0"}
    assert set(on_all(again, f"ls {FILES} 2>/dev/null || true").values()) == {""}
    assert set(on_all(again, "test -e /run/reboot-required && echo pending || true").values()) == {""}
    answers_again(again["spark1"])
    assert again["spark1"].check_output("systemctl show --property=InvocationID --value gb10-vllm") != started
    assert list(tmp_path.glob("*.json")), "no golden answers were recorded before the update"
    cluster.play("os_update", *CONFIRMED, *golden).assert_unchanged("next: nothing to do")
