"""The programs in the pods: the probe requests a token, the gates wait, and a worker starts with its node's values."""

from __future__ import annotations

import json
import os
import resource
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import certificates
import pytest
from exports import PLANS, exported, of_kind, rank, templates
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.export import io_gates, io_probe, schema

PROGRAMS = ROOT / "plugins/module_utils/export"
KEY = "key-" + "0" * 60
METRICS = 'vllm:generation_tokens_total{{model_name="tiny"}} {0}\nvllm:prompt_tokens_total{{model_name="tiny"}} 1.0\n'


class Server(ThreadingHTTPServer):
    """A server whose behavior a test sets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: tuple[int, dict[str, Any]] | None = (200, {"choices": [{"text": "!"}]})
        self.tokens, self.progress = 10.0, 0.0
        self.requests: list[tuple[str, str | None, dict[str, Any]]] = []
        self.end = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """Answers, or hangs until the test is over."""

    server: Server

    def do_GET(self) -> None:
        """Send the metrics."""
        assert self.path == "/metrics"
        self.server.tokens += self.server.progress
        self.reply(200, METRICS.format(self.server.tokens).encode())

    def do_POST(self) -> None:
        """Send the answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers["Authorization"], body))
        if self.server.answer is None:
            self.server.end.wait(30)
            return
        self.reply(self.server.answer[0], json.dumps(self.server.answer[1]).encode())

    def reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True).start()
    yield found
    found.end.set()
    found.shutdown()
    found.server_close()


REQUEST = ("--path=/v1/completions", f"--body={json.dumps({'model': 'tiny', 'max_tokens': 1})}", "--answer=choices")


def probe(
    server: Server, *arguments: str, key: str = KEY, scheme: str = "http", seconds: float = 10
) -> tuple[int, str]:
    """Run the probe as Kubernetes does. Returns its status and its output."""
    words = [f"--url={scheme}://127.0.0.1:{server.server_port}", *REQUEST, f"--seconds={seconds}", *arguments]
    environment = {"PATH": os.defpath, "http_proxy": "http://127.0.0.1:9", **({"VLLM_API_KEY": key} if key else {})}
    command = [sys.executable, "-I", "-B", str(PROGRAMS / "io_probe.py"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert not key or key not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("key", [KEY, ""])
def test_one_token_is_requested_with_the_key(server: Server, key: str) -> None:
    assert probe(server, key=key) == (0, "")
    ((path, header, body),) = server.requests
    assert (path, header) == ("/v1/completions", f"Bearer {key}" if key else None)
    assert (body["model"], body["max_tokens"]) == ("tiny", 1)


@pytest.mark.parametrize(
    "answer", [(401, {"error": "Unauthorized"}), (500, {}), (200, {}), (404, {"message": "no model"})]
)
def test_another_answer_is_a_failure(server: Server, answer: tuple[int, dict[str, Any]]) -> None:
    server.answer = answer
    status, reason = probe(server, "--progress")
    assert (status, reason) == (1, f"HTTP {answer[0]}: {json.dumps(answer[1])}\n")


def test_a_silent_engine_is_a_failure(server: Server) -> None:
    server.answer = None
    status, reason = probe(server, "--progress", seconds=0.5)
    assert (status, reason.startswith("no answer within 0.5 s: ")) == (1, True)


def test_a_busy_engine_is_alive_but_has_not_started(server: Server) -> None:
    server.answer, server.progress = None, 7.0
    assert probe(server, "--progress", seconds=0.5) == (0, "")
    assert probe(server, seconds=0.5)[0] == 1


def test_no_server_is_a_failure(server: Server) -> None:
    server.shutdown()
    server.server_close()
    assert probe(server, key="")[0] == 1
    assert "so the key was not sent" in probe(server)[1]


def test_the_key_is_sent_only_to_a_process_of_the_pod(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert io_probe._ours(server.server_port)
    # A pod does not see the processes of the node.
    monkeypatch.setattr(io_probe.glob, "glob", lambda _pattern: [])
    assert not io_probe._ours(server.server_port)


def test_tls_is_verified(server: Server, tmp_path: Path) -> None:
    authority, other = certificates.authority(), certificates.authority()
    paths = authority.issue("spark.example.com").write(tmp_path, "api")
    for name, each in (("ca", authority), ("other", other)):
        (tmp_path / name).write_text(each.text, encoding="ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*paths)
    server.socket = context.wrap_socket(server.socket, server_side=True)

    def status(ca: str, name: str) -> tuple[int, str]:
        return probe(server, f"--ca={tmp_path / ca}", f"--server-name={name}", scheme="https")

    assert status("ca", "spark.example.com") == (0, "")
    assert "CERTIFICATE_VERIFY_FAILED" in status("other", "spark.example.com")[1]
    assert "Hostname mismatch" in status("ca", "spark2.example.com")[1]
    assert len(server.requests) == 1
    # The certificate itself may be the only trust anchor.
    assert status("api.crt", "spark.example.com") == (0, "")


def test_the_probe_of_an_export_has_the_arguments_of_the_program() -> None:
    for name in ("pair", "tls"):
        leader = rank(templates(exported(PLANS[name]))["spark1"])
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            words = leader[kind]["exec"]["command"][4:]
            done = subprocess.run(
                [sys.executable, str(PROGRAMS / "io_probe.py"), *words, "--help"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout.startswith("usage: ")
            assert {word.partition("=")[0] for word in words} <= set(
                done.stdout.replace("]", " ").replace("[", " ").split()
            )


OPEN: dict[str, Any] = {"rdma": False, "model": "", "home": "/tmp", "address": "127.0.0.1", "memory": 0}


def test_open_gates() -> None:
    assert list(io_gates.closed(OPEN)) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"model": "/nowhere"},
            (
                "/nowhere/config.json is not readable. Expected: the model on this node. Fix: run site.yml --tags "
                "model_store."
            ),
        ),
        ({"home": "/nowhere"}, "/nowhere is not writable for user "),
        (
            {"address": "192.0.2.1"},
            "no interface has 192.0.2.1. Expected: the address of the plan. Fix: run site.yml --tags qsfp_netplan.",
        ),
        ({"memory": 2**50}, "Expected: 1048576.0 GiB for the model. Fix: end other programs; playbooks/stop.yml"),
    ],
)
def test_a_closed_gate_has_its_reason_and_fix(given: dict[str, Any], expected: str) -> None:
    (reason,) = io_gates.closed({**OPEN, **given})
    assert expected in reason


def test_the_gates_of_rdma(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(io_gates.glob, "glob", lambda _pattern: [])
    monkeypatch.setattr(io_gates.resource, "getrlimit", lambda _limit: (8388608, 8388608))
    reasons = list(io_gates.closed({**OPEN, "rdma": True}))
    assert reasons[0].startswith(
        "at most 8388608 bytes of memory can be locked. Expected: no limit, else NCCL uses TCP without an error."
    )
    assert "LimitMEMLOCK=infinity" in reasons[0]
    assert reasons[1].startswith("there is no /dev/infiniband/uverbs* in the pod.")
    monkeypatch.setattr(io_gates.resource, "getrlimit", lambda _limit: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    device = tmp_path / "uverbs0"
    monkeypatch.setattr(io_gates.glob, "glob", lambda _pattern: [str(device)])
    (reason,) = io_gates.closed({**OPEN, "rdma": True})
    assert "uverbs0 cannot be opened: No such file or directory. Expected: access without privileges." in reason
    device.touch()
    assert list(io_gates.closed({**OPEN, "rdma": True})) == []


def test_the_gates_wait_and_then_open(tmp_path: Path) -> None:
    (tmp_path / "gates.py").write_text(
        (PROGRAMS / "io_gates.py").read_text(encoding="utf-8").replace("_PAUSE = 5", "_PAUSE = 0.1"), encoding="utf-8"
    )
    model = tmp_path / "model"
    model.mkdir()
    (tmp_path / "spark1.json").write_text(json.dumps({"gates": {**OPEN, "model": str(model)}}), encoding="utf-8")
    command = [sys.executable, "-I", "-B", str(tmp_path / "gates.py")]
    process = subprocess.Popen(command, env={schema.NODE_VARIABLE: "spark1"}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "gb10-gates wait:\n"
    assert "config.json is not readable" in process.stdout.readline()
    (model / "config.json").touch()
    assert process.stdout.read() == "gb10-gates are open\n"
    assert process.wait() == 0


def test_the_files_of_an_export_have_the_gates_of_each_node() -> None:
    for name, plan in PLANS.items():
        data = of_kind(exported(plan), "ConfigMap")["data"]
        for node in plan["nodes"]:
            given = json.loads(data[f"{node['name']}.json"])["gates"]
            assert given.keys() == OPEN.keys(), name
            assert (given["address"], given["memory"]) == (node["address"], plan["serve"]["needs"].get(node["name"], 0))
            assert given["model"] == plan["model"]


@pytest.mark.parametrize("name", PLANS)
def test_an_export_has_only_programs_that_its_pods_run(name: str) -> None:
    data, text = of_kind(exported(PLANS[name]), "ConfigMap")["data"], json.dumps(templates(exported(PLANS[name])))
    for program in schema.PROGRAMS:
        assert (program in data) is (f"{schema.FOLDER}/{program}" in text)
