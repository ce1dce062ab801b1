"""The programs of two nodes together: real processes, messages over loopback, a server's metrics, and a fake
systemctl."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packed import install
from run_module import program
from small_server import serving
from stand_in_modules import changed
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.service import keys
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import decide, io_evidence, io_node, io_watch, parse
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import (
    DOWN,
    SILENT,
    UP,
    Decision,
    Engine,
    Process,
    Sample,
    State,
)

KEY = "ab" * 32
UNIT = "gb10-vllm.service"
WORKER_KEY = keys.of_watchdog(KEY, "spark2")
SECRET = "sk-planted-key"
RANK = "open('/proc/self/comm', 'w').write('VLLM::Worker_TP'); import time; print(flush=True); time.sleep(600)"


class Metrics:
    """A server whose engine works on one request; each read is a step while ``works`` is set."""

    def __init__(self) -> None:
        self.steps, self.works, self.hidden, self.slow, self.requests = 1, True, False, 0.0, ""
        self.posted: list[dict[str, Any]] = []

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        """Return metrics, or a slow answer of the engine."""
        if request.command == "POST":
            self.posted.append({"path": request.path, "body": json.loads(request.body)})  # type: ignore[attr-defined]
            time.sleep(8 * (request.path == "/v1/completions"))
            return 200, "", {}
        time.sleep(self.slow)
        self.steps += self.works
        counts = (
            f"vllm:generation_tokens_total{{}} {self.steps}\nvllm:num_requests_running{{}} {int(not self.hidden)}\n"
        )
        return 200, f"{counts}leak {SECRET}\n", {"x-gb10-open-requests": self.requests}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Metrics]]:
    """Run a server, in this process and in the unit of vLLM."""
    monkeypatch.setattr(io_local, "_unit", lambda pid: UNIT if pid == os.getpid() else "")
    found = Metrics()
    with serving(found.answer) as url:
        yield url, found


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", RANK], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Cluster:
    """The watchdogs of a head and a worker. The worker's service consists of one real process."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.on_head = folder, False
        given = {
            "head_address": "127.0.0.1",
            "port": free_port(),
            "units": [],
            "mode": "restart",
            "interval": 0.1,
            "witness_seconds": 1,
            "stall_seconds": 3,
            "restarts_per_hour": 2,
            "rest_after": 0,
            "wake": "127.0.0.1:9",
            "keep_evidence": 2,
            "notify_command": [],
            "url": url,
            "ca_file": "",
            "server_name": "",
            "key_file": "",
            "model": "tiny",
            "server_unit": "gb10-vllm.service",
            "follow_unit": "gb10-ray.service",
        }
        head = {**given, "node": "spark1", "head": True, "peers": {"spark2": "127.0.0.1"}}
        worker = {**given, "node": "spark2", "head": False, "peers": {"spark1": "127.0.0.1"}}
        self.given = {"head": head, "worker": worker}
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []

    def start(self, worker: bool = True) -> None:
        self.head, self.worker = (
            io_watch.Head(self.given["head"], KEY),
            io_watch.Worker(self.given["worker"], WORKER_KEY),
        )
        for node in (self.head, self.worker)[: 1 + worker]:
            self.threads.append(
                threading.Thread(target=io_watch.serve, args=(node, node.open(), self.stop.is_set), daemon=True)
            )
            self.threads[-1].start()

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(10)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def systemctl(folder: Path, show: str) -> Path:
    """Install a systemctl that records its orders, and shows the state that a command prints. Return its folder."""
    return program(folder / "bin", "systemctl", f'case "$1" in show) {show};; *) echo "$@" >> {folder}/calls;; esac')


@pytest.fixture
def cluster(
    tmp_path: Path, server: tuple[str, Metrics], rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    tools = systemctl(tmp_path, "echo active")
    program(tools, "journalctl", f"echo 'log with {SECRET}'; echo 'Received request: prompt: planted'")
    monkeypatch.setenv("PATH", f"{tools}:{os.defpath}")
    for name in ("STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "secret").write_text(f"KEY={SECRET}\n", encoding="utf-8")
    monkeypatch.setattr(io_evidence, "_SECRETS", (str(tmp_path / "secret"),))
    monkeypatch.setattr(io_evidence.secrets, "__defaults__", ((str(tmp_path / "secret"),),))
    monkeypatch.setattr(io_watch, "_SUSPICIOUS", 0.5)
    monkeypatch.setattr(io_watch, "_MISSED", 1.0)
    monkeypatch.setattr(io_watch, "_STOP_SECONDS", 1.0)
    monkeypatch.setattr(io_node, "_RAS_PLACE", ("127.0.0.1", free_port()))
    found = Cluster(tmp_path, server[0])

    def of_node(_units: list[str]) -> list[Any]:
        """Return the rank to the watchdog of its node. Both programs run in this process."""
        each = parse.process(Path(f"/proc/{rank.pid}/stat").read_text(encoding="utf-8"))
        return [each] if found.on_head or threading.current_thread() is found.threads[-1] else []

    monkeypatch.setattr(io_watch.io_node, "processes", of_node)
    yield found
    found.end()


def until(condition: Callable[[], object]) -> object:
    return wait_until(condition, 60, pause=0.05)


@pytest.mark.parametrize("mode", ["restart", "auto"])
def test_a_stopped_rank_of_a_worker_restarts_the_server(
    cluster: Cluster,
    server: tuple[str, Metrics],
    rank: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    url, kind = server
    for given in cluster.given.values():
        given["mode"] = mode
    webhook = cluster.folder / "webhook"
    webhook.write_text(f"{url}/hook\n", encoding="utf-8")
    monkeypatch.setattr(io_watch.paths, "WATCHDOG_WEBHOOK", str(webhook))
    cluster.given["head"]["notify_command"] = ["sh", "-c", f"cat >> {cluster.folder}/mail"]
    cluster.start()
    time.sleep(1.2)
    assert cluster.calls() == [], "a healthy engine"
    os.kill(rank.pid, signal.SIGSTOP)
    kind.works = False
    assert until(lambda: len(kind.posted) == 2)
    assert cluster.calls() == ["try-restart --no-block gb10-vllm.service"]
    alarm, restart = (entry["body"] for entry in kind.posted)
    assert (alarm["event"], restart["event"]) == ("alarm", "restart")
    assert f"spark2: process {rank.pid} (VLLM::Worker_TP) is stopped" in alarm["reason"]
    assert rank.wait(10) == -signal.SIGKILL, "it does not end with the server"
    assert (cluster.folder / "mail").read_text(encoding="utf-8") == json.dumps(alarm) + json.dumps(restart)
    status = json.loads((cluster.folder / "RUNTIME_DIRECTORY" / "status.json").read_text(encoding="utf-8"))
    assert status["mode"] == mode
    saved = json.loads((cluster.folder / "STATE_DIRECTORY" / "restarts.json").read_text(encoding="utf-8"))
    assert (saved["boot"], len(saved["times"])) == (io_node.boot(), 1)
    assert io_watch.Head(cluster.given["head"], KEY).state.restarts == tuple(saved["times"]), (
        "another start of the watchdog"
    )


def test_a_service_that_used_all_its_starts_is_notified_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = "Id=gb10-ray.service\nActiveState=failed\n\nId=gb10-vllm.service\nActiveState=activating\n"
    program(cluster.folder / "bin", "systemctl", f"printf '{failed}'".replace("\n", "\\n"))
    monkeypatch.setattr(io_watch, "_QUERY", 0.2)
    cluster.given["head"] |= {
        "notify_command": ["sh", "-c", f"cat >> {cluster.folder}/mail; echo >> {cluster.folder}/mail"]
    }
    for given in cluster.given.values():
        given["units"] = ["gb10-ray.service", "gb10-vllm.service"]
    cluster.start()
    mail = cluster.folder / "mail"
    assert until(lambda: mail.exists() and "spark2" in mail.read_text(encoding="utf-8"))
    time.sleep(1)
    events = [json.loads(line) for line in mail.read_text(encoding="utf-8").splitlines()]
    reasons = [event["reason"] for event in events if event["event"] == "stopped"]
    assert [reason.partition(" used")[0] for reason in reasons] == [
        "spark1: gb10-ray.service",
        "spark2: gb10-ray.service",
    ]


def test_the_evidence_has_no_secret_and_only_root_reads_it(
    cluster: Cluster, server: tuple[str, Metrics], rank: subprocess.Popen[bytes]
) -> None:
    cluster.given["head"] |= {"mode": "report", "units": ["gb10-vllm.service"]}
    program(cluster.folder / "bin", "py-spy", f'echo "$@ in {SECRET}"')
    cluster.on_head = True
    cluster.start(worker=False)
    until(lambda: cluster.head.state.armed)
    os.kill(rank.pid, signal.SIGSTOP)
    server[1].works = False
    folder = cluster.folder / "STATE_DIRECTORY" / "evidence"
    assert until(lambda: list(folder.glob("*/py_spy_*.txt")))
    (found,) = folder.iterdir()
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    texts = {path.name: path.read_text(encoding="utf-8") for path in found.iterdir()}
    stack = f"py_spy_{rank.pid}.txt"
    assert set(texts) == {
        "alarm.json",
        "processes.txt",
        "metrics.txt",
        "nccl_ras.txt",
        "nvidia_smi.txt",
        "gb10-vllm.service.log",
        stack,
    }
    assert texts["processes.txt"] == f"T {rank.pid} VLLM::Worker_TP\n"
    assert texts[stack] == f"dump --nonblocking --pid={rank.pid} in [redacted]\n"
    assert SECRET not in "".join(texts.values())
    assert texts["gb10-vllm.service.log"].splitlines() == ["log with [redacted]", parse.LEFT_OUT]
    assert "vllm:generation_tokens_total" in texts["metrics.txt"]
    time.sleep(1)
    assert cluster.calls() == [], "the mode report restarts nothing"


def test_a_stopped_rank_of_an_idle_engine_is_found(
    cluster: Cluster, server: tuple[str, Metrics], rank: subprocess.Popen[bytes]
) -> None:
    cluster.start()
    until(lambda: cluster.head.state.armed)
    server[1].works, server[1].hidden = False, True
    os.kill(rank.pid, signal.SIGSTOP)
    assert until(cluster.calls)
    assert server[1].posted[0]["path"] == "/v1/completions"
    assert server[1].posted[0]["body"]["max_tokens"] == 1


def test_a_witness_that_outlives_the_restart_restarts_its_own_service(
    cluster: Cluster, server: tuple[str, Metrics], rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_watch, "_GRACE", 1.0)
    cluster.start()
    until(lambda: cluster.head.state.armed)
    os.kill(rank.pid, signal.SIGSTOP)
    server[1].works = False
    assert until(lambda: len(cluster.calls()) == 2)
    assert cluster.calls()[1] == "try-restart --no-block gb10-ray.service"


def test_a_process_of_the_next_start_is_not_left_from_before(
    cluster: Cluster, rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody stops a new rank within the grace time of a restart: that is another hang."""
    cluster.on_head = True
    head = io_watch.Head(cluster.given["head"], KEY)
    head.restarted()
    os.kill(rank.pid, signal.SIGSTOP)
    assert until(lambda: head.observe() or head.found.stopped == {rank.pid})
    monkeypatch.setattr(io_watch, "_GRACE", 0.0)
    time.sleep(0.01)
    assert head.outlived() == []
    assert rank.poll() is None
    head.restarted()
    time.sleep(0.01)
    assert head.outlived() == [f"process {rank.pid} (VLLM::Worker_TP) is stopped"]
    assert rank.wait(10) == -signal.SIGKILL


def test_a_rank_that_runs_is_not_killed_after_a_restart(
    cluster: Cluster, rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.on_head = True
    head = io_watch.Head(cluster.given["head"], KEY)
    head.observe()
    head.restarted()
    head.observe()
    assert head.pids == {rank.pid} and head.outlived() == []
    monkeypatch.setattr(io_watch, "_GRACE", 0.0)
    time.sleep(0.01)
    assert head.outlived() == []
    assert rank.poll() is None


def test_a_node_whose_kernel_does_not_answer_is_a_witness(
    cluster: Cluster, server: tuple[str, Metrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_watch.io_node, "reachable", lambda _address: False)
    cluster.start(worker=False)
    until(lambda: cluster.head.state.armed)
    server[1].works = False
    assert until(lambda: cluster.head.state.alarm)
    assert "spark2: no connection on the fabric" in cluster.head.last
    time.sleep(1)
    assert cluster.calls() == [], "a restart needs every node"


def test_a_worker_knows_whether_the_api_answers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.start()
    assert until(lambda: cluster.worker.tick(None)["serves"])
    monkeypatch.setattr(io_watch.io_node, "metrics", lambda _server, _unit: ("down", None))
    assert until(lambda: not cluster.worker.tick(None)["serves"])
    cluster.worker.served = time.monotonic() - 60
    assert not cluster.worker.tick(None)["serves"], "the head's watchdog ended"


def test_slow_metrics_do_not_hide_the_reports_of_a_worker(
    cluster: Cluster, server: tuple[str, Metrics], rank: subprocess.Popen[bytes]
) -> None:
    server[1].slow = 0.5  # longer than the interval
    cluster.start()
    os.kill(rank.pid, signal.SIGSTOP)
    assert until(lambda: cluster.head.peers["spark2"].witnesses)


def test_a_flood_of_messages_does_not_keep_a_late_sample_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(io_watch, "_BURST", 10)
    handled, samples = list[bytes](), list[int]()
    node: Any = SimpleNamespace(given={"interval": 0, "mode": "report", "head": True})
    node.tick = lambda _connection: samples.append(len(handled)) or {}
    node.receive = lambda data, _address: handled.append(data)
    with contextlib.ExitStack() as stack:
        receiver, sender = (stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _each in range(2))
        receiver.bind(("127.0.0.1", 0))
        for number in range(25):
            sender.sendto(str(number).encode(), receiver.getsockname())
        io_watch.serve(node, receiver, lambda: len(samples) == 5)
    assert samples == [0, 10, 20, 25, 25]
    assert handled == [str(number).encode() for number in range(25)]


def test_a_forged_or_repeated_report_is_ignored(cluster: Cluster) -> None:
    head = io_watch.Head(cluster.given["head"], KEY)
    report = {
        "to": "head",
        "nonce": head.session,
        "sender": "a",
        "number": 5,
        "witnesses": ["rank process 7 ended"],
        "compiling": False,
    }

    def after(changed: dict[str, Any], key: str = WORKER_KEY) -> tuple[str, ...]:
        head.peers["spark2"].witnesses = ()
        head.receive(parse.message({**report, **changed}, key), None)
        return head.peers["spark2"].witnesses

    assert after({}, key="cd" * 32) == ()
    assert after({}, key=KEY) == (), "the head's secret is no key"
    assert after({"nonce": "old"}) == ()
    assert after({"to": "spark2"}) == ()
    assert after({}) == ("rank process 7 ended",)
    assert after({}) == (), "the same number again"
    assert after({"number": 6}) == ("rank process 7 ended",)
    assert after({"sender": "b", "number": 1}) == ("rank process 7 ended",), "the worker's watchdog restarted"


def test_messages_of_an_earlier_session_are_not_taken_again(cluster: Cluster) -> None:
    head = io_watch.Head(cluster.given["head"], KEY)

    def report(sender: str, number: int) -> str:
        content = {"to": "head", "nonce": head.session, "sender": sender, "number": number}
        content |= {"witnesses": [f"rank process {number} ended"]}
        head.receive(parse.message(content, WORKER_KEY), None)
        return head.peers["spark2"].witnesses[0]

    assert report("a", 1) == "rank process 1 ended"
    assert report("b", 2) == "rank process 2 ended", "the worker's watchdog restarted"
    assert report("a", 1) == report("b", 2) == report("b", 1) == "rank process 2 ended"
    worker = io_watch.Worker(cluster.given["worker"], WORKER_KEY)
    reply = {"to": "spark2", "sender": worker.session, "nonce": "n", "serves": True, "restarts": 4}
    worker.receive(parse.message({**reply, "number": 2}, WORKER_KEY), None)
    served = worker.served
    for number in (1, 2):
        worker.receive(parse.message({**reply, "number": number, "restarts": 9, "serves": False}, WORKER_KEY), None)
    assert (worker.served, worker.restarts, served is None) == (served, 4, False)


def test_a_node_speaks_for_itself_only_and_writes_no_line(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    units = ["gb10-ray.service", "gb10-vllm.service"]
    given = cluster.given["head"] | {"units": units, "peers": {"spark2": "127.0.0.1", "spark3": "127.0.0.1"}}
    head = io_watch.Head(given, KEY)
    sent: list[str] = []
    monkeypatch.setattr(head, "_notify", lambda _event, reason, _folder: sent.append(reason))
    evil = "process 7 (x) is stopped\nALARM: forged\x1b[2J"
    for number in range(1, 501):
        # The same unit again and again, and texts of its own.
        failed = [f"{evil} {number}", *units[: number % 2]]
        report = {"to": "head", "node": "spark3", "nonce": head.session, "sender": "a", "number": number}
        report |= {"witnesses": [evil, "rank process 7 ended", 7, [evil]], "failed": failed}
        reply = head.receive(parse.message(report, WORKER_KEY), None)
        assert parse.content(reply, WORKER_KEY) and not parse.content(reply, keys.of_watchdog(KEY, "spark3"))
        head._report_stopped()
    assert head.peers["spark2"].witnesses == ("rank process 7 ended",)
    assert head.peers["spark3"].witnesses == head.peers["spark3"].failed == ()
    line = "spark2: gb10-ray.service used all starts and stays stopped. playbooks/status.yml shows the reason"
    assert until(lambda: len(sent) == 6)
    assert sent == [line] * 6 and capsys.readouterr().out == f"STOPPED: {line}\n" * 6
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 3601.0)
    head.stopped = {}
    head.peers["spark2"].failed = (units[0],)
    head._report_stopped()
    assert capsys.readouterr().out == f"STOPPED: {line} (244 earlier ones were left out)\n"


def test_notifications_of_a_kind_are_limited(cluster: Cluster) -> None:
    mail = cluster.folder / "mail"
    head = io_watch.Head(
        cluster.given["head"] | {"notify_command": ["sh", "-c", f"cat >> {mail}; echo >> {mail}"]}, KEY
    )
    for _alarm in range(40):
        head._notify("alarm", "x", "")
    head._notify("restart", "x", "")
    events = [json.loads(line)["event"] for line in mail.read_text(encoding="utf-8").splitlines()]
    assert events == ["alarm"] * 30 + ["restart"]


def test_a_server_that_does_not_end_is_killed(
    cluster: Cluster,
    server: tuple[str, Metrics],
    rank: subprocess.Popen[bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    state = f"if [ -e {cluster.folder}/calls ]; then echo deactivating; else echo active; fi"
    systemctl(cluster.folder, state)
    cluster.start()
    os.kill(rank.pid, signal.SIGSTOP)
    server[1].works = False
    assert until(lambda: len(cluster.calls()) == 2)
    assert cluster.calls() == ["try-restart --no-block gb10-vllm.service", "kill --signal=SIGKILL gb10-vllm.service"]
    assert "killing gb10-vllm.service: it did not end within 1 s of the restart" in capsys.readouterr().out


def test_a_service_that_systemd_starts_is_left_alone(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    systemctl(cluster.folder, "echo activating")
    io_watch.restart("gb10-vllm.service")
    assert cluster.calls() == []
    assert "gb10-vllm.service was not restarted: it is activating" in capsys.readouterr().out


def test_metrics_are_up_silent_or_down(server: tuple[str, Metrics], monkeypatch: pytest.MonkeyPatch) -> None:
    assert io_node.metrics(io_client.Server(server[0]), UNIT)[0] == UP
    assert io_node.metrics(io_client.Server(f"http://127.0.0.1:{free_port()}"), UNIT) == (DOWN, None)
    monkeypatch.setattr(io_node, "_METRICS_SECONDS", 0.2)
    server[1].slow = 1.0
    assert io_node.metrics(io_client.Server(server[0]), UNIT) == (SILENT, None)


@pytest.mark.parametrize(("header", "requests"), [("3", 3), ("", 0), ("-1", 0), ("9" * 20, 0), ("x", 0)])
def test_open_requests_of_the_api_are_read(server: tuple[str, Metrics], header: str, requests: int) -> None:
    server[1].requests = header
    _state, engine = io_node.metrics(io_client.Server(server[0]), UNIT)
    assert engine is not None
    assert engine.requests == requests


def test_ras_is_read_silent_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_local, "_unit", lambda _pid: UNIT)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()

        def answer() -> None:
            connection, _address = listener.accept()
            with connection:
                assert connection.recv(100).endswith(b"verbose status\n")
                connection.sendall(b"OK\n#0-0 INCOMPLETE\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert parse.ras(io_node.ras([UNIT], place, 2.0) or "") == "NCCL RAS reports INCOMPLETE"
        thread.join()
        assert io_node.ras([UNIT], place, 0.1) is None
    assert io_node.ras([UNIT], place, 0.1) == ""


def test_ras_is_asked_again_because_ranks_share_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped rank accepts a connection and never answers; another one does."""
    monkeypatch.setattr(io_local, "_unit", lambda _pid: UNIT)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0], listener.accept()[0] as other:
                assert other.recv(100)
                other.sendall(b"OK\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert io_node.ras([UNIT], listener.getsockname(), 0.5) == "OK\n"
        thread.join()


@pytest.mark.parametrize("accepts", [True, False])
def test_another_process_on_the_port_of_ras_is_no_witness(accepts: bool) -> None:
    """Any local user may listen there, answer ERROR, or never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.sendall(b"job ERROR INCOMPLETE\n")

        if accepts:
            threading.Thread(target=answer, daemon=True).start()
        assert io_node.ras(["gb10-vllm.service"], listener.getsockname(), 1.0) == ""


def test_ras_in_drops_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_local, "_unit", lambda _pid: UNIT)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                for _byte in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.1)

        thread = threading.Thread(target=drip)
        thread.start()
        # The whole answer takes ten seconds.
        assert io_node.ras([UNIT], listener.getsockname(), 0.5) in ["x" * count for count in range(1, 100)]
        thread.join()


def test_a_stranger_on_the_port_of_the_api_is_no_engine(server: tuple[str, Metrics]) -> None:
    assert io_node.metrics(io_client.Server(server[0]), "other.service") == (DOWN, None)


@pytest.mark.parametrize(("number", "expected"), [(errno.EHOSTUNREACH, False), (errno.ECONNREFUSED, True)])
def test_only_some_errors_show_an_unreachable_node(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: bool
) -> None:
    monkeypatch.setattr(io_node.io_peer, "error", lambda *place: {("192.0.2.1", 22): number}[place])
    assert io_node.reachable("192.0.2.1") is expected


def test_silent_nodes_are_queried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven switched-off nodes must not delay the next sample by two seconds each."""
    together = threading.Barrier(7, timeout=10)

    def reachable(address: str) -> bool:
        together.wait()
        return address == "192.0.2.5"

    monkeypatch.setattr(io_node, "reachable", reachable)
    nodes = {f"spark{number}": f"192.0.2.{number}" for number in range(2, 9)}
    assert io_node.unreachable(nodes) == [name for name in nodes if name != "spark5"]
    assert io_node.unreachable({}) == []


def test_old_evidence_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(["20260101T000000Z", "20260101T000001Z", "20260101T000002Z"])
    monkeypatch.setattr(io_evidence.time, "strftime", lambda *_arguments: next(times))
    monkeypatch.setattr(io_node, "ras", lambda _units: "")
    for _number in range(3):
        io_evidence.collect(str(tmp_path / "e"), 2, {"reason": "x"}, io_client.Server("http://127.0.0.1:9"), [])
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == ["20260101T000001Z", "20260101T000002Z"]


def test_the_program_runs_from_its_installed_file(tmp_path: Path, server: tuple[str, Metrics]) -> None:
    """Only the file that the role installs, and systemd's notification socket."""
    cluster = Cluster(tmp_path, server[0])
    # The server is in this process.
    given = {"mode": "report", "server_unit": systemd.unit_of_cgroup(Path("/proc/self/cgroup").read_text("ascii"))}
    (tmp_path / "settings.json").write_text(json.dumps({**cluster.given["head"], **given}), encoding="utf-8")
    (tmp_path / "token").write_text(KEY, encoding="utf-8")
    tools = program(tmp_path / "bin", "systemctl", "true")
    environment = {"PATH": f"{tools}:{os.defpath}", "NOTIFY_SOCKET": str(tmp_path / "notify")}
    environment |= {"STATE_DIRECTORY": str(tmp_path), "RUNTIME_DIRECTORY": str(tmp_path)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        argv = [
            sys.executable,
            "-I",
            "-B",
            str(install("watchdog", tmp_path)),
            str(tmp_path / "settings.json"),
            str(tmp_path / "token"),
        ]
        with subprocess.Popen(argv, env=environment, cwd="/", stdout=subprocess.PIPE, text=True) as process:
            try:
                assert manager.recv(100) == b"READY=1"
                assert manager.recv(100) == b"WATCHDOG=1"
                assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["armed"] is True
            finally:
                process.terminate()
            assert process.wait(10) == 0


@pytest.mark.parametrize("form", ["{folder}/notify", "@{folder}/no@tify"])
def test_systemd_is_notified_on_a_path_or_an_abstract_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    address = form.format(folder=tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    io_watch.notify_systemd("READY=1")  # Nobody listens, which is no error.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0", 1))
        manager.settimeout(5)
        io_watch.notify_systemd("WATCHDOG=1")
        assert manager.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    ("command", "problems"),
    [
        ("cat > {folder}/mail; echo said; echo complained >&2", []),
        ("echo said; echo complained >&2; exit 3", ["the notification by sh failed: CalledProcessError"]),
    ],
)
def test_the_output_of_a_notification_is_not_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, problems: list[str]
) -> None:
    assert io_evidence.notify({"reason": "x"}, ["sh", "-c", command.format(folder=tmp_path)], "") == problems
    assert "".join(capfd.readouterr()) == ""
    assert problems or (tmp_path / "mail").read_text(encoding="utf-8") == '{"reason": "x"}'


def test_a_webhook_that_refuses_or_does_not_answer_is_a_problem_without_its_address() -> None:
    statuses = iter([200, 500, 302])

    def answer(_request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        return next(statuses), "", {"location": "http://127.0.0.1:9/"}

    with serving(answer) as url:
        found = [io_evidence.notify({}, [], f"{url}/secret") for _request in range(3)]
    failed = "the notification by webhook failed: "
    assert found == [[], [f"{failed}HTTPError"], [f"{failed}HTTPError"]]
    assert io_evidence.notify({}, [], f"{url}/secret") == [f"{failed}URLError"]
    assert io_evidence.notify({}, [], "secret") == [f"{failed}ValueError"]
    assert io_evidence.notify({}, ["/none/mail"], "") == ["the notification by /none/mail failed: FileNotFoundError"]


def test_a_missing_token_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings.json").write_text(
        json.dumps({"peers": {"spark2": "10.0.0.2"}, "head": True}), encoding="utf-8"
    )
    assert io_watch.main([str(tmp_path / "settings.json"), str(tmp_path / "none")]) == 1
    assert "Expected: 64 hexadecimal digits" in capsys.readouterr().out
    assert io_watch.main([str(tmp_path / "none"), str(tmp_path / "none")]) == 1


def test_the_evidence_knows_each_secret_as_it_is(tmp_path: Path) -> None:
    """A file of variables has escapes that a log does not have."""
    values = {"HF_TOKEN": 'a"b$c`d\\e', "OTHER": "plain-value", "SPACES": "two words"}
    path = tmp_path / "secret.env"
    path.write_text(f"# salt x\n{systemd.environment_file(values)}", encoding="utf-8")
    assert io_evidence.secrets([str(path)]) >= set(values.values())


class Still:
    """The outside of a watchdog that does not run: a clock that a test sets, and what systemctl was told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.state, self.orders, self.said = 1000.0, "active", list[str](), list[str]()
        self.processes: list[Process] = []
        self.given = Cluster(folder, "http://127.0.0.1:9").given
        clock = SimpleNamespace(
            monotonic=lambda: self.now, sleep=self.sleep, time=lambda: 5.0, gmtime=time.gmtime, strftime=time.strftime
        )
        monkeypatch.setattr(io_watch, "time", clock)
        monkeypatch.setattr(io_watch, "say", self.said.append)
        monkeypatch.setattr(io_watch, "systemctl", self.systemctl)
        monkeypatch.setattr(io_node, "processes", lambda _units: self.processes)
        monkeypatch.setattr(io_node, "metrics", lambda _server, _unit: (SILENT, None))
        monkeypatch.setattr(io_node, "unreachable", list)
        told = changed(os, kill=lambda pid, number: self.orders.append(f"{number.name} {pid}"))
        monkeypatch.setattr(io_watch, "os", told)
        thread = SimpleNamespace(start=lambda: None)
        monkeypatch.setattr(io_watch, "threading", changed(threading, Thread=lambda **_given: thread))
        monkeypatch.setenv("STATE_DIRECTORY", str(folder))
        self.folder = folder

    def sleep(self, seconds: float) -> None:
        self.orders.append(f"sleep {seconds:g}")
        self.now += seconds

    def systemctl(self, *arguments: str) -> str:
        self.orders.append(" ".join(arguments))
        return self.state if arguments[0] == "show" else ""

    def head(self, **given: Any) -> io_watch.Head:
        return io_watch.Head(self.given["head"] | given, KEY)

    def worker(self, **given: Any) -> io_watch.Worker:
        return io_watch.Worker(self.given["worker"] | given, WORKER_KEY)

    def answer(self, worker: io_watch.Worker, number: int, **changed: Any) -> None:
        """Give a worker the reply of the head to a report."""
        reply = {"to": "spark2", "sender": worker.session, "nonce": f"n{number}", "number": number, **changed}
        assert worker.receive(parse.message(reply, WORKER_KEY), None) == b""


@pytest.fixture
def still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Still:
    return Still(tmp_path, monkeypatch)


TRIED = "try-restart --no-block gb10-ray.service"


@pytest.mark.parametrize(("mode", "acts"), [("auto", True), ("restart", True), ("report", False)])
def test_a_worker_restarts_its_service_once_and_after_the_grace_time(still: Still, mode: str, acts: bool) -> None:
    worker = still.worker(mode=mode)
    still.processes = [Process(7, "VLLM::Worker_TP", "T"), Process(8, "sh", "T"), Process(9, "python", "S")]
    worker.tick(None)
    still.answer(worker, 1, restarts=3)
    worker.tick(None)
    still.answer(worker, 2, restarts=3)
    assert worker.since is None, "the first number is of the time before, and an equal one is no restart"
    still.answer(worker, 3, restarts=4)
    still.orders.clear()
    worker.tick(None)
    assert still.orders == ["SIGKILL 7"] * acts
    still.now += 45
    still.processes = still.processes[1:]
    worker.tick(None)
    assert TRIED not in still.orders, "not yet"
    still.now += 0.1
    for _tick in range(2):
        worker.tick(None)
    assert still.orders.count(TRIED) == acts
    assert (
        "restarting gb10-ray.service: after the restart of the server, process 8 (sh) is stopped" in still.said
    ) is acts


def test_a_worker_asks_systemd_every_30_s_and_not_in_each_sample(still: Still) -> None:
    worker = still.worker(units=[UNIT])
    still.now, still.state = 3.0, f"Id={UNIT}\nActiveState=failed"
    for seconds in (0, 29, 1, 29.5):
        still.now += seconds
        worker.tick(None)
    assert still.orders == [f"show --property=Id,ActiveState {UNIT}"] * 2
    assert worker.failed == (UNIT,)


def test_a_report_has_the_observations_and_the_next_number(still: Still) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as head:
        head.bind(("127.0.0.1", 0))
        head.settimeout(5)
        worker = still.worker(port=head.getsockname()[1], units=[UNIT])
        still.state, still.processes = f"Id={UNIT}\nActiveState=failed", [Process(7, "cicc", "T")]
        connection = worker.open()
        assert connection is not None
        with connection:
            reports = []
            for number in (1, 2):
                assert worker.tick(connection) == {"witnesses": ("process 7 (cicc) is stopped",), "serves": False}
                reports.append(parse.content(head.recv(2000), WORKER_KEY))
                still.answer(worker, number)
    known: dict[str, Any] = {"to": "head", "sender": worker.session, "witnesses": ["process 7 (cicc) is stopped"]}
    known |= {"compiling": True, "failed": [UNIT]}
    assert reports == [{**known, "number": 1, "nonce": ""}, {**known, "number": 2, "nonce": "n1"}]


def test_a_worker_trusts_the_last_reply_for_six_seconds(still: Still) -> None:
    worker = still.worker()
    still.answer(worker, 1, serves=True)
    assert worker.restarts == 0, "without a number"
    still.now += 6
    assert worker.tick(None)["serves"] is True
    still.now += 0.1
    assert worker.tick(None)["serves"] is False
    still.answer(worker, 2, serves=True)
    still.answer(worker, 3, serves=True, to="spark3")
    still.answer(worker, 3, serves=False, sender="other")
    assert (worker.tick(None)["serves"], worker.answered, worker.nonce) == (True, 2, "n2")
    still.answer(worker, 3, serves="yes")
    assert worker.tick(None)["serves"] is False


def test_a_head_replies_to_each_report_of_its_nodes(still: Still) -> None:
    head = still.head(units=[UNIT])
    head.restarts, head.serves = 2, True
    peer = head.peers["spark2"]
    still.now += 7

    def reply(**report: Any) -> Any:
        answer = head.receive(parse.message({"to": "head", "sender": "a", **report}, WORKER_KEY), None)
        return parse.content(answer, WORKER_KEY)

    known = {"to": "spark2", "nonce": head.session, "sender": "a", "restarts": 2, "serves": True, "rests": False}
    assert reply(nonce="", number=5) == {**known, "number": 5}, "the first report cannot have the nonce"
    assert reply(nonce=head.session) == {**known, "number": 0}, "without a number"
    assert (peer.heard, peer.numbers) == (1000.0, {})
    assert reply(nonce=head.session, number=1, compiling=1, failed=[UNIT, "x"]) == {**known, "number": 1}
    assert (peer.heard, peer.compiling, peer.failed, peer.numbers) == (1007.0, True, (UNIT,), {"a": 1})
    assert head.receive(b"", None) == b""


def test_a_head_forgets_the_oldest_of_many_sessions(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_watch, "_SESSIONS", 2)
    head = still.head()
    for sender in "abca":
        report = {"to": "head", "nonce": head.session, "sender": sender, "number": 1}
        head.receive(parse.message(report, WORKER_KEY), None)
    assert list(head.peers["spark2"].numbers) == ["c", "a"]


def sampled(still: Still, monkeypatch: pytest.MonkeyPatch, head: io_watch.Head) -> tuple[Sample, dict[str, Any]]:
    """Return the next sample of a head, and its status."""
    found: list[Sample] = []
    step = decide.step
    monkeypatch.setattr(decide, "step", lambda state, sample, given: found.append(sample) or step(state, sample, given))
    status = head.tick(None)
    monkeypatch.setattr(decide, "step", step)
    assert still.now == found[0].time
    return found[0], status


def test_a_head_combines_what_all_nodes_show(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    head = still.head(peers={"spark2": "192.0.2.2", "spark3": "192.0.2.3", "spark4": "192.0.2.4"})
    asked: list[Any] = []
    monkeypatch.setattr(io_node, "unreachable", lambda nodes: asked.append(nodes) or ["spark4"] * ("spark4" in nodes))
    engine = Engine((1.0,), 1.0, 1.0)
    monkeypatch.setattr(io_node, "metrics", lambda _server, unit: (UP, engine) if unit == UNIT else (DOWN, None))
    still.processes = [Process(7, "VLLM::Worker_TP", "T")]
    own = "spark1: process 7 (VLLM::Worker_TP) is stopped"
    still.now += 6
    assert sampled(still, monkeypatch, head)[0] == Sample(1006.0, UP, engine, witnesses=(own,))
    still.now += 0.1
    for name, seconds in {"spark2": 1.0, "spark3": 6.1, "spark4": 6.1}.items():
        head.peers[name].heard = still.now - seconds
        head.peers[name].witnesses = ("rank process 8 ended",)
        head.peers[name].compiling = name == "spark2"
    monkeypatch.setattr(io_node, "metrics", lambda _server, _unit: (SILENT, engine))
    head.probing.set()
    sample, status = sampled(still, monkeypatch, head)
    assert asked == [{}, {"spark3": "192.0.2.3", "spark4": "192.0.2.4"}]
    witnesses = (own, "spark2: rank process 8 ended", "spark4: no connection on the fabric")
    assert sample == Sample(1006.1, SILENT, None, True, True, witnesses, ("spark4",))
    assert (head.serves, status["witnesses"], status["armed"]) == (False, list(witnesses), True)


@pytest.mark.parametrize(
    ("stalled", "text", "expected"),
    [
        (5.0, None, ["spark1: the port of NCCL RAS is silent"]),
        (5.0, "INCOMPLETE", ["spark1: NCCL RAS reports INCOMPLETE"]),
        (5.0, "", []),
        (4.9, None, []),
    ],
)
def test_ras_is_asked_only_while_the_engine_stalls(
    still: Still, monkeypatch: pytest.MonkeyPatch, stalled: float, text: str | None, expected: list[str]
) -> None:
    head = still.head(peers={})
    engine = Engine((1.0,), 1.0, 1.0)
    head.state = State(still.now, True, engine, stalled, restarts=(900.0,))
    monkeypatch.setattr(io_node, "ras", lambda _units: text)
    monkeypatch.setattr(io_node, "metrics", lambda _server, _unit: (UP, engine))
    still.now += 1.7
    sample, status = sampled(still, monkeypatch, head)
    assert list(sample.witnesses) == expected
    assert status == {
        "armed": True,
        "stalled": 7,
        "witnesses": expected,
        "last_alarm": "",
        "restarts": 1,
        "start": {},
        "rests": False,
    }


def test_the_evidence_comes_before_the_restart_that_ends_it(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    head = still.head()
    events: list[tuple[str, ...]] = []
    monkeypatch.setattr(head, "_notify", lambda *event: events.append(event))
    collected: list[Any] = []

    def collect(folder: str, keep: int, alarm: dict[str, Any], *_others: Any) -> str:
        still.orders.append("collect")
        collected.append((folder, keep, alarm))
        return "/evidence/1"

    monkeypatch.setattr(io_evidence, "collect", collect)
    state = State(restarts=(10.5, 20.0))
    head._follow(Decision(state, raised="hung", restart=True, cleared=True, refused="no more"))
    saved = still.folder / "restarts.json"
    assert json.loads(saved.read_text(encoding="utf-8")) == {"boot": io_node.boot(), "times": [10.5, 20.0]}
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert still.head().state.restarts == (10.5, 20.0), "another start of the watchdog"
    while not head.actions.empty():
        head.actions.get()()
    assert still.orders == ["collect", "show --property=ActiveState --value " + UNIT, f"try-restart --no-block {UNIT}",
        "sleep 10", "show --property=ActiveState --value " + UNIT]  # fmt: skip
    alarm = {"reason": "hung", "node": "spark1", "clock": 5.0, "mode": "restart"}
    assert collected == [(str(still.folder / "evidence"), 2, alarm)]
    assert head.last.endswith(" UTC: hung") and len(head.last) == len("2026-01-01 00:00:00 UTC: hung")
    assert events == [("alarm", "hung", "/evidence/1"), ("restart", head.last, ""), ("refused", "no more", "")]
    assert (head.restarts, head.since, head.state) == (1, 1000.0, state)
    over = "the alarm is over: the server progressed or ended"
    begun = f"restarting {UNIT} and with it all ranks"
    assert still.said == ["ALARM: hung", over, "no more", "evidence: /evidence/1", begun]


def test_evidence_that_cannot_be_written_is_notified_all_the_same(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    (still.folder / "evidence").write_text("", encoding="utf-8")
    monkeypatch.setattr(io_node, "ras", lambda _units: "")
    head, events = still.head(), list[tuple[str, ...]]()
    monkeypatch.setattr(head, "_notify", lambda *event: events.append(event))
    head._collect("hung")
    assert events == [("alarm", "hung", "")]
    assert "the evidence could not be written: " in still.said[0] and "evidence" in still.said[0]


@pytest.mark.parametrize(("state", "orders"), [("deactivating", 1), ("active", 0), ("activating", 0)])
def test_only_a_server_that_was_told_to_end_and_still_does_is_killed(still: Still, state: str, orders: int) -> None:
    head = still.head()
    tell = still.systemctl

    def systemctl(*arguments: str) -> str:
        tell(*arguments)
        return "active" if len(still.orders) == 1 and state != "activating" else state

    io_watch.systemctl = systemctl
    still.now = 1003.0
    head._restart()
    assert still.orders.count(f"kill --signal=SIGKILL {UNIT}") == orders
    assert (f"killing {UNIT}: it did not end within 10 s of the restart" in still.said) is bool(orders)
    assert still.now == 1013.0 and head.restarts == 1


@pytest.mark.parametrize(("follow", "expected"), [("gb10-ray.service", 1), (UNIT, 0)])
def test_what_outlives_a_restart_on_the_head_restarts_rays_service(still: Still, follow: str, expected: int) -> None:
    head = still.head(follow_unit=follow)
    still.processes = [Process(1, "raylet", "T")]
    head.observe()
    head.restarted()
    still.now += 45.1
    head._follow(Decision(State()))
    assert head.actions.qsize() == expected
    if expected:
        head.actions.get()()
        assert still.orders[-1] == TRIED


def test_a_failed_action_does_not_end_the_following_ones(still: Still) -> None:
    head, done = still.head(), list[int]()

    def end() -> None:
        raise KeyboardInterrupt

    for action in (lambda: done.append(1), lambda: 1 // 0, lambda: done.append(2), end):
        head.actions.put(action)
    with pytest.raises(KeyboardInterrupt):
        head._act()
    assert done == [1, 2]
    assert still.said == ["an action failed: ZeroDivisionError('integer division or modulo by zero')"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((True, ""), []),
        ((False, "HTTP 500"), ["the watchdog's request failed: HTTP 500"]),
        (OSError("no file"), ["the watchdog's request was not sent: no file"]),
        (ValueError("no key"), ["the watchdog's request was not sent: no key"]),
    ],
)
def test_each_end_of_a_probe_permits_the_next_one(
    still: Still, monkeypatch: pytest.MonkeyPatch, answer: Any, said: list[str]
) -> None:
    def answers(*given: Any) -> Any:
        assert given[1:] == ("tiny", 60, io_client.api_key("/etc/gb10/api.key"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(io_client, "answers", answers)
    head = still.head(key_file="/etc/gb10/api.key")
    head._follow(Decision(State(), probe=True))
    assert head.probing.is_set()
    head._probe()
    assert (head.probing.is_set(), still.said) == (False, said)


@pytest.mark.parametrize(
    "saved", ["{", "[]", '{"boot": "B"}', '{"boot": "B", "times": 5}', '{"boot": "B", "times": ["x"]}']
)
def test_a_record_of_restarts_that_cannot_be_read_is_reported(
    still: Still, monkeypatch: pytest.MonkeyPatch, saved: str
) -> None:
    monkeypatch.setattr(io_node, "boot", lambda: "B")
    path = still.folder / "restarts.json"
    path.write_text(saved, encoding="utf-8")
    assert still.head().state.restarts == ()
    assert still.said[0].startswith("the record of restarts cannot be read, so the watchdog assumes none: ")
    path.write_text('{"boot": "B", "times": [1, 2.5]}', encoding="utf-8")
    assert still.head().state.restarts == (1.0, 2.5)
    path.write_text('{"boot": "earlier", "times": 7}', encoding="utf-8")
    assert still.head().state.restarts == ()
    path.unlink()
    assert still.head().state.restarts == ()
    path.mkdir()
    assert still.head().state.restarts == ()
    assert len(still.said) == 2, "no record and an earlier boot are no errors"


def test_only_a_head_with_nodes_listens(still: Still) -> None:
    connection = still.head().open()
    assert connection is not None
    connection.close()
    one = still.head()
    one.key = ""
    assert one.open() is None
    # At boot, the address may come later: this machine never has it.
    for node in (still.head(head_address="192.0.2.1"), still.worker(head_address="192.0.2.1")):
        connection = node.open()
        assert connection is not None
        with connection:
            assert connection.getsockname()[0] == ("192.0.2.1" if isinstance(node, io_watch.Head) else "0.0.0.0")
            with pytest.raises(BlockingIOError):
                connection.recv(1)


def test_messages_are_handled_until_the_next_sample_is_due(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(still.folder))
    told, waited, samples = list[str](), list[float](), list[float]()
    monkeypatch.setattr(io_watch, "notify_systemd", told.append)
    node: Any = SimpleNamespace(given={"interval": 2, "mode": "report", "head": False})

    def tick(_connection: object) -> dict[str, Any]:
        samples.append(still.now)
        still.now += 0.5
        return {"serves": True}

    def receive(_node: object, _connection: object, seconds: float) -> bool:
        waited.append(seconds)
        still.now += min(seconds, 1.0)
        return seconds > 1

    node.tick = tick
    monkeypatch.setattr(io_watch, "receive", receive)
    io_watch.serve(node, None, lambda: len(samples) == 2)
    assert (samples, waited) == ([1000.0, 1002.0], [1.5, 0.5, 0.0])
    assert told == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
    path = still.folder / "status.json"
    assert json.loads(path.read_text(encoding="utf-8")) == {"mode": "report", "head": False, "serves": True}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "settings", "key", "expected"),
    [
        ("a head", {"head": True}, f"{KEY}\nmark\n", (io_watch.Head, KEY)),
        ("a worker", {"head": False}, f"{KEY}\n", (io_watch.Worker, KEY)),
        ("a cluster of one node", {"head": True, "peers": {}}, "", (io_watch.Head, "")),
    ],
)
def test_a_watchdog_runs_until_it_is_told_to_end(
    still: Still, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any], key: str, expected: Any
) -> None:
    (still.folder / "settings").write_text(json.dumps(still.given["head"] | settings), encoding="utf-8")
    (still.folder / "key").write_text(key, encoding="utf-8")
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(io_watch.signal, "signal", handlers.__setitem__)
    ran: list[Any] = []

    def serve(node: Any, connection: socket.socket | None, ended: Callable[[], bool]) -> None:
        before = ended()
        handlers[signal.SIGTERM](signal.SIGTERM, None)
        ran.append((type(node), node.key, connection is not None, before, ended()))
        if connection:
            connection.close()

    monkeypatch.setattr(io_watch, "serve", serve)
    assert io_watch.main([str(still.folder / "settings"), str(still.folder / "key")]) == 0
    assert ran == [(*expected, bool(key), False, True)], name


def test_a_message_that_is_none_is_dropped(still: Still) -> None:
    """A wrong number in a message of a node with a key, an empty one, and a long one."""
    head = still.head()
    connection = head.open()
    assert connection is not None
    with connection, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(connection.getsockname())
        sender.setblocking(False)
        assert io_watch.receive(head, connection, 0) is io_watch.receive(head, None, 0) is False
        known = {"to": "head", "nonce": head.session, "sender": "a"}
        for data in (
            *(parse.message({**known, "number": number}, WORKER_KEY) for number in ("x", [])),
            b"",
            b"x" * 2000,
        ):
            sender.send(data)
            assert io_watch.receive(head, connection, 1)
            with pytest.raises(BlockingIOError):
                sender.recv(2000)
        sender.send(parse.message({**known, "number": 1}, WORKER_KEY))
        assert io_watch.receive(head, connection, 1) and parse.content(sender.recv(2000), WORKER_KEY)


@pytest.mark.parametrize(
    ("script", "expected", "said"),
    [
        ("echo ' active '", "active", ""),
        ("echo x; echo ' not loaded ' >&2; exit 5", "x", "systemctl show a failed: not loaded\n"),
        ("", "", ""),
    ],
)
def test_a_failed_systemctl_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    expected: str,
    said: str,
) -> None:
    monkeypatch.setenv("PATH", f"{program(tmp_path / 'bin', 'systemctl', script)}:{os.defpath}")
    assert (io_watch.systemctl("show", "a"), capsys.readouterr().out) == (expected, said)


def test_a_systemctl_without_an_end_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert io_watch.restart(UNIT) is False
    absent = "systemctl show --property=ActiveState --value gb10-vllm.service failed: [Errno 2]"
    unknown = f"{UNIT} was not restarted: it is unknown\n"
    assert (found := capsys.readouterr().out).startswith(absent) and found.endswith(unknown)
    monkeypatch.setattr(io_watch, "_COMMAND_SECONDS", 0.01)
    program(tmp_path, "systemctl", "exec /bin/sleep 5")
    assert io_watch.restart(UNIT) is False
    assert "timed out" in (found := capsys.readouterr().out) and found.endswith(unknown)


def test_the_parts_of_each_start_are_read_once(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    head, read = still.head(), list[str]()

    def choices(_run: object, service: dict[str, str]) -> dict[str, Any]:
        read.append(service["unit"])
        return {"start": {"ranks": 2.0 * len(read)}}

    monkeypatch.setattr(io_watch, "io_choices", SimpleNamespace(read=choices))
    monkeypatch.setattr(io_watch, "io_facts", SimpleNamespace(service=lambda _run, unit: {"unit": unit}))

    def after(server: str) -> object:
        monkeypatch.setattr(io_node, "metrics", lambda _server, _unit: (server, None))
        head.tick(None)
        while not head.actions.empty():
            head.actions.get()()
        return head.tick(None)["start"]

    # A silent server has not started anew.
    assert [after(state) for state in (DOWN, UP, UP, SILENT, UP)] == [{}, *[{"ranks": 2.0}] * 4]
    assert after(DOWN) == {} and after(UP) == {"ranks": 4.0} and read == [head.given["server_unit"]] * 2
    assert still.said[-1] == f"{head.given['server_unit']}: ready after 4 s (ranks 4)"


def test_a_start_whose_log_says_nothing_is_not_read_again(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    head = still.head()
    monkeypatch.setattr(io_watch, "io_choices", SimpleNamespace(read=lambda *_given: {"start": {}}))
    monkeypatch.setattr(io_watch, "io_facts", SimpleNamespace(service=lambda _run, unit: {"unit": unit}))
    monkeypatch.setattr(io_node, "metrics", lambda _server, _unit: (UP, None))
    head.tick(None)
    head.actions.get_nowait()()
    assert head.tick(None)["start"] == {} and head.actions.empty() and not still.said


class Idle:
    """The outside of a head whose model rests: the cluster's lock, the engine, and what systemd was told."""

    def __init__(self, still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
        self.still, self.lock, self.fails = still, dict[str, str](), ""
        self.engine: tuple[str, Engine | None] = (UP, Engine((1.0,), 5.0, 0.0))
        self.head = still.head(rest_after=60, wake="0.0.0.0:8009", server_unit=UNIT)
        self.folder = still.folder / "vllm"
        self.folder.mkdir()
        monkeypatch.setattr(io_watch, "access", SimpleNamespace(CONFIG_FOLDER=str(self.folder)))
        monkeypatch.setattr(io_watch, "io_lock", SimpleNamespace(look=lambda _folder: self.lock))
        monkeypatch.setattr(io_node, "metrics", self.metrics)
        monkeypatch.setattr(io_watch, "order", self.order)

    @property
    def closed(self) -> bool:
        return (self.folder / "drain").exists()

    def metrics(self, _server: object, unit: str) -> tuple[str, Engine | None]:
        assert unit == UNIT and self.closed, "new requests are refused before the look at the open ones"
        return self.engine

    def order(self, command: list[str]) -> Any:
        self.still.orders.append(" ".join(command))
        return None if self.fails == "hangs" else SimpleNamespace(returncode=int(bool(self.fails)))

    def rest(self) -> list[str]:
        self.still.orders.clear()
        self.head._rest()
        assert self.still.orders.pop(0) == "sleep 1"
        return self.still.orders


RUN = (
    "systemd-run --collect --unit=gb10-wake --socket-property=ListenStream=0.0.0.0:8009 "
    f"--socket-property=Conflicts={UNIT} --socket-property=After={UNIT} "
    f"--socket-property=CollectMode=inactive-or-failed systemctl start --no-block {UNIT}"
)


def test_one_order_ends_the_server_and_listens_for_the_next_request(
    still: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = Idle(still, monkeypatch)
    assert idle.rest() == [f"reset-failed {UNIT}", RUN] and idle.closed
    assert still.said == [f"{UNIT} rests: no request for 60 s"]


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ((UP, Engine((1.0,), 5.0, 1.0)), "a request came"),
        ((UP, Engine((1.0,), 5.0, 0.0, 1)), "a request came"),
        ((SILENT, None), "the server does not answer"),
        ((DOWN, None), "the server does not answer"),
    ],
)
def test_a_model_with_an_open_request_does_not_rest(
    still: Still, monkeypatch: pytest.MonkeyPatch, engine: tuple[str, Engine | None], reason: str
) -> None:
    idle = Idle(still, monkeypatch)
    idle.engine = engine
    assert idle.rest() == [] and still.said == [f"no rest: {reason}"]
    assert not idle.closed, "the API is open again"


def test_a_model_does_not_rest_during_a_run(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(still, monkeypatch)
    idle.lock = {"playbook": "os_update.yml", "host": "laptop", "user": "a", "since": "now", "age": "3", "pid": "7"}
    assert idle.rest() == [] and still.said[-1].startswith("no rest: a@laptop runs os_update.yml") and not idle.closed


@pytest.mark.parametrize("fails", ["fails", "hangs"])
def test_a_server_without_its_socket_starts_again(still: Still, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    idle = Idle(still, monkeypatch)
    idle.fails = fails
    assert idle.rest() == [f"reset-failed {UNIT}", RUN, f"start --no-block {UNIT}"]
    assert still.said[-1] == f"{UNIT} starts again, because gb10-wake.socket does not listen" and not idle.closed


def test_the_rank_of_a_worker_follows_the_model(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_node, "boot", lambda: "B")
    worker = still.worker(follow_unit=UNIT, server_unit=UNIT)
    started = [f"reset-failed {UNIT}", f"start --no-block {UNIT}"]

    def orders(rests: bool | None) -> list[str]:
        worker.rests = rests
        still.orders.clear()
        for _tick in range(2):
            worker.tick(None)
        return [each for each in still.orders if not each.startswith("show")]

    assert [orders(rests) for rests in (None, False, True, True)] == [
        [],
        [],
        [f"stop {UNIT}", f"reset-failed {UNIT}"],
        [],
    ]
    # After a reboot, the unit starts by itself.
    monkeypatch.setattr(io_node, "boot", lambda: "B2")
    assert orders(True) == [f"stop {UNIT}", f"reset-failed {UNIT}"]
    # A watchdog that starts meanwhile goes on, also without a word of the head.
    worker = still.worker(follow_unit=UNIT, server_unit=UNIT)
    assert [orders(rests) for rests in (None, False, False)] == [[], started, []]
    still.answer(worker, 1, rests=True)
    assert worker.rests is True
    still.answer(worker, 2, rests="yes")
    assert worker.rests is False


def test_rays_node_stays_while_the_model_rests(still: Still) -> None:
    worker = still.worker(follow_unit="gb10-ray.service", server_unit=UNIT)
    worker.rests = True
    worker.tick(None)
    assert not [each for each in still.orders if each.startswith(("stop", "start"))]
