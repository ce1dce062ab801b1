# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare the host key that a machine offers with those in known_hosts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence

#: The only type that is stored: each OpenSSH since 2014 has it, and ssh prefers it.
TYPE = "ssh-ed25519"
#: The states of a host's key.
STORED, NEW, CHANGED, OTHER = "stored", "new", "changed", "other"


def offered(text: str) -> str:
    """Return the key in the output of `ssh-keyscan -t ed25519` in the form of known_hosts without the name, or ""."""
    found = re.search(r"^[^#\s]\S* (ssh-ed25519 [A-Za-z0-9+/]{68})$", text, re.MULTILINE)
    return found[1] if found else ""


def stored(text: str) -> list[str]:
    """Return the keys, each with its type, in the output of ``ssh-keygen -F``."""
    lines = [line.split() for line in text.splitlines()]
    return [" ".join(words[1:3]) for words in lines if len(words) > 2 and words[0][0] not in "#@"]


def judge(offer: str, known: Sequence[str]) -> str:
    """Return the state of an offered key. OTHER: known_hosts has a key of another type, which ssh compares itself."""
    same_type = [key for key in known if key.startswith(f"{TYPE} ")]
    if not same_type:
        return OTHER if known else NEW
    return STORED if offer in same_type else CHANGED


def fingerprint(host_key: str) -> str:
    """Return the fingerprint that `ssh-keygen -l` prints for a key such as "ssh-ed25519 AAAA..."."""
    digest = hashlib.sha256(base64.b64decode(host_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def name(address: str, port: int) -> str:
    """Return the name of a host in known_hosts."""
    return address if port == 22 else f"[{address}]:{port}"
