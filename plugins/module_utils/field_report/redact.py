# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove text that identifies a site from a report, and find any that is left.

Patterns replace text by its form. They cannot know that nas01 is a machine, so a report also has a list of the site's
own names (``known``). A line is cut before the patterns, so that a long one costs little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import evidence

#: Maximum characters of a line.
_MOST_LINE = 4096
#: Text that may be a key.
KEY = re.compile(
    r"\b(?:hf_|sk-|nvapi-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AIza|dckr_pat_|tskey-|ya29\.|eyJ)[\w.-]{8,}"
    r"|\bA[KS]IA[0-9A-Z]{12,}\b|\b[0-9a-f]{24,}\b|\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{24,}"
)
#: Sites that a message may name.
_PUBLIC = (
    "github.com|githubusercontent.com|huggingface.co|nvidia.com|pytorch.org|vllm.ai|pypi.org|pythonhosted.org|nvcr.io|ghcr.io"
    "|docker.io|containerd.io|netplan.io"
)
_DOMAINS = "com|net|org|edu|gov|mil|info|io|dev|cloud|tech|eu|de|at|ch|uk|fr|nl|es|it|se|pl|us|ca|au|nz|jp|cn|in|br"
_LOCAL = "local|lan|home|internal|intranet|localdomain|corp|private|test|example|invalid|arpa"
#: Text that identifies a machine or a person, or that may be a key: the replacement, and its pattern. The text of a
#: group stays. A pattern is bounded or begins only where a word does: otherwise one long word costs the square of its
#: length.
_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "URL": re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s\"'),]+", re.IGNORECASE),
    # Before the patterns for parts of it. A module's message may quote an assignment.
    "SECRET": re.compile(
        r"((?:password|passwd|passphrase|secret|token|api[_-]?key|psk)[\"']?\s*[:=]\s*[\"']?)(?!SECRET\b|REDACTED\b)[^\s\"',;)}]+",
        re.IGNORECASE,
    ),
    "EMAIL": re.compile(
        r"[\w.+-]{1,64}@(?![\w.:-]+\.(?:service|socket|scope|slice|timer)\b)[a-z][\w-]*(?:\.[\w-]+)*", re.IGNORECASE
    ),
    # Also the name of a USB adapter's interface, which has its hardware address.
    "MAC": re.compile(
        r"\b(?:[0-9a-f]{2}[:-]){5,}[0-9a-f]{2}\b|\b(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}\b|\b(?:en|wl|et)x[0-9a-f]{12}\b",
        re.IGNORECASE,
    ),
    "ADDRESS": re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?\b"),
    # Neither a time of day nor a PCI address.
    "ADDRESS6": re.compile(
        r"(?<![\w:.])(?!\d\d:\d\d:\d\d(?![\w:]))(?![0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b)"
        r"(?:[0-9a-f]{0,4}:){2,8}(?:[0-9a-f]{1,4}|ADDRESS)?(?:%\w+)?(?:/\d{1,3})?(?![\w:])",
        re.IGNORECASE,
    ),
    "UUID": re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE),
    "HOST": re.compile(
        rf"(?<![\w/@.-])(?!(?:[\w-]+\.)*(?:{_PUBLIC})\b)(?=[\w.-]*[a-z])(?:[\w-]+\.)+(?:{_LOCAL}|{_DOMAINS})\b(?![.]?[\w(-])"
        # The server of a mount or a copy.
        r"|(?<![\w/.-])(?!HOST:)[a-z][\w.-]+(?=:/\w)",
        re.IGNORECASE,
    ),
    # A report's own digests of variables have a random key.
    "GUID": re.compile(r"(?<!hmac:)\b(?:0x)?(?=[a-f]*\d)[0-9a-f]{16,23}\b", re.IGNORECASE),
    "SERIAL": re.compile(r"\b(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{10,}\b|\b\d{13,}\b"),
    "NUMBER": re.compile(
        r"(\bserial(?:[ _-]?(?:number|no|num))?\b[\"']?\s*(?:[:=#]\s*)?[\"']?)(?=[\w-]*\d)[\w-]{5,}", re.IGNORECASE
    ),
    "KEY": KEY,
    "PATH": re.compile(r"(?<![\w./])(?:~[\w.-]*)?/[\w.@+~%#-]+(?:/[\w.@+~%#-]*)*"),
}
#: Folders and files that every machine with this collection has, and the folders whose whole content such a machine
#: has.
_SYSTEM = re.compile(
    r"/(?:health|metrics|version|ping|v\d(?:/(?:models|completions|embeddings|rerank|score|responses|chat(?:/completions)?))?)?"
    r"|/(?:etc|usr|run|proc|sys|dev|opt|var|boot|lib|tmp)"
    r"|/(?:usr/(?:bin|sbin|lib\w*|include|libexec|local/(?:s?bin|lib|cuda(?:-[\d.]+)?))|sys|bin|sbin|lib\w*/(?:netplan|modules|systemd))(?:/[\w.@+-]+)*"
    r"|/proc/(?:\d+|self|[a-z]+)(?:/(?!root\b|cwd\b|fd\b)\w+)*"
    r"|/dev/(?:null|shm|infiniband(?:/\w+)?|nvidia[\w-]*|dri|kfd)"
    r"|/opt/(?:cuda|gb10(?:/(?:build|images|models|(?:nccl|runtime|venv)(?:/[\w.@+-]+)*))?)"
    r"|/etc/(?:gb10(?:/(?:\w+\.(?:env|key|token|webhook|nft)|(?:hub-model|gates|watchdog|flight-recorder|image-options|record_secrets)\.json"
    r"|users\.d|overrides\.d|vllm|gateway|records(?:/current)?|tls(?:/(?:ca|api)\.(?:crt|key))?))?"
    r"|netplan(?:/(?:(?:01-network-manager-all|50-cloud-init|60-gb10-qsfp)\.yaml|(?:\d{1,3}-)?(?:NM-UUID|NAME)(?:\.yaml)?))?"
    r"|NetworkManager(?:/(?:conf\.d|system-connections))?|dgx-release|os-release|hosts|fstab|default/grub|apt(?:/sources\.list(?:\.d)?)?"
    r"|systemd(?:/system(?:/gb10-[\w.@-]+)?)?|modprobe\.d|sysctl\.d|sudoers(?:\.d)?|nftables\.conf)"
    r"|/run/(?:netplan|systemd(?:/\w+)*|NetworkManager(?:/system-connections)?|reboot-required(?:\.pkgs)?|gb10[\w-]*(?:/[a-z]+\.json)?)"
    r"|/var/(?:cache|lib|log|tmp|lib/(?:dpkg|apt|docker)(?:/[\w.-]+)*"
    r"|(?:cache|lib)/(?:private/)?gb10(?:-(?:netplan|vllm-build|memory-guard|watchdog|flight-recorder|kernels|lab))?(?:/(?:netplan|\w+\.json))?)"
)
#: Names that identify nothing: of this collection, of the system, and of programs.
COMMON = frozenset(
    {
        "gb10",
        "root",
        "nvidia",
        "ubuntu",
        "nobody",
        "localhost",
        "vllm",
        "ray",
        "docker",
        "head",
        "worker",
        "all",
        "ungrouped",
    }
)
#: Names of at least this length that have a digit are replaced in longer words too.
_DISTINCT = 8


def redacted(value: Any, known: Mapping[str, str]) -> Any:
    """Return plain data with all identifying text replaced. ``known``: the site's own names and their replacements.

    Keys stay: a report has only those of its own schema.
    """
    return _each(value, _redactor(known))


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _each(each, change) for key, each in value.items()}
    return [_each(each, change) for each in value] if isinstance(value, list | tuple) else value


def _redactor(known: Mapping[str, str]) -> Callable[[str], str]:
    names = [(_whole(name), known[name]) for name in sorted(filter(None, known), key=len, reverse=True)]

    def change(text: str) -> str:
        for name, new in names:
            text = name.sub(new, text)
        text = "\n".join(evidence.cut(line, _MOST_LINE) for line in text.split("\n"))
        for kind, pattern in _PATTERNS.items():
            text = pattern.sub(partial(_replacement, kind), text)
        return text

    return change


def _replacement(kind: str, found: re.Match[str]) -> str:
    if kind == "PATH":
        return _path(found[0])
    return f"{found[1] or ''}{kind}" if found.re.groups else kind


def _path(path: str) -> str:
    """Return the part of a path that every machine has, and PATH for the rest."""
    bare = path.rstrip(".")
    if _SYSTEM.fullmatch(bare.rstrip("/") or "/") or bare.startswith("PATH"):
        return path
    folder = bare.rstrip("/").rpartition("/")[0]
    while folder and not _SYSTEM.fullmatch(folder):
        folder = folder.rpartition("/")[0]
    return f"{folder}/PATH" if folder.count("/") > 1 else "PATH"


def _whole(name: str) -> re.Pattern[str]:
    """Return a pattern for a name that is not a part of a longer word, unless the name is distinct."""
    text = re.escape(name)
    distinct = len(name) >= _DISTINCT and any(char.isdigit() for char in name)
    return re.compile(text if distinct else rf"(?<!\w){text}(?!\w)", re.IGNORECASE)


def leaks(value: Any, known: Mapping[str, str]) -> list[str]:
    """Return the kinds of identifying text that plain data still has, sorted and without the text itself."""
    names = [_whole(name) for name, new in known.items() if name and name != new]
    found = set()
    for text in _texts(value):
        found |= {
            kind
            for kind, pattern in _PATTERNS.items()
            for match in pattern.finditer(text)
            if _replacement(kind, match) != match[0]
        }
        found |= {"NAME" for name in names if name.search(text)}
    return sorted(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
