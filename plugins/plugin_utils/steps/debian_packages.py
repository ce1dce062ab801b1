# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install missing Debian packages with ansible.builtin.apt, without recommended packages.

Before that, updates package lists that are older than a day. If this fails, it uses the old lists and warns.
While another process holds a lock of apt or dpkg, waits on the controller and shows that process, at most for
``gb10_apt_timeout`` seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.common import spans
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

#: Seconds between progress lines, and without a response until the host counts as unreachable.
_SHOWN, _SILENCE = 30, 300
#: Calls to download the lists. ansible.builtin.apt waits longer after each.
_RETRIES = 3


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``names``: Packages in apt's syntax, such as ``g++`` or ``g++=4:13.2.0-7ubuntu1``.
    """

    names: Sequence[str]


def run(step: Decision, given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return {changed, packages, diff}: the packages that were missing, or a failure with the reason."""
    # Hosts of a gateway have no plan.
    timeout = int(step.lookup("gb10.cluster.role_variables", ["gb10_apt_timeout"], variables, role="gb10"))
    call = partial(step.node, "debian_packages", {"names": given.names}, variables)
    poll, failure = Polling(call, variables, _SHOWN, _SILENCE), ""
    host = poll.host
    for found in poll:
        lacking = found.get("lacking", [])
        done = {
            "changed": bool(lacking),
            "packages": lacking,
            "diff": {"before": "", "after": "".join(f"{name}\n" for name in lacking)},
        }
        if found.get("failed") or not lacking or step.check_mode:
            return found if found.get("failed") else done
        if holder := packages.holder(found["holder"]):
            if poll.elapsed >= timeout:
                return _failed(
                    f"{host}: apt is still locked by {holder} after {spans.span(poll.elapsed)}. "
                    f"Expected: a free lock, to install {', '.join(lacking)}. Fix: wait until that process "
                    "ends, then run again. To wait longer, raise gb10_apt_timeout"
                )
            # It took the lock before apt could.
            failure = ""
            if poll.due() is not None:
                poll.show(f"apt is locked by {holder}: waiting, {poll.elapsed:.0f} of {timeout} s")
        elif failure:
            return _failed(failure)
        else:
            poll.show(f"installing {', '.join(lacking)}")
            # A failure counts if the lock is free after it.
            if not (failure := _install(step, host, lacking, found["stale"], variables)):
                return done
    raise AssertionError("polling has no end")


def _install(step: Decision, host: str, lacking: list[str], stale: bool, variables: dict[str, Any]) -> str:
    """Install packages. Return the failure, "" if there is none."""
    # A foreign source that fails must not stop a run whose packages are available.
    trouble = _apt(step, {"update_cache": True, "update_cache_retries": _RETRIES}, variables) if stale else ""
    failure = _apt(step, {"name": lacking, "state": "present", "install_recommends": False}, variables)
    if failure:
        return (
            f"{host}: apt cannot install {', '.join(lacking)}: {failure}{f' Before: {trouble}' if trouble else ''} "
            f"Fix: resolve the error of `sudo apt-get update && sudo apt-get install {' '.join(lacking)}` "
            f"on {host}, then run again"
        )
    if trouble:
        Display().warning(
            f"{host}: the package lists could not be updated, and the packages were installed from old lists: {trouble}"
        )
    return ""


def _apt(step: Decision, arguments: dict[str, Any], variables: dict[str, Any]) -> str:
    result = step.module(arguments, variables, "ansible.builtin.apt")
    return " ".join(str(result.get("msg") or "no reason given").split()) if result.get("failed") else ""


def _failed(message: str) -> dict[str, Any]:
    return {"failed": True, "msg": message}
