"""The table of all units in docs/security.md has each unit of the product, with its user and capabilities."""

from __future__ import annotations

import re

from cluster_nodes import node_plan, pair, planned
from rendered_units import units
from repository import ROOT, read

from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan

#: A unit in an example.
_OTHERS = {"gb10-model"}
_USERS = {"gb10": "the service user", "": "root"}


def rows() -> dict[str, str]:
    """Return unit -> its cell with user and capabilities."""
    table = read("docs/security.md").partition("## Units")[2].partition("\n## ")[0]
    cells = [line.split("|") for line in table.splitlines() if line.startswith("| `gb10-")]
    return {unit: row[2].strip() for row in cells for unit in re.findall(r"`(gb10-[a-z-]+)`", row[1])}


def test_each_unit_of_the_product_has_a_row() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "plugins").rglob("*.py")]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "roles").rglob("*.yml")]
    named = {name for text in texts for name in re.findall(r"\b(gb10-[a-z-]+)\.(?:service|timer)\b", text)}
    assert named - _OTHERS - rows().keys() == set()


def test_the_user_and_the_capabilities_are_those_of_the_units() -> None:
    texts = units(node_plan(planned(pair()), "spark1"))
    texts |= {"gb10-metrics": monitoring_plan._collector()}
    table = rows()
    for unit, lines in texts.items():
        given = dict(line.split("=", 1) for line in lines.splitlines() if re.match(r"[A-Z]\w+=", line))
        user = "a temporary user" if given.get("DynamicUser") else given.get("User", "")
        capabilities = given["CapabilityBoundingSet"]
        shown = f"`{capabilities}`" if capabilities else "-"
        name = _USERS.get(user, user if user.startswith("a ") else f"`{user}`")
        assert table[unit] == f"{name}, {shown}", unit
