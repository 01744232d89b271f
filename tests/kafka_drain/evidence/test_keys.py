"""Keys in files, their ids, and their rotation."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timezone
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)

from kafka_drain.errors import ConfigError, EvidenceError
from kafka_drain.evidence.keys import PublicKey, SigningKey, trusted
from kafka_drain.evidence.statement import Statement

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
STATEMENT = Statement("drill", "now", "id", "flights")


def test_create(tmp_path: Path) -> None:
    """A key pair: the private key for its owner alone, the public one for everybody."""
    made = SigningKey.create(tmp_path / "key")

    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "key.pub").stat().st_mode & 0o777 == 0o644
    assert SigningKey.read(tmp_path / "key") == made
    assert PublicKey.read(tmp_path / "key.pub") == made.public


def test_create_any_umask(tmp_path: Path) -> None:
    """No umask makes a private key readable by others."""
    before = os.umask(0)
    try:
        SigningKey.create(tmp_path / "key")
    finally:
        os.umask(before)

    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", ["key", "key.pub"])
def test_create_never_overwrites(there: str, tmp_path: Path) -> None:
    """A file that exists is left as it is, and no other is written."""
    (tmp_path / there).write_text("mine")

    with pytest.raises(ConfigError, match=rf"{there} exists and is never overwritten"):
        SigningKey.create(tmp_path / "key")
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_key_id_of_openssl(tmp_path: Path) -> None:
    """A key's id is the SHA-256 of the public key in DER form."""
    made = SigningKey.create(tmp_path / "key")
    public = load_pem_public_key((tmp_path / "key.pub").read_bytes())
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    assert made.public.id == hashlib.sha256(der).hexdigest()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666])
def test_read_open_to_others(mode: int, tmp_path: Path) -> None:
    """A private key that others can use is refused, whatever they can do with it."""
    SigningKey.create(tmp_path / "key")
    (tmp_path / "key").chmod(mode)

    with pytest.raises(ConfigError, match=rf"mode {mode:04o}, so that others can use the key"):
        SigningKey.read(tmp_path / "key")


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_read_of_owner(mode: int, tmp_path: Path) -> None:
    """A private key that only its owner can read is accepted."""
    made = SigningKey.create(tmp_path / "key")
    (tmp_path / "key").chmod(mode)

    assert SigningKey.read(tmp_path / "key") == made


def test_key_never_shown(tmp_path: Path) -> None:
    """Neither a key nor an error about one shows any of it."""
    made = SigningKey.create(tmp_path / "key")
    secret = (tmp_path / "key").read_text().splitlines()[1]
    (tmp_path / "torn").write_text((tmp_path / "key").read_text()[:-20])
    (tmp_path / "torn").chmod(0o600)

    assert secret not in repr(made) + str(made)
    with pytest.raises(ConfigError) as caught:
        SigningKey.read(tmp_path / "torn")
    assert secret not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_read_other_keys(tmp_path: Path) -> None:
    """Keys of other kinds, encrypted ones, and what isn't a key are refused by words."""
    other = ec.generate_private_key(ec.SECP256R1())
    encrypted = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    plain = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    with pytest.raises(ConfigError, match="expected an Ed25519 key"):
        SigningKey.parse(plain, "it")
    with pytest.raises(ConfigError, match="expected an Ed25519 key"):
        PublicKey.parse(public, "it")
    with pytest.raises(ConfigError, match="holds an encrypted key"):
        SigningKey.parse(encrypted, "it")
    for parse in (SigningKey.parse, PublicKey.parse):
        with pytest.raises(ConfigError, match=r"holds no (private|public) key in PEM"):
            parse("text", "it")
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        SigningKey.read(tmp_path / "none")
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        PublicKey.read(tmp_path / "none")


def test_sign(tmp_path: Path) -> None:
    """A statement verifies with the key that signed it, and with no other."""
    mine, other = SigningKey.create(tmp_path / "a"), SigningKey.create(tmp_path / "b")
    envelope = mine.sign(STATEMENT)

    assert envelope.key_id == mine.public.id
    assert envelope.verify({mine.public.id: mine.public.verify}) == STATEMENT.to_bytes()
    with pytest.raises(EvidenceError, match="the signature is wrong"):
        envelope.verify({mine.public.id: other.public.verify})


def test_rotation(tmp_path: Path) -> None:
    """Whoever trusts the old key trusts the new one by the old one's word, link by link."""
    keys = [SigningKey.create(tmp_path / name) for name in "abc"]
    links = [keys[0].rotate_to(keys[1].public, NOW), keys[1].rotate_to(keys[2].public, NOW)]

    assert set(trusted([keys[0].public])) == {keys[0].public.id}
    assert set(trusted([keys[0].public], links)) == {key.public.id for key in keys}
    with pytest.raises(EvidenceError, match="isn't among the given ones"):
        trusted([keys[0].public], links[1:])
    with pytest.raises(EvidenceError, match="isn't among the given ones"):
        trusted([keys[2].public], links)


def test_rotation_of_other_statement(tmp_path: Path) -> None:
    """Only a statement of rotation makes a key trusted."""
    old, new = SigningKey.create(tmp_path / "a"), SigningKey.create(tmp_path / "b")
    document = {"key": new.public.id, "public_key": new.public.pem}

    assert set(trusted([old.public], [old.sign(Statement("drill", "now", document=document))])) == {
        old.public.id
    }
