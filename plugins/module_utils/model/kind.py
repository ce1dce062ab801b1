# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind of a model: it generates text, embeds texts as vectors, or scores documents for a query.

The last two are vLLM's pooling models. Sources: vLLM 0.18.1 to 0.33.0, config/model.py (_SUFFIX_TO_DEFAULTS,
_get_default_runner_type, _get_default_convert_type), model_executor/models/registry.py, and
entrypoints/pooling (scores need num_labels 1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.model import config as model_config

GENERATE, EMBED, RERANK = KINDS = ("generate", "embed", "rerank")
#: The key that with_modules() adds to a config.json: the last words of the module types in modules.json.
MODULES = "sentence_transformers_modules"
#: A pooling model that this collection cannot verify.
_OTHER = "other"
#: The end of an architecture's name, the first match counts, and vLLM's use of it.
_SUFFIXES = {
    "ForCausalLM": GENERATE,
    "ForConditionalGeneration": GENERATE,
    "ChatModel": GENERATE,
    "LMHeadModel": GENERATE,
    "ForTextEncoding": EMBED,
    "EmbeddingModel": EMBED,
    "ForSequenceClassification": RERANK,
    "ForTokenClassification": _OTHER,
    "ForAudioClassification": _OTHER,
    "ForImageClassification": _OTHER,
    "ForVideoClassification": _OTHER,
    "ClassificationModel": _OTHER,
    "ForRewardModeling": _OTHER,
    "RewardModel": _OTHER,
    "Model": EMBED,
}
#: Registered architectures whose names end otherwise than their use.
_REGISTERED = {
    **dict.fromkeys(
        ("AquilaModel", "ChatGLMModel", "MiDashengLMModel", "MossAudioModel", "Qwen2_5OmniModel", "UltravoxModel"),
        GENERATE,
    ),
    **dict.fromkeys(("GritLM", "RobertaForMaskedLM"), EMBED),
    "JinaVLForRanking": RERANK,
    **dict.fromkeys(
        (
            "BertForMaskedLM",
            "BertSpladeSparseEmbeddingModel",
            "ColBERTJinaRobertaModel",
            "ColBERTLfm2Model",
            "ColBERTModernBertModel",
            "ColModernVBertForRetrieval",
            "ColPaliForRetrieval",
            "ColQwen3",
            "ColQwen3_5",
            "ColUltraVBertForRetrieval",
            "HF_ColBERT",
            "InternLM2ForRewardModel",
            "JinaForRanking",
            "ModernVBertModel",
            "OpsColQwen3Model",
            "PrithviGeoSpatialMAE",
            "Qwen2ForProcessRewardModel",
            "Qwen2ForRewardModel",
            "Qwen3VLNemotronEmbedModel",
            "Terratorch",
        ),
        _OTHER,
    ),
}
#: The values of vLLM's options that select a kind; the other values leave it open.
_RUNNERS: Mapping[str, tuple[str, ...]] = {"generate": (GENERATE,), "pooling": (EMBED, RERANK)}
_CONVERTS = {"embed": (EMBED,), "classify": (RERANK,)}
_OPTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"--runner": _RUNNERS, "--convert": _CONVERTS}


@dataclass(frozen=True)
class Kind:
    """A kind with the reason for it. ``dimension``: numbers of a vector, 0 if unknown or without vectors."""

    name: str = GENERATE
    why: str = ""
    dimension: int = 0

    @property
    def pooling(self) -> bool:
        """Whether the model generates no tokens."""
        return self.name != GENERATE


def with_modules(config: Mapping[str, Any] | None, modules: Any) -> Mapping[str, Any] | None:
    """Return a config.json with the module types of sentence-transformers' modules.json, the same without that file."""
    if config is None or not isinstance(modules, list):
        return config
    types = [
        model_config.word(str(each.get("type", "")).rpartition(".")[2])
        for each in modules[:16]
        if isinstance(each, Mapping)
    ]
    return {**config, MODULES: types}


def find(
    declared: str, config: Mapping[str, Any] | None, given: Mapping[str, Any], path: str
) -> tuple[Kind, list[Problem]]:
    """Return the kind of a model and its problems.

    ``declared``: the entry's kind, "" without one. ``given``: vLLM's arguments by name, of the entry and the user.
    ``path``: the location of the arguments, for messages.
    """
    derived, why = _of_files(config, _overrides(given))
    name, reason = (declared, "its entry declares it") if declared else (derived, why)
    for option, values in _OPTIONS.items():
        chosen = values.get(str(given.get(option, "")))
        if not chosen:
            continue
        word = f"{option} {given[option]}"
        if declared and declared not in chosen:
            problem = Problem(
                f"{path}.{option}",
                word,
                f"an argument for the kind {declared}",
                f"remove it, or correct kind: {declared}",
            )
            return Kind(declared, reason), [problem]
        if name not in chosen:
            # Of a pooling runner alone, vLLM makes vectors unless the architecture scores.
            name, reason = chosen[0], f"of {word}"
    if name == _OTHER:
        found = f"{why}, a pooling model that neither embeds texts as one vector nor scores documents"
        fix = "use another model, or declare its kind in gb10_models if vLLM serves it as such"
        return Kind(EMBED, why), [Problem("gb10_model", found, "a model that generates, embeds or reranks", fix)]
    return Kind(name, reason, _dimension(config, given) if name == EMBED else 0), []


def _overrides(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return _json(given.get("--hf-overrides"))


def _json(value: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        # vLLM reports it.
        return {}
    return found if isinstance(found, Mapping) else {}


def architectures(config: Mapping[str, Any] | None) -> list[str]:
    """Return the architectures of a config.json, [] if it has none."""
    found = (config or {}).get("architectures")
    return [name for name in map(model_config.word, found[:8]) if name] if isinstance(found, list) else []


def _of_files(config: Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> tuple[str, str]:
    """Return vLLM's choice, and the reason. Without a known architecture vLLM generates."""
    whole = {**(config or {}), **overrides}
    names = architectures(whole)
    if "Pooling" in whole.get(MODULES, ()) and not overrides.get("architectures"):
        return EMBED, "sentence-transformers' modules.json has a pooling module"
    for name in names:
        found = _REGISTERED.get(name) or next((use for end, use in _SUFFIXES.items() if name.endswith(end)), "")
        if found == RERANK and _labels(whole) != 1:
            return _OTHER, f"{name} with {_labels(whole)} labels"
        if found:
            return found, f"of the architecture {name}"
    return GENERATE, ""


def _labels(config: Mapping[str, Any]) -> int:
    """Return the number of labels. Source: transformers, configuration_utils.py: two without id2label."""
    if "classifier_from_token" in config:
        return 1
    labels = config.get("id2label")
    if isinstance(labels, Mapping):
        return len(labels)
    count = config.get("num_labels")
    return count if isinstance(count, int) else 2


def _dimension(config: Mapping[str, Any] | None, given: Mapping[str, Any]) -> int:
    """Return the numbers of a vector: the planned reduction, else the hidden size, 0 if a dense layer changes it."""
    reduced = _json(given.get("--pooler-config")).get("dimensions")
    if isinstance(reduced, int) and reduced > 0:
        return reduced
    if config is None or "Dense" in config.get(MODULES, ()):
        return 0
    return model_config.count(model_config.text(config).get("hidden_size"))


def pooling_arguments(
    kind: Kind, config: Mapping[str, Any] | None, of_model: Mapping[str, Any], user_args: Mapping[str, Any], path: str
) -> tuple[list[str], list[str], list[Problem]]:
    """Return vLLM's arguments of a pooling model that are not given, the reasons, and the problems; nothing for other
    models.

    ``of_model`` and ``user_args``: the given arguments by name; ``path``: the location of the model's.
    """
    if not kind.pooling:
        return [], [], []
    given = {**of_model, **user_args}
    args, why = [], [f"the model is of the kind {kind.name}: {kind.why}"]
    if "--runner" not in given:
        args.append("--runner=pooling")
        why.append("--runner=pooling: the kind does not depend on the release's own choice")
    why.append("golden answers are not compared: they consist of generated tokens")
    convert, reason, problems = _conversion(kind, config, given)
    why += [f"{convert[0].partition('=')[0]}: {reason}"] if convert else []
    return (
        [*args, *convert],
        why,
        [*_refused(kind, of_model, path), *_refused(kind, user_args, "gb10_vllm_extra_args"), *problems],
    )


def _conversion(
    kind: Kind, config: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> tuple[list[str], str, list[Problem]]:
    """Return vLLM's arguments that make a pooling model of a generating one, the reason, and a problem if there are
    none.

    Sources: vLLM 0.18.1 to 0.33.0, model_executor/models/adapters.py; the documentation of vLLM, Qwen3-Reranker.
    """
    names = architectures(config)
    generating = next((name for name in names if _of_files({"architectures": [name]}, {})[0] == GENERATE), "")
    if not generating or set(given) & {"--convert", "--hf-overrides"}:
        return [], "", []
    if kind.name == EMBED:
        return ["--convert=embed"], f"the architecture {generating} generates", []
    if generating == "Qwen3ForCausalLM":
        overrides = json.dumps(_QWEN3_RERANKER, separators=(",", ":"))
        return (
            [f"--hf-overrides={overrides}"],
            "Qwen3-Reranker scores by its tokens no and yes (vLLM's documentation)",
            [],
        )
    expected = "an architecture for sequence classification, or Qwen3ForCausalLM of a Qwen3-Reranker"
    fix = "add --hf-overrides of this model's card to its args, or --convert classify if it has a classifier"
    return [], "", [Problem("gb10_model", f"a reranker with the architecture {generating}", expected, fix)]


#: Source: vLLM, examples of 0.10.2 and later for Qwen3-Reranker; models/config.py of 0.18.1 to 0.33.0.
_QWEN3_RERANKER = {
    "architectures": ["Qwen3ForSequenceClassification"],
    "classifier_from_token": ["no", "yes"],
    "is_original_qwen3_reranker": True,
}


def _refused(kind: Kind, given: Iterable[str], path: str) -> list[Problem]:
    """Return a problem for each option of ``given`` that a pooling model does not have; ``path`` is its location."""
    found = {name: _GENERATING.get(name.partition(".")[0], "") for name in given}
    expected = f"no {{}} for a model of the kind {kind.name}, which generates no tokens"
    return [
        Problem(f"{path}.{name}", name, expected.format(purpose), f"remove {name}, or correct the model's kind")
        for name, purpose in found.items()
        if purpose
    ]


#: Options of generation, with their purpose.
_GENERATING = {
    **dict.fromkeys(("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"), "draft"),
    **dict.fromkeys(
        ("--enable-auto-tool-choice", "--tool-call-parser", "--tool-parser-plugin", "--tool-server"), "tools"
    ),
    **dict.fromkeys(("--reasoning-parser", "--reasoning-parser-plugin", "--reasoning-config"), "reasoning"),
    **dict.fromkeys(("--structured-outputs-config", "--max-logprobs"), "generated tokens"),
}
