"""Roles are self-contained: each declares the plan, uses no private name of another, and passes the declared inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from repository import ROLES, ROOT, files, load_yaml, read, specs_of, tasks_of

from ansible_collections.gb10.cluster.plugins.filter import common
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import checks

#: Roles that run without a plan.
WITHOUT_PLAN = ("access", "common", "discover", "gateway", "gb10", "history", "reset", "rollback", "verify")


def tasks(*patterns: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the path and the data of each task, also those in blocks, by default of all roles."""
    return [(path, task.data) for path in files(*patterns or ("roles/*/tasks/*.yml",)) for task in tasks_of(read(path))]


def sources(role: str) -> Iterator[str]:
    return (path for path in files(f"roles/{role}/**/*.yml", f"roles/{role}/**/*.j2") if "/meta/" not in path)


def private_names(text: str, role: str) -> set[str]:
    """Return the private variables of other roles in a text: a role's begin with _ROLE_ or __ROLE_."""
    others = sorted((other for other in ROLES if other != role), key=len, reverse=True)
    named = re.findall(rf"(?<![\w.])__?(?:{'|'.join(others)})_\w+", text)
    return {name for name in named if not re.match(rf"__?{role}_", name)}


def test_no_role_uses_a_private_name_or_a_path_of_another() -> None:
    for role in ROLES:
        for path in sources(role):
            assert private_names(read(path), role) == set(), path
            assert not re.search(r"role_path\s*~?\s*'?/\.\.", read(path)), path


def unresolved(text: str, names: Iterable[str]) -> list[str]:
    """Return the paths on the controller that a text uses without resolving them."""
    return [
        name for name in names if re.search(rf"(?<!\w){name}\b(?! \| expanduser \| realpath)", re.sub(r"#.*", "", text))
    ]


@pytest.mark.parametrize("role", ROLES)
def test_a_relative_path_on_the_controller_starts_at_the_working_directory(role: str) -> None:
    """Ansible's modules and lookups resolve it from the folder of the playbook."""
    path = ROOT / f"roles/{role}/defaults/main.yml"
    defaults = (load_yaml(path.read_text(encoding="utf-8")) if path.is_file() else None) or {}
    names = [name for name, value in defaults.items() if "inventory_dir" in str(value)]
    others = [source for source in sources(role) if not source.endswith("defaults/main.yml")]
    assert {source: found for source in others if (found := unresolved(read(source), names))} == {}


def test_the_search_for_unresolved_paths_can_find() -> None:
    assert unresolved(
        "dest: '{{ a_file }}' # b_file\nsrc: '{{ c_file | expanduser | realpath }}'", ["a_file", "b_file", "c_file"]
    ) == ["a_file"]


def test_the_search_for_private_names_can_find() -> None:
    assert private_names("{{ __gb10_node.x + _vllm_serve_unit + __vllm_serve_x }}", "vllm_serve") == {"__gb10_node"}


def test_a_role_that_needs_the_plan_declares_it() -> None:
    for role in set(ROLES) - set(WITHOUT_PLAN):
        assert specs_of(role)["main"]["options"]["gb10_plan"]["required"] is True, role


def test_a_call_that_is_not_validated_passes_the_declared_inputs() -> None:
    """At run time, validation of internal calls would cost a task each."""
    declared = {role: specs_of(role) for role in ROLES}
    found = [
        (task[name], task.get("vars", {}))
        for _path, task in tasks()
        for name in ("ansible.builtin.include_role", "ansible.builtin.import_role")
        if task.get(name, {}).get("rolespec_validate") is False
    ]
    assert len(found) > 20
    for call, given in found:
        role = call["name"].removeprefix("gb10.cluster.")
        options = declared[role][call["tasks_from"]]["options"]
        required = {name for name, option in options.items() if option.get("required")}
        passed = {name for name in given if not name.startswith("_")}
        assert required <= passed <= set(options), f"{role}: {call['tasks_from']}"


def test_the_planner_knows_the_public_facts_of_roles() -> None:
    """Otherwise a second plan of a run would report them as misspelled variables."""
    every = {
        name
        for _path, task in tasks()
        for name in [task.get("register", "_"), *task.get("ansible.builtin.set_fact", {})]
    }
    found = {name for name in every if not name.startswith("_")}
    # The planner does not know the variables of these roles.
    assert {name for name in found if not name.startswith(("discover_", "verify_"))} == set(checks.FACTS)


#: The roles of site.yml in their order, which is also the order of a run.
SITE = (
    "qsfp_netplan",
    "peer_firewall",
    "host_guard",
    "flight_recorder",
    "vllm_build",
    "vllm_runtime",
    "model_store",
    "nccl_sm121_build",
    "vllm_patch",
    "ray_cluster",
    "vllm_serve",
    "vllm_watchdog",
    "monitoring",
    "vllm_fallback",
)


def test_site_runs_each_role_once_in_order_and_by_its_tag() -> None:
    """Ports are closed before a listener starts, and all files of a rank are changed before it starts."""
    imports = [
        (task["ansible.builtin.import_role"], task["tags"])
        for task in load_yaml(read("playbooks/steps/roles.yml"))
        if "tags" in task and "ansible.builtin.import_role" in task
    ]
    assert [(role["name"], tag) for role, tag in imports if "tasks_from" not in role] == [
        (f"gb10.cluster.{name}", name) for name in SITE
    ]


def handles_a_secret(task: Mapping[str, Any]) -> bool:
    """Return whether a task generates, reads or writes a token or a key."""
    read_from, written = task.get("ansible.builtin.slurp", {}), task.get("ansible.builtin.copy", {})
    named = f"{read_from.get('src')} {written if written.get('mode') == '0600' else ''}"
    return "lookup('ansible.builtin.password'" in str(task) or bool(re.search(r"token|webhook|\.key\b", named))


@pytest.mark.parametrize("path", files("roles/*/tasks/*.yml"))
def test_a_task_that_handles_a_secret_shows_nothing(path: str) -> None:
    found = [task for _path, task in tasks(path) if handles_a_secret(task)]
    assert [task["name"] for task in found if task.get("no_log") is not True] == []
    assert len(found) >= 3 or not path.endswith("/token.yml"), "the search finds nothing any more"


def test_no_request_to_a_node_goes_through_the_proxy_of_downloads() -> None:
    found = [
        (path, module["url"], module.get("use_proxy"))
        for path, task in tasks()
        for name in ("ansible.builtin.uri", "ansible.builtin.get_url")
        if (module := task.get(name)) and module["url"].startswith("http://")
    ]
    assert len(found) == 3
    assert [entry for entry in found if entry[2] is not False] == []


def test_a_play_takes_the_variables_of_downloads_without_a_secret() -> None:
    plays = [(path, play) for path in files("playbooks/*.yml") for play in load_yaml(read(path))]
    found = {path: play["environment"] for path, play in plays if "environment" in play}
    assert len(found) == 5
    assert set(found.values()) == {"{{ gb10_download_env | default({}) | gb10.cluster.downloads }}"}
    assert common.downloads({}) == {} and common.downloads({"https_proxy": "http://proxy"})
    with pytest.raises(ValueError, match=r"gb10_download_env\.https_proxy") as error:
        common.downloads({"https_proxy": "http://anna:hidden@proxy"})
    assert "hidden" not in str(error.value)


def test_an_archive_brings_no_owners_and_modes() -> None:
    """Until a mode is set at the end, others could open a file of mode 0666, which stays writable for them."""
    unpacked = [
        (path, task["ansible.builtin.unarchive"]) for path, task in tasks() if "ansible.builtin.unarchive" in task
    ]
    assert len(unpacked) == 5
    for path, options in unpacked:
        assert {"--no-same-owner", "--no-same-permissions"} <= set(options["extra_opts"]), path
        assert options["mode"].endswith("go-w"), path
