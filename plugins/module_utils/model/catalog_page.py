# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the entries of docs/models.md from the catalog. The text above them is written by hand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model, known, older, quantization_method

_TITLES = ("name", "on Hugging Face Hub", "GB", "weights", "context", "Sparks", "gated", "vLLM")
_OLDER = """
## Older models

These language models of 2024 are no longer published for Sparks. They are served as before; `playbooks/plan.yml`
shows the arguments of each.
"""


def page(before: str) -> str:
    """Return the page. Older models have no section.

    ``before``: the page with other entries. Its order stays, and a new entry comes last.
    """
    last = older()
    places = {name: place for place, name in enumerate(re.findall(r"^\| `(.+?)` \|", before, re.MULTILINE))}
    models = [model for model in known().values() if model.name not in last]
    models.sort(key=lambda model: places.get(model.name, len(places)))
    sections = [line for model in models for line in _section(model)]
    former = [model for model in known().values() if model.name in last]
    text = before.partition(f"\n{_row(_TITLES)}")[0]
    return "\n".join([text, *_table(models), *sections, _OLDER, *_table(former)]) + "\n"


def _table(models: Iterable[Model]) -> list[str]:
    return [_row(_TITLES), "|---|---|--:|---|--:|--:|---|---|", *(_row(_cells(model)) for model in models)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(model: Model) -> list[str]:
    size = f"{model.weights_bytes / 1e9:.1f}" if model.weights_bytes else "?"
    kind = (
        quantization_method(model)
        or str(_text(model.config).get("dtype") or _text(model.config).get("torch_dtype", ""))
    ).replace("_", " ")
    context = str(_text(model.config).get("max_position_embeddings", "?"))
    since = f"from {model.requires['since']}" if "since" in model.requires else "its image" if model.image else "any"
    return [
        f"`{model.name}`",
        f"`{model.hub}`",
        size,
        kind,
        context,
        str(model.nodes),
        "yes" if model.gated else "no",
        since,
    ]


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part, merged over the outer keys."""
    inner = next(
        (config[key] for key in ("text_config", "thinker_config") if isinstance(config.get(key), Mapping)), None
    )
    return {**config, **_text(inner)} if inner is not None else config


def _section(model: Model) -> list[str]:
    lines = ["", f"## {model.name}", "", f"Confidence: {model.sure}. Source: {model.source} ({model.evidence})."]
    lines += ["", f"    {shlex.join(model.args)}"] * bool(model.args)
    lines += ["", f"In `{model.image}`."] * bool(model.image)
    for each in model.files:
        lines += ["", f"With [{each.name}]({each.url}) for `{each.argument}`, SHA-256 `{each.sha256}`."]
    lines += ["", f"{model.notes}."] * bool(model.notes)
    return lines
