# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name the loader of large weights on a GB10.

InstantTensor reads past the page cache, each rank a share, and sends it to the others; rules/mapped.py has the reason.
Sources: vLLM 0.33.0, model_loader; InstantTensor 0.2.2.
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
    """Return the variables that limit the memory of the loader, also if the user names it for an image."""
    by_user = any(INSTANTTENSOR in word for word in inputs.settings.vllm_extra_args)
    if not _installed(inputs) and not (inputs.on_gb10 and by_user):
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
    if mapped.chosen(given) or mapped.needed(given, model.config.type, pipeline) or not _draft(inputs, given):
        return Part()
    word = f"{mapped.LOAD}={INSTANTTENSOR}"
    return Part([word], [f"{word}: mapped files load several times slower on a GB10"])


def _draft(inputs: Inputs, given: Arguments) -> bool:
    """Whether there is no draft, or one with safetensors, as far as its files were read."""
    draft = inputs.model.draft
    return not given.member(drafts.OPTION, "model") or bool(draft and draft.weights_bytes)


def _installed(inputs: Inputs) -> bool:
    """Whether the lock has the package. An image that has it is not known, and was tested with its own choice."""
    return inputs.on_gb10 and not inputs.model.recipe and INSTANTTENSOR in inputs.packages
