# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemd units: quoting, files of variables, and the digest of a service's launch inputs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

#: The variable in a unit's environment that holds the digest of the service's launch inputs.
INPUTS_VARIABLE = "GB10_INPUTS"
PLACEHOLDER = "@inputs@"
#: The name of an environment variable.
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=(?:"((?:[^"\\]|\\.)*)"|(.*))')


def unit_with_digest(text: str, inputs: Sequence[Any]) -> dict[str, str]:
    """Return {text, inputs}: a unit with its placeholder `@inputs@` replaced by a digest of the unit itself and of
    `inputs`.

    `inputs` are the service's other launch inputs, such as its ranks' environment.
    Raises ValueError without placeholder.
    """
    if PLACEHOLDER not in text:
        raise ValueError(f"the unit has no placeholder {PLACEHOLDER}")
    value = digest([text, list(inputs)])
    return {"text": text.replace(PLACEHOLDER, value), "inputs": value}


def exec_line(argv: Sequence[str]) -> str:
    """Return an argv as the value of ExecStart=."""
    return " ".join(systemd_quote(word) for word in argv)


def digest(data: Any) -> str:
    """Return a SHA-256 over plain data that does not depend on the order of keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def systemd_quote(word: str, exec_line: bool = True) -> str:
    """Quote one word for ExecStart= or Environment=. Source: service(5), "COMMAND LINES"; exec(5).

    Raises ValueError for line breaks, which neither setting supports; systemd counts a carriage return as one.
    """
    if re.search(r"[\n\r\0]", word):
        raise ValueError(f"{word!r} contains a line break")
    word = word.replace("%", "%%")
    if exec_line:
        word = word.replace("$", "$$")
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./$-]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def environment_file(variables: Mapping[str, str], secret: bool = False) -> str:
    """Return the variables as a file that both systemd's EnvironmentFile= and a POSIX shell read alike, sorted.

    Raises ValueError that lists every invalid name and every value with a line break. ``secret``: whether a text in a
    name's place may be a secret, which the error must not show.
    """
    lines, wrong = [], []
    for number, (name, value) in enumerate(sorted(variables.items()), 1):
        if not NAME.fullmatch(name):
            shown = f"name {number} in alphabetical order" if secret else repr(name)
            wrong.append(f"{shown} is not the name of an environment variable")
        elif re.search(r"[\n\r\0]", value):
            wrong.append(f"the value of {name} contains a line break")
        plain = re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]*", value)
        quoted = value if plain else '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
        lines.append(f"{name}={quoted}\n")
    if wrong:
        raise ValueError("; ".join(wrong))
    return "".join(lines)


def variables_of_file(text: str) -> dict[str, str]:
    """Return the variables in a file of environment_file(); its comments are skipped."""
    matches = filter(None, map(_ASSIGNMENT.fullmatch, text.split("\n")))
    return {match[1]: match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2]) for match in matches}


def engine_file(variables: Mapping[str, str]) -> str:
    """Return variables of a file of environment_file() as --env-file of Docker and Podman.

    Both take the rest of a line as it is, with quotes and backslashes. Source: docker/cli, opts/file.go;
    containers/podman, pkg/env/env.go.
    """
    return "".join(f"{name}={value}\n" for name, value in sorted(variables.items()))


def unit_of_cgroup(text: str) -> str:
    """Return the systemd service in a /proc/PID/cgroup, or "". A gb10 slice counts as its container's service.

    The outermost service counts: a user names those inside of user@1000.service. One inside of a scope is that of a
    container or a session.
    """
    units = re.findall(r"^\d+:[^:\n]*:(?:/[^/\n]+\.slice)*/([^/\n]+\.service)(?=/|$)", text, re.MULTILINE)
    slices = re.findall(r"^\d+:[^:\n]*:/(?:gb10\.slice/)?(gb10-[^/\n]+)\.slice/", text, re.MULTILINE)
    return str(units[-1]) if units else f"{slices[-1]}.service" if slices else ""
