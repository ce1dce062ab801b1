"""Patches of NCCL's source: applied to a copy, named after its content, by the real git."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import cluster_plan, spark
from repository import read

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import build, io_build, patches
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.build import Release, Source
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.node.toolkit import Toolkit

#: As the sources have it from 2.29.2 to 2.32.3. tests/nccl applies the patch to Debian's complete source.
ISEND = """  if (slots[0].idx != idx) { *request = NULL; return ncclSuccess; }
  nreqs = slots[0].nreqs;
  // Wait until all data has arrived
"""
FENCE = {"name": "arm-send-fence", "text": read("roles/nccl_sm121_build/files/arm-send-fence.patch")}
OWN = {
    "name": "own.patch",
    "text": "--- a/src/init.cc\n+++ b/src/init.cc\n@@ -1 +1 @@\n-// init\n+// our init\n",
}
GB10 = ComputeCapability.parse("12.1")


def run(argv: Sequence[str]) -> tuple[int, str, str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def source(tmp_path: Path) -> Source:
    files = {"src/transport/net_ib/p2p.cc": ISEND, "src/init.cc": "// init\n", ".git/HEAD": "x"}
    for name, text in files.items():
        place = tmp_path / "source/v2.30.7-1" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return Source(str(tmp_path / "source/v2.30.7-1"), Release(2, 30, 7), f"commit {'1' * 40}")


def text(given: Source, name: str) -> str:
    return Path(given.path, name).read_text(encoding="utf-8")


def beside(given: Source) -> list[str]:
    return sorted(path.name for path in Path(given.path).parent.iterdir())


def test_the_source_stays_and_a_copy_has_the_patches(source: Source) -> None:
    made, applied, unfit = io_build.patched(run, source, [FENCE, OWN], check=False)
    assert (list(applied), unfit) == (["arm-send-fence", "own.patch"], [])
    changed = text(made, "src/transport/net_ib/p2p.cc")
    assert changed.index("std::memory_order_acquire") < changed.index("nreqs = slots[0].nreqs;")
    assert changed.index("slots[0].idx != idx") < changed.index("std::memory_order_acquire")
    assert (text(made, "src/init.cc"), Path(made.path, ".git").exists()) == ("// our init\n", False)
    assert (text(source, "src/transport/net_ib/p2p.cc"), text(source, "src/init.cc")) == (ISEND, "// init\n")
    assert (made.release, made.identity) == (source.release, source.identity)


def test_a_second_run_and_check_mode_change_nothing(source: Source) -> None:
    _made, planned, _unfit = io_build.patched(run, source, [FENCE], check=True)
    assert beside(source) == ["v2.30.7-1"]
    made, applied, _unfit = io_build.patched(run, source, [FENCE], check=False)
    assert applied == planned
    Path(made.path, "kept").touch()
    for check in (False, True):
        assert io_build.patched(run, source, [FENCE], check) == (made, applied, [])
    assert Path(made.path, "kept").exists()


def test_other_patches_replace_the_copy_and_none_leave_the_source(source: Source) -> None:
    first, _applied, _unfit = io_build.patched(run, source, [FENCE], check=False)
    second, _applied, _unfit = io_build.patched(run, source, [FENCE, OWN], check=False)
    assert beside(source) == sorted(["v2.30.7-1", Path(second.path).name])
    assert first.path != second.path
    assert io_build.patched(run, source, [], check=False) == (source, {}, [])


def test_a_copy_that_a_killed_run_began_or_removed_is_made_again(source: Source) -> None:
    made, _applied, _unfit = io_build.patched(run, source, [OWN], check=False)
    for name in (".gb10-patches.json", "src/init.cc"):
        Path(made.path, name).unlink()
    part = Path(f"{source.path}+part")
    part.mkdir()
    (part / "half").touch()
    again, _applied, _unfit = io_build.patched(run, source, [OWN], check=False)
    assert (again, text(again, "src/init.cc"), Path(again.path, "half").exists()) == (made, "// our init\n", False)


def test_a_release_without_the_lines_is_built_without_our_patch(source: Source) -> None:
    Path(source.path, "src/transport/net_ib/p2p.cc").write_text("corrected\n", encoding="utf-8")
    for _run in range(2):
        made, applied, (unfit,) = io_build.patched(run, source, [FENCE], check=False)
        assert applied == {}
        assert "arm-send-fence does not fit NCCL 2.30.7, which is built without it" in str(unfit)
    assert text(made, "src/transport/net_ib/p2p.cc") == "corrected\n"


def test_a_users_patch_that_does_not_fit_is_refused(source: Source) -> None:
    wrong = {**OWN, "text": OWN["text"].replace("-// init", "-// other")}
    with pytest.raises(ProblemsError, match=r"nccl_sm121_build_patches\[1\]: own\.patch does not apply: .*init\.cc"):
        io_build.patched(run, source, [FENCE, wrong], check=False)
    assert beside(source) == ["v2.30.7-1"]


def test_a_patch_outside_of_the_source_is_refused(source: Source) -> None:
    outside = {"name": "x.patch", "text": "--- /dev/null\n+++ b/../../evil\n@@ -0,0 +1 @@\n+x\n"}
    with pytest.raises(ProblemsError, match="x\\.patch does not apply"):
        io_build.patched(run, source, [outside], check=False)


def test_the_stamp_names_each_patch(source: Source) -> None:
    machine = build.Builder("aarch64", 20, 100 << 30, 100 << 30, frozenset())
    toolkit = Toolkit("/usr/local/cuda", "13.0", frozenset())
    plain, patched = (build.plan(source, [GB10], toolkit, machine, patches=given) for given in ({}, {"a": "b" * 64}))
    assert ("patches" in plain.stamp, patched.stamp["patches"]) == (False, {"a": "b" * 64})
    assert plain.name != patched.name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"name": "x.patch", "path": "/none/x.patch", "sha256": ""}], "[0]: /none/x.patch cannot be read"),
        ([{"name": "x", "path": f"/{folder}/x", "sha256": "1" * 64} for folder in "ab"], "[1]: a second x"),
    ],
)
def test_the_plan_refuses_files_that_the_build_cannot_use(given: list[dict[str, Any]], message: str) -> None:
    nodes = [{**spark(1, "head"), "nccl_patches": given}, spark(2, "worker")]
    _plan, problems = cluster_plan(nodes)
    assert [f"nccl_sm121_build_patches{message}" in str(problem) for problem in problems] == [True]


def test_every_patch_of_the_collection_has_its_file_and_its_source() -> None:
    for name, fault in patches.KNOWN.items():
        assert "NVIDIA/nccl#" in fault
        assert "--- a/src/" in read(f"roles/nccl_sm121_build/files/{name}.patch")
