# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait for a vLLM service with progress, and stop early with the root cause.

Polls ``vllm_info`` on the host from the controller, because a module cannot report before it ends. Shows each new step
of the start while waiting.
Stops after a failed start with the first error of the log that is not an echo of another. Also stops after a TLS
verification error.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.common.argument_spec import API
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

_PAUSE_SECONDS = 2
#: Interval of progress lines in a long silent step, so that a quiet start does not look like a hang.
_SILENCE_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``name``: The unit.
    ``url``: The API's address, without path.
    ``server_name``: The name in the API's certificate, for an https address.
    ``ca_file``: The certificates that it is verified with.
    ``timeout``: Maximum seconds until the API is healthy.
    ``restarts``: Number of failed starts to ignore. 1 suits a service that may be stopping after an earlier fault.
    """

    name: str = "gb10-vllm.service"
    url: str
    server_name: str = ""
    ca_file: str = field(default=API["ca_file"]["default"], metadata={"type": "path"})
    timeout: int
    restarts: int = 0


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the last answer of ``vllm_info``, marked as failed after a failed start or the timeout."""
    begin = shown_at = time.monotonic()
    shown = ""
    first: dict[str, Any] = {}
    previous: dict[str, Any] = {}
    while True:
        info = _info(step, given, "", variables)
        if result := _settled(info, given.url):
            return result
        elapsed = time.monotonic() - begin
        service = info["service"]
        if not first or service["restarts"] < first["restarts"]:  # a manual start resets the count
            first = service
        if service["active"] in ("failed", "inactive") and not service["queued"]:
            return _failure(step, given, info, service["invocation"], variables)
        if service["restarts"] - first["restarts"] > given.restarts:
            return _failure(step, given, info, previous["invocation"], variables)
        previous = service
        if elapsed > given.timeout:
            late = f"not healthy after {elapsed:.0f} s; last step: {info['progress'] or 'none'}"
            return {"failed": True, "msg": f"{late}{STATES['start-timeout'].advice()}. {_hint(given)}"}
        progress = info["progress"] or service["sub"]
        if progress != shown or time.monotonic() - shown_at > _SILENCE_SECONDS:
            Display().display(f"  {variables.get('inventory_hostname')}: {elapsed:4.0f} s  {progress}")
            shown, shown_at = progress, time.monotonic()
        time.sleep(_PAUSE_SECONDS)


def _info(step: Decision, given: Inputs, invocation: str, variables: dict[str, Any]) -> dict[str, Any]:
    asked = {name: getattr(given, name) for name in ("name", "url", *API)}
    return step.module({**asked, "invocation": invocation}, variables, "gb10.cluster.vllm_info")


def _failure(
    step: Decision, given: Inputs, info: dict[str, Any], invocation: str, variables: dict[str, Any]
) -> dict[str, Any]:
    """Report the cause from the log of the failed start, because the current start has only begun."""
    failed = _info(step, given, invocation, variables) if invocation != info["service"]["invocation"] else info
    cause = (
        failed.get("cause")
        or info["cause"]
        or f"its log has no error; it exited with status {info['service']['status']}"
    )
    return {"failed": True, "msg": f"{given.name} failed to start: {cause}. {_hint(given)}", "cause": cause}


def _settled(info: dict[str, Any], url: str) -> dict[str, Any]:
    """Return the result if this answer of vllm_info is final, else {}."""
    if info.get("failed"):
        return info
    service = info["service"]
    # A server that is stopping or about to stop may still answer.
    if service["active"] != "active" or service["queued"]:
        return {}
    if info["healthy"]:
        return {**info, "changed": False}
    if info["untrusted"]:
        refused = f"{url} answers, but its TLS verification failed: {info['untrusted']}"
        return {"failed": True, "msg": f"{refused}{STATES['tls-untrusted'].advice()}"}
    return {}


def _hint(given: Inputs) -> str:
    return f"Full log: journalctl -u {given.name}"
