"""The locked packages of `current` for a Spark, on a host of its architecture without a GPU.

The parser of `vllm serve` is not tested here: without NVIDIA's driver vLLM finds no device, and raises RuntimeError.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import pytest
from live_cluster import Cluster
from locks import installed
from repository import ROOT
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks

STACK = stacks.STACKS["current"]


@pytest.fixture(scope="module")
def python(cluster: Cluster, head: Host) -> str:
    """Return an interpreter of the host that imports the packages. The machine installs them once, in seconds."""
    text = (ROOT / "roles/gb10/files" / STACK.lock).read_text(encoding="utf-8")
    release = head.check_output("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'")
    (bind,) = cluster.nodes["spark1"]["lab_binds"]
    name = hashlib.sha256(f"{text}{release}".encode()).hexdigest()[:12]
    target = Path(bind["src"]) / name
    if not target.exists():
        for older in target.parent.iterdir():
            shutil.rmtree(older)
        entries = installed.requirements(text)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            site = installed.install(
                [entry for entry in entries if entry.version], installed.uv(entries), Path(folder), release
            )
            site.rename(target)
    script = "/usr/local/bin/python-current"
    head.check_output(f"echo '#!/bin/sh\nPYTHONPATH={bind['dest']}/{name} exec python3 \"$@\"' >{script}")
    head.check_output(f"chmod 755 {script}")
    return script


def test_the_packages_of_a_rank_are_imported(head: Host, python: str) -> None:
    # vLLM's compiled modules need the driver's libcuda.so.1.
    names = ["torch", "triton", "vllm", "flashinfer", "ray"]
    program = f"import importlib, json\nfor name in {names}: importlib.import_module(name)\n"
    program += "import torch, vllm; print(json.dumps([torch.__version__, torch.version.cuda, vllm.__version__]))"
    torch, cuda, vllm = json.loads(head.check_output("%s -c %s", python, program).splitlines()[-1])
    assert (torch.partition("+")[0], cuda.partition(".")[0]) == (STACK.torch, "13")
    assert vllm == STACK.vllm
