"""The installed vLLM has exactly the arguments that the table lists for its release."""

from __future__ import annotations

import pytest
from real_parser import PYTHON, asked, refused, unordered
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks


def test_the_parser_is_the_table(head: Host) -> None:
    answer = asked(head)
    release = answer["version"]
    installed = {name: unordered(option) for name, option in vllm_release_checks.options_of(answer["options"]).items()}
    assert installed == {name: unordered(option) for name, option in vllm_release_checks.options(release).items()}
    assert all(vllm_release_checks.has_variable(release, name) for name in answer["variables"])
    given = [
        "-tp",
        "2",
        "--moe-backend",
        "Triton",
        "--no-enable-prefix-caching",
        "--served-model-name",
        "a",
        "b",
        "--load-format",
        "gguf",
        "--swap-space",
        "4",
    ]
    assert (
        vllm_release_checks.parse(given, release, vllm_release_checks.options_of(answer["options"]))[0]
        == vllm_release_checks.parse(given, release)[0]
    )


@pytest.mark.slow
def test_the_parser_takes_what_is_planned_for_every_model(head: Host) -> None:
    release = head.check_output(
        f"{PYTHON} -c 'from importlib.metadata import version; print(version(\"vllm\"))'"
    ).partition("+")[0]
    stack = next(stack for stack in stacks.STACKS.values() if stack.vllm == release and stack.device == stacks.CUDA)
    assert refused(head, stack) == {}
