"""Resolve a pipeline's starting position to an offset per partition, where a generation starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_drain.config.source_options import DEFAULTS
from kafka_drain.errors import ConfigError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import Offsets, TopicPartition, from_spark_json

EARLIEST, LATEST = -2, -1


def resolve_starting_offsets(
    options: Mapping[str, str],
    partitions: Collection[TopicPartition],
    cluster: KafkaCluster,
    isolation_level: str,
) -> dict[TopicPartition, int]:
    """Resolve the starting position to offsets.

    Args:
        options: Checked source options, without the defaults.
        partitions: The partitions that will be drained.
        cluster: The cluster to ask.
        isolation_level: Determines what `latest` is.

    Raises:
        ConfigError: When the position doesn't name each partition, is outside what Kafka holds, or
            is a time after the last record.
    """
    first = cluster.earliest(partitions)
    last = cluster.latest(partitions, isolation_level)
    if "startingTimestamp" in options:
        times = dict.fromkeys(partitions, int(options["startingTimestamp"]))
        return _at_times("startingTimestamp", times, first, last, options, cluster)
    if "startingOffsetsByTimestamp" in options:
        name = "startingOffsetsByTimestamp"
        times = from_spark_json(options[name])
        _check_covers(name, times, partitions)
        return _at_times(name, times, first, last, options, cluster)
    position = options.get("startingOffsets", DEFAULTS["startingOffsets"])
    if position in ("earliest", "latest"):
        return first if position == "earliest" else last
    wanted = from_spark_json(position)
    _check_covers("startingOffsets", wanted, partitions)
    for tp, offset in wanted.items():
        if offset >= 0 and not first[tp] <= offset <= last[tp]:
            raise ConfigError(
                f"startingOffsets[{tp.topic}][{tp.partition}] = {offset} is outside what Kafka "
                f"holds, [{first[tp]}, {last[tp]}); choose an offset in this range, or -2 for "
                "earliest"
            )
    named = {EARLIEST: first, LATEST: last}
    return {tp: named[offset][tp] if offset < 0 else offset for tp, offset in wanted.items()}


def _check_covers(
    name: str, given: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> None:
    missing = sorted(set(partitions) - set(given))
    extra = sorted(set(given) - set(partitions))
    if missing or extra:
        seen = "doesn't name " + ", ".join(map(str, missing)) if missing else ""
        seen += " and " if missing and extra else ""
        seen += "names " + ", ".join(map(str, extra)) + ", which isn't drained" if extra else ""
        raise ConfigError(f"{name} {seen}; name exactly the drained partitions")


def _at_times(
    name: str,
    times: Offsets,
    first: Offsets,
    last: Offsets,
    options: Mapping[str, str],
    cluster: KafkaCluster,
) -> dict[TopicPartition, int]:
    found = cluster.at_times(times)
    quiet = sorted(tp for tp, offset in found.items() if offset < 0)
    if quiet and options.get("startingOffsetsByTimestampStrategy", "error") == "error":
        raise ConfigError(
            f"{name}: {', '.join(map(str, quiet))} has no record at or after that time; choose an "
            "earlier time, or startingOffsetsByTimestampStrategy = 'latest'"
        )
    # Some services find records by time that they have deleted (DeleteRecords).
    return {tp: last[tp] if at < 0 else max(at, first[tp]) for tp, at in found.items()}
