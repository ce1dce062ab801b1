"""Secrets of the ranks: settings that must hold none, and the file that only root can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import cluster_plan, mistakes, spark
from run_module import run_module
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import report as cluster_report
from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment
from ansible_collections.gb10.cluster.plugins.module_utils.common.paths import API_KEY, SECRET_ENVIRONMENT
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog_checks
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record

SECRET = "a-secret-that-nobody-sees"


def paths(**settings: Any) -> list[str]:
    """The paths of the problems in a single node's settings. No message shows a value."""
    problems = mistakes([spark(1, "head", **settings)])
    assert SECRET not in "".join(map(str, problems))
    return [problem.path for problem in problems]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "HF_TOKEN",
            "hf_token",
            "AWS_SECRET_ACCESS_KEY",
            "WANDB_API_KEY",
            "CLIENT_SECRET",
            "PASSWORD",
            "DB_PASSWORD_2",
        ),
        *("VLLM_API_KEY", "RAY_AUTH_TOKEN", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"),
    ],
)
def test_no_secret_is_in_the_environment_that_all_can_read(name: str) -> None:
    assert paths(gb10_extra_env={name: SECRET}) == [f"gb10_extra_env.{name}"]


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "TOKENIZERS_PARALLELISM", "KEYRING", "VLLM_LOGGING_LEVEL", "OMP_NUM_THREADS"]
)
def test_other_variables_pass(name: str) -> None:
    assert secret_environment.check_environment({name: "1"}, "gb10_extra_env") == []


@pytest.mark.parametrize(
    "words",
    [
        *(
            [f"--api-key={SECRET}"],
            [f"--api_key={SECRET}"],
            ["--api-key", SECRET],
            ["--api-k", SECRET],
            [f"--ap={SECRET}"],
        ),
        *([f"--hf-token={SECRET}"], ["--hf-token", SECRET], [f"--hf_t={SECRET}"]),
        # A file that may hold a secret.
        *(["--config", "/etc/vllm.yaml"], ["--config=/etc/vllm.yaml"]),
    ],
)
def test_no_secret_is_in_the_arguments(words: list[str]) -> None:
    assert "gb10_vllm_extra_args[1]" in paths(gb10_vllm_extra_args=["--enforce-eager", *words])


@pytest.mark.parametrize(
    "words",
    [
        ["--hf-token"],
        ["--hf-token", "--enforce-eager"],
        ["--port=8000"],
        ["--api-server-count=2"],
        ["--config-format=hf"],
        ["--", "-a"],
    ],
)
def test_other_arguments_pass(words: list[str]) -> None:
    assert secret_environment.check_arguments(words, "gb10_vllm_extra_args") == []


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ([f"--env=HF_TOKEN={SECRET}"], "gb10_container_args[0].HF_TOKEN"),
        (["--env", f"HF_TOKEN={SECRET}"], "gb10_container_args[1].HF_TOKEN"),
        (["-e", f"HF_TOKEN={SECRET}"], "gb10_container_args[1].HF_TOKEN"),
        ([f"-eHF_TOKEN={SECRET}"], "gb10_container_args[0].HF_TOKEN"),
        (["--env=RAY_AUTH_MODE=disabled"], "gb10_container_args[0].RAY_AUTH_MODE"),
    ],
)
def test_no_secret_is_in_the_arguments_of_the_engine(words: list[str], path: str) -> None:
    assert paths(gb10_container_args=words) == [path]


@pytest.mark.parametrize("words", [["--env=HF_TOKEN"], ["-e", "NCCL_DEBUG=INFO"], ["--env"], ["--entrypoint=a=b"]])
def test_other_arguments_of_the_engine_pass(words: list[str]) -> None:
    assert secret_environment.check_engine(words, "gb10_container_args") == []


def test_no_secret_is_in_a_model_of_ones_own() -> None:
    entry = {"hub": "a/b", "environment": {"HF_TOKEN": SECRET}, "args": ["--api-key", SECRET]}
    problems = catalog_checks.check({"mine": entry})
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
    ],
)
def test_secret_variables_are_judged_without_being_shown(variables: dict[str, Any], path: str) -> None:
    verdict = secret_environment.verdict(variables, {"NCCL_DEBUG": "INFO"})
    assert SECRET not in json.dumps(verdict)
    assert verdict["names"] == sorted(variables)
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


def keep(folder: Path, check: bool = False, **variables: str) -> dict[str, Any]:
    answer = run_module(
        "secret_environment", {"variables": variables, "path": str(folder / "etc" / "secret.env")}, check=check
    )
    assert not [value for value in variables.values() if value in json.dumps(answer)]
    return answer


def test_root_alone_reads_the_file_and_its_version_tells_nothing(tmp_path: Path) -> None:
    file = tmp_path / "etc" / "secret.env"
    assert keep(tmp_path, check=True, HF_TOKEN=SECRET)["changed"] and not file.exists()
    first, again = keep(tmp_path, HF_TOKEN=SECRET), keep(tmp_path, HF_TOKEN=SECRET)
    assert (first["changed"], again["changed"], again["version"]) == (True, False, first["version"])
    assert file.stat().st_mode & 0o777 == 0o600
    salt, line = file.read_text(encoding="utf-8").splitlines()
    assert line == f"HF_TOKEN={SECRET}"
    assert len(salt.split()) == 3 and salt.startswith("# salt ")
    elsewhere = keep(tmp_path / "other", HF_TOKEN=SECRET)
    assert elsewhere["version"] != first["version"], "a digest of only the value would reveal a short one"
    assert (
        keep(tmp_path, check=True, HF_TOKEN="another")["version"]
        == keep(tmp_path, HF_TOKEN="another")["version"]
        != first["version"]
    )
    assert keep(tmp_path, HF_TOKEN=SECRET)["version"] == first["version"], "the salt stays"


def test_a_lost_mode_is_mended_without_a_new_version(tmp_path: Path) -> None:
    version = keep(tmp_path, A=SECRET)["version"]
    (tmp_path / "etc" / "secret.env").chmod(0o644)
    answer = keep(tmp_path, A=SECRET)
    assert (answer["changed"], answer["version"]) == (True, version)
    assert (tmp_path / "etc" / "secret.env").stat().st_mode & 0o777 == 0o600


def test_no_variables_leave_no_file(tmp_path: Path) -> None:
    keep(tmp_path, A=SECRET)
    assert keep(tmp_path, check=True)["changed"]
    assert (keep(tmp_path)["changed"], (tmp_path / "etc" / "secret.env").exists()) == (True, False)
    answer = keep(tmp_path)
    assert (answer["changed"], answer["version"]) == (False, "")


def test_the_way_back_has_secrets_keys_and_certificate() -> None:
    tls = {"/etc/gb10/tls/api.crt", "/etc/gb10/tls/api.key", "/etc/gb10/tls/ca.crt"}
    assert {SECRET_ENVIRONMENT, *API_KEY, *tls} == set(record.SECRET_FILES)
