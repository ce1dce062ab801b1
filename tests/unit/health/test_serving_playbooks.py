"""The serving playbooks, as far as they run without a reachable node."""

from __future__ import annotations

from repository import ROOT
from run_playbook import run

INVENTORY = ["-i", str(ROOT / "inventories/two-spark")]
NOBODY = ["-e", "ansible_host=127.0.0.2", "-e", "ansible_port=9"]


def test_a_switch_to_nothing_is_refused() -> None:
    done = run("playbooks/switch_model.yml", INVENTORY)
    assert done.status != 0
    assert "Fix: add -e gb10_model=NAME." in done.output


def test_nodes_that_cannot_be_reached_are_on_the_screen() -> None:
    done = run("playbooks/status.yml", [*INVENTORY, *NOBODY]).assert_unchanged()
    assert "model: unknown, because spark1 cannot be read" in done.output
    for name in ("spark1", "spark2"):
        assert f"{name}  CANNOT BE READ: " in done.output


def test_nodes_that_cannot_be_locked_are_listed_by_the_plan() -> None:
    done = run("playbooks/site.yml", [*INVENTORY, *NOBODY])
    assert done.status != 0
    assert all(f"nodes[{number}]: spark{number + 1} (127.0.0.2) cannot be read" in done.output for number in (0, 1))


def test_a_measurement_without_the_lock_is_a_failure() -> None:
    done = run("playbooks/benchmark_nccl.yml", [*INVENTORY, *NOBODY])
    assert done.status != 0
    assert "Stop when the cluster lock is not available" in done.output


def test_what_cannot_be_stopped_is_a_failure() -> None:
    assert run("playbooks/stop.yml", [*INVENTORY, *NOBODY]).status != 0
