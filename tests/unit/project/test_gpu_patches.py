# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test the evaluation of tests/gpu/patches.py, without a GPU."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from gpu_program import load

patches = load("patches")
PASSAGES = [{"opening": [1, 2], "answer": [3, 4, 5]}]


def answer(tokens: list[int], logprobs: list[float], margins: list[float]) -> dict[str, Any]:
    return {"tokens": tokens, "logprobs": logprobs, "margins": margins}


def test_answers_are_compared_until_they_part() -> None:
    one = [answer([1, 2, 3], [-0.1, -0.2, -0.3], [4.0, 3.0, 0.5]), answer([7], [-0.5], [2.0])]
    other = [answer([1, 2, 9], [-0.1, -0.6, -9.0], [4.0, 5.0, 0.25]), answer([7], [-0.5], [2.5])]
    found = patches.difference(one, other)
    assert found["logprob"] == pytest.approx(0.4)
    assert found["margin"] == 2.0
    assert found["parted"] == [{"passage": 0, "token": 2, "margins": [0.5, 0.25]}]
    assert patches.difference(one, one) == {"logprob": 0.0, "margin": 0.0, "parted": []}


def case(folder: Path, command: list[str], port: int) -> Any:
    return patches.Case("per-channel", "shipped", command, dict(os.environ), folder / "log", port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_server_that_does_not_come_up_is_told_of(tmp_path: Path) -> None:
    ended = patches.serve(case(tmp_path, [sys.executable, "-c", "raise SystemExit(3)"], free_port()), PASSAGES, 30)
    assert (ended.failure, ended.answers) == ("ended with status 3", [])
    slow = patches.serve(
        case(tmp_path, [sys.executable, "-c", "import time; time.sleep(60)"], free_port()), PASSAGES, 0
    )
    assert (slow.failure, slow.answers) == ("did not come up within 0 s", [])


class Model(BaseHTTPRequestHandler):
    """Returns the tokens 3, 4, 5 for the prompt 1, 2."""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.reply(b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = [3, 4, 5][: asked["max_tokens"]] if asked["prompt"] == [1, 2] else []
        names = [f"token_id:{token}" for token in tokens]
        logprobs = {
            "tokens": names,
            "token_logprobs": [-0.5] * len(names),
            "top_logprobs": [{name: -0.5, "token_id:9": -2.0} for name in names],
        }
        self.reply(json.dumps({"choices": [{"logprobs": logprobs}]}).encode())


def test_answers_are_tokens_with_their_margins(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        served = patches.serve(
            case(tmp_path, [sys.executable, "-c", "import time; time.sleep(60)"], server.server_port),
            PASSAGES,
            30,
        )
        server.shutdown()
    assert (served.failure, served.answers) == ("", [answer([3, 4, 5], [-0.5] * 3, [1.5] * 3)])
