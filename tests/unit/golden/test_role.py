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
from launches import PLAN
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
    """One model, its plan and its record."""

    def __init__(self, folder: Path, model: Model, url: str) -> None:
        self.folder, self.model, self.record = folder, model, folder / ".gb10/golden/tiny-abc.json"
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

    def play(self, renew: bool = False) -> Run:
        """Run the role with the defaults of its other variables."""
        playbook, inventory = self.folder / "play.yml", self.folder / "hosts.yml"
        playbook.write_text(PLAY, encoding="utf-8")
        host = (
            f"all: {{hosts: {{localhost: {{ansible_become: false, ansible_python_interpreter: {sys.executable}}}}}}}\n"
        )
        inventory.write_text(host, encoding="utf-8")
        variables = json.dumps({"gb10_plan": self.plan, "golden_record": renew})
        return run(str(playbook), ["-i", str(inventory), "-e", variables])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    model = Model()
    with serve(model) as url:
        yield Cluster(tmp_path, model, url)


@pytest.mark.slow
def test_a_record_is_written_next_to_the_inventory_and_compared(cluster: Cluster) -> None:
    renewed = cluster.play(renew=True).assert_ok()
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


@pytest.mark.parametrize("renew", [False, True])
def test_what_prevents_a_comparison_is_refused_before_any_request(cluster: Cluster, renew: bool) -> None:
    cluster.plan["serve"]["user_args"] = ["--max-logprobs=1"]
    cluster.record.parent.mkdir(parents=True)
    cluster.record.write_text('{"format": 1}', encoding="utf-8")
    failed = cluster.play(renew)
    assert failed.status != 0 and "gb10_vllm_extra_args: --max-logprobs is 1. Expected: 5 or more" in failed.output
    assert (f"{cluster.record}: model is None" in failed.output) is not renew, "a renewal replaces the record"
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


@pytest.mark.slow
def test_the_gate_is_for_starts_unrecorded_launches_and_renewals(tmp_path: Path) -> None:
    plan = node_plan(PLAN, "spark1")
    recorded = argv.start_digest(load.plan(plan))
    names = ("name", "start", "last_good", "enabled", "renew", "due")
    cases = [
        dict(zip(names, case, strict=True))
        for case in (
            ("unchanged", False, recorded, True, False, False),
            ("started", True, recorded, True, False, True),
            ("interrupted", False, "another", True, False, True),
            ("renewed", False, recorded, True, True, True),
            ("disabled", True, "another", False, True, False),
        )
    ]
    playbook = tmp_path / "gate.yml"
    playbook.write_text(GATE.format(vars=ROOT / "roles/vllm_serve/vars/main.yml"), encoding="utf-8")
    variables = json.dumps({"plan": plan, "cases": cases, "recorded": recorded})
    done = run(str(playbook), ["-i", "localhost,", "-c", "local", "-e", variables]).assert_ok()
    assert set(map(str.strip, done.output.splitlines())) >= {f"{case['name']}: {case['due']}" for case in cases}
