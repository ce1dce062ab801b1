"""Runs the gateway's program with the locked packages, as the unit does, and sends it requests."""

from __future__ import annotations

import ctypes
import hashlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from locks import installed
from packed import install
from patch.sources import CACHE
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, plan, schema
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway

LOCK = ROOT / "roles/gateway/files/gateway.lock"
OPERATOR = "sk-operator"
#: After this time the program knows a changed list of clients.
_KNOWN_SECONDS = 0.15
#: Seconds in which an answer that waits for nothing comes on a busy machine too.
QUICK = 3
_NEW_NETWORK = 0x40000000


def python() -> Path:
    """Return the interpreter of an environment with exactly the lock's packages.

    Skips the test if they cannot be downloaded.
    """
    text = LOCK.read_text(encoding="utf-8")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = CACHE / "gateway" / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}-{version}"
    found = folder / "bin/python"
    if not (folder / ".complete").exists():
        try:
            uv = installed.uv(installed.requirements(text))
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run(
                [uv, "venv", "--quiet", "--python", sys.executable, folder], check=True, capture_output=True, text=True
            )
            sync = [uv, "pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode", "--python", found, LOCK]
            subprocess.run(sync, check=True, capture_output=True, text=True)
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"the packages of the lock cannot be downloaded: {getattr(error, 'stderr', None) or error}")
        (folder / ".complete").touch()
    return found


@contextmanager
def closed_network() -> Iterator[None]:
    """Move this thread and its children to a network with loopback alone, as root."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        if libc.unshare(_NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        try:
            yield
        finally:
            libc.setns(before.fileno(), 0)


def opener(ca: str) -> urllib.request.OpenerDirector:
    """Return what opens URLs without a proxy. ``ca``: the file of the only trusted CA, "" for the system's."""
    secured = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca))] if ca else []
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), *secured)


def connect(url: str, timeout: float | None = 10, source: str = "") -> socket.socket:
    """Return a connection to the server of a URL. ``source``: the address of the client, "" for any."""
    place = urllib.parse.urlsplit(url)
    return socket.create_connection((str(place.hostname), place.port or 0), timeout, (source, 0) if source else None)


def memory(pid: int, name: str) -> int:
    """Return a value of a process's memory in MB, such as VmRSS."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) // 1024


def await_answer(ask: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server that starts answers. Fails with its log if it ends, or has no answer after a minute."""
    until = time.monotonic() + 60
    while True:
        try:
            ask()
        except (OSError, http.client.HTTPException):
            assert process.poll() is None and time.monotonic() < until, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        else:
            return


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def planned(models: Sequence[Mapping[str, Any]], keys: Any = None, tls: Any = None, **more: Any) -> dict[str, Any]:
    """Return the plan of a gateway on loopback, with its URL. ``tls``: the texts of its certificate and key."""
    settings = {"host": "127.0.0.1", "port": free_port(), "name": "", "allow_plain_http": False, "origins": []}
    settings |= {"fallbacks": {}, "silence_timeout": 30, "health_interval": 3, "wake_timeout": 20} | more
    tls_texts = tls or {"certificate": "", "key": ""}
    found = gateway.planned(plan.models_of(models), settings, keys or {}, tls_texts, "127.0.0.1")
    return asdict(found) | {"url": f"{'https' if tls else 'http'}://127.0.0.1:{settings['port']}"}


@dataclass
class Answer:
    """A response, and how long it took."""

    status: int
    text: str
    headers: Mapping[str, str]
    seconds: float

    @property
    def data(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The JSON of each event of a stream."""
        lines = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@dataclass
class Proxy:
    """The running gateway. ``keys``: the key of each client."""

    url: str
    folder: Path
    ca: str = ""
    pid: int = 0
    keys: dict[str, str] = field(default_factory=dict)
    known: clients.Clients = field(default_factory=clients.Clients)

    def ask(self, path: str, body: Any = None, key: str = "", method: str | None = None, **headers: str) -> Answer:
        """Send a request with a key; a body that is not bytes as JSON."""
        given = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {}), **headers}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=given, method=method)
        began = time.monotonic()
        try:
            answer = opener(self.ca).open(request, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            found = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(answer.status, answer.read().decode(), found, time.monotonic() - began)

    def chat(self, model: str, key: str, **more: Any) -> Answer:
        return self.ask(
            "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "Hello"}], **more}, key
        )

    def add(self, name: str, *models: str) -> str:
        """Create a client and return its key."""
        key = f"{clients.PREFIX}{name}-{len(self.keys)}"
        self.keys[name] = key
        self.write(clients.create(self.known, name, key, 1, models))
        return key

    def revoke(self, name: str) -> None:
        self.write(clients.revoke(self.known, name))

    def write(self, known: clients.Clients) -> None:
        self.known = known
        temporary = self.folder / "new"
        temporary.write_text(clients.text(known), encoding="utf-8")
        temporary.replace(self.folder / "clients.json")
        time.sleep(_KNOWN_SECONDS)

    def health(self) -> None:
        assert self.ask("/health").status == 200

    def report(self) -> Any:
        return self.ask("/gb10/report", key=OPERATOR).data

    def memory(self) -> int:
        """Return the program's memory in MB."""
        return memory(self.pid, "VmRSS")

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def wait(self, holds: Any, seconds: float = 20) -> Any:
        """Wait until the report satisfies a condition, and return it."""
        until = time.monotonic() + seconds
        while not holds(found := self.report()):
            assert time.monotonic() < until, found
            time.sleep(0.1)
        return found


@contextmanager
def started(
    planned: Mapping[str, Any],
    keys: Mapping[str, str],
    folder: Path,
    pair: tuple[str, str] | None = None,
    ca: str = "",
    own: Path | None = None,
) -> Iterator[Proxy]:
    """Run the program with the files that the role writes.

    Only the paths of the files differ. ``own``: an interpreter with the packages.
    """
    proxy = Proxy(planned["url"], folder, ca)
    proxy.write(replace(proxy.known, operator=clients.digest(OPERATOR)))
    (folder / "settings.json").write_text(
        planned["settings"].replace(schema.CLIENTS, str(folder / "clients.json")), encoding="utf-8"
    )
    state = folder / "state"
    state.mkdir(exist_ok=True)
    variables = {planned["variables"][cluster]: key for cluster, key in keys.items()}
    environment = {"PATH": os.defpath, "HOME": str(state), **variables}
    command = [own or python(), "-I", "-B", install("gateway", folder), folder / "settings.json", state, *(pair or ())]
    with (folder / "log").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd="/", env=environment, stdout=log, stderr=log)
    proxy.pid = process.pid
    try:
        await_answer(proxy.health, process, folder / "log")
        yield proxy
    finally:
        process.terminate()
        process.wait(60)
