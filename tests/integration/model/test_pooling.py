"""An embedding model and a reranker: smoke test, status, watchdog, and the rollback from a model whose weights are
NaN."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator

import pytest
from api_client import API, CURL, completion
from live_cluster import Cluster, copied
from testinfra.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

MODELS = {"embed": "/srv/models/tiny-embed", "rerank": "/srv/models/tiny-rerank"}
BROKEN = "/srv/models/tiny-nan"
REQUESTS = {
    "embed": ("/v1/embeddings", {"model": "tiny-embed", "input": ["Hello"] * 64}),
    "rerank": ("/v1/rerank", {"model": "tiny-rerank", "query": "Hello", "documents": ["Hello"] * 64}),
}
#: Fills all tensors of a model with NaN.
NANS = f"""
import struct
path = "{BROKEN}/model.safetensors"
data = open(path, "rb").read()
begin = 8 + struct.unpack("<Q", data[:8])[0]
open(path, "wb").write(data[:begin] + bytes.fromhex("{struct.pack("<f", float("nan")).hex()}") * ((len(data) - begin) // 4))
"""


@pytest.fixture(scope="module")
def restored(cluster: Cluster, head: Host) -> Iterator[None]:
    text = completion(head)
    yield
    cluster.serve().assert_ok()
    assert completion(head) == text


@pytest.fixture
def broken(request: pytest.FixtureRequest, nodes: dict[str, Host]) -> Iterator[str]:
    with copied(nodes, f"tiny-{request.param}", BROKEN):
        for host in nodes.values():
            host.check_output("python3 -c %s", NANS)
        yield BROKEN


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("kind", MODELS)
def test_a_pooling_model_is_served(cluster: Cluster, head: Host, kind: str) -> None:
    cluster.play("switch_model", gb10_model=MODELS[kind]).assert_ok(
        {"embed": "embedding: 4 vectors of 256 numbers", "rerank": "scores: "}[kind]
    )
    path, body = REQUESTS[kind]
    # The watchdog samples every few seconds, so that it observes running requests.
    until = time.monotonic() + 30
    while time.monotonic() < until:
        head.check_output(f"{CURL} --silent --fail --json '{json.dumps(body)}' {API}{path} >/dev/null")
    status = cluster.screen()
    assert {"embed": " (embeddings) answers in ", "rerank": " (reranker) answers in "}[kind] in status[0]
    assert any(" requests/s, " in line for line in status)
    assert any(line.startswith("watchdog: ") and "armed, no alarm" in line for line in status), status


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(("broken", "former"), [("embed", "rerank"), ("rerank", "embed")], indirect=["broken"])
def test_weights_of_nan_are_refused_and_the_former_model_returns(cluster: Cluster, broken: str, former: str) -> None:
    cluster.play("switch_model", gb10_model=MODELS[former]).assert_ok()
    cluster.play("switch_model", gb10_model=broken).assert_failed(
        "numbers that are not finite (NaN or infinite)", f"Restored {MODELS[former]}. It answers again."
    )
