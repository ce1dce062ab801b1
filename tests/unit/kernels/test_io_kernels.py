"""Tests of the store of FlashInfer's kernels, on files."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from sparse_tar import add_sparse

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.kernels import io_kernels, plan

MODULE = ".cache/flashinfer/0.7.2/121a/cached_ops/sampling"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the temporary user, with one module."""
    folder = tmp_path / "cache"
    (folder / MODULE).mkdir(parents=True)
    (folder / MODULE / "sampling.so").write_bytes(b"compiled")
    monkeypatch.setattr(io_kernels, "_CACHE", str(folder))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> str:
    package = tmp_path / "runtime/lib/python3.12/site-packages/flashinfer"
    package.mkdir(parents=True)
    folder = io_kernels.store(str(tmp_path / "runtime/bin/python"))
    assert folder == str(package / plan.STORE)
    return folder


def test_modules_are_stored_once_and_read_only_for_others(cache: Path, store: str) -> None:
    assert io_kernels.stored(store, "0123") is None
    modules = io_kernels.collect(store, "0123", 2)
    assert io_kernels.stored(store, "0123") == modules
    library = Path(store, "sampling/sampling.so")
    assert (library.read_bytes(), library.stat().st_mode & 0o777) == (b"compiled", 0o755)
    # A process may have mapped it.
    (cache / MODULE / "sampling.so").write_bytes(b"again")
    assert io_kernels.collect(store, "4567", 2) == modules
    assert library.read_bytes() == b"compiled"


@pytest.mark.usefixtures("cache")
def test_modules_of_another_release_of_flashinfer_are_removed(store: str) -> None:
    packages = Path(store).parents[2]
    (packages / "flashinfer_python-0.7.2.dist-info").mkdir()
    io_kernels.collect(store, "0123", 2)
    assert io_kernels.stored(store, "0123")
    (packages / "flashinfer_python-0.7.2.dist-info").rename(packages / "flashinfer_python-0.7.3.dist-info")
    assert io_kernels.stored(store, "0123") is None
    io_kernels.collect(store, "4567", 2)
    assert not Path(store, ".gb10/0123.json").exists()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("name", "state"), [("0123", "running"), ("4567", "none")])
def test_the_unit_of_another_model_is_replaced(name: str, state: str) -> None:
    shown = "ActiveState=active\nSubState=running\nDescription=Compile FlashInfer's kernels 0123\n"
    assert io_kernels.progress(lambda _argv: (0, shown, ""), name) == plan.Progress(state, 1, 0)


def test_without_a_folder_of_the_temporary_user_nothing_is_finished(cache: Path) -> None:
    io_kernels.remove_cache()
    assert not cache.exists()
    for _again in range(2):
        assert io_kernels.progress(lambda _argv: (0, "", ""), "0123") == plan.Progress("none", 0, 0)
        io_kernels.remove_cache()
        cache.write_text("no folder", encoding="utf-8")


def test_more_or_larger_modules_than_the_limits_are_refused(
    cache: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MOST_MODULES", 1)
    monkeypatch.setattr(plan, "MOST_BYTES", len(b"compiled"))
    assert io_kernels.collect(store, "0123", 2) == io_kernels.stored(store, "0123")
    (cache / MODULE / "sampling.so").write_bytes(b"compiled more")
    with pytest.raises(ProblemsError, match="sampling is too large"):
        io_kernels.collect(store, "0123", 2)
    other = cache / MODULE.replace("sampling", "renorm") / "renorm.so"
    other.parent.mkdir()
    other.write_bytes(b"compiled")
    with pytest.raises(ProblemsError, match="modules: 2"):
        io_kernels.collect(store, "0123", 2)


def test_a_link_of_the_temporary_user_is_not_followed(cache: Path, store: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key", encoding="utf-8")
    (cache / MODULE / "sampling.so").unlink()
    (cache / MODULE / "sampling.so").symlink_to(secret)
    with pytest.raises(OSError, match="outside"):
        io_kernels.collect(store, "0123", 2)
    assert not Path(store, "sampling/sampling.so").exists()


@pytest.mark.usefixtures("cache")
def test_another_node_stores_the_same_modules(store: str, tmp_path: Path) -> None:
    modules, archive = io_kernels.collect(store, "0123", 2), str(tmp_path / "kernels.tar")
    assert io_kernels.pack(store, "0123", archive) == io_file.sha256(archive)
    other = str(tmp_path / "other")
    assert io_kernels.unpack(other, "0123", archive, 2) == io_kernels.stored(other, "0123") == modules
    Path(other, "sampling/sampling.so").unlink()
    assert io_kernels.stored(other, "0123") is None, "a missing module is compiled again"


@pytest.mark.parametrize("form", ["gz", "xz", "bz2"])
def test_a_compressed_archive_is_refused(form: str, tmp_path: Path) -> None:
    """A header of a few bytes could become gigabytes."""
    with tarfile.open(tmp_path / "kernels.tar", f"w:{form}") as tar:
        tar.addfile(tarfile.TarInfo("a.so"))
    with pytest.raises(tarfile.ReadError):
        io_kernels.unpack(str(tmp_path / "store"), "0123", str(tmp_path / "kernels.tar"), 2)


def test_a_sparse_module_is_refused(tmp_path: Path) -> None:
    """2 KB stored 600 MB."""
    add_sparse(tmp_path / "kernels.tar", "sampling.so", 1 << 29)
    with pytest.raises(ProblemsError, match="is not a module"):
        io_kernels.unpack(str(tmp_path / "store"), "0123", str(tmp_path / "kernels.tar"), 2)


@pytest.mark.parametrize("name", ["../evil.so", "/etc/evil.so", "a b.so"])
def test_an_archive_with_other_names_is_refused(name: str, tmp_path: Path) -> None:
    archive = tmp_path / "kernels.tar"
    with tarfile.open(archive, "w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(ProblemsError):
        io_kernels.unpack(str(tmp_path / "store"), "0123", str(archive), 2)
