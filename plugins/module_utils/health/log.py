# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse vLLM's log: the progress of a start."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.launch.log_line import parts

#: Start of a message -> its description, for each step of the start, in order. Each `{}` is a group of the match.
STEPS = (
    (r"gb10-gates wait: (.+)", "waiting for gates: {}"),
    (r"Ray counts all (\d+ nodes)", "Ray counts all {}"),
    (r".*\bversion (\d+\.\d+\S*)$", "vLLM {} starts"),
    (r"Resolved architecture: (\S+)", "architecture {}"),
    (r"Initializing a V1 LLM engine", "engine starts"),
    (r".*Creating a new placement group", "Ray places the ranks"),
    (r"rank \d+ in world size (\d+)", "ranks connected, world size {}"),
    (r"Starting to load model|Loading model from scratch", "loading model"),
    (
        r"(?:Multi-thread )?[Ll]oading (?:[\w ]*shards|safetensors using \w+ loader)[^:]*:\s+"
        r"(\d+% Completed \| [\d.]+\w?/[\d.]+\w?)",
        "weights: {}",
    ),
    (r"Loading weights took (.+? seconds)", "weights read in {}"),
    (r"Model loading took (.+? seconds)", "model loaded: {}"),
    (r"Dynamo bytecode transform|Compiling a graph|torch\.compile took|torch\.compile takes", "compiling graph"),
    (r"[GC]PU KV cache size: ([\d,]+ tokens)", "KV cache: {}"),
    (r"Profiling CUDA graph memory", "measuring CUDA graphs"),
    (r"Capturing [\w -]*CUDA graphs?[^:]*:\s+(\d+%)(?:\|[^|]*\| (\d+/\d+))?", "CUDA graphs: {} {}"),
    (r"Graph capturing finished in (.+ secs), took (.+ GiB)", "CUDA graphs captured in {}, {}"),
    (r"[Ww]arming up", "warm-up"),
    (r"init engine .* took (\S+ s)", "engine initialized in {}"),
    (r"Starting vLLM server on", "API server starts"),
    (r"(?:INFO:\s+)?Application startup complete", "API server is up"),
)


def progress(lines: Sequence[str]) -> str:
    """Return a description of the furthest step in the lines, "" without one.

    The last step would be wrong, because Ray forwards the lines of other nodes late.
    """
    furthest, message = -1, ""
    for line in lines:
        level, _address, text = parts(line)
        for index, (pattern, words) in enumerate(STEPS):
            if index >= furthest and level != "WARNING" and (match := re.match(pattern, text)):
                furthest, message = index, words.format(*(group or "" for group in match.groups())).rstrip()
    return message
