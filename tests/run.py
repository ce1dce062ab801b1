"""Run parts of the tests, two at a time, and print a summary: run.py test|test-all|night [PART ...]

Each part is a target of the Makefile. Its output is in build/log/PART.log, and is also printed if it fails. Exits with
1 if a part fails, or if a named one cannot run on this machine. A night of the same files continues an earlier one.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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


def no_x86_machine() -> str:
    return "" if platform.machine() == "x86_64" else "its virtual machines are x86-64 ones"


def no_newer_python() -> str:
    return "" if newer_python() else "ansible-core 2.20 needs Python 3.12 or newer"


def newer_python() -> str:
    """Return the newest Python that ansible-core 2.20 and 2.21 support, "" if there is none."""
    return next((name for name in ("python3.14", "python3.13", "python3.12") if shutil.which(name)), "")


def compat(core: str) -> Part:
    return Part(["compat", f"CORE={core}", f"PYTHON={newer_python()}"], no_newer_python)


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
    # Both install nvcc and fetch the source.
    "arm64": molecule("arm64", "nccl-source", "nccl"),
    "sanity": Part(["sanity"]),
    "unit": Part(["unit"]),
    "collection": Part(["collection"]),
    "docs": Part(["docs"]),
    "patch": Part(["patch"]),
    "locks": Part(["locks"]),
    "gateway": Part(["gateway"]),
    "clients": Part(["clients"]),
}
#: Parts of `make test`; `make test-all` runs all parts above, with every test of each.
QUICK = ("downloads", "lint", "default", "sanity", "unit", "collection", "patch", "clients")
#: Further parts of `make night`, in their start order.
NIGHT: Mapping[str, Part] = {
    "faults": Part(["faults"], after=("downloads",)),
    "mutants": Part(["mutants", "PACKAGES=all"]),
    "orders": Part(["unit-repeat"]),
    # Debian 13 is nearer to DGX OS. The lab's wheels of vLLM are for Debian 12's Python, so these serve no model.
    "trixie-ring": Part(["molecule", "SCENARIO=ring", "LAB_SUITE=trixie"], after=("downloads", "ring")),
    "trixie-switch": Part(["molecule", "SCENARIO=switch", "LAB_SUITE=trixie"], after=("downloads", "switch")),
    "core-2.20": compat("2.20"),
    "core-2.21": Part(compat("2.21").arguments, no_newer_python, ("core-2.20",)),
}
#: No part of a night begins later, in seconds.
NIGHT_ENDS = 8 * 3600
_EVERY_TEST = {"RELEASES": "all", "GB10_TESTS": "not slow or test_faults or test_executors"}
#: Variables of make and molecule by target.
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "test": {"RELEASES": "two", "UNIT_TESTS": "not slow", "CLIENT_TESTS": "quick"},
    "test-all": _EVERY_TEST,
    "night": _EVERY_TEST,
}


@dataclass
class Ended:
    """A part that has ended: its seconds, those of its processes' CPU, and its exit status."""

    name: str
    seconds: float = 0
    cpu: float = 0
    status: int = 0

    @property
    def log(self) -> Path:
        """Its output."""
        return ROOT / "build" / "log" / f"{self.name}.log"


@dataclass(kw_only=True)
class Run(Ended):
    """A running part."""

    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)


def parts(target: str) -> Mapping[str, Part]:
    """Return the parts that a target knows."""
    return {**NIGHT, **PARTS} if target == "night" else PARTS


def start(name: str, part: Part, settings: Mapping[str, str]) -> Run:
    variables = [f"{key}={value}" for key, value in settings.items()]
    own = {"NO_COLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "PY_COLORS": "0", "GB10_PART": name}
    with Ended(name).log.open("wb") as output:
        process = subprocess.Popen(
            ["make", *part.arguments, *variables],
            cwd=ROOT,
            env=os.environ | dict(settings) | own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Run(name, process=process)


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


def run_all(chosen: Mapping[str, Part], settings: Mapping[str, str], on_time: Callable[[], bool]) -> Iterator[Run]:
    """Run the parts that begin on time, and yield each when it has ended."""
    waiting, running = list(chosen), list[Run]()
    try:
        while (waiting and on_time()) or running:
            open_names = {*waiting, *(run.name for run in running)}
            ready = [name for name in waiting if not open_names.intersection(chosen[name].after)]
            if ready and len(running) < AT_ONCE and on_time():
                waiting.remove(ready[0])
                running.append(run := start(ready[0], chosen[ready[0]], settings))
                say(f"== {time.strftime('%T')} {run.name} begins; its output is in {run.log.relative_to(ROOT)}")
                continue
            run = finish(running)
            say(f"== {time.strftime('%T')} {run.name} {'FAILED' if run.status else 'passed'} after {run.seconds:.0f} s")
            if run.status:
                say("\n".join(run.log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN:]))
            yield run
    finally:
        # The run was interrupted.
        for run in running:
            os.killpg(run.process.pid, signal.SIGTERM)


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


def summary(target: str, ended: Sequence[Ended], left_out: Mapping[str, str], found: Sequence[Case]) -> Iterator[str]:
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


def on_github(lines: Sequence[str]) -> None:
    """Show a workflow's summary on its page, with omitted parts and tests as warnings: a job has no yellow state."""
    if not (page := os.environ.get("GITHUB_STEP_SUMMARY")):
        return
    Path(page).write_text("\n".join(["```", *lines, "```", ""]), encoding="utf-8")
    for line in lines:
        if line.startswith(("left out: ", "skipped: ")):
            say(f"::warning::{line}")


def files() -> str:
    """Return a digest of the checkout."""
    state = (["rev-parse", "HEAD"], ["diff", "HEAD"], ["ls-files", "--others", "--exclude-standard"])
    texts = [subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout for words in state]
    return hashlib.sha256(b"".join(texts)).hexdigest()


class Night:
    """The parts that have passed in nights of the same files, in build/night.json."""

    def __init__(self) -> None:
        self.path, self.files = ROOT / "build" / "night.json", files()
        found = json.loads(self.path.read_text(encoding="ascii")) if self.path.exists() else {}
        self.passed = [Ended(**each) for each in found["passed"]] if found.get("files") == self.files else []

    def add(self, run: Run) -> None:
        """Record a part that has passed, unless a file has changed meanwhile."""
        if run.status or files() != self.files:
            return
        self.passed.append(Ended(run.name, run.seconds, run.cpu))
        content = {"files": self.files, "passed": [asdict(each) for each in self.passed]}
        self.path.write_text(json.dumps(content), encoding="ascii")


def choose(target: str, names: Sequence[str]) -> dict[str, Part]:
    """Return the named parts of a target, or all of them."""
    known = parts(target)
    if unknown := set(names) - known.keys():
        raise SystemExit(f"unknown part: {', '.join(sorted(unknown))}. Expected: {', '.join(known)}.")
    wanted = names or (QUICK if target == "test" else known)
    return {name: part for name, part in known.items() if name in wanted}


def main(target: str, names: Sequence[str]) -> int:
    """Run the parts of a target, or only the named ones, and return the exit status."""
    chosen = choose(target, names)
    left_out = {name: reason for name, part in chosen.items() if (reason := part.missing())}
    logs, reports = ROOT / "build" / "log", ROOT / "build" / "junit"
    for folder in (logs, reports):
        folder.mkdir(parents=True, exist_ok=True)
    night = Night() if target == "night" else None
    ended: list[Ended] = [run for run in night.passed if run.name in chosen] if night else []
    passed = {run.name for run in ended}
    due = {name: part for name, part in chosen.items() if name not in left_out.keys() | passed}
    for path in (*logs.iterdir(), *reports.iterdir()):
        if path.stem not in passed:
            path.unlink()
    # The default action would leave the parts running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began, before = time.monotonic(), Usage.now()
    for run in run_all(due, SETTINGS[target], lambda: not night or time.monotonic() < began + NIGHT_ENDS):
        ended.append(run)
        if night:
            night.add(run)
    refused = set(names) & left_out.keys()
    late = due.keys() - {run.name for run in ended}
    left_out |= {name: "the night has ended; repeat the command" for name in due if name in late}
    if not names:
        left_out |= {name: "`make test-all` runs it" for name in PARTS if name not in chosen}
    say(f"== {Usage.now().since(before, time.monotonic() - began)}")
    lines = list(summary(target, ended, left_out, list(cases(reports))))
    say("\n".join(lines))
    on_github(lines)
    return int(bool(refused) or any(run.status for run in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
