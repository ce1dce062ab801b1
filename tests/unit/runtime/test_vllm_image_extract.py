"""vllm_image_extract as on a node, with an engine whose images are folders: copies, leftovers and messages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_host import EngineHost
from fake_vllm import install
from repository import ROOT
from run_module import program, run_module
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy, io_package
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Assembler, Copy

ID, OTHER = "ab12" * 16, "cd34" * 16
NAME = "example.org/vllm:1"
LISTS = "sm_120 sm_121a"
TRITON = "triton/backends/nvidia/bin"


class Host(EngineHost):
    """A host with an engine that has one image, with every file that can be copied, and more."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.root, self.dest = folder / "image", folder / "copies"
        self.site, self.copy = self.root / "dist-packages", self.dest / ID[:12]
        self.image(ID, [NAME], self.site)
        package = install(self.site / "vllm")
        (package / "link.py").symlink_to("__init__.py")
        (package / "tool").write_text("#!/bin/sh\n", encoding="utf-8")
        (package / "tool").chmod(0o777)
        (package / "model_executor").chmod(0o2777)
        os.utime(package / "__init__.py", (1_600_000_000, 1_600_000_000))
        assembler(self.site / TRITON / "ptxas", ptxas("sm_90a"))
        assembler(self.root / "usr/local/cuda-13.0/bin/ptxas", ptxas(LISTS))
        (self.root / "usr/local/cuda").symlink_to("cuda-13.0")
        for name in ("triton/__init__.py", "torch/version.py", "torch/other.py", "vllm-0.22.1.dist-info/METADATA"):
            (self.site / name).parent.mkdir(exist_ok=True)
            (self.site / name).touch()

    def image(self, image_id: str, names: list[str], *path: Path) -> None:
        self.has("images", image_id, names, path, str(self.root), Architecture="amd64")

    def arguments(self, **changes: Any) -> dict[str, Any]:
        return {"image": NAME, "dest": str(self.dest), "engine": "podman", **changes}

    def run(self, check: bool = False, **changes: Any) -> dict[str, Any]:
        return run_module("vllm_image_extract", self.arguments(**changes), self.path, check)

    def copied(self, check: bool = False, **changes: Any) -> dict[str, Any]:
        answer = self.run(check, **changes)
        assert not answer.get("failed"), answer
        return answer


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def ptxas(archs: str) -> bytes:
    """Return a program with these names in the form of a real one, which no kernel can run."""
    return b"\x7fELF" + bytes(60) + b"".join(f"compute_{arch[3:]}\0{arch}\0".encode() for arch in archs.split())


def assembler(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)


def listing(folder: Path) -> dict[str, Any]:
    """Return everything below a folder: a link's target, or time and content."""
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else (path.stat().st_mtime, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def mount(source: Path, target: Path) -> dict[str, Any]:
    return {"source": str(source), "target": str(target), "read_only": True}


@pytest.mark.slow
def test_an_image_is_copied_once_and_removed_once(host: Host) -> None:
    package, text = host.copy / "site-packages/vllm", f"{host.copy}: {ID}\n"
    told = {
        "image_id": ID,
        "package_dir": str(package),
        "container_package_dir": str(host.site / "vllm"),
        "config_folder": str(host.copy / "config/gb10_moe_configs"),
        "mounts": [
            mount(package, host.site / "vllm"),
            mount(host.copy / "site-packages" / TRITON, host.site / TRITON),
            mount(host.copy / "config", host.copy / "config"),
        ],
        "toolkit": {"path": str(host.copy / "toolkit/ptxas"), "runs_as": "/usr/local/cuda/bin/ptxas"},
    }
    shown = host.copied(check=True)
    assert (shown["mounts"], shown["container_package_dir"], host.dest.exists()) == ([], None, False)
    assert (shown["changed"], host.calls(), host.names("containers")) == (True, ["image"], [])
    first = host.copied()
    assert {key: first[key] for key in told} == told
    assert (first["changed"], first["diff"]) == (True, {"before": "", "after": text})
    assert (first["diff"], first["package_dir"]) == (shown["diff"], shown["package_dir"])
    assert (host.names("containers"), names(host.dest)) == ([], [ID[:12]])
    assert listing(package) == listing(host.site / "vllm")
    assert names(host.copy / "site-packages") == ["torch", "triton", "vllm", "vllm-0.22.1.dist-info"]
    assert not (host.copy / "site-packages/torch/other.py").exists()
    assert all(Path(each["source"]).is_dir() for each in first["mounts"])
    assert Path(first["toolkit"]["path"]).read_bytes() == ptxas(LISTS)
    host.calls()
    before = listing(host.dest)
    for check in (False, True):
        again = host.copied(check)
        assert {key: again[key] for key in told} == told
        assert (again["changed"], listing(host.dest), host.calls()) == (False, before, ["image"])
    assert (host.copied(check=True, state="absent")["changed"], listing(host.dest)) == (True, before)
    removed = host.copied(state="absent")
    assert (removed["changed"], removed["diff"], host.dest.exists()) == (True, {"before": text, "after": ""}, False)
    assert host.copied(state="absent")["changed"] is False


def test_what_lies_apart_in_the_image_lies_together_in_the_copy(host: Host) -> None:
    source = host.root / "app"
    source.mkdir()
    (host.site / "vllm").rename(source / "vllm")
    (host.root / "venv").symlink_to(source)
    host.image(ID, [NAME], host.root / "venv", host.site)
    answer = host.copied()
    assert [each["target"] for each in answer["mounts"][:2]] == [str(source / "vllm"), str(host.site / TRITON)]
    assert (host.copy / "site-packages/vllm-0.22.1.dist-info/METADATA").exists()


def test_an_image_may_have_the_package_alone(host: Host) -> None:
    for path in (host.site / "triton", host.site / "torch", host.site / "vllm-0.22.1.dist-info", host.root / "usr"):
        shutil.rmtree(path)
    answer = host.copied()
    assert [Path(each["source"]).name for each in answer["mounts"]] == ["vllm", "config"]
    assert not Path(answer["toolkit"]["path"]).exists() and names(host.copy / "site-packages") == ["vllm"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("link", "is a link out of its package"),
        ("absolute", "is a link out of its package"),
        ("original", "has the name of one of this collection's files"),
        ("folder", "has the name of one of this collection's files"),
    ],
)
def test_what_root_must_not_read_as_a_part_of_the_image_is_refused(host: Host, kind: str, reason: str) -> None:
    """Such a link showed a file of the host in a diff."""
    place = host.site / "vllm/_version.py"
    place.unlink(missing_ok=True)
    if kind in ("link", "absolute"):
        place.symlink_to("../../../../../../etc/shadow" if kind == "link" else "/etc/shadow")
    else:
        name = "vllm/x.py.gb10-original" if kind == "original" else "vllm/.gb10-x/y.py"
        (host.site / name).parent.mkdir(exist_ok=True)
        (host.site / name).touch()
    answer = host.run()
    assert (answer["failed"], reason in answer["msg"]) == (True, True)
    assert names(host.dest) == []


def test_a_link_inside_the_package_is_copied(host: Host) -> None:
    (host.site / "vllm/also.py").symlink_to("__init__.py")
    host.copied()
    assert (host.copy / "site-packages/vllm/also.py").readlink() == Path("__init__.py")


# --- together with vllm_patch ---


def patched(host: Host, answer: dict[str, Any], **changes: Any) -> dict[str, Any]:
    given = {key: answer[key] for key in ("package_dir", "config_folder", "toolkit")}
    patch = run_module("vllm_patch", {**given, "capability": "12.1", **changes}, host.path)
    assert not patch.get("failed"), patch
    return patch


def test_the_copy_is_patched_for_the_container(host: Host) -> None:
    answer = host.copied()
    patch = patched(host, answer, patches=["triton_ptxas", "moe_config"])
    assert [entry["status"] for entry in patch["patches"]] == ["use_flag", "use_flag"]
    assert patch["environment"] == {
        "TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas",
        "TRITON_PTXAS_BLACKWELL_PATH": "/usr/local/cuda/bin/ptxas",
        "VLLM_TUNED_CONFIG_FOLDER": answer["config_folder"],
    }
    assert answer["config_folder"].startswith(f"{answer['mounts'][2]['target']}/") and names(
        Path(answer["config_folder"])
    )
    source = patched(host, answer, patches=["triton_ptxas"], mechanism="source")
    assert source["patches"][0]["status"] == "applied"
    assert (Path(answer["mounts"][1]["source"]) / "ptxas").readlink() == Path("/usr/local/cuda/bin/ptxas")
    assert host.copied()["changed"] is False, "a patched copy is a copy"
    patched(host, answer, state="absent")
    assert all(Path(each["source"]).is_dir() for each in answer["mounts"]), "the mounted folders stay"


@pytest.mark.parametrize("state", ["present", "absent"])
def test_nothing_of_an_image_runs_on_the_host(host: Host, tmp_path: Path, state: str) -> None:
    """The caller is root, and the programs of an image are untrusted."""
    answer, ran = host.copied(), tmp_path / "ran"
    for path in (Path(answer["mounts"][1]["source"]) / "ptxas", Path(answer["toolkit"]["path"])):
        program(path.parent, path.name, f"touch {ran}; echo \"'sm_121a'\"")
    patched(host, answer, patches=["triton_ptxas"], state=state)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("content", "archs", "trouble"),
    [
        (ptxas(LISTS), {"sm_120", "sm_121a"}, ""),
        (ptxas(""), set(), "{} names no architecture"),
        (b"#!/bin/sh sm_121a\0", set(), "{} is not a Linux program"),
        (None, set(), "{} is not a Linux program"),
    ],
    ids=["real", "without names", "a script", "a pipe, which keeps nobody waiting"],
)
def test_an_assembler_names_its_architectures(
    tmp_path: Path, content: bytes | None, archs: set[str], trouble: str
) -> None:
    path = tmp_path / "ptxas"
    if content is None:
        os.mkfifo(path, 0o755)
    else:
        assembler(path, content)
    found = Assembler("/in/ptxas", frozenset(archs), trouble.format(path))
    assert io_package.assembler(str(path), "/in/ptxas") == found
    assert io_package.assembler(str(tmp_path / "none"), "/in/ptxas") == Assembler("")


def test_an_image_is_searched_as_nobody_with_the_engines_own_arguments(host: Host) -> None:
    host.trouble("rm 1")
    host.run(engine_args=["--cgroups=disabled"])
    (container,) = host.names("containers")
    closed = {"--network=none", "--user=65534:65534", "--cap-drop=ALL", "--security-opt=no-new-privileges"}
    assert closed | {"--env=NVIDIA_VISIBLE_DEVICES=void", "--cgroups=disabled"} <= set(host.options(container))


def test_nobody_else_can_change_a_copy(host: Host) -> None:
    folder = Path(host.copied()["package_dir"])
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*")) if not path.is_symlink()}
    assert [path for path, mode in modes.items() if mode & 0o7022] == []
    assert modes[folder / "tool"] & 0o777 == 0o755


# --- interrupted runs and errors ---


@pytest.mark.slow
def test_what_a_killed_run_left_is_removed(host: Host) -> None:
    host.trouble("cp hang")
    module = ROOT / ".collections/ansible_collections/gb10/cluster/plugins/modules/node_step.py"
    environment = {"PYTHONPATH": str(ROOT / ".collections"), "PATH": f"{host.path}:{os.defpath}"}
    process = subprocess.Popen(
        [sys.executable, str(module)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": {"name": "vllm_image_extract", "inputs": host.arguments()}}))
    process.stdin.close()
    wait_until(lambda: "cp" in host.calls(), 60, pause=0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    host.trouble("none 0")
    left = f".{ID[:12]}.part"
    assert (names(host.dest), len(host.names("containers"))) == ([left], 1)
    assert (host.copied()["changed"], host.names("containers"), names(host.dest)) == (True, [], [ID[:12]])
    (host.dest / left).mkdir()
    assert (host.copied(state="absent")["changed"], names(host.dest)) == (True, [])
    (host.dest / left).mkdir(parents=True)
    assert (host.copied(state="absent")["changed"], host.dest.exists()) == (True, False), "also without a copy"


def nothing(host: Host) -> None:
    del host


def no_engine(host: Host) -> None:
    (host.path / "podman").unlink()


def no_vllm(host: Host) -> None:
    shutil.rmtree(host.site / "vllm")


def broken(command: str) -> Callable[[Host], None]:
    return lambda host: host.trouble(command)


BAD: list[tuple[Callable[[Host], None], dict[str, Any], str]] = [
    (nothing, {"image": "example.org/none:1"}, "image: podman has no image example.org/none:1 on this host"),
    (nothing, {"image": "--all"}, "image: '--all' is not an image"),
    (
        nothing,
        {"python": "/opt/venv/bin/python"},
        f"python: /opt/venv/bin/python does not run in {NAME}, which is for amd64: Error: crun",
    ),
    (nothing, {"python": "rubbish"}, f"python: rubbish in {NAME} printed 'usage: rubbish'"),
    (nothing, {"engine": "buildah"}, "value of engine must be one of: docker, podman"),
    (no_engine, {}, "engine: podman is not installed"),
    (no_vllm, {}, f"image: python3 in {NAME} finds no vllm"),
    (broken("image 125"), {}, "engine: podman does not respond: Error: it is broken"),
    (broken("create 125"), {}, "engine: podman create failed: Error: it is broken"),
    (broken("ps 125"), {}, "engine: podman does not respond: Error: it is broken"),
    (broken("cp 1"), {}, "dest: podman cp failed: Error: it is broken"),
]


@pytest.mark.parametrize(("prepare", "changes", "expected"), BAD, ids=[message for _prepare, _changes, message in BAD])
def test_what_fails_is_one_error_and_leaves_nothing(
    host: Host, prepare: Callable[[Host], None], changes: dict[str, Any], expected: str
) -> None:
    prepare(host)
    answer = host.run(**changes)
    assert answer["failed"] and expected in answer["msg"] and "\n  2. " not in answer["msg"], answer["msg"]
    assert (host.dest.exists(), host.names("containers")) == (False, [])


def test_nothing_is_copied_to_a_full_disk(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result((4096, 4096, 100, 10, 10, 0, 0, 0, 0, 255)))
    answer = host.run()
    assert f"dest: 0 MiB are free in {host.dest}. Expected: 1 MiB for the copy" in answer["msg"]
    assert (host.dest.exists(), host.names("containers"), "cp" in host.calls()) == (False, [], False)


@pytest.mark.parametrize("record", [None, "{}", image_copy.record(Copy(ID[:12] + "0" * 52, NAME, "/p", ""))])
def test_what_is_in_the_way_is_left_alone(host: Host, record: str | None) -> None:
    host.copy.mkdir(parents=True)
    if record is not None:
        (host.copy / image_copy.RECORD).write_text(record, encoding="utf-8")
    answer = host.run()
    assert answer["failed"] and f"dest: {host.copy} exists and is not the copy of image {ID}" in answer["msg"]
    assert host.copy.exists() and host.calls() == ["image"]


# --- the copies of an image ---


@pytest.mark.slow
def test_an_image_that_changed_under_its_name_has_two_copies(host: Host) -> None:
    host.copied()
    host.image(ID, [], host.site)
    host.image(OTHER, [NAME], host.site)
    assert host.copied()["changed"] is True
    assert names(host.dest) == [ID[:12], OTHER[:12]], "a running container may still mount the older one"
    host.lacks("images", ID)
    assert host.copied(image=ID[:12], state="absent")["changed"] is True
    assert names(host.dest) == [OTHER[:12]]
    host.copied(image="example.org/other:1", state="absent")
    assert names(host.dest) == [OTHER[:12]]
    no_engine(host)
    assert (host.copied(state="absent")["changed"], host.dest.exists()) == (True, False)


def test_only_containers_of_the_same_folder_are_removed(host: Host) -> None:
    other = host.state / "containers" / f"{'f' * 64}.json"
    other.write_text(json.dumps({"label": f"gb10.cluster.vllm_image_extract={host.dest}2"}), encoding="utf-8")
    host.copied()
    assert host.names("containers") == [other.stem]


GOOD = {
    "package": "/p/vllm",
    "triton": "",
    "torch": "",
    "toolkit": "",
    "distributions": ["/p/vllm-1.dist-info"],
    "size": 1,
}


@pytest.mark.parametrize(
    "bad",
    [
        {**GOOD, "package": "p"},
        {**GOOD, "package": f"/{'p' * 1024}"},
        {**GOOD, "distributions": ["/p/../.."]},
        {**GOOD, "distributions": ["/p/../vllm-1.dist-info"]},
        {**GOOD, "distributions": ["/p/other-1.dist-info"]},
        {**GOOD, "distributions": ["/p/vllm-1.dist-info"] * 65},
        {**GOOD, "size": True},
        {**GOOD, "more": 1},
        {"distributions": []},
        [],
        None,
    ],
)
def test_a_search_that_answers_nonsense_is_refused(bad: Any) -> None:
    assert image_copy.found(f"noise\n{json.dumps(GOOD)}\n").package == "/p/vllm"
    with pytest.raises(ValueError, match=r"^(it is not the output|\w+ is )"):
        image_copy.found(json.dumps(bad))
