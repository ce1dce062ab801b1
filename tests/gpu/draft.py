# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Train a small model and its draft on text like a benchmark's: draft.py FOLDER, with the Python of an environment with
vLLM.

It writes two Llamas, `model` and `draft`, with the tokenizer of the lab's tiny model. Both learn the pages and modules
of the benchmark with other seeds, and that any token can follow random ones: so a draft foresees an answer in text, and
none in random tokens. training.json has the loss of both. Needs a GPU.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import adhoc  # noqa: F401  # finds the core
import moe
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import io_prompts

#: hidden size, layers and training steps of each model.
SIZES = {"model": (512, 6, 900), "draft": (256, 2, 900)}
LENGTH, PROMPT, ANSWER, BATCH, RATE, WARM = 1024, 512, 256, 16, 1e-3, 50
#: Every which row is random tokens, from the first number after the special ones.
RANDOM, SPECIAL = 4, 6
CONVERSATIONS, GAP = 4000, "\n\n"


def conversations(tokenizer: Tokenizer, seed: int) -> torch.Tensor:
    """Return the token IDs of conversations, one after the other: a prompt, and as an answer more text of its kind."""

    def texts(number: int) -> Iterator[str]:
        return io_prompts.texts(PROMPT, ANSWER, number, lambda text: len(tokenizer.encode(text).ids))

    pairs = itertools.islice(zip(texts(seed), texts(seed + 1), strict=False), CONVERSATIONS)
    found = [
        tokenizer.encode(f"<|user|>{prompt}<|end|><|assistant|>{answer.rpartition(GAP)[0]}<|end|>").ids
        for prompt, answer in pairs
    ]
    return torch.tensor([*itertools.chain.from_iterable(found)])


def batches(tokens: torch.Tensor, vocabulary: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield BATCH x LENGTH token IDs: parts of conversations, and random tokens."""
    chance = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(0, len(tokens) - LENGTH, (BATCH,), generator=chance).tolist()
        found = torch.stack([tokens[start : start + LENGTH] for start in starts])
        found[::RANDOM] = torch.randint(SPECIAL, vocabulary, found[::RANDOM].shape, generator=chance)
        yield found


def train(
    config: Mapping[str, Any], steps: int, data: Iterator[torch.Tensor], device: torch.device
) -> tuple[Any, float]:
    """Return the trained model and its last loss on text."""
    torch.manual_seed(moe.SEED)
    model = LlamaForCausalLM(LlamaConfig(**config, use_cache=False)).float().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / WARM) * max(0.05, 1 - step / steps)
    )
    text = 0.0
    for step, batch in zip(range(steps), data, strict=False):
        given = batch.to(device)
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(input_ids=given[:, :-1]).logits.float()
        loss = functional.cross_entropy(logits.flatten(0, 1), given[:, 1:].flatten())
        if step % 50 == 0 or step == steps - 1:
            text = functional.cross_entropy(logits[1].detach(), given[1, 1:]).item()
            sys.stdout.write(f"step {step}: loss {loss.item():.3f}, of text {text:.3f}\n")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.bfloat16(), text


def main(folder: Path, device: torch.device, sizes: Mapping[str, tuple[int, int, int]]) -> None:
    lab = moe.lab()
    documents = dict(lab.documents("dense", *lab.vocabulary()))
    tokenizer = Tokenizer.from_str(json.dumps(documents["tokenizer.json"]))
    began = time.monotonic()
    tokens = conversations(tokenizer, moe.SEED)
    report: dict[str, Any] = {"seconds of text": round(time.monotonic() - began)}
    for name, (hidden, layers, steps) in sizes.items():
        config = documents["config.json"] | {
            "hidden_size": hidden,
            "intermediate_size": 3 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // 64,
            "num_key_value_heads": hidden // 128,
            "head_dim": 64,
            "torch_dtype": "bfloat16",
        }
        began = time.monotonic()
        model, loss = train(config, steps, batches(tokens, tokenizer.get_vocab_size(), moe.SEED), device)
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, document in documents.items():
            moe.write(folder / name / file, document)
        moe.write(folder / name / "config.json", config)
        weights = {key: value.cpu().contiguous() for key, value in model.state_dict().items()}
        save_file(weights, folder / name / "model.safetensors", metadata={"format": "pt"})
        report[name] = {"loss": loss, "seconds": round(time.monotonic() - began)}
    moe.write(folder / "training.json", report)


if __name__ == "__main__":
    main(Path(sys.argv[1]), torch.device("cuda"), SIZES)
