"""A model of 100 MB that is copied along a chain of nodes over capped links; then with a relay killed, a shard damaged, a disk that fills up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from cluster import Cluster
from playbook import Run
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

SOURCE, MODEL = "/srv/source/model", "/srv/store/model"
SHARDS = [f"model-0000{number}-of-00004.safetensors" for number in (1, 2, 3, 4)]
RELAY = "gb10-model-relay.service"
MIB = 1 << 20
#: For a busy machine to come as far as the copy.
BEGINS_S = 300


@pytest.fixture(scope="module")
def source(head: Host) -> str:
    """Make the folder that the model is copied from, and return what sha256sum says of it."""
    head.check_output(f"mkdir -p {SOURCE} && cp /srv/models/tiny/*.json {SOURCE}/")
    for shard in SHARDS:
        head.check_output(f"test -e {SOURCE}/{shard} || head -c {25 * MIB} /dev/urandom > {SOURCE}/{shard}")
    return sums(head, SOURCE)


def sums(node: Host, folder: str) -> str:
    return str(node.check_output(f"cd {folder} && find . -type f ! -name gb10-model.json | sort | xargs sha256sum"))


def store(cluster: Cluster, *arguments: str, **variables: Any) -> Run:
    return cluster.site("--tags", "model_store", "--extra-vars", json.dumps(variables), *arguments)


def forget(nodes: Mapping[str, Host], *names: str) -> None:
    """Take the model from these nodes."""
    for name in names:
        nodes[name].check_output(f"rm -rf {MODEL}")


def assert_stored(nodes: Mapping[str, Host], source: str) -> None:
    """Every node has the model, can serve it, and nothing of the copying is left."""
    for name, node in nodes.items():
        assert sums(node, MODEL) == source, name
        assert json.loads(node.file(f"{MODEL}/gb10-model.json").content_string)["model"] == SOURCE
        assert node.check_output("find /srv/store -not -perm -o=r").strip() == ""
        assert not node.file("/run/gb10-model").exists
        assert not node.service(RELAY).is_running
        assert node.check_output("ss -Hltn sport = :8472").strip() == ""


@contextmanager
def slow(nodes: Mapping[str, Host], mbit: int) -> Iterator[None]:
    """Cap what each node sends over the fabric."""
    device = "$(ip -o -4 address show to 10.110.0.0/24 | cut -d' ' -f2)"
    for node in nodes.values():
        node.check_output(f"tc qdisc replace dev {device} root tbf rate {mbit}mbit burst 256kb latency 50ms")
    try:
        yield
    finally:
        for node in nodes.values():
            node.check_output(f"tc qdisc delete dev {device} root")


def during(run: Callable[[], Run], node: Host, act: Callable[[], Any]) -> Run:
    """Run the playbook, and act once the node has received at least one MiB."""
    answer: list[Run] = []
    thread = threading.Thread(target=lambda: answer.append(run()))
    thread.start()
    received = f"cat {MODEL}/*.gb10-part 2>/dev/null | wc -c"
    until = time.monotonic() + BEGINS_S
    try:
        while int(node.check_output(received)) < MIB:
            assert thread.is_alive(), answer[0].output
            assert time.monotonic() < until, "the copy has not begun"
            time.sleep(0.5)
        act()
    finally:
        thread.join()
    return answer[0]


def test_check_mode_only_says_so(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    forget(nodes, *nodes)
    done = store(cluster, "--check").assert_ok()
    assert f"{MODEL} would be filled from {SOURCE}" in done.output
    assert not any(node.file(MODEL).exists for node in nodes.values()), source


def test_every_node_has_it_and_a_rerun_changes_nothing(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    store(cluster).assert_ok()
    assert_stored(nodes, source)
    store(cluster).assert_unchanged()


def copied_in(nodes: Mapping[str, Host], *names: str) -> float:
    """Seconds from the first start of a relay on these nodes to the last byte written on any."""
    started = f"journalctl --unit={RELAY} --output=short-unix --grep=Started --lines=1 --quiet | cut -d' ' -f1"
    written = f"stat --format=%.Y {MODEL}/*.safetensors | sort | tail -1"
    return max(float(nodes[name].check_output(written)) for name in names) - min(float(nodes[name].check_output(started)) for name in names)


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
    assert one > 100 * MIB * 8 / 40e6 * 0.95, "the cap holds"
    assert chain < 1.3 * one
    assert_stored(nodes, source)


def test_a_node_without_room_is_said_before_anything_is_copied(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    names = list(nodes)
    forget(nodes, *names[1:])
    for name in names[2:]:
        nodes[name].check_output("mkdir -p /srv/store && mount -t tmpfs -o size=50M tmpfs /srv/store")
    try:
        done = store(cluster)
        assert done.status != 0
        for name in names[2:]:
            assert f"{name} has 0.05 GB free there, and 0.10 GB of 0.10 are missing" in done.output
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
            done = during(lambda: store(cluster), full, lambda: full.check_output("mount -o remount,size=40M /srv/store"))
        assert done.status != 0
        assert f"{names[2]}: model-" in done.output
        assert f"cannot be written in {MODEL}: No space left on device" in done.output
        assert f"{names[3]}: {names[2]} sends nothing: model-" in done.output
        assert "what runs was not touched" in done.output
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
        done = during(lambda: store(cluster), killed, lambda: killed.check_output(f"systemctl kill --signal=KILL {RELAY}"))
    assert done.status != 0
    assert f"{names[2]}: {RELAY} has ended" in done.output
    # What came so far is kept; the node behind the killed one may have had nothing yet.
    there = {name: int(nodes[name].check_output(f"du -sb {MODEL} | cut -f1")) for name in names[1:3]}
    assert all(count > MIB for count in there.values()), there
    store(cluster).assert_ok()
    assert_stored(nodes, source)


def test_a_damaged_shard(cluster: Cluster, nodes: dict[str, Host], source: str) -> None:
    names = list(nodes)
    forget(nodes, names[3])
    for name in names[:2]:
        nodes[name].check_output(f"printf x | dd of={MODEL}/{SHARDS[1]} bs=1 seek=1000 conv=notrunc status=none")
    done = store(cluster)
    assert done.status != 0
    assert f"{names[3]}: {SHARDS[1]} came damaged twice from {names[0]}" in done.output
    assert not nodes[names[3]].file(f"{MODEL}/gb10-model.json").exists
    store(cluster, model_store_verify=True).assert_ok()
    assert_stored(nodes, source)
