# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a request costs vLLM beyond its own bytes: the texts that it divides into tokens, and the answers that it makes.

One thread makes the tokens for all clients. vLLM 0.32 refuses a text that cannot fit the model first, but not in
/tokenize, and not if it may cut the text: 18 MB took 7.3 GB and 37 s. A request of 70 bytes asked for 65,536 answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits

#: Codes of the refusals.
LONG, MANY = "text_too_long", "too_many_answers"
#: The most characters of texts that become one prompt; where vLLM does not compare them with the model first; and of
#: the texts of a request that become prompts of their own. A context of a million tokens has about 4 million.
_MOST_TEXT, _MOST_UNCHECKED, _MOST_APART = 8 << 20, 1 << 20, 16 << 20
#: The most answers of a request: as many as vLLM takes prompts.
MOST_ANSWERS = 1024
REFUSALS: Mapping[str, tuple[int, str]] = {
    LONG: (
        413,
        f"The texts have more than {_MOST_TEXT >> 20} Mi characters, or more than {_MOST_UNCHECKED >> 20} Mi in "
        f"/tokenize or with truncation, or more than {_MOST_APART >> 20} Mi as prompts of their own.",
    ),
    MANY: (413, f"n times the number of prompts is more than {MOST_ANSWERS}."),
}
_TOKENIZE = "/tokenize"
#: Paths in which each text is a prompt of its own.
_APART = limits.OF_TOKENS | {"/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score", "/v2/embed"}
#: Members with which vLLM cuts a text instead of refusing it.
_CUTTING = ("truncate_prompt_tokens", "truncation", "truncate")
#: Members whose text is a file or its address, and no part of a prompt.
_MEDIA = frozenset(
    "audio audio_embeds audio_url data file_data file_url image image_embeds image_url prompt_embeds url video "
    "video_url".split()
)
#: Members in which a template writes everything into the prompt.
_WRITTEN = frozenset("arguments chat_template_kwargs functions input_schema parameters response_format tools".split())
_CALL = "tool_use"


def refusal(path: str, body: Mapping[str, Any]) -> str:
    """Return the code of the refusal of a body that vLLM would need too much for, "" otherwise."""
    if _answers(body) > MOST_ANSWERS:
        return MANY
    path = path.rstrip("/")
    unchecked = path == _TOKENIZE or any(body.get(name) not in (None, False, "disabled", "NONE") for name in _CUTTING)
    most = _MOST_UNCHECKED if unchecked else _MOST_TEXT
    lengths = list(_lengths(body))
    if path in _APART:
        return LONG if max(lengths, default=0) > most or sum(lengths) > _MOST_APART else ""
    return LONG if sum(lengths) > most else ""


def _answers(body: Mapping[str, Any]) -> int:
    prompts = 1
    for name in ("prompt", "messages"):
        value = body.get(name)
        if isinstance(value, list) and value and isinstance(value[0], str | list):
            prompts = max(prompts, len(value))
    return prompts * max(1, *(_number(body.get(name)) for name in ("n", "best_of")))


def _number(value: Any) -> int:
    """Return a number as pydantic reads it, also from a text."""
    try:
        return int(float(value)) if isinstance(value, int | float | str) else 1
    except OverflowError:
        return MOST_ANSWERS + 1
    except ValueError:
        return 1


def _lengths(body: Any) -> Iterator[int]:
    """Yield the lengths of the texts that can become part of a prompt."""
    waiting: list[tuple[str, Any, bool]] = [("", body, False)]
    while waiting:
        name, value, written = waiting.pop()
        if isinstance(value, str):
            if written or name not in _MEDIA:
                yield len(value)
        elif isinstance(value, dict):
            inner = written or value.get("type") == _CALL
            waiting += [(key, each, inner or key in _WRITTEN) for key, each in value.items()]
        elif isinstance(value, list):
            waiting += [(name, each, written) for each in value]
