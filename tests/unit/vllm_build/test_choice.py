"""The decision to build vLLM: equal for equal facts, for the planner and for the tasks before it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from cluster_nodes import BUILD, Node, cluster_plan, lock_of, mistakes, spark

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import choice, parse
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import schema as vllm_build_schema
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.choice import digest_of_lock
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import GIB
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Patch, Request, Stored

COMMIT, SHA = "73cf1122" + "0" * 32, "e672" + "0" * 60
RELEASE, TORCH = "0.33.0", "2.14.0"
LOCK = lock_of(f"vllm=={RELEASE}", "ray==2.60.0", f"torch=={TORCH}")
#: The published wheel's code: for the GPU's generation, and for older GPUs only.
RUNS = {"vllm/_C": {"native": 0, "same_major": 7, "ptx": 0, "none": 2}}
LACKS = {"vllm/_C": {"native": 0, "same_major": 0, "ptx": 0, "none": 9}}
PATCH = Patch("/site/fix.patch", "1" * 64)


def request(**changes: Any) -> Request:
    return parse.request({**BUILD, "enabled": "auto", "commit": COMMIT, **changes})


def pair(
    *capabilities: str, published: Any = None, stored: tuple[Stored, ...] = ()
) -> list[vllm_build_schema.BuildNode]:
    return [
        vllm_build_schema.BuildNode(f"node{number}", capability, stored, published)
        for number, capability in enumerate(capabilities or ("12.1", "12.1"), 1)
    ]


def choose(nodes: list[vllm_build_schema.BuildNode], device: str = "cuda", **changes: Any) -> vllm_build_schema.Choice:
    return choice.choose(request(**changes), RELEASE, TORCH, device, nodes)


# --- the variables ---


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(True, "true"), (False, "false"), ("True", "true"), ("auto", "auto"), ("Auto", "auto"), ("yes", "yes")],
)
def test_values_of_an_inventory_and_of_the_command_line_are_equal(given: Any, wanted: str) -> None:
    assert request(enabled=given).wanted == wanted


@pytest.mark.parametrize(
    ("given", "separate"), [(True, True), ("true", True), ("1", True), (False, False), ("false", False), ("no", False)]
)
def test_separate_wheels_can_be_text(given: Any, separate: bool) -> None:
    assert request(separate=given).separate is separate


def test_a_sound_request_has_no_problem() -> None:
    assert (
        choice.check_request(request(capabilities=["12.1", "11.0"], patches=[vars(PATCH)]), RELEASE, locked=True) == []
    )
    archive = request(source="/site/vllm-0.33.0.tar.gz", commit="", checksum=SHA)
    assert (choice.check_request(archive, RELEASE, locked=True), archive.identity) == ([], f"sha256 {SHA}")
    assert request().identity == f"commit {COMMIT}"


@pytest.mark.parametrize(
    ("changes", "paths", "word"),
    [
        ({"enabled": "maybe"}, ["vllm_build_enabled"], "auto or true or false"),
        ({"commit": ""}, ["vllm_build_commit"], f"git ls-remote {BUILD['source']} shows for v0.33.0"),
        ({"commit": "", "version": ""}, ["vllm_build_commit"], "shows for v0.33.0"),
        ({"commit": "", "version": "main"}, ["vllm_build_commit"], "shows for main"),
        ({"commit": COMMIT[:-1]}, ["vllm_build_commit"], "because a tag can be moved"),
        ({"commit": COMMIT.upper()}, ["vllm_build_commit"], "40 hexadecimal digits"),
        ({"commit": f"{COMMIT}\n"}, ["vllm_build_commit"], "40 hexadecimal digits"),
        ({"source": "/x/vllm-0.33.0.tar.gz"}, ["vllm_build_checksum"], "sha256sum"),
        ({"source": "/x/vllm-0.33.0.tgz", "checksum": SHA.upper()}, ["vllm_build_checksum"], "lower case"),
        (
            {"patches": [{"path": "/x/fix.patch", "sha256": ""}]},
            ["vllm_build_patches[0]"],
            "/x/fix.patch cannot be read",
        ),
        (
            {"patches": [vars(PATCH), {"path": "/other/fix.patch", "sha256": SHA}]},
            ["vllm_build_patches[1]"],
            "a second fix.patch",
        ),
        ({"capabilities": ["12.1", "sm_121"]}, ["vllm_build_capabilities[1]"], "'sm_121' is not a compute capability"),
        (
            {"commit": "", "patches": [{"path": "x", "sha256": ""}], "capabilities": ["12"]},
            ["vllm_build_commit", "vllm_build_patches[0]", "vllm_build_capabilities[0]"],
            "",
        ),
    ],
)
def test_what_is_wrong_with_a_request(changes: dict[str, Any], paths: list[str], word: str) -> None:
    problems = choice.check_request(request(**changes), RELEASE, locked=True)
    assert [problem.path for problem in problems] == paths
    assert word in "\n".join(map(str, problems))


def test_the_files_of_a_build() -> None:
    dependency = {"variable": "VLLM_CUTLASS_SRC_DIR", "archive": "/x/cutlass.tar", "sha256": "4" * 64}
    given = {"source": "/x/vllm-0.33.0.tar.gz", "checksum": SHA, "dependencies": [dependency]}
    assert (
        choice.check_files(request(**given, archives={"/x/vllm-0.33.0.tar.gz": SHA, "/x/cutlass.tar": "4" * 64})) == []
    )
    assert [found.path for found in choice.check_files(request(**given))] == [
        "vllm_build_source",
        "vllm_build_dependencies[0].archive",
    ]
    problems = choice.check_files(request(**given, archives={"/x/vllm-0.33.0.tar.gz": "5" * 64, "/x/cutlass.tar": SHA}))
    assert [found.path for found in problems] == ["vllm_build_checksum", "vllm_build_dependencies[0].sha256"]
    assert [found.expected for found in problems] == [SHA, "4" * 64]
    # A repository is no file.
    assert choice.check_files(request()) == []


def test_a_release_is_needed() -> None:
    for release, native in ((RELEASE, False), ("", True)):
        (problem,) = choice.check_request(request(), release, native)
        assert (problem.path, "gb10_runtime_lock" in problem.fix) == ("vllm_build_enabled", True)


def test_without_a_build_nothing_is_checked() -> None:
    assert (
        choice.check_request(
            request(enabled=False, commit="", patches=[{"path": "x", "sha256": ""}], capabilities=["x"]),
            "",
            locked=False,
        )
        == []
    )


def test_what_is_an_archive() -> None:
    names = ["git@x:vllm.git", "https://h/vllm.git", "/x/v", "/x/v.zip", "/x/v.tar.zst", "/x/tar", "/x/v.tgz.asc"]
    names += [f"/x/v.{suffix}" for suffix in ("tar", "tar.gz", "tar.xz", "tar.bz2", "tgz")]
    assert [request(source=name).archive for name in names] == [index >= 7 for index in range(len(names))]


def test_the_role_gets_the_source_from_the_plan() -> None:
    built = choose(pair(), enabled=True, source="/x/v.tar", checksum=SHA)
    assert (built.identity, built.archive) == (f"sha256 {SHA}", True)
    built = choose(pair(), enabled=True)
    assert (built.identity, built.archive) == (f"commit {COMMIT}", False)


@pytest.mark.parametrize(
    ("releases", "separate", "container", "drivers"),
    [
        (("13.0", "13.0"), False, False, ["13.0"]),
        (("13.10", "13.9"), False, False, ["13.9"]),
        (("", "13.1"), False, False, ["13.1"]),
        (("", ""), False, False, [""]),
        # The worker runs the head's wheel in the image.
        (("13.1", "13.0"), False, True, ["13.0"]),
        (("13.1", "13.0"), True, False, ["13.1", "13.0"]),
    ],
)
def test_the_oldest_driver_of_a_wheels_ranks(
    releases: tuple[str, str], separate: bool, container: bool, drivers: list[str]
) -> None:
    nodes = [replace(node, cuda=cuda) for node, cuda in zip(pair("12.1", "11.0"), releases, strict=True)]
    built = choice.choose(request(enabled=True, separate=separate), RELEASE, TORCH, "cuda", nodes, container)
    assert [item.driver for item in built.wheels] == drivers


# --- the GPUs ---


@pytest.mark.parametrize(
    ("capabilities", "architectures"),
    [
        (["12.1"], "12.1a"),
        (["12.1", "11.0", "12.1"], "11.0a;12.1a"),
        (["9.0", "8.9", "12.0"], "8.9;9.0a;12.0a"),
        (["10.3", "10.0"], "10.0a;10.3a"),
        ([], ""),
    ],
)
def test_architectures(capabilities: list[str], architectures: str) -> None:
    assert choice.architectures(capabilities) == architectures


def test_one_wheel_for_a_mixed_cluster() -> None:
    (item,) = choose(pair("12.1", "11.0", "12.1"), enabled=True).wheels
    assert (item.capabilities, item.architectures, item.nodes) == (
        ("11.0", "12.1"),
        "11.0a;12.1a",
        ("node1", "node2", "node3"),
    )
    assert (item.version.split("+gb10.")[0], item.torch, item.wheel, item.sha256) == (RELEASE, TORCH, "", "")
    assert item.name == f"{RELEASE}-{item.version.partition('+gb10.')[2]}{item.name[-4:]}"


def test_separate_wheels_of_a_mixed_cluster() -> None:
    found = choose(pair("12.1", "11.0", "12.1"), enabled=True, separate=True).wheels
    assert [(item.architectures, item.nodes) for item in found] == [
        ("12.1a", ("node1", "node3")),
        ("11.0a", ("node2",)),
    ]
    assert len({item.name for item in found}) == len({item.version for item in found}) == 2


def test_given_gpus_win_and_a_node_without_a_gpu_gets_the_others_wheel() -> None:
    (item,) = choose(pair("12.1", "11.0"), enabled=True, separate=True, capabilities=["9.0"]).wheels
    assert (item.architectures, item.nodes) == ("9.0a", ("node1", "node2"))
    assert [item.architectures for item in choose(pair("12.1", ""), enabled=True).wheels] == ["12.1a"]


@pytest.mark.parametrize(
    "changes",
    [
        {"commit": "1" * 40},
        {"source": "/x/vllm-0.33.0.tar.gz", "checksum": SHA},
        {"patches": [vars(PATCH)]},
        {"patches": [vars(replace(PATCH, sha256="2" * 64))]},
        {"capabilities": ["12.1", "11.0"]},
        {"separate": True},
        {"environment": {"CMAKE_ARGS": "-DX=1"}},
        {"dependencies": [{"variable": "VLLM_CUTLASS_SRC_DIR", "archive": "/x.tar", "sha256": SHA}]},
    ],
    ids=str,
)
def test_what_decides_about_the_wheel_is_in_its_name(changes: dict[str, Any]) -> None:
    one, other = choose(pair(), enabled=True), choose(pair(), enabled=True, **changes)
    assert one.key != other.key
    assert one.wheels[0].name != other.wheels[0].name


def test_the_order_of_patches_counts_and_their_folder_does_not() -> None:
    def named(*patches: Patch) -> str:
        return choose(pair(), enabled=True, patches=[vars(patch) for patch in patches]).wheels[0].name

    other = Patch("/site/b.patch", "2" * 64)
    assert named(PATCH, other) != named(other, PATCH)
    assert named(PATCH) == named(replace(PATCH, path="/elsewhere/fix.patch"))


def test_another_torch_or_release_is_another_wheel_of_the_same_key() -> None:
    releases = ((RELEASE, TORCH), (RELEASE, "2.13.0"), ("0.32.0", TORCH))
    found = [choice.choose(request(enabled=True), *each, "cuda", pair()) for each in releases]
    assert (len({entry.wheels[0].name for entry in found}), len({entry.key for entry in found})) == (3, 1)


# --- the decision ---


def test_off_by_default() -> None:
    assert choose(pair(published=LACKS), enabled=False) == vllm_build_schema.Choice("off", (), "", ())
    assert not choose(pair(), enabled=False).built


@pytest.mark.parametrize(
    ("nodes", "device", "changes", "state", "word"),
    [
        (pair(), "cuda", {}, "undecided", "decided after the installation"),
        (
            [*pair("12.1", published=RUNS), vllm_build_schema.BuildNode("node2", "12.1", (), None)],
            "cuda",
            {},
            "undecided",
            "decided after",
        ),
        (
            pair(published=RUNS),
            "cuda",
            {},
            "published",
            "1 of 1 extensions of the published wheel have code that 12.1 runs",
        ),
        (pair(published={**RUNS, "vllm/_flashmla_C": LACKS["vllm/_C"]}), "cuda", {}, "published", "1 of 2 extensions"),
        (pair(published={}), "cpu", {}, "published", "has no GPU code"),
        (
            pair(published=LACKS),
            "cuda",
            {},
            "missing",
            "node1: the published wheel: vllm/_C, which each model needs, has no code for 12.1",
        ),
        (pair(published=RUNS), "cuda", {"enabled": True}, "missing", "vllm_build_enabled: true"),
        (pair(), "cuda", {"enabled": True}, "missing", "vllm_build_enabled: true"),
        # The source decides before the published wheel is installed.
        (pair(), "cuda", {"patches": [vars(PATCH)]}, "missing", "1 patch changes the source"),
        (pair(published=RUNS), "cuda", {"version": "v0.34.0rc1"}, "missing", "v0.34.0rc1 is not the release v0.33.0"),
        (pair(published=RUNS), "cuda", {"version": "main"}, "missing", "main is not the release"),
        (pair(published=RUNS), "cuda", {"version": ""}, "published", "1 of 1"),
        (pair(published=RUNS), "cuda", {"source": "/x/vllm-0.33.0.tar.gz", "checksum": SHA}, "published", "1 of 1"),
        (
            pair(published=RUNS),
            "cuda",
            {"source": "/x/vllm-0.32.0.tar.gz", "checksum": SHA},
            "missing",
            "vllm-0.32.0.tar.gz is not the archive",
        ),
        (
            pair(published=RUNS),
            "cuda",
            {"source": "/vllm-0.33.0/main.tar", "checksum": SHA},
            "missing",
            "main.tar is not the archive",
        ),
        (
            pair(published=RUNS),
            "cuda",
            {"source": "https://github.com/mine/vllm.git"},
            "missing",
            "mine/vllm.git is not the repository",
        ),
        (pair(published=RUNS), "cuda", {"source": "https://github.com/vllm-project/vllm"}, "published", "1 of 1"),
    ],
)
def test_the_decision(
    nodes: list[vllm_build_schema.BuildNode], device: str, changes: dict[str, Any], state: str, word: str
) -> None:
    found = choose(nodes, device, **changes)
    assert (found.state, found.built, bool(found.wheels), bool(found.key)) == (state, *(state == "missing",) * 3)
    assert any(word in reason for reason in found.why), found.why


def test_one_reason_for_equal_nodes_and_the_missing_kernels_are_named() -> None:
    found = choose(pair("12.1", "12.1", "11.0", published={**RUNS, "vllm/_flashmla_C": LACKS["vllm/_C"]}))
    sentences = [f"{capability} runs; vllm/_flashmla_C have none" for capability in ("12.1", "11.0")]
    assert [reason.partition("that ")[2] for reason in found.why] == sentences


def test_ready_when_each_node_has_the_same_wheel() -> None:
    name = choose(pair(), enabled=True).wheels[0].name
    mine, other = Stored(name, "vllm-a.whl", "a" * 64), Stored(name, "vllm-b.whl", "b" * 64)
    old = Stored("0.32.0-0123456789ab", "vllm-old.whl", "c" * 64)
    ready = choose(pair(stored=(old, mine)), enabled=True)
    assert (ready.state, ready.built, ready.wheels[0].wheel, ready.wheels[0].sha256) == (
        "ready",
        True,
        "vllm-a.whl",
        "a" * 64,
    )
    nodes = pair(stored=(mine,))
    for theirs in ((), (old,), (other,)):
        found = choose([nodes[0], replace(nodes[1], stored=theirs)], enabled=True)
        assert (found.state, found.wheels[0].sha256) == ("missing", "a" * 64)
    # The head lacks it, and a worker has it.
    assert choose([replace(nodes[0], stored=()), nodes[1]], enabled=True).state == "missing"


def test_each_node_needs_only_its_own_wheel() -> None:
    spark_wheel, thor_wheel = (item.name for item in choose(pair("12.1", "11.0"), enabled=True, separate=True).wheels)
    stored = [Stored(spark_wheel, "s.whl", "a" * 64)], [Stored(thor_wheel, "t.whl", "b" * 64)]
    nodes = [replace(node, stored=tuple(own)) for node, own in zip(pair("12.1", "11.0"), stored, strict=True)]
    assert choose(nodes, enabled=True, separate=True).state == "ready"
    assert choose([nodes[0], replace(nodes[1], stored=nodes[0].stored)], enabled=True, separate=True).state == "missing"


STAMP = {"name": "n", "wheel": "w.whl", "sha256": SHA, "seconds": 3, "jobs": 7}


def test_a_stamp_is_a_build() -> None:
    assert parse.build({**STAMP, "other": 1}) == Stored("n", "w.whl", SHA, 3.0, 7)
    for unknown in (None, "7", [7], -1, True, float("inf"), float("nan"), 10**400):
        assert parse.build({**STAMP, "seconds": unknown, "jobs": unknown}) == Stored("n", "w.whl", SHA)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": None},
        {"name": "../n"},
        {"name": "n" * 129},
        {"wheel": "../w.whl"},
        {"wheel": "/w.whl"},
        {"wheel": "w.whl\nRUN x"},
        {"wheel": "w\u0660.whl"},
        {"wheel": ["w.whl"]},
        {"sha256": SHA.upper()},
        {"sha256": SHA[1:]},
        {"sha256": None},
    ],
)
def test_a_stamp_of_another_form_is_no_build(changes: dict[str, Any]) -> None:
    assert parse.build({**STAMP, **changes}) is None
    assert parse.builds([{**STAMP, **changes}, STAMP, "x", None]) == (parse.build(STAMP),)


def test_numbers_of_a_node_have_a_limit() -> None:
    assert [parse.count(value) for value in (20, 0, -1, "20", None, 2.5, True, 10**4400)] == [20, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("given", [None, "x", {}, {"a": 1}, 7])
def test_other_values_than_stamps_are_no_builds(given: Any) -> None:
    assert parse.builds(given) == ()
    assert parse.build(given) is None


def test_the_coverage_of_a_node_has_numbers() -> None:
    assert parse.published(RUNS) == RUNS
    assert parse.published({}) == {}
    for wrong in (
        None,
        "x",
        [],
        {"vllm/_C": {"native": "7"}},
        {"vllm/_C": {"native": True}},
        {"vllm/_C": {"native": -1}},
    ):
        assert parse.published(wrong) is None


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"patches": "fix.patch"}, ["vllm_build_patches"]),
        ({"capabilities": 12.1}, ["vllm_build_capabilities"]),
        ({"environment": ["CMAKE_ARGS"]}, ["vllm_build_environment"]),
        ({"environment": {"A B": 1}}, ["vllm_build_environment"]),
        ({"dependencies": {"variable": "X"}}, ["vllm_build_dependencies"]),
        ({"dependencies": ["x"]}, [f"vllm_build_dependencies[0].{name}" for name in ("variable", "archive", "sha256")]),
        (
            {"dependencies": [{"variable": "X", "archive": "/x.tar", "sha256": SHA.upper()}]},
            ["vllm_build_dependencies[0].sha256"],
        ),
        (
            {"dependencies": [{"variable": "X Y", "sha256": SHA}]},
            [f"vllm_build_dependencies[0].{name}" for name in ("variable", "archive")],
        ),
    ],
)
def test_values_of_another_form_are_reported(changes: dict[str, Any], places: list[str]) -> None:
    assert [found.path for found in choice.check_request(request(**changes), RELEASE, locked=True)] == places
    # The digest before the plan does not fail, so that the plan can report them.
    assert (
        choice.digest_of_lock(LOCK, {**BUILD, "enabled": "auto", "commit": COMMIT, **changes}, [])
        == hashlib.sha256(LOCK.encode()).hexdigest()
    )


def head(
    *stored: Stored, cores: int = 20, memory: int = 100 * GIB, capability: str = "12.1"
) -> vllm_build_schema.BuildNode:
    return vllm_build_schema.BuildNode("node1", capability, stored, None, cores, memory)


@pytest.mark.parametrize(
    ("node", "device", "expected"),
    [
        (head(), "cuda", "in about 17 min with 19 compilers: 5.6 CPU hours, measured on x86-64 (docs/benchmarks.md)"),
        (head(memory=20 * GIB), "cuda", "in about 1 h with 3 compilers: 5.6 CPU hours"),
        (head(memory=0), "cuda", "in about 5 h with 1 compilers: 5.6 CPU hours"),
        (head(cores=2), "cpu", "in about 30 min with 2 compilers: 1.0 CPU hours"),
        (head(cores=0, memory=0), "cuda", "node1: 5.6 CPU hours"),
        # The newest build of this head with a known duration.
        (
            head(Stored("c", "c.whl", "3" * 64), Stored("b", "b.whl", "2" * 64, 7300.0, 9)),
            "cuda",
            "in about 2 h, as the build b with 9 compilers",
        ),
    ],
)
def test_the_expected_duration(node: vllm_build_schema.BuildNode, device: str, expected: str) -> None:
    found = choice.choose(request(enabled=True), RELEASE, TORCH, device, [node])
    assert found.why[0] == "vllm_build_enabled: true"
    assert found.why[1].startswith(f"{found.wheels[0].name} is built on node1")
    assert expected in found.why[1]
    assert len(found.why) == 2


def test_each_gpu_takes_time_and_a_wheel_that_exists_none() -> None:
    thor = vllm_build_schema.BuildNode("node2", "11.0", (), None, 14, 100 * GIB)
    assert "11.1 CPU hours" in choose([head(), thor], enabled=True).why[1]
    two = choose([head(), thor], enabled=True, separate=True)
    assert [reason.split()[0] for reason in two.why[1:]] == [item.name for item in two.wheels]
    first = Stored(two.wheels[0].name, "a.whl", "a" * 64)
    assert [reason.split()[0] for reason in choose([head(first), thor], enabled=True, separate=True).why[1:]] == [
        two.wheels[1].name
    ]


# --- the planner ---


def nodes(
    observed: Any = None,
    capabilities: tuple[str, ...] = ("12.1", "12.1"),
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> list[Node]:
    """Return nodes with the build's variables; ``observed`` is the result of vllm_build_info."""
    found = [
        spark(number, "worker" if number > 1 else "head", **(settings or {}))
        for number, _capability in enumerate(capabilities, 1)
    ]
    for node, capability in zip(found, capabilities, strict=True):
        node["build"] = {**BUILD, "enabled": True, "commit": COMMIT, **changes}
        node["observed"]["gpu"]["gpus"][0]["capability"] = capability
        if observed is not None:
            node["observed"]["vllm_build"] = {"builds": [], "capability": capability, "published": None, **observed}
    return found


def planned(given: list[Node], lock: str = LOCK) -> dict[str, Any]:
    plan, problems = cluster_plan(given, lock)
    assert problems == []
    return plan


OWN = hashlib.sha256(LOCK.encode()).hexdigest()


@pytest.mark.parametrize(
    "lock", [LOCK, lock_of("vllm==0.33.0+cpu", "ray==2.60.0", "torch==2.14.0+cpu")], ids=["cuda", "local version"]
)
@pytest.mark.parametrize(
    ("observed", "changes", "own"),
    [
        (None, {"enabled": False}, True),
        ({"published": LACKS}, {"enabled": "false"}, True),
        (None, {"enabled": "auto"}, True),
        ({"published": RUNS}, {"enabled": "auto"}, True),
        ({"published": LACKS}, {"enabled": "auto"}, False),
        ({"published": LACKS}, {"enabled": "auto", "separate": True}, False),
        (None, {}, False),
        ({"published": RUNS}, {}, False),
        ({"published": RUNS}, {"capabilities": ["9.0"]}, False),
        (None, {"enabled": "auto", "patches": [vars(PATCH)]}, False),
        (None, {"enabled": "auto", "version": "v0.34.0"}, False),
    ],
    ids=str,
)
def test_the_environment_before_and_in_the_plan(observed: Any, changes: dict[str, Any], own: bool, lock: str) -> None:
    """node_info reads the environment that the plan uses, so both must give it the same name."""
    given = nodes(observed, **changes)
    runtime = planned(given, lock)["runtime"]
    results = [node["observed"].get("vllm_build", {}) for node in given]
    before = digest_of_lock(lock, given[0]["build"], results)
    assert runtime["path"] == f"/opt/gb10/runtime/{before[:12]}"
    assert (before == hashlib.sha256(lock.encode()).hexdigest()) is own


def test_two_builds_have_two_environments() -> None:
    digests = {
        planned(nodes(**changes))["runtime"]["path"]
        for changes in ({}, {"commit": "1" * 40}, {"enabled": False}, {"separate": True})
    }
    assert len(digests) == 4


def test_an_invalid_request_has_the_locks_environment() -> None:
    for changes in ({"commit": ""}, {"enabled": "maybe"}, {"capabilities": ["x"]}):
        assert digest_of_lock(LOCK, {**BUILD, "enabled": True, "commit": COMMIT, **changes}, []) == OWN
    assert digest_of_lock("", {**BUILD, "enabled": True, "commit": COMMIT}, []) == hashlib.sha256(b"").hexdigest()


def test_the_plan_of_a_missing_build() -> None:
    plan = planned(nodes({"published": RUNS}))
    assert (plan["build"]["state"], plan["build"]["wheels"][0]["nodes"]) == ("missing", ["spark1", "spark2"])
    assert (plan["build"]["wheels"][0]["torch"], plan["build"]["wheels"][0]["architectures"]) == (TORCH, "12.1a")
    assert [node["wheels"] for node in plan["nodes"]] == [[], []]


def stamp(name: str, letter: str) -> dict[str, str]:
    return {"name": name, "wheel": f"vllm-{letter}.whl", "sha256": letter * 64}


def test_the_plan_of_a_build_on_every_node() -> None:
    missing = planned(nodes())
    name = missing["build"]["wheels"][0]["name"]
    plan = planned(nodes({"builds": [stamp(name, "a")]}))
    assert plan["build"]["state"] == "ready"
    wheel = {"wheel": f"/opt/gb10/build/wheels/{name}/vllm-a.whl", "sha256": "a" * 64, "built": True}
    assert [node["wheels"] for node in plan["nodes"]] == [[wheel], [wheel]]
    assert plan["runtime"]["path"] == missing["runtime"]["path"] != f"/opt/gb10/runtime/{OWN[:12]}"
    assert [node["runtime_mark"] for node in plan["nodes"]] == [f"{OWN}\n{'a' * 64}\n"] * 2
    assert missing["nodes"][0]["runtime_mark"] == f"{OWN}\n"


def test_only_a_missing_build_needs_its_files() -> None:
    source = {"source": "/x/vllm-0.33.0.tar.gz", "checksum": SHA}
    (problem,) = mistakes(nodes(**source))
    assert (problem.path, problem.found) == ("vllm_build_source", "/x/vllm-0.33.0.tar.gz cannot be read")
    name = planned(nodes(**source, archives={source["source"]: SHA}))["build"]["wheels"][0]["name"]
    assert planned(nodes({"builds": [stamp(name, "a")]}, **source))["build"]["state"] == "ready"


def test_each_node_of_a_mixed_cluster_gets_its_own_wheel() -> None:
    mixed: dict[str, Any] = {
        "capabilities": ("12.1", "11.0"),
        "settings": {"gb10_serve_waivers": {"mixed-transport": "a test"}},
    }
    items = planned(nodes(separate=True, **mixed))["build"]["wheels"]
    builds = [stamp(item["name"], letter) for item, letter in zip(items, "ab", strict=True)]
    plan = planned(nodes({"builds": builds}, separate=True, **mixed))
    assert plan["build"]["state"] == "ready"
    assert [node["runtime_mark"].split("\n")[1] for node in plan["nodes"]] == ["a" * 64, "b" * 64]


def test_the_wheels_of_the_user_are_installed_too() -> None:
    own = {"wheel": "/site/torch-2.14.0-cp312-cp312-linux_aarch64.whl", "sha256": "d" * 64}
    name = planned(nodes())["build"]["wheels"][0]["name"]
    plan = planned(nodes({"builds": [stamp(name, "a")]}, settings={"gb10_runtime_wheels": [own]}))
    assert [wheel["built"] for wheel in plan["nodes"][0]["wheels"]] == [True, False]
    assert plan["nodes"][1]["runtime_mark"].split() == [OWN, "a" * 64, "d" * 64]


def test_a_build_without_commit_is_refused_with_the_place() -> None:
    (problem,) = mistakes(nodes(commit=""), LOCK)
    assert (problem.path, problem.found) == ("vllm_build_commit", "''")
    assert "git ls-remote https://github.com/vllm-project/vllm.git" in problem.fix


@pytest.mark.parametrize("enabled", ["auto", True])
def test_a_wheel_and_a_build_of_vllm_exclude_each_other(enabled: Any) -> None:
    wheel = {"wheel": "/site/vllm-0.33.0-cp38-abi3-linux_aarch64.whl", "sha256": "d" * 64}
    torch = {"wheel": "/site/torch-2.14.0-cp312-cp312-linux_aarch64.whl", "sha256": "d" * 64}
    given = nodes(enabled=enabled)
    given[1]["settings"]["gb10_runtime_wheels"] = [torch, wheel]
    (problem,) = mistakes(given, LOCK)
    assert (problem.path, problem.found) == (
        "nodes[1].gb10_runtime_wheels[1]",
        "vllm-0.33.0-cp38-abi3-linux_aarch64.whl",
    )
    for node in given:
        node["build"]["enabled"] = False
    assert planned(given)["nodes"][1]["wheels"][1]["built"] is False


CONTAINER = {"gb10_runtime": "container", "gb10_container_image": f"registry/vllm@sha256:{'0' * 64}"}


def test_an_image_without_lock_is_not_built() -> None:
    problems = mistakes(nodes(settings={**CONTAINER, "gb10_runtime_lock": ""}), "")
    assert [problem.path for problem in problems] == ["vllm_build_enabled"]
    assert problems[0].found == "the runtime has no lock"


def test_a_missing_lock_is_said_too() -> None:
    paths = [problem.path for problem in mistakes(nodes(), "")]
    assert {"gb10_runtime_lock", "vllm_build_enabled"} <= set(paths)
