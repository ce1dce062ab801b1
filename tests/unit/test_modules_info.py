"""The modules that only read, run as a node runs them, with programs in PATH that answer as a Spark's would."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from modules import program, run_module

QUERY = "NVIDIA GB10, 12.1, 580.142, [N/A], GPU-1"
SMI = f'case "$*" in --query-gpu=name,compute_cap,*) echo "{QUERY}";; "") echo "| CUDA Version: 13.0 |";; *) exit 2;; esac'


@pytest.mark.parametrize("check", [False, True], ids=["run", "check mode"])
def test_gpu_info(tmp_path: Path, check: bool) -> None:
    answer = run_module("gpu_info", {}, program(tmp_path, "nvidia-smi", SMI), check)
    (gpu,) = answer["gpus"]
    assert (gpu["sm"], answer["cuda_version"], answer["driver_version"], answer["unified_memory"]) == ("sm_121", "13.0", "580.142", True)
    assert (answer["changed"], answer["reason"]) == (False, "")
    assert answer["memory_bytes"] > 2**20


def test_gpu_info_without_a_driver(tmp_path: Path) -> None:
    answer = run_module("gpu_info", {}, program(tmp_path, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9"))
    assert (answer["gpus"], answer["reason"]) == ([], "nvidia-smi failed with status 9: NVIDIA-SMI has failed")


def test_node_info_answers_all_in_one(tmp_path: Path) -> None:
    links = [{"ifname": "lo", "mtu": 65536, "flags": ["UP", "LOWER_UP"], "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]}]
    program(tmp_path, "nvidia-smi", SMI)
    program(tmp_path, "ip", f"echo '{json.dumps(links)}'")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    answer = run_module("node_info", {"model": str(tmp_path)}, tmp_path)
    assert answer["gpu"]["gpus"][0]["capability"] == "12.1"
    fabric = run_module("fabric_info", {}, tmp_path)
    assert fabric["interfaces"]["lo"]["addresses"] == ["127.0.0.1/8"]
    assert {key: answer[key] for key in ("interfaces", "rdma", "netplan", "unreadable")} == {
        key: value for key, value in fabric.items() if key not in ("changed", "invocation")
    }
    assert answer["model"] == {"model_type": "llama"}
    assert (answer["model_bytes"], answer["model_reason"]) == (None, "")
    assert answer["kernel"] == os.uname().release
    assert {"cma_total_bytes", "cma_free_bytes"} <= answer.keys()
    assert run_module("node_info", {"model": str(tmp_path / "none")}, tmp_path)["model"] is None
    assert run_module("node_info", {}, tmp_path)["model_bytes"] is None


def test_node_info_counts_the_weights(tmp_path: Path) -> None:
    program(tmp_path, "ip", "echo '[]'")
    model = tmp_path / "a[1]"
    model.mkdir()
    for name, size in (("model-1.safetensors", 600), ("model-2.safetensors", 400), ("consolidated.safetensors", 1000)):
        (model / name).write_bytes(bytes(size))
    assert run_module("node_info", {"model": str(model)}, tmp_path)["model_bytes"] == 1000
    index = {"metadata": {"total_size": 995}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    answer = run_module("node_info", {"model": str(model)}, tmp_path)
    assert (answer["model_bytes"], answer["model_reason"]) == (995, "")
    (model / "model-2.safetensors").unlink()
    answer = run_module("node_info", {"model": str(model)}, tmp_path)
    assert (answer["model_bytes"], answer["model_reason"]) == (995, "1 of 2 files of the index are missing: model-2.safetensors")


@pytest.mark.parametrize(("text", "said"), [("{", "is not JSON: "), ("[]", "is no JSON object")])
def test_node_info_names_a_file_that_is_no_model_configuration(tmp_path: Path, text: str, said: str) -> None:
    program(tmp_path, "ip", "echo '[]'")
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert f"{tmp_path}/config.json {said}" in run_module("node_info", {"model": str(tmp_path)}, tmp_path)["msg"]


def test_node_info_sees_who_listens(tmp_path: Path) -> None:
    program(tmp_path, "ip", "echo '[]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        answer = run_module("node_info", {}, tmp_path)
    (found,) = [entry for entry in answer["listeners"] if entry["port"] == port]
    assert (found["address"], found["pid"] is not None) == ("127.0.0.1", True)
    assert found["process"]


def test_node_info_says_why_it_fails(tmp_path: Path) -> None:
    answer = run_module("node_info", {}, program(tmp_path, "ip", "echo 'Object \"address\" is unknown' >&2; exit 1"))
    assert answer["msg"] == 'ip -json address show failed: Object "address" is unknown'


SHOWN = """LoadState=loaded
UnitFileState=enabled
ActiveState=activating
SubState=auto-restart
Result=exit-code
MainPID=0
NRestarts=3
InvocationID=0f3c
ExecMainStatus=1
Environment=GB10_INPUTS=abc
ExecMainStartTimestampMonotonic=10000000"""
LOG = [
    (10.5, "(APIServer pid=7) INFO 11-21 00:12:38 [model.py:1] Resolved architecture: LlamaForCausalLM"),
    (11.0, "OSError: [Errno 98] Address already in use"),
]


def systemd(folder: Path, shown: str = SHOWN) -> Path:
    entries = "\n".join(json.dumps({"__MONOTONIC_TIMESTAMP": str(int(when * 1e6)), "MESSAGE": text}) for when, text in LOG)
    (folder / "entries").write_text(entries, encoding="utf-8")
    (folder / "shown").write_text(shown, encoding="utf-8")
    program(folder, "systemctl", f"cat {folder}/shown")
    return program(folder, "journalctl", f'echo "$*" > {folder}/asked; cat {folder}/entries')


def test_service_info(tmp_path: Path) -> None:
    service = run_module("service_info", {"name": "gb10-vllm.service"}, systemd(tmp_path))["service"]
    assert (service["active"], service["pid"], service["restarts"], service["inputs"]) == ("activating", None, 3, "abc")


def test_service_info_takes_no_inputs_from_a_service_that_does_not_run(tmp_path: Path) -> None:
    stopped = SHOWN.replace("ActiveState=activating", "ActiveState=failed")
    assert run_module("service_info", {"name": "gb10-vllm.service"}, systemd(tmp_path, stopped))["service"]["inputs"] == ""


def test_vllm_info_of_a_failed_start(tmp_path: Path) -> None:
    answer = run_module("vllm_info", {"url": "http://127.0.0.1:1", "model": "tiny"}, systemd(tmp_path))
    assert (answer["healthy"], answer["answers"], answer["ready_after"]) == (False, None, None)
    assert (answer["progress"], answer["cause"]) == ("architecture LlamaForCausalLM", "OSError: [Errno 98] Address already in use")
    assert "INVOCATION_ID=0f3c" in (tmp_path / "asked").read_text(encoding="utf-8")


def test_vllm_info_reads_an_earlier_start(tmp_path: Path) -> None:
    run_module("vllm_info", {"url": "http://127.0.0.1:1", "invocation": "aaaa"}, systemd(tmp_path))
    asked = (tmp_path / "asked").read_text(encoding="utf-8")
    assert "INVOCATION_ID=aaaa" in asked and "0f3c" not in asked


def test_ray_info_names_what_it_could_not_do(tmp_path: Path) -> None:
    answer = run_module("ray_info", {"token_path": str(tmp_path / "none"), "expect": {"spark1": "10.110.0.1"}})
    assert answer["msg"].startswith("Ray is not complete: after 0 s: ")
    assert str(tmp_path / "none") in answer["msg"]
