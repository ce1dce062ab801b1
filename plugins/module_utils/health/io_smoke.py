# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Send the requests of smoke.py to a server."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_local import Secret
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, probe, smoke, smoke_pooling
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server

_SHOWN, _CHUNK = 500, 65536
_Send = Callable[[str, Mapping[str, Any]], list[tuple[float, str]]]


def ask(
    server: Server, path: str, body: Mapping[str, Any] | None, timeout: float, secret: Secret | None
) -> list[tuple[float, str]]:
    """Send a request, GET without a body, and return the answer's lines, each with the seconds until it arrived.

    ``timeout`` limits the whole answer. Raises smoke.AnswerError; no error contains the secret.
    """
    begin = time.monotonic()
    lines: list[tuple[float, str]] = []
    size, rest = 0, b""
    try:
        with server.open(path, timeout, None if body is None else json.dumps(body).encode(), secret) as answer:
            # Read the bytes received so far; a line without an end would block.
            while chunk := answer.read1(_CHUNK):
                elapsed = time.monotonic() - begin
                size += len(chunk)
                if size > io_client.MOST:
                    raise smoke.AnswerError(f"the answer is longer than {io_client.MOST} bytes")
                *ended, rest = (rest + chunk).split(b"\n")
                lines += [(elapsed, line.decode("utf-8", "replace").rstrip("\r")) for line in ended]
            if rest:
                lines.append((time.monotonic() - begin, rest.decode("utf-8", "replace")))
    except urllib.error.HTTPError as error:
        with error:
            shown = error.read(_SHOWN).decode("utf-8", "replace")
            raise smoke.AnswerError(f"HTTP {error.code}: {shown}") from error
    except io_local.SecretError as error:
        raise smoke.AnswerError(str(error)) from error
    except (OSError, http.client.HTTPException) as error:
        raise smoke.AnswerError(
            f"no answer after {time.monotonic() - begin:.0f} s: {error or type(error).__name__}"
        ) from error
    return lines


def result(
    server: Server,
    model: str,
    kind: str,
    dimension: int,
    meaning: bool,
    max_tokens: int,
    reasoning: bool,
    timeout: float,
    secret: Secret | None,
) -> dict[str, Any]:
    """Send the requests to a model of any kind. Returns {answers, answered, lines, problems, msg}.

    ``answers``: of generation. ``answered``: seconds since boot at the end of the first answer. ``lines``: for people.
    ``msg``: the problems as a sentence, if any.
    """

    def send(path: str, body: Mapping[str, Any]) -> list[tuple[float, str]]:
        return ask(server, path, body, timeout, secret)

    if kind == "generate":
        answers, found = _generated(send, model, max_tokens, reasoning)
        lines = smoke.lines(answers)
    else:
        answers, (lines, found) = {}, _pooled(send, model, kind, dimension, meaning)
    first = answers.get("completion", {}).get("answered", time.monotonic())
    reported = f"The API is healthy, but its answers are invalid: {'; '.join(found)}" if found else ""
    return {"answers": answers, "lines": lines, "problems": found, "answered": first, "msg": reported}


def _pooled(send: _Send, model: str, kind: str, dimension: int, meaning: bool) -> tuple[list[str], list[str]]:
    """Send the request of a pooling model. Returns its results as lines, and a list of all problems."""
    path, body = smoke_pooling.question(kind, model)
    try:
        answer = send(path, body)
        lines, problems = smoke_pooling.judge(kind, "\n".join(line for _when, line in answer), dimension, meaning)
    except smoke.AnswerError as error:
        return [], [f"{path}: {probe.reason(str(error))}"]
    return [*lines, f"answered after {answer[-1][0]:.2f} s"], problems


def _generated(send: _Send, model: str, max_tokens: int, reasoning: bool) -> tuple[dict[str, Any], list[str]]:
    """Send every request. Returns each answer as plain data (the stream's with times) and a list of all problems."""
    answers, facts, reported = {}, {}, []
    for name, (path, body) in smoke.questions(model, max_tokens).items():
        try:
            lines = send(path, body)
            text = [line for _when, line in lines]
            answers[name] = smoke.streamed(text) if name == "stream" else smoke.whole("\n".join(text))
            facts[name] = {**asdict(answers[name]), "answered": time.monotonic()}
            if name == "stream":
                times = [when for when, line in lines if smoke.carries_text(line)] or [0.0]
                facts[name]["first_token_after"] = round(times[0], 2)
                facts[name]["tokens_per_second"] = smoke.tokens_per_second(answers[name], times[0], times[-1])
        except smoke.AnswerError as error:
            reported.append(f"the {name}: {error}")
    return facts, [*reported, *smoke.problems(answers, reasoning, max_tokens)]
