"""netplan documents: the fabric's own, foreign ones, and the effect of a change on files and devices."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from decisions import task
from repository import load_yaml, read
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.action import netplan_confirm
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_netplan, io_rollback, netplan, topology
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import report as fabric_report
from ansible_collections.gb10.cluster.plugins.modules import netplan_apply

FOREIGN = {
    "network": {
        "version": 2,
        "renderer": "NetworkManager",
        "ethernets": {"enp1s0f1np1": {"addresses": ["192.168.100.11/24"]}, "enP7s7": {"dhcp4": True}},
        "wifis": {"wlP9s9": {"access-points": {"home": {"password": "p"}}}},
    }
}


@pytest.mark.parametrize(("renderer", "ignores"), [("networkd", True), ("NetworkManager", False)])
def test_document(renderer: str, ignores: bool) -> None:
    network = netplan.document({"enp1s0f1np1": "10.110.0.1/24"}, 9000, renderer)["network"]
    (definition,) = network["ethernets"].values()
    assert (definition["renderer"], "ignore-carrier" in definition) == (renderer, ignores)
    assert "renderer" not in network, "the other interfaces keep their renderer"
    # Otherwise NetworkManager would activate the last used profile, which may be the user's.
    passthrough = {"passthrough": {"connection.autoconnect-priority": "999"}}
    assert definition.get("networkmanager") == (passthrough if renderer == "NetworkManager" else None)


def test_network_manager_keeps_addresses_without_carrier() -> None:
    text = netplan.network_manager_configuration(["enp1s0f1np1", "enP2p1s0f1np1"])
    assert text == (
        "[device-gb10-qsfp]\nmatch-device=interface-name:enp1s0f1np1,interface-name:enP2p1s0f1np1\nignore-carrier=yes\n"
    )


def test_each_device_answers_arp_for_itself_alone() -> None:
    files = netplan.files(["enp1s0f0np0"], "networkd")
    assert files["/etc/sysctl.d/60-gb10-qsfp.conf"] == (
        "net.ipv4.conf.enp1s0f0np0.arp_ignore = 1\nnet.ipv4.conf.enp1s0f0np0.arp_announce = 2\n"
        "net.ipv6.conf.enp1s0f0np0.disable_ipv6 = 1\n"
        # The other PCIe function receives the same requests, even if only one is used.
        "net.ipv4.conf.enP2p1s0f0np0.arp_ignore = 1\nnet.ipv4.conf.enP2p1s0f0np0.arp_announce = 2\n"
    )
    assert netplan.sysctl_configuration(["mgbe0_0"]).count("\n") == 3
    assert files["/etc/NetworkManager/conf.d/60-gb10-qsfp.conf"] == ""
    assert netplan.files(["mgbe0_0"], "NetworkManager")["/etc/NetworkManager/conf.d/60-gb10-qsfp.conf"]


def test_our_interfaces_are_taken_out_and_all_else_stays() -> None:
    rest, taken = netplan.without(FOREIGN, ["enp1s0f1np1", "enP2p1s0f1np1"])
    assert taken == ["enp1s0f1np1"]
    assert rest == {"network": {**FOREIGN["network"], "ethernets": {"enP7s7": {"dhcp4": True}}}}
    assert "enp1s0f1np1" in FOREIGN["network"]["ethernets"], "the input is left alone"  # type: ignore[operator]


def test_a_file_of_ours_alone_keeps_its_frame() -> None:
    document = {"network": {"version": 2, "ethernets": {"enp1s0f1np1": {}}}}
    assert netplan.without(document, ["enp1s0f1np1"]) == ({"network": {"version": 2}}, ["enp1s0f1np1"])


@pytest.mark.parametrize(
    "document",
    [None, [], "text", {}, {"network": None}, {"network": {"ethernets": None}}, {"network": {"ethernets": []}}],
)
def test_what_has_no_interfaces_is_left_alone(document: Any) -> None:
    assert netplan.without(document, ["enp1s0f1np1"]) == (document, [])


class Host:
    """A simulated host with devices, `ip`, netplan and systemctl. Its files are real, below a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.links: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.netplan_status = 0
        for name in ("STATE", "FORMER", "PENDING", "LAST", "ORIGINAL", "PROGRAM", "UNITS", "APPLIED"):
            monkeypatch.setattr(io_rollback, name, f"{folder}{getattr(io_rollback, name)}")
        monkeypatch.setattr(io_rollback, "sysctl", lambda _name, _key: "0")
        Path(io_rollback.UNITS).mkdir(parents=True)
        Path(io_rollback.APPLIED).parent.mkdir()

    def link(self, name: str, *addresses: str, mtu: int = 1500, up: bool = True, dynamic: tuple[str, ...] = ()) -> None:
        self.links[name] = {"mtu": mtu, "up": up, "addresses": list(addresses), "dynamic": list(dynamic)}

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(" ".join(argv))
        match argv:
            case ["ip", "-json", "address", "show", "dev", name]:
                if name not in self.links:
                    return 1, "", f'Device "{name}" does not exist.'
                found = self.links[name]
                infos = [
                    {
                        "family": "inet",
                        "local": a.split("/")[0],
                        "prefixlen": int(a.split("/")[1]),
                        **({"dynamic": True} if dynamic else {}),
                    }
                    for dynamic, some in ((False, found["addresses"]), (True, found["dynamic"]))
                    for a in some
                ]
                return (
                    0,
                    json.dumps([{"flags": ["UP"] if found["up"] else [], "mtu": found["mtu"], "addr_info": infos}]),
                    "",
                )
            case ["ip", "address", "delete", address, "dev", name]:
                self.links[name]["addresses"].remove(address)
            case ["ip", "address", "replace", address, "dev", name]:
                self.links[name]["addresses"].append(address)
            case ["ip", "link", "set", "dev", name, "mtu", mtu]:
                self.links[name]["mtu"] = int(mtu)
            case ["ip", "link", "set", "dev", name, state]:
                self.links[name]["up"] = state == "up"
            case ["netplan", "apply"]:
                return self.netplan_status, "", "netplan says no" if self.netplan_status else ""
        return 0, "", ""

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def write(self, name: str, text: str, mode: int = 0o600) -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return str(path)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    clock = itertools.count()
    monkeypatch.setattr(io_rollback.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(io_rollback.time, "sleep", lambda _seconds: None)
    return Host(tmp_path, monkeypatch)


def changed(host: Host, identifier: str = "one", final: bool = False) -> dict[str, Any]:
    """A host after a change: one file is new, one differs, and the device has another address and MTU."""
    old, new = host.write("40-cx7.yaml", "old", 0o640), host.path("60-gb10.yaml")
    host.link("fast", "192.168.100.1/24")
    before = io_rollback.capture(host.run, [old, new], ["fast", "gone"])
    io_rollback.arm(host.run, identifier, before, 60, final)
    io_rollback.put(host.run, {"files": {old: ["changed", 0o600], new: ["ours", 0o600]}, "links": {}})
    host.links["fast"] |= {"addresses": ["10.110.0.1/24"], "mtu": 9000}
    return before


def test_an_armed_change_is_put_back_whole(host: Host) -> None:
    before = changed(host)
    assert io_rollback.restore(host.run, "restored by the timer")
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before
    assert (io_rollback.read(io_rollback.LAST) or {})["how"] == "restored by the timer"
    assert "systemctl disable --now gb10-netplan-restore.timer" in host.asked
    assert list(Path(io_rollback.UNITS).iterdir()) == []
    assert not io_rollback.restore(host.run, "again"), "no change is pending any more"


def test_a_confirmed_change_stays_and_remembers_what_was_first(host: Host) -> None:
    before = changed(host)
    assert io_rollback.confirm(host.run, "one")
    assert io_rollback.read(io_rollback.ORIGINAL) == {**before, "written": {}}
    assert not io_rollback.restore(host.run, "late"), "the timer is too late"
    now = io_rollback.capture(host.run, before["files"], before["links"])
    io_rollback.arm(host.run, "two", now, 60, final=False)
    assert io_rollback.confirm(host.run, "two")
    assert io_rollback.read(io_rollback.ORIGINAL) == {**before, "written": {}}, "not the state after the first change"


def test_a_removal_forgets_what_was_first(host: Host) -> None:
    changed(host)
    io_rollback.confirm(host.run, "one")
    io_rollback.arm(host.run, "two", {"files": {}, "links": {}}, 60, final=True)
    assert io_rollback.confirm(host.run, "two")
    assert io_rollback.read(io_rollback.ORIGINAL) is None


@pytest.mark.parametrize("identifier", ["another", ""])
def test_only_the_pending_change_can_be_confirmed(host: Host, identifier: str) -> None:
    changed(host)
    assert not io_rollback.confirm(host.run, identifier)
    assert (io_rollback.read(io_rollback.PENDING) or {})["id"] == "one"


def test_a_second_attempt_goes_back_to_the_last_good_state(host: Host) -> None:
    """The first run was killed, so the present state is not a state to restore."""
    before = changed(host)
    half = io_rollback.capture(host.run, before["files"], before["links"])
    io_rollback.arm(host.run, "two", half, 60, final=False)
    io_rollback.restore(host.run, "restored by the timer")
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before


def test_the_timer_outlives_a_reboot_and_the_program_needs_nothing_else(host: Host) -> None:
    changed(host)
    timer = Path(io_rollback.UNITS, "gb10-netplan-restore.timer").read_text(encoding="utf-8")
    service = Path(io_rollback.UNITS, "gb10-netplan-restore.service").read_text(encoding="utf-8")
    assert "OnActiveSec=60\n" in timer
    assert "WantedBy=timers.target" in timer
    assert f"PYTHONPATH={io_rollback.PROGRAM}\n" in service
    files = sorted(str(path.relative_to(io_rollback.PROGRAM)) for path in Path(io_rollback.PROGRAM).rglob("*.py"))
    folder = "ansible_collections/gb10/cluster/plugins/module_utils"
    assert files == [f"{folder}/common/io_file.py", f"{folder}/fabric/io_rollback.py"]
    assert f"-m {folder.replace('/', '.')}.fabric.io_rollback\n" in service
    assert Path(io_rollback.PENDING).stat().st_mode & 0o777 == 0o600
    assert Path(io_rollback.STATE).stat().st_mode & 0o777 == 0o700


def test_the_restore_program_runs_by_itself(host: Host) -> None:
    """systemd runs it with the two copied files: one more import would break the rollback of every host."""
    changed(host)
    program = (
        "from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_rollback as io; print(io.__file__)"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": io_rollback.PROGRAM},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(io_rollback.PROGRAM)


# --- files of other users: root writes, reads and runs files of the state folder ---


def planted(host: Host) -> Path:
    """A state folder of another user with a pending change and a program, and the file that they would change."""
    state, target = Path(io_rollback.STATE), host.folder / "shadow"
    target.write_text("root", encoding="utf-8")
    state.mkdir(parents=True)
    (state / "lock").symlink_to(target)
    document = {"id": "one", "final": False, "before": {"files": {str(target): ["theirs", 0o644]}, "links": {}}}
    for name in ("pending.json", "original.json"):
        (state / name).write_text(
            json.dumps(document if name == "pending.json" else document["before"]), encoding="utf-8"
        )
    return target


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a folder")
@pytest.mark.parametrize("what", ["another's", "a link", "open to a group"])
def test_a_state_folder_that_root_does_not_own_alone_is_refused(host: Host, what: str) -> None:
    target, state = planted(host), Path(io_rollback.STATE)
    if what == "another's":
        os.chown(state, 12345, 12345)
    elif what == "a link":
        state.rename(host.folder / "theirs")
        state.symlink_to(host.folder / "theirs")
    else:
        state.chmod(0o770)
    nothing: dict[str, Any] = {"files": {}, "links": {}}
    for attempt in (
        lambda: io_rollback.arm(host.run, "two", nothing, 60, final=False),
        lambda: io_rollback.confirm(host.run, "one"),
        lambda: io_rollback.restore(host.run, "restored"),
        lambda: io_rollback.read(io_rollback.ORIGINAL),
    ):
        with pytest.raises(
            io_rollback.NetplanError, match=rf"root runs the program in {state}. Expected: .* Fix: remove {state}"
        ):
            attempt()
    assert target.read_text(encoding="utf-8") == "root"
    assert (host.asked, list(Path(io_rollback.UNITS).iterdir())) == ([], [])


def test_a_planted_lock_is_not_followed(host: Host) -> None:
    target = planted(host)
    with pytest.raises(OSError, match="symbolic link"):
        io_rollback.restore(host.run, "restored")
    assert target.read_text(encoding="utf-8") == "root"


@pytest.mark.parametrize("readable", [False, True])
def test_what_an_earlier_release_kept_is_taken_over_if_it_is_roots(host: Host, readable: bool) -> None:
    before = changed(host)
    assert io_rollback.confirm(host.run, "one")
    Path(io_rollback.FORMER).parent.mkdir(mode=0o1775)
    Path(io_rollback.STATE).rename(io_rollback.FORMER)
    Path(io_rollback.FORMER).chmod(0o755 if readable else 0o700)
    if readable:
        assert io_rollback.read(io_rollback.ORIGINAL) is None, "its author is unknown"
        return
    assert io_rollback.read(io_rollback.ORIGINAL) == {**before, "written": {}}, "also in check mode"
    assert not Path(io_rollback.STATE).exists()
    io_rollback.arm(host.run, "two", before, 60, final=True)
    assert not Path(io_rollback.FORMER).exists()
    assert (io_rollback.read(io_rollback.ORIGINAL), io_rollback.confirm(host.run, "two")) == (
        {**before, "written": {}},
        True,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of a folder")
@pytest.mark.parametrize("whose", ["the folder", "the one around it"])
def test_what_the_service_user_planted_there_is_left_alone(host: Host, whose: str) -> None:
    former = Path(io_rollback.FORMER)
    former.mkdir(parents=True, mode=0o700)
    (former / "original.json").write_text('{"files": {"/etc/shadow": ["theirs", 384]}, "links": {}}', encoding="utf-8")
    os.chown(former if whose == "the folder" else former.parent, 12345, 12345)
    assert io_rollback.read(io_rollback.ORIGINAL) is None
    changed(host)
    assert io_rollback.confirm(host.run, "one")
    assert (former / "original.json").exists()
    assert "/etc/shadow" not in json.dumps(io_rollback.read(io_rollback.ORIGINAL))


def test_systemd_reads_the_units_and_a_missing_program_is_no_error(host: Host) -> None:
    changed(host)
    assert {path.stat().st_mode & 0o777 for path in Path(io_rollback.UNITS).iterdir()} == {0o644}
    shutil.rmtree(io_rollback.PROGRAM)
    assert io_rollback.restore(host.run, "restored by the timer")


def test_nothing_changes_where_the_timer_cannot_be_started(host: Host) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return (1, "", "no systemd here") if argv[:2] == ["systemctl", "restart"] else host.run(argv)

    with pytest.raises(io_rollback.NetplanError, match=r"nothing was changed: no systemd here"):
        io_rollback.arm(run, "one", {"files": {}, "links": {}}, 60, final=False)


def test_a_failing_netplan_does_not_keep_the_devices_from_coming_back(host: Host) -> None:
    before = changed(host)
    host.netplan_status = 1
    with pytest.raises(io_rollback.NetplanError, match="netplan says no"):
        io_rollback.restore(host.run, "restored by the timer")
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before
    assert io_rollback.read(io_rollback.PENDING), "systemd tries again"
    host.netplan_status = 0
    assert io_rollback.restore(host.run, "restored by the timer")


def test_what_dhcp_gave_is_neither_saved_nor_removed(host: Host) -> None:
    host.link("fast", "10.0.0.1/24", dynamic=("192.168.1.5/24",))
    saved = io_rollback.capture(host.run, [], ["fast"])
    assert saved["links"]["fast"]["addresses"] == ["10.0.0.1/24"]
    io_rollback.put(host.run, {"files": {}, "links": {"fast": {**saved["links"]["fast"], "addresses": []}}})
    assert (host.links["fast"]["addresses"], host.links["fast"]["dynamic"]) == ([], ["192.168.1.5/24"])


@pytest.mark.parametrize(("after", "by_hand"), [(1.0, []), (60.0, ["ip address replace 192.168.100.1/24 dev fast"])])
def test_the_renderer_has_time_to_set_its_addresses(
    host: Host, monkeypatch: pytest.MonkeyPatch, after: float, by_hand: list[str]
) -> None:
    """NetworkManager does not activate its profile on a device with an address that it did not set."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > after and not host.links["fast"]["addresses"]:
            host.links["fast"]["addresses"].append("192.168.100.1/24")

    monkeypatch.setattr(io_rollback.time, "sleep", sleep)
    monkeypatch.setattr(io_rollback.time, "monotonic", lambda: now)
    host.link("fast", "192.168.100.1/24")
    saved = io_rollback.capture(host.run, [], ["fast"])
    host.link("fast", "10.110.0.1/24")
    io_rollback.put(host.run, saved)
    assert host.links["fast"]["addresses"] == ["192.168.100.1/24"]
    assert [words for words in host.asked if "replace" in words] == by_hand
    assert "ip address delete 10.110.0.1/24 dev fast" in host.asked, "an extra address may cut the host off"


def test_a_device_that_was_down_goes_down_again(host: Host) -> None:
    host.link("fast", up=False)
    saved = io_rollback.capture(host.run, [], ["fast"])
    host.links["fast"]["up"] = True
    io_rollback.put(host.run, saved)
    assert host.links["fast"]["up"] is False


PARAMS = {
    "state": "present",
    "content": "ours",
    "files": {},
    "takeover": False,
    "rails": [{"interface": "enp1s0f1np1"}],
    "mtu": 9000,
}


@pytest.fixture
def folders(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """The host's files at their usual paths, below its folder."""
    monkeypatch.setattr(io_netplan, "NETPLAN_FILE", host.path("60-gb10.yaml"))
    monkeypatch.setattr(
        io_netplan.glob, "glob", lambda _pattern: sorted(str(path) for path in host.folder.glob("*.yaml"))
    )
    return host


def test_a_takeover_rewrites_only_files_that_name_an_interface(folders: Host) -> None:
    path = folders.write("40-cx7.yaml", "# NVIDIA's\n" + yaml.safe_dump(FOREIGN))
    folders.write("01-network-manager-all.yaml", "network: {version: 2, renderer: NetworkManager}\n")
    target, others = io_netplan.target({**PARAMS, "takeover": True})
    assert others == [path]
    text, mode = target["files"][path]
    assert mode == 0o600
    assert text.startswith("# gb10.cluster took enp1s0f1np1 out of this file;")
    assert yaml.safe_load(text) == netplan.without(FOREIGN, ["enp1s0f1np1"])[0]
    assert io_netplan.target(PARAMS)[1] == [], "only on request"


def test_netplan_warns_of_a_file_that_others_can_read(folders: Host) -> None:
    files = io_netplan.target(
        {**PARAMS, "files": {"/etc/sysctl.d/60.conf": "theirs", "/etc/NetworkManager/60.conf": ""}}
    )[0]["files"]
    assert files == {
        folders.path("60-gb10.yaml"): ["ours", 0o600],
        "/etc/sysctl.d/60.conf": ["theirs", 0o644],
        "/etc/NetworkManager/60.conf": None,
    }


def test_a_removal_without_a_plan_removes_all_files_of_the_fabric(folders: Host) -> None:
    target, _others = io_netplan.target({**PARAMS, "state": "absent", "content": ""})
    wanted = [folders.path("60-gb10.yaml"), topology.SYSCTL_FILE, topology.NETWORK_MANAGER_FILE]
    assert target["files"] == dict.fromkeys(wanted)


def test_the_difference_is_between_the_host_and_the_plan(folders: Host) -> None:
    path = folders.write("60-gb10.yaml", "mtu: 1500\n")
    shown = io_netplan.diff({"files": {path: ["mtu: 9000\n", 0o600]}}, [], ["a sentence"])["prepared"]
    assert shown.splitlines()[3:] == ["-mtu: 1500", "+mtu: 9000", "# a sentence"]


@pytest.fixture
def netplan_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder of the host's netplan files, with one of them, at the same path below a scratch root."""
    folder = tmp_path / "etc/netplan"
    folder.mkdir(parents=True)
    (folder / "01-host.yaml").write_text("host", encoding="utf-8")
    monkeypatch.setattr(io_netplan, "NETPLAN_FOLDERS", (str(folder),))
    monkeypatch.setattr(io_netplan, "_GENERATORS", (sys.executable,))
    return folder


def test_netplan_judges_the_files_of_the_host_with_ours(netplan_folder: Path, tmp_path: Path) -> None:
    seen = {}

    def run(argv: list[str]) -> tuple[int, str, str]:
        scratch = Path(f"{argv[-1]}{netplan_folder}")
        seen.update({path.name: path.read_text(encoding="utf-8") for path in scratch.iterdir()})
        return 1, "", f"{scratch}/60.yaml:1:1: bad\n"

    files = {
        f"{netplan_folder}/60.yaml": ["ours", 0o600],
        f"{netplan_folder}/50.yaml": None,
        "/etc/sysctl.d/60.conf": ["other", 0o644],
    }
    answer = io_netplan.refusal(run, files, [], str(tmp_path / "scratch"))
    assert (answer, seen) == (
        f"netplan rejects {netplan_folder}/60.yaml: line 1: bad",
        {"01-host.yaml": "host", "60.yaml": "ours"},
    )


def test_without_files_netplan_is_not_asked(netplan_folder: Path) -> None:
    (netplan_folder / "01-host.yaml").unlink()
    assert io_netplan.rejected(lambda _argv: (1, "", "never asked")) == []


def test_the_programs_of_the_timer_report_their_status() -> None:
    assert io_rollback._subprocess(["sh", "-c", "echo out; echo wrong >&2; exit 3"]) == (3, "out\n", "wrong\n")


def test_one_file_is_enough_to_be_rejected(netplan_folder: Path) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return 1, "", f"{argv[-1]}{netplan_folder}/01-host.yaml:1:1: bad\n"

    assert io_netplan.rejected(run) == [
        {"file": f"{netplan_folder}/01-host.yaml", "reason": "netplan rejects it: line 1: bad"}
    ]


def test_no_error_quotes_other_peoples_files(folders: Host, tmp_path: Path) -> None:
    """Both parsers quote the invalid text."""
    folders.write("40-cx7.yaml", "network:\n  wifis: {wlP9s9: {password: *hunter2}}\n  # enp1s0f1np1\n")
    with pytest.raises(io_rollback.NetplanError, match=r"40-cx7\.yaml is not YAML \(line 2\)$"):
        io_netplan.target({**PARAMS, "takeover": True})

    def run(_argv: list[str]) -> tuple[int, str, str]:
        return (
            1,
            "",
            (
                f"{tmp_path}/scratch/etc/netplan/40-cx7.yaml:2:37: Invalid YAML: unknown alias:\n    password: "
                "*hunter2\n    ^\n"
            ),
        )

    said = io_netplan.refusal(run, {}, [], str(tmp_path / "scratch"))
    assert said == "netplan rejects /etc/netplan/40-cx7.yaml: line 2: Invalid YAML: unknown alias:"


UUID = "0b0e2c1a-7d5e-4f9a-9a6a-0123456789ab"
# netplan 0.106 on Debian 12, with a file that others can read.
WARNED = """
** (generate:920): WARNING **: 04:50:33.028: Permissions for /etc/netplan/90-NM-a1.yaml are too open. Netplan configuration should NOT be \
accessible by others.
/etc/netplan/90-NM-a1.yaml:10:29: Error in network definition: unknown key management type 'foo'
            password: hunter2
                      ^
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            WARNED,
            ("/etc/netplan/90-NM-a1.yaml", "line 10: Error in network definition: unknown key management type 'foo'"),
        ),
        ("** (generate:9): WARNING **: x are too open.\nout of memory\n", ("", "out of memory")),
        ("", ("", "no reason given")),
    ],
)
def test_the_file_and_the_reason_of_a_rejection(text: str, found: tuple[str, str]) -> None:
    assert netplan.rejection(text) == found


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], []),
        (["01-good.yaml"], []),
        (["01-good.yaml", "40-bad.yaml", "50-bad.yaml"], ["40-bad.yaml"]),
        (
            [f"90-NM-{UUID}.yaml", "01-good.yaml", f"90-NM-{UUID}-home.yaml"],
            [f"90-NM-{UUID}-home.yaml", f"90-NM-{UUID}.yaml"],
        ),
        # Ours is written again, and hides no other one.
        (["60-gb10-qsfp.yaml", "70-bad.yaml"], ["70-bad.yaml"]),
        (["60-gb10-qsfp.yaml"], []),
    ],
)
def test_the_files_that_netplan_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], found: list[str]
) -> None:
    """A stand-in of the generator ends, like netplan, at the first file that it rejects."""
    folder = tmp_path / "etc/netplan"
    folder.mkdir(parents=True)
    monkeypatch.setattr(io_netplan, "NETPLAN_FOLDERS", (str(folder),))
    monkeypatch.setattr(io_netplan, "NETPLAN_FILE", str(folder / "60-gb10-qsfp.yaml"))
    monkeypatch.setattr(io_netplan, "_GENERATORS", (sys.executable,))
    for name in files:
        (folder / name).write_text("network: {}\n", encoding="ascii")

    def run(argv: list[str]) -> tuple[int, str, str]:
        bad = sorted(path for path in Path(f"{argv[2]}{folder}").iterdir() if "good" not in path.name)
        return (1, "", f"{bad[0]}:3:1: Error in network definition: bad\n") if bad else (0, "", "")

    reported = io_netplan.rejected(run)
    assert [entry["file"] for entry in reported] == [str(folder / name) for name in found]
    assert {entry["reason"] for entry in reported} <= {"netplan rejects it: line 3: Error in network definition: bad"}


def test_the_difference_shows_no_content_of_other_peoples_files(folders: Host) -> None:
    path = folders.write("40-cx7.yaml", yaml.safe_dump(FOREIGN))
    target, others = io_netplan.target({**PARAMS, "takeover": True})
    shown = io_netplan.diff(target, others, ["a difference"])["prepared"]
    assert f"{path}: the fabric's interfaces are removed\n" in shown
    assert "+ours" in shown
    assert "# a difference\n" in shown
    assert "password" not in shown


@pytest.mark.usefixtures("folders")
def test_a_device_that_the_plan_left_gets_back_what_it_had() -> None:
    saved = {"up": True, "mtu": 1500, "addresses": [], "sysctl": {}}
    Path(io_rollback.STATE).mkdir(parents=True)
    Path(io_rollback.ORIGINAL).write_text(
        json.dumps({"files": {}, "links": {"enp1s0f0np0": saved, "enp1s0f1np1": saved}}), encoding="utf-8"
    )
    target, _others = io_netplan.target(PARAMS)
    assert target["links"] == {"enp1s0f0np0": saved}
    target, _others = io_netplan.target({**PARAMS, "state": "absent"})
    assert target["links"] == {"enp1s0f0np0": saved, "enp1s0f1np1": saved}
    assert set(target["files"].values()) == {None}


class Killed(BaseException):
    """A run that SIGKILL ends."""


def test_a_file_that_was_not_applied_is_known(folders: Host) -> None:
    path = io_netplan.NETPLAN_FILE

    def run(argv: list[str]) -> tuple[int, str, str]:
        if argv == ["netplan", "apply"]:
            raise Killed
        return folders.run(argv)

    assert io_netplan.unapplied(path) == []
    io_rollback.put(folders.run, {"files": {path: ["first", 0o600]}, "links": {}})
    assert io_netplan.unapplied(path) == []
    with pytest.raises(Killed):
        io_rollback.put(run, {"files": {path: ["second", 0o600]}, "links": {}})
    assert io_netplan.unapplied(path) == [f"{path} was not applied since it was written"]
    io_rollback.put(folders.run, {"files": {path: ["second", 0o600]}, "links": {}})
    assert io_netplan.unapplied(path) == []


def test_a_file_that_comes_back_after_its_removal_is_not_applied(folders: Host) -> None:
    path = io_netplan.NETPLAN_FILE
    io_rollback.put(folders.run, {"files": {path: None}, "links": {}})
    assert io_netplan.unapplied(path) == []
    folders.write("60-gb10.yaml", "of a backup")
    assert len(io_netplan.unapplied(path)) == 1
    # A boot applies the present files.
    Path(io_rollback.APPLIED).unlink()
    assert io_netplan.unapplied(path) == []


def test_a_clock_that_is_behind_applies_nothing_again(folders: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host booted in 1970, so its generated files have earlier times than their source."""
    path, generated = Path(io_netplan.NETPLAN_FILE), folders.folder / "enp1s0f1np1.network"
    monkeypatch.setattr(io_netplan, "_GENERATED", ((f"{folders.folder}/", "", ".network"),))
    generated.touch()
    monkeypatch.setattr(
        io_netplan.node_io_facts,
        "interfaces",
        lambda _run: {"enp1s0f1np1": {"addresses": ["10.110.0.1/24"], "mtu": 9000}},
    )
    monkeypatch.setattr(io_netplan.io_rollback, "sysctl", lambda _name, key: netplan.RAIL[key])
    params = {**PARAMS, "rails": [{"interface": "enp1s0f1np1", "address": "10.110.0.1/24"}]}
    target, _others = io_netplan.target(params)
    io_rollback.put(folders.run, target)
    for boot in (False, True):
        os.utime(path, (200, 200))
        os.utime(generated, (100, 100))
        assert io_netplan.differences(folders.run, params, target) == [], boot
        Path(io_rollback.APPLIED).unlink(missing_ok=True)


def full(monkeypatch: pytest.MonkeyPatch, *but: str) -> Callable[[], None]:
    """A full disk, except for files with one of these in their path. Returns a function that makes room."""
    write = io_rollback.io_file.write_file

    def refuse(path: str, content: str, mode: int) -> None:
        if not any(part in path for part in but):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write(path, content, mode)

    monkeypatch.setattr(io_rollback.io_file, "write_file", refuse)
    return lambda: monkeypatch.setattr(io_rollback.io_file, "write_file", write)


def copies(host: Host) -> list[str]:
    return sorted(path.name for path in host.folder.glob(".*.gb10-before"))


def test_a_full_disk_keeps_neither_devices_nor_files_from_coming_back(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = changed(host)
    assert copies(host) == [".40-cx7.yaml.gb10-before"]
    host.asked.clear()
    full(monkeypatch)
    assert io_rollback.restore(host.run, "restored by the timer")
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before
    assert host.asked.count("netplan apply") == 1
    assert host.asked.index("ip address delete 10.110.0.1/24 dev fast") < host.asked.index("netplan apply"), (
        "the devices come first"
    )
    # It is not restored again, although its end could not be recorded.
    assert io_rollback.read(io_rollback.PENDING) is None
    assert "systemctl disable --now gb10-netplan-restore.timer" in host.asked
    assert copies(host) == []


def test_a_file_that_cannot_be_put_back_is_tried_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = changed(host)
    Path(host.path(".40-cx7.yaml.gb10-before")).unlink()
    room = full(monkeypatch)
    with pytest.raises(
        io_rollback.NetplanError,
        match=r"the devices are as before, but .*40-cx7\.yaml could not be restored \(No space left",
    ):
        io_rollback.restore(host.run, "restored by the timer")
    assert io_rollback.capture(host.run, [], before["links"])["links"] == before["links"]
    assert "netplan apply" in host.asked
    assert not Path(host.path("60-gb10.yaml")).exists(), "a removal needs no disk space"
    assert io_rollback.read(io_rollback.PENDING), "systemd tries again"
    room()
    assert io_rollback.restore(host.run, "restored by the timer")
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before


def test_what_is_removed_makes_room_for_what_returns(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = changed(host)
    Path(host.path(".40-cx7.yaml.gb10-before")).unlink()
    write, new = io_rollback.io_file.write_file, Path(host.path("60-gb10.yaml"))

    def tight(path: str, content: str, mode: int) -> None:
        if new.exists():
            raise OSError(errno.ENOSPC, "No space left on device", path)
        write(path, content, mode)

    monkeypatch.setattr(io_rollback.io_file, "write_file", tight)
    assert io_rollback.restore(host.run, "restored by the timer")
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before


@pytest.mark.parametrize("room", [(), ("pending.json",), ("pending.json", "program")])
def test_without_room_for_the_way_back_nothing_changes(
    host: Host, monkeypatch: pytest.MonkeyPatch, room: tuple[str, ...]
) -> None:
    old = host.write("40-cx7.yaml", "old", 0o640)
    host.link("fast", "192.168.100.1/24")
    target = {"files": {old: ["changed", 0o600]}, "links": {}}
    full(monkeypatch, *room)
    with pytest.raises(OSError, match="No space left"):
        netplan_apply.change(host.run, {**PARAMS, "identifier": "one", "confirm_timeout": 60}, target, list)
    assert Path(old).read_text(encoding="utf-8") == "old"
    assert "netplan apply" not in host.asked


def test_a_disk_that_is_full_in_the_middle_of_a_change_takes_it_back(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = host.write("40-cx7.yaml", "old", 0o640), host.path("60-gb10.yaml")
    host.link("fast", "192.168.100.1/24")
    target = {"files": {old: ["changed", 0o600], new: ["ours", 0o600]}, "links": {"fast": None}}
    before = io_rollback.capture(host.run, target["files"], ["fast"])
    full(monkeypatch, "pending.json", "program", "systemd", ".gb10-before", "40-cx7.yaml")
    identifier, problem = netplan_apply.change(
        host.run, {**PARAMS, "identifier": "one", "confirm_timeout": 60}, target, list
    )
    assert (identifier, "No space left" in problem, "The old configuration is restored" in problem) == ("", True, True)
    assert io_rollback.capture(host.run, target["files"], ["fast"]) == before


def test_a_confirmation_that_cannot_be_remembered_is_none(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a record of the first state, a removal could not restore it."""
    changed(host)
    full(monkeypatch, "last.json")
    with pytest.raises(OSError, match="No space left"):
        io_rollback.confirm(host.run, "one")
    assert io_rollback.read(io_rollback.PENDING), "the timer rolls it back"


RAILS = ["enp1s0f1np1", "enP2p1s0f1np1"]


def applied(host: Host, **changes: Any) -> None:
    """Make a change like the module, and confirm it."""
    params = {**PARAMS, "takeover": True, "rails": [{"interface": name} for name in RAILS], **changes}
    target, _others = io_netplan.target(params)
    before = io_rollback.capture(host.run, target["files"], {*target["links"], *netplan.hearing(RAILS)})
    io_rollback.arm(host.run, "one", before, 60, params["state"] == "absent", target)
    io_rollback.put(host.run, target)
    assert io_rollback.confirm(host.run, "one")


CX7 = "# NVIDIA's\n" + yaml.safe_dump(FOREIGN)


def edited(host: Host, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Edit the file that was taken over, like its owner. Returns its new content."""
    document = yaml.safe_load(Path(host.path("40-cx7.yaml")).read_text(encoding="utf-8"))
    change(document["network"])
    host.write("40-cx7.yaml", "# mine\n" + yaml.safe_dump(document), 0o640)
    return dict(document)


def found(host: Host) -> Any:
    return yaml.safe_load(Path(host.path("40-cx7.yaml")).read_text(encoding="utf-8"))


def test_a_file_that_nobody_changed_since_comes_back_to_the_letter(folders: Host) -> None:
    path = folders.write("40-cx7.yaml", CX7, 0o640)
    applied(folders)
    assert "enp1s0f1np1:" not in Path(path).read_text(encoding="utf-8")
    applied(folders, state="absent")
    assert io_rollback.io_file.read_file(path) == (CX7, 0o640)
    assert not Path(io_netplan.NETPLAN_FILE).exists()


def test_a_removal_needs_no_plan(folders: Host) -> None:
    """The entry point remove of qsfp_netplan passes no text, no rails and no MTU."""
    path = folders.write("40-cx7.yaml", CX7, 0o640)
    folders.link("enp1s0f1np1", "192.168.100.11/24")
    before = io_rollback.capture(folders.run, [path], RAILS)
    applied(folders)
    folders.link("enp1s0f1np1", "10.110.0.1/24")
    params = {"state": "absent", "content": "", "files": {}, "rails": [], "mtu": 0, "takeover": False, "timeout": 5}
    target, _others = io_netplan.target(params)

    def differences() -> list[str]:
        return io_netplan.differences(folders.run, params, target)

    assert f"{path} differs" in differences()
    identifier, problem = netplan_apply.change(
        folders.run, {**params, "identifier": "two", "confirm_timeout": 60}, target, differences
    )
    assert (identifier, problem) == ("two", "")
    assert io_rollback.confirm(folders.run, "two")
    assert io_rollback.capture(folders.run, [path], RAILS) == before
    assert not Path(io_netplan.NETPLAN_FILE).exists()
    assert io_rollback.read(io_rollback.ORIGINAL) is None
    assert io_netplan.differences(folders.run, params, io_netplan.target(params)[0]) == []


def test_later_edits_of_a_file_outlive_the_removal(folders: Host) -> None:
    folders.write("40-cx7.yaml", CX7, 0o600)
    applied(folders)

    def edit(network: dict[str, Any]) -> None:
        network["wifis"]["wlP9s9"]["access-points"]["office"] = {"password": "q"}
        del network["ethernets"]["enP7s7"]
        network["ethernets"]["enP8s8"] = {"dhcp4": False}

    mine = edited(folders, edit)
    applied(folders, state="absent")
    mine["network"]["ethernets"]["enp1s0f1np1"] = FOREIGN["network"]["ethernets"]["enp1s0f1np1"]  # type: ignore[index]
    assert found(folders) == mine
    assert Path(folders.path("40-cx7.yaml")).stat().st_mode & 0o777 == 0o640, "the mode is an edit too"
    assert io_rollback.read(io_rollback.ORIGINAL) is None


def test_what_its_owner_defined_again_stays_as_it_is(folders: Host) -> None:
    folders.write("40-cx7.yaml", CX7)
    applied(folders)
    edited(folders, lambda network: network["ethernets"].update(enp1s0f1np1={"optional": True}))
    text = Path(folders.path("40-cx7.yaml")).read_text(encoding="utf-8")
    applied(folders, state="absent", takeover=False)
    assert Path(folders.path("40-cx7.yaml")).read_text(encoding="utf-8") == text


def test_a_file_that_was_deleted_since_stays_deleted(folders: Host) -> None:
    path = Path(folders.write("40-cx7.yaml", CX7))
    applied(folders)
    path.unlink()
    applied(folders, state="absent")
    assert not path.exists()


def test_a_file_that_is_no_yaml_any_more_is_refused_and_left_alone(folders: Host) -> None:
    folders.write("40-cx7.yaml", CX7)
    applied(folders)
    path = folders.write("40-cx7.yaml", "network:\n  wifis: {wlP9s9: {password: *hunter2}}\n")
    with pytest.raises(io_rollback.NetplanError, match=r"40-cx7\.yaml is not YAML \(line 2\)$"):
        io_netplan.target({**PARAMS, "state": "absent"})
    assert "hunter2" in Path(path).read_text(encoding="utf-8")


def test_what_was_taken_out_twice_comes_back_as_it_was_the_last_time(folders: Host) -> None:
    both = {"network": {**FOREIGN["network"], "ethernets": {name: {"mtu": 1500} for name in (*RAILS, "enP7s7")}}}
    folders.write("40-cx7.yaml", yaml.safe_dump(both))
    applied(folders)
    # Its owner adds one of the two again, and more.
    mine = edited(
        folders, lambda network: network["ethernets"].update(enp1s0f1np1={"mtu": 4000}, enP8s8={"dhcp4": False})
    )
    applied(folders)
    assert list(found(folders)["network"]["ethernets"]) == ["enP7s7", "enP8s8"]
    applied(folders, state="absent")
    mine["network"]["ethernets"]["enP2p1s0f1np1"] = {"mtu": 1500}
    assert found(folders) == mine


FRAMES = [{"network": None}, {"network": {"version": 2}}, {"network": {"version": 2, "ethernets": None}}]


@pytest.mark.parametrize("document", [None, {}, "text", *FRAMES])
def test_an_interface_returns_into_whatever_is_left(document: Any) -> None:
    back = {"enp1s0f1np1": FOREIGN["network"]["ethernets"]["enp1s0f1np1"]}  # type: ignore[index]
    assert netplan.with_again(document, FOREIGN, set(RAILS)) == {"network": {"version": 2, "ethernets": back}}
    assert netplan.with_again(document, None, set(RAILS)) == document


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        pytest.param("run/systemd/network/10-netplan-enP7s7.network", True, id="networkd"),
        pytest.param("run/NetworkManager/system-connections/netplan-enP7s7.nmconnection", True, id="NetworkManager"),
        pytest.param("run/systemd/network/10-netplan-enp1s0f1np1.network", False, id="ours by networkd"),
        pytest.param(
            "run/NetworkManager/system-connections/netplan-enp1s0f1np1.nmconnection", False, id="ours by NetworkManager"
        ),
    ],
)
@pytest.mark.parametrize("edit", ["changed", "added", "removed", "none"])
def test_what_somebody_else_did_not_apply_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, refused: bool, edit: str
) -> None:
    host, scratch = tmp_path / "host", tmp_path / "scratch"
    monkeypatch.setattr(io_netplan, "NETPLAN_FOLDERS", ("/etc/netplan",))
    monkeypatch.setattr(
        io_netplan,
        "_GENERATED",
        tuple((f"{host}/{f[1:]}", start, end) for f, start, end in io_netplan._GENERATED),
    )

    def write(root: str, text: str) -> None:
        Path(root, name).parent.mkdir(parents=True)
        Path(root, name).write_text(text, encoding="utf-8")

    def generate(argv: list[str]) -> tuple[int, str, str]:
        # The command netplan itself reloads systemd.
        assert argv[0].startswith("/usr/libexec/netplan/") and argv[1] == "--root-dir"
        if edit != "removed":
            write(f"{argv[-1]}{host}", "new" if edit == "changed" else "old")
        return 0, "", ""

    if edit != "added":
        write(str(host), "old")
    said = io_netplan.refusal(generate, {}, ["enp1s0f1np1"], str(scratch))
    assert bool(said) == (refused and edit != "none"), said
    assert (Path(name).name in said) == bool(said)


def path(peer: str, small: bool = False) -> dict[str, Any]:
    return {"interface": "enp1s0f1np1", "peer": peer, "address": "10.110.0.9", "reported": "silence", "small": small}


def outcome(node: str, *unverified: dict[str, Any], problem: str = "", pending: str = "") -> dict[str, Any]:
    return {"node": node, "problem": problem, "unverified": list(unverified), "pending": pending}


def test_all_is_well() -> None:
    assert fabric_report.report([outcome("a", pending="1"), outcome("b")], 9000) == ""


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param(
            [outcome("a", path("b")), outcome("b", path("a"))],
            "Each end may be at fault: check the cable",
            id="a pair blames nobody",
        ),
        pytest.param(
            [outcome("a", path("c")), outcome("b", path("c")), outcome("c", path("a"), path("b"))],
            "Every failing path ends at c: check the cable",
            id="one of three",
        ),
        pytest.param(
            [outcome("a", path("c", small=True)), outcome("b"), outcome("c")],
            "Each end may be at fault: a device carries",
            id="one way",
        ),
        pytest.param(
            [outcome("a", path("c", small=True)), outcome("b", path("c", small=True)), outcome("c")],
            "Every failing path ends at c: a device carries less than 9000 bytes",
            id="MTU",
        ),
        pytest.param(
            [outcome("a", path("b")), outcome("b"), outcome("c", path("d")), outcome("d")],
            "Each end may be at fault",
            id="two cables",
        ),
    ],
)
def test_the_node_that_all_failing_paths_share_is_named(outcomes: list[dict[str, Any]], expected: str) -> None:
    assert expected in fabric_report.report(outcomes, 9000)


def test_what_was_put_back_is_told() -> None:
    text = fabric_report.report(
        [outcome("a", pending="1"), outcome("b", problem="it was cut off"), outcome("c", pending="2")], 9000
    )
    assert "b: it was cut off." in text
    assert text.endswith("The configuration from before this run is restored on a, c.")


def verdict(monkeypatch: pytest.MonkeyPatch, node: str, nodes: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Run the action on a node of the recorded pair. Return its result and the arguments of each module call."""
    calls: list[Any] = []

    def module(module_args: dict[str, Any], **_variables: Any) -> dict[str, Any]:
        calls.append(module_args)
        return {"changed": True, "pending": "", "last": {}}

    action = object.__new__(netplan_confirm.ActionModule)
    arguments = {"changes": ["worker_change", "head_change"], "probe": "probe"}
    action._task, action._templar = task(arguments), SimpleNamespace(template=lambda value: value)
    monkeypatch.setattr(action, "_execute_module", module, raising=False)
    plan = fact({})
    plan["node"] = next(each for each in plan["nodes"] if each["name"] == node)
    return action.decide({"gb10_plan": plan, "hostvars": nodes}), calls


SKIPPED = {"changed": False, "skipped": True}
APPLIED = {"changed": True, "differences": ["x"], "pending": "12", "problem": ""}
CUT_OFF = {"changed": False, "differences": [], "pending": "", "problem": "it was cut off"}


def test_a_change_of_all_nodes_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {
        "spark1": {"worker_change": SKIPPED, "head_change": {**APPLIED, "pending": "11"}, "probe": {"unverified": []}},
        "spark2": {"worker_change": APPLIED, "head_change": SKIPPED, "probe": {"unverified": []}},
    }
    answer, calls = verdict(monkeypatch, "spark2", nodes)
    assert (answer["report"], calls) == ("", [{"identifier": "12", "state": "confirmed"}])
    assert verdict(monkeypatch, "spark1", nodes)[1] == [{"identifier": "11", "state": "confirmed"}]


@pytest.mark.parametrize(
    "fault", [{"worker_change": CUT_OFF}, {"probe": {"unverified": [path("spark1")]}}, {"worker_change": SKIPPED}]
)
def test_a_problem_of_one_node_restores_all(monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]) -> None:
    nodes = {"spark1": {"head_change": APPLIED, "probe": SKIPPED}, "spark2": {"probe": SKIPPED, **fault}}
    answer, calls = verdict(monkeypatch, "spark1", nodes)
    wrong = fault != {"worker_change": SKIPPED}
    assert calls == [{"identifier": "12", "state": "restored" if wrong else "confirmed"}]
    assert answer["report"].startswith("The fabric is not as planned.") is wrong
    answer, calls = verdict(monkeypatch, "spark2", nodes)
    assert (bool(answer["report"]), answer["pending"], calls) == (wrong, "", []), "nothing to confirm here"


def test_the_role_confirms_or_restores_and_then_ends_the_run() -> None:
    tasks = load_yaml(read("roles/qsfp_netplan/tasks/verdict.yml"))
    (confirm,) = [index for index, task in enumerate(tasks) if "gb10.cluster.netplan_confirm" in task]
    (stop,) = [index for index, task in enumerate(tasks) if "ansible.builtin.fail" in task]
    registered = tasks[confirm]["register"]
    assert (confirm < stop, tasks[stop]["when"]) == (True, f"{registered}.report | length > 0")
