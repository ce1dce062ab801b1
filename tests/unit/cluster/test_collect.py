"""The facts that the actions cluster_facts and cluster_plan read, from the inputs of nodes."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cluster_nodes import BUILD, LOCK
from decisions import decide
from rendered_units import SETTINGS

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import collect

OWN = hashlib.sha256(LOCK.encode()).hexdigest()[:12]
HUB = {"name": "openai/gpt-oss-20b", "revision": "main"}
READ = {"read": 1.0, "unreachable": "", "observed": {}}


def inputs(build: bool = False, **changes: Any) -> dict[str, Any]:
    own = {"build": {**BUILD, "enabled": build}, "packages": ["g++"], "model_path": "", "hub_model": HUB}
    settings = {name: changes.pop(name) for name in list(changes) if name in SETTINGS}
    return {**own, "settings": {**SETTINGS, **settings}, **changes}


def test_a_node_is_read_with_the_settings_of_all_roles() -> None:
    given = inputs(model_path="/m", model_store_source="/nas/m", vllm_runtime_keep_releases=5, gb10_service_user="llm")
    folder = collect.runtime(given, LOCK)
    assert folder == f"/opt/gb10/runtime/{OWN}"
    found = {"runtime": folder, "user": "llm", "keep_runtimes": 5, "packages": ["g++"], "model": "/m"}
    found["exclude"] = SETTINGS["model_store_exclude"]
    assert collect.options(given, folder, False) == found, "only the head copies"
    assert collect.options(given, folder, True) == {**found, "source": "/nas/m"}
    unstored = collect.options(inputs(model_store_source="/nas/m", model_store_enabled=False), folder, True)
    assert "source" not in unstored and "model" not in unstored


def test_the_builds_of_vllm_are_read_if_one_is_wanted() -> None:
    assert collect.options(inputs(build=True), "", False)["builds"] == "/opt/gb10/build"


ASKED = {
    **HUB,
    "environment": SETTINGS["gb10_download_env"],
    "exclude": SETTINGS["model_store_exclude"],
    "record": "/etc/gb10/hub-model.json",
}


@pytest.mark.parametrize(
    ("given", "head", "other", "expected"),
    [
        pytest.param(inputs(), READ, READ, ASKED, id="no node has it"),
        pytest.param(inputs(hub_model={}), READ, READ, {}, id="a model in a folder"),
        pytest.param(inputs(model_store_source="/nas/m"), READ, READ, {}, id="a model that is copied"),
        pytest.param(inputs(), READ, {**READ, "observed": {"model_complete": True}}, {}, id="a worker has it"),
        pytest.param(inputs(), {**READ, "unreachable": "timed out"}, READ, {}, id="the head does not answer"),
        pytest.param(inputs(), {**READ, "read": 0}, READ, {}, id="no node was read"),
    ],
)
def test_the_hub_is_asked_for_a_model_that_no_node_has(
    given: dict[str, Any], head: dict[str, Any], other: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert collect.hub_options(given, head, [head, other]) == expected


@pytest.mark.parametrize(
    ("present", "alive", "message"),
    [
        (["spark1"], ["spark1"], "This run leaves out spark2. Expected: every node of the cluster. Fix: "),
        (["spark1", "spark2"], ["spark1"], "The plan needs spark2, which failed before: see above."),
    ],
)
def test_a_run_without_a_node_is_refused(present: list[str], alive: list[str], message: str) -> None:
    hosts = {"ansible_play_hosts_all": present, "ansible_play_hosts": alive, "gb10_nodes": ["spark1", "spark2"]}
    answer, calls = decide("cluster_facts", {}, {}, variables={"inventory_hostname": "spark1", **hosts})
    assert (answer["failed"], answer["msg"][: len(message)], calls) == (True, message, [])


def test_facts_are_what_the_module_found() -> None:
    assert collect.facts({"gpu": {}, "changed": False, "invocation": {}, "ansible_facts": {"x": 1}}) == {"gpu": {}}
