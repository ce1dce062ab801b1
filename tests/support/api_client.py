"""Client of the served model's API, run on the head."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from testinfra.host import Host
from waiting import wait_until

API = "http://127.0.0.1:8000"


def curl(secret: str) -> str:
    """Return curl with the secret of a file, for a root shell on the head.

    No argument, and so no log of sudo, contains it.
    """
    return f"""sed 's/^/header = "Authorization: Bearer /; s/$/"/' {secret} | curl --config -"""


CURL = curl("/etc/gb10/api.key")


def ask(head: Host, path: str, body: dict[str, Any], timeout: int = 120) -> dict[str, Any]:
    """POST to the API on the head and return the answer."""
    command = f"{CURL} --silent --show-error --fail --max-time {timeout} --json '{json.dumps(body)}' {API}{path}"
    return dict(json.loads(head.check_output(command)))


def completion(head: Host, tokens: int = 16, model: str = "tiny") -> str:
    """Return a completion at temperature 0."""
    answer = ask(head, "/v1/completions", {"model": model, "prompt": "Hello", "max_tokens": tokens, "temperature": 0})
    return str(answer["choices"][0]["text"])


def answers_again(head: Host, within: float = 400) -> str:
    """Wait until the API answers again."""

    def answer() -> str | None:
        with suppress(AssertionError):
            return completion(head)
        return None

    return wait_until(answer, within, f"the API did not answer within {within} s", 3)


def stream(head: Host, *options: str, prompt: str | list[int] = "Hello", tokens: int = 900, url: str = API) -> None:
    """Start a stream on the head that nothing waits for. ``options`` are curl's."""
    body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True})
    request = f"{CURL} --silent --max-time 600 {' '.join(options)} --json '{body}' {url}/v1/completions"
    head.check_output(f"({request}) >/dev/null 2>&1 </dev/null &")


def ranks(head: Host) -> list[str]:
    """Return the addresses of the nodes on which Ray runs vLLM's workers."""

    def rows(resource: str) -> list[dict[str, Any]]:
        answer = json.loads(
            head.check_output(f"{curl('/etc/gb10/ray.token')} --silent --fail http://127.0.0.1:8265/api/v0/{resource}")
        )
        return list(answer["data"]["result"]["result"])

    addresses = {row["node_id"]: row["node_ip"] for row in rows("nodes") if row["state"] == "ALIVE"}
    workers = [row for row in rows("actors") if row["state"] == "ALIVE" and row["class_name"] == "RayWorkerProc"]
    return sorted(addresses[row["node_id"]] for row in workers)
