# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program on nodes that lists or fetches a model, or relays it from node to node: list, fetch or relay."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_fetch, io_relay


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["relay"]:
        io_relay.main(given[1:])
    else:
        io_fetch.main(given)


if __name__ == "__main__":
    main()
