# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of a tar file that another node wrote. The file must be opened without compression."""

from __future__ import annotations

import tarfile
from typing import IO


def plain(archive: tarfile.TarFile, entry: tarfile.TarInfo, size: int) -> IO[bytes] | None:
    """Return the content of a file that is as a whole in a tar file of ``size`` bytes, None for any other entry.

    So all files together are not larger than the tar file. A sparse file of 2 KB can have gigabytes.
    """
    whole = entry.isreg() and not entry.issparse() and 0 <= entry.size <= size - entry.offset_data
    return archive.extractfile(entry) if whole else None
