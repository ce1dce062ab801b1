# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of models, and the merge of the inventory's ones with the catalog.

``models``: the catalog's entries by their names, which are in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment, similar
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.model import kind, names

Entries: TypeAlias = Mapping[str, Mapping[str, Any]]

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_RELEASE = re.compile(r"\d+\.\d+(\.\d+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_IMAGE = re.compile(r"\w[\w./:-]*@sha256:[0-9a-f]{64}", re.ASCII)
#: Arguments that ``args`` must not contain, because a separate key sets them; with vLLM's aliases.
_SAID_BY = {
    "--model": "hub",
    "--revision": "revision",
    "--quantization": "quantization",
    "-q": "quantization",
    "--tensor-parallel-size": "tensor",
    "-tp": "tensor",
    "--pipeline-parallel-size": "pipeline",
    "-pp": "pipeline",
    "--max-model-len": "max_model_len",
}


def _text(value: object) -> bool:
    return isinstance(value, str)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_text, value))


def _image(value: object) -> bool:
    return isinstance(value, str) and _IMAGE.fullmatch(value) is not None


def _table(value: object) -> bool:
    return isinstance(value, Mapping)


def _strings(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_text, value)) and all(map(_text, value.values()))


def _requires(value: object) -> bool:
    return (
        _strings(value)
        and isinstance(value, Mapping)
        and set(value) <= {"since", "until"}
        and all(map(_RELEASE.fullmatch, value.values()))
    )


def _published(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(nodes, str) and nodes.isdecimal() and _range(each) for nodes, each in value.items())


def _range(value: object) -> bool:
    if not isinstance(value, list | tuple) or {type(each) for each in value} - {int, float}:
        return False
    return len(value) == 2 and 0 < value[0] <= value[1]


def _file(value: object) -> bool:
    if not (_strings(value) and isinstance(value, Mapping) and set(value) == {"name", "url", "argument", "sha256"}):
        return False
    plain = (
        _NAME.fullmatch(value["name"]) and value["url"].startswith("https://") and value["argument"].startswith("--")
    )
    # The server runs this code.
    return bool(plain) and _SHA256.fullmatch(value["sha256"]) is not None


def _files(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_file, value))


#: The check of each key's value, and the expected value in words.
_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "hub": (names.is_hub, "OWNER/NAME on Hugging Face Hub"),
    "path": (names.is_path, "an absolute path"),
    "revision": (_text, "a commit, tag or branch, as text"),
    "kind": (lambda value: value in kind.KINDS, f"one of {', '.join(kind.KINDS)}"),
    "weights_bytes": (lambda value: value is None or (_count(value) and value != 0), "bytes, or null if unknown"),
    "config": (_table, "a mapping with keys of the model's config.json"),
    "reasoning": (lambda value: isinstance(value, bool), "true or false"),
    "gated": (lambda value: isinstance(value, bool), "true or false"),
    "image": (_image, "a container image by digest, such as vllm/vllm-openai@sha256:..."),
    "args": (_texts, "a list of words, such as [--tool-call-parser, hermes]"),
    "environment": (_strings, "variables and their values, as text"),
    "files": (_files, "a list of {name, url (https), argument (--...), sha256 (64 hexadecimal digits)}"),
    "nodes": (_count, "a number of nodes, or 0 for automatic"),
    "tensor": (_count, "a number of nodes, or 0 for automatic"),
    "pipeline": (_count, "a number of nodes, or 0 for automatic"),
    "max_model_len": (_count, "a number of tokens, or 0 for automatic"),
    "quantization": (_text, "a value of --quantization, as text"),
    "requires": (_requires, '{since: "0.17.0", until: "0.18.1"}, or one of them, as text'),
    "published": (_published, '{"1": [LOWEST, HIGHEST]}: tokens per second by number of nodes'),
    "published_by": (_strings, '{"1": "SOURCE, DATE"}: who measured the highest, by number of nodes'),
    "sure": (_text, "text"),
    "source": (_text, "text"),
    "evidence": (_text, "a date, as text"),
    "notes": (_text, "text"),
}


def check(user_models: object, models: Entries) -> list[Problem]:
    """Return every problem in ``gb10_models``."""
    if not isinstance(user_models, Mapping):
        return [
            Problem(
                "gb10_models", f"{user_models!r}", "a mapping from names to models", "write {name: {hub: OWNER/NAME}}"
            )
        ]
    problems = []
    spelled: dict[str, str] = {}
    for name, entry in user_models.items():
        path = f"gb10_models.{name}"
        if (other := spelled.setdefault(str(name).casefold(), str(name))) != str(name):
            problems.append(
                Problem(path, f"the name differs from {other} only in case", "each model once", "merge the two entries")
            )
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            same = next((key for key, model in models.items() if str(name).casefold() == model["hub"].casefold()), "")
            fix = f"name it {same}" if same else "use only letters, digits, dots, hyphens and underscores in the name"
            problems.append(Problem(path, f"the name {name!r}", "a short name", fix))
        elif not isinstance(entry, Mapping):
            problems.append(
                Problem(path, f"{entry!r}", "a mapping of keys to values", f"write {{{name}: {{hub: OWNER/NAME}}}}")
            )
        else:
            found = list(_values(path, entry))
            base = _base(name, entry, models)
            close = () if base else similar.close(name, models)
            problems += found or _contradictions(path, entry, _merge(base, entry), known=bool(base), close=close)
    return problems


def check_entry(path: str, entry: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of a complete entry that overrides no other, such as a catalog entry."""
    return list(_values(path, entry)) or _contradictions(path, entry, entry, known=False)


def merged(user_models: Entries, models: Entries) -> dict[str, Mapping[str, Any]]:
    """Return every model's entry by its name, with the inventory's overrides; ``user_models`` is already validated."""
    entries = dict(models)
    for name, entry in user_models.items():
        key = name.casefold() if name.casefold() in models else name
        entries[key] = _merge(_base(name, entry, models), entry)
    return entries


def _base(name: str, entry: Mapping[str, Any], models: Entries) -> Mapping[str, Any]:
    """Return the catalog entry to override. Another folder or Hub name drops its hub, revision and gated keys."""
    base = models.get(name.casefold(), {})
    moved = "path" in entry or ("hub" in entry and entry["hub"] != base.get("hub"))
    return {key: value for key, value in base.items() if key not in ("hub", "revision", "gated")} if moved else base


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings; replace all other values."""
    result = dict(base)
    for key, value in over.items():
        before = result.get(key)
        result[key] = _merge(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return result


def _values(path: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield unknown keys and invalid values."""
    for key, value in entry.items():
        if key not in _KEYS:
            close = similar.close(str(key), _KEYS)
            fix = f"perhaps use {close[0]}" if close else f"use one of {', '.join(_KEYS)}"
            yield Problem(f"{path}.{key}", "unknown key", "a key of a model", fix)
        elif not _KEYS[key][0](value):
            yield Problem(f"{path}.{key}", f"{value!r}", _KEYS[key][1], f"change {path}.{key}")


def _contradictions(
    path: str, entry: Mapping[str, Any], whole: Mapping[str, Any], known: bool, close: Sequence[str] = ()
) -> list[Problem]:
    """Return the contradictions within the entry, or within its merge with the catalog (``whole``).

    ``close``: similar names of the catalog.
    """
    problems = []
    if not known and not entry.get("hub") and not entry.get("path"):
        hint = f", or use {close[0]} from the catalog" if close else ""
        problems.append(
            Problem(
                path,
                "a model without hub and path",
                "the location of its weights",
                f"add {path}.hub or {path}.path{hint}",
            )
        )
    if entry.get("hub") and entry.get("path"):
        problems.append(
            Problem(
                path,
                f"hub {entry['hub']} and path {entry['path']}",
                "one location of the weights",
                "remove one of them",
            )
        )
    if whole.get("path"):
        for key in ("gated", "revision"):
            if whole.get(key):
                fix = f"remove {path}.{key} or {path}.path"
                problems.append(
                    Problem(
                        f"{path}.{key}",
                        f"{whole[key]!r} for a folder",
                        f"{key} only with a model on Hugging Face Hub",
                        fix,
                    )
                )
    problems += secret_environment.check_environment(entry.get("environment", {}), f"{path}.environment")
    problems += secret_environment.check_arguments(entry.get("args", ()), f"{path}.args")
    problems += _sizes(path, entry, whole)
    for key, word in ((_SAID_BY[word], word) for each in whole.get("args", ()) if (word := _option(each)) in _SAID_BY):
        problems.append(
            Problem(f"{path}.args", word, "only arguments without a separate key", f"set {path}.{key} instead")
        )
    return problems


def _option(word: str) -> str:
    """Return an argument's name without its value, in the documented spelling."""
    name = word.partition("=")[0]
    return name.replace("_", "-") if name.startswith("--") else name


def _sizes(path: str, entry: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield contradicting numbers. The catalog's number of nodes is a minimum, so more ranks than that are valid."""
    nodes, ranks = entry.get("nodes", 0), (whole.get("tensor", 0) or 1) * (whole.get("pipeline", 0) or 1)
    if nodes and ranks > nodes:
        found = f"tensor {whole.get('tensor', 0)} times pipeline {whole.get('pipeline', 0)} on {nodes}"
        key = "pipeline" if whole.get("pipeline", 0) > 1 else "tensor"
        yield Problem(
            f"{path}.{key}", found, "at most one rank per node (one GPU each)", f"raise {path}.nodes to {ranks}"
        )
    since, until = (tuple(map(int, whole.get("requires", {}).get(key, "0").split("."))) for key in ("since", "until"))
    if until > (0,) and since > until:
        fix = f"swap {path}.requires.since and until"
        yield Problem(
            f"{path}.requires",
            f"since {whole['requires']['since']} until {whole['requires']['until']}",
            "since not after until",
            fix,
        )
