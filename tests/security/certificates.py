"""Certificates of a test run: an authority, a broker's and a client's, valid for an hour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

__all__ = ["Certificate", "Certificates"]

_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files, and both in one for Kafka's keystores.

    Attributes:
        certificate: PEM.
        key: PEM, PKCS #8, not encrypted.
        both: The key, then the certificate.
    """

    certificate: Path
    key: Path
    both: Path


class Certificates:
    """An authority that signs certificates into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = _new_key()
        self._name = _name("kafka-drain tests")
        signed = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            # Python 3.13 (VERIFY_X509_STRICT) refuses an authority without these two.
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self._certificate = signed
        self.authority = folder / "ca.pem"
        self.authority.write_bytes(signed.public_bytes(Encoding.PEM))

    def sign(self, name: str) -> Certificate:
        """Make a certificate of a common name, good for 127.0.0.1."""
        key, certificate = self._signed(name)
        parts = (
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            certificate.public_bytes(Encoding.PEM),
        )
        made = Certificate(
            self.folder / f"{name}.pem", self.folder / f"{name}.key", self.folder / f"{name}.both"
        )
        made.key.write_bytes(parts[0])
        made.certificate.write_bytes(parts[1])
        made.both.write_bytes(b"".join(parts))
        return made

    def keystore(self, name: str, password: str) -> Path:
        """Make a certificate of a common name, with its key, as a PKCS #12 file."""
        key, certificate = self._signed(name)
        path = self.folder / f"{name}.p12"
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(),
                key,
                certificate,
                [self._certificate],
                BestAvailableEncryption(password.encode()),
            )
        )
        return path

    def _signed(self, name: str) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
        key = _new_key()
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        # Python 3.13 refuses a certificate without it.
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(_name(name), self._name, key)
            .add_extension(address, critical=False)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return key, certificate


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
    )
