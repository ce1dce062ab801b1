# Copyright: gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a tiny model with random weights that vLLM loads like any other model: make_model.py FOLDER [KIND]

KIND is dense (a Llama), moe (a Qwen3 mixture of experts), embed (a Qwen3 with the files of sentence-transformers, like
Qwen3-Embedding) or rerank (an XLM-RoBERTa with one score, like bge-reranker-v2-m3). Uses the standard library only and
always writes the same bytes. The answers are nonsense, but equal prompts get equal answers at any tensor-parallel size,
as cluster tests need. Heads divide by 4, so tensor parallelism of 1, 2 and (with vLLM's replication of key/value heads)
4 works. Pipeline parallelism works up to the 4 layers.
"""

import array
import fcntl
import json
import os
import random
import shutil
import struct
import sys
from pathlib import Path

SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|unknown|>"]
HIDDEN, HEADS, HEAD_DIM, LAYERS, INTERMEDIATE = 256, 4, 64, 4, 512
# Different values, so that the two models store different data per token.
KV_HEADS = {"dense": 2, "moe": 4, "embed": 2}
EXPERTS, ACTIVE_EXPERTS, EXPERT_INTERMEDIATE = 8, 2, 64
#: RoBERTa's first position is after the padding's, so it has more positions than tokens.
PADDING, POSITIONS = 1, 2048

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_alphabet():
    """Return GPT-2's printable replacement for each of the 256 bytes, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def vocabulary():
    """Return (token -> id, merges): special tokens, all bytes and pairs of letters, so that any text has tokens."""
    alphabet = byte_alphabet()
    letters = "etaoinshrdlucmfw"
    merges = [(a, b) for a in letters for b in letters if a != b]
    tokens = [*SPECIAL, *alphabet, *(a + b for a, b in merges)]
    return {token: number for number, token in enumerate(tokens)}, merges


def shapes(kind, vocab_size):
    """Yield (name, shape) of every weight, in storage order."""
    if kind == "rerank":
        yield from encoder_shapes(vocab_size)
        return
    yield "model.embed_tokens.weight", (vocab_size, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (HIDDEN,)
        yield prefix + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.k_proj.weight", (KV_HEADS[kind] * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.v_proj.weight", (KV_HEADS[kind] * HEAD_DIM, HIDDEN)
        yield prefix + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield prefix + "post_attention_layernorm.weight", (HIDDEN,)
        if kind != "dense":
            yield prefix + "self_attn.q_norm.weight", (HEAD_DIM,)
            yield prefix + "self_attn.k_norm.weight", (HEAD_DIM,)
        if kind != "moe":
            yield from mlp(prefix + "mlp.", INTERMEDIATE)
            continue
        yield prefix + "mlp.gate.weight", (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            yield from mlp(f"{prefix}mlp.experts.{expert}.", EXPERT_INTERMEDIATE)
    yield "model.norm.weight", (HIDDEN,)
    if kind != "embed":
        yield "lm_head.weight", (vocab_size, HIDDEN)


def encoder_shapes(vocab_size):
    """Yield (name, shape) of every weight of XLMRobertaForSequenceClassification."""

    def both(name, rows, columns=0):
        yield f"{name}.weight", (rows, columns) if columns else (rows,)
        yield f"{name}.bias", (rows,)

    yield "roberta.embeddings.word_embeddings.weight", (vocab_size, HIDDEN)
    yield "roberta.embeddings.position_embeddings.weight", (POSITIONS + PADDING + 1, HIDDEN)
    yield "roberta.embeddings.token_type_embeddings.weight", (1, HIDDEN)
    yield from both("roberta.embeddings.LayerNorm", HIDDEN)
    for layer in range(LAYERS):
        prefix = f"roberta.encoder.layer.{layer}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            yield from both(prefix + name, HIDDEN, HIDDEN)
        yield from both(prefix + "attention.output.LayerNorm", HIDDEN)
        yield from both(prefix + "intermediate.dense", INTERMEDIATE, HIDDEN)
        yield from both(prefix + "output.dense", HIDDEN, INTERMEDIATE)
        yield from both(prefix + "output.LayerNorm", HIDDEN)
    yield from both("classifier.dense", HIDDEN, HIDDEN)
    yield from both("classifier.out_proj", 1, HIDDEN)


def mlp(prefix, intermediate):
    """Yield (name, shape) of a gated MLP's weights."""
    yield prefix + "gate_proj.weight", (intermediate, HIDDEN)
    yield prefix + "up_proj.weight", (intermediate, HIDDEN)
    yield prefix + "down_proj.weight", (HIDDEN, intermediate)


def weights(name, shape, rng):
    """Return the float32 values of one weight."""
    if name.endswith(".bias"):
        return array.array("f", bytes(4 * shape[0]))
    if len(shape) == 1:
        return array.array("f", [1.0]) * shape[0]
    rows, columns = shape
    scale = columns**-0.5 * 2
    # Sums of uniforms approximate a normal distribution and, unlike gauss(), are the same on every platform.
    values = array.array("f", (scale * (rng.random() + rng.random() - 1.0) for _number in range(rows * columns)))
    if name == "lm_head.weight":
        # Special tokens always score 0, never the highest of 500, so no answer is empty or ends early. The same holds
        # for
        # bytes outside printable ASCII, so an answer is text.
        dull = [len(SPECIAL) + byte for byte in range(256) if not 0x20 <= byte < 0x7F]
        for row in [*range(len(SPECIAL)), *dull]:
            values[row * columns : (row + 1) * columns] = array.array("f", bytes(4 * columns))
    return values


def write_safetensors(path, kind, vocab_size):
    """Write the safetensors format: length of the header, a JSON header, the raw bytes."""
    rng = random.Random(121)  # the GB10's sm_121
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes(kind, vocab_size):
        size = 4
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(kind, vocab_size):
            values = weights(name, shape, rng)
            if sys.byteorder == "big":
                values.byteswap()
            file.write(values.tobytes())


ARCHITECTURES = {
    "dense": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False},
    "moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": EXPERTS,
        "num_experts_per_tok": ACTIVE_EXPERTS,
        "moe_intermediate_size": EXPERT_INTERMEDIATE,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "embed": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True},
    "rerank": {
        "architectures": ["XLMRobertaForSequenceClassification"],
        "model_type": "xlm-roberta",
        "num_labels": 1,
        "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0},
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "position_embedding_type": "absolute",
        "type_vocab_size": 1,
        "pad_token_id": PADDING,
        "max_position_embeddings": POSITIONS + PADDING + 1,
    },
}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def config(kind, tokens):
    """Return the model's config.json."""
    common = {
        "vocab_size": len(tokens),
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "bos_token_id": tokens["<|begin|>"],
        "eos_token_id": tokens["<|end|>"],
        "torch_dtype": "float32",
    }
    decoder = {
        "num_key_value_heads": KV_HEADS.get(kind),
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    return {**common, **({} if kind == "rerank" else decoder), **ARCHITECTURES[kind]}


def documents(kind, tokens, merges):
    """Return the JSON files that accompany the weights."""
    yield "config.json", config(kind, tokens)
    if kind == "embed":
        yield "modules.json", MODULES
        yield "1_Pooling/config.json", {"word_embedding_dimension": HIDDEN, "pooling_mode_lasttoken": True}
    yield "generation_config.json", {"bos_token_id": tokens["<|begin|>"], "eos_token_id": tokens["<|end|>"]}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    yield (
        "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": tokens[t], "content": t, **flags} for t in SPECIAL],
            "normalizer": None,
            "pre_tokenizer": pre,
            "post_processor": None,
            "decoder": pre,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": tokens,
                "merges": [list(pair) for pair in merges],
            },
        },
    )
    yield (
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|begin|>",
            "eos_token": "<|end|>",
            "unk_token": "<|unknown|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": 2048,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def main(folder, kind="dense"):
    target = Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Several labs may be created at once. The cache folder itself is the lock, held until this process ends.
    fcntl.flock(os.open(target.parent, os.O_RDONLY), fcntl.LOCK_EX)
    if target.exists():
        return
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    tokens, merges = vocabulary()
    for name, document in documents(kind, tokens, merges):
        (part / name).parent.mkdir(exist_ok=True)
        (part / name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_safetensors(part / "model.safetensors", kind, len(tokens))
    # Only a complete model gets its final name, so a later run never uses the remains of a killed one.
    part.rename(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
