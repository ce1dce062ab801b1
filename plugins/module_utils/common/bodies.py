# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wrong entries in the lists of a body, found before vLLM parses it.

vLLM keeps the errors of all wrong entries of a list, which need much more memory and time than right ones.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits

#: The code of the refusal.
WRONG = "invalid_input"
#: The class of the bodies for responses, whose entries have one of 30 types, and its lists. Each wrong entry has up to
#: 1 MB of errors, and takes 2 ms. Source: vLLM 0.13.0 to 0.33.0, vllm/entrypoints.
_OF_TYPES = ("/v1/responses", "/v1/responses/render")
BODY, ENTRIES = "ResponsesRequest", ("input", "tools")
#: Values of the entries that are verified at once, and the most of one entry.
_AT_ONCE, _MOST_OF_ENTRY = 100, 5_000
#: In paths for tokens, only these lists are longer: of integers; or of integers, of texts or of lists of integers.
_LONG, _TOKENS, _PROMPTS = 1_000, ("tokens", "token_ids"), ("prompt", "input")


def refusal(path: str, data: bytes) -> str:
    """Return the code of the refusal of a path's body, "" if vLLM may parse it as a whole."""
    if len(data) < 2 * _AT_ONCE:
        return ""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, dict):
        return ""
    if path in _OF_TYPES:
        return next(filter(None, (_wrong_entry(found, name) for name in ENTRIES)), "")
    return WRONG if _no_messages(found) or (path in limits.OF_TOKENS and _long_mixed(found)) else ""


def _wrong_entry(found: dict[str, Any], name: str) -> str:
    """Let vLLM's own class verify some entries of a list at once, and no further ones after the first that is wrong."""
    entries = found.get(name)
    loaded = (module for key, module in list(sys.modules.items()) if key.startswith("vllm.entrypoints."))
    kind = next((getattr(module, BODY) for module in loaded if hasattr(module, BODY)), None)
    if not isinstance(entries, list) or kind is None:
        return ""
    window: list[Any] = []
    size = 0
    for index, entry in enumerate(entries, 1):
        more = _values(entry)
        if more > _MOST_OF_ENTRY:
            return limits.COMPLEX
        window.append(entry)
        size += more
        # A body of one window is vLLM's alone.
        if size >= _AT_ONCE or (index == len(entries) > len(window)):
            try:
                # Without the other fields, which each window would verify again.
                kind.model_validate({"model": found.get("model"), "input": "x", name: window})
            except ValueError:
                return WRONG
            window, size = [], 0
    return ""


def _long_mixed(found: dict[str, Any]) -> bool:
    """Return whether a path for tokens has a long list with other entries."""
    lists = {name: value for name, value in found.items() if isinstance(value, list) and name != "messages"}
    return any(_values(value) > _LONG and not _of_tokens(name, value) for name, value in lists.items())


def _no_messages(found: dict[str, Any]) -> bool:
    """Return whether many messages are no objects with a role, or many of their parts are neither objects nor texts."""
    messages = found.get("messages")
    if not isinstance(messages, list):
        return False
    contents = (entry.get("content") for entry in messages if isinstance(entry, dict))
    parts = [part for content in contents if isinstance(content, list) for part in content]
    wrong: int = sum(not (isinstance(entry, dict) and isinstance(entry.get("role"), str)) for entry in messages)
    wrong += sum(not isinstance(part, (str, dict)) or not (part or isinstance(part, str)) for part in parts)
    return wrong > _AT_ONCE


def _of_tokens(name: str, values: list[Any]) -> bool:
    if name in (*_TOKENS, *_PROMPTS) and _all(values, int):
        return True
    several = _all(values, str) or (_all(values, list) and all(_all(each, int) for each in values))
    return name in _PROMPTS and several


def _all(values: list[Any], kind: type) -> bool:
    return {type(value) for value in values} <= {kind}


def _values(entry: Any) -> int:
    """Return the number of values in a JSON value, itself included."""
    waiting, count = [entry], 0
    while waiting:
        value = waiting.pop()
        count += 1
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return count
