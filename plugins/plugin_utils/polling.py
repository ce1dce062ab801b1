# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repeat a module and show its progress, because a module cannot show output while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.plugin_utils.terminal import printable

#: Seconds between calls; shorter at first, so that a short work does not wait long.
_PAUSE, _FIRST = 5, 1


class Polling:
    """The calls of a module on one host, and its progress lines, one in ``every`` seconds.

    A host without a response for ``silence`` seconds is unreachable.
    """

    def __init__(
        self, call: Callable[[], dict[str, Any]], task_vars: Mapping[str, Any] | None, every: float, silence: float
    ) -> None:
        self._call, self._every, self._silence = call, every, silence
        self.host = str((task_vars or {}).get("inventory_hostname"))
        self._begin = self._shown = time.monotonic()
        self._silent = True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the result of each call. Raises AnsibleConnectionFailure."""
        heard = self._begin
        while True:
            try:
                result = self._call()
            except AnsibleConnectionFailure:
                if time.monotonic() - heard > self._silence:
                    raise
            else:
                heard = time.monotonic()
                yield result
            time.sleep(_FIRST if self.elapsed < _PAUSE else _PAUSE)

    @property
    def elapsed(self) -> float:
        """Seconds since the first call."""
        return time.monotonic() - self._begin

    def due(self) -> float | None:
        """Return the seconds since the last line, 0 before the first one; None while the next line is not due."""
        since = time.monotonic() - self._shown
        return 0.0 if self._silent else since if since >= self._every else None

    def show(self, line: str) -> None:
        """Show a line."""
        Display().display(printable(f"  {self.host}: {line}"))
        self._shown, self._silent = time.monotonic(), False
