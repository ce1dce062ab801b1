"""Write CHANGELOG.md for the version in galaxy.yml, build the package into build/release, and print the steps that
publish it.

It publishes nothing. Exits with 1, and all reasons, if the checkout is not ready for a release. With the argument
``plugins`` it only updates the lists of modules, plugins and roles in the changelog.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import variables

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "release"
#: The commands of Ansible, which antsibull-changelog runs too.
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(*command: str) -> str:
    """Return the output of a command. Raises CalledProcessError."""
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True).stdout


def write_changelog(version: str) -> None:
    """Add the fragments and the new plugins to the version's section."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    run("antsibull-changelog", "release", "--version", version, "--date", date, "--update-existing", "--reload-plugins")


def list_plugins(version: str) -> None:
    """Update the lists of modules, plugins and roles. The fragments stay for the release."""
    notes, aside = ROOT / "changelogs" / "fragments", ROOT / "changelogs" / "aside"
    text = (ROOT / "changelogs" / "changelog.yaml").read_text(encoding="utf-8")
    (date,) = re.findall(r"release_date: '(\S+)'", text)[-1:]
    notes.rename(aside)
    notes.mkdir()
    try:
        run(
            "antsibull-changelog",
            "release",
            "--version",
            version,
            "--date",
            date,
            "--update-existing",
            "--reload-plugins",
        )
        run("antsibull-changelog", "generate", "--reload-plugins", "--refresh-plugins", "allow-removal")
    finally:
        notes.rmdir()
        aside.rename(notes)


def problems(version: str) -> list[str]:
    """Return why this checkout cannot be released."""
    found = []
    if changes := run("git", "status", "--porcelain"):
        found.append(f"uncommitted changes; commit them, among them CHANGELOG.md:\n{changes}")
    if run("git", "tag", "--list", version):
        found.append(f"the tag {version} exists; set another version in galaxy.yml")
    if run("git", "rev-parse", "--abbrev-ref", "HEAD").strip() != "main":
        found.append("this is not the branch main")
    if f"{version} in preparation" in (ROOT / "README.md").read_text(encoding="utf-8"):
        found.append(f"README.md states that {version} is in preparation; state that it is released")
    return found


def build(version: str) -> Path:
    """Build the package and return its path."""
    variables.main()
    run("ansible-galaxy", "collection", "build", "--force", "--output-path", str(OUTPUT))
    return OUTPUT / f"gb10-cluster-{version}.tar.gz"


def main() -> int:
    """Return the exit status."""
    version = re.findall(r"^version: (\S+)$", (ROOT / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)[0]
    if sys.argv[1:] == ["plugins"]:
        list_plugins(version)
        return 0
    write_changelog(version)
    if found := problems(version):
        sys.stderr.write("\n".join(["The release is not ready:", *found]) + "\n")
        return 1
    package = build(version)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    path = package.relative_to(ROOT)
    sys.stdout.write(f"""{path}, sha256 {digest}
Next steps:
  1. make test-all
  2. git tag --sign {version} --message 'gb10.cluster {version}' && git push origin main {version}
  3. Once: request the namespace gb10 on https://galaxy.ansible.com, and write the line "token: TOKEN" with your token
     (Collections > API token) to ~/.ansible/galaxy_token, mode 0600.
  4. .venv/bin/ansible-galaxy collection publish {path}
  5. Create the release {version} on GitHub: attach the package with its sha256, and copy the section of CHANGELOG.md.
  6. In an empty folder: follow the README's quick start with the published package.
  7. Set the next version in galaxy.yml and in the README's status.
""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
