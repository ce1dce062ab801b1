# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model store on the nodes: a model's folder, its files, the order of the transfers, and the free space.

A model in the store is a folder. Its manifest, written last, lists its files::

    {"model": str,                # its name on Hugging Face Hub, or the source folder
     "revision": str, "commit": str,       # the requested revision and its commit; "" for a folder
     "files": [{"path": str, "size": int, "sha256": str}]}

A listing describes a model before it is fetched. It has the same shape, plus ``"git"`` for each file: git's blob hash
of small files, otherwise "". Its ``sha256`` is "" if it is unknown before the file is read.
"""

from __future__ import annotations

import collections
import fnmatch
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

if TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import PlannedNode

MANIFEST = "gb10-model.json"
#: Suffix of a partial file.
PART = ".gb10-part"
#: Limits for untrusted file lists: files, bytes per file, bytes of a path and of each of its parts (the kernel's
#: limits), and characters of a manifest. The largest models have hundreds of files and less than 10^13 bytes.
_MOST_FILES, _MOST_BYTES, _MOST_PATH, _MOST_PART = 20_000, 1 << 50, 4096 - 1024, 255 - len(PART)
MOST_TEXT = 32 << 20
#: Maximum bytes of a peer's error message.
MOST_WORDS = 2000
_REVISION = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}|")
#: Pickle weights, which vLLM ignores if there are safetensors. Source: vLLM 0.32, model_loader/default_loader.py.
_PICKLES = ("*.bin", "*.pt", "*.pth")
_GB = 1e9
_NOT_FOUND = 404
#: Maximum problems in one message, and characters of an invalid value.
_MOST_TOLD, _MOST_SHOWN = 10, 100


@dataclass(frozen=True)
class File:
    """A file of a model: its path below the model's folder, and its bytes. ``git``: git's blob hash. "" if unknown."""

    path: str
    size: int
    sha256: str = ""
    git: str = ""


@dataclass(frozen=True)
class Manifest:
    """The files of a model, or those of a listing, whose hashes may be unknown."""

    model: str
    revision: str
    commit: str
    files: tuple[File, ...]

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the files."""
        entries = [[("path", file.path), ("sha256", file.sha256), ("size", file.size)] for file in self.files]
        return hashlib.sha256(json.dumps(entries, separators=(",", ":")).encode()).hexdigest()

    def with_hashes(self, sha256: Iterable[str]) -> Manifest:
        """Return the manifest of a listing with the SHA-256 of each file."""
        hashed = zip(self.files, sha256, strict=True)
        return replace(self, files=tuple(File(file.path, file.size, found) for file, found in hashed))

    def plain(self) -> dict[str, Any]:
        """Return the manifest as plain data."""
        files = [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in self.files]
        return {"model": self.model, "revision": self.revision, "commit": self.commit, "files": files}


def plan(hub: str, path: str, revision: str, root: str, enabled: bool, source: str) -> dict[str, str]:
    """Return {folder, hub, revision, source} of a model for the store, {} for a model outside the store.

    ``source``: the source folder on the head, "" for Hugging Face Hub. A model with a folder (``path``) is copied
    there.
    """
    if not enabled or (path and not source):
        return {}
    if path:
        return {"folder": path, "hub": "", "revision": "", "source": source}
    return {"folder": folder(root, hub, revision), "hub": hub, "revision": revision or "main", "source": source}


def is_revision(text: str) -> bool:
    """Return whether a text may be a branch, tag or commit: it becomes part of a path. "" stands for main."""
    return not text or _REVISION.fullmatch(text) is not None


def folder(root: str, hub: str, revision: str) -> str:
    """Return the folder of a model from Hugging Face Hub.

    It does not depend on the branch's current commit, so that it is known without a query.
    """
    return f"{root}/models/{hub.replace('/', '--')}/{(revision or 'main').replace('/', '--')}"


def chain(nodes: Sequence[PlannedNode], receivers: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return by node {upstream, upstream_address, listen, receiver}: sender, sender's address, address to send on, and
    the receiver's addresses with commas.

    Missing values are "". The head is first and sends to the first receiver. Each receiver sends to the next one in the
    plan's order, in a ring the cabled neighbor. ``nodes``: the plan's nodes with their peers' addresses by rail.
    """
    wanted = set(receivers)
    members = [node for index, node in enumerate(nodes) if index == 0 or node.name in wanted]
    links: dict[str, dict[str, str]] = {
        node.name: dict.fromkeys(("upstream", "upstream_address", "listen", "receiver"), "") for node in members
    }
    for sender, receiver in itertools.pairwise(members):
        cabled = (rail.peers.get(sender.name, "") for rail in receiver.rails)
        address = next((found for found in cabled if found), sender.address)
        links[receiver.name] |= {"upstream": sender.name, "upstream_address": address}
        # Which one its connection has is the decision of its kernel.
        own = [receiver.address, *(rail.address.partition("/")[0] for rail in receiver.rails)]
        links[sender.name] |= {"listen": address, "receiver": ",".join(dict.fromkeys(filter(None, own)))}
    return links if len(members) > 1 else {}


def chosen(files: Iterable[File], exclude: Sequence[str]) -> list[File]:
    """Return the files for serving, sorted, without excluded files, and without pickle weights if safetensors exist."""
    kept = [file for file in files if not _matches(file.path, exclude)]
    if any(file.path.endswith(".safetensors") for file in kept):
        kept = [file for file in kept if not _matches(file.path, _PICKLES)]
    return sorted(kept, key=lambda file: file.path)


def weights(files: Iterable[File], exclude: Sequence[str]) -> dict[str, int]:
    """Return the bytes of each weight file that vLLM reads in the folder of config.json, by name."""
    found = (file for file in chosen(files, exclude) if "/" not in file.path)
    return {file.path: file.size for file in found if fnmatch.fnmatch(file.path, "[!.]*.safetensors")}


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def request(path: str, digest: str, sizes: Sequence[int]) -> tuple[int, int, bool] | None:
    """Return (file number, first byte, whether the file must be verified) of a request to a sender, None if invalid.

    ``sizes``: the sizes of the manifest's files, in its order.
    """
    found = re.fullmatch(rf"/{digest}/([0-9]{{1,9}})/([0-9]{{1,18}})(/verified)?", path)
    if not found or int(found[1]) >= len(sizes) or int(found[2]) > sizes[int(found[1])]:
        return None
    return int(found[1]), int(found[2]), bool(found[3])


def answer_problem(status: int, length: int | None, count: int, refusal: bytes) -> str:
    """Return why a sender's response has not exactly the requested bytes, "" if it has.

    ``length``: its Content-Length, None if missing or invalid. ``count``: the missing bytes. ``refusal``: the beginning
    of a response with a status other than 200.
    """
    if status != 200:
        return words(refusal) or f"it returned status {status}"
    found = "invalid" if length is None else length
    return "" if length == count else f"its Content-Length is {found}, expected {count}"


def words(reported: bytes) -> str:
    """Return a peer's error message as one printable line; "" if it is empty."""
    text = reported[:MOST_WORDS].decode("utf-8", "replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def files_problem(files: object, hashed: bool = True) -> str:
    """Return the problems with the files of a manifest or, if not ``hashed``, of a listing; "" if there are none.

    Both are untrusted.
    """
    if not isinstance(files, Sequence) or isinstance(files, (str, bytes)) or not files:
        return "it lists no files"
    if len(files) > _MOST_FILES:
        return f"it lists {len(files)} files, the maximum is {_MOST_FILES}"
    found = [problem for file in files if (problem := _file_problem(file, hashed))] or _path_problems(
        [file["path"] for file in files]
    )
    more = f"; and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
    return "; ".join(found[:_MOST_TOLD]) + more


def _path_problems(paths: Sequence[str]) -> list[str]:
    """Return the conflicts between valid paths."""
    twice = {path for path, count in collections.Counter(paths).items() if count > 1}
    folders = {"/".join(parts[:end]) for parts in (path.split("/") for path in paths) for end in range(1, len(parts))}
    return [
        *(f"{path!r} is listed twice" for path in sorted(twice)),
        *(f"{path!r} is both a file and a folder" for path in sorted(folders & set(paths))),
    ]


def _file_problem(file: object, hashed: bool) -> str:
    if not isinstance(file, Mapping):
        return f"{_shown(file)} is not a file entry"
    path, size, sha256, git = *(file.get(key) for key in ("path", "size", "sha256")), file.get("git", "")
    if not isinstance(path, str) or not _is_path(path):
        return f"{_shown(path)} is not a valid relative path"
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= _MOST_BYTES:
        return f"{path!r} has the invalid size {_shown(size)}"
    if not isinstance(sha256, str) or not (_SHA256.fullmatch(sha256) or (sha256 == "" and not hashed)):
        return f"{path!r} has the invalid SHA-256 {_shown(sha256)}"
    if not hashed and not (isinstance(git, str) and _GIT.fullmatch(git)):
        return f"{path!r} has the invalid git hash {_shown(git)}"
    return ""


def _is_path(path: str) -> bool:
    """Return whether a path stays below its folder, is printable, and is not a name reserved by the model store."""
    if len(path) > _MOST_PATH or not path.isprintable() or "\\" in path or path == MANIFEST or path.endswith(PART):
        return False
    return all(part not in ("", ".", "..") and len(part.encode()) <= _MOST_PART for part in path.split("/"))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def parse(text: str | None, hashed: bool = True) -> Manifest | None:
    """Return the manifest in a text or, if not ``hashed``, the listing.

    None if it is invalid: then the model counts as missing.
    """
    try:
        found = bounded_json.load(text or "null", MOST_TEXT)
    except ValueError:
        return None
    if not isinstance(found, dict) or files_problem(found.get("files"), hashed):
        return None
    model, revision, commit = (found.get(key) for key in ("model", "revision", "commit"))
    if not (isinstance(model, str) and isinstance(revision, str) and isinstance(commit, str)):
        return None
    return Manifest(model, revision, commit, files_of(found["files"]))


def files_of(found: Iterable[Mapping[str, Any]]) -> tuple[File, ...]:
    """Return the files in valid entries; see files_problem()."""
    return tuple(File(each["path"], each["size"], each["sha256"], each.get("git", "")) for each in found)


def total(files: Iterable[File]) -> int:
    """Return the bytes of all files."""
    return sum(file.size for file in files)


def missing(files: Iterable[File], there: Mapping[str, int]) -> int:
    """Return the bytes left to transfer. ``there``: bytes on the disk by path, also of partial files.

    A file with too many bytes counts as missing.
    """
    had = ((file.size, there.get(file.path, 0)) for file in files)
    return sum(size - (found if found <= size else 0) for size, found in had)


def receivers(nodes: Sequence[str], found: Mapping[str, Mapping[str, Any]], wanted: str, verify: bool) -> list[str]:
    """Return the nodes except the head that lack the model with this digest; with ``verify`` all of them."""
    return [name for name in nodes[1:] if verify or not found[name]["complete"] or found[name]["digest"] != wanted]


def problems(
    store: Mapping[str, str],
    nodes: Sequence[str],
    found: Mapping[str, Mapping[str, Any]],
    listing: Mapping[str, Any] | None,
    reserve: int,
) -> list[Problem]:
    """Return the problems that prevent copying: the listing's own problem, and nodes without enough free space.

    ``nodes``: their names, the head first. ``found``: the results of model_store_info by name. ``listing`` is None if
    the head has the model.
    """
    result = []
    if listing is not None and listing.get("problem"):
        return [Problem(**listing["problem"])]
    listed = (listing or found[nodes[0]]["manifest"] or {"files": []})["files"]
    if listing is not None and (wrong := files_problem(listed, hashed=False)):
        fix = "choose another model, or report the error"
        return [Problem("model_store", f"{listing['model']}: {wrong}", "a valid list of model files", fix)]
    files = files_of(listed)
    for index, name in enumerate(nodes):
        node = found[name]
        bytes_missing = 0 if index == 0 and store["source"] == store["folder"] else missing(files, node["there"])
        if bytes_missing and node["free_bytes"] < bytes_missing + reserve:
            lacks = f"{gigabytes(bytes_missing)} GB of {gigabytes(total(files))} are missing"
            result.append(
                Problem(
                    f"nodes[{index}].{store['folder']}",
                    f"{name} has {gigabytes(node['free_bytes'])} GB free, and {lacks}",
                    f"{gigabytes(bytes_missing + reserve)} GB free, so that {gigabytes(reserve)} GB remain "
                    "(model_store_min_free_bytes)",
                    "remove unneeded files (former models are kept), or put gb10_install_dir on a larger file system",
                )
            )
    return result


def hub_problem(name: str, revision: str, reason: str, refused: int = 0) -> Problem:
    """Return the problem of a model that Hugging Face Hub does not give.

    ``refused``: the HTTP status 401, 403 or 404 if no later request would succeed, else 0.
    """
    found = f"{name} at {revision} cannot be downloaded: {reason}"
    if not refused:
        expected = "a connection from the head to Hugging Face Hub, or https_proxy or HF_ENDPOINT in gb10_download_env"
        return Problem("model_store", found, expected, "check the network, or set model_store_source to a folder")
    fix = "correct gb10_model or its revision"
    if refused != _NOT_FOUND:
        fix = (
            "correct gb10_model; for a gated or private model, accept its license on "
            f"https://huggingface.co/{name}, and set model_store_hub_token to a token of that account, in a vault"
        )
    return Problem("gb10_model", found, "a model that Hugging Face Hub gives to the head", fix)


def gigabytes(count: float) -> str:
    """Return bytes in units of 10^9."""
    return f"{count / _GB:.2f}" if count < _GB else f"{count / _GB:.1f}"


def line(status: Mapping[str, Any], done_before: int, seconds: float) -> str:
    """Return a node's progress as a line. ``status``: its status file; ``done_before``: its bytes ``seconds`` ago."""
    rate = (status["done"] - done_before) / seconds if seconds else 0
    speed = f", {gigabytes(rate)} GB/s" if rate >= _GB else f", {rate / 1e6:.0f} MB/s" if rate > 0 else ""
    return f"{status['state']}: {gigabytes(status['done'])} of {gigabytes(status['total'])} GB{speed}"
