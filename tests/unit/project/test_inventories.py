"""The sample inventories agree with the roles' variables."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import samples
import variables
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from cluster_nodes import cluster_plan
from repository import ROOT, files, read
from samples import members, names, nodes_of

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.select import chosen
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import report
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs
from ansible_collections.gb10.lab.plugins.module_utils.plan import plan

#: The samples of one cluster; the other one is below.
SAMPLES = sorted(names() - {"lab", "two-models"})


def unknown_settings(settings: Mapping[str, object], options: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yield variables that no role declares, and values outside a role's choices. Skips Ansible's own variables."""
    for name, value in settings.items():
        if name.startswith("ansible_"):
            continue
        if name not in options:
            yield f"{name}: no role declares this variable"
        elif value not in options[name].get("choices", [value]):
            yield f"{name}: {value!r} is not one of {', '.join(options[name]['choices'])}"


@pytest.fixture(params=SAMPLES, scope="module")
def sample(request: pytest.FixtureRequest) -> str:
    """Return the name of each sample's folder."""
    return str(request.param)


@pytest.fixture(scope="module")
def inventory(sample: str) -> dict[str, Any]:
    return samples.inventory(sample)


def test_defaults_are_those_of_the_specifications() -> None:
    """`make variables` writes them."""
    defaults = {path: text for path, text in variables.texts().items() if path != variables.SAMPLE}
    assert [str(path) for path, text in defaults.items() if path.read_text(encoding="utf-8") != text] == []


@pytest.mark.parametrize("role", variables.ROLES)
def test_the_file_of_all_variables_shows_every_default(role: str) -> None:
    # The section between this role's heading and the next one.
    section = variables.sample().partition(f"\n# --- {role}\n")[2].partition("\n# --- ")[0]
    assert re.findall(r"^# ([a-z0-9_]+):", section, re.MULTILINE) == [
        name for name, _option in variables.variables(role) if name not in variables.NOT_FOR_INVENTORIES
    ]


def test_the_samples_are_found() -> None:
    assert {"single-spark", "two-spark", "three-spark-ring", "four-spark-switch", "spark-thor"} <= set(SAMPLES)


def test_the_lines_to_edit_are_one_for_each_node_and_the_model(sample: str, inventory: dict[str, Any]) -> None:
    lines = read(f"inventories/{sample}/hosts.yml").splitlines()
    node = re.compile(r" +\w+: {ansible_host: 192\.168\.1\.\d+, ansible_user: nvidia(, gb10_fabric_interface: \w+)?}")
    edited = [line for line in lines if node.fullmatch(line) or line.startswith("    gb10_model: ")]
    assert len(edited) == len(members(inventory, "gb10_cluster")) + 1


def test_a_sample_is_one_file(sample: str) -> None:
    # Runs of other tests leave records in .gb10.
    found = [path for path in files(f"inventories/{sample}/**/*") if "/.gb10/" not in path]
    assert found == [f"inventories/{sample}/hosts.yml"]
    assert "inventories/variables.yml" in read(found[0])


def test_every_node_has_an_address_and_the_first_one_is_the_head(inventory: dict[str, Any]) -> None:
    nodes = members(inventory, "gb10_cluster")
    addresses = [host["ansible_host"] for host in inventory["_meta"]["hostvars"].values()]
    assert len(addresses) == len(set(addresses)) == len(nodes)
    assert [nodes[0]] == members(inventory, "head")
    assert sorted(nodes[1:]) == sorted(members(inventory, "worker"))


def test_each_node_has_only_variables_that_a_role_knows(inventory: dict[str, Any]) -> None:
    found = inventory["_meta"]["hostvars"]
    assert sorted(found) == sorted(members(inventory, "gb10_cluster"))
    assert {name: list(unknown_settings(settings, argument_specs.options())) for name, settings in found.items()} == {
        name: [] for name in found
    }


def test_the_ranks_of_a_sample_use_all_its_nodes(inventory: dict[str, Any]) -> None:
    for settings in inventory["_meta"]["hostvars"].values():
        tensor, pipeline = settings.get("gb10_tensor_parallel_size", 0), settings.get("gb10_pipeline_parallel_size", 1)
        assert not tensor or tensor * pipeline == len(inventory["_meta"]["hostvars"])
        assert len(inventory["_meta"]["hostvars"]) % pipeline == 0


#: Sample -> the rails of each node by the cabled ports. A Thor has one device instead of ports.
PORT_0, PORT_1 = (["enp1s0f0np0", "enP2p1s0f0np0"], ["enp1s0f1np1", "enP2p1s0f1np1"])
RAILS: dict[str, dict[tuple[int, ...], list[list[str]]]] = {
    "single-spark": {(): [[]], (1,): [[]]},
    "two-spark": {(0,): [PORT_0] * 2, (1,): [PORT_1] * 2, (0, 1): [PORT_0 + PORT_1] * 2},
    "three-spark-ring": {(0, 1): [PORT_0 + PORT_1] * 3},
    "four-spark-switch": {(0,): [PORT_0] * 4, (1,): [PORT_1] * 4, (0, 1): [PORT_0 + PORT_1] * 4},
    "spark-thor": {(0,): [PORT_0[:1]] * 2 + [["mgbe0_0"]] * 2, (0, 1): [PORT_0[:1]] * 2 + [["mgbe0_0"]] * 2},
}


def test_a_sample_takes_the_ports_that_are_cabled(sample: str, inventory: dict[str, Any]) -> None:
    for ports, expected in RAILS[sample].items():
        planned, problems = cluster_plan(nodes_of(inventory, ports))
        assert problems == [], report(problems)
        assert [[rail["interface"] for rail in node["rails"]] for node in planned["nodes"]] == expected
        assert bool(planned["fabric"]) == bool(expected[0])


def test_a_sample_without_its_cables_is_refused(inventory: dict[str, Any]) -> None:
    nodes = nodes_of(inventory, ())
    for node in nodes:
        node["observed"]["interfaces"].get("mgbe0_0", {}).update(carrier=False)
    _plan, problems = cluster_plan(nodes)
    refused = {problem.path.partition(".")[0] for problem in problems}
    assert refused == ({f"nodes[{index}]" for index in range(len(nodes))} if len(nodes) > 1 else set())


@pytest.mark.parametrize(
    ("cluster", "topology", "thors"),
    [
        ("single-spark", "switch", []),
        ("two-spark", "direct", []),
        ("three-spark-ring", "ring", []),
        ("four-spark-switch", "switch", []),
        ("spark-thor", "switch", ["thor1", "thor2"]),
    ],
)
def test_the_overlay_cables_the_lab_as_the_sample_says(cluster: str, topology: str, thors: list[str]) -> None:
    loader, sources = DataLoader(), [f"inventories/{cluster}", "inventories/lab/hosts_overlay.yml"]
    inventory = InventoryManager(loader, [str(ROOT / source) for source in sources])
    manager = VariableManager(loader, inventory)
    # It registers itself with the manager, for templates.
    HostVars(inventory, manager, loader)
    variables_there = manager.get_vars(host=inventory.get_host("localhost"))
    ask = trust_as_template("{{ [groups['gb10_cluster'], lab_topology, lab_thors] }}")
    lab = plan("demo", "10.88.0", *Templar(loader, variables=variables_there).template(ask))
    assert (lab.topology, [node.name for node in lab.nodes if node.thor]) == (topology, thors)


def test_the_sample_with_two_models_has_two_clusters_and_a_gateway() -> None:
    inventory = samples.inventory("two-models")
    groups = {name: members(inventory, name) for name in inventory if name != "_meta"}
    assert [(cluster.name, cluster.nodes) for cluster in chosen(groups, "")] == [
        ("large", ("spark1",)),
        ("small", ("spark2",)),
    ]
    assert groups["head"] == ["spark1", "spark2"]
    assert groups["gateway"] == ["spark1"]
    for node in nodes_of(inventory, ()):
        _plan, problems = cluster_plan([{**node, "group": "head"}])
        assert problems == [], report(problems)


def test_secrets_of_an_inventory_are_hidden_from_git() -> None:
    secrets = [
        "inventories/mine/.gb10/gateway-keys/alice.key",
        "inventories/mine/api.key",
        "inventories/mine/group_vars/llm.key",
    ]
    kept = [
        "inventories/mine/hosts.yml",
        "inventories/mine/group_vars/gb10_cluster.yml",
        "inventories/mine/.gb10/golden/tiny.json",
    ]
    command = ["git", "check-ignore", "--no-index", *secrets, *kept]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines() == secrets


def test_the_text_of_a_variable() -> None:
    option = {"description": ["One.", "Two."], "default": [1]}
    assert (variables.comment(option), variables.setting("gb10_x", ["a" * 80])) == (
        ["# One. Two."],
        f"gb10_x:\n  - {'a' * 80}",
    )
    assert variables.setting("gb10_x", "{{ 'y' }}") == "gb10_x: \"{{ 'y' }}\""


def test_a_wrong_setting_would_be_found() -> None:
    options = {"gb10_a": {"choices": ["x", "y"]}, "gb10_b": {}}
    found = list(unknown_settings({"gb10_a": "z", "gb10_b": 1, "gb10_c": 1, "ansible_user": "me"}, options))
    assert found == ["gb10_a: 'z' is not one of x, y", "gb10_c: no role declares this variable"]
