"""Switch the executor, the parallelism and the model, and back: the answers are the same, and no other service is
left."""

from __future__ import annotations

import time

import pytest
from api_client import answers_again, completion
from live_cluster import Cluster, extra, of_unit
from outage import leftovers
from testinfra.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

MP = extra(gb10_distributed_executor_backend="mp")
WAYS: dict[str, dict[str, object]] = {
    "ray, tensor 2": {"gb10_distributed_executor_backend": "ray"},
    "mp, tensor 2": {"gb10_distributed_executor_backend": "mp"},
    "mp, pipeline 2": {
        "gb10_distributed_executor_backend": "mp",
        "gb10_tensor_parallel_size": 1,
        "gb10_pipeline_parallel_size": 2,
    },
}
#: Each switch changes the executor, or the parallelism and the model, or all. Every start costs about a minute of a
#: core, and the exact comparison finds the leftovers of a switch.
SWITCHES = [
    ("mp, tensor 2", "tiny"),
    ("mp, pipeline 2", "tiny-moe"),
    ("ray, tensor 2", "tiny-moe"),
    ("mp, pipeline 2", "tiny"),
    ("ray, tensor 2", "tiny"),
]


def restarts(host: Host) -> int:
    return int(of_unit(host, "gb10-vllm", "NRestarts"))


def test_without_ray_and_back(cluster: Cluster, nodes: dict[str, Host], head: Host, workers: list[Host]) -> None:
    text = completion(head)
    try:
        # As a whole: the firewall knows the ports of the executor.
        cluster.site(*MP).assert_ok("Stopping gb10-ray.service")
        for host in nodes.values():
            assert host.check_output("systemctl is-active gb10-vllm") == "active"
            assert not host.file("/etc/systemd/system/gb10-ray.service").exists
            assert host.run("pgrep --full '[r]aylet'").rc == 1
        assert completion(head) == text, "the same model, the same weights on each rank"
        cluster.site(*MP).assert_unchanged()
        # After one rank dies, all ranks restart without a playbook run.
        before = [restarts(host) for host in nodes.values()]
        (rank, *_others) = workers[0].check_output(f"pgrep --parent {of_unit(workers[0], 'gb10-vllm')}").split()
        workers[0].check_output(f"kill -9 {rank}")
        time.sleep(5)
        assert answers_again(head) == text
        assert all(restarts(host) > count for host, count in zip(nodes.values(), before, strict=True))
    finally:
        cluster.site().assert_ok()
    assert completion(head) == text
    for worker in workers:
        assert not worker.file("/etc/systemd/system/gb10-vllm.service").exists
    cluster.site().assert_unchanged()


def test_switches_leave_nothing_behind(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    cluster.play("stop").assert_ok()
    before = {name: leftovers(host) for name, host in nodes.items()}
    assert not any(state["processes"] for state in before.values())
    texts: dict[str, set[str]] = {"tiny": set(), "tiny-moe": set()}
    try:
        for way, model in SWITCHES:
            cluster.serve(*extra(**WAYS[way], gb10_model=f"/srv/models/{model}")).assert_ok()
            texts[model].add(completion(head, model=model))
        cluster.play("stop").assert_ok()
        assert {name: leftovers(host) for name, host in nodes.items()} == before
    finally:
        cluster.serve().assert_ok()
    # The weights do not depend on the number of ranks, and float32 makes the best token unambiguous.
    assert {model: len(found) for model, found in texts.items()} == {"tiny": 1, "tiny-moe": 1}
