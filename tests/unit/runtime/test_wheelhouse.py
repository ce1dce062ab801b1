"""The wheels of a lock: packed on one node, accepted by another only with the lock's hashes, and downloaded once."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_host import play
from repository import load_yaml, read
from run_module import program, run_module
from sparse_tar import add_sparse

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_wheelhouse, wheelhouse

WHEELS = {"torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl": b"torch", "uv-0.13.8-py3-none-any.whl": b"uv"}
HASHES = frozenset(hashlib.sha256(content).hexdigest() for content in WHEELS.values())


def lock(*contents: bytes) -> str:
    return "".join(
        f"p{number}==1 \\\n    --hash=sha256:{hashlib.sha256(each).hexdigest()}\n"
        for number, each in enumerate(contents)
    )


def folder_of(folder: Path, wheels: dict[str, bytes]) -> Path:
    """Return a folder with wheels, and the lock of WHEELS."""
    (folder / "wheels").mkdir(parents=True)
    (folder / "requirements.lock").write_text(lock(*WHEELS.values()), encoding="utf-8")
    for name, content in wheels.items():
        (folder / "wheels" / name).write_bytes(content)
    return folder


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "worker", {})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "wheels").iterdir()}


def test_another_node_gets_exactly_the_wheels_of_the_lock(tmp_path: Path, worker: Path) -> None:
    # Also a file that the lock does not pin, and leftovers of a killed run.
    others = {"old-1-py3-none-any.whl": b"of another lock", "uv-0.13.8-py3-none-any.whl.part": b"u"}
    head = folder_of(tmp_path / "head", WHEELS | others)
    packed = head / "offer/wheels.tar"
    first = run_module("wheelhouse", {"folder": str(head), "pack": str(packed)})
    assert first["packed_sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert (packed.stat().st_mode & 0o777, [path.name for path in packed.parent.iterdir()]) == (0o644, ["wheels.tar"])
    assert run_module("wheelhouse", {"folder": str(worker), "archive": str(packed)})["wheels"] == len(WHEELS)
    assert contents(worker) == WHEELS
    assert {path.stat().st_mode & 0o7777 for path in (worker / "wheels").iterdir()} == {0o644}


NAME, WHEEL = "uv-0.13.8-py3-none-any.whl", "is not a wheel. Expected: wheels with the hashes of the lock"
OTHER_HASH = f"{NAME} has sha256 {hashlib.sha256(b'evil').hexdigest()}, which the lock does not have"


@pytest.mark.parametrize(
    ("name", "content", "kind", "reason"),
    [
        ("../uv-1-py3-none-any.whl", b"uv", tarfile.REGTYPE, WHEEL),
        ("/etc/uv-1.whl", b"uv", tarfile.REGTYPE, WHEEL),
        ("uv.pth", b"uv", tarfile.REGTYPE, WHEEL),
        ("a/uv-1.whl", b"uv", tarfile.REGTYPE, WHEEL),
        (".whl", b"uv", tarfile.REGTYPE, WHEEL),
        ("-r.whl", b"uv", tarfile.REGTYPE, WHEEL),
        (f"{'a' * 252}.whl", b"uv", tarfile.REGTYPE, WHEEL),
        *((NAME, b"", kind, WHEEL) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE)),
        *((NAME, b"", kind, WHEEL) for kind in (tarfile.FIFOTYPE, tarfile.DIRTYPE)),
        (NAME, b"evil", tarfile.REGTYPE, OTHER_HASH),
    ],
)
def test_another_archive_is_refused_and_replaces_nothing(
    name: str, content: bytes, kind: bytes, reason: str, worker: Path, tmp_path: Path
) -> None:
    (worker / "wheels" / NAME).write_bytes(b"uv")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.size, entry.linkname = kind, len(content), "/etc/shadow"
        tar.addfile(entry, io.BytesIO(content))
    answer = run_module("wheelhouse", {"folder": str(worker), "archive": str(tmp_path / "x.tar")})
    assert answer["failed"] and reason in answer["msg"]
    assert contents(worker) == {NAME: b"uv"}


def test_a_sparse_wheel_is_refused_before_it_is_written(worker: Path, tmp_path: Path) -> None:
    """1,536 bytes wrote 1.4 GB before their hash was known."""
    add_sparse(tmp_path / "x.tar", NAME, 1 << 33)
    answer = run_module("wheelhouse", {"folder": str(worker), "archive": str(tmp_path / "x.tar")})
    assert answer["failed"] and WHEEL in answer["msg"]
    assert contents(worker) == {}


@pytest.mark.parametrize("content", [b"", b"no tar file", b"\x1f\x8b" + bytes(600)])
def test_what_is_no_archive_is_reported(content: bytes, worker: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    assert run_module("wheelhouse", {"folder": str(worker), "archive": str(tmp_path / "x.tar")})["failed"]


def test_the_entries_and_the_disk_have_limits() -> None:
    assert wheelhouse.check_entry(NAME, True, wheelhouse.MOST_WHEELS - 1) == []
    assert "more than" in wheelhouse.check_entry(NAME, True, wheelhouse.MOST_WHEELS)[0].found
    least, expected = 14 << 30, "14 GiB for the wheels and the environment"
    assert wheelhouse.check_disk("/opt/gb10", least, "cuda") == []
    assert [(each.path, each.expected) for each in wheelhouse.check_disk("/x", least - 1, "cuda")] == [
        ("disk", expected)
    ]


def test_the_folder_is_created_once_and_not_in_check_mode(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < wheelhouse.DISK_BYTES["cpu"]:
        pytest.skip("the disk has too little space")
    given = {"folder": str(tmp_path / "new/.wheels"), "device": "cpu", "lock": "uv==1\n"}
    assert run_module("wheelhouse", given, check=True)["changed"] is True
    assert not (tmp_path / "new").exists()
    assert [run_module("wheelhouse", given)["changed"] for _ in range(2)] == [True, False]
    assert (tmp_path / "new/.wheels/wheels").is_dir()
    assert (tmp_path / "new/.wheels/requirements.lock").read_text(encoding="utf-8") == "uv==1\n"


#: A python whose environments have a pip that keeps its arguments, and downloads one wheel or fails.
PYTHON = """
mkdir -p "$3/bin" && cat > "$3/bin/pip" <<'END'
#!/bin/sh
printf '%s\\n' "$TMPDIR $PIP_INDEX_URL" "$@" > "{folder}/asked"
mkdir -p "{folder}/.wheels/cache"
{pip}
END
chmod +x "$3/bin/pip"
"""
RETRYING = "WARNING: Retrying (Retry(total=0)) after connection broken by 'refused'"


@pytest.fixture
def downloaded(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Download with a pip that ends as this script does."""
    folder_of(tmp_path / ".wheels", {})

    def run(pip: str, **given: Any) -> dict[str, Any]:
        path = program(tmp_path / "bin", "python3", PYTHON.format(folder=tmp_path, pip=pip))
        return run_module("wheelhouse", {"folder": str(tmp_path / ".wheels"), "download": "python3", **given}, path)

    return run


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".wheels/*"))


def test_pip_downloads_exactly_the_lock(tmp_path: Path, downloaded: Callable[..., dict[str, Any]]) -> None:
    index = "https://index.example/simple"
    assert downloaded(f"echo uv > {tmp_path}/.wheels/wheels/{NAME}", index_url=index)["changed"]
    assert left(tmp_path) == ["requirements.lock", "wheels"]
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert asked[:2] == [f"{tmp_path}/.wheels/part {index}", "download"]
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} <= set(asked)
    assert {f"--requirement={tmp_path}/.wheels/requirements.lock", f"--dest={tmp_path}/.wheels/wheels"} <= set(asked)


@pytest.mark.parametrize(
    ("printed", "found", "kept"),
    [
        (["ERROR: Exception:", "Traceback", "ValueError: bad"], "ValueError: bad. Expected", True),
        (
            [RETRYING, "ERROR: Could not find uv==1", "ERROR: No matching"],
            "ERROR: Could not find uv==1; connection broken by 'refused'. Expected",
            True,
        ),
        ([], "pip has exit status 2. Expected", True),
        (["ERROR: [Errno 28] No space left on device"], "Fix: free disk space, and run again", False),
    ],
)
def test_a_failed_download_names_its_cause_and_keeps_finished_files(
    tmp_path: Path, downloaded: Callable[..., dict[str, Any]], printed: list[str], found: str, kept: bool
) -> None:
    lines = "".join(f'echo "{line}" >&2\n' for line in printed)
    answer = downloaded(f"{lines}exit 2")
    assert answer["failed"] and found in answer["msg"], answer
    assert left(tmp_path) == (["cache", "pip", "requirements.lock", "wheels"] if kept else [])
    assert not kept or "finished files are kept" in answer["msg"]


def test_an_interpreter_without_environments_is_named(
    tmp_path: Path, downloaded: Callable[..., dict[str, Any]]
) -> None:
    downloaded("exit 2")
    shutil.rmtree(tmp_path / ".wheels/pip")
    # As Debian's, with an empty line at its end.
    path = program(
        tmp_path / "bin",
        "python3.13",
        "printf 'ensurepip is not available.\\n\\n    apt install python3.13-venv\\n\\n'; exit 1",
    )
    answer = run_module("wheelhouse", {"folder": str(tmp_path / ".wheels"), "download": "python3.13"}, path)
    assert (
        answer["failed"]
        and (
            "vllm_runtime_python: python3.13 -m venv: ensurepip is not available. apt install python3.13-venv. Expected: "
            "an environment with pip. Fix: install its venv package, such as python3.13-venv"
        )
        in answer["msg"]
    ), answer


#: Some clusters: the Python of each node that lacks the wheels or "" if it has them, who downloads, and who receives.
CLUSTERS: list[tuple[dict[str, str], set[str], set[str]]] = [
    ({"spark1": "312"}, {"spark1"}, set()),
    ({"spark1": "312", "spark2": "312", "spark3": "312"}, {"spark1"}, {"spark2", "spark3"}),
    # A node was added.
    ({"spark1": "", "spark2": "312", "spark3": ""}, {"spark1"}, {"spark2"}),
    # The head was replaced.
    ({"spark1": "312", "spark2": ""}, {"spark1"}, set()),
    # Another Python or architecture.
    ({"spark1": "312", "thor1": "310", "spark2": "312"}, {"spark1", "thor1"}, {"spark2"}),
    ({"spark1": "", "thor1": "310"}, {"thor1"}, set()),
]


def test_the_head_downloads_for_all_equal_nodes(tmp_path: Path) -> None:
    """All clusters are in one run. The lock on a node names the downloaded files."""
    address = "https://download.pytorch.org/whl/cu129/torch-2.10.0%2Bcu129-cp312-cp312-manylinux_2_28_aarch64.whl"
    lock_file = tmp_path / "x.lock"
    lock_file.write_text(f"torch @ {address} \\\n    --hash=sha256:{'0' * 64}\nuv==1\n", encoding="utf-8")
    hosts, expected = {}, []
    for number, (nodes, downloads, receives) in enumerate(CLUSTERS):
        for name, platform in nodes.items():
            plan = {
                "head": {"name": f"{number}spark1"},
                "nodes": [{"name": f"{number}{each}"} for each in nodes],
                "node": {"name": f"{number}{name}", "head": name == "spark1"},
                "runtime": {"lock": str(lock_file)},
                "root": "/opt/gb10",
            }
            hosts[f"{number}{name}"] = {
                "gb10_plan": plan,
                "__vllm_runtime_lacks": bool(platform),
                "__vllm_runtime_platform": {"stdout": platform or "312"},
            }
            expected.append(f"<{number}{name} {name in downloads} {name in receives} {bool(receives)}>")
    shown = "<{{ inventory_hostname }} {{ _vllm_runtime_downloads }} {{ __vllm_runtime_receives }} {{ _vllm_runtime_sends }}>"
    decision = next(
        task
        for task in load_yaml(read("roles/vllm_runtime/tasks/wheelhouse.yml"))
        if task["name"].startswith("Determine")
    )
    tasks = [decision, {"ansible.builtin.debug": {"msg": f"{shown} {{{{ _vllm_runtime_local_lock }}}}"}}]
    said = play(tmp_path, tasks, hosts, path=tmp_path, files="vars").assert_ok().output
    assert [each for each in expected if each not in said] == [], said
    place = "file:///opt/gb10/runtime/.wheels/wheels/torch-2.10.0%2Bcu129-cp312-cp312-manylinux_2_28_aarch64.whl"
    found = re.findall(rf"torch @ {re.escape(place)} \\+\s*n? *--hash=sha256:0{{64}}", said)
    assert len(found) == len(expected), said


def test_a_packed_wheel_has_no_mark_of_its_node_and_is_copied_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_wheelhouse, "_CHUNK", 3)
    head, other = folder_of(tmp_path / "head", WHEELS), folder_of(tmp_path / "other", {})
    (head / "wheels" / NAME).chmod(0o600)
    packed = tmp_path / "w.tar"
    digest = io_wheelhouse.pack(str(head / "wheels"), HASHES, str(packed))
    with tarfile.open(packed) as archive:
        found = {(each.uid, each.gid, each.mtime, each.uname, each.gname, each.mode) for each in archive}
    assert found == {(0, 0, 0, "", "", 0o644)}
    assert io_wheelhouse.pack(str(head / "wheels"), HASHES, str(packed)) == digest
    assert io_wheelhouse.unpack(str(packed), str(other / "wheels"), HASHES) == 2 and contents(other) == WHEELS
    with tarfile.open(packed, "w"):
        """It has no entry."""
    assert io_wheelhouse.unpack(str(packed), str(other / "wheels"), HASHES) == 0


@pytest.mark.parametrize(("length", "valid"), [(255, True), (256, False)])
def test_a_name_of_a_wheel_is_one_of_a_file(length: int, valid: bool) -> None:
    assert (wheelhouse.check_entry(f"{'a' * (length - 4)}.whl", True, 1999) == []) is valid
    assert wheelhouse.check_entry("?" * 200, True, 0)[0].found == f"{'?' * 100!r} is not a wheel"
    assert wheelhouse.check_disk("/x", 4 << 30, "cpu") == []
    found = wheelhouse.check_disk("/x", (4 << 30) - 1, "cpu")[0]
    assert (found.found, found.expected) == ("4.0 GiB are free in /x", "4 GiB for the wheels and the environment")


def test_a_long_error_is_cut_and_a_success_has_none() -> None:
    assert wheelhouse.venv_problems(0, "python3", "x") == wheelhouse.pip_problems(0, "ERROR: x") == []
    assert wheelhouse.venv_problems(1, "/usr/bin/python3.13", "x" * 400)[0].found == "x" * 300
    (found,) = wheelhouse.venv_problems(3, "/usr/bin/python3.13", " ")
    assert (found.found, found.fix) == ("exit status 3", "install its venv package, such as python3.13-venv")
    retried = "WARNING: Retrying (a) after first\nWARNING: Retrying (b) after second"
    (found,) = wheelhouse.pip_problems(1, f"{retried}\nERROR: {'x' * 400}\n\nlast\n")
    assert found.found == f"ERROR: {'x' * 293}; second"
