"""The packages of the build environment, from the real locks."""

from __future__ import annotations

import re

import pytest
from repository import files, read

from ansible_collections.gb10.cluster.plugins.module_utils.runtime import locks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import requirements

LOCKS = files("roles/gb10/files/*.lock")
TOOLS = read("roles/vllm_build/files/tools.lock")
#: The packages that vLLM's pyproject.toml and setup.py name for a build, in each release of the stacks.
NEEDED = {"cmake", "jinja2", "ninja", "packaging", "setuptools", "setuptools-rust", "setuptools-scm", "torch", "wheel"}


def names(text: str) -> list[str]:
    return [re.split(r"[ =@;\[]", line)[0] for line in text.splitlines() if line and not line.startswith((" ", "#"))]


@pytest.mark.parametrize("path", [*LOCKS, "roles/vllm_build/files/tools.lock"])
def test_each_entry_is_read_with_its_hashes(path: str) -> None:
    found = requirements.entries(read(path))
    assert list(found) == names(read(path))
    # Nothing of the next entry, and no comment.
    assert all(0 < entry.count("--hash=sha256:") == entry.count("\n") and "#" not in entry for entry in found.values())


@pytest.mark.parametrize("path", LOCKS)
def test_the_build_environment_of_each_stack_has_the_runtimes_release_of_a_tool(path: str) -> None:
    runtime, tools = requirements.entries(read(path)), requirements.entries(TOOLS)
    text = requirements.requirements(read(path), TOOLS)
    found = requirements.entries(text)
    assert (locks.check_lock(text, "x"), list(found)) == ([], names(text))
    assert NEEDED | {"uv"} <= found.keys()
    assert found == {name: runtime.get(name) or tools[name] for name in found}
    assert runtime.keys() & tools.keys(), "the test compares nothing"


def test_the_tools_are_those_of_their_source() -> None:
    wanted = [
        line for line in read("roles/vllm_build/files/tools.in").splitlines() if line and not line.startswith("#")
    ]
    assert {re.split("[<>=~ ]", line)[0] for line in wanted} <= requirements.entries(TOOLS).keys()
    assert locks.check_lock(TOOLS, "x") == []
