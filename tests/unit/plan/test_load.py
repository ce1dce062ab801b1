"""The plan as plain data and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import cluster_plan, spark

from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import (
    Container,
    Environment,
    Head,
    State,
    Store,
    Wheel,
)

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data/plan_two_spark.json").read_text(encoding="utf-8")
)
CONTAINER = {"gb10_runtime": "container", "gb10_container_image": f"vllm/vllm-openai@sha256:{'1' * 64}"}


@pytest.mark.parametrize("settings", [{}, CONTAINER, {"gb10_distributed_executor_backend": "mp"}])
def test_a_loaded_plan_is_the_planned_one(settings: dict[str, Any]) -> None:
    facts, problems = cluster_plan([spark(1, "head", **settings), spark(2, "worker", **settings)])
    assert problems == []
    plan = load.plan(facts)
    assert plan.facts() == facts
    assert isinstance(plan.runtime, Environment) is not bool(settings.get("gb10_runtime"))
    assert isinstance(plan.runtime, Container) and plan.store is None and plan.api_tls is None
    assert plan.node == plan.nodes[0] and plan.at(plan.nodes[1]).node.name == "spark2"
    assert plan.by_ray is not bool(settings.get("gb10_distributed_executor_backend"))


def test_parts_that_a_plan_can_lack() -> None:
    parts = {
        "store": {"folder": "/opt/gb10/models/m", "hub": "org/m", "revision": "main", "source": ""},
        "api_tls": {"digest": "0" * 64, "until": "2030-01-01"},
    }
    plan = load.plan({**RECORDED, **parts})
    assert (plan.store, plan.facts()) == (Store(**parts["store"]), {**RECORDED, **parts})
    for none in ({}, None):
        plan = load.plan({**RECORDED, "store": none, "api_tls": none})
        assert (plan.store, plan.api_tls, plan.facts()) == (None, None, RECORDED)


def test_what_was_not_read_is_not_there() -> None:
    assert not any(asdict(State()).values())
    assert Wheel("vllm.whl", "0" * 64).built is False, "a wheel of the inventory is on the controller"


def places(data: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each key, except in mappings of any name."""
    if isinstance(data, list):
        for index, each in enumerate(data):
            yield from places(each, *path, index)
    elif isinstance(data, dict) and path[-1:] not in (("netplan",), ("environment",), ("foreseen",), ("peers",)):
        for name, each in data.items():
            yield (*path, name)
            yield from places(each, *path, name)


def shown(path: tuple[Any, ...]) -> str:
    return "gb10_plan" + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)


def changed(path: tuple[Any, ...], value: Any = None) -> dict[str, Any]:
    """Return the plan with another value in a place; without one, the place is missing."""
    plan = deepcopy(RECORDED)
    inner: Any = plan
    for each in path[:-1]:
        inner = inner[each]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return plan


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        *(
            (path, None, "is 'missing'")
            for path in (("mtu",), ("nodes", 1, "rails", 0, "hca"), ("runtime", "path"), ("serve", "args"))
        ),
        *((path, 1, "is 'unknown'") for path in (("more",), ("nodes", 0, "more"), ("serve", "expected", "more"))),
        # Types that Python takes for each other.
        (("mtu",), True, "is True"),
        (("api_key",), 1, "is 1"),
        (("serve", "args"), "--x", "is '--x'"),
    ],
)
def test_a_wrong_value_is_named(path: tuple[Any, ...], value: Any, found: str) -> None:
    with pytest.raises(TypeError) as error:
        load.plan(changed(path, value))
    assert str(error.value).startswith(f"{shown(path)} {found}")


def test_no_value_of_another_type_is_loaded() -> None:
    wrong = object()
    paths = list(places(RECORDED))
    assert len(paths) > 200
    for path in paths:
        with pytest.raises(TypeError) as error:
            load.plan(changed(path, wrong))
        # An inventory may have any mapping under these names, and the runtime is one of two types.
        if path[-1] not in ("netplan", "additions", "foreseen") and path != ("runtime",):
            assert str(error.value).startswith(f"{shown(path)} ")


def test_a_part_of_a_plan_has_its_types() -> None:
    load.part(Store, {"hub": "a/b"}, "store")
    with pytest.raises(TypeError, match=r"store\.hub is 7, not a str"):
        load.part(Store, {"folder": "/a", "hub": 7}, "store")
    with pytest.raises(KeyError, match="other"):
        load.part(Store, {"other": "a"}, "store")


@dataclass(frozen=True)
class _Either:
    value: int | Head | Store


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (7, 7),
        ({"name": "spark1", "address": "10.0.0.1"}, Head("spark1", "10.0.0.1")),
        ({"folder": "/a", "hub": "", "revision": "", "source": "/b"}, Store("/a", "", "", "/b")),
    ],
)
def test_the_first_type_that_fits_is_loaded(value: Any, found: Any) -> None:
    assert load.load(_Either, {"value": value}, "either") == _Either(found)
