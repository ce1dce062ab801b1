"""Who reaches which port: the rules, what another firewall is told, and a host that takes a change back. nft and systemd are played."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from nodes import KNOWN, LOCK, spark

from ansible_collections.gb10.cluster.plugins.action import peer_firewall as action_plugin
from ansible_collections.gb10.cluster.plugins.module_utils import cluster, firewall, io_firewall
from ansible_collections.gb10.cluster.plugins.module_utils.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.modules import peer_firewall as module

ALL = firewall.Access((), 0, (), (), ())
PAIR = [("enp1s0f1np1", "10.110.0.2"), ("enP2p1s0f1np1", "10.110.1.2")]


def access(**changes: Any) -> firewall.Access:
    given = {"peers": PAIR, "api_port": 8000, "api_clients": (), "open_ports": (), "interfaces": ()}
    return firewall.Access(**{**given, **changes})


def rules(text: str) -> list[str]:
    """The lines of the chain, without its hook."""
    return [line.strip() for line in text.partition("policy drop;")[2].splitlines() if line.strip(" \t}")]


def planned(name: str, *nodes: Any) -> dict[str, Any]:
    plan, problems = cluster.plan(list(nodes), LOCK, KNOWN)
    assert problems == []
    return {**plan, "node": next(node for node in plan["nodes"] if node["name"] == name)}


def test_a_pair_lets_its_peer_in_on_both_rails() -> None:
    nodes = spark(1, "head"), spark(2, "worker")
    head, worker = (firewall.of_plan(planned(name, *nodes)) for name in ("spark1", "spark2"))
    assert {(peer["interface"], peer["address"]) for peer in head["peers"]} == {("enp1s0f1np1", "10.110.0.2"), ("enP2p1s0f1np1", "10.110.1.2")}
    assert (head["api_port"], worker["api_port"]) == (8000, 0)
    assert (head["peer_ports"]["Ray's port"], head["peer_ports"]["Ray's workers"]) == (6379, "20000-20999")
    assert "Ray's port" not in worker["peer_ports"]


def test_a_ring_lets_peers_in_where_they_have_no_cable() -> None:
    nodes = [spark(number, "worker" if number > 1 else "head", gb10_fabric_topology="ring", gb10_fabric_ports=[0, 1]) for number in (1, 2, 3)]
    found = firewall.of_plan(planned("spark1", *nodes))["peers"]
    assert {"interface": "enP7s7", "address": "192.168.1.12"} in found
    assert len(found) == 6, "two twins for each of two cables, and the network by which all meet"


def test_a_single_node_has_no_peer_and_an_api_of_its_own_no_client() -> None:
    alone = firewall.of_plan(planned("spark1", spark(1, "head", gb10_api_host="127.0.0.1")))
    assert (alone["peers"], alone["api_port"]) == ([], 0)


def test_mp_meets_at_the_head() -> None:
    nodes = [spark(number, group, gb10_executor="mp") for number, group in ((1, "head"), (2, "worker"))]
    assert [firewall.of_plan(planned(name, *nodes))["peer_ports"] for name in ("spark1", "spark2")] == [
        {"rendezvous": 29501, "the ranks' end": 29502},
        {},
    ]


def test_the_rules_of_a_head() -> None:
    text = firewall.ruleset(access(open_ports=("8443/tcp", "60000-61000/udp"), interfaces=("docker*",)), [2222, 22])
    assert text.splitlines()[1:4] == ["table inet gb10", "delete table inet gb10", "table inet gb10 {"]
    assert 'elements = { "enp1s0f1np1" . 10.110.0.2, "enP2p1s0f1np1" . 10.110.1.2 }' in text
    assert rules(text) == [
        'iifname "lo" accept',
        'iifname "docker*" accept',
        "iifname . ip saddr @peers accept",
        "ct state established,related accept",
        "ct state invalid drop",
        "meta l4proto { icmp, ipv6-icmp, igmp } accept",
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
    text = firewall.ruleset(ALL, [22])
    assert "peers" not in text
    assert not [line for line in rules(text) if "8000" in line]


def test_clients_of_the_api_are_matched_by_their_family() -> None:
    lines = rules(firewall.ruleset(access(api_clients=("192.168.1.0/24", "10.0.0.7", "fd00::/8")), []))
    assert [line for line in lines if "8000" in line] == [
        "ip saddr { 192.168.1.0/24, 10.0.0.7/32 } tcp dport 8000 accept",
        "ip6 saddr { fd00::/8 } tcp dport 8000 accept",
    ]


@pytest.mark.parametrize("port", ["80", "0/tcp", "65536/tcp", "9-8/udp", "80/sctp", "80/tcp accept", "", "-1/tcp"])
def test_ports_that_are_none_are_refused(port: str) -> None:
    assert [problem.path for problem in firewall.check(access(open_ports=("1/tcp", port)))] == ["peer_firewall_open_ports[1]"]


@pytest.mark.parametrize("name", ["", 'a" accept', "a b", "*", "*a", "interface-too-long"])
def test_interfaces_that_are_none_are_refused(name: str) -> None:
    assert [problem.path for problem in firewall.check(access(interfaces=("br-*", name)))] == ["peer_firewall_interfaces[1]"]


def listener(port: int, process: str, unit: str = "", address: str = "0.0.0.0") -> dict[str, Any]:
    return {"address": address, "port": port, "pid": 1, "process": process, "unit": unit}


LISTENERS = [
    listener(22, "systemd", "ssh.socket", "::"),
    listener(2222, "sshd", "other-sshd.service"),
    listener(9022, "sshd", "session-4.scope"),
    listener(6010, "sshd", "session-4.scope", "127.0.0.1"),
    listener(11000, "dgx-dashboard", "dgx-dashboard.service", "::ffff:127.0.0.1"),
    listener(3389, "gnome-remote-de", "user@1000.service", "::"),
    listener(8443, "caddy", "caddy.service"),
    listener(6379, "gcs_server", "gb10-ray.service"),
    listener(8000, "vllm", "gb10-vllm.service"),
]


def test_ssh_is_found_where_it_listens() -> None:
    assert firewall.ssh_ports(LISTENERS) == [22, 2222]


def test_what_is_out_of_reach_is_told() -> None:
    found = firewall.closed(LISTENERS, access(open_ports=("8000-9000/tcp", "3389/udp")), [22, 2222])
    assert found == ["3389/tcp (gnome-remote-de)", "9022/tcp (sshd)"]


def nftables(*objects: dict[str, Any]) -> str:
    return json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}, *objects]})


def chain(table: str, name: str, policy: str = "accept", family: str = "ip", hook: str | None = "input") -> dict[str, Any]:
    base = {"type": "filter", "hook": hook, "prio": 0, "policy": policy} if hook else {}
    return {"chain": {"family": family, "table": table, "name": name, "handle": 1, **base}}


def rule(table: str, name: str, *expressions: dict[str, Any], family: str = "ip") -> dict[str, Any]:
    return {"rule": {"family": family, "table": table, "chain": name, "handle": 1, "expr": list(expressions)}}


ADDRESS = {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@f2b"}}
COUNTER = {"counter": {"packets": 1, "bytes": 1}}


@pytest.mark.parametrize(
    ("objects", "legacy", "active", "expected"),
    [
        pytest.param((), "", [], "", id="nothing"),
        pytest.param((), "", ["ufw"], "ufw", id="ufw"),
        pytest.param((), "", ["firewalld"], "firewalld", id="firewalld"),
        pytest.param((chain("filter", "INPUT", "drop"),), "", [], "the nftables table ip filter", id="iptables-nft with a policy"),
        pytest.param((chain("filter", "INPUT"),), "", [], "", id="iptables-nft without rules"),
        pytest.param((chain("filter", "FORWARD", "drop", hook="forward"),), "", [], "", id="docker"),
        pytest.param((chain("gb10", "input", "drop", "inet"),), "", [], "", id="ours"),
        pytest.param((chain("netdev", "input", "drop", "bridge"),), "", [], "", id="bridge"),
        pytest.param((chain("f2b-table", "f2b"), rule("f2b-table", "f2b", ADDRESS, {"reject": None})), "", [], "", id="fail2ban"),
        pytest.param(
            (chain("mine", "in", family="inet"), rule("mine", "in", COUNTER, {"reject": {"type": "icmpx"}}, family="inet")),
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
            (chain("mine", "in"), rule("mine", "in", ADDRESS, {"jump": {"target": "in"}}), rule("mine", "in", {"goto": {"target": "in"}})),
            "",
            [],
            "",
            id="in a circle",
        ),
        pytest.param((), "-P INPUT ACCEPT\n-A INPUT -s 1.2.3.4/32 -j DROP\n", [], "", id="legacy with a ban"),
        pytest.param((), "-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with icmp-port-unreachable\n", [], "iptables (legacy)", id="legacy"),
        pytest.param((), "-P INPUT DROP\n", [], "iptables (legacy)", id="legacy with a policy"),
    ],
)
def test_who_rules(objects: tuple[dict[str, Any], ...], legacy: str, active: list[str], expected: str) -> None:
    assert firewall.ruler(nftables(*objects), legacy, active) == expected


def test_another_firewall_is_told_peers_ports_and_commands() -> None:
    given = access(api_clients=("192.168.1.0/24",))
    ufw = firewall.advice("ufw", given, {"Ray's port": 6379})
    assert "    all TCP and UDP ports: 6379 (Ray's port), and those of net.ipv4.ip_local_port_range (NCCL, Gloo, vLLM)" in ufw
    assert "  from 192.168.1.0/24: TCP 8000 (the API)" in ufw
    assert ufw[-3:] == [
        "  sudo ufw allow in on enp1s0f1np1 from 10.110.0.2",
        "  sudo ufw allow in on enP2p1s0f1np1 from 10.110.1.2",
        "  sudo ufw allow proto tcp from 192.168.1.0/24 to any port 8000",
    ]
    assert firewall.advice("firewalld", access(), {})[-2:] == [
        "  sudo firewall-cmd --permanent --add-port=8000/tcp",
        "  sudo firewall-cmd --reload",
    ]
    assert not [line for line in firewall.advice("the nftables table ip filter", given, {}) if "sudo" in line]
    assert firewall.advice("ufw", ALL, {})[1:2] == ["  nothing: this node has no peers and no API"]


class Host:
    """A host whose nft and systemd are played; its files are real."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rules, self.unit = folder / "etc" / "firewall.nft", folder / "etc" / "gb10-firewall.service"
        monkeypatch.setattr(io_firewall, "RULES", str(self.rules))
        monkeypatch.setattr(io_firewall, "UNIT_FILE", str(self.unit))
        monkeypatch.setattr(module, "runner", lambda _module: self.run)
        monkeypatch.setattr(module.io_node, "listeners", lambda: LISTENERS)
        self.table, self.timer, self.states = "", [], set()
        self.installed, self.ufw, self.broken = True, False, False

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        """Do what a host would."""
        program, *words = argv
        if program.endswith("nft"):
            return self.nft(words)
        if program == "unshare":
            return (1, "", "syntax error") if self.broken else (0, self.listed(words[-1]), "")
        if program == "systemd-run":
            self.timer = words
        elif program == "systemctl":
            return self.systemctl([word for word in words if word != "--quiet"])
        elif program == "ufw" and self.ufw:
            return 0, "Status: active\n", ""
        else:
            return 127, "", "not installed"
        return 0, "", ""

    def nft(self, words: list[str]) -> tuple[int, str, str]:
        if not self.installed:
            return 127, "", "not installed"
        if words[0] == "-f":
            self.table = self.listed(words[1])
        elif words[0] == "delete":
            self.table = ""
        elif "ruleset" in words:
            return 0, nftables(), ""
        return (0, self.table, "") if self.table or "list" not in words else (1, "", "no such table")

    @staticmethod
    def listed(path: str) -> str:
        return Path(path).read_text(encoding="utf-8").partition("delete table inet gb10\n")[2]

    def systemctl(self, words: list[str]) -> tuple[int, str, str]:
        verb = words[0]
        if verb == "is-active":
            return (0 if self.timer else 3), "", ""
        if verb == "stop":
            self.timer = []
        elif verb == "enable":
            self.states.add("UnitFileState=enabled")
        elif verb == "start":
            self.states.add("ActiveState=active")
        elif verb == "disable":
            self.states.clear()
        return 0, "\n".join(self.states) if verb == "show" else "", ""

    def fire(self) -> None:
        """Let the timer run out."""
        (back,) = [self.timer[index:] for index, word in enumerate(self.timer) if word == "/usr/sbin/nft"]
        self.run(back)
        self.timer = []

    def ask(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        given = {
            "state": "present",
            "peers": [{"interface": interface, "address": address} for interface, address in PAIR],
            "peer_ports": {},
            "api_port": 8000,
            "api_clients": [],
            "open_ports": [],
            "interfaces": [],
            "confirm_timeout": 60,
            "confirm": False,
            **arguments,
        }
        return module.outcome(SimpleNamespace(params=given, check_mode=check, get_bin_path=lambda _name, **_required: "/usr/sbin/nft"))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def closed_host(host: Host) -> Host:
    """A host whose rules were confirmed."""
    host.ask()
    host.ask(confirm=True)
    return host


def test_new_rules_are_loaded_and_saved_once_they_are_confirmed(host: Host) -> None:
    foreseen = host.ask(check=True)
    assert (foreseen["changed"], foreseen["pending"], host.table) == (True, False, "")
    first = host.ask()
    assert (first["changed"], first["pending"], first["ssh_ports"]) == (True, True, [22, 2222])
    assert "--on-active=60s" in host.timer
    assert not host.rules.exists(), "no boot knows of them yet"
    assert (host.ask(confirm=True)["changed"], host.timer) == (True, [])
    assert "@peers" in host.rules.read_text(encoding="utf-8")
    assert host.states == {"UnitFileState=enabled", "ActiveState=active"}
    again = host.ask()
    assert (again["changed"], again["pending"]) == (False, False)
    assert again["diff"]["before"] == again["diff"]["after"]


def test_without_a_confirmation_they_are_gone(host: Host) -> None:
    host.ask()
    host.fire()
    assert host.table == ""
    with pytest.raises(io_firewall.FirewallError, match="no longer loaded"):
        host.ask(confirm=True)
    assert host.ask()["pending"]


def test_without_a_confirmation_the_last_rules_are_back(host: Host) -> None:
    old = closed_host(host).table
    assert host.ask(open_ports=["8443/tcp"])["pending"]
    assert "8443" in host.table
    host.fire()
    assert host.table == old
    assert host.ask()["changed"] is False


def test_a_run_killed_before_its_confirmation_is_repeated(host: Host) -> None:
    host.ask()
    assert host.ask()["pending"], "the table is there, and goes away if nobody confirms it"


@pytest.mark.parametrize("damage", ["table", "rules", "unit", "boot"])
def test_what_is_damaged_is_mended(host: Host, damage: str) -> None:
    closed_host(host)
    if damage == "table":
        host.table = host.table.replace("8000", "9999")
    elif damage == "boot":
        host.states = {"ActiveState=active"}
    else:
        getattr(host, damage).write_text("", encoding="utf-8")
    assert host.ask(check=True)["changed"]
    answer = host.ask()
    assert (answer["changed"], answer["pending"]) == (True, damage == "table")
    if answer["pending"]:
        host.ask(confirm=True)
    assert host.ask()["changed"] is False


def test_rules_that_nft_refuses_change_nothing(host: Host) -> None:
    host.broken = True
    with pytest.raises(io_firewall.FirewallError, match="syntax error"):
        host.ask()
    assert (host.table, host.timer) == ("", [])


def test_mistakes_of_the_user_change_nothing(host: Host) -> None:
    with pytest.raises(ProblemsError, match=r"open_ports\[0\].*\n.*interfaces\[0\]"):
        host.ask(open_ports=["80"], interfaces=["*"])
    assert host.table == ""


def test_absent_leaves_nothing(host: Host) -> None:
    closed_host(host)
    assert host.ask(state="absent", check=True)["changed"]
    assert host.table
    assert host.ask(state="absent")["changed"]
    assert (host.table, host.rules.exists(), host.unit.exists(), host.states) == ("", False, False, set())
    assert host.ask(state="absent")["changed"] is False


def test_where_ufw_rules_ours_goes_and_ufw_is_told(host: Host) -> None:
    closed_host(host)
    host.ufw = True
    answer = host.ask()
    assert (answer["changed"], answer["ruler"], host.table) == (True, "ufw", "")
    assert "ufw allow in on enp1s0f1np1 from 10.110.0.2" in answer["advice"][-3]
    assert host.ask()["changed"] is False
    assert host.ask(state="absent")["advice"] == []


def test_without_nft_check_mode_foresees_its_installation(host: Host) -> None:
    host.installed = False
    assert host.ask(check=True)["changed"]
    with pytest.raises(io_firewall.FirewallError, match="package nftables"):
        host.ask()
    assert host.ask(state="absent")["changed"] is False


class Connection:
    """A connection that a host refuses while it is cut off."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.resets, self.asked = answers, 0, []

    def reset(self) -> None:
        self.resets += 1

    def answer(self, module_name: str = "peer_firewall", module_args: dict[str, Any] | None = None, **_variables: Any) -> dict[str, Any]:
        """Play the module on the host."""
        self.asked.append((module_name, (module_args or {}).get("confirm", False)))
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return dict(found)


def act(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> tuple[dict[str, Any], Connection]:
    """Run the action on a host that answers so."""
    connection, clock = Connection(list(answers)), iter(range(0, 1000, 3))
    monkeypatch.setattr(action_plugin.ActionBase, "run", lambda *_arguments: {})
    monkeypatch.setattr(action_plugin.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(action_plugin.time, "monotonic", lambda: next(clock))
    action = object.__new__(action_plugin.ActionModule)
    action._connection, action._task = connection, SimpleNamespace(args={"confirm_timeout": 60})
    monkeypatch.setattr(action, "_execute_module", connection.answer, raising=False)
    return action.run(None, {}), connection


LOADED = {"changed": True, "pending": True}
CUT = AnsibleConnectionFailure("refused")


def test_the_action_confirms_over_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, connection = act(monkeypatch, LOADED, {"changed": True, "pending": False})
    assert (answer["pending"], answer["changed"], connection.resets) == (False, True, 1)
    assert connection.asked == [("peer_firewall", False), ("peer_firewall", True)]


def test_the_action_has_nothing_to_confirm_where_nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    assert act(monkeypatch, {"changed": False, "pending": False})[1].resets == 0


def test_the_action_outlives_a_host_that_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, connection = act(monkeypatch, LOADED, CUT, CUT, CUT, {})
    assert answer["failed"]
    assert "took them back" in answer["msg"]
    assert connection.asked[-1] == ("ansible.builtin.ping", False)


def test_the_action_gives_up_a_host_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        act(monkeypatch, LOADED, *[CUT] * 60)


def test_a_failed_confirmation_is_the_actions_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert act(monkeypatch, LOADED, {"failed": True, "msg": "no longer loaded"})[0]["failed"]
