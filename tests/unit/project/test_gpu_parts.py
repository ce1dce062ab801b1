# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test the parts of tests/gpu/site.py: they arrive as they were packed, and a wheel that did not travel is written
again."""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from gpu_program import load

parts = load("parts")
FILES = {
    "stack.lock": b"a==1\n",
    "wheels/a-1-py3-none-any.whl": bytes(range(256)) * 3,
    "wheels/empty": b"",
    "cache/base.tar.xz": b"x" * 100,
}


def packed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(parts, "PART", 100)
    stream = parts.Parts(folder / "parts")
    files = [
        {"name": name, "size": len(data), "sha256": stream.write(io.BytesIO(data))} for name, data in FILES.items()
    ]
    return {"files": files, "parts": stream.end()}


def test_files_arrive_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = packed(tmp_path, monkeypatch)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "parts").glob("part-*/data"))]
    assert sizes == [100] * 8 + [sum(map(len, FILES.values())) - 800]
    parts.verify(tmp_path / "parts", manifest["parts"])
    parts.assemble(tmp_path, manifest)
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == FILES


def test_a_missing_and_a_wrong_part_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = packed(tmp_path, monkeypatch)
    (tmp_path / "parts/part-001/data").write_bytes(b"y" * 100)
    (tmp_path / "parts/part-004/data").unlink()
    with pytest.raises(SystemExit, match="missing or wrong: part-001 part-004"):
        parts.verify(tmp_path / "parts", manifest["parts"])


def test_the_entries_of_a_lock() -> None:
    lock = "# head\nA_b==1.0 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\nc[d]==2 ; x --hash=sha256:3\n"
    entries = parts.entries(lock)
    assert "".join(entries.values()) == lock.partition("\n")[2]
    assert list(entries) == ["a-b", "c"]


def wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Write a wheel as a build does."""
    package, version, *_ = name.split("-")
    info = f"{package}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-manylinux_2_17_x86_64\nTag: "
            "py3-none-manylinux2014_x86_64\n"
        ),
    }
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in contents.items():
            archive.writestr(each, text)
        digests = {
            each: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            for each, text in contents.items()
        }
        record = "".join(f"{each},sha256={digest},{len(contents[each])}\n" for each, digest in digests.items())
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


def test_a_wheel_is_written_again_from_its_installation(tmp_path: Path) -> None:
    name = "nvidia_x-1.2.3-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    first = wheel(tmp_path, name, {"nvidia/x/lib/libx.so": "code", "nvidia/x/__init__.py": "VALUE = 7\n"})
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    one, two, again = (tmp_path / name for name in ("one", "two", "again"))
    subprocess.run([*install, f"--target={one}", f"--find-links={first.parent}", "nvidia-x"], check=True)
    again.mkdir()

    digest = parts.write_again(one, one / "nvidia_x-1.2.3.dist-info", again)
    lock = tmp_path / "lock"
    lock.write_text(f"nvidia-x==1.2.3 --hash=sha256:{digest}\n", encoding="ascii")
    subprocess.run([*install, f"--target={two}", "--require-hashes", f"--find-links={again}", "-r", lock], check=True)
    assert [path.name for path in again.iterdir()] == [name]
    requested = {Path("nvidia_x-1.2.3.dist-info/REQUESTED")}
    installed = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    assert {path.relative_to(two) for path in two.rglob("*") if path.is_file()} | requested == installed | requested
    assert (two / "nvidia/x/lib/libx.so").read_text(encoding="ascii") == "code"
    (one / "nvidia/x/lib/libx.so").write_text("other", encoding="ascii")
    with pytest.raises(SystemExit, match=r"libx\.so is not as it was installed"):
        parts.write_again(one, one / "nvidia_x-1.2.3.dist-info", again)


def test_a_library_that_the_machine_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="does not have: nvidia-x==9, pytest==0"):
        parts.again(sys.executable, {"nvidia-x": "9", "pytest": "0"}, tmp_path)
