"""Tests of the table of models: one plan for each, the order, the reasons, and problems that are not about a model."""

from __future__ import annotations

import functools
from typing import Any

import cluster_nodes
import pytest
from cluster_nodes import KNOWN, LOCK, Node, cluster_plan

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import models
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.models import Row
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog

OLDER = catalog.older()
#: Models that the catalog serves in an image of their own. Their memory is not planned.
IMAGES = ["deepseek-v4-flash-0731", "deepseek-v4-flash"]
CONFIG = catalog.find("qwen2.5-7b-instruct").config


def sparks(count: int, **settings: Any) -> list[Node]:
    """Return nodes without gb10_model."""
    return cluster_nodes.sparks(count, **{"gb10_model": "", **settings})


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "refused", "best"),
    [
        (
            1,
            [
                "nemotron-3-ultra-550b-a55b-nvfp4",
                "deepseek-v4-flash-0731",
                "minimax-m2.7-nvfp4",
                "qwen3.5-122b-a10b-fp8",
                "deepseek-v4-flash",
                "qwen2.5-72b-instruct",
                "llama-3.1-70b-instruct",
            ],
            "35.4",
        ),
        (2, [*IMAGES, "nemotron-3-ultra-550b-a55b-nvfp4"], "37.4"),
        (4, IMAGES, "37.4 on 2"),
    ],
)
def test_every_model_has_a_row_and_fitting_ones_are_first(count: int, refused: list[str], best: str) -> None:
    rows = plain(count)
    assert rows.keys() == catalog.known().keys()
    assert [name for name, row in rows.items() if not row.fits] == refused
    assert list(rows)[len(rows) - len(refused) :] == refused
    for older in (False, True):
        sizes = [row.weights_bytes for name, row in rows.items() if row.fits and (name in OLDER) is older]
        assert sizes == sorted(sizes, reverse=True)
    fitting = [name in OLDER for name, row in rows.items() if row.fits]
    assert fitting == sorted(fitting), "older models are last"
    assert rows["qwen3.8-27b-nvfp4-dflash2"].best == best
    assert {name for name, row in rows.items() if row.runtime == "container"} == {*IMAGES}
    for name in refused:
        unplanned = rows[name].fits is None
        assert unplanned is (name in IMAGES and count > 1)
        assert ("config.json compress_ratios" if unplanned else "larger than the cluster") in rows[name].reason
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
    assert rows["phi-4"].context == 8192


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
        ["gemma-2-27b-it"],
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_table_fits_80_columns_and_aligns_numbers() -> None:
    for count in (1, 2, 4):
        rows = list(plain(count).values())
        *legend, head = models.lines(rows, count, "")[:5]
        *table, foot, details, serve, title = models.lines(rows, count, "")[5:]
        assert [line.partition(":")[0] for line in legend][:2] == ["GB", "context"]
        assert foot == head and "gb10_model=NAME" in details and "gb10_model=NAME" in serve
        assert max(map(len, [*legend, *table, details, serve])) <= 78
        unplanned = sum(row.fits is None for row in rows)
        assert title == (
            f"{sum(row.fits is True for row in rows)} of {len(rows) - unplanned} models fit on {count} "
            f"node{'s' if count > 1 else ''}{f', {unplanned} not judged' if unplanned else ''}"
        )
        numbers = [line[: head.index("best")] for line, row in zip(table, rows, strict=True) if row.fits]
        assert {len(line) for line in numbers} == {head.index("best")}
        for column in ("GB ", "context", "bound"):
            end = head.index(column) + len(column)
            assert all(line[end - 2 : end].strip() and line[end : end + 2].strip() == "" for line in numbers), column


def test_models_that_cannot_be_judged_are_not_counted_as_too_large() -> None:
    rows = list(surveyed(sparks(2, gb10_stack="lab", gb10_models={"mine": {"hub": "owner/mine"}})).values())
    *table, _foot, _details, _serve, title = models.lines(rows, 2, "typical")[5:]
    expected = "not judged: this stack (lab) has no memory plan; set gb10_stack: current (typical)"
    assert title == f"{len(rows)} {expected}"
    # The others do not repeat the reason.
    plain_rows = [row for row in rows if not row.best and row.name not in ("mine", *IMAGES)]
    assert [line.partition("not judged")[2] for line in table].count("") == len(plain_rows)
    assert any("not judged: no config" in line for line in table)


def test_a_line_of_each_kind() -> None:
    row = Row(
        "mine", 15_000_000_000, estimated=True, gated=True, fits=True, reason="", context=8192, tokens_per_second=9.96
    )
    rows = [
        Row(**{**vars(row), "best": "5.5", "gated": False, "runtime": "container"}),
        Row(**{**vars(row), "name": "slow", "tokens_per_second": 0.0, "context": 8000}),
        Row("unread", 0, estimated=True, gated=False, fits=None, reason="no config.json was read", best="9"),
        Row("large", 10**12, estimated=False, gated=False, fits=False, reason="gb10_x: " + "long " * 30),
    ]
    assert models.lines(rows, 1, "")[4:] == [
        "model       GB   context  bound  best",
        "mine     ~15.0+       8K   10.0  5.5",
        "slow     ~15.0*     8000      -  -",
        "unread       ?   not judged, best 9: no config.json was read",
        f"large   1000.0   does not fit: gb10_x: {'long ' * 7}…",
        "details: playbooks/plan.yml -e gb10_model=NAME; to serve one: gb10_model in",
        "the inventory, or playbooks/switch_model.yml -e gb10_model=NAME",
        "2 of 3 models fit on 1 node, 1 not judged",
    ]
