"""Run all info modules, preflight, the plan, and the roles up to the first service on an emulated arm64 host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_cluster import Cluster
from repository import ROOT, files
from run_playbook import Run, run
from testinfra.host import Host


def stems(folder: str) -> list[str]:
    """Return the names of the modules or steps in a folder that only read."""
    return [Path(path).stem for path in files(f"{folder}/*_info.py")]


#: Required arguments of modules and steps that only read.
ARGUMENTS: dict[str, dict[str, Any]] = {
    # No server listens there: both modules report the reason.
    "gateway_info": {"url": "http://127.0.0.1:9"},
    "hub_model_info": {"name": "org/tiny", "environment": {"HF_ENDPOINT": "http://127.0.0.1:9"}},
    "model_store_info": {"folder": "/srv/models/tiny"},
    "nccl_info": {"pids": [1]},
    "systemd_unit": {"name": "ssh.service"},
    "vllm_info": {"url": "http://127.0.0.1:8000"},
}
#: Modules and steps whose requirements this host lacks: Ray, vLLM, and the kernel's list of neighbors, which QEMU does
#: not pass on. Each result of cluster_verify_info has the clock.
NOT_HERE = {"ray_info", "vllm_arguments_info", "fabric_neighbors_info", "cluster_verify_info"}
#: Each module and step of a node that only reads -> its call.
QUESTIONS = {
    **{name: (name, ARGUMENTS.get(name, {})) for name in stems("plugins/modules")},
    **{
        name: ("node_step", {"name": name, "inputs": ARGUMENTS.get(name, {})})
        for name in stems("plugins/module_utils/node_steps")
    },
}
#: Results that differ between calls.
PASSING = {"available", "clock", "uptime", "free_bytes", "memory"}


def ask(cluster: Cluster, module: str, status: str = "SUCCESS", **arguments: Any) -> dict[str, Any]:
    """Run a module on the head as root and return its result.

    Its status must be the given one (SUCCESS means unchanged).
    """
    command = [Path(sys.executable).with_name("ansible"), *cluster.arguments, "--become", "head", "-m", module]
    given = ["-a", json.dumps(arguments)] if arguments else []
    said = subprocess.run([*command, *given], cwd=ROOT, check=False, capture_output=True, text=True)
    header, _, answer = said.stdout.partition(" => ")
    assert header.endswith(f"{cluster.groups['head'][0]} | {status}"), said.stdout + said.stderr
    return dict(json.loads(answer))


def roles(cluster: Cluster, runtime: dict[str, Path]) -> Run:
    """Run roles.yml with the wheels for this architecture."""
    return run(
        "tests/emulated/roles.yml",
        [*cluster.arguments, "--extra-vars", json.dumps({name: str(path) for name, path in runtime.items()})],
    )


def test_the_host_is_aarch64_in_every_respect(cluster: Cluster, head: Host) -> None:
    assert head.check_output("uname --machine") == "aarch64"
    assert head.check_output("dpkg --print-architecture") == "arm64"
    assert head.check_output("python3 -c 'import platform; print(platform.machine())'") == "aarch64"
    assert (
        ask(cluster, "ansible.builtin.setup", gather_subset=["!all", "min"])["ansible_facts"]["ansible_architecture"]
        == "aarch64"
    )


@pytest.mark.parametrize("name", sorted(QUESTIONS.keys() - NOT_HERE))
def test_every_question_is_answered_twice_alike(cluster: Cluster, name: str) -> None:
    module, arguments = QUESTIONS[name]
    first, second = (ask(cluster, f"gb10.cluster.{module}", **arguments) for _time in range(2))
    assert first.keys() == second.keys()
    assert {key: first[key] for key in first.keys() - PASSING} == {key: second[key] for key in second.keys() - PASSING}


def test_the_gpu_is_a_gb10_with_unified_memory(cluster: Cluster) -> None:
    answer = ask(cluster, "gb10.cluster.gpu_info")
    assert [(gpu["name"], gpu["capability"], gpu["sm"]) for gpu in answer["gpus"]] == [
        ("NVIDIA GB10", "12.1", "sm_121")
    ]
    assert answer["unified_memory"] is True
    assert answer["reason"] == ""


def test_the_node_is_read_with_its_ports_and_their_owners(cluster: Cluster, head: Host) -> None:
    answer = ask(cluster, "gb10.cluster.node_info", model="/srv/models/tiny")
    assert set(answer["interfaces"]) == {"lo", "enP7s7", "enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1"}
    assert answer["interfaces"]["enP7s7"]["addresses"] == [f"{cluster.nodes['spark1']['ansible_host']}/24"]
    sshd = int(head.check_output("systemctl show --value --property=MainPID ssh.service"))
    found = [entry for entry in answer["listeners"] if entry["port"] == 22]
    assert {(entry["pid"], entry["process"], entry["unit"]) for entry in found} == {(sshd, "sshd", "ssh.service")}
    assert (answer["model"]["model_type"], answer["model_reason"]) == ("llama", "")


def test_services_are_told_apart(cluster: Cluster) -> None:
    ssh, nothing = (
        ask(cluster, "gb10.cluster.systemd_unit", name=name)["service"]
        for name in ("ssh.service", "gb10-nothing.service")
    )
    assert (ssh["load"], ssh["active"], ssh["enabled"]) == ("loaded", "active", True)
    assert (nothing["load"], nothing["active"], nothing["pid"]) == ("not-found", "inactive", None)


def test_a_ray_that_is_not_there_is_missed_by_name(cluster: Cluster) -> None:
    assert "Ray is not complete" in ask(cluster, "gb10.cluster.node_step", "FAILED!", name="ray_info")["msg"]


def test_the_cluster_is_planned_and_nothing_changed(cluster: Cluster, runtime: dict[str, Path]) -> None:
    cluster.site(
        "--tags", "always", "--extra-vars", f"gb10_runtime_lock={runtime['gb10_runtime_lock']}"
    ).assert_unchanged()


def test_check_mode_sees_to_the_end_of_site(cluster: Cluster, head: Host, runtime: dict[str, Path]) -> None:
    # nft needs netfilter's netlink, which QEMU's user mode lacks.
    given = ("--skip-tags", "peer_firewall", "--extra-vars", f"gb10_runtime_lock={runtime['gb10_runtime_lock']}")
    cluster.site("--check", "--diff", *given).assert_ok("+++ after: /etc/systemd/system/gb10-vllm.service")
    assert not head.file("/etc/gb10").exists
    assert not head.file("/opt/gb10").exists


def test_the_roles_install_what_is_compiled_for_aarch64_once(
    cluster: Cluster, head: Host, runtime: dict[str, Path]
) -> None:
    assert "Install exactly the locked packages" in roles(cluster, runtime).assert_ok().changed_tasks()
    roles(cluster, runtime).assert_unchanged()
    current = "/opt/gb10/runtime/current"
    # The machine of an ELF file is at offset 18; 183 is EM_AARCH64.
    assert (
        head.check_output(f"od --address-radix=n --format=u2 --skip-bytes=18 --read-bytes=2 {current}/bin/uv").strip()
        == "183"
    )
    assert head.check_output(f"{current}/bin/uv --version").startswith("uv ")
    assert "aarch64" in head.check_output(
        f"{current}/bin/python -c 'from msgpack import _cmsgpack; print(_cmsgpack.__file__)'"
    )


def test_the_roles_leave_environment_and_token_as_everywhere(cluster: Cluster, head: Host) -> None:
    environment = head.file("/etc/gb10/cluster.env").content_string.splitlines()
    assert f"VLLM_HOST_IP={cluster.nodes['spark1']['ansible_host']}" in environment
    token = head.file("/etc/gb10/ray.token")
    assert (token.user, token.mode, token.size) == ("root", 0o600, 64)
    assert head.user("gb10").shell == "/usr/sbin/nologin"
