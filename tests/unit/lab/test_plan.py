# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's plan: valid names, cables like a Spark's, and actions that keep unchanged nodes."""

from __future__ import annotations

import dataclasses
import json
from itertools import chain
from typing import Any

import pytest

from ansible_collections.gb10.lab.plugins.module_utils import plan as lab_plan
from ansible_collections.gb10.lab.plugins.module_utils.plan import (
    FABRIC,
    Lab,
    LabError,
    Observed,
    actions,
    plan,
    stamp,
)


def nodes(count: int) -> list[str]:
    return [f"spark{i + 1}" for i in range(count)]


def ends(lab: Lab) -> list[lab_plan.End]:
    return list(chain.from_iterable((link.a, link.b) for link in lab.links))


def up(lab: Lab, node: lab_plan.LabNode, stamped: str, running: bool = True) -> Observed:
    return Observed(stamp=stamped, links=lab_plan.interfaces_of(lab, node.netns) | {"lo"}, running=running)


def stamps(lab: Lab, **inputs: str) -> dict[str, str]:
    return {node.name: stamp(lab, node, inputs) for node in lab.nodes}


def cables(lab: Lab) -> list[set[str]]:
    """Return both ends of each link between two nodes, as NODE:INTERFACE without the lab's name."""
    return [
        {f"{end.netns.removeprefix('demo-')}:{end.name}" for end in (link.a, link.b)}
        for link in lab.links
        if link.b.netns != lab.switch
    ]


@pytest.mark.parametrize(("count", "topology"), [(2, "direct"), (3, "ring"), (5, "ring"), (2, "switch")])
def test_every_node_has_the_interfaces_of_a_spark(count: int, topology: str) -> None:
    lab = plan("demo", "10.88.0", nodes(count), topology)
    for node in lab.nodes:
        assert lab_plan.interfaces_of(lab, node.netns) == {"enP7s7", *FABRIC}


def test_a_ring_joins_port_0_to_the_next_nodes_port_1_with_both_twins() -> None:
    lab = plan("demo", "10.88.0", nodes(3), "ring")
    assert lab.bridges == ("mgmt",)
    joined = [("spark1", "spark2"), ("spark2", "spark3"), ("spark3", "spark1")]
    expected = [{f"{a}:{twin}f0np0", f"{b}:{twin}f1np1"} for a, b in joined for twin in ("enp1s0", "enP2p1s0")]
    assert sorted(map(sorted, cables(lab))) == sorted(map(sorted, expected))


def test_a_ring_that_grows_recables_only_its_end() -> None:
    three, four = (stamps(plan("demo", "10.88.0", nodes(count), "ring")) for count in (3, 4))
    assert [name for name in three if three[name] == four[name]] == ["spark2"]


def test_a_thor_hangs_on_the_switch_of_port_0_with_one_interface() -> None:
    lab = plan("demo", "10.88.0", ["spark1", "spark2", "thor1"], "switch", ["thor1"])
    assert [node.thor for node in lab.nodes] == [False, False, True]
    assert lab_plan.interfaces_of(lab, "demo-thor1") == {"enP7s7", "mgbe0_0"}
    assert lab_plan.interfaces_of(lab, "demo-spark2") == {"enP7s7", *FABRIC}
    on_port_0 = {f"{link.a.netns}:{link.a.name}" for link in lab.links if link.b.bridge == "qsfp0"}
    assert on_port_0 == {f"demo-spark{i}:{twin}f0np0" for i in (1, 2) for twin in ("enp1s0", "enP2p1s0")} | {
        "demo-thor1:mgbe0_0"
    }


@pytest.mark.parametrize(("count", "topology"), [(2, "direct"), (3, "ring")])
def test_a_server_has_the_management_port_alone_and_changes_no_cable(count: int, topology: str) -> None:
    lab = plan("demo", "10.88.0", nodes(count), topology, servers=["monitor"])
    assert lab_plan.interfaces_of(lab, "demo-monitor") == {"enP7s7"}
    assert lab.nodes[-1].address == f"10.88.0.{11 + count}"
    cables = [link for link in lab.links if "monitor" not in link.a.netns]
    assert cables == list(plan("demo", "10.88.0", nodes(count), topology).links)


def test_only_a_thor_has_the_release_file_of_jetson_linux() -> None:
    lab = plan("demo", "10.88.0", ["spark1", "thor1"], "auto", ["thor1"])
    assert ["etc/nv_tegra_release" in lab_plan.node_files(node) for node in lab.nodes] == [False, True]
    assert "FIXTURE" in lab_plan.node_files(lab.nodes[1])["etc/nv_tegra_release"][0]


@pytest.mark.parametrize(
    ("count", "asked", "topology"),
    [
        (1, "auto", "switch"),
        (2, "auto", "direct"),
        (3, "auto", "switch"),
        (2, "switch", "switch"),
        (2, "direct", "direct"),
    ],
)
def test_topology_of_sparks(count: int, asked: str, topology: str) -> None:
    lab = plan("demo", "10.88.0", nodes(count), asked)
    fabric = [link for link in lab.links if link.a.name in FABRIC]
    assert lab.topology == topology
    if topology == "direct":
        assert cables(lab) == [{f"spark1:{name}", f"spark2:{name}"} for name in FABRIC]
        assert lab.bridges == ("mgmt",)
    else:
        assert {(link.a.name[-3:], link.b.netns, link.b.bridge, link.b.mtu) for link in fabric} == {
            ("np0", "demo-switch", "qsfp0", 9216),
            ("np1", "demo-switch", "qsfp1", 9216),
        }
        assert len(fabric) == 4 * count


def test_auto_gives_two_machines_of_which_one_is_a_thor_a_switch() -> None:
    assert plan("demo", "10.88.0", ["spark1", "thor1"], "auto", ["thor1"]).topology == "switch"


@pytest.mark.parametrize(
    ("count", "topology", "thors"),
    [(1, "switch", []), (2, "direct", []), (8, "switch", ["spark7", "spark8"]), (200, "switch", []), (200, "ring", [])],
)
def test_names_fit_and_do_not_collide(count: int, topology: str, thors: list[str]) -> None:
    lab = plan("abcdefghij", "10.88.0", nodes(count), topology, thors)
    assert max(len(end.name) for end in ends(lab)) <= 15
    assert len({(end.netns, end.name) for end in ends(lab)}) == len(ends(lab))
    assert len({end.mac for end in ends(lab)}) == len(ends(lab))
    # Locally administered and unicast.
    assert all(int(end.mac[:2], 16) & 3 == 2 for end in ends(lab))
    assert len({node.address for node in lab.nodes} | {lab.gateway}) == count + 1


def test_two_labs_share_no_name_and_no_mac() -> None:
    one, two = plan("one", "10.88.0", nodes(2)), plan("two", "10.88.1", nodes(2))
    assert {e.netns for e in ends(one)} & {e.netns for e in ends(two)} == {""}
    assert one.uplink != two.uplink
    assert not {e.mac for e in ends(one)} & {e.mac for e in ends(two)}
    assert not {n.machine for n in one.nodes} & {n.machine for n in two.nodes}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("Demo", "10.88.0", ["a"]), "lab_name: 'Demo'"),
        (("elevenchars", "10.88.0", ["a"]), "lab_name"),
        (("de-mo", "10.88.0", ["a"]), "lab_name"),
        (("", "10.88.0", ["a"]), "lab_name"),
        (("demo", "10.88", ["a"]), "lab_prefix"),
        (("demo", "10.88.0.1", ["a"]), "lab_prefix"),
        (("demo", "10.888.0", ["a"]), "lab_prefix"),
        (("demo", "8.8.8", ["a"]), "private /24"),
        (("demo", "10.88.0", []), "lab_nodes: 0 names"),
        (("demo", "10.88.0", nodes(201)), "lab_nodes: 201 names"),
        (("demo", "10.88.0", ["a", "a"]), "lab_nodes[1]: 'a' appears twice"),
        (("demo", "10.88.0", ["spark_1"]), "lab_nodes[0]"),
        (("demo", "10.88.0", ["switch"]), "lab_nodes[0]: 'switch'"),
        (("demo", "10.88.0", nodes(3), "direct"), "direct with 3 nodes: expected two nodes on one cable"),
        (("demo", "10.88.0", nodes(2), "ring"), "ring with 2 nodes: expected three nodes or more"),
        (("demo", "10.88.0", nodes(3), "socket"), "lab_topology: 'socket'"),
        (("demo", "10.88.0", nodes(2), "auto", ["thor1"]), "lab_thors: 'thor1' is not in lab_nodes: spark1, spark2"),
        (("demo", "10.88.0", nodes(3), "ring", ["spark3"]), "lab_thors: spark3: a Thor has no port for topology ring"),
        (
            ("demo", "10.88.0", nodes(2), "direct", ["spark2"]),
            "lab_thors: spark2: a Thor has no port for topology direct",
        ),
    ],
)
def test_refuses(arguments: tuple, told: str) -> None:
    with pytest.raises(LabError) as error:
        plan(*arguments)
    assert told in str(error.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(LabError) as error:
        plan("Demo", "10.88", ["a", "a"], "ring", ["b"])
    assert all(
        word in str(error.value) for word in ("lab_name", "lab_prefix", "lab_nodes[1]", "lab_topology", "lab_thors")
    )


def test_the_management_address_is_the_nodes_own_netplan() -> None:
    lab = plan("demo", "10.88.0", nodes(2))
    content, mode = lab_plan.node_files(lab.nodes[1])["etc/netplan/00-management.yaml"]
    assert mode == 0o600
    assert json.loads(content)["network"]["ethernets"] == {
        "enP7s7": {"dhcp4": False, "dhcp6": False, "addresses": ["10.88.0.12/24"]}
    }


@pytest.mark.parametrize(
    "change",
    [{"base": "new"}, {"prefix": "10.89.0"}, {"topology": "switch"}, {"virtual": True}],
)
def test_a_stamp_changes_with_each_input(change: dict[str, Any]) -> None:
    def stamped(base: str = "old", prefix: str = "10.88.0", topology: str = "direct", **kinds: bool) -> dict[str, str]:
        return stamps(plan("demo", prefix, nodes(2), topology, **kinds), base=base)

    assert stamped() == stamped()
    assert not set(stamped().values()) & set(stamped(**change).values())


def test_a_virtual_machine_is_a_spark() -> None:
    with pytest.raises(LabError, match="lab_virtual: true"):
        plan("demo", "10.88.0", nodes(2), "switch", ["spark2"], virtual=True)


def test_a_third_node_on_the_switch_leaves_the_others_alone() -> None:
    two, three = (stamps(plan("demo", "10.88.0", nodes(count), "switch")) for count in (2, 3))
    assert {name: three[name] for name in two} == two


def test_actions() -> None:
    lab = plan("demo", "10.88.0", [*nodes(5), "new"], "switch")
    wanted = stamps(lab)
    found = {node.name: up(lab, node, wanted[node.name]) for node in lab.nodes[:5]}
    found["spark2"] = dataclasses.replace(found["spark2"], running=False)
    found["spark3"] = dataclasses.replace(found["spark3"], stamp="of another plan")
    found["spark4"] = dataclasses.replace(found["spark4"], links=found["spark4"].links - {"enp1s0f0np0"})
    found["spark5"] = dataclasses.replace(found["spark5"], stamp="")
    found["old"] = found["spark1"]
    assert actions(lab, wanted, found) == {
        "spark1": "keep",
        "spark2": "boot",
        "spark3": "recreate",
        "spark4": "cable",
        "spark5": "recreate",
        "new": "create",
        "old": "remove",
    }


def test_known_hosts() -> None:
    lab = plan("demo", "10.88.0", nodes(2))
    keys = {"spark1": "ssh-ed25519 AAAA1 lab demo\n", "spark2": "ssh-ed25519 AAAA2 lab demo\n"}
    assert lab_plan.known_hosts(lab, keys) == "10.88.0.11 ssh-ed25519 AAAA1\n10.88.0.12 ssh-ed25519 AAAA2\n"


def test_what_nodes_share_is_read_only_unless_it_is_asked_otherwise() -> None:
    assert (
        lab_plan.Bind("/usr/local/cuda-13.0", "/usr/local/cuda").argument
        == "--bind-ro=/usr/local/cuda-13.0:/usr/local/cuda"
    )
    assert lab_plan.Bind("/cache", "/var/cache/ccache", writable=True).argument == "--bind=/cache:/var/cache/ccache"


def test_a_node_shares_what_names_it_or_no_node() -> None:
    gpu = [
        lab_plan.Bind(f"/dev/nvidia{number}", f"/dev/nvidia{number}", nodes=[f"spark{number + 1}"]) for number in (0, 1)
    ]
    binds = [lab_plan.Bind("/usr/local/nvidia", "/usr/local/nvidia"), *gpu]
    driver = "--bind-ro=/usr/local/nvidia:/usr/local/nvidia"
    assert lab_plan.bind_arguments("spark2", binds) == [driver, gpu[1].argument, "--drop-capability=CAP_MKNOD"]
    assert lab_plan.bind_arguments("spark3", binds) == [driver]


@pytest.mark.parametrize("path", ["relative", "/with space", "/a:b", "/a'b", "/a\n", "/", ""])
def test_a_path_that_would_be_another_option_is_refused(path: str) -> None:
    with pytest.raises(LabError, match="lab_binds: src: "):
        lab_plan.Bind(path, "/there")
    with pytest.raises(LabError, match="lab_binds: dest: "):
        lab_plan.Bind("/here", path)
