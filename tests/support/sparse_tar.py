"""A tar file whose entry has gigabytes in a few bytes: GNU's sparse format, which tarfile writes nowhere."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path


def add_sparse(path: Path, name: str, size: int) -> str:
    """Write a tar file with one sparse file of ``size`` zeros, and return its SHA-256.

    Source of the form: GNU tar, tar.h, struct oldgnu_header: the map at byte 386, the real size at byte 483.
    """
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    # The map has one empty part at the end.
    block[386:410] = b"%011o\0%011o\0" % (size, 0) if size < 1 << 33 else size.to_bytes(12, "big") + b"%011o\0" % 0
    block[386] |= 0 if size < 1 << 33 else 0x80
    block[483:495] = b"%011o\0" % size if size < 1 << 33 else (0x80 << 88 | size).to_bytes(12, "big")
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    path.write_bytes(bytes(block) + bytes(1024))
    return hashlib.sha256(path.read_bytes()).hexdigest()
