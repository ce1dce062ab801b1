"""List the functions with a cyclomatic complexity above 15: complexity.py FOLDER ...

Radon also counts conditional expressions and comprehensions, which ruff's C901 ignores.
"""

from __future__ import annotations

import sys
from pathlib import Path

from radon.complexity import cc_visit
from radon.visitors import Function

MOST = 15


def findings(folder: str) -> list[str]:
    """Return a line for each function or method that is too complex."""
    return [
        f"{path}:{block.lineno}: {block.fullname} has complexity {block.complexity}, more than {MOST}"
        for path in sorted(Path(folder).rglob("*.py"))
        for block in cc_visit(path.read_text(encoding="utf-8"))
        if isinstance(block, Function) and block.complexity > MOST
    ]


if __name__ == "__main__":
    found = [line for folder in sys.argv[1:] for line in findings(folder)]
    sys.exit("\n".join(found) or 0)
