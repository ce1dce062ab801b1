"""Drawings of fabrics, from the template of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from ansible_collections.gb10.cluster.plugins.plugin_utils import html_page

SVG = "{http://www.w3.org/2000/svg}"


def svg(drawn: Mapping[str, Any], name: str, title: str) -> str:
    """Return a drawing of fabric.diagram as SVG."""
    module: Any = html_page.environment().get_template("fabric.svg.j2").module
    return str(module.fabric(drawn, name, title))


def parsed(drawn: Mapping[str, Any]) -> ElementTree.Element:
    """Return a drawing whose boxes and texts are inside the image."""
    root = ElementTree.fromstring(svg(drawn, "x", "A <title>"))
    _left, _top, width, height = (float(word) for word in root.attrib["viewBox"].split())
    for box in root.iter(f"{SVG}rect"):
        x, y, wide, high = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert min(x, y) >= 0 and x + wide <= width and y + high <= height
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.attrib["x"]) <= width and 0 <= float(text.attrib["y"]) <= height
    return root


def texts(root: ElementTree.Element) -> list[str]:
    """Return the texts of a drawing."""
    return [str(element.text) for element in root.iter(f"{SVG}text")]
