"""Certificates for tests and campaigns, on fast elliptic curves."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
DAY = datetime.timedelta(days=1)
NAMES = {
    "C": NameOID.COUNTRY_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "CN": NameOID.COMMON_NAME,
}


def name(*parts: tuple[str, str]) -> x509.Name:
    """A distinguished name, first part first."""
    return x509.Name([x509.NameAttribute(NAMES[kind], value) for kind, value in parts])


class Leaf:
    """A certificate with its key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, signer: bytes) -> None:
        self.key, self.certificate = key, certificate
        self.der = certificate.public_bytes(DER)
        self.certificate_pem = certificate.public_bytes(PEM) + signer

    def key_pem(self, password: str | None = None) -> bytes:
        """The key in PKCS 8."""
        secret: Any = serialization.NoEncryption()
        if password is not None:
            secret = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, secret)

    def pem(self, password: str | None = None) -> bytes:
        """Key and certificates."""
        return self.key_pem(password) + self.certificate_pem

    def p12(self, password: str, *signers: x509.Certificate) -> bytes:
        """A PKCS12 keystore, with the certificates of signers if they are given."""
        secret = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"me", self.key, self.certificate, signers or None, secret
        )


class Authority:
    """A signer of certificates."""

    def __init__(self, common_name: str = "signer") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = name(("CN", common_name))
        self.certificate = self._signed(self.name, self.key.public_key(), 1, 3650, authority=True)
        self.pem = self.certificate.public_bytes(PEM)

    def _signed(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        since_days: float,
        until_days: float,
        hosts: Sequence[str] = (),
        *,
        authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - since_days * DAY)
            .not_valid_after(now + until_days * DAY)
        )
        if authority:
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def leaf(
        self,
        *parts: tuple[str, str],
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        since_days: float = 1,
        until_days: float = 100,
    ) -> Leaf:
        """A signed certificate; negative days for one that has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = name(*parts) if parts else name(("O", "Firm"), ("CN", "node"))
        return Leaf(key, self._signed(subject, key.public_key(), since_days, until_days, hosts), self.pem)

    def revocation_list(self, *leaves: Leaf) -> bytes:
        """A list of revoked certificates, in PEM."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        builder = builder.last_update(now - DAY).next_update(now + DAY)
        for leaf in leaves:
            revoked = x509.RevokedCertificateBuilder().serial_number(leaf.certificate.serial_number)
            builder = builder.add_revoked_certificate(revoked.revocation_date(now - DAY).build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(PEM)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def private(path: Path, data: bytes) -> str:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(data)
    path.chmod(0o600)
    return str(path)
