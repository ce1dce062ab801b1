"""Turns pages of the repository into pages of the documentation site, and generates the others as Markdown."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from site_errors import Message

_COLLECTION = "Modules and plugins <collection/index>"
#: Sections of the site with their pages. collection/index comes from antsibull-docs.
SECTIONS: Mapping[str, Sequence[str]] = {
    "Start": ["guide", "demo", "access", "clients", "questions", "later"],
    "Choose and build": ["models", "recipes", "stacks", "building", "left_out"],
    "Connect": ["networking", "clusters", "gateway", "security"],
    "Operate": [
        "operations",
        "starts",
        "reliability",
        "monitoring",
        "troubleshooting",
        "updates",
        "upgrade",
        "removal",
    ],
    "Verify": ["verification", "golden", "benchmarking"],
    "Reference": ["playbooks", "roles", "variables", "rules", "errors", _COLLECTION],
    "Development": ["contributing", "architecture", "testing", "decisions", "benchmarks"],
}
_LINK = re.compile(r"(?<!`)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]+)?\)")
#: A page in a plain text, such as the description of a variable.
_PAGE = re.compile(r"\bdocs/(\w+)\.md(#[\w-]+)?(?![#\w])")


def toctree(caption: str, pages: Iterable[str], hidden: bool = False) -> str:
    options = f":caption: {caption}\n:maxdepth: 1\n" + (":hidden:\n" if hidden else "")
    return f"\n```{{toctree}}\n{options}\n" + "".join(f"{page}\n" for page in pages) + "```\n"


def linked(text: str, path: str, page: str, pages: Mapping[str, str], source: Callable[[str], str]) -> str:
    """Return a page with its links changed from the repository to the site.

    ``path`` and ``page`` are its place in the repository and on the site. ``pages`` maps the one to the other for all
    pages. ``source`` returns the address of another file of the repository.
    """

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        if target in pages:
            return f"]({posixpath.relpath(pages[target], posixpath.dirname(page) or '.')}{match[2] or ''})"
        return f"]({source(target)})"

    return _LINK.sub(link, text)


def filled(text: str, diagrams: Mapping[str, str]) -> str:
    """Return a page with each image of a diagram replaced by the diagram itself, so that it has the page's colors."""

    def diagram(match: re.Match[str]) -> str:
        drawing = re.sub(r"<style>.*</style>\n", "", diagrams[match[2]])
        return f'```{{raw}} html\n<div class="diagram" role="group" tabindex="0" aria-label="{match[1]}">\n{drawing}</div>\n```'

    return re.sub(r"!\[(.*?)\]\(diagrams/(\S+)\.svg\)", diagram, text)


def unrolled(text: str) -> str:
    """Return a page whose tables of eight or more columns are sections, one for each row, with the row's first cell as
    heading."""
    lines, level, header = list[str](), 1, list[str]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        level = len(heading[0]) if not cells and (heading := re.match("#+(?= )", line)) else level
        if not cells:
            header = []
        if len(cells) < 8:
            lines.append(line)
        elif not header:
            header = cells
        elif not re.fullmatch("[:-]+", cells[0]):
            lines += ["", f"{'#' * (level + 1)} {cells[0]}", ""]
            lines += [f"- {name}: {cell}" for name, cell in zip(header[1:], cells[1:], strict=True) if cell]
    return "\n".join(lines) + "\n"


def roles(titles: Mapping[str, str]) -> str:
    """Return the page of all roles. ``titles``: the titles of the READMEs by role."""
    lines = [f"- [{role}](roles/{role}.md): {title}" for role, title in titles.items()]
    # The sidebar has room for a name only.
    return "\n".join(["# Roles\n", *lines, ""]) + toctree(
        "Roles", [f"{role} <roles/{role}>" for role in titles], hidden=True
    )


def playbooks(texts: Mapping[str, str]) -> str:
    """Return the page of all playbooks from the comments at their beginnings. ``texts``: playbook by name."""
    parts = ["# Playbooks\n\nWith the installed collection, the playbook `site` is `gb10.cluster.site`.\n"]
    for name, text in texts.items():
        lines = [line[1:].removeprefix(" ") for line in re.match(r"---\n((?:#.*\n)*)", text)[1].splitlines()]  # type: ignore[index]
        shown, code = [], False
        for line in lines:
            if line.startswith("  ") != code:
                shown.append("")
            code = line.startswith("  ")
            shown.append(f"  {line}" if code else _PAGE.sub(r"[\1](\1.md\2)", line))
        parts.append(f"\n## {name}\n\n" + "\n".join(shown) + "\n")
    return "".join(parts)


def role(readme: str, name: str, entries: Mapping[str, Any]) -> str:
    """Return the page of a role: its README, then its variables. ``entries``: its argument specifications."""
    # The label under which the pages of antsibull-docs refer to a role.
    parts = [f"(ansible_collections.gb10.cluster.{name}_role)=\n{readme.rstrip()}\n"]
    options = public(name, entries)
    parts += ["\n## Variables\n"] if options else []
    for variable, each in options.items():
        parts.append(f"\n### {variable}\n\n{_type(each)}\n\n{_prose(each['description'], '../')}\n")
        parts += _suboptions(each, "")
    return "".join(parts)


def variables(specs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of all variables, which leads to the pages of the roles. ``specs``: argument specifications."""
    parts = [
        "# Variables\n\nPublic variables of all roles. `inventories/variables.yml` of the package lists them with "
        "their defaults. Set them for the whole group `gb10_cluster`, unless a description names another place.\n"
    ]
    for name, entries in specs.items():
        options = public(name, entries)
        rows = [
            f"- [`{variable}`](roles/{name}.md#{variable}): {_first(each['description'])}\n"
            for variable, each in options.items()
        ]
        if rows:
            parts += [f"\n## Role {name}\n\n", *rows]
    return "".join(parts)


def _first(description: str | Sequence[str]) -> str:
    """Return the first sentence of a description."""
    text = description if isinstance(description, str) else description[0]
    return _prose(re.split(r"(?<=[a-z`)\]])[.:](?:\s|$)", text, maxsplit=1)[0])


def public(role: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public variables of a role, from all entry points. The fact of another role is none."""
    every = (item for entry in entries.values() for item in entry.get("options", {}).items())
    return {name: options for name, options in every if name.startswith(f"{role}_")}


def _type(options: Mapping[str, Any]) -> str:
    kind = f"{options['type']} of {options['elements']}" if "elements" in options else options["type"]
    given = (
        "required"
        if options.get("required")
        else f"default: `{json.dumps(options['default'])}`"
        if "default" in options
        else "unset"
    )
    choices = f", one of {', '.join(f'`{choice}`' for choice in options['choices'])}" if "choices" in options else ""
    return f"*{kind}*, {given}{choices}"


def _prose(description: str | Sequence[str], root: str = "") -> str:
    text = description if isinstance(description, str) else "\n\n".join(description)
    return _PAGE.sub(rf"[\1]({root}\1.md\2)", re.sub(r"([<>*_\\\[\]$])", r"\\\1", text))


def _suboptions(options: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, sub in (options.get("options") or {}).items():
        text = _prose(sub["description"], "../").replace("\n\n", " ")
        yield f"\n{indent}- `{name}` ({_type(sub)}): {text}\n"
        yield from _suboptions(sub, f"{indent}  ")


def errors(found: Mapping[str, Sequence[Message]]) -> str:
    """Return the page of all errors. ``found``: the errors by topic."""
    parts = [
        "---\ntocdepth: 2\n---\n\n# Errors\n\nAn error message has four parts: place, problem, expectation and "
        "fix. This page lists them by topic. `<address>` stands for a value. A run lists all problems at once, and "
        "changes nothing.\n"
    ]
    used: set[str] = set()
    for topic, every in sorted(found.items()):
        parts.append(f"\n## {topic}\n\n")
        for message in dict.fromkeys(every):
            anchor, number = message.anchor, 2
            while anchor in used:
                anchor, number = f"{message.anchor}-{number}", number + 1
            used.add(anchor)
            place, *texts = (_values(each) for each in (message.place, message.found, message.expected, message.fix))
            found_text, expected, fix = map(_prose, texts)
            at = f"`{place}`: " if place else ""
            parts.append(f"({anchor})=\n{at}**{found_text}**\n: Expected: {expected}. Fix: {fix}.\n\n")
    return "".join(parts)


def _values(text: str) -> str:
    """Return a text with each variable part `{PART}` as `<part>`."""
    return re.sub(r"\{([A-Z][A-Z0-9_]*)\}", lambda part: f"<{part[1].lower().replace('_', ' ')}>", text)
