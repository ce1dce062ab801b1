# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of the module debian_packages, which contains its documentation."""

from __future__ import annotations

from functools import partial
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils.common import spans
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages
from ansible_collections.gb10.cluster.plugins.plugin_utils.polling import Polling

#: Seconds between progress lines, and without a response until the host counts as unreachable.
_SHOWN, _SILENCE = 30, 300
#: Calls to download the lists. ansible.builtin.apt waits longer after each.
_RETRIES = 3


class ActionModule(ActionBase):
    """Waits for apt's lock from the controller, and installs the missing packages with ansible.builtin.apt."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return {changed, packages, diff}, or a failure with the reason."""
        super().run(tmp, task_vars)
        _result, arguments = self.validate_argument_spec(
            argument_spec={
                "names": {"type": "list", "elements": "str", "required": True},
                "timeout": {"type": "int", "required": True},
            }
        )
        timeout = arguments["timeout"]
        call = partial(
            self._execute_module,
            module_name="gb10.cluster.debian_packages",
            module_args={"names": arguments["names"]},
            task_vars=task_vars,
        )
        poll, failure = Polling(call, task_vars, _SHOWN, _SILENCE), ""
        host = poll.host
        for found in poll:
            lacking = found.get("lacking", [])
            done = {
                "changed": bool(lacking),
                "packages": lacking,
                "diff": {"before": "", "after": "".join(f"{name}\n" for name in lacking)},
            }
            if found.get("failed") or not lacking or self._task.check_mode:
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
                if not (failure := self._install(host, lacking, found["stale"], task_vars)):
                    return done
        raise AssertionError("polling has no end")

    def _install(self, host: str, lacking: list[str], stale: bool, task_vars: Any) -> str:
        """Install packages. Return the failure, "" if there is none."""
        # A foreign source that fails must not stop a run whose packages are available.
        trouble = self._apt({"update_cache": True, "update_cache_retries": _RETRIES}, task_vars) if stale else ""
        failure = self._apt({"name": lacking, "state": "present", "install_recommends": False}, task_vars)
        if failure:
            return (
                f"{host}: apt cannot install {', '.join(lacking)}: {failure}{f' Before: {trouble}' if trouble else ''} "
                f"Fix: resolve the error of `sudo apt-get update && sudo apt-get install {' '.join(lacking)}` "
                f"on {host}, then run again"
            )
        if trouble:
            Display().warning(
                f"{host}: the package lists could not be updated, and the packages were installed from old "
                f"lists: {trouble}"
            )
        return ""

    def _apt(self, arguments: dict[str, Any], task_vars: Any) -> str:
        result = self._execute_module(module_name="ansible.builtin.apt", module_args=arguments, task_vars=task_vars)
        return " ".join(str(result.get("msg") or "no reason given").split()) if result.get("failed") else ""


def _failed(message: str) -> dict[str, Any]:
    return {"failed": True, "msg": message}
