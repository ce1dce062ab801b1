"""The removal on a node below a temporary folder, with a real `rm` and stand-ins for systemd, the engine and the user
database."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan as os_update_plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import Kernel, State, Trial
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import io_node, plan, table
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.plan import Found, Step

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to the service user")
SERVICE = 23456


class Host:
    """A node with everything installed, below a folder. ``asked`` are the commands of the stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[list[str]] = []
        self.running = ["gb10-vllm.service", "gb10-ray.service"]
        self.queries = {"run-u7.service": "gb10", "run-u8.service": "other"}
        self.users = {"gb10": SERVICE}
        self.containers = {"docker": ["gb10-ray", "mine"], "podman": []}
        self.tags = {"docker": ["gb10.cluster/runtime:abc", "mine:latest"], "podman": []}
        self.fails: tuple[str, ...] = ()

    def path(self, path: str) -> Path:
        return Path(f"{self.folder}{path}")

    def make(self, path: str, text: str = "x", owner: int = 0) -> Path:
        """Create a file, or a folder for a path that ends with /."""
        found = self.path(path)
        found.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            found.mkdir(exist_ok=True)
        else:
            found.write_text(text, encoding="utf-8")
        os.chown(found, owner, owner)
        return found

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[0] in ("rm", "du"):
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr
        self.asked.append(argv)
        if self.fails and tuple(argv[: len(self.fails)]) == self.fails:
            return 8, "", "first line\nit is in use"
        return self._answer(argv)

    def _answer(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[0] == "systemctl":
            return self._systemctl(argv)
        if argv[0] == "userdel":
            del self.users[argv[1]]
        return (1 if argv[0] == "nft" else 0), self._engine(argv) if argv[0] in self.containers else "", ""

    def _systemctl(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[1] == "list-units":
            states = dict.fromkeys(self.running, "active") | {"gb10-model-fetch.service": "failed"}
            listed = {"gb10-*": states, "run-*.service": dict.fromkeys(self.queries, "active")}.get(argv[-1], {})
            return 0, "".join(f"{name} loaded {state} running A unit\n" for name, state in listed.items()), ""
        if argv[1] == "show":
            return 0, f"{self.queries[argv[-1]]}\n", ""
        if argv[1] == "stop":
            self.running = [name for name in self.running if name != argv[2]]
            # The query has ended meanwhile.
            return (5, "", "not loaded") if self.queries.pop(argv[2], "") else (0, "", "")
        return 0, "", ""

    def _engine(self, argv: list[str]) -> str:
        listed = self.tags if argv[1] == "image" else self.containers
        if argv[1] in ("rm", "rmi"):
            (self.containers if argv[1] == "rm" else self.tags)[argv[0]].remove(argv[-1])
        elif not any("label" in word for word in argv):
            return "".join(f"{name}\n" for name in listed[argv[0]])
        return ""

    def steps(self, models: bool = False, user: str = "gb10") -> list[Step]:
        return plan.decide(io_node.read(self.run, f"{self.folder}/opt/gb10", user), models)

    def reset(self, models: bool = False) -> list[Step]:
        """Remove everything, and return the steps that are left."""
        io_node.apply(self.run, [step for step in self.steps(models) if step.verb in ("stop", "remove", "empty")])
        return self.steps(models)

    def names(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if not path.is_dir() or path.is_symlink()
        )


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    node = Host(tmp_path / "node")
    node.folder.mkdir()
    monkeypatch.setattr(paths, "home", lambda user: f"{node.folder}/var/lib/{user}")
    moved: list[tuple[Any, str]] = [(paths, "UNIT_FOLDER"), (table, "NETWORK_STATE"), (table, "RUNTIME_RECORD")]
    for module, name in (*moved, (io_nftables, "RULES"), (io_nftables, "UNITS")):
        monkeypatch.setattr(module, name, f"{node.folder}{getattr(module, name)}")
    for name in ("NODE", "FIREWALL", "NETWORK", "STATE"):
        places = [dataclasses.replace(place, path=f"{node.folder}{place.path}") for place in getattr(table, name)]
        monkeypatch.setattr(table, name, places)
    monkeypatch.setattr(table, "FOLDERS", {f"{node.folder}{path}": content for path, content in table.FOLDERS.items()})
    monkeypatch.setattr(table, "USERS", dataclasses.replace(table.USERS, path=f"{node.folder}{table.USERS.path}"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: node.users[name])
    return node


def install(host: Host) -> None:
    """Create every place of the table, with a file in each folder."""
    for place in table.STORE:
        host.make(f"/opt/gb10/{place.path}/x/y")
    for place in (*table.NODE, *table.FIREWALL):
        host.make(place.path.removeprefix(str(host.folder)) + ("/x" if place.kind == "tree" else ""))
    host.make("/etc/gb10/users.d/gb10", "")
    host.make("/var/lib/gb10/", owner=SERVICE)
    host.make("/var/lib/gb10/cache/model", owner=SERVICE)
    shutil.rmtree(host.path("/etc/gb10/overrides.d"))
    host.make(
        "/etc/gb10/overrides.d/vllm_runtime.json",
        json.dumps({"versions": {"vllm": "0.32.0"}, "files": {"vllm:tag": "0a"}}),
    )


def test_a_fresh_node_has_nothing(host: Host) -> None:
    host.users, host.running = {}, []
    assert host.steps() == []
    assert not any(argv[0] in ("docker", "podman") for argv in host.asked), "an engine would create its folders"


def test_everything_is_removed_and_models_stay(host: Host) -> None:
    install(host)
    host.make("/etc/gb10/.ray.token.k1ll3d")
    host.make("/etc/hosts")
    left = host.reset()
    assert host.names() == ["etc/hosts", "opt/gb10/models/x/y"]
    assert [(step.verb, step.name) for step in left] == [("keep", f"{host.folder}/opt/gb10/models")]
    kept = (host.queries, host.running, host.users, host.containers["docker"], host.tags["docker"])
    assert kept == ({"run-u8.service": "other"}, [], {}, ["mine"], ["mine:latest"])
    assert not host.path("/etc/gb10").exists()
    assert not host.path("/etc/systemd/system/gb10-ray.service.requires").exists()
    changes = (["systemctl", "stop"], ["userdel", "gb10"], ["systemctl", "reset-failed"])
    places = [[argv[:2] for argv in host.asked].index(command) for command in changes]
    assert places == sorted(places)
    assert (host.reset(models=True), host.names(), host.path("/opt/gb10").exists()) == ([], ["etc/hosts"], False)


def test_any_interruption_is_completed_by_the_next_run(host: Host) -> None:
    """After each step, the next run has exactly the steps that are left."""
    install(host)
    due = [step for step in host.steps(models=True) if step.verb != "keep"]
    while due:
        io_node.apply(host.run, due[:1])
        left = [step for step in host.steps(models=True) if step.verb != "keep"]
        assert left == due[1:], due[0]
        due = left
    assert (host.names(), host.users, host.containers["docker"], host.tags["docker"]) == (
        [],
        {},
        ["mine"],
        ["mine:latest"],
    )


@pytest.mark.parametrize("removed", ["user", "units", "runtime", "configuration"])
def test_parts_that_an_administrator_removed(host: Host, removed: str) -> None:
    install(host)
    if removed == "user":
        host.users.clear()
    elif removed == "units":
        for path in host.path("/etc/systemd/system").glob("gb10-*.service"):
            path.unlink()
    else:
        shutil.rmtree(host.path("/opt/gb10/runtime" if removed == "runtime" else "/etc/gb10"))
    left = host.reset(models=True)
    if removed == "configuration":
        # The record of the user is lost, so the user stays, and its home.
        assert [(step.verb, step.name) for step in left] == [("keep", "gb10")]
        assert host.names() == ["var/lib/gb10/cache/model"]
    else:
        assert (left, host.names()) == ([], [])


def test_links_in_the_users_home_are_not_followed(host: Host) -> None:
    install(host)
    outside = host.make("/srv/data/file")
    host.path("/var/lib/gb10/link").symlink_to(outside.parent)
    host.path("/var/lib/gb10/cache/up").symlink_to("../../../..")
    host.reset(models=True)
    assert host.names() == ["srv/data/file"]


def test_a_link_of_an_administrator_stays_with_its_target(host: Host) -> None:
    host.make("/data/models/x")
    host.make("/data/gb10/nccl/x")
    host.path("/opt").mkdir()
    host.path("/opt/gb10").symlink_to("../data/gb10")
    host.path("/data/gb10/models").symlink_to("../models")
    left = host.reset(models=True)
    assert host.names() == ["data/gb10/models", "data/models/x", "opt/gb10"]
    assert [(step.verb, step.name, step.note) for step in left if step.kind == "tree"] == [
        ("keep", f"{host.folder}/data/gb10/models", "it is a link to ../models")
    ]


def test_a_folder_that_others_can_change_stays(host: Host) -> None:
    host.make("/opt/gb10/runtime/x")
    os.chown(host.path("/opt"), SERVICE, SERVICE)
    (step,) = (step for step in host.reset() if step.name.endswith("/opt/gb10"))
    assert (step.verb, f"{host.folder}/opt belongs to user {SERVICE}" in step.note) == ("keep", True)
    assert host.path("/opt/gb10/runtime/x").exists()


def test_a_mount_point_is_emptied(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.make("/opt/gb10/runtime/.transfer/x")
    host.make("/opt/gb10/nccl/x")
    monkeypatch.setattr(plan, "mounts", lambda _text: [f"{host.folder}/opt/gb10/runtime"])
    host.reset()
    assert host.path("/opt/gb10/runtime").is_dir()
    assert host.names() == []


def test_drop_ins_of_an_administrator_stay(host: Host) -> None:
    install(host)
    host.make("/etc/systemd/system/gb10-vllm.service.d/override.conf")
    host.make("/etc/gb10/notes.txt")
    kept = {step.name.removeprefix(str(host.folder)): step.note for step in host.reset(models=True)}
    assert kept == {
        "/etc/systemd/system/gb10-vllm.service.d": "this collection did not create override.conf",
        "/etc/gb10": "this collection did not create notes.txt",
    }
    assert host.names() == ["etc/gb10/notes.txt", "etc/systemd/system/gb10-vllm.service.d/override.conf"]


def test_a_user_with_processes_stops_the_run_before_its_home_and_a_silent_engine_is_reported(host: Host) -> None:
    install(host)
    host.fails = ("userdel",)
    with pytest.raises(io_node.UninstallError, match="userdel gb10 failed: it is in use"):
        host.reset()
    assert host.path("/var/lib/gb10/cache/model").exists()
    host.fails = ()
    assert [step.verb for step in host.reset()] == ["keep"]
    host.make("/opt/gb10/images/x")
    host.fails = ("docker",)
    assert "containers and images of docker" in [step.name for step in host.steps() if step.verb == "keep"]


@pytest.mark.parametrize(
    ("running", "tried", "expected"),
    [("6.17.0-1", "6.17.0-2", "6.17.0-2"), ("6.17.0-2", "6.17.0-2", ""), ("6.17.0-1", "", ""), ("6.17.0-1", None, "")],
    ids=["it did not start", "it runs", "none was tried", "no update"],
)
def test_a_kernel_that_did_not_start_is_known_from_the_update(
    host: Host, monkeypatch: pytest.MonkeyPatch, running: str, tried: str | None, expected: str
) -> None:
    kernels, trial = (Kernel("6.17.0-2"), Kernel("6.17.0-1")), None if tried is None else Trial("6.17.0-1", tried)
    monkeypatch.setattr(os_update_plan, "BOOT_FILE", str(host.path("/boot.cfg")))
    monkeypatch.setattr(io_state, "read", lambda _run, **_options: State(running, kernels=kernels, trial=trial))
    assert io_node.read(host.run, f"{host.folder}/opt/gb10", "gb10").hanging == "", "without the update's file"
    host.make("/boot.cfg")
    assert io_node.read(host.run, f"{host.folder}/opt/gb10", "gb10").hanging == expected


def test_sizes_are_those_of_the_disk(host: Host) -> None:
    host.make("/opt/gb10/runtime/big", "x" * 100_000)
    assert io_node.sizes(host.run, host.steps())[f"{host.folder}/opt/gb10/runtime"] >= 100_000
    assert io_node.sizes(host.run, []) == {}


def test_the_type_of_a_path_is_its_own(host: Host) -> None:
    host.make("/x/file")
    host.path("/x/link").symlink_to(host.path("/x"))
    names = ("/x/link", "/x", "/x/file", "/x/file/none", "/none")
    found = [io_node._found(str(host.path(name))) for name in names]
    target = str(host.path("/x"))
    assert found == [
        Found("link", 0, target),
        Found("folder", 0, names=["file", "link"]),
        Found("file", 0),
        None,
        None,
    ]
