"""Two clusters of one host each, and a gateway on the first host: requests by the model's name, faults and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import Cluster, extra, started
from live_gateway import Client, client_of
from testinfra.host import Host

LARGE, SMALL = "large-model", "small-model"


@pytest.fixture(scope="module")
def client(cluster: Cluster, head: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client_of(cluster, head, tmp_path_factory.mktemp("keys")) as found:
        yield found


def test_each_model_answers_by_its_name(client: Client) -> None:
    for model in (LARGE, SMALL):
        status, answer = client.ask(model)
        assert (status, answer["model"], answer["usage"]["completion_tokens"]) == (200, model, 3)


def test_an_unknown_model_is_refused(client: Client) -> None:
    assert client.ask("medium-model")[0] in (400, 403, 404)


def test_the_gateway_shows_no_key_of_a_cluster(head: Host, client: Client, nodes: dict[str, Host]) -> None:
    keys = [node.check_output("cat /etc/gb10/api.key") for node in nodes.values()]
    assert len(set(keys)) == 2
    log = head.check_output("journalctl --unit=gb10-gateway.service --no-pager")
    command = head.check_output("ps -eo args")
    for key in [*keys, head.check_output("cut -d ' ' -f 4 %s", client.settings).strip('"')]:
        assert key not in log
        assert key not in command
    assert head.file("/etc/gb10/gateway.env").mode == 0o600


def test_one_cluster_is_planned_and_read_alone(cluster: Cluster) -> None:
    done = cluster.play("status", gb10_only="small").assert_unchanged("small-model answers in")
    assert "large-model answers in" not in done.output
    done = cluster.site("-e", "gb10_only=small").assert_unchanged()
    assert set(done.changed) == {"spark2"}


def test_the_model_of_several_clusters_is_not_switched(cluster: Cluster) -> None:
    cluster.play("switch_model", gb10_model="/srv/models/tiny").assert_failed(
        "The inventory has the clusters large, small. Expected: a model for one of them. Fix: add -e gb10_only=NAME."
    )


def test_a_problem_of_one_cluster_changes_none(cluster: Cluster, nodes: dict[str, Host]) -> None:
    wrong = "{{ '/srv/models/missing' if gb10_cluster_name == 'small' else '/srv/models/tiny' }}"
    done = cluster.site(*extra(gb10_model=wrong)).assert_failed(
        "/srv/models/missing", "cluster small: it has no plan; its problems are listed above."
    )
    assert done.changed_tasks() == set()
    assert not any(node.file("/run/gb10/lock.json").exists for node in nodes.values())


@pytest.mark.disruptive
def test_when_one_cluster_is_killed_the_other_still_answers(
    cluster: Cluster, client: Client, nodes: dict[str, Host]
) -> None:
    nodes["spark2"].check_output("systemctl kill --signal=KILL gb10-vllm.service && systemctl stop gb10-vllm.service")
    assert client.ask(LARGE)[0] == 200
    answer = client.until(SMALL, 503, within=60)
    assert answer["error"]["message"].startswith("No server of the model answers (small/small-model: ")
    assert client.ask(LARGE)[0] == 200
    done = cluster.play("status")
    assert "Gateway http://127.0.0.1:4000/v1: 1 of 2 model servers healthy" in done.output
    nodes["spark2"].check_output("systemctl start --no-block gb10-vllm.service")
    client.until(SMALL, 200, within=300)


@pytest.mark.disruptive
def test_a_failed_cluster_leaves_the_next_one_and_both_locks(cluster: Cluster, nodes: dict[str, Host]) -> None:
    before = started(nodes["spark2"])
    # The first cluster's server cannot start, because the model's weights have another format.
    cluster.serve(*extra(gb10_vllm_extra_args=["--load-format", "tensorizer"])).assert_failed()
    assert started(nodes["spark2"]) == before
    assert not any(node.file("/run/gb10/lock.json").exists for node in nodes.values())
    cluster.site().assert_ok()


@pytest.mark.disruptive
def test_a_revoked_key_is_refused_at_once(cluster: Cluster, head: Host, tmp_path: Path) -> None:
    cluster.play("gateway_keys", gateway_key_create="bob", gateway_key_directory=str(tmp_path)).assert_ok()
    bob = Client(head, (tmp_path / "bob.key").read_text(encoding="utf-8").strip())
    assert bob.ask(LARGE)[0] == 200
    before = head.service("gb10-gateway.service").systemd_properties["MainPID"]
    cluster.play("gateway_keys", gateway_key_revoke="bob").assert_ok()
    status, answer = bob.ask(LARGE)
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    assert head.service("gb10-gateway.service").systemd_properties["MainPID"] == before
