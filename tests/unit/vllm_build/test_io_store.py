"""The store of builds: folders that are complete or absent, the extensions of wheels, and the removal of old builds."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from built_wheels import WHEEL, extension, write_wheel

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import fat_binary
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


def test_the_newest_build_is_first(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    for name, age in (("a", 10), ("b", 30), ("c", 20)):
        write(tmp_path, name, age)
    assert names(tmp_path) == ["a", "c", "b"]


def test_what_is_no_build(tmp_path: Path) -> None:
    write(tmp_path, "good")
    write(tmp_path, "moved", name="other")
    (write(tmp_path, "without") / WHEEL).unlink()
    write(tmp_path, "outside", wheel="../good/stamp.json/x")
    (tmp_path / "wheels" / "empty").mkdir()
    (tmp_path / "wheels" / ".hidden.part").mkdir()
    assert names(tmp_path) == ["good"]


def test_a_wheel_is_in_its_own_folder(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", wheel=f"../a/{WHEEL}")
    (tmp_path / "wheels" / "b" / WHEEL).unlink()
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("content", ["", "[]", "{", '"x"', "x" * (2 << 20)], ids=lambda text: str(text)[:9])
def test_a_damaged_stamp_is_an_error(tmp_path: Path, content: str) -> None:
    """Only root writes there, so it is not passed over."""
    (write(tmp_path, "a") / "stamp.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"a/stamp\.json"):
        io_store.stamps(str(tmp_path))


def test_a_store_with_special_characters(tmp_path: Path) -> None:
    store = tmp_path / "x[a]*"
    write(store, "a")
    write(store, "a")
    assert (names(store), there(store)) == (["a"], ["a"])


def test_an_interrupted_block_leaves_nothing_and_the_old_build_stays(tmp_path: Path) -> None:
    write(tmp_path, "a", mark="old")
    with pytest.raises(ZeroDivisionError), io_store.part(str(tmp_path), "a") as folder:
        Path(folder, "x").touch()
        raise ZeroDivisionError
    assert there(tmp_path) == ["a"]
    assert io_store.stamps(str(tmp_path))[0]["mark"] == "old"
    assert write(tmp_path, "a", mark="new").is_dir()
    assert io_store.stamps(str(tmp_path))[0]["mark"] == "new"


def test_what_killed_runs_left_is_removed_by_the_next_build(tmp_path: Path) -> None:
    for name in (".a.part", ".b.part"):
        (tmp_path / "wheels" / name).mkdir(parents=True)
        (tmp_path / "wheels" / name / WHEEL).touch()
    write(tmp_path, "a")
    assert there(tmp_path) == ["a"]


def test_the_oldest_are_removed(tmp_path: Path) -> None:
    for age, name in enumerate("abcde"):
        write(tmp_path, name, age * 10)
    assert io_store.old(str(tmp_path), ["e"], 3) == ["c", "d"]
    assert io_store.old(str(tmp_path), ["e", "d"], 1) == ["a", "b", "c"]
    assert io_store.old(str(tmp_path), [], 3) == ["d", "e"]
    assert io_store.old(str(tmp_path), ["a"], 5) == io_store.old(str(tmp_path), [], 9) == []
    assert io_store.old(str(tmp_path), ["gone"], 1) == list("abcde")
    io_store.forget(str(tmp_path), ["c", "d"])
    assert (names(tmp_path), there(tmp_path)) == (["a", "b", "e"], ["a", "b", "e"])


def test_an_interrupted_removal_leaves_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a")

    def killed(_path: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(io_store.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            io_store.forget(str(tmp_path), ["a"])
    assert (names(tmp_path), there(tmp_path)) == ([], ["a"])
    io_store.forget(str(tmp_path), ["a"])
    assert there(tmp_path) == []


def test_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 3_000_000)
    source.chmod(0o600)
    with source.open("rb") as file:
        io_store.copy(file.fileno(), str(target))
        assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (source.read_bytes(), 0o644)
        monkeypatch.setattr(io_store, "MOST_WHEEL", 2_999_999)
        with pytest.raises(ProblemsError, match="it has 3000000 bytes"):
            io_store.copy(file.fileno(), str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_the_extensions_of_a_wheel(tmp_path: Path) -> None:
    files = {
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": extension("90", "120"),
        "vllm/empty.so": b"",
        "vllm/x.so.txt": b"no",
    }
    wheel = write_wheel(tmp_path / WHEEL, "121a", "90a", files=files)
    found = io_store.extensions(str(wheel), str(tmp_path))
    assert {name: [fat.way(GB10) for fat in programs] for name, programs in found.items()} == {
        "vllm/_C": ["native", "none"],
        "vllm/cumem_allocator": [],
        "vllm/vllm_flash_attn/_vllm_fa2_C": ["none", "same_major"],
        "vllm/empty": [],
    }
    assert all(isinstance(fat, fat_binary.FatBinary) for programs in found.values() for fat in programs)
    assert sorted(path.name for path in tmp_path.iterdir()) == [WHEEL]


def test_a_member_does_not_leave_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    wheel = write_wheel(folder / WHEEL, "121a", files={"../../out.so": extension("90"), "/abs.so": extension("90")})
    assert set(io_store.extensions(str(wheel), str(folder))) == {"vllm/_C", "vllm/cumem_allocator", "../../out", "/abs"}
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def broken(wheel: Path, how: str) -> None:
    content = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        member = archive.getinfo("vllm/_C.abi3.so")
    data = member.header_offset + 30 + len(member.filename)
    if how == "truncated":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = bytearray()
    elif how == "text":
        content = bytearray(b"no zip file")
    elif how == "stream":
        content[data : data + 8] = b"\xff" * 8
    elif how == "checksum":
        # In the local header and in the directory at the end.
        old = member.CRC.to_bytes(4, "little")
        content = bytearray(bytes(content).replace(old, (member.CRC ^ 1).to_bytes(4, "little")))
    elif how == "method":
        place = content.rindex(b"PK\x01\x02", 0, content.index(b"vllm/_C.abi3.so", data))
        content[place + 10 : place + 12] = (99).to_bytes(2, "little")
    elif how == "encrypted":
        place = content.rindex(b"PK\x01\x02", 0, content.index(b"vllm/_C.abi3.so", data))
        content[place + 8] |= 1
        content[member.header_offset + 6] |= 1
    wheel.write_bytes(content)


@pytest.mark.parametrize("how", ["truncated", "empty", "text", "stream", "checksum", "method", "encrypted"])
def test_a_damaged_wheel_is_refused(tmp_path: Path, how: str) -> None:
    wheel = write_wheel(tmp_path / WHEEL, "121a")
    broken(wheel, how)
    with pytest.raises(ProblemsError) as raised:
        io_store.extensions(str(wheel), str(tmp_path))
    (problem,) = raised.value.problems
    assert (problem.path, problem.fix) == ("wheel", "run the build again")
    assert WHEEL in problem.found
    assert not (tmp_path / ".extension").exists()


def test_a_damaged_extension_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(tmp_path / WHEEL, "121a", files={"vllm/_moe_C.abi3.so": extension("121a")[:-60]})
    with pytest.raises(ProblemsError) as raised:
        io_store.extensions(str(wheel), str(tmp_path))
    assert raised.value.problems[0].path == "vllm/_moe_C.abi3.so"
    assert not (tmp_path / ".extension").exists()
    monkeypatch.setattr(io_store, "_MOST_EXTENSION", 100)
    with pytest.raises(ProblemsError, match=r"_C\.abi3\.so: it has \d+ bytes"):
        io_store.extensions(str(wheel), str(tmp_path))
