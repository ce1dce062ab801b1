#!/usr/bin/env bash
# The power switch and firmware of the lab's nodes. Its location is the lab's folder, next to nodes/.
#
#   power.sh on NODE     turn the node on, in the background
#   power.sh off NODE    cut its power: its processes get no signal to stop, its peers no packet
#   power.sh boot NODE   used by `on`: boot, and boot again after every reboot, until the node powers off
set -eu

lab=$(cd "$(dirname "$0")" && pwd)
node=${2:?usage: power.sh on|off|boot NODE}
# Sets MACHINE, NETNS, CGROUP, BASE, INTERFACES and BINDS.
. "$lab/nodes/$node/node.env"
cd "$lab/nodes/$node"

links() { # links up|down: without power no carrier; addresses and MTU that are not on disk are lost
  local interface
  for interface in $INTERFACES; do
    ip -n "$NETNS" link set "$interface" down 2>/dev/null || continue # its cable may be gone with the neighbor
    ip -n "$NETNS" addr flush dev "$interface"
    ip -n "$NETNS" link set "$interface" mtu 1500
    if [ "$1" = up ]; then ip -n "$NETNS" link set "$interface" up; fi
  done
}

forget() { # remove the groups of the last systemd: the next one refuses to start in them
  find "$CGROUP/machine" -mindepth 1 -depth -type d -exec rmdir {} +
}

boot_once() { # returns 133 after a reboot inside, 0 after a power-off, 137 after `off`
  echo "$BASHPID" >"$CGROUP/machine/cgroup.procs"
  # Enter the network namespace first, instead of with nspawn's --network-namespace-path: udev and networkd then get a
  # /sys
  # of that namespace. nspawn needs cgroup2 at /sys/fs/cgroup, wherever the machine has it. It keeps its payload below
  # the
  # cgroup that it starts in (--keep-unit), so each node has its own. Its locks are in a tmpfs that disappears with the
  # node, also after a power cut. Writable API file systems are for `netplan apply`, which triggers udev. /tmp is on
  # disk,
  # as on DGX OS.
  # shellcheck disable=SC2016 # $1 to $4 are the inner shell's
  exec ip netns exec "$NETNS" unshare --mount --propagation private bash -euc '
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$PWD/upper,workdir=$PWD/work" "$PWD/root"
    if mountpoint -q /sys/fs/cgroup; then umount -l /sys/fs/cgroup; fi
    mount -t cgroup2 none /sys/fs/cgroup
    mkdir -p /run/systemd/nspawn
    mount -t tmpfs -o mode=700 tmpfs /run/systemd/nspawn
    export SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes SYSTEMD_NSPAWN_TMPFS_TMP=no
    exec systemd-nspawn --quiet --register=no --keep-unit --link-journal=no --console=pipe --resolv-conf=off --timezone=off \
      --capability=CAP_NET_ADMIN,CAP_NET_RAW --directory="$PWD/root" --machine="$2" --hostname="$3" $4 --boot
  ' boot "$BASE" "$MACHINE" "$node" "$BINDS"
}

boot() {
  mkdir -p "$CGROUP/firmware" "$CGROUP/machine" root
  echo "$BASHPID" >"$CGROUP/firmware/cgroup.procs"
  local rc=133
  while [ "$rc" = 133 ]; do
    links up
    echo "== $(date +%T) $node: power on"
    rc=0
    (boot_once) || rc=$?
    echo "== $(date +%T) $node: machine exited with status $rc"
    forget
  done
  links down
}

case $1 in
on)
  # A node that runs keeps its addresses and its MTU.
  if ! grep -qs "^populated 1" "$CGROUP/cgroup.events"; then
    setsid --fork "$lab/power.sh" boot "$node" </dev/null >>console.log 2>&1
  fi
  ;;
off)
  links down # first, or the kernel would still close the node's TCP connections regularly
  echo 1 >"$CGROUP/cgroup.kill"
  # shellcheck disable=SC2016 # $1 is the inner shell's
  timeout 10 bash -c 'until grep -q "^populated 0" "$1/cgroup.events"; do sleep 0.05; done' off "$CGROUP"
  # A group remembers the kill. systemd 257 starts processes directly in their groups, and Linux 6.18 kills these at once
  # if systemd's own group was killed before and theirs was not.
  forget
  ;;
boot) boot ;;
*)
  echo "usage: power.sh on|off|boot NODE" >&2
  exit 2
  ;;
esac
