"""A pending update on the hosts of a lab, whose kernel is this machine's: GRUB is a fixture, and one package changes."""

from __future__ import annotations

import shlex

from testinfra.host import Host

#: What an update leaves until it ends.
FILES = "/etc/default/grub.d/zz-gb10-os-update.cfg /etc/apt/apt.conf.d/zz-gb10-os-update"
#: GRUB's programs: mkconfig writes the default that its folder names, and reboot the choice for one boot.
_GRUB = r"""
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
#: A repository with a newer package, whose installation needs a reboot, and stops nvidia-smi until then, as a driver
#: does. The hosts have no other one.
_REPOSITORY = r"""
set -e
rm -rf /srv/repository /tmp/package && mkdir -p /srv/repository
for version in 1.0 2.0; do
  mkdir -p /tmp/package/DEBIAN
  printf 'Package: gb10-lab-update\nVersion: %s\nArchitecture: all\nMaintainer: lab\nDescription: lab\n' $version \
    >/tmp/package/DEBIAN/control
  printf '#!/bin/sh\nset -e\ntouch /run/reboot-required /run/nvidia-smi.mismatch\necho gb10-lab-update >>/run/reboot-required.pkgs\n' \
    >/tmp/package/DEBIAN/postinst
  chmod 755 /tmp/package/DEBIAN/postinst
  dpkg-deb --build /tmp/package /srv/repository/gb10-lab-update_$version.deb >/dev/null
done
dpkg --install /srv/repository/gb10-lab-update_1.0.deb
rm -f /run/reboot-required /run/reboot-required.pkgs /run/nvidia-smi.mismatch
cd /srv/repository && rm gb10-lab-update_1.0.deb
{ dpkg-deb --field gb10-lab-update_2.0.deb; echo "Filename: ./gb10-lab-update_2.0.deb"
  echo "Size: $(stat --format=%s gb10-lab-update_2.0.deb)"
  echo "SHA256: $(sha256sum gb10-lab-update_2.0.deb | cut -d' ' -f1)"; } >Packages
mkdir -p /srv/sources && mv /etc/apt/sources.list /etc/apt/sources.list.d/* /srv/sources/ 2>/dev/null || true
echo 'deb [trusted=yes] file:/srv/repository ./' >/etc/apt/sources.list
# The leftover of a power cut inside dpkg, so that apt refuses to begin.
touch /var/lib/dpkg/updates/0001
"""


def prepare(host: Host) -> None:
    """Give a host GRUB's fixture and the repository."""
    for script in (_GRUB, _REPOSITORY):
        host.check_output(f"sh -c {shlex.quote(script)}")


def remove(host: Host) -> None:
    """Remove both."""
    host.check_output(
        "dpkg --purge gb10-lab-update; rm -rf /srv/repository /usr/local/bin/findmnt /boot/grub /boot/vmlinuz-* "
        "/usr/sbin/grub-mkconfig /usr/sbin/grub-reboot /usr/bin/grub-editenv /etc/apt/sources.list; "
        "mv /srv/sources/sources.list /etc/apt/ 2>/dev/null; mv /srv/sources/* /etc/apt/sources.list.d/ 2>/dev/null; "
        "true"
    )
