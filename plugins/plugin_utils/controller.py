# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files on the controller that an action reads: records of earlier runs, which people may have edited."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.loader import lookup_loader


class Files:
    """Reads as the lookup file does, so also a file that ansible-vault encrypted. A text is never a template."""

    def __init__(self, loader: Any, templar: Any, variables: Mapping[str, Any]) -> None:
        self._lookup = lookup_loader.get("ansible.builtin.file", loader, templar)
        self._variables = variables

    def text(self, path: str) -> str | None:
        """Return a file's text without white space at its end, None without a file."""
        if not Path(path).is_file():
            return None
        (found,) = self._lookup.run([path], self._variables)
        return str(found)

    def named(self, folder: str, pattern: str) -> list[str]:
        """Return the paths of the files in a folder whose names match, sorted; [] without a folder."""
        return sorted(str(path) for path in Path(folder).glob(pattern) if path.is_file())

    def texts(self, paths: list[str]) -> dict[str, str]:
        """Return the text of each existing file by its path."""
        found = {path: self.text(path) for path in paths}
        return {path: text for path, text in found.items() if text is not None}
