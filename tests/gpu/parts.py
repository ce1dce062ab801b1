# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take what site.py needs to a machine without network: a root file system, Ansible and pinned wheels, in parts of
limited size.

The parts are one stream of files. Wheels of libraries that the machine's own Python has need not travel: they are
written again there from the installed files, and the lock gets their hashes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from adhoc import ROOT

#: Bytes of a part. A call to a machine may carry 64 MiB with the checkout.
PART = 50_000_000
CHUNK = 1 << 20
INVENTORY = ROOT / "tests/gpu/inventory"
#: lab_prefix there.
PREFIX = "10.121.0"
#: The requirements of a controller, by their names in requirements-dev.txt.
CONTROLLER = (
    "ansible-core",
    "cffi",
    "cryptography",
    "jinja2",
    "markupsafe",
    "packaging",
    "pycparser",
    "pyyaml",
    "resolvelib",
)
#: Wheels for the root's Python on x86-64; pip compares the number of a manylinux_2_N platform exactly.
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)),
    *(f"manylinux{year}_x86_64" for year in (2014, 2010, 1)),
    "any",
]
PIP = [
    *("--no-cache-dir", "--python-version=3.13", "--implementation=cp", "--abi=cp313", "--abi=abi3", "--abi=none"),
    *(f"--platform={platform}" for platform in PLATFORMS),
]
#: Files of an installed package that its wheel does not have.
WRITTEN = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def entries(lock: str) -> dict[str, str]:
    """Return the entries of a lock by their normalized names: each is a pin with its hashes."""
    found = re.findall(r"^[A-Za-z0-9].*(?:\n[ \t].*)*\n?", lock, re.MULTILINE)
    return {normal(re.split(r"[=\[ ;]", text, maxsplit=1)[0]): text for text in found}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def release(entry: str) -> str:
    return re.split(r"[\s;\\]", entry.partition("==")[2], maxsplit=1)[0]


def wheel(name: str) -> tuple[str, str]:
    """Return the package and the release of a wheel's file name."""
    package, version, *_ = name.split("-")
    return normal(package), version


def write_inventory(folder: Path, names: Sequence[str], machine: Mapping[str, Any]) -> None:
    """Write an inventory of these hosts, with the variables of the machine.

    Records of earlier playbooks in the folder stay.
    """
    shutil.copytree(INVENTORY, folder, dirs_exist_ok=True)
    groups: dict[str, dict[str, dict[str, Any]]] = {"head": {"hosts": {}}, "worker": {"hosts": {}}}
    for number, name in enumerate(names):
        groups["worker" if number else "head"]["hosts"][name] = {"ansible_host": f"{PREFIX}.{11 + number}"}
    (folder / "hosts.yml").write_text(json.dumps({"gb10_cluster": {"children": groups}}, indent=1), encoding="utf-8")
    (folder / "group_vars/all/machine.json").write_text(json.dumps(machine, indent=1), encoding="utf-8")


# -- pack ----------------------------------------


def pack(folder: Path, pins: Path, there: Mapping[str, str]) -> None:
    """Write folder/parts. ``there``: packages on the machine with their releases."""
    lock = hashed(folder, pins)
    lab = collect(folder, lock)
    manifest: dict[str, Any] = {"files": [], "parts": [], "again": {}}
    parts = folder / "parts"
    shutil.rmtree(parts, ignore_errors=True)
    stream = Parts(parts)
    for name, size, source in sources(lab, lock, there, manifest["again"]):
        with source:
            manifest["files"].append({"name": name, "size": size, "sha256": stream.write(source)})
    manifest["parts"] = stream.end()
    (parts / "part-000/manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    total = sum(each["size"] for each in manifest["files"]) / 1e6
    sys.stdout.write(
        f"{len(manifest['parts'])} parts in {parts}, {total:.0f} MB; the machine has {len(manifest['again'])} "
        "more wheels\n"
    )


def hashed(folder: Path, pins: Path) -> Path:
    """Write a lock with the hashes of the index: a test of a release needs no hashes of the repository."""
    tools, lock = folder / "uv", folder / "pinned.lock"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    install = [
        str(tools / "bin/pip"),
        "install",
        "--quiet",
        "--require-hashes",
        "-r",
        str(ROOT / "requirements-uv.txt"),
    ]
    subprocess.run(install, check=True)
    options = ["--quiet", "--no-deps", "--generate-hashes", "--no-annotate", "--no-header"]
    target = ["--python-version=3.13", "--python-platform=x86_64-manylinux_2_39", f"--output-file={lock}"]
    subprocess.run([tools / "bin/uv", "pip", "compile", *options, *target, pins], check=True)
    return lock


def collect(folder: Path, lock: Path) -> dict[str, Path]:
    """Fill the role lab's cache, and return its files: the base image, and the tar files with the wheels of Ansible and
    of the lock."""
    cache = folder / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    controller = folder / "controller.lock"
    tools = entries((ROOT / "requirements-dev.txt").read_text(encoding="utf-8"))
    controller.write_text("".join(tools[name] for name in CONTROLLER), encoding="utf-8")
    archives = {
        source: cache / f"wheels-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.tar"
        for source in (controller, lock)
    }
    write_inventory(folder / "inventory", ["spark1"], {"gpu_folder": str(folder), "gpu_binds": [], "gpu_files": []})
    variables = {
        "lab_state": "cached",
        "lab_host_packages": ["debian-archive-keyring", "mmdebstrap", "python3-pip", "xz-utils"],
        "lab_wheelhouses": [{"lock": str(source), "archive": str(archive)} for source, archive in archives.items()],
        "lab_pip_args": PIP,
    }
    command = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        "tests/lab/playbooks/lab_up.yml",
        "-i",
        str(folder / "inventory"),
        "-e",
        json.dumps(variables),
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    base = next(iter(cache.glob("base-*.tar")))
    if not base.with_suffix(".tar.xz").exists():
        # A better compression saves one part and takes minutes.
        subprocess.run(["xz", "--keep", "-1", "--threads=0", base], check=True)
    return {"base": base.with_suffix(".tar.xz"), "controller": archives[controller], "wheels": archives[lock]}


def sources(
    lab: Mapping[str, Path], lock: Path, there: Mapping[str, str], again: dict[str, str]
) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield name, size and contents of each file that travels, and collect the other wheels in ``again``."""
    for name, path in (
        (f"cache/{lab['base'].name}", lab["base"]),
        ("controller.tar", lab["controller"]),
        ("stack.lock", lock),
    ):
        yield name, path.stat().st_size, path.open("rb")
    with tarfile.open(lab["wheels"]) as archive:
        for member in archive:
            package, version = wheel(member.name)
            contents = archive.extractfile(member)
            if "-py3-none-" in member.name and package.startswith("nvidia-") and there.get(package) == version:
                again[package] = version
            elif contents:
                yield f"wheels/{member.name}", member.size, contents


class Parts:
    """Writes one stream as files of limited size, each in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.digests = folder, list[str]()
        self._open()

    def _open(self) -> None:
        path = self.folder / f"part-{len(self.digests):03}" / "data"
        path.parent.mkdir(parents=True)
        self.file, self.digest, self.left = path.open("wb"), hashlib.sha256(), PART

    def write(self, source: IO[bytes]) -> str:
        """Write a file, and return its SHA-256."""
        digest = hashlib.sha256()
        while data := source.read(min(CHUNK, self.left)):
            digest.update(data)
            self.digest.update(data)
            self.file.write(data)
            self.left -= len(data)
            if not self.left:
                self.end()
                self._open()
        return digest.hexdigest()

    def end(self) -> list[str]:
        """Close the part, and return the digests of all parts."""
        self.file.close()
        self.digests.append(self.digest.hexdigest())
        return self.digests


# -- unpack ----------------------------------------


def unpack(folder: Path, python: str) -> None:
    """Write the lab's cache, the root, its controller, the wheelhouse and runtime.lock from folder/parts.

    ``python`` has the other wheels.
    """
    manifest = json.loads((folder / "parts/part-000/manifest.json").read_text(encoding="utf-8"))
    verify(folder / "parts", manifest["parts"])
    wheels = folder / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    assemble(folder, manifest)
    for packed in (folder / "cache").glob("base-*.tar.xz"):
        with lzma.open(packed) as source, packed.with_suffix("").open("wb") as target:
            shutil.copyfileobj(source, target, CHUNK)
        packed.unlink()
    lock = entries((folder / "stack.lock").read_text(encoding="utf-8"))
    for package, digest in again(python, manifest["again"], wheels).items():
        lock[package] = f"{package}=={manifest['again'][package]} --hash=sha256:{digest}\n"
    (folder / "runtime.lock").write_text("".join(lock.values()), encoding="utf-8")
    with tarfile.open(folder / "wheelhouse.tar", "w") as archive:
        for path in sorted(wheels.iterdir()):
            archive.add(path, path.name)
    shutil.rmtree(wheels)


def verify(parts: Path, digests: Sequence[str]) -> None:
    """Exit if a part is missing or differs."""
    wrong = []
    for number, digest in enumerate(digests):
        path = parts / f"part-{number:03}" / "data"
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            wrong.append(path.parent.name)
    if wrong:
        sys.exit(f"missing or wrong: {' '.join(wrong)}")


def assemble(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the files of the parts, and verify their digests."""
    stream, data = chunks(folder / "parts", len(manifest["parts"])), b""
    for entry in manifest["files"]:
        path = folder / entry["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        digest, left = hashlib.sha256(), entry["size"]
        with path.open("wb") as file:
            while left:
                data = data or next(stream)
                now, data = data[:left], data[left:]
                digest.update(now)
                left -= file.write(now)
        if digest.hexdigest() != entry["sha256"]:
            sys.exit(f"{path}: wrong contents")


def chunks(parts: Path, count: int) -> Iterator[bytes]:
    for number in range(count):
        with (parts / f"part-{number:03}" / "data").open("rb") as file:
            while data := file.read(CHUNK):
                yield data


def again(python: str, packages: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write the wheels of installed packages, and return their SHA-256 by package."""
    if not packages:
        return {}
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip())
    infos = {wheel(path.name.removesuffix(".dist-info"))[0]: path for path in site.glob("*-*.dist-info")}
    wrong = [
        name
        for name, version in packages.items()
        if name not in infos or wheel(infos[name].name.removesuffix(".dist-info"))[1] != version
    ]
    if wrong:
        sys.exit(f"{python} does not have: {', '.join(f'{name}=={packages[name]}' for name in wrong)}")
    return {name: write_again(site, infos[name], folder) for name in packages}


def write_again(site: Path, info: Path, folder: Path) -> str:
    """Write the wheel of an installed package, without compression, and return its SHA-256.

    Exits if an installed file differs from its record.
    """
    with (info / "RECORD").open(encoding="utf-8", newline="") as file:
        rows = [
            row for row in csv.reader(file) if not row[0].endswith(".pyc") and row[0].rpartition("/")[2] not in WRITTEN
        ]
    tags = re.findall(r"^Tag: *py3-none-(\S+)", (info / "WHEEL").read_text(encoding="utf-8"), re.MULTILINE)
    target = folder / f"{info.name.removesuffix('.dist-info')}-py3-none-{'.'.join(tags)}.whl"
    record = []
    with zipfile.ZipFile(target, "w") as archive:
        for name, recorded, _size in rows:
            data = (site / name).read_bytes()
            digest = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            if ".." in name or (recorded and recorded != digest):
                sys.exit(f"{site / name} is not as it was installed")
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
            record.append(f"{name},{digest},{len(data)}\n")
        archive.writestr(
            zipfile.ZipInfo(f"{info.name}/RECORD", (1980, 1, 1, 0, 0, 0)), "".join([*record, f"{info.name}/RECORD,,\n"])
        )
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
