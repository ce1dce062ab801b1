"""Test the runner of the tests with parts that take no time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import run
from repository import ROOT, files, load_yaml, read
from waiting import wait_until

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_b" time="1.5"/>
<testcase classname="tests.unit.test_a" name="test_c" time="0.5"><skipped message="no GPU"/></testcase>
{more}</testsuite></testsuites>"""
TARGETS = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))
FAILED = '<testcase classname="tests.unit.test_a" name="test_d" time="0.1"><failure message="no"/></testcase>'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Create a project with the given Makefile and parts."""

    def project(makefile: str, parts: Mapping[str, run.Part], quick: Sequence[str] = ()) -> Path:
        (tmp_path / "Makefile").write_text(makefile, encoding="utf-8")
        for name, value in {"ROOT": tmp_path, "PARTS": parts, "QUICK": quick, "NIGHT": {}}.items():
            monkeypatch.setattr(run, name, value)
        return tmp_path

    handler = signal.getsignal(signal.SIGTERM)
    yield project
    signal.signal(signal.SIGTERM, handler)


def test_two_run_at_once_and_each_after_what_it_needs(
    project: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    # The first two wait for each other, and the third waits for a file of the first.
    meet = "touch $@.here; for i in $$(seq 100); do test -e {other}.here && exit; sleep 0.1; done; exit 1"
    last = "test -e a.here && echo '3 deselected' && touch c.here"
    folder = project(
        f"a:\n\t@{meet.format(other='b')}\nb:\n\t@{meet.format(other='a')}\nc:\n\t@{last}\n",
        {"c": run.Part(["c"], after=("a",)), "a": run.Part(["a"]), "b": run.Part(["b"]), "d": run.Part(["d"])},
        quick=("a", "b", "c"),
    )
    assert run.main("test", []) == 0
    assert (folder / "c.here").exists()
    said = capsys.readouterr().out
    assert said.index("c begins") > said.index("a passed")
    assert "left out: d: `make test-all` runs it" in said
    assert "left out: 3 tests of c, which `make test-all` runs" in said
    assert said.splitlines()[-1] == "0 passed, 0 failed, 0 skipped; parts left out: 1"


def test_every_part_runs_though_one_fails_and_all_that_it_wrote_is_shown(
    project: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(
        "lint:\n\t@echo one finding; echo another; exit 1\nunit:\n\t@cp report "
        "build/junit/unit.xml\nnever:\n\t@touch never.here\n",
        {
            "lint": run.Part(["lint"]),
            "unit": run.Part(["unit"]),
            "never": run.Part(["never"], missing=lambda: "there is no GPU"),
        },
    )
    (folder / "report").write_text(REPORT.format(more=""), encoding="utf-8")
    assert run.main("test-all", []) == 1
    said = capsys.readouterr().out
    for words in (
        "lint FAILED after",
        "one finding\nanother",
        "unit passed after",
        "left out: never: there is no GPU",
        "skipped: unit: tests/unit/test_a.py::test_c: no GPU",
        "     1.5 s  unit: tests/unit/test_a.py::test_b",
    ):
        assert words in said
    assert said.splitlines()[-1] == "1 passed, 1 failed, 1 skipped; parts left out: 1"
    assert not (folder / "never.here").exists()


def test_a_failed_test_counts_once(project: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = project("unit:\n\t@cp report build/junit/unit.xml; exit 1\n", {"unit": run.Part(["unit"])})
    (folder / "report").write_text(REPORT.format(more=FAILED), encoding="utf-8")
    assert run.main("test-all", ["unit"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped; parts left out: 0"


@pytest.mark.parametrize(("named", "status"), [([], 0), (["never"], 1)])
def test_a_part_that_cannot_run_is_never_passed(
    project: Callable[..., Path], capsys: pytest.CaptureFixture[str], named: list[str], status: int
) -> None:
    project("", {"never": run.Part(["never"], missing=lambda: "there is no GPU")})
    assert run.main("test-all", named) == status
    said = capsys.readouterr().out
    assert "left out: never: there is no GPU" in said and said.endswith("skipped; parts left out: 1\n")


def test_a_part_whose_tests_are_all_skipped_says_so(
    project: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project("unit:\n\t@cp report build/junit/unit.xml\n", {"unit": run.Part(["unit"])})
    (folder / "report").write_text(re.sub(r"<testcase .* time=\"1.5\"/>", "", REPORT).format(more=""), encoding="utf-8")
    assert run.main("test-all", []) == 0
    said = capsys.readouterr().out
    assert re.search(r"^unit .*  all skipped$", said, re.MULTILINE)
    assert said.endswith("0 passed, 0 failed, 1 skipped; parts left out: 0\n")


def test_a_night_continues_until_a_file_changes(
    project: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {name: run.Part([name]) for name in ("once", "weak")}
    folder = project(
        "once:\n\t@cp report build/junit/once.xml; echo . >>once.runs\nweak:\n\t@echo . >>weak.runs; test -e strong\n",
        parts,
    )
    (folder / "report").write_text(REPORT.format(more=""), encoding="utf-8")
    (folder / ".gitignore").write_text("build\n*.runs\n", encoding="ascii")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a"]
    for words in (["add", "--all"], [*author, "commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=folder, check=True)

    def runs(status: int) -> tuple[int, int]:
        assert run.main("night", []) == status
        return tuple(len((folder / f"{name}.runs").read_text(encoding="ascii").split()) for name in parts)

    assert runs(1) == (1, 1)
    # Only the part that failed runs again; the summary has both, with the tests of the first run.
    assert runs(1) == (1, 2)
    said = capsys.readouterr().out
    assert said.count("once begins") == 1 and said.endswith("1 passed, 1 failed, 1 skipped; parts left out: 0\n")
    (folder / "strong").touch()
    assert runs(0) == (2, 3)
    monkeypatch.setattr(run, "NIGHT_ENDS", -1)
    (folder / "strong").rename(folder / "stronger")
    assert runs(0) == (2, 3)
    assert "left out: weak: the night has ended; repeat the command" in capsys.readouterr().out


def test_a_workflow_shows_omitted_tests_as_warnings(
    project: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("unit:\n\t@cp report build/junit/unit.xml\n", {"unit": run.Part(["unit"])})
    (folder / "report").write_text(REPORT.format(more=""), encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    assert run.main("test-all", []) == 0
    line = "skipped: unit: tests/unit/test_a.py::test_c: no GPU"
    assert capsys.readouterr().out.endswith(f"::warning::{line}\n")
    assert line in (folder / "summary.md").read_text(encoding="utf-8")


def test_a_part_that_is_none_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"unknown part: lind\. Expected: downloads, lint"):
        run.main("test-all", ["lind"])


def test_parts_wait_for_parts_that_there_are() -> None:
    parts = run.parts("night")
    assert {name for part in parts.values() for name in part.after} <= parts.keys()
    assert set(run.QUICK) < run.PARTS.keys()


def test_every_part_is_a_target_of_make() -> None:
    assert {
        argument
        for part in run.parts("night").values()
        for argument in part.arguments
        if not argument.startswith("-") and "=" not in argument
    } <= TARGETS


def test_every_scenario_is_a_part() -> None:
    scenarios = {path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml")}
    assert {name for name, part in run.PARTS.items() if part.arguments[0] == "molecule"} == scenarios


#: Prints the tests of a serving model that each of the given selections has, in one process.
COLLECT = """
import contextlib, json, sys
import pytest

class Collected:
    def pytest_collection_finish(self, session):
        found.append([item.nodeid for item in session.items])

found = []
for selection in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(sys.stderr):
        pytest.main(["--collect-only", "-qq", "-pno:cacheprovider", *selection, "tests/integration/model"], [Collected()])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_every_test_of_a_serving_model_runs_in_one_scenario() -> None:
    default, changes = (
        load_yaml(read(f"molecule/{name}/molecule.yml"))["verifier"]["options"]["k"] for name in ("default", "changes")
    )
    assert default == "${GB10_TESTS:-not slow}"
    selections = [
        [],
        ["-k", run.SETTINGS["test-all"]["GB10_TESTS"]],
        ["-k", changes],
        ["-k", "not slow"],
        ["-m", "not slow"],
    ]
    command = [sys.executable, "-c", COLLECT, json.dumps(selections)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    every, in_default, in_changes, by_name, by_mark = json.loads(shown)
    assert every and sorted(in_default + in_changes) == sorted(every)
    assert by_name == by_mark


def test_the_workflow_runs_every_part_where_it_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "newer_python", lambda: "python3.12")
    matrix = load_yaml(read(".github/workflows/night.yml"))["jobs"]["night"]["strategy"]["matrix"]
    assert {part for suite in matrix["parts"] for part in suite.split()} | {"downloads"} == set(run.parts("night"))
    for system, machine in {"ubuntu-24.04": "x86_64", "ubuntu-24.04-arm": "aarch64"}.items():
        monkeypatch.setattr(run.platform, "machine", lambda machine=machine: machine)
        excluded = {each["parts"] for each in matrix["exclude"] if each["os"] == system}
        assert excluded == {name for name, part in run.parts("night").items() if part.missing()}


def test_every_step_of_a_workflow_is_a_target_of_make() -> None:
    texts = [read(path) for path in files(".github/workflows/*.yml", ".ci/run")]
    steps = {step for text in texts for step in re.findall(r"^[^#\n]*\bmake ([\w-]+)", text, re.MULTILINE)}
    assert steps and steps <= TARGETS


def test_a_terminated_run_ends_its_parts(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
import run
run.ROOT = Path({str(tmp_path)!r})
run.PARTS = {{"a": run.Part(["--eval=a:; echo $$$$ > pid; exec sleep 60", "a"])}}
run.main("test", ["a"])
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    ) as runner:
        pid = tmp_path / "pid"
        wait_until(lambda: pid.exists() and pid.read_text(encoding="ascii").strip(), 60, pause=0.05)
        runner.terminate()
        assert runner.wait() == 143
    ended = Path(f"/proc/{pid.read_text(encoding='ascii').strip()}")
    wait_until(lambda: not ended.exists(), 10, "the part runs on", 0.05)
