"""Change fresh lab hosts to the state of a factory Spark, as far as Debian's packages allow.

NetworkManager is the renderer of all ports, sudo needs a password, a container publishes a port, the package lists are
old, and two packages of the collection are missing. The packages are in an index of this machine.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from live_cluster import Cluster, run_program
from repository import ROOT
from root_file_system import put
from run_playbook import Run
from testinfra.host import Host
from typed_command import typed

PASSWORD, TESTER, WEB_PORT = "Spark one 4711", "tester", 8188
OWNER = "gb10-owner"
PROGRAM = (ROOT / "tests/support/host_state.py").read_text(encoding="utf-8")
#: Packages stay, so /usr is left out.
FOLDERS = "/etc /var /opt /root /home /srv".split()
INDEX_PORT = 8480
#: The missing packages with their dependencies. The last three differ between Debian's releases.
PACKAGES = ("libnuma1", "python3-venv", "python3-pip-whl", "python3-setuptools-whl")
#: The ends of the prompts of access.yml.
LOGIN, ACCEPT = "(empty if each has your public key):", "Type yes to store the host keys:"
RENDERER = "network: {version: 2, renderer: NetworkManager}\n"
FILES = ROOT / "molecule/factory/files"


def download(folder: Path) -> None:
    """Write the missing packages and their index into a folder. Its lists are old until renew()."""
    python = subprocess.run(
        ["apt-cache", "depends", "--important", "python3-venv"], capture_output=True, text=True, check=True
    ).stdout
    version = next(word for word in python.split() if word.startswith("python3.") and word.endswith("-venv"))
    subprocess.run(["apt-get", "download", *PACKAGES, version], cwd=folder, check=True, capture_output=True)
    renew(folder, "0-old")


@contextmanager
def index(folder: Path, address: str) -> Iterator[str]:
    """Serve a package index during the block, and yield its URL."""
    command = ["python3", "-m", "http.server", "--bind", address, "--directory", str(folder), str(INDEX_PORT)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield f"http://{address}:{INDEX_PORT}"
        finally:
            server.terminate()


def renew(folder: Path, prefix: str = "") -> None:
    """Write the index.

    With a prefix it names files that do not exist, as lists do whose packages were replaced since.
    """
    entries = []
    for path in sorted(folder.glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "--field", path], capture_output=True, text=True, check=True).stdout
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        entries.append(f"{fields}Filename: ./{prefix}{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n")
    (folder / "Packages").write_text("\n".join(entries), encoding="utf-8")


def prepare(host: Host, index_url: str) -> None:
    """Change a fresh host. It must boot afterwards."""
    management = json.loads(host.file("/etc/netplan/00-management.yaml").content_string)
    ((name, settings),) = management["network"]["ethernets"].items()
    profile = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    document = {
        "network": {
            "version": 2,
            "ethernets": {
                f"NM-{profile}": {
                    "renderer": "NetworkManager",
                    "match": {"name": name},
                    "addresses": settings["addresses"],
                    "networkmanager": {"uuid": profile, "name": "Wired connection 1"},
                }
            },
        }
    }
    image = "tar --create --directory=/ bin/busybox | docker import - web"
    web = f"docker run --detach --restart=always --publish={WEB_PORT}:80 --name=web web /bin/busybox httpd -f -p 80"
    for path, text in {
        "/etc/udev/rules.d/90-lab.rules": (FILES / "udev.rules").read_text(encoding="utf-8"),
        "/etc/NetworkManager/conf.d/90-lab.conf": (FILES / "networkmanager.conf").read_text(encoding="utf-8"),
        "/etc/netplan/01-network-manager-all.yaml": RENDERER,
        f"/etc/netplan/90-NM-{profile}.yaml": json.dumps(document, indent=2),
        "/etc/apt/sources.list": f"deb [trusted=yes] {index_url} ./\n",
        # The tests' own access. The owner's user needs its password.
        f"/etc/sudoers.d/{TESTER}": f"{TESTER} ALL=(ALL) NOPASSWD: ALL\n",
        "/etc/ssh/sshd_config.d/10-lab.conf": "PermitRootLogin no\n",
    }.items():
        put(host, path, text, "600")
    for command in (
        "rm /etc/netplan/00-management.yaml",
        (
            f"useradd --create-home {TESTER} && cp -r /home/nvidia/.ssh /home/{TESTER}/ && chown -R {TESTER}: "
            f"/home/{TESTER}/.ssh"
        ),
        "rm -f /etc/apt/sources.list.d/*; apt-get update",
        # A week old, for apt and for Ansible's module.
        "find /var/lib/apt -exec touch --date='7 days ago' {} +",
        f"{image} && {web}",
        # The owner has a password only.
        "rm /home/nvidia/.ssh/authorized_keys",
        # Last, because this connection needs no password until then.
        f"echo 'nvidia:{PASSWORD}' | chpasswd && sed -i 's/NOPASSWD: ALL/ALL/' /etc/sudoers.d/nvidia",
    ):
        host.check_output(command)


@dataclass
class Evening:
    """The owner's clone, and the hosts as the tests see them: by a user whose sudo needs no password."""

    hosts: Cluster
    first: Mapping[str, Any]
    home: Path
    times: dict[str, float] = field(default_factory=dict)

    def connect(self, name: str) -> Host:
        """Return a connection to a host, which may still boot."""
        return self.hosts.booted(name)

    def reachable(self, name: str) -> Host | None:
        """Return a connection to a host, None without power."""
        try:
            return self.hosts.connect(name)
        except pytest.fail.Exception:
            return None

    def run(self, command: str, password: str = PASSWORD, limit: float = 900) -> Run:
        """Run one of the owner's commands in the clone.

        It types the password where it is prompted, and accepts the host keys.
        """
        prompts = {"BECOME password:": password, "password for nvidia:": password}
        prompts |= {LOGIN: password, ACCEPT: "yes"}
        began = time.monotonic()
        done = typed(OWNER, f"cd gb10.cluster && . ~/gb10/bin/activate && {command}", prompts, limit)
        self.times[command] = round(time.monotonic() - began, 1)
        sys.stdout.write(f"{self.times[command]:7.1f} s  {command}\n")
        return done

    def play(self, playbook: str, *arguments: str, **more: Any) -> Run:
        return self.run(" ".join(["ansible-playbook", playbook, "-i inventories/mine", *arguments, "-K"]), **more)


def errors(done: Run) -> str:
    """Return the list of errors at the end of a run's output, in one line."""
    return " ".join(done.output.rpartition("FAILED ****")[2].split())


def booted(hosts: Cluster) -> dict[str, Any]:
    """Return the state of each host after its boot."""
    states = {}
    for name in hosts.nodes:
        host = hosts.booted(name)
        host.run("systemctl is-system-running --wait")
        states[name] = run_program(host, PROGRAM, *FOLDERS)
    return states
