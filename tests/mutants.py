"""Mutate packages of the core and run their unit tests: mutants.py [all | PACKAGE ...].

Exits with 1 if too many mutants survive.

Cosmic Ray makes the mutants, in a copy of the checkout for each package. Root's code can do anything once it is
mutated, so the tests run in namespaces of their own: without the machine's network and processes, and with a read-only
file system.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
PACKAGES = ("fabric", "patch", "launch", "rules", "memory", "firewall", "node")
#: Their mistakes change a node, so more of their mutants have to die.
WRITING = frozenset(("os_update", "firewall", "fabric", "launch", "patch", "uninstall", "memory", "service"))
#: They import packages of the gateway's lock, so no unit test can import them: `make gateway` runs them.
PROGRAMS = frozenset(("io_listen.py", "io_proxy.py"))
#: Mutants of each package: of named ones, and of all.
MOST, SAMPLE = 200, 40
SEED, AT_ONCE = 40, os.cpu_count() or 1


def least(package: str) -> float:
    """Return the part of the mutants that has to die."""
    return 0.9 if package in {*WRITING, *PACKAGES} else 0.85


def every_package() -> list[str]:
    """Return the packages with own unit tests. Scenarios and the tests of their users cover the others."""
    return sorted(
        path.name for path in ROOT.glob("plugins/module_utils/*") if (ROOT / "tests/unit" / path.name).is_dir()
    )


# An operator that is not here makes mutants that are equivalent by construction, or that die with one that is here:
# - `is` for `==`: numbers and names are the same objects in CPython. An order for `is`: a type error.
# - Another sign for `+` than `-` and so on: eleven for each sign, and nearly all end in the same type error or number.
# - RemoveDecorator: without @dataclass or @property nothing works, without a cache everything does.
OPERATORS = re.compile(
    "core/(ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_FloorDiv|Div_Mul|FloorDiv_Mul|Mod_FloorDiv|Pow_Mul|LShift_RShift|RShift_LShift"
    "|BitOr_BitAnd|BitAnd_BitOr)|ReplaceComparisonOperator_(Is_IsNot|IsNot_Is|(Eq|NotEq|Lt|LtE|Gt|GtE)_(Eq|NotEq|Lt|LtE|Gt|GtE))"
    "|ReplaceUnaryOperator_Delete_.*|AddNot|Replace(True|False|And|Or|Break|Continue)With.*|ExceptionReplacer|NumberReplacer"
    "|ZeroIterationForLoop)"
)
# An order for `==` means something for numbers only: names of a closed set have none.
ORDER = re.compile("core/ReplaceComparisonOperator_(Eq|NotEq)_[LG]")
SANDBOX = (
    *("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--net", "sh", "-euc"),
    (
        "ip link set lo up; mount --bind . .; mount -t tmpfs tmpfs /dev/shm; mkdir -p ~root/.ansible; "
        'mount -t tmpfs tmpfs ~root/.ansible; mount -o remount,bind,ro /; cd "$PWD"; ulimit -v 4194304; exec "$@"'
    ),
    "sh",
)
#: Imported once. Otherwise these imports take most of the time of a mutant.
IMPORTED = (
    "_hypothesis_pytestplugin",
    "hypothesis.internal.conjecture.engine",
    "jinja2",
    "yaml",
    "ansible.module_utils.basic",
)
SECONDS = Path("build/mutant_seconds.json")
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants", "-m", "not slow")


def meaning(source: str) -> str:
    """Return the meaning of a text at run time.

    Annotations are not evaluated; `strict=` and decorators only report mistakes.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name, empty in {"annotation": None, "returns": None, "decorator_list": []}.items():
            if hasattr(node, name):
                setattr(node, name, empty)
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "strict"]
    return ast.dump(tree)


def mutations(path: Path) -> Iterator[tuple[Path, str, int, int]]:
    """Yield (file, operator, number of the place in the file, line)."""
    tree, lines = get_ast(path.read_text(encoding="utf-8")), path.read_text(encoding="utf-8").splitlines()
    for name in sorted(filter(OPERATORS.fullmatch, operator_names())):
        places = (place for node in ast_nodes(tree) for place in get_operator(name)().mutation_positions(node))
        for number, (start, end) in enumerate(places):
            if not ORDER.match(name) or lines[end[0] - 1][end[1] :].strip()[:1].isdigit():
                yield path, name, number, start[0]


def mutants(package: str) -> Iterator[tuple[Path, str, str, int]]:
    """Yield (file, old text, new text, line) in random order.

    Without those that do not compile, as `*args` has a sign, too, and those that ExceptionReplacer cannot make: of a
    dotted name in parentheses.
    """
    paths = sorted(path for path in Path("plugins/module_utils", package).glob("*.py") if path.name not in PROGRAMS)
    found = [mutation for path in paths for mutation in mutations(path)]
    random.Random(SEED).shuffle(found)
    for path, name, number, line in found:
        old = path.read_text(encoding="utf-8")
        try:
            new = mutate_code(old, get_operator(name)(), number)
            if meaning(new) != meaning(old):
                yield path, old, new, line
        except (AttributeError, SyntaxError):
            continue


class FastestFirst:
    """A plugin of pytest: files in the order of their seconds without a mutation.

    Most mutants die in the first ones.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        with contextlib.suppress(FileNotFoundError):
            self.seconds.update(json.loads(SECONDS.read_text(encoding="ascii")))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.seconds[item.location[0]])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not SECONDS.exists():
            self.seconds[report.location[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        SECONDS.write_text(json.dumps(self.seconds), encoding="ascii")


def passes(package: str, cpu: int, seconds: int) -> bool:
    """Run the tests of a package in a child with these limits, and end all processes that they left."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        log = os.open("build/mutant.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os._exit(int(pytest.main([*OPTIONS, f"tests/unit/{package}"], [FastestFirst()])))
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(seconds)
    status = os.waitpid(child, 0)[1]
    signal.alarm(0)
    try:
        os.kill(-1, signal.SIGKILL)
        while True:
            os.wait()
    except (ChildProcessError, ProcessLookupError):
        return status == 0


def inside(package: str, most: int) -> None:
    """Print the numbers of a package and its survivors, as the first process of the namespaces."""
    if os.getpid() != 1:
        sys.exit("--inside needs a PID namespace of its own, because it ends every process that it sees")
    os.environ.update(HOME="/dev/shm", TMPDIR="/dev/shm")
    for name in IMPORTED:
        importlib.import_module(name)
    start = time.monotonic()
    if not passes(package, 600, 600):
        sys.exit(
            f"the tests of {package} fail without a mutation:\n{Path('build/mutant.log').read_text(encoding='utf-8')}"
        )
    cpu, seconds = (
        10 + 2 * int(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])),
        20 + 3 * int(time.monotonic() - start),
    )
    # Bytecode of one mutant would be that of the next: files of the same size and second look the same.
    sys.dont_write_bytecode = True
    survivors, count = [], 0
    for path, old, new, line in itertools.islice(mutants(package), most):
        count += 1
        path.write_text(new, encoding="utf-8")
        if passes(package, cpu, seconds):
            changed = next(pair for pair in zip(old.splitlines(), new.splitlines(), strict=False) if pair[0] != pair[1])
            survivors.append((f"{path}:{line}", *changed))
        path.write_text(old, encoding="utf-8")
    print(
        json.dumps([count, survivors, time.monotonic() - start, sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])])
    )


def outside(package: str, most: int) -> Any:
    """Return the output of inside() in a copy of the checkout. Raises ValueError with it if the tests fail."""
    copy = ROOT / "build" / "mutants" / package
    shutil.rmtree(copy, ignore_errors=True)
    (copy / "build").mkdir(parents=True)
    files = f"git ls-files -zco --exclude-standard | tar -c --null -T - | tar -xC {shlex.quote(str(copy))}"
    subprocess.run(["sh", "-c", files], cwd=ROOT, check=True)
    done = subprocess.run(
        [*SANDBOX, sys.executable, __file__, "--inside", package, str(most)],
        cwd=copy,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ValueError(done.stdout + done.stderr)
    return json.loads(done.stdout)


def main(named: list[str]) -> int:
    packages, most = (every_package(), SAMPLE) if named == ["all"] else (named or list(PACKAGES), MOST)
    failed = False
    print("package          mutants  killed  survived  percent  seconds  CPU", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(outside, package, most): package for package in packages}
        for done in as_completed(running):
            package = running[done]
            try:
                count, survived, seconds, cpu = done.result()
            except ValueError as error:
                print(f"{package:16} FAILED: {error}", flush=True)
                failed = True
                continue
            killed = count - len(survived)
            verdict = "" if killed >= least(package) * count else f"  FAILED: at least {least(package):.0%}"
            figures = f"{count:7} {killed:7} {len(survived):9} {killed / count:8.1%} {seconds:8.0f} {cpu:4.0f}"
            print(f"{package:16} {figures}{verdict}")
            for place, old, new in survived:
                print(f"  {place}\n  - {old.strip()}\n  + {new.strip()}")
            sys.stdout.flush()
            failed |= bool(verdict)
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1:]))
