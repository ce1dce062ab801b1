"""Send a file from the head with the role's tasks. A script replaces systemd and keeps a unit until it is stopped."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from repository import load_yaml, read
from run_module import program
from run_playbook import LOCAL, run_plays

SHARE = {"ansible.builtin.include_role": {"name": "gb10.cluster.common", "tasks_from": "distribute_file"}}


def offering(folder: Path, left: bool, ends: bool) -> dict[str, Any]:
    """Return the variables of a head whose systemd is a script. ``left``: a killed run left its unit. ``ends``: the unit
    ends by itself."""
    unit = folder / "unit"
    programs = program(
        folder / "bin",
        "systemd-run",
        f'[ ! -e {unit} ] || {{ echo "Unit was already loaded" >&2; exit 1; }}; {"true" if ends else f"touch {unit}"}',
    )
    program(programs, "systemctl", f"echo systemctl $* >> {folder}/asked; rm {unit} 2>/dev/null || exit 5")
    if left:
        unit.touch()
    # This test does not check the owner of the files.
    return {
        "common_file_unit": "gb10-test-offer.service",
        "common_file_src": str(folder / "offer/file"),
        "common_file_sha256": "0" * 64,
        "common_file_dest": str(folder / "fetched/file"),
        "common_file_wanted": False,
        "common_file_port": 9,
        "common_file_timeout": 60,
        "gb10_plan": {"head": {"name": "spark1", "address": "127.0.0.1"}, "node": {"head": True}},
        "path": f"{programs}:{os.environ['PATH']}",
        **LOCAL,
    }


@pytest.mark.slow
def test_an_offer_is_made_whatever_was_left(tmp_path: Path) -> None:
    folders = {tmp_path / f"{left}-{ends}": (left, ends) for left in (False, True) for ends in (False, True)}
    for folder in folders:
        folder.mkdir()
    hosts = {folder.name: offering(folder, *case) for folder, case in folders.items()}
    play = {"hosts": "all", "gather_facts": False, "environment": {"PATH": "{{ path }}"}, "tasks": [SHARE]}
    done = run_plays([play], hosts, tmp_path)
    if os.geteuid() == 0:
        done.assert_ok()
    assert "Unit was already loaded" not in done.output
    for folder in folders:
        assert not (folder / "unit").exists()
        asked = (folder / "asked").read_text(encoding="utf-8").splitlines()
        assert asked == ["systemctl stop gb10-test-offer.service"] * 2


@pytest.mark.parametrize(
    ("tasks", "role"),
    [
        ("roles/vllm_runtime/tasks/image.yml", "vllm_runtime"),
        ("roles/nccl_sm121_build/tasks/share.yml", "nccl_sm121_build"),
    ],
)
def test_what_a_killed_run_left_goes_first_and_whether_there_is_something_to_send_or_not(tasks: str, role: str) -> None:
    first = load_yaml(read(tasks))[0]
    variables = load_yaml(read(f"roles/{role}/vars/main.yml"))
    transfer = f"_{role}_transfer"
    assert first["ansible.builtin.file"] == {"path": f"{{{{ {transfer} }}}}", "state": "absent"}
    assert "when" not in first
    below = {name for name, value in variables.items() if str(value).startswith(f"{{{{ {transfer} }}}}/")}
    sent = read(f"roles/{role}/tasks/share.yml")
    used = {
        name
        for name in variables
        if f'common_file_src: "{{{{ {name} }}}}' in sent or f'common_file_dest: "{{{{ {name} }}}}' in sent
    }
    assert used == below
    assert len(used) == 2


def accepted(path: str, task: str, value: str) -> bool:
    """Return whether a task's condition accepts the value of its first variable. The pattern has no escapes."""
    (that,) = [each["ansible.builtin.assert"]["that"] for each in load_yaml(read(path)) if each["name"] == task]
    pattern = re.search(r"is regex\('([^']*)'\)", that)
    assert pattern, that
    return bool(re.search(pattern[1], value)) and ("| length == 64" not in that or len(value) == 64)


def test_a_token_of_another_form_reaches_no_worker() -> None:
    """The role common shares the tokens of Ray and of the watchdog."""
    path, task = "roles/common/tasks/token.yml", "Verify the form of the token"
    names = [each["name"] for each in load_yaml(read(path))]
    assert names.index(task) == len(names) - 2 and names[-1].startswith("Write the ")
    for good in ("0123456789abcdef" * 4, "0123456789abcdef" * 4 + "\n", "a-token-of-the-user", ""):
        assert accepted(path, task, good)
    for bad in (
        "short",
        "a" * 513,
        "a token with blanks in it",
        f"{'a' * 64}\n{'b' * 64}\n",
        f"{'a' * 64}\n\n",
        "\u00fc" * 64,
    ):
        assert not accepted(path, task, bad)


def test_a_checksum_of_the_head_is_no_address() -> None:
    path, task = "roles/common/tasks/distribute_file.yml", "Verify the form of the checksum"
    assert load_yaml(read(path))[0]["name"] == task
    assert accepted(path, task, "0a" * 32)
    for bad in (
        "http://198.51.100.9/sums",
        "file:///etc/shadow",
        "0a" * 31,
        "0a" * 33,
        "0A" * 32,
        "0a" * 31 + "0\n",
        "0a" * 32 + "\n",
        "",
    ):
        assert not accepted(path, task, bad)
