"""Bodies that become much larger in memory: many at once, from two clients, at the guard and at the gateway."""

from __future__ import annotations

import http.client
import socket
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import pytest
from clients.doors import Door
from gateway.proxy import QUICK

MIB = 1 << 20
#: The gateway's MemoryMax. The guard is in vLLM's process, which shares its memory with the GPU.
MOST = 1024
EMOJI = "😀".encode()


def body(model: str, name: str) -> bytes:
    begin = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "'.encode()
    if name == "lists":
        return begin + b'x"}], "chat_template_kwargs": {"x": [' + b"[]," * (20 * MIB) + b"[]]}}"
    text = {
        "one": EMOJI + b"a" * (63 * MIB),
        "all": EMOJI * (63 * MIB // 4),
        "escape": b"\\ud83d\\ude00" + b"a" * (63 * MIB),
        "taken": EMOJI + b"a" * (30 * MIB),
    }[name]
    return begin + text + b'"}]}'


def sent(door: Door, data: bytes, index: int) -> int:
    """Send a request, every second one from another address and with another key. Returns its status."""
    place = urllib.parse.urlsplit(door.url)
    keys = door.keys or (door.key,)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {keys[index % len(keys)]}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    source = (f"127.0.0.{1 + index % 2}", 0)
    with socket.create_connection((str(place.hostname), place.port or 0), 60, source) as client:
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
