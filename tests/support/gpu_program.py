"""Load a program of tests/gpu, to test its functions without a GPU."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from repository import ROOT

_FOLDER = ROOT / "tests/gpu"


def load(name: str) -> ModuleType:
    """Return the program as a module. Modules of its folder have names that other tests use too."""
    names = [path.stem for path in _FOLDER.glob("*.py")]
    hidden = {each: sys.modules.pop(each) for each in names if each in sys.modules}
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", _FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # The dataclass decorator needs the module in sys.modules.
    sys.modules[spec.name] = module
    sys.path.insert(0, str(_FOLDER))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(_FOLDER))
        for each in names:
            sys.modules.pop(each, None)
        sys.modules.update(hidden)
    return module
