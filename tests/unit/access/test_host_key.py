"""The host key that a machine offers, compared with those in known_hosts. ssh-keyscan is a stand-in."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.access import host_key, io_host_key

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFZ/iSq82TyIp7B5blLFUqoCMvzf/FsSsoq/NyDttbk1"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGCJm339r7ePs6AKTwFnRj7SbwUl9d6jDyLgcnG1e7Ah"
ECDSA = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBA=="
#: As `ssh-keygen -l` prints it for KEY.
FINGERPRINT = "SHA256:OpQq5idftgpSJtZUCOXnD0zp69VhYpR1oSYcvlfR3Ng"
HOST = "127.0.0.1"
SCANNED = (0, f"# {HOST}:22 SSH-2.0-OpenSSH_9.6p1\n{HOST} {KEY}\n", "")


@pytest.fixture
def port() -> Iterator[int]:
    """Yield a port that accepts connections."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def read(known: Path, port: int, scanned: tuple[int, str, str]) -> dict[str, Any]:
    def run(argv: list[str]) -> tuple[int, str, str]:
        if argv[0] == "ssh-keyscan":
            assert argv[1:] == ["-T", "2", "-p", str(port), "-t", "ed25519", HOST]
            return scanned
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return io_host_key.read(run, HOST, port, str(known), 2)


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        (None, "new"),
        ([], "new"),
        ([f"# [{HOST}]:PORT was reinstalled", "", f"spark9 {OTHER}"], "new"),
        # Another port is another machine, for example behind a router.
        ([f"{HOST} {OTHER}"], "new"),
        ([f"[{HOST}]:PORT {KEY} spark1"], "stored"),
        ([f"[{HOST}]:PORT {OTHER}", f"[{HOST}]:PORT {KEY}"], "stored"),
        ([f"[{HOST}]:PORT {ECDSA}", f"[{HOST}]:PORT {KEY}"], "stored"),
        ([f"[{HOST}]:PORT {OTHER}"], "changed"),
        # ssh compares a key of another type itself.
        ([f"[{HOST}]:PORT {ECDSA}"], "other"),
        # The key of an authority is not the host's.
        ([f"@cert-authority [{HOST}]:PORT {OTHER}"], "new"),
    ],
)
def test_an_offered_key_is_compared_with_those_of_its_address_and_port(
    tmp_path: Path, port: int, lines: list[str] | None, state: str
) -> None:
    known = tmp_path / "known_hosts"
    if lines is not None:
        known.write_text("".join(f"{line}\n" for line in lines).replace("PORT", str(port)), encoding="ascii")
    assert read(known, port, SCANNED) == {"key": KEY, "fingerprint": FINGERPRINT, "state": state, "reason": ""}


@pytest.mark.parametrize(("port", "name"), [(22, "spark1"), (2222, "[spark1]:2222"), (21, "[spark1]:21")])
def test_known_hosts_has_each_port_except_the_usual_one(port: int, name: str) -> None:
    assert host_key.name("spark1", port) == name


@pytest.mark.parametrize(
    ("scanned", "reason"),
    [
        ((0, "", "# comments about the server\n"), "offers no ed25519 host key"),
        ((0, f"# {HOST} {KEY}\n", ""), "offers no ed25519 host key"),
        ((0, f"{HOST} {ECDSA}\n", ""), "offers no ed25519 host key"),
        ((0, f"{HOST} ssh-ed25519 AAAA\n", ""), "offers no ed25519 host key"),
        (
            (1, "", "debug\nConnection closed by remote host\n"),
            "offers no ed25519 host key Connection closed by remote host",
        ),
        ((127, "", ""), "offers no ed25519 host key"),
    ],
)
def test_a_machine_without_such_a_key_has_a_reason(
    tmp_path: Path, port: int, scanned: tuple[int, str, str], reason: str
) -> None:
    found = read(tmp_path / "known_hosts", port, scanned)
    assert found == {"key": "", "fingerprint": "", "state": "", "reason": f"{HOST} port {port} {reason}"}


def test_a_long_complaint_is_cut(tmp_path: Path, port: int) -> None:
    assert len(read(tmp_path / "known_hosts", port, (1, "", "x" * 10_000))["reason"]) < 400


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError("timed out"), "Connection timed out"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("no such thing"), "no such thing"),
    ],
)
def test_a_machine_that_does_not_answer_has_ssh_s_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    def connect(_address: tuple[str, int], _timeout: int) -> socket.socket:
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    found = read(tmp_path / "known_hosts", 22, SCANNED)
    assert found == {"key": "", "fingerprint": "", "state": "", "reason": f"connect to {HOST} port 22: {reason}"}
