# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of golden answers: their file, their text, and the validation of a file that people may have edited."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, report
from ansible_collections.gb10.cluster.plugins.module_utils.golden import checks, parse
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Identity, Record, Served

_FORMAT = 1
_RENEW = "restore the file from version control, or renew it: playbooks/golden.yml -e golden_record=true"


def served(fact: Mapping[str, Any]) -> Served:
    """Return the server of the fact gb10_plan. A rollback sets it from a launch record."""
    store, serve = fact["store"], fact["serve"]
    identity = Identity(store.get("hub") or fact["model"], store.get("revision", ""), fact["quantization"])
    api, args = fact["api"], [*serve["args"], *serve["user_args"]]
    return Served(
        identity=identity,
        kind=fact["kind"],
        name=fact["served_model_name"],
        root=fact["model"],
        vllm=fact["stack"]["vllm"],
        args=args,
        url=api["url"],
        server_name=api["server_name"],
    )


def inputs(content: str | None, path: str, server: Served) -> tuple[str, str]:
    """Return the problems of a record and of the server's arguments as text, and the record's prompts as JSON.

    Both are "" if there are none. ``content`` is None without a record.
    """
    found, known = checks.arguments(server), ""
    try:
        if content is not None:
            answers = read(content, path, server.identity).run.answers
            known = json.dumps({name: list(answer.prompt) for name, answer in answers.items() if answer.prompt})
    except ProblemsError as error:
        found = [*error.problems, *found]
    return report(found) if found else "", known


def file(server: Served, directory: str) -> str:
    """Return the path of a model's record: served name and revision, or a digest of the model's path."""
    wanted = server.identity
    mark = wanted.revision or hashlib.sha256(wanted.model.encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{server.name}-{mark}")
    return f"{directory}/{name}.json"


def text(record: Record) -> str:
    """Return a record's file: JSON with one line for each list, so that a changed answer is a short diff."""
    run = record.run
    head = {"format": _FORMAT, **asdict(record.identity), "date": record.date, "vllm": run.vllm}
    head |= {"perplexity": _rounded(run.perplexity), "acceptance": _rounded(run.acceptance)}
    answers = []
    for name, answer in run.answers.items():
        fields = asdict(answer) | {
            "logprobs": [_rounded(value) for value in answer.logprobs],
            "top": [{str(token): _rounded(value) for token, value in position.items()} for position in answer.top],
        }
        answers.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(_lines(fields, "   ")) + "\n  }")
    lines = [*_lines(head, " "), ' "answers": {\n' + ",\n".join(answers) + "\n }"]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(content: str, path: str, wanted: Identity) -> Record:
    """Parse a record's file. Raises ProblemsError with the first error, also for a record of another model."""
    if not content.strip():
        _refuse(path, "the record is empty", "a record of golden answers")
    try:
        data = parse.mapping(bounded_json.load(content, parse.MOST), "the record")
        if data.get("format") != _FORMAT:
            raise parse.InvalidError("format", data.get("format"), f"the number {_FORMAT}")
        found = Identity(*(parse.line(data.get(name), name) for name in ("model", "revision", "quantization")))
        record = Record(found, parse.line(data.get("date"), "date"), parse.run(data, "record"))
        if not record.run.answers:
            raise parse.InvalidError("record.answers", "empty", "at least one answer")
        for name, answer in record.run.answers.items():
            if not answer.tokens:
                raise parse.InvalidError(f"record.answers.{name}.tokens", "empty", "at least one token")
    except parse.InvalidError as error:
        _refuse(path, f"{error.path} is {error.found}", error.expected)
    except ValueError as error:
        _refuse(path, f"not JSON: {error}", "a record of golden answers")
    if found != wanted:
        _refuse(path, f"a record of {_name(found)}", f"a record of {_name(wanted)}")
    return record


def _lines(values: Mapping[str, Any], indent: str) -> list[str]:
    return [f"{indent}{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items()]


def _refuse(path: str, found: str, expected: str) -> NoReturn:
    raise ProblemsError([Problem(path, found, expected, _RENEW)])


def _name(model: Identity) -> str:
    return f"{model.model} ({', '.join(filter(None, (model.revision, model.quantization)))})"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
