"""vllm_image_extract as on a node, with an engine whose images are folders: copies, leftovers and messages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import install
from repository import ROOT
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy, io_image_copy, io_package
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Copy

ID, OTHER = "ab12" * 16, "cd34" * 16
NAME = "example.org/vllm:1"
LISTS = "sm_120 sm_121a"


class Host:
    """A host with an engine that has one image; ``path`` is the first folder in PATH."""

    def __init__(self, folder: Path) -> None:
        self.state, self.root, self.dest = folder / "state", folder / "image", folder / "copies"
        for path in ("images", "containers"):
            (self.state / path).mkdir(parents=True)
        self.site = self.root / "dist-packages"
        self.has(ID, [NAME], [self.site])
        self.path = program(
            folder / "bin", "podman", f'exec {sys.executable} {ROOT}/tests/support/fake_engine.py {self.state} "$@"'
        )

    def has(self, image_id: str, names: list[str], path: list[Path]) -> None:
        entry = {"names": names, "root": str(self.root), "path": [str(folder) for folder in path]}
        (self.state / "images" / f"{image_id}.json").write_text(json.dumps(entry), encoding="utf-8")

    def arguments(self, **changes: Any) -> dict[str, Any]:
        return {"image": NAME, "dest": str(self.dest), "engine": "podman", **changes}

    def run(self, check: bool = False, **changes: Any) -> dict[str, Any]:
        return run_module("vllm_image_extract", self.arguments(**changes), self.path, check)

    def copied(self, check: bool = False, **changes: Any) -> dict[str, Any]:
        answer = self.run(check, **changes)
        assert not answer.get("failed"), answer
        return answer

    def calls(self) -> list[str]:
        """The engine's commands since the last call."""
        path = self.state / "calls"
        calls = path.read_text(encoding="utf-8").split() if path.exists() else []
        path.unlink(missing_ok=True)
        return calls

    def containers(self) -> list[Path]:
        return list((self.state / "containers").iterdir())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """The image has every file that can be copied, and more."""
    host = Host(tmp_path)
    package = install(host.site / "vllm")
    (package / "link.py").symlink_to("__init__.py")
    (package / "tool").write_text("#!/bin/sh\n", encoding="utf-8")
    (package / "tool").chmod(0o750)
    os.utime(package / "__init__.py", (1_600_000_000, 1_600_000_000))
    assembler(host.site / "triton/backends/nvidia/bin", "ptxas", "sm_90a")
    assembler(host.root / "usr/local/cuda-13.0/bin", "ptxas", LISTS)
    (host.root / "usr/local/cuda").symlink_to("cuda-13.0")
    for name in (
        "triton/__init__.py",
        "torch/__init__.py",
        "torch/version.py",
        "torch/other.py",
        "vllm-0.22.1.dist-info/METADATA",
    ):
        (host.site / name).parent.mkdir(exist_ok=True)
        (host.site / name).touch()
    return host


def ptxas(archs: str) -> bytes:
    """A program with these names in the form of a real one, which no kernel can run."""
    return b"\x7fELF" + bytes(60) + b"".join(f"compute_{arch[3:]}\0{arch}\0".encode() for arch in archs.split())


def assembler(folder: Path, name: str, archs: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(ptxas(archs))
    (folder / name).chmod(0o755)


def listing(folder: Path) -> dict[str, Any]:
    """Everything below a folder: a link's target, or mode, time and content."""
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else (path.stat().st_mode, path.stat().st_mtime, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_copied_once_and_removed(host: Host) -> None:
    first = host.copied()
    folder = host.dest / ID[:12]
    assert (first["changed"], first["image_id"], first["diff"]) == (
        True,
        ID,
        {"before": "", "after": f"{folder}: {ID}\n"},
    )
    assert host.containers() == [] and names(host.dest) == [ID[:12]]
    assert first["package_dir"] == str(folder / "site-packages/vllm")
    assert listing(folder / "site-packages/vllm") == listing(host.site / "vllm")
    assert (
        names(folder / "site-packages") == ["torch", "triton", "vllm", "vllm-0.22.1.dist-info"]
        and not (folder / "site-packages/torch/other.py").exists()
    )
    triton = "triton/backends/nvidia/bin"
    assert first["container_package_dir"] == str(host.site / "vllm")
    assert first["mounts"] == [
        {"source": str(folder / "site-packages/vllm"), "target": str(host.site / "vllm"), "read_only": True},
        {"source": str(folder / "site-packages" / triton), "target": str(host.site / triton), "read_only": True},
        {"source": str(folder / "config"), "target": str(folder / "config"), "read_only": True},
    ]
    assert all(Path(mount["source"]).is_dir() for mount in first["mounts"])
    assert first["toolkit"] == {"path": str(folder / "toolkit/ptxas"), "runs_as": "/usr/local/cuda/bin/ptxas"}
    assert b"sm_121a" in Path(first["toolkit"]["path"]).read_bytes()

    host.calls()
    before = listing(host.dest)
    again = host.copied()
    assert (again["changed"], listing(host.dest), host.calls()) == (False, before, ["image"])
    assert {key: again[key] for key in first if key not in ("changed", "diff", "invocation")} == {
        key: first[key] for key in first if key not in ("changed", "diff", "invocation")
    }
    removed = host.copied(state="absent")
    assert (removed["changed"], removed["diff"]["before"], host.dest.exists()) == (True, f"{folder}: {ID}\n", False)
    assert host.copied(state="absent")["changed"] is False


def test_check_mode_asks_for_the_image_and_creates_nothing(host: Host) -> None:
    shown = host.copied(check=True)
    assert (shown["changed"], shown["mounts"], shown["container_package_dir"], host.dest.exists()) == (
        True,
        [],
        None,
        False,
    )
    assert (host.calls(), host.containers()) == (["image"], [])
    assert (shown["diff"], shown["package_dir"]) == (
        host.copied()["diff"],
        str(host.dest / ID[:12] / "site-packages/vllm"),
    )
    assert host.copied(check=True)["changed"] is False
    before = listing(host.dest)
    assert (host.copied(check=True, state="absent")["changed"], listing(host.dest)) == (True, before)


def test_what_lies_apart_in_the_image_lies_together_in_the_copy(host: Host) -> None:
    source = host.root / "app"
    source.mkdir()
    (host.site / "vllm").rename(source / "vllm")
    (host.root / "venv").symlink_to(source)
    host.has(ID, [NAME], [host.root / "venv", host.site])
    answer = host.copied()
    assert answer["container_package_dir"] == str(source / "vllm")
    assert (answer["mounts"][1]["target"], answer["mounts"][0]["target"]) == (
        str(host.site / "triton/backends/nvidia/bin"),
        str(source / "vllm"),
    )
    assert (host.dest / ID[:12] / "site-packages/vllm-0.22.1.dist-info/METADATA").exists()


def test_an_image_with_the_package_alone(host: Host) -> None:
    for path in ("triton", "torch", "vllm-0.22.1.dist-info"):
        shutil.rmtree(host.site / path)
    shutil.rmtree(host.root / "usr")
    answer = host.copied()
    assert [Path(mount["source"]).name for mount in answer["mounts"]] == ["vllm", "config"]
    assert not Path(answer["toolkit"]["path"]).exists() and names(host.dest / ID[:12] / "site-packages") == ["vllm"]


def test_the_engines_own_arguments_come_before_the_image(host: Host) -> None:
    (host.state / "trouble").write_text("start 1", encoding="utf-8")
    (host.state / "kept").mkdir()
    program(
        host.path,
        "podman",
        (
            f'[ "$1" != rm ] || cp {host.state}/containers/* '
            f"{host.state}/kept\n{(host.path / 'podman').read_text('utf-8')}"
        ),
    )
    assert host.run(engine_args=["--cgroups=disabled"])["failed"]
    (container,) = (host.state / "kept").iterdir()
    assert "--cgroups=disabled" in json.loads(container.read_text(encoding="utf-8"))["options"]


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
    assert answer["config_folder"].startswith(f"{answer['mounts'][2]['target']}/") and list(
        Path(answer["config_folder"]).iterdir()
    )
    source = patched(host, answer, patches=["triton_ptxas"], mechanism="source")
    assert source["patches"][0]["status"] == "applied"
    assert (Path(answer["mounts"][1]["source"]) / "ptxas").readlink() == Path("/usr/local/cuda/bin/ptxas")
    assert host.copied()["changed"] is False, "a patched copy is a copy"
    patched(host, answer, state="absent")
    assert all(Path(mount["source"]).is_dir() for mount in answer["mounts"]), "the mounted folders stay"


@pytest.mark.parametrize(
    ("bundled", "toolkit", "status", "reason"),
    [
        ("?", "?", "unsupported", "ptxas names no architecture; "),
        ("?", "", "unsupported", "support for sm_121a in the assemblers is unknown: "),
        ("?", LISTS, "use_flag", "ptxas names no architecture, /usr/local/cuda/bin/ptxas supports sm_121a"),
        ("sm_90", "?", "unsupported", "toolkit/ptxas names no architecture"),
        ("sm_90", "#!/bin/sh", "unsupported", "toolkit/ptxas is not a Linux program"),
        ("sm_90", "", "unsupported", "does not support sm_121a, and no ptxas of a CUDA toolkit was found"),
        ("sm_90", "sm_90", "unsupported", "does not support sm_121a, and /usr/local/cuda/bin/ptxas does not either"),
    ],
)
def test_an_assembler_that_does_not_tell(host: Host, bundled: str, toolkit: str, status: str, reason: str) -> None:
    answer = host.copied()
    for path, holds in (
        (Path(answer["mounts"][1]["source"]) / "ptxas", bundled),
        (Path(answer["toolkit"]["path"]), toolkit),
    ):
        path.write_bytes(holds.encode() if holds.startswith("#!") else ptxas("" if holds == "?" else holds))
        if not holds:
            path.unlink()
    (entry,) = patched(host, answer, patches=["triton_ptxas"])["patches"]
    assert (entry["status"], reason in entry["reason"]) == (status, True), entry["reason"]


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("check", [False, True])
def test_nothing_of_an_image_runs_on_the_host(host: Host, tmp_path: Path, state: str, check: bool) -> None:
    """The caller is root, and the programs of an image are untrusted."""
    answer, ran = host.copied(), tmp_path / "ran"
    for path in (Path(answer["mounts"][1]["source"]) / "ptxas", Path(answer["toolkit"]["path"])):
        program(path.parent, path.name, f"touch {ran}; echo \"'sm_121a'\"")
    arguments = {
        "package_dir": answer["package_dir"],
        "capability": "12.1",
        "toolkit": answer["toolkit"],
        "state": state,
    }
    run_module("vllm_patch", {**arguments, "patches": ["triton_ptxas"]}, check=check)
    assert not ran.exists()


def test_a_pipe_in_place_of_an_assembler_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ptxas", 0o755)
    assert io_package.assembler(str(tmp_path / "ptxas")).trouble == f"{tmp_path}/ptxas is not a Linux program"


def test_an_image_is_looked_into_as_nobody(host: Host) -> None:
    (host.state / "trouble").write_text("rm 1", encoding="utf-8")
    host.run()
    (container,) = host.containers()
    options = json.loads(container.read_text(encoding="utf-8"))["options"]
    assert {"--network=none", "--user=65534:65534", "--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(
        options
    )


def test_nobody_else_can_change_a_copy(host: Host) -> None:
    (host.site / "vllm/tool").chmod(0o777)
    (host.site / "vllm/model_executor").chmod(0o2777)
    folder = Path(host.copied()["package_dir"])
    assert [
        path for path in (folder, *folder.rglob("*")) if not path.is_symlink() and path.stat().st_mode & 0o7022
    ] == []


# --- interrupted runs and errors ---


@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_a_killed_run_left(host: Host, state: str) -> None:
    (host.state / "trouble").write_text("cp hang", encoding="utf-8")
    module = ROOT / ".collections/ansible_collections/gb10/cluster/plugins/modules/vllm_image_extract.py"
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
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": host.arguments()}))
    process.stdin.close()
    deadline = time.monotonic() + 30
    while (
        "cp" not in (host.state / "calls").read_text(encoding="utf-8").split()
        if (host.state / "calls").exists()
        else True
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (host.state / "trouble").unlink()
    assert (names(host.dest), len(host.containers())) == ([f".{ID[:12]}.part"], 1)
    answer = host.copied(state=state)
    assert (answer["changed"], host.containers()) == (True, [])
    assert names(host.dest) == ([ID[:12]] if state == "present" else [])
    assert host.copied(state=state)["changed"] is False


def nothing(host: Host) -> None:
    del host


def no_engine(host: Host) -> None:
    (host.path / "podman").unlink()


def no_vllm(host: Host) -> None:
    shutil.rmtree(host.site / "vllm")


def trouble(host: Host, what: str) -> None:
    (host.state / "trouble").write_text(what, encoding="utf-8")


BAD = [
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
    (lambda host: trouble(host, "image 125"), {}, "engine: podman does not respond: Error: it is broken"),
    (lambda host: trouble(host, "create 125"), {}, "engine: podman create failed: Error: it is broken"),
    (lambda host: trouble(host, "ps 125"), {}, "engine: podman does not respond: Error: it is broken"),
    (lambda host: trouble(host, "cp 1"), {}, "dest: podman cp failed: Error: it is broken"),
]


@pytest.mark.parametrize(("prepare", "changes", "expected"), BAD, ids=[message for _prepare, _changes, message in BAD])
def test_what_fails_is_one_error_and_leaves_nothing(
    host: Host, prepare: Any, changes: dict[str, Any], expected: str
) -> None:
    prepare(host)
    answer = host.run(**changes)
    assert answer["failed"] and expected in answer["msg"] and "\n  2. " not in answer["msg"], answer["msg"]
    assert (host.dest.exists(), host.containers()) == (False, [])


def test_no_room(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_copy.Image(ID, "amd64")
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result((4096, 4096, 100, 10, 10, 0, 0, 0, 0, 255)))

    def run(argv: list[str]) -> tuple[int, str, str]:
        result = subprocess.run([str(host.path / argv[0]), *argv[1:]], capture_output=True, text=True, check=False)
        return result.returncode, result.stdout, result.stderr

    engine = io_image_copy.Engine(run, "podman", [])
    with pytest.raises(ProblemsError, match=r"dest: 0 MiB are free in \S+\. Expected: 1 MiB for the copy"):
        io_image_copy.make(engine, str(host.dest), image, NAME, "python3")
    assert (host.dest.exists(), host.containers(), "cp" in host.calls()) == (False, [], False)


@pytest.mark.parametrize("record", [None, "{}", image_copy.record(Copy(ID[:12] + "0" * 52, NAME, "/p", ""))])
def test_what_is_in_the_way_is_left_alone(host: Host, record: str | None) -> None:
    folder = host.dest / ID[:12]
    folder.mkdir(parents=True)
    if record is not None:
        (folder / image_copy.RECORD).write_text(record, encoding="utf-8")
    answer = host.run()
    assert answer["failed"] and f"dest: {folder} exists and is not the copy of image {ID}" in answer["msg"]
    assert folder.exists() and host.calls() == ["image"]


# --- the copies of an image ---


def test_an_image_that_changed_under_its_name(host: Host) -> None:
    host.copied()
    host.has(ID, [], [host.site])
    host.has(OTHER, [NAME], [host.site])
    assert host.copied()["changed"] is True
    assert names(host.dest) == [ID[:12], OTHER[:12]], "a running container may still mount the older one"
    (host.state / "images" / f"{ID}.json").unlink()
    assert host.copied(image=ID[:12], state="absent")["changed"] is True
    assert names(host.dest) == [OTHER[:12]]
    host.copied(image="example.org/other:1", state="absent")
    assert names(host.dest) == [OTHER[:12]]
    no_engine(host)
    assert host.copied(state="absent")["changed"] is True
    assert not host.dest.exists()


def test_only_containers_of_the_same_folder_are_removed(host: Host) -> None:
    other = host.state / "containers" / f"{'f' * 64}.json"
    other.write_text(json.dumps({"label": f"gb10.cluster.vllm_image_extract={host.dest}2"}), encoding="utf-8")
    host.copied()
    assert host.containers() == [other]


def test_a_search_that_answers_nonsense_is_refused() -> None:
    good = {
        "package": "/p/vllm",
        "triton": "",
        "torch": "",
        "toolkit": "",
        "distributions": ["/p/vllm-1.dist-info"],
        "size": 1,
    }
    assert image_copy.found(f"noise\n{json.dumps(good)}\n").package == "/p/vllm"
    for bad in (
        {**good, "package": "p"},
        {**good, "distributions": ["/p/../.."]},
        {**good, "more": 1},
        {"distributions": []},
        [],
        None,
    ):
        with pytest.raises((ValueError, TypeError, KeyError)):
            image_copy.found(json.dumps(bad))
