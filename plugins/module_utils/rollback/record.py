# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A launch record: the inputs of a launch that answered, under the SHA-256 of its content.

A node stores ``{"content", "node", "files", "time", "parent", "golden", "findings", "choices"}``. The content is equal
on all nodes, and so is the ID. It has the digest of each launch file of each node; `files` has the texts of this node's
files. Files with secrets are not in a record; the content has their paths and the names of their variables.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import tls as api_tls
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

if TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

FORMAT = 1
#: Maximum characters of a record's file. A launch of 16 nodes has about 100000.
MOST = 1 << 22
#: The shown digits of an ID.
SHOWN = 12
#: The longest finding of a rule.
_LONGEST = 1000
#: Launch inputs of the services without secrets, in addition to the overrides.
FILES = ("/etc/gb10/cluster.env", paths.GATES_SETTINGS, *(f"{paths.UNIT_FOLDER}/{unit}" for unit in paths.UNITS))
#: Launch inputs with secrets, and the certificate that belongs to the secret key.
SECRET_FILES = (paths.SECRET_ENVIRONMENT, *paths.API_KEY, *api_tls.FILES.values())
#: The variable that installs a secret file.
_SECRET_FIX = {paths.SECRET_ENVIRONMENT: "gb10_secret_env"} | dict.fromkeys(paths.API_KEY, "gb10_api_key")
#: The roles that change or preload files of the runtime, in their overrides' `files`.
PATCH_ROLE, NCCL_ROLE = "vllm_patch", "nccl_sm121_build"
#: What a record has of a launch file that a node reports.
_REPORTED = re.compile(
    rf"(?:{'|'.join(map(re.escape, FILES))}|{re.escape(paths.OVERRIDES)}/[a-z0-9_]+\.json) 0[0-7]{{3}} [0-9a-f]{{64}}"
)
_SHORT = re.compile(r"[^\x00-\x1f\x7f]{0,256}")
#: Keys of the plan that a record has, and that the golden answers and the smoke test of a rollback read.
PLAN = (
    *("model", "kind", "served_model_name", "quantization", "executor", "stack", "head"),
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
)
#: Of its parts, as far as they have the keys. Without paths of the controller. A container has no folder.
PARTS = {
    "runtime": ("kind", "name", "image", "tag", "engine", "engine_args", "digest", "path", "link"),
    "store": ("folder", "hub", "revision"),
    "api": ("url", "server_name"),
    "serve": ("args", "user_args", "reasoning", "dimension", "smoke_tokens", "files"),
}
#: Of a node in the plan.
NODE = ("address", "head", "capability", "additions", "secrets", "runtime_mark")
#: The parts of launch overrides that a role may leave out.
_WITHOUT: Mapping[str, Any] = {"files": {}, "environment": {}, "mounts": []}
#: What a node reports of a record to the controller.
REPORTED = ("content", "time", "parent", "golden", "findings", "choices", "started")


class RecordError(ValueError):
    """A record that is damaged, or that does not belong to its name."""


@dataclass(frozen=True)
class Launch:
    """The launch inputs of a node. ``files``: path -> file_digest()."""

    files: Mapping[str, str]
    secret_files: Sequence[str]
    driver: str
    kernel: str


@dataclass(frozen=True)
class File:
    """A launch file. ``mode``: its permission bits."""

    text: str
    mode: int


@dataclass(frozen=True)
class Record:
    """A record of one node, or what a node reports about it: without ``node`` and ``files``.

    ``time``: UTC of its last launch. ``parent``: the ID of the record before, or "". ``golden``: the result of the
    golden answers as one line, or "". ``findings``: those of the rules, None if unknown. ``choices``: those of the
    ranks in this node's log, see launch/choices.py, [] if unknown. ``started``: the seconds of the start's parts, see
    launch/start.py, {} if unknown. ``missing``: what a rollback lacks on the node; its file has none.
    """

    content: Mapping[str, Any]
    node: str = ""
    files: Mapping[str, File] = field(default_factory=dict)
    time: str = ""
    parent: str = ""
    golden: str = ""
    findings: Sequence[str] | None = None
    choices: Sequence[Mapping[str, Any]] = ()
    started: Mapping[str, float] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def id(self) -> str:
        """The SHA-256 of the content."""
        return digest(self.content)

    @property
    def of_node(self) -> Mapping[str, Any]:
        """The part of the content about this node."""
        return dict(self.content["nodes"][self.node])

    def addition(self, role: str, key: str) -> Any:
        """Return a part of a role's launch overrides of this node, {} or [] without it."""
        return self.of_node["additions"].get(role, {}).get(key, _WITHOUT[key])


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
    """Return the content of a launch's record. ``launches``: node -> its Launch as plain data. Raises RecordError."""
    facts = plan.facts()
    nodes = {
        node.name: {
            **{key: plain[key] for key in NODE},
            "capability": node.capability or "",
            "environment": overrides.rank_environment(node),
            **_launch(launches[node.name]),
        }
        for node, plain in zip(plan.nodes, facts["nodes"], strict=True)
    }
    planned = {key: facts[key] for key in PLAN} | {
        part: {key: facts[part][key] for key in keys if key in facts[part]} for part, keys in PARTS.items()
    }
    # Whether NCCL was built is in the additions of its role; the plan of the first run may not have decided yet.
    planned["nccl"] = plan.nccl.cluster.release
    return {"format": FORMAT, "start": start(plan), "plan": planned, "nodes": nodes}


def _launch(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the launch of a node, which becomes part of every node's record. Raises RecordError."""
    try:
        found = load.chosen(Launch, reported, "launch")
    except TypeError as error:
        raise RecordError(str(error)) from None
    if not (
        all(_REPORTED.fullmatch(f"{path} {file}") for path, file in found.files.items())
        and set(found.secret_files) <= set(SECRET_FILES)
        and all(_SHORT.fullmatch(text) for text in (found.driver, found.kernel))
    ):
        raise RecordError("the launch of a node has other values than launch files with their digests and two lines")
    return dict(load.plain(found))


def findings(plan: Plan) -> list[str]:
    """Return the findings of the rules about a launch, as lines of a record.

    A user's reason may have other characters.
    """
    return [re.sub(r"[\x00-\x1f\x7f]+", " ", line)[:_LONGEST] for line in plan.serve.findings]


def digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON of a record's content."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_digest(file: File) -> str:
    """Return mode and SHA-256 of a launch file."""
    return f"{file.mode:04o} {hashlib.sha256(file.text.encode()).hexdigest()}"


def text(record: Record) -> str:
    """Return the file of a record."""
    found = {key: value for key, value in load.plain(record).items() if key != "missing"}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def parse(data: Mapping[str, Any], name: str) -> Record:
    """Return a record with this ID, so that its content is that of the launch. Raises RecordError."""
    try:
        record = load.chosen(Record, data, "record")
    except TypeError as error:
        raise RecordError(str(error)) from None
    if record.content.get("format") != FORMAT:
        raise RecordError(f"format is {record.content.get('format')!r}, expected {FORMAT}")
    if record.id != name:
        raise RecordError("its content does not have the SHA-256 of its name")
    return record


def stored(data: Mapping[str, Any], name: str) -> Record:
    """Return the record in a node's file. Raises RecordError."""
    return complete(parse(data, name))


def complete(record: Record) -> Record:
    """Return a record of this node, whose launch files must be those of its content. Raises RecordError."""
    launch = record.content.get("nodes", {}).get(record.node) or {}
    if {path: file_digest(file) for path, file in record.files.items()} != launch.get("files"):
        raise RecordError("its files do not have the digests of its content")
    return record


def required(record: Record) -> Iterator[dict[str, str]]:
    """Yield the items that must be on the node before the record can be restored: {kind, item, digest, fix}.

    ``kind``: file (``digest``: its SHA-256, "" for any), model (a folder) or image (``item``: its ID). The patched
    files of vLLM are not in it.
    """
    plan, node = record.content["plan"], record.of_node
    runtime, stack = plan["runtime"], plan["stack"]
    if runtime["kind"] == stacks.NATIVE:
        mark = hashlib.sha256(node["runtime_mark"].encode()).hexdigest()
        fix = f"gb10_stack: {stack['name']}, or the gb10_runtime_lock with the digest {runtime['digest'][:SHOWN]}"
        yield _need("file", f"{runtime['path']}/.complete", mark, fix)
    else:
        image = runtime["image"]
        got = record.addition(overrides.IMAGE_ROLE, "files").get(image, "")
        yield _need("image", f"sha256:{got}" if got else image, "", f"gb10_container_image: {image}")
    if plan["model"].startswith("/"):
        yield _need("model", plan["model"], "", f"gb10_model: {plan['store'].get('hub') or plan['model']}")
    for path, sha256 in record.addition(NCCL_ROLE, "files").items():
        yield _need("file", path, sha256, f"nccl_sm121_build_version: {stack['nccl']}")
    for file in plan["serve"]["files"] if node["head"] or plan["executor"] == "mp" else ():
        yield _need("file", file["path"], file["sha256"], f"gb10_model: {plan['model']}")
    for path in node["secret_files"]:
        yield _need("file", path, "", _SECRET_FIX.get(path, "gb10_api_tls_certificate"))


def _need(kind: str, item: str, sha256: str, fix: str) -> dict[str, str]:
    return {"kind": kind, "item": item, "digest": sha256, "fix": fix}


def nccl_library(record: Record) -> str:
    """Return the NCCL build that replaces the library of the record's runtime, "" for the runtime's own library."""
    if "LD_PRELOAD" in record.addition(NCCL_ROLE, "environment"):
        return ""
    return next(iter(record.addition(NCCL_ROLE, "files")), "")


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
