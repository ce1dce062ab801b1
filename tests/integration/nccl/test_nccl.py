"""A real NCCL build: its files, the processes that map it, refused inputs and the switch back. No GPU runs it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_libraries import libnccl
from live_cluster import Cluster, extra, of_unit, on_all
from repository import ROOT
from run_playbook import Run, run, run_and_kill
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_store as nccl_io_store

STORE = "/opt/gb10/nccl"
MACHINE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]


@pytest.fixture
def read(cluster: Cluster, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return nccl_info's result of each node, by node name."""

    def read(**variables: Any) -> dict[str, Any]:
        answer = tmp_path / "answer.json"
        given = extra(read_answer=str(answer), **variables)
        run("tests/integration/nccl/read.yml", [*cluster.arguments, *given]).assert_ok()
        return dict(json.loads(answer.read_text(encoding="utf-8")))

    return read


def site(cluster: Cluster, *arguments: str, tags: str = "nccl_sm121_build") -> Run:
    return cluster.site("--tags", tags, *arguments)


def used(host: Host) -> str:
    return str(host.check_output(f"readlink {STORE}/current"))


def test_every_node_has_the_one_library_that_was_built_for_its_gpu(
    read: Callable[..., dict[str, Any]], nodes: dict[str, Host]
) -> None:
    found = read()
    libraries = [info["library"] for info in found.values()]
    assert len({library["sha256"] for library in libraries}) == 1
    assert {library["path"] for library in libraries} == {f"{STORE}/current/lib/libnccl.so.2"}
    for library in libraries:
        assert library["native"] == ["12.1"]
        assert {code["architecture"] for code in library["code"] if code["kind"] == "cubin"} == {"sm_121", "sm_100f"}
    stamps = {host.file(f"{STORE}/current/stamp.json").content_string for host in nodes.values()}
    assert len(stamps) == 1
    stamp = json.loads(stamps.pop())
    assert (stamp["gencode"], stamp["sha256"]) == ("-gencode=arch=compute_121,code=sm_121", libraries[0]["sha256"])
    text = (ROOT / "roles/nccl_sm121_build/files/arm-send-fence.patch").read_bytes()
    assert stamp["patches"] == {"arm-send-fence": hashlib.sha256(text).hexdigest()}


def test_the_source_stays_and_a_copy_has_the_patch(head: Host) -> None:
    (plain, patched) = head.check_output(f"ls -d {STORE}/source/*").split()
    assert patched.startswith(f"{plain}+")
    fence = "grep -c memory_order_acquire {}/src/transport/net_ib/p2p.cc || true"
    assert [head.check_output(fence.format(tree)) for tree in (plain, patched)] == ["0", "1"]


def test_every_process_of_ray_has_it_mapped_and_no_other(read: Callable[..., dict[str, Any]]) -> None:
    for info in read().values():
        assert info["problems"] == []
        assert len(info["processes"]) > 3
        assert all(process["libraries"] for process in info["processes"])


def test_what_was_sent_is_offered_no_longer(head: Host, nodes: dict[str, Host]) -> None:
    assert head.run("systemctl is-active gb10-nccl-offer.service").rc != 0
    for host in nodes.values():
        assert host.check_output(f"ls -A {STORE} | grep '^[.]' || true") == ""


def test_again_nothing_is_built_or_sent(cluster: Cluster) -> None:
    site(cluster).assert_unchanged()
    site(cluster, "--check", "--diff").assert_unchanged()


@pytest.fixture
def offer(cluster: Cluster, workers: list[Host], tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Install a miniature build on the last node, and remove it after the test."""
    before = workers[-1].check_output(f"ls {STORE}").split()

    def offer(architecture: str, corrupt: bool = False) -> Run:
        library = tmp_path / "libnccl.so.2.30.7"
        library.write_bytes(libnccl(architecture, machine=MACHINE))
        sha256 = hashlib.sha256(library.read_bytes()).hexdigest()
        store, name = str(tmp_path / "store"), f"2.30.7-{sha256[:12]}"
        with nccl_io_store.part(store, name) as folder:
            nccl_io_store.fill(folder, str(library), {"sha256": sha256, "name": name})
        packed = tmp_path / "offered.tar"
        packed_sha256 = nccl_io_store.pack(store, name, str(packed))
        if corrupt:
            content = bytearray(packed.read_bytes())
            content[len(content) // 2] ^= 1
            packed.write_bytes(content)
        given = extra(
            install_file=str(packed), install_name=name, install_sha256=sha256, install_file_sha256=packed_sha256
        )
        return run("tests/integration/nccl/install.yml", [*cluster.arguments, *given])

    yield offer
    for name in set(workers[-1].check_output(f"ls {STORE}").split()) - set(before):
        workers[-1].check_output(f"rm -r {STORE}/{name}")


@pytest.mark.parametrize(
    ("architecture", "corrupt", "said"),
    [
        ("90", False, "not all programs have code for sm_121"),
        ("121", True, "artifact: /var/tmp/offered.tar has sha256 "),
    ],
    ids=["another GPU's", "corrupted"],
)
def test_a_build_that_is_not_right_is_refused(
    workers: list[Host], offer: Callable[..., Run], architecture: str, corrupt: bool, said: str
) -> None:
    before = workers[-1].check_output(f"ls -A {STORE}"), used(workers[-1])
    offer(architecture, corrupt).assert_failed(said)
    assert (workers[-1].check_output(f"ls -A {STORE}"), used(workers[-1])) == before


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a file that is not there": (
        {"nccl_sm121_build_source": "/none/nccl.tar.gz"},
        "nccl_sm121_build_source: /none/nccl.tar.gz does not exist",
    ),
    "another file than was meant": ({"nccl_sm121_build_checksum": "0" * 64}, f"Expected: {'0' * 64}"),
    "no toolkit": ({"nccl_sm121_build_cuda_home": "/nonexistent"}, "cuda_home: /nonexistent/bin/nvcc not found"),
    "no GPU that nvcc knows": ({"nccl_sm121_build_capabilities": ["13.7"]}, "does not support sm_137"),
    "a patch that is no file": (
        {"nccl_sm121_build_patches": ["arm-send"]},
        "a patch file on the controller, or one of",
    ),
    "functions that are none": ({"nccl_sm121_build_only_funcs": "AllReduce; reboot"}, "functions"),
}


@pytest.mark.parametrize("mistake", BAD)
def test_bad_input_changes_nothing(cluster: Cluster, head: Host, mistake: str) -> None:
    variables, said = BAD[mistake]
    before = head.check_output(f"ls -A {STORE}"), used(head)
    site(cluster, *extra(**variables)).assert_failed(said)
    assert (head.check_output(f"ls -A {STORE}"), used(head)) == before


def test_a_patch_that_does_not_fit_is_refused(cluster: Cluster, head: Host, tmp_path: Path) -> None:
    own = tmp_path / "own.patch"
    own.write_text("--- a/src/init.cc\n+++ b/src/init.cc\n@@ -1 +1 @@\n-none\n+other\n", encoding="utf-8")
    given = extra(nccl_sm121_build_patches=["arm-send-fence", str(own)])
    before = head.check_output(f"ls -A {STORE} {STORE}/source"), used(head)
    site(cluster, *given).assert_failed("nccl_sm121_build_patches[1]: own.patch does not apply")
    assert (head.check_output(f"ls -A {STORE} {STORE}/source"), used(head)) == before


def test_a_truncated_file_is_refused(cluster: Cluster, head: Host, tmp_path: Path) -> None:
    archive = tmp_path / "nccl.tar.gz"
    archive.write_bytes(b"\x1f\x8b\x08\x00truncated")
    before = used(head)
    site(cluster, "--extra-vars", f"nccl_sm121_build_source={archive}").assert_failed("Unpack the NCCL source archive")
    assert used(head) == before
    head.check_output(f"rm -r {STORE}/source/{hashlib.sha256(archive.read_bytes()).hexdigest()[:12]}")


def test_a_tag_that_is_not_there_is_refused(cluster: Cluster, head: Host) -> None:
    repository, author = "/opt/nccl.git", "-c user.name=a -c user.email=a@b"
    head.check_output(
        f"rm -rf {repository}; git init -q {repository} && git {author} -C {repository} commit -q --allow-empty -m a"
    )
    before = used(head)
    given = {"nccl_sm121_build_source": repository, "nccl_sm121_build_version": "v9.9.9-1"}
    unknown = site(cluster, *extra(**given))
    assert "nccl_sm121_build_version: v9.9.9-1 is a tag, which can be moved" in unknown.output
    site(cluster, *extra(**given, nccl_sm121_build_commit="0" * 40)).assert_failed("Check out the NCCL tag", "v9.9.9-1")
    assert used(head) == before
    head.check_output(f"rm -rf {repository} {STORE}/source/v9.9.9-1")


#: A build with other inputs. No test completes it, so no cache contains it.
OTHER = {"nccl_sm121_build_only_funcs": "SendRecv", "nccl_sm121_build_ccache": False}


def test_a_full_disk_is_said_before_anything_is_built(cluster: Cluster, head: Host) -> None:
    before = head.check_output(f"ls -A {STORE}"), used(head)
    size = int(head.check_output(f"du --summarize --block-size=1M {STORE}").split()[0]) + 32
    head.check_output(
        f"cp --archive {STORE} /var/tmp/store && mount -t tmpfs -o size={size}M store {STORE} && cp --archive "
        f"/var/tmp/store/. {STORE}"
    )
    try:
        refused = site(cluster, *extra(**OTHER)).assert_failed()
        assert re.search(r"disk: \d+ MiB are free", refused.output)
        assert (head.check_output(f"ls -A {STORE}"), used(head)) == before
    finally:
        head.check_output(f"umount {STORE} && rm -r /var/tmp/store")


def test_an_interrupted_build_leaves_the_one_that_is_used(cluster: Cluster, head: Host) -> None:
    before = used(head)
    arguments = [*cluster.arguments, "--tags", "nccl_sm121_build", *extra(**OTHER)]
    run_and_kill("site.yml", arguments, "Build NCCL for the GPUs of the cluster", after=20)
    # The processes of the interrupted run continue.
    for pid in head.check_output("pgrep --exact make || true").split():
        head.run(f"kill -9 {pid}")
    assert head.check_output(f"ls -d {STORE}/.build-*").count("\n") == 0
    assert used(head) == before
    site(cluster).assert_unchanged()
    head.check_output(f"rm -r {STORE}/.build-*")


@pytest.mark.disruptive
def test_another_build_is_used_and_the_first_again_without_building(
    cluster: Cluster,
    nodes: dict[str, Host],
    workers: list[Host],
    offer: Callable[..., Run],
    read: Callable[..., dict[str, Any]],
) -> None:
    first = used(workers[-1])
    offer("121").assert_ok()
    assert used(workers[-1]) != first
    # Ray still maps the first build, which the process check must detect.
    (name,) = (name for name, info in read().items() if info["problems"])
    problem = read()[name]["problems"][0]
    assert f"{name}, process " in problem
    assert f"it has mapped {STORE}/{first}/lib/libnccl.so." in problem
    back = site(cluster).assert_ok()
    assert back.changed_tasks() == {"Select the NCCL build when this node has it"}
    assert {used(host) for host in nodes.values()} == {first}
    assert all(info["problems"] == [] for info in read().values())


@pytest.mark.disruptive
def test_a_node_that_lost_it_gets_it_from_the_head_again(
    cluster: Cluster, nodes: dict[str, Host], workers: list[Host]
) -> None:
    first = used(workers[-1])
    workers[-1].check_output(f"truncate --size=1000 {STORE}/{first}/lib/libnccl.so.2")
    again = site(cluster).assert_ok()
    assert "Install and select the received NCCL build" in again.changed_tasks()
    assert "Build NCCL for the GPUs of the cluster when its inputs changed" not in again.changed_tasks()
    hashes = {host.check_output(f"sha256sum {STORE}/current/lib/libnccl.so.2").split()[0] for host in nodes.values()}
    assert len(hashes) == 1
    site(cluster).assert_unchanged()


@pytest.mark.disruptive
def test_without_patches_the_release_itself_is_built_and_used(cluster: Cluster, nodes: dict[str, Host]) -> None:
    first = {used(host) for host in nodes.values()}
    site(cluster, "--extra-vars", '{"nccl_sm121_build_patches": []}').assert_ok()
    (plain,) = {used(host) for host in nodes.values()}
    stamps = {host.file(f"{STORE}/{plain}/stamp.json").content_string for host in nodes.values()}
    assert (first != {plain}, ["patches" in json.loads(stamp) for stamp in stamps]) == (True, [False])
    back = site(cluster).assert_ok()
    assert "Build NCCL for the GPUs of the cluster when its inputs changed" not in back.changed_tasks()
    assert {used(host) for host in nodes.values()} == first


#: A stack for GPUs, so that auto has a decision to make. The lock keeps the lab's installed packages.
AUTO = ("--extra-vars", '{"gb10_stack": "vllm-0.32.0", "nccl_sm121_build_enabled": "auto"}')


@pytest.fixture
def wheel(cluster: Cluster, nodes: dict[str, Host], tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Install a library for an architecture in place of NVIDIA's wheel on every node; the lab has no wheel.

    Returns its path.
    """
    (folder,) = {
        host.check_output("ls -d /opt/gb10/runtime/current/lib/python3*/site-packages") + "/nvidia"
        for host in nodes.values()
    }
    place = f"{folder}/nccl/lib/libnccl.so.2"

    def wheel(architecture: str) -> str:
        library = tmp_path / "libnccl.so.2"
        library.write_bytes(libnccl(architecture, machine=MACHINE))
        content = base64.b64encode(library.read_bytes()).decode()
        on_all(nodes, f"rm -rf {folder}; mkdir -p {folder}/nccl/lib; echo {content} | base64 -d > {place}")
        return place

    yield wheel
    on_all(nodes, f"rm -rf {folder}")
    site(cluster).assert_ok()


@pytest.mark.disruptive
def test_auto_takes_what_the_runtime_brings_unless_the_gpu_cannot_run_it(
    cluster: Cluster, nodes: dict[str, Host], wheel: Callable[[str], str]
) -> None:
    built = {used(host) for host in nodes.values()}
    place = wheel("121")
    site(cluster, *AUTO).assert_ok("the NCCL of the runtime is used", "code for 12.1")
    record = "/etc/gb10/overrides.d/nccl_sm121_build.json"
    assert {host.file(record).exists for host in nodes.values()} == {False}
    site(cluster, *AUTO).assert_unchanged()
    # Another vLLM release may include such a library.
    assert wheel("90") == place
    site(cluster, *AUTO).assert_ok("NCCL is built", "NCCL 2.30.7 has no code that compute capability 12.1 can run")
    assert {host.check_output(f"readlink {place}") for host in nodes.values()} == {
        f"{STORE}/{name}/lib/libnccl.so.2" for name in built
    }
    assert {host.file(record).exists for host in nodes.values()} == {True}
    # The link is not the runtime's own library. The second run decides from the saved original next to it.
    site(cluster, *AUTO).assert_unchanged()


# This test runs last and does not restore the state, because Ray restarts slowly.
@pytest.mark.disruptive
def test_without_it_the_ranks_are_started_as_before(cluster: Cluster, nodes: dict[str, Host]) -> None:
    off = ("--extra-vars", '{"nccl_sm121_build_enabled": false}')
    shown = {host.check_output("grep -c ^LD_PRELOAD= /etc/gb10/cluster.env") for host in nodes.values()}
    assert shown == {"1"}
    cluster.site("--tags", "nccl_sm121_build,ray_cluster", *off).assert_ok()
    for host in nodes.values():
        assert "LD_PRELOAD" not in host.file("/etc/gb10/cluster.env").content_string
        pid = of_unit(host, "gb10-ray")
        assert host.run(f"grep -q libnccl /proc/{pid}/maps").rc == 1
