"""The compilation of kernels in a real unit, its storage on every node, and its errors. vLLM and FlashInfer are a
fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from live_cluster import Cluster, extra, on_all
from run_playbook import Run, run
from testinfra.host import Host

RUNTIME = "/opt/gb10-kernels-test"
STORE = f"{RUNTIME}/lib/python3.11/site-packages/flashinfer/data/aot"


def compiled(cluster: Cluster, name: str, attention: str = "FLASHINFER") -> Run:
    """Run the playbook."""
    given = extra(kernels=name, attention=attention)
    return run("tests/integration/model/kernels.yml", [*cluster.arguments, *given])


@pytest.fixture
def _removed(nodes: dict[str, Host]) -> Iterator[None]:
    yield
    on_all(nodes, f"rm -rf {RUNTIME} /var/cache/private/gb10-kernels /var/cache/gb10-kernels")


@pytest.mark.slow
@pytest.mark.usefixtures("_removed")
def test_kernels_are_compiled_once_and_stored_on_every_node(cluster: Cluster, nodes: dict[str, Host]) -> None:
    compiled(cluster, "0123456789abcdef").assert_ok()
    for host in nodes.values():
        library = host.file(f"{STORE}/sampling/sampling.so")
        assert library.content_string.startswith("compiled with ")
        assert (library.user, library.mode) == ("root", 0o755)
        assert not host.file("/var/cache/private/gb10-kernels/.cache").exists, "the objects are removed"
        assert host.run("systemctl is-active gb10-kernels.service").stdout.strip() == "inactive"
    again = compiled(cluster, "0123456789abcdef").assert_ok()
    assert "changed: [" not in again.output.partition("Compile the kernels")[2]


@pytest.mark.slow
@pytest.mark.usefixtures("_removed")
def test_an_error_of_the_compiler_is_shown_and_nothing_is_stored(cluster: Cluster, head: Host) -> None:
    compiled(cluster, "fedcba9876543210", "broken").assert_failed("RuntimeError: this kernel cannot be compiled")
    assert not head.file(f"{STORE}/.gb10/fedcba9876543210.json").exists
    # The same call again starts the unit again.
    assert "this kernel cannot be compiled" in compiled(cluster, "fedcba9876543210", "broken").output
