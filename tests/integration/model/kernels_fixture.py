"""FIXTURE in place of vLLM and FlashInfer: it checks the unit's confinement and writes one module."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace


def _module(name: str, **members: object) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


class _Parser(SimpleNamespace):
    def __init__(self, prog: str) -> None:
        super().__init__(prog=prog)

    def parse_args(self, argv: list[str]) -> SimpleNamespace:
        return SimpleNamespace(model_tag=argv[0], argv=argv)


class _Arguments:
    load_format = "auto"
    tensor_parallel_size = 2

    @classmethod
    def from_cli_args(cls, given: SimpleNamespace) -> _Arguments:
        found = cls()
        found.argv = given.argv
        return found


def _start(arguments: _Arguments) -> SimpleNamespace:
    if (arguments.load_format, arguments.tensor_parallel_size) != ("dummy", 1):
        sys.exit("the start has real weights or several ranks")
    if os.getuid() == 0 or os.access("/etc/shadow", os.R_OK) or os.access("/opt", os.W_OK):
        sys.exit("the unit has rights")
    with socket.socket() as probe:
        try:
            probe.connect(("10.110.0.2", 22))
            sys.exit("the unit has a network")
        except OSError:
            pass
    if "--attention-backend=broken" in arguments.argv:
        sys.exit("RuntimeError: this kernel cannot be compiled")
    folder = Path(os.environ["FLASHINFER_WORKSPACE_BASE"], ".cache/flashinfer/0.0/121a/cached_ops/sampling")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sampling.cuda.o").write_bytes(b"object")
    time.sleep(7)
    (folder / "sampling.so").write_bytes(b"compiled with " + os.environ["MAX_JOBS"].encode())
    return SimpleNamespace(model_config=SimpleNamespace(runner_type="pooling"))


__path__: list[str] = []
_module("vllm.entrypoints.launchers.cli_args", make_arg_parser=lambda parser: parser)
_module("vllm.utils.argparse_utils", FlexibleArgumentParser=_Parser)
_module("vllm.engine.arg_utils", EngineArgs=_Arguments)
_module("vllm.v1.engine.llm_engine", LLMEngine=SimpleNamespace(from_engine_args=_start))
for _name in ("entrypoints", "entrypoints.launchers", "utils", "engine", "v1", "v1.engine"):
    _module(f"vllm.{_name}")
