"""Copy a 100 MB model along a chain of nodes over capped links, also with a killed relay, a damaged shard and a full
disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from live_cluster import Cluster, extra, on_all
from run_playbook import Run, run_and_kill
from testinfra.host import Host
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan

pytestmark = pytest.mark.disruptive

SOURCE, MODEL = "/srv/source/model", "/srv/store/model"
SHARDS = [f"model-0000{number}-of-00004.safetensors" for number in (1, 2, 3, 4)]
RELAY = "gb10-model-relay.service"
MIB = 1 << 20
#: Seconds until a busy machine has started the copy.
BEGINS_S = 300


@pytest.fixture(scope="module")
def source(head: Host) -> str:
    """Create the source directory of the model, and return its sha256sum output."""
    head.check_output(f"mkdir -p {SOURCE} && cp /srv/models/tiny/*.json {SOURCE}/")
    for shard in SHARDS:
        head.check_output(f"test -e {SOURCE}/{shard} || head -c {25 * MIB} /dev/urandom > {SOURCE}/{shard}")
    return sums(head, SOURCE)


def sums(node: Host, folder: str) -> str:
    return str(node.check_output(f"cd {folder} && find . -type f ! -name gb10-model.json | sort | xargs sha256sum"))


def store(cluster: Cluster, *arguments: str, **variables: Any) -> Run:
    return cluster.site("--tags", "model_store", *extra(**variables), *arguments)


def forget(nodes: Mapping[str, Host], *names: str) -> None:
    """Remove the model from these nodes."""
    for name in names:
        nodes[name].check_output(f"rm -rf {MODEL}")


def assert_stored(nodes: Mapping[str, Host], source: str) -> None:
    """Every node has a readable model, and no file or service of the copy is left."""
    for name, node in nodes.items():
        assert sums(node, MODEL) == source, name
        assert json.loads(node.file(f"{MODEL}/gb10-model.json").content_string)["model"] == SOURCE
        assert node.check_output("find /srv/store -not -perm -o=r").strip() == ""
        assert not node.file("/run/gb10-model").exists
        assert not node.service(RELAY).is_running
        assert node.check_output("ss -Hltn sport = :8472").strip() == ""


@contextmanager
def slow(nodes: Mapping[str, Host], mbit: int) -> Iterator[None]:
    """Cap each node's transmit rate on the fabric."""
    device = "$(ip -o -4 address show to 10.110.0.0/24 | cut -d' ' -f2)"
    on_all(nodes, f"tc qdisc replace dev {device} root tbf rate {mbit}mbit burst 256kb latency 50ms")
    try:
        yield
    finally:
        on_all(nodes, f"tc qdisc delete dev {device} root")


def during(run: Callable[[], Run], node: Host, act: Callable[[], Any]) -> Run:
    """Run the playbook, and act once the node has received at least one MiB."""
    answer: list[Run] = []
    thread = threading.Thread(target=lambda: answer.append(run()))
    thread.start()

    def received() -> bool:
        assert thread.is_alive(), answer[0].output
        return int(node.check_output(f"cat {MODEL}/*.gb10-part 2>/dev/null | wc -c")) >= MIB

    try:
        wait_until(received, BEGINS_S, "the copy has not started", 0.5)
        act()
    finally:
        thread.join()
    return answer[0]


def test_check_mode_only_says_so(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    forget(nodes, *nodes)
    store(cluster, "--check").assert_ok(f"{MODEL} would be filled from {SOURCE}")
    assert not any(node.file(MODEL).exists for node in nodes.values()), source


def test_every_node_has_it_and_a_rerun_changes_nothing(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    store(cluster).assert_ok()
    assert_stored(nodes, source)
    store(cluster).assert_unchanged()


LOCK = "/run/gb10/lock.json"


def test_two_runs_at_once(cluster: Cluster, nodes: dict[str, Host], head: Host, source: str) -> None:
    names = list(nodes)
    forget(nodes, *names[1:])
    second: list[Run] = []
    with slow(nodes, 40):
        # In an earlier release the second run stopped the copy of the first.
        first = during(lambda: store(cluster), nodes[names[1]], lambda: second.append(store(cluster)))
    first.assert_ok()
    second[0].assert_failed()
    assert set(second[0].changed.values()) == {0}
    said = second[0].output
    assert "the cluster is locked: " in said and " runs site.yml (process " in said and ", for " in said
    assert_stored(nodes, source)
    assert not head.file(LOCK).exists


def test_a_run_that_was_killed_and_a_rerun(cluster: Cluster, nodes: dict[str, Host], head: Host, source: str) -> None:
    names = list(nodes)
    forget(nodes, *names[1:])
    with slow(nodes, 40):
        run_and_kill(
            "site.yml", [*cluster.arguments, "--tags", "model_store"], "model_store : Wait for the model copy", after=2
        )
        assert head.file("/run/gb10").mode == 0o700
    store(cluster).assert_ok("replaces the lock of a run that has ended: ")
    assert_stored(nodes, source)
    assert not head.file(LOCK).exists


def test_the_lock_of_another_controller(cluster: Cluster, head: Host, source: str) -> None:
    owner = {
        "user": "alice",
        "host": "laptop",
        "playbook": "site.yml",
        "boot": "ab" * 16,
        "pid": "4711",
        "started": "123",
    }
    run_id, lock = run_lock_plan.run_id(owner), {"owner": owner}
    head.check_output(f"mkdir -p -m 700 /run/gb10 && umask 077 && echo %s > {LOCK}", json.dumps(lock))
    store(cluster).assert_failed(
        "alice@laptop runs site.yml (process 4711) since ", f"add -e gb10_break_lock={run_id}."
    )
    store(cluster, "--check").assert_ok("alice@laptop")
    assert head.file(LOCK).exists, source
    store(cluster, gb10_break_lock=run_id).assert_unchanged()
    assert not head.file(LOCK).exists


def test_links_out_of_the_source_are_all_named_and_none_is_read(
    cluster: Cluster, nodes: dict[str, Host], head: Host, source: str
) -> None:
    forget(nodes, *nodes)
    head.check_output(f"ln -s /etc/shadow {SOURCE}/shadow.json && ln -s ../../../etc/machine-id {SOURCE}/id.json")
    try:
        store(cluster).assert_failed("'id.json' leads out of ", "'shadow.json' leads to /etc/shadow")
        assert not any(node.file(MODEL).exists for node in nodes.values())
        assert not head.file(LOCK).exists, "a failed run releases the lock"
    finally:
        head.check_output(f"rm {SOURCE}/shadow.json {SOURCE}/id.json")
    store(cluster).assert_ok()
    assert_stored(nodes, source)


def copied_in(nodes: Mapping[str, Host], *names: str) -> float:
    """Return the seconds from the first relay start on these nodes to the last byte written on any of them."""
    started = f"journalctl --unit={RELAY} --output=short-unix --grep=Started --lines=1 --quiet | cut -d' ' -f1"
    written = f"stat --format=%.Y {MODEL}/*.safetensors | sort | tail -1"
    return max(float(nodes[name].check_output(written)) for name in names) - min(
        float(nodes[name].check_output(started)) for name in names
    )


def test_all_nodes_cost_about_one_copy(
    cluster: Cluster, nodes: dict[str, Host], source: str, record_property: Callable[[str, object], None]
) -> None:
    names = list(nodes)
    seconds = []
    for without in (names[1:2], names[1:]):
        forget(nodes, *without)
        with slow(nodes, 40):
            store(cluster).assert_ok()
        seconds.append(copied_in(nodes, *without))
    one, chain = seconds
    record_property("seconds", {"one copy": one, "along the chain": chain})
    assert one > 100 * MIB * 8 / 40e6 * 0.95, "the cap is active"
    assert chain < 1.3 * one
    assert_stored(nodes, source)


def test_a_node_without_room_is_said_before_anything_is_copied(
    cluster: Cluster, nodes: dict[str, Host], source: str
) -> None:
    names = list(nodes)
    forget(nodes, *names[1:])
    for name in names[2:]:
        nodes[name].check_output("mkdir -p /srv/store && mount -t tmpfs -o size=50M tmpfs /srv/store")
    try:
        done = store(cluster).assert_failed()
        for name in names[2:]:
            assert f"{name} has 0.05 GB free, and 0.10 GB of 0.10 are missing" in done.output
        assert not nodes[names[1]].file(MODEL).exists, source
    finally:
        for name in names[2:]:
            nodes[name].check_output("umount /srv/store")


def test_a_disk_that_fills_up_and_a_rerun(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    names = list(nodes)
    forget(nodes, *names[1:])
    full = nodes[names[2]]
    full.check_output("mkdir -p /srv/store && mount -t tmpfs -o size=150M tmpfs /srv/store")
    try:
        with slow(nodes, 60):
            done = during(
                lambda: store(cluster), full, lambda: full.check_output("mount -o remount,size=40M /srv/store")
            )
        done.assert_failed(
            f"{names[2]}: model-",
            f"cannot be written in {MODEL}: No space left on device",
            f"{names[3]}: {names[2]} sent no data: model-",
            "Running services were not touched",
        )
        assert not full.file("/run/gb10-model").exists
    finally:
        full.check_output("umount /srv/store")
    store(cluster).assert_ok()
    assert_stored(nodes, source)


def test_a_relay_that_is_killed_and_a_rerun_that_goes_on(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    names = list(nodes)
    forget(nodes, *names[1:])
    killed = nodes[names[2]]
    with slow(nodes, 20):
        done = during(
            lambda: store(cluster), killed, lambda: killed.check_output(f"systemctl kill --signal=KILL {RELAY}")
        )
    done.assert_failed(f"{names[2]}: {RELAY} has stopped")
    # Received data is kept. The node after the killed one may not have received any data yet.
    there = {name: int(nodes[name].check_output(f"du -sb {MODEL} | cut -f1")) for name in names[1:3]}
    assert all(count > MIB for count in there.values()), there
    store(cluster).assert_ok()
    assert_stored(nodes, source)


def test_a_damaged_shard(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    names = list(nodes)
    forget(nodes, names[3])
    for name in names[:2]:
        nodes[name].check_output(f"printf x | dd of={MODEL}/{SHARDS[1]} bs=1 seek=1000 conv=notrunc status=none")
    store(cluster).assert_failed(f"{names[3]}: {SHARDS[1]} was damaged in two transfers from {names[0]}")
    assert not nodes[names[3]].file(f"{MODEL}/gb10-model.json").exists
    store(cluster, model_store_verify=True).assert_ok()
    assert_stored(nodes, source)
