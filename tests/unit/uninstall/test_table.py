"""Everything that the roles create on a node has a row in the table of removed items."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from repository import ROLES, files, load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_rollback, topology
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import units
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import table

ROOT = "/opt/gb10"
PLACES = (
    *(f"{ROOT}/{place.path}" for place in table.STORE),
    *(
        place.path
        for places in (table.NODE, table.HOST, table.FIREWALL, table.NETWORK, table.STATE)
        for place in places
    ),
    table.USERS.path,
)
UNITS = (*table.UNITS, table.FIREWALL_UNIT, "gb10-netplan-restore.service", "gb10-netplan-restore.timer")
#: Roles that write to the controller only.
ELSEWHERE = ("discover",)
PATH = re.compile(r"(?<![\w.}])/(?:etc|opt|run|usr|var)/[\w./-]*gb10[\w./*<>-]*")
UNIT = re.compile(r"(?<![\w/])gb10-[a-z-]+\.(?:service|timer)\b")
#: Paths in the code that no run leaves on a node's disk, with the reason.
NOT_LEFT = {
    "/etc/gb10": "a folder that goes when it is empty",
    "gb10-os-upgrade.service": "a transient unit",
    "/opt/gb10": "the same",
    "/opt/gb10/venv": "an example",
    "/run/gb10": "the lock of the running playbook, in memory",
    "/run/gb10-ray": "systemd removes it with the unit",
    "/run/gb10-vllm": "the same",
    "/var/lib/gb10": "the user's home, by its record",
    "/var/lib/gb10-gateway": "the same",
}


def covered(path: str) -> bool:
    """Return whether a place of the table is the path, or is above it, or matches its wildcard."""
    fixed = re.split(r"[*<]", path)[0]
    if any(path == place or path.startswith(f"{place}/") for place in PLACES):
        return True
    return fixed != path and not fixed.endswith("/") and any(place.startswith(fixed) for place in PLACES)


def documented(text: str) -> Iterator[str]:
    """Yield the paths and units in the tables of a README.md."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield from (
                name.rstrip("/")
                for name in re.findall(r"`([^`]+)`", line)
                if PATH.fullmatch(name) or UNIT.fullmatch(name)
            )


def missing(names: Iterator[str]) -> set[str]:
    left = {name.rstrip("./") for name in names}
    known = tuple(f"{path}/" for path in NOT_LEFT if path not in ("/etc/gb10", "/opt/gb10"))
    return {name for name in left if not (name in UNITS or covered(name) or name in NOT_LEFT or name.startswith(known))}


@pytest.mark.parametrize("role", [role for role in ROLES if role not in ELSEWHERE])
def test_every_documented_file_is_removed(role: str) -> None:
    assert missing(documented(read(f"roles/{role}/README.md"))) == set()


def test_the_readmes_have_files() -> None:
    found = {name for role in ROLES if role not in ELSEWHERE for name in documented(read(f"roles/{role}/README.md"))}
    assert {
        "/etc/gb10/cluster.env",
        "/etc/gb10/overrides.d/<role>.json",
        "/opt/gb10/runtime/current",
        "gb10-firewall.service",
    } <= found


def test_every_path_in_the_code_is_removed() -> None:
    roles = (f"roles/{role}/*/**/*.yml" for role in ROLES if role not in ELSEWHERE)
    for path in files("plugins/**/*.py", *roles, "roles/*/templates/*"):
        text = read(path)
        assert missing(iter([*PATH.findall(text), *UNIT.findall(text)])) == set(), path


@pytest.mark.parametrize(
    "name",
    [
        "/etc/gb10/new.env",
        "/opt/gb10/new/<name>",
        "/usr/local/lib/gb10-new.py",
        "/var/lib/gb10-new",
        "gb10-new.service",
    ],
)
def test_a_new_file_without_a_removal_is_found(name: str) -> None:
    assert missing(documented(f"| `{name}` | new |")) == {name}
    assert missing(iter(PATH.findall(f"path: {name}") or UNIT.findall(f"unit: {name}")))


def test_every_program_is_removed() -> None:
    assert {paths.program(name) for name in paths.PROGRAMS} <= {
        place.path for place in table.NODE if place.kind == "file"
    }


def test_the_folders_below_the_installation_folder_are_all() -> None:
    text = "".join(read(path) for path in files("roles/*/vars/*.yml", "roles/*/tasks/*.yml"))
    assert {name.split("/")[0] for name in re.findall(r"gb10_plan\.root \}\}/([\w.-]+)", text)} <= {
        place.path for place in table.STORE
    }


def test_the_network_is_where_the_role_writes() -> None:
    assert {topology.SYSCTL_FILE, topology.NETWORK_MANAGER_FILE} <= {place.path for place in table.NETWORK}
    assert f"{paths.NETWORK_STATE}/original.json" == io_rollback.ORIGINAL
    assert table.NETWORK_STATE == io_rollback.STATE
    assert {io_rollback.ORIGINAL, io_rollback.PENDING} <= {place.path for place in table.NETWORK}
    assert io_rollback.APPLIED in {place.path for place in table.STATE}


def test_a_models_copy_is_removed_with_its_folder() -> None:
    assert units.FILES["folder"] in {place.path for place in table.NODE}


def test_a_created_user_is_recorded_where_the_core_reads() -> None:
    assert paths.OF_ROLES["users"] == paths.USERS == table.USERS.path
    record, created = load_yaml(read("roles/common/tasks/user.yml"))[:2]
    assert (
        record["gb10.cluster.root_files"]["files"][0]["path"]
        == "{{ 'users' | gb10.cluster.node_path }}/{{ gb10_plan.user }}"
    )
    assert "ansible.builtin.user" in created, "a run that is killed in between must not leave a user without a record"
