"""Small wheels of vLLM with GPU code, as a build leaves them."""

from __future__ import annotations

import zipfile
from pathlib import Path

from gpu_libraries import code, elf, fat

WHEEL = "vllm-0.33.0+gb10.01234567-cp38-abi3-linux_aarch64.whl"


def extension(*architectures: str) -> bytes:
    """Return a shared object with one program for each architecture, such as "121a"; without one it has no GPU code."""
    programs = b"".join(fat(code("cubin", architecture)) for architecture in architectures)
    return elf([(".text", b"x"), *([(".nv_fatbin", programs)] if programs else [])])


def write_wheel(path: Path, *architectures: str, files: dict[str, bytes] | None = None) -> Path:
    """Write a wheel whose extension _C has code for these GPUs, and return its path. ``files`` are added."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contents = {
        "vllm/__init__.py": b"",
        "vllm/_C.abi3.so": extension(*architectures),
        "vllm/cumem_allocator.abi3.so": extension(),
        "vllm-0.33.0.dist-info/METADATA": b"Name: vllm\n",
        **(files or {}),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path
