"""Execute modules of vLLM without GPU, PyTorch and compiled code, with stand-ins for all imports."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

#: The kernel classes whose stand-ins report support for a layer.
Supported = set[str]


class _Class(type):
    """A class that has any attribute; repeated reads return the same value."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = MagicMock(name=f"{cls.__name__}.{name}")
        setattr(cls, name, value)
        return value


def _accept(_self: Any, **_given: Any) -> None:
    """Construct a stand-in from any arguments."""


def _is_supported_config(cls: type, *_given: Any) -> tuple[bool, str | None]:
    return (True, None) if cls.__name__ in WORLD.supported else (False, "not here")


class _Module(ModuleType):
    """A module that has every name: classes for class-like names, mocks for others."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value: Any = MagicMock(name=f"{self.__name__}.{name}")
        if name[0].isupper() and not name.isupper():
            value = _Class(name, (), {"__init__": _accept, "is_supported_config": classmethod(_is_supported_config)})
        elif name.startswith("is_supported_config"):
            value = lambda *_given: (False, "not here")  # noqa: E731 # one of several kinds of value
        elif name.startswith("prioritize"):
            value = lambda backends: backends  # noqa: E731 # likewise
        setattr(self, name, value)
        return value


class World:
    """The environment of the executed module. A test sets it before its calls."""

    def __init__(self) -> None:
        self.capability = (12, 1)
        self.supported: Supported = set()
        self.environment: dict[str, Any] = {}
        self.cuda = True
        self.log: list[str] = []


WORLD = World()


def _platform() -> MagicMock:
    def number() -> int:
        return 10 * WORLD.capability[0] + WORLD.capability[1]

    platform = MagicMock(name="current_platform")
    platform.is_cuda.side_effect = lambda: WORLD.cuda
    for other in ("rocm", "xpu", "cpu", "tpu", "out_of_tree"):
        getattr(platform, f"is_{other}").return_value = False
    platform.get_device_capability.side_effect = lambda *_given: SimpleNamespace(
        major=number() // 10, minor=number() % 10, to_int=number
    )
    platform.has_device_capability.side_effect = lambda wanted, *_given: number() >= wanted
    platform.is_device_capability.side_effect = lambda wanted, *_given: number() == wanted
    platform.is_device_capability_family.side_effect = lambda wanted, *_given: number() // 10 == wanted // 10
    return platform


class _Environment(ModuleType):
    """vllm.envs with the relevant defaults. Variables that a test sets count as set by the user."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return WORLD.environment.get(name, name in ("VLLM_USE_DEEP_GEMM", "VLLM_MOE_USE_DEEP_GEMM"))

    def is_set(self, name: str) -> bool:
        return name in WORLD.environment


def _logger(_name: str) -> MagicMock:
    logger = MagicMock()
    logger.info_once.side_effect = lambda message, *_given, **_named: WORLD.log.append(str(message))
    return logger


class _Finder:
    """Find a stand-in for every module of these packages."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        from importlib.machinery import ModuleSpec  # noqa: PLC0415

        return (
            ModuleSpec(name, self, is_package=True)
            if name.partition(".")[0] in ("vllm", "torch", "packaging", "regex")
            else None
        )  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        module = _Environment(spec.name) if spec.name == "vllm.envs" else _Module(spec.name)
        if spec.name == "vllm.platforms":
            module.current_platform = _platform()  # type: ignore[attr-defined]
        if spec.name == "vllm.logger":
            module.init_logger = _logger  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a stand-in creates its names on access."""


@contextmanager
def world() -> Iterator[World]:
    """Replace vLLM's imports with stand-ins until the end of the block."""
    finder = _Finder()
    with patch.dict(sys.modules), patch.object(sys, "meta_path", [finder, *sys.meta_path]):
        for name in [name for name in sys.modules if name.partition(".")[0] in ("vllm", "torch", "packaging")]:
            del sys.modules[name]
        import vllm  # noqa: PLC0415

        for part in ("envs", "_custom_ops", "platforms", "logger"):
            setattr(vllm, part, __import__(f"vllm.{part}", fromlist=["x"]))
        for name in (
            "cutlass_scaled_mm_supports_fp8",
            "cutlass_scaled_mm_supports_block_fp8",
            "cutlass_group_gemm_supported",
        ):
            setattr(vllm._custom_ops, name, lambda _capability: True)
        WORLD.__init__()  # type: ignore[misc]
        yield WORLD


def execute(path: Path) -> Any:
    """Execute a module of vLLM and return it."""
    module = ModuleType("vllm.executed")
    module.__file__ = str(path)
    sys.modules["vllm.executed"] = module
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    return module
