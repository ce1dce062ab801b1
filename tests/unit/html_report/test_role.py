"""playbooks/verify.yml writes JSON lines and the page on the controller, with the records next to the inventory.

Both nodes are this machine, with a program that reports the same rails.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from html_page import parsed
from repository import ROOT
from run_module import program
from run_playbook import Run, run

LINKS = [
    {
        "ifname": name,
        "mtu": 9000,
        "flags": ["UP", "LOWER_UP"],
        "addr_info": [{"family": "inet", "local": address, "prefixlen": 24}],
    }
    for name, address in (("enp1s0f1np1", "10.110.0.1"), ("enP2p1s0f1np1", "10.110.0.2"))
]
SHOW = "Show the findings and the differences between nodes"
WRITE = "Write the report as an HTML page on the controller"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """An inventory of two hosts, which are both this machine, with records."""
    folder = tmp_path / "office"
    shutil.copytree(ROOT / "inventories/two-spark", folder)
    (folder / ".gb10/benchmarks").mkdir(parents=True)
    run = dict.fromkeys(("concurrency", "input_tokens", "output_tokens", "requests"), 1)
    runs = [{**run, "failed": 0, "tokens_per_second": 7.0}]
    matrix = {"format": 1, "finished": True, "rows": [{"name": "third {{ 6 * 7 }}", "problem": "", "runs": runs}]}
    files = {
        "benchmark_all": matrix,
        "golden_result": {"format": 1, "answers": 3, "equal": 3, "record_date": "2026-11-01"},
    }
    for date, name in (("20261101T000000Z", "older"), ("20261102T000000Z", "newer")):
        document = {"format": 1, "served_model_name": f"{name} {{{{ 6 * 7 }}}}", "date": date, "runs": runs}
        files[f"benchmarks/tiny-{date}"] = document
    for name, content in files.items():
        (folder / f".gb10/{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def verify(inventory: Path, page: Path, *arguments: str) -> Run:
    path = program(inventory.parent, "ip", f"echo '{json.dumps(LINKS)}'")
    local = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
    variables = json.dumps({**local, "verify_quick": True, "verify_report": str(page)})
    given = ["-i", str(inventory), "-e", variables, "--tags", "fabric", *arguments]
    return run("playbooks/verify.yml", given, {"PATH": f"{path}:/usr/sbin:/usr/bin:/sbin:/bin"})


@pytest.mark.slow
def test_the_page_is_written_and_readable_by_its_owner_only(inventory: Path) -> None:
    page, lines = inventory.parent / "report.html", inventory.parent / "verification.jsonl"
    # A relative path starts at the working directory.
    done = verify(inventory, Path(os.path.relpath(page, ROOT)), "--diff", "-e", f"verify_output={lines}")
    assert done.status != 0 and "hmac:" not in done.output, "both hosts have the same address"
    assert done.changed_tasks() == {WRITE, "Write the result as JSON lines on the controller"}
    (written,) = inventory.parent.glob("verification*.jsonl")
    summary, *documents = map(json.loads, written.read_text(encoding="utf-8").splitlines())
    assert (summary["groups"], summary["read"], summary["worst"]) == (["fabric"], 2, "error")
    assert {document["id"] for document in documents} == {"address-duplicate", "rails-share-subnet", "rails-crossed"}
    assert done.shown(SHOW)[-1] == f"page: {page}"
    assert page.stat().st_mode & 0o777 == 0o600
    assert "<!DOCTYPE" not in done.output
    text = page.read_text(encoding="utf-8")
    found = parsed(text)
    assert found.problems == [] and 'id="finding-address-duplicate"' in text
    assert "Cluster office" in found.text and "All answers agree with the record." in found.text
    # A record is never a template.
    assert "newer {{ 6 * 7 }}" in found.text and "third {{ 6 * 7 }} 7.0" in found.text and "older {{" not in found.text
    assert "packets over each rail, and digests of vLLM's files" in found.text


@pytest.mark.slow
def test_check_mode_writes_nothing(inventory: Path) -> None:
    page = inventory.parent / "report.html"
    assert "page: " not in "".join(verify(inventory, page, "--check").shown(SHOW))
    assert not page.exists()
