"""The launch overrides that nodes report: a worker cannot add arguments to the head's server."""

from __future__ import annotations

import os
import re
from typing import Any

import jinja2.nativetypes
import pytest
from ansible.errors import AnsibleFilterError
from cluster_nodes import cluster_plan, spark
from filters import FILTERS
from repository import files, load_yaml, read
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import additions
from ansible_collections.gb10.cluster.plugins.module_utils.patch import table

ROOT, RUNTIME = "/opt/gb10", "/opt/gb10/runtime/abc"
SHA256 = "ab" * 32
LIBRARY = f"{ROOT}/nccl/2.30.7-1/lib/libnccl.so.2"
MOUNT = {
    "source": f"{ROOT}/images/1/site-packages/vllm",
    "target": "/usr/local/lib/python3.12/dist-packages/vllm",
    "read_only": True,
}
NOTHING: dict[str, Any] = {"environment": {}, "flags": [], "files": {}, "mounts": []}
PATCH = {
    "runtime": RUNTIME,
    "environment": {
        "VLLM_DISABLED_KERNELS": "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel",
        "VLLM_USE_FLASHINFER_MOE_FP8": "0",
        "VLLM_TUNED_CONFIG_FOLDER": f"{RUNTIME}/lib/python3.12/site-packages/gb10_moe_configs",
        "TRITON_PTXAS_PATH": "/usr/local/cuda-13.0/bin/ptxas",
        "TRITON_PTXAS_BLACKWELL_PATH": "/usr/local/cuda-13.0/bin/ptxas",
    },
    "flags": ["--moe-backend", "triton"],
    "files": {
        "model_executor/a.py": SHA256,
        "removed.py": "",
        f"{table.PTXAS}/ptxas-blackwell": SHA256,
        f"{table.CONFIGS}/E=8,N=1,device_name=NVIDIA_GB10,block_shape=[128,128].json": SHA256,
        f"{RUNTIME}/lib/python3.12/site-packages/gb10_moe_configs/E=8.json": SHA256,
    },
    "mounts": [
        MOUNT,
        {
            "source": f"{ROOT}/images/1/site-packages/triton/backends/nvidia/bin",
            "target": "/opt/venv/lib/python3.12/site-packages/triton/backends/nvidia/bin",
            "read_only": True,
        },
        {"source": f"{ROOT}/images/1/config", "target": f"{ROOT}/images/1/config", "read_only": True},
    ],
}
NCCL = {
    "runtime": RUNTIME,
    "environment": {"LD_PRELOAD": LIBRARY},
    "flags": [],
    "files": {LIBRARY: SHA256},
    "mounts": [],
}
IMAGE = {
    "runtime": RUNTIME,
    "environment": {},
    "flags": [],
    "files": {
        "vllm/vllm-openai:v0.30.0": SHA256,
        f"nvcr.io:443/nvidia/vllm@sha256:{SHA256}": SHA256,
        "vllm-0.33.0+cu130-cp312-abi3-manylinux_2_35_aarch64.whl": SHA256,
    },
    "mounts": [],
}
HONEST = {"vllm_patch": PATCH, "nccl_sm121_build": NCCL, "vllm_runtime": IMAGE}


def test_the_overrides_of_each_role_are_accepted() -> None:
    assert additions.of_node("spark2", HONEST, RUNTIME, ROOT) == (dict(sorted(HONEST.items())), [])


def test_every_role_that_records_overrides_is_known() -> None:
    recording = {
        path.split("/")[1]
        for path in files("roles/*/tasks/*.yml")
        if re.search(r"^ *common_overrides:", read(path), re.MULTILINE)
    }
    assert recording == set(additions.ROLES)


ACCEPTED = [
    *({**NOTHING, "environment": dict(row.environment), "flags": list(row.flags)} for row in table.ROWS),
    *({**NOTHING, "environment": {"VLLM_DISABLED_KERNELS": ",".join(kernels)}} for kernels in table.PROBED.values()),
]


@pytest.mark.parametrize("addition", ACCEPTED)
def test_every_variable_and_flag_of_the_patches_is_accepted(addition: dict[str, Any]) -> None:
    assert additions.check("a", "vllm_patch", addition, ROOT) == []


#: Role, changed key, value.
HOSTILE: dict[str, tuple[str, str, Any]] = {
    "flags that are lists": ("vllm_patch", "flags", [["--x"]]),
    "arguments of a server": (
        "vllm_patch",
        "flags",
        ["--host=0.0.0.0", "--allowed-local-media-path=/", "--trust-remote-code"],
    ),
    "an argument after a known one": ("vllm_patch", "flags", ["--moe-backend", "triton", "--host=0.0.0.0"]),
    "half of an argument": ("vllm_patch", "flags", ["--moe-backend"]),
    "arguments as text": ("vllm_patch", "flags", "--moe-backend triton"),
    "an argument of a role without any": ("nccl_sm121_build", "flags", ["--moe-backend", "triton"]),
    "a variable": ("vllm_patch", "environment", {"PYTHONPATH": "/tmp"}),
    "a library": ("nccl_sm121_build", "environment", {"LD_PRELOAD": "/tmp/evil.so"}),
    "a library above": ("nccl_sm121_build", "environment", {"LD_PRELOAD": f"{ROOT}/../tmp/evil.so"}),
    "two libraries": ("nccl_sm121_build", "environment", {"LD_PRELOAD": f"{LIBRARY}:/tmp/evil.so"}),
    "a file that is no libnccl": ("nccl_sm121_build", "environment", {"LD_PRELOAD": f"{ROOT}/models/a.so"}),
    "a variable of another role": ("vllm_runtime", "environment", {"LD_PRELOAD": LIBRARY}),
    "an unknown kernel": ("vllm_patch", "environment", {"VLLM_DISABLED_KERNELS": "CutlassFP8ScaledMMLinearKernel,X"}),
    "two lines": ("vllm_patch", "environment", {"TRITON_PTXAS_PATH": "/a\nLD_PRELOAD=/b"}),
    "a number": ("vllm_patch", "environment", {"VLLM_USE_FLASHINFER_MOE_FP8": 0}),
    "a digest": ("vllm_runtime", "files", {"image": "--privileged"}),
    "a path of two lines": ("vllm_patch", "files", {"a\nb": SHA256}),
    "many files": ("vllm_patch", "files", dict.fromkeys(map(str, range(5000)), SHA256)),
    "files as list": ("vllm_patch", "files", []),
    "a mount of the system": ("vllm_patch", "mounts", [{**MOUNT, "source": "/etc"}]),
    "a mount over a program": ("vllm_patch", "mounts", [{**MOUNT, "target": "/usr/bin/python3"}]),
    "a mount over programs": ("vllm_patch", "mounts", [{**MOUNT, "target": "/usr/bin"}]),
    "a mount of another folder": ("vllm_patch", "mounts", [{**MOUNT, "source": f"{ROOT}/models/evil"}]),
    "a mount of a role that replaces nothing": ("nccl_sm121_build", "mounts", [MOUNT]),
    "an assembler of the services": ("vllm_patch", "environment", {"TRITON_PTXAS_PATH": "/var/lib/vllm/evil"}),
    "an assembler below": ("vllm_patch", "environment", {"TRITON_PTXAS_PATH": "/usr/local/cuda/../lib/bin/ptxas"}),
    "another program": ("vllm_patch", "environment", {"TRITON_PTXAS_BLACKWELL_PATH": "/usr/local/cuda/bin/nvcc"}),
    "a file of the system": ("vllm_patch", "files", {"/etc/shadow": ""}),
    "a file above the package": ("vllm_patch", "files", {"../../../../etc/shadow": ""}),
    "a file above Triton": ("vllm_patch", "files", {f"{table.PTXAS}/../../ptxas": ""}),
    "a file above the folder": ("vllm_patch", "files", {f"{ROOT}/../../etc/shadow": ""}),
    "a library of the system": ("nccl_sm121_build", "files", {"/etc/shadow": ""}),
    "a path in place of an image": ("vllm_runtime", "files", {"/etc/shadow": ""}),
    "a mount above": ("vllm_patch", "mounts", [{**MOUNT, "source": f"{ROOT}/../etc"}]),
    "a mount of the folder's namesake": ("vllm_patch", "mounts", [{**MOUNT, "source": f"{ROOT}x/y"}]),
    "options in a mount": ("vllm_patch", "mounts", [{**MOUNT, "target": "/a,bind-propagation=shared"}]),
    "a writable mount": ("vllm_patch", "mounts", [{**MOUNT, "read_only": False}]),
    "a mount of another form": ("vllm_patch", "mounts", ["/etc:/etc"]),
    "many mounts": ("vllm_patch", "mounts", [MOUNT] * 17),
}


@pytest.mark.parametrize(("role", "key", "value"), HOSTILE.values(), ids=HOSTILE)
def test_anything_else_is_a_problem_before_any_change(role: str, key: str, value: Any) -> None:
    changed = {**HONEST[role], key: value}
    nodes = [spark(1, "head"), spark(2, "worker")]
    nodes[1]["observed"]["additions"] = {role: {**changed, "runtime": cluster_plan(nodes)[0]["runtime"]["name"]}}
    made, problems = cluster_plan(nodes)
    assert not made
    assert [problem.path.startswith(f"spark2.additions.{role}.{key}") for problem in problems] == [True], problems
    assert f"remove /etc/gb10/overrides.d/{role}.json on spark2" in problems[0].fix and len(str(problems[0])) < 900
    # The same while a run records overrides.
    given = fact({"root": ROOT, "nodes": [{"name": "spark2", "additions": {}}]})
    with pytest.raises(AnsibleFilterError, match=f"spark2.additions.{role}.{key}"):
        FILTERS["merge_overrides"](given, role, {"spark2": changed})


@pytest.mark.parametrize("recorded", [[], 7, {"vllm_patch": 7}, {"vllm_patch": None}, {"evil": PATCH}], ids=str)
def test_an_unknown_role_and_another_form_are_a_problem(recorded: Any) -> None:
    found, (problem,) = additions.of_node("spark2", recorded, RUNTIME, ROOT)
    assert (found, problem.path) == ({}, "spark2.additions")
    assert problem.found == ("'evil'" if "evil" in str(recorded) else repr(recorded))


def test_an_unknown_key_is_dropped() -> None:
    given = {"vllm_patch": {**PATCH, "argv": ["x"]}}
    assert additions.of_node("spark2", given, RUNTIME, ROOT) == ({"vllm_patch": PATCH}, [])


@pytest.mark.parametrize(
    "place",
    [
        f"{ROOT}/build/wheels/0.33.0-0123456789ab/vllm-0.33.0+gb10.01234567.cpu-cp311-cp311-linux_x86_64.whl",
        "/home/nvidia/My wheels/torch-2.14.0-cp312-cp312-linux_aarch64.whl",
        "https://example.org/wheels/torch-2.14.0+cu130-1-cp312-cp312-linux_aarch64.whl",
    ],
)
def test_the_wheels_of_a_node_are_recorded_by_name(place: str) -> None:
    """With the role's own expression, wherever the inventory has a wheel."""
    expression = load_yaml(read("roles/vllm_runtime/vars/main.yml"))["_vllm_runtime_own"].strip()
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters |= {"basename": os.path.basename, "zip": zip}
    node = {"wheels": [{"wheel": place, "sha256": SHA256}]}
    recorded = environment.from_string(expression).render(gb10_plan={"node": node}, dict=dict)
    assert recorded == {place.rpartition("/")[2]: SHA256}
    assert additions.check("a", "vllm_runtime", {**NOTHING, "files": recorded}, ROOT) == []
