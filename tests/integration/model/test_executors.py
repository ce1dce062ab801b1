"""The same inventory with another executor, and back: the same answer, and nothing of the other left."""

from __future__ import annotations

import time

import pytest
from cluster import Cluster
from served import completion
from testinfra.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

MP = ("--extra-vars", "gb10_executor=mp")


def restarts(host: Host) -> int:
    return int(host.check_output("systemctl show --property=NRestarts --value gb10-vllm"))


def answers_after_a_restart(head: Host, within: float = 400) -> str:
    """Wait until the API answers again."""
    until = time.monotonic() + within
    while True:
        try:
            return completion(head)
        except AssertionError:
            assert time.monotonic() < until, "the API did not come back"
            time.sleep(3)


def test_without_ray_and_back(cluster: Cluster, nodes: dict[str, Host], head: Host, workers: list[Host]) -> None:
    text = completion(head)
    try:
        said = cluster.site(*MP).assert_ok().output
        assert "Stopping gb10-ray.service" in said
        for host in nodes.values():
            assert host.check_output("systemctl is-active gb10-vllm") == "active"
            assert not host.file("/etc/systemd/system/gb10-ray.service").exists
            assert host.run("pgrep --full raylet").rc == 1
        assert completion(head) == text, "the same model, the same weights on each rank"
        cluster.site(*MP).assert_unchanged()
        # One rank dies, and all start again, without a run of the playbook.
        before = [restarts(host) for host in nodes.values()]
        (rank, *_others) = workers[0].check_output("pgrep --parent $(systemctl show --property=MainPID --value gb10-vllm)").split()
        workers[0].check_output(f"kill -9 {rank}")
        time.sleep(5)
        assert answers_after_a_restart(head) == text
        assert all(restarts(host) > count for host, count in zip(nodes.values(), before, strict=True))
    finally:
        cluster.site().assert_ok()
    assert completion(head) == text
    for worker in workers:
        assert not worker.file("/etc/systemd/system/gb10-vllm.service").exists
    cluster.site().assert_unchanged()
