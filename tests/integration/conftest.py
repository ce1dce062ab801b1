"""A running cluster, from its inventory: the lab of the demo unless --inventory and --extra-vars-file name another.

Tests take ``cluster``, ``head``, ``workers`` or ``nodes``; the last three are testinfra hosts that run commands as root.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
import pytest
import testinfra
from repository import ROOT
from testinfra.host import Host


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--inventory", action="append", help="inventory of the cluster to test, repeatable (default: inventories/lab)")
    parser.addoption("--extra-vars-file", action="append", default=[], help="as ansible-playbook's --extra-vars @FILE, repeatable")


@dataclass(frozen=True)
class Cluster:
    """The inventory, templates resolved: host names by group, and each node's variables."""

    groups: Mapping[str, Sequence[str]]
    nodes: Mapping[str, Mapping[str, Any]]
    #: What ansible-playbook needs to reach the same cluster: -i and -e with their values.
    arguments: Sequence[str]

    def connect(self, name: str) -> Host:
        """A new connection to a node, whose host key must be the one that its known_hosts file pins."""
        variables = self.nodes[name]
        address, port = variables["ansible_host"], int(variables.get("ansible_port", 22))
        host = testinfra.get_host(
            f"paramiko://{variables['ansible_user']}@{address}:{port}",
            ssh_identity_file=variables.get("ansible_ssh_private_key_file"),
            sudo=True,
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the backend warns of every key; it is checked below
                transport = host.backend.client.get_transport()
        except (OSError, paramiko.SSHException) as error:
            pytest.fail(f"{name} does not answer at {address}:{port} ({error}). Is the lab up? `make demo` brings it up.", pytrace=False)
        option = re.search(r"UserKnownHostsFile=(\S+)", variables.get("ansible_ssh_common_args", ""))
        known_hosts = Path(option[1] if option else "~/.ssh/known_hosts").expanduser()
        entry = address if port == 22 else f"[{address}]:{port}"
        if not paramiko.HostKeys(str(known_hosts)).check(entry, transport.get_remote_server_key()):
            pytest.fail(f"{entry} shows a host key that {known_hosts} does not hold", pytrace=False)
        return host


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    inventories = request.config.getoption("--inventory") or [ROOT / "inventories" / "lab"]
    arguments = [word for path in inventories for word in ("--inventory", str(Path(path).resolve()))]
    arguments += [word for path in request.config.getoption("--extra-vars-file") for word in ("--extra-vars", f"@{Path(path).resolve()}")]
    answer = tmp_path_factory.mktemp("cluster") / "cluster.json"
    command = [Path(sys.executable).with_name("ansible-playbook"), *arguments, "--extra-vars", f"describe_file={answer}"]
    command.append(Path(__file__).with_name("describe.yml"))
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return Cluster(**json.loads(answer.read_text(encoding="utf-8")), arguments=arguments)


@pytest.fixture(scope="session")
def nodes(cluster: Cluster) -> dict[str, Host]:
    """Every node of the cluster by its name in the inventory, the head first."""
    return {name: cluster.connect(name) for name in cluster.groups["gb10_cluster"]}


@pytest.fixture(scope="session")
def head(cluster: Cluster, nodes: dict[str, Host]) -> Host:
    """The node that serves the API."""
    return nodes[cluster.groups["head"][0]]


@pytest.fixture(scope="session")
def workers(cluster: Cluster, nodes: dict[str, Host]) -> list[Host]:
    """The other nodes; empty for a single Spark."""
    return [nodes[name] for name in cluster.groups.get("worker", [])]
