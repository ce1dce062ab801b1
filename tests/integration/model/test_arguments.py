"""The installed vLLM has exactly the arguments that the table lists for its release."""

from __future__ import annotations

from typing import Any

import pytest
from real_parser import asked, assert_table, planned
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

PYTHON = "/opt/gb10/runtime/current/bin/python"


@pytest.fixture(scope="module")
def answer(head: Host) -> dict[str, Any]:
    return asked(head, PYTHON)


def test_the_parser_is_the_table(answer: dict[str, Any]) -> None:
    assert_table(answer)
    given = ["-tp", "2", "--moe-backend", "Triton", "--no-enable-prefix-caching", "--served-model-name", "a", "b"]
    given += ["--load-format", "gguf", "--swap-space", "4"]
    release, options = answer["version"], vllm_release_checks.options_of(answer["options"])
    parsed = vllm_release_checks.parse(given, release, options)
    assert parsed[0] == vllm_release_checks.parse(given, release)[0]


@pytest.mark.slow
def test_the_parser_takes_what_is_planned_for_every_model(head: Host, answer: dict[str, Any]) -> None:
    release = answer["version"].partition("+")[0]
    stack = next(stack for stack in stacks.STACKS.values() if stack.vllm == release and stack.device == stacks.CUDA)
    assert asked(head, PYTHON, planned(stack))["refused"] == {}
