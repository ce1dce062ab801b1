"""OpenAI's library, synchronous or asynchronous: openai_client.py sync|async."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai
from lines import CITY, HELLO, LONG, MODEL, PATIENCE, PLACE, RESULT, TOOL, each, run, settled

client: Any = {"sync": openai.OpenAI, "async": openai.AsyncOpenAI}[sys.argv[1]]()
TOOLS: Any = [
    {"type": "function", "function": {"name": TOOL, "description": "The weather of a city.", "parameters": CITY}}
]


async def chat(given: Any = None, **more: Any) -> Any:
    return await settled((given or client).chat.completions.create(**{"model": MODEL, "messages": HELLO, **more}))


async def plain() -> Any:
    found = await chat()
    return {
        "text": found.choices[0].message.content,
        "usage": [found.usage.prompt_tokens, found.usage.completion_tokens],
    }


async def stream() -> Any:
    parts, usage = [], None
    async for chunk in each(await chat(stream=True, stream_options={"include_usage": True})):
        parts += [choice.delta.content for choice in chunk.choices if choice.delta.content]
        usage = chunk.usage or usage
    return {"text": "".join(parts), "parts": len(parts), "usage": [usage.prompt_tokens, usage.completion_tokens]}


async def tools() -> Any:
    call = (await chat(tools=TOOLS)).choices[0].message
    result = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": RESULT}
    end = await chat(tools=TOOLS, messages=[*HELLO, call.model_dump(exclude_none=True), result])
    function = call.tool_calls[0].function
    return {"tool": function.name, "arguments": json.loads(function.arguments), "text": end.choices[0].message.content}


async def tools_stream() -> Any:
    name, arguments = "", ""
    async for chunk in each(await chat(tools=TOOLS, stream=True)):
        for call in (call for choice in chunk.choices for call in choice.delta.tool_calls or ()):
            name, arguments = name or call.function.name, arguments + (call.function.arguments or "")
    return {"tool": name, "arguments": json.loads(arguments)}


async def schema() -> Any:
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
    return {"data": json.loads((await chat(response_format=wanted)).choices[0].message.content)}


async def respond(**more: Any) -> Any:
    return await settled(client.responses.create(model=MODEL, input="Hello", **more))


async def responses() -> Any:
    found = await respond()
    return {"text": found.output_text, "usage": [found.usage.input_tokens, found.usage.output_tokens]}


async def responses_stream() -> Any:
    events = [event async for event in each(await respond(stream=True))]
    parts = [event.delta for event in events if event.type == "response.output_text.delta"]
    end = events[-1].response
    return {"text": "".join(parts), "parts": len(parts), "usage": [end.usage.input_tokens, end.usage.output_tokens]}


async def leave() -> Any:
    found = await chat(stream=True, max_tokens=LONG)
    async for _chunk in each(found):
        break
    await settled(found.close())
    return {"left": "closed"}


async def leave_plain() -> Any:
    return await chat(client.with_options(timeout=PATIENCE, max_retries=0), max_tokens=LONG)


async def models() -> Any:
    listed = await settled(client.models.list())
    return {"models": [model.id for model in listed.data], "one": (await settled(client.models.retrieve(MODEL))).id}


async def unknown_model() -> Any:
    return await chat(model="unknown")


async def embeddings() -> Any:
    return await settled(client.embeddings.create(model=MODEL, input="Hello"))


async def wrong_key() -> Any:
    return await chat(client.with_options(api_key="sk-wrong"))


run(
    {
        case.__name__: case
        for case in (
            plain,
            stream,
            tools,
            tools_stream,
            schema,
            responses,
            responses_stream,
            leave,
            leave_plain,
            models,
            unknown_model,
            embeddings,
            wrong_key,
        )
    }
)
