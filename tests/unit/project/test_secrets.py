"""Which files of the product touch a secret or a connection, and why each may. A new place needs an entry and a reason.

A secret for a local server goes through common/io_local alone, which verifies the unit of its process first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from repository import ROOT

#: Names of files and variables with secrets, in the product's constants.
SECRET = re.compile(
    r"\b(API_KEY|RAY_TOKEN|MESSAGE_SECRET|WATCHDOG_KEY|RECORDER_KEYS|WATCHDOG_WEBHOOK|SECRET_ENVIRONMENT|OPERATOR_KEY"
    r"|GATEWAY_ENVIRONMENT|ENVIRONMENT_CREDENTIALS|CREDENTIALS_DIRECTORY|RAY_AUTH_TOKEN_PATH|ALERTMANAGER_SETTINGS"
    r"|VLLM_API_KEY)\b"
)
#: Files that do I/O and name a secret, with their use of it. All other files only name paths.
READERS: Mapping[str, str] = {
    "module_utils/api/io_guard.py": "the server's own key, of its environment: compares what clients send",
    "module_utils/flight_recorder/io_recorder.py": "its keys, of its credentials: signs messages",
    "module_utils/launch/io_gates.py": "the unit's credentials become variables of its own process",
    "module_utils/launch/io_ray.py": "through io_local: Ray's token for gb10-ray.service",
    "module_utils/model_store/io_fetch.py": "the hub's token, of its credentials: for the hub of the inventory",
    "module_utils/monitoring/io_metrics.py": "the watchdog's status, of its credentials: no secret",
    "module_utils/node/io_facts.py": "returns digests",
    "module_utils/node_steps/gateway_info.py": "through io_local: the operator's key for gb10-gateway.service",
    "module_utils/node_steps/ray_info.py": "names the file for io_ray",
    "module_utils/node_steps/secret_environment.py": "writes the ranks' secret variables",
    "module_utils/rollback/io_record.py": "excludes the files from records",
    "module_utils/verify/io_facts.py": "through io_ray",
    "module_utils/watchdog/io_evidence.py": "removes their content from the evidence",
    "module_utils/watchdog/io_watch.py": "the webhook's address: for the webhook alone",
    "modules/cluster_status_info.py": "through io_local",
    "modules/cluster_verify_info.py": "through io_local",
    "modules/gateway_key.py": "writes the operator's key",
    "modules/vllm_api_key.py": "writes the API's key",
    "modules/vllm_benchmark.py": "through io_local",
    "modules/vllm_golden.py": "through io_local",
    "modules/vllm_smoke_test.py": "through io_local",
}
#: Files that write the header of a secret.
SENDERS: Mapping[str, str] = {
    "module_utils/api/io_guard.py": "inside of the server's process",
    "module_utils/common/io_local.py": "verifies the other end of the connection first",
    "module_utils/gateway/forward.py": "to a head: TLS, or the firewall of the head, decides who answers there",
    "module_utils/model_store/io_hub.py": "to the hub of the inventory, and to no redirect elsewhere",
}
#: Files that connect or listen: what limits each exchange as a whole.
CONNECTED: Mapping[str, str] = {
    "module_utils/access/io_host_key.py": "connects only",
    "module_utils/common/io_local.py": "one deadline for each answer",
    "module_utils/flight_recorder/io_node.py": "reads once; metrics through io_local",
    "module_utils/flight_recorder/io_recorder.py": "datagrams",
    "module_utils/gateway/io_listen.py": "limits of common/limits.py for clients; an answer of a model may stream for hours",
    "module_utils/gateway/io_state.py": "connects only",
    "module_utils/health/io_client.py": "TLS handshake, whose limit is one for the whole; requests through io_local",
    "module_utils/launch/io_peer.py": "connects only",
    "module_utils/launch/io_rank.py": "one line within ten seconds; later bytes are dropped",
    "module_utils/memory/io_guard.py": "connects only",
    "module_utils/model_store/io_hub.py": "one deadline for all requests about a model",
    "module_utils/model_store/io_relay.py": "one deadline for the head of a request, and a rate",
    "module_utils/watchdog/io_evidence.py": "the webhook's answer, in a thread that nobody waits for longer",
    "module_utils/watchdog/io_node.py": "one deadline for RAS; metrics through io_local",
    "module_utils/watchdog/io_watch.py": "datagrams",
}
_HEADER = re.compile(r"""["']authorization["'](?!\s*(,|\)|\]))|Bearer \{|b"Bearer " \+""", re.IGNORECASE)
_CONNECTS = re.compile(
    r"HTTPS?Connection\b|urllib\.request|create_connection\(|\.recv(from)?\(|open_connection\(|start_server\("
    r"|http\.server|create_server\(|TCPConnector\("
)
_IO = re.compile(r"(module_utils/(.*/io_|node_steps/)|modules/)")


def found(pattern: re.Pattern[str]) -> set[str]:
    """Return the files below plugins/ with a match outside of comments, by their path there."""
    plugins = ROOT / "plugins"
    texts = {str(path.relative_to(plugins)): path.read_text(encoding="utf-8") for path in plugins.rglob("*.py")}
    return {
        path
        for path, text in texts.items()
        if pattern.search(re.sub(r"^\s*#.*|^DOCUMENTATION.*", "", text, flags=re.M))
    }


@pytest.mark.parametrize(
    ("places", "known"),
    [
        pytest.param({path for path in found(SECRET) if _IO.match(path)}, READERS, id="readers"),
        pytest.param({path for path in found(_HEADER) if _IO.match(path) or "forward" in path}, SENDERS, id="senders"),
        pytest.param(found(_CONNECTS), CONNECTED, id="connections"),
    ],
)
def test_each_place_is_known(places: set[str], known: Mapping[str, str]) -> None:
    assert sorted(places) == sorted(known)
