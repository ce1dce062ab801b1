"""A root file system for container images of the tests, and Podman on the lab's hosts."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from live_cluster import Cluster, on_all
from repository import read
from testinfra.host import Host

#: The settings of Podman on a simulated host: files of the scenario image, with their modes.
PODMAN = {
    "/etc/containers/containers.conf": "644",
    "/etc/containers/storage.conf": "644",
    "/usr/local/bin/crun-in-a-lab": "755",
}


#: Packages of an image with vLLM, which starts processes through bash.
VLLM_PACKAGES = ("bash", "libgomp1", "libnuma1", "libstdc++6", "util-linux")
#: Podman's arguments on a simulated host, which does not support the defaults of a real one.
RESTRICTED = (
    "--cgroups=disabled",
    "--ulimit=memlock=65536:65536",
    "--ulimit=nofile=4096:4096",
    "--ulimit=nproc=4096:4096",
)


def in_image(image: str, runtime: str, *arguments: str, **changes: Any) -> dict[str, Any]:
    """Return the variables of a run in containers of an image, in which a runtime's folder has vLLM."""
    return {
        "gb10_runtime": "container",
        "gb10_container_image": image,
        "gb10_container_engine": "podman",
        "gb10_container_args": [*RESTRICTED, *arguments, f"--env=PATH={runtime}/bin:/usr/bin:/bin"],
        "vllm_patch_patches": [],
        **changes,
    }


def debian(cluster: Cluster, folder: Path, name: str, packages: Sequence[str] = ()) -> Path:
    """Return a tar file in a folder with a Debian that has Python, a shell and these packages. It is created once and
    kept with the lab's other downloads."""
    suite, components = cluster.variable("lab_suite", "bookworm"), cluster.variable("lab_components", ["main"])
    included = f"--include={','.join(['base-files', 'coreutils', 'dash', 'python3', *packages])}"
    options = ["--variant=extract", f"--components={','.join(components)}", included, suite]
    digest = hashlib.sha256("\n".join(options).encode()).hexdigest()[:12]
    kept = Path(cluster.variable("lab_cache_dir", Path.home() / ".cache/gb10-lab")) / f"{name}-{suite}-{digest}.tar"
    if not kept.exists():
        part = folder / "part.tar"
        subprocess.run(["mmdebstrap", "--quiet", *options, str(part)], check=True)
        shutil.move(part, kept)
    return Path(shutil.copy(kept, folder / "image.tar"))


def put(host: Host, path: str, content: str | bytes, mode: str = "644") -> None:
    """Write a file as root."""
    with host.backend.client.open_sftp() as files, files.open("/tmp/put", "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    host.check_output(f"install -D --mode={mode} /tmp/put {shlex.quote(path)} && rm /tmp/put")


def import_image(head: Host, tar: Path, reference: str) -> None:
    """Import a tar file as an image of Podman."""
    head.backend.client.open_sftp().put(str(tar), "/var/tmp/image.tar")
    head.check_output(f"podman import --quiet /var/tmp/image.tar {reference} && rm /var/tmp/image.tar")


@contextmanager
def podman(nodes: Mapping[str, Host]) -> Iterator[None]:
    """Configure Podman for simulated hosts, and remove all images after the block."""
    for host in nodes.values():
        for path, mode in PODMAN.items():
            put(host, path, read(f"molecule/image/files/{Path(path).name}"), mode)
    yield
    on_all(nodes, "podman image rm --all --force && rm --force /etc/gb10/image-pins.json")
