# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collector: reads the GPU, the kernel's log and services of a node, and writes one file for the node exporter.

A timer starts it as an unprivileged user. systemd gives it the watchdog's status, which only root can read.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_journal import say
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import metrics, parse
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import Counts, Sample
from ansible_collections.gb10.cluster.plugins.module_utils.node import gpu

#: Seconds for a command. The timer's period is 30 s.
_SECONDS = 5
#: Maximum bytes of one record of the kernel, and records of one run: the largest log of a Spark has fewer.
_MOST_RECORD, _MOST_RECORDS = 8192, 200_000
_KERNEL_LOG = "/dev/kmsg"
_MOST_STATUS = 1 << 16


def main() -> int:
    """Write the metrics. Arguments: the settings, and the folder if systemd gives none."""
    settings = io_json.json_file(sys.argv[1])
    if settings is None:
        say(f"{sys.argv[1]} does not exist. Expected: the settings. Fix: run site.yml --tags monitoring")
        return 1
    folder = os.environ.get("RUNTIME_DIRECTORY") or sys.argv[2]
    state = f"{folder}/counts.json"
    counts = _counts(state)
    samples = [*metrics.of_gpus(gpu.gpus(_output(gpu.QUERY)))]
    if (records := _kernel_log()) is not None:
        after = parse.counted(counts, io_file.read("/proc/sys/kernel/random/boot_id").strip(), records)
        samples += metrics.of_kernel(after)
        if after != counts:
            io_file.write_file(state, json.dumps(asdict(after)), 0o600)
    shown = _output(["systemctl", "show", f"--property={','.join(parse.UNIT_PROPERTIES)}", *settings["units"]])
    samples += metrics.of_units(parse.units(shown))
    samples += metrics.of_watchdog(_watchdog(), settings["watchdog_restarts"])
    samples += metrics.of_settings(settings)
    samples += _versions(settings)
    io_file.write_file(f"{folder}/gb10.prom", metrics.text(samples), 0o644)
    return 0


def _output(command: Sequence[str]) -> str:
    """Return the output of a command, "" if it failed."""
    try:
        # A program on a node has no module with run_command.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        say(f"{command[0]}: {error}")
        return ""
    if done.returncode:
        say(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return "" if done.returncode else done.stdout


def _counts(path: str) -> Counts:
    """Return the counts of the former run. A damaged file starts again."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Counts(**(io_json.json_file(path, _MOST_STATUS) or {}))
    return Counts()


def _kernel_log() -> list[str] | None:
    """Return the records in the kernel's ring buffer, None if it cannot be read, such as in a container."""
    try:
        descriptor = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        say(str(error))
        return None
    try:
        return list(records(descriptor))
    finally:
        os.close(descriptor)


def records(descriptor: int) -> Iterator[str]:
    """Yield each record of the log: one read returns one, and the last one would block."""
    for _number in range(_MOST_RECORDS):
        try:
            data = os.read(descriptor, _MOST_RECORD)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # New records have replaced the next one.
            continue
        if not data:
            return
        yield data.decode("utf-8", "replace")


def _watchdog() -> dict[str, Any]:
    """Return the watchdog's status, {} without one."""
    path = os.path.join(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent"), "watchdog.json")
    try:
        return io_json.json_file(path, _MOST_STATUS) or {}
    except (OSError, ValueError) as error:
        say(str(error))
        return {}


def _versions(settings: dict[str, Any]) -> Iterator[Sample]:
    """Yield the running kernel, and the installed vLLM: of the environment, else the planned image."""
    yield from metrics.version("kernel", os.uname().release)
    found = glob.glob(f"{settings['environment']}/lib/python3*/site-packages/vllm-*.dist-info")
    release = re.search(r"/vllm-([^/]+)\.dist-info$", found[0]) if settings["environment"] and found else None
    yield from metrics.version("vllm", release[1] if release else settings["image"])


if __name__ == "__main__":
    raise SystemExit(main())
