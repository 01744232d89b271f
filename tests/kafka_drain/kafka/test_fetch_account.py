"""Which offsets were markers: each kind of response, and librdkafka's lines of it."""

from __future__ import annotations

import logging

import pytest

from kafka_drain.kafka.fetch_account import FetchAccount, Response, markers_of
from kafka_drain.offsets import OffsetRange, TopicPartition

R = OffsetRange
TP = TopicPartition("t.x-1", 0)


def response(start: int, end: int, messages: int, markers: int) -> Response:
    return Response(R(start, end), messages, markers)


@pytest.mark.parametrize(
    ("responses", "quiet", "markers", "unclear"),
    [
        # A topic that never saw a transaction has none, whatever it lacks.
        ([], [R(3, 4), R(7, 9)], [], []),
        # Nothing is absent: what isn't a record is a marker.
        ([response(0, 10, 10, 2)], [R(3, 4), R(9, 10)], [R(3, 4), R(9, 10)], []),
        # Several markers may follow each other.
        ([response(0, 10, 10, 3)], [R(4, 7)], [R(4, 7)], []),
        # Only the part of a gap that the response covers.
        ([response(5, 10, 5, 2)], [R(2, 7)], [R(5, 7)], []),
        # A marker and a hole in one response: smaller ones tell them apart,
        ([response(0, 10, 8, 1)], [R(3, 4), R(6, 8)], [], [R(3, 4), R(6, 8)]),
        # with a batch each: a marker is the last that its response has.
        ([response(3, 4, 1, 1)], [R(3, 4)], [R(3, 4)], []),
        ([response(6, 9, 1, 1)], [R(6, 9)], [R(8, 9)], []),
        # A batch of records after a hole, and a marker that compaction emptied.
        ([response(6, 12, 2, 1)], [R(6, 10)], [], [R(6, 10)]),
        ([response(6, 12, 1, 1)], [R(6, 11)], [], []),
        # What one response leaves open another may tell.
        ([response(0, 10, 8, 1), response(3, 4, 1, 1)], [R(3, 5)], [R(3, 4)], [R(4, 5)]),
        # Read twice.
        ([response(0, 4, 4, 1), response(2, 4, 2, 1)], [R(3, 4)], [R(3, 4)], []),
    ],
)
def test_markers_of(
    responses: list[Response],
    quiet: list[OffsetRange],
    markers: list[OffsetRange],
    unclear: list[OffsetRange],
) -> None:
    """An offset is a marker only where the account leaves nothing else for it to be."""
    assert markers_of(responses, quiet) == (markers, unclear)


def say(account: FetchAccount, *lines: str) -> None:
    for line in lines:
        account.logger.log(logging.DEBUG, "%s", line)


def asked(offset: int, version: int = 2, tp: TopicPartition = TP) -> str:
    return (
        f"FETCH [rdkafka#consumer-1] [thrd:h:1/1]: h:1/1: Fetch topic {tp.topic} [{tp.partition}] "
        f"at offset {offset} (leader epoch -1, current leader epoch 0, v{version})"
    )


def got(last: int, messages: int, markers: int, version: int = 2, tp: TopicPartition = TP) -> str:
    return (
        f"CONSUME [rdkafka#consumer-1] [thrd:h:1/1]: h:1/1: Enqueue {messages} message(s) (24 "
        f"bytes, 15 ops) on {tp.topic} [{tp.partition}] fetch queue (qlen 1, v{version}, "
        f"last_offset {last}, {markers} ctrl msgs, 0 aborted msgsets, uncompressed)"
    )


def test_fetch_account_take() -> None:
    """A response starts at what was asked for; one without markers isn't kept."""
    account, other = FetchAccount(), TopicPartition("u", 3)
    assert not account.is_understood()

    say(account, asked(4), got(9, 6, 2), asked(10), got(12, 3, 0), asked(13), got(13, 1, 1))
    say(account, asked(0, tp=other), got(0, 1, 1, tp=other), "INIT [rdkafka#consumer-1] …")

    assert account.is_understood()
    assert account.take(TP) == [response(4, 10, 6, 2), response(13, 14, 1, 1)]
    assert account.take(TP) == []
    assert account.take(other) == [response(0, 1, 1, 1)]


def test_fetch_account_moved_on() -> None:
    """What arrives of an earlier position belongs to what was asked there."""
    account = FetchAccount()

    say(account, asked(4, 2), asked(900, 4), got(9, 6, 2, 2), got(901, 2, 1, 4))

    assert account.take(TP) == [response(4, 10, 6, 2), response(900, 902, 2, 1)]


def test_fetch_account_take_forgets_others() -> None:
    """Only of the partition that is taken, what was asked for stays known."""
    account, other = FetchAccount(), TopicPartition("u", 3)
    say(account, asked(4), asked(0, tp=other))
    account.take(TP)

    say(account, got(9, 6, 2), got(0, 1, 1, tp=other))

    assert account.take(TP) == [response(4, 10, 6, 2)]
    assert account.take(other) == []


def test_fetch_account_nothing_whole() -> None:
    """A response without a whole message has no end; one that nobody asked for no start."""
    account = FetchAccount()

    say(account, got(9, 6, 2), asked(4), got(-1, 0, 1))

    assert account.take(TP) == []
