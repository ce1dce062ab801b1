"""No command of root, and no client of a container engine, gets a variable of the ranks: one test over all units.

A recipe or a user sets these variables. Several run code or send secrets: OPENSSL_CONF in Python, DOCKER_HOST and
CONTAINERS_CONF in an engine's client, LD_PRELOAD in any program.
"""

from __future__ import annotations

import re
from typing import Any

import cluster_nodes
import pytest
from cluster_nodes import pair
from rendered_units import units as units_of
from repository import ROOT, read
from typed_plans import typed, typed_node

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import plan as benchmark_plan
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import plan as firewall_plan
from ansible_collections.gb10.cluster.plugins.module_utils.launch import overrides

ATTACK = {
    "OPENSSL_CONF": "/planted/o.cnf",
    "DOCKER_HOST": "tcp://192.0.2.1",
    "CONTAINERS_CONF": "/planted/c.conf",
    "LD_PRELOAD": "/planted/x.so",
}
SECRETS = ["HF_TOKEN"]
#: The variables that a unit sets for all its commands: none can be set by a user or a recipe, and none changes a
#: program.
OF_UNITS = {
    "GB10_INPUTS",
    "GB10_RANK_GROUP",
    "RAY_ADDRESS",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S",
}
#: Units whose commands all run as their user, which may read their file.
OF_USERS = {"gb10-gateway": "gb10-gateway"}
IMAGE = {"gb10_runtime": "container", "gb10_container_image": "sha256:" + "1" * 64}
VARIANTS: dict[str, dict[str, Any]] = {
    f"{runtime} {executor}": {**given, "gb10_distributed_executor_backend": executor}
    for runtime, given in {
        "native": {},
        "docker": {**IMAGE, "gb10_container_engine": "docker"},
        "podman": {**IMAGE, "gb10_container_engine": "podman"},
    }.items()
    for executor in ("mp", "ray")
}


def planned(name: str) -> list[dict[str, Any]]:
    """Return the plan of a variant, once for each node."""
    nodes = pair(gb10_extra_env=ATTACK, **VARIANTS[name])
    plan = cluster_nodes.planned([{**node, "secrets": {"names": SECRETS, "problems": []}} for node in nodes])
    plan["api_tls"] = {"digest": "0", "until": "2030-01-01"}
    return [{**plan, "node": node} for node in plan["nodes"]]


@pytest.fixture(scope="module")
def units() -> dict[str, str]:
    """Return {variant node unit: text} of every unit, for each variant and node."""
    plans = {f"{variant} {plan['node']['name']}": plan for variant in VARIANTS for plan in planned(variant)}
    found = {f"{name} {unit}": text for name, plan in plans.items() for unit, text in units_of(plan).items()}
    return {
        **found,
        "firewall": firewall_plan.unit("/usr/sbin/nft", "/etc/x"),
        "firewall again": firewall_plan.again("/usr/sbin/nft", "/etc/x"),
    }


def values(text: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def commands_of_root(text: str) -> list[str]:
    """Return the command lines that do not run as the unit's user: `+` lifts User= (systemd.service(5))."""
    lines = values(text, r"Exec\w+")
    user = values(text, "User")
    return [line for line in lines if user in ([], ["root"]) or re.match(r"[-@:]*[+!]", line)]


def test_no_unit_gives_a_variable_of_the_ranks_to_root(units: dict[str, str]) -> None:
    of_root = 0
    for name, text in units.items():
        unit = name.rpartition(" ")[2]
        if not commands_of_root(text):
            assert values(text, "User") == [OF_USERS[unit]]
            continue
        of_root += 1
        assert "EnvironmentFile=" not in text and "PassEnvironment=" not in text, name
        assert {line.partition("=")[0] for line in values(text, "Environment")} <= OF_UNITS, name
    assert of_root > len(VARIANTS) * 4


def test_python_of_every_unit_is_isolated(units: dict[str, str]) -> None:
    """Without -I, Python would take PYTHON* variables, the folder of its program, and the user's own packages."""
    starts = [
        (name, found[0])
        for name, text in units.items()
        for line in values(text, r"Exec\w+")
        for found in re.finditer(r"\S*/python[\d.]* \S+", line)
    ]
    assert len(starts) > len(units) // 2
    assert [start for start in starts if not start[1].endswith(" -I")] == []


#: Files whose Python is not isolated: NVIDIA's checker imports its neighbors, which only root can write.
NOT_ISOLATED = {"os_update/io_state.py"}


def test_python_of_every_other_command_is_isolated() -> None:
    """Of transient units and commands of modules, which no plan shows."""
    found = {
        "/".join(path.parts[-2:])
        for path in (ROOT / "plugins").rglob("*.py")
        for start in re.findall(r"[=+\"']/usr/bin/python3\b(?!:)[\"', ]+(\S+)", path.read_text(encoding="utf-8"))
        if not start.startswith(("-I", '"-I"'))
    }
    assert found == NOT_ISOLATED


def test_no_unit_names_a_variable_of_a_user_or_its_value(units: dict[str, str]) -> None:
    """Of a native rank too: the gates load the variables in the process that becomes the rank."""
    for name, text in units.items():
        assert not [word for word in (*ATTACK, *ATTACK.values(), *SECRETS, "VLLM_API_KEY") if word in text], name


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_rank_gets_its_variables_from_the_gates(units: dict[str, str], variant: str) -> None:
    for plan in planned(variant):
        assert overrides.rank_environment(typed_node(plan["node"])).items() >= ATTACK.items()
        for unit in ("gb10-ray", "gb10-vllm"):
            text = units[f"{variant} {plan['node']['name']} {unit}"]
            (start,) = values(text, "ExecStart")
            engine = f"/run/{unit}/ranks.env"
            inside = "native" not in variant
            assert start.startswith("/usr/bin/python3 -I -B /usr/local/lib/gb10-gates ")
            assert (f" --engine-file={engine} " in start, f" --env-file={engine} " in start) == (inside, inside)
            assert (f"RuntimeDirectory={unit}\n" in text) is inside
            assert "LoadCredential=secret.env:/etc/gb10/secret.env\n" in text
            assert ("LoadCredential=api.env:/etc/gb10/api.env\n" in text) is (
                unit == "gb10-vllm" and plan["node"]["head"]
            )


def test_a_command_of_a_transient_unit_has_the_ranks_file_only_as_their_user() -> None:
    (plan, _worker) = planned("native mp")
    settings = benchmark_plan.BenchmarkSettings("quick", [1], [1], 1, 1, 60)
    words = benchmark_plan.command(typed(plan), benchmark_plan.Run(1, 1, 1, 1), settings, "")
    assert "--uid=gb10" in words and any("EnvironmentFile" in word for word in words)
    (plan, _worker) = planned("docker mp")
    assert not [
        word
        for word in benchmark_plan.command(typed(plan), benchmark_plan.Run(1, 1, 1, 1), settings, "")
        if "EnvironmentFile" in word or "--setenv" in word
    ]


def test_no_other_file_loads_variables_into_a_unit() -> None:
    """A new user of EnvironmentFile= or --setenv belongs into the tests above, or runs as another user than root."""
    found = {
        str(path.relative_to(ROOT))
        for folder in ("plugins", "roles", "playbooks")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yml", ".j2", ".sh")
        and re.search(r"EnvironmentFile=-?[/{]|--setenv=|PassEnvironment=", read(path))
    }
    assert found == {
        "plugins/module_utils/benchmark/plan.py",
        "plugins/module_utils/kernels/plan.py",
        # HOME alone, as a temporary user.
        "plugins/module_utils/launch/confinement.py",
        "plugins/module_utils/vllm_build/plan.py",
        "plugins/module_utils/node_steps/vllm_gpu_probe.py",
        "roles/vllm_runtime/tasks/verify.yml",
        "plugins/module_utils/gateway/service.py",
        "plugins/module_utils/nccl/bandwidth.py",
        # Constants for apt.
        "plugins/module_utils/os_update/io_change.py",
        # Root's own downloads: variables of the role model_store, which no recipe sets.
        "plugins/module_utils/model_store/units.py",
    }
