# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the ways in which vLLM reads weights.

    python3 tests/gpu/loaders.py write FOLDER --like MODEL [--gigabytes 10]
    PYTHON tests/gpu/loaders.py read FOLDER [LOADER ...]

`write` makes a mixture of experts with random weights and the tokenizer of MODEL, a model of moe.py; it needs PyTorch
and a GPU. `read` needs vLLM, and prints JSON for each loader: the seconds until all weights were on the GPU, and the
memory that it took at most besides the weights, on the GPU and of the process. The files are not in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEPTH = "INSTANTTENSOR_IO_DEPTH"
#: Name -> (vLLM's load format, strategy, value of DEPTH).
LOADERS: dict[str, tuple[str, str | None, str]] = {
    "auto": ("auto", None, ""),
    "eager": ("auto", "eager", ""),
    "prefetch": ("auto", "prefetch", ""),
    "fastsafetensors": ("fastsafetensors", None, ""),
    "instanttensor": ("instanttensor", None, "32"),
    "instanttensor-512": ("instanttensor", None, ""),
}
#: Bytes of a file, as in most repositories.
SHARD = 4 << 30
SIZES = {
    "hidden_size": 2048,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 64,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1024,
    "intermediate_size": 1024,
}


def shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the shape of each weight of a Qwen3-MoE."""
    hidden, experts, inner = config["hidden_size"], config["num_experts"], config["moe_intermediate_size"]
    head, heads, kv = config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", (hidden,)
        for name, rows in (("q", heads), ("k", kv), ("v", kv)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows * head, hidden)
        yield f"{prefix}self_attn.o_proj.weight", (hidden, heads * head)
        for name in ("q_norm", "k_norm"):
            yield f"{prefix}self_attn.{name}.weight", (head,)
        yield f"{prefix}mlp.gate.weight", (experts, hidden)
        for expert in range(experts):
            for name in ("gate", "up"):
                yield f"{prefix}mlp.experts.{expert}.{name}_proj.weight", (inner, hidden)
            yield f"{prefix}mlp.experts.{expert}.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def count(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def write(folder: Path, like: Path, gigabytes: float) -> None:
    """Write the model."""
    import torch  # noqa: PLC0415

    config = json.loads((like / "config.json").read_text(encoding="utf-8")) | SIZES
    config.pop("quantization_config", None)
    layer = sum(2 * count(shape) for _name, shape in shapes(config))
    config["num_hidden_layers"] = max(1, int(gigabytes * 1e9 / layer))
    shutil.copytree(like, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json"))
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    files: list[list[tuple[str, tuple[int, ...]]]] = [[]]
    size = 0
    for name, shape in shapes(config):
        if size + 2 * count(shape) > SHARD:
            files.append([])
            size = 0
        files[-1].append((name, shape))
        size += 2 * count(shape)
    index: dict[str, Any] = {"metadata": {"total_size": 0}, "weight_map": {}}
    for number, weights in enumerate(files, 1):
        file_name = f"model-{number:05}-of-{len(files):05}.safetensors"
        header, end = {}, 0
        for name, shape in weights:
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + 2 * count(shape)]}
            index["weight_map"][name] = file_name
            end += 2 * count(shape)
        index["metadata"]["total_size"] += end
        text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        text += b" " * (-len(text) % 8)
        with (folder / file_name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _name, shape in weights:
                scale = 0.02 if len(shape) > 1 else 1.0
                tensor = torch.randn(shape, device="cuda", dtype=torch.bfloat16) * scale
                file.write(tensor.view(torch.int16).cpu().numpy().tobytes())
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def forget(folder: Path) -> None:
    """Remove the files from the page cache."""
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def status(name: str) -> float:
    """Return a size of this process in GiB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name}:")) / 2**20


def read(folder: Path, name: str) -> dict[str, Any]:
    """Return the figures of a loader."""
    import torch  # noqa: PLC0415
    from vllm.config.load import LoadConfig  # noqa: PLC0415
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader  # noqa: PLC0415

    form, strategy, depth = LOADERS[name]
    os.environ.pop(DEPTH, None)
    os.environ.update({DEPTH: depth} if depth else {})
    # As the plan: io_uring needs locked memory.
    os.environ.setdefault("INSTANTTENSOR_BACKEND", "AIO,MMAP")
    loader = DefaultModelLoader(LoadConfig(load_format=form, safetensors_load_strategy=strategy))
    torch.cuda.empty_cache()
    first = lowest = torch.cuda.mem_get_info()[0]
    ended = threading.Event()

    def watch() -> None:
        nonlocal lowest
        while not ended.wait(0.01):
            lowest = min(lowest, torch.cuda.mem_get_info()[0])

    forget(folder)
    # The next reading of VmHWM is the peak from here.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = status("VmRSS")
    watcher = threading.Thread(target=watch)
    watcher.start()
    began, weights, kept = time.monotonic(), 0, []
    try:
        for _name, tensor in loader._get_weights_iterator(DefaultModelLoader.Source(str(folder), None)):
            # As a parameter takes it.
            kept.append(torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda"))
            kept[-1].copy_(tensor)
            weights += tensor.numel() * tensor.element_size()
        torch.cuda.synchronize()
    finally:
        seconds = time.monotonic() - began
        ended.set()
        watcher.join()
    return {
        "loader": name,
        "seconds": round(seconds, 2),
        "gigabytes": round(weights / 1e9, 2),
        "gigabytes_a_second": round(weights / 1e9 / seconds, 2),
        "besides_on_gpu_gib": round((first - lowest - weights) / 2**30, 2),
        "process_gib": round(status("VmHWM") - before, 2),
        "sum": float(sum(each.flatten()[:8].double().sum() for each in kept[:: max(1, len(kept) // 50)])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "read"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("loaders", nargs="*", default=[*LOADERS])
    parser.add_argument("--like", type=Path)
    parser.add_argument("--gigabytes", type=float, default=10)
    options = parser.parse_args()
    if options.command == "write":
        write(options.folder, options.like, options.gigabytes)
        return
    for name in options.loaders:
        try:
            found = read(options.folder, name)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            found = {"loader": name, "error": f"{type(error).__name__}: {error}"[:600]}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
