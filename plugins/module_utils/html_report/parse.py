# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records of the page, which people can edit: the last golden result, benchmarks, and the speeds of several models.

A kind of record is its format and its shape. A shape has the keys that the page shows, with the type of each value:
int, float, bool, str, a shape, or a list of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import matrix, report
from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.golden import report as golden_report

#: Most characters of a file, and entries of a list.
_MOST, _ENTRIES = 1024**2, 100
Shape: TypeAlias = Any
Kind: TypeAlias = tuple[int, Mapping[str, Shape]]
#: Times in ms, speeds in tokens per second, ``hit_rate`` from 0 to 1.
_RUN: Shape = {
    **dict.fromkeys(("concurrency", "input_tokens", "output_tokens", "failed"), int),
    **dict.fromkeys(("tokens_per_second", "decode_tokens_per_second", "roofline_percent", "hit_rate"), float),
    "ttft_ms": {"median": float, "p99": float},
    "tpot_ms": {"median": float},
    "itl_ms": {"median": float},
    "clocks": {"sm_mhz": float},
}
_BENCHMARK: Shape = {
    **dict.fromkeys(("served_model_name", "date", "mode", "stack", "vllm", "executor", "quantization"), str),
    **dict.fromkeys(("nodes", "tensor", "pipeline"), str),
    "drivers": [str],
    "runs": [_RUN],
    "roofline_tokens_per_second": float,
    "published_tokens_per_second": [float],
    "findings": [str],
}
_GOLDEN: Shape = {
    **dict.fromkeys(("model", "quantization", "date", "vllm", "record_date", "record_vllm"), str),
    **dict.fromkeys(("answers", "equal", "near", "different"), int),
    **dict.fromkeys(("perplexity", "record_perplexity", "acceptance"), float),
    "errors": [str],
    "warnings": [str],
}
_MATRIX: Shape = {"date": str, "finished": bool, "rows": [{"name": str, "problem": str, "runs": [_RUN]}]}
BENCHMARK: Kind = (report.FORMAT, _BENCHMARK)
GOLDEN: Kind = (golden_report.FORMAT, _GOLDEN)
MATRIX: Kind = (matrix.FORMAT, _MATRIX)


def record(text: str, kind: Kind) -> dict[str, Any]:
    """Return a record in its shape, or {ignored: why} for another file."""
    version, shape = kind
    try:
        found = bounded_json.load(text, _MOST)
    except ValueError as error:
        return {"ignored": str(error)}
    if not isinstance(found, Mapping) or found.get("format") != version:
        return {"ignored": f"it is not a document of format {version}"}
    return {key: shaped(found.get(key), each) for key, each in shape.items()}


def shaped(value: object, shape: Shape) -> Any:
    """Return a value in a shape. A value of another type is unknown: None for a float, else 0, False, "" or [].

    The list of an object is that of its values.
    """
    if isinstance(shape, Mapping):
        found = value if isinstance(value, Mapping) else {}
        return {key: shaped(found.get(key), each) for key, each in shape.items()}
    if isinstance(shape, list):
        entries = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
        return [shaped(each, shape[0]) for each in entries[:_ENTRIES]]
    if shape is bool:
        return value is True
    if shape is str:
        return str(value) if isinstance(value, str | int | float) else ""
    number = _number(value)
    return round(number or 0) if shape is int else number


def _number(value: object) -> float | None:
    """Return a number from 0 to 1e12."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e12 else None
