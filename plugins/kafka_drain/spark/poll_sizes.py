"""How much Spark's Kafka consumers take at a time, by what the records to be read unpack to.

A task holds the records of a poll (`max.poll.records`), unpacked, of one response
(`max.partition.fetch.bytes`, as it was sent; one batch at least). Kafka's Java client unpacks them
one by one, so a batch of any size fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from kafka_drain.config.source_options import DEFAULTS
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.fetch_samples import FetchSample
from kafka_drain.kafka.single_records import PARTITION_BYTES
from kafka_drain.offsets import OffsetRange, TopicPartition, count

POLL_RECORDS, FETCH_BYTES = "kafka.max.poll.records", "kafka.max.partition.fetch.bytes"

#: What a poll is to unpack to, in bytes. Each costs two requests for the partition's bounds, which
#: is little for so many bytes.
POLL_BYTES = 16 << 20
#: Least size of a response to ask for, in bytes: smaller ones take longer than polls of less.
LEAST_FETCH_BYTES = 128 << 10

#: Partitions with so many offsets or fewer aren't looked at: they are taken at once.
FEW = 100
#: Number of places to look at, and the number of them in a topic.
PLACES, PLACES_OF_TOPIC = 64, 16


def poll_options(
    cluster: KafkaCluster,
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
    given: Mapping[str, object],
) -> dict[str, str]:
    """Look at some of the records to be read, and return the options of Spark's source for them.

    Args:
        cluster: Holds them.
        ranges: Their offsets.
        given: The pipeline's own options, which stay as they are.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    if given.keys() >= {POLL_RECORDS, FETCH_BYTES}:
        return {}
    looked_at = places(ranges)
    return options_for(cluster.fetch_samples(looked_at), given) if looked_at else {}


def places(
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> list[dict[TopicPartition, int]]:
    """Return offsets to look at: evenly in the largest partition of each topic, the largest topics.

    Returns:
        Offsets that can be looked at at a time, one of each partition.
    """
    sizes = {tp: count(parts) for tp, parts in ranges.items()}
    largest: dict[str, TopicPartition] = {}
    for tp in sorted(sizes, key=lambda tp: (-sizes[tp], tp)):
        if sizes[tp] > FEW:
            largest.setdefault(tp.topic, tp)
    chosen = list(largest.values())[:PLACES]
    each = min(PLACES_OF_TOPIC, PLACES // max(1, len(chosen)))
    columns = [[(tp, at) for at in _spread(ranges[tp], each)] for tp in chosen]
    return [dict(filter(None, row)) for row in zip_longest(*columns)]


def _spread(parts: Sequence[OffsetRange], number: int) -> Iterable[int]:
    """Return offsets at equal distances, the first one included."""
    total = count(parts)
    for place in range(number):
        at = total * place // number
        for part in parts:
            if at < len(part):
                yield part.start + at
                break
            at -= len(part)


def options_for(samples: Iterable[FetchSample], given: Mapping[str, object]) -> dict[str, str]:
    """Return the options with which no poll of such records unpacks to more than `POLL_BYTES`.

    A response is limited first, because a limit of records slows all topics down, those with small
    records most.

    Args:
        samples: Responses with some of them.
        given: The options that stay as they are.
    """
    samples = [sample for sample in samples if sample.unpacked]
    fetch = int(str(given.get(FETCH_BYTES, DEFAULTS[FETCH_BYTES])))
    if FETCH_BYTES not in given:
        wanted = [POLL_BYTES * sample.fetched // sample.unpacked for sample in samples]
        fetch = min(fetch, max(LEAST_FETCH_BYTES, min(wanted, default=fetch)))
    records = int(DEFAULTS[POLL_RECORDS])
    for sample in samples:
        # A batch comes whole.
        response = max(fetch, sample.fetched if sample.fetched > PARTITION_BYTES else 0)
        if response * sample.unpacked > POLL_BYTES * sample.fetched:
            records = min(records, POLL_BYTES * sample.records // sample.unpacked)
    options = {FETCH_BYTES: str(fetch), POLL_RECORDS: str(max(1, records))}
    return {
        name: value
        for name, value in options.items()
        if name not in given and value != DEFAULTS[name]
    }


def records_polled(options: Mapping[str, str]) -> int | None:
    """Return the number of records of a poll by options of Spark's source; None if unknown."""
    return int(options[POLL_RECORDS]) if POLL_RECORDS in options else None
