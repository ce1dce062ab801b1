# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain English: how often comments, docstrings, task names and pages use phrases that readers stumble over."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from repository import read, tracked_files

#: The docstring of a file, a class or a function.
DOCSTRING = re.compile(r'(?:\A(?:#.*\n)*|:\n)\s*r?"""(.*?)"""', re.DOTALL)
#: Phrase, its pattern, and how often it may occur in 1000 words.
LIMITS = {
    # Name the noun: "the launch inputs", not "what it was started from".
    "a clause as a noun": (
        r"\bwhat (?:is|was|were|are|it|they|the|a|this|that|has|have|had|vLLM|Ray|NCCL|runs?|comes?|came|went|goes|others?|each|needs?|takes?"
        r"|stands?|lies|would|nobody|somebody|one|we)\b",
        1.5,
    ),
    # Software reports, returns, queries and verifies.
    "tell": (r"\b(?:told|tells|tell)\b", 0.5),
    "say": (r"\b(?:said|says|say)\b", 0.5),
    "ask": (r"\b(?:asked|asks)\b", 0.5),
    "believe": (r"\bbelieve[sd]?\b", 0.1),
    "beside": (r"\bbeside\b", 0.1),
    "anew": (r"\banew\b", 0.05),
    "mend": (r"\bmend(?:s|ed)?\b", 0.05),
    "whoever": (r"\b(?:nobody|somebody|whoever|anybody)\b", 0.3),
}


def prose(path: str, text: str) -> Iterator[str]:
    """Return the sentences of a file: Markdown without code and tables; docstrings, comments, task names and
    descriptions."""
    if path.endswith(".md"):
        text = re.sub(r"```.*?```|^(?:    |\t)[^\n]*$|\|[^\n]*\||`[^`]*`", " ", text, flags=re.DOTALL | re.MULTILINE)
        yield text
        return
    if path.endswith(".py"):
        for docstring in DOCSTRING.findall(text):
            yield re.sub(r"`+[^`]*`+", "", docstring)
    for line in text.splitlines():
        if match := re.match(r"\s*(?:#:? |- name: |(?:short_)?description: )(.*)", line):
            yield match[1]


#: Words of a sentence in a page.
LONGEST = 25
#: Pages that are written from tables of data.
WRITTEN = ("docs/models.md", "docs/rules.md", "docs/troubleshooting.md", "docs/verification.md")


def sentences(text: str, ends: str = ".!?") -> Iterator[str]:
    """Return the sentences of a page without headings, tables and code."""
    text = re.sub(r"<!--.*?-->|```.*?```", " ", text, flags=re.DOTALL)
    # These lines end a paragraph, and an item of a list begins one.
    text = re.sub(r"^(?:#|\||    |\t).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *(?:[-*]|\d+\.) ", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", text))
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(rf"(?<=[{ends}])[)*\]\"']* +", " ".join(paragraph.split()))


#: antsibull-changelog writes the other one.
PAGES = sorted(
    path for path in tracked_files() if re.fullmatch(r"[A-Z]+\.md|docs/\w+\.md", path) and path != "CHANGELOG.md"
)


@pytest.mark.parametrize("path", PAGES)
def test_sentences_are_short(path: str) -> None:
    # A fix has several steps, which a semicolon separates.
    found = sentences(read(path), ".!?;" if path in WRITTEN else ".!?")
    assert [sentence for sentence in found if len(re.findall(r"\S*\w\S*", sentence)) > LONGEST] == []


@pytest.mark.parametrize("path", [path for path in PAGES if path != "docs/benchmarks.md"])
def test_no_page_counts_tests_or_lines(path: str) -> None:
    # The next commit makes such a number wrong. docs/benchmarks.md has dated measurements.
    assert re.findall(r"\b\d[\d,]* (?:unit )?(?:tests|lines (?:of|instead))\b", read(path)) == []


def test_sentences_are_found() -> None:
    page = (
        "# Title\n\nOne `code` and [two](a.md#b).\nvLLM's three. (Four.)\n- five\n  six\n- seven\n\n    code\n\n| "
        "a | b |\n"
    )
    assert [found.split() for found in sentences(page) if found] == [
        ["One", "and", "[two]."],
        ["vLLM's", "three."],
        ["(Four.)"],
        ["five", "six"],
        ["seven"],
    ]


@pytest.fixture(scope="module")
def text() -> str:
    """All prose of the repository. Tables of data and what has been released are left out."""
    paths = [
        path for path in tracked_files() if path.endswith((".py", ".yml", ".md")) and not path.startswith("changelogs/")
    ]
    return "\n".join(part for path in paths if "table" not in path for part in prose(path, read(path)))


@pytest.mark.parametrize("phrase", LIMITS)
def test_phrases_are_rare(text: str, phrase: str) -> None:
    pattern, limit = LIMITS[phrase]
    words = len(re.findall(r"[A-Za-z']+", text))
    found = [part for part in re.split(r"[.\n]", text) if re.search(pattern, part, re.IGNORECASE)]
    assert len(found) * 1000 / words <= limit, "\n".join(found)


def test_prose_is_found() -> None:
    assert list(prose("x.py", '"""Says so."""\n# A reason.\nx = 1\n')) == ["Says so.", "A reason."]
    assert list(prose("x.yml", "- name: Tell them\n  description: What is it\n")) == ["Tell them", "What is it"]
    assert "".join(prose("x.md", "Text `code`\n\n    code\n| a | b |\n")).split() == ["Text"]
