"""The module cluster_verify_info on a machine without a cluster, and its readers of files."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from email.message import Message
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from urllib.error import HTTPError

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from decisions import decide
from run_module import program, run_module
from verified_nodes import cluster, findings, pair

from ansible_collections.gb10.cluster.plugins.action import cluster_verify_info, step
from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_status
from ansible_collections.gb10.cluster.plugins.module_utils.health.io_client import Server
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_ray
from ansible_collections.gb10.cluster.plugins.module_utils.verify import io_facts, report
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, VerifiedNode, groups
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision

LINKS = [
    {
        "ifname": "lo",
        "mtu": 65536,
        "flags": ["UP", "LOWER_UP"],
        "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}],
    }
]
#: systemctl's answer for a unit that does not exist.
MISSING = """LoadState=not-found
UnitFileState=
ActiveState=inactive
SubState=dead
Result=success
MainPID=0
NRestarts=0
InvocationID=
Job=0
ExecMainStatus=0
Environment=
ExecStopPost=
ExecMainStartTimestampMonotonic=0"""


@pytest.mark.parametrize("check", [False, True], ids=["run", "check mode"])
def test_a_machine_without_a_cluster(tmp_path: Path, check: bool) -> None:
    program(tmp_path, "ip", f"echo '{json.dumps(LINKS)}'")
    program(tmp_path, "systemctl", f"cat <<'X'\n{MISSING}\nX")
    program(tmp_path, "journalctl", "true")
    # The real one simulates an upgrade of this machine, for up to 30 s.
    program(tmp_path, "apt-get", "true")
    program(tmp_path, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    program(tmp_path, "nft", """case "$*" in *table*) exit 1;; *) echo '{"nftables": []}';; esac""")
    for name in ("ufw", "firewall-cmd", "systemd-analyze", "iptables-legacy", "ip6tables-legacy"):
        program(tmp_path, name, "exit 1")
    started = time.time()
    answer = run_module("cluster_verify_info", {"install_dir": str(tmp_path), "salt": "x"}, tmp_path, check)
    assert (answer["changed"], answer["unread"]) == (False, {})
    assert started <= answer["clock"] <= time.time()
    assert answer.keys() - {"changed", "invocation"} == pair()[0]["facts"].keys()
    assert answer["gpu"]["reason"] == "nvidia-smi failed with status 9: NVIDIA-SMI has failed"
    # A lab's ranks may run on this machine.
    assert [answer[part] for part in ("files", "nccl_installed", "api", "ray", "remove_ipc")] == [None] * 5
    assert (answer["interfaces"].keys(), answer["firewalls"]) == ({"lo"}, [])
    node = of_facts({**answer, "ranks": [], "environments": {}}, started)
    # The disks and processes are those of the machine that runs the tests.
    machine = {"disk-low", "disk-full", "process-memory", "memory-held", "memory-exhausted", "gpu-unavailable"}
    assert findings([node]).keys() <= machine | {"temperature-high"}
    assert report.report(cluster([node]), ["fabric"], "error", {})["failed"] is False


def of_facts(facts: dict[str, Any], started: float = 0.0) -> dict[str, Any]:
    """Return a node that was read."""
    times = {"started": started, "finished": time.time() if started else 0}
    return {"name": "x", "head": False, "unreachable": "", "facts": facts, **times}


@pytest.mark.parametrize(
    "error", [AnsibleError("Missing sudo password"), AnsibleConnectionFailure("Missing sudo password")]
)
def test_a_node_that_refuses_stays_in_the_play(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    action = cluster_verify_info.ActionModule(*[MagicMock()] * 6)
    monkeypatch.setattr(action, "_execute_module", MagicMock(side_effect=error))
    assert action.read("gb10.cluster.cluster_verify_info", {}, {}) == ({}, "Missing sudo password")


class Asking(Decision):
    """Runs a module, and returns a value of its own."""

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return nothing of the module's result."""
        self.module({}, variables, "ansible.builtin.ping")
        return {"changed": False}


@pytest.mark.parametrize("trusted", [True, False])
def test_the_next_task_knows_the_interpreter_and_no_other_fact(monkeypatch: pytest.MonkeyPatch, trusted: bool) -> None:
    action = Asking(MagicMock(args={}, async_val=0, check_mode=False), *[MagicMock()] * 5)
    discovered = {"discovered_interpreter_python": "/usr/bin/python3.11"}
    facts = {"ansible_facts": {**discovered, "gb10_plan": {}}}
    monkeypatch.setattr(action, "_execute_module", MagicMock(return_value=facts))
    monkeypatch.setattr(Asking, "trusted", trusted)
    assert action.run(None, {}) == {"changed": False, **({"ansible_facts": discovered} if trusted else {})}


def test_a_node_without_results_is_unreachable() -> None:
    healthy = pair()[0]
    read = {"spark1": {"node": healthy}, "spark2": {"changed": False}}
    probed = {"spark1": {"paths": [1], "probe": [2]}, "spark2": {"skipped": True}}
    first, second = report.cluster(read, probed, 7.0).nodes
    assert first == VerifiedNode(**{**healthy, "paths": [1], "probe": [2]})
    assert (second.name, second.facts, second.started) == ("spark2", {}, 7.0)
    assert second.unreachable.startswith("it was not read")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"checks": [1], "unverified": [2]}, {"changed": False, "paths": [2], "probe": [1]}),
        (AnsibleConnectionFailure("lost"), {"changed": False, "paths": [], "probe": []}),
        (
            {"failed": True, "msg": "no such file"},
            {"failed": True, "msg": "no such file", "paths": [], "probe": []},
        ),
    ],
    ids=["probed", "lost since it was read", "failed"],
)
def test_the_slow_checks_of_a_node(monkeypatch: pytest.MonkeyPatch, answer: Any, expected: dict[str, Any]) -> None:
    nodes = {node["name"]: {"node": node} for node in pair()}
    inputs = {"nodes": list(nodes), "gpu": True, "timeout": 2}
    task = MagicMock(async_val=0, check_mode=False, args={"name": "cluster_verify_probe", "inputs": inputs})
    action = step.ActionModule(task, *[MagicMock()] * 5)
    called = MagicMock(side_effect=answer if isinstance(answer, Exception) else None, return_value=answer)
    monkeypatch.setattr(action, "_execute_module", called)
    variables = {
        "inventory_hostname": "spark1",
        "hostvars": {name: {"verify_node": node} for name, node in nodes.items()},
        "ansible_run_tags": ["all"],
        "ansible_skip_tags": [],
    }
    assert action.run(None, variables) == expected
    names = [call.kwargs["module_args"]["name"] for call in called.call_args_list]
    assert names == ["vllm_gpu_probe", "fabric_probe"]
    assert called.call_args.kwargs["module_args"]["inputs"] == {
        **report.rails(cluster(pair()), "spark1"),
        "timeout": 2,
        "required": False,
    }
    called.reset_mock()
    assert action.run(None, {**variables, "ansible_skip_tags": ["fabric", "runtime"]})["paths"] == []
    assert not called.called


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"fail_on": "error"}, "The worst finding is of severity error"),
        ({"fail_on": "never"}, ""),
        ({"fail_on": "error", "waivers": {"node-unreachable": "it is being repaired"}}, ""),
    ],
)
def test_a_report_fails_for_a_finding_that_counts(inputs: dict[str, Any], problem: str) -> None:
    hosts = {"spark1": {"verify_node": {"node": pair()[0]}}, "spark2": {}}
    tags = {"ansible_run_tags": ["all"], "ansible_skip_tags": []}
    given = {"nodes": list(hosts), "groups": ["serving"], **inputs}
    found = decide("cluster_verify_report", given, {}, hosts, variables=tags)[0]
    assert found["problem"].startswith(problem) and bool(found["problem"]) is bool(problem)
    lines = "".join(found["json_lines"])
    assert "node-unreachable" in lines and '"groups": ["serving"]' in lines


@pytest.mark.parametrize(
    ("tags", "skipped", "expected"),
    [
        (["all"], [], list(GROUPS)),
        (["nccl", "x", "fabric"], [], ["fabric", "nccl"]),
        (["all"], ["fabric", "nccl"], ["hardware", "runtime", "serving", "security"]),
    ],
)
def test_the_tags_of_a_run_select_groups(tags: list[str], skipped: list[str], expected: list[str]) -> None:
    assert groups(tags, skipped) == expected


def test_parts_that_cannot_be_read_have_a_reason(tmp_path: Path) -> None:
    program(tmp_path, "ip", "echo broken >&2; exit 1")
    program(tmp_path, "systemctl", "echo 'Host is down' >&2; exit 1")
    answer = run_module("cluster_verify_info", {"install_dir": str(tmp_path), "quick": True}, tmp_path)
    assert answer["unread"]["interfaces"] == "ip -json address show failed: broken"
    assert "Host is down" in answer["unread"]["status"]
    assert "x: interfaces: ip -json address show failed: broken" in findings([of_facts(answer)])["facts-unread"]


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_changed_patched_and_missing_files(tmp_path: Path) -> None:
    assert io_facts._files(str(tmp_path)) is None, "a package without a record"
    shipped, record = (
        ("shipped", "edited", "patched", "edited_later", "gone", "pipe"),
        tmp_path / "vllm-0.32.0.dist-info",
    )
    record.mkdir()
    encoded = {name: base64.urlsafe_b64encode(digest(name)).decode().rstrip("=") for name in shipped}
    rows = "".join(f"vllm/{name}.py,sha256={sha256},1\n" for name, sha256 in encoded.items())
    (record / "RECORD").write_text(rows, encoding="utf-8")
    package = tmp_path / "vllm"
    (package / "pipe.py").mkdir(parents=True)
    for name, text in (("shipped", "shipped"), ("edited", "x"), ("patched", "p"), ("edited_later", "q")):
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    for name in ("patched", "edited_later"):
        written = f"{'0' * 64}  {name}.py.gb10-original\n{digest('p').hex()}  {name}.py\n"
        (package / f"{name}.py.gb10-sha256").write_text(written, encoding="utf-8")
    assert io_facts._files(str(tmp_path)) == {
        "changed": ["vllm/edited.py", "vllm/edited_later.py", "vllm/pipe.py"],
        "patched": {"vllm/patched.py": digest("p").hex()},
        "missing": ["vllm/gone.py"],
    }


@pytest.mark.parametrize(
    ("answer", "is_open"),
    [
        (nullcontext(MagicMock(status=200)), True),
        (nullcontext(MagicMock(status=204)), False),
        (HTTPError("", 401, "", Message(), BytesIO()), False),
        (HTTPError("", 403, "", Message(), BytesIO()), False),
        (HTTPError("", 500, "", Message(), BytesIO()), None),
        (ConnectionRefusedError(), None),
    ],
)
def test_an_api_without_a_key(monkeypatch: pytest.MonkeyPatch, answer: Any, is_open: bool | None) -> None:
    asked = MagicMock(side_effect=[answer])
    monkeypatch.setattr(Server, "open", asked)
    assert io_facts._open(Server("http://127.0.0.1:8000")) is is_open
    asked.assert_called_once_with("/v1/models", 5)


def test_a_certificate_that_cannot_be_read_has_no_end() -> None:
    assert io_facts._expires(Server("https://127.0.0.1:1", "/no/such/ca.crt")) is None


def test_a_file_system_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (found,) = io_facts._disks([str(tmp_path / "none"), str(tmp_path), str(tmp_path / "below")])
    assert (found["path"], 0 <= found["free"] <= found["total"]) == (str(tmp_path), True)
    assert 0 <= found["files_free"] <= 1


@pytest.mark.parametrize(("is_open", "token"), [(False, True), (True, True), (True, False)])
def test_rays_nodes_are_read_with_its_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_open: bool, token: bool
) -> None:
    if token:
        (tmp_path / "token").touch()
    monkeypatch.setattr(paths, "RAY_TOKEN", str(tmp_path / "token"))
    refused = io_ray.OpenRayError("accepted") if is_open else None
    monkeypatch.setattr(io_ray, "require_token", MagicMock(side_effect=refused))
    rows = [{"node_ip": "10.110.0.1", "state": "ALIVE"}, {"node_ip": "10.110.0.2", "state": "DEAD"}]
    monkeypatch.setattr(io_ray, "listing", MagicMock(return_value=rows))
    nodes = [{"address": "10.110.0.1", "alive": True}, {"address": "10.110.0.2", "alive": False}]
    assert io_facts._ray() == {"nodes": nodes if token else None, "open": is_open}


def test_the_variables_of_a_parent_replace_those_of_a_changed_title() -> None:
    child = "import time; print(1, flush=True); time.sleep(60)"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], env={{'TITLE': 'overwritten'}})"
    )
    environment = {"PATH": os.environ["PATH"], "NCCL_DEBUG": "WARN", "SECRET": "x"}
    with subprocess.Popen([sys.executable, "-c", parent], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (pid,) = (int(entry) for entry in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        found = io_facts._environments([], [pid], "key")
        subprocess.run(["kill", str(pid)], check=True)
    ranks = found["ranks"]
    assert (ranks["NCCL_DEBUG"], ranks["SECRET"][:5], "TITLE" in ranks) == ("WARN", "hmac:", False)
    assert io_facts._of_parents(2**22 + 1) == {}


@pytest.mark.parametrize(
    ("host", "tls", "head", "found"),
    [
        ("0.0.0.0", "True", True, ("https://127.0.0.1:8000", "10.0.0.5", "https://10.0.0.5:8000/v1")),
        ("127.0.0.1", "False", True, ("http://127.0.0.1:8000", "", "http://127.0.0.1:8000/v1")),
        ("0.0.0.0", False, False, ("", "", "http://10.0.0.5:8000/v1")),
    ],
)
def test_only_a_head_queries_its_api(host: str, tls: bool | str, head: bool, found: tuple[str, str, str]) -> None:
    given = cluster_verify_info.of_api({"host": host, "port": "8000", "name": "", "tls": tls}, head, "10.0.0.5")
    assert (given["url"], given["server_name"], given["endpoint"]) == found


def test_a_process_with_the_name_of_a_rank_is_listed_and_no_rank() -> None:
    """Otherwise its user could choose files that root reads."""
    script = "open('/proc/self/comm', 'w').write('VLLM::Worker_TP'); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ranks = [rank["pid"] for rank in io_status._ranks(True)]
        listed = [each["pid"] for each in io_facts._processes(ranks)]
        process.kill()
    assert process.pid not in ranks and process.pid in listed
