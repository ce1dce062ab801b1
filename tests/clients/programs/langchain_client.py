"""LangChain's models for OpenAI's API."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from lines import CITY, LONG, MODEL, PATIENCE, PLACE, RESULT, TOOL, run

TOOLS = [{"title": TOOL, "description": "The weather of a city.", **CITY}]


def model(**more: Any) -> Any:
    return ChatOpenAI(**{"model": MODEL, "stream_usage": True, **more})


def usage(found: Any) -> list[int]:
    return [found.usage_metadata["input_tokens"], found.usage_metadata["output_tokens"]]


def answered(found: Any) -> Any:
    return {"text": found.text, "usage": usage(found)}


def streamed(found: Any) -> Any:
    chunks = list(found)
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return {**answered(whole), "parts": sum(1 for chunk in chunks if chunk.text)}


async def plain() -> Any:
    return answered(model().invoke("Hello"))


async def stream() -> Any:
    return streamed(model().stream("Hello"))


async def responses() -> Any:
    return answered(model(use_responses_api=True).invoke("Hello"))


async def responses_stream() -> Any:
    return streamed(model(use_responses_api=True).stream("Hello"))


async def tools() -> Any:
    able = model().bind_tools(TOOLS)
    found = able.invoke("Hello")
    (call,) = found.tool_calls
    end = able.invoke([("user", "Hello"), found, ToolMessage(RESULT, tool_call_id=call["id"])])
    return {"tool": call["name"], "arguments": call["args"], "text": end.content}


async def tools_stream() -> Any:
    chunks = list(model().bind_tools(TOOLS).stream("Hello"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    (call,) = whole.tool_calls
    return {"tool": call["name"], "arguments": call["args"]}


async def schema() -> Any:
    able = model().with_structured_output({"title": "place", "description": "A place.", **PLACE}, method="json_schema")
    return {"data": able.invoke("Hello")}


async def leave() -> Any:
    found = model(max_tokens=LONG).stream("Hello")
    next(found)
    found.close()
    return {"left": "closed"}


async def leave_plain() -> Any:
    return model(max_tokens=LONG, timeout=PATIENCE, max_retries=0).invoke("Hello")


async def unknown_model() -> Any:
    return model(model="unknown").invoke("Hello")


async def embeddings() -> Any:
    # Without this, the tokenizer of OpenAI's models is downloaded.
    return OpenAIEmbeddings(model=MODEL, check_embedding_ctx_length=False).embed_query("Hello")


async def wrong_key() -> Any:
    return model(api_key="sk-wrong").invoke("Hello")


run(
    {
        case.__name__: case
        for case in (
            plain,
            stream,
            responses,
            responses_stream,
            tools,
            tools_stream,
            schema,
            leave,
            leave_plain,
            unknown_model,
            embeddings,
            wrong_key,
        )
    }
)
