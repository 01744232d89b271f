"""Limit the records that Spark's Kafka consumers take at a time, by the records' sizes.

A task holds the records of a poll (`max.poll.records`), unpacked. Kafka's Java client unpacks them
one by one, so a batch of any size fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from kafka_drain.config.source_options import DEFAULTS
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.single_records import RecordSample
from kafka_drain.offsets import OffsetRange, TopicPartition, count

POLL_RECORDS = "kafka.max.poll.records"

#: Target size of an unpacked poll, in bytes. Each poll costs two requests for the partition's
#: bounds, which is little for so many bytes.
POLL_BYTES = 16 << 20

#: Number of places to look at, and of those in a topic.
PLACES, PLACES_OF_TOPIC = 256, 16
#: Number of places in a partition, which are looked at one after another.
PLACES_OF_PARTITION = 4


def poll_options(
    cluster: KafkaCluster,
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
    given: Mapping[str, object],
) -> dict[str, str]:
    """Look at some of the records to be read, and return the options of Spark's source for them.

    Args:
        cluster: Holds them.
        given: The pipeline's own options, which stay as they are.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    if POLL_RECORDS in given:
        return {}
    looked_at = places(ranges)
    return options_for(cluster.sample_records(looked_at)) if looked_at else {}


def places(
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> list[dict[TopicPartition, int]]:
    """Return offsets to look at: of each topic, places in its largest partitions.

    With more topics than `PLACES`, those with the most offsets are looked at.

    Returns:
        Offsets that can be looked at at a time, one of each partition.
    """
    sizes = {tp: count(parts) for tp, parts in ranges.items()}
    partitions: dict[str, list[TopicPartition]] = {}
    for tp in sorted(sizes, key=lambda tp: (-sizes[tp], tp)):
        if sizes[tp]:
            partitions.setdefault(tp.topic, []).append(tp)
    chosen = list(partitions.values())[:PLACES]
    each = min(PLACES_OF_TOPIC, PLACES // max(1, len(chosen)))
    columns: list[list[tuple[TopicPartition, int]]] = []
    for largest in (tps[:each] for tps in chosen):
        for number, tp in enumerate(largest):
            # The places of a topic are at different depths of its partitions.
            deep = range(number, each, max(len(largest), -(-each // PLACES_OF_PARTITION)))
            columns.append([(tp, at) for at in _at(ranges[tp], deep, each)])
    return [dict(filter(None, row)) for row in zip_longest(*columns)]


def _at(parts: Sequence[OffsetRange], numbers: Iterable[int], of: int) -> list[int]:
    """Return the offsets at some of so many equal distances, each once, in order."""
    total, found = count(parts), list[int]()
    for at in sorted({total * number // of for number in numbers}):
        for part in parts:
            if at < len(part):
                found.append(part.start + at)
                break
            at -= len(part)
    return found


def options_for(samples: Iterable[RecordSample]) -> dict[str, str]:
    """Return the options with which no poll of such records unpacks to more than `POLL_BYTES`."""
    largest = max((sample.unpacked for sample in samples), default=0)
    records = max(1, POLL_BYTES // max(1, largest))
    return {POLL_RECORDS: str(records)} if records < int(DEFAULTS[POLL_RECORDS]) else {}


def records_polled(options: Mapping[str, str]) -> int | None:
    """Return the number of records of a poll by options of Spark's source; None if unknown."""
    return int(options[POLL_RECORDS]) if POLL_RECORDS in options else None
