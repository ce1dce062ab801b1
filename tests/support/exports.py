"""Plans for an export, and a kubelet that resolves what a pod runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cluster_nodes import Node, cluster_plan, spark
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.action import lws_export
from ansible_collections.gb10.cluster.plugins.module_utils.export import checks, schema
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv

IMAGE = "vllm/vllm-openai@sha256:" + "1" * 64
NVIDIA_IMAGE = "nvcr.io/nvidia/vllm@sha256:" + "2" * 64
OWNER = "995:994"
INPUTS = {"gb10_runtime": "container", "gb10_container_image": IMAGE, "gb10_distributed_executor_backend": "mp"}
#: Values that Kubernetes would replace.
ODD = {
    "gb10_extra_env": {"ODD": "$(HOME) $$ ${HOME} $x", "LANG": "C.UTF-8"},
    "gb10_vllm_extra_args": ["--hf-overrides", '{"a": "$(VLLM_HOST_IP) $$(b) \\\\ \' 日"}'],
}
SETTINGS = {
    "name": "gb10-vllm",
    "namespace": "",
    "nodes": {},
    "runtime_class": "nvidia",
    "rdma_resource": "",
    "entrypoint": "auto",
    "start_seconds": 2400,
}
_SWITCH = {"gb10_fabric_topology": "switch"}
_TLS = {"problems": [], "warnings": [], "digest": "d", "until": "2027-01-01"}


def nodes(count: int, **inputs: Any) -> list[Node]:
    """Return Sparks that site.yml has set up."""
    found = [
        spark(number, "worker" if number > 1 else "head", **{**INPUTS, **inputs}) for number in range(1, count + 1)
    ]
    for node in found:
        node["observed"]["state"] = {"service_user": OWNER, "service_user_ready": True}
    return found


def planned(given: list[Node]) -> dict[str, Any]:
    plan, problems = cluster_plan(given)
    assert problems == [], problems
    return plan


def _of_catalog() -> list[Node]:
    """A pair without the model's files. The catalog has its sizes, and so the plan has the bytes of the KV cache."""
    given = nodes(2, gb10_model="gpt-oss-120b")
    for node in given:
        node["observed"]["model"] = None
    return given


def _with_secrets(count: int, **inputs: Any) -> list[Node]:
    given = nodes(count, gb10_api_name="spark.example.com", **inputs)
    given[0]["tls"] = _TLS
    for node in given:
        node["secrets"] = {"names": ["HF_TOKEN"], "problems": []}
    return given


def _with_overrides() -> list[Node]:
    given = nodes(2)
    for node in given:
        mount = {"source": "/opt/gb10/nccl/x", "target": "/opt/gb10/nccl/y", "read_only": True}
        library = {
            "environment": {"LD_PRELOAD": "/opt/gb10/nccl/y/libnccl.so.2"},
            "flags": [],
            "files": {},
            "mounts": [mount],
        }
        image = {"environment": {}, "flags": [], "files": {IMAGE: "9" * 64}, "mounts": []}
        node["observed"]["additions"] = {
            "nccl_sm121_build": {**library, "runtime": IMAGE},
            "vllm_runtime": {**image, "runtime": IMAGE},
        }
    return given


#: Plans by name.
PLANS: Mapping[str, dict[str, Any]] = {
    "pair": planned(nodes(2)),
    "catalog": planned(_of_catalog()),
    "odd values": planned(nodes(2, **ODD)),
    "no key": planned(nodes(2, gb10_api_key_enabled=False, gb10_api_host="127.0.0.1")),
    "tls": planned(_with_secrets(2)),
    "one": planned(nodes(1)),
    "four": planned(nodes(4, **_SWITCH)),
    "four with secrets": planned(_with_secrets(4, **_SWITCH, **ODD)),
    "four at different ports": planned(
        [*nodes(3, **_SWITCH, gb10_fabric_ports=[1]), nodes(4, **_SWITCH, gb10_fabric_ports=[0])[3]]
    ),
    "pipeline": planned(nodes(4, **_SWITCH, gb10_tensor_parallel_size=2, gb10_pipeline_parallel_size=2)),
    "replicas": planned(nodes(4, **_SWITCH, gb10_tensor_parallel_size=1, gb10_data_parallel_size=4)),
    "image of NVIDIA": planned(nodes(2, gb10_container_image=NVIDIA_IMAGE)),
    "four with an image of NVIDIA": planned(nodes(4, **_SWITCH, gb10_container_image=NVIDIA_IMAGE)),
    "overrides": planned(_with_overrides()),
    "sockets": planned(nodes(2, gb10_fabric_transport="socket")),
}


def settings(**changes: Any) -> schema.ExportSettings:
    return schema.ExportSettings(**{**SETTINGS, **changes})


def exported(plan: Mapping[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """Return the objects of a plan as a reader of its YAML gets them."""
    assert checks.problems(typed(plan), settings(**changes)) == []
    return list(yaml.safe_load_all(lws_export.exported(typed(plan), settings(**changes))[0]))


def of_kind(objects: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (each for each in objects if each["kind"] == kind)
    return dict(found)


def templates(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the pod template of each node's name that its affinity names."""
    group = of_kind(objects, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    found = {}
    for name in ("leaderTemplate", "workerTemplate"):
        if name in group:
            terms = group[name]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ]
            found |= dict.fromkeys(terms[0]["matchExpressions"][0]["values"], group[name])
    return found


def rank(template: Mapping[str, Any]) -> dict[str, Any]:
    (found,) = template["spec"]["containers"]
    return dict(found)


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) as Kubernetes does. $$ is an escaped $, and an unknown name stays."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replaced, text)


def variables(container: Mapping[str, Any], node: str) -> dict[str, str]:
    """Return the environment of a container on a node. A secret's value is "NAME of SECRET"."""
    found: dict[str, str] = {}
    for entry in container["env"]:
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"] == {"fieldPath": "spec.nodeName"}
            found[entry["name"]] = node
        elif "secretKeyRef" in source:
            found[entry["name"]] = f"{source['secretKeyRef']['key']} of {source['secretKeyRef']['name']}"
        else:
            found[entry["name"]] = expanded(entry["value"], found)
    return found


def started(objects: Sequence[Mapping[str, Any]], node: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Run the container of a node's rank with a vllm that reports its argv and environment; return both."""
    container = rank(templates(objects)[node])
    for name, text in of_kind(objects, "ConfigMap")["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "vllm").write_text(f"#!{sys.executable} -I\n{_REPORT}", encoding="utf-8")
    (folder / "vllm").chmod(0o755)
    given = variables(container, node)
    words = [expanded(word, given) for word in [*container.get("command", []), *container["args"]]]
    words = [word.replace(f"{schema.FOLDER}/", f"{folder}/") for word in words]
    given["PATH"] = f"{folder}:{Path(sys.executable).parent}"
    done = subprocess.run(words, env=given, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    # Python sets the locale of its children.
    return answer["argv"], {
        name: value for name, value in answer["environment"].items() if name not in ("PATH", "LC_CTYPE")
    }


_REPORT = """import json, os, sys
print(json.dumps({"argv": ["vllm", *sys.argv[1:]], "environment": dict(os.environ)}))
"""


@dataclass(frozen=True)
class Unit:
    """The container of a node's unit, from the argv of its engine."""

    words: Sequence[str]

    @property
    def argv(self) -> list[str]:
        if NVIDIA_IMAGE in self.words:
            # Its own entry point starts the program.
            return [*self.words[self.words.index(NVIDIA_IMAGE) + 1 :]]
        (index,) = (number for number, word in enumerate(self.words) if word.startswith("--entrypoint="))
        return [self.words[index].partition("=")[2], *self.words[index + 2 :]]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables, where ``given`` are those of the file that the gates write. Those of arguments win."""
        assert self.value("--env-file") == "/run/gb10-vllm/ranks.env"
        pairs = (word.removeprefix("--env=").partition("=") for word in self.words if word.startswith("--env="))
        return {**given, **{name: value for name, equals, value in pairs if equals}}

    @property
    def mounts(self) -> dict[str, tuple[str, bool]]:
        """Return the source of each target, and whether it is read-only."""
        found = {}
        for word in self.words:
            if word.startswith("--mount="):
                entries = dict(each.partition("=")[::2] for each in word.removeprefix("--mount=").split(","))
                found[entries["target"]] = (entries["source"], "readonly" in entries)
        return found

    def value(self, option: str) -> str:
        (found,) = (word.partition("=")[2] for word in self.words if word.startswith(f"{option}="))
        return found


def unit(plan: Mapping[str, Any], node: Mapping[str, Any]) -> Unit:
    """Return the container that gb10-vllm.service runs on a node: the end of its ExecStart."""
    words = launch_argv.start_argv(typed({**plan, "node": node}), OWNER)
    return Unit(words[words.index(plan["runtime"]["engine"]) :])
