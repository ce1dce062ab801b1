"""Which items of a node are removed, which are kept and why, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.os_update.plan import BOOT_FILE, OPTIONS_FILE
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import plan, report, table
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.plan import Found, NodeState, Step

ROOT, HOME, ETC = "/opt/gb10", "/var/lib/gb10", table.CONFIGURATION
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
    ETC: FOLDER,
    f"{ETC}/cluster.env": FILE,
    table.USERS.path: FOLDER,
    "/etc/systemd/system/gb10-vllm.service": FILE,
    "/etc/systemd/system/gb10-ray.service": FILE,
    HOME: Found("folder", 990),
}


def decide(found: NodeState, models: bool = False) -> dict[str, str]:
    """Return "verb kind: note" of each step by its name, in their order."""
    steps = plan.decide(found, models)
    assert len({step.name for step in steps}) == len(steps), "no path has two steps"
    return {step.name: f"{step.verb} {step.kind}: {step.note}" for step in steps}


def test_everything_goes_in_order_and_models_stay() -> None:
    running = ["gb10-ray.service", "gb10-vllm.service"]
    found = node(INSTALLED, units=running, users={"gb10": True}, firewall=["table inet gb10"])
    assert list(decide(found).items()) == [
        ("gb10-vllm.service", "stop unit: service"),
        ("gb10-ray.service", "stop unit: service"),
        (f"{ROOT}/runtime", "remove tree: environments with vLLM and Ray"),
        (f"{ROOT}/models", "keep tree: models; -e reset_models=true removes them"),
        ("/etc/systemd/system/gb10-ray.service", "remove file: unit"),
        ("/etc/systemd/system/gb10-vllm.service", "remove file: unit"),
        (f"{ETC}/cluster.env", "remove file: environment of the ranks"),
        ("gb10", "remove user: service user, with its group"),
        (HOME, "remove tree: home of gb10"),
        (table.USERS.path, "remove tree: names of the created users"),
        ("table inet gb10", "remove firewall: access to the node's ports"),
        (ETC, "remove folder: configuration"),
    ]
    steps = decide(node(INSTALLED), models=True)
    assert (steps[f"{ROOT}/models"], steps[ROOT]) == ("remove tree: models", "remove folder: installation folder")


REQUIRED = "/etc/systemd/system/gb10-ray.service.requires"
PROGRAM, TOKEN, PART = "/usr/local/lib/gb10-gates", f"{ETC}/ray.token", f"{ETC}/.ray.token.x1"
GATES = "the gates before each start"
RULES, LINK = table.FIREWALL[0].path, f"{REQUIRED}/{table.FIREWALL_UNIT}"
FIREWALL = {ETC: FOLDER, RULES: FILE, LINK: Found("link"), REQUIRED: FOLDER}
UNIT = f"/etc/systemd/system/{table.FIREWALL_UNIT}"
NETPLAN = table.NETWORK[0].path
SYSCTL, _MANAGER, FORMER, *_others = (place.path for place in table.HOST)
STATE = {
    "/etc/systemd/system/gb10-netplan-restore.timer": FILE,
    table.NETWORK_STATE: FOLDER,
    "/run/gb10-netplan.json": FILE,
}
OWNED = {HOME: Found("folder", 990)}
#: A node, and its steps. Models are removed too.
CASES: dict[str, tuple[NodeState, dict[str, str]]] = {
    "a fresh node": (node({}), {}),
    "a program": (
        node({PROGRAM: FILE}, temporary={PROGRAM: [f"{PROGRAM}.x"]}),
        {PROGRAM: f"remove file: {GATES}", f"{PROGRAM}.x": "remove file: temporary file of a killed run"},
    ),
    "many names that are not ours": (
        node({ROOT: Found("folder", names=[f"n{number}" for number in range(9)])}),
        {ROOT: "keep folder: this collection did not create n0, n1, n2, n3, n4, ..."},
    ),
    "as many names as are shown": (
        node({ROOT: Found("folder", names=[f"n{number}" for number in range(5)])}),
        {ROOT: "keep folder: this collection did not create n0, n1, n2, n3, n4"},
    ),
    "a mount point": (
        node({ROOT: FOLDER, f"{ROOT}/runtime": Found("folder", names=["x"])}, mounts=["/", ROOT, f"{ROOT}/runtime"]),
        {
            f"{ROOT}/runtime": "empty tree: environments with vLLM and Ray; the folder is a mount point and stays",
        },
    ),
    "an empty mount point": (
        node({ROOT: FOLDER, f"{ROOT}/runtime": FOLDER}, mounts=[ROOT, f"{ROOT}/runtime"]),
        {ROOT: f"keep folder: {ROOT}/runtime is mounted in it; unmount it, and run again"},
    ),
    "a mount in a folder": (
        node(OWNED, users={"gb10": False}, mounts=["/", f"{HOME}/cache"]),
        {HOME: f"keep tree: {HOME}/cache is mounted in it; unmount it, and run again"},
    ),
    "a mount next to a folder": (
        node(OWNED, users={"gb10": False}, mounts=[f"{HOME}-other"]),
        {HOME: "remove tree: home of gb10"},
    ),
    "a link in place of a folder": (
        node({ROOT: FOLDER, f"{ROOT}/models": Found("link", target="/data/models")}),
        {f"{ROOT}/models": "keep tree: it is a link to /data/models"},
    ),
    "a link to the installation folder": (
        node({ROOT: FOLDER, f"{ROOT}/nccl": FOLDER}, linked=[ROOT]),
        {f"{ROOT}/nccl": "remove tree: builds and source of NCCL", ROOT: "keep folder: a link leads to it"},
    ),
    "others can change the installation folder": (
        node({ROOT: FOLDER, f"{ROOT}/runtime": FOLDER}, roots={ROOT: "/opt belongs to user 1000"}),
        {
            ROOT: "keep folder: /opt belongs to user 1000, so root removes nothing in it; make root its only owner, "
            "and run again"
        },
    ),
    "a user without a record": (
        node(OWNED, other_user="gb10"),
        {"gb10": f"keep user: it may have existed before; to remove it: userdel gb10, and then its home {HOME}"},
    ),
    "a home of root": (
        node({HOME: FOLDER, table.USERS.path: FOLDER}, users={"gb10": True}),
        {
            "gb10": "remove user: service user, with its group",
            HOME: "keep tree: it belongs to root, not to gb10",
            table.USERS.path: "keep tree: its users have a home that stays",
        },
    ),
    "the network before it is restored": (
        node({**STATE, NETPLAN: FILE, f"{table.NETWORK_STATE}/original.json": FILE}),
        {
            f"{NETPLAN}, {table.NETWORK_STATE}/original.json": "restore network: the network before the first run, "
            "with a rollback"
        },
    ),
    "the restored network": (
        node(STATE),
        {
            "/etc/systemd/system/gb10-netplan-restore.timer": "remove file: unit",
            table.NETWORK_STATE: "remove tree: state of the network rollback",
            "/run/gb10-netplan.json": "remove file: the applied netplan files",
        },
    ),
    "an unknown former network": (
        node({NETPLAN: FILE}),
        {NETPLAN: "restore network: the former network is unknown: the devices keep their addresses until a boot"},
    ),
    "the firewall": (
        node(FIREWALL, firewall=[RULES, "table inet gb10"]),
        {
            f"{RULES}, table inet gb10": "remove firewall: access to the node's ports",
            LINK: "remove file: order of the units",
            REQUIRED: "remove folder: settings of the unit",
            ETC: "remove folder: configuration",
        },
    ),
    "the firewall without nft and its unit": (
        node(FIREWALL),
        {
            RULES: "remove file: firewall rules",
            LINK: "remove file: order of the units",
            REQUIRED: "remove folder: settings of the unit",
            ETC: "remove folder: configuration",
        },
    ),
    "a firewall whose unit file is gone": (
        node({}, units=[table.FIREWALL_UNIT]),
        {table.FIREWALL_UNIT: "stop unit: service without its unit file"},
    ),
    "a firewall with its unit file": (
        node({UNIT: FILE}, units=[table.FIREWALL_UNIT], firewall=[UNIT]),
        {UNIT: "remove firewall: access to the node's ports"},
    ),
    "the protection of the host": (
        node({ETC: FOLDER, SYSCTL: FILE, FORMER: FILE, f"{FORMER}.x": FILE}, temporary={FORMER: [f"{FORMER}.x"]}),
        {
            f"{SYSCTL}, {FORMER}": "remove host: protection of the host; its former state returns",
            f"{FORMER}.x": "remove file: temporary file of a killed run",
            ETC: "remove folder: configuration",
        },
    ),
    "a kernel that did not start": (
        node({SYSCTL: FILE, BOOT_FILE: FILE}, hanging="6.17.0-1032-nvidia"),
        {
            SYSCTL: "remove host: protection of the host; its former state returns",
            BOOT_FILE: "keep host: without it, the kernel 6.17.0-1032-nvidia boots, which did not start; remove its "
            "packages, and run again",
        },
    ),
    "an update under way": (
        node({BOOT_FILE: FILE, OPTIONS_FILE: FILE}),
        {
            BOOT_FILE: "remove host: protection of the host; its former state returns",
            OPTIONS_FILE: "keep host: an installed kernel may need it; to boot without: remove it, and run update-grub",
        },
    ),
    "a temporary file": (
        node({ETC: FOLDER, PART: FILE}, temporary={TOKEN: [PART]}),
        {PART: "remove file: temporary file of a killed run", ETC: "remove folder: configuration"},
    ),
    "a folder in place of a file": (
        node({ETC: FOLDER, TOKEN: FOLDER}),
        {TOKEN: "keep file: it is a folder"},
    ),
    "containers": (
        node(
            {},
            containers=[("docker", "gb10-vllm")],
            tags=[("docker", "gb10.cluster/runtime:abc")],
            images=[("vllm@sha256:1", "0a")],
            silent=["podman"],
        ),
        {
            "containers and images of podman": "keep image: podman does not respond; start it, and run again",
            "gb10-vllm": "remove container: container of docker",
            "gb10.cluster/runtime:abc": "remove tag: tag of docker, and its image if nothing else names it",
            "vllm@sha256:1": "keep image: the node may have had this image before; the engine's command removes it: "
            "rmi 0a",
        },
    ),
    "a query of a killed run": (
        node({}, units=["run-u1.service"]),
        {"run-u1.service": "stop unit: query of a killed run"},
    ),
}


@pytest.mark.parametrize(("found", "steps"), CASES.values(), ids=CASES)
def test_each_item_goes_or_stays_for_a_reason(found: NodeState, steps: dict[str, str]) -> None:
    assert list(decide(found, models=True).items()) == list(steps.items())


@pytest.mark.parametrize(("folder", "name"), [(ROOT, "datasets"), (ETC, "notes.txt"), (REQUIRED, "mine.mount")])
def test_a_folder_with_other_content_stays_and_names_it(folder: str, name: str) -> None:
    steps = decide(node({**INSTALLED, folder: Found("folder", names=[name])}), models=True)
    assert steps[folder] == f"keep folder: this collection did not create {name}"
    assert steps[f"{ROOT}/runtime"].startswith("remove ")


def test_an_engine_is_that_of_its_container_and_tag() -> None:
    steps = plan.decide(node({}, containers=[("podman", "a")], tags=[("docker", "b")]), models=False)
    assert [(step.name, step.engine) for step in steps] == [("a", "podman"), ("b", "docker")]


def test_a_record_names_only_users() -> None:
    assert plan.valid_users(["gb10", "root", "..", "a/b", "", "-x", "vllm-1", "Gb10"]) == ["gb10", "vllm-1"]


def test_the_patterns_of_temporary_files() -> None:
    assert plan.patterns(TOKEN) == [f"{ETC}/.ray.token.*", f"{ETC}/.ansible_tmp*ray.token"]


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
