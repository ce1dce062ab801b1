# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When vLLM's own loader, which maps the files of the weights into memory, is slow on a GB10.

An owner measured 521 s against 88 s for 80 GB without a mapping. With 90 GB for each of two Sparks, a rank did not end
within 80 minutes. Sources: NVIDIA's forum, "Very slow mmap on DGX Spark" (2025-10); vllm-project/vllm#53906.
"""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

LOAD = "--load-format"
#: Other ways to choose how the weights are read.
_CHOICES = ("--safetensors-load-strategy", "--model-loader-extra-config", "--config-format", "--config")
#: Bytes on each node whose mapping takes a minute or more.
_LARGE = 8 * 2**30


def slow(weights_bytes: int | None, ranks: int, transport: str) -> bool:
    """Return whether a loader that sends shares of the files between the ranks is quicker.

    ``weights_bytes``: of all files, None if unknown. Over sockets, sending can take longer than reading all files.
    """
    return (weights_bytes or 0) / ranks > _LARGE and transport != "socket"


def chosen(given: Arguments, otherwise: bool = False) -> bool:
    """Return whether arguments choose how the weights are read, in any form; ``otherwise``: in another way than
    vLLM's own loader."""
    own = otherwise and given.argument(LOAD) in ("auto", "hf", "safetensors")
    names = _CHOICES if own else (LOAD, *_CHOICES)
    return any(name.partition(".")[0] in names and given.argument(name) for name in given.values)


def needed(given: Arguments, family: str, stages: int) -> bool:
    """Return whether another loader would harm.

    ``family``: the model_type. Repositories of Mistral's can have own files beside the others: vLLM then reads the
    configuration from its own files, and other loaders read the other weights. A draft that only one of the ``stages``
    has would wait for the others (vLLM 0.33.0, spec_decode/utils.py).
    """
    return "tral" in family or (stages > 1 and bool(given.speculative()))
