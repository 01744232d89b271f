"""Restore records as their producers sent them from the rows of Spark's Kafka source.

The source alters two things between Kafka's client and a row, before any query can intervene:

- It converts timestamps via `java.sql.Timestamp`, which uses the hybrid Julian-Gregorian calendar:
  timestamps before 1582-10-15 are shifted by up to ten days (KafkaRecordToRowConverter,
  RebaseDateTime). In UTC, the time zone of the jobs' JVMs, the shift is a whole number of days for
  each time span, and is undone here. Twelve days before 1582, and all timestamps before the year 1,
  are ambiguous.
- Kafka's Java client decodes header names as UTF-8 and replaces invalid bytes by U+FFFD.

A record that can't be kept as it was sent fails the job with an error that names it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_drain.spark.unkept_records import UNKEPT

_DAY = 86_400_000_000  # microseconds

#: Time spans of the Julian calendar: first day since 1970, and the days that the source adds.
_JULIAN = (
    (-719_164, 2),
    (-682_945, 1),
    (-646_420, 0),
    (-609_895, -1),
    (-536_845, -2),
    (-500_320, -3),
    (-463_795, -4),
    (-390_745, -5),
    (-354_220, -6),
    (-317_695, -7),
    (-244_645, -8),
    (-208_120, -9),
    (-171_595, -10),
)


def as_sent(records: DataFrame) -> DataFrame:
    """Return the source's rows with the timestamps that were sent, and with checked headers."""
    records = records.withColumn("timestamp", F.expr(timestamp_as_sent()))
    if "headers" in records.columns:
        records = records.withColumn("headers", F.expr(_headers_as_sent()))
    return records


def timestamp_as_sent() -> str:
    """Return the SQL expression of a row's timestamp as it was sent."""
    cases = []
    for number, (start, added) in reversed(list(enumerate(_JULIAN))):
        first = (start + added) * _DAY
        if number:
            # The last day before this span and its first day are mapped to the same day.
            cases.append(
                f"WHEN unix_micros(timestamp) >= {first + _DAY} "
                f"THEN timestamp_micros(unix_micros(timestamp) - {added * _DAY})"
            )
            cases.append(f"WHEN unix_micros(timestamp) >= {first} THEN {_unkept(_DAY_OF_TWO)}")
        else:
            cases.append(
                f"WHEN unix_micros(timestamp) >= {first} "
                f"THEN timestamp_micros(unix_micros(timestamp) - {added * _DAY})"
            )
    return (
        "CASE WHEN timestamp >= TIMESTAMP '1582-10-15 00:00:00' THEN timestamp "
        f"{' '.join(cases)} ELSE {_unkept(_BEFORE_YEAR_ONE)} END"
    )


_DAY_OF_TWO = "its timestamp is on one of two days that Spark reads as the same"
_BEFORE_YEAR_ONE = "its timestamp is before the year 1 and is misread by Spark"
_NAME = "the name of one of its headers isn''t valid UTF-8, or contains U+FFFD"


def _headers_as_sent() -> str:
    return (
        "CASE WHEN exists(headers, header -> contains(header.key, '\ufffd')) "
        f"THEN {_unkept(_NAME)} ELSE headers END"
    )


def _unkept(why: str) -> str:
    """Return the SQL expression that fails the job with an error."""
    return f"raise_error(concat('{UNKEPT}', topic, '-', partition, ' offset ', offset, ': {why}'))"
