"""Verify on any machine, without a GPU, that each lock installs for a Spark and its wheels contain the documented GPU
code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from locks import installed
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.choice import NcclNode, choose, hang
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import NcclInputs
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import coverage, io_coverage
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.stacks import STACKS, Stack

FOLDER = ROOT / "roles/gb10/files"
LOCKED = [stack for stack in STACKS.values() if stack.lock]
GB10 = ComputeCapability(12, 1)
#: Number of programs in vLLM's libraries for which 12.1 runs the code of 12.0, translates PTX, or finds no code.
#: Measured 2026-11-22.
CODE: dict[str, dict[str, tuple[int, int, int]]] = {
    "0.33.0": {"_C_stable_libtorch": (85, 6, 20), "_moe_C_stable_libtorch": (27, 1, 0), "_flashkda_C": (1, 0, 0)},
    "0.32.0": {"_C_stable_libtorch": (82, 6, 19), "_moe_C_stable_libtorch": (26, 1, 0), "_flashkda_C": (1, 0, 0)},
}
#: Kernels for datacenter GPUs only.
DATACENTER = {"_flashmla_C", "_flashmla_extension_C", "_deepselect_C", "_qutlass_C"}
#: Whether NCCL is built for a pair, and for a ring.
BUILT = {"0.33.0": (False, False), "0.32.0": (False, True), "0.18.1": (True, True)}


@pytest.fixture(params=LOCKED, ids=[stack.name for stack in LOCKED], scope="module")
def stack(request: pytest.FixtureRequest) -> Stack:
    chosen: Stack = request.param
    return chosen


@pytest.fixture(scope="module")
def site(stack: Stack) -> Path:
    return installed.site(FOLDER / stack.lock)


def test_every_wheel_is_there_and_for_a_spark(stack: Stack, site: Path) -> None:
    pinned = {
        entry.name: entry.version for entry in installed.requirements((FOLDER / stack.lock).read_text(encoding="utf-8"))
    }
    addressed = {name for name, version in pinned.items() if not version}
    assert addressed <= {"torch", "torchaudio", "torchvision"}, "packages on another index are not installed here"
    found = {}
    for path in site.glob("*.dist-info/WHEEL"):
        name, version = path.parent.name.removesuffix(".dist-info").rsplit("-", 1)
        found[re.sub(r"[-_.]+", "-", name).lower()] = version
        tags = re.findall(r"^Tag: (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert any(tag.endswith(("_aarch64", "_sbsa", "-any")) for tag in tags), path
    assert found == {re.sub(r"[-_.]+", "-", name): version for name, version in pinned.items() if version}


def test_vllms_kernels_run_on_a_gb10(stack: Stack, site: Path) -> None:
    extensions = io_coverage.read(str(site), GB10)
    found = {name.removeprefix("vllm/"): each for name, each in extensions.items() if name.startswith("vllm/")}
    assert all(each["native"] == 0 for each in found.values()), "no wheel has native code for 12.1"
    for name, (same, ptx, none) in CODE.get(stack.vllm, {}).items():
        assert (found[name]["same_major"], found[name]["ptx"], found[name]["none"]) == (same, ptx, none), name
    for name in DATACENTER & found.keys():
        assert not coverage.runs(found[name]) and found[name]["none"] > 0, name
    assert coverage.gaps(extensions, "12.1", {"--attention-backend": "TRITON_ATTN", "--moe-backend": "marlin"}) == []
    (gap,) = coverage.gaps(extensions, "12.1", {"--attention-backend": "FLASHMLA"})
    assert re.fullmatch(
        r"vllm/_flashmla_C, which --attention-backend FLASHMLA needs, has no code for 12\.1 \(programs: \d+\)", gap
    )


def test_what_is_decided_about_the_nccl_that_comes_along(stack: Stack, site: Path) -> None:
    path = site / "nvidia/nccl/lib/libnccl.so.2"
    library = io_library.library(str(path)).facts()
    assert (library["version"], library["machine"]) == (stack.bundled_nccl, "aarch64")
    assert "12.1" in library["runs"] and "12.1" not in library["native"]
    assert library["gcc"], "the file names its compiler"
    pair, ring = BUILT[stack.vllm]
    assert bool(hang(library)) is pair
    for wanted, is_ring in ((pair, False), (ring, True)):
        cluster = NcclInputs(cuda=True, container=False, ring=is_ring, release=stack.bundled_nccl, patches=[])
        assert (
            choose("auto", cluster, [NcclNode(f"spark{number}", "12.1", library) for number in (1, 2)]).build is wanted
        )
