"""The running Ray: joined over the fabric, with a secret token."""

from __future__ import annotations

import re
from collections.abc import Callable

from run_playbook import Run
from testinfra.host import Host

TOKEN = "/etc/gb10/ray.token"  # the path of a secret


def environment(host: Host) -> dict[str, str]:
    return dict(line.split("=", 1) for line in host.file("/etc/gb10/cluster.env").content_string.splitlines())


def test_every_node_is_called_by_its_fabric_address(nodes: dict[str, Host]) -> None:
    pinned = {name: environment(host)["VLLM_HOST_IP"] for name, host in nodes.items()}
    assert len(set(pinned.values())) == len(nodes)
    for name, host in nodes.items():
        assert f"--node-ip-address={pinned[name]}" in host.check_output(
            "systemctl show --property=ExecStart gb10-ray.service"
        )
        assert pinned[name] in host.check_output(f"ip -4 address show dev {environment(host)['NCCL_SOCKET_IFNAME']}")


def test_ray_counts_these_nodes_and_one_gpu_each(head: Host, nodes: dict[str, Host]) -> None:
    expected = " ".join(f"--expect={name}={environment(host)['VLLM_HOST_IP']}" for name, host in nodes.items())
    wait = f"RAY_AUTH_TOKEN_PATH={TOKEN} python3 /usr/local/lib/gb10-wait-for-ray.py --timeout=5"
    assert head.run(f"{wait} {expected}").rc == 0
    missing = head.run(f"{wait} {expected} --expect=spark9=10.110.0.99")
    assert missing.rc == 1
    assert "spark9 (10.110.0.99) has not joined" in missing.stderr


def test_the_dashboard_listens_on_loopback_alone(head: Host) -> None:
    listeners = head.check_output("ss -Hltn 'sport = :8265'").splitlines()
    assert [line.split()[3] for line in listeners] == ["127.0.0.1:8265"]


def test_the_dashboard_refuses_without_the_token(head: Host) -> None:
    ask = "curl --silent --output /dev/null --write-out '%{http_code}'"
    assert head.check_output(f"{ask} http://127.0.0.1:8265/api/v0/nodes") in ("401", "403")


def test_the_services_run_unprivileged(nodes: dict[str, Host]) -> None:
    for host in nodes.values():
        pid = host.check_output("systemctl show --property=MainPID --value gb10-ray.service")
        assert host.check_output(f"stat --format=%U /proc/{pid}") == "gb10"


def test_the_token_is_the_same_everywhere_and_shown_nowhere(
    alone: Callable[[str], Run], nodes: dict[str, Host]
) -> None:
    tokens = {host.file(TOKEN).content_string.strip() for host in nodes.values()}
    assert len(tokens) == 1
    token = tokens.pop()
    assert re.fullmatch(r"[0-9a-f]{64}", token)
    for name, host in nodes.items():
        file = host.file(TOKEN)
        assert (file.mode, file.user) == (0o600, "root"), name
        # /proc/PID/cmdline of every process, and both journals. Not grep -c, because it would show the pattern in argv.
        argvs = host.check_output("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' || true")
        assert token not in argvs, name
        assert token not in host.check_output("journalctl --no-pager --output=json"), name
        assert token not in host.check_output("cat /etc/gb10/cluster.env /etc/systemd/system/gb10-*.service"), name
    assert token not in alone("ray_cluster").assert_ok().output
