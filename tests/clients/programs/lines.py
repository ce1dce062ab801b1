"""The loop of a client's program: it reads the name of a case in each line, and writes the client's result as JSON."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

MODEL = os.environ.get("MODEL", "")
HELLO: Any = [{"role": "user", "content": "Hello"}]
#: Tokens of an answer that takes long, and the seconds that a client waits for it.
LONG, PATIENCE = 1000, 1.0
TEXT = {"type": "string", "description": "A city."}
CITY: Any = {"type": "object", "properties": {"city": TEXT}, "required": ["city"], "additionalProperties": False}
PLACE: Any = {**CITY, "properties": {"city": TEXT, "people": {"type": "integer"}}, "required": ["city", "people"]}
TOOL, RESULT = "weather", "It rains."


async def settled(value: Any) -> Any:
    """Return the result of a synchronous or an asynchronous call."""
    return await value if inspect.isawaitable(value) else value


async def each(stream: Any) -> AsyncIterator[Any]:
    """Yield the parts of a synchronous or an asynchronous stream."""
    if hasattr(stream, "__aiter__"):
        async for part in stream:
            yield part
    else:
        for part in stream:
            yield part


def run(cases: Mapping[str, Callable[[], Awaitable[Any]]]) -> None:
    """Answer each line."""
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            # A client that should have left may have an object of its library.
            print(json.dumps(runner.run(_answer(cases, line.strip())), default=str), flush=True)  # noqa: T201


async def _answer(cases: Mapping[str, Callable[[], Awaitable[Any]]], name: str) -> Any:
    try:
        return await cases[name]()
    except Exception as error:  # noqa: BLE001  # The test compares it.
        body = getattr(error, "body", None)
        return {
            "error": type(error).__name__,
            "status": getattr(error, "status_code", None),
            "body": body,
            "message": str(error),
        }
