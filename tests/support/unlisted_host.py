"""An unlisted host: a network namespace with an interface on the lab's management network and one on a bridge of a
node."""

from __future__ import annotations

import json
import subprocess

from testinfra.host import Host

SPACE = "gb10-unlisted"
#: The management port of every node, and the unlisted host's port on a node's bridge.
MANAGEMENT, PORT = "enP7s7", "enxunlisted"
#: Scans all ports at once, because a dropped packet takes the three seconds of the timeout.
SCAN = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def is_open(port):
    try:
        socket.create_connection((sys.argv[1], port), 3).close()
        return True
    except OSError:
        return False
ports = list(map(int, sys.argv[2:]))
with ThreadPoolExecutor(len(ports)) as pool:
    print(*(port for port, opened in zip(ports, pool.map(is_open, ports)) if opened))
"""


def on_this_machine(*argv: str, given: str = "") -> str:
    """Run a program on the lab's machine and return its output."""
    return subprocess.run(argv, input=given, capture_output=True, text=True, check=True).stdout


class UnlistedHost:
    """An unlisted host on the management network, which also tries the fabric's addresses through a node."""

    def __init__(self, management: str, switch: str) -> None:
        self.switch = switch
        self.remove()
        on_this_machine("ip", "netns", "add", SPACE)
        on_this_machine(
            "ip", "-n", switch, "link", "add", "unlisted", "type", "veth", "peer", "name", "eth0", "netns", SPACE
        )
        on_this_machine("ip", "-n", switch, "link", "set", "unlisted", "master", "mgmt", "up")
        self._up("eth0")
        for words in (
            f"address add {management.rpartition('.')[0]}.200/24 dev eth0",
            f"route add default via {management}",
        ):
            on_this_machine("ip", "-n", SPACE, *words.split())

    def _up(self, interface: str) -> None:
        """Set an interface up without duplicate address detection, so that IPv6 works at once."""
        self.run("sh", "-c", f"echo 0 >/proc/sys/net/ipv6/conf/{interface}/accept_dad")
        on_this_machine("ip", "-n", SPACE, "link", "set", interface, "up")

    def plug_in(self, node: str, address: str) -> None:
        """Connect a cable to a port of a node's namespace, with another address of the same /24 on the other end."""
        on_this_machine("ip", "-n", node, "link", "add", PORT, "type", "veth", "peer", "name", "eth1", "netns", SPACE)
        self._up("eth1")
        on_this_machine("ip", "-n", SPACE, "address", "add", f"{address}/24", "dev", "eth1")

    def run(self, *argv: str, given: str = "") -> str:
        """Run a program on the unlisted host and return its output; ``given`` is its input."""
        return on_this_machine("ip", "netns", "exec", SPACE, *argv, given=given)

    def open(self, address: str, ports: set[int]) -> set[int]:
        """Return the ports that accept a connection."""
        return {int(port) for port in self.run("python3", "-c", SCAN, address, *map(str, sorted(ports))).split()}

    def remove(self) -> None:
        """Remove everything, including the remains of a killed run."""
        # The cable comes first, because the kernel removes it only some time after the namespace.
        for argv in (
            ["ip", "-n", self.switch, "link", "del", "unlisted"],
            ["ip", "-n", SPACE, "link", "del", "eth1"],
            ["ip", "netns", "del", SPACE],
        ):
            subprocess.run(argv, check=False, capture_output=True)


def listening(host: Host) -> set[int]:
    """Return every port with a listener, and Ray's ports even if they are unused now."""
    sockets = [line.split()[3] for line in host.check_output("ss -Hltn").splitlines()]
    return {int(socket.rpartition(":")[2]) for socket in sockets} | {6379, 8265, 20000, 29501, 29502}


def link_local(host: Host, interface: str) -> str:
    """Return a node's IPv6 link-local address, which needs no configuration."""
    shown = json.loads(host.check_output(f"ip -6 -json address show dev {interface} scope link"))
    return next(str(address["local"]) for link in shown for address in link.get("addr_info", []))
