"""The locked packages of `current` for a Spark, on a host of its architecture without a GPU.

Stubs of the driver's libraries report a GB10, so vLLM chooses its platform for CUDA. No kernel can run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import arm64_cuda
import pytest
from live_cluster import Cluster
from locks import installed
from real_parser import NVIDIA, asked, assert_table, planned, recipes
from repository import ROOT
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.kernels import plan as kernels
from ansible_collections.gb10.cluster.plugins.module_utils.patch.table import ORACLE, UTILS
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import io_introspect

STACK = stacks.STACKS["current"]
#: NVIDIA's recipes are proprietary, so the project has none.
CATALOG = Path(os.environ["GB10_NVIDIA_RECIPES"]) if "GB10_NVIDIA_RECIPES" in os.environ else None
DRIVER, PATCHED = "/usr/local/lib/gb10-lab/driver", "/opt/patched"
VERSIONS = ["torch:__version__", "triton:__version__", "flashinfer:__version__", "ray:__version__"]
COMPILED = ["vllm._C_stable_libtorch:__name__", "vllm._moe_C_stable_libtorch:__name__"]
#: The application of `vllm serve` with the guard in front, as in its unit, and no engine behind it.
GUARDED = """
import json, os, sys
sys.path.insert(0, "/usr/local/lib/gb10")
os.environ |= {{"VLLM_API_KEY": "key", "VLLM_CONFIG_ROOT": "/"}}
space = {{"__name__": "asked"}}
exec({program!r}, space)
from vllm.entrypoints.launchers.app import build_app
from starlette.testclient import TestClient
client = TestClient(
    build_app(space["parser"]().parse_args(["--middleware=gb10_api_guard.Guard"]), ("generate",)),
    raise_server_exceptions=False,
)
key = {{"authorization": "Bearer key"}}
chat = {{"model": "m", "messages": [{{"role": "user", "content": "x"}}]}}
print(json.dumps({{
    "no key": client.get("/v1/models").status_code,
    "key": client.get("/v1/models", headers=key).status_code,
    "many answers": client.post("/v1/chat/completions", json=chat | {{"n": 16384}}, headers=key).status_code,
    "no such route": client.get("/v1/nothing", headers=key).status_code,
}}))
"""
#: The modules that FlashInfer compiles for a GB10 ahead of time, with one shape of attention. None is compiled.
KERNELS = """
import json
from flashinfer import aot
chosen = aot.get_default_config()
chosen |= {"fa2_head_dim": [(128, 128)], "fa3_head_dim": [], "f16_dtype": chosen["f16_dtype"][:1]}
shapes = "f16_dtype f8_dtype fa2_head_dim fa3_head_dim use_sliding_window use_logits_soft_cap".split()
parts = "add_comm add_gemma add_oai_oss add_moe add_act add_misc add_xqa".split()
specs = aot.gen_all_modules(
    *(chosen[name] for name in shapes), aot.detect_sm_capabilities(), *(chosen[name] for name in parts)
)
specs = {spec.name: spec for spec in specs if hasattr(spec, "write_ninja")}
specs["sampling"].write_ninja()
print(json.dumps({
    "stored": {name: str(spec.aot_path) for name, spec in specs.items()},
    "built": {name: str(spec.jit_library_path) for name, spec in specs.items()},
    "ninja": specs["sampling"].ninja_path.read_text(),
}))
"""
#: Patched functions, and what they return on a GB10.
PATCHES = {
    f"vllm.{UTILS.removesuffix('.py').replace('/', '.')}:cutlass_fp8_supported": False,
    "vllm.model_executor.kernels.linear.scaled_mm.cutlass:CutlassFP8ScaledMMLinearKernel.is_supported": [
        False,
        "CutlassFP8ScaledMMLinearKernel is off on 12.1 (gb10.cluster)",
    ],
    f"vllm.{ORACLE.removesuffix('.py').replace('/', '.')}:select_fp8_moe_backend.__name__": "select_fp8_moe_backend",
}


@pytest.fixture(scope="module")
def site(cluster: Cluster, head: Host) -> str:
    """Return the folder of the packages on the host. The machine installs them once, in seconds."""
    text = (ROOT / "roles/gb10/files" / STACK.lock).read_text(encoding="utf-8")
    release = head.check_output("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'")
    bind = next(bind for bind in cluster.nodes["spark1"]["lab_binds"] if bind["dest"] == "/opt/current")
    name = hashlib.sha256(f"{text}{release}".encode()).hexdigest()[:12]
    target = Path(bind["src"]) / name
    if not target.exists():
        for older in target.parent.iterdir():
            shutil.rmtree(older)
        entries = installed.requirements(text)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            packages = installed.install(
                [entry for entry in entries if entry.version], installed.uv(entries), Path(folder), release
            )
            packages.rename(target)
    return f"{bind['dest']}/{name}"


@pytest.fixture(scope="module")
def patched(cluster: Cluster, head: Host, site: str) -> dict[str, Any]:
    """Patch a copy of vLLM's sources, and return the result."""
    head.check_output(f"rm -rf {PATCHED}; mkdir {PATCHED}")
    head.check_output(f"cd {site}; find vllm -name '*.py' -exec cp --parents --target-directory={PATCHED} {{}} +")
    head.check_output(f"cd {site}; find vllm -name '*.so' -exec ln -s {site}/{{}} {PATCHED}/{{}} ';'")
    return patch(cluster)


def patch(cluster: Cluster, state: str = "present", mechanism: str = "source") -> dict[str, Any]:
    given = {"package_dir": f"{PATCHED}/vllm", "capability": "12.1", "mechanism": mechanism, "state": state}
    return cluster.module("gb10.cluster.vllm_patch", **given)


@pytest.fixture(scope="module")
def answer(head: Host, site: str, patched: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the patched vLLM beside stubs of NVIDIA's driver. One process, because it takes minutes."""
    assert patched["changed"]
    # Each function of the driver that vLLM's modules name returns CUDA_ERROR_NO_DEVICE.
    undefined = head.check_output(
        f"find {site}/vllm -name '*.so' -exec readelf --wide --dyn-syms {{}} + "
        "| sed -nE 's/.* UND (cu[A-Z][A-Za-z_0-9]*)$/\\1/p' | sort -u"
    ).splitlines()
    assert "cuMemCreate" in undefined
    sources = {
        "libcuda.so.1": "".join(f"int {name}(void) {{ return 100; }}\n" for name in undefined),
        "libnvidia-ml.so.1": (Path(__file__).parent / "driver/nvml.c").read_text(encoding="utf-8"),
    }
    head.check_output(f"mkdir -p {DRIVER}")
    for name, text in sources.items():
        head.check_output("printf %%s %s | gcc -shared -fPIC -nostdlib -o %s -x c -", text, f"{DRIVER}/{name}")
    script = "/usr/local/bin/python-current"
    paths = f"LD_LIBRARY_PATH={DRIVER} PYTHONPATH={PATCHED}:{site}"
    head.check_output(f"printf '#!/bin/sh\n{paths} exec python3 \"$@\"\n' >{script}; chmod 755 {script}")
    lines = planned(STACK) | (recipes(CATALOG) if CATALOG else {})
    return asked(head, script, lines, [*VERSIONS, *COMPILED, *PATCHES])


def test_the_packages_of_a_rank_are_imported(answer: dict[str, Any]) -> None:
    assert answer["values"]["torch:__version__"].startswith(f"{STACK.torch}+cu13")
    assert answer["version"] == STACK.vllm
    assert answer["ray"]


def test_the_parser_is_the_table(answer: dict[str, Any]) -> None:
    assert_table(answer)


def test_the_parser_takes_what_is_planned_for_every_model(answer: dict[str, Any]) -> None:
    assert {name: text for name, text in answer["refused"].items() if not name.startswith(NVIDIA)} == {}


@pytest.mark.skipif(not CATALOG, reason="GB10_NVIDIA_RECIPES does not name a clone of NVIDIA's catalog")
def test_the_parser_takes_nvidias_recipes(answer: dict[str, Any]) -> None:
    """Recipes for the image of the fork B12X may have its options."""
    refused = {name: text for name, text in answer["refused"].items() if name.startswith(NVIDIA)}
    assert {name: text for name, text in refused.items() if "arguments: --gdn-decode-kernel b12x" not in text} == {}


# The answer's fixture writes the interpreter.
@pytest.mark.usefixtures("answer")
def test_the_guard_stands_before_the_application_of_vllm(head: Host) -> None:
    """Without an engine, a request that the guard lets pass is an error of the server."""
    text = head.check_output("/usr/local/bin/python-current -c %s", GUARDED.format(program=io_introspect.program()))
    assert json.loads(text.splitlines()[-1]) == {
        "no key": 401,
        "key": 500,
        "many answers": 413,
        "no such route": 404,
    }


def test_patched_functions_of_vllm_know_a_gb10(answer: dict[str, Any]) -> None:
    assert {name: answer["values"][name] for name in PATCHES} == PATCHES


@pytest.mark.usefixtures("answer")
def test_flashinfer_keeps_and_finds_its_modules_where_the_role_does(cluster: Cluster, head: Host, site: str) -> None:
    base, cuda = "/run/flashinfer", f"{arm64_cuda.PLACE}/{arm64_cuda.TOOLKIT}"
    arm64_cuda.toolkit(arm64_cuda.folder(cluster))
    given = f"FLASHINFER_CUDA_ARCH_LIST=12.1 FLASHINFER_WORKSPACE_BASE={base} CUDA_HOME={cuda} PATH={cuda}/bin:/usr/bin:/bin"
    text = head.check_output(f"env {given} /usr/local/bin/python-current -c %s", KERNELS)
    found = json.loads(text.splitlines()[-1])
    assert len(found["built"]) > 20
    for name, path in found["built"].items():
        assert kernels.built([path.removeprefix(f"{base}/")]) == {name: path.removeprefix(f"{base}/")}
        assert kernels.MODULE.fullmatch(name)
        assert found["stored"][name] == f"{site}/flashinfer/{kernels.STORE}/{name}/{name}.so"
    assert "-gencode=arch=compute_121a,code=sm_121a" in found["ninja"]


def test_a_second_patch_changes_nothing_and_a_moved_place_is_found(
    cluster: Cluster, head: Host, patched: dict[str, Any]
) -> None:
    assert patched["vllm_version"] == STACK.vllm
    assert patch(cluster)["changed"] is False
    path = f"{PATCHED}/vllm/{ORACLE}"
    assert patch(cluster, "absent")["changed"] is True
    head.check_output(f"sed -i.shipped 's/^def select_fp8_moe_backend/def moved_fp8_moe_backend/' {path}")
    try:
        found = patch(cluster)
    finally:
        head.check_output(f"mv {path}.shipped {path}")
    (entry,) = (entry for entry in found["patches"] if entry["name"] == "fp8_moe_oracle")
    assert (entry["status"], "select_fp8_moe_backend" in entry["reason"]) == ("unsupported", True), entry
    chosen = {entry["name"]: entry["status"] for entry in patch(cluster, mechanism="auto")["patches"]}
    assert (chosen["w8a8"], chosen["fp8_moe_oracle"]) == ("not_needed", "use_flag")
