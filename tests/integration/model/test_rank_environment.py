"""The environment of the running ranks finds the runtime's programs; the system has none of them."""

from __future__ import annotations

import pytest
from live_cluster import environment_of
from testinfra.host import Host

UNITS = ("gb10-ray", "gb10-vllm")


@pytest.mark.parametrize("unit", UNITS)
def test_a_rank_runs_the_ninja_of_its_runtime(nodes: dict[str, Host], unit: str) -> None:
    found = {name: environment_of(host, unit) for name, host in nodes.items()}
    assert any(found.values()), f"{unit} runs nowhere"
    for name, environment in found.items():
        if not environment:
            continue
        host = nodes[name]
        assert not host.file("/usr/bin/ninja").exists, "this host hides whether the runtime's is found"
        inside = f"env -i PATH={environment['PATH']}"
        path = host.check_output(f"{inside} sh -c 'command -v ninja'")
        assert path.startswith("/opt/gb10/runtime/")
        assert host.check_output(f"{inside} ninja --version")
