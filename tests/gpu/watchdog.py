# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch vLLM on a real GPU with the head's watchdog: under load, in a long prefill, and with stopped processes.

    python tests/gpu/watchdog.py --runtime PYTHON --folder FOLDER

PYTHON is that of an environment with a CUDA build of vLLM. The executor mp runs one rank, or two on two GPUs. The model
is the lab's, with random weights and a context of a million tokens. Each step of its prefill reads 16 tokens, and the
client leaves a prefill after 150 s. The watchdog is the head's program with the role's defaults. One part of it is
replaced: the server runs in no unit, so its processes are found as descendants. Afterwards FOLDER contains report.json,
report.md, the evidence of each alarm, and vLLM's log. The exit status is 1 if a
check fails.

Standard library only. Without systemd, the evidence lacks the units' logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from adhoc import URL, below, conclude, gpus, parsed, parser, server, tiny
from client import request

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import io_node, io_watch, parse
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import Process, State

#: The defaults of the role vllm_watchdog, except the mode: no systemd restarts a server here.
SETTINGS = {
    "interval": 2,
    "witness_seconds": 15,
    "stall_seconds": 120,
    "restarts_per_hour": 3,
    "keep_evidence": 10,
}
#: Maximum seconds from a stop to its alarm.
LIMIT = 30
CONTEXT, BATCH, PREFILL_SECONDS = 1 << 20, 16, 150
STREAMS, LOAD_SECONDS = 4, 40
#: NVLink's multicast can disable shared GPUs. FlashInfer compiles its sampling for more than a minute.
QUIET = {"NCCL_NVLS_ENABLE": "0", "VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
#: The values of Engine.marks: those that change only with output, and the use of the KV cache.
OUTPUT, CACHE = slice(3), 3


def main() -> None:
    given = parser(__doc__, "for the model, the evidence, logs and reports")
    given.add_argument("--runtime", required=True, help="the Python of an environment with a CUDA build of vLLM")
    options = parsed(given)
    conclude(options.folder, "The watchdog beside a GPU", measure(options.runtime, options.folder))


class Head(io_watch.Head):
    """The program of the head, which also keeps its state after each sample."""

    def __init__(self, folder: Path) -> None:
        api = {"url": URL, "ca_file": "", "server_name": "", "key_file": "", "model": "moe"}
        units = {"units": [], "server_unit": "gb10-vllm.service", "follow_unit": "gb10-vllm.service"}
        super().__init__(
            {
                "node": "gpu",
                "head": True,
                "peers": {},
                "notify_command": [],
                "mode": "report",
                **api,
                **units,
                **SETTINGS,
                "rest_after": 0,
            },
            "",
        )
        self.states: list[State] = []
        self.evidence = folder / "evidence"

    def tick(self, connection: Any) -> dict[str, Any]:
        """Observe, decide and request actions. Returns the status."""
        status = super().tick(connection)
        self.states.append(self.state)
        return status


def measure(python: str, folder: Path) -> dict[str, Any]:
    """Return the report: phases, stops and checks."""
    found = gpus()
    ranks = min(2, len(found))
    arguments = [
        "--distributed-executor-backend=mp",
        f"--tensor-parallel-size={ranks}",
        "--dtype=bfloat16",
        "--gpu-memory-utilization=0.1",
    ]
    arguments += [
        f"--max-model-len={CONTEXT}",
        f"--max-num-batched-tokens={BATCH}",
        "--max-num-seqs=8",
        "--enable-chunked-prefill",
    ]
    # Ranks of several Sparks exchange data through NCCL alone.
    arguments += ["--disable-custom-all-reduce"]
    os.environ |= {"STATE_DIRECTORY": str(folder), "RUNTIME_DIRECTORY": str(folder)}
    report: dict[str, Any] = {"gpus": found, "ranks": ranks}
    with server(python, model(folder / "model"), arguments, QUIET, folder / "vllm.log") as (process, seconds):
        io_node.processes = lambda units: processes(process.pid)  # noqa: ARG005  # The name of the other one.
        report |= {"start_seconds": seconds, "vllm": request(URL, "/version")["version"]}
        with watched(folder) as head:
            # The first answer arms the watchdog.
            complete([1, 2, 3], 8)
            report["phases"] = [loaded(head), prefill(head)]
            report["processes"] = [each.name for each in processes(process.pid)]
            rank, engine = (named(process.pid, title) for title in ("VLLM::Worker", "VLLM::EngineCore"))
            report["stops"] = [
                stop(head, "rank, under load", rank, STREAMS),
                stop(head, "engine, under load", engine, STREAMS),
                stop(head, "rank, idle", rank, 0),
            ]
    return report | {"checks": checks(report)}


def model(folder: Path) -> Path:
    """Create the lab's model with a long context."""
    tiny(folder)
    for name, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(document | {key: CONTEXT}), encoding="utf-8")
    return folder


def processes(pid: int) -> list[Process]:
    """Return a process and its descendants."""
    found = (parse.process(io_file.read(f"/proc/{each}/stat")) for each in below(pid))
    return [each for each in found if each]


def named(pid: int, title: str) -> Process:
    """Return the descendant with this title; of several ranks, the last one."""
    titles = {each: io_file.read(f"/proc/{each.pid}/cmdline") for each in processes(pid)}
    return max((each for each in titles if titles[each].startswith(title)), key=titles.__getitem__)


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[Head]:
    """Run the watchdog. Raises its error at the end."""
    head, ended = Head(folder), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(io_watch.serve, head, head.open(), ended.is_set)
        try:
            yield head
        finally:
            ended.set()
    running.result()


def complete(prompt: Sequence[int], tokens: int, seconds: float = 180) -> int:
    """Return the number of generated tokens. Raises OSError."""
    body = {"model": "moe", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return int(request(URL, "/v1/completions", body, seconds)["usage"]["completion_tokens"])


@contextlib.contextmanager
def load(streams: int) -> Iterator[list[str]]:
    """Send requests in several streams. Yields a list, which contains the result of each one at the end."""
    ended, results = threading.Event(), []

    def stream(number: int) -> None:
        while not ended.is_set():
            try:
                results.append(f"{complete([number + 1, 2, 3], 256)} tokens")
            except OSError as error:
                results.append(str(error))
                return

    with ThreadPoolExecutor(streams or 1) as pool:
        for number in range(streams):
            pool.submit(stream, number)
        try:
            yield results
        finally:
            ended.set()


def loaded(head: Head) -> dict[str, Any]:
    """Return the phase of a load."""
    first = len(head.states)
    with load(STREAMS) as results:
        time.sleep(LOAD_SECONDS)
    return {"name": "load", "results": tally(results), **summary(head.states[first:])}


def prefill(head: Head) -> dict[str, Any]:
    """Return the phase of a prompt that fills the context."""
    first = len(head.states)
    try:
        results = [f"{complete([6 + number % 256 for number in range(CONTEXT - 1)], 1, PREFILL_SECONDS)} tokens"]
    except TimeoutError:
        results = [f"left after {PREFILL_SECONDS} s"]
    phase = {"name": "prefill", "results": tally(results), **summary(head.states[first:])}
    wait(lambda: not running(head), LIMIT)
    return phase


def stop(head: Head, name: str, process: Process, streams: int) -> dict[str, Any]:
    """Stop a process until its alarm and evidence, and continue it."""
    found: dict[str, Any] = {
        "name": name,
        "process": f"process {process.pid} ({process.name})",
        "reason": "",
        "evidence": "",
    }
    before = set(folders(head))
    wait(lambda: not running(head), LIMIT)
    with load(streams) as results:
        wait(lambda: bool(running(head)) == bool(streams), LIMIT)
        first, began = len(head.states), time.monotonic()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            if wait(lambda: head.state.alarm, 2 * LIMIT) and (alarm := head.state.alarm):
                found |= {"alarm_seconds": alarm.time - began, "reason": alarm.reason}
            # The stacks are the last part of the evidence.
            if wait(lambda: any(list(folder.glob("py_spy_*")) for folder in set(folders(head)) - before), LIMIT):
                (folder,) = set(folders(head)) - before
                found["evidence"] = (folder / "processes.txt").read_text(encoding="utf-8")
                found |= {
                    name: (folder / f"{name}.txt").read_text(encoding="utf-8") for name in ("nvidia_smi", "nccl_ras")
                }
        finally:
            os.kill(process.pid, signal.SIGCONT)
        began = time.monotonic()
        if wait(lambda: head.state.alarm is None, LIMIT):
            found["over_seconds"] = time.monotonic() - began
    with contextlib.suppress(OSError):
        results.append(f"{complete([9, 8, 7], 8)} tokens afterwards")
    return found | {"results": tally(results), **summary(head.states[first:])}


def folders(head: Head) -> list[Path]:
    """Return the folders of evidence."""
    return list(head.evidence.glob("*"))


def running(head: Head) -> float:
    """Return the number of running requests in the watchdog's last sample."""
    return head.state.engine.running if head.state.engine else 0


def wait(condition: Callable[[], Any], seconds: float) -> bool:
    """Return whether the condition holds within this time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def tally(results: Sequence[str]) -> dict[str, int]:
    """Return how often each result occurred."""
    return {result: results.count(result) for result in dict.fromkeys(results)}


def summary(states: Sequence[State]) -> dict[str, Any]:
    """Return the watchdog's observations: how long requests ran without output, and how often the use of the KV cache
    changed meanwhile."""
    longest, changes, since, changed = 0.0, 0, states[0], 0
    for before, state in pairwise(states):
        old, new = before.engine, state.engine
        if old is None or new is None or not new.running or old.marks[OUTPUT] != new.marks[OUTPUT]:
            since, changed = state, 0
            continue
        changed += old.marks[CACHE] != new.marks[CACHE]
        if state.time - since.time > longest:
            longest, changes = state.time - since.time, changed
    return {
        "seconds": states[-1].time - states[0].time,
        "samples": len(states),
        "armed": all(state.armed for state in states),
        "stalled": max(state.stalled for state in states),
        "without_output": longest,
        "cache_changes": changes,
        "witnesses": sorted({witness for state in states for witness in state.witnesses}),
        "alarms": sorted({state.alarm.reason for state in states if state.alarm}),
    }


def checks(report: Mapping[str, Any]) -> dict[str, bool]:
    """Return the checks, each with its result."""
    answered, filled = report["phases"]
    found = {
        "the load was answered": set(answered["results"]) == {"256 tokens"},
        "the prefill had no output for longer than an alarm without a witness takes": filled["without_output"]
        > SETTINGS["stall_seconds"],
        "in the prefill the watchdog saw steps": filled["stalled"] < SETTINGS["witness_seconds"],
    }
    for phase in report["phases"]:
        found[f"{phase['name']}: armed, no witness, no alarm"] = (
            phase["armed"] and not phase["witnesses"] and not phase["alarms"]
        )
    for each in report["stops"]:
        pid = each["process"].split()[1]
        found[f"{each['name']}: an alarm within {LIMIT} s"] = each.get("alarm_seconds", LIMIT + 1) <= LIMIT
        found[f"{each['name']}: the reason is the stopped process"] = f"{each['process']} is stopped" in each["reason"]
        found[f"{each['name']}: the evidence shows it"] = f"\nT {pid} " in f"\n{each['evidence']}"
        only = set(each["results"]) - {"256 tokens"} == {"8 tokens afterwards"}
        found[f"{each['name']}: the alarm ended and every request was answered"] = "over_seconds" in each and only
    return found


if __name__ == "__main__":
    main()
