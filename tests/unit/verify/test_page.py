"""docs/verification.md equals the table of checks, whose texts are complete."""

from __future__ import annotations

import re

import pytest
from repository import ROOT, load_yaml, read
from snapshot import assert_recorded

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Check
from ansible_collections.gb10.cluster.plugins.module_utils.verify.page import document
from ansible_collections.gb10.cluster.plugins.module_utils.verify.report import CHECKS
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, SEVERITIES, Cluster


def test_the_page_equals_the_table() -> None:
    assert_recorded(ROOT / "docs" / "verification.md", document())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_texts_of_a_check(check: Check[Cluster]) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.id)
    assert check.topic in GROUPS
    assert check.severity in SEVERITIES
    for text in (check.expected, check.why, check.fix, check.source):
        assert text.strip() == text != ""
        assert not text.endswith(".")
    assert f"### {check.id}\n" in document()


def test_each_check_has_its_own_id() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_each_group_has_a_check_and_is_a_tag() -> None:
    assert {check.topic for check in CHECKS} == set(GROUPS)
    assert load_yaml(read("roles/verify/vars/main.yml"))["_verify_all_groups"] == list(GROUPS)
