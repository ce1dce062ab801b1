# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proof of a server that returns while a fallback answers for it: one request of the model's golden record.

A start after a fault runs without a playbook, which would compare all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.golden import compare, parse, table
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import DIFFERENT, Bounds, Record

#: The path of the request, and the most bytes of its answer.
PATH, MOST = table.COMPLETIONS, 1 << 20
#: The request of the record, which needs no chat template.
_QUESTION = "completion"


def of_record(record: Record, bounds: Bounds, root: str) -> dict[str, Any]:
    """Return the settings of a proof {answer, bounds, root}, {} if the record has no such request.

    ``root``: the origin of the model, as the server reports it.
    """
    answer = record.run.answers.get(_QUESTION)
    return {"answer": asdict(answer), "bounds": asdict(bounds), "root": root} if answer and answer.prompt else {}


def serves(given: Mapping[str, Any], name: str, text: str) -> bool:
    """Whether a list of models has the recorded one. A playbook may have switched to another under the same name."""
    try:
        parse.served(text, name, given["root"])
    except parse.InvalidError:
        return False
    return True


def request(given: Mapping[str, Any], model: str, salt: str) -> bytes:
    """Return the body of the request. ``salt``: of the cache, so that no cached prefix hides a wrong kernel."""
    question = table.completion(model, list(given["answer"]["prompt"]))
    return json.dumps({**question.body, "cache_salt": salt}).encode()


def judge(given: Mapping[str, Any], text: str) -> str:
    """Return why the answer is not the record's, "" if it is."""
    try:
        before, now = parse.answer(given["answer"], "the record"), parse.completion(text)
    except parse.InvalidError as error:
        return f"its golden answer is not valid: {error}"
    found = compare.compare(_QUESTION, before, now, Bounds(**given["bounds"]))
    return f"its golden answer differs from the record: {found.why}" if found.relation == DIFFERENT else ""
