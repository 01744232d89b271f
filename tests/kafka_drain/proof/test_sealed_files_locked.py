"""Encrypted records whose key is gone: a deep validation names each receipt that has some."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from kafka_drain.archive.keys import keys_for_writing, plan_rewrap
from kafka_drain.config.encryption import Encryption
from kafka_drain.encryption import data_keys
from kafka_drain.encryption.data_keys import FOLDER, data_key
from kafka_drain.encryption.kms import encrypt_locally
from kafka_drain.errors import KmsUnavailableError
from kafka_drain.findings import Reason, errors
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
HIDDEN = ["key", "value", "headers.list.element.key", "headers.list.element.value"]


@pytest.fixture
def encrypting(monkeypatch: pytest.MonkeyPatch) -> Callable[[MadeArchive, str], None]:
    """Let an archive's next files be encrypted with a master key's data key."""
    write_table = pq.write_table

    def encrypt(made: MadeArchive, master: str) -> None:
        keys = keys_for_writing(made.root, Encryption(kms="file", key=master))
        assert keys is not None
        current = keys["current"]

        class Client(pe.KmsClient):  # type: ignore[misc]
            """Wraps keys as parquet-java does, with the archive's data key."""

            def __init__(self, _: object) -> None:
                super().__init__()

            def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
                """Wrap a key."""
                key = data_key(made.root, master_key_identifier)
                return encrypt_locally(key, key_bytes, master_key_identifier).encode()

            def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
                """Never called."""
                raise NotImplementedError

        def write(*where: Any, **options: Any) -> None:
            properties = pe.CryptoFactory(Client).file_encryption_properties(
                pe.KmsConnectionConfig(),
                pe.EncryptionConfiguration(
                    footer_key=current,
                    column_keys={current: HIDDEN},
                    plaintext_footer=True,
                    double_wrapping=False,
                ),
            )
            write_table(*where, encryption_properties=properties, **options)

        monkeypatch.setattr(pq, "write_table", write)

    return encrypt


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive without files."""
    return MadeArchive(tmp_path / "archive", {"orders": "topic-1"})


def test_validate_kms_silent(
    made: MadeArchive,
    masters: Callable[..., None],
    encrypting: Callable[[MadeArchive, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A KMS that doesn't answer ends no validation: what needs no key is checked, and told."""
    masters("old")
    encrypting(made, "old")
    made.seal({P0: dense(0, 3)}, fingerprint="00000000000000aa")

    def silent(_: object) -> bytes:
        raise KmsUnavailableError("Vault is sealed")

    monkeypatch.setattr(data_keys, "open_key", silent)
    data_keys._data_key.cache_clear()
    report = validate_archive(made.archive, None, deep=True)

    assert Reason.KEY_UNAVAILABLE in {finding.reason for finding in report.findings}


@pytest.mark.parametrize("is_proven", [True, False])
def test_validate_locked_beside_compacted(
    is_proven: bool,
    made: MadeArchive,
    masters: Callable[..., None],
    encrypting: Callable[[MadeArchive, str], None],
) -> None:
    """Files that a compaction has left, of a master key that is gone, next to rewritten ones."""
    masters("old", "new")
    encrypting(made, "old")
    sealed = "00000000000000aa" if is_proven else None
    small, _ = made.seal({P0: dense(0, 3), P1: dense(0, 9)}, fingerprint=sealed)
    made.open_generation()
    made.start_at({P0: 3, P1: 9})
    encrypting(made, "new")
    made.seal_window("compact_20260101T000000Z_0", {P0: dense(0, 3)}, [small.path])
    where = "generations/0001/receipts/000000000000.json"
    report = validate_archive(made.archive, None, deep=True)
    assert report.complete, report.findings

    masters("new")
    report = validate_archive(made.archive, None, deep=True)

    found = [f.where for f in report.findings if f.reason is Reason.KEY_UNAVAILABLE]
    assert found == [where]
    assert not report.complete


def test_validate_locked_window_without_keys(
    made: MadeArchive, masters: Callable[..., None], encrypting: Callable[[MadeArchive, str], None]
) -> None:
    """The folder of data keys is lost: a window of unknown content is named, too."""
    masters("old")
    encrypting(made, "old")
    made.seal_window("backfill_1", {P0: dense(0, 3), P1: dense(0, 9)}, is_known=False)
    shutil.rmtree(str(made.root / FOLDER))
    data_keys._data_key.cache_clear()

    report = validate_archive(made.archive, None, deep=True)

    found = [f.where for f in report.findings if f.reason is Reason.KEY_UNAVAILABLE]
    assert found == ["windows/backfill_1/receipt.json"]
    assert not report.complete


def test_validate_beside_rewrap(
    made: MadeArchive,
    masters: Callable[..., None],
    encrypting: Callable[[MadeArchive, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rewrap replaces a data key while a validation looks for it: nothing is missing."""
    masters("old", "new")
    encrypting(made, "old")
    made.seal_window("backfill_1", {P0: dense(0, 3)})
    list_keys = data_keys.list_keys
    waiting = [list_keys(made.root)]
    plan_rewrap(made.root, Encryption(kms="file", key="new")).apply()
    data_keys._data_key.cache_clear()
    monkeypatch.setattr(
        data_keys, "list_keys", lambda root: waiting.pop() if waiting else list_keys(root)
    )

    report = validate_archive(made.archive, None, deep=True)

    assert not waiting
    assert report.findings == []


def test_validate_locked_file_gone(
    made: MadeArchive, masters: Callable[..., None], encrypting: Callable[[MadeArchive, str], None]
) -> None:
    """A window's files were compacted twice and removed, and the first plan's kind is damaged."""
    masters("old")
    encrypting(made, "old")
    key, *others = ("compact_20260101T000000Z_0", "compact_20260101T010000Z_0")
    gone = made.seal_window("backfill_1", {P0: dense(0, 3)})
    replaced = [file.path for file in gone]
    gone += made.seal_window(key, {P0: dense(0, 3)}, replaced, kind="compac0")
    made.seal_window(*others, {P0: dense(0, 3)}, [file.path for file in gone[1:]])
    for file in gone:
        (made.root / file.path).unlink()

    for _ in range(2):
        report = validate_archive(made.archive, None, deep=True)

        found = {(finding.reason, finding.where) for finding in errors(report.findings)}
        assert (Reason.DOCUMENT_CHANGED, f"windows/{key}/plan.json") in found
        assert not report.complete
