"""Tests of the table of models: one plan for each, the order, the reasons, and problems that are not about a model."""

from __future__ import annotations

import functools
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


@functools.cache
def plain(count: int) -> dict[str, Row]:
    """Return the rows of nodes without an own setting."""
    return surveyed(sparks(count))


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
    rows = plain(count)
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


OWN = {
    "mine": {"path": "/srv/models/mine", "config": CONFIG, "weights_bytes": 15 * 10**9},
    "estimated": {"hub": "owner/estimated", "config": CONFIG, "gated": True},
    "unread": {"hub": "owner/unread"},
    "unsupported": {"hub": "owner/unsupported", "config": {"model_type": "other"}},
    "gpt-oss-20b": {"max_model_len": 4096},
}
MINE = {"model": CONFIG, "model_bytes": 12345678901, "model_at": "/srv/models/mine", "model_complete": True}


def seen(nodes: list[Node], *indices: int, **facts: Any) -> list[Node]:
    for index in indices:
        nodes[index]["observed"] |= facts
    return nodes


#: Nodes, fields of the rows of models, and the last rows.
ROWS: dict[str, tuple[list[Node], dict[str, dict[str, Any]], list[str]]] = {
    "own models": (
        sparks(2, gb10_models=OWN),
        {
            "mine": {"fits": True, "weights_bytes": 15 * 10**9, "estimated": False},
            "estimated": {"fits": True, "weights_bytes": 15_231_233_024, "estimated": True},
            "gpt-oss-20b": {"context": 4096},
            "unread": {
                "fits": None,
                "weights_bytes": 0,
                "reason": "no config.json was read, and the catalog has none",
            },
            "unsupported": {"fits": None},
        },
        ["unread", "unsupported", "nemotron-3-ultra-550b-a55b-nvfp4"],
    ),
    "facts of a model that a node has": (
        seen(sparks(2, gb10_models={"mine": {"path": "/srv/models/mine"}}), 0, **MINE),
        {"mine": {"fits": True, "weights_bytes": 12345678901, "context": 32768}},
        ["nemotron-3-ultra-550b-a55b-nvfp4"],
    ),
    "a context that a model lacks": (
        sparks(2, gb10_max_model_len=16384),
        {
            "gemma-2-27b-it": {
                "fits": False,
                "reason": "gb10_max_model_len: 16384, expected at most 8192, the model's max_position_embeddings",
            }
        },
        ["bge-m3"],
    ),
    "a release that a model lacks": (
        sparks(2, gb10_models={"gpt-oss-20b": {"requires": {"until": "0.20.0"}}}),
        {"gpt-oss-20b": {"reason": "vLLM 0.32.0 (stack current) does not serve gpt-oss-20b"}},
        ["gpt-oss-20b"],
    ),
}


@pytest.mark.parametrize(("nodes", "expected", "last"), ROWS.values(), ids=ROWS)
def test_the_rows_of_models(nodes: list[Node], expected: dict[str, dict[str, Any]], last: list[str]) -> None:
    rows = surveyed(nodes)
    found = {name: {field: getattr(rows[name], field) for field in each} for name, each in expected.items()}
    assert found == expected
    assert rows.keys() == catalog.known().keys() | expected.keys()
    assert list(rows)[-len(last) :] == last


@pytest.mark.parametrize("path", [None, "/srv/source", "/srv/models/tiny"])
def test_the_inventorys_model_may_be_wrong(path: str | None) -> None:
    """Facts of another model, of the source of one, and recorded facts without a folder do not count."""
    nodes = sparks(2, gb10_model="/srv/models/tiny", gb10_recipe="small", model_store_source="/srv/source")
    assert surveyed(seen(nodes, 0, 1, **{**MINE, "model_at": path})) == plain(2)


def test_problems_that_are_not_about_a_model_replace_the_table() -> None:
    nodes = sparks(2, gb10_tensor_parallel_size=3, gb10_models={"Bad name": {}})
    nodes[1] |= {"unreachable": "no answer", "observed": {}}
    rows, problems = survey(nodes)
    assert rows == {}
    assert {problem.path for problem in problems} == {"nodes[1]", "gb10_tensor_parallel_size", "gb10_models.Bad name"}
    assert [problem.path for problem in survey([])[1]] == ["nodes"]


def test_the_table_fits_80_columns_and_aligns_numbers() -> None:
    for count in (1, 2, 4):
        rows = list(plain(count).values())
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
    *table, _foot, title = models.lines(rows, 2, "typical")[4:]
    expected = "not judged: this stack (lab) has no memory plan; set gb10_stack: current (typical)"
    assert title == f"{len(rows)} {expected}"
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
