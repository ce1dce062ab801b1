"""container_image as on a node, with an engine whose images are files: it fetches each image once; messages."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from engine_host import EngineHost, play
from repository import load_yaml, read
from run_module import run_module
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_engine, io_image, io_wheels
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Image

ID, OTHER = "ab12" * 16, "cd34" * 16
TAG, DIGEST = "example.org/vllm:1", "example.org/vllm@sha256:" + "5" * 64


class Host(EngineHost):
    """A host with an engine without images, and a registry with one image."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.has("registry", ID, [TAG, DIGEST])

    def run(self, image: str = DIGEST, check: bool = False, **changes: Any) -> dict[str, Any]:
        return run_module("container_image", {"image": image, "engine": "podman", **changes}, self.path, check)

    def got(self, image: str = DIGEST, check: bool = False, **changes: Any) -> dict[str, Any]:
        answer = self.run(image, check, **changes)
        assert not answer.get("failed"), answer
        return answer


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_an_image_is_pulled_once(host: Host) -> None:
    asked = host.got()
    assert (asked["changed"], asked["image_id"], host.names("images")) == (False, None, [])
    first = host.got(pull=True)
    assert (first["changed"], first["image_id"], first["size"], first["digests"]) == (True, ID, 1000, [DIGEST])
    assert first["diff"] == {"before": "", "after": f"{DIGEST}\n"}
    host.calls()
    again = host.got(pull=True)
    assert (again["changed"], again["image_id"], host.calls()) == (False, ID, ["image"])
    assert host.got(f"sha256:{ID}")["image_id"] == ID


def test_an_update_fetches_what_the_tag_means_now(host: Host) -> None:
    assert host.got(TAG, pull=True)["digest"] == DIGEST.partition("@")[2]
    host.calls()
    assert (host.got(TAG, pull=True, update=True)["changed"], host.calls()) == (False, ["image", "pull", "image"])
    host.lacks("registry", ID)
    later = DIGEST[:-64] + "6" * 64
    host.has("registry", OTHER, [TAG, later])
    assert host.got(TAG, pull=True)["image_id"] == ID, "without an update, the tag of the engine stays"
    assert host.got(TAG, check=True, pull=True, update=True)["changed"] is False, (
        "only a pull shows whether the tag has moved"
    )
    moved = host.got(TAG, pull=True, update=True)
    assert (moved["changed"], moved["image_id"], moved["digest"]) == (True, OTHER, later.partition("@")[2])
    assert moved["diff"] == {"before": f"sha256:{ID}\n", "after": f"sha256:{OTHER}\n"}
    assert host.got(DIGEST)["image_id"] == ID, "its earlier image stays for a rollback"


def test_an_update_keeps_an_image_that_no_registry_has(host: Host) -> None:
    host.has("images", OTHER, ["own:1"])
    found = host.got("own:1", pull=True, update=True)
    assert (found["changed"], found["image_id"], found["digest"], "pull" in host.calls()) == (False, OTHER, "", False)


def test_check_mode_fetches_and_writes_nothing(host: Host, tmp_path: Path) -> None:
    shown = host.got(check=True, pull=True, save=str(tmp_path / "out/image.tar"))
    assert (shown["changed"], shown["image_id"], shown["saved_sha256"]) == (True, None, None)
    assert (host.calls(), host.names("images"), (tmp_path / "out").exists()) == (["image"], [], False)


def test_an_image_gets_from_one_host_to_another_by_a_file(host: Host, tmp_path: Path) -> None:
    host.got(pull=True)
    tar = tmp_path / "out/image.tar"
    tar.parent.mkdir()
    # Left by a killed run.
    tar.with_name("image.tar.part").write_text("half", encoding="utf-8")
    saved = host.got(f"sha256:{ID}", save=str(tar))
    assert saved["saved_sha256"] == hashlib.sha256(tar.read_bytes()).hexdigest()
    assert (tar.stat().st_mode & 0o777, [path.name for path in tar.parent.iterdir()]) == (0o644, ["image.tar"])
    other = Host(tmp_path / "other")
    loaded = other.got(f"sha256:{ID}", archive=str(tar))
    assert (loaded["changed"], loaded["image_id"], "pull" in other.calls()) == (True, ID, False)
    # It has a tag there; otherwise `image prune` would remove it.
    assert other.got(f"gb10.cluster/runtime:{ID[:12]}")["image_id"] == ID
    tar.unlink()
    assert other.got(f"sha256:{ID}", archive=str(tar))["changed"] is False, "an image on the host is not loaded again"


WRONG = DIGEST.replace("5", "6")
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong digest": (
        {"image": WRONG, "pull": True},
        f"image: podman pull {WRONG} failed: Error: reading manifest {WRONG}: manifest unknown. Expected: an image that "
        "its registry has. Fix: correct gb10_container_image and its digest, or check network and login for `podman pull`",
    ),
    "an archive of another image": (
        {"archive": "{}/other.tar"},
        f"archive: {{}}/other.tar holds another image (Loaded image: gb10.cluster/runtime:{OTHER[:12]}). Expected: {DIGEST}",
    ),
    "another machine": (
        {"image": "strange:1"},
        f"strange:1 is for riscv64. Expected: an image for {os.uname().machine}",
    ),
    "a full disk": ({"image": "large:1", "save": "{}/image.tar"}, f"{2**40 + 1} MiB for the image"),
    "a failed save": ({"image": "own:1", "save": "{}/image.tar"}, "podman save failed: Error: it is broken"),
}


@pytest.mark.parametrize(("given", "expected"), BAD.values(), ids=BAD)
def test_what_fails_is_one_error_and_leaves_no_file(
    host: Host, tmp_path: Path, given: dict[str, Any], expected: str
) -> None:
    host.has("images", OTHER, ["own:1"])
    host.got("own:1", save=str(tmp_path / "other.tar"))
    host.has("images", "1" * 64, ["strange:1"], Architecture="riscv64")
    host.has("images", "2" * 64, ["large:1"], Size=2**60)
    host.trouble("save 1")
    images = host.names("images")
    answer = host.run(**{key: each.format(tmp_path) if isinstance(each, str) else each for key, each in given.items()})
    assert answer["failed"] and expected.format(tmp_path) in answer["msg"], answer["msg"]
    assert (list(tmp_path.glob("image.tar*")), host.names("images")) == ([], images)


@pytest.mark.parametrize(
    ("architecture", "machine"), [("arm64", "aarch64"), ("amd64", "x86_64"), ("", "aarch64"), ("riscv64", "riscv64")]
)
def test_an_image_is_for_its_machine_alone(architecture: str, machine: str) -> None:
    io_image.check_machine(Image(ID, architecture), TAG, machine)
    if architecture:
        with pytest.raises(ProblemsError, match=rf"is for {architecture}\. Expected: an image for ppc64"):
            io_image.check_machine(Image(ID, architecture), TAG, "ppc64")


@pytest.mark.slow
def test_each_node_compares_the_heads_image_with_its_own(tmp_path: Path) -> None:
    """The role's tasks in one run: nodes with another image in their engine or record, and with pins of a tag."""
    pinned, other, elsewhere = (f"{name}@sha256:{digit * 64}" for name, digit in ((TAG, "5"), (TAG, "6"), ("b:2", "6")))
    nodes: dict[str, dict[str, Any]] = {
        "spark1": {"engine": ID},
        "spark2": {"engine": OTHER},
        "spark3": {},
        "spark4": {"files": {DIGEST: OTHER}},
        "spark5": {"engine": ID, "files": {DIGEST: ID}},
        "tag1": {"image": pinned, "files": {other: OTHER}},
        "tag2": {"image": pinned, "files": {pinned: ID, elsewhere: OTHER}},
        "tag3": {"image": pinned, "files": {other: OTHER}, "vllm_runtime_image_update": True},
    }
    defaults = load_yaml(read("roles/vllm_runtime/defaults/main.yml"))
    for name, host in nodes.items():
        image = host.pop("image", DIGEST)
        engine = Host(tmp_path / name)
        if found := host.pop("engine", ""):
            engine.has("images", found, [image])
        node = {"name": name, "head": name == "spark1", "additions": {"vllm_runtime": {"files": host.pop("files", {})}}}
        runtime = {"kind": "container", "image": image, "base": image, "engine": "podman"}
        runtime["tag"] = TAG if image == pinned else ""
        host["gb10_plan"] = fact({"head": {"name": "spark1"}, "node": node, "runtime": runtime})
        nodes[name] = {**defaults, **host, "engine_path": str(engine.path)}
    names = ("Refuse another image", "Check whether this node", "Refuse an image ID")
    tasks = [task for task in load_yaml(read("roles/vllm_runtime/tasks/image.yml")) if task["name"].startswith(names)]
    said = play(tmp_path, tasks, nodes, path="{{ engine_path }}", files="vars").output
    refused = (
        f"gb10_container_image: spark1 has {DIGEST} as sha256:{ID}. Expected on {{}}: sha256:{OTHER}, because a digest"
    )
    assert [name for name in nodes if refused.format(name) in said] == ["spark2", "spark4"], said
    moved = f"{TAG} is {pinned} on spark1. Expected on {{}}: {other}, because a tag stays"
    assert [name for name in nodes if moved.format(name) in said] == ["tag1"], said


def test_an_image_is_built_once_and_without_network(host: Host, tmp_path: Path) -> None:
    given = building(host, tmp_path)
    shown = host.got(check=True, **given)
    assert (shown["changed"], shown["image_id"]) == (True, None)
    host.calls()
    first = host.got(**given)
    assert (first["changed"], first["image_id"] in host.names("images")) == (True, True)
    assert host.calls() == ["image", "image", "tag", "build", "image"]
    assert (host.state / "network").read_text(encoding="utf-8") == "none"
    again = host.got(**given)
    assert (again["changed"], again["image_id"], host.calls()) == (False, first["image_id"], ["image"])
    given["build"]["network"] = True
    host.got(**{**given, "image": "localhost/built:2"})
    assert (host.state / "network").read_text(encoding="utf-8") == "default"


@pytest.mark.parametrize("changes", [{"base": "example.org/none:1"}, {"base_name": "localhost/other:1"}])
def test_a_failed_build_is_an_error(host: Host, tmp_path: Path, changes: dict[str, str]) -> None:
    answer = host.run(**building(host, tmp_path, **changes))
    assert answer["failed"] and "image" in answer["msg"]
    assert host.names("images") == [ID]


def building(host: Host, folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the arguments of a build on the registry's image, which the host has."""
    host.got(pull=True)
    (folder / "Containerfile").write_text("FROM localhost/base:1\nUSER 0:0\n", encoding="utf-8")
    build = {"context": str(folder), "base": DIGEST, "base_name": "localhost/base:1", **changes}
    return {"image": "localhost/built:1", "build": build}


def test_a_full_disk_is_named_in_mebibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_file, "free_bytes", lambda _folder: 5 << 20)
    io_engine.check_room("save", "/x", 5 << 20, "image", "free disk space")
    with pytest.raises(ProblemsError, match=r"save: 5 MiB are free in /x\. Expected: 6 MiB for the image\."):
        io_engine.check_room("save", "/x", (5 << 20) + 1, "image", "free disk space")


@pytest.mark.parametrize(("built", "fix"), [(True, io_wheels.REBUILD), (False, "correct gb10_runtime_wheels")])
def test_another_wheel_has_the_fix_of_its_origin(tmp_path: Path, built: bool, fix: str) -> None:
    (tmp_path / "a.whl").write_bytes(b"x")
    found = hashlib.sha256(b"x").hexdigest()
    assert io_wheels.check(str(tmp_path / "a.whl"), found, built) == []
    (problem,) = io_wheels.check(str(tmp_path / "a.whl"), "0" * 64, built)
    assert problem.found == f"its sha256 is {found}" and problem.fix.endswith(fix)
    assert io_wheels.check(str(tmp_path / "none"), found, built)[0].found == "its sha256 is none"
