# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the API's certificate on the controller. Only this file needs cryptography, a dependency of ansible-core."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.cluster.plugins.module_utils.api import tls as api_tls
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization

    #: Since cryptography 42.
    MISSING = "" if hasattr(x509.Certificate, "not_valid_after_utc") else "the installed release is older"
except ImportError as error:
    MISSING = str(error)

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def verdict(texts: Mapping[str, str], name: str, now: datetime | None = None) -> dict[str, Any]:
    """Return api_tls.facts of the texts {certificate, key, ca}, "" if not set, without the key; {} if all are ""."""
    if not any(texts.values()):
        return {}
    if MISSING:
        raise AnsibleFilterError(
            f"TLS of the API needs the Python package cryptography 42 or newer on the controller: {MISSING}"
        )
    problems = api_tls.missing(texts)
    if any(problem.path == api_tls.CERTIFICATE for problem in problems):
        return api_tls.facts(problems)
    chain, unread = _certificates(texts["certificate"], api_tls.CERTIFICATE)
    anchors, unread_ca = _certificates(texts["ca"], api_tls.CA) if texts["ca"] else (chain, [])
    key_fits, unread_key = _key_fits(chain, texts["key"]) if texts["key"] and chain else (None, [])
    problems = _first_of_each_path([*problems, *unread, *unread_ca, *unread_key])
    if not chain:
        return api_tls.facts(problems)
    certificate = _summary(chain, anchors, key_fits)
    found, warnings = api_tls.judge(certificate, name, now or datetime.now(UTC))
    digest = hashlib.sha256(b"".join(entry.public_bytes(serialization.Encoding.DER) for entry in chain)).hexdigest()
    return api_tls.facts([*problems, *found], warnings, digest, api_tls.day(certificate.until))


def _first_of_each_path(problems: Sequence[Problem]) -> list[Problem]:
    """Keep one problem per variable: an unreadable value gets no further checks."""
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.path, problem)
    return list(first.values())


def _summary(
    chain: Sequence[x509.Certificate], anchors: Sequence[x509.Certificate], key_fits: bool | None
) -> api_tls.Certificate:
    path = _path(chain, anchors)
    return api_tls.Certificate(
        *_alternatives(chain[0]),
        since=max(entry.not_valid_before_utc for entry in chain),
        until=min(entry.not_valid_after_utc for entry in [*chain, *path]),
        key_fits=key_fits,
        trusted=bool(path) if anchors else None,
    )


def _certificates(text: str, variable: str) -> tuple[list[x509.Certificate], list[Problem]]:
    try:
        return [x509.load_pem_x509_certificate(block.encode()) for block in _BLOCK.findall(text)], []
    except ValueError as error:
        return [], [
            Problem(
                variable,
                f"it cannot be read: {str(error).splitlines()[0]}",
                "X.509 certificates in PEM",
                f"correct {variable}",
            )
        ]


def _key_fits(chain: Sequence[x509.Certificate], text: str) -> tuple[bool | None, list[Problem]]:
    """Return whether the key matches the first certificate. Library errors stay hidden: they may quote the key."""
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except TypeError:
        fix = "remove the passphrase (openssl pkey -in KEY -out PLAIN), and keep the result in a vault"
        expected = "a key without passphrase, because a service reads it"
        return None, [Problem(api_tls.KEY, "it is locked with a passphrase", expected, fix)]
    except ValueError:
        return None, [Problem(api_tls.KEY, "it cannot be read", "a private key in PEM", f"correct {api_tls.KEY}")]
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form) == chain[0].public_key().public_bytes(*form), []


def _alternatives(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    """Return the names and the addresses of subjectAltName."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], []
    return names.get_values_for_type(x509.DNSName), [
        str(address) for address in names.get_values_for_type(x509.IPAddress)
    ]


def _path(chain: Sequence[x509.Certificate], anchors: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """Return the chain from the API's certificate to one that clients trust, [] if there is none."""
    path, rest = [chain[0]], list(chain[1:])
    while path[-1] not in anchors:
        issuer = next((entry for entry in [*anchors, *rest] if _issued(path[-1], entry)), None)
        if issuer is None:
            return []
        rest = [entry for entry in rest if entry != issuer]
        path.append(issuer)
    return path


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return certificate != issuer
