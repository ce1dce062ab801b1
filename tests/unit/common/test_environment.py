"""roles/common/tasks/environment.yml: other users than root run the environment's Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml
from repository import read, tasks_of


def test_an_environment_can_be_read_by_all_though_root_has_another_umask(tmp_path: Path) -> None:
    opened = yaml.safe_load(read("roles/common/vars/main.yml"))["_common_environment_open"]
    folder = tmp_path / "environment"
    subprocess.run([*opened, sys.executable, "-m", "venv", "--without-pip", folder], check=True, umask=0o077)
    made = [path for path in [folder, *folder.rglob("*")] if not path.is_symlink()]
    assert len(made) > 5
    assert {path.stat().st_mode & 0o777 for path in made} <= {0o755, 0o644}


def test_every_command_that_writes_into_an_environment_is_run_so() -> None:
    commands = [
        task.data["ansible.builtin.command"]["argv"]
        for task in tasks_of(read("roles/common/tasks/environment.yml"))
        if "ansible.builtin.command" in task.data
    ]
    assert len(commands) == 3
    assert all("_common_environment_open + [" in argv for argv in commands)
