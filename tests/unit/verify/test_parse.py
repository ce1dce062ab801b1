"""Output of a node's tools as facts, and the form in which variables leave a node."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.verify import environment, parse

MAPS = """\
7f00-7f01 r-xp 00000000 fd:01 9 /opt/x/lib/python3.12/site-packages/torch/lib/libtorch.so
7f02-7f03 r-xp 00000000 fd:01 8 /usr/lib/aarch64-linux-gnu/libcuda.so.580.142
7f04-7f05 r-xp 00000000 fd:01 7 /usr/lib/aarch64-linux-gnu/libcudart.so.13
7f06-7f07 rw-p 00000000 00:00 0
"""
DIGEST = hashlib.sha256(b"x")
TEXT = base64.urlsafe_b64encode(DIGEST.digest()).decode().rstrip("=")
FILES = ("vllm/a/b.py", "vllm/_C.so", "vllm/../x.py", "other/a.py")
RECORD = "".join(f"{path},sha256={TEXT},1\n" for path in FILES) + "vllm/c.py,,\n"
FOLDERS = ["vllm-0.32.0.dist-info", "vllm", "torch-2.9.1+cu130.dist-info", "rayon-1.dist-info"]
RAIL = {"addresses": ["10.110.0.1/24"], "mtu": "9000"}
WRONG_ADDRESSES = ({"x": "y"}, "fd00::1/64", "10.0.0.999/24", "10.0.0.1")
RAILS = {
    "enp1s0f1np1": RAIL,
    **{str(index): {"addresses": [value]} for index, value in enumerate(WRONG_ADDRESSES)},
    "worse": "x",
}


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (
            parse.packages,
            [*FOLDERS, "nvidia_nccl_cu13-2.28.9.dist-info"],
            {"nvidia_nccl_cu13": "2.28.9", "torch": "2.9.1+cu130", "vllm": "0.32.0"},
        ),
        (parse.site_packages, MAPS, "/opt/x/lib/python3.12/site-packages"),
        (parse.site_packages, "", ""),
        (parse.cuda_libraries, MAPS, {"/usr/lib/aarch64-linux-gnu/libcuda.so.580.142"}),
        (parse.cuda_libraries, MAPS.replace("580.142", "1 (deleted)"), {"/usr/lib/aarch64-linux-gnu/libcuda.so.1"}),
        (parse.cuda_libraries, "", set()),
        (parse.recorded_files, RECORD, {"vllm/a/b.py": DIGEST.hexdigest()}),
        (parse.planned_rails, {"network": {"ethernets": RAILS}}, {"enp1s0f1np1": {**RAIL, "mtu": 9000}}),
        *((parse.planned_rails, wrong, {}) for wrong in (None, [], {"network": []}, {"network": {"ethernets": "x"}})),
        (parse.removes_ipc, "#RemoveIPC=no\n", True),
        (parse.removes_ipc, "[Login]\nRemoveIPC=yes\nRemoveIPC=no\n", False),
        (
            parse.containers,
            "/vllm\tnvcr.io/x:1\tsha256:ab\nbroken\n",
            [{"name": "vllm", "image": "nvcr.io/x:1", "id": "sha256:ab"}],
        ),
        (
            environment.of_process,
            "A=1\0INVOCATION_ID=9\0SSH_TTY=x\0broken\0B=2=3\0",
            {"A": "1", "B": "2=3"},
        ),
    ],
)
def test_output_of_a_nodes_tools_becomes_facts(function: Callable[[Any], Any], given: Any, expected: Any) -> None:
    assert function(given) == expected


VARIABLES = {
    "NCCL_DEBUG": "WARN",
    "HF_TOKEN": "hf_secret",
    "NCCL_SECRET_KEY": "x",
    "VLLM_API_KEY": "short",
    "HOME": "/root",
}


def test_secrets_never_leave_a_node_as_text() -> None:
    sent = environment.sendable(VARIABLES, "one")
    assert sent["NCCL_DEBUG"] == "WARN"
    assert all(value.startswith("hmac:") for name, value in sent.items() if name != "NCCL_DEBUG")
    plain = hashlib.sha256(b"short").hexdigest()[:16]
    assert plain not in str(sent)
    assert sent == environment.sendable(VARIABLES, "one")
    assert sent["VLLM_API_KEY"] != environment.sendable(VARIABLES, "two")["VLLM_API_KEY"]
    assert environment.sendable(VARIABLES, "") == {"NCCL_DEBUG": "WARN"}
