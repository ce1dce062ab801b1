"""The role golden as playbooks run it, with a fake server on this host."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import node_plan
from fake_openai import Model, serve
from repository import ROOT
from run_playbook import Run, run

from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

PLAY = """\
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: gb10.cluster.golden, tasks_from: check}
    - ansible.builtin.include_role: {name: gb10.cluster.golden}
"""


class Cluster:
    """One model, its plan and the folder of its record."""

    def __init__(self, folder: Path, model: Model, url: str) -> None:
        self.folder, self.model = folder, model
        self.plan: dict[str, Any] = {
            "model": model.root,
            "served_model_name": model.name,
            "quantization": "bf16",
            "store": {"hub": "org/tiny", "revision": "abc"},
            "api": {"url": url, "server_name": ""},
            "stack": {"vllm": "0.33.0"},
            "kind": "generate",
            "serve": {"args": ["--enable-auto-tool-choice"], "user_args": []},
            "node": {"head": True},
        }

    @property
    def record(self) -> Path:
        return self.folder / ".gb10/golden/tiny-abc.json"

    def play(self, *arguments: str) -> Run:
        """Run the role with the defaults of its variables."""
        playbook, inventory = self.folder / "play.yml", self.folder / "hosts"
        playbook.write_text(PLAY, encoding="utf-8")
        inventory.write_text(
            f"localhost ansible_become=false ansible_python_interpreter={sys.executable}\n", encoding="utf-8"
        )
        variables = json.dumps({"gb10_plan": self.plan})
        return run(str(playbook), ["-i", str(inventory), "-e", variables, *arguments])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    model = Model()
    with serve(model) as url:
        yield Cluster(tmp_path, model, url)


@pytest.mark.slow
def test_a_record_is_written_next_to_the_inventory_and_compared(cluster: Cluster) -> None:
    first = cluster.play().assert_ok()
    unrecorded = "golden answers: nothing was compared: no record. playbooks/golden.yml -e golden_record=true writes it"
    assert unrecorded in first.output and not cluster.record.exists()
    renewed = cluster.play("-e", "golden_record=true").assert_ok()
    assert f"recorded in {cluster.record}; commit it" in renewed.output
    assert set(json.loads(cluster.record.read_text(encoding="utf-8"))["answers"]) >= {"chat", "tool", "long"}
    cluster.model.date = "2026-11-23"
    same = cluster.play().assert_unchanged()
    assert "golden answers: 7 equal, 0 near, 0 different" in same.output
    assert "the recorded one was sent" in same.output
    cluster.model.scale = 1.3
    failed = cluster.play()
    assert failed.status != 0 and "The golden answers failed: " in failed.output
    assert "Fix: find the changed kernel, patch or weights" in failed.output


@pytest.mark.parametrize(("content", "expected"), [("", "the record is empty"), ('{"format": 1}', "model is None")])
def test_an_invalid_record_is_refused_before_any_request(cluster: Cluster, content: str, expected: str) -> None:
    cluster.record.parent.mkdir(parents=True)
    cluster.record.write_text(content, encoding="utf-8")
    failed = cluster.play()
    assert failed.status != 0 and expected in failed.output and str(cluster.record) in failed.output
    assert cluster.model.requests == []


def test_too_few_log_probabilities_are_refused_before_any_request(cluster: Cluster) -> None:
    cluster.plan["serve"]["user_args"] = ["--max-logprobs=1"]
    for arguments in ((), ("-e", "golden_record=true")):
        failed = cluster.play(*arguments)
        assert failed.status != 0 and "gb10_vllm_extra_args: --max-logprobs is 1. Expected: 5 or more" in failed.output
    assert cluster.model.requests == []


GATE = """\
- hosts: localhost
  gather_facts: false
  vars_files: [{vars}]
  tasks:
    - gb10.cluster.show:
        lines: "{{{{ item.name }}}}: {{{{ _vllm_serve_golden_due }}}}"
      vars:
        __vllm_serve_service: {{start_needed: "{{{{ item.start }}}}", planned: {{launch: "{{{{ recorded }}}}"}}}}
        gb10_plan: "{{{{ plan | combine({{'node': {{'state': {{'last_good': item.last_good}}}}}}, recursive=true) }}}}"
        gb10_inputs: {{settings: {{golden_enabled: "{{{{ item.enabled }}}}", golden_record: "{{{{ item.renew }}}}"}}}}
      loop: "{{{{ cases }}}}"
"""


def test_the_gate_is_for_starts_unrecorded_launches_and_renewals(tmp_path: Path) -> None:
    plan = json.loads((ROOT / "tests/unit/data/plan_two_spark.json").read_text(encoding="utf-8"))
    plan = node_plan(plan, "spark1")
    recorded = argv.start_digest(load.plan(plan))
    cases = {
        "unchanged": (False, recorded, True, False, False),
        "started": (True, recorded, True, False, True),
        "interrupted": (False, "another", True, False, True),
        "renewed": (False, recorded, True, True, True),
        "disabled": (True, "another", False, True, False),
    }
    given = [
        {"name": name, "start": case[0], "last_good": case[1], "enabled": case[2], "renew": case[3]}
        for name, case in cases.items()
    ]
    playbook = tmp_path / "gate.yml"
    playbook.write_text(GATE.format(vars=ROOT / "roles/vllm_serve/vars/main.yml"), encoding="utf-8")
    done = run(
        str(playbook),
        ["-i", "localhost,", "-c", "local", "-e", json.dumps({"plan": plan, "cases": given, "recorded": recorded})],
    ).assert_ok()
    shown = [line.strip() for line in done.output.splitlines()]
    assert [line for line in shown if line.partition(":")[0] in cases] == [
        f"{name}: {case[4]}" for name, case in cases.items()
    ]
