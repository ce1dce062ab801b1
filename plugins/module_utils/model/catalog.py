# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model catalog: models by short name, merged with the inventory's ``gb10_models``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import similar
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog_checks, drafts, io_catalog, names
from ansible_collections.gb10.cluster.plugins.module_utils.model.drafts import Draft

UNKNOWN = "not in the catalog"
OWN = "from the inventory"


@dataclass(frozen=True)
class File:
    """An extra file for serving the model, and the argument of ``vllm serve`` that takes its path."""

    name: str
    url: str
    argument: str
    sha256: str


@dataclass(frozen=True)
class Model:
    """A model and its serving settings. Zero, "" and None mean unknown or left to the planner.

    ``kind``: see kind.py, "" to derive it from its files. ``config``: the keys of its config.json for shape, kind and
    quantization. ``args``: the ``vllm serve`` arguments that it needs on any cluster. ``nodes``: the minimum number of
    Sparks with 128 GB. ``requires``: the first and last release that serve it, as "since" and "until". ``published``:
    the lowest and highest decode speed that others measured for one request, in tokens per second, by the number of
    Sparks; ``published_by``: who measured the highest, with the date. ``image``: the container image that serves it,
    by digest, "" for the stack's runtime.
    ``sure``: how well the entry was tested, and which parts are unconfirmed.
    """

    name: str
    hub: str = ""
    path: str = ""
    revision: str = ""
    kind: str = ""
    weights_bytes: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    reasoning: bool = False
    gated: bool = False
    image: str = ""
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    nodes: int = 0
    tensor: int = 0
    pipeline: int = 0
    max_model_len: int = 0
    quantization: str = ""
    requires: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, Sequence[float]] = field(default_factory=dict)
    published_by: Mapping[str, str] = field(default_factory=dict)
    sure: str = UNKNOWN
    source: str = ""
    evidence: str = ""
    notes: str = ""

    @property
    def reference(self) -> str:
        """The model argument of ``vllm serve``: the folder, or the name on Hugging Face Hub."""
        return self.path or self.hub

    def facts(self) -> dict[str, Any]:
        """Return the model as plain data."""
        plain = asdict(self)
        return {**plain, "args": list(self.args), "files": list(plain["files"]), "reference": self.reference}


def find(name: str, user_models: Mapping[str, Any] | None = None) -> Model:
    """Return the model for ``gb10_model``: a short name or a Hugging Face Hub name (in any case), or a folder.

    The Hub name of several entries is that of the one without a draft.

    ``user_models`` is ``gb10_models``: {name: {key of Model: value}}. A catalog name overrides single keys of that
    entry (mappings merge, lists replace); any other name adds a model. Raises ProblemsError with every error in both.
    """
    problems = check(user_models or {})
    models = known({} if problems else user_models)
    # Keep the names of invalid inventory entries, so that such a name is not also reported as unknown.
    sketches = [Model(str(key)) for key in user_models] if problems and isinstance(user_models, Mapping) else []
    found = _named(name, models) or _elsewhere(name, [*models.values(), *sketches])
    if isinstance(found, Problem):
        problems.append(found)
    if problems or isinstance(found, Problem):
        raise ProblemsError(problems)
    return found


def known(user_models: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Model]:
    """Return every model by its name, the older ones of the catalog last; ``user_models`` is already validated."""
    merged = catalog_checks.merged(user_models or {}, _entries())
    return {name: _model(name, entry) for name, entry in merged.items()}


def check(user_models: object) -> list[Problem]:
    """Return every problem in ``gb10_models``."""
    return catalog_checks.check(user_models, _entries())


def older() -> set[str]:
    """Return the names of the language models that are no longer published for Sparks."""
    return {name for family in io_catalog.families() if family.older for name in family.models}


def draft(args: Sequence[str]) -> Draft | None:
    """Return the draft that the arguments name, with its size and revision if the catalog has them."""
    if not (found := drafts.find(args)):
        return None
    known = (each for family in io_catalog.families() for each in family.drafts if each.hub == found.hub)
    size = next(known, found)
    return replace(size, revision=found.revision or size.revision)


def _entries() -> dict[str, Mapping[str, Any]]:
    return {name: entry for family in io_catalog.families() for name, entry in family.models.items()}


def _model(name: str, entry: Mapping[str, Any]) -> Model:
    lists = {"args": tuple(entry.get("args", ())), "files": tuple(File(**each) for each in entry.get("files", ()))}
    return Model(name=name, **{"sure": OWN, **entry, **lists})


def _named(name: str, models: Mapping[str, Model]) -> Model | Problem | None:
    """Return the model with this name, folder or Hub name; a Problem if several models share the Hub name.

    Of these, an entry with a draft is used only by its own name.
    """
    wanted = str(name).casefold()
    if exact := [
        model for model in models.values() if wanted == model.name.casefold() or (model.path and name == model.path)
    ]:
        return exact[0]
    same = _on_hub(wanted, models.values())
    if len(same) > 1:
        both = " and ".join(model.name for model in same)
        return Problem(
            "gb10_model", f"{name!r} is the Hugging Face Hub name of {both}", "one model", "use one of these names"
        )
    return same[0] if same else None


def _on_hub(wanted: str, models: Iterable[Model]) -> list[Model]:
    """Return the models with this Hub name in lower case: those without a draft, or all if each has one."""
    same = [model for model in models if model.hub and wanted == model.hub.casefold()]
    return [model for model in same if not drafts.find(model.args)] or same


def _elsewhere(name: str, models: Iterable[Model]) -> Model | Problem:
    """Return a model outside the catalog and ``gb10_models``: a folder or a Hugging Face Hub name.

    Any other name is a Problem.
    """
    expected = "a name from the catalog or gb10_models, OWNER/NAME on Hugging Face Hub, or an absolute path"
    if not name:
        return Problem("gb10_model", "it is empty", expected, "set gb10_model, or gb10_recipe")
    if names.is_path(name):
        return Model(name=name, path=name)
    if names.is_hub(name):
        return Model(name=name, hub=name)
    known_names = {model.name.casefold(): model.name for model in models}
    if str(name).casefold() in known_names:
        return Model(name=name)
    hubs = {model.hub.rpartition("/")[2].casefold(): model.name for model in models if model.hub}
    close = similar.close(str(name).casefold(), [*known_names, *hubs], most=4, cutoff=0.5)
    close = list(dict.fromkeys((known_names | hubs)[each] for each in close))
    fix = "choose a model from docs/models.md, or add your own to gb10_models"
    fix = f"perhaps use {' or '.join(close)}" if close else fix
    return Problem("gb10_model", f"unknown model {name!r}", expected, fix)


#: The least share of equal parts in the names of two models that are alike.
_ALIKE = 0.5


def like(hub: str, user_models: Mapping[str, Any] | None = None) -> list[str]:
    """Return the known Hub names that are like this unknown one."""
    hubs = {model.hub.rpartition("/")[2]: model.hub for model in known(user_models).values() if model.hub}
    if not hub or hub.casefold() in map(str.casefold, hubs.values()):
        return []
    return [hubs[each] for each in similar.of_parts(hub.rpartition("/")[2], hubs, 2, _ALIKE)]


def describe(model: Model) -> list[str]:
    """Return a summary of the model for people, as lines."""
    size = f"{model.weights_bytes / 1e9:.1f} GB of weights" if model.weights_bytes else "weights of unknown size"
    method = quantization_method(model)
    name = "" if model.name == model.reference else f"{model.name}: "
    lines = [
        (
            f"{name}{model.reference}{f' at {model.revision[:12]}' if model.revision else ''}, "
            f"{size}{f', {method}' if method else ''}"
        )
    ]
    if model.nodes:
        lines.append(f"  on {model.nodes} Spark{'s' if model.nodes > 1 else ''} of 128 GB or more")
    lines += [f"  vLLM {' '.join(f'{word} {release}' for word, release in model.requires.items())}"] * bool(
        model.requires
    )
    found = (
        (f"kind {model.kind}", model.kind),
        ("reasoning model", model.reasoning),
        ("gated: needs a Hugging Face token", model.gated),
    )
    traits = [text for text, holds in found if holds]
    lines += [f"  {', '.join(traits)}"] * bool(traits)
    lines += [f"  in {model.image}, unless gb10_container_image is set"] * bool(model.image)
    lines += [f"  {shlex.join(model.args)}"] * bool(model.args)
    lines += [f"  with {each.name} for {each.argument}" for each in model.files]
    unknown = "; add what is known of it to gb10_models (docs/models.md)" if model.sure == UNKNOWN else ""
    lines.append(f"  confidence: {model.sure}{unknown}")
    return lines


def quantization_method(model: Model) -> str:
    """Return the quantization method that vLLM is given or that config.json names; "" for none or an unknown one."""
    given = model.config.get("quantization_config")
    if model.quantization or not isinstance(given, Mapping):
        return model.quantization
    return " ".join(str(given[key]) for key in ("quant_method", "quant_algo") if key in given)
