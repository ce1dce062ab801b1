# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters: files of this collection on nodes, and text from a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def node_path(name: str) -> str:
    """Return a file or folder of this collection on a node.

    Raises KeyError for a name that is not in OF_ROLES of module_utils/common/paths.py.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.common import paths

    return paths.OF_ROLES[name]


def downloads(environment: Any) -> dict[str, str]:
    """Return the variables of downloads for a play. Raises ValueError if one has a secret, without the value.

    Ansible writes a task's environment into the arguments of a process, which every user of the host can read.
    """
    from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment

    given = {str(name): str(value) for name, value in (environment or {}).items()}
    if problems := secret_environment.check_downloads(given, "gb10_download_env"):
        raise ValueError("; ".join(map(str, problems)))
    return given


def package_index(url: Any) -> str:
    """Return the address of a package index. Raises ValueError if it has a user or a password, without the value."""
    from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment

    if not secret_environment.is_address(str(url)):
        raise ValueError(
            f"the package index is {secret_environment.USER}, and every user of the node could read it. Fix: set it in "
            "pip.conf, uv.toml or .netrc of root on the node"
        )
    return str(url)


def certificates(text: str) -> str:
    """Return the text of a CA that a node sent. Raises ValueError if it is not one or more certificates in PEM."""
    from ansible_collections.gb10.cluster.plugins.module_utils.api import tls

    if not tls.is_ca(text):
        raise ValueError(
            f"{tls.FILES['ca']} of the head is not one or more certificates in PEM. Fix: set "
            "gb10_api_tls_ca to certificates without other text, and run site.yml --tags gb10"
        )
    return text


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function."""
        return {
            "certificates": certificates,
            "downloads": downloads,
            "node_path": node_path,
            "package_index": package_index,
        }
