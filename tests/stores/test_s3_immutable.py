"""An archive on S3 whose bucket locks what is sealed: drained, maintained, erased, deleted from."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest
import s3fs
from botocore.exceptions import ClientError

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Reason
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.compact import SPARK_CONF
from kafka_drain.maintenance.erase import plan_erasure, run_erasure
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.maintenance.maintain import plan_maintenance, run_maintenance
from kafka_drain.proof.validation import validate_archive
from kafka_drain.reading import archive_dataset
from kafka_drain.spark.job_spec import CompactSpec, write_private
from kafka_drain.spark.submit import SparkApplication, spark_version
from kafka_drain.storage.immutability import Immutability
from kafka_drain.storage.json_files import create_text
from kafka_drain.storage.object_retention import StoreLocks, retain
from tests.conftest import Drain
from tests.integration.command_line import kafka_drain
from tests.s3_server import CREDENTIALS, VARIABLE, session_for

pytestmark = pytest.mark.integration

DAYS = 30
RECORDS = 20
NEW_YEAR = 1_767_225_600_000  # 2026-01-01 UTC, in milliseconds

#: See docs/limits.md.
sends_checksums = pytest.mark.skipif(
    spark_version() < (4, 1), reason="Spark sends checksums to S3 since 4.1"
)
#: Versity's gateway takes a deletion marker for an object where S3 doesn't: a lease that was
#: released in a bucket that keeps versions can't be taken again. And no bucket locks by default.
not_on_versity = pytest.mark.skipif(
    VARIABLE in os.environ, reason="Versity's gateway 1.8.0 can't do that"
)


@pytest.fixture
def client(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server, which this process's environment opens."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    return boto3.client("s3", region_name="us-east-1")


@pytest.fixture
def bucket(client: Any) -> str:
    """A new bucket with Object Lock, which locks nothing by itself."""
    name = f"locked-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


def pipeline_of(topic: str, bucket: str, **options: Any) -> Pipeline:
    """A pipeline that locks what is sealed."""
    options = {"immutable_days": DAYS, **options}
    return Pipeline(name="p", topics=[topic], archive=f"s3://{bucket}/folder/archive", **options)


@pytest.fixture
def fill(
    make_topic: Any, send: Any, bucket: str, drain: Drain, cluster: KafkaCluster
) -> Callable[[int], Pipeline]:
    """Make an archive of sealed batches, each of which is a file."""

    def made(batches: int) -> Pipeline:
        pipeline = pipeline_of(make_topic(partitions=1), bucket)
        [topic] = pipeline.topics or []
        for first in range(0, batches * RECORDS, RECORDS):
            send(
                topic,
                [(b"k%d" % n, b"v", None, NEW_YEAR + n) for n in range(first, first + RECORDS)],
            )
            drain(pipeline)
            assert validate_archive(Archive.at(pipeline.archive), cluster).complete
        return pipeline

    return made


@pytest.fixture
def runner(spark: Any) -> Callable[[SparkApplication], None]:
    """Run a compaction in the shared Spark, which is told how to open the bucket."""
    from kafka_drain_spark.compact import run_compact

    def run(application: SparkApplication) -> None:
        spec = CompactSpec.read(application.specs[0])
        session = session_for(spark, str(spec.path), dict(os.environ))
        for name, value in SPARK_CONF.items():
            session.conf.set(name, value)
        write_private(Path(spec.result_path), run_compact(session, spec))

    return run


def keys_of(client: Any, bucket: str) -> dict[str, str]:
    """Return the id of the only version of each object, or of the newest."""
    pages = client.get_paginator("list_object_versions").paginate(Bucket=bucket)
    return {
        each["Key"]: each["VersionId"]
        for page in pages
        for each in page.get("Versions", ())
        if each["IsLatest"]
    }


def locks_of(client: Any, bucket: str) -> dict[str, tuple[str, datetime]]:
    """Return mode and end of each object that is locked."""
    said = {key: client.head_object(Bucket=bucket, Key=key) for key in keys_of(client, bucket)}
    return {
        key: (head["ObjectLockMode"], head["ObjectLockRetainUntilDate"])
        for key, head in said.items()
        if "ObjectLockMode" in head
    }


def is_sealed(key: str) -> bool:
    """Whether an object is a data file or a receipt."""
    name = key.rpartition("/")[2]
    is_receipt = "/receipts/" in key or name == "receipt.json"
    return name.startswith("part-") or (is_receipt and "/copies/" not in key)


@pytest.mark.store
@not_on_versity
def test_immutable_archive(
    fill: Callable[[int], Pipeline],
    bucket: str,
    client: Any,
    cluster: KafkaCluster,
    runner: Callable[[SparkApplication], None],
    said: list[str],
) -> None:
    """Sealed files and receipts can't be deleted; what is replaced goes when it is free (355).

    Nothing else is locked. A deletion without a version is found, and its marker is removed.
    """
    filled = fill(3)
    archive = Archive.at(filled.archive)
    started = datetime.now(timezone.utc)

    def maintain(days: int) -> dict[str, Any]:
        later = started + timedelta(days=days)
        return run_maintenance(filled, cluster, runner, run="tests", clock=lambda: later)

    def is_complete() -> bool:
        return validate_archive(archive, cluster, deep=True).complete

    # what is locked
    keys, locks = keys_of(client, bucket), locks_of(client, bucket)
    assert locks.keys() == {key for key in keys if is_sealed(key)}
    assert len(locks) == 6
    assert {mode for mode, _ in locks.values()} == {"GOVERNANCE"}
    ends = [until for _, until in locks.values()]
    assert abs(min(ends) - started - timedelta(days=DAYS)) < timedelta(minutes=5)

    # what is too old isn't planned for deletion before it is free
    short = Pipeline(**(filled.model_dump() | {"retention_days": 1}))
    soon = plan_maintenance(short, clock=lambda: started + timedelta(days=10))
    late = plan_maintenance(short, clock=lambda: started + timedelta(days=DAYS + 1))
    assert soon.deletions == late.held == []
    [held] = soon.held
    assert held.startswith(f"3 files, locked until {min(ends):%Y-%m-%d}")
    assert held.endswith("which are past retention_days")
    assert sum(len(deletion.files) for deletion in late.deletions) == 3

    # maintenance keeps what it replaces
    old = [file.path for file in archive_files(archive.snapshot())]
    assert len(old) == 3
    figures = maintain(10)
    assert figures["locked_files"] == 3
    assert figures["locked_until"] == max(ends).isoformat()
    assert any(f"keeping 3 files, locked until {min(ends):%Y-%m-%d}" in line for line in said)
    assert all((archive.root / path).is_file() for path in old)
    assert [file.path in old for file in archive_files(archive.snapshot())] == [False]
    assert archive_dataset(filled.archive).count_rows() == 3 * RECORDS
    assert is_complete()
    locked = locks_of(client, bucket)
    assert locked.keys() == {key for key in keys_of(client, bucket) if is_sealed(key)}

    # an attempt to delete
    [live] = archive_files(archive.snapshot())
    versions = keys_of(client, bucket)
    key = f"folder/archive/{live.path}"
    for each in locked:
        with pytest.raises(ClientError, match=r"Access\s?Denied|Object\s?Lock"):
            client.delete_object(Bucket=bucket, Key=each, VersionId=versions[each])
    client.delete_object(Bucket=bucket, Key=key)
    report = validate_archive(archive, cluster, deep=True)
    assert Reason.FILE_MISSING in {finding.reason for finding in report.findings}
    [marker] = client.list_object_versions(Bucket=bucket, Prefix=key)["DeleteMarkers"]
    client.delete_object(Bucket=bucket, Key=key, VersionId=marker["VersionId"])
    assert is_complete()

    # time passes
    assert maintain(DAYS + 1)["locked_files"] == 0
    assert not any((archive.root / path).is_file() for path in old)
    assert [file.path for file in archive_files(archive.snapshot())] == [live.path]
    assert is_complete()


@pytest.mark.store
@not_on_versity
def test_immutable_archive_erased(
    fill: Callable[[int], Pipeline],
    bucket: str,
    client: Any,
    cluster: KafkaCluster,
    runner: Callable[[SparkApplication], None],
    said: list[str],
) -> None:
    """An erasure says what lies there until when, and isn't complete before (356)."""
    filled = fill(1)
    archive = Archive.at(filled.archive)
    request = ErasureRequest("r1", "tests", keys=frozenset({b"k3"}))

    plan = plan_erasure(filled, cluster, request)
    assert plan.locked.files == 1
    assert any("isn't complete while the store keeps 1 files" in line for line in plan.lines())
    figures = run_erasure(filled, cluster, runner, request, run="tests")

    until = locks_of(client, bucket)[f"folder/archive/{plan.rewrites[0].files[0].path}"][1]
    assert (figures["erased"], figures["locked_files"]) == (1, 1)
    assert figures["locked_until"] == until.isoformat()
    assert any("isn't complete while the store keeps 1 files" in line for line in said)
    assert archive_dataset(filled.archive).count_rows() == RECORDS - 1
    again = run_erasure(filled, cluster, runner, None, run="tests")
    assert (again["windows"], again["locked_files"]) == ([], 1)
    # Somebody who may ends the lock.
    key = f"folder/archive/{plan.rewrites[0].files[0].path}"
    client.put_object_retention(
        Bucket=bucket, Key=key, Retention={}, BypassGovernanceRetention=True
    )
    later = run_erasure(filled, cluster, runner, None, run="tests")
    assert later["locked_files"] == 0
    assert not (archive.root / plan.rewrites[0].files[0].path).is_file()


def lock_by_default(client: Any, bucket: str) -> None:
    """Have a bucket lock all that is written to it."""
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    client.put_object_lock_configuration(
        Bucket=bucket,
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule},
    )


@pytest.mark.store
@not_on_versity
@sends_checksums
@pytest.mark.parametrize("is_locked", [True, False])
def test_spark_writes_where_all_is_locked(
    is_locked: bool, spark: Any, bucket: str, client: Any
) -> None:
    """A bucket that locks by default takes Spark's files with a checksum, and none without."""
    from kafka_drain_spark.session import SPARK_ERRORS

    lock_by_default(client, bucket)
    folder = f"s3a://{bucket}/folder"
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.unset("fs.s3a.create.checksum.algorithm")
    session = session_for(spark, folder, dict(os.environ), is_locked=is_locked)
    rows = session.range(10)

    if is_locked:
        rows.write.parquet(folder)
        # The server doesn't lock what comes in parts, as the data files do.
        assert "folder/_SUCCESS" in locks_of(client, bucket)
        assert session.read.parquet(folder).count() == 10
        return
    with pytest.raises(SPARK_ERRORS, match="checksum-algorithm header required"):
        rows.write.parquet(folder)


@pytest.mark.store
@not_on_versity
@sends_checksums
def test_immutable_archive_default_retention(
    make_topic: Any,
    send: Any,
    bucket: str,
    client: Any,
    cluster: KafkaCluster,
    bootstrap_servers: str,
) -> None:
    """A bucket that locks all by itself is drained to; what is sealed is locked for longer.

    By a Spark of its own: the shared one makes a checkpoint by a copy, of which the server wants a
    checksum too.
    """
    lock_by_default(client, bucket)
    topic = make_topic(partitions=1)
    pipeline = pipeline_of(topic, bucket)
    send(topic, [(b"k", b"v", None, NEW_YEAR)] * RECORDS)

    drained = kafka_drain(
        *("drain", pipeline.archive, "--topic", topic),
        *("--bootstrap-servers", bootstrap_servers),
        *("--immutable-days", str(DAYS), "--immutable-mode", "compliance"),
    )

    assert drained.code == 0, drained.err
    assert validate_archive(Archive.at(pipeline.archive), cluster).complete
    locks = locks_of(client, bucket)
    sealed = {key for key in locks if is_sealed(key)}
    assert len(sealed) == 2
    assert {locks[key][0] for key in sealed} == {"COMPLIANCE"}
    others = locks.keys() - sealed
    assert {locks[key][0] for key in others} == {"GOVERNANCE"}
    assert any("/checkpoint/" in key for key in others)
    assert min(locks[key][1] for key in sealed) > max(locks[key][1] for key in others)
    assert archive_dataset(pipeline.archive).count_rows() == RECORDS


@pytest.mark.store
def test_immutable_archive_no_object_lock(
    make_topic: Any, client: Any, drain: Drain, cluster: KafkaCluster
) -> None:
    """A bucket that can't lock is refused before anything is drained, with what to do."""
    name = f"plain-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=name)

    with pytest.raises(ArchiveError, match=r"it has no Object Lock.*create-bucket.*was drained"):
        drain(pipeline_of(make_topic(), name))

    assert keys_of(client, name) == {}


def test_store_locks_legal_hold(bucket: str, client: Any) -> None:
    """A hold that somebody else has put on an object is seen, and that it has no end."""
    root = Archive.at(f"s3://{bucket}/a").root
    for name in ("held", "free"):
        (root / name).write_text(name)
    client.put_object_legal_hold(Bucket=bucket, Key="a/held", LegalHold={"Status": "ON"})
    locks = StoreLocks(root, "look")

    assert locks.locked(["held", "free", "gone"]).keys() == {"held"}
    assert locks.summary(["held", "free"]).on_hold == 1
    assert locks.held(["held", "free", "gone"]).keys() == {"held", "free"}


def test_retain_in_bucket(bucket: str, client: Any) -> None:
    """Locked files and a receipt can't be deleted by version; a second lock changes nothing."""
    root = Archive.at(f"s3://{bucket}/a").root
    now = datetime.now(timezone.utc)
    locks = Immutability("governance", DAYS)
    for name in ("one", "two"):
        (root / name).write_text(name)

    found = [retain(root, ["one"], locks, now=now) for _ in range(2)]
    assert found == [locks.from_now(now)] * 2
    assert create_text(root / "receipt.json", "{}", found[0])
    assert not create_text(root / "receipt.json", "[]", found[0])
    stronger = Immutability("compliance", 1)
    retain(root, ["one", "two"], stronger, now=now)

    until = locks.from_now(now).until
    soon = stronger.from_now(now).until
    assert locks_of(client, bucket) == {
        "a/one": ("COMPLIANCE", until),
        "a/receipt.json": ("GOVERNANCE", until),
        "a/two": ("COMPLIANCE", soon),
    }
    for key, version in keys_of(client, bucket).items():
        with pytest.raises(ClientError, match=r"Access\s?Denied|Object\s?Lock|WORM"):
            client.delete_object(Bucket=bucket, Key=key, VersionId=version)
