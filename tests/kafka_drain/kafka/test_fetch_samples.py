"""Sizes in librdkafka's lines."""

from __future__ import annotations

import logging

from kafka_drain.kafka.fetch_samples import FetchSample, SampleLines
from kafka_drain.offsets import TopicPartition

A0, A1 = TopicPartition("a.b-1", 0), TopicPartition("a.b-1", 1)


def say(lines: SampleLines, *said: str) -> None:
    for line in said:
        lines.logger.log(logging.DEBUG, "%s", line)


def sent(tp: TopicPartition, size: int) -> str:
    return (
        f"FETCH [rdkafka#consumer-1] [thrd:b]: b/1: Topic {tp.topic} [{tp.partition}] MessageSet "
        f'size {size}, error "Success", MaxOffset 30, LSO 30, Ver 2/2'
    )


def unpacked(tp: TopicPartition, records: int, size: int) -> str:
    return (
        f"CONSUME [rdkafka#consumer-1] [thrd:b]: b/1: Enqueue {records} message(s) ({size} bytes, "
        f"{records} ops) on {tp.topic} [{tp.partition}] fetch queue (qlen 0, v2, last_offset 9, 0 "
        "ctrl msgs, 0 aborted msgsets, zstd)"
    )


def test_sample_lines() -> None:
    """The first response with records counts, and headers as those of the message that came."""
    lines = SampleLines()
    say(lines, sent(A0, 0), sent(A0, 300), unpacked(A0, 0, 0), "something else")
    say(lines, sent(A0, 327), sent(A1, 90), unpacked(A0, 10, 1_000_000), unpacked(A1, 1, 80))
    say(lines, sent(A0, 500), unpacked(A0, 20, 20))

    assert lines.take(A0, 3) == FetchSample(A0, 327, 10, 1_000_030)
    assert lines.take(A0, 3) is None
    assert lines.take(A1, 0) == FetchSample(A1, 90, 1, 80)
