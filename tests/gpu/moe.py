"""Make a small Qwen3-MoE with random weights: moe.py FOLDER, run by the Python of an environment that vLLM is installed in.

Four folders come of it, the same weights in each: `bf16`, and in FP8 `block`, with a scale for each block of 128 x 128, `channel`, with a
scale for each output as compressed-tensors has it, and `static`, with one scale for a weight and one for its inputs. Tokenizer and
vocabulary are those of the lab's tiny model.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, EXPERTS, EXPERT_SIZE, TOP = 1024, 16, 4, 64, 4, 16, 512, 4
BLOCK = 128
#: The largest input of a projection that has a scale for its inputs; larger ones are cut off.
LARGEST_INPUT = 16.0
FP8_MAX = torch.finfo(torch.float8_e4m3fn).max
#: What stays in 16 bits.
IGNORED = ["lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(LAYERS))]
QUANTIZATION: dict[str, dict[str, Any] | None] = {
    "bf16": None,
    "block": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": IGNORED,
    },
    "static": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": IGNORED},
    "channel": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "ignore": IGNORED,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False},
                "input_activations": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True},
            }
        },
    },
}


def lab() -> ModuleType:
    """Return the program that makes the lab's model."""
    spec = importlib.util.spec_from_file_location("make_model", Path(__file__).parents[2] / "roles/lab/files/make_model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shapes() -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield name and shape (outputs, inputs) of every projection."""
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "self_attn.q_proj", (HEADS * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.k_proj", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.v_proj", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.o_proj", (HIDDEN, HEADS * HEAD_DIM)
        yield prefix + "mlp.gate", (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            yield f"{prefix}mlp.experts.{expert}.gate_proj", (EXPERT_SIZE, HIDDEN)
            yield f"{prefix}mlp.experts.{expert}.up_proj", (EXPERT_SIZE, HIDDEN)
            yield f"{prefix}mlp.experts.{expert}.down_proj", (HIDDEN, EXPERT_SIZE)


def quantized(weight: torch.Tensor, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight in FP8 and the scale of each tile of rows x columns, which divide it."""
    tiles = weight.float().reshape(weight.shape[0] // rows, rows, weight.shape[1] // columns, columns)
    scale = tiles.abs().amax(dim=(1, 3), keepdim=True) / FP8_MAX
    return (tiles / scale).reshape(weight.shape).to(torch.float8_e4m3fn), scale[:, 0, :, 0].contiguous()


def weights(kind: str, vocabulary: int, dull: int) -> dict[str, torch.Tensor]:
    """Return every weight; tokens below ``dull`` never have the highest score."""
    random = torch.Generator().manual_seed(121)

    def matrix(outputs: int, inputs: int, deviation: float) -> torch.Tensor:
        return (torch.randn(outputs, inputs, generator=random) * deviation).to(torch.bfloat16)

    result = {"model.embed_tokens.weight": matrix(vocabulary, HIDDEN, 0.2), "lm_head.weight": matrix(vocabulary, HIDDEN, 4 * HIDDEN**-0.5)}
    result["lm_head.weight"][:dull] = 0
    for name, (outputs, inputs) in shapes():
        # A router that is sure of itself, as a trained one is: rounding does not often change the experts.
        weight = matrix(outputs, inputs, (4 if name.endswith("mlp.gate") else 1) * inputs**-0.5)
        if kind == "bf16" or name in IGNORED:
            result[f"{name}.weight"] = weight
        elif kind == "block":
            result[f"{name}.weight"], result[f"{name}.weight_scale_inv"] = quantized(weight, BLOCK, BLOCK)
        elif kind == "channel":
            result[f"{name}.weight"], result[f"{name}.weight_scale"] = quantized(weight, 1, inputs)
        else:
            result[f"{name}.weight"], scale = quantized(weight, outputs, inputs)
            result[f"{name}.weight_scale"] = scale.reshape(())
            result[f"{name}.input_scale"] = torch.tensor(LARGEST_INPUT / FP8_MAX)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        sizes = {"self_attn.q_norm": HEAD_DIM, "self_attn.k_norm": HEAD_DIM, "input_layernorm": HIDDEN, "post_attention_layernorm": HIDDEN}
        for name, size in sizes.items():
            result[f"{prefix}{name}.weight"] = torch.ones(size, dtype=torch.bfloat16)
    return result | {"model.norm.weight": torch.ones(HIDDEN, dtype=torch.bfloat16)}


def main(folder: Path) -> None:
    model = lab()
    tokens, merges = model.vocabulary()
    for kind, quantization in QUANTIZATION.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        documents = dict(model.documents(tokens, merges))
        config = documents["config.json"] | {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "hidden_size": HIDDEN,
            "intermediate_size": EXPERT_SIZE,
            "moe_intermediate_size": EXPERT_SIZE,
            "num_experts": EXPERTS,
            "num_experts_per_tok": TOP,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "rms_norm_eps": 1e-6,
            "torch_dtype": "bfloat16",
        }
        documents["config.json"] = config | ({"quantization_config": quantization} if quantization else {})
        for name, document in documents.items():
            (folder / kind / name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        save_file(weights(kind, len(tokens), len(model.SPECIAL)), folder / kind / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
