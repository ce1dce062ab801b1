"""Ranks start and end together: real processes on loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_rank

PROGRAM = str(Path(io_rank.__file__))
Start = Callable[..., "Rank"]


class Rank:
    """A rank under the program. Its command records its PID and sleeps."""

    def __init__(self, folder: Path, port: int, rank: int, ranks: int, group: str, timeout: float) -> None:
        self.mark = folder / f"{rank}-{group}"
        command = [
            sys.executable,
            PROGRAM,
            "--address=127.0.0.1",
            f"--port={port}",
            f"--rank={rank}",
            f"--ranks={ranks}",
            f"--timeout={timeout}",
            "--",
        ]
        command += ["sh", "-c", f"echo $$ ${io_rank.GROUP_VARIABLE} > {self.mark}; exec sleep 600"]
        environment = os.environ | {io_rank.GROUP_VARIABLE: group}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def runs(self, within: float = 10) -> bool:
        """Return whether the command started in time."""
        until = time.monotonic() + within
        while time.monotonic() < until:
            if self.mark.exists() and self.mark.read_text(encoding="utf-8").strip():
                return True
            time.sleep(0.05)
        return False

    @property
    def pid(self) -> int:
        return int(self.mark.read_text(encoding="utf-8").split()[0])

    def gone(self) -> bool:
        """Return whether the program and its command have ended."""
        self.process.wait(timeout=20)
        return not Path(f"/proc/{self.pid}").exists()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started: list[Rank] = []

    def start(rank: int, ranks: int = 3, group: str = "a", timeout: float = 60) -> Rank:
        started.append(Rank(tmp_path, port, rank, ranks, group, timeout))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        # The command may end by itself at this moment, because its program was killed.
        if each.runs(within=1 if each.mark.exists() else 0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_no_rank_runs_before_all_are_there(start: Start, order: tuple[int, ...]) -> None:
    first = [start(rank) for rank in order[:2]]
    assert not any(rank.runs(within=1) for rank in first)
    assert all(rank.runs() for rank in [*first, start(order[2])])


@pytest.mark.parametrize("ended", [0, 1])
def test_all_end_when_one_does(start: Start, ended: int) -> None:
    ranks = [start(rank) for rank in (0, 1, 2)]
    assert all(rank.runs() for rank in ranks)
    os.kill(ranks[ended].pid, signal.SIGKILL)
    assert all(rank.gone() for rank in ranks)
    assert all(rank.process.returncode == 1 for rank in ranks)
    said = [rank.process.stdout.read() if rank.process.stdout else "" for rank in ranks]
    assert "this rank ended" in said[ended]


@pytest.mark.parametrize("stopped", [0, 2])
def test_a_stopped_service_stops_all(start: Start, stopped: int) -> None:
    ranks = [start(rank) for rank in (0, 1, 2)]
    assert all(rank.runs() for rank in ranks)
    ranks[stopped].process.terminate()
    assert all(rank.gone() for rank in ranks)
    assert [rank.process.returncode for rank in ranks] == [0 if number == stopped else 1 for number in range(3)], (
        "a stop is no failure"
    )


def test_a_killed_program_ends_the_others(start: Start) -> None:
    ranks = [start(rank) for rank in (0, 1, 2)]
    assert all(rank.runs() for rank in ranks)
    ranks[1].process.kill()
    assert ranks[0].gone()
    assert ranks[2].gone()


def test_a_rank_of_another_group_stays_outside(start: Start) -> None:
    head = start(0, ranks=2)
    old = start(1, ranks=2, group="b")
    assert not head.runs(within=3)
    new = start(1, ranks=2)
    assert head.runs()
    assert new.runs()
    assert not old.runs(within=1)


def test_one_that_gave_up_waiting_can_come_again(start: Start) -> None:
    head = start(0)
    early = start(1)
    assert head.process.stdout
    while "rank 1 connected" not in head.process.stdout.readline():
        assert head.process.poll() is None
    early.process.terminate()
    assert early.process.wait(timeout=10) == 0
    again, last = start(1), start(2)
    assert all(rank.runs() for rank in (head, again, last))


def test_who_is_no_rank_of_the_group_keeps_no_place(start: Start) -> None:
    head = start(0)
    assert head.process.stdout
    said = head.process.stdout.readline()
    assert said.startswith("gb10-rank: waiting for 2 other ranks on 127.0.0.1:")
    port = int(said.rpartition(":")[2])
    for greeting in (
        b"a 0\n",
        b"a 3\n",
        b"a -1\n",
        b"a 01\n",
        b"a x\n",
        b"a 1 2\n",
        "a \u00b2\n".encode(),
        b"x" * 200_000 + b"\n",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
            stranger.sendall(greeting)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b"", greeting
    assert all(rank.runs() for rank in (start(1), start(2), head))


@pytest.mark.parametrize(("rank", "group"), [(3, "a"), (4, "a"), (-1, "a"), (1, ""), (1, "two words")])
def test_a_place_that_there_is_not_is_refused(rank: int, group: str) -> None:
    command = [sys.executable, PROGRAM, "--address=127.0.0.1", "--port=9", f"--rank={rank}", "--ranks=3", "--", "true"]
    done = subprocess.run(
        command,
        env=os.environ | {io_rank.GROUP_VARIABLE: group},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 2
    assert f"--rank {rank} is not in the range 0 to 2" in done.stderr or "GROUP must be one word" in done.stderr


def test_all_places_are_required() -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "--", "true"], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stderr.strip().rpartition("\n")[2].partition(": error: ")[2]) == (
        2, "the following arguments are required: --address, --port, --rank, --ranks",
    )  # fmt: skip


def test_the_group_is_not_handed_on(start: Start) -> None:
    rank, _other = start(0, ranks=2), start(1, ranks=2)
    assert rank.runs()
    # The command wrote its PID, and the group if it had the variable.
    assert rank.mark.read_text(encoding="utf-8").split() == [str(rank.pid)]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_ends_with_a_reason_when_the_others_do_not_come(start: Start, rank: int) -> None:
    alone = start(rank, timeout=0.5)
    output, _none = alone.process.communicate(timeout=20)
    assert alone.process.returncode == 1
    assert "not all ranks connected within 0.5 s" in output


def test_a_peer_that_lost_its_power_is_noticed_after_25_seconds() -> None:
    with socket.socket() as connection:
        io_rank.keep_alive(SimpleNamespace(get_extra_info={"socket": connection}.get))  # type: ignore[arg-type]
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [connection.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 5, 3]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
