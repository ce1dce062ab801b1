"""Run parts of the tests, two at a time, and print a summary with the time of each: run.py test|test-all [PART ...]

Each part is a target of the Makefile. Its output is in build/log/PART.log, and is also printed if it fails. Exits with
1 if a part fails, or if a named one cannot run on this machine.
"""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
#: Parts that run at once. A part leaves a core idle now and then, and a lab takes up to 5 GB of memory.
AT_ONCE = 2
#: Printed lines of a failed part's log; linters and pytest print the errors last.
SHOWN = 400


@dataclass(frozen=True)
class Part:
    """Arguments of make; a function that returns the missing requirement, or ""; parts that have to end before."""

    arguments: Sequence[str]
    missing: Callable[[], str] = lambda: ""
    after: Sequence[str] = ()


def no_other_machine() -> str:
    return "this is an arm64 machine, where every part runs natively" if platform.machine() == "aarch64" else ""


def no_x86_machine() -> str:
    return "" if platform.machine() == "x86_64" else "its virtual machines are x86-64 ones"


def molecule(scenario: str, *after: str, missing: Callable[[], str] = lambda: "") -> Part:
    return Part(["molecule", f"SCENARIO={scenario}"], missing, ("downloads", *after))


#: Parts by name, in their start order: the longest first.
PARTS: Mapping[str, Part] = {
    "downloads": Part(["downloads"]),
    "lint": Part(["-k", "lint"]),
    "default": molecule("default"),
    "changes": molecule("changes"),
    "lifecycle": molecule("lifecycle"),
    # On Ubuntu, the downloads include Debian's key.
    "nccl-source": Part(["nccl-source"], after=("downloads",)),
    "nccl": molecule("nccl", "nccl-source"),
    "store": molecule("store"),
    "switch": molecule("switch"),
    "reset": molecule("reset"),
    "factory": molecule("factory"),
    "models": molecule("models"),
    "ring": molecule("ring"),
    "image": molecule("image"),
    "vm": molecule("vm", missing=no_x86_machine),
    "vllm_build": molecule("vllm_build"),
    "arm64": Part(["arm64"], no_other_machine),
    "sanity": Part(["sanity"]),
    "unit": Part(["unit"]),
    "collection": Part(["collection"]),
    "docs": Part(["docs"]),
    "patch": Part(["patch"]),
    "locks": Part(["locks"]),
    "gateway": Part(["gateway"]),
    "clients": Part(["clients"]),
}
#: Parts of `make test`; `make test-all` runs all parts, with every test of each.
QUICK = ("downloads", "lint", "default", "sanity", "unit", "collection", "patch", "clients")
#: Variables of make and molecule for both targets.
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "test": {"RELEASES": "two", "UNIT_TESTS": "not slow", "CLIENT_TESTS": "quick"},
    "test-all": {"RELEASES": "all", "GB10_TESTS": "not slow or test_faults or test_executors"},
}


@dataclass
class Run:
    """A running or finished part."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0
    cpu: float = 0
    status: int = 0


def start(name: str, settings: Mapping[str, str], logs: Path) -> Run:
    log = logs / f"{name}.log"
    variables = [f"{key}={value}" for key, value in settings.items()]
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", *PARTS[name].arguments, *variables],
            cwd=ROOT,
            env=os.environ | dict(settings) | {"NO_COLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "PY_COLORS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Run(name, process, log)


def finish(running: list[Run]) -> Run:
    """Wait for the next part to end, and remove it from the list.

    The CPU time is that of its processes, without the lab's hosts.
    """
    pid, status, usage = os.wait4(-1, 0)
    run = next(run for run in running if run.process.pid == pid)
    running.remove(run)
    run.status = run.process.returncode = os.waitstatus_to_exitcode(status)
    run.seconds, run.cpu = time.monotonic() - run.began, usage.ru_utime + usage.ru_stime
    return run


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_all(names: Sequence[str], settings: Mapping[str, str], logs: Path) -> list[Run]:
    """Run the parts, and return them in the order in which they ended."""
    waiting, running, ended = list(names), list[Run](), list[Run]()
    try:
        while waiting or running:
            open_names = {*waiting, *(run.name for run in running)}
            ready = [name for name in waiting if not open_names.intersection(PARTS[name].after)]
            if ready and len(running) < AT_ONCE:
                waiting.remove(ready[0])
                running.append(start(ready[0], settings, logs))
                say(
                    f"== {time.strftime('%T')} {ready[0]} begins; its output is in "
                    f"{logs.relative_to(ROOT)}/{ready[0]}.log"
                )
                continue
            run = finish(running)
            ended.append(run)
            say(f"== {time.strftime('%T')} {run.name} {'FAILED' if run.status else 'passed'} after {run.seconds:.0f} s")
            if run.status:
                say("\n".join(run.log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN:]))
    finally:
        # The run was interrupted.
        for run in running:
            os.killpg(run.process.pid, signal.SIGTERM)
    return ended


@dataclass(frozen=True)
class Case:
    """A test in a JUnit report, whose name is the part's."""

    part: str
    file: str
    name: str
    seconds: float
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.part}: {self.file}::{self.name}"


def cases(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("*.xml")):
        for element in ElementTree.parse(path).iter("testcase"):
            module = re.match(r"(?:.*\.)?test_\w+", element.get("classname", ""))
            file = f"{module[0].replace('.', '/')}.py" if module else ""
            outcome, reason = "passed", ""
            for child in element:
                if child.tag in ("failure", "error", "skipped"):
                    outcome, reason = "skipped" if child.tag == "skipped" else "failed", child.get("message", "")
            yield Case(path.stem, file, element.get("name", ""), float(element.get("time", 0)), outcome, reason)


@dataclass(frozen=True)
class Usage:
    """Seconds of CPU since the machine started: used here, and stolen by the hypervisor."""

    used: float
    stolen: float

    @classmethod
    def now(cls) -> Usage:
        values = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        user, nice, system, _idle, _iowait, irq, softirq, steal = (value / os.sysconf("SC_CLK_TCK") for value in values)
        return cls(user + nice + system + irq + softirq, steal)

    def since(self, before: Usage, seconds: float) -> str:
        used, stolen = self.used - before.used, self.stolen - before.stolen
        cores = f"{used:.0f} s of {os.cpu_count()} cores were used"
        return f"{seconds:.0f} s in all; {cores}, and {stolen:.0f} s were stolen by the hypervisor"


def summary(target: str, ended: Sequence[Run], left_out: Mapping[str, str], found: Sequence[Case]) -> Iterator[str]:
    """Yield the times, the omitted parts and tests with reasons, and the closing line."""
    yield f"{'part':<12} {'seconds':>8} {'CPU':>6}"
    ran = {case.part for case in found if case.outcome != "skipped"}
    skipped = {case.part for case in found} - ran
    for run in ended:
        verdict = "  FAILED" if run.status else "  all skipped" if run.name in skipped else ""
        yield f"{run.name:<12} {run.seconds:8.0f} {run.cpu:6.0f}{verdict}"
    yield "the slowest tests:"
    yield from (f"{case.seconds:8.1f} s  {case}" for case in sorted(found, key=lambda case: -case.seconds)[:15])
    yield from (f"left out: {name}: {reason}" for name, reason in left_out.items())
    # In `make test-all` another part runs them.
    for run in ended if target == "test" else ():
        if counted := re.findall(r"(\d+) deselected", run.log.read_text(encoding="utf-8", errors="replace")):
            yield f"left out: {counted[-1]} tests of {run.name}, which `make test-all` runs"
    yield from (f"skipped: {case}: {case.reason}" for case in found if case.outcome == "skipped")
    outcomes = [case.outcome for case in found]
    # Parts that fail without a failing test: a linter, a playbook before the tests, or the removal of a lab.
    failed_parts = {run.name for run in ended if run.status} - {case.part for case in found if case.outcome == "failed"}
    failed = outcomes.count("failed") + len(failed_parts)
    tests = f"{outcomes.count('passed')} passed, {failed} failed, {outcomes.count('skipped')} skipped"
    yield f"{tests}; parts left out: {len(left_out)}"


def main(target: str, names: Sequence[str]) -> int:
    """Run the parts of a target, or only the named ones, and return the exit status."""
    if unknown := set(names) - PARTS.keys():
        raise SystemExit(f"unknown part: {', '.join(sorted(unknown))}. Expected: {', '.join(PARTS)}.")
    chosen = [name for name in PARTS if name in (names or (QUICK if target == "test" else PARTS))]
    left_out = {name: reason for name in chosen if (reason := PARTS[name].missing())}
    logs, reports = ROOT / "build" / "log", ROOT / "build" / "junit"
    for folder in (logs, reports):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
    # The default action would leave the parts running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began, before = time.monotonic(), Usage.now()
    ended = run_all([name for name in chosen if name not in left_out], SETTINGS[target], logs)
    refused = set(names) & left_out.keys()
    if not names:
        left_out |= {name: "`make test-all` runs it" for name in PARTS if name not in chosen}
    say(f"== {Usage.now().since(before, time.monotonic() - began)}")
    say("\n".join(summary(target, ended, left_out, list(cases(reports)))))
    return int(bool(refused) or any(run.status for run in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
