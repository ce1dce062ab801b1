# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the arguments and environment variables of an installed vLLM.

Builds the parser of ``vllm serve`` with the installed vLLM. It is for releases newer than the table of arguments. It
takes the CPU time of an import of vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import answer as vllm_release_answer
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import io_introspect


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``python``: The Python interpreter with vLLM, or a command that runs it, such as a container engine with arguments.
    """

    python: Sequence[str]


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {version, ray, nccl, options, variables}.

    ``ray`` and ``nccl``: Their releases, "" if not installed.
    ``options``: Every option of ``vllm serve`` except --help, as {name, aliases, kind, choices, fold, open}. ``kind``
    is its number of values: ``value``, ``optional``, ``list``, ``append`` (one, repeatable) or ``flag`` (none).
    ``fold`` is the case conversion before a comparison, ``open`` whether plugins can add choices.
    ``variables``: The environment variables that this vLLM reads.
    """
    if not given.python:
        raise ValueError("python is empty. Expected: the Python interpreter with vLLM. Fix: set python")
    called = " ".join(given.python)
    status, stdout, stderr = runner(module)([*given.python, "-c", io_introspect.program()])
    if status != 0:
        reported = [line for line in stderr.splitlines() if line.strip()] or [f"status {status}"]
        raise ValueError(f"{called} could not read vLLM's arguments: {reported[-1]}")
    try:
        # vLLM and its plugins may print other lines before the result.
        return {"changed": False, **vllm_release_answer.answered(stdout)}
    except ValueError as error:
        message = f"{called} returned no valid JSON of vLLM's arguments: {stdout[-500:]!r} ({error})"
        raise ValueError(message) from error
