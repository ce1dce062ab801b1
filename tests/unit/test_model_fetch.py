"""Bringing a model to the head: huggingface_hub itself against a hub on loopback, and folders."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub import COMMIT, NAME, Hub
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils import io_model_fetch, model_store

PROGRAM = "ansible_collections.gb10.cluster.plugins.module_utils.io_model_fetch"
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
    """The program as a unit runs it, with its files in a folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url, self.model = folder, url, folder / "model"
        self.listing = folder / "listing.json"

    def run(self, *arguments: str, token: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.defpath, "PYTHONPATH": f"{ROOT / '.collections'}:{':'.join(path for path in sys.path if path)}"}
        environment |= {"HF_ENDPOINT": self.url, "HF_HOME": str(self.folder / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "*"}
        if token:
            environment["CREDENTIALS_DIRECTORY"] = str(self.folder)
            (self.folder / "hub.token").write_text(f"{token}\n", encoding="utf-8")
        return subprocess.run([sys.executable, "-m", PROGRAM, *arguments], env=environment, capture_output=True, text=True, check=False)

    def list(self, *arguments: str, token: str = "") -> dict[str, Any]:
        """What `list` prints, kept for `fetch`."""
        done = self.run("list", *(arguments or (f"--hub={NAME}", "--revision=main", "--exclude=original/*")), token=token)
        assert done.returncode == 0, done.stderr
        self.listing.write_text(done.stdout, encoding="utf-8")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def fetch(self, *arguments: str, token: str = "") -> dict[str, Any]:
        """The status that `fetch` ends with."""
        paths = [f"--listing={self.listing}", f"--folder={self.model}", f"--status={self.folder / 'status.json'}"]
        done = self.run("fetch", *paths, *arguments, token=token)
        status: dict[str, Any] = json.loads((self.folder / "status.json").read_text(encoding="utf-8"))
        assert (done.returncode == 0) is (status["state"] == "complete"), done.stderr
        assert not token or token not in done.stdout + done.stderr
        return status

    def manifest(self) -> dict[str, Any] | None:
        path = self.model / model_store.MANIFEST
        return model_store.parse(path.read_text(encoding="utf-8")) if path.exists() else None

    def content(self) -> dict[str, bytes]:
        """Every file below the model's folder, but for the manifest."""
        files = [path for path in self.model.rglob("*") if path.is_file() and path.name != model_store.MANIFEST]
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
    assert (listing["problem"], listing["commit"], [file["path"] for file in listing["files"]]) == (None, COMMIT, WANTED)
    assert [bool(file["sha256"]) for file in listing["files"]] == [False, True, True, False]
    assert all(file["git"] for file in listing["files"] if not file["sha256"])
    status = head.fetch()
    assert (status["state"], status["done"], status["total"]) == ("complete", status["total"], sum(len(FILES[name]) for name in WANTED))
    assert head.content() == {name: FILES[name] for name in WANTED}, "nothing of the library's own is left"
    known = head.manifest()
    assert known is not None
    assert (known["model"], known["revision"], known["commit"]) == (NAME, "main", COMMIT)
    assert {file["path"]: file["sha256"] for file in known["files"]} == {name: hashlib.sha256(FILES[name]).hexdigest() for name in WANTED}
    hub.asked.clear()
    assert head.fetch()["state"] == "complete"
    assert hub.asked == [], "what is proven is not asked for again"


def test_a_download_that_was_cut_goes_on(begin: Begin) -> None:
    head, hub = begin()
    head.list()
    hub.cut[LARGE] = 20_000_000
    assert head.fetch()["state"] == "complete"
    ranges = [int(asked.rpartition("=")[2].rstrip("-")) for asked in hub.asked if asked.startswith(f"GET {LARGE} bytes=")]
    assert ranges
    assert 0 < ranges[-1] <= 20_000_000
    assert head.content()[LARGE] == WEIGHTS


def test_a_file_that_comes_damaged_is_fetched_once_more(begin: Begin) -> None:
    head, hub = begin()
    head.list()
    hub.damage = {LARGE: 1, "config.json": 1}
    assert head.fetch()["state"] == "complete"
    assert head.content()[LARGE] == WEIGHTS
    assert head.content()["config.json"] == FILES["config.json"]


def test_a_file_that_stays_damaged_is_an_error(begin: Begin) -> None:
    head, hub = begin()
    head.list()
    hub.damage = {LARGE: 9}
    status = head.fetch()
    assert (status["state"], head.manifest()) == ("failed", None)
    assert f"{LARGE} came damaged twice from the hub" in status["reason"]
    assert LARGE not in head.content()


def test_to_verify_finds_what_has_changed(begin: Begin) -> None:
    head, _hub = begin()
    head.list()
    head.fetch()
    for name in (LARGE, "config.json"):
        path = head.model / name
        path.write_bytes(bytes([FILES[name][0] ^ 1]) + FILES[name][1:])
    assert head.fetch()["state"] == "complete"
    assert head.content()[LARGE] != WEIGHTS, "only sizes are looked at unless asked"
    assert head.fetch("--verify")["state"] == "complete"
    assert head.content() == {name: FILES[name] for name in WANTED}


@pytest.mark.parametrize(("token", "own"), [("", "no token"), ("hf_wrong", "the token in model_store_hub_token")])
def test_a_gated_model(begin: Begin, token: str, own: str) -> None:
    head, _hub = begin(gated=True)
    problem = head.list(token=token)["problem"]
    assert problem["path"] == "model_store_hub_token"
    assert own in problem["found"]
    assert "ansible-vault" in problem["fix"]
    assert head.list(token="hf_right")["problem"] is None
    assert head.fetch(token="hf_right")["state"] == "complete"


def test_access_that_is_lost_meanwhile(begin: Begin) -> None:
    head, hub = begin()
    head.list()
    hub.gated = True
    status = head.fetch()
    assert status["state"] == "failed"
    assert "gated or private" in status["reason"]


@pytest.mark.parametrize(
    ("arguments", "path", "words"),
    [
        (("--hub=org/none",), "model_store_hub_token", "there is none of that name"),
        ((f"--hub={NAME}", "--revision=v2"), "gb10_models", "has no revision v2"),
        (("--source=/nowhere",), "model_store_source", "/nowhere: there is no such folder"),
        (("--source=/proc/self/fdinfo",), "model_store_source", "it has no config.json"),
    ],
)
def test_what_cannot_be_listed(begin: Begin, arguments: tuple[str, ...], path: str, words: str) -> None:
    head, _hub = begin()
    problem = head.list(*arguments)["problem"]
    assert problem["path"] == path
    assert words in problem["found"]


def test_a_hub_that_does_not_answer(tmp_path: Path) -> None:
    problem = Head(tmp_path, "http://127.0.0.1:9").list(f"--hub={NAME}")["problem"]
    assert (problem["path"], "does not answer" in problem["found"]) == ("model_store", True)


def plant(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_a_folder_is_copied(tmp_path: Path) -> None:
    source, head = plant(tmp_path / "source"), Head(tmp_path, "")
    head.list(f"--source={source}", "--exclude=original/*")
    (head.model).mkdir()
    (head.model / f"{LARGE}{model_store.PART}").write_bytes(b"of an earlier run")
    assert head.fetch(f"--source={source}")["state"] == "complete"
    assert head.content() == {name: FILES[name] for name in WANTED}
    known = head.manifest()
    assert known is not None
    assert known["model"] == str(source)
    # The source is what counts when all is proven again.
    (head.model / LARGE).write_bytes(WEIGHTS[:-1] + b"x")
    assert head.fetch(f"--source={source}", "--verify")["state"] == "complete"
    assert head.content()[LARGE] == WEIGHTS


def test_a_folder_that_is_served_itself_is_only_read(tmp_path: Path) -> None:
    head = Head(tmp_path, "")
    plant(head.model)
    head.list(f"--source={head.model}")
    before = (head.model / LARGE).stat()
    assert head.fetch(f"--source={head.model}")["state"] == "complete"
    assert (head.model / LARGE).stat() == before or (head.model / LARGE).stat().st_mtime_ns == before.st_mtime_ns
    assert head.content() == FILES
    known = head.manifest()
    assert known is not None
    assert [file["path"] for file in known["files"]] == sorted(set(FILES) - {"pytorch_model.bin"})


def test_git_hashes_as_git_does(tmp_path: Path) -> None:
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    assert io_model_fetch.git_hash(str(path)) == "ce013625030ba8dba906f756967f9e9ca394464a"
