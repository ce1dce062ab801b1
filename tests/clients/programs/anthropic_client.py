"""Anthropic's library, synchronous. Old versions send the key as x-api-key, and have no JSON schema."""

from __future__ import annotations

import json
from typing import Any

import anthropic
from lines import CITY, HELLO, LONG, MODEL, PATIENCE, PLACE, RESULT, TOOL, run

client = anthropic.Anthropic()
TOOLS: Any = [{"name": TOOL, "description": "The weather of a city.", "input_schema": CITY}]


def ask(given: Any = None, **more: Any) -> Any:
    return (given or client).messages.create(**{"model": MODEL, "max_tokens": 100, "messages": HELLO, **more})


async def plain() -> Any:
    found = ask()
    return {"text": found.content[0].text, "usage": [found.usage.input_tokens, found.usage.output_tokens]}


async def stream() -> Any:
    with client.messages.stream(model=MODEL, max_tokens=100, messages=HELLO) as found:
        parts = list(found.text_stream)
        usage = found.get_final_message().usage
    return {"text": "".join(parts), "parts": len(parts), "usage": [usage.input_tokens, usage.output_tokens]}


async def tools() -> Any:
    found = ask(tools=TOOLS)
    call = next(block for block in found.content if block.type == "tool_use")
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]}
    end = ask(tools=TOOLS, messages=[*HELLO, {"role": "assistant", "content": found.content}, result])
    return {"tool": call.name, "arguments": call.input, "text": end.content[0].text}


async def tools_stream() -> Any:
    with client.messages.stream(model=MODEL, max_tokens=100, messages=HELLO, tools=TOOLS) as found:
        call = next(block for block in found.get_final_message().content if block.type == "tool_use")
    return {"tool": call.name, "arguments": call.input}


async def schema() -> Any:
    found = ask(output_config={"format": {"type": "json_schema", "schema": PLACE}})
    return {"data": json.loads(found.content[0].text)}


async def leave() -> Any:
    found = ask(stream=True, max_tokens=LONG)
    for _event in found:
        break
    found.close()
    return {"left": "closed"}


async def leave_plain() -> Any:
    return ask(client.with_options(timeout=PATIENCE, max_retries=0), max_tokens=LONG)


async def models() -> Any:
    return {"models": [model.id for model in client.models.list().data], "one": client.models.retrieve(MODEL).id}


async def count() -> Any:
    return {"usage": [client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens, 0]}


async def unknown_model() -> Any:
    return ask(model="unknown")


async def wrong_key() -> Any:
    return ask(anthropic.Anthropic(api_key="sk-wrong"))


run(
    {
        case.__name__: case
        for case in (
            plain,
            stream,
            tools,
            tools_stream,
            schema,
            leave,
            leave_plain,
            models,
            count,
            unknown_model,
            wrong_key,
        )
    }
)
