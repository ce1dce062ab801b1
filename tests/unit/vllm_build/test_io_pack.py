"""The one form of a wheel that root installs, and the refused files. tests/integration/vllm_build installs one with uv."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from pathlib import Path

import pytest
from built_wheels import INFORMATION, WHEEL, write_wheel

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_pack

ENTRIES = f"{INFORMATION}/entry_points.txt"
VLLM = """\
[console_scripts]
vllm = vllm.entrypoints.cli.main:main

[vllm.general_plugins]
lora_hf_hub_resolver = vllm.plugins.lora_resolvers.hf_hub_resolver:register_hf_hub_resolver
"""


def pack(wheel: Path, target: Path) -> str:
    with wheel.open("rb") as file:
        return io_pack.pack(file.fileno(), str(target))


def refused(wheel: Path) -> list[Problem]:
    with pytest.raises(ProblemsError) as raised:
        pack(wheel, wheel.with_suffix(".packed"))
    return list(raised.value.problems)


def with_files(folder: Path, **files: bytes) -> Path:
    return write_wheel(folder / WHEEL, "121a", files=files)


def test_the_form_is_kept(tmp_path: Path) -> None:
    """Neither compression, order, times nor modes of the first wheel are in it."""
    files = {ENTRIES: VLLM.encode(), "vllm/config/E=8,N=7168,dtype=fp8[128, 128].json": b"{}", "vllm/run.sh": b"#!"}
    wheel, other = (write_wheel(tmp_path / name / WHEEL, "121a", files=files) for name in ("one", "two"))
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(other, "w") as target:
        for member in reversed(archive.infolist()):
            content = archive.read(member)
            member.external_attr = (stat.S_IFLNK | (0o777 if member.filename.endswith(".sh") else 0o600)) << 16
            target.writestr(member, content)
        target.writestr("vllm/folder/", b"")
    digest = pack(other, tmp_path / "packed")
    assert digest == hashlib.sha256((tmp_path / "packed").read_bytes()).hexdigest()
    assert (pack(tmp_path / "packed", tmp_path / "again"), stat.S_IMODE((tmp_path / "packed").stat().st_mode)) == (
        digest,
        0o644,
    )
    with zipfile.ZipFile(tmp_path / "packed") as archive:
        modes = {member.filename: member.external_attr >> 16 for member in archive.infolist()}
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        record = archive.read(f"{INFORMATION}/RECORD").decode()
        entries = archive.read(ENTRIES).decode()
    assert set(modes) == {f"{INFORMATION}/{name}" for name in ("METADATA", "RECORD", "entry_points.txt")} | {
        "vllm/__init__.py",
        "vllm/_C.abi3.so",
        "vllm/cumem_allocator.abi3.so",
        "vllm/config/E=8,N=7168,dtype=fp8[128, 128].json",
        "vllm/run.sh",
    }
    assert {name: mode for name, mode in modes.items() if mode != stat.S_IFREG | 0o644} == {
        "vllm/run.sh": stat.S_IFREG | 0o755
    }
    assert record.splitlines()[-1] == f"{INFORMATION}/RECORD,,"
    assert "vllm/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n" in record
    assert entries == VLLM


@pytest.mark.parametrize(
    "name",
    [
        "evil.pth",
        "sitecustomize.py",
        "vllm-0.33.0.data/scripts/uv",
        "vllm-0.33.0.data/purelib/evil.pth",
        "vllm-0.33.0.dist-info/direct_url.json",
        "uv-1.dist-info/RECORD",
        "vllm-1.dist-info/METADATA",
        "vllm.py",
        "vllm",
        "vllm2/x.py",
        "vllm/../evil.pth",
        "vllm/./x.py",
        "vllm//x.py",
        "/vllm/x.py",
        "vllm/\x1b[31m.py",
        "vllm/\u202e.py",
        "vllm\\..\\evil.pth",
        "vllm-0.33.0.dist-info/licenses/../../evil.pth",
    ],
)
def test_a_file_that_is_not_vllms_is_refused(tmp_path: Path, name: str) -> None:
    (problem,) = refused(with_files(tmp_path, **{name: b"import os"}))
    assert (problem.path, problem.fix.startswith("see what the source")) == ("wheel", True)
    assert not (tmp_path / WHEEL).with_suffix(".packed").exists()


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / WHEEL, "121a")
    with zipfile.ZipFile(wheel, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("vllm/__init__.py", b"other")
    assert "vllm/__init__.py" in refused(wheel)[0].found


@pytest.mark.parametrize(
    "text",
    [
        "[console_scripts]\nuv = vllm.evil:main\n",
        "[console_scripts]\nvllm = os:system\n",
        "[console_scripts]\n../uv = vllm.x:main\n",
        "[gui_scripts]\nvllm = vllm.x:main\n",
        "[torch.backends]\nx = vllm.x:main\n",
        "[vllm.general_plugins]\nx = vllm.x:main; import os\n",
        "[console_scripts]\nvllm = vllm.x:main\nvllm = vllm.y:main\n",
        "[console_scripts]\nvllm = vllm.x:main\n  [gui_scripts]\n",
        "no section",
        "[DEFAULT]\nuv = vllm.x:main\n[console_scripts]\n",
    ],
)
def test_another_program_is_refused(tmp_path: Path, text: str) -> None:
    (problem,) = refused(with_files(tmp_path, **{ENTRIES: text.encode()}))
    assert "entry_points.txt" in problem.found


def test_a_long_list_of_files_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_pack, "_MOST_LIST", 300)
    assert (
        "a list of files with"
        in refused(with_files(tmp_path, **{f"vllm/{number}": b"" for number in range(9)}))[0].found
    )


def test_a_long_list_of_files_by_zip64_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other record may have any size."""
    with monkeypatch.context() as small:
        small.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
        wheel = with_files(tmp_path, **{f"vllm/{number}": b"" for number in range(9)})
    assert pack(wheel, tmp_path / "packed"), "a short list is read"
    content = wheel.read_bytes()
    at = content.rindex(b"PK\x05\x06")
    wheel.write_bytes(content[: at + 12] + bytes(4) + content[at + 16 :])
    monkeypatch.setattr(io_pack, "_MOST_LIST", 300)
    assert "a list of files with" in refused(wheel)[0].found


def test_a_record_that_another_place_could_be_is_refused(tmp_path: Path) -> None:
    """A list of 47 MB passed: its offset had the form of a record, which follows with a size of 0."""
    wheel = with_files(tmp_path)
    content = wheel.read_bytes()
    for end in (b"x", b"PK\x05\x06" + bytes(18) + b"x"):
        wheel.write_bytes(content + end)
        assert "no list of files at its end" in refused(wheel)[0].found


def test_a_wheel_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = with_files(tmp_path, **{"vllm/zeros": bytes(1_000_000)})
    monkeypatch.setattr(io_pack, "_MOST_WHEEL", 900_000)
    assert "build fewer architectures" in str(refused(wheel)[0])
    monkeypatch.setattr(io_pack, "_MOST_WHEEL", 8 << 30)
    monkeypatch.setattr(io_pack, "_MOST_FILES", 2)
    assert "at most 2 files" in str(refused(wheel)[0])


def broken(wheel: Path, how: str) -> bytes:
    """Return the content of a wheel with this damage."""
    content = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        member = archive.getinfo("vllm/_C.abi3.so")
    data = member.header_offset + 30 + len(member.filename)
    entry = content.rindex(b"PK\x01\x02", 0, content.index(b"vllm/_C.abi3.so", data))
    if how == "stream":
        content[data : data + 8] = b"\xff" * 8
    elif how == "checksum":
        # In the local header and in the directory at the end.
        return bytes(content).replace(member.CRC.to_bytes(4, "little"), (member.CRC ^ 1).to_bytes(4, "little"))
    elif how == "method":
        content[entry + 10] = 99
    elif how == "encrypted":
        content[entry + 8] |= 1
        content[member.header_offset + 6] |= 1
    return {"truncated": content[: len(content) // 2], "empty": b"", "text": b"no zip file"}.get(how, content)


@pytest.mark.parametrize("how", ["truncated", "empty", "text", "stream", "checksum", "method", "encrypted"])
def test_a_damaged_wheel_is_refused(tmp_path: Path, how: str) -> None:
    wheel = write_wheel(tmp_path / WHEEL, "121a")
    wheel.write_bytes(broken(wheel, how))
    (problem,) = refused(wheel)
    assert (problem.path, problem.expected, problem.fix) == ("wheel", "a complete wheel", "run the build again")
