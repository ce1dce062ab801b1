# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine of the lab, where the real one lacks ip, nft, systemd-nspawn or Ansible: a Debian root file system,
entered by chroot.

Its mounts belong to the machine and stay between calls, as do the lab's hosts.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from adhoc import ROOT

#: The checkout in the root.
CHECKOUT = "/srv/gb10"
ANSIBLE = "/opt/ansible"
#: The parts of the machine that the hosts share: the driver and the toolkit.
DRIVER, TOOLKIT = Path("/usr/local/nvidia"), Path("/usr/local/cuda")
ENVIRONMENT = {
    "PATH": f"{ANSIBLE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "ANSIBLE_CONFIG": f"{CHECKOUT}/ansible.cfg",
    "ANSIBLE_NOCOLOR": "1",
}


@dataclass(frozen=True)
class Result:
    """A program that ended: its status, or -1 at the limit, its output, and its time."""

    status: int
    output: str
    seconds: float


@dataclass(frozen=True)
class Root:
    """A root file system below the folder of site.py. The folder has the same path inside."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "root"

    def install(self) -> None:
        """Unpack the base image, and install Ansible from the packed wheels."""
        base = next((self.folder / "cache").glob("base-*.tar"))
        self.path.mkdir()
        unpack = ["tar", "--extract", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--exclude=./dev/*"]
        _run([*unpack, f"--file={base}", f"--directory={self.path}"])
        # Ansible's module apt reads package lists again if this file is a day old.
        stamp = self.path / "var/lib/apt/periodic/update-success-stamp"
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
        self.mount()
        wheels = self.path / "srv/wheels"
        wheels.mkdir()
        _run(["tar", "--extract", f"--file={self.folder / 'controller.tar'}", f"--directory={wheels}"])
        for command in (
            ["python3", "-m", "venv", ANSIBLE],
            ["sh", "-c", f"{ANSIBLE}/bin/pip install --quiet --no-index --no-deps /srv/wheels/*.whl"],
        ):
            done = self.run(command, 300)
            if done.status:
                raise RuntimeError(f"{' '.join(command)}: {done.output}")

    def mount(self) -> None:
        """Mount the missing folders. The checkout may be another one than in the last call."""
        # A program in a chroot needs a mount as its root to have mounts of its own.
        self._mount("", ["--bind", str(self.path)])
        self._mount("proc", ["-t", "proc", "proc"])
        self._mount("sys", ["-t", "sysfs", "sysfs"])
        self._mount("sys/fs/cgroup", ["-t", "cgroup2", "cgroup2"])
        self._mount("dev", ["--rbind", "/dev"])
        self._mount("run", ["-t", "tmpfs", "-o", "mode=755", "tmpfs"])
        self._mount(str(self.folder).lstrip("/"), ["--bind", str(self.folder)])
        for shared in (DRIVER, TOOLKIT):
            if shared.exists():
                self._mount(str(shared).lstrip("/"), ["--bind", str(shared.resolve())])
        checkout = self.path / CHECKOUT.lstrip("/")
        if str(checkout) in self._mounted():
            _run(["umount", "--lazy", str(checkout)])
        self._mount(CHECKOUT.lstrip("/"), ["--bind", str(ROOT)])

    def _mount(self, place: str, arguments: Sequence[str]) -> None:
        target = self.path / place if place else self.path
        if str(target) not in self._mounted():
            target.mkdir(parents=True, exist_ok=True)
            _run(["mount", *arguments, str(target)])
            # Otherwise the machine's mounts would follow those of the hosts.
            _run(["mount", "--make-rprivate", str(target)])

    def _mounted(self) -> list[str]:
        with Path("/proc/self/mountinfo").open(encoding="utf-8") as file:
            return [
                path for line in file if (path := line.split()[4]) == str(self.path) or path.startswith(f"{self.path}/")
            ]

    def unmount(self) -> None:
        """Undo mount()."""
        while mounted := self._mounted():
            _run(["umount", "--lazy", mounted[-1]])

    def run(self, command: Sequence[str], limit: float, log: Path | None = None) -> Result:
        """Run a program in the root. Each line of ``log`` begins with its second."""
        began, lines = time.monotonic(), []
        inside = [
            "chroot",
            str(self.path),
            "env",
            "-i",
            f"--chdir={CHECKOUT}",
            *(f"{name}={value}" for name, value in ENVIRONMENT.items()),
        ]
        with (
            subprocess.Popen(
                [*inside, "timeout", "--kill-after=10", str(int(limit)), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process,
            Path(log or os.devnull).open("a", encoding="utf-8") as file,
        ):
            assert process.stdout
            for line in process.stdout:
                lines.append(line)
                file.write(f"{time.monotonic() - began:7.1f} {line}")
                file.flush()
        status = -1 if process.returncode in (124, 137) else process.returncode
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)
        return Result(status, "".join(lines), time.monotonic() - began)


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True)
