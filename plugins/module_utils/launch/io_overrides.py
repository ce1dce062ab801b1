# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the launch overrides that roles recorded on this node."""

from __future__ import annotations

import glob
import os
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_json, paths


def recorded_additions() -> dict[str, dict[str, Any]]:
    """Return the launch overrides recorded on this node, by role. Raises ValueError naming an unreadable file."""
    names = sorted(glob.glob(f"{paths.OVERRIDES}/*.json"))
    return {os.path.basename(name).removesuffix(".json"): io_json.json_file(name) or {} for name in names}
