# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values of vLLM's arguments as text and numbers, in each form in which a user can give them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.model import drafts

#: Members of a JSON argument that are also options.
_OPTIONS = {(drafts.OPTION, key): option for option, key in drafts.KEYS.items()}
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
#: Maximum length of a JSON argument, in characters.
_MOST = 100_000


@dataclass(frozen=True)
class Arguments:
    """Effective arguments. ``values`` by long name, as checks.parse() returns them."""

    values: Mapping[str, Any]

    def argument(self, name: str) -> str:
        """Return an argument's effective value as text, "" if it is not given or switched off."""
        value = self.values.get(name)
        if value is None or value is False:
            return ""
        if isinstance(value, Mapping):
            return json.dumps(value)
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)

    def speculative(self) -> list[str]:
        """Return the given arguments about speculative decoding: a JSON object, its dotted members, or own options."""
        return [
            name
            for name in self.values
            if (name.partition(".")[0] == drafts.OPTION or name in drafts.KEYS) and self.argument(name)
        ]

    def member(self, name: str, key: str) -> str:
        """Return a member of an argument (a JSON object, or given by its dotted name or an option); "" if not given."""
        if alone := self.argument(f"{name}.{key}") or self.argument(_OPTIONS.get((name, key), "")):
            return alone
        try:
            found = bounded_json.load(self.argument(name) or "{}", _MOST)
        except ValueError:  # the argument parser reports it
            return ""
        value = found.get(key) if isinstance(found, Mapping) else None
        return "" if value is None else str(value)

    def number(self, name: str) -> float | None:
        """Return an argument as a number; vLLM reads 128k as 128000 and 128K as 131072. None if it is not a number."""
        match = re.fullmatch(r"(\d*\.?\d+)([kKmMgG]?)", self.argument(name))
        return float(match[1]) * _SUFFIXES[match[2]] if match else None
