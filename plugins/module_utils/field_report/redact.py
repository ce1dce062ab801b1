# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reduce text to the words of this collection and to typed values. Everything else is replaced.

A form cannot tell a password from a word, so nothing is searched for. A word stays only if a public text has the same
one (``words``), or if its whole form is that of a value that identifies no site. Names of the site (``known``) are
replaced first, because a node's number explains more than a gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

#: The replacements of a word, of an address, and of the part of a path from its first unknown word.
GONE, ADDRESS, PATH = "REDACTED", "ADDRESS", "PATH"
#: Only these separate words. They identify nothing.
_WORD = re.compile(r"[^\s\"'`,;()\[\]{}<>|=]+")
#: Marks around a word, and the maximum characters of a word.
_EDGES, _LONGEST = ".:!?*#-", 120
_GAPS = re.compile(rf"\b{GONE}(?:[\s:/.,;-]+{GONE}\b)+")
#: Packages whose files and exceptions are public.
_PACKAGE = r"(?:vllm|torch|flashinfer|triton|nccl|ray|transformers|safetensors|huggingface_hub|pydantic|xgrammar)"
#: A file of such a package, as in a traceback, and with its line and function.
_FILE = rf"{_PACKAGE}/[\w/.]{{1,80}}\.(?:py|so|cc|cu|cuh|h)"
_INSTALLED = re.compile(rf"(?:.*/(?:site|dist)-packages/)?({_FILE}(?::\d{{1,6}}(?::\w{{1,80}})?)?)")
_ADDRESS = re.compile(
    r"\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?::\d{1,5})?|\d{1,3}(?:-\d{1,3}){3}"
    r"|(?:[0-9a-f]{2}[:-]){5,}[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}"
    r"|(?:[0-9a-f]{0,4}:){2,8}(?:[0-9a-f]{0,4}|\d{1,3}(?:\.\d{1,3}){3})(?:%\w+)?(?:/\d{1,3})?",
    re.IGNORECASE,
)
#: Text in the form of an address: a time, and a PCI address.
_CLOCK = re.compile(r"\d\d?:\d\d:\d\d|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMBER = r"[~+]?\d{1,12}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?"
_UNIT = r"(?:%|x|ms|us|ns|min|[kKMGT]?i?(?:B|b|bps|Hz|W|T/s)(?:/s)?|s|[dhmCVAkKMGT])"
#: Text that may follow the first number of a release: numbers, letters of a build, and the digits of a commit.
_PART = (
    r"(?:\d{1,8}(?:[A-Z]{1,6}\d{0,6})?"
    r"|\d{0,4}(?:rc|dev|post|a|b|k|cu|cuda|git|ubuntu|build|deb|nvidia|generic|p|x)\d{0,6}"
    r"|deb\d{1,2}u\d{1,3}|g[0-9a-f]{7,12})"
)
_RELEASE = rf"v?(?:\d:)?\d{{1,8}}(?:[.+~_-]{_PART}){{1,8}}"
_OCTET = r"0{0,2}(?:25[0-5]|2[0-4]\d|1?\d?\d)"
#: An address inside of a word, or a number of more digits than a release has.
_IDENTIFIES = re.compile(
    rf"(?<!\d)(?:{_OCTET}\.){{3}}{_OCTET}(?!\d)|(?<!\d)(?:{_OCTET}_){{3}}{_OCTET}(?!\d)"
    r"|^(?:[.:_-]*\d){16,}[.:_-]*$"
)
#: Text that may precede another word: the node of a problem, and the number of a custom build's release.
_BEGIN = re.compile(r"(node\d{1,3}\.|\d{1,3}(?:\.\d{1,5}){1,2}[-+])(.+)")
#: The forms of values that identify no site: numbers, times, releases, PCI addresses, codes, the kernel's names of
#: ports, architectures, variables of known programs, files and exceptions of packages, and a report's own words.
_TYPED = re.compile(
    rf"{_NUMBER}{_UNIT}?(?:/{_NUMBER}{_UNIT}?)?"
    r"|\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,6})?)?"
    r"|\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?)?"
    rf"|{_RELEASE}|(?:nvidia-(?:driver|dkms|utils)|cuda-toolkit|linux-(?:image|modules|headers))"
    rf"-(?:{_RELEASE}|\d{{1,3}})(?:-open|-server)?"
    r"|/dev/(?:nvidia(?:\d{1,2}|ctl|-modeset|-uvm(?:-tools)?)?|infiniband/\w{1,12})|/usr/local/cuda(?:-\d{1,2}(?:\.\d{1,2})?)?"
    r"|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|0x[0-9a-f]{1,8}|hmac:[0-9a-f]{1,64}"
    r"|(?:en|eth|wl|ib|roce)(?:P\d{1,4})?(?:[psfno]\d{1,4}|np\d{1,2}){0,5}\d{0,2}"
    r"|mlx\d_\d|docker\d|(?:node|rank|cuda|gpu)\d{1,3}"
    r"|(?:sm|compute)_?\d{2,3}[a-z]?|cu\d{2,3}|python\d\.\d{1,2}|[bf]p\d{1,2}|u?int\d{1,2}"
    r"|(?:VLLM|NCCL|RAY|CUDA|TORCH|FLASHINFER|TRITON|HF)_[A-Z][A-Z0-9_]{1,60}"
    r"|(?:Ray)?(?:Worker|EngineCore|APIServer)(?:Proc)?(?:_(?:[A-Z]{2,3})?\d{1,4}){0,5}|[A-Z]\w{1,40}LinearKernel"
    rf"|{_FILE}(?::\d{{1,6}}(?::\w{{1,80}})?)?|{_PACKAGE}(?:\.\w{{1,40}}){{0,6}}\.[A-Z]\w{{1,60}}"
    rf"|{GONE}|{ADDRESS}|{PATH}"
)
#: The digits of a card or an account, in groups.
_GROUPS = re.compile(r"\b\d{4}(?:[\s,/+-]{1,2}\d{4}){2,4}\b|\b\d{8}\s\d{8}\b|\b\d{4}\s\d{6}\s\d{5}\b")
_MOST_NUMBER = 10**15
#: Bounds of plain data: entries of a list, and characters of a text.
MOST_ENTRIES, MOST_TEXT = 500, 600
Words = Collection[str]


def words(text: str) -> set[str]:
    """Return the words of a public text, and the folders of its paths, for ``redacted``."""
    found = {each[0].strip(_EDGES).casefold() for each in _WORD.finditer(text)}
    return found | {folder for path in found if path.startswith("/") for folder in _folders(path)}


def _folders(path: str) -> list[str]:
    """Return the folders above a path, the nearest first, without the root."""
    return [path[:end] for end in range(len(path) - 1, 0, -1) if path[end] == "/"]


def redacted(value: Any, known: Mapping[str, str], public: Words) -> Any:
    """Return plain data whose text, also that of keys, has only public words, typed values and replacements.

    ``known``: the site's own names and their replacements. ``public``: of words(), which has the keys of a report.
    """
    # A part of a longer word stays: that is no public word.
    names = [
        (re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE), known[name])
        for name in sorted(filter(None, known), key=len, reverse=True)
    ]
    kept = {*public, *(new.casefold() for new in known.values())}

    def change(text: str) -> str:
        for name, new in names:
            text = name.sub(new, text)
        text = _GROUPS.sub(GONE, text)
        return _GAPS.sub(GONE, _WORD.sub(lambda found: _word(found[0], kept), text))

    return _each(value, change)


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): _each(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_each(each, change) for each in value]
    # The number of a card; no size in bytes has so many digits.
    return GONE if isinstance(value, int) and abs(value) >= _MOST_NUMBER else value


def _word(word: str, public: Words) -> str:
    """Return a word with the marks around it, or its replacement."""
    if len(word) > _LONGEST:
        return GONE
    # Before the marks are removed: an address may begin or end with them.
    if _is_address(word.rstrip(".")):
        return ADDRESS
    bare = word.strip(_EDGES)
    begin, _bare, end = word.partition(bare) if bare else (word, "", "")
    return f"{begin}{_bare_word(bare, public)}{end}" if bare else word


def _is_address(word: str) -> bool:
    return bool(_ADDRESS.fullmatch(word)) and not _CLOCK.fullmatch(word.strip(":"))


def _bare_word(word: str, public: Words) -> str:
    if _is_address(word):
        return ADDRESS
    # A range of addresses has the form of a release, and so has an account number.
    if word.casefold() in public or (_TYPED.fullmatch(word) and not _IDENTIFIES.search(word)):
        return word
    if word.startswith("/"):
        return installed(word) or _path(word, public)
    if known := _BEGIN.fullmatch(word):
        return f"{known[1]}{_bare_word(known[2], public)}"
    first, colon, rest = word.partition(":")
    # Such as FILE:LINE. Only the begin of an address or a key could be public.
    if colon and not _is_address(first) and (first.casefold() in public or first.isdigit()):
        return f"{first}:{_word(rest, public)}"
    return GONE


def installed(path: str) -> str:
    """Return the path of a public package's file, with ":LINE:FUNCTION", below the packages, "" for another file."""
    found = _INSTALLED.fullmatch(path)
    return found[1] if found else ""


def _path(path: str, public: Words) -> str:
    """Return a path up to its last public folder."""
    path, colon, place = path.partition(":")
    folder = next((each for each in [path, *_folders(path)] if each.rstrip("/").casefold() in public), "")
    shown = path if folder == path else f"{folder}/{PATH}" if folder else PATH
    return f"{shown}{colon}{_word(place, public)}" if colon else shown


def bounded(value: Any) -> Any:
    """Return plain data within the limits. Control characters become spaces."""
    if isinstance(value, str):
        return _cut(" ".join("".join(char if char.isprintable() else " " for char in value).split()))
    if isinstance(value, Mapping):
        return {_cut(str(key)): bounded(each) for key, each in list(value.items())[:MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [bounded(each) for each in value[:MOST_ENTRIES]]
    return value if value is None or isinstance(value, bool | int | float) else _cut(str(value))


def _cut(text: str) -> str:
    """Return the begin of a text, in whole words: a part of a key has another form."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 4].rpartition(' ')[0]} ..."
