"""Small wheels of vLLM with GPU code, as a build leaves them, and in the form of the store."""

from __future__ import annotations

import zipfile
from pathlib import Path

from gpu_libraries import code, elf, fat

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_pack

WHEEL = "vllm-0.33.0+gb10.01234567-cp38-abi3-linux_aarch64.whl"
INFORMATION = "vllm-0.33.0.dist-info"


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
        f"{INFORMATION}/METADATA": b"Name: vllm\n",
        f"{INFORMATION}/RECORD": b"",
        **(files or {}),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


def packed_wheel(path: Path, *architectures: str, files: dict[str, bytes] | None = None) -> Path:
    """Write a wheel like write_wheel(), as a store has it, and return its path."""
    built = write_wheel(path.with_suffix(".built"), *architectures, files=files)
    with built.open("rb") as file:
        io_pack.pack(file.fileno(), str(path))
    built.unlink()
    return path
