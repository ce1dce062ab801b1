#!/usr/bin/env bash
# Let the kernel run another architecture's programs: emulator.sh on LAB MACHINE, and emulator.sh off LAB to undo it.
# MACHINE is QEMU's name of the architecture. The entry bears the lab's name, and the mount, where one had to be made, the labs'.
set -eu

binfmt=/proc/sys/fs/binfmt_misc
entry=gb10-lab-${2:?usage: emulator.sh on LAB MACHINE, emulator.sh off LAB}

case $1 in
on)
  # Where systemd runs, looking is enough: it mounts this on demand.
  if [ ! -e "$binfmt/register" ]; then mount -t binfmt_misc gb10-lab "$binfmt"; fi
  # The distribution's own rule under another name. Its flag F keeps the emulator open, so that the nodes need no copy of it;
  # C is added, without which setuid does not count and sudo fails.
  sed -e "s/^:[^:]*:/:$entry:/" -e 's/$/C/' "/usr/lib/binfmt.d/qemu-$3.conf" >"$binfmt/register"
  ;;
off)
  echo -1 >"$binfmt/$entry"
  if [ "$(findmnt --noheadings --output SOURCE "$binfmt")" = gb10-lab ] && ! compgen -G "$binfmt/gb10-lab-*" >/dev/null; then
    umount "$binfmt"
  fi
  ;;
esac
