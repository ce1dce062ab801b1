# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Send the kernel's messages to the peer with the kernel's netconsole, or end that.

gb10-netconsole.service runs this file as root without capabilities. A kernel without the module is not an error.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_journal import say
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import netconsole

#: Tries to learn the neighbor's MAC address, and seconds between two.
_TRIES, _PAUSE = 10, 0.5


def neighbor(interface: str, address: str, port: int) -> str:
    """Return the MAC address of a neighbor, "" if it does not answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        for _try in range(_TRIES):
            # An empty datagram makes the kernel look for the neighbor.
            with contextlib.suppress(OSError):
                connection.sendto(b"", (address, port))
            if found := netconsole.mac(io_file.read("/proc/net/arp"), interface, address):
                return found
            time.sleep(_PAUSE)
    return ""


def off() -> None:
    """Remove the target. Raises OSError."""
    target = netconsole.TARGET
    if not os.path.isdir(target):
        return
    with contextlib.suppress(OSError), open(f"{target}/enabled", "w", encoding="ascii") as file:
        file.write("0")
    os.rmdir(target)


def main() -> int:
    """Add the target of the settings, or remove it. Arguments: on or off, and the settings."""
    action, settings = sys.argv[1:]
    if action == "off":
        off()
        return 0
    if (found := io_json.json_file(settings)) is None:
        say(f"{settings} does not exist. Expected: the settings. Fix: run site.yml --tags flight_recorder")
        return 1
    given = found["peer"]
    if not os.path.isdir(netconsole.FOLDER):
        say("this kernel has no netconsole, so the peer gets no messages of a kernel whose user space is dead")
        return 0
    off()
    hardware = neighbor(given["interface"], given["address"], given["port"])
    if not hardware:
        say(f"{given['name']} does not answer at {given['address']} on {given['interface']}: systemd tries again")
        return 1
    os.mkdir(netconsole.TARGET)
    try:
        for name, text in netconsole.attributes(given, hardware).items():
            with open(f"{netconsole.TARGET}/{name}", "w", encoding="ascii") as file:
                file.write(text)
    except OSError as error:
        off()
        say(f"{netconsole.TARGET}/{name} refuses {text!r}: {error}")
        return 1
    say(f"the kernel's messages go to {given['name']}, {given['address']} ({hardware}), over {given['interface']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
