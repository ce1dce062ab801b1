# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of the page about the verified cluster: nodes, differences, GPU code, log, versions, and state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Finding
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import drawing
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.view import ENTRIES, SYMBOLS, Cell, Table
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, gpu_probe
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.fat_binary import WAYS
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences, evidence, kernels
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import Cluster, VerifiedNode

#: Returns the value of an attribute of a node, "" if it is unknown.
Reader = Callable[[VerifiedNode], str]
_GIB = 1 << 30
_WAYS = ("native", "same major", "PTX", "none")
#: The words for each message of the log.
MESSAGES: Mapping[str, str] = {
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


def nodes(known: Cluster, found: Sequence[Finding]) -> Table:
    """Return the findings of each node, as text for readers without the drawing."""
    rows = []
    for node in known.nodes[:ENTRIES]:
        own = drawing.counted([each for each in found if each.place == node.name and not each.waived])
        addresses = sorted(each for each in node.addresses if not each.startswith("127."))
        state = own or ("ok" if node.facts else "not read")
        rows.append([node.name, "head" if node.head else "worker", state, ", ".join(addresses) or "-"])
    return Table("Nodes", ["node", "role", "findings", "addresses"], rows)


def node_differences(rows: Sequence[differences.Row], known: Cluster, found: Sequence[Finding]) -> Table:
    """Return the differences between nodes, with links to the findings."""
    names = [node.name for node in known.read]
    ids = {finding.check.id for finding in found}
    body = [
        [
            row.attribute,
            *(row.values.get(name, "-") for name in names),
            Cell(row.check, href=f"#finding-{row.check}" if row.check in ids else ""),
        ]
        for row in rows[:ENTRIES]
    ]
    caption = f"{len(rows)} attributes differ" + (f"; the first {ENTRIES} are shown" if len(rows) > ENTRIES else "")
    return Table(caption, ["attribute", *names, "finding"], body)


def compared(caption: str, known: Cluster, rows: Mapping[str, Reader]) -> Table:
    """Return a table with one attribute per line. A value that all nodes have in common is one cell."""
    body: list[list[object]] = []
    for name, read in rows.items():
        values = [read(node) for node in known.read]
        if len(values) > 1 and len(set(values)) == 1 and values[0]:
            body.append([name, Cell(values[0], note=" (all nodes)", span=len(values))])
        elif any(values):
            body.append([name, *(value or "-" for value in values)])
    return Table(caption, ["attribute", *(node.name for node in known.read)], body)


def versions(known: Cluster) -> Table:
    """Return versions and hardware."""
    packages = sorted({name for node in known.read for name in node.part("packages")})
    rows: dict[str, Reader] = {name: partial(_package, name) for name in packages}
    return compared("Hardware and software of each node", known, {**_VERSIONS, **rows})


def state(known: Cluster) -> Table:
    """Return the state at the time of the verification."""
    return compared("State during the verification", known, _STATE)


def gpu_code(known: Cluster) -> list[Table]:
    """Return the programs with code for the GPU in each extension."""
    return [
        Table(
            f"{', '.join(document['nodes'])} ({document['capability']})",
            ["extension", *_WAYS],
            [_coverage(name, counts) for name, counts in list(document["extensions"].items())[:ENTRIES]],
            "figures names",
        )
        for document in kernels.documents(known)
        if document["kind"] == "kernels"
    ]


def _coverage(name: str, counts: coverage.Coverage) -> list[object]:
    # The check kernel-missing knows which extensions are needed.
    return [Cell(name, note="" if coverage.runs(counts) else " (no code)"), *(counts[way] for way in WAYS)]


def probes(known: Cluster) -> Table | None:
    """Return the results of the GPU probe, None without one."""
    probed = {node.name: {each["name"]: each for each in node.probe} for node in known.read if node.probe}
    checks = gpu_probe.CHECKS.items()
    body = [[words, *(_result(each.get(name)) for each in probed.values())] for name, words in checks]
    caption = "Small kernels on each GPU, compared with the CPU"
    return Table(caption, ["kernel", *probed], body) if probed else None


def _result(found: Mapping[str, object] | None) -> Cell:
    """Return the state of a kernel on a GPU, with the reason if it did not pass."""
    if found is None:
        return Cell("-")
    if found["state"] == gpu_probe.PASSED:
        return Cell(f"{SYMBOLS['']} passed", "good")
    failed = found["state"] == gpu_probe.FAILED
    words = gpu_probe.described(found).partition(": ")[2]
    return Cell(f"{SYMBOLS['error'] if failed else '-'} {words}", "error" if failed else "")


def logs(known: Cluster, found: Sequence[Finding], groups: Sequence[str]) -> list[Table]:
    """Return the checks of vLLM's log with their findings, and what the log of the running start names."""
    read = [node for node in known.read if node.part("evidence")]
    if not read:
        return []
    ids = {finding.check.id for finding in found}
    without = [node.name for node in read if not node.part("evidence")["complete"]]
    body = [[check.expected, _logged(check.id, ids, without)] for check in evidence.CHECKS if check.topic in groups]
    checks = [Table("Checks of the log", ["expected", "result"], body, "sentences")] if body else []
    messages: dict[str, Reader] = {words: partial(_values, name) for name, words in MESSAGES.items()}
    messages["all messages read"] = _complete
    return [*checks, compared("Messages of the running start", Cluster(read), messages)]


def _logged(check: str, ids: Collection[str], without: Sequence[str]) -> Cell:
    """Return a link to the finding of a check, or whether it passed. ``without``: nodes with a part of the log."""
    if check in ids:
        return Cell(check, href=f"#finding-{check}")
    if without:
        return Cell(f"not checked: not all messages of {', '.join(without[:ENTRIES])}", "muted")
    return Cell(f"{SYMBOLS['']} passed", "good")


def _values(name: str, node: VerifiedNode) -> str:
    return ", ".join(choices.values(evidence.processes(node), name))


def _complete(node: VerifiedNode) -> str:
    return "yes" if node.part("evidence")["complete"] else "no"


def _package(name: str, node: VerifiedNode) -> str:
    return str(node.part("packages").get(name, ""))


def _gpu(node: VerifiedNode) -> str:
    found = [f"{gpu.get('name')} ({gpu.get('capability')})" for gpu in node.part("gpu").get("gpus") or ()]
    return ", ".join(found)


def _firmware(node: VerifiedNode) -> str:
    return ", ".join(sorted(set(node.part("firmware").values())))


def _nccl(node: VerifiedNode) -> str:
    return str(node.part("nccl_installed").get("version") or "")


def _images(node: VerifiedNode) -> str:
    return ", ".join(
        f"{each['image']} ({each['id'].removeprefix('sha256:')[:12]})" for each in node.facts.get("images") or ()
    )


def _patched(node: VerifiedNode) -> str:
    return str(len(node.part("files")["patched"])) if node.part("files") else ""


def _figure(value: object, unit: str) -> str:
    return f"{value:g} {unit}" if isinstance(value, int | float) else ""


def _memory(node: VerifiedNode) -> str:
    free, total = node.facts.get("available"), node.facts.get("total")
    return f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB" if free and total else ""


def _disks(node: VerifiedNode) -> str:
    disks = node.facts.get("disks") or ()
    return ", ".join(f"{disk['path']} {disk['free'] / _GIB:.0f} of {disk['total'] / _GIB:.0f} GiB" for disk in disks)


def _ranks(node: VerifiedNode) -> str:
    return ", ".join(f"{rank['name']} ({rank['bytes'] / _GIB:.1f} GiB)" for rank in node.facts.get("ranks") or ())


def _services(node: VerifiedNode) -> str:
    services = node.facts.get("services") or ()
    return ", ".join(f"{each['unit']} {each['active']}" for each in services if each["load"] != "not-found")


_VERSIONS: Mapping[str, Reader] = {
    "product": lambda node: str(node.facts.get("product") or ""),
    "GPU": _gpu,
    "driver": lambda node: node.part("gpu").get("driver_version") or "",
    "kernel": lambda node: node.facts.get("kernel") or "",
    "kernel of the next boot": lambda node: node.part("boot").get("kernel") or "",
    "BIOS": lambda node: node.facts.get("bios") or "",
    "firmware of the network adapter": _firmware,
    "NCCL for the next start": _nccl,
    "NCCL of the ranks": differences.nccl,
    "containers": _images,
    "patched files of vLLM": _patched,
}
_STATE: Mapping[str, Reader] = {
    "role": lambda node: "head" if node.head else "worker",
    "services": _services,
    "ranks": _ranks,
    "available memory": _memory,
    "free space": _disks,
    "GPU clock": lambda node: _figure(node.part("gpu_state").get("clock_mhz"), "MHz"),
    "GPU utilization": lambda node: _figure(node.part("gpu_state").get("utilization"), "%"),
    "GPU power": lambda node: _figure(node.part("gpu_state").get("power_w"), "W"),
    "GPU temperature": lambda node: _figure(node.part("gpu_state").get("temperature_c"), "\N{DEGREE SIGN}C"),
    "highest temperature of the host": lambda node: _figure(node.facts.get("temperature_c"), "\N{DEGREE SIGN}C"),
    "firewall": lambda node: ", ".join(node.facts.get("firewalls") or ()) or "none",
}
