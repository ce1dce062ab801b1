"""Files that a published collection needs, and the program behind `make release`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import release
from repository import ROOT, files, load_yaml, read

MODULES = [path for path in files("plugins/modules/*.py") if not path.endswith("__init__.py")]


def test_a_module_refers_to_others() -> None:
    for path in MODULES:
        related = [entry["module"] for entry in load_yaml(read(path).split('"""')[1])["seealso"]]
        names = [name.removeprefix("gb10.cluster.") for name in related]
        assert names and Path(path).stem not in names, path
        assert {f"plugins/modules/{name}.py" for name in names} <= set(MODULES), path


def test_commit_hooks_are_the_linters() -> None:
    targets = re.findall(r"^lint: ([a-z -]+?) ##", read("Makefile"), re.MULTILINE)[0].split()
    (repo,) = load_yaml(read(".pre-commit-config.yaml"))["repos"]
    assert [hook["entry"] for hook in repo["hooks"]] == [f"make {target}" for target in targets]
    for hook in repo["hooks"]:
        assert any(re.search(hook["files"], path) for path in files("**/*")) if "files" in hook else hook["types"]


def test_the_execution_environment_has_its_files() -> None:
    named = load_yaml(read("meta/execution-environment.yml"))["dependencies"]
    assert all((ROOT / path).is_file() for path in named.values())
    lines = [line for line in read(named["python"]).splitlines() if not line.startswith("#")]
    assert lines == ["cryptography>=42"]


def test_the_changelog_has_the_version() -> None:
    version = load_yaml(read("galaxy.yml"))["version"]
    assert list(load_yaml(read("changelogs/changelog.yaml"))["releases"]) == [version]
    assert f"## v{version}".replace(".", "\\.") in read("CHANGELOG.md")


def packaged() -> dict[str, set[str]]:
    """Return the documented names of each kind that the package contains. The internal role common is left out."""
    left_out = load_yaml(read("galaxy.yml"))["build_ignore"]
    kinds = {
        "module": files("plugins/modules/*.py"),
        "role": files("roles/*/meta/argument_specs.yml"),
        **{
            kind: files(f"plugins/{kind}/*.yml") + files(f"plugins/{kind}/*.py")
            for kind in ("callback", "filter", "inventory", "lookup", "test")
        },
    }
    found: dict[str, set[str]] = {}
    for kind, paths in kinds.items():
        documented = [path for path in paths if kind == "role" or "DOCUMENTATION" in read(path)]
        names = {path: Path(path).parents[1].name if kind == "role" else Path(path).stem for path in documented}
        found[kind] = {
            name for path, name in names.items() if path not in left_out and f"roles/{name}" not in left_out
        } - {"common"}
    return found


def test_the_changelog_lists_the_modules_plugins_and_roles() -> None:
    listed: dict[str, set[str]] = {kind: set() for kind in packaged()}
    for entry in load_yaml(read("changelogs/changelog.yaml"))["releases"].values():
        for kind, parts in {
            "module": entry.get("modules", []),
            **entry.get("objects", {}),
            **entry.get("plugins", {}),
        }.items():
            listed[kind] |= {part["name"] for part in parts}
    assert listed == packaged()  # else: make changelog-plugins
    text = read("CHANGELOG.md").replace("\\", "")
    assert [name for names in listed.values() for name in sorted(names) if f"gb10.cluster.{name} - " not in text] == []


def test_a_checkout_that_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    readme = tmp_path / "README.md"
    readme.write_text("Status: 0.1.0.")
    git("init", "--initial-branch=main")
    git("add", ".")
    git("commit", "--message=first")
    assert release.problems("0.1.0") == []
    git("tag", "0.1.0")
    git("switch", "--create", "other")
    (tmp_path / "CHANGELOG.md").touch()
    changed, tagged, branch = release.problems("0.1.0")
    assert "CHANGELOG.md" in changed
    assert "the tag 0.1.0 exists" in tagged
    assert "not the branch main" in branch
    assert release.problems("0.2.0") == [changed, branch]
    readme.write_text("Status: 0.2.0 in preparation.")
    assert "README.md states" in release.problems("0.2.0")[-1]
