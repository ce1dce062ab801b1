"""Faults are detected, and site.yml repairs them. Each test restores the cluster; the tests run in the file's order."""

from __future__ import annotations

import json
import re
import time

import pytest
from api_client import API, CURL, completion, ranks
from live_cluster import SERVE, Cluster, extra, of_unit, on_all
from run_playbook import run_and_kill
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

TOKEN = "/etc/gb10/ray.token"  # the path of a secret
TWINS = ("enp1s0f1np1", "enP2p1s0f1np1")


def main_pids(nodes: dict[str, Host], unit: str) -> dict[str, str]:
    """Return the main process of a unit on every node."""
    return {name: of_unit(host, unit) for name, host in nodes.items()}


@pytest.mark.slow
def test_killed_while_the_runtime_is_installed_the_next_run_completes_it(
    cluster: Cluster, nodes: dict[str, Host]
) -> None:
    # A second runtime in addition to the serving one. Nothing restarts.
    arguments = [*extra(gb10_install_dir="/opt/second"), "--tags", "vllm_runtime"]
    try:
        run_and_kill("site.yml", [*cluster.arguments, *arguments], "Install exactly the locked packages", after=5)
        for host in nodes.values():
            assert not host.file("/opt/second/runtime/current").exists
        cluster.site(*arguments).assert_ok()
        for host in nodes.values():
            assert host.file("/opt/second/runtime/current").is_symlink
            assert host.check_output(
                "/opt/second/runtime/current/bin/python -c 'import ray, vllm; print(vllm.__version__)'"
            ).endswith("0.32.0")
        cluster.site(*arguments).assert_unchanged()
    finally:
        on_all(nodes, "rm -rf /opt/second")


def test_a_service_that_would_not_start_at_boot_is_enabled_without_a_restart(
    cluster: Cluster, nodes: dict[str, Host]
) -> None:
    ray = main_pids(nodes, "gb10-ray")
    nodes["spark2"].check_output("systemctl disable gb10-ray")
    assert cluster.site("--tags", "ray_cluster").assert_ok().changed_tasks() == {
        "Start gb10-ray.service, or restart it when its inputs changed"
    }
    assert nodes["spark2"].check_output("systemctl is-enabled gb10-ray") == "enabled"
    assert main_pids(nodes, "gb10-ray") == ray


@pytest.mark.slow
def test_only_the_server_restarts_when_only_its_arguments_change(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    ray, vllm = main_pids(nodes, "gb10-ray"), main_pids({"head": head}, "gb10-vllm")
    arguments = [*cluster.nodes["spark1"]["gb10_vllm_extra_args"], "--max-num-seqs=8"]
    cluster.serve(*extra(gb10_vllm_extra_args=arguments, gb10_allow_restart=False)).assert_failed(
        "gb10_allow_restart: true"
    )
    assert main_pids({"head": head}, "gb10-vllm") == vllm
    run = cluster.serve(*extra(gb10_vllm_extra_args=arguments)).assert_ok("Restarting gb10-vllm.service on spark1")
    assert run.changed_tasks() == {
        "Write gb10-vllm.service, its programs and settings",
        "Stop the vLLM server that must be replaced",
        "Start gb10-vllm.service, or restart it when its inputs changed",
        "Record the launch inputs of the working model",
    }
    assert main_pids(nodes, "gb10-ray") == ray
    assert main_pids({"head": head}, "gb10-vllm") != vllm


@pytest.mark.slow
def test_killed_while_the_server_starts_the_next_run_waits_for_it(cluster: Cluster, head: Host) -> None:
    # This run also undoes the change of the test above.
    run_and_kill("site.yml", [*cluster.arguments, *SERVE], "gb10.cluster.vllm_serve : Wait until the API is healthy")
    cluster.serve().assert_ok()
    assert completion(head).strip()


@pytest.mark.slow
def test_killed_after_writing_a_new_token_the_next_run_restarts_ray_and_shows_no_token(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    ray = main_pids(nodes, "gb10-ray")
    old = head.file(TOKEN).content_string.strip()
    head.check_output(f"rm {TOKEN}")
    shown = run_and_kill(
        "site.yml",
        [*cluster.arguments, *SERVE, "-vvv", "--diff"],
        "gb10.cluster.ray_cluster : Write gb10-ray.service, its programs and settings",
    )
    assert main_pids(nodes, "gb10-ray") == ray
    run = cluster.serve("-vvv", "--diff").assert_ok("Restarting gb10-ray.service on spark2")
    assert set(main_pids(nodes, "gb10-ray").values()).isdisjoint(ray.values())
    tokens = {host.file(TOKEN).content_string.strip() for host in nodes.values()}
    assert len(tokens) == 1
    assert tokens != {old}
    for token in (*tokens, old):
        assert token not in shown + run.output
    assert completion(head).strip()


@pytest.mark.slow
def test_killed_before_a_change_of_the_fabric_is_confirmed_the_next_run_completes_it(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    mtu = extra(gb10_fabric_mtu=8000)
    cluster.site(*mtu, *extra(gb10_allow_restart=False), "--tags", "qsfp_netplan").assert_failed(
        "must be changed while its ranks run"
    )
    run_and_kill(
        "site.yml", [*cluster.arguments, *mtu, "--tags", "qsfp_netplan"], "Verify every rail with full-size frames"
    )
    cluster.site(*mtu, "--tags", "qsfp_netplan").assert_ok()
    for host in nodes.values():
        for twin in TWINS:
            assert host.check_output(f"cat /sys/class/net/{twin}/mtu") == "8000"
    cluster.site("--tags", "qsfp_netplan").assert_ok()
    assert completion(head).strip()


@pytest.mark.slow
def test_a_failed_start_ends_early_with_the_root_cause(cluster: Cluster, head: Host) -> None:
    # On a CPU there is no memory plan, so only vLLM refuses the value.
    run = cluster.serve(
        *extra(gb10_vllm_extra_args=[*cluster.nodes["spark1"]["gb10_vllm_extra_args"], "--max-model-len=999999"])
    ).assert_failed()
    assert "999999" in run.output.split("failed to start: ")[1].splitlines()[0]
    # Only the seconds of the wait, from its output: the playbook's time before it depends on the machine.
    waited = [int(seconds) for seconds in re.findall(r"^ +spark1: +(\d+) s  ", run.output, re.MULTILINE)]
    assert waited
    assert max(waited) < 120
    cluster.serve().assert_ok()
    assert completion(head).strip()


@pytest.mark.slow
def test_without_the_cable_there_is_no_answer_and_with_it_again_site_makes_one(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    question = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 4})
    ask = f"{CURL} --silent --fail --max-time 15 --json '{question}' {API}/v1/completions"
    assert head.run(ask).rc == 0
    cluster.rails("spark2", "down")
    try:
        assert head.run(ask).rc != 0
        # The head keeps its address, so that its own processes still reach each other.
        assert "10.110.0.1/24" in head.check_output("ip -4 address show dev enp1s0f1np1")
        cluster.site("--tags", "qsfp_netplan", *extra(qsfp_netplan_probe_timeout=3)).assert_failed(
            "enp1s0f1np1 -> spark2 (10.110.0.2)"
        )
    finally:
        cluster.rails("spark2", "up")
    cluster.site().assert_ok()
    assert completion(head).strip()
    assert len(ranks(head)) == len(nodes)


@pytest.mark.slow
def test_after_a_worker_reboots_site_brings_the_answer_back(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    nodes["spark2"].run("systemctl reboot")
    time.sleep(5)
    run = cluster.site().assert_ok()
    # The enabled units start everything at boot, so no file had to be written again.
    assert (
        not {"Apply the fabric configuration on the workers", "Apply the fabric configuration on the head"}
        & run.changed_tasks()
    )
    assert not [name for name in run.changed_tasks() if name.endswith("its programs and settings")]
    assert completion(head).strip()
    assert len(ranks(head)) == len(nodes)
