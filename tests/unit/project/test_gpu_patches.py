# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test the evaluation of tests/gpu/patches.py, without a GPU."""

from __future__ import annotations

import json
import os
import socket
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from gpu_program import load
from small_server import serving

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


def model(request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
    """Return the tokens 3, 4, 5 for the prompt 1, 2."""
    if request.command == "GET":
        return 200, "", {}
    asked = json.loads(request.body)  # type: ignore[attr-defined]
    tokens = [3, 4, 5][: asked["max_tokens"]] if asked["prompt"] == [1, 2] else []
    names = [f"token_id:{token}" for token in tokens]
    logprobs = {
        "tokens": names,
        "token_logprobs": [-0.5] * len(names),
        "top_logprobs": [{name: -0.5, "token_id:9": -2.0} for name in names],
    }
    return 200, json.dumps({"choices": [{"logprobs": logprobs}]}), {}


def test_answers_are_tokens_with_their_margins(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with serving(model) as url:
        served = patches.serve(case(tmp_path, sleep, int(url.rpartition(":")[2])), PASSAGES, 30)
    assert (served.failure, served.answers) == ("", [answer([3, 4, 5], [-0.5] * 3, [1.5] * 3)])
