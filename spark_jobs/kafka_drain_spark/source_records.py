"""Records as their producers sent them, out of the rows of Spark's Kafka source.

The source loses two things on the way from Kafka's client to a row, before anybody can look:

- It makes a row's time by way of `java.sql.Timestamp`, of the calendar that people had: times
  before 1582-10-15 come out up to ten days away (KafkaRecordToRowConverter, RebaseDateTime). In
  UTC, which the jobs' JVMs are in, the step is a whole number of days for each span of time, and
  is taken back here. Twelve days before 1582, and all before the year 1, can't be told.
- Kafka's Java client reads headers' names as UTF-8, and puts U+FFFD in the place of what isn't.

A record that can't be kept as it was sent ends the job by an error that names it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_drain.spark.unkept_records import UNKEPT

__all__ = ["as_sent", "timestamp_as_sent"]

_DAY = 86_400_000_000  # microseconds

#: Days since 1970 of the Julian calendar's spans, each with how many days the source adds to them.
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
    """Return the source's rows with the times and headers that were sent."""
    records = records.withColumn("timestamp", F.expr(timestamp_as_sent()))
    if "headers" in records.columns:
        records = records.withColumn("headers", F.expr(_headers_as_sent()))
    return records


def timestamp_as_sent() -> str:
    """Return the SQL of a row's time as it was sent."""
    cases = []
    for number, (start, added) in reversed(list(enumerate(_JULIAN))):
        first = (start + added) * _DAY
        if number:
            # The day before this span, and its first one, come out as the same.
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


_DAY_OF_TWO = "its timestamp is of one of two days, which Spark reads as the same"
_BEFORE_YEAR_ONE = "its timestamp is before the year 1, which Spark reads as another"
_NAME = "the name of one of its headers isn''t UTF-8, or has U+FFFD"


def _headers_as_sent() -> str:
    return (
        "CASE WHEN exists(headers, header -> contains(header.key, '\ufffd')) "
        f"THEN {_unkept(_NAME)} ELSE headers END"
    )


def _unkept(why: str) -> str:
    """Return the SQL of the error that ends the job."""
    return f"raise_error(concat('{UNKEPT}', topic, '-', partition, ' offset ', offset, ': {why}'))"
