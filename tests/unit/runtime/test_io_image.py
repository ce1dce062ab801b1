"""container_image as on a node, with an engine whose images are files: it fetches each image once; messages."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, load_yaml, read
from run_module import program, run_module
from run_playbook import run
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_image
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Image

ID, OTHER = "ab12" * 16, "cd34" * 16
TAG, DIGEST = "example.org/vllm:1", "example.org/vllm@sha256:" + "5" * 64
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


class Host:
    """A host with an engine without images, and a registry with one image."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        for path in ("images", "containers", "registry"):
            (self.state / path).mkdir(parents=True)
        self.path = program(
            folder / "bin", "podman", f'exec {sys.executable} {ROOT}/tests/support/fake_engine.py {self.state} "$@"'
        )
        self.has("registry", ID, [TAG, DIGEST])

    def has(self, place: str, image_id: str, names: list[str], architecture: str = MACHINE, size: int = 1000) -> None:
        entry = {"names": names, "root": "/", "path": [], "said": {"Architecture": architecture, "Size": size}}
        (self.state / place / f"{image_id}.json").write_text(json.dumps(entry), encoding="utf-8")

    def run(self, image: str = DIGEST, check: bool = False, **changes: Any) -> dict[str, Any]:
        return run_module("container_image", {"image": image, "engine": "podman", **changes}, self.path, check)

    def got(self, image: str = DIGEST, check: bool = False, **changes: Any) -> dict[str, Any]:
        answer = self.run(image, check, **changes)
        assert not answer.get("failed"), answer
        return answer

    def calls(self) -> list[str]:
        """The engine's commands since the last call."""
        path = self.state / "calls"
        calls = path.read_text(encoding="utf-8").split() if path.exists() else []
        path.unlink(missing_ok=True)
        return calls

    def images(self) -> list[str]:
        return sorted(path.stem for path in (self.state / "images").iterdir())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_pulled_once(host: Host) -> None:
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
    (host.state / "registry" / f"{ID}.json").unlink()
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


def test_asked_only(host: Host) -> None:
    assert (host.got()["image_id"], host.got()["changed"], host.images()) == (None, False, [])


def test_check_mode_fetches_and_writes_nothing(host: Host, tmp_path: Path) -> None:
    shown = host.got(check=True, pull=True, save=str(tmp_path / "out/image.tar"))
    assert (shown["changed"], shown["image_id"], shown["saved_sha256"], host.images()) == (True, None, None, [])
    assert (set(host.calls()), (tmp_path / "out").exists()) == ({"image"}, False)


def test_from_one_host_to_another_by_a_file(host: Host, tmp_path: Path) -> None:
    host.got(pull=True)
    tar = tmp_path / "out/image.tar"
    saved = host.got(f"sha256:{ID}", save=str(tar))
    assert saved["saved_sha256"] == hashlib.sha256(tar.read_bytes()).hexdigest()
    assert (tar.stat().st_mode & 0o777, [path.name for path in tar.parent.iterdir()]) == (0o644, ["image.tar"])
    other = Host(tmp_path / "other")
    loaded = other.got(f"sha256:{ID}", archive=str(tar))
    assert (loaded["changed"], loaded["image_id"], "pull" in other.calls()) == (True, ID, False)
    # It has a tag there; otherwise `image prune` would remove it.
    assert f"gb10.cluster/runtime:{ID[:12]}" in (other.state / "images" / f"{ID}.json").read_text(encoding="utf-8")
    tar.unlink()
    assert other.got(f"sha256:{ID}", archive=str(tar))["changed"] is False, "an image on the host is not loaded again"


def test_what_a_killed_save_left_is_no_hindrance(host: Host, tmp_path: Path) -> None:
    host.got(pull=True)
    (tmp_path / "image.tar.part").write_text("half", encoding="utf-8")
    host.got(save=str(tmp_path / "image.tar"))
    assert not (tmp_path / "image.tar.part").exists() and (tmp_path / "image.tar").exists()


def test_a_wrong_digest(host: Host) -> None:
    wrong = DIGEST.replace("5", "6")
    answer = host.run(wrong, pull=True)
    assert answer["failed"]
    assert (
        f"image: podman pull {wrong} failed: Error: reading manifest {wrong}: manifest unknown. Expected: an image that"
        in answer["msg"]
    )
    assert "correct gb10_container_image and its digest" in answer["msg"]
    assert host.images() == []


def test_an_archive_of_another_image(host: Host, tmp_path: Path) -> None:
    host.has("images", OTHER, ["example.org/other:1"])
    tar = tmp_path / "other.tar"
    host.got("example.org/other:1", save=str(tar))
    answer = host.run(archive=str(tar))
    assert answer["failed"]
    assert (
        f"archive: {tar} holds another image (Loaded image: gb10.cluster/runtime:{OTHER[:12]}). Expected: {DIGEST}"
        in answer["msg"]
    )


def test_an_image_for_another_machine(host: Host) -> None:
    host.has("images", OTHER, [TAG], architecture="riscv64")
    answer = host.run(TAG)
    assert answer["failed"]
    assert f"{TAG} is for riscv64. Expected: an image for {os.uname().machine}" in answer["msg"]


def test_no_room_for_the_file(host: Host, tmp_path: Path) -> None:
    host.has("images", OTHER, [TAG], size=2**60)
    answer = host.run(TAG, save=str(tmp_path / "image.tar"))
    assert "MiB are free in" in answer["msg"] and f"{2**40 + 1} MiB for the image" in answer["msg"]
    assert list(tmp_path.glob("image.tar*")) == []


def test_a_save_that_fails_leaves_no_file(host: Host, tmp_path: Path) -> None:
    host.got(pull=True)
    (host.state / "trouble").write_text("save 1", encoding="utf-8")
    assert "podman save failed: Error: it is broken" in host.run(save=str(tmp_path / "image.tar"))["msg"]
    assert list(tmp_path.glob("image.tar*")) == []


def test_no_engine(host: Host) -> None:
    (host.path / "podman").unlink()
    assert "engine: podman is not installed" in host.run()["msg"]


@pytest.mark.parametrize(
    ("architecture", "machine"), [("arm64", "aarch64"), ("amd64", "x86_64"), ("", "aarch64"), ("riscv64", "riscv64")]
)
def test_machines_that_an_image_is_for(architecture: str, machine: str) -> None:
    io_image.check_machine(Image(ID, architecture), TAG, machine)


def test_a_machine_that_an_image_is_not_for() -> None:
    with pytest.raises(ProblemsError, match=r"is for amd64\. Expected: an image for aarch64"):
        io_image.check_machine(Image(ID, "amd64"), TAG, "aarch64")


def compared(folder: Path, image: str, nodes: dict[str, tuple[str, str]], tag: str = "", **variables: Any) -> str:
    """Return the output of the role's comparison. A node has the image under an ID in its engine, and one in its
    record.

    A record with a colon is the name of another image.
    """
    hosts: dict[str, Any] = {}
    for name, (image_id, recorded) in nodes.items():
        engine = Host(folder / name)
        if image_id:
            engine.has("images", image_id, [image])
        files = {recorded: OTHER} if ":" in recorded else {image: recorded}
        node = {"name": name, "head": name == "spark1", "additions": {"vllm_runtime": {"files": files}}}
        runtime = {"kind": "container", "image": image, "base": image, "tag": tag, "engine": "podman"}
        plan = fact({"head": {"name": "spark1"}, "node": node, "runtime": runtime})
        hosts[name] = {"gb10_plan": plan, "engine_path": str(engine.path)}
    names = ("Refuse another image", "Check whether this node", "Refuse an image ID")
    tasks = [task for task in load_yaml(read("roles/vllm_runtime/tasks/image.yml")) if task["name"].startswith(names)]
    assert len(tasks) == len(names)
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"PATH": "{{ engine_path }}:{{ lookup('env', 'PATH') }}"},
        "tasks": tasks,
    }
    play["vars_files"] = [str(ROOT / "roles/vllm_runtime" / name / "main.yml") for name in ("defaults", "vars")]
    (folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    local = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        **variables,
    }
    return run(str(folder / "play.yml"), ["-i", str(folder / "hosts.json"), "--extra-vars", json.dumps(local)]).output


def test_a_node_compares_the_heads_image_with_its_own(tmp_path: Path) -> None:
    nodes = {"spark1": (ID, ""), "spark2": (OTHER, ""), "spark3": ("", ""), "spark4": ("", OTHER), "spark5": (ID, ID)}
    said = compared(tmp_path, DIGEST, nodes)
    for name, (image_id, recorded) in nodes.items():
        refused = f"spark1 has {DIGEST} as sha256:{ID}. Expected on {name}: sha256:{OTHER}, because a digest" in said
        assert refused is (OTHER in (image_id, recorded)), said


def test_a_node_keeps_its_image_of_a_tag(tmp_path: Path) -> None:
    pinned, other = (f"{TAG}@sha256:{digit * 64}" for digit in "56")
    nodes = {
        "spark1": (ID, ""),
        "spark2": ("", other),
        "spark3": ("", pinned),
        "spark4": ("", other.replace(":1@", ":2@")),
    }
    said = compared(tmp_path, pinned, nodes, TAG)
    assert f"{TAG} is {pinned} on spark1. Expected on spark2: {other}, because a tag stays" in said
    assert "run site.yml -e vllm_runtime_image_update=true" in said
    assert set(re.findall(r"Expected on (\w+): \S+, because a tag", said)) == {"spark2"}
    (tmp_path / "update").mkdir()
    assert "because a tag stays" not in compared(
        tmp_path / "update", pinned, nodes, TAG, vllm_runtime_image_update=True
    )


def building(host: Host, folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the arguments of a build on the registry's image, which the host has."""
    host.got(pull=True)
    host.calls()
    folder.mkdir(exist_ok=True)
    (folder / "Containerfile").write_text("FROM localhost/base:1\nUSER 0:0\n", encoding="utf-8")
    return {
        "image": "localhost/built:1",
        "build": {"context": str(folder), "base": DIGEST, "base_name": "localhost/base:1", **changes},
    }


def test_built_once_without_network(host: Host, tmp_path: Path) -> None:
    given = building(host, tmp_path / "context")
    assert host.got(check=True, **given) == {**host.got(check=True, **given), "changed": True, "image_id": None}
    host.calls()
    first = host.got(**given)
    assert (first["changed"], first["image_id"] in host.images(), host.calls()) == (
        True,
        True,
        ["image", "image", "tag", "build", "image"],
    )
    assert (host.state / "network").read_text(encoding="utf-8") == "none"
    again = host.got(**given)
    assert (again["changed"], again["image_id"], host.calls()) == (False, first["image_id"], ["image"])


def test_a_build_may_request_the_network(host: Host, tmp_path: Path) -> None:
    host.got(**building(host, tmp_path / "context", network=True))
    assert (host.state / "network").read_text(encoding="utf-8") == "default"


@pytest.mark.parametrize("changes", [{"base": "example.org/none:1"}, {"base_name": "localhost/other:1"}])
def test_a_failed_build_is_an_error(host: Host, tmp_path: Path, changes: dict[str, str]) -> None:
    answer = host.run(**building(host, tmp_path / "context", **changes))
    assert answer["failed"]
    assert "image" in answer["msg"]
    assert host.images() == [ID]
