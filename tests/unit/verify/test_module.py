"""The module cluster_verify_info on a machine without a cluster, and its readers of files."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from pathlib import Path

import pytest
from filters import FILTERS
from run_module import program, run_module

from ansible_collections.gb10.cluster.plugins.module_utils.verify import io_facts, report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS

LINKS = [{"ifname": "lo", "mtu": 65536, "flags": ["UP", "LOWER_UP"], "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]}]
#: systemctl's answer for a unit that does not exist.
MISSING = """LoadState=not-found
UnitFileState=
ActiveState=inactive
SubState=dead
Result=success
MainPID=0
NRestarts=0
InvocationID=
Job=0
ExecMainStatus=0
Environment=
ExecStopPost=
ExecMainStartTimestampMonotonic=0"""


@pytest.mark.parametrize("check", [False, True], ids=["run", "check mode"])
def test_a_machine_without_a_cluster(tmp_path: Path, check: bool) -> None:
    program(tmp_path, "ip", f"echo '{json.dumps(LINKS)}'")
    program(tmp_path, "systemctl", f"cat <<'X'\n{MISSING}\nX")
    program(tmp_path, "journalctl", "true")
    program(tmp_path, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    for name in ("nft", "ufw", "firewall-cmd", "systemd-analyze"):
        program(tmp_path, name, "exit 1" if name != "nft" else "echo '{\"nftables\": []}'")
    started = time.time()
    answer = run_module("cluster_verify_info", {"install_dir": str(tmp_path), "salt": "x"}, tmp_path, check)
    assert (answer["changed"], answer["unread"]) == (False, {})
    assert started <= answer["clock"] <= time.time()
    assert answer["gpu"]["reason"] == "NVIDIA-SMI has failed" or "NVIDIA-SMI has failed" in answer["gpu"]["reason"]
    assert [answer[part] for part in ("packages", "files", "nccl_installed", "api", "ray", "remove_ipc")] == [None] * 6
    assert (answer["environments"], answer["nccl"], answer["images"], answer["ranks"]) == ({}, [], [], [])
    node = {"name": "x", "head": False, "unreachable": "", "facts": answer, "started": started, "finished": time.time()}
    ids = {finding.check.id for finding in report.findings(report.cluster([node]), GROUPS)}
    # The disks, processes and memory are those of the machine that runs the tests.
    assert ids <= {"disk-low", "disk-full", "process-memory", "memory-held", "memory-exhausted", "gpu-unavailable", "temperature-high"}
    assert FILTERS["verification_report"]([node], [[]], ["fabric"], "error")["failed"] is False


def test_parts_that_cannot_be_read_have_a_reason(tmp_path: Path) -> None:
    program(tmp_path, "ip", "echo broken >&2; exit 1")
    program(tmp_path, "systemctl", "echo 'Host is down' >&2; exit 1")
    answer = run_module("cluster_verify_info", {"install_dir": str(tmp_path), "quick": True}, tmp_path)
    assert answer["unread"]["interfaces"] == "ip -json address show failed: broken"
    assert "Host is down" in answer["unread"]["status"]
    node = {"name": "x", "head": False, "unreachable": "", "facts": answer, "started": 0, "finished": 0}
    found = [finding.found for finding in report.findings(report.cluster([node]), GROUPS) if finding.check.id == "facts-unread"]
    assert "interfaces: ip -json address show failed: broken" in found


def wheel(site: Path, **sources: str) -> None:
    """Install a vLLM with these files and its RECORD."""
    (site / "vllm").mkdir()
    (site / "vllm-0.32.0.dist-info").mkdir()
    rows = []
    for name, text in sources.items():
        (site / "vllm" / f"{name}.py").write_text(text, encoding="utf-8")
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"vllm/{name}.py,sha256={digest},{len(text)}\n")
    (site / "vllm-0.32.0.dist-info" / "RECORD").write_text("".join(rows), encoding="utf-8")


def test_changed_patched_and_missing_files(tmp_path: Path) -> None:
    wheel(tmp_path, shipped="a", edited="b", patched="c", edited_later="d", gone="e", pipe="f")
    package = tmp_path / "vllm"
    (package / "edited.py").write_text("edited", encoding="utf-8")
    for name, now in (("patched", "p"), ("edited_later", "q")):
        (package / f"{name}.py").write_text(now, encoding="utf-8")
        (package / f"{name}.py.gb10-sha256").write_text(f"{'0' * 64}  {name}.py.gb10-original\n{hashlib.sha256(b'p').hexdigest()}  {name}.py\n")
    (package / "gone.py").unlink()
    (package / "pipe.py").unlink()
    (package / "pipe.py").mkdir()
    assert io_facts._files(str(tmp_path)) == {
        "changed": ["vllm/edited.py", "vllm/edited_later.py", "vllm/pipe.py"],
        "patched": {"vllm/patched.py": hashlib.sha256(b"p").hexdigest()},
        "missing": ["vllm/gone.py"],
    }


def test_a_package_without_a_record_is_unknown(tmp_path: Path) -> None:
    assert io_facts._files(str(tmp_path)) is None
