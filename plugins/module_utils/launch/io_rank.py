# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start and end a rank of vLLM's executor mp together with the other ranks.

gb10-vllm.service runs this file on each node. vLLM's ranks do not detect that another rank ended. A headless rank runs
on for hours without its head, and the head hangs in a collective when another rank is missing. So every other rank
holds a connection to the head's. Ranks start when all have connected, and end when any connection ends. The head
rejects ranks of another group, which were started from other inputs, so a restart never mixes old ranks with new ones.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

#: The environment variable that identifies the group of a rank.
GROUP_VARIABLE = "GB10_RANK_GROUP"
#: Seconds: between attempts to reach the head, to receive a greeting, and for a rank to exit by itself.
_RETRY, _GREETING, _END = 2, 10, 30
#: A node that loses power does not close its connections: probe after 10 s, three times.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))

#: The reason of a stop by systemd. It is not a failure: a failed service counts as one that used all its starts.
_STOPPED = "this service is being stopped"


class Group:
    """The ranks of one cluster, from the view of one rank."""

    def __init__(self, address: str, port: int, name: str) -> None:
        self.address, self.port, self.name = address, port, name
        self.others: dict[str, asyncio.StreamWriter] = {}
        self.complete, self.ended = asyncio.Event(), asyncio.Event()
        self.reason = ""

    def end(self, reason: str) -> None:
        """Request the end of all ranks. The first reason counts."""
        self.reason = self.reason or reason
        self.ended.set()

    async def lead(self, ranks: int) -> None:
        """Wait until all other ranks have connected, and send them the start signal."""
        server = await asyncio.start_server(
            lambda reader, writer: self._welcome(reader, writer, ranks), self.address, self.port
        )
        say(f"waiting for {ranks - 1} other ranks on {self.address}:{self.port}")
        await either(self.complete.wait(), self.ended.wait())
        # Keep a reference to the server. _welcome() rejects ranks that connect from now on.
        self.server = server
        for writer in self.others.values():
            writer.write(b"go\n")

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ranks: int) -> None:
        keep_alive(writer)
        rank = ""
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            name, rank = (await asyncio.wait_for(reader.readline(), _GREETING)).decode("ascii").split()
            if (
                name != self.name
                or rank not in map(str, range(1, ranks))
                or rank in self.others
                or self.complete.is_set()
            ):
                raise ValueError
            self.others[rank] = writer
            say(f"rank {rank} connected")
            if len(self.others) == ranks - 1:
                self.complete.set()
            await until_closed(reader)
        if self.others.get(rank) is not writer:
            writer.close()
            return
        if self.complete.is_set():
            self.end(f"rank {rank} ended")
        else:
            del self.others[rank]

    async def follow(self, rank: int) -> None:
        """Connect to the head until it sends the start signal. From then on, the end of the head ends this rank."""
        say(f"waiting for the head on {self.address}:{self.port}")
        while not self.ended.is_set():
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(self.address, self.port)
                keep_alive(writer)
                writer.write(f"{self.name} {rank}\n".encode())
                if await either(reader.readline(), self.ended.wait()) == b"go\n":
                    # Keep references: an unreferenced writer closes its connection, and an unreferenced task ends.
                    self.kept = writer, asyncio.ensure_future(self._until_closed(reader))
                    return
                writer.close()
            await either(asyncio.sleep(_RETRY), self.ended.wait())

    async def _until_closed(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            await until_closed(reader)
        self.end("the head ended")


async def until_closed(reader: asyncio.StreamReader) -> None:
    """Wait for the end of a connection, and discard the data received until then."""
    while await reader.read(4096):
        pass


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Enable keepalive, so that the kernel detects a peer that vanished without closing its connection."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


async def either(*waits: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of the first coroutine that completes, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return next(iter(done)).result()


def say(text: str) -> None:
    """Write a line to the service's log."""
    sys.stdout.write(f"gb10-rank: {text}\n")
    sys.stdout.flush()


async def run(group: Group, rank: int, ranks: int, timeout: float, command: Sequence[str]) -> int:
    """Run a rank once all have connected, until any ends.

    Return its exit status, 1 if another one ended first, 0 if the service was stopped.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, group.end, _STOPPED)
    try:
        await asyncio.wait_for(group.follow(rank) if rank else group.lead(ranks), timeout)
    except TimeoutError:
        # A service that waits forever would never show a reason.
        group.end(f"not all ranks connected within {timeout:g} s")
    if group.ended.is_set():
        say(group.reason)
        return 0 if group.reason == _STOPPED else 1
    say("all ranks connected")
    child = await asyncio.create_subprocess_exec(*command, start_new_session=True)
    exited = asyncio.ensure_future(child.wait())
    exited.add_done_callback(lambda _task: group.end("this rank ended"))
    await group.ended.wait()
    say(group.reason)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        await asyncio.wait_for(asyncio.shield(exited), _END)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    status = await exited
    return 0 if group.reason == _STOPPED else max(status, 1)


def main() -> None:
    """Parse the arguments and run the rank."""
    parser = argparse.ArgumentParser(description="Run a rank of vLLM together with the other ranks.")
    parser.add_argument("--address", required=True, help="the head's address, on which it listens")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True, help="0 for the head")
    parser.add_argument("--ranks", type=int, required=True, help="number of ranks")
    parser.add_argument("--timeout", type=float, default=600, help="seconds to wait for the other ranks (default 600)")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if not 0 <= options.rank < options.ranks:
        parser.error(f"--rank {options.rank} is not in the range 0 to {options.ranks - 1}")
    # Ranks with the same launch inputs share this word. It separates two launches, and is not a secret: every user can
    # read the unit. vLLM does not need it.
    name = os.environ.pop(GROUP_VARIABLE, "")
    if not name or name.split() != [name]:
        parser.error(f"{GROUP_VARIABLE} must be one word")

    async def start() -> int:
        group = Group(options.address, options.port, name)
        return await run(group, options.rank, options.ranks, options.timeout, options.command)

    raise SystemExit(asyncio.run(start()))


if __name__ == "__main__":
    main()
