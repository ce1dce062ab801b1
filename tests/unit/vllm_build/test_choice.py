"""The name of a build and whether each node has it: equal for equal facts, before the plan and in it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cluster_nodes import BUILD, Node, cluster_plan, lock_of, mistakes, spark

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import choice
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Choice, Stored

COMMIT, SHA = "73cf1122" + "0" * 32, "e672" + "0" * 60
RELEASE, TORCH = "0.33.0", "2.14.0"
PINS = lock_of(f"vllm=={RELEASE}", "ray==2.60.0", f"torch=={TORCH}")
OWN = hashlib.sha256(PINS.encode()).hexdigest()
PATCH = {"path": "/site/fix.patch", "sha256": "1" * 64}
ARCHIVE = {"source": "/site/vllm-0.33.0.tar.gz", "commit": "", "checksum": SHA}


def given(**changes: Any) -> dict[str, Any]:
    return {**BUILD, "enabled": True, "commit": COMMIT, **changes}


def choose(*stores: tuple[Stored, ...], gpus: Any = ("12.1",), drivers: tuple[str, ...] = (), **changes: Any) -> Choice:
    """Return the choice of nodes with these builds."""
    names = {f"node{number}": stored for number, stored in enumerate(stores or ((), ()), 1)}
    return choice.choose(given(**changes), (RELEASE, TORCH), gpus, drivers, names)


def dependency(**changes: Any) -> dict[str, Any]:
    """Return the variables of a request with one dependency."""
    return {"dependencies": [{"variable": "X", "archive": "/x.tar", "sha256": SHA, **changes}]}


# --- the variables ---


@pytest.mark.parametrize(
    ("changes", "paths", "word"),
    [
        ({"capabilities": ["12.1", "11.0"], "patches": [PATCH], **dependency()}, [], ""),
        (ARCHIVE, [], ""),
        ({"enabled": False, "commit": "", "patches": [{**PATCH, "sha256": ""}], "capabilities": ["x"]}, [], ""),
        ({"commit": ""}, ["commit"], f"git ls-remote {BUILD['source']} shows for v0.33.0"),
        ({"commit": "", "version": ""}, ["commit"], "shows for v0.33.0"),
        ({"commit": "", "version": "main"}, ["commit"], "shows for main"),
        *(
            ({"commit": commit}, ["commit"], "a tag can be moved")
            for commit in (COMMIT[1:], COMMIT.upper(), f"{COMMIT}\n")
        ),
        ({**ARCHIVE, "checksum": ""}, ["checksum"], "sha256sum for vllm_build_source"),
        ({**ARCHIVE, "checksum": SHA.upper()}, ["checksum"], "lower case"),
        ({"patches": [{**PATCH, "sha256": ""}]}, ["patches[0]"], "/site/fix.patch cannot be read"),
        ({"patches": [PATCH, {"path": "/x/fix.patch", "sha256": SHA}]}, ["patches[1]"], "a second fix.patch"),
        ({"capabilities": ["12.1", "sm_121"]}, ["capabilities[1]"], "'sm_121' is not a compute capability"),
        ({"environment": {"A B": 1}}, ["environment"], "the name of a variable"),
        (dependency(sha256=SHA.upper()), ["dependencies[0].sha256"], "lower case"),
        (dependency(variable="X Y"), ["dependencies[0].variable"], "VLLM_CUTLASS_SRC_DIR"),
        ({"commit": "", "capabilities": ["12"]}, ["commit", "capabilities[0]"], ""),
    ],
)
def test_what_is_wrong_with_a_request(changes: dict[str, Any], paths: list[str], word: str) -> None:
    problems = choice.check_request(given(**changes), RELEASE, locked=True)
    assert [problem.path for problem in problems] == [f"vllm_build_{path}" for path in paths]
    assert word in "\n".join(map(str, problems))
    if paths:
        # The digest before the plan does not fail, so that the plan can report them.
        assert choice.digest_of_lock(PINS, given(**changes)) == OWN


@pytest.mark.parametrize(("release", "locked"), [(RELEASE, False), ("", True)])
def test_a_release_is_needed(release: str, locked: bool) -> None:
    (problem,) = choice.check_request(given(), release, locked)
    assert (problem.path, "gb10_runtime_lock" in problem.fix) == ("vllm_build_enabled", True)


def test_the_files_of_a_build() -> None:
    def problems(**archives: str) -> list[tuple[str, str]]:
        found = choice.check_files(given(**ARCHIVE, **dependency(sha256="4" * 64), archives=archives))
        return [(problem.path, problem.expected) for problem in found]

    assert problems(**{ARCHIVE["source"]: SHA, "/x.tar": "4" * 64}) == []
    missing = ("vllm_build_source", "vllm_build_dependencies[0].archive")
    assert problems() == [(path, "a tar file on the controller") for path in missing]
    wrong = [("vllm_build_checksum", SHA), ("vllm_build_dependencies[0].sha256", "4" * 64)]
    assert problems(**{ARCHIVE["source"]: "5" * 64, "/x.tar": SHA}) == wrong
    # A repository is no file.
    assert choice.check_files(given()) == []


@pytest.mark.parametrize(
    ("source", "identity"),
    [
        *((f"/x/v.{suffix}", f"sha256 {SHA}") for suffix in ("tar", "tar.gz", "tar.xz", "tar.bz2", "tgz")),
        *((name, f"commit {COMMIT}") for name in ("git@x:vllm.git", "/x/v", "/x/v.zip", "/x/tar", "/x/v.tgz.asc")),
    ],
)
def test_the_exact_source(source: str, identity: str) -> None:
    assert choose(source=source, checksum=SHA).identity == identity


# --- the wheel ---


@pytest.mark.parametrize(
    ("gpus", "changes", "capabilities", "target"),
    [
        (("12.1", "11.0", "12.1"), {}, ("11.0", "12.1"), "11.0a;12.1a"),
        (("12.1",), {"capabilities": ["9.0"]}, ("9.0",), "9.0a"),
        ((), {}, (), "CPUs"),
        (None, {"capabilities": ["9.0"]}, (), "CPUs"),
    ],
)
def test_one_wheel_for_the_gpus_of_all_nodes(
    gpus: Any, changes: dict[str, Any], capabilities: Any, target: str
) -> None:
    found = choose(gpus=gpus, patches=[PATCH], **changes)
    assert (found.capabilities, found.nodes, found.torch) == (capabilities, ("node1", "node2"), TORCH)
    assert found.why == (f"vllm.git commit {COMMIT} for {target}", "patches: fix.patch")


def test_the_name_of_a_build_is_that_of_earlier_releases() -> None:
    """Otherwise each cluster with a build would build again after an update of the collection."""
    assert choose(gpus=("12.1", "12.1")).name == "0.33.0-b0734254c3f4"
    assert choose(patches=[PATCH], environment={"A": 1}, **ARCHIVE, **dependency()).name == "0.33.0-619c558bf5b0"


@pytest.mark.parametrize(
    "changes",
    [
        {"commit": "1" * 40},
        ARCHIVE,
        {"patches": [PATCH]},
        {"patches": [{**PATCH, "sha256": "2" * 64}]},
        {"capabilities": ["12.1", "11.0"]},
        {"environment": {"CMAKE_ARGS": "-DX=1"}},
        dependency(),
    ],
    ids=str,
)
def test_what_decides_about_the_wheel_is_in_its_name(changes: dict[str, Any]) -> None:
    one, other = choose(), choose(**changes)
    assert (one.key != other.key, one.name != other.name) == (True, True)


def test_the_order_of_patches_counts_and_their_folder_does_not() -> None:
    other, moved = {"path": "/b", "sha256": "2" * 64}, {**PATCH, "path": "/x/fix.patch"}
    assert choose(patches=[PATCH, other]).name != choose(patches=[other, PATCH]).name
    assert choose(patches=[PATCH]).name == choose(patches=[moved]).name


@pytest.mark.parametrize(
    ("drivers", "oldest"),
    [(("13.0", "13.0"), "13.0"), (("13.10", "13.9"), "13.9"), (("", "13.1"), "13.1"), (("",), "")],
)
def test_the_oldest_driver_of_the_nodes(drivers: tuple[str, ...], oldest: str) -> None:
    assert choose(drivers=drivers).driver == oldest


def test_ready_when_each_node_has_the_same_wheel() -> None:
    name = choose().name
    mine, other = ({"name": name, "wheel": f"vllm-{letter}.whl", "sha256": letter * 64} for letter in "ab")
    old = {"name": "0.32.0-0123456789ab", "wheel": "vllm-old.whl", "sha256": "c" * 64}
    ready = choose((old, mine), (mine,))
    assert (ready.state, ready.wheel, ready.sha256) == ("ready", "vllm-a.whl", "a" * 64)
    for stores in (((), (mine,)), ((mine,), ()), ((mine,), (old,)), ((mine,), (other,))):
        assert (choose(*stores).state, choose(*stores).sha256) == ("missing", "a" * 64)
    assert (choose().state, choose().wheel, choose(enabled=False)) == ("missing", "", Choice("off"))


# --- the planner ---


def nodes(builds: Any = None, settings: dict[str, Any] | None = None, **changes: Any) -> list[Node]:
    """Return nodes with the build's variables; ``builds`` are the stamps of each."""
    found = [spark(1, "head", **(settings or {})), spark(2, "worker", **(settings or {}))]
    for node in found:
        node["build"] = given(**changes)
        node["observed"]["vllm_build"] = {"builds": builds or []}
    return found


def planned(given_: list[Node], lock: str = PINS) -> dict[str, Any]:
    plan, problems = cluster_plan(given_, lock)
    assert problems == []
    return plan


@pytest.mark.parametrize(
    "lock", [PINS, lock_of("vllm==0.33.0+cpu", "ray==2.60.0", "torch==2.14.0+cpu")], ids=["cuda", "local version"]
)
@pytest.mark.parametrize(
    ("changes", "own"), [({"enabled": False}, True), ({}, False), ({"patches": [PATCH]}, False)], ids=str
)
def test_the_environment_before_and_in_the_plan(changes: dict[str, Any], own: bool, lock: str) -> None:
    """node_info reads the environment that the plan uses, so both must give it the same name."""
    before = choice.digest_of_lock(lock, given(**changes))
    assert planned(nodes(**changes), lock)["runtime"]["path"] == f"/opt/gb10/runtime/{before[:12]}"
    assert (before == hashlib.sha256(lock.encode()).hexdigest()) is own


def test_only_a_missing_build_needs_its_files() -> None:
    (problem,) = mistakes(nodes(**ARCHIVE), PINS)
    assert (problem.path, problem.found) == ("vllm_build_source", f"{ARCHIVE['source']} cannot be read")
    name = planned(nodes(**ARCHIVE, archives={ARCHIVE["source"]: SHA}))["build"]["name"]
    stamp = {"name": name, "wheel": "vllm-a.whl", "sha256": "a" * 64}
    assert planned(nodes([stamp], **ARCHIVE))["build"]["state"] == "ready"
