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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

# Sizes in pixels.
LINE, PAD = 16, 10
SWITCH_GAP, PORT_GAP, SIDE, SWITCH_WIDTH = 30, 14, 34, 150
#: The least and the greatest width of a node's text and of a PCIe function.
NODE_TEXT, FUNCTION_WIDTH = (130, 230), (122, 150)
#: Widths of a character of a name, of other text and of code.
NAME, PLAIN, CODE = 10.0, 7.6, 7.3
_PORT_OF = {twin.interface: number for number, twins in SPARK_PORTS.items() for twin in twins}
_CODE = 'font-family="monospace" font-size="12"'
_BOLD = 'font-weight="bold"'
_END = 'text-anchor="end"'
_NAME = 'font-weight="bold" font-size="15"'


@dataclass(frozen=True)
class DrawnRail:
    """A rail of a node. ``address`` has its prefix length, "" for none. ``notes`` are further lines."""

    interface: str
    hca: str
    address: str
    notes: tuple[str, ...] = ()
    state: str = ""


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

    node: str
    row: int
    column: int
    title: str
    rails: tuple[DrawnRail, ...]

    @property
    def subnets(self) -> tuple[str, ...]:
        """The subnets of its rails."""
        return tuple(str(ipaddress.ip_interface(rail.address).network) for rail in self.rails if rail.address)


@dataclass(frozen=True)
class Segment:
    """A cable or a switch: two ports or more with a common subnet. ``state`` is that of its first rail with a state."""

    subnets: tuple[str, ...]
    ports: tuple[Port, ...]

    @property
    def state(self) -> str:
        """The state of the first rail that has one."""
        return next((rail.state for port in self.ports for rail in port.rails if rail.state), "")

    @property
    def around(self) -> bool:
        """Whether a cable has to pass other nodes."""
        return abs(self.ports[0].row - self.ports[-1].row) > 1


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
            by_title: dict[str, list[DrawnRail]] = {}
            for rail in node.rails:
                number = _PORT_OF.get(rail.interface)
                by_title.setdefault("network device" if number is None else f"QSFP port {number}", []).append(rail)
            rails = enumerate(by_title.items())
            found += [Port(node.name, row, column, title, tuple(each)) for column, (title, each) in rails]
        return found

    @cached_property
    def segments(self) -> list[Segment]:
        """The cables and switches in the order of their subnets."""
        joined: list[tuple[set[str], list[Port]]] = []
        for port in self.ports:
            same = [each for each in joined if each[0] & set(port.subnets)]
            joined = [each for each in joined if each not in same]
            subnets, ports = set(port.subnets).union(*(each[0] for each in same)), [p for each in same for p in each[1]]
            joined.append((subnets, [*ports, port]))
        found = [
            Segment(tuple(sorted(subnets, key=ipaddress.ip_network)), tuple(sorted(ports, key=self.ports.index)))
            for subnets, ports in joined
            if len({port.row for port in ports}) > 1
        ]
        return sorted(found, key=lambda segment: ipaddress.ip_network(segment.subnets[0]))

    @property
    def switched(self) -> bool:
        """Whether a network joins more than two ports."""
        return any(len(segment.ports) > 2 for segment in self.segments)


def of_plan(plan: Plan) -> Fabric:
    """Return the fabric of a plan, as the fact gb10_plan contains it."""
    return Fabric(
        tuple(
            DrawnNode(
                node.name,
                ("head" if node.head else "worker",),
                node.address,
                node.interface,
                tuple(DrawnRail(rail.interface, rail.hca, rail.address) for rail in node.rails),
            )
            for node in plan.nodes
        ),
        plan.mtu,
    )


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
        lines.append(f"{port.node}, {port.title}: {', '.join(rails)}.")
    for number, segment in enumerate(fabric.segments, 1):
        kind = "The switch" if fabric.switched else f"Cable {number}"
        ends = ", ".join(f"{port.node} {port.title}" for port in segment.ports)
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


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{style and " " + style}>{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, opacity: float) -> str:
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"'
    return f'<rect {size} fill-opacity="{opacity:g}" stroke="currentColor" stroke-opacity="0.6"/>'


def _group(state: str, parts: Iterator[str]) -> Iterator[str]:
    """Give parts the color of a state."""
    if state:
        yield f'<g class="{escape(state)}">'
    yield from parts
    if state:
        yield "</g>"


def _width(texts: Sequence[tuple[str, float]], limits: tuple[int, int]) -> float:
    return min(max([limits[0], *(len(text) * each + 14 for text, each in texts)]), limits[1])


def _fitting(text: str, width: float, character: float) -> str:
    most = int((width - 12) / character)
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


class _Drawing:
    """The places and sizes of a fabric's parts, and the parts as SVG."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        rails = [rail for port in fabric.ports for rail in port.rails]
        self.function = _width([(text, CODE) for rail in rails for text in self._lines(rail)], FUNCTION_WIDTH)
        self.function_height = max([4, *(len(self._lines(rail)) for rail in rails)]) * LINE + 8
        self.port_height = self.function_height + LINE + 12
        self.port_width = max([2, *(len(port.rails) for port in fabric.ports)]) * (self.function + 6) + 6
        words = [(line, PLAIN) for node in fabric.nodes for line in (*node.lines, node.address, node.interface)]
        self.text = _width([*words, *((node.name, NAME) for node in fabric.nodes)], NODE_TEXT)
        lines = max((len(node.lines) for node in fabric.nodes), default=0)
        self.node_height = max(self.port_height + 2 * PAD, 98 + 18 * lines)
        self.columns = max((port.column + 1 for port in fabric.ports), default=0)
        self.node_width = self.text + 2 * PAD + (self.columns * (self.port_width + PORT_GAP) - PORT_GAP or 60)
        self.gap, self.width, below = self._switched() if fabric.switched else self._cabled()
        self.height = len(fabric.nodes) * (self.node_height + self.gap) - self.gap + 4 + below

    def _switched(self) -> tuple[float, float, float]:
        """Return the space between nodes, the width, and the space below: room for the cables to a switch."""
        return SWITCH_GAP, self.node_width + 4 + SIDE + SWITCH_WIDTH, SWITCH_GAP

    def _cabled(self) -> tuple[float, float, float]:
        """Return the space between nodes, the width, and the space below: room for the texts of cables."""
        segments = self.fabric.segments
        gap = 2 * PAD + LINE * (1 + max((len(segment.subnets) for segment in segments), default=2))
        around = any(segment.around for segment in segments)
        # The text of a cable can be wider than its nodes.
        ends = (self.center(segment.ports[0]) + 12 + len(self._title(segment, 1)) * 8 for segment in segments)
        return gap, max([self.node_width + 4 + SIDE * around, *ends]), gap * around

    @staticmethod
    def _lines(rail: DrawnRail) -> list[str]:
        texts = [pcie_function(rail.interface), rail.interface, rail.hca or "without RDMA", rail.address, *rail.notes]
        return list(filter(None, texts))

    def top(self, port: Port) -> float:
        """Return the upper edge of a port."""
        return 2 + port.row * (self.node_height + self.gap) + PAD

    def left(self, port: Port) -> float:
        """Return the left edge of a port."""
        return PAD + self.text + port.column * (self.port_width + PORT_GAP)

    def center(self, port: Port) -> float:
        """Return the middle between the left and the right edge of a port."""
        return self.left(port) + self.port_width / 2

    def bottom(self, port: Port) -> float:
        """Return the lower edge of a port."""
        return self.top(port) + self.port_height

    def parts(self) -> Iterator[str]:
        """Yield all parts."""
        for row, node in enumerate(self.fabric.nodes):
            yield from self._node(node, 2 + row * (self.node_height + self.gap))
        for port in self.fabric.ports:
            yield from self._port(port)
        if self.fabric.switched:
            yield from self._switch(self.node_width + SIDE)
        else:
            for number, segment in enumerate(self.fabric.segments, 1):
                yield from _group(segment.state, self._cable(self._title(segment, number), segment))

    def _node(self, node: DrawnNode, top: float) -> Iterator[str]:
        yield from _group(node.state, iter([_box(2, top, self.node_width, self.node_height, 0.03)]))
        yield _text(2 + PAD, top + 24, _fitting(node.name, self.text, NAME), _NAME)
        for number, line in enumerate(node.lines, 1):
            text = _text(
                2 + PAD,
                top + 24 + 18 * number,
                _fitting(line, self.text, PLAIN),
                _BOLD if node.state and number == len(node.lines) else "",
            )
            yield from _group(node.state if number == len(node.lines) else "", iter([text]))
        below = top + 24 + 18 * len(node.lines)
        if node.address:
            yield _text(2 + PAD, below + 26, "Its ranks use")
            yield _text(2 + PAD, below + 44, _fitting(node.address, self.text, PLAIN), _CODE)
            yield _text(2 + PAD, below + 61, _fitting(node.interface, self.text, PLAIN), _CODE)
        if not node.rails:
            yield _text(2 + PAD + self.text, top + self.node_height / 2, node.empty)

    def _port(self, port: Port) -> Iterator[str]:
        left, top = self.left(port), self.top(port)
        yield _box(left, top, self.port_width, self.port_height, 0.05)
        yield _text(left + 8, top + LINE, port.title, _BOLD)
        functions = sum(bool(pcie_function(rail.interface)) for rail in port.rails)
        if functions:
            title = f"{functions} PCIe function{'s' if functions > 1 else ''}"
            yield _text(left + self.port_width - 8, top + LINE, title, _END)
        for index, rail in enumerate(port.rails):
            place = left + 6 + index * (self.function + 6)
            yield from _group(rail.state, self._rail(rail, place, top + LINE + 6))

    def _rail(self, rail: DrawnRail, left: float, top: float) -> Iterator[str]:
        yield _box(left, top, self.function, self.function_height, 0.06)
        for line, text in enumerate(self._lines(rail), 1):
            style = f"{_CODE} {_BOLD}" if text in (rail.address, *rail.notes[-1:]) else _CODE
            yield _text(left + 6, top + line * LINE, _fitting(text, self.function, CODE), style)

    def _path(self, path: str) -> str:
        return f'<path class="cable" d="{path}" fill="none" stroke="currentColor" stroke-width="3"/>'

    def _title(self, segment: Segment, number: int) -> str:
        return ", ".join(filter(None, (f"cable {number}", f"MTU {self.fabric.mtu}", segment.state)))

    def _cable(self, title: str, segment: Segment) -> Iterator[str]:
        upper, lower = segment.ports
        start, middle, side = self.bottom(upper), self.bottom(upper) + PAD + self.gap / 2, 1.0
        x, end, below = self.center(upper), self.center(lower), self.top(lower)
        if segment.around:
            # From the last node below and next to all nodes to the first one.
            x, start, side = end, self.bottom(lower), -1.0
            turn, right = start + PAD + self.gap - 12, self.node_width + SIDE / 2
            first = f"V{self.top(upper) + self.port_height / 2:g} H{self.left(upper) + self.port_width:g}"
            yield self._path(f"M{x:g} {start:g} V{turn:g} H{right:g} {first}")
        elif upper.column == lower.column:
            yield self._path(f"M{x:g} {start:g} V{below:g}")
        else:
            side = -1.0 if lower.column > upper.column else 1.0
            yield self._path(f"M{x:g} {start:g} C{x:g} {middle + 30:g} {end:g} {middle - 30:g} {end:g} {below:g}")
        for index, text in enumerate([title, *segment.subnets]):
            style = _CODE if index else _BOLD
            place = start + PAD + LINE * (index + 1)
            yield _text(x + side * 12, place, text, style if side > 0 else f"{style} {_END}")

    def _switch(self, left: float) -> Iterator[str]:
        """Draw one switch. Ports of the last column have a straight cable, those before it one that passes below."""
        yield _box(left, 2, SWITCH_WIDTH, self.height - 4, 0.05)
        yield _text(left + 10, 26, "switch", _NAME)
        yield _text(left + 10, 44, f"MTU {self.fabric.mtu}")
        top = 70
        for segment in self.fabric.segments:
            titles = {port.title for port in segment.ports}
            yield _text(left + 10, top, titles.pop() if len(titles) == 1 else "all devices")
            for index, subnet in enumerate(segment.subnets, 1):
                yield _text(left + 10, top + index * LINE, subnet, _CODE)
            top += (len(segment.subnets) + 2) * LINE
            for port in segment.ports:
                state = next((rail.state for rail in port.rails if rail.state), "")
                yield from _group(state, iter([self._path(self._to_switch(port, left))]))

    def _to_switch(self, port: Port, left: float) -> str:
        if port.column == self.columns - 1:
            return f"M{self.left(port) + self.port_width:g} {self.top(port) + self.port_height / 2:g} H{left:g}"
        turn = self.bottom(port) + PAD + SWITCH_GAP / 2
        return f"M{self.center(port):g} {self.bottom(port):g} V{turn:g} H{left:g}"
