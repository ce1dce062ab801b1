"""The parser of `vllm serve` of an installed vLLM, against the table of arguments and the plans."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from plans import SHAPES, argv, inputs
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import io_introspect
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.checks import Option

PYTHON = "/opt/gb10/runtime/current/bin/python"


def asked(host: Host, python: str = PYTHON) -> dict[str, Any]:
    """Return the arguments of the vLLM of an interpreter; see io_introspect for the shape."""
    return dict(json.loads(host.check_output("%s -c %s", python, io_introspect.program()).splitlines()[-1]))


def unordered(option: Option) -> Option:
    """Return an option to compare.

    The table lists CUDA builds, and only this option depends on the platform.
    """
    choices = set(option.choices) - ({"cuda"} if option.name == "--mm-processor-device" else set())
    return replace(option, aliases=tuple(sorted(option.aliases)), choices=tuple(sorted(choices)))


#: Prints by name the parser's errors for the argument lists in its own argument.
_PARSE = """
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


def refused(host: Host, stack: stacks.Stack, python: str = PYTHON) -> dict[str, str]:
    """Return what the parser says to the command lines of every catalog model on every shape of cluster, by name.

    It has to take all of them.
    """
    planned = {}
    for model in catalog.known():
        for shape, (count, thors) in SHAPES.items():
            given = inputs(model, stack.name, count, thors)
            planned[f"{model} on {shape}"] = argv(given, serve_plan.decide(given))
    assert len(planned) == len(catalog.known()) * len(SHAPES)
    # The parser is a real one.
    planned["wrong"] = ["--swap-space=16"]
    answer = host.check_output(
        "%s -c %s %s", python, _PARSE.format(program=io_introspect.program()), json.dumps(planned)
    )
    known, found = json.loads(answer.splitlines()[-1])
    assert known > 100
    assert found.pop("wrong")
    return dict(found)
