"""The checks of the gateway's inputs: each problem with its place, all at once, and no secret in a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from certificates import authority
from typed_plans import typed

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import checks, plan, report
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import ModelState, Planned, State
from ansible_collections.gb10.cluster.plugins.plugin_utils import gateway

CA = authority()
MODELS = [
    {"name": "org/big", "url": "https://10.0.0.5:8000/v1", "cluster": "north", "ca": CA.text, "context": 4096},
    {"name": "small", "url": "http://10.0.0.6:8000/v1", "cluster": "south"},
]
SETTINGS: dict[str, Any] = {"host": "127.0.0.1", "port": 4000, "name": "", "allow_plain_http": False}
SETTINGS |= {"fallbacks": {}, "silence_timeout": 600, "health_interval": 15, "origins": [], "wake_timeout": 900}
KEY = "secret-key-0123456789"
PLAIN = {"certificate": "", "key": ""}
FOUND = State("", [ModelState("south/small", "small", "south", "generate", True, "", 9)], [], {})


def planned(models: Any = None, keys: Any = None, tls: Any = None, **settings: Any) -> Planned:
    given, keys = SETTINGS | settings, {"north": KEY} if keys is None else keys
    entries = plan.models_of(MODELS if models is None else models)
    result = gateway.planned(entries, given, keys, tls or PLAIN, given["name"] or "10.0.0.9")
    assert KEY not in str(result)
    return result


def refused(*arguments: Any, **settings: Any) -> str:
    """Return all problems of inputs like those of planned()."""
    with pytest.raises(ProblemsError) as error:
        planned(*arguments, **settings)
    assert KEY not in str(error.value)
    return str(error.value)


def changed(index: int, **values: Any) -> list[dict[str, Any]]:
    return [model | values if number == index else model for number, model in enumerate(MODELS)]


def test_good_inputs_have_no_problem() -> None:
    result = planned()
    assert (result.warnings, result.variables) == ([], {"north": "GB10_GATEWAY_KEY_NORTH"})
    entries = [(model["variable"], model["ca"]) for model in json.loads(result.settings)["models"]]
    assert entries == [("GB10_GATEWAY_KEY_NORTH", CA.text), ("", "")]


@pytest.mark.parametrize(
    ("values", "place", "found"),
    [
        ({"name": "gpt-*"}, "gateway_models[1].name", "gpt-*"),
        ({"name": "a,b"}, "gateway_models[1].name", "a,b"),
        ({"name": ""}, "gateway_models[1].name", "''"),
        ({"name": "a\n"}, "gateway_models[1].name", "a"),
        ({"cluster": "a/b"}, "gateway_models[1].cluster", "a/b"),
        ({"url": "10.0.0.5:8000"}, "gateway_models[1].url", "10.0.0.5"),
        ({"url": "http://10.0.0.5:8000"}, "gateway_models[1].url", "10.0.0.5"),
        ({"url": "http://10.0.0.5/v1"}, "gateway_models[1].url", "10.0.0.5"),
        ({"url": "http://10.0.0.5:99999/v1"}, "gateway_models[1].url", "99999"),
        ({"url": "http://10.0.0.5:8000/v1?x=1"}, "gateway_models[1].url", "x=1"),
        ({"url": "ftp://10.0.0.5:8000/v1"}, "gateway_models[1].url", "ftp"),
        ({"url": "http://me:hidden@10.0.0.5:8000/v1"}, "gateway_models[1].url", "it has a user"),
        ({"url": "https://10.0.0.5:8000/v1"}, "gateway_models[1].ca", "it is empty"),
        ({"ca": "hello"}, "gateway_models[1].ca", "it is not one or more certificates"),
        ({"ca": CA.text}, "gateway_models[1].ca", "the URL has no TLS"),
        ({"kind": "paint"}, "gateway_models[1].kind", "paint"),
        ({"context": -1}, "gateway_models[1].context", "-1"),
        ({"wake": -1}, "gateway_models[1].wake", "-1"),
        ({"wake": 65536}, "gateway_models[1].wake", "65536"),
        ({"name": "org/big", "cluster": "north"}, "gateway_models[1]", "gateway_models[0] is the same model"),
        ({"name": "org/big", "kind": "embed"}, "gateway_models[1].kind", "another entry of org/big has generate"),
    ],
)
def test_a_wrong_model(values: dict[str, Any], place: str, found: str) -> None:
    report = refused(changed(1, **values))
    assert (
        report.startswith("1 problem found; nothing was changed.\n") and f"1. {place}: " in report and found in report
    )
    assert "hidden" not in report


def test_an_api_on_loopback_is_for_a_gateway_on_its_own_head() -> None:
    plans = {"spark1": typed({"api_host": "127.0.0.1", "api": {"url": "http://127.0.0.1:8000"}})}
    (found,) = plan.of_clusters({"first": "spark1"}, plans, {}, "spark1")
    assert (found.cluster, found.url) == ("first", "http://127.0.0.1:8000/v1")
    with pytest.raises(ProblemsError, match=r"gateway_clusters\.first: the API listens on loopback of spark1"):
        plan.of_clusters({"first": "spark1"}, plans, {}, "box")


def test_replicas_are_entries_of_one_name_in_several_clusters() -> None:
    result = planned(changed(1, name="org/big"))
    assert [model["id"] for model in json.loads(result.settings)["models"]] == ["north/org/big", "south/org/big"]


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"host": "example.com"}, "gateway_host"),
        ({"host": "0.0.0.0"}, "gateway_host"),
        ({"port": 0}, "gateway_port"),
        ({"port": 70000}, "gateway_port"),
        ({"name": "a b"}, "gateway_name"),
        ({"silence_timeout": 0}, "gateway_silence_timeout"),
        ({"health_interval": 1}, "gateway_health_interval"),
        ({"wake_timeout": 0}, "gateway_wake_timeout"),
        ({"origins": ["https://chat.example.com", "chat.example.com"]}, "gateway_origins[1]"),
        ({"origins": ["https://chat.example.com/"]}, "gateway_origins[0]"),
        ({"fallbacks": {"none": ["small"]}}, "gateway_fallbacks.none"),
        ({"fallbacks": {"small": ["none"]}}, "gateway_fallbacks.small[0]"),
        ({"fallbacks": {"small": ["small"]}}, "gateway_fallbacks.small[0]"),
        ({"fallbacks": {"small": ["org/big", "org/big"]}}, "gateway_fallbacks.small[1]"),
    ],
)
def test_a_wrong_setting(settings: dict[str, Any], place: str) -> None:
    report = refused(**settings)
    assert report.startswith("1 problem found") and f"1. {place}: " in report


@pytest.mark.parametrize(
    "settings",
    [
        {"port": 1},
        {"port": 65535},
        {"silence_timeout": 1, "health_interval": 2},
        {"silence_timeout": 86400, "health_interval": 3600},
        {"name": "llm.example.com"},
        {"name": "10.0.0.9"},
        {"fallbacks": {"small": ["org/big"]}},
    ],
)
def test_a_setting_at_its_limits_is_good(settings: dict[str, Any]) -> None:
    assert planned(**settings).warnings == []


def test_a_fallback_has_the_same_kind() -> None:
    report = refused(changed(1, kind="embed"), fallbacks={"small": ["org/big"]})
    assert "gateway_fallbacks.small[0]: org/big has the kind generate" in report


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.9", "::"])
def test_http_beyond_loopback_needs_a_word(host: str) -> None:
    assert "gateway_allow_plain_http" in refused(host=host)
    planned(host=host, allow_plain_http=True)


def test_a_certificate_must_fit() -> None:
    pair, other = CA.issue("llm.example.com"), CA.issue("llm.example.com")
    both = {"certificate": pair.text, "key": pair.key_text}
    planned(host="0.0.0.0", name="llm.example.com", tls=both)
    mixed = refused(host="0.0.0.0", name="llm.example.com", tls=both | {"key": other.key_text})
    assert "gateway_tls_key: it is the key of another certificate than gateway_tls_certificate" in mixed
    assert other.key_text not in mixed
    assert "gateway_tls_certificate: it does not cover 10.0.0.9" in refused(host="0.0.0.0", tls=both)
    assert "gateway_tls_key: it is empty" in refused(host="0.0.0.0", name="llm.example.com", tls=both | {"key": ""})


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"west": KEY}, "gateway_model_keys.west: no model has this cluster"),
        ({"north": ""}, "gateway_model_keys.north: it is not a text"),
        ({"north": "short"}, "gateway_model_keys.north: it has 5 characters"),
        ({"north": f"{KEY}\n"}, "gateway_model_keys.north: it contains blanks, line breaks"),
    ],
)
def test_a_wrong_key(keys: dict[str, str], found: str) -> None:
    assert found in refused(keys=keys)


def test_two_clusters_with_one_variable() -> None:
    models = plan.models_of([MODELS[1] | {"cluster": "a-b"}, MODELS[1] | {"cluster": "a.b"}])
    (problem,) = checks.of_keys({"a-b": KEY, "a.b": KEY}, models)
    assert "its variable is also that of a-b" in str(problem)


def test_all_problems_come_at_once() -> None:
    report = refused(changed(0, url="x", kind="y"), keys={"west": KEY}, port=0, host="0.0.0.0")
    assert report.startswith("5 problems found; nothing was changed.")
    assert "gateway_models: it is empty" in refused([], {})


@pytest.mark.parametrize("name", ["", "Alice", "operator", "../x", "a" * 64, "-a", "a b"])
def test_a_clients_name_is_a_file_name(name: str) -> None:
    assert "gateway_key_create: " in report.refusal(FOUND, name, [])


def test_a_clients_models_are_the_gateways() -> None:
    assert report.refusal(FOUND, "alice", ["small"]) == ""
    assert "gateway_key_models[1]: 'none'" in report.refusal(FOUND, "alice", ["small", "none"])


def test_a_gateway_without_an_answer_gets_no_client() -> None:
    found = report.refusal(State("refused", [], [], {}), "alice", [])
    assert found == "refused. Expected: a running gateway. Fix: run site.yml."


@pytest.mark.parametrize(
    "values",
    [
        {"name": "a" * 200},
        {"cluster": "a" * 64},
        {"context": 0},
        {"wake": 65535},
        {"url": "http://[fd00::5]:65535/v1"},
        {"url": "http://a:1/v1"},
        {"url": "http://a-b.example:8000/v1"},
    ],
)
def test_a_model_at_its_limits_is_good(values: dict[str, Any]) -> None:
    planned(changed(1, **values))


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"name": "a" * 201}, "name"),
        ({"cluster": "a" * 65}, "cluster"),
        ({"cluster": ""}, "cluster"),
        ({"url": "http://a:0/v1"}, "url"),
        ({"url": "http://a-:8000/v1"}, "url"),
        ({"url": "http://a:8000/v1#x"}, "url"),
        ({"url": "http://a:8000/v1 "}, "url"),
        ({"url": "http://[a:8000/v1"}, "url"),
        ({"url": "http://:8000/v1"}, "url"),
    ],
)
def test_a_model_beyond_its_limits(values: dict[str, Any], place: str) -> None:
    assert f"1 problem found; nothing was changed.\n  1. gateway_models[1].{place}: " in refused(changed(1, **values))


@pytest.mark.parametrize(
    ("settings", "place", "expected"),
    [
        ({"port": 65536}, "gateway_port", "1 to 65535"),
        ({"silence_timeout": 86401}, "gateway_silence_timeout", "1 to 86400 seconds"),
        ({"health_interval": 3601}, "gateway_health_interval", "2 to 3600 seconds"),
    ],
)
def test_a_setting_beyond_its_limits(settings: dict[str, Any], place: str, expected: str) -> None:
    assert (
        f"1 problem found; nothing was changed.\n  1. {place}: {next(iter(settings.values()))}. Expected: {expected}"
        in refused(**settings)
    )


def test_the_files_of_the_plan_are_whole_texts() -> None:
    pair = CA.issue("llm.example.com")
    result = planned(name="llm.example.com", tls={"certificate": f"\n{pair.text}\n\n", "key": pair.key_text})
    assert result.certificate == f"{pair.text.strip()}\n" and planned().certificate == ""
    assert result.settings.startswith('{\n  "host": "127.0.0.1",\n') and result.settings.endswith("}\n")
    models = json.loads(result.settings)["models"]
    assert [(model["id"], model["context"], model["kind"]) for model in models] == [
        ("north/org/big", 4096, "generate"),
        ("south/small", 0, "generate"),
    ]


def test_only_a_model_that_may_rest_has_a_port_that_wakes_it() -> None:
    for rest, expected in ({"after": 1800, "port": 8009}, 8009), ({"after": 0, "port": 8009}, 0):
        (found,) = plan.of_clusters({"first": "spark1"}, {"spark1": typed({"rest": rest})}, {}, "spark1")
        assert found.wake == expected
    models = json.loads(planned(changed(1, wake=8009)).settings)["models"]
    assert [model["wake"] for model in models] == [0, 8009]


def test_a_planned_cluster_is_reached_at_its_endpoint() -> None:
    given = typed({"api_host": "0.0.0.0"})
    (found,) = plan.of_clusters({"first": "spark1"}, {"spark1": given}, {"spark1": CA.text}, "box")
    expected = (given.served_model_name, given.api.endpoint, "first", CA.text, given.kind, given.serve.expected.context)
    assert (found.name, found.url, found.cluster, found.ca, found.kind, found.context) == expected
