"""A run's results reach the planned services: versions of secrets and digests of tokens, never a secret."""

from __future__ import annotations

import base64
import hashlib
import json
from types import SimpleNamespace
from typing import Any

import decisions
import pytest
from ansible.plugins.action import ActionBase
from filters import FILTERS
from rendered_units import SETTINGS, planned
from typed_plans import fact, typed

from ansible_collections.gb10.cluster.plugins.action import systemd_unit, vllm_api_key, vllm_host_ip
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv, overrides
from ansible_collections.gb10.cluster.plugins.module_utils.service import keys, tokens
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned

TOKEN = "5" * 64
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
READ = {"content": base64.b64encode(TOKEN.encode()).decode()}


def pair(*digests: str) -> dict[str, Any]:
    """Return a plan of nodes that have these digests of Ray's token, and keys of a secret with this digest."""
    names = [f"spark{number}" for number in range(1, len(digests) + 1)]
    nodes = [
        {
            "name": name,
            "head": not place,
            "state": {
                "ray_token_digest": digest,
                "message_secret_digest": "" if place else digest,
                "message_keys_mark": keys.mark(digest, name, names[place - 1]),
            },
        }
        for place, (name, digest) in enumerate(zip(names, digests, strict=True))
    ]
    return {"nodes": nodes, "node": nodes[0]}


def result(
    monkeypatch: pytest.MonkeyPatch,
    action: Any,
    arguments: dict[str, Any],
    plan: dict[str, Any],
    check: bool = False,
    **variables: Any,
) -> dict[str, Any]:
    """Return the module's arguments in the result of an action."""
    task = object.__new__(action.ActionModule)
    task._task = decisions.task(arguments)
    task._task.check_mode = check
    task._templar = SimpleNamespace(template=lambda value: value)
    monkeypatch.setattr(ActionBase, "run", lambda *_arguments: {})
    monkeypatch.setattr(
        task, "_execute_module", lambda module_args, **_: {"changed": True, "given": module_args}, raising=False
    )
    inputs = {"settings": SETTINGS}
    found: dict[str, Any] = task.run(
        None, {"gb10_plan": fact(plan), "gb10_inputs": inputs, "hostvars": {}, **variables}
    )
    return found


@pytest.mark.parametrize(
    ("service", "digests", "expected"),
    [
        *((service, ("a", "a"), "a") for service in ("ray", "watchdog")),
        # A node has another token, or none.
        *((service, digests, DIGEST) for service in ("ray", "watchdog") for digests in (("a", "b"), ("", ""))),
        ("ray", ("a",), "a"),
        # One node has no peer, and vLLM has no token.
        ("watchdog", ("a",), ""),
        ("vllm", ("a", "b"), ""),
    ],
)
def test_the_digest_of_a_token(service: str, digests: tuple[str, ...], expected: str) -> None:
    assert tokens.digest(typed(pair(*digests)), service, READ["content"]) == expected


@pytest.mark.parametrize(("check", "expected"), [(False, DIGEST), (True, hashlib.sha256(b"").hexdigest())])
def test_a_new_token_of_ray_restarts_it(monkeypatch: pytest.MonkeyPatch, check: bool, expected: str) -> None:
    """All nodes have the new one already, or, in check mode, still the old one."""
    given = {"ray_cluster_new_token": True, "__common_token": READ}
    found = result(monkeypatch, systemd_unit, {"service": "ray"}, pair("a", "a"), check=check, **given)
    assert found["planned"] == planned(fact(pair("a", "a")), "gb10-ray", Learned(token=expected, secrets=[""]))


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        (0, {"message_secret_digest": ""}),
        (0, {"message_secret_digest": "b"}),
        (0, {"message_keys_mark": ""}),
        (1, {"message_keys_mark": keys.mark("a", "spark2", "spark2")}),
        (1, {"message_secret_digest": "a"}),
    ],
    ids=["no secret", "another secret", "no keys", "another node before", "a worker with a secret"],
)
def test_each_node_needs_its_own_keys(place: int, changed: dict[str, Any]) -> None:
    plan = pair("a", "a")
    assert not FILTERS["message_keys_differ"](fact(plan))
    plan["nodes"][place]["state"] |= changed
    assert FILTERS["message_keys_differ"](fact(plan))
    for node, before in (("spark1", "spark2"), ("spark2", "spark1")):
        own = next(each for each in plan["nodes"] if each["name"] == node)
        found = FILTERS["message_keys"](fact({**plan, "node": own}), READ["content"])
        assert found == keys.files(TOKEN, node, before)


@pytest.mark.parametrize(
    ("service", "learned", "start"),
    [
        ("ray", Learned(token="a", api_key="7", secrets=["1"]), False),
        ("vllm", Learned(api_key="7", secrets=["1", "2"]), True),
    ],
)
def test_ray_depends_on_its_node_and_vllm_on_all(
    monkeypatch: pytest.MonkeyPatch, service: str, learned: Learned, start: bool
) -> None:
    hosts = {f"spark{number}": {"gb10_secrets_state": {"version": str(number)}} for number in (1, 2)}
    plan, given = pair("a", "a"), {"hostvars": hosts, "gb10_api_key_state": {"version": "7"}}
    found = result(monkeypatch, systemd_unit, {"service": service}, plan, **given)
    expected = planned(fact(plan), f"gb10-{service}", learned)
    assert found["planned"] == {**expected, **({"launch": argv.start_digest(typed(plan))} if start else {})}
    assert (found["given"]["unit"], found["given"]["name"]) == (expected["unit"], f"gb10-{service}.service")


def test_no_result_has_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    read = {"__common_token": READ}
    found = result(monkeypatch, systemd_unit, {"service": "ray"}, pair("", ""), **read)
    assert found["planned"] == planned(fact(pair("", "")), "gb10-ray", Learned(token=DIGEST, secrets=[""]))
    assert TOKEN not in json.dumps(found) and READ["content"] not in json.dumps(found)


def test_the_environment_follows_from_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = typed({})
    given = result(monkeypatch, vllm_host_ip, {"planned": True}, {})["given"]
    assert given["environment"] == overrides.rank_environment(plan.node)
    assert given["nodes"] == {node.name: node.address for node in plan.nodes}
    assert (given["address"], given["ray_unit"]) == (plan.node.address, "gb10-ray.service")


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"node": {"head": True}, "api_key": True}, "present"),
        ({"node": {"head": False}, "api_key": True}, "absent"),
        ({"api_key": False}, "absent"),
    ],
)
def test_only_a_head_has_the_key(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], state: str) -> None:
    given = result(monkeypatch, vllm_api_key, {"planned": True, "key": ""}, changes)["given"]
    assert (given["state"], given["environment"]) == (state, overrides.rank_environment(typed(changes).node))
