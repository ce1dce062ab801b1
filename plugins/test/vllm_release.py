# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests: releases of vLLM in the collection's table of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def known_release(lock: str) -> bool:
    """Whether the table of arguments has the vLLM of a lock file. Also true for a lock file without vLLM."""
    from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
    from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks

    release = stacks.locked(str(lock)).get("vllm", "")
    return not release or checks.known(release)


class TestModule:
    """Register the tests."""

    def tests(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"known_release": known_release}
