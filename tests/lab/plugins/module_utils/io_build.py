# Copyright: gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build, inspect and destroy the planned lab: namespaces, cables, root file systems and running nodes.

The lab's folder is the only state kept between runs; all else is read from the kernel. So the next run completes the
work of a killed one. Needs root.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.lab.plugins.module_utils.plan import (
    Bind,
    Lab,
    LabError,
    LabNode,
    Link,
    Observed,
    bind_arguments,
    checked_name,
    interfaces_of,
    known_hosts,
    node_files,
    stamp,
)

#: Runs a command and returns (status, stdout, stderr), like AnsibleModule.run_command.
Run = Callable[[Sequence[str]], "tuple[int, str, str]"]

TOOLS = {
    "ip": "iproute2",
    "systemd-nspawn": "systemd-container",
    "ssh-keygen": "openssh-client",
    "ssh": "openssh-client",
    "unshare": "util-linux",
    "tar": "tar",
}
#: In place of systemd-nspawn, for virtual machines.
EMULATOR = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils"}
#: The login user of the nodes, created by the base image.
USER_ID = 1000
#: Without this tar drops file capabilities, and users cannot run ping.
XATTRS = ("--xattrs", "--xattrs-include=*")
NETNS_DIR = Path("/run/netns")


def cgroup_root() -> Path:
    """Return this machine's cgroup2 mount: the usual path, or unified/ next to version 1 hierarchies."""
    for path in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (path / "cgroup.controllers").exists():
            return path
    raise LabError("/sys/fs/cgroup: no cgroup2 here or in unified/: mount it, systemd inside the nodes needs it")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content and mode, or of a folder's tree; '' if the path does not exist."""
    if not path.exists():
        return ""
    digest = hashlib.sha256()
    for item in sorted([path, *path.rglob("*")] if path.is_dir() else [path]):
        digest.update(f"{item.relative_to(path)}\0{item.stat().st_mode:o}\0".encode())
        if item.is_file():
            digest.update(hashlib.sha256(item.read_bytes()).digest())
    return digest.hexdigest()


class LabBuilder:
    """One lab on this machine. ``directory`` is the lab's own folder with all state outside the kernel."""

    def __init__(self, name: str, directory: str, run: Run) -> None:
        self.name = checked_name(name)
        self.dir = Path(directory)
        self.nodes_dir = self.dir / "nodes"
        self.ssh_dir = self.dir / "ssh"
        self.cgroup = cgroup_root() / "gb10-lab" / name
        self._run = run

    @contextlib.contextmanager
    def exclusive(self, timeout: float) -> Iterator[None]:
        """Lock this lab against other runs. Raises LabError if another run holds the lock for over ``timeout`` seconds.

        A killed ansible-playbook leaves its module running, so the next run may start while that module still works.
        """
        # An abstract socket needs no cleanup: the kernel releases it when the process ends, for any reason.
        with socket.socket(socket.AF_UNIX) as lock:
            deadline = time.monotonic() + timeout
            while True:
                try:
                    lock.bind(f"\0gb10-lab/{self.name}")
                    break
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
                    if time.monotonic() > deadline:
                        raise LabError(
                            f"another run has been changing lab {self.name} for {timeout:.0f} s: wait for it to end"
                        ) from error
                    time.sleep(0.1)
            yield

    # -- existing state ---------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether any part of this lab is on the machine."""
        return self.dir.exists() or self.cgroup.exists() or bool(self._namespaces())

    def observe(self) -> dict[str, Observed]:
        """Return all nodes with any trace: a folder, a control group or a network namespace."""
        names = {p.name for p in (*_folders(self.nodes_dir), *_folders(self.cgroup))}
        names |= {n.removeprefix(f"{self.name}-") for n in self._namespaces()} - {"switch"}
        return {
            name: Observed(
                stamp=_read(self.nodes_dir / name / "stamp"),
                links=self._interfaces(f"{self.name}-{name}"),
                running="populated 1" in _read(self.cgroup / name / "cgroup.events"),
            )
            for name in sorted(names)
        }

    def check(self, lab: Lab) -> None:
        """Raise LabError if the lab cannot work here: missing tools, no root, or an address range in use."""
        tools = {**TOOLS, **EMULATOR} if any(node.virtual for node in lab.nodes) else TOOLS
        missing = sorted(package for tool, package in tools.items() if shutil.which(tool) is None)
        if missing:
            raise LabError(f"missing on this machine: {', '.join(missing)}: apt install {' '.join(missing)}")
        if os.geteuid() != 0:
            raise LabError("building a lab needs root: run the playbook with become")
        for link in json.loads(self._must(["ip", "-j", "-4", "address", "show"])):
            taken = [a["local"] for a in link["addr_info"] if str(a.get("local", "")).startswith(f"{lab.prefix}.")]
            if taken and link["ifname"] != lab.uplink:
                found = f"{link['ifname']} already has {taken[0]}"
                raise LabError(f"lab_prefix: {lab.prefix}: {found}: choose another prefix, or destroy that lab")

    def check_sources(self, paths: Iterable[str], binds: Sequence[Bind]) -> None:
        """Raise LabError if files are missing. Folders that the nodes may write to are created."""
        for bind in binds:
            if bind.writable:
                os.makedirs(bind.src, exist_ok=True)
        missing = [path for path in [*paths, *(bind.src for bind in binds)] if not Path(path).exists()]
        if missing:
            raise LabError(f"no such file or folder on this machine: {', '.join(missing)}")

    def _namespaces(self) -> list[str]:
        # Lab names contain no hyphen, so the prefix cannot match another lab's namespace.
        return sorted(p.name for p in NETNS_DIR.glob(f"{self.name}-*"))

    def _interfaces(self, netns: str) -> frozenset[str]:
        where = ["-n", netns] if netns else []
        if netns and not (NETNS_DIR / netns).exists():
            return frozenset()
        status, out, _err = self._run(["ip", *where, "-j", "link", "show"])
        return frozenset(link["ifname"] for link in json.loads(out or "[]")) if status == 0 else frozenset()

    # -- keys and stamps -------------------------------------------------------------------------------------------

    def make_keys(self, lab: Lab, owner: int) -> None:
        """Create one login key for the lab and one pinned host key per node, once per lab. ``owner`` may log in."""
        (self.ssh_dir / "hosts").mkdir(parents=True, exist_ok=True)
        for key in [self.ssh_dir / "id_ed25519", *(self._host_key(node) for node in lab.nodes)]:
            if not key.with_name(f"{key.name}.pub").exists():
                key.unlink(missing_ok=True)
                self._must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {self.name}", "-f", str(key)])
        keys = {node.name: _read(self._host_key(node).with_name(f"{node.name}.pub")) for node in lab.nodes}
        _write(self.ssh_dir / "known_hosts", known_hosts(lab, keys), 0o644)
        # The user who runs Ansible reads the key and stores ssh's control sockets here.
        os.chmod(self.ssh_dir, 0o700)
        os.chmod(self.ssh_dir / "hosts", 0o700)
        for path in [self.ssh_dir, *self.ssh_dir.glob("id_ed25519*"), self.ssh_dir / "known_hosts"]:
            os.chown(path, owner, -1)

    def _host_key(self, node: LabNode) -> Path:
        return self.ssh_dir / "hosts" / node.name

    def stamps(
        self, lab: Lab, base: str, firmware: str, files: Iterable[dict[str, str]], binds: Sequence[Bind]
    ) -> dict[str, str]:
        """Return each planned node's expected stamp, from the content of its inputs."""
        common = {
            # The image's name contains the hash of its recipe.
            "base": Path(base).name,
            "firmware": file_hash(Path(firmware)),
            "files": [[f["dest"], file_hash(Path(f["src"]))] for f in files],
            "login": _read(self.ssh_dir / "id_ed25519.pub"),
        }

        def own(node: LabNode) -> dict[str, Any]:
            return {"binds": bind_arguments(node.name, binds), "host": _read(self._host_key(node))}

        return {node.name: stamp(lab, node, {**common, **own(node)}) for node in lab.nodes}

    # -- building --------------------------------------------------------------------------------------------------

    def unpack_base(self, tarball: str) -> Path:
        """Unpack the base image into the lab's folder and delete the previous one. Returns its root."""
        target = self.dir / Path(tarball).name.removesuffix(".tar")
        if not target.exists():
            part = target.with_name(f"{target.name}.part")
            _remove(part)
            part.mkdir(parents=True)
            # nspawn creates its own /dev, and some machines forbid device nodes.
            how = ["--extract", "--numeric-owner", *XATTRS, "--exclude=./dev/*"]
            self._must(["tar", *how, f"--file={tarball}", f"--directory={part}"])
            part.rename(target)
        for other in _folders(self.dir):
            if other.name.startswith("base-") and other != target:
                _remove(other)
        return target

    def create(
        self, lab: Lab, node: LabNode, base: Path, files: Iterable[dict[str, str]], binds: Sequence[Bind], wanted: str
    ) -> None:
        """Create one node's folder. The stamp is written last, so an incomplete node is created again."""
        home = self.nodes_dir / node.name
        _remove(home)
        upper = home / "upper"
        for folder in (upper, home / "work", home / "root"):
            folder.mkdir(parents=True)
        for item in files:
            _copy(Path(item["src"]), _inside(upper, item["dest"]))
        for path, (content, mode) in node_files(node).items():
            _write(_inside(upper, path), content, mode)
        for suffix, mode in (("", 0o600), (".pub", 0o644)):
            source = self._host_key(node).with_name(node.name + suffix)
            _write(_inside(upper, f"etc/ssh/ssh_host_ed25519_key{suffix}"), _read(source), mode)
        # A folder in the upper layer sets the owner and mode of the merged one.
        authorized = _inside(upper, "home/nvidia/.ssh/authorized_keys")
        _write(authorized, _read(self.ssh_dir / "id_ed25519.pub"), 0o600)
        os.chmod(authorized.parent, 0o700)
        for owned in (authorized, authorized.parent, authorized.parent.parent):
            os.chown(owned, USER_ID, USER_ID)
        if node.virtual:
            self._make_disk(home, base)
        environment = {
            "MACHINE": node.machine,
            "NETNS": node.netns,
            "CGROUP": str(self.cgroup / node.name),
            "BASE": str(base),
            "INTERFACES": " ".join(sorted(interfaces_of(lab, node.netns))),
            "BINDS": " ".join(bind_arguments(node.name, binds)),
        }
        _write(home / "node.env", "".join(f"{k}='{v}'\n" for k, v in environment.items()), 0o644)
        _write(home / "stamp", wanted, 0o644)

    def _make_disk(self, home: Path, base: Path) -> None:
        """Create a virtual machine's disk, with the differences from the base, and the disk with the node's files."""
        # The machine generated its ID before it unpacks these files.
        how = ["--create", "--numeric-owner", "--exclude=./etc/machine-id", f"--directory={home / 'upper'}"]
        self._must(["tar", *how, f"--file={home / 'seed.tar'}", "."])
        disk = str(home / "disk.qcow2")
        self._must(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(base), disk])

    def cable(self, lab: Lab) -> None:
        """Create missing namespaces, switches and links. Existing ones, and traffic over them, are not affected."""
        for netns in [lab.switch, *(node.netns for node in lab.nodes)]:
            if not (NETNS_DIR / netns).exists():
                self._must(["ip", "netns", "add", netns])
                # systemd sets this at boot, but a container may not. Since Debian 13, ping needs it for all but root.
                self._must(["ip", "netns", "exec", netns, "sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647"])
            self._must(["ip", "-n", netns, "link", "set", "lo", "up"])
        present = {netns: self._interfaces(netns) for netns in ["", lab.switch, *(node.netns for node in lab.nodes)]}
        for bridge in lab.bridges:
            if bridge not in present[lab.switch]:
                self._must(["ip", "-n", lab.switch, "link", "add", bridge, "type", "bridge"])
            self._must(["ip", "-n", lab.switch, "link", "set", bridge, "up"])
        for link in lab.links:
            there = [end for end in (link.a, link.b) if end.name in present[end.netns]]
            if len(there) != 2:
                self._make_link(link)
        self._must(["ip", "address", "replace", f"{lab.gateway}/24", "dev", lab.uplink])
        self._prune(lab, present[lab.switch])

    def _make_link(self, link: Link) -> None:
        for end in (link.a, link.b):  # a single end belongs to an old topology or another lab and cannot be reused
            if end.name in self._interfaces(end.netns):
                self._must(["ip", *(["-n", end.netns] if end.netns else []), "link", "delete", end.name])
        a, b = link.a, link.b
        there = ["netns", a.netns] if a.netns else []
        peer = ["peer", "name", b.name, "address", b.mac, "netns", b.netns]
        self._must(["ip", "link", "add", a.name, *there, "address", a.mac, "type", "veth", *peer])
        for end in (a, b):
            where = ["-n", end.netns] if end.netns else []
            master = ["master", end.bridge] if end.bridge else []
            self._must(["ip", *where, "link", "set", end.name, "mtu", str(end.mtu), *master, "up"])

    def _prune(self, lab: Lab, present: frozenset[str]) -> None:
        """Remove leftovers of an earlier plan from the switch."""
        planned = interfaces_of(lab, lab.switch) | set(lab.bridges) | {"lo"}
        for name in sorted(present - planned & self._interfaces(lab.switch)):
            self._must(["ip", "-n", lab.switch, "link", "delete", name])

    def install_firmware(self, firmware: str) -> None:
        """Copy the power script into the lab's folder, where it finds its nodes."""
        target = self.dir / "power.sh"
        if _read(target) != _read(Path(firmware)):
            # Replace the file, because bash reads a running script piece by piece.
            part = target.with_name("power.sh.part")
            _write(part, _read(Path(firmware)), 0o755)
            part.rename(target)

    def power_on(self, node: LabNode) -> None:
        """Start a node in the background."""
        self._must([str(self.dir / "power.sh"), "on", node.name])

    def wait(self, nodes: Iterable[LabNode], timeout: float) -> None:
        """Wait for every node's sshd. After ``timeout`` seconds raise LabError with the consoles of missing nodes."""
        deadline = time.monotonic() + timeout
        waiting = list(nodes)
        while waiting and time.monotonic() < deadline:
            waiting = [node for node in waiting if not _has_banner(node.address)]
            if waiting:
                time.sleep(0.1)
        if waiting:
            consoles = "\n".join(
                f"{n.name} ({n.address}): {_tail(self.nodes_dir / n.name / 'console.log')}" for n in waiting
            )
            raise LabError(f"no ssh banner after {timeout:.0f} s from:\n{consoles}")

    # -- destroying ------------------------------------------------------------------------------------------------

    def remove_node(self, name: str) -> None:
        """Turn the node off and remove its namespace and folder."""
        _kill(self.cgroup / name)
        self._remove_namespace(f"{self.name}-{name}")
        _remove(self.nodes_dir / name)

    def _remove_namespace(self, netns: str) -> None:
        # Delete one by one: the kernel clears a deleted namespace later, when a new one may already use its names.
        for name in sorted(self._interfaces(netns) - {"lo"}):
            self._must(["ip", "-n", netns, "link", "delete", name])
        if (NETNS_DIR / netns).exists():
            self._must(["ip", "netns", "delete", netns])

    def destroy(self) -> None:
        """Remove everything with the lab's name, including leftovers of a killed run."""
        if self.dir.exists() and any(self.dir.iterdir()) and not (self.dir / "lab.json").exists():
            found = "contains files but no lab.json, so it is not a lab and was not deleted"
            raise LabError(f"lab_dir: {self.dir} {found}: check the path")
        for master in self.ssh_dir.glob("*@*") if self.ssh_dir.exists() else []:
            # Ansible's persistent connections would stay as processes for minutes.
            self._run(["ssh", "-O", "exit", "-o", f"ControlPath={master}", "lab"])
        for name in self.observe():
            self.remove_node(name)
        for netns in self._namespaces():
            self._remove_namespace(netns)
        if f"{self.name}-mgmt" in self._interfaces(""):  # without a switch; else it went with its peer
            self._must(["ip", "link", "delete", f"{self.name}-mgmt"])
        _kill(self.cgroup)
        _rmdir_if_empty(self.cgroup.parent)
        # Delete the file that identifies a lab last, so that a killed run can be repeated.
        for item in self.dir.iterdir() if self.dir.exists() else []:
            if item.name != "lab.json":
                _remove(item)
        _remove(self.dir)
        if self.dir.parent.name == "gb10-lab":
            _rmdir_if_empty(self.dir.parent)

    def mark(self, lab: Lab) -> None:
        """Write lab.json, which identifies this folder as a lab to people and to ``destroy``."""
        self.nodes_dir.mkdir(parents=True, exist_ok=True)
        document: dict[str, Any] = {
            "name": lab.name,
            "topology": lab.topology,
            "switch": lab.switch,
            "nodes": {n.name: {"address": n.address, "netns": n.netns, "machine": n.machine} for n in lab.nodes},
            "links": [[f"{e.netns or 'host'}:{e.name}" for e in (link.a, link.b)] for link in lab.links],
        }
        _write(self.dir / "lab.json", json.dumps(document, indent=2) + "\n", 0o644)

    def _must(self, command: Sequence[str]) -> str:
        status, out, err = self._run(command)
        if status != 0:
            raise LabError(f"`{' '.join(command)}` exited with status {status}: {err.strip() or out.strip()}")
        return out


def _folders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _write(path: Path, content: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Create it with its final permissions, so that a private key is never readable in between.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
        file.write(content)
    os.chmod(path, mode)


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _rmdir_if_empty(path: Path) -> None:
    if path.is_dir() and not any(p.is_dir() for p in path.iterdir()):
        os.rmdir(path)


def _kill(cgroup: Path, timeout: float = 15.0) -> None:
    """Kill all processes of a control group with SIGKILL, wait for their end, and remove the group."""
    if not cgroup.exists():
        return
    (cgroup / "cgroup.kill").write_text("1", encoding="ascii")
    deadline = time.monotonic() + timeout
    while "populated 1" in _read(cgroup / "cgroup.events"):
        if time.monotonic() > deadline:
            raise LabError(f"{cgroup}: processes survived SIGKILL for {timeout:.0f} s: see cgroup.procs below it")
        time.sleep(0.02)
    for folder, _folders, _files in os.walk(cgroup, topdown=False):
        os.rmdir(folder)


def _has_banner(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1.0) as connection:
            # A slow machine that is asked again and again would refuse its logins (sshd's MaxStartups).
            connection.settimeout(30.0)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _tail(path: Path, lines: int = 15) -> str:
    return "\n  ".join(["console", *_read(path).splitlines()[-lines:]])
