# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify the commit of a source that root compiles: a tag can be moved."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError


def commit(run: Run, path: str, fix: str) -> str:
    """Return the commit of an unmodified checkout. Raises ProblemsError with ``fix``."""
    git = ["git", "-c", f"safe.directory={path}", "-C", path]
    status, head, reported = run([*git, "rev-parse", "HEAD"])
    changed = run([*git, "status", "--porcelain", "--untracked-files=no"]) if status == 0 else (0, "", "")
    if status != 0 or changed[1].strip():
        found = f"{path} has uncommitted changes" if status == 0 else f"git failed in {path}: {reported.strip()}"
        raise ProblemsError([Problem("source", found, "an unmodified commit, as identity of the build", fix)])
    return head.strip()


def moved(variable: str, path: str, found: str, wanted: str) -> list[Problem]:
    """Return the problem of another commit than the ``wanted`` one of a variable, none if "" accepts any."""
    if wanted in ("", found):
        return []
    fix = f"find out why the tag was moved; set the commit if it is correct, else remove {path}"
    return [Problem(variable, f"{path} is commit {found}", wanted, fix)]
