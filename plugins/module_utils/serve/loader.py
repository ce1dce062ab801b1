# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name the loader of large weights on a GB10.

vLLM's own one maps the files into memory, which is slow there: an owner measured 521 s against 88 s for 80 GB without
a mapping. With 90 GB for each of two Sparks, a rank did not end within 80 minutes. InstantTensor reads past the page
cache, each rank a share, and sends it to the others. Sources: NVIDIA's forum, "Very slow mmap on DGX Spark"
(2025-10); vllm-project/vllm#53906; vLLM 0.33.0, model_loader; InstantTensor 0.2.2.
"""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.model import drafts
from ansible_collections.gb10.cluster.plugins.module_utils.rules import mapped
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import Inputs, Part
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.arguments import Arguments

INSTANTTENSOR = "instanttensor"
#: InstantTensor's requests of 8 MiB at a time, on all ranks together. Each rank has a buffer for all of them. Its own
#: 512 take 4 GiB: a report measured 4.4 GiB less for the KV cache (MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204).
_REQUESTS, _FEWEST = 32, 3
#: Its first choice, io_uring, locks the buffers in memory, and ends where the limit of locked memory is low. mmap is
#: for a file system in memory.
_BACKENDS = "AIO,MMAP"


def environment(inputs: Inputs) -> dict[str, str]:
    """Return the variables that limit the memory of the loader, also if the user names it."""
    if not _installed(inputs):
        return {}
    requests = max(_REQUESTS // len(inputs.nodes), _FEWEST)
    return {"INSTANTTENSOR_IO_DEPTH": str(requests), "INSTANTTENSOR_BACKEND": _BACKENDS}


def named(inputs: Inputs, given: Arguments, tensor: int, pipeline: int) -> Part:
    """Name the loader for large weights, unless model or user, whose arguments are ``given``, chose another way.

    Over sockets, sending the shares can take longer than reading all files.
    """
    model = inputs.model
    if not _installed(inputs) or not mapped.slow(model.weights_bytes, tensor * pipeline, inputs.transport):
        return Part()
    if mapped.chosen(given) or mapped.own_format(model.config.type) or not _whole(inputs, given, pipeline):
        return Part()
    word = f"{mapped.LOAD}={INSTANTTENSOR}"
    return Part([word], [f"{word}: mapped files load several times slower on a GB10"])


def _whole(inputs: Inputs, given: Arguments, pipeline: int) -> bool:
    """Whether every rank loads all files, and a draft has safetensors, as far as they were read.

    A draft that only one stage of the pipeline has would wait for the others (vLLM 0.33.0, spec_decode/utils.py).
    """
    named_draft, draft = given.member(drafts.OPTION, "model"), inputs.model.draft
    return not (pipeline > 1 and given.speculative()) and (not named_draft or bool(draft and draft.weights_bytes))


def _installed(inputs: Inputs) -> bool:
    """Whether the lock has the package. An image that has it is not known, and was tested with its own choice."""
    return inputs.on_gb10 and not inputs.model.recipe and INSTANTTENSOR in inputs.packages
