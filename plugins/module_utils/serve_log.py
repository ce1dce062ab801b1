# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading vLLM's log: how far a start has come, and why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What a line says of the progress -> how to say it, the furthest step last seen wins. `{}` takes the match's first group.
_STEPS = (
    (r"Ray counts all (\d+ nodes)", "Ray counts all {}"),
    (r"version (\d+\.\d+\S*)", "vLLM {} starts"),
    (r"Resolved architecture: (\S+)", "architecture {}"),
    (r"Initializing a V1 LLM engine", "engine starts"),
    (r"Creating a new placement group", "Ray places the ranks"),
    (r"rank \d+ in world size (\d+)", "ranks meet, world size {}"),
    (r"Starting to load model", "model is being loaded"),
    (r"Loading safetensors checkpoint shards:\s+(\d+% Completed \| \d+/\d+)", "weights: {}"),
    (r"Model loading took (.+? seconds)", "model loaded: {}"),
    (r"[Cc]ompiling|torch\.compile|Dynamo bytecode", "graph is being compiled"),
    (r"Capturing CUDA graphs?[^:]*:\s+(\d+%)", "CUDA graphs: {}"),
    (r"[GC]PU KV cache size: ([\d,]+ tokens)", "KV cache: {}"),
    (r"[Ww]arming up", "warm-up"),
    (r"Starting vLLM server on", "API server starts"),
    (r"Application startup complete", "API server is up"),
)
#: The process name and pid, level, time and place that vLLM and Ray put before a message.
_PREFIX = re.compile(
    r"^(?:\x1b\[[0-9;]*m)*(?:\([^()]*(?:pid=[^()]*)\)(?:\x1b\[[0-9;]*m)*\s*)*"
    r"(?:(?:ERROR|CRITICAL|INFO|WARNING)\s+[\d-]+\s+[\d:,.]+\s+\[[^\]]*\]\s?)?"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout))(?:: (.*))?$")
#: Exceptions that only report that another one happened, by class or by text.
_ECHO_CLASSES = ("EngineDeadError", "RayTaskError", "ActorDiedError", "ActorDiedErrorMessage", "SystemExit", "KeyboardInterrupt", "CancelledError")
_ECHO_TEXTS = (
    "Engine core initialization failed",
    "EngineCore encountered an issue",
    "See root cause above",
    "Worker failed with error",
    "WorkerProc initialization failed",
    "Executor failed",
)
_USAGE = re.compile(r"^(?:vllm|vllm serve|api_server\.py)[\w ]*: error: (.+)$")
_SYSTEMD = re.compile(r"^\S+\.service: (?:Failed to \w+ .*|Failed at step .*)$")
_RAY_INCOMPLETE = re.compile(r"^Ray is not complete (.+)$")


def strip_prefix(line: str) -> str:
    """Return a log line without process, level, time and place."""
    return _PREFIX.sub("", _ANSI.sub("", line), count=1).rstrip()


def progress(lines: Sequence[str]) -> str:
    """Return the last step that the lines tell of, in words; "" if they tell of none."""
    for line in reversed(lines):
        for pattern, words in reversed(_STEPS):
            if match := re.search(pattern, line):
                return words.format(*(group or "" for group in match.groups()))
    return ""


def root_cause(lines: Sequence[str]) -> str:
    """Return the first error of a failed start that is not an echo of another, "" if none is found.

    An engine that fails takes every process around it down, each with a traceback; the last one is the least telling.
    """
    echo = ""
    for line in map(strip_prefix, lines):
        if match := _USAGE.match(line) or _RAY_INCOMPLETE.match(line) or _SYSTEMD.match(line):
            return match[0]
        if match := _EXCEPTION.match(line):
            if match[1] in _ECHO_CLASSES or any(text in (match[2] or "") for text in _ECHO_TEXTS):
                echo = echo or line
            else:
                return line
    return echo
