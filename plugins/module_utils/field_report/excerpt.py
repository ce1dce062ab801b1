# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines of a log that explain a failure: steps of a start, known symptoms, exceptions and the frames before them.

A log may have prompts and answers, whose words are public. So a line stays only if its message is known, with the words
of that message.
"""

from __future__ import annotations

import builtins
import re
from collections import deque
from collections.abc import Collection, Iterable

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import redact
from ansible_collections.gb10.cluster.plugins.module_utils.health import failures, log
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_log import CAUSES, CONSEQUENCES
from ansible_collections.gb10.cluster.plugins.module_utils.launch.log_line import parts

#: Frames before an exception: the innermost ones name its place.
_FRAMES = 4
_FRAME = re.compile(r'\s*File "([^"]{1,300})", line (\d{1,6}), in <?(\w{1,80})')
#: A line of a program or unit of this collection. The controller knows its words.
_OWN = re.compile(r"gb10-[a-z-]{2,40}(?:\.service)?(?: \w{1,20})?: ")
#: A number without a unit: a prompt may have the words of a symptom next to the number of a card.
_BARE = re.compile(
    r"(?<![\w.])[\d][\d.,/:-]*(?![\w.,/:-])(?!\s{0,2}(?:[KMGT]i?B|Gb/s|%|ms|s|seconds|milliseconds|bytes|tokens|blocks)\b)"
)
_SYNTAX = re.compile(r"\\[a-zA-Z]|[\\^$.*+?|]|\{\d+,\d*\}|\(\?[:!=<]*")


def _message(shown: str, pattern: str) -> tuple[re.Pattern[str], str, set[str]]:
    """Return a message's pattern, an example or description of it, and its words."""
    return re.compile(pattern), shown, redact.words(f"{shown} {_SYNTAX.sub(' ', pattern)}")


_SYMPTOMS = [(each.id, *_message(each.shows, each.pattern)) for each in (*CAUSES, *CONSEQUENCES)]
_STEPS = [_message(shown, pattern) for pattern, shown in log.STEPS]
_CLASSES = {name.casefold() for name in dir(builtins)}.union(*(words for *_rest, words in _SYMPTOMS))


def known(lines: Iterable[str]) -> list[str]:
    """Return the known lines of a log with public words, and the number of the others.

    A line of this collection's own programs still has its values.
    """
    found: list[str] = []
    frames: deque[str] = deque(maxlen=_FRAMES)
    left = 0
    for line in lines:
        _level, _address, text = parts(line)
        if frame := _FRAME.match(text):
            frames.extend(filter(None, [redact.installed(":".join(frame.groups()))]))
        elif shown := _shown(text):
            found += [*frames, shown]
            frames.clear()
        elif text.strip():
            left += 1
    return [*found, *([f"lines without a known symptom, left out: {left}"] if left else [])]


def _shown(text: str) -> str:
    """Return a known message, "" for another one."""
    for name, pattern, _example, words in _SYMPTOMS:
        if pattern.search(text):
            return f"{name}: {_reduced(_BARE.sub(redact.GONE, text), words)}"
    if _OWN.match(text):
        return text
    for pattern, shown, words in _STEPS:
        if match := pattern.match(text):
            return _reduced(shown.format(*(group or "" for group in match.groups())), words)
    return _reduced(f"{text.partition(': ')[0]}: {redact.GONE}", _CLASSES) if failures.EXCEPTION.match(text) else ""


def _reduced(text: str, words: Collection[str]) -> str:
    return str(redact.redacted(text, {}, words))
