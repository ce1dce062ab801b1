"""verify.yml on a serving cluster: no finding while it is healthy, and each planted fault by its ID. golden.yml finds changed weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from api_client import answers_again
from live_cluster import Cluster
from run_playbook import Run, run
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

RAIL, TWIN = "enp1s0f1np1", "enP2p1s0f1np1"
PACKAGES = "/opt/gb10/runtime/current/lib/python3*/site-packages"
WEIGHTS = "/srv/models/tiny/model.safetensors"
#: Fault -> the commands that plant it on the worker, those that remove it, and the IDs of its findings.
FAULTS = {
    "MTU of a rail": (f"ip link set {RAIL} mtu 1500", f"ip link set {RAIL} mtu 9000", {"rail-mtu", "mtu-differs", "rail-path"}),
    "rail down": (f"ip link set {TWIN} down", f"ip link set {TWIN} up", {"rail-down", "rail-path"}),
    "swapped addresses": (
        f"ip addr flush dev {RAIL}; ip addr flush dev {TWIN}; ip addr add 10.110.1.2/24 dev {RAIL}; ip addr add 10.110.0.2/24 dev {TWIN}",
        "netplan apply",
        {"rails-crossed", "rail-address", "rail-path"},
    ),
    "another release": (
        f"cd {PACKAGES} && mv vllm-*.dist-info vllm-0.31.0.dist-info",
        f"cd {PACKAGES} && mv vllm-0.31.0.dist-info $(sed -n 's/^Version: /vllm-/p' vllm-0.31.0.dist-info/METADATA | head -1).dist-info",
        {"packages-differ"},
    ),
    "edited file": (
        f"cd {PACKAGES}/vllm && cp -p sampling_params.py /opt/ && echo '# edited' >>sampling_params.py",
        f"cd {PACKAGES}/vllm && mv /opt/sampling_params.py .",
        {"files-changed"},
    ),
    "second netplan file": (
        f"printf 'network:\\n  ethernets:\\n    {RAIL}: {{dhcp4: true}}\\n' >/etc/netplan/90-other.yaml; chmod 600 /etc/netplan/90-other.yaml",
        "rm /etc/netplan/90-other.yaml",
        {"netplan-second"},
    ),
}
#: Findings that follow when the ranks cannot reach each other, one after the other within a minute.
CONSEQUENCES = {"engine-silent", "api-not-ready", "ray-node-missing", "rank-missing", "service-restarts"}


def verify(cluster: Cluster, file: Path, *arguments: str) -> tuple[Run, set[str]]:
    """Return the run of verify.yml and the IDs of its findings."""
    done = run("playbooks/verify.yml", [*cluster.arguments, "--extra-vars", f"verify_output={file}", *arguments])
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return done, {line["id"] for line in lines if "id" in line}


@pytest.mark.parametrize("mode", [(), ("--check", "--diff"), ("--extra-vars", "verify_quick=true")], ids=["run", "check mode", "quick"])
def test_a_healthy_cluster_has_no_finding(cluster: Cluster, tmp_path: Path, mode: tuple[str, ...]) -> None:
    done = run("playbooks/verify.yml", [*cluster.arguments, "--extra-vars", f"verify_output={tmp_path}/found.jsonl", *mode])
    assert done.assert_ok().shown("Show the findings and the differences between nodes")[0].endswith("no finding")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_by_its_id(cluster: Cluster, workers: list[Host], tmp_path: Path, fault: str) -> None:
    plant, remove, expected = FAULTS[fault]
    workers[0].check_output(plant)
    try:
        done, found = verify(cluster, tmp_path / "found.jsonl")
        assert found - (CONSEQUENCES if "rails-crossed" in expected else set()) == expected, done.output
        assert done.status != 0, "the worst finding is an error"
    finally:
        workers[0].check_output(remove)
        if "rails-crossed" in expected:
            cluster.serve().assert_ok()
    assert verify(cluster, tmp_path / "after.jsonl")[1] == set()


@pytest.fixture
def recorded(cluster: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """The arguments of a run with a golden record of the healthy model."""
    given = ("--extra-vars", f"golden_directory={tmp_path}")
    run("playbooks/golden.yml", [*cluster.arguments, *given, "--extra-vars", "golden_record=true"]).assert_ok()
    return given


@pytest.mark.slow
def test_changed_weights_give_other_golden_answers(
    cluster: Cluster, nodes: dict[str, Host], head: Host, recorded: tuple[str, ...]
) -> None:
    healthy = run("playbooks/golden.yml", [*cluster.arguments, *recorded]).assert_unchanged()
    assert "6 equal, 0 near, 0 different" in healthy.output
    # A third of the tensors' bytes becomes zero.
    program = "import sys; d = bytearray(sys.stdin.buffer.read()); d[len(d) // 3 : 2 * len(d) // 3] = bytes(len(d) // 3); sys.stdout.buffer.write(d)"
    for host in nodes.values():
        host.check_output(f"mv {WEIGHTS} /opt/weights && python3 -c '{program}' </opt/weights >{WEIGHTS}")
    try:
        head.check_output("systemctl restart gb10-vllm")
        answers_again(head)
        broken = run("playbooks/golden.yml", [*cluster.arguments, *recorded])
        assert broken.status != 0
        assert "different" in broken.output, broken.output
    finally:
        for host in nodes.values():
            host.check_output(f"mv /opt/weights {WEIGHTS}")
        head.check_output("systemctl restart gb10-vllm")
        answers_again(head)
    run("playbooks/golden.yml", [*cluster.arguments, *recorded]).assert_unchanged()
