"""A running cluster, from its inventory: the demo lab unless --inventory and --extra-vars-file select another.

Tests take ``cluster``, ``head``, ``workers`` or ``nodes``; the last three are testinfra hosts that run commands as
root.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_cluster import Cluster
from repository import ROOT
from run_playbook import Run
from testinfra.host import Host
from unlisted_host import UnlistedHost


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--inventory",
        action="append",
        help="inventories of the cluster to test, separated by spaces (default: inventories/lab)",
    )
    parser.addoption(
        "--extra-vars-file", action="append", default=[], help="like ansible-playbook's --extra-vars @FILE, repeatable"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "disruptive: breaks or restarts something and repairs it; runs last, in the file's order"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("disruptive") is not None)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    # Molecule cannot repeat an option, so one may hold several.
    given = [path for option in request.config.getoption("--inventory") or [] for path in option.split()]
    inventories = given or [ROOT / "inventories" / "lab"]
    arguments = [word for path in inventories for word in ("--inventory", str(Path(path).resolve()))]
    arguments += [
        word
        for path in request.config.getoption("--extra-vars-file")
        for word in ("--extra-vars", f"@{Path(path).resolve()}")
    ]
    answer = tmp_path_factory.mktemp("cluster") / "cluster.json"
    command = [
        Path(sys.executable).with_name("ansible-playbook"),
        *arguments,
        "--extra-vars",
        f"describe_file={answer}",
    ]
    command.append(Path(__file__).with_name("describe.yml"))
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return Cluster(**json.loads(answer.read_text(encoding="utf-8")), arguments=arguments)


@pytest.fixture(scope="session")
def alone(cluster: Cluster) -> Callable[[str], Run]:
    """Run one role by its tag, with Ansible's full output. All tests share one run per role."""

    @functools.cache
    def alone(role: str) -> Run:
        # With every task, also of a role that skips all of its tasks.
        return cluster.site("--tags", role, "-vvv", "--diff", environment={"ANSIBLE_DISPLAY_SKIPPED_HOSTS": "1"})

    return alone


@pytest.fixture(scope="session")
def nodes(cluster: Cluster) -> dict[str, Host]:
    """Every node of the cluster by its inventory name, the head first."""
    return {name: cluster.connect(name) for name in cluster.groups["gb10_cluster"]}


@pytest.fixture(scope="session")
def head(cluster: Cluster, nodes: dict[str, Host]) -> Host:
    """The node that serves the API."""
    return nodes[cluster.groups["head"][0]]


@pytest.fixture(scope="session")
def workers(cluster: Cluster, nodes: dict[str, Host]) -> list[Host]:
    """The other nodes; empty for a single Spark."""
    return [nodes[name] for name in cluster.groups.get("worker", [])]


@pytest.fixture(scope="module")
def unlisted_host(cluster: Cluster) -> Iterator[UnlistedHost]:
    """A machine on the lab's management network that is not a peer."""
    head = cluster.nodes[cluster.groups["head"][0]]
    # tests/lab: the management network is a bridge in the lab's own namespace.
    found = UnlistedHost(head["ansible_host"], f"{head['lab_name']}-switch")
    yield found
    found.remove()
