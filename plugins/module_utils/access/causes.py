# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why the controller cannot read a node: each cause has a fix of its own. health/symptoms_access.py has it on a
page."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Maximum characters of a message that a fix follows.
_SHOWN = 300
_UNKNOWN = "run 'ssh USER@ADDRESS'; then check ansible_host, ansible_user and the key"
#: ssh frames its warnings with at signs.
_FRAME = re.compile(r"(?<!\S)@+(?!\S)")


@dataclass(frozen=True)
class Cause:
    """A cause. ``pattern`` finds it in a message of ssh, sudo or Ansible, and ``shows`` is such a message.

    The fix has ``USER@ADDRESS``, ``USER`` and ``ADDRESS`` for the values of a node.
    """

    id: str
    pattern: str
    shows: str
    cause: str
    fix: str


def filled(text: str, user: str, address: str) -> str:
    """Return a text about USER@ADDRESS for one node; ``user`` is "" if ssh chooses it."""
    target = f"{user}@{address}" if user else address
    words = {"USER@ADDRESS": target, "USER": user or "the login user", "ADDRESS": address}
    return re.sub(r"\b(?:USER@ADDRESS|USER|ADDRESS)\b", lambda found: words[found[0]], text)


#: In the order in which they are searched: ssh prints the warning about a changed key before its usual last line.
CAUSES = (
    Cause(
        "host-key-changed",
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|has another host key than known_hosts",
        "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!",
        "the machine was reinstalled, or another machine has its address now",
        "if the machine at ADDRESS was reinstalled, run 'ssh-keygen -R ADDRESS', then 'ssh USER@ADDRESS', and "
        "compare the new fingerprint; otherwise find the machine that answers at ADDRESS first",
    ),
    Cause(
        "host-key-unknown",
        r"Host key verification failed|add this host's fingerprint to your known_hosts",
        "Host key verification failed.",
        "the controller has not stored the node's host key yet",
        "run playbooks/access.yml, or 'ssh USER@ADDRESS' once; compare the fingerprint and accept it",
    ),
    Cause(
        "login-password-wrong",
        r"Invalid/incorrect password",
        "Invalid/incorrect password: nvidia@192.168.1.11: Permission denied (publickey,password).",
        "the login password is wrong, or sshd accepts no password",
        "repeat with the login password: the one with which 'ssh -o PubkeyAuthentication=no USER@ADDRESS' logs "
        "in; if sshd accepts none, add your public key to ~/.ssh/authorized_keys of USER on its own console",
    ),
    Cause(
        "login-denied",
        r"Permission denied \(",
        "nvidia@192.168.1.11: Permission denied (publickey,password).",
        "the node does not have the controller's public key, or the login user is another one",
        "run playbooks/access.yml, or 'ssh-copy-id USER@ADDRESS'; if USER is not the login user, correct ansible_user",
    ),
    Cause(
        "sudo-password-missing",
        r"Missing sudo password|sudo: a (?:password|terminal) is required",
        "Missing sudo password",
        "sudo on the node asks for a password",
        "append -K to the command: it asks for the sudo password of USER",
    ),
    Cause(
        "sudo-password-wrong",
        r"Incorrect sudo password|incorrect password attempt",
        "Incorrect sudo password",
        "the sudo password is wrong",
        "repeat the command with -K and the password with which 'ssh -t USER@ADDRESS sudo -k id' works; nodes "
        "with different passwords need ansible_become_password in a vault",
    ),
    Cause(
        "sudo-denied",
        r"is not in the sudoers file|is not allowed to (?:execute|run)|may not run sudo",
        "nvidia is not in the sudoers file.",
        "the login user has no administrator's rights",
        "as an administrator, run 'usermod -aG sudo USER' on ADDRESS, or correct ansible_user",
    ),
    Cause(
        "name-unknown",
        (
            r"Could not resolve hostname|Name or service not known|Temporary failure in name resolution|nodename "
            r"nor servname"
        ),
        "ssh: Could not resolve hostname spark1: Name or service not known",
        "the controller cannot resolve the node's name",
        "set ansible_host to the IP address instead of ADDRESS, which 'hostname -I' prints on the node",
    ),
    Cause(
        "ssh-refused",
        r"Connection refused",
        "ssh: connect to host 192.168.1.11 port 22: Connection refused",
        "the machine is on, but no sshd listens at this address and port",
        (
            "run 'sudo systemctl enable --now ssh' on the machine; then check ansible_host and ansible_port with "
            "'ssh USER@ADDRESS'"
        ),
    ),
    Cause(
        "no-route",
        r"No route to host|Network is unreachable|Host is down",
        "ssh: connect to host 192.168.1.11 port 22: No route to host",
        "the node is off, or its address is not in the controller's network",
        "run 'ping ADDRESS'; check that the node is on, and that ADDRESS is its RJ45 or Wi-Fi address",
    ),
    Cause(
        "ssh-timeout",
        # The last one: a node that lost its power less than a minute after ssh's last command.
        r"(?:Connection|Operation) timed out|timed out during banner exchange|waiting for privilege escalation prompt",
        "ssh: connect to host 192.168.1.11 port 22: Connection timed out",
        "the node is off, a firewall drops the packets, or exhausted memory blocks the node",
        "run 'ping ADDRESS'; check that ADDRESS is its RJ45 or Wi-Fi address; power-cycle a node that answers "
        "to ping but not to 'ssh USER@ADDRESS'",
    ),
)


def find(message: str) -> Cause | None:
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
