"""Run a module: arguments in, JSON out. Needs neither root nor a node."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import _internal
from ansible.module_utils.common import warnings
from ansible.module_utils.testing import patch_module_args
from repository import ROOT
from unchanged import Reads, unchanged


def program(folder: Path, name: str, script: str) -> Path:
    """Write an executable POSIX shell script of this name into the folder, and return the folder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return folder


def _called(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the module of a node's step with its arguments, and any other module as it is."""
    step = (ROOT / f"plugins/module_utils/node_steps/{name}.py").exists()
    return ("node_step", {"name": name, "inputs": arguments}) if step else (name, arguments)


def _given(arguments: dict[str, Any], check: bool) -> dict[str, Any]:
    return {**arguments, "_ansible_check_mode": check, "_ansible_diff": True}


def _environment(path: Path | None) -> dict[str, str]:
    return {"PATH": f"{path}:{os.defpath}" if path else os.defpath, "LC_ALL": "C.UTF-8"}


def run_module(
    name: str,
    arguments: dict[str, Any],
    path: Path | None = None,
    check: bool = False,
    reads: Reads = lambda _command: True,
) -> dict[str, Any]:
    """Run a module or a node's step of the collection in this process, in a tenth of the time of run_alone, and return its result.

    ``path`` is a folder with programs that precede the system's. In check mode, the module may write no file.
    """
    name, arguments = _called(name, arguments)
    module = import_module(f"ansible_collections.gb10.cluster.plugins.modules.{name}")
    # As on a hardened host: services of other users read what modules write.
    umask = os.umask(0o077)
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            patch_module_args(_given(arguments, check)),
            redirect_stdout(io.StringIO()) as output,
            unchanged(reads) if check else nullcontext([]) as tried,
            pytest.raises(SystemExit) as ended,
        ):
            # As on a node: a controller would print the warnings in place of returning them.
            patch.setattr(_internal, "is_controller", False)
            patch.setattr(warnings, "_global_warnings", type(warnings._global_warnings)())
            for variable, value in _environment(path).items():
                patch.setenv(variable, value)
            module.main()
    finally:
        os.umask(umask)
        gc.enable()  # Some modules turn it off for their short run.
    assert tried == [], tried
    answer: dict[str, Any] = json.loads(output.getvalue())
    assert bool(ended.value.code) is answer.get("failed", False)
    return answer


def run_alone(name: str, arguments: dict[str, Any], path: Path | None = None, check: bool = False) -> dict[str, Any]:
    """Do the same as on a node: in a process of its own, without this one's variables and modules."""
    name, arguments = _called(name, arguments)
    result = subprocess.run(
        [sys.executable, str(ROOT / ".collections/ansible_collections/gb10/cluster/plugins/modules" / f"{name}.py")],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": _given(arguments, check)}),
        env={"PYTHONPATH": str(ROOT / ".collections"), **_environment(path)},
        capture_output=True,
        text=True,
        check=False,
        umask=0o077,
    )
    assert "Traceback" not in result.stderr, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    assert (result.returncode != 0) is answer.get("failed", False)
    return answer
