"""The commits of NCCL's tags."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import tags
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks


def test_each_tag_of_a_stack_has_a_known_commit_unless_the_inventory_has_one() -> None:
    wanted = {stack.nccl for stack in stacks.STACKS.values() if stack.nccl}
    assert wanted <= tags.COMMITS.keys()
    assert {tag: tags.commit(tag, "", "") for tag in tags.COMMITS} == tags.COMMITS
    assert len(set(tags.COMMITS.values())) == len(tags.COMMITS)
    assert tags.commit("v2.30.7-1", "1" * 40, "") == "1" * 40


@pytest.mark.parametrize(("tag", "given"), [("v9.9.9-1", ""), ("v2.30.7-1", "main"), ("v2.30.7-1", "1" * 39)])
def test_an_unknown_commit_is_refused(tag: str, given: str) -> None:
    with pytest.raises(ProblemsError, match=f"{tag} is a tag, which can be moved.* git ls-remote https://x shows"):
        tags.commit(tag, given, "https://x")
