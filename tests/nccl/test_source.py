"""Verify statements about NCCL's sources with the sources from Debian, without GPU and CUDA."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from nccl import source
from repository import read

from ansible_collections.gb10.cluster.plugins.module_utils.nccl import functions as nccl_functions
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_build
from ansible_collections.gb10.cluster.plugins.module_utils.nccl.build import Release, Source


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return source.tree(tmp_path_factory.mktemp("nccl"))
    except source.NotFetchedError as error:
        pytest.skip(f"no source of NCCL: {error}")


def generated(tree: Path, folder: Path, pattern: str) -> set[str]:
    """Return the device functions that NCCL's generator creates for an ONLY_FUNCS, with the names in the pattern."""
    subprocess.run([sys.executable, str(tree / "src/device/generate.py"), str(folder), pattern], check=True)
    table = (folder / "device_table.cu").read_text(encoding="utf-8")
    return {words(name) for name in re.findall(r"^/\* *\d+\*/ ncclDevFunc_(\w+),", table, re.MULTILINE)} - {"Nop"}


def words(name: str) -> str:
    """Split a name of the table, which joins all words, including those of an algorithm such as COLLNET_CHAIN."""
    return name.replace("_", " ")


def test_release(tree: Path) -> None:
    release = Release.of_makefile((tree / "makefiles/version.mk").read_text(encoding="utf-8"), "makefiles/version.mk")
    assert re.fullmatch(rf"nccl-{re.escape(str(release))}-\d+", tree.name)


@pytest.mark.parametrize(
    "pattern",
    ["", "SendRecv", "AllReduce Sum (f32|bf16) RING *", "(Broadcast|AllGather) * LL"],
)
def test_patterns_choose_what_is_said(tree: Path, tmp_path: Path, pattern: str) -> None:
    made = generated(tree, tmp_path, pattern)
    chosen = {words(name) for name in nccl_functions.selected(pattern)}
    # The generator omits functions that no GPU supports, and uses unsigned sums for signed integers.
    assert made <= {re.sub(r" i(\d+)", r" u\1", name) for name in chosen} | chosen
    assert {
        name for name in chosen if re.search(r"(Sum|MinMax) (f16|f32|bf16|u32) RING (LL|LL128|SIMPLE)$", name)
    } <= made
    assert {name for name in chosen if name in ("SendRecv", "AllGather RING LL", "Broadcast RING LL")} <= made


def test_a_function_that_is_left_out_does_nothing(tree: Path) -> None:
    """ONLY_FUNCS is off by default, because a missing function causes no error."""
    assert "__device__ void ncclDevFunc_Nop() {}" in (tree / "src/device/common.cu").read_text(encoding="utf-8")
    assert 'return ("Nop", None, None, None, None)' in (tree / "src/device/generate.py").read_text(encoding="utf-8")


def test_the_version_is_a_string_in_the_library(tree: Path) -> None:
    text = (tree / "src/init.cc").read_text(encoding="utf-8")
    assert re.search(r'"NCCL version " STR\(NCCL_MAJOR\).*?"\+cuda" STR\(CUDA_MAJOR\)', text, re.DOTALL)


def test_our_patch_fits_and_can_be_removed(tree: Path, tmp_path: Path) -> None:
    def run(argv: Sequence[str]) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    text = read("roles/nccl_sm121_build/files/arm-send-fence.patch")
    copied = shutil.copytree(tree, tmp_path / "source")
    release = Release.of_makefile((tree / "makefiles/version.mk").read_text(encoding="utf-8"), "makefiles/version.mk")
    given = Source(str(copied), release, "sha256 1")
    made, applied, unfit = io_build.patched(run, given, [{"name": "arm-send-fence", "text": text}], check=False)
    assert (list(applied), unfit) == (["arm-send-fence"], [])
    name = "src/transport/net_ib/p2p.cc"
    isend = Path(made.path, name).read_text(encoding="utf-8").partition("ncclResult_t ncclIbIsend(")[2]
    reads = [isend.index(words) for words in ("slots[0].idx != idx", "memory_order_acquire", "nreqs = slots[0].nreqs")]
    assert reads == sorted(reads)
    assert Path(copied, name).read_bytes() == (tree / name).read_bytes()


def test_the_makefiles_take_what_the_plan_gives(tree: Path) -> None:
    texts = [
        (tree / name).read_text(encoding="utf-8")
        for name in ("Makefile", "src/Makefile", "src/device/Makefile", "makefiles/common.mk")
    ]
    for needed in (
        "src.%:",
        "\nlib :",
        '"$(ONLY_FUNCS)"',
        "NVCC ?= $(CUDA_HOME)/bin/nvcc",
        "NVCC_GENCODE ?=",
        "BUILDDIR ?=",
    ):
        assert any(needed in text for text in texts), needed
