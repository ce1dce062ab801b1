# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start a worker with the arguments and variables of its node.

The workers of a LeaderWorkerSet share one pod template, and their nodes differ in address, rank and devices. The export
puts this file into a ConfigMap, next to a JSON file for each node: {argv, environment}. GB10_NODE is the pod's node.
"""

from __future__ import annotations

import json
import os


def main() -> None:
    """Replace this process by vLLM."""
    path = os.path.join(os.path.dirname(__file__), f"{os.environ['GB10_NODE']}.json")
    with open(path, encoding="utf-8") as file:
        given = json.load(file)
    os.environ.update(given["environment"])
    os.execvp(given["argv"][0], given["argv"])


if __name__ == "__main__":
    main()
