"""Plan the drops and changes: apply them to every selected record, and count the results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc
from upath import UPath

from kafka_drain.data_files.content_hash import digest_of
from kafka_drain.data_files.reader import offset_of_nul, read_records, topic_of
from kafka_drain.data_files.records import milliseconds, path_of
from kafka_drain.data_files.rows import columns_of
from kafka_drain.data_files.scalars import number
from kafka_drain.errors import ConfigError, DataFileError
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress, Ticker
from kafka_drain.republish.changing.change import Changer
from kafka_drain.republish.planning.documents import ChangeSpecJson
from kafka_drain.republish.planning.header_names import nul_error
from kafka_drain.republish.planning.row_filter import wanted_rows
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ShardFile

#: Approximate size of the records that are read at a time.


@dataclass(frozen=True)
class Outcome:
    """The fate of the selected records of one partition in a file.

    Attributes:
        sent: Number of records that are sent.
        dropped: Number of records that aren't.
        changed: Number of sent records that aren't what they were.
        zero_timestamps: Number of sent records with timestamp 0.
        digest: Sum that identifies the records as they are sent; see `digest_of`.
        oldest_ms: Lowest timestamp of the sent records; None when none has one.
        newest_ms: Highest timestamp of the sent records; None when none has one.
    """

    sent: int = 0
    dropped: int = 0
    changed: int = 0
    zero_timestamps: int = 0
    digest: int = 0
    oldest_ms: int | None = field(default=None, compare=False)
    newest_ms: int | None = field(default=None, compare=False)

    def __add__(self, other: Outcome) -> Outcome:
        oldest = [ms for ms in (self.oldest_ms, other.oldest_ms) if ms is not None]
        newest = [ms for ms in (self.newest_ms, other.newest_ms) if ms is not None]
        sums = Outcome(*(a + b for a, b in zip(self._values, other._values, strict=True)))
        return replace(
            sums, oldest_ms=min(oldest, default=None), newest_ms=max(newest, default=None)
        )

    @property
    def _values(self) -> tuple[int, ...]:
        return self.sent, self.dropped, self.changed, self.zero_timestamps, self.digest


def count_outcomes(
    root: UPath,
    files: Iterable[tuple[ShardFile, Mapping[TopicPartition, Rows]]],
    changer: Changer,
    *,
    follows: bool = False,
) -> dict[tuple[str, TopicPartition], Outcome]:
    """Apply a change to selected records. Reads them all, each file once.

    Args:
        files: Files, each with the rows that are selected, by partition.
        changer: The change.
        follows: Whether the run is a mirror's.

    Raises:
        SourceRecordError: When a record can't be changed as asked, or Kafka's client can't send a
            header name that it has then; names it.
        ConfigError: When the user's function isn't a function of each record alone, or breaks its
            contract.
        DataFileError: When a file can't be read; names its path.
    """
    listed = list(files)
    found: dict[tuple[str, TopicPartition], Outcome] = {}
    ticker = Ticker("filter and change", Progress("files", len(listed)))
    for place, (file, selected) in enumerate(listed):
        in_topic_folder = topic_of(file.path) is not None
        try:
            path = path_of(str(root), file.path)
            for batch in read_records(path, file.file_format):
                for tp, rows in selected.items():
                    wanted = wanted_rows(batch, tp, rows, in_topic_folder=in_topic_folder)
                    if not wanted.num_rows:
                        continue
                    result = changer.apply(wanted, tp, twice=True)
                    refused = offset_of_nul(result.batch)
                    if refused is not None:
                        raise nul_error(
                            tp, refused, "nothing was sent", follows=follows, changes=True
                        )
                    zeros = pc.equal(result.batch["timestamp"].cast("int64"), number(0))
                    oldest, newest = (
                        milliseconds(bound) if bound.is_valid else None
                        for bound in pc.min_max(result.batch["timestamp"]).values()
                    )
                    outcome = Outcome(
                        result.batch.num_rows,
                        result.dropped,
                        pc.sum(result.changed).as_py() or 0,
                        pc.sum(zeros).as_py() or 0,
                        digest_of(columns_of(result.batch)),
                        oldest,
                        newest,
                    )
                    key = (file.path, tp)
                    found[key] = found.get(key, Outcome()) + outcome
        except DataFileError as error:
            raise DataFileError(f"{file.path}: {error}") from error
        ticker.at(place)
    return found


def refuse_no_hits(
    fields: Collection[str],
    hits: Mapping[str, int],
    headers: Collection[str] = (),
    left_out: Mapping[str, int] | None = None,
    *,
    follows: bool,
) -> list[str]:
    """Refuse fields that no record has: a misspelt one would leave what it names unmasked.

    Args:
        fields: The fields that are replaced.
        hits: Number of occurrences of each.
        headers: The names of the headers that are left out.
        left_out: Number of occurrences of each.
        follows: Whether the run is a follower's, whose new records may have none.

    Returns:
        Notes for the user.

    Raises:
        ConfigError: Names them.
    """
    left_out = left_out or {}
    missing = [named for named in fields if not hits.get(named)]
    missing += [f"header:{name}" for name in headers if not left_out.get(name)]
    if missing and not follows:
        raise ConfigError(
            f"no record that is sent has {', '.join(missing)}: is the name right? Correct it, or "
            "leave it out. Nothing was sent"
        )
    return [
        *(f"field {named}: replaced {hits[named]:,} times" for named in fields if hits.get(named)),
        *(f"header {n}: left out {left_out[n]:,} times" for n in headers if left_out.get(n)),
        *(f"WARNING no record that is sent has {named}" for named in missing),
    ]


def note_unseen(fields: Iterable[str]) -> list[str]:
    """Return a warning for each part of a record that a filter names, and no selected record has.

    It is no error: an interval may have no such record, and a filter doesn't protect what it names.
    """
    return [
        f"WARNING no selected record has {named}, which a filter names: is the name right?"
        for named in fields
    ]


def note_of(spec: ChangeSpecJson, total: Outcome) -> str:
    """Describe the effect of a change on the records, for the user."""
    function = spec["function"]
    by = "" if function is None else f" by {function['name']} ({function['sha256'][:12]})"
    return (
        f"of {total.sent + total.dropped:,} selected records {total.dropped:,} are left out, and "
        f"{total.changed:,} are changed{by}"
    )
