"""How many requests a command sends to an object store: each one costs money and 20 to 100 ms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.looking import look_at
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.run import plan_republish
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.golden import P0, golden_cluster, sealed_copy

#: Whether `iterdir` asks twice for a folder that doesn't exist.
ASKS_AGAIN = version("universal-pathlib").startswith("0.2.")


@pytest.fixture
def archive(tmp_path: Path, bucket: str) -> Archive:
    """The golden archive in a store: 14 batches in 3 receipts and 28 files, all sealed.

    The checkpoint has the files of three batches, and the manifest five files that count.
    """
    source = sealed_copy(tmp_path / "archive")
    validate_archive(source, golden_cluster())  # type: ignore[arg-type]
    archive = Archive.at(f"{bucket}/archive")
    place = f"s3a://{bucket.removeprefix('s3://')}/archive".encode()
    for path in (tmp_path / "archive").rglob("*"):
        # A store has no checksum files.
        if path.is_file() and path.suffix != ".crc":
            content = path.read_bytes().replace(b"file:///tmp/golden", place)
            (archive.root / str(path.relative_to(tmp_path / "archive"))).write_bytes(content)
    return archive


@contextmanager
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the requests to the store, by operation; they are sent all the same."""
    import s3fs

    sent: Counter[str] = Counter()
    call = s3fs.S3FileSystem._call_s3

    async def counted(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        sent[method] += 1
        return await call(self, method, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
        yield sent


def validate(archive: Archive) -> None:
    """Validate the open generation with nothing new."""
    assert validate_archive(archive, golden_cluster(), scope="open").complete  # type: ignore[arg-type]


def validate_all(archive: Archive) -> None:
    """Validate all receipts with nothing new."""
    assert validate_archive(archive, golden_cluster()).complete  # type: ignore[arg-type]


def drain(archive: Archive) -> None:
    """Check that a drain may run: once before it takes the lease, and again under it."""
    document = archive.snapshot().document
    pipeline = Pipeline(
        name=document.pipeline,
        topics=list(document.topics),
        archive=str(archive.root),
        partition_by=["topic"],
    )
    for _ in range(2):
        preflight(pipeline, golden_cluster())  # type: ignore[arg-type]


def republish(archive: Archive) -> None:
    """Plan a republish of everything, whose records' sizes only the files say."""
    document = archive.snapshot().document
    cluster: Any = FakeCluster(
        {**golden_cluster().logs, **{type(P0)("copy", p): Log() for p in (0, 1)}},
        id=document.cluster_id,
        topic_ids=document.topics,
        configs={"copy": {"retention.ms": "-1"}},
    )
    request = RepublishRequest(target_topic="copy")
    plan_republish(archive, cluster, request, now=utc_now(), apply=False)


def list_files(archive: Archive) -> None:
    """List the files that readers take."""
    assert len(archive_files(archive.snapshot())) == 28


def look(archive: Archive) -> None:
    """Look whether it could be restored."""
    seen = look_at(archive, "here")
    assert (seen.refused, seen.is_sealed, seen.unsealed) == ("", True, 0)


@pytest.mark.parametrize(
    ("command", "read", "listed", "described"),
    [
        # Two are for descriptions of the cluster and seals of schemas, of which there are none; one
        # has the newest record of each partition, which receipts of earlier releases don't have;
        # and one is for what earlier validations have found.
        (validate, 29 + 2 + 1 + 1, 16 + 4, 1),
        # One lists the data keys; there are none, and universal_pathlib 0.2 asks twice.
        (validate_all, 29 + 2 + 1 + 1, 16 + 4 + 1 + ASKS_AGAIN, 1 + ASKS_AGAIN),
        # Reads archive.json once more, for the pipeline.
        (drain, 2 * 22 + 1, 2 * 12 + 1, 2),
        # Size and content of each file; and that there are no erasures, and no claim of a run whose
        # folder is lost. As whoever lists the files, one listing has the sizes of all.
        (republish, 26 + 28, 22 + 3, 1 + 28),
        (list_files, 22, 14, 0),
        # The last validation's result, and that there are no scrub, no drills nor their folder.
        (look, 22 + 2, 14 + 2 + ASKS_AGAIN, 0),
    ],
)
def test_requests(
    archive: Archive,
    command: Callable[[Archive], None],
    read: int,
    listed: int,
    described: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command reads each document, receipt and log file once, and asks for no object's size."""
    validate_archive(archive, golden_cluster())  # type: ignore[arg-type]

    with requests(monkeypatch) as sent:
        command(archive)

    most = {"get_object": read, "list_objects_v2": listed, "head_object": described}
    assert {name: sent[name] for name in most if sent[name] > most[name]} == {}
    assert sent.keys() <= {*most, "put_object"}
