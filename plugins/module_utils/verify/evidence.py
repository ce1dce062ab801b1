# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that compare the ranks' messages in a start with the command line, between ranks, and with the record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, RUNNING, WARNING, Check, Found
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.launch.choices import MESSAGES, Process
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import ORACLE, ROWS
from ansible_collections.gb10.cluster.plugins.module_utils.verify import command_line
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import Cluster, Detect, VerifiedNode, of_nodes
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

#: The releases whose messages were read, as (major, minor). In others, a missing message means nothing.
_READ = ((0, 18), (0, 33))
_PATCHED = {
    f"vllm/{edit.file}": edit.function.partition(".")[0]
    for row in ROWS
    for edit in (*row.edits, *row.replaced)
    if edit.kind == "unsupported_kernel"
}
_COMPARED = [name for name, message in MESSAGES.items() if message.compared]
_SAMPLER = {"0": "native", "1": "FlashInfer"}


def planned(argv: Sequence[str], variables: Mapping[str, str], release: str) -> dict[str, Any]:
    """Return the decisions in the command line and variables of vLLM, {} for an unknown release.

    {attention, moe_backend, sampler, autotune: name or ""; graphs, speculative, prefix_caching (only if requested),
    rdma: bool; disabled: names of kernels}. The values hold no other text of the command line.
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
        "sampler": _SAMPLER.get(variables.get("VLLM_USE_FLASHINFER_SAMPLER", ""), ""),
        "autotune": _autotune(given),
        "graphs": _with_graphs(given),
        "speculative": bool(given.speculative()),
        "prefix_caching": bool(given.argument("--enable-prefix-caching")),
        "rdma": variables.get("NCCL_IB_DISABLE", "0" if variables.get("NCCL_IB_HCA") else "1") == "0",
        "disabled": [name for name in disabled if name and command_line.word(name)],
    }


def _autotune(given: Arguments) -> str:
    flag = given.values.get("--enable-flashinfer-autotune")
    member = given.member("--kernel-config", "enable_flashinfer_autotune")
    return {"true": "on", "false": "off"}.get((member if flag is None else str(flag)).lower(), "")


def _with_graphs(given: Arguments) -> bool:
    if given.argument("--enforce-eager") or given.argument("--optimization-level") == "0":
        return False
    return given.member("--compilation-config", "cudagraph_mode").upper() != "NONE"


def processes(node: VerifiedNode) -> list[Process]:
    """Return the processes in a node's log, [] if it was not read."""
    found: list[Process] = node.part("evidence").get("processes", [])
    return found


def _values(node: VerifiedNode, name: str) -> list[str]:
    return choices.values(processes(node), name)


def _all(cluster: Cluster, name: str) -> list[str]:
    return list(dict.fromkeys(value for node in cluster.read for value in _values(node, name)))


def _ranks(cluster: Cluster, name: str) -> Iterator[tuple[VerifiedNode, Process]]:
    """Yield each rank that logs a message, with its node.

    Ray's head has the lines of other nodes with their address.
    """
    for node in cluster.read:
        for process in choices.ranks(processes(node), name):
            yield next((each for each in cluster.read if process["address"] in each.addresses), node), process


def _named(node: VerifiedNode, process: Process) -> str:
    return f"{process['process'] or 'a rank'} on {node.name}"


def _decisions(cluster: Cluster) -> dict[str, Any]:
    """Return planned() of the head's running start, {} if it has no GPU: a CPU build ignores most decisions."""
    heads = [node.part("evidence") for node in cluster.read if node.head]
    decided: dict[str, Any] = next((each["planned"] for each in heads if each), {})
    return decided if "cuda" in _all(cluster, "device") else {}


def _finished(cluster: Cluster) -> bool:
    """Return whether the logs of a finished start are complete, so that a missing message means something."""
    logs = [node.part("evidence") for node in cluster.read if node.part("evidence")]
    releases = [vllm_release_checks.number(release)[:2] for release in _all(cluster, "release")]
    healthy = any(node.part("api").get("healthy") for node in cluster.read if node.head)
    known = all(_READ[0] <= release <= _READ[1] for release in releases)
    return healthy and bool(releases) and known and all(each["complete"] for each in logs)


@of_nodes
def _incomplete(node: VerifiedNode) -> Iterator[str]:
    if node.part("evidence") and not node.part("evidence")["complete"]:
        yield "unknown: the journal has only a part of this start's messages"


def _disagree(cluster: Cluster) -> Iterator[Found]:
    """Compare ranks of the same pipeline stage on equal hardware."""
    for name in _COMPARED:
        groups: dict[tuple[str, ...], dict[str, list[str]]] = {}
        for node, process in _ranks(cluster, name):
            group = groups.setdefault((choices.stage(process), *node.kind), {})
            group[_named(node, process)] = process["found"][name]
        for group in groups.values():
            if any(choices.differ(one, other) for one, other in combinations(group.values(), 2)):
                yield "", f"{name}: " + "; ".join(f"{', '.join(values)} in {rank}" for rank, values in group.items())


@of_nodes
def _changed(node: VerifiedNode) -> Iterator[str]:
    recorded = node.part("evidence").get("recorded", [])
    for name in _COMPARED:
        old, new = choices.values(recorded, name), _values(node, name)
        if choices.differ(old, new):
            yield f"{name}: {', '.join(new)}, and {', '.join(old)} in the launch record"


def _planned(name: str, same: Callable[[str, str], bool]) -> Detect:
    """Return a check that finds each rank which logs another choice than the planned one, but not that."""

    def check(cluster: Cluster) -> Iterator[Found]:
        if wanted := _decisions(cluster).get(name, ""):
            for node, process in _ranks(cluster, name):
                used = process["found"][name]
                if not any(same(wanted, each) for each in used):
                    yield node.name, f"{process['process'] or 'a rank'} logs {', '.join(used)} instead of {wanted}"

    return check


def _same(wanted: str, used: str) -> bool:
    return wanted.upper() == used.upper()


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
    captured, skipped = MESSAGES["graphs"].pattern.strip("()").split("|")
    messages = _all(cluster, "graphs")
    missing = captured not in messages and (skipped in messages or _finished(cluster))
    if _decisions(cluster).get("graphs") and missing:
        yield "", f"the log reports {skipped!r}" if skipped in messages else "the log reports no CUDA graph"


def _kv_cache(cluster: Cluster) -> Iterator[Found]:
    if _decisions(cluster) and _finished(cluster) and not _all(cluster, "kv_cache"):
        yield "", "the log reports no size of the KV cache"


def _without(decision: str, value: str, words: str) -> Detect:
    """Return a check that finds a requested feature which the engine's configuration has turned off."""

    def check(cluster: Cluster) -> Iterator[Found]:
        if _decisions(cluster).get(decision) and _all(cluster, decision) == [value]:
            yield "", words

    return check


_RESTART = "run site.yml; if the finding stays, compare journalctl -u gb10-vllm with the output of playbooks/plan.yml"
_WORDS = f"vLLM, log messages of {choices.ALL}; vllm-project/vllm#53392 (GB10 without a tuned table)"
_REQUEST = "vLLM 0.33.0, utils/flashinfer.py (each rank asks a web server whether it may use FlashInfer with sinks)"
_NAMED = "name the backend in the arguments, so that no rank chooses at run time; then run site.yml"
_TESTED = "log lines of vLLM's source code, read in ten releases; a recorded log of the lab has no finding"
_runtime = partial(Check[Cluster], RUNNING, topic="runtime", source=_WORDS, tested=_TESTED)
_serving = partial(Check[Cluster], RUNNING, topic="serving", source=_WORDS, tested=_TESTED)

CHECKS = (
    _serving(
        "log-incomplete",
        WARNING,
        expected="the journal has all messages since the start of gb10-vllm",
        why="journald removed the oldest messages, so that missing ones prove nothing",
        fix="raise SystemMaxUse= in /etc/systemd/journald.conf, and restart the model when convenient",
        detect=_incomplete,
    ),
    _runtime(
        "log-ranks-differ",
        ERROR,
        expected="all ranks that log a choice make the same one",
        why=(
            "each rank chooses by itself, for FlashInfer's attention even by a web request; two kernels in one "
            "model may return wrong answers"
        ),
        fix=_NAMED,
        source=_REQUEST,
        detect=_disagree,
    ),
    _runtime(
        "log-choice-changed",
        WARNING,
        expected="the running start logs the choices of the first start with these launch inputs",
        why="another kernel computes other answers and another speed than those of the golden record",
        fix=_NAMED,
        source=_REQUEST,
        detect=_changed,
    ),
    _runtime(
        "log-attention-backend",
        ERROR,
        expected="each rank that logs an attention backend logs that of the command line",
        why="another backend may be slower, or wrong for the KV cache's type",
        fix=_RESTART,
        detect=_planned("attention", _same),
    ),
    _runtime(
        "log-moe-backend",
        ERROR,
        expected="each rank that logs a MoE backend logs that of the command line",
        why="some FP4 and FP8 kernels return fluent nonsense on a GB10, and the plan avoids them",
        fix=_RESTART,
        detect=_planned("moe_backend", _same_backend),
    ),
    _runtime(
        "log-sampler",
        ERROR,
        expected="no rank logs FlashInfer's sampler if VLLM_USE_FLASHINFER_SAMPLER is 0",
        why="FlashInfer compiles its sampler in the start, next to the loaded model",
        fix=_RESTART,
        detect=_planned("sampler", _same),
    ),
    _runtime(
        "log-autotune",
        ERROR,
        expected="FlashInfer's autotuning is off or on as in the command line",
        why="autotuning needs memory after the KV cache is allocated, and has taken hosts down",
        fix=_RESTART,
        source="NVIDIA/dgx-spark-playbooks#97, eugr/spark-vllm-docker#389 (out of memory); vllm-project/vllm#40887",
        detect=_planned("autotune", _same),
    ),
    _runtime(
        "log-kernel-disabled",
        ERROR,
        expected="the log names no kernel that VLLM_DISABLED_KERNELS or a patch turns off",
        why="the patch or the variable is not in effect, so that the ranks run kernels without code for this GPU",
        fix="run site.yml --tags vllm_patch,vllm_serve, which restarts the ranks",
        detect=_disabled,
    ),
    _runtime(
        "log-default-tables",
        WARNING,
        expected="vLLM found a tuned table for each of its Triton kernels",
        why="vLLM has no table for this GPU and these shapes; the default block sizes are slower",
        fix="keep moe_config in vllm_patch_patches, or tune a table with vLLM's benchmark_moe.py",
        detect=partial(_each, name="table", words="the log reports the default {}"),
    ),
    _runtime(
        "log-fallback",
        WARNING,
        expected="no warning about a replaced kernel",
        why="vLLM replaced a faster or more exact path, because this GPU or build does not support it",
        fix="compare the message with the rules, and choose a backend that the build supports",
        detect=_fallbacks,
    ),
    _runtime(
        "log-nccl-socket",
        ERROR,
        expected="NCCL uses IB between the nodes, if RDMA is planned; NCCL logs it only with NCCL_DEBUG=INFO",
        why="sockets have a fraction of the bandwidth, and a higher latency in every layer",
        fix="check NCCL_IB_HCA and /dev/infiniband, and run verify.yml --tags fabric",
        detect=_sockets,
    ),
    _serving(
        "log-graphs",
        WARNING,
        expected="the log reports captured CUDA graphs, unless the command line turns them off",
        why="without graphs, each token waits for the launch of every kernel",
        fix=_RESTART,
        detect=_graphs,
    ),
    _serving(
        "log-kv-cache",
        WARNING,
        expected="the log reports the size of the KV cache",
        why="the start did not allocate the KV cache",
        fix=_RESTART,
        detect=_kv_cache,
    ),
    _serving(
        "log-prefix-caching",
        WARNING,
        expected="prefix caching is on, if the command line requests it",
        why="vLLM turned it off for this model, so that each request reads its whole prompt",
        fix="remove --enable-prefix-caching, or use another model",
        detect=_without("prefix_caching", "False", "the engine's configuration has enable_prefix_caching=False"),
    ),
    _serving(
        "log-speculative",
        WARNING,
        expected="speculative decoding is on, if the command line requests it",
        why="without draft tokens, decoding is slower",
        fix=_RESTART,
        detect=_without("speculative", "None", "the engine's configuration has speculative_config=None"),
    ),
)
