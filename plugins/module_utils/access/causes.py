# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why the controller cannot read a node: each cause has its own fix."""

from __future__ import annotations

import re
from functools import partial

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import LAB, SOURCE, STATUS, Check

#: Maximum characters of a message that a fix follows.
_SHOWN = 300
_UNKNOWN = "run 'ssh USER@ADDRESS'; then check ansible_host, ansible_user and the key"
#: ssh frames its warnings with at signs.
_FRAME = re.compile(r"(?<!\S)@+(?!\S)")


#: Creates a cause. ``pattern`` finds it in a message of ssh, sudo or Ansible, and ``shows`` is such a message. The fix
#: has ``USER@ADDRESS``, ``USER`` and ``ADDRESS`` for the values of a node.
_cause = partial(
    Check[str],
    STATUS,
    topic="Access to the nodes",
    source="OpenSSH, sudo and ansible-core (messages)",
    tested=LAB,
)


_OTHER_USER = "if USER is not the login user, correct ansible_user"
_NO_USER = "set ansible_user: without it, ssh logs in with your own name here, unless ~/.ssh/config has another"


def filled(text: str, user: str, address: str) -> str:
    """Return a text about USER@ADDRESS for one node; ``user`` is "" if ssh chooses it."""
    target = f"{user}@{address}" if user else address
    text = text if user else text.replace(_OTHER_USER, _NO_USER)
    words = {"USER@ADDRESS": target, "USER": user or "the login user", "ADDRESS": address}
    return re.sub(r"\b(?:USER@ADDRESS|USER|ADDRESS)\b", lambda found: words[found[0]], text)


PASSWORD_WRONG = _cause(
    "login-password-wrong",
    pattern=r"Invalid/incorrect password",
    shows="Invalid/incorrect password: nvidia@192.168.1.11: Permission denied (publickey,password).",
    why="the login password is wrong, or sshd accepts no password",
    fix="repeat with the login password: the one that 'ssh -o PubkeyAuthentication=no USER@ADDRESS' accepts; "
    "if sshd accepts none, add your public key to ~/.ssh/authorized_keys of USER on its own console",
    # Only the program sshpass, which no test uses, lets Ansible distinguish it.
    tested=SOURCE,
)
#: In the order of the search: ssh prints the warning about a changed key before its usual last line.
CAUSES = (
    _cause(
        "host-key-changed",
        pattern=r"REMOTE HOST IDENTIFICATION HAS CHANGED|has another host key than known_hosts",
        shows="WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!",
        why="the machine was reinstalled, or another machine has its address now",
        fix="if the machine at ADDRESS was reinstalled, run 'ssh-keygen -R ADDRESS', then 'ssh USER@ADDRESS', and "
        "compare the new fingerprint; otherwise find the machine that answers at ADDRESS first",
    ),
    _cause(
        "host-key-unknown",
        pattern=r"Host key verification failed|add this host's fingerprint to your known_hosts",
        shows="Host key verification failed.",
        why="the controller has not stored the node's host key yet",
        fix="run playbooks/access.yml, or 'ssh USER@ADDRESS' once; compare the fingerprint and accept it",
    ),
    PASSWORD_WRONG,
    _cause(
        "login-denied",
        pattern=r"Permission denied \(",
        shows="nvidia@192.168.1.11: Permission denied (publickey,password).",
        why="the node does not have the controller's public key, or the login user is another one",
        fix=(f"run playbooks/access.yml, or 'ssh-copy-id USER@ADDRESS'; {_OTHER_USER}"),
    ),
    _cause(
        "sudo-password-missing",
        pattern=r"Missing sudo password|sudo: a (?:password|terminal) is required",
        shows="Missing sudo password",
        why="sudo on the node asks for a password",
        fix="append -K to the command: it asks for the sudo password of USER",
    ),
    _cause(
        "sudo-password-wrong",
        pattern=r"Incorrect sudo password|incorrect password attempt",
        shows="Incorrect sudo password",
        why="the sudo password is wrong",
        fix="repeat the command with -K and the password that 'ssh -t USER@ADDRESS sudo -k id' accepts; nodes "
        "with different passwords need ansible_become_password in a vault",
    ),
    _cause(
        "sudo-denied",
        pattern=r"is not in the sudoers file|is not allowed to (?:execute|run)|may not run sudo",
        shows="nvidia is not in the sudoers file.",
        why="the login user has no administrator's rights",
        fix="as an administrator, run 'usermod -aG sudo USER' on ADDRESS, or correct ansible_user",
    ),
    _cause(
        "name-unknown",
        pattern=(
            r"Could not resolve hostname|Name or service not known|Temporary failure in name resolution|nodename "
            r"nor servname"
        ),
        shows="ssh: Could not resolve hostname spark1: Name or service not known",
        why="the controller cannot resolve the node's name",
        fix="set ansible_host to the IP address instead of ADDRESS, which 'hostname -I' prints on the node",
    ),
    _cause(
        "ssh-refused",
        pattern=r"Connection refused",
        shows="ssh: connect to host 192.168.1.11 port 22: Connection refused",
        why="the machine is on, but no sshd listens at this address and port",
        fix=(
            "run 'sudo systemctl enable --now ssh' on the machine; then check ansible_host and ansible_port with "
            "'ssh USER@ADDRESS'"
        ),
    ),
    _cause(
        "no-route",
        pattern=r"No route to host|Network is unreachable|Host is down",
        shows="ssh: connect to host 192.168.1.11 port 22: No route to host",
        why="the node is off, or its address is not in the controller's network",
        fix="run 'ping ADDRESS'; check that the node is on, and that ADDRESS is its RJ45 or Wi-Fi address",
    ),
    _cause(
        "ssh-timeout",
        # The last one: a node that lost its power less than a minute after ssh's last command.
        pattern=(
            r"(?:Connection|Operation) timed out|timed out during banner exchange"
            r"|waiting for privilege escalation prompt"
        ),
        shows="ssh: connect to host 192.168.1.11 port 22: Connection timed out",
        why="the node is off, a firewall drops the packets, or exhausted memory blocks the node",
        fix="run 'ping ADDRESS'; check that ADDRESS is its RJ45 or Wi-Fi address; power-cycle a node that answers "
        "to ping but not to 'ssh USER@ADDRESS'",
    ),
)


def find(message: str) -> Check[str] | None:
    """Return the cause of an error message, None if it is unknown."""
    return next((cause for cause in CAUSES if re.search(cause.pattern, message)), None)


def fix(message: str, user: str, address: str) -> str:
    """Return the fix for a node that gave this error."""
    cause = find(message)
    return filled(cause.fix if cause else _UNKNOWN, user, address)


def short(message: str) -> str:
    """Return an error message on one line, without frames and Ansible's prefix, and limited."""
    text = " ".join(_FRAME.sub(" ", message).split()).removeprefix("Task failed: ").rstrip(".")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
