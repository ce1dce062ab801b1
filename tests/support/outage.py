"""Measure an outage: requests from outside of the cluster, the services of each node, and the leftovers of a fault."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import paramiko
import pytest
from live_cluster import Cluster
from testinfra.host import Host
from waiting import wait_until

#: A request without an answer after this time is lost. The lab's model answers within 3 s.
REQUEST_SECONDS = 20
#: Clients that each send the next request after an answer.
CLIENTS = 2
#: A fault that nothing noticed within this time, and that cost no request, has no effect.
EFFECT_SECONDS = 40
#: The cluster serves again if no request fails and no service changes for this time.
STEADY_SECONDS = 8

_STATE = (
    "systemctl show --property=InvocationID,ActiveState --value gb10-ray gb10-vllm; "
    "journalctl --no-pager --quiet --boot --unit=gb10-watchdog --output=cat | grep --count '^ALARM: '"
)
#: What differs from start to start: UUIDs, PIDs and random names.
_NUMBER = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=systemd-private-)\w+|(?<=service-)\w+|(?<=psm_)\w+|(?<=pymp-)\w+|\b[0-9a-f]{6,}\b|\d+"
)
#: Ray's workers without a task, connections of people, podman's lock, which its first command after a boot makes, and
#: libfaketime, which stands for a changed clock. PyTorch's cache moves while /tmp is full.
_PASSING = re.compile(r"ray::IDLE|sshd|sftp-server|\(sd-pam\)|^libpod_lock$|faketime_|torchinductor_")


@dataclass
class Answers:
    """The requests of all clients: when each ended, on this machine's monotonic clock, and whether it had an answer."""

    ended: list[tuple[float, bool]] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def lost(self, since: float) -> list[float]:
        """Return when each request without an answer ended."""
        return [when for when, good in self.ended if when >= since and not good]

    def good(self, since: float) -> list[float]:
        """Return when each request with an answer ended."""
        return [when for when, good in self.ended if when >= since and good]


@contextmanager
def requests(url: str, key: str, prompt: str) -> Iterator[Answers]:
    """Send completions from this machine during the block, as clients on the network do."""
    answers, over = Answers(), threading.Event()
    body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 16, "ignore_eos": True}).encode()

    def client() -> None:
        while not over.is_set():
            request = urllib.request.Request(
                f"{url}/v1/completions", body, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:
                    good = bool(json.load(answer)["choices"])
            except (OSError, ValueError, KeyError) as error:
                good = False
                answers.errors[_NUMBER.sub("#", f"{getattr(error, 'code', '')} {error}".strip())[:120]] += 1
            answers.ended.append((time.monotonic(), good))
            over.wait(0.2 if good else 1)

    threads = [threading.Thread(target=client, daemon=True) for _number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join(REQUEST_SECONDS + 5)


@dataclass
class Watched:
    """The services of each node: when a state was new, and the last state that was read."""

    changed: list[tuple[float, str]] = field(default_factory=list)
    last: dict[str, str] = field(default_factory=dict)


@contextmanager
def services(cluster: Cluster) -> Iterator[Watched]:
    """Read the services of each node twice a second during the block.

    A node that does not answer is connected again.
    """
    watched, over = Watched(), threading.Event()

    def poll(name: str) -> None:
        host: Host | None = None
        while not over.is_set():
            try:
                host = host or cluster.connect(name)
                state = host.run(_STATE).stdout
                if state and state != watched.last.get(name):
                    if name in watched.last:
                        watched.changed.append((time.monotonic(), name))
                    watched.last[name] = state
            except (pytest.fail.Exception, paramiko.SSHException, OSError, EOFError):
                host = None
            over.wait(0.5)

    threads = [threading.Thread(target=poll, args=[name], daemon=True) for name in cluster.nodes]
    for thread in threads:
        thread.start()
    try:
        with suppress(AssertionError):
            wait_until(lambda: len(watched.last) == len(cluster.nodes), 20, pause=0.1)
        yield watched
    finally:
        over.set()
        for thread in threads:
            thread.join(10)


@dataclass(frozen=True)
class Outage:
    """A fault's effect. Seconds from the fault to the first sign in a service, and to the next answers; None: none."""

    detected: float | None
    served: float | None
    lost: int
    errors: Mapping[str, int]


def measure(
    cluster: Cluster, url: str, key: str, prompt: str, fault: Callable[[], None], within: float = 420
) -> Outage:
    """Cause a fault while clients send requests, and wait until the cluster serves again by itself."""
    with services(cluster) as watched, requests(url, key, prompt) as answers:
        wait_until(lambda: len(answers.good(0)) >= 2 * CLIENTS, 30, "the clients get no answers before the fault", 0.2)
        watched.changed.clear()
        answers.errors.clear()
        began = time.monotonic()
        fault()
        ended = time.monotonic()

        def over() -> bool:
            now = time.monotonic()
            lost, signs = answers.lost(began), [when for when, _name in watched.changed if when >= began]
            if not lost and not signs:
                return now > ended + EFFECT_SECONDS
            last = max([*lost, *signs, ended])
            good = answers.good(last)
            return bool(good) and now > max(last, ended) + STEADY_SECONDS and len(good) >= 2 * CLIENTS

        with suppress(AssertionError):
            wait_until(over, within, pause=0.2)
        lost, signs = answers.lost(began), [when for when, _name in watched.changed if when >= began]
        good = answers.good(max([*lost, began]))
        return Outage(
            detected=round(min(signs) - began, 1) if signs else None,
            served=(round(good[0] - began, 1) if lost else 0.0) if good else None,
            lost=len(lost),
            errors=dict(answers.errors),
        )


#: Lines of a node by their kind.
State = dict[str, list[str]]


def compared(before: Mapping[str, State], after: Mapping[str, State]) -> dict[str, dict[str, tuple[int, int]]]:
    """Return how often a line was and is there, by node and kind, where it differs."""
    found = {
        f"{name}, {what}": {
            line: (before[name][what].count(line), now.count(line))
            for line in {*before[name][what], *now}
            if before[name][what].count(line) != now.count(line)
        }
        for name, kinds in after.items()
        for what, now in kinds.items()
    }
    return {place: lines for place, lines in found.items() if lines}


def leftovers(host: Host, user: str = "gb10") -> State:
    """Return the leftovers of a service on a node: processes, listeners, shared memory, semaphores and files, without
    their numbers."""
    commands = {
        "processes": f"ps --no-headers -o args= --user {user} || true",
        "listeners": "ss --no-header --listening --tcp --udp --numeric --processes | awk '{print $1, $NF}'",
        "shared memory": "ls -A /dev/shm /dev/mqueue",
        "System V": "ipcs --shmems --semaphores --queues | grep ^0x || true",
        "files": f"find /tmp /var/tmp -maxdepth 3 -user {user}",
    }
    found = {what: host.check_output(command).splitlines() for what, command in commands.items()}
    return {
        what: sorted(_NUMBER.sub("#", line)[:100] for line in lines if not _PASSING.search(line))
        for what, lines in found.items()
    }
