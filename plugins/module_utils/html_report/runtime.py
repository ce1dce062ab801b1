# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sections of the page about the running software: GPU code, the GPU probe, and evidence from vLLM's log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Finding
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.html import Markup, join, table, tag
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.sections import MOST, SYMBOLS, Reader, compared
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.fat_binary import WAYS
from ansible_collections.gb10.cluster.plugins.module_utils.verify import evidence, kernels
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import Cluster, VerifiedNode

_WAYS = ("native", "same major", "PTX", "none")
_MESSAGES: Mapping[str, str] = {
    "release": "vLLM",
    "device": "device",
    "speculative": "speculative decoding",
    "prefix_caching": "prefix caching",
    "attention": "attention backend",
    "moe_backend": "MoE backend",
    "kernel": "kernels of linear layers",
    "table": "without a tuned table",
    "sampler": "sampler",
    "autotune": "FlashInfer's autotuning",
    "nccl": "NCCL",
    "network": "network of NCCL",
    "graphs": "CUDA graphs",
    "kv_cache": "KV cache",
    "kv_gib": "GiB for the KV cache",
    "weights_seconds": "seconds to read the weights",
    "model_seconds": "seconds to load the model",
    "compile_seconds": "seconds of torch.compile",
    "graph_seconds": "seconds to capture graphs",
    "patch": "patches",
    "weight_only": "weights computed in 16 bits",
    "fallback": "replaced",
}


def gpu_code(known: Cluster) -> Iterator[Markup]:
    """Yield the programs with code for the GPU in each extension, and the results of the GPU probe."""
    counted = [document for document in kernels.documents(known) if document["kind"] == "kernels"]
    if counted:
        yield tag("p", "The programs of each extension, counted by the code that the node's GPU would run.")
    for document in counted:
        rows = [_coverage(name, counts) for name, counts in list(document["extensions"].items())[:MOST]]
        caption = f"{', '.join(document['nodes'])} ({document['capability']})"
        yield tag("div", table(caption, ["extension", *_WAYS], rows), class_="figures names")
    probes = {node.name: {each["name"]: each for each in node.probe} for node in known.read if node.probe}
    if probes:
        checks = gpu_probe.CHECKS.items()
        body = [[words, *(_result(each.get(name)) for each in probes.values())] for name, words in checks]
        yield table("Small kernels on each GPU, compared with the CPU", ["kernel", *probes], body)


def _coverage(name: str, counts: coverage.Coverage) -> list[object]:
    # The check kernel-missing knows which extensions are needed.
    without = None if coverage.runs(counts) else tag("span", " (no code)", class_="muted")
    return [join([name, without]), *(counts[way] for way in WAYS)]


def _result(found: Mapping[str, object] | None) -> object:
    """Return the state of a kernel on a GPU, with the reason if it did not pass."""
    if found is None:
        return "-"
    if found["state"] == gpu_probe.PASSED:
        return tag("span", f"{SYMBOLS['']} passed", class_="good")
    failed = found["state"] == gpu_probe.FAILED
    words = gpu_probe.described(found).partition(": ")[2]
    return tag("span", f"{SYMBOLS['error'] if failed else '-'} {words}", class_="error" if failed else None)


def logs(known: Cluster, found: Sequence[Finding], groups: Sequence[str]) -> Iterator[Markup]:
    """Yield the checks of vLLM's log with their findings, and what the log of the running start names."""
    if not any(node.part("evidence") for node in known.read):
        return
    ids = {finding.check.id for finding in found}
    without = [node.name for node in known.read if node.part("evidence") and not node.part("evidence")["complete"]]
    body = [[check.expected, _found(check.id, ids, without)] for check in evidence.CHECKS if check.topic in groups]
    if body:
        yield tag("div", table("Checks of the log", ["expected", "result"], body), class_="sentences")
    yield compared(
        "Messages of the running start",
        Cluster([node for node in known.read if node.part("evidence")]),
        {words: _values(name) for name, words in _MESSAGES.items()} | {"all messages read": _complete},
    )


def _found(check: str, ids: Collection[str], without: Sequence[str]) -> Markup:
    """Return a link to the finding of a check, or whether it passed. ``without``: nodes with a part of the log."""
    if check in ids:
        return tag("a", check, href=f"#finding-{check}")
    if without:
        return tag("span", f"not checked: not all messages of {', '.join(without[:MOST])}", class_="muted")
    return tag("span", f"{SYMBOLS['']} passed", class_="good")


def _values(name: str) -> Reader:
    return lambda node: ", ".join(choices.values(evidence.processes(node), name))


def _complete(node: VerifiedNode) -> str:
    return "yes" if node.part("evidence")["complete"] else "no"
