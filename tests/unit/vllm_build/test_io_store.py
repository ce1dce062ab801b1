"""The store of builds: folders that are complete or absent, verified wheels, and the removal of old builds."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from built_wheels import WHEEL, extension, packed_wheel, write_wheel

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_store

GB10, THOR = ComputeCapability(12, 1), ComputeCapability(11, 0)
NAME = "0.33.0-0123456789ab"


def add(store: Path, path: Path, /, *gpus: ComputeCapability, **stamp: Any) -> dict[str, Any]:
    with path.open("rb") as file:
        return io_store.add(str(store), {"name": NAME, "wheel": WHEEL, **stamp}, file.fileno(), gpus)


def write(store: Path, name: str, age: int = 0, /, **stamp: Any) -> Path:
    """Add a build that is ``age`` seconds old, and return its folder."""
    folder = store / "wheels" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WHEEL).write_bytes(b"wheel")
    content = {"name": name, "wheel": WHEEL, "sha256": "0" * 64, **stamp}
    (folder / "stamp.json").write_text(json.dumps(content), encoding="utf-8")
    os.utime(folder / "stamp.json", (1e9 - age, 1e9 - age))
    return folder


def names(store: Path) -> list[str]:
    return [stamp["name"] for stamp in io_store.stamps(str(store))]


def there(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "wheels").iterdir())


def test_what_is_no_build(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    store = tmp_path / "x[a]*"
    for name in ("good", "empty", ".hidden.part"):
        write(store, name)
    for name in ("empty", ".hidden.part"):
        (store / "wheels" / name / "stamp.json").unlink()
    write(store, "moved", name="other")
    for name, wheel in (("without", WHEEL), ("outside", f"../good/{WHEEL}")):
        (write(store, name, wheel=wheel) / WHEEL).unlink()
    assert names(store) == ["good"]


@pytest.mark.parametrize("content", ["", "[]", "{", '"x"', "x" * (2 << 20)], ids=lambda text: str(text)[:9])
def test_a_damaged_stamp_is_an_error(tmp_path: Path, content: str) -> None:
    """Only root writes there, so it is not passed over."""
    (write(tmp_path, "a") / "stamp.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"a/stamp\.json"):
        io_store.stamps(str(tmp_path))


def test_a_built_wheel_is_added_in_its_one_form(tmp_path: Path) -> None:
    files = {"vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": extension("120"), "vllm/x.so.txt": b"no"}
    wheel = write_wheel(tmp_path / "dist" / WHEEL, "121a", "90a", files=files)
    # What killed runs left.
    for name in (".a.part", f".{NAME}.part"):
        (tmp_path / "wheels" / name).mkdir(parents=True)
    stamp = add(tmp_path, wheel, GB10, source="vllm.git")
    assert (there(tmp_path), io_store.stamps(str(tmp_path))) == ([NAME], [stamp])
    content = (tmp_path / "wheels" / NAME / WHEEL).read_bytes()
    assert content == packed_wheel(tmp_path / WHEEL, "121a", "90a", files=files).read_bytes()
    assert stamp == {
        "name": NAME,
        "wheel": WHEEL,
        "source": "vllm.git",
        "sha256": hashlib.sha256(content).hexdigest(),
        "coverage": [
            "12.1: vllm/_C: 1 native, 0 same major, 0 PTX, 1 none",
            "12.1: vllm/vllm_flash_attn/_vllm_fa2_C: 0 native, 1 same major, 0 PTX, 0 none",
        ],
    }
    assert sorted(path.name for path in (tmp_path / "wheels" / NAME).iterdir()) == ["stamp.json", WHEEL]
    # A worker gets the same file and the same stamp.
    received = add(tmp_path / "worker", tmp_path / "wheels" / NAME / WHEEL, **stamp)
    assert (received, there(tmp_path / "worker")) == (stamp, [NAME])


@pytest.mark.parametrize(
    ("gpus", "stamp", "found"),
    [
        ([GB10, THOR], {}, "Expected: code for 11.0"),
        ([], {"sha256": "0" * 64}, f"Expected: {'0' * 64}"),
    ],
)
def test_a_refused_wheel_leaves_the_old_build(
    tmp_path: Path, gpus: list[ComputeCapability], stamp: dict[str, str], found: str
) -> None:
    write(tmp_path, NAME, mark="old")
    wheel = write_wheel(tmp_path / WHEEL, "121a")
    with pytest.raises(ProblemsError, match=found):
        add(tmp_path, wheel, *gpus, **stamp)
    assert (there(tmp_path), io_store.stamps(str(tmp_path))[0]["mark"]) == ([NAME], "old")


def test_a_damaged_extension_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / WHEEL, "121a", files={"vllm/_moe_C.abi3.so": extension("121a")[:-60]})
    with pytest.raises(ProblemsError, match=r"vllm/_moe_C\.abi3\.so"):
        add(tmp_path, wheel, GB10)
    assert add(tmp_path, wheel)["coverage"] == [], "a build for CPUs has no GPU code"


@pytest.mark.parametrize(
    ("used", "installed", "keep", "old"),
    [("e", "", 3, "cd"), ("e", "d", 1, "abc"), ("gone", "", 3, "de"), ("a", "", 5, ""), ("gone", "b", 1, "acde")],
)
def test_the_oldest_are_removed(tmp_path: Path, used: str, installed: str, keep: int, old: str) -> None:
    for age, name in enumerate("abcde"):
        write(tmp_path, name, age * 10, sha256=name * 64 if name in "abcde" else "")
    (tmp_path / ".complete").write_text(f"{'1' * 64}\n{installed * 64}\n", encoding="utf-8")
    assert io_store.remove_old(str(tmp_path), used, str(tmp_path), keep) == list(old)
    left = [name for name in "abcde" if name not in old]
    assert (names(tmp_path), there(tmp_path)) == (left, left)


def test_an_interrupted_removal_leaves_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a")
    monkeypatch.setattr(io_store.shutil, "rmtree", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        io_store.remove_old(str(tmp_path), "b", None, 0)
    assert (names(tmp_path), there(tmp_path)) == ([], ["a"])
