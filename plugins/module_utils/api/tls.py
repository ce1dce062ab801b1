# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the API's certificate: key, validity period, names, CA. plugin_utils/certificate.py parses it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

CERTIFICATE, KEY, CA = "gb10_api_tls_certificate", "gb10_api_tls_key", "gb10_api_tls_ca"
#: The role gb10 writes these on the head: certificate, key (readable by root alone) and the CA that clients trust.
FILES: Mapping[str, str] = {
    "certificate": f"{paths.CERTIFICATE}/api.crt",
    "key": f"{paths.CERTIFICATE}/api.key",
    "ca": paths.CA,
}
#: A certificate that expires sooner causes a warning.
SOON = timedelta(days=30)
#: The most bytes of a CA: /etc/ssl/certs/ca-certificates.crt has 220 KiB.
_MOST_CA = 1 << 20
_CERTIFICATES = re.compile(r"\s*(?:-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+")
_PEM = "a PEM file on the controller, or its text"


@dataclass(frozen=True)
class Certificate:
    """A certificate with its chain.

    ``names`` and ``addresses`` are from subjectAltName, ``until`` is the first expiry in the chain.
    """

    names: Sequence[str]
    addresses: Sequence[str]
    since: datetime
    until: datetime
    #: Whether the key matches, None if the key could not be read.
    key_fits: bool | None
    #: Whether the chain leads to the CA, None if the CA could not be read.
    trusted: bool | None


def is_ca(text: str) -> bool:
    """Return whether a text is one or more certificates in PEM, and nothing else: it may come from another machine."""
    return len(text) <= _MOST_CA and bool(_CERTIFICATES.fullmatch(text))


def missing(texts: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each of ``certificate``, ``key`` and ``ca`` that is missing or invalid.

    Valid is PEM text, or a readable file. No message shows a text.
    """
    parts = (("certificate", CERTIFICATE, "CERTIFICATE"), ("key", KEY, "PRIVATE KEY"), ("ca", CA, "CERTIFICATE"))
    problems = []
    for part, variable, expected in parts:
        text = texts[part]
        if not text and part != "ca":
            fix = f"set {variable}, or unset all gb10_api_tls_* variables"
            problems.append(Problem(variable, "it is empty, but other TLS settings are not", _PEM, fix))
        elif text and not re.search(rf"-----BEGIN (?:[A-Z]+ )*{expected}-----", text):
            found = f"it has no {expected}, and is not the path of a readable file with one"
            fix = f"correct {variable}; a relative path starts at the playbook's folder"
            problems.append(Problem(variable, found, _PEM, fix))
        elif part != "key" and "PRIVATE KEY" in text:
            found = "it also has a private key, which every user of the head could read"
            problems.append(Problem(variable, found, "certificates alone", f"move the key to {KEY}"))
    return problems


def judge(certificate: Certificate, name: str, now: datetime) -> tuple[list[Problem], list[str]]:
    """Return all problems and warnings. ``name`` is the DNS name or address that clients use."""
    problems, warnings = [], []
    if certificate.key_fits is False:
        found = f"it is the key of another certificate than {CERTIFICATE}"
        problems.append(Problem(KEY, found, "the certificate's key", "set both parts of one pair"))
    if certificate.trusted is False:
        found = "none of its certificates issued the API's certificate"
        fix = f"set the issuer's certificate, and append intermediate certificates to {CERTIFICATE}"
        problems.append(Problem(CA, found, "the CA that clients trust", fix))
    if certificate.since > now:
        fix = "wait, or correct the controller's clock"
        problems.append(
            Problem(CERTIFICATE, f"it is not valid before {day(certificate.since)}", "one that is valid now", fix)
        )
    if certificate.until <= now:
        problems.append(
            Problem(CERTIFICATE, f"it expired on {day(certificate.until)}", "one that is valid now", "renew it")
        )
    elif certificate.until - now < SOON:
        warnings.append(f"{CERTIFICATE} expires on {day(certificate.until)}: renew it, and run the playbook again")
    if not covers(certificate, name):
        held = ", ".join([*certificate.names, *certificate.addresses]) or "nothing: it has no subjectAltName"
        fix = "issue it for that too, or set gb10_api_name to the name that clients use"
        expected = "a certificate for the address that clients use"
        problems.append(Problem(CERTIFICATE, f"it does not cover {name}, but {held}", expected, fix))
    return problems, warnings


def covers(certificate: Certificate, name: str) -> bool:
    """Return whether clients that use this name or address accept the certificate.

    Source: RFC 6125, 6.4; the subject does not count.
    """
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return any(_matches(pattern.lower().rstrip("."), name.lower().rstrip(".")) for pattern in certificate.names)
    return any(ipaddress.ip_address(held) == address for held in certificate.addresses)


def _matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern. A wildcard replaces exactly one label, the first."""
    first, dot, rest = name.partition(".")
    return pattern == name or (bool(first and dot) and pattern == f"*.{rest}")


def day(moment: datetime) -> str:
    """Return a time as a date."""
    return moment.strftime("%Y-%m-%d")


def facts(
    problems: Sequence[Problem], warnings: Sequence[str] = (), digest: str = "", until: str = ""
) -> dict[str, Any]:
    """Return the result as plain data without the key: {problems, warnings, digest, until}."""
    return {
        "problems": [asdict(problem) for problem in problems],
        "warnings": list(warnings),
        "digest": digest,
        "until": until,
    }
