"""The vLLM that is installed on the nodes knows the arguments that the table says of its release, no more and no fewer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils import io_vllm_arguments, vllm_release
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import Option

PYTHON = "/opt/gb10/runtime/current/bin/python"


def asked(host: Host, python: str = PYTHON) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(host.check_output("%s -c %s", python, io_vllm_arguments.program()).splitlines()[-1])
    return answer


def unordered(option: Option) -> Option:
    # The table is of CUDA builds, and this option alone asks the platform.
    choices = set(option.choices) - ({"cuda"} if option.name == "--mm-processor-device" else set())
    return replace(option, aliases=tuple(sorted(option.aliases)), choices=tuple(sorted(choices)))


def test_the_parser_is_the_table(head: Host) -> None:
    answer = asked(head)
    release = answer["version"]
    installed = {name: unordered(option) for name, option in vllm_release.options_of(answer["options"]).items()}
    assert installed == {name: unordered(option) for name, option in vllm_release.options(release).items()}
    assert all(vllm_release.has_variable(release, name) for name in answer["variables"])
    argv = [
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
    assert vllm_release.parse(argv, release, vllm_release.options_of(answer["options"]))[0] == vllm_release.parse(argv, release)[0]
