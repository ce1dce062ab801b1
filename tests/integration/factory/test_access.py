"""The README's first commands: a plan before any hardware, and access to hosts that have a login password only."""

from __future__ import annotations

import pytest
from factory_hosts import Evening
from repository import read

pytestmark = pytest.mark.disruptive


def quick_start() -> list[str]:
    """Return the commands of ansible-playbook in the README's quick start, as written."""
    block = read("README.md").partition("## Quick start")[2].partition("## Daily commands")[0]
    return [
        line.partition("   #")[0].strip() for line in block.splitlines() if line.startswith("    ansible-playbook ")
    ]


def test_the_commands_of_the_quick_start_are_those_of_these_tests() -> None:
    """The other tests run these four, the last two with -K."""
    assert [command.split()[1] for command in quick_start()[:2]] == ["playbooks/plan.yml", "playbooks/access.yml"]
    assert quick_start()[2:] == [
        "ansible-playbook site.yml -i inventories/mine --check --diff",
        "ansible-playbook site.yml -i inventories/mine",
    ]


def test_a_plan_before_any_hardware(evening: Evening) -> None:
    evening.run(quick_start()[0]).assert_ok("typical", "gpt-oss-120b")


def test_access_from_a_login_password(evening: Evening) -> None:
    done = evening.run(quick_start()[1]).assert_ok()
    assert "-K" in done.output, "sudo needs a password"
    assert evening.run(quick_start()[1]).assert_unchanged()
