"""Two clusters of one host each, and a gateway on the first host: requests by the model's name, faults and keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_cluster import Cluster, extra, started
from testinfra.host import Host
from waiting import wait_until

LARGE, SMALL = "large-model", "small-model"


class Client:
    """A client of the gateway, on the gateway's host. Its key reaches curl in a file."""

    def __init__(self, host: Host, key: str) -> None:
        self.host, self.settings = host, "/run/gateway-client.curl"
        host.check_output("install --mode=0600 /dev/null %s", self.settings)
        host.check_output("printf 'header = \"Authorization: Bearer %%s\"\\n' %s > %s", key, self.settings)

    def ask(self, model: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer of a completion."""
        request = json.dumps({"model": model, "prompt": "Hello", "max_tokens": 3, "temperature": 0, **body})
        command = "curl --silent --max-time 60 --config %s --json %s --write-out '\n%%{http_code}' http://127.0.0.1:4000/v1/completions"
        text, _line, status = self.host.check_output(command, self.settings, request).rpartition("\n")
        return int(status), json.loads(text)

    def until(self, model: str, status: int, within: float) -> dict[str, Any]:
        """Request completions until the status is returned."""

        def answer() -> tuple[dict[str, Any]] | None:
            found, body = self.ask(model)
            return (body,) if found == status else None

        return wait_until(answer, within, f"{model} does not answer with {status}")[0]


@pytest.fixture(scope="module")
def client(cluster: Cluster, head: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client with a new key, which is revoked in the end."""
    folder = tmp_path_factory.mktemp("keys")
    created = {"gateway_key_create": "alice", "gateway_key_directory": str(folder)}
    done = cluster.play("gateway_keys", **created).assert_ok()
    file = Path(folder / "alice.key")
    assert file.stat().st_mode & 0o777 == 0o600
    key = file.read_text(encoding="utf-8").strip()
    assert key not in done.output
    yield Client(head, key)
    cluster.play("gateway_keys", gateway_key_revoke="alice").assert_ok()


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
