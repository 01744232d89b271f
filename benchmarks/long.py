"""What years of hourly drains cost: the same questions to archives of a month, a year, and ten.

As weekly maintenance leaves them: each closed generation is compacted to one window, and the hours
before the first drain were backfilled one by one. One archive was never compacted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from benchmarks.marks import Mark, Say
from benchmarks.processes import measured
from benchmarks.synthetic import (
    CLUSTER_ID,
    TOPIC,
    TOPIC_ID,
    Linker,
    SyntheticArchive,
    SyntheticCluster,
    write_records,
)
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.history import History, read_history
from kafka_drain.archive.index_files import index_to_write, write_index
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.soundness import check_sealed_state
from kafka_drain.archive.summary_files import write_missing_summaries
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.drain.preflight import preflight
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.search import Search
from kafka_drain.intervals import Interval
from kafka_drain.maintenance.maintain import plan_maintenance
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.binding import Binding
from kafka_drain.republish.planning.follow import follower_key, through_now
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.planning.selection import Selection
from kafka_drain.republish.run import plan_republish
from kafka_drain.spark.job_spec import write_private
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.storage.paths import locate
from kafka_drain.windows.backfill import refuse_incomplete, run_backfill, sealed_windows
from kafka_drain.windows.backfill_plan import plan_backfill
from tests.kafka_drain.republish.receipts import receipt_of

__all__ = ["measure_long"]

#: What the receipts of closed generations say of each file.
FILE_BYTES = 11_420_000
HOUR_MS = 3_600_000
STEP_MS = HOUR_MS // 10  # ten records an hour and partition
FIRST = datetime(2015, 1, 1, tzinfo=timezone.utc)
#: Hours of a generation, as `max_generation_days` has it by default.
WEEK = 7 * 24
#: Hours of the open generation, equal at each age.
OPEN = 48


@dataclass(frozen=True)
class Age:
    """An archive.

    Attributes:
        closed: Number of closed generations, of a week each.
        wide: Number of partitions, each with a file in each drain.
        backfilled: Number of backfilled hours before the first drain.
        compacted: Whether the closed generations are compacted.
    """

    closed: int
    wide: int
    backfilled: int = 24
    compacted: bool = True


#: By name. Ten years of 100 partitions, 8.8 million files of 100 TB in all, take half an hour and
#: 16 GB to write.
AGES = {
    "a month": Age(4, 4),
    "a year": Age(52, 4, 240),
    "ten years": Age(521, 4, 2_400),
    "a month of 100 partitions": Age(4, 100),
    "a year of 100 partitions": Age(52, 100, 240),
    "ten years of 100 partitions": Age(521, 100, 240),
    "a month, never compacted": Age(4, 2, compacted=False),
    "a year, never compacted": Age(52, 2, compacted=False),
    # Nothing is closed yet: one drain, then one backfill after another.
    "100 backfilled hours": Age(0, 4, 100),
    "3,000 backfilled hours": Age(0, 4, 3_000),
}
#: The topic of the mirror.
COPY = f"{TOPIC}.copy"
MIRROR = RepublishRequest(target_topic=COPY, follow=True)
#: The hour that is asked for: of the generation before the open one.
ASKED = 100


class _WithCopy(SyntheticCluster):
    def topic_names(self) -> list[str]:
        return [TOPIC, COPY]


def partitions(count: int) -> tuple[TopicPartition, ...]:
    """Return the partitions of the topic."""
    return tuple(TopicPartition(TOPIC, number) for number in range(count))


def make(folder: str, age: Age) -> dict[str, Any]:
    """Write an archive of hourly drains, whose newest hour isn't sealed."""
    # Nothing here has to survive a power cut.
    os.fsync = lambda opened: None  # type: ignore[assignment]
    root = Path(folder)
    root.mkdir(parents=True)
    link = Linker(root / "template.parquet", with_crc=False)
    first, tps = start_of(age) + timedelta(hours=1), partitions(age.wide)
    archive = SyntheticArchive(
        root,
        link.size,
        link,
        tps,
        round(start_of(age).timestamp() * 1000),
        STEP_MS,
        # The hour before is in Kafka, and not in the archive.
        dict.fromkeys(tps, HOUR_MS // STEP_MS),
    )
    for hour in range(age.backfilled):
        start = first + timedelta(hours=hour)
        archive.add_backfill(Interval(start, start + timedelta(hours=1)))
    # Of closed generations, nothing that is asked here opens the files but for the asked hour.
    archive.file_size, archive.link = FILE_BYTES, None
    for number in range(1, age.closed + 1):
        real = {ASKED} if number == age.closed and not age.compacted else ()
        archive.add_generation(number, sealed=WEEK, files=age.wide, real=real)
    archive.file_size, archive.link = link.size, link
    made = Archive.at(folder)
    if age.compacted:
        for number in range(1, age.closed + 1):
            archive.compact(number, is_real=number == age.closed)
    archive.add_generation(
        age.closed + 1, sealed=OPEN, files=age.wide, unsealed=1, new_files=age.wide
    )
    note_sealed(made.root, check_sealed_state(made.snapshot()).there)
    write_missing_summaries(made.snapshot())
    # As validations have left it.
    snapshot = made.snapshot()
    if index := index_to_write(snapshot, whole=False):
        write_index(snapshot, index)
    # As a mirror's run has left it.
    follower = follower_key(MIRROR.name(snapshot.document.pipeline))
    through = through_now(snapshot) | {"bound": Binding(CLUSTER_ID, {COPY: TOPIC_ID}).to_dict()}
    run = RepublishRun(made.state, f"{follower}.000001")
    run.write_receipt(receipt_of(key=run.key, request=MIRROR.to_dict(), through=through))
    return {"receipts": age.closed * WEEK + OPEN, "windows": len(made.snapshot().folders)}


def start_of(age: Age) -> datetime:
    """Return when Kafka's first record was written: an hour before the first one archived."""
    return FIRST - timedelta(hours=age.backfilled + 1)


def asked(age: Age) -> tuple[str, str]:
    """Return the hour of the query, as two times."""
    start = FIRST + timedelta(hours=(age.closed - 1) * WEEK + ASKED)
    return start.isoformat(), (start + timedelta(hours=1)).isoformat()


def pipeline(folder: str) -> Pipeline:
    """Return the pipeline of the archive."""
    return Pipeline(name="synthetic", topics=[TOPIC], archive=folder, partition_by=["topic"])


def check_drain(folder: str, age: Age) -> dict[str, Any]:
    """Check that a drain may run."""
    plan = preflight(pipeline(folder), SyntheticCluster(partitions(age.wide)))
    return {"partitions": len(plan.start)}


def validate_new(folder: str, age: Age) -> dict[str, Any]:
    """Prove and seal the newest hour."""
    cluster = SyntheticCluster(partitions(age.wide))
    report = validate_archive(Archive.at(folder), cluster, scope="open")
    return {"complete": report.complete, "written": report.receipts_written}


def validate_again(folder: str, age: Age) -> dict[str, Any]:
    """Validate with nothing new."""
    return validate_new(folder, age)


def restore_hour(folder: str, age: Age) -> dict[str, Any]:
    """Plan a restore of an hour."""
    start, end = asked(age)
    request = RepublishRequest(target_topic=TOPIC, into_source=True, from_time=start, to_time=end)
    return _files_planned(folder, SyntheticCluster(partitions(age.wide)), request)


def mirror_hour(folder: str, age: Age) -> dict[str, Any]:
    """Plan a mirror's run an hour after the one before."""
    return _files_planned(folder, _WithCopy(partitions(age.wide)), MIRROR)


def _files_planned(
    folder: str, cluster: SyntheticCluster, request: RepublishRequest
) -> dict[str, Any]:
    archive, now = Archive.at(folder), datetime.now(timezone.utc)
    planned = plan_republish(archive, cluster, request, now=now, apply=False)
    return {"files": sum(len(shard.files) for shard in planned.plan.shards)}


def find_key(folder: str, age: Age) -> dict[str, Any]:
    """Find a key in an hour."""
    start, end = asked(age)
    criteria = Criteria(
        keys=frozenset([b"key"]), selection=Selection.of(from_time=start, to_time=end)
    )
    search = Search(Archive.at(folder), criteria, limit=10_000, scan=True)
    return {"records": sum(1 for _ in search.matches())}


def page_first(folder: str, age: Age) -> dict[str, Any]:
    """Read the history behind an archive's page, as a server does that has just started."""
    history = History()
    read_history(Archive.at(folder), history)
    return {"runs": sum(span.segments for span in history.spans.values())}


def maintain(folder: str, age: Age) -> dict[str, Any]:
    """Plan the maintenance."""
    return {"compactions": len(plan_maintenance(pipeline(folder)).compactions)}


def backfill_hour(folder: str, age: Age) -> dict[str, Any]:
    """Backfill one more hour, as its DAG does: plan twice, drain, prove, seal, and plan again.

    Its files are written here, in place of Spark.
    """
    start, tps = start_of(age), partitions(age.wide)
    first_time = round(start.timestamp() * 1000)
    cluster = SyntheticCluster(tps, first_time, STEP_MS)
    interval, drained = Interval(start, start + timedelta(hours=1)), pipeline(folder)
    plan_backfill(drained, cluster, interval)
    plan = plan_backfill(drained, cluster, interval)

    def write(application: SparkApplication) -> None:
        spec = json.loads((Path(application.arguments[-1])).read_text())
        data, value = Path(spec["path"]) / f"topic={TOPIC}", 0
        data.mkdir(parents=True)
        for tp, ranges in plan.ranges.items():
            path = f"{data}/part-{tp.partition:05d}.parquet"
            write_records(path, tp, ranges[0], first_time, STEP_MS)
            value ^= records_fingerprint(read_records(locate(path), "parquet"), TOPIC)
        result = {"records": plan.left, "fingerprint": f"{value:016x}"}
        write_private(Path(spec["result_path"]), result)

    sealed = run_backfill(plan, drained, cluster, write, run="bench")
    again = plan_backfill(drained, cluster, interval)
    refuse_incomplete(again)
    return {
        "records": sealed["records"],
        "windows": len(sealed_windows(again)),
        "covered_by": len(again.covered_by),
    }


QUESTIONS = {
    "a drain's check": check_drain,
    "validate, one hour new": validate_new,
    "validate, nothing new": validate_again,
    "plan a restore of an hour": restore_hour,
    "plan a mirror's run": mirror_hour,
    "find a key in an hour": find_key,
    "an archive's page, the first time": page_first,
    "plan of maintenance": maintain,
    "backfill an hour": backfill_hour,
}


#: Questions to an archive that has closed nothing yet.
BEFORE_CLOSED = ("validate, one hour new", "backfill an hour")
#: Questions about the whole archive, whose answers grow with it.
GROWING = ("an archive's page, the first time", "plan of maintenance")


def ask(name: str, folder: str, age: Age) -> dict[str, Any]:
    """Ask one question, and count what Python opens and lists in the archive meanwhile."""
    seen: Counter[str] = Counter()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(folder):
            seen[event] += 1
            if event == "open":
                with suppress(FileNotFoundError):
                    seen["bytes"] += Path(arguments[0]).stat().st_size

    sys.addaudithook(hook)
    began, cpu = time.perf_counter(), time.process_time()
    answer = QUESTIONS[name](folder, age)
    return {
        "answer": answer,
        "seconds": round(time.perf_counter() - began, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "reads": seen["open"],
        "read_bytes": seen["bytes"],
        "listings": seen["os.listdir"] + seen["os.scandir"],
    }


def measure_long(folder: Path, rounds: int, say: Say) -> tuple[dict[str, Any], list[Mark]]:
    """Ask each question once at each age, regardless of rounds.

    Raises:
        RuntimeError: If a question gets another answer in an older archive.
    """
    figures: dict[str, Any] = {"ages": {}}
    points: list[dict[str, str]] = []
    answers: dict[tuple[str, int], Any] = {}
    for age, how in AGES.items():
        root = str(folder / age.replace(" ", "-"))
        made = measured(make, root, how).answer
        say(f"long: {age}: {made['receipts']:,} receipts, {made['windows']:,} windows")
        figures["ages"][age] = {**made, "partitions": how.wide}
        names = QUESTIONS if how.closed else BEFORE_CLOSED
        for name in names:
            run = measured(ask, name, root, how)
            found = {**run.answer, "peak_mib": round(run.peak_mib)}
            figures["ages"][age][name] = found
            answer = found.pop("answer")
            if name in GROWING:
                continue
            if answers.setdefault((name, how.wide), answer) != answer:
                raise RuntimeError(f"{name}, {age}: {answer}, expected {answers[name, how.wide]}")
        for name in names:
            found = figures["ages"][age][name]
            shown = (
                f"{found['reads']:,} reads of {found['read_bytes'] / 1e6:,.1f} MB, "
                f"{found['listings']:,} listings, {found['cpu_seconds']:.2f} s, "
                f"{found['peak_mib']:,} MiB"
            )
            points.append({"what": name, "size": age, "measured": shown})
            say(f"long: {name}, {age}: {shown}")
    figures["points"] = sorted(points, key=lambda point: list(QUESTIONS).index(point["what"]))
    return figures, []
