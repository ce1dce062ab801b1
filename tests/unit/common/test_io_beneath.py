"""Open files below a folder that other users may change: no link or chain of links leads out of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_beneath
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import Folder, OutsideError

SECRET = b"root's alone"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a file in a subfolder, and secrets next to the folder."""
    (tmp_path / "model/sub").mkdir(parents=True)
    (tmp_path / "model/sub/a").write_bytes(b"a")
    for place in (tmp_path, tmp_path / "beside"):
        place.mkdir(exist_ok=True)
        (place / "a").write_bytes(SECRET)
    return tmp_path / "model"


def content(folder: Path, path: str) -> bytes:
    with Folder(str(folder)).open(path) as found:
        return os.read(found, 100)


@pytest.mark.parametrize("target", ["sub/a", "./sub/../sub/a", "sub//a", "{tree}/sub/a", "again"])
def test_a_link_within(tree: Path, target: str) -> None:
    (tree / "again").symlink_to("sub/a")
    (tree / "link").symlink_to(target.format(tree=tree))
    assert content(tree, "link") == b"a"
    assert (Folder(str(tree)).size("link"), Folder(str(tree)).size("none"), Folder(str(tree)).size("link/none")) == (
        1,
        None,
        None,
    )


OUT = ["../a", "sub/../../a", "../beside/a", "../model/sub/a", "/etc/passwd", "{tree}/../a", "{tree}x/a"]


@pytest.mark.parametrize("target", [*OUT, "sub", ".", "loop"])
def test_a_link_that_is_refused(tree: Path, target: str) -> None:
    (tree / "loop").symlink_to("loop")
    (tree / "link").symlink_to(target.format(tree=tree))
    with pytest.raises(OutsideError):
        content(tree, "link")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(
            st.sampled_from(["..", ".", "sub", "a", "link0", "link1", "link2", "beside", "model", "", "/"]), max_size=6
        ),
        max_size=3,
    ),
    st.lists(st.sampled_from(["..", ".", "sub", "a", "link0", "link1", "link2"]), min_size=1, max_size=5),
)
def test_no_links_lead_out(tree: Path, targets: list[list[str]], path: list[str]) -> None:
    for number, parts in enumerate(targets):
        (tree / f"link{number}").unlink(missing_ok=True)
        # An empty link cannot be made.
        (tree / f"link{number}").symlink_to("/".join(parts).replace("//", str(tree)) or ".")
    with contextlib.suppress(OutsideError, OSError):
        assert content(tree, "/".join(path)) == b"a"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_and_not_waited_for(tree: Path, make: Callable[[Path], None]) -> None:
    make(tree / "odd")
    with pytest.raises(OutsideError, match="is not a regular file"):
        content(tree, "odd")
    with Folder(str(tree)).place() as place, pytest.raises((OutsideError, OSError)):
        io_beneath.create(place, "odd")


def test_a_place_is_reached_through_no_link(tree: Path) -> None:
    (tree / "link").symlink_to("sub")
    with pytest.raises(OutsideError, match="is a link to sub"), Folder(str(tree)).place("link/new", make=True):
        pass
    with Folder(str(tree)).place("sub/new/er", make=True) as place:
        os.close(io_beneath.create(place, "b"))
    assert (tree / "sub/new/er/b").exists()
    (tree / "trap").symlink_to(tree.parent / "a")
    with Folder(str(tree)).place() as place, pytest.raises(OSError, match="symbolic links"):
        io_beneath.create(place, "trap")


def test_names_are_those_of_files_and_of_links_to_files(tree: Path) -> None:
    (tree / "link").symlink_to("sub/a")
    (tree / "folder").symlink_to("..")
    assert sorted(Folder(str(tree)).names()) == ["link", "sub/a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a link")
def test_a_link_on_the_way_to_the_folder_must_be_roots(tree: Path) -> None:
    link = tree.parent / "by"
    link.symlink_to(tree)
    assert content(link, "sub/a") == b"a"
    os.lchown(link, 65534, 65534)
    with pytest.raises(OutsideError, match="belongs to another user"):
        content(link, "sub/a")


def test_a_chain_has_as_many_links_as_the_kernel_follows(tree: Path) -> None:
    for number in range(41):
        (tree / f"link{number}").symlink_to(f"link{number - 1}" if number else "sub/a")
    assert content(tree, "link39") == (tree / "link39").read_bytes() == b"a"
    with pytest.raises(OutsideError, match="is a link in a loop of links"):
        content(tree, "link40")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("../../blobs/b", "blob"),
        ("{cache}/blobs/b", "blob"),
        ("sub/own", "own"),
        ("../../blobs/sub/b", None),
        ("../../other", None),
        ("../r2/own", None),
        ("../../../b", None),
    ],
)
def test_a_link_of_a_cache_ends_at_a_blob_of_its_model(tmp_path: Path, target: str, expected: str | None) -> None:
    cache = tmp_path / "models--x"
    for name in ("blobs/b", "blobs/sub/b", "other", "snapshots/r1/sub/own", "snapshots/r2/own", "../b"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text({"blobs/b": "blob", "snapshots/r1/sub/own": "own"}.get(name, "planted"), "ascii")
    revision = cache / "snapshots/r1"
    (revision / "file").symlink_to(target.format(cache=cache))
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    if expected:
        assert content(revision, "file") == expected.encode()
        assert Folder(str(revision)).sha256("file") == hashlib.sha256(expected.encode()).hexdigest()
    else:
        with pytest.raises(OutsideError, match=f"which is outside of {revision}|leads out of {cache}"):
            content(revision, "file")
    assert sorted(Folder(f"{revision}/").names()) == ["file", "sub/own"]
    with Folder(str(revision)).place("sub") as place:
        assert os.listdir(place) == ["own"]  # noqa: PTH208
    assert len(os.listdir("/proc/self/fd")) == len(before), "a descriptor is open"  # noqa: PTH208


def test_new_folders_and_files_are_open_to_all(tree: Path) -> None:
    before = os.umask(0)
    try:
        with Folder(str(tree)).place("new", make=True) as place:
            made = io_beneath.create(place, "b")
            os.write(made, b"text")
            assert os.pread(made, 9, 0) == b"text" and not os.get_inheritable(made) and not os.get_inheritable(place)
            os.close(made)
    finally:
        os.umask(before)
    assert (oct((tree / "new").stat().st_mode), oct((tree / "new/b").stat().st_mode)) == ("0o40755", "0o100644")
    with pytest.raises(FileNotFoundError), Folder(str(tree)).place("absent"):
        pass
    with pytest.raises(OutsideError, match=f"leads out of {tree}"), Folder(str(tree)).place("../beside"):
        pass
    with Folder(f"{tree}/../../../../../../../..{tree}").open("sub/a") as found:
        assert not os.get_inheritable(found)
