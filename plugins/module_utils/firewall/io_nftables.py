# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read and change the collection's nftables table. The host itself rolls back a change that cuts it off."""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import host as firewall_host
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import published
from ansible_collections.gb10.cluster.plugins.module_utils.firewall.published import Span

#: The confirmed rules, which the unit loads at boot. Rules on trial are in no file.
RULES = "/etc/gb10/firewall.nft"
UNIT = "gb10-firewall.service"
UNITS = "/etc/systemd/system"
#: Prefix of the transient timers. Each change has a timer with its own suffix, which restores RULES.
RESTORE = "gb10-firewall-restore"
_NO_NFT = 127
# Both commands run in one process, because the namespace ends with it.
_SCRATCH = 'nft -f "$1" && nft --stateless list table inet gb10'
# The script checks for confirmed rules when it runs. Both branches are idempotent.
_BACK = 'if [ -e "$1" ]; then exec "$0" -f "$1"; else exec "$0" "add table $2; delete table $2"; fi'


class FirewallError(Exception):
    """The host refused a step; the message names the step and the reason."""


def active_firewalls(run: Run) -> tuple[bool, dict[str, str]]:
    """Return (whether nft is installed, firewall_host.active_firewalls). Raises FirewallError if nft fails."""
    active = []
    if _output(run, ["ufw", "status"]).startswith("Status: active"):
        active.append("ufw")
    if _output(run, ["firewall-cmd", "--state"]).strip() == "running":
        active.append("firewalld")
    legacy = {family: _legacy(run, family, "filter", "INPUT") for family in firewall_plan.FAMILIES}
    status, stdout, stderr = run(["nft", "--json", "list", "ruleset"])
    if status not in (0, _NO_NFT):
        raise FirewallError(f"nft list ruleset failed: {stderr.strip()}")
    installed = status != _NO_NFT
    return installed, firewall_host.active_firewalls(stdout if installed else "", legacy, active)


def _legacy(run: Run, family: str, table: str, *chain: str) -> str:
    """Return the rules of iptables-legacy, "" without the table: the query would load the kernel module."""
    known = (io_file.read_file(f"/proc/net/{family}_tables_names")[0] or "").split()
    return _output(run, [f"{family}tables-legacy", "-t", table, "-S", *chain]) if table in known else ""


def published_ports(run: Run) -> list[Span]:
    """Return the ports of containers, which the rules do not filter.

    Also without nft, which the role installs later.
    """
    iptables = [_output(run, [f"{family}tables-nft", "-t", "nat", "-S"]) for family in firewall_plan.FAMILIES]
    iptables += [_legacy(run, family, "nat") for family in firewall_plan.FAMILIES]
    return published.ports(_output(run, ["nft", "--stateless", "list", "ruleset"]), *iptables)


def ssh_ports(run: Run, listeners: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return firewall_host.ssh_ports of this node."""
    # Exact names, because a pattern does not match units that are not loaded.
    properties = f"--property={','.join(firewall_host.SOCKET_PROPERTIES)}"
    sockets = _output(run, ["systemctl", "show", properties, "ssh.socket", "sshd.socket", "*.socket"])
    return firewall_host.ssh_ports(listeners, sockets, _output(run, ["sshd", "-T"]))


def links(run: Run, root: str = "/") -> list[firewall_host.Link]:
    """Return this node's network devices. Raises OSError if they cannot be read."""
    folder = os.path.join(root, "sys/class/net")
    routes = [_output(run, ["ip", family, "route", "show", "default"]) for family in ("-4", "-6")]
    routed = firewall_host.devices("\n".join(routes))
    return [
        firewall_host.Link(name, tuple(sorted(_ports(folder, name))), name in routed)
        for name in sorted(os.listdir(folder))
        if os.path.isdir(os.path.join(folder, name))
    ]


def _ports(folder: str, name: str) -> set[str]:
    """Return the hardware devices that a device is or is based on: members of a bridge or a bond, a VLAN's parent."""
    path = os.path.join(folder, name)
    if os.path.exists(os.path.join(path, "device")):
        return {name}
    lower = [os.path.basename(entry).removeprefix("lower_") for entry in glob.glob(f"{glob.escape(path)}/lower_*")]
    return {port for entry in lower for port in _ports(folder, entry)}


def entrance(run: Run, client: str) -> tuple[bool, str]:
    """Return (whether an SSH client is another host, its incoming device, "" without a known route to it).

    ``client`` is its address, "" if Ansible runs on the node.
    """
    address, _percent, zone = client.partition("%")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False, ""
    status, stdout, _stderr = run(["ip", "route", "get", address, *(["dev", zone] if zone else [])])
    if status != 0:
        return True, ""
    if stdout.startswith("local ") or "lo" in (found := firewall_host.devices(stdout)):
        return False, ""
    return True, "".join(found[:1])


def _output(run: Run, argv: list[str]) -> str:
    """Return a command's output, "" if it is not installed or fails."""
    status, stdout, _stderr = run(argv)
    return stdout if status == 0 else ""


def loaded_ruleset(run: Run) -> str:
    """Return the collection's table as the kernel lists it, "" if it does not exist."""
    return _output(run, ["nft", "--stateless", "list", "table", *firewall_plan.TABLE.split()])


def normalize(run: Run, text: str) -> str:
    """Return a ruleset as the kernel lists it, from a scratch namespace. Raises FirewallError if nft refuses it."""
    with _written(text) as path:
        status, stdout, stderr = run(["unshare", "--net", "sh", "-c", _SCRATCH, "sh", path])
    if status != 0:
        raise FirewallError(f"nft refuses the rules: {stderr.strip() or stdout.strip()}")
    return stdout


@contextlib.contextmanager
def _written(text: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".nft") as file:
        file.write(text)
        file.flush()
        yield file.name


def files(nft: str, text: str) -> dict[str, str]:
    """Return the files that load the rules at boot, and after another service flushed them. The rules come last."""
    return {_unit_file(): firewall_plan.unit(nft, RULES), _drop_in(): firewall_plan.again(nft, RULES), RULES: text}


def _unit_file() -> str:
    return f"{UNITS}/{UNIT}"


def _drop_in() -> str:
    return f"{UNITS}/nftables.service.d/gb10-firewall.conf"


def changed_files(run: Run, wanted: Mapping[str, str]) -> list[str]:
    """Return the missing files and states without which the rules are not loaded at boot, before the services."""
    found = [path for path, text in wanted.items() if io_file.differs(path, text)]
    required = [f"{UNITS}/{service}.requires/{UNIT}" for service in firewall_plan.OPENING]
    found += [path for path in required if not os.path.lexists(path)]
    state = _output(run, ["systemctl", "show", "--property=UnitFileState,ActiveState", UNIT]).split()
    return found + [
        f"{UNIT}: {wanted.partition('=')[2]}"
        for wanted in ("UnitFileState=enabled", "ActiveState=active")
        if wanted not in state
    ]


def pending(run: Run) -> list[str]:
    """Return the units of changes that wait for confirmation or are being rolled back."""
    shown = _output(run, ["systemctl", "list-units", "--plain", "--no-legend", f"{RESTORE}-*"])
    return [line.split()[0] for line in shown.splitlines() if line.strip()]


def attempt(run: Run, nft: str, text: str, seconds: int) -> None:
    """Load rules that expire after ``seconds`` unless confirmed. Raises FirewallError or OSError, then changes nothing.

    The kernel's monotonic clock counts the time. The running timer does not need to write a file.
    """
    earlier = pending(run)
    with _written(text) as path:
        timer = f"{RESTORE}-{uuid.uuid4().hex[:8]}"
        keep = ["--collect", "--property=Restart=on-failure", "--property=RestartSec=5"]
        clock = [f"--on-active={seconds}s", "--timer-property=AccuracySec=1s"]
        _must(run, ["systemd-run", "--quiet", f"--unit={timer}", *clock, *keep, *_back(nft)])
        # Start the new timer before stopping an old one of a killed run.
        _stop(run, earlier)
        try:
            _must(run, [nft, "-f", path])
        except FirewallError:
            back(run, nft)
            raise


def save(run: Run, nft: str, wanted: Mapping[str, str]) -> None:
    """Persist the loaded rules over reboots. Raises FirewallError or OSError, and then restores the previous rules."""
    try:
        for path, text in wanted.items():
            if path == RULES:
                # Steps that may fail on a full disk come before the rules count as confirmed.
                _must(run, ["systemctl", "daemon-reload"])
                _must(run, ["systemctl", "--quiet", "enable", UNIT])
            io_file.add_folder(os.path.dirname(path))
            io_file.install(path, text)
    except (FirewallError, OSError):
        back(run, nft)
        raise
    disarm(run)
    # Not a restart, which would restart dependent units. The reload loads the rules even if the timer was faster.
    _must(run, ["systemctl", "start", UNIT])
    _must(run, ["systemctl", "reload", UNIT])


def back(run: Run, nft: str) -> None:
    """Restore the last confirmed rules, or none. Raises FirewallError or OSError; then the timer restores them."""
    if os.path.exists(RULES):
        _must(run, _back(nft))
        disarm(run)
    else:
        remove(run)


def _back(nft: str) -> list[str]:
    return ["/bin/sh", "-c", _BACK, nft, RULES, firewall_plan.TABLE]


def disarm(run: Run) -> None:
    """Stop the rollback timers, if there are any."""
    _stop(run, pending(run))


def _stop(run: Run, units: Sequence[str]) -> None:
    if units:
        run(["systemctl", "--quiet", "stop", *units])


def existing_objects(run: Run) -> list[str]:
    """Return the collection's files and table that exist on the host."""
    return [path for path in (RULES, _unit_file(), _drop_in()) if os.path.exists(path)] + (
        [f"table {firewall_plan.TABLE}"] if loaded_ruleset(run) else []
    )


def remove(run: Run) -> None:
    """Remove the table and the files that load it. Raises FirewallError or OSError."""
    io_file.install(RULES, None)
    if os.path.exists(_unit_file()):
        # After disable and reload no service requires the unit, so stopping it stops no service.
        _must(run, ["systemctl", "--quiet", "disable", UNIT])
        _must(run, ["systemctl", "daemon-reload"])
        _must(run, ["systemctl", "stop", UNIT])
    for path in (_unit_file(), _drop_in()):
        io_file.install(path, None)
    with contextlib.suppress(OSError):  # the folder has other files, or does not exist
        os.rmdir(os.path.dirname(_drop_in()))
    _must(run, ["systemctl", "daemon-reload"])
    if loaded_ruleset(run):
        _must(run, ["nft", "delete", "table", *firewall_plan.TABLE.split()])
    disarm(run)


def _must(run: Run, argv: list[str]) -> None:
    status, stdout, stderr = run(argv)
    if status != 0:
        raise FirewallError(f"{' '.join(argv)} failed: {(stderr or stdout).strip()}")
