"""Tests of reading a target back: is it silence or slowness?"""

from __future__ import annotations

import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.data_files.content_hash import UNREADABLE
from kafka_drain.errors import (
    AuthorizationError,
    KafkaDrainError,
    KafkaUnavailableError,
    SourceRecordError,
    TransientError,
)
from kafka_drain.kafka import reading_client
from kafka_drain.kafka.fetch_size import FIRST_BYTES, MOST_BYTES
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.verifying import target_reader
from kafka_drain.republish.verifying.target_reader import (
    LEAST_FETCH_BYTES,
    SHRINK,
    TargetReader,
    Wait,
    target_client,
    what_to_do,
)
from tests.tables import each_of

TIMEOUT = 120.0


@each_of("quiet", [0.0, 30.0, 30.1, 120.0, 120.1])
@each_of("asked", [0.0, 30.0, 30.1, 500.0])
@each_of("fetch_bytes", [MOST_BYTES, LEAST_FETCH_BYTES + 1, LEAST_FETCH_BYTES])
def test_what_to_do(quiet: float, asked: float, fetch_bytes: int) -> None:
    """Silence is what lasts for the whole time; before, less is asked for, as long as that goes."""
    found = what_to_do(quiet, asked, fetch_bytes, TIMEOUT)

    if quiet > 120:
        assert found is Wait.NO_MORE
    elif quiet > 30 and asked > 30 and fetch_bytes > LEAST_FETCH_BYTES:
        assert found is Wait.FOR_LESS
    else:
        assert found is Wait.ON


def test_what_to_do_least_in_time() -> None:
    """The least is asked for before the time is up."""
    sizes = [MOST_BYTES]
    while sizes[-1] > LEAST_FETCH_BYTES:
        sizes.append(max(LEAST_FETCH_BYTES, sizes[-1] // SHRINK))

    assert (len(sizes) - 1) * TIMEOUT / 4 < TIMEOUT * 3 / 4


@given(times=st.lists(st.floats(0, 200), min_size=2, max_size=20).map(sorted))
def test_what_to_do_property(times: list[float]) -> None:
    """Once it counts as silence it does so for as long as nothing comes."""
    found = [what_to_do(quiet, quiet, MOST_BYTES, TIMEOUT) for quiet in times]

    assert all(b is Wait.NO_MORE for a, b in pairwise(found) if a is Wait.NO_MORE)


def test_read_asks_for_less_once_for_each_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks for less begins where the records it gave end.

    How far the one before had fetched says nothing of it: else what comes again counts as silence.
    """
    tp = TopicPartition("t", 0)
    now = [0.0]
    asked: list[int] = []

    class Consumer:
        """The first one hears that more may be asked for, and the second fetches far, then nothing.

        The third, which asks for less, fetches again, an offset a second.
        """

        made = 0

        def __init__(self, settings: dict[str, Any]) -> None:
            Consumer.made += 1
            asked.append(settings["fetch.message.max.bytes"])
            self.tell = settings["stats_cb"]
            self.at = 900 if Consumer.made == 2 else 0

        def assign(self, _: Any) -> None: ...

        def consume(self, *_: Any) -> list[Any]:
            now[0] += 1.0
            if Consumer.made != 2 or self.at == 900:
                self.at += 1
                partition = {"0": {"next_offset": self.at}}
                more = {"rx_bytes": 10**6, "rxmsg_bytes": 10**6, "rxmsgs": 9}
                told = more if Consumer.made == 1 else {}
                self.tell(json.dumps({"topics": {"t": {"partitions": partition}}, **told}))
            if self.at == 400:
                raise StopIteration
            return []

        def close(self) -> None: ...

    monkeypatch.setattr(reading_client, "Consumer", Consumer)
    monkeypatch.setattr(target_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cluster: Any = SimpleNamespace(config=SimpleNamespace(for_librdkafka=dict))
    reader = TargetReader(cluster, tp, first=0, end=1_000, with_keys=False, timeout_seconds=TIMEOUT)

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(reader.read(lambda: False))

    # Of 400 seconds in which something came it took none for silence.
    assert asked == [FIRST_BYTES, MOST_BYTES, MOST_BYTES // SHRINK]


def test_read_comparing_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which what came is compared is no silence of Kafka's."""
    now = [0.0]
    asked: list[int] = []
    left = [0, None, 1, None, 2]

    class Consumer:
        def __init__(self, settings: dict[str, Any]) -> None:
            asked.append(settings["fetch.message.max.bytes"])

        def assign(self, _: Any) -> None: ...

        def consume(self, *_: Any) -> list[Any]:
            now[0] += 1.0
            offset = left.pop(0)
            parts = {"error": None, "offset": offset, "headers": None, "key": None, "value": b"v"}
            found = SimpleNamespace(**{name: lambda x=x: x for name, x in parts.items()})
            return [] if offset is None else [found]

        def close(self) -> None: ...

    monkeypatch.setattr(reading_client, "Consumer", Consumer)
    monkeypatch.setattr(target_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cluster: Any = SimpleNamespace(config=SimpleNamespace(for_librdkafka=dict))
    tp = TopicPartition("t", 0)
    reader = TargetReader(cluster, tp, first=0, end=3, with_keys=False, timeout_seconds=TIMEOUT)

    for _ in reader.messages(lambda: False):
        now[0] += 2 * TIMEOUT

    assert left == []
    assert asked == [FIRST_BYTES]


def test_read_with_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that share a client use one consumer, until one of them fails."""
    made, closed, assigned, reports = [], [], [], []
    given: list[int] = []

    class Consumer:
        def __init__(self, settings: dict[str, Any]) -> None:
            made.append(self)
            reports.append(settings["statistics.interval.ms"])

        def assign(self, partitions: Any) -> None:
            assigned.extend((tp.partition, tp.offset) for tp in partitions)
            given.clear()

        def consume(self, most: int, seconds: float) -> list[Any]:
            if assigned[-1] == (3, 0):
                raise RuntimeError("broken")
            assert most == 1
            at = len(given)
            given.append(at)
            parts = {"error": None, "offset": at, "headers": None, "key": None, "value": b"v"}
            return [SimpleNamespace(**{name: lambda x=x: x for name, x in parts.items()})]

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(reading_client, "Consumer", Consumer)
    cluster: Any = SimpleNamespace(config=SimpleNamespace(for_librdkafka=dict))
    client = target_client(cluster, 3_000)

    def read(partition: int) -> list[list[Any]]:
        reader = TargetReader(
            cluster,
            TopicPartition("t", partition),
            first=0,
            end=2,
            with_keys=False,
            timeout_seconds=TIMEOUT,
            client=client,
        )
        return list(reader.messages(lambda: False))

    assert [sum(map(len, read(number))) for number in (0, 1)] == [2, 2]
    assert (len(made), len(closed)) == (1, 0)
    with pytest.raises(RuntimeError, match="broken"):
        read(3)
    assert (len(made), len(closed)) == (1, 1)
    assert sum(map(len, read(4))) == 2
    client.close()

    assert (len(made), len(closed)) == (2, 2)
    assert assigned == [(0, 0), (1, 0), (3, 0), (4, 0)]
    assert reports == [3_000, 3_000]


@pytest.mark.parametrize(
    ("stable", "is_complete", "ends"), [(3, True, 3), (5, True, 5), (3, False, 5), (5, False, 5)]
)
def test_read_replica_behind(
    monkeypatch: pytest.MonkeyPatch, stable: int, is_complete: bool, ends: int
) -> None:
    """What an open transaction holds back may be left out, but not what a replica lacks yet.

    Nor may it before everything was found: our records may be behind another's transaction.
    """
    now = [0.0]

    def message(offset: int, code: int | None = None) -> Any:
        error = None if code is None else KafkaError(code)
        parts = {"error": error, "offset": offset, "headers": None, "key": None, "value": b"v"}
        return SimpleNamespace(**{name: lambda x=x: x for name, x in parts.items()})

    class Consumer:
        """Ends at 3 at first, and at 5 a moment later, unless that isn't to be waited for."""

        def __init__(self, _: dict[str, Any]) -> None:
            self.left = [*map(message, range(3)), message(3, KafkaError._PARTITION_EOF), None, None]
            self.left += [*map(message, range(3, ends))]

        def assign(self, _: Any) -> None: ...

        def consume(self, *_: Any) -> list[Any]:
            now[0] += 1.0
            found = self.left.pop(0) if self.left else None
            return [] if found is None else [found]

        def close(self) -> None: ...

    monkeypatch.setattr(reading_client, "Consumer", Consumer)
    monkeypatch.setattr(target_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tp = TopicPartition("t", 0)
    cluster: Any = SimpleNamespace(
        config=SimpleNamespace(for_librdkafka=dict), latest=lambda *_: {tp: stable}
    )
    reader = TargetReader(cluster, tp, first=0, end=5, with_keys=False, timeout_seconds=TIMEOUT)

    # Complete, all that was sent ends before 3: what follows may be a duplicate.
    batches = reader.messages(lambda: is_complete)

    assert [message.offset() for batch in batches for message in batch] == list(range(ends))


TP = TopicPartition("t", 0)


def message(offset: int, code: int | None = None) -> Any:
    """A record, or an event, as the client returns it."""
    parts = {
        "error": None if code is None else KafkaError(code, "why"),
        "offset": offset,
        "headers": [("h", b"1")],
        "key": b"k",
        "value": b"v%d" % offset,
        "timestamp": (1, 1_000 + offset),
    }
    return SimpleNamespace(**{name: lambda x=x: x for name, x in parts.items()})


def reader_of(
    patch: pytest.MonkeyPatch, takes: list[list[Any]], *, first: int = 0, end: int, stable: int = 0
) -> TargetReader:
    """A reader whose client gives these messages, a second each, and then nothing."""
    now = [0.0]
    left = list(takes)

    class Consumer:
        def __init__(self, _: dict[str, Any]) -> None: ...

        def assign(self, _: Any) -> None: ...

        def consume(self, *_: Any) -> list[Any]:
            now[0] += 1.0
            assert now[0] < 1_000, "reads for ever"
            return left.pop(0) if left else []

        def close(self) -> None: ...

    patch.setattr(reading_client, "Consumer", Consumer)
    patch.setattr(target_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cluster: Any = SimpleNamespace(
        config=SimpleNamespace(for_librdkafka=dict), latest=lambda *_: {TP: stable}
    )
    return TargetReader(cluster, TP, first=first, end=end, with_keys=True, timeout_seconds=TIMEOUT)


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError._AUTO_OFFSET_RESET, TransientError, "all records from offset 3; verify again"),
        (KafkaError.OFFSET_OUT_OF_RANGE, TransientError, "all records from offset 3; verify again"),
        (KafkaError._BAD_MSG, SourceRecordError, "t-0"),
        (KafkaError.INVALID_MSG, SourceRecordError, "t-0"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError, "reading t-0 back"),
    ],
)
def test_read_event_ends(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[KafkaDrainError], says: str
) -> None:
    """Records that are gone, damaged or refused are never taken for a partition that ends."""
    reader = reader_of(monkeypatch, [[message(3)], [message(4), message(5, code)]], first=3, end=6)

    with pytest.raises(kind, match=says):
        list(reader.messages(lambda: True))


def test_read_event_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client gets over by itself ends nothing, and takes no record away."""
    passes = message(-1, KafkaError._TRANSPORT)
    takes = [[message(0), passes, message(1)], [passes], [], [message(2)]]
    reader = reader_of(monkeypatch, takes, end=3)

    found = [each.offset() for batch in reader.messages(lambda: True) for each in batch]

    assert found == [0, 1, 2]


@pytest.mark.parametrize(
    ("stable", "kind", "says"),
    [
        (2, TransientError, "last stable offset has been 2 .* its high watermark is 5"),
        (5, KafkaUnavailableError, "sent nothing from offset 2 .* expected records up to 5"),
    ],
)
def test_read_stalled(
    monkeypatch: pytest.MonkeyPatch, stable: int, kind: type[KafkaDrainError], says: str
) -> None:
    """Silence before the end is another's open transaction, or Kafka's; never the end."""
    takes = [[message(0), message(1)], [message(2, KafkaError._PARTITION_EOF)]]
    reader = reader_of(monkeypatch, takes, end=5, stable=stable)

    with pytest.raises(kind, match=says) as raised:
        list(reader.messages(lambda: False))

    assert type(raised.value) is kind


def test_read_ends_with_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction's marker at the end is no record that is missing, nor waited for."""
    takes = [[message(0), message(1)], [message(3, KafkaError._PARTITION_EOF)]]
    reader = reader_of(monkeypatch, takes, end=3, stable=3)

    assert [each.offset() for batch in reader.messages(bool) for each in batch] == [0, 1]


@pytest.mark.parametrize(("first", "end", "found"), [(0, 2, [0, 1]), (1, 2, [1]), (2, 2, [])])
def test_read_within_range(
    monkeypatch: pytest.MonkeyPatch, first: int, end: int, found: list[int]
) -> None:
    """Records that arrived after the end was known aren't ours to compare."""
    reader = reader_of(monkeypatch, [[message(at) for at in range(first, 4)]], first=first, end=end)

    assert [each.offset() for batch in reader.messages(bool) for each in batch] == found


def test_read_whole_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a record is compared; headers that nobody can read are those of another's record."""

    def fails(error: Exception) -> Any:
        def headers() -> Any:
            raise error

        return headers

    there = [message(at) for at in range(3)]
    there[1].headers = fails(SystemError())
    there[2].headers = fails(UnicodeDecodeError("utf-8", b"", 0, 1, ""))

    [found] = reader_of(monkeypatch, [there], end=3).read(lambda: True)

    assert found.keys == [b"k"] * 3
    assert found.values == [b"v0", b"v1", b"v2"]
    assert found.headers == [[("h", b"1")], UNREADABLE, UNREADABLE]
    assert found.timestamps == [1_000, 1_001, 1_002]
    assert (found.offsets, found.with_keys) == ([0, 1, 2], True)
