"""Tests of the firewall: rules, advice for another firewall, rollback by the host. nft and systemd are simulated."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from cluster_nodes import cluster_plan, spark
from decisions import task
from repository import ROOT, load_yaml, read
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.action import peer_firewall as action_plugin
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import host as firewall_host
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables, io_rules
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import of_plan as firewall_of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan

ALL = firewall_plan.Access((), 0, (), (), ())
SETTINGS = firewall_of_plan.FirewallSettings(
    peer_firewall_enabled=True,
    peer_firewall_open_ports=["8443/tcp"],
    peer_firewall_gateway_port=0,
    peer_firewall_trusted_interfaces=["docker*"],
    peer_firewall_confirm_timeout=60,
    monitoring_enabled=False,
    monitoring_clients=[],
    monitoring_port=9100,
)
PAIR = [("enp1s0f1np1", "10.110.0.2"), ("enP2p1s0f1np1", "10.110.1.2")]


def access(**changes: Any) -> firewall_plan.Access:
    given = {"peers": PAIR, "api_port": 8000, "api_clients": (), "open_ports": (), "interfaces": ()}
    return firewall_plan.Access(**{**given, **changes})


def rules(text: str) -> list[str]:
    """Return the lines of the chain of incoming traffic, without its hook."""
    chain = text.partition("policy drop;")[2].partition("chain serving")[0]
    return [line.strip() for line in chain.splitlines() if line.strip(" \t}")]


def of_plan(name: str, count: int, **settings: Any) -> dict[str, Any]:
    """Return the module's options for a node of a cluster."""
    nodes = [spark(number, "worker" if number > 1 else "head", **settings) for number in range(1, count + 1)]
    plan, problems = cluster_plan(nodes)
    assert problems == []
    node = next(node for node in plan["nodes"] if node["name"] == name)
    return firewall_of_plan.options(typed({**plan, "node": node}), SETTINGS, [9100], local=False)


def test_a_pair_lets_its_peer_in_on_both_rails() -> None:
    head, worker = of_plan("spark1", 2), of_plan("spark2", 2)
    assert {(peer["interface"], peer["address"]) for peer in head["peers"]} == set(PAIR)
    assert (head["api_port"], worker["api_port"]) == (8000, 0)
    assert (head["peer_ports"]["Ray's port"], head["peer_ports"]["Ray's workers"]) == (6379, "20000-20999")
    assert "Ray's port" not in worker["peer_ports"]


def test_only_a_head_that_others_reach_lets_clients_in() -> None:
    clients = {"gb10_api_clients": ["192.168.1.0/24"]}
    head, worker = of_plan("spark1", 2, **clients), of_plan("spark2", 2, **clients)
    local = of_plan("spark1", 2, gb10_api_host="127.0.0.1", **clients)
    assert [found["api_clients"] for found in (head, worker, local)] == [["192.168.1.0/24"], [], []]


def test_clients_of_the_api_may_wake_a_model_that_rests() -> None:
    rests = {"gb10_idle_stop": "30m", "gb10_api_clients": ["192.168.1.0/24"]}
    ports = [of_plan(name, 2, **rests)["wake_port"] for name in ("spark1", "spark2")]
    assert ports == [8009, 0] and of_plan("spark1", 2)["wake_port"] == 0
    assert of_plan("spark1", 2, gb10_api_host="127.0.0.1", **rests)["wake_port"] == 0
    given = access(wake_port=8009, api_clients=("192.168.1.0/24",))
    assert "ip saddr { 192.168.1.0/24 } tcp dport 8009 accept" in rules(firewall_plan.ruleset(given, []))


def test_a_ring_lets_peers_in_where_they_have_no_cable() -> None:
    found = of_plan("spark1", 3, gb10_fabric_topology="ring", gb10_fabric_ports=[0, 1])["peers"]
    assert {"interface": "enP7s7", "address": "192.168.1.12"} in found
    assert len(found) == 6, "two PCIe functions for each of two cables, and the cluster's network"


def test_a_single_node_has_no_peer_and_an_api_of_its_own_no_client() -> None:
    alone = of_plan("spark1", 1, gb10_api_host="127.0.0.1")
    assert (alone["peers"], alone["api_port"]) == ([], 0)


@pytest.mark.parametrize(
    ("name", "count", "executor", "expected"),
    [
        ("spark1", 1, "auto", "8000"),
        ("spark1", 2, "mp", "28028 29501 29502 8000"),
        ("spark2", 2, "mp", "28028"),
        ("spark1", 2, "ray", "20000-20999 28028 6379 6380 6381 6382 6383 6384 6385 6386 8000 8265"),
        ("spark2", 2, "ray", "20000-20999 28028 6380 6381 6382 6383 6384 6385"),
    ],
)
def test_all_ports_of_the_ranks_are_reserved(name: str, count: int, executor: str, expected: str) -> None:
    found = of_plan(name, count, gb10_distributed_executor_backend=executor)
    assert (" ".join(found["served_ports"]), found["service_user"]) == (expected, "gb10")


def test_root_and_who_may_become_root_serve_too(monkeypatch: pytest.MonkeyPatch) -> None:
    users = [("root", 0, 0), ("gb10", 997, 997), ("nvidia", 1000, 1000), ("guest", 1001, 1001), ("ops", 1002, 27)]
    found = {name: SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=gid) for name, uid, gid in users}
    groups = [("sudo", 27, ["nvidia"]), ("audio", 29, ["guest"]), ("docker", 998, [])]
    monkeypatch.setattr(io_rules.pwd, "getpwnam", lambda name: found[name])
    monkeypatch.setattr(io_rules.pwd, "getpwall", lambda: list(found.values()))
    monkeypatch.setattr(
        io_rules.grp, "getgrall", lambda: [SimpleNamespace(gr_name=n, gr_gid=g, gr_mem=m) for n, g, m in groups]
    )
    assert io_rules.serving_users("gb10") == [0, 997, 1000, 1002]
    assert io_rules.serving_users("nobody-yet") == []


SERVE = """
import os, socket, sys
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
family = socket.AF_INET6 if ':' in sys.argv[2] else socket.AF_INET
with socket.create_server((sys.argv[2], int(sys.argv[3])), family=family) as server:
    print("listens", flush=True)
    server.accept()
"""
#: A user's own connection from the port, such as for a TCP handshake of two ends that both connect.
CONNECT = """
import encodings.idna, os, socket, sys
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
socket.create_connection(("127.0.0.1", 9001), 0.5, ("127.0.0.1", 20010))
"""
TRY = """
import pathlib, socket, subprocess, sys
pathlib.Path("/proc/sys/net/ipv4/tcp_syncookies").write_text(sys.argv[1])
for uid, host, port in (entry.split("/") for entry in sys.argv[4:]):
    argv = [sys.executable, "-c", sys.argv[2], uid, host, port]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as listener:
        listener.stdout.readline()
        try:
            socket.create_connection((host, int(port)), 0.5).close()
            print(uid, port, "served")
        except TimeoutError:
            print(uid, port, "silent")
        listener.kill()
with socket.create_server(("127.0.0.1", 9001)):
    for uid in ("65534", "997"):
        done = subprocess.run([sys.executable, "-c", sys.argv[3], uid], capture_output=True)
        print(uid, "connects" if not done.returncode else "is cut off")
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nftables")
@pytest.mark.parametrize("cookies", ["1", "2"], ids=["usual", "SYN cookies always"])
def test_no_other_user_serves_on_a_port_of_the_ranks(tmp_path: Path, cookies: str) -> None:
    """The kernel's own answer, in a network namespace. A listener can force SYN cookies, which belong to no user."""
    given = access(peers=(), served_ports=("8000", "20000-20999"), serving_users=(0, 997))
    (tmp_path / "rules").write_text(firewall_plan.ruleset(given, [22]), encoding="utf-8")
    places = ["65534/127.0.0.1/8000", "65534/127.0.0.1/20005", "65534/::1/8000", "65534/127.0.0.1/9000"]
    places += ["997/127.0.0.1/8000", "0/127.0.0.1/20005"] if cookies == "1" else []
    script = f'ip link set lo up && nft -f {tmp_path}/rules && exec "$@"'
    argv = ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-c", TRY, cookies, SERVE, CONNECT, *places]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    silent, served = "65534 8000 silent\n65534 20005 silent\n65534 8000 silent\n", "65534 9000 served\n"
    served += "997 8000 served\n0 20005 served\n" if cookies == "1" else ""
    assert done.stdout == f"{silent}{served}65534 is cut off\n997 connects\n", done.stderr


COMPARE = """
import subprocess, sys
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables
def run(argv):
    done = subprocess.run(argv, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr
def same():
    print(io_nftables.loaded_ruleset(run) == io_nftables.normalize(run, text))
text = sys.stdin.read()
same()
subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
same()
for change in sys.argv[1:]:
    subprocess.run(["nft", change], check=True)
    same()
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
same()
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nftables")
def test_the_kernels_listing_shows_each_manual_change() -> None:
    """The wanted rules are listed by the kernel too, in a namespace of their own, so that no text is compared."""
    given = access(
        api_clients=("192.168.1.7", "fd00::/8"), served_ports=("8000", "20000-20999"), serving_users=(0, 997)
    )
    changes = [
        "insert rule inet gb10 input tcp dport 4444 accept",
        "flush chain inet gb10 serving",
        "delete element inet gb10 peers { enp1s0f1np1 . 10.110.0.2 }",
        "chain inet gb10 input { policy accept; }",
    ]
    script = 'ip link set lo up && exec "$@"'
    argv = ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-c", COMPARE, *changes]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".collections")}
    text = firewall_plan.ruleset(given, [22])
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["False", "True", *["False"] * len(changes), "True"], done.stderr


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [("spark1", 2, {"rendezvous": 29501, "the ranks' end": 29502}), ("spark2", 2, {}), ("spark1", 1, {})],
)
def test_mp_meets_at_the_head(name: str, count: int, expected: dict[str, int]) -> None:
    assert of_plan(name, count, gb10_distributed_executor_backend="mp")["peer_ports"] == expected


def test_the_rules_of_a_head() -> None:
    text = firewall_plan.ruleset(
        access(open_ports=("8443/tcp", "60000-61000/udp"), interfaces=("docker*",)), [2222, 22]
    )
    assert text.splitlines()[1:4] == ["table inet gb10", "delete table inet gb10", "table inet gb10 {"]
    assert 'elements = { "enp1s0f1np1" . 10.110.0.2, "enP2p1s0f1np1" . 10.110.1.2 }' in text
    assert "\t\ttcp dport 22 accept" in text.splitlines() and "  " not in text, "as nft lists it"
    assert rules(text) == [
        'iifname "lo" accept',
        'iifname "docker*" accept',
        "iifname . ip saddr @peers accept",
        "ct state established,related accept",
        "ct state invalid drop",
        "meta l4proto { 1, 2, 58 } accept",
        "udp sport 67 udp dport 68 accept",
        "udp sport 547 udp dport 546 accept",
        "ip daddr 224.0.0.251 udp dport 5353 accept",
        "ip6 daddr ff02::fb udp dport 5353 accept",
        "tcp dport 22 accept",
        "tcp dport 2222 accept",
        "tcp dport 8000 accept",
        "tcp dport 8443 accept",
        "udp dport 60000-61000 accept",
        "meta l4proto tcp counter reject with tcp reset",
    ]


def test_a_worker_without_peers_has_neither_set_nor_api() -> None:
    text = firewall_plan.ruleset(ALL, [22])
    assert "peers" not in text
    assert not [line for line in rules(text) if "8000" in line]


def test_clients_of_the_api_are_matched_by_their_family() -> None:
    lines = rules(firewall_plan.ruleset(access(api_clients=("192.168.1.0/24", "10.0.0.7", "fd00::/8")), []))
    assert [line for line in lines if "8000" in line] == [
        "ip saddr { 192.168.1.0/24, 10.0.0.7/32 } tcp dport 8000 accept",
        "ip6 saddr { fd00::/8 } tcp dport 8000 accept",
    ]


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        (("192.168.1.5", "fd00::5"), ["ip saddr { 192.168.1.5/32 } ", "ip6 saddr { fd00::5/128 } "]),
        ((), []),
    ],
)
def test_metrics_are_open_to_their_clients_alone(clients: tuple[str, ...], expected: list[str]) -> None:
    given = access(monitoring_ports=(9100, 6385), monitoring_clients=clients)
    lines = rules(firewall_plan.ruleset(given, []))
    assert [line for line in lines if "9100" in line] == [f"{source}tcp dport 9100 accept" for source in expected]
    assert [line for line in lines if "6385" in line] == [f"{source}tcp dport 6385 accept" for source in expected]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        *(
            ({"monitoring_clients": ("10.0.0.5", client)}, "monitoring_clients[1]")
            for client in ("", "prometheus.example", "10.0.0.5/8", "10.0.0.256", "10.0.0.5; accept")
        ),
        *(
            ({"open_ports": ("1/tcp", port)}, "peer_firewall_open_ports[1]")
            for port in ("80", "0/tcp", "65536/tcp", "9-8/udp", "80/sctp", "80/tcp accept", "", "-1/tcp")
        ),
        *(
            ({"interfaces": ("br-*", name)}, "peer_firewall_trusted_interfaces[1]")
            for name in ("", 'a" accept', "a b", "*", "*a", "interface-too-long")
        ),
    ],
)
def test_ports_and_interfaces_that_are_none_are_refused(changes: dict[str, Any], path: str) -> None:
    assert [problem.path for problem in firewall_plan.check(access(**changes))] == [path]


def test_the_first_and_the_last_port_are_ports() -> None:
    assert firewall_plan.check(access(open_ports=("1/tcp", "65535/udp", "1-65535/tcp", "9-9/udp"))) == []


def listener(port: int, process: str, unit: str = "", address: str = "0.0.0.0") -> dict[str, Any]:
    return {"address": address, "port": port, "pid": 1, "process": process, "unit": unit}


LISTENERS = [
    listener(22, "sshd", "ssh.service", "::"),
    listener(2222, "sshd", "other-sshd.service"),
    # A login's processes belong to no service.
    listener(9022, "sshd"),
    listener(6010, "sshd", "", "127.0.0.1"),
    listener(11000, "dgx-dashboard", "dgx-dashboard.service", "::ffff:127.0.0.1"),
    listener(3389, "gnome-remote-de", "user@1000.service", "::"),
    listener(8443, "caddy", "caddy.service"),
    listener(6379, "gcs_server", "gb10-ray.service"),
    listener(8000, "vllm", "gb10-vllm.service"),
]


def socket_unit(
    name: str, *endpoints: str, active: str = "active", enabled: str = "disabled", triggers: str = ""
) -> str:
    """Return a unit in the format of `systemctl show`."""
    lines = [f"Id={name}", f"Triggers={triggers}", *(f"Listen={endpoint}" for endpoint in endpoints)]
    return "\n".join([*lines, f"ActiveState={active}", f"UnitFileState={enabled}", ""])


UBUNTU = socket_unit("ssh.socket", "0.0.0.0:22 (Stream)", "[::]:22 (Stream)", triggers="ssh.service")
OTHER = socket_unit("docker.socket", "/run/docker.sock (Stream)", triggers="docker.service")


def test_ssh_is_found_where_it_listens() -> None:
    assert firewall_host.ssh_ports(LISTENERS, "", "") == [22, 2222]


@pytest.mark.parametrize(
    ("sockets", "config", "expected"),
    [
        pytest.param(UBUNTU, "", [22], id="systemd holds the port"),
        pytest.param(f"{OTHER}\n{UBUNTU}", "", [22], id="among others"),
        pytest.param(
            socket_unit("mine.socket", "[::]:2222 (Stream)", triggers="sshd.service"),
            "",
            [2222],
            id="another unit that starts sshd",
        ),
        pytest.param(
            socket_unit("sshd.socket", "[fe80::1%eth0]:23 (Stream)", "10.0.0.1:24 (Stream)"),
            "",
            [23, 24],
            id="addresses",
        ),
        pytest.param(
            socket_unit("ssh.socket", "[::]:22 (Stream)", active="inactive", enabled="enabled"),
            "",
            [22],
            id="from the next boot on",
        ),
        pytest.param(socket_unit("ssh.socket", "[::]:22 (Stream)", active="inactive"), "", [], id="not in use"),
        pytest.param(socket_unit("sshd.socket", active="inactive", enabled=""), "", [], id="no such unit"),
        pytest.param(
            socket_unit("ssh.socket", "127.0.0.1:22 (Stream)", "vsock::22 (Stream)", "/run/ssh (Stream)"),
            "",
            [],
            id="out of reach",
        ),
        pytest.param(
            OTHER, "port 2022\nlistenaddress [::]:2022\nlistenaddress 127.0.0.1:9\n", [2022], id="as sshd is configured"
        ),
        pytest.param(UBUNTU, "listenaddress 0.0.0.0:2022\n", [22], id="a socket unit overrules sshd_config"),
    ],
)
def test_ssh_is_found_where_systemd_waits_for_it(sockets: str, config: str, expected: list[int]) -> None:
    # As the kernel lists it with ssh.socket: systemd, process 1, holds the port and belongs to no service.
    assert (
        firewall_host.ssh_ports([listener(22, "systemd", "", "::"), listener(80, "systemd")], sockets, config)
        == expected
    )


def test_what_is_out_of_reach_is_told() -> None:
    found = firewall_host.closed(LISTENERS, access(open_ports=("8000-9000/tcp", "3389/udp")), [22, 2222])
    assert found == ["3389/tcp (gnome-remote-de)", "9022/tcp (sshd)"]
    given = [listener(port, "") for port in (6999, 7000, 7001, 7002)]
    assert firewall_host.closed(given, access(open_ports=("7000-7001/tcp", "x")), []) == [
        "6999/tcp (unknown)",
        "7002/tcp (unknown)",
    ]
    assert firewall_plan.span("x") == (0, 0)


def nftables(*objects: dict[str, Any]) -> str:
    return json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}, *objects]})


def chain(
    table: str, name: str, policy: str = "accept", family: str = "ip", hook: str | None = "input"
) -> dict[str, Any]:
    base = {"type": "filter", "hook": hook, "prio": 0, "policy": policy} if hook else {}
    return {"chain": {"family": family, "table": table, "name": name, "handle": 1, **base}}


def rule(table: str, name: str, *expressions: dict[str, Any], family: str = "ip") -> dict[str, Any]:
    return {"rule": {"family": family, "table": table, "chain": name, "handle": 1, "expr": list(expressions)}}


def of_family(name: str, key: str = "nfproto") -> dict[str, Any]:
    return {"match": {"op": "==", "left": {"meta": {"key": key}}, "right": name}}


ADDRESS = {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@f2b"}}
COUNTER = {"counter": {"packets": 1, "bytes": 1}}


@pytest.mark.parametrize(
    ("objects", "legacy", "active", "expected"),
    [
        pytest.param((), "", [], "", id="nothing"),
        pytest.param((), "", ["ufw"], "ufw", id="ufw"),
        pytest.param((), "", ["firewalld"], "firewalld", id="firewalld"),
        pytest.param(
            (chain("filter", "INPUT", "drop"),), "", [], "the nftables table ip filter", id="iptables-nft with a policy"
        ),
        pytest.param((chain("filter", "INPUT"),), "", [], "", id="iptables-nft without rules"),
        pytest.param((chain("filter", "FORWARD", "drop", hook="forward"),), "", [], "", id="docker"),
        pytest.param((chain("gb10", "input", "drop", "inet"),), "", [], "", id="ours"),
        pytest.param((chain("netdev", "input", "drop", "bridge"),), "", [], "", id="bridge"),
        pytest.param(
            (chain("f2b-table", "f2b"), rule("f2b-table", "f2b", ADDRESS, {"reject": None})), "", [], "", id="fail2ban"
        ),
        pytest.param(
            (
                chain("mine", "in", family="inet"),
                rule("mine", "in", COUNTER, {"reject": {"type": "icmpx"}}, family="inet"),
            ),
            "",
            [],
            "the nftables table inet mine",
            id="last word",
        ),
        pytest.param(
            (
                chain("mine", "in"),
                chain("mine", "rest", hook=None),
                rule("mine", "in", ADDRESS, {"accept": None}),
                rule("mine", "in", {"jump": {"target": "rest"}}),
                rule("mine", "rest", {"log": None}, {"drop": None}),
            ),
            "",
            [],
            "the nftables table ip mine",
            id="by a jump",
        ),
        pytest.param(
            (
                chain("mine", "in"),
                rule("mine", "in", ADDRESS, {"jump": {"target": "in"}}),
                rule("mine", "in", {"goto": {"target": "in"}}),
            ),
            "",
            [],
            "",
            id="in a circle",
        ),
        pytest.param(
            (chain("mine", "in"), rule("mine", "in", COUNTER), rule("mine", "in", {"log": None})),
            "",
            [],
            "",
            id="it only counts",
        ),
        pytest.param(
            (
                chain("mine", "in"),
                rule(
                    "mine", "in", *({kind: None} for kind in ("counter", "log", "limit", "drop", "reject", "comment"))
                ),
            ),
            "",
            [],
            "the nftables table ip mine",
            id="all that matches nothing",
        ),
        pytest.param(
            (
                chain("mine", "in"),
                chain("mine", "rest", hook=None),
                rule("mine", "in", ADDRESS, {"jump": {"target": "rest"}}),
                rule("mine", "rest", {"drop": None}),
            ),
            "",
            [],
            "",
            id="a jump of some",
        ),
        pytest.param(
            (
                chain("mine", "in", family="inet"),
                rule("mine", "in", of_family("ipv6"), {"accept": None}, family="inet"),
                rule("mine", "in", {"drop": None}, family="inet"),
            ),
            "",
            [],
            "the nftables table inet mine",
            id="after a rule of the other family",
        ),
        pytest.param(
            (
                chain("mine", "in", "drop", family="inet"),
                rule("mine", "in", of_family("ipv4"), ADDRESS, {"accept": None}, family="inet"),
            ),
            "",
            [],
            "the nftables table inet mine",
            id="some of the family are accepted",
        ),
        pytest.param((), "-P INPUT ACCEPT\n-A INPUT -s 1.2.3.4/32 -j DROP\n", [], "", id="legacy with a ban"),
        pytest.param(
            (),
            "-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with icmp-port-unreachable\n",
            [],
            "iptables (legacy)",
            id="legacy",
        ),
        pytest.param((), "-P INPUT DROP\n", [], "iptables (legacy)", id="legacy with a policy"),
    ],
)
def test_who_rules_ipv4(objects: tuple[dict[str, Any], ...], legacy: str, active: list[str], expected: str) -> None:
    assert firewall_host.active_firewalls(nftables(*objects), {"ip": legacy}, active)["ip"] == expected


INET = {"family": "inet"}
MINE = "the nftables table inet mine"


@pytest.mark.parametrize(
    ("objects", "legacy", "active", "ip", "ip6"),
    [
        pytest.param(
            (),
            {"ip6": "-P INPUT DROP\n", "ip": "-P INPUT ACCEPT\n"},
            [],
            "",
            "iptables (legacy)",
            id="ip6tables-legacy -P INPUT DROP",
        ),
        pytest.param(
            (chain("filter", "INPUT", "drop", "ip6"),),
            {},
            [],
            "",
            "the nftables table ip6 filter",
            id="ip6tables -P INPUT DROP",
        ),
        pytest.param(
            (chain("filter", "INPUT", "drop"),), {}, [], "the nftables table ip filter", "", id="iptables -P INPUT DROP"
        ),
        pytest.param((chain("mine", "in", "drop", "inet"),), {}, [], MINE, MINE, id="inet"),
        pytest.param((), {}, ["ufw"], "ufw", "ufw", id="ufw"),
        pytest.param(
            (chain("mine", "in", **INET), rule("mine", "in", of_family("ipv6"), {"drop": None}, **INET)),
            {},
            [],
            "",
            MINE,
            id="drop of a family",
        ),
        pytest.param(
            (
                chain("mine", "in", "drop", "inet"),
                rule("mine", "in", of_family("ipv4"), COUNTER, {"accept": None}, **INET),
            ),
            {},
            [],
            "",
            MINE,
            id="a family let in",
        ),
        pytest.param(
            (
                chain("mine", "in", **INET),
                chain("mine", "six", hook=None, **INET),
                rule("mine", "in", of_family("ip6", "protocol"), {"jump": {"target": "six"}}, **INET),
                rule("mine", "six", {"reject": None}, **INET),
            ),
            {},
            [],
            "",
            MINE,
            id="by a jump of a family",
        ),
        pytest.param(
            (chain("mine", "in", **INET), rule("mine", "in", of_family("ipv6"), ADDRESS, {"drop": None}, **INET)),
            {},
            [],
            "",
            "",
            id="a ban",
        ),
    ],
)
def test_who_rules_each_family(
    objects: tuple[dict[str, Any], ...], legacy: dict[str, str], active: list[str], ip: str, ip6: str
) -> None:
    assert firewall_host.active_firewalls(nftables(*objects), legacy, active) == {"ip": ip, "ip6": ip6}


def both(name: str) -> dict[str, str]:
    return dict.fromkeys(firewall_plan.FAMILIES, name)


RICH = """  sudo firewall-cmd --permanent --add-rich-rule='rule family="{}" source address="{}"{} accept'"""
API = ' port port="8000" protocol="tcp"'
UFW = (
    "ufw controls incoming traffic. Its rules were not changed, and the table inet gb10 is not loaded. ufw must allow:"
)
FIREWALLD = UFW.replace("ufw", "firewalld")
PEERS = [
    "  from 10.110.0.2 on enp1s0f1np1, 10.110.1.2 on enP2p1s0f1np1:",
    "    all TCP and UDP ports: 6379 (Ray's port), and those of net.ipv4.ip_local_port_range (NCCL, Gloo, vLLM)",
]
UFW_PEERS = [
    "  sudo ufw allow in on enp1s0f1np1 from 10.110.0.2",
    "  sudo ufw allow in on enP2p1s0f1np1 from 10.110.1.2",
]
RICH_PEERS = [RICH.format("ipv4", address, "") for _interface, address in PAIR]


@pytest.mark.parametrize(
    ("active", "changes", "expected"),
    [
        pytest.param(
            both("ufw"),
            {"api_clients": ("192.168.1.0/24",)},
            [
                *(UFW, *PEERS, "  from 192.168.1.0/24: TCP 8000 (the API)", "With:", *UFW_PEERS),
                "  sudo ufw allow proto tcp from 192.168.1.0/24 to any port 8000",
            ],
            id="ufw",
        ),
        pytest.param(
            both("ufw"),
            {},
            [
                *(UFW, *PEERS, "  from all clients: TCP 8000 (the API)", "With:", *UFW_PEERS),
                "  sudo ufw allow proto tcp from any to any port 8000",
            ],
            id="ufw, all clients",
        ),
        pytest.param(
            both("firewalld"),
            {"api_clients": ("192.168.1.0/24", "fd00::/8")},
            [
                *(FIREWALLD, *PEERS, "  from 192.168.1.0/24, fd00::/8: TCP 8000 (the API)", "With:", *RICH_PEERS),
                RICH.format("ipv4", "192.168.1.0/24", API),
                RICH.format("ipv6", "fd00::/8", API),
                "  sudo firewall-cmd --reload",
            ],
            id="firewalld",
        ),
        pytest.param(
            both("firewalld"),
            {},
            [
                *(FIREWALLD, *PEERS, "  from all clients: TCP 8000 (the API)", "With:", *RICH_PEERS),
                "  sudo firewall-cmd --permanent --add-port=8000/tcp",
                "  sudo firewall-cmd --reload",
            ],
            id="firewalld, all clients",
        ),
        pytest.param(
            both("ufw"),
            {"api_port": 0, "monitoring_ports": (9100,), "monitoring_clients": ("10.0.0.5",)},
            [
                *(UFW, *PEERS, "  from 10.0.0.5: TCP 9100 (metrics)", "With:", *UFW_PEERS),
                "  sudo ufw allow proto tcp from 10.0.0.5 to any port 9100",
            ],
            id="ufw, metrics",
        ),
        pytest.param(
            both("ufw"),
            {"api_port": 0, "api_clients": ("192.168.1.0/24",)},
            [UFW, *PEERS, "With:", *UFW_PEERS],
            id="ufw, no API",
        ),
        pytest.param(
            both("firewalld"),
            {"api_port": 0, "api_clients": ("192.168.1.0/24",)},
            [FIREWALLD, *PEERS, "With:", *RICH_PEERS, "  sudo firewall-cmd --reload"],
            id="firewalld, no API",
        ),
        pytest.param(
            both("mine"),
            {"peers": (), "api_port": 0},
            [UFW.replace("ufw", "mine"), "  nothing: this node has no peers and no API in this family"],
            id="another one without commands, nothing to allow",
        ),
        pytest.param(
            {"ip": "", "ip6": "iptables (legacy)"},
            {"api_clients": ("192.168.1.0/24", "fd00::/8")},
            [
                (
                    "iptables (legacy) controls incoming IPv6 traffic. Its rules were not changed, and the table inet gb10 "
                    "does not filter IPv6. iptables (legacy) must allow:"
                ),
                "  from fd00::/8: TCP 8000 (the API)",
            ],
            id="IPv6 alone",
        ),
        pytest.param(
            {"ip": "mine", "ip6": ""},
            {"api_clients": ("192.168.1.0/24", "fd00::/8")},
            [
                (
                    "mine controls incoming IPv4 traffic. Its rules were not changed, and the table inet gb10 does not "
                    "filter IPv4. mine must allow:"
                ),
                *(*PEERS, "  from 192.168.1.0/24: TCP 8000 (the API)"),
            ],
            id="IPv4 alone",
        ),
        pytest.param({"ip": "", "ip6": ""}, {}, [], id="no other firewall"),
    ],
)
def test_another_firewall_is_told_peers_ports_and_commands(
    active: dict[str, str], changes: dict[str, Any], expected: list[str]
) -> None:
    assert firewall_plan.advice(active, access(**changes), {"Ray's port": 6379}) == expected


@pytest.mark.parametrize(("status", "shown"), [(0, "table"), (1, ""), (-9, "")])
def test_the_output_of_a_command_that_fails_is_none(status: int, shown: str) -> None:
    assert io_nftables.loaded_ruleset(lambda _argv: (status, "table", "")) == shown


@pytest.mark.parametrize("status", [1, -9, 126])
def test_a_failing_step_is_an_error_with_its_text(status: int) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return (status, "", "it failed\n") if argv[0] in ("nft", "unshare") else (1, "", "")

    with pytest.raises(io_nftables.FirewallError, match=r"^nft list ruleset failed: it failed$"):
        io_nftables.active_firewalls(run)
    with pytest.raises(io_nftables.FirewallError, match=r"^nft refuses the rules: it failed$"):
        io_nftables.normalize(run, "")
    with pytest.raises(io_nftables.FirewallError, match=r"^nft -f x failed: it failed$"):
        io_nftables._must(run, ["nft", "-f", "x"])


@pytest.mark.parametrize(
    ("ufw", "firewalld", "expected"),
    [(True, False, "ufw"), (False, True, "firewalld"), (True, True, "ufw"), (False, False, "")],
)
def test_active_services_decide_about_both_families(ufw: bool, firewalld: bool, expected: str) -> None:
    answers = {
        "ufw": (0, "Status: active\n" if ufw else "Status: inactive\n", ""),
        "firewall-cmd": (0, "running\n", "") if firewalld else (252, "not running\n", ""),
        "nft": (127, "x", ""),
    }
    installed, found = io_nftables.active_firewalls(lambda argv: answers[argv[0]])
    assert (installed, found) == (False, {"ip": expected, "ip6": expected})


def test_a_family_of_another_firewall_is_left_to_it() -> None:
    found = rules(firewall_plan.ruleset(access(), [22], ["ip6"]))
    assert found[:2] == ['iifname "lo" accept', "meta nfproto ipv6 accept"]


LINKS = [
    firewall_host.Link("br-0123456789ab"),
    firewall_host.Link("br-lan", ("enp3s0",)),
    firewall_host.Link("br-up", (), default_route=True),
    firewall_host.Link("docker0"),
    firewall_host.Link("enp1s0f1np1", ("enp1s0f1np1",)),
]


def test_what_a_pattern_lets_in_is_reported() -> None:
    given = access(interfaces=("docker*", "br-*", "virbr*", "br-lan"))
    found = firewall_host.matches(given, LINKS)
    assert found == {"docker*": ["docker0"], "br-*": ["br-0123456789ab", "br-lan", "br-up"], "br-lan": ["br-lan"]}


@pytest.mark.parametrize(
    ("patterns", "came_by", "expected"),
    [
        (
            ("docker*", "br-*"),
            "",
            [
                "[1]: 'br-*' matches br-lan, which uses the port enp3s0.",
                "[1]: 'br-*' matches br-up, which carries the default route.",
            ],
        ),
        (("docker*", "br-0*"), "", []),
        (("br-lan", "br-up"), "", []),
        (("docker*",), "docker0", ["[0]: 'docker*' matches docker0, which is the network of this run's connection."]),
        (
            ("en*",),
            "enp9s0",
            ["[0]: 'en*' matches enp1s0f1np1, which uses the port enp1s0f1np1 and is a network of the cluster."],
        ),
    ],
)
def test_a_pattern_that_lets_a_network_of_others_in_is_refused(
    patterns: tuple[str, ...], came_by: str, expected: list[str]
) -> None:
    found = [str(problem) for problem in firewall_host.problems(access(interfaces=patterns), LINKS, [22], came_by)]
    assert len(found) == len(expected)
    for text, part in zip(found, expected, strict=True):
        assert text.startswith(f"peer_firewall_trusted_interfaces{part}")
        assert "Fix: list exact names" in text


def test_no_bridge_of_a_network_is_let_in_by_default() -> None:
    patterns = load_yaml(read("roles/peer_firewall/defaults/main.yml"))["peer_firewall_trusted_interfaces"]
    names = ["br-lan", "br-0123456789ab", "br0", "bridge0", "lan0", "vmbr0", "bond0", "eth0", "enP7s7", "wlP9s9"]
    assert firewall_host.matches(access(interfaces=patterns), [firewall_host.Link(name) for name in names]) == {}


def test_ports_below_a_bridge_are_found(tmp_path: Path) -> None:
    net = tmp_path / "sys/class/net"
    for name, lower in {
        "enp3s0": [],
        "vlan10": ["enp3s0"],
        "br-lan": ["vlan10", "veth1"],
        "veth1": [],
        "br-1": ["veth1"],
        "wlan0": [],
    }.items():
        (net / name).mkdir(parents=True)
        for entry in lower:
            (net / name / f"lower_{entry}").symlink_to(net / entry)
    for name in ("enp3s0", "wlan0"):
        (net / name / "device").mkdir()
    (net / "bonding_masters").write_text("", encoding="utf-8")
    routes = {
        "-4": "default via 192.168.1.1 dev enp3s0 proto dhcp src 192.168.1.11 metric 100 \n",
        "-6": "default metric 1024 pref medium\n\tnexthop via fe80::1 dev br-1 weight 1 \n\tnexthop dev wlan0 weight 1 \n",
    }
    found = io_nftables.links(lambda argv: (0, routes[argv[1]], ""), str(tmp_path))
    assert {link.name: (link.ports, link.default_route) for link in found} == {
        "br-1": ((), True),
        "br-lan": (("enp3s0",), False),
        "enp3s0": (("enp3s0",), True),
        "veth1": ((), False),
        "vlan10": (("enp3s0",), False),
        "wlan0": (("wlan0",), True),
    }


@pytest.mark.parametrize(
    ("client", "asked", "route", "expected"),
    [
        ("", None, "", (False, "")),
        ("localhost; reboot", None, "", (False, "")),
        ("127.0.0.1", ["127.0.0.1"], "local 127.0.0.1 dev lo src 127.0.0.1 uid 0 \n    cache <local> \n", (False, "")),
        ("192.168.1.11", ["192.168.1.11"], "local 192.168.1.11 dev lo src 192.168.1.11 uid 0 \n", (False, "")),
        (
            "192.168.1.2",
            ["192.168.1.2"],
            "192.168.1.2 dev enP7s7 src 192.168.1.11 uid 0 \n    cache \n",
            (True, "enP7s7"),
        ),
        ("8.8.8.8", ["8.8.8.8"], "8.8.8.8 via 192.168.1.1 dev enP7s7 src 192.168.1.11 uid 0 \n", (True, "enP7s7")),
        (
            "fe80::2%enP7s7",
            ["fe80::2", "dev", "enP7s7"],
            "fe80::2 dev enP7s7 src fe80::1 metric 256 \n",
            (True, "enP7s7"),
        ),
        ("10.9.9.9", ["10.9.9.9"], None, (True, "")),
        ("10.9.9.8", ["10.9.9.8"], "10.9.9.8 dev lo src 127.0.0.1 uid 0 \n", (False, "")),
    ],
)
def test_whence_a_run_comes(
    client: str, asked: list[str] | None, route: str | None, expected: tuple[bool, str]
) -> None:
    said = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        said.append(argv)
        return (2, "", "unreachable") if route is None else (0, route, "")

    assert io_nftables.entrance(run, client) == expected
    assert said == ([["ip", "route", "get", *asked]] if asked else [])


WRITTEN = "# Written by the role peer_firewall of gb10.cluster; changes are overwritten."
LOAD = "/usr/sbin/nft -f /etc/gb10/firewall.nft"
# PartOf= would restart the services that require this unit together with Debian's nftables.service.
UNIT = f"""{WRITTEN}
[Unit]
Description=Firewall of the GB10 cluster
DefaultDependencies=no
Wants=network-pre.target
After=local-fs.target nftables.service
Before=network-pre.target gb10-ray.service gb10-vllm.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={LOAD}
ExecReload={LOAD}
ExecStop=-/usr/sbin/nft delete table inet gb10

[Install]
WantedBy=multi-user.target
# Services that open ports do not start without this unit.
RequiredBy=gb10-ray.service gb10-vllm.service
"""
DROP_IN = f"""{WRITTEN}
[Service]
# A failure here must not stop the service, which would flush all rules.
ExecStartPost=-{LOAD}
ExecReload={LOAD}
"""


def test_the_rules_are_loaded_before_the_services_and_after_who_flushes_all_tables() -> None:
    assert firewall_plan.unit("/usr/sbin/nft", "/etc/gb10/firewall.nft") == UNIT
    assert firewall_plan.again("/usr/sbin/nft", "/etc/gb10/firewall.nft") == DROP_IN


class KilledError(Exception):
    """The module is killed here, as by SIGKILL."""


CLIENT, NEW = "192.168.1.200", {"open_ports": ["8443/tcp"]}


class Host:
    """A host with simulated nft and systemd, and real files."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.units, self.rules = folder / "units", folder / "etc" / "firewall.nft"
        self.unit, self.drop_in = (
            self.units / "gb10-firewall.service",
            self.units / "nftables.service.d" / "gb10-firewall.conf",
        )
        self.units.mkdir()
        monkeypatch.setattr(io_nftables, "RULES", str(self.rules))
        monkeypatch.setattr(io_nftables, "UNITS", str(self.units))
        monkeypatch.setattr(io_rules.io_local, "listeners", lambda: self.listeners)
        monkeypatch.setattr(io_nftables, "links", lambda _run: self.links)
        self.table, self.timers, self.states, self.links = "", {}, set(), []
        self.listeners, self.sockets, self.nat = LISTENERS, "", ""
        self.installed, self.ufw, self.broken, self.ip6tables = True, False, False, False
        self.path = "/usr/sbin/nft"
        #: The commands so far, and the number of further steps before the module is killed.
        self.done, self.left, self.refuses = [], None, ""

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        """Simulate a command on the host, and kill the module if its time has come."""
        self.done.append(shlex.join(argv))
        if self.refuses and self.refuses in self.done[-1]:
            return 1, "", "refused"
        answer = self.play(argv)
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KilledError
        return answer

    def play(self, argv: list[str]) -> tuple[int, str, str]:
        program, *words = argv
        answers = {
            "nft": self.nft,
            "/usr/sbin/nft": self.nft,
            "systemctl": self.systemctl,
            "systemd-run": self.arm,
            "/bin/sh": self.restore,
        }
        if program in answers:
            return answers[program](words)
        if program == "unshare":
            return (1, "", "syntax error") if self.broken else (0, self.listed(words[-1]), "")
        if program == "iptables-nft":
            return (0, self.nat, "") if self.nat else (127, "", "not installed")
        if program == "ip":
            device = {"192.168.1.200": "enP7s7", "172.17.0.2": "docker0"}.get(words[-1])
            return 0, f"{words[-1]} dev {device}\n" if device else f"local {words[-1]} dev lo\n", ""
        return (0, "Status: active\n", "") if program == "ufw" and self.ufw else (127, "", "not installed")

    def arm(self, words: list[str]) -> tuple[int, str, str]:
        (name,) = [word.removeprefix("--unit=") for word in words if word.startswith("--unit=")]
        assert name not in self.timers
        self.timers[name] = words
        return 0, "", ""

    def nft(self, words: list[str]) -> tuple[int, str, str]:
        if not self.installed:
            return 127, "", "not installed"
        if words[0] == "-f":
            self.table = self.listed(words[1])
        elif words[0] == "delete":
            self.table = ""
        elif "--stateless" in words and "ruleset" in words:
            return 0, "", ""
        elif "ruleset" in words:
            return 0, nftables(*([chain("filter", "INPUT", "drop", "ip6")] if self.ip6tables else [])), ""
        return (0, self.table, "") if self.table or "list" not in words else (1, "", "no such table")

    @staticmethod
    def listed(path: str) -> str:
        return Path(path).read_text(encoding="utf-8").partition("delete table inet gb10\n")[2]

    def restore(self, words: list[str]) -> tuple[int, str, str]:
        """Simulate the shell script: load the confirmed rules, else none."""
        option, _script, nft, rules, table = words
        assert (option, nft, rules, table) == ("-c", "/usr/sbin/nft", str(self.rules), "inet gb10")
        self.table = self.listed(rules) if self.rules.exists() else ""
        return 0, "", ""

    def systemctl(self, words: list[str]) -> tuple[int, str, str]:
        verb, *names = [word for word in words if not word.startswith("--")]
        if verb == "list-units":
            return 0, "".join(f"{name}.timer loaded active waiting x\n" for name in self.timers), ""
        if verb == "show":
            return 0, self.sockets if "*.socket" in names else "\n".join(self.states), ""
        if verb == "stop" and names[0].endswith(".timer"):
            for name in names:
                del self.timers[name.removesuffix(".timer")]
        elif verb != "daemon-reload":
            assert names == ["gb10-firewall.service"]
            {
                "start": self.start,
                "reload": self.reload,
                "stop": self.stop,
                "enable": self.enable,
                "disable": self.disable,
            }[verb]()
        return 0, "", ""

    def start(self) -> None:
        if "ActiveState=active" not in self.states:
            self.states.add("ActiveState=active")
            self.reload()

    def reload(self) -> None:
        self.table = self.listed(str(self.rules))

    def stop(self) -> None:
        assert not self.links_of_services(), "stopping it would stop the services that require it"
        self.states.discard("ActiveState=active")
        self.table = ""

    def enable(self) -> None:
        self.states.add("UnitFileState=enabled")
        for service in ("gb10-ray", "gb10-vllm"):
            folder = self.units / f"{service}.service.requires"
            folder.mkdir(exist_ok=True)
            if not (folder / self.unit.name).is_symlink():
                (folder / self.unit.name).symlink_to(self.unit)

    def disable(self) -> None:
        self.states.discard("UnitFileState=enabled")
        for link in self.links_of_services():
            link.unlink()

    def links_of_services(self) -> list[Path]:
        return sorted(self.units.glob("*.requires/*"))

    def fire(self) -> None:
        """Expire the timers."""
        for words in self.timers.values():
            self.restore(words[words.index("/bin/sh") + 1 :])
        self.timers = {}

    def ask(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        given = {
            "state": "present",
            "peers": [{"interface": interface, "address": address} for interface, address in PAIR],
            "peer_ports": {},
            "api_port": 8000,
            "api_clients": [],
            "wake_port": 0,
            "open_ports": [],
            "interfaces": [],
            "monitoring_ports": [],
            "monitoring_clients": [],
            "served_ports": [],
            "service_user": "",
            "confirm_timeout": 60,
            "confirm": False,
            "client": CLIENT,
            "witness": "",
            **arguments,
        }
        return io_rules.outcome(io_rules.Host(self.run, self.path, check), given)

    def full(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        """Simulate a full disk for this file."""
        write = io_nftables.io_file.write_file

        def refuse(name: str, *arguments: Any) -> None:
            if name == str(path):
                raise OSError(errno.ENOSPC, "No space left on device", name)
            write(name, *arguments)

        monkeypatch.setattr(io_nftables.io_file, "write_file", refuse)

    def assert_open(self) -> None:
        """Assert that nothing of the collection is on the host."""
        assert (self.table, self.timers, self.states) == ("", {}, set())
        assert not [
            path for path in (self.rules, self.unit, self.drop_in.parent, *self.links_of_services()) if path.exists()
        ]

    def assert_closed(self) -> None:
        """Assert that the rules are loaded, confirmed, and loaded at boot."""
        assert self.table == self.listed(str(self.rules)) != ""
        assert (self.timers, self.states) == ({}, {"UnitFileState=enabled", "ActiveState=active"})
        assert self.unit.exists()
        assert self.drop_in.exists()
        assert len(self.links_of_services()) == 2


def closed_host(host: Host) -> Host:
    """Return a host with confirmed rules."""
    host.ask()
    host.ask(confirm=True)
    return host


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Host]:
    """Return what makes another host, with confirmed rules or without."""

    def made(closed: bool) -> Host:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return closed_host(Host(folder, monkeypatch)) if closed else Host(folder, monkeypatch)

    return made


@pytest.fixture
def host(fresh: Callable[[bool], Host]) -> Host:
    return fresh(False)


def test_new_rules_are_loaded_and_saved_once_they_are_confirmed(host: Host) -> None:
    foreseen = host.ask(check=True)
    assert (foreseen["changed"], foreseen["pending"], host.table) == (True, False, "")
    first = host.ask()
    assert (first["changed"], first["pending"], first["ssh_ports"]) == (True, True, [22, 2222])
    assert not host.rules.exists(), "no boot loads them yet"
    assert host.ask(confirm=True)["changed"]
    assert "@peers" in host.rules.read_text(encoding="utf-8")
    host.assert_closed()
    again = host.ask()
    assert (again["changed"], again["pending"]) == (False, False)
    assert again["diff"]["before"] == again["diff"]["after"]


def test_the_timer_runs_by_the_monotonic_clock_and_before_anything_is_loaded(host: Host) -> None:
    for _attempt in range(2):
        begin = len(host.done)
        host.ask()
        ((_name, words),) = host.timers.items()
        assert "--on-active=60s" in words
        assert not [word for word in words if word.startswith("--on-calendar")], "a change of the clock must not matter"
        changes = [
            each
            for each in host.done[begin:]
            if each.startswith(("systemd-run", "/usr/sbin/nft -f", "systemctl --quiet stop"))
        ]
        assert changes[0].startswith("systemd-run"), "also before an earlier timer is stopped"
        assert len(changes) > 1


@pytest.mark.parametrize(
    ("attempted", "fault", "options", "reason"),
    [
        pytest.param(False, {"refuses": "systemd-run"}, {}, "refused", id="no timer"),
        pytest.param(False, {"broken": True}, {}, "syntax error", id="rules that nft refuses"),
        pytest.param(
            False, {"path": ""}, {}, "nft is in no folder of root's programs", id="an nft that units cannot find"
        ),
        pytest.param(False, {"installed": False}, {}, "install the package nftables", id="no nft"),
        pytest.param(True, {"refuses": "/usr/sbin/nft -f"}, NEW, "refused", id="rules that nft refuses at last"),
        pytest.param(
            True,
            {"refuses": "enable gb10-firewall.service"},
            {"confirm": True},
            "refused",
            id="a unit that cannot be enabled",
        ),
    ],
)
def test_a_step_that_fails_leaves_no_rules(
    host: Host, attempted: bool, fault: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    if attempted:
        host.ask()
    vars(host).update(fault)
    with pytest.raises(io_nftables.FirewallError, match=reason):
        host.ask(**options)
    host.assert_open()


def test_without_a_confirmation_they_are_gone(host: Host) -> None:
    host.ask()
    host.fire()
    assert host.table == ""
    with pytest.raises(io_nftables.FirewallError, match="no longer loaded"):
        host.ask(confirm=True)
    assert host.ask()["pending"]


def test_without_a_confirmation_the_last_rules_are_back(host: Host) -> None:
    old = closed_host(host).table
    assert host.ask(**NEW)["pending"]
    assert "8443" in host.table
    host.fire()
    assert host.table == old
    assert host.ask()["changed"] is False


def test_rules_that_nobody_confirmed_are_not_kept_because_they_are_loaded(host: Host) -> None:
    host.ask()
    host.timers = {}
    assert host.ask()["pending"]
    assert not host.rules.exists()


@pytest.mark.parametrize("file", ["unit", "drop_in", "rules"])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_full_disk_ends_with_the_rules_that_were_confirmed(
    host: Host, monkeypatch: pytest.MonkeyPatch, file: str, earlier: bool
) -> None:
    old = closed_host(host).table if earlier else ""
    host.ask(**NEW)
    assert "8443" in host.table
    with monkeypatch.context() as context:
        host.full(context, getattr(host, file))
        with pytest.raises(OSError, match="No space left"):
            host.ask(**NEW, confirm=True)
    assert host.table == old
    if earlier:
        host.assert_closed()
    else:
        host.assert_open()
    host.ask(**NEW)
    host.ask(**NEW, confirm=True)
    assert "8443" in host.table
    host.assert_closed()


def commands(host: Host, *calls: dict[str, Any]) -> int:
    """Return the number of commands of these calls."""
    begin = len(host.done)
    for call in calls:
        host.ask(**call)
    return len(host.done) - begin


@pytest.mark.parametrize("fires", [False, True])
@pytest.mark.parametrize("earlier", [False, True])
def test_killed_anywhere_the_next_run_converges(fresh: Callable[[bool], Host], earlier: bool, fires: bool) -> None:
    steps = commands(fresh(earlier), NEW, {**NEW, "confirm": True})
    assert steps > 20
    for step in range(steps):
        host = fresh(earlier)
        old = host.table
        host.left = step
        with pytest.raises(KilledError):
            commands(host, NEW, {**NEW, "confirm": True})
        host.left = None
        confirmed = host.rules.exists() and "8443" in host.rules.read_text(encoding="utf-8")
        assert confirmed or host.timers or host.table == old, f"step {step}: new rules without a rollback"
        if fires:
            host.fire()
            assert ("8443" in host.table) is confirmed, f"step {step}"
        if host.ask(**NEW)["pending"]:
            host.ask(**NEW, confirm=True)
        assert "8443" in host.table
        host.assert_closed()
        assert host.ask(**NEW)["changed"] is False


def test_a_removal_killed_anywhere_is_completed(fresh: Callable[[bool], Host]) -> None:
    for step in range(commands(fresh(True), {"state": "absent"})):
        host = fresh(True)
        host.left = step
        with pytest.raises(KilledError):
            host.ask(state="absent")
        host.left = None
        host.ask(state="absent")
        host.assert_open()


def test_each_state_of_the_unit_is_named() -> None:
    found = io_nftables.changed_files(lambda _argv: (0, "UnitFileState=disabled\nActiveState=active\n", ""), {})
    assert found[-1] == f"{io_nftables.UNIT}: enabled"


@pytest.mark.parametrize("damage", ["table", "rules", "unit", "drop_in", "boot", "service"])
def test_what_is_damaged_is_mended(host: Host, damage: str) -> None:
    closed_host(host)
    if damage == "table":
        host.table = host.table.replace("8000", "9999")
    elif damage == "boot":
        host.states = {"ActiveState=active"}
    elif damage == "service":
        host.links_of_services()[0].unlink()
    else:
        getattr(host, damage).write_text("", encoding="utf-8")
    assert host.ask(check=True)["changed"]
    answer = host.ask()
    # Rules without a file may be left from a killed run.
    assert (answer["changed"], answer["pending"]) == (True, damage in ("table", "rules"))
    if answer["pending"]:
        host.ask(confirm=True)
    host.assert_closed()
    assert host.ask()["changed"] is False


def test_another_node_confirms_in_place_of_ansible(host: Host) -> None:
    assert host.ask(client="", witness="spark2")["pending"]
    host.ask(client="", witness="spark2", confirm=True)
    host.fire()
    assert host.table
    # Without a confirmation, the timer removes the rules.
    assert host.ask(client="", witness="spark2", **NEW)["pending"]
    before = host.table
    host.fire()
    assert host.table != before


BRIDGE, DOCKER = firewall_host.Link("br-lan", ("enp3s0",)), firewall_host.Link("docker0")


@pytest.mark.parametrize(
    ("state", "options", "problems"),
    [
        pytest.param(
            {},
            {"open_ports": ["80"], "interfaces": ["*"]},
            ["peer_firewall_open_ports[0]", "peer_firewall_trusted_interfaces[0]"],
            id="mistakes of the user",
        ),
        pytest.param(
            {"listeners": [], "links": [BRIDGE]},
            {"open_ports": ["80"], "interfaces": ["br-*"], "client": ""},
            [
                *("peer_firewall_open_ports[0]", "peer_firewall_trusted_interfaces[0]"),
                *("peer_firewall_enabled", "ansible_connection"),
            ],
            id="mistakes and what the node is like together",
        ),
        # As with ansible_connection: local and an ssh.socket that is not read: systemd holds port 22, in no service.
        pytest.param({"listeners": [listener(22, "systemd")]}, {}, ["peer_firewall_enabled"], id="no port of SSH"),
        *(
            pytest.param({}, {"client": client}, ["ansible_connection"], id=f"the run of {client or 'nobody'}")
            for client in ("", "127.0.0.1", "192.168.1.11")
        ),
        pytest.param({"installed": False}, {"client": ""}, ["ansible_connection"], id="no nft yet"),
        pytest.param(
            {"links": [DOCKER]},
            {"client": "172.17.0.2", "interfaces": ["docker*"]},
            ["peer_firewall_trusted_interfaces[0]"],
            id="the run of a container of the node",
        ),
    ],
)
def test_problems_are_listed_together_and_change_nothing(
    host: Host, state: dict[str, Any], options: dict[str, Any], problems: list[str]
) -> None:
    vars(host).update(state)
    for check in (True, False):
        with pytest.raises(ProblemsError) as caught:
            host.ask(check=check, **options)
        assert [problem.path for problem in caught.value.problems] == problems
    host.assert_open()


def test_ssh_that_systemd_waits_for_stays_open(host: Host) -> None:
    host.listeners, host.sockets = [listener(22, "systemd")], UBUNTU
    assert host.ask()["ssh_ports"] == [22]
    assert "tcp dport 22 accept" in host.table


@pytest.mark.parametrize("client", ["", "127.0.0.1", "192.168.1.11"])
def test_only_another_host_confirms(host: Host, client: str) -> None:
    host.ask()
    with pytest.raises(ProblemsError, match="SSH from another host"):
        host.ask(client=client, confirm=True)
    host.fire()
    host.assert_open()


def test_a_run_that_cannot_confirm_ends_before_the_network_changes() -> None:
    """As with ansible_connection: local. The role compared only after the network had changed."""
    tasks = load_yaml(read("playbooks/steps/roles.yml"))
    (compared,) = (index for index, task in enumerate(tasks) if "gb10.cluster.peer_firewall" in task)
    changes = [index for index, task in enumerate(tasks) if "ansible.builtin.import_role" in task]
    roles = [tasks[index]["ansible.builtin.import_role"]["name"].rpartition(".")[2] for index in changes]
    assert compared < changes[roles.index("qsfp_netplan")]
    assert (tasks[compared]["check_mode"], tasks[compared]["tags"]) == (True, "peer_firewall")


def test_what_is_confirmed_needs_nobody(host: Host) -> None:
    closed_host(host)
    assert host.ask(client="")["changed"] is False
    host.unit.unlink()
    assert host.ask(client="")["changed"]
    host.assert_closed()
    assert host.ask(client="", state="absent")["changed"]


def test_the_matches_of_a_pattern_are_told(host: Host) -> None:
    host.links = [DOCKER]
    assert host.ask(interfaces=["docker*"])["matches"] == {"docker*": ["docker0"]}


def test_absent_leaves_nothing(host: Host) -> None:
    closed_host(host)
    assert host.ask(state="absent", check=True)["changed"]
    assert host.table
    assert host.ask(state="absent")["changed"]
    host.assert_open()
    assert host.ask(state="absent")["changed"] is False


def test_where_ufw_rules_ours_goes_and_ufw_is_told(host: Host) -> None:
    closed_host(host)
    host.ufw = True
    answer = host.ask()
    assert (answer["changed"], answer["active_firewall"], host.table) == (True, "ufw", "")
    assert "ufw allow in on enp1s0f1np1 from 10.110.0.2" in answer["advice"][-3]
    assert host.ask()["changed"] is False
    assert host.ask(state="absent")["advice"] == []


def test_where_ip6tables_rules_ipv6_ours_closes_ipv4(host: Host) -> None:
    host.ip6tables = True
    answer = closed_host(host).ask()
    assert (answer["active_firewall"], answer["active_firewalls"]) == (
        "",
        {"ip": "", "ip6": "the nftables table ip6 filter"},
    )
    assert "the nftables table ip6 filter controls incoming IPv6 traffic" in answer["advice"][0]
    assert "meta nfproto ipv6 accept" in host.table
    host.assert_closed()
    assert answer["changed"] is False


def test_without_nft_check_mode_foresees_its_installation(host: Host) -> None:
    host.installed = False
    assert host.ask(check=True)["changed"]
    assert host.ask(state="absent")["changed"] is False


FIRST, SECOND = "192.168.1.200 50000 192.168.1.11 22", "192.168.1.200 50002 192.168.1.11 22"
LOADED, UNCHANGED = {"changed": True, "pending": True}, {"changed": False, "pending": False}
CUT = AnsibleConnectionFailure("refused")


def act(
    monkeypatch: pytest.MonkeyPatch,
    *answers: Any,
    clients: Sequence[Any] = (FIRST, SECOND),
    transport: str = "ssh",
    **options: Any,
) -> tuple[dict[str, Any], list[Any]]:
    """Run the action on a host with these results and clients. Return its result, and what it asked of the host."""
    said, results, asked, clock = list(clients), list(answers), [], iter(range(0, 1000, 3))

    def shell(command: str, **_options: Any) -> dict[str, Any]:
        assert "$SSH_CONNECTION" in command
        found = said.pop(0) if said else ""
        if found is CUT:
            raise CUT
        return {"stdout": f"Welcome to spark1\n{found}\n"}

    def module(module_name: str | None, module_args: dict[str, Any], **_variables: Any) -> dict[str, Any]:
        asked.append((module_name, module_args.get("client"), module_args.get("confirm", False)))
        found = results.pop(0)
        if found is CUT:
            raise CUT
        return dict(found)

    monkeypatch.setattr(action_plugin.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(action_plugin.time, "monotonic", lambda: next(clock))
    action = object.__new__(action_plugin.ActionModule)
    action._connection = SimpleNamespace(transport=transport, reset=lambda: asked.append("reset"))
    action._task = task({"confirm_timeout": 60, **options})
    monkeypatch.setattr(action, "_execute_module", module, raising=False)
    monkeypatch.setattr(action, "_low_level_execute_command", shell, raising=False)
    return action.decide({}), asked


ASKED, CONFIRMED, PING = (None, CLIENT, False), (None, CLIENT, True), ("ansible.builtin.ping", None, False)
#: Ansible's own shell has the variable of the SSH connection that started it.
NOBODY = (None, "", False)
OLD = (
    "The new rules were not confirmed, and the host rolls them back within 60 s: Ansible's connection from 192.168.1.200 "
    "port 50000 is an old one, so it does not verify them. Fix: do not set ControlMaster and ControlPath of SSH; Ansible "
    "sets them."
)
GONE = {**UNCHANGED, "failed": True, "msg": "The new rules cut the host off, and it rolled them back: refused"}
FAILED = {"failed": True, "msg": "no longer loaded"}


@pytest.mark.parametrize(
    ("given", "answers", "expected", "asked"),
    [
        pytest.param(
            {},
            (LOADED, UNCHANGED),
            {**LOADED, "pending": False},
            [ASKED, "reset", CONFIRMED],
            id="a new connection confirms",
        ),
        pytest.param(
            {"transport": "local", "witness": "spark2"},
            (LOADED,),
            LOADED,
            [NOBODY],
            id="with a witness the role confirms",
        ),
        pytest.param(
            {"clients": (FIRST, FIRST)},
            (LOADED,),
            {**UNCHANGED, "failed": True, "msg": OLD},
            [ASKED, "reset"],
            id="an old connection confirms nothing",
        ),
        *(
            pytest.param(
                {"transport": transport}, (UNCHANGED,), UNCHANGED, [NOBODY], id=f"no client without SSH: {transport}"
            )
            for transport in ("local", "chroot")
        ),
        *(
            pytest.param({"clients": (said,)}, (UNCHANGED,), UNCHANGED, [NOBODY], id=f"no client: {said!r}")
            for said in ("", "x", "a b c d", "1.2.3.4 5 6.7.8.9 22; x")
        ),
        pytest.param({}, (UNCHANGED,), UNCHANGED, [ASKED], id="nothing is new"),
        pytest.param(
            {"clients": (FIRST, CUT)},
            (LOADED, CUT, CUT, {}),
            GONE,
            [ASKED, *["reset", "reset", PING, "reset", PING, "reset", PING]],
            id="cut off before the confirmation",
        ),
        pytest.param(
            {},
            (LOADED, CUT, CUT, {}),
            GONE,
            [ASKED, "reset", CONFIRMED, "reset", PING, "reset", PING],
            id="cut off by the confirmation",
        ),
        pytest.param({}, (LOADED, FAILED), FAILED, [ASKED, "reset", CONFIRMED], id="a confirmation that failed"),
    ],
)
def test_the_action_confirms_over_a_new_connection_alone(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    answers: tuple[Any, ...],
    expected: dict[str, Any],
    asked: list[Any],
) -> None:
    assert act(monkeypatch, *answers, **given) == (expected, asked)


def test_the_action_gives_up_a_host_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        act(monkeypatch, LOADED, *[CUT] * 60)


def test_a_published_port_is_open_and_never_closed(host: Host) -> None:
    """Docker's proxy listens on the port, but a client's packets never reach it, nor the input chain."""
    host.listeners = [
        *LISTENERS,
        listener(3000, "docker-proxy", "docker.service"),
        listener(3001, "docker-proxy", "docker.service"),
    ]
    host.nat = "-A DOCKER ! -i docker0 -p tcp -m tcp --dport 3000 -j DNAT --to-destination 172.17.0.2:8080\n"
    for host.installed in (True, False):
        answer = host.ask(check=True)
        assert answer["published"] == ["3000/tcp"]
        assert "3000/tcp (docker-proxy)" not in answer["closed"]
        # Docker without rules of iptables: the proxy is the way in, and is filtered.
        assert "3001/tcp (docker-proxy)" in answer["closed"]
