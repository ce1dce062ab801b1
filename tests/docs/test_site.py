"""Build the documentation site, and test its links and contents. Nothing is fetched from the network."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import site_build
import site_pages
from repository import files, specs_of

from ansible_collections.gb10.cluster.plugins.module_utils.rules.lint import RULES


@dataclass
class Page(HTMLParser):
    """The anchors, links and loaded files of a page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "src" in given or (tag == "link" and given.get("rel") == "stylesheet"):
            self.loaded.append(given.get("src") or given.get("href", ""))


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    return page


def broken(pages: Mapping[str, Page], exists: Mapping[str, bool] | set[str]) -> Iterator[str]:
    """Yield the links within a site that lead to no file or anchor.

    ``pages``: page by path; ``exists``: the paths of all files.
    """
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (
                posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(parts.path))) if parts.path else path
            )
            if target not in exists:
                yield f"{path}: {link}: no such file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path}: {link}: no such anchor"


@pytest.fixture(scope="session")
def site() -> dict[str, Page]:
    """Build the site, and return its pages. A warning of antsibull-docs or Sphinx is an error."""
    site_build.build()
    return {
        str(path.relative_to(site_build.HTML)): parsed(path.read_text(encoding="utf-8"))
        for path in site_build.HTML.rglob("*.html")
    }


def test_no_link_is_broken(site: dict[str, Page]) -> None:
    existing = {str(path.relative_to(site_build.HTML)) for path in site_build.HTML.rglob("*") if path.is_file()}
    assert list(broken(site, existing)) == []


def test_the_site_loads_nothing_from_another_host(site: dict[str, Page]) -> None:
    assert [(path, file) for path, page in site.items() for file in page.loaded if urlsplit(file).netloc] == []


def test_every_page_of_the_repository_is_on_the_site(site: dict[str, Page]) -> None:
    expected = {page.replace(".md", ".html") for page in site_build.pages().values()}
    generated = {"playbooks.html", "variables.html", "errors.html", "roles.html", "collection/index.html"}
    assert expected | generated <= site.keys()


def test_every_public_variable_is_on_the_site(site: dict[str, Page]) -> None:
    for role in site_build.PACKAGED_ROLES:
        variables = set(site_pages.public(role, specs_of(role)))
        assert {f"roles/{role}.html#{name.replace('_', '-')}" for name in variables} <= set(
            site["variables.html"].links
        )
        assert variables <= site[f"roles/{role}.html"].anchors


def test_every_plugin_and_playbook_is_on_the_site(site: dict[str, Page]) -> None:
    plugins = {f"{Path(path).stem}_lookup" for path in files("plugins/lookup/*.py")}
    plugins |= {f"{Path(path).stem}_module" for path in files("plugins/modules/*.py")}
    assert {f"collection/{name}.html" for name in plugins if not name.startswith("__init__")} <= site.keys()
    assert site_build.PLAYBOOKS
    assert set(site_build.PLAYBOOKS) <= site["playbooks.html"].anchors


def test_options_keep_their_dashes(site: dict[str, Page]) -> None:
    texts = [(site_build.HTML / name).read_text(encoding="utf-8") for name in site]
    assert any("--gpu-memory-utilization" in text for text in texts)
    assert not any(re.search(r"[\u2013\u2014][a-z]+-[a-z]", text) for text in texts)


def test_every_rule_has_an_anchor(site: dict[str, Page]) -> None:
    assert {rule.id for rule in RULES} <= site["rules.html"].anchors


def test_every_error_has_an_anchor(site: dict[str, Page]) -> None:
    found = [message for every in site_build.messages().values() for message in every]
    assert len(found) > 200
    assert {message.anchor for message in found} <= site["errors.html"].anchors


def test_the_diagrams_are_in_the_page_with_their_text(site: dict[str, Page]) -> None:
    assert "networking.html" in site
    html = (site_build.HTML / "networking.html").read_text(encoding="utf-8")
    shown = re.findall(r'<title id="([\w-]+)-title">', html)
    assert sorted(shown) == sorted(Path(path).stem for path in files("docs/diagrams/*.svg")) and shown


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("b.html", []),
        ("b.html#here", []),
        ("#top", []),
        ("https://example.com/x#y", []),
        ("c.html", ["d/a.html: c.html: no such file"]),
        ("b.html#there", ["d/a.html: b.html#there: no such anchor"]),
        ("#here", ["d/a.html: #here: no such anchor"]),
    ],
)
def test_a_broken_link_is_found(link: str, expected: list[str]) -> None:
    pages = {"d/a.html": parsed(f'<p id="top"><a href="{link}">x</a></p>'), "d/b.html": parsed('<a id="here"></a>')}
    assert list(broken(pages, set(pages))) == expected
