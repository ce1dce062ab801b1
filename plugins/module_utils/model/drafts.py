# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The draft model of speculative decoding in vLLM's arguments, and its folder in place of its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments
from ansible_collections.gb10.cluster.plugins.module_utils.model import names

OPTION = "--speculative-config"
#: vLLM's short name since 0.19.
_NAMES = (OPTION, "-sc")
#: Its keys as options, since 0.22. vLLM refuses a key that is given twice. Source: engine/arg_utils.py.
KEYS = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}


@dataclass(frozen=True)
class Draft:
    """A draft on Hugging Face Hub. ``revision``: "" if none is named. ``weights_bytes``: None if unknown."""

    hub: str
    revision: str = ""
    weights_bytes: int | None = None


def find(args: Sequence[str]) -> Draft | None:
    """Return the draft that the arguments name, None without one on Hugging Face Hub. The last option counts."""
    settings = _settings(args)
    hub = settings.get("model")
    if not names.is_hub(hub):
        return None
    return Draft(str(hub), str(settings.get("revision") or ""))


def path(args: Sequence[str]) -> str:
    """Return the path that the arguments give as the draft, "" for a name. A name on Hugging Face Hub has one slash."""
    model = str(_settings(args).get("model") or "")
    return model if "/" in model and not names.is_hub(model) else ""


def with_folder(args: Sequence[str], hub: str, folder: str) -> list[str]:
    """Return the arguments with the draft's folder in place of its name and revision."""
    result: list[str] = []
    for name, values, words in arguments.options(args):
        key = _key(name)
        if key == "model" and values == [hub]:
            result.append(f"{name}={folder}")
        elif key == "" and (given := _mapping("".join(values))).get("model") == hub:
            given.pop("revision", None)
            result += [OPTION, json.dumps({**given, "model": folder}, separators=(",", ":"))]
        elif key != "revision":
            result += words
    return result


def _key(name: str) -> str | None:
    """Return the key that an option sets, "" if it sets all of them, None for another option.

    vLLM joins --option.key=value into the option's object, and adds to a list with --option.key+=value.
    """
    option, _dot, key = name.partition(".")
    return key.rstrip("+") if option in _NAMES else KEYS.get(name)


def _settings(args: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, values, _words in arguments.options(args):
        if (key := _key(name)) == "":
            settings = _mapping("".join(values))
        elif key:
            settings = {**settings, key: "".join(values)}
    return settings


def _mapping(text: str) -> dict[str, Any]:
    """Return a JSON object, {} for other text, which vLLM refuses."""
    try:
        found = json.loads(text)
    # Too deep nesting does not raise ValueError.
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
