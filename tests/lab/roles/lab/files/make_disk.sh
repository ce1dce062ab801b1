#!/usr/bin/env bash
# Make the disk that every virtual machine of a lab starts with: make_disk.sh BASE.tar OUTPUT.qcow2
# BASE has a kernel and GRUB. The folder machine/ next to this script is copied into it.
set -eu

base=$1 output=$2
files=$(cd "$(dirname "$0")" && pwd)/machine
size=8192 start=1 # MiB; the first one has the partition table and GRUB's core

exec 9<"$(dirname "$output")"
flock 9
if [ -e "$output" ]; then exit; fi
work=$(mktemp -d "$output.XXXXXX")
trap 'rm -rf "$work"' EXIT

root=$work/root
mkdir "$root"
tar --extract --numeric-owner --xattrs --xattrs-include='*' --exclude='./dev/*' --file="$base" --directory="$root"
cp -R "$files/." "$root"
# Their work at each boot is of no use here.
chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap \
  fstrim.timer systemd-pstore getty@tty1
# Each machine generates its own.
: >"$root/etc/machine-id"
# With the modules of QEMU's disk only.
chroot "$root" update-initramfs -u
# GRUB and its menu need the disk that they are for, so a first boot installs them, with this in place of systemd.
cat >"$root/finish" <<'END'
#!/bin/sh
set -ex
trap 'sleep 1; echo o >/proc/sysrq-trigger; sleep 60' EXIT
rm /finish
grub-install --target=i386-pc /dev/vda
update-grub
grub-editenv /boot/grub/grubenv create
sync
echo "the disk is complete"
END
chmod 755 "$root/finish"

truncate --size="${size}M" "$work/disk"
echo "${start}MiB,,L,*" | sfdisk --quiet --label dos "$work/disk"
mkfs.ext4 -q -F -L root -d "$root" -E "offset=$((start * 1024 * 1024))" "$work/disk" "$(((size - start) * 1024))k"
# Without hardware acceleration, because /dev/kvm may be missing or unable to run this kernel.
timeout 300 qemu-system-x86_64 -machine q35 -accel tcg,tb-size=256 -cpu max -m 1024 -nodefaults -display none -no-reboot \
  -serial "file:$work/console" -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" \
  -kernel "$root"/boot/vmlinuz-* -initrd "$root"/boot/initrd.img-* -append 'root=LABEL=root rw console=ttyS0 quiet mitigations=off no_timer_check init=/finish panic=-1'
if ! grep -q 'the disk is complete' "$work/console"; then
  tail -n 30 "$work/console" >&2
  exit 1
fi
qemu-img convert -O qcow2 "$work/disk" "$work/disk.qcow2"
mv "$work/disk.qcow2" "$output"
