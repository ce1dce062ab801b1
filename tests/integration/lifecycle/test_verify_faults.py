"""verify.yml reports each planted fault of a serving cluster by its ID, and no other."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from api_client import answers_again
from live_cluster import Cluster
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

RAIL, TWIN = "enp1s0f1np1", "enP2p1s0f1np1"
PACKAGES = "/opt/gb10/runtime/current/lib/python3*/site-packages"
UNITS = "/etc/systemd/system"
#: Findings that follow when a rank stops or ranks cannot reach each other, one after the other within a minute.
CONSEQUENCES = {
    "engine-silent",
    "api-not-ready",
    "ray-node-missing",
    "rank-missing",
    "service-down",
    "service-stopped",
    "service-restarts",
}
#: A finding that stays for minutes after the model serves again.
RESTARTS = {"service-restarts"}


@dataclass(frozen=True)
class Fault:
    """Commands that plant and remove a fault, by host (head, worker), and the IDs of its findings.

    ``stops``: the model stops serving; it has to answer again after ``remove``. ``restarted``: it has to answer before
    the verification.
    """

    plant: Mapping[str, str]
    remove: Mapping[str, str]
    expected: set[str]
    stops: bool = False
    restarted: bool = False


def on_worker(plant: str, remove: str, *expected: str, stops: bool = False, restarted: bool = False) -> Fault:
    return Fault({"worker": plant}, {"worker": remove}, set(expected), stops, restarted)


def drop_in(unit: str, lines: str) -> str:
    """Return the commands that change a unit and restart it. ``lines``: commands that print the change."""
    folder = f"{UNITS}/{unit}.d"
    return (
        f"mkdir -p {folder} && {{ echo '[Service]'; {lines}; }} >{folder}/fault.conf && systemctl daemon-reload && "
        f"systemctl restart {unit}"
    )


def without_drop_in(unit: str) -> str:
    return f"rm -r {UNITS}/{unit}.d && systemctl daemon-reload && systemctl restart {unit}"


RAY, VLLM = "gb10-ray.service", "gb10-vllm.service"
FAULTS = {
    "MTU of a rail": on_worker(
        f"ip link set {RAIL} mtu 1500", f"ip link set {RAIL} mtu 9000", "rail-mtu", "mtu-differs", "rail-path"
    ),
    "rail down": on_worker(f"ip link set {TWIN} down", f"ip link set {TWIN} up", "rail-down", "rail-path"),
    "another release": on_worker(
        f"cd {PACKAGES} && mv vllm-*.dist-info vllm-0.31.0.dist-info",
        (
            f"cd {PACKAGES} && mv vllm-0.31.0.dist-info $(sed -n 's/^Version: /vllm-/p' "
            "vllm-0.31.0.dist-info/METADATA | head -1).dist-info"
        ),
        "packages-differ",
    ),
    "changed variable": on_worker(
        "echo NCCL_DEBUG=INFO >>/etc/gb10/cluster.env",
        "sed -i '/^NCCL_DEBUG=INFO$/d' /etc/gb10/cluster.env",
        *("environment-differs", "environment-stale"),
    ),
    "edited file": on_worker(
        f"cd {PACKAGES}/vllm && cp -p sampling_params.py /opt/ && echo '# edited' >>sampling_params.py",
        f"cd {PACKAGES}/vllm && mv /opt/sampling_params.py .",
        "files-changed",
    ),
    "stale rank": on_worker(
        "systemd-run --quiet --unit=fault python3 -c "
        + shlex.quote("import time; open('/proc/self/comm', 'w').write('ray::RayWorkerP'); time.sleep(3600)"),
        "systemctl stop fault",
        "rank-stale",
    ),
    "held memory": on_worker(
        (
            'systemd-run --quiet --unit=fault python3 -c \'import time; held = b"x" * (1300 << 20); '
            "time.sleep(3600)' && sleep 3"
        ),
        "systemctl stop fault",
        "process-memory",
    ),
    "second netplan file": on_worker(
        (
            f"printf 'network:\\n  ethernets:\\n    {RAIL}: {{dhcp4: true}}\\n' >/etc/netplan/90-other.yaml; chmod "
            "600 /etc/netplan/90-other.yaml"
        ),
        "rm /etc/netplan/90-other.yaml",
        "netplan-second",
    ),
    # A fixture: all hosts of a lab have the kernel's clock. Debian's Python imports this file.
    "wrong clock": on_worker(
        "cp -p /etc/python3.*/sitecustomize.py /opt/ && "
        "echo 'import time; time.time = lambda real=time.time: real() + 600' | tee -a /etc/python3.*/sitecustomize.py",
        "cp -p /opt/sitecustomize.py /etc/python3.*/ && rm /opt/sitecustomize.py",
        "clock-wrong",
    ),
    "full disk": on_worker(
        "mount -t tmpfs -o size=16M none /boot && ! dd if=/dev/zero of=/boot/full bs=1M status=none",
        "umount /boot",
        "disk-full",
    ),
    "swapped addresses": on_worker(
        (
            f"ip addr flush dev {RAIL}; ip addr flush dev {TWIN}; ip addr add 10.110.1.2/24 dev {RAIL}; ip addr "
            f"add 10.110.0.2/24 dev {TWIN}"
        ),
        "netplan apply",
        *("rails-crossed", "rail-address", "rail-path"),
        stops=True,
    ),
    # A fixture: the CPU build uses no NCCL.
    "another NCCL": on_worker(
        "echo 'int ncclGetVersion(int *v) { return *v = 0; }' | gcc -shared -fPIC -x c - "
        f"-Wl,-soname,libnccl.so.2 -o /opt/libnccl.so.2 && cd {PACKAGES} && echo 'import ctypes; "
        f'ctypes.CDLL("/opt/libnccl.so.2")\' >fault.pth && systemctl restart {RAY}',
        f"cd {PACKAGES} && rm fault.pth /opt/libnccl.so.2 && systemctl restart {RAY}",
        *("nccl-differs", "nccl-mapped"),
        stops=True,
        restarted=True,
    ),
    "Ray stopped": on_worker(f"systemctl stop {RAY}", f"systemctl start {RAY}", "ray-node-missing", stops=True),
    # The stopped engine cannot notice the death of its rank, so that /health still returns 200.
    "rank killed": Fault(
        # The watchdog would restart the server.
        {
            "head": "systemctl stop gb10-watchdog && pkill -STOP VLLM::EngineCor",
            "worker": "pkill -KILL ray::RayWorkerP",
        },
        {"head": "pkill -CONT VLLM::EngineCor; systemctl start gb10-watchdog"},
        {"rank-missing", "engine-silent", "watchdog-down"},
        stops=True,
    ),
    "API without key": Fault(
        {
            "head": drop_in(
                VLLM,
                "printf 'LoadCredential=\\nLoadCredential=ray.token:/etc/gb10/ray.token\\nExecStart=\\n'; "
                f"sed -n '/^ExecStart=/s/--middleware=[^ ]*//p' {UNITS}/{VLLM}",
            )
        },
        {"head": without_drop_in(VLLM)},
        {"api-without-key"},
        stops=True,
        restarted=True,
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_reported_by_its_id(
    cluster: Cluster, head: Host, workers: list[Host], tmp_path: Path, fault: Fault
) -> None:
    hosts = {"head": head, "worker": workers[0]}
    for host in hosts.values():
        # The starts of the faults before would reach systemd's limit, which ends a service for good.
        host.check_output(f"systemctl reset-failed {RAY} {VLLM}")
    for name, command in fault.plant.items():
        hosts[name].check_output(command)
    try:
        if fault.restarted:
            answers_again(head)
        done, found = cluster.verify(tmp_path / "found.jsonl", "--extra-vars", "verify_fail_on=warning")
        assert (
            fault.expected
            <= found
            <= fault.expected | (RESTARTS if fault.restarted else CONSEQUENCES if fault.stops else set())
        ), done.output
        done.assert_failed()
    finally:
        for name, command in fault.remove.items():
            hosts[name].check_output(command)
        if fault.stops:
            cluster.serve().assert_ok()
            answers_again(head)
    assert cluster.verify(tmp_path / "after.jsonl")[1] <= (RESTARTS if fault.stops else set())
