"""The decision to build vLLM: equal for equal facts, for the planner and for the tasks before it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from cluster_nodes import BUILD, Node, cluster_plan, lock_of, mistakes, spark

from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import choice, parse
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.choice import digest_of_lock
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.plan import GIB
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import (
    BuildNode,
    Choice,
    Item,
    Patch,
    Request,
    Stored,
)

COMMIT, SHA = "73cf1122" + "0" * 32, "e672" + "0" * 60
RELEASE, TORCH = "0.33.0", "2.14.0"
LOCK = lock_of(f"vllm=={RELEASE}", "ray==2.60.0", f"torch=={TORCH}")
OWN = hashlib.sha256(LOCK.encode()).hexdigest()
RUNS = {"vllm/_C": {"native": 0, "same_major": 7, "ptx": 0, "none": 2}}
LACKS = {"vllm/_C": {"native": 0, "same_major": 0, "ptx": 0, "none": 9}}
MIXED = {**RUNS, "vllm/_flashmla_C": LACKS["vllm/_C"]}
PATCH = Patch("/site/fix.patch", "1" * 64)


def request(**changes: Any) -> Request:
    return parse.request({**BUILD, "enabled": "auto", "commit": COMMIT, **changes})


def pair(*capabilities: str, published: Any = None, stored: tuple[Stored, ...] = ()) -> list[BuildNode]:
    given = enumerate(capabilities or ("12.1", "12.1"), 1)
    return [BuildNode(f"node{number}", capability, stored, published) for number, capability in given]


def choose(nodes: list[BuildNode], device: str = "cuda", enabled: Any = True, **changes: Any) -> Choice:
    return choice.choose(request(enabled=enabled, **changes), RELEASE, TORCH, device, nodes)


def first(nodes: list[BuildNode] | None = None, **changes: Any) -> Item:
    return choose(nodes or pair(), **changes).wheels[0]


# --- the variables ---


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        *(("wanted", {"enabled": value}, "true") for value in (True, "True", "true")),
        *(("wanted", {"enabled": value}, "false") for value in (False, "False")),
        *(("wanted", {"enabled": value}, value.lower()) for value in ("auto", "Auto", "yes")),
        *(("separate", {"separate": value}, True) for value in (True, "true", "1")),
        *(("separate", {"separate": value}, False) for value in (False, "false", "no")),
    ],
)
def test_values_of_an_inventory_and_of_the_command_line_are_equal(name: str, given: Any, expected: Any) -> None:
    assert getattr(request(**given), name) == expected


def dependency(**changes: Any) -> dict[str, Any]:
    """Return the variables of a request with one dependency."""
    return {"dependencies": [{"variable": "X", "archive": "/x.tar", "sha256": SHA, **changes}]}


@pytest.mark.parametrize(
    ("changes", "paths", "word"),
    [
        ({"capabilities": ["12.1", "11.0"], "patches": [vars(PATCH)], **dependency()}, [], ""),
        ({"source": "/site/vllm-0.33.0.tar.gz", "commit": "", "checksum": SHA}, [], ""),
        ({"enabled": False, "commit": "", "patches": [{"path": "x", "sha256": ""}], "capabilities": ["x"]}, [], ""),
        ({"enabled": "maybe"}, ["enabled"], "auto or true or false"),
        ({"commit": ""}, ["commit"], f"git ls-remote {BUILD['source']} shows for v0.33.0"),
        ({"commit": "", "version": ""}, ["commit"], "shows for v0.33.0"),
        ({"commit": "", "version": "main"}, ["commit"], "shows for main"),
        ({"commit": COMMIT[:-1]}, ["commit"], "because a tag can be moved"),
        ({"commit": COMMIT.upper()}, ["commit"], "40 hexadecimal digits"),
        ({"commit": f"{COMMIT}\n"}, ["commit"], "40 hexadecimal digits"),
        ({"source": "/x/vllm-0.33.0.tar.gz"}, ["checksum"], "sha256sum"),
        ({"source": "/x/vllm-0.33.0.tgz", "checksum": SHA.upper()}, ["checksum"], "lower case"),
        ({"patches": [{"path": "/x/fix.patch", "sha256": ""}]}, ["patches[0]"], "/x/fix.patch cannot be read"),
        ({"patches": [vars(PATCH), {"path": "/x/fix.patch", "sha256": SHA}]}, ["patches[1]"], "a second fix.patch"),
        ({"capabilities": ["12.1", "sm_121"]}, ["capabilities[1]"], "'sm_121' is not a compute capability"),
        (
            {"commit": "", "patches": [{"path": "x", "sha256": ""}], "capabilities": ["12"]},
            ["commit", "patches[0]", "capabilities[0]"],
            "",
        ),
        # Values of another form.
        ({"patches": "fix.patch"}, ["patches"], "a list of files"),
        ({"capabilities": 12.1}, ["capabilities"], "a list, such as ['12.1']"),
        ({"environment": ["CMAKE_ARGS"]}, ["environment"], "a mapping"),
        ({"environment": {"A B": 1}}, ["environment"], "the name of a variable"),
        ({"dependencies": {"variable": "X"}}, ["dependencies"], "a list of {variable, archive, sha256}"),
        ({"dependencies": ["x"]}, [f"dependencies[0].{name}" for name in ("variable", "archive", "sha256")], ""),
        (dependency(sha256=SHA.upper()), ["dependencies[0].sha256"], "lower case"),
        (dependency(variable="X Y", archive=""), ["dependencies[0].variable", "dependencies[0].archive"], ""),
    ],
)
def test_what_is_wrong_with_a_request(changes: dict[str, Any], paths: list[str], word: str) -> None:
    problems = choice.check_request(request(**changes), RELEASE, locked=True)
    assert [problem.path for problem in problems] == [f"vllm_build_{path}" for path in paths]
    assert word in "\n".join(map(str, problems))
    if paths:
        # The digest before the plan does not fail, so that the plan can report them.
        given = {**BUILD, "enabled": "auto", "commit": COMMIT, **changes}
        assert digest_of_lock(LOCK, given, []) == OWN


@pytest.mark.parametrize(("release", "locked"), [(RELEASE, False), ("", True)])
def test_a_release_is_needed(release: str, locked: bool) -> None:
    (problem,) = choice.check_request(request(), release, locked)
    assert (problem.path, "gb10_runtime_lock" in problem.fix) == ("vllm_build_enabled", True)


def test_the_files_of_a_build() -> None:
    given = {"source": "/x/vllm-0.33.0.tar.gz", "checksum": SHA, **dependency(sha256="4" * 64)}

    def problems(**archives: str) -> list[tuple[str, str]]:
        found = choice.check_files(request(**given, archives=archives))
        return [(problem.path, problem.expected) for problem in found]

    assert problems(**{"/x/vllm-0.33.0.tar.gz": SHA, "/x.tar": "4" * 64}) == []
    missing = ("vllm_build_source", "vllm_build_dependencies[0].archive")
    assert problems() == [(path, "a tar file on the controller") for path in missing]
    wrong = [("vllm_build_checksum", SHA), ("vllm_build_dependencies[0].sha256", "4" * 64)]
    assert problems(**{"/x/vllm-0.33.0.tar.gz": "5" * 64, "/x.tar": SHA}) == wrong
    # A repository is no file.
    assert choice.check_files(request()) == []


def test_the_role_gets_the_source_from_the_plan() -> None:
    names = ["git@x:vllm.git", "https://h/vllm.git", "/x/v", "/x/v.zip", "/x/v.tar.zst", "/x/tar", "/x/v.tgz.asc"]
    archives = [f"/x/v.{suffix}" for suffix in ("tar", "tar.gz", "tar.xz", "tar.bz2", "tgz")]
    for archive, sources in ((False, names), (True, archives)):
        expected = (f"sha256 {SHA}" if archive else f"commit {COMMIT}", archive)
        built = [choose(pair(), source=source, checksum=SHA) for source in sources]
        assert [(each.identity, each.archive) for each in built] == [expected] * len(sources)


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


@pytest.mark.parametrize(
    ("capabilities", "changes", "expected"),
    [
        (("12.1", "11.0", "12.1"), {}, [("11.0a;12.1a", ("node1", "node2", "node3"))]),
        (
            ("12.1", "11.0", "12.1"),
            {"separate": True},
            [("12.1a", ("node1", "node3")), ("11.0a", ("node2",))],
        ),
        # Given GPUs win, and a node without a GPU gets the wheel of the others.
        (("12.1", "11.0"), {"separate": True, "capabilities": ["9.0"]}, [("9.0a", ("node1", "node2"))]),
        (("12.1", ""), {}, [("12.1a", ("node1", "node2"))]),
    ],
)
def test_one_wheel_for_a_mixed_cluster_unless_it_has_separate_ones(
    capabilities: tuple[str, ...], changes: dict[str, Any], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    wheels = choose(pair(*capabilities), **changes).wheels
    assert [(item.architectures, item.nodes) for item in wheels] == expected
    assert len({item.name for item in wheels}) == len({item.version for item in wheels}) == len(wheels)
    for item in wheels:
        release, digest = item.version.split("+gb10.")
        assert (release, item.torch, item.wheel, item.sha256) == (RELEASE, TORCH, "", "")
        assert item.name == f"{RELEASE}-{digest}{item.name[-4:]}"


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
        dependency(),
    ],
    ids=str,
)
def test_what_decides_about_the_wheel_is_in_its_name(changes: dict[str, Any]) -> None:
    one, other = choose(pair()), choose(pair(), **changes)
    assert (one.key != other.key, one.wheels[0].name != other.wheels[0].name) == (True, True)


def test_the_order_of_patches_counts_and_their_folder_does_not() -> None:
    mine, other, moved = (vars(patch) for patch in (PATCH, Patch("/b", "2" * 64), replace(PATCH, path="/x/fix.patch")))
    assert first(patches=[mine, other]).name != first(patches=[other, mine]).name
    assert first(patches=[mine]).name == first(patches=[moved]).name


def test_another_torch_or_release_is_another_wheel_of_the_same_key() -> None:
    releases = ((RELEASE, TORCH), (RELEASE, "2.13.0"), ("0.32.0", TORCH))
    found = [choice.choose(request(enabled=True), *each, "cuda", pair()) for each in releases]
    assert (len({entry.wheels[0].name for entry in found}), len({entry.key for entry in found})) == (3, 1)


# --- the decision ---


@pytest.mark.parametrize(
    ("nodes", "changes", "state", "word"),
    [
        (pair(), {}, "undecided", "decided after the installation"),
        ([*pair("12.1", published=RUNS), BuildNode("node2", "12.1", (), None)], {}, "undecided", "decided after"),
        (pair(published=RUNS), {}, "published", "1 of 1 extensions of the published wheel have code that 12.1 runs"),
        (pair(published=MIXED), {}, "published", "1 of 2 extensions"),
        (pair(published={}), {"device": "cpu"}, "published", "has no GPU code"),
        (
            pair(published=LACKS),
            {},
            "missing",
            "node1: the published wheel: vllm/_C, which each model needs, has no code for 12.1",
        ),
        (pair(published=RUNS), {"enabled": True}, "missing", "vllm_build_enabled: true"),
        (pair(), {"enabled": True}, "missing", "vllm_build_enabled: true"),
        # The source decides before the published wheel is installed.
        (pair(), {"patches": [vars(PATCH)]}, "missing", "1 patch changes the source"),
        (pair(published=RUNS), {"version": "v0.34.0rc1"}, "missing", "v0.34.0rc1 is not the release v0.33.0"),
        (pair(published=RUNS), {"version": "main"}, "missing", "main is not the release"),
        (pair(published=RUNS), {"version": ""}, "published", "1 of 1"),
        (pair(published=RUNS), {"source": "/x/vllm-0.33.0.tar.gz"}, "published", "1 of 1"),
        (pair(published=RUNS), {"source": "/x/vllm-0.32.0.tgz"}, "missing", "vllm-0.32.0.tgz is not the archive"),
        (pair(published=RUNS), {"source": "/vllm-0.33.0/main.tar"}, "missing", "main.tar is not the archive"),
        (pair(published=RUNS), {"source": "https://h/mine/vllm.git"}, "missing", "mine/vllm.git is not the repository"),
        (pair(published=RUNS), {"source": "https://github.com/vllm-project/vllm"}, "published", "1 of 1"),
    ],
)
def test_the_decision(nodes: list[BuildNode], changes: dict[str, Any], state: str, word: str) -> None:
    found = choose(nodes, **{"enabled": "auto", **changes})
    assert (found.state, found.built, bool(found.wheels), bool(found.key)) == (state, *(state == "missing",) * 3)
    assert any(word in reason for reason in found.why), found.why
    assert choose(nodes, **{**changes, "enabled": False}) == Choice("off", ())


def test_one_reason_for_equal_nodes_and_the_missing_kernels_are_named() -> None:
    found = choose(pair("12.1", "12.1", "11.0", published=MIXED), enabled="auto")
    sentences = [f"{capability} runs; vllm/_flashmla_C have none" for capability in ("12.1", "11.0")]
    assert [reason.partition("that ")[2] for reason in found.why] == sentences


def test_ready_when_each_node_has_the_same_wheel() -> None:
    name = first().name
    mine, other = Stored(name, "vllm-a.whl", "a" * 64), Stored(name, "vllm-b.whl", "b" * 64)
    old = Stored("0.32.0-0123456789ab", "vllm-old.whl", "c" * 64)
    ready = choose(pair(stored=(old, mine)))
    assert (ready.state, ready.built) == ("ready", True)
    assert (ready.wheels[0].wheel, ready.wheels[0].sha256) == ("vllm-a.whl", "a" * 64)
    # The head lacks it, or a worker has none, an old or another one.
    for of_head, of_worker in (((), (mine,)), ((mine,), ()), ((mine,), (old,)), ((mine,), (other,))):
        nodes = [replace(node, stored=own) for node, own in zip(pair(), (of_head, of_worker), strict=True)]
        assert (choose(nodes).state, first(nodes).sha256) == ("missing", "a" * 64)


def test_each_node_needs_only_its_own_wheel() -> None:
    items = choose(pair("12.1", "11.0"), separate=True).wheels
    nodes = [
        replace(node, stored=(Stored(item.name, "x.whl", "a" * 64),))
        for node, item in zip(pair("12.1", "11.0"), items, strict=True)
    ]
    assert choose(nodes, separate=True).state == "ready"
    assert choose([nodes[0], replace(nodes[1], stored=nodes[0].stored)], separate=True).state == "missing"


STAMP = {"name": "n", "wheel": "vllm-w.whl", "sha256": SHA, "seconds": 3, "jobs": 7}


def test_a_stamp_is_a_build() -> None:
    assert parse.build({**STAMP, "other": 1}) == Stored("n", "vllm-w.whl", SHA, 3.0, 7)
    for unknown in (None, "7", [7], -1, True, float("inf"), float("nan"), 10**400):
        assert parse.build({**STAMP, "seconds": unknown, "jobs": unknown}) == Stored("n", "vllm-w.whl", SHA)


@pytest.mark.parametrize(
    "changes",
    [
        *({"name": name} for name in (None, "../n", "n" * 129)),
        *(
            {"wheel": wheel}
            for wheel in (
                "../vllm-w.whl",
                "/w.whl",
                "uv-1.whl",
                "vllm-w.whl\nRUN x",
                "vllm-w\u0660.whl",
                ["vllm-w.whl"],
            )
        ),
        *({"sha256": digest} for digest in (SHA.upper(), SHA[1:], None)),
    ],
)
def test_a_stamp_of_another_form_is_no_build(changes: dict[str, Any]) -> None:
    assert parse.build({**STAMP, **changes}) is None
    assert parse.builds([{**STAMP, **changes}, STAMP, "x", None]) == (parse.build(STAMP),)


@pytest.mark.parametrize("given", [None, "x", {}, {"a": 1}, 7])
def test_other_values_than_stamps_are_no_builds(given: Any) -> None:
    assert (parse.builds(given), parse.build(given)) == ((), None)


@pytest.mark.parametrize("wrong", [None, "x", [], *({"vllm/_C": {"native": count}} for count in ("7", True, -1))])
def test_the_coverage_of_a_node_has_numbers(wrong: Any) -> None:
    assert [parse.published(given) for given in (RUNS, {}, wrong)] == [RUNS, {}, None]


def test_numbers_of_a_node_have_a_limit() -> None:
    assert [parse.count(value) for value in (20, 0, -1, "20", None, 2.5, True, 10**4400)] == [20, 0, 0, 0, 0, 0, 0, 0]


def head(*stored: Stored, cores: int = 20, memory: int = 100 * GIB) -> BuildNode:
    return BuildNode("node1", "12.1", stored, None, cores, memory)


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
def test_the_expected_duration(node: BuildNode, device: str, expected: str) -> None:
    found = choose([node], device)
    enabled, estimate = found.why
    assert enabled == "vllm_build_enabled: true"
    assert (estimate.startswith(f"{found.wheels[0].name} is built on node1"), expected in estimate) == (True, True)


def test_each_gpu_takes_time_and_a_wheel_that_exists_none() -> None:
    thor = BuildNode("node2", "11.0", (), None, 14, 100 * GIB)
    assert "11.1 CPU hours" in choose([head(), thor]).why[1]
    names = [item.name for item in choose([head(), thor], separate=True).wheels]
    for node, built in ((head(), names), (head(Stored(names[0], "a.whl", "a" * 64)), names[1:])):
        assert [reason.split()[0] for reason in choose([node, thor], separate=True).why[1:]] == built


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
    results = [node["observed"].get("vllm_build", {}) for node in given]
    before = digest_of_lock(lock, given[0]["build"], results)
    assert planned(given, lock)["runtime"]["path"] == f"/opt/gb10/runtime/{before[:12]}"
    assert (before == hashlib.sha256(lock.encode()).hexdigest()) is own


def test_two_builds_have_two_environments_and_an_empty_lock_its_own() -> None:
    builds = ({}, {"commit": "1" * 40}, {"enabled": False}, {"separate": True})
    assert len({planned(nodes(**changes))["runtime"]["path"] for changes in builds}) == 4
    assert digest_of_lock("", {**BUILD, "enabled": True, "commit": COMMIT}, []) == hashlib.sha256(b"").hexdigest()


def test_the_plan_of_a_build_before_and_after_it_is_on_every_node() -> None:
    missing = planned(nodes({"published": RUNS}))
    (item,) = missing["build"]["wheels"]
    assert (missing["build"]["state"], item["nodes"]) == ("missing", ["spark1", "spark2"])
    assert (item["torch"], item["architectures"]) == (TORCH, "12.1a")
    assert [(node["wheels"], node["runtime_mark"]) for node in missing["nodes"]] == [([], f"{OWN}\n")] * 2
    plan = planned(nodes({"builds": [stamp(item["name"], "a")]}))
    assert plan["build"]["state"] == "ready"
    wheel = {"wheel": f"/opt/gb10/build/wheels/{item['name']}/vllm-a.whl", "sha256": "a" * 64, "built": True}
    expected = [([wheel], f"{OWN}\n{'a' * 64}\n")] * 2
    assert [(node["wheels"], node["runtime_mark"]) for node in plan["nodes"]] == expected
    assert plan["runtime"]["path"] == missing["runtime"]["path"] != f"/opt/gb10/runtime/{OWN[:12]}"


def stamp(name: str, letter: str) -> dict[str, str]:
    return {"name": name, "wheel": f"vllm-{letter}.whl", "sha256": letter * 64}


CONTAINER = {"gb10_runtime": "container", "gb10_container_image": f"registry/vllm@sha256:{'0' * 64}"}


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


@pytest.mark.parametrize(
    ("given", "lock", "paths"),
    [
        ({"commit": ""}, LOCK, ["vllm_build_commit"]),
        ({"settings": {**CONTAINER, "gb10_runtime_lock": ""}}, "", ["vllm_build_enabled"]),
        ({}, "", ["gb10_runtime_lock", "vllm_build_enabled"]),
    ],
    ids=["no commit", "an image without lock", "no lock"],
)
def test_problems_of_a_build_are_those_of_the_plan(given: dict[str, Any], lock: str, paths: list[str]) -> None:
    assert {problem.path for problem in mistakes(nodes(**given), lock)} == set(paths)


@pytest.mark.parametrize("enabled", ["auto", True])
def test_a_wheel_and_a_build_of_vllm_exclude_each_other(enabled: Any) -> None:
    names = ("torch-2.14.0-cp312-cp312-linux_aarch64.whl", "vllm-0.33.0-cp38-abi3-linux_aarch64.whl")
    wheels = [{"wheel": f"/site/{name}", "sha256": "d" * 64} for name in names]
    given, without = nodes(enabled=enabled), nodes(enabled=False)
    for node in (given[1], without[1]):
        node["settings"]["gb10_runtime_wheels"] = wheels
    (problem,) = mistakes(given, LOCK)
    assert (problem.path, problem.found) == ("nodes[1].gb10_runtime_wheels[1]", names[1])
    assert planned(without)["nodes"][1]["wheels"][1]["built"] is False
