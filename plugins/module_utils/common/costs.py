# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cost of a request for vLLM beyond its own bytes: the texts that it divides into tokens, and its answers.

One thread makes the tokens for all clients. vLLM 0.32 refuses a text that cannot fit the model first, but not in
/tokenize, and not if it may cut the text: 18 MB took 7.3 GB and 37 s. A request of 70 bytes asked for 65,536 answers.
While a schema becomes a grammar, and while forbidden words become tokens, the server answers no client: 36 KB took
32 s, 8 MB took 25 s. The compiler of grammars took 19 GB for 1 MB.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import limits

#: Codes of the refusals.
LONG, MANY, COMPILED, NAMED = "text_too_long", "too_many_answers", "grammar_too_large", "name_too_long"
#: The most characters of texts that become one prompt; where vLLM does not compare them with the model first; and of
#: the texts of a request that become separate prompts. A context of a million tokens has about 4 million.
_MOST_TEXT, _MOST_UNCHECKED, _MOST_APART = 8 << 20, 1 << 20, 16 << 20
#: The most answers of a request: as many as vLLM takes prompts. The most texts of one for vectors or scores, as
#: OpenAI's API has it: 50,000 stopped the server for 11 s.
MOST_ANSWERS, _MOST_TEXTS = 1024, 2048
#: The most characters of all that is compiled, and of the forbidden words: a grammar of 22 KB took 0.8 s, one of 45 KB
#: 3.8 s. The most properties of an object whose number is limited, and their squares in all: 400 took 1 s.
_MOST_COMPILED, _MOST_PROPERTIES = 16 << 10, 128
_MOST_SQUARES = _MOST_PROPERTIES**2
#: The most properties of any object of a schema, and their squares in all: 7,500 took 16 s.
_MOST_KNOWN, _MOST_KNOWN_SQUARES = 1000, 4_000_000
#: The most of all prompts, because vLLM verifies the same again for each: the characters of compiled texts, those of
#: forbidden words, those of choices, and the values of the body. 60 prompts with one schema of 32 KB took 22 s.
_MOST_OF_PROMPTS = {
    "characters": 64 << 10,
    "words": 256 << 10,
    "choices": 512 << 10,
    "values": 500_000,
    "squares": _MOST_SQUARES,
    "known_squares": _MOST_KNOWN_SQUARES,
}
#: The most characters of a name that vLLM repeats in each part of a stream and in each message to its engine.
MOST_NAME = 256
_NAMES = ("cache_salt", "prompt_cache_key", "request_id", "safety_identifier", "session_id", "user")
#: The cost of a word beyond its characters.
_OF_WORD = 8
#: The most characters of schemas that are texts: 250,000 alternatives in 4.6 MB took 17 s.
_MOST_SCHEMA = 256 << 10
#: The most characters of choices, and the squares of their lengths in all: 20 of 20,000 characters took over 30 s.
_MOST_CHOICES, _MOST_LENGTHS = 128 << 10, 100_000_000
#: The most characters in all, and of the query times the items, in the path that makes tokens in the server's loop.
_MOST_SCORED, _MOST_COPIED = 128 << 10, 8 << 20
REFUSALS: Mapping[str, tuple[int, str]] = {
    LONG: (
        413,
        f"The texts have more than {_MOST_TEXT >> 20} Mi characters, or more than {_MOST_UNCHECKED >> 20} Mi in "
        f"/tokenize or with truncation, or more than {_MOST_APART >> 20} Mi as separate prompts.",
    ),
    MANY: (
        413,
        f"n times the number of prompts is more than {MOST_ANSWERS}, or a request for vectors or scores has more than "
        f"{_MOST_TEXTS} texts.",
    ),
    COMPILED: (
        413,
        f"The grammars, regular expressions and patterns have more than {_MOST_COMPILED >> 10} Ki characters, or the "
        f"bad words as many; or an object of a schema has more than {_MOST_KNOWN} properties, or "
        f"{_MOST_PROPERTIES} with minProperties or maxProperties; or choices have more than {_MOST_CHOICES >> 10} Ki "
        f"characters, or a schema as text {_MOST_SCHEMA >> 10} Ki characters.",
    ),
    NAMED: (400, f"One of {', '.join(_NAMES)} has more than {MOST_NAME} characters."),
}
_TOKENIZE, _SCORING, _QUESTIONS = "/tokenize", "/generative_scoring", "/v1/systemone"
#: Members with text that is compiled; with a schema, which may be a text; and with text for a model, not a compiler.
_CHOICES = frozenset(("choice", "guided_choice"))
_GRAMMARS = frozenset("ebnf grammar guided_grammar guided_regex lark pattern regex".split())
_SCHEMAS = frozenset("guided_json json json_schema schema structural_tag".split())
READ = frozenset(
    "data_1 data_2 documents input inputs items messages prompt queries query system text_1 text_2 texts".split()
)
#: Paths that answer with a vector or a score for each text, and those that make each text a separate prompt.
POOLING = frozenset(
    "/classify /pooling /rerank /score /v1/embeddings /v1/rerank /v1/score /v2/embed /v2/rerank".split()
)
_APART = limits.OF_TOKENS | POOLING
#: Members that make vLLM cut a text instead of refusing it; the last ones in the server's loop, also of many texts.
_CUTTING_IN_LOOP = ("max_tokens_per_doc", "max_tokens_per_query")
_CUTTING = ("truncate_prompt_tokens", "truncation", "truncate", *_CUTTING_IN_LOOP)
#: Members whose text is a file or its address, and no part of a prompt.
_MEDIA = frozenset(
    "audio audio_embeds audio_url data file_data file_url image image_embeds image_url prompt_embeds url video "
    "video_url".split()
)
#: Members that a template writes completely into the prompt.
_WRITTEN = frozenset("arguments chat_template_kwargs functions input_schema parameters response_format tools".split())
_CALL = "tool_use"


def refusal(path: str, body: Mapping[str, Any]) -> str:
    """Return the code of the refusal of a body that vLLM would need too much for, "" otherwise."""
    path = path.rstrip("/")
    if any(isinstance(body.get(name), str) and len(body[name]) > MOST_NAME for name in _NAMES):
        return NAMED
    if prompts(path, body) * copies(body) > (_MOST_TEXTS if path in POOLING else MOST_ANSWERS):
        return MANY
    if _too_long(path, body):
        return LONG
    return COMPILED if _Compiled().add(body).large(prompts(path, body)) else ""


def _too_long(path: str, body: Mapping[str, Any]) -> bool:
    cutting = [name for name in _CUTTING if body.get(name) not in (None, False, "disabled", "NONE")]
    unchecked = path == _TOKENIZE or bool(cutting)
    most = _MOST_UNCHECKED if unchecked else _MOST_TEXT
    lengths = list(map(len, texts(body)))
    if path == _SCORING:
        query, items = body.get("query"), body.get("items")
        copied = len(query) * len(items) if isinstance(query, str | list) and isinstance(items, list) else 0
        return sum(lengths) > _MOST_SCORED or copied > _MOST_COPIED
    if path == _QUESTIONS:
        return sum(lengths) * prompts(path, body) > _MOST_APART
    if path in _APART and not any(name in _CUTTING_IN_LOOP for name in cutting):
        return max(lengths, default=0) > most or sum(lengths) > _MOST_APART
    return sum(lengths) > most


def copies(body: Mapping[str, Any]) -> int:
    """Return the number of answers to each prompt of a body."""
    inner = body.get("sampling_params")
    both = (body, inner) if isinstance(inner, dict) else (body,)
    return max(1, *(number(each.get(name)) for each in both for name in ("n", "best_of")))


def prompts(path: str, body: Mapping[str, Any]) -> int:
    """Return the number of prompts of a body."""
    if path.rstrip("/") in POOLING:
        # A list of integers has the tokens of one prompt, and a chat is one.
        lists = [value for name, value in body.items() if isinstance(value, list) and name != "messages"]
        return max([1, *(len(value) for value in lists if value and not isinstance(value[0], int))])
    found = 1
    for name in ("prompt", "messages", "questions", *(("items",) if path == _SCORING else ())):
        value = body.get(name)
        if isinstance(value, list) and value and (name == "questions" or isinstance(value[0], str | list)):
            found = max(found, len(value))
    return found


def number(value: Any) -> int:
    """Return a number as pydantic reads it, also from a text."""
    try:
        return int(float(value)) if isinstance(value, int | float | str) else 1
    except OverflowError:
        return MOST_ANSWERS + 1
    except ValueError:
        return 1


def texts(body: Any) -> Iterator[str]:
    """Yield the texts that can become part of a prompt; the names of members, too, where a template writes them."""
    waiting: list[tuple[str, Any, bool]] = [("", body, False)]
    while waiting:
        name, value, written = waiting.pop()
        if isinstance(value, str):
            if written or name not in _MEDIA:
                yield value
        elif isinstance(value, dict):
            inner = written or value.get("type") == _CALL
            if inner:
                yield from value
            waiting += [(key, each, inner or key in _WRITTEN) for key, each in value.items()]
        elif isinstance(value, list):
            waiting += [(name, each, written) for each in value]


@dataclass
class _Compiled:
    """The parts of a body that a compiler gets: the characters of grammars and forbidden words, and limited objects."""

    characters: int = 0
    words: int = 0
    schemas: int = 0
    values: int = 0
    choices: int = 0
    lengths: int = 0
    squares: int = 0
    known: int = 0
    known_squares: int = 0
    _texts: list[str] = field(default_factory=list)

    def large(self, prompts: int) -> bool:
        """Whether one of them is beyond its limit, for each prompt or for all."""
        limited = self.squares > _MOST_SQUARES or self.known > _MOST_KNOWN or self.known_squares > _MOST_KNOWN_SQUARES
        limited = limited or self.choices > _MOST_CHOICES or self.lengths > _MOST_LENGTHS
        limited = limited or any(
            prompts > 1 and prompts * getattr(self, name) > most for name, most in _MOST_OF_PROMPTS.items()
        )
        return limited or max(self.characters, self.words) > _MOST_COMPILED or self.schemas > _MOST_SCHEMA

    def add(self, body: Mapping[str, Any]) -> _Compiled:
        """Count the members of a body, except those that only the model reads."""
        self._walk([(name, value) for name, value in body.items() if name not in READ])
        # The marks of a schema in a text were not counted, and it is parsed here and by vLLM.
        while self._texts and self.schemas <= _MOST_SCHEMA:
            text = self._texts.pop()
            try:
                self._walk([("", json.loads(text))])
            except (ValueError, RecursionError):
                self.characters += len(text)
        return self

    def _walk(self, waiting: list[tuple[str, Any]]) -> None:
        while waiting:
            name, value = waiting.pop()
            self.values += 1
            if isinstance(value, dict):
                self._object(value)
                waiting += value.items()
            elif isinstance(value, list):
                waiting += [(name, each) for each in value]
            elif isinstance(value, str):
                self.characters += len(value) * (name in _GRAMMARS)
                self.words += (len(value) + _OF_WORD) * (name == "bad_words")
                if name in _CHOICES:
                    self.choices += len(value)
                    self.lengths += len(value) ** 2
                if name in _SCHEMAS:
                    self.schemas += len(value)
                    self._texts.append(value)

    def _object(self, value: Mapping[str, Any]) -> None:
        patterns = value.get("patternProperties")
        self.characters += sum(map(len, patterns)) if isinstance(patterns, dict) else 0
        known = value.get("properties")
        if not isinstance(known, dict):
            return
        self.known = max(self.known, len(known))
        self.known_squares += len(known) ** 2
        if "minProperties" in value or "maxProperties" in value:
            self.squares += len(known) ** 2
