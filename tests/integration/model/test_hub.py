"""A model of a hub, not in the catalog: the downloading run makes the same plan as every later run."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_client import API, CURL, completion
from fake_hub import COMMIT, NAME
from live_cluster import Cluster, extra, on_all
from repository import load_yaml, read
from run_playbook import run
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

HUB, PORT = "gb10-test-hub", 8199
VARIABLES: dict[str, object] = {"gb10_model": NAME, "gb10_download_env": {"HF_ENDPOINT": f"http://127.0.0.1:{PORT}"}}
Planned = Callable[[], dict[str, Any]]


@pytest.fixture
def hub(head: Host) -> Iterator[None]:
    """The lab's model on a hub that only the head can reach."""
    head.check_output(
        "echo %s | base64 --decode > /srv/hub.py", base64.b64encode(read("tests/support/fake_hub.py").encode()).decode()
    )
    head.check_output(f"systemd-run --collect --unit={HUB} python3 /srv/hub.py /srv/models/tiny {PORT}")
    head.check_output(
        f"curl --silent --fail --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:{PORT}/api/models/{NAME}/revision/main"
    )
    yield
    head.run(f"systemctl stop {HUB}; rm -f /srv/hub.py")


@pytest.fixture
def planned(cluster: Cluster, tmp_path: Path) -> Planned:
    def planned() -> dict[str, Any]:
        given = extra(**VARIABLES, plan_file=str(tmp_path / "plan.json"))
        run("tests/integration/model/plan.yml", [*cluster.arguments, *given]).assert_ok()
        plan: dict[str, Any] = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
        for node in plan["nodes"]:
            # The ID of the running launch, which is an observation.
            del node["state"]["last_good"]
        return plan

    return planned


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_the_second_run_plans_what_the_first_did(
    cluster: Cluster, nodes: dict[str, Host], head: Host, planned: Planned
) -> None:
    text, given = completion(head), extra(**VARIABLES)
    first = planned()
    folder = first["store"]["folder"]
    try:
        assert not any(node.file(folder).exists for node in nodes.values())
        assert first["quantization"] == "other", "its config.json was read before it was there"
        cluster.site(*given).assert_ok()
        for node in nodes.values():
            assert json.loads(node.file(f"{folder}/gb10-model.json").content_string)["commit"] == COMMIT
        assert json.loads(head.check_output(f"{CURL} --silent --fail {API}/v1/models"))["data"][0]["root"] == folder
        assert completion(head) == text
        assert planned() == first
        cluster.site(*given).assert_unchanged()
        cluster.site(*given, "--check").assert_unchanged()
        # A stored model needs no request to the hub.
        head.check_output(f"systemctl stop {HUB}")
        assert planned() == first
        cluster.site(*given).assert_unchanged()
    finally:
        cluster.site().assert_ok()
        on_all(nodes, f"rm -rf {folder}")
    assert completion(head) == text


@pytest.mark.slow
def test_a_hub_that_does_not_answer_is_a_warning(cluster: Cluster, planned: Planned) -> None:
    assert planned()["quantization"] == "unknown"
    cluster.play("plan", **VARIABLES).assert_unchanged(
        f"Hugging Face Hub could not be queried for {NAME} at main: 127.0.0.1 does not respond: "
    )


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_a_draft_comes_from_the_hub_and_the_tokens_stay_the_same(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    """Speculative decoding with a draft in the store: the tokens are those of the model alone, and drafts are
    accepted."""
    text = completion(head)
    speculative = json.dumps({"method": "draft_model", "model": NAME, "num_speculative_tokens": 2})
    arguments = [
        *load_yaml(read("inventories/lab/group_vars/gb10_cluster.yml"))["gb10_vllm_extra_args"],
        "--speculative-config",
        speculative,
    ]
    given = extra(gb10_download_env=VARIABLES["gb10_download_env"], gb10_vllm_extra_args=arguments)
    folder = f"/opt/gb10/models/{NAME.replace('/', '--')}/main"
    try:
        cluster.site(*given).assert_ok()
        for node in nodes.values():
            assert json.loads(node.file(f"{folder}/gb10-model.json").content_string)["commit"] == COMMIT
        assert folder in head.check_output("ps -eo args | grep '[v]llm serve'")
        assert completion(head) == text
        metrics = head.check_output(f"{CURL} --silent --fail {API}/metrics")
        accepted = [
            line for line in metrics.splitlines() if line.startswith("vllm:spec_decode_num_accepted_tokens_total")
        ]
        assert accepted and float(accepted[0].rpartition(" ")[2]) > 0, "no draft was accepted"
        cluster.site(*given).assert_unchanged()
    finally:
        cluster.site().assert_ok()
        on_all(nodes, f"rm -rf {folder}")
    assert completion(head) == text
