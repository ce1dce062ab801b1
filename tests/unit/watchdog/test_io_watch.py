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
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.service import keys
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import io_evidence, io_node, io_watch, parse
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import DOWN, SILENT, UP

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


@pytest.mark.parametrize("form", ["{folder}/notify", "@{folder}/notify"])
def test_systemd_is_notified_on_a_path_or_an_abstract_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    address = form.format(folder=tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    io_watch.notify_systemd("READY=1")  # Nobody listens, which is no error.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0"))
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
