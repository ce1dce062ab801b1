"""The three pages equal the registry of checks, whose texts are complete."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from repository import ROOT, files, load_yaml, read
from snapshot import assert_recorded

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import (
    ERROR,
    LOG,
    PLAN,
    RUNNING,
    SEVERITIES,
)
from ansible_collections.gb10.cluster.plugins.module_utils.check_pages import pages
from ansible_collections.gb10.cluster.plugins.module_utils.check_pages.registry import CHECKS
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, groups
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs

RULES = {check.id for check in CHECKS if check.phase == PLAN}


def troubleshooting() -> str:
    """Return the page with its hand-written end."""
    before, mark, end = read("docs/troubleshooting.md").partition(pages.HAND_WRITTEN)
    assert before and mark
    return pages.troubleshooting(mark + end)


@pytest.mark.parametrize("document", [pages.rules, troubleshooting, pages.verification], ids=lambda each: each.__name__)
def test_a_page_equals_the_registry(document: Callable[[], str]) -> None:
    page, text = f"docs/{document.__name__}.md", document()
    assert_recorded(ROOT / page, text)
    made = text.partition(pages.HAND_WRITTEN)[0]
    entries = re.findall(r"^(?:### |\| `)([a-z0-9-]+)(?:` \|.*)?$", made, re.MULTILINE)
    assert sorted(f"{page}#{entry}" for entry in entries) == sorted(
        check.page for check in CHECKS if check.page.startswith(f"{page}#")
    )


def test_each_rule_is_one_row() -> None:
    rows = [line for line in pages.rules().splitlines() if line.startswith("| `")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {9}


def test_ids_are_unique_on_their_page() -> None:
    entries = re.findall(r"^### (.+)$", read("docs/troubleshooting.md"), re.MULTILINE)
    assert len({check.page for check in CHECKS}) == len(CHECKS) and len(set(entries)) == len(entries)


def test_texts() -> None:
    for check in CHECKS:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.id), check.page
        assert check.expected or check.shows, check.page
        for text in (check.why, check.fix, check.source, check.tested):
            assert text.strip() == text != "", check.page
        for text in (check.expected, check.why, check.fix, check.source, check.disputed):
            assert not text.endswith("."), check.page
        assert bool(check.severity) == (check.severity in SEVERITIES), check.page
        assert set(check.rules) <= RULES, check.page


def test_each_phase_has_its_fields() -> None:
    for check in CHECKS:
        assert bool(check.expected) == (check.phase == RUNNING), check.page
        assert bool(check.pattern) == (check.phase == LOG or check.topic == "Access to the nodes"), check.page
        if check.phase == PLAN:
            assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?|2026 \(vLLM [\d.]+\)", check.evidence), check.page
            assert check.severity != ERROR or not check.disputed, f"{check.page}: evidence contradicts an error"
        if check.phase in (PLAN, RUNNING):
            assert check.severity, check.page
        if check.phase == RUNNING:
            assert check.topic in GROUPS, check.page


def test_each_group_has_a_check_and_is_a_tag() -> None:
    assert {check.topic for check in CHECKS if check.phase == RUNNING} == set(GROUPS)
    assert [groups([group], []) for group in GROUPS] == [[group] for group in GROUPS]
    (tags,) = [
        line
        for line in load_yaml(read("roles/verify/meta/argument_specs.yml"))["argument_specs"]["main"]["description"]
        if line.startswith("The tags ")
    ]
    assert re.findall(r"\w+", tags.partition(" select ")[0].replace(" and ", " "))[2:] == list(GROUPS)


def test_fixes_name_existing_variables_playbooks_and_roles() -> None:
    known, roles = argument_specs.options().keys(), {path.split("/")[1] for path in files("roles/*/README.md")}
    wrong = []
    for check in CHECKS:
        names = re.findall(
            r"\b(?:gb10|vllm_serve|model_store|vllm_runtime|ray_cluster)_\w+", f"{check.why} {check.fix}"
        )
        wrong += [name for name in names if name not in known | roles]
        wrong += [path for path in re.findall(r"playbooks/\w+\.yml", check.fix) if not (ROOT / path).is_file()]
        wrong += [tag for tag in re.findall(r"--tags (\w+)", check.fix) if tag not in roles | set(GROUPS)]
    written = read("docs/troubleshooting.md").partition(pages.HAND_WRITTEN)[2]
    wrong += [name for name in re.findall(r"\bgb10_\w+", written) if name not in known | {"gb10_cluster"}]
    wrong += [path for path in re.findall(r"playbooks/\w+\.yml", written) if not (ROOT / path).is_file()]
    assert wrong == []
