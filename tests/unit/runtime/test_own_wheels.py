"""A node's own wheels: each is verified before uv replaces the packages of the lock."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from run_module import program, run_module

BUILT, COPIED = "vllm-0.33.0-py3-none-any.whl", "torch-2.13.0-py3-none-any.whl"


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    """Return the inputs of a built wheel in the store and a copied one, with a uv that keeps its arguments."""
    folder, environment = tmp_path / "env/wheels", tmp_path / "env"
    folder.mkdir(parents=True)
    (environment / ".lock").touch()
    program(environment / "bin", "uv", f'printf "%s\\n" "$UV_COMPILE_BYTECODE" "$@" > {tmp_path}/asked')
    wheels = []
    for path, built in ((tmp_path / BUILT, True), (folder / COPIED, False)):
        path.write_bytes(path.name.encode())
        sha256 = hashlib.sha256(path.name.encode()).hexdigest()
        wheels.append({"wheel": str(path) if built else f"/controller/{COPIED}", "sha256": sha256, "built": built})
    return {"environment": str(environment), "wheels": wheels, "folder": str(folder)}


@pytest.mark.parametrize("compiled", [True, False])
def test_the_wheels_are_installed_without_an_index(tmp_path: Path, given: dict[str, Any], compiled: bool) -> None:
    assert run_module("own_wheels", {**given, "compile": compiled})["changed"]
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert asked[:3] == [str(int(compiled)), "pip", "install"]
    assert {"--no-index", "--no-deps", "--reinstall"} <= set(asked)
    assert asked[-3:] == [
        f"--python={tmp_path}/env/bin/python",
        f"{tmp_path}/{BUILT}",
        f"{tmp_path}/env/wheels/{COPIED}",
    ]
    assert [path.name for path in (tmp_path / "env").iterdir()] == ["bin"]
    assert (tmp_path / BUILT).exists(), "the store keeps its wheel"


@pytest.mark.parametrize(
    ("name", "content", "found", "fix"),
    [
        (BUILT, b"x", hashlib.sha256(b"x").hexdigest(), "remove the build with its directory"),
        (f"env/wheels/{COPIED}", b"x", hashlib.sha256(b"x").hexdigest(), "or correct gb10_runtime_wheels"),
        (f"env/wheels/{COPIED}", None, "none", "use the correct file"),
    ],
)
def test_another_file_is_refused_before_any_is_installed(
    tmp_path: Path, given: dict[str, Any], name: str, content: bytes | None, found: str, fix: str
) -> None:
    (tmp_path / name).unlink()
    if content:
        (tmp_path / name).write_bytes(content)
    answer = run_module("own_wheels", given)
    assert answer["failed"] and f"{tmp_path}/{name}: its sha256 is {found}. Expected: " in answer["msg"]
    assert fix in answer["msg"]
    assert not (tmp_path / "asked").exists()


def test_an_error_of_uv_is_told(tmp_path: Path, given: dict[str, Any]) -> None:
    program(tmp_path / "env/bin", "uv", "echo bad wheel >&2; exit 2")
    answer = run_module("own_wheels", given)
    assert answer["failed"] and "uv failed: bad wheel" in answer["msg"]
    assert "nothing was changed" not in answer["msg"]
