"""Tests of discovery: cables, topology, findings and inventory files from each machine's view of its ports."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from sparks import KEY, PAIR, RING3, asked, mac, machine, machines, name, sees

from ansible_collections.gb10.cluster.plugins.module_utils.discovery import inventory as discovery_inventory
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import plan as discovery_plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

RING4 = (((1, 0), (2, 1)), ((2, 0), (3, 1)), ((3, 0), (4, 1)), ((4, 0), (1, 1)))


@pytest.mark.parametrize(
    ("wires", "topology", "order", "ports"),
    [
        pytest.param([], "none", [1], {}, id="a lone Spark"),
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
    found = discovery_plan.discover(machines(*wires, count=len(order)))
    assert [str(problem) for problem in found.problems] == []
    assert (found.proposal.topology, found.proposal.machines) == (topology, tuple(map(name, order)))
    assert found.proposal.ports == {name(number): tuple(value) for number, value in ports.items()}
    assert wires or found.notes == ()


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


def test_a_ring_cabled_port_to_same_port_works_and_is_noted() -> None:
    found = discovery_plan.discover(machines(((1, 0), (2, 0)), ((2, 1), (3, 1)), ((3, 0), (1, 1))))
    assert (found.proposal.topology, found.problems) == ("ring", ())
    assert found.proposal.ports == {"spark1": (0, 1), "spark2": (1, 0), "spark3": (0, 1)}
    assert [note.path for note in found.notes] == ["spark1 port 0 - spark2 port 0", "spark2 port 1 - spark3 port 1"]


def test_strangers_are_found_one_after_the_other() -> None:
    """In a ring of four, the first sees two, and only those two see the fourth."""
    known = [machine(1, RING4)]
    first = discovery_plan.pending_hosts(known)
    assert [(found["label"], found["via"], found["port"], found["macs"]) for found in first] == [
        ("spark2", "spark1", 0, [mac(2, 1, 0), mac(2, 1, 1)]),
        ("spark4", "spark1", 1, [mac(4, 0, 0), mac(4, 0, 1)]),
    ]
    known += [asked(found, *RING4) for found in first]
    (last,) = discovery_plan.pending_hosts(known)
    assert (last["label"], last["via"], last["login"]["user"]) == ("spark3", first[0]["name"], "nvidia")
    known.append(asked(last, *RING4))
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


SWITCH = ((1, 1), (2, 1), (3, 1))


def queried(known: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    """Return the machines with all that they see, which did not answer, or which have these changes."""
    return [*known, *({**found, **(changes or {"unreachable": "no"})} for found in discovery_plan.pending_hosts(known))]


def changed(number: int, path: str, value: Any, *more: tuple[str, Any]) -> list[dict[str, Any]]:
    """Return a pair on one cable, of which a machine has other values at paths in its answer."""
    pair = machines(PAIR)
    for where, new in ((path, value), *more):
        target = pair[number - 1]["observed"]
        *above, last = where.split("/")
        for part in above:
            target = target[part]
        target[last] = new
    return pair


def switch_without_key() -> list[dict[str, Any]]:
    """Return two Sparks that see the managed switch between them: it answers pings, and has no SSH key."""
    known = machines(SWITCH)[:2]
    for entry in (entry for each in known for seen in each["observed"]["neighbors"].values() for entry in seen):
        if entry["name"] == "spark3":
            entry.update(name="", host_key="")
    return queried(known)


ABSENT = {**machine(3, []), "observed": {}, "unreachable": "Connection timed out"}
#: The machines, and the only problem of them.
PROBLEMS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no cable": (machines(count=2), "cables: no connection between spark1 and spark2"),
    "a ring's cable is missing": (
        machines(*RING3[:2]),
        "a ring of 3 Sparks lacks the cable between spark1 port 1 and spark3 port 0",
    ),
    "one is not connected": (
        machines(PAIR, count=3),
        "not all Sparks are connected: spark1 and spark2; spark3",
    ),
    "two pairs": (
        machines(((1, 0), (2, 1)), ((1, 1), (2, 0)), ((3, 0), (4, 1)), ((3, 1), (4, 0))),
        "not all Sparks are connected: spark1 and spark2; spark3 and spark4",
    ),
    "not on the switch": (
        machines(SWITCH, count=4),
        "spark4: it is not connected to the switch of spark1 port 1",
    ),
    "the same machine twice": (
        [machine(1, [PAIR]), {**machine(1, [PAIR]), "name": "192.168.2.1"}],
        "192.168.2.1: it is the same machine as spark1",
    ),
    "a given machine does not answer": ([*machines(PAIR), ABSENT], "spark3: Connection timed out"),
    "no address without the cable": (
        [
            machine(1, [PAIR]),
            asked(discovery_plan.pending_hosts([machine(1, [PAIR])])[0], PAIR, direct="Task failed: x."),
        ],
        "spark2: x. Expected: an address that reaches this machine without the cable",
    ),
    "no host key at the end of a cable": (
        queried(machines(PAIR)[:1], host_key="", unreachable="no key"),
        "start sshd there",
    ),
}


@pytest.mark.parametrize(("known", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_keeps_the_inventory_from_being_written(known: list[dict[str, Any]], expected: str) -> None:
    assert [expected in str(problem) for problem in discovery_plan.discover(known).problems] == [True]


INTERFACES = machine(1, [PAIR])["observed"]["interfaces"]
#: The machines, their topology, and a note about them.
NOTES: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "one PCIe function without carrier": (
        changed(1, "interfaces/enp1s0f1np1/carrier", False),
        "direct",
        "spark1 port 1: enp1s0f1np1 has no carrier, but the port's other PCIe function has",
    ),
    "down": (
        changed(2, "interfaces/enp1s0f0np0/up", False),
        "direct",
        "`sudo ip link set enp1s0f0np0 up` and run again",
    ),
    "nobody answers": (
        changed(1, "interfaces/enp1s0f0np0/carrier", True, ("neighbors/enp1s0f0np0", [])),
        "direct",
        "spark1 port 0: a cable is connected (enp1s0f0np0 with carrier), but no machine",
    ),
    "an interface is missing": (
        changed(1, "interfaces", {key: INTERFACES[key] for key in INTERFACES if key != "enP2p1s0f0np0"}),
        "direct",
        "enP2p1s0f0np0 does not exist",
    ),
    "no Spark": (
        [{**machine(1, []), "observed": {**machine(1, [])["observed"], "interfaces": {"eth0": {"mac": None}}}}],
        "none",
        "it has none of the QSFP interfaces of a Spark",
    ),
    "the switch itself": (switch_without_key(), "switch", "a switch may have none"),
}


@pytest.mark.parametrize(("known", "topology", "expected"), NOTES.values(), ids=NOTES)
def test_a_note_does_not(known: list[dict[str, Any]], topology: str, expected: str) -> None:
    found = discovery_plan.discover(known)
    assert (found.proposal.topology, found.problems) == (topology, ())
    assert any(expected in str(note) for note in found.notes), found.notes


def test_a_port_of_which_nothing_can_be_said_says_why() -> None:
    silent = {"enp1s0f1np1": [], "enP2p1s0f1np1": []}
    unheard = ("unheard", {"enp1s0f1np1": "it has no IPv6 link-local address"})
    alone = changed(1, "neighbors", silent, unheard)[:1]
    (problem,) = discovery_plan.discover(alone).problems
    assert "but it has no IPv6 link-local address" in str(problem)
    assert discovery_plan.discover(alone, partial=True).notes == (problem,)


def test_a_machine_that_cannot_be_asked_is_a_problem_or_a_note_where_a_part_is_enough() -> None:
    known = queried(machines(*RING3)[:2])
    macs = ", ".join(f"02:00:00:00:03:0{number}" for number in range(4))
    text = str(discovery_plan.discover(known).problems[0])
    assert f"spark1 port 1: found a machine (spark3), {macs}, that cannot be queried: no" in text
    assert "`ssh -J nvidia@192.168.1.1 nvidia@fe80::3:0%enp1s0f1np1`" in text
    assert discovery_plan.pending_hosts(known) == []
    found = discovery_plan.discover(known, partial=True)
    ports = {"spark1": (0,), "spark2": (1,)}
    assert (found.proposal.topology, found.proposal.ports, found.problems) == ("direct", ports, ())
    assert "cannot be queried" in str(found.notes[0])
    assert discovery_inventory.summary(known, found) == [
        "spark1, spark2: topology direct",
        "cable: spark1 port 0 - spark2 port 1",
        "cable: spark1 port 1 - an unqueried machine",
        "cable: spark2 port 0 - an unqueried machine",
    ]


def test_neither_a_ring_nor_a_cluster_without_an_answer_is_written_in_part() -> None:
    (problem,) = discovery_plan.discover(queried(machines(*RING4)[:3]), partial=True).problems
    assert "the ring includes an unqueried machine, at spark1 port 1 and spark3 port 0" in str(problem)
    (problem,) = discovery_plan.discover([ABSENT], partial=True).problems
    assert "spark3: Connection timed out" in str(problem)


def test_a_server_on_the_switch_is_no_part_of_the_cluster() -> None:
    interfaces = {f"eth{side}": {"mac": mac(3, 1, side)} for side in (0, 1)}
    known = queried(machines(SWITCH)[:2], observed={**machine(3, [])["observed"], "interfaces": interfaces})
    found = discovery_plan.discover(known)
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
    login = {"user": "nvidia", "key": "~/.ssh/k", "port": 2222, "arguments": "-o ProxyJump=a%b", "local": False}
    known = [machine(1, wires, login=login)]
    known += [asked(found, *wires) for found in discovery_plan.pending_hosts(known)]
    return known + [asked(found, *wires) for found in discovery_plan.pending_hosts(known)]


def test_ssh_leads_from_one_to_the_next() -> None:
    login = "-o ProxyJump=a%%b -p 2222 -l nvidia -i '~/.ssh/k'"
    block = """Host found-{0}
  HostName fe80::{1}%%enp1s0f0np0
  HostKeyAlias found-{0}
  UserKnownHostsFile "/tmp/x/known_hosts"
  StrictHostKeyChecking yes
  ConnectTimeout 10
  ServerAliveInterval 5
  User "nvidia"
  IdentityFile "~/.ssh/k"
  ProxyCommand ssh -o BatchMode=yes -o ServerAliveInterval=5 {2}
"""
    assert discovery_inventory.ssh_config(chain(), "/tmp/x") == (
        block.format("020000000202", "2:10", f"{login} -W '[%h]:%p' 192.168.1.1")
        + block.format("020000000302", "3:10", "-F /tmp/x/ssh_config -W '[%h]:%p' found-020000000202")
        + "Match all\n  Include ~/.ssh/config\n"
    )


def test_the_command_to_try_by_hand() -> None:
    """Each ssh of the chain expands the zones of earlier hops once more, so their percent signs are doubled."""
    known = chain()
    jump = "-J 'nvidia@192.168.1.1,nvidia@[fe80::2:10%%enp1s0f0np0]' "
    assert discovery_plan.try_command(known[2], known) == f"ssh {jump}nvidia@fe80::3:10%enp1s0f0np0"
    # This very machine needs no jump.
    known[0]["login"]["local"] = True
    assert "ProxyCommand" not in discovery_inventory.ssh_config(known[:2], "/tmp/x")
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


def test_a_machine_on_a_cable_is_queried_if_it_has_a_host_key_and_keeps_its_answer_or_the_reason() -> None:
    given, (found,) = machine(1, [PAIR]), discovery_plan.pending_hosts([machine(1, [PAIR])])
    queries = [discovery_plan.can_be_queried(each) for each in (given, found, {**found, "host_key": ""})]
    assert queries == [True, True, False]
    # Only a found machine must be reached without the cable, too.
    direct, answer = {"direct": discovery_plan.NO_ADDRESS}, {"hostname": "x"}
    assert discovery_plan.answered(found, answer, "") == {**found, "unreachable": "", "observed": answer, **direct}
    assert discovery_plan.answered(found, answer, "no") == {**found, "unreachable": "no", "observed": {}, **direct}
    assert discovery_plan.answered(given, {}, "") == {**given, "observed": {}}
