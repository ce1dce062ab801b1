"""The packed programs of the collection, as the action of root_files packs them."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, program
from ansible_collections.gb10.cluster.plugins.plugin_utils import program as on_controller


def packed(name: str) -> bytes:
    """Return the file of a program of paths.PROGRAMS."""
    content = program.content(on_controller.source(paths.PROGRAMS[name]))
    assert isinstance(content, bytes)
    return content


def install(name: str, folder: Path) -> Path:
    """Write the file of a program below a folder that exists, under its name on a node. Returns its path."""
    path = folder / Path(paths.program(name)).name
    path.write_bytes(packed(name))
    return path
