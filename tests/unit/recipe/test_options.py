"""What options and variables of a recipe do: those on no list are named or refused, however they are written."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from nvidia_recipe import SETUP
from nvidia_recipe import recipe as nvidia_recipe

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import allowed, options
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.apply import use
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.parse import parse
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import Use
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks

MODEL = "/opt/gb10/models/evil--model/main"


def eugr(words: str, environment: str = "") -> dict[str, Any]:
    return {
        "recipe_version": "1",
        "name": "x",
        "container": "evil/image:1",
        "env": dict(pair.split("=", 1) for pair in environment.split()),
        "command": f"vllm serve evil/model {words.replace('{', '{{').replace('}', '}}')}",
    }


def nvidia(words: str, environment: str = "") -> dict[str, Any]:
    serve = {"command": f"{environment} vllm serve evil/model {words}"}
    return nvidia_recipe(schema_version=4, hardware="dgx-spark", topology__node_count=1, serve=serve)


def docker(_words: str, environment: str) -> dict[str, Any]:
    data = nvidia("")
    data["runtime"]["setup_command"] = SETUP.replace("docker run", f"docker run -e {environment}")
    return data


def used(data: dict[str, Any]) -> tuple[Use, list[Problem]]:
    found, problems = parse(data)
    assert found and problems == [], problems
    return use(found, (), 1, {})


CODE, MODELS_CODE = allowed.CODE.text, "runs code of the model's repository"
READS, WRITES, UNLISTED = allowed.READS.text, "writes files that it names", allowed.UNLISTED.text
JOURNAL, CLIENTS = "writes texts of the API's clients", "lets the API's clients send data"
#: Words of a command, and the plan's note about them.
NAMED: dict[str, str] = {
    f"--log-config-file {MODEL}/l.json": CODE,
    f"--structured-outputs-config.reasoning_parser_plugin {MODEL}/p.py": f"its reasoning_parser_plugin {CODE}",
    f"--structured-outputs-config.reasoning-parser-plugin={MODEL}/p.py": f"its reasoning_parser_plugin {CODE}",
    f"""--structured_outputs_config '{{"reasoning_parser_plugin": "{MODEL}/p.py"}}'""": f"its reasoning_parser_plugin {CODE}",
    "--compilation-config.backend evil.mod.fn": f"its backend {CODE}",
    "--compilation_config.backend=evil.mod.fn": f"its backend {CODE}",
    "-O.backend=evil.mod.fn": f"its backend {CODE}",
    "-cc.backend evil.mod.fn": f"its backend {CODE}",
    """-cc '{"backend": "evil.mod.fn"}'""": f"its backend {CODE}",
    """-cc='{"backend": "evil.mod.fn"}'""": f"its backend {CODE}",
    """--compilation-config '{"backend": "evil.mod.fn", "backend": "inductor"}'""": f"its backend {CODE}",
    """--compilation-config '{"backend": "inductor", "backend": "evil.mod.fn"}'""": f"its backend {CODE}",
    """--compilation-config '{"inductor_passes": {"p": "evil.fn"}}'""": f"its inductor_passes {CODE}",
    """--compilation-config.pass_config '{"x": {"y": [{"cache_dir": "/srv"}]}}'""": f"its x {UNLISTED}",
    """--compilation-config '{"pass_config": [{"debug_dump_path": "/srv"}]}'""": f"its debug_dump_path {WRITES}",
    "--compilation-config.custom_ops+ evil.mod": f"its custom_ops {UNLISTED}",
    "--compilation-config.custom_ops+=all,/srv/x": f"its custom_ops {UNLISTED}",
    f"--compilation-config {'[' * 5000}": UNLISTED,
    f"--speculative-config {'[' * 5000}": UNLISTED,
    """-O '{"backend": "evil.mod.fn"}'""": f"its backend {UNLISTED}",
    """-O'{"backend":"evil.mod.fn"}'""": UNLISTED,
    "-O/srv/x": UNLISTED,
    """--hf-overrides '{"auto_map": {"AutoModel": "evil/repository--m.C"}}'""": f"its auto_map {MODELS_CODE}",
    "--hf-overrides.text_config.x evil.mod": f"its x {UNLISTED}",
    """--mm-processor-kwargs '{"trust_remote_code": true}'""": f"its trust_remote_code {MODELS_CODE}",
    "--limit-mm-per-prompt.image /srv/x": f"its image {UNLISTED}",
    "--speculative-config.method custom_class": f"its method {CODE}",
    """--speculative-config '{"method": "custom_class", "model": "evil.Proposer"}'""": f"its method {CODE}",
    "--spec-method custom_class": CODE,
    "-q/srv/x": UNLISTED,
    "-sc.code_revision main": f"its code_revision {MODELS_CODE}",
    "--speculative_config.draft_load_config.download_dir /srv": f"its download_dir {UNLISTED}",
    "--kv-transfer-config {}": "runs a connector of the image or the model",
    "--attention-backend evil.mod.Backend": UNLISTED,
    "--all2all-backend nixl_ep": "runs a connector of the image or the model",
    "--kv-offloading-backend lmcache": "runs a connector of the image or the model",
    "--uvicorn-log-level trace": JOURNAL,
    "--log-level debug": JOURNAL,
    "--tool-call-parser /srv/p.py": UNLISTED,
    "--chat-template /etc/passwd": READS,
    "--chat-template=../../etc/passwd": READS,
    "--generation-config /srv/x": READS,
    "--hf-config-path evil/other": READS,
    "--lora-modules a=/srv/x": READS,
    "--tokenizer /srv/x": READS,
    "--download-dir /srv/x": WRITES,
    "--profiler-config '{}'": WRITES,
    "--enable-log-requests": JOURNAL,
    "--no-disable-log-requests": JOURNAL,
    "--trust-request-chat-template": CLIENTS,
    "--trust_request_mm_kwargs": CLIENTS,
    "--enable-prompt-embeds": CLIENTS,
    "--option-of-a-fork 1": UNLISTED,
    "--enforce-eager stray.py": UNLISTED,
    "-x": UNLISTED,
}
MOVED = "vLLM would take this word for an option with a dot"
PORT, HOST, SHORT = "opens a port that requires no key", "sends data to another host", "is short for"
#: Words of a command, and why they are refused.
REFUSED: dict[str, str] = {
    """--kv-events-config '{"publisher": "zmq", "endpoint": "tcp://*:5557"}'""": PORT,
    "--kv_events_config.enable_kv_cache_events true": PORT,
    "--grpc": PORT,
    "--grpc-port 50051": PORT,
    "--otlp-traces-endpoint http://attacker:4317": HOST,
    "--tool-server attacker:80": HOST,
    "--middlewar evil.Middleware": SHORT,
    "--allowed-local-media-pat=/": SHORT,
    "--log-config-fil x.json": SHORT,
    "--log_config_fil x.json": SHORT,
    "--structured-outputs-conf.reasoning_parser_plugin p.py": SHORT,
    "--no-disable-log-r": SHORT,
    "--trust": SHORT,
    "--config x.yaml": "its file may hold a key",
    "--config.a=/etc/passwd": "its file may hold a key",
    "--api-key.x=y": "every user of the head could read it",
    "--hf_token.x y": "every user of the head could read it",
    "--ssl-keyfile.x=1": "--ssl-keyfile is given",
    "-sc.model=/srv/draft": "a folder of the nodes",
    "--speculative-config -0.5 --override-generation-config '{}'": MOVED,
    "--speculative-config --hf-overrides.a b '{}'": MOVED,
    "--speculative-config --hf-overrides.a --override-generation-config '{}'": MOVED,
    "--hf-overrides.a=b '{}'": MOVED,
    "--speculative-config.model+ /srv/draft": "a folder of the nodes",
    "--no-otlp-traces-endpoint=http://attacker": HOST,
    "--api-key x": "every user of the head could read it",
}
#: Words of a command that the plan leaves out, with the reason.
LEFT_OUT: dict[str, str] = {
    """--allowed-origins '["*"]'""": "gb10_api_origins decides",
    "--allow-credentials": "gb10_api_origins decides",
    "--allowed-local-media-path=/": "clients could read files",
    "--root_path /x": "the inventory's",
    "--model evil/other": "the model before the options counts",
    "-n2": "joins the ranks",
    "-dpr 1": "joins the ranks",
    "--data-parallel-external-lb": "joins the ranks",
}
SCHEMAS = pytest.mark.parametrize("schema", [eugr, nvidia])


@SCHEMAS
@pytest.mark.parametrize(("words", "told"), NAMED.items(), ids=lambda text: text[:60])
def test_the_plan_names_what_an_option_does(schema: Any, words: str, told: str) -> None:
    plan, problems = used(schema(f"{words} --seed 1"))
    assert problems == []
    assert plan.args == (*shlex.split(words), "--seed", "1")
    (line,) = (line for line in plan.about if line.endswith(": trust it, or remove the option"))
    assert told in line and line.startswith(shlex.split(words)[0][:200])


@SCHEMAS
@pytest.mark.parametrize(("words", "told"), REFUSED.items(), ids=lambda text: text[:60])
def test_what_reaches_beyond_the_api_and_what_is_abbreviated_is_refused(schema: Any, words: str, told: str) -> None:
    problems = used(schema(words))[1]
    assert any(told in problem.found for problem in problems), problems
    assert all("command" in problem.path for problem in problems)


@SCHEMAS
@pytest.mark.parametrize(("words", "told"), LEFT_OUT.items(), ids=lambda text: text[:60])
def test_what_the_inventory_decides_is_left_out(schema: Any, words: str, told: str) -> None:
    plan, problems = used(schema(words))
    assert (plan.args, problems) == ((), [])
    assert any(told in line for line in plan.about)


MODS = [
    ("--chat-template fixed.jinja", "--chat-template /workspace/working-folder/fixed.jinja"),
    ("--chat-template=./a/fixed.jinja2", "--chat-template=/workspace/working-folder/a/fixed.jinja2"),
    ("--tool_parser_plugin my.py", "--tool_parser_plugin /workspace/working-folder/my.py"),
    ("--chat-template /opt/x.jinja", "--chat-template /opt/x.jinja"),
    ("--chat-template ../x.jinja", "--chat-template ../x.jinja"),
    ("--chat-template '{{ messages }}'", "--chat-template '{{ messages }}'"),
]


@pytest.mark.parametrize(("words", "expected"), MODS)
def test_a_file_that_a_mod_writes_has_its_place_in_the_image(words: str, expected: str) -> None:
    """A recipe names it as the other project does, in whose containers the working folder is the image's."""
    plan, problems = used({**eugr(words), "mods": ["mods/x"]})
    assert (plan.args, problems) == (tuple(shlex.split(expected)), [])
    refused = used(eugr(words))[1]
    assert [problem.fix for problem in refused] == ["write its absolute path"] * (words != expected)


def test_a_long_value_does_not_hide_what_an_option_does() -> None:
    plan, _problems = used(eugr(f"--middleware {'x' * 5000}"))
    assert plan.about[-1] == f"--middleware {'x' * 187}... {CODE}: trust it, or remove the option"


def test_an_option_of_many_members_is_named() -> None:
    plan, _problems = used(eugr(f"--structured-outputs-config.{'x.' * 30_000}x 1"))
    assert plan.about[-1].startswith("--structured-outputs-config.x.x") and allowed.UNLISTED.text in plan.about[-1]


#: Of published recipes, and further forms of the same options: the plan says nothing about them.
SILENT = r"""
--gpu-memory-utilization 0.85 --device_memory_utilization=.8 --block-size 256 --max-num-batched-tokens 8192
--cudagraph-capture-sizes 1 2 4 --load-format instanttensor --moe-backend b12x --attention-backend FLASHINFER
-O3
-O.mode=3
-cc.mode 3 -cc.cudagraph_mode none
-q fp8
--no-enable-prefix-caching --no-scheduler-reserve-full-isl --no-trust-remote-code --no-enable-log-requests
--no-async_scheduling
--enable-auto-tool-choice --tool-call-parser qwen3_coder --reasoning-parser qwen3
--chat-template '{% for m in messages %}{{ m.content }}{% endfor %}'
--generation-config auto --override-generation-config '{"temperature":0.6,"top_p":0.95,"stop":["a.b/c"]}'
--default-chat-template-kwargs.reasoning_effort=high --default-chat-template-kwargs '{"system": "a.b/c: d"}'
--compilation-config '{"cudagraph_mode":"FULL_AND_PIECEWISE","custom_ops":["all"]}'
--compilation-config.custom_ops+ +rms_norm,-silu_and_mul
--compilation-config '{"splitting_ops": ["vllm::unified_attention"], "pass_config": {"fuse_norm_quant": true}}'
--compilation-config 3
--speculative-config '{"method":"dspark","num_speculative_tokens":5,"attention_backend":"B12X_MLA_SPARSE"}'
--speculative-config '{"method": "dflash", "model": "z-lab/Qwen3.6-27B-DFlash", "num_speculative_tokens": 15}'
--speculative_config.model owner/model.v1 --spec-model owner/model --spec-method mtp
--reasoning-config '{"reasoning_parser":"deepseek_v4","reasoning_start_str":"<think>","reasoning_end_str":""}'
--hf-overrides '{"text_config": {"rope_parameters": {"rope_type": "yarn", "mrope_section": [11, 11], "factor": 2.0}}}'
--limit-mm-per-prompt '{"image": 64}' --limit-mm-per-prompt.video 1 --limit-mm-per-prompt image=4,video=1
--diffusion-config '{"canvas_length":256}' --attention-config '{"sparse_mla_force_mqa": true}'
--structured-outputs-config.backend xgrammar --allowed-media-domains '*' --seed -1
--gpu-memory-utilization-gb 100 --mxfp4-layers moe,qkv --gdn-decode-kernel b12x --prefill-compute-share auto
--engram-config '{"cpu_offload":false,"table_memory":"disk"}' --kv-cache-memory-bytes 0.5g
--all2all-backend deepep_low_latency --kv-offloading-backend native --uvicorn-log-level warning
--media-io-kwargs '{"video": {"fps": 2, "num_frames": 256}}' --disable-access-log-for-endpoints /health,/metrics
"""


@pytest.mark.parametrize("words", SILENT.strip().splitlines(), ids=lambda text: text[:60])
def test_options_of_published_recipes_are_kept_without_a_word(words: str) -> None:
    plan, problems = used(eugr(words))
    assert (problems, len(plan.about)) == ([], 1), plan.about
    assert plan.args == tuple(shlex.split(words))


def test_every_option_and_short_name_of_every_release_has_a_decision() -> None:
    """A new release has new options: list them by purpose, or with their effect."""
    assert [name for name in checks.rows("OPTIONS") if name not in options.KNOWN] == []
    short = {
        word.partition("@")[0]: name
        for name, (_name, _kind, *rest) in checks.rows("OPTIONS").items()
        for word in rest[: rest.index("=") if "=" in rest else None]
        if word.startswith("-")
    }
    assert short == allowed.ALIASES


def test_every_name_has_one_decision() -> None:
    plain = [name for names in allowed.PLAIN.values() for name in names.split()]
    once = [*plain, *allowed.OBJECTS, *allowed.MEMBERS, *allowed.EFFECTS, *allowed.REPLACED, *allowed.PLANNED]
    once += [*allowed.CHECKED, *allowed.ALIASES]
    assert sorted(once) == sorted(set(once))
    listed = {name for names in allowed.MEMBERS.values() for name in names.split()}
    assert not listed & {*allowed.EFFECTS}
    # Options that are only in mods of published recipes, and in forks.
    known = {*checks.rows("OPTIONS"), *allowed.PLAIN["options of mods and forks"].split(), *allowed.ALIASES}
    assert {name.replace("--no-", "--") for name in options.KNOWN} <= known


#: Values that a shell or the file of a build reads as commands. FlashInfer writes its list into build.ninja.
COMMANDS = """
FLASHINFER_CUDA_ARCH_LIST=12.1a;id>x TORCH_CUDA_ARCH_LIST=12.1$x CUTE_DSL_ARCH=sm_121;x VLLM_ATTENTION_BACKEND=a;b
VLLM_ATTENTION_BACKEND=$x VLLM_ATTENTION_BACKEND=`x` VLLM_TARGET_DEVICE=a|b
""".split()


@pytest.mark.parametrize("variable", COMMANDS)
def test_a_value_with_a_command_is_refused(variable: str) -> None:
    plan, problems = used(eugr("", variable))
    name = variable.partition("=")[0]
    assert ([problem.path for problem in problems], plan.environment) == ([f"gb10_recipe.env.{name}"], {})


#: Variables that name files, hosts or code with this value, or switch on more than kernels.
UNSAFE = """
TORCH_LOGS=+a.b VLLM_LOGGING_LEVEL=DEBUG
FLASHINFER_LOGDEST=/srv/x FLASHINFER_LOGDEST=1 FLASHINFER_WORKSPACE_BASE=/srv B12X_CACHE=/srv B12X_CACHE=folder B12X_HOST=attacker
INSTANTTENSOR_X=attacker.example VLLM_TRITON_CACHE=evil.mod VLLM_USE_FLASHINFER_X=/srv NCCL_DEBUG=/srv NCCL_MAX_X=a
PYTORCH_CUDA_ALLOC_CONF=/srv VLLM_NEW_OPTION=1 VLLM_USE_RUST_FRONTEND=1 VLLM_USE_PRECOMPILED=1 VLLM_DEBUG_LOG_API_SERVER_RESPONSE=1
VLLM_KEEP_ALIVE_ON_ENGINE_DEATH=1 VLLM_ENABLE_RESPONSES_API_STORE=1 VLLM_MODEL_REDIRECT_PATH=x VLLM_RPC_BASE_PATH=x TORCH_SHOW=1
TORCHINDUCTOR_CACHE_DIR=x NCCL_RAS_ADDR=1 NCCL_NEW=1 NCCL_HOSTID=x VLLM_ALL2ALL_BACKEND=nixl_ep
""".split()


@pytest.mark.parametrize("variable", UNSAFE)
@pytest.mark.parametrize("schema", [eugr, nvidia, docker])
def test_a_variable_or_value_that_is_not_listed_is_refused(schema: Any, variable: str) -> None:
    plan, problems = used(schema("", variable))
    (problem,) = problems
    assert problem.path.endswith(f".{variable.partition('=')[0]}") and f"{variable} is not" in problem.found
    assert variable.partition("=")[0] not in plan.environment


SAFE = """
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True VLLM_NVFP4_GEMM_BACKEND=flashinfer-cutlass CUTE_DSL_ARCH=sm_121a TORCH_CUDA_ARCH_LIST=12.1a
VLLM_FLASHINFER_ALLREDUCE_BACKEND=trtllm VLLM_FLOAT32_MATMUL_PRECISION=high NCCL_DEBUG=INFO VLLM_ALL2ALL_BACKEND=naive NCCL_ALGO=^Tree B12X_MOE_FORCE_A8=1 VLLM_PLE_TABLE_MEMORY=disk VLLM_B12X_MOE_FP4_LAYER_MAX_INPUT_SCALE=w13
VLLM_USE_B12X_SPARSE_INDEXER=1 VLLM_TRITON_MLA_SPARSE_TOPK_CHUNK_SIZE=512 VLLM_DCP_QUERY_SPLIT=1 MALLOC_ARENA_MAX=2 MAX_JOBS=4
VLLM_GLM53_ONLINE_NVFP4=shared,oproj,qkv INSTANTTENSOR_BACKEND=BUFFERED INSTANTTENSOR_IO_DEPTH=3 VLLM_QWEN3_8_FLASH_NEXT_OVERLAP=1
VLLM_ENABLE_ROCE_ALLREDUCE=1 VLLM_ROCE_ALLREDUCE_MAX_SIZE=2MB B12X_POLICY_MODE=auto VLLM_MLA_NOPE_PAD_ROPE=1 VLLM_MXFP8_LM_HEAD=1
VLLM_USE_FLASHINFER_SAMPLER=True VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1200
""".split()


@pytest.mark.parametrize("variable", SAFE)
def test_a_variable_of_published_recipes_is_kept(variable: str) -> None:
    plan, problems = used(eugr("", variable))
    assert (plan.environment, problems) == (dict([variable.split("=")]), [])


@pytest.mark.parametrize(
    ("name", "expected", "of_a_value"),
    [
        ("--disable-prefix-caching", None, allowed.UNLISTED),
        ("--enable-cascade-attn", None, allowed.UNLISTED),
        ("--disable-flashinfer-autotune", None, allowed.UNLISTED),
        ("--disable-log-outputs", None, allowed.EFFECTS["--enable-log-outputs"]),
        ("--enable-log-outputs", allowed.EFFECTS["--enable-log-outputs"], allowed.EFFECTS["--enable-log-outputs"]),
        ("--disable-x", allowed.UNLISTED, allowed.UNLISTED),
    ],
)
def test_the_opposite_of_a_flag_turns_it_off(name: str, expected: object, of_a_value: object) -> None:
    """An image with another vLLM may have an option of this name that takes a value."""
    assert options.effect(name, []) == (expected and ("", expected))
    assert options.effect(name, ["x"]) == ("", of_a_value)
