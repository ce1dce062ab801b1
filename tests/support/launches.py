"""Launch records of a pair of Sparks, as their nodes have them."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repository import ROOT
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import history
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import File, Record

PLAN: dict[str, Any] = json.loads((ROOT / "tests/unit/data/plan_two_spark.json").read_text(encoding="utf-8"))
UNIT = "/etc/systemd/system/gb10-vllm.service"
NODES = ("spark1", "spark2")
#: The launch inputs of a node without files.
LAUNCH: dict[str, Any] = {"files": {}, "secret_files": [], "driver": "580.95", "kernel": "6.17.0"}


def files(unit: str) -> dict[str, File]:
    """Return the launch files of a node whose unit has this text."""
    return {"/etc/gb10/cluster.env": File("A=1\n", 0o644), UNIT: File(unit, 0o644)}


def content(unit: str = "unit\n", plan: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the content of a launch. ``changes`` replace values of each node's launch."""
    digests = {path: rollback_record.file_digest(file) for path, file in files(unit).items()}
    launch = LAUNCH | {"files": digests} | changes
    return rollback_record.content(typed(copy.deepcopy(PLAN) if plan is None else plan), dict.fromkeys(NODES, launch))


def record(
    unit: str = "unit\n",
    node: str = "spark1",
    time: str = "2026-11-22 07:29:43",
    plan: dict[str, Any] | None = None,
    **changes: Any,
) -> Record:
    """Return the record of a launch on a node, without parent."""
    return Record(content(unit, plan, **changes), node, files(unit), time)


def with_arguments(*arguments: str) -> dict[str, Any]:
    """Return the plan with other arguments."""
    plan = copy.deepcopy(PLAN)
    plan["serve"]["args"] = list(arguments)
    return plan


def upgraded() -> dict[str, Any]:
    """Return the plan with another runtime."""
    plan = copy.deepcopy(PLAN)
    plan["stack"] |= {"name": "new", "vllm": "9.9.9"}
    plan["runtime"] |= {"digest": "f" * 64} | dict.fromkeys(("name", "path"), "/opt/gb10/runtime/ffffffffffff")
    for each in plan["nodes"]:
        each["runtime_mark"] = "new\n"
    return plan


def put(root: Path, path: str, text: str, mode: int = 0o644) -> None:
    """Write a file below a folder, with the folders above it."""
    file = Path(f"{root}{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)


def runtime(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return a plan whose runtime, model and NCCL are in a folder, with other arguments."""
    plan, mark = with_arguments(*arguments), PLAN["nodes"][0]["runtime_mark"]
    for path in ("runtime/.complete", "model/config.json", "nccl.so"):
        put(folder, f"/{path}", mark)
    plan["model"] = f"{folder}/model"
    plan["runtime"]["path"] = f"{folder}/runtime"
    sha256 = hashlib.sha256(mark.encode()).hexdigest()
    for each in plan["nodes"]:
        each["additions"] = {
            "nccl_sm121_build": {"files": {f"{folder}/nccl.so": sha256}, "environment": {}, "flags": []}
        }
    return plan


def node(name: str, found: list[Record], current: Record | None = None, **changes: Any) -> dict[str, Any]:
    """Return a node as launch_record_info reports it. The last record is the current one unless given."""
    keys = ("id", *rollback_record.REPORTED)
    listed = [{key: getattr(each, key) for key in keys} | {"missing": []} for each in found]
    chosen = current or (found[-1] if found else None)
    return {
        "name": name,
        "current": chosen.id if chosen else "",
        "records": listed,
        "invalid": [],
        "differs": [],
    } | changes


def verified(nodes: Sequence[Mapping[str, Any]]) -> list[history.Reported]:
    """Return nodes, as node() makes them, as the controller reads them."""
    return history.verified({each["name"]: each for each in nodes})
