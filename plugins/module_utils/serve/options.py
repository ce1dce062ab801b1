# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the options of a launch come from: the model, a variable of the role gb10, or the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import Inputs, ServeSettings

SHARE, KV_DTYPE, SEQUENCES = "--gpu-memory-utilization", "--kv-cache-dtype", "--max-num-seqs"
#: The share's name, and its other name since vLLM 0.31.
SHARES = (SHARE, "--device-memory-utilization")
#: Arguments that variables replace, with the variable's value that means unset.
_OWNED: Mapping[str, tuple[str, Any]] = {
    "--tensor-parallel-size": ("gb10_tensor_parallel_size", None),
    "--pipeline-parallel-size": ("gb10_pipeline_parallel_size", None),
    "--data-parallel-size": ("gb10_data_parallel_size", None),
    "--enable-expert-parallel": ("gb10_expert_parallel", None),
    "--distributed-executor-backend": ("gb10_distributed_executor_backend", None),
    "--host": ("gb10_api_host", None),
    "--port": ("gb10_api_port", None),
    "--served-model-name": ("gb10_served_model_name", ""),
    "--max-model-len": ("gb10_max_model_len", 0),
    SEQUENCES: ("gb10_max_num_seqs", 0),
    KV_DTYPE: ("gb10_kv_cache_dtype", "auto"),
}


def named(args: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """Return the names and the words of the options in arguments."""
    return [(name, words) for name, _values, words in arguments.options(args)]


def of_model(inputs: Inputs) -> list[tuple[str, Sequence[str]]]:
    """Return the names and the words of the model's arguments. gb10_kv_cache_dtype replaces that option of the
    model."""
    auto = inputs.settings.kv_cache_dtype == "auto"
    return [(name, words) for name, words in named(inputs.model.entry.args) if auto or name != KV_DTYPE]


def without_share(args: Sequence[str]) -> list[str]:
    """Return the user's arguments without the share of the memory. With a planned memory, the plan passes its own."""
    return [word for name, words in named(args) if name not in SHARES for word in words]


def passed(user_args: Mapping[str, Any], planned: bool) -> dict[str, Any]:
    """Return the values of the user's arguments that vLLM gets; see without_share()."""
    return {name: value for name, value in user_args.items() if not planned or name != SHARE}


def given(inputs: Inputs) -> list[tuple[str, str, Sequence[str]]]:
    """Return the options of the model and then those of the user, which win: location, name and words."""
    own = named(inputs.settings.vllm_extra_args)
    return [(inputs.model.args_path, *each) for each in of_model(inputs)] + [
        ("gb10_vllm_extra_args", *each) for each in own
    ]


def located(inputs: Inputs, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of options with the locations of their values: arguments, or the variable."""
    places = {option: variable for option, (variable, _unset) in _OWNED.items()}
    places |= {name: f"{path}.{name}" for path, name, _words in given(inputs)}
    return [replace(problem, path=places.get(problem.path, problem.path)) for problem in problems]


def sources(
    inputs: Inputs, effective: Mapping[str, Any], user_args: Mapping[str, Any], of_model: Mapping[str, Any]
) -> dict[str, str]:
    """Return where the options and variables come from that the user did not set, by the place that a rule names."""
    settings, found = inputs.settings, dict[str, str]()
    for name in effective.keys() - user_args.keys():
        variable, unset = _OWNED.get(name, ("", None))
        owned = bool(variable) and getattr(settings, variable.removeprefix("gb10_")) not in (unset, 0)
        of_plan = variable if owned else f"planned {name}"
        place = f"{inputs.model.args_path}.{name}" if name in of_model else of_plan
        # An option that is off is the user's to set.
        if effective[name] is not False:
            found[f"gb10_vllm_extra_args.{name}"] = place
    for node in inputs.nodes:
        for name in node.rank_environment.keys() - settings.extra_env.keys():
            found[f"gb10_extra_env.{name}"] = inputs.model.environment_paths.get(name, f"planned {name}")
    return found


def contradictions(settings: ServeSettings, tensor: int, pipeline: int, user_args: Mapping[str, Any]) -> list[Problem]:
    """Find user arguments that contradict a variable, because other roles read the variable."""
    decided = {"gb10_tensor_parallel_size": tensor, "gb10_pipeline_parallel_size": pipeline}
    problems = []
    for argument, (variable, unset) in _OWNED.items():
        value = decided.get(variable, getattr(settings, variable.removeprefix("gb10_")))
        if argument in user_args and value != unset and str(user_args[argument]) != str(value):
            problems.append(
                Problem(
                    f"gb10_vllm_extra_args.{argument}",
                    str(user_args[argument]),
                    f"{value}, the value of {variable}",
                    f"set only {variable}",
                )
            )
    return problems
