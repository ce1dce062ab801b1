# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What passes between a client and a model's server: headers, the answer, and the server's report of tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

#: Headers of a client that the server gets.
_REQUEST = ("Accept", "anthropic-version", "anthropic-beta")
#: Headers of the server that the client gets.
_RESPONSE = ("Content-Type", "Retry-After", "Cache-Control")
#: A server's answers after which another server gets the request, and the one to a wrong key.
FAILED, DENIED = (500, 502, 503, 504), 401
#: Maximum bytes of a line of a stream that is kept until it is complete, or read as JSON, and of each end of a long
#: answer or line. A line of vLLM has some kilobytes; each connection may have such a line.
_MOST_LINE, _END = 64 << 10, 8 << 10
#: The most bytes of a usage, and the most bytes and usages of a part of a stream that are read without a turn.
_MOST_USAGE, _AT_ONCE, _MOST_USAGES = 1 << 10, 8 << 10, 50
#: Maximum tokens that are believed of a server, because the log and the counters get the number.
_MOST_TOKENS = 1 << 40
#: In JSON a text cannot contain these bytes: its quotation marks are escaped.
_NAME = b'"usage"'
_MEMBER = rb'\s*"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})'
#: A usage with the comma before it, which can be cut, and any usage.
_USAGE, _ANY_USAGE = re.compile(b"," + _MEMBER), re.compile(b"[,{]" + _MEMBER)
_LAST = re.compile(rb'"choices"\s*:\s*\[\s*\]')
#: The end of the name of an event with a part of the answer, in Anthropic's API and in /v1/responses.
_DELTA = b"delta\n"
#: Bytes at the beginning of an event that contain its type.
_BEGIN = 100


@dataclass(frozen=True)
class Tokens:
    """Tokens that a server reported."""

    prompt: int = 0
    completion: int = 0


def request_headers(given: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the headers for the server. The client's key does not reach it."""
    found = {name: given[name] for name in _REQUEST if name in given}
    found |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    return found | ({"Authorization": f"Bearer {key}"} if key else {})


def response_headers(given: Mapping[str, str]) -> dict[str, str]:
    """Return the headers for the client. All others are internal."""
    return {name: given[name] for name in _RESPONSE if name in given}


def tokens_of(usage: Any) -> Tokens:
    """Return the tokens of a usage in OpenAI's or Anthropic's form. A reranker reports only a total."""
    if not isinstance(usage, dict):
        return Tokens()
    prompt = _first(usage, "prompt_tokens", "input_tokens", "total_tokens")
    return Tokens(prompt, _first(usage, "completion_tokens", "output_tokens"))


def _first(usage: Mapping[str, Any], *names: str) -> int:
    for value in (usage.get(name) for name in names):
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS:
            return value
    return 0


def many(data: bytes) -> bool:
    """Return whether a part of a stream takes so long to read that others have their turn first."""
    return len(data) > _AT_ONCE and data.count(_NAME) > _MOST_USAGES


class Plain:
    """An answer that is not a stream. It passes unchanged."""

    def __init__(self) -> None:
        self._head = self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Return the same bytes."""
        if len(self._head) < _END:
            self._head += data[: _END - len(self._head)]
        self._tail = (self._tail + data[-_END:])[-_END:]
        return data

    def end(self) -> bytes:
        """Return the remaining bytes at the end."""
        return b""

    @property
    def tokens(self) -> Tokens:
        """The last usage near the end, else the first one at the beginning: a reranker writes it before its results."""
        found = _ANY_USAGE.findall(self._tail)[-1:] or _ANY_USAGE.findall(self._head)[:1]
        return tokens_of(_read(found[0])) if found else Tokens()


def whole(data: bytes) -> Tokens:
    """Return the tokens of a complete answer. Only a short one is parsed: 255 KB of numbers take 46 ms, and no other
    client gets an answer meanwhile."""
    if len(data) > _END:
        answer = Plain()
        answer.feed(data)
        return answer.tokens
    found = _json(data) if _NAME in data else None
    return tokens_of(found.get("usage")) if isinstance(found, dict) else Tokens()


class Completions:
    """A stream of /v1/chat/completions or /v1/completions, whose events have the usage until then.

    ``usage`` and ``always``: whether the client gets it at the end, and in each event.
    """

    def __init__(self, usage: bool, always: bool) -> None:
        self._usage, self._always = usage, always
        # A line may come in many parts: adding one must not copy the others.
        self._rest, self._found = bytearray(), b""

    def feed(self, data: bytes) -> bytes:
        """Return the complete lines for the client."""
        end = data.rfind(b"\n") + 1
        if (0 if end else len(self._rest)) + len(data) - end > _MOST_LINE:
            end = len(data)
        lines = self.end() + data[:end] if end else b""
        self._rest += data[end:]
        return self._read(lines) if _NAME in lines else lines

    def end(self) -> bytes:
        """Return the rest of an incomplete line."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest

    def _read(self, data: bytes) -> bytes:
        lines = []
        dropped = False
        for line in data.split(b"\n"):
            # In a longer line, the search takes longer than the answer of others may wait.
            found = _USAGE.search(line) if len(line) <= _MOST_LINE else None
            if not found:
                # The empty line after a dropped one belongs to it.
                lines += [line] if line or not dropped else []
                dropped = False
                continue
            self._found = found[1]
            last = _LAST.search(line) is not None
            dropped = last and not self._usage
            if not dropped:
                lines.append(line if last or self._always else line[: found.start()] + line[found.end() :])
        return b"\n".join(lines)

    @property
    def tokens(self) -> Tokens:
        """The last usage: exact also if the client left."""
        return tokens_of(_read(self._found)) if self._found else Tokens()


class Events:
    """A stream of /v1/messages or /v1/responses. It passes unchanged, and reports its usage itself."""

    def __init__(self) -> None:
        self._rest, self._prompt, self._completion, self._deltas = bytearray(), 0, 0, 0
        self._long = False

    def feed(self, data: bytes) -> bytes:
        """Return the same bytes."""
        self._deltas += data.count(_DELTA)
        end = data.rfind(b"\n") + 1
        if end:
            lines, self._rest = bytes(self._rest) + data[:end], bytearray()
            for line in lines.split(b"\n") if _NAME in lines else ():
                # Only the end of a long line is kept.
                if _NAME in line and (self._long or line.startswith(b"data:")):
                    self._read(line)
                self._long = False
        self._rest += data[end:]
        if len(self._rest) > _MOST_LINE:
            # The last event of /v1/responses has the whole answer, and then its usage.
            self._long = True
            del self._rest[:-_END]
        return data

    def end(self) -> bytes:
        """Return the remaining bytes at the end."""
        return b""

    def _read(self, line: bytes) -> None:
        usages = _ANY_USAGE.findall(line[-_END:])
        if not usages:
            return
        found = tokens_of(_read(usages[-1]))
        self._prompt = max(self._prompt, found.prompt)
        # Anthropic's first event has a number that is not a result.
        begins = b'"message_start"' in line[:_BEGIN]
        self._completion = self._completion if begins else max(self._completion, found.completion)

    @property
    def tokens(self) -> Tokens:
        """The reported tokens. Without a report, because the client left, each part of the answer counts as one."""
        return Tokens(self._prompt, self._completion or self._deltas)


Answer: TypeAlias = "Plain | Completions | Events"


def reader(path: str, headers: Mapping[str, str], usage: bool, always: bool) -> Answer:
    """Return what reads an answer of a server's path."""
    if not headers.get("Content-Type", "").startswith("text/event-stream"):
        return Plain()
    return Completions(usage, always) if path.endswith("completions") else Events()


def _read(usage: bytes) -> Any:
    return _json(usage) if len(usage) <= _MOST_USAGE else None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
