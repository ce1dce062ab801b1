# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commits of NCCL's tags. A tag can be moved, and root builds its commit."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError

#: Source: the tags of github.com/NVIDIA/nccl, read on 2026-11-22. The commit of 2.32.3 is the one that two public
#: repositories name, and its src/transport/net_ib/p2p.cc was read on 2026-11-28.
COMMITS: Mapping[str, str] = {
    "v2.27.7-1": "593de54e52679b51428571c13271e2ea9f91b1b1",
    "v2.28.3-1": "f1308997d0420148b1be1c24d63f19d902ae589b",
    "v2.28.7-1": "ae7aed194dc63c65d1bf5c0385ba3d68d3b64c8c",
    "v2.28.9-1": "dbc86fd06e8b0c4517b95d8958a09ccacf9520c9",
    "v2.29.2-1": "ebd1e929285881cb4df02c3459588a2e12b2d8c0",
    "v2.29.3-1": "25368a7f78bae866f29e46938af94fa586c84484",
    "v2.29.7-1": "b91894bd5b190c874d98a017f93f5daa515b65d0",
    "v2.30.3-1": "6da422082f910a8dd230f7e42e26ece4dc37bccc",
    "v2.30.4-1": "1933fdd6360a8bfccaa0166bd71bce363d32e5b6",
    "v2.30.7-1": "73cf112295c33aee2b895f329f592f2a9b4b0f97",
    "v2.32.3-1": "12df1a11afad322be5a204a2db890161cbf8131d",
}


def commit(tag: str, given: str, source: str) -> str:
    """Return the commit of a tag: ``given`` (nccl_sm121_build_commit), else the known one. Raises ProblemsError."""
    found = given or COMMITS.get(tag, "")
    if re.fullmatch("[0-9a-f]{40}", found):
        return found
    raise ProblemsError(
        [
            Problem(
                "nccl_sm121_build_version",
                f"{tag} is a tag, which can be moved, and root builds its commit",
                f"a known commit, as for {', '.join(COMMITS)}",
                f"set nccl_sm121_build_commit to the 40 hexadecimal digits that git ls-remote {source} shows",
            )
        ]
    )
