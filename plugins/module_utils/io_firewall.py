# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading and changing a host's own table of nftables, so that a change that cuts the host off is taken back by the host itself."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping

from ansible_collections.gb10.cluster.plugins.module_utils import firewall, io_file
from ansible_collections.gb10.cluster.plugins.module_utils.io_node import Run

#: The rules that were confirmed, which is what the unit loads at boot. Those that are being tried are in no file.
RULES = "/etc/gb10/firewall.nft"
UNIT = "gb10-firewall.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
#: The transient timer that goes back to RULES.
RESTORE = "gb10-firewall-restore"
_NO_NFT = 127
# Both in one process, because the namespace ends with it.
_SCRATCH = 'nft -f "$1" && nft --stateless list table inet gb10'


class FirewallError(Exception):
    """The host refused a step; the message says which and why."""


def ruling(run: Run) -> tuple[bool, str]:
    """Return (whether nft is installed, which other firewall rules, "" if none does). Raises FirewallError if nft's answer is an error."""
    active = []
    if _asked(run, ["ufw", "status"]).startswith("Status: active"):
        active.append("ufw")
    if _asked(run, ["firewall-cmd", "--state"]).strip() == "running":
        active.append("firewalld")
    legacy = "".join(
        _asked(run, [f"{tool}-legacy", "-S", "INPUT"])
        for tool, tables in (("iptables", "ip_tables_names"), ("ip6tables", "ip6_tables_names"))
        # Asking would load the kernel's module where it is not loaded.
        if "filter" in (io_file.read_file(f"/proc/net/{tables}")[0] or "").split()
    )
    status, stdout, stderr = run(["nft", "--json", "list", "ruleset"])
    if status not in (0, _NO_NFT):
        raise FirewallError(f"nft list ruleset failed: {stderr.strip()}")
    return status == 0, firewall.ruler(stdout if status == 0 else "", legacy, active)


def _asked(run: Run, argv: list[str]) -> str:
    """Return what a command says, "" where it is not installed or says no by its status."""
    status, stdout, _stderr = run(argv)
    return stdout if status == 0 else ""


def loaded(run: Run) -> str:
    """Return our table as the kernel has it, "" if it has none."""
    return _asked(run, ["nft", "--stateless", "list", "table", *firewall.TABLE.split()])


def listing(run: Run, text: str) -> str:
    """Return a ruleset as the kernel would list it, by loading it in a network namespace of its own. Raises FirewallError if it is refused."""
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


def unit_files(nft: str, text: str) -> dict[str, str]:
    """Return what has to be on disk for the rules to be loaded at boot."""
    return {RULES: text, UNIT_FILE: firewall.unit(nft, RULES)}


def unsaved(run: Run, files: Mapping[str, str]) -> list[str]:
    """Return what is not yet so that the rules come back at boot."""
    found = [path for path, text in files.items() if io_file.read_file(path) != (text, 0o644)]
    state = _asked(run, ["systemctl", "show", "--property=UnitFileState,ActiveState", UNIT]).split()
    return found + [f"{UNIT}: {wanted.partition('=')[2]}" for wanted in ("UnitFileState=enabled", "ActiveState=active") if wanted not in state]


def pending(run: Run) -> bool:
    """Whether a change waits for its confirmation."""
    return run(["systemctl", "--quiet", "is-active", f"{RESTORE}.timer"])[0] == 0


def attempt(run: Run, nft: str, text: str, seconds: int) -> None:
    """Load rules that go away again in so many seconds unless they are confirmed. Raises FirewallError; then nothing was changed."""
    disarm(run)
    # systemd-run resolves no variable and no shell; what was confirmed last is decided when the timer is set.
    back = [nft, "-f", RULES] if os.path.exists(RULES) else [nft, "delete", "table", *firewall.TABLE.split()]
    _must(run, ["systemd-run", "--quiet", f"--unit={RESTORE}", f"--on-active={seconds}s", "--timer-property=AccuracySec=1s", *back])
    try:
        with _written(text) as path:
            _must(run, [nft, "-f", path])
    except FirewallError:
        disarm(run)
        raise


def save(run: Run, files: Mapping[str, str]) -> None:
    """Keep the rules that are loaded, also over a reboot. Raises FirewallError or OSError."""
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        io_file.write_file(path, text, 0o644)
    _must(run, ["systemctl", "daemon-reload"])
    _must(run, ["systemctl", "--quiet", "enable", UNIT])
    # If it has not run yet, it loads the same rules once more, in one step.
    _must(run, ["systemctl", "start", UNIT])
    disarm(run)


def disarm(run: Run) -> None:
    """Forget the timer, if there is one."""
    run(["systemctl", "--quiet", "stop", f"{RESTORE}.timer"])
    run(["systemctl", "--quiet", "reset-failed", f"{RESTORE}.service"])


def there(run: Run) -> list[str]:
    """Return what of ours is on the host."""
    return [path for path in (RULES, UNIT_FILE) if os.path.exists(path)] + ([f"table {firewall.TABLE}"] if loaded(run) else [])


def remove(run: Run) -> None:
    """Take our table away, and what brings it back. Raises FirewallError or OSError."""
    disarm(run)
    if os.path.exists(UNIT_FILE):
        _must(run, ["systemctl", "--quiet", "disable", "--now", UNIT])
    for path in (RULES, UNIT_FILE):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    _must(run, ["systemctl", "daemon-reload"])
    if loaded(run):
        _must(run, ["nft", "delete", "table", *firewall.TABLE.split()])


def _must(run: Run, argv: list[str]) -> None:
    status, stdout, stderr = run(argv)
    if status != 0:
        raise FirewallError(f"{' '.join(argv)} failed: {(stderr or stdout).strip()}")
