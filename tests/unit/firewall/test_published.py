"""Ports of containers, from rules as nft 1.0.6 and iptables 1.8.9 list them."""

from __future__ import annotations

import pytest
from repository import read

from ansible_collections.gb10.cluster.plugins.module_utils.firewall import published

OTHERS = "others, by a rule without port"
LEGACY = "-P PREROUTING ACCEPT\n-N DOCKER\n-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n"


def ruleset(*rules: str) -> str:
    """Return the listing of nft, with the rules in a chain."""
    return "\n".join(
        [
            "# Warning: table ip nat is managed by iptables-nft, do not touch!",
            *("table ip nat {", "\tchain dnat {", *(f"\t\t{rule}" for rule in rules), "\t}", ""),
            *("\tchain PREROUTING {", "\t\tfib daddr type local counter jump dnat", "\t}", "}", ""),
        ]
    )


def shown(*listings: str) -> list[str]:
    return [published.shown(port) for port in published.ports(*listings)]


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
        ("-p tcp -j DNAT --to-destination 172.17.0.2", [OTHERS]),
        ("-p tcp -m tcp ! --dport 22 -j DNAT --to-destination 172.17.0.2", [OTHERS]),
        ("-p tcp -m tcp --dport ssh:99 -j DNAT --to-destination 172.17.0.2", [OTHERS]),
        ("-p tcp -m tcp --dport 77 -j REDIRECT --to-ports 78", []),
        ("-s 172.17.0.2/32 -j MASQUERADE", []),
    ],
)
def test_rules_of_iptables(rule: str, expected: list[str]) -> None:
    assert shown("", f"{LEGACY}-A DOCKER {rule}\n") == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("tcp dport 9000 counter dnat to 10.88.0.2:80", ["9000/tcp"]),
        ('iifname != "docker0" tcp dport 3000 counter dnat to 172.17.0.2:8080', ["3000/tcp"]),
        ("meta l4proto tcp tcp dport 80  counter dnat to 172.17.0.3", ["80/tcp"]),
        ("ip daddr 10.0.0.1 tcp dport { 80, 91-95 } dnat to 10.88.0.2", ["80/tcp", "91-95/tcp"]),
        ("udp dport 60-61 dnat to 10.88.0.2", ["60-61/udp"]),
        ("tcp dport 900 counter dnat ip6 to [fd00::2]:80", ["900/tcp"]),
        ("ip daddr 127.0.0.1 tcp dport 9000 dnat to 10.88.0.2", []),
        ("ip daddr 127.0.0.0/8 tcp dport 9000 dnat to 10.88.0.2", []),
        ("ip6 daddr ::1 tcp dport 901 dnat ip6 to [fd00::2]:80", []),
        ("ip6 daddr ::1:2 tcp dport 901 dnat ip6 to [fd00::2]:80", ["901/tcp"]),
        ("ip daddr != 127.0.0.0/8 tcp dport 9000 dnat to 10.88.0.2", ["9000/tcp"]),
        ("tcp dport != 22 dnat to 10.88.0.2", [OTHERS]),
        ("tcp dport @ports dnat to 10.88.0.2", [OTHERS]),
        ("meta l4proto tcp dnat to 10.88.0.2", [OTHERS]),
        ("tcp dport 77 redirect to :78", []),
        ("dnat to tcp dport map { 555 : 10.0.0.9, 556 : 10.0.0.9 }", ["555/tcp", "556/tcp"]),
        # As kube-proxy's nftables mode writes them.
        ("dnat to tcp dport map @services", [OTHERS]),
        ("dnat ip to ip daddr . tcp dport map { 1.2.3.4 . 92 : 10.0.0.3 . 9000 }", [OTHERS]),
        ("dnat ip addr . port to tcp dport map { 92 : 10.0.0.3 . 9000 }", ["92/tcp"]),
        ("dnat ip prefix to ip daddr map { 10.1.0.0/16 : 10.2.0.0/16 }", [OTHERS]),
        ("dnat to numgen random mod 2 map { 0 : 10.0.0.3, 1 : 10.0.0.4 }", [OTHERS]),
        ('tcp dport 3000 counter xt target "DNAT"', ["3000/tcp"]),
        ('meta l4proto tcp xt match "multiport" counter xt target "DNAT"', [OTHERS]),
        ('tcp dport 3000 accept comment "a dnat to nothing"', []),
    ],
)
def test_rules_of_nftables(rule: str, expected: list[str]) -> None:
    assert shown(ruleset(rule)) == expected


def test_the_text_of_iptables_is_more_exact_than_that_of_nft() -> None:
    text = "-A DOCKER -p tcp -m multiport --dports 80,443 -j DNAT --to-destination 172.17.0.3\n"
    found = ruleset('meta l4proto tcp xt match "multiport" counter xt target "DNAT"', "tcp dport 9 dnat to 10.88.0.2")
    assert shown(found, text) == ["9/tcp", "80/tcp", "443/tcp"]
    assert shown("", "", "") == []


def test_the_run_names_them_as_open() -> None:
    opened = read("roles/peer_firewall/tasks/change.yml").partition("open to others:")[2].partition("Unrestricted")[0]
    assert "__peer_firewall_compared.published" in opened
