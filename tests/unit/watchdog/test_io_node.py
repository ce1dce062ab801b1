"""What the watchdog reads of a node: /proc, the API of a unit, and the port of NCCL RAS."""

from __future__ import annotations

import os
import socket
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

import pytest
from small_server import serving

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_peer
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import io_node
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import SILENT, UP, Engine, Process

UNIT = "gb10-vllm.service"


def test_only_living_processes_of_the_units_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may end between two reads, and each container has a scope in its unit's slice."""
    files = {
        "/proc/7/cgroup": f"0::/system.slice/{UNIT}\n",
        "/proc/7/stat": "7 (VLLM::Worker_TP) S 1 7",
        "/proc/8/cgroup": "0::/system.slice/ssh.service\n",
        "/proc/8/stat": "8 (sshd) S 1 8",
        "/proc/9/cgroup": f"0::/system.slice/{UNIT}\n",
        "/proc/10/cgroup": "0::/gb10.slice/gb10-ray.slice/docker-1.scope\n",
        "/proc/10/stat": "10 (raylet) T 1 10",
        "/proc/self/cgroup": f"0::/system.slice/{UNIT}\n",
        "/proc/self/stat": "7 (self) S 1 7",
        "/proc/sys/kernel/random/boot_id": "1f-2\n",
    }
    monkeypatch.setattr(io_node, "os", SimpleNamespace(listdir={"/proc": ["7", "8", "self", "9", "10"]}.get))
    monkeypatch.setattr(io_node, "io_file", SimpleNamespace(read=lambda path: files.get(path, "")))
    found = io_node.processes(["gb10-ray.service", UNIT])
    assert found == [Process(7, "VLLM::Worker_TP", "S"), Process(10, "raylet", "T")]
    assert io_node.processes([]) == []
    assert io_node.boot() == "1f-2"


@pytest.mark.parametrize(
    ("status", "text", "headers", "expected"),
    [
        (200, "vllm:generation_tokens_total 1", {"x-gb10-open-requests": "2"}, UP),
        (200, "vllm:generation_tokens_total 1", {}, UP),
        (200, "a page without counters", {}, SILENT),
        (503, "vllm:generation_tokens_total 1", {}, SILENT),
        (200, "vllm:generation_tokens_total 1", {"content-length": "99"}, SILENT),
        (200, "vllm:generation_tokens_total 1", {"transfer-encoding": "chunked"}, SILENT),
    ],
)
def test_an_api_without_a_whole_page_of_metrics_is_silent(
    monkeypatch: pytest.MonkeyPatch, status: int, text: str, headers: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(io_local, "_unit", lambda pid: UNIT if pid == os.getpid() else "")

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        return (status, text, headers) if request.path == "/metrics" else (404, "", {})

    with serving(answer) as url:
        state, engine = io_node.metrics(io_client.Server(url), UNIT)
    requests = int(headers.get("x-gb10-open-requests", "0"))
    known = Engine((0.0, 1.0, 0.0, 0.0, 0.0, 0.0), 1.0, 0.0, requests)
    assert (state, engine) == (expected, known if expected == UP else None)


def test_a_silent_port_of_ras_is_asked_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_local, "_unit", lambda _pid: UNIT)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert io_node.ras([UNIT], listener.getsockname(), 0.05) is None
        listener.setblocking(False)
        for _try in range(3):
            with listener.accept()[0] as connection:
                assert connection.recv(100) == b"timeout 2\nverbose status\n"
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_an_endless_answer_of_ras_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_node, "_MOST_RAS", 4)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for data in (b"\xffab", b"cd", b"ef"):
            theirs.send(data)
        monkeypatch.setattr(io_local.Limited, "read", lambda self, _most: self._connection.recv(3))
        assert io_node._received(ours, 0.0) == "\ufffdabcde"


@pytest.mark.parametrize("number", [*io_peer.SILENT, 0])
def test_a_node_without_a_kernel_that_answers_is_unreachable(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(io_peer, "error", lambda _address, _port: number)
    assert io_node.unreachable({"spark2": "192.0.2.2"}) == ["spark2"] * (number != 0)
