# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changing a host's network so that it comes back by itself unless somebody confirms the change.

A change is armed first: what is there now is saved, and a systemd timer is started that puts it back. Units and state are on disk,
so that it also comes back after a reboot, which is what people do to a host they have lost. This file is the restore program too:
arm() copies it and io_file to the host, and systemd runs it; hence it imports nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils import io_file

#: Root's alone, because netplan files may hold the password of a wireless network, and root runs what is here. Not in the service user's
#: folder, where earlier releases had it (docs/security.md).
STATE, FORMER = "/var/lib/gb10-netplan", "/var/lib/gb10/netplan"
#: The change that waits for its confirmation, what the last one ended with, and what was there before the first.
PENDING, LAST, ORIGINAL = (f"{STATE}/{name}.json" for name in ("pending", "last", "original"))
PROGRAM = f"{STATE}/program"
UNIT = "gb10-netplan-restore"
UNITS = "/etc/systemd/system"
#: The settings of a device that networkd and the fabric change, below /proc/sys/net.
SYSCTLS = ("ipv6/disable_ipv6", "ipv6/addr_gen_mode", "ipv4/arp_ignore", "ipv4/arp_announce")
#: Seconds that the kernel and the renderer have to settle after a change, and of these the ones that the renderer has to itself: where
#: NetworkManager finds an address that it did not set, it leaves the device as it is instead of activating its profile.
SETTLE, PATIENCE = 15, 5

Run = Callable[[list[str]], tuple[int, str, str]]


class NetplanError(Exception):
    """The host refused a step; the message says which and why."""


def link(run: Run, name: str) -> dict[str, Any] | None:
    """Return {up, mtu, addresses, sysctl} of a device, None if there is none. `addresses` are its IPv4 addresses that no DHCP server gave."""
    status, stdout, _stderr = run(["ip", "-json", "address", "show", "dev", name])
    if status != 0:
        return None
    found = next(entry for entry in json.loads(stdout) if entry)
    return {
        "up": "UP" in found["flags"],
        "mtu": found["mtu"],
        "addresses": [f"{a['local']}/{a['prefixlen']}" for a in found["addr_info"] if a["family"] == "inet" and not a.get("dynamic")],
        "sysctl": {key: sysctl(name, key) for key in SYSCTLS},
    }


def capture(run: Run, paths: Iterable[str], links: Iterable[str]) -> dict[str, Any]:
    """Return what these files and devices are now: {files: {path: [text, mode] | None}, links: {name: link() | None}}."""
    files = {}
    for path in paths:
        text, mode = io_file.read_file(path)
        files[path] = None if text is None else [text, mode]
    return {"files": files, "links": {name: link(run, name) for name in links}}


def put(run: Run, state: Mapping[str, Any]) -> None:
    """Make files and devices what capture() returned, or the like. Raises NetplanError or OSError."""
    for path, saved in state["files"].items():
        if saved is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            io_file.write_file(path, *saved)
        elif os.path.exists(path):
            os.unlink(path)
    status, stdout, stderr = run(["netplan", "apply"])
    for path, saved in state["files"].items():
        if saved is not None and path.startswith("/etc/sysctl.d/"):
            run(["sysctl", "--quiet", f"--load={path}"])
    # The devices come next also after a failure: an address too many may be what cuts the host off.
    wanted = {name: saved for name, saved in state["links"].items() if saved}
    began = time.monotonic()
    calm = 0
    while calm < 2 and (passed := time.monotonic() - began) < SETTLE:
        changes = [_put_link(run, name, saved, passed > PATIENCE) for name, saved in wanted.items()]
        calm = 0 if any(changes) else calm + 1
        if wanted:
            time.sleep(0.3)
    if status != 0:
        raise NetplanError(f"netplan apply failed: {(stderr or stdout).strip()}")


def _put_link(run: Run, name: str, wanted: Mapping[str, Any], add: bool) -> bool:
    """Bring a device nearer to what it should be, with `add` also its addresses. Returns whether it was not there yet.

    By hand, because networkd leaves addresses and MTU behind on a device that it no longer manages.
    """
    found = link(run, name)
    if found is None or found == wanted:
        return False
    for address in found["addresses"]:
        if address not in wanted["addresses"]:
            run(["ip", "address", "delete", address, "dev", name])
    for address in wanted["addresses"]:
        if add and address not in found["addresses"]:
            run(["ip", "address", "replace", address, "dev", name])
    if found["mtu"] != wanted["mtu"]:
        run(["ip", "link", "set", "dev", name, "mtu", str(wanted["mtu"])])
    for key, value in wanted["sysctl"].items():
        if value and sysctl(name, key) != value:
            with contextlib.suppress(FileNotFoundError), open(_sysctl_path(name, key), "w", encoding="ascii") as file:
                file.write(value)
    if found["up"] != wanted["up"]:
        run(["ip", "link", "set", "dev", name, "up" if wanted["up"] else "down"])
    return True


def _sysctl_path(name: str, key: str) -> str:
    family, setting = key.split("/")
    return f"/proc/sys/net/{family}/conf/{name}/{setting}"


def sysctl(name: str, key: str) -> str:
    """Return a setting of a device, such as "ipv4/arp_ignore"; "" where the kernel has none."""
    text, _mode = io_file.read_file(_sysctl_path(name, key))
    return (text or "").strip()


def read(path: str) -> dict[str, Any] | None:
    """Return one of PENDING, LAST and ORIGINAL, None if it is not there. Raises NetplanError where others may have written it."""
    if os.path.lexists(STATE):
        _check()
    elif _former():
        path = os.path.join(FORMER, os.path.basename(path))
    text, _mode = io_file.read_file(path)
    return json.loads(text) if text is not None else None


def _check() -> None:
    if why := io_file.exposed(STATE):
        raise NetplanError(f"{why}, and root runs what is in {STATE}. Expected: a folder that root alone can change. Fix: remove {STATE}")


def _former() -> bool:
    """Whether an earlier release left its state. While the folder around it is root's, and sticky, nobody else can put one of root's there."""
    try:
        around, found = os.lstat(os.path.dirname(FORMER)), os.lstat(FORMER)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and (around.st_uid, found.st_uid, found.st_mode & 0o077) == (os.geteuid(), os.geteuid(), 0)


def _save(path: str, document: Mapping[str, Any]) -> None:
    io_file.write_file(path, json.dumps(document, indent=1) + "\n", 0o600)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep a confirmation and the timer from meeting half-way."""
    if not os.path.lexists(STATE):
        if _former():
            os.rename(FORMER, STATE)
        else:
            os.makedirs(STATE, mode=0o700)
    _check()
    lock = os.open(f"{STATE}/lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def arm(run: Run, identifier: str, before: Mapping[str, Any], seconds: int, final: bool) -> None:
    """Promise to put `before` back in so many seconds. What an unconfirmed change saved earlier is kept: that was the last good state.

    `final` says that a confirmation ends the collection's hold on the host.
    """
    with _alone():
        earlier = (read(PENDING) or {"before": {"files": {}, "links": {}}})["before"]
        kept = {kind: {**before[kind], **earlier[kind]} for kind in ("files", "links")}
        _save(PENDING, {"id": identifier, "final": final, "before": kept})
        for part in (io_file, sys.modules[__name__]):
            _install(part)
        service = (
            "[Unit]\nDescription=Put the network configuration back unless its change was confirmed (gb10.cluster)\n"
            f"[Service]\nType=oneshot\nEnvironment=PYTHONPATH={PROGRAM}\nExecStart={sys.executable} -m {__name__}\nRestart=on-failure\nRestartSec=5\n"
        )
        timer = (
            "[Unit]\nDescription=Give a changed network configuration time to be confirmed (gb10.cluster)\n"
            f"[Timer]\nOnActiveSec={seconds}\nAccuracySec=100ms\n[Install]\nWantedBy=timers.target\n"
        )
        io_file.write_file(f"{UNITS}/{UNIT}.service", service, 0o644)
        io_file.write_file(f"{UNITS}/{UNIT}.timer", timer, 0o644)
        for argv in (["daemon-reload"], ["enable", f"{UNIT}.timer"], ["restart", f"{UNIT}.timer"]):
            status, stdout, stderr = run(["systemctl", *argv])
            if status != 0:
                raise NetplanError(f"systemctl {' '.join(argv)} failed, so nothing was changed: {(stderr or stdout).strip()}")


def _install(part: ModuleType) -> None:
    path = os.path.join(PROGRAM, *part.__name__.split(".")) + ".py"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    io_file.write_file(path, inspect.getsource(part), 0o644)


def _disarm(run: Run) -> None:
    run(["systemctl", "disable", "--now", f"{UNIT}.timer"])
    for name in (f"{UNIT}.timer", f"{UNIT}.service"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{UNITS}/{name}")
    run(["systemctl", "daemon-reload"])
    shutil.rmtree(PROGRAM, ignore_errors=True)


def confirm(run: Run, identifier: str) -> bool:
    """Keep a change. Returns False if it is not there any more: the timer was faster."""
    with _alone():
        pending = read(PENDING)
        if pending is None or pending["id"] != identifier:
            return False
        if pending["final"]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(ORIGINAL)
        else:
            original = read(ORIGINAL) or {"files": {}, "links": {}}
            # What was there before the very first change is what a removal brings back.
            _save(ORIGINAL, {kind: {**pending["before"][kind], **original[kind]} for kind in ("files", "links")})
        _end(run, identifier, "confirmed")
        return True


def restore(run: Run, how: str) -> bool:
    """Put back what was there before the pending change. Returns False if there is none. Raises NetplanError or OSError."""
    with _alone():
        pending = read(PENDING)
        if pending is None:
            return False
        put(run, pending["before"])
        _end(run, pending["id"], how)
        return True


def _end(run: Run, identifier: str, how: str) -> None:
    _save(LAST, {"id": identifier, "how": how, "time": time.strftime("%Y-%m-%d %H:%M:%S")})
    os.unlink(PENDING)
    _disarm(run)


def _subprocess(argv: list[str]) -> tuple[int, str, str]:
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, result.stderr


if __name__ == "__main__":
    if restore(_subprocess, "restored by the timer"):
        sys.stdout.write("The change of the network configuration was not confirmed in time; the old one is back.\n")
