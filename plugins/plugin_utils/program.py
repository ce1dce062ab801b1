# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of this collection that run on nodes, read and packed on the controller."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail

if TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Service

_CORE = Path(__file__).resolve().parents[1] / "module_utils"


@functools.cache
def source(program: str) -> dict[str, str]:
    """Return {content} of a file below plugins/module_utils, such as launch/io_ray.py, or {packed} of a program.

    A program is named without the suffix, such as launch/io_gates, and includes its imports. Raises ValueError for
    anything else.
    """
    # Ansible loads this file in nearly every task's process.
    from ansible_collections.gb10.cluster.plugins.module_utils.common.program import pack  # noqa: PLC0415

    name = program if program.endswith(".py") else f"{program}.py"
    data = _read(name)
    if data is None:
        raise ValueError(f"{program!r} is not a file of this collection below plugins/module_utils")
    return (
        {"content": data.decode()} if program == name else {"packed": base64.b64encode(pack(program, _read)).decode()}
    )


def _read(name: str) -> bytes | None:
    path = (_CORE / name).resolve()
    return path.read_bytes() if _CORE in path.parents and path.is_file() else None


def service(planned: Service) -> dict[str, Any]:
    """Return {name, unit: {text, inputs}, files, directories} of a planned service.

    ``inputs`` is the digest of its launch inputs.
    """
    # Ansible loads this file in nearly every task's process.
    from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd  # noqa: PLC0415

    files = [dict(each) for each in planned.files]
    watched = [value for each in planned.watched for value in source(each).values()]
    unit = systemd.unit_with_digest(planned.text, [*planned.inputs, *watched])
    return {"name": planned.name, "unit": unit, "files": files, "directories": list(planned.directories)}


def with_contents(files: Any) -> list[dict[str, Any]]:
    """Return the entries of a module's option files, with each program replaced by its content or packed.

    Raises AnsibleActionFail for other data than a list of mappings, and for a program that the collection does not
    have.
    """
    if not isinstance(files, list) or not all(isinstance(entry, dict) for entry in files):
        raise AnsibleActionFail("files: expected: a list of mappings with path and content, program or state")
    return [_with_content(entry) for entry in files]


def _with_content(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "program" not in entry:
        return dict(entry)
    try:
        found = source(str(entry["program"]))
    except ValueError as error:
        raise AnsibleActionFail(f"files: program: {error}") from error
    return {**{key: value for key, value in entry.items() if key != "program"}, **found}
