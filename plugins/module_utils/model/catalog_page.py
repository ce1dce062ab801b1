# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generates docs/models.md from the catalog."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model, known, older, quantization_method

_HEAD = """\
# Models

Set `gb10_model: NAME` to a name from this page, a name on Hugging Face Hub, or an absolute path.
**This project has no Spark and never started any of these models**; each section below lists the results of others.

To list the models that fit on your nodes:

    ansible-playbook playbooks/models.yml -i inventories/mine

The table has the weight size, the context, the parallel sizes, the highest possible speed, and the best published speed
with its source and date. A model whose memory cannot be planned is not judged, with the reason. The playbook plans each
model with the other variables of the inventory, so it gives the same results as `site.yml`. It starts no model. The
tables of one, two and four Sparks were made with typical facts, not on Sparks.

`gb10_models` overrides single keys of an entry or adds a model. Mappings merge, lists replace. All errors are listed
together:

    gb10_models:
      gpt-oss-120b:
        max_model_len: 65536
      mine:
        path: /srv/models/mine
        nodes: 2
        args: [--enable-auto-tool-choice, --tool-call-parser, hermes]

| key | value |
|---|---|
| `hub` or `path` | the location of the weights: OWNER/NAME on Hugging Face Hub, or a folder that exists on each node |
| `revision`, `gated` | a commit on Hugging Face Hub; whether access needs a token |
| `kind` | `generate`, `embed` or `rerank`; left out, the plan derives it |
| `weights_bytes`, `config` | for the memory plan: the weight size; the keys of config.json for shape and quantization |
| `reasoning` | whether it is a reasoning model |
| `args`, `environment` | `vllm serve` arguments that it needs on any cluster, without sizes of memory; environment variables of the ranks |
| `files` | extra files for serving: `{name, url, argument, sha256}` |
| `nodes`, `tensor`, `pipeline`, `max_model_len` | the minimum number of Sparks with 128 GB; parallel sizes; the context; 0 = chosen by the plan |
| `quantization` | only if vLLM does not detect it |
| `requires` | `{since: RELEASE, until: RELEASE}` of vLLM |
| `image` | the container image that serves it, by digest; `gb10_container_image`, `gb10_runtime: native`, `gb10_stack` and `gb10_runtime_lock` replace it |
| `published`, `published_by` | decode speeds of others for one request with these weights, and who measured the highest: `{"1": [33, 34.2]}`, tokens per second by the number of Sparks, and `{"1": "SOURCE, DATE"}` |
| `sure`, `source`, `evidence`, `notes` | the confidence in the entry, its source, the source's date or the reading date, and notes |

## Embedding models and rerankers

vLLM calls them pooling models. They generate no tokens. The plan decides the kind of a model as vLLM 0.18.1 to 0.33.0
does. It reads `--runner` and `--convert`, the `kind` of its entry, sentence-transformers' `modules.json`, or the
architecture in config.json. `playbooks/plan.yml` shows the kind with its reason.

| kind | requests | smoke test after each start |
|---|---|---|
| `embed` | `/v1/embeddings` | vectors have the model's dimension and finite numbers; sentences of equal meaning are closer than others |
| `rerank` | `/v1/rerank`, `/score` | scores are finite, and the relevant document has the highest one |

A failed smoke test restores the last working model. For a model with random weights, set
`vllm_serve_smoke_meaning: false`: then equal texts must have equal results, and others different ones.

The plan adds `--runner=pooling`, and `--convert=embed` to an architecture that generates. A Qwen3-Reranker has the
architecture of a generating model and no modules.json, so its entry must declare `kind: rerank`. Then the plan adds
vLLM's `--hf-overrides` for it. Another generating architecture as a reranker needs its own `--hf-overrides` or
`--convert`.

On several nodes, each node that holds the whole model gets a replica. `gb10_data_parallel_size: 1` splits the model
instead. The KV cache has room for one batch and two of the longest texts.

An encoder (BERT, RoBERTa, XLM-RoBERTa) has no KV cache in the memory plan, and no pipeline stages. Other encoders are
planned like decoders, so their plan is too cautious.

| error or difference | reason and fix |
|---|---|
| `no tools for a model of the kind embed` | drafts, tools, reasoning and log-probabilities need generated tokens: remove the option |
| `neither embeds texts as one vector nor scores documents` | reward models, token classifiers and late interaction are not supported |
| `numbers that are not finite (NaN or infinite)` | the weights, a patch or a kernel are wrong: compare the files and the patches |
| `two sentences of equal meaning have the cosine …` | the wrong pooling, or other weights than the model's |
| no golden answers | they consist of tokens, so a start has no such gate; `golden.yml` refuses the model |
| no benchmark of a reranker | its requests are pairs of texts: `benchmark_model.yml` refuses it, and measures embedding models |

Tested on simulated Sparks with vLLM 0.32.0 (CPU) and tiny random models: a Qwen3 as an embedding model, and an
XLM-RoBERTa as a reranker. Not tested: a Spark, and any model of this page.

## Add a model to the catalog

Each family of models is one file in `plugins/module_utils/model/families`. A new file needs no entry elsewhere. For
example, `families/tiny.yml`:

    ---
    models:
      tiny-7b-instruct:
        hub: owner/Tiny-7B-Instruct
        revision: 0123456789abcdef0123456789abcdef01234567
        weights_bytes: 15231233024
        config:
          model_type: qwen2
          hidden_size: 3584
          intermediate_size: 18944
          num_hidden_layers: 28
          num_attention_heads: 28
          num_key_value_heads: 4
          vocab_size: 152064
          max_position_embeddings: 32768
          torch_dtype: bfloat16
        args: [--enable-auto-tool-choice, --tool-call-parser, hermes]
        nodes: 1
        published: {"1": [14, 15.5]}
        published_by: {"1": "your name, 2026-11-20"}
        sure: measured on one Spark with vLLM 0.33.0
        source: its config.json, and your log
        evidence: "2026-11-20"
        notes: "License: Apache-2.0"

A date is text, so quote it. `shared` has anchors of values that several entries repeat. `drafts` has the revision and
the size of drafts. The unit tests plan each entry on its `nodes`. They refuse an unknown key, a wrong value, and an
argument that a release from `requires` on does not have. `GB10_RENEW=1 make unit` writes its section of this page.

## Published figures for Sparks

Tokens per second of one request, read on 2026-11-26. NVIDIA's figures are from NVIDIA/local-ai-inference-recipes
(12b25c66); figures of different sources are not comparable. In every row the plan chooses batches, sequences, context
and memory. Native entries name linear kernels and sampler unless `gb10_flashinfer: true`. `gb10_recipe` is for the rows
without an entry. Docker's default seccomp profile refuses io_uring; `gb10_container_args` can name another profile.

| model, Sparks | published | entry | differences from the source, or why there is no entry |
|---|--:|---|---|
| Qwen3.8-27B NVFP4, 1 | 24.3 | `qwen3.8-27b-nvfp4-dflash2` | native; NVIDIA's checkpoint instead of RadixArk's. Another source: 35.4 |
| the same, 2 | 37.4 | the same | the same; the draft is split like the model, which is vLLM's default |
| Qwen3.6-35B-A3B NVFP4, 1 | 97.7 | `qwen3.6-35b-a3b-nvfp4` | native; an earlier revision, `qwen3_xml` |
| Qwen3.6-27B NVFP4, 1 and 2 | 28.4, 43.6 | `qwen3.6-27b-nvfp4` | native |
| Qwen3.5-122B-A10B NVFP4, 1 | 27.3 | `qwen3.5-122b-a10b-nvfp4` | native |
| Nemotron 3.5 Lightning, 1 | 95.5 | `nemotron-3.5-lightning-30b-a3b-nvfp4` | native from 0.29.0 instead of a nightly |
| Nemotron 3 Super 120B, 1 | 23.6 | `nemotron-3-super-120b-a12b-nvfp4` | native; vLLM's kernels as NVIDIA (22.3), not Marlin (23.6) |
| Gemma 4 26B-A4B, 1 | 34.4 | `gemma-4-26b-a4b-nvfp4` | native from 0.27.0 instead of a nightly of 0.23.1 |
| Gemma 4 31B, 1 | 16.0 | `gemma-4-31b-it-nvfp4` | the same |
| MiniMax-M2.7 NVFP4, 2 | 26.0 | `minimax-m2.7-nvfp4` | native; Marlin is named, because it was faster with M2.5 |
| DeepSeek-V4-Flash, 2 | 36.0 | `deepseek-v4-flash` | NVIDIA's image and options; context 262,144 instead of 500,000 |
| DeepSeek-V4-Flash-0731, 2 | 40.7 | `deepseek-v4-flash-0731` | NVIDIA's image and options; context 262,144 |
| DeepSeek-V4-Flash-Vision-Exp, 2 | 66.4 | none | changes the image when it starts, and its loader needs io_uring |
| DeepSeek-V4.1-Flash, 4 | 63.5 | none | tables on the disk need io_uring |
| Qwen3.8-Flash-Next NVFP4, 1 and 2 | 46, 54.9 | none | tables on the disk need io_uring |
| GLM-5.3-Flash NVFP4, 2 and 4 | 38.0, 64 | none | its loader needs io_uring |
| MiMo-V2.6-Flash, 2 and 4 | 31, 47 | none | a draft in a subfolder and the FP8 cache need changes to the image |
| gpt-oss-120b, 1 | 59.5 | `gpt-oss-120b` (34) | native; no image with the CUTLASS MXFP4 build is published |
| MiniMax-M3 NVFP4, 4 | - | none | NVIDIA reports that it runs out of memory |

## Entries

For every entry on this page the plan chooses the parallel sizes. The sizes in GB are those of the published files; for
bfloat16 models, the vllm-dgx-spark presets give about half of that. This page is generated from
`plugins/module_utils/model/families`.
"""

#: The order of the page: the newest published figures first, embedding models and rerankers last.
_FIRST = """qwen3.8-27b-nvfp4 qwen3.8-27b-nvfp4-dflash2 qwen3.6-27b-nvfp4 qwen3.5-122b-a10b-nvfp4 deepseek-v4-flash
deepseek-v4-flash-0731 nemotron-3.5-lightning-30b-a3b-nvfp4 nemotron-3-ultra-550b-a55b-nvfp4 minimax-m2.7-nvfp4
qwen3.6-35b-a3b-nvfp4 gemma-4-26b-a4b-nvfp4 gemma-4-31b-it-nvfp4 nemotron-3-nano-30b-a3b-nvfp4 gpt-oss-120b gpt-oss-20b
qwen3.5-122b-a10b-fp8 qwen3.5-35b-a3b qwen3-omni-30b-a3b-instruct nemotron-3-super-120b-a12b-nvfp4
qwen3-next-80b-a3b-instruct-fp8 qwen3-next-80b-a3b-instruct-fp8-dynamic qwen3-embedding-0.6b qwen3-embedding-4b
qwen3-embedding-8b qwen3-reranker-0.6b bge-m3 bge-reranker-v2-m3""".split()

_OLDER = """
## Older models

These language models of 2024 are no longer published for Sparks. They are served as before; `playbooks/plan.yml`
shows the arguments of each.
"""


def page() -> str:
    """Return the page. Older models have no section."""
    last = older()
    models = sorted((model for model in known().values() if model.name not in last), key=_place)
    sections = [line for model in models for line in _section(model)]
    former = [model for model in known().values() if model.name in last]
    return "\n".join([_HEAD, *_table(models), *sections, _OLDER, *_table(former)]) + "\n"


def _place(model: Model) -> int:
    """Return the place of a model on the page. A new one comes last."""
    return _FIRST.index(model.name) if model.name in _FIRST else len(_FIRST)


def _table(models: Iterable[Model]) -> list[str]:
    head = ["name", "on Hugging Face Hub", "GB", "weights", "context", "Sparks", "gated", "vLLM"]
    return [_row(head), "|---|---|--:|---|--:|--:|---|---|", *(_row(_cells(model)) for model in models)]


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
