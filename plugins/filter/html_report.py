# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter: the report of a verification as an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def html_report(nodes: Sequence[Any], inputs: Mapping[str, Any]) -> str:
    """Return the page; see module_utils/html_report/report.py for the inputs."""
    from ansible_collections.gb10.cluster.plugins.module_utils.html_report import report

    given = plain_data(inputs)
    given["waivers"] = {name: str(reason or "") for name, reason in given["waivers"].items()}
    return report.document(plain_data(nodes), report.Inputs(**given))


class FilterModule:
    """Register the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"html_report": html_report}
