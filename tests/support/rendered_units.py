"""The units of all roles, rendered from plans as the roles do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repository import ROOT

TEMPLATES = sorted(ROOT.glob("roles/*/templates/*.service.j2"))


def rendered(plans: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, dict[str, str]]:
    """Render every template of a unit for each plan, in one run. Returns name of the plan -> unit -> text."""
    files = [str(path) for name in ("defaults", "vars") for path in sorted(ROOT.glob(f"roles/*/{name}/main.yml"))]
    looked = ", ".join(
        f"'{path.name.removesuffix('.service.j2')}': lookup('ansible.builtin.template', '{path}')" for path in TEMPLATES
    )
    gateway = {"variables": {"GB10_KEY_A": "x"}, "certificate": "", "settings": ""}
    plays = []
    for name, plan in plans.items():
        given = {"gb10_plan": plan, "__gateway_plan": gateway, "_gateway_environment": "/opt/gb10/gateway/x"}
        (folder / f"{name}.json").write_text(json.dumps(given), encoding="utf-8")
        copy = {"content": f"{{{{ {{{looked}}} | to_json }}}}", "dest": str(folder / name), "mode": "0644"}
        task = {"name": "Render", "ansible.builtin.copy": copy}
        plays.append(
            {
                "hosts": "localhost",
                "gather_facts": False,
                "vars_files": [*files, str(folder / f"{name}.json")],
                "tasks": [task],
            }
        )
    (folder / "play.yml").write_text(json.dumps(plays), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), str(folder / "play.yml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((folder / name).read_text(encoding="utf-8")) for name in plans}
