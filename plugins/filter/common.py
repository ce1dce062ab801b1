# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: systemd units and secret variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.plugin_utils import program
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data


def unit_with_digest(text: str, inputs: Sequence[Any], programs: Sequence[str] = ()) -> dict[str, str]:
    """Return {text, inputs}: the unit with the digest of all launch inputs in place of its placeholder."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd

    texts = [program.text(str(name)) for name in programs]
    return systemd.unit_with_digest(str(text), [*plain_data(inputs), *texts])


def secret_environment(variables: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return secret variables' names and problems, without values; see module_utils/common/secret_environment.py."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common.secret_environment import verdict

    return verdict(plain_data(variables), plain_data(plain))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {"unit_with_digest": unit_with_digest, "secret_environment": secret_environment}
