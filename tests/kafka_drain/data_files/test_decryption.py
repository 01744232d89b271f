"""Encrypted Parquet files: without the key, what isn't encrypted; with it, everything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from upath import UPath

from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.config.encryption import Encryption
from kafka_drain.data_files.reader import bytes_to_read, index_sha256, read_offsets, read_records
from kafka_drain.data_files.records import SCHEMA, RowBounds
from kafka_drain.encryption import data_keys
from kafka_drain.encryption.data_keys import data_key
from kafka_drain.encryption.kms import encrypt_locally
from kafka_drain.errors import DataFileError, KeyUnavailableError, MachineError
from kafka_drain.findings import Finding
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.proof.committed_file import read_file

RECORDS = pa.Table.from_pylist(
    [
        {
            "key": b"secret-key-%d" % n,
            "value": b"secret-value",
            "headers": [{"key": "secret-name", "value": b"secret"}],
            "topic": "t",
            "partition": 0,
            "offset": n,
            "timestamp": n * 1000,
            "timestampType": 0,
        }
        for n in range(5)
    ],
    schema=SCHEMA,
)
HIDDEN = ["key", "value", "headers.list.element.key", "headers.list.element.value"]
NAME = "generations/0001/data/part-0.parquet"
BATCH_BYTES = 1 << 20


class Client(pe.KmsClient):  # type: ignore[misc]
    """Wraps keys as parquet-java does, with an archive's data key."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Wrap a key."""
        key = data_key(self._root, master_key_identifier)
        return encrypt_locally(key, key_bytes, master_key_identifier).encode()

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """Never called."""
        raise NotImplementedError


@pytest.fixture
def encrypted(tmp_path: Path, masters: Callable[..., None]) -> Path:
    """An encrypted file of an archive, whose master key isn't there any more."""
    root = tmp_path / "archive"
    masters("m")
    made = keys_for_writing(UPath(root), Encryption(kms="file", key="m"))
    assert made is not None
    path = root / NAME
    path.parent.mkdir(parents=True)
    write_encrypted(root, path, made["current"])
    masters()
    return path


def write_encrypted(root: Path, path: Path, id_: str) -> None:
    """Write a file of an archive with a data key, as Spark does."""
    factory = pe.CryptoFactory(lambda _: Client(root))
    properties = factory.file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(
            footer_key=id_,
            column_keys={id_: HIDDEN},
            plaintext_footer=True,
            double_wrapping=False,
        ),
    )
    with pq.ParquetWriter(path, SCHEMA, encryption_properties=properties) as writer:
        writer.write_table(RECORDS)


def test_read_without_key(encrypted: Path, masters: Callable[..., None]) -> None:
    """Offsets need no key; records do, and it is said which; the file shows nothing of them."""
    [offsets] = read_offsets(encrypted, "parquet", None)

    assert (offsets.records, offsets.first, offsets.last) == (5, 0, 4)
    assert b"secret" not in encrypted.read_bytes()
    with pytest.raises(KeyUnavailableError, match="has no key 'm'"):
        next(read_records(encrypted, "parquet", BATCH_BYTES))
    with pytest.raises(KeyUnavailableError, match="has no key 'm'"):
        bytes_to_read(encrypted, "parquet", 1, RowBounds(keys=frozenset({b"x"})))
    masters("m")
    next(encrypted.parents[3].joinpath("keys").iterdir()).unlink()
    with pytest.raises(KeyUnavailableError, match="has no data key"):
        next(read_records(encrypted, "parquet", BATCH_BYTES))


def test_read_with_key(encrypted: Path, masters: Callable[..., None]) -> None:
    """Records are as they were written, and statistics of encrypted columns rule keys out."""
    masters("m")

    assert pa.Table.from_batches(read_records(encrypted, "parquet", BATCH_BYTES)) == RECORDS
    index = index_sha256(encrypted, "parquet")
    there = RowBounds(keys=frozenset({b"secret-key-3"}), index_sha256=index)
    absent = RowBounds(keys=frozenset({b"a"}), index_sha256=index)
    assert bytes_to_read(encrypted, "parquet", 1, there) > 0
    assert bytes_to_read(encrypted, "parquet", 1, absent) == 0
    assert sum(len(b) for b in read_records(encrypted, "parquet", BATCH_BYTES, there)) == 5


def test_read_changed(encrypted: Path, masters: Callable[..., None]) -> None:
    """A changed byte of an encrypted column, or of the signed footer, is damage, not a lost key."""
    masters("m")
    content = encrypted.read_bytes()
    for at in (100, content.index(b"timestampType")):
        changed = bytearray(content)
        changed[at] ^= 1
        encrypted.write_bytes(changed)
        with pytest.raises(DataFileError, match="not readable as Parquet"):
            list(read_records(encrypted, "parquet", BATCH_BYTES))


def test_read_file_locked(encrypted: Path, masters: Callable[..., None]) -> None:
    """A committed file without its key has offsets, no fingerprint, and says why."""
    root = encrypted.parents[3]
    entry = SinkFile("part-0.parquet", encrypted.stat().st_size, 0, 0, "0")

    locked = read_file(str(root), "generations/0001/data", entry, "parquet")
    masters("m")
    opened = read_file(str(root), "generations/0001/data", entry, "parquet")

    assert not isinstance(locked, Finding)
    assert not isinstance(opened, Finding)
    assert (locked.records, locked.fingerprint, locked.nul_header_names) == (5, None, None)
    assert "has no key 'm'" in locked.locked
    assert opened.locked == ""
    assert opened.fingerprint is not None
    # Only who opens the file gets to know the last record's hash.
    assert all(content.last_hash for content in opened.contents)
    assert [replace(content, last_hash=None) for content in opened.contents] == [*locked.contents]


def test_read_file_without_cryptography(
    encrypted: Path, masters: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor without the library that decrypts: this machine lacks it, no file is damaged."""
    masters("m")
    entry = SinkFile("part-0.parquet", encrypted.stat().st_size, 0, 0, "0")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)

    with pytest.raises(MachineError, match="a Python package is missing"):
        read_file(str(encrypted.parents[3]), "generations/0001/data", entry, "parquet")


def test_read_file_without_codec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor whose fastavro lacks the codec of Avro files: no file is damaged."""
    path = tmp_path / "generations/0001/data/part-0.avro"
    path.parent.mkdir(parents=True)
    path.touch()
    entry = SinkFile("part-0.avro", 0, 0, 0, "0")

    def refuse(source: object) -> None:
        raise ValueError("zstandard codec is supported but you need to install backports.zstd")

    monkeypatch.setattr("fastavro.block_reader", refuse)
    with pytest.raises(MachineError, match=r"need to install backports\.zstd"):
        read_file(str(tmp_path), "generations/0001/data", entry, "avro")


def test_read_file_kms_fails(
    encrypted: Path, masters: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a KMS's package raises, such as for a wrong VAULT_CACERT, is no damage of a file."""

    def fail(document: object) -> bytes:
        raise RuntimeError("secret")

    masters("m")
    monkeypatch.setattr(data_keys, "open_key", fail)
    entry = SinkFile("part-0.parquet", encrypted.stat().st_size, 0, 0, "0")
    locked = read_file(str(encrypted.parents[3]), "generations/0001/data", entry, "parquet")

    assert not isinstance(locked, Finding), locked
    assert "can't be had: RuntimeError" in locked.locked
    assert "secret" not in locked.locked


@pytest.mark.parametrize("damage", ["changed", "unreadable"])
def test_read_file_key_damaged(
    damage: str, encrypted: Path, masters: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data key's document that is damaged, or that this user may not read: no damage of files.

    A repair would replace them by what Kafka still has.
    """
    root = encrypted.parents[3]
    entry = SinkFile("part-0.parquet", encrypted.stat().st_size, 0, 0, "0")
    masters("m")
    [document] = (root / data_keys.FOLDER).iterdir()
    if damage == "changed":
        document.write_bytes(document.read_bytes()[:100])
    else:

        def refuse(path: Path) -> dict[str, str]:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(data_keys, "read_key", refuse)

    locked = read_file(str(root), "generations/0001/data", entry, "parquet")

    assert not isinstance(locked, Finding), locked
    assert (locked.records, locked.fingerprint) == (5, None)
    assert str(document) in locked.locked


def test_read_plain_file_beside_keys(encrypted: Path) -> None:
    """An archive may hold files from before it was encrypted: they need no key."""
    pq.write_table(RECORDS, encrypted)

    assert pa.Table.from_batches(read_records(encrypted, "parquet", BATCH_BYTES)) == RECORDS
