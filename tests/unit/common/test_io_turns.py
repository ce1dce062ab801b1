"""Connections of a real server of asyncio, on loopback, whose parser is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_turns

SECONDS = 0.002
LARGE = b"x" * (64 * io_turns.PIECE)


class Library(asyncio.Protocol):
    """A library's connection: it parses its data at once, and answers each newline."""

    def __init__(self) -> None:
        self.pieces: list[int] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(len(data))
        time.sleep(SECONDS)
        if data.endswith(b"\n"):
            self.transport.write(b"answer\n")


class Connection(io_turns.Turns, Library):
    pass


Scenario = Callable[[int, list[Connection]], Awaitable[Any]]


def served(scenario: Scenario) -> Any:
    """Run a scenario with the port of a server and the list of its connections."""

    async def run() -> Any:
        made: list[Connection] = []

        def connection() -> Connection:
            made.append(Connection())
            return made[-1]

        server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        try:
            return await scenario(server.sockets[0].getsockname()[1], made)
        finally:
            for each in made:
                each.transport.abort()
            server.close()
            await server.wait_closed()

    return asyncio.run(asyncio.wait_for(run(), 30))


async def opened(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


def test_many_connections_with_data_do_not_delay_another_one() -> None:
    async def scenario(port: int, made: list[Connection]) -> tuple[int, list[int]]:
        others = [await opened(port, LARGE) for _number in range(10)]
        while sum(bool(each._waiting) for each in made) < len(others):
            await asyncio.sleep(0)
        before = sum(len(each.pieces) for each in made)
        reader, _writer = await opened(port, b"?\n")
        assert await reader.readline() == b"answer\n"
        return sum(len(each.pieces) for each in made) - before, [max(each.pieces) for each in made]

    between, largest = served(scenario)
    assert between < 20
    assert max(largest) <= io_turns.PIECE


def test_all_data_is_parsed_in_its_order() -> None:
    async def scenario(port: int, made: list[Connection]) -> int:
        reader, _writer = await opened(port, LARGE + b"\n")
        assert await reader.readline() == b"answer\n"
        return sum(made[0].pieces)

    assert served(scenario) == len(LARGE) + 1


def test_a_library_that_reads_on_gets_nothing_more_while_data_waits() -> None:
    async def scenario(port: int, made: list[Connection]) -> int:
        _reader, _writer = await opened(port, LARGE * 20)
        most = 0
        for _turn in range(100):
            await asyncio.sleep(0)
            for each in made:
                each.transport.resume_reading()
                most = max(most, len(each._waiting))
        return most

    assert 0 < served(scenario) <= 1 << 18, "asyncio reads 256 KiB at once"


def test_a_connection_that_its_library_has_paused_waits() -> None:
    async def scenario(port: int, made: list[Connection]) -> None:
        reader, _writer = await opened(port, LARGE + b"\n")
        while not made or not made[0]._waiting:
            await asyncio.sleep(0)
        made[0].transport.pause_reading()
        # A turn may be under way.
        await asyncio.sleep(0.05)
        parsed = len(made[0].pieces)
        await asyncio.sleep(0.05)
        assert len(made[0].pieces) == parsed
        made[0].transport.resume_reading()
        assert await reader.readline() == b"answer\n"

    served(scenario)


def test_a_connection_that_ends_leaves_the_queue() -> None:
    async def scenario(port: int, made: list[Connection]) -> None:
        await opened(port, LARGE)
        while not made or not made[0]._waiting:
            await asyncio.sleep(0)
        made[0].transport.abort()
        reader, _writer = await opened(port, b"?\n")
        assert await reader.readline() == b"answer\n"
        while made[0]._queue:
            await asyncio.sleep(0)
        assert not made[0]._waiting

    served(scenario)


@pytest.mark.parametrize("reads", [True, False])
def test_an_answer_that_nobody_reads_ends_the_connection(reads: bool) -> None:
    async def scenario(port: int, made: list[Connection]) -> bool:
        reader, _writer = await opened(port, b"x")
        while not made:
            await asyncio.sleep(0)
        made[0]._later = later = mock.Mock()
        made[0].transport.write(b"y" * (8 << 20))
        (seconds, end), waiting = later.call_args.args, made[0].transport.get_write_buffer_size()
        while reads and made[0].transport.get_write_buffer_size() == waiting:
            await reader.read(1 << 20)
        assert seconds == io_turns.UNREAD_SECONDS
        end()
        return made[0]._reading.closed

    assert served(scenario) is not reads


@pytest.mark.parametrize("large", [True, False])
def test_a_closed_connection_whose_rest_nobody_reads_ends(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest below the mark of pause_writing stays forever without a limit, and close() waits for it."""
    monkeypatch.setattr(io_turns, "UNREAD_SECONDS", 0.2)

    async def scenario(port: int, made: list[Connection]) -> bool:
        reader, writer = await opened(port, b"x")
        writer.transport.pause_reading()
        while not made:
            await asyncio.sleep(0)
        if not large:
            made[0].transport.set_write_buffer_limits(high=64 << 20)
        made[0].transport.write(b"y" * (8 << 20))
        made[0].transport.close()
        waits = made[0]._reading.get_write_buffer_size() > 0
        while made[0]._reading._connection is not None:
            await asyncio.sleep(0.01)
        assert not reader.at_eof()
        return waits

    assert served(scenario)


def test_the_beginning_of_an_answer_is_kept() -> None:
    transport = mock.Mock()
    reading = io_turns._Reading(transport, mock.Mock())
    for data in (b"HTTP/1.1 200 OK\r\n", b"more"):
        reading.write(data)
    assert reading.begin == b"HTTP/1.1 200 OK\r"
    assert transport.write.call_args_list == [mock.call(b"HTTP/1.1 200 OK\r\n"), mock.call(b"more")]
