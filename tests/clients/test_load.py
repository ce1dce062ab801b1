"""Bodies that become much larger in memory: many at once, from two clients, at the guard and at the gateway."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from clients.doors import PYTHON, Door
from gateway.proxy import QUICK, connect
from repository import ROOT

MIB = 1 << 20
#: The gateway's MemoryMax. The guard is in vLLM's process, which shares its memory with the GPU.
MOST = 1024
EMOJI = "😀".encode()


def body(model: str, name: str) -> bytes:
    begin = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "'.encode()
    if name == "lists":
        return begin + b'x"}], "chat_template_kwargs": {"x": [' + b"[]," * (20 * MIB) + b"[]]}}"
    if name == "taken":
        # An image: a text is no longer than a context.
        url = b"data:image/png;base64," + b"A" * (30 * MIB) + EMOJI
        return begin.removesuffix(b'"') + b'[{"type": "image_url", "image_url": {"url": "' + url + b'"}}]}]}'
    text = {
        "one": EMOJI + b"a" * (63 * MIB),
        "all": EMOJI * (63 * MIB // 4),
        "escape": b"\\ud83d\\ude00" + b"a" * (63 * MIB),
    }[name]
    return begin + text + b'"}]}'


def sent(door: Door, data: bytes, index: int) -> int:
    """Send a request, every second one from another address and with another key. Returns its status."""
    keys = door.keys or (door.key,)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {keys[index % len(keys)]}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    with connect(door.url, 60, f"127.0.0.{1 + index % 2}") as client:
        try:
            client.sendall(head.encode())
            client.sendall(data)
            return int(client.recv(100).split()[1])
        except (ConnectionError, IndexError):
            # It was refused while it was still being sent.
            return 503


def alive(door: Door) -> float:
    """Return the seconds of an answer to /health."""
    place, began = urllib.parse.urlsplit(door.url), time.monotonic()
    client = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    client.request("GET", "/health")
    assert client.getresponse().status == 200
    client.close()
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "clients", "accepted"),
    [("lists", 4, False), ("one", 20, False), ("all", 20, False), ("escape", 20, False), ("taken", 20, True)],
)
def test_large_bodies_leave_memory_and_time_for_others(door: Door, name: str, clients: int, accepted: bool) -> None:
    if not door.pid:
        pytest.skip("only for servers of these tests")
    data, times, done = body(door.model, name), list[float](), threading.Event()

    def look() -> None:
        while not done.is_set():
            times.append(alive(door))
            time.sleep(0.02)

    door.reset_memory()
    watcher = threading.Thread(target=look)
    watcher.start()
    with ThreadPoolExecutor(clients) as pool:
        statuses = set(pool.map(lambda index: sent(door, data, index), range(clients)))
    done.set()
    watcher.join()
    assert (max(times) < QUICK, door.memory() < MOST) == (True, True), (max(times), door.memory())
    assert statuses <= {200, 413, 503} and (200 in statuses) is accepted


@pytest.mark.parametrize(
    ("more", "status"),
    [({"model": "/a" * 500_000}, 404), ({"n": 16_384}, 413), ({"truncate_prompt_tokens": 9, "stop": "x" * MIB}, 413)],
    ids=["a path as name", "many answers", "a long text"],
)
def test_what_costs_more_than_its_size_is_refused_at_once(door: Door, more: dict[str, Any], status: int) -> None:
    data = json.dumps({"model": door.model, "messages": [{"role": "user", "content": "x"}], **more}).encode()
    assert sent(door, data, 0) == status
    assert alive(door) < QUICK


@pytest.mark.doors("guard")
@pytest.mark.parametrize("part", [b"a" * MIB, b"a:\r\n" * (MIB // 4)], ids=["one header", "many headers"])
def test_a_head_without_an_end_is_closed(door: Door, part: bytes) -> None:
    """uvicorn's parser in C takes it without a limit: 48 MiB became 1.5 GB, without a key."""
    if not door.pid:
        pytest.skip("only for servers of these tests")
    door.reset_memory()
    before = door.memory()
    with connect(door.url) as client, pytest.raises(ConnectionError):
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nx: ")
        for _mib in range(48):
            client.sendall(part)
    assert (alive(door) < QUICK, door.memory() - before < 50) == (True, True)


def answered(door: Door, *parts: bytes, wait: float = 10) -> bytes:
    """Return the answer to the parts of a request, or b"" if the connection is open after ``wait`` seconds."""
    got = b""
    with connect(door.url, wait) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            client.sendall(part)
            time.sleep(0.05)
        try:
            while piece := client.recv(1 << 16):
                got += piece
        except TimeoutError:
            return b""
        except ConnectionError:
            pass
    return got or b"closed"


@pytest.mark.doors("guard")
def test_the_lines_of_a_head_are_few_however_it_arrives(door: Door) -> None:
    """1,200 heads of 8,000 lines took 17 s as soon as their ends arrived, without a key."""
    body = b'{"model": "none",' + b"\n" * 5000 + b'"messages": []}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
    head += f"authorization: Bearer {door.key}\r\n".encode()
    lines = [b"".join(b"a%d: b\r\n" % number for number in range(count)) for count in (50, 80)]
    assert answered(door, head + lines[1] + b"\r\n").startswith(b"HTTP/1.1 431 ")
    assert answered(door, head, lines[1], b"\r\n").startswith(b"HTTP/1.1 431 ")
    for parts in ((head + lines[0] + b"\r\n" + body,), (head, lines[0] + b"\r\n", body), (head + b"\r", b"\n" + body)):
        status = int(answered(door, *parts).split()[1])
        assert status in (200, 400, 404), parts[0][-20:]


@pytest.mark.slow
@pytest.mark.doors("guard")
@pytest.mark.parametrize("line", ["content-length: 100", "a: " + "x" * 10_000], ids=["body", "line"])
def test_a_handshake_that_nobody_can_parse_ends(door: Door, line: str) -> None:
    """websockets neither answers nor closes such a connection, and 15,000 of them stayed."""
    head = "GET /v1/realtime HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    head += f"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{line}\r\n\r\n"
    assert answered(door, head.encode(), wait=30)


@pytest.mark.doors("guard")
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_many_small_chunks_without_a_key_delay_nobody(door: Door, method: str) -> None:
    """h11 takes 6 ms for 8 KB of chunks of one byte. 1,500 connections silenced the server for 15 s, without a key."""
    if not door.pid:
        pytest.skip("only for servers of these tests")
    head = f"{method} /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    links = [connect(door.url, None) for _number in range(500)]
    for link in links:
        link.setblocking(False)
        link.send(head + b"1\r\nx\r\n" * 5000)
    assert alive(door) < QUICK
    for link in links:
        link.settimeout(60)
        # The rest is not parsed: the answer, and then the end.
        with contextlib.suppress(ConnectionError):
            while link.recv(1 << 16):
                pass
        link.close()


#: The guard in front of a type like that of vLLM's route, with OpenAI's own types of entries. FastAPI is a stand-in.
RESPONSES = """
import asyncio, json, os, resource, sys, time, types
sys.path.insert(0, sys.argv[1])
os.environ |= {"VLLM_API_KEY": "k", "VLLM_CONFIG_ROOT": "/"}
from openai.types.responses import ResponseInputItemParam, ResponseOutputItem
from pydantic import BaseModel
from ansible_collections.gb10.cluster.plugins.module_utils.api import io_guard
class ResponsesRequest(BaseModel):
    model: str
    input: str | list[ResponseInputItemParam | ResponseOutputItem]
field = types.SimpleNamespace(field_info=types.SimpleNamespace(annotation=ResponsesRequest))
app = types.SimpleNamespace(routes=[types.SimpleNamespace(path="/v1/responses", body_field=field)])
async def api(scope, receive, send):
    ResponsesRequest.model_validate_json((await receive())["body"])
    await send({"type": "http.response.start", "status": 200})
async def status(entry, count):
    found, body = [], json.dumps({"model": "m", "input": [entry] * count}).encode()
    async def receive():
        return {"type": "http.request", "body": body}
    async def send(message):
        found.append(message.get("status"))
    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": [(b"authorization", b"Bearer k")]}
    scope["app"] = app
    began = time.process_time()
    await io_guard.Guard(api)(scope, receive, send)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"status": found[0], "seconds": time.process_time() - began, "memory": memory}))
asyncio.run(status(json.loads(sys.argv[2]), int(sys.argv[3])))
"""


@pytest.mark.parametrize(
    ("entry", "count", "status"),
    [
        ({"role": "user", "content": "Hello"}, 5000, 200),
        ({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}, 5000, 200),
        ({"type": "x"}, 10_000, 400),
        (0, 40_000, 400),
        ({"type": "message", "role": "user", "content": [0] * 20}, 1000, 400),
        ({"type": "message", "role": "user", "content": [0] * 40_000}, 1, 400),
        ({"role": "user", "content": "x", "more": {str(number): 0 for number in range(6000)}}, 1, 200),
    ],
    ids=["messages", "calls", "wrong entries", "numbers", "wrong parts", "one entry", "a map in an entry"],
)
def test_wrong_entries_of_responses_end_the_verification(entry: object, count: int, status: int) -> None:
    """2,000 of the wrong entries, 28 KB, took 5 s and 2.4 GB in the class itself."""
    argv = [str(PYTHON), "-c", RESPONSES, str(ROOT / ".collections"), json.dumps(entry), str(count)]
    found = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert (found["status"], found["seconds"] < QUICK, found["memory"] < MOST / 2) == (status, True, True), found
