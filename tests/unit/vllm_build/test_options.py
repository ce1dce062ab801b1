"""The options of a build of the plan, which the action vllm_build passes to its module."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from decisions import decide
from repository import ROOT, load_yaml, read
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import requirements
from ansible_collections.gb10.cluster.plugins.modules import vllm_build as build_module
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

LOCK = "roles/gb10/files/vllm-0.18.1-cu129-aarch64-py312.lock"
TEXT = requirements.requirements(read(LOCK), read("roles/vllm_build/files/tools.lock"))
FOLDER = f"/opt/gb10/build/environment-{hashlib.sha256(TEXT.encode()).hexdigest()[:12]}"
SPECIFIED = load_yaml(read("roles/vllm_build/meta/argument_specs.yml"))["argument_specs"]["main"]["options"]
#: As the action cluster_inputs returns them.
SETTINGS = {name: option.get("default") for name, option in SPECIFIED.items() if not option.get("required")}
ITEM = {
    "name": "0.33.0-0123456789ab",
    "version": "0.33.0+gb10.01234567",
    "capabilities": ["12.1"],
    "architectures": "12.1a",
    "torch": "2.14.0",
    "driver": "13.0",
    "nodes": ["spark1"],
    "wheel": "",
    "sha256": "",
}
COMMIT = "7" * 40


def act(arguments: dict[str, Any], plan: dict[str, Any], **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the action's result and the module's arguments. Names of settings are without the prefix."""
    variables = {
        "gb10_inputs": {"settings": SETTINGS | {f"vllm_build_{name}": each for name, each in settings.items()}}
    }
    build = {"state": "missing", "why": [], "identity": f"commit {COMMIT}", "archive": False}
    runtime = {"lock": str(ROOT / LOCK)}
    given = fact({"root": "/opt/gb10", "build": build, "runtime": runtime, **plan})
    with mock.patch.object(Decision, "file", lambda _self, path, _variables: Path(path).read_text(encoding="utf-8")):
        answer, (found,) = decide("vllm_build", arguments, given, result={"stamp": {}}, variables=variables)
    return answer, found


def test_a_build_of_the_plan_and_the_locks() -> None:
    dependencies = [
        {"variable": "A_DIR", "archive": "a.tar", "sha256": "a" * 64},
        {"variable": "B_DIR", "archive": "b.tar", "sha256": "b" * 64, "folder": "below"},
    ]
    environment = {"CMAKE_ARGS": "-x"}
    stack = {"device": "cuda", "cuda": 13}
    answer, given = act(
        {"item": ITEM},
        {"ranks_unit": "gb10-ray.service", "stack": stack},
        jobs=2,
        dependencies=dependencies,
        environment=environment,
    )
    assert answer == {"stamp": {}, "folder": FOLDER, "requirements": TEXT, "program": "/opt/gb10/build/io_run.py"}
    assert given == {
        **{name: ITEM[name] for name in ITEM if name not in ("nodes", "wheel", "sha256")},
        "store": "/opt/gb10/build",
        "device": "cuda",
        "cuda": "13",
        "units": ["gb10-ray.service", "gb10-vllm.service"],
        "identity": f"vllm.git commit {COMMIT}",
        "python": f"{FOLDER}/bin/python",
        "program": "/opt/gb10/build/io_run.py",
        "environment": {
            "CMAKE_ARGS": "-x",
            "A_DIR": "/opt/gb10/build/dependencies/aaaaaaaaaaaa",
            "B_DIR": "/opt/gb10/build/dependencies/bbbbbbbbbbbb/below",
        },
        "jobs": 2,
        "nvcc_threads": 0,
        "ccache": True,
        "network": True,
        "while_serving": False,
        "timeout": 86400,
    }


def test_a_build_starts_from_its_source() -> None:
    patches = ["~/patches/a.patch", "b.patch"]
    _answer, given = act({"item": ITEM, "source": "/src"}, {}, commit=COMMIT, patches=patches, cuda_home="/cuda")
    started = {"source": "/src", "commit": COMMIT, "cuda_home": "/cuda"}
    assert {name: given[name] for name in started} == started
    assert given["patches"] == ["/opt/gb10/build/patches/a.patch", "/opt/gb10/build/patches/b.patch"]
    assert given.keys() | {"item"} == load_yaml(build_module.DOCUMENTATION)["options"].keys()


def test_an_archive_has_no_commit() -> None:
    build = {"state": "missing", "why": [], "identity": f"sha256 {'e' * 64}", "archive": True}
    arguments = {"item": ITEM, "source": "/src"}
    _answer, given = act(arguments, {"build": build}, source="/srv/vllm-0.33.0.tar.gz", commit=COMMIT)
    assert (given["commit"], given["identity"]) == ("", f"vllm-0.33.0.tar.gz sha256 {'e' * 64}")


def test_without_ray_the_unit_of_the_ranks_is_named_once() -> None:
    _answer, given = act({"item": ITEM}, {"ranks_unit": "gb10-vllm.service"})
    assert given["units"] == ["gb10-vllm.service"]


def test_an_incomplete_build_is_refused() -> None:
    with pytest.raises(TypeError, match=r"vllm_build\.item\.torch"):
        act({"item": {name: each for name, each in ITEM.items() if name != "torch"}}, {})


def test_without_a_build_of_the_plan_the_module_runs() -> None:
    answer, calls = decide("vllm_build", {"store": "/b", "name": "x"}, {}, result={"stamp": {}})
    assert (answer, calls) == ({"stamp": {}}, [{"store": "/b", "name": "x"}])
