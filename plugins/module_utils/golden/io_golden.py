# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Send the golden requests to a server. Only this file of the package does I/O."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_local import Secret
from ansible_collections.gb10.cluster.plugins.module_utils.golden import parse, table
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Answer, Run
from ansible_collections.gb10.cluster.plugins.module_utils.golden.table import Question
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_smoke
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server
from ansible_collections.gb10.cluster.plugins.module_utils.health.smoke import AnswerError

_ERRORS = (AnswerError, parse.InvalidError)
_STATE_SECONDS = 30


class _Client:
    """Sends requests with the key, each with the same new cache salt, so that no cached prefix hides a wrong kernel."""

    def __init__(self, server: Server, timeout: float, secret: Secret) -> None:
        self._server, self._timeout, self._secret = server, timeout, secret
        self._salt = secrets.token_hex(16)

    def post(self, question: Question) -> str:
        """Return the response's body. Raises AnswerError."""
        return self._text(question.path, {**question.body, "cache_salt": self._salt}, self._timeout)

    def get(self, path: str) -> str:
        """Return the body of a state query. Raises AnswerError."""
        return self._text(path, None, _STATE_SECONDS)

    def answer(self, question: Question) -> Answer:
        """Return the parsed answer. Raises AnswerError and InvalidError."""
        text = self.post(question)
        return parse.chat(text) if question.path == table.CHATS else parse.completion(text)

    def _text(self, path: str, body: Mapping[str, Any] | None, timeout: float) -> str:
        return "\n".join(text for _when, text in io_smoke.ask(self._server, path, body, timeout, self._secret))


def run(
    server: Server,
    model: str,
    root: str,
    tools: bool,
    prompts: Mapping[str, Sequence[int]],
    timeout: float,
    secret: Secret,
) -> dict[str, Any]:
    """Return a Run as plain data. ``prompts``: the record's prompts by request.

    A chat template may contain the date, and a release may change it. Then the recorded prompt is sent instead.
    Raises AnswerError if the server does not serve ``model`` from ``root`` ("" for any).
    """
    client = _Client(server, timeout, secret)
    answers: dict[str, Answer] = {}
    problems: list[str] = []
    notes: list[str] = []
    try:
        limit = parse.served(client.get("/v1/models"), model, root)
        vllm = parse.version(client.get("/version"))
        before = parse.drafts(client.get("/metrics"))
    except parse.InvalidError as error:
        raise AnswerError(str(error)) from error
    for name, question in table.questions(model, limit, tools).items():
        try:
            answer, recorded = client.answer(question), list(prompts.get(name, ()))
            if recorded and list(answer.prompt) != recorded:
                if len(recorded) + table.MAX_TOKENS > limit:
                    notes.append(f"{name}: not compared, because the recorded prompt does not fit into {limit} tokens")
                    continue
                notes.append(
                    f"{name}: the record has another prompt than the server renders; the recorded one was sent"
                )
                answer = client.answer(table.completion(model, recorded))
            answers[name] = answer
        except _ERRORS as error:
            if question.path == table.CHATS and parse.without_template(str(error)):
                notes.append(f"{name}: the model has no chat template")
            else:
                problems.append(f"{name}: {error}")
    perplexity = None
    if (question := table.known_text(model)).characters < limit:
        try:
            perplexity = parse.perplexity(client.post(question))
        except _ERRORS as error:
            notes.append(f"perplexity: {error}")
    after = parse.drafts(client.get("/metrics"))
    drafted = (after[0] - before[0], after[1] - before[1]) if before and after else (0.0, 0.0)
    acceptance = drafted[1] / drafted[0] if drafted[0] > 0 else None
    return asdict(Run(answers, perplexity, acceptance, vllm, problems, notes))
