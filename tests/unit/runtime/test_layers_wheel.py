"""The task files of the role vllm_runtime that put a built wheel into an image, with an engine whose images are
files."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import LOCK, cluster_plan, lock_of, node_plan, spark
from engine_host import EngineHost, play
from run_playbook import Run

pytestmark = pytest.mark.slow

ID = "ab12" * 16
BASE = "example.org/vllm@sha256:" + "1" * 64
TAG = "cp{}{}".format(*sys.version_info)
CONTENT = b"a wheel"
PINS = LOCK + lock_of("torch==2.13.0")
ROLE = {"name": "gb10.cluster.vllm_runtime", "rolespec_validate": False}


class Head(EngineHost):
    """A head with an engine that has the base image, and the store of builds."""

    def __init__(self, folder: Path, tag: str = TAG) -> None:
        super().__init__(folder)
        self.site = folder / "site"
        self.has("images", ID, [BASE], [self.site])
        self.installed(vllm="0.32.0", torch="2.13.0+cu130")
        self.file = f"vllm-0.32.0+gb10.ab-{tag}-{tag}-linux_aarch64.whl"
        self.plan = self.planned()
        (build,) = self.plan["runtime"]["builds"]
        self.wheel, self.image = Path(build["wheel"]), build["image"]
        self.wheel.parent.mkdir(parents=True)
        self.wheel.write_bytes(CONTENT)

    def installed(self, **releases: str) -> None:
        """Install packages in the base image."""
        for name, version in releases.items():
            folder = self.site / f"{name}.dist-info"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
            )

    def planned(self, built: bool = True) -> dict[str, Any]:
        """Return the head's plan of a cluster of one node, with the build in its store."""
        container = {"gb10_runtime": "container", "gb10_container_image": BASE, "gb10_container_engine": "podman"}
        node = spark(1, "head", **container, gb10_install_dir=str(self.folder), gb10_distributed_executor_backend="mp")
        node["build"] = {**node["build"], "enabled": True, "commit": "7" * 40, "version": ""}
        plan, _problems = cluster_plan([node], PINS)
        if built:
            name, sha256 = plan["build"]["name"], hashlib.sha256(CONTENT).hexdigest()
            stamp = {"name": name, "wheel": self.file, "sha256": sha256}
            node["observed"]["vllm_build"] = {"builds": [stamp]}
            plan, problems = cluster_plan([node], PINS)
            assert problems == []
        return dict(node_plan(plan, "spark1"))

    def play(self, tasks: list[dict[str, Any]], *arguments: str) -> Run:
        return play(self.folder, tasks, {"spark1": {"gb10_plan": self.plan}}, *arguments, path=self.path)

    def build(self, *arguments: str) -> Run:
        """Run layers.yml for each build of the plan."""
        task = {
            "ansible.builtin.include_role": {**ROLE, "tasks_from": "layers"},
            "loop": "{{ gb10_plan.runtime.builds }}",
        }
        return self.play([{**task, "loop_control": {"loop_var": "vllm_runtime_layer"}}], *arguments)

    def assert_refuses(self, failed: Run, *words: str) -> None:
        assert failed.status != 0
        assert [each for each in words if each not in failed.output] == []
        assert self.built() == {}

    def built(self) -> dict[str, list[str]]:
        """Return the built images, with the files that each build had."""
        path = self.state / "built"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_the_wheel_of_the_store_is_in_the_build(head: Head) -> None:
    assert head.build("--check").assert_ok().changed_tasks() == {"Build the image"}
    assert head.built() == {}
    assert "Build the image" in head.build().assert_ok().changed_tasks()
    assert head.built() == {head.image: [f"layer/{head.file}"]}
    assert not (head.folder / "runtime/.transfer/build").exists()
    assert head.wheel.read_bytes() == CONTENT
    assert (head.state / "network").read_text(encoding="utf-8") == "none"
    assert "Build the image" not in head.build().assert_ok().changed_tasks()


@pytest.mark.parametrize("content", [b"another wheel", None])
def test_another_wheel_is_refused(head: Head, content: bytes | None) -> None:
    head.wheel.unlink()
    if content:
        head.wheel.write_bytes(content)
    found = hashlib.sha256(content).hexdigest() if content else "none"
    wanted = hashlib.sha256(CONTENT).hexdigest()
    head.assert_refuses(head.build(), f"{head.wheel}: its sha256 is {found}. Expected: {wanted}. Fix: remove the build")


@pytest.mark.parametrize(
    ("package", "found"), [("vllm", "vLLM 9.0, torch 2.13.0"), ("torch", "vLLM 0.32.0, torch 9.0")]
)
def test_an_image_of_other_releases_is_refused(head: Head, package: str, found: str) -> None:
    head.installed(**{package: "9.0"})
    head.assert_refuses(
        head.build(),
        f"gb10_container_image: {BASE} has {found} and Python {TAG}. Expected: vLLM 0.32.0 and torch 2.13.0, the releases",
        "Fix: use an image with these releases, or set gb10_runtime_lock",
    )


def test_a_wheel_for_another_python_is_refused(tmp_path: Path) -> None:
    head = Head(tmp_path / "other", "cp39")
    head.assert_refuses(head.build(), f"and a Python for {head.file}")
    stable = Head(tmp_path / "stable", "abi3")
    stable.build().assert_ok()
    assert stable.built() == {stable.image: [f"layer/{stable.file}"]}


def test_no_image_is_built_before_the_wheel(head: Head) -> None:
    head.plan = head.planned(built=False)
    failed = head.play([{"ansible.builtin.include_role": {**ROLE, "tasks_from": "prepare"}}])
    name = head.plan["build"]["name"]
    head.assert_refuses(
        failed,
        f"vllm_build_enabled: the build is not on every node ({name}).",
        "Fix: run site.yml, or add the tag vllm_build.",
    )
    assert head.calls() == [], "the engine was not used"
