"""The sample inventories tell the truth about the variables."""

from __future__ import annotations

import re

import pytest
import yaml
from repository import load_yaml, read

ROLES = ("gb10", "qsfp_netplan", "nccl_sm121_build", "vllm_runtime", "vllm_patch", "ray_cluster", "vllm_serve")
#: What the playbooks pass, and what another role passes.
NOT_FOR_INVENTORIES = {"gb10_nodes", "gb10_heads", "gb10_workers", "gb10_service_broken"}
SAMPLE = "inventories/two-spark/group_vars/gb10_cluster.yml"


def commented(text: str) -> dict[str, object]:
    """Return the variables that stand in a file as a comment, with their values."""
    found = re.findall(r"^# ([a-z0-9_]+): ?(.*)$", text, re.MULTILINE)
    return {name: yaml.safe_load(value) for name, value in found}


@pytest.mark.parametrize("role", ROLES)
def test_the_sample_shows_every_default(role: str) -> None:
    defaults = load_yaml(read(f"roles/{role}/defaults/main.yml"))
    shown = {name: value for name, value in commented(read(SAMPLE)).items() if name.startswith(f"{role}_")}
    assert shown == {name: value for name, value in defaults.items() if name not in NOT_FOR_INVENTORIES}


def test_three_lines_are_to_be_touched() -> None:
    given = load_yaml(read(SAMPLE))
    assert [name for name, value in given.items() if "{{" not in str(value)] == ["management_addresses", "ansible_user", "gb10_model"]


def test_a_wrong_default_would_be_found() -> None:
    assert commented("# gb10_api_port: 8000\n# Not a variable: this.\n") == {"gb10_api_port": 8000}
