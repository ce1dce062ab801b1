"""The sample of a node, and its JSON from another node."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from flight_records import FULL

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import schema
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Sample, SampledRail


def test_a_sample_survives_its_json() -> None:
    assert schema.parse(schema.dump(FULL)) == FULL
    assert schema.parse(schema.dump(Sample(1.0, "spark1"))) == Sample(1.0, "spark1")


def test_the_largest_node_has_eight_gpus_and_eight_rails() -> None:
    largest = replace(FULL, node="x" * 64, gpus=FULL.gpus * 8, rails=tuple(SampledRail(f"rail{n}") for n in range(8)))
    assert schema.parse(schema.dump(largest)) == largest


def with_(**changes: Any) -> bytes:
    return json.dumps({**asdict(FULL), **changes}).encode()


HOSTILE = {
    "no JSON": b"\xff\xfe\x00",
    "no object": b"[]",
    "too long": with_(node="x" * schema.MOST),
    "a number that JSON does not have": with_(load=float("nan")),
    "a deep one": b"[" * 1000 + b"]" * 1000,
    "an unknown field": with_(command="x"),
    "without a node": b'{"time": 1}',
    "a text in place of a number": with_(memory_available="1"),
    "a truth in place of a number": with_(load=True),
    "control characters": with_(node="spark1\x1b[2J"),
    "a long name": with_(node="x" * 65),
    "a control character in a rail": with_(rails=[{"interface": "a\nb"}]),
    "many rails": with_(rails=[{"interface": "a"}] * 9),
    "a rail of another form": with_(rails=["a"]),
    "a GPU without values": with_(gpus=[{}]),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_no_sample(data: bytes) -> None:
    with pytest.raises(ValueError):
        schema.parse(data)
