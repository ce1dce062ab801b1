"""An update of the system on two hosts that serve: the drain, the reboots, golden answers, and what stops it.

The hosts have this machine's kernel. Their boot loader is a fixture: GRUB's files and programs, without a boot. The
scenario vm has real ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pending_update
import pytest
from api_client import API, CURL, answers_again
from live_cluster import Cluster, extra, on_all, started
from testinfra.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

CONFIRMED = extra(os_update_confirmed=True)


@pytest.fixture(scope="module")
def pending(cluster: Cluster, nodes: dict[str, Host], head: Host) -> Iterator[None]:
    """Nodes with a pending package."""
    answers_again(head)
    for host in nodes.values():
        pending_update.prepare(host)
    yield
    for name in cluster.groups["gb10_cluster"]:
        pending_update.remove(cluster.connect(name))


@pytest.mark.usefixtures("pending")
def test_the_preview_changes_nothing(cluster: Cluster, nodes: dict[str, Host]) -> None:
    on_all(nodes, "apt-get update")
    shown = cluster.play("os_update", "--check", "--diff").assert_unchanged(
        "1 packages change", "way back: the kernel "
    )
    assert shown.output.count("next: upgrade all packages, and boot") == len(nodes)
    cluster.play("os_update").assert_unchanged("next: upgrade all packages, and boot")
    assert set(on_all(nodes, f"ls {pending_update.FILES} 2>/dev/null || true").values()) == {""}


@pytest.mark.usefixtures("pending")
def test_the_unit_is_updated_and_serves_again(
    cluster: Cluster, nodes: dict[str, Host], head: Host, tmp_path: Path
) -> None:
    before = started(head)
    body = '{"model": "tiny", "prompt": "Hello", "max_tokens": 900, "ignore_eos": true}'
    head.check_output(f"({CURL} --silent --max-time 300 --json '{body}' {API}/v1/completions >/run/answer 2>&1 &)")
    golden = extra(golden_directory=str(tmp_path))
    began = time.monotonic()
    done = cluster.play("os_update", *CONFIRMED, *golden).assert_ok()
    print(f"updated after {time.monotonic() - began:.0f} s")  # noqa: T201
    assert done.output.count("boots the new kernel once") == len(nodes)
    again = {name: cluster.connect(name) for name in nodes}
    assert set(on_all(again, "dpkg-query --show --showformat='${Version}' gb10-lab-update").values()) == {"2.0"}
    assert set(on_all(again, f"ls {pending_update.FILES} 2>/dev/null || true").values()) == {""}
    assert set(on_all(again, "test -e /run/reboot-required && echo pending || true").values()) == {""}
    answers_again(again["spark1"])
    assert started(again["spark1"]) != before
    assert list(tmp_path.glob("*.json")), "no golden answers were recorded before the update"
    cluster.play("os_update", *CONFIRMED, *golden).assert_unchanged("next: nothing to do")
