"""Validation of a cable neighbor's answers: none can inject a line, a shell word, a template or an unexpected error."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import nested
from sparks import KEY, PAIR, RING3, asked, machine, machines, sees

from ansible_collections.gb10.cluster.plugins.module_utils.access import host_key
from ansible_collections.gb10.cluster.plugins.module_utils.common.bounded_json import load
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import answer as discovery_answer
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import inventory as discovery_inventory
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import parse as discovery_parse
from ansible_collections.gb10.cluster.plugins.module_utils.discovery import plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import discovery_plan

QSFP = "enp1s0f1np1"
EVIL = "{{ lookup('ansible.builtin.pipe', 'id>/tmp/owned') }}"
PROXY = "127.0.0.1\n  ProxyCommand sh -c 'id>/tmp/owned'"


def changed(path: str, value: Any) -> list[dict[str, Any]]:
    """Return a pair whose first (given) machine has another value at a path of keys and indexes."""
    known = [{**machine(1, [PAIR]), "name": "192.168.1.1"}]
    target: Any = known[0]["observed"]
    *above, last = [int(part) if part.isdecimal() else part for part in path.split("/")]
    for part in above:
        target = target[part]
    target[last] = value
    return known


def result(known: list[dict[str, Any]], partial: bool = False) -> dict[str, Any]:
    return discovery_plan.result(list(map(discovery_answer.machine, known)), partial, "")


def pending_hosts(known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return plan.pending_hosts(list(map(discovery_answer.machine, known)))


def ssh_files(known: list[dict[str, Any]], folder: str) -> dict[str, Any]:
    return discovery_plan.ssh_files(list(map(discovery_answer.machine, known)), folder)


SIGHTING = f"neighbors/{QSFP}/0"
#: Field, expected form, and values of another form.
WRONG: list[tuple[str, str, list[Any]]] = [
    (
        f"{SIGHTING}/address",
        "an IPv4 address, or fe80::",
        [
            PROXY,
            "fe80::1%x\n  ProxyCommand id",
            "fe80::1%enp1s0f0np0",
            "fe80::1%",
            "2001:db8::1%enp1s0f1np1",
            "127.0.0.1",
            2130706433,
            "-oProxyCommand=id",
            "10.0.0.1'; id #",
            "10.0.0.1%",
        ],
    ),
    (
        f"{SIGHTING}/mac",
        "a MAC address of one machine",
        [
            "02:00:00:00:02:02\nall:",
            "33:33:00:00:00:01",
            "00:00:00:00:00:00",
            "0200.0000.0202",
            "02-00-00-00-02-02",
            ["02:00:00:00:02:02"],
        ],
    ),
    (f"{SIGHTING}/name", "at most 63 letters", ["x\nProxyCommand id", EVIL, "\x1b[2J"]),
    (
        f"{SIGHTING}/host_key",
        "ssh-ed25519 and the 68",
        [
            f"{KEY}\n* {KEY}",
            "ssh-ed25519 AAAA",
            "ssh-ed25519 " + "A" * 68,
            KEY.replace("ssh-ed25519", "ssh-rsa"),
        ],
    ),
    (SIGHTING, "a mapping", ["x"]),
    (f"neighbors/{QSFP}", "a list with 256 entries at most", [[{}] * 257]),
    ("neighbors", "one of enp1s0f0np0", [{"eth0\n": []}]),
    ("neighbors", "a mapping", [[]]),
    (
        "management",
        "the IPv4 address of one machine",
        [EVIL, "192.168.1.2\n", "127.0.0.1", "0.0.0.0", "169.254.0.1", "224.0.0.1", 3232235777, "fe80::1%x"],
    ),
    (
        "hostname",
        "1 to 63 letters, digits and hyphens",
        [
            "x\ngb10_cluster:\n  vars: {a: b}",
            EVIL,
            "-oProxyCommand=id",
            *(f"spark{sign}1" for sign in " ;'\"{}$.:/\n_\u017f"),
            "",
            "a" * 64,
            "\u017fpark",
            None,
        ],
    ),
    ("interfaces", "the name of an interface", [{"a b": {"mac": "", "up": True, "carrier": True}}]),
    ("interfaces", "a mapping with 1024 entries at most", [{f"i{number}": {} for number in range(1025)}]),
    (f"interfaces/{QSFP}/mac", "a MAC address", [EVIL]),
    (f"interfaces/{QSFP}/up", "true or false", ["yes"]),
    (f"interfaces/{QSFP}/carrier", "true or false", [1]),
    (f"interfaces/{QSFP}", "a mapping", [None]),
    ("unheard", "one of enp1s0f0np0", [{"x": ""}]),
    ("notes", "a list", ["x"]),
    ("notes", "a list with 16 entries at most", [["x"] * 17]),
]
#: The same with the location in the report.
CASES = [
    *(
        (path, value, path.replace("/0", "[0]").replace("/", "."), form)
        for path, form, values in WRONG
        for value in values
    ),
    ("unheard", {QSFP: 1}, f"unheard.{QSFP}", "a text"),
    ("notes", [{}], "notes[0]", "a text"),
]


@pytest.mark.parametrize(("path", "value", "where", "expected"), CASES)
def test_an_answer_of_another_form_is_reported_and_not_used(path: str, value: Any, where: str, expected: str) -> None:
    known = changed(path, value)
    found = result(known)
    assert any(
        problem.startswith(f"192.168.1.1.{where}: invalid value ") and f"Expected: {expected}" in problem
        for problem in found["problems"]
    ), found["problems"]
    assert all("Fix: " in problem and problem.isprintable() for problem in found["problems"])
    assert "no Spark" in found["summary"][0]
    everything = json.dumps([found["files"], found["summary"], found["trusted"], ssh_files(known, "/tmp/x")])
    assert "owned" not in everything and "ProxyCommand id" not in everything
    assert pending_hosts(known) == [], "machines that it names are not queried"


def test_all_that_is_wrong_is_one_report_and_such_machines_can_be_left_out() -> None:
    wrong = [*changed("hostname", EVIL), {**changed("management", EVIL)[0], "name": "192.168.1.2"}]
    found = result(wrong)
    paths = ["192.168.1.1.hostname", "192.168.1.2.management"]
    assert [problem.partition(":")[0] for problem in found["problems"]] == paths
    assert found["report"].startswith("2 problems found; nothing was changed.")
    found = result([*machines(PAIR), *wrong], partial=True)
    assert (found["problems"], found["topology"]) == ([], "direct")
    assert [note.partition(":")[0] for note in found["notes"]] == paths


def test_what_a_machine_on_a_cable_answers_does_not_count_either() -> None:
    seed = machine(1, [PAIR])
    (stranger,) = pending_hosts([seed])
    answered = asked(stranger, PAIR)
    answered["observed"]["management"] = EVIL
    kept = discovery_answer.machine(answered)
    assert (kept["observed"], kept["unreachable"], [problem["path"] for problem in kept["invalid"]]) == (
        {},
        "",
        [f"{stranger['name']}.management"],
    )
    assert discovery_answer.machine(kept) == kept
    found = result([seed, kept])
    assert [problem.partition(":")[0] for problem in found["problems"]] == [f"{stranger['name']}.management"]
    assert pending_hosts([seed, kept]) == [], "it is not queried again"
    assert ssh_files([seed, kept], "/tmp/x")["trusted"] == []


@pytest.mark.parametrize("answer", [{}, {"msg": "hello"}, {"failed": False, "changed": True, "observed": {}}])
def test_an_answer_of_nothing_is_not_taken_for_one(answer: dict[str, Any]) -> None:
    """An empty answer means an unqueried machine. The role never passes one, because Ansible adds `changed`."""
    kept = discovery_answer.machine({**machine(1, []), "observed": answer})
    assert (kept["observed"], bool(kept["invalid"])) == ({}, bool(answer))


def test_thousands_of_mistakes_are_not_reported_one_by_one() -> None:
    assert len(result(changed(f"neighbors/{QSFP}", ["x"] * 256))["problems"]) == 8


def test_a_network_without_end_is_not_followed() -> None:
    entry = {**sees(2, 1, 0, QSFP), "host_key": ""}
    known = changed(f"neighbors/{QSFP}", [{**entry, "mac": f"02:00:00:00:10:{number:02x}"} for number in range(64)])
    assert pending_hosts(known) == []
    assert any("66 machines are seen. Expected: at most 64" in problem for problem in result(known)["problems"])


def test_reasons_are_shown_on_one_line() -> None:
    told = {**machine(1, []), "observed": {}, "unreachable": "no\n\x1b[31m\u2028{{ x }}" + "y" * 999}
    (problem,) = result([told])["problems"]
    assert problem.isprintable() and "no \\x1b[31m {{ x }}yyy" in problem and len(problem) < 600
    assert result([{**told, "unreachable": {"a": [PROXY]}}])["problems"]


@pytest.mark.parametrize(
    ("name", "value", "variable"),
    [
        ("user", "a\n  ProxyCommand id", "ansible_user"),
        ("user", 'a" b', "ansible_user"),
        ("key", "k\n", "ansible_ssh_private_key_file"),
        ("arguments", "-o 'a", "ansible_ssh_common_args"),
        ("arguments", "-o 'a\nb'", "ansible_ssh_common_args"),
        ("port", "22 -x", "ansible_port"),
        ("port", 70000, "ansible_port"),
    ],
)
def test_what_the_user_gives_is_one_line_too(name: str, value: Any, variable: str) -> None:
    known = machines(PAIR)
    known[0]["login"] = {**known[0]["login"], name: value}
    problems = result(known)["problems"]
    assert [
        (f"spark1.login.{name}: " in problem, f"correct {variable}" in problem)
        for problem in problems
        if "login" in problem
    ] == [(True, True)]


@pytest.mark.parametrize("user", ["nvidia", "DOMAIN\\me", "first last", "o'neil", "a$b", "{{ x }}"])
def test_what_the_user_gives_works_as_it_is(user: str) -> None:
    arguments = "-o 'ProxyCommand=ssh -W %h:%p \"jump host\"' -o SetEnv=A={{b}}{%"
    login = {"user": user, "key": "~/my keys/{#k", "port": "2222", "arguments": arguments, "local": False}
    known = [machine(1, RING3[:1], login=login)]
    known += [asked(found, *RING3[:1]) for found in pending_hosts(known)]
    access = ssh_files(known, "/tmp/x")
    (line,) = [line for line in access["ssh_config"].splitlines() if line.startswith("  ProxyCommand ")]
    words = [word.replace("%%", "%") for word in shlex.split(line.removeprefix("  ProxyCommand "))]
    assert [*shlex.split(arguments), "-p", "2222", "-l", user, "-i", "~/my keys/{#k"] == words[5:-3]
    head, worker = rendered(result(known)["files"])
    assert (head["ansible_user"], head["ansible_ssh_private_key_file"]) == (user, "~/my keys/{#k")
    assert head["ansible_ssh_common_args"] == arguments
    pinned = "-o 'UserKnownHostsFile=\"/mine/known_hosts.txt\"' -o StrictHostKeyChecking=yes"
    assert worker["ansible_ssh_common_args"] == f"{pinned} {arguments}"


def rendered(files: dict[str, str]) -> list[dict[str, Any]]:
    """Return the variables of the head and of its worker as Ansible loads and renders the written files."""
    cluster = loaded(files["hosts.yml"])["gb10_cluster"]
    hosts = [own for group in cluster["children"].values() for own in group["hosts"].values()]
    merged = [{**cluster["vars"], **own} for own in hosts]
    return [template(own, {"inventory_dir": "/mine", **own}) for own in merged]


def loaded(content: str) -> Any:
    """Load a file like Ansible loads an inventory: texts are rendered on use."""
    return DataLoader().load(trust_as_template(content))


def template(value: Any, variables: dict[str, Any]) -> Any:
    return Templar(loader=DataLoader(), variables=variables).template(value)


#: Texts with a meaning to a reader of one of the files, and arbitrary ones.
HOSTILE = [
    PROXY,
    EVIL,
    KEY,
    "!unsafe",
    "{% for x in y %}",
    "{# #}",
    "#",
    ": ",
    "'",
    '"',
    "\\",
    "\x85",
    "\u2028",
    "\r\n",
    "\x1b[2J",
    "fe80::1%x",
]
TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=20) | st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join)
JSON = nested(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    TEXTS | st.sampled_from(["mac", "up", QSFP]),
    max_size=3,
    max_leaves=6,
)
PLACES = [
    "hostname",
    "management",
    "interfaces",
    f"interfaces/{QSFP}",
    f"interfaces/{QSFP}/mac",
    "neighbors",
    "unheard",
    "notes",
    f"neighbors/{QSFP}",
    *(f"neighbors/{QSFP}/0{field}" for field in ("", "/mac", "/address", "/name", "/host_key")),
]


@settings(max_examples=80)
@given(st.sampled_from(PLACES), JSON | st.lists(JSON, max_size=2) | st.dictionaries(st.just(QSFP), JSON, max_size=1))
def test_no_answer_leaves_its_field(path: str, value: Any) -> None:
    known = changed(path, value)
    found = result(known)
    assert all(
        line.isprintable() for line in [*found["problems"], *found["notes"], *found["summary"], *found["trusted"]]
    )
    strangers = pending_hosts(known)
    access = ssh_files([*known, *strangers], "/tmp/x")
    lines = [line.split()[0] for line in access["ssh_config"].splitlines()]
    block = (
        "Host HostName HostKeyAlias UserKnownHostsFile StrictHostKeyChecking ConnectTimeout ServerAliveInterval "
        "User ProxyCommand"
    ).split()
    assert lines == block * (len(lines) // len(block)) + ["Match", "Include"]
    assert all(
        line.split()[0].startswith("found-") and len(line.split()) == 3 for line in access["known_hosts"].splitlines()
    )
    if not found["files"]:
        assert found["problems"]
        return
    hosts = loaded(found["files"]["hosts.yml"])
    assert list(hosts) == ["gb10_cluster"] and list(hosts["gb10_cluster"]) == ["children", "vars"]
    assert set(hosts["gb10_cluster"]["vars"]) <= {"ansible_user", "gb10_fabric_topology"}
    assert "owned" not in json.dumps(template(hosts, {}))


@given(st.text(st.characters(exclude_categories=["Cs"])) | TEXTS)
def test_a_value_comes_out_of_the_inventory_as_it_went_in(value: str) -> None:
    line = discovery_inventory.scalar(value)
    assert line.isascii() and line.isprintable()
    assert template(loaded(f"x: [{line}, 1]"), {}) == {"x": [value, 1]}
    # A user's own arguments follow ours.
    ours = discovery_inventory.Template("{{ 1 }} " + discovery_inventory._literal(value))
    if value.isprintable():
        assert template(loaded(f"x: {discovery_inventory.scalar(ours)}"), {}) == {"x": f"1 {value}"}


@given(TEXTS | st.text() | JSON)
def test_a_text_is_one_line_that_is_read_once_and_a_comment_stays_a_comment(value: Any) -> None:
    said = discovery_answer.text(value)
    assert said.isprintable() and len(said) <= 300
    assert discovery_answer.text(said) == said
    content = discovery_inventory._hosts({}, ["a: 1"], [str(value)])
    assert content.splitlines()[1][0] == "#"
    groups = {"head": {"hosts": {}}, "worker": {"hosts": {}}}
    assert loaded(content) == {"gb10_cluster": {"children": groups, "vars": {"a": 1}}}


def test_what_is_written_is_no_line_of_its_own_whoever_made_it() -> None:
    """The files' own check rejects a text that passed the reader."""
    with pytest.raises(ProblemsError, match="one line of printable characters"):
        discovery_inventory.ssh_config(
            [machine(1, []), {**machine(2, []), "via": "spark1", "host_key": KEY, "address": PROXY}], "/tmp/x"
        )


PARSERS: dict[str, Callable[[str], Any]] = {
    "link_locals": discovery_parse.link_locals,
    "answering": discovery_parse.answering,
    "macs": discovery_parse.macs,
    "lldp": discovery_parse.lldp,
    "mdns": discovery_parse.mdns,
    "host_key": host_key.offered,
    "management": lambda printed: discovery_parse.management(printed, printed, {"eth0": {"addresses": ["10.0.0.1/8"]}}),
}


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=60)
@given(printed=st.text() | JSON.map(json.dumps) | st.lists(JSON).map(json.dumps) | st.text(";=%. \n:0afF", max_size=60))
def test_no_print_raises_anything_but_value_error(name: str, printed: str) -> None:
    with contextlib.suppress(ValueError):
        assert json.dumps(PARSERS[name](printed))


@settings(max_examples=60)
@given(JSON, JSON, JSON)
def test_a_neighbor_announces_nothing_that_makes_our_own_answer_unusable(mac: Any, kind: Any, name: Any) -> None:
    port = {"id": [{"type": kind or "mac", "value": mac}], "descr": [{"value": QSFP}]}
    entry = {"name": QSFP, "port": [port], "chassis": [{"name": [{"value": name}]}]}
    (announced,) = discovery_parse.lldp(json.dumps({"lldp": [{"interface": [entry]}]}))[QSFP]
    entries = discovery_parse.merge(QSFP, [], [announced], {})
    known = changed(f"neighbors/{QSFP}", [{**found, "host_key": ""} for found in entries])
    assert discovery_answer.machine(known[0])["invalid"] == []


@pytest.mark.parametrize(
    "printed",
    ["[" * 100_000, "[" * 200 + "]" * 200, "[NaN]", "[1e999]", "[" + "9" * 5000 + "]", '"' + "x" * 200 + '"'],
    ids=["open", "deep", "NaN", "infinite", "digits", "long"],
)
def test_json_has_limits(printed: str) -> None:
    with pytest.raises(ValueError, match=r"it is|number|Expecting"):
        load(printed, 100 if printed.startswith('"') else 1 << 20)


@given(JSON)
def test_json_within_them_is_read(value: Any) -> None:
    assert load(json.dumps(value), 1 << 20) == value
