"""Launch records: their content and ID, hostile files, and the items that a rollback needs."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launches
import pytest
import start_logs
from launches import LAUNCH, PLAN, UNIT, record, with_arguments
from repository import read
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import history, io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import Record, RecordError

GOOD = record()
DATA: dict[str, Any] = json.loads(rollback_record.text(GOOD))


def stored(made: Record) -> Record:
    return rollback_record.stored(json.loads(rollback_record.text(made)), made.id)


def test_a_record_survives_its_file_and_choices_are_not_in_its_id() -> None:
    assert stored(GOOD) == GOOD
    chosen = dataclasses.replace(GOOD, choices=tuple(choices.read(start_logs.H200.splitlines())))
    assert chosen.choices and stored(chosen) == chosen and chosen.id == GOOD.id
    # What a rollback lacks is of today.
    assert stored(dataclasses.replace(GOOD, missing=["x"])) == GOOD
    with pytest.raises(RecordError, match="does not have the SHA-256 of its name"):
        rollback_record.stored(DATA, "0" * 64)


def test_a_record_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    """It has no choices, no findings of the rules, and no tag of an image."""
    name = "24a6e917c8d0acdf240e1320361f445a84f451c64a7389ef4b95888576cd9356"
    path = tmp_path / f"{name}.json"
    path.write_text(read("tests/unit/data/launch_record.json"), encoding="utf-8")
    store = io_record.read(str(tmp_path))
    assert (store.invalid, store.found[name].findings, store.found[name].choices) == ({}, None, ())
    assert [need["kind"] for need in rollback_record.required(store.found[name])] == ["file", "model"]
    pair = [launches.node(each, [store.found[name]]) for each in launches.NODES]
    assert history.target(launches.verified(pair), name)["id"] == name
    assert (
        history.lines(launches.verified(pair))[0]
        == f"{name[:12]}  2026-11-22 07:29:43  /srv/models/tiny, stack current (current)"
    )


def test_the_id_is_of_the_content_alone_and_equal_on_all_nodes() -> None:
    other = dataclasses.replace(record(node="spark2", time=""), parent="0" * 64, golden="golden answers: 7 equal")
    assert other.id == GOOD.id
    assert (
        len({record(unit="other\n").id, record(plan=with_arguments("--a")).id, record(driver="590").id, GOOD.id}) == 4
    )


def test_a_record_has_no_values_of_secrets() -> None:
    plan = copy.deepcopy(PLAN)
    plan["nodes"][0]["secrets"] = ["HF_TOKEN"]
    made = launches.content(plan=plan, secret_files=["/etc/gb10/secret.env"])
    assert made["nodes"]["spark1"]["secrets"] == ["HF_TOKEN"]
    assert not set(rollback_record.FILES) & set(rollback_record.SECRET_FILES)


def test_a_record_has_no_paths_of_the_controller() -> None:
    plan = copy.deepcopy(PLAN)
    plan["runtime"]["lock"] = "/home/alice/my.lock"
    plan["store"] = {"folder": "/opt/gb10/models/a", "hub": "a/b", "revision": "1", "source": "/home/alice/models"}
    assert "alice" not in json.dumps(launches.content(plan=plan))
    assert launches.content(plan=plan)["plan"]["store"]["hub"] == "a/b"


def change(*place: Any, value: Any = None) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        for key in place[:-1]:
            data = data[key]
        data[place[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("apply", "expected"),
    [
        (change("content", "format", value=2), "format is 2"),
        (change("content", value=None), "record.content is None"),
        (change("node", value="spark9"), "its files do not have the digests of its content"),
        (change("files", UNIT, "mode", value=0o4755), "its files do not have the digests of its content"),
        (change("files", UNIT, "mode", value="0644"), f"{UNIT}.mode is '0644'"),
        (
            change("files", UNIT, "text", value="ExecStart=/bin/evil\n"),
            "its files do not have the digests of its content",
        ),
        (change("files", "/etc/passwd", value={"text": "", "mode": 0o644}), "its files do not have the digests"),
        (change("files", value={}), "its files do not have the digests of its content"),
    ],
)
def test_a_damaged_record_is_refused(apply: Callable[[dict[str, Any]], None], expected: str) -> None:
    data = copy.deepcopy(DATA)
    apply(data)
    with pytest.raises(RecordError) as caught:
        rollback_record.stored(data, rollback_record.digest(data["content"]))
    assert expected in str(caught.value)


def needs(**changes: Any) -> list[tuple[str, str, str]]:
    plan = copy.deepcopy(PLAN)
    for each in plan["nodes"]:
        each["additions"] = changes.pop("additions", each["additions"])
    plan["runtime"] = changes.pop("runtime", plan["runtime"])
    made = record(plan=plan, **changes)
    assert stored(made) == made
    return [(need["kind"], need["item"], need["fix"]) for need in rollback_record.required(made)]


def test_a_rollback_needs_the_runtime_and_the_model() -> None:
    assert needs() == [
        (
            "file",
            "/opt/gb10/runtime/4f8896eade30/.complete",
            "gb10_stack: current, or the gb10_runtime_lock with the digest 4f8896eade30",
        ),
        ("model", "/srv/models/tiny", "gb10_model: /srv/models/tiny"),
    ]
    mark = hashlib.sha256(PLAN["nodes"][0]["runtime_mark"].encode()).hexdigest()
    assert next(rollback_record.required(GOOD))["digest"] == mark


def test_a_rollback_needs_image_nccl_patches_and_secret_files() -> None:
    added = {
        "vllm_runtime": {"files": {"img@sha256:1": "ab" * 32}, "environment": {}, "flags": []},
        "vllm_patch": {
            "files": {"model.py": "cd" * 32},
            "environment": {},
            "flags": [],
            "mounts": [{"source": "/opt/gb10/images/1/vllm"}],
        },
        "nccl_sm121_build": {"files": {"/opt/gb10/nccl/1/lib/libnccl.so.2": "ef" * 32}, "environment": {}, "flags": []},
    }
    # As the plan has it: without a folder.
    container = {"kind": "container", "name": "img", "image": "img@sha256:1", "engine": "docker", "engine_args": []}
    found = needs(
        additions=added,
        runtime=container,
        secret_files=["/etc/gb10/api.key", "/etc/gb10/secret.env", "/etc/gb10/tls/api.key"],
    )
    assert found == [
        ("image", f"sha256:{'ab' * 32}", "gb10_container_image: img@sha256:1"),
        ("model", "/srv/models/tiny", "gb10_model: /srv/models/tiny"),
        ("file", "/opt/gb10/nccl/1/lib/libnccl.so.2", "nccl_sm121_build_version: v2.30.7-1"),
        ("file", "/etc/gb10/api.key", "gb10_api_key"),
        ("file", "/etc/gb10/secret.env", "gb10_secret_env"),
        ("file", "/etc/gb10/tls/api.key", "gb10_api_tls_certificate"),
    ]


@pytest.mark.parametrize(("environment", "library"), [({}, "/n.so"), ({"LD_PRELOAD": "/n.so"}, "")])
def test_a_preloaded_nccl_replaces_no_library(environment: dict[str, str], library: str) -> None:
    plan = copy.deepcopy(PLAN)
    plan["nodes"][0]["additions"] = {
        "nccl_sm121_build": {"files": {"/n.so": "ef" * 32}, "environment": environment, "flags": []}
    }
    assert rollback_record.nccl_library(record(plan=plan)) == library
    assert rollback_record.nccl_library(GOOD) == ""


def test_the_newest_records_the_current_one_and_the_one_before_are_kept() -> None:
    found = {name: record(time=f"2026-11-22 07:00:0{name}") for name in "12345"}
    found["2"] = dataclasses.replace(found["2"], parent="1")
    assert rollback_record.kept(found, "2", 2) == {"1", "2", "4", "5"}
    assert rollback_record.kept(found, "", 1) == {"5"}


def of_runtime(path: str, time: str, kind: str = "native") -> rollback_record.Record:
    plan = copy.deepcopy(PLAN)
    plan["runtime"] |= {"path": path, "kind": kind}
    return record(time=f"2026-11-22 {time}:00", plan=plan)


@pytest.mark.parametrize(
    ("keep", "current", "expected"),
    [(0, 4, ["/b", "/a"]), (1, 4, ["/b", "/a"]), (2, 4, ["/a"]), (3, 4, []), (2, 0, ["/b"])],
)
def test_the_environments_of_older_records_are_obsolete(keep: int, current: int, expected: list[str]) -> None:
    made = [
        of_runtime("/a", "01:00"),
        of_runtime("/b", "01:30"),
        of_runtime("/b", "02:00"),
        of_runtime("/x", "02:30", kind="container"),
        of_runtime("/c", "03:00"),
    ]
    found = {each.id: each for each in made}
    assert rollback_record.obsolete(found, made[current].id, keep) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"files": []},
        {"files": {"/etc/shadow": f"0644 {'a' * 64}"}},
        {"files": {"/etc/gb10/cluster.env": "x"}},
        {"secret_files": ["/home/nvidia/.ssh/id_ed25519"]},
        {"secret_files": "x"},
        {"driver": "x" * 257},
        {"kernel": "a\nb"},
        {"kernel": 6},
    ],
    ids=str,
)
def test_the_launch_of_a_node_has_its_form_before_it_is_part_of_every_record(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        rollback_record.content(typed(PLAN), {"spark1": LAUNCH, "spark2": {**LAUNCH, **changes}})


def test_a_launch_can_have_every_file_of_its_services() -> None:
    files = dict.fromkeys((*rollback_record.FILES, "/etc/gb10/overrides.d/vllm_patch.json"), f"0644 {'a' * 64}")
    full = {**LAUNCH, "files": files, "secret_files": list(rollback_record.SECRET_FILES), "driver": ""}
    found = rollback_record.content(typed(PLAN), {"spark1": LAUNCH, "spark2": full})
    assert {name: found["nodes"]["spark2"][name] for name in full} == full


def test_the_launch_of_a_node_replaces_no_other_part() -> None:
    found = rollback_record.content(
        typed(PLAN),
        {"spark1": LAUNCH, "spark2": {**LAUNCH, "head": True, "additions": {"x": 1}, "address": "198.51.100.9"}},
    )
    assert found == rollback_record.content(typed(PLAN), dict.fromkeys(("spark1", "spark2"), LAUNCH))
