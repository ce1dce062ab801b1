"""TLS of the API: rejected certificates, no leak of the key, and clients that verify the server's certificate."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import certificates
import pytest
import rendered_units
from ansible.errors import AnsibleFilterError
from cluster_nodes import KNOWN, LOCK, cluster_plan, mistakes, spark
from run_module import run_module
from run_playbook import run
from small_server import serving
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report as cluster_report
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_smoke, io_status, smoke
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.plugin_utils import certificate

CA = certificates.authority()
OTHER = certificates.authority()
NAME = "spark.example.com"
GOOD = CA.issue(NAME, "192.168.1.11")
BETWEEN = CA.issue(ca=True)
BELOW = BETWEEN.issue(NAME)
UNIT = systemd.unit_of_cgroup(Path("/proc/self/cgroup").read_text(encoding="ascii"))


def texts(pair: certificates.Pair = GOOD, **changes: str) -> dict[str, str]:
    return {"certificate": pair.text, "key": pair.key_text, "ca": CA.text, **changes}


def found(given: dict[str, str], name: str = NAME) -> dict[str, str]:
    """Return the problem of each variable; none may contain the key."""
    verdict = certificate.verdict(given, name)
    said = json.dumps(verdict)
    assert not [line for line in given["key"].splitlines()[1:-1] if line in said]
    return {problem["path"].removeprefix("gb10_api_tls_"): problem["found"] for problem in verdict["problems"]}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (texts(), NAME),
        (texts(), "SPARK.example.com."),
        (texts(), "192.168.1.11"),
        (texts(ca=""), NAME),
        (texts(ca=f"{OTHER.text}{CA.text}"), NAME),
        (texts(CA.issue("*.example.com")), NAME),
        (texts(CA.issue("fd00::1")), "fd00:0::1"),
        (texts(BELOW, certificate=f"{BELOW.text}\n{BETWEEN.text}"), NAME),
        (texts(BELOW, ca=BETWEEN.text), NAME),
    ],
    ids=["name", "case", "address", "no CA", "two CAs", "star", "IPv6", "chain", "CA in between"],
)
def test_a_certificate_that_fits(given: dict[str, str], name: str) -> None:
    verdict = certificate.verdict(given, name)
    assert (verdict["problems"], verdict["warnings"], len(verdict["digest"])) == ([], [], 64)


def test_without_tls_there_is_no_verdict() -> None:
    assert certificate.verdict({"certificate": "", "key": "", "ca": ""}, NAME) == {}


@pytest.mark.parametrize(
    ("given", "variable", "said"),
    [
        (texts(key=OTHER.key_text), "key", "the key of another certificate"),
        (texts(key=GOOD.locked("secret")), "key", "locked with a passphrase"),
        (texts(key="-----BEGIN PRIVATE KEY-----\nbm9uZQ==\n-----END PRIVATE KEY-----"), "key", "cannot be read"),
        (texts(key="/no/such/file.pem"), "key", "is not the path of a readable file"),
        (texts(key=""), "key", "is empty"),
        (texts(certificate=""), "certificate", "is empty"),
        (texts(certificate=GOOD.key_text), "certificate", "it has no CERTIFICATE"),
        (texts(certificate=GOOD.text + GOOD.key_text), "certificate", "also has a private key"),
        (
            texts(certificate="-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----"),
            "certificate",
            "cannot be read",
        ),
        (texts(ca=OTHER.text), "ca", "none of its certificates issued"),
        (texts(ca="/no/such/ca.pem"), "ca", "is not the path of a readable file"),
        (texts(BELOW), "ca", "none of its certificates issued"),
        (texts(CA.issue(NAME, days=-0.5)), "certificate", "it expired on"),
        (texts(CA.issue(NAME, since=1)), "certificate", "it is not valid before"),
        (texts(CA.issue("other.example.com")), "certificate", f"does not cover {NAME}, but other.example.com"),
        (texts(CA.issue("*.com")), "certificate", "does not cover"),
        (texts(CA.issue("*.spark.example.com")), "certificate", "does not cover"),
        (texts(CA.issue()), "certificate", "it has no subjectAltName"),
    ],
)
def test_a_certificate_that_does_not_fit(given: dict[str, str], variable: str, said: str) -> None:
    problems = found(given)
    assert list(problems) == [variable]
    assert said in problems[variable]


def test_an_address_is_no_name() -> None:
    assert "does not cover 192.168.1.12" in found(texts(), "192.168.1.12")["certificate"]
    assert "certificate" in found(texts(CA.issue("192.168.1.12.example.com")), "192.168.1.12")


def test_all_of_it_is_told_together() -> None:
    bad = OTHER.issue("elsewhere.example.com", days=-0.5)
    assert list(found(texts(bad, key=GOOD.key_text))) == ["key", "ca", "certificate"]
    assert len(certificate.verdict(texts(bad, key=GOOD.key_text), NAME)["problems"]) == 4


@pytest.mark.parametrize(
    "given",
    [texts(CA.issue(NAME, days=20)), texts(BELOW, certificate=BELOW.text + CA.issue(ca=True, days=20).text, ca="")],
)
def test_the_end_is_warned_of(given: dict[str, str]) -> None:
    (warning,) = certificate.verdict(given, NAME)["warnings"]
    assert "gb10_api_tls_certificate expires on" in warning


def test_a_renewed_certificate_has_another_digest_and_new_line_ends_do_not() -> None:
    given = (texts(), texts(CA.issue(NAME)), texts(certificate=GOOD.text.replace("\n", "\r\n")))
    digests = [certificate.verdict(each, NAME)["digest"] for each in given]
    assert (digests[0] == digests[2], digests[0] == digests[1]) == (True, False)


def test_an_old_cryptography_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "MISSING", "No module named 'cryptography'")
    with pytest.raises(AnsibleFilterError, match="cryptography 42 or newer on the controller: No module"):
        certificate.verdict(texts(), NAME)


def secured(**settings: Any) -> dict[str, Any]:
    """A single node with TLS, as the role gb10 describes it."""
    return {**spark(1, "head", **settings), "tls": certificate.verdict(texts(), "192.168.1.11")}


def test_the_planner_lists_it_with_the_rest() -> None:
    node = {
        **spark(1, "head", gb10_api_port=1),
        "tls": certificate.verdict(texts(CA.issue(NAME, days=-0.5)), "192.168.1.11"),
    }
    assert [problem.path for problem in mistakes([node])] == [
        "gb10_api_port",
        "gb10_api_tls_certificate",
        "gb10_api_tls_certificate",
    ]


def test_the_end_is_a_warning_of_the_plan() -> None:
    node = {**spark(1, "head"), "tls": certificate.verdict(texts(CA.issue("192.168.1.11", days=20)), "192.168.1.11")}
    given = parse([node], LOCK)
    plan, problems = cluster.plan(given, KNOWN)
    assert problems == []
    assert "gb10_api_tls_certificate expires on" in cluster.warnings(given, plan)[0]


def test_tls_past_the_variables_is_refused() -> None:
    arguments = ["--ssl-certfile=/a", "--ssl_certfile", "--ssl-cert", "--ssl-keyfile=/a", "--ssl-k=/a"]
    arguments += ["--ssl-ca-certs=/a", "--ssl-cert-reqs=2"]
    problems = mistakes([spark(1, "head", gb10_vllm_extra_args=arguments)])
    refused = [problem.path for problem in problems if problem.expected == "TLS through gb10_api_tls_*"]
    assert refused == [f"gb10_vllm_extra_args[{index}]" for index in range(len(arguments))]


def plan(**settings: Any) -> dict[str, Any]:
    result, problems = cluster_plan([secured(**settings)])
    assert problems == []
    return {**result, "node": result["nodes"][0]}


def test_the_plan_has_https_and_the_server_its_files() -> None:
    planned = plan()
    assert planned["api"] == {
        "url": "https://127.0.0.1:8000",
        "server_name": "192.168.1.11",
        "endpoint": "https://192.168.1.11:8000/v1",
        "client": "192.168.1.11",
    }
    files = [
        "--ssl-certfile=/run/credentials/gb10-vllm.service/api.cert",
        "--ssl-keyfile=/run/credentials/gb10-vllm.service/api.key",
    ]
    assert [word for word in launch_argv.vllm_argv(typed(planned)) if word.startswith("--ssl")] == files
    worker = {**planned, "node": {**planned["node"], "head": False}}
    assert not [word for word in launch_argv.vllm_argv(typed(worker)) if word.startswith("--ssl")]
    until = planned["api_tls"]["until"]
    assert (
        f"API at https://192.168.1.11:8000/v1, with a key, TLS with a certificate until {until}"
        in cluster_report.lines(typed(planned), 1)
    )


def test_a_container_reads_what_the_unit_lays_out() -> None:
    """The recorded units (tests/unit/service) have TLS of a native rank, and a container without TLS."""
    planned = plan(
        gb10_runtime="container", gb10_container_image="sha256:" + "1" * 64, gb10_distributed_executor_backend="mp"
    )
    argv = launch_argv.contained(typed(planned), launch_argv.VLLM, launch_argv.vllm_argv(typed(planned)))
    assert "--ssl-keyfile=/run/gb10-vllm/api.key" in argv
    assert "--mount=type=bind,source=/run/gb10-vllm,target=/run/gb10-vllm,readonly" in argv
    lines = rendered_units.planned(planned, "gb10-vllm")["unit"]["text"].splitlines()
    assert {
        "LoadCredential=api.cert:/etc/gb10/tls/api.crt",
        "LoadCredential=api.key:/etc/gb10/tls/api.key",
        "RuntimeDirectory=gb10-vllm",
        "ExecStartPre=/usr/bin/install --owner=gb10 --mode=0400 %d/api.cert %d/api.key /run/gb10-vllm",
    } <= set(lines)
    without = launch_argv.contained(typed({**planned, "api_tls": {}}), launch_argv.VLLM, ["vllm"])
    assert not [word for word in without if "source=/run/gb10-vllm" in word]
    assert not [line for line in lines if "GB10_RANK_GROUP" in line or "gb10-rank.py" in line], "a single rank"


@pytest.mark.slow
def test_the_role_keeps_the_files_and_shows_no_key(tmp_path: Path) -> None:
    folder, kept = tmp_path / "tls", tmp_path / "kept"
    variables = {
        "ansible_become": False,
        "_gb10_tls_folder": str(folder),
        "gb10_inputs": {"certificates": {"certificate": GOOD.text, "ca": CA.text}},
        "gb10_api_tls_key": GOOD.key_text,
    }
    task = {"name": "Keep them", "ansible.builtin.include_role": {"name": "gb10.cluster.gb10", "tasks_from": "api_tls"}}
    # The files of the first play are verified after the last one.
    copied = {"name": "Look", "ansible.builtin.command": f"cp -a {folder} {kept}"}
    plays = [
        {
            "name": name,
            "hosts": "localhost",
            "gather_facts": False,
            "vars": {"gb10_plan": {"node": {"head": True}, "api_tls": tls}},
            "tasks": tasks,
        }
        for name, tls, tasks in (
            ("first", {"digest": "0"}, [task, copied]),
            ("again", {"digest": "0"}, [task]),
            ("without", {}, [task]),
        )
    ]
    (tmp_path / "play.yml").write_text(json.dumps(plays), encoding="utf-8")
    (tmp_path / "variables.json").write_text(json.dumps(variables), encoding="utf-8")
    done = run(
        str(tmp_path / "play.yml"), ["-vvv", "--diff", "--extra-vars", f"@{tmp_path}/variables.json"]
    ).assert_ok()
    assert not [line for line in GOOD.key_text.splitlines()[1:-1] if line in done.output]
    modes = {path.name: (path.stat().st_mode & 0o777, path.read_text(encoding="ascii")) for path in kept.iterdir()}
    assert modes == {"api.crt": (0o644, GOOD.text), "api.key": (0o600, GOOD.key_text), "ca.crt": (0o644, CA.text)}
    again = done.output.partition("PLAY [again]")[2].partition("PLAY [without]")[0]
    assert "TASK [" in again and "changed: [" not in again
    assert not folder.exists()


Serve = Callable[..., Any]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Return a function that runs a healthy vLLM, with the lines of its requests and their keys."""

    @contextmanager
    def serve(
        pair: certificates.Pair | None = GOOD, ca: str = CA.text, name: str = NAME
    ) -> Iterator[tuple[io_client.Server, list[str]]]:
        seen: list[str] = []

        def answer(request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
            seen.append(f"{request.path} {request.headers['Authorization']}")
            found = {"data": [{"id": "tiny", "root": "/m"}], "choices": [{"text": "Paris", "finish_reason": "stop"}]}
            status = 302 if request.path == "/moved/v1/models" else 200
            return status, json.dumps(found), {"Location": "/v1/models"}

        (tmp_path / "ca.crt").write_text(ca, encoding="ascii")
        secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if pair else None
        if secured and pair:
            secured.load_cert_chain(*pair.write(tmp_path, "api"))
        with serving(answer, secured) as url:
            yield io_client.Server(url.replace("http:", "https:"), str(tmp_path / "ca.crt"), name), seen

    return serve


@pytest.mark.parametrize(
    ("pair", "ca"), [(GOOD, CA.text), (GOOD, GOOD.text), (BELOW, BETWEEN.text)], ids=["CA", "itself", "CA in between"]
)
def test_a_server_is_known_by_its_name_on_loopback(serve: Serve, pair: certificates.Pair, ca: str) -> None:
    with serve(pair, ca) as (server, _seen):
        assert io_client.health(server) == (True, "")
        assert io_client.answers(server, "tiny", 10) == (True, "")
        lines = [line for _when, line in io_smoke.ask(server, "/v1/completions", {}, 10, None)]
        assert smoke.whole("\n".join(lines)).text == "Paris"
        assert io_status.api(server, io_client.api_key(""), 0, 10)["answers"]


def test_the_expiry_of_the_served_certificate(serve: Serve) -> None:
    pair = CA.issue(NAME, days=3)
    with serve(pair) as (server, seen):
        assert server.expires(5) == pair.certificate.not_valid_after_utc.timestamp()
        assert seen == []
    with serve(pair, OTHER.text) as (server, _seen), pytest.raises(OSError, match="certificate verify failed"):
        server.expires(5)
    assert io_client.Server("http://127.0.0.1:1").expires(5) is None


@pytest.mark.parametrize(
    ("pair", "ca", "name", "said"),
    [
        (GOOD, OTHER.text, NAME, "certificate verify failed"),
        (GOOD, CA.text, "other.example.com", "mismatch"),
        (CA.issue("other.example.com"), CA.text, NAME, "mismatch"),
        (CA.issue(NAME, days=-0.5), CA.text, NAME, "expired"),
        (None, CA.text, NAME, "SSL"),
    ],
    ids=["CA", "name", "certificate", "expired", "no TLS"],
)
def test_another_server_is_not_asked(
    serve: Serve, tmp_path: Path, pair: certificates.Pair | None, ca: str, name: str, said: str
) -> None:
    key = tmp_path / "key"
    key.write_text("5ec0e7\n", encoding="ascii")
    with serve(pair, ca, name) as (server, seen):
        healthy, reason = io_client.health(server)
        assert (healthy, said in reason) == (False, True), reason
        assert io_client.answers(server, "tiny", 5, io_client.api_key(str(key), UNIT))[0] is False
        facts = io_status.api(server, io_client.api_key(str(key), UNIT), 0, 5)
        assert (facts["healthy"], facts["reason"]) == (False, reason)
        assert seen == []


def test_a_ca_that_is_not_there_yet_is_no_crash() -> None:
    assert io_client.health(io_client.Server("https://127.0.0.1:1", "/no/such/ca.crt", NAME)) == (False, "")


def test_the_key_follows_no_redirect(serve: Serve, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("5ec0e7\n", encoding="ascii")
    with serve() as (server, seen):
        moved = io_client.Server(f"{server.url}/moved", server.ca_file, server.server_name)
        assert io_status.api(moved, io_client.api_key(str(key), UNIT), 0, 5)["answers"] is False
    assert [line for line in seen if "5ec0e7" in line] == ["/moved/v1/models Bearer 5ec0e7"]


def test_the_modules_take_the_ca_and_the_name(serve: Serve) -> None:
    with serve() as (server, _seen):
        given = {"url": server.url, "ca_file": server.ca_file, "server_name": server.server_name, "model": "tiny"}
        answers = run_module("vllm_smoke_test", given)["answers"]
        assert answers["completion"]["text"] == "Paris"
        assert "mismatch" in run_module("vllm_smoke_test", {**given, "server_name": "other.example.com"})["msg"]
