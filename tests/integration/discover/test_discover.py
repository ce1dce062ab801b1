"""playbooks/discover.yml on three fresh hosts in a ring, with only the first host as an argument."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_cluster import Cluster
from repository import ROOT, load_yaml
from run_playbook import Run, run
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

Discover = Callable[..., Run]


@pytest.fixture
def discover(cluster: Cluster) -> Discover:
    """Run the playbook with only the first node as an argument, as a user types it."""
    seed = cluster.nodes["spark1"]
    given = [
        f"--inventory={seed['ansible_host']},",
        f"--user={seed['ansible_user']}",
        f"--private-key={seed['ansible_ssh_private_key_file']}",
    ]
    # The lab's own known_hosts, which the discovered nodes must not need.
    given.append(f"--ssh-common-args={seed['ansible_ssh_common_args']}")
    return lambda directory, *arguments: run(
        "playbooks/discover.yml", [*given, f"--extra-vars=discover_directory={directory}", *arguments]
    )


@pytest.fixture
def everybody_but_spark3(nodes: dict[str, Host]) -> Iterator[None]:
    """spark3 accepts no login, except over the connection that is already open."""
    host = nodes["spark3"]
    host.check_output("mv /home/nvidia/.ssh/authorized_keys /home/nvidia/.ssh/authorized_keys.off")
    yield
    host.check_output("mv /home/nvidia/.ssh/authorized_keys.off /home/nvidia/.ssh/authorized_keys")


@pytest.fixture
def strange_name(nodes: dict[str, Host]) -> Iterator[None]:
    """spark3's hostname would be code in an inventory."""
    # The command hostname refuses such a name, but the kernel accepts it.
    nodes["spark3"].check_output("python3 -c %s", "import socket; socket.sethostname('{{x}}\\nall:')")
    yield
    nodes["spark3"].check_output("hostname spark3")


@pytest.fixture
def open_ring(nodes: dict[str, Host]) -> Iterator[None]:
    """The cable between spark2 port 0 and spark3 port 1 is missing: both ends lose their carrier."""
    interfaces = [twin.interface for twin in SPARK_PORTS[0]]
    for interface in interfaces:
        nodes["spark2"].check_output("ip link set %s down", interface)
    yield
    for interface in interfaces:
        nodes["spark2"].check_output("ip link set %s up", interface)


def ansible(command: str, *arguments: str | Path) -> str:
    """Run an Ansible command with only the written inventory."""
    result = subprocess.run(
        [Path(sys.executable).with_name(command), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_the_ring_is_found_and_its_inventory_works(discover: Discover, cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    answer = discover(directory, "--extra-vars=discover_model=/srv/models/tiny").assert_ok()
    for cable in ("spark1 port 0 - spark2 port 1", "spark1 port 1 - spark3 port 0", "spark2 port 0 - spark3 port 1"):
        assert f"cable: {cable}" in answer.output
    assert answer.output.count("SHA256:") >= 4, "each fingerprint is shown before it is used, and at the end"
    written = json.loads(ansible("ansible-inventory", "--inventory", directory, "--list"))
    assert (written["head"]["hosts"], written["worker"]["hosts"]) == (["spark1"], ["spark2", "spark3"])
    variables = load_yaml((directory / "hosts.yml").read_text(encoding="utf-8"))["gb10_cluster"]["vars"]
    assert (variables["gb10_fabric_topology"], variables["gb10_fabric_ports"], variables["gb10_model"]) == (
        "ring",
        [0, 1],
        "/srv/models/tiny",
    )
    assert variables["gb10_pipeline_parallel_size"] == 3, "attention heads do not divide by three"
    addresses = {name: host["ansible_host"] for name, host in written["_meta"]["hostvars"].items()}
    assert addresses == {name: cluster.nodes[name]["ansible_host"] for name in ("spark1", "spark2", "spark3")}
    assert (
        ansible("ansible", "all", "--inventory", directory, "--module-name", "ansible.builtin.ping").count("SUCCESS")
        == 3
    )


def test_the_keys_are_those_that_the_lab_pinned(discover: Discover, cluster: Cluster, tmp_path: Path) -> None:
    discover(tmp_path / "mine").assert_ok()
    pinned = (
        (Path(cluster.nodes["spark1"]["ansible_ssh_private_key_file"]).parent / "known_hosts")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    written = (tmp_path / "mine" / "known_hosts.txt").read_text(encoding="utf-8").splitlines()
    assert written == [line for line in pinned if line.split()[0] != cluster.nodes["spark1"]["ansible_host"]]


def test_nothing_is_overwritten(discover: Discover, tmp_path: Path) -> None:
    answer = discover(tmp_path).assert_failed("an inventory is never overwritten")
    assert "List the machine's cable neighbors" not in answer.output


def test_check_mode_shows_and_writes_nothing(discover: Discover, tmp_path: Path) -> None:
    answer = discover(tmp_path / "mine", "--check", "--diff").assert_ok()
    assert re.search(r"^ *\+ +gb10_fabric_topology: ring$", answer.output, re.MULTILINE), answer.output
    assert not (tmp_path / "mine").exists()


@pytest.mark.usefixtures("everybody_but_spark3")
def test_a_machine_that_lets_nobody_in(discover: Discover, tmp_path: Path) -> None:
    discover(tmp_path / "mine").assert_failed("Permission denied", "try `ssh -J ")
    assert not (tmp_path / "mine").exists()
    discover(tmp_path / "mine", "--extra-vars=discover_partial=true").assert_ok("spark1, spark2: topology direct")
    assert "spark3" not in (tmp_path / "mine" / "hosts.yml").read_text(encoding="utf-8")


@pytest.mark.usefixtures("strange_name")
def test_an_answer_that_is_no_answer(discover: Discover, tmp_path: Path) -> None:
    for arguments in ([], ["--check", "--diff"]):
        discover(tmp_path / "mine", *arguments).assert_failed(
            ".hostname: invalid value '{{x}}", "1 to 63 letters, digits and hyphens"
        )
        assert not (tmp_path / "mine").exists()


@pytest.mark.usefixtures("open_ring")
def test_a_missing_cable(discover: Discover, tmp_path: Path) -> None:
    discover(tmp_path / "mine").assert_failed(
        "a ring of 3 Sparks lacks the cable between spark2 port 0 and spark3 port 1", "sudo ip link set enp1s0f0np0 up"
    )
    assert not (tmp_path / "mine").exists()


def test_the_written_inventory_brings_up_the_fabric(discover: Discover, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    discover(directory, "--extra-vars=discover_model=/srv/models/tiny").assert_ok()
    # The lab differences that this inventory lacks: the nodes have no RDMA, and maybe less memory than a Spark's reserve.
    arguments = [
        "--inventory",
        str(directory),
        "--tags",
        "qsfp_netplan",
        "--extra-vars",
        json.dumps({"gb10_fabric_rdma_required": False, "gb10_memory_reserve": 2}),
    ]
    run("site.yml", arguments).assert_ok()
    run("site.yml", arguments).assert_unchanged()
