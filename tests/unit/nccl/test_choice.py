"""The decision to build NCCL: the user's setting first, then the libraries' facts, equal at every run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_nodes import LOCK, cluster_plan, lock_of, spark
from decisions import decide
from gpu_libraries import libnccl

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import library as nccl_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.choice import (
    NcclNode,
    choose,
    hang,
    reasons,
)
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import NcclInputs

CLUSTER = NcclInputs(cuda=True, container=False, ring=False, release="2.30.7", patches=["arm-send-fence"])


def facts(*architectures: str, machine: int = 183, **options: Any) -> dict[str, Any]:
    data = libnccl(*(architectures or ("120",)), machine=machine, **options)
    return nccl_library.read(memoryview(data), "lib").facts()


def pair(*libraries: dict[str, Any] | None) -> list[NcclNode]:
    return [NcclNode(f"spark{number}", "12.1", library) for number, library in enumerate(libraries, 1)]


@pytest.mark.parametrize(
    ("version", "gcc", "machine", "said"),
    [
        ("2.28.9", ["8.5.0"], 183, "NCCL 2.28.9 is older than 2.29.3 and was compiled with GCC 8.5.0: before GCC 10"),
        ("2.29.2", ["9.4.0"], 183, "NCCL 2.29.2 is older than 2.29.3 and was compiled with GCC 9.4.0: before GCC 10"),
        # Fixed in the source, for every compiler.
        ("2.29.3", ["8.5.0"], 183, ""),
        ("2.29.7", ["8.3.1", "8.5.0"], 183, ""),
        ("2.30.7", ["8.5.0"], 183, ""),
        # Built by DGX OS, and by this collection from source.
        ("2.28.9", ["10.1.0"], 183, ""),
        ("2.28.9", ["13.3.0"], 183, ""),
        # The older compiler may be that of CUDA's static library or of NCCL itself.
        (
            "2.28.9",
            ["13.3.0", "8.5.0"],
            183,
            "was compiled with GCC 8.5.0 and 13.3.0: before GCC 10 its ranks can hang",
        ),
        ("2.28.9", [], 183, "does not record its compiler"),
        ("x", ["8.5.0"], 183, "an NCCL without a release number may be older than 2.29.3"),
        # Only ARM.
        ("2.28.9", ["8.5.0"], 62, ""),
    ],
)
def test_the_hang_on_arm(version: str, gcc: list[str], machine: int, said: str) -> None:
    found = hang(facts(version=version, gcc=gcc, machine=machine))
    assert (bool(found), said in found) == (bool(said), True)


@pytest.mark.parametrize(
    ("library", "ring", "words"),
    [
        (facts("120"), False, []),
        (facts("121"), True, []),
        # PTX is translated, and code of the same generation runs.
        (facts("90"), False, ["no code that compute capability 12.1 can run"]),
        (facts("121a"), False, []),
        (facts("120a"), False, ["no code that compute capability 12.1 can run"]),
        (facts(version="2.29.7"), False, []),
        (facts(version="2.29.7"), True, ["NCCL 2.29.7 is older than 2.30, which a ring requires"]),
        (facts(version="2.30.0"), True, []),
        (facts("90", version="2.28.9", gcc=["8.5.0"]), True, ["hang on ARM", "no code", "which a ring requires"]),
        ({}, False, ["has no NCCL"]),
    ],
)
def test_what_is_not_good_enough(library: dict[str, Any], ring: bool, words: list[str]) -> None:
    found = reasons(NcclNode("spark1", "12.1", library), ring)
    assert [word in reason for word, reason in zip(words, found, strict=True)] == [True] * len(words)


OLD = facts(version="2.28.9", gcc=["8.5.0"])


@pytest.mark.parametrize(
    ("wanted", "changes", "libraries", "build", "final", "word"),
    [
        (
            "auto",
            {},
            [facts(), facts()],
            False,
            True,
            "NCCL 2.30.7 of the runtime has the fix of 2.29.3 for ARM, and has code for 12.1",
        ),
        ("auto", {}, [facts(), OLD], True, True, "spark2: NCCL 2.28.9 is older than 2.29.3"),
        ("auto", {}, [OLD, None], True, True, "spark1: NCCL 2.28.9"),
        ("auto", {}, [facts(), {}], True, True, "spark2: its runtime has no NCCL"),
        # Before the runtime is installed, only its release is known, so the choice is not final.
        ("auto", {}, [None, None], False, False, "decided after installation"),
        ("auto", {"release": "2.28.9"}, [None, None], True, False, "NCCL 2.28.9 is older than 2.29.3"),
        (
            "auto",
            {"release": "2.29.7", "ring": True},
            [None, None],
            True,
            False,
            "older than 2.30, which a ring requires",
        ),
        ("auto", {"release": ""}, [None, None], True, False, "is unknown"),
        ("auto", {"container": True}, [None, None], False, True, "decided by the library in the image"),
        ("auto", {"container": True, "release": ""}, [None, None], True, False, "is unknown"),
        ("auto", {"cuda": False}, [{}, {}], False, True, "uses no GPU"),
        ("auto", {}, [OLD], False, True, "a single node"),
        ("true", {}, [facts(), facts()], True, True, "nccl_sm121_build_enabled: true"),
        ("false", {}, [facts(), OLD], False, True, "spark2: NCCL 2.28.9 is older than 2.29.3"),
    ],
)
def test_the_choice(
    wanted: str, changes: dict[str, Any], libraries: list[Any], build: bool, final: bool, word: str
) -> None:
    found = choose(wanted, replace(CLUSTER, **changes), pair(*libraries))
    assert (found.build, found.final) == (build, final)
    assert any(word in reason for reason in found.why), found.why


FENCE = "on ARM a missing fence before a send can hang all ranks (NVIDIA/nccl#1983, proposed as #2393)"
OFFER = "nccl_sm121_build_enabled=true builds it with the patch arm-send-fence"
EMPTY = "a build would not change it without the patch arm-send-fence in nccl_sm121_build_patches"


@pytest.mark.parametrize(
    ("wanted", "changes", "library", "expected"),
    [
        ("auto", {}, facts(), [f"known in this release: {FENCE}. No report names a Spark. {OFFER}"]),
        ("auto", {"patches": []}, facts(), [f"known in this release: {FENCE}. No report names a Spark. {EMPTY}"]),
        ("auto", {}, facts(version="2.32.3"), [f"known in this release: {FENCE}. No report names a Spark. {OFFER}"]),
        # Nobody of this collection has read a newer one.
        ("auto", {}, facts(version="2.33.1"), [f"known up to 2.32.3: {FENCE}. No report names a Spark. {OFFER}"]),
        ("auto", {"container": True}, None, [f"known in this release: {FENCE}. No report names a Spark. {OFFER}"]),
        # Only ARM.
        ("auto", {}, facts(machine=62), []),
        ("true", {}, facts(), [f"patch arm-send-fence: {FENCE}"]),
        ("auto", {}, OLD, [f"patch arm-send-fence: {FENCE}"]),
        ("auto", {"patches": ["a.patch", "b.patch"]}, OLD, ["patched with a.patch, b.patch"]),
        ("true", {"patches": []}, facts(), []),
    ],
)
def test_the_choice_names_known_faults_and_what_a_build_changes(
    wanted: str, changes: dict[str, Any], library: dict[str, Any] | None, expected: list[str]
) -> None:
    why = choose(wanted, replace(CLUSTER, **changes), pair(library, library)).why
    assert [reason for reason in why if "patch" in reason or "fence" in reason] == expected


def planned(wanted: str = "auto", library: dict[str, Any] | None = None, lock: str = LOCK) -> dict[str, Any]:
    nodes = [spark(1, "head"), spark(2, "worker")]
    for node in nodes:
        node["settings"]["nccl_sm121_build_enabled"] = wanted
        node["observed"]["nccl"] = library
    plan, problems = cluster_plan(nodes, lock)
    assert problems == []
    return plan


NEW_LOCK, OLD_LOCK = (LOCK + lock_of(f"nvidia-nccl-cu13=={release}") for release in ("2.30.7", "2.28.9"))


@pytest.mark.parametrize(
    ("wanted", "library", "lock", "release"),
    [
        ("auto", None, NEW_LOCK, "2.30.7"),
        ("auto", None, OLD_LOCK, "2.30.7"),
        ("auto", facts(version="2.29.7"), NEW_LOCK, "2.29.7"),
        ("false", None, OLD_LOCK, "2.28.9"),
        ("true", facts(version="2.29.7"), NEW_LOCK, "2.30.7"),
    ],
)
def test_the_rules_see_the_release_that_will_be_used(
    wanted: str, library: dict[str, Any] | None, lock: str, release: str
) -> None:
    assert planned(wanted, library, lock)["serve"]["nccl"] == release


@pytest.mark.parametrize("library", [facts(), OLD, facts("90")])
def test_the_role_decides_as_the_plan_did(library: dict[str, Any]) -> None:
    """The first run plans without the library, the second with it. The role makes the same decision in both."""
    first, second = planned(), planned(library=library)
    expected = {key: second["nccl"][key] for key in ("build", "final", "why")}
    assert [chosen(plan, spark1=library, spark2=library) for plan in (first, second)] == [expected] * 2


def test_a_node_without_a_library_may_have_none_or_be_skipped() -> None:
    assert chosen(planned())["final"] is False
    without = chosen(planned(), spark1=None, spark2=None)
    assert without["why"][:2] == [
        f"{name}: its runtime has no NCCL from NVIDIA's wheel" for name in ("spark1", "spark2")
    ]


def chosen(plan: dict[str, Any], **libraries: dict[str, Any] | None) -> dict[str, Any]:
    """Return the choice of the action nccl_info. A skipped node has no library in its result."""
    skipped = {"brought": {"changed": False, "skipped": True}}
    hosts = {node["name"]: skipped for node in plan["nodes"]}
    hosts |= {name: {"brought": {"changed": False, "library": library}} for name, library in libraries.items()}
    answer, calls = decide("nccl_info", {"libraries": "brought"}, plan, hosts)
    assert (answer.pop("changed"), calls) == (False, [])
    return answer


def test_the_action_reads_a_library_as_before() -> None:
    answer, calls = decide("nccl_info", {"path": "/lib"}, {}, result={"library": None})
    assert (answer, calls) == ({"library": None}, [{"path": "/lib"}])


@pytest.mark.parametrize("wanted", ["maybe", "yes", ""])
def test_another_word_is_refused_before_anything_changes(wanted: str) -> None:
    nodes = [spark(1, "head", nccl_sm121_build_enabled=wanted), spark(2, "worker")]
    (problem,) = cluster_plan(nodes, NEW_LOCK)[1]
    assert (problem.path, problem.expected) == ("nccl_sm121_build_enabled", "auto or true or false")
