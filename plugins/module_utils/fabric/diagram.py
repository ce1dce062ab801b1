"""Draws the fabric of a plan as SVG: nodes, ports with their PCIe functions, cables or switch, addresses and MTU.

All lines and texts have the color of the surrounding page, so that a diagram is legible on a light and on a dark one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS

# Sizes in pixels.
LINE, PAD = 16, 10
#: Between nodes: room for the text of a cable, or for a cable to the switch.
CABLE_GAP, SWITCH_GAP = 68, 30
FUNCTION_WIDTH, FUNCTION_HEIGHT = 122, 4 * LINE + 8
NODE_TEXT, PORT_GAP, SIDE, SWITCH_WIDTH = 130, 14, 34, 128
PORT_WIDTH, PORT_HEIGHT = 2 * FUNCTION_WIDTH + 3 * 6, FUNCTION_HEIGHT + LINE + 12
NODE_HEIGHT = PORT_HEIGHT + 2 * PAD
_PORT_OF = {twin.interface: number for number, twins in SPARK_PORTS.items() for twin in twins}


@dataclass(frozen=True)
class Port:
    """A port of a node: its title, and its rails, one for each PCIe function. ``row`` is the node, ``column`` the position in it."""

    node: str
    row: int
    top: float
    column: int
    title: str
    rails: tuple[Mapping[str, Any], ...]

    @property
    def subnets(self) -> tuple[str, ...]:
        return tuple(str(ipaddress.ip_interface(rail["address"]).network) for rail in self.rails)

    @property
    def left(self) -> float:
        return PAD + NODE_TEXT + self.column * (PORT_WIDTH + PORT_GAP)

    @property
    def center(self) -> float:
        return self.left + PORT_WIDTH / 2

    @property
    def bottom(self) -> float:
        return self.top + PORT_HEIGHT


def switched(plan: Mapping[str, Any]) -> bool:
    """Return whether a rail joins more than two nodes."""
    return any(len(rail["peers"]) > 1 for node in plan["nodes"] for rail in node["rails"])


def _top(plan: Mapping[str, Any], row: int) -> float:
    return row * (NODE_HEIGHT + (SWITCH_GAP if switched(plan) else CABLE_GAP)) + 2


def ports(plan: Mapping[str, Any]) -> list[Port]:
    """Return the ports of all nodes of a plan, as the fact gb10_plan contains it."""
    found = []
    for row, node in enumerate(plan["nodes"]):
        by_title: dict[str, list[Mapping[str, Any]]] = {}
        for rail in node["rails"]:
            number = _PORT_OF.get(rail["interface"])
            by_title.setdefault("network device" if number is None else f"QSFP port {number}", []).append(rail)
        top = _top(plan, row) + PAD
        found += [Port(node["name"], row, top, column, title, tuple(rails)) for column, (title, rails) in enumerate(by_title.items())]
    return found


def segments(found: Sequence[Port]) -> list[tuple[tuple[str, ...], list[Port]]]:
    """Return the cables and switches in the order of their subnets, with the ports in these."""
    by_subnets: dict[tuple[str, ...], list[Port]] = {}
    for port in found:
        by_subnets.setdefault(port.subnets, []).append(port)
    return sorted(by_subnets.items(), key=lambda item: ipaddress.ip_network(item[0][0]))


def pcie_function(interface: str) -> str:
    """Return the PCIe address in the name of a network device, "" if it contains none."""
    match = re.fullmatch(r"en(?:P(\d+))?p(\d+)s(\d+)f(\d+)(?:np\d+)?", interface)
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*(int(part or 0) for part in match.groups())) if match else ""


def description(plan: Mapping[str, Any]) -> str:
    """Return the diagram as sentences."""
    found = ports(plan)
    lines = [
        f"{port.node}, {port.title}: {', '.join(' '.join(filter(None, (rail['interface'], rail['hca'], rail['address']))) for rail in port.rails)}."
        for port in found
    ]
    for number, (subnets, joined) in enumerate(segments(found), 1):
        kind = "The switch" if len(joined) > 2 else f"Cable {number}"
        ends = ", ".join(f"{port.node} {port.title}" for port in joined)
        lines.append(f"{kind} joins {ends}: {', '.join(subnets)}, MTU {plan['mtu']}.")
    return " ".join(lines) or "No node is connected to another."


def svg(plan: Mapping[str, Any], name: str, title: str) -> str:
    """Return the diagram of a plan, as the fact gb10_plan contains it. ``name`` makes its identifiers unique in a page."""
    found = ports(plan)
    joined = segments(found)
    columns = max((port.column + 1 for port in found), default=0)
    node_width = NODE_TEXT + 2 * PAD + columns * (PORT_WIDTH + PORT_GAP) - (PORT_GAP if columns else -60)
    around = any(_around(ends) for _subnets, ends in joined)
    width = node_width + 4 + (SIDE + SWITCH_WIDTH if switched(plan) else SIDE if around else 0)
    height = _top(plan, len(plan["nodes"]) - 1) + NODE_HEIGHT + 2 + (CABLE_GAP if around else SWITCH_GAP if switched(plan) else 0)
    drawn = [part for row, node in enumerate(plan["nodes"]) for part in _node(node, _top(plan, row), node_width)]
    drawn += [part for port in found for part in _port(port)]
    for number, (subnets, ends) in enumerate(joined, 1):
        drawn += _cable(f"cable {number}", subnets, plan["mtu"], ends, node_width) if len(ends) == 2 else ()
    if switched(plan):
        drawn += _switch(joined, plan["mtu"], node_width + SIDE, height)
    return "\n".join(
        [
            f'<svg class="topology" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
            f' role="img" aria-labelledby="{name}-title {name}-desc" fill="currentColor" font-family="sans-serif" font-size="13"'
            ' overflow="visible">',
            f'<title id="{name}-title">{escape(title)}</title>',
            f'<desc id="{name}-desc">{escape(description(plan))}</desc>',
            *drawn,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{style and " " + style}>{escape(text)}</text>'


_CODE = 'font-family="monospace" font-size="12"'
_BOLD = 'font-weight="bold"'
_END = 'text-anchor="end"'


def _box(x: float, y: float, width: float, height: float, opacity: float) -> str:
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"'
    return f'<rect {size} fill-opacity="{opacity:g}" stroke="currentColor" stroke-opacity="0.6"/>'


def _node(node: Mapping[str, Any], top: float, width: float) -> Iterator[str]:
    yield _box(2, top, width, NODE_HEIGHT, 0.03)
    yield _text(2 + PAD, top + 24, node["name"], 'font-weight="bold" font-size="15"')
    yield _text(2 + PAD, top + 42, "head" if node["head"] else "worker")
    yield _text(2 + PAD, top + 68, "Its ranks use")
    yield _text(2 + PAD, top + 86, node["address"], _CODE)
    yield _text(2 + PAD, top + 103, node["interface"], _CODE)
    if not node["rails"]:
        yield _text(2 + PAD + NODE_TEXT, top + NODE_HEIGHT / 2, "no fabric")


def _port(port: Port) -> Iterator[str]:
    yield _box(port.left, port.top, PORT_WIDTH, PORT_HEIGHT, 0.05)
    yield _text(port.left + 8, port.top + LINE, port.title, _BOLD)
    functions = sum(bool(pcie_function(rail["interface"])) for rail in port.rails)
    if functions:
        yield _text(port.left + PORT_WIDTH - 8, port.top + LINE, f"{functions} PCIe function{'s' if functions > 1 else ''}", _END)
    for index, rail in enumerate(port.rails):
        left, top = port.left + 6 + index * (FUNCTION_WIDTH + 6), port.top + LINE + 6
        yield _box(left, top, FUNCTION_WIDTH, FUNCTION_HEIGHT, 0.06)
        texts = [pcie_function(rail["interface"]), rail["interface"], rail["hca"] or "without RDMA", rail["address"]]
        for line, text in enumerate(filter(None, texts), 1):
            yield _text(left + 6, top + line * LINE, text, _CODE + (f" {_BOLD}" if text == rail["address"] else ""))


def _around(ends: Sequence[Port]) -> bool:
    """Return whether a cable has to pass other nodes."""
    return len(ends) == 2 and abs(ends[0].row - ends[1].row) > 1


def _line(path: str) -> str:
    return f'<path class="cable" d="{path}" fill="none" stroke="currentColor" stroke-width="3"/>'


def _cable(name: str, subnets: Sequence[str], mtu: int, ends: Sequence[Port], right: float) -> Iterator[str]:
    upper, lower = sorted(ends, key=lambda port: port.row)
    start, middle = (upper.center, upper.bottom), upper.bottom + PAD + CABLE_GAP / 2
    side = 1.0
    if _around(ends):
        # From the last node below and next to all nodes to the first one.
        start, side = (lower.center, lower.bottom), -1.0
        turn = lower.bottom + PAD + CABLE_GAP - 12
        yield _line(f"M{start[0]:g} {start[1]:g} V{turn:g} H{right + SIDE / 2:g} V{upper.top + PORT_HEIGHT / 2:g} H{upper.left + PORT_WIDTH:g}")
    elif upper.column == lower.column:
        yield _line(f"M{start[0]:g} {start[1]:g} V{lower.top:g}")
    else:
        side = -1.0 if lower.column > upper.column else 1.0
        yield _line(f"M{start[0]:g} {start[1]:g} C{start[0]:g} {middle + 30:g} {lower.center:g} {middle - 30:g} {lower.center:g} {lower.top:g}")
    top = start[1] + PAD + LINE
    for index, text in enumerate([f"{name}, MTU {mtu}", *subnets]):
        style = _BOLD if not index else _CODE
        yield _text(start[0] + side * 12, top + index * LINE, text, style if side > 0 else f"{style} {_END}")


def _switch(joined: Sequence[tuple[tuple[str, ...], Sequence[Port]]], mtu: int, left: float, height: float) -> Iterator[str]:
    """Draw one switch with all networks. Ports of the last column have a straight cable, those before it one that passes below."""
    yield _box(left, 2, SWITCH_WIDTH, height - 4, 0.05)
    yield _text(left + 10, 26, "switch", 'font-weight="bold" font-size="15"')
    yield _text(left + 10, 44, f"MTU {mtu}")
    line = 0
    for subnets, ends in joined:
        titles = {port.title for port in ends}
        yield _text(left + 10, 70 + line * LINE, titles.pop() if len(titles) == 1 else "all devices")
        yield from (_text(left + 10, 70 + (line + index) * LINE, subnet, _CODE) for index, subnet in enumerate(subnets, 1))
        line += len(subnets) + 2
        last = max(port.column for _subnets, others in joined for port in others)
        for port in ends:
            if port.column == last:
                yield _line(f"M{port.left + PORT_WIDTH:g} {port.top + PORT_HEIGHT / 2:g} H{left:g}")
            else:
                yield _line(f"M{port.center:g} {port.bottom:g} V{port.bottom + PAD + SWITCH_GAP / 2:g} H{left:g}")
