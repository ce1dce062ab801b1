"""Measures the gateway, as root on a quiet machine.

    .venv/bin/python tests/gateway/bench.py
    .venv/bin/python tests/gateway/bench.py --url http://ADDRESS:8000 --key-file FILE --model NAME [--python PYTHON]

The first form measures a fast server that imitates vLLM, and the second one a server of yours. One run measures the
server directly and through the gateway: requests per second and latency with 1, 8 and 64 connections, and 200 streams
at once, twice. Only the first ones open connections to the server. Gateway and load share the machine. PYTHON has the
packages of the gateway's lock, for a machine without a network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parent.parent
# The program's own folder would hide the package of the same name.
sys.path[:1] = [str(_TESTS / "support"), str(_TESTS), str(_TESTS.parent / ".collections")]

SECONDS, STREAMS, WORDS, RATE = 4.0, 200, 32, 20.0
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
_PLAIN = json.dumps({"id": "x", "object": "text_completion", "choices": [{"index": 0, "text": "one"}], "usage": USAGE})
_CHUNK = {
    "id": "x",
    "object": "text_completion",
    "created": 1,
    "model": "fake",
    "choices": [{"index": 0, "text": " one"}],
}


@dataclass(frozen=True)
class Target:
    """A server of a model. ``fake``: each word of a stream is one event."""

    host: str
    port: int
    model: str = "fake"
    key: str = ""
    fake: bool = True

    def request(self, tokens: int, **more: Any) -> bytes:
        body = json.dumps({"model": self.model, "prompt": [1, 2, 3], "max_tokens": tokens, "ignore_eos": True, **more})
        head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json"
        return f"{head}\r\nauthorization: Bearer {self.key}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


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
            self.reply(json.dumps({"data": [{"id": "fake"}]}))
        elif b'"stream":true' in body.replace(b" ", b""):
            self.task = asyncio.ensure_future(self.stream(b"continuous_usage_stats" in body))
        else:
            self.reply(_PLAIN)

    def reply(self, text: str) -> None:
        self.transport.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode()
        )

    async def stream(self, usage: bool) -> None:
        """Write words as vLLM does, with the usage in each event if the gateway requested it."""
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
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


async def answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert b" 200 " in head, head
    await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))


async def closed_loop(target: Target, connections: int) -> list[float]:
    """Return the seconds of each request. Each connection sends the next one after an answer."""
    sent, times = target.request(1), list[float]()
    until = time.perf_counter() + SECONDS

    async def one() -> None:
        reader, writer = await asyncio.open_connection(target.host, target.port)
        while (began := time.perf_counter()) < until:
            writer.write(sent)
            await answer(reader)
            times.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return times


async def streams(target: Target) -> tuple[list[float], float]:
    """Return the seconds until the first word of each stream, and the words per second of all."""
    sent, firsts = target.request(WORDS, stream=True), list[float]()
    began = time.perf_counter()

    async def one() -> None:
        reader, writer = await asyncio.open_connection(target.host, target.port)
        writer.write(sent)
        await reader.readuntil(b"data: {")
        firsts.append(time.perf_counter() - began)
        words = 1
        while b"[DONE]" not in (line := await reader.readline()):
            assert line, "the stream ended early"
            words += line.startswith(b"data: {") and b'"index"' in line
        assert words == WORDS or not target.fake, words
        writer.close()

    await asyncio.gather(*(one() for _ in range(STREAMS)))
    return firsts, STREAMS * WORDS / (time.perf_counter() - began)


async def measured(target: Target) -> dict[str, str]:
    rows = {}
    await closed_loop(target, 1)
    for connections in (1, 8, 64):
        times = sorted(await closed_loop(target, connections))
        p50, p95 = (1000 * times[int(len(times) * part)] for part in (0.5, 0.95))
        rows[f"{connections} connections: requests/s; p50, p95"] = (
            f"{len(times) / SECONDS:.0f}; {p50:.2f}, {p95:.2f} ms"
        )
    for turn in ("for the first time", "again"):
        firsts, rate = await streams(target)
        first = statistics.median(firsts)
        row = f"{STREAMS} streams {turn}: first token p50, p95; tokens/s"
        rows[row] = f"{first:.3f}, {sorted(firsts)[int(STREAMS * 0.95)]:.3f} s; {rate:.0f}"
    return rows


@contextmanager
def fake() -> Iterator[Target]:
    """Yield the imitated server, in a network with loopback alone."""
    from gateway import proxy  # noqa: PLC0415

    with proxy.closed_network():
        port = proxy.free_port()
        with subprocess.Popen([sys.executable, __file__, "--serve", str(port)]) as process:
            try:
                yield Target("127.0.0.1", port)
            finally:
                process.terminate()


@contextmanager
def yours(url: str, key_file: Path, model: str) -> Iterator[Target]:
    """Yield a server that runs already."""
    parts = urllib.parse.urlsplit(url)
    yield Target(
        parts.hostname or "", parts.port or 80, model, key_file.read_text(encoding="utf-8").strip(), fake=False
    )


def report(target: Target, python: Path) -> str:
    from gateway import proxy  # noqa: PLC0415

    keys = {"south": target.key} if target.key else {}
    models = [{"name": target.model, "url": f"http://{target.host}:{target.port}/v1", "cluster": "south"}]
    planned = proxy.planned(models, keys)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with proxy.started(planned, keys, Path(folder), own=python) as running:
            start = time.monotonic() - began
            own = replace(target, host="127.0.0.1", port=int(running.url.rpartition(":")[2]), key=running.add("bench"))
            idle = running.memory()
            direct, through = asyncio.run(measured(target)), asyncio.run(measured(own))
            memory = running.memory()
    rows = [
        "| | direct | gateway |",
        "|---|---|---|",
        *(f"| {name} | {value} | {through[name]} |" for name, value in direct.items()),
    ]
    return "\n".join([*rows, f"| memory at the start and now; start | | {idle}, {memory} MB; {start:.1f} s |", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    for name, kind in (("url", str), ("key-file", Path), ("model", str), ("python", Path)):
        parser.add_argument(f"--{name}", type=kind)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    from gateway import proxy  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    python = options.python or proxy.python()
    with yours(options.url, options.key_file, options.model) if options.url else fake() as target:
        sys.stdout.write(report(target, python))


if __name__ == "__main__":
    main()
