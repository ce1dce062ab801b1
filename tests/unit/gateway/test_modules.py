"""The gateway's modules as on a node, its reports, the confinement of its program, and the paths of its role."""

from __future__ import annotations

import asyncio
import base64
import grp
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from certificates import authority
from decisions import decide
from repository import ROOT
from run_module import run_alone, run_module
from run_playbook import run
from small_server import serving
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import (
    clients,
    io_info,
    io_state,
    report,
    schema,
    service,
)
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import ClientState, ModelState, State
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.usage import Count
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

GROUP = grp.getgrgid(os.getegid()).gr_name
BIG = ModelState("n/big", "big", "n", "generate", True, "", 9)
SMALL = ModelState("s/small", "small", "s", "generate", False, "refused", 9)
MODELS = [asdict(BIG), asdict(SMALL)]
COUNT = {"requests": 3, "failures": 1, "prompt_tokens": 21, "completion_tokens": 9}
REPORT = {"models": MODELS, "usage": {"alice": {"last": 1795464567, "models": {"big": COUNT}}}}


def key(folder: Path, check: bool = False, **given: Any) -> dict[str, Any]:
    places = {
        "clients_file": str(folder / "clients.json"),
        "operator_file": str(folder / "operator.key"),
        "group": GROUP,
    }
    return run_alone("gateway_key", {**places, **given}, check=check)


@pytest.mark.slow
def test_the_life_of_a_key(tmp_path: Path) -> None:
    assert key(tmp_path, check=True)["changed"] and not list(tmp_path.iterdir())
    first = key(tmp_path)
    assert (first["changed"], first["key"], key(tmp_path)["changed"]) == (True, "", False)
    assert (tmp_path / "operator.key").stat().st_mode & 0o777 == 0o600
    assert key(tmp_path, check=True, name="alice")["key"] == ""
    made = key(tmp_path, name="alice", models=["big"])
    text = (tmp_path / "clients.json").read_text(encoding="utf-8")
    assert made["key"].startswith("sk-gb10-") and len(made["key"]) > 40
    assert made["key"] not in text and made["key"] not in str(made["diff"])
    assert (tmp_path / "clients.json").stat().st_mode & 0o777 == 0o640
    known = clients.parse(text)
    operator = (tmp_path / "operator.key").read_text(encoding="ascii").strip()
    assert (known.of_key(made["key"]), known.of_key(operator), known.clients["alice"].models) == (
        "alice",
        "operator",
        ("big",),
    )
    assert "alice exists already" in key(tmp_path, name="alice")["msg"]
    assert key(tmp_path, name="alice", state="absent")["changed"]
    assert "'alice' is not a client" in key(tmp_path, name="alice", state="absent")["msg"]
    assert key(tmp_path)["changed"] is False


def test_a_damaged_list_of_clients_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "clients.json").write_text("{", encoding="utf-8")
    assert "it is not JSON" in key(tmp_path, name="alice")["msg"]
    assert (tmp_path / "clients.json").read_text(encoding="utf-8") == "{"


def test_an_exposed_key_of_the_host_is_closed(tmp_path: Path) -> None:
    (tmp_path / "operator.key").write_text("sk-host\n", encoding="ascii")
    (tmp_path / "operator.key").chmod(0o644)
    key(tmp_path)
    found = tmp_path / "operator.key"
    assert (found.stat().st_mode & 0o777, found.read_text(encoding="ascii")) == (0o600, "sk-host\n")


@contextmanager
def gateway(report: Any, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Serve a report as the gateway does; the list has the paths of all requests."""
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        asked.append(f"{request.command} {request.path}")
        text = report if isinstance(report, str) else json.dumps(report)
        return 200 if request.path == "/gb10/report" else status, text, {}

    with serving(answer) as url:
        yield url, asked


def info(tmp_path: Path, url: str, **given: Any) -> dict[str, Any]:
    key(tmp_path, name="alice")
    (tmp_path / "none").touch()
    # Without a key: the test's process is not the gateway's unit.
    return run_module(
        "gateway_info",
        {"url": url, "clients_file": str(tmp_path / "clients.json"), "key_file": str(tmp_path / "none"), **given},
    )


def test_the_state_of_the_gateway(tmp_path: Path) -> None:
    with gateway(REPORT) as (url, asked):
        found = info(tmp_path, url, expected=["s/small", "n/big"], test=True)
    assert (found["problem"], found["models"], found["unanswered"]) == ("", MODELS, {})
    assert asked == ["GET /gb10/report", "POST /v1/completions"], "only the healthy model gets a request"
    (client,) = found["clients"]
    assert (client["name"], client["last"], client["usage"]) == ("alice", 1795464567, {"big": COUNT})
    lines = report.lines(load.chosen(State, found, "found"), "http://x:4000/v1")
    assert lines[0] == "Gateway http://x:4000/v1: 1 of 2 model servers healthy, 1 client"
    assert lines[3].split() == ["small", "s", "generate", "refused"]
    assert lines[-2:] == [
        "client  last use          model  requests  failed  tokens in  out",
        "alice   2026-11-23 20:09  big    3         1       21         9",
    ]


def test_a_client_without_use_and_one_with_some_models() -> None:
    count = Count(1234567, 12345, 123456789, 123456)
    new = ClientState("bob", 1795464567, 0, ["big"], {})
    busy = ClientState("team-one", 1, 1795464567, [], {"gpt-oss-120b": count})
    lines = report.lines(replace(FOUND, clients=[busy]), "http://x:4000/v1")
    # The module show indents them by two.
    assert max(map(len, lines[-2:])) <= 77
    lines = report.lines(replace(FOUND, clients=[new]), "http://x:4000/v1")
    assert lines[-2].split("  ")[-1] == "0" and "never, key of 2026-11-23" in lines[-2]
    assert lines[-1] == "bob may use only big"


FOUND = State("", [BIG, SMALL], [], {})
LOOPBACK = {"endpoint": "http://127.0.0.1:4000/v1", "client": "127.0.0.1"}


def test_the_end_of_a_run_has_the_gateways_models_the_command_for_a_key_and_a_request() -> None:
    place = {"endpoint": "https://llm.example.com:4000/v1", "client": "llm.example.com"}
    assert report.example(FOUND, place, "spark1", ["inventories/my models"]) == [
        "big answers at https://llm.example.com:4000/v1 (the gateway)",
        "key: ansible-playbook playbooks/gateway_keys.yml \\",
        "  -i 'inventories/my models' -e gateway_key_create=alice",
        "read -r OPENAI_API_KEY  # paste the key",
        "curl https://llm.example.com:4000/v1/chat/completions \\",
        '  --header "Authorization: Bearer $OPENAI_API_KEY" --json \\',
        """  '{"model":"big","messages":[{"role":"user","content":"Hi"}]}'""",
        "warning: s/small: refused",
    ]


def test_a_gateway_on_loopback_is_for_its_host_alone() -> None:
    models = [replace(model, healthy=True, kind="embed") for model in (BIG, SMALL)]
    lines = report.example(replace(FOUND, models=models), LOOPBACK, "spark1", ["inventories/mine"])
    assert lines[0] == "big, small answer at http://127.0.0.1:4000/v1 (the gateway, only on spark1)"
    assert lines[3:] == [
        "read -r OPENAI_API_KEY  # paste the key",
        "curl http://127.0.0.1:4000/v1/embeddings \\",
        '  --header "Authorization: Bearer $OPENAI_API_KEY" --json \\',
        """  '{"model":"big","input":"Hello"}'""",
    ]


def test_a_model_that_did_not_answer_is_no_example() -> None:
    lines = report.example(replace(FOUND, unanswered={"big": "HTTP 500"}), LOOPBACK, "spark1", ["inventories/mine"])
    assert lines[0] == "no model answers at http://127.0.0.1:4000/v1 (the gateway, only on spark1)"
    assert lines[-2:] == ["warning: s/small: refused", "warning: big does not answer: HTTP 500"]
    assert not any(line.startswith("curl") for line in lines)


def test_a_model_without_an_answer_is_named(tmp_path: Path) -> None:
    with gateway(REPORT, 500) as (url, _asked):
        assert list(info(tmp_path, url, test=True)["unanswered"]) == ["big"]


@pytest.mark.parametrize(
    "report",
    [
        [],
        {"models": [], "usage": []},
        {"models": {}, "usage": {}},
        {"models": MODELS, "usage": {"alice": 1}},
        {"models": MODELS, "usage": {"alice": {"last": 1, "models": {"big": {**COUNT, "requests": "x"}}}}},
        {"models": [{"id": 1}], "usage": {}},
        *(
            {"models": [MODELS[0] | changes], "usage": {}}
            for changes in ({"healthy": 1}, {"checked": "x"}, {"kind": "x"})
        ),
    ],
)
def test_a_report_that_is_not_expected(report: Any) -> None:
    with pytest.raises(ValueError, match=r"^the gateway's report (is not valid|has a model of an unknown kind)$"):
        io_info.parse(json.dumps(report))


@pytest.mark.parametrize("report", [{}, {"models": MODELS}, {"usage": {}}])
def test_a_part_that_is_missing_is_not_an_empty_report(report: Any) -> None:
    with pytest.raises(ValueError, match=r"^the gateway's report is not valid$"):
        io_info.parse(json.dumps(report))


@pytest.mark.parametrize(
    "client",
    [
        {},
        {"last": -5, "models": {}},
        {"last": 1, "models": {"big": {"requests": 1}}},
        {"last": 1, "models": {"big": {**COUNT, "failures": -1}}},
    ],
)
def test_counts_are_complete_and_not_negative(client: Any) -> None:
    with pytest.raises(ValueError, match=r"^an entry is not the use of a (client|model)$"):
        io_info.parse(json.dumps({"models": MODELS, "usage": {"alice": client}}))


@pytest.mark.parametrize(
    ("report", "found"), [("{", "Expecting property name"), (REPORT, "it lists n/big, s/small. Expected: n/big")]
)
def test_without_the_expected_report_there_is_a_reason_and_no_model(tmp_path: Path, report: Any, found: str) -> None:
    with gateway(report) as (url, _asked):
        answer = info(tmp_path, url, expected=["n/big"])
    assert found in answer["problem"]
    assert (answer["models"], [client["name"] for client in answer["clients"]]) == ([], ["alice"])


def test_a_report_is_awaited_in_which_a_cluster_is_healthy(tmp_path: Path) -> None:
    with gateway(REPORT) as (url, _asked):
        assert info(tmp_path, url, healthy="n")["problem"] == info(tmp_path, url, healthy="other")["problem"] == ""
        answer = info(tmp_path, url, healthy="s")
    assert (answer["problem"], answer["models"]) == ("s/small: refused", [])


def test_a_host_without_a_gateway_has_a_reason_and_no_client(tmp_path: Path) -> None:
    answer = run_alone(
        "gateway_info",
        {"url": "http://127.0.0.1:1", "clients_file": str(tmp_path / "none"), "key_file": str(tmp_path / "none")},
    )
    assert answer["problem"] and (answer["models"], answer["clients"]) == ([], [])


def test_the_key_goes_to_the_gateways_unit_only(tmp_path: Path) -> None:
    key(tmp_path)
    with gateway(REPORT) as (url, asked):
        found, problem = io_info.Gateway(io_client.Server(url), str(tmp_path / "operator.key")).report([], 0)
    assert (found, asked) == (
        io_info.Report((), {}),
        [],
    ) and "instead of gb10-gateway.service, so the API's key was not sent" in problem


@pytest.mark.parametrize("name", ["certificate", "settings"])
def test_a_renewed_certificate_and_other_settings_restart_the_gateway(name: str) -> None:
    given = schema.Planned("", "", {})
    other = replace(given, **{name: "other"})
    before, after = (service.service(each, "/e", 4000, 60, "").inputs for each in (given, other))
    assert before != after


@pytest.mark.parametrize(("port", "bound"), [(443, True), (1023, True), (1024, False), (4000, False)])
def test_only_a_low_port_needs_a_capability(port: int, bound: bool) -> None:
    text = service.service(schema.Planned("", "", {}), "/e", port, 60, "").text
    assert ("AmbientCapabilities=CAP_NET_BIND_SERVICE" in text) is bound


@pytest.mark.parametrize("certificate", ["", "a certificate"])
def test_the_program_gets_a_certificate_if_there_is_one(certificate: str) -> None:
    text = service.service(schema.Planned("", certificate, {}), "/e", 4000, 60, "").text
    assert (" %d/tls.crt %d/tls.key\n" in text) is ("LoadCredential=tls.key:" in text) is bool(certificate)


def test_a_client_without_use_never_came(tmp_path: Path) -> None:
    key(tmp_path, name="alice")
    (client,) = io_info.rows(str(tmp_path / "clients.json"), {})
    assert (client.name, client.last, client.usage) == ("alice", 0, {})
    assert client.created > 0


def test_the_settings_of_clients_have_no_key() -> None:
    models = [BIG, replace(BIG, name="vector", kind="embed")]
    text = "\n".join(report.client_settings("https://llm:4000/v1", models))
    assert "OPENAI_BASE_URL=https://llm:4000/v1 OPENAI_API_KEY=YOUR_KEY" in text
    assert "ANTHROPIC_BASE_URL=https://llm:4000 ANTHROPIC_AUTH_TOKEN=YOUR_KEY" in text
    assert "ANTHROPIC_MODEL=big" in text and "vector" not in text
    opencode = "".join(
        line.strip() for line in text.partition("opencode.json:\n")[2].partition("\nOpen WebUI")[0].splitlines()
    )
    assert json.loads(opencode)["provider"]["gb10"]["models"] == {"big": {}}


CONNECT = """
import socket, sys
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import io_state
places = io_state.Places([{"url": "http://127.0.0.1:9/v1", "wake": 0}, {"url": "https://node.example:8443/v1", "wake": 0}])
places.know("node.example", ["127.0.0.3"])
places.confine()
for attempt in (lambda: socket.create_connection(("127.0.0.1", 9), 1), lambda: socket.create_connection(("127.0.0.3", 8443), 1),
                lambda: socket.create_connection(("127.0.0.1", 10), 1), lambda: socket.create_connection(("127.0.0.7", 8443), 1),
                lambda: socket.create_connection(("192.0.2.1", 443), 1), lambda: socket.getaddrinfo("other.example", 443)):
    try:
        attempt()
    except OSError as error:
        print(type(error).__name__, file=sys.stderr)
"""


def test_the_program_connects_to_its_models_only() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".collections")}
    done = subprocess.run([sys.executable, "-c", CONNECT], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["ConnectionRefusedError"] * 2 + ["PermissionError"] * 4
    # Another host with the port of a server that has a name, too.
    attempts = (
        "connect to 127.0.0.1 port 10",
        "connect to 127.0.0.7 port 8443",
        "connect to 192.0.2.1 port 443",
        "look up other.example",
    )
    assert done.stdout.splitlines() == [f"refused an attempt to {attempt}" for attempt in attempts]


def test_a_server_writes_a_limited_number_of_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"id": "spark/tiny", "name": "tiny", "cluster": "spark", "kind": "generate", "url": "http://127.0.0.1:9"}
    model |= {"variable": "", "ca": "", "wake": 0, "proof": {}}
    given = {"models": [model], "fallbacks": {}, "health_interval": 10, "clients": str(tmp_path / "clients")}
    checks = itertools.count()

    async def read(_entry: io_state.Entry, path: str, _key: str, _body: bytes) -> tuple[int, bytes]:
        names = [{"id": f"\x1b[2J\nforged {next(checks)}" + "x" * 1000}]
        return 200, json.dumps({"data": names}).encode() if path == "/v1/models" else b""

    state = io_state.State(given, str(tmp_path))
    for _check in range(100):
        asyncio.run(io_state.check(state, read))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 60 and all(
        line.startswith("spark/tiny: it does not serve") and len(line) < 200 for line in lines
    )
    assert lines[0].isprintable() and "[2J" in lines[0]


CLUSTER_KEY, MODEL_KEY = "cluster-key-0123456789", "model-key-01234567890"
#: The tasks of the role that read no host, with the results of those that do.
PLAY = """
- hosts: gateway
  gather_facts: false
  tasks:
    - gb10.cluster.step:
        name: gateway_plan
      register: planned
    - gb10.cluster.step:
        name: gateway_service
        inputs:
          plan: "{{ planned }}"
      check_mode: true
      diff: true
      register: service
    - gb10.cluster.step:
        name: gateway_info
        inputs:
          read:
            url: "{{ served }}"
            clients_file: "{{ folder }}/clients.json"
            key_file: "{{ folder }}/none"
          new_client: alice
          new_client_models: [other]
      register: info
    - ansible.builtin.copy:
        content: "{{ {'planned': planned, 'service': service, 'info': info} | to_json }}"
        dest: "{{ folder }}/result.json"
        mode: "0600"
"""


@pytest.mark.slow
def test_the_actions_of_the_role_read_its_variables_and_return_no_secret(tmp_path: Path) -> None:
    pair = authority().issue("llm.example.com")
    (tmp_path / "key.pem").write_text(pair.key_text, encoding="ascii")
    (tmp_path / "none").touch()
    key(tmp_path, name="bob")
    item = {"key": "first", "value": "spark1"}
    encoded = base64.b64encode(f"{CLUSTER_KEY}\n".encode()).decode()
    box = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "folder": str(tmp_path),
        "gateway_install_dir": "/opt/gb10",
        "gateway_clusters": {"first": "spark1"},
        "gateway_models": [{"name": "small", "url": "http://10.0.0.6:8000/v1", "cluster": "south"}],
        "gateway_model_keys": {"south": MODEL_KEY},
        "gateway_host": "0.0.0.0",
        "gateway_port": "8443",
        "gateway_name": "{{ 'llm' }}.example.com",
        "gateway_tls_certificate": pair.text,
        "gateway_tls_key": str(tmp_path / "key.pem"),
        "__gateway_cluster_keys": {"results": [{"item": item, "content": encoded}]},
        "__gateway_cluster_cas": {"results": [{"item": item, "skipped": True}]},
    }
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    with gateway(REPORT) as (url, _asked):
        hosts = {"spark1": {"gb10_plan": fact({"api_host": "0.0.0.0"})}, "box": {**box, "served": url}}
        groups = {"all": {"hosts": hosts, "children": {"gateway": {"hosts": {"box": {}}}}}}
        (tmp_path / "hosts.json").write_text(json.dumps(groups), encoding="utf-8")
        done = run(str(tmp_path / "play.yml"), ["-vvv", "-i", str(tmp_path / "hosts.json")]).assert_ok()
    results = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    found, service, info = (results[name] for name in ("planned", "service", "info"))
    settings = json.loads(found["settings"])
    served, lock = settings["models"][0]["name"], ROOT / "roles/gateway/files/gateway.lock"
    assert (found["ids"], found["certificate"]) == ([f"first/{served}", "south/small"], f"{pair.text.strip()}\n")
    assert found["variables"] == {"south": "GB10_GATEWAY_KEY_SOUTH", "first": "GB10_GATEWAY_KEY_FIRST"}
    assert (settings["port"], [model["ca"] for model in settings["models"]]) == (8443, ["", ""])
    assert found["environment"].startswith("/opt/gb10/gateway/") and found["lock"] == lock.read_text().rstrip()
    assert service["changed"] and f"ExecStart={found['environment']}/bin/python" in service["unit"]["text"]
    assert {schema.SETTINGS, schema.CERTIFICATE} < {each["path"] for each in service["files"]}
    assert f"\nLoadCredential=tls.crt:{schema.CERTIFICATE}\n" in service["unit"]["text"]
    assert info["lines"][0] == "Gateway https://llm.example.com:8443/v1: 1 of 2 model servers healthy, 1 client"
    assert info["example"][0] == "big answers at https://llm.example.com:8443/v1 (the gateway)"
    assert f"-i {os.path.relpath(tmp_path / 'hosts.json', ROOT)}" in "".join(info["example"]).replace(" \\  ", " ")
    assert "gateway_key_models[0]: 'other'" in info["refusal"]
    assert "OPENAI_BASE_URL=https://llm.example.com:8443/v1" in info["client_settings"][1]
    secrets = [CLUSTER_KEY, MODEL_KEY, *pair.key_text.splitlines()[1:-1]]
    assert not [secret for secret in secrets if secret in done.output + json.dumps(results)]


def test_the_plan_fails_with_every_problem() -> None:
    """The action reads the variables as the role has them."""
    names = {"port": "x", "host": "lan", "tls_certificate": "-----BEGIN x", "tls_key": "-----BEGIN y", "clusters": {}}
    variables = {f"gateway_{name}": value for name, value in names.items()} | {
        "gateway_model_keys": {"south": MODEL_KEY}
    }
    result = decide("gateway_plan", {}, {}, variables={**variables, "inventory_hostname": "box"})[0]
    places = re.findall(r"^  \d+\. (\w+)", result["msg"], re.MULTILINE)
    assert result["failed"] and MODEL_KEY not in str(result)
    assert set(places) == {
        *("gateway_models", "gateway_host", "gateway_port", "gateway_model_keys"),
        *("gateway_tls_certificate", "gateway_tls_key"),
    }
