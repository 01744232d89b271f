"""Encrypted archives: Spark encrypts, everything else decrypts, or says that it can't."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.keys import plan_rewrap
from kafka_drain.config.encryption import Encryption
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.encryption import data_keys
from kafka_drain.errors import ConfigError, KeyUnavailableError
from kafka_drain.intervals import Interval
from kafka_drain.maintenance.erase import run_erasure
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.storage.paths import list_folder

pytestmark = pytest.mark.integration

OLD, NEW = Encryption(kms="file", key="old"), Encryption(kms="file", key="new")
SECRETS = (b"private-key", b"private-value", b"private-header", b"private-content")
RECORDS = [
    (b"private-key-%d" % n, b"private-value-%d" % n, [("private-header", b"private-content")], n)
    for n in range(1000)
]


@pytest.fixture
def have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the named master keys, and no others, those of this machine; nothing is cached."""
    made = {name: base64.b64encode(os.urandom(32)).decode() for name in ("old", "new")}
    path = tmp_path / "master-keys.json"
    monkeypatch.setenv("KAFKA_DRAIN_KEY_FILE", str(path))

    def write(*names: str) -> None:
        path.touch(mode=0o600)
        path.write_text(json.dumps({name: made[name] for name in names}))
        data_keys._data_key.cache_clear()

    return write


def _bytes_of(folder: str) -> bytes:
    return b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())


def test_encrypted_archive(
    archive_folder: str,
    have: Callable[..., None],
    drain: Any,
    cluster: Any,
    make_topic: Any,
    send: Any,
    runner: SparkRunner,
    republish: Any,
) -> None:
    """No file shows a record; with the key, all else works; without it, offsets are proven.

    A rotated key: older files stay readable, also after the old master key is gone, if their data
    keys were wrapped again. A lost one: validation says so, and a republish sends nothing.
    """
    source = make_topic(partitions=2)
    target = make_topic(partitions=2)
    send(source, RECORDS, partition=0)
    pipeline = Pipeline(
        name="secret",
        topics=[source],
        archive=archive_folder,
        encryption=OLD,
        sink_options={"parquet.bloom.filter.enabled#key": True},
    )
    archive = Archive.at(archive_folder)

    have("old")
    drain(pipeline)
    have()
    locked = validate_archive(archive, cluster)
    assert {str(f.reason) for f in locked.findings} == {"key_unavailable"}
    assert not locked.complete
    have("old")
    assert validate_archive(archive, cluster).complete

    # Rotated: the next drain uses the new one.
    send(source, RECORDS, partition=1)
    have("old", "new")
    drain(pipeline.model_copy(update={"encryption": NEW}))
    report = validate_archive(archive, cluster, deep=True)
    assert report.complete
    assert not report.findings
    assert not [secret for secret in SECRETS if secret in _bytes_of(archive_folder)]
    assert len(list_folder(archive.root / "keys")) == 2

    # An unencrypted pipeline can't add to it, and readers that can't decrypt refuse.
    with pytest.raises(ConfigError, match="has no `encryption`"):
        drain(pipeline.model_copy(update={"encryption": None}))

    plan = plan_rewrap(archive.root, NEW)
    assert (len(plan.due), plan.kept) == (1, 1)
    plan.apply()
    have("new")

    # Files that are written again are encrypted too, with the new key.
    rotated = pipeline.model_copy(update={"encryption": NEW})
    request = ErasureRequest("req-1", "privacy@example.com", keys=frozenset({b"private-key-7"}))
    run_erasure(rotated, cluster, runner, request, run="tests")
    assert validate_archive(archive, cluster, deep=True).complete
    assert not [secret for secret in SECRETS if secret in _bytes_of(archive_folder)]

    assert len(list_folder(archive.root / "keys")) == 2
    sent = republish(archive, target)
    assert sent["records"] == 2 * (len(RECORDS) - 1)

    # Lost.
    have()
    shallow = validate_archive(archive, cluster)
    assert (shallow.complete, shallow.findings) == (True, [])
    deep = validate_archive(archive, cluster, deep=True)
    assert {str(f.reason) for f in deep.findings} == {"key_unavailable"}
    assert "bytes are as sealed" in deep.findings[0].detail
    with pytest.raises(KeyUnavailableError, match="has no key 'new'"):
        republish(archive, make_topic(partitions=2))


def test_encrypted_window(
    archive_folder: str,
    have: Callable[..., None],
    drain: Any,
    backfill: Callable[..., Any],
    cluster: Any,
    make_topic: Any,
    send: Any,
) -> None:
    """A backfill encrypts its window's files as a drain does, and is proven with the key."""
    source = make_topic(partitions=1)
    midnight = datetime(2026, 1, 1, tzinfo=timezone.utc)
    first = round(midnight.timestamp() * 1000)
    send(source, [(*record[:3], first + record[3]) for record in RECORDS])
    send(source, [(b"later", None, None, first + 7_200_000)])
    pipeline = Pipeline(
        name="secret",
        topics=[source],
        archive=archive_folder,
        encryption=OLD,
        source_options={"startingOffsets": "latest"},
    )
    archive = Archive.at(archive_folder)
    have("old")
    drain(pipeline)

    backfill(pipeline, Interval(midnight, midnight + timedelta(hours=1)))

    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.findings) == (True, [])
    [file] = archive_files(archive.snapshot())
    assert file.path.startswith("windows/")
    assert not [secret for secret in SECRETS if secret in _bytes_of(archive_folder)]
    assert len(list_folder(archive.root / "keys")) == 1
