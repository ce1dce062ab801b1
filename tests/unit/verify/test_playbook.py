"""playbooks/verify.yml: unreachable nodes, groups by tag, the JSON lines, and the exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gpu_libraries import code, elf, fat
from repository import ROOT
from run_module import program
from run_playbook import run

INVENTORY = ["-i", str(ROOT / "inventories/two-spark")]
UNREACHABLE = ["-e", "ansible_host=127.0.0.2", "-e", "ansible_port=9"]
LOCAL = [
    "-e",
    "ansible_connection=local",
    "-e",
    "ansible_become=false",
    "-e",
    f"ansible_python_interpreter={sys.executable}",
]
SHOW = "Show the findings and the differences between nodes"


def test_nodes_that_cannot_be_reached_are_findings() -> None:
    done = run("playbooks/verify.yml", [*INVENTORY, *UNREACHABLE])
    lines = done.shown(SHOW)
    assert done.status != 0
    assert lines[0].startswith("verified 0 of 2 nodes with ")
    assert [line.partition(": ")[0] for line in lines[1:3]] == [
        "error node-unreachable spark1",
        "error node-unreachable spark2",
    ]
    assert "Connection refused" in lines[1]
    assert "The worst finding is of severity error." in done.output


def test_this_machine_as_two_nodes(tmp_path: Path) -> None:
    """Both nodes are this machine, with programs that report another MTU on one rail."""
    links = [
        {
            "ifname": name,
            "mtu": mtu,
            "flags": ["UP", "LOWER_UP"],
            "addr_info": [{"family": "inet", "local": address, "prefixlen": 24}],
        }
        for name, mtu, address in (("enp1s0f1np1", 9000, "10.110.0.1"), ("enP2p1s0f1np1", 9000, "10.110.0.2"))
    ]
    path = program(tmp_path, "ip", f"echo '{json.dumps(links)}'")
    output = tmp_path / "verification.jsonl"
    given = [*INVENTORY, *LOCAL, "-e", "verify_quick=true", "-e", f"verify_output={output}", "--tags", "fabric"]
    done = run("playbooks/verify.yml", given, {"PATH": f"{path}:/usr/sbin:/usr/bin:/sbin:/bin"})
    assert done.status != 0, done.output
    summary, *documents = map(json.loads, output.read_text(encoding="utf-8").splitlines())
    assert (summary["groups"], summary["read"], summary["worst"]) == (["fabric"], 2, "error")
    assert {document["id"] for document in documents} == {"address-duplicate", "rails-share-subnet", "rails-crossed"}
    assert all("hmac:" not in line for line in done.output.splitlines())
    again = run(
        "playbooks/verify.yml",
        [*given[:-2], "--skip-tags", "fabric", "-e", "verify_fail_on=never"],
        {"PATH": f"{path}:/usr/bin:/bin"},
    )
    assert "verified 2 of 2 nodes" in again.assert_ok().output
    assert {
        json.loads(line)["group"] for line in output.read_text(encoding="utf-8").splitlines()[1:] if "group" in line
    } <= {"hardware", "serving"}


def test_gpu_kernels_of_an_installed_runtime(tmp_path: Path) -> None:
    """Both nodes are this machine, with a GPU, a runtime without code for it, and a probe with a wrong result."""
    site = tmp_path / "gb10/runtime/current/lib/python3.12/site-packages/vllm"
    site.mkdir(parents=True)
    (site / "_C.abi3.so").write_bytes(elf([(".nv_fatbin", fat(code("cubin", "90a")))]))
    path = program(
        tmp_path / "bin",
        "nvidia-smi",
        'case "$*" in *compute_cap*) echo "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-1";; esac',
    )
    wrong = {
        "name": "cuda",
        "state": "failed",
        "cause": "wrong_result",
        "error": 0.5,
        "bound": 0.02,
        "seconds": 1,
        "message": "x",
    }
    program(path, "systemd-run", f"echo \"$@\" >>{tmp_path}/ran\necho '{json.dumps(wrong)}'")
    given = [
        *INVENTORY,
        *LOCAL,
        "-e",
        f"verify_install_dir={tmp_path}/gb10",
        "-e",
        "verify_fail_on=never",
        "--tags",
        "runtime",
    ]
    environment = {"PATH": f"{path}:/usr/sbin:/usr/bin:/sbin:/bin"}
    lines = run("playbooks/verify.yml", given, environment).assert_ok().shown(SHOW)
    for node in ("spark1", "spark2"):
        assert (
            f"error kernel-missing {node}: vllm/_C, which each model needs, has no code for 12.1 (programs: 1)" in lines
        )
        assert (
            f"error gpu-probe-failed {node}: a kernel of PyTorch: wrong result (deviation 0.5, bound 0.02): x" in lines
        )
    assert lines[-4:-2] == [
        "programs with GPU code for 12.1 on spark1, spark2:",
        "vllm/_C: 0 native, 0 same major, 0 PTX, 1 none",
    ]
    assert lines[-1].startswith("GPU probe on spark2: cuda failed, ")
    ran = (tmp_path / "ran").read_text(encoding="utf-8")
    assert ran.count(f"{tmp_path}/gb10/runtime/current/bin/python -c ") == 2
    lines = run("playbooks/verify.yml", [*given, "-e", "verify_quick=true"], environment).assert_ok().shown(SHOW)
    assert not any("kernel" in line for line in lines)
    assert (tmp_path / "ran").read_text(encoding="utf-8") == ran
