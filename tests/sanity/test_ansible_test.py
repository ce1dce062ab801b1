"""Run every test of `ansible-test sanity` on the installed collection, in environments that it creates from the package
index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ansible_test
import pytest
from repository import ROOT
from sanity.installed import BIN, install

#: The home folder in which ansible-test creates, once, an environment for each of its tests.
HOME = Path.home() / ".cache" / "gb10-lab" / "ansible-test"
#: Replaces the script that ansible-test downloads from Ansible's server: Python's own pip downloads the required
#: release.
GET_PIP = """import subprocess, sys
subprocess.run([sys.executable, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)
wanted = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
sys.exit(subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted]).returncode)
"""


@pytest.mark.parametrize(
    ("arguments", "among"),
    [
        (["--skip-test", "pylint"], ("validate-modules", "import", "shellcheck")),
        # Ruff finds most of it, in a hundredth of the time.
        pytest.param(["--test", "pylint"], ("pylint",), marks=pytest.mark.slow),
    ],
    ids=["without pylint", "pylint"],
)
def test_sanity(tmp_path: Path, arguments: list[str], among: tuple[str, ...]) -> None:
    source = (Path(ansible_test.__path__[0]) / "_internal" / "python_requirements.py").read_text(encoding="utf-8")
    (pip,) = re.findall(r"pip='([\d.]+)'", source)
    script = HOME / ".ansible" / "test" / "cache" / f"get_pip_{pip.replace('.', '_')}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(GET_PIP, encoding="utf-8")
    collections = install(tmp_path)
    # The package does not contain these files. Each line has its reason.
    ignored = sorted((ROOT / "tests" / "sanity").glob("ignore-*.txt"))
    (collections.root / "tests" / "sanity").mkdir(parents=True)
    for path in ignored:
        shutil.copy(path, collections.root / "tests" / "sanity")
    # Keep the user's pip settings despite another home folder.
    settings = {
        "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config")),
        "HOME": str(HOME),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        [
            BIN / "ansible-test",
            "sanity",
            "--color=no",
            f"--python={sys.version_info.major}.{sys.version_info.minor}",
            *arguments,
        ],
        cwd=collections.root,
        env=os.environ | settings | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for name in among:
        assert f'Running sanity test "{name}"' in done.stdout, done.stdout
    assert "not found" not in done.stdout, done.stdout
