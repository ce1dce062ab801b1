"""The model catalog: its entries, overrides from the inventory, and every error in an override."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from parameters import parameters
from repository import ROOT
from snapshot import assert_recorded

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, catalog_checks, drafts, quantization
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape
from ansible_collections.gb10.cluster.plugins.module_utils.model import weights as model_weights
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import File, Model, describe, find, known
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog_page import page
from ansible_collections.gb10.cluster.plugins.module_utils.model.drafts import Draft
from ansible_collections.gb10.cluster.plugins.module_utils.model.io_catalog import families
from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import ENCODERS
from ansible_collections.gb10.cluster.plugins.module_utils.model.quantization import FP8, OTHER
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import table

PAGE = ROOT / "docs" / "models.md"
NEMOTRON = known()["nemotron-3-super-120b-a12b-nvfp4"]


def text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of a config.json."""
    inner = [config[key] for key in ("text_config", "thinker_config") if key in config]
    return text(inner[0]) if inner else config


def problems(name: Any, own: Any) -> list[tuple[str, str]]:
    """Return (path, found) of every problem."""
    with pytest.raises(ProblemsError) as error:
        find(name, own)
    return [(problem.path, problem.found) for problem in error.value.problems]


# Entries


def test_what_the_issue_names_is_there() -> None:
    hubs = {model.hub for model in known().values()}
    presets = """openai/gpt-oss-120b openai/gpt-oss-20b Qwen/Qwen2.5-7B-Instruct Qwen/Qwen2.5-14B-Instruct Qwen/Qwen2.5-32B-Instruct
        Qwen/Qwen2.5-72B-Instruct mistralai/Mistral-7B-Instruct-v0.3 mistralai/Mistral-Nemo-Instruct-2407 mistralai/Mixtral-8x7B-Instruct-v0.1
        meta-llama/Llama-3.1-8B-Instruct meta-llama/Llama-3.1-70B-Instruct microsoft/phi-4 google/gemma-2-27b-it""".split()
    assert len(presets) == 13
    assert hubs >= set(presets)
    assert hubs >= {"Qwen/Qwen3.5-122B-A10B-FP8", "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3-Omni-30B-A3B-Instruct"}
    assert {NEMOTRON.hub, "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8"} <= hubs
    assert {model.hub for model in known().values() if model.gated} >= {
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-70B-Instruct",
        "google/gemma-2-27b-it",
    }


@pytest.mark.parametrize("model", known().values(), ids=known())
def test_each_entry_is_complete(model: Model) -> None:
    assert model.name == model.name.lower()
    assert model.hub.lower().endswith(model.name.removesuffix("-dflash2"))
    assert all((model.sure, model.source, model.evidence, model.nodes, model.config))
    assert not any((model.tensor, model.pipeline, model.path)), "the plan chooses these"
    assert "--enforce-eager" not in model.args
    # No memory is planned for a model with its own image, so the entry has the sizes of its source.
    chosen = [word for word in model.args if "memory" in word or "max-" in word]
    assert (not chosen and not model.max_model_len) or model.image, "the memory plan chooses these"
    assert model.published.keys() == model.published_by.keys()
    shape = text(model.config)
    wanted = {"model_type", "hidden_size", "num_attention_heads", "vocab_size"}
    wanted |= set() if model.image else {"max_position_embeddings"}
    wanted |= set() if shape["model_type"] in ENCODERS else {"num_key_value_heads"}
    assert wanted <= set(shape)
    lists = [
        shape[key]
        for key in ("layer_types", "layers_block_type", "attn_type_list", "hybrid_override_pattern")
        if key in shape
    ]
    # Nemotron 3 Ultra has no such number.
    layers = shape.get("num_hidden_layers", 108)
    assert {len(each) for each in lists} <= {layers}
    if not model.image:
        assert len(model_shape.shape(model.config).layers) == layers
    assert json.loads(json.dumps(model.facts()))["reference"] == model.hub


@pytest.mark.parametrize("model", known().values(), ids=known())
def test_arguments_fit_each_other(model: Model) -> None:
    assert ("--tool-call-parser" in model.args) == ("--enable-auto-tool-choice" in model.args)
    parser = model.args[model.args.index("--reasoning-parser") + 1] if "--reasoning-parser" in model.args else ""
    # gpt-oss is a reasoning model too: vLLM selects its parser by architecture. Gemma 4 reasons only on request.
    assert model.reasoning is (parser not in ("", "gemma4") or model.config["model_type"] == "gpt_oss")
    assert all(model.revision in each.url and each.url.endswith(each.name) for each in model.files)


@pytest.mark.parametrize("model", [each for each in known().values() if not each.image], ids=lambda model: model.name)
def test_every_release_that_serves_a_model_takes_its_arguments(model: Model) -> None:
    first = vllm_release_checks.number(model.requires.get("since", "0.0.0"))
    releases = [release for release in table.READ.split() if vllm_release_checks.number(release) >= first]
    assert releases
    plugins = [f"{each.argument}=/{each.name}" for each in model.files]
    for release in releases:
        assert vllm_release_checks.parse([*model.args, *plugins], release)[1] == [], release


def test_models_that_are_published_with_an_fp8_cache_have_one() -> None:
    for model in known().values():
        eight = "--kv-cache-dtype" in model.args or quantization.quantization_of(model.config).kv_dtype == "fp8"
        assert eight is ("nvfp4" in model.name or "v4-flash" in model.name), model.name


def test_which_locks_contain_the_encoding_of_gpt_oss() -> None:
    # oss-harmony contains the files that openai-harmony downloads.
    assert "vLLM 0.18.1 needs the encoding's files and TIKTOKEN_ENCODINGS_BASE" in known()["gpt-oss-120b"].notes
    locks = {path: path.read_text(encoding="utf-8") for path in (ROOT / "roles" / "gb10" / "files").glob("vllm-*.lock")}
    assert [path.name for path, text in locks.items() if "\noss-harmony==" not in text] == [
        "vllm-0.18.1-cu129-aarch64-py312.lock"
    ]


@pytest.mark.parametrize(
    ("name", "number", "tolerance"),
    [
        # Published: 125,086,497,008 and 35,951,822,704 with a vision tower and a layer that predicts further tokens;
        # for the sibling model 79,674,391,296.
        ("qwen3.5-122b-a10b-fp8", 122.1e9, 0.001),
        ("qwen3.5-35b-a3b", 34.66e9, 0.001),
        ("qwen3-next-80b-a3b-instruct-fp8", 79_674_391_296, 0),
        ("qwen3.6-35b-a3b-nvfp4", 34.66e9, 0.001),
        ("qwen3.5-122b-a10b-nvfp4", 122.1e9, 0.001),
        # The name; another project counts 26.9e9.
        ("qwen3.8-27b-nvfp4", 26.9e9, 0.001),
        # Published: 123,611,012,096, including 2,942,324,736 that predict further tokens.
        (NEMOTRON.name, 123_611_012_096 - 2_942_324_736, 0.00001),
        # Nano's technical report, and the names.
        ("nemotron-3-nano-30b-a3b-nvfp4", 31.6e9, 0.001),
        ("nemotron-3.5-lightning-30b-a3b-nvfp4", 31.6e9, 0.001),
        ("nemotron-3-ultra-550b-a55b-nvfp4", 550e9, 0.002),
    ],
)
def test_dimensions_of_hybrids_give_the_published_parameters(name: str, number: float, tolerance: float) -> None:
    assert parameters(model_shape.shape(known()[name].config)) == pytest.approx(number, rel=tolerance)


#: The published bytes that are not part of the computed ones, and the relative tolerance for them.
OTHER_BYTES = {
    **dict.fromkeys(
        (
            *("qwen2.5-7b-instruct", "qwen2.5-14b-instruct", "qwen2.5-32b-instruct", "qwen2.5-72b-instruct"),
            *("mistral-7b-instruct-v0.3", "mistral-nemo-instruct-2407", "mixtral-8x7b-instruct-v0.1"),
            *("llama-3.1-8b-instruct", "llama-3.1-70b-instruct", "phi-4"),
        ),
        (0, 0.0),
    ),
    # Two more norms in each layer.
    "gemma-2-27b-it": (847_872, 0.0),
    # The experts' biases are bfloat16. Each layer has a number for each head, and a bias for the output and the router.
    "gpt-oss-120b": (58_696_704, 0.0),
    "gpt-oss-20b": (9_888_768, 0.0),
    "nemotron-3-nano-30b-a3b-nvfp4": (0, 0.012),
    # 62 attention layers are float32: 2 more bytes for each parameter of queries, keys, values and output.
    "minimax-m2.7-nvfp4": (2 * 62 * 3072 * 128 * (2 * 48 + 2 * 8), 0.001),
    # A vision tower; see test_shape.py.
    "gemma-4-26b-a4b-nvfp4": (1_145_700_000, 0.001),
    "gemma-4-31b-it-nvfp4": (1_151_600_000, 0.001),
}


@pytest.mark.parametrize("name", OTHER_BYTES)
def test_dimensions_and_quantization_give_the_published_bytes(name: str) -> None:
    """Mixed precision is left out: the plan does not know the format of each module."""
    model, (other, tolerance) = known()[name], OTHER_BYTES[name]
    computed = model_weights.checkpoint(model_shape.shape(model.config)) + other
    assert computed == pytest.approx(model.weights_bytes, rel=tolerance)


def test_what_the_weights_are_quantized_to() -> None:
    found = {name: quantization.quantization_of(model.config).kind for name, model in known().items()}
    assert {name for name in found if found[name] == FP8} == {
        name for name in found if "fp8" in name or "v4-flash" in name
    }
    assert set(found.values()) == {FP8, OTHER}
    methods = {catalog.quantization_method(model) for model in known().values()}
    assert methods >= {"", "mxfp4", "fp8", "compressed-tensors", "modelopt MIXED_PRECISION", "modelopt NVFP4"}
    schemes = {name: quantization.quantization_of(model.config).scheme for name, model in known().items()}
    assert {name for name in schemes if schemes[name] == "nvfp4"} == {name for name in found if "nvfp4" in name}


# Lookup


FILE = {"name": "p.py", "url": "https://example.org/p.py", "argument": "--reasoning-parser-plugin", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [
        *(
            (name, {}, known()["gpt-oss-120b"])
            for name in ("gpt-oss-120b", "GPT-OSS-120B", "openai/gpt-oss-120b", "OpenAI/GPT-OSS-120b")
        ),
        ("someone/Model-1B", {}, Model("someone/Model-1B", hub="someone/Model-1B", sure=catalog.UNKNOWN)),
        ("/srv/models/tiny", {}, Model("/srv/models/tiny", path="/srv/models/tiny", sure=catalog.UNKNOWN)),
        ("/srv/m", {"tiny": {"path": "/srv/m", "nodes": 2}}, Model("tiny", path="/srv/m", nodes=2, sure=catalog.OWN)),
        ("ME/mine", {"mine": {"hub": "me/Mine"}}, Model("mine", hub="me/Mine", sure=catalog.OWN)),
        (
            "mine",
            {"mine": {"hub": "me/Mine", "files": [FILE], "environment": {"A": "1"}, "weights_bytes": None}},
            Model("mine", hub="me/Mine", files=(File(**FILE),), environment={"A": "1"}, sure=catalog.OWN),
        ),
    ],
)
def test_a_model_is_found_by_its_names(name: str, own: dict[str, Any], expected: Model) -> None:
    assert find(name, own) == expected


def test_single_keys_are_changed() -> None:
    changed = {
        "max_model_len": 4096,
        "args": ["--no-enable-prefix-caching"],
        "config": {"text_config": {"vocab_size": 1}},
        "requires": {"until": "0.32.0"},
    }
    model, before = find("qwen3.5-35b-a3b", {"Qwen3.5-35B-A3B": changed}), known()["qwen3.5-35b-a3b"]
    assert model == replace(
        before,
        max_model_len=4096,
        args=("--no-enable-prefix-caching",),
        config={**before.config, "text_config": {**before.config["text_config"], "vocab_size": 1}},
        requires={"since": "0.17.0", "until": "0.32.0"},
    )
    assert known()["qwen3.5-35b-a3b"] == before, "the catalog is unchanged"


def test_a_folder_takes_the_hubs_place() -> None:
    model = find("llama-3.1-8b-instruct", {"llama-3.1-8b-instruct": {"path": "/srv/models/llama"}})
    assert (model.reference, model.hub, model.gated) == ("/srv/models/llama", "", False)
    assert model.weights_bytes == 16_060_522_496
    fork = find("phi-4", {"phi-4": {"hub": "someone/phi-4"}})
    assert (fork.reference, fork.revision) == ("someone/phi-4", "")


def test_more_ranks_than_the_fewest_nodes_are_no_mistake() -> None:
    assert find("gpt-oss-120b", {"gpt-oss-120b": {"tensor": 2}}).tensor == 2
    assert find("gpt-oss-120b", {"gpt-oss-120b": {"tensor": 2, "pipeline": 2, "nodes": 4}}).nodes == 4


def test_a_person_can_read_it() -> None:
    assert describe(NEMOTRON) == [
        f"{NEMOTRON.name}: {NEMOTRON.hub} at 445d56f38229, 80.3 GB of weights, modelopt MIXED_PRECISION",
        "  on 1 Spark of 128 GB or more",
        "  vLLM since 0.24.0",
        "  reasoning model",
        "  --reasoning-parser nemotron_v3 --enable-auto-tool-choice --tool-call-parser qwen3_xml "
        "--attention-backend FLASHINFER --moe-backend auto --mamba-cache-mode align "
        """--speculative-config '{"method":"mtp","num_speculative_tokens":3}'""",
        f"  confidence: {NEMOTRON.sure}",
    ]
    (file,) = known()["qwen3-reranker-0.6b"].files
    assert f"  with {file.name} for {file.argument}" in describe(known()["qwen3-reranker-0.6b"])
    deepseek = known()["deepseek-v4-flash"]
    assert f"  in {deepseek.image}, unless gb10_container_image is set" in describe(deepseek)
    assert describe(Model("x", hub="a/x", gated=True)) == [
        "x: a/x, weights of unknown size",
        "  gated: needs a Hugging Face token",
        "  confidence: not in the catalog; add what is known of it to gb10_models (docs/models.md)",
    ]


def test_the_page_is_current() -> None:
    assert_recorded(PAGE, page(PAGE.read_text(encoding="utf-8")))


def test_older_models_are_last_on_the_page() -> None:
    listed, _title, older = page("# Models\n").partition("\n## Older models\n")
    names, last = known(), catalog.older()
    assert {name for name in names if f"| `{name}` |" in older} == last
    assert {name for name in names if f"\n## {name}\n" in listed} == names.keys() - last
    assert {*list(names)[-len(last) :]} == last
    assert not any(names[name].published for name in last)


def test_every_draft_of_the_catalog_has_a_known_size() -> None:
    found = {draft.hub: draft for model in known().values() if (draft := catalog.draft(model.args))}
    assert found == {draft.hub: draft for family in families() for draft in family.drafts}
    assert all(draft.weights_bytes and draft.revision for draft in found.values())


# Errors


def fix_of(name: Any, own: Any = None) -> str:
    with pytest.raises(ProblemsError) as error:
        find(name, own)
    (problem,) = error.value.problems
    return problem.fix


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("gpt-oss-12b", "gpt-oss-120b"),
        ("qwen2.5-72b", "qwen2.5-72b-instruct"),
        ("Llama-3.1-8B", "llama-3.1-8b-instruct"),
        ("NVIDIA-Nemotron-3-Super-120B-A12B", "nemotron-3-super-120b-a12b-nvfp4"),
        ("myne", "perhaps use mine"),
        ("zzzzzz", "docs/models.md"),
        *((name, "") for name in (" ", "a/b/c", "./model", "-x", 5)),
    ],
)
def test_an_unknown_name_is_refused_and_close_names_are_offered(name: Any, close: str) -> None:
    own = {"mine": {"hub": "me/Mine"}}
    assert problems(name, own) == [("gb10_model", f"unknown model {name!r}")]
    assert close in fix_of(name, own)


@pytest.mark.parametrize("name", ["", None])
def test_no_model_is_named(name: Any) -> None:
    assert problems(name, {}) == [("gb10_model", "it is empty")]


def test_the_hub_name_of_two_entries_is_that_of_the_one_without_a_draft() -> None:
    plain, drafted = find("qwen3.8-27b-nvfp4"), find("Qwen3.8-27B-NVFP4-DFlash2")
    assert find("nvidia/Qwen3.8-27B-NVFP4") == plain
    assert all(getattr(plain, key) == getattr(drafted, key) for key in ("hub", "revision", "weights_bytes", "config"))
    assert drafted.args[: len(plain.args)] == plain.args
    draft = Draft("z-lab/Qwen3.8-27B-DFlash2", "50307d4c4cde6860d4eee73e2547cd786fe8e8a4", 3_848_808_960)
    assert (catalog.draft(plain.args), catalog.draft(drafted.args)) == (None, draft)
    assert catalog.draft([*drafted.args, f"{drafts.OPTION}.revision=main"]) == replace(draft, revision="main")


DRAFTED = {"hub": "owner/model", "args": ["--speculative-config", '{"model": "owner/draft"}']}


@pytest.mark.parametrize(
    ("name", "own", "named"),
    [
        ("microsoft/phi-4", {"long": {"hub": "microsoft/PHI-4"}}, "phi-4 and long"),
        ("nvidia/Qwen3.8-27B-NVFP4", {"mine": {"hub": "nvidia/Qwen3.8-27B-NVFP4"}}, "qwen3.8-27b-nvfp4 and mine"),
        ("owner/model", {"one": DRAFTED, "two": DRAFTED}, "one and two"),
    ],
)
def test_a_hub_name_of_several_entries_is_a_problem(name: str, own: dict[str, Any], named: str) -> None:
    assert problems(name, own) == [("gb10_model", f"{name!r} is the Hugging Face Hub name of {named}")]
    assert [find(each, own).name for each in own] == [*own]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hub", "no-owner"),
        ("path", "relative/folder"),
        ("revision", 5),
        ("weights_bytes", "65 GB"),
        ("weights_bytes", 0),
        ("weights_bytes", True),
        ("config", ["hidden_size"]),
        ("reasoning", "yes"),
        ("gated", 1),
        ("args", "--tool-call-parser hermes"),
        ("args", ["--port", 8000]),
        ("environment", {"A": 1}),
        ("environment", ["A=1"]),
        ("files", {"name": "x"}),
        ("files", [{"name": "x", "url": "https://example.org/x"}]),
        ("files", [{"name": "x", "url": "http://example.org/x", "argument": "--x", "sha256": "0" * 64}]),
        ("files", [{"name": "..", "url": "https://example.org/x", "argument": "--x", "sha256": "0" * 64}]),
        ("files", [{"name": "../x", "url": "https://example.org/x", "argument": "--x", "sha256": "0" * 64}]),
        ("files", [{"name": "x", "url": "https://example.org/x", "argument": "--x", "sha256": "abc"}]),
        ("files", [{"name": "x", "url": "https://example.org/x", "argument": "--x"}]),
        (
            "files",
            [{"name": "x", "url": "https://example.org/x", "argument": "--x", "sha256": "0" * 64, "mode": "0644"}],
        ),
        ("nodes", -1),
        ("tensor", 2.0),
        ("pipeline", "2"),
        ("max_model_len", None),
        ("quantization", None),
        ("requires", {"from": "0.17.0"}),
        ("requires", {"since": "newest"}),
        ("requires", "0.17.0"),
        ("published", {"one": [57, 60]}),
        ("published", {"1": [60, 57]}),
        ("published", {"1": [57]}),
        ("published", [57, 60]),
        ("published_by", {"1": 5}),
        ("image", "vllm/vllm-openai:v0.28.0"),
        ("image", "vllm/vllm-openai@sha256:abc"),
        ("image", 5),
        ("sure", 1),
        ("notes", ["x"]),
    ],
)
def test_a_value_that_its_key_does_not_take(key: str, value: Any) -> None:
    assert problems("phi-4", {"phi-4": {key: value}}) == [(f"gb10_models.phi-4.{key}", f"{value!r}")]


def test_every_key_is_checked() -> None:
    keys = {field for field in Model.__dataclass_fields__ if field != "name"}
    assert set(catalog_checks._KEYS) == keys


@pytest.mark.parametrize(
    ("entry", "path", "found"),
    [
        ({"tensr": 2}, ".tensr", "unknown key"),
        ({"hub": "a/b", "path": "/a/b"}, "", "hub a/b and path /a/b"),
        ({"path": "/a", "gated": True}, ".gated", "True for a folder"),
        ({"path": "/a", "revision": "main"}, ".revision", "'main' for a folder"),
        ({"tensor": 2, "pipeline": 2, "nodes": 2}, ".pipeline", "tensor 2 times pipeline 2 on 2"),
        ({"tensor": 4, "nodes": 2}, ".tensor", "tensor 4 times pipeline 0 on 2"),
        ({"requires": {"since": "0.20.0", "until": "0.18.1"}}, ".requires", "since 0.20.0 until 0.18.1"),
        ({"args": ["--tensor_parallel_size=2"]}, ".args", "--tensor-parallel-size"),
        ({"args": ["-tp", "2"]}, ".args", "-tp"),
        ({"args": ["--max-model-len", "4096"]}, ".args", "--max-model-len"),
    ],
)
def test_contradictions(entry: dict[str, Any], path: str, found: str) -> None:
    assert problems("phi-4", {"phi-4": entry}) == [(f"gb10_models.phi-4{path}", found)]


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({"gpt-oss-12b": {"nodes": 1}}, [("gb10_models.gpt-oss-12b", "a model without hub and path")]),
        (
            {"openai/gpt-oss-120b": {"nodes": 1}},
            [("gb10_models.openai/gpt-oss-120b", "the name 'openai/gpt-oss-120b'")],
        ),
        ({5: {"hub": "a/b"}}, [("gb10_models.5", "the name 5")]),
        ({"mine": "a/b"}, [("gb10_models.mine", "'a/b'")]),
        (
            {"mine": {"hub": "a/b"}, "Mine": {"hub": "a/c"}},
            [("gb10_models.Mine", "the name differs from mine only in case")],
        ),
        (["mine"], [("gb10_models", "['mine']")]),
        ("mine", [("gb10_models", "'mine'")]),
        (
            {"a": {"nodes": "two", "colour": 1}, "b": {"path": "/b", "gated": True}, "c": 5},
            [
                ("gb10_models.a.nodes", "'two'"),
                ("gb10_models.a.colour", "unknown key"),
                ("gb10_models.b.gated", "True for a folder"),
                ("gb10_models.c", "5"),
            ],
        ),
    ],
)
def test_all_mistakes_in_entries_are_listed_with_an_unknown_name(own: Any, found: list[tuple[str, str]]) -> None:
    assert problems("phi-4", own) == found
    assert problems("nothing-like-it", own) == [*found, ("gb10_model", "unknown model 'nothing-like-it'")]


def test_the_right_name_is_said() -> None:
    assert fix_of("phi-4", {"openai/gpt-oss-120b": {"nodes": 1}}) == "name it gpt-oss-120b"
    assert "use gpt-oss-120b" in fix_of("phi-4", {"gpt-oss-12b": {"nodes": 1}})
    assert fix_of("phi-4", {"phi-4": {"tensr": 2}}) == "perhaps use tensor"


def test_a_wrong_entry_is_not_an_unknown_name_too() -> None:
    assert problems("mine", {"mine": {"hub": "me/Mine", "nodes": "two"}}) == [("gb10_models.mine.nodes", "'two'")]
