# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the arguments of an installed vLLM.

This file is also a program: vLLM's Python runs it, so it imports nothing from this collection. The last line on stdout
is one JSON object: {"version", "ray", "nccl", "options": [{"name", "kind", "aliases", "choices", "fold", "open"}],
"variables":
[name]}, with options as in lookup.Option; "ray" and "nccl" are "" without them. If vLLM does not expose the values of
an option, its choices are empty.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Choices = Callable[[], Iterable[str]]
_PARSERS = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
_ARITIES: dict[int | str | None, str] = {0: "flag", None: "value", "?": "optional", "+": "list", "*": "list"}


def program() -> str:
    """Return the source of this file, for `python -c`."""
    return inspect.getsource(sys.modules[__name__])


def parser() -> argparse.ArgumentParser:
    """Return the parser of `vllm serve`. Raises ImportError if vLLM is not installed, or moved the parser."""
    for name in _PARSERS:
        try:
            module = importlib.import_module(name)
            break
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    else:
        raise ImportError(f"none of {', '.join(_PARSERS)} found")
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    made: argparse.ArgumentParser = module.make_arg_parser(flexible(prog="vllm serve"))
    return made


def described(action: argparse.Action, accepted: Sequence[str]) -> dict[str, Any]:
    """Return an option with the fields of lookup.Option. Raises ValueError for one with a fixed number of values.

    ``accepted``: all its names for the parser. The action lacks those that --help does not show.
    """
    name = next(flag for flag in action.option_strings if flag.startswith("--"))
    appends = isinstance(action, argparse._AppendAction) and action.nargs is None
    kind = "append" if appends else _ARITIES.get(action.nargs)
    if kind is None:
        raise ValueError(f"{name} takes {action.nargs} values, which this program does not support")
    # For an option that also accepts other text, vLLM's metavar contains the choices.
    taken = action.metavar if isinstance(action.metavar, list) else ()
    choices = sorted({str(choice) for choice in action.choices or taken})
    aliases = [flag for flag in accepted if flag != name]
    return {
        "name": name,
        "kind": kind,
        "aliases": aliases,
        "choices": choices,
        "fold": _fold(action) if choices else "",
        "open": bool(taken),
    }


def _fold(action: argparse.Action) -> str:
    """Return "lower" if the option's type converts a test value to lower case."""
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


#: Options whose values vLLM checks only after parsing: the source of the values, and their case conversion.
LATER: dict[str, tuple[Choices, str]] = {
    "--quantization": (
        lambda: importlib.import_module("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS,
        "",
    ),
    "--load-format": (
        lambda: importlib.import_module("vllm.model_executor.model_loader")._LOAD_FORMAT_TO_MODEL_LOADER,
        "",
    ),
    "--tool-call-parser": (_registered("vllm.tool_parsers", "ToolParserManager"), ""),
    "--reasoning-parser": (_registered("vllm.reasoning", "ReasoningParserManager"), ""),
    "--attention-backend": (_backends, "upper"),
}


def answer() -> dict[str, Any]:
    """Return the arguments of this interpreter's vLLM with its plugins. Raises ImportError and ValueError."""
    _load_plugins()
    accepted: dict[argparse.Action, list[str]] = {}
    for flag, action in parser()._option_string_actions.items():
        accepted.setdefault(action, []).append(flag)
    options = [described(action, flags) for action, flags in accepted.items() if action.dest != "help"]
    for option in options:
        if option["name"] in LATER and not option["choices"]:
            choices, fold = LATER[option["name"]]
            try:
                option |= {"choices": sorted(map(str, choices())), "fold": fold, "open": True}
            except (ImportError, AttributeError):
                continue
    version = importlib.import_module("vllm.version").__version__
    variables = sorted(importlib.import_module("vllm.envs").environment_variables)
    return {"version": version, "ray": _ray(), "nccl": _nccl(), "options": options, "variables": variables}


def _load_plugins() -> None:
    """Load vLLM's general plugins, which register values of options. vLLM logs the error of a plugin."""
    try:
        importlib.import_module("vllm.plugins").load_general_plugins()
    except (ImportError, AttributeError):
        return


def _ray() -> str:
    """Return the release of Ray, "" if it is not installed."""
    try:
        return str(importlib.import_module("ray").__version__)
    except ImportError:
        return ""


def _nccl() -> str:
    """Return the release of the NCCL that vLLM's ranks load, "" if there is none. PyTorch has loaded it before.

    Source: vLLM 0.33.0, utils/nccl.py; NCCL, src/include/nccl.h (NCCL_VERSION).
    """
    code = ctypes.c_int()
    try:
        ctypes.CDLL(os.environ.get("VLLM_NCCL_SO_PATH") or "libnccl.so.2").ncclGetVersion(ctypes.byref(code))
    except (OSError, AttributeError):
        return ""
    return f"{code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}"


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(answer())}\n")
