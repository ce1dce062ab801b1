"""The fixtures reach the hosts of the inventory."""

from __future__ import annotations

from live_cluster import on_all
from testinfra.host import Host


def test_each_node_answers_as_itself(nodes: dict[str, Host]) -> None:
    assert on_all(nodes, "hostname") == {name: name for name in nodes}


def test_commands_run_as_root(nodes: dict[str, Host]) -> None:
    assert {host.check_output("id -un") for host in nodes.values()} == {"root"}
