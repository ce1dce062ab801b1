"""A Spark's own architecture, from the modules to the answer. On an x86-64 machine, QEMU's user mode runs its programs."""

from __future__ import annotations

import platform
import sys

from api_client import ask, completion
from live_cluster import Cluster
from testinfra.host import Host

CURRENT = "/opt/gb10/runtime/current"


def machine(host: Host, path: str) -> int:
    """Return the machine of an ELF file, which is at offset 18."""
    return int(host.check_output(f"od --address-radix=n --format=u2 --skip-bytes=18 --read-bytes=2 {path}"))


def test_the_host_is_aarch64_in_every_respect(cluster: Cluster, head: Host) -> None:
    assert head.check_output("uname --machine") == "aarch64"
    assert head.check_output("dpkg --print-architecture") == "arm64"
    facts = cluster.module("ansible.builtin.setup", gather_subset=["!all", "min"])["ansible_facts"]
    assert facts["ansible_architecture"] == "aarch64"


def test_the_node_is_read_with_its_gpu_its_ports_and_their_owners(cluster: Cluster) -> None:
    gpu = cluster.module("gb10.cluster.gpu_info")
    assert gpu["changed"] is False
    assert [(each["name"], each["capability"], each["sm"]) for each in gpu["gpus"]] == [
        ("NVIDIA GB10", "12.1", "sm_121")
    ]
    assert gpu["unified_memory"] is True
    node = cluster.module("gb10.cluster.node_info", model="/srv/models/tiny")
    assert set(node["interfaces"]) == {"lo", "enP7s7", "enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1"}
    assert node["interfaces"]["enP7s7"]["addresses"] == [f"{cluster.nodes['spark1']['ansible_host']}/24"]
    owners = {each["port"]: each["unit"] for each in node["listeners"]}
    assert (owners[22], owners[8000]) == ("ssh.service", "gb10-vllm.service")
    assert (node["model"]["model_type"], node["model_reason"]) == ("llama", "")


def test_the_model_answers(head: Host) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    chat = ask(head, "/v1/chat/completions", {"model": "tiny", "messages": messages, "max_tokens": 8}, timeout=600)
    text = chat["choices"][0]["message"]["content"].strip()
    sys.stdout.write(f"the answer: {text}\n")
    assert text and chat["usage"]["completion_tokens"] == 8
    assert completion(head) == completion(head)


def test_the_ranks_run_the_wheels_of_aarch64_under_the_confinement_of_the_unit(head: Host) -> None:
    aarch64 = 183
    libraries = head.check_output(f"find {CURRENT}/lib/ -name '*.so' -path '*vllm*'").splitlines()
    assert libraries and {machine(head, path) for path in libraries} == {aarch64}
    assert machine(head, f"{CURRENT}/bin/uv") == aarch64
    # The main process of the unit starts the ranks, and imports nothing itself.
    pid = head.check_output("pgrep --oldest VLLM::Worker_TP")
    loaded = head.check_output(f"cat /proc/{pid}/maps")
    assert "/vllm/_C" in loaded and "libtorch_cpu.so" in loaded
    status = dict(
        line.split(":\t", 1) for line in head.check_output(f"cat /proc/{pid}/status").splitlines() if ":\t" in line
    )
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16)) == ("1", "2", 0)
    assert status["Uid"].split()[0] == str(head.user("gb10").uid)


def test_the_key_comes_by_a_credential(head: Host) -> None:
    """LoadCredential= needs mounts that QEMU's user mode does not make: systemd is the machine's own."""
    assert head.file("/etc/gb10/api.key").mode == 0o600
    assert "LoadCredential=" in head.check_output("systemctl cat gb10-vllm.service")
    assert head.run("curl --silent --fail http://127.0.0.1:8000/v1/models").rc == 22


def test_status_and_verification_see_a_serving_cluster(cluster: Cluster) -> None:
    cluster.play("status").assert_unchanged()
    cluster.play("verify").assert_unchanged()


def names(host: Host) -> list[str]:
    """Return the names of the processes, at most 15 characters of each. The arguments begin with the emulator."""
    return host.check_output("ps -eo comm=").splitlines()


def test_each_host_has_a_rank(nodes: dict[str, Host]) -> None:
    assert [names(host).count("VLLM::Worker_TP") for host in nodes.values()] == [1, 1]


def test_only_the_emulator_differs_from_a_native_host(head: Host) -> None:
    """The differences are those that docs/testing.md lists."""
    emulated = platform.machine() != "aarch64"
    assert (machine(head, "/usr/lib/systemd/systemd") == 183) is not emulated
    assert machine(head, "/usr/bin/python3") == 183
