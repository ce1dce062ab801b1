# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect evidence of a hang on the head, and notify. Only root can read the evidence."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_command, io_file, paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog import decide, io_node, parse
from ansible_collections.gb10.cluster.plugins.module_utils.watchdog.schema import Process

#: Maximum bytes of each file, and seconds of each command. All run at the same time.
_MOST, _SECONDS = 1 << 20, 10
#: py-spy must not be one that the service user installed: root runs it.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LOG_LINES = 300
_NOTIFY_SECONDS = 10
_SECRETS = (
    *paths.API_KEY,
    paths.RAY_TOKEN,
    paths.MESSAGE_SECRET,
    paths.WATCHDOG_KEY,
    paths.RECORDER_KEYS,
    paths.WATCHDOG_WEBHOOK,
    paths.SECRET_ENVIRONMENT,
)


def secrets(files: Iterable[str] = _SECRETS) -> set[str]:
    """Return the contents of the collection's secret files, and the values of their variables."""
    found = set()
    for path in files:
        text = io_file.read(path)
        found |= {*(line.strip() for line in text.splitlines()), *systemd.variables_of_file(text).values()}
    return found - {""}


def collect(folder: str, keep: int, alarm: Mapping[str, Any], server: io_client.Server, units: Sequence[str]) -> str:
    """Write the evidence of an alarm into a new folder, and remove all but the ``keep`` newest.

    Returns the new folder. Raises OSError.
    """
    found = io_node.processes(units)
    sources: dict[str, Callable[[], str]] = {
        "alarm.json": lambda: json.dumps(alarm, indent=1),
        "processes.txt": lambda: "".join(f"{each.state} {each.pid} {each.name}\n" for each in found),
        "metrics.txt": lambda: _metrics(server),
        "nccl_ras.txt": lambda: {None: "silent", "": "no listener"}.get(text := io_node.ras(units), text or ""),
        "nvidia_smi.txt": lambda: _output(
            ["nvidia-smi", "--query-gpu=index,utilization.gpu,power.draw,clocks.sm", "--format=csv"]
        ),
        **{f"{unit}.log": _log(unit) for unit in units},
        **{f"py_spy_{each.pid}.txt": _stack(each) for each in found if each.pid in decide.local_ranks(found)},
    }
    path = os.path.join(folder, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    os.makedirs(path, mode=0o700, exist_ok=True)
    hidden = secrets()
    with ThreadPoolExecutor(len(sources)) as pool:
        for name, text in zip(sources, pool.map(lambda source: source(), sources.values()), strict=True):
            io_file.write_file(os.path.join(path, name), parse.redacted(text, hidden)[-_MOST:], 0o600)
    for old in sorted(os.listdir(folder))[:-keep]:
        shutil.rmtree(os.path.join(folder, old), ignore_errors=True)
    return path


def _metrics(server: io_client.Server) -> str:
    try:
        with server.open("/metrics", _SECONDS) as answer:
            return io_client.body_of(answer)
    except (OSError, http.client.HTTPException) as error:
        return f"not read: {error}"


def _log(unit: str) -> Callable[[], str]:
    return lambda: parse.without_requests(
        _output(["journalctl", "--no-pager", "--boot", f"--unit={unit}", f"--lines={_LOG_LINES}"])
    )


def _stack(process: Process) -> Callable[[], str]:
    # Without --locals: variables may hold prompts.
    return lambda: _output(["py-spy", "dump", "--nonblocking", f"--pid={process.pid}"])


def _output(argv: Sequence[str]) -> str:
    """Return a command's output, or why there is none."""
    program = shutil.which(argv[0], path=os.environ.get("PATH", _PATH))
    if program is None:
        return f"{argv[0]} is not installed"
    try:
        # A service has no module with run_command.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            io_command.within([program, *argv[1:]], "tail", _MOST, _SECONDS),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return f"{argv[0]} failed: {error}"
    if done.returncode == io_command.TIMED_OUT:
        return f"{argv[0]} failed: no end after {_SECONDS} s"
    return done.stdout + done.stderr


def notify(document: Mapping[str, Any], command: Sequence[str], webhook: str) -> list[str]:
    """Pass a document to a command's standard input, and to a webhook.

    Returns the errors, without the webhook's address.
    """
    text, problems = json.dumps(document), []
    if command:
        try:
            subprocess.run(  # pylint: disable=ansible-bad-function
                list(command), input=text, text=True, capture_output=True, timeout=_NOTIFY_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            problems.append(f"the notification by {command[0]} failed: {type(error).__name__}")
    if webhook:
        problems += _post(webhook, text)
    return problems


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Root's process contacts no other address than the user's. A redirect could name one, such as one of this host."""

    def redirect_request(self, *_arguments: Any, **_options: Any) -> None:
        """Refuse, so that the answer is an error."""


def _post(webhook: str, text: str) -> list[str]:
    """Send a text to a webhook. Its answer may arrive in single bytes, so the wait for the thread is limited."""
    problems = ["the notification by webhook failed: no answer in time"]

    def send() -> None:
        try:
            request = urllib.request.Request(webhook, data=text.encode(), headers={"Content-Type": "application/json"})
            urllib.request.build_opener(_NoRedirects).open(request, timeout=_NOTIFY_SECONDS).close()
            problems.clear()
        except (OSError, ValueError, http.client.HTTPException) as error:
            problems[:] = [f"the notification by webhook failed: {type(error).__name__}"]

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(_NOTIFY_SECONDS)
    return list(problems)
