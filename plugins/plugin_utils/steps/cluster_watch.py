# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Watch a running cluster on the terminal until the user ends it.

Asks each node again and again for its newest sample, and draws the speed of the model and a line for each node.
A terminal is drawn in place, and ``q`` or Ctrl-C ends it. Without a terminal, the frames follow each other until the
run is ended.
Needs a task on all nodes of one cluster, with a fork for each.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleError, AnsiblePromptInterrupt, AnsiblePromptNoninteractive
from ansible.utils.color import stringc
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign, io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import screen
from ansible_collections.gb10.cluster.plugins.plugin_utils import templates
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

_COLORS = {"+": constants.COLOR_OK, "?": "yellow", "!": constants.COLOR_ERROR, "-": "dark gray", ".": "normal"}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``nodes``: The nodes of the cluster, the head first. The first one draws.
    ``interval``: Seconds between two frames, 1 to 600.
    """

    nodes: Sequence[str]
    interval: int


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {lines} when the user ends it."""
    names, interval = given.nodes, given.interval
    if problem := _problem(interval, len(names), variables["ansible_play_hosts_all"]):
        return {"failed": True, "changed": False, "msg": str(problem)}
    number, folder, parent = names.index(variables["inventory_hostname"]), constants.DEFAULT_LOCAL_TMP, os.getppid()
    own, end = f"{folder}/gb10-watch-{number}", f"{folder}/gb10-watch-end"

    def ask() -> None:
        due = 0.0
        while not Path(end).exists() and os.getppid() == parent:  # A killed run writes no end.
            if time.monotonic() >= due:
                io_file.write_file(own, json.dumps(_answer(step)), 0o600)
                due = time.monotonic() + interval
            time.sleep(0.2)

    if number:
        ask()
        return {"changed": False, "lines": []}
    threading.Thread(target=ask, daemon=True).start()
    try:
        return {"changed": False, "lines": [_drawn(step, variables, names, interval, folder)]}
    finally:
        io_file.write_file(end, "", 0o600)


def _answer(step: Decision) -> dict[str, Any]:
    try:
        found = step._low_level_execute_command(screen.COMMAND)
    except AnsibleError as error:
        found = {"rc": 1, "stdout": "", "stderr": str(error)}
    reason = "" if found["rc"] == 0 else found["stderr"] or found["stdout"] or f"exit status {found['rc']}"
    return {"output": found["stdout"], "error": " ".join(reason.split()), "at": time.monotonic()}


def _drawn(step: Decision, variables: dict[str, Any], names: Sequence[str], interval: int, folder: str) -> str:
    """Draw until the user ends it. Returns a summary."""
    inputs, heads = step.of_nodes(variables, names, "gb10_inputs", {}), step.variable(variables, "gb10_heads")
    floors = {name: float(each["settings"]["vllm_serve_memory_floor"]) for name, each in inputs.items()}
    title, nodes = str(inputs[names[0]]["model"]).rstrip("/"), {name: screen.Watched() for name in names}
    given = {"title": title.rpartition("/")[2][:30], "heads": heads, "floors": floors, "nodes": nodes}
    template = templates.environment("gb10", foreign.line, markup=False).get_template("watch.j2")
    began, drawing = time.monotonic(), _size() if os.environ.get("TERM", "dumb") != "dumb" else None
    # The terminal's content scrolls out of its window, so that it is not overwritten.
    Display().display("\n" * drawing[1] if drawing else "", screen_only=True)
    while True:
        answers = [io_json.json_file(f"{folder}/gb10-watch-{number}") for number in range(len(names))]
        for node, answer in zip(nodes.values(), answers, strict=True):
            if answer:
                node.hear(**answer)
        now, (width, height) = time.monotonic(), _size() or (80, 24)
        text = template.render(given, interval=interval, width=width, now=now, clock=time.strftime("%H:%M:%S"))
        lines = [stringc(line, _COLORS[style]) for style, line in screen.fitted(text, width, height - 1)]
        frame = "\x1b[H" + "\x1b[K\n".join(lines) + "\x1b[J" if drawing else "\n".join([*lines, ""])
        seconds = interval if all(answers) else 1
        try:
            # A prompt makes Ctrl-C a key, as q: its signal would end the run as failed. Enter and space draw.
            Display().prompt_until(frame, True, seconds, (b"\x03", b"q"), (b"\r", b"\n", b" "))
        except AnsiblePromptInterrupt:
            return f"watched {len(nodes)} nodes for {time.monotonic() - began:.0f} s"
        except AnsiblePromptNoninteractive:
            Display().display(frame)
            time.sleep(seconds)


def _size() -> tuple[int, int] | None:
    """Return the size of the terminal that the main process prints to, None without one. A serial line has no size."""
    path = f"/proc/{os.getppid()}/fd/1"
    with contextlib.suppress(OSError), os.fdopen(os.open(path, os.O_RDONLY | os.O_NOCTTY)) as terminal:
        found = os.get_terminal_size(terminal.fileno())
        return found.columns or 80, found.lines or 24
    return None


def _problem(interval: int, nodes: int, hosts: list[str]) -> Problem | None:
    forks, where = int(context.CLIARGS["forks"]), "status_watch"
    if not 1 <= interval <= 600:
        return Problem(where, f"{interval}", "1 to 600 seconds", "use status_watch=5")
    if len(hosts) > nodes:
        return Problem(where, "the inventory has several clusters", "one", "add -e gb10_only=NAME")
    found = f"Ansible has {forks} forks for {nodes} nodes"
    return Problem(where, found, "one for each node", f"add --forks={nodes}") if forks < nodes else None
