"""playbooks/verify.yml: unreachable nodes, groups by tag, the JSON lines, and the exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_libraries import code, elf, fat
from repository import ROOT
from run_module import program
from run_playbook import Run, run

SHOW = "Show the findings and the differences between nodes"


def verified(*arguments: str, path: Path | None = None, **variables: Any) -> Run:
    """Run the playbook. ``path`` is a folder with programs that precede the system's."""
    given = ["-i", str(ROOT / "inventories/two-spark"), "-e", json.dumps(variables), *arguments]
    environment = {"PATH": f"{path}:/usr/sbin:/usr/bin:/sbin:/bin"} if path else {}
    return run("playbooks/verify.yml", given, environment)


@pytest.mark.slow
def test_nodes_that_cannot_be_reached_are_findings() -> None:
    done = verified(ansible_host="127.0.0.2", ansible_port=9)
    lines = done.shown(SHOW)
    assert done.status != 0
    assert lines[0].startswith("verified 0 of 2 nodes with ")
    assert [line.partition(": ")[0] for line in lines[1:3]] == [
        f"error node-unreachable {node}" for node in ("spark1", "spark2")
    ]
    assert "Connection refused" in lines[1]
    assert "The worst finding is of severity error." in done.output


LOCAL = {
    "ansible_connection": "local",
    "ansible_become": False,
    "ansible_python_interpreter": sys.executable,
}


@pytest.mark.slow
def test_gpu_kernels_of_an_installed_runtime(tmp_path: Path) -> None:
    """Both nodes are this machine, with a GPU, a runtime without code for it, and a probe with a wrong result."""
    site = tmp_path / "gb10/runtime/current/lib/python3.12/site-packages/vllm"
    site.mkdir(parents=True)
    (site / "_C.abi3.so").write_bytes(elf([(".nv_fatbin", fat(code("cubin", "90a")))]))
    gpu = 'case "$*" in *compute_cap*) echo "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-1";; esac'
    probe = {"name": "cuda", "state": "failed", "cause": "wrong_result", "error": 0.5, "bound": 0.02, "seconds": 1}
    path = program(tmp_path / "bin", "nvidia-smi", gpu)
    program(path, "systemd-run", f"echo \"$@\" >>{tmp_path}/ran\necho '{json.dumps({**probe, 'message': 'x'})}'")
    given = {"verify_install_dir": f"{tmp_path}/gb10", "verify_fail_on": "never"}
    lines = verified("--tags", "runtime", path=path, **given, **LOCAL).assert_ok().shown(SHOW)
    for node in ("spark1", "spark2"):
        missing = "vllm/_C, which each model needs, has no code for 12.1 (programs: 1)"
        wrong = "a kernel of PyTorch: wrong result (deviation 0.5, bound 0.02): x"
        assert {f"error kernel-missing {node}: {missing}", f"error gpu-probe-failed {node}: {wrong}"} <= set(lines)
    assert lines[-4:-2] == [
        "programs with GPU code for 12.1 on spark1, spark2:",
        "vllm/_C: 0 native, 0 same major, 0 PTX, 1 none",
    ]
    assert lines[-1].startswith("GPU probe on spark2: cuda failed, ")
    ran = (tmp_path / "ran").read_text(encoding="utf-8")
    assert ran.count(f"{tmp_path}/gb10/runtime/current/bin/python -c ") == 2
