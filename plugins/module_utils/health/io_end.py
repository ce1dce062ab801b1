# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a server ended during requests, from its log: a client only sees a closed or refused connection."""

from __future__ import annotations

import os

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, status

_LINES = 3000


def since(run: Run, unit: str, began: float) -> str:
    """Return the error that ended a unit's server since ``began`` as a sentence, "" without one.

    ``began``: seconds since boot.
    """
    if os.path.exists(paths.RESTS):
        return " The model rests. Fix: run site.yml, which starts it, then repeat this playbook."
    try:
        when, text = status.last_error(io_client.journal(run, io_client.of_unit(unit), _LINES))
    except ValueError as error:
        return f" The log of {unit} is unknown: {error}"
    return f" The log of {unit} since then: {text}" if text and when >= began else ""
