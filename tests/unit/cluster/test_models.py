"""Tests of the table of models: one plan for each, the order, the reasons, and problems that are not about a model."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_nodes import KNOWN, LOCK, Node, cluster_plan, spark

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import models
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.models import Row
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog

CONFIG = catalog.find("qwen2.5-7b-instruct").config


def sparks(count: int, **settings: Any) -> list[Node]:
    """Return nodes without gb10_model, cabled to a switch if there are more than two."""
    given = {"gb10_model": "", "gb10_fabric_topology": "switch" if count > 2 else "auto", **settings}
    return [spark(number, "worker" if number > 1 else "head", **given) for number in range(1, count + 1)]


def survey(nodes: list[Node]) -> tuple[dict[str, Row], list[Problem]]:
    """Return the rows by name in their order, and the problems."""
    rows, problems = models.survey(parse(nodes, LOCK), KNOWN)
    return {row.name: row for row in rows}, problems


def surveyed(nodes: list[Node]) -> dict[str, Row]:
    rows, problems = survey(nodes)
    assert problems == []
    return rows


@pytest.mark.parametrize(
    ("count", "refused", "published"),
    [
        (
            1,
            [
                "nemotron-3-ultra-550b-a55b-nvfp4",
                "qwen2.5-72b-instruct",
                "llama-3.1-70b-instruct",
                "minimax-m2.7-nvfp4",
                "qwen3.5-122b-a10b-fp8",
            ],
            [33.0, 34.2],
        ),
        (2, ["nemotron-3-ultra-550b-a55b-nvfp4"], ()),
        (4, [], ()),
    ],
)
def test_every_model_has_a_row_and_fitting_ones_are_first(count: int, refused: list[str], published: Any) -> None:
    rows = surveyed(sparks(count))
    assert rows.keys() == catalog.known().keys()
    assert [name for name, row in rows.items() if not row.fits] == refused
    assert list(rows)[len(rows) - len(refused) :] == refused
    sizes = [row.weights_bytes for row in rows.values() if row.fits]
    assert sizes == sorted(sizes, reverse=True)
    assert rows["gpt-oss-120b"].published == published
    assert all("GiB larger than the cluster" in rows[name].reason for name in refused)
    assert {name for name, row in rows.items() if row.gated} == {
        name for name, model in catalog.known().items() if model.gated
    }


def test_a_row_has_the_plan_of_site_yml() -> None:
    settings = {"gb10_max_model_len": 8192, "gb10_kv_cache_dtype": "fp8"}
    rows = surveyed(sparks(4, **settings))
    for name in ("phi-4", "gpt-oss-120b"):
        nodes = sparks(4, **{**settings, "gb10_model": name})
        plan, problems = cluster_plan([{**node, "observed": {**node["observed"], "model": None}} for node in nodes])
        assert problems == []
        expected, row = plan["serve"]["expected"], rows[name]
        assert (row.context, row.tokens_per_second) == (expected["context"], expected["tokens_per_second"])
        assert (row.tensor, row.pipeline) == (plan["tensor_parallel_size"], plan["pipeline_parallel_size"])
    assert (rows["phi-4"].tensor, rows["phi-4"].pipeline, rows["phi-4"].context) == (2, 2, 8192)


def test_an_own_model_has_its_row() -> None:
    own = {
        "mine": {"path": "/srv/models/mine", "config": CONFIG, "weights_bytes": 15 * 10**9},
        "estimated": {"hub": "owner/estimated", "config": CONFIG, "gated": True},
        "unread": {"hub": "owner/unread"},
        "unsupported": {"hub": "owner/unsupported", "config": {"model_type": "other"}},
        "gpt-oss-20b": {"max_model_len": 4096},
    }
    rows = surveyed(sparks(2, gb10_models=own))
    assert rows.keys() == catalog.known().keys() | own.keys()
    assert (rows["mine"].fits, rows["mine"].weights_bytes, rows["mine"].estimated) == (True, 15 * 10**9, False)
    assert (rows["estimated"].fits, rows["estimated"].weights_bytes, rows["estimated"].estimated) == (
        True,
        15_231_233_024,
        True,
    )
    assert rows["gpt-oss-20b"].context == 4096
    assert (rows["unread"].fits, rows["unread"].weights_bytes) == (None, 0)
    assert rows["unread"].reason == "no config.json was read, and the catalog has none"
    assert rows["unsupported"].fits is None
    assert list(rows)[-3:] == ["unread", "unsupported", "nemotron-3-ultra-550b-a55b-nvfp4"]


def test_the_inventorys_model_may_be_wrong() -> None:
    expected = surveyed(sparks(2))
    assert surveyed(sparks(2, gb10_model="gpt-oss-12b", gb10_recipe="small")) == expected
    # Facts of another model, of the source of one, and recorded facts without a folder.
    for path in (None, "/srv/source", "/srv/models/tiny"):
        nodes = sparks(2, gb10_model="/srv/models/tiny")
        for node in nodes:
            node["settings"]["model_store_source"] = "/srv/source"
            node["observed"] |= {"model": CONFIG, "model_bytes": 1, "model_at": path, "model_complete": True}
        assert surveyed(nodes) == expected


def test_facts_of_the_model_that_a_node_has_count() -> None:
    nodes = sparks(2, gb10_models={"mine": {"path": "/srv/models/mine"}})
    nodes[0]["observed"] |= {
        "model": CONFIG,
        "model_bytes": 12345678901,
        "model_at": "/srv/models/mine",
        "model_complete": True,
    }
    row = surveyed(nodes)["mine"]
    assert (row.fits, row.weights_bytes, row.context) == (True, 12345678901, 32768)


def test_other_reasons_are_short_too() -> None:
    rows = surveyed(sparks(2, gb10_max_model_len=16384))
    reason = "gb10_max_model_len: 16384, expected at most 8192, the model's max_position_embeddings"
    assert (rows["gemma-2-27b-it"].fits, rows["gemma-2-27b-it"].reason) == (False, reason)
    rows = surveyed(sparks(2, gb10_models={"gpt-oss-20b": {"requires": {"until": "0.20.0"}}}))
    assert rows["gpt-oss-20b"].reason == "vLLM 0.32.0 (stack current) does not serve gpt-oss-20b"


def test_problems_that_are_not_about_a_model_replace_the_table() -> None:
    nodes = sparks(2, gb10_tensor_parallel_size=3, gb10_models={"Bad name": {}})
    nodes[1] |= {"unreachable": "no answer", "observed": {}}
    rows, problems = survey(nodes)
    assert rows == {}
    assert {problem.path for problem in problems} == {"nodes[1]", "gb10_tensor_parallel_size", "gb10_models.Bad name"}
    rows, problems = survey([])
    assert (rows, [problem.path for problem in problems]) == ({}, ["nodes"])


def test_the_table_fits_80_columns_and_aligns_numbers() -> None:
    for count in (1, 2, 4):
        rows = list(surveyed(sparks(count)).values())
        *legend, head = models.lines(rows, count, "")[:4]
        *table, foot, title = models.lines(rows, count, "")[4:]
        assert (
            all(line.startswith(word) for line, word in zip(legend, ("GB:", "context:", "tokens/s:"), strict=True))
            and foot == head
        )
        assert title == (
            f"{sum(row.fits is True for row in rows)} of {len(rows)} models fit on {count} "
            f"node{'s' if count > 1 else ''}"
        )
        numbers = [line.partition(" (others")[0] for line, row in zip(table, rows, strict=False) if row.fits]
        assert {len(line) for line in numbers} == {len(head)} and len(head) <= 78
        for column in ("GB ", "context", "tokens/s"):
            end = head.index(column) + len(column)
            assert all(line[end - 2 : end].strip() and line[end : end + 2].strip() == "" for line in numbers), column


def test_models_that_cannot_be_judged_are_not_counted_as_too_large() -> None:
    rows = list(surveyed(sparks(2, gb10_stack="lab", gb10_models={"mine": {"hub": "owner/mine"}})).values())
    *table, _foot, title = models.lines(rows, 2, "")[4:]
    assert title == f"{len(rows)} not judged: this stack (lab) has no memory plan; set gb10_stack: current"
    # The others do not repeat the reason.
    assert [line.partition("not judged")[2] for line in table].count("") == len(rows) - 1
    assert any(line.endswith("not judged: no config.json was read, and the catalog has none") for line in table)


def test_a_line_of_each_kind() -> None:
    row = Row(
        "mine", 15_000_000_000, estimated=True, gated=True, fits=True, reason="", context=8192, tokens_per_second=9.96
    )
    rows = [
        Row(**{**vars(row), "published": (5.0, 5.5), "tensor": 2, "pipeline": 1}),
        Row("unread", 0, estimated=True, gated=False, fits=None, reason="no config.json was read"),
        Row("large", 10**12, estimated=False, gated=False, fits=False, reason="gb10_x: " + "long " * 30),
    ]
    assert models.lines(rows, 1, "")[3:] == [
        "model       GB   context  split  tokens/s",
        "mine     ~15.0*     8192  2 x 1      10.0 (others: 5 to 5.5)",
        "unread       ?   not judged: no config.json was read",
        f"large   1000.0   does not fit: gb10_x: {'long ' * 15}…",
        "1 of 2 models fit on 1 node, 1 not judged",
    ]
