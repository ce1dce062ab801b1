# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the API's certificate fits: its key, its time, its names, its CA. plugin_utils/certificate.py reads it, on the controller."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

CERTIFICATE, KEY, CA = "gb10_api_tls_certificate", "gb10_api_tls_key", "gb10_api_tls_ca"
#: Where the role gb10 puts them on the head: the certificate, its key for root alone, and what clients trust.
FOLDER = "/etc/gb10/tls"
FILES: Mapping[str, str] = {"certificate": f"{FOLDER}/api.crt", "key": f"{FOLDER}/api.key", "ca": f"{FOLDER}/ca.crt"}
#: A certificate that ends sooner than this is warned of.
SOON = timedelta(days=30)
_PEM = "a PEM file on the controller, or its text"


@dataclass(frozen=True)
class Certificate:
    """A certificate with its chain. ``names`` and ``addresses`` are those of subjectAltName, ``until`` is the first end of any in the chain."""

    names: Sequence[str]
    addresses: Sequence[str]
    since: datetime
    until: datetime
    #: Whether the key belongs to it, None where the key could not be read.
    key_fits: bool | None
    #: Whether the chain leads to the CA, None where the CA could not be read.
    trusted: bool | None


def missing(texts: Mapping[str, str]) -> list[Problem]:
    """Return which of ``certificate``, ``key`` and ``ca`` is not given, or is neither PEM nor a file that can be read; no text is shown."""
    variables = {"certificate": CERTIFICATE, "key": KEY, "ca": CA}
    problems = []
    for part, expected in (("certificate", "CERTIFICATE"), ("key", "PRIVATE KEY"), ("ca", "CERTIFICATE")):
        text, variable = texts[part], variables[part]
        if not text and part != "ca":
            problems.append(Problem(variable, "it is empty, and another part of TLS is given", _PEM, f"set {variable}, or leave out all of TLS"))
        elif text and not re.search(rf"-----BEGIN (?:[A-Z]+ )*{expected}-----", text):
            found = f"it has no {expected}, and names no readable file that has one"
            problems.append(Problem(variable, found, _PEM, f"correct {variable}; a relative path begins at the playbook's folder"))
        elif part != "key" and "PRIVATE KEY" in text:
            found = "it has a private key too, and every user of the head could read it"
            problems.append(Problem(variable, found, "certificates alone", f"move the key to {KEY}"))
    return problems


def judge(certificate: Certificate, name: str, now: datetime) -> tuple[list[Problem], list[str]]:
    """Return every problem, and what to warn of. ``name`` is what clients call the API: a DNS name or an address."""
    problems, warnings = [], []
    if certificate.key_fits is False:
        problems.append(Problem(KEY, f"it is the key of another certificate than {CERTIFICATE}", "its key", "give both parts of one pair"))
    if certificate.trusted is False:
        found = "no certificate of it issued the API's"
        fix = f"give the issuer's certificate, with those between in {CERTIFICATE} behind the API's own"
        problems.append(Problem(CA, found, "the CA that clients trust", fix))
    if certificate.since > now:
        fix = "wait, or correct the controller's clock"
        problems.append(Problem(CERTIFICATE, f"it is not valid before {day(certificate.since)}", "one that is valid now", fix))
    if certificate.until <= now:
        problems.append(Problem(CERTIFICATE, f"it expired on {day(certificate.until)}", "one that is valid now", "renew it"))
    elif certificate.until - now < SOON:
        warnings.append(f"{CERTIFICATE} expires on {day(certificate.until)}: renew it, and run the playbook again")
    if not covers(certificate, name):
        held = ", ".join([*certificate.names, *certificate.addresses]) or "nothing: it has no subjectAltName"
        fix = "have it issued for that too, or set gb10_api_name to what clients call the API"
        problems.append(Problem(CERTIFICATE, f"it does not cover {name}, but {held}", "a certificate of the address that clients use", fix))
    return problems, warnings


def covers(certificate: Certificate, name: str) -> bool:
    """Whether a client that calls the API by this name or address accepts the certificate. Source: RFC 6125, 6.4; the subject does not count."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return any(_matches(pattern.lower().rstrip("."), name.lower().rstrip(".")) for pattern in certificate.names)
    return any(ipaddress.ip_address(held) == address for held in certificate.addresses)


def _matches(pattern: str, name: str) -> bool:
    """A star stands for one whole label, the first."""
    if pattern.startswith("*."):
        first, dot, rest = name.partition(".")
        return bool(first) and bool(dot) and rest == pattern[2:]
    return pattern == name


def day(moment: datetime) -> str:
    """Return a time as a date."""
    return moment.strftime("%Y-%m-%d")


def facts(problems: Sequence[Problem], warnings: Sequence[str] = (), digest: str = "", until: str = "") -> dict[str, Any]:
    """Return a verdict as plain data, which has nothing of the key: {problems, warnings, digest, until}."""
    return {"problems": [asdict(problem) for problem in problems], "warnings": list(warnings), "digest": digest, "until": until}
