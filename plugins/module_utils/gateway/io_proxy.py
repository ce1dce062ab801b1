# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gateway's program: LiteLLM's proxy behind the gateway's own access control, health checks and usage counts.

    python -m ...gateway.io_proxy SETTINGS LITELLM_CONFIG STATE_FOLDER [CERTIFICATE KEY]

It runs as the gateway's user in the environment with LiteLLM. `requests` decides which requests reach LiteLLM.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib
import json
import os
import secrets
import socket
import ssl
import sys
import time
import urllib.error
import urllib.parse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, io_file
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, requests, usage
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client

#: Seconds: the limit of one health check, and the time between two writes of the usage.
_PROBE_SECONDS, _SAVE_SECONDS = 5.0, 5.0
_MOST_LISTING = 1 << 20
_JSON = [(b"content-type", b"application/json")]
#: The name of the client in the scope of a request.
_CLIENT = "gb10_client"
_SOON = 0.2


def _say(text: str) -> None:
    """Write a line to the journal."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Known:
    """The clients' file, read again when it changes. An unreadable file leaves no client."""

    def __init__(self, path: str) -> None:
        self._path, self._seen, self._found = path, (0, 0, 0), clients.Clients()

    def now(self) -> clients.Clients:
        """Return the clients."""
        try:
            status = os.stat(self._path)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._found, self._seen = clients.parse(io_file.read_bounded(self._path, clients.MOST)), seen
        except (OSError, ValueError) as error:
            _say(f"no client can use the gateway: {self._path}: {error}")
            self._found, self._seen = clients.Clients(), (0, 0, 0)
        return self._found


class State:
    """Everything that the parts of the program share."""

    def __init__(self, settings: Mapping[str, Any], folder: str) -> None:
        self.settings = settings
        self.models: list[dict[str, Any]] = settings["models"]
        names = dict.fromkeys(model["name"] for model in self.models)
        ids = {name: [model["id"] for model in self.models if model["name"] == name] for name in names}
        self.gateway = requests.Gateway(ids, settings["fallbacks"], settings["health_interval"])
        self.known = Known(settings["clients"])
        #: The last error of each unhealthy entry, and when each entry was checked last.
        self.errors: dict[str, str] = {}
        self.checked: dict[str, int] = {}
        self.wake = asyncio.Event()
        self.path = f"{folder}/usage.json"
        self.dirty = False
        try:
            self.usage = usage.parse(io_file.read_bounded(self.path, usage.MOST))
        except (OSError, ValueError) as error:
            _say(f"the counts start at zero: {self.path}: {error}")
            self.usage = usage.Usage()

    def count(self, client: str, model: str, **counts: int) -> None:
        """Add to the usage, which the next save writes."""
        if client and requests.counted(client):
            self.usage.add(client, model, int(time.time()), **counts)
            self.dirty = True

    def save(self) -> None:
        """Write the usage if it changed."""
        if self.dirty:
            self.dirty = False
            io_file.write_file(self.path, usage.text(self.usage), 0o600)

    def report(self) -> bytes:
        """Return the state of each model, and the use of each client."""
        rows = [
            {key: model[key] for key in ("id", "name", "cluster", "kind")}
            | {"healthy": model["id"] not in self.errors, "error": self.errors.get(model["id"], ""), "checked": self.checked.get(model["id"], 0)}
            for model in self.models
        ]
        return json.dumps({"models": rows, "usage": asdict(self.usage)["clients"]}).encode()


#: Set by main(). LiteLLM imports this module for authenticate() and the logger.
STATE: list[State] = []


async def authenticate(request: Any, api_key: str) -> Any:
    """Return LiteLLM's user of a request that the access control accepted. Raises Exception for any other."""
    name = request.scope.get(_CLIENT, "")
    if not name:
        raise ValueError("the request did not pass the gateway's access control")
    user: Any = importlib.import_module("litellm.proxy._types").UserAPIKeyAuth
    del api_key
    return user(user_id=name, key_alias=name, models=[])


def __getattr__(name: str) -> Any:
    """Return LiteLLM's logger on its first use: LiteLLM reads its environment when it is imported, after prepare()."""
    if name != "logger":
        raise AttributeError(name)
    base: Any = importlib.import_module("litellm.integrations.custom_logger").CustomLogger

    class Counter(base):  # type: ignore[misc]
        """Counts the tokens that the model's server reported."""

        async def async_log_success_event(self, kwargs: Any, *_others: Any, **_named: Any) -> None:
            """Add the tokens of a finished request."""
            entry = kwargs.get("standard_logging_object") or {}
            client = (entry.get("metadata") or {}).get("user_api_key_user_id") or ""
            tokens = {name: int(entry.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")}
            STATE[0].count(client, str(entry.get("model_group") or "other"), **tokens)

        async def async_log_failure_event(self, *_others: Any, **_named: Any) -> None:
            """Check the models at once, because a server may have died."""
            STATE[0].wake.set()

    return Counter()


class Guard:
    """ASGI middleware around LiteLLM: keys, routes, models and health."""

    def __init__(self, app: Any, state: State) -> None:
        self._app, self._state, self._jobs = app, state, list[asyncio.Task[None]]()
        self._owned: Any = importlib.import_module("litellm.types.utils").is_litellm_owned_kwarg

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer, refuse or forward a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, self._started(send))
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _started(self, send: Any) -> Any:
        async def forward(message: dict[str, Any]) -> None:
            if message["type"] == "lifespan.startup.complete":
                await check(self._state)
                self._jobs = [asyncio.create_task(_watch(self._state)), asyncio.create_task(_save(self._state))]
                _notify("READY=1")
            elif message["type"] == "lifespan.shutdown.complete":
                for job in self._jobs:
                    job.cancel()
                self._state.save()
            await send(message)

        return forward

    async def _http(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        path, method = scope["path"], scope["method"]
        if path == requests.ALIVE and method in ("GET", "HEAD"):
            await _answer(send, 200, b'{"status": "ok"}')
            return
        known = self._state.known.now()
        name = known.of_key(requests.key_of(scope["headers"]))
        if not name:
            await _refuse(send, requests.UNKNOWN_KEY, path)
            return
        client = known.clients.get(name)
        if path in requests.LISTS and method == "GET":
            await _answer(send, 200, requests.listing(self._state.models, client))
        elif path == requests.REPORT and method == "GET":
            await (_refuse(send, requests.FORBIDDEN, path) if client else _answer(send, 200, self._state.report()))
        elif path not in requests.ROUTES or method != "POST":
            await _refuse(send, requests.UNKNOWN_ROUTE, path)
        else:
            await self._model(scope, receive, send, name, client)

    async def _model(self, scope: dict[str, Any], receive: Any, send: Any, name: str, client: clients.Client | None) -> None:
        path = requests.ROUTES[scope["path"]]
        body = await _body(receive)
        found = requests.accept(self._state.gateway, path, body, client, self._state.errors, self._owned) if body is not None else requests.TOO_LARGE
        if isinstance(found, requests.Refusal):
            if found.model:
                self._state.count(name, found.model, requests=1, failures=1)
            await _refuse(send, found, scope["path"])
            return
        status = [500]

        async def forward(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        headers = [(key, value) for key, value in scope["headers"] if key.lower() in requests.HEADERS]
        headers += [(b"content-length", str(len(found.body)).encode()), (b"authorization", b"Bearer none")]
        inner = {**scope, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers, _CLIENT: name}
        try:
            await self._app(inner, _replayed(found.body, receive), forward)
        finally:
            self._state.count(name, found.model, requests=1, failures=int(status[0] >= 400))


async def _body(receive: Any) -> bytes | None:
    """Return the whole body, None if it is too large. A client that leaves sends the rest never."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > requests.MOST:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: bytes, receive: Any) -> Any:
    """Return the body once, and then the messages of the connection, such as its end."""
    rest = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Any:
        return rest.pop() if rest else await receive()

    return give


async def _answer(send: Any, status: int, body: bytes, more: list[tuple[bytes, bytes]] | None = None) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [*_JSON, *(more or [])]})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Any, refusal: requests.Refusal, path: str) -> None:
    more = [(b"www-authenticate", b"Bearer")] if refusal.status == requests.UNKNOWN_KEY.status else []
    more += [(b"retry-after", str(refusal.retry).encode())] if refusal.retry else []
    await _answer(send, refusal.status, requests.refusal_body(refusal, path), more)


async def _watch(state: State) -> None:
    """Check all models regularly, and soon after a failed request."""
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.wake.wait(), state.settings["health_interval"])
            await asyncio.sleep(_SOON)
        state.wake.clear()
        await check(state)


async def check(state: State) -> None:
    """Check all models at the same time, and pass the result to LiteLLM's router."""
    results = await asyncio.gather(*(asyncio.to_thread(probe, model, state.settings["ca"]) for model in state.models))
    now, before = time.time(), dict(state.errors)
    state.errors = {model["id"]: error for model, error in zip(state.models, results, strict=True) if error}
    state.checked = dict.fromkeys((model["id"] for model in state.models), int(now))
    for name in before.keys() | state.errors.keys():
        if before.get(name) != state.errors.get(name):
            _say(f"{name}: {state.errors.get(name, 'healthy again')}")
    router: Any = importlib.import_module("litellm.proxy.proxy_server").llm_router
    states = {model["id"]: {"is_healthy": model["id"] not in state.errors, "timestamp": now, "reason": ""} for model in state.models}
    router.health_state_cache.set_deployment_health_states(states)


def probe(model: Mapping[str, Any], ca: str) -> str:
    """Return why a model's server cannot be used, "" if it can: it is healthy, takes the key, and serves the model.

    A request to the model itself would wait behind those of its users.
    """
    server = io_client.Server(model["url"].removesuffix("/v1"), ca)
    key = os.environ.get(model["variable"], "") if model["variable"] else ""
    try:
        with server.open("/health", _PROBE_SECONDS, {}):
            pass
        with server.open("/v1/models", _PROBE_SECONDS, io_client.headers(key)) as answer:
            listed = bounded_json.load(answer.read(_MOST_LISTING + 1).decode("utf-8", "replace"), _MOST_LISTING)
    except urllib.error.HTTPError as error:
        with error:
            return f"HTTP {error.code} from {urllib.parse.urlsplit(error.url).path}" + (": the API key is wrong" if error.code == 401 else "")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        untrusted = "its certificate is not trusted: " if isinstance(reason, ssl.SSLError) else ""
        return f"{untrusted}{str(reason)[:200] or type(reason).__name__}"
    except ValueError as error:
        return f"its list of models is not valid: {error}"
    names = [entry.get("id") for entry in bounded_json.mappings(listed.get("data") if isinstance(listed, dict) else None)]
    return "" if model["name"] in names else f"it does not serve this model, but {', '.join(str(name)[:100] for name in names[:5]) or 'none'}"


async def _save(state: State) -> None:
    while True:
        await asyncio.sleep(_SAVE_SECONDS)
        try:
            state.save()
        except OSError as error:
            _say(f"the counts were not saved: {error}")


def _notify(text: str) -> None:
    """Report to systemd. Source: sd_notify(3)."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(text.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


def confine(models: list[dict[str, Any]]) -> None:
    """Refuse connections of this process to other places than the models' servers.

    LiteLLM has features that connect to addresses in requests or on the internet.
    """
    places = {(parts.hostname or "", parts.port) for parts in (urllib.parse.urlsplit(model["url"]) for model in models)}
    hosts = {host for host, _port in places}
    named = {port for host, port in places if not _is_address(host)}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            host = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
            if host is not None and host not in hosts and not _is_address(host):
                raise _refused(f"look up {host}")
        elif event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[0].family in (socket.AF_INET, socket.AF_INET6):
            place = (arguments[1][0], arguments[1][1])
            if place not in places and place[1] not in named:
                raise _refused(f"connect to {place[0]} port {place[1]}")

    sys.addaudithook(hook)


def _refused(attempt: str) -> PermissionError:
    _say(f"refused an attempt to {attempt}")
    return PermissionError(f"the gateway does not {attempt}")


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return True
    return False


def prepare(config: str) -> None:
    """Set LiteLLM's environment. It reads no internet, no database and no settings of the user."""
    for name in [name for name in os.environ if name.startswith(("LITELLM_", "DATABASE_", "OPENAI_", "ANTHROPIC_", "REDIS_"))]:
        del os.environ[name]
    os.environ.update(
        CONFIG_FILE_PATH=config,
        # Nobody knows it: it only turns off the modes without authentication.
        LITELLM_MASTER_KEY=f"sk-{secrets.token_urlsafe(32)}",
        LITELLM_MODE="PRODUCTION",
        LITELLM_LOG="ERROR",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS="True",
        LITELLM_LOCAL_BLOG_POSTS="True",
        LITELLM_LOCAL_AUTOROUTER_PRESETS="True",
        LITELLM_LOCAL_POLICY_TEMPLATES="True",
        LITELLM_DONT_SHOW_FEEDBACK_BOX="true",
        DISABLE_ADMIN_UI="True",
        NO_DOCS="True",
        NO_REDOC="True",
        NO_OPENAPI="True",
        HF_HUB_OFFLINE="1",
    )


def main(arguments: list[str]) -> None:
    """Run the gateway until it is stopped."""
    settings, config, folder, *pair = arguments
    text = io_file.read_bounded(settings, 1 << 24)
    if text is None:
        raise FileNotFoundError(settings)
    state = State(json.loads(text), folder)
    STATE[:] = [state]
    confine(state.models)
    prepare(config)
    trust(state.settings["ca"])
    server: Any = importlib.import_module("litellm.proxy.proxy_server")
    uvicorn: Any = importlib.import_module("uvicorn")
    secured = {"ssl_certfile": pair[0], "ssl_keyfile": pair[1]} if pair else {}
    # uvloop connects without Python's audit events.
    uvicorn.run(
        Guard(server.app, state),
        host=state.settings["host"],
        port=state.settings["port"],
        loop="asyncio",
        http="h11",
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=30,
        **secured,
    )


def trust(path: str) -> None:
    """Let all libraries trust the models' CAs alone, where there are any. A server's own certificate may be the only one."""
    if not os.path.getsize(path):
        return
    os.environ["SSL_CERT_FILE"] = path
    create = ssl.create_default_context

    def partial(*arguments: Any, **named: Any) -> ssl.SSLContext:
        context = create(*arguments, **named)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    ssl.create_default_context = partial


if __name__ == "__main__":
    # LiteLLM imports this module by its full name, which __main__ is not.
    importlib.import_module("ansible_collections.gb10.cluster.plugins.module_utils.gateway.io_proxy").main(sys.argv[1:])
