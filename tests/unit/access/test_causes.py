"""Why a node cannot be read: each cause has its own fix, with the user and the address."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Check

SSH = "Task failed: Failed to connect to the host via ssh: "
TARGET = "nvidia@198.51.100.11"
CHANGED = f"""{SSH}@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Host key verification failed."""


@pytest.mark.parametrize(
    ("message", "expected", "fix"),
    [
        (
            "Task failed: Missing sudo password",
            "sudo-password-missing",
            "append -K to the command: it asks for the sudo password of nvidia",
        ),
        ("Task failed: Incorrect sudo password", "sudo-password-wrong", f"'ssh -t {TARGET} sudo -k id'"),
        (
            "Task failed: nvidia is not in the sudoers file.",
            "sudo-denied",
            "'usermod -aG sudo nvidia' on 198.51.100.11",
        ),
        (f"{SSH}{TARGET}: Permission denied (publickey,password).", "login-denied", f"'ssh-copy-id {TARGET}'"),
        (
            f"{SSH}Invalid/incorrect password: Permission denied, please try again.",
            "login-password-wrong",
            f"PubkeyAuthentication=no {TARGET}'",
        ),
        (f"{SSH}Host key verification failed.", "host-key-unknown", f"'ssh {TARGET}' once"),
        (CHANGED, "host-key-changed", f"run 'ssh-keygen -R 198.51.100.11', then 'ssh {TARGET}'"),
        (
            f"{SSH}ssh: connect to host 198.51.100.11 port 22: Connection timed out",
            "ssh-timeout",
            "run 'ping 198.51.100.11'",
        ),
        (f"{SSH}Connection timed out during banner exchange", "ssh-timeout", "power-cycle"),
        ("Timeout (12s) waiting for privilege escalation prompt:", "ssh-timeout", "run 'ping 198.51.100.11'"),
        (f"{SSH}ssh: connect to host 198.51.100.11 port 22: No route to host", "no-route", "run 'ping 198.51.100.11'"),
        (f"{SSH}ssh: connect to host 198.51.100.11 port 22: Connection refused", "ssh-refused", f"'ssh {TARGET}'"),
        (f"{SSH}ssh: Could not resolve hostname spark1: Name or service not known", "name-unknown", "set ansible_host"),
        (
            f"{SSH}kex_exchange_identification: Connection closed by remote host",
            "",
            f"run 'ssh {TARGET}'; then check ansible_host",
        ),
    ],
)
def test_each_cause_has_its_fix_with_user_and_address(message: str, expected: str, fix: str) -> None:
    found = causes.find(message)
    assert (found.id if found else "") == expected
    text = causes.fix(message, "nvidia", "198.51.100.11")
    assert fix in text
    assert "USER" not in text and "ADDRESS" not in text


@pytest.mark.parametrize("cause", causes.CAUSES, ids=lambda cause: cause.id)
def test_the_message_of_each_cause_finds_it(cause: Check[str]) -> None:
    assert causes.find(cause.shows) is cause


def test_ssh_chooses_a_user_that_the_inventory_does_not_set() -> None:
    assert "'ssh-copy-id 198.51.100.11'; set ansible_user: without it, ssh logs in" in causes.fix(
        "Permission denied (publickey).", "", "198.51.100.11"
    )


def test_a_message_is_one_short_line_without_frames() -> None:
    expected = "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! Host key verification failed"
    assert causes.short(CHANGED) == f"Failed to connect to the host via ssh: {expected}"
    assert len(causes.short("x" * 10_000)) < 400
