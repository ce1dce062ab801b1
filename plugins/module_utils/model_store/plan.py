# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The store of models on the nodes: where a model lies, what it consists of, who sends it to whom, and whether there is room for it.

A model in the store is a folder. Its manifest, written last, says what is in it::

    {"model": str,                # its name on the hub, or the folder that it was copied from
     "revision": str, "commit": str,       # what was asked for and what that was then; "" for a folder
     "files": [{"path": str, "size": int, "sha256": str}]}

A listing, which is what a model consists of before it is there, has the same shape, plus ``"git"`` for each file: the hash of a blob that
git gives small files, "" where there is none. Its ``sha256`` is "" where only reading the file will tell.
"""

from __future__ import annotations

import collections
import fnmatch
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

MANIFEST = "gb10-model.json"
#: What a file is called until it is whole.
PART = ".gb10-part"
#: What a model may be that strangers describe: files, bytes of a file, of a path and of each of its parts (the kernel's own limits), and
#: characters of a manifest. The largest models have hundreds of files and less than 10^13 bytes.
_MOST_FILES, _MOST_BYTES, _MOST_PATH, _MOST_PART = 20_000, 1 << 50, 4096 - 1024, 255 - len(PART)
MOST_TEXT = 32 << 20
#: Bytes of what a peer tells in words.
MOST_WORDS = 2000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}|")
#: Weights in pickles, which vLLM leaves alone where there are safetensors. Source: vLLM 0.32, model_loader/default_loader.py.
_PICKLES = ("*.bin", "*.pt", "*.pth")
_GB = 1e9
#: Problems in one message, and characters of a wrong value.
_MOST_TOLD, _MOST_SHOWN = 10, 100


def plan(hub: str, path: str, revision: str, root: str, enabled: bool, source: str) -> dict[str, str]:
    """Return {folder, hub, revision, source} of a model that is to be in the store, {} for one that is served from where it is.

    ``source``: the folder on the head that it is copied from, "" for the hub. A model that has a folder (``path``) is copied there.
    """
    if not enabled or (path and not source):
        return {}
    if path:
        return {"folder": path, "hub": "", "revision": "", "source": source}
    return {"folder": folder(root, hub, revision), "hub": hub, "revision": revision or "main", "source": source}


def folder(root: str, hub: str, revision: str) -> str:
    """Return where a model of the hub lies; the same whatever its branch points at, so that it is known without asking."""
    return f"{root}/models/{hub.replace('/', '--')}/{(revision or 'main').replace('/', '--')}"


def chain(nodes: Sequence[Mapping[str, Any]], receivers: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return, by node, {upstream, upstream_address, listen}: from whom it receives, and on which address it sends; "" for nobody and none.

    The head, which comes first, sends to the first of the receivers, and each to the next in the plan's order: in a ring that is the
    neighbour on the cable. ``nodes`` are those of the plan, with the addresses of their peers on each rail.
    """
    wanted = set(receivers)
    members = [node for index, node in enumerate(nodes) if index == 0 or node["name"] in wanted]
    links: dict[str, dict[str, str]] = {node["name"]: {"upstream": "", "upstream_address": "", "listen": ""} for node in members}
    for sender, receiver in itertools.pairwise(members):
        cabled = (rail["peers"].get(sender["name"], "") for rail in receiver["rails"])
        address = next((found for found in cabled if found), sender["address"])
        links[receiver["name"]] |= {"upstream": sender["name"], "upstream_address": address}
        links[sender["name"]]["listen"] = address
    return links if len(members) > 1 else {}


def chosen(files: Sequence[Mapping[str, Any]], exclude: Sequence[str]) -> list[dict[str, Any]]:
    """Return the files that serving needs, sorted: not those that match a pattern, nor pickles of the weights beside safetensors."""
    kept = [dict(file) for file in files if not _matches(file["path"], exclude)]
    if any(file["path"].endswith(".safetensors") for file in kept):
        kept = [file for file in kept if not _matches(file["path"], _PICKLES)]
    return sorted(kept, key=lambda file: str(file["path"]))


def weights(files: Sequence[Mapping[str, Any]], exclude: Sequence[str]) -> dict[str, int]:
    """Return the bytes of each file of weights that vLLM would read beside config.json, by name."""
    names = (file["path"] for file in chosen(files, exclude) if "/" not in file["path"])
    found = {*fnmatch.filter(names, "[!.]*.safetensors")}
    return {file["path"]: file["size"] for file in files if file["path"] in found}


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


class PeerError(ValueError):
    """Another machine asks or answers what it must not."""


def request(path: str, digest: str, sizes: Sequence[int]) -> tuple[int, int, bool]:
    """Return (number of a file, its byte to begin with, whether only proven) of what is asked of a sender. Raises PeerError.

    ``sizes``: those of the manifest's files, in its order.
    """
    found = re.fullmatch(rf"/{digest}/([0-9]{{1,9}})/([0-9]{{1,18}})(/proven)?", path)
    if not found or int(found[1]) >= len(sizes) or int(found[2]) > sizes[int(found[1])]:
        raise PeerError("it sends another model")
    return int(found[1]), int(found[2]), bool(found[3])


def check_answer(status: int, length: int | None, count: int, refusal: bytes) -> None:
    """Raise PeerError unless a sender's answer is exactly the bytes that were asked for.

    ``length``: its Content-Length, None for none or no number. ``count``: the bytes that are missing. ``refusal``: how an answer with another status
    than 200 begins.
    """
    if status != 200:
        raise PeerError(words(refusal) or f"it answers with status {status}")
    if length != count:
        raise PeerError(f"it announces {'no number of' if length is None else length} bytes, and {count} are missing")


def words(said: bytes) -> str:
    """Return what another machine tells in words, as one line that is safe to show; "" if it tells nothing."""
    text = said[:MOST_WORDS].decode("utf-8", "replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def files_problem(files: object, hashed: bool = True) -> str:
    """Return what is wrong with the files of a manifest or, not ``hashed``, of a listing; "" if nothing is. Both may come from strangers."""
    if not isinstance(files, Sequence) or isinstance(files, (str, bytes)) or not files:
        return "it lists no files"
    if len(files) > _MOST_FILES:
        return f"it lists {len(files)} files, and {_MOST_FILES} are the most"
    found = [_file_problem(file, hashed) for file in files]
    if not any(found):
        paths = [file["path"] for file in files]
        twice = {path for path, count in collections.Counter(paths).items() if count > 1}
        folders = {"/".join(parts[:end]) for parts in (path.split("/") for path in paths) for end in range(1, len(parts))}
        found = [f"{path!r} is there twice" for path in sorted(twice)] + [f"{path!r} is a file and a folder" for path in sorted(folders & set(paths))]
    told = [problem for problem in found if problem]
    return "; ".join(told[:_MOST_TOLD]) + (f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else "")


def _file_problem(file: object, hashed: bool) -> str:
    if not isinstance(file, Mapping):
        return f"{_shown(file)} is no file"
    path, size, sha256, git = *(file.get(key) for key in ("path", "size", "sha256")), file.get("git", "")
    if not isinstance(path, str) or not _is_path(path):
        return f"{_shown(path)} is no path below a folder"
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= _MOST_BYTES:
        return f"{path!r} has a size of {_shown(size)}"
    if not isinstance(sha256, str) or not (_SHA256.fullmatch(sha256) or (sha256 == "" and not hashed)):
        return f"{path!r} has a SHA-256 of {_shown(sha256)}"
    if not hashed and not (isinstance(git, str) and _GIT.fullmatch(git)):
        return f"{path!r} has a hash of git's of {_shown(git)}"
    return ""


def _is_path(path: str) -> bool:
    """Whether a path ends below the folder that it is put behind, is shown as it is, and is not one of our own names."""
    if len(path) > _MOST_PATH or not path.isprintable() or "\\" in path or path == MANIFEST or path.endswith(PART):
        return False
    return all(part not in ("", ".", "..") and len(part.encode()) <= _MOST_PART for part in path.split("/"))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def manifest(listing: Mapping[str, Any], sha256: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest of a listing whose files have these hashes, by path."""
    files = [{"path": file["path"], "size": file["size"], "sha256": sha256[file["path"]]} for file in listing["files"]]
    return {**{key: listing[key] for key in ("model", "revision", "commit")}, "files": files}


def parse(text: str | None) -> dict[str, Any] | None:
    """Return the manifest in a text, None if it is none: then the model counts as not there."""
    try:
        found = bounded_json.load(text or "null", MOST_TEXT)
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(found.get(key), str) for key in ("model", "revision", "commit")):
        return None
    return None if files_problem(found.get("files")) else found


def digest(given: Mapping[str, Any] | None) -> str:
    """Return what tells one manifest's files from another's, "" for none."""
    if given is None:
        return ""
    return hashlib.sha256(json.dumps([sorted(file.items()) for file in given["files"]], separators=(",", ":")).encode()).hexdigest()


def total(files: Iterable[Mapping[str, Any]]) -> int:
    """Return the bytes of all files."""
    return sum(int(file["size"]) for file in files)


def missing(files: Iterable[Mapping[str, Any]], there: Mapping[str, int]) -> int:
    """Return the bytes that still have to come. ``there``: those on the disk, by path, of parts too; a file with too many comes again."""
    had = ((file["size"], there.get(file["path"], 0)) for file in files)
    return sum(size - (found if found <= size else 0) for size, found in had)


def receivers(nodes: Sequence[str], found: Mapping[str, Mapping[str, Any]], wanted: str, verify: bool) -> list[str]:
    """Return the nodes, of all but the head, that do not have the model with this digest; with ``verify`` all, to be proven again."""
    return [name for name in nodes[1:] if verify or not found[name]["complete"] or found[name]["digest"] != wanted]


def problems(
    store: Mapping[str, str],
    nodes: Sequence[str],
    found: Mapping[str, Mapping[str, Any]],
    listing: Mapping[str, Any] | None,
    reserve: int,
) -> list[Problem]:
    """Return all that speaks against copying: the listing's own problem, and nodes without room.

    ``nodes``: their names, the head first. ``found``: what model_store_info returned, by name. ``listing`` is None where the head has the model.
    """
    result = []
    if listing is not None and listing.get("problem"):
        return [Problem(**listing["problem"])]
    files = (listing or found[nodes[0]]["manifest"] or {"files": []})["files"]
    if listing is not None and (wrong := files_problem(files, hashed=False)):
        return [Problem("model_store", f"{listing['model']}: {wrong}", "a model's files", "choose another model, or report it")]
    for index, name in enumerate(nodes):
        node = found[name]
        bytes_missing = 0 if index == 0 and store["source"] == store["folder"] else missing(files, node["there"])
        if bytes_missing and node["free_bytes"] < bytes_missing + reserve:
            lacks = f"{gigabytes(bytes_missing)} GB of {gigabytes(total(files))} are missing"
            result.append(
                Problem(
                    f"nodes[{index}].{store['folder']}",
                    f"{name} has {gigabytes(node['free_bytes'])} GB free there, and {lacks}",
                    f"{gigabytes(bytes_missing + reserve)} GB, of which {gigabytes(reserve)} stay free (model_store_min_free_bytes)",
                    "remove what is not needed (models that are no longer served are kept), or have gb10_install_dir on a larger file system",
                )
            )
    return result


def gigabytes(count: float) -> str:
    """Return bytes in 10^9, as discs and networks are sold."""
    return f"{count / _GB:.2f}" if count < _GB else f"{count / _GB:.1f}"


def line(status: Mapping[str, Any], done_before: int, seconds: float) -> str:
    """Return how far a node is. ``status`` is what the programs write; ``seconds`` ago it had ``done_before`` bytes."""
    rate = (status["done"] - done_before) / seconds if seconds else 0
    speed = f", {gigabytes(rate)} GB/s" if rate >= _GB else f", {rate / 1e6:.0f} MB/s" if rate > 0 else ""
    return f"{status['state']}: {gigabytes(status['done'])} of {gigabytes(status['total'])} GB{speed}"
