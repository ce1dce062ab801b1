"""Ports of containers, from rules as nft 1.0.6 and iptables 1.8.9 list them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from repository import load_yaml, read

from ansible_collections.gb10.cluster.plugins.module_utils.firewall import published

LEGACY = "-P PREROUTING ACCEPT\n-N DOCKER\n-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n"
XT = {"xt": {"type": "target", "name": "DNAT"}}
TO = {"dnat": {"family": "ip", "addr": "10.88.0.2", "port": 80}}
COUNTER = {"counter": {"packets": 0, "bytes": 0}}


def match(protocol: str, field: str, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": {"payload": {"protocol": protocol, "field": field}}, "right": right}}


def ruleset(*rules: list[dict[str, Any]]) -> str:
    listed = [
        {"rule": {"family": "ip", "table": "nat", "chain": "DOCKER", "handle": 4, "expr": expressions}}
        for expressions in rules
    ]
    return json.dumps(
        {"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "ip", "name": "nat"}}, *listed]}
    )


def shown(ruleset_json: str, *iptables: str) -> list[str]:
    return [published.shown(port) for port in published.ports(ruleset_json, iptables)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("! -i docker0 -p tcp -m tcp --dport 3000 -j DNAT --to-destination 172.17.0.2:8080", ["3000/tcp"]),
        ("-d 192.168.1.11/32 -p udp -m udp --dport 6000:6010 -j DNAT --to-destination 172.17.0.2", ["6000-6010/udp"]),
        (
            "-p tcp -m multiport --dports 80,443,90:99 -j DNAT --to-destination 172.17.0.3",
            ["80/tcp", "90-99/tcp", "443/tcp"],
        ),
        ("! -d 127.0.0.0/8 -p tcp -m tcp --dport 22 -j DNAT --to-destination 10.88.0.2:22", ["22/tcp"]),
        ("-d 127.0.0.1/32 ! -i docker0 -p tcp -m tcp --dport 3001 -j DNAT --to-destination 172.17.0.2:8081", []),
        ("-d ::1/128 -p tcp -m tcp --dport 3001 -j DNAT --to-destination [fd00::2]:8081", []),
        ("-p tcp -j DNAT --to-destination 172.17.0.2", ["others, by a rule without port"]),
        ("-p tcp -m tcp ! --dport 22 -j DNAT --to-destination 172.17.0.2", ["others, by a rule without port"]),
        ("-p tcp -m tcp --dport ssh:99 -j DNAT --to-destination 172.17.0.2", ["others, by a rule without port"]),
        ("-p tcp -m tcp --dport 77 -j REDIRECT --to-ports 78", []),
        ("-s 172.17.0.2/32 -j MASQUERADE", []),
    ],
)
def test_rules_of_iptables(rule: str, expected: list[str]) -> None:
    assert shown("", f"{LEGACY}-A DOCKER {rule}\n") == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ([match("tcp", "dport", 9000), COUNTER, TO], ["9000/tcp"]),
        (
            [match("ip", "daddr", "10.0.0.1"), match("tcp", "dport", {"set": [80, {"range": [91, 95]}]}), TO],
            ["80/tcp", "91-95/tcp"],
        ),
        ([match("udp", "dport", {"range": [60, 61]}), TO], ["60-61/udp"]),
        ([match("ip", "daddr", "127.0.0.1"), match("tcp", "dport", 9000), TO], []),
        ([match("ip", "daddr", {"prefix": {"addr": "127.0.0.0", "len": 8}}), match("tcp", "dport", 9000), TO], []),
        ([match("ip", "daddr", "127.0.0.1", "!="), match("tcp", "dport", 9000), TO], ["9000/tcp"]),
        ([match("tcp", "dport", 22, "!="), TO], ["others, by a rule without port"]),
        ([match("tcp", "dport", "@ports"), TO], ["others, by a rule without port"]),
        (
            [{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}}, TO],
            ["others, by a rule without port"],
        ),
        ([match("tcp", "dport", 77), {"redirect": {"port": 78}}], []),
        ([match("tcp", "dport", 3000), COUNTER, XT], ["3000/tcp"]),
        ([{"xt": {"type": "match", "name": "multiport"}}, COUNTER, XT], ["others, by a rule without port"]),
        ([match("tcp", "dport", 3000), {"accept": None}], []),
    ],
)
def test_rules_of_nftables(rule: list[dict[str, Any]], expected: list[str]) -> None:
    assert shown(ruleset(rule)) == expected


def test_a_map_of_nftables() -> None:
    key = {"payload": {"protocol": "tcp", "field": "dport"}}
    target = {
        "dnat": {"family": "ip", "addr": {"map": {"key": key, "data": {"set": [[555, "10.0.0.9"], [556, "10.0.0.9"]]}}}}
    }
    assert shown(ruleset([target])) == ["555/tcp", "556/tcp"]


@pytest.mark.parametrize(
    "mapping",
    [
        {"key": {"payload": {"protocol": "tcp", "field": "dport"}}, "data": "@services"},
        {
            "key": {
                "concat": [
                    {"payload": {"protocol": "ip", "field": "daddr"}},
                    {"payload": {"protocol": "tcp", "field": "dport"}},
                ]
            },
            "data": {"set": [[{"concat": ["1.2.3.4", 92]}, {"concat": ["10.0.0.3", 9000]}]]},
        },
    ],
    ids=["with a name", "of two fields"],
)
def test_a_map_of_nftables_whose_ports_are_not_read(mapping: dict[str, Any]) -> None:
    """As kube-proxy's nftables mode writes them."""
    assert shown(ruleset([{"dnat": {"family": "ip", "addr": {"map": mapping}}}])) == ["others, by a rule without port"]
    assert shown(ruleset([{"dnat": {"family": "ip", "addr": {"concat": ["10.0.0.3", 9000]}}}])) == [
        "others, by a rule without port"
    ]


def test_the_text_of_iptables_is_more_exact_than_json() -> None:
    text = "-A DOCKER -p tcp -m multiport --dports 80,443 -j DNAT --to-destination 172.17.0.3\n"
    found = ruleset([{"xt": {"type": "match", "name": "multiport"}}, XT], [match("tcp", "dport", 9), TO])
    assert shown(found, text) == ["9/tcp", "80/tcp", "443/tcp"]
    assert shown("", "", "") == []


def test_the_run_names_them_as_open() -> None:
    announced = next(
        task
        for task in load_yaml(read("roles/peer_firewall/tasks/change.yml"))
        if task["name"] == "Announce the firewall change"
    )
    opened = (
        announced["gb10.cluster.show"]["lines"]
        .partition("open to others:")[2]
        .partition(").\n")[0]
        .partition("Unrestricted")[0]
    )
    assert "__peer_firewall_compared.published" in opened
