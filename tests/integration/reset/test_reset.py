"""reset.yml on two hosts that site.yml has set up: they equal fresh hosts afterwards, file by file and unit by unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from api_client import completion
from host_state import differences
from live_cluster import Cluster, on_all, run_program
from repository import ROOT
from run_playbook import Run, run, run_and_kill
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

PROGRAM = (ROOT / "tests/support/host_state.py").read_text(encoding="utf-8")
FOLDERS = "/etc /usr /var /opt /root /home /srv".split()
PLAYBOOK, CONFIRMED = "playbooks/reset.yml", ("--extra-vars", "reset_confirmed=true")
MODEL, NOTES = "/opt/gb10/models/owner--name/main/gb10-model.json", "/etc/gb10/notes.txt"
NOTHING = "nothing of this collection is left"

State = Mapping[str, Mapping[str, Any]]


def reset(cluster: Cluster, *arguments: str) -> Run:
    return run(PLAYBOOK, [*cluster.arguments, *arguments])


def booted(cluster: Cluster) -> dict[str, State]:
    """Reboot every node and return its state: services that only run until a boot do not count."""
    states = {}
    for name in cluster.nodes:
        host = cluster.reboot(name, cluster.connect(name))
        host.run("systemctl is-system-running --wait")
        states[name] = run_program(host, PROGRAM, *FOLDERS)
    return states


def assert_fresh(cluster: Cluster, fresh: Mapping[str, State]) -> None:
    """Compare every node with its state before the first run."""
    now = booted(cluster)
    assert {
        name: {kind: differences(fresh[name][kind], now[name][kind]) for kind in fresh[name]} for name in fresh
    } == {name: {kind: {} for kind in fresh[name]} for name in fresh}


def hosts(cluster: Cluster) -> dict[str, Host]:
    """Return new connections, because a reboot ends those of the fixture."""
    return {name: cluster.connect(name) for name in cluster.nodes}


@pytest.fixture(scope="module")
def fresh(cluster: Cluster) -> dict[str, State]:
    """Every node's state before the first run."""
    return booted(cluster)


def test_a_fresh_host_has_nothing_to_remove(cluster: Cluster, fresh: Mapping[str, State]) -> None:
    assert all("/opt/gb10" not in state["files"] and "/etc/hostname" in state["files"] for state in fresh.values())
    assert reset(cluster).assert_unchanged().output.count(NOTHING) == len(fresh)


@pytest.mark.usefixtures("fresh")
def test_the_list_of_a_serving_cluster_changes_nothing(cluster: Cluster) -> None:
    cluster.site().assert_ok()
    nodes = hosts(cluster)
    on_all(nodes, f"install -D /dev/null {MODEL} && touch {NOTES}")
    listed = reset(cluster, "--check", "--diff").assert_ok()
    lines = (
        "stop gb10-ray.service (unit)",
        "remove /opt/gb10/runtime (tree, ",
        "remove gb10 (user)",
        "restore /etc/netplan/60-gb10-qsfp.yaml, ",
    )
    for line in lines:
        assert listed.output.count(f"\n  {line}") == len(nodes), line
    assert listed.output.count("keep /opt/gb10/models (tree, ") == len(nodes)
    reset(cluster).assert_failed("run again with -e reset_confirmed=true")
    assert completion(nodes["spark1"]).strip()
    cluster.site().assert_unchanged()


@pytest.mark.usefixtures("fresh")
def test_a_pruned_cluster_serves_on_without_the_named_items(cluster: Cluster) -> None:
    nodes = hosts(cluster)
    (runtime,) = nodes["spark1"].check_output("cd /opt/gb10 && ls -d runtime/????????????").split()
    nodes["spark2"].check_output("install -D /dev/null /opt/gb10/models/org--old/main/a")
    for host in nodes.values():
        # Not every rank of a small model fills it.
        host.check_output("runuser --user gb10 -- mkdir -p /var/lib/gb10/.cache/vllm")

    def prune(*names: str) -> Run:
        return cluster.play("prune", "--extra-vars", f"reset_prune={','.join(names)}")

    prune(runtime, "models/org--old/main", "models/org--none/main").assert_failed(
        f"reset_prune: {runtime}: needed by launch ",
        "models/org--none/main: no node has it. Expected: a name from the list above.",
    )
    assert nodes["spark2"].file("/opt/gb10/models/org--old/main/a").exists
    removed = prune("models/org--old/main", "cache/vllm").assert_ok()
    assert removed.output.count("models/org--old/main, to be removed") == 1
    assert removed.output.count("cache/vllm, to be removed") == len(nodes)
    assert not nodes["spark2"].file("/opt/gb10/models/org--old/main").exists
    # A removed item is unknown to the next run.
    assert prune("models/org--old/main").status != 0
    assert completion(nodes["spark1"]).strip()
    cluster.site().assert_unchanged()


def test_everything_goes_except_models_and_files_of_others(cluster: Cluster) -> None:
    # A plan with this inventory fails, but the removal needs none.
    reset(cluster, *CONFIRMED, "--extra-vars", "gb10_fabric_topology=invalid").assert_ok()
    for host in hosts(cluster).values():
        assert host.check_output("find /opt/gb10 /etc/gb10 -type f").split() == [MODEL, NOTES]
        assert host.check_output("systemctl list-units --all --plain --no-legend 'gb10-*'") == ""
        assert host.run("nft list table inet gb10").rc != 0
        assert "10.110.0." not in host.check_output("ip -4 address")
    again = reset(cluster, *CONFIRMED).assert_unchanged()
    assert again.output.count("keep /etc/gb10 (folder, ") == again.output.count(
        "this collection did not create notes.txt"
    )


def test_the_hosts_equal_fresh_ones(cluster: Cluster, fresh: Mapping[str, State]) -> None:
    on_all(hosts(cluster), f"rm {NOTES}")
    reset(cluster, *CONFIRMED, "--extra-vars", "reset_models=true").assert_ok()
    assert reset(cluster, *CONFIRMED).assert_unchanged().output.count(NOTHING) == len(fresh)
    assert_fresh(cluster, fresh)


def test_the_cluster_answers_again(cluster: Cluster) -> None:
    cluster.site().assert_ok()
    assert completion(hosts(cluster)["spark1"]).strip()


@pytest.mark.parametrize(
    "task", ["Remove everything except the network configuration", "Restore the network configuration from before"]
)
def test_a_killed_reset_is_completed_by_the_next(cluster: Cluster, task: str) -> None:
    run_and_kill(PLAYBOOK, [*cluster.arguments, *CONFIRMED], task, after=1)
    for host in hosts(cluster).values():
        # The module outlives its connection, so end it too. The services have stopped, so it is root's only Python.
        host.run("pkill -KILL -u root -x python3; while pgrep -x rm; do sleep 0.2; done")
    reset(cluster, *CONFIRMED).assert_ok()
    assert reset(cluster, *CONFIRMED).assert_unchanged().output.count(NOTHING) == len(cluster.nodes)
    # For the next kill.
    cluster.site("--tags", "qsfp_netplan,peer_firewall").assert_ok()


def test_after_killed_resets_the_hosts_equal_fresh_ones(cluster: Cluster, fresh: Mapping[str, State]) -> None:
    reset(cluster, *CONFIRMED).assert_ok()
    assert_fresh(cluster, fresh)
