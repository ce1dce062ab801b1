"""Comparisons with the node's files, services and API key that the run has read: the core, its reader, and the
actions."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from decisions import task
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.action import root_files, systemd_unit_info, vllm_api_key, vllm_host_ip
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import host_ip
from ansible_collections.gb10.cluster.plugins.module_utils.launch import installed, io_installed
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import SERVICE_PROPERTIES

NAME, ADDRESS, KEY = "gb10-vllm.service", "10.110.0.1", "0123456789abcdef"
UNIT = {"text": "text\n", "inputs": "abc"}
SERVICE = {"inputs": "abc", "enabled": True, "active": "active"}
RANKS = {"PYTHONPATH": "/x", "NCCL_IB_HCA": "mlx5_0"}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def known(**changes: Any) -> dict[str, Any]:
    """Return the facts of a node that has the unit, a program, and the address on its interface."""
    facts = {
        "files": {f"/etc/systemd/system/{NAME}": sha256("text\n"), "/a/program": sha256("1\n")},
        "folders": ["/a"],
        "services": {NAME: SERVICE},
        "interfaces": {"port1": {"addresses": [f"{ADDRESS}/24"]}},
    }
    return {**facts, **changes}


@pytest.mark.parametrize(
    ("folders", "files", "has"),
    [
        (["/a"], {"/a/program": "1\n"}, True),
        (["/b"], {}, False),
        ([], {"/a/program": "2\n"}, False),
        ([], {"/a/other": "1\n"}, False),
        ([], {"/a/none": None}, False),
    ],
    ids=["equal", "folder", "text", "file", "a file that must not exist"],
)
def test_files_and_folders_are_installed_or_not(folders: list[str], files: dict[str, str | None], has: bool) -> None:
    assert installed.has(known(), folders, files) is has


class Node:
    """The module behind an action, which counts its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: Any, arguments: dict[str, Any]) -> None:
        self.calls: list[dict[str, Any]] = []
        self.action = object.__new__(action.ActionModule)
        self.action._task = task(arguments)
        monkeypatch.setattr(ActionBase, "run", lambda *_arguments: {})
        monkeypatch.setattr(self.action, "_execute_module", self.execute, raising=False)

    def execute(self, module_args: dict[str, Any], task_vars: Any, **_name: Any) -> dict[str, Any]:
        """Return a change by the module."""
        assert task_vars == {}
        self.calls.append(module_args)
        return {"changed": True}

    def run(self) -> dict[str, Any]:
        """Run the action."""
        result: dict[str, Any] = self.action.run(None, {})
        return result


def files(text: str) -> dict[str, Any]:
    return {"directories": ["/a"], "files": [{"path": "/a/program", "content": text}]}


@pytest.mark.parametrize(
    ("facts", "text", "connects"), [(known(), "1\n", False), (known(), "2\n", True), ({}, "1\n", True)]
)
def test_files_are_compared_without_a_connection(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], text: str, connects: bool
) -> None:
    node = Node(monkeypatch, root_files, {**files(text), "known": facts})
    assert node.run()["changed"] is connects
    assert node.calls == ([files(text)] if connects else [])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (False, False, False)),
        ({"files": {}}, (True, False, False)),
        ({"services": {NAME: {**SERVICE, "inputs": "old"}}}, (False, True, True)),
        ({"services": {NAME: {**SERVICE, "active": "failed"}}}, (False, False, True)),
        ({"services": {NAME: {**SERVICE, "active": "inactive"}}}, (False, False, True)),
        ({"services": {NAME: {**SERVICE, "active": "activating"}}}, (False, False, False)),
        ({"services": {NAME: {**SERVICE, "enabled": False}}}, (False, False, True)),
    ],
    ids=["equal", "unit", "inputs", "failed", "inactive", "activating", "disabled"],
)
def test_a_service_is_compared_without_a_connection(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: tuple[bool, ...]
) -> None:
    node = Node(monkeypatch, systemd_unit_info, {"name": NAME, "unit": UNIT, "known": known(**changes)})
    result = node.run()
    assert tuple(result[key] for key in ("differs", "restart_needed", "start_needed")) == expected
    assert (result["changed"], node.calls) == (False, [])


def test_the_action_and_the_module_return_the_same_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, "systemctl", f"printf '%s=0\\n' {' '.join(SERVICE_PROPERTIES)}")
    module = run_module("systemd_unit_info", {"name": NAME, "unit": UNIT}, tmp_path)
    action = Node(monkeypatch, systemd_unit_info, {"name": NAME, "unit": UNIT, "known": known()}).run()
    assert action.keys() == module.keys() - {"invocation"}


@pytest.mark.parametrize(
    "arguments", [{"known": {}, "unit": UNIT}, {"known": known()}, {"known": known(services={}), "unit": UNIT}]
)
def test_an_unknown_service_is_read(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]) -> None:
    node = Node(monkeypatch, systemd_unit_info, {"name": NAME, "log": True, **arguments})
    assert node.run() == {"changed": True}
    assert [call["log"] for call in node.calls] == [True] and "known" not in node.calls[0]


@pytest.mark.parametrize(
    ("changes", "connects"),
    [({}, False), ({"interfaces": {"port1": {"addresses": []}}}, True), ({"files": {}}, True)],
    ids=["equal", "no address", "no file"],
)
def test_the_rank_environment_is_compared_without_a_connection(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], connects: bool
) -> None:
    node_address = {"node": "s1", "address": ADDRESS, "interface": "port1"}
    arguments = {**node_address, "nodes": {"s1": ADDRESS}, "environment": RANKS}
    facts = known(files={"/etc/gb10/cluster.env": sha256(host_ip.text(RANKS, ADDRESS))}) | changes
    node = Node(monkeypatch, vllm_host_ip, {**arguments, "known": facts})
    assert node.run()["changed"] is connects
    assert node.calls == ([arguments] if connects else [])


def api_files(folder: Path, key: str, ranks: dict[str, str]) -> tuple[str, str]:
    """Write the files of an API key with the module, and return their paths."""
    key_file, environment_file = str(folder / "api.key"), str(folder / "api.env")
    given = {"key": key, "environment": ranks, "key_file": key_file, "environment_file": environment_file}
    assert run_module("vllm_api_key", given)["changed"]
    return key_file, environment_file


@pytest.mark.parametrize("key", [KEY, 'a$"%-a-quoted-key'], ids=["plain", "quoted"])
def test_a_known_key_has_the_modules_version(tmp_path: Path, key: str) -> None:
    key_file, environment_file = api_files(tmp_path, key, RANKS)
    found = io_installed._api_key(key_file, environment_file)
    version = installed.key_version({"api_key": found}, RANKS)
    assert version in ("", str(Path(key_file).stat().st_mtime_ns))
    assert bool(version) is (key == KEY)
    assert key not in str(found) and installed.key_version({"api_key": found}, {**RANKS, "PYTHONPATH": "/y"}) == ""


@pytest.mark.parametrize("change", ["chmod", "other key", "unlink"])
def test_changed_files_of_a_key_are_unknown(tmp_path: Path, change: str) -> None:
    key_file, environment_file = api_files(tmp_path, KEY, RANKS)
    if change == "chmod":
        Path(key_file).chmod(0o644)
    elif change == "unlink":
        Path(environment_file).unlink()
    else:
        Path(key_file).write_text("another-key-of-this-head\n", encoding="utf-8")
    assert installed.key_version({"api_key": io_installed._api_key(key_file, environment_file)}, RANKS) == ""


@pytest.mark.parametrize(
    ("arguments", "connects"),
    [
        ({}, False),
        ({"key": KEY}, True),
        ({"state": "absent"}, True),
        ({"key_file": "/x"}, True),
        ({"environment": {"PYTHONPATH": "/y"}}, True),
    ],
    ids=["generated", "given", "absent", "elsewhere", "other ranks"],
)
def test_a_generated_key_is_compared_without_a_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: dict[str, Any], connects: bool
) -> None:
    facts = known(api_key=io_installed._api_key(*api_files(tmp_path, KEY, RANKS)))
    node = Node(monkeypatch, vllm_api_key, {"environment": RANKS, **arguments, "known": facts})
    assert node.run()["changed"] is connects
    assert len(node.calls) == connects


@pytest.mark.skipif(os.geteuid() != 0, reason="the files are root's")
def test_only_files_that_root_alone_can_change_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "gb10"
    top.mkdir(mode=0o755)
    for name, mode in {"open": 0o666, "secret": 0o600, "plain": 0o644}.items():
        (top / name).write_text("x", encoding="utf-8")
        (top / name).chmod(mode)
    for name, mode in {"__pycache__": 0o755, "writable": 0o777, "below": 0o755}.items():
        (top / name).mkdir()
        (top / name).chmod(mode)
        (top / name / "file").write_text("x", encoding="utf-8")
        (top / name / "file").chmod(0o644)
    (top / "link").symlink_to(top / "plain")
    monkeypatch.setattr(io_installed, "_ROOTS", (str(top),))
    monkeypatch.setattr(paths, "API_KEY", (str(top / "secret"), str(top / "none")))
    facts = io_installed.read(lambda _argv: (0, "", ""), ())
    assert facts["files"] == {str(top / "plain"): sha256("x"), str(top / "below/file"): sha256("x")}
    assert io_installed.read(lambda _argv: (1, "", "no systemd"), (NAME,))["services"] == {}
    assert (facts["folders"], facts["services"], facts["api_key"]) == ([str(top), str(top / "below")], {}, {})


def test_the_placeholder_needs_no_quotes() -> None:
    assert systemd.environment_file({"A": installed.KEY}).strip().endswith(f"A={installed.KEY}")
