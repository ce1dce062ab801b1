# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the gateway's inputs. No message shows a key or a certificate."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.api import access, tls
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.gateway import clients
from ansible_collections.gb10.cluster.plugins.module_utils.gateway.schema import KINDS, GatewaySettings, Model

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:+-]{0,199}")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
#: Seconds: the least and the most of each time.
_TIMES: Mapping[str, tuple[int, int]] = {
    "silence_timeout": (1, 86400),
    "health_interval": (2, 3600),
    "wake_timeout": (1, 86400),
}


def problems(given: GatewaySettings) -> list[Problem]:
    """Return every problem of the inputs."""
    return [
        *_models(given.models),
        *_fallbacks(given),
        *_listener(given),
        *_times(given),
        *access.origin_problems("gateway_origins", given.origins),
    ]


def of_keys(keys: Mapping[Any, Any], models: Sequence[Model]) -> list[Problem]:
    """Return the problems of gateway_model_keys, without a key."""
    clusters, found = {model.cluster for model in models}, []
    for cluster, key in keys.items():
        path = f"gateway_model_keys.{cluster}"
        if cluster not in clusters:
            found.append(
                Problem(
                    path,
                    "no model has this cluster",
                    "the cluster of an entry of gateway_models",
                    "correct the name, or remove it",
                )
            )
        if not isinstance(key, str) or not key:
            found.append(
                Problem(path, "it is not a text", "the API key of the cluster", "set it in a vault, or remove it")
            )
        elif reason := access.key_problem(key):
            found.append(
                Problem(
                    path, reason, "visible ASCII characters, as gb10_api_key has them", "set the key of the cluster"
                )
            )
    variables: dict[str, str] = {}
    for cluster in map(str, keys):
        other = variables.setdefault(variable(cluster), cluster)
        if other != cluster:
            expected = "names that differ in more than case, hyphens and dots"
            found.append(
                Problem(
                    f"gateway_model_keys.{cluster}",
                    f"its variable is also that of {other}",
                    expected,
                    "rename one cluster",
                )
            )
    return found


def variable(cluster: str) -> str:
    """Return the environment variable with a cluster's API key."""
    return "GB10_GATEWAY_KEY_" + re.sub(r"[^A-Za-z0-9]", "_", cluster).upper()


def of_client(name: str, models: Sequence[str], known: Sequence[str]) -> list[Problem]:
    """Return the problems of a new client's name and models. ``known``: the gateway's models."""
    found = []
    if not clients.valid_name(name):
        found.append(Problem("gateway_key_create", repr(name), clients.EXPECTED_NAME, "choose another name"))
    for index, model in enumerate(models):
        if model not in known:
            found.append(
                Problem(
                    f"gateway_key_models[{index}]",
                    repr(model),
                    f"a model of the gateway: {', '.join(known)}",
                    "correct the name",
                )
            )
    return found


def _models(models: Sequence[Model]) -> Iterator[Problem]:
    if not models:
        yield Problem(
            "gateway_models", "it is empty", "one model or more", "add the models, or set gateway_state: absent"
        )
    seen: dict[tuple[str, str], int] = {}
    kinds: dict[str, str] = {}
    for index, model in enumerate(models):
        place = f"gateway_models[{index}]"
        kind = kinds.setdefault(model.name, model.kind) if model.kind in KINDS else ""
        first = seen.setdefault((model.name, model.cluster), index)
        yield from _refused(
            (
                not _NAME.fullmatch(model.name),
                f"{place}.name",
                repr(model.name),
                "letters, digits and . _ / : + -, without wildcards",
                "correct the name: it is the model's name in requests",
            ),
            (
                not _CLUSTER.fullmatch(model.cluster),
                f"{place}.cluster",
                repr(model.cluster),
                "letters, digits and . _ -",
                "name the cluster",
            ),
        )
        yield from _url(f"{place}.url", model.url)
        yield from _refused(
            (
                model.ca and not tls.is_ca(model.ca),
                f"{place}.ca",
                "it is not one or more certificates in PEM",
                "the text of the CA's certificate",
                f"correct {place}.ca",
            ),
            (
                tls.is_ca(model.ca) and model.url.startswith("http:"),
                f"{place}.ca",
                "it is set, but the URL has no TLS",
                "an https URL with a CA",
                "correct the URL, or leave the CA empty",
            ),
            (
                not model.ca and model.url.startswith("https:"),
                f"{place}.ca",
                "it is empty, but the URL has TLS",
                "the CA, or the certificate itself",
                "set the text of the CA's certificate",
            ),
            (not kind, f"{place}.kind", repr(model.kind), ", ".join(KINDS), f"correct {place}.kind"),
            (
                kind and kind != model.kind,
                f"{place}.kind",
                f"{model.kind}, but another entry of {model.name} has {kind}",
                "replicas of one kind",
                "correct one of them, or rename a model",
            ),
            (model.context < 0, f"{place}.context", str(model.context), "tokens, or 0", f"correct {place}.context"),
            (not 0 <= model.wake <= 65535, f"{place}.wake", str(model.wake), "a port, or 0", f"correct {place}.wake"),
            (
                first != index,
                place,
                f"gateway_models[{first}] is the same model of the same cluster",
                "each model of a cluster once; replicas have different clusters",
                "remove one entry, or correct its cluster",
            ),
        )


def _refused(*cases: tuple[object, str, str, str, str]) -> Iterator[Problem]:
    """Yield the problem of each case whose first value is true."""
    return (Problem(*texts) for wrong, *texts in cases if wrong)


def _url(place: str, url: str) -> Iterator[Problem]:
    expected = "http:// or https://, a host and a port, and /v1, such as https://10.0.0.5:8000/v1"
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in ("http", "https") and _host(parts.hostname or "") and bool(parts.port)
    except ValueError:
        yield Problem(place, repr(url), expected, f"correct {place}")
        return
    if not valid or parts.path != "/v1" or parts.query or parts.fragment or "@" in parts.netloc or url != url.strip():
        # A URL with a user may have a password.
        yield Problem(place, "it has a user" if "@" in url else repr(url), expected, f"correct {place}")


def _host(host: str) -> bool:
    return access.is_address(host) or bool(_HOST.fullmatch(host))


def _fallbacks(given: GatewaySettings) -> Iterator[Problem]:
    kinds = {model.name: model.kind for model in given.models}
    for name, others in given.fallbacks.items():
        place = f"gateway_fallbacks.{name}"
        if name not in kinds:
            yield Problem(
                place, "no entry of gateway_models has this name", "a model of the gateway", "correct the name"
            )
        for index, other in enumerate(others):
            here = f"{place}[{index}]"
            if other not in kinds:
                yield Problem(
                    here,
                    f"{other!r} is not a model of the gateway",
                    f"one of {', '.join(sorted(kinds))}",
                    "correct the name",
                )
            elif other == name or other in others[:index]:
                yield Problem(here, f"{other} is repeated", "other models, each once", "remove it")
            elif name in kinds and kinds[other] != kinds[name]:
                yield Problem(
                    here,
                    f"{other} has the kind {kinds[other]}",
                    f"a model of the kind {kinds[name]}",
                    "choose another model",
                )


def _listener(given: GatewaySettings) -> Iterator[Problem]:
    address, safe = access.is_address(given.host), given.tls or given.allow_plain_http or access.loopback(given.host)
    return _refused(
        (
            not address,
            "gateway_host",
            repr(given.host),
            "an address of this host, such as 127.0.0.1 or 0.0.0.0",
            "correct gateway_host",
        ),
        (
            address and not safe,
            "gateway_host",
            f"{given.host} without TLS: keys and texts would cross the network unencrypted",
            "TLS, or a loopback address",
            "set gateway_tls_certificate and gateway_tls_key, or gateway_allow_plain_http: true on a trusted network",
        ),
        (not 1 <= given.port <= 65535, "gateway_port", str(given.port), "1 to 65535", "correct gateway_port"),
        (
            given.name and not _host(given.name),
            "gateway_name",
            repr(given.name),
            "a DNS name or an address, without port",
            "correct gateway_name",
        ),
    )


def _times(given: GatewaySettings) -> Iterator[Problem]:
    for name, (least, most) in _TIMES.items():
        value = getattr(given, name)
        if not least <= value <= most:
            yield Problem(f"gateway_{name}", str(value), f"{least} to {most} seconds", f"correct gateway_{name}")
