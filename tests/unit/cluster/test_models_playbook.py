"""Tests of playbooks/models.yml with recorded facts: it connects to no node."""

from __future__ import annotations

import json
from pathlib import Path

from repository import ROOT
from run_playbook import Run, run

from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog

INVENTORY = ROOT / "inventories/two-spark"


def listed(folder: Path, **variables: object) -> Run:
    given = json.dumps({"gb10_plan_offline": True, "gb10_facts_dir": str(folder), **variables})
    return run("playbooks/models.yml", ["-i", str(INVENTORY), "--extra-vars", given])


def test_all_models_are_listed_without_the_nodes_and_without_a_valid_model(recorded: Path) -> None:
    own = {"mine": {"hub": "owner/mine"}}
    lines = (
        listed(recorded, gb10_model="gpt-oss-12b", gb10_recipe="missing", gb10_models=own)
        .assert_unchanged()
        .shown("Show the models")
    )
    count = len(catalog.known())
    assert lines[-1] == f"{count - 1} of {count} models fit on 2 nodes, 1 not judged"
    rows = {line.split()[0]: line.split()[1:] for line in lines[4:-2]}
    assert rows.keys() == catalog.known().keys() | {"mine"}
    assert rows["gpt-oss-120b"] == "65.2 131072 2 x 1 108.6".split()
    assert rows["llama-3.1-70b-instruct"][0] == "141.1*"
    assert rows["mine"][:3] == ["?", "not", "judged:"]


def test_a_problem_of_the_nodes_is_reported_instead(recorded: Path) -> None:
    (recorded / "spark2.json").unlink()
    done = listed(recorded, gb10_stack="curent")
    assert done.status != 0
    assert "2 problems found; nothing was changed." in done.output
    for word in ("spark2 has no recorded facts: ", "Fix: use current."):
        assert word in done.output
    assert "fit on 2 nodes" not in done.output


def test_unreachable_nodes_are_reported_together() -> None:
    done = run("playbooks/models.yml", ["-i", str(INVENTORY), "-e", "ansible_host=127.0.0.2", "-e", "ansible_port=9"])
    assert done.status != 0
    assert all(f"nodes[{number}]: spark{number + 1} (127.0.0.2) cannot be read" in done.output for number in (0, 1))


def test_a_run_that_leaves_out_a_node_is_refused(recorded: Path) -> None:
    given = json.dumps({"gb10_plan_offline": True, "gb10_facts_dir": str(recorded)})
    done = run("playbooks/models.yml", ["-i", str(INVENTORY), "--limit", "spark1", "--extra-vars", given])
    assert done.status != 0
    assert "This run leaves out spark2." in done.output
