"""The role's tasks that pin a tag, over an engine whose images are files: later runs use the image of the first
pull."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import cluster_plan, node_plan, spark
from engine_host import EngineHost, play
from repository import ROOT, load_yaml, read
from run_playbook import Run

ROLE = ROOT / "roles/vllm_runtime"
FIRST, LATER, OWN = "ab12" * 16, "cd34" * 16, "ef56" * 16
TAG, OLD, NEW = "example.org/vllm:latest", "sha256:" + "5" * 64, "sha256:" + "6" * 64


class Head(EngineHost):
    """A head with an engine, and the registry."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.pins = folder / "etc/image-pins.json"
        shutil.copy(ROLE / "tasks/fetch.yml", folder)
        self.image("registry", FIRST, TAG, f"example.org/vllm@{OLD}", f"{TAG}@{OLD}")

    def image(self, place: str, image_id: str, *names: str) -> None:
        self.has(place, image_id, names, RepoDigests=[name for name in names if "@" in name and ":latest" not in name])

    def moves(self) -> None:
        """Move the tag in the registry."""
        self.image("registry", FIRST, f"example.org/vllm@{OLD}", f"{TAG}@{OLD}")
        self.image("registry", LATER, TAG, f"example.org/vllm@{NEW}", f"{TAG}@{NEW}")

    def plan(self, tag: str = TAG) -> dict[str, Any]:
        settings = {"gb10_runtime": "container", "gb10_container_image": tag, "gb10_container_engine": "podman"}
        node = spark(1, "head", **settings, gb10_runtime_lock="", gb10_install_dir=str(self.folder / "opt"))
        node["observed"]["image_pins"] = (
            json.loads(self.pins.read_text(encoding="utf-8")) if self.pins.exists() else None
        )
        plan, problems = cluster_plan([node], "")
        assert problems == []
        return dict(node_plan(plan, "spark1"))

    def tasks(self, tasks: list[dict[str, Any]], tag: str, *arguments: str, **variables: Any) -> Run:
        given = ["--diff", "--extra-vars", json.dumps({"_vllm_runtime_image_pins": str(self.pins), **variables})]
        hosts = {"spark1": {"gb10_plan": self.plan(tag)}}
        return play(self.folder, tasks, hosts, *given, *arguments, path=self.path, files="defaults vars")

    def run(self, *arguments: str, tag: str = TAG, **variables: Any) -> tuple[Run, Run]:
        """Pin the tag if it is due, plan again, and provide the planned image."""
        pin = load_yaml(read("roles/vllm_runtime/tasks/pin.yml"))
        again = pin.pop()
        assert again["name"] == "Plan again with the pinned image"
        image = load_yaml(read("roles/vllm_runtime/tasks/image.yml"))
        names = ("Check whether this node", "Pull or load", "Refuse an image ID")
        provide = [task for task in image if task["name"].startswith(names)]
        (due,) = [task["when"] for task in image if task["name"] == "Pin the tag of the image"]
        provide.append({"ansible.builtin.debug": {"msg": "runs {{ __vllm_runtime_shared.image_id }}"}})
        pinned = self.tasks([{"block": pin, "when": due}], tag, *arguments, **variables).assert_ok()
        return pinned, self.tasks(provide, tag, *arguments, **variables)


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


@pytest.mark.slow
def test_later_runs_use_the_image_of_the_first_pull(head: Head) -> None:
    pinned, _provided = head.run("--check")
    assert (pinned.changed_tasks(), head.pins.exists()) == ({"Load or pull the image on the head"}, False)
    first, provided = head.run()
    assert f"{TAG} is pinned to {OLD}." in " ".join(first.output.split())
    assert json.loads(head.pins.read_text(encoding="utf-8")) == {TAG: {"digest": OLD, "image_id": FIRST}}
    assert (head.pins.stat().st_mode & 0o777, f"runs {FIRST}" in provided.output) == (0o644, True)
    head.moves()
    # Another user of the host pulls the tag.
    head.image("images", FIRST, f"example.org/vllm@{OLD}", f"{TAG}@{OLD}")
    head.image("images", LATER, TAG, f"example.org/vllm@{NEW}", f"{TAG}@{NEW}")
    pinned, provided = head.run()
    assert (pinned.changed_tasks(), provided.changed_tasks()) == (set(), set())
    assert f"runs {FIRST}" in provided.output
    head.image("images", OWN, "own:1")
    _pinned, provided = head.run(tag="own:1")
    assert (f"runs {OWN}" in provided.output, head.plan("own:1")["runtime"]["image"]) == (True, f"sha256:{OWN}")
    # The first image is removed from the engine.
    head.lacks("images", FIRST)
    _pinned, provided = head.run()
    assert f"runs {FIRST}" in provided.assert_ok().output, "pulled by its digest"


@pytest.mark.slow
def test_an_update_pins_the_image_that_the_tag_means_now(head: Head) -> None:
    head.pins.parent.mkdir()
    head.pins.write_text(json.dumps({TAG: {"digest": OLD, "image_id": FIRST}}) + "\n", encoding="utf-8")
    head.image("images", FIRST, TAG, f"example.org/vllm@{OLD}", f"{TAG}@{OLD}")
    head.moves()
    checked, _provided = head.run("--check", vllm_runtime_image_update=True)
    assert checked.changed_tasks() == set()
    updated, provided = head.run(vllm_runtime_image_update=True)
    assert f"{TAG} is pinned to {NEW}." in " ".join(updated.output.split())
    assert (head.plan()["runtime"]["image"], f"runs {LATER}" in provided.output) == (f"{TAG}@{NEW}", True)
    again, provided = head.run(vllm_runtime_image_update=True)
    assert (again.changed_tasks(), provided.changed_tasks(), "is pinned to" in again.output) == (set(), set(), False)
