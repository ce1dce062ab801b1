"""An update of the system on two clusters that serve the same model, while a gateway on a third host has clients."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gateway_load
import pending_update
import pytest
from live_cluster import Cluster, dpkg_locked, extra, on_all
from root_file_system import put
from testinfra.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

MODEL, FRONT, PROGRAM = "shared-model", "front", "/run/gateway_load.py"
#: The order of the gateway's lines about its servers, and the reason of a check that took too long.
ORDER, SLOW = ["large away", "large back", "small away", "small back"], "timed out"


@dataclass(frozen=True)
class Shared:
    """The clusters as replicas of one model, and the host of a gateway outside of them."""

    cluster: Cluster
    front: Host


@pytest.fixture(scope="module")
def shared(cluster: Cluster, nodes: dict[str, Host], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    wheels = {"gateway_wheelhouse_archive": "{{ lab_gateway_wheelhouse }}"}
    found = cluster.third_host("gateway", FRONT, folder, **wheels)
    found = replace(found, arguments=[*found.arguments, *extra(gb10_served_model_name=MODEL, golden_enabled=False)])
    found.site("--tags", "ray_cluster,vllm_serve,vllm_watchdog,gateway").assert_ok()
    for host in nodes.values():
        pending_update.prepare(host)
    on_all(nodes, "apt-get update")
    yield Shared(found, found.connect(FRONT))
    for name in nodes:
        pending_update.remove(cluster.connect(name))
    cluster.site("--tags", "ray_cluster,vllm_serve,vllm_watchdog,gateway").assert_ok()


def turns(log: str) -> list[str]:
    """Return when the gateway found its servers away and back, in order, from its journal.

    On busy cores, a check of a server that answers can take more than its five seconds.
    """
    found, state = list[str](), dict[str, str]()
    for cluster, reason in re.findall(rf"^(\w+)/{MODEL}: (.*)$", log, re.MULTILINE):
        before = state.get(cluster, "back")
        if reason == SLOW:
            state[cluster] = "slow" if before == "back" else before
        elif (now := "back" if reason == "healthy again" else "away") != before:
            state[cluster] = now
            found += [] if before == "slow" and now == "back" else [f"{cluster} {now}"]
    return found


def unchanged(nodes: dict[str, Host]) -> None:
    """No node has a file of an update or a lock."""
    assert set(on_all(nodes, f"ls {pending_update.FILES} /run/gb10/lock.json 2>/dev/null || true").values()) == {""}


def test_the_preview_has_all_units(shared: Shared, nodes: dict[str, Host]) -> None:
    shared.cluster.play("os_update", "--check").assert_unchanged(
        "cluster large, first:",
        f"{MODEL} at the gateway of {FRONT}: from small meanwhile",
        "the gateway of spark1 and all of its models are away while spark1 boots",
        "cluster small, then:",
        f"{MODEL} at the gateway of {FRONT}: from large meanwhile",
    )
    alone = shared.cluster.play("os_update", gb10_only="small").assert_unchanged("spark2:", "upgrade all packages")
    assert alone.output.count("next: ") == 1
    unchanged(nodes)


def test_a_reason_of_the_second_cluster_stops_before_the_first_changes(shared: Shared, nodes: dict[str, Host]) -> None:
    with dpkg_locked(nodes["spark2"]):
        done = shared.cluster.play("os_update", os_update_confirmed=True)
    done.assert_failed("nodes[1]: spark2: python3 (PID ", "holds dpkg's lock", "cluster large, first:")
    assert done.changed_tasks() == set()
    unchanged(nodes)


def test_no_request_fails_while_both_clusters_are_updated(shared: Shared, nodes: dict[str, Host]) -> None:
    put(shared.front, PROGRAM, Path(gateway_load.__file__).read_text(encoding="utf-8"), "644")
    since = shared.front.check_output("date +%s")
    shared.front.check_output(
        "systemd-run --collect --unit=load --property=StandardOutput=truncate:/run/load.jsonl "
        f"python3 {PROGRAM} http://127.0.0.1:4000 /etc/gb10/gateway/operator.key {MODEL}"
    )
    try:
        done = shared.cluster.play("os_update", os_update_confirmed=True)
    finally:
        shared.front.check_output("systemctl stop load")
    lines = shared.front.check_output("cat /run/load.jsonl").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    answered = sorted(row["ended"] for row in rows if not row["problem"])
    gap = max(after - before for before, after in itertools.pairwise(answered))
    refused = [row for row in rows if row["problem"]]
    failed = [row for row in refused if f": {SLOW}" not in row["problem"]]
    print(f"{len(rows)} requests, {len(refused)} refused, {len(failed)} failed, {gap:.1f} s without an answer")  # noqa: T201
    done.assert_ok()
    again = {name: shared.cluster.connect(name) for name in nodes}
    assert set(on_all(again, "dpkg-query --show --showformat='${Version}' gb10-lab-update").values()) == {"2.0"}
    log = shared.front.check_output("journalctl --unit=gb10-gateway --output=cat --since=@%s", since)
    assert turns(log) == ORDER
    assert not failed, failed[:5]
    unchanged(again)
