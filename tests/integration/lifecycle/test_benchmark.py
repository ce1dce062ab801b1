"""Benchmarks that are refused before a request is sent or a model stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import Cluster, copied, running, started
from testinfra.host import Host

#: A shape of a trillion parameters.
LARGE, SHAPE = "/srv/models/large", {"num_hidden_layers": 400, "hidden_size": 16384, "intermediate_size": 53248}


def test_a_benchmark_while_another_runs_is_refused(cluster: Cluster, head: Host, tmp_path: Path) -> None:
    single = {"benchmark_model_mode": "single", "benchmark_model_directory": f"{tmp_path}/first"}
    with running(lambda: cluster.play("benchmark_model", **single), head) as first:
        second = cluster.play("benchmark_model", benchmark_model_directory=f"{tmp_path}/second")
    second.assert_failed("the cluster is locked: ", " runs benchmark_model.yml (process ")
    assert not (tmp_path / "second").exists()
    first[0].assert_ok()
    assert list((tmp_path / "first").rglob("*.json"))


@pytest.fixture
def large(nodes: dict[str, Host], head: Host) -> Iterator[str]:
    """The tiny model's files with the shape of a model that is larger than any two machines."""
    config = json.loads(head.check_output("cat /srv/models/tiny/config.json")) | SHAPE
    with copied(nodes, "tiny", LARGE, f"cat >{LARGE}/config.json <<'END'\n{json.dumps(config)}\nEND") as folder:
        yield folder


def test_a_model_that_does_not_fit_is_refused_before_any_switch(cluster: Cluster, head: Host, large: str) -> None:
    before = started(head)
    # Only CUDA's memory is planned. The lab's machines have the memory of this one.
    models = ["/srv/models/tiny", large]
    refused = cluster.play("benchmark_all", "--check", benchmark_all_models=models, gb10_stack="current")
    refused.assert_failed("larger than the cluster")
    assert started(head) == before
