"""Launch records: their content and ID, hostile files, and the items that a rollback needs."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import launches
import pytest
import start_logs
from hypothesis import given
from hypothesis import strategies as st
from json_values import nested
from launches import PLAN, UNIT, record, with_arguments
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback.record import RecordError

GOOD = record()
DATA: dict[str, Any] = json.loads(rollback_record.text(GOOD))


def test_a_record_survives_its_file_and_choices_are_not_in_its_id() -> None:
    assert rollback_record.parse(DATA, GOOD.id) == GOOD
    chosen = dataclasses.replace(GOOD, choices=choices.read(start_logs.H200.splitlines()))
    assert chosen.choices and rollback_record.parse(json.loads(rollback_record.text(chosen)), GOOD.id) == chosen
    earlier = {key: value for key, value in DATA.items() if key != "choices"}
    assert rollback_record.parse(earlier, GOOD.id).choices == []
    with pytest.raises(RecordError, match="does not have the SHA-256 of its name"):
        rollback_record.parse(DATA, "0" * 64)


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


RUNTIME, NODE = ("content", "plan", "runtime"), ("content", "nodes", "spark1")


@pytest.mark.parametrize(
    ("apply", "expected"),
    [
        (change("content", "format", value=2), "format is 2"),
        (change("content", "plan", value=[]), "plan is not an object"),
        (change("content", "plan", "kind", value="other"), "kind is none of generate, embed, rerank"),
        (change("content", value=None), "content is not an object"),
        (change("node", value="spark9"), "it has no part of the node 'spark9'"),
        (change("time", value="yesterday"), "time is not valid text"),
        (change("parent", value="../../x"), "parent is not valid text"),
        (change("golden", value="a\x1b[0m"), "golden is not valid text"),
        (
            change("choices", value=[{"process": "a\x1b", "address": "", "found": {}}]),
            "choices: a value is not a short text",
        ),
        (change("choices", value={}), "choices: it is not a list of processes"),
        (
            change("files", "/etc/passwd", value={"text": "", "mode": 0o644}),
            "'/etc/passwd', which is not a launch file",
        ),
        (
            change("files", "/etc/gb10/overrides.d/../x.json", value={"text": "", "mode": 0o644}),
            "which is not a launch file",
        ),
        (change("files", "/etc/gb10/secret.env", value={"text": "", "mode": 0o600}), "which is not a launch file"),
        (change("files", UNIT, "mode", value=0o4755), f"{UNIT} has no valid mode"),
        (change("files", UNIT, "mode", value=True), f"{UNIT} has no valid mode"),
        (
            change("files", UNIT, "text", value="ExecStart=/bin/evil\n"),
            "its files do not have the digests of its content",
        ),
        (change("files", value={}), "its files do not have the digests of its content"),
        (change("content", "start", "url", value="http://a/b?c"), "url is not valid text"),
        (change("content", "start", "needs", value={"spark1": -1}), "not a number of bytes"),
        (change(*RUNTIME, "path", value="/opt/../etc"), "path is not valid text"),
        (change(*RUNTIME, "link", value="current"), "link is not valid text"),
        (change("content", "plan", "serve", "args", value="--a"), "args is not a list of texts"),
        (change("content", "plan", "serve", "files", value=[{"path": "x", "sha256": "y"}]), "path is not valid text"),
        (change("content", "plan", "api", value={}), "url is not valid text"),
        (change(*NODE, "secret_files", value=["/etc/shadow"]), "'/etc/shadow', which is not a launch file"),
        (change(*NODE, "additions", value={"a": []}), "additions.a is not an object"),
        (change(*NODE, "additions", value={"a": {"files": {"b": 1}}}), "files has a value that is not text"),
        (change(*NODE, "additions", value={"a": {"mounts": [{"source": "../x"}]}}), "source is not valid text"),
    ],
)
def test_an_invalid_record_is_refused(apply: Callable[[dict[str, Any]], None], expected: str) -> None:
    data = copy.deepcopy(DATA)
    apply(data)
    name = rollback_record.digest(data["content"]) if isinstance(data["content"], dict) else GOOD.id
    with pytest.raises(RecordError) as caught:
        rollback_record.parse(data, name)
    assert expected in str(caught.value)


SCALARS = st.none() | st.booleans() | st.integers() | st.text()
JSON = nested(SCALARS, max_leaves=5)
PLACES = [
    ("content",),
    ("files",),
    ("content", "start"),
    ("content", "plan"),
    RUNTIME,
    ("content", "plan", "serve"),
    NODE,
    (*NODE, "additions"),
]


@given(st.sampled_from(PLACES), st.data(), JSON)
def test_no_value_raises_anything_but_the_records_own_error(
    place: tuple[str, ...], data: st.DataObject, value: Any
) -> None:
    changed = copy.deepcopy(DATA)
    inner = changed
    for key in place:
        inner = inner[key]
    inner[data.draw(st.sampled_from([*inner, "x"]))] = value
    with contextlib.suppress(RecordError):
        rollback_record.required(rollback_record.parse(changed, rollback_record.digest(changed["content"])))


def needs(**changes: Any) -> list[tuple[str, str, str]]:
    plan = copy.deepcopy(PLAN)
    for each in plan["nodes"]:
        each["additions"] = changes.pop("additions", each["additions"])
    plan["runtime"] = changes.pop("runtime", plan["runtime"])
    made = record(plan=plan, **changes)
    assert rollback_record.parse(json.loads(rollback_record.text(made)), made.id) == made
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
    assert rollback_record.required(GOOD)[0]["digest"] == mark


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
        ("patch", "model.py", "the vllm_patch_patches of that launch, and site.yml --tags vllm_patch"),
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


LAUNCH: dict[str, Any] = {"files": {}, "secret_files": [], "driver": "580.95", "kernel": "6.17.0"}


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


def test_the_launch_of_a_node_replaces_no_other_part() -> None:
    found = rollback_record.content(
        typed(PLAN),
        {"spark1": LAUNCH, "spark2": {**LAUNCH, "head": True, "additions": {"x": 1}, "address": "198.51.100.9"}},
    )
    assert found == rollback_record.content(typed(PLAN), dict.fromkeys(("spark1", "spark2"), LAUNCH))
