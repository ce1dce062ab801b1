"""playbooks/field_report.yml on this machine as a node, and after a failed site.yml: it writes a report in each
case."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository import ROOT
from run_module import program
from run_playbook import Run, run

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import redact

LOCAL = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
#: Refuses the connection at once.
LOST = {"ansible_host": "127.0.0.2", "ansible_port": 9}
NAMES = ("lisa-spark", "tower-9", "acme-private", "127.0.0.2")


class Site:
    """An inventory with a head on this machine, and programs that return a broken host's output."""

    def __init__(self, folder: Path, worker: dict[str, Any] | None = None, **variables: object) -> None:
        self.folder, self.programs = folder / "mine", folder / "bin"
        (folder / "mine").mkdir()
        for name in ("nvidia-smi", "nmcli", "systemctl", "networkctl"):
            program(self.programs, name, "echo 'it is broken on lisa-spark' >&2; exit 9")
        children: dict[str, Any] = {"head": {"hosts": {"lisa-spark": LOCAL}}}
        if worker is not None:
            children["worker"] = {"hosts": {"tower-9": worker}}
        given = {"gb10_model": "acme-private-model", "gb10_api_port": 9, **variables}
        inventory = {"all": {"children": {"gb10_cluster": {"vars": given, "children": children}}}}
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def play(self, playbook: str, *arguments: str) -> Run:
        given = ["-i", str(self.folder / "hosts.yml"), *arguments]
        return run(playbook, given, {"PATH": f"{self.programs}:{os.environ['PATH']}"})

    def report(self) -> dict[str, Any]:
        text = (self.folder / ".gb10/field_report.json").read_text(encoding="utf-8")
        assert [name for name in NAMES if name in text] == []
        return dict(json.loads(text))


@pytest.mark.slow
def test_after_a_failed_run_with_an_invalid_variable(tmp_path: Path) -> None:
    site = Site(tmp_path, gb10_api_port="many")
    assert site.play("site.yml").status != 0
    assert stat.S_IMODE((site.folder / ".gb10/last_failures.json").stat().st_mode) == 0o600
    # A measurement needs a plan, and its refusal leaves the report.
    assert site.play("playbooks/field_report.yml", "-e", "field_report_measure=true").status != 0
    found = site.report()
    invalid, refused = found["problems"]
    assert "gb10_api_port: 'many'. Expected: a value of type int." in invalid["lines"][1]
    assert refused["task"] == "Refuse to measure without a plan"
    # The report has the same problem, and is no failed run itself.
    (last,) = found["failures"]
    assert (last["playbook"], last["failures"][0]["hosts"]) == ("site.yml", ["node1"])
    assert (
        last["failures"][0]["task"] == "gb10.cluster.gb10 : Stop on planning errors, before anything changes"
        and "gb10_api_port" in last["failures"][0]["lines"][1]
    )
    assert (found["plan"], found["model"]) == (None, "MODEL")
    # The node itself was read.
    (node,) = found["nodes"]
    assert (
        node["head"]
        and os.uname().release.startswith(node["facts"]["kernel"].removesuffix(redact.GONE))
        and node["facts"]["interfaces"]
        and node["evidence"]["release"]
    )
    assert node["unread"]["evidence"]["nvidia_smi"] == "nvidia-smi: it is broken on node1"


@pytest.mark.slow
def test_with_problems_and_an_unreachable_node(tmp_path: Path) -> None:
    site = Site(tmp_path, LOST)
    # In check mode no run is recorded.
    assert site.play("playbooks/plan.yml", "--check").status != 0
    assert not (site.folder / ".gb10").exists()
    # A relative path starts at the working directory.
    other = ["-e", f"field_report_file={os.path.relpath(tmp_path / 'new/report.json', ROOT)}"]
    checked = site.play("playbooks/field_report.yml", *other, "--check").assert_ok()
    assert f"Would write {tmp_path}/new/report.json. Read it" in " ".join(checked.output.split())
    assert not (tmp_path / "new").exists()
    (site.folder / ".gb10").mkdir()
    (site.folder / ".gb10/golden_result.json").write_text('{"equal": 6}', encoding="utf-8")
    written = site.play("playbooks/field_report.yml").assert_ok()
    assert f"Wrote {site.folder}/.gb10/field_report.json. Read it" in " ".join(written.output.split())
    found = site.report()
    assert found["golden"]["equal"] == 6
    (problem,) = found["problems"]
    assert problem["task"] == "Stop on planning errors, before anything changes"
    assert any("unknown model 'MODEL'" in line for line in problem["lines"])
    assert any("node2 (ADDRESS) cannot be read" in line for line in problem["lines"])
    assert "Connection refused" in found["nodes"][1]["unreachable"] and found["nodes"][0]["unreachable"] == ""
    assert found["failures"] == []
