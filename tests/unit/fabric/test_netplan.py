"""netplan documents: the fabric's own, foreign ones, and the effect of a change on files and devices."""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from decisions import decide
from repository import load_yaml, read
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_netplan, io_rollback, netplan, topology
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import report as fabric_report
from ansible_collections.gb10.cluster.plugins.module_utils.node_steps import netplan_confirm
from ansible_collections.gb10.cluster.plugins.modules import netplan_apply

FOREIGN = {
    "network": {
        "version": 2,
        "renderer": "NetworkManager",
        "ethernets": {"enp1s0f1np1": {"addresses": ["192.168.100.11/24"]}, "enP7s7": {"dhcp4": True}},
        "wifis": {"wlP9s9": {"access-points": {"home": {"password": "p"}}}},
    }
}


@pytest.mark.parametrize(
    ("renderer", "own"),
    [
        ("networkd", {"ignore-carrier": True}),
        # Otherwise NetworkManager would activate the last used profile, which may be the user's.
        ("NetworkManager", {"networkmanager": {"passthrough": {"connection.autoconnect-priority": "999"}}}),
    ],
)
def test_a_static_document_leaves_the_other_interfaces_their_renderer(renderer: str, own: dict[str, Any]) -> None:
    common = {"dhcp4": False, "dhcp6": False, "link-local": [], "mtu": 4200, "optional": True, "renderer": renderer}
    ethernets = {"enp1s0f1np1": {"addresses": ["10.110.0.1/24"], **common, **own}}
    expected = {"network": {"version": 2, "ethernets": ethernets}}
    assert netplan.document({"enp1s0f1np1": "10.110.0.1/24"}, 4200, renderer) == expected


SETTINGS = "net.ipv4.conf.{0}.arp_ignore = 1\nnet.ipv4.conf.{0}.arp_announce = 2\n"
NO_IPV6 = "net.ipv6.conf.{0}.disable_ipv6 = 1\n"
NM_FILE = "[device-gb10-qsfp]\nmatch-device=interface-name:mgbe0_0,interface-name:eth1\nignore-carrier=yes\n"


@pytest.mark.parametrize(
    ("interfaces", "renderer", "sysctl", "network_manager"),
    [
        # The other PCIe function receives the same requests, even if only one is used.
        (
            ["enp1s0f0np0"],
            "networkd",
            (SETTINGS + NO_IPV6).format("enp1s0f0np0") + SETTINGS.format("enP2p1s0f0np0"),
            "",
        ),
        (
            ["mgbe0_0", "eth1"],
            "NetworkManager",
            "".join(map((SETTINGS + NO_IPV6).format, ("mgbe0_0", "eth1"))),
            NM_FILE,
        ),
    ],
)
def test_devices_answer_arp_for_themselves_and_network_manager_keeps_addresses_without_carrier(
    interfaces: list[str], renderer: str, sysctl: str, network_manager: str
) -> None:
    assert netplan.files(interfaces, renderer) == {
        topology.SYSCTL_FILE: sysctl,
        topology.NETWORK_MANAGER_FILE: network_manager,
    }


WITHOUT = {"network": {**FOREIGN["network"], "ethernets": {"enP7s7": {"dhcp4": True}}}}
OURS_ALONE = {"network": {"version": 2, "ethernets": {"enp1s0f1np1": {}}}}
NO_INTERFACES = [
    None,
    [],
    "text",
    {},
    {"network": None},
    {"network": {"ethernets": None}},
    {"network": {"ethernets": []}},
]


@pytest.mark.parametrize(
    ("document", "rest", "taken"),
    [
        (FOREIGN, WITHOUT, ["enp1s0f1np1"]),
        (OURS_ALONE, {"network": {"version": 2}}, ["enp1s0f1np1"]),
        *((document, document, []) for document in NO_INTERFACES),
    ],
)
def test_our_interfaces_are_taken_out_and_all_else_stays(document: Any, rest: Any, taken: list[str]) -> None:
    before = copy.deepcopy(document)
    assert netplan.without(document, ["enp1s0f1np1", "enP2p1s0f1np1"]) == (rest, taken)
    assert document == before, "the input is left alone"


class Host:
    """A simulated host with devices, `ip`, netplan and systemctl. Its files are real, below a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.links: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.netplan_status = 0
        self.now, self.rendered = 0.0, math.inf
        monkeypatch.setattr(io_rollback.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(io_rollback.time, "sleep", self.sleep)
        for name in ("STATE", "PENDING", "LAST", "ORIGINAL", "PROGRAM", "UNITS", "APPLIED"):
            monkeypatch.setattr(io_rollback, name, f"{folder}{getattr(io_rollback, name)}")
        monkeypatch.setattr(io_rollback, "sysctl", lambda _name, _key: "0")
        Path(io_rollback.UNITS).mkdir(parents=True)
        Path(io_rollback.APPLIED).parent.mkdir()

    def link(self, name: str, *addresses: str, mtu: int = 1500, up: bool = True, dynamic: tuple[str, ...] = ()) -> None:
        self.links[name] = {"mtu": mtu, "up": up, "addresses": list(addresses), "dynamic": list(dynamic)}

    def sleep(self, seconds: float) -> None:
        """Let time pass. The renderer adds its address at the time ``rendered``."""
        self.now += seconds
        if self.now > self.rendered and not self.links["fast"]["addresses"]:
            self.links["fast"]["addresses"].append("192.168.100.1/24")

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(" ".join(argv))
        match argv:
            case ["ip", "-json", "address", "show", "dev", name]:
                if name not in self.links:
                    return 1, "", f'Device "{name}" does not exist.'
                found = self.links[name]
                infos = [
                    {"family": "inet", "local": a.split("/")[0], "prefixlen": int(a.split("/")[1]), **dynamic}
                    for dynamic, some in (({}, found["addresses"]), ({"dynamic": True}, found["dynamic"]))
                    for a in some
                ]
                link = {"flags": ["UP"] * found["up"], "mtu": found["mtu"], "addr_info": infos}
                return 0, json.dumps([link]), ""
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
    return Host(tmp_path, monkeypatch)


def mode(path: str | Path) -> int:
    return Path(path).stat().st_mode & 0o777


def changed(host: Host, identifier: str = "one", final: bool = False) -> dict[str, Any]:
    """A host after a change: one file is new, one differs, and the device has another address and MTU."""
    old, new = host.write("40-cx7.yaml", "old", 0o640), host.path("60-gb10-qsfp.yaml")
    host.link("fast", "192.168.100.1/24")
    before = io_rollback.capture(host.run, [old, new], ["fast", "gone"])
    io_rollback.arm(host.run, identifier, before, 60, final)
    io_rollback.put(host.run, {"files": {old: ["changed", 0o600], new: ["ours", 0o600]}, "links": {}})
    host.links["fast"] |= {"addresses": ["10.110.0.1/24"], "mtu": 9000}
    return before


def restored(host: Host) -> bool:
    return io_rollback.restore(host.run, "restored by the timer")


def test_an_armed_change_is_put_back_whole(host: Host) -> None:
    before = changed(host)
    assert restored(host)
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before
    assert (io_rollback.read(io_rollback.LAST) or {})["how"] == "restored by the timer"
    assert "systemctl disable --now gb10-netplan-restore.timer" in host.asked
    assert list(Path(io_rollback.UNITS).iterdir()) == []
    assert not restored(host), "no change is pending any more"


def test_confirmed_changes_stay_and_remember_what_was_first_until_a_removal(host: Host) -> None:
    before = changed(host)
    assert [io_rollback.confirm(host.run, identifier) for identifier in ("another", "", "one")] == [False, False, True]
    assert not restored(host), "the timer is too late"
    now = io_rollback.capture(host.run, before["files"], before["links"])
    io_rollback.arm(host.run, "two", now, 60, final=False)
    assert io_rollback.confirm(host.run, "two")
    assert io_rollback.read(io_rollback.ORIGINAL) == {**before, "written": {}}, "not the state after the first change"
    io_rollback.arm(host.run, "three", {"files": {}, "links": {}}, 60, final=True)
    assert io_rollback.confirm(host.run, "three")
    assert io_rollback.read(io_rollback.ORIGINAL) is None


def test_without_an_identifier_any_waiting_change_is_rolled_back_and_none_is_confirmed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netplan_confirm, "runner", lambda _module: host.run)
    module: Any = SimpleNamespace(check_mode=False)
    before = changed(host)
    assert netplan_confirm.run(module, netplan_confirm.Inputs())["failed"]
    answers = [netplan_confirm.run(module, netplan_confirm.Inputs(state="restored")) for _again in range(2)]
    assert [(answer["changed"], answer["pending"]) for answer in answers] == [(True, ""), (False, "")]
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before


def test_a_second_attempt_goes_back_to_the_last_good_state(host: Host) -> None:
    """The first run was killed, so the present state is not a state to restore. Its program may be missing."""
    before = changed(host)
    io_rollback.arm(host.run, "two", io_rollback.capture(host.run, before["files"], before["links"]), 60, final=False)
    shutil.rmtree(io_rollback.PROGRAM)
    assert restored(host)
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before


def test_the_timer_outlives_a_reboot_and_its_program_needs_no_other_file(host: Host) -> None:
    """systemd runs it with the two copied files: one more import would break the rollback of every host."""
    changed(host)
    units = {path.name: (path.read_text(encoding="utf-8"), mode(path)) for path in Path(io_rollback.UNITS).iterdir()}
    (service, mode_of_service), (timer, mode_of_timer) = (
        units[f"gb10-netplan-restore.{kind}"] for kind in ("service", "timer")
    )
    assert "OnActiveSec=60\n" in timer and "WantedBy=timers.target" in timer
    module = "ansible_collections.gb10.cluster.plugins.module_utils.fabric.io_rollback"
    (start,) = re.findall("^ExecStart=(.*)$", service, re.MULTILINE)
    # Isolated from the host's packages: -S takes those of this test's environment away.
    python, *options, _code, code = shlex.split(start)
    assert (python, options) == (sys.executable, ["-I", "-B"]) and "run_name='__main__'" in code
    modes = mode_of_service, mode_of_timer, mode(io_rollback.PENDING), mode(io_rollback.STATE)
    assert modes == (0o644, 0o644, 0o600, 0o700)
    only_imports = code.replace("'__main__'", "'imported'") + "; print(sys.modules['{}.common.io_file'].__file__)"
    program = only_imports.format(module.removesuffix(".fabric.io_rollback"))
    answer = subprocess.check_output([python, "-S", *options, "-c", program], env={}, cwd="/", text=True)
    assert answer.startswith(io_rollback.PROGRAM)


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


def test_nothing_changes_where_the_timer_cannot_be_started(host: Host) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return (1, "", "no systemd here") if argv[:2] == ["systemctl", "restart"] else host.run(argv)

    with pytest.raises(io_rollback.NetplanError, match=r"nothing was changed: no systemd here"):
        io_rollback.arm(run, "one", {"files": {}, "links": {}}, 60, final=False)


def test_a_failing_netplan_does_not_keep_the_devices_from_coming_back(host: Host) -> None:
    before = changed(host)
    host.netplan_status = 1
    with pytest.raises(io_rollback.NetplanError, match="netplan says no"):
        restored(host)
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before
    assert io_rollback.read(io_rollback.PENDING), "systemd tries again"
    host.netplan_status = 0
    assert restored(host)


def test_a_device_goes_down_again_and_what_dhcp_gave_is_neither_saved_nor_removed(host: Host) -> None:
    host.link("fast", "10.0.0.1/24", dynamic=("192.168.1.5/24",), up=False)
    saved = io_rollback.capture(host.run, [], ["fast"])["links"]["fast"]
    assert saved["addresses"] == ["10.0.0.1/24"]
    host.links["fast"]["up"] = True
    io_rollback.put(host.run, {"files": {}, "links": {"fast": {**saved, "addresses": []}}})
    assert host.links["fast"] == {"mtu": 1500, "up": False, "addresses": [], "dynamic": ["192.168.1.5/24"]}


@pytest.mark.parametrize("back", [False, True], ids=["a change", "a rollback"])
@pytest.mark.parametrize(("after", "by_hand"), [(1.0, []), (60.0, ["ip address replace 192.168.100.1/24 dev fast"])])
def test_the_renderer_has_time_to_set_its_addresses(host: Host, after: float, by_hand: list[str], back: bool) -> None:
    """NetworkManager does not activate its profile on a device with an address that it did not set."""
    host.link("fast", "192.168.100.1/24")
    saved = io_rollback.capture(host.run, [], ["fast"])
    host.link("fast", "10.110.0.1/24")
    host.rendered = after
    if back:
        io_rollback.arm(host.run, "one", saved, 60, final=False)
        assert restored(host)
    else:
        io_rollback.put(host.run, saved)
    assert host.links["fast"]["addresses"] == ["192.168.100.1/24"]
    assert [words for words in host.asked if "replace" in words] == by_hand
    assert "ip address delete 10.110.0.1/24 dev fast" in host.asked, "an extra address may cut the host off"


def test_the_kernel_reads_its_settings_after_netplan(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new device has them only then. systemd reads the files at a boot alone."""
    # The files are there already, so that the test writes none of this machine.
    monkeypatch.setattr(io_rollback.io_file, "read_file", lambda _path: ("x = 1", 0o644))
    files = {path: ["x = 1", 0o644] for path in ("/etc/sysctl.d/60-lab.conf", "/etc/modprobe.d/60-lab.conf")}
    io_rollback.put(host.run, {"files": files, "links": {}})
    assert host.asked == ["netplan apply", "sysctl --quiet --load=/etc/sysctl.d/60-lab.conf"]


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
    for name in ("NETPLAN_FILE", "SYSCTL_FILE", "NETWORK_MANAGER_FILE"):
        monkeypatch.setattr(io_netplan, name, host.path(Path(getattr(topology, name)).name))
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


@pytest.mark.parametrize(
    ("state", "texts", "expected"),
    [
        # netplan warns of a file that others can read.
        ("present", {"SYSCTL_FILE": "theirs", "NETWORK_MANAGER_FILE": ""}, [["ours", 0o600], ["theirs", 0o644], None]),
        # A removal may have no plan.
        ("absent", {}, [None, None, None]),
    ],
)
def test_the_wanted_files(folders: Host, state: str, texts: dict[str, str], expected: list[Any]) -> None:
    del folders
    files = {getattr(io_netplan, name): text for name, text in texts.items()}
    found = io_netplan.target({**PARAMS, "state": state, "files": files})[0]["files"]
    paths = (io_netplan.NETPLAN_FILE, io_netplan.SYSCTL_FILE, io_netplan.NETWORK_MANAGER_FILE)
    assert found == dict(zip(paths, expected, strict=True))


@pytest.fixture
def netplan_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder of the host's netplan files, at the same path below a scratch root."""
    folder = tmp_path / "etc/netplan"
    folder.mkdir(parents=True)
    monkeypatch.setattr(io_netplan, "NETPLAN_FOLDERS", (str(folder),))
    monkeypatch.setattr(io_netplan, "NETPLAN_FILE", str(folder / "60-gb10-qsfp.yaml"))
    monkeypatch.setattr(io_netplan, "_GENERATORS", (sys.executable,))
    return folder


@pytest.mark.parametrize("status", [1, -9], ids=["an error", "a signal"])
def test_netplan_judges_the_files_of_the_host_with_ours(netplan_folder: Path, tmp_path: Path, status: int) -> None:
    (netplan_folder / "01-host.yaml").write_text("host", encoding="utf-8")
    seen = {}

    def run(argv: list[str]) -> tuple[int, str, str]:
        scratch = Path(f"{argv[-1]}{netplan_folder}")
        seen.update({path.name: path.read_text(encoding="utf-8") for path in scratch.iterdir()})
        return status, "", f"{scratch}/60.yaml:1:1: bad\n"

    names = {f"{netplan_folder}/60.yaml": ["ours", 0o600], f"{netplan_folder}/50.yaml": None}
    files = {**names, "/etc/sysctl.d/60.conf": ["other", 0o644]}
    answer = io_netplan.refusal(run, files, [], str(tmp_path / "scratch"))
    assert answer == f"netplan rejects {netplan_folder}/60.yaml: line 1: bad"
    assert seen == {"01-host.yaml": "host", "60.yaml": "ours"}


def test_the_programs_of_the_timer_report_their_status() -> None:
    assert io_rollback._subprocess(["sh", "-c", "echo out; echo wrong >&2; exit 3"]) == (3, "out\n", "wrong\n")


def test_no_error_quotes_other_peoples_files(folders: Host, tmp_path: Path) -> None:
    """Both parsers quote the invalid text."""
    folders.write("40-cx7.yaml", "network:\n  wifis: {wlP9s9: {password: *hunter2}}\n  # enp1s0f1np1\n")
    with pytest.raises(io_rollback.NetplanError, match=r"40-cx7\.yaml is not YAML \(line 2\)$"):
        io_netplan.target({**PARAMS, "takeover": True})

    said = f"{tmp_path}/scratch/etc/netplan/40-cx7.yaml:2:37: Invalid YAML: unknown alias:\n    password: *hunter2\n    ^\n"
    assert (
        io_netplan.refusal(lambda _argv: (1, "", said), {}, [], str(tmp_path / "scratch"))
        == "netplan rejects /etc/netplan/40-cx7.yaml: line 2: Invalid YAML: unknown alias:"
    )


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
        (["40-bad.yaml"], ["40-bad.yaml"]),
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
def test_the_files_that_netplan_rejects(netplan_folder: Path, files: list[str], found: list[str]) -> None:
    """A stand-in of the generator ends, like netplan, at the first file that it rejects."""
    for name in files:
        (netplan_folder / name).write_text("network: {}\n", encoding="ascii")

    def run(argv: list[str]) -> tuple[int, str, str]:
        assert files, "netplan is not asked without files"
        bad = sorted(path for path in Path(f"{argv[2]}{netplan_folder}").iterdir() if "good" not in path.name)
        return (1, "", f"{bad[0]}:3:1: Error in network definition: bad\n") if bad else (0, "", "")

    reason = "netplan rejects it: line 3: Error in network definition: bad"
    assert io_netplan.rejected(run) == [{"file": str(netplan_folder / name), "reason": reason} for name in found]


def test_the_difference_is_that_of_the_host_without_content_of_other_peoples_files(folders: Host) -> None:
    path, ours = (
        folders.write("40-cx7.yaml", yaml.safe_dump(FOREIGN)),
        folders.write("60-gb10-qsfp.yaml", "mtu: 1500\n"),
    )
    target, others = io_netplan.target({**PARAMS, "content": "mtu: 9000\n", "takeover": True})
    assert io_netplan.diff(target, others, ["a sentence"])["prepared"].splitlines() == [
        f"--- {ours}",
        f"+++ {ours}",
        "@@ -1 +1 @@",
        "-mtu: 1500",
        "+mtu: 9000",
        f"{path}: the fabric's interfaces are removed",
        "# a sentence",
    ]


@pytest.mark.usefixtures("folders")
def test_a_device_that_the_plan_left_gets_back_what_it_had() -> None:
    saved = {"up": True, "mtu": 1500, "addresses": [], "sysctl": {}}
    Path(io_rollback.STATE).mkdir(parents=True)
    Path(io_rollback.ORIGINAL).write_text(
        json.dumps({"files": {}, "links": {"enp1s0f0np0": saved, "enp1s0f1np1": saved}}), encoding="utf-8"
    )
    assert io_netplan.target(PARAMS)[0]["links"] == {"enp1s0f0np0": saved}
    target, _others = io_netplan.target({**PARAMS, "state": "absent"})
    assert target["links"] == {"enp1s0f0np0": saved, "enp1s0f1np1": saved}
    assert set(target["files"].values()) == {None}


def test_a_file_that_was_not_applied_is_known(folders: Host) -> None:
    found = [io_netplan.unapplied(io_netplan.NETPLAN_FILE)]
    for text, status in (("first", 0), ("second", 1), ("second", 0)):
        folders.netplan_status = status
        with contextlib.suppress(io_rollback.NetplanError):
            io_rollback.put(folders.run, {"files": {io_netplan.NETPLAN_FILE: [text, 0o600]}, "links": {}})
        found.append(io_netplan.unapplied(io_netplan.NETPLAN_FILE))
    assert found == [[], [], [f"{io_netplan.NETPLAN_FILE} was not applied since it was written"], []]


def test_a_file_that_comes_back_after_its_removal_is_not_applied(folders: Host) -> None:
    io_rollback.put(folders.run, {"files": {io_netplan.NETPLAN_FILE: None}, "links": {}})
    found = [io_netplan.unapplied(io_netplan.NETPLAN_FILE)]
    path = folders.write("60-gb10-qsfp.yaml", "of a backup")
    found.append(io_netplan.unapplied(path))
    # A boot applies the present files.
    Path(io_rollback.APPLIED).unlink()
    assert [*found, io_netplan.unapplied(path)] == [[], [f"{path} was not applied since it was written"], []]


def test_a_clock_that_is_behind_applies_nothing_again(folders: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host booted in 1970, so the record of applied files has an earlier time than they."""
    rail = {"enp1s0f1np1": {"addresses": ["10.110.0.1/24"], "mtu": 9000}}
    monkeypatch.setattr(io_netplan.node_io_facts, "interfaces", lambda _run: rail)
    monkeypatch.setattr(io_rollback, "sysctl", lambda _name, key: netplan.RAIL[key])
    params = {**PARAMS, "rails": [{"interface": "enp1s0f1np1", "address": "10.110.0.1/24"}]}
    target, _others = io_netplan.target(params)
    io_rollback.put(folders.run, target)
    os.utime(io_rollback.APPLIED, (100, 100))
    assert io_netplan.differences(folders.run, params, target) == []
    Path(io_rollback.APPLIED).unlink()
    assert io_netplan.differences(folders.run, params, target) == [], "after a boot"


def full(monkeypatch: pytest.MonkeyPatch, *but: str, until: Path | None = None) -> Callable[[], None]:
    """A full disk, except for files with one of these in their path, until a file is gone.

    Returns a function that makes room.
    """
    write = io_rollback.io_file.write_file

    def refuse(path: str, content: str, mode: int) -> None:
        if not any(part in path for part in but) and (until is None or until.exists()):
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
    assert restored(host)
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
        restored(host)
    assert io_rollback.capture(host.run, [], before["links"])["links"] == before["links"]
    assert "netplan apply" in host.asked
    assert not Path(host.path("60-gb10-qsfp.yaml")).exists(), "a removal needs no disk space"
    assert io_rollback.read(io_rollback.PENDING), "systemd tries again"
    room()
    assert restored(host)
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before


def test_what_is_removed_makes_room_for_what_returns(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = changed(host)
    Path(host.path(".40-cx7.yaml.gb10-before")).unlink()
    full(monkeypatch, until=Path(host.path("60-gb10-qsfp.yaml")))
    assert restored(host)
    assert io_rollback.capture(host.run, before["files"], before["links"]) == before


ARMED = ("pending.json", "program", "systemd", ".gb10-before", "40-cx7.yaml")


@pytest.mark.parametrize(
    ("room", "begun"), [((), False), (("pending.json",), False), (("pending.json", "program"), False), (ARMED, True)]
)
def test_a_change_without_room_on_the_disk_leaves_all_as_it_was(
    host: Host, monkeypatch: pytest.MonkeyPatch, room: tuple[str, ...], begun: bool
) -> None:
    old, new = host.write("40-cx7.yaml", "old", 0o640), host.path("60-gb10-qsfp.yaml")
    host.link("fast", "192.168.100.1/24")
    target = {"files": {old: ["changed", 0o600], new: ["ours", 0o600]}, "links": {"fast": None}}
    before = io_rollback.capture(host.run, target["files"], ["fast"])
    full(monkeypatch, *room)
    params = {**PARAMS, "identifier": "one", "confirm_timeout": 60}
    # Without room for the way back, nothing begins.
    with contextlib.nullcontext() if begun else pytest.raises(OSError, match="No space left"):
        identifier, problem = netplan_apply.change(host.run, params, target, list)
        assert identifier == ""
        assert problem == f"[Errno 28] No space left on device: '{new}'. The old configuration is restored"
    assert io_rollback.capture(host.run, target["files"], ["fast"]) == before
    assert ("netplan apply" in host.asked) is begun


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


ETHERNETS = FOREIGN["network"]["ethernets"]


def dumped(ethernets: dict[str, Any], **more: Any) -> str:
    """The text of a file like the foreign one, with other interfaces and more."""
    return yaml.safe_dump({"network": {"version": 2, **more, "ethernets": ethernets}}, sort_keys=False)


AGAIN = "# mine\n" + dumped({"enp1s0f1np1": {"optional": True}})


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        (None, (CX7, 0o640)),
        ("", (None, None)),
        (AGAIN, (AGAIN, 0o644)),
        (
            "# mine\n" + dumped({"enP8s8": {"dhcp4": False}}, wifis={"x": {}}),
            (dumped({"enP8s8": {"dhcp4": False}, "enp1s0f1np1": ETHERNETS["enp1s0f1np1"]}, wifis={"x": {}}), 0o644),
        ),
    ],
    ids=["unchanged: to the letter", "deleted", "defined again", "edited, and its mode"],
)
def test_a_removal_keeps_what_the_owner_did_since(
    folders: Host, edited: str | None, expected: tuple[str | None, int | None]
) -> None:
    path = folders.write("40-cx7.yaml", CX7, 0o640)
    applied(folders)
    assert "enp1s0f1np1:" not in Path(path).read_text(encoding="utf-8")
    if edited is not None:
        Path(path).unlink()
    if edited:
        folders.write("40-cx7.yaml", edited, 0o644)
    applied(folders, state="absent", takeover=False)
    assert io_rollback.io_file.read_file(path) == expected
    assert not Path(io_netplan.NETPLAN_FILE).exists()
    assert io_rollback.read(io_rollback.ORIGINAL) is None


def test_a_removal_needs_no_plan(folders: Host) -> None:
    """The entry point remove of qsfp_netplan passes no text, no rails and no MTU."""
    path = folders.write("40-cx7.yaml", CX7, 0o640)
    folders.link("enp1s0f1np1", "192.168.100.11/24")
    before = io_rollback.capture(folders.run, [path], RAILS)
    applied(folders)
    folders.link("enp1s0f1np1", "10.110.0.1/24")
    params = {"state": "absent", "content": "", "files": {}, "rails": [], "mtu": 0, "takeover": False, "timeout": 5}
    target, _others = io_netplan.target(params)
    differences = partial(io_netplan.differences, folders.run, params, target)
    assert f"{path} differs" in differences()
    given = {**params, "identifier": "two", "confirm_timeout": 60}
    assert netplan_apply.change(folders.run, given, target, differences) == ("two", "")
    assert io_rollback.confirm(folders.run, "two")
    assert io_rollback.capture(folders.run, [path], RAILS) == before
    assert not Path(io_netplan.NETPLAN_FILE).exists()
    assert io_rollback.read(io_rollback.ORIGINAL) is None
    assert io_netplan.differences(folders.run, params, io_netplan.target(params)[0]) == []


def test_a_file_that_is_no_yaml_any_more_is_refused_and_left_alone(folders: Host) -> None:
    folders.write("40-cx7.yaml", CX7)
    applied(folders)
    path = folders.write("40-cx7.yaml", "network:\n  wifis: {wlP9s9: {password: *hunter2}}\n")
    with pytest.raises(io_rollback.NetplanError, match=r"40-cx7\.yaml is not YAML \(line 2\)$"):
        io_netplan.target({**PARAMS, "state": "absent"})
    assert "hunter2" in Path(path).read_text(encoding="utf-8")


def test_what_was_taken_out_twice_comes_back_as_it_was_the_last_time(folders: Host) -> None:
    path = folders.write("40-cx7.yaml", dumped({name: {"mtu": 1500} for name in (*RAILS, "enP7s7")}))
    applied(folders)
    # Its owner adds one of the two again, and more.
    mine = {"enP7s7": {"mtu": 1500}, "enp1s0f1np1": {"mtu": 4000}, "enP8s8": {"dhcp4": False}}
    folders.write("40-cx7.yaml", dumped(mine))
    applied(folders)
    found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["network"]["ethernets"]
    assert list(found) == ["enP7s7", "enP8s8"]
    applied(folders, state="absent")
    assert yaml.safe_load(Path(path).read_text(encoding="utf-8"))["network"]["ethernets"] == {
        **mine,
        "enP2p1s0f1np1": {"mtu": 1500},
    }


def test_a_file_whose_owner_defined_all_again_comes_back_to_the_letter(folders: Host) -> None:
    path = folders.write("40-cx7.yaml", CX7)
    applied(folders)
    mine = "# mine\n" + dumped({name: {"mtu": 4000} for name in RAILS})
    folders.write("40-cx7.yaml", mine, 0o640)
    applied(folders)
    assert "mtu" not in Path(path).read_text(encoding="utf-8")
    applied(folders, state="absent", takeover=False)
    assert io_rollback.io_file.read_file(path) == (mine, 0o640)


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
@pytest.mark.parametrize(
    ("before", "after"),
    [("old", "new"), ("", "new"), ("old", ""), ("old", "old")],
    ids=["changed", "added", "removed", "none"],
)
def test_what_somebody_else_did_not_apply_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, refused: bool, before: str, after: str
) -> None:
    host = tmp_path / "host"
    generated = tuple((f"{host}{folder}", start, end) for folder, start, end in io_netplan._GENERATED)
    monkeypatch.setattr(io_netplan, "NETPLAN_FOLDERS", ("/etc/netplan",))
    monkeypatch.setattr(io_netplan, "_GENERATED", generated)

    def write(root: str, text: str) -> None:
        Path(root, name).parent.mkdir(parents=True)
        if text:
            Path(root, name).write_text(text, encoding="utf-8")

    def generate(argv: list[str]) -> tuple[int, str, str]:
        # The command netplan itself reloads systemd.
        assert argv[0].startswith("/usr/libexec/netplan/") and argv[1] == "--root-dir"
        write(f"{argv[-1]}{host}", after)
        return 0, "", ""

    write(str(host), before)
    said = io_netplan.refusal(generate, {}, ["enp1s0f1np1"], str(tmp_path / "scratch"))
    changed_by_others = refused and before != after
    assert (bool(said), Path(name).name in said) == (changed_by_others, changed_by_others), said


def path(peer: str, small: bool = False) -> dict[str, Any]:
    return {"interface": "enp1s0f1np1", "peer": peer, "address": "10.110.0.9", "reported": "silence", "small": small}


def outcome(node: str, *unverified: dict[str, Any], problem: str = "", pending: str = "") -> dict[str, Any]:
    return {"node": node, "problem": problem, "unverified": list(unverified), "pending": pending}


CABLE = "check the cable, the port (gb10_fabric_ports), and that the other end is up."
MTU = (
    "a device carries less than 9000 bytes. Check the MTU of its interfaces and of the switch's ports, or set "
    "gb10_fabric_mtu."
)


@pytest.mark.parametrize(
    ("outcomes", "last"),
    [
        pytest.param(
            [outcome("a", path("b")), outcome("b", path("a"))],
            f"Each end may be at fault: {CABLE}",
            id="a pair blames nobody",
        ),
        pytest.param(
            [outcome("a", path("c")), outcome("b", path("c")), outcome("c", path("a"), path("b"))],
            f"Every failing path ends at c: {CABLE}",
            id="one of three",
        ),
        pytest.param(
            [outcome("a", path("c", small=True)), outcome("b"), outcome("c")],
            f"Each end may be at fault: {MTU}",
            id="one way",
        ),
        pytest.param(
            [outcome("a", path("c", small=True)), outcome("b", path("c", small=True)), outcome("c")],
            f"Every failing path ends at c: {MTU}",
            id="MTU",
        ),
        pytest.param(
            [outcome("a", path("b")), outcome("b"), outcome("c", path("d")), outcome("d")],
            f"Each end may be at fault: {CABLE}",
            id="two cables",
        ),
        pytest.param(
            [outcome("a", pending="1"), outcome("b", problem="it was cut off"), outcome("c", pending="2")],
            "The configuration from before this run is restored on a, c.",
            id="what was put back",
        ),
        pytest.param([outcome("a", pending="1"), outcome("b")], "", id="all is well"),
    ],
)
def test_the_report_has_each_problem_and_the_node_that_all_failing_paths_share(
    outcomes: list[dict[str, Any]], last: str
) -> None:
    problems = [f"  {each['node']}: {each['problem']}." for each in outcomes if each["problem"]]
    paths = [
        f"  {each['node']} enp1s0f1np1 -> {found['peer']} (10.110.0.9): silence"
        for each in outcomes
        for found in each["unverified"]
    ]
    lines = ["The fabric is not as planned.", *problems, *paths, last] if last else []
    assert fabric_report.report(outcomes, 9000) == "\n".join(lines)


SKIPPED = {"changed": False, "skipped": True}
APPLIED = {"changed": True, "differences": ["x"], "pending": "12", "problem": ""}
CUT_OFF = {"changed": False, "differences": [], "pending": "", "problem": "it was cut off"}


@pytest.mark.parametrize(
    ("fault", "report", "states"),
    [
        ({"head_change": SKIPPED, "worker_change": {**APPLIED, "pending": "11"}}, "", ["confirmed", "confirmed"]),
        ({"worker_change": SKIPPED}, "", ["confirmed"]),
        ({"worker_change": CUT_OFF}, "The fabric is not as planned.", ["restored"]),
        ({"probe": {"unverified": [path("spark1")]}}, "The fabric is not as planned.", ["restored"]),
    ],
    ids=["all changed", "one changed", "cut off", "no reply"],
)
def test_a_problem_of_one_node_restores_all(fault: dict[str, Any], report: str, states: list[str]) -> None:
    nodes = {"spark1": {"head_change": APPLIED, "probe": SKIPPED}, "spark2": {"probe": SKIPPED, **fault}}
    asked = []
    for node in nodes:
        plan = fact({})
        plan["node"] = next(each for each in plan["nodes"] if each["name"] == node)
        arguments = {"changes": ["worker_change", "head_change"], "probe": "probe"}
        answer, calls = decide("netplan_verdict", arguments, plan, nodes, {"changed": True, "pending": "", "last": {}})
        assert (answer["report"].partition("\n")[0], answer["pending"]) == (report, "")
        asked += calls
    # A node where nothing is pending is not asked.
    assert asked == [
        {"identifier": pending, "state": state} for pending, state in zip(("12", "11"), states, strict=False)
    ]


def test_the_role_confirms_or_restores_and_then_ends_the_run() -> None:
    tasks = load_yaml(read("roles/qsfp_netplan/tasks/apply.yml"))
    (confirm,) = [index for index, task in enumerate(tasks) if "gb10.cluster.step" in task]
    (stop,) = [index for index, task in enumerate(tasks) if "ansible.builtin.fail" in task]
    assert confirm < stop
    assert tasks[stop]["when"] == f"{tasks[confirm]['register']}.report | length > 0"
