# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules about memory that CPU and GPU share: vLLM's part of it, and the other users of it while a model is loaded."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, INFO, WARNING, Found
from ansible_collections.gb10.cluster.plugins.module_utils.launch import toolchain
from ansible_collections.gb10.cluster.plugins.module_utils.rules import mapped
from ansible_collections.gb10.cluster.plugins.module_utils.rules.mapped import LOAD
from ansible_collections.gb10.cluster.plugins.module_utils.rules.schema import (
    CONSELARA,
    LINT,
    MIXED_NOTES,
    SPARK,
    THOR,
    View,
    rule,
    when,
)

UTILIZATION = "--gpu-memory-utilization"
_CEILING, _SAFE = 0.90, 0.87
#: The kernel of a report: tuning exhausted the memory without being requested; see kernel-7-0-0-1019.
_TUNED_KERNEL = "7.0.0-1019"
#: Above the first share of a node's memory, a loader that reads whole files into memory has no room for them and the
#: weights. Nodes below the second share of the largest node's memory count as unequal.
_LOADED_SHARE, _UNEQUAL = 0.8, 0.9
_FRACTIONS = (
    "published values range from 0.4 to 0.9: NVIDIA 0.7 to 0.85 (2026-09), and 0.9 without headroom for production "
    "(2026-07). 0.70 still wedged a host while profiling (vllm-project/vllm#46307, 2026-06), so no fraction is safe by "
    "itself. The newest practice is the KV cache in bytes and a small fraction"
)
_FASTSAFETENSORS = "fastsafetensors"
#: Load format -> the package that it imports, which vLLM has as an extra. Source: vLLM 0.32.0, model_loader/*.py.
_LOADERS = {
    _FASTSAFETENSORS: _FASTSAFETENSORS,
    "bitsandbytes": "bitsandbytes",
    "instanttensor": "instanttensor",
    "modelexpress": "modelexpress",
    "runai_streamer": "runai-model-streamer",
    "runai_streamer_sharded": "runai-model-streamer",
    "tensorizer": "tensorizer",
}
_RESERVE = "raise gb10_memory_reserve, which sets the share"


def _default(view: View) -> list[Found]:
    default = "0.9" if view.before(0, 20) else "0.92"
    found = (f"gb10_vllm_extra_args.{UTILIZATION}", f"not given, so vLLM uses {default}")
    return when(not view.argument(UTILIZATION), found)


def _ngc_loader(view: View) -> list[Found]:
    image = view.situation.image
    broken = any(f"nvcr.io/nvidia/vllm:{tag}" in image for tag in ("26.03", "26.04"))
    return when(
        broken and view.argument(LOAD) == _FASTSAFETENSORS,
        (f"gb10_vllm_extra_args.{LOAD}", f"{_FASTSAFETENSORS} in {image}"),
    )


def _loader(view: View) -> list[Found]:
    package, packages = _LOADERS.get(view.argument(LOAD), ""), view.situation.packages
    found = (f"gb10_vllm_extra_args.{LOAD}", f"{view.argument(LOAD)}, and the lock has no {package}")
    return when(bool(package and packages) and package not in packages, found)


def _limited(view: View) -> list[Found]:
    share, reserve = view.situation.replaced_share, view.situation.reserve_bytes
    sizes = [node.memory_bytes for _index, node in view.nodes if node.memory_bytes]
    most = min(((size - reserve) / size for size in sizes), default=1.0)
    planned = view.argument(UTILIZATION)
    # The option's own place is that of the plan's value.
    return when(share > most, ("gb10_vllm_extra_args", f"{UTILIZATION} {share:g}; the plan passes {planned}"))


def _large_load(view: View) -> list[Found]:
    weights, memory = view.model.weights_bytes, [node.memory_bytes for _index, node in view.nodes if node.memory_bytes]
    if view.argument(LOAD) != _FASTSAFETENSORS or not weights or not memory:
        return []
    split = view.situation.tensor_parallel_size * view.situation.pipeline_parallel_size
    share = weights / split / min(memory)
    return when(
        share > _LOADED_SHARE,
        (f"gb10_vllm_extra_args.{LOAD}", f"{_FASTSAFETENSORS} with weights that are {share:.0%} of a node's memory"),
    )


def _mapped(view: View) -> list[Found]:
    split, stages = view.situation.tensor_parallel_size, view.situation.pipeline_parallel_size
    size = view.model.weights_bytes
    own = not mapped.needed(view, view.model.type, stages) and not mapped.chosen(view, otherwise=True)
    found = (f"gb10_vllm_extra_args.{LOAD}", f"vLLM maps {(size or 0) / split / stages / 2**30:.0f} GiB on each node")
    return when(own and mapped.slow(size, split * stages, view.situation.transport), found)


def _apart(view: View) -> list[Found]:
    role = view.member("--kv-transfer-config", "kv_role")
    found = ("gb10_vllm_extra_args.--kv-transfer-config", f"kv_role {role}")
    return when(role in ("kv_producer", "kv_consumer"), found)


def _unequal(view: View) -> list[Found]:
    sizes = {index: node.memory_bytes for index, node in view.nodes}
    most = max(sizes.values(), default=0)
    return [
        (
            f"nodes[{index}].memory_bytes",
            f"{size / 2**30:.0f} GiB; another node has {most / 2**30:.0f} GiB",
        )
        for index, size in sizes.items()
        if 0 < size < _UNEQUAL * most
    ]


def _connector(view: View) -> list[Found]:
    given = [name for name in ("--kv-transfer-config", "--kv-offloading-size") if view.argument(name)]
    exempt = view.argument("--enable-sleep-mode") or view.argument("--enable-cumem-allocator")
    # vLLM checks only this variable, and only this exact text.
    set_so = view.variable("PYTORCH_CUDA_ALLOC_CONF", lambda value: "expandable_segments:True" in (value or ""))
    return set_so if given and not exempt and not view.before(0, 22) else []


def _autotune(view: View) -> list[Found]:
    name = "--enable-flashinfer-autotune"
    given = view.argument(name) or view.member("--kernel-config", "enable_flashinfer_autotune").lower()
    if view.values.get(name) is False or given == "false":
        return []
    if given:
        return [(f"gb10_vllm_extra_args.{name}", given)]
    found = view.fact("kernel", lambda kernel: kernel.startswith(_TUNED_KERNEL))
    # Before 0.16 vLLM has no such option.
    return [(place, f"{kernel}, and {name} is not given") for place, kernel in found if not view.before(0, 16)]


def _tuning_cache(view: View) -> list[Found]:
    """Find a cache of FlashInfer's tuning that survives a start of several ranks."""
    name = "--enable-flashinfer-autotune"
    off = view.values.get(name) is False
    off = off or view.member("--kernel-config", "enable_flashinfer_autotune").lower() == "false"
    if off or view.ranks == 1 or view.before(*toolchain.SHARED) or not view.before(*toolchain.SYNCHRONIZED):
        return []
    if view.by_ray:
        return [(f"gb10_vllm_extra_args.{name}", "not off, and Ray's processes outlive a start of the server")]
    return view.variable(toolchain.AUTOTUNE_FOLDER, lambda value: value is None)


RULES = (
    rule(
        "autotune-cache",
        WARNING,
        shows=(
            "vLLM 0.27 to 0.31 on several nodes without `--no-enable-flashinfer-autotune`, with Ray, or without "
            "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR, which the plan sets to a folder that is new at each start"
        ),
        detect=_tuning_cache,
        why=(
            "these releases load rank 0's cache on every rank, and its entries of experts hit on rank 0 alone. The "
            "second start then hangs for half an hour: the others wait for it"
        ),
        fix=(
            "set --no-enable-flashinfer-autotune, use vLLM 0.32 or newer, or gb10_distributed_executor_backend: mp; "
            "remove .cache/vllm/flashinfer_autotune_cache once"
        ),
        source="vllm-project/vllm#57423; getainode/ainode#136; vLLM 0.24 to 0.33, warmup/kernel_warmup.py",
        evidence="2026-09-17",
    ),
    rule(
        "memory-utilization-ceiling",
        ERROR,
        shows=f"`{UTILIZATION}` is above 0.90",
        detect=lambda view: when((view.number(UTILIZATION) or 0) > _CEILING, *view.given(UTILIZATION)),
        why=(
            "CPU and GPU share the memory, and the page cache competes with CUDA for it. Above 0.90 users reported "
            "OOM crashes and Xid 43. On this hardware exhausted memory takes the whole host down, without a trace of "
            "the cause"
        ),
        fix=f"use 0.85 or less; if the memory is planned, {_RESERVE}",
        source=f"{CONSELARA}; NVIDIA/dgx-spark-playbooks#97",
        evidence="2026-08",
    ),
    rule(
        "memory-utilization-high",
        WARNING,
        shows=f"`{UTILIZATION}` is above 0.87, up to 0.90",
        detect=lambda view: when(_SAFE < (view.number(UTILIZATION) or 0) <= _CEILING, *view.given(UTILIZATION)),
        why=(
            "CUDA graphs, profiling and the host allocate additional memory: on four Sparks 0.85 left less than 2 GiB "
            "before two engine deaths, and 0.75 was not slower"
        ),
        fix=f"use 0.85 or less; if the memory is planned, {_RESERVE}",
        source=f"MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#115; {CONSELARA}",
        evidence="2026-09",
        disputed=_FRACTIONS,
    ),
    rule(
        "memory-utilization-default",
        WARNING,
        shows=f"`{UTILIZATION}` is not given",
        detect=_default,
        why=(
            "vLLM's default is 0.9, and 0.92 from 0.20 on. That is more than any source recommends for memory that "
            "the host shares. With --kv-cache-memory-bytes this fraction must still be free at launch"
        ),
        fix=f"set {UTILIZATION}, 0.8 for a first try",
        source="vLLM 0.13.0 to 0.33.0, config/cache.py, v1/worker/utils.py request_memory; conselara.dev",
        evidence="2026-11",
        disputed="NVIDIA's playbook for one Spark starts vLLM with the default (2026-06)",
        tested="condition: unit tests; defaults: read in vLLM's code; effect: not tested here",
        found_by=LINT,
    ),
    rule(
        "model-size-unknown",
        WARNING,
        shows="the model is not in the catalog, and its files were not read, so nobody knows whether it fits",
        detect=lambda view: when(bool(view.situation.unplanned), ("gb10_model", view.situation.unplanned)),
        why="a model that is too large shows that after its download, or stops the host while it loads",
        fix=(
            "plan on a controller that reaches huggingface.co, or add weights_bytes and config to gb10_models; compare "
            "the size of the files with playbooks/models.yml"
        ),
        source="this collection's memory plan",
        evidence="2026-11",
        tested="unit tests",
    ),
    rule(
        "memory-utilization-replaced",
        INFO,
        shows=f"`{UTILIZATION}` is more than gb10_memory_reserve leaves, so the plan passes a smaller one",
        detect=_limited,
        why="the plan keeps the reserve for the host and the page cache, because a full memory takes the host down",
        fix=f"remove {UTILIZATION}, or lower gb10_memory_reserve, which sets the share",
        source="this collection's memory plan",
        evidence="2026-11",
        tested="unit tests",
    ),
    rule(
        "loader-package",
        ERROR,
        shows=f"`{LOAD}` names a format whose package the lock does not have",
        detect=_loader,
        why="vLLM imports the package when it loads the weights, and stops: ImportError",
        fix=f"remove {LOAD}, use a stack whose lock has the package, or add it to a gb10_runtime_lock of your own",
        source="vLLM 0.32.0, model_loader/weight_utils.py, tensorizer.py, modelexpress_loader.py",
        evidence="2026-11",
        tested="condition: unit tests; effect: read in vLLM's code",
    ),
    rule(
        "fastsafetensors-ngc",
        ERROR,
        shows=f"`{LOAD} fastsafetensors` in the image nvcr.io/nvidia/vllm 26.03 or 26.04",
        detect=_ngc_loader,
        why="these images lack the package: ImportError",
        fix=f"remove {LOAD}",
        source=CONSELARA,
        evidence="2026-05",
    ),
    rule(
        "fastsafetensors-large",
        WARNING,
        shows=f"`{LOAD} fastsafetensors` with weights above 80 % of a node's memory",
        detect=_large_load,
        why="it holds the files and the weights in the same memory at the same time",
        fix=f"use {LOAD} instanttensor (vLLM 0.18 or newer), or the default",
        source="eugr/spark-vllm-docker README",
        evidence="2026-09",
    ),
    rule(
        "mapped-weights",
        INFO,
        shows="weights above 8 GiB on each node, with vLLM's own loader, which maps the files",
        detect=_mapped,
        why=(
            "mapped files load several times slower: 521 s against 88 s for 80 GB on a Spark. With 90 GB on each of "
            "two, a rank did not end within 80 minutes"
        ),
        fix=f"add {LOAD}=instanttensor to gb10_vllm_extra_args if the runtime has that package",
        source=(
            "NVIDIA's forum, Very slow mmap on DGX Spark (2025-10); vllm-project/vllm#53906; "
            "MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#242"
        ),
        evidence="2026-09",
    ),
    rule(
        "prefill-decode-apart",
        WARNING,
        shows="`--kv-transfer-config` whose role is kv_producer or kv_consumer",
        detect=_apart,
        why="this collection starts one server for a cluster, and neither plans nor verifies its partner or a proxy",
        fix="remove it; several requests at a time do not delay each other as much with --max-num-batched-tokens",
        source="vLLM 0.33.0, config/kv_transfer.py",
        evidence="2026-11",
        tested="condition: unit tests",
    ),
    rule(
        "unequal-memory",
        WARNING,
        shows="nodes differ in memory by more than a tenth",
        detect=_unequal,
        why=(
            "every rank has the same share of the model, so the smallest node sets the limit. A fraction of the memory "
            "is a different size on each node; Sparks with 64 GB exist"
        ),
        fix="use nodes with equal memory, or set --kv-cache-memory-bytes for the smallest",
        source="NVIDIA, build.nvidia.com/spark/vllm-cluster",
        evidence="2026-10-20",
    ),
    rule(
        "sleep-mode",
        WARNING,
        shows="`--enable-sleep-mode`",
        detect=lambda view: when(view.argument("--enable-sleep-mode") != "", *view.given("--enable-sleep-mode")),
        why="waking up killed the engine on one Spark and took the whole host down on another",
        fix="remove it; stop and start the service instead",
        source="vllm-project/vllm#50011",
        evidence="2026-09-02",
    ),
    rule(
        "flashinfer-autotune",
        WARNING,
        shows=(
            "`--enable-flashinfer-autotune`; or vLLM 0.16 or newer on kernel 7.0.0-1019 without "
            "`--no-enable-flashinfer-autotune`, because vLLM then tunes FlashInfer's kernels"
        ),
        detect=_autotune,
        why=(
            "the tuning runs next to the loaded model and its KV cache. With the option a pair ran out of memory in it "
            "and started without the option. Without it a pair on that kernel did"
        ),
        fix="set --no-enable-flashinfer-autotune",
        source=(
            "NVIDIA/dgx-spark-playbooks#97 (an A/B on two Sparks), eugr/spark-vllm-docker#389 (the kernel); vLLM "
            "0.18.1 to 0.33.0, config/vllm.py"
        ),
        evidence="2026-11",
        disputed=(
            "NVIDIA measured Spark recipes for vLLM 0.24 to 0.28 with vLLM's default on kernel 6.17 (2026-09). So the "
            "default alone is not a finding there"
        ),
    ),
    rule(
        "expandable-segments-connector",
        ERROR,
        shows=(
            "vLLM 0.22 or newer, PyTorch's allocator has `expandable_segments:True`, and a KV connector is used "
            "without sleep mode"
        ),
        detect=_connector,
        why="vLLM raises ValueError: the allocator may move memory that a connector has registered",
        fix="set expandable_segments:False, or remove the connector",
        source="vLLM 0.22.1 to 0.33.0, config/vllm.py; vllm-project/vllm#42404",
        evidence="2026-11",
        gpus=(),
        tested="condition: unit tests; code: read in vLLM 0.22.1 to 0.33.0; effect: not tested here",
    ),
    rule(
        "swap-space",
        WARNING,
        shows="vLLM before 0.18 without `--swap-space 0`",
        detect=lambda view: when(view.before(0, 18) and view.number("--swap-space") != 0, *view.given("--swap-space")),
        why="the default of 4 GiB per GPU comes out of the memory that the GPU itself uses",
        fix="set --swap-space 0",
        source=MIXED_NOTES,
        evidence="2026 (vLLM 0.17.1)",
        gpus=(SPARK, THOR),
    ),
    rule(
        "page-cache-counted",
        WARNING,
        shows="vLLM before 0.20, unless each launch drops the page cache",
        detect=lambda view: when(
            view.before(0, 20) and not view.situation.drops_caches, ("release", view.situation.release)
        ),
        why=(
            "it counts the page cache as used memory: 'Free memory ... is less than desired', a little less at each "
            "retry"
        ),
        fix="set vllm_serve_drop_caches: true, or install vLLM 0.20 or newer",
        source="vllm-project/vllm#35356; vLLM 0.20.2, utils/mem_utils.py; NVIDIA's playbooks",
        evidence="2026-07",
        gpus=(SPARK, THOR),
    ),
    rule(
        "load-pressure",
        INFO,
        shows="vLLM 0.20 to 0.23",
        detect=lambda view: when(view.before(0, 24) and (not view.before(0, 20)), ("release", view.situation.release)),
        why=(
            "from 0.24 on vLLM frees cached device memory under pressure at load time, which reportedly avoids host "
            "failures"
        ),
        fix="install vLLM 0.24 or newer",
        source="vllm-project/vllm#45179",
        evidence="2026-09",
    ),
)
