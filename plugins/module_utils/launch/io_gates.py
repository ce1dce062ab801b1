# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait until the gates of a service are open, remove what killed ranks left, then start the service.

vLLM replaces this process. Ray stays its child, because a node without its raylet must end; see io_ray_node.py.

gb10-ray.service and gb10-vllm.service run it as their user. A closed gate ends the start after a time-out, with all
reasons in the journal. With --drop-caches, root drops the page cache instead, if the settings have it.
"""

from __future__ import annotations

import argparse
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_command, io_file, io_json, paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_journal import say
from ansible_collections.gb10.cluster.plugins.module_utils.launch import gates, io_leftovers, io_peer, io_ray_node
from ansible_collections.gb10.cluster.plugins.module_utils.memory import io_reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts, parse

_PAUSE_SECONDS = 3.0
#: A driver that initializes takes seconds. One that hangs never answers.
_GPU_SECONDS = 30
#: Report gates that stay closed again after this time.
_REPEAT_SECONDS = 120.0


def run(argv: list[str]) -> tuple[int, str, str]:
    """Run a command with a time-out, also one that no signal ends, such as one that waits for a driver."""
    try:
        # A service has no module with run_command.
        # pylint: disable-next=ansible-bad-function
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
    except FileNotFoundError:
        return io_command.NOT_INSTALLED, "", f"{argv[0]} is not installed"
    try:
        stdout, stderr = process.communicate(timeout=_GPU_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return io_command.TIMED_OUT, "", f"{argv[0]} does not answer within {_GPU_SECONDS} s"
    return process.returncode, stdout, stderr


def answers(peer: Mapping[str, Any]) -> bool:
    """Return whether the kernel of a peer answers; with ``listens``, whether its service does."""
    error = io_peer.error(peer["address"], peer["port"])
    return not error or (not peer["listens"] and error not in io_peer.SILENT)


def observe(given: Mapping[str, Any], unit: str, waited: float) -> gates.Found:
    """Read everything that the gates of a unit need. Raises ValueError, OSError."""
    peers = given["peers"][unit]
    with ThreadPoolExecutor(max(1, len(peers))) as pool:
        silent = [peer for peer, up in zip(peers, pool.map(answers, peers), strict=True) if not up]
    meminfo = io_file.read("/proc/meminfo")
    available = parse.available_memory(meminfo)
    return gates.Found(
        interfaces=io_facts.interfaces(run) if given["links"] else {},
        silent=silent,
        gpu=_gpu() if given["gpu"] else "",
        missing=[path for path in given["libraries"] if not os.path.isfile(path)],
        available=available,
        total=parse.total_memory(meminfo),
        waited=waited,
        processes=io_reclaim.processes() if available < given["memory"] else (),
    )


def _gpu() -> str:
    """Return why no GPU answers, "" if one does."""
    status, stdout, stderr = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    if status == 0 and stdout.strip():
        return ""
    return " ".join((stderr or stdout).split())[:200] or f"nvidia-smi ended with status {status} and lists no GPU"


def wait(given: Mapping[str, Any], unit: str, pause: float = _PAUSE_SECONDS) -> str:
    """Wait until all gates are open.

    Returns the closed ones as text after ``seconds`` of the settings, "" if all opened.
    """
    begin = time.monotonic()
    reported: tuple[float, list[str]] = (begin, [])
    while True:
        now = time.monotonic()
        closed = gates.problems(given, observe(given, unit, now - begin))
        if not closed:
            say(f"{gates.OPEN}{now - begin:.0f} s")
            return ""
        text = " ".join(map(str, closed))
        if now - begin >= given["seconds"]:
            return text
        places = [problem.path for problem in closed]
        if places != reported[1] or now - reported[0] > _REPEAT_SECONDS:
            say(f"{gates.WAIT}{text}")
            reported = now, places
        time.sleep(pause)


def _variables(path: str) -> dict[str, str]:
    """Return the ranks' variables: of their file, and of the unit's credentials. Raises OSError."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    credentials = [os.path.join(folder, name) for name in paths.ENVIRONMENT_CREDENTIALS] if folder else []
    result: dict[str, str] = {}
    for file in (path, *filter(os.path.exists, credentials)):
        with open(file, encoding="utf-8") as opened:
            result |= systemd.variables_of_file(opened.read())
    return result


def _give(variables: Mapping[str, str], engine_file: str, arguments: Sequence[str]) -> None:
    """Write the variables for an engine, or start this program again with them: verify.yml reads them in the main
    process."""
    if engine_file:
        io_file.write_file(engine_file, systemd.engine_file(variables), 0o600)
    else:
        again = [sys.executable, "-I", "-B", sys.argv[0], "--loaded", *arguments]
        os.execve(again[0], again, {**os.environ, **variables})


def _clean(user: str) -> None:
    """Remove the leftovers of the user's killed ranks. They cost memory, but no start."""
    try:
        # Root starts a container, whose ranks have this user too.
        if left := io_leftovers.remove(pwd.getpwnam(user).pw_uid):
            say(f"gb10-gates removed files of killed ranks: {len(left)}, such as {left[0]}")
    except (KeyError, OSError) as error:
        say(f"gb10-gates could not remove files of killed ranks: {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command-line entry point. Returns the status of a service that was not started, or of Ray's node."""
    parser = argparse.ArgumentParser(description="Wait for the gates of a service, then start it.")
    parser.add_argument("--settings", default=paths.GATES_SETTINGS)
    parser.add_argument(
        "--drop-caches", action="store_true", help="drop the page cache if the settings have it; start nothing"
    )
    parser.add_argument("--environment", default=paths.RANK_ENVIRONMENT)
    parser.add_argument("--engine-file", default="", help="write the ranks' variables there, for a container engine")
    parser.add_argument("--loaded", action="store_true", help="this process has the ranks' variables")
    parser.add_argument("unit", nargs="?", default="")
    given_arguments = list(sys.argv[1:] if arguments is None else arguments)
    # argparse removes a second "--" too, which belongs to the command: gb10-rank.py has one before vLLM's arguments.
    end = given_arguments.index("--") if "--" in given_arguments else len(given_arguments)
    options, command = parser.parse_args(given_arguments[:end]), given_arguments[end + 1 :]
    try:
        given = io_json.json_file(options.settings)
        if given is None:
            raise ValueError(f"{options.settings} does not exist. Expected: the gates of the plan. Fix: run site.yml")
        if options.drop_caches:
            if given["drop_caches"]:
                io_reclaim.drop_caches()
            return 0
        if not command or options.unit not in given["peers"]:
            parser.error(f"expected: one of {', '.join(given['peers'])}, -- and a command")
        if not options.loaded:
            _give(_variables(options.environment), options.engine_file, given_arguments)
        listening = ((peer["address"], peer["port"]) for peer in given["peers"][options.unit] if peer["listens"])
        # A run that replaces this program has not written the settings yet.
        user = given.get("user", "")
        closed = wait(given, options.unit)
    except (ValueError, OSError, KeyError) as error:
        closed = str(error)
    if not closed:
        _clean(user)
        if options.unit == paths.RAY_UNIT.removesuffix(".service"):
            return io_ray_node.run(command, f"{options.unit}.service", next(listening, None))
        os.execvp(command[0], command)
    say(f"{gates.REFUSED}{closed}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
