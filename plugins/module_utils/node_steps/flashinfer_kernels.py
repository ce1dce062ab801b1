# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compile the kernels of FlashInfer that a model needs, before it is loaded: do the next part, and return the state.

Starts vLLM with random weights and few layers in a separate unit, and stores each module that FlashInfer compiled in
the runtime. Ranks then load them without a compiler.
The unit runs as a temporary user without network. The results are stored as root, read-only for the ranks.
With ``archive``, it stores the modules of an equal node instead.
An interrupted compilation continues in the next run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_work_unit
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run, runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.kernels import io_kernels, io_start, plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import toolchain
from ansible_collections.gb10.cluster.plugins.module_utils.node.parse import available_memory


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``python``: The Python interpreter of the environment with vLLM.
    ``name``: The identity of the kernels.
    ``argv``: The model and the arguments of ``vllm serve``.
    ``environment``: The environment of a rank.
    ``seconds``: The time limit of the compilation.
    ``archive``: The file with the modules of an equal node.
    ``pack``: The file to write for equal nodes.
    """

    python: str = field(metadata={"type": "path"})
    name: str
    argv: Sequence[str] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    seconds: int = 7200
    archive: str | None = field(default=None, metadata={"type": "path"})
    pack: str | None = field(default=None, metadata={"type": "path"})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {state, line, modules, packed_sha256}.

    ``state``: ``ready``; ``running`` while the unit compiles; ``missing`` in check mode.
    ``line``: The progress as text.
    ``modules``: SHA-256 of each stored module, when ready.
    ``packed_sha256``: SHA-256 of ``pack``, with it, when ready.
    """
    folder = io_kernels.store(given.python)
    if not folder:
        # Without FlashInfer vLLM uses its own kernels.
        return {"changed": False, "state": "ready", "line": "the runtime has no FlashInfer", "modules": {}}
    changed, modules, line = _advance(module, given, folder)
    state = "ready" if modules is not None else "missing" if module.check_mode else "running"
    answer: dict[str, Any] = {"state": state, "line": line, "modules": modules or {}}
    if given.pack and modules is not None and not module.check_mode:
        answer["packed_sha256"] = io_kernels.pack(folder, given.name, given.pack)
    diff = {"before": "" if changed else f"{given.name}\n", "after": f"{given.name}\n"}
    return {"changed": changed, "diff": diff, **answer}


def _advance(module: AnsibleModule, given: Inputs, folder: str) -> tuple[bool, dict[str, str] | None, str]:
    """Do the next part. Return (changed, the stored modules or None, the progress). Raises ProblemsError, OSError."""
    command, name = runner(module), given.name
    if (modules := io_kernels.stored(folder, name)) is not None:
        return False, modules, f"{len(modules)} modules are stored"
    if module.check_mode:
        return True, None, "FlashInfer's kernels would be compiled"
    jobs = toolchain.jobs(available_memory(io_file.read("/proc/meminfo")), len(os.sched_getaffinity(0)))
    if given.archive:
        modules = io_kernels.unpack(folder, name, given.archive, jobs)
        return True, modules, f"{len(modules)} modules were stored"
    found = io_kernels.progress(command, name)
    if found.state == "failed":
        raise _failure(command)
    if found.state == "finished":
        modules = io_kernels.collect(folder, name, jobs)
        io_work_unit.stop(command, plan.UNIT)
        io_kernels.remove_cache()
        return True, modules, f"{len(modules)} modules were stored"
    if found.state == "none":
        words, environment = list(given.argv), {str(key): str(value) for key, value in given.environment.items()}
        io_work_unit.start(
            command,
            plan.UNIT,
            plan.unit_argv(given.python, io_start.program(), name, words, environment, jobs, given.seconds),
        )
    return True, None, f"{found.modules} modules and {found.objects} objects are compiled, {jobs} at a time"


def _failure(command: Run) -> ProblemsError:
    """Stop the unit that failed, and return why it did."""
    reason = io_kernels.cause(command)
    io_work_unit.stop(command, plan.UNIT)
    fix = "resolve the error, or set gb10_flashinfer: false; finished objects are reused"
    found = f"vLLM ended before every kernel had run:\n{reason}"
    return ProblemsError([Problem("unit", found, "a start with random weights", fix)])
