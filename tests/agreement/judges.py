"""What the judges say of an archive, and what its readers give of it."""

from __future__ import annotations

import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from fastavro.schema import SchemaParseException

from kafka_drain import verify_archive
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.encryption import data_keys
from kafka_drain.errors import KafkaDrainError, ManifestInvalidError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import heard_by
from kafka_drain.proof.validation import validate_archive
from kafka_drain.reading import archive_dataset
from kafka_drain.republish.planning.planner import make_plan
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.sending.shard_reader import read_shard
from tests.agreement.archives import LATER, Made
from tests.agreement.records import Record, Records, as_of_table, read_files
from tests.kafka_drain.fake_cluster import FakeCluster, Log

COMPLETE, REFUSED = "complete", "refused"
RIGHT, LESS, WRONG = "right", "less", "wrong"
#: What a judge or a reader says that has failed.
FAILED = "failed"


@dataclass
class Judged:
    """The answers about an archive.

    Attributes:
        verdicts: By judge: `complete`, or another word.
        read: By reader: right, less, wrong or refused.
        details: What they said besides.
    """

    verdicts: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    details: dict[str, list[str]] = field(default_factory=dict)


def judge(root: Path, original: Made) -> Judged:
    """Ask all judges and readers of an archive; changes nothing."""
    # Copies stand in the same place one after another: a key of the one before isn't this one's.
    data_keys._data_key.cache_clear()
    found = Judged()
    for deep in (False, True):
        suffix = " --deep" if deep else ""
        for name, ask in (("validate", _validate), ("verifier", _verify)):
            verdict, details = ask(root, deep)
            found.verdicts[name + suffix] = verdict
            found.details[name + suffix] = details
    for name, read in READERS.items():
        found.read[name], found.details[name] = _read(read, root, original)
    return found


def _validate(root: Path, deep: bool) -> tuple[str, list[str]]:
    try:
        with heard_by(lambda _: None):
            report = validate_archive(Archive.at(str(root)), None, deep=deep, writes=False)
    except KafkaDrainError as error:
        return REFUSED, [f"{type(error).__name__}: {error}"]
    except Exception:
        return FAILED, [traceback.format_exc()[-1500:]]
    return COMPLETE if report.complete else "incomplete", [str(f) for f in report.findings]


def _verify(root: Path, deep: bool) -> tuple[str, list[str]]:
    verifier = verify_archive.Verifier(str(root), deep)
    try:
        verifier.run()
    except NotImplementedError as error:
        return "unknown", [str(error)]
    except Exception:
        return FAILED, [traceback.format_exc()[-1500:]]
    found = verifier.report()
    problems = [*found["errors"], *found["unknown"]]
    return found["verdict"], [f"{each['where']}: {each['what']}" for each in problems]


def _read(
    read: Callable[[Path, Made], tuple[Records, Records]], root: Path, original: Made
) -> tuple[str, list[str]]:
    """Compare what a reader gives with the records that the archive had."""
    try:
        with heard_by(lambda _: None):
            given, had = read(root, original)
    except KafkaDrainError as error:
        return REFUSED, [f"{type(error).__name__}: {error}"]
    except (pa.ArrowException, OSError) as error:
        # pyarrow's own words about a file that isn't what its name says.
        return "unreadable", [f"{type(error).__name__}: {error}"]
    except Exception:
        return FAILED, [traceback.format_exc()[-1500:]]
    if given == had:
        return RIGHT, []
    more, fewer = given - had, had - given
    shown = [f"{each[:3]}" for each in sorted(more, key=str)[:3]]
    return (WRONG if more else LESS), [f"{more.total()} more {shown}, {fewer.total()} missing"]


def _dataset(root: Path, original: Made) -> tuple[Records, Records]:
    return as_of_table(archive_dataset(str(root)).to_table()), original.records


def _listed(root: Path, original: Made) -> tuple[Records, Records]:
    files = committed_files(Archive.at(str(root)))
    try:
        return read_files(root, [file["path"] for file in files], original.key), original.records
    except (
        ValueError,
        EOFError,
        LookupError,
        TypeError,
        zlib.error,
        SchemaParseException,
    ) as error:
        # Their bytes were changed: readers of such files have their own words.
        raise OSError(repr(error)) from error


def _find(root: Path, original: Made) -> tuple[Records, Records]:
    search = Search(Archive.at(str(root)), Criteria(), limit=1 << 30, scan=True)
    found = Counter(
        Record(
            match.position.topic,
            match.position.partition,
            match.position.offset,
            match.timestamp,
            match.timestamp_type or 0,
            match.key,
            match.value,
            _headers(match.headers),
        )
        for match in search.matches()
    )
    return found, original.records


def _headers(headers: Iterable[tuple[str, Any]] | None) -> Any:
    return None if headers is None else tuple((k, v) for k, v in headers)


def _republish(root: Path, original: Made) -> tuple[Records, Records]:
    topics = {record.topic for record in original.records} | {"t", "flights"}
    logs = {TopicPartition(f"{topic}.restored", p): Log(end=1) for topic in topics for p in (0, 1)}
    configs = {tp.topic: {"retention.ms": "-1"} for tp in logs}
    cluster: Any = FakeCluster(logs, id="elsewhere", configs=configs)
    snapshot = Archive.at(str(root)).snapshot()
    request = RepublishRequest()
    plan = make_plan(snapshot, cluster, request, run="run", now=LATER)
    given: Records = Counter()
    for shard in plan.shards:
        rows = [row for batch in read_shard(str(root), shard) for row in batch.to_pylist()]
        if len(rows) != shard.records:
            # As the sender refuses it.
            raise ManifestInvalidError(f"{shard.source} has other records than planned")
        given.update(Record.of(row, shard.source.topic) for row in rows)
    return given, original.records


READERS: dict[str, Callable[[Path, Made], tuple[Records, Records]]] = {
    "files": _listed,
    "dataset": _dataset,
    "find": _find,
    "republish": _republish,
}
