#!/usr/bin/env bash
# Let the kernel run another architecture's programs: emulator.sh on LAB MACHINE. Undo it: emulator.sh off LAB.
# MACHINE is QEMU's name of the architecture. The entry has the lab's name; a mount made here has the name gb10-lab.
set -eu

binfmt=/proc/sys/fs/binfmt_misc
entry=gb10-lab-${2:?usage: emulator.sh on LAB MACHINE, emulator.sh off LAB}

case $1 in
on)
  # systemd mounts this on demand, when the path is accessed.
  if [ ! -e "$binfmt/register" ]; then mount -t binfmt_misc gb10-lab "$binfmt"; fi
  # The distribution's own rule under another name. Its flag F keeps the emulator open, so the nodes need no copy of it.
  # The added flag C makes setuid work, which sudo needs.
  sed -e "s/^:[^:]*:/:$entry:/" -e 's/$/C/' "/usr/lib/binfmt.d/qemu-$3.conf" >"$binfmt/register"
  ;;
off)
  echo -1 >"$binfmt/$entry"
  if [ "$(findmnt --noheadings --output SOURCE "$binfmt")" = gb10-lab ] && ! compgen -G "$binfmt/gb10-lab-*" >/dev/null; then
    umount "$binfmt"
  fi
  ;;
esac
