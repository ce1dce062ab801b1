# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sections of the page about the verified cluster: findings, differences, and the state of each node."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Check, Finding
from ansible_collections.gb10.cluster.plugins.module_utils.health import status
from ansible_collections.gb10.cluster.plugins.module_utils.html_report import drawing
from ansible_collections.gb10.cluster.plugins.module_utils.html_report.html import Markup, join, table, tag, terms
from ansible_collections.gb10.cluster.plugins.module_utils.verify import differences
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import SEVERITIES, Cluster, VerifiedNode

#: The documentation on the web: `repository` of galaxy.yml.
REPOSITORY = "https://github.com/gb10-cluster/gb10.cluster"
#: Symbols show a severity without color.
SYMBOLS = {
    "error": "\N{MULTIPLICATION X}",
    "warning": "\N{WARNING SIGN}\N{VARIATION SELECTOR-15}",
    "": "\N{CHECK MARK}",
}
#: Most entries of a list, and rows of a table.
MOST = 300
#: Returns the value of an attribute of a node, "" if it is unknown.
Reader = Callable[[VerifiedNode], str]
_GIB = 1 << 30


def findings(found: Sequence[Finding]) -> Iterator[Markup]:
    """Yield the findings: errors, warnings, then the waived ones. All findings of a check are one article."""
    groups = {
        **{
            f"{name.capitalize()}s": [f for f in found if f.check.severity == name and not f.waived]
            for name in SEVERITIES
        },
        "Waived": [finding for finding in found if finding.waived],
    }
    for title, group in groups.items():
        if group:
            yield tag("h3", f"{title} ({len(group)})")
            for check, each in itertools.groupby(group, key=lambda finding: finding.check):
                yield _finding(check, list(each))
    if not found:
        yield tag("p", f"{SYMBOLS['']} No finding.", class_="good")


def _finding(check: Check[Any], found: Sequence[Finding]) -> Markup:
    waived = found[0].waived
    severity = "waived" if waived else check.severity
    entries = [tag("li", tag("b", each.place) if each.place else None, tag("bdi", each.found)) for each in found[:MOST]]
    if len(found) > MOST:
        entries.append(tag("li", f"and {len(found) - MOST} more"))
    return tag(
        "article",
        tag(
            "h4",
            tag("span", f"{SYMBOLS[check.severity]} {severity}", class_="badge"),
            tag("code", check.id),
            tag("small", tag("a", "documentation", href=f"{REPOSITORY}/blob/main/{check.page}")),
        ),
        tag("ul", *entries, class_="found"),
        terms(
            [
                ("Expected", check.expected),
                ("Cause or effect", check.why),
                ("Fix", check.fix),
                ("Waived because", waived),
            ]
        ),
        class_=f"finding {'' if waived else check.severity}".strip(),
        id=f"finding-{check.id}",
    )


def node_differences(rows: Sequence[differences.Row], known: Cluster, found: Sequence[Finding]) -> Markup:
    """Return the differences between nodes as a table, with links to the findings."""
    if not rows:
        alike = "No compared attribute differs between the nodes."
        return tag("p", alike if len(known.read) > 1 else "Nothing to compare: fewer than two nodes were read.")
    names = [node.name for node in known.read]
    ids = {finding.check.id for finding in found}
    body = [
        [
            row.attribute,
            *(row.values.get(name, "-") for name in names),
            tag("a", row.check, href=f"#finding-{row.check}") if row.check in ids else row.check,
        ]
        for row in rows[:MOST]
    ]
    caption = f"{len(rows)} attributes differ" + (f"; the first {MOST} are shown" if len(rows) > MOST else "")
    return table(caption, ["attribute", *names, "finding"], body)


def versions(known: Cluster) -> Markup:
    """Return versions and hardware as a table, one attribute per line and one node per column."""
    packages = sorted({name for node in known.read for name in node.part("packages")})
    rows = {**_VERSIONS, **{name: _package(name) for name in packages}}
    return compared("Hardware and software of each node", known, rows)


def state(known: Cluster) -> Markup:
    """Return the state at the time of the verification as a table."""
    return compared("State during the verification", known, _STATE)


def compared(caption: str, known: Cluster, rows: Mapping[str, Reader]) -> Markup:
    """Return a table. A value that all nodes have in common is one cell."""
    body: list[list[object]] = []
    for name, read in rows.items():
        values = [read(node) for node in known.read]
        if len(values) > 1 and len(set(values)) == 1 and values[0]:
            every = tag("span", " (all nodes)", class_="muted")
            body.append([name, tag("td", values[0], every, colspan=len(values))])
        elif any(values):
            body.append([name, *(value or "-" for value in values)])
    return table(caption, ["attribute", *(node.name for node in known.read)], body)


def _package(name: str) -> Reader:
    return lambda node: node.part("packages").get(name, "")


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


def unread(known: Cluster) -> Markup | None:
    """Return the nodes that could not be read, None without one."""
    found = [node for node in known.nodes if not node.facts]
    return terms((node.name, join(["not read: ", node.unreachable])) for node in found[:MOST]) if found else None


def _answer(api: Mapping[str, Any]) -> str:
    if api.get("answers"):
        return f"answers in {api['answered_after'] * 1000:.0f} ms"
    return "healthy, but it does not answer" if api.get("healthy") else "not ready"


def overview(known: Cluster, found: Sequence[Finding]) -> Iterator[Markup]:
    """Yield the served model and the findings of each node, as text for readers without the drawing."""
    api: Mapping[str, Any] = next((node.part("api") for node in known.read if node.head and node.part("api")), {})
    if api:
        endpoint = next((node.endpoint for node in known.read if node.head), "") or api["url"]
        watchdog = status.watchdog({node.name: node.part("watchdog") for node in known.read if node.part("watchdog")})
        yield terms(
            [
                ("Served model", api.get("model") or "no model"),
                ("API", join([tag("code", endpoint), f" ({_answer(api)})"])),
                ("Load", status.activity(api) if api.get("healthy") else ""),
                ("Watchdog", watchdog),
            ]
        )
    if len(known.nodes) > drawing.MOST:
        yield tag("p", f"The drawing has the first {drawing.MOST} of {len(known.nodes)} nodes.")
    rows = [_overview(node, found) for node in known.nodes[:MOST]]
    yield table("Nodes", ["node", "role", "findings", "addresses"], rows)


def _overview(node: VerifiedNode, found: Sequence[Finding]) -> list[str]:
    own = drawing.counted([each for each in found if each.place == node.name and not each.waived])
    addresses = sorted(each for each in node.addresses if not each.startswith("127."))
    return [
        node.name,
        "head" if node.head else "worker",
        own or ("ok" if node.facts else "not read"),
        ", ".join(addresses) or "-",
    ]
