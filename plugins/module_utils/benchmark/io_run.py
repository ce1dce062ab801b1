# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the command of a benchmark on the head, and read the server's counters and the GPU's clocks."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import parse
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import MOST, Run
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_command, io_local
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_status

#: Seconds between samples of the clocks, and how much of a failed client's output an error has.
_INTERVAL, _LINES, _CHARACTERS = 5, 4, 1000
#: Seconds for the server to accept a connection.
_ACCEPT_SECONDS = 10


def measure(
    command: Sequence[str], run: Run, server: io_client.Server, secret: io_local.Secret, look: io_command.Run
) -> dict[str, Any]:
    """Run the command, and return {result, clocks, hit_rate}.

    ``clocks``: see parse.clock_summary(); ``hit_rate``: of the prefix cache during the run. Raises OSError, and
    ValueError with the reason; no error contains the API key.
    """
    key = server.reveal(secret, _ACCEPT_SECONDS)
    before = io_status.counters(server)
    samples: list[dict[str, float]] = []
    query = ["nvidia-smi", f"--query-gpu={','.join(parse.CLOCK_FIELDS)}", "--format=csv,noheader,nounits"]
    # run_command would wait for the end.
    # pylint: disable-next=ansible-bad-function
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while True:
            try:
                stdout, stderr = process.communicate(timeout=_INTERVAL)
                break
            except subprocess.TimeoutExpired:
                status, output, _error = look(query)
                samples += [sample] if status == 0 and (sample := parse.clocks(output)) else []
    if process.returncode != 0:
        raise ValueError(_reason(process.returncode, stderr.decode("utf-8", "replace"), key))
    try:
        result = parse.result(stdout[: MOST + 1].decode("utf-8", "replace"), run)
    except ValueError as error:
        raise ValueError(f"invalid result of vllm bench serve: {error}".replace(key or "\0", "***")) from error
    hit_rate = parse.hit_rate(before, io_status.counters(server))
    return {"result": result, "clocks": parse.clock_summary(samples), "hit_rate": hit_rate}


def _reason(status: int, stderr: str, key: str) -> str:
    if status == io_command.TIMED_OUT:
        return "vllm bench serve did not finish within benchmark_model_timeout"
    lines = [line for line in stderr.replace(key or "\0", "***").splitlines() if line.strip()]
    return f"vllm bench serve failed with status {status}: {' | '.join(lines[-_LINES:])[-_CHARACTERS:]}"
