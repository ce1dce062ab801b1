# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decisions in vLLM's command line that may leave a node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

_WORD = re.compile(r"[\w.-]{1,60}")


def view(words: Sequence[str], release: str) -> Arguments | None:
    """Return the arguments of ``vllm serve MODEL ...``, None for another command or an unknown release."""
    if "serve" not in words[1:] or not release or not vllm_release_checks.known(release):
        return None
    values, _problems = vllm_release_checks.parse(words[words.index("serve", 1) + 2 :], release)
    return Arguments(values)


def backend(given: Arguments, option: str) -> str:
    """Return the value of an option, also from the JSON argument that sets it; "" if neither is given."""
    member = coverage.MEMBERS.get(option)
    return given.argument(option) or (given.member(*member) if member else "")


def word(text: str) -> str:
    """Return a short name unchanged, and "" for any other text."""
    return text if _WORD.fullmatch(text) else ""
