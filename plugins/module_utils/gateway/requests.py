# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which requests the gateway accepts, which servers may answer them, and the refusals of all others."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.clients import Client


@dataclass(frozen=True)
class Route:
    """A path of the model's server, and the kinds of models that have it."""

    path: str
    kinds: Sequence[str]


#: Source: vLLM 0.18.1 to 0.33.0. An embedding model compares texts too.
_KINDS: Mapping[str, Sequence[str]] = dict.fromkeys(
    ("/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens"), ("generate",)
) | {"/embeddings": ("embed",), "/rerank": ("rerank", "embed")}
#: Path that clients use -> route. Each takes POST with a model in a JSON body.
ROUTES: Mapping[str, Route] = {
    f"{prefix}{path}": Route(f"/v1{path}", kinds) for prefix in ("/v1", "") for path, kinds in _KINDS.items()
} | {"/v2/rerank": Route("/v2/rerank", _KINDS["/rerank"])}
#: Answered by the gateway: the models of the client; whether the service runs, without a key; the report, for the
#: operator alone.
LISTS, ALIVE, REPORT = ("/v1/models", "/models"), "/health", "/gb10/report"
#: The route whose format of errors is Anthropic's.
_ANTHROPIC = "/messages"
#: The paths whose streams have usage only on request.
_ON_REQUEST = (ROUTES["/chat/completions"].path, ROUTES["/completions"].path)
_DOES = {"generate": "generates text", "embed": "makes embeddings", "rerank": "ranks texts"}
#: json.dumps() would create one for each request. An escape of each character beyond ASCII would need up to 3 times the
#: bytes.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_NAMES = re.compile(r"[A-Za-z0-9_-]+(?:\s*,\s*[A-Za-z0-9_-]+)*")


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
class Target:
    """A server that may answer: the entry's ID, and the model that it serves."""

    id: str
    model: str


@dataclass
class Accepted:
    """A request for a model: its body for the first server, and the servers that may answer, the best first.

    ``usage`` and ``usage_always``: whether the client requested the usage at the end of a stream, and in each event.
    ``resting``: the entries of the model that may rest, and do not answer, with the reason of each. ``named``: the
    model in the body.
    """

    body: bytes
    model: str
    targets: Sequence[Target]
    usage: bool
    usage_always: bool
    resting: Mapping[str, str]
    named: str


@dataclass(frozen=True)
class Gateway:
    """The models by name: the IDs of their entries, and their kind; fallbacks; seconds between two health checks.

    ``wakes``: the IDs of the entries that may rest.
    """

    models: Mapping[str, Sequence[str]]
    kinds: Mapping[str, str]
    fallbacks: Mapping[str, Sequence[str]]
    interval: int
    wakes: Collection[str] = ()


@dataclass(frozen=True)
class Servers:
    """The state of the entries by ID: the last error of each unhealthy one, and the open requests.

    ``turn`` breaks ties.
    """

    errors: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, int] = field(default_factory=dict)
    turn: int = 0


def _wrong(status: int, code: str, message: str) -> Refusal:
    return Refusal(status, "invalid_request_error", code, message)


#: The header that names the requested model if a fallback answers. The body names the one that does.
FALLBACK = "X-Gb10-Fallback-For"
#: The code of a refusal because no server answers.
UNAVAILABLE = "model_unavailable"
UNKNOWN_KEY = _wrong(401, "invalid_api_key", "The API key is missing, unknown or revoked.")
UNKNOWN_ROUTE = _wrong(404, "unknown_url", "The gateway does not have this path or method.")
ENCODED = _wrong(415, "unsupported_encoding", "The gateway takes no compressed bodies.")
NOT_HTTP = _wrong(400, "invalid_request", "The request is not valid HTTP, or its head is too large.")
BROKEN = Refusal(502, "server_error", "answer_incomplete", "The model's server ended its answer early.")
FORBIDDEN = Refusal(403, "permission_error", "forbidden", "This key may not read the report.")
FAILED = Refusal(500, "server_error", "internal_error", "The gateway failed. Its log has the reason.")


def key_of(headers: Mapping[str, str]) -> str:
    """Return the key in a request's headers, "" without one: OpenAI's header, else Anthropic's."""
    scheme, _blank, token = headers.get("Authorization", "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()


def allowed(models: Iterable[str], client: Client | None) -> list[str]:
    """Return the models that a client may use, all for the operator (None)."""
    return [name for name in models if client is None or client.may(name)]


def of_body(code: str) -> Refusal:
    """Return the refusal of a body by the code of `limits`."""
    status, message = limits.REFUSALS[code]
    return _wrong(status, code, message) if status < 500 else Refusal(status, "server_error", code, message, 5)


def accept(
    gateway: Gateway, route: Route, given: dict[str, Any] | Refusal, client: Client | None, servers: Servers
) -> Accepted | Refusal:
    """Return the request of parsed() for a model's servers, or the refusal. ``client``: None for the operator."""
    if isinstance(given, Refusal):
        return given
    model, names = given["model"], allowed(gateway.models, client)
    if model not in names:
        # The same answer for both, so that a key does not show the names of other models.
        return _unknown(model, names)
    if gateway.kinds[model] not in route.kinds:
        return _wrong(400, "wrong_path", _unfit(model, gateway.kinds[model]))
    # Fallbacks of fallbacks do not follow, so a key limits all of them.
    candidates = [model, *(other for other in gateway.fallbacks.get(model, ()) if other in names)]
    targets = [target for name in candidates for target in _healthy(gateway, name, servers)]
    resting = _resting(gateway, model, servers)
    if not targets and not resting:
        reasons = {id_: servers.errors[id_] for name in candidates for id_ in gateway.models[name]}
        return unanswered(gateway, model, reasons)
    return _encoded(given, route, targets, resting)


def _unknown(model: str, names: Iterable[str]) -> Refusal:
    message = f"The model {model[:200]!r} does not exist for this key. Its models: {', '.join(names)}."
    return _wrong(404, "model_not_found", message)


def _unfit(model: str, kind: str) -> str:
    paths = [f"/v1{path}" for path, kinds in _KINDS.items() if kind in kinds]
    return f"The model {model!r} {_DOES[kind]}, so it does not have this path. Its paths: {', '.join(paths)}."


def _healthy(gateway: Gateway, name: str, servers: Servers) -> list[Target]:
    """Return the healthy servers of a model, those with the fewest requests first."""
    ids = gateway.models[name]
    first = servers.turn % len(ids)
    # Sorting keeps the order of equally busy ones.
    order = sorted([*ids[-first:], *ids[:-first]], key=lambda id_: servers.busy.get(id_, 0))
    return [Target(id_, name) for id_ in order if id_ not in servers.errors]


def _resting(gateway: Gateway, name: str, servers: Servers) -> dict[str, str]:
    """Return the servers of a model that may rest, with the reason why each does not answer."""
    asleep = (id_ for id_ in gateway.models[name] if id_ in servers.errors and id_ in gateway.wakes)
    return {id_: servers.errors[id_] for id_ in asleep}


def unanswered(gateway: Gateway, model: str, reasons: Mapping[str, str]) -> Refusal:
    """Return the refusal of a request that no server can answer, with the reason of each."""
    listed = "; ".join(f"{id_}: {reason}" for id_, reason in reasons.items())
    return Refusal(
        503, "server_error", UNAVAILABLE, f"No server of the model answers ({listed}).", gateway.interval, model
    )


def silent(model: str, seconds: float) -> Refusal:
    """Return the answer after the time limit."""
    return Refusal(504, "server_error", "timeout", f"The model's server sent nothing for {seconds:g} s.", model=model)


def _encoded(
    given: dict[str, Any], route: Route, targets: Sequence[Target], resting: Mapping[str, str]
) -> Accepted | Refusal:
    """Write the body again, so that a repeated name cannot mean another thing for the server."""
    stream = given.get("stream")
    if stream is not None and not isinstance(stream, bool):
        return _wrong(400, "invalid_stream", "stream is neither true nor false.")
    options = given.get("stream_options")
    adds = bool(stream) and route.path in _ON_REQUEST and (options is None or isinstance(options, dict))
    asked: dict[str, Any] = options if isinstance(options, dict) else {}
    sent = (
        {**given, "stream_options": {**asked, "include_usage": True, "continuous_usage_stats": True}} if adds else given
    )
    usage = asked.get("include_usage") is True
    always = usage and asked.get("continuous_usage_stats") is True
    # Targets of other models get their name later, if the first ones do not answer.
    first = targets[0].model if targets else given["model"]
    return Accepted(
        encoded(sent, first), given["model"], targets, usage or not adds, always or not adds, resting, first
    )


def encoded(given: Mapping[str, Any], model: str) -> bytes:
    """Return a body for a model. Half of a character, which UTF-8 does not have, stays an escape."""
    text = _ENCODER.encode(given if given["model"] == model else {**given, "model": model})
    return text.encode("utf-8", "backslashreplace")


def parsed(body: bytes) -> dict[str, Any] | Refusal:
    """Return a body with a model."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return _wrong(400, "invalid_json", "The body is not JSON.")
    if not isinstance(given, dict) or not isinstance(given.get("model"), str):
        return _wrong(400, "missing_model", "The body has no model.")
    return given


def refusal_body(refusal: Refusal, path: str) -> bytes:
    """Return the body of a refusal, in the format of the API that the path belongs to."""
    if path.removeprefix("/v1").startswith(_ANTHROPIC):
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
        kinds |= {500: "api_error", 503: "overloaded_error", 504: "timeout_error"}
        return json.dumps(
            {"type": "error", "error": {"type": kinds.get(refusal.status, refusal.kind), "message": refusal.message}}
        ).encode()
    return json.dumps(
        {"error": {"message": refusal.message, "type": refusal.kind, "param": None, "code": refusal.code}}
    ).encode()


def refusal_headers(refusal: Refusal) -> dict[str, str]:
    """Return the headers of a refusal. The clients of OpenAI and Anthropic read x-should-retry."""
    found = {"WWW-Authenticate": "Bearer"} if refusal.status == UNKNOWN_KEY.status else {}
    found |= {"Retry-After": str(refusal.retry)} if refusal.retry else {}
    return found | ({"x-should-retry": "false"} if refusal.code == "timeout" else {})


def fallback(model: str, answered: str) -> dict[str, str]:
    """Return the header of an answer by another model than the requested one."""
    return {FALLBACK: model} if answered != model else {}


def refusal_event(refusal: Refusal, path: str) -> bytes:
    """Return a refusal as the last event of a stream that has begun."""
    name = b"event: error\n" if path.removeprefix("/v1").startswith((_ANTHROPIC, "/responses")) else b""
    return name + b"data: " + refusal_body(refusal, path) + b"\n\n"


def listing(models: Sequence[Mapping[str, Any]], client: Client | None) -> dict[str, dict[str, Any]]:
    """Return the client's models by name, each with its cluster and its context, as in GET /v1/models."""
    rows: dict[str, dict[str, Any]] = {}
    names = allowed((model["name"] for model in models), client)
    for model in (model for model in models if model["name"] in names):
        row = rows.setdefault(
            model["name"], {"id": model["name"], "object": "model", "created": 0, "owned_by": model["cluster"]}
        )
        if model["context"]:
            row["max_model_len"] = min(model["context"], row.get("max_model_len", model["context"]))
    return rows


def listed(rows: Mapping[str, Mapping[str, Any]], path: str) -> bytes | Refusal | None:
    """Return the answer to GET of the list or of one model, None for another path. A name may have slashes."""
    if path in LISTS:
        return json.dumps({"object": "list", "data": list(rows.values())}).encode()
    name = next((path.removeprefix(f"{prefix}/") for prefix in LISTS if path.startswith(f"{prefix}/")), None)
    if name is None:
        return None
    if name not in rows:
        return _unknown(name, rows)
    return json.dumps(rows[name]).encode()


def shared(headers: Mapping[str, str], origins: Sequence[str]) -> dict[str, str]:
    """Return the headers that let the page of a browser read an answer, none for other origins than the listed ones."""
    origin = headers.get("Origin", "")
    if not origin or not (origin in origins or "*" in origins):
        return {}
    exposed = f"Retry-After, {FALLBACK}"
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": exposed, "Vary": "Origin"}


def preflight(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that permit a browser's request of a listed origin. Keys are in headers, so any name is
    harmless."""
    asked = headers.get("Access-Control-Request-Headers", "").strip()
    names = asked if _NAMES.fullmatch(asked) and len(asked) <= 1000 else "authorization, content-type, x-api-key"
    return {
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": names,
        "Access-Control-Max-Age": "600",
    }
