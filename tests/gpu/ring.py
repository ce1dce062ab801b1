# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run all-reduces of NCCL on hosts that are cabled as a ring without a switch, each time with other variables.

    python3 tests/gpu/ring.py --python /opt/torch/bin/python --folder /var/tmp/ring --library 2.30.7=/var/tmp/libnccl.so.2

The hosts (hosts.py) share the GPUs of one machine in turn: two GPUs are enough for four hosts. NCCL compares hosts and
GPUs together, so it takes them for GPUs of their own. A connection is slow there, but it is the same connection.
Addresses, cables and variables are those of the core's plan for Sparks. Sockets replace RDMA: NCCL's data uses the
devices of the cables, and its bootstrap the management network. Routes choose the devices that RDMA would choose with
NCCL_IB_SUBNET_AWARE_ROUTING (Run.add_routes). Opposite hosts have no path over the cables.

The ranks of a case run the benchmark of benchmark_nccl.yml, nccl_bandwidth.py, and with --vllm also a server with
tensor parallelism of 4 and a tiny model. --library adds NCCL libraries, which replace PyTorch's by LD_PRELOAD.
Afterwards FOLDER contains the logs of each rank, report.json, and report.md. The
exit status is 1 if a check fails. --backend gloo rehearses without GPUs.

Standard library only. Needs root, and the programs of iproute2 and util-linux.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from adhoc import ROOT, below, conclude, gpus, parsed, parser, tiny, until_healthy
from client import complete, healthy
from hosts import DEVICE, NETWORK, End, Host, hosts

from ansible_collections.gb10.cluster.plugins.module_utils.fabric import plan
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.schema import Network, interfaces
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARSE_RING, Fabric, FabricNode
from ansible_collections.gb10.cluster.plugins.module_utils.health import symptoms
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import NodeFabric

HOSTS = 4
PROGRAM = ROOT / "roles/nccl_sm121_build/files/nccl_bandwidth.py"
#: The ports of each node: each cable joins port 0 and port 1, or two equal ports.
CABLING = {"crossed": [(0, 1)] * HOSTS, "equal": [(1, 0), (0, 1)] * (HOSTS // 2)}
#: NCCL numbers a Spark's devices in the order of their PCI addresses.
ORDER = ("enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1")
#: Seconds for NCCL's timeout, from a rank's end to the end of the others, and between samples.
TIMEOUT, GRACE, SAMPLE = 60, 8, 0.5
URL = f"http://{NETWORK}.11:8000"
#: NVLink's multicast can disable shared GPUs. FlashInfer compiles its sampling for more than a minute.
QUIET = {"NCCL_NVLS_ENABLE": "0", "VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
#: A number of calls that no case reaches.
ENDLESS = 10**7
#: The beginning of a rank's report.
REPORT = '\n{"rank"'
OPENED = re.compile(r"Channel (\d+)/\d+ : (\d+)\[\d+\] -> (\d+)\[\d+\] \[(?:send|receive)\] via NET/Socket/(\d+)")
CONNECTED = re.compile(r"Connected (all rings|all trees|binomial trees)|(Skipped the connection of \w+)")
#: NCCL's warnings, without the one about RDMA, which it is told not to use.
WARNING = re.compile(r"NCCL WARN (?!lib wrapper not initialized).*")
#: Asks NCCL's RAS for the state of all communicators. Source: NCCL 2.30.7, src/ras/client.cc.
RAS = "exec 3<>/dev/tcp/127.0.0.1/28028; printf 'client protocol 2\\nverbose status\\n' >&3; timeout 15 cat <&3; exit 0"


@dataclass(frozen=True)
class Case:
    """Ranks with some variables. ``change`` of the planned variables: None removes one.

    ``event`` happens during endless calls. ``serves``: the ranks are those of a server.
    """

    name: str
    change: Mapping[str, str | None] = field(default_factory=dict)
    library: str = ""
    cabling: str = "crossed"
    event: str = ""
    serves: bool = False


#: Either as 0 lets NCCL connect every algorithm at its start.
EAGER = ("NCCL_CUMEM_ENABLE", "NCCL_RUNTIME_CONNECT")
#: The variables without our correction: none of a sparse ring, NCCL_ALGO alone, and all but one.
UNPINNED: dict[str, str | None] = dict.fromkeys(SPARSE_RING)
WITHOUT: dict[str, dict[str, str | None]] = {
    "none": UNPINNED,
    "none, no cuMem": UNPINNED | {"NCCL_CUMEM_ENABLE": "0"},
    "algorithm": {"NCCL_RUNTIME_CONNECT": None, "NCCL_CUMEM_ENABLE": None},
    "algorithm, no cuMem": {"NCCL_RUNTIME_CONNECT": None, "NCCL_CUMEM_ENABLE": "0"},
    "planned, no cuMem": {"NCCL_CUMEM_ENABLE": "0"},
    "planned, no runtime": {"NCCL_RUNTIME_CONNECT": "0"},
}


def cases(library: str, vllm: bool) -> list[Case]:
    """Return the cases for a library, "" for PyTorch's. One with "patched" in its name skips trees and PAT."""
    if "patched" in library:
        skip = {"NCCL_CUMEM_ENABLE": "0", "NCCL_RUNTIME_CONNECT": None, "NCCL_SKIP_TREE_CONNECT": "1"}
        return [Case("skip", skip, library, cabling) for cabling in CABLING]
    found = [Case("planned", {}, library, cabling) for cabling in CABLING]
    found += [Case(name, change, library) for name, change in WITHOUT.items()]
    found += [Case(name, WITHOUT[name], library, "equal") for name in ("none", "algorithm, no cuMem")]
    for cabling, merged in (("crossed", "1"), ("equal", "0")):
        name = "planned, merged" if merged == "1" else "planned, unmerged"
        found.append(Case(name, {"NCCL_IB_MERGE_NICS": merged}, library, cabling))
    found += [Case(f"planned, {event}", {}, library, event=event) for event in EVENTS]
    if vllm:
        found.append(Case("server, algorithm, no cuMem", WITHOUT["algorithm, no cuMem"], library, serves=True))
        found.append(Case("server, planned", {}, library, event="faults", serves=True))
    return found


def main() -> None:
    given = parser(__doc__, "for logs and reports; outside of /tmp")
    given.add_argument("--python", required=True, help="an interpreter with PyTorch")
    given.add_argument("--library", action="append", default=[], metavar="NAME=PATH", help="a libnccl to preload")
    given.add_argument("--vllm", type=Path, help="a folder with vLLM and its packages, for PYTHONPATH")
    given.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo needs no GPU")
    given.add_argument("--cases", default="*", help="patterns of LIBRARY/CABLING/NAME, with | between")
    given.add_argument("--seconds", type=float, default=120, help="the limit of a case")
    options = parsed(given)
    conclude(options.folder, "NCCL in a ring of four", measure(options))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: GPUs, the plan's variables, results and checks."""
    found = gpus() if options.backend == "nccl" else []
    libraries = dict(each.split("=", 1) for each in options.library)
    results = []
    for case in (case for library in ["", *libraries] for case in cases(library, bool(options.vllm))):
        names = [f"{case.library or 'wheel'}/{case.cabling}/{case.name}"]
        if not any(fnmatch(name, pattern) for name in names for pattern in options.cases.split("|")):
            continue
        kind = Server if case.serves else Run
        results.append(kind(case, options, libraries.get(case.library, ""), len(found)).result())
        sys.stdout.write(json.dumps(results[-1]) + "\n")
        sys.stdout.flush()
    head = planned("crossed")[0]
    report = {"gpus": found, "planned": dict(head.environment)}
    return report | {"results": results, "checks": checks(results)}


def planned(cabling: str) -> list[NodeFabric]:
    """Return the core's plan of a ring of Sparks."""
    nodes = [
        FabricNode(f"gpu{number}", ports, management=f"{NETWORK}.{10 + number}", network=_network(number))
        for number, ports in enumerate(CABLING[cabling], 1)
    ]
    shares, problems = plan.plan(nodes, Fabric("ring"), "ring")
    if problems:
        sys.exit(f"no plan: {problems}")
    return shares


def _network(number: int) -> Network:
    """Return the facts of a host: its management network."""
    return Network(interfaces({DEVICE: {"mtu": 1500, "addresses": [f"{NETWORK}.{10 + number}/24"]}}), {})


def cables(shares: Sequence[NodeFabric]) -> list[tuple[End, End]]:
    """Return the cables of a plan: two devices in one subnet."""
    ends: dict[Any, list[End]] = {}
    for number, share in enumerate(shares):
        for rail in share.rails:
            end = End(number, rail.interface, 100 + ORDER.index(rail.interface), rail.address)
            ends.setdefault(ipaddress.IPv4Interface(rail.address).network, []).append(end)
    return [(first, second) for first, second in ends.values()]


def over_sockets(variables: Mapping[str, str], share: NodeFabric, head: NodeFabric, number: int) -> dict[str, str]:
    """Return a node's variables for sockets instead of RDMA.

    NCCL_SOCKET_IFNAME then has to name the devices of the cables; NCCL_COMM_ID keeps the bootstrap, which the plan puts
    on the management network, there.
    """
    devices = ",".join(rail.interface for rail in share.rails)
    sockets = {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": f"={devices}"}
    own = {name: value for name, value in variables.items() if not name.startswith("NCCL_IB_")}
    return own | sockets | {"NCCL_COMM_ID": f"{head.address}:{30000 + number}"}


class Run:
    """A running case."""

    number = 0

    def __init__(self, case: Case, options: argparse.Namespace, library: str, cards: int) -> None:
        Run.number += 1
        self.case, self.options, self.library, self.cards = case, options, library, cards
        self.shares = planned(case.cabling)
        self.folder = options.folder / "logs"
        self.folder.mkdir(exist_ok=True)
        name = re.sub(r"\W+", "-", f"{case.library or 'wheel'} {case.cabling} {case.name}")
        self.logs = [self.folder / f"{name}.{rank}.log" for rank in range(HOSTS)]
        self.began = time.monotonic()
        self.seen: list[list[Any]] = []

    def result(self) -> dict[str, Any]:
        """Run the ranks until they end or the limit, and return what their logs say."""
        with ExitStack() as stack:
            self.there = stack.enter_context(
                hosts(HOSTS, self.options.folder / "hosts", self.cards, cables(self.shares))
            )
            self.add_routes()
            self.ranks = [stack.enter_context(self.rank(number, host)) for number, host in enumerate(self.there)]
            stack.callback(self.end)
            self.wait()
        texts = [log.read_text(encoding="utf-8", errors="replace") for log in self.logs]
        return (
            asdict(self.case)
            | {"events": self.seen}
            | said(texts)
            | {"seconds": round(time.monotonic() - self.began, 1)}
        )

    def end(self) -> None:
        """Kill all ranks."""
        for rank in self.ranks:
            rank.kill()

    def add_routes(self) -> None:
        """Let each host reach those addresses of its neighbors that RDMA would reach.

        A channel receives on one device, and sends on the device with the same name. With merged devices, the receiver
        offers the addresses of both ports, and the sender takes the cable between them. Without, it offers one. A
        sender on another subnet uses its own device, and the receiver replaces its device by the one at the other end,
        if it is its own. Source: NCCL 2.30.7, src/transport/net_ib/connect.cc, ncclIbFindDevBySubnet.
        """
        for host, share in zip(self.there, self.shares, strict=True):
            merged = self.variables(share)["NCCL_IB_MERGE_NICS"] == "1"
            for peer in self.shares:
                across = {rail.interface: rail.peers[peer.name] for rail in share.rails if peer.name in rail.peers}
                for rail in peer.rails if across else ():
                    via = next(iter(across.values())) if merged else across.get(rail.interface)
                    address = rail.address.split("/")[0]
                    if via and address not in across.values():
                        host.run("ip", "route", "replace", address, "via", via)

    def variables(self, share: NodeFabric) -> dict[str, str]:
        """Return a node's variables of the plan, with the case's change."""
        changed = {**share.environment, **self.case.change}
        return {name: value for name, value in changed.items() if value is not None}

    def rank(self, number: int, host: Host) -> subprocess.Popen[bytes]:
        """Start a rank."""
        sockets = over_sockets(self.variables(self.shares[number]), self.shares[number], self.shares[0], Run.number)
        environment = host.environment() | sockets | QUIET | {"PYTHONUNBUFFERED": "1"} | self.own(number)
        environment |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,NET,ENV,RAS"}
        environment |= {"LD_PRELOAD": self.library} if self.library else {}
        with self.logs[number].open("wb") as log:
            return subprocess.Popen(
                [*host.prefix, *self.command(number)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
            )

    def own(self, number: int) -> dict[str, str]:
        """Return a rank's variables that are not NCCL's."""
        meeting = {"MASTER_ADDR": self.shares[0].address, "MASTER_PORT": str(29000 + Run.number)}
        return meeting | {"RANK": str(number), "WORLD_SIZE": str(HOSTS)}

    def command(self, _number: int) -> list[str]:
        calls = ENDLESS if self.case.event else 2
        command = [self.options.python, str(PROGRAM), "--bytes=1048576", f"--iterations={calls}"]
        return [*command, f"--timeout={TIMEOUT}", f"--backend={self.options.backend}"]

    def wait(self) -> None:
        """Wait for the ranks' reports or ends, and let the case's event happen."""
        said: dict[int, str] = {}
        last, happened = time.monotonic(), False
        while time.monotonic() - self.began < self.options.seconds and len(said) < HOSTS:
            time.sleep(SAMPLE)
            for number, rank in enumerate(self.ranks):
                reported = REPORT in self.logs[number].read_text(encoding="utf-8", errors="replace")
                if number not in said and (reported or rank.poll() is not None):
                    said[number] = "reported" if reported else f"status {rank.returncode}"
                    self.note(f"rank {number}: {said[number]}")
                    last = time.monotonic()
            if self.case.event and not happened and self.moving():
                happened = True
                EVENTS[self.case.event](self)
                last = time.monotonic()
            if not self.case.event and said and time.monotonic() - last > GRACE:
                break
        for number in set(range(HOSTS)) - set(said):
            self.note(f"rank {number}: still running")

    def note(self, *what: Any) -> None:
        self.seen.append([round(time.monotonic() - self.began, 1), *what])

    def packets(self) -> list[int]:
        """Return the packets that each host sent over its cables. Gloo's use the management network."""
        devices = "en*" if self.options.backend == "nccl" else DEVICE
        script = f"cat /sys/class/net/{devices}/statistics/tx_packets"
        return [sum(map(int, host.run("sh", "-c", script).split())) for host in self.there]

    def moving(self) -> bool:
        """Return whether every host sends over its cables."""
        before = self.packets()
        time.sleep(1)
        return all(now - then > 10 for then, now in zip(before, self.packets(), strict=True))


class Server(Run):
    """A server with tensor parallelism over all hosts, and a tiny model with random weights."""

    def own(self, _number: int) -> dict[str, str]:
        return {"PYTHONPATH": str(self.options.vllm), "HOME": str(self.options.folder), "VLLM_LOGGING_LEVEL": "INFO"}

    def command(self, number: int) -> list[str]:
        model = self.options.folder / "model"
        if not model.exists():
            tiny(model)
        words = [self.options.python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--served-model-name=moe"]
        words += [
            "--host=0.0.0.0",
            "--port=8000",
            "--enforce-eager",
            "--max-model-len=512",
            "--gpu-memory-utilization=0.2",
        ]
        words += ["--kv-cache-memory-bytes=268435456", f"--tensor-parallel-size={HOSTS}", f"--nnodes={HOSTS}"]
        words += [
            "--distributed-executor-backend=mp",
            f"--node-rank={number}",
            f"--master-addr={self.shares[0].address}",
        ]
        return [*words, *(["--headless"] if number else [])]

    def wait(self) -> None:
        """Wait until the server is healthy, and query it: after the start, and after each fault."""
        try:
            self.note("healthy", round(until_healthy(URL, self.ranks, self.options.seconds)))
        except RuntimeError as error:
            self.note("not healthy", str(error))
            time.sleep(GRACE)
            return
        self.ask()
        if self.case.event:
            EVENTS_OF_A_SERVER[self.case.event](self)

    def ask(self, limit: float = 20) -> None:
        """Note whether the server answers, and when."""
        began = time.monotonic()
        try:
            tokens = complete(URL, [1, 2, 3], 4, seconds=limit)["tokens"]
            self.note("answer", tokens, round(time.monotonic() - began, 1))
        except OSError as error:
            self.note("no answer", str(error), round(time.monotonic() - began, 1))


# -- events ----------------------------------------


def watch(run: Run, seconds: float) -> None:
    """Note each second whether packets are moving, and at the end what RAS says."""
    until, before, state = time.monotonic() + seconds, run.packets(), ""
    while time.monotonic() < until:
        time.sleep(1)
        now = run.packets()
        sent, before = [new - old for old, new in zip(before, now, strict=True)], now
        if (new := "moving" if min(sent) > 10 else "silent") != state:
            state = new
            run.note(new, sent)


def ras(run: Run) -> None:
    """Note what NCCL's RAS says on the first host."""
    done = subprocess.run([*run.there[0].prefix, "bash", "-c", RAS], capture_output=True, text=True, check=False)
    run.note("RAS", done.stdout[-3000:] + done.stderr[-300:])


def killed(run: Run) -> None:
    """Kill rank 2."""
    ras(run)
    run.ranks[2].send_signal(signal.SIGKILL)
    run.note("killed rank 2")
    watch(run, 6)
    ras(run)


def unplugged(run: Run) -> None:
    """Take the cable between the first two hosts away."""
    cable(run, "down")
    watch(run, 10)
    ras(run)


def replugged(run: Run) -> None:
    """Take the cable between the first two hosts away for 10 s."""
    cable(run, "down")
    watch(run, 10)
    cable(run, "up")
    watch(run, 20)
    run.end()


def faults(run: Server) -> None:
    """Take the cable between the first two hosts away while the server answers, plug it in, and end a rank."""
    cable(run, "down")
    run.ask()
    ras(run)
    cable(run, "up")
    run.ask(60)
    run.ask()
    victim = max(below(run.ranks[2].pid))
    os.kill(victim, signal.SIGKILL)
    run.note("killed a process of rank 2", victim)
    for _ in range(3):
        run.ask()
        run.note("health", healthy(URL), [rank.poll() for rank in run.ranks])
    ras(run)


def cable(run: Run, state: str) -> None:
    """Set the devices of the first host on the cable to the second one."""
    for rail in run.shares[0].rails:
        if run.there[1].name in rail.peers:
            run.there[0].run("ip", "link", "set", rail.interface, state)
    if state == "up":
        run.add_routes()
    run.note(f"cable {state}")


EVENTS = {"killed": killed, "unplugged": unplugged, "replugged": replugged}
EVENTS_OF_A_SERVER = {"faults": faults}


# -- report ----------------------------------------


def said(texts: Sequence[str]) -> dict[str, Any]:
    """Return what the ranks' logs say: connections as sender>receiver, algorithms, warnings, the core's explanation."""
    text = "".join(texts)
    opened = OPENED.findall(text)
    pairs = sorted({f"{sender}>{receiver}" for _channel, sender, receiver, _device in opened})
    return {
        "reported": sum(REPORT in each for each in texts),
        "channels": len({channel for channel, *_rest in opened}),
        "opened": pairs,
        "opposite": [pair for pair in pairs if (int(pair[0]) - int(pair[2])) % HOSTS == HOSTS // 2],
        "connected": sorted({"".join(found) for found in CONNECTED.findall(text)}),
        "version": sorted(set(re.findall(r"NCCL version (\S+)", text))),
        "warnings": sorted(set(WARNING.findall(text))),
        "explained": sorted({symptoms.explain(each.splitlines()) for each in texts}),
    }


def checks(results: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Return the checks, each with its result."""
    eager = [each for each in results if "0" in (each["change"].get(name) for name in EAGER) and each["name"] != "skip"]
    right = [each for each in results if each["name"] in ("planned", "planned, merged", "skip")]
    unmerged = [each for each in results if each["name"] == "planned, unmerged"]
    return {
        "with the planned variables and with the patch every rank reports right sums": all(
            each["reported"] == HOSTS and not each["opposite"] for each in right
        ),
        "without cuMem or runtime connections NCCL connects to the opposite host, and no rank reports": all(
            each["opposite"] and not each["reported"] for each in eager
        ),
        "with cables between equal ports and unmerged devices no rank reports": not any(
            each["reported"] for each in unmerged
        ),
    }


if __name__ == "__main__":
    main()
