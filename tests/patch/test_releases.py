"""Patches on published releases: applied, applied again, removed, and results of patched functions on four GPUs."""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patch import sources
from patch.stubs import World, execute, world
from run_module import run_module

from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import FP8, ORACLE, ROWS, USE_FLAG, UTILS

CAPABILITIES = [(12, 1), (12, 0), (11, 0), (9, 0)]
ALL = ["w8a8", "w8a8_torch", "fp8_moe_oracle", "moe_config"]
KERNELS = {
    edit.file: edit.function.partition(".")[0]
    for row in ROWS
    for edit in row.edits + row.replaced
    if edit.kind == "unsupported_kernel"
}


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def patch(package: Path, **arguments: Any) -> dict[str, Any]:
    given = {"package_dir": str(package), "capability": "12.1", "mechanism": "source", "patches": ALL, **arguments}
    answer = run_module("vllm_patch", given)
    assert not answer.get("failed"), answer
    return answer


def statuses(answer: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["status"] for entry in answer["patches"]}


def copied(package: Path, folder: Path) -> Path:
    """Return a copy of a package in this folder."""
    return shutil.copytree(package, folder / "vllm")


@pytest.fixture(scope="module")
def shipped(version: str) -> Path:
    return sources.package(version)


@pytest.fixture(scope="module")
def patched(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package with every patch in its source."""
    package = copied(shipped, tmp_path_factory.mktemp("patched"))
    patch(package)
    return package


def test_made_twice_and_taken_back(version: str, shipped: Path, tmp_path: Path) -> None:
    package = copied(shipped, tmp_path)
    before, first = digests(tmp_path), patch(package)
    expected = dict.fromkeys(ALL, "applied") | ({} if number(version) < (0, 15) else {"w8a8_torch": "not_needed"})
    assert (first["changed"], first["vllm_version"], statuses(first)) == (True, version, expected)
    assert (first["flags"], first["environment"]) == ([], {})
    after, again = digests(tmp_path), patch(package)
    assert (after != before, again["changed"], digests(tmp_path)) == (True, False, after)
    assert statuses(again) == {name: status.replace("applied", "already_applied") for name, status in expected.items()}
    removed = patch(package, state="absent")
    assert (removed["changed"], digests(tmp_path)) == (True, before)
    assert statuses(removed) == {name: status.replace("applied", "removed") for name, status in expected.items()}
    assert patch(package, state="absent")["changed"] is False


#: Results of auto on 12.1, for CUDA 12 builds: since which release, w8a8 and fp8_moe_oracle, flags, variables. The test
#: adjusts them for CUDA 13 builds.
TWO_KERNELS = "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel"
TRITON = ["--moe-backend", "triton"]
AUTO: list[tuple[tuple[int, int], tuple[str, str], list[str], dict[str, str]]] = [
    ((0, 13), ("applied", "not_needed"), [], {}),
    ((0, 14), ("applied", "applied"), [], {}),
    (
        (0, 15),
        ("applied", "use_flag"),
        [],
        {"VLLM_DISABLED_KERNELS": TWO_KERNELS, "VLLM_USE_FLASHINFER_MOE_FP8": "0"},
    ),
    ((0, 17), ("applied", "use_flag"), TRITON, {"VLLM_DISABLED_KERNELS": TWO_KERNELS}),
    (
        (0, 20),
        ("use_flag", "use_flag"),
        TRITON,
        {"VLLM_DISABLED_KERNELS": f"{TWO_KERNELS},CutlassFp8BlockScaledMMKernel"},
    ),
]


@pytest.mark.parametrize("cuda", [12, 13])
def test_auto_changes_no_file_where_a_flag_does(version: str, shipped: Path, tmp_path: Path, cuda: int) -> None:
    package, folder = copied(shipped, tmp_path), tmp_path / "gb10_moe_configs"
    (package / "_C.abi3.so").write_bytes(b"\x7fELF\0libcudart.so.%d\0" % cuda)
    before, answer = digests(package), patch(package, mechanism="auto")
    _since, (w8a8, oracle), flags, environment = [row for row in AUTO if row[0] <= number(version)][-1]
    if cuda == 13 and number(version) >= (0, 20):
        w8a8, environment = "not_needed", {}
    expected = {"w8a8": w8a8, "w8a8_torch": "not_needed", "fp8_moe_oracle": oracle, "moe_config": "use_flag"}
    assert (answer["cuda_build"], statuses(answer)) == (cuda, expected)
    assert (answer["flags"], answer["environment"]) == (flags, {**environment, "VLLM_TUNED_CONFIG_FOLDER": str(folder)})
    assert all(entry["reason"] and entry["source"] for entry in answer["patches"])
    assert (digests(package) != before) is ("applied" in (w8a8, oracle))
    upstream = {path.name for path in (package / "model_executor/layers/fused_moe/configs").glob("*GB10*")}
    ours = {path.name for path in folder.glob("*.json")}
    assert (ours & upstream, len(ours)) == (set(), 3 if number(version) >= (0, 28) else 4)


def test_the_patch_decides_scales_that_no_flag_decides(version: str, shipped: Path) -> None:
    """If a flag replaces the patch, its row states the remaining difference."""
    if number(version) < (0, 20):
        return
    token, tensor = (rf"self\.activation_quant_key = kFp8Dynamic{kind}Sym" for kind in ("Token", "Tensor"))
    text = (shipped / FP8).read_text(encoding="utf-8")
    assert re.search(rf"elif cutlass_fp8_supported\(\):\s+{token}\s+else:\s+{tensor}", text)
    rows = [row for row in ROWS if row.patch == "w8a8" and row.cuda is None and row.since <= number(version)]
    row = next(row for row in rows if number(version) < (row.until or (99,)))
    assert (row.verdict, "keeps a scale for each token" in row.reason) == (USE_FLAG, True)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_cutlass_fp8(shipped: Path, patched: Path, capability: tuple[int, int]) -> None:
    for package in (shipped, patched):
        with world() as around:
            around.capability = capability
            module = execute(package / UTILS)
            expected = package is shipped or capability != (12, 1)
            assert (module.cutlass_fp8_supported(), module.cutlass_block_fp8_supported()) == (expected, expected)
            names = {"CUTLASS_FP8_SUPPORTED", "CUTLASS_BLOCK_FP8_SUPPORTED"} & vars(module).keys()
            assert {getattr(module, name) for name in names} == {expected}
            assert any("is False on 12.1 (gb10.cluster)" in line for line in around.log) is not expected
            around.cuda = False
            assert module.cutlass_fp8_supported() is False, "without CUDA the capability is not queried"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_fp8_kernels(version: str, shipped: Path, patched: Path, capability: tuple[int, int]) -> None:
    there = {file: name for file, name in KERNELS.items() if (shipped / file).exists()}
    found = {file: name for file, name in there.items() if name in (shipped / file).read_text(encoding="utf-8")}
    assert len(found) == (0 if number(version) < (0, 15) else 2)
    for package, (file, name) in itertools.product((shipped, patched), found.items()):
        with world() as around:
            around.capability = capability
            supported, reason = vars(execute(package / file))[name].is_supported(None)
            assert bool(supported) is (package is shipped or capability != (12, 1)), reason


@pytest.mark.parametrize(
    ("names", "expected"), [(["w8a8"], None), (["w8a8_torch"], "use_flag"), (["w8a8", "w8a8_torch"], "not_needed")]
)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_fp8_linear_op(
    version: str, shipped: Path, tmp_path: Path, capability: tuple[int, int], names: list[str], expected: str | None
) -> None:
    package = copied(shipped, tmp_path)
    answer = patch(package, patches=names)
    if number(version) >= (0, 15):
        assert statuses(answer).get("w8a8_torch") == expected
        return
    with world() as around:
        around.capability = capability
        module = execute(package / UTILS)
        backend = module.Fp8LinearOp(act_quant_static=False, pad_output=True).preferred_backend
    assert backend == {(12, 1): "torch", (12, 0): "flashinfer", (11, 0): "flashinfer", (9, 0): "cutlass"}[capability]


EVERYTHING = {
    *("TritonExperts", "BatchedTritonExperts", "FlashInferExperts", "MarlinExperts", "TritonOrDeepGemmExperts"),
    *("BatchedDeepGemmExperts", "TritonOrCutlassExperts", "CutlassExpertsFp8", "CutlassBatchedExpertsFp8"),
}


class Oracle:
    """The function that chooses the FP8 MoE backend in one release, with the same interface for all releases."""

    def __init__(self, package: Path, around: World) -> None:
        around.supported = set(EVERYTHING)
        self.module = execute(package / (ORACLE if (package / ORACLE).exists() else FP8))
        self.bare = not hasattr(self.module, "backend_to_kernel_cls")

    def ask(self, moe_backend: str = "auto", batched: bool = False) -> tuple[str, ...]:
        """Return the names of the backend and its class."""
        if hasattr(self.module, "get_fp8_moe_backend"):
            return (self.module.get_fp8_moe_backend(False, SimpleNamespace(tp_size=1), False).name,)
        if self.bare:
            return (self.module.select_fp8_moe_backend(False, 1, False, allow_vllm_cutlass=True).name,)
        parallel = SimpleNamespace(use_batched_activation_format=batched, ep_size=1, use_deepep_v2_kernels=False)
        config = SimpleNamespace(moe_backend=moe_backend, is_lora_enabled=False, moe_parallel_config=parallel)
        backend, kernel = self.module.select_fp8_moe_backend(config, object(), object(), allow_vllm_cutlass=True)
        assert isinstance(kernel, type), "a class, not a list of them"
        return backend.name, kernel.__name__


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_moe_oracle(version: str, shipped: Path, patched: Path, capability: tuple[int, int]) -> None:
    with world() as around:
        around.capability = capability
        was, now = Oracle(shipped, around), Oracle(patched, around)
        if capability == (12, 1):
            assert now.ask() == (("TRITON",) if now.bare else ("TRITON", "TritonExperts"))
            assert "Triton is the FP8 MoE backend on 12.1 (gb10.cluster)" in around.log
            # Only 0.13 queries no backend that 12.1 supports. The patch has no effect there, and auto omits it.
            assert (was.ask() == now.ask()) is (number(version) < (0, 14))
        else:
            assert was.ask() == now.ask()
            assert not any("gb10.cluster" in line for line in around.log)
        around.cuda = False
        assert was.bare or was.ask() == now.ask()


#: The user's choices. Each must have the same result as before the patch.
CHOICES: list[dict[str, Any]] = [
    {"environment": {"VLLM_TEST_FORCE_FP8_MARLIN": True}},
    {"environment": {"VLLM_USE_FLASHINFER_MOE_FP8": True}},
    {"environment": {"VLLM_USE_DEEP_GEMM": True}},
    {"environment": {"VLLM_MOE_USE_DEEP_GEMM": True}},
    {"moe_backend": "marlin"},
    {"moe_backend": "cutlass"},
    {"moe_backend": "deep_gemm"},
    {"batched": True},
    {"batched": True, "moe_backend": "triton"},
]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_what_the_user_chose_wins(version: str, shipped: Path, patched: Path, choice: dict[str, Any]) -> None:
    # --moe-backend exists since 0.17, and before 0.15 the function does not receive the format.
    unknown = {"moe_backend"} if number(version) >= (0, 15) else {"moe_backend", "batched"}
    if number(version) < (0, 17):
        choice = {key: value for key, value in choice.items() if key not in unknown}
    known = (shipped / (ORACLE if (shipped / ORACLE).exists() else FP8)).read_text(encoding="utf-8")
    honoured = all(name in known for name in choice.get("environment", {}))
    with world() as around:
        was, now = Oracle(shipped, around), Oracle(patched, around)
        around.environment = choice.get("environment", {})
        asked = {key: value for key, value in choice.items() if key != "environment"}
        if honoured and (choice.get("environment") or asked):
            assert now.ask(**asked) == was.ask(**asked)
        else:
            assert now.ask(**asked)[0] == "TRITON", "a variable unknown to this release has no effect"


def test_without_triton_upstream_chooses(shipped: Path, patched: Path) -> None:
    with world() as around:
        was, now = Oracle(shipped, around), Oracle(patched, around)
        if was.bare:
            return
        around.supported.remove("TritonExperts")
        assert now.ask() == was.ask()
        assert now.ask()[0] != "TRITON"
