# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of the argument list from an installed vLLM, which may be in an untrusted image."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json

#: Maximum characters of the line, and entries of a list; vLLM 0.32 has 300 options and 250 variables.
_MOST, _MOST_ENTRIES = 1 << 22, 4096
_KINDS, _FOLDS = ("value", "optional", "list", "append", "flag"), ("", "lower", "upper")
_FLAG, _CHOICE = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"), re.compile(r"[ -~]{0,200}")
_VARIABLE, _RELEASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}"), re.compile(r"[A-Za-z0-9_.+!-]{1,64}")
_NCCL = re.compile(r"[0-9]{1,2}(\.[0-9]{1,2}){2}")


def answered(printed: str) -> dict[str, Any]:
    """Return {version, ray, nccl, options, variables} from the last line of io_introspect.py's output.

    The output may come from an image, so names and values of any other form raise ValueError.
    """
    return checked(bounded_json.load((printed.splitlines() or [""])[-1], _MOST))


def checked(found: object) -> dict[str, Any]:
    """Return {version, ray, nccl, options, variables} of an answer, also of one that a node kept. Raises ValueError."""
    if not isinstance(found, Mapping):
        raise ValueError("list of options missing or invalid")
    valid = options(found.get("options"))
    return {
        "version": _word(found.get("version"), _RELEASE),
        "ray": _word(found["ray"], _RELEASE) if found.get("ray") else "",
        "nccl": _word(found["nccl"], _NCCL) if found.get("nccl") else "",
        "options": valid,
        "variables": variables(found.get("variables")),
    }


def options(value: object) -> list[dict[str, Any]]:
    """Return the options of an answer. Raises ValueError."""
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_ENTRIES:
        raise ValueError("list of options missing or invalid")
    return [_option(option) for option in value]


def variables(value: object) -> list[str]:
    """Return the variables of an answer. Raises ValueError."""
    return _words(value, _VARIABLE)


def _option(entry: object) -> dict[str, Any]:
    found = entry if isinstance(entry, Mapping) else {}
    if found.get("kind") not in _KINDS or found.get("fold") not in _FOLDS or not isinstance(found.get("open"), bool):
        raise ValueError(f"{reprlib.repr(entry)} is not a valid option")
    return {
        "name": _word(found.get("name"), _FLAG),
        "kind": found["kind"],
        "aliases": _words(found.get("aliases"), _FLAG),
        "choices": _words(found.get("choices"), _CHOICE),
        "fold": found["fold"],
        "open": found["open"],
    }


def _words(value: object, form: re.Pattern[str]) -> list[str]:
    if not isinstance(value, list) or len(value) > _MOST_ENTRIES:
        raise ValueError(f"{reprlib.repr(value)} is not a valid list of names")
    return [_word(each, form) for each in value]


def _word(value: object, form: re.Pattern[str]) -> str:
    if isinstance(value, str) and form.fullmatch(value):
        return value
    raise ValueError(f"{reprlib.repr(value)} is not a valid name or value")
