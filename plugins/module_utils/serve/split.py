# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide how a model is split over the nodes: tensor and pipeline parallelism."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.memory import checks as memory_checks
from ansible_collections.gb10.cluster.plugins.module_utils.model import layers as model_layers
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import Shape
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import Inputs


def _encodes(shape: Shape | None) -> bool:
    return shape is not None and shape.family in model_layers.ENCODERS


def pipelined(shape: Shape | None, pipeline: int) -> list[Problem]:
    """Check that no encoder has pipeline stages, which vLLM 0.18.1 to 0.33.0 does not support (models/bert.py)."""
    if not _encodes(shape) or pipeline == 1:
        return []
    expected = "1, because vLLM does not divide an encoder's layers over nodes"
    return [
        Problem(
            "gb10_pipeline_parallel_size", str(pipeline), expected, "set gb10_data_parallel_size to the number of nodes"
        )
    ]


def parallelism(inputs: Inputs) -> tuple[int, int, list[str]]:
    """Take (tensor, pipeline) from the user, or choose them; return them with the reason."""
    tensor, pipeline = inputs.settings.tensor_parallel_size, inputs.settings.pipeline_parallel_size
    if inputs.settings.data_parallel_size > 1:
        return (
            1,
            1,
            [
                (
                    "each node has a replica of the model: requests are distributed, and the model is not split "
                    "over the network"
                )
            ],
        )
    count = len(inputs.nodes)
    if tensor or pipeline:
        return tensor or max(1, count // pipeline), pipeline or max(1, count // tensor), []
    tensor, pipeline, why = sizes(inputs, inputs.model.config.shape, inputs.model.entry)
    return tensor, pipeline, [f"tensor {tensor} x pipeline {pipeline}: {why}"] if count > 1 else []


def sizes(inputs: Inputs, shape: Shape | None, model: Model) -> tuple[int, int, str]:
    """Choose (tensor, pipeline, why) for a model with one GPU per node, such that no node is idle."""
    count = len(inputs.nodes)
    if model.tensor * model.pipeline == count:
        return model.tensor, model.pipeline, "from the catalog"
    mixed = len({node.capability for node in inputs.nodes if node.capability}) > 1
    if count > 1 and not _encodes(shape) and (mixed or inputs.transport == "socket"):
        reason = "the GPUs differ" if mixed else "NCCL uses sockets"
        slow = "tensor parallelism waits for the network in every layer"
        return 1, count, f"one pipeline stage per node, because {reason}; {slow}"
    fitting = (size for size in range(count, 0, -1) if count % size == 0)
    tensor = next(size for size in fitting if shape is None or memory_checks.divides(shape, size))
    least = "" if tensor == count else f"; its heads are not divisible by {count}"
    return tensor, count // tensor, f"every layer is split over as many nodes as the model allows{least}"
