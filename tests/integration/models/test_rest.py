"""Models that rest after silence: a request to the gateway starts its model, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from live_cluster import Cluster, extra
from live_gateway import Client, client_of
from testinfra.host import Host
from waiting import wait_until

LARGE, SMALL = "large-model", "small-model"
#: systemd's file of the socket, as long as the model rests.
RESTS = "/run/systemd/transient/gb10-wake.socket"


def state(host: Host) -> str:
    return host.run("systemctl is-active gb10-vllm.service").stdout.strip()


def rests(host: Host) -> Callable[[], bool]:
    return lambda: host.file(RESTS).exists and state(host) == "inactive"


@pytest.fixture(scope="module")
def resting(cluster: Cluster) -> Iterator[Cluster]:
    try:
        cluster.site(*extra(gb10_idle_stop="30s")).assert_ok()
        yield cluster
    finally:
        cluster.site().assert_ok()


@pytest.fixture(scope="module")
def client(cluster: Cluster, head: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client_of(cluster, head, tmp_path_factory.mktemp("keys")) as found:
        yield found


def test_both_models_rest_and_a_request_starts_the_one_that_it_names(
    resting: Cluster, nodes: dict[str, Host], client: Client
) -> None:
    large, small = nodes.values()
    for host in (large, small):
        wait_until(rests(host), 120, "the model does not rest")
    said = resting.play("status").assert_unchanged().output
    assert said.count("the model rests for ") == 2 and "problem: " not in said and "last error: none" in said
    status, answer = client.ask(SMALL, seconds=300)
    assert (status, answer["model"]) == (200, SMALL)
    assert (state(small), small.file(RESTS).exists) == ("active", False) and rests(large)()


def test_a_killed_watchdog_and_a_killed_start_lose_no_request(nodes: dict[str, Host], client: Client) -> None:
    small = list(nodes.values())[1]
    wait_until(rests(small), 120, "the model does not rest")
    small.check_output("systemctl kill --signal=SIGKILL gb10-watchdog.service")
    assert rests(small)()
    # The first server that starts is killed.
    killer = "while ! systemctl --quiet is-active gb10-vllm.service; do sleep 0.2; done; sleep 3; exec systemctl kill --kill-whom=main --signal=SIGKILL gb10-vllm.service"
    small.check_output("systemd-run --quiet --unit=kill-start sh -c %s", killer)
    assert client.ask(SMALL, seconds=400)[0] == 200
    assert int(small.check_output("systemctl show --value --property=NRestarts gb10-vllm.service")) >= 1


def test_a_stopped_model_does_not_start_with_the_next_request(
    resting: Cluster, nodes: dict[str, Host], client: Client
) -> None:
    large = next(iter(nodes.values()))
    wait_until(rests(large), 120, "the model does not rest")
    resting.play("stop", gb10_only="large").assert_ok()
    assert not large.file(RESTS).exists
    assert client.ask(LARGE, seconds=300)[0] == 503 and state(large) == "inactive"
