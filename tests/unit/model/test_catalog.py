"""The model catalog: its entries, overrides from the inventory, and every error in an override."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog_data import MODELS
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog_page import page
from ansible_collections.gb10.cluster.plugins.module_utils.model.drafts import Draft
from ansible_collections.gb10.cluster.plugins.module_utils.model.layers import ENCODERS
from ansible_collections.gb10.cluster.plugins.module_utils.model.quantization import FP8, OTHER
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import table

PAGE = ROOT / "docs" / "models.md"
NEMOTRON = known()["nemotron-3-super-120b-a12b-nvfp4"]
BF16 = 2


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
    assert {model.hub for model in known().values() if model.gated} == {
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-70B-Instruct",
        "google/gemma-2-27b-it",
    }


@pytest.mark.parametrize("model", known().values(), ids=known())
def test_each_entry_is_complete(model: Model) -> None:
    entry = MODELS[model.name]
    assert catalog_checks.check_entry(model.name, entry) == []
    assert model.name == model.name.lower()
    draft = drafts.find(model.args)
    assert model.hub.lower().endswith(model.name.removesuffix("-dflash2") if draft else model.name)
    assert all((model.sure, model.source, model.evidence, model.nodes, model.config))
    assert not any((model.tensor, model.pipeline, model.path)), "the plan chooses these"
    assert "--enforce-eager" not in model.args
    assert not [word for word in model.args if "memory" in word or "max-" in word], "the memory plan chooses these"
    shape = text(model.config)
    wanted = {"model_type", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings"}
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
    assert len(model_shape.shape(model.config).layers) == layers
    assert json.loads(json.dumps(model.facts()))["reference"] == model.hub


@pytest.mark.parametrize("model", known().values(), ids=known())
def test_arguments_fit_each_other(model: Model) -> None:
    assert ("--tool-call-parser" in model.args) == ("--enable-auto-tool-choice" in model.args)
    parser = model.args[model.args.index("--reasoning-parser") + 1] if "--reasoning-parser" in model.args else ""
    # gpt-oss is a reasoning model too: vLLM selects its parser by architecture. Gemma 4 reasons only on request.
    assert model.reasoning is (parser not in ("", "gemma4") or model.config["model_type"] == "gpt_oss")
    plugins = [each.name for each in model.files if each.argument == "--reasoning-parser-plugin"]
    assert plugins == ([f"{parser}_reasoning_parser.py"] if parser == "super_v3" else [])


@pytest.mark.parametrize("model", known().values(), ids=known())
def test_every_release_that_serves_a_model_takes_its_arguments(model: Model) -> None:
    first = vllm_release_checks.number(model.requires.get("since", "0.0.0"))
    releases = [release for release in table.READ.split() if vllm_release_checks.number(release) >= first]
    assert releases
    plugins = [f"{each.argument}=/{each.name}" for each in model.files]
    for release in releases:
        assert vllm_release_checks.parse([*model.args, *plugins], release)[1] == [], release


def test_a_cache_type_is_set_only_if_config_json_does_not_name_it() -> None:
    found = {model.name for model in known().values() if "--kv-cache-dtype" in model.args}
    # The config.json of Qwen3.8-27B-NVFP4 was not read.
    assert found == {
        "qwen3.8-27b-nvfp4",
        "qwen3.8-27b-nvfp4-dflash2",
        "qwen3.6-35b-a3b-nvfp4",
        "nemotron-3-nano-30b-a3b-nvfp4",
        "nemotron-3.5-lightning-30b-a3b-nvfp4",
        "nemotron-3-ultra-550b-a55b-nvfp4",
    }
    for model in known().values():
        eight = "--kv-cache-dtype" in model.args or quantization.quantization_of(model.config).kv_dtype == "fp8"
        assert eight is ("nvfp4" in model.name), model.name


def test_which_locks_contain_the_encoding_of_gpt_oss() -> None:
    # oss-harmony contains the files that openai-harmony downloads.
    assert "vLLM 0.18.1 needs the encoding's files and TIKTOKEN_ENCODINGS_BASE" in known()["gpt-oss-120b"].notes
    locks = {path: path.read_text(encoding="utf-8") for path in (ROOT / "roles" / "gb10" / "files").glob("vllm-*.lock")}
    assert [path.name for path, text in locks.items() if "\noss-harmony==" not in text] == [
        "vllm-0.18.1-cu129-aarch64-py312.lock"
    ]


def test_the_plugin_is_pinned() -> None:
    (plugin,) = NEMOTRON.files
    assert NEMOTRON.revision in plugin.url
    assert plugin.url.endswith(plugin.name)
    assert len(plugin.sha256) == 64


def test_an_architecture_that_came_later_says_so() -> None:
    late = {model.name: model.requires["since"] for model in known().values() if model.requires}
    assert late == {
        "qwen3.5-122b-a10b-fp8": "0.17.0",
        "qwen3.5-35b-a3b": "0.17.0",
        "qwen3-omni-30b-a3b-instruct": "0.11.1",
        # Older releases support the kind of layer, but not mixed-precision weights.
        "nemotron-3-super-120b-a12b-nvfp4": "0.17.0",
        # The first releases that others served them with, or that their recipes require.
        "qwen3.8-27b-nvfp4": "0.29.0",
        "qwen3.8-27b-nvfp4-dflash2": "0.30.0",
        "qwen3.6-35b-a3b-nvfp4": "0.24.0",
        "nemotron-3.5-lightning-30b-a3b-nvfp4": "0.27.1",
        "nemotron-3-ultra-550b-a55b-nvfp4": "0.22.0",
        "minimax-m2.7-nvfp4": "0.20.0",
        "gemma-4-26b-a4b-nvfp4": "0.19.1",
        "gemma-4-31b-it-nvfp4": "0.19.1",
        # The first release with the parser nemotron_v3.
        "nemotron-3-nano-30b-a3b-nvfp4": "0.17.1",
        # The first release whose score API is known to use --chat-template.
        "qwen3-reranker-0.6b": "0.18.1",
    }


def attention(shape: Mapping[str, Any]) -> int:
    """Return the number of parameters in a layer's attention, with biases where the family has them."""
    hidden, heads, groups = shape["hidden_size"], shape["num_attention_heads"], shape["num_key_value_heads"]
    size = shape.get("head_dim", hidden // heads)
    queries, keys = heads * size, 2 * groups * size
    bias = {"qwen2": queries + keys, "gpt_oss": queries + keys + hidden + heads}.get(shape["model_type"], 0)
    return hidden * (queries + keys) + queries * hidden + bias


def tensors(shape: Mapping[str, Any]) -> int:
    """Return the bytes of a model with all matrices in BF16, or with experts in MXFP4 as in gpt-oss."""
    hidden, layers, experts = shape["hidden_size"], shape["num_hidden_layers"], shape.get("num_local_experts", 0)
    gemma = shape["model_type"] == "gemma2"
    ends = shape["vocab_size"] * hidden * (1 if gemma else 2) + hidden
    plain = attention(shape) + (4 if gemma else 2) * hidden + experts * hidden
    mlp = 3 * hidden * shape["intermediate_size"]
    if shape["model_type"] != "gpt_oss":
        return BF16 * (ends + layers * (plain + mlp * max(1, experts)))
    # Two numbers per byte, one byte of scale per 32, and biases in BF16 for gate, up, down and the router.
    packed = mlp // 2 + mlp // 32 + BF16 * (2 * shape["intermediate_size"] + hidden)
    return BF16 * (ends + layers * (plain + experts)) + layers * experts * packed


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, model in known().items()
        if model.config["model_type"] in ("qwen2", "mistral", "mixtral", "llama", "phi3", "gemma2", "gpt_oss")
    ],
)
def test_dimensions_give_the_published_bytes(name: str) -> None:
    model = known()[name]
    assert tensors(model.config) == model.weights_bytes


def linear_parameters(shape: Mapping[str, Any]) -> int:
    """Return the parameters in matrices of Qwen3-Next, and of Qwen3.5 to 3.8.

    Not counted: norms, convolutions and layers that predict further tokens.
    """
    hidden, experts = shape["hidden_size"], shape.get("num_experts", 0)
    queries = shape["num_attention_heads"] * shape["head_dim"]
    full = hidden * (2 * queries + 2 * shape["num_key_value_heads"] * shape["head_dim"]) + queries * hidden
    keys = shape["linear_num_key_heads"] * shape["linear_key_head_dim"]
    values = shape["linear_num_value_heads"] * shape["linear_value_head_dim"]
    linear = hidden * (2 * keys + 2 * values + 2 * shape["linear_num_value_heads"]) + values * hidden
    width = (
        experts * shape["moe_intermediate_size"] + shape["shared_expert_intermediate_size"]
        if experts
        else shape["intermediate_size"]
    )
    mlp = 3 * hidden * width + hidden * experts
    every = shape["num_hidden_layers"] // shape["full_attention_interval"]
    return (
        every * full
        + (shape["num_hidden_layers"] - every) * linear
        + shape["num_hidden_layers"] * mlp
        + 2 * shape["vocab_size"] * hidden
    )


def nemotron_parameters(shape: Mapping[str, Any]) -> int:
    """Return the parameters in matrices of Nemotron 3, with the same exceptions."""
    hidden, latent = shape["hidden_size"], shape.get("moe_latent_size", 0)
    codes = {"mamba": "M", "attention": "*", "moe": "E"}
    pattern = shape.get("hybrid_override_pattern") or [codes[name] for name in shape["layers_block_type"]]
    inner, states = shape["mamba_num_heads"] * shape["mamba_head_dim"], 2 * shape["n_groups"] * shape["ssm_state_size"]
    size = shape["head_dim"] * (2 * shape["num_attention_heads"] + 2 * shape["num_key_value_heads"])
    experts = 2 * shape["n_routed_experts"] * (latent or hidden) * shape["moe_intermediate_size"]
    shared = 2 * hidden * (shape["moe_shared_expert_intermediate_size"] + latent) + hidden * shape["n_routed_experts"]
    layers = {"M": hidden * (3 * inner + states + shape["mamba_num_heads"]), "*": hidden * size, "E": experts + shared}
    return sum(layers[letter] for letter in pattern) + 2 * shape["vocab_size"] * hidden


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Published: 125,086,497,008 and 35,951,822,704 with a vision tower and a layer that predicts further tokens;
        # for the sibling model 79,674,391,296.
        ("qwen3.5-122b-a10b-fp8", 122.1e9),
        ("qwen3.5-35b-a3b", 34.66e9),
        ("qwen3-next-80b-a3b-instruct-fp8", 79.674e9),
        ("qwen3.6-35b-a3b-nvfp4", 34.66e9),
        # The name; another project counts 26.9e9.
        ("qwen3.8-27b-nvfp4", 26.9e9),
    ],
)
def test_dimensions_of_hybrids_give_their_parameters(name: str, parameters: float) -> None:
    assert linear_parameters(text(known()[name].config)) == pytest.approx(parameters, rel=0.001)


def test_dimensions_of_nemotron_give_its_parameters() -> None:
    # Published: 123,611,012,096, including 2,942,324,736 that predict further tokens.
    assert nemotron_parameters(NEMOTRON.config) == pytest.approx(123_611_012_096 - 2_942_324_736, rel=0.001)
    assert [NEMOTRON.config["hybrid_override_pattern"].count(letter) for letter in "M*E"] == [40, 8, 40]


@pytest.mark.parametrize(
    ("name", "published", "tolerance"),
    [
        # Nano's technical report, and the names.
        ("nemotron-3-nano-30b-a3b-nvfp4", 31.6e9, 0.001),
        ("nemotron-3.5-lightning-30b-a3b-nvfp4", 31.6e9, 0.001),
        ("nemotron-3-ultra-550b-a55b-nvfp4", 550e9, 0.002),
    ],
)
def test_dimensions_of_its_siblings_give_their_parameters(name: str, published: float, tolerance: float) -> None:
    config = known()[name].config
    assert nemotron_parameters(config) == pytest.approx(published, rel=tolerance)
    assert parameters(model_shape.shape(config)) == pytest.approx(nemotron_parameters(config), rel=0.001)


@pytest.mark.parametrize(
    ("name", "other", "tolerance"),
    [
        ("nemotron-3-nano-30b-a3b-nvfp4", 0, 0.012),
        # 62 attention layers are stored as float32: 2 more bytes for each parameter of queries, keys, values and
        # output.
        ("minimax-m2.7-nvfp4", 2 * 62 * 3072 * 128 * (2 * 48 + 2 * 8), 0.001),
        # A vision tower; see test_shape.py.
        ("gemma-4-26b-a4b-nvfp4", 1_145_700_000, 0.001),
        ("gemma-4-31b-it-nvfp4", 1_151_600_000, 0.001),
    ],
)
def test_dimensions_and_quantization_give_the_published_bytes(name: str, other: int, tolerance: float) -> None:
    """Mixed precision is left out: the plan does not know the format of each module."""
    model = known()[name]
    assert model_weights.checkpoint(model_shape.shape(model.config)) + other == pytest.approx(
        model.weights_bytes, rel=tolerance
    )


def test_what_the_weights_are_quantized_to() -> None:
    found = {name: quantization.quantization_of(model.config).kind for name, model in known().items()}
    assert {name for name in found if found[name] == FP8} == {name for name in MODELS if "fp8" in name}
    assert set(found.values()) == {FP8, OTHER}
    methods = {catalog.quantization_method(model) for model in known().values()}
    assert methods == {"", "mxfp4", "fp8", "compressed-tensors", "modelopt MIXED_PRECISION", "modelopt NVFP4"}
    schemes = {name: quantization.quantization_of(model.config).scheme for name, model in known().items()}
    assert {name for name in schemes if schemes[name] == "nvfp4"} == {name for name in MODELS if "nvfp4" in name}


# Lookup


@pytest.mark.parametrize("name", ["gpt-oss-120b", "GPT-OSS-120B", "openai/gpt-oss-120b", "OpenAI/GPT-OSS-120b"])
def test_a_model_is_found_by_its_names(name: str) -> None:
    assert find(name) == known()["gpt-oss-120b"]


def test_a_model_of_neither_list_is_taken_as_it_is() -> None:
    assert find("someone/Model-1B") == Model("someone/Model-1B", hub="someone/Model-1B", sure=catalog.UNKNOWN)
    assert find("/srv/models/tiny").reference == "/srv/models/tiny"
    assert find("/srv/models/tiny", {"tiny": {"path": "/srv/models/tiny", "nodes": 2}}).name == "tiny"


def test_single_keys_are_changed() -> None:
    changed = {
        "max_model_len": 4096,
        "args": ["--no-enable-prefix-caching"],
        "config": {"text_config": {"vocab_size": 1}},
        "requires": {"until": "0.32.0"},
    }
    model, before = find("qwen3.5-35b-a3b", {"Qwen3.5-35B-A3B": changed}), known()["qwen3.5-35b-a3b"]
    assert model.max_model_len == 4096
    assert model.args == ("--no-enable-prefix-caching",)
    assert model.config["text_config"] == {**before.config["text_config"], "vocab_size": 1}
    assert model.config["model_type"] == "qwen3_5_moe"
    assert model.requires == {"since": "0.17.0", "until": "0.32.0"}
    assert (model.hub, model.sure) == (before.hub, before.sure)
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


def test_an_own_model() -> None:
    file = {
        "name": "p.py",
        "url": "https://example.org/p.py",
        "argument": "--reasoning-parser-plugin",
        "sha256": "0" * 64,
    }
    model = find(
        "mine", {"mine": {"hub": "me/Mine", "files": [file], "environment": {"A": "1"}, "weights_bytes": None}}
    )
    assert model == Model("mine", hub="me/Mine", files=(File(**file),), environment={"A": "1"}, sure=catalog.OWN)
    assert find("ME/mine", {"mine": {"hub": "me/Mine"}}).name == "mine"


def test_a_person_can_read_it() -> None:
    assert describe(NEMOTRON) == [
        f"{NEMOTRON.name}: {NEMOTRON.hub} at 445d56f38229, 80.3 GB of weights, modelopt MIXED_PRECISION",
        "  on 1 Spark of 128 GB or more",
        "  vLLM since 0.17.0",
        "  reasoning model",
        "  --trust-remote-code --reasoning-parser super_v3 --enable-auto-tool-choice --tool-call-parser qwen3_coder "
        "--moe-backend marlin --attention-backend TRITON_ATTN",
        "  with super_v3_reasoning_parser.py for --reasoning-parser-plugin",
        f"  confidence: {NEMOTRON.sure}",
    ]
    assert describe(Model("x", hub="a/x", gated=True)) == [
        "x: a/x, weights of unknown size",
        "  gated: needs a Hugging Face token",
        "  confidence: not in the catalog; add what is known of it to gb10_models (docs/models.md)",
    ]


def test_the_page_is_current() -> None:
    assert_recorded(PAGE, page())


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
    ],
)
def test_close_names_are_offered(name: str, close: str) -> None:
    assert problems(name, {}) == [("gb10_model", f"unknown model {name!r}")]
    assert close in fix_of(name)


def test_own_names_are_offered_too() -> None:
    assert fix_of("myne", {"mine": {"hub": "me/Mine"}}) == "perhaps use mine"
    assert "docs/models.md" in fix_of("zzzzzz")


@pytest.mark.parametrize("name", [" ", "a/b/c", "./model", "-x", 5])
def test_what_names_no_model(name: Any) -> None:
    assert problems(name, {}) == [("gb10_model", f"unknown model {name!r}")]


@pytest.mark.parametrize("name", ["", None])
def test_no_model_is_named(name: Any) -> None:
    assert problems(name, {}) == [("gb10_model", "it is empty")]


def test_the_hub_name_of_two_entries_is_that_of_the_one_without_a_draft() -> None:
    plain, drafted = find("qwen3.8-27b-nvfp4"), find("Qwen3.8-27B-NVFP4-DFlash2")
    assert find("nvidia/Qwen3.8-27B-NVFP4") == plain
    assert (plain.hub, plain.revision, plain.weights_bytes, plain.config) == (
        drafted.hub,
        drafted.revision,
        drafted.weights_bytes,
        drafted.config,
    )
    assert drafted.args[: len(plain.args)] == plain.args
    assert (drafts.find(plain.args), drafts.find(drafted.args)) == (
        None,
        Draft("z-lab/Qwen3.8-27B-DFlash2", *drafts.KNOWN["z-lab/Qwen3.8-27B-DFlash2"]),
    )
    own = {"mine": {"hub": plain.hub}}
    assert problems(plain.hub, own) == [
        ("gb10_model", f"{plain.hub!r} is the Hugging Face Hub name of {plain.name} and mine")
    ]


def test_entries_of_one_hub_name_with_drafts_only_are_a_problem() -> None:
    args = ["--speculative-config", '{"model": "owner/draft"}']
    own = {name: {"hub": "owner/model", "args": args} for name in ("one", "two")}
    assert problems("owner/model", own) == [("gb10_model", "'owner/model' is the Hugging Face Hub name of one and two")]


def test_a_hubs_name_of_several() -> None:
    own = {"long": {"hub": "microsoft/PHI-4", "max_model_len": 16384}}
    assert problems("microsoft/phi-4", own) == [
        ("gb10_model", "'microsoft/phi-4' is the Hugging Face Hub name of phi-4 and long")
    ]
    assert find("long", own).max_model_len == 16384
    assert find("phi-4", own).max_model_len == 0


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
    ("own", "path", "found"),
    [
        ({"gpt-oss-12b": {"nodes": 1}}, "gb10_models.gpt-oss-12b", "a model without hub and path"),
        ({"openai/gpt-oss-120b": {"nodes": 1}}, "gb10_models.openai/gpt-oss-120b", "the name 'openai/gpt-oss-120b'"),
        ({5: {"hub": "a/b"}}, "gb10_models.5", "the name 5"),
        ({"mine": "a/b"}, "gb10_models.mine", "'a/b'"),
        (
            {"mine": {"hub": "a/b"}, "Mine": {"hub": "a/c"}},
            "gb10_models.Mine",
            "the name differs from mine only in case",
        ),
        (["mine"], "gb10_models", "['mine']"),
        ("mine", "gb10_models", "'mine'"),
    ],
)
def test_an_entry_that_is_none(own: Any, path: str, found: str) -> None:
    assert problems("phi-4", own) == [(path, found)]


def test_the_right_name_is_said() -> None:
    assert fix_of("phi-4", {"openai/gpt-oss-120b": {"nodes": 1}}) == "name it gpt-oss-120b"
    assert "use gpt-oss-120b" in fix_of("phi-4", {"gpt-oss-12b": {"nodes": 1}})
    assert fix_of("phi-4", {"phi-4": {"tensr": 2}}) == "perhaps use tensor"


def test_all_mistakes_are_listed_together() -> None:
    own = {"a": {"nodes": "two", "colour": 1}, "b": {"path": "/b", "gated": True}, "c": 5}
    assert problems("nothing-like-it", own) == [
        ("gb10_models.a.nodes", "'two'"),
        ("gb10_models.a.colour", "unknown key"),
        ("gb10_models.b.gated", "True for a folder"),
        ("gb10_models.c", "5"),
        ("gb10_model", "unknown model 'nothing-like-it'"),
    ]


def test_a_wrong_entry_is_not_an_unknown_name_too() -> None:
    assert problems("mine", {"mine": {"hub": "me/Mine", "nodes": "two"}}) == [("gb10_models.mine.nodes", "'two'")]
