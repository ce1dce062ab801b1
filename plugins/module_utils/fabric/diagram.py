# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draws a fabric as SVG: nodes, ports with their PCIe functions, cables or switch, addresses and MTU.

All lines and texts have the color of the surrounding page, so that a diagram is legible on a light and on a dark one.
A state is a CSS class of a node or rail, and its texts show it too. Every text is escaped.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import chain

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

#: Pixels: height of a line, space around boxes, and widths of a PCIe function, of the space next to nodes, of a switch.
LINE, PAD, FUNCTION, SIDE, SWITCH = 16, 10, 142, 34, 150
_PORT_OF = {twin.interface: f"QSFP port {number}" for number, twins in SPARK_PORTS.items() for twin in twins}
_BOLD, _END, _CODE = 'font-weight="bold"', 'text-anchor="end"', 'font-family="monospace" font-size="12"'
_NAME = f'{_BOLD} font-size="15"'


@dataclass(frozen=True)
class DrawnRail:
    """A rail of a node. ``address`` has its prefix length, "" for none. ``notes`` are further lines."""

    interface: str
    hca: str
    address: str
    notes: tuple[str, ...] = ()
    state: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines of its box."""
        every = (pcie_function(self.interface), self.interface, self.hca or "without RDMA", self.address, *self.notes)
        return [line for line in every if line]


@dataclass(frozen=True)
class DrawnNode:
    """A node with the ``address`` and ``interface`` of its ranks, "" if unknown. ``lines`` are below its name.

    ``state`` colors its frame and the last line. ``empty`` replaces the ports of a node without a rail.
    """

    name: str
    lines: tuple[str, ...]
    address: str
    interface: str
    rails: tuple[DrawnRail, ...]
    state: str = ""
    empty: str = "no fabric"


@dataclass(frozen=True)
class Port:
    """A port of the node ``row``, ``column`` is its position in it. It has a rail for each PCIe function."""

    row: int
    column: int
    title: str
    rails: tuple[DrawnRail, ...]

    @cached_property
    def subnets(self) -> frozenset[str]:
        """The subnets of its rails."""
        return frozenset(str(ipaddress.ip_interface(rail.address).network) for rail in self.rails if rail.address)


@dataclass(frozen=True)
class Segment:
    """A cable or a switch: two ports or more with a common subnet, in the order of their nodes."""

    ports: tuple[Port, ...]

    @cached_property
    def subnets(self) -> tuple[str, ...]:
        """The subnets of its ports."""
        return tuple(sorted(frozenset().union(*(port.subnets for port in self.ports)), key=ipaddress.ip_network))

    @property
    def around(self) -> bool:
        """Whether a cable has to pass other nodes."""
        return self.ports[-1].row - self.ports[0].row > 1

    @property
    def state(self) -> str:
        """The state of the first rail that has one."""
        return next((rail.state for port in self.ports for rail in port.rails if rail.state), "")


@dataclass(frozen=True)
class Fabric:
    """The nodes in their order, and the MTU of the rails in bytes."""

    nodes: tuple[DrawnNode, ...]
    mtu: int

    @cached_property
    def ports(self) -> list[Port]:
        """The ports of all nodes."""
        found = []
        for row, node in enumerate(self.nodes):
            titled: dict[str, list[DrawnRail]] = {}
            for rail in node.rails:
                titled.setdefault(_PORT_OF.get(rail.interface, "network device"), []).append(rail)
            found += [Port(row, n, title, tuple(each)) for n, (title, each) in enumerate(titled.items())]
        return found

    @cached_property
    def segments(self) -> list[Segment]:
        """The cables and switches in the order of their subnets."""
        joined: list[list[Port]] = []
        for port in self.ports:
            same = [each for each in joined if any(port.subnets & other.subnets for other in each)]
            joined = [each for each in joined if each not in same] + [[*chain.from_iterable(same), port]]
        found = [Segment(tuple(sorted(each, key=self.ports.index))) for each in joined if each[0].row != each[-1].row]
        return sorted(found, key=lambda segment: ipaddress.ip_network(segment.subnets[0]))

    @property
    def switched(self) -> bool:
        """Whether a network joins more than two ports."""
        return any(len(segment.ports) > 2 for segment in self.segments)


def of_plan(plan: Plan) -> Fabric:
    """Return the fabric of a plan, as the fact gb10_plan contains it."""
    nodes = (
        DrawnNode(
            node.name,
            ("head" if node.head else "worker",),
            node.address,
            node.interface,
            tuple(DrawnRail(rail.interface, rail.hca, rail.address) for rail in node.rails),
        )
        for node in plan.nodes
    )
    return Fabric(tuple(nodes), plan.mtu)


def pcie_function(interface: str) -> str:
    """Return the PCIe address in the name of a network device, "" if it contains none."""
    match = re.fullmatch(r"en(?:P(\d+))?p(\d+)s(\d+)f(\d+)(?:np\d+)?", interface, re.ASCII)
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*(int(part or 0) for part in match.groups())) if match else ""


def description(fabric: Fabric) -> str:
    """Return the diagram as sentences."""
    lines = []
    for port in fabric.ports:
        rails = (
            " ".join(filter(None, (rail.interface, rail.hca, rail.address, *map("({})".format, rail.notes))))
            for rail in port.rails
        )
        lines.append(f"{fabric.nodes[port.row].name}, {port.title}: {', '.join(rails)}.")
    for number, segment in enumerate(fabric.segments, 1):
        kind = "The switch" if fabric.switched else f"Cable {number}"
        ends = ", ".join(f"{fabric.nodes[port.row].name} {port.title}" for port in segment.ports)
        lines.append(f"{kind} joins {ends}: {', '.join(segment.subnets)}, MTU {fabric.mtu}.")
    return " ".join(lines) or "No node is connected to another."


def svg(fabric: Fabric, name: str, title: str) -> str:
    """Return the diagram. ``name`` makes its identifiers unique in a page."""
    drawing = _Drawing(fabric)
    size = f'viewBox="0 0 {drawing.width:g} {drawing.height:g}" width="{drawing.width:g}" height="{drawing.height:g}"'
    return "\n".join(
        [
            f'<svg class="topology" xmlns="http://www.w3.org/2000/svg" {size} role="img"'
            f' aria-labelledby="{name}-title {name}-desc" fill="currentColor" font-family="sans-serif" font-size="13"'
            ' overflow="visible">',
            f'<title id="{name}-title">{escape(title)}</title>',
            f'<desc id="{name}-desc">{escape(description(fabric))}</desc>',
            *drawing.parts(),
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, style: str = "", most: int = 99) -> str:
    shown = text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
    return f'<text x="{x:g}" y="{y:g}"{style and " " + style}>{escape(shown)}</text>'


def _box(x: float, y: float, width: float, height: float, opacity: float) -> str:
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"'
    return f'<rect {size} fill-opacity="{opacity:g}" stroke="currentColor" stroke-opacity="0.6"/>'


def _path(path: str) -> str:
    return f'<path class="cable" d="{path}" fill="none" stroke="currentColor" stroke-width="3"/>'


def _colored(state: str, *parts: str) -> str:
    return "\n".join([f'<g class="{escape(state)}">', *parts, "</g>"] if state else parts)


def _words(nodes: Iterable[DrawnNode]) -> int:
    """Return the most characters of a line about a node. A character of a name is wider."""
    return min(28, max([15, *(len(line) for node in nodes for line in (f"{node.name:16}++", *node.lines))]))


class _Drawing:
    """The places and sizes of a fabric's parts, and the parts as SVG."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, ports, nodes, segments = fabric, fabric.ports, fabric.nodes, fabric.segments
        self.words = _words(nodes)
        self.left = 2 + 2 * PAD + 7.6 * self.words
        self.function_height = LINE * max([4, *(len(rail.lines) for port in ports for rail in port.rails)]) + 8
        self.port_width = max([2, *(len(port.rails) for port in ports)]) * (FUNCTION + 6) + 6
        self.columns = max([0, *(port.column + 1 for port in ports)])
        self.right = self.left + (self.columns * (self.port_width + PAD) or 80)
        self.node_height = max(
            self.function_height + LINE + 12 + 2 * PAD, 98 + 18 * max(len(node.lines) for node in nodes)
        )
        around = any(segment.around for segment in segments)
        texts = 2 * PAD + LINE * (1 + max((len(segment.subnets) for segment in segments), default=2))
        self.gap = 30 if fabric.switched else texts
        self.width = self.right + (SIDE + SWITCH if fabric.switched else SIDE if around else 0) + 2
        self.height = len(nodes) * (self.node_height + self.gap) + 4 - (0 if fabric.switched or around else self.gap)

    def edges(self, port: Port) -> tuple[float, float, float, float]:
        """Return the left, upper, right and lower edge of a port."""
        left = self.left + port.column * (self.port_width + PAD)
        top = 2 + port.row * (self.node_height + self.gap) + PAD
        return left, top, left + self.port_width, top + self.function_height + LINE + 12

    def parts(self) -> Iterator[str]:
        """Yield all parts."""
        for row, node in enumerate(self.fabric.nodes):
            yield from self._node(node, 2 + row * (self.node_height + self.gap))
        for port in self.fabric.ports:
            yield from self._port(port)
        if self.fabric.switched:
            yield from self._switch(self.right + SIDE)
        else:
            for number, segment in enumerate(self.fabric.segments, 1):
                yield _colored(segment.state, *self._cable(number, segment))

    def _node(self, node: DrawnNode, top: float) -> Iterator[str]:
        x = 2 + PAD
        yield _colored(node.state, _box(2, top, self.right - 2, self.node_height, 0.03))
        yield _text(x, top + 24, node.name, _NAME, self.words * 3 // 4)
        for number, line in enumerate(node.lines, 1):
            state = node.state if number == len(node.lines) else ""
            yield _colored(state, _text(x, top + 24 + 18 * number, line, state and _BOLD, self.words))
        below = top + 50 + 18 * len(node.lines)
        if node.address:
            yield _text(x, below, "Its ranks use")
            yield _text(x, below + 18, node.address, _CODE, self.words)
            yield _text(x, below + 35, node.interface, _CODE, self.words)
        if not node.rails:
            yield _text(self.left, top + self.node_height / 2, node.empty)

    def _port(self, port: Port) -> Iterator[str]:
        left, top, right, bottom = self.edges(port)
        yield _box(left, top, right - left, bottom - top, 0.05)
        yield _text(left + 8, top + LINE, port.title, _BOLD)
        functions = sum(bool(pcie_function(rail.interface)) for rail in port.rails)
        if functions:
            yield _text(right - 8, top + LINE, f"{functions} PCIe function{'s' * (functions > 1)}", _END)
        for index, rail in enumerate(port.rails):
            x, y = left + 6 + index * (FUNCTION + 6), top + LINE + 6
            texts = [
                _text(
                    x + 6,
                    y + number * LINE,
                    line,
                    _CODE + (f" {_BOLD}" if line in (rail.address, *rail.notes[-1:]) else ""),
                    18,
                )
                for number, line in enumerate(rail.lines, 1)
            ]
            yield _colored(rail.state, _box(x, y, FUNCTION, self.function_height, 0.06), *texts)

    def _cable(self, number: int, segment: Segment) -> Iterator[str]:
        upper, lower = segment.ports
        start = lower if segment.around else upper
        left, _top, right, bottom = self.edges(start)
        x = (left + right) / 2
        style, place = (_END, x - 12) if segment.around or upper.column <= lower.column else ("", x + 12)
        if segment.around:
            yield _path(f"{self._beside(upper, self.right + SIDE / 2)} V{bottom + self.gap:g} H{x:g} V{bottom:g}")
        else:
            end_left, end, end_right, _bottom = self.edges(lower)
            to, middle = (end_left + end_right) / 2, (bottom + end) / 2
            yield _path(f"M{x:g} {bottom:g} C{x:g} {middle + 30:g} {to:g} {middle - 30:g} {to:g} {end:g}")
        title = ", ".join(filter(None, (f"cable {number}", f"MTU {self.fabric.mtu}", segment.state)))
        for line, text in enumerate([title, *segment.subnets], 1):
            yield _text(place, bottom + PAD + LINE * line, text, f"{_CODE if line > 1 else _BOLD} {style}")

    def _switch(self, left: float) -> Iterator[str]:
        yield _box(left, 2, SWITCH, self.height - 4, 0.05)
        yield _text(left + PAD, 26, "switch", _NAME)
        yield _text(left + PAD, 44, f"MTU {self.fabric.mtu}")
        y = 70
        for segment in self.fabric.segments:
            titles = {port.title for port in segment.ports}
            for line, text in enumerate([titles.pop() if len(titles) == 1 else "all devices", *segment.subnets]):
                yield _text(left + PAD, y + LINE * line, text, _CODE if line else "")
            y += (len(segment.subnets) + 2) * LINE
            for port in segment.ports:
                yield _colored(Segment((port,)).state, _path(self._beside(port, left)))

    def _beside(self, port: Port, x: float) -> str:
        """Return a line to the right of the nodes: straight from the last column, else one that passes below."""
        left, top, right, bottom = self.edges(port)
        if port.column == self.columns - 1:
            return f"M{right:g} {(top + bottom) / 2:g} H{x:g}"
        return f"M{(left + right) / 2:g} {bottom:g} V{bottom + PAD + 15:g} H{x:g}"
