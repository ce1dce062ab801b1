"""Measures the gateway against a fast server that imitates vLLM: .venv/bin/python tests/gateway/bench.py, as root on a quiet machine.

One run measures the server directly and through the gateway: requests per second and latency with 1, 8 and 64
connections, and 200 streams at once. Both programs, the server and the load share the machine.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parent.parent
# The program's own folder would hide the package of the same name.
sys.path[:1] = [str(_TESTS / "support"), str(_TESTS), str(_TESTS.parent / ".collections")]

MODEL, SECONDS, STREAMS, WORDS, RATE = "bench", 4.0, 200, 32, 20.0
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
HELLO: Any = [{"role": "user", "content": "Hello"}]
_PLAIN = json.dumps({"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": {"content": "one"}}], "usage": USAGE})
_CHUNK = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [{"index": 0, "delta": {"content": " one"}}]}


class Fake(asyncio.Protocol):
    """A server that answers at once, and streams words at a rate. It reads no JSON."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, body = self.data.partition(b"\r\n\r\n")
        size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if not end or len(body) < size:
            return
        self.data = body[size:]
        if head.startswith(b"GET"):
            self.reply(json.dumps({"data": [{"id": MODEL}]}))
        elif b'"stream":true' in body.replace(b" ", b""):
            self.task = asyncio.ensure_future(self.stream(b"continuous_usage_stats" in body))
        else:
            self.reply(_PLAIN)

    def reply(self, text: str) -> None:
        self.transport.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())

    async def stream(self, usage: bool) -> None:
        """Write words as vLLM does, with the usage in each event if the gateway requested it."""
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
        data = json.dumps(_CHUNK | ({"usage": USAGE} if usage else {}), separators=(",", ":"))
        event = f"data: {data}\n\n"
        for index in range(WORDS):
            await asyncio.sleep(1 / RATE if index else 0)
            self.transport.write(f"{len(event):x}\r\n{event}\r\n".encode())
        last = f"data: {json.dumps(_CHUNK | {'choices': [], 'usage': USAGE})}\n\n" if usage else ""
        end = f"{last}data: [DONE]\n\n"
        self.transport.write(f"{len(end):x}\r\n{end}\r\n0\r\n\r\n".encode())


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Fake, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def request(key: str, **more: Any) -> bytes:
    body = json.dumps({"model": MODEL, "messages": HELLO, **more})
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json"
    return f"{head}\r\nauthorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


async def answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert b" 200 " in head, head
    await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))


async def closed_loop(port: int, key: str, connections: int) -> list[float]:
    """Return the seconds of each request. Each connection sends the next one after an answer."""
    sent, times = request(key), list[float]()
    until = time.perf_counter() + SECONDS

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < until:
            writer.write(sent)
            await answer(reader)
            times.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return times


async def streams(port: int, key: str) -> tuple[list[float], float]:
    """Return the seconds until the first word of each stream, and the words per second of all."""
    sent, firsts = request(key, stream=True), list[float]()
    began = time.perf_counter()

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await reader.readuntil(b"data: {")
        firsts.append(time.perf_counter() - began)
        words = 1
        while b"[DONE]" not in (line := await reader.readline()):
            words += line.startswith(b"data: {") and b'"delta"' in line
        assert words == WORDS, words
        writer.close()

    await asyncio.gather(*(one() for _ in range(STREAMS)))
    return firsts, STREAMS * WORDS / (time.perf_counter() - began)


async def measured(port: int, key: str) -> dict[str, str]:
    rows = {}
    await closed_loop(port, key, 1)
    for connections in (1, 8, 64):
        times = sorted(await closed_loop(port, key, connections))
        p50, p95 = (1000 * times[int(len(times) * part)] for part in (0.5, 0.95))
        rows[f"{connections} connections: requests/s; p50, p95"] = f"{len(times) / SECONDS:.0f}; {p50:.2f}, {p95:.2f} ms"
    firsts, rate = await streams(port, key)
    first = statistics.median(firsts)
    rows[f"{STREAMS} streams: first token p50, p95; tokens/s"] = f"{first:.3f}, {sorted(firsts)[int(STREAMS * 0.95)]:.3f} s; {rate:.0f}"
    return rows


@contextmanager
def fake(port: int) -> Any:
    with subprocess.Popen([sys.executable, __file__, str(port)]) as process:
        try:
            yield process
        finally:
            process.terminate()


def main() -> None:
    from filters import FILTERS  # noqa: PLC0415
    from gateway import proxy  # noqa: PLC0415

    proxy.python()
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    with tempfile.TemporaryDirectory() as folder, proxy.closed_network(), fake(port := proxy.free_port()):
        models = [{"name": MODEL, "url": f"http://127.0.0.1:{port}/v1", "cluster": "south"}]
        planned = FILTERS["gateway_plan"](models, proxy.settings(own := proxy.free_port()), {}, {"certificate": "", "key": ""})
        began = time.monotonic()
        with proxy.started(planned, {}, Path(folder)) as running:
            start, key = time.monotonic() - began, running.add("bench")
            idle = running.memory()
            run: Callable[[Awaitable[Any]], Any] = asyncio.run  # type: ignore[assignment]
            direct = run(measured(port, ""))
            through = run(measured(own, key))
            memory = running.memory()
    rows = ["| | direct | gateway |", "|---|---|---|", *(f"| {name} | {value} | {through[name]} |" for name, value in direct.items())]
    sys.stdout.write("\n".join([*rows, f"| memory at the start and now; start | | {idle}, {memory} MB; {start:.1f} s |", ""]))


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(serve(int(sys.argv[1])))
    else:
        main()
