"""An HTML page as its elements, with the problems that a browser would hide."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_EMPTY = {"meta", "br", "col"}


@dataclass
class Page(HTMLParser):
    """A parsed page: elements with their attributes in order, the text, and wrongly nested tags."""

    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _value in attrs]
        if len(set(names)) != len(names):
            self.problems.append(f"<{tag}> has an attribute twice")
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> ends another element")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # SVG of the diagrams.
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    def values(self, attribute: str) -> list[str]:
        """Return the values of an attribute."""
        return [given[attribute] for _tag, given in self.elements if attribute in given]

    def count(self, *tags: str) -> int:
        """Return the number of elements with these tags."""
        return sum(tag in tags for tag, _given in self.elements)

    @property
    def text(self) -> str:
        """Return all text, on one line."""
        return " ".join(" ".join(self.words).split())


def parsed(text: str) -> Page:
    """Return a page. Elements that are not closed are a problem."""
    page = Page()
    page.feed(text)
    page.close()
    page.problems += [f"<{tag}> is not closed" for tag in page.open]
    return page
