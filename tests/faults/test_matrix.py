"""Each fault under load, with Ray and with mp: the same model answers again without a playbook, and nothing is left
over.

The rows of docs/reliability.md come from here: `make faults` writes build/faults.json, and table.py the page.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from api_client import answers_again, ask, completion
from live_cluster import Cluster
from outage import State, compared, leftovers, measure
from repository import ROOT
from testinfra.host import Host
from waiting import last_reading

RESULTS = ROOT / "build" / "faults.json"
CUT = "gb10_faults"
#: Two words, so that no command line of a test has the planted text.
PROMPT = ("planted", "question")
SECRETS = ("/etc/gb10/api.key", "/etc/gb10/ray.token", "/etc/gb10/message.secret")
HEAD, WORKER = "spark1", "spark2"

#: The memory cgroup of the worker on a machine with cgroups of version 1.
MEMORY = Path("/sys/fs/cgroup/memory/gb10-faults")
#: Seconds by which the clock of the services differs from the machine's, on a node with ``own_clock``.
CLOCK = "/run/gb10-clock"
LIBRARIES = ("/usr/local/lib/gb10-sleep.so", "/usr/local/lib/gb10-clock.so")
SERVICES = ("gb10-ray", "gb10-vllm", "gb10-watchdog")
#: The processes of the services by executor and node: a name for people, and a regular expression of its command line.
PROCESSES: dict[str, dict[str, dict[str, str]]] = {
    "ray": {
        HEAD: {
            "API server": r"bin/vllm serve",
            "engine": r"^VLLM::EngineCore",
            "rank": r"^ray::RayWorkerProc",
            "gates": r"gb10-gates gb10-ray",
            "ray start": r"^\S+ \S*bin/ray start",
            "GCS": r"gcs/gcs_server ",
            "raylet": r"raylet/raylet ",
            "dashboard": r"dashboard/dashboard\.py",
            "dashboard module": r"^ray-dashboard-",
            "autoscaler monitor": r"/monitor\.py",
            "client server": r"ray\.util\.client\.server",
            "log monitor": r"/log_monitor\.py",
            "dashboard agent": r"^ray::DashboardAgent",
            "runtime environment agent": r"^ray::RuntimeEnvAgent",
        },
        WORKER: {
            "rank": r"^ray::RayWorkerProc",
            "gates": r"gb10-gates gb10-ray",
            "ray start": r"^\S+ \S*bin/ray start",
            "raylet": r"raylet/raylet ",
            "log monitor": r"/log_monitor\.py",
            "dashboard agent": r"^ray::DashboardAgent",
            "runtime environment agent": r"^ray::RuntimeEnvAgent",
        },
    },
    "mp": {
        HEAD: {
            "API server": r"bin/vllm serve",
            "engine": r"^VLLM::EngineCore",
            "rank": r"^VLLM::Worker",
        },
        WORKER: {
            "gb10-rank": r"bin/vllm serve",
            "rank": r"^VLLM::Worker",
        },
    },
}


@dataclass(frozen=True)
class Lab:
    """The lab of a fault."""

    cluster: Cluster
    nodes: dict[str, Host]
    executor: str

    def connected(self) -> Lab:
        """Return the lab with new connections, after nodes were off."""
        return replace(self, nodes={name: self.cluster.connect(name) for name in self.cluster.groups["gb10_cluster"]})

    def on(self, name: str, command: str) -> None:
        self.nodes[name].check_output(command)

    def process(self, name: str, process: str) -> str:
        return PROCESSES[self.executor][name][process]


#: Processes that come and go: Ray's workers without a task, and Python's helpers of the others.
PASSING = re.compile(r"^ray::IDLE|^\S+ -c from multiprocessing|^$")


def processes(host: Host) -> list[str]:
    """Return the command line of each process of the services."""
    script = (
        "import pathlib\n"
        "for unit in ('gb10-ray', 'gb10-vllm'):\n"
        "    for group in pathlib.Path(f'/sys/fs/cgroup/system.slice/{unit}.service').rglob('cgroup.procs'):\n"
        "        for pid in group.read_text().split():\n"
        "            print(pathlib.Path(f'/proc/{pid}/cmdline').read_text().replace(chr(0), ' ').strip())\n"
    )
    return host.check_output(f'python3 -c "{script}"').splitlines()


Fault = Callable[[Lab], None]


def nothing(lab: Lab) -> None:
    """Most faults need no preparation."""


def signal(name: str, process: str, number: str) -> Fault:
    return lambda lab: lab.on(name, f"pkill -{number} --oldest --full '{lab.process(name, process)}'")


def off_and_on(*names: str) -> Fault:
    def act(lab: Lab) -> None:
        lab.cluster.power("off", *names)
        time.sleep(5)
        # In the other order, because power returns in any.
        lab.cluster.power("on", *reversed(names))

    return act


def rebooted(name: str) -> Fault:
    return lambda lab: lab.nodes[name].run("systemctl reboot") and None


def pulled(seconds: int) -> Fault:
    def act(lab: Lab) -> None:
        lab.cluster.rails(WORKER, "down")
        time.sleep(seconds)
        lab.cluster.rails(WORKER, "up")

    return act


def full_disk(lab: Lab) -> None:
    """The rank dies, and for a minute the service cannot write into its temporary folder."""
    lab.on(WORKER, "mount -t tmpfs -o size=1M tmpfs /tmp && ! cat /dev/zero >/tmp/full 2>/dev/null")
    signal(WORKER, "rank", "KILL")(lab)
    time.sleep(60)
    lab.on(WORKER, "umount --lazy /tmp")


def limited(lab: Lab) -> None:
    """Boot the worker in a memory cgroup of its own, which version 2 gives every node of the lab."""
    if not MEMORY.parent.is_dir():
        return
    MEMORY.mkdir(exist_ok=True)
    lab.cluster.power("off", WORKER)
    # The firmware, and with it all processes of the node, inherit the group.
    switch = f"{lab.cluster.nodes[WORKER]['lab_dir']}/power.sh"
    subprocess.run(["sh", "-c", f"echo $$ >{MEMORY}/cgroup.procs && exec {switch} on {WORKER}"], check=True)
    answers_again(lab.nodes[HEAD])


def no_memory(lab: Lab) -> None:
    """A process of the host takes the rest of the memory, until the kernel ends the process with the highest OOM
    score."""
    environment = Path(lab.cluster.nodes[WORKER]["lab_dir"]) / "nodes" / WORKER / "node.env"
    (unified,) = re.findall(r"^CGROUP='(.*)'$", environment.read_text(encoding="utf-8"), re.MULTILINE)
    limit, usage, unlimited = MEMORY / "memory.limit_in_bytes", MEMORY / "memory.usage_in_bytes", "-1"
    if not MEMORY.parent.is_dir():
        limit, usage, unlimited = Path(unified) / "memory.max", Path(unified) / "memory.current", "max"
    worker = lab.connected().nodes[WORKER]
    limit.write_text(str(int(usage.read_text()) + (100 << 20)))
    try:
        # Pages of files go first. The process of the host ends as soon as the rank is dead.
        take = "import os, sys\nheld = []\nwhile os.path.exists(sys.argv[1]): held.append(b'1' * (20 << 20))"
        rank = worker.check_output(f"pgrep --oldest --full '{lab.process(WORKER, 'rank')}'")
        worker.run(
            f'systemd-run --quiet --wait --collect --property=OOMScoreAdjust=-900 python3 -c "{take}" /proc/{rank}'
        )
    finally:
        limit.write_text(unlimited)


def other_token(lab: Lab) -> None:
    """For a minute, a node has another Ray token and starts its Ray with it."""
    path = "/etc/gb10/ray.token"
    lab.on(WORKER, f"cp --preserve=all {path} /run/ray.token && tr 0-9a-f 1-9a-f0 </run/ray.token >{path}")
    try:
        signal(WORKER, "raylet", "KILL")(lab)
        time.sleep(60)
    finally:
        lab.on(WORKER, f"cat /run/ray.token >{path} && rm /run/ray.token")


def own_clock(lab: Lab) -> None:
    """Give the services of each node a clock of their own.

    The nodes of the lab share the machine's, and libfaketime stands for it.
    """
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    RESULTS.parent.mkdir(exist_ok=True)
    sleep = RESULTS.parent / "gb10-sleep.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", sleep, ROOT / "tests" / "faults" / "sleep.c"], check=True)
    environment = (
        f"LD_PRELOAD={':'.join(LIBRARIES)} FAKETIME_TIMESTAMP_FILE={CLOCK} FAKETIME_CACHE_DURATION=1 "
        "FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1"
    )
    for name, host in lab.nodes.items():
        for source, path in zip((sleep, library), LIBRARIES, strict=True):
            with host.backend.client.open_sftp() as files:
                files.put(str(source), "/tmp/gb10.so")
            lab.on(name, f"install --mode=0644 /tmp/gb10.so {path} && rm /tmp/gb10.so")
        lab.on(name, f"echo +0 >{CLOCK}")
        for service in SERVICES:
            folder = f"/run/systemd/system/{service}.service.d"
            lab.on(name, f"mkdir -p {folder} && printf '[Service]\\nEnvironment={environment}\\n' >{folder}/clock.conf")
    restarted(lab)
    for name, host in lab.nodes.items():
        assert LIBRARIES[1] in host.check_output(
            f"cat /proc/$(pgrep --oldest --full '{lab.process(name, 'rank')}')/maps"
        )


def machine_clock(lab: Lab) -> None:
    """Undo ``own_clock``."""
    for name in lab.nodes:
        lab.on(name, f"rm -f {CLOCK} {' '.join(LIBRARIES)} /run/systemd/system/gb10-*.service.d/clock.conf")
    restarted(lab)


def restarted(lab: Lab) -> None:
    for name in lab.nodes:
        # Not every executor has each of them on each node, and try-restart fails for a missing one.
        units = f"for unit in {' '.join(SERVICES)}; do [ ! -e /etc/systemd/system/$unit.service ] || echo $unit; done"
        lab.on(name, f"systemctl daemon-reload && systemctl try-restart --no-block $({units})")
    time.sleep(5)
    answers_again(lab.nodes[HEAD])


def clock(name: str) -> Fault:
    """An hour ahead, from there to an hour behind, and back."""

    def act(lab: Lab) -> None:
        for seconds in (3600, -3600, 0):
            lab.on(name, f"echo {seconds:+} >{CLOCK}")
            time.sleep(20)
            answer = ask(lab.nodes[HEAD], "/v1/completions", {"model": "tiny", "prompt": "Hello", "max_tokens": 1})
            assert abs(answer["created"] - time.time() - seconds * (name == HEAD)) < 60, (
                "the clock of the service did not jump"
            )

    return act


def cut_ranks(lab: Lab) -> None:
    """Drop the packets between the ranks alone: no process stops, and each node answers. A new rank has other ports."""
    pairs: dict[str, set[tuple[str, str]]] = {}
    for name, host in lab.nodes.items():
        pid = host.check_output(f"pgrep --oldest --full '{lab.process(name, 'rank')}'")
        sockets = host.check_output(f"ss --no-header --tcp --numeric --processes state established | grep 'pid={pid},'")
        pairs[name] = {(row[2], row[3]) for row in map(str.split, sockets.splitlines())}
    cut = pairs[WORKER] & {(remote, local) for local, remote in pairs[HEAD]}
    assert cut, pairs
    lab.on(
        WORKER,
        f"nft add table inet {CUT} && nft 'add chain inet {CUT} input {{ type filter hook input priority -300; }}'",
    )
    for local, remote in cut:
        ports = f"tcp sport {remote.rpartition(':')[2]} tcp dport {local.rpartition(':')[2]}"
        lab.on(WORKER, f"nft add rule inet {CUT} input {ports} drop")


def joined_ranks(lab: Lab) -> None:
    """Undo ``cut_ranks``."""
    lab.on(WORKER, f"nft delete table inet {CUT}")


CLOCKS = {f"clock of {name} jumps an hour ahead and back": clock(name) for name in (HEAD, WORKER)}
#: Faults that both executors have, by the row's name.
COMMON: dict[str, Fault] = {
    f"SIGSTOP of the rank on {WORKER}": signal(WORKER, "rank", "STOP"),
    "SIGSTOP of the engine": signal(HEAD, "engine", "STOP"),
    "both rails down for 5 s": pulled(5),
    "both rails down for 60 s": pulled(60),
    "traffic between the ranks dropped": cut_ranks,
    f"{WORKER} rebooted": rebooted(WORKER),
    f"{WORKER} off and on": off_and_on(WORKER),
    f"{HEAD} off and on": off_and_on(HEAD),
    "both off and on": off_and_on(HEAD, WORKER),
    f"memory of {WORKER} exhausted": no_memory,
    f"full disk for 60 s and a dead rank on {WORKER}": full_disk,
} | CLOCKS
FAULTS: dict[str, dict[str, Fault]] = {
    executor: {
        f"kill -9 of {process} on {name}": signal(name, process, "KILL")
        for name, listed in nodes.items()
        for process in listed
    }
    | COMMON
    | ({f"another Ray token for 60 s on {WORKER}": other_token} if executor == "ray" else {})
    for executor, nodes in PROCESSES.items()
}
#: Seconds to the first sign of a hang: 15 with a witness, 120 without one, and up to 10 for samples and evidence.
DETECTED = dict.fromkeys((f"SIGSTOP of the rank on {WORKER}", "SIGSTOP of the engine", "both rails down for 60 s"), 30)
DETECTED["traffic between the ranks dropped"] = 130
#: The steps before and after a fault.
PREPARE = {f"memory of {WORKER} exhausted": limited} | dict.fromkeys(CLOCKS, own_clock)
RESTORE = {"traffic between the ranks dropped": joined_ranks} | dict.fromkeys(CLOCKS, machine_clock)


def write(fault: str, executor: str, row: Mapping[str, object]) -> None:
    """Write the row of a case, in place of an earlier one."""
    RESULTS.parent.mkdir(exist_ok=True)
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    found.setdefault(fault, {})[executor] = row
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", params=PROCESSES)
def lab(request: pytest.FixtureRequest, cluster: Cluster, head: Host) -> Lab:
    """The cluster with each executor. pytest runs all tests of one in a row."""
    cluster.serve("--extra-vars", f"gb10_distributed_executor_backend={request.param}").assert_ok()
    answers_again(head)
    return Lab(cluster, {}, request.param).connected()


def state(lab: Lab) -> dict[str, State]:
    return {name: leftovers(host) for name, host in lab.nodes.items()}


def test_every_process_has_a_case(lab: Lab) -> None:
    for name, host in lab.nodes.items():
        patterns = PROCESSES[lab.executor][name]
        found = [line for line in processes(host) if not PASSING.search(line)]
        assert [line for line in found if not any(re.search(pattern, line) for pattern in patterns.values())] == []
        assert [
            label for label, pattern in patterns.items() if not any(re.search(pattern, line) for line in found)
        ] == []


@pytest.mark.parametrize("fault", {name: None for listed in FAULTS.values() for name in listed})
def test_the_model_answers_again_and_nothing_is_left(lab: Lab, fault: str) -> None:
    if fault not in FAULTS[lab.executor]:
        pytest.skip(f"{lab.executor} has no such process")
    lab = lab.connected()
    try:
        PREPARE.get(fault, nothing)(lab)
        lab = lab.connected()
        head = lab.nodes[HEAD]
        text, before = completion(head), state(lab)
        key = head.file(SECRETS[0]).content_string.strip()
        url = f"http://{lab.cluster.nodes[HEAD]['ansible_host']}:8000"
        outage = measure(lab.cluster, url, key, "-".join(PROMPT), lambda: FAULTS[lab.executor][fault](lab))
    finally:
        lab = lab.connected()
        RESTORE.get(fault, nothing)(lab)
    head = lab.nodes[HEAD]
    write(fault, lab.executor, {**asdict(outage), "leftovers": "unknown"})
    assert outage.served is not None, outage
    # Ray's helpers are restarted or not needed, and TCP repeats packets that a short break lost.
    assert outage.detected is not None or outage.lost or fault.startswith(("kill -9", "clock")) or "5 s" in fault
    assert not fault.startswith("clock") or not outage.lost
    if fault in DETECTED:
        assert outage.detected is not None
        assert outage.detected <= DETECTED[fault]
    assert completion(head) == text
    # A process that nobody needs for an answer may start later, such as Ray's dashboard.
    left = last_reading(lambda: compared(before, state(lab)), lambda found: not found, 60, 2)
    write(fault, lab.executor, {**asdict(outage), "leftovers": json.dumps(left) if left else "none"})
    assert left == {}, left


def test_no_secret_and_no_prompt_is_in_a_log_or_in_evidence(lab: Lab) -> None:
    """Runs after all faults of an executor."""
    for host in lab.nodes.values():
        places = "/var/log /var/lib/gb10-watchdog /etc/gb10/records /run/gb10"
        host.check_output("journalctl --no-pager --output=cat >/run/journal.txt")
        host.check_output(
            f"printf '%s-%s\\n' {' '.join(PROMPT)} >/run/planted; cat {' '.join(SECRETS)} >>/run/planted "
            "2>/dev/null || true"
        )
        found = host.run(
            "grep --recursive --files-with-matches --fixed-strings --file=/run/planted /run/journal.txt "
            f"{places} 2>/dev/null"
        )
        host.check_output("rm /run/planted /run/journal.txt")
        assert found.stdout == "", found.stdout
