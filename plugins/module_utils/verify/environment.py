# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of the ranks that may leave a node, and how.

Only variables on a short list leave it as text. Others leave it as a keyed digest, because a short secret could be
guessed from a plain digest. The controller creates the key for each run.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

#: Prefixes and names of variables without secrets.
_PLAIN = ("NCCL_", "UCX_", "GLOO_")
_PLAIN_NAMES = frozenset({"VLLM_HOST_IP", "VLLM_NCCL_SO_PATH", "LD_PRELOAD", "RAY_memory_monitor_refresh_ms"})
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
#: Variables that systemd, a shell or a login sets, different for each process.
_OF_PROCESS = re.compile(
    r"INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|MEMORY_PRESSURE_\w+|NOTIFY_SOCKET|WATCHDOG_\w+"
    r"|MAINPID|HOSTNAME|PWD|OLDPWD|SHLVL|_|SSH_\w+|XDG_\w+|DBUS_\w+|CREDENTIALS_DIRECTORY|GB10_RANK_GROUP|CONTAINER_ID"
)
#: The begin of a digest.
DIGEST = "hmac:"
_DIGITS = 16


def of_process(environ: str) -> dict[str, str]:
    """Return the variables in a /proc/PID/environ, without those that differ for each process."""
    pairs = (entry.partition("=") for entry in environ.split("\0"))
    return {
        name: value
        for name, equals, value in pairs
        if equals and re.fullmatch(r"\w+", name) and not _OF_PROCESS.fullmatch(name)
    }


def sendable(variables: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the variables in a form that may leave the node. Without ``key``, only the plain ones."""
    sent = {}
    for name, value in sorted(variables.items()):
        if (name.startswith(_PLAIN) or name in _PLAIN_NAMES) and not _SECRET.search(name):
            sent[name] = value
        elif key:
            text = f"{name}={value}".encode("utf-8", "surrogatepass")
            sent[name] = DIGEST + hmac.new(key.encode(), text, hashlib.sha256).hexdigest()[:_DIGITS]
    return sent
