"""What an archive needs of an object store, on each: creation and replacement on a condition.

`make test-azure-gcs` runs it on Azure's and Google's, by servers that speak their protocols,
`make test-hdfs` on an HDFS.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.maintenance.maintain import plan_maintenance
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.conditional_writes import version_of
from kafka_drain.storage.immutability import Immutability, ObjectLock
from kafka_drain.storage.json_files import create_text, replace_document
from kafka_drain.storage.lease import Lease, find_lease
from kafka_drain.storage.object_retention import StoreLocks, require_lockable
from kafka_drain.storage.paths import locate
from kafka_drain.storage.schemes import HDFS
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.racing import take_at_once

pytestmark = pytest.mark.integration

PARTITION = TopicPartition("t", 0)


@pytest.fixture(
    params=[
        "s3",
        pytest.param("azure", marks=pytest.mark.store),
        pytest.param("gcs", marks=pytest.mark.store),
        pytest.param("hdfs", marks=pytest.mark.store),
    ]
)
def root(request: pytest.FixtureRequest, bucket_in: Callable[[str], str]) -> UPath:
    """A folder in a new bucket of each store; this process's environment opens it."""
    return locate(f"{bucket_in(request.param)}/archive")


def test_create_text(root: UPath) -> None:
    """The second writer changes nothing."""
    path = root / "receipt.json"

    assert create_text(path, "first")
    assert not create_text(path, "second")
    assert create_text(path, "first")
    assert path.read_text() == "first"


def test_replace_document(root: UPath) -> None:
    """What was written since it was read isn't overwritten, nor is what is gone written again."""
    if root.protocol == HDFS:
        pytest.skip("HDFS replaces nothing on a condition; its lease is a chain of files")
    path = root / "lock.json"
    path.write_text("{}")
    seen = version_of(path)

    assert seen is not None
    assert replace_document(path, {"by": 1}, seen)
    assert not replace_document(path, {"by": 2}, seen)
    assert json.loads(path.read_text()) == {"by": 1}
    path.unlink()
    assert not replace_document(path, {"by": 3}, seen)
    assert not path.exists()


def test_require_lockable_refused(root: UPath) -> None:
    """A bucket that wasn't made to lock objects is refused; what lies in it is seen as free.

    Neither Azurite nor fake-gcs-server can lock an object, so that more can't be shown there.
    """
    if root.protocol == HDFS:
        pytest.skip("HDFS locks no files, which a pipeline says before it is asked")
    (root / "x").write_text("x")

    with pytest.raises(ArchiveError, match=r"can't lock files.*immutable_days.*was drained"):
        require_lockable(root, Immutability("governance", 1))

    assert StoreLocks(root, "look").held(["x", "gone"]) == {"x": ObjectLock(1)}


def test_create_text_no_bucket(root: UPath) -> None:
    """Where there is no bucket, an error says so, and nothing is taken for written."""
    if root.protocol == HDFS:
        pytest.skip("HDFS makes the folders that are missing")
    bucket = root.path.strip("/").partition("/")[0]
    path = locate(f"{root.protocol}://{bucket}-none/archive/receipt.json")

    with pytest.raises(ArchiveError, match="can't be written"):
        create_text(path, "first")


@pytest.mark.parametrize("is_stale", [False, True])
def test_lease_many_at_once(root: UPath, is_stale: bool) -> None:
    """Of many takers at the same moment exactly one gets the lease, new or run out."""
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def taker(name: str, at: datetime) -> Lease:
        return Lease(root, run=name, seconds=60, clock=lambda: at)

    if is_stale:
        taker("dead", now - timedelta(minutes=5)).acquire()
    takers = [taker(str(number), now) for number in range(6)]

    won, refused = take_at_once(takers)

    found = find_lease(root)
    assert found is not None
    assert won == [found.token]
    assert len(refused) == len(takers) - 1


def test_lease_shared(root: UPath, said: list[str]) -> None:
    """A driver and its caller that renew their lease at the same moment both keep it."""
    caller = Lease(root, run="r")
    caller.acquire()
    driver = Lease(root, run="r", token=caller.token)
    driver.acquire()

    def renew(lease: Lease) -> None:
        for _ in range(20):
            lease.renew()

    threads = [threading.Thread(target=renew, args=(lease,)) for lease in (caller, driver)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (said, caller.lost.is_set(), driver.lost.is_set()) == ([], False, False)
    caller.release()
    driver.renew()
    assert driver.lost.is_set()


def test_validate(root: UPath, tmp_path: Path) -> None:
    """An archive is judged as its copy on a disk; each validation finds a file that is gone."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    for start in (0, 50):
        made.seal({PARTITION: dense(start, start + 50)})
    root.fs.put(str(made.root), root.path, recursive=True)
    cluster: Any = FakeCluster({PARTITION: Log(first=100, end=100)}, topic_ids={"t": "id"})

    def findings_in(archive: Archive) -> list[Finding]:
        return validate_archive(archive, cluster, deep=True).findings

    archive = Archive.at(str(root))
    before = findings_in(archive)
    assert before == findings_in(made.archive)
    data = sorted(path for path in root.fs.find(root.path) if path.endswith(".parquet"))
    root.fs.rm_file(data[0])
    after = [findings_in(archive) for _ in range(2)]

    assert after[0] == after[1]
    new = {finding.reason for finding in after[0]} - {finding.reason for finding in before}
    assert new == {Reason.FILE_MISSING, Reason.OFFSET_MISSING}


def test_republish(root: UPath, tmp_path: Path, republish: Any, make_topic: Any, read: Any) -> None:
    """Workers send what a store holds exactly once; what is too old is planned for deletion."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    for start in (0, 50):
        made.seal({PARTITION: dense(start, start + 50)})
    made.open_generation()
    root.fs.put(str(made.root), root.path, recursive=True)
    archive, target = Archive.at(str(root)), make_topic(partitions=1)

    sent = [republish(archive, target)["records_sent"] for _ in range(2)]

    assert sent == [100, 0]
    assert [key for key, *_ in read(target)[0]] == [b"%d" % n for n in range(100)]
    by_age = Pipeline(name="made", topics=["t"], archive=str(root), retention_days=1)
    [deletion] = plan_maintenance(by_age).deletions
    assert len(deletion.files) == 2
