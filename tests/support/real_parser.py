"""The parser of `vllm serve` of an installed vLLM, against the table of arguments and the plans."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plans import SHAPES, argv, inputs
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.apply import use
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve import plan as serve_plan
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import io_introspect
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.checks import Option
from ansible_collections.gb10.cluster.plugins.plugin_utils import recipe_yaml

#: The beginning of the names of NVIDIA's recipes.
NVIDIA = "nvidia:"
#: vLLM has removed this option, so a real parser refuses it.
_REMOVED = {"removed": ["--swap-space=16"]}
#: Also builds the arguments of the engine, which has own rules. No engine starts.
_PROGRAM = """
import contextlib, importlib, io, json, operator, sys
space = {{"__name__": "asked"}}
exec({program!r}, space)
values = {{}}
for name in {names!r}:
    module, _, attribute = name.partition(":")
    values[name] = operator.attrgetter(attribute)(importlib.import_module(module))
answer, parser, refused = space["answer"](), space["parser"](), {{}}
engine = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
for name, argv in json.loads(sys.argv[1]).items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            engine.from_cli_args(parser.parse_args(argv))
        except (SystemExit, Exception) as error:
            refused[name] = f"{{error!r}} {{said.getvalue()[-300:]}}"
values = {{name: value() if callable(value) else value for name, value in values.items()}}
print(json.dumps({{**answer, "values": values, "refused": refused}}))
"""


def planned(stack: stacks.Stack) -> dict[str, list[str]]:
    """Return the command line of every catalog model on every shape of cluster, by both names."""
    found = {}
    for model in catalog.known():
        for shape, (count, thors) in SHAPES.items():
            given = replace(inputs(model, stack.name, count, thors), packages=("instanttensor",))
            found[f"{model} on {shape}"] = argv(given, serve_plan.decide(given))
    return found


def recipes(clone: Path) -> dict[str, list[str]]:
    """Return the command line of every recipe for Sparks and vLLM in a clone of NVIDIA/local-ai-inference-recipes.

    Each name begins with NVIDIA.
    """
    found = {}
    for path in sorted(clone.glob("models/*/*/dgx-spark*/linux/vllm/**/recipe.yaml")):
        name = f"{NVIDIA}{path.parent.relative_to(clone / 'models')}"
        data, problems = recipe_yaml.load(path.read_text(encoding="utf-8"), name)
        recipe, refused = parse(data)
        assert recipe and not problems and not refused, (name, problems, refused)
        used, refused = use(recipe, (), data.get("topology", {}).get("node_count", 1), {})
        assert not refused, (name, refused)
        sizes = [
            f"--{key.removeprefix('gb10_').replace('_', '-')}={value}"
            for key, value in used.settings.items()
            if key.endswith("_parallel_size") or (key == "gb10_max_model_len" and value)
        ]
        found[name] = [used.model, *sizes, *used.args]
    assert found, f"no recipe in {clone}"
    return found


def asked(
    host: Host, python: str, lines: Mapping[str, Sequence[str]] = {}, names: Sequence[str] = ()
) -> dict[str, Any]:
    """Return io_introspect's answer of an interpreter, and the parser's error ("refused") by the name of each line.

    ``names`` are MODULE:ATTRIBUTE; "values" has each value, or the result of a function.
    """
    program = _PROGRAM.format(program=io_introspect.program(), names=[*names])
    text = host.check_output("%s -c %s %s", python, program, json.dumps({**lines, **_REMOVED}))
    answer: dict[str, Any] = json.loads(text.splitlines()[-1])
    assert "unrecognized arguments: --swap-space" in answer["refused"].pop("removed")
    return answer


def assert_table(answer: Mapping[str, Any]) -> None:
    """Compare an answer with the table."""
    found = vllm_release_checks.options_of(answer["options"])
    assert _comparable(found) == _comparable(vllm_release_checks.options(answer["version"]))
    assert all(vllm_release_checks.has_variable(answer["version"], name) for name in answer["variables"])


def _comparable(options: Mapping[str, Option]) -> dict[str, Option]:
    """Return options without the order of aliases and choices.

    The table lists CUDA builds, and only --mm-processor-device depends on the platform.
    """
    return {
        name: replace(
            option,
            aliases=tuple(sorted(option.aliases)),
            choices=tuple(sorted({*option.choices} - ({"cuda"} if name == "--mm-processor-device" else set()))),
        )
        for name, option in options.items()
    }
