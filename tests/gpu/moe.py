"""Train a small Qwen3-MoE to recite the license: moe.py FOLDER, with the Python of an environment with vLLM.

It writes the same weights to four folders: `bf16`, and in FP8 `block` (a scale for each block of 128 x 128), `channel`
(a scale for each output, as in compressed-tensors) and `static` (one scale for a weight and one, measured, for its
inputs). Tokenizer and vocabulary are those of the lab's tiny model. `passages.json` contains the passages as token IDs,
each with an opening and its answer. `training.json` contains the results of the training. Needs a GPU; on the same GPU
the weights are the same every time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "COPYING"
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, EXPERTS, EXPERT_SIZE, TOP = 1024, 16, 4, 64, 4, 16, 512, 4
#: Number of passages, evenly spread over the text, and the tokens of an opening and of an answer.
PASSAGES, OPENING, ANSWER = 32, 32, 48
SEED, RATE, MOST_STEPS, LOOK = 121, 5e-4, 1500, 25
#: The training ends when each right token's logit exceeds every other by this margin. Rounding to FP8 changes logits by
#: less.
MARGIN = 10.0
BLOCK = 128
FP8_MAX = torch.finfo(torch.float8_e4m3fn).max
#: Modules that stay in 16 bits.
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
                "input_activations": {
                    "num_bits": 8,
                    "type": "float",
                    "symmetric": True,
                    "strategy": "token",
                    "dynamic": True,
                },
            }
        },
    },
}


def lab() -> ModuleType:
    """Return the module that creates the lab's model."""
    spec = importlib.util.spec_from_file_location("make_model", ROOT / "tests/lab/roles/lab/files/make_model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def passages(tokenizer: Tokenizer) -> torch.Tensor:
    """Return token IDs: a row for each passage, its opening and then its answer.

    Exits if two passages have the same opening.
    """
    tokens = tokenizer.encode(TEXT.read_text(encoding="utf-8")).ids
    length = OPENING + ANSWER
    rows = [
        tokens[start : start + length]
        for start in (number * (len(tokens) - length) // (PASSAGES - 1) for number in range(PASSAGES))
    ]
    if len({tuple(row[:OPENING]) for row in rows}) < PASSAGES:
        sys.exit("two passages have the same opening")
    return torch.tensor(rows)


def train(
    config: Mapping[str, Any], rows: torch.Tensor, device: torch.device
) -> tuple[Qwen3MoeForCausalLM, dict[str, Any]]:
    """Return the trained model, and {steps, loss, margin, seconds}. Exits if the training does not converge."""
    began = time.monotonic()
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    settings = Qwen3MoeConfig(**config, attn_implementation="eager", experts_implementation="eager", use_cache=False)
    model = Qwen3MoeForCausalLM(settings).float().to(device)
    rows = rows.to(device)
    right = rows[:, OPENING:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(MOST_STEPS):
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(input_ids=rows[:, :-1]).logits[:, OPENING - 1 :].float()
        loss = functional.cross_entropy(logits.flatten(0, 1), right.flatten())
        if step % LOOK == 0:
            margin = lead(logits.detach(), right)
            sys.stdout.write(f"step {step}: loss {loss.item():.6f}, margin {margin:.3f}\n")
            if margin >= MARGIN:
                return model.bfloat16(), {
                    "steps": step,
                    "loss": loss.item(),
                    "margin": margin,
                    "seconds": time.monotonic() - began,
                }
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    sys.exit(f"after {MOST_STEPS} steps the model does not recite")


def lead(logits: torch.Tensor, right: torch.Tensor) -> float:
    """Return the least difference between a right token's logit and the best other one; negative if a token is
    wrong."""
    index = right.unsqueeze(-1)
    return float((logits.gather(-1, index) - logits.scatter(-1, index, float("-inf")).amax(-1, keepdim=True)).min())


@torch.no_grad()
def largest_inputs(model: Qwen3MoeForCausalLM, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the largest input magnitude of each projection on the passages, over all experts of a layer."""
    found: dict[str, torch.Tensor] = {}

    def linear(name: str) -> Any:
        return lambda _, arguments: found.update({name: arguments[0].abs().amax()})

    def experts(name: str) -> Any:
        def look(layer: torch.nn.Module, arguments: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
            states, chosen, _ = arguments
            between = []
            for expert in chosen.unique().tolist():
                gate, up = functional.linear(states[(chosen == expert).any(-1)], layer.gate_up_proj[expert]).chunk(
                    2, -1
                )
                between.append((functional.silu(gate) * up).abs().amax())
            for expert in range(EXPERTS):
                found[f"{name}.{expert}.gate_proj"] = found[f"{name}.{expert}.up_proj"] = states.abs().amax()
                found[f"{name}.{expert}.down_proj"] = torch.stack(between).amax()

        return look

    hooks = []
    for name, part in model.named_modules():
        if name.endswith("_proj"):
            hooks.append(part.register_forward_pre_hook(linear(name)))
        elif name.endswith(".experts"):
            hooks.append(part.register_forward_pre_hook(experts(name)))
    model(input_ids=rows.to(model.device))
    for hook in hooks:
        hook.remove()
    return {name: value.float().cpu() for name, value in found.items()}


def checkpoint(model: Qwen3MoeForCausalLM) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every weight with its name in a checkpoint, in which each expert's weights are separate."""
    for name, weight in model.state_dict().items():
        prefix, _, last = name.rpartition(".")
        if last == "gate_up_proj":
            for expert, (gate, up) in enumerate(each.chunk(2) for each in weight.cpu()):
                yield f"{prefix}.{expert}.gate_proj.weight", gate.contiguous()
                yield f"{prefix}.{expert}.up_proj.weight", up.contiguous()
        elif last == "down_proj":
            for expert, down in enumerate(weight.cpu()):
                yield f"{prefix}.{expert}.down_proj.weight", down.contiguous()
        else:
            yield name, weight.cpu().contiguous()


def quantized(weight: torch.Tensor, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight in FP8 and the scale of each tile of ``rows`` x ``columns``, which must divide its shape."""
    tiles = weight.float().reshape(weight.shape[0] // rows, rows, weight.shape[1] // columns, columns)
    scale = tiles.abs().amax(dim=(1, 3), keepdim=True) / FP8_MAX
    return (tiles / scale).reshape(weight.shape).to(torch.float8_e4m3fn), scale[:, 0, :, 0].contiguous()


def stored(
    kind: str, weights: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the weights in the kind's format. ``inputs``: see largest_inputs."""
    result = {}
    for full, weight in weights.items():
        name = full.removesuffix(".weight")
        if kind == "bf16" or not name.endswith("_proj"):
            result[full] = weight
        elif kind == "block":
            result[full], result[f"{name}.weight_scale_inv"] = quantized(weight, BLOCK, BLOCK)
        elif kind == "channel":
            result[full], result[f"{name}.weight_scale"] = quantized(weight, 1, weight.shape[1])
        else:
            result[full], scale = quantized(weight, *weight.shape)
            result[f"{name}.weight_scale"] = scale.reshape(())
            result[f"{name}.input_scale"] = inputs[name] / FP8_MAX
    return result


def configuration(documents: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json, derived from the lab's."""
    result: dict[str, Any] = documents["config.json"] | {
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
    return result


def digest(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the digest of all weights, to compare two trainings."""
    result = hashlib.sha256()
    for name in sorted(weights):
        result.update(name.encode() + weights[name].view(torch.int16).numpy().tobytes())
    return result.hexdigest()


def write(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(folder: Path, device: torch.device) -> None:
    # Otherwise cuBLAS may add in a different order in each run.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    model = lab()
    documents = dict(model.documents("dense", *model.vocabulary()))
    config = configuration(documents)
    rows = passages(Tokenizer.from_str(json.dumps(documents["tokenizer.json"])))
    trained, training = train(config, rows, device)
    weights, inputs = dict(checkpoint(trained)), largest_inputs(trained, rows)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, quantization in QUANTIZATION.items():
        (folder / kind).mkdir(exist_ok=True)
        for name, document in documents.items():
            write(folder / kind / name, document)
        write(folder / kind / "config.json", config | ({"quantization_config": quantization} if quantization else {}))
        save_file(stored(kind, weights, inputs), folder / kind / "model.safetensors", metadata={"format": "pt"})
    write(folder / "passages.json", [{"opening": row[:OPENING], "answer": row[OPENING:]} for row in rows.tolist()])
    write(folder / "training.json", training | {"weights": digest(weights)})


if __name__ == "__main__":
    main(Path(sys.argv[1]), torch.device("cuda"))
