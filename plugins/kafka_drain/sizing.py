"""The needs of a pipeline: cores, memory, files, requests and hours, from measured figures.

The constants follow from `benchmarks/results.json`; a test derives them again, and compares the
model with rows that it wasn't made from. Opens nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_drain.errors import ConfigError

_MIB, _MILLION = 1 << 20, 1_000_000
_DAY = 86_400

#: Cores of the machine that was measured, which its broker shared.
MEASURED_CORES = 2
#: Size of the values that were drained and sent, in bytes.
MEASURED_BYTES = 190.1
#: Seconds of a drain beside its records, up to `FEW` records and above: Spark's start, the checks
#: and the proof; and Java compiling a query that is worth it.
START_FEW, START_MANY = 5.8, 11.7
FEW = 20_000
#: Seconds of two cores for a million records, and for a megabyte of values.
PER_MILLION, PER_MEGABYTE = 1.53, 0.0022
#: Seconds of two cores for each partition that has something new, above the eight measured.
PER_PARTITION, MEASURED_PARTITIONS = 0.036, 8
#: Seconds of a restore's start, and for a million records, sent and read back by a worker.
RESTORE_START, RESTORE_PER_MILLION = 3.0, 4.22
#: Bytes in the archive for a byte of values: JSON, and random bytes.
STORED_LEAST, STORED_MOST = 0.24, 1.03
#: Memory of a drain with two cores, in MiB, all its processes.
DRAIN_MIB = 1_300
#: Requests of a drain and its validation; for each new file; and for each closed generation that
#: they look at, which are so many at most.
PER_DRAIN, PER_FILE, PER_GENERATION, GENERATIONS = 124, 3, 9, 8
#: Error of the model, by the worst of the rows that it wasn't made from.
ERROR = 0.25
#: Number of lanes that a task of a restore sends side by side.
LANES = 2
#: Share of the time between two drains that one may take.
SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a pipeline.

    Attributes:
        records_per_second: Records of all partitions.
        record_bytes: Mean size of a record's key, value and headers.
        partitions: Partitions that get records between any two drains.
        retention_days: Days for which the archive keeps records.
        minutes: Minutes from a drain to the next one.
        restore_cores: Cores of a restore, of one machine or of a cluster's workers together.
        generation_days: Days after which maintenance closes a generation.
        file_bytes: Size of the files that maintenance writes.
    """

    records_per_second: float
    record_bytes: float
    partitions: int
    retention_days: float
    minutes: float = 60
    restore_cores: int = MEASURED_CORES
    generation_days: float = 7
    file_bytes: int = 256 * _MIB

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"{name} = {value!r} is not acceptable; accepted: above 0")


@dataclass(frozen=True, slots=True)
class Between:
    """A figure with its error bars.

    Attributes:
        low: The lowest that measurements leave possible.
        likely: The model's figure.
        high: The highest.
    """

    low: float
    likely: float
    high: float

    @classmethod
    def about(cls, value: float) -> Between:
        """Return a figure with the model's error on both sides."""
        return cls(value * (1 - ERROR), value, value * (1 + ERROR))

    def times(self, factor: float) -> Between:
        """Return the figure times a factor."""
        return Between(self.low * factor, self.likely * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Size:
    """The needs of a pipeline.

    Attributes:
        cores: Cores of its drains, so that one takes at most half of the time until the next.
        drain_seconds: Duration of a drain with these cores.
        memory_mib: Memory of a drain, in MiB.
        archive_bytes: Size of the archive.
        new_files: Files that drains write each day.
        kept_files: Files of the archive after compaction.
        receipts: Receipts of the archive.
        requests: Requests to an object store each day, without those of Spark's own committer.
        restore_hours: Hours to send and verify a day of records with `restore_cores`.
    """

    cores: int
    drain_seconds: Between
    memory_mib: float
    archive_bytes: Between
    new_files: float
    kept_files: Between
    receipts: float
    requests: float
    restore_hours: Between


def drain_seconds(records: float, record_bytes: float, partitions: int, cores: int) -> float:
    """Return the likely duration of a drain: its start, and its records divided by the cores.

    Args:
        records: Number of records.
        record_bytes: Mean size of a record.
        partitions: Partitions that have something new.
        cores: Cores of its tasks; more than there are partitions don't help.
    """
    start = START_FEW if records <= FEW else START_MANY
    work = (
        records / _MILLION * PER_MILLION
        + records * record_bytes / _MILLION * PER_MEGABYTE
        + max(0, partitions - MEASURED_PARTITIONS) * PER_PARTITION
    )
    return start + work * MEASURED_CORES / cores


@dataclass(frozen=True, slots=True)
class Sending:
    """The cost of a restore where it runs, by workers that are alike.

    Attributes:
        lanes: Number of its lanes: partitions that have records.
        start: Seconds before the first record is sent.
        work: Seconds of one worker to send all records.
    """

    lanes: int
    start: float
    work: float

    @classmethod
    def fit(cls, lanes: int, seconds: Mapping[int, float]) -> Sending:
        """Return the costs that follow from the durations with two numbers of workers."""
        (few, long), (many, short) = sorted(seconds.items())
        work = (long - short) / (largest_share(lanes, few) - largest_share(lanes, many))
        return cls(lanes, long - work * largest_share(lanes, few), work)


def largest_share(lanes: int, workers: int) -> float:
    """Return the share of the records that the busiest worker sends, if lanes are alike.

    A lane is sent by one worker, in order. While there are more lanes than workers, a task sends
    two side by side; more workers than lanes don't help.
    """
    together = min(lanes, LANES) if lanes > workers else 1
    tasks = math.ceil(lanes / together)
    return min(1.0, math.ceil(tasks / workers) * together / lanes)


def send_seconds(sending: Sending, workers: int) -> float:
    """Return the likely duration of a restore by so many workers."""
    return sending.start + sending.work * largest_share(sending.lanes, workers)


def restore_seconds(
    records: float, record_bytes: float, partitions: int, cores: int = MEASURED_CORES
) -> Between:
    """Return how long sending and verifying records takes: by their number, and by their bytes."""
    share = largest_share(partitions, cores) * MEASURED_CORES
    by_records = records / _MILLION * RESTORE_PER_MILLION * share
    least, most = (
        RESTORE_START + by_records * factor
        for factor in (1.0, max(1.0, record_bytes / MEASURED_BYTES))
    )
    return Between(least * (1 - ERROR), (least + most) / 2, most * (1 + ERROR))


def size_of(load: Load) -> Size:
    """Return the size that a load requires.

    Raises:
        ConfigError: When drains come so often that even their start takes more than its share.
    """
    interval = load.minutes * 60
    records = load.records_per_second * interval
    fixed = START_FEW if records <= FEW else START_MANY
    left = interval * SHARE / (1 + ERROR) - fixed
    if left <= 0:
        raise ConfigError(
            f"minutes = {load.minutes:g} is not acceptable: a drain of {records:,.0f} records "
            f"takes {fixed:g} s before its first one, and may take half of the time until the "
            "next; accepted: a longer time between drains"
        )
    work = drain_seconds(records, load.record_bytes, load.partitions, MEASURED_CORES) - fixed
    cores = max(MEASURED_CORES, math.ceil(work * MEASURED_CORES / left))
    drains = _DAY / interval
    written = load.records_per_second * load.record_bytes * _DAY
    kept = written * load.retention_days
    archive = Between(
        kept * STORED_LEAST, kept * (STORED_LEAST + STORED_MOST) / 2, kept * STORED_MOST
    )
    new_files = drains * load.partitions
    looked_at = min(load.retention_days / load.generation_days, GENERATIONS)
    restore = restore_seconds(
        load.records_per_second * _DAY, load.record_bytes, load.partitions, load.restore_cores
    )
    return Size(
        cores=cores,
        drain_seconds=Between.about(
            drain_seconds(records, load.record_bytes, load.partitions, cores)
        ),
        memory_mib=DRAIN_MIB * cores / MEASURED_CORES,
        archive_bytes=archive,
        new_files=new_files,
        kept_files=archive.times(1 / load.file_bytes),
        receipts=drains * load.retention_days,
        requests=drains * (PER_DRAIN + PER_GENERATION * looked_at) + new_files * PER_FILE,
        restore_hours=restore.times(1 / 3600),
    )
