"""The ID of the head's image, and its comparison with a node's record."""

from __future__ import annotations

from typing import Any

import pytest
from decisions import decide
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_ids

ID, OTHER = "a" * 64, "b" * 64
NAME, DIGEST, TAG = f"sha256:{ID}", f"vllm@sha256:{'5' * 64}", "vllm:1"


@pytest.mark.parametrize(
    ("image", "known", "other"),
    [
        (NAME, ["", ""], ""),
        (f"sha256:{OTHER}", ["", ""], OTHER),
        (DIGEST, ["", ""], ""),
        (DIGEST, [ID, ID], ""),
        (DIGEST, [OTHER, ID], OTHER),
        (DIGEST, [ID, OTHER], OTHER),
        # A tag can mean another image in each engine.
        (TAG, [OTHER, OTHER], ""),
        (f"sha256:{OTHER}0", ["", ""], ""),
    ],
)
def test_what_a_node_knows_besides_the_head(image: str, known: list[str], other: str) -> None:
    problem = image_ids.problem(image, known, ID, "spark1", "spark2")
    refused = (
        f"gb10_container_image: spark1 has {image} as sha256:{ID}. Expected on spark2: sha256:{other}, because a digest or "
        "an ID always means the same image. Nothing was sent. Fix: find out why spark1 has another image."
    )
    assert problem == (refused if other else "")
    assert image_ids.problem(image, known, "", "spark1", "spark2") == ""


def act(of_head: Any, recorded: str = "", engine: str | None = None, builds: Any = (), **got: str) -> Any:
    """Run the action on a second node, with the results of both nodes."""
    runtime = {"kind": "container", "engine": "podman", "image": DIGEST, "builds": list(builds)}
    files = {DIGEST: recorded} if recorded else {}
    plan = fact({"runtime": runtime, "node": {"name": "spark2", "additions": {"vllm_runtime": {"files": files}}}})
    results = {f"__vllm_runtime_{name}": {"image_id": image_id} for name, image_id in got.items()}
    hosts = {
        "spark1": {"__vllm_runtime_named": {"image_id": of_head}, **results},
        "spark2": {"__vllm_runtime_named": {"image_id": engine}},
    }
    answer, calls = decide("image_query", {"python": "python3"}, plan, hosts)
    assert calls == []
    return answer


def test_the_heads_image_is_queried_by_its_id() -> None:
    answer = act(ID)
    assert (answer["image_id"], answer["files"], answer["recorded"]) == (ID, {DIGEST: ID}, False)
    assert answer["argv"][-2:] == ["--entrypoint=python3", ID]
    assert act(ID, recorded=ID, engine=ID)["recorded"] is True
    assert act(None) == {"changed": False, "image_id": "", "files": {}, "recorded": False}, "in check mode"
    refused = image_ids.problem(DIGEST, [OTHER], ID, "spark1", "spark2")
    assert act(ID, engine=OTHER) == act(ID, recorded=OTHER) == {"failed": True, "msg": refused}


def test_the_image_that_the_head_provided_last_counts() -> None:
    build = {"name": "x", "image": DIGEST, "base": TAG, "base_name": TAG}
    assert act(ID, got=OTHER)["image_id"] == ID
    assert act(None, got=ID, built=OTHER)["image_id"] == ID
    assert act(None, builds=[build], got=ID, built=OTHER)["image_id"] == OTHER, (
        "the fetched image is only below the last build"
    )


@pytest.mark.parametrize("wrong", ["--privileged", "vllm:2", f"sha256:{ID}"])
def test_only_an_id_of_the_head_becomes_an_argument_of_the_engine(wrong: str) -> None:
    answer = act(wrong)
    assert answer["failed"] and "neither the ID of an image" in answer["msg"]
