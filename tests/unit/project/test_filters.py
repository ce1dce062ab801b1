"""The filters: the pure planners as used in templates."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
from ansible.errors import AnsibleFilterError
from cluster_nodes import node_plan
from filters import FILTERS
from rendered_units import planned
from repository import ROOT, files, read

SNAPSHOT = Path(__file__).parents[1] / "data" / "plan_two_spark.json"
PLAN = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
WORKER = node_plan(PLAN, "spark2")


@pytest.mark.parametrize("path", files("plugins/filter/*.py"))
def test_a_file_is_named_like_its_package(path: str) -> None:
    assert (ROOT / "plugins" / "module_utils" / PurePosixPath(path).stem).is_dir()


@pytest.mark.parametrize("name", FILTERS)
def test_a_role_or_playbook_uses_each_filter(name: str) -> None:
    paths = files("roles/*/*/*", "playbooks/**/*.yml")
    assert any(re.search(rf"gb10\.cluster\.{name}\b", read(path)) for path in paths if not path.endswith(".lock"))


PEM = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n"


def test_a_ca_of_a_node_is_certificates_and_nothing_else() -> None:
    assert FILTERS["certificates"](PEM * 3) == PEM * 3
    key = PEM.replace("CERTIFICATE", "PRIVATE KEY")
    for text in ("", "ca", PEM + "x: 1\n", key, PEM + key, PEM * 20000):
        with pytest.raises(ValueError, match=r"is not one or more certificates in PEM\. Fix: ") as error:
            FILTERS["certificates"](text)
        assert "MIIB" not in str(error.value)


def test_every_ca_that_a_role_reads_is_checked() -> None:
    """The gateway's are inputs of its plan, which checks them."""
    reads = [path for path in files("roles/*/tasks/*.yml") if re.search(r"src: .*'ca' \| gb10", read(path))]
    assert reads == [
        f"roles/{name}.yml"
        for name in ("gateway/tasks/clusters", "monitoring/tasks/controller", "monitoring/tasks/server_ca")
    ]
    for path in reads[1:]:
        assert re.findall(r"b64decode(.{0,28})", read(path)) == [" | gb10.cluster.certificates"]


#: Prints the modules of the core before and after the call of a filter.
LOADED = """
import sys, filters
from ansible_collections.gb10.cluster.plugins.callback import brief
def core():
    return [name for name in sys.modules if name.startswith("ansible_collections.") and ".module_utils." in name]
before = core()
filters.FILTERS["node_path"]("ca")
print(before, any(name.endswith(".module_utils.common.paths") for name in core()))
"""


def test_only_a_call_imports_the_core() -> None:
    """Nearly every task's process loads all these files. The callback first checks Ansible's release."""
    path = os.pathsep.join(str(ROOT / name) for name in (".collections", "tests/support"))
    command, environment = [sys.executable, "-c", LOADED], os.environ | {"PYTHONPATH": path}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout == "[] True\n"


def test_node_plan_has_the_nodes_own_part() -> None:
    assert (WORKER["node"]["name"], WORKER["node"]["address"], WORKER["node"]["head"]) == (
        "spark2",
        "10.110.0.2",
        False,
    )
    assert {**WORKER, "node": PLAN["node"]} == PLAN


def test_ray_and_vllm_are_quoted_for_systemd() -> None:
    text = planned(WORKER, "gb10-ray", ray_cluster_args=['--labels={"a": "b"}'])["unit"]["text"]
    assert " --address=10.110.0.1:6379 " in text and ' "--labels={\\"a\\": \\"b\\"}"\n' in text
    own = {**WORKER, "serve": {**WORKER["serve"], "user_args": ["--max-model-len", "1024"]}}
    assert " --max-model-len 1024\n" in planned(own, "gb10-vllm")["unit"]["text"]


def test_pinned_gid_index_is_in_the_nodes_environment() -> None:
    rails = WORKER["node"]["rails"]
    gids = [{"index": 4, "gid": f"::ffff:{rail['address'].split('/')[0]}", "type": "RoCE v2"} for rail in rails]
    facts = {"rdma": {rail["hca"]: {"gids": [gid]} for rail, gid in zip(rails, gids, strict=True)}}
    plan = FILTERS["pinned_gid_index"](WORKER, facts)
    assert plan["node"]["environment"] == {**WORKER["node"]["environment"], "NCCL_IB_GID_INDEX": "4"}
    with pytest.raises(AnsibleFilterError, match="there is no rocep1s0f1"):
        FILTERS["pinned_gid_index"](WORKER, {"rdma": {}})
