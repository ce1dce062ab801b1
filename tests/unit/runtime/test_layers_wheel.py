"""The task files of the role vllm_runtime that put a built wheel into an image, with an engine whose images are
files."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import LOCK, Node, cluster_plan, lock_of, node_plan, spark
from repository import ROOT
from run_module import program
from run_playbook import Run, run

pytestmark = pytest.mark.slow

ID = "ab12" * 16
BASE = "example.org/vllm@sha256:" + "1" * 64
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
TAG = "cp{}{}".format(*sys.version_info)
CONTENT = b"a wheel"
ROLE = {"name": "gb10.cluster.vllm_runtime", "rolespec_validate": False}


class Head:
    """A head with an engine that has the base image, and the store of builds."""

    def __init__(self, folder: Path, tag: str = TAG) -> None:
        self.folder, self.state, self.site = folder, folder / "state", folder / "site"
        for path in ("images", "containers"):
            (self.state / path).mkdir(parents=True)
        self.path = program(
            folder / "bin", "podman", f'exec {sys.executable} {ROOT}/tests/support/fake_engine.py {self.state} "$@"'
        )
        said = {"names": [BASE], "root": "/", "path": [str(self.site)], "said": {"Architecture": MACHINE, "Size": 1000}}
        (self.state / "images" / f"{ID}.json").write_text(json.dumps(said), encoding="utf-8")
        self.installed(vllm="0.32.0", torch="2.13.0+cu130")
        self.file = f"vllm-0.32.0+gb10.ab-{tag}-{tag}-linux_aarch64.whl"
        self.plan = self.planned({})
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

    def planned(self, changes: Mapping[str, Any], built: bool = True) -> dict[str, Any]:
        """Return the head's plan of a cluster of one node, with the build in its store."""
        container = {"gb10_runtime": "container", "gb10_container_image": BASE, "gb10_container_engine": "podman"}
        node = spark(1, "head", **container, gb10_install_dir=str(self.folder), gb10_distributed_executor_backend="mp")
        node["build"] = {**node["build"], "enabled": True, "commit": "7" * 40, "version": "", **changes}
        plan = self._plan(node)
        if built:
            stamp = {
                "name": plan["build"]["wheels"][0]["name"],
                "wheel": self.file,
                "sha256": hashlib.sha256(CONTENT).hexdigest(),
            }
            node["observed"]["vllm_build"] = {"builds": [stamp], "published": None}
            plan = self._plan(node)
        return plan

    def _plan(self, node: Node) -> dict[str, Any]:
        plan, problems = cluster_plan([node], LOCK + lock_of("torch==2.13.0"))
        assert problems == []
        return dict(node_plan(plan, "spark1"))

    def play(self, tasks: list[dict[str, Any]], *arguments: str) -> Run:
        """Run tasks on the head with the fake engine."""
        environment = {"PATH": f"{self.path}:{os.environ['PATH']}"}
        play = {"hosts": "all", "gather_facts": False, "environment": environment, "tasks": tasks}
        (self.folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
        local = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
        hosts = {"all": {"hosts": {"spark1": {**local, "gb10_plan": self.plan}}}}
        (self.folder / "hosts.json").write_text(json.dumps(hosts), encoding="utf-8")
        return run(str(self.folder / "play.yml"), ["-i", str(self.folder / "hosts.json"), *arguments])

    def build(self, *arguments: str) -> Run:
        """Run layers.yml for each build of the plan."""
        task = {
            "ansible.builtin.include_role": {**ROLE, "tasks_from": "layers"},
            "loop": "{{ gb10_plan.runtime.builds }}",
        }
        return self.play([{**task, "loop_control": {"loop_var": "vllm_runtime_layer"}}], *arguments)

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
    failed = head.build()
    assert failed.status != 0
    assert (
        f"{head.wheel} on spark1 has sha256 {found}. Expected: {hashlib.sha256(CONTENT).hexdigest()}. Fix: "
        "remove the build"
    ) in failed.output
    assert head.built() == {}


@pytest.mark.parametrize(
    ("package", "found"), [("vllm", "vLLM 9.0, torch 2.13.0"), ("torch", "vLLM 0.32.0, torch 9.0")]
)
def test_an_image_of_other_releases_is_refused(head: Head, package: str, found: str) -> None:
    head.installed(**{package: "9.0"})
    failed = head.build()
    assert failed.status != 0
    assert (
        f"gb10_container_image: {BASE} has {found} and Python {TAG}. Expected: vLLM 0.32.0 and torch 2.13.0, "
        "the releases"
    ) in failed.output
    assert "Fix: use an image with these releases, or set gb10_runtime_lock" in failed.output
    assert head.built() == {}


@pytest.mark.parametrize(("tag", "accepted"), [("cp39", False), ("abi3", True)])
def test_a_wheel_for_another_python_is_refused(tmp_path: Path, tag: str, accepted: bool) -> None:
    head = Head(tmp_path, tag)
    done = head.build()
    assert (done.status == 0, f"and a Python for {head.file}" in done.output, bool(head.built())) == (
        accepted,
        not accepted,
        accepted,
    )


def test_no_image_is_built_before_the_wheel(head: Head) -> None:
    head.plan = head.planned({}, built=False)
    failed = head.play([{"ansible.builtin.include_role": {**ROLE, "tasks_from": "prepare"}}])
    assert failed.status != 0
    assert (
        f"vllm_build_enabled: the build is not on every node ({head.plan['build']['wheels'][0]['name']})."
        in failed.output
    )
    assert "Fix: run site.yml, or add the tag vllm_build." in failed.output
    assert not (head.state / "calls").exists(), "the engine was not used"
