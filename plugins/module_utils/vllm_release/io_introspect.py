# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an installed vLLM says of its own arguments. This file is also a program: vLLM's Python runs it, so it needs nothing of this collection.

The last line on stdout is one JSON object: {"version", "options": [{"name", "kind", "aliases", "choices", "fold", "open"}], "variables": [name]},
the options as vllm_release_lookup.Option has them. What cannot be asked is not guessed: an option whose values vLLM looks up later has no
choices then.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

Choices = Callable[[], Iterable[str]]
_PARSERS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
_KINDS = {"BooleanOptionalAction": "flag", "_StoreTrueAction": "flag", "_AppendAction": "append"}
_ARITIES = {None: "value", "?": "optional", "+": "list", "*": "list"}


def program() -> str:
    """Return this file, to be run as `python -c`."""
    return inspect.getsource(sys.modules[__name__])


def parser() -> argparse.ArgumentParser:
    """Return the parser of `vllm serve`. Raises ImportError where vLLM is not installed, or has it elsewhere."""
    module = None
    for name in _PARSERS:
        try:
            module = importlib.import_module(name)
            break
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    if module is None:
        raise ImportError(f"none of {', '.join(_PARSERS)} is there")
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    made: argparse.ArgumentParser = module.make_arg_parser(flexible(prog="vllm serve"))
    return made


def described(action: argparse.Action) -> dict[str, Any]:
    """Return an option as Option has it. Raises ValueError for one that takes a fixed number of values."""
    name = next(flag for flag in action.option_strings if flag.startswith("--"))
    kind = _KINDS.get(type(action).__name__) or _ARITIES.get(action.nargs)  # type: ignore[arg-type]
    if kind is None:
        raise ValueError(f"{name} takes {action.nargs} values, which this program does not know")
    # vLLM gives the choices of an option that takes any other text too as its metavar.
    taken = action.metavar if isinstance(action.metavar, list) else ()
    choices = sorted({str(choice) for choice in action.choices or taken})
    aliases = [flag for flag in action.option_strings if flag != name]
    return {"name": name, "kind": kind, "aliases": aliases, "choices": choices, "fold": _fold(action) if choices else "", "open": bool(taken)}


def _fold(action: argparse.Action) -> str:
    """Return "lower" where the option's type makes text so, found by trying."""
    try:
        return "lower" if callable(action.type) and action.type("A-b") == "a_b" else ""
    except (ValueError, argparse.ArgumentTypeError):
        return ""


def _registered(module: str, manager: str) -> Choices:
    return lambda: getattr(importlib.import_module(module), manager).list_registered()


def _backends() -> Iterable[str]:
    config = importlib.import_module("vllm.config.attention")
    try:
        automatic = ["AUTO"] if config.AttentionConfig(backend="auto").backend is None else []
    except (KeyError, ValueError):
        automatic = []
    return [*config.AttentionBackendEnum.__members__, *automatic]


#: Options whose values vLLM looks up only after parsing: where, and how a value is folded.
LATER: dict[str, tuple[Choices, str]] = {
    "--quantization": (lambda: importlib.import_module("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS, ""),
    "--load-format": (lambda: importlib.import_module("vllm.model_executor.model_loader")._LOAD_FORMAT_TO_MODEL_LOADER, ""),
    "--tool-call-parser": (_registered("vllm.tool_parsers", "ToolParserManager"), ""),
    "--reasoning-parser": (_registered("vllm.reasoning", "ReasoningParserManager"), ""),
    "--attention-backend": (_backends, "upper"),
}


def answer() -> dict[str, Any]:
    """Ask the vLLM of this interpreter. Raises ImportError and ValueError."""
    options = [described(action) for action in parser()._actions if action.option_strings and action.dest != "help"]
    for option in options:
        if option["name"] in LATER and not option["choices"]:
            choices, fold = LATER[option["name"]]
            try:
                option |= {"choices": sorted(map(str, choices())), "fold": fold, "open": True}
            except (ImportError, AttributeError):
                continue
    version = importlib.import_module("vllm.version").__version__
    variables = sorted(importlib.import_module("vllm.envs").environment_variables)
    return {"version": version, "options": options, "variables": variables}


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(answer())}\n")
