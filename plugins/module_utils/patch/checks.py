# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the results of vllm_patch across all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem


def check(results: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Return the problems in the nodes' results of vllm_patch (by node name): impossible patches and differences.

    Nodes with the same GPU must have the same release and the same files, because ranks of one model that compute
    differently return inexplicable answers. A skipped node, such as a fresh one in check mode, has no result.
    """
    results = {name: result for name, result in results.items() if "patches" in result}
    problems = [
        Problem(
            f"{name}.{patch['name']}",
            patch["reason"],
            "vLLM code that the patch supports",
            f"remove {patch['name']} from vllm_patch_patches, or resolve the reported cause",
        )
        for name, result in results.items()
        for patch in result["patches"]
        if patch["status"] == "unsupported"
    ]
    first: dict[str, str] = {}
    for name, result in results.items():
        other = first.setdefault(result["capability"], name)
        problems += _differences(name, result, other, results[other])
    return problems


def _differences(name: str, result: Mapping[str, Any], other: str, reference: Mapping[str, Any]) -> list[Problem]:
    """Compare a node with the first node that has the same GPU."""
    fix = f"rerun with --tags vllm_runtime,vllm_patch; if that does not help, remove {result['package_dir']} and rerun"
    if result["vllm_version"] != reference["vllm_version"]:
        found = f"vLLM {result['vllm_version']} on {name}, and {reference['vllm_version']} on {other}"
        return [Problem(f"{name}.vllm_version", found, "one release on all nodes", fix)]
    problems = [
        Problem(
            f"{name}.{what}",
            f"{result[what]} on {name}, and {reference[what]} on {other}",
            "the same on all nodes with this GPU",
            fix,
        )
        for what in ("flags", "environment")
        if result[what] != reference[what]
    ]
    return problems + [
        Problem(f"{name}.{path}", f"it would differ from the file on {other}", "the same file on all nodes", fix)
        for path, digest in sorted(result["files"].items())
        if digest != reference["files"].get(path, digest)
    ]
