"""The environment of the running ranks finds the runtime's programs; the system has none of them."""

from __future__ import annotations

import pytest
from testinfra.host import Host

UNITS = ("gb10-ray", "gb10-vllm")


def variables(host: Host, unit: str) -> dict[str, str]:
    """Return the environment of a unit's main process, {} if it does not run."""
    pid = host.check_output(f"systemctl show --value --property MainPID {unit}")
    if pid == "0":
        return {}
    return dict(
        entry.split("=", 1)
        for entry in host.check_output(f"tr '\\0' '\\n' </proc/{pid}/environ").splitlines()
        if "=" in entry
    )


@pytest.mark.parametrize("unit", UNITS)
def test_a_rank_runs_the_ninja_of_its_runtime(nodes: dict[str, Host], unit: str) -> None:
    found = {name: variables(host, unit) for name, host in nodes.items()}
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
