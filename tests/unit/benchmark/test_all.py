"""The control flow of the role benchmark_all on two hosts, with stand-ins for the roles that change nodes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_nodes import SETTINGS
from decisions import decide
from repository import ROOT, files, load_yaml, read, tasks_of
from run_playbook import Run, run
from typed_plans import fact

PLAN = fact({})
NAMES = ["spark1", "spark2"]
PLAY = [
    {
        "name": "Measure",
        "hosts": "all",
        "gather_facts": False,
        "any_errors_fatal": True,
        "tasks": [
            {"name": "Plan", "ansible.builtin.include_role": {"name": "gb10.cluster.gb10"}},
            {"name": "Measure", "ansible.builtin.include_role": {"name": "gb10.cluster.benchmark_all"}},
        ],
    }
]


def fails(condition: str, message: str) -> dict[str, Any]:
    return {"name": "Fail", "ansible.builtin.fail": {"msg": message}, "when": condition}


LOGGED = {
    "name": "Log",
    "ansible.builtin.debug": {
        "msg": "STEP {{ role_name | split('.') | last }} {{ gb10_model }} {{ inventory_hostname }}"
    },
}
SET_PLAN = (
    "{{ plan | combine({'model': '/srv/models/' ~ gb10_model, 'node': "
    "plan.nodes[groups['all'].index(inventory_hostname)]}) }}"
)
OF_ROLE = {name: value for name, value in SETTINGS.items() if name.startswith("benchmark_model_")}
INPUTS = {"settings": {**OF_ROLE, "gb10_models": "{{ gb10_models | default({}) }}"}}
ROLES: dict[str, list[dict[str, Any]]] = {
    "gb10/tasks/main.yml": [
        LOGGED,
        {"name": "Collect", "ansible.builtin.set_fact": {"gb10_inputs": INPUTS}},
        fails("gb10_model == 'large'", "large does not fit"),
        {"name": "Set", "ansible.builtin.set_fact": {"gb10_plan": SET_PLAN}},
    ],
    "golden/tasks/check.yml": [LOGGED],
    "model_store/tasks/main.yml": [LOGGED],
    "vllm_patch/tasks/main.yml": [LOGGED],
    "ray_cluster/tasks/main.yml": [LOGGED],
    # On one host only.
    "vllm_serve/tasks/main.yml": [
        LOGGED,
        fails("gb10_model == 'broken' and inventory_hostname == 'spark2'", "no memory on spark2"),
    ],
    "nccl_sm121_build/tasks/verify.yml": [LOGGED],
    "vllm_watchdog/tasks/main.yml": [LOGGED],
    "benchmark_model/tasks/main.yml": [
        LOGGED,
        {
            "name": "Set",
            "ansible.builtin.set_fact": {
                "__benchmark_model_report": {
                    "document": {"model": "/srv/models/{{ gb10_model }}", "runs": "{{ measured }}"},
                    "file": "{{ gb10_model }}.json",
                }
            },
            "when": "gb10_plan.node.head",
        },
        fails("gb10_model == 'slow' and gb10_plan.node.head", "slower than before"),
    ],
}
STATUS = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({name: {"type": "raw", "no_log": False} for name in ("url", "server_name", "key_file", "seconds")}, supports_check_mode=True)
module.exit_json(api={"healthy": True, "answers": True, "root": "/srv/models/SERVED"})
"""
MEASURED = [
    {
        "concurrency": 1,
        "input_tokens": 1024,
        "output_tokens": 128,
        "tokens_per_second": 40.0,
        "decode_tokens_per_second": 41.0,
        "roofline_percent": 80.0,
        "ttft_ms": {"median": 512.0},
    }
]


class Cluster:
    """Two hosts, both this machine, and a copy of the collection with stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.output = folder, folder / "matrix.json", ""
        self.collection = folder / "collections/ansible_collections/gb10/cluster"
        (self.collection / "plugins").mkdir(parents=True)
        (self.collection / "galaxy.yml").symlink_to(ROOT / "galaxy.yml")
        (self.collection / "meta").symlink_to(ROOT / "meta")
        for kind in (ROOT / "plugins").iterdir():
            (self.collection / "plugins" / kind.name).mkdir()
            for path in kind.iterdir():
                if path.stem != "cluster_status_info":
                    (self.collection / "plugins" / kind.name / path.name).symlink_to(path)
        self.serve("served")
        (self.collection / "roles").mkdir()
        (self.collection / "roles/benchmark_all").symlink_to(ROOT / "roles/benchmark_all")
        for name, tasks in ROLES.items():
            path = self.collection / "roles" / name
            path.parent.mkdir(parents=True)
            path.write_text(yaml.safe_dump(tasks), encoding="utf-8")

    def serve(self, name: str) -> None:
        """Let the API report a model."""
        (self.collection / "plugins/modules/cluster_status_info.py").write_text(
            STATUS.replace("SERVED", name), encoding="utf-8"
        )

    def play(self, *models: str, confirmed: bool = True, arguments: tuple[str, ...] = (), **variables: Any) -> Run:
        """Run the role for these models."""
        unknown = {"context": 0, "max_num_seqs": 0, "tokens_per_second": 0.0}
        plan = fact({"serve": {"expected": unknown}, "root": str(self.folder / "opt")})
        given = {"plan": plan, "measured": MEASURED, "benchmark_all_file": str(self.file), **variables}
        given |= {"benchmark_all_models": list(models), "benchmark_all_confirmed": confirmed}
        host = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
        inventory = {"all": {"hosts": dict.fromkeys(NAMES, host), "vars": {**given, "gb10_model": "served"}}}
        (self.folder / "hosts.yml").write_text(json.dumps(inventory), encoding="utf-8")
        (self.folder / "play.yml").write_text(json.dumps(PLAY), encoding="utf-8")
        environment = {"ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections")}
        done = run(str(self.folder / "play.yml"), ["-i", str(self.folder / "hosts.yml"), *arguments], environment)
        self.output = done.output
        return done

    def steps(self, role: str, host: str = "spark1") -> list[str]:
        """Return the models for which a role ran on a host, in order."""
        return re.findall(rf"STEP {role} (\w+) {host}\b", self.output)

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.slow
def test_failed_models_are_rows_and_the_first_model_serves_again(cluster: Cluster) -> None:
    done = cluster.play("broken", "fast", "slow")
    assert done.status != 0
    for host in NAMES:
        assert cluster.steps("vllm_serve", host) == ["broken", "fast", "slow", "served"]
        assert cluster.steps("benchmark_model", host) == ["fast", "slow"]
    assert cluster.steps("nccl_sm121_build") == ["fast", "slow", "served"]
    # All models are planned before the first switch.
    assert cluster.steps("gb10") == ["served", "broken", "fast", "slow", "broken", "fast", "slow", "served"]
    rows = {row["name"]: (row["problem"], len(row["runs"]), row["file"]) for row in cluster.record["rows"]}
    assert rows == {
        "broken": ("no memory on spark2", 0, ""),
        "fast": ("", 1, "fast.json"),
        "slow": ("slower than before", 1, "slow.json"),
    }
    assert cluster.record["finished"] is True
    assert done.shown("Show the matrix")[1].split()[:2] == ["fast", "1"]
    assert "broken, slow failed; the matrix above has the reasons. /srv/models/served serves again." in done.output


@pytest.mark.slow
def test_an_interrupted_run_of_the_stored_models_continues(cluster: Cluster) -> None:
    for name in ("fast", "large"):
        (cluster.folder / name).mkdir()
        (cluster.folder / name / "gb10-model.json").write_text("{}", encoding="utf-8")
    (cluster.folder / "partial").mkdir()
    models = {name: {"path": str(cluster.folder / name)} for name in ("fast", "large", "partial", "absent")}
    stored = cluster.play(gb10_models=models).assert_ok()
    assert cluster.steps("benchmark_model") == ["fast"]
    assert "large: left out, because the planner refuses it" in stored.output
    interrupted = {**cluster.record, "finished": False}
    cluster.file.write_text(json.dumps(interrupted), encoding="utf-8")
    done = cluster.play("fast", "next").assert_ok()
    assert cluster.steps("benchmark_model") == ["next"]
    assert [row["name"] for row in cluster.record["rows"]] == ["fast", "next"]
    assert "fast: has a result of the interrupted run of" in done.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("served", "confirmed", "arguments", "expected"),
    [
        ("another", True, (), "serves /srv/models/another. Expected: /srv/models/served, which answers"),
        ("served", False, (), "Expected: the answer yes on a terminal, or benchmark_all_confirmed: true."),
        ("served", True, ("--check",), "1 models, about"),
    ],
    ids=["another model serves", "unconfirmed", "check mode"],
)
def test_nothing_is_switched(
    cluster: Cluster, served: str, confirmed: bool, arguments: tuple[str, ...], expected: str
) -> None:
    cluster.serve(served)
    done = cluster.play("fast", confirmed=confirmed, arguments=arguments)
    assert (done.status == 0) is bool(arguments)
    assert expected in done.output
    assert cluster.steps("vllm_serve") == []
    assert not cluster.file.exists()


@pytest.mark.parametrize("role", load_yaml(read("roles/benchmark_all/vars/main.yml"))["_benchmark_all_switch"])
def test_steps_stop_on_every_host(role: str) -> None:
    """Ansible rescues a failed task with run_once only on one host, and the other hosts would go on."""
    once = ["bandwidth.yml", "gb10/tasks/inputs.yml: Refuse a run that leaves out cluster nodes"]
    found = [
        f"{path.removeprefix('roles/')}: {task.data['name']}"
        for path in files(f"roles/{role}/tasks/*.yml")
        for task in tasks_of(read(path))
        if task.data.keys() & {"ansible.builtin.fail", "ansible.builtin.assert"} and task.data.get("run_once")
    ]
    assert [each for each in found if not any(text in each for text in once)] == []


def test_the_action_finds_stored_models_and_refuses_to_begin_without_one() -> None:
    variables = {
        "gb10_inputs": {"settings": {"gb10_models": {"mine": {"path": "/m/mine"}, "other": {"path": "/m/other"}}}}
    }
    found, calls = decide(
        "benchmark_matrix",
        {"step": "find"},
        PLAN,
        result={"files": [{"path": "/m/mine/gb10-model.json"}]},
        variables=variables,
    )
    assert found["copies"] == ["/m/mine"]
    assert {"/m/mine", "/m/other"} < set(calls[0]["paths"]) and calls[0]["patterns"] == ["gb10-model.json"]
    hosts = {"spark1": {"__benchmark_all_copies": found}}
    state = decide("benchmark_matrix", {"step": "list"}, PLAN, hosts, variables=variables)[0]
    assert (state["models"], state["chosen"]) == (["mine"], False)
    begun = decide("benchmark_matrix", {"step": "begin", "matrix": state}, PLAN, variables=variables)[0]
    assert begun["failed"] and begun["msg"].startswith("No model to measure.")
