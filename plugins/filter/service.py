# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: the keys of the messages between nodes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import Fact, typed_plan


def message_keys(plan: Fact, secret: str) -> dict[str, str]:
    """Return path -> content of the keys of the plan's node; ``secret``: the head's, in Base64. A task hides them."""
    from ansible_collections.gb10.cluster.plugins.module_utils.service import tokens

    return tokens.key_files(typed_plan(plan), base64.b64decode(secret).decode("ascii"))


def message_keys_differ(plan: Fact) -> bool:
    """Return whether a node of the plan has not its own keys; see module_utils/service/tokens.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.service import tokens

    return tokens.keys_differ(typed_plan(plan))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "message_keys": message_keys,
            "message_keys_differ": message_keys_differ,
        }
