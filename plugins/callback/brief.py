# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
name: brief
type: stdout
short_description: Ansible's default output with readable errors
version_added: 0.1.0
description:
  - Prints the message of a failed task as text instead of JSON, and repeats it at the end of the run. There a terminal
    gets lines that break between words.
  - Of a play with the variable C(playbook_answer), prints only what M(gb10.cluster.show) shows, and at the end the
    errors. A terminal shows the name of the running task until the next line.
  - Prints what M(gb10.cluster.show) and M(gb10.cluster.cluster_plan) show. A terminal gets lines that break between
    words.
  - With O(display_skipped_hosts=false), prints the name of a task that runs in any case before it runs, so that a long
    task is visible. The default output then prints a name together with the first result. An include has no result, and
    so
      no name.
  - A terminal gets names of roles without the collection's, and a recap without zeros, which need not be broken.
  - Prints each line at once, also to a pipe.
  - Prints the escape sequences of control characters in results, which could change the terminal.
  - Prints no validation of arguments that succeeds, no included file, and no play without hosts.
  - With C(-v), prints all of these and errors like the default output.
  - Records the last failed run of each playbook, redacted, in C(.gb10/last_failures.json) next to the inventory. A run
    without failure removes its record. The playbook C(field_report) reads it.
author: gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - default_callback
  - result_format_callback
options:
  answer_only:
    description: Whether a play with the variable C(playbook_answer) prints only its answer.
    type: bool
    default: true
    env:
      - name: GB10_ANSWER_ONLY
requirements:
  - set as stdout_callback in ansible.cfg
"""

import dataclasses
import io
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ansible import constants, context
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Default

from ansible_collections.gb10.cluster.plugins.plugin_utils.supported import require
from ansible_collections.gb10.cluster.plugins.plugin_utils.terminal import cleaned, color, typed, wrapped

#: The group of a cluster's nodes. Other hosts have no field report.
_NODES = "gb10_cluster"
#: The actions whose lines this plugin prints.
_PRINTS = ("gb10.cluster.show", "gb10.cluster.cluster_plan")
_VALIDATES = ("ansible.builtin.validate_argument_spec", "validate_argument_spec")
_COLLECTION = "gb10.cluster."
#: The counts of a recap, by Ansible's word for each.
_COUNTS = {word: word for word in ("ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored")} | {
    "failed": "failures"
}
#: The variable of a play that only shows an answer.
_ANSWER = "playbook_answer"
#: The sequence of a terminal that clears the line.
_CLEAR = "\x1b[K"
_HINT = (
    "Correct it, then run the same command again; it repeats no finished work. docs/troubleshooting.md lists "
    "known errors."
)


class CallbackModule(Default):  # type: ignore[misc]  # Ansible's class has no types.
    """The default output, except for the names of tasks and for errors."""

    CALLBACK_NAME = "gb10.cluster.brief"
    # The class above sets it.
    _last_task_name: str | None

    def __init__(self) -> None:
        require()
        super().__init__()
        # Ansible flushes when a task begins. A pipe, such as to tee, would get the lines of a task in blocks of 8 KB.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        # The last failed task of each host, with its message.
        self._failed: dict[str, tuple[str, list[str]]] = {}
        # The messages of failed items, by host and task.
        self._items: dict[tuple[str, str], list[str]] = {}
        # The last shown error: its task and its lines.
        self._shown: tuple[str, list[str]] = ("", [])
        self._playbook = ""
        # The folder of the inventory that has the nodes, "" before a task runs on one.
        self._inventory = ""
        # Whether the play prints only its answer, and whether all plays of the run did.
        self._quiet, self._all_quiet = False, True
        # The play whose name is not printed yet.
        self._unnamed: Any = None
        # The lines that end the run.
        self._last: list[str] = []
        # Whether the last line was one of a command that goes on.
        self._continues = False

    @property
    def _current_task_result(self) -> Any:
        """The result whose event is handled. Ansible's class reads its warnings, deprecations and exception."""
        return self.__texts

    @_current_task_result.setter
    def _current_task_result(self, result: Any) -> None:
        # Ansible sets it before each event of a result, of an item and of a retry. A node wrote the texts.
        self.__texts = None
        if result is not None:
            result.__dict__["result"] = typed(cleaned(result.result))
            # Ansible's class fails for another form, and then shows no error.
            lists = {
                name: [cleaned(each) for each in getattr(result, name) if dataclasses.is_dataclass(each)]
                for name in ("warnings", "deprecations")
            }
            exception = result.exception if dataclasses.is_dataclass(result.exception) else None
            self.__texts = SimpleNamespace(**lists, exception=cleaned(exception))

    def v2_playbook_on_start(self, playbook: Any) -> None:
        super().v2_playbook_on_start(playbook)
        self._playbook = os.path.basename(playbook._file_name)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        super().v2_runner_on_start(host, task)
        if not self._inventory and any(group.name == _NODES for group in host.get_groups()):
            self._inventory = host.vars.get("inventory_dir") or ""

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._quiet = not self._display.verbosity and self.get_option("answer_only") and bool(play.vars.get(_ANSWER))
        self._all_quiet = self._all_quiet and self._quiet
        self._play = self._unnamed = play
        if self._display.verbosity:
            self._name_play()

    def _name_play(self) -> None:
        play, self._unnamed = self._unnamed, None
        if play:
            super().v2_playbook_on_play_start(play)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        if self._display.verbosity:
            super().v2_playbook_on_no_hosts_matched()

    def v2_playbook_on_include(self, included_file: Any) -> None:
        if self._display.verbosity:
            super().v2_playbook_on_include(included_file)

    def _hidden(self, task: Any) -> bool:
        """Return whether a task that succeeds prints nothing."""
        return self._quiet or (task.action in _VALIDATES and not self._display.verbosity)

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        if self._hidden(task):
            # The name of a task that fails.
            self._last_task_name = None
            self._progress(task.get_name().rpartition(" : ")[2].strip())
            return
        super()._task_start(task, prefix)
        if self._last_task_name and self._short():
            self._last_task_name = self._last_task_name.removeprefix(_COLLECTION)
        if self._last_task_banner != task._uuid and not (
            task.when or task.action in _PRINTS or isinstance(task, TaskInclude)
        ):
            self._print_task_banner(task)

    def _empty(self, result: Any) -> bool:
        """Return whether a task that succeeds has nothing to show now: an include, or lines for the end of the run."""
        last = result.task.action in _PRINTS and result.result.get("last")
        return not self._display.verbosity and (bool(last) or isinstance(result.task, TaskInclude))

    def _short(self) -> bool:
        """Return whether a person reads the output, and did not ask for more."""
        return sys.stdout.isatty() and not self._display.verbosity

    def _print_task_banner(self, task: Any) -> None:
        self._name_play()
        super()._print_task_banner(task)

    def _progress(self, text: str = "") -> None:
        """Show a text on a terminal until the next line, which begins at the same place."""
        if self._quiet and sys.stdout.isatty():
            self._display.display(f"{_CLEAR}{text[: self._display.columns]}\r", screen_only=True, newline=False)
            sys.stdout.flush()

    def v2_runner_on_ok(self, result: Any) -> None:
        if result.task.action in _PRINTS and not result.task.loop:
            self._show(result.task, result.result)
        if self._hidden(result.task) or self._empty(result):
            self._handle_warnings_and_exception(result)
        else:
            super().v2_runner_on_ok(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        if result.task.action in _PRINTS:
            self._show(result.task, result.result)
        if not self._hidden(result.task):
            super().v2_runner_item_on_ok(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        if not self._hidden(result.task):
            super().v2_runner_on_skipped(result)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        if not self._hidden(result.task):
            super().v2_runner_item_on_skipped(result)

    def _show(self, task: Any, result: Mapping[str, Any]) -> None:
        """Print the lines of the action show, or keep them for the end of the run."""
        if result.get("last"):
            self._last += result["msg"]
            return
        if not result.get("msg"):
            return
        self._progress()
        if not self._hidden(task) and self._last_task_banner != task._uuid:
            self._print_task_banner(task)
        for line in result["msg"]:
            self._display.display(self._wrapped(line), color=color(line))

    def _handle_exception(self, result: Any, use_stderr: bool = False) -> None:
        if self._display.verbosity:
            super()._handle_exception(result, use_stderr)
        else:
            # It has the message a second time.
            result.pop("exception", None)

    def _dump_results(self, result: Any, *args: Any, **kwargs: Any) -> str:
        if self._display.verbosity or not result.get("msg"):
            return str(super()._dump_results(result, *args, **kwargs))
        lines = list(_lines(result))
        # A run has one report, although it fails on every node.
        return (
            "the same" if self._shown == (self._last_task_banner, lines) else "".join(f"\n  {line}" for line in lines)
        )

    def v2_runner_item_on_failed(self, result: Any) -> None:
        if not self._quiet:
            super().v2_runner_item_on_failed(result)
        self._items.setdefault((result.host.get_name(), result.task._uuid), []).extend(_lines(result.result))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        lines = self._items.pop((result.host.get_name(), result.task._uuid), None) or list(_lines(result.result))
        if not ignore_errors:
            self._add_failure(result, lines)
        if self._quiet:
            # The end of the run has those that were not rescued.
            self._handle_warnings_and_exception(result)
        else:
            super().v2_runner_on_failed(result, ignore_errors)
        self._shown = (result.task._uuid, lines)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        if not self._quiet:
            super().v2_runner_on_unreachable(result)
        if not result.task.ignore_unreachable:
            self._add_failure(result, list(_lines(result.result)))

    def _add_failure(self, result: Any, lines: list[str]) -> None:
        """Remember the last failure of a host, in the order of these: an earlier one was rescued."""
        host = result.host.get_name()
        self._failed.pop(host, None)
        self._failed[host] = (result.task.get_name(), lines)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._progress()
        places: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for host, (task, message) in self._failed.items():
            # The others were rescued.
            if host in stats.failures or host in stats.dark:
                places.setdefault((task, tuple(message)), []).append(host)
        if not self._all_quiet:
            self._recap(stats)
        self._record([(sorted(hosts), task, lines) for (task, lines), hosts in places.items()])
        for line in self._last:
            self._display.display(self._wrapped(line), color=color(line))
        if not places:
            return
        self._display.banner("FAILED")
        for (task, lines), hosts in places.items():
            place = wrapped(f"{', '.join(sorted(hosts))}: {task}", "", self._width())
            self._display.display(place, color=constants.COLOR_ERROR)
            for line in lines:
                self._display.display(self._wrapped(line), color=constants.COLOR_ERROR)
        self._display.display(self._wrapped(_HINT))

    def _recap(self, stats: Any) -> None:
        """Print the counts of each host, on a terminal without zeros: Ansible's have more than 80 columns."""
        stats.custom = cleaned(stats.custom)
        if not self._short() or self.get_option("show_custom_stats") or self.get_option("check_mode_markers"):
            super().v2_playbook_on_stats(stats)
            return
        self._display.banner("PLAY RECAP")
        width = max(map(len, stats.processed), default=0)
        for host in sorted(stats.processed):
            found = stats.summarize(host)
            counts = " ".join(
                f"{word}={found[key]}" for word, key in _COUNTS.items() if found[key] or word in ("ok", "changed")
            )
            state = "ERROR" if found["failures"] or found["unreachable"] else "CHANGED" if found["changed"] else "OK"
            self._display.display(f"{host:<{width}} : {counts}", color=getattr(constants, f"COLOR_{state}"))
        self._display.display("", screen_only=True)

    def _record(self, failures: Sequence[tuple[Sequence[str], str, Sequence[str]]]) -> None:
        """Record the failures of this run for a field report, or remove those of an earlier run of the playbook."""
        # After the check of the release: an older Ansible may have a Python that cannot import the core.
        from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
        from ansible_collections.gb10.cluster.plugins.module_utils.field_report import failure, io_words

        path = os.path.join(self._inventory, ".gb10", failure.FILE)
        # A field report that fails has less to report than the run before it.
        if (
            not self._inventory
            or context.CLIARGS.get("check")
            or self._playbook.startswith("field_report")
            or not (failures or os.path.exists(path))
        ):
            return
        try:
            text = (io_file.read_bounded(path, failure.MOST) or "") if os.path.exists(path) else ""
            os.makedirs(os.path.dirname(path), exist_ok=True)
            date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            new = failure.recorded(text, self._playbook, date, failures, io_words.public())
            io_file.write_file(path, new, 0o600)
        except (OSError, ValueError) as error:
            self._display.v(f"The failure was not recorded: {error}")

    def _wrapped(self, line: str) -> str:
        """Return a line with an indent, and on a terminal broken between words: a terminal breaks paths and addresses.

        A line that ends with a backslash, and the next one, are a command, which a person copies.
        """
        command, self._continues = self._continues or line.endswith("\\"), line.endswith("\\")
        indent = "  " + line[: len(line) - len(line.lstrip())]
        return wrapped(line, indent, sys.maxsize if command else self._width())

    def _width(self) -> int:
        return int(self._display.columns) if sys.stdout.isatty() else sys.maxsize


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the message and of a command's output."""
    texts = [result.get("msg") or result.get("censored") or "no message"]
    texts += [result[key] for key in ("stderr", "module_stderr", "stdout", "module_stdout") if result.get(key)]
    for text in texts:
        for line in ("\n".join(map(str, text)) if isinstance(text, list) else str(text)).splitlines():
            yield line.rstrip()
