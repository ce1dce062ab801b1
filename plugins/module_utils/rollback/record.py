# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A launch record: the inputs of a launch that answered, under the SHA-256 of its content.

A node stores ``{"content", "node", "files", "time", "parent", "golden", "findings", "choices"}``. The content is equal
on all nodes, and so is the ID. It has the digest of each launch file of each node; `files` has the texts of this node's
files. Files with secrets are not in a record; the content has their paths and the names of their variables.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import tls as api_tls
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices, overrides
from ansible_collections.gb10.cluster.plugins.module_utils.model import kind
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

if TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

FORMAT = 1
#: Maximum characters of a record's file. A launch of 16 nodes has about 100000.
MOST = 1 << 22
#: The shown digits of an ID.
SHOWN = 12
#: Maximum levels of a record's content. A launch has 6.
_DEEPEST = 16
#: The longest finding of a rule.
_LONGEST = 1000
ID = re.compile(r"[0-9a-f]{64}")
#: Launch inputs of the services without secrets, in addition to the overrides.
FILES = ("/etc/gb10/cluster.env", paths.GATES_SETTINGS, *(f"{paths.UNIT_FOLDER}/{unit}" for unit in paths.UNITS))
#: Launch inputs with secrets, and the certificate that belongs to the secret key.
SECRET_FILES = (paths.SECRET_ENVIRONMENT, *paths.API_KEY, *api_tls.FILES.values())
#: The variable that installs a secret file.
_SECRET_FIX = {paths.SECRET_ENVIRONMENT: "gb10_secret_env"} | dict.fromkeys(paths.API_KEY, "gb10_api_key")
#: The roles that change or preload files of the runtime, in their overrides' `files`.
PATCH_ROLE, NCCL_ROLE = "vllm_patch", "nccl_sm121_build"
_OVERRIDE = re.compile(rf"{re.escape(paths.OVERRIDES)}/[a-z0-9_]+\.json")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|")
_URL = re.compile(r"https?://[0-9A-Za-z.:\[\]-]+")
_PATH = re.compile(r"(/(?!\.\.?(/|$))[^/\x00-\x1f\x7f]+)+")
_FILE_DIGEST, _SHORT = re.compile(r"0[0-7]{3} [0-9a-f]{64}"), re.compile(r"[^\x00-\x1f\x7f]{0,256}")
_LINE = re.compile(r"[^\x00-\x1f\x7f]{0,4096}")
#: The texts of a record's content: place, keys, and their form.
_TEXTS = (
    (("start",), ("id", "model", "served_model_name", "server_name"), _LINE),
    (("start",), ("url",), _URL),
    (("plan",), ("model", "served_model_name", "quantization", "executor", "nccl"), _LINE),
    (("plan", "runtime"), ("kind", "image", "engine"), _LINE),
    (("plan", "api"), ("url",), _URL),
    (("plan", "api"), ("server_name",), _LINE),
    (("plan", "stack"), ("name", "nccl"), _LINE),
    (("plan", "head"), ("name",), _LINE),
)
#: Keys of the plan that a record has, and that the golden answers and the smoke test of a rollback read.
_PLAN = (
    *("model", "kind", "served_model_name", "quantization", "executor", "stack", "head"),
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
)
#: Without paths of the controller. A container has no folder.
_RUNTIME = ("kind", "name", "image", "tag", "engine", "engine_args", "digest", "path", "link")
_STORE = ("folder", "hub", "revision")
_SERVE = ("args", "user_args", "reasoning", "dimension", "smoke_tokens", "files")
_NODE = ("address", "head", "capability", "additions", "secrets", "runtime_mark")


class RecordError(ValueError):
    """A record that is damaged, or that does not belong to its name."""


@dataclass(frozen=True)
class Record:
    """A verified record of one node.

    ``files``: path -> {text, mode}. ``time``: UTC of its last launch. ``parent``: the ID of the record before, or "".
    ``golden``: the result of the golden answers as one line, or "". ``findings``: those of the rules, None if unknown.
    ``choices``: those of the ranks in this node's log, see launch/choices.py, [] if unknown.
    """

    content: Mapping[str, Any]
    node: str
    files: Mapping[str, Mapping[str, Any]]
    time: str = ""
    parent: str = ""
    golden: str = ""
    findings: Sequence[str] | None = None
    choices: Sequence[Mapping[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The SHA-256 of the content."""
        return digest(self.content)

    @property
    def of_node(self) -> Mapping[str, Any]:
        """The part of the content about this node."""
        found: Mapping[str, Any] = self.content["nodes"][self.node]
        return found


def start(plan: Plan) -> dict[str, Any]:
    """Return the data to verify a launch: {id, model, served_model_name, url, server_name, needs}.

    ``id`` is the same on all nodes. It changes with any launch input. ``needs``: node -> bytes of memory.
    """
    # Nodes read records, and compile a module's code in every run.
    from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv  # noqa: PLC0415

    return {
        "id": launch_argv.start_digest(plan),
        "model": plan.model,
        "served_model_name": plan.served_model_name,
        "url": plan.api.url,
        "server_name": plan.api.server_name,
        "needs": dict(plan.serve.needs),
    }


def content(plan: Plan, launches: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of a launch's record. ``launches``: node -> the result of io_record.launch()."""
    facts = plan.facts()
    nodes = {
        node.name: {
            **{key: plain[key] for key in _NODE},
            "capability": node.capability or "",
            "environment": overrides.rank_environment(node),
            **_launch(launches[node.name]),
        }
        for node, plain in zip(plan.nodes, facts["nodes"], strict=True)
    }
    planned = {key: facts[key] for key in _PLAN} | {
        "runtime": {key: facts["runtime"][key] for key in _RUNTIME if key in facts["runtime"]},
        "store": {key: facts["store"][key] for key in _STORE if key in facts["store"]},
        "api": {key: facts["api"][key] for key in ("url", "server_name")},
        "serve": {key: facts["serve"][key] for key in _SERVE},
        # Whether it was built is in the additions of its role; the plan of the first run may not have decided yet.
        "nccl": plan.nccl.cluster.release,
    }
    return {"format": FORMAT, "start": start(plan), "plan": planned, "nodes": nodes}


def _launch(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return {files, secret_files, driver, kernel} of a node, which becomes part of every node's record.

    Raises RecordError.
    """
    files, secrets = _mapping(found, "files"), _words(found.get("secret_files"), "secret_files")
    if any(path not in FILES and not _OVERRIDE.fullmatch(path) for path in files) or any(
        path not in SECRET_FILES for path in secrets
    ):
        raise RecordError("the launch of a node has a file that is not a launch file")
    return {
        "files": {path: _word(files, path, _FILE_DIGEST) for path in files},
        "secret_files": list(secrets),
        **{key: _word(found, key, _SHORT) for key in ("driver", "kernel")},
    }


def findings(plan: Plan) -> list[str]:
    """Return the findings of the rules about a launch, as lines of a record.

    A user's reason may have other characters.
    """
    return [re.sub(r"[\x00-\x1f\x7f]+", " ", line)[:_LONGEST] for line in plan.serve.findings]


def digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON of a record's content."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_digest(file: Mapping[str, Any]) -> str:
    """Return mode and SHA-256 of a launch file {text, mode}."""
    return f"{file['mode']:04o} {hashlib.sha256(file['text'].encode()).hexdigest()}"


def text(record: Record) -> str:
    """Return the file of a record."""
    keys = ("content", "node", "files", "time", "parent", "golden", "findings", "choices")
    return json.dumps({key: getattr(record, key) for key in keys}, indent=1, sort_keys=True) + "\n"


def parse(data: Mapping[str, Any], name: str) -> Record:
    """Return a record after its verification. ``name``: its ID, from its file name. Raises RecordError."""
    checked(data, name)
    record = Record(
        data["content"],
        _word(data, "node", _LINE),
        {str(path): _file(path, file) for path, file in _mapping(data, "files").items()},
        data["time"],
        data["parent"],
        data["golden"],
        _lines(data, "findings"),
        _choices(data),
    )
    if record.node not in record.content["nodes"]:
        raise RecordError(f"it has no part of the node {record.node!r}")
    if {path: file_digest(file) for path, file in record.files.items()} != _mapping(record.of_node, "files"):
        raise RecordError("its files do not have the digests of its content")
    return record


def checked(data: Mapping[str, Any], name: str) -> None:
    """Verify the parts of a record that a node reports to the controller. ``name``: its ID. Raises RecordError."""
    found = _mapping(data, "content")
    if not shallow(found):
        raise RecordError(f"its content has more than {_DEEPEST} levels")
    if found.get("format") != FORMAT:
        raise RecordError(f"format is {found.get('format')!r}, expected {FORMAT}")
    if digest(found) != name:
        raise RecordError("its content does not have the SHA-256 of its name")
    _word(data, "time", _TIME)
    _word(data, "parent", re.compile(f"({ID.pattern})?"))
    _word(data, "golden", _LINE)
    _lines(data, "findings")
    _choices(data)
    for place, keys, pattern in _TEXTS:
        part = functools.reduce(_mapping, place, found)
        for key in keys:
            _word(part, key, pattern)
    if not all(whole(bytes_) and bytes_ >= 0 for bytes_ in _mapping(found["start"], "needs").values()):
        raise RecordError("needs has a value that is not a number of bytes")
    _plan(found["plan"])
    for node in _mapping(found, "nodes"):
        _node(_mapping(found["nodes"], node))


def shallow(value: object, levels: int = _DEEPEST) -> bool:
    """Return whether data has at most this number of levels."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return levels > 0 and all(shallow(each, levels - 1) for each in inner)


def required(record: Record) -> list[dict[str, str]]:
    """Return the items that must be on the node before the record can be restored: {kind, item, digest, fix}.

    ``kind``: file (``digest``: its SHA-256, "" for any), patch (a file of vLLM's package, see patch/io_tree.py), model
    (a folder) or image (``item``: its ID).
    """
    plan, node = record.content["plan"], record.of_node
    runtime, image, needed = plan["runtime"], plan["runtime"]["image"], []
    if runtime["kind"] == stacks.NATIVE:
        mark = hashlib.sha256(node["runtime_mark"].encode()).hexdigest()
        fix = (
            f"gb10_stack: {plan['stack']['name']}, or the gb10_runtime_lock with the digest {runtime['digest'][:SHOWN]}"
        )
        needed.append(_need("file", f"{runtime['path']}/.complete", mark, fix))
    else:
        got = node["additions"].get(overrides.IMAGE_ROLE, {}).get("files", {}).get(image, "")
        needed.append(_need("image", f"sha256:{got}" if got else image, "", f"gb10_container_image: {image}"))
    if plan["model"].startswith("/"):
        needed.append(_need("model", plan["model"], "", f"gb10_model: {plan['store'].get('hub') or plan['model']}"))
    for path, sha256 in node["additions"].get(NCCL_ROLE, {}).get("files", {}).items():
        needed.append(_need("file", path, sha256, f"nccl_sm121_build_version: {plan['stack']['nccl']}"))
    if patched := node["additions"].get(PATCH_ROLE, {}).get("files", {}):
        fix = f"the vllm_patch_patches of that launch, and site.yml --tags {PATCH_ROLE}"
        needed += [_need("patch", path, sha256, fix) for path, sha256 in patched.items()]
    if node["head"] or plan["executor"] == "mp":
        fix = f"gb10_model: {plan['model']}"
        needed += [_need("file", file["path"], file["sha256"], fix) for file in plan["serve"]["files"]]
    needed += [
        _need("file", path, "", _SECRET_FIX.get(path, "gb10_api_tls_certificate")) for path in node["secret_files"]
    ]
    return needed


def nccl_library(record: Record) -> str:
    """Return the NCCL build that replaces the library of the record's runtime, "" for the runtime's own library."""
    addition = record.of_node["additions"].get(NCCL_ROLE, {})
    linked = addition.get("files", {}) if "LD_PRELOAD" not in addition.get("environment", {}) else {}
    return next(iter(linked), "")


def package(record: Record) -> tuple[str, str]:
    """Return the folders of an image's copied vLLM, "" for a native runtime, and of the tuned tables, "" without
    them."""
    addition = record.of_node["additions"].get(PATCH_ROLE, {})
    mounts, environment = addition.get("mounts", []), addition.get("environment", {})
    return mounts[0]["source"] if mounts else "", environment.get("VLLM_TUNED_CONFIG_FOLDER", "")


def kept(records: Mapping[str, Record], current: str, keep: int) -> set[str]:
    """Return the IDs of the newest records, the current one and the one before it."""
    newest = sorted(records, key=lambda name: (records[name].time, name), reverse=True)[:keep]
    parent = records[current].parent if current in records else ""
    return {*newest, current, parent} & records.keys()


def obsolete(records: Mapping[str, Record], current: str, keep: int) -> list[str]:
    """Return the environments of the records after the first ``keep``: the current record's, then the newest."""
    newest = sorted(records, key=lambda name: (name == current, records[name].time, name), reverse=True)
    runtimes = [records[name].content["plan"]["runtime"] for name in newest]
    folders = dict.fromkeys(runtime["path"] for runtime in runtimes if runtime["kind"] == stacks.NATIVE)
    return list(folders)[max(keep, 1) :]


def whole(value: object) -> bool:
    """Return whether a value is a number without a fraction."""
    return isinstance(value, int) and not isinstance(value, bool)


def _need(kind: str, item: str, sha256: str, fix: str) -> dict[str, str]:
    return {"kind": kind, "item": item, "digest": sha256, "fix": fix}


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    if not isinstance(found, Mapping):
        raise RecordError(f"{key} is not an object")
    return found


def _word(data: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    found = data.get(key)
    if not isinstance(found, str) or not pattern.fullmatch(found):
        raise RecordError(f"{key} is not valid text")
    return found


def _words(found: object, what: str) -> Sequence[str]:
    if not isinstance(found, Sequence) or isinstance(found, str) or not all(isinstance(word, str) for word in found):
        raise RecordError(f"{what} is not a list of texts")
    return found


def _lines(data: Mapping[str, Any], key: str) -> list[str] | None:
    """Return a list of lines, None if a record of an earlier release has none."""
    return None if data.get(key) is None else [_word({key: line}, key, _LINE) for line in _words(data[key], key)]


def _choices(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the choices of the ranks, [] if a record of an earlier release has none."""
    try:
        return choices.parse(data.get("choices", []))
    except ValueError as error:
        raise RecordError(f"choices: {error}") from error


def _file(path: str, file: object) -> Mapping[str, Any]:
    if path not in FILES and not _OVERRIDE.fullmatch(path):
        raise RecordError(f"files has {path!r}, which is not a launch file")
    if not isinstance(file, Mapping) or not isinstance(file.get("text"), str):
        raise RecordError(f"{path} has no text")
    if not whole(file.get("mode")) or not 0 <= file["mode"] <= 0o777:
        raise RecordError(f"{path} has no valid mode")
    return {"text": file["text"], "mode": file["mode"]}


def _plan(found: Mapping[str, Any]) -> None:
    if found.get("kind") not in kind.KINDS:
        raise RecordError(f"kind is none of {', '.join(kind.KINDS)}")
    runtime, store = found["runtime"], _mapping(found, "store")
    if runtime["kind"] == stacks.NATIVE:
        _word(runtime, "digest", _LINE)
        for key in ("path", "link"):
            _word(runtime, key, _PATH)
    for key in ("hub", "revision"):
        if key in store:
            _word(store, key, _LINE)
    _serve(_mapping(found, "serve"))


def _serve(serve: Mapping[str, Any]) -> None:
    for key in ("smoke_tokens", "dimension"):
        if not whole(serve.get(key)):
            raise RecordError(f"serve.{key} is not a number")
    for key in ("args", "user_args"):
        _words(serve.get(key), key)
    if not isinstance(serve.get("files"), Sequence):
        raise RecordError("serve.files is not a list")
    for file in serve["files"]:
        if not isinstance(file, Mapping):
            raise RecordError("serve.files has an entry that is not an object")
        _word(file, "path", _PATH)
        _word(file, "sha256", ID)


def _node(node: Mapping[str, Any]) -> None:
    if not isinstance(node.get("head"), bool):
        raise RecordError("head is neither true nor false")
    _word(node, "runtime_mark", re.compile(r"[^\x00]{0,65536}"))
    for key in ("driver", "kernel", "capability"):
        _word(node, key, _LINE)
    for path in _words(node.get("secret_files"), "secret_files"):
        if path not in SECRET_FILES:
            raise RecordError(f"secret_files has {path!r}, which is not a launch file")
    for role, addition in _mapping(node, "additions").items():
        _addition(role, addition)


def _addition(role: str, addition: object) -> None:
    if not isinstance(addition, Mapping):
        raise RecordError(f"additions.{role} is not an object")
    for key in ("files", "environment"):
        if not all(isinstance(value, str) for value in _mapping({key: addition.get(key, {})}, key).values()):
            raise RecordError(f"additions.{role}.{key} has a value that is not text")
    mounts = addition.get("mounts", [])
    if not isinstance(mounts, list) or not all(isinstance(mount, Mapping) for mount in mounts):
        raise RecordError(f"additions.{role}.mounts is not a list of objects")
    for mount in mounts:
        _word(mount, "source", _PATH)
