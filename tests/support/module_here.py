"""Run a module of the collection in this process: for tests in which no process matters."""

from __future__ import annotations

import contextlib
import io
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ansible.module_utils import basic
from ansible.module_utils.common import warnings


def run_here(name: str, arguments: dict[str, Any], path: Path | None = None, check: bool = False) -> dict[str, Any]:
    """Return the result of a module, as run_module does. ``path`` is a folder with programs that precede the system's."""
    module = import_module(f"ansible_collections.gb10.cluster.plugins.modules.{name}")
    given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": True}
    variables = {"PATH": f"{path}:{os.defpath}" if path else os.defpath, "LC_ALL": "C.UTF-8"}
    printed, umask = io.StringIO(), os.umask(0o022)
    with (
        patch.object(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode()),
        patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        patch.object(warnings, "_global_warnings", type(warnings._global_warnings)()),
        patch.dict(os.environ, variables),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        module.main()
    os.umask(umask)
    answer: dict[str, Any] = json.loads(printed.getvalue())
    return answer
