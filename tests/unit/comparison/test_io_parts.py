"""A node's results for each part: reasons in place of exceptions, and the smoke test only after an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.comparison import io_parts
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_compare
from ansible_collections.gb10.cluster.plugins.module_utils.fabric.io_rollback import NetplanError
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables, io_rules
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_server
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray, io_ray_members


def compared(name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Compare a part on a host where no command exists."""
    _options, compare = io_parts.PARTS[name](lambda argv: (127, "", f"{argv[0]} is not installed"), "")
    return compare(params)


def raises(error: Exception) -> Any:
    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("answer", "requests", "wanted"),
    [
        ({"healthy": False, "answers": None, "reason": ""}, {"kind": "generate"}, ({}, "The API is not healthy")),
        (
            {"healthy": True, "answers": False, "reason": "HTTP 500: no"},
            {"kind": "generate"},
            ({}, "The API is healthy, but does not answer: HTTP 500: no"),
        ),
        ({"healthy": True, "answers": True, "reason": ""}, {}, ({}, "")),
        (
            {"healthy": True, "answers": True, "reason": ""},
            {"kind": "generate"},
            ({"problems": ["x"], "msg": "The API is healthy, but"}, "The API is healthy, but"),
        ),
    ],
    ids=["unhealthy", "silent", "check-mode", "wrong"],
)
def test_the_smoke_test_follows_an_answer(
    monkeypatch: pytest.MonkeyPatch, answer: Any, requests: Any, wanted: tuple[Any, str]
) -> None:
    monkeypatch.setattr(io_server, "read", lambda _run, _params: (answer, ["a line"]))
    monkeypatch.setattr(
        io_server, "smoke", lambda _params, _given: {"problems": ["x"], "msg": "The API is healthy, but"}
    )
    found = compared("vllm_serve", {"smoke": requests})
    assert (found["smoke"], found["msg"]) == wanted


def test_an_incomplete_ray_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_ray_members, "read", raises(io_ray.RayError("spark2 has not joined")))
    assert compared("ray_cluster", {}) == {"reason": "spark2 has not joined"}


def test_a_host_that_refuses_is_a_value_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_rules, "outcome", raises(io_nftables.FirewallError("nft refuses the rules")))
    with pytest.raises(ValueError, match="nft refuses"):
        compared("peer_firewall", {})
    monkeypatch.setattr(io_compare, "compare", raises(NetplanError("no netplan")))
    with pytest.raises(ValueError, match="no netplan"):
        compared("qsfp_netplan", {})


def test_files_that_netplan_refuses_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    result = io_compare.Comparison({}, ["x differs"], {}, verified=False, refused="netplan rejects it")
    monkeypatch.setattr(io_compare, "compare", lambda _run, _params: result)
    with pytest.raises(ValueError, match="Nothing was changed: netplan rejects it"):
        compared("qsfp_netplan", {})
