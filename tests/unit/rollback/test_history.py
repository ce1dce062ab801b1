"""The list of launch records, the difference between two, and the target of a rollback with every problem."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import nested
from launches import UNIT, content, node, record, verified, with_arguments

from ansible_collections.gb10.cluster.plugins.module_utils.rollback import history
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as records

OLD = record(time="2026-11-21 10:00:00")
NEW = dataclasses.replace(
    record("new\n", time="2026-11-22 10:00:00", plan=with_arguments("--max-model-len=4096")),
    parent=OLD.id,
    golden="golden answers: 7 equal",
)
OWN = record(plan=with_arguments("--evil"))
PAIR = [node("spark1", [OLD, NEW]), node("spark2", [OLD, NEW])]


def test_the_list_is_newest_first_with_the_change() -> None:
    lines = history.lines(verified(PAIR))
    assert lines[0] == f"{NEW.id[:12]}  2026-11-22 10:00:00  /srv/models/tiny, stack current (current)"
    removed = ("--gpu-memory-utilization=0.79", "--max-num-seqs=64", "--no-enable-flashinfer-autotune")
    changes = [f"serve args: - {word}" for word in removed]
    changes[-1] += ", and 3 more"
    assert lines[1] == f"    since {OLD.id[:12]}: {'; '.join(changes)}"
    assert lines[2:4] == ["    golden answers: 7 equal", "    on all nodes; a rollback needs no download"]
    assert lines[4:] == [
        f"{OLD.id[:12]}  2026-11-21 10:00:00  /srv/models/tiny, stack current",
        "    on all nodes; a rollback needs no download",
    ]


def test_nodes_that_disagree_and_damaged_records_are_named() -> None:
    lines = history.lines(verified([PAIR[0], node("spark2", [OLD], invalid=["x.json: bad"])]))
    current = f"spark1 {NEW.id[:12]}, spark2 {OLD.id[:12]}"
    assert f"warning: the nodes have different current records: {current}. Fix: run site.yml" in lines
    assert "    warning: not on spark2" in lines and "warning: spark2: x.json: bad" in lines
    assert history.lines(verified([node("spark1", [])])) == ["no launch is recorded on this cluster"]
    untimed = record(time="")
    assert history.lines(verified([node("spark1", [untimed])]))[0].startswith(
        f"{untimed.id[:12]}  time unknown  /srv/models/"
    )


def test_the_seconds_of_the_start_are_in_the_list() -> None:
    started = dataclasses.replace(OLD, started={"imports": 18.0, "ranks": 31.2})
    lines = history.lines(verified([node("spark1", [started]), node("spark2", [OLD])]))
    assert lines[1] == "    ready after 49 s (imports 18, ranks 31)"


def test_missing_items_and_the_logged_choices_of_all_nodes_are_in_the_list() -> None:
    logged = [{"attention": [name], "sampler": ["native"]} for name in ("TRITON_ATTN", "FLASHINFER")]
    chosen = [[{"process": "Worker_TP0", "address": "", "found": found}] for found in logged]
    pair = [node(f"spark{number}", [dataclasses.replace(OLD, choices=chosen[number - 1])]) for number in (1, 2)]
    assert history.lines(verified([with_missing(pair[0], OLD.id, "/opt/gb10/runtime/1 is missing"), pair[1]]))[1:] == [
        "    vLLM logged: attention TRITON_ATTN, FLASHINFER; sampler native",
        "    needed for a rollback: spark1: /opt/gb10/runtime/1 is missing",
    ]


def with_missing(of: dict[str, Any], name: str, item: str) -> dict[str, Any]:
    return of | {"records": [each | ({"missing": [item]} if each["id"] == name else {}) for each in of["records"]]}


def test_the_difference_between_any_two() -> None:
    shown = history.compared(verified(PAIR), NEW.id[:6], OLD.id[:12])
    assert shown[0] == f"from {NEW.id[:12]} to {OLD.id[:12]}:"
    added = ["--gpu-memory-utilization=0.79", "--max-num-seqs=64", "--no-enable-flashinfer-autotune"]
    assert shown[1:5] == ["  serve args: - --max-model-len=4096", *(f"  serve args: + {word}" for word in added)]
    assert history.compared(verified(PAIR), OLD.id, OLD.id)[1:] == ["  no difference"]
    drivers = history.difference(record().content, record(driver="590.1").content)
    assert drivers == [f"{name} driver: 580.95 -> 590.1" for name in ("spark1", "spark2")]
    one, turned = (record(plan=with_arguments(*words)).content for words in (("--a", "--b"), ("--b", "--a")))
    assert history.difference(one, turned)[0] == "serve args: another order"


ONE, OTHER = f"0644 {'a' * 64}", f"0644 {'b' * 64}"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({UNIT: ONE}, {UNIT: OTHER}, f"{UNIT}: changed"),
        ({}, {UNIT: ONE}, f"{UNIT}: added"),
        ({UNIT: ONE}, {}, f"{UNIT}: removed"),
    ],
)
def test_the_launch_files_that_differ_are_last(old: dict[str, str], new: dict[str, str], expected: str) -> None:
    """Their digests say nothing."""
    same = {"/etc/gb10/cluster.env": OTHER}
    before, after = (content(files={**same, **files}, driver=driver) for files, driver in ((old, "1"), (new, "2")))
    names = ("spark1", "spark2")
    assert history.difference(before, after) == [
        *(f"{name} driver: 1 -> 2" for name in names),
        *(f"{name}: {expected}" for name in names),
    ]


@pytest.mark.parametrize("wanted", ["ffff0000ffff", "", OLD.id[:3], "../x"])
def test_an_id_of_no_record_is_an_error(wanted: str) -> None:
    with pytest.raises(records.RecordError, match="no record with the ID"):
        history.compared(verified(PAIR), wanted, NEW.id)


def test_the_default_target_is_the_record_before() -> None:
    target = history.target(verified(PAIR), "")
    assert (target["id"], target["former"], target["due"]) == (OLD.id, NEW.id, True)
    assert target["lines"][0] == f"rollback from {NEW.id[:12]} (/srv/models/tiny) to {OLD.id[:12]} (/srv/models/tiny)"
    assert "  serve args: - --max-model-len=4096" in target["lines"]
    assert target["plan"]["nodes"] == [{"name": "spark1"}, {"name": "spark2"}]
    assert target["start"] == OLD.content["start"] and target["former_start"] == NEW.content["start"]


@pytest.mark.parametrize(("differs", "due"), [([], False), ([UNIT], True)])
def test_the_current_record_is_due_when_its_files_differ(differs: list[str], due: bool) -> None:
    pair = [PAIR[0], node("spark2", [OLD, NEW], differs=differs)]
    assert history.target(verified(pair), NEW.id)["due"] is due


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        (PAIR, "ffffffff", ["no record with the ID 'ffffffff'. Expected: one of "]),
        (PAIR, OLD.id[:2], ["no record with the ID"]),
        ([PAIR[0], node("spark2", [OLD])], "", ["the nodes have no common current record"]),
        ([node("spark1", []), node("spark2", [])], "", ["the nodes have no common current record"]),
        ([node("spark1", [OLD]), node("spark2", [OLD])], "", [f"there is no record before {OLD.id[:12]}"]),
        (
            [with_missing(PAIR[0], OLD.id, "/srv/models/tiny is missing"), node("spark2", [NEW])],
            "",
            [f"spark2: the record {OLD.id[:12]} is missing", "spark1: /srv/models/tiny is missing"],
        ),
        ([PAIR[0], node("spark2", [OWN, OLD, NEW])], OWN.id, [f"spark1: the record {OWN.id[:12]} is missing"]),
        (
            [*PAIR, node("spark3", [OLD, NEW])],
            "",
            [f"{OLD.id[:12]} is of the nodes spark1, spark2. Expected: the inventory's nodes"],
        ),
    ],
)
def test_a_rollback_that_cannot_succeed_is_refused_with_every_problem(
    nodes: list[dict[str, Any]], wanted: str, expected: list[str]
) -> None:
    found = refused(nodes, wanted)
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found


def refused(nodes: list[dict[str, Any]], wanted: str) -> list[str]:
    """Return the reasons why a rollback is not possible."""
    with pytest.raises(records.RecordError) as error:
        history.target(verified(nodes), wanted)
    return str(error.value).splitlines()


FORGED = "http://198.51.100.9:8000"


def forged(of: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a node that reports another address of the API under the ID of a record."""
    records = copy.deepcopy(of["records"])
    for each in (each for each in records if each["id"] == name):
        each["content"]["start"]["url"] = each["content"]["plan"]["api"]["url"] = FORGED
    return of | {"records": records}


@pytest.mark.parametrize("order", [1, -1])
def test_a_worker_cannot_replace_the_content_of_a_record(order: int) -> None:
    pair = [PAIR[0], forged(PAIR[1], OLD.id)][::order]
    reason = f"the record {OLD.id} is left out: its content does not have the SHA-256 of its name."
    missing, *_others, warning = refused(pair, "")
    assert missing == f"spark2: the record {OLD.id[:12]} is missing"
    assert warning.startswith(f"warning: spark2: {reason} Fix: ")
    assert any(reason in line for line in history.lines(verified(pair)))
    assert FORGED not in str(history.lines(verified(pair)))


@pytest.mark.parametrize("order", [1, -1])
def test_what_the_id_does_not_cover_comes_from_the_head(order: int) -> None:
    other = dataclasses.replace(NEW, parent="", time="2026-11-24 10:00:00", golden="golden answers: 0 equal")
    pair = [PAIR[0], node("spark2", [OLD, other])][::order]
    assert history.target(verified(pair), "")["id"] == OLD.id
    assert "    golden answers: 7 equal" in history.lines(verified(pair))


def changed(**values: Any) -> dict[str, Any]:
    """Return a node's record with other values, under the ID of its content."""
    found = copy.deepcopy(PAIR[1]["records"][0]) | values
    return found | {"id": records.digest(found["content"])}


def deep(levels: int) -> Any:
    return {"x": deep(levels - 1)} if levels else 1


CONTENT, PLAN = OLD.content, OLD.content["plan"]
SPARK1 = CONTENT["nodes"]["spark1"]


def of_plan(**values: Any) -> dict[str, Any]:
    return changed(content={**CONTENT, "plan": {**PLAN, **values}})


def of_spark1(**values: Any) -> dict[str, Any]:
    return changed(content={**CONTENT, "nodes": {**CONTENT["nodes"], "spark1": {**SPARK1, **values}}})


BAD: dict[str, Any] = {
    "no mapping": 7,
    "no ID": {**PAIR[1]["records"][0], "id": 7},
    "no record": {"id": "../" * 20},
    "another format": changed(content={**CONTENT, "format": 2}),
    "no plan": changed(content={**CONTENT, "plan": {}}),
    "no nodes": changed(content={"format": 1, "plan": PLAN}),
    "another key of the plan": changed(content={**CONTENT, "plan": {key: PLAN[key] for key in PLAN if key != "kind"}}),
    "a model that is a number": of_plan(model=7),
    "a stack without a name": of_plan(stack={key: PLAN["stack"][key] for key in PLAN["stack"] if key != "name"}),
    "a runtime of no plan": of_plan(runtime={**PLAN["runtime"], "other": 1}),
    "an API that is a number": of_plan(api=1),
    "arguments that are a text": of_plan(serve={**PLAN["serve"], "args": "--a"}),
    "a node that is a text": changed(content={**CONTENT, "nodes": {"spark1": "x"}}),
    "overrides that are a list": of_spark1(additions=[]),
    "a node without its mark": changed(content={**CONTENT, "nodes": {"spark1": {**SPARK1, "runtime_mark": 1}}}),
    "many levels": changed(content={**CONTENT, "start": deep(200)}),
    "a time": changed(time=7),
    "a parent": changed(parent=[]),
    "choices": changed(choices=[1]),
    "choices without messages": changed(choices=[{"process": "a", "address": ""}]),
    "findings": changed(findings="a"),
    "a start": changed(started=[1]),
    "a start without seconds": changed(started={"gates": "1"}),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_record_of_another_form_is_left_out_with_its_reason(bad: Any) -> None:
    spoiled = PAIR[1] | {"records": [bad, *PAIR[1]["records"]]}
    target = history.target(verified([PAIR[0], spoiled]), "")
    assert target["id"] == OLD.id
    assert "is left out" in target["lines"][-1] and target["lines"][-1].startswith("warning: spark2: the record ")
    assert len(target["lines"][-1]) < 800


ALONE = record(plan=with_arguments("--c"))
PLACES = [(), ("plan",), ("plan", "runtime"), ("plan", "stack"), ("nodes",), ("nodes", "spark1")]


@pytest.mark.slow
@given(st.sampled_from(PLACES), st.data(), nested(st.none() | st.integers() | st.text(), max_leaves=5))
def test_no_content_of_a_node_breaks_the_list(place: tuple[str, ...], data: st.DataObject, value: Any) -> None:
    content = copy.deepcopy(ALONE.content)
    inner: Any = content
    for key in place:
        inner = inner[key]
    inner[data.draw(st.sampled_from([*inner, "x"]))] = value
    bad = {**node("spark2", [ALONE])["records"][0], "content": content, "id": records.digest(content)}
    spoiled = PAIR[1] | {"records": [{**bad, "parent": OLD.id}, *PAIR[1]["records"]]}
    assert (
        history.lines(verified([PAIR[0], spoiled])) and history.target(verified([PAIR[0], spoiled]), "")["id"] == OLD.id
    )


def test_a_node_adds_no_line_of_its_own() -> None:
    text = "a\nforged\r\x85forged"
    bad = changed(
        time=text,
        golden=text,
        missing=[text],
        choices=[{"process": "", "address": "", "found": {"attention": [text]}}],
        parent=OLD.id,
        content={**CONTENT, "plan": {**PLAN, "model": text, "executor": text, text: text}},
    )
    lines = history.lines(
        verified([PAIR[0], PAIR[1] | {"records": [bad, *PAIR[1]["records"]], "invalid": [text], "current": text}])
    )
    assert len([line for line in lines if "forged" in line]) == 7
    assert not [line for line in lines if len(line.splitlines()) > 1]


@pytest.mark.parametrize("key", ["records", "invalid", "differs", "current", "launch"])
def test_a_node_of_another_form_has_no_records(key: str) -> None:
    spoiled = PAIR[1] | {key: 7}
    warning = f"warning: spark2: answer.{key} is 7, not a "
    assert history.lines(verified([PAIR[0], spoiled]))[-1].startswith(warning)
    assert refused([PAIR[0], spoiled], "")[-1].startswith(warning)


def test_reasons_are_few_and_short() -> None:
    flood = PAIR[1] | {"records": [{"id": "x" * 10_000, "content": "y" * 10_000}] * 5000}
    warnings = [line for line in history.lines(verified([PAIR[0], flood])) if line.startswith("warning: spark2")]
    assert len(warnings) == 9 and warnings[-1] == "warning: spark2: 4992 more records are left out"
    assert max(map(len, warnings)) < 800
