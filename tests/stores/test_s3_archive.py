"""An archive on S3 holds what a local one holds, and survives the same faults."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.drills import read_drills
from kafka_drain.archive.frozen_plan import PlanState
from kafka_drain.archive.frozen_plans import list_plans, state_of
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, ConfigError, LockedError, StoreUnavailableError
from kafka_drain.intervals import Interval
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.unlock import list_leases, remove_lease
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.report import Report
from kafka_drain.proof.validation import validate_archive
from kafka_drain.reading import archive_dataset
from kafka_drain.republish.planning.openings import claim_opening
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.schemas.decoding import ValuePlan
from kafka_drain.schemas.registry import WriterSchema
from kafka_drain.storage.lease import Lease
from kafka_drain.storage.paths import locate
from kafka_drain.windows.manifest_rebuild import rebuild_manifest
from tests.conftest import Drain
from tests.faults.injection import wait_for
from tests.integration.command_line import Ended, kafka_drain, start_kafka_drain
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense
from tests.kafka_drain.republish.planning.test_previous_runs import plan_of
from tests.racing import take_at_once
from tests.security.watching import command_lines_with, files_with
from tests.stores.conftest import RECORDS, numbered

pytestmark = pytest.mark.integration


def pipeline_of(topic: str, archive: str, **options: Any) -> Pipeline:
    """Drains in several batches."""
    several = {"maxOffsetsPerTrigger": RECORDS}
    return Pipeline(name="p", topics=[topic], archive=archive, source_options=several, **options)


@pytest.fixture
def drained(topic: str, bucket: str, drain: Drain) -> Pipeline:
    """The pipeline of an archive on S3 with two batches, which no validation has sealed."""
    pipeline = pipeline_of(topic, f"{bucket}/folder/archive")
    assert drain(pipeline)["batches"] == 2
    return pipeline


def rows(archive: str) -> pa.Table:
    """Return all records of an archive, in the order of their offsets."""
    return (
        archive_dataset(archive)
        .to_table()
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
    )


def contents(folder: UPath) -> dict[str, bytes]:
    """Return the objects in a folder by name; S3A makes an empty one for the folder itself."""
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}


def reasons(report: Report) -> set[str]:
    return {str(finding.reason) for finding in report.findings}


@pytest.mark.store
def test_archive_on_s3_equals_local(
    topic: str,
    bucket: str,
    tmp_path: Path,
    drain: Drain,
    send: Any,
    read: Any,
    make_topic: Any,
    republish: Any,
    cluster: KafkaCluster,
) -> None:
    """The same offsets, records, fingerprints and verdicts; what is sent back is the same too."""
    places = [str(tmp_path / "archive"), f"{bucket}/folder/archive"]
    local, remote = map(Archive.at, places)
    for round_ in range(2):
        if round_:
            send(topic, numbered(RECORDS), partition=1)
        for place in places:
            assert drain(pipeline_of(topic, place))["records"] == (
                RECORDS if round_ else 2 * RECORDS
            )
            assert drain(pipeline_of(topic, place))["records"] == 0
            assert validate_archive(Archive.at(place), cluster).complete

    ours, theirs = list(local.generation(1).receipts()), list(remote.generation(1).receipts())

    assert rows(places[0]).num_rows == 3 * RECORDS
    assert rows(places[1]).equals(rows(places[0]))
    assert [r.partitions for r in theirs] == [r.partitions for r in ours]
    assert [r.fingerprint for r in theirs] == [r.fingerprint for r in ours]
    deep = [validate_archive(archive, cluster, deep=True) for archive in (local, remote)]
    assert [report.summary()["verdict"] for report in deep] == ["complete", "complete"]
    assert deep[0].findings == deep[1].findings == []
    target = make_topic(partitions=2)
    assert republish(remote, target)["records"] == 3 * RECORDS
    assert read(target) == read(topic)


@pytest.mark.store
@pytest.mark.parametrize("file_format", ["parquet", "avro", "json"])
def test_republish_on_s3_reads_once(
    file_format: str,
    topic: str,
    bucket: str,
    drain: Drain,
    make_topic: Any,
    republish: Any,
    cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planning, sending and verifying ask for a small file once each, by one request for all of it.

    Planning compares the sizes of records with the target's limit, by a Parquet file's footer; it
    doesn't look for NULs, as the receipts say that no header's name has one. What is sent is hashed
    from the bytes that it is read from.
    """
    from s3fs.core import S3File

    pipeline = pipeline_of(topic, f"{bucket}/folder/archive", format=file_format)
    drain(pipeline)
    archive = Archive.at(pipeline.archive)
    assert validate_archive(archive, cluster).complete
    files = [file for receipt in archive.generation(1).receipts() for file in receipt.files]
    assert {file.nul_header_names for file in files} == {False}
    asked: list[tuple[str, int, int]] = []
    fetch = S3File._fetch_range

    def fetch_range(self: S3File, start: int, end: int) -> bytes:
        found: bytes = fetch(self, start, end)
        asked.append((self.path, start, start + len(found)))
        return found

    monkeypatch.setattr(S3File, "_fetch_range", fetch_range)

    sent = republish(archive, make_topic(partitions=2))

    assert sent["records"] == 2 * RECORDS
    once = [(f"{archive.root.path}/{file.path}", 0, file.bytes) for file in files]
    assert sorted(asked) == sorted(3 * once)


@pytest.mark.store
def test_manifest_rebuild_killed_on_s3(drained: Pipeline, cluster: KafkaCluster) -> None:
    """Killed after any of its writes, it does the rest when it is run again."""
    archive = Archive.at(drained.archive)
    assert validate_archive(archive, cluster).complete
    manifest = archive.generation(1).data / "_spark_metadata"
    rebuild_manifest(archive.generation(1))
    whole = contents(manifest)
    for name in whole:
        (manifest / name).unlink()

        rebuild_manifest(archive.generation(1))

        assert contents(manifest) == whole


@pytest.mark.store
def test_backfill_to_s3(
    topic: str, bucket: str, drain: Drain, backfill: Callable[..., Any], cluster: KafkaCluster
) -> None:
    """A window's files are committed without renames, and sealed."""
    latest = {"startingOffsets": "latest"}
    pipeline = pipeline_of(topic, f"{bucket}/archive").model_copy(update={"source_options": latest})
    assert drain(pipeline)["records"] == 0
    day = datetime(2013, 1, 1, tzinfo=timezone.utc)

    backfill(pipeline, Interval(day, day + timedelta(days=1)))

    archive = Archive.at(pipeline.archive)
    assert [window.is_sealed for window in archive.snapshot().windows] == [True]
    assert rows(pipeline.archive).num_rows == 2 * RECORDS
    assert validate_archive(archive, cluster, scope="all", deep=True).complete


YEARS = timedelta(days=1_200)


@pytest.mark.parametrize("ahead", [YEARS, -YEARS], ids=["from-future", "ran-out"])
def test_unlock_on_s3(bucket: str, ahead: timedelta) -> None:
    """A lease that nobody renews is shown, then removed; the next writer finds none."""
    root = locate(f"{bucket}/archive")
    now = datetime.now(timezone.utc)
    left = Lease(root, run="left", seconds=60, clock=lambda: now + ahead)
    left.acquire()
    (held,) = list_leases(root)
    shown = held.to_dict()

    remove_lease(held, wait=lambda _: None)

    assert (shown["run"], shown["lease"]) == ("left", f"{bucket}/archive/lock.json")
    assert shown["seconds_left"] == pytest.approx(ahead.total_seconds() + 60, abs=60)
    # The store's own clock tells when it was written.
    assert abs(datetime.fromisoformat(shown["written_at"]) - now) < timedelta(minutes=5)
    assert list(list_leases(root)) == []


@pytest.mark.parametrize("ahead", [YEARS, -YEARS], ids=["from-future", "ran-out"])
def test_unlock_on_s3_holder_alive(bucket: str, ahead: timedelta) -> None:
    """The lease of a holder that renews it stays, whichever machine's clock is wrong."""
    root = locate(f"{bucket}/archive")
    moments = iter(range(100))
    now = datetime.now(timezone.utc)
    holder = Lease(
        root, run="alive", seconds=60, clock=lambda: now + ahead + timedelta(seconds=next(moments))
    )
    holder.acquire()
    (held,) = list_leases(root)

    with pytest.raises(LockedError, match="alive"):
        remove_lease(held, wait=lambda _: holder.renew())

    assert json.loads((root / "lock.json").read_text())["token"] == holder.token
    assert not holder.lost.is_set()


def test_takers_of_lease_from_future_on_s3(bucket: str) -> None:
    """Of many takers of a lease from the future exactly one gets it."""
    root = locate(f"{bucket}/archive")
    now = datetime.now(timezone.utc)
    Lease(root, run="left", seconds=60, clock=lambda: now + YEARS).acquire()
    watched = threading.Barrier(4)

    def wait(_: float) -> None:
        # All have seen the same lease when the first one takes it.
        watched.wait(20)

    takers = [Lease(root, run=str(n), seconds=60, wait=wait) for n in range(4)]
    won, refused = take_at_once(takers)

    assert won == [json.loads((root / "lock.json").read_text())["token"]]
    assert len(refused) == 3


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, StoreUnavailableError, "AWS_ENDPOINT_URL"),
        (
            {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
            ArchiveError,
            "set AWS_ACCESS_KEY_ID",
        ),
    ],
    ids=["away", "no credentials"],
)
def test_store_out_of_reach(
    changes: dict[str, str | None],
    error: type[Exception],
    match: str,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is wrong with the store is said plainly, and by its type whether a retry can help."""
    import s3fs

    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in changes.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()

    with pytest.raises(error, match=match):
        Archive.at(f"{bucket}/archive").require()


def test_bucket_missing(bucket: str) -> None:
    """A bucket is never made: a wrong name would make one that nobody looks at."""
    with pytest.raises(ArchiveError, match="s3://none-such doesn't exist; create the bucket"):
        Archive.at("s3://none-such/archive").require()


@pytest.mark.store
def test_commands_on_s3(topic: str, bucket: str, bootstrap_servers: str, tmp_path: Path) -> None:
    """With AWS's variables, commands work; the secret is on no command line and in no file."""
    archive = f"{bucket}/archive"
    spark = ("--master", "local[2]")

    def run(command: str, *arguments: object) -> Ended:
        kafka = ("--bootstrap-servers", bootstrap_servers)
        ended = kafka_drain(
            command, archive, *kafka, *arguments, environment={"TMPDIR": str(tmp_path)}
        )
        assert ended.code == 0, ended.err
        assert "not-in-any-log" not in ended.out + ended.err
        return ended

    with command_lines_with("not-in-any-log") as command_lines:
        run("drain", "--topic", topic, "--source-option", "maxOffsetsPerTrigger=40", *spark)
        run("validate")
        run("roll")
        compacted = json.loads(run("maintain", "--apply", "--json", *spark).out)

    assert command_lines == set()
    assert files_with("not-in-any-log", tmp_path) == {}
    assert rows(archive).num_rows == 2 * RECORDS
    assert (compacted["files_before"], compacted["files_after"]) == (4, 1)


def test_republish_openings_on_s3(bucket: str) -> None:
    """Of two republishes with the same records, one opens, on S3 too."""
    root = locate(f"{bucket}/archive")
    first, second = plan_of("first"), plan_of("second")
    for plan in (first, second):
        RepublishRun(root, plan.key).write_plan(plan)
    claim = claim_opening(root, first, repeat=False)

    claim_opening(root, second, repeat=False).confirm()

    with pytest.raises(ConfigError, match="run second started to send"):
        claim.confirm()
    with pytest.raises(ConfigError, match="run second started to send"):
        claim_opening(root, first, repeat=False)


def uploaded(folder: Path, url: str) -> UPath:
    """Copy an archive to a store; return its folder there."""
    root = Archive.at(url).root
    for path in folder.rglob("*"):
        if path.is_file():
            (root / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())
    return root


@pytest.mark.store
def test_approved_plans_on_s3(
    bucket: str, tmp_path: Path, cluster: KafkaCluster, make_topic: Any, read: Any
) -> None:
    """Plans are frozen on S3, shown, and carried out; killed, the next run ends exactly the plan.

    A plan that was carried out does nothing more.
    """
    made = MadeArchive(tmp_path / "archive", {"orders": "id-1"}, cluster.cluster_id())
    for batch in range(2):
        made.seal({TopicPartition("orders", 0): dense(batch * RECORDS, (batch + 1) * RECORDS)})
    made.open_generation()
    url = f"{bucket}/archive"
    root = uploaded(tmp_path / "archive", url)
    target = make_topic()
    servers = ("--bootstrap-servers", cluster.config.bootstrap_servers)

    def run(command: str, *flags: object) -> Any:
        ended = kafka_drain(command, url, *servers, "--json", *flags)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    # It takes four seconds.
    slow = ("--records-per-second", RECORDS // 2)
    sends = run("republish", "--target-topic", target, *slow, "--freeze")["plan_id"]
    by_age = ("--retention-days", 1, "--max-generation-days", 10_000)
    deletes = run("maintain", *by_age, "--freeze")["plan_id"]
    assert list_plans(root) == [deletes, sends]
    assert run("republish", "--plan", sends)["records"] == 2 * RECORDS
    assert not any(read(target).values())

    tp = TopicPartition(target, 0)
    carry_out = ("republish", url, *servers, "--plan", sends, "--apply")
    killed = start_kafka_drain(tmp_path, *carry_out)
    wait_for(lambda: cluster.latest([tp], "read_uncommitted")[tp] > 0, "a record")
    assert cluster.latest([tp], "read_committed")[tp] == 0
    killed.kill()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL

    sent = [run("republish", "--plan", sends, "--apply")["records_sent"] for _ in range(2)]
    assert sent == [2 * RECORDS, 0]
    assert len(read(target)[0]) == 2 * RECORDS
    removed = [run("maintain", "--plan", deletes, "--apply").get("files_removed") for _ in range(2)]
    assert removed == [2, None]
    assert state_of(root, deletes) is PlanState.DONE


def test_drill_on_s3(bucket: str, tmp_path: Path, cluster: KafkaCluster) -> None:
    """A drill of an archive on S3 restores, decodes and keeps its result; a bad schema fails it."""
    made = MadeArchive(tmp_path / "archive", {"orders": "id-1"})
    made.seal({TopicPartition("orders", 0): dense(0, RECORDS)}, value=b"\0\0\0\0\7\x0a")
    made.open_generation()
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    ValuePlan(schemas={7: WriterSchema(7, schema)}, changed=True).keep(made.root, NOW)
    url = f"{bucket}/folder/archive"
    root = uploaded(tmp_path / "archive", url)
    before = cluster.topic_names()
    command = ("drill", url, "--to-bootstrap", cluster.config.bootstrap_servers)
    command += ("--sample", "whole")

    assert kafka_drain(*command).code == 0
    (root / "schemas.json").write_text((root / "schemas.json").read_text().replace("long", "int"))
    for _ in range(2):
        assert kafka_drain(*command).code == 1

    first, *others = read_drills(root)
    assert (first.verdict, first.records, first.problems) == ("passed", RECORDS, [])
    assert first.decoded is not None
    assert first.decoded.decoded == RECORDS
    for drill in others:
        [problem] = drill.problems
        assert (problem.step, problem.error) == ("decode", "SchemaError")
        assert "schema_changed: schemas.json: schema 7: changed" in problem.detail
    assert cluster.topic_names() == before
