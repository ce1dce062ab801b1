"""docs/testing.md lists the parts of the tests."""

from __future__ import annotations

import re

from repository import read
from run import PARTS, QUICK


def test_the_page_has_every_part() -> None:
    rows = re.findall(r"^\| `([a-z0-9_-]+)` \| [^`].*\| (.*) \|$", read("docs/testing.md"), re.MULTILINE)
    assert {name for name, _quick in rows} == PARTS.keys()
    assert {name for name, quick in rows if quick != "no"} == set(QUICK)
