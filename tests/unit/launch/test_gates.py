"""The gates before each start: their settings in a plan, closed gates, and the program with real sockets and files."""

from __future__ import annotations

import errno
import json
import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packed import install
from rendered_units import planned
from repository import ROOT
from run_module import program as executable
from typed_plans import fact, typed

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.launch import gates, io_gates

PLAN: dict[str, Any] = json.loads((ROOT / "tests/unit/data/plan_two_spark.json").read_text(encoding="utf-8"))
GIB = 1 << 30
#: The variables of the ranks, and a secret one.
RANKS = {"PYTHONPATH": "/planted", "NCCL_DEBUG": 'two words "quoted" \\ $HOME', "DOCKER_HOST": "tcp://192.0.2.1"}
KEY = "0123456789abcdef"


def plan(index: int, **changes: Any) -> dict[str, Any]:
    return {**PLAN, "node": PLAN["nodes"][index], **changes}


def found(**changes: Any) -> gates.Found:
    """Return an observation of the plan's head with all gates open."""
    interfaces = {
        link["interface"]: {"mtu": link["mtu"], "addresses": [f"{link['address']}/24"]}
        for link in gates.settings(typed(plan(0)), True)["links"]
    }
    return replace(gates.Found(interfaces, (), "", (), 120 * GIB, 128 * GIB, 0.0), **changes)


def places(**changes: Any) -> list[str]:
    given = {**gates.settings(typed(plan(0)), True), "memory": 100 * GIB}
    return [problem.path for problem in gates.problems(given, found(**changes))]


def test_the_settings_follow_the_plan() -> None:
    head, worker = (gates.settings(typed(plan(index)), True) for index in (0, 1))
    assert head["links"] == [
        {"interface": "enp1s0f1np1", "address": "10.110.0.1", "mtu": 9000},
        {"interface": "enP2p1s0f1np1", "address": "10.110.1.1", "mtu": 9000},
    ]
    assert (head["seconds"], head["drop_caches"], head["gpu"]) == (600, True, True)
    assert head["memory"] == PLAN["serve"]["needs"].get("spark1", 0)
    assert head["peers"]["gb10-ray"] == [], "workers join the head's Ray, so it does not wait for them"
    assert [(peer["address"], peer["listens"]) for peer in head["peers"]["gb10-vllm"]] == [
        ("10.110.0.2", False),
        ("10.110.1.2", False),
    ]
    assert [(peer["address"], peer["port"], peer["listens"]) for peer in worker["peers"]["gb10-ray"]] == [
        ("10.110.0.1", 6379, True),
        ("10.110.1.1", 6379, False),
    ]


def test_a_single_node_waits_for_no_link() -> None:
    node = {**PLAN["nodes"][0], "rails": [], "interface": "enP7s7", "address": "192.168.1.11"}
    assert gates.settings(typed(plan(0, node=node, nodes=[node])), True)["links"] == []
    beside = {**node, "name": "spark2", "address": "192.168.1.12", "head": False}
    links = gates.settings(typed(plan(0, node=node, nodes=[node, beside])), True)["links"]
    assert links == [{"interface": "enP7s7", "address": "192.168.1.11", "mtu": 0}]


def test_without_ray_each_rank_waits_for_the_kernel_of_its_peers_only() -> None:
    worker = gates.settings(typed(plan(1, executor="mp", stack={**PLAN["stack"], "device": "cpu"})), False)
    assert {(peer["port"], peer["listens"]) for peer in worker["peers"]["gb10-vllm"]} == {(29501, False)}
    assert (worker["gpu"], worker["drop_caches"]) == (False, False)


def test_a_worker_waits_for_the_head_and_not_for_other_workers() -> None:
    third = {**PLAN["nodes"][1], "name": "spark3", "address": "10.110.0.3"}
    worker = gates.settings(typed({**plan(1), "nodes": [*PLAN["nodes"], third]}), True)
    assert {peer["name"] for peer in worker["peers"]["gb10-ray"]} == {"spark1"}


def test_libraries_of_the_ranks_are_gates() -> None:
    library = "/opt/gb10/nccl/a/libnccl.so.2"
    addition = {"files": {library: "0" * 64, "vllm/config.py": "1" * 64}, "environment": {}, "flags": []}
    node = {**PLAN["nodes"][0], "additions": {"nccl_sm121_build": addition}}
    assert gates.settings(typed({**PLAN, "node": node}), True)["libraries"] == [library]


@pytest.mark.parametrize(
    ("changes", "place", "text"),
    [
        ({"interfaces": {}}, "spark1.gates.fabric.enp1s0f1np1", "there is no such interface"),
        (
            {"interfaces": {"enp1s0f1np1": {"mtu": 1500, "addresses": ["10.110.0.1/24"]}}},
            "spark1.gates.fabric.enp1s0f1np1",
            "MTU 1500. Expected: MTU 9000",
        ),
        (
            {"interfaces": {"enp1s0f1np1": {"mtu": 9000, "addresses": []}}},
            "spark1.gates.fabric.enp1s0f1np1",
            "no address. Expected: 10.110.0.1",
        ),
        ({"gpu": "nvidia-smi does not answer within 30 s"}, "spark1.gates.gpu", "does not answer"),
        ({"missing": ["/opt/x/libnccl.so.2"]}, "spark1.gates.nccl", "/opt/x/libnccl.so.2 does not exist"),
        (
            {"silent": [{"name": "spark2", "address": "10.110.1.2", "port": 6379, "listens": False}]},
            "spark1.gates.peers.spark2",
            "10.110.1.2 does not answer. Expected: its kernel answers on this rail",
        ),
        (
            {"available": 99 * GIB, "processes": [{"pid": 7, "name": "hog", "bytes": 20 * GIB}]},
            "spark1.gates.memory",
            "hog (pid 7, 20.0 GiB)",
        ),
    ],
    ids=["interface", "mtu", "address", "gpu", "nccl", "peer", "memory"],
)
def test_each_closed_gate_is_named_with_the_fix(changes: dict[str, Any], place: str, text: str) -> None:
    given = {**gates.settings(typed(plan(0)), True), "memory": 100 * GIB}
    problem = gates.problems(given, found(**changes))[0]
    assert problem.path == place
    assert text in str(problem)
    assert ". Fix: " in str(problem)


def test_all_closed_gates_are_reported_together() -> None:
    assert places() == []
    assert places(interfaces={}, gpu="no", missing=["/a"], available=0) == [
        "spark1.gates.fabric.enp1s0f1np1",
        "spark1.gates.fabric.enP2p1s0f1np1",
        "spark1.gates.gpu",
        "spark1.gates.nccl",
        "spark1.gates.memory",
    ]


def test_the_last_report_counts_until_the_gates_open() -> None:
    lines = [f"{gates.WAIT}a", "other", f"{gates.REFUSED}b", "Started gb10-ray.service."]
    assert gates.closed(lines) == "b"
    assert gates.closed([*lines, f"{gates.OPEN}3 s"]) == ""
    assert gates.closed([*lines, f"{gates.OPEN}3 s", f"{gates.WAIT}c"]) == "c"
    assert gates.closed([]) == ""


# --- the program


def test_a_refused_connection_is_an_answer_unless_a_service_must_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = {"name": "a", "address": "127.0.0.1", "port": server.getsockname()[1], "listens": True}
        assert io_gates.answers(peer)
    assert not io_gates.answers(peer)
    assert io_gates.answers({**peer, "listens": False})


def test_a_hanging_driver_does_not_hang_the_gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path, "nvidia-smi", "sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(io_gates, "_GPU_SECONDS", 0.3)
    begin = time.monotonic()
    assert io_gates._gpu() == "nvidia-smi does not answer within 0.3 s"
    assert time.monotonic() - begin < 10


def test_gates_that_stay_closed_are_reported_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change of the closed gates at once, and the same ones every two minutes."""
    clock = [0.0]

    def observe(*_given: Any) -> gates.Found:
        return found(missing=["/a"]) if clock[0] < 30 else found(gpu="no") if clock[0] < 400 else found()

    # Not the module itself: other threads sleep as well.
    slow = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _pause: clock.append(clock.pop() + 10))
    monkeypatch.setattr(io_gates, "time", slow)
    monkeypatch.setattr(io_gates, "observe", observe)
    given = gates.settings(typed(plan(0)), True)
    assert io_gates.wait({**given, "seconds": 600}, "gb10-ray") == ""
    *waits, last = capsys.readouterr().out.splitlines()
    assert ["gates.gpu" in line for line in waits] == [False, True, True, True]
    assert last == f"{gates.OPEN}400 s"
    clock[0] = 0.0
    assert "gates.gpu" in io_gates.wait({**given, "seconds": 90}, "gb10-ray") and clock[0] == 90


def test_a_program_of_the_gates_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    assert io_gates._gpu() == "nvidia-smi is not installed"


Installed = Callable[..., subprocess.CompletedProcess[str]]
#: The settings of a node whose gates are open.
OPENED = {
    "node": "spark1",
    "user": pwd.getpwuid(os.geteuid()).pw_name,
    "seconds": 0,
    "drop_caches": False,
    "links": [],
    "gpu": False,
    "libraries": [],
    "memory": 0,
    "peers": {"gb10-ray": [], "gb10-vllm": []},
}


class Program:
    """The program in this process, which notes the command that it would start."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.settings, self.capsys, self.started = folder / "gates.json", capsys, list[Any]()
        monkeypatch.setattr(io_gates, "_clean", lambda _user: None)
        monkeypatch.setattr(io_gates.io_ray_node, "run", self._start)
        monkeypatch.setattr(io_gates.os, "execvp", self._start)

    def _start(self, *arguments: Any) -> int:
        self.started.append(arguments)
        return 0

    def start(self, unit: str, *arguments: str, **changes: Any) -> int:
        self.settings.write_text(json.dumps({**OPENED, **changes}), encoding="utf-8")
        return io_gates.main([f"--settings={self.settings}", *arguments, "--loaded", unit, "--", "true", unit])


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path, monkeypatch, capsys)


LOOPBACK = {"interface": "lo", "address": "127.0.0.1", "mtu": 65536}


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """Install the program as the role does, in a folder; return a function that runs it."""
    installed_program = install("gates", tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "gates.json"
        path.write_text(json.dumps(OPENED), encoding="utf-8")
        ranks = tmp_path / "cluster.env"
        ranks.write_text(systemd.environment_file(RANKS), encoding="utf-8")
        credentials = tmp_path / "credentials"
        credentials.mkdir(exist_ok=True)
        (credentials / "api.env").write_text(
            systemd.environment_file({"SECRET": "api", "VLLM_API_KEY": KEY}), encoding="utf-8"
        )
        (credentials / "secret.env").write_text(
            f"# salt\n{systemd.environment_file({'SECRET': 'secret', 'HF_TOKEN': KEY})}", encoding="utf-8"
        )
        words = [
            sys.executable,
            *gates.argv("gb10-ray")[1:3],
            str(installed_program),
            f"--settings={path}",
            f"--environment={ranks}",
            *arguments,
        ]
        environment = {**os.environ, "CREDENTIALS_DIRECTORY": str(credentials)}
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=environment)

    return run


def test_the_service_replaces_the_program_and_gets_the_variables(installed: Installed) -> None:
    script = 'echo "started $PYTHONPATH $NCCL_DEBUG $SECRET $VLLM_API_KEY $HF_TOKEN"; echo "$@"; exit 7'
    # gb10-rank.py has a separator between its own arguments and vLLM's.
    words = ["-B", "program", "--rank=0", "--", "vllm", "--nnodes=2", "--"]
    done = installed("gb10-ray", "--", "sh", "-c", script, "sh", *words)
    assert done.returncode == 7, done.stderr
    # Other programs of this machine may have left something.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("gb10-gates removed")]
    # Of the gates' own Python, PYTHONPATH changed nothing.
    started = f"started /planted {RANKS['NCCL_DEBUG']} api {KEY} {KEY}"
    assert lines == [f"{gates.OPEN}0 s", started, " ".join(words)]


def test_an_engine_gets_the_variables_in_a_file_and_has_none_itself(installed: Installed, tmp_path: Path) -> None:
    file = tmp_path / "ranks.env"
    shown = tmp_path / "shown"
    done = installed(f"--engine-file={file}", "gb10-ray", "--", "sh", "-c", f"env >{shown}; stat --format=%a {file}")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "600"), done.stderr
    lines = dict(line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines())
    assert lines == {**RANKS, "SECRET": "api", "VLLM_API_KEY": KEY, "HF_TOKEN": KEY}
    given = {line.partition("=")[0] for line in shown.read_text(encoding="utf-8").splitlines()}
    assert not given & set(lines), "Docker's client would send a key to the host in DOCKER_HOST"


# --- the units


@pytest.mark.parametrize("unit", ["gb10-vllm", "gb10-ray"])
def test_the_role_installs_where_the_units_look_and_other_gates_need_no_restart(unit: str) -> None:
    found, other = (planned(fact(plan(0)), unit, vllm_serve_drop_caches=drops) for drops in (False, True))
    settings, installed_program = found["files"][-2:]
    assert (settings["path"], installed_program) == (paths.GATES_SETTINGS, paths.program_file("gates"))
    assert json.loads(settings["content"]) == gates.settings(typed(plan(0)), False)
    assert found["files"] != other["files"]
    assert found["unit"] == other["unit"]


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        ({"libraries": ["/no/such.so"]}, [], "spark1.gates.nccl: /no/such.so does not exist. Expected: "),
        ({"memory": 1 << 60}, [], "spark1.gates.memory: "),
        ({"links": [LOOPBACK | {"mtu": 9000}]}, [], "spark1.gates.fabric.lo: MTU 65536. Expected: MTU 9000"),
        ({}, ["--settings=/none"], "/none does not exist. Expected: the gates of the plan. Fix: run site.yml"),
    ],
    ids=["library", "memory", "MTU of a real interface", "no settings"],
)
def test_a_closed_gate_ends_the_start_with_its_reason(
    program: Program, changes: Any, arguments: Any, said: str
) -> None:
    assert program.start("gb10-vllm", *arguments, **changes) == 1
    assert program.started == []
    output = program.capsys.readouterr().out
    assert output.startswith(gates.REFUSED) and said in output


def test_a_service_without_its_variables_is_not_started(program: Program) -> None:
    arguments = [f"--settings={program.settings}", "--environment=/none", "gb10-vllm", "--", "true"]
    assert (io_gates.main(arguments), program.started) == (1, [])


def test_ray_stays_a_child_and_vllm_replaces_the_program(program: Program) -> None:
    for unit in ("gb10-ray", "gb10-vllm"):
        program.start(unit, links=[LOOPBACK])
    assert program.started == [(["true", "gb10-ray"], "gb10-ray.service", None), ("true", ["true", "gb10-vllm"])]


def test_the_page_cache_is_dropped_only_on_request(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[bool] = []
    monkeypatch.setattr(io_gates.io_reclaim, "drop_caches", lambda: dropped.append(True))
    for wanted in (False, True):
        assert program.start("", "--drop-caches", drop_caches=wanted) == 0
        assert dropped == [True] * wanted


@pytest.mark.parametrize("executor", ["ray", "mp"])
@pytest.mark.parametrize("unit", ["gb10-ray", "gb10-vllm"])
def test_services_start_behind_the_gates_as_often_as_the_plan_permits(unit: str, executor: str) -> None:
    restart = {"attempts": 7, "interval": 5000, "delay": 11, "max_delay": 99, "gate_timeout": 600}
    given = fact({**plan(0), "executor": executor, "restart": restart, "oom_score": 801, "memory_max": 71})
    lines = planned(given, unit)["unit"]["text"].splitlines()
    begin = f"ExecStart=/usr/bin/python3 -I -B /usr/local/lib/gb10-gates {unit} -- "
    assert [line[: len(begin)] for line in lines if line.startswith("ExecStart=")] == [begin]
    assert {"StartLimitIntervalSec=5000", "StartLimitBurst=7", "Restart=always", "RestartSec=11"} <= set(lines)
    assert {"OOMScoreAdjust=801", "MemoryMax=71%", "RestartSteps=7", "RestartMaxDelaySec=99"} <= set(lines)
    assert f"ExecStartPre=-+/usr/bin/python3 -I -B {paths.program('gates')} --drop-caches" in lines


def test_a_program_that_does_not_exist_has_the_status_of_a_shell() -> None:
    assert io_gates.run(["/no/such/program"]) == (127, "", "/no/such/program is not installed")
    assert io_gates.run(["/bin/sh", "-c", "echo a; echo b >&2; exit 3"]) == (3, "a\n", "b\n")


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "reason"),
    [
        (0, "NVIDIA GB10\n", "a warning", ""),
        (6, "No devices were found\n", "", "No devices were found"),
        (1, "GB10", "", "GB10"),
        (9, "", "x" * 300, "x" * 200),
        (-9, "a\n b", "", "a b"),
        (0, " ", "", "nvidia-smi ended with status 0 and lists no GPU"),
    ],
)
def test_the_reason_of_a_gpu_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, status: int, stdout: str, stderr: str, reason: str
) -> None:
    monkeypatch.setattr(io_gates, "run", lambda _argv: (status, stdout, stderr))
    assert io_gates._gpu() == reason


class Closed:
    """Gates that a clock opens, each at its time; notes the output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **opens: float) -> None:
        self.now, self.said, self.waited = 1000.0, [], []  # type: ignore[var-annotated]
        monkeypatch.setattr(io_gates.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(io_gates.time, "sleep", self._sleep)
        monkeypatch.setattr(io_gates, "say", self.said.append)
        monkeypatch.setattr(io_gates, "observe", lambda _given, _unit, waited: self.waited.append(waited))
        problems = [(at, Problem(name, "closed", "open", "wait")) for name, at in opens.items()]
        monkeypatch.setattr(
            io_gates.gates,
            "problems",
            lambda _given, _found: [problem for at, problem in problems if self.now < 1000 + at],
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_closed_gates_are_reported_after_two_minutes_whenever_they_are_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Closed(monkeypatch, a=300)
    assert io_gates.wait({"seconds": 600}, "gb10-vllm", 50) == ""
    assert len(host.said) == 3, "at 0 and 150 s, and when it is open"


def test_closed_gates_are_reported_when_they_change_and_every_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Closed(monkeypatch, a=250, b=30)
    assert io_gates.wait({"seconds": 600}, "gb10-vllm", 10) == ""
    times = [float(index * 10) for index in range(26)]
    assert host.waited == times
    assert ["a: " in text for text in host.said] == [True, True, True, False], "at 0, 30 and 160 s"
    assert ["b: " in text for text in host.said] == [True, False, False, False]
    assert host.said[-1] == f"{gates.OPEN}250 s"


@pytest.mark.parametrize(("seconds", "looks"), [(20, 3), (0, 1), (25, 4)])
def test_closed_gates_end_the_wait(monkeypatch: pytest.MonkeyPatch, seconds: int, looks: int) -> None:
    host = Closed(monkeypatch, a=1000)
    assert io_gates.wait({"seconds": seconds}, "gb10-vllm", 10).startswith("a: closed")
    assert len(host.waited) == looks


def test_a_node_without_peers_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_gates, "_gpu", lambda: "no driver")
    monkeypatch.setattr(io_gates.io_facts, "interfaces", lambda _run: {"port0": {}})
    given = {
        "peers": {"gb10-vllm": []},
        "links": [],
        "gpu": False,
        "libraries": ["/no/such", "/etc/passwd", "/etc"],
        "memory": 0,
    }
    found = io_gates.observe(given, "gb10-vllm", 3.0)
    assert (found.interfaces, found.silent, found.gpu, found.waited, found.processes) == ({}, [], "", 3.0, ())
    assert found.missing == ["/no/such", "/etc"]
    assert 0 < found.available < found.total
    more = io_gates.observe({**given, "links": [{}], "gpu": True, "memory": 1 << 60}, "gb10-vllm", 0.0)
    assert (more.interfaces, more.gpu) == ({"port0": {}}, "no driver")
    assert more.processes


@pytest.mark.parametrize(
    ("error", "listens", "answers"),
    [
        (None, True, True),
        (TimeoutError(), False, False),
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), False, True),
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), True, False),
        (OSError(errno.EHOSTUNREACH, ""), False, False),
        (OSError(errno.ENETUNREACH, ""), False, False),
        (OSError(errno.EHOSTDOWN, ""), False, False),
        (OSError(errno.ENETDOWN, ""), False, False),
    ],
)
def test_an_answer_of_a_peer(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None, listens: bool, answers: bool
) -> None:
    def connect(place: tuple[str, int], seconds: float) -> socket.socket:
        assert (place, seconds) == (("10.0.0.1", 22), 2.0)
        if error:
            raise error
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    assert io_gates.answers({"name": "a", "address": "10.0.0.1", "port": 22, "listens": listens}) is answers


def test_leftovers_cost_no_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_user: int) -> list[str]:
        raise PermissionError("no")

    owner = pwd.getpwuid(os.geteuid())
    for remove in (lambda _user: [], lambda user: ["/a", "/b"] if user == owner.pw_uid else [], fail):
        monkeypatch.setattr(io_gates.io_leftovers, "remove", remove)
        io_gates._clean(owner.pw_name)
    io_gates._clean("no-such-user")
    assert capsys.readouterr().out == (
        "gb10-gates removed files of killed ranks: 2, such as /a\ngb10-gates could not remove files of killed "
        "ranks: no\ngb10-gates could not remove files of killed ranks: \"getpwnam(): name not found: 'no-such-user'\"\n"
    )
