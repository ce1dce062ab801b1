"""The servers that clients use: the guard around an imitated vLLM, the gateway in front of both, or a server of yours."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients import raw
from filters import FILTERS
from gateway import proxy
from repository import ROOT

HERE = ROOT / "tests/clients"
PACKAGES = ROOT / ".venv-clients"
PYTHON = PACKAGES / "bin/python"
MODEL, KEY = "org/model", "guard-key-0123456789"
#: Arguments of each client's program, and where Python finds the packages that only this client has.
PROGRAMS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "openai": ((str(PYTHON), "openai_client.py", "sync"), ""),
    "openai-async": ((str(PYTHON), "openai_client.py", "async"), ""),
    "anthropic": ((str(PYTHON), "anthropic_client.py"), ""),
    "anthropic-0.52": ((str(PYTHON), "anthropic_client.py"), str(PACKAGES / "old")),
    "langchain": ((str(PYTHON), "langchain_client.py"), ""),
    "node": (("node", "openai_client.cjs"), ""),
}
#: Seconds for a case.
PATIENCE = 120
#: Variables of the runner that a client needs for a server with TLS of a private CA.
TRUST = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE")


class Program:
    """A client's program, which runs until the end of the tests."""

    def __init__(self, name: str, door: Door) -> None:
        self.name = name
        command, packages = PROGRAMS[name]
        environment = {"PYTHONPATH": packages, "NODE_PATH": str(PACKAGES / "node/node_modules"), **door.environment}
        self._process = subprocess.Popen(
            command, cwd=HERE / "programs", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, case: str) -> Any:
        """Return what the client got in a case."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], f"no answer after {PATIENCE} s"
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=20)


@dataclass
class Door:
    """A server for clients. ``url`` is without /v1. ``engine``: the URL of vLLM's metrics, "" if unknown. ``known``: its answers are known."""

    name: str
    url: str
    key: str = field(repr=False)
    model: str
    engine: str = ""
    known: bool = True
    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that clients read."""
        variables = {f"{api}_API_KEY": self.key for api in ("OPENAI", "ANTHROPIC")}
        variables |= {"OPENAI_BASE_URL": f"{self.url}/v1", "ANTHROPIC_BASE_URL": self.url, "MODEL": self.model}
        kept = {name: os.environ[name] for name in TRUST if name in os.environ}
        return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANGSMITH_TRACING": "false", **kept, **variables}

    def program(self, name: str) -> Program:
        """Return the program of a client, which is started once."""
        if name not in self.programs:
            self.programs[name] = Program(name, self)
        return self.programs[name]

    def raw(self, sender: raw.Sender) -> raw.Raw:
        return raw.Raw(type(sender).__name__, sender, self.url, self.key, self.model)

    def running(self) -> int:
        """Return the number of requests that the engine runs."""
        with opened(f"{self.engine}/metrics") as answer:
            return int(sum(float(value) for value in re.findall(r"(?m)^vllm:num_requests_running(?:\{.*\})? (\S+)$", answer.read().decode())))

    def allows(self, origin: str) -> bool:
        """Return whether pages of an origin may use the server."""
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
        try:
            with opened(f"{self.url}/v1/chat/completions", asked, "OPTIONS") as answer:
                return answer.headers["Access-Control-Allow-Origin"] in (origin, "*")
        except urllib.error.HTTPError:
            return False

    @contextmanager
    def clients(self) -> Iterator[Door]:
        """End the clients' programs after the tests."""
        try:
            yield self
        finally:
            for program in self.programs.values():
                program.end()


def opened(url: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Any:
    request = urllib.request.Request(url, headers=dict(headers or {}), method=method)
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10)


@contextmanager
def guard(folder: Path, origin: str) -> Iterator[Door]:
    """Run the imitated vLLM with the guard."""
    shutil.copyfile(ROOT / "plugins/module_utils/api/io_guard.py", folder / "io_guard.py")
    port = proxy.free_port()
    door = Door("guard", f"http://127.0.0.1:{port}", KEY, MODEL, f"http://127.0.0.1:{port}")
    environment = {"PYTHONPATH": str(folder), "VLLM_API_KEY": KEY}
    command = [PYTHON, HERE / "engine.py", str(port), MODEL, origin]
    with (folder / "engine.log").open("wb") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        try:
            _await(process, f"{door.url}/health", folder / "engine.log")
            with door.clients():
                yield door
        finally:
            process.terminate()


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            opened(url).close()
        except OSError:
            assert process.poll() is None and time.monotonic() < until, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        else:
            return


@contextmanager
def gateway(folder: Path, origin: str, behind: Door) -> Iterator[Door]:
    """Run the gateway's program, as its unit does, in front of the guard."""
    models = [{"name": behind.model, "url": f"{behind.url}/v1", "cluster": "north"}]
    keys = {"north": behind.key}
    given = proxy.settings(proxy.free_port(), origins=[origin])
    planned = FILTERS["gateway_plan"](models, given, keys, {"certificate": "", "key": ""})
    assert planned["report"] == ""
    with proxy.started(planned, keys, folder) as started, Door("gateway", started.url, "", behind.model, behind.engine).clients() as door:
        door.key = started.add("alice")
        yield door
