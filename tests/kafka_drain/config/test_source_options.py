"""Options of Spark's Kafka source: names, values, and which go together."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafka_drain.config.source_options import (
    DEFAULTS,
    OPTIONS,
    STARTING_POSITIONS,
    check_source_options,
    reader_options,
    subscribed_topics,
    whole_pattern,
)
from kafka_drain.errors import ConfigError
from tests.tables import each_of


@each_of(
    "name, value, expected",
    [
        ("startingOffsets", "latest", "latest"),
        ("startingOffsets", {"t": {"0": 5}}, '{"t": {"0": 5}}'),
        ("startingTimestamp", "2026-01-01T00:00:00Z", "1767225600000"),
        ("startingOffsetsByTimestamp", {"t": {0: 7}}, '{"t": {"0": 7}}'),
        ("failOnDataLoss", False, "false"),
        ("kafkaConsumer.pollTimeoutMs", 1000, "1000"),
        ("fetchOffset.numRetries", 0, "0"),
        ("fetchOffset.retryIntervalMs", 10, "10"),
        ("maxOffsetsPerTrigger", 1, "1"),
        ("minOffsetsPerTrigger", "5", "5"),
        ("minPartitions", 8, "8"),
        ("maxRecordsPerPartition", 100, "100"),
        ("groupIdPrefix", "drain", "drain"),
        ("includeHeaders", True, "true"),
        ("kafka.isolation.level", "read_uncommitted", "read_uncommitted"),
        ("kafka.max.poll.records", 500, "500"),
        ("kafka.fetch.max.bytes", "1024", "1024"),
        ("kafka.fetch.max.wait.ms", 100, "100"),
        ("kafka.send.buffer.bytes", -1, "-1"),
        ("kafka.client.rack", "eu-1", "eu-1"),
        ("kafka.group.id", "g", "g"),
    ],
)
def test_source_option_accepted(name: str, value: Any, expected: str) -> None:
    """Each accepted option becomes text, and nothing is added to it."""
    assert {name: expected} == check_source_options({name: value})


def test_source_options_none() -> None:
    """Without options there are none: the defaults are added elsewhere."""
    assert check_source_options({}) == {}


def test_source_options_defaults() -> None:
    """The defaults pass their own checks unchanged."""
    assert check_source_options(DEFAULTS) == DEFAULTS


@each_of(
    "name, value, accepted",
    [
        ("startingOffsets", "banana", 'earliest, latest, or {"topic"'),
        ("startingTimestamp", "now", "milliseconds since 1970"),
        ("startingOffsetsByTimestamp", 5, "milliseconds since 1970"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error, latest"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("kafkaConsumer.pollTimeoutMs", 0, "a whole number, at least 1"),
        ("fetchOffset.numRetries", -1, "a whole number, at least 0"),
        ("fetchOffset.retryIntervalMs", "1s", "a whole number, at least 0"),
        ("maxOffsetsPerTrigger", 0, "a whole number, at least 1"),
        ("maxOffsetsPerTrigger", "10k", "a whole number, at least 1"),
        ("minOffsetsPerTrigger", -5, "a whole number, at least 1"),
        ("maxTriggerDelay", 15, "a number with ms, s, m, h or d"),
        ("minPartitions", 0, "a whole number, at least 1"),
        ("maxRecordsPerPartition", 0, "a whole number, at least 1"),
        ("groupIdPrefix", "", "text"),
        ("includeHeaders", "1", "true or false"),
        ("kafka.isolation.level", "committed", "read_committed, read_uncommitted"),
        ("kafka.max.poll.records", "many", "a whole number"),
        ("kafka.fetch.max.bytes", "1 MB", "a whole number"),
        ("kafka.metrics.num.samples", "x", "a whole number"),
        ("kafka.check.crcs", "banana", "true or false"),
        ("startingTimestamp", 1 << 63, "at least 0, and at most 9223372036854775807"),
        ("maxOffsetsPerTrigger", "9" * 25, "and at most 9223372036854775807"),
        ("startingOffsets", {"t": {"\u00b2": 1}}, "earliest, latest, or"),
    ],
)
def test_source_option_refused(name: str, value: Any, accepted: str) -> None:
    """A refused value is told with the option's name and what is accepted."""
    with pytest.raises(ConfigError) as raised:
        check_source_options({name: value})

    message = str(raised.value)
    shown = f"{name}[t][\u00b2] = 1" if isinstance(value, dict) else f"{name} = {value!r}"
    assert message.startswith(f"{shown} is not acceptable; accepted: ")
    assert accepted in message


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_source_option_checked(name: str) -> None:
    """Every option refuses a list: none lets any value through."""
    with pytest.raises(ConfigError, match=name):
        check_source_options({name: [1, 2]})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("startingOffset", "startingOffsets"),
        ("startingoffsets", "startingOffsets"),
        ("failOnDataloss", "failOnDataLoss"),
        ("includeHeader", "includeHeaders"),
        ("maxRecordPerPartition", "maxRecordsPerPartition"),
        ("kafka.max.poll.record", "kafka.max.poll.records"),
        ("kafka.isolation.levels", "kafka.isolation.level"),
    ],
)
def test_source_option_misspelt(written: str, meant: str) -> None:
    """A misspelt name is refused with its value and the name that was meant."""
    with pytest.raises(ConfigError) as raised:
        check_source_options({written: 17})

    message = str(raised.value)
    assert repr(written) in message
    assert "17" in message
    assert f"did you mean {meant!r}?" in message


def test_source_option_unknown() -> None:
    """A name that is like no option gets all of them."""
    with pytest.raises(ConfigError) as raised:
        check_source_options({"zzz": 1})

    assert all(name in str(raised.value) for name in OPTIONS)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("subscribe", "topics="),
        ("subscribePattern", "topic_pattern="),
        ("assign", "assign="),
        ("kafka.bootstrap.servers", "Kafka connection"),
        ("endingOffsets", "a drain always ends at the latest offsets"),
        ("endingTimestamp", "a drain always ends at the latest offsets"),
        ("endingOffsetsByTimestamp", "a drain always ends at the latest offsets"),
        ("kafka.auto.offset.reset", "set startingOffsets instead"),
        ("kafka.enable.auto.commit", "checkpoint"),
        ("kafka.key.deserializer", "bytes"),
        ("kafka.value.deserializer", "bytes"),
        ("kafka.interceptor.classes", "may break the query"),
    ],
)
def test_source_option_decided_elsewhere(name: str, instead: str) -> None:
    """An option that something else decides is refused, and the message says what does."""
    with pytest.raises(ConfigError) as raised:
        check_source_options({name: "value-17"})

    message = str(raised.value)
    assert message.startswith(f"{name!r} (value 'value-17') doesn't belong in source_options: ")
    assert instead in message


@pytest.mark.parametrize(
    "name",
    ["kafka.sasl.jaas.config", "kafka.ssl.key.password", "kafka.security.protocol", "kafka.sasl.x"],
)
def test_source_option_of_connection(name: str) -> None:
    """What the connection sets is refused, and its value, maybe a secret, isn't shown."""
    with pytest.raises(ConfigError, match="set it in the Kafka connection") as raised:
        check_source_options({name: "hunter2"})

    assert name in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsets": "earliest", "startingTimestamp": 5},
            "startingOffsets and startingTimestamp contradict each other",
        ),
        (
            {"startingOffsetsByTimestamp": {"t": {"0": 5}}, "startingTimestamp": 5},
            "startingTimestamp and startingOffsetsByTimestamp contradict each other",
        ),
        (
            {"startingOffsetsByTimestampStrategy": "latest"},
            "startingOffsetsByTimestampStrategy has no effect without startingTimestamp",
        ),
        (
            {"startingOffsetsByTimestampStrategy": "latest", "startingOffsets": "latest"},
            "startingOffsetsByTimestampStrategy has no effect without startingTimestamp",
        ),
        (
            {"minOffsetsPerTrigger": 11, "maxOffsetsPerTrigger": 10},
            "minOffsetsPerTrigger = 11 exceeds maxOffsetsPerTrigger = 10",
        ),
        (
            {"minOffsetsPerTrigger": "100", "maxOffsetsPerTrigger": "20"},
            "minOffsetsPerTrigger = 100 exceeds maxOffsetsPerTrigger = 20",
        ),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
        (
            {"groupIdPrefix": "a", "kafka.group.id": "b"},
            "groupIdPrefix and kafka.group.id contradict each other",
        ),
    ],
)
def test_source_options_contradiction(options: dict[str, Any], message: str) -> None:
    """Options that are fine alone and contradict each other are refused, both are named."""
    with pytest.raises(ConfigError, match=message):
        check_source_options(options)


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"},
        {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "10"},
        {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "5m"},
        {"kafka.group.id": "b", "kafka.client.id": "c"},
    ],
)
def test_source_options_together(options: dict[str, str]) -> None:
    """Options that go together are accepted together."""
    assert options == check_source_options(options)


@pytest.mark.parametrize("pattern", ["flights", "flights|orders", "flights-.*", "fli|flights"])
def test_whole_pattern(pattern: str) -> None:
    """A pattern that is looked for anywhere in a name finds what it matches as a whole, only."""
    # Java writes the end of the input in lower case.
    search = re.compile(whole_pattern(pattern).removesuffix("z") + "Z").search
    names = ("flights", "flights-1", "my-flights", "orders", "orders-1", "flights-")

    assert {n for n in names if search(n)} == {n for n in names if re.fullmatch(pattern, n)}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": "a,b"}, {"a", "b"}),
        ({"assign": '{"a": [0, 1]}'}, {"a"}),
        ({"subscribePattern": "a|b"}, set()),
    ],
)
def test_subscribed_topics(options: dict[str, str], named: set[str]) -> None:
    """Topics are found where options name them; a pattern names none."""
    assert subscribed_topics(options) == named


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "kafka-drain-orders"), ({"kafka.client.id": "own"}, "own")]
)
def test_reader_options_client_id(given: dict[str, str], expected: str) -> None:
    """Brokers know a pipeline's consumers by its name, unless it says another one."""
    options = reader_options(given, "orders", is_bounded=False)

    assert options["kafka.client.id"] == expected


@pytest.mark.parametrize("is_bounded", [False, True])
def test_reader_options(is_bounded: bool) -> None:
    """Where a query starts is said apart; a bounded read has no triggers, and fails by itself."""
    given = {
        "startingOffsets": "latest",
        "startingOffsetsByTimestampStrategy": "latest",
        "maxOffsetsPerTrigger": 1000,
        "minPartitions": 4,
        "failOnDataLoss": False,
    }

    options = reader_options(given, "orders", is_bounded=is_bounded)

    assert not options.keys() & {*STARTING_POSITIONS, "startingOffsetsByTimestampStrategy"}
    assert options["minPartitions"] == "4"
    assert options["includeHeaders"] == "true"
    assert ("maxOffsetsPerTrigger" in options) is ("failOnDataLoss" in options) is not is_bounded
