"""Small shared libraries with GPU code in nvcc's layout, for tests without CUDA."""

from __future__ import annotations

import struct
from collections.abc import Sequence

KINDS = {"ptx": 1, "cubin": 2, "lto": 8}
_VARIANTS = {"": 0, "a": 0x10_0000, "f": 0x20_0000}


def code(kind: str, architecture: str, size: int = 16) -> bytes:
    """One entry of a fat binary, such as code("cubin", "120f")."""
    number, variant = architecture.rstrip("af"), architecture.lstrip("0123456789")
    flags = 0x11 | _VARIANTS[variant]
    # nvcc's cubins for 10.0 and newer have options after the header.
    options = bytes(48) if kind == "cubin" and int(number) >= 100 else b""
    header = struct.pack(
        "<HHIQIIHHIIIQQQ", KINDS[kind], 0x101, 64 + len(options), size, 0, 0, 1, 8, int(number), 0, 0, flags, 0, 0
    )
    return header + options + b"\x7fELF".ljust(size, b"\x90")


def fat(*codes: bytes) -> bytes:
    """Return a fat binary with these entries."""
    body = b"".join(codes)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def elf(sections: Sequence[tuple[str, bytes]], machine: int = 62) -> bytes:
    """Return a shared object with these sections, each at a multiple of 8. ".bss" has no bytes in the file.

    ``machine`` is 62 for x86_64, 183 for aarch64.
    """
    sections = [*sections, (".shstrtab", b"")]
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _body in sections)
    sections[-1] = (".shstrtab", names)
    body, table, name_at = b"", bytes(64), 1
    for name, content in sections:
        body += bytes(-len(body) % 8)
        kind, length = (8, 1 << 40) if name == ".bss" else (1, len(content))
        table += struct.pack("<IIQQQQIIQQ", name_at, kind, 2, 0, 64 + len(body), length, 0, 0, 8, 0)
        body += content
        name_at += len(name) + 1
    body += bytes(-len(body) % 8)
    count = len(sections) + 1
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    return (
        ident
        + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1)
        + body
        + table
    )


def dynamic(
    exports: Sequence[str] = (),
    imports: Sequence[str] = (),
    needed: Sequence[str] = (),
    soname: str = "",
    rpath: str = "",
    runpath: str = "",
) -> list[tuple[str, bytes]]:
    """Return the sections that the dynamic linker uses to identify a library."""
    texts, symbols, table = b"\0", bytes(24), b""
    for name, section in [*((name, 7) for name in exports), *((name, 0) for name in imports)]:
        symbols += struct.pack("<IBBHQQ", len(texts), 0x12, 0, section, 0x1000 * section, 8)
        texts += name.encode() + b"\0"
    for tag, text in [*((1, name) for name in needed), (14, soname), (15, rpath), (29, runpath)]:
        if text:
            table += struct.pack("<QQ", tag, len(texts))
            texts += text.encode() + b"\0"
    return [(".dynsym", symbols), (".dynstr", texts), (".dynamic", table + bytes(16))]


def libnccl(
    *architectures: str,
    version: str = "2.30.7",
    cuda: str = "13.0",
    machine: int = 62,
    gcc: Sequence[str] = ("12.2.0",),
) -> bytes:
    """Return a libnccl for these architectures. It has linked code in two programs, a third program for sm_100f, as
    NCCL's makefile always adds, and the linked objects."""
    linked = fat(*(code("cubin", architecture) for architecture in architectures))
    family = fat(code("cubin", "100f"))
    text = f"\0NCCL version {version}+cuda{cuda}\0NCCL version mismatch with remote peer %s\0".encode()
    comment = b"".join(f"GCC: (Debian {release}-14) {release}\0".encode() for release in gcc)
    about = [*dynamic(exports=["pncclGetVersion", "ncclGetVersion"], soname="libnccl.so.2"), (".comment", comment)]
    sections = [
        *about,
        (".rodata", text),
        ("__nv_relfatbin", linked * 3 + family),
        (".nv_fatbin", linked + linked + family),
    ]
    return elf(sections, machine)
