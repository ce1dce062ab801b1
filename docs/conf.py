"""Settings of Sphinx for the documentation site. `make docs` builds it in build/docs (tests/support/site_build.py)."""

from __future__ import annotations

from typing import Any

from docutils import nodes

project = "gb10.cluster"
author = copyright = "gb10.cluster maintainers"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
# Otherwise the -- of an option becomes a dash.
smartquotes = False
html_theme = "furo"
html_title = project
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# site.css has the colors.
antsibull_ext_color_scheme = "none"
pygments_style = "tango"
pygments_dark_style = "github-dark"
#: Labels of Ansible's own documentation that antsibull-docs refers to. The site is built without the network.
ANSIBLE = {
    "ansible_collections.ansible.builtin.apt_module": "collections/ansible/builtin/apt_module.html",
    "action_plugins": "plugins/action.html",
    "callback_plugins": "plugins/callback.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}


def anchor_names(_app: object, document: nodes.document) -> None:
    """Let a heading that is one word, and a table's row whose first cell is one code word, have this word as anchor."""
    names = [(section, section[0].astext()) for section in document.findall(nodes.section)]
    for row in document.findall(nodes.row):
        cell = row.children[0]
        names += [
            (row, literal.astext()) for literal in cell.findall(nodes.literal) if literal.astext() == cell.astext()
        ]
    for element, name in names:
        if " " not in name and name not in document.ids:
            element["ids"].insert(0, name)
            document.ids[name] = element


def link_ansible(_app: object, _environment: object, node: nodes.Element, content: nodes.Node) -> nodes.Node | None:
    """Link a label or an environment variable of Ansible's documentation."""
    target = node["reftarget"]
    page = (
        f"{ANSIBLE['ansible_configuration_settings']}#envvar-{target}"
        if node["reftype"] == "envvar"
        else ANSIBLE.get(target)
    )
    return nodes.reference("", "", content, refuri=f"https://docs.ansible.com/ansible/latest/{page}") if page else None


def setup(app: Any) -> None:
    # Before Sphinx reads the anchors for its tables of contents.
    app.connect("doctree-read", anchor_names, priority=400)
    app.connect("missing-reference", link_ansible)
