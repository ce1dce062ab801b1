"""Tests of discovery: cables, topology, findings and inventory files from each machine's view of its ports."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from sparks import KEY, PAIR, RING3, asked, mac, machine, machines, name, sees

from ansible_collections.gb10.cluster.plugins.module_utils.discovery import inventory as discovery_inventory
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import plan as discovery_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS


@pytest.mark.parametrize(
    ("wires", "topology", "order", "ports"),
    [
        pytest.param([PAIR], "direct", [1, 2], {1: [1], 2: [1]}, id="pair, one cable"),
        pytest.param([((1, 0), (2, 0)), PAIR], "direct", [1, 2], {1: [0, 1], 2: [0, 1]}, id="pair, two cables"),
        pytest.param(
            [((1, 0), (2, 1)), ((1, 1), (2, 0))],
            "direct",
            [1, 2],
            {1: [0, 1], 2: [1, 0]},
            id="pair, two crossed cables",
        ),
        pytest.param([((1, 0), (2, 1))], "direct", [1, 2], {1: [0], 2: [1]}, id="pair, different ports"),
        pytest.param(RING3, "ring", [1, 2, 3], {number: [0, 1] for number in (1, 2, 3)}, id="ring of three"),
        pytest.param(
            [((1, 0), (4, 1)), ((4, 0), (2, 1)), ((2, 0), (3, 1)), ((3, 0), (1, 1))],
            "ring",
            [1, 4, 2, 3],
            {number: [0, 1] for number in (1, 2, 3, 4)},
            id="ring of four, in the order of the cables",
        ),
        pytest.param(
            [((1, 1), (2, 1), (3, 1), (4, 1))],
            "switch",
            [1, 2, 3, 4],
            {number: [1] for number in (1, 2, 3, 4)},
            id="switch of four",
        ),
        pytest.param(
            [((1, 0), (2, 1), (3, 0)), ((1, 1), (2, 0), (3, 1))],
            "switch",
            [1, 2, 3],
            {1: [0, 1], 2: [1, 0], 3: [0, 1]},
            id="two switches",
        ),
        pytest.param(
            [((1, 0), (2, 0), (3, 0)), ((1, 1), (2, 1), (3, 1), (4, 1))],
            "switch",
            [1, 2, 3, 4],
            {number: [1] for number in (1, 2, 3, 4)},
            id="two switches, one without the last Spark",
        ),
        pytest.param(
            [((1, 0), (1, 1), (2, 0), (2, 1))], "switch", [1, 2], {1: [0], 2: [0]}, id="both ports into one switch"
        ),
    ],
)
def test_topology(wires: Any, topology: str, order: list[int], ports: dict[int, list[int]]) -> None:
    found = discovery_plan.discover(machines(*wires))
    assert [str(problem) for problem in found.problems] == []
    assert found.proposal.topology == topology
    assert found.proposal.machines == tuple(name(number) for number in order)
    assert {key: list(value) for key, value in found.proposal.ports.items()} == {
        name(number): value for number, value in ports.items()
    }


def test_a_lone_spark_needs_no_fabric() -> None:
    found = discovery_plan.discover(machines(count=1))
    assert (found.proposal.topology, found.proposal.machines, found.problems, found.notes) == (
        "none",
        ("spark1",),
        (),
        (),
    )


def test_twins_that_see_both_twins_of_the_other_are_one_cable() -> None:
    """Both PCIe functions of a port share its cable, so each may see more than its counterpart."""
    pair = machines(PAIR)
    for number, (one, other) in enumerate([(1, 2), (2, 1)]):
        everybody = [sees(other, 1, 0), sees(other, 1, 1), sees(one, 1, 0), sees(one, 1, 1)]
        for twin in SPARK_PORTS[1]:
            own = pair[number]["observed"]["interfaces"][twin.interface]["mac"]
            pair[number]["observed"]["neighbors"][twin.interface] = [
                entry for entry in everybody if entry["mac"] != own
            ]
    found = discovery_plan.discover(pair)
    assert (found.proposal.topology, found.problems) == ("direct", ())
    assert [[str(port) for port in segment.ports] for segment in found.segments] == [["spark1 port 1", "spark2 port 1"]]


def test_what_one_end_sees_is_enough() -> None:
    pair = machines(PAIR)
    pair[1]["observed"]["neighbors"] = {}
    assert discovery_plan.discover(pair).proposal.topology == "direct"


@pytest.mark.parametrize(
    ("wires", "count", "expected"),
    [
        pytest.param([], 2, "cables: no connection between spark1 and spark2", id="no cable"),
        pytest.param(
            RING3[:2],
            3,
            "a ring of 3 Sparks lacks the cable between spark1 port 1 and spark3 port 0",
            id="a ring's cable is missing",
        ),
        pytest.param([PAIR], 3, "not all Sparks are connected: spark1 and spark2; spark3", id="one is not connected"),
        pytest.param(
            [((1, 0), (2, 1)), ((1, 1), (2, 0)), ((3, 0), (4, 1)), ((3, 1), (4, 0))],
            4,
            "not all Sparks are connected: spark1 and spark2; spark3 and spark4",
            id="two pairs",
        ),
        pytest.param(
            [((1, 1), (2, 1), (3, 1))],
            4,
            "spark4: it is not connected to the switch of spark1 port 1",
            id="not on the switch",
        ),
    ],
)
def test_wrong_cabling_is_a_problem(wires: Any, count: int, expected: str) -> None:
    found = discovery_plan.discover(machines(*wires, count=count))
    assert found.proposal.topology == ""
    assert [expected in str(problem) for problem in found.problems] == [True]


def test_a_ring_cabled_port_to_same_port_works_and_is_noted() -> None:
    found = discovery_plan.discover(machines(((1, 0), (2, 0)), ((2, 1), (3, 1)), ((3, 0), (1, 1))))
    assert (found.proposal.topology, found.problems) == ("ring", ())
    assert found.proposal.ports == {"spark1": (0, 1), "spark2": (1, 0), "spark3": (0, 1)}
    assert [note.path for note in found.notes] == ["spark1 port 0 - spark2 port 0", "spark2 port 1 - spark3 port 1"]


def interface(number: int, port: int, twin: int, **changes: Any) -> list[dict[str, Any]]:
    """Return a pair on one cable with one PCIe function changed. Without carrier it sees no neighbors."""
    pair = machines(PAIR)
    observed, device = pair[number - 1]["observed"], SPARK_PORTS[port][twin].interface
    if changes.pop("silent", False):
        observed["neighbors"][device] = []
    observed["interfaces"][device] |= changes
    if not (observed["interfaces"][device]["carrier"] and observed["interfaces"][device]["up"]):
        observed["neighbors"].pop(device, None)
    return pair


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        pytest.param(
            interface(1, 1, 0, carrier=False),
            "spark1 port 1: enp1s0f1np1 has no carrier, but the port's other PCIe function has",
            id="one twin",
        ),
        pytest.param(interface(2, 0, 0, up=False), "`sudo ip link set enp1s0f0np0 up` and run again", id="down"),
        pytest.param(
            interface(1, 0, 0, carrier=True, silent=True),
            "spark1 port 0: a cable is connected (enp1s0f0np0 with carrier), but no machine",
            id="nobody answers",
        ),
    ],
)
def test_notes_about_ports(pair: list[dict[str, Any]], expected: str) -> None:
    found = discovery_plan.discover(pair)
    assert (found.proposal.topology, found.problems) == ("direct", ())
    assert any(expected in str(note) for note in found.notes), found.notes


def test_a_port_of_which_nothing_can_be_said_says_why() -> None:
    (alone,) = machines(PAIR)[:1]
    alone["observed"] |= {
        "neighbors": {"enp1s0f1np1": [], "enP2p1s0f1np1": []},
        "unheard": {"enp1s0f1np1": "it has no IPv6 link-local address"},
    }
    (problem,) = discovery_plan.discover([alone]).problems
    assert "but it has no IPv6 link-local address" in str(problem)
    assert discovery_plan.discover([alone], partial=True).notes == (problem,)


def test_a_missing_interface_and_no_spark() -> None:
    pair = machines(PAIR)
    del pair[0]["observed"]["interfaces"]["enP2p1s0f0np0"]
    assert any("enP2p1s0f0np0 does not exist" in str(note) for note in discovery_plan.discover(pair).notes)
    alone = machines(count=1)
    alone[0]["observed"]["interfaces"] = {"eth0": {"mac": None, "up": True, "carrier": True}}
    assert [
        "it has none of the QSFP interfaces of a Spark" in str(note) for note in discovery_plan.discover(alone).notes
    ] == [True]


def test_the_same_machine_given_twice() -> None:
    twice = [machine(1, [PAIR]), {**machine(1, [PAIR]), "name": "192.168.2.1"}]
    assert [
        "it is the same machine as spark1" in str(problem) for problem in discovery_plan.discover(twice).problems
    ] == [True]


def test_strangers_are_found_one_after_the_other() -> None:
    """In a ring of four, the first sees two, and only those two see the fourth."""
    wires = (((1, 0), (2, 1)), ((2, 0), (3, 1)), ((3, 0), (4, 1)), ((4, 0), (1, 1)))
    known = [machine(1, wires)]
    first = discovery_plan.pending_hosts(known)
    assert [(found["label"], found["via"], found["port"], found["macs"]) for found in first] == [
        ("spark2", "spark1", 0, [mac(2, 1, 0), mac(2, 1, 1)]),
        ("spark4", "spark1", 1, [mac(4, 0, 0), mac(4, 0, 1)]),
    ]
    known += [asked(found, *wires) for found in first]
    (last,) = discovery_plan.pending_hosts(known)
    assert (last["label"], last["via"], last["login"]["user"]) == ("spark3", first[0]["name"], "nvidia")
    known.append(asked(last, *wires))
    assert discovery_plan.pending_hosts(known) == []
    found = discovery_plan.discover(discovery_plan.settled(known))
    assert (found.proposal.topology, found.proposal.machines) == ("ring", ("spark1", "spark2", "spark3", "spark4"))


def test_two_machines_with_one_host_key_are_asked_one_after_the_other() -> None:
    """Cloned images share keys. The second machine has MAC addresses that the first does not report."""
    seed = machine(1, RING3)
    (first,) = discovery_plan.pending_hosts([with_one_key(seed)])
    known = [seed, with_one_key(asked(first, *RING3))]
    (second,) = discovery_plan.pending_hosts(known)
    assert (first["name"], second["macs"]) == (
        f"found-{mac(2, 1, 0).replace(':', '')}",
        [mac(3, 0, 0), mac(3, 0, 1), mac(3, 1, 0), mac(3, 1, 1)],
    )


def with_one_key(seer: dict[str, Any]) -> dict[str, Any]:
    for entry in (entry for entries in seer["observed"]["neighbors"].values() for entry in entries):
        entry["host_key"] = KEY
    return seer


def failed(reason: str = "Permission denied (publickey).") -> list[dict[str, Any]]:
    seed = machines(*RING3)[:2]
    return [*seed, *[{**found, "unreachable": reason} for found in discovery_plan.pending_hosts(seed)]]


def test_a_machine_that_cannot_be_asked_is_a_problem() -> None:
    found = discovery_plan.discover(failed())
    text = str(found.problems[0])
    assert (
        "spark1 port 1: found a machine (spark3), 02:00:00:00:03:00, 02:00:00:00:03:01, 02:00:00:00:03:02, "
        "02:00:00:00:03:03"
    ) in text
    assert "`ssh -J nvidia@192.168.1.1 nvidia@fe80::3:0%enp1s0f1np1`" in text
    assert discovery_plan.pending_hosts(failed()) == []


def test_or_a_note_where_a_part_is_enough() -> None:
    found = discovery_plan.discover(failed(), partial=True)
    assert (found.proposal.topology, found.proposal.ports, found.problems) == (
        "direct",
        {"spark1": (0,), "spark2": (1,)},
        (),
    )
    assert "cannot be queried" in str(found.notes[0])


def test_the_switch_itself_may_be_seen() -> None:
    """A managed switch replies to pings on its own address, and has no SSH key.

    At the end of a cable such a machine is a Spark without sshd.
    """
    known = machines(((1, 1), (2, 1), (3, 1)))[:2]
    for entries in (entries for entry in known for entries in entry["observed"]["neighbors"].values()):
        entries[:] = [
            entry if entry["name"] != "spark3" else {**entry, "name": "", "host_key": ""} for entry in entries
        ]
    found = discovery_plan.discover(
        [*known, *[{**stranger, "unreachable": "no key"} for stranger in discovery_plan.pending_hosts(known)]]
    )
    assert (found.proposal.topology, found.problems) == ("switch", ())
    assert all("a switch may have none" in str(note) for note in found.notes)
    alone = machines(PAIR)[:1]
    (stranger,) = [
        {**stranger, "host_key": "", "unreachable": "no key"} for stranger in discovery_plan.pending_hosts(alone)
    ]
    assert ["start sshd there" in str(problem) for problem in discovery_plan.discover([*alone, stranger]).problems] == [
        True
    ]


def test_a_ring_is_not_written_in_part() -> None:
    wires = (((1, 0), (2, 1)), ((2, 0), (3, 1)), ((3, 0), (4, 1)), ((4, 0), (1, 1)))
    known = machines(*wires)[:3]
    known += [{**found, "unreachable": "no"} for found in discovery_plan.pending_hosts(known)]
    (problem,) = discovery_plan.discover(known, partial=True).problems
    assert "the ring includes an unqueried machine, at spark1 port 1 and spark3 port 0" in str(problem)


def test_a_given_machine_that_does_not_answer() -> None:
    absent = {**machine(3, []), "observed": {}, "unreachable": "Connection timed out"}
    found = discovery_plan.discover([*machines(PAIR), absent])
    assert [str(problem).partition(".")[0] for problem in found.problems] == ["spark3: Connection timed out"]
    assert discovery_plan.discover([absent], partial=True).problems == found.problems


def test_found_without_an_address_of_its_own() -> None:
    known = machines(PAIR)[:1]
    (stranger,) = discovery_plan.pending_hosts(known)
    found = discovery_plan.discover([*known, asked(stranger, PAIR, direct="Connection timed out")])
    assert ["spark2: Connection timed out" in str(problem) for problem in found.problems] == [True]


def test_a_server_on_the_switch_is_no_part_of_the_cluster() -> None:
    wires = (((1, 1), (2, 1), (3, 1)),)
    known = machines(*wires)[:2]
    (server,) = discovery_plan.pending_hosts(known)
    answer = {**machine(3, [])["observed"], "interfaces": {f"eth{side}": {"mac": mac(3, 1, side)} for side in (0, 1)}}
    found = discovery_plan.discover([*known, {**server, "observed": answer}])
    assert (found.proposal.topology, found.proposal.machines, found.problems) == ("switch", ("spark1", "spark2"), ())


@pytest.mark.parametrize(
    ("given", "hostnames", "expected"),
    [
        pytest.param(["a", "b"], ["x", "y"], ["a", "b"], id="the user's names"),
        pytest.param(
            ["192.168.1.1", "fe80::1"],
            ["Spark-1f", "spark-2e"],
            ["spark-1f", "spark-2e"],
            id="host names for addresses",
        ),
        pytest.param(["192.168.1.1", "192.168.1.2"], ["spark", "spark"], ["spark", "spark-2"], id="twice the same"),
        pytest.param(["localhost", "b"], ["localhost", "y"], ["spark", "b"], id="no name"),
        pytest.param(["192.168.1.1", "spark"], ["spark", "y"], ["spark-2", "spark"], id="the user's name comes first"),
    ],
)
def test_names(given: list[str], hostnames: list[str], expected: list[str]) -> None:
    known = machines(PAIR)
    for entry, called, hostname in zip(known, given, hostnames, strict=True):
        entry["name"] = called
        entry["observed"]["hostname"] = hostname
    assert [entry["name"] for entry in discovery_plan.settled(known)] == expected


def chain() -> list[dict[str, Any]]:
    """Return spark1 (given), spark2 connected to it, and spark3 connected to spark2."""
    wires = RING3[:2]
    known = [
        {
            **machine(1, wires),
            "login": {
                "user": "nvidia",
                "key": "~/.ssh/k",
                "port": 2222,
                "arguments": "-o ProxyJump=a%b",
                "local": False,
            },
        }
    ]
    known += [asked(found, *wires) for found in discovery_plan.pending_hosts(known)]
    return known + [asked(found, *wires) for found in discovery_plan.pending_hosts(known)]


def test_ssh_leads_from_one_to_the_next() -> None:
    first, second = [
        block.splitlines()
        for block in discovery_inventory.ssh_config(chain(), "/tmp/x").split("Match all")[0].split("Host ")[1:]
    ]
    assert first[0] == "found-020000000202"
    assert "  HostName fe80::2:10%%enp1s0f0np0" in first
    assert "  StrictHostKeyChecking yes" in first
    assert '  UserKnownHostsFile "/tmp/x/known_hosts"' in first
    jump = next(line.removeprefix("  ProxyCommand ") for line in first if "ProxyCommand" in line)
    login = ["-o", "ProxyJump=a%%b", "-p", "2222", "-l", "nvidia", "-i", "~/.ssh/k"]
    assert shlex.split(jump)[-11:] == [*login, "-W", "[%h]:%p", "192.168.1.1"]
    jump = next(line.removeprefix("  ProxyCommand ") for line in second if "ProxyCommand" in line)
    assert shlex.split(jump)[-5:] == ["-F", "/tmp/x/ssh_config", "-W", "[%h]:%p", "found-020000000202"]


def test_the_command_to_try_by_hand() -> None:
    """Each ssh of the chain expands the zones of earlier hops once more, so their percent signs are doubled."""
    known = chain()
    assert (
        discovery_plan.try_command(known[2], known)
        == "ssh -J 'nvidia@192.168.1.1,nvidia@[fe80::2:10%%enp1s0f0np0]' nvidia@fe80::3:10%enp1s0f0np0"
    )


def test_this_very_machine_needs_no_jump() -> None:
    known = chain()[:2]
    known[0]["login"]["local"] = True
    assert "ProxyCommand" not in discovery_inventory.ssh_config(known, "/tmp/x")
    assert discovery_plan.try_command(known[1], known) == "ssh nvidia@fe80::2:10%enp1s0f0np0"


def test_known_hosts_and_fingerprint() -> None:
    known = chain()[:2]
    known[1]["host_key"] = KEY
    assert discovery_inventory.known_hosts(known) == f"found-020000000202 {KEY}\n"
    # Output of `ssh-keygen -lf` of OpenSSH 9.2 for the same key.
    assert discovery_inventory.trusted(known) == [
        "spark2 at spark1 port 0: SHA256:wXTzBDR7LYhPhJz/UZcZ/3tkCaIhX9dlRtCCyVmhlVc"
    ]


def test_inventory() -> None:
    known = chain()[:2]
    known[0] |= {"name": "192.168.1.1"}
    known[1] |= {"via": "192.168.1.1", "host_key": KEY}
    known = discovery_plan.settled(known)
    found = discovery_plan.discover(known, partial=True)
    written = discovery_inventory.inventory(known, found)
    pinned = "-o 'UserKnownHostsFile=\"{{ inventory_dir }}/known_hosts.txt\"' -o StrictHostKeyChecking=yes"
    assert written["hosts"] == {
        "spark1": {
            "ansible_host": "192.168.1.1",
            "ansible_port": 2222,
            "ansible_ssh_common_args": "-o ProxyJump=a%b",
            "gb10_fabric_ports": [0],
        },
        "spark2": {
            "ansible_host": "192.168.1.2",
            "ansible_ssh_common_args": f"{pinned} -o ProxyJump=a%b",
            "gb10_fabric_ports": [1],
        },
    }
    assert written["variables"] == {"ansible_user": "nvidia", "ansible_ssh_private_key_file": "~/.ssh/k"}
    assert written["known_hosts"] == f"192.168.1.2 {KEY}\n"
    assert shlex.split(pinned)[1] == 'UserKnownHostsFile="{{ inventory_dir }}/known_hosts.txt"'


def test_what_all_hosts_share_is_said_once() -> None:
    known = machines(*RING3)
    written = discovery_inventory.inventory(known, discovery_plan.discover(known))
    assert written["hosts"] == {f"spark{number}": {"ansible_host": f"192.168.1.{number}"} for number in (1, 2, 3)}
    assert written["variables"]["gb10_fabric_ports"] == [0, 1]
    assert (written["known_hosts"], written["trusted"]) == ("", [])


def test_summary() -> None:
    known = failed()
    assert discovery_inventory.summary(known, discovery_plan.discover(known, partial=True)) == [
        "spark1, spark2: topology direct",
        "cable: spark1 port 0 - spark2 port 1",
        "cable: spark1 port 1 - an unqueried machine",
        "cable: spark2 port 0 - an unqueried machine",
    ]


def test_a_machine_on_a_cable_needs_a_host_key_for_its_query() -> None:
    given, (found,) = machine(1, [PAIR]), discovery_plan.pending_hosts([machine(1, [PAIR])])
    assert discovery_plan.can_be_queried(given) and discovery_plan.can_be_queried(found)
    assert not discovery_plan.can_be_queried({**found, "host_key": ""})


def test_an_answer_is_kept_or_the_reason_why_there_is_none() -> None:
    (found,) = discovery_plan.pending_hosts([machine(1, [PAIR])])
    good, silent = (
        discovery_plan.answered(found, {"hostname": "x"}, ""),
        discovery_plan.answered(found, {"hostname": "x"}, "refused"),
    )
    assert (good["unreachable"], good["observed"]) == ("", {"hostname": "x"})
    assert (silent["unreachable"], silent["observed"]) == ("refused", {})
    # Only a found machine must be reached without the cable, too.
    assert good["direct"] == silent["direct"] == discovery_plan.NO_ADDRESS
    assert "direct" not in discovery_plan.answered(machine(1, [PAIR]), {}, "")
