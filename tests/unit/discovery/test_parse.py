"""Tests of the tool output parsers. data/neighbors is from two lab nodes (Debian 12), lldpd 1.0.16 and avahi 0.8."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.access import host_key
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import io_neighbors
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import parse as discovery_parse

DATA = Path(__file__).parents[1] / "data" / "neighbors"


def recorded(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_link_locals() -> None:
    found = discovery_parse.link_locals(recorded("if_inet6.txt"))
    assert found["enp1s0f1np1"] == {"fe80::1c:5aff:fe11:103"}
    assert "lo" not in found
    assert discovery_parse.link_locals("fe80000000000000001c5afffe110103 05 40 20 c0 enp1s0f1np1\n") == {}, (
        "still tentative"
    )


def test_who_answers_a_ping() -> None:
    assert discovery_parse.answering(recorded("ping.txt")) == ["fe80::1c:5aff:fe11:103", "fe80::1c:5aff:fe11:203"]
    assert discovery_parse.answering("64 bytes from 10.110.0.2: icmp_seq=1 ttl=64 time=0.1 ms\n") == ["10.110.0.2"]
    assert discovery_parse.answering("From 10.110.0.1 icmp_seq=1 Destination Host Unreachable\n") == []


def test_macs() -> None:
    assert discovery_parse.macs(recorded("neigh.json")) == {"fe80::1c:5aff:fe11:203": "02:1c:5a:11:02:03"}
    assert discovery_parse.macs('[{"dst":"10.110.0.9","state":["FAILED"]}]') == {}
    assert discovery_parse.macs("") == {}


def test_lldp() -> None:
    assert discovery_parse.lldp(recorded("lldpctl.json")) == {
        "enp1s0f0np0": [{"mac": "02:1c:5a:11:02:01", "name": "spark2"}],
        "enP2p1s0f0np0": [{"mac": "02:1c:5a:11:02:02", "name": "spark2"}],
    }
    assert discovery_parse.lldp('{"lldp": [{}]}') == {}


def test_a_switch_that_speaks_lldp_is_no_neighbor() -> None:
    assert discovery_parse.lldp(
        recorded("lldpctl.json").replace('"value": "enp1s0f0np0"', '"value": "swp3"')
    ).keys() == {"enP2p1s0f0np0"}


def test_mdns() -> None:
    found = discovery_parse.mdns(recorded("avahi-browse.txt"))
    assert found["enp1s0f0np0"] == {"fe80::1c:5aff:fe11:201": "spark2", "fe80::1c:5aff:fe11:101": "spark1"}
    assert found["enP7s7"]["10.94.0.12"] == "spark2"


def test_host_key() -> None:
    assert host_key.offered(recorded("keyscan.txt")).startswith("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA")
    assert host_key.offered("# fe80::1%x:22 SSH-2.0-OpenSSH_9.2p1\n") == ""


INTERFACES = {
    "enP7s7": {"addresses": ["192.168.1.11/24"]},
    "wlP9s9": {"addresses": ["192.168.2.11/24"]},
    "enp1s0f1np1": {"addresses": ["10.110.0.1/24"]},
    "docker0": {"addresses": ["172.17.0.1/16"]},
}
ROUTES = '[{"dst":"default","dev":"enP7s7","metric":100},{"dst":"default","dev":"wlP9s9","metric":50},{"dst":"default","dev":"enp1s0f1np1"}]'


@pytest.mark.parametrize(
    ("routes", "connection", "expected"),
    [
        pytest.param(
            ROUTES, "192.168.1.2 5000 192.168.1.11 22", "192.168.2.11", id="default route, never over the fabric"
        ),
        pytest.param("[]", "192.168.1.2 5000 192.168.2.11 22", "192.168.2.11", id="where ssh came in"),
        pytest.param("[]", "10.110.0.2 5000 10.110.0.1 22", "192.168.1.11", id="not where ssh came in over the cable"),
        pytest.param(
            "", "fe80::2%enp1s0f1np1 5000 fe80::1%enp1s0f1np1 22", "192.168.1.11", id="nor by its IPv6 address"
        ),
    ],
)
def test_management(routes: str, connection: str, expected: str) -> None:
    assert discovery_parse.management(routes, connection, INTERFACES) == expected


def test_no_management_address_is_guessed() -> None:
    assert discovery_parse.management("[]", "", {name: INTERFACES[name] for name in ("enp1s0f1np1", "docker0")}) == ""


def test_merge() -> None:
    addresses = [
        ("fe80::2", "02:00:00:00:00:02"),
        ("10.110.0.2", "02:00:00:00:00:02"),
        ("10.110.0.3", "02:00:00:00:00:03"),
    ]
    announced = [
        {"mac": "02:00:00:00:00:02", "name": "spark2"},
        {"mac": "02:00:00:00:00:04", "name": "spark4"},
        {"mac": "", "name": "nobody"},
    ]
    assert discovery_parse.merge("if0", addresses, announced, {"10.110.0.3": "spark3"}) == [
        {"mac": "02:00:00:00:00:02", "address": "fe80::2%if0", "name": "spark2"},
        {"mac": "02:00:00:00:00:03", "address": "10.110.0.3", "name": "spark3"},
        {"mac": "02:00:00:00:00:04", "address": "", "name": "spark4"},
    ]


#: One QSFP interface with IPv4 only, as this collection configures them, and an `ip` executable that reports it.
LINKS = """[{"ifname":"enp1s0f1np1","flags":["UP","LOWER_UP"],"mtu":9000,"address":"02:00:00:00:00:01",
"addr_info":[{"family":"inet","local":"10.110.0.1","prefixlen":24}]}]"""
TABLE = '[{"dst":"10.110.0.2","lladdr":"02:00:00:00:00:02","state":["STALE"]},{"dst":"10.9.0.2","lladdr":"02:00:00:00:00:09","state":["STALE"]}]'
IP = f"case \"$*\" in *address*) echo '{LINKS}';; *neigh*) echo '{TABLE}';; *) echo '[]';; esac"


def spark(folder: Path, ping: str = "exit 0") -> Path:
    program(folder, "ip", IP)
    program(folder, "lldpctl", "echo 'unable to connect to socket' >&2; exit 1")
    program(folder, "avahi-browse", "exit 0")
    program(folder, "ssh-keyscan", f"echo \"$5 $(cut -d' ' -f2- {DATA}/keyscan.txt)\"")
    return program(folder, "ping", f'echo "$*" >> {folder}/asked; {ping}')


def test_without_ipv6_those_are_asked_that_it_has_spoken_to(tmp_path: Path) -> None:
    answer = run_module("fabric_neighbors_info", {}, spark(tmp_path))
    ((neighbor,),) = answer["neighbors"].values()
    assert (neighbor["mac"], neighbor["address"]) == ("02:00:00:00:00:02", "10.110.0.2")
    assert neighbor["host_key"] == host_key.offered(recorded("keyscan.txt"))
    assert (tmp_path / "asked").read_text() == "-n -c 1 -W 1 -I enp1s0f1np1 10.110.0.2\n", (
        "no address outside the interface's own subnet"
    )
    assert answer["notes"] == ["lldpctl exited with status 1: unable to connect to socket"]
    assert (answer["changed"], answer["unheard"], answer["management"]) == (False, {}, "")


def test_an_old_entry_that_does_not_answer_is_no_neighbor(tmp_path: Path) -> None:
    answer = run_module("fabric_neighbors_info", {}, spark(tmp_path, "exit 1"))
    assert answer["neighbors"] == {"enp1s0f1np1": []}
    assert answer["unheard"] == {"enp1s0f1np1": "it has no IPv6 link-local address, and no IPv4 neighbor answers"}


def test_a_missing_ip_is_said(tmp_path: Path) -> None:
    answer = run_module("fabric_neighbors_info", {}, program(tmp_path, "ip", "echo 'Object unknown' >&2; exit 1"))
    assert answer["msg"] == "ip -json address show failed: Object unknown"


def test_a_missing_ping_is_said() -> None:
    """An empty result would look like the absence of neighbors."""

    def run_all(argvs: Sequence[list[str]]) -> list[tuple[int, str, str]]:
        return [(0, TABLE, "") if argv[0] == "ip" else (127, "", f"{argv[0]} is not installed") for argv in argvs]

    with pytest.raises(ValueError, match="ping is not installed"):
        io_neighbors.read(run_all, {"enp1s0f1np1": {"up": True, "carrier": True, "addresses": ["10.110.0.1/24"]}})
