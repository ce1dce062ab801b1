"""The limit of the GPU's clock: set at once, shown, removed without a trace, also after a GPU that refused it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from live_cluster import Cluster
from testinfra.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

UNIT = "gb10-gpu-clock.service"
#: The lab's nvidia-smi keeps the locked clocks here.
CLOCKS = "/run/nvidia-smi.clocks"
LIMIT = ("--tags", "host_guard", "--extra-vars", "host_guard_gpu_clock=2100")


@pytest.fixture
def unlimited(cluster: Cluster, head: Host) -> Iterator[None]:
    yield
    head.run(f"rmdir {CLOCKS}")
    cluster.site("--tags", "host_guard").assert_ok()


@pytest.mark.usefixtures("unlimited")
def test_the_limit_is_set_shown_and_removed(cluster: Cluster, head: Host) -> None:
    cluster.site(*LIMIT).assert_ok()
    assert head.file(CLOCKS).content_string == "0,2100"
    assert "limit 2100 MHz" in cluster.play("status").assert_ok().output
    cluster.site("--tags", "host_guard").assert_ok()
    assert not head.file(CLOCKS).exists
    assert UNIT not in head.check_output("systemctl list-units --all")


@pytest.mark.usefixtures("unlimited")
def test_a_refused_limit_leaves_no_failed_unit_behind(cluster: Cluster, head: Host) -> None:
    # The fixture cannot write its file.
    head.check_output(f"mkdir {CLOCKS}")
    done = cluster.site(*LIMIT)
    assert done.status != 0 and f"restart {UNIT} failed" in done.output
    assert UNIT in head.check_output("systemctl list-units --failed")
    cluster.site("--tags", "host_guard").assert_ok()
    assert UNIT not in head.check_output("systemctl list-units --all --failed")
