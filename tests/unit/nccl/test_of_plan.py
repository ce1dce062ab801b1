"""The options of a planned NCCL build, its source, and its use on each node."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import SETTINGS
from decisions import decide
from repository import load_yaml, read
from typed_plans import fact

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_steps
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import tags
from ansible_collections.gb10.cluster.plugins.module_utils.node_steps import nccl_install
from ansible_collections.gb10.cluster.plugins.modules import nccl_build, nccl_select

FENCE = "roles/nccl_sm121_build/files/arm-send-fence.patch"
NAME = "2.30.7-0123456789ab"
LIBRARY = f"/opt/gb10/nccl/{NAME}/lib/libnccl.so.2"
BUILT = {"name": NAME, "sha256": "a" * 64}


def act(arguments: dict[str, Any], plan: dict[str, Any], made: Any = None, **settings: Any) -> dict[str, Any]:
    """Run the action with these changes of the role's variables; names are without the prefix."""
    given = SETTINGS | {f"nccl_sm121_build_{name}": value for name, value in settings.items()}
    hosts = {} if made is None else {plan["head"]["name"]: {"made": made}}
    variables = {"gb10_inputs": {"settings": given}}
    answer, calls = decide("nccl_build", arguments, plan, hosts, variables=variables)
    assert calls == []
    return answer


def planned(**settings: Any) -> dict[str, Any]:
    return act({"planned": True}, fact({"root": "/opt/gb10"}), **settings)


def test_a_tag_of_the_plan_and_the_variables_of_the_role() -> None:
    tag = fact({})["stack"]["nccl"]
    common: dict[str, Any] = {"store": "/opt/gb10/nccl", "capabilities": ["12.1"], "functions": "", "ccache": False}
    assert planned() == {
        "changed": False,
        "archive": False,
        "options": {
            **common,
            "source": f"/opt/gb10/nccl/source/{tag}",
            "commit": tags.COMMITS[tag],
            "patches": [{"name": "arm-send-fence", "text": read(FENCE)}],
        },
        "requirements": {**common, "from_git": True},
    }
    given = {"capabilities": ["9.0"], "cuda_home": "/cuda", "ccache": True}
    answer = planned(version="v9.9.9-1", commit="1" * 40, only_funcs="SendRecv", patches=[], **given)
    source = {"source": "/opt/gb10/nccl/source/v9.9.9-1", "commit": "1" * 40}
    assert answer["options"] == {**common, **given, "functions": "SendRecv", **source, "patches": []}


def test_patches_are_read_on_the_controller(tmp_path: Path) -> None:
    own = tmp_path / "own.patch"
    own.write_text("own", encoding="utf-8")
    options = planned(patches=[str(own), "arm-send-fence"])["options"]
    assert options["patches"][0] == {"name": "own.patch", "text": "own"}
    assert [patch["name"] for patch in options["patches"]] == ["own.patch", "arm-send-fence"]
    # Without git in the source, a build with patches needs git, too.
    archive = tmp_path / "nccl.tar"
    archive.write_bytes(b"a release")
    assert planned(source=str(archive), patches=[str(own)])["requirements"]["from_git"] is True
    own.unlink()
    assert "own.patch" in planned(patches=[str(own)])["msg"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"version": "v9.9.9-1"}, "a known commit, as for v2.27.7-1, "),
        ({"source": "/none/nccl.tar.gz"}, "/none/nccl.tar.gz does not exist. Expected: a tar file on the controller."),
    ],
)
def test_an_unknown_source_is_refused(settings: dict[str, Any], message: str) -> None:
    answer = planned(**settings)
    assert (answer["failed"], message in answer["msg"]) == (True, True)


def test_each_gpu_of_the_cluster_is_built_for_once() -> None:
    nodes = [{"name": f"n{index}", "capability": gpu} for index, gpu in enumerate(["12.1", None, "11.0", "12.1"])]
    answer = act({"planned": True}, fact({"nodes": nodes}))
    assert answer["requirements"]["capabilities"] == ["11.0", "12.1"]


@pytest.mark.parametrize("name", ["nccl.tar", "nccl.tar.gz"])
def test_an_archive_is_verified(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"a release")
    sha256 = hashlib.sha256(b"a release").hexdigest()
    for checksum in ("", sha256):
        answer = planned(source=str(path), checksum=checksum, patches=[])
        assert (answer["archive"], answer["requirements"]["from_git"]) == (True, False)
        found = {key: answer["options"][key] for key in answer["options"].keys() - answer["requirements"].keys()}
        place = f"/opt/gb10/nccl/source/{sha256[:12]}"
        assert found == {"source": place, "identity": f"sha256 {sha256}", "patches": []}
    wrong = planned(source=str(path), checksum="0" * 64)
    assert wrong == {
        "failed": True,
        "msg": f"nccl_sm121_build_source: {path} has sha256 {sha256}. Expected: {'0' * 64}. "
        "Fix: fetch the file again, or correct nccl_sm121_build_checksum.",
    }


def used(made: Any, wanted: bool = True, plan: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    found = {"root": "/opt/gb10", "runtime": {"path": "/opt/gb10/runtime/1"}} if plan is None else plan
    return act({"built": "made", "wanted": wanted}, fact(found), made, **settings)


def test_a_runtime_gets_the_build() -> None:
    assert used(BUILT, method="link", keep_releases=5) == {
        "changed": False,
        "there": True,
        "install": {"store": "/opt/gb10/nccl", **BUILT, "capabilities": ["12.1"], "keep": 5},
        "select": {"python": "/opt/gb10/runtime/1/bin/python", "library": LIBRARY, "method": "link"},
        "environment": {},
        "files": {LIBRARY: "a" * 64},
        "mounts": [],
    }


@pytest.mark.parametrize("made", [None, {"skipped": True}, {"name": NAME, "sha256": None}])
def test_check_mode_on_a_fresh_head_has_no_build(made: Any) -> None:
    for answer in (used(made), used(made, plan=CONTAINER)):
        assert (answer["there"], answer["environment"], answer["files"], answer["mounts"]) == (False, {}, {}, [])


def test_a_build_that_is_not_wanted_is_removed() -> None:
    answer = used(BUILT, wanted=False)
    assert (answer["there"], answer["files"]) == (False, {})
    assert answer["select"] == {"python": "/opt/gb10/runtime/1/bin/python", "state": "absent"}


CONTAINER = {"root": "/opt/gb10", "runtime": {"kind": "container", "engine": "podman", "image": "vllm:1"}}


def test_a_container_preloads_the_mounted_build() -> None:
    answer, folder = used(BUILT, plan=CONTAINER), f"/opt/gb10/nccl/{NAME}"
    mount = {"source": folder, "target": folder, "read_only": True}
    assert (answer["environment"], answer["mounts"]) == ({"LD_PRELOAD": LIBRARY}, [mount])
    assert used(BUILT, wanted=False, plan=CONTAINER)["mounts"] == []


def test_the_options_are_those_of_the_modules() -> None:
    found, build = used(BUILT), planned()
    pairs = ((nccl_build, build["options"]), (nccl_build, build["requirements"]), (nccl_select, found["select"]))
    assert found["install"].keys() <= io_steps.specification(nccl_install.Inputs).keys()
    for module, options in pairs:
        assert options.keys() <= load_yaml(module.DOCUMENTATION)["options"].keys()


def test_without_a_decision_the_module_runs() -> None:
    answer, calls = decide("nccl_build", {"store": "/s", "pack": "/p"}, {}, result={"name": NAME})
    assert (answer, calls) == ({"name": NAME}, [{"store": "/s", "pack": "/p"}])
