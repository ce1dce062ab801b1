"""A vLLM that the lab built from source: the wheel and its stamp, the runtime, refused inputs, faults, and the
return."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import Cluster, extra, of_unit
from repository import ROOT
from run_playbook import Run, run_and_kill
from stored_builds import PATCHES, STORE, stamps
from testinfra.host import Host

SCENARIO, UNIT = ROOT / "molecule" / "vllm_build", "gb10-vllm-build.service"


def site(cluster: Cluster, *arguments: str, tags: str = "vllm_build") -> Run:
    return cluster.site("--tags", tags, *arguments)


def version(host: Host) -> str:
    program = "import importlib.metadata; print(importlib.metadata.version('vllm'))"
    return str(host.check_output(f'/opt/gb10/runtime/current/bin/python -c "{program}"'))


def state(nodes: dict[str, Host]) -> dict[str, tuple[str, str]]:
    """Return the state that a failed build must not change: the environment and the main process of the ranks'
    service."""
    return {
        name: (host.check_output("readlink /opt/gb10/runtime/current"), of_unit(host, "gb10-ray"))
        for name, host in nodes.items()
    }


@pytest.fixture
def unchanged(nodes: dict[str, Host]) -> Iterator[None]:
    before = state(nodes)
    yield
    assert state(nodes) == before


def test_every_node_runs_the_one_wheel_that_was_built(cluster: Cluster, head: Host, nodes: dict[str, Host]) -> None:
    found = {name: stamps(host) for name, host in nodes.items()}
    assert len({json.dumps(stamp, sort_keys=True) for stamp in found.values()}) == 1
    ((name, stamp),) = stamps(head).items()
    assert (stamp["name"], stamp["patches"], stamp["torch"]) == (name, PATCHES, "2.13.0")
    assert str(stamp["source"]).endswith("d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad")
    for host in nodes.values():
        assert host.check_output(f"sha256sum {STORE}/wheels/{name}/*.whl").split()[0] == stamp["sha256"]
        assert re.fullmatch(r"0\.32\.0\+gb10\.[0-9a-f]{8}\.cpu", version(host))
        spinloop = host.check_output("ls /opt/gb10/runtime/current/lib/python3*/site-packages/vllm/spinloop*.so")
        assert spinloop.count("\n") == 0
        # Root's uv has installed nothing else of the wheel.
        record = host.check_output("cat /opt/gb10/runtime/current/lib/python3*/site-packages/vllm-*.dist-info/RECORD")
        names = [row[0] for row in csv.reader(record.splitlines())]
        assert {re.split("[/-]", name)[0] for name in names} == {"..", "vllm"}
        assert [name for name in names if name.startswith("../")] == ["../../../bin/vllm"]
    cluster.site("--tags", "vllm_serve").assert_ok()


def test_the_build_ran_in_its_sandbox(head: Host) -> None:
    assert head.check_output("stat --format=%a /var/lib/private/gb10-vllm-build") == "700"
    assert head.check_output("stat --format=%U /var/lib/private/gb10-vllm-build/work") != "root"
    assert head.run(f"systemctl is-active {UNIT}").failed, "its user is gone with it"
    log = head.check_output(f"cat {STORE}/build.log")
    assert re.search(r"\[\d+/\d+\] Building CXX object \S*spinloop", log)
    assert "Cacheable calls" in log, "the statistics of ccache"
    assert head.check_output(f"stat --format='%U %a' {STORE}/wheels {STORE}/tree") == "root 755\nroot 755"


def test_the_plan_shows_the_build(cluster: Cluster) -> None:
    cluster.play("plan").assert_ok("vLLM was built from source:", f"patches: {', '.join(PATCHES)}")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"vllm_build_checksum": "0" * 64}, "Expected: " + "0" * 64),
        ({"vllm_build_patches": ["does-not-exist.patch"]}, "vllm_build_patches[0]"),
        ({"vllm_build_enabled": "auto"}, "vllm_build_enabled: 'auto'"),
        ({"vllm_build_source": "https://github.com/vllm-project/vllm.git"}, "vllm_build_commit: ''"),
        (
            {"vllm_build_environment": {"MAX_JOBS": "9", "OTHER": "1"}},
            "vllm_build_environment: MAX_JOBS",
        ),
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_wrong_inputs_are_refused(cluster: Cluster, variables: dict[str, object], expected: str) -> None:
    site(cluster, *extra(**variables)).assert_failed(expected)


#: A repository of a few files of the scenario's source, with the tag of its release.
REPOSITORY = "/srv/vllm.git"
CHECKOUT = f"""\
set -e
mkdir -p {REPOSITORY} && cd {REPOSITORY} && git init --quiet
tree=$(ls -d {STORE}/source/*/ | head -1)
cp "$tree/CMakeLists.txt" "$tree/pyproject.toml" .
git add . && git -c user.name=n -c user.email=e commit --quiet -m all && git tag v0.32.0
git rev-parse HEAD
"""


@pytest.mark.usefixtures("unchanged")
def test_a_commit_other_than_the_pinned_one_is_refused(cluster: Cluster, head: Host) -> None:
    """A tag that was moved: its commit is not vllm_build_commit."""
    moved, pinned, before = head.check_output(CHECKOUT), "0" * 40, head.check_output(f"stat --format=%i {STORE}/tree")
    try:
        moved_tag = extra(
            vllm_build_enabled=True,
            vllm_build_source=f"file://{REPOSITORY}",
            vllm_build_commit=pinned,
            vllm_build_patches=[],
        )
        refused = site(cluster, *moved_tag)
    finally:
        head.check_output(f"rm -rf {REPOSITORY} {STORE}/source/{pinned[:12]} {STORE}/source/{pinned[:12]}.complete")
    refused.assert_failed()
    assert f"vllm_build_commit: {STORE}/source/{pinned[:12]} is commit {moved}. Expected: {pinned}." in " ".join(
        refused.output.split()
    )
    assert head.check_output(f"stat --format=%i {STORE}/tree") == before


def patched(folder: Path, least: str) -> tuple[str, str]:
    """Return variables with a patch of one line more, which makes another build."""
    path, old = folder / "more.patch", "cmake>=3.26.1"
    file, place = "requirements/build/cpu.txt", "@@ -1,2 +1,2 @@"
    text = f"--- a/{file}\n+++ b/{file}\n{place}\n-{old}\n+cmake>={least}\n ninja\n"
    path.write_text(text, encoding="utf-8")
    return extra(vllm_build_patches=[*(str(SCENARIO / name) for name in PATCHES), str(path)])


@pytest.mark.disruptive
@pytest.mark.usefixtures("unchanged")
def test_a_build_without_disk_space_fails(cluster: Cluster, head: Host, tmp_path: Path) -> None:
    other = patched(tmp_path, "3.28")
    # Enough bytes for the requirement, and too few files for the source.
    head.check_output("mount --types tmpfs --options size=8g,nr_inodes=2000,mode=700 tmpfs /var/lib/private")
    try:
        refused = site(cluster, *other)
    finally:
        head.check_output("umount /var/lib/private")
    refused.assert_failed("No space left on device", "the runtime is unchanged")


@pytest.mark.disruptive
@pytest.mark.usefixtures("unchanged")
def test_a_killed_build_continues(cluster: Cluster, head: Host, tmp_path: Path) -> None:
    """The run is killed while the unit builds; the unit is killed; then the next run builds with ccache's results."""
    other, before = patched(tmp_path, "3.29"), stamps(head).keys()

    def running() -> bool:
        return bool(head.run(f"systemctl is-active {UNIT}").succeeded)

    run_and_kill(
        "site.yml",
        [*cluster.arguments, "--tags", "vllm_build", *other],
        "Build vLLM, or wait for its build",
        until=running,
    )
    assert running()
    head.check_output(f"systemctl kill --signal=KILL {UNIT}")
    site(cluster, *other).assert_ok()
    assert len(stamps(head).keys() - before) == 1
    site(cluster, *other).assert_unchanged()


@pytest.mark.disruptive
def test_switching_the_build_off_returns_to_the_published_wheel(cluster: Cluster, nodes: dict[str, Host]) -> None:
    cluster.site(*extra(vllm_build_enabled=False)).assert_ok()
    assert {version(host) for host in nodes.values()} == {"0.32.0"}
    back = cluster.site()
    back.assert_ok()
    assert all("+gb10." in version(host) for host in nodes.values())
    assert "Build vLLM, or wait for its build" not in back.output
