"""Closed by default: the access of an unlisted host on the management network, the location of the key, and the
services' privileges."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from live_cluster import Cluster, of_unit
from run_playbook import Run
from testinfra.host import Host
from unlisted_host import SCAN, UnlistedHost, listening

KEY = "/etc/gb10/api.key"
QUESTION = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 4})
OPENAI = """
import openai, sys
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.stdin.readline().strip())
print(client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hello"}], max_tokens=4).choices[0].message.content)
"""


def environments(host: Host, key: str) -> set[str]:
    """Return the units (by cgroup) that have a process with the key in its environment."""
    command = (
        "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/environ 2>/dev/null | tr '\\n' ' '; echo; cat $p/cgroup "
        "2>/dev/null | tail -1; done"
    )
    lines = host.check_output(command).splitlines()
    return {lines[index + 1].rpartition("/")[2] for index, line in enumerate(lines) if key in line}


def test_an_unlisted_host_reaches_ssh_and_the_api_alone(
    cluster: Cluster, nodes: dict[str, Host], head: Host, unlisted_host: UnlistedHost
) -> None:
    for name, host in nodes.items():
        ports = listening(host)
        assert len(ports) > 5
        expected = {22, 8000} if host is head else {22}
        assert unlisted_host.open(cluster.nodes[name]["ansible_host"], ports) == expected, name
    # Through the head to its fabric address, like a peer's packet.
    assert unlisted_host.open("10.110.0.1", listening(head)) <= {22, 8000}


def test_the_api_refuses_an_unlisted_host_without_the_key(
    cluster: Cluster, head: Host, unlisted_host: UnlistedHost
) -> None:
    url = f"http://{cluster.nodes[cluster.groups['head'][0]]['ansible_host']}:8000"
    said = ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--max-time", "60"]
    for path in ("/v1/completions", "/v1/models", "/invocations", "/tokenize", "/pause", "/version"):
        assert unlisted_host.run(*said, "--json", QUESTION, f"{url}{path}") == "401", path
    assert (
        unlisted_host.run(*said, "--config", "-", f"{url}/v1/models", given='header = "Authorization: Bearer wrong"')
        == "401"
    )
    assert unlisted_host.run(*said, f"{url}/health") == "200"
    header = f'header = "Authorization: Bearer {head.file(KEY).content_string.strip()}"'
    answer = unlisted_host.run(
        "curl", "--silent", "--fail", "--config", "-", "--json", QUESTION, f"{url}/v1/completions", given=header
    )
    assert json.loads(answer)["choices"][0]["text"]


def test_a_peer_reaches_all(head: Host, workers: list[Host]) -> None:
    ports = " ".join(map(str, sorted(listening(head) & {22, 6379, 6380, 6381, 8000})))
    for worker in workers:
        assert worker.check_output(f"python3 -c '{SCAN}' 10.110.0.1 {ports}").split() == ports.split()


def test_the_stock_client_works_with_the_key(head: Host) -> None:
    # On the head, because sudo on another host would log the key.
    head.check_output(f"cat >/run/client.py <<'END'\n{OPENAI}\nEND")
    client = f"/opt/gb10/runtime/current/bin/python /run/client.py http://10.110.0.1:8000/v1 <{KEY}; rm /run/client.py"
    assert head.check_output(client).strip()


def test_the_key_is_with_the_heads_server_alone(nodes: dict[str, Host], head: Host) -> None:
    file = head.file(KEY)
    key = file.content_string.strip()
    assert len(bytes.fromhex(key)) == 32
    assert (file.mode, file.user, head.file("/etc/gb10/api.env").mode) == (0o600, "root", 0o600)
    for name, host in nodes.items():
        assert environments(host, key) == ({"gb10-vllm.service"} if host is head else set()), name
        assert key not in host.check_output("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' || true"), name
        assert key not in host.check_output("cat /etc/systemd/system/gb10-*.service /etc/gb10/cluster.env"), name
        if host is not head:
            assert not host.file(KEY).exists
            assert not host.file("/etc/gb10/api.env").exists


def test_no_run_says_the_key(alone: Callable[[str], Run], head: Host) -> None:
    said = alone("vllm_serve").assert_unchanged().output
    key = head.file(KEY).content_string.strip()
    assert key not in said
    assert f"sudo cat {KEY}" in said
    assert key not in head.check_output("journalctl --no-pager --quiet --boot --lines=20000")


def test_the_services_may_do_little(nodes: dict[str, Host], head: Host) -> None:
    for name, host in nodes.items():
        assert int(host.check_output("id --user gb10")) < 1000, "logind deletes the semaphores of others"
        for unit in ("gb10-ray", "gb10-vllm") if host is head else ("gb10-ray",):
            pid = of_unit(host, unit)
            status = dict(
                line.split(":\t", 1)
                for line in host.check_output(f"cat /proc/{pid}/status").splitlines()
                if ":\t" in line
            )
            assert (int(status["CapBnd"], 16), int(status["CapEff"], 16), status["NoNewPrivs"]) == (0, 0, "1"), (
                name,
                unit,
            )
            inside = f"nsenter --mount --target={pid} setpriv --reuid=gb10 --regid=gb10 --clear-groups"
            assert host.run(f"{inside} touch /var/lib/gb10/x /dev/shm/x /tmp/x").rc == 0
            assert host.run(f"{inside} rm /var/lib/gb10/x /dev/shm/x /tmp/x").rc == 0
            assert "Read-only" in host.run(f"{inside} touch /var/tmp/../lib/x /home/x /usr/x").stderr
            assert host.run(f"{inside} cat /srv/models/tiny/config.json").rc == 0


@pytest.mark.slow
@pytest.mark.disruptive
def test_the_firewall_comes_back_after_a_reboot_and_goes_on_request(
    cluster: Cluster, workers: list[Host], unlisted_host: UnlistedHost
) -> None:
    (worker, *_others), address = workers, cluster.nodes["spark2"]["ansible_host"]
    table, ray = "nft list table inet gb10", "systemctl show --property=MainPID,Requires --value gb10-ray"
    before = worker.check_output(ray).split()
    assert "gb10-firewall.service" in before
    worker.check_output("nft delete table inet gb10")
    cluster.site("--tags", "peer_firewall").assert_ok("Announce the firewall change")
    assert worker.run(table).rc == 0
    # A reload, because a restart would also restart the units that require it.
    worker.check_output("nft delete table inet gb10; systemctl reload gb10-firewall")
    assert worker.run(table).rc == 0, "the reload does the same as the boot"
    cluster.site("--tags", "peer_firewall").assert_unchanged()
    assert unlisted_host.open(address, {6380}) == set()
    try:
        cluster.site("--tags", "peer_firewall", "--extra-vars", "peer_firewall_enabled=false").assert_ok()
        assert worker.run(table).rc != 0
        left = "/etc/gb10/firewall.nft /etc/systemd/system/gb10-firewall.service /etc/systemd/system/nftables.service.d"
        assert (
            worker.check_output(
                f"ls --directory {left} /etc/systemd/system/*.requires/gb10-firewall.service 2>/dev/null || true"
            )
            == ""
        )
        without = worker.check_output(ray).split()
        assert "gb10-firewall.service" not in without
        # The process continues.
        assert {word for word in before if word.isdigit()} == {word for word in without if word.isdigit()}
    finally:
        cluster.site("--tags", "peer_firewall").assert_ok()


@pytest.mark.slow
@pytest.mark.disruptive
def test_another_firewall_is_told_and_left_alone(cluster: Cluster, workers: list[Host]) -> None:
    (worker, *_others) = workers
    worker.check_output(
        "nft 'table inet mine { chain in { type filter hook input priority 5; policy drop; accept; }; }'"
    )
    try:
        mine = worker.check_output("nft list table inet mine")
        cluster.site("--tags", "peer_firewall").assert_ok(
            "the nftables table inet mine controls incoming traffic.", "10.110.0.1 on enp1s0f1np1"
        )
        assert worker.run("nft list table inet gb10").rc != 0
        assert worker.check_output("nft list table inet mine") == mine
    finally:
        worker.check_output("nft delete table inet mine")
        cluster.site("--tags", "peer_firewall").assert_ok()


@pytest.mark.slow
@pytest.mark.disruptive
def test_a_firewall_of_ipv6_alone_leaves_ipv4_to_ours(cluster: Cluster, workers: list[Host]) -> None:
    (worker, *_others) = workers
    worker.check_output(
        "nft 'table ip6 mine { chain in { type filter hook input priority 5; policy drop; accept; }; }'"
    )
    try:
        cluster.site("--tags", "peer_firewall").assert_ok("the nftables table ip6 mine controls incoming IPv6 traffic")
        rules = worker.check_output("nft list table inet gb10")
        assert "meta nfproto ipv6 accept" in rules
        assert "tcp dport 22 accept" in rules
        cluster.site("--tags", "peer_firewall").assert_unchanged()
    finally:
        worker.check_output("nft delete table ip6 mine")
        cluster.site("--tags", "peer_firewall").assert_ok()
    assert "nfproto" not in worker.check_output("nft list table inet gb10")
