# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts vLLM with random weights and few layers, so that it compiles every kernel that a model needs.

This file is also a program, ``python io_start.py MODEL [ARGUMENTS of vllm serve]``: the runtime's Python runs it, so it
imports nothing from this collection.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any

#: Bytes of the KV cache, tokens of the context, and requests at the same time.
_KV_BYTES, _CONTEXT, _REQUESTS = 1 << 30, 2048, 16
_LEAST_LAYERS = 2
_PARSERS = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)


def program() -> str:
    """Return the source of this file, for `python -c`."""
    return inspect.getsource(sys.modules[__name__])


def needed_layers(kinds: Sequence[object], dense: int, count: int) -> int:
    """Return the number of first layers that contain each kind of layer.

    ``kinds``: of each layer, empty if unknown; ``dense``: layers before the first with experts; ``count``: all layers.
    """
    first = [list(kinds).index(kind) + 1 for kind in set(kinds)]
    return min(count, max([_LEAST_LAYERS, dense + 1, *first]))


def shortened(config: Any) -> Any:
    """Return a transformers configuration with the first layers only."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    if not hasattr(text, "num_hidden_layers"):
        # vLLM first applies the function to an empty configuration, to find changed architectures.
        return config
    count = int(text.num_hidden_layers)
    lists = [
        name for name, value in vars(text).items() if isinstance(value, list | tuple | str) and len(value) == count
    ]
    kinds = getattr(text, next((name for name in lists if "type" in name or "pattern" in name), ""), ())
    layers = needed_layers(kinds, int(getattr(text, "first_k_dense_replace", 0) or 0), count)
    text.num_hidden_layers = layers
    for name in lists:
        setattr(text, name, getattr(text, name)[:layers])
    return config


def engine_args(argv: Sequence[str]) -> Any:
    """Return the engine's arguments for one rank with random weights, from those of ``vllm serve``."""
    for name in _PARSERS:
        try:
            module = importlib.import_module(name)
            break
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    else:
        raise ImportError(f"none of {', '.join(_PARSERS)} found")
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    given = module.make_arg_parser(flexible(prog="vllm serve")).parse_args(list(argv))
    if getattr(given, "model_tag", None):
        given.model = given.model_tag
    arguments = importlib.import_module("vllm.engine.arg_utils").EngineArgs.from_cli_args(given)
    changes = {
        "load_format": "dummy",
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "data_parallel_size_local": None,
        "data_parallel_start_rank": None,
        "data_parallel_address": None,
        "data_parallel_rpc_port": None,
        "data_parallel_backend": "mp",
        "nnodes": 1,
        "node_rank": 0,
        "enable_expert_parallel": False,
        "distributed_executor_backend": "uni",
        "skip_tokenizer_init": True,
        "hf_overrides": shortened,
        "kv_cache_memory_bytes": _KV_BYTES,
        "gpu_memory_utilization": 0.1,
        "max_model_len": _CONTEXT,
        "max_num_seqs": _REQUESTS,
        "max_num_batched_tokens": _CONTEXT,
    }
    for name, value in changes.items():
        if hasattr(arguments, name):
            setattr(arguments, name, value)
    return arguments


def main(argv: Sequence[str]) -> None:
    """Start the engine, and generate some tokens by sampling, so that every kernel runs once."""
    arguments = engine_args(argv)
    engine = importlib.import_module("vllm.v1.engine.llm_engine").LLMEngine.from_engine_args(arguments)
    if engine.model_config.runner_type == "generate":
        parameters = importlib.import_module("vllm").SamplingParams(
            temperature=1.0, top_p=0.9, top_k=50, max_tokens=8, detokenize=False
        )
        for number in range(2):
            engine.add_request(str(number), {"prompt_token_ids": list(range(1, 33))}, parameters)
        while engine.has_unfinished_requests():
            engine.step()
    sys.stdout.write("every kernel has run\n")


if __name__ == "__main__":
    main(sys.argv[1:])
