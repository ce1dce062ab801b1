"""Benchmarks that are refused before a request is sent or a model stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import Cluster, on_all, running
from run_playbook import Run, run
from testinfra.host import Host

#: A shape of a trillion parameters.
LARGE, SHAPE = "/srv/models/large", {"num_hidden_layers": 400, "hidden_size": 16384, "intermediate_size": 53248}


def benchmark(cluster: Cluster, name: str, *arguments: str, **variables: object) -> Run:
    return run(
        f"playbooks/benchmark_{name}.yml", [*cluster.arguments, "--extra-vars", json.dumps(variables), *arguments]
    )


def test_a_benchmark_while_another_runs_is_refused(cluster: Cluster, head: Host, tmp_path: Path) -> None:
    with running(
        lambda: benchmark(
            cluster, "model", benchmark_model_mode="single", benchmark_model_directory=f"{tmp_path}/first"
        ),
        head,
    ) as first:
        second = benchmark(cluster, "model", benchmark_model_directory=f"{tmp_path}/second")
    second.assert_failed("the cluster is locked: ", " runs benchmark_model.yml (process ")
    assert not (tmp_path / "second").exists()
    first[0].assert_ok()
    assert list((tmp_path / "first").rglob("*.json"))


@pytest.fixture
def large(nodes: dict[str, Host]) -> Iterator[str]:
    """The tiny model's files with the shape of a model that is larger than any two machines."""
    for host in nodes.values():
        config = json.loads(host.check_output("cat /srv/models/tiny/config.json")) | SHAPE
        host.check_output(
            f"cp -rL /srv/models/tiny {LARGE} && cat >{LARGE}/config.json <<'END'\n{json.dumps(config)}\nEND"
        )
    yield LARGE
    on_all(nodes, f"rm -r {LARGE}")


def test_a_model_that_does_not_fit_is_refused_before_any_switch(cluster: Cluster, head: Host, large: str) -> None:
    before = head.check_output("systemctl show --property=InvocationID --value gb10-vllm")
    # Only CUDA's memory is planned. The lab's machines have the memory of this one.
    benchmark(
        cluster, "all", "--check", benchmark_all_models=["/srv/models/tiny", large], gb10_stack="current"
    ).assert_failed("larger than the cluster")
    assert head.check_output("systemctl show --property=InvocationID --value gb10-vllm") == before
