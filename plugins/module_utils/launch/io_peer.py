# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a service of another node listens, and whether the node's kernel answers."""

from __future__ import annotations

import errno
import socket

_SECONDS = 2.0
#: The errors of a node whose kernel does not answer.
SILENT = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENETDOWN)


def error(address: str, port: int) -> int:
    """Return the number of the error of a connection to a port, 0 if a service listens there."""
    try:
        socket.create_connection((address, port), _SECONDS).close()
    except TimeoutError:
        return errno.ETIMEDOUT
    except OSError as failure:
        return failure.errno or errno.EIO
    return 0
