"""Tests of playbooks/plan.yml with recorded facts: it connects to no node, and is fast."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import certificates
import pytest
from repository import ROOT
from run_playbook import Run, run

#: Seconds of CPU of all processes. An idle machine needs less than 4; other load makes the same work cost more.
LIMIT = 8
INVENTORY = ROOT / "inventories/two-spark"


def plan(folder: Path, *arguments: str, **variables: object) -> Run:
    given = json.dumps({"gb10_plan_offline": True, "gb10_facts_dir": str(folder), **variables})
    return run("playbooks/plan.yml", ["-i", str(INVENTORY), "--extra-vars", given, *arguments])


def without_folder(line: str) -> str:
    return re.sub(r"/runtime/[0-9a-f]{12}/", "/runtime/DIGEST/", line)


def test_the_sample_is_planned_without_its_nodes(recorded: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = plan(recorded).assert_unchanged()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < LIMIT
    snapshot = Path(__file__).parents[1] / "data" / "plan_two_spark.txt"
    # The runtime's folder is named after the lock's digest, and Ansible strips the final line break.
    assert [without_folder(line.strip()) for line in snapshot.read_text(encoding="utf-8").splitlines()] == [
        without_folder(line) for line in done.shown("Show the plan")
    ]


def test_another_model_is_planned_by_its_name(recorded: Path) -> None:
    lines = plan(recorded, gb10_model="qwen3-next-80b-a3b-instruct-fp8").assert_unchanged().shown("Show the plan")
    assert any("Qwen3-Next-80B" in line for line in lines)
    assert any(line.startswith("fits:") for line in lines)


def test_a_warning_is_shown_once_and_before_the_plan(recorded: Path) -> None:
    done = plan(recorded, gb10_vllm_extra_args=["--enforce-eager"]).assert_unchanged()
    (warning,) = done.shown("Plan the cluster")
    assert warning.startswith("warning ")
    assert done.output.count(warning[:60]) == 1
    assert "none, except for the warnings above" in done.shown("Show the plan")


def break_links(recorded: Path) -> None:
    """Let port 1 of spark1 have no carrier, and an RDMA device of spark2 be down."""
    first, second = (recorded / f"spark{number}.json" for number in (1, 2))
    facts = json.loads(first.read_text(encoding="utf-8"))
    for name in ("enp1s0f1np1", "enP2p1s0f1np1"):
        facts["interfaces"][name]["carrier"] = False
    first.write_text(json.dumps(facts), encoding="utf-8")
    second.write_text(second.read_text(encoding="utf-8").replace("ACTIVE", "DOWN", 1), encoding="utf-8")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    done = plan(tmp_path, gb10_model="gpt-oss-12b", gb10_stack="curent")
    assert done.status != 0
    missing = f"spark1 has no recorded facts: {tmp_path}/spark1.json does not exist"
    for word in (missing, "spark2.json", "unknown model 'gpt-oss-12b'", "Fix: use current."):
        assert word in done.output


SECRET = "a-secret-that-nobody-sees"


def test_tls_is_planned_from_files_and_texts_and_no_secret_is_shown(recorded: Path) -> None:
    ca = certificates.authority()
    pair = ca.issue("192.168.1.11", "spark.example.com", days=20)
    certificate, key = pair.write(recorded, "api")
    given = {"gb10_api_tls_ca": ca.text, "gb10_api_name": "spark.example.com", "gb10_secret_env": {"HF_TOKEN": SECRET}}
    done = plan(
        recorded, "-vvv", gb10_api_tls_certificate=certificate, gb10_api_tls_key=key, **given
    ).assert_unchanged()
    lines = done.shown("Show the plan")
    assert any(
        line.startswith("API at https://spark.example.com:8000/v1, with a key, TLS with a certificate until ")
        for line in lines
    )
    assert sum(line.endswith(" HF_TOKEN (secret)") for line in lines) == 2
    assert "gb10_api_tls_certificate expires on" in done.output
    assert SECRET not in done.output
    assert not [line for line in pair.key_text.splitlines()[1:-1] if line in done.output]


def test_every_invalid_input_is_in_one_report_with_its_location_and_fix(recorded: Path) -> None:
    ca = certificates.authority()
    bad = ca.issue("spark.example.com", days=-0.5)
    given = {
        "gb10_api_tls_certificate": bad.text,
        "gb10_api_tls_key": ca.key_text,
        "gb10_api_tls_ca": str(recorded / "none.crt"),
    }
    plain = {"hf_token": SECRET, "RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": "/tmp/t"}
    lock = recorded / "old.lock"
    lock.write_text("vllm==0.18.1\nray==2.48.0\n", encoding="utf-8")
    break_links(recorded)
    given |= {"gb10_stack": "curent", "gb10_runtime_lock": str(lock), "gb10_fabric_ports": [1]}
    given |= {"gb10_extra_env": plain, "gb10_vllm_extra_args": ["--hf-token", SECRET]}
    done = plan(recorded, **given)
    assert done.status != 0
    reported = done.output.partition("13 problems found; nothing was changed.\n")[2].splitlines()[:13]
    for found, fix in (
        ("gb10_api_tls_key: it is the key of another certificate", "set both parts of one pair"),
        ("gb10_api_tls_certificate: it expired on", "renew it"),
        (
            "gb10_api_tls_certificate: it does not cover 192.168.1.11, but spark.example.com",
            "issue it for that too, or set gb10_api_name",
        ),
        ("gb10_api_tls_ca: it has no CERTIFICATE, and is not the path of a readable file", "correct gb10_api_tls_ca"),
        ("nodes[0].ports[0]: port 1 of spark1 has no carrier", "check the cable and the port at its other end"),
        (
            "nodes[1].ports[0]: rocep1s0f1, the RDMA device of enp1s0f1np1 of spark2, is DOWN",
            "check `rdma link show rocep1s0f1/1`",
        ),
        (f"gb10_runtime_lock: {lock} has releases without hash (line 1: vllm==0.18.1", "add them with: uv pip compile"),
        ("gb10_stack: 'curent'", "use current"),
        (
            "gb10_runtime_lock: Ray 2.48.0 has no RAY_AUTH_MODE",
            "use a release of vLLM for that Ray, or gb10_distributed_executor_backend: mp",
        ),
        ("gb10_extra_env.hf_token: hf_token has the name of a secret", "move it to gb10_secret_env, in a vault"),
        ("gb10_extra_env.RAY_AUTH_MODE: RAY_AUTH_MODE is set", "remove it"),
        ("gb10_extra_env.RAY_AUTH_TOKEN_PATH: RAY_AUTH_TOKEN_PATH is set", "remove it"),
        ("gb10_vllm_extra_args[0]: --hf-token is given", "move it to gb10_secret_env.HF_TOKEN, in a vault"),
    ):
        assert [line for line in reported if f". {found}" in line and f" Fix: {fix}" in line], (found, done.output)
    assert SECRET not in done.output
    assert not [line for line in ca.key_text.splitlines()[1:-1] if line in done.output]


def test_a_recipe_is_planned_and_none_of_its_text_is_a_template(recorded: Path) -> None:
    marker = recorded / "marker"
    hostile = f"{{{{ lookup('ansible.builtin.pipe', 'touch {marker}') }}}}"
    recipe = {
        "recipe_version": "1",
        "name": hostile,
        "description": hostile,
        "container": "vllm-node",
        "defaults": {"port": 8000},
        "env": {"VLLM_LOGGING_PREFIX": hostile},
        "command": "vllm serve openai/gpt-oss-20b --port {port} -tp 2 --max-model-len 8k",
    }
    # JSON is YAML.
    (recorded / "small.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    given = {
        "gb10_model": "",
        "gb10_recipe": "small",
        "gb10_recipe_folder": str(recorded),
        "gb10_recipe_images": {"vllm-node": "native"},
    }
    lines = plan(recorded, **given).assert_unchanged().shown("Show the plan")
    assert f"the recipe {hostile} with vllm-node" in lines
    assert any("--max-model-len=8000" in line for line in lines)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["/dev/null", "../small", "missing", "{{ 1 + 1 }}"])
def test_a_recipe_that_cannot_be_read_is_one_error(recorded: Path, name: str) -> None:
    done = plan(recorded, gb10_model="", gb10_recipe=name, gb10_recipe_folder=str(recorded))
    assert done.status != 0
    assert "1 problem found; nothing was changed." in done.output
    assert "gb10_recipe: " in done.output
    assert "is not a readable file on the controller" in done.output


TWO_CLUSTERS = """
gb10_cluster: {children: {head: , worker: }}
head: {hosts: {spark1: {ansible_host: 192.168.1.11}, spark2: {ansible_host: 192.168.1.12}}}
worker: {hosts: {}}
gb10_cluster_small: {hosts: {spark2: }, vars: {gb10_model: gpt-oss-20b}}
gb10_cluster_large: {hosts: {spark1: }, vars: {gb10_model: gpt-oss-120b}}
"""


def plan_two(folder: Path, playbook: str = "plan", **variables: object) -> Run:
    inventory = folder / "hosts.yml"
    inventory.write_text(TWO_CLUSTERS, encoding="utf-8")
    given = json.dumps({"gb10_plan_offline": True, "gb10_facts_dir": str(folder), **variables})
    return run(f"playbooks/{playbook}.yml", ["-i", str(inventory), "--extra-vars", given])


def planned(done: Run) -> list[str]:
    """Return the name and the first words of each plan that was shown."""
    return re.findall(r"^  cluster (.*\n  .*?):", done.assert_unchanged().output, re.MULTILINE)


def test_each_cluster_of_an_inventory_is_planned(recorded: Path) -> None:
    assert planned(plan_two(recorded)) == ["large\n  gpt-oss-120b on 1 node", "small\n  gpt-oss-20b on 1 node"]


def test_one_cluster_of_an_inventory_is_planned(recorded: Path) -> None:
    assert planned(plan_two(recorded, gb10_only="small")) == ["small\n  gpt-oss-20b on 1 node"]


def test_the_problems_of_all_clusters_are_reported(recorded: Path) -> None:
    done = plan_two(recorded, gb10_kv_cache_dtype="fp12")
    assert done.status != 0
    for model in ("gpt-oss-120b", "gpt-oss-20b"):
        assert f"gb10_models.{model}.args[0]: --kv-cache-dtype does not accept 'fp12'" in done.output


def test_an_unknown_cluster_is_refused(recorded: Path) -> None:
    done = plan_two(recorded, gb10_only="medium")
    assert done.status != 0
    assert "gb10_only: 'medium'. Expected: one of large, small. Fix: correct gb10_only" in done.output


def test_several_clusters_are_not_written_to_one_file(recorded: Path) -> None:
    done = plan_two(recorded, "field_report", field_report_file=str(recorded / "one"))
    assert done.status != 0
    assert "field_report_file is one file for the clusters large, small." in done.output
    assert not (recorded / "one").exists()


def test_values_that_roles_refuse_are_reported_together(recorded: Path) -> None:
    """A value with an undefined variable is left to its role."""
    done = plan(
        recorded,
        gb10_max_model_len="131k",
        gb10_extra_env="x",
        gb10_api_port=99999,
        qsfp_netplan_state="gone",
        vllm_watchdog_interval="often",
        peer_firewall_open_ports={"http": 80},
        model_store_hub_token={"token": SECRET},
        vllm_serve_keep_records="{{ not_yet_defined }}",
        ray_cluster_join_timeout="{{ 60 }}",
    )
    assert done.status != 0
    reported = done.output.partition("6 problems found; nothing was changed.\n")[2]
    assert "gb10_max_model_len: '131k'. Expected: a value of type int. Fix: correct gb10_max_model_len." in reported
    assert "gb10_extra_env: 'x'. Expected: a value of type dict." in reported
    assert "gb10_api_port: 99999. Expected: 1024 to 65535." in reported
    assert "qsfp_netplan_state: 'gone'. Expected: one of present, absent. Fix: correct qsfp_netplan_state." in reported
    assert (
        "vllm_watchdog_interval: 'often'. Expected: a value of type int. Fix: correct vllm_watchdog_interval."
        in reported
    )
    assert "Expected: a value of type list of str. Fix: correct peer_firewall_open_ports." in reported
    assert SECRET not in done.output
