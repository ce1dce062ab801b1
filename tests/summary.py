"""One closing line for a run of several pytest sessions: `summary.py FOLDER` adds up the JUnit reports in it.

Exits with 1 where a report counts a failure or where there is no report at all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

reports = [(path.stem, suite) for path in sorted(Path(sys.argv[1]).glob("*.xml")) for suite in ElementTree.parse(path).iter("testsuite")]


def total(key: str) -> int:
    return sum(int(suite.get(key, 0)) for _, suite in reports)


failed, skipped = total("failures") + total("errors"), total("skipped")
names = ", ".join(name for name, _ in reports)
seconds = sum(float(suite.get("time", 0)) for _, suite in reports)
sys.stdout.write(f"{total('tests') - failed - skipped} passed, {failed} failed, {skipped} skipped in {seconds:.0f}s ({names})\n")
sys.exit(bool(failed) or not reports)
