# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name the loader of the weights on a GB10.

vLLM's own one maps the files into memory, which is slow there: an owner measured 521 s against 88 s for 80 GB without
a mapping. With 90 GB for each of two Sparks, a rank did not end within 80 minutes. InstantTensor reads past the page
cache, each rank a share, and sends it to the others. Sources: NVIDIA's forum, "Very slow mmap on DGX Spark"
(2025-10); vllm-project/vllm#53906; vLLM 0.33.0, model_loader; InstantTensor 0.2.2.
"""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.model import drafts
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import Inputs, Part
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

LOAD, INSTANTTENSOR = "--load-format", "instanttensor"
#: Other ways to choose how the weights are read. Mistral's format has names of its own.
_CHOSEN = (LOAD, "--safetensors-load-strategy", "--model-loader-extra-config", "--config-format")
#: 32 requests of 8 MiB at a time, each with a buffer. InstantTensor's own 512 take 4 GiB: a report measured 4.4 GiB
#: less for the KV cache (MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204). Its first choice, io_uring, locks the buffers
#: in memory, and ends where the limit of locked memory is low. mmap is for a file system in memory.
_VARIABLES = {"INSTANTTENSOR_IO_DEPTH": "32", "INSTANTTENSOR_BACKEND": "AIO,MMAP"}


def environment(inputs: Inputs) -> dict[str, str]:
    """Return the variables that limit the memory of the loader, also if the user names it."""
    return dict(_VARIABLES) if _installed(inputs) else {}


def named(inputs: Inputs, given: Arguments, pipeline: int) -> Part:
    """Name the loader unless model or user, whose arguments are ``given``, chose another way.

    A draft that only one stage of the pipeline has would wait for the others (vLLM 0.33.0, spec_decode/utils.py).
    """
    if not _installed(inputs) or any(given.argument(name) for name in _CHOSEN) or not _safetensors(inputs, given):
        return Part()
    if pipeline > 1 and given.speculative():
        return Part()
    word = f"{LOAD}={INSTANTTENSOR}"
    return Part([word], [f"{word}: mapped files load several times slower on a GB10"])


def _safetensors(inputs: Inputs, given: Arguments) -> bool:
    """Whether model and draft have safetensors, as far as their files were read. InstantTensor reads nothing else."""
    model, draft = inputs.model, given.member(drafts.OPTION, "model")
    read = model.weights_bytes is not None or not model.config.raw
    return read and (not draft or bool(model.draft and model.draft.weights_bytes))


def _installed(inputs: Inputs) -> bool:
    """Whether the lock has the package. An image that has it is not known, and was tested with its own choice."""
    return inputs.on_gb10 and not inputs.model.recipe and INSTANTTENSOR in inputs.packages
