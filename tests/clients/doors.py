"""The servers that clients use: the guard around an imitated vLLM, the gateway in front of both, or a server of
yours."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certificates import authority
from clients import raw
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from gateway import proxy
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.api import access

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
#: The variable with the file of a CA: of the clients in Python, and of the other ones.
TRUST = "SSL_CERT_FILE"
OTHERS: Mapping[str, str] = {"node": "NODE_EXTRA_CA_CERTS", "curl": "CURL_CA_BUNDLE"}


@dataclass(frozen=True)
class Tls:
    """The file of a private CA, the files of a server's certificate and key, and the digest of this key for
    Chromium."""

    ca: str
    pair: tuple[str, str]
    digest: str

    @property
    def texts(self) -> list[str]:
        """The texts of the CA, the certificate and the key."""
        return [Path(path).read_text(encoding="ascii") for path in (self.ca, *self.pair)]


def tls(folder: Path) -> Tls:
    """Make a private CA and a certificate of 127.0.0.1."""
    ca = authority()
    server = ca.issue("127.0.0.1")
    digest = hashlib.sha256(
        server.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).digest()
    return Tls(ca.write(folder, "ca")[0], server.write(folder, "server"), base64.b64encode(digest).decode())


class Program:
    """A client's program, which runs until the end of the tests."""

    def __init__(self, name: str, door: Door) -> None:
        self.name = name
        command, packages = PROGRAMS[name]
        environment = {
            "PYTHONPATH": packages,
            "NODE_PATH": str(PACKAGES / "node/node_modules"),
            **door.environment(name),
        }
        self._process = subprocess.Popen(
            command, cwd=HERE / "programs", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, case: str) -> Any:
        """Return the client's result in a case."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], f"no answer after {PATIENCE} s"
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=20)


@dataclass
class Door:
    """A server for clients. ``url`` is without /v1. ``engine``: the URL of vLLM's metrics, "" if unknown.

    ``known``: its answers are known. ``ca``: the file of a private CA that clients trust, "" for none. ``counts``
    returns the gateway's counts of the key, by name. ``keys``: those of several clients. ``pid``: of the process, 0 if
    unknown.
    """

    name: str
    url: str
    key: str = field(repr=False)
    model: str
    engine: str = ""
    known: bool = True
    ca: str = ""
    counts: Callable[[], dict[str, int]] = dict
    programs: dict[str, Program] = field(default_factory=dict)
    keys: tuple[str, ...] = field(default=(), repr=False)
    pid: int = 0

    def memory(self) -> int:
        """Return the most memory of the process since reset_memory(), in MiB."""
        return proxy.memory(self.pid, "VmHWM")

    def reset_memory(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def environment(self, client: str = "") -> dict[str, str]:
        """Return the variables that a client reads. For a server of yours, the runner's own ones have its CA."""
        variables = {f"{api}_API_KEY": self.key for api in ("OPENAI", "ANTHROPIC")}
        variables |= {"OPENAI_BASE_URL": f"{self.url}/v1", "ANTHROPIC_BASE_URL": self.url, "MODEL": self.model}
        trusted = (
            {OTHERS.get(client, TRUST): self.ca}
            if self.known
            else {name: os.environ.get(name, "") for name in (TRUST, *OTHERS.values())}
        )
        variables |= {name: path for name, path in trusted.items() if path}
        return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANGSMITH_TRACING": "false", **variables}

    def program(self, name: str) -> Program:
        """Return the program of a client, which is started once."""
        if name not in self.programs:
            self.programs[name] = Program(name, self)
        return self.programs[name]

    def curl(self) -> raw.Raw:
        return self.raw(raw.Curl(self.environment("curl")))

    def raw(self, sender: raw.Sender) -> raw.Raw:
        return raw.Raw(type(sender).__name__, sender, self.url, self.key, self.model)

    def running(self) -> int:
        """Return the number of requests that the engine runs."""
        with opened(f"{self.engine}/metrics", ca=self.ca) as answer:
            return int(
                sum(
                    float(value)
                    for value in re.findall(r"(?m)^vllm:num_requests_running(?:\{.*\})? (\S+)$", answer.read().decode())
                )
            )

    def allows(self, origin: str) -> bool:
        """Return whether pages of an origin may use the server."""
        asked = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
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


def opened(url: str, headers: Mapping[str, str] | None = None, method: str = "GET", ca: str = "") -> Any:
    request = urllib.request.Request(url, headers=dict(headers or {}), method=method)
    return proxy.opener(ca).open(request, timeout=10)


@contextmanager
def guard(folder: Path, origin: str, secured: Tls | None = None) -> Iterator[Door]:
    """Run the imitated vLLM with the guard."""
    for path, program in access.GUARD_FILES.items():
        copy = folder / os.path.relpath(path, access.GUARD_FOLDER)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "plugins/module_utils" / program, copy)
    port = proxy.free_port()
    url = f"{'https' if secured else 'http'}://127.0.0.1:{port}"
    door = Door("guard", url, KEY, MODEL, url, ca=secured.ca if secured else "")
    environment = {"PYTHONPATH": str(folder), "VLLM_API_KEY": KEY, "VLLM_CONFIG_ROOT": str(folder)}
    command = [PYTHON, HERE / "engine.py", str(port), MODEL, origin]
    command += ["--ssl-certfile", secured.pair[0], "--ssl-keyfile", secured.pair[1]] if secured else []
    with (
        (folder / "engine.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            door.pid = process.pid
            proxy.await_answer(lambda: opened(f"{url}/health", ca=door.ca).close(), process, folder / "engine.log")
            with door.clients():
                yield door
        finally:
            process.terminate()


@contextmanager
def gateway(folder: Path, origin: str, behind: Door, secured: Tls | None = None) -> Iterator[Door]:
    """Run the gateway's program, as its unit does, in front of the guard."""
    ca, certificate, key = secured.texts if secured else ["", "", ""]
    models = [{"name": behind.model, "url": f"{behind.url}/v1", "cluster": "north", "ca": ca}]
    keys, own = {"north": behind.key}, secured and {"certificate": certificate, "key": key}
    planned = proxy.planned(models, keys, own, origins=[origin])
    with (
        proxy.started(planned, keys, folder, secured and secured.pair, behind.ca) as started,
        Door("gateway", started.url, started.add("alice"), behind.model, behind.engine, ca=behind.ca).clients() as door,
    ):
        door.keys, door.pid = (door.key, started.add("bob")), started.pid
        door.counts = lambda: dict(started.report()["usage"].get("alice", {}).get("models", {}).get(behind.model, {}))
        yield door
