#!/usr/bin/env bash
# Let the kernel run another architecture's programs: emulator.sh on LAB MACHINE FOLDER. Undo it: emulator.sh off LAB.
# MACHINE is QEMU's name of the architecture. FOLDER gets the emulator once.
# The entry has the lab's name; a mount made here has the name gb10-lab.
set -eu

binfmt=/proc/sys/fs/binfmt_misc
entry=gb10-lab-${2:?usage: emulator.sh on LAB MACHINE FOLDER, emulator.sh off LAB}

case $1 in
on)
  machine=$3 folder=$4
  # PyTorch dies of another architecture's /proc/cpuinfo. QEMU emulates this file since release 8.2, and Debian 12 has 7.2. The
  # program of Debian 13 needs no library.
  # Several labs may be created at once; the cache folder itself is the lock.
  exec 9<"$(dirname "$folder")"
  flock 9
  if [ ! -e "$folder" ]; then
    rm -rf "$folder.part"
    mmdebstrap --quiet --variant=extract --include=qemu-user-binfmt trixie "$folder.part"
    mv "$folder.part" "$folder"
  fi
  # systemd mounts this on demand, when the path is accessed.
  if [ ! -e "$binfmt/register" ]; then mount -t binfmt_misc gb10-lab "$binfmt"; fi
  # The distribution's own rule under another name, for this emulator. Its flag F keeps the emulator open, so the nodes need no copy of
  # it. The added flag C makes setuid work, which sudo needs.
  sed -e "s/^:[^:]*:/:$entry:/" -e "s#:/usr/[^:]*:#:$folder/usr/bin/qemu-$machine:#" -e 's/$/C/' \
    "$folder/usr/lib/binfmt.d/qemu-$machine.conf" >"$binfmt/register"
  ;;
off)
  echo -1 >"$binfmt/$entry"
  if [ "$(findmnt --noheadings --output SOURCE "$binfmt")" = gb10-lab ] && ! compgen -G "$binfmt/gb10-lab-*" >/dev/null; then
    umount "$binfmt"
  fi
  ;;
esac
