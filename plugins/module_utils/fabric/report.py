# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a failed change of the fabric, one for all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def lines(unverified: Sequence[Mapping[str, Any]], node: str = "") -> list[str]:
    """Return a line for each path that fabric_probe could not verify."""
    return [
        f"  {f'{node} ' if node else ''}{path['interface']} -> {path['peer']} ({path['address']}): {path['reported']}"
        for path in unverified
    ]


def outcome(node: str, changes: Sequence[Mapping[str, Any]], probe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's outcome for report(). Of its results of netplan_apply at most one is of a task that ran."""
    first = {key: next((each[key] for each in changes if each.get(key)), "") for key in ("problem", "pending")}
    return {"node": node, **first, "unverified": list(probe.get("unverified", ()))}


def report(outcomes: Sequence[Mapping[str, Any]], mtu: int) -> str:
    """Return the problems of all nodes, with the node or the kind of fault that explains them; "" if there are none.

    An outcome is {node, problem, unverified, pending}: netplan_apply's `problem` and `pending`, and fabric_probe's
    `unverified`.
    """
    problems = [f"  {outcome['node']}: {outcome['problem']}." for outcome in outcomes if outcome["problem"]]
    paths = [(outcome["node"], path) for outcome in outcomes for path in outcome["unverified"]]
    if not problems and not paths:
        return ""
    reported = ["The fabric is not as planned.", *problems]
    for outcome in outcomes:
        reported += lines(outcome["unverified"], outcome["node"])
    if paths:
        reported.append(_diagnosis(paths, [outcome["node"] for outcome in outcomes], mtu))
    restored = [outcome["node"] for outcome in outcomes if outcome["pending"]]
    if restored:
        reported.append(f"The configuration from before this run is restored on {', '.join(restored)}.")
    return "\n".join(reported)


def _diagnosis(paths: Sequence[tuple[str, Mapping[str, Any]]], nodes: Sequence[str], mtu: int) -> str:
    """Return the checks to do, and the node that is on one end of every failing path if other paths work."""
    common = [name for name in nodes if all(name in (node, path["peer"]) for node, path in paths)]
    one = len(common) == 1
    where = f"Every failing path ends at {common[0]}" if one else "Each end may be at fault"
    if all(path["small"] for _node, path in paths):
        fix = "Check the MTU of its interfaces and of the switch's ports, or set gb10_fabric_mtu."
        return f"{where}: a device carries less than {mtu} bytes. {fix}"
    return f"{where}: check the cable, the port (gb10_fabric_ports), and that the other end is up."
