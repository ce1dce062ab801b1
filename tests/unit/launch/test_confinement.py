"""Commands in transient units."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement


def test_a_unit_of_a_user_is_confined_like_the_ranks() -> None:
    command = confinement.transient("gb10", ["/srv/models"], ["RuntimeMaxSec=60"])
    assert command[:7] == [
        "systemd-run",
        "--wait",
        "--pipe",
        "--quiet",
        "--collect",
        "--uid=gb10",
        "--property=RuntimeMaxSec=60",
    ]
    assert "--property=NoNewPrivileges=yes" in command
    assert [word for word in command if "ReadWritePaths" in word] == [
        "--property=ReadWritePaths=/var/lib/gb10 /srv/models"
    ]
    # The unit ends before the user's other processes do.
    assert not [word for word in command if "RemoveIPC" in word]


def test_a_client_of_an_engine_runs_as_root() -> None:
    assert confinement.transient("", [], ["RuntimeMaxSec=60"])[5:] == ["--property=RuntimeMaxSec=60"]
