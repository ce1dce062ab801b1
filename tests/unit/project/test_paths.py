"""Root never reads, writes or runs files that the service user can write.

Tests the paths in the code and the program that checks a host.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rendered_units import SERVICES, planned
from repository import files, load_yaml, read, tasks_of, tracked_files
from typed_plans import fact
from who_can_write import changeable

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_rollback
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement

#: Matches the service user's folder. NAMED lists the only files that may contain it, and their reasons.
HOME = re.compile(
    r"/var/lib/(gb10(?![\w-])|{{ *gb10_(plan\.|service_)user|' *~ *gb10_(plan\.|service_)user|{plan\['user'\]}|{user})"
)
NAMED = {
    "plugins/module_utils/common/paths.py": "its definition",
    "roles/qsfp_netplan/README.md": "documentation",
    "roles/vllm_runtime/README.md": "documentation",
}

IMAGE = "vllm/vllm-openai@sha256:" + "1" * 64


def naming() -> set[str]:
    return {
        path
        for path in tracked_files()
        if path.startswith(("plugins/", "roles/")) and not path.endswith(".lock") and HOME.search(read(path))
    }


def test_few_name_the_service_users_folder_and_root_keeps_nothing_there() -> None:
    assert naming() <= set(NAMED)


def test_the_search_for_its_name_finds_it_alone() -> None:
    own = ["gb10/netplan", "{{ gb10_plan.user }}/x", "' ~ gb10_service_user", "{user}"]
    assert all(HOME.search(f"/var/lib/{text}") for text in own)
    assert not any(HOME.search(f"/var/lib/{text}") for text in ("gb10-netplan", "gb10-lab", "dpkg"))


def test_roots_state_is_not_below_it() -> None:
    assert paths.NETWORK_STATE == io_rollback.STATE
    assert not f"{io_rollback.STATE}/".startswith(f"{paths.home('gb10')}/")


@pytest.mark.parametrize(
    ("role", "name", "path"),
    [
        ("ray_cluster", "_ray_cluster_unit", paths.RAY_UNIT),
        ("vllm_watchdog", "_vllm_watchdog_unit", paths.WATCHDOG_UNIT),
        ("vllm_serve", "_vllm_serve_unit", paths.VLLM_UNIT),
    ],
)
def test_a_unit_has_the_name_that_the_core_knows(role: str, name: str, path: str) -> None:
    assert load_yaml(read(f"roles/{role}/vars/main.yml"))[name] == path


def test_the_folder_is_the_users_alone() -> None:
    tasks = load_yaml(read("roles/common/tasks/user.yml"))
    (made,) = (task["ansible.builtin.file"] for task in tasks if "ansible.builtin.file" in task)
    assert (made["path"], made["owner"], made["mode"]) == ("{{ gb10_plan.home }}", "{{ gb10_plan.user }}", "0700")


@pytest.mark.parametrize("unit", SERVICES)
def test_a_unit_of_root_touches_nothing_in_it_as_root(unit: str) -> None:
    """A container's unit runs as root, because the engine does."""
    plan = fact({"runtime": {"kind": "container", "image": IMAGE, "base": IMAGE, "name": IMAGE}})
    touching = [
        line
        for line in planned(plan, unit)["unit"]["text"].splitlines()
        if re.match(r"Exec(?!Start=)\w+=", line) and plan["home"] in line
    ]
    assert len(touching) == (unit == "gb10-ray")
    for line in touching:
        assert line.startswith("ExecStartPre=/usr/bin/setpriv --reuid=gb10 --regid=gb10 --clear-groups ")


# --- the program of tests/integration/model/test_who_can_write.py ---

pytestmark_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
SERVICE = {23456}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "opt/bin").mkdir(parents=True)
    (tmp_path / "opt/bin/python").write_text("", encoding="utf-8")
    (tmp_path / "opt/current").symlink_to("bin")
    (tmp_path / "opt/nowhere").symlink_to("/nonexistent")
    return tmp_path


@pytestmark_root
def test_what_is_roots_alone_is_found_to_be(tree: Path) -> None:
    assert changeable([str(tree / "opt"), str(tree / "missing")], SERVICE) == {}
    os.chown(tree / "opt/bin", 0, 23456)
    assert changeable([str(tree / "opt")], SERVICE) == {}, "a group's read access is allowed"


@pytestmark_root
@pytest.mark.parametrize("what", ["file", "folder", "parent", "group", "others", "sticky", "target", "target's folder"])
def test_what_somebody_else_can_change_is_found(tree: Path, what: str) -> None:
    found = {
        "file": "opt/bin/python",
        "folder": "opt/bin",
        "parent": "",
        "group": "opt/bin",
        "others": "opt/bin/python",
        "sticky": "opt/bin",
    }
    outside = tree / "outside/library"
    outside.parent.mkdir()
    outside.touch()
    (tree / "opt/library").symlink_to(outside)
    place = {"target": outside, "target's folder": outside.parent}.get(what) or tree / found[what]
    if what in ("group", "sticky"):
        os.chown(place, 0, 23456)
        place.chmod(0o1775 if what == "sticky" else 0o775)
    elif what == "others":
        place.chmod(0o602)
    else:
        os.chown(place, 12345, 12345)
    assert list(changeable([str(tree / "opt")], SERVICE)) == [str(place)]


# --- read-only queries ---


def test_a_question_runs_as_the_ranks_do_and_without_network() -> None:
    words = confinement.query("gb10", ["/data"])
    assert words[:6] == ["systemd-run", "--wait", "--pipe", "--quiet", "--collect", "--uid=gb10"]
    confined = set(confinement.properties("gb10", ["/data"]))
    assert {
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "ReadWritePaths=/var/lib/gb10 /data",
    } <= confined
    asked = {word.removeprefix("--property=") for word in words[6:]}
    # A query must not delete a rank's semaphores.
    assert asked == (confined - {"RemoveIPC=yes"}) | {"PrivateNetwork=yes", "RuntimeMaxSec=600"}


def test_root_runs_no_interpreter_of_a_runtime() -> None:
    """A package's code runs only as the service user (vllm_runtime/verify.yml) or in a confined unit."""
    for task in (task for path in files("roles/*/tasks/*.yml") for task in tasks_of(read(path))):
        argv = str(task.data.get("ansible.builtin.command", {}))
        # uv only takes the interpreter's path.
        if re.search(r"/bin/python|_model_store_python", argv) and "/bin/uv'" not in argv:
            assert re.search(r"_vllm_runtime_query|systemd-run", argv), task.data["name"]
