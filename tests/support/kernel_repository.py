"""A package repository with a newer kernel of the distribution, reduced to the modules that a virtual machine uses.

The whole package takes a quarter of an hour to unpack without hardware acceleration. The hooks that its installation
runs are the distribution's.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import factory_hosts

#: What update of the distribution brings: a package that depends on the newest kernel.
META = "linux-image-amd64"
#: The file lets the lab's nvidia-smi fail until the reboot, as a new driver does.
_POSTINST = """\
#!/bin/sh
set -e
touch /run/nvidia-smi.mismatch
depmod {release}
run-parts --exit-on-error --arg={release} --arg=/boot/vmlinuz-{release} /etc/kernel/postinst.d
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel's files below a folder, and its release."""

    folder: Path
    release: str

    @classmethod
    def extracted(cls, package: str, suite: str, folder: Path) -> Kernel:
        """Download a kernel's package, which may be the name of the newest one, into a folder."""
        archive = folder / "kernel.tar"
        arguments = ["--quiet", "--variant=extract", "--format=tar", "--components=main", f"--include={package}"]
        subprocess.run(["mmdebstrap", *arguments, suite, str(archive)], check=True)
        subprocess.run(["tar", "--extract", f"--file={archive}", "./boot", "./lib/modules"], cwd=folder, check=True)
        archive.unlink()
        (image,) = folder.glob("boot/vmlinuz-*")
        return cls(folder, image.name.removeprefix("vmlinuz-"))

    @property
    def package(self) -> str:
        """The name of its package."""
        return f"linux-image-{self.release}"

    def files(self, modules: Collection[str]) -> Iterator[Path]:
        """Yield the files of the modules, of those that they depend on, and the lists of all."""
        top = self.folder / "lib/modules" / self.release
        subprocess.run(["depmod", "--basedir", str(self.folder), self.release], check=True)
        lines = (top / "modules.dep").read_text(encoding="utf-8").splitlines()
        needed = {path: set(others.split()) for path, others in (line.split(":") for line in lines)}
        chosen = {
            path
            for path in needed
            if re.sub(r"\.ko.*|-", lambda found: "_" * (found[0] == "-"), path.rpartition("/")[2]) in modules
        }
        for path in sorted(chosen.union(*(needed[each] for each in chosen))):
            yield top / path
        yield from (top / name for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"))


def broken(image: bytes) -> bytes:
    """Return a kernel that halts while it unpacks itself. Source: Linux, Documentation/arch/x86/boot.rst."""
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    middle = (sectors + 1) * 512 + offset + length // 2
    return image[:middle] + bytes(4096) + image[middle + 4096 :]


def publish(folder: Path, kernel: Kernel, version: str, modules: Collection[str], *, boots: bool = True) -> None:
    """Write a repository with one version of the kernel, and the package that brings it to a machine."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tree = folder / "tree"
    for file in kernel.files(modules):
        copy = tree / file.relative_to(kernel.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    shutil.copytree(kernel.folder / "boot", tree / "boot")
    image = tree / "boot" / f"vmlinuz-{kernel.release}"
    if not boots:
        image.write_bytes(broken(image.read_bytes()))
    _build(folder, tree, kernel.package, version, postinst=_POSTINST.format(release=kernel.release))
    _build(folder, folder / "empty", META, f"99.{version}", depends=f"{kernel.package} (= {version})")
    shutil.rmtree(tree)
    shutil.rmtree(folder / "empty")
    factory_hosts.renew(folder)


def _build(folder: Path, tree: Path, name: str, version: str, depends: str = "", postinst: str = "") -> None:
    control = tree / "DEBIAN"
    control.mkdir(parents=True)
    lines = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "lab", "Depends": depends}
    text = "".join(f"{key}: {value}\n" for key, value in lines.items() if value)
    (control / "control").write_text(f"{text}Description: a package of the lab\n", encoding="utf-8")
    if postinst:
        (control / "postinst").write_text(postinst, encoding="utf-8")
        (control / "postinst").chmod(0o755)
    # Fast to unpack without hardware acceleration.
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, folder / f"{name}_{version}.deb"],
        check=True,
        capture_output=True,
    )
