"""Secrets of the ranks: settings that must hold none, and the file that only root can read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import cluster_plan, mistakes, spark
from run_module import run_module
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.filter.common import package_index
from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report as cluster_report
from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment
from ansible_collections.gb10.cluster.plugins.module_utils.common.paths import API_KEY, SECRET_ENVIRONMENT
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

SECRET = "a-secret-that-nobody-sees"


def paths(**settings: Any) -> list[str]:
    """The paths of the problems in a single node's settings. No message shows a value."""
    problems = mistakes([spark(1, "head", **settings)])
    assert SECRET not in "".join(map(str, problems))
    return [problem.path for problem in problems]


SECRETS = """
HF_TOKEN hf_token AWS_SECRET_ACCESS_KEY WANDB_API_KEY CLIENT_SECRET PASSWORD DB_PASSWORD_2 VLLM_API_KEY RAY_AUTH_TOKEN
RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH TOKEN SECRET KEY PASSWD PROXY_PASS HTTP_PROXY_PWD GITHUB_PAT HF_AUTH NPM_CREDENTIALS
AWS_SESSION_TOKEN_2 GIT_CONFIG_VALUE_0 OPENAI_APIKEY
""".split()
OTHERS = [
    "NCCL_DEBUG",
    "TOKENIZERS_PARALLELISM",
    "KEYRING",
    "VLLM_LOGGING_LEVEL",
    "OMP_NUM_THREADS",
    "GIT_ASKPASS",
    "SSH_AUTH_SOCK",
]


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("https_proxy", "http://proxy:3128", False),
        ("HF_ENDPOINT", "https://example.com/a@b", False),
        ("no_proxy", "", False),
        ("https_proxy", f"http://anna:{SECRET}@proxy:3128", True),
        ("HF_ENDPOINT", f"https://anna:it's{SECRET}@mirror", True),
        ("HF_OPTIONS", f'{{"a": "http:\\/\\/anna:{SECRET}@mirror"}}', True),
        ("https_proxy", "http://anna@proxy:3128", True),
        ("https_proxy", f"anna:{SECRET}@proxy:3128", True),
        ("ALL_PROXY", f"http:anna:{SECRET}@proxy:3128", True),
        ("http_proxy", f"http:/anna:{SECRET}@proxy:3128", True),
        ("http_proxy", f"http://anna:12/{SECRET}@proxy:3128", True),
        ("https_proxy", "http://proxy/a@b", True),
        ("HF_ENDPOINT", f"https://anna:{SECRET}/2@mirror", True),
        ("HF_ENDPOINT", f"https:///anna:{SECRET}@mirror", True),
        ("HF_ENDPOINT", f"anna:{SECRET}@mirror", True),
        ("HF_TOKEN", "hf_x", True),
    ],
)
def test_no_secret_is_in_the_variables_of_downloads(name: str, value: str, refused: bool) -> None:
    found = secret_environment.check_downloads({name: value}, "gb10_download_env")
    assert [each.path for each in found] == [f"gb10_download_env.{name}"] * refused
    assert SECRET not in str(found)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (f"https://anna:{SECRET}@host/x", True),
        (f"ssh://anna:{SECRET}@host/x", True),
        (f'{{"proxy": "http://anna:{SECRET}@host"}}', True),
        (f"https://a.b/c,https://anna:{SECRET}@host", True),
        ("ssh://git@github.com/a/b.git", False),
        ("git@github.com:a/b.git", False),
        (f"https://github.com/a/b@{'0' * 40}", False),
        (f"file:///srv/a@{'0' * 40}", False),
        ("see https://a.b, or write to me@a.b", False),
        ("http://[::1]:80/a@b", False),
        ("://" * 30000 + "@", True),
    ],
)
def test_a_user_in_an_address_is_found(text: str, refused: bool) -> None:
    assert secret_environment.in_data({"x": [text]}) is refused


def test_the_planner_refuses_secrets_of_downloads() -> None:
    assert paths(gb10_download_env={"https_proxy": f"http://anna:{SECRET}@proxy"}) == ["gb10_download_env.https_proxy"]


def test_no_secret_is_in_the_environment_that_all_can_read() -> None:
    assert paths(gb10_extra_env=dict.fromkeys(SECRETS, SECRET)) == [f"gb10_extra_env.{name}" for name in SECRETS]
    assert secret_environment.check_environment(dict.fromkeys(OTHERS, "1"), "gb10_extra_env") == []


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ([f"--api-key={SECRET}"], True),
        ([f"--api_key={SECRET}"], True),
        (["--api-key", SECRET], True),
        (["--api-k", SECRET], True),
        ([f"--ap={SECRET}"], True),
        ([f"--hf-token={SECRET}"], True),
        (["--hf-token", SECRET], True),
        ([f"--hf-token {SECRET}"], True),
        ([f"--hf_t={SECRET}"], True),
        # A file that may hold a secret.
        (["--config", "/etc/vllm.yaml"], True),
        (["--config=/etc/vllm.yaml"], True),
        (["--hf-token"], False),
        (["--hf-token", "--enforce-eager"], False),
        (["--port=8000"], False),
        (["--api-server-count=2"], False),
        (["--config-format=hf"], False),
        ([f"--x=http://anna:{SECRET}@host"], True),
        (["--", "-a"], False),
    ],
)
def test_no_secret_is_in_the_arguments(words: list[str], refused: bool) -> None:
    problems = secret_environment.check_arguments(["--enforce-eager", *words], "gb10_vllm_extra_args")
    assert {problem.path for problem in problems} == ({"gb10_vllm_extra_args[1]"} if refused else set())
    assert SECRET not in "".join(map(str, problems))


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ([f"--env=HF_TOKEN={SECRET}"], ["[0].HF_TOKEN"]),
        (["--env", f"HF_TOKEN={SECRET}"], ["[1].HF_TOKEN"]),
        (["-e", f"HF_TOKEN={SECRET}"], ["[1].HF_TOKEN"]),
        ([f"-eHF_TOKEN={SECRET}"], ["[0].HF_TOKEN"]),
        (["--env=RAY_AUTH_MODE=disabled"], ["[0].RAY_AUTH_MODE"]),
        ([f"--env=https_proxy=anna:{SECRET}@proxy"], ["[0].https_proxy"]),
        (["--env", f"A=http://anna:{SECRET}@host"], ["[1].A"]),
        (["-it", "-ie", f"HF_TOKEN={SECRET}"], ["[2].HF_TOKEN"]),
        ([f"-ieHF_TOKEN={SECRET}"], ["[0].HF_TOKEN"]),
        ([f"--creds=anna:{SECRET}"], ["[0]"]),
        ([f"--label=a=http://anna:{SECRET}@host"], ["[0]"]),
        (["--env=HF_TOKEN"], []),
        (["-e", "NCCL_DEBUG=INFO"], []),
        (["--env"], []),
        (["--entrypoint=a=b"], []),
    ],
)
def test_no_secret_is_in_the_arguments_of_the_engine(words: list[str], where: list[str]) -> None:
    problems = secret_environment.check_engine(words, "gb10_container_args")
    assert [problem.path for problem in problems] == [f"gb10_container_args{each}" for each in where]
    assert SECRET not in "".join(map(str, problems))


def test_the_planner_refuses_them_in_each_setting() -> None:
    assert paths(gb10_vllm_extra_args=["--api-key", SECRET], gb10_container_args=["-e", f"HF_TOKEN={SECRET}"]) == [
        "gb10_vllm_extra_args[0]",
        "gb10_container_args[1].HF_TOKEN",
    ]


def test_no_secret_is_in_a_model_of_ones_own() -> None:
    entry = {"hub": "a/b", "environment": {"HF_TOKEN": SECRET}, "args": ["--api-key", SECRET]}
    problems = catalog.check({"mine": entry})
    assert [problem.path for problem in problems] == [
        "gb10_models.mine.environment.HF_TOKEN",
        "gb10_models.mine.args[0]",
    ]
    assert SECRET not in "".join(map(str, problems))


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({"HF_TOKEN": SECRET}, ""),
        ({"VLLM_API_KEY": SECRET}, ".VLLM_API_KEY"),
        ({"RAY_AUTH_MODE": "disabled"}, ".RAY_AUTH_MODE"),
        ({"VLLM_HOST_IP": SECRET}, ".VLLM_HOST_IP"),
        ({"GB10_INPUTS": SECRET}, ".GB10_INPUTS"),
        ({"NCCL_DEBUG": SECRET}, ".NCCL_DEBUG"),
        ({"A": [SECRET]}, ".A"),
        ({"A": f"{SECRET}\nB=1"}, " "),
        ({"A B": SECRET}, " "),
        ({f"HF_TOKEN={SECRET}": ""}, " "),
    ],
)
def test_secret_variables_are_judged_without_being_shown(variables: dict[str, Any], path: str) -> None:
    verdict = secret_environment.verdict(variables, {"NCCL_DEBUG": "INFO"})
    assert SECRET not in json.dumps(verdict)
    assert verdict["names"] == sorted(name for name in variables if name.isidentifier())
    assert [problem["path"] for problem in verdict["problems"]] == ([f"gb10_secret_env{path.rstrip()}"] if path else [])


def test_the_planner_lists_them_once() -> None:
    verdict = secret_environment.verdict({"VLLM_API_KEY": SECRET}, {})
    nodes = [{**spark(number, group), "secrets": verdict} for number, group in ((1, "head"), (2, "worker"))]
    assert [problem.path for problem in mistakes(nodes)] == ["gb10_secret_env.VLLM_API_KEY"]


def test_the_plan_has_their_names_alone() -> None:
    verdict = secret_environment.verdict({"HF_TOKEN": SECRET}, {})
    plan, problems = cluster_plan([{**spark(1, "head"), "secrets": verdict}])
    assert problems == []
    assert "  HF_TOKEN (secret)" in cluster_report.lines(typed(plan), 1)
    inside = {**plan["runtime"], "kind": "container", "engine": "podman", "image": "sha256:" + "1" * 64}
    argv = launch_argv.contained(typed({**plan, "node": plan["nodes"][0], "runtime": inside}), launch_argv.RAY, ["ray"])
    assert "HF_TOKEN" not in " ".join(argv), "the gates write it into the engine's file"
    assert SECRET not in json.dumps([plan, argv])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "etc/secret.env"


def keep(file: Path, check: bool = False, **variables: str) -> tuple[bool, str]:
    """Return whether the module changed the file, and the file's version."""
    answer = run_module("secret_environment", {"variables": variables, "path": str(file)}, check=check)
    assert not [value for value in variables.values() if value in json.dumps(answer)]
    return answer["changed"], answer["version"]


def test_root_alone_reads_the_file_and_its_version_tells_nothing(file: Path) -> None:
    assert keep(file, check=True, HF_TOKEN=SECRET)[0] and not file.exists()
    changed, version = keep(file, HF_TOKEN=SECRET)
    assert (changed, keep(file, HF_TOKEN=SECRET), file.stat().st_mode & 0o777) == (True, (False, version), 0o600)
    assert re.fullmatch(f"# salt [0-9a-f]{{32}}\nHF_TOKEN={SECRET}\n", file.read_text(encoding="utf-8"))
    elsewhere = keep(file.parent / "other/secret.env", HF_TOKEN=SECRET)
    assert elsewhere[1] != version, "a digest of only the value would reveal a short one"
    another = keep(file, check=True, HF_TOKEN="another")
    assert keep(file, HF_TOKEN="another") == another == (True, another[1]) and another[1] != version
    assert keep(file, HF_TOKEN=SECRET)[1] == version, "the salt stays"
    file.chmod(0o644)
    assert (keep(file, HF_TOKEN=SECRET), file.stat().st_mode & 0o777) == ((True, version), 0o600)


def test_no_variables_leave_no_file(file: Path) -> None:
    keep(file, A=SECRET)
    assert keep(file, check=True)[0] and file.exists()
    assert (keep(file), file.exists(), keep(file)) == ((True, ""), False, (False, ""))


def test_the_way_back_has_secrets_keys_and_certificate() -> None:
    tls = {"/etc/gb10/tls/api.crt", "/etc/gb10/tls/api.key", "/etc/gb10/tls/ca.crt"}
    assert {SECRET_ENVIRONMENT, *API_KEY, *tls} == set(record.SECRET_FILES)


def test_no_password_is_in_the_address_of_an_index() -> None:
    """The roles' last check, for hosts without a plan too."""
    for url in (f"https://anna:{SECRET}@host/simple", f"anna:{SECRET}@host/simple"):
        with pytest.raises(ValueError, match="a user or a password") as refused:
            package_index(url)
        assert SECRET not in str(refused.value)
    assert package_index("https://host/simple") == "https://host/simple"


def test_the_name_of_an_image_is_not_shown_with_a_user() -> None:
    assert paths(gb10_container_image=f"anna:{SECRET}@host/image", gb10_runtime="container") == ["gb10_container_image"]
