# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running commands for the readers, without shell and without failing the module."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.io_node import Run


def runner(module: Any) -> Run:
    """Return a Run that uses an AnsibleModule's run_command; a command that is not installed answers with status 127."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        # What is in PATH wins; get_bin_path looks into the system's sbin behind it, but into opt_dirs before.
        path = module.get_bin_path(argv[0]) or module.get_bin_path(argv[0], opt_dirs=["/usr/local/bin"])
        if path is None:
            return 127, "", f"{argv[0]} is not installed"
        status, stdout, stderr = module.run_command([path, *argv[1:]], environ_update={"LC_ALL": "C.UTF-8"}, handle_exceptions=False)
        return status, stdout, stderr

    return run
