"""The repository's roles, tasks and files as data, for the tests of its rules."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())

#: Keys of a task that hold tasks.
_BLOCKS = ("block", "rescue", "always")
#: Keys of a play that hold tasks.
_PLAY_TASKS = ("pre_tasks", "tasks", "post_tasks", "handlers")


class _Loader(yaml.CSafeLoader):
    """YAML with Ansible's tags: ``!vault`` and ``!unsafe`` are read as their plain value."""


def _untagged(loader: yaml.CSafeLoader, _suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    raise TypeError(f"unknown YAML node {node!r}")


_Loader.add_multi_constructor("!", _untagged)


def load_yaml(text: str) -> Any:
    """Return the plain data of one YAML document."""
    return yaml.load(text, Loader=_Loader)


@dataclass(frozen=True)
class Task:
    """One task: its data, its text with the comment above it, and its first line (from 1)."""

    data: dict[str, Any]
    text: str
    line: int


def tasks_of(text: str) -> list[Task]:
    """Return every task of a task file, a handler file or a playbook, including tasks in blocks."""
    node = yaml.compose(text, Loader=_Loader)
    return list(_walk(node, text.splitlines())) if isinstance(node, yaml.SequenceNode) else []


def _walk(node: yaml.Node, lines: Sequence[str]) -> Iterator[Task]:
    for item in node.value:
        if not isinstance(item, yaml.MappingNode):
            continue
        children = {key.value: value for key, value in item.value}
        start, end = item.start_mark.line, item.end_mark.line
        while start and lines[start - 1].lstrip().startswith("#"):
            start -= 1
        if not {"hosts", "import_playbook", "ansible.builtin.import_playbook"} & children.keys():
            # The comment lines after a task belong to the next task.
            while end > item.start_mark.line + 1 and lines[end - 1].lstrip()[:1] in ("", "#"):
                end -= 1
            yield Task(load_yaml(yaml.serialize(item)), "\n".join(lines[start:end]), item.start_mark.line + 1)
        for key in _BLOCKS + _PLAY_TASKS:
            if isinstance(children.get(key), yaml.SequenceNode):
                yield from _walk(children[key], lines)


def files(*patterns: str) -> list[str]:
    """Return the paths, relative to the repository, of all files that match any of the glob patterns."""
    return sorted(
        {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    )


def tracked_files() -> list[str]:
    """Return git's tracked files. Without git or a clone, return every file outside hidden folders and build."""
    # Root may run the tests of another user's clone, as in CI.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listing = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False) if shutil.which("git") else None
    )
    if listing and listing.returncode == 0:
        names = listing.stdout.split("\0")
    else:
        names = [name for name in files("*", "[!.]*/**/*") if not name.startswith("build/")]
    return [name for name in names if name and (ROOT / name).is_file()]


def read(path: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def specs_of(role: str) -> dict[str, Any]:
    """Return the argument specifications of a role by entry point."""
    return dict(load_yaml(read(f"roles/{role}/meta/argument_specs.yml"))["argument_specs"])


#: All files with tasks or plays.
TASK_FILES = (
    "roles/*/tasks/**/*.yml",
    "roles/*/handlers/**/*.yml",
    "playbooks/**/*.yml",
    "molecule/**/*.yml",
    "site.yml",
)
