"""The commits of NCCL's tags."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.action import nccl_build
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import tags
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks


def test_each_tag_of_a_stack_has_a_known_commit() -> None:
    wanted = {stack.nccl for stack in stacks.STACKS.values() if stack.nccl}
    assert wanted and all(tags.commit(tag, "", "") for tag in wanted)
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in tags.COMMITS.values())
    assert len(set(tags.COMMITS.values())) == len(tags.COMMITS)


def test_the_commit_of_the_inventory_wins() -> None:
    assert tags.commit("v2.30.7-1", "1" * 40, "") == "1" * 40


@pytest.mark.parametrize(("tag", "given"), [("v9.9.9-1", ""), ("v2.30.7-1", "main"), ("v2.30.7-1", "1" * 39)])
def test_an_unknown_commit_is_refused(tag: str, given: str) -> None:
    with pytest.raises(ProblemsError, match=f"{tag} is a tag, which can be moved.* git ls-remote https://x shows"):
        tags.commit(tag, given, "https://x")


def test_a_tag_needs_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    action = object.__new__(nccl_build.ActionModule)
    monkeypatch.setattr(ActionBase, "run", lambda *_arguments: {})
    action._task = SimpleNamespace(args={"store": "/s", "tag": "v2.30.7-1", "commit": "", "repository": "https://x"})
    assert action.run() == {"changed": False, "commit": tags.COMMITS["v2.30.7-1"]}
    action._task = SimpleNamespace(args={"store": "/s", "tag": "v9.9.9-1", "commit": "", "repository": "https://x"})
    assert "a known commit, as for v2.27.7-1, " in action.run()["msg"]
