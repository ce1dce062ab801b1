# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The refusal of an ansible-core that is too old, before a task fails with an error that only experts understand."""

from __future__ import annotations

from ansible.errors import AnsibleError
from ansible.release import __version__

#: meta/runtime.yml has the same; Ansible only warns about it.
OLDEST = (2, 19)


def require(version: str = __version__) -> None:
    """Raise AnsibleError for a version that is too old."""
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise AnsibleError(
            f"ansible-core: version {version}. Expected: {'.'.join(map(str, OLDEST))} or newer. Fix: activate the virtual "
            "environment of the Quick start (README.md) in this shell."
        )
