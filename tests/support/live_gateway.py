"""A client of a running gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from live_cluster import Cluster
from testinfra.host import Host
from waiting import wait_until


class Client:
    """A client of the gateway, on the gateway's host. Its key reaches curl in a file."""

    def __init__(self, host: Host, key: str) -> None:
        self.host, self.settings = host, "/run/gateway-client.curl"
        host.check_output("install --mode=0600 /dev/null %s", self.settings)
        host.check_output("printf 'header = \"Authorization: Bearer %%s\"\\n' %s > %s", key, self.settings)

    def ask(self, model: str, seconds: int = 60, **body: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer of a completion."""
        request = json.dumps({"model": model, "prompt": "Hello", "max_tokens": 3, "temperature": 0, **body})
        words = "curl --silent --max-time %s --config %s --json %s --write-out %s http://127.0.0.1:4000/v1/completions"
        given = (str(seconds), self.settings, request, "\n%{http_code}")
        output = self.host.check_output(words, *given)
        text, _line, status = output.rpartition("\n")
        return int(status), json.loads(text)

    def until(self, model: str, status: int, within: float) -> dict[str, Any]:
        """Request completions until the status is returned."""

        def answer() -> tuple[dict[str, Any]] | None:
            found, body = self.ask(model)
            return (body,) if found == status else None

        return wait_until(answer, within, f"{model} does not answer with {status}")[0]


@contextmanager
def client_of(cluster: Cluster, head: Host, folder: Path) -> Iterator[Client]:
    """Yield a client with a new key, which is revoked in the end."""
    created = {"gateway_key_create": "alice", "gateway_key_directory": str(folder)}
    done = cluster.play("gateway_keys", **created).assert_ok()
    file = Path(folder / "alice.key")
    assert file.stat().st_mode & 0o777 == 0o600
    key = file.read_text(encoding="utf-8").strip()
    assert key not in done.output
    yield Client(head, key)
    cluster.play("gateway_keys", gateway_key_revoke="alice").assert_ok()
