# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The argument specifications of this collection's roles, at any installation path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError

_ROLES = Path(__file__).parents[2] / "roles"
# Python's own loader takes ten times as long, in each run.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(role: str) -> dict[str, dict[str, Any]]:
    """Return the entry points of a role with their options. Raises AnsibleError for an unknown role."""
    try:
        text = (_ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    except OSError as error:
        raise AnsibleError(f"argument specification not found: {error}") from error
    entries: dict[str, dict[str, Any]] = yaml.load(text, Loader=_LOADER)["argument_specs"]
    return entries
