# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The smallest request that shows whether a server works, for each kind of model.

A generating model returns one token, an embedding model one vector, a reranker one score. A server has no route of
another kind. Source: vLLM 0.18.1 to 0.33.0, entrypoints/pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The HTTP status of a route or method that the server does not have.
ABSENT = (404, 405)
_PATHS = {"generate": "/v1/completions", "embed": "/v1/embeddings", "rerank": "/v1/rerank"}
_BODIES: Mapping[str, Mapping[str, Any]] = {
    "generate": {"prompt": "Hello", "max_tokens": 1, "temperature": 0},
    "embed": {"input": "Hello"},
    "rerank": {"query": "Hello", "documents": ["Hello"]},
}
#: The key of the answer's list.
ANSWERS = {"generate": "choices", "embed": "data", "rerank": "results"}
#: vLLM 0.32's error for a vector or a score of NaN, which JSON does not have, and the reason.
_NAN = "Out of range float values"
NOT_FINITE = "numbers that are not finite (NaN or infinite), so the weights or a kernel are wrong"


def reason(error: str) -> str:
    """Return the reason of a server's error: that of a vector or a score of NaN, else the error."""
    return NOT_FINITE if _NAN in error else error


def request(kind: str, model: str) -> tuple[str, dict[str, Any]]:
    """Return path and body of the request to a model of this kind."""
    return _PATHS[kind], {"model": model, **_BODIES[kind]}


def requests(model: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the requests by kind, to find the kind of a server. An embedding model also reranks, so rerank is last."""
    return {kind: request(kind, model) for kind in _PATHS}
