# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which models fit on the cluster: one plan for each model of the catalog and of gb10_models, and their table."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import model as cluster_model
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster_plan
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.model import Chosen
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.runtime import runtime_of
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import Inputs, ModelFiles, Node
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.model import weights as model_weights
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

#: The columns of a terminal that a row has, without the indent of a playbook.
_COLUMNS = 78
_GAP = "  "
#: Most rows below which the titles are still on a screen of 24 rows.
_SHORT = 20
_UNPLANNED = "memory is not planned: "
#: Problems whose finding alone is a reason.
_PLAIN = ("gb10_model", "gb10_stack")
_HEAD = ("model", "GB ", "context", "bound", "best")
#: Columns of a row with a reason in place of the others.
_START = 2
_LEGEND = (
    "GB: the weights; ~ is an estimate, * needs a Hugging Face token, + an image.",
    "context: tokens of one request. bound: tokens/s at most for one request, from",
    "the memory's bandwidth, without a draft. best: published tokens/s for one",
    "request, also with a draft; docs/models.md has the sources.",
)
_SERVE = (
    "details: playbooks/plan.yml -e gb10_model=NAME; to serve one: gb10_model in",
    "the inventory, or playbooks/switch_model.yml -e gb10_model=NAME",
)


@dataclass(frozen=True)
class Row:
    """One model on the cluster. ``weights_bytes``: 0 if unknown; ``estimated``: from the model's dimensions.

    ``fits``: None if the memory is not planned. ``reason``: why the model does not fit or is not planned, else "".
    ``runtime``: native or container. ``best``: the highest published speed, "" if unknown. ``context`` and
    ``tokens_per_second`` are 0 if unknown.
    """

    name: str
    weights_bytes: int
    estimated: bool
    gated: bool
    fits: bool | None
    reason: str
    runtime: str = stacks.NATIVE
    best: str = ""
    context: int = 0
    tokens_per_second: float = 0.0


def survey(inputs: Inputs, known_variables: Mapping[str, Sequence[str]]) -> tuple[list[Row], list[Problem]]:
    """Plan the cluster once for each model, with all other settings unchanged and without a recipe.

    Returns the rows: fitting models first, the catalog's older models after the others, then the largest first.
    Problems of every plan are not about a model; with one, no rows are returned. ``known_variables`` are those of
    cluster/plan.plan().
    """
    if not inputs.nodes:
        return [], cluster_plan.plan(inputs, known_variables)[1]
    own = inputs.head.settings.models
    models = list(catalog.known({} if catalog.check(own) else own).values())
    given = [_with(inputs, model) for model in models]
    plans = [cluster_plan.plan(each, known_variables) for each in given]
    if common := [problem for problem in plans[0][1] if all(problem in problems for _plan, problems in plans)]:
        return [], common
    rows = [_row(model, each, *planned) for model, each, planned in zip(models, given, plans, strict=True)]
    older = catalog.older()
    return sorted(rows, key=lambda row: _place(row, row.name in older)), []


def _place(row: Row, older: bool) -> tuple[object, ...]:
    return not row.fits, row.fits is False, older, -row.weights_bytes, row.name


def _with(inputs: Inputs, model: Model) -> Inputs:
    """Return the inputs with another model.

    Facts of model_store_source belong to the inventory's model, and so do recorded facts without a folder.
    """
    return replace(inputs, nodes=tuple(_node(node, model) for node in inputs.nodes), recipe=None)


def _node(node: Node, model: Model) -> Node:
    facts = node.facts
    if facts and facts.model.path in (None, node.store_source):
        facts = replace(facts, model=ModelFiles(None, None))
    return replace(node, settings=replace(node.settings, model=model.name, recipe=""), store_source="", facts=facts)


def _row(model: Model, inputs: Inputs, plan: Plan | None, problems: Sequence[Problem]) -> Row:
    chosen = cluster_model.choose_model(inputs)
    row = Row(
        model.name,
        chosen.weights_bytes or _estimate(chosen),
        not chosen.weights_bytes,
        model.gated,
        fits=None,
        reason="",
        runtime=runtime_of(cluster_model.with_image(inputs)).stack.runtime,
        best=_best(chosen.entry, len(inputs.nodes)),
    )
    if not plan:
        return replace(row, fits=False, reason=_reason(problems[0]))
    expected = plan.serve.expected
    if not expected.context:
        unplanned = (line.removeprefix(_UNPLANNED) for line in plan.serve.why if line.startswith(_UNPLANNED))
        stack = plan.stack
        without = "no node has a GB10; -e gb10_plan_offline=typical assumes typical Sparks"
        if stack.device != stacks.CUDA:
            without = f"this stack ({stack.name}) has no memory plan; set gb10_stack: current"
        return replace(row, reason=next(unplanned, without))
    return replace(
        row,
        fits=True,
        context=expected.context,
        tokens_per_second=expected.tokens_per_second,
    )


def _best(model: Model, count: int) -> str:
    """Return the highest published speed on these nodes, else on another number of Sparks, which it names."""
    if not model.published:
        return ""
    found = str(count) if str(count) in model.published else max(model.published, key=int)
    return f"{max(model.published[found]):g}{'' if found == str(count) else f' on {found}'}"


def _estimate(chosen: Chosen) -> int:
    """Return the weights in bytes by the model's dimensions, 0 if its config.json is unknown or not supported."""
    shape = chosen.config.shape
    return model_weights.checkpoint(shape) if shape and shape.stored.known else 0


def _reason(problem: Problem) -> str:
    """Return a problem as a short reason, without the part of each node and without the fix."""
    if problem.path in _PLAIN:
        return problem.found.partition(": ")[0]
    return f"{problem.path}: {problem.found}, expected {problem.expected}"


def lines(rows: Sequence[Row], nodes: int, label: str) -> list[str]:
    """Return the table as text. A reason takes the place of the numbers. ``label``: of the nodes' facts, "" without
    one.

    The end stays on a screen, so it is the answer, and a long table has its titles there too.
    """
    reasons = [row.reason for row in rows if row.fits is None]
    common = max(reasons, key=reasons.count) if len(reasons) == len(rows) else ""
    cells = [_cells(row, common) for row in rows]
    widths = [
        max(map(len, column))
        for column in zip(_HEAD, *(each for each in cells if len(each) == len(_HEAD)), strict=True)
    ]
    widths[:_START] = [
        max(map(len, column)) for column in zip(_HEAD[:_START], *(each[:_START] for each in cells), strict=True)
    ]
    title = _title(rows, nodes, len(reasons), common)
    head = _line(_HEAD, widths)
    foot = [head, *_SERVE] if len(rows) > _SHORT else [*_SERVE]
    return [*_LEGEND, head, *(_line(each, widths) for each in cells), *foot, f"{title} ({label})" if label else title]


def _title(rows: Sequence[Row], nodes: int, unjudged: int, common: str) -> str:
    judged = len(rows) - unjudged
    title = (
        f"{sum(row.fits is True for row in rows)} of {judged} models fit on {nodes} {'node' if nodes == 1 else 'nodes'}"
    )
    if not unjudged:
        return title
    return f"{title}, {unjudged} not judged" if judged else f"{unjudged} not judged: {common}"


def _cells(row: Row, common: str) -> tuple[str, ...]:
    """Return the cells of a row. ``common``: the reason in the title."""
    size = f"{'~' if row.estimated else ''}{row.weights_bytes / 1e9:.1f}" if row.weights_bytes else "?"
    start = (row.name, f"{size}{'*' if row.gated else '+' if row.runtime == stacks.CONTAINER else ' '}")
    if not row.fits:
        reason = "" if row.reason == common else f": {row.reason}"
        best = f", best {row.best}" if row.fits is None and row.best else ""
        return (*start, f"{'not judged' if row.fits is None else 'does not fit'}{best}{reason}")
    speed = f"{row.tokens_per_second:.1f}" if row.tokens_per_second else "-"
    context = f"{row.context // 1024}K" if row.context % 1024 == 0 else str(row.context)
    return (*start, context, speed, row.best or "-")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row of the table: names, speeds and reasons left-aligned, numbers right-aligned."""
    *numbers, last = cells
    padded = [cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)]
    start = _GAP.join([numbers[0].ljust(widths[0]), *padded[1:], ""])
    if len(cells) == len(widths):
        return start + last
    return start + textwrap.shorten(last, _COLUMNS - len(start), placeholder=" …").removesuffix(": …")
