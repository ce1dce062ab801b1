"""playbooks/export.yml writes one file on the controller: with recorded facts, in check mode, and repeatedly."""

from __future__ import annotations

import json
from pathlib import Path

import certificates
import pytest
import yaml
from cluster_nodes import observed
from exports import INPUTS, OWNER, of_kind, templates
from repository import ROOT, read
from run_playbook import Run, run

INVENTORY = ROOT / "inventories/two-spark"
SECRET = "a-secret-that-nobody-sees"
WRITE = "Write the objects"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a folder with the recorded facts of a sample's two nodes."""
    for number in (1, 2):
        state = {"service_user": OWNER, "service_user_ready": True}
        text = json.dumps({**observed(f"192.168.1.{10 + number}"), "model": None, "state": state})
        (tmp_path / f"spark{number}.json").write_text(text, encoding="utf-8")
    return tmp_path


def export(folder: Path, *arguments: str, **variables: object) -> Run:
    given = {
        "gb10_plan_offline": True,
        "gb10_facts_dir": str(folder),
        "export_path": str(folder / "new/lws.yaml"),
        "export_format": "lws",
    }
    words = ["-i", str(INVENTORY), "--extra-vars", json.dumps({**given, **variables}), *arguments]
    return run("playbooks/export.yml", words)


def test_the_file_is_written_once_and_has_no_secret(recorded: Path) -> None:
    file = recorded / "new/lws.yaml"
    authority = certificates.authority()
    pair = authority.issue("192.168.1.11")
    secret = {"gb10_secret_env": {"HF_TOKEN": SECRET}, "gb10_api_key": f"{SECRET}-key"}
    given = {
        **INPUTS,
        **secret,
        "gb10_api_tls_certificate": pair.text,
        "gb10_api_tls_key": pair.key_text,
        "gb10_api_tls_ca": authority.text,
    }
    given["gb10_extra_env"] = {"ODD": "$(HOME)"}
    preview = export(recorded, "--check", "--diff", **given).assert_ok()
    assert not file.exists()
    assert f"Would write {file}:" in " ".join(preview.output.split())
    assert "+kind: LeaderWorkerSet" in preview.output
    done = export(recorded, "-vv", **given).assert_ok()
    assert WRITE in done.changed_tasks()
    text = file.read_text(encoding="utf-8")
    for output in (preview.output, done.output, text):
        assert SECRET not in output
        assert not [line for line in pair.key_text.splitlines()[1:-1] if line in output]
    lines = done.shown("Show the objects and the missing Secrets")
    assert {"ConfigMap gb10-vllm-files", "Service gb10-vllm-api", "LeaderWorkerSet gb10-vllm"} < set(lines)
    assert "needs the Secret gb10-vllm-environment with HF_TOKEN (docs/kubernetes.md)" in lines
    objects = list(yaml.safe_load_all(text))
    assert list(templates(objects)) == ["spark1", "spark2"]
    assert "$$(HOME)" in text
    # Ansible changed nothing in the programs.
    assert of_kind(objects, "ConfigMap")["data"]["probe.py"] == read("plugins/module_utils/export/io_probe.py")
    again = export(recorded, **given).assert_unchanged()
    assert file.read_text(encoding="utf-8") == text
    assert f"Wrote {file}:" in " ".join(again.output.split())


def test_a_plan_for_systemd_alone_is_refused_with_all_reasons(recorded: Path) -> None:
    done = export(recorded, gb10_distributed_executor_backend="ray", export_name="Big")
    assert done.status != 0
    assert not (recorded / "new").exists()
    for found in (
        "3 problems found; nothing was changed.",
        "gb10_runtime: native",
        "gb10_distributed_executor_backend: ray",
        "export_name: 'Big'",
    ):
        assert found in done.output


def test_a_problem_of_the_plan_comes_first(tmp_path: Path) -> None:
    done = export(tmp_path, **INPUTS)
    assert done.status != 0
    assert "spark1 has no recorded facts" in done.output
    assert "Write the objects" not in done.output
