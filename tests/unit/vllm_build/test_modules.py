"""The modules vllm_build, vllm_build_info and vllm_build_wheel, and the wait for a build, as on a head and a worker."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.testing import patch_module_args
from built_wheels import WHEEL, write_wheel
from repository import load_yaml, read
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.action import vllm_build_wait
from ansible_collections.gb10.cluster.plugins.lookup import file_digests
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, wheel
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import GIB, Host
from ansible_collections.gb10.cluster.plugins.modules import vllm_build as build_module
from ansible_collections.gb10.cluster.plugins.modules import vllm_build_info as info_module
from ansible_collections.gb10.cluster.plugins.modules import vllm_build_wait as wait_module
from ansible_collections.gb10.cluster.plugins.modules import vllm_build_wheel as wheel_module
from ansible_collections.gb10.cluster.plugins.plugin_utils import polling

NAME, OTHER = "0.33.0-0123456789ab", "0.33.0-ba9876543210"
CMAKE = 'project(vllm_extensions LANGUAGES CXX)\nset(CUDA_SUPPORTED_ARCHS "9.0;12.0")\n'
NVCC = (
    "[ \"$1\" = --version ] && echo 'Cuda compilation tools, release 13.0, V13.0.88' || printf "
    "'sm_90\\nsm_110\\nsm_121\\n'"
)
#: A systemctl whose unit is in the file `unit`, and a systemd-run that records its command there.
SYSTEMCTL = (
    'case "$1" in show) cat {0}/unit 2>/dev/null;; is-active) grep -qx "$2" {0}/serving 2>/dev/null && echo '
    "active;; esac; true"
)
SYSTEMD_RUN = """\
for word in "$@"; do printf '%s\\n' "$word"; done > {0}/started
printf 'ActiveState=active\\nDescription=Build of vLLM %s\\n' "$(sed -n 's/^--name=//p' {0}/started)" > {0}/unit"""
HOST = Host(20, 100 * GIB, 500 * GIB, frozenset({"g++", "git", "ccache"}), headers=True, serving=(), compiler="13.3.0")


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a host with a source, a CUDA toolkit and systemd, and return its folder."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (tmp_path / "source" / "pyproject.toml").write_text('requires = ["torch == 2.14.0"]\n', encoding="utf-8")
    (tmp_path / "store").mkdir()
    (tmp_path / "cuda").mkdir()
    program(tmp_path / "cuda" / "bin", "nvcc", NVCC)
    tools = program(tmp_path / "tools", "systemctl", SYSTEMCTL.format(tmp_path))
    program(tools, "systemd-run", SYSTEMD_RUN.format(tmp_path))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(io_build, "STATE", str(tmp_path / "state"))
    return tmp_path


def given(head: Path, **changes: Any) -> dict[str, Any]:
    """Return the arguments of vllm_build; None leaves one out."""
    arguments = {
        "store": str(head / "store"),
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
    return {key: value for key, value in {**arguments, **changes}.items() if value is not None}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a module in this process, on a host whose resources do not depend on the test's."""

    def run(main: Callable[[], None], arguments: dict[str, Any], check: bool = False, **host: Any) -> dict[str, Any]:
        monkeypatch.setattr(
            io_build,
            "host",
            lambda _run, units: replace(HOST, **{"serving": (), **host}) if units is not None else HOST,
        )
        with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return run


def started(head: Path) -> list[str]:
    """Return the words of the last systemd-run."""
    return (head / "started").read_text(encoding="utf-8").splitlines() if (head / "started").exists() else []


def in_store(head: Path) -> list[str]:
    return sorted(path.name for path in (head / "store").iterdir())


# --- vllm_build ---


def test_a_build_is_started(head: Path, module: Any) -> None:
    answer = module(build_module.main, given(head))
    assert (answer["changed"], answer["jobs"], answer["log"]) == (True, 19, f"{head}/store/build.log")
    words = started(head)
    assert words[:2] == ["--unit=gb10-vllm-build.service", f"--description=Build of vLLM {NAME}"]
    assert words[-6:-2] == [
        "/usr/bin/python3",
        "/opt/gb10/build/io_run.py",
        f"--name={NAME}",
        f"--source={head}/store/tree",
    ]
    assert words[-2:] == ["--state=/var/lib/gb10-vllm-build", "--python=/opt/gb10/build/environment/bin/python"]
    assert {"--setenv=TORCH_CUDA_ARCH_LIST=12.1a", f"--setenv=CUDA_HOME={head}/cuda", "--setenv=MAX_JOBS=19"} <= set(
        words
    )
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


def test_a_running_build_continues(head: Path, module: Any) -> None:
    first = module(build_module.main, given(head))
    (head / "started").unlink()
    # Its own compilers may use the memory that a start requires.
    again = module(build_module.main, given(head), memory=0)
    assert (again["changed"], started(head)) == (False, [])
    assert again["stamp"].keys() == first["stamp"].keys()
    other = module(build_module.main, given(head, name=OTHER))
    assert f"no other build than {OTHER}" in other["msg"]


def test_after_an_interruption_the_same_source_is_used(head: Path, module: Any) -> None:
    module(build_module.main, given(head))
    (head / "unit").unlink()
    (head / "started").unlink()
    (head / "store" / "tree" / "mark").touch()
    assert module(build_module.main, given(head))["changed"] is True
    assert started(head)
    assert (head / "store" / "tree" / "mark").exists()


def test_a_build_in_the_store_is_not_repeated(head: Path, module: Any) -> None:
    received(head)
    answer = module(build_module.main, given(head), memory=0, disk=0)
    assert (answer["changed"], started(head)) == (False, [])


@pytest.mark.parametrize("source", [True, False], ids=["with a source", "before it is fetched"])
def test_check_mode_starts_nothing(head: Path, module: Any, source: bool) -> None:
    arguments = given(head) if source else given(head, source=None)
    answer = module(build_module.main, arguments, check=True)
    assert (answer["changed"], started(head), in_store(head)) == (source, [], [])


def test_check_mode_installs_no_packages(head: Path, module: Any) -> None:
    host: dict[str, Any] = {"programs": frozenset(), "headers": False}
    assert not module(build_module.main, given(head, source=None), check=True, **host).get("failed")
    for check, count in ((False, 3), (True, 1)):
        answer = module(build_module.main, given(head, source=None), check=check, disk=0, **host)
        assert answer["msg"].startswith(f"{count} problem")


def test_the_requirements_alone(head: Path, module: Any) -> None:
    """The role asks before it downloads the source."""
    answer = module(build_module.main, given(head, source=None))
    assert (answer["changed"], answer["jobs"], started(head), in_store(head)) == (False, 19, [], [])
    assert "B are free" in module(build_module.main, given(head, source=None), memory=0)["msg"]


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
        ({"commit": "0" * 40}, {}, "git failed in "),
        ({"patches": ["/nonexistent.patch"]}, {}, "vllm_build_patches[0]: nonexistent.patch does not apply"),
    ],
)
def test_what_refuses_a_build(
    head: Path, module: Any, changes: dict[str, Any], host: dict[str, Any], found: str
) -> None:
    answer = module(build_module.main, given(head, **changes), **host)
    assert found in answer["msg"]
    assert started(head) == []
    assert "tree" not in in_store(head)


def test_a_patch_may_change_the_required_compiler(head: Path, module: Any) -> None:
    lists = head / "source" / "CMakeLists.txt"
    lists.write_text(f'{CMAKE}message(FATAL_ERROR "GCC >= 13 is required to build vLLM with CUDA")\n', encoding="utf-8")
    assert "g++ is release 12" in module(build_module.main, given(head), compiler="12.2.0")["msg"]
    patch = head / "gcc.patch"
    lines = lists.read_text(encoding="utf-8").splitlines()
    changed = lines[2].replace("13", "12")
    patch.write_text(
        f"--- a/CMakeLists.txt\n+++ b/CMakeLists.txt\n@@ -2,2 +2,2 @@\n {lines[1]}\n-{lines[2]}\n+{changed}\n",
        encoding="utf-8",
    )
    assert module(build_module.main, given(head, patches=[str(patch)]), compiler="12.2.0")["changed"] is True


def test_a_moved_tag_is_said_with_the_other_problems(head: Path, module: Any) -> None:
    git = ["git", "-C", str(head / "source"), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    answer = module(build_module.main, given(head, commit="0" * 40), disk=0)
    assert answer["msg"].startswith("2 problems found")
    assert f"vllm_build_commit: {head}/source is commit {commit}. Expected: {'0' * 40}" in answer["msg"]
    assert module(build_module.main, given(head, commit=commit))["changed"] is True


def test_the_settings_reach_the_unit(head: Path, module: Any) -> None:
    settings = {
        "jobs": 3,
        "nvcc_threads": 2,
        "ccache": False,
        "network": False,
        "timeout": 60,
        "environment": {"VERBOSE": 1},
    }
    arguments = given(head, while_serving=True, **settings)
    module(build_module.main, arguments, programs=frozenset({"g++", "git"}), serving=("gb10-vllm.service",))
    expected = {"MAX_JOBS=3", "NVCC_THREADS=2", "CCACHE_DISABLE=1", "VERBOSE=1"}
    assert {f"--setenv={value}" for value in expected} | {
        "--property=PrivateNetwork=yes",
        "--property=RuntimeMaxSec=60",
    } <= set(started(head))


def test_a_build_for_cpus(head: Path, module: Any) -> None:
    changes = {"device": "cpu", "capabilities": [], "architectures": "", "cuda": "", "cuda_home": None}
    answer = module(build_module.main, given(head, **changes))
    assert (answer["changed"], answer["stamp"]["cuda"]) == (True, "")
    assert (head / "store" / "tree" / "CMakeLists.txt").read_text(encoding="utf-8") == CMAKE
    assert not any("CUDA_HOME" in word for word in started(head))


# --- vllm_build_wheel, with a wheel of another host ---


def stamp_of(path: Path, name: str = NAME, **changes: Any) -> dict[str, Any]:
    return {"name": name, "wheel": WHEEL, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "jobs": 7, **changes}


def received(head: Path, name: str = NAME, check: bool = False, **changes: Any) -> dict[str, Any]:
    """Run vllm_build_wheel with a file that another host sent; None leaves an argument out."""
    path = write_wheel(head / "transfer" / WHEEL, "121a")
    arguments = {
        "store": str(head / "store"),
        "name": name,
        "stamp": stamp_of(path, name),
        "file": str(path),
        **changes,
    }
    return run_module(
        "vllm_build_wheel", {key: value for key, value in arguments.items() if value is not None}, check=check
    )


def builds(head: Path) -> list[str]:
    return [
        stamp["name"]
        for stamp in run_module("vllm_build_info", {"store": str(head / "store")}, head / "tools")["builds"]
    ]


def test_a_wheel_is_received_once(head: Path) -> None:
    asked = received(head, stamp=None, file=None)
    assert (asked["changed"], asked["stamp"]) == (False, None)
    checked = received(head, check=True)
    assert (checked["changed"], checked["stamp"], in_store(head)) == (True, None, [])
    first = received(head)
    assert (first["changed"], first["stamp"]) == (True, stamp_of(head / "transfer" / WHEEL))
    assert first["diff"] == {"before": "", "after": f"{NAME}\n"}
    for changes in ({}, {"stamp": None, "file": None}):
        again = received(head, **changes)
        assert (again["changed"], again["stamp"]) == (False, first["stamp"])
    assert builds(head) == [NAME]
    assert sorted(path.name for path in (head / "store" / "wheels" / NAME).iterdir()) == ["stamp.json", WHEEL]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"sha256": "0" * 64}, f"Expected: {'0' * 64}"),
        ({"sha256": None}, "stamp: a value is missing or has another form"),
        ({"wheel": f"../../../{WHEEL}"}, "stamp: a value is missing or has another form"),
        ({"name": OTHER}, f"stamp: it is that of {OTHER}"),
    ],
)
def test_another_file_than_that_of_the_stamp_is_refused(head: Path, changes: dict[str, Any], found: str) -> None:
    path = write_wheel(head / "transfer" / WHEEL, "121a")
    assert found in received(head, stamp=stamp_of(path, **changes))["msg"]
    assert builds(head) == []
    assert received(head)["changed"] is True


def test_a_missing_file_is_an_error(head: Path) -> None:
    path = write_wheel(head / "transfer" / WHEEL, "121a")
    answer = received(head, file=str(head / "absent.whl"), stamp=stamp_of(path))
    assert (answer["failed"], "absent.whl" in answer["msg"]) == (True, True)
    assert "capabilities[0]: 'x'" in received(head, capabilities=["x"])["msg"]


def test_the_oldest_builds_are_removed(head: Path) -> None:
    names = [f"0.33.0-{number}" for number in range(4)]
    for age, name in enumerate(names[:3]):
        assert received(head, name)["removed"] == []
        os.utime(head / "store" / "wheels" / name / "stamp.json", (age, age))
    checked = received(head, names[3], check=True, keep=2)
    # It is not there yet, so it is unknown what it replaces.
    assert (checked["removed"], len(builds(head))) == ([], 3)
    last = received(head, names[3], keep=2)
    assert (last["removed"], builds(head)) == ([names[1], names[0]], [names[3], names[2]])
    # The one in use stays, however old it is.
    os.utime(head / "store" / "wheels" / names[2] / "stamp.json", (1, 1))
    asked = received(head, names[2], check=True, keep=1, stamp=None, file=None)
    assert (asked["changed"], asked["removed"], len(builds(head))) == (True, [names[3]], 2)
    assert received(head, names[2], keep=1, stamp=None, file=None)["removed"] == [names[3]]
    assert builds(head) == [names[2]]


def test_builds_in_use_are_kept(head: Path) -> None:
    names = [f"0.33.0-{number}" for number in range(4)]
    for age, name in enumerate(names):
        received(head, name, keep=9)
        os.utime(head / "store" / "wheels" / name / "stamp.json", (age, age))
    # A wheel of another build has another hash.
    stamp = head / "store" / "wheels" / names[0] / "stamp.json"
    stamp.write_text(
        json.dumps({**json.loads(stamp.read_text(encoding="utf-8")), "sha256": "5" * 64}), encoding="utf-8"
    )
    os.utime(stamp, (0, 0))
    (head / "current").mkdir()
    (head / "current" / ".complete").write_text(f"{'1' * 64}\n{'5' * 64}\n", encoding="utf-8")
    given = {"keep": 1, "stamp": None, "file": None, "check": True}
    assert received(head, names[3], **given)["removed"] == [names[2], names[1], names[0]]
    assert received(head, names[3], used=[names[1]], runtime=str(head / "current"), **given)["removed"] == [names[2]]
    # Without an environment, none has a wheel.
    assert received(head, names[3], runtime=str(head / "absent"), **given)["removed"] == [names[2], names[1], names[0]]


def finish(head: Path, *architectures: str) -> None:
    """Write what the unit's program leaves."""
    write_wheel(head / "state" / "dist" / WHEEL, *architectures)
    content = {"name": NAME, "state": "finished", "seconds": 12.5, "wheel": WHEEL}
    (head / "state" / "status.json").write_text(json.dumps(content), encoding="utf-8")


def test_the_wheel_of_a_finished_build(head: Path, module: Any) -> None:
    inputs = {"jobs": 20, "source": "vllm.git commit 73cf"}
    arguments = {"store": str(head / "store"), "name": NAME, "stamp": inputs, "capabilities": ["12.1"]}
    assert "the build has left no wheel" in module(wheel_module.main, arguments)["msg"]
    finish(head, "121a")
    assert module(wheel_module.main, arguments, check=True)["changed"] is True
    assert builds(head) == []
    answer = module(wheel_module.main, arguments)
    assert (answer["changed"], answer["stamp"]["jobs"], answer["stamp"]["coverage"]) == (
        True,
        20,
        ["12.1: own code in 1 of 1 extensions"],
    )
    assert answer["lines"] == wheel.text(answer["stamp"])
    assert answer["lines"][0] == f"{WHEEL}, from vllm.git commit 73cf"
    again = module(wheel_module.main, arguments)
    assert (again["changed"], again["lines"]) == (False, [])
    # Another host gets the same stamp and file.
    stamp, folder = answer["stamp"], head / "store" / "wheels" / NAME
    other = run_module(
        "vllm_build_wheel", {"store": str(head / "other"), "name": NAME, "stamp": stamp, "file": str(folder / WHEEL)}
    )
    assert other["stamp"] == stamp


def test_a_wheel_without_code_for_a_gpu_is_refused(head: Path, module: Any) -> None:
    finish(head, "121a")
    arguments = {"store": str(head / "store"), "name": NAME, "stamp": {}, "capabilities": ["12.1", "11.0"]}
    assert "vllm/_C, which each model needs, has no code for 11.0" in module(wheel_module.main, arguments)["msg"]
    assert builds(head) == []


# --- vllm_build_info ---


def info(head: Path, **arguments: Any) -> dict[str, Any]:
    answer = run_module("vllm_build_info", {"store": str(head / "store"), **arguments}, head / "tools")
    assert not answer.get("failed"), answer
    assert answer["changed"] is False
    return answer


def test_an_empty_host(head: Path) -> None:
    found = info(head)
    assert (found["builds"], found["capability"], found["published"], found["progress"]) == ([], "", None, {})
    assert info(head, runtime=str(head / "absent"))["published"] is None


def test_the_published_wheel(head: Path, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = head / "runtime"
    site = runtime / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    with zipfile.ZipFile(write_wheel(head / WHEEL, "120f", "90a")) as archive:
        archive.extractall(site)

    def asked(capability: str | None) -> tuple[str, Any]:
        monkeypatch.setattr(
            info_module.node_io_facts, "gpu", lambda _run: {"gpus": [{"capability": None}, {"capability": capability}]}
        )
        answer = module(info_module.main, {"store": str(head / "store"), "runtime": str(runtime)})
        return answer["capability"], answer["published"]

    # An interrupted installation is no published wheel.
    assert asked("12.1") == ("12.1", None)
    (runtime / ".complete").touch()
    assert asked("12.1") == ("12.1", {"vllm/_C": {"native": 0, "same_major": 1, "ptx": 0, "none": 1}})
    assert asked(None) == ("", {})


def test_the_progress_of_a_build(head: Path) -> None:
    assert info(head, name=NAME)["progress"]["state"] == "none"
    (head / "unit").write_text("ActiveState=active\n", encoding="utf-8")
    (head / "store" / "build.log").write_text("[126/504] Building CUDA object\n", encoding="utf-8")
    assert info(head, name=NAME)["progress"] == {
        "state": "running",
        "reason": "",
        "line": "[126/504], 0 s, about 0 s left",
    }
    (head / "unit").write_text("ActiveState=failed\nResult=oom-kill\n", encoding="utf-8")
    assert "memory limit" in info(head, name=NAME)["progress"]["reason"]


def test_the_builds_of_a_host(head: Path) -> None:
    received(head)
    stamp = stamp_of(head / "transfer" / WHEEL)
    assert info(head)["builds"] == [stamp]
    (head / "store" / "wheels" / NAME / "stamp.json").write_text("{", encoding="utf-8")
    assert "is not JSON" in run_module("vllm_build_info", {"store": str(head / "store")})["msg"]


# --- the wait ---


class Clock:
    """Replaces the module time: only sleep() advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def progress(state: str = "running", line: str = "[1/5]", reason: str = "") -> dict[str, Any]:
    return {"progress": {"state": state, "line": line, "reason": reason}}


def waited(monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> tuple[dict[str, Any], list[str], float]:
    """Return the action's result, its output, and its seconds; the last answer is repeated."""
    clock, shown, left = Clock(), [], list(answers)
    action = object.__new__(vllm_build_wait.ActionModule)

    def answer(module_name: str, module_args: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        assert task_vars["inventory_hostname"] == "spark1"
        assert (module_name, module_args) == ("gb10.cluster.vllm_build_info", {"store": "/store", "name": NAME})
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return dict(found)

    class Shown:
        def display(self, text: str) -> None:
            shown.append(text)

    def validated(argument_spec: Mapping[str, Any]) -> tuple[None, dict[str, Any]]:
        return None, dict(zip(argument_spec, ("/store", NAME), strict=True))

    monkeypatch.setattr(polling, "time", clock)
    monkeypatch.setattr(polling, "Display", Shown)
    monkeypatch.setattr(vllm_build_wait.ActionBase, "run", lambda *_arguments: {})
    monkeypatch.setattr(action, "_execute_module", answer, raising=False)
    monkeypatch.setattr(action, "validate_argument_spec", validated, raising=False)
    return action.run(None, {"inventory_hostname": "spark1"}), shown, clock.now - 1000


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


def test_a_host_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _shown, seconds = waited(monkeypatch, [progress(), AnsibleConnectionFailure("no  route\n")])
    assert result["failed"] is True
    assert result["msg"].startswith("spark1 is no longer reachable: no route. The build continues.")
    assert 300 < seconds < 320


def test_a_restart_of_ssh_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = AnsibleConnectionFailure("no route")
    assert (
        waited(monkeypatch, [progress(), *[lost] * 50, progress(), *[lost] * 50, progress("finished")])[0]["line"]
        == "[1/5]"
    )


def test_the_wait_documents_its_options() -> None:
    text = read("plugins/action/vllm_build_wait.py")
    assert sorted(load_yaml(wait_module.DOCUMENTATION)["options"]) == sorted(re.findall(r'"(\w+)": \{"type"', text))


# --- the digests of files ---


def digests(*terms: Any, **options: Any) -> list[dict[str, str]]:
    lookup = object.__new__(file_digests.LookupModule)
    lookup.set_options = lambda **_given: None
    lookup.get_option = lambda name: options.get(name, "")
    found: list[dict[str, str]] = lookup.run(list(terms))
    return found


def test_the_digests_of_patches(tmp_path: Path) -> None:
    (tmp_path / "a.patch").write_bytes(b"a")
    expected = {"path": str(tmp_path / "a.patch"), "sha256": hashlib.sha256(b"a").hexdigest()}
    assert digests(str(tmp_path / "a.patch")) == digests("a.patch", inventory=str(tmp_path)) == [expected]
    assert digests("b.patch", "a.patch", inventory=str(tmp_path)) == [
        {"path": f"{tmp_path}/b.patch", "sha256": ""},
        expected,
    ]
    assert digests(str(tmp_path)) == [{"path": str(tmp_path), "sha256": ""}]
    assert digests() == []
    assert digests("~/x.patch", inventory=str(tmp_path))[0]["path"] == str(Path("~/x.patch").expanduser())
