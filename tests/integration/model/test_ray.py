"""The running Ray: joined over the fabric, with a secret token."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from api_client import answers_again
from live_cluster import Cluster, extra, of_unit
from run_playbook import Run, run
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


@pytest.mark.slow
def test_an_address_that_another_node_has_now_is_refused(cluster: Cluster, head: Host, workers: list[Host]) -> None:
    address = environment(head)["VLLM_HOST_IP"]
    workers[-1].check_output(f"ip address add {address}/32 dev lo")
    try:
        said = f"VLLM_HOST_IP: spark{len(workers) + 1} has {address} on lo now. Expected: a unique address"
        cluster.site("--tags", "ray_cluster").assert_failed(said)
    finally:
        workers[-1].check_output(f"ip address del {address}/32 dev lo")
        # Meanwhile the worker's Ray could not reach the head. On a slow machine it gives up, and its unit restarts.
        answers_again(head)


def test_an_address_that_ray_did_not_register_is_refused(cluster: Cluster, head: Host) -> None:
    """A Ray that stays, because the file is right, and that registered the node with another address."""
    name, file, path = head.check_output("hostname"), environment(head), "/run/gb10-test.env"
    given = {
        "node": name,
        "address": "127.0.0.1",
        "interface": "lo",
        "nodes": {name: "127.0.0.1"},
        "path": path,
        "ray_unit": "gb10-ray.service",
    }
    arguments = [*cluster.arguments, *extra(host_ip=given)]
    try:
        # With a new file, its service restarts.
        run("tests/integration/model/host_ip.yml", arguments).assert_ok()
        said = f"127.0.0.1, but Ray registered {name} with {file['VLLM_HOST_IP']}"
        run("tests/integration/model/host_ip.yml", arguments).assert_failed(said)
    finally:
        head.check_output(f"rm {path}")


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
        pid = of_unit(host, "gb10-ray")
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


#: Listens on the dashboard's and on Ray's port as another local user, and logs each byte that it receives.
SQUATTER = """
import selectors, socket, sys
select = selectors.DefaultSelector()
for port in (8265, 6379):
    select.register(socket.create_server((sys.argv[1], port)), selectors.EVENT_READ, socket.socket.accept)
print('listens', flush=True)
while True:
    for key, _events in select.select():
        if key.data:
            select.register(key.data(key.fileobj)[0], selectors.EVENT_READ)
        elif data := key.fileobj.recv(65536):
            print('received', data, flush=True)
        else:
            select.unregister(key.fileobj)
"""


@pytest.mark.slow
@pytest.mark.disruptive
def test_another_user_on_the_ports_of_ray_gets_no_token_and_a_new_one_follows(
    cluster: Cluster, head: Host, workers: list[Host], nodes: dict[str, Host]
) -> None:
    """A local user waits for a stop of Ray, listens in its place, and hopes for the token of the next start."""
    old = head.file(TOKEN).content_string.strip()
    wait = f"RAY_AUTH_TOKEN_PATH={TOKEN} python3 -I /usr/local/lib/gb10-wait-for-ray.py --timeout=1 --expect=x=10.0.0.1"
    journal = "journalctl --no-pager --output=cat --unit=squatter"
    address = environment(head)["VLLM_HOST_IP"]
    connects = f"timeout 3 bash -c '</dev/tcp/{address}/6379'"
    squat = "systemd-run --quiet --collect --unit=squatter --uid=nobody python3 -u -c %s 0.0.0.0"
    head.check_output("systemctl stop gb10-vllm gb10-ray")
    try:
        head.check_output(squat, SQUATTER)
        head.check_output(f"timeout 20 sh -c 'until {journal} | grep -q listens; do sleep 0.2; done'")
        # The kernel answers for no other user, on loopback and for the workers.
        assert "timed out" in head.run(wait).stderr
        assert [worker.run(connects).rc for worker in workers] == [124] * len(workers)
        assert "received" not in head.check_output(journal)
        # Without the firewall's rule, Ray's processes on the workers connect, and the program knows the stranger.
        head.check_output("nft delete chain inet gb10 serving")
        assert "(squatter.service) instead of gb10-ray.service, so Ray's token was not sent" in head.run(wait).stderr
        assert old not in head.check_output(journal)
    finally:
        head.run("systemctl stop squatter; nft -f /etc/gb10/firewall.nft")
    renewed = cluster.site("--tags", "ray_cluster,vllm_serve", "-e", "ray_cluster_new_token=true")
    renewed.assert_ok("Replacing the Ray token of all nodes. Ray and the served model restart.")
    tokens = {host.file(TOKEN).content_string.strip() for host in nodes.values()}
    assert len(tokens) == 1
    assert re.fullmatch(r"[0-9a-f]{64}", token := tokens.pop())
    assert token != old
    assert token not in renewed.output
    cluster.site("--tags", "ray_cluster,vllm_serve").assert_unchanged()
