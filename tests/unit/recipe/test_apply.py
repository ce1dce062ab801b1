"""Tests of the use of a recipe: the variables that it sets, its arguments for vLLM, and the plan's replacements."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.recipe import apply
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.apply import tokens, use
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import Recipe, Use

IMAGE = f"vllm/vllm-openai@sha256:{'0' * 64}"


def recipe(*args: str, **changes: Any) -> Recipe:
    values = {
        "name": "Model",
        "model": "owner/model",
        "args": args,
        "environment": {},
        "container": "vllm-node",
        "image": IMAGE,
        "mods": (),
        "build_args": (),
        "cluster_only": False,
        "solo_only": False,
    }
    return Recipe(**{**values, **changes})


ABOUT = f"the recipe Model with {IMAGE}"
PINNED, PUBLISHED = "sha256:" + "1" * 64, "nvcr.io/nvidia/vllm:26.04-py3"
EXECUTOR = {"gb10_distributed_executor_backend": "mp"}
MODEL = {"gb10_model": "owner/model"}
NAME = {"gb10_served_model_name": "owner/model"}


def runtime(image: str) -> dict[str, str]:
    """Return the settings of a recipe without an option, which runs this image."""
    return {"gb10_runtime": "container", "gb10_container_image": image, **EXECUTOR, **MODEL, **NAME}


#: A recipe, the arguments of use() beside it, and fields of the result.
USES: dict[str, tuple[Recipe, dict[str, Any], dict[str, Any]]] = {
    "options become variables and the rest are arguments": (
        recipe(
            *"-tp 2 --max-model-len 128k --kv_cache_dtype=fp8 --max-num-seqs 4".split(),
            *"--served-model-name m --enforce-eager --seed -1 --block-size=16".split(),
        ),
        {},
        {
            "settings": {
                **runtime(IMAGE),
                "gb10_tensor_parallel_size": "2",
                "gb10_max_model_len": 128_000,
                "gb10_kv_cache_dtype": "fp8",
                "gb10_max_num_seqs": "4",
                "gb10_served_model_name": "m",
            },
            "args": ("--enforce-eager", "--seed", "-1", "--block-size=16"),
            "about": [ABOUT],
        },
    ),
    "the inventory wins": (
        recipe("-tp", "2", "--max-model-len", "4096"),
        {"given": {"gb10_max_model_len", "gb10_model", "gb10_runtime"}},
        {
            "settings": {"gb10_tensor_parallel_size": "2", **EXECUTOR, **NAME},
            "about": [
                "the recipe Model with vllm-node",
                "--max-model-len 4096 is replaced: the inventory sets gb10_max_model_len",
            ],
            "model": "owner/model",
        },
    ),
    "one node has one rank": (
        recipe("-tp", "2", "--pipeline-parallel-size", "1"),
        {"nodes": 1},
        {"settings": runtime(IMAGE), "about": [ABOUT, "-tp 2 is replaced: there is one node"]},
    ),
    "the executor is the inventory's": (
        recipe("--distributed-executor-backend", "ray"),
        {},
        {
            "settings": runtime(IMAGE),
            "about": [
                ABOUT,
                "--distributed-executor-backend ray is replaced: gb10_distributed_executor_backend decides, without it mp",
            ],
        },
    ),
    "the inventory sets the executor": (
        recipe(),
        {"given": EXECUTOR},
        {"settings": {name: value for name, value in runtime(IMAGE).items() if name not in EXECUTOR}},
    ),
    "several names stay valid": (
        recipe("--served-model-name", "a", "b"),
        {},
        {
            "settings": {**runtime(IMAGE), "gb10_served_model_name": "a"},
            "args": ("--served-model-name", "a", "b"),
        },
    ),
    "the revision and the reasoning parser belong to the model": (
        recipe("--revision", "abc", "--reasoning-parser", "qwen3"),
        {},
        {"revision": "abc", "reasoning": True, "args": ("--reasoning-parser", "qwen3")},
    ),
    "an image of the map": (recipe(), {"images": {"vllm-node": PINNED}}, {"settings": runtime(PINNED)}),
    "a published container": (recipe(container=PUBLISHED, image=""), {}, {"settings": runtime(PUBLISHED)}),
    "an environment": (
        recipe(),
        {"images": {"vllm-node": "native"}},
        {"settings": {"gb10_runtime": "native", **EXECUTOR, **MODEL, **NAME}},
    ),
    "a folder that the inventory names": (
        recipe(model="/models/x"),
        {"given": {"gb10_model"}},
        {"settings": {name: value for name, value in runtime(IMAGE).items() if name not in (*MODEL, *NAME)}},
    ),
    **{
        f"the published image of {container}": (
            recipe(container=container, image="", build_args=args),
            {},
            {"settings": runtime(image)},
        )
        for container, args, image in (
            ("vllm-node", ("--tf5",), apply._PUBLISHED["vllm-node"]),
            ("vllm-node:latest", (), apply._PUBLISHED["vllm-node"]),
            ("vllm-node-b12x", ("--exp-b12x",), apply._PUBLISHED["vllm-node-b12x"]),
        )
    },
    "as many nodes as a recipe takes": (recipe(min_nodes=2, max_nodes=2), {}, {"settings": runtime(IMAGE)}),
    "fewer nodes than a recipe takes": (recipe(min_nodes=1, max_nodes=3), {}, {"settings": runtime(IMAGE)}),
    "mods of an image": (recipe(mods=("mods/x",)), {}, {"settings": runtime(IMAGE)}),
    **{
        f"arguments of the other builder with {kwargs}": (recipe(image="", build_args=("--x",)), kwargs, {})
        for kwargs in ({"images": {"vllm-node": IMAGE}}, {"given": {"gb10_container_image"}})
    },
}


@pytest.mark.parametrize(("found", "kwargs", "expected"), USES.values(), ids=USES)
def test_the_use_of_a_recipe(found: Recipe, kwargs: dict[str, Any], expected: dict[str, Any]) -> None:
    result, problems = use(found, **{"given": (), "nodes": 2, "images": {}, **kwargs})
    assert problems == []
    assert {name: getattr(result, name) for name in expected} == expected


def test_the_plan_names_the_default_image_with_its_source() -> None:
    given = recipe(container="vllm-node-b12x", image="")
    (line,) = use(given, (), 2, {})[0].about[1:]
    assert re.match(r"vllm-node-b12x is eugr/spark-vllm-b12x@sha256:\w{64} by default: .*2026-09-03.*_images may", line)
    own = use(given, (), 2, {"vllm-node-b12x": PINNED})[0]
    assert (own.settings["gb10_container_image"], len(own.about)) == (PINNED, 1)
    decided = use(given, {"gb10_container_image"}, 2, {})[0]
    assert "gb10_container_image" not in decided.settings and len(decided.about) == 1


def used(found: Recipe) -> Use:
    result, problems = use(found, (), 2, {})
    assert problems == []
    return result


def test_what_the_plan_decides_is_replaced() -> None:
    words = [
        "--host",
        "0.0.0.0",
        "--port=9000",
        "--allowed-local-media-path",
        "/",
        "--nnodes",
        "2",
        "--headless",
        "--enforce-eager",
    ]
    result = used(recipe(*words, environment={"NCCL_IB_HCA": "a", "VLLM_USE_AOT_COMPILE": "1"}))
    assert (result.args, result.environment) == (("--enforce-eager",), {"VLLM_USE_AOT_COMPILE": "1"})
    assert [line.partition(" is replaced: ")[0] for line in result.about[1:]] == [
        "--host 0.0.0.0",
        "--port=9000",
        "--allowed-local-media-path /",
        "--nnodes 2",
        "--headless",
        "NCCL_IB_HCA=a",
    ]


#: A recipe, the number of nodes, the images of the inventory, and the problems.
PROBLEMS: dict[str, tuple[Recipe, int, dict[str, str], list[str]]] = {
    "a local image": (recipe(container="vllm-own", image=""), 2, {}, ["container"]),
    "too few nodes": (recipe(min_nodes=3), 2, {}, ["min_nodes"]),
    "too many nodes": (recipe(max_nodes=1), 2, {}, ["max_nodes"]),
    "cluster only": (recipe(cluster_only=True), 1, {}, ["cluster_only"]),
    "solo only": (recipe(solo_only=True), 2, {}, ["solo_only"]),
    "a context": (recipe("--max-model-len", "many"), 2, {}, ["command"]),
    "a folder": (recipe(model="/etc/gb10"), 2, {}, ["command"]),
    "a folder behind a link": (recipe(model="/proc/self/root/srv/model"), 2, {}, ["command"]),
    "a draft in a folder": (recipe("--speculative-config", '{"model": "/etc/gb10"}'), 2, {}, ["command"]),
    "a draft in a folder of its name": (recipe("--speculative-config.model=owner/model/draft"), 2, {}, ["command"]),
    "mods without an image": (recipe(mods=("mods/x",)), 2, {"vllm-node": "native"}, ["mods"]),
    "arguments of the other builder": (
        recipe(container="vllm-own", image="", build_args=("--tf5", "--x")),
        2,
        {},
        ["container", "build_args"],
    ),
    **{
        f"arguments that change {container}": (
            recipe(container=container, image="", build_args=args),
            2,
            {},
            ["build_args"],
        )
        for container, args in {
            "vllm-node": ("--exp-b12x",),
            "vllm-node-b12x": ("--exp-b12x", "--rebuild-vllm"),
            PUBLISHED: ("--vllm-ref", "main"),
        }.items()
    },
}


@pytest.mark.parametrize(("found", "nodes", "images", "keys"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_cannot_be_honored_is_refused(found: Recipe, nodes: int, images: dict[str, str], keys: list[str]) -> None:
    problems = use(found, (), nodes, images)[1]
    assert [problem.path for problem in problems] == [f"gb10_recipe.{key}" for key in keys]


#: Each runs code in a rank, in root's Python or in an engine's client, or reaches files and hosts.
UNSAFE = """
LD_PRELOAD PYTHONPATH PATH HOME BASH_ENV OPENSSL_CONF SSL_CERT_FILE DOCKER_HOST DOCKER_CONFIG CONTAINER_HOST CONTAINERS_CONF
CC CXX CUDAHOSTCXX NVCC_PREPEND_FLAGS HF_ENDPOINT HTTPS_PROXY https_proxy NO_PROXY
CUDA_HOME CUDA_PATH CUDA_INJECTION64_PATH CUDA_MPS_PIPE_DIRECTORY OMP_TOOL_LIBRARIES NVIDIA_VISIBLE_DEVICES
NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_CONF_FILE NCCL_DEBUG_FILE NCCL_TOPO_FILE NCCL_COMM_ID
TRITON_PTXAS_PATH TRITON_LIBDEVICE_PATH TRITON_CACHE_DIR TRITON_CACHE_MANAGER TRITON_DUMP_DIR TRITON_KERNEL_OVERRIDE
TORCH_EXTENSIONS_DIR TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD TORCHINDUCTOR_CACHE_DIR TORCH_LOGS_OUT TORCH_TRACE
FLASHINFER_WORKSPACE_BASE FLASHINFER_CUBINS_REPOSITORY FLASHINFER_EXTRA_CUDAFLAGS FLASHINFER_EXTRA_LDFLAGS DG_JIT_NVCC_COMPILER
VLLM_ALLOW_INSECURE_SERIALIZATION VLLM_ALLOW_RUNTIME_LORA_UPDATING VLLM_SERVER_DEV_MODE VLLM_PLUGINS VLLM_NCCL_SO_PATH VLLM_CUDART_SO_PATH
VLLM_CONFIG_ROOT VLLM_CACHE_ROOT VLLM_LOGGING_CONFIG_PATH VLLM_LOGGING_STREAM VLLM_RUST_FRONTEND_PATH VLLM_USE_MODELSCOPE VLLM_MEDIA_CONNECTOR
VLLM_MEDIA_URL_ALLOW_REDIRECTS VLLM_DEBUG_DUMP_PATH VLLM_TORCH_PROFILER_DIR VLLM_USAGE_STATS_SERVER VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS
VLLM_RAY_EXTRA_ENV_VARS_TO_COPY
""".split()
#: Of published recipes of eugr/spark-vllm-docker and NVIDIA's pages.
SAFE = """
VLLM_MARLIN_USE_ATOMIC_ADD VLLM_USE_FLASHINFER_MOE_FP4 VLLM_NVFP4_GEMM_BACKEND VLLM_FLASHINFER_ALLREDUCE_BACKEND VLLM_ALLOW_LONG_MAX_MODEL_LEN
VLLM_DISTRIBUTED_EXECUTOR_CONFIG VLLM_TRITON_MLA_SPARSE VLLM_USE_DEEP_GEMM VLLM_WORKER_MULTIPROC_METHOD VLLM_DISABLE_COMPILE_CACHE
VLLM_HTTP_TIMEOUT_KEEP_ALIVE VLLM_PREFIX_CACHE_RETENTION_INTERVAL VLLM_TARGET_DEVICE VLLM_ENFORCE_STRICT_TOOL_CALLING
FLASHINFER_DISABLE_VERSION_CHECK TORCHDYNAMO_DISABLE PYTORCH_CUDA_ALLOC_CONF CUDA_DEVICE_MAX_CONNECTIONS NCCL_DEBUG
NCCL_MIN_CTAS NCCL_P2P_DISABLE HF_HUB_OFFLINE HF_HUB_ENABLE_HF_TRANSFER TRANSFORMERS_OFFLINE OMP_NUM_THREADS SAFETENSORS_FAST_GPU
TILELANG_CLEANUP_TEMP_FILES DG_JIT_USE_NVRTC INSTANTTENSOR_BUFFER_SIZE
""".split()


@pytest.mark.parametrize("name", UNSAFE)
def test_a_variable_that_reaches_code_or_files_is_refused_unless_the_inventory_sets_it(name: str) -> None:
    found = recipe(environment={name: "1"})
    assert [problem.path for problem in use(found, (), 2, {})[1]] == [f"gb10_recipe.env.{name}"]
    result, problems = use(found, (), 2, {}, [name])
    assert (problems, result.environment) == ([], {})
    assert result.about[1:] == [f"{name}=1 is replaced: gb10_extra_env sets it"]


@pytest.mark.parametrize("name", ["HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE"])
def test_the_folder_of_a_hubs_models_is_the_plans(name: str) -> None:
    result, problems = use(recipe(environment={name: "/cache/huggingface"}), (), 2, {})
    assert (problems, result.environment) == ([], {})
    expected = f"{name}=/cache/huggingface is replaced: the plan names the model by its path on the nodes"
    assert result.about[1:] == [expected]


@pytest.mark.parametrize("name", SAFE)
def test_a_variable_of_published_recipes_is_kept(name: str) -> None:
    assert used(recipe(environment={name: "1"})).environment == {name: "1"}


@pytest.mark.parametrize(
    "words",
    [
        ["--trust-remote-code"],
        ["--middleware", "x.Y"],
        ["--tool-parser-plugin=/x.py"],
        ["--reasoning_parser_plugin", "/x.py"],
        ["--worker-cls", "x.Y"],
        ["--worker-extension-cls", "x.Y"],
        ["--scheduler-cls", "x.Y"],
        ["--logits-processors", "x.Y"],
        ["--io-processor-plugin", "x"],
        ["--kv-transfer-config", "{}"],
        ["--kv-transfer-config.kv_connector_module_path", "x"],
    ],
    ids=" ".join,
)
def test_the_plan_names_options_that_run_code(words: list[str]) -> None:
    result = used(recipe(*words, "--enforce-eager"))
    assert result.args == (*words, "--enforce-eager")
    (line,) = result.about[1:]
    assert line.startswith((f"{' '.join(words)} runs code ", f"{' '.join(words)} runs a connector "))


@pytest.mark.parametrize(
    ("text", "number"), [("4096", 4096), ("128k", 128_000), ("1K", 1024), ("1.5M", 1_572_864), ("auto", 0), ("-1", 0)]
)
def test_tokens(text: str, number: int) -> None:
    assert tokens(text) == number


@pytest.mark.parametrize("text", ["k", "1.5.1k", "-4096", "1T"])
def test_other_text_is_no_number_of_tokens(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tokens(text)
