"""Options of Spark's Kafka source: names, accepted values, and combinations.

Names are Spark's own (`KafkaSourceProvider`); Spark itself silently accepts misspelt ones.
Opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafka_drain.config.checks import (
    Check,
    boolean,
    duration,
    integer,
    offsets,
    one_of,
    text,
    timestamp,
    timestamps,
    unknown,
)
from kafka_drain.errors import ConfigError

#: org.apache.kafka.common.internals.Topic.INTERNAL_TOPICS, which subscribePattern excludes.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})

#: Spark's source options that a drain accepts, each with its value check.
OPTIONS: dict[str, Check] = {
    "startingOffsets": offsets,
    "startingTimestamp": timestamp,
    "startingOffsetsByTimestamp": timestamps,
    "startingOffsetsByTimestampStrategy": one_of("error", "latest"),
    "failOnDataLoss": boolean,
    "kafkaConsumer.pollTimeoutMs": integer(1),
    "fetchOffset.numRetries": integer(0),
    "fetchOffset.retryIntervalMs": integer(0),
    "maxOffsetsPerTrigger": integer(1),
    "minOffsetsPerTrigger": integer(1),
    "maxTriggerDelay": duration,
    "minPartitions": integer(1),
    "maxRecordsPerPartition": integer(1),
    "groupIdPrefix": text,
    "includeHeaders": boolean,
}

#: Options for where the first drain starts; at most one may be given.
STARTING_POSITIONS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")

#: Defaults of a drain. Spark's own default starting position is `latest`, an archive's is
#: `earliest`; without `includeHeaders`, headers are lost; without `read_committed`, aborted records
#: are included. The other values were measured: fetches and polls are larger than Kafka's own
#: defaults, but not so large that buffered data fills a heap of 1 GiB.
DEFAULTS: dict[str, str] = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    # A task asks for the partition's bounds after each poll, queued behind the consumer's next
    # fetch; at the end of the log, the broker would hold that fetch for 500 ms.
    "kafka.fetch.max.wait.ms": "10",
    # Each partition has a consumer, and registering its metrics takes a third of its start.
    "kafka.auto.include.jmx.reporter": "false",
    "kafka.enable.metrics.push": "false",
    # Spark's default is 120 s (spark.network.timeout), also for what no broker will ever deliver,
    # such as an offset whose object is gone from tiered storage. Kafka's client gives a broker up
    # after 30 s (request.timeout.ms) and asks the next one, which has as long to answer.
    "kafkaConsumer.pollTimeoutMs": "60000",
    # Kafka's own default brings a topic back that was deleted while it was read, with another id.
    "kafka.allow.auto.create.topics": "false",
}

#: Prefix of the client id of a pipeline's consumers, for which brokers may have a quota.
CLIENT_ID = "kafka-drain-"

# Options of streaming queries, which don't apply to bounded reads.
_STREAMING = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "failOnDataLoss")


#: Options that a bounded read leaves out.
NOT_BOUNDED = frozenset(
    {*STARTING_POSITIONS, "startingOffsetsByTimestampStrategy", *_STREAMING},
)


def reader_options(given: Mapping[str, Any], name: str, *, is_bounded: bool) -> dict[str, str]:
    """Return the options of Spark's source, without the starting position and the topics.

    Args:
        given: A pipeline's source options.
        name: The pipeline's name, which its consumers have in their client id.
        is_bounded: Whether the read has end offsets, as opposed to a streaming query.
    """
    left_out = NOT_BOUNDED if is_bounded else NOT_BOUNDED.difference(_STREAMING)
    own = {"kafka.client.id": f"{CLIENT_ID}{name}"}
    options = DEFAULTS | own | {option: str(value) for option, value in given.items()}
    return {name: value for name, value in options.items() if name not in left_out}


# Options of Spark's source that are determined elsewhere.
_ELSEWHERE = {
    "subscribe": "set topics=[…] in the pipeline",
    "subscribePattern": "set topic_pattern=… in the pipeline",
    "assign": "set assign={…} in the pipeline",
    "kafka.bootstrap.servers": "it comes from the Kafka connection",
    "endingOffsets": "it bounds a batch read; a drain always ends at the latest offsets",
    "endingTimestamp": "it bounds a batch read; a drain always ends at the latest offsets",
    "endingOffsetsByTimestamp": "it bounds a batch read; a drain always ends at the latest offsets",
    "kafka.auto.offset.reset": "set startingOffsets instead",
    "kafka.enable.auto.commit": "Spark keeps the offsets in its checkpoint",
    "kafka.key.deserializer": "keys are kept as bytes",
    "kafka.value.deserializer": "values are kept as bytes",
    "kafka.interceptor.classes": "Spark doesn't allow it, because it may break the query",
}

# org.apache.kafka.clients.consumer.ConsumerConfig of kafka-clients 3.9.1, except what the
# connection sets (security.*, sasl.*, ssl.*) and what Spark refuses.
_CONSUMER = frozenset(
    """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter check.crcs
    client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms
    enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
    group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    metadata.max.age.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """.split()
)
_BOOLEANS = frozenset(
    """
    allow.auto.create.topics auto.include.jmx.reporter check.crcs enable.metrics.push
    exclude.internal.topics
    """.split()
)
_NUMBERS = (".ms", ".bytes", ".records", ".samples")


def _check_consumer_option(name: str, value: Any) -> str:
    consumer_name = name.removeprefix("kafka.")
    if consumer_name.split(".")[0] in ("security", "sasl", "ssl"):
        raise ConfigError(
            f"{name!r} doesn't belong in source_options: set it in the Kafka connection"
        )
    if consumer_name not in _CONSUMER:
        known = [f"kafka.{known}" for known in _CONSUMER]
        raise unknown(name, value, known, "option of Kafka's consumer")
    if consumer_name == "isolation.level":
        return one_of("read_committed", "read_uncommitted")(name, value)
    if consumer_name in _BOOLEANS:
        return boolean(name, value)
    return integer(-1)(name, value) if name.endswith(_NUMBERS) else text(name, value)


def whole_pattern(pattern: str) -> str:
    """Return a pattern for subscribePattern that matches whole names, like Kafka's consumer.

    Spark searches for a match anywhere in the name (SubscribePatternStrategy, `findFirstIn`).
    """
    return rf"\A(?:{pattern})\z"


def subscribed_topics(options: Mapping[str, str]) -> set[str]:
    """Return the topics named by options of Spark's source; a pattern names none."""
    named = set(json.loads(options.get("assign", "{}")))
    return named | set(filter(None, options.get("subscribe", "").split(",")))


def check_source_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Check source options and return them in Spark's form, without the defaults.

    Args:
        options: Options by Spark's names; consumer options have the prefix `kafka.`.

    Raises:
        ConfigError: When a name is unknown, a value isn't accepted, or two options contradict each
            other; names the option, its value and what is accepted.
    """
    checked: dict[str, str] = {}
    for name, value in options.items():
        if name in _ELSEWHERE:
            raise ConfigError(
                f"{name!r} (value {value!r}) doesn't belong in source_options: {_ELSEWHERE[name]}"
            )
        if name.startswith("kafka."):
            checked[name] = _check_consumer_option(name, value)
        elif name in OPTIONS:
            checked[name] = OPTIONS[name](name, value)
        else:
            raise unknown(name, value, OPTIONS, "option of Spark's Kafka source")
    _check_together(checked)
    return checked


def _check_together(options: Mapping[str, str]) -> None:
    positions = [name for name in STARTING_POSITIONS if name in options]
    if len(positions) > 1:
        raise ConfigError(
            f"{' and '.join(positions)} contradict each other: give only one starting position"
        )
    if (
        "startingOffsetsByTimestampStrategy" in options
        and "startingTimestamp" not in options
        and "startingOffsetsByTimestamp" not in options
    ):
        raise ConfigError(
            "startingOffsetsByTimestampStrategy has no effect without startingTimestamp or "
            "startingOffsetsByTimestamp: give one of them, or leave it out"
        )
    least, most = (options.get(f"{limit}OffsetsPerTrigger") for limit in ("min", "max"))
    if least and most and int(least) > int(most):
        raise ConfigError(
            f"minOffsetsPerTrigger = {least} exceeds maxOffsetsPerTrigger = {most}: no batch "
            "can satisfy both"
        )
    if "maxTriggerDelay" in options and not least:
        raise ConfigError(
            "maxTriggerDelay has no effect without minOffsetsPerTrigger: give both or neither"
        )
    if "groupIdPrefix" in options and "kafka.group.id" in options:
        raise ConfigError(
            "groupIdPrefix and kafka.group.id contradict each other: give only one of them"
        )
