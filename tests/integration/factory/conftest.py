"""Two hosts like factory Sparks, and an owner with a clone: a user without rights on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import factory_hosts
import pytest
import yaml
from factory_hosts import OWNER, TESTER, Evening
from live_cluster import Cluster
from repository import ROOT
from typed_command import typed

HOSTS = """\
gb10_cluster:
  children:
    head:
      hosts:
        spark1: {{ansible_host: {0}, ansible_user: nvidia}}
    worker:
      hosts:
        spark2: {{ansible_host: {1}, ansible_user: nvidia}}
  vars:
    gb10_model: /srv/models/tiny
"""


@pytest.fixture(scope="session")
def factory(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The hosts, changed and booted."""
    packages = tmp_path_factory.mktemp("index")
    # apt downloads as a user of its own.
    packages.chmod(0o755)
    address = next(iter(cluster.nodes.values()))["ansible_host"].rpartition(".")[0] + ".1"
    factory_hosts.download(packages)
    with factory_hosts.index(packages, address) as url:
        for name in cluster.nodes:
            factory_hosts.prepare(cluster.connect(name), url)
        factory_hosts.renew(packages)
        cluster.power("off", *cluster.nodes)
        cluster.power("on", *cluster.nodes)
        yield replace(cluster, nodes={name: {**node, "ansible_user": TESTER} for name, node in cluster.nodes.items()})


@pytest.fixture(scope="session")
def evening(factory: Cluster) -> Iterator[Evening]:
    """An owner with a clone and an environment, as in the README."""
    first = factory_hosts.booted(factory)
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", OWNER], check=True)
    try:
        home = Path(f"~{OWNER}").expanduser()
        clone, node = home / "gb10.cluster", next(iter(factory.nodes.values()))
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
        mine = clone / "inventories/mine"
        shutil.copytree(clone / "inventories/two-spark", mine)
        (mine / "hosts.yml").write_text(
            HOSTS.format(*(each["ansible_host"] for each in factory.nodes.values())), encoding="utf-8"
        )
        (mine / "group_vars/all").mkdir(parents=True)
        # The lab lacks these: CUDA, a large model, an index with its wheels. The lab's access is not the owner's.
        shutil.copy(clone / "inventories/lab/group_vars/all.yml", mine / "group_vars/all/lab.yml")
        variables = yaml.safe_load((clone / "inventories/lab/group_vars/gb10_cluster.yml").read_text(encoding="utf-8"))
        kept = {
            name: value
            for name, value in variables.items()
            if not name.startswith(("ansible_ssh_", "ansible_control_"))
        }
        (mine / "group_vars/gb10_cluster.yml").write_text(json.dumps(kept), encoding="utf-8")
        shutil.copy(clone / "inventories/lab/requirements.txt", mine)
        wheels = home / Path(node["vllm_runtime_wheelhouse_archive"]).name
        subprocess.run(["cp", "--reflink=auto", node["vllm_runtime_wheelhouse_archive"], wheels], check=True)
        names = {"lab_name": node["lab_name"], "lab_prefix": node["lab_prefix"], "lab_cache_dir": str(home)}
        (mine / "group_vars/all/z_lab.yml").write_text(json.dumps(names), encoding="utf-8")
        subprocess.run(["chown", "--recursive", f"{OWNER}:", home], check=True)
        install = "python3 -m venv ~/gb10 && . ~/gb10/bin/activate && pip install --quiet 'ansible-core>=2.19'"
        typed(OWNER, install, {}, 300).assert_ok()
        yield Evening(factory, first, home)
    finally:
        subprocess.run(["pkill", "-KILL", "-u", OWNER], check=False)
        time.sleep(1)
        subprocess.run(["userdel", "--remove", OWNER], check=True, capture_output=True)
