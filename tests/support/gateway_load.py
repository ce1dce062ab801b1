"""A program for a gateway's host: plain requests and streams without a pause, until it is killed.

    python3 gateway_load.py URL KEY_FILE MODEL

It prints a line of JSON for each request: {kind, began, ended, problem}, with seconds since 1970. It needs the standard
library alone.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from pathlib import Path

TOKENS = {"plain": 16, "stream": 400}


def ask(url: str, key: str, model: str, kind: str) -> str:
    """Return why a request has no complete answer, "" if it has one."""
    body = {
        "model": model,
        "prompt": "Hello",
        "max_tokens": TOKENS[kind],
        "ignore_eos": True,
        "stream": kind == "stream",
    }
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read().decode()
    except OSError as error:
        return f"{error} {error.read()[:300]!r}" if isinstance(error, urllib.request.HTTPError) else repr(error)
    # An engine that stops ends an answer early, with another reason.
    whole = '"finish_reason":"length"' in text.replace(" ", "") and ("[DONE]" in text or kind == "plain")
    return "" if whole else text[-500:]


def repeat(url: str, key: str, model: str, kind: str) -> None:
    """Send requests of a kind, one after the other."""
    while True:
        began = time.time()
        problem = ask(url, key, model, kind)
        row = {"kind": kind, "began": began, "ended": time.time(), "problem": problem}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        # The load of a lab's few cores must leave the time for the gateway's checks.
        time.sleep(1)


if __name__ == "__main__":
    URL, KEY_FILE, MODEL = sys.argv[1:]
    KEY = Path(KEY_FILE).read_text(encoding="utf-8").strip()
    for KIND in ("plain", "stream", "stream"):
        threading.Thread(target=repeat, args=(URL, KEY, MODEL, KIND)).start()
