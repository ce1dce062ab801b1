# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All checks. Nodes and modules import only the checks of their phase."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.access import causes
from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import Check
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_log import CAUSES, CONSEQUENCES
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptoms_state import STATES
from ansible_collections.gb10.cluster.plugins.module_utils.rules.lint import RULES
from ansible_collections.gb10.cluster.plugins.module_utils.verify import report

CHECKS: tuple[Check[Any], ...] = (
    *RULES,
    *CAUSES,
    *CONSEQUENCES,
    *STATES.values(),
    *causes.CAUSES,
    *report.CHECKS,
)
