"""The services of a node: their units and settings are recorded, and each launch input changes the digest."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from rendered_units import SERVICES, SETTINGS, planned, units
from snapshot import assert_recorded
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned, ServiceSettings
from ansible_collections.gb10.cluster.plugins.plugin_utils import program

IMAGE = f"vllm/vllm-openai@sha256:{'1' * 64}"
CONTAINER = {"kind": "container", "name": IMAGE, "image": IMAGE, "base": IMAGE, "engine": "docker"}
PLANS: dict[str, dict[str, Any]] = {
    "native-ray": {"api_tls": {"digest": "ab", "until": "2027-01-01"}},
    "container-mp": {"runtime": CONTAINER, "executor": "mp", "ranks_unit": "gb10-vllm.service"},
}


@pytest.mark.parametrize("name", PLANS)
def test_the_units_and_their_settings_are_the_recorded_ones(name: str) -> None:
    plan = fact(PLANS[name])
    texts = units(plan)
    files = [each for unit in SERVICES if unit in texts for each in planned(plan, unit)["files"] if "content" in each]
    found = {**texts, **{each["path"]: f"{each['content']}\n" for each in files}}
    text = "\n".join(f"==> {unit} <==\n{re.sub('[0-9a-f]{64}', '...', text)}" for unit, text in found.items())
    assert_recorded(Path(__file__).parents[1] / f"data/units_{name}.txt", text)


def test_every_setting_is_a_variable_of_a_role() -> None:
    assert {each.name for each in fields(ServiceSettings)} <= SETTINGS.keys()


def inputs(unit: str, changes: dict[str, Any] | None = None, **learned: Any) -> str:
    """Return the digest of a unit's launch inputs."""
    return str(planned(fact(changes or {}), unit, Learned(**learned))["unit"]["inputs"])


OTHER_NODE = {"environment": {"A": "other"}}
#: What some changes replace.
FORMER: dict[str, Any] = {
    "nodes": [{"name": "spark1"}, {"name": "spark2"}],
    "api_tls": {"digest": "former", "until": ""},
}
#: Changes that need a restart, and the units that they restart.
CHANGES: list[tuple[set[str], dict[str, Any], dict[str, Any]]] = [
    ({"gb10-ray", "gb10-watchdog", "gb10-flight-recorder"}, {}, {"token": "other"}),
    ({"gb10-ray", "gb10-vllm"}, {}, {"secrets": ["other"]}),
    ({"gb10-vllm", "gb10-fallback"}, {}, {"api_key": "other"}),
    # The watchdog and the recorder verify the server's certificate.
    ({"gb10-vllm", "gb10-watchdog", "gb10-flight-recorder"}, {"api_tls": None}, {}),
    # They read its CA again for each connection.
    ({"gb10-vllm"}, {"api_tls": {"digest": "renewed", "until": ""}}, {}),
    ({"gb10-vllm"}, {"nodes": [{"name": "spark1"}, {"name": "spark2", "environment": {"A": "other"}}]}, {}),
    ({"gb10-ray"}, {"node": OTHER_NODE}, {}),
    ({"gb10-memory-guard", "gb10-watchdog", "gb10-flight-recorder"}, {"api": {"url": "http://127.0.0.1:8001"}}, {}),
]


@pytest.mark.parametrize("unit", SERVICES)
@pytest.mark.parametrize(("expected", "changes", "learned"), CHANGES)
def test_a_launch_input_changes_the_digest_of_its_units(
    unit: str, expected: set[str], changes: dict[str, Any], learned: dict[str, Any]
) -> None:
    base = {name: FORMER[name] for name in FORMER if name in changes}
    assert (inputs(unit, changes, **learned) != inputs(unit, base)) is (unit in expected)


@pytest.mark.parametrize(
    ("unit", "changed", "nodes", "restarts"),
    [
        ("gb10-memory-guard", "memory-guard", 2, True),
        ("gb10-watchdog", "watchdog", 2, True),
        ("gb10-flight-recorder", "flight-recorder", 2, True),
        ("gb10-flight-recorder", "netconsole", 2, True),
        # Without a peer, there is no sender.
        ("gb10-flight-recorder", "netconsole", 1, False),
        # A running rank does not depend on its gates.
        ("gb10-vllm", "gates", 2, False),
    ],
)
def test_a_changed_program_restarts_the_service_that_runs_it(
    monkeypatch: pytest.MonkeyPatch, unit: str, changed: str, nodes: int, restarts: bool
) -> None:
    plan = {"nodes": [{"name": "spark1"}, {"name": "spark2"}][:nodes]}
    before, source, path = inputs(unit, plan), program.source, paths.program_file(changed)["program"]
    monkeypatch.setattr(program, "source", lambda name: {"content": "other"} if name == path else source(name))
    assert (inputs(unit, plan) != before) is restarts


def test_the_files_of_a_unit_are_planned_with_it() -> None:
    service = planned(fact({}), "gb10-vllm")
    assert [each["path"] for each in service["files"]] == [
        "/usr/local/lib/gb10/ansible_collections/gb10/cluster/plugins/module_utils/common/limits.py",
        "/usr/local/lib/gb10/ansible_collections/gb10/cluster/plugins/module_utils/common/bodies.py",
        "/usr/local/lib/gb10/ansible_collections/gb10/cluster/plugins/module_utils/common/costs.py",
        "/usr/local/lib/gb10/ansible_collections/gb10/cluster/plugins/module_utils/common/answers.py",
        "/usr/local/lib/gb10/ansible_collections/gb10/cluster/plugins/module_utils/common/io_turns.py",
        "/usr/local/lib/gb10/ansible_collections/gb10/cluster/plugins/module_utils/api/io_connections.py",
        "/usr/local/lib/gb10/gb10_api_guard.py",
        "/etc/gb10/vllm/ray_non_carry_over_env_vars.json",
        "/usr/local/lib/gb10-wait-for-ray.py",
        "/etc/gb10/gates.json",
        "/usr/local/lib/gb10-gates",
    ]
    assert service["directories"] == [
        "/usr/local/lib/gb10/ansible_collections/gb10/cluster/plugins/module_utils/common",
        "/usr/local/lib/gb10/ansible_collections/gb10/cluster/plugins/module_utils/api",
        "/usr/local/lib/gb10",
        "/etc/gb10/vllm",
    ]


def test_the_ranks_of_several_nodes_without_ray_start_by_a_program() -> None:
    nodes = [{"name": "spark1"}, {"name": "spark2"}]
    for executor, count, installed in (("mp", 2, True), ("mp", 1, False), ("ray", 2, False)):
        found = planned(fact({"executor": executor, "nodes": nodes[:count]}), "gb10-vllm")["files"]
        assert ("/usr/local/lib/gb10-rank.py" in [each["path"] for each in found]) is installed, (executor, count)


def test_settings_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match=r"gb10_inputs\.settings\.vllm_serve_ray_timeout is 'x', not a int"):
        planned(fact({}), "gb10-vllm", vllm_serve_ray_timeout="x")
