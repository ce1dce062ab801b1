"""Full packets on every path, without a network: what ping and ip report."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_probe

RAILS = [
    {"interface": "port0", "peers": {"spark2": "10.110.0.2"}, "macs": {"spark2": "02:00:00:00:00:02"}},
    {"interface": "port1", "peers": {"spark2": "10.110.1.2", "spark3": "10.110.1.3"}, "macs": {}},
]


class Node:
    """The node's commands: addresses without reply, and the device that replies."""

    def __init__(self, silent: str = "", mac: str = "02:00:00:00:00:02") -> None:
        self.silent, self.mac, self.sent = silent, mac, 0

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        """Return the result of a command."""
        if argv[0] == "ping":
            # Without "do" the packet is fragmented, and a path with a smaller MTU carries it.
            assert (argv[argv.index("-s") + 1], argv[argv.index("-M") + 1]) == ("8972", "do")
            self.sent += 1
            return (1, "", "no answer") if argv[-1] == self.silent else (0, "", "")
        return 0, json.dumps([{"lladdr": self.mac}]) if argv[3] == "show" else "", ""


@pytest.mark.parametrize(
    ("node", "verified"),
    [(Node(), True), (Node("10.110.1.3"), False), (Node(mac="02:00:00:00:00:09"), False)],
    ids=["every path", "a silent one", "another device"],
)
def test_a_fabric_is_verified_by_a_packet_on_every_path(node: Node, verified: bool) -> None:
    assert io_probe.verified(node, RAILS, 9000) is verified
    assert node.sent == 3 or not verified
