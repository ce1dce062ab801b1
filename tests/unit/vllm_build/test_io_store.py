"""The store of builds: folders that are complete or absent, the extensions of wheels, and the removal of old builds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from built_wheels import WHEEL, extension, write_wheel

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_store

GB10 = ComputeCapability(12, 1)


def write(store: Path, name: str, age: int = 0, /, **stamp: Any) -> Path:
    """Add a build that is ``age`` seconds old, and return its folder."""
    with io_store.part(str(store), name) as folder:
        Path(folder, WHEEL).write_bytes(b"wheel")
        content = {"name": name, "wheel": WHEEL, "sha256": "0" * 64, **stamp}
        Path(folder, "stamp.json").write_text(json.dumps(content), encoding="utf-8")
    folder_path = store / "wheels" / name
    when = folder_path.stat().st_mtime - age
    os.utime(folder_path / "stamp.json", (when, when))
    return folder_path


def names(store: Path) -> list[str]:
    return [stamp["name"] for stamp in io_store.stamps(str(store))]


def there(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "wheels").iterdir())


def test_what_is_no_build(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    store = tmp_path / "x[a]*"
    for name in ("good", "good", "empty", ".hidden.part"):
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


def test_an_interrupted_block_leaves_nothing_and_the_old_build_stays(tmp_path: Path) -> None:
    write(tmp_path, "a", mark="old")
    with pytest.raises(ZeroDivisionError), io_store.part(str(tmp_path), "a") as folder:
        Path(folder, "x").touch()
        raise ZeroDivisionError
    assert (there(tmp_path), io_store.stamps(str(tmp_path))[0]["mark"]) == (["a"], "old")
    # What killed runs left.
    for name in (".a.part", ".b.part"):
        (tmp_path / "wheels" / name).mkdir()
        (tmp_path / "wheels" / name / WHEEL).touch()
    write(tmp_path, "a", mark="new")
    assert (there(tmp_path), io_store.stamps(str(tmp_path))[0]["mark"]) == (["a"], "new")


@pytest.mark.parametrize(
    ("used", "keep", "old"),
    [("e", 3, "cd"), ("ed", 1, "abc"), ("", 3, "de"), ("a", 5, ""), ("", 9, ""), (["gone"], 1, "abcde")],
)
def test_the_oldest_are_removed(tmp_path: Path, used: Sequence[str], keep: int, old: str) -> None:
    for age, name in enumerate("abcde"):
        write(tmp_path, name, age * 10)
    assert io_store.old(str(tmp_path), list(used), keep) == list(old)
    io_store.forget(str(tmp_path), list(old))
    left = [name for name in "abcde" if name not in old]
    assert (names(tmp_path), there(tmp_path) if left else []) == (left, left)


def test_an_interrupted_removal_leaves_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a")
    with monkeypatch.context() as patched:
        patched.setattr(io_store.shutil, "rmtree", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            io_store.forget(str(tmp_path), ["a"])
    assert (names(tmp_path), there(tmp_path)) == ([], ["a"])
    io_store.forget(str(tmp_path), ["a"])
    assert there(tmp_path) == []


def test_the_extensions_of_a_wheel(tmp_path: Path) -> None:
    """No member leaves the folder, whatever its name."""
    files = {
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": extension("90", "120"),
        "vllm/empty.so": b"",
        "vllm/x.so.txt": b"no",
        "../../out.so": extension("90"),
        "/abs.so": extension("90"),
    }
    wheel = write_wheel(tmp_path / "in" / WHEEL, "121a", "90a", files=files)
    found = io_store.extensions(str(wheel), str(tmp_path / "in"))
    assert {name: [fat.way(GB10) for fat in programs] for name, programs in found.items()} == {
        "vllm/_C": ["native", "none"],
        "vllm/cumem_allocator": [],
        "vllm/vllm_flash_attn/_vllm_fa2_C": ["none", "same_major"],
        "vllm/empty": [],
        "../../out": ["none"],
        "/abs": ["none"],
    }
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["in", f"in/{WHEEL}"]


def test_a_damaged_wheel_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / WHEEL
    wheel.write_bytes(b"no zip file")
    with pytest.raises(ProblemsError, match=f"wheel: {re.escape(WHEEL)}: "):
        io_store.extensions(str(wheel), str(tmp_path))


def test_a_damaged_extension_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(tmp_path / WHEEL, "121a", files={"vllm/_moe_C.abi3.so": extension("121a")[:-60]})
    with pytest.raises(ProblemsError, match=r"vllm/_moe_C\.abi3\.so: "):
        io_store.extensions(str(wheel), str(tmp_path))
    assert not (tmp_path / ".extension").exists()
    monkeypatch.setattr(io_store, "_MOST_EXTENSION", 100)
    with pytest.raises(ProblemsError, match=r"_C\.abi3\.so: it has \d+ bytes"):
        io_store.extensions(str(wheel), str(tmp_path))
