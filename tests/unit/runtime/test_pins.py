"""Tests of the pins of image tags."""

from __future__ import annotations

from typing import Any

import pytest
from decisions import decide
from hypothesis import given
from hypothesis import strategies as st
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import pins
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.pins import Pin

ID, DIGEST = "1" * 64, "sha256:" + "2" * 64
ENTRY = {"image_id": ID, "digest": DIGEST}


@pytest.mark.parametrize("name", ["vllm/vllm-openai:latest", "vllm/vllm-openai", "localhost:5000/a/b:v1"])
def test_a_tag_is_pinned_to_its_digest_or_to_its_id(name: str) -> None:
    assert pins.tag(name) == name
    assert pins.pinned(name, pins.parse({name: ENTRY})) == f"{name}@{DIGEST}"
    assert pins.pinned(name, pins.parse({name: {**ENTRY, "digest": ""}})) == f"sha256:{ID}"
    assert pins.pinned(name, pins.parse({f"{name}2": ENTRY})) == name


@pytest.mark.parametrize("image", [f"a:1@{DIGEST}", f"sha256:{ID}", ""])
def test_other_references_are_no_tags(image: str) -> None:
    assert pins.tag(image) == ""
    assert pins.pinned(image, pins.parse({image: ENTRY})) == image


@pytest.mark.parametrize(
    ("tag", "digests", "found"),
    [
        ("vllm/vllm-openai:latest", [f"vllm/vllm-openai@{DIGEST}"], DIGEST),
        ("vllm/vllm-openai", [f"docker.io/vllm/vllm-openai@{DIGEST}"], DIGEST),
        ("docker.io/vllm/vllm-openai:v1", [f"vllm/vllm-openai@{DIGEST}"], DIGEST),
        ("alpine:3", [f"docker.io/library/alpine@{DIGEST}"], DIGEST),
        ("localhost:5000/a/b:v1", [f"localhost:5000/a/b@{DIGEST}"], DIGEST),
        ("localhost:5000/a/b", [f"localhost:5000/a/b@{DIGEST}"], DIGEST),
        ("localhost:5000/a/b:v1", [f"other.example/a/bb@{DIGEST}", f"localhost:5000/a/xb@{DIGEST}"], ""),
        ("b:v1", [f"localhost:5000/a/xb@{DIGEST}"], ""),
        ("own:1", [], ""),
        ("own:1", [f"localhost/own@{DIGEST}"], ""),
        ("localhost/own:1", [f"localhost/own@{DIGEST}"], ""),
    ],
)
def test_the_digest_is_that_of_the_tags_registry(tag: str, digests: list[str], found: str) -> None:
    assert pins.digest(tag, digests) == found


ANY = st.none() | st.fixed_dictionaries({"image_id": st.text(), "digest": st.text()})


@given(st.none() | st.lists(st.integers()) | st.dictionaries(st.text(max_size=5), ANY))
def test_a_record_of_anything(found: Any) -> None:
    assert pins.parse(found) == {}


@pytest.mark.parametrize(
    "entry",
    [
        {"image_id": ID},
        {**ENTRY, "image_id": f"{ID}\n"},
        {**ENTRY, "digest": "sha256:2"},
        {**ENTRY, "digest": f"{DIGEST}\n"},
        DIGEST,
    ],
)
def test_an_invalid_pin_is_left_out(entry: Any) -> None:
    assert pins.parse({"a": entry, "b": ENTRY}) == {"b": Pin(ID, DIGEST)}


def test_a_record_has_a_limit() -> None:
    assert len(pins.parse({f"a:{number}": ENTRY for number in range(1024)})) == 1024
    assert pins.parse({f"a:{number}": ENTRY for number in range(1025)}) == {}


TAG, IMAGE, OTHER = "example.org/vllm:1", f"example.org/vllm:1@{DIGEST}", "example.org/vllm:1@sha256:" + "3" * 64


def act(arguments: dict[str, Any], files: dict[str, str], got: Any = None, tag: str = TAG) -> dict[str, Any]:
    """Run the action image_pin on a node with these recorded images, with the result of the head's fetch."""
    runtime = {"kind": "container", "engine": "podman", "image": IMAGE, "base": IMAGE, "tag": tag, "pins": {"a": ENTRY}}
    node = {"name": "spark2", "additions": {"vllm_runtime": {"files": files}}}
    plan = fact({"runtime": runtime, "node": node})
    answer, calls = decide("image_pin", arguments, plan, {plan["head"]["name"]: {"got": got}})
    assert calls == []
    return answer


@pytest.mark.parametrize("files", [{}, {IMAGE: ID}, {OTHER.replace(":1@", ":2@"): ID}, {f"{TAG}1@{DIGEST}": ID}])
def test_a_node_without_another_image_of_the_tag_agrees(files: dict[str, str]) -> None:
    assert act({}, files) == {"changed": False}


def test_a_node_refuses_another_image_of_the_tag() -> None:
    assert act({"update": False}, {IMAGE: ID, OTHER: ID}) == {
        "failed": True,
        "msg": f"gb10_container_image: {TAG} is {IMAGE} on spark1. Expected on spark2: {OTHER}, because a tag stays "
        "pinned to its first image. Nothing was sent. Fix: set gb10_container_image to the digest to run, or run "
        "site.yml -e vllm_runtime_image_update=true.",
    }
    assert act({"update": True}, {OTHER: ID}) == {"changed": False}
    assert act({}, {OTHER: ID, f"@{DIGEST}": ID}, tag="") == {"changed": False}


FOUND = {"image_id": "4" * 64, "digest": DIGEST}


@pytest.mark.parametrize(
    ("tag", "got", "pinned", "news"),
    [
        (TAG, {**FOUND, "size": 1, "changed": True}, {TAG: FOUND}, True),
        (TAG, {**FOUND, "digest": ""}, {TAG: {**FOUND, "digest": ""}}, True),
        ("a", ENTRY, {}, False),
        # Check mode fetches nothing.
        (TAG, {"image_id": None, "digest": ""}, {}, False),
        (TAG, {"skipped": True}, {}, False),
    ],
)
def test_the_fetched_image_of_a_tag_is_pinned(tag: str, got: Any, pinned: dict[str, Any], news: bool) -> None:
    answer = act({"fetched": "got"}, {}, got, tag)
    assert answer == {"changed": False, "pins": {"a": ENTRY, **pinned}, "news": news}
