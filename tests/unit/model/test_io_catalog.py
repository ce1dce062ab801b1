"""The files of the catalog, and the example of docs/models.md as such a file."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from repository import read

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.model import shape
from ansible_collections.gb10.cluster.plugins.module_utils.model.io_catalog import families


def test_each_name_is_in_one_file() -> None:
    names = [name for family in families() for name in family.models]
    assert len(names) == len(set(names))
    assert [family.older for family in families()] == sorted(family.older for family in families())


def test_the_example_of_the_page_is_a_family(tmp_path: Path) -> None:
    found = re.search(r"families/tiny\.yml`:\n\n((?: {4}.*\n)+)", read("docs/models.md"))
    assert found
    (tmp_path / "tiny.yml").write_text(textwrap.dedent(found[1]), encoding="utf-8")
    (family,) = families(str(tmp_path))
    (entry,) = family.models.values()
    assert len(shape.shape(entry["config"]).layers) == entry["config"]["num_hidden_layers"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("modles: {}", "tiny.yml.models"),
        ("{models: {}, oldr: true}", "tiny.yml.oldr"),
        ("models: {a: 5}", "tiny.yml.models.a is 5"),
        ("{models: {}, drafts: [{hub: a/b, size: 1}]}", "tiny.yml.drafts[0].size"),
        ("models: {a: {hub: a/b, nods: 1}}", "tiny.yml: models.a.nods: unknown key"),
        ("models: {a: {hub: a/b, evidence: 2026-11-20}}", "tiny.yml: models.a.evidence: datetime.date(2026, 11, 20)"),
        ("models: {a: {nodes: 1}}", "tiny.yml: models.a: a model without hub and path"),
    ],
)
def test_an_invalid_file_is_named_with_its_key(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "tiny.yml").write_text(text, encoding="utf-8")
    with pytest.raises((TypeError, ProblemsError)) as error:
        families(str(tmp_path))
    assert expected in str(error.value)
