#!/usr/bin/env bash
# Make the root file system that every node of a lab shares: make_base.sh OUTPUT.tar SUITE ARCHITECTURES COMPONENTS PACKAGES [MIRROR]
# ARCHITECTURES, COMPONENTS and PACKAGES are separated by commas. Without MIRROR, mmdebstrap knows the suite's own.
set -eu

output=$1 suite=$2 architectures=$3 components=$4 packages=$5
mirror=("${@:6}")

# Several labs may be created at once; the cache folder itself is the lock.
exec 9<"$(dirname "$output")"
flock 9
if [ -e "$output" ]; then exit; fi

# shellcheck disable=SC2016 # $1 is the new root, expanded by mmdebstrap's shell
hooks=(
  # The first user of DGX OS administers the machine without a password; root does not log in.
  --customize-hook='chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash --password "*" nvidia'
  --customize-hook='install -d -m 755 "$1/etc/sudoers.d" "$1/etc/ssh/sshd_config.d"'
  --customize-hook='install -d -m 700 -o 1000 -g 1000 "$1/home/nvidia/.ssh"'
  --customize-hook='printf "nvidia ALL=(ALL) NOPASSWD: ALL\n" >"$1/etc/sudoers.d/nvidia"; chmod 440 "$1/etc/sudoers.d/nvidia"'
  --customize-hook='printf "PermitRootLogin no\nPasswordAuthentication no\n" >"$1/etc/ssh/sshd_config.d/10-lab.conf"'
  # Each node brings its own key, which the lab pins.
  --customize-hook='rm -f "$1"/etc/ssh/ssh_host_*'
  --customize-hook='chroot "$1" systemctl --quiet enable systemd-networkd'
  # As on Ubuntu: users find the administrator's tools.
  --customize-hook='printf "PATH=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n" >"$1/etc/environment"'
  --customize-hook='printf "LANG=C.UTF-8\n" >"$1/etc/default/locale"'
)
trap 'rm -f "$output.part"' EXIT
# Its own check for an emulator knows only one way to mount binfmt_misc; without an emulator, the first program of the image fails.
mmdebstrap --variant=apt --format=tar --skip=check/qemu --architectures="$architectures" --components="$components" --include="$packages" \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  "${hooks[@]}" "$suite" "$output.part" "${mirror[@]}"
# Only a complete image has its name: a killed run leaves nothing that a later one would take for an image.
mv "$output.part" "$output"
