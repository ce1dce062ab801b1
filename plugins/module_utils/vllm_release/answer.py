# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an installed vLLM, which may be an image's, printed of its arguments, as values of known form."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json

#: Characters of the line, and entries of a list; vLLM 0.32 has 300 options and 250 variables.
_MOST, _MOST_ENTRIES = 1 << 22, 4096
_KINDS, _FOLDS = ("value", "optional", "list", "append", "flag"), ("", "lower", "upper")
_FLAG, _CHOICE = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"), re.compile(r"[ -~]{0,200}")
_VARIABLE, _RELEASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}"), re.compile(r"[A-Za-z0-9_.+!-]{1,64}")


def answered(printed: str) -> dict[str, Any]:
    """Return {version, options, variables} of what io_vllm_arguments.py printed, which is the last line.

    What runs it may be an image's; raises ValueError for anything but names and values of known form, so that it holds nothing else.
    """
    found = bounded_json.load((printed.splitlines() or [""])[-1], _MOST)
    options = bounded_json.mappings(found.get("options")) if isinstance(found, dict) else []
    if not options or len(options) != len(found["options"]) or len(options) > _MOST_ENTRIES:
        raise ValueError("it has no list of options")
    return {
        "version": _word(found.get("version"), _RELEASE),
        "options": [_option(option) for option in options],
        "variables": _words(found.get("variables"), _VARIABLE),
    }


def _option(entry: Mapping[str, Any]) -> dict[str, Any]:
    if entry.get("kind") not in _KINDS or entry.get("fold") not in _FOLDS or not isinstance(entry.get("open"), bool):
        raise ValueError(f"{reprlib.repr(entry)} is no option")
    return {
        "name": _word(entry.get("name"), _FLAG),
        "kind": entry["kind"],
        "aliases": _words(entry.get("aliases"), _FLAG),
        "choices": _words(entry.get("choices"), _CHOICE),
        "fold": entry["fold"],
        "open": entry["open"],
    }


def _words(value: object, form: re.Pattern[str]) -> list[str]:
    if not isinstance(value, list) or len(value) > _MOST_ENTRIES:
        raise ValueError(f"{reprlib.repr(value)} is no list of names")
    return [_word(each, form) for each in value]


def _word(value: object, form: re.Pattern[str]) -> str:
    if isinstance(value, str) and form.fullmatch(value):
        return value
    raise ValueError(f"{reprlib.repr(value)} is none of what vLLM has there")
