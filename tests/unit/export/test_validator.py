"""Published validators accept each export.

kubernetes-validate has the schemas of Kubernetes. It has none of LeaderWorkerSet, so its pod templates are validated as
PodTemplates, and its own fields against the fields of the published reference. With GB10_LWS_CRD, the file of the
project's CustomResourceDefinition, the whole object is validated against that too.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from exports import PLANS, exported, of_kind

#: The oldest release with all features that LeaderWorkerSet 0.9 needs, and the newest one that the validator knows.
RELEASES = ("1.29", kubernetes_validate.latest_version())
CRD = os.environ.get("GB10_LWS_CRD", "")
#: Fields that an export may use, with their values. Source: lws.sigs.k8s.io, reference of leaderworkerset.x-k8s.io/v1.
SPEC = {"replicas": int, "startupPolicy": ("LeaderCreated", "LeaderReady"), "leaderWorkerTemplate": dict}
GROUP = {
    "size": int,
    "restartPolicy": ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"),
    "leaderTemplate": dict,
    "workerTemplate": dict,
}
#: Exports with other settings.
SETTINGS: dict[str, dict[str, Any]] = {
    "pair": {"namespace": "llm", "rdma_resource": "rdma/hca", "nodes": {"spark1": "dgx-1.lab"}},
    "four with secrets": {"entrypoint": "keep", "runtime_class": ""},
}
#: Plans that together have all objects and fields.
FEW = ("tls", "four with secrets")
CASES = [*((name, {}) for name in PLANS), *SETTINGS.items()]


def validate(document: dict[str, Any], release: str) -> None:
    kubernetes_validate.validate(document, release, strict=True)


def pod_templates(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pod templates of a LeaderWorkerSet as documents that the validator knows."""
    templates = group["spec"]["leaderWorkerTemplate"]
    found = [templates[name] for name in ("leaderTemplate", "workerTemplate") if name in templates]
    return [{"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": each} for each in found]


@pytest.mark.parametrize(
    ("name", "settings", "release"),
    [*((*case, RELEASES[1]) for case in CASES), *((name, {}, RELEASES[0]) for name in FEW)],
)
def test_kubernetes_accepts_each_object(name: str, settings: dict[str, Any], release: str) -> None:
    objects = exported(PLANS[name], **settings)
    for document in (
        *(each for each in objects if each["kind"] != "LeaderWorkerSet"),
        *pod_templates(of_kind(objects, "LeaderWorkerSet")),
    ):
        validate(document, release)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("containers", 0, "args"), "serve"),
        (("containers", 0, "argz"), []),
        (("containers", 0, "env", 0, "value"), 1),
        (("containers", 0, "startupProbe", "exec"), ["python3"]),
        (("volumes", 0, "configMap", "named"), "x"),
        (("hostNetwork",), "yes"),
    ],
)
def test_the_validator_refuses_errors(path: tuple[Any, ...], value: Any) -> None:
    template, *_others = pod_templates(copy.deepcopy(of_kind(exported(PLANS["pair"]), "LeaderWorkerSet")))
    validate(template, RELEASES[0])
    place = template["template"]["spec"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(template, RELEASES[0])


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_leader_worker_set_has_only_published_fields(name: str, settings: dict[str, Any]) -> None:
    found = of_kind(exported(PLANS[name], **settings), "LeaderWorkerSet")
    assert (found["apiVersion"], sorted(found)) == (
        "leaderworkerset.x-k8s.io/v1",
        ["apiVersion", "kind", "metadata", "spec"],
    )
    for fields, given in ((SPEC, found["spec"]), (GROUP, found["spec"]["leaderWorkerTemplate"])):
        for key, value in given.items():
            allowed = fields[key]
            assert value in allowed if isinstance(allowed, tuple) else isinstance(value, allowed), key


def schema_of_crd() -> dict[str, Any]:
    """Return the schema of version v1 in the CustomResourceDefinition, which refuses unknown fields."""
    definition = yaml.safe_load(Path(CRD).read_text(encoding="utf-8"))
    (found,) = (each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"] if each["name"] == "v1")

    def closed(part: Any) -> Any:
        if isinstance(part, list):
            return [closed(each) for each in part]
        if not isinstance(part, dict):
            return part
        # An integer or a string in one field: OpenAPI's form of IntOrString.
        whole = {key: closed(value) for key, value in part.items()}
        return (
            {"additionalProperties": False, **whole}
            if isinstance(part.get("properties"), dict) and part.get("type") == "object"
            else whole
        )

    answer: dict[str, Any] = closed(found)
    # Kubernetes defines these.
    answer["properties"]["metadata"] = {"type": "object"}
    for template in ("leaderTemplate", "workerTemplate"):
        answer["properties"]["spec"]["properties"]["leaderWorkerTemplate"]["properties"][template]["properties"][
            "metadata"
        ] = {"type": "object"}
    return answer


@pytest.mark.skipif(not CRD, reason="GB10_LWS_CRD is not set: the file of LeaderWorkerSet's CustomResourceDefinition")
@pytest.mark.parametrize("name", FEW)
def test_the_custom_resource_definition_accepts_an_export(name: str) -> None:
    schema, found = schema_of_crd(), of_kind(exported(PLANS[name]), "LeaderWorkerSet")
    jsonschema.validate(found, schema)
    found["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["hostNetworks"] = True
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema)
