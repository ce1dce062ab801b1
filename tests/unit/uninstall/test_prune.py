"""The list of stored items and the removal of named ones, with real `du` and `rm` below a temporary folder."""

from __future__ import annotations

import copy
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import launches
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import io_node, io_prune, prune
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.prune import Item, Launches

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="acts as the service user")
USED, OLD = "runtime/0123456789ab", "runtime/aaaaaaaaaaaa"
IMAGE, BASE = "1" * 64, "2" * 64
IMAGES = (
    f"sha256:{IMAGE}\tvllm/vllm-openai\tv0.33.0\tsha256:{'3' * 64}\t20GB\n"
    f"sha256:{IMAGE}\tmine\tlatest\t<none>\t20GB\n"
    f"sha256:{BASE}\t<none>\t<none>\t<none>\t3 GB\n"
)


class Node:
    """A node below a folder: a record of a launch, and the stored items of it and of earlier launches."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.home = folder, folder / "opt/gb10", folder / "home"
        self.asked: list[list[str]] = []
        self.image = "unrelated"
        self.engine = self.broken = False

    def plan(self) -> dict[str, Any]:
        made: dict[str, Any] = copy.deepcopy(launches.PLAN)
        made["model"] = f"{self.root}/models/org--used/main"
        made["runtime"] |= {"path": f"{self.root}/{USED}", "image": self.image}
        return made

    def write(self) -> None:
        for path in (f"{USED}/a", f"{OLD}/a", "models/org--used/main/a", "models/org--used/mai/a", "nccl/x.so"):
            launches.put(self.root, f"/{path}", "x" * 5000)
        (self.root / "runtime/current").symlink_to(f"{self.root}/{USED}")
        for path in ("vllm/a", "a b/c"):
            launches.put(self.home, f"/.cache/{path}", "x")
        subprocess.run(["chown", "-R", "nobody", self.home], check=True)
        self.launch()

    def launch(self) -> None:
        record = launches.record(plan=self.plan())
        launches.put(self.folder, f"/records/{record.id}.json", rollback_record.text(record))

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(argv)
        if argv[0] in ("docker", "podman"):
            if self.broken:
                return 1, "", "no daemon"
            return 0, IMAGES if argv[:2] == ["docker", "image"] else "", ""
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def read(self) -> dict[str, Item]:
        return {item.name: item for item in io_prune.read(self.run, str(self.root), "nobody")}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    # As root's /opt, and unlike pytest's folders, users can enter it.
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest" in str(folder):
            folder.chmod(0o755)
    made = Node(tmp_path)
    monkeypatch.setattr(paths, "home", lambda _user: str(made.home))
    monkeypatch.setattr(paths, "UNIT_FOLDER", str(tmp_path / "units"))
    monkeypatch.setattr(io_record, "FOLDER", str(tmp_path / "records"))
    monkeypatch.setattr(io_record, "launch_files", dict)
    monkeypatch.setattr(io_node, "engines", lambda _texts, _roots: ["docker", "podman"] if made.engine else [])
    made.write()
    return made


def test_the_list_has_what_is_stored_and_who_needs_it(node: Node) -> None:
    found = node.read()
    assert found.keys() == {USED, OLD, "models/org--used/main", "models/org--used/mai", "nccl/x.so", "cache/vllm"}
    launch = f"launch {launches.record(plan=node.plan()).id[:12]}"
    assert {name for name, item in found.items() if item.kept} == {USED, "models/org--used/main"}
    (problem,) = prune.refused(list(found.values()), [USED, OLD, "models/none"])
    expected = "an item that no launch needs, in folders of root"
    assert (problem.path, problem.found, problem.expected) == (f"reset_prune: {USED}", f"needed by {launch}", expected)
    assert prune.lines(list(found.values()), [OLD]) == [
        f"{found['cache/vllm'].size:>9}  cache/vllm",
        f"{found['models/org--used/mai'].size:>9}  models/org--used/mai",
        f"{found['models/org--used/main'].size:>9}  models/org--used/main, needed by {launch}",
        f"{found['nccl/x.so'].size:>9}  nccl/x.so",
        f"{found[USED].size:>9}  {USED}, needed by {launch}",
        f"{found[OLD].size:>9}  {OLD}, to be removed",
    ]
    assert found["nccl/x.so"].size == "8.2 kB"
    assert prune.lines([], []) == ["nothing is stored"]


def test_only_the_given_items_are_removed(node: Node) -> None:
    found = node.read()
    io_prune.remove(node.run, [found[OLD], found["cache/vllm"], found["nccl/x.so"]])
    assert node.read().keys() == {USED, "models/org--used/main", "models/org--used/mai"}
    assert (node.root / "runtime/current/a").exists()


def test_nothing_may_go_while_a_record_cannot_be_read(node: Node) -> None:
    launches.put(node.folder, f"/records/{'0' * 64}.json", "{}")
    found = node.read()
    assert all(item.kept for name, item in found.items() if not name.startswith("cache/"))
    assert f"{'0' * 64}.json: record.content is 'missing'" in found[OLD].kept


def test_the_user_cannot_make_root_remove_files_elsewhere(node: Node) -> None:
    launches.put(node.folder, "/etc/vllm/kept", "x")
    found = node.read()["cache/vllm"]
    subprocess.run(["mv", node.home / ".cache", node.home / "old"], check=True)
    (node.home / ".cache").symlink_to(node.folder / "etc")
    with pytest.raises(io_node.UninstallError, match=r"runuser --user nobody -- rm .* failed"):
        io_prune.remove(node.run, [found])
    assert (node.folder / "etc/vllm/kept").exists()


@pytest.mark.parametrize(
    "name",
    [
        "models/org--other/main",
        "runtime/bbbbbbbbbbbb",
        "images/0a1b",
        "nccl/src",
        "build/wheels",
        "files/x.whl",
        "hub/models--org--name",
        "gateway/0.1",
    ],
)
def test_each_store_is_listed_by_its_items(node: Node, name: str) -> None:
    before = node.read().keys()
    launches.put(node.root, f"/{name}/part/file", "x")
    assert node.read().keys() - before == {name}


@pytest.mark.parametrize("folder", [".", "models", "models/org--used"])
def test_an_item_stays_where_another_user_could_replace_it_by_a_link(node: Node, folder: str) -> None:
    (node.root / folder).chmod(0o777)
    item = node.read()["models/org--used/mai"]
    assert item.kept.startswith("other users can write to ")
    assert prune.refused([item], [item.name])
    assert bool(node.read()[OLD].kept) is (folder == ".")


def test_images_have_all_their_names_and_are_removed_by_them(node: Node) -> None:
    node.engine = True
    found = node.read()
    used, base = found[f"image/{IMAGE[:12]}"], found[f"image/{BASE[:12]}"]
    names = ["vllm/vllm-openai:v0.33.0", "mine:latest"]
    assert (used.references, used.size, used.kept, base.references) == (names, "20GB", "", [BASE])
    io_prune.remove(node.run, [used, base])
    assert node.asked[-2:] == [["docker", "rmi", *names], ["docker", "rmi", BASE]]
    named, unnamed = prune.lines([used, base], [used.name])
    assert (named.split(maxsplit=2)[2], unnamed.split()[-2]) == ("(mine:latest, docker), to be removed", f"({BASE},")
    node.broken = True
    with pytest.raises(io_node.UninstallError, match="docker does not list its images: no daemon"):
        node.read()


@pytest.mark.parametrize(
    "named", [f"sha256:{IMAGE}", f"vllm/vllm-openai@sha256:{'3' * 64}", "vllm/vllm-openai:v0.33.0", "mine:latest"]
)
def test_an_image_of_a_launch_is_needed_under_each_of_its_names(node: Node, named: str) -> None:
    node.image, node.engine = named, True
    node.launch()
    assert node.read()[f"image/{IMAGE[:12]}"].kept


@pytest.mark.parametrize(
    ("text", "needed"), [('{"model": "org/name"}', True), ('{"model": "/opt/x"}', False), ('{"model": ""}', False)]
)
def test_the_hub_cache_is_needed_by_a_model_that_each_node_downloads(text: str, needed: bool) -> None:
    assert bool(prune.kept(prune.HUB_CACHE, [], Launches({"a launch": text}))) is needed


def test_the_user_may_not_exist(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwnam", {}.__getitem__)
    assert "cache/vllm" not in node.read()
