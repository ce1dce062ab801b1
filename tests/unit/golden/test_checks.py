"""What a server of golden answers can do, by its arguments."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.golden import checks
from ansible_collections.gb10.cluster.plugins.module_utils.golden.schema import Identity, Served

ON = "--enable-auto-tool-choice"


@pytest.mark.parametrize("release", ["0.33.0", "0.41.0"])
@pytest.mark.parametrize(
    ("args", "tools"),
    [
        ([], False),
        ([ON], True),
        ([ON, "--no-enable-auto-tool-choice"], False),
        ([ON, "--disable-auto-tool-choice", "--seed=1"], False),
        (["--disable-auto-tool-choice", ON], True),
        (["--enable_auto_tool_choice"], True),
    ],
)
def test_the_last_flag_of_the_tools_counts(args: list[str], tools: bool, release: str) -> None:
    identity = Identity(*[""] * len(Identity.__dataclass_fields__))
    assert checks.tools(Served(identity, "", "", "", release, args, "", "")) is tools
