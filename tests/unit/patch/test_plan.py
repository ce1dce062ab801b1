"""The choice of patches and flags, from version, GPU, build and the files' code only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from fake_vllm import FILES, KERNELS
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common.versions import build, release
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.patch import files as patch_files
from ansible_collections.gb10.cluster.plugins.module_utils.patch import plan as patch_plan
from ansible_collections.gb10.cluster.plugins.module_utils.patch.blocks import MARKER
from ansible_collections.gb10.cluster.plugins.module_utils.patch.plan import PatchPlan
from ansible_collections.gb10.cluster.plugins.module_utils.patch.schema import Link, Request, State, Wanted
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import (
    CONFIGS,
    FIRST,
    ORACLE,
    PATCHES,
    PTXAS,
    ROWS,
    UTILS,
)
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Assembler

EDITED = ["w8a8", "w8a8_torch", "fp8_moe_oracle"]
TWO_KERNELS = "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel"
ALL_KERNELS = f"{TWO_KERNELS},CutlassFp8BlockScaledMMKernel"


class FakeTree:
    """Files in memory: those that vLLM shipped, and the written ones over them."""

    def __init__(self, shipped: dict[str, bytes]) -> None:
        self._shipped = shipped
        self.written: dict[str, Wanted] = {}
        self.troubles: dict[str, str] = {}
        self.left: set[str] = set()

    def state(self, path: str) -> State:
        current = self.written.get(path, self._shipped.get(path))
        ours, trouble = path in self.written, self.troubles.get(path, "")
        return State(current, self._shipped.get(path), ours, path in self.left, trouble)

    def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(f"{path}/") for name in [*self._shipped, *self.written])

    def run(self, plan: PatchPlan) -> None:
        for path, wanted in plan.files.items():
            if wanted is None:
                self.written.pop(path, None)
            else:
                self.written[path] = wanted


def tree(**changes: str | None) -> FakeTree:
    return FakeTree({name: text.encode() for name, text in {**FILES, **changes}.items() if text is not None})


def request(**changes: Any) -> Request:
    none = Assembler("/triton/ptxas")
    given = {
        "names": EDITED,
        "capability": ComputeCapability(12, 1),
        "version": "0.22.1",
        "cuda": 12,
        "mechanism": "auto",
        "capability_given": True,
        "folder": "/configs",
        "bundled": {"ptxas": none, "ptxas-blackwell": none},
        "toolkit": Assembler("/toolkit/ptxas"),
    }
    return Request(**{**given, **changes})


def statuses(plan: PatchPlan) -> list[str]:
    return [entry["status"] for entry in plan.patches]


def present(files: FakeTree | None = None, **changes: Any) -> PatchPlan:
    """Plan the patches of a request with these changes."""
    return patch_plan.present(request(**changes), files or tree())


def apply(files: FakeTree, **changes: Any) -> PatchPlan:
    """Plan the patches, and write them."""
    plan = present(files, **changes)
    files.run(plan)
    return plan


def gpu(text: str) -> ComputeCapability:
    return ComputeCapability.parse(text)


@pytest.mark.parametrize("capability", ["12.1", "9.0"])
def test_a_failed_check_of_the_gpu_probe_turns_its_kernels_off(capability: str) -> None:
    own = {"names": ["w8a8"], "capability": gpu(capability), "capability_given": False, "version": "0.33.0", "cuda": 13}
    assert statuses(present(**own)) == ["not_needed"]
    plan = present(**own, failed={"fp8_vllm": "FP8: wrong result"})
    assert (statuses(plan), plan.files, plan.environment) == (["use_flag"], {}, {"VLLM_DISABLED_KERNELS": ALL_KERNELS})
    assert plan.patches[0]["reason"] == "the GPU probe failed: FP8: wrong result"
    plan = present(**own, failed={"fp4_vllm": "NVFP4: error"})
    assert plan.environment == {"VLLM_DISABLED_KERNELS": "CutlassNvFp4LinearKernel"}


def test_the_table_is_sound() -> None:
    assert {row.patch for row in ROWS} == set(PATCHES)
    for row in ROWS:
        assert row.reason and row.source and row.verdict in ("applies", "use_flag", "not_needed"), row
        assert (row.verdict == "applies") is bool(row.edits) or row.patch in ("moe_config", "triton_ptxas"), row
        assert row.until is None or row.since < row.until, row
    for patch in PATCHES:
        ranges = sorted((row.since, row.until) for row in ROWS if row.patch == patch and row.cuda is row.family is None)
        assert [until for _since, until in ranges] == [*(since for since, _until in ranges[1:]), None]
        assert ranges[0][0] == FIRST[:2]


@pytest.mark.parametrize(
    ("name", "version", "cuda", "capability", "expected"),
    [
        ("w8a8", "0.22.1", 12, "12.1", "use_flag"),
        ("w8a8", "0.22.1", None, "12.1", "use_flag"),
        ("w8a8", "0.22.1", 13, "12.1", "not_needed"),
        ("w8a8", "0.33.0", 13, "12.1", "not_needed"),
        ("w8a8", "0.20", 13, "12.1", "not_needed"),
        ("w8a8", "0.18.1", 13, "12.1", "applied"),
        # sm_120f runs only on 12.x.
        ("w8a8", "0.22.1", 13, "9.0", "use_flag"),
        ("w8a8_torch", "0.20.0", 13, "12.1", "not_needed"),
        ("w8a8_torch", "0.19.0", 13, "12.1", "use_flag"),
        ("w8a8_torch", "0.20.0", 12, "12.1", "use_flag"),
        ("w8a8_torch", "0.20.0", 13, "11.0", "use_flag"),
    ],
)
def test_the_build_counts(name: str, version: str, cuda: int | None, capability: str, expected: str) -> None:
    assert statuses(present(names=[name], version=version, cuda=cuda, capability=gpu(capability))) == [expected]


@pytest.mark.parametrize(
    ("name", "version", "environment", "flags"),
    [
        ("fp8_moe_oracle", "0.16.0", {"VLLM_USE_FLASHINFER_MOE_FP8": "0"}, []),
        ("fp8_moe_oracle", "0.17.0", {}, ["--moe-backend", "triton"]),
        ("w8a8_torch", "0.22.1", {"VLLM_DISABLED_KERNELS": TWO_KERNELS}, []),
    ],
)
def test_variables_and_flags(name: str, version: str, environment: dict[str, str], flags: list[str]) -> None:
    plan = present(names=[name], version=version)
    assert (plan.environment, plan.flags) == (environment, flags)


def test_a_variable_that_two_patches_share_has_each_kernel_once() -> None:
    plan = present(names=["w8a8", "w8a8_torch"], capability=gpu("9.0"), failed={"fp8_vllm": "", "fp4_vllm": ""})
    assert plan.environment == {"VLLM_DISABLED_KERNELS": f"{ALL_KERNELS},CutlassNvFp4LinearKernel"}


def test_flags_and_variables_where_they_do() -> None:
    plan = present()
    assert statuses(plan) == ["use_flag", "not_needed", "use_flag"]
    expected = (["--moe-backend", "triton"], {"VLLM_DISABLED_KERNELS": ALL_KERNELS}, {})
    assert (plan.flags, plan.environment, plan.files) == expected
    assert "NVFP4" in plan.patches[2]["reason"]
    # Another version of the inserted lines renews the patches of every installation.
    assert set(PATCHES.values()) == {1}


@pytest.mark.parametrize(
    ("quantization", "mechanism", "expected", "flags"),
    [
        ("fp8", "auto", ["use_flag", "use_flag"], ["--moe-backend", "triton"]),
        ("other", "auto", ["use_flag", "not_needed"], []),
        ("unknown", "auto", ["use_flag", "applied"], []),
        ("other", "source", ["applied", "applied"], []),
    ],
)
def test_a_flag_that_counts_for_every_moe_is_for_fp8_models(
    quantization: str, mechanism: str, expected: list[str], flags: list[str]
) -> None:
    """For an unknown model the function is patched, which affects only FP8. w8a8 keeps its harmless variable."""
    plan = present(names=["w8a8", "fp8_moe_oracle"], quantization=quantization, mechanism=mechanism)
    assert (statuses(plan), plan.flags, ORACLE in plan.files) == (expected, flags, expected[1] == "applied")


def test_a_gpu_that_was_only_found_needs_nothing_unless_it_is_a_gb10() -> None:
    plan = present(capability=gpu("9.0"), capability_given=False, names=list(PATCHES))
    assert (set(statuses(plan)), plan.files, plan.flags, plan.environment) == ({"not_needed"}, {}, [], {})
    assert "this GPU is 9.0" in plan.patches[0]["reason"]
    assert statuses(present(capability_given=False)) == statuses(present())


def test_source_patches_whatever_else_would_do_and_auto_takes_it_back() -> None:
    files = tree()
    plan = apply(files, mechanism="source", cuda=13)
    assert (statuses(plan), plan.flags, plan.environment) == (["applied", "not_needed", "applied"], [], {})
    assert set(plan.files) == {UTILS, f"{KERNELS}/cutlass.py", f"{KERNELS}/flashinfer.py", ORACLE}
    off = b'return False, "CutlassFP8ScaledMMLinearKernel is off on 12.1 (gb10.cluster)"'
    assert off in bytes_of(files, f"{KERNELS}/cutlass.py")
    again = present(files, mechanism="source", cuda=13)
    assert (statuses(again), again.files) == (["already_applied", "not_needed", "already_applied"], plan.files)
    assert (statuses(apply(files))[0], files.written) == ("use_flag", {})


def bytes_of(files: FakeTree, path: str) -> bytes:
    content = files.written[path]
    assert isinstance(content, bytes)
    return content


def markers(files: FakeTree, path: str) -> list[tuple[bytes, bytes]]:
    """Return the patches in a written file, with their capability."""
    return [(match[1], match[3]) for match in MARKER.finditer(bytes_of(files, path))]


def test_patches_that_were_not_named_stay_as_they_are() -> None:
    files = tree()
    apply(files, mechanism="source", capability=gpu("12.0"), names=["fp8_moe_oracle"])
    before = files.written[ORACLE]
    apply(files, mechanism="source", names=["w8a8"])
    assert files.written[ORACLE] == before
    files.run(patch_plan.absent(request(names=["w8a8"]), files))
    assert files.written == {ORACLE: before}
    assert statuses(patch_plan.absent(request(names=["fp8_moe_oracle", "w8a8"]), files)) == ["not_needed", "removed"]


def test_two_patches_in_one_file() -> None:
    linear = """\
class Fp8LinearOp:
    def __init__(self):
        if x:
            self.preferred_backend = 'a'
        self.y = 1
"""
    files = tree(**{UTILS: FILES[UTILS] + linear})
    for name in ("w8a8", "w8a8_torch"):
        apply(files, names=[name], version="0.14.1", mechanism="source")
    assert markers(files, UTILS) == [(b"w8a8", b"12.1"), (b"w8a8", b"12.1"), (b"w8a8_torch", b"12.1")]
    files.run(patch_plan.absent(request(names=["w8a8"], version="0.14.1", mechanism="source"), files))
    assert markers(files, UTILS) == [(b"w8a8_torch", b"12.1")]


def test_another_capability_replaces_the_lines() -> None:
    files = tree()
    apply(files, mechanism="source", capability=gpu("12.0"))
    assert statuses(apply(files, mechanism="source"))[0] == "applied"
    assert {capability for path in files.written for _name, capability in markers(files, path)} == {b"12.1"}


@pytest.mark.parametrize("version", ["0.34.0", "0.33.1", "1.0", "0.12.0", None, "dev"])
def test_what_was_never_read_is_judged_by_its_code(version: str | None) -> None:
    plan = present(version=version, names=["w8a8", "fp8_moe_oracle"])
    assert statuses(plan) == ["use_flag", "use_flag"]
    remark = "is outside the known releases (0.13.0 to 0.33.0), so its code decides"
    assert [remark in entry["reason"] for entry in plan.patches] == [True, True]
    other = tree(**{ORACLE: FILES[ORACLE].replace("config.moe_backend", "config.other")})
    assert statuses(present(other, version=version, names=["w8a8", "fp8_moe_oracle"])) == ["use_flag", "unsupported"]


def test_a_build_with_older_code_is_judged_by_it() -> None:
    """Distributions backport code between releases, so the version alone does not decide."""
    old = "model_executor/layers/quantization/kernels/scaled_mm"
    moved = FakeTree({name.replace(KERNELS, old): text.encode() for name, text in FILES.items()})
    plan = present(moved, names=["w8a8"], mechanism="source")
    assert statuses(plan) == ["applied"]
    assert plan.patches[0]["reason"].startswith("its code differs from other builds of 0.22.1")


SHAPES = [
    (
        UTILS,
        "def cutlass_block_fp8_supported() -> bool",
        "def renamed() -> bool",
        "cutlass_block_fp8_supported: expected one definition",
    ),
    (UTILS, "cutlass_fp8_supported() -> bool", "cutlass_fp8_supported(x) -> bool", "only parameters with a default"),
    (UTILS, "cutlass_fp8_supported() -> bool", "cutlass_fp8_supported() -> int", "return type bool, found int"),
    (UTILS, "    return current_platform", "    yield current_platform", "not a coroutine or generator"),
    (UTILS, "def cutlass_fp8", "async def cutlass_fp8", "not a coroutine or generator"),
    (f"{KERNELS}/cutlass.py", "tuple[bool, str | None]", "bool", "tuple[bool, str | None], found bool"),
    (
        f"{KERNELS}/cutlass.py",
        "CutlassFP8ScaledMMLinearKernel",
        "Other",
        "one class CutlassFP8ScaledMMLinearKernel, found 0",
    ),
    (
        ORACLE,
        "tuple[Fp8MoeBackend, type | None]",
        "Selection",
        "Fp8MoeBackend or tuple[Fp8MoeBackend, ...], found Selection",
    ),
    (ORACLE, "TRITON =", "TRITON2 =", "an enumeration Fp8MoeBackend with TRITON"),
    (ORACLE, "(config, ", "(settings, ", "config, weight_key, activation_key"),
    (ORACLE, ".use_batched_activation_format", ".batched", "use_batched_activation_format"),
    (ORACLE, 'config.moe_backend != "auto"', "False", "config.moe_backend, the user's choice"),
    (ORACLE, "import mk", "import mk2", "mk and backend_to_kernel_cls"),
]


@pytest.mark.parametrize(("file", "old", "new", "expected"), SHAPES)
def test_another_shape_is_unsupported_and_left_alone(file: str, old: str, new: str, expected: str) -> None:
    text = FILES[file].replace(old, new)
    if "moe_backend" in old:
        text = text.replace("config.moe_backend", "None")
    assert text != FILES[file]
    plan = present(tree(**{file: text}), mechanism="source")
    (entry,) = [entry for entry in plan.patches if entry["status"] == "unsupported"]
    assert entry["name"] == ("fp8_moe_oracle" if file == ORACLE else "w8a8")
    assert (file in entry["reason"], expected in entry["reason"]) == (True, True)
    assert entry["file"] and not [path for path in plan.files if path in entry["files"]]


@pytest.mark.parametrize(
    ("left_out", "kernels"), [("class CutlassFp8BlockScaledMMKernel: ...\n", TWO_KERNELS), ("nothing", ALL_KERNELS)]
)
def test_without_a_version_the_code_tells_the_releases_apart(left_out: str, kernels: str) -> None:
    file = f"{KERNELS}/cutlass.py"
    plan = present(tree(**{file: FILES[file].replace(left_out, "")}), version=None, names=["w8a8"])
    assert plan.environment == {"VLLM_DISABLED_KERNELS": kernels}
    older = FILES[ORACLE].replace("config.moe_backend", "envs.VLLM_USE_FLASHINFER_MOE_FP8")
    older = older.replace("import mk", "import mk, envs")
    plan = present(tree(**{ORACLE: older}), version=None, names=["fp8_moe_oracle"])
    assert (plan.flags, plan.environment) == ([], {"VLLM_USE_FLASHINFER_MOE_FP8": "0"})


def test_a_missing_file_is_unsupported() -> None:
    plan = present(tree(**{UTILS: None}), mechanism="source", names=["w8a8"])
    assert "file not found" in plan.patches[0]["reason"]


def test_without_the_original_nothing_is_patched() -> None:
    files = tree()
    files.troubles[UTILS] = "changed by a user"
    plan = present(files, mechanism="source")
    assert statuses(plan) == ["unsupported", "use_flag", "applied"], "w8a8 does not cover w8a8_torch then"
    assert UTILS not in plan.files
    assert patch_plan.absent(request(), files).patches[0]["reason"] == "changed by a user"


CLASS, DECORATED = "class Klass:\n\tdef f(self): ...", "@decorated\ndef more():\n    pass"
LINE = st.sampled_from(["", "# a comment", "X = 1", "def other(): return 1", DECORATED, CLASS, "'''text'''"])


@given(
    order=st.permutations(range(3)),
    between=st.lists(LINE, min_size=4, max_size=4),
    decorators=st.lists(st.sampled_from(["@cache", "@a.b(1,\n   2)"]), max_size=2),
    doc=st.sampled_from(["", '    """Doc.\n\n    More."""\n', "    '''é'''  # noqa\n"]),
    comment=st.sampled_from(["", "    # why\n", "\n\n"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    one_line=st.booleans(),
    broken=st.sampled_from(["", "generator", "parameter", "twice"]),
)
def test_any_layout_is_patched_rightly_or_refused(
    order: list[int],
    between: list[str],
    decorators: list[str],
    doc: str,
    comment: str,
    newline: str,
    one_line: bool,
    broken: str,
) -> None:
    def function(name: str) -> str:
        header = "\n".join([*decorators, f"def {name}({'x' if broken == 'parameter' else ''}) -> bool:"])
        body = "yield 1" if broken == "generator" else "return current_platform.is_cuda()"
        return f"{header} {body}" if one_line else f"{header}\n{doc}{comment}    {body}"

    parts = [function("cutlass_fp8_supported"), function("cutlass_block_fp8_supported"), "def third(): return 3"]
    texts = [between[0], "from vllm.platforms import current_platform"]
    for index, place in enumerate(order):
        texts += [parts[place], between[index + 1]]
    if broken == "twice":
        texts.append(parts[0])
    source = "\n".join([*texts, ""]).replace("\n", newline)
    plan = present(tree(**{UTILS: source}), names=["w8a8"], mechanism="source")
    if broken:
        assert (statuses(plan), plan.files) == (["unsupported"], {})
        return
    assert statuses(plan) == ["applied"]
    written = plan.files[UTILS]
    for capability, expected in ((121, False), (120, True), (122, True), (130, True)):
        assert answers(written, capability) == (expected, expected)
    assert isinstance(written, bytes) and (b"\n" not in written.replace(b"\r\n", b"")) is (newline == "\r\n")


@pytest.mark.parametrize("hidden", ["def other():", "if TYPE_CHECKING:"])
def test_a_name_that_the_function_would_not_find_is_imported(hidden: str) -> None:
    line = "from vllm.platforms import current_platform\n"
    text = FILES[UTILS].replace(line, f"TYPE_CHECKING = False\n{hidden}\n    {line}")
    assert text != FILES[UTILS]
    plan = present(tree(**{UTILS: text}), names=["w8a8"], mechanism="source")
    assert (statuses(plan), answers(plan.files[UTILS], 121)) == (["applied"], (False, False))


def answers(source: Wanted, capability: int) -> tuple[bool, bool]:
    """Execute the file on a platform with this capability, and return the results of the two functions."""
    assert isinstance(source, bytes)
    platform = mock.Mock(
        **{"is_cuda.return_value": True, "get_device_capability.return_value.to_int.return_value": capability}
    )
    modules = {"vllm": mock.Mock(), "vllm.platforms": mock.Mock(current_platform=platform), "vllm.logger": mock.Mock()}
    decorators = {"cache": unchanged, "decorated": unchanged, "a": mock.Mock(**{"b.return_value": unchanged})}
    names: dict[str, Any] = {"__name__": "vllm.executed", **decorators}
    with mock.patch.dict(sys.modules, modules):
        exec(compile(source, "w8a8_utils.py", "exec"), names)
        return names["cutlass_fp8_supported"](), names["cutlass_block_fp8_supported"]()


def unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@pytest.mark.parametrize(
    ("version", "expected", "cuda"),
    [
        ("0.20.2", (0, 20, 2), None),
        ("0.17.1+cu130", (0, 17, 1), 13),
        ("0.21.1rc1.dev169+g0a1b2c3.cu129", (0, 21, 1), 12),
        ("v1.0", (1, 0, 0), None),
        ("dev", None, None),
        (None, None, None),
    ],
)
def test_versions(version: str | None, expected: tuple[int, ...] | None, cuda: int | None) -> None:
    assert (release(version), build(version)) == (expected, cuda)


def test_moe_tables_are_what_vllm_reads() -> None:
    tables = patch_files.moe_tables()
    shapes = (f"E=512,N={size},device_name=NVIDIA_GB10,dtype=fp8_w8a8" for size in (512, 256))
    assert set(tables) == {f"{shape}{block}.json" for shape in shapes for block in ("", ",block_shape=[128,128]")}
    (content,) = set(tables.values())
    table = json.loads(content)
    assert table.pop("triton_version").startswith("untuned")
    batches = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096]
    for batch in batches:
        # One byte per weight and per activation: at most 45 of the 99 KiB of shared memory of a GB10's block.
        small = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_stages": 5}
        large = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 8 if batch <= 512 else 16, "num_stages": 4}
        assert table.pop(str(batch)) == {"BLOCK_SIZE_N": 128, "num_warps": 4, **(small if batch <= 64 else large)}
    assert table == {}


def test_moe_config_goes_to_a_folder_and_respects_what_is_there() -> None:
    names, own = list(patch_files.moe_tables()), {"names": ["moe_config"]}
    files = tree(**{f"{CONFIGS}/{names[0]}": "{}", f"/configs/{names[1]}": "{}"})
    plan = present(files, **own)
    assert (statuses(plan), plan.environment) == (["use_flag"], {"VLLM_TUNED_CONFIG_FOLDER": "/configs"})
    assert set(plan.files) == {f"/configs/{name}" for name in names[2:]}
    source = apply(files, **own, mechanism="source")
    assert (statuses(source), set(source.files)) == (["applied"], {f"{CONFIGS}/{name}" for name in names[1:]})
    assert statuses(present(files, **own, mechanism="source")) == ["already_applied"]
    files.written = dict.fromkeys(files.written, b"{}")
    assert statuses(present(files, **own, mechanism="source")) == ["applied"]
    every = present(tree(**{f"{CONFIGS}/{name}": "{}" for name in names}), **own)
    for nothing in (every, present(**own, capability=gpu("12.0"))):
        assert (statuses(nothing), nothing.files, nothing.environment) == (["not_needed"], {}, {})


def test_moe_tables_go_when_upstream_ships_its_own() -> None:
    files, name = tree(), next(iter(patch_files.moe_tables()))
    apply(files, names=["moe_config"])
    newer = tree(**{f"{CONFIGS}/{name}": "{}"})
    newer.written = files.written
    assert present(newer, names=["moe_config"]).files[f"/configs/{name}"] is None
    gone = patch_plan.absent(request(names=["moe_config"]), files)
    assert (statuses(gone), set(gone.files.values())) == (["removed"], {None})


KNOWS, OLD = frozenset({"sm_120a", "sm_121", "sm_121a"}), frozenset({"sm_120a"})


def assembled(
    bundled: frozenset[str], toolkit: frozenset[str], path: str = "/toolkit/ptxas", **changes: Any
) -> dict[str, Any]:
    """Return the changes of a request: the architectures of Triton's newer assembler and of the toolkit's."""
    own = {"ptxas": Assembler("a"), "ptxas-blackwell": Assembler("b", bundled)}
    return {"names": ["triton_ptxas"], "bundled": own, "toolkit": Assembler(path, toolkit), **changes}


@pytest.mark.parametrize(
    ("bundled", "toolkit", "mechanism", "status"),
    [
        (KNOWS, frozenset(), "auto", "not_needed"),
        (OLD, KNOWS, "auto", "use_flag"),
        (OLD, KNOWS, "source", "applied"),
        (frozenset(), KNOWS, "auto", "use_flag"),
        (frozenset({"sm_121"}), frozenset({"sm_120"}), "auto", "unsupported"),
    ],
)
def test_triton_ptxas(bundled: frozenset[str], toolkit: frozenset[str], mechanism: str, status: str) -> None:
    given = assembled(bundled, toolkit, mechanism=mechanism)
    plan = present(tree(**{f"{PTXAS}/ptxas": "", f"{PTXAS}/ptxas-blackwell": ""}), **given)
    variables = dict.fromkeys(["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"], "/toolkit/ptxas")
    assert (statuses(plan), plan.environment) == ([status], variables if status == "use_flag" else {})
    assert plan.files == ({f"{PTXAS}/ptxas-blackwell": Link("/toolkit/ptxas")} if status == "applied" else {})
    assert statuses(present(**given)) == ["not_needed"], "without Triton"


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/toolkit/ptxas", "/toolkit/ptxas does not either"), ("", "no ptxas of a CUDA toolkit was found")],
)
def test_a_missing_assembler_is_named(path: str, expected: str) -> None:
    plan = present(tree(**{f"{PTXAS}/ptxas-blackwell": ""}), **assembled(OLD, OLD, path))
    assert f", and {expected}; " in plan.patches[0]["reason"]


@pytest.mark.parametrize(
    ("capability", "target", "blackwell", "name"),
    [
        ("12.1", "sm_121a", True, "ptxas-blackwell"),
        ("12.1", "sm_121a", False, "ptxas"),
        ("10.0", "sm_100a", True, "ptxas-blackwell"),
        ("9.0", "sm_90a", True, "ptxas"),
        ("8.9", "sm_89", True, "ptxas"),
    ],
)
def test_the_assembler_of_a_gpu(capability: str, target: str, blackwell: bool, name: str) -> None:
    files = tree(**{f"{PTXAS}/ptxas": "", f"{PTXAS}/ptxas-blackwell": "" if blackwell else None})
    given = assembled(frozenset(), frozenset({target}), mechanism="source", capability=gpu(capability))
    assert present(files, **given).files == {f"{PTXAS}/{name}": Link("/toolkit/ptxas")}
