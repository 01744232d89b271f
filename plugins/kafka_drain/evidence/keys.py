"""Ed25519 keys: files in PEM, and ids that are digests of public keys."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from kafka_drain.errors import ConfigError
from kafka_drain.evidence.envelope import PAYLOAD_TYPE, Envelope, encode
from kafka_drain.evidence.statement import Statement

#: Advice for creating a key, in errors.
_CREATE = "`kafka-drain evidence-key FILE` creates one"


@dataclass(frozen=True)
class PublicKey:
    """A public key.

    Attributes:
        id: SHA-256 of the key in DER form, as `openssl pkey -pubin -outform der | sha256sum` prints
            it.
        pem: The key in PEM.
    """

    id: str
    pem: str
    _key: Ed25519PublicKey = field(repr=False, compare=False)

    @classmethod
    def of(cls, key: Ed25519PublicKey) -> PublicKey:
        """Return a key with its id."""
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return cls(hashlib.sha256(der).hexdigest(), pem.decode(), key)

    @classmethod
    def parse(cls, pem: str | bytes, name: str) -> PublicKey:
        """Parse a public key in PEM; `name` says where it is from.

        Raises:
            ConfigError: When it isn't an Ed25519 public key.
        """
        try:
            key = load_pem_public_key(pem.encode() if isinstance(pem, str) else pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ConfigError(f"{name} holds no public key in PEM") from error
        if not isinstance(key, Ed25519PublicKey):
            raise ConfigError(f"{name} holds a {type(key).__name__}; expected an Ed25519 key")
        return cls.of(key)

    @classmethod
    def read(cls, path: str | Path) -> PublicKey:
        """Read a public key from a file; raises like `parse`, or ConfigError if it can't."""
        return cls.parse(_content(Path(path)), str(path))

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Return whether a signature is this key's, of a message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """A private key; nothing that is printed shows it."""

    public: PublicKey
    _key: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def parse(cls, pem: str | bytes, name: str) -> SigningKey:
        """Parse a private key in PEM (PKCS 8); `name` says where it is from.

        Raises:
            ConfigError: When it isn't an Ed25519 private key, or is encrypted.
        """
        try:
            key = load_pem_private_key(pem.encode() if isinstance(pem, str) else pem, None)
        except TypeError:
            # Not chained, nor below: the cause might show some of the key.
            raise ConfigError(
                f"{name} holds an encrypted key, and nobody is there to ask for its password; "
                f"store it unencrypted where only this user can read it, or in Airflow's connection"
            ) from None
        except (ValueError, UnsupportedAlgorithm):
            raise ConfigError(f"{name} holds no private key in PEM; {_CREATE}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{name} holds a {type(key).__name__}; expected an Ed25519 key")
        return cls(PublicKey.of(key.public_key()), key)

    @classmethod
    def read(cls, path: str | Path) -> SigningKey:
        """Read a private key from a file that only its owner can read.

        Raises:
            ConfigError: When others can read it, or it isn't an Ed25519 private key.
        """
        path = Path(path)
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            raise ConfigError(f"{path} can't be read: {error.strerror}; {_CREATE}") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                f"{path} has mode {mode:04o}, so that others can use the key; expected 0600. If "
                "nobody else has read it: `chmod 600`; otherwise create a new key"
            )
        return cls.parse(_content(path), str(path))

    @classmethod
    def create(cls, path: str | Path) -> SigningKey:
        """Create a key pair: the private key at `path`, mode 0600, the public one in `path.pub`.

        Raises:
            ConfigError: When one of the files exists, or can't be written.
        """
        path = Path(path)
        public = path.with_name(f"{path.name}.pub")
        key = Ed25519PrivateKey.generate()
        made = cls(PublicKey.of(key.public_key()), key)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        if public.exists():
            raise _exists(public)
        _create(path, pem, 0o600)
        _create(public, made.public.pem.encode(), 0o644)
        return made

    def sign(self, statement: Statement) -> Envelope:
        """Sign a statement."""
        payload = statement.to_bytes()
        return Envelope(payload, self.public.id, self._key.sign(encode(PAYLOAD_TYPE, payload)))

    def rotate_to(self, new: PublicKey, at: datetime) -> Envelope:
        """Sign the statement that another key follows this one."""
        document = {"key": new.id, "public_key": new.pem}
        return self.sign(Statement("rotation", at.isoformat(timespec="seconds"), document=document))


def trusted(keys: Iterable[PublicKey], rotations: Iterable[Envelope] = ()) -> dict[str, PublicKey]:
    """Return trusted keys by id: the given ones, and those that they name as their successors.

    Args:
        keys: The keys that somebody trusts.
        rotations: Statements of rotation, oldest first.

    Raises:
        EvidenceError: When a rotation isn't signed by a trusted key.
    """
    known = {key.id: key for key in keys}
    for envelope in rotations:
        payload = envelope.verify({id_: key.verify for id_, key in known.items()})
        said = Statement.parse(payload)
        if said.kind == "rotation":
            new = PublicKey.parse(str(said.document.get("public_key")), "the statement of rotation")
            known[new.id] = new
    return known


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error


def _create(path: Path, content: bytes, mode: int) -> None:
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}") from error
    with os.fdopen(opened, "wb") as file:
        # The umask may have taken more away from a public key, never from a private one.
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _exists(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} exists and is never overwritten: evidence that its key signed could no longer be "
        "continued; name another file"
    )
