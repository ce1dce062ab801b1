"""The module and the action vllm_build, as on a head and a worker."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from built_wheels import WHEEL, packed_wheel, write_wheel
from cluster_nodes import lock_of
from decisions import decide
from repository import load_yaml, read
from run_module import program, run_module
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.lookup import file_digests
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_build, io_store, requirements
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import GIB, Host
from ansible_collections.gb10.cluster.plugins.modules import vllm_build as build_module
from ansible_collections.gb10.cluster.plugins.plugin_utils import polling
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

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
SYSTEMCTL = 'case "$1" in show) cat {0}/unit 2>/dev/null;; stop) rm -f {0}/unit;; esac; true'
SYSTEMD_RUN = """\
for word in "$@"; do printf '%s\\n' "$word"; done > {0}/started
printf 'ActiveState=active\\nDescription=Build of vLLM %s\\n' "$(sed -n 's/^--description=Build of vLLM //p' {0}/started)" > {0}/unit"""
HOST = Host(20, 100 * GIB, 500 * GIB, frozenset({"g++", "git", "ccache"}), headers=True, serving=(), compiler="13.3.0")


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a host with a source, a CUDA toolkit and systemd, and return its folder."""
    for folder in ("source", "store", "cuda"):
        (tmp_path / folder).mkdir()
    (tmp_path / "source" / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (tmp_path / "source" / "pyproject.toml").write_text('requires = ["torch == 2.14.0"]\n', encoding="utf-8")
    program(tmp_path / "cuda" / "bin", "nvcc", NVCC)
    program(tmp_path / "tools", "g++", "echo 13.3.0")
    program(tmp_path / "tools", "systemctl", SYSTEMCTL.format(tmp_path))
    program(tmp_path / "tools", "systemd-run", SYSTEMD_RUN.format(tmp_path))
    monkeypatch.setattr(io_build, "STATE", str(tmp_path / "state"))
    return tmp_path


def build(head: Path, check: bool = False, host: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Run the module on a host whose resources do not depend on the test's; None leaves an option out."""
    arguments = {
        "store": str(head / "store"),
        "name": NAME,
        "capabilities": ["12.1"],
        "torch": "2.14.0",
        "cuda": "13",
        "source": str(head / "source"),
        "identity": "vllm.git commit 73cf",
        "folder": "/opt/gb10/build/environment",
        "cuda_home": str(head / "cuda"),
        **changes,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io_build, "host", lambda _run, units: replace(HOST, **(host or {})) if units == [] else None)
        return run_module("vllm_build", given, head / "tools", check)


def started(head: Path) -> list[str]:
    """Return the words of the last systemd-run."""
    return (head / "started").read_text(encoding="utf-8").splitlines() if (head / "started").exists() else []


def ended(head: Path, active: str = "active", sub: str = "exited", result: str = "success") -> None:
    text = f"ActiveState={active}\nSubState={sub}\nResult={result}\nDescription=Build of vLLM {NAME}\n"
    (head / "unit").write_text(text, encoding="utf-8")


def test_a_build_from_its_start_to_its_wheel(head: Path) -> None:
    answer, words = build(head, patches=[]), started(head)
    assert (answer["changed"], answer["state"], answer["stamp"]) == (True, "running", None)
    assert words[:2] == ["--unit=gb10-vllm-build.service", f"--description=Build of vLLM {NAME}"]
    variables = {"--setenv=TORCH_CUDA_ARCH_LIST=12.1a", f"--setenv=CUDA_HOME={head}/cuda", "--setenv=MAX_JOBS=19"}
    assert {f"cp -a {head}/store/tree work", *variables} <= set(words)
    assert "12.0;12.1" in (head / "store" / "tree" / "CMakeLists.txt").read_text(encoding="utf-8")
    # Its own compilers may use the memory that a start requires.
    (head / "started").unlink()
    (head / "store" / "build.log").write_text("[1/5] Building x\n[2/5] Building y\n\n", encoding="utf-8")
    for wait in (False, True):
        again = build(head, host={"memory": 0}, wait=wait)
        assert (again["changed"], again["line"], started(head)) == (False, "[2/5] Building y", [])
    assert f"no other build than {OTHER}" in build(head, name=OTHER)["msg"]
    ended(head)
    write_wheel(head / "state" / "dist" / WHEEL, "121a")
    # A run that was interrupted continues with the wait.
    assert build(head, host={"memory": 0})["state"] == "running"
    finished = build(head, wait=True, patches=["/x/fix.patch"])
    assert (finished["changed"], finished["state"], (head / "unit").exists()) == (True, "ready", False)
    expected = {
        "name": NAME,
        "version": "0.33.0+gb10.01234567",
        "source": "vllm.git commit 73cf",
        "patches": ["fix.patch"],
        "architectures": "12.1a",
        "torch": "2.14.0",
        "cuda": "13.0.88",
        "compiler": "13.3.0",
    }
    assert expected.items() <= finished["stamp"].items()
    stored = build(head, host={"memory": 0, "disk": 0})
    assert (stored["changed"], stored["state"], stored["stamp"]) == (False, "ready", finished["stamp"])


@pytest.mark.parametrize(("check", "source"), [(True, "/source"), (True, None), (False, None)])
def test_check_mode_and_a_question_without_a_source_start_nothing(head: Path, check: bool, source: str | None) -> None:
    """The role asks for the requirements before it downloads the source."""
    answer = build(head, check, source=source and f"{head}{source}")
    assert (answer["changed"], started(head), list((head / "store").iterdir())) == (source is not None, [], [])


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
        ({"source": "/nonexistent"}, {}, "/nonexistent has no CMakeLists.txt of vLLM"),
        ({"torch": "2.13.0"}, {}, "this source requires torch 2.14.0"),
        ({"environment": {"MAX_JOBS": 3}}, {}, "vllm_build_environment: MAX_JOBS"),
        ({}, {"disk": 0}, "are free in /var/lib/gb10-vllm-build"),
        ({}, {"compiler": "12.2.0"}, "g++ is release 12"),
        ({"commit": "0" * 40}, {}, "git failed in "),
        ({"patches": ["/nonexistent.patch"]}, {}, "vllm_build_patches[0]: nonexistent.patch does not apply"),
    ],
)
def test_what_refuses_a_build(head: Path, changes: dict[str, Any], host: dict[str, Any], found: str) -> None:
    assert found in build(head, host=host, **changes)["msg"]
    assert started(head) == []


def test_a_patch_may_change_the_required_compiler(head: Path) -> None:
    patch, old = head / "gcc.patch", CMAKE.splitlines()[2]
    text = f"--- a/CMakeLists.txt\n+++ b/CMakeLists.txt\n@@ -3 +3 @@\n-{old}\n+{old.replace('13', '12')}\n"
    patch.write_text(text, encoding="utf-8")
    assert build(head, patches=[str(patch)], host={"compiler": "12.2.0"})["changed"] is True


def test_a_build_for_cpus(head: Path) -> None:
    answer = build(head, device="cpu", capabilities=[], cuda="", cuda_home=None)
    assert answer["changed"] is True
    assert (head / "store" / "tree" / "CMakeLists.txt").read_text(encoding="utf-8") == CMAKE
    assert not any("CUDA_HOME" in word for word in started(head))


@pytest.mark.parametrize(
    ("unit", "reason"),
    [
        (("failed", "failed", "exit-code"), "the build failed\nfatal: the disk is full"),
        (("failed", "failed", "timeout"), "it ran longer than vllm_build_timeout"),
        (("inactive", "dead"), "its unit is gone"),
    ],
)
def test_a_failed_build_says_why_and_starts_again(head: Path, unit: tuple[str, ...], reason: str) -> None:
    (head / "store" / "build.log").write_text("fatal: the disk is full\nend\n", encoding="utf-8")
    ended(head, *unit)
    message = build(head, wait=True)["msg"]
    assert f"the build of vLLM ended: {reason}" in message and "the runtime is unchanged" in message
    assert build(head)["changed"] is True and started(head)
    assert (head / "store" / "build.log.1").exists()


# --- a wheel of another host ---


def received(head: Path, check: bool = False, stamp: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Run the module with a file that another host sent."""
    path = packed_wheel(head / "transfer" / WHEEL, "121a")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    sent = {"name": NAME, "wheel": WHEEL, "sha256": sha256, "coverage": ["x"], **(stamp or {})}
    return build(head, check, **{"stamp": sent, "file": str(path), "source": None, "folder": None, **changes})


def test_a_wheel_is_received_once(head: Path) -> None:
    asked, checked = received(head, stamp=None, file=None), received(head, check=True)
    assert asked["failed"] and (checked["changed"], checked["stamp"]) == (True, None)
    assert build(head, folder=None)["state"] == "missing"
    first, again = received(head), received(head)
    assert (first["changed"], again["changed"], again["stamp"]) == (True, False, first["stamp"])
    assert (first["diff"], again["diff"]["before"]) == ({"before": "", "after": f"{NAME}\n"}, f"{NAME}\n")
    assert io_store.stamps(str(head / "store")) == [first["stamp"]]
    # The head has another build of this name.
    assert received(head, stamp={"coverage": ["y"]})["stamp"]["coverage"] == ["y"]
    other = received(head, name=OTHER, stamp={"name": OTHER}, keep=1)
    assert (other["removed"], first["removed"]) == ([NAME], [])


@pytest.mark.parametrize(
    ("stamp", "changes", "found"),
    [
        ({"sha256": "0" * 64}, {}, f"Expected: {'0' * 64}"),
        ({"sha256": None}, {}, "stamp: a value is missing or has another form"),
        ({"wheel": f"../../../{WHEEL}"}, {}, "stamp: a value is missing or has another form"),
        ({"name": OTHER}, {}, f"Expected: name, wheel and sha256 of {NAME}"),
        ({}, {"file": "/nonexistent/absent.whl"}, "absent.whl"),
    ],
)
def test_another_file_than_that_of_the_stamp_is_refused(
    head: Path, stamp: dict[str, Any], changes: dict[str, Any], found: str
) -> None:
    assert found in received(head, stamp=stamp, **changes)["msg"]
    assert io_store.stamps(str(head / "store")) == []


# --- the action ---

LOCK = lock_of("vllm==0.33.0", "torch==2.14.0", "uv==0.10.0")
TEXT = requirements.requirements(LOCK, read("roles/vllm_build/files/tools.lock"))
FOLDER = f"/opt/gb10/build/environment-{hashlib.sha256(TEXT.encode()).hexdigest()[:12]}"
SPECIFIED = load_yaml(read("roles/vllm_build/meta/argument_specs.yml"))["argument_specs"]["main"]["options"]
SETTINGS = {name: option.get("default") for name, option in SPECIFIED.items() if not option.get("required")}
COMMIT = "7" * 40
BUILD = {"state": "missing", "name": NAME, "capabilities": ["12.1"], "torch": "2.14.0", "driver": "13.0"}


def act(
    arguments: dict[str, Any], answers: list[dict[str, Any]], identity: str = f"commit {COMMIT}", **settings: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the action's result and the module's arguments. Names of settings are without the prefix."""
    given = SETTINGS | {f"vllm_build_{name}": value for name, value in settings.items()}
    plan = {"root": "/opt/gb10", "build": {**BUILD, "identity": identity}, "ranks_unit": "gb10-ray.service"}
    calls: list[dict[str, Any]] = []

    def module(_self: Any, arguments: dict[str, Any], _variables: Any) -> dict[str, Any]:
        calls.append(arguments)
        return answers[min(len(calls), len(answers)) - 1]

    variables = {"gb10_inputs": {"settings": given}, "inventory_hostname": "spark1"}
    with mock.patch.object(Decision, "file", lambda *_arguments: LOCK), mock.patch.object(Decision, "module", module):
        answer, _calls = decide("vllm_build", {"planned": True, **arguments}, fact(plan), variables=variables)
    return answer, calls


def test_a_build_of_the_plan_and_the_locks() -> None:
    dependencies = [
        {"variable": "A_DIR", "archive": "a.tar", "sha256": "a" * 64},
        {"variable": "B_DIR", "archive": "b.tar", "sha256": "b" * 64, "folder": "below"},
    ]
    checked = {"state": "missing"}
    answer, (given,) = act(
        {}, [checked], patches=["~/p/a.patch"], dependencies=dependencies, environment={"CMAKE_ARGS": "-x"}, jobs=2
    )
    assert answer == {**checked, "folder": FOLDER, "requirements": TEXT}
    expected = {
        **{name: BUILD[name] for name in ("name", "capabilities", "torch", "driver")},
        "store": "/opt/gb10/build",
        "units": ["gb10-ray.service", "gb10-vllm.service"],
        "identity": f"vllm.git commit {COMMIT}",
        "commit": COMMIT,
        "patches": ["/opt/gb10/build/patches/a.patch"],
        "folder": FOLDER,
        "environment": {
            "CMAKE_ARGS": "-x",
            "A_DIR": "/opt/gb10/build/dependencies/aaaaaaaaaaaa",
            "B_DIR": "/opt/gb10/build/dependencies/bbbbbbbbbbbb/below",
        },
        "jobs": 2,
        "keep": 3,
    }
    assert expected.items() <= given.items()
    _answer, (of_archive,) = act({}, [checked], f"sha256 {'e' * 64}", source="/srv/vllm-0.33.0.tar.gz", cuda_home="/c")
    assert (of_archive["commit"], of_archive["cuda_home"]) == ("", "/c")
    assert of_archive["identity"] == f"vllm-0.33.0.tar.gz sha256 {'e' * 64}"
    unplanned = {"planned", "file", "stamp", "source", "wait"}
    assert of_archive.keys() | unplanned == load_yaml(build_module.DOCUMENTATION)["options"].keys()


def test_the_action_waits_and_shows_a_line_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, display = mock.Mock(), mock.Mock()
    clock.monotonic.side_effect = lambda: 5.0 * clock.sleep.call_count
    monkeypatch.setattr(polling, "time", clock)
    monkeypatch.setattr(polling, "Display", display)
    running = [{"state": "running", "changed": False, "line": f"[{number}/40]"} for number in range(31)]
    answer, calls = act({"source": "/src"}, [*running, {"state": "ready", "stamp": {"name": NAME}}])
    assert (answer["stamp"], calls[0]["source"], "wait" in calls[0]) == ({"name": NAME}, "/src", False)
    assert [call["wait"] for call in calls[1:]] == [True] * 31
    shown = [each.args[0] for each in display().display.call_args_list]
    assert [line.rpartition(" ")[2] for line in shown] == ["[1/40]", "[13/40]", "[25/40]"]
    failed = {"failed": True, "msg": "the disk is full"}
    assert act({"source": "/src"}, [running[0], failed])[0]["msg"] == "the disk is full"


def test_without_a_build_of_the_plan_the_module_runs() -> None:
    given = {"store": "/b", "name": "x"}
    assert decide("vllm_build", given, {}, result={"stamp": {}}) == ({"stamp": {}}, [given])


def test_the_digests_of_patches(tmp_path: Path) -> None:
    lookup = object.__new__(file_digests.LookupModule)
    lookup.set_options = lambda **_given: None
    lookup.get_option = {"inventory": str(tmp_path)}.get
    (tmp_path / "a.patch").write_bytes(b"a")
    assert lookup.run(["b.patch", "a.patch", str(tmp_path), "~/x.patch"]) == [
        {"path": f"{tmp_path}/b.patch", "sha256": ""},
        {"path": f"{tmp_path}/a.patch", "sha256": hashlib.sha256(b"a").hexdigest()},
        {"path": str(tmp_path), "sha256": ""},
        {"path": str(Path("~/x.patch").expanduser()), "sha256": ""},
    ]
    assert lookup.run([]) == []
