"""A container with a patched vLLM from an unchanged image: a real engine, a real release's Python sources, no GPU.

The image is a small Debian with the patched files of vLLM. The assemblers of Triton and CUDA are files that list
architectures.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import root_file_system
from live_cluster import Cluster
from patch import sources
from run_playbook import Run
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import ORACLE

pytestmark = pytest.mark.disruptive

IMAGE, DEST = "lab.example/vllm:1", "/opt/gb10/images"
COPY, RECORD = "Copy vLLM out of the image", "/etc/gb10/overrides.d/vllm_patch.json"
RELEASE = "0.32.0"
SITE = "usr/lib/python3/dist-packages"
PACKAGE, TRITON = f"/{SITE}/vllm", f"/{SITE}/triton/backends/nvidia/bin"
LAB = "--cgroups=disabled --network=none"


def add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(f"./{name}")
    # Not owned by root, as in an image that builds vLLM as a user.
    entry.size, entry.mode, entry.uid, entry.gid, entry.mtime = len(data), mode, 1000, 1000, 1_700_000_000
    archive.addfile(entry, io.BytesIO(data))


def link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(f"./{name}")
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def ptxas(*archs: str) -> bytes:
    """Return an assembler's content, which is only read and never executed."""
    return b"\x7fELF" + bytes(60) + b"".join(f"{arch}\0".encode() for arch in archs)


@pytest.fixture(scope="module")
def shipped() -> Path:
    return sources.package(RELEASE)


@pytest.fixture(scope="module")
def image(cluster: Cluster, head: Host, shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Import the image on the head and return its reference."""
    tar = root_file_system.debian(cluster, tmp_path_factory.mktemp("image"), "image")
    with tarfile.open(tar, "a") as archive:
        for path in sorted(path for path in shipped.rglob("*") if path.is_file()):
            add(archive, f"{SITE}/vllm/{path.relative_to(shipped)}", path.read_bytes())
        link(archive, f"{SITE}/vllm/also.py", "__init__.py")
        add(archive, f"{SITE}/vllm-{RELEASE}.dist-info/METADATA", b"Name: vllm\n")
        add(archive, f"{SITE}/triton/__init__.py", b"raise SystemExit('imported')\n")
        add(archive, f"{SITE}/torch/__init__.py", b"raise SystemExit('imported')\n")
        add(archive, f"{SITE}/torch/version.py", b"cuda = '13.0'\n")
        add(archive, f"{TRITON[1:]}/ptxas", ptxas("sm_90a", "sm_120a"), 0o755)
        add(archive, "usr/local/cuda-13.0/bin/ptxas", ptxas("sm_120a", "sm_121a"), 0o755)
        link(archive, "usr/local/cuda", "cuda-13.0")
    root_file_system.import_image(head, tar, IMAGE)
    yield IMAGE
    # Clean up also after a failed test.
    head.check_output(f"podman image rm --force {IMAGE} && rm --recursive --force {DEST}")


Site = Callable[..., Run]


@pytest.fixture
def site(cluster: Cluster, image: str) -> Site:
    """Run only the role on the image, by default with source patches, because their effect is visible in the files."""

    def site(*arguments: str, **variables: Any) -> Run:
        engine = {"vllm_patch_engine": "podman", "vllm_patch_engine_args": ["--cgroups=disabled"]}
        given = json.dumps({"vllm_patch_image": image, "vllm_patch_mechanism": "source", **engine, **variables})
        return cluster.site("--tags", "vllm_patch", "--extra-vars", given, *arguments)

    return site


def record(host: Host) -> dict[str, Any]:
    """Return the role's saved launch overrides."""
    return dict(json.loads(host.file(RECORD).content_string))


def in_container(host: Host, image: str, command: str, mounts: list[dict[str, Any]]) -> str:
    """Return a command's output in a new container."""
    options = " ".join(
        f"--mount=type=bind,source={m['source']},target={m['target']}{',ro' if m['read_only'] else ''}" for m in mounts
    )
    return host.check_output(f"podman run --rm {LAB} {options} {image} {command}")


def identity(host: Host, image: str) -> tuple[str, str]:
    (found,) = json.loads(host.check_output(f"podman image inspect {image}"))
    return found["Id"], found["Digest"]


def test_check_mode_creates_nothing(head: Host, site: Site) -> None:
    assert site("--check", "--diff").assert_ok().changed_tasks() == {COPY}
    assert (head.file(DEST).exists, head.file(RECORD).exists, head.check_output("podman ps --all --quiet")) == (
        False,
        False,
        "",
    )


def test_a_container_has_the_patched_files_and_the_image_the_old_ones(
    head: Host, site: Site, image: str, shipped: Path
) -> None:
    before = identity(head, image)
    first = site().assert_ok()
    assert first.changed_tasks() == {COPY, "Patch vLLM", "Save or remove the launch overrides on the node"}
    for name in ("w8a8", "fp8_moe_oracle", "moe_config", "triton_ptxas"):
        assert f"{name}: applied; " in first.output

    mounts = record(head)["mounts"]
    assert [mount["target"] for mount in mounts] == [PACKAGE, TRITON, f"{DEST}/{before[0][:12]}/config"]
    changed = f"{PACKAGE}/{ORACLE}"
    original = hashlib.sha256((shipped / ORACLE).read_bytes()).hexdigest()
    on_host = head.check_output(f"sha256sum {mounts[0]['source']}/{ORACLE}").split()[0]
    inside = in_container(head, image, f"sha256sum {changed}", mounts).split()[0]
    assert (inside == on_host == record(head)["files"][ORACLE], inside == original) == (True, False)
    assert in_container(head, image, f"sha256sum {changed}", []).split()[0] == original
    assert identity(head, image) == before
    # The toolkit's assembler replaces Triton's by a link whose target exists only in the container.
    assert "sm_121a" in in_container(head, image, f"cat {TRITON}/ptxas", mounts)
    assert "sm_121a" not in in_container(head, image, f"cat {TRITON}/ptxas", [])
    assert (
        head.run(
            f"podman run --rm {LAB} --mount=type=bind,source={mounts[0]['source']},target={PACKAGE},ro {image} "
            f"touch {changed}"
        ).rc
        != 0
    )
    assert head.check_output("podman ps --all --quiet") == ""


def test_the_copy_is_roots_with_the_modes_and_times_of_the_image(head: Host) -> None:
    package = f"{DEST}/*/site-packages/vllm"
    assert head.check_output(f"find {DEST} ! -user root -o ! -group root") == ""
    assert head.check_output(f"stat --format='%a %Y' {package}/__init__.py") == "644 1700000000"
    assert head.check_output(f"readlink {package}/also.py") == "__init__.py"
    assert head.check_output(f"stat --format=%a {DEST}/*/toolkit/ptxas") == "755"
    # Ansible's directories are private by default, but a container's user must be able to read these.
    assert head.check_output(f"find {DEST} -type d ! -perm -005") == ""


def test_again_nothing_changes(site: Site) -> None:
    site().assert_unchanged()
    site("--check").assert_unchanged()


def test_variables_name_what_the_container_has(head: Host, site: Site, image: str) -> None:
    site(vllm_patch_mechanism="auto").assert_ok()
    environment, mounts = record(head)["environment"], record(head)["mounts"]
    assert environment["TRITON_PTXAS_PATH"] == "/usr/local/cuda/bin/ptxas"
    assert "sm_121a" in in_container(head, image, f"cat {environment['TRITON_PTXAS_PATH']}", mounts)
    assert "NVIDIA_GB10" in in_container(head, image, f"ls {environment['VLLM_TUNED_CONFIG_FOLDER']}", mounts)
    site(vllm_patch_mechanism="auto").assert_unchanged()


def test_an_image_that_is_not_here(head: Host, site: Site) -> None:
    site(vllm_patch_image="lab.example/none:1").assert_failed(
        "image: podman has no image lab.example/none:1 on this host"
    )
    assert head.check_output("podman image ls --quiet | wc -l") == "1"


def test_absent_leaves_nothing(head: Host, site: Site) -> None:
    removed = site(vllm_patch_state="absent")
    assert removed.assert_ok().changed_tasks() == {COPY, "Save or remove the launch overrides on the node"}
    assert not head.file(DEST).exists
    site(vllm_patch_state="absent").assert_unchanged()


def test_after_a_killed_run_the_next_one_makes_it_good(head: Host, site: Site, image: str) -> None:
    # Only the module has the directory open.
    kill = (
        f"find /proc/[0-9]*/fd -maxdepth 1 -lname {DEST} 2>/dev/null | cut --delimiter=/ --fields=3 | xargs kill -KILL"
    )
    script = f"until test -e {DEST}/.*.part/site-packages/vllm; do sleep 0.01; done; {kill}"
    head.check_output("systemd-run --collect --unit=killer bash -c %s", script)
    assert site().status != 0
    assert head.check_output(f"ls -A {DEST}").endswith(".part")
    assert len(head.check_output("podman ps --all --quiet").split()) == 1
    assert COPY in site().assert_ok().changed_tasks()
    assert not head.check_output(f"ls -A {DEST}").endswith(".part")
    assert head.check_output("podman ps --all --quiet") == ""
    assert "gb10" in in_container(head, image, f"cat {PACKAGE}/{ORACLE}", record(head)["mounts"])
    site(vllm_patch_state="absent").assert_ok()
