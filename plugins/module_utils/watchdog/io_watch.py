# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watchdog of a node. gb10-watchdog.service runs this file.

The head's watchdog reads vLLM's metrics, decides, collects evidence and restarts the server; the ranks of all nodes end
with it. Another node's watchdog sends its witnesses to the head over the fabric, as UDP datagrams with an HMAC. Only
the head listens. Its reply has the number of restarts: a node whose witness outlives a restart restarts its own
service. It also reports whether the API answers, for the memory guard of that node. Each node has its own key, which
identifies it to the head.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access, io_guard
from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign, io_file, io_json, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_journal import say
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_choices, io_client, io_status
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_gates, start
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import io_lock
from ansible_collections.gb10.cluster.plugins.module_utils.run_lock import plan as run_lock_plan
from ansible_collections.gb10.cluster.plugins.module_utils.service import keys
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import RESTARTING
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import decide, io_evidence, io_node, parse
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import (
    DOWN,
    UP,
    Decision,
    Local,
    Peer,
    Sample,
    State,
    WatchdogSettings,
)

#: Seconds: without a report, after which a node is queried; stalled, after which NCCL RAS is queried.
_MISSED, _SUSPICIOUS = 6.0, 5.0
#: Sessions of a node whose numbers the head keeps.
_SESSIONS = 1000
#: Seconds that a witness may outlive a restart of the server, before its node restarts its own service. A rank of the
#: executor mp ends within 30 s.
_GRACE = 45.0
#: Seconds that a hung server gets to end. Its open requests have no answer, and it would wait for them until
#: TimeoutStopSec: with the watchdog's own request, 44 s in the lab.
_STOP_SECONDS = 10.0
#: Seconds between the end of new requests and the look at open ones.
_CLOSING_SECONDS = 1.0
#: Seconds between two queries for services that used all their starts.
_QUERY = 30.0
#: Lines in an hour about stopped services of a node, and notifications of each kind. Others are counted.
_NOTICES, _NOTIFICATIONS = 6, 30
#: Messages that are read after a sample that took longer than the interval.
_BURST = 100
_PROBE_SECONDS, _COMMAND_SECONDS = 60, 90
#: Source: ip(7). At boot the fabric's address may come after the service.
_IP_FREEBIND = 15


def notify_systemd(text: str) -> None:
    """Report to systemd. Source: sd_notify(3)."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.sendto(text.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)


def order(command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command, and return it, None if it did not end."""
    try:
        # A service has no module with run_command.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"{' '.join(command)} failed: {error}")
        return None
    if done.returncode:
        say(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done


def systemctl(*arguments: str) -> str:
    """Return the output of systemctl, "" if it failed."""
    done = order(["systemctl", *arguments])
    return done.stdout.strip() if done else ""


def _waking(unit: str, place: str) -> list[str]:
    """Return the order that stops a unit, and starts it when someone connects to a place.

    A socket that fails leaves no unit: its file means that the model rests.
    """
    properties = (f"ListenStream={place}", f"Conflicts={unit}", f"After={unit}", "CollectMode=inactive-or-failed")
    return [
        *("systemd-run", "--collect", f"--unit={paths.WAKE_SOCKET.removesuffix('.socket')}"),
        *(f"--socket-property={each}" for each in properties),
        *("systemctl", "start", "--no-block", unit),
    ]


def _state(name: str) -> str:
    """Return the path of a file that outlives this program."""
    return os.path.join(os.environ.get("STATE_DIRECTORY", paths.WATCHDOG_STATE), name)


def active_state(unit: str) -> str:
    """Return a unit's ActiveState, "" if it is unknown."""
    return systemctl("show", "--property=ActiveState", "--value", unit)


def restart(unit: str) -> bool:
    """Restart a running unit, and return True. One that systemd or an administrator starts or stops is left alone."""
    state = active_state(unit)
    if state == "active":
        systemctl("try-restart", "--no-block", unit)
        return True
    say(f"{unit} was not restarted: it is {state or 'unknown'}")
    return False


@dataclass
class WatchedNode:
    """The part that every node runs: local witnesses, and messages. ``given`` are the settings of the role."""

    given: Mapping[str, Any]
    key: str
    found: Local = field(default_factory=Local)
    failed: tuple[str, ...] = ()
    queried: float | None = None
    #: The processes now; the time of a restart of the server, and the processes then. A later one is not left from
    #: before.
    pids: frozenset[int] = frozenset()
    since: float | None = None
    old: frozenset[int] = frozenset()
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    number: int = 0

    def observe(self) -> None:
        """Read the processes of this node's services, and now and then which services systemd starts no more."""
        processes = io_node.processes(self.given["units"])
        self.found, self.pids = decide.local(self.found, processes), frozenset(each.pid for each in processes)
        now = time.monotonic()
        if self.queried is None or now - self.queried >= _QUERY:
            shown = systemctl("show", "--property=Id,ActiveState", *self.given["units"])
            self.failed, self.queried = parse.failed(shown), now

    def restarted(self) -> None:
        """Watch from now on which processes outlive a restart of the server."""
        self.since, self.old = time.monotonic(), self.pids

    def outlived(self) -> list[str]:
        """Return, once and after the grace time, the processes that outlived the restart.

        Kill stopped ranks before: they do not end, and the next start needs their GPU.
        """
        if self.since is None:
            return []
        for pid in self.found.stopped & self.old:
            say(f"killing rank process {pid}: it is stopped, and the server was restarted")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() - self.since <= _GRACE:
            return []
        self.since = None
        return [text for pid, text in self.found.lasting.items() if pid in self.old]

    def open(self) -> socket.socket | None:
        """Return the socket for messages, None on a cluster of one node."""
        if not self.key:
            return None
        connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        connection.setblocking(False)
        if self.given["head"]:
            connection.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
            connection.bind((self.given["head_address"], self.given["port"]))
        return connection


class Worker(WatchedNode):
    """A node other than the head: reports its witnesses, and ends a rank that outlives a restart of the server."""

    nonce: str = ""
    #: The number of the last report that the head replied to.
    answered: int = 0
    restarts: int | None = None
    #: When the head last replied that the API answers.
    served: float | None = None
    #: Whether the head last replied that the model rests, None before a reply.
    rests: bool | None = None

    def tick(self, connection: socket.socket | None) -> dict[str, Any]:
        """Report, and return the status."""
        self.observe()
        self.number += 1
        report = {
            "to": "head",
            "nonce": self.nonce,
            "sender": self.session,
            "number": self.number,
            "witnesses": parse.witnesses(self.found.witnesses),
            "compiling": self.found.compiling,
            "failed": self.failed,
        }
        if connection:
            with contextlib.suppress(OSError):
                connection.sendto(parse.message(report, self.key), (self.given["head_address"], self.given["port"]))
        if self.given["mode"] in RESTARTING and (left := self.outlived()):
            say(f"restarting {self.given['follow_unit']}: after the restart of the server, {'; '.join(left)}")
            restart(self.given["follow_unit"])
        self._rest()
        serves = self.served is not None and time.monotonic() - self.served <= _MISSED
        return {"witnesses": self.found.witnesses, "serves": serves}

    def _rest(self) -> None:
        """Stop and start this node's own rank with the model. Ray's node goes on, and has no rank meanwhile."""
        unit, mark, boot = self.given["follow_unit"], _state("rests"), io_node.boot()
        # After a reboot, the unit has started.
        if unit != self.given["server_unit"] or self.rests is None or self.rests == (io_file.read(mark) == boot):
            return
        if self.rests:
            say(f"{unit} rests with the model")
            io_file.write_file(mark, boot, 0o600)
            systemctl("stop", unit)
            # A rank whose peer has ended fails, and nobody shall take that for a fault.
            systemctl("reset-failed", unit)
        else:
            say(f"{unit} starts with the model")
            systemctl("reset-failed", unit)
            systemctl("start", "--no-block", unit)
            os.unlink(mark)

    def receive(self, data: bytes, _address: Any) -> bytes:
        """Handle a reply of the head."""
        reply = parse.content(data, self.key)
        own = reply and reply.get("to") == self.given["node"] and reply.get("sender") == self.session
        # A repeated reply has the number of an earlier report.
        if reply and own and int(reply.get("number", 0)) > self.answered:
            self.answered = int(reply["number"])
            self.nonce = str(reply.get("nonce"))
            self.served = time.monotonic() if reply.get("serves") is True else None
            self.rests = reply.get("rests") is True
            restarts = int(reply.get("restarts", 0))
            if self.restarts is not None and restarts > self.restarts:
                self.restarted()
            self.restarts = restarts
        return b""


class Head(WatchedNode):
    """The head: decides and acts."""

    def __init__(self, given: Mapping[str, Any], key: str) -> None:
        super().__init__(given, key)
        self.server = io_client.Server(given["url"], given["ca_file"], given["server_name"])
        self.settings = WatchdogSettings(
            given["mode"],
            given["witness_seconds"],
            given["stall_seconds"],
            given["restarts_per_hour"],
            given["rest_after"],
        )
        self.peers = {
            name: Peer(address, keys.of_watchdog(key, name), time.monotonic())
            for name, address in given["peers"].items()
        }
        self.state = State(time=time.monotonic(), restarts=self._restarts())
        self.restarts, self.last, self.serves = 0, "", False
        self.stopped: dict[str, tuple[str, ...]] = {}
        self.quota, self.notified = foreign.Quota(_NOTICES), foreign.Quota(_NOTIFICATIONS)
        #: The seconds of the start's parts; None before they are read.
        self.start: Mapping[str, float] | None = None
        self.probing = threading.Event()
        self.actions: queue.Queue[Callable[[], object]] = queue.Queue()
        threading.Thread(target=self._act, daemon=True).start()

    def receive(self, data: bytes, _address: Any) -> bytes:
        """Handle a report, and return the reply. A repeated report has a used number or an old nonce."""
        found = ((name, peer, parse.content(data, peer.key)) for name, peer in self.peers.items())
        node, peer, report = next((each for each in found if each[2]), (None, None, None))
        if not peer or not report or report.get("to") != "head":
            return b""
        sender, number = str(report.get("sender")), int(report.get("number", 0))
        if report.get("nonce") == self.session and number > peer.numbers.get(sender, 0):
            # An earlier session of the node must not speak again.
            peer.numbers = dict([*peer.numbers.items(), (sender, number)][-_SESSIONS:])
            peer.heard = time.monotonic()
            peer.witnesses, peer.compiling = parse.witnesses(report.get("witnesses")), bool(report.get("compiling"))
            peer.failed = parse.units(report.get("failed"), self.given["units"])
        reply = {"to": node, "nonce": self.session, "sender": sender, "restarts": self.restarts, "number": number}
        reply |= {"serves": self.serves, "rests": os.path.exists(paths.RESTS)}
        return parse.message(reply, peer.key)

    def tick(self, _connection: socket.socket | None) -> dict[str, Any]:
        """Observe, decide and request actions. Returns the status."""
        self.observe()
        server, engine = io_node.metrics(self.server, self.given["server_unit"])
        self.serves = server == UP
        self._follow_start(server)
        witnesses = [f"{self.given['node']}: {text}" for text in self.found.witnesses]
        now = time.monotonic()
        silent = {name: peer.address for name, peer in self.peers.items() if now - peer.heard > _MISSED}
        heard = {name: peer for name, peer in self.peers.items() if name not in silent}
        witnesses += [f"{name}: {text}" for name, peer in heard.items() for text in peer.witnesses]
        unreachable = io_node.unreachable(silent)
        witnesses += [f"{name}: no connection on the fabric" for name in unreachable]
        if self.state.stalled >= _SUSPICIOUS and (text := self._ras()):
            witnesses.append(f"{self.given['node']}: {text}")
        compiling = self.found.compiling or any(peer.compiling for peer in self.peers.values())
        sample = Sample(
            now,
            server,
            engine if server == UP else None,
            self.probing.is_set(),
            compiling,
            tuple(witnesses),
            tuple(unreachable),
        )
        self._follow(decide.step(self.state, sample, self.settings))
        self._report_stopped()
        return {
            "armed": self.state.armed,
            "stalled": round(self.state.stalled),
            "witnesses": witnesses,
            "last_alarm": self.last,
            "restarts": len(self.state.restarts),
            "start": self.start or {},
            "rests": os.path.exists(paths.RESTS),
        }

    def _report_stopped(self) -> None:
        """Notify once of each service that used all its starts. A node that reports ever others is only counted."""
        failed = {self.given["node"]: self.failed, **{name: peer.failed for name, peer in self.peers.items()}}
        for node, units in failed.items():
            new = [f"{node}: {unit}" for unit in units if unit not in self.stopped.get(node, ())]
            if new and self.quota.take(node, time.monotonic()):
                stays = "used all starts and stays stopped. playbooks/status.yml shows the reason"
                reason = f"{', '.join(new)} {stays}{self.quota.left_out(node)}"
                say(f"STOPPED: {reason}")
                self.actions.put(partial(self._notify, "stopped", reason, ""))
        self.stopped = failed

    def _ras(self) -> str:
        text = io_node.ras(self.given["units"])
        return "the port of NCCL RAS is silent" if text is None else parse.ras(text)

    def _follow_start(self, server: str) -> None:
        """Read the log of each start once, when the server answers."""
        if server == DOWN:
            self.start = None
        elif server == UP and self.start is None:
            self.start = {}
            self.actions.put(self._measure)

    def _follow(self, decision: Decision) -> None:
        self.state = decision.state
        if decision.raised:
            self.last = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC: {decision.raised}"
            say(f"ALARM: {decision.raised}")
            self.actions.put(partial(self._collect, decision.raised))
        if decision.cleared:
            say("the alarm is over: the server progressed or ended")
        if decision.probe:
            self.probing.set()
            threading.Thread(target=self._probe, daemon=True).start()
        if decision.rest:
            self.actions.put(self._rest)
        if decision.restart:
            self._save()
            self.actions.put(self._restart)
        if decision.refused:
            say(decision.refused)
            self.actions.put(partial(self._notify, "refused", decision.refused, ""))
        # Ray's own processes on the head outlive a restart of the server.
        if self.outlived() and self.given["follow_unit"] != self.given["server_unit"]:
            self.actions.put(lambda: restart(self.given["follow_unit"]))

    def _act(self) -> None:
        while True:
            action = self.actions.get()
            try:
                action()
            except Exception as error:  # noqa: BLE001  # A failed action must not end the following ones.
                say(f"an action failed: {error!r}")

    def _rest(self) -> None:
        """Stop the server until someone connects to the port that wakes it.

        The socket and the server exclude each other, so systemd stops one when it starts the other, also if this
        program is killed meanwhile.
        """
        unit, rests = self.given["server_unit"], False
        closed = os.path.isdir(access.CONFIG_FOLDER)
        if closed:
            io_status.refuse_new(access.CONFIG_FOLDER, _COMMAND_SECONDS)
        try:
            # A request that came before has arrived then.
            time.sleep(_CLOSING_SECONDS)
            if reason := self._why_not():
                say(f"no rest: {reason}")
                return
            say(f"{unit} rests: no request for {self.settings.rest_after:.0f} s")
            # Starts that follow requests must not count as those of a server that fails.
            systemctl("reset-failed", unit)
            done = order(_waking(unit, self.given["wake"]))
            rests = done is not None and not done.returncode
            if not rests:
                say(f"{unit} starts again, because {paths.WAKE_SOCKET} does not listen")
                systemctl("start", "--no-block", unit)
        finally:
            if closed and not rests:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(access.CONFIG_FOLDER, io_guard.DRAIN))

    def _why_not(self) -> str:
        """Return why the model may not rest now, "" if it may."""
        server, engine = io_node.metrics(self.server, self.given["server_unit"])
        if server != UP or engine is None:
            return "the server does not answer"
        if engine.running or engine.requests:
            return "a request came"
        held = io_lock.look(run_lock_plan.FOLDER)
        return run_lock_plan.described(held) if held else ""

    def _measure(self) -> None:
        """Read how long the parts of this start took, once."""
        service = io_facts.service(io_gates.run, self.given["server_unit"])
        found = io_choices.read(io_gates.run, service)["start"]
        if found:
            say(f"{self.given['server_unit']}: {start.summary(found)}")
        self.start = found

    def _collect(self, reason: str) -> None:
        folder = ""
        try:
            alarm = {"reason": reason, "node": self.given["node"], "clock": time.time(), "mode": self.settings.mode}
            folder = io_evidence.collect(
                _state("evidence"), self.given["keep_evidence"], alarm, self.server, self.given["units"]
            )
            say(f"evidence: {folder}")
        except OSError as error:
            say(f"the evidence could not be written: {error}")
        self._notify("alarm", reason, folder)

    def _restart(self) -> None:
        say(f"restarting {self.given['server_unit']} and with it all ranks")
        unit, began = self.given["server_unit"], time.monotonic()
        ordered = restart(unit)
        # After the evidence, which needs the stopped ranks.
        self.restarts += 1
        self.restarted()
        self._notify("restart", self.last, "")
        time.sleep(max(0.0, began + _STOP_SECONDS - time.monotonic()))
        if ordered and active_state(unit) == "deactivating":
            say(f"killing {unit}: it did not end within {_STOP_SECONDS:.0f} s of the restart")
            systemctl("kill", "--signal=SIGKILL", unit)

    def _notify(self, event: str, reason: str, folder: str) -> None:
        if not self.notified.take(event, time.monotonic()):
            return
        document = {
            "event": event,
            "node": self.given["node"],
            "model": self.given["model"],
            "reason": f"{reason}{self.notified.left_out(event)}",
            "evidence": folder,
        }
        webhook = io_file.read(paths.WATCHDOG_WEBHOOK).strip()
        for problem in io_evidence.notify(document, self.given["notify_command"], webhook):
            say(problem)

    def _probe(self) -> None:
        """Request one token, vector or score: without an answer, a stopped rank hides that requests run."""
        try:
            secret = io_client.api_key(self.given["key_file"])
            answered, reason = io_client.answers(self.server, self.given["model"], _PROBE_SECONDS, secret)
            if not answered:
                say(f"the watchdog's request failed: {reason}")
        except (OSError, ValueError) as error:
            say(f"the watchdog's request was not sent: {error}")
        finally:
            self.probing.clear()

    def _restarts(self) -> tuple[float, ...]:
        """Return the times of earlier restarts since boot."""
        try:
            saved = io_json.json_file(_state("restarts.json")) or {}
            return tuple(map(float, saved["times"])) if saved.get("boot") == io_node.boot() else ()
        except (OSError, ValueError, TypeError, KeyError) as error:
            say(f"the record of restarts cannot be read, so the watchdog assumes none: {error}")
            return ()

    def _save(self) -> None:
        io_file.write_file(
            _state("restarts.json"), json.dumps({"boot": io_node.boot(), "times": self.state.restarts}), 0o600
        )


def serve(node: Head | Worker, connection: socket.socket | None, ended: Callable[[], bool]) -> None:
    """Observe at each interval, and handle messages in between."""
    status_path = os.path.join(
        os.environ.get("RUNTIME_DIRECTORY", os.path.dirname(paths.WATCHDOG_STATUS)), "status.json"
    )
    notify_systemd("READY=1")
    while not ended():
        due = time.monotonic() + node.given["interval"]
        status = {"mode": node.given["mode"], "head": node.given["head"], **node.tick(connection)}
        io_file.write_file(status_path, json.dumps(status), 0o600)
        notify_systemd("WATCHDOG=1")
        late = _BURST
        while not ended() and late:
            left = due - time.monotonic()
            if not receive(node, connection, max(0.0, left)) and left <= 0:
                break
            late -= left <= 0


def receive(node: Head | Worker, connection: socket.socket | None, seconds: float) -> bool:
    """Wait for one message and reply to it. Returns whether there was one."""
    if not select.select([connection] if connection else [], [], [], seconds)[0] or connection is None:
        return False
    # ConnectionRefusedError: the head's watchdog does not run.
    with contextlib.suppress(OSError, ValueError, TypeError):
        data, address = connection.recvfrom(parse.MOST_MESSAGE + 1)
        if reply := node.receive(data, address):
            connection.sendto(reply, address)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Command-line entry point: the path of the settings, and of the head's secret or of a worker's key."""
    settings, path = list(sys.argv[1:] if arguments is None else arguments)
    given = io_json.json_file(settings)
    if given is None:
        say(f"{settings} does not exist. Expected: the settings of the role vllm_watchdog. Fix: run site.yml")
        return 1
    # The file of a key has a second line.
    key = io_file.read(path).partition("\n")[0] if given["peers"] else ""
    if given["peers"] and not paths.GENERATED_TOKEN.fullmatch(key):
        say(f"{path} has no key. Expected: 64 hexadecimal digits. Fix: run site.yml --tags vllm_watchdog")
        return 1
    node = Head(given, key) if given["head"] else Worker(given, key)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_signal: stop.set())
    serve(node, node.open(), stop.is_set)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
