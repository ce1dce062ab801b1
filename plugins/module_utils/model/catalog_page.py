# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/models.md: the catalogue as a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model, known, quantization

_HEAD = """\
# Models

`gb10_model: NAME` with a name of this page is enough. A name on the Hugging Face hub or an absolute path is taken too, as it is.
**Nobody on this project has a Spark, and none of these models was ever started here**; what others saw of each is told below it.

`gb10_models` changes single keys of an entry or adds a model; mappings merge, lists replace, and mistakes are listed all at once:

    gb10_models:
      gpt-oss-120b:
        max_model_len: 65536
      mine:
        path: /srv/models/mine
        nodes: 2
        args: [--enable-auto-tool-choice, --tool-call-parser, hermes]

| key | value |
|---|---|
| `hub` or `path` | where the weights are: OWNER/NAME on the hub, or a folder that each node has |
| `revision`, `gated` | a commit of the hub's; whether it wants a login |
| `weights_bytes`, `config` | for the memory plan: their size; the keys of config.json that say shape and quantisation |
| `reasoning` | whether it thinks before it answers |
| `args`, `environment` | what it needs of `vllm serve` on any cluster, no flags for memory; variables of the ranks |
| `files` | what it is served with: `{name, url, argument, sha256}` |
| `nodes`, `tensor`, `pipeline`, `max_model_len` | the fewest Sparks of 128 GB; how it is divided; its context; 0 leaves it to the plan |
| `quantization` | only where vLLM would not find it by itself |
| `requires` | `{since: RELEASE, until: RELEASE}` of vLLM |
| `sure`, `source`, `evidence`, `notes` | how sure that is, who says so, the source's date or when it was read, and what else there is to know |

The division into ranks is the plan's for every entry here. The presets of vllm-dgx-spark give about half of these sizes for the models in
bfloat16; these are the published files'. This page is made from `plugins/module_utils/model/catalog_data.py`.
"""


def page() -> str:
    """Return the page."""
    models = list(known().values())
    head = ["name", "on the hub", "GB", "weights", "context", "Sparks", "login", "vLLM"]
    lines = [_HEAD, _row(head), "|---|---|--:|---|--:|--:|---|---|", *(_row(_cells(model)) for model in models)]
    return "\n".join([*lines, *(line for model in models for line in _section(model))]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(model: Model) -> list[str]:
    size = f"{model.weights_bytes / 1e9:.1f}" if model.weights_bytes else "?"
    kind = (quantization(model) or str(_text(model.config).get("dtype") or _text(model.config).get("torch_dtype", ""))).replace("_", " ")
    context = str(_text(model.config).get("max_position_embeddings", "?"))
    since = f"from {model.requires['since']}" if "since" in model.requires else "any"
    return [f"`{model.name}`", f"`{model.hub}`", size, kind, context, str(model.nodes), "yes" if model.gated else "no", since]


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part, with what the outer parts say of it all."""
    inner = next((config[key] for key in ("text_config", "thinker_config") if isinstance(config.get(key), Mapping)), None)
    return {**config, **_text(inner)} if inner is not None else config


def _section(model: Model) -> list[str]:
    lines = ["", f"## {model.name}", "", f"How sure: {model.sure}. Source: {model.source} ({model.evidence})."]
    lines += ["", f"    {' '.join(model.args)}"] * bool(model.args)
    for each in model.files:
        lines += ["", f"With [{each.name}]({each.url}) for `{each.argument}`, SHA-256 `{each.sha256}`."]
    lines += ["", f"{model.notes}."] * bool(model.notes)
    return lines
