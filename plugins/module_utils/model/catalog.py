# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of a model: by its short name, with what the inventory changes or adds (``gb10_models``)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog_checks as catalogue_checks

UNKNOWN = "not in the catalogue"
OWN = "said by the inventory"


@dataclass(frozen=True)
class File:
    """A file that the model is served with, and the argument of ``vllm serve`` that takes its path."""

    name: str
    url: str
    argument: str
    sha256: str


@dataclass(frozen=True)
class Model:
    """A model and how it is served. Zero, "" and None stand for what is not known or not decided here.

    ``config``: the keys of its config.json that say its shape and quantisation. ``args``: what it needs of ``vllm serve`` whatever the
    cluster. ``nodes``: the fewest Sparks of 128 GB. ``requires``: the first and last release that serve it, as "since" and "until".
    ``sure``: how sure we are, and what is not confirmed.
    """

    name: str
    hub: str = ""
    path: str = ""
    revision: str = ""
    weights_bytes: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    reasoning: bool = False
    gated: bool = False
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    nodes: int = 0
    tensor: int = 0
    pipeline: int = 0
    max_model_len: int = 0
    quantization: str = ""
    requires: Mapping[str, str] = field(default_factory=dict)
    sure: str = UNKNOWN
    source: str = ""
    evidence: str = ""
    notes: str = ""

    @property
    def reference(self) -> str:
        """What ``vllm serve`` is given: the folder, or the name on the hub."""
        return self.path or self.hub

    def facts(self) -> dict[str, Any]:
        """Return the model as plain data."""
        plain = asdict(self)
        return {**plain, "args": list(self.args), "files": list(plain["files"]), "reference": self.reference}


def find(name: str, own: Mapping[str, Any] | None = None) -> Model:
    """Return the model that ``gb10_model`` names: a short name, a name on the hub, or a folder, whatever its case.

    ``own`` is ``gb10_models``: {name: {key of Model: value}}. A name of the catalogue changes its single keys (mappings merge, lists
    replace); another adds a model. Raises ProblemsError with every mistake of both.
    """
    problems = catalogue_checks.check(own or {})
    models = known({} if problems else own)
    # The inventory's models by name alone, so that a wrong entry does not make its name unknown too.
    sketches = [Model(str(key)) for key in own] if problems and isinstance(own, Mapping) else []
    found = _named(name, models) or _elsewhere(name, [*models.values(), *sketches])
    if isinstance(found, Problem):
        problems.append(found)
    if problems or isinstance(found, Problem):
        raise ProblemsError(problems)
    return found


def known(own: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Model]:
    """Return every model by its name; ``own`` has no mistakes."""
    merged = catalogue_checks.merged(own or {})
    return {name: _model(name, entry) for name, entry in merged.items()}


def _model(name: str, entry: Mapping[str, Any]) -> Model:
    lists = {"args": tuple(entry.get("args", ())), "files": tuple(File(**each) for each in entry.get("files", ()))}
    return Model(name=name, **{"sure": OWN, **entry, **lists})


def _named(name: str, models: Mapping[str, Model]) -> Model | Problem | None:
    """The model with this name, folder or name on the hub; a Problem if it is the hub's name of several."""
    wanted = str(name).casefold()
    if exact := [model for model in models.values() if wanted == model.name.casefold() or (model.path and name == model.path)]:
        return exact[0]
    same = [model for model in models.values() if model.hub and wanted == model.hub.casefold()]
    if len(same) > 1:
        names = " and ".join(model.name for model in same)
        return Problem("gb10_model", f"{name!r} is what {names} have on the hub", "one model", "give the name of one of them")
    return same[0] if same else None


def _elsewhere(name: str, models: Iterable[Model]) -> Model | Problem:
    """A model that is in neither list: a folder or a name on the hub is taken as it is, another name is a mistake."""
    if catalogue_checks.is_path(name):
        return Model(name=name, path=name)
    if catalogue_checks.is_hub(name):
        return Model(name=name, hub=name)
    names = {model.name.casefold(): model.name for model in models}
    if str(name).casefold() in names:
        return Model(name=name)
    hubs = {model.hub.rpartition("/")[2].casefold(): model.name for model in models if model.hub}
    close = difflib.get_close_matches(str(name).casefold(), [*names, *hubs], n=4, cutoff=0.5)
    close = list(dict.fromkeys((names | hubs)[each] for each in close))
    expected = "a name of the catalogue or of gb10_models, OWNER/NAME on the Hugging Face hub, or an absolute path"
    fix = f"perhaps {' or '.join(close)}" if close else "docs/models.md lists the catalogue; add your own under gb10_models"
    return Problem("gb10_model", f"no model {name!r}", expected, fix)


def describe(model: Model) -> list[str]:
    """Return what a person wants to know of a model, a line each."""
    size = f"{model.weights_bytes / 1e9:.1f} GB of weights" if model.weights_bytes else "weights of unknown size"
    method = quantization(model)
    lines = [f"{model.name}: {model.reference}{f' at {model.revision[:12]}' if model.revision else ''}, {size}{f', {method}' if method else ''}"]
    if model.nodes:
        lines.append(f"  on {model.nodes} Spark{'s' if model.nodes > 1 else ''} of 128 GB or more")
    lines += [f"  vLLM {' '.join(f'{word} {release}' for word, release in model.requires.items())}"] * bool(model.requires)
    traits = [text for text, holds in (("reasons", model.reasoning), ("wants a login at the hub", model.gated)) if holds]
    lines += [f"  {', '.join(traits)}"] * bool(traits)
    lines += [f"  {' '.join(model.args)}"] * bool(model.args)
    lines += [f"  with {each.name} for {each.argument}" for each in model.files]
    lines.append(f"  how sure: {model.sure}")
    return lines


def quantization(model: Model) -> str:
    """Return what its weights are quantised with, as vLLM is told or as its config.json names it; "" for no quantisation or an unknown one."""
    given = model.config.get("quantization_config")
    if model.quantization or not isinstance(given, Mapping):
        return model.quantization
    return " ".join(str(given[key]) for key in ("quant_method", "quant_algo") if key in given)
