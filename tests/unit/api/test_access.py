"""The API's key: rejected values, and the processes that get it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster_nodes import cluster_plan, mistakes, pair, spark
from run_module import run_module

from ansible_collections.gb10.cluster.plugins.module_utils.api import access as api_access
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_local

KEY = "sk-" + "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", ""),
        (KEY, ""),
        ("short", "it has 5 characters"),
        (f"{KEY} {KEY}", "blanks"),
        (f"{KEY}\n", "line breaks"),
        ("ä" * 20, "beyond ASCII"),
    ],
)
def test_a_key_is_judged_without_being_shown(key: str, said: str) -> None:
    found = api_access.key_problem(key)
    assert said in found
    assert bool(found) is bool(said)
    assert not key or key not in found


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"gb10_extra_env": {"VLLM_API_KEY": KEY}}, "gb10_extra_env.VLLM_API_KEY"),
        ({"gb10_vllm_extra_args": [f"--api-key={KEY}"]}, "gb10_vllm_extra_args[0]"),
        ({"gb10_vllm_extra_args": ["--api-key", KEY]}, "gb10_vllm_extra_args[0]"),
        ({"gb10_api_name": "https://spark"}, "gb10_api_name"),
        ({"gb10_api_name": "10.0.0.0/24"}, "gb10_api_name"),
        ({"gb10_api_name": "fe80::1%eth0"}, "gb10_api_name"),
        ({"gb10_api_name": "fd00::11"}, "gb10_api_host"),
        ({"gb10_api_host": "fe80::1%eth0"}, "gb10_api_host"),
        ({"gb10_api_key_enabled": False}, "gb10_api_host"),
        ({"gb10_api_key_enabled": "false", "gb10_api_host": "10.110.0.1"}, "gb10_api_host"),
        ({"gb10_api_clients": ["192.168.1.0/24", "192.168.1.1/24", "lan"]}, "gb10_api_clients[1] gb10_api_clients[2]"),
        (
            {"gb10_service_read_write_paths": ["/data/hf", "data", "/a b"]},
            "gb10_service_read_write_paths[1] gb10_service_read_write_paths[2]",
        ),
    ],
)
def test_settings_that_would_open_the_api_are_refused(settings: dict[str, Any], path: str) -> None:
    problems = mistakes([spark(1, "head", **settings)])
    assert " ".join(problem.path for problem in problems if problem.path.startswith("gb10_")) == path
    assert KEY not in "".join(map(str, problems))


@pytest.mark.parametrize(
    ("address", "settings", "path"),
    [
        ("fd00::11", {}, "gb10_api_host"),
        ("fe80::1%eth0", {}, "nodes[0].address"),
        ("fe80::1%eth0", {"gb10_api_host": "::"}, "nodes[0].address"),
        ("fd00::11", {"gb10_api_host": "::"}, ""),
        *((address, {"gb10_api_name": "spark.lan"}, "") for address in ("fd00::11", "fe80::1%eth0")),
    ],
)
def test_an_endpoint_that_no_client_reaches_is_refused(address: str, settings: dict[str, Any], path: str) -> None:
    nodes = pair(**settings)
    nodes[0]["address"] = address
    assert " ".join(problem.path for problem in cluster_plan(nodes)[1]) == path


def test_the_origin_of_a_page() -> None:
    origins = ["*", "https://chat.example.com", "http://localhost:3000", "app://obsidian.md", "http://[::1]:3000"]
    assert api_access.origin_problems("gb10_api_origins", origins) == []
    wrong = [f"{origin}/ " for origin in origins]
    found = [problem.path for problem in api_access.origin_problems("gb10_api_origins", wrong)]
    assert found == [f"gb10_api_origins[{index}]" for index in range(len(wrong))]


def test_a_bad_key_is_listed_with_the_rest() -> None:
    node = {**spark(1, "head"), "key_problem": "it has 5 characters"}
    assert [problem.path for problem in mistakes([node])] == ["gb10_api_key"]


def test_the_head_alone_gets_the_key_and_keeps_the_users_path() -> None:
    assert api_access.environment(KEY, {"PYTHONPATH": "/a:/usr/local/lib/gb10", "HF_HOME": "/b"}) == {
        "VLLM_API_KEY": KEY,
        "PYTHONPATH": "/usr/local/lib/gb10:/a",
        "VLLM_CONFIG_ROOT": "/etc/gb10/vllm",
    }


def places(folder: Path) -> dict[str, str]:
    return {"key_file": str(folder / "etc" / "api.key"), "environment_file": str(folder / "etc" / "api.env")}


def api_key(folder: Path, check: bool = False, **arguments: Any) -> dict[str, Any]:
    answer = run_module("vllm_api_key", {**places(folder), **arguments}, check=check)
    key = io_local.read(str(folder / "etc" / "api.key"))
    assert not key or key not in json.dumps(answer)
    return answer


def read(folder: Path) -> tuple[str, str]:
    """Return both files; only root may read them."""
    paths = [folder / "etc" / name for name in ("api.key", "api.env")]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o600, 0o600]
    return paths[0].read_text(encoding="utf-8"), paths[1].read_text(encoding="utf-8")


def test_a_key_is_generated_once(tmp_path: Path) -> None:
    assert api_key(tmp_path, check=True)["changed"]
    assert not (tmp_path / "etc").exists()
    first = api_key(tmp_path, environment={"PYTHONPATH": "/mine"})
    key, variables = read(tmp_path)
    assert len(bytes.fromhex(key)) == 32
    assert f"VLLM_API_KEY={key}" in variables
    assert "PYTHONPATH=/usr/local/lib/gb10:/mine" in variables
    again = api_key(tmp_path, environment={"PYTHONPATH": "/mine"})
    assert (first["changed"], again["changed"], again["version"]) == (True, False, first["version"])
    assert read(tmp_path)[0] == key


def test_another_key_is_another_version(tmp_path: Path) -> None:
    versions = [api_key(tmp_path)["version"], api_key(tmp_path, key=KEY)["version"]]
    assert read(tmp_path)[0] == f"{KEY}\n"
    foreseen = api_key(tmp_path, check=True, key=KEY * 2)
    assert (foreseen["changed"], foreseen["version"]) == (True, "new")
    assert api_key(tmp_path)["changed"] is False, "the user's key stays after it is unset"
    (tmp_path / "etc" / "api.key").unlink()
    versions.append(api_key(tmp_path)["version"])
    assert len(set(versions)) == 3
    assert KEY not in read(tmp_path)[1]


def test_a_lost_mode_is_mended_without_a_new_version(tmp_path: Path) -> None:
    version = api_key(tmp_path)["version"]
    (tmp_path / "etc" / "api.key").chmod(0o644)
    answer = api_key(tmp_path)
    assert (answer["changed"], answer["version"]) == (True, version)
    read(tmp_path)


def test_no_key_leaves_no_file(tmp_path: Path) -> None:
    api_key(tmp_path)
    assert api_key(tmp_path, state="absent", check=True)["changed"]
    assert len(list((tmp_path / "etc").iterdir())) == 2
    assert api_key(tmp_path, state="absent")["changed"]
    assert list((tmp_path / "etc").iterdir()) == []
    assert api_key(tmp_path, state="absent")["changed"] is False


def test_what_is_no_key_is_refused_without_being_shown(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "api.key").write_text("two words\n", encoding="utf-8")
    answer = run_module("vllm_api_key", places(tmp_path))
    assert answer["failed"] and "does not contain a key" in answer["msg"]
    assert "two words" not in answer["msg"]


@pytest.mark.parametrize(
    ("host", "name", "tls", "expected"),
    [
        ("0.0.0.0", "", False, ("http://127.0.0.1:8000", "", "http://192.168.1.11:8000/v1")),
        ("0.0.0.0", "", True, ("https://127.0.0.1:8000", "192.168.1.11", "https://192.168.1.11:8000/v1")),
        ("::", "spark.lan", True, ("https://[::1]:8000", "spark.lan", "https://spark.lan:8000/v1")),
        ("127.0.0.1", "", True, ("https://127.0.0.1:8000", "127.0.0.1", "https://127.0.0.1:8000/v1")),
        ("fd00::1", "", False, ("http://[fd00::1]:8000", "", "http://[fd00::1]:8000/v1")),
    ],
)
def test_where_the_api_is(host: str, name: str, tls: bool, expected: tuple[str, str, str]) -> None:
    place = api_access.place(host, 8000, name, "192.168.1.11", tls)
    assert (place["url"], place["server_name"], place["endpoint"]) == expected
