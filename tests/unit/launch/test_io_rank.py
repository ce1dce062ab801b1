# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ranks of vLLM without Ray: they start and end together. Most run in this process, with real connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_rank

SLEEP = ["sleep", "600"]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(io_rank, "_RETRY", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def meet(port: int, rank: int, name: str = "a", ranks: int = 3) -> None:
    """Wait as a rank until all have connected."""
    group = io_rank.Group("127.0.0.1", port, name)
    await (group.follow(rank) if rank else group.lead(ranks))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a rank, which may not listen yet. The test's own limit ends it."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.05)


async def waits(*ranks: asyncio.Task[None]) -> bool:
    """Return whether none of the ranks runs for a moment."""
    done, _pending = await asyncio.wait(ranks, timeout=0.3)
    return not done


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_no_rank_runs_before_all_are_there(port: int, order: tuple[int, ...]) -> None:
    async def scenario() -> None:
        first = [asyncio.create_task(meet(port, rank)) for rank in order[:2]]
        assert await waits(*first)
        await asyncio.wait_for(asyncio.gather(*first, meet(port, order[2])), 10)

    asyncio.run(scenario())


def test_a_rank_of_another_group_stays_outside(port: int) -> None:
    async def scenario() -> None:
        head, old = (asyncio.create_task(meet(port, rank, name, 2)) for rank, name in enumerate("ab"))
        assert await waits(head, old)
        await asyncio.wait_for(asyncio.gather(head, meet(port, 1, ranks=2)), 10)
        assert await waits(old)

    asyncio.run(scenario())


def test_one_that_gave_up_waiting_can_come_again(port: int) -> None:
    async def scenario() -> None:
        head, early = (io_rank.Group("127.0.0.1", port, "a") for _rank in range(2))
        leading, following = asyncio.create_task(head.lead(3)), asyncio.create_task(early.follow(1))
        await until(lambda: "1" in head.others)
        early.end("it is being stopped")
        await following
        await until(lambda: not head.others)
        await asyncio.gather(leading, meet(port, 1), meet(port, 2))
        assert head.others.keys() == {"1", "2"}

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_who_is_no_rank_of_the_group_keeps_no_place(port: int) -> None:
    lines = (b"a 0", b"a 3", b"a -1", b"a 01", b"a x", b"a 1 2", "a \u00b2".encode(), b"b 1", b"x" * 200_000)

    async def scenario() -> None:
        head = asyncio.create_task(meet(port, 0))
        assert await waits(head)
        for line in lines:
            reader, writer = await opened(port)
            writer.write(line + b"\n")
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b"", line
            writer.close()
        await asyncio.gather(head, meet(port, 1), meet(port, 2))

    asyncio.run(asyncio.wait_for(scenario(), 20))


def run_all(port: int, *commands: list[str]) -> list[int]:
    """Return the exit statuses of ranks with these commands."""

    async def run(rank: int) -> int:
        group = io_rank.Group("127.0.0.1", port, "a")
        status = await io_rank.run(group, rank, len(commands), 60, commands[rank])
        # As the end of a process does.
        for writer in group.others.values() if rank == 0 else group.kept[:1]:
            writer.close()
        return status

    async def scenario() -> list[int]:
        return await asyncio.gather(*map(run, range(len(commands))))

    return asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize(("ended", "reason"), [(0, "the head ended"), (1, "rank 1 ended")])
def test_all_end_when_one_does(port: int, capsys: pytest.CaptureFixture[str], ended: int, reason: str) -> None:
    commands = [SLEEP] * 3
    commands[ended] = ["sh", "-c", "exit 3"]
    assert run_all(port, *commands) == [3 if rank == ended else 1 for rank in range(3)]
    said = capsys.readouterr().out.splitlines()
    assert {"gb10-rank: all ranks connected", "gb10-rank: this rank ended", f"gb10-rank: {reason}"} <= set(said)


def test_a_command_that_ignores_the_end_is_killed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_rank, "_END", 0.2)
    assert run_all(port, ["sh", "-c", "trap '' TERM; sleep 600"], ["sh", "-c", "sleep 0.3"]) == [1, 1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_ends_with_a_reason_when_the_others_do_not_come(
    port: int, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    alone = io_rank.Group("127.0.0.1", port, "a")
    assert asyncio.run(io_rank.run(alone, rank, 3, 0.1, SLEEP)) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "gb10-rank: not all ranks connected within 0.1 s"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)], ids=["stopped", "killed"])
def test_the_end_of_a_service_ends_the_others(port: int, tmp_path: Path, number: int, status: int) -> None:
    """Real processes. A stop is no failure, and no command gets the variable of the group."""
    environment = os.environ | {io_rank.GROUP_VARIABLE: "a"}
    place = [sys.executable, io_rank.__file__, "--address=127.0.0.1", f"--port={port}", "--ranks=3"]
    marks = [tmp_path / str(rank) for rank in range(3)]
    commands = [["sh", "-c", f"echo $$ ${io_rank.GROUP_VARIABLE} > {mark}; exec sleep 600"] for mark in marks]
    ranks = [
        subprocess.Popen([*place, f"--rank={rank}", "--", *command], env=environment)
        for rank, command in enumerate(commands)
    ]
    pids: list[int] = []
    try:
        wait_until(lambda: all(mark.exists() and mark.read_text(encoding="utf-8") for mark in marks), 60, pause=0.05)
        pids = [int(mark.read_text(encoding="utf-8")) for mark in marks]
        ranks[1].send_signal(number)
        assert [rank.wait(20) for rank in ranks] == [1, status, 1]
        assert not any(Path(f"/proc/{pid}").exists() for pid in (pids[0], pids[2]))
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("rank", "group", "reason"),
    [
        ("--rank=3", "a", "--rank 3 is not in the range 0 to 2"),
        ("--rank=-1", "a", "--rank -1 is not in the range 0 to 2"),
        ("--rank=1", "", "GB10_RANK_GROUP must be one word"),
        ("--rank=1", "two words", "GB10_RANK_GROUP must be one word"),
        ("", "a", "the following arguments are required: --rank"),
    ],
)
def test_a_place_that_there_is_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str, group: str, reason: str
) -> None:
    place = ["--address=127.0.0.1", "--port=9", "--ranks=3", *filter(None, [rank])]
    monkeypatch.setattr(sys, "argv", ["gb10-rank.py", *place, "--", "true"])
    monkeypatch.setenv(io_rank.GROUP_VARIABLE, group)
    with pytest.raises(SystemExit) as ended:
        io_rank.main()
    assert (ended.value.code, capsys.readouterr().err.rpartition(": error: ")[2]) == (2, f"{reason}\n")


def test_a_peer_that_lost_its_power_is_noticed_after_25_seconds() -> None:
    with socket.socket() as connection:
        io_rank.keep_alive(SimpleNamespace(get_extra_info={"socket": connection}.get))  # type: ignore[arg-type]
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [connection.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 5, 3]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
