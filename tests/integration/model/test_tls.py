"""The API over TLS, with a certificate of the test's own CA, and secrets of the ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import certificates
import pytest
from api_client import CURL
from live_cluster import Cluster, environment_of, extra
from run_playbook import Run
from testinfra.host import Host

pytestmark = [pytest.mark.slow, pytest.mark.disruptive]

SECRET = "a-secret-that-nobody-sees"
NAME = "GB10_TEST_TOKEN"
FOLDER = "/etc/gb10/tls"
CA_FILE = f"{FOLDER}/ca.crt"
OPENAI = """
import httpx, openai, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2] if len(sys.argv) > 2 else None)
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.stdin.readline().strip(), http_client=httpx.Client(verify=context), max_retries=0)
try:
    print(client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hello"}], max_tokens=4).choices[0].message.content)
except openai.APIConnectionError as error:
    sys.exit(f"refused: {error.__cause__}")
"""


@dataclass
class Secured:
    """The cluster with TLS: its CA, its current certificate, and the run that installed it."""

    cluster: Cluster
    folder: Path
    ca: certificates.Pair
    run: Run | None = None
    pair: certificates.Pair | None = None

    @property
    def address(self) -> str:
        return str(self.cluster.nodes[self.cluster.groups["head"][0]]["ansible_host"])

    @property
    def url(self) -> str:
        return f"https://{self.address}:8000"

    def arguments(self) -> tuple[str, str]:
        """Return the arguments of every run: paths of the certificate and its key, and the text of the CA."""
        return extra(
            gb10_api_tls_certificate=str(self.folder / "api.crt"),
            gb10_api_tls_key=str(self.folder / "api.key"),
            gb10_api_tls_ca=self.ca.text,
            gb10_secret_env={NAME: SECRET},
        )

    def renew(self, days: float) -> Run:
        """Install a new certificate on the cluster."""
        self.pair = self.ca.issue(self.address, days=days)
        self.pair.write(self.folder, "api")
        self.run = self.cluster.serve("-vvv", "--diff", *self.arguments())
        return self.run


@pytest.fixture(scope="module")
def secured(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(cluster, tmp_path_factory.mktemp("tls"), certificates.authority())
    try:
        secured.renew(days=90).assert_ok()
        yield secured
    finally:
        cluster.serve().assert_ok()


def key_lines(secured: Secured) -> list[str]:
    assert secured.pair is not None
    return secured.pair.key_text.splitlines()[1:-1]


def test_the_run_ends_with_the_endpoint_and_shows_no_secret(secured: Secured) -> None:
    assert secured.run is not None
    said = secured.run.output
    assert f"endpoint: {secured.url}/v1 on spark1" in said
    assert f"{secured.url}/v1/chat/completions --cacert {CA_FILE}" in " ".join(said.replace("\\", "").split())
    assert SECRET not in said
    assert not [line for line in key_lines(secured) if line in said]


def test_curl_succeeds_with_the_ca_and_fails_without(secured: Secured, head: Host) -> None:
    question = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 4})
    asked = f"{CURL} --silent --show-error --fail --max-time 120 --json '{question}' {secured.url}/v1/completions"
    assert json.loads(head.check_output(f"{asked} --cacert {CA_FILE}"))["choices"][0]["text"]
    refused = head.run(asked)
    # 60: the peer's certificate cannot be verified.
    assert (refused.rc, "certificate" in refused.stderr) == (60, True)
    assert head.run(f"curl --silent --cacert {CA_FILE} https://127.0.0.1:8000/health").rc == 60, (
        "the certificate has another name"
    )
    assert head.run(f"curl --silent {secured.url.replace('https', 'http')}/health").rc != 0


def test_the_stock_client_succeeds_with_the_ca_and_fails_without(secured: Secured, head: Host) -> None:
    head.check_output(f"cat >/run/client.py <<'END'\n{OPENAI}\nEND")
    client = f"/opt/gb10/runtime/current/bin/python /run/client.py {secured.url}/v1"
    try:
        assert head.check_output(f"{client} {CA_FILE} </etc/gb10/api.key").strip()
        refused = head.run(f"{client} </etc/gb10/api.key")
        assert (refused.rc, "CERTIFICATE_VERIFY_FAILED" in refused.stderr) == (1, True)
    finally:
        head.check_output("rm /run/client.py")


def test_the_key_of_the_certificate_is_with_root_and_the_server(
    secured: Secured, head: Host, workers: list[Host]
) -> None:
    assert (
        head.file(f"{FOLDER}/api.key").mode,
        head.file(f"{FOLDER}/api.key").user,
        head.file(f"{FOLDER}/api.crt").mode,
    ) == (0o600, "root", 0o644)
    for path in (f"{FOLDER}/api.key", "/run/credentials/gb10-vllm.service/api.key"):
        assert head.run(f"test -e {path}").rc == 0
        assert head.run(f"setpriv --reuid=nobody --regid=nogroup --clear-groups cat {path}").rc != 0
    for worker in workers:
        assert not worker.file(FOLDER).exists
    public = head.check_output("cat /proc/[0-9]*/cmdline /etc/systemd/system/gb10-* 2>/dev/null | tr '\\0' ' '")
    assert not [line for line in key_lines(secured) if line in public]


@pytest.mark.usefixtures("secured")
def test_the_ranks_have_their_secrets_and_nobody_else(nodes: dict[str, Host]) -> None:
    for name, host in nodes.items():
        file = host.file("/etc/gb10/secret.env")
        assert (file.mode, file.user) == (0o600, "root"), name
        assert environment_of(host, "gb10-ray")[NAME] == SECRET, name
        assert SECRET not in host.check_output("cat /etc/gb10/cluster.env /etc/systemd/system/gb10-*.service"), name
        assert SECRET not in host.check_output("journalctl --no-pager --quiet --boot --lines=20000"), name


def test_status_asks_over_tls(secured: Secured) -> None:
    said = secured.cluster.play("status", *secured.arguments()).assert_ok().output
    assert re.search(rf"tiny answers in \d+ ms at {re.escape(secured.url)}/v1", said)
    assert f"--cacert {CA_FILE}" in said


def started(host: Host, unit: str) -> str:
    return host.check_output(f"systemctl show --property=InvocationID,NRestarts {unit}")


def test_a_rerun_changes_nothing(secured: Secured, head: Host) -> None:
    before = started(head, "gb10-vllm.service")
    secured.cluster.serve(*secured.arguments()).assert_unchanged()
    assert started(head, "gb10-vllm.service") == before


def test_a_certificate_with_weeks_left_is_no_finding(secured: Secured, tmp_path: Path) -> None:
    assert "tls-expires" not in secured.cluster.verify(tmp_path / "found.jsonl", *secured.arguments())[1]


def test_a_renewed_certificate_restarts_the_server_once(secured: Secured, head: Host) -> None:
    ray, vllm = started(head, "gb10-ray.service"), started(head, "gb10-vllm.service")
    assert secured.renew(days=5).assert_ok().output.count("Restarting gb10-vllm.service on spark1") == 1
    renewed = started(head, "gb10-vllm.service")
    assert renewed != vllm
    assert "NRestarts=0" in renewed
    assert started(head, "gb10-ray.service") == ray
    ask = "import ssl, sys; sys.stdout.write(ssl.get_server_certificate((sys.argv[1], 8000)))"
    assert secured.pair is not None
    assert head.check_output(f"python3 -c '{ask}' {secured.address}").strip() == secured.pair.text.strip()
    secured.cluster.serve(*secured.arguments()).assert_unchanged()
    assert started(head, "gb10-vllm.service") == renewed


def test_its_near_expiry_is_a_finding(secured: Secured, tmp_path: Path) -> None:
    done, found = secured.cluster.verify(tmp_path / "found.jsonl", *secured.arguments())
    # The certificate may be an hour old on a busy machine.
    assert "tls-expires" in found and re.search(r"expires in (4\.\d|5\.0) days", done.output)


def test_without_tls_nothing_of_it_is_left(secured: Secured, head: Host, nodes: dict[str, Host]) -> None:
    secured.cluster.serve().assert_ok()
    assert head.run("curl --silent --fail http://127.0.0.1:8000/health").rc == 0
    for host in nodes.values():
        assert not host.file(FOLDER).exists
        assert not host.file("/etc/gb10/secret.env").exists
