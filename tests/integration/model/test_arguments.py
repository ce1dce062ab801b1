"""The installed vLLM has exactly the arguments that the table lists for its release."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from plans import SHAPES, argv, inputs
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import io_introspect
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.checks import Option

PYTHON = "/opt/gb10/runtime/current/bin/python"


def asked(host: Host, python: str = PYTHON) -> dict[str, Any]:
    return dict(json.loads(host.check_output("%s -c %s", python, io_introspect.program()).splitlines()[-1]))


def unordered(option: Option) -> Option:
    # The table lists CUDA builds, and only this option depends on the platform.
    choices = set(option.choices) - ({"cuda"} if option.name == "--mm-processor-device" else set())
    return replace(option, aliases=tuple(sorted(option.aliases)), choices=tuple(sorted(choices)))


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


#: Prints by name the parser's errors for the argument lists in its own argument.
PARSE = """
import contextlib, io, json, sys
space = {{"__name__": "asked"}}
exec({program!r}, space)
parser, refused = space["parser"](), {{}}
for name, argv in json.loads(sys.argv[1]).items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            parser.parse_args(argv)
        except SystemExit:
            refused[name] = said.getvalue()[-300:]
print(json.dumps([len(parser._actions), refused]))
"""


@pytest.mark.slow
def test_the_parser_takes_what_is_planned_for_every_model(head: Host) -> None:
    release = head.check_output(
        f"{PYTHON} -c 'from importlib.metadata import version; print(version(\"vllm\"))'"
    ).partition("+")[0]
    stack = next(stack for stack in stacks.STACKS.values() if stack.vllm == release and stack.device == stacks.CUDA)
    planned = {}
    for model in catalog.known():
        for shape, (count, thors) in SHAPES.items():
            given = inputs(model, stack.name, count, thors)
            planned[f"{model} on {shape}"] = argv(given, serve_plan.decide(given))
    assert len(planned) == len(catalog.known()) * len(SHAPES)
    planned["refused"] = ["--swap-space=16"]
    answer = head.check_output(
        "%s -c %s %s", PYTHON, PARSE.format(program=io_introspect.program()), json.dumps(planned)
    )
    known, refused = json.loads(answer.splitlines()[-1])
    assert known > 100
    assert list(refused) == ["refused"], refused
