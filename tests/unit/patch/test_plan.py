"""The choice of patches and flags, from version, GPU, build and the files' code only."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fake_vllm import FILES, KERNELS
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
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
    LAST,
    ORACLE,
    PATCHES,
    PTXAS,
    ROWS,
    UTILS,
)
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Assembler

EDITED = ["w8a8", "w8a8_torch", "fp8_moe_oracle"]
ALL_KERNELS = "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel,CutlassFp8BlockScaledMMKernel"


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


@pytest.mark.parametrize("capability", ["12.1", "9.0"])
def test_a_failed_check_of_the_gpu_probe_turns_its_kernels_off(capability: str) -> None:
    own = {
        "capability": ComputeCapability.parse(capability),
        "capability_given": False,
        "version": "0.33.0",
        "cuda": 13,
    }
    assert statuses(patch_plan.present(request(names=["w8a8"], **own), tree())) == ["not_needed"]
    plan = patch_plan.present(request(names=["w8a8"], **own, failed={"fp8_vllm": "FP8: wrong result"}), tree())
    assert (statuses(plan), plan.files) == (["use_flag"], {})
    assert "CutlassFP8ScaledMMLinearKernel" in plan.environment["VLLM_DISABLED_KERNELS"].split(",")
    assert plan.patches[0]["reason"] == "the GPU probe failed: FP8: wrong result"
    plan = patch_plan.present(request(names=["w8a8"], **own, failed={"fp4_vllm": "NVFP4: error"}), tree())
    assert plan.environment == {"VLLM_DISABLED_KERNELS": "CutlassNvFp4LinearKernel"}


def test_the_table_is_sound() -> None:
    assert {row.patch for row in ROWS} == set(PATCHES)
    for row in ROWS:
        assert row.reason and row.source and row.verdict in ("applies", "use_flag", "not_needed"), row
        assert (row.verdict == "applies") is bool(row.edits) or row.patch in ("moe_config", "triton_ptxas"), row
        assert row.until is None or row.since < row.until, row
    for patch in PATCHES:
        ranges = sorted((row.since, row.until) for row in ROWS if row.patch == patch and row.cuda is row.family is None)
        assert [until for _since, until in ranges] == [*(since for since, _until in ranges[1:]), None], (
            "each release has one row"
        )
        assert ranges[0][0] == FIRST[:2]
    for patch in EDITED:
        for cuda in (12, 13):
            for minor in range(FIRST[1], LAST[1] + 1):
                plan = patch_plan.present(request(names=[patch], version=f"0.{minor}.0", cuda=cuda), tree())
                assert len(plan.patches) == 1, "every release has a row of every patch"


@pytest.mark.parametrize(
    ("version", "cuda", "expected"),
    [
        ("0.22.1", 12, "use_flag"),
        ("0.22.1", None, "use_flag"),
        ("0.22.1", 13, "not_needed"),
        ("0.32.0", 13, "not_needed"),
        ("0.33.0", 13, "not_needed"),
        ("0.20", 13, "not_needed"),
        ("0.18.1", 13, "applied"),
    ],
)
def test_the_build_counts(version: str, cuda: int | None, expected: str) -> None:
    assert statuses(patch_plan.present(request(names=["w8a8"], version=version, cuda=cuda), tree())) == [expected]


@pytest.mark.parametrize(
    ("version", "cuda", "capability", "expected"),
    [
        ("0.20.0", 13, "12.1", "not_needed"),
        ("0.19.0", 13, "12.1", "use_flag"),
        ("0.20.0", 12, "12.1", "use_flag"),
        ("0.20.0", 13, "11.0", "use_flag"),
    ],
)
def test_wheels_for_cuda_13_leave_the_kernels_of_12_out(
    version: str, cuda: int, capability: str, expected: str
) -> None:
    given = request(names=["w8a8_torch"], version=version, cuda=cuda, capability=ComputeCapability.parse(capability))
    assert statuses(patch_plan.present(given, tree())) == [expected]


@pytest.mark.parametrize(
    ("version", "environment", "flags"),
    [("0.16.0", {"VLLM_USE_FLASHINFER_MOE_FP8": "0"}, []), ("0.17.0", {}, ["--moe-backend", "triton"])],
)
def test_a_variable_turns_flashinfer_off_until_there_is_a_flag(
    version: str, environment: dict[str, str], flags: list[str]
) -> None:
    plan = patch_plan.present(request(names=["fp8_moe_oracle"], version=version), tree())
    assert (plan.environment, plan.flags) == (environment, flags)


def test_the_version_of_the_inserted_lines_is_known() -> None:
    """Another version renews the patches of every installation."""
    assert set(PATCHES.values()) == {1}


def test_flags_and_variables_where_they_do() -> None:
    plan = patch_plan.present(request(), tree())
    assert statuses(plan) == ["use_flag", "not_needed", "use_flag"]
    assert (plan.flags, plan.environment, plan.files) == (
        ["--moe-backend", "triton"],
        {"VLLM_DISABLED_KERNELS": ALL_KERNELS},
        {},
    )
    assert "NVFP4" in plan.patches[2]["reason"]


@pytest.mark.parametrize(
    ("quantization", "mechanism", "status", "flags"),
    [
        ("fp8", "auto", "use_flag", ["--moe-backend", "triton"]),
        ("other", "auto", "not_needed", []),
        ("unknown", "auto", "applied", []),
        ("other", "source", "applied", []),
    ],
)
def test_a_flag_that_counts_for_every_moe_is_for_fp8_models(
    quantization: str, mechanism: str, status: str, flags: list[str]
) -> None:
    """For an unknown model the function is patched, which affects only FP8. w8a8 keeps its harmless variable."""
    plan = patch_plan.present(
        request(names=["w8a8", "fp8_moe_oracle"], quantization=quantization, mechanism=mechanism), tree()
    )
    assert (statuses(plan)[1], plan.flags, ORACLE in plan.files) == (status, flags, status == "applied")
    assert statuses(plan)[0] == ("use_flag" if mechanism == "auto" else "applied")


def test_a_variable_that_two_patches_share_has_each_kernel_once() -> None:
    plan = patch_plan.present(request(names=["w8a8_torch"]), tree())
    assert plan.environment == {
        "VLLM_DISABLED_KERNELS": "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel"
    }


def test_another_capability_has_no_family_target() -> None:
    """sm_120f runs only on 12.x, so CUDA 13 wheels do not help a GPU of another major capability."""
    plan = patch_plan.present(request(names=["w8a8"], cuda=13, capability=ComputeCapability(9, 0)), tree())
    assert (statuses(plan), plan.environment) == (["use_flag"], {"VLLM_DISABLED_KERNELS": ALL_KERNELS})


def test_a_gpu_that_was_only_found_needs_nothing_unless_it_is_a_gb10() -> None:
    plan = patch_plan.present(
        request(capability=ComputeCapability(9, 0), capability_given=False, names=list(PATCHES)), tree()
    )
    assert set(statuses(plan)) == {"not_needed"}
    assert (plan.files, plan.flags, plan.environment) == ({}, [], {})
    assert "this GPU is 9.0" in plan.patches[0]["reason"]
    assert "use_flag" in statuses(patch_plan.present(request(capability_given=False), tree()))


def test_source_patches_whatever_else_would_do() -> None:
    files = tree()
    plan = patch_plan.present(request(mechanism="source", cuda=13), files)
    assert statuses(plan) == ["applied", "not_needed", "applied"]
    assert set(plan.files) == {UTILS, f"{KERNELS}/cutlass.py", f"{KERNELS}/flashinfer.py", ORACLE}
    assert (plan.flags, plan.environment) == ([], {})
    files.run(plan)
    again = patch_plan.present(request(mechanism="source", cuda=13), files)
    assert statuses(again) == ["already_applied", "not_needed", "already_applied"]
    assert again.files == plan.files


def test_a_kernel_that_is_off_says_so() -> None:
    plan = patch_plan.present(request(names=["w8a8"], mechanism="source"), tree())
    assert (
        b'return False, "CutlassFP8ScaledMMLinearKernel is off on 12.1 (gb10.cluster)"'
        in plan.files[f"{KERNELS}/cutlass.py"]
    )


def test_auto_takes_back_what_source_left() -> None:
    files = tree()
    files.run(patch_plan.present(request(mechanism="source"), files))
    plan = patch_plan.present(request(), files)
    assert statuses(plan)[0] == "use_flag"
    files.run(plan)
    assert files.written == {}


def test_patches_that_were_not_named_stay_as_they_are() -> None:
    files = tree()
    files.run(
        patch_plan.present(
            request(mechanism="source", capability=ComputeCapability(12, 0), names=["fp8_moe_oracle"]), files
        )
    )
    before = files.written[ORACLE]
    files.run(patch_plan.present(request(mechanism="source", names=["w8a8"]), files))
    assert files.written[ORACLE] == before
    files.run(patch_plan.absent(request(names=["w8a8"]), files))
    assert files.written == {ORACLE: before}
    assert statuses(patch_plan.absent(request(names=["fp8_moe_oracle", "w8a8"]), files)) == ["not_needed", "removed"]


def test_two_patches_in_one_file() -> None:
    linear = (
        "class Fp8LinearOp:\n    def __init__(self):\n        if x:\n            self.preferred_backend = 'a'\n    "
        "    self.y = 1\n"
    )
    files = tree(**{UTILS: FILES[UTILS] + linear})
    old = {"version": "0.14.1", "mechanism": "source"}
    files.run(patch_plan.present(request(names=["w8a8"], **old), files))
    files.run(patch_plan.present(request(names=["w8a8_torch"], **old), files))
    written = files.written[UTILS]
    assert isinstance(written, bytes) and [match[1] for match in MARKER.finditer(written)] == [
        b"w8a8",
        b"w8a8",
        b"w8a8_torch",
    ]
    files.run(patch_plan.absent(request(names=["w8a8"], **old), files))
    written = files.written[UTILS]
    assert isinstance(written, bytes) and [match[1] for match in MARKER.finditer(written)] == [b"w8a8_torch"]


def test_another_capability_replaces_the_lines() -> None:
    files = tree()
    files.run(patch_plan.present(request(mechanism="source", capability=ComputeCapability(12, 0)), files))
    plan = patch_plan.present(request(mechanism="source"), files)
    assert statuses(plan)[0] == "applied"
    files.run(plan)
    assert {
        match[3]
        for content in files.written.values()
        if isinstance(content, bytes)
        for match in MARKER.finditer(content)
    } == {b"12.1"}


@pytest.mark.parametrize("version", ["0.34.0", "0.33.1", "1.0", "0.12.0", None, "dev"])
def test_what_was_never_read_is_judged_by_its_code(version: str | None) -> None:
    plan = patch_plan.present(request(version=version, names=["w8a8", "fp8_moe_oracle"]), tree())
    assert statuses(plan) == ["use_flag", "use_flag"]
    assert all(
        "is outside the known releases (0.13.0 to 0.33.0), so its code decides" in entry["reason"]
        for entry in plan.patches
    )
    other = tree(**{ORACLE: FILES[ORACLE].replace("config.moe_backend", "config.other")})
    assert statuses(patch_plan.present(request(version=version, names=["w8a8", "fp8_moe_oracle"]), other)) == [
        "use_flag",
        "unsupported",
    ]


def test_a_build_with_older_code_is_judged_by_it() -> None:
    """Distributions backport code between releases, so the version alone does not decide."""
    kernels = {
        name.replace(KERNELS, "model_executor/layers/quantization/kernels/scaled_mm"): text
        for name, text in FILES.items()
        if KERNELS in name
    }
    moved = tree(**{name: None for name in FILES if KERNELS in name}, **kernels)
    plan = patch_plan.present(request(names=["w8a8"], mechanism="source"), moved)
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
    plan = patch_plan.present(request(mechanism="source"), tree(**{file: text}))
    entry = next(entry for entry in plan.patches if entry["status"] == "unsupported")
    assert entry["name"] == ("fp8_moe_oracle" if file == ORACLE else "w8a8")
    assert file in entry["reason"] and expected in entry["reason"]
    assert entry["file"] and not [path for path in plan.files if path in entry["files"]]


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        (
            "class CutlassFp8BlockScaledMMKernel: ...\n",
            {"VLLM_DISABLED_KERNELS": "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel"},
        ),
        ("", {"VLLM_DISABLED_KERNELS": ALL_KERNELS}),
    ],
)
def test_without_a_version_the_code_tells_the_releases_apart(left_out: str, expected: dict[str, str]) -> None:
    text = FILES[f"{KERNELS}/cutlass.py"].replace(left_out or "nothing", "")
    plan = patch_plan.present(request(version=None, names=["w8a8"]), tree(**{f"{KERNELS}/cutlass.py": text}))
    assert plan.environment == expected
    older = tree(
        **{
            ORACLE: FILES[ORACLE]
            .replace("config.moe_backend", "envs.VLLM_USE_FLASHINFER_MOE_FP8")
            .replace("import mk", "import mk, envs")
        }
    )
    old = patch_plan.present(request(version=None, names=["fp8_moe_oracle"]), older)
    assert (old.flags, old.environment) == ([], {"VLLM_USE_FLASHINFER_MOE_FP8": "0"})


def test_a_missing_file_is_unsupported() -> None:
    plan = patch_plan.present(request(mechanism="source", names=["w8a8"]), tree(**{UTILS: None}))
    assert "file not found" in plan.patches[0]["reason"]


def test_a_file_with_an_error_is_a_problem() -> None:
    with pytest.raises(ProblemsError, match=r"package_dir: .*w8a8_utils\.py has a syntax error in line 1"):
        patch_plan.present(request(mechanism="source"), tree(**{UTILS: "def f(:\n"}))


def test_without_the_original_nothing_is_patched() -> None:
    files = tree()
    files.troubles[UTILS] = "changed by a user"
    plan = patch_plan.present(request(mechanism="source"), files)
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
    source = "\n".join(texts).replace("\n", newline) + newline
    plan = patch_plan.present(request(names=["w8a8"], mechanism="source"), tree(**{UTILS: source}))
    if broken:
        assert (statuses(plan), plan.files) == (["unsupported"], {})
        return
    assert statuses(plan) == ["applied"]
    for capability, expected in ((121, False), (120, True), (122, True), (130, True)):
        assert answers(plan.files[UTILS], capability) == (expected, expected)
    written = plan.files[UTILS]
    assert isinstance(written, bytes) and (b"\n" not in written.replace(b"\r\n", b"")) is (newline == "\r\n")


@pytest.mark.parametrize("hidden", ["def other():", "if TYPE_CHECKING:"])
def test_a_name_that_the_function_would_not_find_is_imported(hidden: str) -> None:
    line = "from vllm.platforms import current_platform\n"
    assert line in FILES[UTILS]
    text = FILES[UTILS].replace(line, f"TYPE_CHECKING = False\n{hidden}\n    {line}")
    plan = patch_plan.present(request(names=["w8a8"], mechanism="source"), tree(**{UTILS: text}))
    assert statuses(plan) == ["applied"]
    assert answers(plan.files[UTILS], 121) == (False, False)


def answers(source: Wanted, capability: int) -> tuple[bool, bool]:
    """Execute the file on a platform with this capability, and return the results of the two functions."""

    class Platform:
        def is_cuda(self) -> bool:
            return True

        def get_device_capability(self) -> Any:
            return self

        def to_int(self) -> int:
            return capability

    class Logger:
        def info_once(self, _message: str) -> None:
            pass

    def importer(name: str, _globals: Any = None, _locals: Any = None, _names: Any = (), _level: int = 0) -> Any:
        module = type("module", (), {"current_platform": Platform(), "init_logger": lambda _name: Logger()})
        assert name in ("vllm.platforms", "vllm.logger")
        return module

    class Decorators:
        def b(self, *_given: int) -> Any:
            return lambda function: function

    assert isinstance(source, bytes)
    names: dict[str, Any] = {
        "__builtins__": {"__import__": importer, "bool": bool, "__build_class__": __build_class__, "__name__": "x"},
        "cache": lambda function: function,
        "decorated": lambda function: function,
        "a": Decorators(),
        "__name__": "vllm.executed",
    }
    exec(compile(source, "w8a8_utils.py", "exec"), names)
    return names["cutlass_fp8_supported"](), names["cutlass_block_fp8_supported"]()


def test_moe_tables_are_what_vllm_reads() -> None:
    tables = patch_files.moe_tables()
    assert (
        "E=512,N=256,device_name=NVIDIA_GB10,dtype=fp8_w8a8,block_shape=[128,128].json" in tables and len(tables) == 4
    )
    for content in tables.values():
        table = json.loads(content)
        assert table.pop("triton_version").startswith("untuned")
        assert sorted(int(key) for key in table) == [
            1,
            2,
            4,
            8,
            16,
            24,
            32,
            48,
            64,
            96,
            128,
            256,
            512,
            1024,
            1536,
            2048,
            3072,
            4096,
        ]
        ranges = {"BLOCK_SIZE_M": {16, 32}, "BLOCK_SIZE_N": {128}, "BLOCK_SIZE_K": {64, 128}}
        ranges |= {"GROUP_SIZE_M": {1, 8, 16}, "num_warps": {4}, "num_stages": {4, 5}}
        assert {key: {entry[key] for entry in table.values()} for key in table["1"]} == ranges
        for entry in table.values():
            # One byte per weight and per activation. A block of a GB10 has 99 KiB of shared memory.
            assert (
                entry["num_stages"] * entry["BLOCK_SIZE_K"] * (entry["BLOCK_SIZE_M"] + entry["BLOCK_SIZE_N"])
                <= 99 * 1024
            )


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (1, (16, 64, 1, 5)),
        (64, (16, 64, 1, 5)),
        (96, (32, 128, 8, 4)),
        (512, (32, 128, 8, 4)),
        (1024, (32, 128, 16, 4)),
    ],
)
def test_a_larger_batch_has_larger_tiles(batch: int, expected: tuple[int, ...]) -> None:
    table = json.loads(next(iter(patch_files.moe_tables().values())))[str(batch)]
    assert tuple(table[key] for key in ("BLOCK_SIZE_M", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_stages")) == expected


def test_moe_config_goes_to_a_folder_and_respects_what_is_there() -> None:
    names = list(patch_files.moe_tables())
    files = tree(**{f"{CONFIGS}/{names[0]}": "{}", f"/configs/{names[1]}": "{}"})
    plan = patch_plan.present(request(names=["moe_config"]), files)
    assert (statuses(plan), plan.environment) == (["use_flag"], {"VLLM_TUNED_CONFIG_FOLDER": "/configs"})
    assert set(plan.files) == {f"/configs/{name}" for name in names[2:]}
    source = patch_plan.present(request(names=["moe_config"], mechanism="source"), files)
    assert (statuses(source), set(source.files)) == (["applied"], {f"{CONFIGS}/{name}" for name in names[1:]})
    files.run(source)
    assert statuses(patch_plan.present(request(names=["moe_config"], mechanism="source"), files)) == ["already_applied"]
    files.written = dict.fromkeys(files.written, b"{}")
    assert statuses(patch_plan.present(request(names=["moe_config"], mechanism="source"), files)) == ["applied"]
    files.written = {}
    every = patch_plan.present(request(names=["moe_config"]), tree(**{f"{CONFIGS}/{name}": "{}" for name in names}))
    assert (statuses(every), every.files, every.environment) == (["not_needed"], {}, {})
    other = patch_plan.present(request(names=["moe_config"], capability=ComputeCapability(12, 0)), files)
    assert (statuses(other), other.files) == (["not_needed"], {})


def test_moe_tables_go_when_upstream_ships_its_own() -> None:
    files = tree()
    files.run(patch_plan.present(request(names=["moe_config"]), files))
    names = list(patch_files.moe_tables())
    newer = tree(**{f"{CONFIGS}/{names[0]}": "{}"})
    newer.written = files.written
    plan = patch_plan.present(request(names=["moe_config"]), newer)
    assert plan.files[f"/configs/{names[0]}"] is None
    gone = patch_plan.absent(request(names=["moe_config"]), files)
    assert (statuses(gone), set(gone.files.values())) == (["removed"], {None})


KNOWS = frozenset({"sm_120a", "sm_121", "sm_121a"})


@pytest.mark.parametrize(
    ("bundled", "toolkit", "mechanism", "status"),
    [
        (KNOWS, frozenset(), "auto", "not_needed"),
        (frozenset({"sm_120a"}), KNOWS, "auto", "use_flag"),
        (frozenset({"sm_120a"}), KNOWS, "source", "applied"),
        (frozenset(), KNOWS, "auto", "use_flag"),
        (frozenset({"sm_121"}), frozenset({"sm_120"}), "auto", "unsupported"),
    ],
)
def test_triton_ptxas(bundled: frozenset[str], toolkit: frozenset[str], mechanism: str, status: str) -> None:
    files = tree(**{f"{PTXAS}/ptxas": "", f"{PTXAS}/ptxas-blackwell": ""})
    given = replace(request(names=["triton_ptxas"], mechanism=mechanism), toolkit=Assembler("/toolkit/ptxas", toolkit))
    given = replace(given, bundled={"ptxas": Assembler("a"), "ptxas-blackwell": Assembler("b", bundled)})
    plan = patch_plan.present(given, files)
    variables = dict.fromkeys(["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"], "/toolkit/ptxas")
    assert (statuses(plan), plan.environment) == ([status], variables if status == "use_flag" else {})
    assert plan.files == ({f"{PTXAS}/ptxas-blackwell": Link("/toolkit/ptxas")} if status == "applied" else {})
    assert statuses(patch_plan.present(given, tree())) == ["not_needed"], "without Triton"


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/toolkit/ptxas", "/toolkit/ptxas does not either"), ("", "no ptxas of a CUDA toolkit was found")],
)
def test_a_missing_assembler_is_named(path: str, expected: str) -> None:
    given = replace(request(names=["triton_ptxas"]), toolkit=Assembler(path, frozenset({"sm_120"})))
    given = replace(given, bundled={"ptxas": Assembler("a"), "ptxas-blackwell": Assembler("b", frozenset({"sm_120"}))})
    assert (
        f", and {expected}; "
        in patch_plan.present(given, tree(**{f"{PTXAS}/ptxas-blackwell": ""})).patches[0]["reason"]
    )


@pytest.mark.parametrize(
    ("capability", "target", "blackwell", "name"),
    [
        ((12, 1), "sm_121a", True, "ptxas-blackwell"),
        ((12, 1), "sm_121a", False, "ptxas"),
        ((10, 0), "sm_100a", True, "ptxas-blackwell"),
        ((9, 0), "sm_90a", True, "ptxas"),
        ((8, 9), "sm_89", True, "ptxas"),
    ],
)
def test_the_assembler_of_a_gpu(capability: tuple[int, int], target: str, blackwell: bool, name: str) -> None:
    files = tree(**{f"{PTXAS}/ptxas": ""}, **({f"{PTXAS}/ptxas-blackwell": ""} if blackwell else {}))
    given = replace(request(names=["triton_ptxas"], mechanism="source"), capability=ComputeCapability(*capability))
    given = replace(given, toolkit=Assembler("/toolkit/ptxas", frozenset({target})))
    given = replace(given, bundled={"ptxas": Assembler("a"), "ptxas-blackwell": Assembler("b")})
    assert patch_plan.present(given, files).files == {f"{PTXAS}/{name}": Link("/toolkit/ptxas")}


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
