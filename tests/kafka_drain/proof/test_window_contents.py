"""What windows hold of given offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.archive.window import Window
from kafka_drain.data_files.records import TimestampError
from kafka_drain.data_files.xxhash64 import records_fingerprint
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import window_contents
from kafka_drain.proof.content_checks import Tally
from kafka_drain.proof.window_contents import content_of_windows
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOTHING = Tally(0, "0" * 16, {})


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive with a window of offsets 0 to 9 of two partitions, and one of 20 to 29."""
    made = MadeArchive(tmp_path / "topic=other" / "archive", {"t": "id"})
    made.seal_window("one", {P0: dense(0, 10), P1: dense(0, 10)})
    made.seal_window("two", {P0: dense(20, 30)})
    return made


def held(
    made: MadeArchive, ranges: dict[TopicPartition, list[OffsetRange]], *replaced: str
) -> Tally:
    windows = made.archive.snapshot().windows
    return content_of_windows(made.root, windows, replaced, ranges, made.topic_ids)


def test_content_of_windows(made: MadeArchive) -> None:
    """What is counted and hashed are the records of these offsets, whichever window has them."""
    first = held(made, {P0: [OffsetRange(3, 5)]})
    second = held(made, {P0: [OffsetRange(5, 10), OffsetRange(29, 40)]})
    other = held(made, {P1: [OffsetRange(0, 1)]})
    both = held(made, {P0: [OffsetRange(3, 10), OffsetRange(29, 40)], P1: [OffsetRange(0, 1)]})

    assert [each.records for each in (first, second, other, both)] == [2, 6, 1, 9]
    assert both.by_partition == {P0: 8, P1: 1}
    found = 0
    for each in (first, second, other):
        assert each.fingerprint is not None
        found ^= int(each.fingerprint, 16)
    assert both.fingerprint == f"{found:016x}"
    assert len({first.fingerprint, second.fingerprint, other.fingerprint}) == 3


def test_content_of_windows_nothing_there(made: MadeArchive) -> None:
    """Nothing is held of other offsets, of another topic, or in files that were replaced."""
    assert held(made, {P0: [OffsetRange(10, 20)]}) == NOTHING
    assert held(made, {TopicPartition("u", 0): [OffsetRange(0, 20)]}) == NOTHING
    [file] = Window(made.root, "two").read_receipt().files
    assert held(made, {P0: [OffsetRange(0, 90)]}, file.path).records == 10
    assert records_fingerprint([], "t") == 0


def test_content_of_windows_time_beyond(made: MadeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records whose times can't be read are counted at these offsets alone, without a hash."""

    def refuse(*_: object) -> None:
        raise TimestampError("a record's time can't be read")

    monkeypatch.setattr(window_contents, "read_records", refuse)

    found = held(made, {P0: [OffsetRange(3, 5), OffsetRange(8, 25)], P1: [OffsetRange(9, 40)]})

    assert found == Tally(10, None, {P0: 9, P1: 1})


def test_content_of_windows_topic_made_again(tmp_path: Path) -> None:
    """A window of the topic before it holds other records at the same offsets."""
    u = TopicPartition("u", 0)
    made = MadeArchive(tmp_path / "archive", {"t": "id", "u": "old"})
    made.seal_window("one", {P0: dense(0, 10), u: dense(0, 10)})
    made.open_generation(u="new")
    made.seal_window("two", {u: dense(0, 10)})

    found = content_of_windows(
        made.root, made.archive.snapshot().windows, (), {u: [OffsetRange(0, 10)]}, made.topic_ids
    )

    assert found.records == 10
