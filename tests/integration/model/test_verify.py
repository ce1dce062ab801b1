"""verify.yml on a healthy cluster: no finding, no change, and a report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from html_page import parsed
from live_cluster import Cluster


@pytest.mark.parametrize(
    "mode",
    [
        (),
        pytest.param(("--check", "--diff"), marks=pytest.mark.slow),
        pytest.param(("--extra-vars", "verify_quick=true"), marks=pytest.mark.slow),
    ],
    ids=["run", "check mode", "quick"],
)
def test_a_healthy_cluster_has_no_finding(cluster: Cluster, tmp_path: Path, mode: tuple[str, ...]) -> None:
    done, _found = cluster.verify(
        tmp_path / "found.jsonl", "--extra-vars", f"verify_report={tmp_path}/report.html", *mode
    )
    assert done.assert_ok().shown("Show the findings and the differences between nodes")[0].endswith("no finding")
    assert (tmp_path / "report.html").exists() is ("--check" not in mode)
    if "--check" not in mode:
        page = parsed((tmp_path / "report.html").read_text(encoding="utf-8"))
        assert page.problems == [] and re.search(r"All \d+ checks passed", page.text)
