"""Pages of the documentation site: changed links, and pages that are generated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import site_pages
from repository import files, read
from site_errors import Message

PAGES = {
    "docs/a.md": "a.md",
    "docs/b.md": "b.md",
    "roles/x/README.md": "roles/x.md",
    "roles/x/meta/argument_specs.yml": "roles/x.md",
}


def linked(text: str, path: str) -> str:
    return site_pages.linked(text, path, PAGES[path], PAGES, lambda target: f"https://example.com/{target}")


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("docs/a.md", "[b](b.md#part)", "[b](b.md#part)"),
        ("docs/a.md", "[two\nlines](../roles/x/README.md)", "[two\nlines](roles/x.md)"),
        ("roles/x/README.md", "[specs](meta/argument_specs.yml)", "[specs](x.md)"),
        ("roles/x/README.md", "[b](../../docs/b.md)", "[b](../b.md)"),
        ("docs/a.md", "[data](../tests/data.yml)", "[data](https://example.com/tests/data.yml)"),
        ("docs/a.md", "[web](https://example.org/b.md) [here](#part)", "[web](https://example.org/b.md) [here](#part)"),
    ],
)
def test_links_lead_to_the_site_or_to_the_repository(path: str, text: str, expected: str) -> None:
    assert linked(text, path) == expected


def test_a_diagram_replaces_its_image() -> None:
    page = "One\n\n![A pair](diagrams/pair.svg)\n\n![Other](other.png)\n"
    filled = site_pages.filled(page, {"pair": "<svg>\n<style>x</style>\n</svg>\n"})
    assert 'aria-label="A pair">\n<svg>\n</svg>\n</div>\n```' in filled and "![Other](other.png)" in filled
    with pytest.raises(KeyError, match="none"):
        site_pages.filled("![x](diagrams/none.svg)", {})


def test_a_wide_table_becomes_sections() -> None:
    header = "| id | a | b | c | d | e | f | g |\n|---|---|---|---|---|---|---|---|\n"
    text = f"## All\n\n{header}| `x` | 1 | | 3 | 4 | 5 | 6 | 7 \\| 8 |\n\nEnd.\n\n| id | a |\n|---|---|\n| `y` | 1 |\n"
    assert site_pages.unrolled(text) == (
        "## All\n\n\n### `x`\n\n- a: 1\n- c: 3\n- d: 4\n- e: 5\n- f: 6\n- g: 7 \\| 8\n\nEnd.\n\n| id | a "
        "|\n|---|---|\n| `y` | 1 |\n"
    )


def test_a_playbook_is_described_by_its_first_comment() -> None:
    page = site_pages.playbooks(
        {"stop": "---\n# Stops it.\n#   ansible-playbook stop.yml\n# Starts nothing.\n- name: Play\n# Not this.\n"}
    )
    assert page.endswith("\n## stop\n\nStops it.\n\n    ansible-playbook stop.yml\n\nStarts nothing.\n")


def test_the_commands_of_a_playbook_can_be_copied() -> None:
    page = site_pages.playbooks(
        {Path(path).stem: read(path) for path in files("playbooks/*.yml") if "/lab_" not in path}
    )
    code = re.findall(r"^    (.*)$", page, re.MULTILINE)
    assert len(code) > 10
    assert [line for line in code if not re.fullmatch(r"ansible-playbook( \S+)+", line)] == []


def test_a_page_in_a_text_is_a_link() -> None:
    page = site_pages.playbooks({"stop": "---\n# See docs/removal.md, docs/models.md#qwen3 or docs/x.md#{ID}.\n"})
    assert "See [removal](removal.md), [models](models.md#qwen3) or docs/x.md#{ID}." in page


def test_the_sidebar_has_the_names_of_roles() -> None:
    page = site_pages.roles({"a": "does it"})
    assert "\n- [a](roles/a.md): does it\n" in page and ":hidden:" in page and "\na <roles/a>\n" in page


def test_variables_have_their_type_default_choices_and_suboptions() -> None:
    options = {
        "x_a": {"type": "str", "description": ["First_one.", "Then."], "default": "", "choices": ["", "b"]},
        "x_b": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "description": "Some.",
            "options": {"c": {"type": "int", "description": "How many."}},
        },
        "y_plan": {"type": "dict", "description": "Of another role.", "required": True},
    }
    page = site_pages.role("# x\n", "x", {"main": {"options": options}})
    assert page.startswith("(ansible_collections.gb10.cluster.x_role)=\n# x\n\n## Variables\n")
    assert '\n### x_a\n\n*str*, default: `""`, one of ``, `b`\n\nFirst\\_one.\n\nThen.\n' in page
    assert "\n### x_b\n\n*list of dict*, required\n\nSome.\n\n- `c` (*int*, unset): How many.\n" in page
    assert "y_plan" not in page
    every = site_pages.variables({"x": {"main": {"options": options}}})
    assert "\n## Role x\n\n- [`x_a`](roles/x.md#x_a): First\\_one\n- [`x_b`](roles/x.md#x_b): Some\n" in every
    assert "y_plan" not in every


def test_every_error_has_its_own_anchor() -> None:
    page = site_pages.errors(
        {
            "b": [Message("p", "it {X} is", "e", "f"), Message("p", "it {Y} is", "e", "f")],
            "a": [Message("", "x", "e", "f")],
        }
    )
    assert "(error-p-it-is)=\n`p`: **it \\<x\\> is**\n: Expected: e. Fix: f.\n" in page
    assert "(error-p-it-is-2)=" in page
    assert page.index("## a") < page.index("## b")
    assert Message("{P}", "{X}", "an e", "f").anchor == "error-an-e"
    assert Message("{P}", "{X}", "{E}", "{F}").anchor == "error-value"


def test_every_page_is_in_one_section() -> None:
    listed = [name for names in site_pages.SECTIONS.values() for name in names if "<" not in name]
    generated = {"playbooks", "variables", "errors", "roles", "contributing"}
    assert sorted({Path(path).stem for path in files("docs/*.md")} | generated) == sorted([*listed, "index"])
