# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The messages of the kernel's log about the ConnectX-7.

"Detected insufficient power on the PCIe slot" alone is not a fault. Source: Linux, mlx5/core/events.c and health.c,
drivers/pci/pcie/aer.c; NVIDIA/dgx-spark-playbooks#108.
"""

from __future__ import annotations

import re

#: The power of its slot is unknown after a hot-plug; PCIe failed.
POWER, FAILED = "power", "failed"
PATTERNS = {
    POWER: r"PCIe slot power capability was not advertised",
    FAILED: r"AER: (?:Multiple )?Uncorrectable \(Fatal\)|mlx5_pci_(?:err_detected|slot_reset)",
}


def faults(lines: str) -> list[str]:
    """Return the keys of PATTERNS that lines of the kernel have."""
    return [kind for kind, pattern in PATTERNS.items() if re.search(pattern, lines)]
