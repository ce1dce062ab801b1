"""The plan before the first run shows the command line and the variables that vllm_patch leads to after it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import KNOWN, Node, pair
from fake_vllm import FILES, install
from repository import load_yaml, read
from run_module import run_module
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import plan as cluster_plan
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report as cluster_report
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import typical
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.patch import of_plan
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy, stacks
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Copy

FP8, NVFP4 = "qwen3-next-80b-a3b-instruct-fp8", "nemotron-3-super-120b-a12b-nvfp4"
IMAGE_ID = "0123456789ab" + "c" * 52


def nodes(root: Path, model: str, stack: str, additions: dict[str, Any], **patch: Any) -> list[Node]:
    """Return two Sparks with typical facts, and the launch overrides that a run recorded."""
    executor = "mp" if stacks.STACKS[stack].image_has_ray is False else "ray"
    settings = {
        "gb10_model": model,
        "gb10_stack": stack,
        "gb10_install_dir": str(root),
        "gb10_distributed_executor_backend": executor,
        **({"gb10_runtime_lock": ""} if stacks.STACKS[stack].image else {}),
        **{f"vllm_patch_{name}": value for name, value in patch.items()},
    }
    found = pair(**settings)
    for node in found:
        node["observed"] = {**typical.observed(node["settings"], node["address"]), "additions": additions}
    return found


def planned(given: list[Node], stack: str) -> tuple[dict[str, Any], list[str]]:
    """Return the plan and its text without the reason that names the patches that are not recorded yet."""
    lock = stacks.STACKS[stack].lock
    inputs = parse(given, read(f"roles/gb10/files/{lock}") if lock else "")
    plan, problems = cluster_plan.plan(inputs, KNOWN)
    assert plan and problems == []
    facts = plan.facts()
    return facts, [line for line in cluster_report.lines(typed(facts), 1) if "vllm_patch will add" not in line]


def assembler(path: Path) -> None:
    """Write the assembler of Triton 3.6 and newer, as far as vllm_patch reads it."""
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x7fELF sm_120a\0sm_121a\0")
    path.chmod(0o755)


def after_the_role(plan: dict[str, Any], root: Path, version: str) -> dict[str, Any]:
    """Install a vLLM of this release and its Triton, run the module as the role does, and return the role's
    record."""
    patches = load_yaml(read("roles/vllm_patch/defaults/main.yml"))["vllm_patch_patches"]
    files = {**FILES, "_version.py": f"version = '{version}'\n"}
    common = {"capability": "12.1", "quantization": plan["quantization"], "patches": patches}
    if plan["runtime"]["kind"] == stacks.NATIVE:
        folder = Path(plan["runtime"]["path"])
        package = install(folder / "lib/python3.12/site-packages/vllm", files)
        assembler(package.parent / "triton/backends/nvidia/bin/ptxas-blackwell")
        (folder / "bin").mkdir()
        (folder / "bin/python").touch(0o755)
        arguments = of_plan._place(load.plan(plan), {})
        mounts: list[dict[str, Any]] = []
    else:
        copy = f"{root}/images/{image_copy.short(IMAGE_ID)}"
        install(Path(image_copy.package_dir(copy)), files)
        found = image_copy.answer(copy, Copy(IMAGE_ID, plan["runtime"]["image"], "/usr/lib/vllm", ""))
        arguments, mounts = {key: found[key] for key in ("package_dir", "config_folder", "toolkit")}, found["mounts"]
    answer = run_module("vllm_patch", {**common, **arguments})
    assert not answer.get("failed"), answer
    assert not [entry for entry in answer["patches"] if entry["status"] == "unsupported"], answer["patches"]
    recorded = {key: answer[key] for key in ("environment", "flags", "files")}
    return {"vllm_patch": {"runtime": plan["runtime"]["name"], **recorded, "mounts": mounts}}


@pytest.mark.parametrize(
    ("model", "stack", "version"),
    [
        (FP8, "current", "0.33.0+cu130"),
        (FP8, "vllm-0.18.1", "0.18.1+cu129"),
        (FP8, "ngc-26.04", "0.19.0+cu130"),
        (NVFP4, "current", "0.33.0+cu130"),
        ("bge-m3", "ngc-26.04", "0.19.0+cu130"),
    ],
)
def test_the_preview_is_the_later_command_line(tmp_path: Path, model: str, stack: str, version: str) -> None:
    plan, preview = planned(nodes(tmp_path, model, stack, {}), stack)
    recorded = after_the_role(plan, tmp_path, version)
    later, lines = planned(nodes(tmp_path, model, stack, recorded), stack)
    assert [line.replace("IMAGE_ID", image_copy.short(IMAGE_ID)) for line in preview] == lines
    assert any("VLLM_TUNED_CONFIG_FOLDER=" in line for line in preview)
    assert later["serve"]["warnings"] == plan["serve"]["warnings"] == []
    # Only what a role recorded reaches the units.
    assert [node["additions"] for node in (*plan["nodes"], *later["nodes"])] == [{}, {}, recorded, recorded]


def test_the_preview_of_fp8_experts_names_their_flag_and_kernels(tmp_path: Path) -> None:
    plan, preview = planned(nodes(tmp_path, FP8, "vllm-0.18.1", {}), "vllm-0.18.1")
    text = "\n".join(preview)
    assert "--moe-backend triton" in text and "CutlassFP8ScaledMMLinearKernel" in text
    assert not any("fp8-cutlass" in line for line in plan["serve"]["findings"])
    assert [line for line in plan["serve"]["why"] if "vllm_patch" in line] == [
        "VLLM_DISABLED_KERNELS, VLLM_TUNED_CONFIG_FOLDER, --moe-backend triton: vllm_patch will add this to "
        "vLLM 0.18.1 for CUDA 12"
    ]


def test_a_recorded_flag_of_another_model_is_not_shown(tmp_path: Path) -> None:
    """A run decides on the flag again, because it depends on the model's quantization."""
    plan, _preview = planned(nodes(tmp_path, FP8, "current", {}), "current")
    recorded = after_the_role(plan, tmp_path, "0.33.0+cu130")
    assert recorded["vllm_patch"]["flags"] == ["--moe-backend", "triton"]
    _plan, lines = planned(nodes(tmp_path, NVFP4, "current", recorded), "current")
    assert not any(re.search(r"--moe-backend[ =]triton", line) for line in lines)
    assert any("VLLM_TUNED_CONFIG_FOLDER=" in line for line in lines)


@pytest.mark.parametrize("patch", [{"state": "absent"}, {"patches": []}, {"image": "sha256:1"}, {"capability": "none"}])
def test_nothing_is_foreseen_without_the_patches(tmp_path: Path, patch: dict[str, Any]) -> None:
    plan, _preview = planned(nodes(tmp_path, FP8, "current", {}, **patch), "current")
    assert [node["foreseen"] for node in plan["nodes"]] == [{}, {}]


@pytest.mark.parametrize(
    ("pin", "other", "variable", "value"),
    [
        # A build for CUDA 12 needs another variable.
        ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "VLLM_DISABLED_KERNELS", "CutlassFp8BlockScaledMMKernel"),
        (r"^triton==[^ ]+", "triton==3.5.1", "TRITON_PTXAS_BLACKWELL_PATH", "/usr/local/cuda/bin/ptxas"),
    ],
    ids=["CUDA 12", "an old Triton takes the assembler of the toolkit"],
)
def test_the_releases_are_those_of_the_lock(tmp_path: Path, pin: str, other: str, variable: str, value: str) -> None:
    lock = read(f"roles/gb10/files/{stacks.STACKS['current'].lock}")
    changed, count = re.subn(pin, other, lock, flags=re.MULTILINE)
    plan, _problems = cluster_plan.plan(parse(nodes(tmp_path, FP8, "current", {}), changed), KNOWN)
    assert plan and count
    assert value in plan.nodes[0].foreseen["vllm_patch"]["environment"][variable].split(",")
