"""Packed programs: their content, the same bytes on every controller, and that each runs alone."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from packed import install, packed
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, program

CORE = "ansible_collections.gb10.cluster.plugins.module_utils"
FOLDER = CORE.replace(".", "/")
#: Each form of an import, and one that no one names.
FILES = {
    "a/io_start.py": (
        f"from {CORE}.a import one, two\nimport {CORE}.b.three\ndef main():\n    from {CORE}.b.four import x\n    "
        "return 3\n"
    ),
    "a/one.py": f"from {CORE}.a.two import y\n",
    "a/two.py": f"y = 1\nif False:\n    from {CORE}.a import io_start\n",
    "b/three.py": "",
    "b/four.py": "x = 1\n",
    "b/five.py": "",
}


def pack(files: dict[str, str], entry: str = "a/io_start") -> bytes:
    return program.pack(entry, lambda path: files[path].encode() if path in files else None)


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program without variables and in another folder, as a unit does."""
    return subprocess.run(
        [sys.executable, "-I", "-B", path, *arguments],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_program_has_what_it_imports_and_no_other_file() -> None:
    sources = program.sources(pack(FILES))
    names = {f"{FOLDER}/{name}": text for name, text in FILES.items() if name != "b/five.py"}
    assert sources == {**names, "__main__.py": f"from {CORE}.a.io_start import main\n\nraise SystemExit(main())\n"}


def test_the_imports_are_those_that_python_finds() -> None:
    """In each file of the core. A whole syntax tree takes a hundred times longer."""
    folder = ROOT / "plugins/module_utils"
    for path in folder.rglob("*.py"):
        found: list[tuple[str, list[str]]] = []
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found += [(alias.name, []) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found.append((str(node.module), [alias.name for alias in node.names]))
        of_ansible = [each for each in found if each[0].partition(".")[0] in ("ansible", "ansible_collections")]
        assert sorted(program._imports(str(path), path.read_bytes())) == sorted(of_ansible), path


def test_a_program_runs_and_ends_with_the_status_of_main(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(pack(FILES))
    done = run(tmp_path / "program")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_the_bytes_depend_on_the_sources_only(monkeypatch: pytest.MonkeyPatch) -> None:
    first, before = pack(FILES), os.umask(0o077)
    try:
        monkeypatch.setattr(time, "time", lambda: 2e9)
        monkeypatch.setattr(sys, "platform", "win32")
        assert pack(dict(reversed(FILES.items()))) == first
    finally:
        os.umask(before)
    assert pack({**FILES, "b/five.py": "z = 1\n"}) == first
    assert pack({**FILES, "b/four.py": "x = 2\n"}) != first
    items = zipfile.ZipFile(io.BytesIO(first)).infolist()
    assert [item.filename for item in items] == sorted(item.filename for item in items)
    assert {(item.date_time, item.external_attr >> 16, item.create_system, item.compress_type) for item in items} == {
        ((1980, 1, 1, 0, 0, 0), mode, 3, zipfile.ZIP_STORED) for mode in (0o40755, 0o100644)
    }


@pytest.mark.parametrize(
    ("path", "line", "reason"),
    [
        ("a/one.py", "from . import two", "a/one.py has a relative import"),
        ("a/one.py", f"from {CORE}.a import none", f"a/one.py imports {CORE}.a, which a node does not have"),
        ("a/one.py", f"from {CORE}.a import two, none", "which a node does not have"),
        ("a/one.py", f"import {CORE}.c", "which a node does not have"),
        ("b/four.py", "from ansible_collections.gb10.cluster.plugins.plugin_utils import lazy", "b/four.py imports"),
        (
            "b/four.py",
            "from ansible.module_utils.basic import AnsibleModule",
            "imports ansible.module_utils.basic, which a node",
        ),
        ("b/four.py", f"import {CORE}_other", "which a node does not have"),
    ],
)
def test_an_import_that_a_node_cannot_resolve_is_refused(path: str, line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace(".", r"\.")):
        pack({**FILES, path: f"{line}\n"})


def test_an_entry_exists() -> None:
    with pytest.raises(ValueError, match=r"there is no file a/none\.py"):
        pack(FILES, "a/none")


def test_other_data_has_no_sources() -> None:
    packed_one = pack(FILES)
    wrong_sum = packed_one.replace(b"x = 1\n", b"x = 2\n")
    assert [program.sources(data) for data in (b"", b"no archive", packed_one[:-30], wrong_sum)] == [{}] * 4


def test_damaged_data_has_no_changed_text() -> None:
    whole = pack(FILES)
    texts = {"", *program.sources(whole).values()}
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 0xFF
        assert texts.issuperset(program.sources(bytes(data)).values())


#: The cheapest call of each program: arguments, exit status, and output.
CALLS = {
    "flight-recorder": (["/nonexistent"], 1, "/nonexistent does not exist. Expected: the settings"),
    "gates": (["--help"], 0, "usage: gb10-gates "),
    "gateway": (["/nonexistent", "/nonexistent"], 1, "FileNotFoundError: /nonexistent"),
    "memory-guard": (["--help"], 0, "usage: gb10-memory-guard "),
    "metrics": (["/nonexistent"], 1, "/nonexistent does not exist. Expected: the settings"),
    "model": (["list", "--source=/nonexistent"], 0, '"problem": {"path": '),
    "netconsole": (["on", "/nonexistent"], 1, "/nonexistent does not exist. Expected: the settings"),
    "watchdog": (["/nonexistent", "/nonexistent"], 1, "/nonexistent does not exist. Expected: the settings"),
}


def test_each_program_is_called() -> None:
    assert CALLS.keys() == paths.PROGRAMS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_each_program_runs_from_its_file_alone(tmp_path: Path, name: str) -> None:
    arguments, status, shown = CALLS[name]
    done = run(install(name, tmp_path), *arguments)
    assert (done.returncode, shown in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr


def test_the_program_of_the_model_relays_too(tmp_path: Path) -> None:
    done = run(install("model", tmp_path), "relay", "--help")
    assert (done.returncode, "--upstream-address" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("name", paths.PROGRAMS)
def test_a_program_has_the_collections_files_unchanged(name: str) -> None:
    sources = {
        name.removeprefix(f"{FOLDER}/"): text
        for name, text in program.sources(packed(name)).items()
        if name != "__main__.py"
    }
    assert f"{paths.PROGRAMS[name]}.py" in sources
    assert sources == {path: (ROOT / "plugins/module_utils" / path).read_text(encoding="utf-8") for path in sources}


def test_a_role_installs_a_program_by_its_name() -> None:
    assert paths.program_file("gates") == {"path": "/usr/local/lib/gb10-gates", "program": "launch/io_gates"}
    with pytest.raises(KeyError):
        paths.program_file("gate")
