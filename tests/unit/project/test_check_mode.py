"""Each module and step that can change something, in check mode: it tries no change, and the same call without it does.

A new one needs an input here. The recorder refuses each effect in both modes, so that nothing changes.
"""

from __future__ import annotations

import grp
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ansible.constants  # noqa: F401  # Its first import makes a folder, which the recorder would refuse.
import pytest
from decisions import decide
from fake_vllm import install
from repository import ROOT, files, read
from run_module import program, run_module
from typed_plans import typed
from unchanged import unchanged

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_compare, io_rollback
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_status
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import io_host
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import plan as host_guard_plan
from ansible_collections.gb10.cluster.plugins.module_utils.kernels import io_kernels
from ansible_collections.gb10.cluster.plugins.module_utils.memory import io_reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import build as nccl_plan
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_build as nccl_io_build
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_store as nccl_io_store
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.node_steps import nccl_install as install_step
from ansible_collections.gb10.cluster.plugins.module_utils.node_steps import vllm_gpu_probe as probe_step
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state, plan
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import Boot, Entry, Kernel, State, Trial
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Image
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import Engine
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import io_node, io_prune, prune
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import plan as uninstall_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

Inputs = dict[str, Any]
Patch = pytest.MonkeyPatch
IMAGE = "example.org/vllm:1"
OLD, NEW = "6.17.0-1031-nvidia", "6.17.0-1032-nvidia"
#: The first words of the commands that only read.
READS = {"systemctl": ("show", "--quiet is-active"), "nvcc": ("",), "ip": ("",)}


def reads(command: Sequence[str]) -> bool:
    return " ".join(command[1:]).startswith(READS.get(Path(command[0]).name, ("\0",)))


def finds(patch: Patch, owner: Any, name: str, found: Any) -> None:
    """Let a function return a value."""
    patch.setattr(owner, name, lambda *_arguments, **_options: found)


def container_image(folder: Path, patch: Patch) -> Inputs:
    finds(patch, Engine, "find", None)
    program(folder / "bin", "podman", "exit 0")
    return {"image": IMAGE, "engine": "podman", "pull": True}


def gateway_key(folder: Path, _patch: Patch) -> Inputs:
    group = grp.getgrgid(os.getegid()).gr_name
    return {"clients_file": f"{folder}/etc/clients.json", "operator_file": f"{folder}/etc/operator.key", "group": group}


def host_guard(_folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_host, "read", host_guard_plan.HostState(values=dict.fromkeys(host_guard_plan.KERNEL, "0")))
    return {"panic": 10}


def launch_record(folder: Path, _patch: Patch) -> Inputs:
    launch = io_record.launch({"driver_version": None})
    content = rollback_record.content(typed({}), {"spark1": launch, "spark2": launch})
    return {"folder": f"{folder}/launches", "content": content, "node": "spark1", "time": "2026-11-22 10:00:00"}


def nccl_build(folder: Path, patch: Patch) -> Inputs:
    for part in ("cuda", "source/makefiles"):
        (folder / part).mkdir(parents=True)
    program(folder / "cuda/bin", "nvcc", "[ $1 = --version ] && echo 'release 13.0, V13.0.88' || echo sm_121")
    version = "NCCL_MAJOR := 2\nNCCL_MINOR := 30\nNCCL_PATCH := 7\nPKG_REVISION := 1\n"
    (folder / "source/makefiles/version.mk").write_text(version, encoding="utf-8")
    programs = frozenset(nccl_plan.PROGRAMS)
    finds(patch, nccl_io_build, "builder", nccl_plan.Builder(os.uname().machine, 2, 1 << 40, 1 << 40, programs))
    given = {"store": f"{folder}/store", "source": f"{folder}/source", "cuda_home": f"{folder}/cuda"}
    return {**given, "identity": "sha256 e672", "capabilities": ["12.1"]}


def nccl_select(folder: Path, _patch: Patch) -> Inputs:
    site = folder / "lib/python3.12/site-packages"
    install(site / "vllm")
    (site / "nvidia/nccl/lib").mkdir(parents=True)
    (site / "nvidia/nccl/lib/libnccl.so.2").touch()
    program(folder / "bin", "python", "exit 1")
    return {"python": f"{folder}/bin/python", "library": "/opt/gb10/nccl/x/lib/libnccl.so.2"}


def netplan_apply(_folder: Path, patch: Patch) -> Inputs:
    target = {"files": {"/etc/netplan/60-gb10.yaml": "network: {}\n"}, "links": {}}
    found = SimpleNamespace(differences=["an address"], refused="", target=target, verified=[], diff={})
    finds(patch, io_compare, "compare", found)
    finds(patch, io_rollback, "capture", {})
    return {"content": "network: {}\n", "mtu": 9000, "rails": []}


def peer_firewall(_folder: Path, patch: Patch) -> Inputs:
    found: Inputs = {
        "active_firewalls": (True, {}),
        "links": [],
        "published_ports": [],
        "ssh_ports": [],
        "entrance": (True, ""),
    }
    for name, value in {**found, "existing_objects": ["table inet gb10"]}.items():
        finds(patch, io_nftables, name, value)
    return {"state": "absent"}


def root_files(folder: Path, _patch: Patch) -> Inputs:
    return {"files": [{"path": f"{folder}/x", "content": "x"}]}


def systemd_unit(folder: Path, _patch: Patch) -> Inputs:
    lines = [f"{name}=" for name in ("UnitFileState", "SubState", "Result", "InvocationID", "Job", "Environment")]
    lines += [f"{name}=0" for name in ("MainPID", "NRestarts", "ExecMainStatus", "ExecMainStartTimestampMonotonic")]
    lines += ["LoadState=not-found", "ActiveState=inactive", "ExecStart=", "ExecStopPost="]
    lines += ["InactiveEnterTimestampMonotonic=0", "ActiveExitTimestampMonotonic=0"]
    program(folder / "bin", "systemctl", f"printf '%s\\n' {' '.join(lines)}")
    name = os.path.relpath(folder / "gb10-x.service", "/etc/systemd/system")
    return {"name": name, "state": "started", "unit": {"text": "[Service]\n", "inputs": "abc"}}


def vllm_api_key(folder: Path, _patch: Patch) -> Inputs:
    return {"key_file": f"{folder}/etc/api.key", "environment_file": f"{folder}/etc/api.env"}


def vllm_benchmark(_folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_client.Server, "reveal", "")
    finds(patch, io_status, "counters", {})
    numbers = dict.fromkeys(("concurrency", "input_tokens", "output_tokens", "requests"), 1)
    return {"command": ["vllm", "bench"], "url": "http://127.0.0.1:1", "key_file": "/nonexistent", **numbers}


def vllm_build(folder: Path, _patch: Patch) -> Inputs:
    name, wheel = "0.33.0-0123456789ab", "vllm-0.33.0+gb10.01234567-cp38-abi3-linux_aarch64.whl"
    (folder / wheel).touch()
    stamp = {"name": name, "wheel": wheel, "sha256": "0" * 64}
    return {"store": f"{folder}/store", "name": name, "file": str(folder / wheel), "stamp": stamp}


def vllm_host_ip(folder: Path, _patch: Patch) -> Inputs:
    link = '{"ifname": "a", "mtu": 9000, "flags": ["UP"], "addr_info": [{"family": "inet", "local": "10.0.0.1", "prefixlen": 24}]}'
    program(folder / "bin", "ip", f"echo '[{link}]'")
    of_node = {"node": "spark1", "address": "10.0.0.1", "interface": "a", "nodes": {"spark1": "10.0.0.1"}}
    return {**of_node, "path": f"{folder}/cluster.env"}


def vllm_patch(folder: Path, _patch: Patch) -> Inputs:
    package = install(folder / "site-packages/vllm")
    return {"package_dir": str(package), "capability": "12.1", "mechanism": "source", "patches": ["w8a8"]}


def cluster_lock(folder: Path, _patch: Patch) -> Inputs:
    owner = {"user": "a", "host": "b", "playbook": "site.yml", "boot": "ab" * 16, "pid": "4711", "started": "1"}
    return {"folder": f"{folder}/lock", "owner": owner}


def flashinfer_kernels(folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_kernels, "store", str(folder))
    finds(patch, io_kernels, "stored", None)
    program(folder / "bin", "systemctl", "exit 0")
    finds(patch, io_kernels, "progress", SimpleNamespace(state="none", modules=0, objects=0))
    program(folder / "bin", "systemd-run", "exit 0")
    return {"python": "/x/bin/python", "name": "x"}


def memory_wait(_folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_reclaim, "wait", (1, 0.0))
    finds(patch, os, "sync", None)
    return {"node": "spark1", "needed": 1}


def nccl_install(folder: Path, patch: Patch) -> Inputs:
    finds(patch, nccl_io_store, "stamp", {"sha256": "0" * 64})
    finds(patch, install_step, "_check", None)
    return {"store": str(folder), "name": "2.30.7", "sha256": "0" * 64, "capabilities": ["12.1"]}


def netplan_confirm(_folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_rollback, "read", {"id": "7", "final": False})
    return {"identifier": "7", "state": "restored"}


def prune_(_folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_prune, "read", [prune.Item("old", "", "1 GiB", engine="docker", references=("old:1",))])
    return {"names": ["old"]}


def secret_environment(folder: Path, _patch: Patch) -> Inputs:
    return {"variables": {"HF_TOKEN": "x"}, "path": f"{folder}/secret.env"}


def uninstall(_folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_node, "read", None)
    finds(patch, io_node, "sizes", {})
    finds(patch, uninstall_plan, "decide", [uninstall_plan.Step("remove", "file", "/nonexistent/x", "")])
    return {}


def vllm_drain(folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_status, "drained", (0, 0.0))
    return {"url": "http://127.0.0.1:1", "seconds": 0, "folder": str(folder)}


def vllm_gpu_probe(folder: Path, patch: Patch) -> Inputs:
    finds(patch, node_io_facts, "gpu", {"gpus": [{}], "reason": ""})
    finds(patch, probe_step, "_results", [])
    return {"python": "/x/bin/python", "record": f"{folder}/probe.json"}


def vllm_image_extract(folder: Path, patch: Patch) -> Inputs:
    finds(patch, Engine, "image", Image("ab12" * 16, "arm64"))
    return {"image": IMAGE, "dest": f"{folder}/copies", "engine": "podman"}


def wheelhouse(folder: Path, patch: Patch) -> Inputs:
    finds(patch, io_file, "free_bytes", 1 << 50)
    return {"folder": f"{folder}/wheels", "device": "cpu"}


def own_wheels(folder: Path, _patch: Patch) -> Inputs:
    (folder / "wheels").mkdir()
    program(folder / "bin", "uv", "true")
    return {"environment": str(folder), "wheels": [], "folder": f"{folder}/wheels"}


def image_wheel(folder: Path, _patch: Patch) -> Inputs:
    (folder / "vllm-1-py3-none-any.whl").write_bytes(b"")
    program(folder / "bin", "engine", """echo '{"vllm": "1", "torch": "2", "python": "cp312"}'""")
    wheel = {"wheel": f"{folder}/vllm-1-py3-none-any.whl", "sha256": hashlib.sha256(b"").hexdigest()}
    return {**wheel, "vllm": "1", "torch": "2", "image": "x", "argv": ["engine"], "folder": f"{folder}/layer"}


ENTRIES = (Entry("simple", NEW), Entry(f"menu>{NEW}", NEW), Entry(f"menu>{OLD}", OLD))
CHOSEN = Boot(ENTRIES, OLD, "", True)
KERNELS = (Kernel(NEW), Kernel(OLD))
#: Step of os_update -> the state in which it has something to change.
UPDATES = {
    **dict.fromkeys(("refresh", "pause", "resume", "options", "download", "upgrade", "firmware"), State(OLD)),
    "keep": State(OLD, kernels=KERNELS, boot=Boot(ENTRIES, NEW, "", True)),
    "boot": State(OLD, kernels=KERNELS, boot=CHOSEN, trial=Trial(OLD, "", True)),
    "confirm": State(NEW, kernels=KERNELS, boot=CHOSEN, trial=Trial(OLD, NEW, True)),
}


def os_update(step: str, folder: Path, patch: Patch) -> Inputs:
    program(folder / "bin", "systemctl", f'[ "$3" = {host_guard_plan.DASHBOARD_UNIT} ]')
    for name in ("grub-mkconfig", "grub-reboot", "systemd-run", "fwupdmgr", "apt-get", "dpkg", "journalctl"):
        program(folder / "bin", name, "exit 0")
    settings, resumes = '{"update": {"enabled": true}}', step == "resume"
    files = {
        "BOOT_FILE": "" if step == "keep" else plan.remembered(Trial(OLD, NEW, True)),
        "OPTIONS_FILE": "",
        "PAUSE_FILE": plan.PAUSE if resumes else "",
        "DASHBOARD_FORMER": host_guard_plan.record(settings) if resumes else "",
        "DASHBOARD_FILE": (host_guard_plan.without_updates(settings) or "") if resumes else settings,
    }
    for name, text in files.items():
        patch.setattr(host_guard_plan if name == "DASHBOARD_FILE" else plan, name, str(folder / name))
        if text:
            (folder / name).write_text(text, encoding="utf-8")
    finds(patch, io_state, "boot", UPDATES[step].boot)
    finds(patch, io_state, "read", UPDATES[step])
    return {"step": step, "kernel_options": ["kho=off"] if step == "options" else []}


#: Module or step of a node, and which of its steps -> what prepares a host and returns the inputs.
SETUPS: Mapping[str, Callable[[Path, Patch], Inputs]] = {
    **{
        each.__name__.rstrip("_"): each
        for each in (
            *(container_image, gateway_key, host_guard, launch_record, nccl_build, nccl_select, netplan_apply),
            *(peer_firewall, root_files, systemd_unit, vllm_api_key, vllm_benchmark, vllm_build, vllm_host_ip),
            *(vllm_patch, cluster_lock, flashinfer_kernels, memory_wait, nccl_install, netplan_confirm, prune_),
            *(secret_environment, uninstall, vllm_drain, vllm_gpu_probe, vllm_image_extract, wheelhouse),
            *(own_wheels, image_wheel),
        )
    },
    **{f"os_update {step}": partial(os_update, step) for step in UPDATES},
}
#: What does not report its change, which is none of the node's configuration.
UNREPORTED = {"cluster_lock", "memory_wait", "vllm_benchmark", "os_update refresh", "os_update download"}
#: Steps of a node that only read, besides those that are called *_info. A probe runs programs that end with it.
READING = {"debian_packages", "fabric_probe", "field_evidence"}


def test_each_module_and_step_that_can_change_something_has_an_input() -> None:
    steps = {path.stem for path in (ROOT / "plugins/module_utils/node_steps").glob("[a-z]*.py")}
    changing = {name for name in steps - READING if not name.endswith("_info")}
    for path in (ROOT / "plugins/modules").glob("[a-z]*.py"):
        if "gb10.cluster.attributes.info" not in path.read_text(encoding="utf-8") and path.stem != "node_step":
            changing.add(path.stem)
    assert {name.partition(" ")[0] for name in SETUPS} == changing


@pytest.mark.parametrize("name", SETUPS)
def test_check_mode_tries_no_change_and_another_run_does(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    given, called = SETUPS[name](tmp_path, monkeypatch), partial(run_module, name.partition(" ")[0])
    planned = called(given, tmp_path / "bin", check=True, reads=reads)
    assert not planned.get("failed"), planned
    assert planned["changed"] is (name not in UNREPORTED)
    assert "boot_id" not in planned, "the step os_update_boot would wait for a boot"
    with unchanged(reads) as tried, suppress(PermissionError):
        called(given, tmp_path / "bin")
    assert tried, "the input reaches no change"


#: What a step of the controller needs to change something itself. Ansible hands check mode on to the modules it calls.
OWN_EFFECT = re.compile(r"write_file|mkdir|subprocess|_low_level_execute|action_loader|builtin\.(?!stat|find|ping)")
#: The others with such a word: they read, use a module or an action in the task's mode, or draw from temporary files.
WITHOUT_CHANGE = {
    *("cluster_inputs", "host_key_info", "login_info"),
    *("gateway_service", "os_update_boot"),
    "cluster_watch",
}


def controller_files(folder: Path, _patch: Patch) -> Inputs:
    return {"files": {f"{folder}/a/b.json": "{}\n"}}


def debian_packages(_folder: Path, patch: Patch) -> Inputs:
    finds(patch, Decision, "lookup", "0")
    return {"names": ["g++"]}


CONTROLLER_SETUPS = {each.__name__: each for each in (controller_files, debian_packages)}


def test_each_step_of_the_controller_with_an_effect_has_an_input() -> None:
    found = {Path(path).stem for path in files("plugins/plugin_utils/steps/[a-z]*.py") if OWN_EFFECT.search(read(path))}
    assert found == CONTROLLER_SETUPS.keys() | WITHOUT_CHANGE


@pytest.mark.parametrize("name", CONTROLLER_SETUPS)
def test_a_step_of_the_controller_does_the_same(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    given = CONTROLLER_SETUPS[name](tmp_path, monkeypatch)
    answer = {"changed": False, "lacking": ["g++"], "holder": {}, "stale": False}
    changes = []
    for check in (True, False):
        with unchanged(lambda _command: False) as tried:
            result, calls = decide(name, given, {}, result=answer, variables={"inventory_hostname": "x"}, check=check)
        assert result.get("changed", True)
        # The first call is that of the node's step, which reads.
        changes.append([*tried, *calls[1:]])
    assert changes[0] == [] != changes[1]


def test_the_recorder_refuses_effects(tmp_path: Path) -> None:
    with unchanged(reads) as tried:
        with pytest.raises(PermissionError, match="refused in this test"):
            (tmp_path / "x").write_text("x", encoding="utf-8")
        with pytest.raises(PermissionError):
            (tmp_path / "x").mkdir()
        (tmp_path / "x").exists()
    assert [each.split()[0] for each in tried] == ["open", "os.mkdir"]
