"""A fixture that imitates a vLLM server with the API's guard, for real clients. It runs no model.

Routes, middleware and answers have the form of vLLM 0.33.0. tests/support/fake_backend.py imitates faults of servers,
and this one the protocol that clients parse. Without a tool, the text is "one two three". From 1,000 requested tokens
on, an answer takes a minute. The environment has VLLM_API_KEY. --ssl-certfile and --ssl-keyfile are vLLM's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from gb10_api_guard import Guard  # type: ignore[import-not-found]  # A copy of the files, as on the head.
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("port", type=int)
parser.add_argument("model")
parser.add_argument("origins", nargs="*")
parser.add_argument("--ssl-certfile")
parser.add_argument("--ssl-keyfile")
given = parser.parse_args()
MODEL = given.model
PROMPT_TOKENS = 7
#: Words of a long answer, and the seconds of each.
LONG, PAUSE = 1200, 0.05
VALUES = {"string": "Paris", "integer": 2}
_running = 0


@dataclass(frozen=True)
class Reply:
    """An answer: its words, or the name of a tool that it calls. ``words`` of a call are the parts of its arguments."""

    words: Sequence[str]
    tool: str = ""

    @property
    def text(self) -> str:
        return "".join(self.words)

    @property
    def pause(self) -> float:
        return PAUSE if len(self.words) == LONG else 0


def filled(schema: Mapping[str, Any]) -> list[str]:
    """Return a JSON value for a schema of an object, in parts."""
    text = json.dumps({name: VALUES[entry["type"]] for name, entry in schema["properties"].items()})
    return [text[:5], text[5:]]


def reply(body: Mapping[str, Any], tools: Mapping[str, Any], schema: Mapping[str, Any] | None) -> Reply:
    """Return the answer to a request. After the result of a tool, it is text."""
    last = body["messages"][-1]
    answered = last["role"] == "tool" or "tool_result" in json.dumps(last["content"])
    if tools and not answered:
        name = next(iter(tools))
        return Reply(filled(tools[name]), name)
    if schema:
        return Reply(filled(schema))
    long = (body.get("max_tokens") or body.get("max_completion_tokens") or 0) >= 1000
    return Reply(["word "] * LONG if long else ["one", " two", " three"])


def chat_reply(body: Mapping[str, Any]) -> Reply:
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body.get("tools") or ()}
    wanted = body.get("response_format") or {}
    return reply(body, tools, wanted["json_schema"]["schema"] if wanted.get("type") == "json_schema" else None)


def chat_usage(count: int) -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "total_tokens": PROMPT_TOKENS + count,
        "completion_tokens": count,
        "prompt_tokens_details": None,
    }


def chat_answer(found: Reply) -> dict[str, Any]:
    call = {"id": "chatcmpl-tool-1", "type": "function", "function": {"name": found.tool, "arguments": found.text}}
    content, calls = (None, [call]) if found.tool else (found.text, [])
    message = {
        "role": "assistant",
        "content": content,
        "refusal": None,
        "annotations": None,
        "tool_calls": calls,
        "reasoning": None,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "tool_calls" if found.tool else "stop",
        "stop_reason": None,
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": chat_usage(len(found.words)),
    }


def chat_events(found: Reply, body: Mapping[str, Any]) -> Iterator[str]:
    options = body.get("stream_options") or {}

    def event(choices: list[dict[str, Any]], count: int, usage: bool) -> str:
        chunk = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": MODEL,
            "choices": choices,
        }
        return f"data: {json.dumps(chunk | ({'usage': chat_usage(count)} if usage else {}))}\n\n"

    def choice(delta: dict[str, Any], finish: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]

    always = bool(options.get("continuous_usage_stats"))
    yield event(choice({"role": "assistant", "content": ""}), 0, always)
    for index, word in enumerate(found.words):
        call: dict[str, Any] = {"index": 0, "function": {"arguments": word}}
        if index == 0:
            call |= {"id": "chatcmpl-tool-1", "type": "function", "function": {"name": found.tool, "arguments": word}}
        yield event(choice({"tool_calls": [call]} if found.tool else {"content": word}), index + 1, always)
    yield event(choice({}, "tool_calls" if found.tool else "stop"), len(found.words), always)
    if options.get("include_usage"):
        yield event([], len(found.words), True)
    yield "data: [DONE]\n\n"


def message_reply(body: Mapping[str, Any]) -> Reply:
    tools = {tool["name"]: tool["input_schema"] for tool in body.get("tools") or ()}
    wanted = (body.get("output_config") or {}).get("format") or {}
    return reply(body, tools, wanted.get("schema"))


def message_answer(found: Reply) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": found.text}
    if found.tool:
        block = {"type": "tool_use", "id": "chatcmpl-tool-1", "name": found.tool, "input": json.loads(found.text)}
    return {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "content": [block],
        "model": MODEL,
        "stop_reason": "tool_use" if found.tool else "end_turn",
        "usage": {"input_tokens": PROMPT_TOKENS, "output_tokens": len(found.words)},
    }


def message_events(found: Reply, _body: Mapping[str, Any]) -> Iterator[str]:
    def event(kind: str, **more: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"

    whole = message_answer(found)
    yield event(
        "message_start",
        message={
            **whole,
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": PROMPT_TOKENS, "output_tokens": 0},
        },
    )
    block = {**whole["content"][0], "input": {}} if found.tool else {"type": "text", "text": ""}
    yield event("content_block_start", index=0, content_block=block)
    for word in found.words:
        delta = (
            {"type": "input_json_delta", "partial_json": word} if found.tool else {"type": "text_delta", "text": word}
        )
        yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    yield event(
        "message_delta", delta={"stop_reason": whole["stop_reason"], "stop_sequence": None}, usage=whole["usage"]
    )
    yield event("message_stop")


def response_reply(body: Mapping[str, Any]) -> Reply:
    """Return the answer to a request of /v1/responses, here always text."""
    return reply({"messages": [{"role": "user", "content": body["input"]}]}, {}, None)


def response_answer(found: Reply) -> dict[str, Any]:
    inputs = {"cached_tokens": 0, "cache_write_tokens": 0, "input_tokens_per_turn": [], "cached_tokens_per_turn": []}
    outputs = {
        "reasoning_tokens": 0,
        "tool_output_tokens": 0,
        "output_tokens_per_turn": [],
        "tool_output_tokens_per_turn": [],
    }
    count = len(found.words)
    usage = {
        "input_tokens": PROMPT_TOKENS,
        "input_tokens_details": inputs,
        "output_tokens": count,
        "output_tokens_details": outputs,
        "total_tokens": PROMPT_TOKENS + count,
    }
    part = {"annotations": [], "text": found.text, "type": "output_text", "logprobs": None}
    message = {"id": "msg_1", "content": [part], "role": "assistant", "status": "completed", "type": "message"}
    unset = (
        "incomplete_details",
        "instructions",
        "metadata",
        "max_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_options",
        "user",
        "text",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "input_messages",
        "output_messages",
        "kv_transfer_params",
        "ec_transfer_params",
        "top_logprobs",
    )
    return dict.fromkeys(unset) | {
        "id": "resp_1",
        "created_at": 1,
        "model": MODEL,
        "object": "response",
        "output": [message],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "background": False,
        "max_output_tokens": 4089,
        "service_tier": "auto",
        "status": "completed",
        "truncation": "disabled",
        "usage": usage,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }


def response_events(found: Reply, _body: Mapping[str, Any]) -> Iterator[str]:
    whole = response_answer(found)
    (message,) = whole["output"]
    (part,) = message["content"]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    item, place = {"output_index": 0}, {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    events: list[tuple[str, dict[str, Any]]] = [
        ("created", {"response": begun}),
        ("in_progress", {"response": begun}),
        ("output_item.added", {**item, "item": {**message, "content": [], "status": "in_progress"}}),
        ("content_part.added", {**place, "part": {**part, "text": "", "logprobs": []}}),
        *(("output_text.delta", {**place, "delta": word, "logprobs": []}) for word in found.words),
        ("output_text.done", {**place, "text": found.text, "logprobs": []}),
        ("content_part.done", {**place, "part": part}),
        ("output_item.done", {**item, "item": message}),
        ("completed", {"response": whole}),
    ]
    for number, (kind, more) in enumerate(events):
        data = {**more, "sequence_number": number, "type": f"response.{kind}"}
        yield f"event: response.{kind}\ndata: {json.dumps(data)}\n\n"


async def paced(events: Iterator[str], pause: float) -> AsyncIterator[str]:
    global _running  # noqa: PLW0603
    _running += 1
    try:
        for event in events:
            yield event
            await asyncio.sleep(pause)
    finally:
        _running -= 1


async def plain(request: Request, found: Reply, content: dict[str, Any]) -> Response:
    """Answer after all words, or end when the client leaves, as vLLM's with_cancellation does."""
    global _running  # noqa: PLW0603
    _running += 1
    work, gone = asyncio.create_task(asyncio.sleep(found.pause * len(found.words))), asyncio.create_task(left(request))
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        _running -= 1
        work.cancel()
        gone.cancel()
    return JSONResponse(content)


async def left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def answer(request: Request, replied: Any, whole: Any, events: Any) -> Response:
    body = json.loads(await request.body())
    if body["model"] != MODEL:
        text = f"The model `{body['model']}` does not exist."
        if request.url.path == "/v1/messages":
            return JSONResponse({"type": "error", "error": {"type": "not_found_error", "message": text}}, 404)
        return JSONResponse({"error": {"message": text, "type": "NotFoundError", "param": "model", "code": 404}}, 404)
    found = replied(body)
    if body.get("stream"):
        return StreamingResponse(paced(events(found, body), found.pause), media_type="text/event-stream")
    return await plain(request, found, whole(found))


async def count_tokens(_request: Request) -> Response:
    return JSONResponse({"input_tokens": PROMPT_TOKENS})


async def models(_request: Request) -> Response:
    entry = {
        "id": MODEL,
        "object": "model",
        "created": 1,
        "owned_by": "vllm",
        "root": MODEL,
        "parent": None,
        "max_model_len": 4096,
        "permission": [],
    }
    return JSONResponse({"object": "list", "data": [entry]})


async def health(_request: Request) -> Response:
    return Response()


async def metrics(_request: Request) -> Response:
    return PlainTextResponse(f'vllm:num_requests_running{{engine="0",model_name="{MODEL}"}} {_running}.0\n')


async def unknown(_request: Request, _error: Exception) -> Response:
    """FastAPI's answer."""
    return JSONResponse({"detail": "Not Found"}, 404)


class Authentication:
    """vLLM's own check of the key, which is inside of the guard."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        key = dict(scope.get("headers", ())).get(b"authorization")
        guarded = scope["type"] == "http" and scope["method"] != "OPTIONS" and scope["path"].startswith("/v1")
        wrong = guarded and key != f"Bearer {os.environ['VLLM_API_KEY']}".encode()
        await (JSONResponse({"error": "Unauthorized"}, 401) if wrong else self._app)(scope, receive, send)


ROUTES = [
    Route("/health", health),
    Route("/metrics", metrics),
    Route("/v1/models", models),
    Route(
        "/v1/chat/completions",
        partial(answer, replied=chat_reply, whole=chat_answer, events=chat_events),
        methods=["POST"],
    ),
    Route(
        "/v1/responses",
        partial(answer, replied=response_reply, whole=response_answer, events=response_events),
        methods=["POST"],
    ),
    Route(
        "/v1/messages",
        partial(answer, replied=message_reply, whole=message_answer, events=message_events),
        methods=["POST"],
    ),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
]

if __name__ == "__main__":
    app = Starlette(routes=ROUTES, exception_handlers={404: unknown})
    # vLLM's order: each one is around those before it.
    app.add_middleware(CORSMiddleware, allow_origins=given.origins, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(Authentication)
    app.add_middleware(Guard)
    tls = {"ssl_certfile": given.ssl_certfile, "ssl_keyfile": given.ssl_keyfile}
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning", timeout_graceful_shutdown=1, **tls)
