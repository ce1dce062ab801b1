# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Do one step of an update of DGX OS on a node.

Each step can be killed and done again. The file /etc/default/grub.d/zz-gb10-os-update.cfg is the whole memory of an
update under way. It keeps the former kernel as the default of the boot loader, so that a new one that hangs needs one
power cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_change, io_state, plan

_LOGGED = {
    "refresh": io_change.refresh,
    "download": io_change.download,
    "upgrade": io_change.upgrade,
    "firmware": io_change.firmware,
}
_CHANGES = {"keep": io_change.keep, "boot": io_change.boot, "confirm": io_change.confirm}
_STEPS = ["pause", "resume", "options", *_LOGGED, *_CHANGES]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``step``: One of these.
      - ``refresh`` refreshes fwupd's list of firmware.
      - ``pause`` stops automatic updates of the node, and ``resume`` restores their settings byte for byte.
      - ``keep`` makes the running kernel the default of the boot loader.
      - ``options`` adds ``kernel_options`` to the command line of all kernels, for good.
      - ``download`` downloads the packages of the upgrade.
      - ``upgrade`` upgrades all packages, and ``firmware`` the firmware, in a unit that outlives the connection.
      - ``boot`` boots the newest kernel once.
      - ``confirm`` makes the newest kernel the default.
    ``kernel_options``: For ``options``. kho=off settles the fault of kernel 7.0.0-1019 with RoCE.
    """

    step: str = field(metadata={"choices": _STEPS})
    kernel_options: Sequence[str] = field(default=(), metadata={"choices": list(plan.OFFERED)})


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {log}, the end of the log of a longer step, or {boot_id}, the ID of the boot that ends.

    In check mode it returns neither.
    """
    command, check = runner(module), module.check_mode
    if given.step in _LOGGED:
        log = "" if check else _LOGGED[given.step](command)
        # A refreshed list and downloaded files change no node.
        changed = given.step in ("upgrade", "firmware") and (check or given.step == "upgrade" or bool(log))
        return {"changed": changed, **({"log": log} if log else {})}
    # Before the order to boot, after which nothing may fail.
    boots = {"boot_id": io_state.boot_id()} if given.step == "boot" and not check else {}
    if given.step == "pause":
        changes = io_change.pause(command, check)
    elif given.step == "resume":
        changes = io_change.resume(check)
    elif given.step == "options":
        changes = io_change.add_options(command, given.kernel_options, check)
    else:
        changes = _CHANGES[given.step](command, io_state.read(command, simulate=False), check)
    return {"changed": bool(changes) or given.step == "boot", "diff": changes, **boots}
