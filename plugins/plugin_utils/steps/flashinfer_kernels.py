# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compile the kernels of FlashInfer that the plan's model needs, and show the progress until they are stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.kernels import plan as kernels_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

#: Seconds between progress lines, and without a response until the host counts as unreachable.
_SHOWN, _SILENCE = 30, 300


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``seconds``: The time limit of the compilation.
    ``archive``: The file with the modules of an equal node.
    ``pack``: The file to write for equal nodes.
    """

    seconds: int = 7200
    archive: str | None = field(default=None, metadata={"type": "path"})
    pack: str | None = field(default=None, metadata={"type": "path"})


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the last result of the node's step with {shared}: whether the head compiles the same kernels.

    Its ``state`` is ``none`` if the node needs no kernels.
    """
    plan = step.plan(variables)
    found = kernels_plan.of_node(plan)
    if not found:
        return {"changed": False, "state": "none", "line": "nothing to compile", "modules": {}, "shared": False}
    of_head = kernels_plan.of_node(plan.at(plan.nodes[0])).get("name", "")
    shared = not plan.node.head and found["name"] == of_head
    call = partial(step.node, "flashinfer_kernels", {**asdict(given), **found}, variables)
    poll, changed = Polling(call, variables, _SHOWN, _SILENCE), False
    for result in poll:
        changed = changed or bool(result.get("changed"))
        if result.get("failed") or result.get("state") != "running":
            return {**result, "shared": shared, "changed": changed}
        if poll.due() is not None:
            poll.show(f"FlashInfer: {result['line']}, {poll.elapsed:.0f} s")
    raise AssertionError("polling has no end")
