# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which requests the gateway accepts, and their bodies for LiteLLM.

LiteLLM has hundreds of routes, and with custom authentication it leaves their protection to that. So only the listed
routes and headers reach it, and a body keeps no field that controls LiteLLM itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.gateway.clients import OPERATOR, Client

#: Path that clients use -> LiteLLM's path. Each takes POST with a model in a JSON body.
ROUTES: Mapping[str, str] = {
    f"{prefix}{path}": f"/v1{path}"
    for prefix in ("/v1", "")
    for path in ("/chat/completions", "/completions", "/embeddings", "/rerank", "/responses", "/messages", "/messages/count_tokens")
} | {"/v2/rerank": "/v2/rerank"}
#: Answered without LiteLLM: the models of the client; whether the service runs, without a key; the report, for the operator alone.
LISTS, ALIVE, REPORT = ("/v1/models", "/models"), "/health", "/gb10/report"
#: The route whose format of errors is Anthropic's.
_ANTHROPIC = "/messages"
#: Headers that reach LiteLLM. Its own ones control retries, time limits, tags and keys.
HEADERS = frozenset({b"content-type", b"accept", b"user-agent", b"anthropic-version", b"anthropic-beta"})
#: Headers with a key: OpenAI's, and Anthropic's.
_BEARER, _ANTHROPIC_KEY = b"authorization", b"x-api-key"
#: Maximum bytes of a body. A request with images has some megabytes.
MOST = 64 << 20
#: Fields that control the proxy, in addition to LiteLLM's own list.
_CONTROLS = frozenset(
    "adapter_id api_base api_key api_version base_url context_window_fallbacks content_policy_fallbacks deployment_id disable_fallbacks"
    " extra_body extra_headers extra_query fallbacks litellm_params max_retries num_retries policies request_timeout specific_deployment"
    " timeout user_config".split()
)
_CONTROL_PREFIXES = ("_", "mock_", "litellm_", "user_api_key", "router_")


@dataclass(frozen=True)
class Refusal:
    """An answer in place of the model's. ``kind`` is a type of error in OpenAI's API, ``code`` its code.

    ``model``: the model of the gateway that does not answer, "" for any other reason. A client cannot choose that name,
    and so not fill the file of counts.
    """

    status: int
    kind: str
    code: str
    message: str
    #: Seconds for Retry-After, 0 for none.
    retry: int = 0
    model: str = ""


@dataclass(frozen=True)
class Accepted:
    """A request for LiteLLM: its body, the requested model, and the model that answers."""

    body: bytes
    model: str
    target: str


@dataclass(frozen=True)
class Gateway:
    """The models by name, each with the IDs of its entries; fallbacks; seconds between two health checks."""

    models: Mapping[str, Sequence[str]]
    fallbacks: Mapping[str, Sequence[str]]
    interval: int = 15


UNKNOWN_KEY = Refusal(401, "invalid_request_error", "invalid_api_key", "The API key is missing, unknown or revoked.")
UNKNOWN_ROUTE = Refusal(404, "invalid_request_error", "unknown_url", "The gateway does not have this path or method.")
TOO_LARGE = Refusal(413, "invalid_request_error", "request_too_large", f"The request is larger than {MOST >> 20} MiB.")
FORBIDDEN = Refusal(403, "permission_error", "forbidden", "This key may not read the report.")


def key_of(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Return the key in a request's headers, "" without one."""
    given = {name.lower(): value.strip() for name, value in headers}
    scheme, _blank, token = given.get(_BEARER, b"").partition(b" ")
    found = token.strip() if scheme.lower() == b"bearer" else given.get(_ANTHROPIC_KEY, b"")
    return found.decode("utf-8", "surrogateescape")


def accept(
    gateway: Gateway, path: str, body: bytes, client: Client | None, errors: Mapping[str, str], owned: Callable[[str], bool]
) -> Accepted | Refusal:
    """Return the request for LiteLLM, or the refusal.

    ``client``: None for the operator. ``errors``: the last error of each unhealthy entry by its ID. ``owned``: whether
    LiteLLM has a meaning of its own for a field.
    """
    given = _parsed(body)
    if isinstance(given, Refusal):
        return given
    model, names = given["model"], allowed(gateway.models, client)
    if model not in names:
        # The same answer for both, so that a key does not show the names of other models.
        message = f"The model {model[:200]!r} does not exist for this key. Its models: {', '.join(names)}."
        return Refusal(404, "invalid_request_error", "model_not_found", message)
    candidates = [model, *(other for other in gateway.fallbacks.get(model, ()) if other in names)]
    target = next((name for name in candidates if not _down(gateway, name, errors)), "")
    if not target:
        reasons = "; ".join(f"{id_}: {errors[id_]}" for name in candidates for id_ in gateway.models[name])
        return Refusal(503, "server_error", "model_unavailable", f"No server of the model answers ({reasons}).", gateway.interval, model)
    kept = {name: value for name, value in given.items() if not (_controls(name) or owned(name))} | {"model": target}
    if not set(gateway.fallbacks.get(target, ())) <= set(names):
        kept["disable_fallbacks"] = True
    return Accepted(json.dumps(kept | _stream_options(kept, path)).encode(), model, target)


def _stream_options(body: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Request the usage in a stream of completions. LiteLLM requests it itself for chats only."""
    if body.get("stream") is not True or path != ROUTES["/completions"]:
        return {}
    options = body.get("stream_options")
    return {"stream_options": {**(options if isinstance(options, dict) else {}), "include_usage": True}}


def allowed(models: Iterable[str], client: Client | None) -> list[str]:
    """Return the models that a client may use, all for the operator (None)."""
    return [name for name in models if client is None or client.may(name)]


def _parsed(body: bytes) -> dict[str, Any] | Refusal:
    """Return a body with a model."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return Refusal(400, "invalid_request_error", "invalid_json", "The body is not JSON.")
    if not isinstance(given, dict) or not isinstance(given.get("model"), str):
        return Refusal(400, "invalid_request_error", "missing_model", "The body has no model.")
    return given


def _controls(name: str) -> bool:
    return name in _CONTROLS or name.startswith(_CONTROL_PREFIXES)


def _down(gateway: Gateway, name: str, errors: Mapping[str, str]) -> bool:
    return all(id_ in errors for id_ in gateway.models[name])


def refusal_body(refusal: Refusal, path: str) -> bytes:
    """Return the body of a refusal, in the format of the API that the path belongs to."""
    if path.removeprefix("/v1").startswith(_ANTHROPIC):
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 503: "overloaded_error"}
        return json.dumps({"type": "error", "error": {"type": kinds.get(refusal.status, refusal.kind), "message": refusal.message}}).encode()
    return json.dumps({"error": {"message": refusal.message, "type": refusal.kind, "param": None, "code": refusal.code}}).encode()


def listing(models: Sequence[Mapping[str, Any]], client: Client | None) -> bytes:
    """Return the body of GET /v1/models: the client's models, each once, with its clusters and its context."""
    rows: dict[str, dict[str, Any]] = {}
    names = allowed((model["name"] for model in models), client)
    for model in (model for model in models if model["name"] in names):
        row = rows.setdefault(model["name"], {"id": model["name"], "object": "model", "created": 0, "owned_by": model["cluster"]})
        if model["context"]:
            row["max_model_len"] = min(model["context"], row.get("max_model_len", model["context"]))
    return json.dumps({"object": "list", "data": list(rows.values())}).encode()


def counted(client: str) -> bool:
    """Return whether the use of a client is recorded."""
    return client != OPERATOR
