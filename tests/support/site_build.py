"""Builds the documentation site: its pages in build/docs/source, and the site in build/docs/html."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath

import site_errors
import site_pages
from repository import ROLES, ROOT, files, load_yaml, read, specs_of
from sanity.installed import install

OUTPUT = ROOT / "build" / "docs"
SOURCE, HTML = OUTPUT / "source", OUTPUT / "html"
GALAXY = load_yaml(read("galaxy.yml"))
_RUN = re.findall(r"name: gb10\.cluster\.((?!common)\w+)$", read("playbooks/site.yml"), re.MULTILINE)
#: In the order of site.yml, then the others.
PACKAGED_ROLES = [*dict.fromkeys(_RUN), *(role for role in ROLES if role not in _RUN)]
#: Pages with tables that are wider than a window.
WIDE = ("rules.md", "stacks.md")
PLAYBOOKS = [PurePosixPath(path).stem for path in files("playbooks/*.yml")]


def pages() -> dict[str, str]:
    """Return the path on the site of each page in the repository, without the generated pages."""
    found = {path: PurePosixPath(path).name for path in files("docs/*.md")}
    found |= {f"roles/{role}/README.md": f"roles/{role}.md" for role in ROLES}
    return (
        found
        | {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
        | {f"roles/{role}/meta/argument_specs.yml": f"roles/{role}.md" for role in PACKAGED_ROLES}
    )


def source(path: str) -> str:
    """Return the address of a file of the repository that is not on the site."""
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"a page links to {path}, which does not exist")
    return f"{GALAXY['repository']}/blob/main/{path}"


def title(role: str) -> str:
    """Return the title of a role's README, without the role's name."""
    return read(f"roles/{role}/README.md").partition("\n")[0].partition(": ")[2]


def messages() -> dict[str, list[site_errors.Message]]:
    """Return the errors of the collection by topic: the package of the core, the module or the role."""
    found: dict[str, list[site_errors.Message]] = {}
    for path in files("plugins/**/*.py"):
        parts = PurePosixPath(path).parts
        found.setdefault(parts[2] if parts[1] == "module_utils" else "modules", []).extend(
            site_errors.messages(read(path))
        )
    for path in files("roles/*/tasks/**/*.yml"):
        role = PurePosixPath(path).parts[1]
        if role in PACKAGED_ROLES:
            found.setdefault(f"role {role}", []).extend(site_errors.task_messages(load_yaml(read(path))))
    listed = {topic: [message for message in every if message.readable] for topic, every in found.items()}
    return {topic: every for topic, every in listed.items() if every}


def write_pages() -> None:
    """Write all pages except those of antsibull-docs."""
    every, diagrams = pages(), {PurePosixPath(path).stem: read(path) for path in files("docs/diagrams/*.svg")}
    written = {"roles.md": site_pages.roles({role: title(role) for role in PACKAGED_ROLES})}
    for path, page in every.items():
        if path.endswith(".md") and path != "README.md":
            text = site_pages.linked(site_pages.filled(read(path), diagrams), path, page, every, source)
            written[page] = site_pages.unrolled(text) if page in WIDE else text
    for role in PACKAGED_ROLES:
        written[f"roles/{role}.md"] = site_pages.role(written[f"roles/{role}.md"], role, specs_of(role))
    # An owner's search leads to a page that answers.
    written["decisions.md"] = f"---\nnosearch: true\n---\n\n{written['decisions.md']}"
    written["playbooks.md"] = site_pages.playbooks({name: read(f"playbooks/{name}.yml") for name in PLAYBOOKS})
    written["variables.md"] = site_pages.variables({role: specs_of(role) for role in PACKAGED_ROLES})
    written["errors.md"] = site_pages.errors(messages())
    for caption, names in site_pages.SECTIONS.items():
        written["index.md"] += site_pages.toctree(caption, names, hidden=True)
    for page, text in written.items():
        (SOURCE / page).parent.mkdir(parents=True, exist_ok=True)
        (SOURCE / page).write_text(text, encoding="utf-8")


def build() -> None:
    """Build the site. Raises CalledProcessError for a finding of antsibull-docs or Sphinx, which they have printed."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    collection = SOURCE / "collection"
    # antsibull-docs refuses a folder that others can write to.
    collection.mkdir(parents=True, mode=0o755)
    write_pages()
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    arguments = [
        "collection",
        "--use-current",
        "--fail-on-error",
        "--squash-hierarchy",
        "--dest-dir",
        collection,
        "gb10.cluster",
    ]
    # Outside of the checkout: ansible-doc finds no role below a folder that is called ansible_collections itself.
    with tempfile.TemporaryDirectory(prefix="gb10-docs-") as packages:
        installed = install(Path(packages))
        # Our own templates call the filters, which have no documentation. antsibull-docs would report that.
        shutil.rmtree(installed.root / "plugins" / "filter")
        environment["ANSIBLE_COLLECTIONS_PATH"] = str(installed.path)
        subprocess.run([programs / "antsibull-docs", *arguments], cwd=OUTPUT, env=environment, check=True)
        checks = ["lint-collection-docs", "--plugin-docs", "--validate-collection-refs=self", installed.root]
        subprocess.run([programs / "antsibull-docs", *checks], cwd=OUTPUT, env=environment, check=True)
    for path in collection.glob("*_role.rst"):
        # The page of a role is its README with its variables.
        path.unlink()
    for path in collection.glob("*.rst"):
        # The theme has its own table of contents, and its sidebar has room for a name only.
        text = re.sub(r"^\.\. contents::\n(?:   .*\n)+", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        text = text.replace("Gb10.Cluster\n============\n", "Modules and plugins\n===================\n")
        text = text.partition(".. _role_plugins_in_gb10.cluster:")[0]
        text = re.sub(
            r"^    (\w+)(_(?:module|callback|filter|inventory|test|lookup))$",
            r"    \1 <\1\2>",
            text,
            flags=re.MULTILINE,
        )
        path.write_text(text, encoding="utf-8")
    settings = ["--nitpicky", "--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", ROOT / "docs"]
    subprocess.run(
        [programs / "sphinx-build", *settings, "--doctree-dir", OUTPUT / "doctrees", SOURCE, HTML],
        env=environment,
        check=True,
    )
