"""The service user cannot write paths that root reads, writes or runs: every path of the roles, and every parent
directory."""

from __future__ import annotations

from live_cluster import run_program
from repository import ROOT
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import table

PROGRAM = (ROOT / "tests/support/who_can_write.py").read_text(encoding="utf-8")
USER, HOME, STATE = "gb10", "/var/lib/gb10", "/var/lib/gb10-netplan"
#: The flight recorder's own: the user of its service writes them, and root reads them bounded, typed, without links.
RECORDED = ("/run/gb10-flight-recorder", "/var/lib/gb10-flight-recorder", "/var/lib/private/gb10-flight-recorder")
#: Every path that the collection creates (tests/unit/uninstall/test_table.py verifies that list), and the folders of
#: the system and of the user that it writes to. A node need not have all of them.
MADE = (
    *(
        place.path
        for places in (table.NODE, table.FIREWALL, table.NETWORK, table.STATE)
        for place in places
        if place.path not in RECORDED
    ),
    *("/etc/gb10", "/etc/netplan", "/etc/sysctl.d", "/etc/NetworkManager/conf.d"),
    *("/opt/gb10", "/run/gb10", "/srv/models/tiny", "/usr/local/lib", STATE),
)
#: The properties of a unit with paths: files that systemd reads as root, and programs.
PROPERTIES = "FragmentPath,DropInPaths,EnvironmentFiles,LoadCredential,WorkingDirectory,ExecStart,ExecStartPre,ExecStartPost,ExecStopPost,ExecReload"


def changeable(host: Host, paths: list[str]) -> dict[str, str]:
    """Return path -> reason for each path that a user other than root can change."""
    return dict(run_program(host, PROGRAM, USER, *paths))


def named_by_units(host: Host) -> list[str]:
    """Return every path in the collection's units."""
    units = host.check_output("systemctl list-unit-files --no-legend 'gb10-*' | cut -d' ' -f1").split()
    assert {"gb10-ray.service", "gb10-firewall.service"} <= set(units)
    shown = host.check_output(f"systemctl show --property={PROPERTIES} {' '.join(units)}")
    words = shown.replace("=", " ").replace(":", " ").replace(";", " ").replace('"', " ").split()
    paths = {word.removeprefix("!") for word in words if word.removeprefix("!").startswith("/")}
    # The services themselves write to the home directory and use it as working directory.
    return sorted(path for path in paths if path != HOME)


def test_nothing_of_roots_is_the_service_users_to_change(nodes: dict[str, Host]) -> None:
    for name, host in nodes.items():
        paths = [*MADE, *named_by_units(host)]
        assert {"/usr/bin/python3", "/etc/gb10/cluster.env", "/etc/gb10/ray.token"} & set(paths)
        assert changeable(host, paths) == {}, name


def test_the_look_at_a_host_can_find(head: Host) -> None:
    head.check_output(
        f"install --directory --owner={USER} /run/gb10-test && ln -s /run/gb10-test/x /run/gb10-link && touch "
        "/run/gb10-test/x"
    )
    try:
        assert set(changeable(head, ["/run/gb10-link"])) == {"/run/gb10-test"}
    finally:
        head.check_output("rm -r /run/gb10-test /run/gb10-link")


def test_the_service_users_folder_is_its_own_and_holds_nothing_of_roots(nodes: dict[str, Host]) -> None:
    for name, host in nodes.items():
        folder = host.file(HOME)
        assert (folder.user, folder.group, folder.mode) == (USER, USER, 0o700), name
        assert host.check_output(f"find {HOME} ! -user {USER}") == "", name
        state = host.file(STATE)
        assert (state.user, state.group, state.mode) == ("root", "root", 0o700), name
        # The ranks find Python's bytecode cache, so no start compiles again.
        assert host.check_output(f"find {HOME}/pycache -name 'vllm' -type d | head -1"), name


def test_no_process_of_a_unit_has_more_groups_than_its_users(nodes: dict[str, Host]) -> None:
    """Otherwise the group of a file would not be meaningful."""
    for host in nodes.values():
        assert host.check_output(f"id --groups --name {USER}") == USER
