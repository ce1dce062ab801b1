"""The model store's plan: folders, files, transfers and problems; and the wait for a transfer."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure
from cluster_nodes import cluster_plan, spark
from decisions import decide
from hypothesis import given
from hypothesis import strategies as st
from json_values import nested
from run_module import program, run_module
from typed_plans import fact, typed_node

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_files
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store
from ansible_collections.gb10.cluster.plugins.module_utils.model_store.plan import File, Manifest
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import PlannedNode
from ansible_collections.gb10.cluster.plugins.plugin_utils import polling
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.steps import model_store_wait

GB = 10**9
HASH = "a" * 64


def file(path: str, size: int = 10, sha256: str = HASH) -> dict[str, Any]:
    return {"path": path, "size": size, "sha256": sha256}


def manifest(*files: dict[str, Any]) -> dict[str, Any]:
    return {"model": "org/m", "revision": "main", "commit": "c", "files": list(files) or [file("config.json")]}


def typed(given: dict[str, Any]) -> Manifest:
    return Manifest(given["model"], given["revision"], given["commit"], model_store.files_of(given["files"]))


@pytest.mark.parametrize(
    ("hub", "path", "revision", "enabled", "source", "folder"),
    [
        ("org/m", "", "", True, "", "/opt/gb10/models/org--m/main"),
        ("org/m", "", "refs/pr/1", True, "", "/opt/gb10/models/org--m/refs--pr--1"),
        ("org/m", "", "", True, "/mnt/m", "/opt/gb10/models/org--m/main"),
        ("org/m", "", "", False, "", None),
        ("", "/srv/m", "", True, "", None),
        ("", "/srv/m", "", True, "/mnt/m", "/srv/m"),
        ("", "/srv/m", "", False, "/mnt/m", None),
    ],
)
def test_where_a_model_lies(hub: str, path: str, revision: str, enabled: bool, source: str, folder: str | None) -> None:
    assert model_store.plan(hub, path, revision, "/opt/gb10", enabled, source).get("folder") == folder


@pytest.mark.parametrize(
    ("names", "exclude", "expected"),
    [
        (["b.bin", "a.safetensors", "c.pth", "config.json"], [], ["a.safetensors", "config.json"]),
        (["b.bin", "config.json"], [], ["b.bin", "config.json"]),
        (["original/a.safetensors", "b.bin", "deep/original/x"], ["original/*"], ["b.bin", "deep/original/x"]),
        (["a.gguf", "A.GGUF"], ["*.gguf"], ["A.GGUF"]),
    ],
)
def test_what_serving_needs(names: list[str], exclude: list[str], expected: list[str]) -> None:
    assert [found.path for found in model_store.chosen([File(name, 10) for name in names], exclude)] == expected


@pytest.mark.parametrize(
    ("files", "told"),
    [
        *((files, "it lists no files") for files in (None, [], "abc", {"path": "a"})),
        (["a", 7], "'a' is not a file entry; 7 is not a file entry"),
        *(
            ([file(path)], "is not a valid relative path")
            for path in (
                *("../x", "/etc/passwd", "a//b", "a/./b", "a\nb", "a\\b", "a\x1b[2J", "x" * 300, "a/" * 2000 + "b"),
                *("a\udc80", model_store.MANIFEST, f"a{model_store.PART}"),
            )
        ),
        ([file("a"), file("a")], "'a' is listed twice"),
        ([file("a"), file("a/b")], "'a' is both a file and a folder"),
        ([file("a", -1)], "'a' has the invalid size -1"),
        ([file("a", True)], "'a' has the invalid size True"),
        ([file("a", 1 << 60)], f"'a' has the invalid size {1 << 60}"),
        ([{"path": "a", "sha256": HASH}], "'a' has the invalid size None"),
        ([file("a", sha256="A" * 64)], "'a' has the invalid SHA-256 'AAA"),
        ([file(str(number)) for number in range(30_000)], "it lists 30000 files, the maximum is 20000"),
        ([file(f"../{number}") for number in range(12)], "; and 2 more"),
    ],
)
def test_what_strangers_list_has_types_and_limits(files: Any, told: str) -> None:
    assert told in model_store.files_problem(files, hashed=False)
    assert told in model_store.files_problem(files)
    assert model_store.parse(json.dumps({**manifest(), "files": files})) is None


def test_hashes_are_those_of_a_manifest_or_of_a_listing() -> None:
    unknown, wrong = [file("a", sha256="")], [{**file("a", sha256=""), "git": "x"}]
    assert model_store.files_problem(unknown, hashed=False) == ""
    assert model_store.files_problem(unknown) == "'a' has the invalid SHA-256 ''"
    assert model_store.files_problem(wrong, hashed=False) == "'a' has the invalid git hash 'x'"


JSON = nested(st.none() | st.booleans() | st.integers() | st.floats() | st.text())
PATHS = st.lists(
    st.sampled_from(["a", "..", ".", "", "b c", "\\", "\0", "\x1b", model_store.MANIFEST, f"a{model_store.PART}"]),
    max_size=5,
)
ENTRY = st.fixed_dictionaries(
    {"path": PATHS.map("/".join) | st.text() | JSON, "size": st.integers() | JSON, "sha256": st.just(HASH) | JSON}
)


@given(st.lists(ENTRY | JSON, max_size=4) | JSON, st.booleans())
def test_no_list_of_files_escapes_its_folder(files: Any, hashed: bool) -> None:
    if model_store.files_problem(files, hashed):
        return
    assert len({entry["path"] for entry in files}) == len(files)
    for entry in files:
        inside = os.path.normpath(f"/store/model/{entry['path']}")
        assert inside == f"/store/model/{entry['path']}"
        assert entry["path"].isprintable()
        assert 0 <= entry["size"] <= 1 << 50


@given(
    st.text()
    | JSON.map(json.dumps)
    | st.lists(ENTRY, max_size=2).map(lambda files: json.dumps({**manifest(), "files": files}))
)
def test_no_text_is_a_manifest_but_a_manifest(text: str) -> None:
    known = model_store.parse(text)
    assert known is None or (model_store.files_problem(known.plain()["files"]) == "" and len(known.digest) == 64)


REQUEST = st.lists(
    st.sampled_from(["/", HASH, "0", "1", "10", "11", "-1", "²", "٣", "/verified", "..", " ", "9" * 5000, "\n"]),
    max_size=7,
)


@given(REQUEST.map("".join) | st.text())
def test_a_request_is_for_a_file_of_the_manifest_or_refused(path: str) -> None:
    assert model_store.request(f"/{HASH}/0/7", HASH, [10]) == (0, 7, False)
    assert model_store.request(f"/{HASH}/0/0/verified", HASH, [10]) == (0, 0, True)
    if found := model_store.request(path, HASH, [10, 0]):
        assert found[:2] in {(0, at) for at in range(11)} | {(1, 0)}
        assert path.startswith(f"/{HASH}/")


@given(st.integers(), st.none() | st.integers(), st.integers(min_value=0), st.binary(max_size=100))
def test_an_answer_is_exactly_what_was_asked_for_or_refused(
    status: int, length: int | None, count: int, said: bytes
) -> None:
    problem = model_store.answer_problem(status, length, count, said)
    assert problem.isprintable()
    assert (problem == "") is ((status, length) == (200, count))


@given(st.binary(max_size=5000))
def test_what_a_peer_tells_is_one_safe_line(said: bytes) -> None:
    assert model_store.words(said).isprintable()
    assert len(model_store.words(said)) <= model_store.MOST_WORDS


def test_a_manifest_is_made_of_a_listing_and_read_back() -> None:
    assert model_store.parse(json.dumps(manifest())) == typed(manifest())
    assert typed(manifest()).plain() == manifest()
    invalid = (None, "", "{", "[]", "{}", "[" * 100_000, " " * (model_store.MOST_TEXT + 1))
    assert [model_store.parse(text) for text in invalid] == [None] * len(invalid)
    for name in ("model", "revision", "commit"):
        assert model_store.parse(json.dumps({**manifest(), name: None})) is None
    listing = model_store.parse(json.dumps({**manifest(file("a", sha256="")), "problem": None}), hashed=False)
    assert listing and listing.with_hashes([HASH]) == typed(manifest(file("a")))


def test_the_digest_is_that_of_the_files() -> None:
    assert typed(manifest()).digest == typed({**manifest(), "commit": "d"}).digest
    for other in (file("config.json", 11), file("other.json"), file("config.json", sha256="b" * 64)):
        assert typed(manifest()).digest != typed(manifest(other)).digest


@pytest.mark.parametrize(("there", "expected"), [({}, 30), ({"a": 4}, 26), ({"a": 10, "b": 20}, 0), ({"a": 11}, 30)])
def test_what_still_has_to_come(there: dict[str, int], expected: int) -> None:
    assert model_store.missing([File("a", 10), File("b", 20)], there) == expected


def nodes(count: int, **settings: Any) -> Sequence[PlannedNode]:
    given = [spark(number, "head" if number == 1 else "worker", **settings) for number in range(1, count + 1)]
    plan, problems = cluster_plan(given)
    assert problems == []
    return load.plan(plan).nodes


def test_each_node_sends_to_the_next() -> None:
    chain = model_store.chain(nodes(4, gb10_fabric_topology="switch"), ["spark2", "spark3", "spark4"])
    assert chain == {
        "spark1": {
            "upstream": "",
            "upstream_address": "",
            "listen": "10.110.0.1",
            "receiver": "10.110.0.2,10.110.1.2",
        },
        "spark2": {
            "upstream": "spark1",
            "upstream_address": "10.110.0.1",
            "listen": "10.110.0.2",
            "receiver": "10.110.0.3,10.110.1.3",
        },
        "spark3": {
            "upstream": "spark2",
            "upstream_address": "10.110.0.2",
            "listen": "10.110.0.3",
            "receiver": "10.110.0.4,10.110.1.4",
        },
        "spark4": {"upstream": "spark3", "upstream_address": "10.110.0.3", "listen": "", "receiver": ""},
    }


def test_who_has_the_model_is_left_out() -> None:
    address = "10.110.0.1"
    assert model_store.chain(nodes(4, gb10_fabric_topology="switch"), ["spark4"]) == {
        "spark1": {
            "upstream": "",
            "upstream_address": "",
            "listen": address,
            "receiver": "10.110.0.4,10.110.1.4",
        },
        "spark4": {"upstream": "spark1", "upstream_address": address, "listen": "", "receiver": ""},
    }
    assert model_store.chain(nodes(2), []) == {}


def test_in_a_ring_the_copy_goes_over_the_cables() -> None:
    ring = nodes(3, gb10_fabric_topology="ring", gb10_fabric_ports=[0, 1])
    chain = model_store.chain(ring, ["spark2", "spark3"])
    for sender, receiver in ((ring[0], ring[1]), (ring[1], ring[2])):
        address = chain[receiver.name]["upstream_address"]
        assert chain[sender.name]["listen"] == address
        assert any(rail.address.split("/")[0] == address and receiver.name in rail.peers for rail in sender.rails)
        cabled = next(rail for rail in receiver.rails if rail.peers.get(sender.name) == address)
        assert cabled.address.split("/")[0] in chain[sender.name]["receiver"].split(",")


def test_without_rails_the_cluster_s_addresses_are_used() -> None:
    plain = [
        typed_node({"name": name, "address": f"192.168.1.{number}", "rails": []})
        for number, name in enumerate(("a", "b"), 1)
    ]
    assert model_store.chain(plain, ["b"])["b"]["upstream_address"] == "192.168.1.1"


def info(free: int = 100 * GB, known: dict[str, Any] | None = None, **there: int) -> dict[str, Any]:
    return {
        "complete": known is not None,
        "manifest": known,
        "digest": typed(known).digest if known else "",
        "there": there,
        "free_bytes": free,
    }


BIG = manifest(file("a", 60 * GB))
STORE = {"folder": "/opt/gb10/models/m", "hub": "org/m", "revision": "main", "source": ""}


def decided(plan: Mapping[str, Any], hosts: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the result of the action model_store_plan on the plan's node."""
    arguments = {
        "model": plan["store"],
        "stored": "stored",
        "verify": False,
        "min_free_bytes": 10 * GB,
        "max_connections": 4,
        "port": 8472,
        "timeout": 43200,
        "exclude": ["*.gguf", "original/*"],
        "env": {"HTTPS_PROXY": "http://proxy", "HF_HUB_DISABLE_TELEMETRY": False},
        "token": False,
        **changes,
    }
    return decide("model_store_plan", arguments, plan, hosts)[0]


def judged(
    found: Mapping[str, Any], listing: Mapping[str, Any] | None, source: str = "", verify: bool = False
) -> dict[str, Any]:
    """Decide for nodes with these stored files, by name, and the head's listing."""
    nodes = [{"name": name, "address": name, "rails": []} for name in found]
    plan = fact({"store": {**STORE, "source": source}, "nodes": nodes})
    hosts = {name: {"stored": each, "listed": {"stdout": json.dumps(listing)}} for name, each in found.items()}
    return decided(plan, hosts, listed="listed" if listing else "", verify=verify)


LISTING = {**manifest(file("a", 60 * GB, "")), "problem": None}
REFUSED = {"path": "model_store_hub_token", "found": "gated", "expected": "a token", "fix": "give one"}


@pytest.mark.parametrize(
    ("found", "listing", "source", "problems"),
    [
        pytest.param([info(), info()], LISTING, "", [], id="room"),
        pytest.param([info(11 * GB, a=59 * GB), info()], LISTING, "", [], id="most has come"),
        pytest.param([info(0), info()], LISTING, STORE["folder"], [], id="the head has it already"),
        pytest.param([info(0, BIG, a=60 * GB), info()], None, "", [], id="the head has it complete"),
        pytest.param([info(), info(0, BIG, a=60 * GB)], LISTING, "", [], id="the other has it complete"),
        pytest.param(
            [info(60 * GB), info(), info(3 * GB)],
            LISTING,
            "",
            [
                "nodes[0]./opt/gb10/models/m: spark1 has 60.0 GB free, and 60.0 GB of 60.0 are missing. "
                "Expected: 70.0 GB free, so that 10.0 GB remain",
                "nodes[2]./opt/gb10/models/m: spark3 has 3.0 GB free",
            ],
            id="no room on two nodes",
        ),
        pytest.param(
            [info(0), info(0)],
            {**LISTING, "files": [], "problem": REFUSED},
            "",
            ["model_store_hub_token: gated. Expected: a token. Fix: give one."],
            id="the listing's problem is the only one",
        ),
        pytest.param(
            [info()], {**LISTING, "files": [file("../a")]}, "", ["'../a' is not a valid relative path"], id="untrusted"
        ),
    ],
)
def test_all_that_prevents_the_copy_is_reported_at_once(
    found: list[dict[str, Any]], listing: dict[str, Any] | None, source: str, problems: list[str]
) -> None:
    report = judged({f"spark{number}": each for number, each in enumerate(found, 1)}, listing, source)["report"]
    assert report.count("Expected:") == len(problems)
    assert all(problem in report for problem in problems), report


@pytest.mark.parametrize(
    ("second", "verify", "receivers"),
    [
        (info(), False, ["spark2"]),
        (info(known=BIG), False, []),
        (info(known=BIG), True, ["spark2"]),
        (info(known=manifest()), False, ["spark2"]),
        ({**info(known=BIG), "complete": False}, False, ["spark2"]),
    ],
)
def test_who_receives(second: dict[str, Any], verify: bool, receivers: list[str]) -> None:
    answer = judged({"spark1": info(known=BIG), "spark2": second}, None, verify=verify)
    found = (answer["receivers"], answer["fetches"], "relay" in answer["argv"])
    assert found == (receivers, verify, bool(receivers))


def test_a_list_that_is_no_json_is_reported() -> None:
    """The role cleans up by the same result."""
    plan = fact({"store": STORE})
    hosts = {name: {"stored": info(), "listed": {"stdout": "Traceback"}} for name in ("spark1", "spark2")}
    answer = decided(plan, hosts, listed="listed")
    assert answer["report"].startswith("spark1: the list of the model's files is not readable")
    assert (answer["units"]["fetch"], answer["files"]["folder"]) == ("gb10-model-fetch.service", "/run/gb10-model")


def test_after_the_download_the_others_get_its_files() -> None:
    hosts = {"spark1": {"stored": info(), "now": info(known=BIG)}, "spark2": {"stored": info(known=manifest())}}
    answer = decided(fact({"store": STORE}), hosts, fetched="now")
    assert (answer["receivers"], answer["fetches"], answer["report"]) == (["spark2"], True, "")


SANDBOX = [
    "--collect",
    "--quiet",
    "--property=CapabilityBoundingSet=CAP_DAC_OVERRIDE",
    "--property=NoNewPrivileges=yes",
    "--property=PrivateDevices=yes",
    "--property=PrivateTmp=yes",
    "--property=ProtectHome=read-only",
    "--property=ProtectKernelTunables=yes",
    "--property=ProtectSystem=strict",
    "--property=RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "--property=UMask=0022",
    "--property=RuntimeMaxSec=43200",
]
OF_HUB = ["--setenv=HF_HUB_DISABLE_TELEMETRY=False", "--setenv=HF_HUB_DISABLE_PROGRESS_BARS=1"]
PROXY = "--setenv=HTTPS_PROXY=http://proxy"
TOKEN = "--property=LoadCredential=hub.token:/run/gb10-model/hub.token"
COPYING = ["--service-type=exec", "--property=ReadWritePaths=/run/gb10-model /opt/gb10/models/m"]
PROGRAM = ["-I", "-B", "/usr/local/lib/gb10-model"]


@pytest.mark.parametrize("token", [False, True])
def test_the_units_of_a_download(token: bool) -> None:
    plan = fact({"store": STORE, "runtime": {"path": "/opt/gb10/runtime/1"}})
    hosts = {name: {"stored": info()} for name in ("spark1", "spark2")}
    argv = decided(plan, hosts, token=token)["argv"]
    hub = [*[TOKEN] * token, *OF_HUB, PROXY]
    assert argv["list"] == [
        *("systemd-run", "--wait", "--pipe", "--unit=gb10-model-list.service"),
        *SANDBOX,
        *hub,
        *("python3", *PROGRAM, "list", "--hub=org/m", "--revision=main", "--source="),
        *("--exclude=*.gguf", "--exclude=original/*"),
    ]
    assert argv["fetch"] == [
        *("systemd-run", "--unit=gb10-model-fetch.service", "--setenv=HF_HOME=/opt/gb10/models/m/.cache/hub"),
        *SANDBOX,
        *COPYING,
        *hub,
        *("/opt/gb10/runtime/1/bin/python", *PROGRAM, "fetch", "--listing=/run/gb10-model/listing.json"),
        *("--folder=/opt/gb10/models/m", "--source=", "--status=/run/gb10-model/status.json", "--streams=4"),
    ]


@pytest.mark.parametrize(
    ("source", "runtime", "python"),
    [
        ("/mnt/m", {}, "python3"),
        ("", {"kind": "container", "image": "i", "engine": "docker"}, "/opt/gb10/hub/bin/python"),
    ],
)
def test_who_runs_the_download(source: str, runtime: Any, python: str) -> None:
    plan = fact({"store": {**STORE, "source": source}, "runtime": runtime, "root": "/opt/gb10"})
    answer = decided(plan, {name: {"stored": info()} for name in ("spark1", "spark2")}, verify=True)
    for name, expected in {"list": "python3", "fetch": python}.items():
        argv = answer["argv"][name]
        assert argv[argv.index("-I") - 1] == expected
    assert (answer["argv"]["fetch"][-1], answer["library"]) == ("--verify", "/opt/gb10/hub")


@pytest.mark.parametrize("head", [False, True])
def test_the_unit_of_the_copy_between_nodes(head: bool) -> None:
    """The head has verified its files during the download."""
    plan = fact({"store": STORE})
    plan["node"] = plan["nodes"][0 if head else 1]
    hosts = {"spark1": {"stored": info(known=BIG)}, "spark2": {"stored": info()}}
    answer = decided(plan, hosts, verify=True)
    address = plan["nodes"][1]["rails"][0]["peers"]["spark1"]
    listen, upstream, of_upstream = (address, "", "") if head else ("", "spark1", address)
    assert answer["argv"]["relay"] == [
        *("systemd-run", "--unit=gb10-model-relay.service"),
        *SANDBOX,
        *COPYING,
        *("python3", *PROGRAM, "relay", "--folder=/opt/gb10/models/m", "--manifest=/run/gb10-model/manifest.json"),
        *("--status=/run/gb10-model/status.json", "--port=8472", f"--listen={listen}", f"--upstream={upstream}"),
        *(f"--upstream-address={of_upstream}", "--streams=4"),
        *(["--receiver=10.110.0.2", "--receiver=10.110.1.2"] if head else ["--verify"]),
    ]


@pytest.mark.parametrize(
    ("done", "before", "seconds", "expected"),
    [
        (0, 0, 0, "receiving: 0.00 of 60.1 GB"),
        (12_300_000_000, 10_100_000_000, 2, "receiving: 12.3 of 60.1 GB, 1.1 GB/s"),
        (12_300_000_000, 12_000_000_000, 2, "receiving: 12.3 of 60.1 GB, 150 MB/s"),
    ],
)
def test_progress_reads_well(done: int, before: int, seconds: float, expected: str) -> None:
    assert model_store.line({"state": "receiving", "done": done, "total": 60_100_000_000}, before, seconds) == expected


def test_a_file_counts_and_not_its_older_part(tmp_path: Path) -> None:
    for name, size in (("a", 10), (f"a{model_store.PART}", 4), (f"b{model_store.PART}", 3)):
        (tmp_path / name).write_bytes(bytes(size))
    assert io_files.there(str(tmp_path)) == {"a": 10, "b": 3}


def test_a_node_s_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "m"

    def read() -> tuple[dict[str, int], bool]:
        return io_files.there(str(folder)), io_files.complete(str(folder))

    assert read() == ({}, False)
    assert io_file.free_bytes(str(folder)) > 0
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_bytes(b"x" * 10)
    (folder / "sub" / f"b{model_store.PART}").write_bytes(b"x" * 4)
    assert read() == ({"a": 10, "sub/b": 4}, False)
    (folder / model_store.MANIFEST).write_text(json.dumps(manifest(file("a", 10))), encoding="utf-8")
    assert read()[1]
    (folder / "a").write_bytes(b"x" * 9)
    assert not read()[1]


def test_the_module_reads_the_folder_and_how_far_a_unit_is(tmp_path: Path) -> None:
    texts = "LoadState ActiveState SubState UnitFileState Result InvocationID Environment"
    numbers = "MainPID NRestarts ExecMainStatus ExecMainStartTimestampMonotonic"
    lines = f"for name in {texts}; do echo $name=active; done; for name in {numbers}; do echo $name=0; done"
    status, path = tmp_path / "status.json", program(tmp_path, "systemctl", lines)
    given = {"folder": str(tmp_path / "m"), "unit": "gb10-model-relay.service", "status": str(status)}
    answer = run_module("model_store_info", given, path)
    unknown = {"active": "active", "state": "", "done": 0, "total": 0, "reason": ""}
    assert (answer["manifest"], answer["digest"], answer["left"], answer["progress"]) == (None, "", True, unknown)
    status.write_text('{"state": "receiving", "done": 5, "total": 10, "reason": ""}', encoding="utf-8")
    assert run_module("model_store_info", given, path)["progress"]["done"] == 5


LOST = AnsibleConnectionFailure("no route")


class Clock:
    """Replaces the module time: only sleep() advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def progress(state: str = "receiving", done: int = 0, active: str = "active", reason: str = "") -> dict[str, Any]:
    return {"progress": {"active": active, "state": state, "done": done, "total": 10 * GB, "reason": reason}}


def waited(monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the step's result and its output; the last answer of the module is repeated."""
    call, display = mock.Mock(side_effect=itertools.chain(answers, itertools.repeat(answers[-1]))), mock.Mock()
    asked, host = (
        {"folder": "/m", "unit": "gb10-model-relay.service", "status": "/run/s"},
        {"inventory_hostname": "spark2"},
    )
    monkeypatch.setattr(polling, "time", Clock())
    monkeypatch.setattr(polling, "Display", lambda: display)
    step = cast("Decision", mock.Mock(spec=Decision, module=call))
    result = model_store_wait.run(step, model_store_wait.Inputs(**asked, timeout=600), host)
    call.assert_called_with(asked, host, "gb10.cluster.model_store_info")
    return result, [shown.args[0] for shown in display.display.call_args_list]


def test_waiting_shows_how_fast_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [progress(done=number * GB) for number in range(9)]
    result, shown = waited(monkeypatch, [*answers, progress("complete", 10 * GB)])
    assert result == {"changed": False, "reason": ""}
    assert shown == [
        "  spark2: receiving: 0.00 of 10.0 GB",
        "  spark2: receiving: 7.0 of 10.0 GB, 467 MB/s",
    ]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([progress(), progress("failed", reason="the disk is full")], "spark2: the disk is full"),
        ([progress("failed", active="inactive", reason="the disk is full")], "spark2: the disk is full"),
        (
            [progress(), progress(active="inactive")],
            "spark2: gb10-model-relay.service has stopped. Fix: see journalctl -u gb10-model-relay.service",
        ),
        ([{"failed": True, "msg": "no such thing"}], "spark2: no such thing"),
        ([progress(), LOST], "spark2 is no longer reachable: no route"),
        ([progress(done=GB)], "spark2: timeout after 605 s, receiving: 1.0 of 10.0 GB"),
        ([progress(), LOST, LOST, progress(), progress("complete")], ""),
    ],
)
def test_what_ends_the_wait(monkeypatch: pytest.MonkeyPatch, answers: list[Any], reason: str) -> None:
    assert waited(monkeypatch, answers)[0] == {"changed": False, "reason": reason}
