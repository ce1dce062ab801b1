"""The modules vllm_build, vllm_build_info and vllm_build_wheel, and the wait for a build, as on a head and a worker."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure
from built_wheels import WHEEL, packed_wheel, write_wheel
from repository import load_yaml, read
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.action import vllm_build_wait
from ansible_collections.gb10.cluster.plugins.lookup import file_digests
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, wheel
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import GIB, Host
from ansible_collections.gb10.cluster.plugins.modules import vllm_build_wait as wait_module
from ansible_collections.gb10.cluster.plugins.plugin_utils import polling

NAME, OTHER = "0.33.0-0123456789ab", "0.33.0-ba9876543210"
CMAKE = """\
project(vllm_extensions LANGUAGES CXX)
set(CUDA_SUPPORTED_ARCHS "9.0;12.0")
message(FATAL_ERROR "GCC >= 13 is required to build vLLM with CUDA")
"""
NVCC = (
    "[ \"$1\" = --version ] && echo 'Cuda compilation tools, release 13.0, V13.0.88' || printf "
    "'sm_90\\nsm_110\\nsm_121\\n'"
)
#: A systemctl whose unit is in the file `unit`, and a systemd-run that records its command there.
SYSTEMCTL = 'case "$1" in show) cat {0}/unit 2>/dev/null;; esac; true'
SYSTEMD_RUN = """\
for word in "$@"; do printf '%s\\n' "$word"; done > {0}/started
printf 'ActiveState=active\\nDescription=Build of vLLM %s\\n' "$(sed -n 's/^--name=//p' {0}/started)" > {0}/unit"""
HOST = Host(20, 100 * GIB, 500 * GIB, frozenset({"g++", "git", "ccache"}), headers=True, serving=(), compiler="13.3.0")


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a host with a source, a CUDA toolkit and systemd, and return its folder."""
    for folder in ("source", "store", "cuda"):
        (tmp_path / folder).mkdir()
    (tmp_path / "source" / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (tmp_path / "source" / "pyproject.toml").write_text('requires = ["torch == 2.14.0"]\n', encoding="utf-8")
    program(tmp_path / "cuda" / "bin", "nvcc", NVCC)
    program(tmp_path / "tools", "systemctl", SYSTEMCTL.format(tmp_path))
    program(tmp_path / "tools", "systemd-run", SYSTEMD_RUN.format(tmp_path))
    monkeypatch.setattr(io_build, "STATE", str(tmp_path / "state"))
    return tmp_path


def call(head: Path, module: str, given: Mapping[str, Any], check: bool = False) -> dict[str, Any]:
    """Return the result of a module with the host's store; None leaves an argument out."""
    arguments = {name: value for name, value in given.items() if value is not None}
    return run_module(module, {"store": str(head / "store"), **arguments}, head / "tools", check)


def build(head: Path, check: bool = False, host: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Run vllm_build on a host whose resources do not depend on the test's."""
    arguments = {
        "name": NAME,
        "version": "0.33.0+gb10.01234567",
        "device": "cuda",
        "capabilities": ["12.1"],
        "architectures": "12.1a",
        "torch": "2.14.0",
        "cuda": "13",
        "source": str(head / "source"),
        "identity": "vllm.git commit 73cf",
        "python": "/opt/gb10/build/environment/bin/python",
        "program": "/opt/gb10/build/io_run.py",
        "cuda_home": str(head / "cuda"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io_build, "host", lambda _run, units: replace(HOST, **(host or {})) if units == [] else None)
        return call(head, "vllm_build", {**arguments, **changes}, check)


def started(head: Path) -> list[str]:
    """Return the words of the last systemd-run."""
    return (head / "started").read_text(encoding="utf-8").splitlines() if (head / "started").exists() else []


def in_store(head: Path) -> list[str]:
    return sorted(path.name for path in (head / "store").iterdir())


# --- vllm_build ---


def test_a_build_is_started_once(head: Path) -> None:
    answer, words = build(head), started(head)
    assert (answer["changed"], answer["jobs"], answer["log"]) == (True, 19, f"{head}/store/build.log")
    assert words[:2] == ["--unit=gb10-vllm-build.service", f"--description=Build of vLLM {NAME}"]
    assert words[-8:] == [
        *("/usr/bin/python3", "-I", "-B", "/opt/gb10/build/io_run.py", f"--name={NAME}", f"--source={head}/store/tree"),
        *("--state=/var/lib/gb10-vllm-build", "--python=/opt/gb10/build/environment/bin/python"),
    ]
    variables = {"--setenv=TORCH_CUDA_ARCH_LIST=12.1a", f"--setenv=CUDA_HOME={head}/cuda", "--setenv=MAX_JOBS=19"}
    assert variables <= set(words)
    assert "12.0;12.1" in (head / "store" / "tree" / "CMakeLists.txt").read_text(encoding="utf-8")
    assert answer["stamp"] == {
        "version": "0.33.0+gb10.01234567",
        "source": "vllm.git commit 73cf",
        "patches": [],
        "architectures": "12.1a",
        "device": "cuda",
        "torch": "2.14.0",
        "cuda": "13.0.88",
        "compiler": "13.3.0",
        "machine": os.uname().machine,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "jobs": 19,
    }
    # Its own compilers may use the memory that a start requires.
    (head / "started").unlink()
    assert (build(head, host={"memory": 0})["changed"], started(head)) == (False, [])
    assert f"no other build than {OTHER}" in build(head, name=OTHER)["msg"]


def test_a_build_in_the_store_is_not_repeated(head: Path) -> None:
    received(head)
    answer = build(head, host={"memory": 0, "disk": 0})
    assert (answer["changed"], started(head), answer["diff"]["before"]) == (False, [], f"{NAME}\n")


@pytest.mark.parametrize(("check", "source"), [(True, "/source"), (True, None), (False, None)])
def test_check_mode_and_a_question_without_a_source_start_nothing(head: Path, check: bool, source: str | None) -> None:
    """The role asks for the requirements before it downloads the source."""
    answer = build(head, check, source=source and f"{head}{source}")
    assert (answer["changed"], answer["jobs"], started(head), in_store(head)) == (source is not None, 19, [], [])


def test_check_mode_installs_no_packages(head: Path) -> None:
    host = {"programs": frozenset(), "headers": False}
    assert "msg" not in build(head, check=True, source=None, host=host)
    for check, count in ((False, 3), (True, 1)):
        assert build(head, check, source=None, host={**host, "disk": 0})["msg"].startswith(f"{count} problem")


@pytest.mark.parametrize(
    ("changes", "host", "found"),
    [
        ({"capabilities": ["12.1a"]}, {}, "capabilities[0]: '12.1a' is not a compute capability"),
        ({"capabilities": ["12.0"]}, {}, "does not support sm_120"),
        ({"cuda_home": "/nonexistent"}, {}, "cuda_home: /nonexistent/bin/nvcc not found"),
        ({"cuda": "12"}, {}, "CUDA 12, that of torch"),
        ({"source": "/nonexistent"}, {}, "/nonexistent has no CMakeLists.txt of vLLM"),
        ({"torch": "2.13.0"}, {}, "this source requires torch 2.14.0"),
        ({"environment": {"MAX_JOBS": 3}}, {}, "vllm_build_environment: MAX_JOBS"),
        ({}, {"serving": ("gb10-vllm.service",)}, "gb10-vllm.service is running"),
        ({}, {"disk": 0}, "are free in /var/lib/gb10-vllm-build"),
        ({}, {"compiler": "12.2.0"}, "g++ is release 12"),
        ({"commit": "0" * 40}, {}, "git failed in "),
        ({"patches": ["/nonexistent.patch"]}, {}, "vllm_build_patches[0]: nonexistent.patch does not apply"),
    ],
)
def test_what_refuses_a_build(head: Path, changes: dict[str, Any], host: dict[str, Any], found: str) -> None:
    assert found in build(head, host=host, **changes)["msg"]
    assert (started(head), "tree" in in_store(head)) == ([], False)


def test_a_patch_may_change_the_required_compiler(head: Path) -> None:
    patch, old = head / "gcc.patch", CMAKE.splitlines()[2]
    text = f"--- a/CMakeLists.txt\n+++ b/CMakeLists.txt\n@@ -3 +3 @@\n-{old}\n+{old.replace('13', '12')}\n"
    patch.write_text(text, encoding="utf-8")
    answer = build(head, patches=[str(patch)], host={"compiler": "12.2.0"})
    assert (answer["changed"], answer["stamp"]["patches"]) == (True, ["gcc.patch"])


def test_a_moved_tag_is_said_with_the_other_problems(head: Path) -> None:
    git = ["git", "-C", str(head / "source"), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    message = build(head, commit="0" * 40, host={"disk": 0})["msg"]
    assert message.startswith("2 problems found")
    assert f"vllm_build_commit: {head}/source is commit {commit}. Expected: {'0' * 40}" in message
    assert build(head, commit=commit)["changed"] is True


def test_the_settings_reach_the_unit(head: Path) -> None:
    settings = {"jobs": 3, "nvcc_threads": 2, "ccache": False, "network": False, "while_serving": True, "timeout": 60}
    host = {"programs": frozenset({"g++", "git"}), "serving": ("gb10-vllm.service",)}
    build(head, host=host, environment={"VERBOSE": 1}, **settings)
    variables = ("MAX_JOBS=3", "NVCC_THREADS=2", "CCACHE_DISABLE=1", "VERBOSE=1")
    properties = ("PrivateNetwork=yes", "RuntimeMaxSec=60")
    expected = {*(f"--setenv={each}" for each in variables), *(f"--property={each}" for each in properties)}
    assert expected <= set(started(head))


def test_a_build_for_cpus(head: Path) -> None:
    answer = build(head, device="cpu", capabilities=[], architectures="", cuda="", cuda_home=None)
    assert (answer["changed"], answer["stamp"]["cuda"]) == (True, "")
    assert (head / "store" / "tree" / "CMakeLists.txt").read_text(encoding="utf-8") == CMAKE
    assert not any("CUDA_HOME" in word for word in started(head))


# --- vllm_build_wheel, with a wheel of another host ---


def stamp_of(path: Path, name: str = NAME, **changes: Any) -> dict[str, Any]:
    return {"name": name, "wheel": WHEEL, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "jobs": 7, **changes}


def received(head: Path, name: str = NAME, check: bool = False, **changes: Any) -> dict[str, Any]:
    """Run vllm_build_wheel with a file that another host sent; None leaves an argument out."""
    path = packed_wheel(head / "transfer" / WHEEL, "121a")
    arguments = {"name": name, "stamp": stamp_of(path, name), "file": str(path), **changes}
    return call(head, "vllm_build_wheel", arguments, check)


def builds(head: Path) -> list[str]:
    return [stamp["name"] for stamp in info(head)["builds"]]


def test_a_wheel_is_received_once(head: Path) -> None:
    asked, checked = received(head, stamp=None, file=None), received(head, check=True)
    assert [(found["changed"], found["stamp"]) for found in (asked, checked)] == [(False, None), (True, None)]
    assert in_store(head) == []
    first = received(head)
    assert (first["changed"], first["stamp"]) == (True, stamp_of(head / "transfer" / WHEEL))
    assert (first["diff"], first["lines"]) == ({"before": "", "after": f"{NAME}\n"}, [])
    for changes in ({}, {"stamp": None, "file": None}):
        again = received(head, **changes)
        assert (again["changed"], again["stamp"]) == (False, first["stamp"])
    assert info(head)["builds"] == [first["stamp"]]
    assert sorted(path.name for path in (head / "store" / "wheels" / NAME).iterdir()) == ["stamp.json", WHEEL]
    (head / "store" / "wheels" / NAME / "stamp.json").write_text("{", encoding="utf-8")
    assert "is not JSON" in call(head, "vllm_build_info", {})["msg"]


@pytest.mark.parametrize(
    ("stamp", "changes", "found"),
    [
        ({"sha256": "0" * 64}, {}, f"Expected: {'0' * 64}"),
        ({"sha256": None}, {}, "stamp: a value is missing or has another form"),
        ({"wheel": f"../../../{WHEEL}"}, {}, "stamp: a value is missing or has another form"),
        ({"name": OTHER}, {}, f"stamp: it is that of {OTHER}"),
        ({}, {"file": "/nonexistent/absent.whl"}, "absent.whl"),
        ({}, {"capabilities": ["x"]}, "capabilities[0]: 'x'"),
    ],
)
def test_another_file_than_that_of_the_stamp_is_refused(
    head: Path, stamp: dict[str, Any], changes: dict[str, Any], found: str
) -> None:
    path = packed_wheel(head / "transfer" / WHEEL, "121a")
    assert found in received(head, stamp=stamp_of(path, **stamp), **changes)["msg"]
    assert builds(head) == []


def test_a_wheel_in_another_form_is_refused(head: Path) -> None:
    """Its hash is that of the stamp, but other readers of archives may find other files in it."""
    path = write_wheel(head / "transfer" / WHEEL, "121a")
    refused = call(head, "vllm_build_wheel", {"name": NAME, "stamp": stamp_of(path), "file": str(path)})["msg"]
    assert "file: its form is another one" in refused
    assert (builds(head), list((head / "store" / "wheels").iterdir())) == ([], [])


def test_the_oldest_builds_are_removed_unless_they_are_used(head: Path) -> None:
    names = [f"0.33.0-{number}" for number in range(4)]
    for age, name in enumerate(names[:3]):
        # A wheel of another build has another hash.
        path = packed_wheel(head / "transfer" / WHEEL, "121a", files={"vllm/build": name.encode()})
        assert call(head, "vllm_build_wheel", {"name": name, "stamp": stamp_of(path, name), "file": str(path)})[
            "changed"
        ]
        os.utime(head / "store" / "wheels" / name / "stamp.json", (age, age))
    checked = received(head, names[3], check=True, keep=2)
    assert (checked["removed"], len(builds(head))) == ([], 3), "it is unknown what a missing build replaces"
    (head / "current").mkdir()
    used = json.loads((head / "store" / "wheels" / names[0] / "stamp.json").read_text(encoding="utf-8"))["sha256"]
    (head / "current" / ".complete").write_text(f"{'1' * 64}\n{used}\n", encoding="utf-8")
    asked = {"name": names[2], "keep": 1}
    for changes, removed in (
        ({"used": [names[1]]}, [names[0]]),
        ({"runtime": str(head / "current")}, [names[1]]),
        ({"runtime": str(head / "absent")}, [names[1], names[0]]),
    ):
        answer = call(head, "vllm_build_wheel", {**asked, **changes}, check=True)
        assert (answer["changed"], answer["removed"], len(builds(head))) == (True, removed, 3)
    last = received(head, names[3], keep=2)
    assert (last["removed"], builds(head)) == ([names[1], names[0]], [names[3], names[2]])


def finish(head: Path, *architectures: str) -> None:
    """Write the files that the unit's program leaves."""
    write_wheel(head / "state" / "dist" / WHEEL, *architectures)
    content = {"name": NAME, "state": "finished", "seconds": 12.5, "wheel": WHEEL}
    (head / "state" / "status.json").write_text(json.dumps(content), encoding="utf-8")


def test_the_wheel_of_a_finished_build(head: Path) -> None:
    stamp = {"jobs": 20, "source": "vllm.git commit 73cf"}
    arguments: dict[str, Any] = {"name": NAME, "stamp": stamp, "capabilities": ["12.1"]}
    assert "the build has left no wheel" in call(head, "vllm_build_wheel", arguments)["msg"]
    finish(head, "121a")
    assert call(head, "vllm_build_wheel", arguments, check=True)["changed"] is True
    refused = call(head, "vllm_build_wheel", {**arguments, "capabilities": ["12.1", "11.0"]})["msg"]
    assert "vllm/_C, which each model needs, has no code for 11.0" in refused
    assert builds(head) == []
    answer, again = (call(head, "vllm_build_wheel", arguments) for _run in range(2))
    assert (answer["changed"], answer["stamp"]["jobs"]) == (True, 20)
    assert answer["stamp"]["coverage"] == ["12.1: own code in 1 of 1 extensions"]
    assert answer["lines"] == wheel.text(answer["stamp"])
    assert (again["changed"], again["stamp"], again["lines"]) == (False, answer["stamp"], [])


# --- vllm_build_info ---


def info(head: Path, **arguments: Any) -> dict[str, Any]:
    answer = call(head, "vllm_build_info", arguments)
    assert answer["changed"] is False
    return answer


def test_the_published_wheel(head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = head / "runtime"
    with zipfile.ZipFile(write_wheel(head / WHEEL, "120f", "90a")) as archive:
        archive.extractall(runtime / "lib" / "python3.12" / "site-packages")

    def asked(capability: str | None) -> tuple[str, Any]:
        gpus = [{"capability": None}, {"capability": capability}]
        monkeypatch.setattr(io_facts, "gpu", lambda _run: {"gpus": gpus})
        answer = info(head, runtime=str(runtime))
        return answer["capability"], answer["published"]

    # An interrupted installation is no published wheel.
    assert asked("12.1") == ("12.1", None)
    (runtime / ".complete").touch()
    assert asked("12.1") == ("12.1", {"vllm/_C": {"native": 0, "same_major": 1, "ptx": 0, "none": 1}})
    assert asked(None) == ("", {})


def test_the_progress_of_a_build(head: Path) -> None:
    empty = info(head)
    assert (empty["builds"], empty["capability"], empty["published"], empty["progress"]) == ([], "", None, {})
    assert info(head, name=NAME)["progress"]["state"] == "none"
    (head / "unit").write_text("ActiveState=active\n", encoding="utf-8")
    (head / "store" / "build.log").write_text("[126/504] Building CUDA object\n", encoding="utf-8")
    line = "[126/504], 0 s, about 0 s left"
    assert info(head, name=NAME)["progress"] == {"state": "running", "reason": "", "line": line}


# --- the wait ---


class Clock:
    """Replaces the module time: only sleep() advances it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def progress(state: str = "running", line: str = "[1/5]", reason: str = "") -> dict[str, Any]:
    return {"progress": {"state": state, "line": line, "reason": reason}}


def waited(monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> tuple[dict[str, Any], list[str], float]:
    """Return the action's result, its output, and its seconds; the last answer is repeated."""
    clock, display, action = Clock(), mock.Mock(), object.__new__(vllm_build_wait.ActionModule)
    module, variables = mock.Mock(side_effect=chain(answers, repeat(answers[-1]))), {"inventory_hostname": "spark1"}
    given = {"store": "/store", "name": NAME}
    monkeypatch.setattr(polling, "time", clock)
    monkeypatch.setattr(polling, "Display", display)
    monkeypatch.setattr(vllm_build_wait.ActionBase, "run", lambda *_arguments: {})
    monkeypatch.setattr(action, "_execute_module", module, raising=False)
    monkeypatch.setattr(action, "validate_argument_spec", lambda argument_spec: (argument_spec, given), raising=False)
    result = action.run(None, variables)
    module.assert_called_with(module_name="gb10.cluster.vllm_build_info", module_args=given, task_vars=variables)
    return result, [shown.args[0] for shown in display().display.call_args_list], clock.now - 1000


def test_waiting_shows_a_line_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [progress(line=f"[{number}/40]") for number in range(1, 31)]
    result, shown, seconds = waited(monkeypatch, [*answers, progress("finished", "[40/40]")])
    assert (result, seconds) == ({"changed": False, "line": "[40/40]"}, 130)
    assert shown == ["  spark1: [1/40]", "  spark1: [17/40]", "  spark1: [29/40]"]


FIX = "Fix: see /store/build.log on spark1, then run again. Finished objects are reused; the runtime is unchanged."


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            [progress(), progress("failed", reason="the disk is full")],
            f"The build of vLLM on spark1 ended: the disk is full\n{FIX}",
        ),
        (
            [progress("none", reason="the unit has ended")],
            f"The build of vLLM on spark1 ended: the unit has ended\n{FIX}",
        ),
        ([progress(), {"failed": True, "msg": "no such thing"}], "spark1: no such thing"),
    ],
)
def test_what_ends_the_wait(monkeypatch: pytest.MonkeyPatch, answers: list[Any], message: str) -> None:
    assert waited(monkeypatch, answers)[0] == {"failed": True, "msg": message}


def test_only_a_host_that_does_not_come_back_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = AnsibleConnectionFailure("no  route\n")
    result, _shown, seconds = waited(monkeypatch, [progress(), lost])
    assert (result["failed"], 300 < seconds < 320) == (True, True)
    assert result["msg"].startswith("spark1 is no longer reachable: no route. The build continues.")
    # A restart of SSH.
    restarts = [progress(), *[lost] * 50, progress(), *[lost] * 50, progress("finished")]
    assert waited(monkeypatch, restarts)[0]["line"] == "[1/5]"


def test_the_wait_documents_its_options() -> None:
    text = read("plugins/action/vllm_build_wait.py")
    assert sorted(load_yaml(wait_module.DOCUMENTATION)["options"]) == sorted(re.findall(r'"(\w+)": \{"type"', text))


# --- the digests of files ---


def test_the_digests_of_patches(tmp_path: Path) -> None:
    lookup = object.__new__(file_digests.LookupModule)
    lookup.set_options = lambda **_given: None
    lookup.get_option = {"inventory": str(tmp_path)}.get
    (tmp_path / "a.patch").write_bytes(b"a")
    digest = hashlib.sha256(b"a").hexdigest()
    paths = ["b.patch", "a.patch", f"{tmp_path}/a.patch", str(tmp_path), "~/x.patch"]
    assert lookup.run(paths) == [
        {"path": f"{tmp_path}/b.patch", "sha256": ""},
        *[{"path": f"{tmp_path}/a.patch", "sha256": digest}] * 2,
        {"path": str(tmp_path), "sha256": ""},
        {"path": str(Path("~/x.patch").expanduser()), "sha256": ""},
    ]
    assert lookup.run([]) == []
