# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change a host's network, with an automatic rollback unless the change is confirmed.

arm() first saves the present state and starts a systemd timer that restores it. Units and state are on disk, so that
the rollback also happens after a reboot, because people reboot a host that they cannot reach. This file is the restore
program too: arm() copies it and io_file to the host, and systemd runs it. So it imports no other file of this
collection.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file

#: Only root has access, because netplan files may hold Wi-Fi passwords, and root runs the program in this folder.
STATE = "/var/lib/gb10-netplan"
#: The change that waits for confirmation, the result of the last change, and the state before the first change.
PENDING, LAST, ORIGINAL = (f"{STATE}/{name}.json" for name in ("pending", "last", "original"))
PROGRAM = f"{STATE}/program"
#: The files that netplan applied last, path to digest(). In /run, because a boot applies the files on the disk.
APPLIED = "/run/gb10-netplan.json"
UNIT = "gb10-netplan-restore"
UNITS = "/etc/systemd/system"
#: Device settings that networkd and the fabric change, below /proc/sys/net.
SYSCTLS = ("ipv6/disable_ipv6", "ipv6/addr_gen_mode", "ipv4/arp_ignore", "ipv4/arp_announce")
#: Seconds for the kernel and the renderer to settle after a change, and the first of them, when only the renderer adds
#: addresses: NetworkManager does not activate its profile on a device with an address that it did not set.
SETTLE, PATIENCE = 15, 5

Run = Callable[[list[str]], tuple[int, str, str]]


class NetplanError(ValueError):
    """A step failed on the host; the message names the step and the reason."""


def link(run: Run, name: str) -> dict[str, Any] | None:
    """Return {up, mtu, addresses, sysctl} of a device, None if it does not exist.

    `addresses` are its IPv4 addresses, without those from DHCP.
    """
    status, stdout, _stderr = run(["ip", "-json", "address", "show", "dev", name])
    if status != 0:
        return None
    found = next(entry for entry in json.loads(stdout) if entry)
    return {
        "up": "UP" in found["flags"],
        "mtu": found["mtu"],
        "addresses": [
            f"{a['local']}/{a['prefixlen']}"
            for a in found["addr_info"]
            if a["family"] == "inet" and not a.get("dynamic")
        ],
        "sysctl": {key: sysctl(name, key) for key in SYSCTLS},
    }


def capture(run: Run, paths: Iterable[str], links: Iterable[str]) -> dict[str, Any]:
    """Return the present files and devices: {files: {path: [text, mode] | None}, links: {name: link() | None}}."""
    files = {}
    for path in paths:
        text, mode = io_file.read_file(path)
        files[path] = None if text is None else [text, mode]
    return {"files": files, "links": {name: link(run, name) for name in links}}


def digest(text: str) -> str:
    """Return the digest of a file's text in APPLIED and ORIGINAL."""
    return hashlib.sha256(text.encode()).hexdigest()


def put(run: Run, state: Mapping[str, Any]) -> None:
    """Bring files and devices into a state like capture() returns.

    Raises NetplanError, or OSError for a file before anything is applied.
    """
    for path, saved in state["files"].items():
        _put_file(path, saved)
    _apply(run, state)


def _put_file(path: str, saved: Sequence[Any] | None) -> None:
    if saved is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    elif io_file.read_file(path) != tuple(saved):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        io_file.write_file(path, *saved)


def _put_back(run: Run, state: Mapping[str, Any]) -> None:
    """Do the same as put(), but restore the devices even if a file cannot be written. Raises NetplanError."""
    for name, saved in state["links"].items():
        if saved:
            # Only remove addresses, because an extra one may cut the host off. The renderer adds them.
            _put_link(run, name, saved, add=False)
    failed = []
    # Delete files first, to make room for the others.
    for path, saved in sorted(state["files"].items(), key=lambda item: item[1] is not None):
        try:
            _put_file(path, saved)
        except OSError as error:
            try:
                os.replace(_copy(path), path)
            except OSError:
                failed.append(f"{path} could not be restored ({error.strerror})")
    _apply(run, state)
    if failed:
        raise NetplanError(f"the devices are as before, but {'; '.join(failed)}")


def _copy(path: str) -> str:
    """Return the path of a file's saved copy.

    It is in the same folder, so that a rename restores it on a full disk, under a name that no program reads.
    """
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.gb10-before")


def _apply(run: Run, state: Mapping[str, Any]) -> None:
    status, stdout, stderr = run(["netplan", "apply"])
    for path, saved in state["files"].items():
        if saved is not None and path.startswith("/etc/sysctl.d/"):
            run(["sysctl", "--quiet", f"--load={path}"])
    # Continue with the devices after a failure, because an extra address may cut the host off.
    _settle(run, {name: saved for name, saved in state["links"].items() if saved})
    if status != 0:
        raise NetplanError(f"netplan apply failed: {(stderr or stdout).strip()}")
    try:
        io_file.write_file(
            APPLIED,
            json.dumps({path: digest(saved[0]) if saved else "" for path, saved in state["files"].items()}),
            0o600,
        )
    except OSError:
        # Without the record, unapplied() reports nothing. With an old one, these files would be applied again.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(APPLIED)


def _settle(run: Run, wanted: Mapping[str, Any]) -> None:
    """Correct the devices until they stay as wanted, at most SETTLE seconds: the renderer changes them meanwhile."""
    began = time.monotonic()
    calm = 0
    while calm < 2 and (passed := time.monotonic() - began) < SETTLE:
        changes = [_put_link(run, name, saved, passed > PATIENCE) for name, saved in wanted.items()]
        calm = 0 if any(changes) else calm + 1
        if wanted:
            time.sleep(0.3)


def applied() -> dict[str, str]:
    """Return the digest of each file that netplan applied last since boot, "" for a missing file; {} if unknown."""
    text, _mode = io_file.read_file(APPLIED)
    return json.loads(text) if text else {}


def _put_link(run: Run, name: str, wanted: Mapping[str, Any], add: bool) -> bool:
    """Bring a device closer to its wanted state; with `add`, add missing addresses. Returns whether it differed.

    networkd does not do this: it leaves addresses and MTU on a device that it no longer manages.
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
            # The next call checks whether the kernel accepted the value.
            with contextlib.suppress(OSError), open(_sysctl_path(name, key), "w", encoding="ascii") as file:
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
    """Return the content of PENDING, LAST or ORIGINAL, None if it does not exist.

    Raises NetplanError if other users may have written it.
    """
    if os.path.lexists(STATE):
        _check()
    text, _mode = io_file.read_file(path)
    return json.loads(text) if text is not None else None


def _check() -> None:
    if why := io_file.exposed(STATE):
        expected = f"Expected: a folder that only root can change. Fix: remove {STATE}"
        raise NetplanError(f"{why}, but root runs the program in {STATE}. {expected}")


def _save(path: str, document: Mapping[str, Any]) -> None:
    io_file.write_file(path, json.dumps(document, indent=1) + "\n", 0o600)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Prevent a confirmation and the timer from running at the same time."""
    if not os.path.lexists(STATE):
        os.makedirs(STATE, mode=0o700)
    _check()
    lock = os.open(f"{STATE}/lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def arm(
    run: Run,
    identifier: str,
    before: Mapping[str, Any],
    seconds: int,
    final: bool,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Schedule the restore of `before` in `seconds`. A state saved by an earlier unconfirmed change wins: it was good.

    `final`: after its confirmation, the collection no longer manages this network. `after` is the later argument of
    put(); its `original`, if present, are files that a removal restores in place of those in ORIGINAL.
    Raises NetplanError or OSError; then the caller must not change anything.
    """
    with _alone():
        earlier = read(PENDING) or {"before": {"files": {}, "links": {}}}
        kept = {kind: {**before[kind], **earlier["before"][kind]} for kind in ("files", "links")}
        planned = {"files": {}, **(after or {})}
        original = {**earlier.get("original", {}), **planned.get("original", {})}
        written = {
            **earlier.get("written", {}),
            **{path: digest(saved[0]) for path, saved in planned["files"].items() if saved},
        }
        _save(PENDING, {"id": identifier, "final": final, "before": kept, "original": original, "written": written})
        for path, saved in kept["files"].items():
            if saved is not None:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                io_file.write_file(_copy(path), *saved)
        for part in (io_file, sys.modules[__name__]):
            _install(part)
        service = (
            "[Unit]\nDescription=Restore the network configuration unless its change was confirmed (gb10.cluster)\n"
            f'[Service]\nType=oneshot\nExecStart={sys.executable} -I -B -c "import runpy, sys; '
            f"sys.path.insert(0, '{PROGRAM}'); runpy.run_module('{__name__}', run_name='__main__')\"\n"
            "Restart=on-failure\nRestartSec=5\n"
        )
        timer = (
            "[Unit]\nDescription=Wait for the confirmation of a network configuration change (gb10.cluster)\n"
            f"[Timer]\nOnActiveSec={seconds}\nAccuracySec=100ms\n[Install]\nWantedBy=timers.target\n"
        )
        io_file.write_file(f"{UNITS}/{UNIT}.service", service, 0o644)
        io_file.write_file(f"{UNITS}/{UNIT}.timer", timer, 0o644)
        for argv in (["daemon-reload"], ["enable", f"{UNIT}.timer"], ["restart", f"{UNIT}.timer"]):
            status, stdout, stderr = run(["systemctl", *argv])
            if status != 0:
                raise NetplanError(
                    f"systemctl {' '.join(argv)} failed, so nothing was changed: {(stderr or stdout).strip()}"
                )


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
    """Keep a change. Returns False if it is no longer pending because the timer was faster."""
    with _alone():
        pending = read(PENDING)
        if pending is None or pending["id"] != identifier:
            return False
        if pending["final"]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(ORIGINAL)
        else:
            original = read(ORIGINAL) or {"files": {}, "links": {}}
            # A removal restores the state before the very first change, except for files that others edited since.
            first = {kind: {**pending["before"][kind], **original[kind]} for kind in ("files", "links")}
            first["files"] |= pending.get("original", {})
            _save(ORIGINAL, {**first, "written": {**original.get("written", {}), **pending.get("written", {})}})
        _end(run, pending, "confirmed")
        return True


def restore(run: Run, how: str) -> bool:
    """Restore the state before the pending change. Returns False if there is none.

    Raises NetplanError; then the timer tries again.
    """
    with _alone():
        pending = read(PENDING)
        if pending is None:
            return False
        _put_back(run, pending["before"])
        _end(run, pending, how)
        return True


def _end(run: Run, pending: Mapping[str, Any], how: str) -> None:
    # A full disk prevents only this record. A change that stays pending would be restored repeatedly.
    with contextlib.suppress(OSError):
        _save(LAST, {"id": pending["id"], "how": how, "time": time.strftime("%Y-%m-%d %H:%M:%S")})
    for path in pending["before"]["files"]:
        with contextlib.suppress(OSError):
            os.unlink(_copy(path))
    os.unlink(PENDING)
    _disarm(run)


def _subprocess(argv: list[str]) -> tuple[int, str, str]:
    # A timer has no module with run_command.
    # pylint: disable-next=ansible-bad-function
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, result.stderr


if __name__ == "__main__":
    if restore(_subprocess, "restored by the timer"):
        sys.stdout.write("The network change was not confirmed in time. The previous configuration is restored.\n")
