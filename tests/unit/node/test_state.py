"""The finished parts of a node, by which roles skip their work."""

from __future__ import annotations

import hashlib
import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts

TOKEN = "0123456789abcdef" * 4
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="files of root and of other users need root")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node on which everything is finished, below a folder."""
    keys = ("RAY_TOKEN", "MESSAGE_SECRET", "WATCHDOG_KEY", "RECORDER_KEYS")
    for name in (*keys, "CERTIFICATE", "SECRET_ENVIRONMENT", "UNIT_FOLDER", "WATCHDOG_WEBHOOK"):
        monkeypatch.setattr(paths, name, f"{tmp_path}{getattr(paths, name)}")
    monkeypatch.setattr(paths, "API_KEY", tuple(f"{tmp_path}{path}" for path in paths.API_KEY))
    home = tmp_path / "home"
    entry = SimpleNamespace(pw_uid=990, pw_gid=980, pw_dir=str(home), pw_shell="/usr/sbin/nologin")
    monkeypatch.setattr(pwd, "getpwnam", {"gb10": entry}.__getitem__)
    home.mkdir()
    home.chmod(0o700)
    os.chown(home, 990, 980)
    for path, text in (
        (paths.RAY_TOKEN, TOKEN),
        (f"{tmp_path}/runtime/abc/.complete", "mark\n"),
        (f"{paths.UNIT_FOLDER}/gb10-ray.service", ""),
    ):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="ascii")
    Path(paths.RAY_TOKEN).chmod(0o600)
    (tmp_path / "runtime/current").symlink_to(tmp_path / "runtime/abc")
    return tmp_path


def state(node: Path) -> dict[str, Any]:
    return io_facts.state("gb10", f"{node}/home", f"{node}/runtime/abc")


@ROOT_ONLY
def test_everything_is_finished(node: Path) -> None:
    assert state(node) == {
        "service_user": "990:980",
        "service_user_ready": True,
        "ray_token_digest": digest(TOKEN),
        "message_secret_digest": "",
        "message_keys_mark": "",
        "runtime_mark": digest("mark\n"),
        "units": ["gb10-ray.service"],
        "certificate": False,
        "api_key": False,
        "secret_environment": False,
        "watchdog_webhook": False,
    }


@ROOT_ONLY
def test_the_service_user_is_not_ready(node: Path) -> None:
    home = node / "home"
    for spoil in (
        lambda: home.chmod(0o755),
        lambda: os.chown(home, 0, 0),
        lambda: (home.rmdir(), home.symlink_to("/tmp")),
        home.unlink,
    ):
        spoil()
        assert not state(node)["service_user_ready"]
    assert io_facts.state("nobody-else", "/x", "") == {
        **state(node),
        "service_user": "",
        "service_user_ready": False,
        "runtime_mark": "",
    }


@ROOT_ONLY
@pytest.mark.parametrize("name", ["RAY_TOKEN", "MESSAGE_SECRET"])
@pytest.mark.parametrize(
    ("text", "mode", "owner", "known"),
    [
        (TOKEN, 0o600, 0, digest(TOKEN)),
        ("swordfish", 0o600, 0, ""),
        (TOKEN, 0o640, 0, ""),
        (TOKEN, 0o600, 990, ""),
        (None, 0o600, 0, ""),
    ],
    ids=["generated", "a word", "open to a group", "of another user", "a link"],
)
def test_only_a_generated_token_of_root_has_a_digest(
    node: Path, name: str, text: str | None, mode: int, owner: int, known: str
) -> None:
    token, real = Path(getattr(paths, name)), node / "elsewhere"
    token.unlink(missing_ok=True)
    if text is None:
        token.symlink_to(real)
    file = real if text is None else token
    file.write_text(text or TOKEN, encoding="ascii")
    file.chmod(mode)
    os.chown(file, owner, 0)
    assert state(node)[f"{name.lower()}_digest"] == known


@ROOT_ONLY
def test_the_keys_of_the_messages_have_one_mark(node: Path) -> None:
    assert node.is_dir() and state(node)["message_keys_mark"] == ""
    files = [Path(path) for path in (paths.WATCHDOG_KEY, paths.RECORDER_KEYS)]
    for path, text in zip(files, (f"{TOKEN}\n", f"{TOKEN}\n{TOKEN}\n"), strict=True):
        path.write_text(f"{text}{digest('mark')}\n", encoding="ascii")
        path.chmod(0o600)
    assert state(node)["message_keys_mark"] == digest("mark")
    files[1].chmod(0o640)
    assert state(node)["message_keys_mark"] == "", "open to a group"
    files[1].chmod(0o600)
    files[0].write_text(f"{TOKEN}\n{digest('other')}\n", encoding="ascii")
    assert state(node)["message_keys_mark"] == "", "a run was killed in between"


@ROOT_ONLY
@pytest.mark.parametrize("target", ["", "runtime/other", "runtime/abc"])
def test_a_runtime_is_finished_when_the_link_names_it_and_it_has_its_mark(node: Path, target: str) -> None:
    link = node / "runtime/current"
    link.unlink()
    (node / "runtime/other").mkdir()
    if target:
        link.symlink_to(node / target)
    if target == "runtime/abc":
        (node / "runtime/abc/.complete").unlink()
    assert state(node)["runtime_mark"] == ""


@ROOT_ONLY
def test_files_that_a_node_may_have_to_lose_are_found(node: Path) -> None:
    Path(paths.CERTIFICATE).mkdir(parents=True)
    Path(paths.API_KEY[1]).touch()
    Path(paths.SECRET_ENVIRONMENT).symlink_to("/nonexistent")
    Path(paths.WATCHDOG_WEBHOOK).touch()
    assert all(state(node)[name] for name in ("certificate", "api_key", "secret_environment", "watchdog_webhook"))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], False),
        (["libnccl.so.2"], False),
        (["libnccl.so.2 -> /opt/nccl"], True),
        (["libnccl.so.2", "libnccl.so.2.gb10-original"], True),
        (["libnccl.so.2.gb10-original"], True),
    ],
)
def test_a_replaced_library_is_found(tmp_path: Path, names: list[str], expected: bool) -> None:
    folder = tmp_path / "lib/python3.12/site-packages/nvidia/nccl/lib"
    folder.mkdir(parents=True)
    for name, _arrow, target in (name.partition(" -> ") for name in names):
        (folder / name).symlink_to(target) if target else (folder / name).touch()
    assert io_library.replaced(str(tmp_path)) is expected
