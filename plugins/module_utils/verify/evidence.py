# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vLLM's log shows about the decisions of a start, and the checks that compare it with the command line.

Only the groups of PATTERNS leave a node: names, numbers and texts of known messages. Source of the words: the Python
files of vLLM 0.18.1 to 0.33.0; NCCL 2.30, src/init.cc and src/transport/net.cc; module_utils/patch/blocks.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.health import log
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import ORACLE, ROWS
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import View
from ansible_collections.gb10.cluster.plugins.module_utils.verify import command_line
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import (
    ERROR,
    WARNING,
    Check,
    Cluster,
    Found,
    Node,
)
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release

#: The releases whose messages were read, as (major, minor). In others, a missing message means nothing.
_READ = ((0, 18), (0, 33))
_ENGINE = r"Initializing a V1 LLM engine .*?"
_NCCL = r"[\w.-]{1,64}:\d{1,10}:\d{1,10} \[\d{1,3}\] NCCL INFO "
#: A message -> its name in the facts. Each matches the begin of a message; its groups are the evidence.
PATTERNS: Mapping[str, str] = {
    "release": r"Initializing a V1 LLM engine \(v(\d[\w.+]{0,40})\)",
    "device": _ENGINE + r"\bdevice_config=(\w{1,20})",
    "speculative": _ENGINE + r"\bspeculative_config=(\w{1,40})",
    "prefix_caching": _ENGINE + r"\benable_prefix_caching=(True|False)",
    "attention": r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]{1,40}) (?:attention )?backend(?: out of|\.$)",
    "moe_backend": r"Using '?(\w[\w ]{1,40}?)'? (\w{3,12}(?: Int8)?) MoE backend",
    "kernel": r"Selected (\w{1,60}) for \w",
    "table": r"Using default ((?:MoE|W8A8 Block FP8 kernel|W8A8 Block INT8 kernel|Mamba SSU) config)\b",
    "network": _NCCL + r"(?:Using network |Channel .{1,60} via NET/)(\w{1,20})",
    "graphs": r"(Graph capturing finished|Skipping CUDA graph capture)",
    "kv_cache": r"[\w +]{1,20} KV cache size: ([\d,]{1,20} tokens)",
    "patch": r"([\w.]{1,80}(?:\(\))? is (?:False|off|the backend of Fp8LinearOp|the FP8 MoE backend) on \d{1,2}\.\d) "
    r"\(gb10\.cluster\)",
    "weight_only": r"Your GPU does not have native support for (FP[48]) computation",
    "fallback": r"(.{0,160}\b(?:[Ff]all(?:ing|s)? back|not supported on)\b.{0,80})",
}
#: Messages that count only as warnings, and those of them that are normal between the nodes of a cluster.
_WARNINGS = frozenset({"fallback", "weight_only", "table"})
_NORMAL = re.compile(r"torch\.distributed|gloo|AllGather|allgather|linear expert|safetensors|\bCPU\b|non-AOT")
#: Maximum different values of a message.
_MOST = 16
_PATCHED = {
    f"vllm/{edit.file}": edit.function.partition(".")[0]
    for row in ROWS
    for edit in (*row.edits, *row.replaced)
    if edit.kind == "unsupported_kernel"
}


def read(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return {name in PATTERNS: the different values, in order of their first message} of the log lines of a start."""
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        level, _address, text = log.parts(line)
        for name, pattern in PATTERNS.items():
            if (name not in _WARNINGS or level == "WARNING") and (match := re.match(pattern, text)):
                values = found.setdefault(name, {})
                if len(values) < _MOST and not (name == "fallback" and _NORMAL.search(text)):
                    values[" ".join(match.groups())] = None
    return {name: list(values) for name, values in found.items() if values}


def planned(argv: Sequence[str], variables: Mapping[str, str], release: str) -> dict[str, Any]:
    """Return the decisions in the command line and variables of vLLM, {} for an unknown release.

    {attention, moe_backend: name or ""; graphs, speculative, prefix_caching (only if requested), rdma: bool;
    disabled: names of kernels}. The values hold no other text of the command line.
    """
    given = command_line.view(argv, release)
    if given is None:
        return {}
    attention = command_line.backend(given, "--attention-backend")
    moe = command_line.backend(given, "--moe-backend")
    disabled = variables.get("VLLM_DISABLED_KERNELS", "").split(",")
    return {
        "attention": command_line.word(attention or variables.get("VLLM_ATTENTION_BACKEND", "")),
        "moe_backend": command_line.word("" if moe == "auto" else moe),
        "graphs": _with_graphs(given),
        "speculative": bool(given.argument("--speculative-config")),
        "prefix_caching": bool(given.argument("--enable-prefix-caching")),
        "rdma": variables.get("NCCL_IB_DISABLE", "0" if variables.get("NCCL_IB_HCA") else "1") == "0",
        "disabled": [name for name in disabled if name and command_line.word(name)],
    }


def _with_graphs(given: View) -> bool:
    if given.argument("--enforce-eager") or given.argument("--optimization-level") == "0":
        return False
    return given.member("--compilation-config", "cudagraph_mode").upper() != "NONE"


def _values(node: Node, name: str) -> list[str]:
    values: list[str] = node.part("evidence").get("found", {}).get(name, [])
    return values


def _all(cluster: Cluster, name: str) -> list[str]:
    return list(dict.fromkeys(value for node in cluster.read for value in _values(node, name)))


def _decisions(cluster: Cluster) -> dict[str, Any]:
    """Return planned() of the head's running start, {} if it has no GPU: a CPU build ignores most decisions."""
    heads = [node.part("evidence") for node in cluster.read if node.head]
    decided: dict[str, Any] = next((each["planned"] for each in heads if each), {})
    return decided if "cuda" in _all(cluster, "device") else {}


def _finished(cluster: Cluster) -> bool:
    """Return whether the logs of a finished start are complete, so that a missing message means something."""
    logs = [node.part("evidence") for node in cluster.read if node.part("evidence")]
    releases = [vllm_release.number(release)[:2] for release in _all(cluster, "release")]
    healthy = any(node.part("api").get("healthy") for node in cluster.read if node.head)
    known = all(_READ[0] <= release <= _READ[1] for release in releases)
    return healthy and bool(releases) and known and all(each["complete"] for each in logs)


def _incomplete(cluster: Cluster) -> Iterator[Found]:
    for node in cluster.read:
        if node.part("evidence") and not node.part("evidence")["complete"]:
            yield node.name, "unknown: the journal has only a part of this start's messages"


def _attention(cluster: Cluster) -> Iterator[Found]:
    wanted, used = _decisions(cluster).get("attention", "").upper(), _all(cluster, "attention")
    if wanted and wanted not in used and (used or _finished(cluster)):
        yield "", f"the log names {', '.join(used) or 'no backend'} instead of {wanted}"


def _moe_backend(cluster: Cluster) -> Iterator[Found]:
    wanted, used = _decisions(cluster).get("moe_backend", ""), _all(cluster, "moe_backend")
    if wanted and used and not any(_same_backend(wanted, each) for each in used):
        yield "", f"the log names {', '.join(used)} instead of {wanted}"


def _same_backend(wanted: str, used: str) -> bool:
    """Compare --moe-backend with a name in the log, such as deep_gemm with "BATCHED_DEEPGEMM Fp8"."""
    bare = re.sub(r"^(?:batched)?(?:vllm)?", "", re.sub(r"[\s_-]", "", used.lower()))
    return bare.startswith(re.sub(r"[_-]", "", wanted.lower()))


def _disabled(cluster: Cluster) -> Iterator[Found]:
    decided = _decisions(cluster)
    for node in cluster.read:
        patched = {_PATCHED[path] for path in node.part("files").get("patched", ()) if path in _PATCHED}
        for kernel in _values(node, "kernel"):
            if kernel in decided.get("disabled", ()):
                yield node.name, f"the log names {kernel}, which VLLM_DISABLED_KERNELS turns off"
            elif decided and kernel in patched:
                yield node.name, f"the log names {kernel}, which the patch turns off"
        if f"vllm/{ORACLE}" in node.part("files").get("patched", ()) and decided.get("moe_backend") == "":
            others = [each for each in _values(node, "moe_backend") if each.endswith(" Fp8") and "TRITON" not in each]
            yield from ((node.name, f"the log names {each}, but the patch selects Triton") for each in others)


def _tables(cluster: Cluster) -> Iterator[Found]:
    return _each(cluster, "table", "the log reports the default {}")


def _fallbacks(cluster: Cluster) -> Iterator[Found]:
    yield from _each(cluster, "fallback", "{}")
    if "marlin" not in _decisions(cluster).get("moe_backend", ""):
        yield from _each(cluster, "weight_only", "Marlin computes {} weights in 16 bits")


def _each(cluster: Cluster, name: str, words: str) -> Iterator[Found]:
    """Return a finding for each value of a message, on a GPU."""
    if _decisions(cluster):
        yield from ((node.name, words.format(value)) for node in cluster.read for value in _values(node, name))


def _sockets(cluster: Cluster) -> Iterator[Found]:
    if _decisions(cluster).get("rdma"):
        yield from (
            (node.name, "NCCL uses the network Socket") for node in cluster.read if "Socket" in _values(node, "network")
        )


def _graphs(cluster: Cluster) -> Iterator[Found]:
    captured, skipped = PATTERNS["graphs"].strip("()").split("|")
    messages = _all(cluster, "graphs")
    missing = captured not in messages and (skipped in messages or _finished(cluster))
    if _decisions(cluster).get("graphs") and missing:
        yield "", f"the log reports {skipped!r}" if skipped in messages else "the log reports no CUDA graph"


def _kv_cache(cluster: Cluster) -> Iterator[Found]:
    if _decisions(cluster) and _finished(cluster) and not _all(cluster, "kv_cache"):
        yield "", "the log reports no size of the KV cache"


def _without(decision: str, value: str, words: str) -> Callable[[Cluster], Iterator[Found]]:
    """Return a check that finds a requested feature which the engine's configuration has turned off."""

    def check(cluster: Cluster) -> Iterator[Found]:
        if _decisions(cluster).get(decision) and _all(cluster, decision) == [value]:
            yield "", words

    return check


_RESTART = "run site.yml; if the finding stays, compare journalctl -u gb10-vllm with the output of playbooks/plan.yml"
_WORDS = "vLLM, log messages of 0.18.1 to 0.33.0; vllm-project/vllm#53392 (GB10 without a tuned table)"
_TESTED = "log lines of vLLM's source code, read in seven releases; a recorded log of the lab has no finding"


def _check(name: str, group: str, severity: str, texts: tuple[str, str, str], found: Any) -> Check:
    expected, why, fix = texts
    return Check(name, group, severity, expected, why, fix, _WORDS, found, _TESTED)


CHECKS = (
    _check(
        "log-incomplete",
        "serving",
        WARNING,
        (
            "the journal has all messages since the start of gb10-vllm",
            "journald removed the oldest messages, so that missing ones prove nothing",
            "raise SystemMaxUse= in /etc/systemd/journald.conf, and restart the model when convenient",
        ),
        _incomplete,
    ),
    _check(
        "log-attention-backend",
        "runtime",
        WARNING,
        (
            "the log names the attention backend of the command line",
            "another backend may be slower, or wrong for the KV cache's type",
            _RESTART,
        ),
        _attention,
    ),
    _check(
        "log-moe-backend",
        "runtime",
        ERROR,
        (
            "the log names the MoE backend of the command line",
            "some FP4 and FP8 kernels return fluent nonsense on a GB10, and the plan avoids them",
            _RESTART,
        ),
        _moe_backend,
    ),
    _check(
        "log-kernel-disabled",
        "runtime",
        ERROR,
        (
            "the log names no kernel that VLLM_DISABLED_KERNELS or a patch turns off",
            "the patch or the variable is not in effect, so that the ranks run kernels without code for this GPU",
            "run site.yml --tags vllm_patch,vllm_serve, which restarts the ranks",
        ),
        _disabled,
    ),
    _check(
        "log-default-tables",
        "runtime",
        WARNING,
        (
            "vLLM found a tuned table for each of its Triton kernels",
            "vLLM has no table for this GPU and these shapes; the default block sizes are slower",
            "keep moe_config in vllm_patch_patches, or tune a table with vLLM's benchmark_moe.py",
        ),
        _tables,
    ),
    _check(
        "log-fallback",
        "runtime",
        WARNING,
        (
            "no warning about a replaced kernel",
            "vLLM replaced a faster or more exact path, because this GPU or build does not support it",
            "compare the message with the rules, and choose a backend that the build supports",
        ),
        _fallbacks,
    ),
    _check(
        "log-nccl-socket",
        "runtime",
        ERROR,
        (
            "NCCL uses IB between the nodes, if RDMA is planned; NCCL logs it only with NCCL_DEBUG=INFO",
            "sockets have a fraction of the bandwidth, and a higher latency in every layer",
            "check NCCL_IB_HCA and /dev/infiniband, and run verify.yml --tags fabric",
        ),
        _sockets,
    ),
    _check(
        "log-graphs",
        "serving",
        WARNING,
        (
            "the log reports captured CUDA graphs, unless the command line turns them off",
            "without graphs, each token waits for the launch of every kernel",
            _RESTART,
        ),
        _graphs,
    ),
    _check(
        "log-kv-cache",
        "serving",
        WARNING,
        ("the log reports the size of the KV cache", "the start did not allocate the KV cache", _RESTART),
        _kv_cache,
    ),
    _check(
        "log-prefix-caching",
        "serving",
        WARNING,
        (
            "prefix caching is on, if the command line requests it",
            "vLLM turned it off for this model, so that each request reads its whole prompt",
            "remove --enable-prefix-caching, or use another model",
        ),
        _without("prefix_caching", "False", "the engine's configuration has enable_prefix_caching=False"),
    ),
    _check(
        "log-speculative",
        "serving",
        WARNING,
        (
            "speculative decoding is on, if the command line requests it",
            "without draft tokens, decoding is slower",
            _RESTART,
        ),
        _without("speculative", "None", "the engine's configuration has speculative_config=None"),
    ),
)
