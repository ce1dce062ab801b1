# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The choices that each process of vLLM logs in a start: backends, kernels, sampler, memory and seconds.

Only the groups of MESSAGES leave a node: names, numbers and texts of known messages. Source of the words: the Python
files of vLLM; NCCL 2.30, src/init.cc and src/transport/net.cc; module_utils/patch/blocks.py.

vLLM logs a message of info_once() only in the first rank of a node, or in rank 0. So a rank without a message has an
unknown choice, which differs from no other one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.launch import log_line

#: The processes that log a message: each rank, the first rank of each node, rank 0, or the engine.
RANK, NODE, FIRST, ENGINE = "each rank", "the first rank of each node", "rank 0", "the engine"
#: The releases whose source has most messages.
ALL = "0.18.1 to 0.33.0"
_ENGINE = r"Initializing a V1 LLM engine .*?"
_NCCL = r"[\w.-]{1,64}:\d{1,10}:\d{1,10} \[\d{1,3}\] NCCL INFO "
_NUMBER = r"(\d{1,6}(?:\.\d{1,6})?)"
#: Maximum processes of a start, and different values of a message.
_MOST_PROCESSES, _MOST = 64, 16
#: Ranks, by their name in the log. Only ranks of the same pipeline stage have the same layers.
_IS_RANK = re.compile(r"Worker|RayWorker|EngineCore")
_STAGE = re.compile(r"_(PP\d+)")
#: The compared choices in one line of text.
_SHOWN = {
    "attention": "attention",
    "moe_backend": "MoE",
    "kernel": "linear layers",
    "sampler": "sampler",
    "autotune": "autotuning",
}


@dataclass(frozen=True)
class Message:
    """A message's begin, the processes that log it, and the releases whose source has it.

    The groups of ``pattern`` are the value; for a named group it is the name. ``compared``: whether it is a choice that
    all ranks must make in the same way. ``warning``: whether it counts only as a warning.
    """

    pattern: str
    by: str
    releases: str = ALL
    compared: bool = False
    warning: bool = False


#: A message -> its name in the facts.
MESSAGES: Mapping[str, Message] = {
    "release": Message(r"Initializing a V1 LLM engine \(v(\d[\w.+]{0,40})\)", ENGINE),
    "device": Message(_ENGINE + r"\bdevice_config=(\w{1,20})", ENGINE),
    "speculative": Message(_ENGINE + r"\bspeculative_config=(\w{1,40})", ENGINE),
    "prefix_caching": Message(_ENGINE + r"\benable_prefix_caching=(True|False)", ENGINE),
    # Each rank logs a backend of the command line. Without one, the first rank of each node logs vLLM's choice.
    "attention": Message(
        r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]{1,40}) (?:attention )?backend(?: out of|\.$)",
        NODE,
        compared=True,
    ),
    "moe_backend": Message(r"Using '?(\w[\w ]{1,40}?)'? (\w{3,12}(?: Int8)?) MoE backend", NODE, compared=True),
    "kernel": Message(r"Selected (\w{1,60}) for \w", NODE, compared=True),
    "sampler": Message(
        r"(?P<FlashInfer>Using FlashInfer for top-p)|(?P<native>FlashInfer top-p/top-k sampling )", NODE, compared=True
    ),
    "autotune": Message(
        r"(?P<off>Skipping FlashInfer autotune because)|(?P<on>(?:Running|Using) FlashInfer (?:managed )?autotune)",
        NODE,
        f"{ALL}; that it is on: 0.22.1 to 0.33.0",
        compared=True,
    ),
    "nccl": Message(
        rf"(?:vLLM is using nccl==|(?:{_NCCL})?NCCL version )(\d[\d.]{{1,15}})(?:\+|$)",
        FIRST,
        f"{ALL}; NCCL 2.30",
        compared=True,
    ),
    "network": Message(
        _NCCL + r"(?:Using network |Channel .{1,60} via NET/)(\w{1,20})", RANK, "NCCL 2.30", compared=True
    ),
    "table": Message(
        r"Using default ((?:MoE|W8A8 Block FP8 kernel|W8A8 Block INT8 kernel|Mamba SSU) config)\b", NODE, warning=True
    ),
    "graphs": Message(r"(Graph capturing finished|Skipping CUDA graph capture)", NODE),
    "kv_cache": Message(r"[\w +]{1,20} KV cache size: ([\d,]{1,20} tokens)", ENGINE),
    "kv_gib": Message(rf"Available KV cache memory: {_NUMBER} GiB", NODE),
    "weights_seconds": Message(rf"Loading weights took {_NUMBER} seconds", NODE),
    "model_seconds": Message(rf"Model loading took .{{1,30}} and {_NUMBER} seconds", NODE),
    "compile_seconds": Message(
        rf"(?:\[[^\]]{{1,60}}\] )?torch\.compile\b.{{0,60}}\b(?:took|takes) {_NUMBER} s\b", NODE
    ),
    "graph_seconds": Message(rf"Graph capturing finished in {_NUMBER} secs", NODE),
    "patch": Message(
        (
            r"([\w.]{1,80}(?:\(\))? is (?:False|off|the backend of Fp8LinearOp|the FP8 MoE backend) on "
            r"\d{1,2}\.\d) \(gb10\.cluster\)"
        ),
        NODE,
        "the role vllm_patch",
    ),
    "weight_only": Message(r"Your GPU does not have native support for (FP[48]) computation", NODE, warning=True),
    "fallback": Message(r"(.{0,160}\b(?:[Ff]all(?:ing|s)? back|not supported on)\b.{0,80})", RANK, warning=True),
}
#: Fallbacks that are normal between the nodes of a cluster.
_NORMAL = re.compile(r"torch\.distributed|gloo|AllGather|allgather|linear expert|safetensors|\bCPU\b|non-AOT")
_PATTERNS = {name: re.compile(message.pattern) for name, message in MESSAGES.items()}
Process = Mapping[str, Any]


def read(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return {process, address, found} of each process with known messages in the log lines of a start.

    ``process`` is its name in the log, "" if unknown. ``address`` is that of its node, "" for this one. ``found`` has
    the different values of each name in MESSAGES, in order of their first message.
    """
    names: dict[tuple[str, str], str] = {}
    found: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for line in lines:
        level, _address, text = log_line.parts(line)
        values = list(_values(level, text))
        if not values:
            continue
        pid, process, address = log_line.sender(line)
        key = (address, pid)
        if key not in found and len(found) == _MOST_PROCESSES:
            continue
        # A process gets its final name, such as Worker_TP0, after its first messages.
        if "_" in process or "_" not in names.get(key, ""):
            names[key] = process or names.get(key, "")
        for name, value in values:
            known = found.setdefault(key, {}).setdefault(name, {})
            if len(known) < _MOST:
                known[value] = None
    return [
        {"process": names[key], "address": key[0], "found": {name: list(values) for name, values in each.items()}}
        for key, each in found.items()
    ]


def _values(level: str, text: str) -> Iterable[tuple[str, str]]:
    for name, pattern in _PATTERNS.items():
        if (MESSAGES[name].warning and level != "WARNING") or not (match := pattern.match(text)):
            continue
        if name != "fallback" or not _NORMAL.search(text):
            yield name, match.lastgroup or " ".join(match.groups())


def values(processes: Sequence[Process], name: str) -> list[str]:
    """Return the different values of a message in all processes."""
    return list(dict.fromkeys(value for each in processes for value in each["found"].get(name, ())))


def ranks(processes: Sequence[Process], name: str) -> list[Process]:
    """Return the ranks that log a message. With NCCL's own lines, the process may be unknown."""
    return [
        each
        for each in processes
        if each["found"].get(name) and (_IS_RANK.match(each["process"]) or not each["process"])
    ]


def stage(process: Process) -> str:
    """Return a rank's stage of the pipeline, "" without one."""
    found = _STAGE.search(process["process"])
    return found[1] if found else ""


def differ(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two ranks chose differently. A rank may log only a part of its choices."""
    return not set(one) <= set(other) and not set(other) <= set(one)


def summary(processes: Sequence[Process]) -> str:
    """Return the choices of all ranks as one line, "" without one."""
    found = {words: ", ".join(values(processes, name)) for name, words in _SHOWN.items()}
    return "; ".join(f"{words} {value}" for words, value in found.items() if value)
