"""Which items of a node are removed, which are kept and why, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import plan, report, table
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.plan import Found, NodeState, Step

ROOT, HOME = "/opt/gb10", "/var/lib/gb10"
FOLDER, FILE = Found("folder"), Found("file")


def node(paths: dict[str, Found], **changes: Any) -> NodeState:
    """Return a node with these paths, each folder with the names below it."""
    found = dict(paths)
    for path, entry in paths.items():
        if entry.type == "folder":
            names = [name.removeprefix(f"{path}/") for name in paths if name.rpartition("/")[0] == path]
            found[path] = Found("folder", entry.owner, names=[*entry.names, *names])
    return NodeState(**{"paths": found, "roots": {ROOT: ""}, **changes})


INSTALLED = {
    ROOT: FOLDER,
    f"{ROOT}/runtime": FOLDER,
    f"{ROOT}/models": FOLDER,
    table.CONFIGURATION: FOLDER,
    f"{table.CONFIGURATION}/cluster.env": FILE,
    table.USERS.path: FOLDER,
    "/etc/systemd/system/gb10-vllm.service": FILE,
    "/etc/systemd/system/gb10-ray.service": FILE,
    HOME: Found("folder", 990),
}


def decide(found: NodeState, models: bool = False) -> dict[str, Step]:
    steps = plan.decide(found, models)
    assert len({step.name for step in steps}) == len(steps), "no path has two steps"
    return {step.name: step for step in steps}


def verbs(steps: dict[str, Step]) -> dict[str, str]:
    return {name: step.verb for name, step in steps.items()}


def test_a_fresh_node_has_no_steps() -> None:
    assert plan.decide(node({}), models=True) == []


@pytest.mark.parametrize(("found", "kind"), [(FOLDER, "tree"), (FILE, "file")])
def test_a_program_goes_as_a_file_and_as_the_folder_of_an_earlier_release(found: Found, kind: str) -> None:
    path, left = "/usr/local/lib/gb10-gates", "/usr/local/lib/.gb10-gates.x"
    steps = decide(node({path: found}, temporary={path: [] if kind == "tree" else [left]}))
    assert [(step.verb, step.kind, step.name) for step in steps.values()] == [
        ("remove", kind, path),
        *([("remove", "file", left)] if kind == "file" else []),
    ]


def test_everything_goes_in_order_and_models_stay() -> None:
    steps = decide(
        node(
            INSTALLED,
            units=["gb10-ray.service", "gb10-vllm.service"],
            users={"gb10": True},
            firewall=["table inet gb10"],
        )
    )
    assert list(steps) == [
        "gb10-vllm.service",
        "gb10-ray.service",
        f"{ROOT}/runtime",
        f"{ROOT}/models",
        "/etc/systemd/system/gb10-ray.service",
        "/etc/systemd/system/gb10-vllm.service",
        f"{table.CONFIGURATION}/cluster.env",
        "gb10",
        HOME,
        table.USERS.path,
        "table inet gb10",
        table.CONFIGURATION,
    ]
    assert [name for name, verb in verbs(steps).items() if verb == "keep"] == [f"{ROOT}/models"]
    assert "-e reset_models=true" in steps[f"{ROOT}/models"].note


def test_models_go_on_request_with_their_folder() -> None:
    steps = verbs(decide(node(INSTALLED), models=True))
    assert (steps[f"{ROOT}/models"], steps[ROOT]) == ("remove", "remove")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (ROOT, "datasets"),
        (table.CONFIGURATION, "notes.txt"),
        ("/etc/systemd/system/gb10-ray.service.requires", "mine.mount"),
    ],
)
def test_a_folder_with_other_content_stays_and_names_it(folder: str, name: str) -> None:
    steps = decide(node({**INSTALLED, folder: Found("folder", names=[name])}), models=True)
    assert (steps[folder].verb, steps[folder].note) == ("keep", f"this collection did not create {name}")
    assert steps[f"{ROOT}/runtime"].verb == "remove"


def test_many_other_names_are_shortened() -> None:
    steps = decide(node({ROOT: Found("folder", names=[f"n{number}" for number in range(9)])}))
    assert steps[ROOT].note.endswith("n0, n1, n2, n3, n4, ...")


def test_a_mount_point_is_emptied_and_stays() -> None:
    installed = {**INSTALLED, f"{ROOT}/runtime/x": FOLDER}
    steps = decide(node(installed, mounts=["/", ROOT, f"{ROOT}/runtime"]), models=True)
    assert (steps[f"{ROOT}/runtime"].verb, steps[f"{ROOT}/models"].verb, ROOT in steps) == ("empty", "remove", False)
    empty = decide(node({ROOT: FOLDER, f"{ROOT}/runtime": FOLDER}, mounts=[ROOT, f"{ROOT}/runtime"]))
    assert verbs(empty) == {ROOT: "keep"}, "an empty mount point needs no further run"


def test_a_folder_with_a_mount_in_it_is_not_entered() -> None:
    steps = decide(node({HOME: Found("folder", 990)}, users={"gb10": False}, mounts=["/", f"{HOME}/cache"]))
    assert (steps[HOME].verb, f"{HOME}/cache is mounted in it" in steps[HOME].note) == ("keep", True)
    assert (
        decide(node({HOME: Found("folder", 990)}, users={"gb10": False}, mounts=[f"{HOME}-other"]))[HOME].verb
        == "remove"
    )


def test_a_link_in_place_of_a_folder_stays() -> None:
    steps = decide(node({**INSTALLED, f"{ROOT}/models": Found("link", target="/data/models")}), models=True)
    assert (steps[f"{ROOT}/models"].verb, steps[f"{ROOT}/models"].note) == ("keep", "it is a link to /data/models")
    assert ROOT not in steps, "the link has its own line"


def test_an_installation_folder_behind_a_link_stays() -> None:
    steps = decide(node({ROOT: FOLDER, f"{ROOT}/nccl": FOLDER}, linked=[ROOT]))
    assert verbs(steps) == {f"{ROOT}/nccl": "remove", ROOT: "keep"}


def test_root_removes_nothing_where_others_can_change_the_path() -> None:
    steps = decide(node(INSTALLED, roots={ROOT: "/opt belongs to user 1000"}))
    assert (steps[ROOT].verb, f"{ROOT}/runtime" in steps) == ("keep", False)
    assert steps[ROOT].note.startswith("/opt belongs to user 1000, ")


def test_a_user_without_a_record_stays() -> None:
    steps = decide(node({HOME: Found("folder", 990)}, other_user="gb10"))
    assert verbs(steps) == {"gb10": "keep"}
    assert "userdel gb10" in steps["gb10"].note


def test_a_home_of_root_stays() -> None:
    found = {HOME: Found("folder", 0), table.USERS.path: FOLDER}
    assert verbs(decide(node(found, users={"gb10": True}))) == {
        "gb10": "remove",
        HOME: "keep",
        table.USERS.path: "keep",
    }


def test_the_home_of_a_user_that_was_removed_by_hand_goes() -> None:
    assert verbs(decide(node({HOME: Found("folder", 990)}, users={"gb10": False}))) == {HOME: "remove"}


def test_a_record_names_only_users() -> None:
    assert plan.valid_users(["gb10", "root", "..", "a/b", "", "-x", "vllm-1", "Gb10"]) == ["gb10", "vllm-1"]


def test_the_network_state_stays_until_the_network_is_restored() -> None:
    state = {
        table.NETWORK_STATE: FOLDER,
        "/run/gb10-netplan.json": FILE,
        "/etc/systemd/system/gb10-netplan-restore.timer": FILE,
    }
    netplan = table.NETWORK[0].path
    before = decide(node({**state, netplan: FILE, f"{table.NETWORK_STATE}/original.json": FILE}))
    assert [step.verb for step in before.values()] == ["restore"]
    assert netplan in next(iter(before))
    assert set(verbs(decide(node(state))).values()) == {"remove"}
    assert set(verbs(decide(node(state)))) == set(state)


def test_an_unknown_former_network_is_reported() -> None:
    (step,) = plan.decide(node({table.NETWORK[0].path: FILE}), models=False)
    assert (step.verb, step.note) == (
        "restore",
        "the former network is unknown: the devices keep their addresses until a boot",
    )


def test_files_of_the_firewall_are_removed_once() -> None:
    rules, link = table.FIREWALL[0].path, f"/etc/systemd/system/gb10-ray.service.requires/{table.FIREWALL_UNIT}"
    found = {table.CONFIGURATION: FOLDER, rules: FILE, link: Found("link"), link.rpartition("/")[0]: FOLDER}
    steps = decide(node(found, firewall=[rules, "table inet gb10"]))
    assert list(steps) == [f"{rules}, table inet gb10", link, link.rpartition("/")[0], table.CONFIGURATION]
    assert list(decide(node(found))) == [rules, link, link.rpartition("/")[0], table.CONFIGURATION], (
        "without nft and its unit"
    )


def test_a_firewall_whose_unit_file_is_gone_is_stopped() -> None:
    unit = table.FIREWALL_UNIT
    assert verbs(decide(node({}, units=[unit]))) == {unit: "stop"}
    firewall = [f"/etc/systemd/system/{unit}"]
    assert verbs(decide(node({firewall[0]: FILE}, units=[unit], firewall=firewall))) == {firewall[0]: "remove"}


def test_temporary_files_of_a_killed_run_go() -> None:
    token, part = table.CONFIGURATION + "/ray.token", table.CONFIGURATION + "/.ray.token.x1"
    steps = decide(node({table.CONFIGURATION: FOLDER, part: FILE}, temporary={token: [part]}))
    assert verbs(steps) == {part: "remove", table.CONFIGURATION: "remove"}
    assert plan.patterns(token) == [
        f"{table.CONFIGURATION}/.ray.token.*",
        f"{table.CONFIGURATION}/.ansible_tmp*ray.token",
    ]


def test_a_folder_in_place_of_a_file_stays() -> None:
    path = f"{table.CONFIGURATION}/cluster.env"
    assert verbs(decide(node({table.CONFIGURATION: FOLDER, path: FOLDER}))) == {path: "keep"}


def test_containers_and_tags_go_and_the_image_stays() -> None:
    steps = decide(
        node(
            {},
            containers=[("docker", "gb10-vllm")],
            tags=[("docker", "gb10.cluster/runtime:abc")],
            images=[("vllm@sha256:1", "0a")],
            silent=["podman"],
        )
    )
    assert list(verbs(steps).values()) == ["keep", "remove", "remove", "keep"]
    assert (steps["gb10-vllm"].engine, steps["vllm@sha256:1"].verb) == ("docker", "keep")
    assert "rmi 0a" in steps["vllm@sha256:1"].note


@pytest.mark.parametrize("folder", ["/", "/opt", "/opt/", "//srv", "opt/gb10", "", "/opt/../etc"])
def test_a_folder_of_the_system_is_refused(folder: str) -> None:
    with pytest.raises(ValueError, match="Fix: correct gb10_install_dir"):
        plan.roots(folder, [])


def test_installation_folders_come_from_the_units_too() -> None:
    unit = "ExecStart=/srv/second/runtime/0123456789ab/bin/python -m vllm --model /opt/gb10/models/a/runtime/x\n"
    assert plan.roots("/opt/gb10/", [unit, "", unit]) == ["/opt/gb10", "/srv/second"]


def test_mount_points_are_read_with_blanks() -> None:
    text = r"""36 35 98:0 / / rw,noatime master:1 - ext4 /dev/root rw
37 36 98:1 /x /mnt/a\040b rw - xfs /dev/sda rw
short
"""
    assert plan.mounts(text) == ["/", "/mnt/a b"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (5_240_000_000, "5.2 GB"), (3e15, "3000.0 TB")]
)
def test_sizes(count: int, text: str) -> None:
    assert report.size(count) == text


def test_the_list_has_kept_items_last() -> None:
    steps = [Step("keep", "tree", "/a", "models"), Step("remove", "file", "/b", "a token")]
    assert report.lines(steps, {"/a": 2000}) == ["remove /b (file): a token", "keep /a (tree, 2.0 kB): models"]
    assert report.lines([], {}) == ["nothing of this collection is left"]
