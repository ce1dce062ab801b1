"""The table of vLLM's arguments matches the sources of the releases."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import pytest
from patch import sources
from patch.arguments import Argument, Release
from patch.release_table import RELEASES

from ansible_collections.gb10.cluster.plugins.module_utils.common import flags
from ansible_collections.gb10.cluster.plugins.module_utils.kernels import io_start
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import io_introspect
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import table as vllm_release_table
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release.checks import among, read, rows


@cache
def release(version: str) -> Release:
    return Release(sources.tree(version))


def as_option(argument: Argument, paired: bool) -> vllm_release_checks.Option:
    longs = [flag for flag in (argument.name, *argument.aliases) if argument.kind == "bool" and flag.startswith("--")]
    off = tuple(f"--no-{flag[2:]}" for flag in longs)
    off += tuple(filter(None, map(flags.inverse, longs))) if paired else ()
    kind = "flag" if argument.kind == "bool" else argument.kind
    return vllm_release_checks.Option(
        argument.name, kind, argument.aliases + off, argument.choices, argument.fold, argument.open
    )


def test_the_table_is_of_these_releases() -> None:
    assert tuple(vllm_release_table.READ.split()) == RELEASES


def test_options(version: str) -> None:
    paired = release(version).find("vllm.utils.argparse_utils", "EnableDisableAction") is not None
    expected = {name: as_option(argument, paired) for name, argument in release(version).arguments().items()}
    assert len(expected) >= 195
    assert vllm_release_checks.options(version) == expected


def test_variables(version: str) -> None:
    expected = release(version).variables()
    assert len(expected) >= 46
    assert {name for name, row in rows("VARIABLES").items() if among(row[0], read(version))} == expected


@pytest.mark.parametrize("program", [io_start, io_introspect])
def test_both_programs_find_the_parser_of_vllm_serve(version: str, program: ModuleType) -> None:
    """vLLM moved it three times."""
    paths = [sources.tree(version).parent / f"{name.replace('.', '/')}.py" for name in program._PARSERS]
    assert sum(path.exists() and "\ndef make_arg_parser(" in path.read_text(encoding="utf-8") for path in paths) == 1
