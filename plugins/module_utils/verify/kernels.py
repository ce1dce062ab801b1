# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of GPU kernels: code for each node's GPU in the runtime's extensions, and the results of the GPU probe."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, RUNNING, Check, Found
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import PROBED
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.verify import command_line
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import RECORDED, Cluster

_ENVIRONMENT = re.compile(r"(/(?!proc/).+)/lib/python3[^/]*/site-packages")
#: The containers of this collection's ranks.
_CONTAINERS = ("gb10-vllm", "gb10-ray")


def chosen(unit: str, release: str) -> dict[str, str]:
    """Return the values of coverage.NEEDS's options in the text of vLLM's unit, {} for an unknown release.

    Other values of the command line are left out. Raises ValueError for a line with open quotes.
    """
    line = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    words = shlex.split(line[1].replace("%%", "%").replace("$$", "$")) if line else []
    given = command_line.view(words, release)
    if given is None:
        return {}
    options = {need.option for need in coverage.NEEDS} - {""}
    values = {option: command_line.word(command_line.backend(given, option)) for option in options}
    return {option: value for option, value in values.items() if value}


def probe(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return vllm_gpu_probe's option for a node's runtime: {python}, {container}, or {} if neither is known.

    In a cluster of another tool, the program runs in the container of its ranks if there is only one container.
    """
    if environment := _ENVIRONMENT.fullmatch(facts.get("runtime") or ""):
        return {"python": f"{environment[1]}/bin/python"}
    containers = facts.get("images") or []
    own = [each for each in containers if each["name"] in _CONTAINERS] or (containers if len(containers) == 1 else [])
    return {"container": [own[0]["engine"], "exec", own[0]["name"], "python3"]} if own else {}


def lines(cluster: Cluster) -> list[str]:
    """Return the counts of GPU code once for equal nodes, and the results of the GPU probe of each node, as text."""
    found = []
    for document in documents(cluster):
        if document["kind"] == "probe":
            states = [f"{each['name']} {each['state']}" for each in document["results"]]
            found.append(f"GPU probe on {document['node']}: {', '.join(states)}")
        else:
            found.append(f"programs with GPU code for {document['capability']} on {', '.join(document['nodes'])}:")
            extensions = document["extensions"].items()
            found += [f"  {name}: {coverage.described(counts)}" for name, counts in extensions]
    return found


def documents(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the same as plain data: {kind: kernels, nodes, capability, extensions}, {kind: probe, node, results}."""
    groups: dict[str, dict[str, Any]] = {}
    for node in cluster.read:
        if (known := node.part("kernels")) and known["extensions"]:
            same = {"kind": "kernels", "capability": known["capability"], "extensions": known["extensions"]}
            group = groups.setdefault(json.dumps(same, sort_keys=True), {**same, "nodes": []})
            group["nodes"].append(node.name)
    probes = [{"kind": "probe", "node": node.name, "results": list(node.probe)} for node in cluster.read if node.probe]
    return [*groups.values(), *probes]


def _missing(cluster: Cluster) -> Iterator[Found]:
    parts = [(node.name, node.part("kernels")) for node in cluster.read if node.part("kernels")]
    # With Ray, only the head has vLLM's unit.
    planned: dict[str, str] = next((known["chosen"] for _name, known in parts if known["chosen"]), {})
    for name, known in parts:
        yield from ((name, gap) for gap in coverage.gaps(known["extensions"], known["capability"], planned))


def _failed(cluster: Cluster) -> Iterator[Found]:
    heads = [node.part("evidence") for node in cluster.read if node.head]
    disabled = {kernel for head in heads if head for kernel in head["planned"].get("disabled", ())}
    # vllm_patch turns off the kernels of vLLM that fail after the installation.
    unused = [check for check, kernels in PROBED.items() if disabled.issuperset(kernels)]
    for node in cluster.read:
        # checks_hardware reports a stuck clock.
        used = [each for each in node.probe if each["name"] not in unused and each["cause"] != gpu_probe.STUCK]
        yield from ((node.name, problem.found) for problem in gpu_probe.problems(used))


_runtime = partial(Check[Cluster], RUNNING, topic="runtime", tested=RECORDED)

CHECKS = (
    _runtime(
        "kernel-missing",
        ERROR,
        expected="each extension that vLLM or the planned backend needs has code for the node's GPU",
        why="the start fails with no kernel image after the model is loaded, up to 13 minutes later",
        fix="choose another backend, or install a build with code for the GPU; "
        "docs/troubleshooting.md#kernel-image-missing",
        source="; ".join(dict.fromkeys(need.source for need in coverage.NEEDS)),
        detect=_missing,
        tested="unit tests; the counts on the wheels of three locks for aarch64 (tests/locks)",
    ),
    _runtime(
        "gpu-probe-failed",
        ERROR,
        expected="kernels of PyTorch and vLLM that are not turned off return the CPU's results",
        why="vLLM fails, or returns fluent but wrong text",
        fix="no code for this GPU: install a build with it, docs/troubleshooting.md#kernel-image-missing; "
        "wrong result: use another backend or build, and compare the golden answers",
        source="vLLM 0.18.1, 0.24.0 and 0.33.0, _custom_ops.py; vllm-project/vllm#43367",
        detect=_failed,
        tested="unit tests; the program on an NVIDIA H200, as shipped and with wrong kernels (tests/gpu)",
    ),
)
