# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action plugin of cluster_watch, which documents it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleError, AnsiblePromptInterrupt, AnsiblePromptNoninteractive
from ansible.utils.color import stringc
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json, spans
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import screen
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.screen import Line, Watched
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

#: The longest interval in seconds, and the seconds before the first frame with values, and to see the end of the run.
_LONGEST, _FIRST, _PAUSE = 600, 1, 0.2
#: The keys that end it: Ctrl-C, which is a key while Ansible prompts, and q. Those that draw at once.
_ENDS, _DRAWS = (b"\x03", b"q"), (b"\r", b"\n", b" ")
#: Sequences of a terminal: to its first place; the end of a line; all that is below.
_HOME, _LINE_END, _BELOW = "\x1b[H", "\x1b[K\n", "\x1b[J"
_COLORS: Mapping[str, str] = {
    screen.GOOD: constants.COLOR_OK,
    screen.WARN: "yellow",
    screen.BAD: constants.COLOR_ERROR,
    screen.DIM: "dark gray",
}


class ActionModule(Decision):
    """Queries its node repeatedly. On the first node, it also draws the answers of all.

    One process per node: a node that does not answer delays no other one. They share Ansible's temporary folder. It
    draws between two prompts, because a prompt turns Ctrl-C into a key: a signal would end the run as failed.
    """

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return {lines} when the user ends it."""
        arguments = self.arguments(
            nodes={"type": "list", "elements": "str", "required": True},
            interval={"type": "int", "required": True},
        )
        nodes, interval = arguments["nodes"], arguments["interval"]
        if problem := _problem(interval, nodes, variables["ansible_play_hosts_all"]):
            return {"failed": True, "changed": False, "msg": str(problem)}
        folder = os.path.join(constants.DEFAULT_LOCAL_TMP, "gb10-watch")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        end, parent = os.path.join(folder, "end"), os.getppid()
        number = nodes.index(variables["inventory_hostname"])
        ended = threading.Event()

        def over() -> bool:
            # The run may have been killed.
            return ended.is_set() or os.path.exists(end) or os.getppid() != parent

        def ask() -> None:
            while not over():
                io_file.write_file(os.path.join(folder, f"{number}.json"), json.dumps(self._answer()), 0o600)
                due = time.monotonic() + interval
                while time.monotonic() < due and not over():
                    time.sleep(_PAUSE)

        if number:
            ask()
            return {"changed": False, "lines": []}
        threading.Thread(target=ask, daemon=True).start()
        try:
            return {"changed": False, "lines": [self._drawn(variables, nodes, interval, folder)]}
        finally:
            ended.set()
            io_file.write_file(end, "", 0o600)

    def _answer(self) -> dict[str, Any]:
        """Return {output, error, at} of a query."""
        try:
            found = self._low_level_execute_command(screen.COMMAND)
        except AnsibleError as error:
            found = {"rc": 1, "stdout": "", "stderr": str(error)}
        reason = "" if found["rc"] == 0 else found["stderr"] or found["stdout"] or f"exit status {found['rc']}"
        return {"output": found["stdout"], "error": reason, "at": time.monotonic()}

    def _drawn(self, variables: Mapping[str, Any], names: Sequence[str], interval: int, folder: str) -> str:
        """Draw until the user ends it. Returns a summary."""
        inputs = self.of_nodes(variables, names, "gb10_inputs", {})
        settings = {name: inputs[name]["settings"] for name in names}
        heads = self.variable(variables, "gb10_heads")
        nodes = [
            Watched(name, name in heads, round(float(settings[name]["vllm_serve_memory_floor"]) * screen.GIB))
            for name in names
        ]
        title = str(inputs[names[0]]["model"]).rstrip("/").rsplit("/", 1)[-1][:30]
        began, terminal = time.monotonic(), _Terminal()
        terminal.clear()
        while True:
            nodes = [_read(node, os.path.join(folder, f"{number}.json")) for number, node in enumerate(nodes)]
            width, height = terminal.size()
            clock, now = time.strftime("%H:%M:%S"), time.monotonic()
            lines = screen.frame(nodes, title, clock, now, interval, width, height)
            asked = any(node.at is None and not node.error for node in nodes)
            if not terminal.show(lines, _FIRST if asked and now - began < interval else interval):
                return f"watched {len(nodes)} nodes for {spans.span(time.monotonic() - began)}"


class _Terminal:
    """The terminal of the run. This process has none, so that Ansible's main process prints and reads.

    Without a terminal, the frames follow each other, and only a signal ends them.
    """

    def __init__(self) -> None:
        self._display, self._tty = Display(), _terminal()
        self._drawing = self._tty is not None and os.environ.get("TERM", "dumb") != "dumb"

    def size(self) -> tuple[int, int]:
        """Return columns and lines. A frame leaves one line for the cursor."""
        columns = lines = 0
        with contextlib.suppress(OSError):
            if self._tty is not None:
                columns, lines = os.get_terminal_size(self._tty)
        # A serial line has no size.
        usual = shutil.get_terminal_size()
        return columns or usual.columns, (lines or usual.lines) - 1

    def clear(self) -> None:
        """Scroll the terminal's content out of its window, so that it is not overwritten."""
        if self._drawing:
            self._display.display("\n" * self.size()[1], screen_only=True)

    def show(self, lines: Sequence[Line], seconds: int) -> bool:
        """Print a frame, on a terminal in place of the former one, and wait. Returns False when the user ends it."""
        texts = ["".join(stringc(text, _COLORS[style]) if style else text for text, style in line) for line in lines]
        frame = f"{_HOME}{_LINE_END.join(texts)}{_BELOW}" if self._drawing else "\n".join([*texts, ""])
        try:
            # As the prompt: the main process prints it and reads keys at once, so that no Ctrl-C comes in between.
            self._display.prompt_until(
                frame, private=True, seconds=seconds, interrupt_input=_ENDS, complete_input=_DRAWS
            )
        except AnsiblePromptInterrupt:
            return False
        except AnsiblePromptNoninteractive:
            self._display.display(frame)
            time.sleep(seconds)
        return True


def _terminal() -> int | None:
    """Return a descriptor of the terminal that the main process prints to, None without one."""
    with contextlib.suppress(OSError):
        found = os.open(f"/proc/{os.getppid()}/fd/1", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        if os.isatty(found):
            return found
        os.close(found)
    return None


def _problem(interval: int, nodes: Sequence[str], hosts: Sequence[str]) -> Problem | None:
    if not 1 <= interval <= _LONGEST:
        return Problem("status_watch", f"{interval}", f"1 to {_LONGEST} seconds", "use status_watch=5")
    if len(hosts) > len(nodes):
        return Problem("status_watch", "the inventory has several clusters", "one", "add -e gb10_only=NAME")
    forks = int(context.CLIARGS["forks"])
    if forks < len(nodes):
        found = f"Ansible has {forks} forks for {len(nodes)} nodes"
        return Problem("status_watch", found, "one for each node", f"add --forks={len(nodes)}")
    return None


def _read(node: Watched, path: str) -> Watched:
    """Return the node after its newest answer."""
    answer = io_json.json_file(path)
    if answer is None or answer["at"] == node.at:
        return node
    if answer["error"]:
        return screen.failed(node, answer["error"])
    try:
        return screen.advance(node, screen.parse(answer["output"]), answer["at"])
    except ValueError as error:
        return screen.failed(node, str(error))
