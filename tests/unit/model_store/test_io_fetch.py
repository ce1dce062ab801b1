"""Fetching a model to the head: with huggingface_hub from a server on loopback, and from folders."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from fake_hub import COMMIT, NAME, Hub
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_beneath import Folder
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_copy, io_fetch, io_files, io_store
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan

PROGRAM = "ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_copy"
WEIGHTS = b"weights " * 4_000_000
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model-00001-of-00002.safetensors": WEIGHTS,
    "model-00002-of-00002.safetensors": b"more" * 1000,
    "tokenizer/vocab.txt": b"a\nb\n",
    "pytorch_model.bin": b"pickle",
    "original/model.safetensors": b"twice",
}
WANTED = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer/vocab.txt"]
LARGE = "model-00001-of-00002.safetensors"


class Head:
    """Runs the program as its unit does, with its files in a folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url, self.model = folder, url, folder / "model"
        self.listing = folder / "listing.json"

    def run(self, *arguments: str, token: str = "") -> tuple[int, str]:
        """Return the exit status and the output: of a process for the Hub, whose library reads the environment once."""
        if not self.url:
            with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as ended:
                io_copy.main(arguments)
            return int(str(ended.value)), printed.getvalue()
        (self.folder / "hub.token").write_text(f"{token}\n", encoding="utf-8")
        environment = {
            "PATH": os.defpath,
            "PYTHONPATH": f"{ROOT / '.collections'}:{':'.join(path for path in sys.path if path)}",
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(self.folder / "home"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "*",
            "CREDENTIALS_DIRECTORY": str(self.folder),
        }
        argv = [sys.executable, "-m", PROGRAM, *arguments]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert not token or token not in done.stdout + done.stderr
        return done.returncode, done.stdout

    def list(self, *arguments: str, token: str = "") -> dict[str, Any]:
        """Run `list`, store its output for `fetch`, and return it."""
        given = arguments or (f"--hub={NAME}", "--revision=main", "--exclude=original/*")
        status, printed = self.run("list", *given, token=token)
        assert status == 0
        self.listing.write_text(printed, encoding="utf-8")
        answer: dict[str, Any] = json.loads(printed)
        return answer

    def fetch(self, *arguments: str, token: str = "") -> dict[str, Any]:
        """Run `fetch` and return its final status."""
        paths = [f"--listing={self.listing}", f"--folder={self.model}", f"--status={self.folder / 'status.json'}"]
        failed, _printed = self.run("fetch", *paths, *arguments, token=token)
        status: dict[str, Any] = json.loads((self.folder / "status.json").read_text(encoding="utf-8"))
        assert status["state"] == ("failed" if failed else "complete")
        return status

    def copy(self, source: Path) -> dict[str, Any]:
        """List and fetch a folder."""
        assert self.list(f"--source={source}", "--exclude=original/*")["problem"] is None
        return self.fetch(f"--source={source}")

    def manifest(self) -> dict[str, Any] | None:
        known = io_files.manifest(str(self.model))
        return known.plain() if known else None

    def content(self) -> dict[str, bytes]:
        """Return every file below the model's folder except the manifest."""
        files = [path for path in self.model.rglob("*") if path.is_file() and path.name != model_store_plan.MANIFEST]
        return {str(path.relative_to(self.model)): path.read_bytes() for path in files}


Begin = Callable[..., tuple[Head, Hub]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    started = []

    def start(gated: bool = False) -> tuple[Head, Hub]:
        hub = Hub(FILES, gated)
        started.append(hub)
        return Head(tmp_path, hub.url), hub

    yield start
    for hub in started:
        hub.shutdown()
        hub.server_close()


def test_a_model_of_the_hub(begin: Begin) -> None:
    head, hub = begin()
    listing = head.list()
    assert (listing["problem"], listing["commit"]) == (None, COMMIT)
    hashes = [(file["path"], bool(file["sha256"]), bool(file["git"])) for file in listing["files"]]
    assert hashes == [(name, "safetensors" in name, "safetensors" not in name) for name in WANTED]
    total = sum(len(FILES[name]) for name in WANTED)
    assert head.fetch() == {"state": "complete", "done": total, "total": total, "reason": ""}
    assert head.content() == {name: FILES[name] for name in WANTED}, "the library's own files are removed"
    files = [
        {"path": name, "size": len(FILES[name]), "sha256": hashlib.sha256(FILES[name]).hexdigest()} for name in WANTED
    ]
    assert head.manifest() == {"model": NAME, "revision": "main", "commit": COMMIT, "files": files}
    hub.asked.clear()
    assert head.fetch()["state"] == "complete"
    assert hub.asked == [], "verified files are not requested again"


def test_a_download_that_was_cut_goes_on(begin: Begin) -> None:
    head, hub = begin()
    head.list()
    hub.cut[LARGE] = 20_000_000
    assert head.fetch()["state"] == "complete"
    ranges = [asked.partition(" bytes=")[2] for asked in hub.asked if asked.startswith(f"GET {LARGE} bytes=")]
    assert 0 < int(ranges[-1].rstrip("-")) <= 20_000_000
    assert head.content()[LARGE] == WEIGHTS


def test_a_file_that_comes_damaged_is_fetched_once_more(begin: Begin) -> None:
    head, hub = begin()
    head.list()
    hub.damage = {LARGE: 1, "config.json": 1}
    assert head.fetch()["state"] == "complete"
    assert head.content() == {name: FILES[name] for name in WANTED}


def test_a_file_that_stays_damaged_is_an_error(begin: Begin) -> None:
    head, hub = begin()
    head.list()
    hub.damage = {LARGE: 9}
    status = head.fetch()
    assert (status["state"], head.manifest()) == ("failed", None)
    assert f"{LARGE} was damaged in two downloads from Hugging Face Hub" in status["reason"]
    assert LARGE not in head.content()


@pytest.mark.slow
def test_to_verify_finds_what_has_changed(begin: Begin) -> None:
    head, _hub = begin()
    head.list()
    head.fetch()
    for name in (LARGE, "config.json"):
        path = head.model / name
        path.write_bytes(bytes([FILES[name][0] ^ 1]) + FILES[name][1:])
    assert head.fetch()["state"] == "complete"
    assert head.content()[LARGE] != WEIGHTS, "without --verify only the sizes of large files are compared"
    assert head.content()["config.json"] == FILES["config.json"], "a small file is compared with git's hash"
    assert head.fetch("--verify")["state"] == "complete"
    assert head.content() == {name: FILES[name] for name in WANTED}


def test_a_gated_model_needs_the_token_to_list_and_to_fetch(begin: Begin) -> None:
    head, _hub = begin(gated=True)
    for token, access in (("", "without a token"), ("hf_wrong", "with the token in model_store_hub_token")):
        problem = head.list(token=token)["problem"]
        assert (problem["path"], access in problem["found"]) == ("gb10_model", True)
        assert "set model_store_hub_token" in problem["fix"]
    assert head.list(token="hf_right")["problem"] is None
    reason = head.fetch()["reason"]
    assert "cannot be downloaded: 401 Client Error" in reason and "set model_store_hub_token" in reason
    assert head.fetch(token="hf_right")["state"] == "complete"


@pytest.mark.parametrize(
    ("arguments", "path", "words"),
    [
        (("--hub=org/none", "--revision=main"), "gb10_model", "private or nonexistent"),
        ((f"--hub={NAME}", "--revision=v2"), "gb10_model", "no such revision of the model"),
        (
            (),
            "model_store",
            "'../up.json' is not a valid relative path; 'a\\x1b[2J.json' is not a valid relative path",
        ),
    ],
)
def test_what_cannot_be_listed(begin: Begin, arguments: tuple[str, ...], path: str, words: str) -> None:
    head, hub = begin()
    hub.files |= {"../up.json": b"x", "a\x1b[2J.json": b"x"}
    listing = head.list(*arguments)
    problem = listing["problem"]
    assert (problem["path"], words in problem["found"]) == (path, True)
    assert f"--hub={listing['model']}" == (arguments or (f"--hub={NAME}",))[0]


def test_a_hub_that_does_not_answer(tmp_path: Path) -> None:
    problem = Head(tmp_path, "http://127.0.0.1:9").list(f"--hub={NAME}", "--revision=main")["problem"]
    assert problem["path"] == "model_store"
    assert problem["found"].startswith(f"{NAME} at main cannot be downloaded: 127.0.0.1 does not respond: ")


@pytest.mark.parametrize(
    ("source", "found"), [("/nowhere", "folder not found"), ("/proc/self/fdinfo", "config.json is missing")]
)
def test_a_folder_without_a_model(tmp_path: Path, source: str, found: str) -> None:
    listing = Head(tmp_path, "").list(f"--source={source}")
    problem = listing["problem"]
    assert (problem["path"], problem["found"]) == ("model_store_source", f"{source}: {found}")
    assert listing["model"] == source


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (403, "model_store_hub_token"),
        (404, "correct gb10_model"),
        (500, "check the network"),
        (None, "check the network"),
    ],
)
def test_a_refused_download_says_what_would_help(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int | None, advice: str
) -> None:
    error = RuntimeError("the library's own error")
    if status:
        error.response = SimpleNamespace(status_code=status)  # type: ignore[attr-defined]
    library = SimpleNamespace(hf_hub_download=mock.Mock(side_effect=error))
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    listing = model_store_plan.Manifest(NAME, "main", COMMIT, (model_store_plan.File("config.json", 2),))
    store = io_store.Store(str(tmp_path), listing, io_files.Status(str(tmp_path / "status.json"), 2))
    with pytest.raises(io_files.GaveUpError, match="the library's own error") as raised:
        io_fetch.Hub(store).fetch(store.files[0])
    assert advice in str(raised.value)


def plant(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_a_folder_is_copied(tmp_path: Path) -> None:
    source, head = plant(tmp_path / "source"), Head(tmp_path, "")
    head.model.mkdir()
    (head.model / f"{LARGE}{model_store_plan.PART}").write_bytes(b"of an earlier run")
    assert head.copy(source)["state"] == "complete"
    assert head.content() == {name: FILES[name] for name in WANTED}
    assert (head.manifest() or {})["model"] == str(source)
    # With --verify the files are compared with the source.
    (head.model / LARGE).write_bytes(WEIGHTS[:-1] + b"x")
    assert head.fetch(f"--source={source}", "--verify")["state"] == "complete"
    assert head.content()[LARGE] == WEIGHTS


def test_a_folder_that_is_served_itself_is_only_read(tmp_path: Path) -> None:
    head = Head(tmp_path, "")
    plant(head.model)
    before = (head.model / LARGE).stat()
    assert head.copy(head.model)["state"] == "complete"
    assert (head.model / LARGE).stat().st_mtime_ns == before.st_mtime_ns
    assert head.content() == FILES
    assert [file["path"] for file in (head.manifest() or {})["files"]] == WANTED


def test_git_hashes_as_git_does(tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(b"hello\n")
    with Folder(str(tmp_path)).open("hello") as descriptor:
        assert io_store.git_hash(descriptor) == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_no_link_leads_out_of_the_source(tmp_path: Path) -> None:
    source, head, secret = plant(tmp_path / "source"), Head(tmp_path, ""), tmp_path / "secret"
    secret.write_bytes(b"root's alone")
    (source / "good.json").symlink_to("config.json")
    (source / "absolute.json").symlink_to(source / "tokenizer/vocab.txt")
    (source / "left_out.gguf").symlink_to(secret)
    listing = head.list(f"--source={source}", "--exclude=*.gguf")
    sizes = {file["path"]: file["size"] for file in listing["files"]}
    assert (listing["problem"], sizes["absolute.json"]) == (None, len(FILES["tokenizer/vocab.txt"]))
    (source / "absolute_out.json").symlink_to(secret)
    (source / "out.json").symlink_to("../secret")
    (source / "through").symlink_to("..")
    (source / "far.json").symlink_to("through/secret")
    (source / "gone.json").symlink_to("nothing.json")
    os.mkfifo(source / "pipe.json")
    problem = head.list(f"--source={source}", "--exclude=*.gguf")["problem"]
    assert problem["path"] == "model_store_source"
    assert "contains 5 entries that must not be read" in problem["found"]
    for name, words in (
        ("absolute_out.json", f"leads to {secret}, which is outside of {source}"),
        ("far.json", f"leads out of {source}"),
        ("gone.json", "is a broken link"),
        ("out.json", f"leads out of {source}"),
        ("pipe.json", "is not a regular file"),
    ):
        assert f"'{name}' {words}" in problem["found"]


def test_a_link_that_is_planted_between_list_and_fetch_is_not_followed(tmp_path: Path) -> None:
    source, head = plant(tmp_path / "source"), Head(tmp_path, "")
    head.list(f"--source={source}")
    (tmp_path / "secret").write_bytes(FILES["config.json"])
    (source / "config.json").unlink()
    (source / "config.json").symlink_to(tmp_path / "secret")
    status = head.fetch(f"--source={source}")
    assert (status["state"], head.manifest()) == ("failed", None)
    assert f"{source}/config.json leads to {tmp_path / 'secret'}" in status["reason"]
    assert not (head.model / "config.json").exists()


@pytest.mark.parametrize("here", [False, True])
def test_a_hugging_face_cache_is_copied_with_its_blobs_alone(tmp_path: Path, here: bool) -> None:
    cache, head = tmp_path / "models--org--tiny", Head(tmp_path, "")
    source = cache / "snapshots" / COMMIT
    (source / "tokenizer").mkdir(parents=True)
    (cache / "blobs").mkdir()
    (tmp_path / "models--org--other/blobs").mkdir(parents=True)
    for number, name in enumerate(WANTED):
        (cache / "blobs" / str(number)).write_bytes(FILES[name])
        (source / name).symlink_to(f"{'../' * (2 + name.count('/'))}blobs/{number}")
    if here:
        head.model = source
    assert head.copy(source)["state"] == "complete"
    assert head.content() == {name: FILES[name] for name in WANTED}
    (tmp_path / "models--org--other/blobs/0").write_bytes(b"x")
    (source / "other.json").symlink_to("../../../models--org--other/blobs/0")
    (source / "deeper.json").symlink_to("../../blobs/sub/0")
    (source / "refs.json").symlink_to("../../refs")
    (cache / "refs").write_bytes(b"x")
    (cache / "blobs/sub").mkdir()
    (cache / "blobs/sub/0").write_bytes(b"x")
    found = head.list(f"--source={source}")["problem"]["found"]
    assert "contains 3 entries that must not be read" in found
    assert all(name in found for name in ("'other.json'", "'deeper.json'", "'refs.json'"))


def test_a_manifest_that_cannot_be_written_is_the_reason(tmp_path: Path) -> None:
    source, head = plant(tmp_path / "source"), Head(tmp_path, "")
    (head.model / model_store_plan.MANIFEST).mkdir(parents=True)
    reason = head.copy(source)["reason"]
    assert reason.startswith(f"{model_store_plan.MANIFEST} cannot be written in {head.model}: ")


@pytest.mark.parametrize("here", [False, True])
def test_a_source_that_cannot_be_read_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """As a failing disk or a file server's mount."""

    def fail(*_arguments: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    source, head = plant(tmp_path / "source"), Head(tmp_path, "")
    head.model = source if here else head.model
    monkeypatch.setattr(io_fetch.os, "read", fail)
    monkeypatch.setattr(Folder, "sha256", fail)
    reason = head.copy(source)["reason"]
    # The files are copied in parallel.
    assert reason.startswith(f"{source}/") and reason.endswith(" cannot be read: Input/output error")


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("hashed", "fetched"),
    [
        # A node's whole manifest is sent: only an equal one on the disk saves the reading.
        (True, ["changed", "lost"]),
        # The Hub names no hash of a small file, so the manifest on the disk counts for it.
        (False, ["lost"]),
    ],
)
def test_only_read_files_stay_when_the_manifest_is_another_one(
    tmp_path: Path, hashed: bool, fetched: list[str]
) -> None:
    """On the disk, `changed` has other bytes than both manifests say, and `newer` those of the new one already."""
    content = {"changed": b"old!", "newer": b"new.", "lost": b""}
    recorded = {"changed": b"old.", "newer": b"old.", "lost": b"gone"}
    wanted = {"changed": b"old.", "newer": b"new.", "lost": b"back"}
    for name in ("changed", "newer"):
        (tmp_path / name).write_bytes(content[name])

    def manifest(of: dict[str, bytes], unknown: tuple[str, ...] = ()) -> model_store_plan.Manifest:
        files = (model_store_plan.File(name, 4, "" if name in unknown else sha256_of(of[name])) for name in of)
        return model_store_plan.Manifest("m", "", "", tuple(files))

    place = tmp_path / model_store_plan.MANIFEST
    io_files.write_manifest(str(tmp_path), manifest(recorded))
    asked: list[str] = []

    def fetch(entry: io_store.Entry) -> None:
        # A kill from here on leaves no manifest that calls the folder complete.
        assert not place.exists()
        asked.append(entry.path)
        (tmp_path / entry.path).write_bytes(wanted[entry.path])
        entry.accept(sha256_of(wanted[entry.path]))

    status = io_files.Status(str(tmp_path / "status.json"), 12)
    store = io_store.Store(str(tmp_path), manifest(wanted, () if hashed else ("changed",)), status)
    with status.reported():
        io_store.complete(store, fetch, 1, verify=False)
    assert (status.state, sorted(asked)) == ("complete", fetched)
    assert place.exists()


def test_a_failure_stays_though_another_file_begins_later(tmp_path: Path) -> None:
    files = tuple(model_store_plan.File(name, 1) for name in "ab")
    status = io_files.Status(str(tmp_path / "status.json"), 2)
    store = io_store.Store(str(tmp_path), model_store_plan.Manifest("m", "", "", files), status)

    def fetch(entry: io_store.Entry) -> None:
        if entry.path == "a":
            store.give_up("the first reason")
            failed.set()
            raise io_files.GaveUpError("a later reason")
        entry.accept("")

    failed, begun = threading.Event(), threading.Barrier(2)

    def check(entry: io_store.Entry, _known: str) -> None:
        # Both have passed the question whether another one has failed.
        begun.wait(30)
        if entry.path == "b":
            failed.wait(30)

    store.check = check  # type: ignore[method-assign]
    with status.reported():
        io_store.complete(store, fetch, 2, verify=False)
    found = json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))
    assert (found["state"], found["reason"]) == ("failed", "the first reason")


def test_root_does_not_write_through_a_link_in_the_models_folder(tmp_path: Path) -> None:
    source, head, victim = plant(tmp_path / "source"), Head(tmp_path, ""), tmp_path / "victim"
    victim.write_bytes(b"root's alone")
    head.model.mkdir()
    part = head.model / f"config.json{model_store_plan.PART}"
    part.symlink_to(victim)
    assert f"config.json cannot be written in {head.model}" in head.copy(source)["reason"]
    part.unlink()
    # Links in place of a complete file and of the manifest are replaced.
    (head.model / "config.json").symlink_to(victim)
    (head.model / model_store_plan.MANIFEST).symlink_to(victim)
    assert head.copy(source)["state"] == "complete"
    assert (victim.read_bytes(), (head.model / "config.json").is_symlink()) == (b"root's alone", False)
    # A folder in the model is a link to another place.
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(head.model / "tokenizer")
    (head.model / "tokenizer").symlink_to(tmp_path / "elsewhere")
    assert "tokenizer/vocab.txt cannot be written" in head.fetch(f"--source={source}", "--verify")["reason"]
    assert list((tmp_path / "elsewhere").iterdir()) == []
