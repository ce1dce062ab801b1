# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs vLLM's benchmark client with prompts of natural text and code, or with those of SPEED-Bench.

This file is also a program: vLLM's Python runs it, so it imports nothing from this collection. Its first argument is a
JSON object {tokens, words, seed, file}, the others are those of ``vllm``. It gives the dataset ``custom`` its prompts.
vLLM's own readers need pandas, which it does not require (vllm-project/vllm#40144). Its ``speed_bench`` sends the same
prompts in each benchmark, and the prefix cache then has them. Source: vLLM's benchmarks/datasets, 0.18.1 to 0.33.0.
"""

from __future__ import annotations

import importlib
import inspect
import json
import random
import sys
from collections.abc import Callable, Iterator
from itertools import count as numbers
from typing import Any

#: Most bytes of a row. SPEED-Bench's longest prompts have 32K tokens.
MOST = 1024**2
#: A prompt is complete after so many pieces that are too long for its rest.
_MISSES = 8
#: The words in place of each {name} in a sentence.
_WORDS = {
    "who": "Ada,Bruno,Clara,David,Elena,Felix,Greta,Hugo,Ida,Jonas",
    "other": "Karin,Leo,Mira,Nils,Olga,Paul,Rosa,Simon,Tilda,Viktor",
    "place": "harbor,library,market hall,old mill,railway bridge,river bank,school,town hall,water tower,workshop,"
    "lighthouse,bakery,museum,greenhouse,post office",
    "thing": "bell,boat,bridge,clock,engine,fence,gate,lamp,map,pump,roof,signal,stove,telescope,wagon,well",
    "how": "carefully,reluctantly,before breakfast,after the storm,without any help,for the second time,in great haste,"
    "during the fair,by candlelight,with borrowed tools",
    "month": "January,February,March,April,May,June,July,August,September,October,November,December",
    "many": "two,three,four,five,six,seven,eight,nine,ten,eleven,twelve,thirty",
    "verb": "count,filter,find,group,merge,order,rank,scale,select,sum",
    "noun": "account,cable,event,invoice,message,node,order,packet,reading,route,sample,sensor,ticket,token",
    "field": "age,cost,delay,length,level,load,price,rate,size,weight",
    "limit": "3,5,8,12,16,24,40,64,100,128,250,512",
}
_CHOICES = {name: words.split(",") for name, words in _WORDS.items()}
#: A space at the start is a token with the next word.
_PROSE = (
    " In {month}, {who} repaired the {thing} near the {place} {how}.",
    " {who} told {other} that the {thing} from the {place} had been sold for {many} silver coins.",
    " Nobody knew why the {thing} stopped, but {other} suspected the damp air of the {place}.",
    " After {many} days of rain the {place} was closed, and {who} moved the {thing} {how}.",
    ' "We need {many} more people for the {thing}," said {who}, "or the {place} will not open in {month}."',
    " The council met at the {place}, listened to {who} for {many} minutes, and decided to paint the {thing}.",
    " {who} and {other} argued about the {thing} {how}, although both of them had seen it in {month}.",
    " A letter about the {place} arrived; it named {many} witnesses, a broken {thing}, and a promise of {other}.",
)
_CODE = (
    "def {verb}_{noun}s({noun}s, limit={limit}):\n"
    '    """Return the {noun}s whose {field} is above the limit, the largest one first."""\n'
    "    found = [each for each in {noun}s if each.{field} > limit]\n"
    "    return sorted(found, key=lambda each: each.{field}, reverse=True)\n\n\n",
    "def {verb}_{field}({noun}s):\n"
    "    total = 0\n"
    "    for {noun} in {noun}s:\n"
    "        if {noun}.{field} is None:\n"
    "            continue\n"
    "        total += {noun}.{field} * {limit}\n"
    "    return total / max(1, len({noun}s))\n\n\n",
    "class {noun}_{verb}er:\n"
    "    def __init__(self, {field}={limit}):\n"
    "        self.{field} = {field}\n"
    "        self.{noun}s = []\n\n"
    "    def add(self, {noun}):\n"
    "        if {noun}.{field} < self.{field}:\n"
    '            raise ValueError("the {field} of this {noun} is too small")\n'
    "        self.{noun}s.append({noun})\n\n\n",
)
#: The kinds of prompts, in turn: the start of each, its pieces, and its questions. Each benchmark asks the same.
_KINDS = (
    (
        "Page {number} of a town's chronicle:",
        _PROSE,
        (
            "\n\nWrite a short story that explains how these events are connected, in at least {words} words.",
            "\n\nReport about this page to a newspaper, in at least {words} words.",
        ),
    ),
    (
        "# Module {number}\n\n",
        _CODE,
        (
            "\n\nWrite unit tests for this module, in at least {words} words.",
            "\n\nExplain each function of this module, in at least {words} words.",
        ),
    ),
)
Count = Callable[[str], int]


def program() -> str:
    """Return the source of this file, for `python -c`."""
    return inspect.getsource(sys.modules[__name__])


def texts(tokens: int, words: int, seed: str, size: Count) -> Iterator[str]:
    """Yield prompts of at most about ``tokens`` each, whose answers have ``words`` or more. ``size``: tokens of a text.

    Even the first words differ between seeds and prompts, so that no prefix cache has them.
    """
    for index in numbers():
        chance = random.Random(f"{seed}-{index}")
        start, pieces, questions = _KINDS[index % len(_KINDS)]
        start = start.format(number=chance.randrange(10**9))
        question = questions[index // len(_KINDS) % len(questions)].format(words=words)
        left, found, misses = tokens - size(start) - size(question), [start], 0
        while misses < _MISSES:
            words_of = {name: chance.choice(known) for name, known in _CHOICES.items()}
            piece = chance.choice(pieces).format_map(words_of)
            length = size(piece)
            if length > left:
                misses += 1
            else:
                found.append(piece)
                left -= length
        yield "".join(found).rstrip() + question


def rows(file: str, number: int, seed: str) -> list[str]:
    """Return the first prompts of ``number`` rows of a file of SPEED-Bench, chosen by the seed.

    Raises OSError, and ValueError without a content.
    """
    with open(file, "rb") as lines:
        starts = [0]
        while line := lines.readline(MOST + 1):
            if len(line) > MOST:
                raise ValueError(f"row {len(starts)} of {file} is longer than {MOST} bytes")
            starts.append(lines.tell())
        starts.pop()
        found = []
        for start in random.Random(seed).sample(starts, min(number, len(starts))):
            lines.seek(start)
            try:
                prompt = json.loads(lines.readline())["messages"][0]["content"]
            except (ValueError, LookupError, TypeError):
                prompt = None
            if not isinstance(prompt, str):
                raise ValueError(f"row {starts.index(start) + 1} of {file} has no messages")
            found.append(prompt)
    return found


def main() -> None:
    """Run ``vllm`` with the arguments of this process after the first one."""
    source = json.loads(sys.argv.pop(1))
    dataset = importlib.import_module("vllm.benchmarks.datasets").CustomDataset
    sample = dataset.sample

    def ours(self: Any, tokenizer: Any, num_requests: int, **options: Any) -> Any:
        if source["file"]:
            prompts = rows(source["file"], num_requests, source["seed"])
        else:
            made = texts(
                source["tokens"],
                source["words"],
                source["seed"],
                lambda text: len(tokenizer(text, add_special_tokens=False).input_ids),
            )
            prompts = [next(made) for _number in range(num_requests)]
        self.data = [{"prompt": prompt} for prompt in prompts]
        return sample(self, tokenizer=tokenizer, num_requests=num_requests, **options)

    dataset.load_data, dataset.sample = lambda _self: None, ours
    sys.argv[0] = "vllm"
    importlib.import_module("vllm.entrypoints.cli.main").main()


if __name__ == "__main__":
    main()
