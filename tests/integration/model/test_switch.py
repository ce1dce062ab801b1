"""Switch to another model and back, to a broken model, and stop and start: the services, the messages, and the old
model's answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from api_client import API, CURL, completion
from live_cluster import NO_SSH, Cluster, copied, extra, of_unit, on_all
from run_playbook import run
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

BROKEN = "/srv/models/tiny-broken"


def endpoint(cluster: Cluster) -> str:
    """Return the API's URL for clients."""
    return f"http://{cluster.nodes[cluster.groups['head'][0]]['ansible_host']}:8000/v1"


def served(head: Host) -> str:
    """Return the model of the running vLLM."""
    return str(json.loads(head.check_output(f"{CURL} --silent --fail {API}/v1/models"))["data"][0]["root"])


@pytest.fixture
def broken(nodes: dict[str, Host]) -> Iterator[str]:
    """The model with one truncated weights file on every node. Only loading detects the error."""
    with copied(nodes, "tiny", BROKEN, f"truncate --size=4096 {BROKEN}/*.safetensors") as folder:
        yield folder


@pytest.mark.parametrize("mode", [(), ("--check",)], ids=["run", "check mode"])
def test_the_screen(cluster: Cluster, nodes: dict[str, Host], mode: tuple[str, ...]) -> None:
    said = cluster.screen(*mode)
    assert re.fullmatch(rf"tiny answers in \d+ ms at {re.escape(endpoint(cluster))}, up for \d+ \w+", said[0])
    assert re.fullmatch(r"key: ssh -t -i \S+ \S+ sudo cat /etc/gb10/api.key", said[1])
    assert said[3].startswith("curl ") and "model: /srv/models/tiny" in said
    first = next(number for number, line in enumerate(said) if line.startswith("spark1  "))
    for name, services, memory, links in zip(
        nodes, said[first::3], said[first + 1 :: 3], said[first + 2 :: 3], strict=False
    ):
        assert services.startswith(f"{name}  gb10-ray active for ")
        assert re.fullmatch(r" *rank pid \d+: .* GiB available, lowest [\d.]+", memory)
        assert links.endswith("; 2 links 10 Gb/s")
    assert said[-1].startswith("last error: ")


def test_a_node_that_cannot_be_reached_is_on_the_screen(cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "spoilt.yml"
    hosts = {name: NO_SSH if name == "spark2" else {} for name in cluster.nodes}
    inventory.write_text(json.dumps({"gb10_cluster": {"hosts": hosts}}), encoding="utf-8")
    said = replace(cluster, arguments=["--inventory", str(inventory), *cluster.arguments]).screen()
    assert "model: /srv/models/tiny" in said
    assert any(line.startswith("spark2  CANNOT BE READ: ") for line in said)


@pytest.mark.slow
def test_a_switch_to_the_served_model_changes_nothing(cluster: Cluster, head: Host) -> None:
    """It is the repetition of a run that was killed after the model answered."""
    pid = of_unit(head, "gb10-vllm")
    cluster.play("switch_model", gb10_model="/srv/models/tiny").assert_unchanged(
        "/srv/models/tiny is served as before, until the next run of site.yml."
    )
    assert of_unit(head, "gb10-vllm") == pid


@pytest.mark.slow
def test_what_is_no_switch_is_refused_before_anything_changes(cluster: Cluster, head: Host) -> None:
    pid = of_unit(head, "gb10-vllm")
    for variables, words in (
        ({}, "Neither gb10_model nor gb10_recipe is on the command line"),
        ({"gb10_model": "/srv/models/absent"}, "/srv/models/absent/config.json is missing on spark1"),
    ):
        refused = cluster.play("switch_model", **variables).assert_failed(words)
        assert set(refused.changed.values()) == {0}
    head.check_output("systemd-run --unit=squatter python3 -m http.server 8123")
    try:
        refused = cluster.play("switch_model", gb10_model="/srv/models/tiny-moe", gb10_api_port=8123)
    finally:
        head.check_output("systemctl stop squatter")
    assert "port 8123 of spark1 is in use by python3" in refused.output
    assert of_unit(head, "gb10-vllm") == pid


def test_too_little_memory_is_refused_with_numbers(cluster: Cluster) -> None:
    # The lab has no memory plan, so this runs only the module.
    run("tests/integration/model/memory.yml", [*cluster.arguments, *extra(needed=1 << 50)]).assert_failed(
        "1048576.0 GiB available, as in the memory plan", "the largest processes are "
    )


@pytest.mark.slow
def test_another_model_and_back(cluster: Cluster, head: Host) -> None:
    text = completion(head)
    try:
        cluster.play("switch_model", gb10_model="/srv/models/tiny-moe").assert_ok(
            "in place of /srv/models/tiny, until the next run of site.yml", "gb10_model: /srv/models/tiny-moe"
        )
        assert served(head) == "/srv/models/tiny-moe"
        assert any(line.startswith("the inventory specifies /srv/models/tiny: ") for line in cluster.screen())
    finally:
        cluster.serve().assert_ok()
    assert completion(head) == text
    cluster.site().assert_unchanged()


@pytest.mark.slow
def test_a_switch_to_a_broken_model_ends_with_the_old_one_answering(
    cluster: Cluster, nodes: dict[str, Host], head: Host, broken: str
) -> None:
    text = completion(head)
    before = on_all(nodes, "cat /etc/gb10/records/current /etc/gb10/cluster.env")
    key = head.check_output("cat /etc/gb10/api.key /etc/gb10/api.env")
    cluster.play("switch_model", gb10_model=broken, gb10_api_key="another-key-that-nobody-uses").assert_failed(
        f"{broken} could not be started:\n  spark1: gb10-vllm.service failed to start: ",
        "Restored /srv/models/tiny. It answers again.",
    )
    assert (served(head), completion(head)) == ("/srv/models/tiny", text)
    assert on_all(nodes, "cat /etc/gb10/records/current /etc/gb10/cluster.env") == before
    for host in nodes.values():
        assert host.check_output("systemctl is-enabled gb10-ray") == "enabled"
    assert head.check_output("cat /etc/gb10/api.key /etc/gb10/api.env") == key
    # The server's digest has the time of the key's file, which the rollback wrote again.
    cluster.site().assert_ok()
    cluster.site().assert_unchanged()


@pytest.mark.slow
def test_a_switch_on_which_ray_does_not_come_up_ends_with_the_old_one_answering(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    text = completion(head)
    before = on_all(nodes, "cat /etc/gb10/records/current /etc/gb10/cluster.env")
    # A changed rank environment restarts Ray, which ends the old model. Ray cannot start within a second.
    changed = {"gb10_extra_env": {"OMP_NUM_THREADS": "2"}, "ray_cluster_join_timeout": 1}
    cluster.play("switch_model", gb10_model="/srv/models/tiny-moe", **changed).assert_failed(
        "/srv/models/tiny-moe could not be started:\n  spark1: Ray is not complete: ",
        "Restored /srv/models/tiny. It answers again.",
    )
    assert (served(head), completion(head)) == ("/srv/models/tiny", text)
    assert on_all(nodes, "cat /etc/gb10/records/current /etc/gb10/cluster.env") == before
    cluster.site().assert_unchanged()


@pytest.mark.slow
def test_stopped_is_stopped_until_the_next_run(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    text = completion(head)
    cluster.play("stop", "--check").assert_ok("Stopping gb10-vllm.service on spark1")
    assert completion(head) == text
    cluster.play("stop").assert_ok()
    for host in nodes.values():
        assert host.run("pgrep --full '[r]aylet|[V]LLM|bin/[v]llm'").rc == 1
        assert host.run("systemctl is-enabled gb10-ray").stdout.strip() == "disabled"
        # The watchdog reports a failed service as one that used all its starts.
        assert host.run("systemctl is-active gb10-ray gb10-vllm").stdout.split() == ["inactive", "inactive"]
    cluster.play("stop").assert_unchanged()
    assert cluster.screen()[0] == f"model: none is served at {endpoint(cluster)}"
    cluster.serve().assert_ok()
    assert completion(head) == text
