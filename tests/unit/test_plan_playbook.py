"""playbooks/plan.yml, from recorded facts: no node is reached, and it does not take long."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from nodes import observed
from playbook import Run, run
from repository import ROOT

#: Seconds of CPU of all processes. It takes less than 4 on an idle machine; busy neighbours make the same work cost more.
LIMIT = 8
INVENTORY = ROOT / "inventories/two-spark"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """What was recorded of the two nodes of a sample."""
    for number in (1, 2):
        text = json.dumps({**observed(f"192.168.1.{10 + number}"), "model": None})
        (tmp_path / f"spark{number}.json").write_text(text, encoding="utf-8")
    return tmp_path


def plan(folder: Path, **variables: object) -> Run:
    given = json.dumps({"plan_offline": True, "plan_facts": str(folder), **variables})
    return run("playbooks/plan.yml", ["-i", str(INVENTORY), "--extra-vars", given])


def test_the_sample_is_planned_without_its_nodes(recorded: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = plan(recorded).assert_unchanged()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < LIMIT
    snapshot = Path(__file__).parent / "data" / "plan_two_spark.txt"
    # The runtime's folder is named after the lock's digest, of which Ansible reads no line end.
    assert [line.split("/bin/")[-1].strip() for line in snapshot.read_text(encoding="utf-8").splitlines()] == [
        line.split("/bin/")[-1].strip() for line in shown(done)
    ]


def shown(done: Run) -> list[str]:
    """The lines that the playbook showed."""
    text = done.output.partition('"msg": ')[2]
    lines, _end = json.JSONDecoder().raw_decode(text)
    return [str(line) for line in lines]


def test_another_model_is_planned_by_its_name(recorded: Path) -> None:
    lines = shown(plan(recorded, gb10_model="qwen3-next-80b-a3b-instruct-fp8").assert_unchanged())
    assert any("Qwen3-Next-80B" in line for line in lines)
    assert any(line.strip().startswith("fits:") for line in lines)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    done = plan(tmp_path, gb10_model="gpt-oss-12b", gb10_stack="curent")
    assert done.status != 0
    missing = f"nothing was recorded of spark1: there is no {tmp_path}/spark1.json"
    for word in (missing, "spark2.json", "no model 'gpt-oss-12b'", "did you mean current"):
        assert word in done.output
