"""Run a workflow's steps in a clean root file system: workflow.py FILE JOB [matrix.KEY=VALUE] [env.NAME=VALUE]

The root file system has Debian's packages below and nothing else; a runner has many more. Its user may use sudo, as a
runner's. It has a clone of this commit, whose other files are not there, and an empty HOME. An action, such as the
cache, is named and left out. --with names a file or folder of this machine that its package managers need. Exits with
1 at the first step that fails. Needs root, mmdebstrap and unshare.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ca-certificates", "git", "make", "python3", "sudo")
HOME = "/home/runner"
CHECKOUT = f"{HOME}/work/gb10.cluster/gb10.cluster"
#: Runs in namespaces of its own: the root file system, then the paths of this machine. A mount ends with it.
ENTER = r"""
set -eu
root=$1; shift
for name in dev sys; do mount --rbind "/$name" "$root/$name"; done
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; touch "$root$1"; fi
  mount --bind --options ro "$1" "$root$1"; shift
done
shift
exec chroot "$root" "$@"
"""


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Replace the expressions of a workflow: values of the matrix, and of the runner."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise SystemExit(f"no value for {match[0]}. Add {match[1]}=VALUE.")
        return values[match[1]]

    return re.sub(r"\$\{\{\s*(.+?)\s*\}\}", value, text)


def make_root(root: Path, suite: str) -> None:
    """Make the root file system, with a clone of this commit."""
    hooks = [
        'chroot "$1" useradd --create-home --shell /bin/bash runner',
        'printf "runner ALL=(ALL) NOPASSWD: ALL\\n" >"$1/etc/sudoers.d/runner"',
    ]
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(PACKAGES)}"]
        + [f"--customize-hook={hook}" for hook in hooks]
        + [suite, str(root)],
        check=True,
    )
    subprocess.run(["git", "clone", "--quiet", str(ROOT), f"{root}{CHECKOUT}"], check=True)
    subprocess.run(["chroot", str(root), "chown", "--recursive", "runner:runner", HOME], check=True)


def run_step(root: Path, step: Mapping[str, Any], values: Mapping[str, str], paths: list[str]) -> int:
    """Run the commands of a step as the runner's user, and return the exit status."""
    given = {name.removeprefix("env."): value for name, value in values.items() if name.startswith("env.")}
    environment = {"HOME": HOME, "CI": "true", "GITHUB_STEP_SUMMARY": f"{HOME}/summary"} | {
        name: given.get(name, expanded(str(value), values)) for name, value in step.get("env", {}).items()
    }
    script = f"cd {CHECKOUT}\n{expanded(step['run'], values)}\n"
    user = ["setpriv", "--reuid=runner", "--regid=runner", "--init-groups", "env", "-i"]
    user += ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    user += [f"{name}={value}" for name, value in environment.items()]
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "enter", str(root)]
    argv = [*enter, *paths, "--", *user, "bash", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(argv, check=False).returncode


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("job")
    parser.add_argument("values", nargs="*", metavar="matrix.KEY=VALUE")
    parser.add_argument("--with", dest="paths", action="append", default=[], metavar="PATH")
    parser.add_argument("--suite", default="bookworm")
    given = parser.parse_args(arguments)
    values: dict[str, str] = dict(each.split("=", 1) for each in given.values)
    workflow = ROOT / ".github" / "workflows" / f"{given.file}.yml"
    job = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"][given.job]
    root = ROOT / "build" / "workflow"
    subprocess.run(["rm", "--recursive", "--force", "--one-file-system", str(root)], check=True)
    make_root(root, given.suite)
    for step in job["steps"]:
        if "run" not in step:
            say(f"== left out: {step['uses'].partition('@')[0]}")
            continue
        say(f"== {expanded(step.get('name', step['run']), values)}: {shlex.quote(expanded(step['run'], values))}")
        began = time.monotonic()
        if status := run_step(root, step, values, given.paths):
            say(f"== FAILED with {status} after {time.monotonic() - began:.0f} s")
            return 1
        say(f"== passed after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
