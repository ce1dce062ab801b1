"""The role monitoring on two hosts, which are this machine with folders of their own and a fake systemctl."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from overlaid import interpreter, permitted
from packed import packed
from rendered_units import SETTINGS
from repository import ROOT
from run_module import program
from run_playbook import Run, run
from small_server import serving

RECORDED = json.loads((ROOT / "tests/unit/data/plan_two_spark.json").read_text(encoding="utf-8"))
PLAY = """\
- hosts: all
  connection: local
  gather_facts: false
  environment:
    PATH: "{{ playbook_dir }}/{{ inventory_hostname }}/bin:{{ lookup('ansible.builtin.env', 'PATH') }}"
  vars:
    gb10_plan: "{{ plan | combine({'node': plan.nodes[groups['all'].index(inventory_hostname)]}) }}"
    gb10_inputs: {settings: "{{ settings }}"}
  tasks:
    - ansible.builtin.include_role: {name: gb10.cluster.monitoring}
"""
HOSTS = {"spark1": "192.168.1.11", "spark2": "192.168.1.12"}
#: A host with the file "running" has all units started and enabled. Others get them: the calls are recorded. Services
#: of the plan are about to start there, so that their digest counts.
SYSTEMCTL = """host="${0%/bin/*}"; [ -e "$host/running" ] && active=active || active=inactive
case " $*" in
  *" show "*=LoadState,UnitFileState,*)
    for name in SubState Result InvocationID; do echo $name=x; done
    # A timer has no properties of a process.
    case "$2" in
      *.service)
        for name in MainPID NRestarts ExecMainStatus ExecMainStartTimestampMonotonic; do echo $name=0; done
        grep GB10_INPUTS "/etc/systemd/system/$2" || echo Environment= ;;
    esac
    [ "$active" = inactive ] || active=activating
    printf 'LoadState=loaded\\nUnitFileState=enabled\\nActiveState=%s\\n' "$active" ;;
  *" show "*) printf 'LoadState=loaded\\nActiveState=%s\\n' "$active" ;;
  *" is-enabled "*) [ "$active" = active ] && echo enabled || { echo disabled; exit 1; } ;;
  *) echo "$@" >>"$host/calls" ;;
esac"""
UNITS = ("gb10-metrics.service", "gb10-metrics.timer", "gb10-node-exporter.service")


def play(folder: Path, *arguments: str, installed: bool, python: str, **variables: Any) -> Run:
    """Run the role. ``installed``: whether the nodes have the exporter's unit, as the facts of a run say."""
    plan = copy.deepcopy(RECORDED)
    for node in plan["nodes"]:
        node["state"]["units"] = ["gb10-node-exporter.service"] if installed else []
    lines = ["all:\n  hosts:\n"]
    for name, address in HOSTS.items():
        (folder / name).mkdir(exist_ok=True)
        program(folder / name / "bin", "systemctl", SYSTEMCTL)
        lines.append(f"    {name}: {{ansible_host: {address}, ansible_become: false, {python.format(name)}}}\n")
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    (folder / "hosts.yml").write_text("".join(lines), encoding="utf-8")
    extra = json.dumps({"plan": plan, "settings": {**SETTINGS, **variables}, **variables})
    return run(str(folder / "play.yml"), ["-i", str(folder / "hosts.yml"), "-e", extra, *arguments])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts folders")
def test_the_role_writes_starts_and_removes_the_metrics(tmp_path: Path) -> None:
    if not permitted(tmp_path / "probe"):
        pytest.skip("this machine does not permit overlay mounts")
    for name in HOSTS:
        (tmp_path / name / "etc/gb10").mkdir(parents=True)
        interpreter(tmp_path / name)
    python = f"ansible_python_interpreter: {tmp_path}/{{}}/python"
    (tmp_path / ".gb10").mkdir()
    (tmp_path / ".gb10/golden_result.json").write_text(json.dumps({"format": 1, "date": "2026-11-26"}))
    with serving(lambda _request: (200, "gb10_version_info 1\n", {})) as url:
        given = {"monitoring_clients": ["10.0.0.5"], "monitoring_port": int(url.rpartition(":")[2])}
        given = {"installed": True, "python": python, **given}
        done = play(tmp_path, monitoring_enabled=True, **given).assert_ok()
        for name in HOSTS:
            (tmp_path / name / "running").touch()
        play(tmp_path, monitoring_enabled=True, **given).assert_ok().assert_unchanged()
    assert "monitoring has prometheus.yml, rules.yml and dashboard.json" in done.output
    for name in HOSTS:
        assert (tmp_path / name / "usr/local/lib/gb10-metrics").read_bytes() == packed("metrics")
        units = [tmp_path / name / "etc/systemd/system" / unit for unit in UNITS]
        assert all(unit.is_file() for unit in units)
        calls = (tmp_path / name / "calls").read_text(encoding="utf-8")
        assert "start gb10-metrics.timer" in calls
        assert "start gb10-node-exporter.service" in calls
    settings = [json.loads((tmp_path / name / "etc/gb10/monitoring.json").read_text()) for name in HOSTS]
    assert [each["golden"] for each in settings] == [1795651200, 0]
    scrape = (tmp_path / ".gb10/monitoring/prometheus.yml").read_text(encoding="utf-8")
    assert all(f"{address}:{given['monitoring_port']}" in scrape for address in HOSTS.values())
    play(tmp_path, monitoring_enabled=False, **given).assert_ok()
    for name in HOSTS:
        assert "stop gb10-metrics.timer" in (tmp_path / name / "calls").read_text(encoding="utf-8")
        left = [path.name for path in (tmp_path / name / "etc/systemd/system").iterdir() if path.is_file()]
        assert set(left).isdisjoint(UNITS)
        assert not (tmp_path / name / "etc/gb10/monitoring.json").is_file()


def test_without_metrics_nothing_is_done(tmp_path: Path) -> None:
    python = "ansible_python_interpreter: /usr/bin/python3"
    done = play(tmp_path, installed=False, python=python).assert_ok()
    done.assert_unchanged()
    assert "Plan the metrics of the node" not in done.output
    assert "Remove the units of the metrics" not in done.output
