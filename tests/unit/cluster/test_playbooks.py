"""Tests of playbooks/plan.yml and models.yml with recorded facts: they connect to no node, and are fast."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import certificates
import pytest
from cluster_nodes import observed
from repository import ROOT
from run_playbook import Run, run

from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog

#: Seconds of CPU of all processes. An idle machine needs less than 4; other load makes the same work cost more.
LIMIT = 8
TWO_SPARK = ROOT / "inventories/two-spark"
SECRET = "a-secret-that-nobody-sees"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a folder with the recorded facts of a sample's two nodes."""
    for number in (1, 2):
        text = json.dumps({**observed(f"192.168.1.{10 + number}"), "model": None})
        (tmp_path / f"spark{number}.json").write_text(text, encoding="utf-8")
    return tmp_path


def planned(
    folder: Path, *arguments: str, playbook: str = "plan", inventory: Path = TWO_SPARK, **variables: object
) -> Run:
    given = json.dumps({"gb10_plan_offline": True, "gb10_facts_dir": str(folder), **variables})
    return run(f"playbooks/{playbook}.yml", ["-i", str(inventory), "--extra-vars", given, *arguments])


def without_folder(line: str) -> str:
    return re.sub(r"/runtime/[0-9a-f]{12}/", "/runtime/DIGEST/", line.strip())


@pytest.mark.slow
def test_the_sample_is_planned_without_its_nodes(recorded: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = planned(recorded).assert_unchanged()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < LIMIT
    snapshot = (Path(__file__).parents[1] / "data" / "plan_two_spark.txt").read_text(encoding="utf-8")
    shown = done.shown("Show the plan")
    # The snapshot is of the planner, which does not know the guards.
    guards = [line for line in shown if line.strip().startswith(("memory guard: ", "watchdog: "))]
    assert len(guards) == 2
    # The runtime's folder is named after the lock's digest, and Ansible strips the final line break.
    planned_lines = [line for line in shown if line not in guards]
    assert list(map(without_folder, snapshot.splitlines())) == list(map(without_folder, planned_lines))
    assert "at the top" not in done.output


@pytest.mark.slow
def test_tls_is_planned_warnings_are_shown_once_and_no_secret_is_shown(recorded: Path) -> None:
    ca = certificates.authority()
    pair = ca.issue("192.168.1.11", "spark.example.com", days=20)
    certificate, key = pair.write(recorded, "api")
    done = planned(
        recorded,
        "-vvv",
        gb10_api_tls_certificate=certificate,
        gb10_api_tls_key=key,
        gb10_api_tls_ca=ca.text,
        gb10_api_name="spark.example.com",
        gb10_secret_env={"HF_TOKEN": SECRET},
        gb10_vllm_extra_args=["--enforce-eager"],
    ).assert_unchanged()
    lines = done.shown("Show the plan")
    assert lines[-2].startswith("API at https://spark.example.com:8000/v1, with a key, TLS with a certificate until ")
    assert sum(line.endswith(" HF_TOKEN (secret)") for line in lines) == 2
    warnings = ("warning: gb10_api_tls_certificate expires on", "warning enforce-eager, gb10_vllm_extra_args.")
    assert [done.output.count(f"  {warning}") for warning in warnings] == [1, 1]
    assert "none, except for the warnings above" in lines
    assert not [line for line in (SECRET, *pair.key_text.splitlines()[1:-1]) if line in done.output]


def break_links(recorded: Path) -> None:
    """Let port 1 of spark1 have no carrier, and an RDMA device of spark2 be down."""
    first, second = (recorded / f"spark{number}.json" for number in (1, 2))
    facts = json.loads(first.read_text(encoding="utf-8"))
    for name in ("enp1s0f1np1", "enP2p1s0f1np1"):
        facts["interfaces"][name]["carrier"] = False
    first.write_text(json.dumps(facts), encoding="utf-8")
    second.write_text(second.read_text(encoding="utf-8").replace("ACTIVE", "DOWN", 1), encoding="utf-8")


@pytest.mark.slow
def test_every_invalid_input_is_in_one_report_with_its_location_and_fix(recorded: Path) -> None:
    """A value with an undefined variable is left to its role."""
    ca = certificates.authority()
    lock = recorded / "old.lock"
    lock.write_text("vllm==0.18.1\nray==2.48.0\n", encoding="utf-8")
    break_links(recorded)
    done = planned(
        recorded,
        gb10_api_tls_certificate=ca.issue("spark.example.com", days=-0.5).text,
        gb10_api_tls_key=ca.key_text,
        gb10_api_tls_ca=str(recorded / "none.crt"),
        gb10_stack="curent",
        gb10_runtime_lock=str(lock),
        gb10_fabric_ports=[1],
        gb10_extra_env={"hf_token": SECRET, "RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": "/tmp/t"},
        gb10_vllm_extra_args=["--hf-token", SECRET],
        gb10_max_model_len="131k",
        gb10_models="x",
        gb10_api_port=99999,
        qsfp_netplan_state="gone",
        peer_firewall_open_ports={"http": 80},
        model_store_hub_token={"token": SECRET},
        vllm_serve_keep_records="{{ not_yet_defined }}",
        ray_cluster_join_timeout="{{ 60 }}",
    )
    assert done.status != 0
    expected = (
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
        ("gb10_max_model_len: '131k'. Expected: a value of type int.", "correct gb10_max_model_len."),
        ("gb10_models: 'x'. Expected: a value of type dict.", "correct gb10_models."),
        ("gb10_api_port: 99999. Expected: 1024 to 65535.", "correct gb10_api_port."),
        ("qsfp_netplan_state: 'gone'. Expected: one of present, absent.", "correct qsfp_netplan_state."),
        (
            "peer_firewall_open_ports: argument 'peer_firewall_open_ports' is of type dict",
            "correct peer_firewall_open_ports.",
        ),
        (
            "model_store_hub_token: a value of another form. Expected: a value of type str.",
            "correct model_store_hub_token.",
        ),
    )
    title = f"{len(expected)} problems found; nothing was changed.\n"
    reported = done.output.partition(title)[2].splitlines()[: len(expected)]
    for found, fix in expected:
        assert [line for line in reported if f". {found}" in line and f" Fix: {fix}" in line], (found, done.output)
    assert not [line for line in (SECRET, *ca.key_text.splitlines()[1:-1]) if line in done.output]


@pytest.mark.slow
def test_a_recipe_is_planned_and_none_of_its_text_is_a_template(recorded: Path) -> None:
    marker = recorded / "marker"
    hostile = f"{{{{ lookup('ansible.builtin.pipe', 'touch {marker}') }}}}"
    recipe = {
        "recipe_version": "1",
        "name": hostile,
        "description": hostile,
        "container": "vllm-node",
        "defaults": {"port": 8000},
        "env": {"NCCL_DEBUG": "{{ undefined_variable }}"},
        "command": "vllm serve openai/gpt-oss-20b --port {port} -tp 2 --max-model-len 8k",
    }
    # JSON is YAML.
    (recorded / "small.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    given = {"gb10_recipe_folder": str(recorded), "gb10_recipe_images": {"vllm-node": "native"}}
    lines = planned(recorded, gb10_model="", gb10_recipe="small", **given).assert_unchanged().shown("Show the plan")
    assert f"the recipe {hostile} with vllm-node" in lines and any("--max-model-len=8000" in line for line in lines)
    assert not marker.exists()


@pytest.mark.slow
def test_a_recipe_that_cannot_be_read_is_one_error(recorded: Path) -> None:
    done = planned(recorded, gb10_model="", gb10_recipe="/dev/null")
    assert done.status != 0
    expected = (
        "1 problem found; nothing was changed.\n    1. gb10_recipe: /dev/null is not a readable file on the controller"
    )
    assert expected in done.output


@pytest.fixture
def two_clusters(recorded: Path) -> Path:
    """Return an inventory of two clusters of one node each."""
    inventory = recorded / "hosts.yml"
    inventory.write_text(
        """
gb10_cluster: {children: {head: , worker: }, vars: {ansible_user: nvidia}}
head: {hosts: {spark1: {ansible_host: 192.168.1.11}, spark2: {ansible_host: 192.168.1.12}}}
worker: {hosts: {}}
gb10_cluster_small: {hosts: {spark2: }, vars: {gb10_model: gpt-oss-20b}}
gb10_cluster_large: {hosts: {spark1: }, vars: {gb10_model: gpt-oss-120b}}
""",
        encoding="utf-8",
    )
    return inventory


LARGE, SMALL = "large\n  gpt-oss-120b on 1 node", "small\n  gpt-oss-20b on 1 node"


@pytest.mark.parametrize(("only", "expected"), [({}, [LARGE, SMALL, LARGE, SMALL]), ({"gb10_only": "small"}, [SMALL])])
def test_all_clusters_or_one_are_planned(two_clusters: Path, only: dict[str, str], expected: list[str]) -> None:
    done = planned(two_clusters.parent, inventory=two_clusters, **only).assert_unchanged()
    assert re.findall(r"^  cluster (.*\n  .*?):", done.output, re.MULTILINE) == expected


@pytest.mark.slow
def test_the_problems_of_all_clusters_are_reported(two_clusters: Path) -> None:
    done = planned(two_clusters.parent, inventory=two_clusters, gb10_kv_cache_dtype="fp12")
    assert done.status != 0
    for model in ("gpt-oss-120b", "gpt-oss-20b"):
        assert f"gb10_models.{model}.args[0]: --kv-cache-dtype does not accept 'fp12'" in done.output


def test_several_clusters_are_not_written_to_one_file(two_clusters: Path) -> None:
    file = two_clusters.with_name("one")
    done = planned(two_clusters.parent, playbook="field_report", inventory=two_clusters, field_report_file=str(file))
    assert done.status != 0
    assert "field_report_file is one file for the clusters large, small." in done.output and not file.exists()


@pytest.mark.slow
def test_all_models_are_listed_without_the_nodes_and_without_a_valid_model(recorded: Path) -> None:
    own = {"mine": {"hub": "owner/mine"}}
    done = planned(recorded, playbook="models", gb10_model="gpt-oss-12b", gb10_recipe="missing", gb10_models=own)
    lines, count = done.assert_unchanged().shown("Show the models"), len(catalog.known())
    # Nemotron 3 Ultra does not fit, and no memory is planned for the two models with an image of their own.
    assert lines[-1] == f"{count - 3} of {count - 2} models fit on 2 nodes, 3 not judged"
    rows = {line.split()[0]: line.split()[1:] for line in lines[5:-4]}
    assert rows.keys() == catalog.known().keys() | {"mine"}
    assert rows["gpt-oss-120b"] == "65.2 128K 108.6 34.2 on 1".split()
    assert (rows["llama-3.1-70b-instruct"][0], rows["mine"][:3]) == ("141.1*", ["?", "not", "judged:"])


@pytest.mark.slow
def test_problems_of_the_nodes_are_reported_in_place_of_models(recorded: Path) -> None:
    (recorded / "spark2.json").unlink()
    done = planned(recorded, playbook="models", gb10_stack="curent")
    assert done.status != 0 and "fit on 2 nodes" not in done.output
    for text in ("2 problems found; nothing was changed.", "spark2 has no recorded facts: ", "Fix: use current."):
        assert text in done.output


@pytest.mark.slow
def test_unreachable_nodes_are_reported_together() -> None:
    done = run("playbooks/models.yml", ["-i", str(TWO_SPARK), "-e", "ansible_host=127.0.0.2", "-e", "ansible_port=9"])
    assert done.status != 0
    assert all(f"nodes[{number}]: spark{number + 1} (127.0.0.2) cannot be read" in done.output for number in (0, 1))


FOUR = """
gb10_cluster:
  vars: {ansible_user: nvidia, gb10_fabric_topology: direct, gb10_plan_offline: typicl, gb10_model: "{{ my_model }}"}
  children:
    head: {hosts: {s1: {ansible_host: 192.0.2.1}}}
    worker: {hosts: {s2: {ansible_host: 192.0.2.2}, s3: {ansible_host: 192.0.2.3}, s4: {ansible_host: 192.0.2.1}}}
"""
SEALED = """
gb10_cluster:
  vars:
    peer_firewall_open_ports: [8188]
    gb10_secret_env:
      HF_TOKEN: !vault |
        $ANSIBLE_VAULT;1.1;AES256
        3331
"""


@pytest.mark.slow
def test_no_address_with_a_password_is_planned_or_shown(recorded: Path) -> None:
    """Variables of all roles, whose values become arguments, environments and facts."""
    url = f"https://anna:{SECRET}@host/vllm.git"
    given = {
        "vllm_runtime_index_url": f"anna:{SECRET}@host/simple",
        "gateway_index_url": url,
        "vllm_build_enabled": "true",
        "vllm_build_source": url,
        "nccl_sm121_build_source": url,
        "vllm_build_environment": {"SCCACHE_ENDPOINT": url},
        "ray_cluster_args": [f"--address={url}"],
        "vllm_runtime_image_build_args": ["--build-arg", f"https_proxy={url}"],
        "gb10_recipe_images": {"a": url},
        "gb10_nvidia_recipes": f"{url}@{'0' * 40}",
    }
    done = planned(recorded, "-vvv", **given)
    shown = done.output.replace(json.dumps(given)[1:-1], "")
    words = "an address with a user or a password. Expected: an address without user and password"
    without = [name for name in given if name != "vllm_build_enabled" and f"{name}: {words}" not in shown]
    assert without == [], shown
    assert SECRET not in "\n".join(line for line in shown.splitlines() if "--extra-vars" not in line)


@pytest.mark.slow
def test_all_mistakes_are_one_report_of_all_nodes_without_a_connection(tmp_path: Path) -> None:
    """Also an option that would have kept the run from connecting, and values that Ansible cannot evaluate."""
    for name, text in (("hosts.yml", FOUR), ("more.yml", SEALED)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = run("playbooks/plan.yml", ["-i", str(tmp_path / "hosts.yml"), "-i", str(tmp_path / "more.yml")])
    assert done.status != 0
    shown = re.sub(r"\s+", " ", done.output.partition("FAILED ***")[2])
    for text in (
        "s1, s2, s3, s4: gb10.cluster.gb10 : Stop on planning errors",
        "gb10_plan_offline: 'typicl'. Expected: one of false, true, typical",
        "gb10_model: it cannot be evaluated: 'my_model' is undefined",
        "gb10_secret_env: it cannot be evaluated. Expected: a value that Ansible can decrypt (--ask-vault-pass)",
        "nodes[3].ansible_host: 192.0.2.1, the address of s1",
        "gb10_fabric_topology: direct with 4 nodes",
        "peer_firewall_open_ports[0]: '8188'",
    ):
        assert text in shown, shown
    assert "cannot be read" not in shown and "has no attribute" not in shown, shown
