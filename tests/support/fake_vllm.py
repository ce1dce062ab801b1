"""A package with the patched files of vLLM, a few lines each, in their form since 0.20."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import ORACLE, UTILS

KERNELS = "model_executor/kernels/linear/scaled_mm"
FILES = {
    "__init__.py": "",
    "_version.py": "__version__ = version = '0.22.1'\n",
    UTILS: """\
from vllm.platforms import current_platform


def cutlass_fp8_supported() -> bool:
    return current_platform.is_cuda()


def cutlass_block_fp8_supported() -> bool:
    return current_platform.is_cuda()


CUTLASS_BLOCK_FP8_SUPPORTED = cutlass_block_fp8_supported()
""",
    f"{KERNELS}/cutlass.py": """\
class CutlassFP8ScaledMMLinearKernel:
    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None


class CutlassFp8BlockScaledMMKernel: ...
""",
    f"{KERNELS}/flashinfer.py": """\
class FlashInferFP8ScaledMMLinearKernel:
    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None
""",
    ORACLE: """\
import mk
from vllm.logger import init_logger

logger = init_logger(__name__)


class Fp8MoeBackend:
    TRITON = "TRITON"


def backend_to_kernel_cls(backend):
    return []


def select_fp8_moe_backend(config, weight_key, activation_key) -> tuple[Fp8MoeBackend, type | None]:
    if config.moe_backend != "auto" or config.moe_parallel_config.use_batched_activation_format:
        return config.moe_backend, None
    return "OTHER", None
""",
}


def install(package: Path, files: dict[str, str] | None = None) -> Path:
    """Write the package over existing files, like an installer, and return its folder."""
    for name, text in (FILES if files is None else files).items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8")
    return package
