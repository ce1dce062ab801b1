"""Write the fault matrix of docs/reliability.md from build/faults.json, which `make faults` makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- Begin of the matrix: `make faults`. -->\n", "<!-- End of the matrix. -->\n"


def cell(row: Mapping[str, Any] | None) -> str:
    """Return seconds to the first sign in a service, seconds to the next answers, and lost requests."""
    if row is None:
        return " | | "
    seconds = ["-" if row[name] is None else f"{row[name]:.0f}" for name in ("detected", "served")]
    return " | ".join([*seconds, str(row["lost"])])


def lines(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table. ``results``: rows by fault and executor."""
    yield (
        "| fault | Ray: detected | serves again | requests lost | mp: detected | serves again | requests lost | "
        "leftovers |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|---|"
    for fault in sorted(results, key=lambda name: not name.startswith("kill")):
        rows = results[fault]
        left = sorted({row["leftovers"] for row in rows.values()})
        yield f"| {fault} | {cell(rows.get('ray'))} | {cell(rows.get('mp'))} | {', '.join(left)} |"


def page(text: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page with the table replaced."""
    before, _begin, rest = text.partition(BEGIN)
    return before + BEGIN + "\n".join([*lines(results), ""]) + END + rest.partition(END)[2]


if __name__ == "__main__":
    found = json.loads((ROOT / "build" / "faults.json").read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
