# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Problems that prevent a comparison of golden answers, known before a start: the record, and vLLM's arguments."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.golden import table
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Served
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

_OPTION = "--max-logprobs"


def tools(server: Served) -> bool:
    """Return whether the server parses tool calls."""
    return _values(server).get("--enable-auto-tool-choice") is True


def _values(server: Served) -> dict[str, Any]:
    """Return the values of the arguments, for an unlisted release by the last one's options."""
    # The planner reports invalid arguments.
    options = vllm_release_checks.of_runtime(server.vllm).options
    return vllm_release_checks.parse(server.args, server.vllm, options)[0]


def arguments(server: Served) -> list[Problem]:
    """Return a problem if the planned server refuses the requests: it generates no tokens, or returns fewer
    log-probabilities."""
    if server.kind != "generate":
        found = f"the model is of the kind {server.kind}, which generates no tokens"
        fix = "remove golden_record, or use another model; the smoke test verifies its vectors or scores"
        return [
            Problem("gb10_model", found, "a model of the kind generate, because golden answers consist of tokens", fix)
        ]
    given = str(_values(server).get(_OPTION, ""))
    # vLLM's default is 20, and -1 removes the limit. It refuses another text than a number.
    if not given.isdigit() or int(given) >= table.TOP:
        return []
    expected = f"{table.TOP} or more, or -1, because golden answers compare {table.TOP} candidates of each token"
    return [
        Problem(
            "gb10_vllm_extra_args",
            f"{_OPTION} is {given}",
            expected,
            f"remove {_OPTION}, or set golden_enabled: false",
        )
    ]
