# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pack a program of this collection into one file that Python runs, like zipapp, with the same bytes on every
controller."""

from __future__ import annotations

import ast
import base64
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any

_PACKAGE = __name__.rpartition(".common.")[0]
_FOLDER = _PACKAGE.replace(".", "/")
_MAIN = "from {package}.{module} import main\n\nraise SystemExit(main())\n"

#: The imports of Ansible, and relative ones. To parse a whole file takes a hundred times longer.
_IMPORT = re.compile(
    r"^[ \t]*((?:from[ \t]+(?:ansible\w*[\w.]*|\.[\w.]*)[ \t]+import[ \t]+(?:\([^)]*\)|[^\n]+))"
    r"|(?:import[ \t]+ansible[^\n]*))",
    re.MULTILINE,
)
_RELATIVE = re.compile(r"from[ \t]+\.")


def pack(entry: str, read: Callable[[str], bytes | None]) -> bytes:
    """Return the program that runs the function main of ``entry``, such as launch/io_gates.

    ``read`` returns the content of a file by its path below plugins/module_utils, None if there is none.
    It has each file of the core that the entry imports, also indirectly or inside a function, and no other one. Raises
    ValueError for an entry that does not exist, and for an import that a node cannot resolve.
    """
    files = {f"{_FOLDER}/{path}": data for path, data in _closure(f"{entry}.py", read).items()}
    files["__main__.py"] = _MAIN.format(package=_PACKAGE, module=entry.replace("/", ".")).encode()
    # Before 3.13, Python finds a package without __init__.py in an archive only by an entry for its folder.
    folders = {path[: end + 1] for path in files for end, letter in enumerate(path) if letter == "/"}
    packed = BytesIO()
    # Not compressed: other releases of zlib would compress to other bytes.
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted({*files, *folders}):
            # The time of an entry is 1980-01-01 by default, and its system that of the controller.
            item = zipfile.ZipInfo(path)
            item.create_system, item.external_attr = 3, (0o40755 if path in folders else 0o100644) << 16
            archive.writestr(item, files.get(path, b""))
    return packed.getvalue()


def sources(packed: bytes) -> dict[str, str]:
    """Return name -> text of the files in a packed program, {} for anything else."""
    try:
        with zipfile.ZipFile(BytesIO(packed)) as archive:
            return {
                item.filename: archive.read(item).decode("utf-8", "replace")
                for item in archive.infolist()
                if not item.is_dir()
            }
    except Exception:  # noqa: BLE001  # zipfile raises many kinds for damaged data.
        return {}


def content(entry: Mapping[str, Any]) -> str | bytes | None:
    """Return what an entry of root_files installs: a text, a packed program, or None for a file that must not exist."""
    return base64.b64decode(entry["packed"]) if entry.get("packed") else entry.get("content")


def _closure(start: str, read: Callable[[str], bytes | None]) -> dict[str, bytes]:
    source = read(start)
    if source is None:
        raise ValueError(f"there is no file {start}")
    found, waiting = {start: source}, [start]
    while waiting:
        path = waiting.pop()
        for module, names in _imports(path, found[path]):
            new = {file: data for file, data in _files(path, module, names, read).items() if file not in found}
            found |= new
            waiting += new
    return found


def _imports(path: str, source: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield (module, imported names) of each import of Ansible and its collections.

    All others are the interpreter's. Raises ValueError for a relative import.
    """
    for statement in _IMPORT.findall(source.decode()):
        if _RELATIVE.match(statement):
            raise ValueError(f"{path} has a relative import")
        (node,) = ast.parse(statement).body
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module), [alias.name for alias in node.names]


def _files(path: str, module: str, names: list[str], read: Callable[[str], bytes | None]) -> dict[str, bytes]:
    """Return the file of an imported module, or those of the modules that are imported from a package."""
    if module.startswith(f"{_PACKAGE}."):
        place = module.removeprefix(f"{_PACKAGE}.").replace(".", "/")
        for wanted in ([f"{place}.py"], [f"{place}/{name}.py" for name in names]):
            found = {file: data for file in wanted if (data := read(file)) is not None}
            if found and len(found) == len(wanted):
                return found
    raise ValueError(f"{path} imports {module}, which a node does not have")
