"""READMEs: one page for the project; the same first sections for each role; and the links of all pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import samples
from repository import ROLES, ROOT, files, load_yaml, read

SPECS = "[meta/argument_specs.yml](meta/argument_specs.yml)"


def readme_problems(role: str, text: str) -> Iterator[str]:
    """Check a README's title, its sections, and the links and the example in its section Usage."""
    if not re.match(rf"# {role}: \S.*\n\n[A-Z]", text):
        yield f"expected the title `# {role}: ...`, and then a paragraph about the purpose"
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    if headings[:1] != ["Usage"]:
        yield "the first section must be Usage"
    if headings.count("Files") != 1:
        yield "expected one section Files"
    usage = text.partition("## Usage\n")[2].partition("\n## ")[0]
    if not re.search(r"^    ansible-playbook \S+\.yml -i ", usage, re.MULTILINE):
        yield "Usage has no example"
    if f"Variables: {SPECS}" not in usage:
        yield f"Usage has no `Variables: {SPECS}`"
    if not re.search(r"\bTags?:\s", usage):
        yield "Usage has no tag"


def tags(tasks: list[dict[str, object]]) -> Iterator[str]:
    """Yield the tags of plays, tasks and blocks."""
    for task in tasks:
        found = task.get("tags", [])
        yield from found if isinstance(found, list) else [str(found)]
        for key in ("tasks", "block", "always", "roles"):
            children = task.get(key, [])
            yield from tags(children) if isinstance(children, list) else ()


def test_role_readmes() -> None:
    assert [found for role in ROLES for found in readme_problems(role, read(f"roles/{role}/README.md"))] == []


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them, and those of rows, which only the site has."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    rows = re.findall(r"^\| `([^`|]+)` \|", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(rows)


def test_links_of_the_pages() -> None:
    for path in files("*.md", "docs/*.md", "roles/*/README.md"):
        for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", read(path)):
            target = (ROOT / path).parent / link if link else ROOT / path
            assert target.exists(), f"{path}: {link}"
            if anchor:
                assert anchor in anchors(target.read_text(encoding="utf-8")), f"{path}: {link}#{anchor}"


def test_the_readme_is_one_page_with_every_playbook_and_sample() -> None:
    text = read("README.md")
    assert len(text.split()) < 650
    for path in files("playbooks/*.yml"):
        assert path in text or path == "playbooks/site.yml", path
    assert samples.names() - {"lab"} == set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


def test_tags_of_the_role_readmes() -> None:
    used = {tag for playbook in ("steps/roles", "site") for tag in tags(load_yaml(read(f"playbooks/{playbook}.yml")))}
    for role in ROLES:
        for tag in re.findall(r"\bTag:\s+`(\w+)`", read(f"roles/{role}/README.md")):
            assert tag in used, role


EXAMPLE = "    ansible-playbook site.yml -i inventories/lab"
GOOD = f"# x: does it\n\nIt does.\n\n## Usage\n\n{EXAMPLE}\n\nVariables: {SPECS}. Tag: `x`.\n\n## Files\n\nNone.\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("# x: does it", "# x", "expected the title"),
        ("## Usage", "## Notes", "the first section"),
        ("## Files", "## Changes", "one section Files"),
        ("    ansible-playbook", "    ansible", "no example"),
        (SPECS, "`x_a`", "no `Variables"),
        ("Tag:", "Role:", "no tag"),
    ],
)
def test_the_readme_check_can_fail(old: str, new: str, expected: str) -> None:
    assert any(expected in problem for problem in readme_problems("x", GOOD.replace(old, new)))
    assert list(readme_problems("x", GOOD)) == []
