# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The announcement of an update, and what stops it, from the states of all nodes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import State

_COLUMNS = 98
#: A space that textwrap keeps.
_KEPT = "\N{NO-BREAK SPACE}"
#: The name of a cluster without one, at a gateway.
_ONLY = "gb10"
_NEXT: Mapping[plan.Stage, str] = {
    "current": "nothing to do",
    "upgrade": "upgrade all packages, and boot",
    "boot": "go on: boot the new kernel once",
    "verify": "go on: verify the new kernel",
    "fell back": "the new kernel did not start",
}


def announced(
    units: Mapping[str, Mapping[str, State]],
    again: bool = False,
    gateways: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[str]:
    """Return the announcement: each node's state, its next step, its way back and what objects; the differences, and
    the models that are away.

    ``units``: cluster -> node -> state. ``again``: as for refused(). ``gateways``: host -> {problem, models} of the
    step gateway_info. A line is longer than 98 characters, which a playbook shows in 100 columns, only for one package.
    """
    lines = list[str]()
    for cluster, states in units.items():
        lines += [f"cluster {cluster}, {'then' if lines else 'first'}:"] if len(units) > 1 else []
        lines += _unit(states, again)
        if any(plan.stage(state, again) in ("upgrade", "boot") for state in states.values()):
            lines += [line for text in _away(cluster or _ONLY, states, gateways) for line in _wrapped(text, "")]
    return lines


def _away(cluster: str, nodes: Mapping[str, State], gateways: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the effects on the gateways' clients while a cluster is away."""
    for host, found in gateways.items():
        if host in nodes:
            yield f"the gateway of {host} and all of its models are away while {host} boots"
        if problem := found.get("problem") or found.get("msg"):
            yield f"the gateway of {host} does not report its models: {problem}"
        models = found.get("models", ())
        for name in (model["name"] for model in models if model["cluster"] == cluster):
            others = (each for each in models if each["name"] == name and each["cluster"] != cluster)
            serving = ", ".join(each["cluster"] for each in others if each["healthy"])
            yield f"{name} at the gateway of {host}: " + (
                f"from {serving} meanwhile" if serving else f"away until {cluster} serves again"
            )


def _unit(states: Mapping[str, State], again: bool) -> list[str]:
    lines = []
    for name, state in states.items():
        stage = plan.stage(state, again)
        objections = [each.found.removeprefix(f"{name}: ") for each in _node("", name, state, again)]
        # The lock is one of the objections to an upgrade.
        waiting = plan.waiting(replace(state, holder="") if stage == "upgrade" and not state.upgrading else state)
        shown = [*plan.about(state), *waiting, f"next: {_NEXT[stage]}"]
        if stage == "upgrade":
            why = plan.way_back(state)
            shown.append(f"way back: NONE: {why}" if why else f"way back: the kernel {state.former} stays the default")
        shown += [f"objects: {found}" for found in objections] or ["objects: nothing"] * (stage == "upgrade")
        lines += [f"{name}:", *(line for text in shown for line in _wrapped(text, "  "))]
    return [*lines, *(line for text in _differences(states) for line in _wrapped(text, ""))]


def _differences(states: Mapping[str, State]) -> Iterator[str]:
    """Yield the differences between the nodes: the release, and the packages now and after the pending upgrades."""
    levels = {name: state.level.stamp for name, state in states.items() if state.level.stamp}
    if len(set(levels.values())) > 1:
        yield "differs: DGX OS: " + ", ".join(f"{level} on {name}" for name, level in levels.items())
    present = plan.differ(states)
    yield from (f"differs: {text}" for text in present)
    if all(state.packages is not None for state in states.values()):
        later = plan.differ({name: plan.upgraded(state) for name, state in states.items()})
        yield from (f"would differ after the upgrade: {text}" for text in later if text not in present)


def _wrapped(text: str, indent: str) -> list[str]:
    """Return text as lines. A package and its versions stay together."""
    lines = textwrap.wrap(
        re.sub(r"(\S) -> (?=\S)", rf"\1{_KEPT}->{_KEPT}", re.sub(r"(\S+) (?=\S+ -> )", rf"\1{_KEPT}", text)),
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_KEPT, " ") for line in lines]


def refused(states: Mapping[str, State], without_way_back: bool, again: bool) -> list[Problem]:
    """Return why an update does not begin or go on, all reasons together.

    ``without_way_back``: whether the user accepts that there is none; ``again``: whether to boot a kernel that did not
    start once more.
    """
    found = [
        problem
        for index, (name, state) in enumerate(states.items())
        for problem in _node(f"nodes[{index}]", name, state, again)
    ]
    return found + ([] if without_way_back else list(_no_way_back(states, again)))


def _node(path: str, name: str, state: State, again: bool) -> Iterator[Problem]:
    stage = plan.stage(state, again)
    if stage == "fell back" and state.trial:
        yield Problem(
            path,
            f"{name} runs {state.running}, because {state.trial.tried} did not start",
            f"the kernel {state.trial.tried}",
            f"read `journalctl --boot=-1` on {name}; to try again, after an upgrade of all packages: -e "
            f"os_update_again=true; to keep {state.running}: remove the packages of {state.trial.tried}, and run again",
        )
    elif stage == "upgrade":
        yield from plan.problems(path, name, plan.objections(state))
    elif stage == "boot":
        yield from plan.problems(path, name, plan.next_boot(state))


def _no_way_back(states: Mapping[str, State], again: bool) -> Iterator[Problem]:
    for index, (name, state) in enumerate(states.items()):
        if plan.stage(state, again) == "upgrade" and (why := plan.way_back(state)):
            yield Problem(
                f"nodes[{index}]", f"{name}: {why}", "a way back", "accept it: -e os_update_without_way_back=true"
            )


def unequal(states: Mapping[str, State], again: bool) -> list[Problem]:
    """Return the packages of kernel and driver that differ in a unit after its upgrade, until all nodes booted."""
    stages = {plan.stage(state, again) for state in states.values()}
    later = {name: plan.upgraded(state) for name, state in states.items()}
    return [
        Problem(
            "nodes",
            text,
            "the same version on all nodes that serve one model",
            "compare the sources of apt of the nodes, install or remove the package by hand, and run again",
        )
        for text in (plan.differ(later) if stages & {"upgrade", "boot"} else ())
    ]


def unexpected(states: Mapping[str, State], expected: Collection[str], again: bool) -> list[Problem]:
    """Return the nodes under way that are not where a step of the update had to take them. ``expected``: stages."""
    stages = {name: plan.stage(state, again) for name, state in states.items()}
    return [
        Problem(
            f"nodes[{index}]",
            f"{name}: {_NEXT[stage]}",
            " or ".join(_NEXT[each] for each in plan.STAGES if each in expected),
            f"see `dpkg --audit`, `apt-get --simulate full-upgrade` and `uname -r` on {name}, and run again",
        )
        for index, (name, stage) in enumerate(stages.items())
        # Another problem is about the kernel that did not start.
        if states[name].trial and stage not in expected and stage != "fell back"
    ]
