# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program on nodes that lists or fetches a model, or relays it from node to node: list, fetch or relay."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_fetch, io_relay

_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "list": io_fetch.print_list,
    "fetch": io_fetch.fetch,
    "relay": io_relay.run,
}
#: Options with a text. listen: the address to serve the next node on; upstream: the sending node's name.
_TEXTS = (
    *("hub", "revision", "source", "folder", "listing", "manifest", "status"),
    *("listen", "upstream", "upstream-address"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names; units.py has its options."""
    parser = argparse.ArgumentParser(description="List or fetch a model, or relay it from node to node.")
    parser.add_argument("command", choices=_COMMANDS)
    for name in _TEXTS:
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--exclude", action="append", default=[], help="a pattern of files to exclude")
    parser.add_argument("--receiver", action="append", default=[], help="an address of the next node")
    parser.add_argument("--port", type=int)
    parser.add_argument("--streams", type=int, default=4, help="number of parallel files")
    parser.add_argument("--verify", action="store_true", help="read every file again")
    options = parser.parse_args(arguments)
    raise SystemExit(_COMMANDS[options.command](options))


if __name__ == "__main__":
    main()
