"""Machines with a real sshd and sudo, and a controller, in namespaces of their own: nothing on this machine changes.

Needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from repository import ROOT
from run_playbook import Run
from waiting import wait_until

#: Debian's packages with their programs. They are extracted instead of installed, which would start sshd here.
PACKAGES = ("openssh-server", "sudo", "libwrap0")
KEPT = Path.home() / ".cache/gb10-lab/sshd"
#: An address that refuses connections, one without a route, and one that does not answer.
REFUSED, NO_ROUTE, SILENT = "198.51.100.21", "198.51.100.22", "198.51.100.23"

#: Folders that a host changes become overlays. $1 is the folder of the packages, $2 that of the host.
_OVERLAYS = """
set -eu
mount --make-rprivate /
mkdir -p "$2" && mount -t tmpfs tmpfs "$2"
overlay() { mkdir -p "$3/up$1" "$3/work$1"; mount -t overlay overlay -o "lowerdir=$2$1,upperdir=$3/up$1,workdir=$3/work$1" "$1"; }
"""
_CONTROLLER = f"""{_OVERLAYS}
overlay "$HOME" '' "$2"
ip link set lo up
for host in 11 12 21; do ip address add "198.51.100.$host/32" dev lo; done
ip route add unreachable {NO_ROUTE}
ip link add void0 type veth peer name void1
ip link set void0 up && ip link set void1 up
ip route add {SILENT} dev void0
ip neighbor add {SILENT} lladdr 02:00:00:00:00:23 dev void0 nud permanent
touch "$2/ready"
exec sleep infinity
"""
#: $3 is the address, $4 the line of sudoers. The password is on the standard input.
_HOST = f"""{_OVERLAYS}
overlay /etc "$1/etc:" "$2"
overlay /usr "$1/usr:" "$2"
overlay /home '' "$2"
mount -t tmpfs tmpfs /run && mkdir -p /run/sshd
useradd --system --shell /usr/sbin/nologin sshd 2>/dev/null || true
useradd --create-home --shell /bin/bash nvidia
chpasswd
printf '%s\\n' "$4" > /etc/sudoers.d/nvidia && chmod 440 /etc/sudoers.d/nvidia
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
touch "$2/ready"
exec /usr/sbin/sshd -D -e -f /dev/null -o UsePAM=no -o ListenAddress="$3" -o PasswordAuthentication=yes -o KbdInteractiveAuthentication=no
"""


def packages() -> Path:
    """Return the folder with the extracted packages."""
    if not KEPT.is_dir():
        part = KEPT.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=part, check=True)
        for package in part.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, part], check=True)
            package.unlink()
        if (part / "lib").is_dir():
            shutil.copytree(part / "lib", part / "usr/lib", dirs_exist_ok=True, symlinks=True)
        part.rename(KEPT)
    return KEPT


class Site:
    """A controller and its machines."""

    def __init__(self, folder: Path, controller: int) -> None:
        self._folder, self._controller = folder, controller
        self._inside = ["nsenter", "--target", str(controller), "--net", "--mount"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, address: str, password: str, sudo: str) -> None:
        """Start a machine whose user nvidia has this password and line of sudoers."""
        state = self._folder / address
        process = subprocess.Popen(
            [
                "nsenter",
                "--target",
                str(self._controller),
                "--net",
                "unshare",
                "--mount",
                "sh",
                "-c",
                _HOST,
                "sh",
                packages(),
                state,
                address,
                sudo,
            ],
            stdin=subprocess.PIPE,
            stderr=(self._folder / f"{address}.log").open("wb"),
        )
        self._processes[address] = process
        assert process.stdin is not None
        process.stdin.write(f"nvidia:{password}\n".encode())
        process.stdin.close()
        # The folder is only visible in the machine's namespace.
        scan = ["ssh-keyscan", "-T", "1", "-t", "ed25519", address]
        log = self._folder / f"{address}.log"
        wait_until(lambda: process.poll() is not None or "ssh-ed25519" in self.run(scan).output, 300, pause=0.1)
        assert process.poll() is None, log.read_text(encoding="utf-8")

    def stop(self, address: str | None = None) -> None:
        """Stop one machine, or all."""
        for name in [address] if address else list(self._processes):
            process = self._processes.pop(name)
            process.terminate()
            process.wait()

    def run(self, argv: Sequence[str | Path]) -> Run:
        """Run a command on the controller, without a terminal."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        result = subprocess.run([*self._inside, *argv], **pipes, text=True, check=False)
        return Run(result.returncode, result.stdout)

    def on_host(self, address: str, command: str) -> str:
        """Return the output of a command that root runs on a machine."""
        target = str(self._processes[address].pid)
        return subprocess.run(
            ["nsenter", "--target", target, "--mount", "sh", "-c", command], capture_output=True, text=True, check=True
        ).stdout

    def playbook(self, *arguments: str, answers: Sequence[tuple[str, str]] = (), cwd: Path = ROOT) -> Run:
        """Run playbooks/access.yml on a terminal, and answer each prompt that contains a text."""
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        return terminal(
            [*self._inside, "--wd=" + str(cwd), program, str(ROOT / "playbooks/access.yml"), *arguments], answers
        )


def terminal(argv: Sequence[str], answers: Sequence[tuple[str, str]]) -> Run:
    """Run a command on a terminal of its own."""
    pid, channel = pty.fork()
    if pid == 0:
        # Another folder has no ansible.cfg.
        settings = {"ANSIBLE_INJECT_FACT_VARS": "false", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
        os.execvpe(argv[0], list(argv), os.environ | settings | {"TERM": "dumb"})
    # Wide enough that the callback does not break lines.
    fcntl.ioctl(channel, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 2000, 0, 0))
    output, waiting, deadline = "", list(answers), time.monotonic() + 240
    with contextlib.suppress(OSError):  # the end of a terminal's output on Linux
        while time.monotonic() < deadline:
            if not select.select([channel], [], [], 1)[0]:
                continue
            data = os.read(channel, 65536)
            if not data:
                break
            output += data.decode(errors="replace")
            if waiting and waiting[0][0] in output:
                # The program turns the echo off after its prompt.
                time.sleep(0.5)
                os.write(channel, f"{waiting.pop(0)[1]}\n".encode())
        else:
            os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(channel)
    return Run(status, output.replace("\r\n", "\n"))


@contextlib.contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Start a controller without machines."""
    packages()
    controller = subprocess.Popen(
        ["unshare", "--net", "--mount", "sh", "-c", _CONTROLLER, "sh", packages(), folder / "controller"]
    )
    found = Site(folder, controller.pid)
    try:
        ready = ("test", "-e", folder / "controller/ready")
        wait_until(lambda: controller.poll() is not None or found.run(ready).status == 0, 10, pause=0.1)
        assert controller.poll() is None, "the namespaces cannot be created"
        yield found
    finally:
        found.stop()
        controller.terminate()
        controller.wait()
