#!/usr/bin/env bash
# The power switch of a lab's virtual machines, like power.sh for its other nodes. Its location is the lab's folder, next to nodes/.
#
#   power.sh on NODE            turn the machine on, in the background
#   power.sh off NODE           cut its power: its kernel gets no signal, its peers no packet
#   power.sh boot NODE          used by `on`: run the machine until it powers off
#   power.sh save NODE NAME     keep the disk of a machine that is off
#   power.sh restore NODE NAME  give it back
set -eu

lab=$(cd "$(dirname "$0")" && pwd)
node=${2:?usage: power.sh on|off|boot NODE, power.sh save|restore NODE NAME}
# Sets MACHINE, NETNS, CGROUP and INTERFACES.
. "$lab/nodes/$node/node.env"
cd "$lab/nodes/$node"

# PCI slots by interface, from which the image's .link files take the names.
declare -A slots=([enP7s7]=10 [enp1s0f0np0]=11 [enp1s0f1np1]=12 [enP2p1s0f0np0]=13 [enP2p1s0f1np1]=14)

plug() { # join each cable of the namespace to a tap of the machine
  local interface
  for interface in $INTERFACES; do
    # It is a bridge's port now: the machine has its address, with another first octet.
    ip -n "$NETNS" link show "B$interface" >/dev/null 2>&1 || ip -n "$NETNS" link add "B$interface" type bridge
    ip -n "$NETNS" link show "T$interface" >/dev/null 2>&1 || ip -n "$NETNS" tuntap add dev "T$interface" mode tap
    ip -n "$NETNS" link set "$interface" master "B$interface"
    ip -n "$NETNS" link set "T$interface" master "B$interface"
    # The cable's limit. The machine sets its own MTU.
    for name in "$interface" "T$interface" "B$interface"; do ip -n "$NETNS" link set "$name" mtu 9216 up; done
  done
}

unplug() {
  local interface
  for interface in $INTERFACES; do ip -n "$NETNS" link set "$interface" down 2>/dev/null || true; done # its cable may be gone
}

boot() {
  local interface address arguments=()
  mkdir -p "$CGROUP/machine"
  echo "$BASHPID" >"$CGROUP/machine/cgroup.procs"
  plug
  for interface in $INTERFACES; do
    address=$(ip netns exec "$NETNS" cat "/sys/class/net/$interface/address")
    arguments+=(-netdev "tap,id=$interface,ifname=T$interface,script=no,downscript=no,vhost=off"
      -device "virtio-net-pci,netdev=$interface,mac=06${address#02},addr=0x${slots[$interface]},speed=200000,duplex=full")
  done
  echo "== $(date +%T) $node: power on"
  # /dev/kvm may be missing, or unable to run a distribution's kernel. A reboot inside is QEMU's.
  ip netns exec "$NETNS" qemu-system-x86_64 -name "$MACHINE" -machine q35 -accel tcg,tb-size=256 -cpu max -m 1536 \
    -nodefaults -display none -serial stdio -monitor "unix:$PWD/monitor,server=on,wait=off" -device virtio-rng-pci \
    -drive file=disk.qcow2,if=none,id=disk -device virtio-blk-pci,drive=disk,addr=0x4 \
    -drive file=seed.tar,format=raw,if=none,id=seed,readonly=on -device virtio-blk-pci,drive=seed,addr=0x5 \
    -device i6300esb,addr=0x6 -action watchdog=reset "${arguments[@]}" || true
  echo "== $(date +%T) $node: power off"
  unplug
}

case $1 in
on)
  # A node that runs keeps its addresses and its MTU.
  if ! grep -qs "^populated 1" "$CGROUP/cgroup.events"; then
    setsid --fork "$lab/power.sh" boot "$node" </dev/null >>console.log 2>&1
  fi
  ;;
off)
  unplug
  echo 1 >"$CGROUP/cgroup.kill"
  # shellcheck disable=SC2016 # $1 is the inner shell's
  timeout 10 bash -c 'until grep -q "^populated 0" "$1/cgroup.events"; do sleep 0.05; done' off "$CGROUP"
  ;;
boot) boot ;;
save) qemu-img snapshot -c "$3" disk.qcow2 ;;
restore) qemu-img snapshot -a "$3" disk.qcow2 ;;
*)
  echo "usage: power.sh on|off|boot NODE, power.sh save|restore NODE NAME" >&2
  exit 2
  ;;
esac
