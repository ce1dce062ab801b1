"""Argv, units, environment files and the digest of the launch inputs."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_values import nested
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv

PLAN: dict[str, Any] = {
    "head": {"name": "spark1", "address": "10.110.0.1"},
    "node": {
        "name": "spark1",
        "address": "10.110.0.1",
        "head": True,
        "infiniband": True,
        "additions": {},
        "environment": {"NCCL_DEBUG": "INFO"},
        "secrets": [],
    },
    "ray_port": 6379,
    "restart": {"gate_timeout": 600},
    "rendezvous_port": 29501,
    "model": "/srv/models/tiny",
    "served_model_name": "tiny",
    "executor": "ray",
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "api_host": "127.0.0.1",
    "api_key": False,
    "api_port": 8000,
    "api": {
        "url": "http://127.0.0.1:8000",
        "server_name": "",
        "endpoint": "http://127.0.0.1:8000/v1",
        "client": "127.0.0.1",
    },
    "api_tls": {},
    "runtime": {"kind": "native", "path": "/opt/gb10/runtime/abc"},
    "stack": {"device": "cuda"},
    "user": "gb10",
    "root": "/opt/gb10",
    "serve": {"args": [], "user_args": [], "files": [], "compiled": []},
    "nodes": [],
}
WORKER = {**PLAN, "node": {**PLAN["node"], "name": "spark2", "address": "10.110.0.2", "head": False}}
PAIR = [{"name": name, "head": name == "spark1", "additions": {}, "environment": {}} for name in ("spark1", "spark2")]
IMAGE = "vllm/vllm-openai@sha256:" + "1" * 64
INSIDE: dict[str, Any] = {
    **PLAN,
    "runtime": {
        "kind": "container",
        "name": IMAGE,
        "image": IMAGE,
        "base": IMAGE,
        "tag": "",
        "engine": "docker",
        "engine_args": [],
    },
}


def option(argv: list[str], name: str) -> str | None:
    """Return the value that a parser would use for an option: the last one."""
    values = [word.partition("=")[2] for word in argv if word == f"--{name}" or word.startswith(f"--{name}=")]
    return values[-1] if values else None


#: docs/security.md lists the ports of the workers.
ON_EACH = ["--min-worker-port=20000", "--max-worker-port=20999", "--num-gpus=1", "--object-store-memory=100"]
FIXED = [
    "--node-manager-port=6380",
    "--object-manager-port=6381",
    "--runtime-env-agent-port=6382",
    "--dashboard-agent-grpc-port=6383",
    "--dashboard-agent-listen-port=6384",
    "--metrics-export-port=6385",
]


def test_ray_on_the_head() -> None:
    argv = launch_argv.ray_argv(typed(PLAN), 100)
    # The dashboard can start jobs, so no other host may reach it.
    dashboard = ["--include-dashboard=true", "--dashboard-host=127.0.0.1", "--dashboard-port=8265"]
    begin = ["/opt/gb10/runtime/abc/bin/ray", "start", "--block", "--head", *dashboard, "--node-ip-address=10.110.0.1"]
    assert argv == [*begin, "--port=6379", *FIXED, "--ray-client-server-port=6386", *ON_EACH]


def test_ray_on_a_worker_has_no_port_of_the_head() -> None:
    begin = ["/opt/gb10/runtime/abc/bin/ray", "start", "--block", "--address=10.110.0.1:6379"]
    argv = launch_argv.ray_argv(typed(WORKER), 100)
    assert argv == [*begin, "--node-ip-address=10.110.0.2", *FIXED, *ON_EACH]


def test_vllm_argv() -> None:
    assert launch_argv.vllm_argv(typed(PLAN)) == [
        "/opt/gb10/runtime/abc/bin/vllm",
        "serve",
        "/srv/models/tiny",
        "--served-model-name=tiny",
        "--host=127.0.0.1",
        "--port=8000",
        "--tensor-parallel-size=2",
        "--pipeline-parallel-size=1",
        "--distributed-executor-backend=ray",
    ]


def test_ranks_meet_without_ray() -> None:
    alone = typed({**PLAN, "executor": "mp", "nodes": PAIR[:1]})
    assert launch_argv.vllm_argv(alone)[-1].endswith("backend=mp"), "a single node meets nobody"
    head, worker = ({**plan, "executor": "mp", "nodes": PAIR} for plan in (PLAN, WORKER))
    both = ["--tensor-parallel-size=2", "--pipeline-parallel-size=1", "--distributed-executor-backend=mp", "--nnodes=2"]
    meet = ["--master-addr=10.110.0.1", "--master-port=29501"]
    assert launch_argv.vllm_argv(typed(head))[3:] == [
        "--served-model-name=tiny",
        "--host=127.0.0.1",
        "--port=8000",
        *both,
        "--node-rank=0",
        *meet,
    ]
    assert launch_argv.vllm_argv(typed(worker))[3:] == [
        "--served-model-name=tiny",
        "--headless",
        *both,
        "--node-rank=1",
        *meet,
    ]
    started = launch_argv.start_argv(typed(worker))
    assert started[:6] == [
        "/usr/bin/python3",
        "-I",
        "-B",
        "/usr/local/lib/gb10-rank.py",
        "--address=10.110.0.1",
        "--port=29502",
    ]
    assert started[6:] == ["--rank=1", "--ranks=2", "--timeout=600", "--", *launch_argv.vllm_argv(typed(worker))]
    assert launch_argv.start_digest(typed(worker)) == launch_argv.start_digest(typed(head)), "the same group"
    assert launch_argv.start_digest(typed(head))[:16] not in " ".join(started), "every user can read arguments"


def test_replicas_meet_at_the_heads_address() -> None:
    common = {"nodes": PAIR, "tensor_parallel_size": 1, "data_parallel_size": 2}
    meet = ["--data-parallel-size=2", "--data-parallel-size-local=1", "--data-parallel-address=10.110.0.1"]
    head, worker = ({**plan, **common, "executor": "mp"} for plan in (PLAN, WORKER))
    assert launch_argv.vllm_argv(typed(head))[-4:] == [*meet, "--data-parallel-rpc-port=29501"]
    assert launch_argv.vllm_argv(typed(worker))[-5:] == [
        *meet,
        "--data-parallel-rpc-port=29501",
        "--data-parallel-start-rank=1",
    ]
    assert launch_argv.vllm_argv(typed({**PLAN, **common}))[-4:] == [*meet, "--data-parallel-backend=ray"]
    assert not any(word.startswith("--nnodes") for word in launch_argv.vllm_argv(typed(worker)))


def test_a_container_gets_what_it_needs_and_no_more() -> None:
    assert launch_argv.contained(typed(INSIDE), launch_argv.RAY, ["ray", "start"], "990:980") == [
        "docker",
        "run",
        "--rm",
        "--pull=never",
        "--name=gb10-ray",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--log-driver=none",
        "--network=host",
        "--ipc=host",
        "--user=990:980",
        "--ulimit=memlock=-1:-1",
        "--ulimit=stack=67108864:67108864",
        "--ulimit=nofile=1048576:1048576",
        "--gpus=all",
        *(f"--device=/dev/{name}" for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")),
        "--device=/dev/infiniband",
        "--cgroup-parent=gb10-ray.slice",
        "--workdir=/var/lib/gb10",
        "--env=HOME=/var/lib/gb10",
        "--env=USER=gb10",
        "--env=RAY_TMPDIR=/var/lib/gb10",
        "--env-file=/run/gb10-ray/ranks.env",
        "--env=RAY_ADDRESS",
        "--env=RAY_AUTH_TOKEN_PATH",
        "--env=RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S",
        "--mount=type=bind,source=/srv/models/tiny,target=/srv/models/tiny,readonly",
        "--mount=type=bind,source=/run/gb10-ray,target=/run/gb10-ray,readonly",
        "--mount=type=bind,source=/var/lib/gb10,target=/var/lib/gb10",
        "--entrypoint=ray",
        IMAGE,
        "start",
    ]


def test_the_entry_point_of_nvidias_images_starts_the_program() -> None:
    image = "nvcr.io/nvidia/vllm:26.10-py3"
    for name in (image, "localhost/gb10-layers:1"):
        runtime = {**INSIDE["runtime"], "image": name, "base": image}
        argv = launch_argv.contained(typed({**INSIDE, "runtime": runtime}), launch_argv.RAY, ["ray", "start"])
        assert argv[-3:] == [name, "ray", "start"]
        assert option(argv, "entrypoint") is None


def contained(unit: str = launch_argv.VLLM, **changes: Any) -> list[str]:
    """Return the argv of a container, with changes to its plan."""
    return launch_argv.contained(typed({**INSIDE, **changes}), unit, ["vllm", "serve", "x"], "990:980")


def test_podman_has_its_own_words_for_gpus_and_cgroups() -> None:
    argv = contained(runtime={**INSIDE["runtime"], "engine": "podman", "engine_args": ["--cgroups=disabled"]})
    assert (argv[0], option(argv, "device"), option(argv, "gpus")) == ("podman", "/dev/infiniband", None)
    assert "--device=nvidia.com/gpu=all" in argv
    # The user's options come last and win.
    assert (option(argv, "cgroups"), argv.index("--cgroups=disabled") > argv.index("--cgroups=split")) == (
        "disabled",
        True,
    )


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"stack": {"device": "cpu"}}, "--gpus"),
        ({"stack": {"device": "cpu"}}, "/dev/nvidia"),
        ({"node": {**INSIDE["node"], "infiniband": False}}, "--device=/dev/infiniband"),
        ({"executor": "mp"}, "--pid="),
        ({"executor": "mp"}, "source=/run/"),
        ({"model": "org/model"}, "org/model"),
    ],
    ids=[
        "no GPU",
        "no devices of a GPU",
        "no adapters",
        "no Ray, no shared processes",
        "no Ray, no token",
        "no model on disk",
    ],
)
def test_a_container_gets_nothing_that_it_does_not_need(changes: dict[str, Any], part: str) -> None:
    assert part not in " ".join(contained(**changes))


def test_vllm_shares_the_processes_of_ray_and_does_not_run_as_root() -> None:
    assert option(contained(), "pid") == "container:gb10-ray"
    assert option(launch_argv.contained(typed(INSIDE), launch_argv.VLLM, ["vllm"]), "user") == "65534:65534"


def test_a_container_that_only_looks_is_closed_whatever_the_users_options_are() -> None:
    given = ["--user=root", "--network=host", "--env=HOME=/root"]
    plan = typed({**INSIDE, "runtime": {**INSIDE["runtime"], "engine_args": given}})
    argv = launch_argv.query_argv(plan, "image", ["python3"])
    options = {name: option(argv, name) for name in ("user", "network", "env", "gpus")}
    assert options == {"user": "65534:65534", "network": "none", "env": "NVIDIA_VISIBLE_DEVICES=void", "gpus": None}
    assert argv[-7:] == [
        *given[2:],
        "--network=none",
        "--user=65534:65534",
        "--env=HOME=/tmp",
        "--env=NVIDIA_VISIBLE_DEVICES=void",
        "--entrypoint=python3",
        "image",
    ]
    assert option(launch_argv.query_argv(plan, "image", ["python3"], gpu=True), "gpus") == "all"


def test_a_container_mounts_what_additions_bring_and_runs_the_image_that_was_proved() -> None:
    mount = {"source": "/opt/gb10/nccl/x", "target": "/opt/gb10/nccl/x", "read_only": True}
    found = {
        "nccl_sm121_build": {"environment": {"LD_PRELOAD": "/opt/gb10/nccl/x/lib/libnccl.so.2"}, "mounts": [mount]},
        "vllm_runtime": {"environment": {}, "files": {IMAGE: "2" * 64}, "mounts": []},
    }
    argv = contained(
        node={**INSIDE["node"], "additions": found},
        serve={"args": [], "user_args": [], "files": [{"path": "/opt/gb10/files/p.py"}]},
    )
    assert "--mount=type=bind,source=/opt/gb10/nccl/x,target=/opt/gb10/nccl/x,readonly" in argv
    assert "--mount=type=bind,source=/opt/gb10/files,target=/opt/gb10/files,readonly" in argv
    assert argv[-4:] == ["--entrypoint=vllm", "2" * 64, "serve", "x"]


def test_the_guard_of_the_key_goes_into_the_heads_server_alone() -> None:
    def mounted(argv: list[str]) -> bool:
        return any(f"source={api_access.GUARD_FOLDER}," in word for word in argv)

    assert mounted(contained(api_key=True))
    for argv in (contained(), contained(launch_argv.RAY, api_key=True), contained(api_key=True, node=WORKER["node"])):
        assert not mounted(argv)


def test_ranks_in_containers_start_and_end_together() -> None:
    nodes = [{**INSIDE["node"], "name": name, "head": name == "spark1"} for name in ("spark1", "spark2")]
    plan = {**INSIDE, "executor": "mp", "nodes": nodes, "node": nodes[1]}
    native = {**plan, "runtime": PLAN["runtime"]}
    argv = launch_argv.start_argv(typed(plan), "990:980")
    inner = argv[argv.index("--") + 1 :]
    assert inner == launch_argv.contained(typed(plan), launch_argv.VLLM, launch_argv.vllm_argv(typed(plan)), "990:980")
    assert launch_argv.vllm_argv(typed(plan))[0] == "vllm"
    assert launch_argv.start_digest(typed(plan)) != launch_argv.start_digest(typed(native)), (
        "ranks of two runtimes never meet"
    )


def test_the_users_arguments_come_last() -> None:
    assert launch_argv.ray_argv(typed(PLAN), 1, ["--num-gpus=4"])[-1] == "--num-gpus=4"
    node = {"additions": {"vllm_patch": {"flags": ["--moe-backend", "triton"]}}}
    serve = {**PLAN["serve"], "args": ["--max-num-seqs=8"], "user_args": ["--moe-backend", "marlin"]}
    argv = launch_argv.vllm_argv(typed({**PLAN, "nodes": [node], "serve": serve}))
    assert argv[-5:] == ["--max-num-seqs=8", "--moe-backend", "triton", "--moe-backend", "marlin"]


def test_own_environment() -> None:
    fabric = {"VLLM_HOST_IP": "10.110.0.1", "NCCL_SOCKET_IFNAME": "enp1s0f1np1"}
    variables = launch_argv.own_environment(
        fabric, {"PATH": "/bin"}, "gb10", "/srv/models/tiny", {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "mine"}
    )
    assert variables["NCCL_SOCKET_IFNAME"] == "mine", "the user's own win"
    assert (variables["VLLM_HOST_IP"], variables["NCCL_DEBUG"]) == ("10.110.0.1", "INFO")
    # Without authentication any host on the fabric may run code.
    assert (variables["RAY_AUTH_MODE"], variables["RAY_memory_monitor_refresh_ms"], variables["RAY_DEDUP_LOGS"]) == (
        "token",
        "0",
        "0",
    )
    assert (variables["HF_HUB_OFFLINE"], variables["TRITON_CACHE_DIR"]) == ("1", "/var/lib/gb10/.triton/cache")
    assert "HF_HUB_OFFLINE" not in launch_argv.own_environment(fabric, {}, "gb10", "org/model", {})


JSON = nested(st.none() | st.booleans() | st.integers() | st.text(), max_leaves=8)


def reversed_keys(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: reversed_keys(data[key]) for key in reversed(data)}
    return [reversed_keys(entry) for entry in data] if isinstance(data, list) else data


@given(JSON)
def test_the_digest_does_not_depend_on_the_order_of_keys(data: Any) -> None:
    assert systemd.digest(reversed_keys(data)) == systemd.digest(data)


@given(JSON, JSON)
def test_the_digest_tells_different_inputs_apart(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (systemd.digest(one) == systemd.digest(other)) is same


UNIT = "[Service]\nEnvironment=GB10_INPUTS=@inputs@\nExecStart=/bin/true\n"


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        pytest.param(UNIT.replace("true", "false"), [{"A": "1"}], id="text"),
        pytest.param(UNIT + "# a comment\n", [{"A": "1"}], id="comment"),
        pytest.param(UNIT, [{"A": "2"}], id="environment"),
        pytest.param(UNIT, [{"A": "1"}, "token"], id="token"),
        pytest.param(UNIT, [], id="nothing"),
    ],
)
def test_a_unit_carries_a_digest_that_changes_with_each_input(text: str, inputs: list[Any]) -> None:
    stamped, again = (systemd.unit_with_digest(UNIT, [{"A": "1"}]) for _time in range(2))
    assert (len(stamped["inputs"]), stamped["text"]) == (64, UNIT.replace("@inputs@", stamped["inputs"]))
    assert again == stamped
    assert systemd.unit_with_digest(text, inputs)["inputs"] != stamped["inputs"]


#: The characters that systemd's C-style unquoting makes of an escape (systemd.syntax(7)). The words here need no more.
ESCAPES = {"\\": "\\", '"': '"', "'": "'", "s": " "}


def systemd_words(line: str) -> list[str]:
    """Split an ExecStart= line as systemd does: quotes, escapes, then specifiers (%%) and variables ($$)."""
    words: list[str] = []
    word: str | None = None
    quoted = False
    characters = iter(line)
    for character in characters:
        if character == "\\":
            word = (word or "") + ESCAPES[next(characters)]
        elif character == '"':
            quoted, word = not quoted, word or ""
        elif character in " \t" and not quoted:
            words += [word] if word is not None else []
            word = None
        else:
            assert quoted or character not in "';", f"{character} is special to systemd outside quotes"
            word = (word or "") + character
    assert not quoted
    words += [word] if word is not None else []
    assert all("%" not in word.replace("%%", "") and "$" not in word.replace("$$", "") for word in words), (
        "a specifier or a variable"
    )
    return [word.replace("%%", "%").replace("$$", "$") for word in words]


#: One line of text that an argv or an environment can contain.
LINE = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=("Cs",)))


@given(st.lists(LINE, min_size=1))
@example(
    ["/bin/vllm", '--json={"a": "b c"}', "$HOME", "100%n", "", ";", "it's", "back\\slash", "tab\there", "\\x41", "~"]
)
def test_systemd_reads_back_every_word(argv: list[str]) -> None:
    assert systemd_words(systemd.exec_line(argv)) == argv


@pytest.mark.parametrize("word", ["a\nb", "a\rb", "a\0b"], ids=["newline", "carriage return", "null"])
def test_a_unit_cannot_carry_a_line_break_and_needs_its_placeholder(word: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        systemd.exec_line(["/bin/true", word])
    with pytest.raises(ValueError, match="@inputs@"):
        systemd.unit_with_digest("[Service]\nExecStart=/bin/true\n", [])
    # Environment= expands specifiers but not variables.
    assert systemd.systemd_quote("A=$HOME 100%", exec_line=False) == '"A=$HOME 100%%"'


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
VARIABLES = st.dictionaries(NAMES.map(lambda name: f"GB10_TEST_{name}"), LINE, max_size=5)


def systemd_environment(text: str) -> dict[str, str]:
    """Parse EnvironmentFile= as systemd does (systemd.exec(5)): in double quotes, a backslash escapes only four."""
    variables = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if value.startswith('"'):
            assert value.endswith('"') and len(value) > 1
            inner, characters = "", iter(value[1:-1])
            for character in characters:
                if character == "\\":
                    character = next(characters)  # noqa: PLW2901
                    inner += character if character in '"\\$`' else f"\\{character}"
                else:
                    assert character != '"'
                    inner += character
            value = inner
        else:
            assert not set(value) & set("\\'\"`$ \t;#")
        variables[name] = value
    return variables


@given(st.dictionaries(NAMES, st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Zl", "Zp", "Cc")))))
def test_systemd_reads_back_every_variable(variables: dict[str, str]) -> None:
    assert systemd_environment(systemd.environment_file(variables)) == variables


@given(st.dictionaries(NAMES, LINE))
@example(
    {"A": 'two words "quoted" \\ $x `y` \u2028 \x0b end ', "B": "'a' # b", "C": "", "D": '{"a": "b\\\\"}', "E": "*"}
)
def test_the_gates_and_an_engine_read_back_every_variable(variables: dict[str, str]) -> None:
    found = systemd.variables_of_file(f"# salt\n{systemd.environment_file(variables)}")
    assert found == variables
    lines = systemd.engine_file(found).split("\n")
    # Docker and Podman drop blanks before a name, and a carriage return at the end.
    assert {
        line.partition("=")[0]: line.partition("=")[2].removesuffix("\r") for line in lines if line.lstrip(" \t")
    } == variables


@settings(max_examples=30)
@given(VARIABLES)
@example(
    {"GB10_TEST_a": '$HOME `id` "q" it\'s \\ ! * ~ # ; & | < > ( ) \t end ', "GB10_TEST_b": "", "GB10_TEST_c": "~"}
)
def test_a_shell_reads_back_every_variable(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> None:
    path = tmp_path_factory.getbasetemp() / "variables.env"
    path.write_bytes(systemd.environment_file(variables).encode())
    script = f"set -a; . {shlex.quote(str(path))}; exec env -0"
    answer = subprocess.run(
        ["sh", "-c", script], capture_output=True, check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(Path("/"))}
    )
    assert answer.stderr == b""
    found = dict(entry.split("=", 1) for entry in answer.stdout.decode().split("\0") if entry.startswith("GB10_TEST_"))
    assert found == variables


def test_variables_are_sorted_and_all_bad_ones_named() -> None:
    with pytest.raises(
        ValueError, match=r"'1A' is not the name.*'B-C' is not the name.*D contains a line break"
    ) as raised:
        systemd.environment_file({"1A": "x", "B-C": "x", "D": "a\nsecret", "E": "fine"})
    assert "secret" not in str(raised.value)
    assert systemd.environment_file({"B": "2", "A": "x y"}) == 'A="x y"\nB=2\n'


def test_a_client_in_a_container() -> None:
    argv = launch_argv.client_argv(typed(INSIDE), "gb10-smoke", ["KEY"], ["vllm", "bench"], "990:980")
    assert argv[:6] == ["docker", "run", "--rm", "--pull=never", "--name=gb10-smoke", "--cap-drop=ALL"]
    assert (option(argv, "user"), option(argv, "network"), option(argv, "gpus"), option(argv, "entrypoint")) == (
        "990:980",
        "host",
        "all",
        "vllm",
    )
    assert argv[-3:] == ["--entrypoint=vllm", IMAGE, "bench"]
    assert [word for word in argv if word.startswith("--env=")] == ["--env=HOME=/var/lib/gb10", "--env=KEY"]
    assert [word for word in argv if word.startswith("--mount=")] == [
        "--mount=type=bind,source=/srv/models/tiny,target=/srv/models/tiny,readonly",
        "--mount=type=bind,source=/var/lib/gb10,target=/var/lib/gb10",
    ]
    without = launch_argv.client_argv(
        typed({**INSIDE, "stack": {"device": "cpu"}, "model": "org/model"}), "x", [], ["vllm"]
    )
    assert (option(without, "gpus"), option(without, "user")) == (None, "65534:65534")
    assert len([word for word in without if word.startswith("--mount=")]) == 1
    assert launch_argv.client_argv(typed(PLAN), "x", [], ["vllm"]) == ["vllm"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--net", "host"], {"--network": ("gb10_container_args[0]", "host")}),
        (["--net=host", "--network", "none"], {"--network": ("gb10_container_args[1]", "none")}),
        (["-e", "A=1", "-u", "root"], {"--user": ("gb10_container_args[2]", "root")}),
        (["-uroot"], {"--user": ("gb10_container_args[0]", "root")}),
        (["--user"], {"--user": ("gb10_container_args[0]", "")}),
        (["--userns=host", "--pid=host"], {"--pid": ("gb10_container_args[1]", "host")}),
        (["--ipc", "private"], {"--ipc": ("gb10_container_args[0]", "private")}),
        ([], {}),
    ],
)  # fmt: skip
def test_options_that_replace_those_of_the_plan(words: list[str], expected: dict[str, tuple[str, str]]) -> None:
    assert launch_argv.engine_overrides(words) == expected
