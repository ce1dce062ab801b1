"""The serving playbooks, as far as they run without a reachable node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, load_yaml, read
from run_playbook import run

INVENTORY = ["-i", str(ROOT / "inventories/two-spark")]
NOBODY = ["-e", "ansible_host=127.0.0.2", "-e", "ansible_port=9"]


#: Playbooks that fail without a reachable node, and texts of their output.
REFUSED = {
    "a switch to nothing": ("switch_model", [], ["Fix: add -e gb10_model=NAME."]),
    "nodes that cannot be locked": (
        "site",
        NOBODY,
        [f"nodes[{number}]: spark{number + 1} (127.0.0.2) cannot be read" for number in (0, 1)],
    ),
    "a measurement without the lock": ("benchmark_nccl", NOBODY, ["Stop when the cluster lock is not available"]),
    "what cannot be stopped": ("stop", NOBODY, []),
}


@pytest.mark.slow
@pytest.mark.parametrize(("playbook", "more", "texts"), REFUSED.values(), ids=REFUSED)
def test_a_playbook_that_cannot_work_fails(playbook: str, more: list[str], texts: list[str]) -> None:
    done = run(f"playbooks/{playbook}.yml", [*INVENTORY, *more])
    assert done.status != 0
    assert [text for text in texts if text not in done.output] == []


@pytest.mark.slow
def test_nodes_that_cannot_be_reached_are_on_the_screen() -> None:
    done = run("playbooks/status.yml", [*INVENTORY, *NOBODY]).assert_unchanged()
    assert "model: unknown, because spark1 cannot be read" in done.output
    for name in ("spark1", "spark2"):
        assert f"{name}  CANNOT BE READ: " in done.output


ENDS = {
    "site": ("playbooks/steps/roles.yml", "ansible.builtin.import_role"),
    "switch": ("playbooks/switch_model.yml", "ansible.builtin.import_role"),
    "upgrade": ("roles/upgrade/tasks/switch.yml", "ansible.builtin.include_role"),
    "rollback": ("roles/rollback/tasks/perform.yml", "ansible.builtin.include_role"),
}


def tasks(found: Any) -> Iterator[dict[str, Any]]:
    """Yield the tasks of plays and blocks in order, without those that a block always runs."""
    for each in found:
        inner = [task for key in ("tasks", "block") for task in each.get(key, [])]
        yield from tasks(inner) if inner else [each]


@pytest.mark.parametrize("name", ENDS)
def test_a_run_that_starts_a_model_ends_with_its_endpoint(name: str) -> None:
    path, action = ENDS[name]
    assert (
        list(tasks(load_yaml(read(path))))[-1][action].items()
        >= {"name": "gb10.cluster.gb10", "tasks_from": "clients"}.items()
    )


@pytest.mark.parametrize(
    ("mode", "url", "endpoint"),
    [
        ((), "http://127.0.0.1:8000", "http://192.168.1.11:8000"),
        # A record may have another port than the inventory.
        ((), "http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        (("--check",), "http://127.0.0.1:8000", ""),
    ],
    ids=["run", "another address", "check mode"],
)
def test_the_end_has_the_endpoint_and_a_request(tmp_path: Path, mode: tuple[str, ...], url: str, endpoint: str) -> None:
    plan = {"api": {"url": url}, "served_model_name": "tiny", "kind": "generate", "node": {"head": True}}
    play = {
        "hosts": "spark1",
        "gather_facts": False,
        "vars": {"ansible_host": "192.168.1.11", "ansible_user": "nvidia", "gb10_plan": plan},
        "tasks": [
            {"gb10.cluster.step": {"name": "cluster_inputs"}, "register": "gb10_inputs"},
            {"ansible.builtin.import_role": {"name": "gb10.cluster.gb10", "tasks_from": "clients"}},
        ],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    done = run(str(tmp_path / "play.yml"), ["-i", "spark1,", *mode]).assert_ok()
    expected = [
        f"  tiny answers at {endpoint}/v1",
        "  key: ssh -t nvidia@192.168.1.11 sudo cat /etc/gb10/api.key",
        "  read -r OPENAI_API_KEY  # paste the key",
        f"  curl {endpoint}/v1/chat/completions \\",
        '    --header "Authorization: Bearer $OPENAI_API_KEY" --json \\',
        """    '{"model":"tiny","messages":[{"role":"user","content":"Hi"}]}'""",
    ]
    assert done.output.splitlines()[-6:] == expected if endpoint else "answers at" not in done.output
