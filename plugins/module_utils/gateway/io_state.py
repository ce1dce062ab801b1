# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of the gateway's program: its clients, the health of its models' servers, and the counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import ssl
import sys
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json, foreign, io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_journal import say
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients, forward, proof, requests, usage

#: Seconds: the limit of one health check, the least time between two, and the time between two writes of the usage.
_PROBE_SECONDS, _LEAST_SECONDS, _SAVE_SECONDS = 5.0, 2.0, 5.0
#: Seconds for the answer of a proof, which may be the first one of a server.
_PROOF_SECONDS = 120.0
#: Seconds between two checks at most, if models have proofs.
_PROVEN_INTERVAL = 15
#: Seconds that the gateway's own start waits for proofs.
_FIRST_SECONDS = 10.0
_PROVES = "its first answer is compared with the golden record"
_SLOW = "timed out"
#: A server that became healthy: by itself, or after its rest.
HEALTHY, WOKEN = "healthy", "woken"
#: Seconds within which a server that rests has ended: systemd's TimeoutStopSec= of a rank.
_STOP_SECONDS = 60.0
#: Seconds before a request is sent again to a server that did not rest.
_AGAIN_SECONDS = 1.0
#: Lines about the health of an entry in an hour.
_MOST_LINES = 60
#: Seconds until the clients' file is looked at again.
KNOWN_SECONDS = 0.1
#: Maximum bytes of a server's list of models.
MOST_LISTING = 1 << 20
#: Reads a path of a server with a key, or sends a body to it: status and body. Raises OSError and ValueError, with the
#: reason.
Read = Callable[["Entry", str, str, bytes], Awaitable[tuple[int, bytes]]]


def notify(text: str) -> None:
    """Report to systemd. Source: sd_notify(3)."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(text.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


class Known:
    """The clients' file, read again when it changes. An unreadable file leaves no client."""

    def __init__(self, path: str) -> None:
        self._path, self._found, self._next = path, clients.Clients(), 0.0
        self._seen: tuple[int, ...] = ()

    def now(self) -> clients.Clients:
        """Return the clients, at most a moment old: looking at the file is a tenth of the time of a new connection."""
        if (now := time.monotonic()) < self._next:
            return self._found
        self._next = now + KNOWN_SECONDS
        try:
            status = os.stat(self._path)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._found, self._seen = clients.parse(io_file.read_bounded(self._path, clients.MOST)), seen
        except (OSError, ValueError) as error:
            say(f"no client can use the gateway: {self._path}: {error}")
            self._found, self._seen = clients.Clients(), ()
        return self._found


class Entry:
    """A model of one server, its key, and its own trust: a CA is not trusted for another server."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.id, self.name = str(given["id"]), str(given["name"])
        self.base = str(given["url"]).removesuffix("/v1")
        self.key = os.environ.get(given["variable"], "") if given["variable"] else ""
        self.tls = context(given["ca"]) if given["ca"] else None
        self.host, self.wake = urllib.parse.urlsplit(self.base).hostname or "", int(given["wake"])
        self.proof: Mapping[str, Any] = given["proof"]


def context(ca: str) -> ssl.SSLContext:
    """Return the settings of a connection that trusts certificates in PEM alone.

    A server's own one may be the only one.
    """
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.load_verify_locations(cadata=ca)
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return found


class State:
    """Everything that the parts of the program share."""

    def __init__(self, settings: Mapping[str, Any], folder: str) -> None:
        self.settings = settings
        self.entries = {model["id"]: Entry(model) for model in settings["models"]}
        ids: dict[str, list[str]] = {}
        for entry in self.entries.values():
            ids.setdefault(entry.name, []).append(entry.id)
        kinds = {model["name"]: model["kind"] for model in settings["models"]}
        wakes = {model["id"] for model in settings["models"] if model["wake"]}
        self.gateway = requests.Gateway(ids, kinds, settings["fallbacks"], settings["health_interval"], wakes)
        #: The start of each entry that was woken.
        self.waking: dict[str, asyncio.Task[str]] = {}
        self.known = Known(settings["clients"])
        #: The last error of each unhealthy entry, when each was checked last, and the open requests of each.
        self.errors: dict[str, str] = {}
        self.checked: dict[str, int] = {}
        self.busy = dict.fromkeys(self.entries, 0)
        #: The entries that have to prove themselves since their last failure, and the running proofs.
        self.unproven = {entry.id for entry in self.entries.values() if entry.proof}
        self.proofs: dict[str, asyncio.Task[str]] = {}
        #: Why the last proof of an entry since its last failure was refused.
        self.refused: dict[str, str] = {}
        #: The healthy entries whose last check timed out.
        self.slow: set[str] = set()
        self.wake = asyncio.Event()
        self._turn, self._lines = 0, foreign.Quota(_MOST_LINES)
        self._path = f"{folder}/usage.json"
        self._dirty = False
        try:
            self.usage = usage.parse(io_file.read_bounded(self._path, usage.MOST))
        except (OSError, ValueError) as error:
            say(f"the counts start at zero: {self._path}: {error}")
            self.usage = usage.Usage()

    def say(self, name: str, text: str) -> None:
        """Write a line about an entry. Its server may answer each check in another way, so many are only counted."""
        if self._lines.take(name, time.monotonic()):
            say(f"{name}: {text}{self._lines.left_out(name)}")

    def servers(self) -> requests.Servers:
        """Return the state of the servers for the next request."""
        self._turn += 1
        return requests.Servers(self.errors, self.busy, self._turn)

    def count(self, client: str, model: str, answered: str, failed: bool, tokens: forward.Tokens) -> None:
        """Add a request to the usage, which the next save writes: the request to its model, tokens to the model that
        answered."""
        if client != clients.OPERATOR:
            now = int(time.time())
            counts = {"prompt_tokens": tokens.prompt, "completion_tokens": tokens.completion}
            same = answered in ("", model)
            self.usage.add(client, model, now, requests=1, failures=int(failed), **(counts if same else {}))
            if not same:
                self.usage.add(client, answered, now, **counts)
            self._dirty = True

    async def save(self) -> None:
        """Write the usage if it changed."""
        if self._dirty:
            self._dirty = False
            text = usage.text(self.usage)
            await asyncio.to_thread(io_file.write_file, self._path, text, 0o600)

    def report(self) -> bytes:
        """Return the state of each model, and the use of each client."""
        rows = [
            {key: model[key] for key in ("id", "name", "cluster", "kind")}
            | {
                "healthy": model["id"] not in self.errors,
                "error": self.errors.get(model["id"], ""),
                "checked": self.checked.get(model["id"], 0),
            }
            for model in self.settings["models"]
        ]
        return json.dumps({"models": rows, "usage": asdict(self.usage)["clients"]}).encode()


async def watch(state: State, read: Read) -> None:
    """Check all models regularly, and soon after a failed request."""
    interval = state.settings["health_interval"]
    # A failure that no check has seen would need no proof.
    interval = min(interval, _PROVEN_INTERVAL) if any(entry.proof for entry in state.entries.values()) else interval
    while True:
        await asyncio.sleep(_LEAST_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.wake.wait(), max(0.0, interval - _LEAST_SECONDS))
        state.wake.clear()
        await check(state, read)


async def keep(state: State) -> None:
    """Write the usage regularly."""
    while True:
        await asyncio.sleep(_SAVE_SECONDS)
        try:
            await state.save()
        except OSError as error:
            say(f"the counts were not saved: {error}")


async def check(state: State, read: Read) -> None:
    """Check all models at the same time.

    A healthy server that is too slow for one check stays healthy until the next one, which follows soon: under load,
    vLLM answers late, and the only server of a model would leave its users with errors.
    """
    entries = list(state.entries.values())
    results = await asyncio.gather(*(probe(entry, read) for entry in entries))
    found = {entry.id: error for entry, error in zip(entries, results, strict=True) if error}
    waiting = state.errors.keys() - state.proofs.keys()
    late = {name for name in found if found[name] == _SLOW and name in state.checked and name not in waiting}
    # A second time in a row, it is an error like any other.
    state.slow = late - state.slow
    for name in state.slow:
        state.say(name, f"a check {found.pop(name)}, so the next one decides")
        state.wake.set()
    found |= {entry.id: error for entry in entries if (error := _unproven(state, entry, entry.id in found, read))}
    for name in state.errors.keys() | found.keys():
        if state.errors.get(name) != found.get(name):
            state.say(name, found.get(name, "healthy again"))
    state.errors, state.checked = found, dict.fromkeys(state.entries, int(time.time()))


def _unproven(state: State, entry: Entry, failed: bool, read: Read) -> str:
    """Return why the proof of a server lets it not be used yet, "" if it may be, or if its check failed."""
    if not failed:
        return _proven(state, entry, read) if entry.id in state.unproven else ""
    if entry.proof:
        # An earlier proof is of another start.
        state.unproven.add(entry.id)
        state.refused.pop(entry.id, None)
        if task := state.proofs.pop(entry.id, None):
            task.cancel()
    return ""


def _proven(state: State, entry: Entry, read: Read) -> str:
    """Return why a server that returns is not used yet, "" if its answer is the record's.

    The proof goes on while others are checked. The next check after its end has the result.
    """
    task = state.proofs.get(entry.id)
    if task is None:
        task = state.proofs[entry.id] = asyncio.create_task(_prove(entry, read))
        task.add_done_callback(lambda _task: state.wake.set())
    if not task.done():
        return state.refused.get(entry.id, _PROVES)
    del state.proofs[entry.id]
    return _proved(state, entry, task.result())


def _proved(state: State, entry: Entry, error: str) -> str:
    """Note the result of a proof, and return it."""
    state.refused.pop(entry.id, None)
    if error:
        state.refused[entry.id] = error
    else:
        state.unproven.discard(entry.id)
    return error


async def first_check(state: State, read: Read) -> None:
    """Check all models, and wait a moment for the proofs, so that the gateway begins with all that are ready."""
    await check(state, read)
    if state.proofs:
        await asyncio.wait(state.proofs.values(), timeout=_FIRST_SECONDS)
        await check(state, read)


async def _prove(entry: Entry, read: Read) -> str:
    """Return why the answer of a server is not the record's, "" if it is, or if the server has another model."""
    try:
        async with asyncio.timeout(_PROOF_SECONDS):
            status, text = await read(entry, "/v1/models", entry.key, b"")
            if status == 200 and not proof.serves(entry.proof, entry.name, text.decode("utf-8", "replace")):
                return ""
            body = proof.request(entry.proof, entry.name, secrets.token_hex(16))
            status, text = await read(entry, proof.PATH, entry.key, body)
    except TimeoutError:
        return f"no golden answer after {_PROOF_SECONDS:.0f} s"
    except (OSError, ValueError) as error:
        return str(error)
    if status != 200 or len(text) > proof.MOST:
        return f"its golden answer is HTTP {status}" if status != 200 else "its golden answer is too long"
    return proof.judge(entry.proof, text.decode("utf-8", "replace"))


async def probe(entry: Entry, read: Read) -> str:
    """Return why a model's server cannot be used, "" if it can: it is healthy, takes the key, and serves the model.

    A request to the model itself would wait behind those of its users.
    """
    body = b""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            for path, key in (("/health", ""), ("/v1/models", entry.key)):
                status, body = await read(entry, path, key, b"")
                if status != 200:
                    return f"HTTP {status} from {path}" + (": the API key is wrong" if status == 401 else "")
        if len(body) > MOST_LISTING:
            return "its list of models is too long"
        listed = bounded_json.load(body.decode("utf-8", "replace"), MOST_LISTING)
    except TimeoutError:
        return _SLOW
    except OSError as error:
        return str(error)
    except ValueError as error:
        return f"its list of models is not valid: {error}"
    names = [item.get("id") for item in bounded_json.mappings(listed.get("data") if isinstance(listed, dict) else None)]
    others = ", ".join(foreign.line(str(name), 100) for name in names[:5])
    return "" if entry.name in names else f"it does not serve this model, but {others or 'none'}"


def wake(state: State, ids: Sequence[str], read: Read) -> set[asyncio.Task[str]]:
    """Wake the servers of entries, and return the starts: those of earlier requests, too."""
    for id_ in ids:
        if id_ not in state.waking:
            state.waking[id_] = asyncio.create_task(_wake(state, state.entries[id_], read))
    return {state.waking[id_] for id_ in ids}


async def woken(state: State, ids: Sequence[str], read: Read) -> str:
    """Wake the servers of entries, and return HEALTHY or WOKEN as soon as one is healthy, "" if none becomes it."""
    pending = wake(state, ids, read)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if found := max(task.result() for task in done):
            # One that did not rest may have refused a request, and may refuse it again.
            await asyncio.sleep(_AGAIN_SECONDS if found == HEALTHY else 0)
            return found
    return ""


async def _wake(state: State, entry: Entry, read: Read) -> str:
    """Wake a server, and wait until it is healthy. One that is about to rest does not listen for its waker yet.

    Returns HEALTHY, WOKEN if it rested, "" after the time limit.
    """
    found, limit = HEALTHY, time.monotonic() + _STOP_SECONDS
    try:
        while time.monotonic() < limit:
            if not await probe(entry, read):
                if entry.id in state.unproven and _proved(state, entry, await _prove(entry, read)):
                    return ""
                if error := state.errors.pop(entry.id, ""):
                    state.say(entry.id, f"healthy after: {error}")
                return found
            # Nobody listens while it starts.
            if await _connected(entry.host, entry.wake):
                state.say(entry.id, "it rests, and a request starts it")
                found, limit = WOKEN, time.monotonic() + state.settings["wake_timeout"]
            await asyncio.sleep(_LEAST_SECONDS)
        return ""
    finally:
        del state.waking[entry.id]


async def _connected(host: str, port: int) -> bool:
    """Return whether a port takes a connection, which ends at once."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


class Places:
    """The only places that the process connects to: the addresses and ports of the models' servers.

    The process has no reason for another connection, so this only limits the damage of a defect in a library.
    """

    def __init__(self, models: Iterable[Mapping[str, Any]]) -> None:
        self._hosts: dict[str, set[int]] = {}
        self._places: set[tuple[str, int]] = set()
        for model in models:
            parts = urllib.parse.urlsplit(str(model["url"]))
            ports = {parts.port or 0, *([int(model["wake"])] if model["wake"] else [])}
            self._hosts.setdefault(parts.hostname or "", set()).update(ports)
        for host in self._hosts:
            if _is_address(host):
                self.know(host, [host])

    def know(self, host: str, addresses: list[str]) -> None:
        """Note the addresses of a server's name."""
        self._places |= {(address, port) for address in addresses for port in self._hosts.get(host, ())}

    def confine(self) -> None:
        """Refuse all other connections of this process, and look up no other names."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            host = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
            if host is not None and host not in self._hosts and not _is_address(host):
                raise _refused(f"look up {host}")
        elif (
            event == "socket.connect"
            and isinstance(arguments[1], tuple)
            and arguments[0].family in (socket.AF_INET, socket.AF_INET6)
        ):
            place = (arguments[1][0], arguments[1][1])
            if place not in self._places:
                raise _refused(f"connect to {place[0]} port {place[1]}")


def _refused(attempt: str) -> PermissionError:
    say(f"refused an attempt to {attempt}")
    return PermissionError(f"the gateway does not {attempt}")


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return True
    return False
