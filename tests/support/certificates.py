"""A certificate authority for tests, and its certificates."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def text(self) -> str:
        return self.certificate.public_bytes(_PEM).decode()

    @property
    def key_text(self) -> str:
        return self.locked("")

    def locked(self, passphrase: str) -> str:
        """Return the key in PEM, encrypted if a passphrase is given."""
        lock = (
            serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
        )
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, lock).decode()

    def issue(self, *names: str, days: float = 90, since: float = -1, ca: bool = False) -> Pair:
        """Issue a certificate for DNS names and addresses.

        ``since`` and ``days`` are its validity, in days from now.
        """
        return _issue(names, self, days, since, ca)

    def write(self, folder: Path, name: str) -> tuple[str, str]:
        """Write both into a folder and return their paths."""
        paths = folder / f"{name}.crt", folder / f"{name}.key"
        for path, text in zip(paths, (self.text, self.key_text), strict=True):
            path.touch(mode=0o600)
            path.write_text(text, encoding="ascii")
        return str(paths[0]), str(paths[1])


def authority(days: float = 365) -> Pair:
    """Return a self-signed CA."""
    return _issue((), None, days, -1, ca=True)


def _issue(names: Sequence[str], issuer: Pair | None, days: float, since: float, ca: bool) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(
                NameOID.COMMON_NAME, names[0] if names else f"test CA {key.public_key().public_numbers().x % 10**6}"
            )
        ]
    )
    by = issuer or Pair(None, key)  # type: ignore[arg-type]
    builder = x509.CertificateBuilder(
        subject_name=subject, issuer_name=issuer.certificate.subject if issuer else subject
    )
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(NOW + datetime.timedelta(days=since)).not_valid_after(
        NOW + datetime.timedelta(days=days)
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), critical=False
    )
    if ca:
        builder = builder.add_extension(
            x509.KeyUsage(True, False, False, False, False, True, True, False, False), critical=True
        )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
    return Pair(builder.sign(by.key, hashes.SHA256()), key)


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
