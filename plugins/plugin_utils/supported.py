# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The refusal of an unsuitable controller, before a run contacts a node."""

from __future__ import annotations

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.release import __version__

#: meta/runtime.yml has the same; Ansible only warns about it.
OLDEST = (2, 19)
#: Options that make ansible-playbook run no task, so that it may have no inventory.
_STATIC = ("syntax", "listtasks", "listtags", "listhosts")


def static() -> bool:
    """Return whether this run has no tasks, such as a check of the syntax."""
    return any(context.CLIARGS.get(option) for option in _STATIC)


def require(version: str = __version__) -> None:
    """Raise AnsibleError for a version that is too old."""
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise AnsibleError(
            f"ansible-core: version {version}. Expected: {'.'.join(map(str, OLDEST))} or newer. Fix: activate "
            "the virtual environment of the Quick start (README.md) in this shell."
        )


def require_run() -> None:
    """Raise AnsibleError for a version that is too old, and for a setting that turns facts of nodes into variables.

    Any result of a module can have facts. As variables they win over the inventory and the roles, so a node could name
    a file of the controller for a task that sends it. Every playbook chooses its hosts with a filter that calls this.
    It imports the core only then: an old Ansible may have a Python that cannot import it.
    """
    require()
    if constants.INJECT_FACTS_AS_VARS and not static():
        raise AnsibleError(
            "inject_facts_as_vars: true, Ansible's default. Expected: false, because a node could replace "
            "variables of this run. Fix: export ANSIBLE_INJECT_FACT_VARS=false in this shell, or set it in the "
            "execution environment (docs/guide.md)."
        )
