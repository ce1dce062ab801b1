# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values of vLLM's engine on its /metrics page, which is not trusted."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

#: Source: vLLM 0.13 to 0.33, v1/metrics/loggers.py and v1/spec_decode/metrics.py.
_NAMES: Mapping[str, str] = {
    "vllm:generation_tokens_total": "generated",
    "vllm:prompt_tokens_total": "read",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:request_success_total": "finished",
    "vllm:iteration_tokens_total_count": "steps",
    "vllm:kv_cache_usage_perc": "kv_cache",
    "vllm:prefix_cache_hits_total": "cache_hits",
    "vllm:prefix_cache_queries_total": "cache_queries",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "vllm:spec_decode_num_draft_tokens_total": "drafted",
}
_WANTED = tuple(_NAMES)
_LINE = re.compile(r"([a-z_:]+)(?:\{[^}]*\})?\s+([0-9.eE+-]{1,40})", re.ASCII)


def read(page: str) -> dict[str, float]:
    """Return the values by name, summed over engines, and the mean of ``kv_cache``; missing ones are left out.

    A value that is no finite number counts as 0.
    """
    found: dict[str, list[float]] = {}
    for line in page.splitlines():
        if line.startswith(_WANTED) and (match := _LINE.fullmatch(line)) and (name := _NAMES.get(match[1])):
            found.setdefault(name, []).append(_number(match[2]))
    # Two numbers can have a sum that is none.
    sums = {name: total if math.isfinite(total := sum(values)) else 0.0 for name, values in found.items()}
    if "kv_cache" in sums:
        sums["kv_cache"] /= len(found["kv_cache"])
    return sums


def _number(digits: str) -> float:
    try:
        value = float(digits)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
